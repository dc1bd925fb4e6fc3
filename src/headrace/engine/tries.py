"""Counts the failures of a run in a row, and decides how long it waits before a retry and when it gives up."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.errors import HeadraceError, JobFailedError, SourceNotReadyError

_MOST = 4
_DOUBLINGS = 10  # after a night of retries the power would be too large for a float


@dataclass(frozen=True)
class Tries:
    """The number of failures in a row. A successful step resets it."""

    count: int = 0

    def failed(self) -> Tries:
        """The count after one more failure."""
        return Tries(self.count + 1)

    def pause(self, first: float, longest: float) -> float:
        """The seconds to wait after this failure: ``first``, doubled each time up to ``longest``."""
        return min(first * 2.0 ** min(max(self.count - 1, 0), _DOUBLINGS), longest)

    def is_last(self, error: HeadraceError, *, ends: bool) -> bool:
        """Whether the run fails with this error. ``ends``: the run is to end by itself, so it must not retry forever.

        A run that ends does not wait for a source that is not ready. A run that follows the source gives up only on jobs that fail
        again and again, because the same cause would fail the next job, too.
        """
        hopeless = isinstance(error, SourceNotReadyError) or self.count >= _MOST
        return hopeless and (ends or isinstance(error, JobFailedError))
