"""The ledger's record of a pipeline: plain values, the same for every kind of target."""

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
    """New, or back after a stop. Its own checkpoint counts until a whole cut has included the table."""
    STOPPED = "stopped"
    """Stopped by bad data or DDL. The table keeps its checkpoint, the other tables go on."""
    WAITING = "waiting for a decision"
    """Stopped before a schema change that a person has to decide about."""
    NEEDS_RESYNC = "needs resync"
    """Stopped before a schema change whose effect on rows is unknown. The rows have to be loaded anew."""
    INCOMPLETE = "needs resync, rows are missing"
    """The source can no longer provide the table's rows. The table does not go on before it is loaded anew."""
    HELD = "held"
    """A person loads or repairs the table (``headrace table hold`` or ``resync``). Nothing is written to it, the others go on."""
    EXCLUDED = "left out by --tables"
    """The table filter leaves the table out. It keeps its own checkpoint, and is neither read nor changed."""
    GONE = "gone"
    """Dropped or renamed away. The row is a tombstone, so that a cut planned again does not bring the name back (rule 12)."""

    GONE_WAITING = "gone, waiting for a decision"
    """A tombstone too: a schema change from before the table's end was found only after that end."""
    NOT_FOLLOWED = "not followed"
    """A tombstone too: the table's CREATE was skipped, and the table was not created by hand. Its later changes are skipped."""

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
    """The ledger's row for the table that now has a name, or had it last.

    A row belongs to one table of the source and the one table of the target that it is written to.
    """

    table_id: TableId
    checkpoint: int
    """TSO up to which everything is applied.

    The true checkpoint of a running table is the larger of this one and the pipeline's. So a cut for a thousand quiet tables writes
    only one row.
    """
    after: bool = True
    """Whether the schema change at exactly ``checkpoint`` is done too."""
    status: TableStatus = TableStatus.RUNNING
    reason: str = ""
    incarnation: int = 0
    """The commit ts (TSO) of the change that gave the table this name: its CREATE, or a RENAME."""
    again: bool = False
    """Whether the table stands before that change, and either another table had the name before, or the table was reset."""
    let_in: bool = False
    """Whether the table got its name by a RENAME, and its first change was skipped because the table in the target was not the
    pipeline's."""
    target: TableId | None = None
    """The table of the target; ``None`` if it has the same name as the source's table."""
    lacks: str = ""
    """Why rows may be missing that no run will apply before the table is loaded anew or emptied; empty without a sign of it."""
    loaded: int = 0
    """The TSO as of which a person loaded the table anew, 0 for never. No rows up to that TSO are missing."""

    def __post_init__(self) -> None:
        if self.target == self.table_id:
            object.__setattr__(self, "target", None)

    @property
    def pair(self) -> tuple[TableId, TableId]:
        """The source's table and the target's table, which together identify the row."""
        return self.table_id, self.target or self.table_id

    @property
    def has_been(self) -> bool:
        """Whether the table exists or existed."""
        return self.is_made or self.status.is_gone

    @property
    def is_made(self) -> bool:
        """Whether the pipeline created or adopted the table, and it is not gone. False before its own CREATE is applied."""
        return not self.status.is_gone and (self.after or self.checkpoint > self.incarnation)

    @property
    def needs_files(self) -> bool:
        """Whether the table may later go on from files that were not read yet. The source must then remember these files.

        True for stopped tables and for tables that the filter leaves out: the latter may be included again, and a table that lacks
        rows may be loaded anew. In both cases it must be possible to check then whether all files still exist.
        """
        return self.status.is_stopped or self.status is TableStatus.EXCLUDED


class JournalState(StrEnum):
    WAITING = "waiting"
    """The change's tables stopped before it. The change was not started, or its start was rolled back."""
    PENDING = "pending"
    """The change was started. The target's catalogue shows whether it ran."""
    RUNNING = "running"
    """The change is running in the target for a long time, under the entry's handle, or is started at the next check."""
    UNCLEAR = "unclear"
    """The change, or a person's statement in its place, may have run completely or partly. Only a later decision ends this."""
    DONE = "done"
    SKIPPED = "skipped"
    """The change counts as done, but was not run."""

    @property
    def is_settled(self) -> bool:
        return self in (JournalState.DONE, JournalState.SKIPPED)

    @property
    def may_have_run(self) -> bool:
        """Whether the change was started, and its result is not known yet."""
        return self in (JournalState.PENDING, JournalState.RUNNING, JournalState.UNCLEAR)


_DOTS_OF_TWO_NAMES = 2
"""The least number of dots in a table's qualified name if one of the two names contains a dot itself."""


