"""Decodes TiCDC's CSV files to record batches of changes.

Format: TiCDC documentation, "TiCDC CSV Protocol". Arrow's own reader is used if it supports the dialect. It can distinguish a
quoted null string (text) from NULL, which few readers can. Everything else, and every error, is handled by ``csv_exact``, which
tracks lines and fields.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from headrace.formats import base
from headrace.formats.base import DecodeError, Rejects, SchemaMismatchError, told_tso
from headrace.formats.csv_exact import BATCH_BYTES, BATCH_ROWS, Place, Tokenizer, decode_exact
from headrace.formats.csv_layout import (
    HEADER_OPERATION,
    CsvLayout,
    CsvOptions,
    known_layout,
    layout_from_header,
    layout_from_record,
)
from headrace.formats.csv_rows import build_batch
from headrace.formats.values import WRITTEN, Written
from headrace.model.block import COMMIT_TS
from headrace.model.table import TableSchema
from headrace.model.types import arrow_type

__all__ = ["CsvOptions", "decode_csv", "first_commit_ts", "has_commit_ts"]

_COUNT_CHUNK = 1 << 20


def decode_csv(
    data: pa.Buffer | bytes, schema: TableSchema, options: CsvOptions, rejects: Rejects | None = None
) -> Iterator[pa.RecordBatch]:
    """All rows of a file as batches in the layout of ``model.block``, at most 131,072 rows and about 4 MiB of text each.

    ``seq`` is the row's number in the file, from 0, header lines not counted; ``commit_ts`` is 0 where the file has none. The
    row columns are those the file carries, in the order of ``schema``. After the rows before it, the first bad record is
    raised: DecodeError with line, column and value; TruncatedRecordError if the file does not end with a line end;
    SchemaMismatchError if the fields match no set of columns. ``rejects`` takes records with a bad value or a wrong number of
    fields. A misplaced quote is always raised, because good records may be inside the quotes.
    """
    view = memoryview(data)
    if not view:
        return
    rejects = rejects or Rejects()
    tokenizer = Tokenizer(options)
    first = tokenizer.first(view) if options.is_columnar else None
    if first is None or (first[1][0] == HEADER_OPERATION and options.header is False):
        yield from decode_exact(view, schema, options, rejects=rejects, tokenizer=tokenizer)
        return
    yield from _decode_fast(view, first[0], first[1], schema, options, tokenizer, rejects)


def has_commit_ts(data: pa.Buffer | bytes, schema: TableSchema, options: CsvOptions) -> bool:
    """Whether the file's records carry a commit ts, according to the options, the header, or the first record.

    True for a file without rows. Raises SchemaMismatchError.
    """
    if options.include_commit_ts is not None:
        return options.include_commit_ts
    first = Tokenizer(options).first(memoryview(data))
    if first is None:
        return True
    return _layout(first[1], schema, options).commit_ts is not None


def first_commit_ts(data: pa.Buffer | bytes, schema: TableSchema, options: CsvOptions) -> int | None:
    """The commit ts of the first record, given the beginning of a file; ``None`` if no complete record has one."""
    tokenizer = Tokenizer(options)
    records = (fields for _, fields in tokenizer.records(memoryview(data)) if fields != [b""])
    try:
        first = next(records)
        layout = _layout(first, schema, options)
        fields = next(records) if first[0] == HEADER_OPERATION else first
    except (DecodeError, StopIteration):
        return None
    if layout.commit_ts is None or len(fields) != layout.field_count:
        return None
    raw = tokenizer.value(fields[layout.commit_ts]) or b""
    return told_tso(raw)


def _layout(first: list[bytes], schema: TableSchema, options: CsvOptions) -> CsvLayout:
    if first[0] == HEADER_OPERATION:
        return layout_from_header([name.decode("utf-8", "replace") for name in first], schema, options)
    return layout_from_record(first, schema, options)


def _decode_fast(
    view: memoryview,
    start: int,
    first: list[bytes],
    schema: TableSchema,
    options: CsvOptions,
    tokenizer: Tokenizer,
    rejects: Rejects,
) -> Iterator[pa.RecordBatch]:
    """Decodes with Arrow's reader, some MiB of whole records at a time.

    Records that Arrow's reader refuses are decoded again by ``decode_exact``, which locates the error or accepts the records.
    """
    has_header = first[0] == HEADER_OPERATION
    place: Place | None = Place(start, 0, _first_layout(first, schema, options))
    while place is not None and place.start < len(view):
        end = _records_end(view, place.start, options)
        rows = _through_arrow(view[place.start : end], has_header, place, options)
        has_header = False
        if rows is None:
            until = end if end > place.start else None
            place = yield from decode_exact(view, schema, options, place, until=until, rejects=rejects, tokenizer=tokenizer)
            continue
        for offset in range(0, rows.num_rows, BATCH_ROWS):
            yield rows.slice(offset, BATCH_ROWS)
        place = Place(end, place.number + rows.num_rows, place.layout)


def _first_layout(first: list[bytes], schema: TableSchema, options: CsvOptions) -> CsvLayout | None:
    """The layout, ``None`` if the first record may be bad. Raises SchemaMismatchError for a header."""
    if first[0] == HEADER_OPERATION:
        return _layout(first, schema, options)
    try:
        return known_layout(first, schema, options)
    except SchemaMismatchError:
        return None


def _through_arrow(view: memoryview, has_header: bool, place: Place, options: CsvOptions) -> pa.RecordBatch | None:
    """The rows of whole records that begin at ``place``.

    ``None`` if Arrow's reader refuses one, if the layout is not known, or if not all records have it.
    """
    if place.layout is None or not view:
        return None
    try:
        batch = _read(view, has_header, place.layout, options)
        fields = {int(name): array for name, array in zip(batch.schema.names, batch.columns, strict=True)}
        rows = build_batch(fields, place.layout, options, place.number)
    except ValueError:
        return None
    if not place.layout.orders.are_several:
        return rows
    span = pc.min_max(rows.column(COMMIT_TS)).as_py()
    return rows if place.layout.holds(span["min"], span["max"]) else None


def _read(view: memoryview, has_header: bool, layout: CsvLayout, options: CsvOptions) -> pa.RecordBatch:
    """The used fields, typed, with their numbers as names. Raises pa.ArrowInvalid, also if there is no row."""
    types: dict[str, pa.DataType] = {"0": pa.string()}
    if layout.commit_ts is not None:
        types[str(layout.commit_ts)] = pa.int64()
    if layout.is_update is not None:
        types[str(layout.is_update)] = pa.string()
    for place, column in layout.columns:
        types[str(place)] = pa.string() if WRITTEN[column.type.kind] is Written.CODE else arrow_type(column.type)
    table = pyarrow.csv.read_csv(
        pa.BufferReader(pa.py_buffer(view)),
        read_options=pyarrow.csv.ReadOptions(
            use_threads=False,
            block_size=len(view) + 1,
            skip_rows=int(has_header),
            column_names=[str(place) for place in range(layout.field_count)],
        ),
        parse_options=pyarrow.csv.ParseOptions(
            delimiter=options.delimiter, quote_char=options.quote, double_quote=True, escape_char=False, newlines_in_values=True
        ),
        convert_options=pyarrow.csv.ConvertOptions(
            column_types=types,
            include_columns=list(types),
            null_values=[options.null],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )
    if table.num_rows == 0:
        raise pa.ArrowInvalid("there is no row")
    (batch,) = table.combine_chunks().to_batches()
    return batch


def _records_end(view: memoryview, start: int, options: CsvOptions) -> int:
    """The end of some MiB of complete records that begin at ``start``; ``start`` if there is none of a possible length."""
    size = BATCH_BYTES
    while True:
        end = start + _complete_end(view[start : start + size], options)
        if end > start or start + size >= len(view) or size >= base.MOST_RECORD_BYTES:
            return end
        size *= 2


def _complete_end(view: memoryview, options: CsvOptions) -> int:
    """Where the last complete record ends: after a line end that is outside of quotes."""
    quote = options.quote.encode()
    mark = options.terminator.encode()[-1:]
    open_quote = _count(view, quote) % 2 == 1
    end = len(view)
    while end:
        # Goes backwards over chunks. The quotes in the chunks passed decide whether the place before them is inside quotes.
        begin = max(0, end - _COUNT_CHUNK)
        chunk = bytes(view[begin:end])
        stop = len(chunk)
        while True:
            found = chunk.rfind(mark, 0, stop)
            open_quote ^= chunk.count(quote, found + 1, stop) % 2 == 1
            if found < 0:
                break
            if not open_quote:
                return begin + found + 1
            stop = found
        end = begin
    return 0


def _count(view: memoryview, mark: bytes) -> int:
    return sum(bytes(view[begin : begin + _COUNT_CHUNK]).count(mark) for begin in range(0, len(view), _COUNT_CHUNK))
