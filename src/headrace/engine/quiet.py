"""How long a source has not changed, for a run that takes what lies beyond the last watermark and then ends."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Quiet:
    """The source's mark (``EventSource.mark``) and since when it is the same, in seconds of a clock that only goes forward."""

    mark: str | None = None
    """``None``: the source was not looked at yet."""
    since: float = 0.0

    def seen(self, mark: str, now: float) -> Quiet:
        """After another look at the source."""
        return self if mark == self.mark else Quiet(mark, now)

    def left(self, seconds: float, now: float) -> float:
        """How many of the ``seconds`` for which nothing may change are to come; 0 or less: it is quiet."""
        return self.since + seconds - now
