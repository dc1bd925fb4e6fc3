"""TiCDC's Open Protocol: a message holds several events, of rows, statements or watermarks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.formats.compressed_values import uncompressed
from headrace.formats.open_frames import split_rows
from headrace.formats.open_messages import (
    EventKey,
    EventKind,
    FramingError,
    framed,
    line_of,
    read_events,
    read_statement_event,
    unframed,
)
from headrace.formats.open_rows import OpenRowReader
from headrace.formats.statements import TimedStatement
from headrace.model.precision import CommitTsPrecision
from headrace.model.stream import StreamStatement
from headrace.model.table import TableSchema
from headrace.model.writable_text import as_utf8
from headrace.sources.kafka.line_records import in_order, rows_of_lines
from headrace.sources.kafka.protocol import Messages, statement_in_text
from headrace.sources.stream.records import RECORDS, RecordKind, RecordRow, record_batch

_BROKEN_LINE = (
    "a row's event is empty, or it has line breaks between its parts or a zero byte in front, which no release of TiCDC writes."
)


@dataclass(frozen=True)
class OpenProtocol:
    """A :class:`headrace.sources.kafka.protocol.KafkaProtocol`."""

    time_zone: str = "UTC"
    name: str = "open-protocol"
    has_keys: bool = True
    caveats: Sequence[str] = ()
    commit_ts: CommitTsPrecision = CommitTsPrecision.EXACT

    def read(self, messages: Messages) -> pa.RecordBatch:
        """See ``KafkaProtocol.read``. ``value`` is a line for each row of one table and commit ts; a large row is alone."""
        found = split_rows(messages.keys, messages.values)
        columns = [
            pa.array(np.asarray(messages.offsets, np.int64)[found.numbers]),
            pa.array(np.full(len(found.numbers), RecordKind.ROWS, np.int8)),
            *(found.databases, found.tables, pa.array(found.commit_ts), found.lines),
        ]
        rows = pa.record_batch(columns, schema=RECORDS)
        return rows if found.is_regular.all() else in_order(rows, self._read_singly(messages, np.flatnonzero(~found.is_regular)))

    def _read_singly(self, messages: Messages, numbers: npt.NDArray[np.int64]) -> pa.RecordBatch:
        """The records of the messages with these numbers, which are read one by one."""
        known: dict[bytes, EventKey] = {}
        told = ((messages.offsets[number], messages.values[number], messages.keys[number]) for number in numbers.tolist())
        return record_batch(row for message in told for row in _rows(*message, known))

    def statement(self, value: bytes, partition: str, offset: int) -> StreamStatement:
        """See ``KafkaProtocol.statement``. Events do not tell a table's shape."""
        key, event = unframed(value)
        found = TimedStatement(key.commit_ts, key.database, key.table, read_statement_event(event))
        return statement_in_text(found, partition, offset)

    def decode(self, schema: TableSchema, records: pa.RecordBatch) -> tuple[pa.RecordBatch, Sequence[int]]:
        """See ``KafkaProtocol.decode``."""
        return rows_of_lines(OpenRowReader(schema, self.time_zone), records)


def _rows(offset: int, value: bytes, key: bytes, known: dict[bytes, EventKey]) -> Iterator[RecordRow]:
    """The rows of ``RECORDS`` of a message: one for consecutive rows of one table and commit ts."""
    if not key and not value:
        return
    try:
        events = read_events(key, value, known)
    except FramingError as error:
        yield RecordRow(offset, RecordKind.UNKNOWN, "", "", 0, as_utf8(str(error)))
        return
    pending: EventKey | None = None
    lines: list[bytes] = []
    for about, text, event in map(_opened, events):
        line = line_of(event) if about.kind is EventKind.ROW else None
        if line and about.large is not None:
            line = about.large.to_value(line)
        if lines and (line is None or about != pending or about.large is not None):
            yield _of_lines(offset, pending, lines)
            lines = []
        if line:
            pending = about
            lines.append(line)
        elif line is None:
            yield _single(offset, about, text, event)
    if lines:
        yield _of_lines(offset, pending, lines)


def _opened(event: tuple[EventKey, bytes, bytes]) -> tuple[EventKey, bytes, bytes]:
    """The event with the value before it was compressed."""
    about, text, value = event
    try:
        return about, text, uncompressed(value)
    except ValueError as error:
        return replace(about, kind=EventKind.UNREADABLE, reason=str(error)), text, b""


def _of_lines(offset: int, about: EventKey | None, lines: Sequence[bytes]) -> RecordRow:
    assert about is not None, "lines are of an event"
    return RecordRow(offset, RecordKind.ROWS, about.database, about.table, about.commit_ts, b"\n".join(lines))


def _single(offset: int, about: EventKey, key: bytes, event: bytes) -> RecordRow:
    names = about.database, about.table, about.commit_ts
    if about.kind is EventKind.RESOLVED:
        return RecordRow(offset, RecordKind.WATERMARK, *names, b"")
    if about.kind is EventKind.STATEMENT:
        return RecordRow(offset, RecordKind.STATEMENT, *names, framed(key, event))
    return RecordRow(offset, RecordKind.UNKNOWN, *names, as_utf8(about.reason or _BROKEN_LINE))
