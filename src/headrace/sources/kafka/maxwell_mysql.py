"""Topics of Maxwell itself, which reads a MySQL or MariaDB: a message concerns one row, or is a schema change.

As in ``headrace.sources.kafka.debezium_mysql``, the place of an event in the binlog stands for its commit ts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from headrace.formats.maxwell_mysql_messages import MaxwellAbout, MaxwellKind, read_about, read_statement_message
from headrace.formats.maxwell_mysql_rows import PlainMaxwellRowReader
from headrace.model.precision import CommitTsPrecision
from headrace.model.stream import StreamStatement
from headrace.model.table import TableSchema
from headrace.sources.kafka.binlog_order import OTHER_BINLOG, BinlogOrder
from headrace.sources.kafka.line_records import rows_of_messages
from headrace.sources.kafka.protocol import EarlierMessages, Messages
from headrace.sources.stream.records import RecordKind, RecordRow, record_batch

CAVEATS = (
    "Topics of Maxwell have no watermarks. Changes are applied only with --until-end, once Maxwell has written everything, and "
    "tables are consistent with each other only then.",
    "Maxwell leaves TRUNCATE out, and the target keeps the rows.",
)
"""What is weaker than in TiCDC's protocols, for people."""
_OTHER_BINLOG = f"{OTHER_BINLOG} Let Maxwell begin anew in a new topic, and read that with a new pipeline."
_KINDS = {
    MaxwellKind.ROW: RecordKind.ROWS,
    MaxwellKind.STATEMENT: RecordKind.STATEMENT,
    MaxwellKind.UNREADABLE: RecordKind.UNKNOWN,
}


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
        """See ``ReadsRanges``. Some messages are enough: only events that are sent again are out of order."""
        order = BinlogOrder()
        for messages in earlier.backwards():
            for value in messages.values:
                _passed(read_about(value), order)
            if order.latest:
                break
        return replace(self, _order=order)

    def read(self, messages: Messages) -> pa.RecordBatch:
        """See ``KafkaProtocol.read``. ``value`` is the message."""
        return record_batch(_rows(messages, BinlogOrder() if self._order is None else self._order))

    def statement(self, value: bytes, partition: str, offset: int) -> StreamStatement:
        """See ``KafkaProtocol.statement``. The columns in a message lack parts of their types, so the text counts."""
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
        return rows_of_messages(PlainMaxwellRowReader(schema, self.accept_unclear), records)


def _rows(messages: Messages, order: BinlogOrder) -> Iterator[RecordRow]:
    for offset, value in zip(messages.offsets, messages.values, strict=True):
        about = read_about(value)
        if about.kind is MaxwellKind.IGNORED:
            continue
        if not _passed(about, order):
            # Without a table: nothing behind it in its partition may be applied, of any table.
            yield RecordRow(offset, RecordKind.UNKNOWN, "", "", 0, _OTHER_BINLOG.encode())
            continue
        yield RecordRow(offset, _KINDS[about.kind], about.database, about.table, about.clock, about.text)


def _passed(about: MaxwellAbout, order: BinlogOrder) -> bool:
    """Whether the message is of the same binlog as those before it, or of none. Messages do not tell when they were sent."""
    return not about.clock or order.takes(about.clock, about.written_ms, about.written_ms)
