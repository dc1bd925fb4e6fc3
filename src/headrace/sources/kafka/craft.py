"""TiCDC's Craft protocol: a message holds several rows of any tables, or a statement, or a watermark."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import pyarrow as pa

from headrace.formats.craft.messages import CraftEvent, CraftKind, read_events, split_rows, statement_text
from headrace.formats.craft.rows import CraftRowReader
from headrace.formats.statements import TimedStatement
from headrace.model.precision import CommitTsPrecision
from headrace.model.stream import StreamStatement
from headrace.model.table import TableSchema
from headrace.sources.kafka.line_records import rows_of_parts
from headrace.sources.kafka.protocol import Messages, statement_in_text
from headrace.sources.stream.records import RecordKind, RecordRow, record_batch

_KINDS = {
    CraftKind.ROW: RecordKind.ROWS,
    CraftKind.STATEMENT: RecordKind.STATEMENT,
    CraftKind.WATERMARK: RecordKind.WATERMARK,
    CraftKind.UNREADABLE: RecordKind.UNKNOWN,
}


@dataclass(frozen=True)
class CraftProtocol:
    """A :class:`headrace.sources.kafka.protocol.KafkaProtocol`."""

    time_zone: str = "UTC"
    name: str = "craft"
    has_keys: bool = False
    caveats: Sequence[str] = ()
    commit_ts: CommitTsPrecision = CommitTsPrecision.EXACT

    def read(self, messages: Messages) -> pa.RecordBatch:
        """See ``KafkaProtocol.read``. ``value`` has the rows of one table and commit ts."""
        placed = zip(messages.offsets, messages.values, strict=True)
        return record_batch(row for offset, value in placed if value for row in _rows(offset, value))

    def statement(self, value: bytes, partition: str, offset: int) -> StreamStatement:
        """See ``KafkaProtocol.statement``. Messages do not tell a table's shape."""
        (event,) = read_events(value)
        found = TimedStatement(event.commit_ts, event.database, event.table, statement_text(event.content))
        return statement_in_text(found, partition, offset)

    def decode(self, schema: TableSchema, records: pa.RecordBatch) -> tuple[pa.RecordBatch, Sequence[int]]:
        """See ``KafkaProtocol.decode``."""
        parts = [list(split_rows(value)) for value in records.column("value").to_pylist()]
        return rows_of_parts(CraftRowReader(schema, self.time_zone), parts, records.column("commit_ts"))


def _rows(offset: int, value: bytes) -> Iterator[RecordRow]:
    """The rows of ``RECORDS`` of a message: one for consecutive rows of one table and commit ts."""
    events = read_events(value)
    for (kind, database, table, ts), group in groupby(events, lambda e: (e.kind, e.database, e.table, e.commit_ts)):
        contents = [_content(event, value, single=len(events) == 1) for event in group]
        if kind is CraftKind.ROW:
            contents = [b"".join(contents)]
        for content in contents:
            yield RecordRow(offset, _KINDS[kind], database, table, ts, content)


def _content(event: CraftEvent, message: bytes, *, single: bool) -> bytes:
    """The value of the record: of a statement the message, in which TiCDC writes nothing else."""
    return message if event.kind is CraftKind.STATEMENT and single else event.content
