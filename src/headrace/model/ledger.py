"""What the ledger remembers of a pipeline: plain values, the same for every kind of target."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import astuple, dataclass, field, replace
from enum import StrEnum
from functools import cached_property, lru_cache
from operator import attrgetter
from typing import NamedTuple

from headrace.model.place import SourcePlace
from headrace.model.precision import CommitTsPrecision
from headrace.model.table import TableId, TableSchema
from headrace.model.tso import MAX_TSO


class TableStatus(StrEnum):
    RUNNING = "running"
    CATCHING_UP = "catching up"
    """New, or back after a stop: its own checkpoint counts until a whole cut has taken it along."""
    STOPPED = "stopped"
    """Bad data or DDL: the table keeps its checkpoint, the others go on."""
    WAITING = "waiting for a decision"
    """Stopped before a schema change that somebody has to decide about."""
    NEEDS_RESYNC = "needs resync"
    """Stopped before a schema change whose effect on rows nothing tells: they have to be loaded anew."""
    INCOMPLETE = "needs resync, rows are missing"
    """Its rows cannot be told from the source any more: it does not go on before it was loaded anew."""
    HELD = "held"
    """Somebody loads or mends it (``headrace table hold``, or ``resync``): nothing touches it, the others go on."""
    EXCLUDED = "left out by --tables"
    """The table filter leaves it out: it keeps its own checkpoint, and is neither read nor changed."""
    GONE = "gone"
    """Dropped or renamed away: a tombstone, so that a cut planned again does not bring the name back (rule 12)."""

    GONE_WAITING = "gone, waiting for a decision"
    """A tombstone too: a schema change from before its end was found only after it."""
    NOT_FOLLOWED = "not followed"
    """A tombstone too: its CREATE was skipped, and nobody made it. What the source does with it then is skipped."""

    @property
    def is_stopped(self) -> bool:
        return self in (
            TableStatus.STOPPED,
            TableStatus.WAITING,
            TableStatus.NEEDS_RESYNC,
            TableStatus.INCOMPLETE,
            TableStatus.HELD,
            TableStatus.GONE_WAITING,
        )

    @property
    def is_gone(self) -> bool:
        return self in (TableStatus.GONE, TableStatus.GONE_WAITING, TableStatus.NOT_FOLLOWED)


@dataclass(frozen=True)
class TableProgress:
    """The ledger's row of the table that has a name now, or had it last.

    ``checkpoint`` (TSO): everything up to it is applied. A running table's true checkpoint is the larger of this one and the
    pipeline's, so that a cut of a thousand quiet tables writes one row. ``after`` says whether the schema change at exactly
    ``checkpoint`` is done too. ``incarnation`` is the commit ts of the change by which
    the table came to this name: its CREATE, or a RENAME. ``again``: it stands before that, and another table had the name before,
    or it was reset. ``let_in``: it has its name by a RENAME, and the change that began it was skipped, because it was somebody's.

    Progress belongs to a source's table and the target's table that it goes to.
    """

    table_id: TableId
    checkpoint: int
    after: bool = True
    status: TableStatus = TableStatus.RUNNING
    reason: str = ""
    incarnation: int = 0
    again: bool = False
    let_in: bool = False
    target: TableId | None = None
    """The target's table; ``None`` where it has the name of the source's."""
    lacks: str = ""
    """Why rows may be missing that no run will apply, until it is loaded anew or emptied; empty where nothing says so."""
    loaded: int = 0
    """What a person loaded it anew as of (TSO), 0 for never: of the rows up to there none is missing."""

    def __post_init__(self) -> None:
        if self.target == self.table_id:
            object.__setattr__(self, "target", None)

    @property
    def pair(self) -> tuple[TableId, TableId]:
        """The source's table and the target's: what the row belongs to."""
        return self.table_id, self.target or self.table_id

    @property
    def has_been(self) -> bool:
        """Whether there is a table, or was one."""
        return self.is_made or self.status.is_gone

    @property
    def is_made(self) -> bool:
        """Whether the pipeline made or adopted the table, and it is not gone. One that stands before its own CREATE is not."""
        return not self.status.is_gone and (self.after or self.checkpoint > self.incarnation)

    @property
    def needs_files(self) -> bool:
        """Whether it is stopped and goes on one day from the files that it has not read: the source has to remember these.

        One that the filter leaves out is taken back, and one that lacks rows is loaded anew as of some time. Either has to know
        then whether its files are all there.
        """
        return self.status.is_stopped or self.status is TableStatus.EXCLUDED


class JournalState(StrEnum):
    WAITING = "waiting"
    """Its tables stopped before it: it was not begun, or what was begun was rolled back."""
    PENDING = "pending"
    """It was begun: whether it ran is for the target's catalogue to say."""
    RUNNING = "running"
    """It runs long in the target, under the entry's handle, or is begun with the next look at it."""
    UNCLEAR = "unclear"
    """It, or a person's statement in its place, may have run, in whole or in part. Only a later decision ends this."""
    DONE = "done"
    SKIPPED = "skipped"
    """It counts as done, and was not run."""

    @property
    def is_settled(self) -> bool:
        return self in (JournalState.DONE, JournalState.SKIPPED)

    @property
    def may_have_run(self) -> bool:
        """Whether it was begun, and nothing says yet how that ended."""
        return self in (JournalState.PENDING, JournalState.RUNNING, JournalState.UNCLEAR)


