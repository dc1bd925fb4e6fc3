"""Records and rows that cannot be applied and are left out (``on-error: dead-letter``)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256

from headrace.model.place import SourcePlace
from headrace.model.table import TableId


@dataclass(frozen=True)
class RejectedRecord:
    """A record of a split that cannot be decoded."""

    number: int
    """The record's place among the split's records, in the units of a block's ``seq``."""
    offset: int
    """In bytes of the file, or the record's own offset in its partition."""
    raw: bytes = field(repr=False)
    """The record as it is in the split."""
    message: str
    line: int | None = None
    """Counted from 1."""
    column: str = ""
    value: str | None = None
    commit_ts: int | None = None
    """The TSO in the record, if it can be read. It may be damaged too."""


@dataclass(frozen=True)
class Letter:
    """A dead letter: a record that could not be decoded (``raw``), or a row that the target refused (``row``), and why."""

    table_id: TableId
    version: int
    """The table's version (TSO)."""
    lo: int
    """The table's checkpoint (TSO) before the cut. The change in the letter comes after it."""
    reason: str
    commit_ts: int | None = None
    """The TSO in the record, ``None`` if none can be read."""
    place: SourcePlace | None = None
    """Where the record is in the source."""
    column: str = ""
    value: str | None = None
    raw: bytes | None = field(default=None, repr=False)
    key: Mapping[str, str | None] | None = None
    row: Mapping[str, str | None] | None = field(default=None, repr=False)
    """Canonical values as text; binary values in hex."""

    @property
    def name(self) -> str:
        """The letter's name. A repeated cut has the same ``lo``, so it gives the same name to the same record or key."""
        if self.raw is not None:
            container, offset = (self.place.container, self.place.offset) if self.place is not None else ("", None)
            return f"{self.lo}-{_digest(container)}-{offset}"
        return f"{self.lo}-{_digest(repr(sorted((self.key or {}).items())))}"


def begins(name: str) -> int:
    """The ``lo`` of the letter with this name; -1 if it is not a name of a letter."""
    lo = name.partition("-")[0]
    return int(lo) if lo.isdigit() and lo.isascii() else -1


def _digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:16]
