"""The contract of a sink (Flink CDC's names: DataSink, EventSink, MetadataApplier), and of its ledger.

The engine asks ``SinkCapabilities``; it never asks which system a sink is. A sink's part that runs in Spark tasks is its
:class:`UnitWriter`: it must pickle before ``open``.
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
"""How many of the last cuts a ledger keeps, for people."""


class ChangeDemand(StrEnum):
    """What a sink wants of a table's changes (rule 8)."""

    NET = "net"
    """The last state of each key."""
    ALL = "all"
    """Every change, in commit order, without repeats as far as the source can tell them."""
    BAG = "bag"
    """How often each row stands, of a table without key."""


class Spread(StrEnum):
    """How the changes of a table of which all are wanted are spread over units of writing. Within one they come in commit order."""

    BY_TABLE = "by table"
    """All of a table to one unit."""
    BY_KEY = "by key"
    """All of a key to one unit; tables without key as a whole."""
    FREELY = "freely"
    """As it comes; equal rows go to one unit, so that repeats are found."""


SINK_OPTIONS = frozenset({"adopt", "allow-non-transactional"})
"""What may be said of any of our sinks beside its URI; one for which it means nothing passes over it."""


@dataclass(frozen=True)
class SinkCapabilities:
    """What the engine has to know about a sink."""

    demand: ChangeDemand
    """What it wants of a table where ``own_demand`` says nothing else. Of one without key the net change is a bag."""
    atomic_cut: bool = False
    """Everything of a cut, all rounds with their schema changes, is one transaction with the ledger, held by the driver."""
    atomic_bytes: int = 0
    """A cut of at most this many source bytes and without schema change is written by one task in one transaction together with
    the ledger (0: never)."""
    writers: int = 0
    """The most tasks that may write at once (0: as many as Spark runs)."""
    bags: bool = False
    """It can apply tables without key of which it does not want every change."""
    owns_stdout: bool = False
    """It writes to the standard output, which nothing else may."""
    spread: Spread = Spread.BY_TABLE
    """Of tables of which it wants all changes."""
    own_demand: Callable[[TableId, TableSchema], ChangeDemand] | None = None
    """What it wants of each table by itself, where tables are applied in different ways. Asked on the driver."""
    keeps_commit_ts: bool = False
    """Rows of net changes and bags come with their commit ts (``TableChange.deletes``), for targets that compare versions of a row.
    Tables stop whose source does not tell it exactly."""
    views: bool = False
    """It makes the source's views."""
    adopts: bool = False
    """The user said that what the target holds already is the source's own (``--adopt``)."""
    reserved: Reserved = field(default_factory=Reserved)
    """The databases that the source may not have a part in."""
    supported_schema_changes: frozenset[ChangeKind] = frozenset(ChangeKind)
    """The kinds of schema changes that it takes. Tables stop before one with another kind, and a person decides: it never comes."""

    spools: bool = False
    """Its tasks hand rows to the driver through the work place (:meth:`Round.work_place`)."""
    own_spool: str = ""
    """The setting of the sink's URI that names a folder for that in place of the work place; empty where none is named."""

    def demand_of(self, table_id: TableId, schema: TableSchema) -> ChangeDemand:
        """What it wants of a table of this shape."""
        demand = self.demand if self.own_demand is None else self.own_demand(table_id, schema)
        return ChangeDemand.BAG if demand is ChangeDemand.NET and not schema.handle_key else demand


@dataclass(frozen=True)
class TableChange:
    """What one write unit applies to one table: a (table, bucket) of a round, one schema version.

    Net demand: ``deletes`` holds the key columns of keys that end deleted, ``upserts`` the full rows (canonical types, columns
    the rows carry) of keys that end alive, in commit order. ``ordered``, rare, holds the last changes of keys that a target may
    consider equal though they differ (rule 7), in groups, each in commit order: of those that it does consider equal only the last
    one counts, and no row of another may be written. Its layout is that of a block. All demand: ``ordered`` holds every change in
    commit order and the other two are empty. Where the source tells repeats by changes, a deletion of a key stands before the new
    row of it of the same commit ts, wherever the source has it: who applies the rows one after another has the source's table.

    A sink that ``keeps_commit_ts`` finds in ``deletes`` and ``upserts`` the column ``headrace.model.block.COMMIT_TS`` (int64, TSO)
    behind the others: the commit ts of the change that was the last one of the key. Of equal rows of a bag it is the newest.

    A table without key (``schema.handle_key`` empty) is a bag: ``deletes`` holds whole rows, of which each removes one equal row,
    and ``upserts`` rows to insert. That cannot be repeated, so a writer puts ``progress``, the table's own ledger row, into
    the same transaction, and applies nothing when the ledger is that far already.

    ``table_id`` and ``schema`` are the source's: people know these names, and dead letters have them. A writer writes to
    :attr:`target`, whose shape is :attr:`target_schema`.
    """

    table_id: TableId
    version: int
    schema: TableSchema
    deletes: pa.Table
    upserts: pa.Table
    ordered: pa.Table
    progress: TableProgress | None = None
    lo: int = 0
    """Up to where (TSO) the table was applied before the round, for its dead letters."""
    watch: SpellingWatch | None = None
    """With it the three tables have a last column more, ``headrace.model.block.SIGHT``. Without it they may have it too."""
    groups: tuple[int, ...] = ()
    """The numbers of the ordered rows that begin a group; keys of two groups differ for every target. Empty: all are one group."""
    routed: TableSchema | None = None
    """The shape of the target's table, whose columns the rows then have; ``None`` where that is the source's, with its name."""

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
    """Which write unit a task is: its slot (0-based), and the fence it must prove before a commit.

    ``letters`` is where a writer puts rows of tables with a key that the target refuses for a value, before it commits the others;
    without it such a row stops its table.
    """

    pipeline: str
    epoch: int
    attempt: int
    slot: int
    letters: DeadLetters | None = None
    advice: SourceAdvice = NO_ADVICE
    """What a person can change at the source, for hints."""


