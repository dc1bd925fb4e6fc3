"""The contract of a sink (with Flink CDC's names: DataSink, EventSink, MetadataApplier) and of its ledger.

The engine adapts to a sink by its ``SinkCapabilities`` and never by its name. The part of a sink that runs in Spark tasks is its
:class:`UnitWriter`; it must be picklable before ``open``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self, runtime_checkable

import pyarrow as pa

from headrace.model.advice import NO_ADVICE, SourceAdvice
from headrace.model.events import SchemaChange
from headrace.model.ledger import (
    CutRecord,
    Decision,
    JournalEntry,
    LedgerState,
    ShapeKey,
    TableProgress,
    TableRequest,
    TableShape,
    Words,
)
from headrace.model.outcome import Problem, ReadCount, SplitReport, WriteCount, WriteOutcome
from headrace.model.policy import ChangeKind
from headrace.model.table import SourceTable, TableId, TableSchema
from headrace.places.work_place import WorkPlace
from headrace.sinks.dead_letters import DeadLetters
from headrace.sinks.metadata_applier import MetadataApplier
from headrace.sinks.reserved import Reserved
from headrace.sinks.table_marks import TableMark, TableMarks

if TYPE_CHECKING:
    from headrace.sinks.cut_commit import CutCommit

KEPT_CUTS = 100
"""How many of the most recent cuts a ledger keeps, for display."""


class ChangeDemand(StrEnum):
    """The form in which a sink takes a table's changes (rule 8)."""

    NET = "net"
    """The last state of each key."""
    ALL = "all"
    """Every change, in commit order. Repeats are removed where the source allows them to be recognised."""
    BAG = "bag"
    """The net insertions and deletions of equal rows, for a table without key."""


class Spread(StrEnum):
    """How the changes of a table are spread over write units with the demand ALL. Within a unit they are in commit order."""

    BY_TABLE = "by table"
    """One unit gets all changes of a table."""
    BY_KEY = "by key"
    """One unit gets all changes of a key. A table without key goes to one unit as a whole."""
    FREELY = "freely"
    """In any way. Equal rows go to the same unit, so that repeats are found."""


SINK_OPTIONS = frozenset({"adopt", "allow-non-transactional"})
"""Options that every built-in sink accepts beside its URI. A sink ignores an option that does not apply to it."""


@dataclass(frozen=True)
class SinkCapabilities:
    """What the engine must know about a sink."""

    demand: ChangeDemand
    """The form of changes for every table for which ``own_demand`` gives no other. For a table without key, NET becomes BAG."""
    atomic_cut: bool = False
    """A whole cut, with all its rounds and schema changes, is one transaction with the ledger. The driver holds it."""
    atomic_bytes: int = 0
    """One task writes a cut of at most this many source bytes, without schema changes, in one transaction with the ledger (0:
    never)."""
    writers: int = 0
    """The maximum number of concurrent write tasks (0: as many as Spark runs)."""
    bags: bool = False
    """It can apply net changes of tables without key (:attr:`ChangeDemand.BAG`)."""
    owns_stdout: bool = False
    """It writes to the standard output, so nothing else may write there."""
    spread: Spread = Spread.BY_TABLE
    """For tables with the demand ALL."""
    own_demand: Callable[[TableId, TableSchema], ChangeDemand] | None = None
    """The demand of each table, where the sink applies tables in different ways. Called on the driver."""
    keeps_commit_ts: bool = False
    """Rows of net changes and bags come with their commit ts (see :class:`TableChange`), for targets that compare versions of a
    row. Tables stop if the source does not give exact commit ts."""
    replays: bool = False
    """It executes every transaction of the tables with the demand ALL, and the ledger records which of them are executed. Such
    tables stop if the source does not give exact commit ts."""
    views: bool = False
    """It creates the source's views."""
    adopts: bool = False
    """The user confirmed that what the target already holds belongs to the source (``--adopt``)."""
    reserved: Reserved = field(default_factory=Reserved)
    """The databases of the target to which the source's tables must not be written."""
    supported_schema_changes: frozenset[ChangeKind] = frozenset(ChangeKind)
    """The kinds of schema changes that it accepts. A table stops before a change of another kind until a person decides; the sink
    never receives the change."""

    spools: bool = False
    """Its tasks hand rows to the driver through the work place (:meth:`Round.work_place`)."""
    own_spool: str = ""
    """The setting in the sink's URI that names a folder to use instead of the work place; empty if none is named."""

    def demand_of(self, table_id: TableId, schema: TableSchema) -> ChangeDemand:
        """The form in which the sink takes the changes of a table of this shape."""
        demand = self.demand if self.own_demand is None else self.own_demand(table_id, schema)
        return ChangeDemand.BAG if demand is ChangeDemand.NET and not schema.handle_key else demand