_DOTS_OF_TWO_NAMES = 2
"""As many has the name of a table at least that holds one itself."""


@lru_cache(maxsize=16)
def in_order(tables: frozenset[TableId]) -> tuple[TableId, ...]:
    """The tables of a schema change as its journal entry has them. Changes that share a set of many tables share the result."""
    return tuple(sorted(tables))


@dataclass(frozen=True)
class JournalEntry:
    """One schema change in the DDL journal. ``state_before`` is what the applier kept of the target before it, while it is pending.

    Of one that runs long it is the handle. ``statement`` is the source's, or the one that a person had run in its place.
    """

    identity: str
    commit_ts: int
    tables: tuple[TableId, ...]
    statement: str
    state: JournalState
    state_before: str = ""

    @property
    def place(self) -> str:
        """The ``place`` of its schema change: its identity without the digest.

        Older versions wrote ``str`` for the ``TableId.key`` of a table.
        """
        place = self.identity.rpartition("/")[0]
        at, _, name = place.partition("/")
        if name.startswith("`") or (name.count(".") < _DOTS_OF_TWO_NAMES and "`" not in name):
            return place
        former = next((t for t in self.tables if str(t) == name), None)
        return place if former is None else f"{at}/{former.key}"

    @property
    def digest(self) -> str:
        """What its identity has behind its place."""
        return self.identity.rpartition("/")[2]

    def running(self, handle: str) -> JournalEntry:
        """The entry of a change that runs long under a handle, which begins with when it was begun (ISO time in UTC)."""
        return replace(self, state=JournalState.RUNNING, state_before=handle)

    @property
    def handle(self) -> str:
        """Under what it runs; empty for one that does not run long."""
        return self.state_before if self.state is JournalState.RUNNING else ""

    @property
    def since(self) -> str:
        """When it was begun, as far as it runs long (ISO time in UTC)."""
        return self.handle.partition(" ")[0]


class ShapeKey(NamedTuple):
    """Which shape it is: of a table, in the life that began at ``incarnation`` (TSO), from ``version`` (TSO) on."""

    table_id: TableId
    incarnation: int
    version: int


@dataclass(frozen=True)
class TableShape:
    """The shape that a source's table has from a commit ts on, for sources that cannot tell it again.

    ``version`` is the commit ts (TSO) of the schema change that led to it; rows above that have this shape, up to the next one.
    ``incarnation`` is that of the table's row: the commit ts by which it came to its name.
    """

    incarnation: int
    version: int
    schema: TableSchema
    """Of a database one without columns, whose ``table_id`` is the database's."""
    partitioning: str = ""
    """How the table is partitioned (``headrace.ddl.partition_text``): statements after this one are read beside it."""
    collation: str = ""
    """The default collation of a database, where a statement named one."""

    @property
    def key(self) -> ShapeKey:
        return ShapeKey(self.schema.table_id, self.incarnation, self.version)


class Verdict(StrEnum):
    """What a person decides about a schema change."""

    APPROVE = "approve"
    SKIP = "skip"
    EDIT = "edit"


@dataclass(frozen=True)
class Decision:
    """A person's word on one schema change, left in the ledger for the runner.

    ``identity`` is the journal's; ``statement`` is what an edit runs instead, in the target's own SQL.
    """

    identity: str
    verdict: Verdict
    statement: str = ""