@dataclass(frozen=True)
class LedgerUpdate:
    """One durable step of progress; everything in it is written in one transaction.

    ``None`` leaves a field as it is. ``tables`` and ``journal`` are rows to put (by table, by identity); ``forget_journal`` are the
    identities of entries to remove. ``used_decisions`` and ``used_requests`` are the identities of
    decisions and of requests about tables to remove. ``dead_letters`` is how many letters tables have from now on. ``attempt``
    begins another attempt, after a round: a task of it that was given up for lost, and done again by another, may wake any time.
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
    """Requests to put in place of those of the same identities: a run has taken them up."""
    dead_letters: Mapping[TableId, int] = field(default_factory=dict)
    attempt: int | None = None
    fingerprint: str | None = None
    """The definition's, with what follows for tables from a filter that changed."""
    shapes: tuple[TableShape, ...] = ()
    """Shapes to put, of tables whose source asks for that; the run has acquired :attr:`LedgerPart.SHAPES`."""
    forget_shapes: tuple[ShapeKey, ...] = ()

    def applied_to(self, state: LedgerState) -> LedgerState:
        """The state after this step, as the ledger holds it then. ``attempted`` never goes back."""
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
    """What not every pipeline needs of its ledger. A SQL ledger has a table of that name for it, once somebody asks."""

    SHAPES = "shapes"
    """The shapes of the source's tables (``LedgerUpdate.shapes``)."""
    ROUTED_TABLES = "routed_tables"
    """Rows of tables whose target has another name than the source's table (``TableProgress.target``)."""


class UnitWriter(Protocol):
    """Writes table changes from inside one Spark task, on connections of its own."""

    def open(self, context: WriterContext) -> None:
        """Connects. Raises SinkUnreachableError or TransientError."""
        ...

    def write(self, changes: Iterable[TableChange], commit: CutCommit | None) -> list[WriteOutcome]:
        """Applies the changes of a unit and commits. With ``commit`` all of them and the ledger's update are one transaction.

        Called for one unit after another between :meth:`open` and :meth:`close`. Net changes and bags come as a list, one of each
        table. Where every change is wanted of some table they come one by one, table by table, each table in pieces of up to 8 MiB
        in commit order: a writer that wants all of them at once has to hold the table.

        A table that cannot be written is an outcome with a problem; the others are written all the same (``commit.update``
        then keeps its place). That goes for what nobody foresaw about one table, too (``sinks/table_by_table.py``): what is raised
        ends the round of all. Repeats what is transient by itself. Raises FencedError when the fence moved,
        TransientError when its own repetitions are used up.
        """
        ...

    def commits(self) -> Commits | None:
        """What the unit has committed since it was opened; ``None`` where its rows count only with a step of the driver."""
        ...

    def close(self) -> None: ...


@dataclass(frozen=True)
class Commits:
    """How many transactions the writers of a slot have committed in this attempt: before a unit was written, and after it.

    A sink whose rounds are many transactions compares them with what the target says at the next step of the ledger: a target
    that lost some of them since is in another state than the ledger would tell.
    """

    slot: int
    before: int
    after: int


