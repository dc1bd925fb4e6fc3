"""Records and rows that cannot be applied and are left out (``on-error: dead-letter``)."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class RejectedRecord:
    """A record of a split that cannot be decoded, as it stands there.

    ``number`` is its place among the split's records, in the units of a block's ``seq``; ``offset`` is in bytes, ``line`` counts
    from 1. ``commit_ts`` (TSO) is what the record says of itself where that much is readable, and may be damaged too.
    """

    number: int
    offset: int
    raw: bytes = field(repr=False)
    message: str
    line: int | None = None
    column: str = ""
    value: str | None = None
    commit_ts: int | None = None
