"""Decodes TiCDC's CSV record by record: the dialects that Arrow's reader does not support, and the exact place of an error.

Format: TiCDC documentation, "TiCDC CSV Protocol". With a quote character, strings are quoted, quotes in them are doubled and
nothing else is escaped; NULL is the null string *without* quotes. Without one ("escape mode"), CR, LF, backslash and each byte of a
delimiter are escaped by a backslash; NULL is the raw null string.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass, field, replace

import pyarrow as pa

from headrace.formats import base
from headrace.formats.base import (
    DecodeError,
    OverlongRecordError,
    Rejects,
    SchemaMismatchError,
    TruncatedRecordError,
    told_tso,
)
from headrace.formats.csv_layout import HEADER_OPERATION, CsvLayout, CsvOptions, known_layout, layout_from_header
from headrace.formats.csv_rows import build_batch, convert_field
from headrace.formats.values import bad_places
from headrace.model.table import TableSchema

BATCH_ROWS = 131_072
BATCH_BYTES = 4 << 20
_SHOWN = 80
_MOST_UNDECIDED = 100_000  # some 50 MB
_ESCAPED = re.compile(rb"\\(.)", re.DOTALL)
_MEANING = {b"n": b"\n", b"r": b"\r"}


class Tokenizer:
    """Splits bytes into records of raw fields, and decodes raw fields."""

    def __init__(self, options: CsvOptions) -> None:
        self._quote = options.quote.encode()
        self._null = options.null.encode()
        self._terminator = options.terminator.encode()
        delimiter = re.escape(options.delimiter.encode())
        # Some tools rewrite line ends, and outside of quotes a bare LF can only be a line end.
        self._line_breaks = (b"\r\n", b"\n") if options.terminator in ("\r\n", "\n") else (self._terminator,)
        line_break = b"|".join(map(re.escape, self._line_breaks))
        # The data may also end in the middle of a terminator.
        partial = b"|".join(re.escape(self._terminator[:length]) for length in range(len(self._terminator)))
        end = b"(" + delimiter + b"|" + line_break + b"|(?:" + partial + rb")\Z)"
        if self._quote:
            quote = re.escape(self._quote)
            text = quote + b"(?:[^" + quote + b"]++|" + quote + quote + b")*+"
            self._field = re.compile(b"(" + text + quote + b"|(?!" + quote + b").*?)" + end, re.DOTALL)
            self._open = re.compile(text + rb"\Z", re.DOTALL)
        else:
            first = re.escape(options.delimiter.encode()[:1])
            # Not possessive as a whole, which Python 3.11.0 to 3.11.4 match wrongly (gh-106052). It ends where it must anyway.
            plain = rb"(?:[^\\\r\n" + first + rb"]++|\\.|(?!" + delimiter + b"|" + line_break + rb")[^\\])*"
            self._field = re.compile(b"(" + plain + b")" + end, re.DOTALL)
            self._open = re.compile(plain + rb"\\\Z", re.DOTALL)
        self._delimiter = options.delimiter.encode()
        self._counted = (0, 0)

    def records(self, data: memoryview, start: int = 0) -> Iterator[tuple[int, list[bytes]]]:
        """The start of each record, and its raw fields. Raises DecodeError, or TruncatedRecordError at the last record."""
        delimiter = self._delimiter
        record: list[bytes] = []
        expected = start
        # A search would start at each quote of a run of quotes, and read to the end of the run each time.
        while (match := self._field.match(data, expected)) is not None:
            raw, end = match.groups()
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
                raise self._truncated(data, start, [*record, bytes(data[expected : expected + _SHOWN])])
            raise DecodeError(
                "The record is not valid CSV: a quoted field is followed by something other than a delimiter or a line end.",
                line=self.line(data, start),
                value=self._shown(data, expected),
            )

    def first(self, data: memoryview) -> tuple[int, list[bytes]] | None:
        """The start of the first record that is not an empty line, and its fields; ``None`` if there is no complete record."""
        try:
            return next((item for item in self.records(data) if item[1] != [b""]), None)
        except DecodeError:
            return None

    def value(self, raw: bytes) -> bytes | None:
        """The value of a raw field; ``None`` is NULL."""
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
        """The physical line, counted from 1, of an offset. Fast for offsets in ascending order."""
        mark = b"\n" if b"\n" in self._terminator else self._terminator
        passed, lines = self._counted if self._counted[0] <= offset else (0, 0)
        lines += bytes(data[passed:offset]).count(mark)
        self._counted = (offset, lines)
        return lines + 1

    def raw(self, record: list[bytes]) -> bytes:
        """The record as it is in the data, without its line end."""
        return self._delimiter.join(record)

    def spans_lines(self, record: list[bytes]) -> bool:
        """Whether a quoted field contains a line end."""
        return any(mark in raw for raw in record for mark in self._line_breaks)

    def _shown(self, data: memoryview, offset: int) -> str:
        """The start of the text at an offset, up to the end of the line, for a message."""
        return bytes(data[offset : offset + _SHOWN]).split(self._line_breaks[-1])[0].decode("utf-8", "replace").rstrip("\r")

    def _truncated(self, data: memoryview, start: int, fields: list[bytes]) -> TruncatedRecord:
        return TruncatedRecord(self.line(data, start), fields)


class TruncatedRecord(TruncatedRecordError):
    """A truncated record, with the raw fields that could be read. The last field may be incomplete."""

    def __init__(self, line: int, fields: list[bytes]) -> None:
        super().__init__("The last record is cut off: the file does not end with a line end.", line=line)
        self.fields = fields

    def read_commit_ts(self, layout: CsvLayout | None) -> None:
        """Sets ``commit_ts`` if that field is complete. It is complete if another field follows it."""
        if layout is None or layout.commit_ts is None or len(self.fields) <= layout.commit_ts + 1:
            return
        self.commit_ts = told_tso(self.fields[layout.commit_ts])


@dataclass(frozen=True)
class Place:
    """The byte offset at which a record begins, the number of rows before it, and the layout found in these rows."""

    start: int = 0
    number: int = 0
    layout: CsvLayout | None = None


_BEGINNING = Place()


def decode_exact(
    data: memoryview,
    schema: TableSchema,
    options: CsvOptions,
    place: Place = _BEGINNING,
    *,
    until: int | None = None,
    rejects: Rejects | None = None,
    tokenizer: Tokenizer | None = None,
) -> Generator[pa.RecordBatch, None, Place | None]:
    """Yields the rows from ``place`` on, then raises the DecodeError of the first bad record that is not left out.

    Bad records whose end is certain are left out, as far as ``rejects`` takes them. Records that begin at byte ``until`` or after
    it are left to the caller. Returns where these begin, or ``None`` at the end of the data.
    """
    decoder = _ExactDecoder(
        data, schema, options, tokenizer or Tokenizer(options), rejects or Rejects(), place.layout, place.number
    )
    error: DecodeError | None = None
    following: int | None = None
    try:
        for start, record in decoder.tokenizer.records(data, place.start):
            if until is not None and start >= until and not decoder.undecided:
                following = start
                break
            yield from decoder.take(start, record)
        else:
            decoder.finish()
    except DecodeError as problem:
        error = problem
    yield from decoder.flush()
    if isinstance(error, TruncatedRecord):
        error.read_commit_ts(decoder.layout or _told_layout(options))
        error.begun = decoder.begun(error.fields)
    if error is not None:
        raise error
    return None if following is None else Place(following, decoder.number, decoder.layout)


def _told_layout(options: CsvOptions) -> CsvLayout | None:
    """The layout for a file whose only record is cut off, according to the options about the commit ts."""
    return CsvLayout(0, 3, None, ()) if options.include_commit_ts else None


@dataclass
class _ExactDecoder:
    """Collects records and converts them in batches. ``number`` counts the rows seen.

    ``undecided`` are bad records before the first record that shows the layout. ``misfit`` is the error of the first of them.
    """

    data: memoryview
    schema: TableSchema
    options: CsvOptions
    tokenizer: Tokenizer
    rejects: Rejects
    layout: CsvLayout | None = None
    number: int = 0
    starts: list[int] = field(default_factory=list)
    records: list[list[bytes]] = field(default_factory=list)
    size: int = 0
    undecided: list[tuple[int, list[bytes]]] = field(default_factory=list)
    misfit: SchemaMismatchError | None = None

    def take(self, start: int, record: list[bytes]) -> Iterator[pa.RecordBatch]:
        """Adds a record. Yields a batch if there are enough records."""
        if record == [b""]:
            return
        length = sum(map(len, record))
        if length > base.MOST_RECORD_BYTES:
            raise OverlongRecordError(length, "record", self.tokenizer.line(self.data, start))
        if record[0] == HEADER_OPERATION:
            yield from self.flush()
            if self.options.header is not False:
                self.layout = layout_from_header([name.decode("utf-8", "replace") for name in record], self.schema, self.options)
            return
        if self.layout is None:
            yield from self._wait_for_layout(start, record)
            return
        if len(record) != self.layout.field_count:
            yield from self.flush()
            self._reject_length(start, record)
            self.number += 1
            return
        if self.layout.orders.are_several:
            yield from self._follow_order(record)
        self.number += 1
        self.starts.append(start)
        self.records.append(record)
        self.size += length
        if len(self.records) >= BATCH_ROWS or self.size >= BATCH_BYTES:
            yield from self.flush()

    def _follow_order(self, record: list[bytes]) -> Iterator[pa.RecordBatch]:
        """Switches to the layout for the record's commit ts. If the layout changes, first yields the batch of earlier records."""
        commit_ts = self._commit_ts(record)
        if self.layout is not None and commit_ts is not None and not self.layout.holds(commit_ts, commit_ts):
            yield from self.flush()
            self.layout = self.layout.at(commit_ts)

    def finish(self) -> None:
        """At the end of the data: raises the error because of which no record has shown the layout."""
        if self.layout is None and self.misfit is not None:
            raise self.misfit

    def flush(self) -> Iterator[pa.RecordBatch]:
        """The collected records as a batch. For the first bad value that may not be left out, raises DecodeError after the rows
        before it."""
        if self.layout is None or not self.records:
            return
        layout, value = self.layout, self.tokenizer.value
        columns = list(zip(*self.records, strict=True))
        texts = {place: pa.array([value(raw) for raw in columns[place]], pa.binary()) for place in layout.used_fields}
        number = self.number - len(self.records)
        starts, records = self.starts, self.records
        self.starts, self.records, self.size = [], [], 0
        try:
            batch = build_batch(texts, layout, self.options, number)
        except ValueError:
            yield from self._sound_rows(texts, layout, starts, records, number)
        else:
            yield batch

    def begun(self, fields: list[bytes]) -> pa.RecordBatch | None:
        """Kind, commit ts and key of a record that is cut off, if all of them can be read. Its last field may be incomplete."""
        if self.layout is None or self.layout.commit_ts is None or not self.schema.handle_key:
            return None
        key = tuple((place, column) for place, column in self.layout.columns if column.name in self.schema.handle_key)
        layout = replace(self.layout, columns=key)
        if len(key) < len(self.schema.handle_key) or max(layout.used_fields) >= len(fields) - 1:
            return None
        texts = {place: pa.array([self.tokenizer.value(fields[place])], pa.binary()) for place in layout.used_fields}
        try:
            return build_batch(texts, layout, self.options, self.number)
        except ValueError:
            return None

    def _sound_rows(
        self, texts: Mapping[int, pa.Array], layout: CsvLayout, starts: list[int], records: list[list[bytes]], number: int
    ) -> Iterator[pa.RecordBatch]:
        """Yields the rows between the bad ones, and leaves the bad ones out."""

        def rows(begin: int, end: int) -> Iterator[pa.RecordBatch]:
            if begin < end:
                fields = {place: array.slice(begin, end - begin) for place, array in texts.items()}
                yield build_batch(fields, layout, self.options, number + begin)

        done = 0
        for row, place in self._bad_rows(texts, layout, len(records)):
            yield from rows(done, row)
            value = texts[place][row].as_py()
            error = DecodeError(
                f"The value is not {layout.expectation(place)}.",
                line=self.tokenizer.line(self.data, starts[row]),
                column=layout.name(place),
                value=None if value is None else value.decode("utf-8", "replace"),
            )
            self._reject(error, number + row, starts[row], records[row])
            done = row + 1
        yield from rows(done, len(records))

    def _bad_rows(self, texts: Mapping[int, pa.Array], layout: CsvLayout, count: int) -> list[tuple[int, int]]:
        """The rows with a bad value, in order, each with its first bad field; no more rows than are needed."""
        found: dict[int, int] = {}
        for place in layout.used_fields:

            def convert(start: int, stop: int, place: int = place) -> None:
                convert_field({place: texts[place].slice(start, stop - start)}, place, layout, self.options)

            for row in bad_places(convert, count, self.rejects.left + 1):
                found.setdefault(row, place)
        return sorted(found.items())

    def _wait_for_layout(self, start: int, record: list[bytes]) -> Iterator[pa.RecordBatch]:
        """If the record shows a layout, takes it and the records that wait for one. Else it waits too, unless too many wait."""
        try:
            self.layout = known_layout(record, self.schema, self.options)
        except SchemaMismatchError as error:
            self.misfit = self.misfit or error
            self.undecided.append((start, record))
            # Even if no record may be left out, the next record shows whether this one is wrong.
            if len(self.undecided) > max(1, min(self.rejects.most, _MOST_UNDECIDED)):
                raise self.misfit from None
            return
        waiting, self.undecided = self.undecided, []
        for earlier, fields in waiting:
            yield from self.take(earlier, fields)
        yield from self.take(start, record)

    def _reject_length(self, start: int, record: list[bytes]) -> None:
        """Leaves out a record with a wrong number of fields. One that spans lines is raised: it may contain other records."""
        count = self.layout.field_count if self.layout is not None else 0
        error = DecodeError(
            f"The record has {len(record)} fields where {count} are expected.", line=self.tokenizer.line(self.data, start)
        )
        if self.rejects.most and self.tokenizer.spans_lines(record):
            error.hint = "A quote in it may be wrong, so it may contain good records too."
            raise error
        self._reject(error, self.number, start, record)

    def _reject(self, error: DecodeError, number: int, start: int, record: list[bytes]) -> None:
        self.rejects.take(error, number, start, self.tokenizer.raw(record), self._commit_ts(record))

    def _commit_ts(self, record: list[bytes]) -> int | None:
        """The commit ts in a bad record, if it is a possible one."""
        place = self.layout.commit_ts if self.layout is not None else None
        text = record[place] if place is not None and place < len(record) else b""
        return told_tso(text)
