"""What decode tasks read, and which of its rows count: splits, windows, and the segments of a table between two schema changes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from headrace.model.place import PlaceInFile, SourcePlace
from headrace.model.table import TableId, TableSchema
from headrace.model.tso import MAX_TSO


@dataclass(frozen=True)
class Window:
    """The rows of a cut: ``lo < commit_ts <= hi`` (TSO). Data without a commit ts are taken whole.

    ``given_up`` (TSO, 0 for none): nobody wants rows up to there any more, so what is damaged down there harms nothing. ``ended``
    (TSO, 0 for none) is the newest schema change below it: no row that is wanted is expected in an older version. ``loaded`` (TSO,
    0 for never) is what the table was loaded anew as of: no row up to there is missing, however late it comes.
    """

    lo: int = 0
    hi: int = MAX_TSO
    given_up: int = 0
    ended: int = 0
    loaded: int = 0


@dataclass(frozen=True)
class Split:
    """What one decode task reads: a file of one table version. A source adds its own fields by subclassing.

    ``key`` names it for the source's position, ``rank`` is its place in the order of the table's splits of this offer
    (versions, then dates, dispatchers, numbers), ``size`` its bytes. ``version`` and ``schema`` say how its rows are decoded, not
    when they were committed: a version may hold rows that are newer than later versions. ``earliest`` (TSO) is where its rows
    begin when that is below its version.
    """

    key: str
    table_id: TableId
    version: int
    rank: int
    size: int
    schema: TableSchema
    earliest: int | None = field(default=None, kw_only=True)
    latest: int | None = field(default=None, kw_only=True)
    """The greatest commit ts (TSO) that a row of it has, where that is known before it is read."""
    begun: bool = field(default=False, kw_only=True)
    """Cuts or rounds before this one have read it, so what stands in it at or below the window is dealt with. Where it is read for
    the first time, that holds only for what other splits have too."""
    of_others: bool = field(default=False, kw_only=True)
    """Other tables than the one that it is read for may have rows of it now (``Cut.bearers``), each loaded as of its own time."""
    of_gone: bool = field(default=False, kw_only=True)
    """It was written for a table that is gone, and is read for one that has its rows now: to tell of those that came too late. None
    of its rows is applied."""
    ends: int = field(default=0, kw_only=True)
    """Of a late split whose table was dropped or renamed since: the commit ts (TSO) of that, above which it should have no rows.
    Damage in it stops no table. 0 for any other split."""

    @property
    def place(self) -> SourcePlace:
        """Where it lies: in the file of the name ``key``, unless a source says otherwise."""
        return PlaceInFile(self.key)

    @property
    def is_late(self) -> bool:
        """Whether it came after what lies behind it was applied: then rows of it may be missing (``Notice.missing``)."""
        return False

    @property
    def begins(self) -> int:
        """The commit ts (TSO) that no row which counts lies below."""
        return self.version if self.earliest is None else min(self.earliest, self.version)


@dataclass(frozen=True)
class Recast:
    """How rows that were written in one shape of a table become rows of another.

    ``names`` are the columns that both have: the name in the rows, and the name in force, in that shape's order. ``left_out`` are
    columns that only the rows have, ``missing`` those that the rows cannot have a value for.
    """

    names: tuple[tuple[str, str], ...]
    left_out: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()


@dataclass(frozen=True)
class Segment:
    """A table's rows of one cut between two schema changes that touch it: what the table has in one round.

    Rows of all its versions belong to it, by their commit ts alone. A row at the very commit ts of a schema change belongs behind
    it when it lies in a version that the change made, or in a later one, else before it.
    """

    window: Window
    """The table's rows of the whole cut."""
    version: int
    schema: TableSchema
    """The shape in force, and the version (TSO) that has it. Rows of other shapes are brought to this one."""
    follows: int = 0
    """The commit ts (TSO) of the schema change of this cut that comes before it, 0 for none."""
    begins: int = 0
    ends: int | None = None
    """The commit ts (TSO) between which its rows lie; 0 and ``None`` where the cut's window is the bound."""
    recasts: Mapping[int, Recast] = field(default_factory=dict)
    """By version, for those whose rows have another shape than the one in force. A plan makes them when they are asked for."""

    @property
    def lo(self) -> int:
        """The commit ts (TSO) up to which no row is in it, but for rows at the schema change itself."""
        return max(self.window.lo, self.begins)

    def reading(self, versions: Iterable[int]) -> Segment:
        """It for tasks that read splits of these versions, with what is to be done with their rows and no others."""
        made = {version: self.recasts.get(version) for version in sorted(versions)}
        return replace(self, recasts={version: recast for version, recast in made.items() if recast is not None})

    def window_of(self, version: int) -> Window:
        """The rows of a version that belong to it."""
        window = self.window
        if self.begins:
            window = replace(window, lo=max(window.lo, self.begins - (version >= self.begins)))
        if self.ends is not None:
            window = replace(window, hi=min(window.hi, self.ends - (version >= self.ends)))
        return window


@dataclass(frozen=True)
class HeldSplit:
    """A split that a stopped table has to read yet, as the source's position tells it.

    ``day`` is the date that the source files it under, and ``removed_after`` the one after which the source removes it (ISO dates,
    ``""`` when there is none).
    """

    key: str
    table_id: TableId
    size: int
    day: str = ""
    removed_after: str = ""
