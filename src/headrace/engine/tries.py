"""How often a run has failed in a row, how long it waits before it tries again, and when it gives up."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.errors import HeadraceError, JobFailedError, SourceNotReadyError

_MOST = 4
_DOUBLINGS = 10  # after a night of tries the power would be too large for a float


@dataclass(frozen=True)
class Tries:
    """Failures in a row; a step that succeeds begins anew."""

    count: int = 0

    def failed(self) -> Tries:
        """After one more failure."""
        return Tries(self.count + 1)

    def pause(self, first: float, longest: float) -> float:
        """Seconds to wait after this failure: ``first``, and twice as long each time, up to ``longest``."""
        return min(first * 2.0 ** min(max(self.count - 1, 0), _DOUBLINGS), longest)

    def is_last(self, error: HeadraceError, *, ends: bool) -> bool:
        """Whether the run fails with this error. ``ends``: it is to end by itself, so nobody waits for it to go on.

        A source that is not ready will not be so for a run that ends. A run that goes on gives up on jobs that break again and
        again: whatever breaks them breaks the next one.
        """
        hopeless = isinstance(error, SourceNotReadyError) or self.count >= _MOST
        return hopeless and (ends or isinstance(error, JobFailedError))