@dataclass(frozen=True)
class TableChange:
    """What one write unit applies to one table: one (table, bucket) of a round, in one schema version.

    Net demand: ``deletes`` holds the key columns of keys that end deleted, ``upserts`` the full rows (canonical types, columns the
    rows carry) of keys that end alive, in commit order. ``ordered`` is rarely used: it holds, in the layout of a block, the last
    changes of keys that differ but that the target may consider equal (rule 7). They form groups, each in commit order. Of the keys
    in a group that the target does consider equal, only the last change counts; the rows of the others must not be written.

    All demand: ``ordered`` holds every change in commit order, the other two are empty. If the source identifies repeats by
    changes, the deletion of a key precedes a new row of that key with the same commit ts, in whatever order the source has them. A
    writer that applies the rows one by one therefore ends with the source's table.

    A table without key (``schema.handle_key`` empty) is a bag: each whole row in ``deletes`` removes one equal row, and ``upserts``
    holds rows to insert. Applying that twice would be wrong. So a writer puts ``progress``, the table's own ledger row, into the
    same transaction, and applies nothing if the ledger is that far already.

    For a sink with ``keeps_commit_ts``, ``deletes`` and ``upserts`` have the column ``headrace.model.block.COMMIT_TS`` (int64, TSO)
    after the others: the commit ts of the key's last change, or of the newest among equal rows of a bag.

    ``table_id`` and ``schema`` are the source's; messages and dead letters use them. A writer writes to :attr:`target`, whose shape
    is :attr:`target_schema`.
    """

    table_id: TableId
    version: int
    schema: TableSchema
    deletes: pa.Table
    upserts: pa.Table
    ordered: pa.Table
    progress: TableProgress | None = None
    lo: int = 0
    """The commit ts (TSO) up to which the table was applied before the round, for its dead letters."""
    watch: SpellingWatch | None = None
    """If set, the three tables have one more column at the end, ``headrace.model.block.SIGHT``. They may have it otherwise, too."""
    groups: tuple[int, ...] = ()
    """The row numbers in ``ordered`` where a group begins. Keys of two groups differ in every target. Empty: all are one group."""
    in_order: bool = False
    """With the demand ALL: a transaction may change a key several times, one after the other in the order of its rows. Otherwise it
    has at most one change of a key, and all of them take effect at once: rows may exchange their keys."""
    routed: TableSchema | None = None
    """The shape and name of the target's table, whose columns the rows then have. ``None``: the same as the source's."""

    @property
    def target_schema(self) -> TableSchema:
        return self.routed or self.schema

    @property
    def target(self) -> TableId:
        """The table of the target."""
        return self.target_schema.table_id

    @property
    def num_rows(self) -> int:
        """All rows of the change: deletes, ordered ones and upserts."""
        return int(self.deletes.num_rows + self.ordered.num_rows + self.upserts.num_rows)


@dataclass(frozen=True)
class WriterContext:
    """Identifies a write unit's task: its slot (0-based), and the fence that it must check before a commit."""

    pipeline: str
    epoch: int
    attempt: int
    slot: int
    letters: DeadLetters | None = None
    """Takes rows that the target refuses because of a value, of tables with a key; written before the other rows are committed.
    Without it such a row stops its table."""
    advice: SourceAdvice = NO_ADVICE
    """What a person can change at the source, for hints."""


