"""What decode tasks read, and which rows count: splits, windows, and the segments of a table between two schema changes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from headrace.model.place import PlaceInFile, SourcePlace
from headrace.model.table import TableId, TableSchema
from headrace.model.tso import MAX_TSO


@dataclass(frozen=True)
class Window:
    """The rows of a cut: ``lo < commit_ts <= hi`` (TSO). Data without a commit ts is taken completely."""

    lo: int = 0
    hi: int = MAX_TSO
    given_up: int = 0
    """TSO up to which rows were given up, 0 for none. Damage to rows up to there does no harm."""
    ended: int = 0
    """The TSO of the newest schema change below the window, 0 for none. Older versions are not expected to have rows that count."""
    loaded: int = 0
    """The TSO as of which the table was loaded anew, 0 for never. A row up to there is not missing, however late it arrives."""


@dataclass(frozen=True)
class Split:
    """What one decode task reads: a file of one table version. A source adds its own fields by subclassing."""

    key: str
    """Names the split in the source's position, and in its report. No other split of the offer has it, of whatever table."""
    table_id: TableId
    version: int
    """The table version (TSO) with which the rows are decoded. It does not say when they were committed: a version may hold rows
    that are newer than later versions."""
    rank: int
    """The split's place in the order of the table's splits in this offer (versions, then dates, dispatchers, numbers)."""
    size: int
    """In bytes."""
    schema: TableSchema
    """The shape with which the rows are decoded."""
    earliest: int | None = field(default=None, kw_only=True)
    """The commit ts (TSO) at which the rows begin, if it is below ``version``."""
    begun: bool = field(default=False, kw_only=True)
    """Whether earlier cuts or rounds have read the split, so that its rows at or below the window are already handled. In a split
    that is read for the first time, only rows that other splits have too are already handled."""
    of_others: bool = field(default=False, kw_only=True)
    """Whether tables other than the one that the split is read for may have rows of it now (``Cut.bearers``), each loaded as of its
    own time."""
    of_gone: bool = field(default=False, kw_only=True)
    """Whether the split was written for a table that is gone, and is read for a table that has its rows now. It is read only to
    report rows that came too late; none of its rows is applied."""
    ends: int = field(default=0, kw_only=True)
    """For a late split whose table was dropped or renamed since: the commit ts (TSO) of that change, above which the split should
    have no rows. Damage in such a split stops no table. 0 for any other split."""

    @property
    def place(self) -> SourcePlace:
        """Where the split is: in the file named ``key``, unless a source overrides this."""
        return PlaceInFile(self.key)

    @property
    def is_late(self) -> bool:
        """Whether the split arrived after later changes were applied, so that rows of it may be missing (``Notice.missing``)."""
        return False

    @property
    def begins(self) -> int:
        """The commit ts (TSO) below which the split has no rows that count."""
        return self.version if self.earliest is None else min(self.earliest, self.version)


@dataclass(frozen=True)
class Recast:
    """How rows in one shape of a table are converted to the shape in force.

    ``names`` has the columns that both shapes have, in the order of the shape in force: the name in the rows, and the name in
    force. ``left_out`` are columns that only the rows have. ``missing`` are columns for which the rows cannot have a value.
    """

    names: tuple[tuple[str, str], ...]
    left_out: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()


@dataclass(frozen=True)
class Segment:
    """A table's rows of one cut between two schema changes that touch it: the table's part of one round.

    Rows of all versions belong to it according to their commit ts alone. A row with exactly the commit ts of a schema change
    belongs after the change if it is in the version that the change created, or in a later one; else before it.
    """

    window: Window
    """The table's rows of the whole cut."""
    version: int
    schema: TableSchema
    """The shape in force; ``version`` (TSO) is its version. Rows in other shapes are converted to it."""
    follows: int = 0
    """The commit ts (TSO) of the schema change of this cut before the segment, 0 for none."""
    begins: int = 0
    ends: int | None = None
    """The commit ts (TSO) between which the rows lie; 0 and ``None`` if the cut's window is the bound."""
    recasts: Mapping[int, Recast] = field(default_factory=dict)
    """By version, for versions whose rows have a shape other than the one in force. A plan creates them on demand."""

    @property
    def lo(self) -> int:
        """The commit ts (TSO) up to which the segment has no rows, except rows at the schema change itself."""
        return max(self.window.lo, self.begins)

    def reading(self, versions: Iterable[int]) -> Segment:
        """The segment for tasks that read splits of these versions: with the recasts of these versions only."""
        made = {version: self.recasts.get(version) for version in sorted(versions)}
        return replace(self, recasts={version: recast for version, recast in made.items() if recast is not None})

    def window_of(self, version: int) -> Window:
        """The window of the version's rows that belong to the segment."""
        window = self.window
        if self.begins:
            window = replace(window, lo=max(window.lo, self.begins - (version >= self.begins)))
        if self.ends is not None:
            window = replace(window, hi=min(window.hi, self.ends - (version >= self.ends)))
        return window


@dataclass(frozen=True)
class HeldSplit:
    """A split that a stopped table still has to read, according to the source's position.

    ``day`` is the date of the folder in which the source keeps it. ``removed_after`` is the date after which the source removes it.
    Both are ISO dates, ``""`` if there is none.
    """

    key: str
    table_id: TableId
    size: int
    day: str = ""
    removed_after: str = ""
