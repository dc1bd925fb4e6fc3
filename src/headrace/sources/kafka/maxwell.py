"""TiCDC's Maxwell protocol: a message holds several rows of any tables, or a statement. Rows have the second, and their place."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby

import pyarrow as pa

from headrace.ddl.statement import read_statement
from headrace.formats.maxwell_messages import (
    FOREIGN,
    MaxwellEvent,
    MaxwellKind,
    is_foreign,
    read_events,
    read_statement_message,
)
from headrace.formats.maxwell_rows import MaxwellRowReader
from headrace.model.precision import CommitTsPrecision
from headrace.model.stream import StreamStatement
from headrace.model.table import TableId, TableSchema
from headrace.model.writable_text import as_utf8
from headrace.sources.kafka.line_records import rows_of_lines
from headrace.sources.kafka.offset_order import REPEATED, OffsetOrder, Passed
from headrace.sources.kafka.protocol import EarlierMessages, Messages, statement_in_text, without_watermarks
from headrace.sources.stream.records import RecordKind, RecordRow, record_batch


@dataclass(frozen=True)
class MaxwellProtocol:
    """A ``KafkaProtocol`` that ``ReadsRanges`` (``headrace.sources.kafka.protocol``)."""

    time_zone: str = "UTC"
    name: str = "maxwell"
    has_keys: bool = True
    caveats: Sequence[str] = (without_watermarks("maxwell"),)
    commit_ts: CommitTsPrecision = CommitTsPrecision.SECOND
    _order: OffsetOrder | None = field(default=None, compare=False)
    """What was before the messages that are read next; ``None``: each time nothing."""

    def for_range(self, earlier: EarlierMessages) -> MaxwellProtocol:
        """See ``ReadsRanges``. Earlier messages are looked at only as far as they matter."""
        return replace(self, _order=OffsetOrder(map(_before, earlier.backwards()), earlier.first_since))

    def read(self, messages: Messages) -> pa.RecordBatch:
        """See ``KafkaProtocol.read``. ``value`` is a line for each row of one table and commit ts."""
        order = OffsetOrder() if self._order is None else self._order
        placed = zip(messages.offsets, messages.values, messages.keys, strict=True)
        return record_batch(row for offset, value, key in placed for row in _rows(offset, value, order, foreign=is_foreign(key)))

    def statement(self, value: bytes, partition: str, offset: int) -> StreamStatement:
        """See ``KafkaProtocol.statement``. The columns in a message lack most of their types, so they are not used."""
        return statement_in_text(read_statement_message(value), partition, offset)

    def decode(self, schema: TableSchema, records: pa.RecordBatch) -> tuple[pa.RecordBatch, Sequence[int]]:
        """See ``KafkaProtocol.decode``."""
        return rows_of_lines(MaxwellRowReader(schema, self.time_zone), records)


_KINDS = {
    MaxwellKind.ROW: RecordKind.ROWS,
    MaxwellKind.STATEMENT: RecordKind.STATEMENT,
    MaxwellKind.UNREADABLE: RecordKind.UNKNOWN,
}


def _rows(offset: int, value: bytes, order: OffsetOrder, *, foreign: bool) -> Iterator[RecordRow]:
    """The rows of ``RECORDS`` of a message: one for consecutive rows of one table and commit ts."""
    if foreign:
        events = [replace(event, kind=MaxwellKind.UNREADABLE, text=as_utf8(FOREIGN)) for event in read_events(value)]
    else:
        events = [passed for event in read_events(value) for passed in _passed(event, order)]
    for (kind, database, table, commit_ts), group in groupby(events, lambda e: (e.kind, e.database, e.table, e.commit_ts)):
        texts = [event.text for event in group]
        for text in [b"\n".join(texts)] if kind is MaxwellKind.ROW else texts:
            yield RecordRow(offset, _KINDS[kind], database, table, commit_ts, text)


def _before(messages: Messages) -> tuple[int, Sequence[Passed]]:
    """The first offset of messages, and the rows and schema changes in them."""
    events = (event for value in messages.values for event in read_events(value) if event.kind is not MaxwellKind.UNREADABLE)
    passed = [Passed(_tables_of(e), e.commit_ts, e.kind is MaxwellKind.STATEMENT) for e in events]
    return messages.offsets[0], passed


def _passed(event: MaxwellEvent, order: OffsetOrder) -> Iterator[MaxwellEvent]:
    """The event as it counts behind what was before it, or an unreadable one for each table of which the order is unknown."""
    if event.kind is MaxwellKind.ROW:
        yield replace(event, commit_ts=order.of_row(TableId(event.database, event.table), event.commit_ts))
        return
    unknown = order.take_statement(_tables_of(event), event.commit_ts) if event.kind is MaxwellKind.STATEMENT else ()
    for table_id in unknown:
        yield MaxwellEvent(MaxwellKind.UNREADABLE, table_id.database, table_id.table, event.commit_ts, as_utf8(REPEATED))
    if TableId(event.database, event.table) not in unknown:
        yield event


def _tables_of(event: MaxwellEvent) -> tuple[TableId, ...]:
    """The tables that a row or a schema change is of; none for a change of a database, in which no rows are behind it."""
    named = TableId(event.database, event.table)
    if event.kind is not MaxwellKind.STATEMENT:
        return (named,)
    try:
        statement = read_statement_message(event.text).statement
    except ValueError:
        statement = ""
    found = dict.fromkeys([named, *read_statement(statement, event.database).named])
    return tuple(table_id for table_id in found if not table_id.is_database)
