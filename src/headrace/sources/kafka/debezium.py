"""TiCDC's Debezium protocol: a message concerns one row, one statement, or all tables (a watermark)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from headrace.formats.debezium_heads import read_row_heads
from headrace.formats.debezium_messages import DebeziumKind, bytes_of_statement, read_about, read_statement_message
from headrace.formats.debezium_rows import DebeziumRowReader
from headrace.model.precision import CommitTsPrecision
from headrace.model.stream import StreamStatement
from headrace.model.table import TableSchema
from headrace.sources.kafka.line_records import records_of, rows_of_lines
from headrace.sources.kafka.protocol import Messages, statement_in_text
from headrace.sources.stream.records import RECORDS, RecordKind

KINDS = {
    DebeziumKind.ROW: RecordKind.ROWS,
    DebeziumKind.STATEMENT: RecordKind.STATEMENT,
    DebeziumKind.WATERMARK: RecordKind.WATERMARK,
    DebeziumKind.UNREADABLE: RecordKind.UNKNOWN,
}
"""What records are that messages of a kind give."""


@dataclass(frozen=True)
class DebeziumProtocol:
    """A :class:`headrace.sources.kafka.protocol.KafkaProtocol`."""

    accept_unclear: bool = False
    """Whether values are taken as messages have them that do not show them exactly."""
    name: str = "debezium"
    has_keys: bool = False
    caveats: Sequence[str] = ()
    commit_ts: CommitTsPrecision = CommitTsPrecision.EXACT
    _schemas: dict[bytes, bytes] = field(default_factory=dict, compare=False, repr=False)
    """See ``read_about``."""

    def read(self, messages: Messages) -> pa.RecordBatch:
        """See ``KafkaProtocol.read``. Empty messages are left out."""
        return records_of(messages, lambda values: read_row_heads(values, self._schemas), self._read_others)

    def _read_others(self, messages: Messages) -> pa.RecordBatch:
        about = read_about(messages.values, self._schemas)
        columns = [
            pa.array([messages.offsets[number] for number in about.numbers], pa.int64()),
            pa.array([KINDS[kind] for kind in about.kinds], pa.int8()),
            pa.array(about.databases, pa.string()),
            pa.array(about.tables, pa.string()),
            pa.array(about.commit_ts, pa.int64()),
            pa.array(about.texts, pa.binary()),
        ]
        return pa.record_batch(columns, schema=RECORDS)

    def statement(self, value: bytes, partition: str, offset: int) -> StreamStatement:
        """See ``KafkaProtocol.statement``. The shape in a message lacks the members of types, so it is only compared."""
        found = statement_in_text(read_statement_message(value), partition, offset)
        return replace(found, holds_bytes=bytes_of_statement(value))

    def decode(self, schema: TableSchema, records: pa.RecordBatch) -> tuple[pa.RecordBatch, Sequence[int]]:
        """See ``KafkaProtocol.decode``."""
        return rows_of_lines(DebeziumRowReader(schema, self.accept_unclear), records)