@lru_cache(maxsize=16)
def in_order(tables: frozenset[TableId]) -> tuple[TableId, ...]:
    """The tables of a schema change, sorted as in its journal entry. Changes with the same set of tables share the result."""
    return tuple(sorted(tables))


@dataclass(frozen=True)
class JournalEntry:
    """One schema change in the DDL journal."""

    identity: str
    commit_ts: int
    tables: tuple[TableId, ...]
    statement: str
    """The source's statement, or the one that a person ran in its place."""
    state: JournalState
    state_before: str = ""
    """For a pending change, what the applier recorded of the target before it. For a long-running change, its handle."""

    @property
    def place(self) -> str:
        """The ``place`` of the schema change: the identity without the digest.

        Older versions of Headrace wrote ``str`` of the table instead of ``TableId.key``.
        """
        place = self.identity.rpartition("/")[0]
        at, _, name = place.partition("/")
        if name.startswith("`") or (name.count(".") < _DOTS_OF_TWO_NAMES and "`" not in name):
            return place
        former = next((t for t in self.tables if str(t) == name), None)
        return place if former is None else f"{at}/{former.key}"

    @property
    def digest(self) -> str:
        """The part of the identity after the place."""
        return self.identity.rpartition("/")[2]

    def running(self, handle: str) -> JournalEntry:
        """The entry for a long-running change. ``handle`` begins with the time at which the change started (ISO time in UTC)."""
        return replace(self, state=JournalState.RUNNING, state_before=handle)

    @property
    def handle(self) -> str:
        """The handle of a long-running change; empty for any other change."""
        return self.state_before if self.state is JournalState.RUNNING else ""

    @property
    def since(self) -> str:
        """When a long-running change started (ISO time in UTC); empty for any other change."""
        return self.handle.partition(" ")[0]


class ShapeKey(NamedTuple):
    """Identifies a shape: of a table, in the life that began at ``incarnation`` (TSO), valid from ``version`` (TSO) on."""

    table_id: TableId
    incarnation: int
    version: int


@dataclass(frozen=True)
class TableShape:
    """The shape that a source's table has from a commit ts on. Kept for sources that cannot provide it again."""

    incarnation: int
    """As in :class:`TableProgress`: the commit ts (TSO) of the change that gave the table its name."""
    version: int
    """The commit ts (TSO) of the schema change that led to the shape. Later rows have this shape, up to the next version."""
    schema: TableSchema
    """The shape. For a database it has no columns, and its ``table_id`` is that of the database."""
    partitioning: str = ""
    """How the table is partitioned (``headrace.ddl.partition_text``). Needed for interpreting later statements."""
    collation: str = ""
    """The default collation of the table or the database, if a statement named one. Columns that are added later may have it."""

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
    """A person's decision about one schema change, stored in the ledger for the run.

    ``identity`` is that of the journal entry. ``statement`` is what an edit runs instead, in the target's own SQL.
    """

    identity: str
    verdict: Verdict
    statement: str = ""


class RequestKind(StrEnum):
    """What a person requests for a table."""

    HOLD = "hold"
    """Write nothing to the table until it is released."""
    HELD = "held"
    """A hold that has taken effect: nothing is written to the table."""
    RELEASE = "release"
    """Withdraw all earlier holds of the table, and its resyncs that were not carried out yet."""

    RESUME = "resume"
    """Try again at once."""
    SKIP_ROWS = "skip rows"
    """Give up the table's rows up to a commit ts. Its schema changes still run."""
    SKIP_FILE = "skip file"
    """Count one of the table's files as read."""
    SKIP_RECORD = "skip record"
    """Skip one of the table's records in a stream."""
    RESYNC = "resync"
    """The table was loaded anew as of a commit ts. Let it go on from there, and write nothing to it before."""
    LOADED = "loaded"
    """A resync that a run has carried out: earlier rows of the table are not needed. It remains until the table has caught up."""
    RESET = "reset"
    """Let the table begin anew, as if it had never been seen."""
    REPLAY = "replay dead letters"
    """Apply the table's dead letters again, after a repair."""
    DISCARD = "discard dead letters"
    """Remove the table's dead letters without applying them."""

    @property
    def names_place(self) -> bool:
        """Whether the request gives up one place in the source: a file or a record."""
        return self in (RequestKind.SKIP_FILE, RequestKind.SKIP_RECORD)

    @property
    def is_of_letters(self) -> bool:
        return self in (RequestKind.REPLAY, RequestKind.DISCARD)


HOLDS = (RequestKind.HOLD, RequestKind.HELD)


