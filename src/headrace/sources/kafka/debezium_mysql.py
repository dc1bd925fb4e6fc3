"""Topics of Debezium's own connectors for MySQL and MariaDB: a message concerns one row, or is a schema change.

There is no commit ts and no watermark. The place of an event in the binlog stands for its commit ts: it orders rows and schema
changes of all topics exactly (``headrace.formats.binlog_clock``). That holds for one binlog only, so a partition ends where another
one begins.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from headrace.formats.debezium_mysql_messages import Schemas, read_about, read_statement_message
from headrace.formats.debezium_mysql_rows import PlainRowReader
from headrace.formats.plain_messages import PlainAbout
from headrace.model.precision import CommitTsPrecision
from headrace.model.stream import StreamStatement
from headrace.model.table import TableSchema
from headrace.sources.kafka.binlog_order import OTHER_BINLOG, BinlogOrder, records_in_order, statement_in_binlog
from headrace.sources.kafka.line_records import rows_of_messages
from headrace.sources.kafka.protocol import EarlierMessages, Messages

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

_NEW_SNAPSHOT = (
    "the connector takes a new snapshot, which drops the table and makes it anew. Approve this if the snapshot has rows. With "
    "snapshot.mode=recovery or no_data it has none, and the table would stay empty: load the table anew then."
)


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
        """See ``ReadsRanges``."""
        return replace(self, _order=BinlogOrder(earlier, self._read_about))

    def read(self, messages: Messages) -> pa.RecordBatch:
        """See ``KafkaProtocol.read``. ``value`` is the message. Tombstones, heartbeats and marks of transactions are left out."""
        order = BinlogOrder() if self._order is None else self._order
        return records_in_order(messages, order, self._read_about, _OTHER_BINLOG)

    def _read_about(self, value: bytes) -> PlainAbout:
        return read_about(value, self._schemas)

    def statement(self, value: bytes, partition: str, offset: int) -> StreamStatement:
        """See ``KafkaProtocol.statement``. ``tableChanges`` lacks expressions and indexes, so the text counts."""
        new_snapshot = "" if self.accept_unclear else _NEW_SNAPSHOT
        return statement_in_binlog(read_statement_message(value), partition, offset, new_snapshot)

    def decode(self, schema: TableSchema, records: pa.RecordBatch) -> tuple[pa.RecordBatch, Sequence[int]]:
        """See ``KafkaProtocol.decode``."""
        return rows_of_messages(PlainRowReader(schema, self.accept_unclear, self._schemas), records)
