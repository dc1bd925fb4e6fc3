"""What a pipeline has yet to take of a stream, and how soon the stream may remove it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

_WARN_SHARE = 0.5
"""The part of a retention that may be used up before a person is warned. The other half is the time to react."""


@dataclass(frozen=True)
class Kept:
    """How long a stream keeps a record and those after it."""

    written_ms: int | None
    """When the record was written (Unix time in ms), as the stream's retention counts it; ``None`` if it has no time.

    Or an earlier time, if by that less than half of the retention is used up."""
    for_ms: int | None = None
    """Older records may be removed (ms); ``None``: not for their age."""
    up_to_bytes: int | None = None
    """Of more bytes the oldest may be removed; ``None``: not for their size."""
    size: int = 0
    """The approximate bytes from the record up to the end of its partition."""

    def used(self, now_ms: int) -> float:
        """The part of the retention that the record has used up, of time or of bytes, whichever is more; from 1 on it may go."""
        of_time = (
            (now_ms - self.written_ms) / max(self.for_ms, 1) if self.written_ms is not None and self.for_ms is not None else 0.0
        )
        of_bytes = self.size / max(self.up_to_bytes, 1) if self.up_to_bytes is not None else 0.0
        return max(of_time, of_bytes)

    def ends_soon(self, now_ms: int) -> bool:
        """Whether half of the retention is used up."""
        return self.used(now_ms) >= _WARN_SHARE

    def left_ms(self, now_ms: int) -> int | None:
        """The time (ms) until the record may be removed for its age, at least 0; ``None`` if its age does not matter."""
        if self.written_ms is None or self.for_ms is None:
            return None
        return max(0, self.written_ms + self.for_ms - now_ms)


class Needed(NamedTuple):
    """The oldest record of a partition that is still needed."""

    offset: int
    after_ms: int
    """A time before which it cannot have been written (Unix time in ms), such as that of a change before it; 0 if none is known."""


@dataclass(frozen=True)
class PartitionBacklog:
    """What a pipeline has yet to take of one partition."""

    partition: str
    first: int
    """The offset of the oldest record that the stream still keeps."""
    needed: int
    """The offset of the oldest record that some table, or the pipeline, may still need; ``end`` if none is needed."""
    read_to: int
    """The offset up to which records had been read at the last cut."""
    end: int
    """The offset after the last record."""
    after_ms: int = 0
    """See ``Needed.after_ms``, of the record at ``needed``."""
    kept: Kept | None = None
    """How long the record at ``needed`` is kept; ``None`` if none is needed, or the stream does not tell."""

    @property
    def behind(self) -> int:
        """The number of offsets that were not read yet."""
        return max(0, self.end - self.read_to)

    @property
    def lost(self) -> int:
        """The number of needed offsets whose records are not kept any more."""
        return max(0, min(self.first, self.end) - self.needed)


def fields_of_backlog(of: PartitionBacklog, now_ms: int) -> Mapping[str, object]:
    """A backlog as plain values, for machines. Times are in seconds."""
    left = of.kept.left_ms(now_ms) if of.kept is not None else None
    written = of.kept.written_ms if of.kept is not None else None
    return {
        "partition": of.partition,
        "needed": of.needed,
        "read_to": of.read_to,
        "end": of.end,
        "behind": of.behind,
        "lost": of.lost,
        "needed_age_seconds": None if written is None else round((now_ms - written) / 1000, 1),
        "kept_seconds_left": None if left is None else round(left / 1000, 1),
        "retention_used": None if of.kept is None else round(of.kept.used(now_ms), 3),
    }