@dataclass(frozen=True)
class TableRequest:
    """A person's request about one table, stored in the ledger for the run."""

    identity: str
    """Sorts by the time of the request."""
    table_id: TableId
    kind: RequestKind
    to: int = 0
    """TSO up to which rows are given up, or as of which the table was loaded.

    A hold has it if it was a resync that was refused: the loaded rows do not match the table's checkpoint.
    """
    since: int = 0
    """The table's checkpoint (TSO) at the time of the request."""
    place: SourcePlace | None = None
    """The file or record to give up; ``None`` for rows up to a commit ts."""


@dataclass(frozen=True)
class Words:
    """The decisions and requests of people in the ledger, by identity. The oldest request comes first."""

    decisions: dict[str, Decision] = field(default_factory=dict)
    requests: dict[str, TableRequest] = field(default_factory=dict)


@dataclass(frozen=True)
class RowFigures:
    """What happened to the rows that were read. ``read`` is the sum of all other fields.

    A file that several rounds of a cut read is counted each time.
    """

    read: int = 0
    netted: int = 0
    """Rows that a later change of the same key made superfluous."""
    written: int = 0
    refused: int = 0
    """Rows that became dead letters, or whose table stopped."""
    left: int = 0
    """Rows above the cut, which a later cut reads again."""
    passed: int = 0
    """Rows below the cut, and repeats of rows that an earlier cut applied."""

    def __add__(self, other: RowFigures) -> RowFigures:
        return RowFigures(*(mine + its for mine, its in zip(astuple(self), astuple(other), strict=True)))


_PRECISIONS = (CommitTsPrecision.NONE, CommitTsPrecision.EXACT, CommitTsPrecision.MILLISECOND, CommitTsPrecision.SECOND)


@dataclass(frozen=True)
class CutRecord:
    """One of the last cuts, for people.

    ``netted``, ``refused``, ``left`` and ``passed`` are explained at :class:`RowFigures`. They are 0 in records of an older
    Headrace.
    """

    hi: int
    finished_at: str
    """ISO time in UTC."""
    seconds: float
    files: int
    """The number of splits that were read: files, or pieces of a stream."""
    read_rows: int
    """The sum of ``upserts``, ``deletes``, ``netted``, ``refused``, ``left`` and ``passed``."""
    upserts: int
    deletes: int
    read_bytes: int = 0
    schema_changes: int = 0
    exact: int = 1
    """The number of :attr:`precision`: 1 if rows carried their exact commit ts, 2 if they carried its millisecond, 3 its
    second, 0 if they carried none. An older Headrace wrote 0 for the millisecond too."""
    netted: int = 0
    refused: int = 0
    left: int = 0
    passed: int = 0

    @property
    def precision(self) -> CommitTsPrecision:
        """How exactly the cut's rows carried their commit ts."""
        return _PRECISIONS[self.exact]

    @staticmethod
    def number_of(precision: CommitTsPrecision) -> int:
        """The value of ``exact`` for a precision."""
        return _PRECISIONS.index(precision)


@dataclass(frozen=True)
class Reach:
    """How far a set of tables has got. All times are TSOs, 0 for none."""

    known: int
    """How many of the tables are in the ledger."""
    checkpoint: int
    """The greatest checkpoint."""
    incarnation: int
    """The incarnation of the youngest table."""
    namesake: int
    """The incarnation of the youngest table that has, or had, one of the names in another case."""

    @property
    def latest(self) -> int:
        """No table of the set, and no table with one of the names in another case, has passed a commit ts beyond this one."""
        return max(self.checkpoint, self.incarnation, self.namesake)


_incarnation = attrgetter("incarnation")