@dataclass(frozen=True)
class WriteReport:
    """What a round brought about. ``committed``: the ledger's progress went with the data, in one transaction.

    ``reads`` and ``writes`` are what each task counted, ``commits`` what it committed, in the order of the jobs.
    """

    splits: tuple[SplitReport, ...] = ()
    outcomes: tuple[WriteOutcome, ...] = ()
    committed: bool = False
    reads: tuple[ReadCount, ...] = ()
    writes: tuple[WriteCount, ...] = ()
    commits: tuple[Commits, ...] = ()

    def problems(self) -> dict[TableId, Problem]:
        """The first problem of each table, whether found in reading or in writing."""
        found: dict[TableId, Problem] = {}
        for problem in (*(s.problem for s in self.splits), *(o.problem for o in self.outcomes)):
            if problem is not None:
                found.setdefault(problem.table_id, problem)
        return found

    def letters(self) -> dict[TableId, frozenset[str]]:
        """The names of the dead letters of each table that has some."""
        found: dict[TableId, frozenset[str]] = {}
        for table_id, names in (*((s.table_id, s.letters) for s in self.splits), *((o.table_id, o.letters) for o in self.outcomes)):
            if names:
                found[table_id] = found.get(table_id, frozenset()).union(names)
        return found


@dataclass(frozen=True)
class UniqueTexts:
    """A unique key of a target's table with texts that compare by a collation, so that texts of different bytes may be equal.

    Names of columns are folded. ``parts`` are the key's columns, each with the length of its prefix (characters) or 0 for the
    whole; ``texts`` are those among them that compare by a collation.
    """

    parts: tuple[tuple[str, int], ...]
    texts: frozenset[str]


@dataclass(frozen=True)
class TextComparison:
    """How a target's table compares texts.

    ``weighed`` are the columns (folded names) whose collation has a weight for each supplementary character, where others hold
    them all for one (see ``headrace.model.collation``).
    """

    weighed: frozenset[str] = frozenset()
    keys: tuple[UniqueTexts, ...] = ()


TextComparisons = Callable[[Collection[TableId]], Mapping[TableId, TextComparison]]
"""Asked on the driver, of tables with texts."""


@dataclass(frozen=True)
class SpellingWatch:
    """What a writer has to look for: two rows of the source with keys that the target holds for equal, though their bytes differ.

    ``new_collations`` is what the source's definition says of it (``Offer.new_collations``). ``whole``: the unit has all changes
    of its table in this round, so that a row which is not among them did not change.
    """

    keys: tuple[UniqueTexts, ...]
    new_collations: bool | None
    whole: bool
    weighed: frozenset[str] = frozenset()
    """See ``TextComparison``."""


class Round(Protocol):
    """What is written together, as the engine hands it to an EventSink."""

    def write_in_tasks(self, writer: UnitWriter, texts: TextComparisons | None = None) -> WriteReport:
        """One Spark job: read, net, bucket and write in tasks through copies of ``writer``. Raises what the writers raise.

        ``texts`` is needed by targets that compare texts by a collation. A second job follows for tables of which a writer asks
        to see all changes at once (``Problem.needs_whole``).
        """
        ...

    def stream_from_tasks(self, texts: TextComparisons | None = None) -> RowsOnDriver:
        """One Spark job whose table changes come to the driver, in pieces of about 8 MiB: for sinks that write there.

        The pieces of a table come in commit order where all changes are wanted, else deletions before the rest of a unit. Between
        units, and between tables, there is no order. See ``write_in_tasks`` for ``texts``.
        """
        ...

    def work_place(self) -> WorkPlace:
        """Where tasks leave what the driver takes, until the run ends; made when it is first asked for. Raises TransientError.

        A sink that asks for it says so (``SinkCapabilities.spools``).
        """
        ...

    def marks(self) -> Mapping[TableId, TableMark]:
        """What each table of the target says of itself in the commit with its rows of the round (``DataSink.table_marks``).

        Only in one that has all of them.
        """
        ...


class RowsOnDriver(Protocol):
    """The table changes of a round on the driver. Gone through once; raises JobFailedError, and what reading and netting raise."""

    def __iter__(self) -> Iterator[TableChange]: ...

    def report(self, outcomes: Iterable[WriteOutcome]) -> WriteReport:
        """The round's report once all changes were taken, with what the sink says of them.

        A table may have a problem there although some of its changes came before: a sink applies nothing for good until it has
        looked (``WriteReport.problems``).
        """
        ...


class EventSink(Protocol):
    def write(self, round: Round) -> WriteReport:
        """Writes a round; returns when it is durable, or is part of the open cut of an ``atomic_cut`` sink.

        Raises FencedError, TransientError (nothing of the round counts as applied), SinkUnreachableError, RowsRefused.
        """
        ...


class RowsRefused(Exception):
    """An ``atomic_cut`` sink found while writing that a table's rows cannot go in, and its transaction is lost with that.

    The cut is planned again without the table. Carries the problem to show.
    """

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.message)
        self.problem = problem


