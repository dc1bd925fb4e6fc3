"""Topics of Maxwell itself, which reads a MySQL or MariaDB: a message concerns one row, or is a schema change.

As in ``headrace.sources.kafka.debezium_mysql``, the place of an event in the binlog stands for its commit ts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from headrace.formats.maxwell_mysql_messages import read_about, read_statement_message
from headrace.formats.maxwell_mysql_rows import PlainMaxwellRowReader
from headrace.model.precision import CommitTsPrecision
from headrace.model.stream import StreamStatement
from headrace.model.table import TableSchema
from headrace.sources.kafka.binlog_order import OTHER_BINLOG, BinlogOrder, records_in_order, statement_in_binlog
from headrace.sources.kafka.line_records import rows_of_messages
from headrace.sources.kafka.protocol import EarlierMessages, Messages

CAVEATS = (
    "Topics of Maxwell have no watermarks. Changes are applied only with --until-end, once Maxwell has written everything, and "
    "tables are consistent with each other only then.",
    "Maxwell leaves TRUNCATE out, and the target keeps the rows.",
)
"""What is weaker than in TiCDC's protocols, for people."""
_OTHER_BINLOG = f"{OTHER_BINLOG} Let Maxwell begin anew in a new topic, and read that with a new pipeline."


@dataclass(frozen=True)
class MaxwellMySqlProtocol:
    """A ``KafkaProtocol`` that ``ReadsRanges`` (``headrace.sources.kafka.protocol``)."""

    accept_unclear: bool = False
    """Whether values are taken as messages have them that do not show them exactly."""
    name: str = "maxwell-mysql"
    has_keys: bool = False
    caveats: Sequence[str] = CAVEATS
    commit_ts: CommitTsPrecision = CommitTsPrecision.EXACT
    _order: BinlogOrder | None = field(default=None, compare=False)
    """What was before the messages that are read next; ``None``: each time nothing."""

    def for_range(self, earlier: EarlierMessages) -> MaxwellMySqlProtocol:
        """See ``ReadsRanges``."""
        return replace(self, _order=BinlogOrder(earlier, read_about))

    def read(self, messages: Messages) -> pa.RecordBatch:
        """See ``KafkaProtocol.read``. ``value`` is the message."""
        order = BinlogOrder() if self._order is None else self._order
        return records_in_order(messages, order, read_about, _OTHER_BINLOG)

    def statement(self, value: bytes, partition: str, offset: int) -> StreamStatement:
        """See ``KafkaProtocol.statement``. The columns in a message lack parts of their types, so the text counts."""
        return statement_in_binlog(read_statement_message(value), partition, offset)

    def decode(self, schema: TableSchema, records: pa.RecordBatch) -> tuple[pa.RecordBatch, Sequence[int]]:
        """See ``KafkaProtocol.decode``."""
        return rows_of_messages(PlainMaxwellRowReader(schema, self.accept_unclear), records)