@dataclass(frozen=True)
class LedgerUpdate:
    """One durable step of progress. Everything in it is written in one transaction; ``None`` leaves a field as it is.

    ``tables`` and ``journal`` are rows to put (by table, by identity). ``forget_journal``, ``used_decisions`` and ``used_requests``
    are identities of journal entries, decisions and table requests to remove.
    """

    checkpoint: int | None = None
    attempted: int | None = None
    position: str | None = None
    tables: tuple[TableProgress, ...] = ()
    journal: tuple[JournalEntry, ...] = ()
    forget_journal: tuple[str, ...] = ()
    cut: CutRecord | None = None
    used_decisions: tuple[str, ...] = ()
    used_requests: tuple[str, ...] = ()
    requests: tuple[TableRequest, ...] = ()
    """Requests that a run has taken up. They replace the requests with the same identities."""
    dead_letters: Mapping[TableId, int] = field(default_factory=dict)
    """The new number of dead letters of each of these tables."""
    attempt: int | None = None
    """Begins another attempt, after a round: a task of that round that was given up for lost and repeated may still wake up."""
    fingerprint: str | None = None
    """The definition's fingerprint, written with the consequences of a changed filter for its tables."""
    shapes: tuple[TableShape, ...] = ()
    """Shapes to put, of tables whose source needs that. The run must have acquired :attr:`LedgerPart.SHAPES`."""
    forget_shapes: tuple[ShapeKey, ...] = ()
    forget_replayed: tuple[TableId, ...] = ()
    """Tables of the source whose rows in the target are not those any more that transactions were replayed into."""

    def applied_to(self, state: LedgerState) -> LedgerState:
        """The state of the ledger after this step. ``attempted`` never decreases."""
        forgotten, put = frozenset(self.forget_journal), {request.identity: request for request in self.requests}
        journal = {k: e for k, e in state.journal.items() if k not in forgotten}
        shapes = {k: s for k, s in state.shapes.items() if k not in self.forget_shapes} if self.forget_shapes else state.shapes
        return replace(
            state.with_rows(self.tables),
            attempt=state.attempt if self.attempt is None else self.attempt,
            fingerprint=state.fingerprint if self.fingerprint is None else self.fingerprint,
            checkpoint=state.checkpoint if self.checkpoint is None else self.checkpoint,
            attempted=max(state.attempted, self.attempted or 0),
            position=state.position if self.position is None else self.position,
            shapes=shapes | {shape.key: shape for shape in self.shapes} if self.shapes else shapes,
            journal=journal | {entry.identity: entry for entry in self.journal},
            decisions={k: d for k, d in state.decisions.items() if k not in self.used_decisions},
            requests={k: r for k, r in {**state.requests, **put}.items() if k not in self.used_requests},
            dead_letters={t: count for t, count in {**state.dead_letters, **self.dead_letters}.items() if count},
            cuts=(*state.cuts, *([self.cut] if self.cut else []))[-KEPT_CUTS:],
        )


class LedgerPart(StrEnum):
    """Parts of the ledger that not every pipeline needs. A SQL ledger creates the table of that name when one is needed."""

    SHAPES = "shapes"
    """The shapes of the source's tables (``LedgerUpdate.shapes``)."""
    ROUTED_TABLES = "routed_tables"
    """Rows of tables whose name in the target differs from the source's (``TableProgress.target``)."""
    REPLAYED = "replayed"
    """The transactions that are executed beyond the checkpoints of their tables (``SinkCapabilities.replays``)."""