class Ledger(Protocol):
    """The durable record of progress.

    Every step is a compare-and-set: it is written only where the record is as this run's last step left it. Raises FencedError when
    another run has taken it, TargetWentBackError when it is in an older state; :meth:`acquire` then takes it anew.
    """

    def peek(self, pipeline: str) -> LedgerState | None:
        """The record as it is, without taking an epoch or creating anything; ``None`` if there is none (for ``status``)."""
        ...

    def pipelines(self) -> list[str]:
        """The names of the pipelines recorded here."""
        ...

    def acquire(
        self, pipeline: str, source_identity: str, fingerprint: str, start: int, parts: Collection[LedgerPart] = (), above: int = 0
    ) -> LedgerState:
        """Takes the next epoch (creating the record at first) and ends the former run's writers.

        ``fingerprint`` and ``start`` count only for a new record. The epoch is larger than any that this object had before, and
        than ``above``: what the target's tables tell of a run that the ledger has forgotten.
        ``parts`` is what the pipeline's steps will write beside what all pipelines write; it is made if it is not there.

        Raises DefinitionError when the record belongs to another source (``source_identity``), naming the way out.
        """
        ...

    def decide(self, pipeline: str, decision: Decision) -> None:
        """Leaves a decision for the run that goes on or comes next, in place of an earlier one. Takes no epoch."""
        ...

    def request(self, pipeline: str, request: TableRequest) -> None:
        """Leaves a request about a table for the run that goes on or comes next. Takes no epoch."""
        ...

    def words(self, pipeline: str) -> Words | None:
        """The decisions and requests that wait for the run. Cheap: a run asks every two seconds. Only after :meth:`acquire`.

        ``None`` where they cannot be read just now: what the run knew of them, less what it has carried out since, still counts.
        """
        ...

    def reset(self, pipeline: str) -> bool:
        """Removes all that is recorded of a pipeline, at once. Returns whether there was anything. Takes no epoch.

        A run that lives ends at its next step (FencedError), whoever begins anew under the name. Raises SinkUnreachableError,
        TransientError.
        """
        ...

    def next_attempt(self) -> int:
        """Raises the attempt, after a failed or cancelled job, so that its sibling tasks cannot commit any more."""
        ...

    def update(self, update: LedgerUpdate) -> None:
        """One step. Raises FencedError, TargetWentBackError."""
        ...

    def close(self) -> None:
        """Ends its connections. What the run holds stays: the next call connects anew."""
        ...


@runtime_checkable
class EditingLedger(Protocol):
    """A ledger whose steps can take in what a person has run in place of a schema change: it ran where the step is written."""

    def takes_in(self, statement: str) -> bool:
        """Whether the statement (in the target's own SQL) changes rows alone, and all of that can be rolled back."""
        ...

    def update_with(self, update: LedgerUpdate, change: SchemaChange, statement: str) -> None:
        """Runs the statement and writes the step, in one transaction. Raises SchemaChangeRefused, and as ``Ledger.update``."""
        ...


@runtime_checkable
class PlacedLedger(Protocol):
    """A ledger in a file or folder, which the first run creates."""

    def missing(self) -> str:
        """The file or folder where it is not there, for people: ``the DuckDB file /data/shop.duckdb``; else empty."""
        ...


class DataSink(Protocol):
    """A sink as the pipeline holds it. Context manager: entering connects nothing yet."""

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
        """Its own ledger, or ``None``: the pipeline then uses a file ledger."""
        ...

    @property
    def table_marks(self) -> TableMarks | None:
        """Where it commits each table by itself, with up to where that is applied; ``None``: it does not."""
        ...

    def spark_conf(self) -> Mapping[str, str]: ...

    def check(self) -> list[Check]:
        """What ``validate`` asks of the target, without changing anything."""
        ...

    def check_tables(self, pipeline: str, tables: Sequence[SourceTable]) -> list[Check]:
        """Whether the target's tables fit the source's, so that the order of writes does not matter (docs/guarantees.md).

        Tables that the target does not have yet are fine. A database of the source that has no table is among them as a table
        without name and columns. Changes nothing; empty when :meth:`check` found no target.
        """
        ...

    def begin_cut(self) -> None:
        """``atomic_cut`` sinks open their transaction here; the ledger's next ``update`` with a checkpoint commits it."""
        ...

    def interrupt(self) -> None:
        """Ends what the driver itself is doing in the target, so that it fails as transient. Called from another thread."""
        ...

    def forget_tables(self, tables: Collection[TableId]) -> None:
        """Takes nothing for granted that it found out about these tables of the target: a person may have changed them since."""
        ...

    def abandon_cut(self) -> None:
        """Rolls an open cut back; nothing to do for sinks without one."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None: ...


class CheckState(StrEnum):
    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"


@dataclass(frozen=True)
class Check:
    """One line of ``validate``: what was checked, how it came out, and what to do unless it is ok."""

    name: str
    state: CheckState
    detail: str = ""
    advice: str = field(default="")
