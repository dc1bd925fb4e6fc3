"""The records of topics whose messages are ordered by places in a binlog, and whether a partition has those of one binlog only."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import pyarrow as pa

from headrace.formats.binlog_clock import end_of_event
from headrace.formats.plain_messages import PlainAbout, PlainKind, PlainStatement
from headrace.model.stream import StreamStatement
from headrace.model.writable_text import as_utf8
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


_FARTHEST = 100_000
"""How many earlier messages are looked at, at most: a partition may have nothing but heartbeats."""


class BinlogOrder:
    """What is known of a partition at a place in it."""

    def __init__(self, earlier: EarlierMessages | None = None, read_about: ReadAbout | None = None) -> None:
        """At the beginning of a partition, or behind earlier messages. They are looked at when an event comes, from the last one
        on: up to another event, and further if it may have been seen before."""
        self._latest = 0
        """The clock (``headrace.formats.binlog_clock``) of the event that was written last to the binlog."""
        self._sent_ms = 0
        """When events so far were sent for the first time, at the latest (ms since 1970)."""
        self._seen: set[tuple[int, int]] = set()
        """The clocks of events that were seen, each with the time (ms since 1970) at which it was written to the binlog."""
        self._unseen = iter(()) if earlier is None or read_about is None else _events(earlier, read_about)

    def passes(self, about: PlainAbout) -> bool:
        """Passes a message. Returns whether it is of the same binlog as those before it, or of none.

        A reader of a binlog that was restarted sends events again. They were written before it sent a later one for the first
        time, by the clocks of the server and of the reader, or were seen before. Those of a snapshot are never sent again, but all
        of them are at one place, and may be in another order there than their clocks.
        """
        if not about.clock:
            return True
        while not self._latest and self._look_back():
            pass
        passes = self._is_of_same(about)
        if passes:
            self._take(about)
        return passes

    def _is_of_same(self, about: PlainAbout) -> bool:
        if about.is_of_snapshot:
            return end_of_event(about.clock) >= self._latest
        return about.clock >= self._latest or about.written_ms <= self._sent_ms or self._was_seen(about.clock, about.written_ms)

    def _take(self, about: PlainAbout) -> None:
        if about.clock >= self._latest:
            self._latest, self._sent_ms = about.clock, max(self._sent_ms, about.sent_ms)
        self._seen.add((about.clock, about.written_ms))

    def _was_seen(self, clock: int, written_ms: int) -> bool:
        while (clock, written_ms) not in self._seen:
            if not self._look_back():
                return False
        return True

    def _look_back(self) -> bool:
        """Takes the events of messages before those that were taken. Returns whether there were such messages."""
        events = next(self._unseen, None)
        for about in events or ():
            self._take(about)
        return events is not None


def _events(earlier: EarlierMessages, read_about: ReadAbout) -> Iterator[list[PlainAbout]]:
    """What earlier messages are about that are events, in parts from the last one on."""
    count = 0
    for messages in earlier.backwards():
        yield [about for value in messages.values if (about := read_about(value)).clock]
        count += len(messages.values)
        if count >= _FARTHEST:
            return


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
            yield RecordRow(offset, RecordKind.UNKNOWN, "", "", 0, as_utf8(other_binlog))
            continue
        yield RecordRow(offset, _KINDS[about.kind], about.database, about.table, about.clock, about.text)


def statement_in_binlog(found: PlainStatement, partition: str, offset: int, new_snapshot: str = "") -> StreamStatement:
    """The schema change of a message whose columns, if it has them, do not tell all of a shape: that follows from the text.

    ``new_snapshot`` says why a person must approve a snapshot that drops a table.
    """
    told = StreamStatement(found.clock, found.database, found.statement, found.table_id, None, partition, offset, tells_shape=False)
    doubt = new_snapshot if found.is_of_snapshot else ""
    return replace(told, current_is_known=found.current_is_known, ran_ms=found.ran_ms, if_it_drops=doubt)
