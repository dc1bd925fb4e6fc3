"""Topics of Debezium's own connectors for MySQL and MariaDB: a message concerns one row, or is a schema change.

There is no commit ts and no watermark. The place of an event in the binlog stands for its commit ts: it orders rows and schema
changes of all topics exactly (``headrace.formats.binlog_clock``). That holds for one binlog only, so a partition ends where another
one begins.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from headrace.formats.debezium_mysql_messages import PlainAbout, PlainKind, Schemas, read_about, read_statement_message
from headrace.formats.debezium_mysql_rows import PlainRowReader
from headrace.model.precision import CommitTsPrecision
from headrace.model.stream import StreamStatement
from headrace.model.table import TableSchema
from headrace.sources.kafka.binlog_order import OTHER_BINLOG, BinlogOrder
from headrace.sources.kafka.line_records import rows_of_messages
from headrace.sources.kafka.protocol import EarlierMessages, Messages
from headrace.sources.stream.records import RecordKind, RecordRow, record_batch

CAVEATS = (
    "Topics of Debezium have no watermarks. Changes are applied only with --until-end, once the connector has written everything, "
    "its snapshot too, and tables are consistent with each other only then.",
    "Debezium leaves TRUNCATE out unless the connector has skipped.operations=none, and then the target keeps the rows.",
)
"""What is weaker than in TiCDC's protocols, for people."""
_OTHER_BINLOG = (
    f"{OTHER_BINLOG} Have the connector take a new snapshot into new topics, with another topic.prefix, and read these with a new "
    "pipeline."
)
_KINDS = {
    PlainKind.ROW: RecordKind.ROWS,
    PlainKind.STATEMENT: RecordKind.STATEMENT,
    PlainKind.UNREADABLE: RecordKind.UNKNOWN,
}


@dataclass(frozen=True)
class DebeziumMySqlProtocol:
    """A ``KafkaProtocol`` that ``ReadsRanges`` (``headrace.sources.kafka.protocol``)."""

    accept_unclear: bool = False
    """Whether values are taken as messages have them that do not show them exactly."""
    name: str = "debezium-mysql"
    has_keys: bool = False
    caveats: Sequence[str] = CAVEATS
    commit_ts: CommitTsPrecision = CommitTsPrecision.EXACT
    _schemas: Schemas = field(default_factory=Schemas, compare=False, repr=False)
    _order: BinlogOrder | None = field(default=None, compare=False)
    """What was before the messages that are read next; ``None``: each time nothing."""

    def for_range(self, earlier: EarlierMessages) -> DebeziumMySqlProtocol:
        """See ``ReadsRanges``. Some messages are enough: only events that are sent again are out of order."""
        order = BinlogOrder()
        for messages in earlier.backwards():
            for value in messages.values:
                about = read_about(value, self._schemas)
                _passed(about, order)
            if order.latest:
                break
        return replace(self, _order=order)

    def read(self, messages: Messages) -> pa.RecordBatch:
        """See ``KafkaProtocol.read``. ``value`` is the message. Tombstones, heartbeats and marks of transactions are left out."""
        return record_batch(self._rows(messages, BinlogOrder() if self._order is None else self._order))

    def _rows(self, messages: Messages, order: BinlogOrder) -> Iterator[RecordRow]:
        for offset, value in zip(messages.offsets, messages.values, strict=True):
            about = read_about(value, self._schemas)
            if about.kind is PlainKind.IGNORED:
                continue
            if not _passed(about, order):
                # Without a table: nothing behind it in its partition may be applied, of any table.
                yield RecordRow(offset, RecordKind.UNKNOWN, "", "", 0, _OTHER_BINLOG.encode())
                continue
            yield RecordRow(offset, _KINDS[about.kind], about.database, about.table, about.clock, about.text)

    def statement(self, value: bytes, partition: str, offset: int) -> StreamStatement:
        """See ``KafkaProtocol.statement``. ``tableChanges`` lacks expressions and indexes, so the text counts."""
        found = read_statement_message(value)
        return StreamStatement(
            found.clock,
            found.database,
            found.statement,
            found.table_id,
            None,
            partition,
            offset,
            tells_shape=False,
            current_is_known=found.current_is_known,
            ran_ms=found.ran_ms,
        )

    def decode(self, schema: TableSchema, records: pa.RecordBatch) -> tuple[pa.RecordBatch, Sequence[int]]:
        """See ``KafkaProtocol.decode``."""
        return rows_of_messages(PlainRowReader(schema, self.accept_unclear, self._schemas), records)


def _passed(about: PlainAbout, order: BinlogOrder) -> bool:
    """Whether the message is of the same binlog as those before it, or of none. A snapshot is always new."""
    if not about.clock:
        return True
    return order.takes(about.clock, about.written_ms, about.sent_ms, always_new=about.is_of_snapshot)
