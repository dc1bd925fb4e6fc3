"""Decodes TiCDC's canal-JSON files to record batches of changes.

Format: TiCDC documentation, "TiCDC Canal-JSON Protocol". A file is a sequence of messages, each followed by the terminator; a
message is one row change. Arrow's JSON reader reads blocks of whole lines. A block that it refuses, and a file whose terminator is
not a line end, are read message by message (``canal_messages``).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from headrace.formats import base
from headrace.formats.base import DecodeError, Rejects
from headrace.formats.canal_members import require_columns_of_rows
from headrace.formats.canal_messages import (
    LineMessages,
    OldTexts,
    StreamMessages,
    carried_columns,
    first_message,
    has_extension,
    has_other_columns,
    is_lines,
    truncated,
)
from headrace.formats.canal_rows import CanalReader
from headrace.formats.json_lines import read_block
from headrace.formats.values import check_time_zone
from headrace.model.table import TableSchema

__all__ = ["CanalJsonOptions", "decode_canal_json", "has_commit_ts"]

_BLOCK_BYTES = 4 << 20
_LITTLE = 8
"""A last block that would be smaller than this part of a block is read with the one before. Each block takes some 2 ms."""
_FIRST_OBJECT = re.compile(rb"[ \t\r\n]*\{")


@dataclass(frozen=True)
class CanalJsonOptions:
    """Settings of canal-JSON files that the files do not record. The defaults are TiCDC's.

    ``time_zone`` is that of TIMESTAMP text: TiCDC's ``--tz``. There is no setting for whether an old row has all columns or only
    the changed ones (``only-output-updated-columns``, ``content-compatible``), because each message shows it. Raises ValueError for
    an unknown time zone.
    """

    terminator: str = "\r\n"
    time_zone: str = "UTC"

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

    Rows: an UPDATE gives UPDATE_BEFORE and UPDATE_AFTER. With ``old_images`` false it gives UPDATE_BEFORE only if the handle key
    moved, or if there is no handle key. ``seq`` is twice the message's number in the file, plus one for a row that is not an old
    image. The row columns are those that the messages carry, in the order of ``schema``.

    Commit ts: in a file without the TiDB extension, ``commit_ts`` is the smallest that the message's millisecond allows (see
    :func:`has_commit_ts`). In a file with it, a message is bad if it has no commit ts, or one outside the millisecond ``es``.

    Errors: the first bad message is raised after the rows before it, as DecodeError with line, column and value, or as
    TruncatedRecordError if the last message is cut off. ``rejects`` takes messages that are bad by themselves. If messages are not
    lines, it does not take messages that are not JSON, because it is unknown where they end.
    """
    view = memoryview(data)
    rejects = rejects or Rejects()
    carried = carried_columns(view, schema, options.terminator)
    reader = CanalReader(schema, carried, options.time_zone, old_images, has_extension(view))
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
        batch, messages = _decode_block(block, mark, reader, number)
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
    """Whether messages have the TiDB extension, which contains an exact commit ts. True for a file without messages."""
    view = memoryview(data)
    try:
        return has_extension(view) or first_message(view) is None
    except DecodeError:
        return True


def _decode_block(block: bytes, mark: bytes, reader: CanalReader, number: int) -> tuple[pa.RecordBatch | None, int]:
    """The rows of a block and its number of messages; ``None`` as rows if the block must be read message by message."""
    if _FIRST_OBJECT.match(block) is None or len(block) > base.MOST_RECORD_BYTES or has_other_columns(block, mark, reader):
        # A bare null at the beginning crashes Arrow's reader and the process.
        return None, 0
    try:
        table = read_block(block, reader.arrow_schema(), unexpected="ignore")
        messages = pa.RecordBatch.from_arrays([column.combine_chunks() for column in table.columns], schema=table.schema)
        rows = reader.build(messages, number, len(block), OldTexts(block, mark, table.column("old")))
        require_columns_of_rows(block, mark, messages, reader)
        return rows, table.num_rows
    except (ValueError, DecodeError):
        return None, 0


def _block(view: memoryview, position: int, mark: bytes) -> bytes:
    """The next bytes up to a line end, about ``_BLOCK_BYTES``; up to the end of the data if there is no line end.

    What little is left behind them is taken along.
    """
    stop = position + _BLOCK_BYTES
    if len(view) - stop < _BLOCK_BYTES // _LITTLE:
        stop = len(view)
    while True:
        block = bytes(view[position:stop])
        end = block.rfind(mark) + 1
        if end or stop >= len(view):
            return block[:end] if end else block
        stop += stop - position  # twice as much, so that a long line takes time in proportion
