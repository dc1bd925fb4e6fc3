"""TiCDC's canal-JSON files to record batches of changes.

Format: TiCDC documentation, "TiCDC Canal-JSON Protocol". A file is messages, each followed by the terminator; a message is one
row change. Arrow's JSON reader does the work in blocks of whole lines; a block that it refuses, a terminator that is no line end,
and old rows that hold changed columns only are read message by message (``canal_messages``).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.json

from headrace.formats.base import DecodeError, Rejects
from headrace.formats.canal_messages import (
    LineMessages,
    StreamMessages,
    carried_columns,
    first_message,
    has_partial_old,
    is_lines,
    shows_old_rows,
    truncated,
    written_old_nulls,
)
from headrace.formats.canal_rows import CanalReader, OldRows, PartialOldError
from headrace.formats.values import check_time_zone
from headrace.model.table import TableSchema

__all__ = ["CanalJsonOptions", "decode_canal_json", "has_commit_ts"]

_BLOCK_BYTES = 4 << 20
_FIRST_OBJECT = re.compile(rb"[ \t\r\n]*\{")


@dataclass(frozen=True)
class CanalJsonOptions:
    """What no bucket tells about canal-JSON files; the defaults are TiCDC's. Raises ValueError for an unknown time zone.

    ``time_zone`` is that of TIMESTAMP text: TiCDC's ``--tz``. ``only_updated_columns_in_old`` is set by the changefeed's
    ``only-output-updated-columns`` and ``content-compatible``; where it is not told, it is noticed.
    """

    terminator: str = "\r\n"
    time_zone: str = "UTC"
    only_updated_columns_in_old: bool = False

    def __post_init__(self) -> None:
        check_time_zone(self.time_zone)

    @property
    def is_lines(self) -> bool:
        """Whether each message is a line of its own."""
        return is_lines(self.terminator)


def decode_canal_json(
    data: pa.Buffer | bytes,
    schema: TableSchema,
    options: CanalJsonOptions,
    *,
    old_images: bool = True,
    rejects: Rejects | None = None,
) -> Iterator[pa.RecordBatch]:
    """All rows of a file as batches in the layout of ``model.block``, of about 4 MiB of text each.

    An UPDATE gives UPDATE_BEFORE and UPDATE_AFTER; with ``old_images`` false the first only where the handle key moved, or where
    there is no handle key. ``seq`` is twice the message's number in the file, plus one for the row that is not an old image. The
    row columns are those the messages carry, in the order of ``schema``. Without the TiDB extension ``commit_ts`` is the
    largest that the message's millisecond allows (see :func:`has_commit_ts`). After the rows before it, the first bad
    message is raised: DecodeError with line, column and value; TruncatedRecordError when the last one is cut off. ``rejects``
    takes messages that are bad by themselves; where messages are no lines, not those that are no JSON, because nothing tells where
    they end.
    """
    view = memoryview(data)
    rejects = rejects or Rejects()
    carried = carried_columns(view, schema, options.terminator)
    old_rows = OldRows.CHANGED if options.only_updated_columns_in_old else OldRows.FULL
    reader = CanalReader(schema, carried, options.time_zone, old_images, old_rows)
    if not options.is_lines:
        yield from StreamMessages(view, reader, options.terminator, rejects).batches()
        return
    mark = b"\n" if "\n" in options.terminator else b"\r"
    number, position = 0, 0
    while position < len(view):
        block = _block(view, position, mark)
        if not block.endswith(mark):
            if block.strip():
                raise truncated(block, bytes(view[:position]).count(mark) + 1)
            return
        if reader.old_rows is OldRows.FULL and has_partial_old(block):
            reader = reader.expecting(OldRows.CHANGED)
        batch, messages, reader = _decode_block(block, mark, reader, number)
        if batch is not None:
            if batch.num_rows:
                yield batch
            number += messages
        else:
            lines = LineMessages(block, mark, reader, bytes(view[:position]).count(mark) + 1, position, rejects)
            yield from lines.batches(number)
            number += lines.count
        position += len(block)


def has_commit_ts(data: pa.Buffer | bytes) -> bool:
    """Whether the first message has the TiDB extension, and with it an exact commit ts. True for a file without messages."""
    try:
        message = first_message(memoryview(data))
    except DecodeError:
        return True
    extension = message.get("_tidb") if message is not None else {"commitTs": 0}
    return isinstance(extension, dict) and "commitTs" in extension


def _decode_block(block: bytes, mark: bytes, reader: CanalReader, number: int) -> tuple[pa.RecordBatch | None, int, CanalReader]:
    """The rows of a block and its number of messages; no rows when it must be read message by message."""
    if _FIRST_OBJECT.match(block) is None:
        # A bare null at the beginning ends Arrow's reader, and the process with it.
        return None, 0, reader
    try:
        # Arrow's reader lets bytes through that are not UTF-8; as one string of an array they are checked fast.
        offsets = pa.array([0, len(block)], pa.int64()).buffers()[1]
        pa.Array.from_buffers(pa.large_string(), 1, [None, offsets, pa.py_buffer(block)]).validate(full=True)
        table = pyarrow.json.read_json(
            pa.BufferReader(block),
            read_options=pyarrow.json.ReadOptions(use_threads=False, block_size=len(block) + 1),
            parse_options=pyarrow.json.ParseOptions(explicit_schema=reader.arrow_schema(), unexpected_field_behavior="ignore"),
        )
        old_nulls = None
        if reader.old_rows is OldRows.CHANGED and reader.old_images:
            if table.num_rows != block.count(mark) or not shows_old_rows(block, table.column("old")):
                return None, 0, reader
            old_nulls = written_old_nulls(block, mark, reader)
        messages = pa.RecordBatch.from_arrays([column.combine_chunks() for column in table.columns], schema=table.schema)
        return reader.build(messages, number, old_nulls), table.num_rows, reader
    except PartialOldError:
        return _decode_block(block, mark, reader.expecting(OldRows.CHANGED), number)
    except (ValueError, DecodeError):
        return None, 0, reader


def _block(view: memoryview, position: int, mark: bytes) -> bytes:
    """The next bytes up to a line end, about ``_BLOCK_BYTES``; up to the end of the data where there is none."""
    stop = position + _BLOCK_BYTES
    while True:
        block = bytes(view[position:stop])
        end = block.rfind(mark) + 1
        if end or stop >= len(view):
            return block[:end] if end else block
        stop += _BLOCK_BYTES