class UnitWriter(Protocol):
    """Writes table changes from inside one Spark task, on connections of its own."""

    def open(self, context: WriterContext) -> None:
        """Connects. Raises SinkUnreachableError or TransientError."""
        ...

    def write(self, changes: Iterable[TableChange], commit: CutCommit | None) -> list[WriteOutcome]:
        """Applies the changes of a unit and commits. With ``commit``, all of them and the ledger's update are one transaction.

        Called for one unit after another between :meth:`open` and :meth:`close`. Net changes and bags come as a list with one item
        for each table. If a table's demand is ALL, its changes come one by one, table by table, each table in pieces of up to 8 MiB
        in commit order; a writer that needs them all at once must hold the table in memory.

        A table that cannot be written yields an outcome with a problem, and the other tables are written (``commit.update`` then
        leaves its progress unchanged). The same applies to unexpected errors of a single table (``sinks/table_by_table.py``), since
        an exception ends the round for all tables. Transient errors are retried here. Raises FencedError when the fence moved, and
        TransientError when the retries are used up.
        """
        ...

    def commits(self) -> tuple[Commits, ...]:
        """The commit counts of its slots at :meth:`open` and now; none if the rows take effect only with a later driver step."""
        ...

    def close(self) -> None: ...


@dataclass(frozen=True)
class Commits:
    """How many transactions the writers of a slot have committed in this attempt, before a unit was written and after it.

    A sink whose rounds consist of many transactions compares these numbers with the target's at the ledger's next step. If the
    target has lost some of the transactions, its state is no longer the one that the ledger would record.
    """

    slot: int
    before: int
    after: int


@dataclass(frozen=True)
class WriteReport:
    """The result of a round."""

    splits: tuple[SplitReport, ...] = ()
    outcomes: tuple[WriteOutcome, ...] = ()
    committed: bool = False
    """The ledger's progress was committed with the data, in one transaction."""
    reads: tuple[ReadCount, ...] = ()
    """What each task counted, in the order of the jobs; the same for ``writes``."""
    writes: tuple[WriteCount, ...] = ()
    commits: tuple[Commits, ...] = ()
    """What each task committed, in the order of the jobs."""

    def problems(self) -> dict[TableId, Problem]:
        """The first problem of each table, whether found in reading or in writing."""
        found: dict[TableId, Problem] = {}
        for problem in (*(s.problem for s in self.splits), *(o.problem for o in self.outcomes)):
            if problem is not None:
                found.setdefault(problem.table_id, problem)
        return found

    def letters(self) -> dict[TableId, frozenset[str]]:
        """The names of the dead letters of each table that has any."""
        found: dict[TableId, frozenset[str]] = {}
        for table_id, names in (*((s.table_id, s.letters) for s in self.splits), *((o.table_id, o.letters) for o in self.outcomes)):
            if names:
                found[table_id] = found.get(table_id, frozenset()).union(names)
        return found


@dataclass(frozen=True)
class UniqueTexts:
    """A unique key of a target table with text columns that are compared by a collation: texts that differ in bytes may be equal.

    Column names are folded. ``parts`` are the key's columns, each with its prefix length in characters (0: the whole column).
    ``texts`` are the key's columns that are compared by a collation.
    """

    parts: tuple[tuple[str, int], ...]
    texts: frozenset[str]


@dataclass(frozen=True)
class TextComparison:
    """How a target table compares texts.

    ``weighed`` are the columns (folded names) whose collation gives each supplementary character a weight of its own. Other
    collations treat all supplementary characters as equal (see ``headrace.model.collation``).
    """

    weighed: frozenset[str] = frozenset()
    keys: tuple[UniqueTexts, ...] = ()


TextComparisons = Callable[[Collection[TableId]], Mapping[TableId, TextComparison]]
"""Called on the driver, for tables with text columns."""


@dataclass(frozen=True)
class SpellingWatch:
    """Makes a writer look for two source rows whose keys differ in their bytes but are equal in the target."""

    keys: tuple[UniqueTexts, ...]
    new_collations: bool | None
    """What the source's definition says about collations (``Offer.new_collations``)."""
    whole: bool
    """The unit has all changes of its table in this round, so a row that is not among them did not change."""
    weighed: frozenset[str] = frozenset()
    """See ``TextComparison``."""


