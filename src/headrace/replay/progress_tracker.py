"""ProgressTracker: up to which resolved ts everything is acknowledged, if acknowledgements come in any order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from itertools import pairwise
from threading import Condition

import numpy as np
import numpy.typing as npt

from headrace.replay.resolved_ts import ResolvedTs

Numbers = npt.NDArray[np.int64]
BUFFER_BYTES = 4096
_FULL = 0xFF


class ProgressTracker:
    """Follows the events of one table: one bit an event, set when the event is acknowledged.

    An event's id is how many were added before it. The checkpoint is the newest resolved ts before which every event is
    acknowledged. The bits lie in buffers of ``buffer_bytes``, which are released when all their events are acknowledged.

    Every method may be called from any thread. An event may be acknowledged more than once, also after its buffer was released.
    """

    def __init__(self, buffer_bytes: int = BUFFER_BYTES) -> None:
        if buffer_bytes < 1:
            raise ValueError(f"a buffer has at least one byte, not {buffer_bytes}")
        self._buffer_bytes = buffer_bytes
        self._changed = Condition()
        # All that follows is read and written with the lock of _changed.
        self._added = 0
        self._resolved = 0  # all events below it are acknowledged; advance() moves it
        self._released = 0  # the first event of the first buffer
        self._buffers: deque[npt.NDArray[np.uint8]] = deque()
        self._waiting: deque[tuple[int, ResolvedTs]] = deque()  # (events before it, resolved ts)
        self._checkpoint = ResolvedTs(0)
        self._frozen = False

    def add_event(self) -> Callable[[], None]:
        """Adds one event. The result acknowledges it."""
        (event,) = self.add_events(1)
        return lambda: self._acknowledge_one(event)

    def add_events(self, count: int) -> range:
        """Adds events, and returns their ids."""
        with self._changed:
            first = self._added
            self._added += count
            events_each = self._buffer_bytes * 8
            while self._released + len(self._buffers) * events_each < self._added:
                self._buffers.append(np.zeros(self._buffer_bytes, dtype=np.uint8))
            return range(first, self._added)

    def acknowledge(self, events: range | Numbers) -> None:
        """Acknowledges the events of these ids, in any order. Raises ``ValueError`` for an id that was not added."""
        ids = np.asarray(events, dtype=np.int64)
        if not len(ids):
            return
        with self._changed:
            low, high = int(ids.min()), int(ids.max())
            if low < 0 or high >= self._added:
                raise ValueError(f"the events {low} to {high} are acknowledged, but only {self._added} were added")
            if low < self._released:
                ids = ids[ids >= self._released]
            self._set(ids - self._released)
            self._changed.notify_all()

    def _acknowledge_one(self, event: int) -> None:
        with self._changed:
            if event >= self._released:
                buffer, place = divmod(event - self._released, self._buffer_bytes * 8)
                self._buffers[buffer][place // 8] |= 1 << place % 8
            self._changed.notify_all()

    def _set(self, places: Numbers) -> None:
        """Sets the bits at these places, counted from the first buffer."""
        events_each = self._buffer_bytes * 8
        numbers = places // events_each
        if not len(places):
            return
        first, last = int(numbers.min()), int(numbers.max())
        if first != last:
            order = np.argsort(places)
            places, numbers = places[order], numbers[order]
        bounds = [0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist(), len(places)] if first != last else [0, len(places)]
        for start, stop in pairwise(bounds):
            within = places[start:stop] - int(numbers[start]) * events_each
            low = int(within.min()) // 8
            high = int(within.max()) // 8 + 1
            # Through one byte an event of the span that is touched: ufunc.at sets bits one by one, and takes five times as long.
            span = np.zeros((high - low) * 8, dtype=np.bool_)
            span[within - low * 8] = True
            self._buffers[int(numbers[start])][low:high] |= np.packbits(span, bitorder="little")

    def add_resolved_ts(self, resolved_ts: ResolvedTs) -> None:
        """All events up to this resolved ts are added. Without effect when the tracker is frozen."""
        with self._changed:
            if self._frozen:
                return
            if self._resolved == self._added:
                self._checkpoint = resolved_ts
            elif self._waiting and self._waiting[-1][0] == self._added:
                # No event came between the two, so the earlier one tells nothing.
                self._waiting[-1] = (self._added, resolved_ts)
            else:
                self._waiting.append((self._added, resolved_ts))

    def advance(self) -> ResolvedTs:
        """Moves the checkpoint as far as events are acknowledged, releases full buffers, and returns the checkpoint."""
        with self._changed:
            events_each = self._buffer_bytes * 8
            while self._buffers:
                done = self._first_missing(self._resolved - self._released)
                self._resolved = self._released + done
                if done < events_each:
                    break
                self._buffers.popleft()
                self._released += events_each
            while self._waiting and self._waiting[0][0] <= self._resolved:
                _, resolved_ts = self._waiting.popleft()
                if not self._frozen:
                    self._checkpoint = resolved_ts
            return self._checkpoint

    def _first_missing(self, start: int) -> int:
        """The first place from ``start`` on in the first buffer whose bit is not set. Bits of events not yet added are not set."""
        buffer = self._buffers[0]
        byte = start // 8
        missing = buffer[byte:] != _FULL
        found = int(missing.argmax())
        if not missing[found]:
            return self._buffer_bytes * 8
        byte += found
        value = ~int(buffer[byte])
        return byte * 8 + (value & -value).bit_length() - 1

    def freeze(self) -> None:
        """From now on the checkpoint stays where it is, whatever is acknowledged."""
        with self._changed:
            self._frozen = True

    @property
    def pending(self) -> int:
        """How many events lie at or behind the first one that is not acknowledged."""
        with self._changed:
            self.advance()
            return self._added - self._resolved

    def wait_acknowledged(self, seconds: float) -> bool:
        """Waits until every event is acknowledged, at most so long. Returns whether that is so."""
        with self._changed:
            return self._changed.wait_for(lambda: self.pending == 0, seconds)

    @property
    def buffers(self) -> int:
        """How many buffers are held."""
        with self._changed:
            return len(self._buffers)

    @property
    def nbytes(self) -> int:
        """The bytes of the buffers that are held."""
        return self.buffers * self._buffer_bytes

    @property
    def waiting(self) -> int:
        """How many resolved ts wait for events before them."""
        with self._changed:
            return len(self._waiting)