class RequestKind(StrEnum):
    """What a person asks of a table."""

    HOLD = "hold"
    """Nothing is to touch it until it is released."""
    HELD = "held"
    """A hold that a run has taken up: nothing touches the table."""
    RELEASE = "release"
    """All its holds of before, and the resyncs that were not carried out, are withdrawn."""

    RESUME = "resume"
    """Try again at once."""
    SKIP_ROWS = "skip rows"
    """Give up its rows up to a commit ts; its schema changes run all the same."""
    SKIP_FILE = "skip file"
    """One of its files counts as read."""
    SKIP_RECORD = "skip record"
    """One of its records in a stream is passed over."""
    RESYNC = "resync"
    """It was loaded anew as of a commit ts, and is to go on from there. Nothing touches it before."""
    LOADED = "loaded"
    """A resync that a run has carried out: nobody wants the table's rows of before. It stands until the table has caught up."""
    RESET = "reset"
    """It begins anew, as if it had never been seen."""
    REPLAY = "replay dead letters"
    """What its dead letters hold is applied again, after a repair."""
    DISCARD = "discard dead letters"
    """Nobody wants its dead letters any more."""

    @property
    def names_place(self) -> bool:
        """Whether what is given up lies at one place of the source."""
        return self in (RequestKind.SKIP_FILE, RequestKind.SKIP_RECORD)

    @property
    def is_of_letters(self) -> bool:
        return self in (RequestKind.REPLAY, RequestKind.DISCARD)


HOLDS = (RequestKind.HOLD, RequestKind.HELD)


@dataclass(frozen=True)
class TableRequest:
    """A person's request about one table, left in the ledger for the runner.

    ``identity`` sorts by the time of the request. ``to`` (TSO) is up to where rows are given up, or what the table was loaded as
    of; ``since`` (TSO) is the table's checkpoint at that time; ``place`` is what is given up, if not rows up to a commit ts.
    A hold that was a resync, and was refused, has its ``to``: what was loaded does not fit the table's place.
    """

    identity: str
    table_id: TableId
    kind: RequestKind
    to: int = 0
    since: int = 0
    place: SourcePlace | None = None


@dataclass(frozen=True)
class Words:
    """What people left in the ledger for the run, by identity; of the requests the oldest comes first."""

    decisions: dict[str, Decision] = field(default_factory=dict)
    requests: dict[str, TableRequest] = field(default_factory=dict)


@dataclass(frozen=True)
class RowFigures:
    """What became of the rows that were read: ``read`` is the sum of all others.

    A file that serves several rounds of a cut is counted at each reading.
    """

    read: int = 0
    netted: int = 0
    """A later change of the same key made them superfluous."""
    written: int = 0
    refused: int = 0
    """They became dead letters, or their table stopped."""
    left: int = 0
    """They lie above the cut, and are read again by a later one."""
    passed: int = 0
    """They lie below the cut, or repeat what an earlier one applied."""

    def __add__(self, other: RowFigures) -> RowFigures:
        return RowFigures(*(mine + its for mine, its in zip(astuple(self), astuple(other), strict=True)))


_PRECISIONS = (CommitTsPrecision.NONE, CommitTsPrecision.EXACT, CommitTsPrecision.MILLISECOND)


@dataclass(frozen=True)
class CutRecord:
    """One of the last cuts, for people: times are seconds, ``finished_at`` is ISO time in UTC.

    ``read_rows`` is the sum of ``upserts``, ``deletes``, ``netted``, ``refused``, ``left`` and ``passed`` (:class:`RowFigures`). In
    records of an older Headrace the last four are 0. ``files`` counts the splits that were read: files, or pieces of a stream.

    ``exact`` is the number of :attr:`precision`: 1 where rows carried their exact commit ts, 2 where they carried its millisecond,
    0 where they carried none. An older Headrace wrote 0 for the millisecond too.
    """

    hi: int
    finished_at: str
    seconds: float
    files: int
    read_rows: int
    upserts: int
    deletes: int
    read_bytes: int = 0
    schema_changes: int = 0
    exact: int = 1
    netted: int = 0
    refused: int = 0
    left: int = 0
    passed: int = 0

    @property
    def precision(self) -> CommitTsPrecision:
        """What was known of the commit ts of its rows."""
        return _PRECISIONS[self.exact]

    @staticmethod
    def number_of(precision: CommitTsPrecision) -> int:
        """What ``exact`` is for it."""
        return _PRECISIONS.index(precision)


@dataclass(frozen=True)
class Reach:
    """How far a set of tables got (TSO, 0 for nowhere)."""

    known: int
    """How many of them the ledger has."""
    checkpoint: int
    """The greatest checkpoint."""
    incarnation: int
    """When the youngest came to be."""
    namesake: int
    """When the youngest table came to be that has, or had, one of the names in another case."""

    @property
    def latest(self) -> int:
        """No table of the set, and none that has one of its names, has passed a commit ts beyond it."""
        return max(self.checkpoint, self.incarnation, self.namesake)


