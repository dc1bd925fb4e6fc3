"""Whether the messages of a partition are all of one binlog. Their places order them only then."""

from __future__ import annotations

from dataclasses import dataclass

OTHER_BINLOG = (
    "it is from another binlog than the messages before it: its place is before theirs, and it was written after them. So the "
    "order of changes is not known."
)


@dataclass
class BinlogOrder:
    """What is known of a partition at a place in it."""

    latest: int = 0
    """The clock (``headrace.formats.binlog_clock``) of the event that was written last to the binlog."""
    sent_ms: int = 0
    """When events so far were sent, at the latest (ms since 1970)."""

    def takes(self, clock: int, written_ms: int, sent_ms: int, *, always_new: bool = False) -> bool:
        """Passes an event, with the times at which it was written to the binlog and sent. Returns whether it is of the same binlog.

        A reader of a binlog that was restarted sends events again. They were written before it sent a later one for the first
        time. With ``always_new`` the event is none that is sent again.
        """
        if clock >= self.latest:
            self.latest, self.sent_ms = clock, max(self.sent_ms, sent_ms)
            return True
        return not always_new and written_ms <= self.sent_ms
