"""The records of topics whose messages are ordered by places in a binlog, and whether a partition has those of one binlog only."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import pyarrow as pa

from headrace.formats.plain_messages import PlainAbout, PlainKind, PlainStatement
from headrace.model.stream import StreamStatement
from headrace.sources.kafka.protocol import EarlierMessages, Messages
from headrace.sources.stream.records import RecordKind, RecordRow, record_batch

OTHER_BINLOG = (
    "it is from another binlog than the messages before it: its place is before theirs, and it was written after them. So the "
    "order of changes is not known."
)

ReadAbout = Callable[[bytes], PlainAbout]
"""Says what a message is about; never raises."""
_KINDS = {
    PlainKind.ROW: RecordKind.ROWS,
    PlainKind.STATEMENT: RecordKind.STATEMENT,
    PlainKind.UNREADABLE: RecordKind.UNKNOWN,
}


@dataclass
class BinlogOrder:
    """What is known of a partition at a place in it."""

    latest: int = 0
    """The clock (``headrace.formats.binlog_clock``) of the event that was written last to the binlog."""
    sent_ms: int = 0
    """When events so far were sent, at the latest (ms since 1970)."""

    @staticmethod
    def behind(earlier: EarlierMessages, read_about: ReadAbout) -> BinlogOrder:
        """What is known behind earlier messages. Some are enough: only events that are sent again are out of order."""
        order = BinlogOrder()
        for messages in earlier.backwards():
            for value in messages.values:
                order.passes(read_about(value))
            if order.latest:
                break
        return order

    def passes(self, about: PlainAbout) -> bool:
        """Passes a message. Returns whether it is of the same binlog as those before it, or of none. A snapshot is always new."""
        if not about.clock:
            return True
        return self.takes(about.clock, about.written_ms, about.sent_ms, always_new=about.is_of_snapshot)

    def takes(self, clock: int, written_ms: int, sent_ms: int, *, always_new: bool = False) -> bool:
        """Passes an event, with the times at which it was written to the binlog and sent. Returns whether it is of the same binlog.

        A reader of a binlog that was restarted sends events again. They were written before it sent a later one for the first
        time. With ``always_new`` the event is none that is sent again.
        """
        if clock >= self.latest:
            self.latest, self.sent_ms = clock, max(self.sent_ms, sent_ms)
            return True
        return not always_new and written_ms <= self.sent_ms


def records_in_order(messages: Messages, order: BinlogOrder, read_about: ReadAbout, other_binlog: str) -> pa.RecordBatch:
    """The records of messages, see ``KafkaProtocol.read``; ``other_binlog`` is the reason for those of another binlog."""
    return record_batch(_rows(messages, order, read_about, other_binlog))


def _rows(messages: Messages, order: BinlogOrder, read_about: ReadAbout, other_binlog: str) -> Iterator[RecordRow]:
    for offset, value in zip(messages.offsets, messages.values, strict=True):
        about = read_about(value)
        if about.kind is PlainKind.IGNORED:
            continue
        if not order.passes(about):
            # Without a table: nothing behind it in its partition may be applied, of any table.
            yield RecordRow(offset, RecordKind.UNKNOWN, "", "", 0, other_binlog.encode())
            continue
        yield RecordRow(offset, _KINDS[about.kind], about.database, about.table, about.clock, about.text)


def statement_in_binlog(found: PlainStatement, partition: str, offset: int, new_snapshot: str = "") -> StreamStatement:
    """The schema change of a message whose columns, if it has them, do not tell all of a shape: that follows from the text.

    ``new_snapshot`` says why a person must decide about a snapshot that drops a table.
    """
    told = StreamStatement(found.clock, found.database, found.statement, found.table_id, None, partition, offset, tells_shape=False)
    doubt = new_snapshot if found.is_of_snapshot else ""
    return replace(told, current_is_known=found.current_is_known, ran_ms=found.ran_ms, if_it_drops=doubt)