class Round(Protocol):
    """The changes that are written together, as the engine hands them to an EventSink."""

    def write_in_tasks(self, writer: UnitWriter, texts: TextComparisons | None = None) -> WriteReport:
        """One Spark job that reads, nets and buckets the changes and writes them in tasks, with copies of ``writer``.

        ``texts`` is needed by targets that compare texts by a collation. A second job follows for tables for which a writer needs
        all changes in one unit (``Problem.needs_whole``). Raises what the writers raise.
        """
        ...

    def stream_from_tasks(self, texts: TextComparisons | None = None) -> RowsOnDriver:
        """One Spark job whose table changes come to the driver in pieces of about 8 MiB, for sinks that write there.

        With the demand ALL, the pieces of a table come in commit order; otherwise the deletions of a unit come before its other
        changes. There is no order between units or between tables. For ``texts`` see ``write_in_tasks``.
        """
        ...

    def work_place(self) -> WorkPlace:
        """Where tasks leave data for the driver. Created at the first call, and kept until the run ends. Raises TransientError.

        A sink that calls this declares it in ``SinkCapabilities.spools``.
        """
        ...

    def marks(self) -> Mapping[TableId, TableMark]:
        """For each target table, the mark to commit together with its rows of the round (``DataSink.table_marks``).

        A mark belongs only into a commit that has all rows of the table in this round.
        """
        ...


class RowsOnDriver(Protocol):
    """The table changes of a round on the driver. Iterable once; raises JobFailedError and the errors of reading and netting."""

    def __iter__(self) -> Iterator[TableChange]: ...

    def report(self, outcomes: Iterable[WriteOutcome]) -> WriteReport:
        """The round's report, with the sink's own ``outcomes``. To be called after the iteration is complete.

        A table may turn out to have a problem after some of its changes were delivered. So a sink must not make anything permanent
        before it has checked ``WriteReport.problems``.
        """
        ...


class EventSink(Protocol):
    def write(self, round: Round) -> WriteReport:
        """Writes a round. Returns when it is durable, or, for an ``atomic_cut`` sink, when it is part of the open cut.

        Raises FencedError, TransientError (nothing of the round counts as applied), SinkUnreachableError, RowsRefused.
        """
        ...


class RowsRefused(Exception):
    """An ``atomic_cut`` sink cannot write the rows of a table, and has lost its transaction because of that.

    The cut is planned again without the table. Carries the problem to show.
    """

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.message)
        self.problem = problem


class Ledger(Protocol):
    """The durable record of progress.

    Every step is a compare-and-set: it is written only if the record is still as this run's last step left it. Raises FencedError
    if another run has taken the record over, and TargetWentBackError if the record is in an older state; the run then acquires it
    again.
    """

    def peek(self, pipeline: str) -> LedgerState | None:
        """The current record, or ``None`` if there is none (for ``status``). Takes no epoch and creates nothing."""
        ...

    def pipelines(self) -> list[str]:
        """The names of the pipelines recorded here."""
        ...

    def acquire(
        self, pipeline: str, source_identity: str, fingerprint: str, start: int, parts: Collection[LedgerPart] = (), above: int = 0
    ) -> LedgerState:
        """Takes the next epoch (creating the record if there is none) and ends the writers of the previous run.

        ``fingerprint`` and ``start`` count only for a new record. The epoch is greater than any that this object had before, and
        greater than ``above``: the epoch that the target's tables show of a run that the ledger has forgotten. ``parts`` are the
        optional parts of the ledger that the pipeline will write to; missing ones are created.

        Raises DefinitionError if the record belongs to another source (``source_identity``); its message says what to do.
        """
        ...

    def decide(self, pipeline: str, decision: Decision) -> None:
        """Stores a decision for the current or next run, in place of an earlier one. Takes no epoch."""
        ...

    def request(self, pipeline: str, request: TableRequest) -> None:
        """Stores a request about a table for the current or next run. Takes no epoch."""
        ...

    def words(self, pipeline: str) -> Words | None:
        """The decisions and requests that wait for the run. Cheap: a run calls it every two seconds. Only after :meth:`acquire`.

        ``None`` if they cannot be read just now. Those that the run read before and has not carried out yet remain valid.
        """
        ...

    def reset(self, pipeline: str) -> bool:
        """Removes the whole record of a pipeline in one step. Returns whether there was one. Takes no epoch.

        A running pipeline ends at its next step (FencedError), also when another run has begun under the same name. Raises
        SinkUnreachableError, TransientError.
        """
        ...

    def next_attempt(self) -> int:
        """Increments the attempt after a failed or cancelled job, so that other tasks of that job cannot commit any more."""
        ...

    def update(self, update: LedgerUpdate) -> None:
        """Writes one step. Raises FencedError, TargetWentBackError."""
        ...

    def close(self) -> None:
        """Closes its connections. The run keeps its hold on the record: the next call connects again."""
        ...


