"""TiCDC's CSV, record by record: the dialects that Arrow's reader does not know, and where exactly a file is wrong.

Format: TiCDC documentation, "TiCDC CSV Protocol". With a quote character, strings stand in quotes, quotes in them are
doubled and nothing else is escaped; NULL is the null string *without* quotes. Without one ("escape mode"), CR, LF, backslash and
each byte of a delimiter are escaped by a backslash; NULL is the raw null string.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from headrace.formats.base import DecodeError, TruncatedRecordError
from headrace.formats.csv_layout import HEADER_OPERATION, CsvLayout, CsvOptions, layout_from_header, layout_from_record
from headrace.formats.csv_rows import build_batch, convert_field
from headrace.formats.values import first_bad
from headrace.model.table import TableSchema

BATCH_ROWS = 131_072
BATCH_BYTES = 4 << 20
_ESCAPED = re.compile(rb"\\(.)", re.DOTALL)
_MEANING = {b"n": b"\n", b"r": b"\r"}


class Tokenizer:
    """Splits bytes into records of raw fields, and tells what a raw field means."""

    def __init__(self, options: CsvOptions) -> None:
        self._quote = options.quote.encode()
        self._null = options.null.encode()
        self._terminator = options.terminator.encode()
        delimiter = re.escape(options.delimiter.encode())
        # Some tools rewrite line ends, and outside of quotes a bare LF can be nothing else.
        self._line_breaks = (b"\r\n", b"\n") if options.terminator in ("\r\n", "\n") else (self._terminator,)
        line_break = b"|".join(map(re.escape, self._line_breaks))
        # The end of the data may also come in the middle of a terminator.
        partial = b"|".join(re.escape(self._terminator[:length]) for length in range(len(self._terminator)))
        end = b"(" + delimiter + b"|" + line_break + b"|(?:" + partial + rb")\Z)"
        if self._quote:
            quote = re.escape(self._quote)
            text = quote + b"(?:[^" + quote + b"]++|" + quote + quote + b")*+"
            self._field = re.compile(b"(" + text + quote + b"|(?!" + quote + b").*?)" + end, re.DOTALL)
            self._open = re.compile(text + rb"\Z", re.DOTALL)
        else:
            first = re.escape(options.delimiter.encode()[:1])
            plain = rb"(?:[^\\\r\n" + first + rb"]++|\\.|(?!" + delimiter + b"|" + line_break + rb")[^\\])*+"
            self._field = re.compile(b"(" + plain + b")" + end, re.DOTALL)
            self._open = re.compile(plain + rb"\\\Z", re.DOTALL)
        self._delimiter = options.delimiter.encode()

    def records(self, data: memoryview, start: int = 0) -> Iterator[tuple[int, list[bytes]]]:
        """Where each record starts, and its raw fields. Raises DecodeError, or TruncatedRecordError at the last record."""
        delimiter = self._delimiter
        record: list[bytes] = []
        expected = start
        for match in self._field.finditer(data, start):
            raw, end = match.groups()
            if match.start() != expected:
                break
            if end != delimiter and end not in self._line_breaks:
                if raw or record or end:
                    raise self._truncated(data, start, [*record, raw])
                return
            record.append(raw)
            expected = match.end()
            if end != delimiter:
                yield start, record
                record, start = [], expected
        if expected < len(data):
            if self._open.match(data, expected):
                raise self._truncated(data, start, record)
            raise DecodeError(
                "The record is not valid CSV: a quoted field is followed by something else than a delimiter or a line end.",
                line=self.line(data, start),
                value=self._shown(data, expected),
            )

    def first(self, data: memoryview) -> tuple[int, list[bytes]] | None:
        """Where the first record that is not an empty line starts, and its fields; ``None`` when nothing complete is there."""
        try:
            return next((item for item in self.records(data) if item[1] != [b""]), None)
        except DecodeError:
            return None

    def value(self, raw: bytes) -> bytes | None:
        """What a raw field means; ``None`` is NULL."""
        if raw == self._null:
            return None
        if self._quote:
            if raw[:1] == self._quote:
                return raw[1:-1].replace(self._quote * 2, self._quote)
            return raw
        if b"\\" in raw:
            return _ESCAPED.sub(lambda match: _MEANING.get(match[1], match[1]), raw)
        return raw

    def line(self, data: memoryview, offset: int) -> int:
        """The physical line, from 1, of a place."""
        mark = b"\n" if b"\n" in self._terminator else self._terminator
        return bytes(data[:offset]).count(mark) + 1

    def _shown(self, data: memoryview, offset: int) -> str:
        """The beginning of what stands there, to the end of the line."""
        return bytes(data[offset : offset + 80]).split(self._line_breaks[-1])[0].decode("utf-8", "replace").rstrip("\r")

    def _truncated(self, data: memoryview, start: int, fields: list[bytes]) -> TruncatedRecord:
        return TruncatedRecord(self.line(data, start), fields)


class TruncatedRecord(TruncatedRecordError):
    """A truncated record with the raw fields that could be read; the last may be incomplete."""

    def __init__(self, line: int, fields: list[bytes]) -> None:
        super().__init__("The last record is cut off: the file does not end with a line end.", line=line)
        self.fields = fields

    def read_commit_ts(self, layout: CsvLayout | None) -> None:
        """Fills in ``commit_ts`` when that field is complete, which another field after it proves."""
        if layout is None or layout.commit_ts is None or len(self.fields) <= layout.commit_ts + 1:
            return
        raw = self.fields[layout.commit_ts]
        if raw.isdigit():
            self.commit_ts = int(raw)


def decode_exact(
    data: memoryview, schema: TableSchema, options: CsvOptions, skip: int = 0, start: int = 0, layout: CsvLayout | None = None
) -> Iterator[pa.RecordBatch]:
    """All rows after the first ``skip``, then the DecodeError of the first bad record, if there is one.

    With ``start``, the byte at which a record begins, those ``skip`` rows lie before it and have shown the ``layout``.
    """
    decoder = _ExactDecoder(data, schema, options, Tokenizer(options), 0 if start else skip, layout, skip if start else 0)
    error: DecodeError | None = None
    try:
        for place, record in decoder.tokenizer.records(data, start):
            yield from decoder.take(place, record)
    except DecodeError as problem:
        error = problem
    yield from decoder.flush()
    if isinstance(error, TruncatedRecord):
        error.read_commit_ts(decoder.layout or _told_layout(options))
    if error is not None:
        raise error


def _told_layout(options: CsvOptions) -> CsvLayout | None:
    """The layout where the only record is cut off: what the options say of the commit ts."""
    return CsvLayout(0, 3, None, ()) if options.include_commit_ts else None


@dataclass
class _ExactDecoder:
    """Gathers records and converts them in batches. ``number`` counts the rows seen, ``skip`` of which are not wanted."""

    data: memoryview
    schema: TableSchema
    options: CsvOptions
    tokenizer: Tokenizer
    skip: int
    layout: CsvLayout | None = None
    number: int = 0
    starts: list[int] = field(default_factory=list)
    records: list[list[bytes]] = field(default_factory=list)
    size: int = 0

    def take(self, start: int, record: list[bytes]) -> Iterator[pa.RecordBatch]:
        """One more record; yields a batch when enough are there."""
        if record == [b""]:
            return
        if record[0] == HEADER_OPERATION:
            yield from self.flush()
            if self.options.header is not False:
                self.layout = layout_from_header([name.decode("utf-8", "replace") for name in record], self.schema, self.options)
            return
        if self.layout is None:
            self.layout = layout_from_record(record, self.schema, self.options)
        if len(record) != self.layout.field_count:
            raise DecodeError(
                f"The record has {len(record)} fields where {self.layout.field_count} are expected.",
                line=self.tokenizer.line(self.data, start),
            )
        self.number += 1
        if self.number <= self.skip:
            return
        self.starts.append(start)
        self.records.append(record)
        self.size += sum(map(len, record))
        if len(self.records) >= BATCH_ROWS or self.size >= BATCH_BYTES:
            yield from self.flush()

    def flush(self) -> Iterator[pa.RecordBatch]:
        """The gathered records as a batch; raises DecodeError for the first bad value, after the rows before it."""
        if self.layout is None or not self.records:
            return
        layout, value = self.layout, self.tokenizer.value
        columns = list(zip(*self.records, strict=True))
        texts = {place: pa.array([value(raw) for raw in columns[place]], pa.binary()) for place in layout.used_fields}
        number = self.number - len(self.records)
        starts, self.starts, self.records, self.size = self.starts, [], [], 0
        try:
            batch, error = build_batch(texts, layout, self.options, number), None
        except ValueError:
            row, error = self._locate(texts, layout, starts)
            batch = build_batch({place: array.slice(0, row) for place, array in texts.items()}, layout, self.options, number)
        if batch.num_rows:
            yield batch
        if error is not None:
            raise error

    def _locate(self, texts: Mapping[int, pa.Array], layout: CsvLayout, starts: list[int]) -> tuple[int, DecodeError]:
        """The first row with a bad value, and the error that names it."""

        def bad_row(place: int) -> int:
            def convert(start: int, stop: int) -> None:
                convert_field({place: texts[place].slice(start, stop - start)}, place, layout, self.options)

            found = first_bad(convert, len(starts))
            return len(starts) if found is None else found

        row, place = min((bad_row(place), place) for place in layout.used_fields)
        value = texts[place][row].as_py()
        return row, DecodeError(
            f"The value is not {layout.expectation(place)}.",
            line=self.tokenizer.line(self.data, starts[row]),
            column=layout.name(place),
            value=None if value is None else value.decode("utf-8", "replace"),
        )