_incarnation = attrgetter("incarnation")


@dataclass(frozen=True)
class LedgerState:
    """All of one pipeline's record.

    ``checkpoint``: everything of every running table is applied up to here. ``attempted``: the highest ``hi`` ever intended;
    while it is larger than ``checkpoint`` the target may be ahead. ``position`` is the source's own text. ``start`` is the
    ts at which a table that was never seen begins. ``decisions`` are those that no schema change has used up yet, ``requests``
    those about tables that were not carried out yet, by identity. ``dead_letters`` is how many letters lie there of each table.

    ``tables`` has the row of each source's table that goes to one table of the target. One that goes to several has a row for each
    of them in ``pairs`` instead, by source and target: what asks by the source alone does not take one of them for the whole.
    """

    pipeline: str
    source_identity: str = ""
    fingerprint: str = ""
    epoch: int = 0
    attempt: int = 0
    start: int = 0
    checkpoint: int = 0
    attempted: int = 0
    position: str = ""
    tables: dict[TableId, TableProgress] = field(default_factory=dict)
    journal: dict[str, JournalEntry] = field(default_factory=dict)
    cuts: tuple[CutRecord, ...] = ()
    decisions: dict[str, Decision] = field(default_factory=dict)
    requests: dict[str, TableRequest] = field(default_factory=dict)
    dead_letters: dict[TableId, int] = field(default_factory=dict)
    pairs: dict[tuple[TableId, TableId], TableProgress] = field(default_factory=dict)
    shapes: dict[ShapeKey, TableShape] = field(default_factory=dict)
    """What the source's tables looked like, where the source asks for it (``EventSource.needs_shapes``)."""
    began: int = 0
    """The epoch of the run that made this record: what tables say of themselves since an earlier one says nothing (``TableMark``).
    0 in ledgers that do not keep it, as those of sinks whose tables say nothing, and in records of an older Headrace."""

    @property
    def rows(self) -> tuple[TableProgress, ...]:
        """All rows of tables, whether they go to one table of the target or to several."""
        return (*self.tables.values(), *self.pairs.values())

    def has_moved(self, before: LedgerState) -> bool:
        """Whether the source's position or the place of a table is another one than it was ``before``."""
        places = ((own.position, own.checkpoint, own.tables, own.pairs) for own in (before, self))
        return next(places) != next(places)

    def row_of(self, table_id: TableId, target: TableId) -> TableProgress | None:
        """The row of a source's table and one table of the target."""
        own = self.tables.get(table_id)
        return own if own is not None and own.pair == (table_id, target) else self.pairs.get((table_id, target))

    def with_rows(self, rows: Iterable[TableProgress]) -> LedgerState:
        """The state with these rows in place of those of the same pairs. A second target moves a table's row to ``pairs``."""
        tables, pairs = dict(self.tables), dict(self.pairs)
        several = {table_id for table_id, _ in pairs}
        for row in rows:
            former = tables.get(row.table_id)
            if former is not None and former.pair != row.pair:
                several.add(row.table_id)
                pairs[former.pair] = tables.pop(row.table_id)
            if row.table_id in several:
                pairs[row.pair] = row
            else:
                tables[row.table_id] = row
        return replace(self, tables=tables, pairs=pairs)

    @cached_property
    def shapes_by_table(self) -> Mapping[TableId, tuple[TableShape, ...]]:
        """The shapes of each table, the oldest first."""
        found: dict[TableId, tuple[TableShape, ...]] = {}
        for key in sorted(self.shapes, key=lambda key: key.version):
            found[key.table_id] = (*found.get(key.table_id, ()), self.shapes[key])
        return found

    @cached_property
    def settled(self) -> Mapping[tuple[int, str], tuple[JournalEntry, ...]]:
        """The settled entries of the journal, by commit ts (TSO) and the place in the source that told of them."""
        found: dict[tuple[int, str], tuple[JournalEntry, ...]] = {}
        for entry in self.journal.values():
            if entry.state.is_settled:
                key = entry.commit_ts, entry.place
                found[key] = (*found.get(key, ()), entry)
        return found

    @cached_property
    def journal_by_place(self) -> Mapping[str, tuple[JournalEntry, ...]]:
        """All entries of the journal, by the place in the source that told of them."""
        found: dict[str, tuple[JournalEntry, ...]] = {}
        for entry in self.journal.values():
            found[entry.place] = (*found.get(entry.place, ()), entry)
        return found

    def running_change(self, table_id: TableId) -> JournalEntry | None:
        """The schema change of a table that is running long in the target."""
        return next((e for e in self.journal.values() if e.state is JournalState.RUNNING and table_id in e.tables), None)

    @cached_property
    def standing_holds(self) -> tuple[TableRequest, ...]:
        """All holds that nobody asked to release yet, the oldest first."""
        return tuple(self._unreleased(*HOLDS))

    @cached_property
    def holds(self) -> Mapping[TableId, TableRequest]:
        """The holds that stand, by table: nobody asked to release them yet. Of several of a table the oldest one."""
        found: dict[TableId, TableRequest] = {}
        for request in self.standing_holds:
            found.setdefault(request.table_id, request)
        return found

    @cached_property
    def held(self) -> frozenset[TableId]:
        """The tables that nothing may touch: those that are held, and those that were loaded anew and do not go on yet."""
        return frozenset({*self.holds, *(request.table_id for request in self._unreleased(RequestKind.RESYNC))})

    @cached_property
    def released(self) -> tuple[TableRequest, ...]:
        """The holds and resyncs that a later release of their table withdraws."""
        ends: dict[TableId, str] = {}
        for request in self.requests.values():
            if request.kind is RequestKind.RELEASE:
                ends[request.table_id] = max(request.identity, ends.get(request.table_id, ""))
        kinds = (*HOLDS, RequestKind.RESYNC)
        return tuple(r for r in self.requests.values() if r.kind in kinds and r.identity < ends.get(r.table_id, ""))

    def _unreleased(self, *kinds: RequestKind) -> Iterator[TableRequest]:
        return (request for request in self.requests.values() if request.kind in kinds and request not in self.released)

    @cached_property
    def by_folded_name(self) -> Mapping[TableId, tuple[TableProgress, ...]]:
        """The rows of tables that have, or had, one name but for its case, by ``TableId.folded``, as they came to be."""
        found: dict[TableId, list[TableProgress]] = defaultdict(list)
        for own in sorted(self.tables.values(), key=_incarnation):
            found[own.table_id.folded].append(own)
        return {name: tuple(rows) for name, rows in found.items()}

    def born_as(self, name: TableId, after: int, until: int = MAX_TSO) -> tuple[TableProgress, ...]:
        """Those rows of a name in whatever case that came to be ``after < incarnation <= until`` (TSO)."""
        rows = self.by_folded_name.get(name.folded, ())
        return rows[bisect_right(rows, after, key=_incarnation) : bisect_right(rows, until, key=_incarnation)] if rows else ()

    def reach_of(self, tables: frozenset[TableId]) -> Reach:
        """How far a set of tables got; of one that many schema changes share it is found once."""
        if (known := self._reaches.get(tables)) is not None:
            return known
        own = [self.tables[t].incarnation for t in tables if t in self.tables]
        born = (row.incarnation for t in tables for row in self.born_as(t, 0) if row.table_id != t and row.has_been)
        found = Reach(
            len(own), max((self.table_checkpoint(t) for t in tables), default=0), max(own, default=0), max(born, default=0)
        )
        self._reaches[tables] = found
        return found

    @cached_property
    def _reaches(self) -> dict[frozenset[TableId], Reach]:
        return {}

    @cached_property
    def settled_of(self) -> Mapping[TableId, tuple[JournalEntry, ...]]:
        """The settled entries of the journal by the tables that they changed, in the order of their commit ts."""
        found: dict[TableId, list[JournalEntry]] = defaultdict(list)
        for entry in sorted((entry for entries in self.settled.values() for entry in entries), key=lambda e: e.commit_ts):
            for table_id in entry.tables:
                found[table_id].append(entry)
        return {table_id: tuple(entries) for table_id, entries in found.items()}

    @cached_property
    def not_followed(self) -> frozenset[TableId]:
        """The tables whose CREATE was skipped."""
        return frozenset(t for t, own in self.tables.items() if own.status is TableStatus.NOT_FOLLOWED)

    @cached_property
    def settled_at(self) -> tuple[int, ...]:
        """The commit ts (TSO) of each entry that is settled, in order."""
        return tuple(sorted(entry.commit_ts for entry in self.journal.values() if entry.state.is_settled))

    def table_checkpoint(self, table_id: TableId) -> int:
        """Up to where the table is applied: its own row, lifted by the pipeline's checkpoint while it runs."""
        own = self.tables.get(table_id)
        if own is None:
            return self.start
        if own.status is TableStatus.RUNNING:
            return max(own.checkpoint, self.checkpoint)
        return own.checkpoint