@dataclass(frozen=True)
class LedgerState:
    """The whole record of one pipeline."""

    pipeline: str
    source_identity: str = ""
    fingerprint: str = ""
    epoch: int = 0
    attempt: int = 0
    start: int = 0
    """The TSO at which a table begins that was never seen."""
    checkpoint: int = 0
    """The TSO up to which all changes of every running table are applied."""
    attempted: int = 0
    """The highest ``hi`` of a cut that was ever intended. While it is larger than ``checkpoint``, the target may be ahead."""
    position: str = ""
    """The source's position, as a text that only the source interprets."""
    tables: dict[TableId, TableProgress] = field(default_factory=dict)
    """The rows of the source's tables that are written to one table of the target."""
    journal: dict[str, JournalEntry] = field(default_factory=dict)
    cuts: tuple[CutRecord, ...] = ()
    decisions: dict[str, Decision] = field(default_factory=dict)
    """By identity, the decisions that no schema change has used yet."""
    requests: dict[str, TableRequest] = field(default_factory=dict)
    """By identity, the requests about tables that were not carried out yet."""
    dead_letters: dict[TableId, int] = field(default_factory=dict)
    """The number of dead letters of each table."""
    pairs: dict[tuple[TableId, TableId], TableProgress] = field(default_factory=dict)
    """By source and target, the rows of the source's tables that are written to several tables of the target.

    These rows are not in ``tables``, so that a lookup by the source's table alone does not take one of them for the whole.
    """
    shapes: dict[ShapeKey, TableShape] = field(default_factory=dict)
    """The shapes of the source's tables, if the source needs them (``EventSource.needs_shapes``)."""
    began: int = 0
    """The epoch of the run that created this record. Marks in tables (``TableMark``) from an earlier epoch are not valid.
    0 in ledgers that do not store it (those of sinks whose tables have no marks) and in records of an older Headrace."""

    @property
    def rows(self) -> tuple[TableProgress, ...]:
        """The rows of all tables, those in ``tables`` and those in ``pairs``."""
        return (*self.tables.values(), *self.pairs.values())

    def has_moved(self, before: LedgerState) -> bool:
        """Whether the source's position, the checkpoint or a table's row differs from ``before``."""
        places = ((own.position, own.checkpoint, own.tables, own.pairs) for own in (before, self))
        return next(places) != next(places)

    def row_of(self, table_id: TableId, target: TableId) -> TableProgress | None:
        """The row of a source's table and one table of the target."""
        own = self.tables.get(table_id)
        return own if own is not None and own.pair == (table_id, target) else self.pairs.get((table_id, target))

    def with_rows(self, rows: Iterable[TableProgress]) -> LedgerState:
        """The state with these rows instead of the rows of the same pairs.

        When a table gets a second target, its row moves from ``tables`` to ``pairs``.
        """
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
        """The settled entries of the journal, by commit ts (TSO) and place (:attr:`JournalEntry.place`)."""
        found: dict[tuple[int, str], tuple[JournalEntry, ...]] = {}
        for entry in self.journal.values():
            if entry.state.is_settled:
                key = entry.commit_ts, entry.place
                found[key] = (*found.get(key, ()), entry)
        return found

    @cached_property
    def journal_by_place(self) -> Mapping[str, tuple[JournalEntry, ...]]:
        """All entries of the journal, by place (:attr:`JournalEntry.place`)."""
        found: dict[str, tuple[JournalEntry, ...]] = {}
        for entry in self.journal.values():
            found[entry.place] = (*found.get(entry.place, ()), entry)
        return found

    def running_change(self, table_id: TableId) -> JournalEntry | None:
        """The long-running schema change of a table in the target, if there is one."""
        return next((e for e in self.journal.values() if e.state is JournalState.RUNNING and table_id in e.tables), None)

    @cached_property
    def standing_holds(self) -> tuple[TableRequest, ...]:
        """All holds without a later release, the oldest first."""
        return tuple(self._unreleased(*HOLDS))

    @cached_property
    def holds(self) -> Mapping[TableId, TableRequest]:
        """By table, the oldest hold without a later release."""
        found: dict[TableId, TableRequest] = {}
        for request in self.standing_holds:
            found.setdefault(request.table_id, request)
        return found

    @cached_property
    def held(self) -> frozenset[TableId]:
        """The tables that must not be written to: those with a hold, and those with a resync that was not carried out yet."""
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
        """By ``TableId.folded``, the rows of the tables that have, or had, this name in any case, in order of incarnation."""
        found: dict[TableId, list[TableProgress]] = defaultdict(list)
        for own in sorted(self.tables.values(), key=_incarnation):
            found[own.table_id.folded].append(own)
        return {name: tuple(rows) for name, rows in found.items()}

    def born_as(self, name: TableId, after: int, until: int = MAX_TSO) -> tuple[TableProgress, ...]:
        """The rows of a name in any case with ``after < incarnation <= until`` (TSO)."""
        rows = self.by_folded_name.get(name.folded, ())
        return rows[bisect_right(rows, after, key=_incarnation) : bisect_right(rows, until, key=_incarnation)] if rows else ()

    def reach_of(self, tables: frozenset[TableId]) -> Reach:
        """How far a set of tables has got. The result is cached, because many schema changes may share one set."""
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
        """By table, the settled entries of the journal that changed it, in the order of commit ts."""
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
        """The commit ts (TSO) of each settled entry of the journal, in order."""
        return tuple(sorted(entry.commit_ts for entry in self.journal.values() if entry.state.is_settled))

    def table_checkpoint(self, table_id: TableId) -> int:
        """The TSO up to which the table is applied: its own checkpoint, or for a running table the pipeline's if that is larger."""
        own = self.tables.get(table_id)
        if own is None:
            return self.start
        if own.status is TableStatus.RUNNING:
            return max(own.checkpoint, self.checkpoint)
        return own.checkpoint
