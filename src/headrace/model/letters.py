"""Records and rows that cannot be applied and are left out (``on-error: dead-letter``)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256

from headrace.model.place import SourcePlace
from headrace.model.table import TableId


@dataclass(frozen=True)
class RejectedRecord:
    """A record of a split that cannot be decoded, as it stands there.

    ``number`` is its place among the split's records, in the units of a block's ``seq``; ``offset`` is in bytes of a file, or the
    record's own in its partition; ``line`` counts from 1. ``commit_ts`` (TSO) is what the record says of itself where that much is
    readable, and may be damaged too.
    """

    number: int
    offset: int
    raw: bytes = field(repr=False)
    message: str
    line: int | None = None
    column: str = ""
    value: str | None = None
    commit_ts: int | None = None


@dataclass(frozen=True)
class Letter:
    """A dead letter: a record that could not be decoded (``raw``), or a row that the target refused (``row``), and why.

    ``lo`` (TSO) is the table's checkpoint before the cut: what the letter holds belongs behind it. ``commit_ts`` (TSO) is what the
    record says of itself, ``None`` where it says nothing that can be read. ``place`` is where the record stands. ``row`` holds
    canonical values as text, binary ones in hex. ``version`` (TSO) is the table's.
    """

    table_id: TableId
    version: int
    lo: int
    reason: str
    commit_ts: int | None = None
    place: SourcePlace | None = None
    column: str = ""
    value: str | None = None
    raw: bytes | None = field(default=None, repr=False)
    key: Mapping[str, str | None] | None = None
    row: Mapping[str, str | None] | None = field(default=None, repr=False)

    @property
    def name(self) -> str:
        """The same for the same record or key in a cut that is repeated, since that has the same ``lo``."""
        if self.raw is not None:
            container, offset = (self.place.container, self.place.offset) if self.place is not None else ("", None)
            return f"{self.lo}-{_digest(container)}-{offset}"
        return f"{self.lo}-{_digest(repr(sorted((self.key or {}).items())))}"


def begins(name: str) -> int:
    """The ``lo`` of the letter with this name; -1 for a name that no letter has."""
    lo = name.partition("-")[0]
    return int(lo) if lo.isdigit() and lo.isascii() else -1


def _digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:16]
