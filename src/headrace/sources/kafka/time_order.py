"""Whether records are in the order of the times that Kafka keeps for them, of all that are before them in their partition."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

_MOST_MS = 1 << 62
"""Above every time that Kafka keeps."""


def _nothing(time_ms: int) -> bool:
    return False


@dataclass
class TimeOrder:
    """The times of a partition's records at a place in it, in milliseconds since 1970."""

    has_later: Callable[[int], bool] = _nothing
    """Whether a record before the first one that is taken has a time after this one."""
    _latest: int | None = None
    """The latest time so far; ``None`` at the beginning."""

    def take(self, time_ms: int) -> bool:
        """Passes a record. Returns whether one before it has a later time."""
        if self._latest is None:
            self._latest = self._latest_before(time_ms)
        is_earlier = time_ms < self._latest
        self._latest = max(self._latest, time_ms)
        return is_earlier

    def _latest_before(self, time_ms: int) -> int:
        """The latest time before the first record that is taken, or that record's, whichever is later."""
        low, high = time_ms, _MOST_MS
        if not self.has_later(low):
            return low
        while high - low > 1:  # there is a time after ``low``, and none after ``high``
            middle = (low + high) // 2
            low, high = (middle, high) if self.has_later(middle) else (low, middle)
        return high