@runtime_checkable
class EditingLedger(Protocol):
    """A ledger that can run a person's replacement for a schema change in the transaction of the step that records it."""

    def takes_in(self, statement: str) -> bool:
        """Whether the statement (in the target's own SQL) changes only rows, and can be rolled back completely."""
        ...

    def update_with(self, update: LedgerUpdate, change: SchemaChange, statement: str) -> None:
        """Runs the statement and writes the step, in one transaction. Raises SchemaChangeRefused, and as ``Ledger.update``."""
        ...


@runtime_checkable
class PlacedLedger(Protocol):
    """A ledger in a file or folder, which the first run creates."""

    def missing(self) -> str:
        """The file or folder if it does not exist, for people: ``the DuckDB file /data/shop.duckdb``; otherwise empty."""
        ...


class DataSink(Protocol):
    """A sink as the pipeline holds it. A context manager; entering does not connect yet."""

    @property
    def identity(self) -> str:
        """The target without secrets, for people."""
        ...

    @property
    def capabilities(self) -> SinkCapabilities: ...

    @property
    def event_sink(self) -> EventSink: ...

    @property
    def metadata_applier(self) -> MetadataApplier: ...

    @property
    def ledger(self) -> Ledger | None:
        """The sink's own ledger, or ``None``: the pipeline then uses a file ledger."""
        ...

    @property
    def table_marks(self) -> TableMarks | None:
        """For a sink that commits each table separately, with the commit ts up to which it is applied; ``None`` for other sinks."""
        ...

    def spark_conf(self) -> Mapping[str, str]: ...

    def check(self) -> list[Check]:
        """The checks of ``validate`` on the target. Changes nothing."""
        ...

    def check_tables(self, pipeline: str, tables: Sequence[SourceTable]) -> list[Check]:
        """Whether the target's tables fit the source's, so that the order of writes does not matter (docs/guarantees.md).

        Tables that the target does not have yet are accepted. A database of the source without tables is passed as a table without
        name and columns. Changes nothing. Empty if :meth:`check` could not reach the target.
        """
        ...

    def begin_cut(self) -> None:
        """``atomic_cut`` sinks open their transaction here; the ledger's next ``update`` with a checkpoint commits it."""
        ...

    def interrupt(self) -> None:
        """Aborts what the driver is doing in the target, so that it fails with a transient error. Called from another thread."""
        ...

    def forget_tables(self, tables: Collection[TableId]) -> None:
        """Drops what the sink has cached about these target tables, since a person may have changed them."""
        ...

    def abandon_cut(self) -> None:
        """Rolls an open cut back. Does nothing for sinks without one."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None: ...


class CheckState(StrEnum):
    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"


@dataclass(frozen=True)
class Check:
    """One line of ``validate``: what was checked, the result, and what to do if it is not ok."""

    name: str
    state: CheckState
    detail: str = ""
    advice: str = field(default="")
