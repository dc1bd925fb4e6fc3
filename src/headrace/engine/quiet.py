"""How long a source has not changed, for a run that applies data above the last watermark and then ends."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Quiet:
    """The source's mark (``EventSource.mark``), and since when it has not changed, in seconds of a monotonic clock."""

    mark: str | None = None
    """``None``: the source has not been polled yet."""
    since: float = 0.0

    def seen(self, mark: str, now: float) -> Quiet:
        """The state after another mark."""
        return self if mark == self.mark else Quiet(mark, now)

    def left(self, seconds: float, now: float) -> float:
        """The rest of the ``seconds`` for which the source must not change; 0 or less: it is quiet."""
        return self.since + seconds - now
