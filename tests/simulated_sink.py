"""A sink in memory: the whole contract of ``headrace.sinks.base``, and every call of it can fail.

It stands for targets that nobody has yet: whether it has atomic cuts, atomic small cuts or neither is the test's choice, and it
counts what a real one cannot tell, how often each schema change took effect.
"""

from __future__ import annotations

import base64
import pickle
import uuid
import weakref
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import count
from typing import Any

from headrace.errors import DefinitionError, FencedError, SinkUnreachableError, TargetWentBackError, TransientError
from headrace.model.block import KIND, META_COUNT
from headrace.model.events import (
    AddColumnEvent,
    AlterColumnTypeEvent,
    CreateDatabaseEvent,
    CreateTableEvent,
    DropColumnEvent,
    DropDatabaseEvent,
    DropTableEvent,
    RenameColumnEvent,
    RenameTableEvent,
    RowKind,
    SchemaChange,
    SchemaChangeEvent,
    TruncateTableEvent,
)
from headrace.model.ledger import Decision, LedgerState, TableProgress, TableRequest, Words
from headrace.model.outcome import Notice, Problem, WriteOutcome
from headrace.model.table import Column, TableId
from headrace.model.types import ColumnType, TypeKind
from headrace.sinks.base import (
    Begun,
    ChangeDemand,
    Check,
    Commits,
    LedgerPart,
    LedgerUpdate,
    Round,
    RowsRefused,
    SchemaChangeRefused,
    SinkCapabilities,
    TableChange,
    TableDescription,
    WriterContext,
    WriteReport,
)
from headrace.sinks.cut_commit import CutCommit
from headrace.sinks.sql_ledger import Claim
from headrace.sinks.stateless import StatelessSink
from headrace.testing.upstream_table import default_value
from targets import Row, normal_value

CAPABILITIES = {
    "atomic cuts": SinkCapabilities(ChangeDemand.NET, atomic_cut=True, bags=True),
    "atomic small cuts": SinkCapabilities(ChangeDemand.NET, atomic_bytes=1 << 20, bags=True),
    "nothing atomic": SinkCapabilities(ChangeDemand.NET, bags=True),
}
"""Of simulated sinks that keep their own ledger."""


class Call(StrEnum):
    """What the engine may ask of the sink, and what a commit asks of its server."""

    PEEK = "peek"
    ACQUIRE = "acquire"
    WORDS = "decisions or requests"
    NEXT_ATTEMPT = "next attempt"
    UPDATE = "ledger update"
    BEGIN = "begin a cut"
    APPLY = "apply a schema change"
    DESCRIBE = "describe"
    FINGERPRINT = "fingerprint"
    OPEN = "open a writer"
    WRITE = "write a table's changes"
    COMMIT = "commit changes"
    LOAD = "load a round"


class Failing(StrEnum):
    """How a call fails. ``LOST``: it is done, and only the answer does not arrive."""

    TRANSIENT = "transient"
    UNREACHABLE = "unreachable"
    FENCED = "fenced"
    REFUSED = "refused"
    LOST = "lost answer"


@dataclass
class Failure:
    """The call of this kind fails after ``skip`` others, and the next ones are well again."""

    call: Call
    how: Failing
    skip: int = 0
    has_struck: bool = False

    def strikes(self, call: Call) -> bool:
        if call is not self.call or self.has_struck:
            return False
        self.skip -= 1
        self.has_struck = self.skip < 0
        return self.has_struck

    def error(self) -> Exception:
        match self.how:
            case Failing.UNREACHABLE:
                return SinkUnreachableError("the simulated server refuses connections")
            case Failing.FENCED:
                return FencedError("the simulated server says that another run took over")
            case _:
                return TransientError(f"the simulated server failed at: {self.call}, {self.how}")


@dataclass
class Table:
    """Rows by handle key; those of a table without key by a number of their own. ``columns`` by name, in order."""

    columns: dict[str, Column]
    rows: dict[tuple[object, ...], dict[str, object]] = field(default_factory=dict)
    comment: str = ""

    def copy(self) -> Table:
        return Table(dict(self.columns), {key: dict(row) for key, row in self.rows.items()}, self.comment)


@dataclass
class Contents:
    """What the server holds. ``effects`` counts how often each schema change, by identity, changed something.

    ``claims`` is what the last run of each pipeline holds, ``commits`` how many transactions each of its slots has committed in
    this attempt.
    """

    databases: set[str] = field(default_factory=set)
    tables: dict[TableId, Table] = field(default_factory=dict)
    ledgers: dict[str, LedgerState] = field(default_factory=dict)
    effects: Counter[str] = field(default_factory=Counter)
    claims: dict[str, Claim] = field(default_factory=dict)
    commits: Counter[tuple[str, int]] = field(default_factory=Counter)

    def copy(self) -> Contents:
        tables = {t: own.copy() for t, own in self.tables.items()}
        ledgers, claims = dict(self.ledgers), dict(self.claims)
        return Contents(set(self.databases), tables, ledgers, self.effects.copy(), claims, self.commits.copy())

    def fenced(self, claim: Claim, attempt: int | None = None) -> LedgerState:
        """The pipeline's record.

        Raises FencedError when another run, or attempt, is the newest, TargetWentBackError when it is not as the run left it.
        """
        found, state = self.claims[claim.pipeline], self.ledgers.get(claim.pipeline)
        if state is None:
            raise FencedError(f"The record of {claim.pipeline} is gone.")
        if found.epoch > claim.epoch or (found.epoch == claim.epoch and found.token != claim.token):
            raise FencedError(f"Epoch {claim.epoch} is over: it is {found.epoch} now.")
        if found != claim:
            raise TargetWentBackError(f"The simulated server has {found}, and the run had {claim}.")
        if attempt not in (None, state.attempt):
            raise FencedError(f"Attempt {attempt} is over: it is {state.attempt} now.")
        return state

    def step(self, claim: Claim, state: LedgerState) -> None:
        """Puts the record, and what the run holds from then on."""
        self.ledgers[claim.pipeline] = state
        self.claims[claim.pipeline] = claim.following

    def forget_commits(self, pipeline: str) -> None:
        """Another attempt begins."""
        for slot in [slot for name, slot in self.commits if name == pipeline and slot != DDL_SLOT]:
            del self.commits[pipeline, slot]


DDL_SLOT = -1
"""Where schema changes are counted."""


class Server:
    """The simulated database. It outlives its sinks, and a pickled reference to it is the same server.

    ``on_commit`` is called after each commit with what every reader sees from then on.
    """

    def __init__(self) -> None:
        self.contents = Contents()
        self.failure: Failure | None = None
        self.on_commit: Callable[[Contents], None] = lambda _: None
        self.spooled: dict[str, TableChange] = {}
        _SERVERS[id(self)] = self

    def __reduce__(self) -> tuple[Callable[[int], Server], tuple[int]]:
        return _server, (id(self),)

    @contextmanager
    def called(self, call: Call) -> Iterator[bool]:
        """Around what a call does; gives whether the server refuses to do it. Raises what the call fails with."""
        failure = self.failure if self.failure is not None and self.failure.strikes(call) else None
        refused = failure is not None and failure.how is Failing.REFUSED
        if failure is not None and not refused and failure.how is not Failing.LOST:
            raise failure.error()
        yield refused
        if failure is not None and failure.how is Failing.LOST:
            raise failure.error()

    @contextmanager
    def transaction(self) -> Iterator[Contents]:
        """All of it or nothing."""
        working = self.contents.copy()
        yield working
        self.commit(working)

    def commit(self, working: Contents) -> None:
        self.contents = working
        self.on_commit(working)

    def comment(self, table_id: TableId, text: str) -> None:
        """A person gives a table a comment. It is no commit of a run."""
        self.contents = self.contents.copy()
        self.contents.tables[table_id].comment = text

    def clear(self) -> None:
        """A person drops all tables and databases."""
        self.contents = replace(self.contents.copy(), databases=set(), tables={}, effects=Counter())

    def run(self, statement: str) -> None:
        """A person runs one of the statements that this server knows."""
        self.contents = self.contents.copy()
        _execute(self.contents, statement)

    def begin_anew(self) -> None:
        """A person lets a pipeline or a table begin anew: schema changes may take effect once more."""
        self.contents = replace(self.contents.copy(), effects=Counter())

    def saved_table(self, table_id: TableId) -> Callable[[], None]:
        """What is called to load the table with the rows that it has now."""
        held = self.contents.copy().tables[table_id]

        def load() -> None:
            self.contents = self.contents.copy()
            self.contents.tables[table_id].rows = held.copy().rows

        return load

    def saved(self) -> Callable[[], None]:
        """What is called to bring the server back to what it holds now."""
        held = self.contents

        def put_back() -> None:
            self.contents = held

        return put_back


_SERVERS: weakref.WeakValueDictionary[int, Server] = weakref.WeakValueDictionary()


def _server(number: int) -> Server:
    return _SERVERS[number]


@dataclass
class SimulatedSink(StatelessSink):
    """A ``DataSink`` on a server, for one run. Without a ledger of its own it has no fence either."""

    server: Server
    capabilities: SinkCapabilities
    keeps_ledger: bool = True
    identity = "simulated://"

    def __post_init__(self) -> None:
        self.open_cut: Contents | None = None
        self.ledger = SimulatedLedger(self) if self.keeps_ledger else None
        self.metadata_applier = SimulatedMetadataApplier(self)
        self.event_sink = SimulatedEventSink(self)

    def check(self) -> list[Check]:
        return []

    def begin_cut(self) -> None:
        with self.server.called(Call.BEGIN):
            self.open_cut = self.server.contents.copy() if self.capabilities.atomic_cut else None

    def forget_tables(self, tables: Collection[TableId]) -> None:
        """Nothing is remembered of them."""

    def abandon_cut(self) -> None:
        self.open_cut = None

    @property
    def seen(self) -> Contents:
        """What this run sees: its open cut, if there is one."""
        return self.open_cut or self.server.contents

    @contextmanager
    def changing(self) -> Iterator[Contents]:
        """The open cut, or a transaction of its own."""
        if self.open_cut is not None:
            yield self.open_cut
            return
        with self.server.transaction() as contents:
            yield contents


class SimulatedLedger:
    """``Ledger``; in the open cut while there is one."""

    def __init__(self, sink: SimulatedSink) -> None:
        self._sink, self._server = sink, sink.server
        self.claim = Claim("", 0, "")
        self._in_cut: tuple[Contents, Claim] | None = None
        self.expected: dict[int, int] = {}

    def peek(self, pipeline: str) -> LedgerState | None:
        with self._server.called(Call.PEEK):
            return self._sink.seen.ledgers.get(pipeline)

    def pipelines(self) -> list[str]:
        return sorted(self._server.contents.ledgers)

    def acquire(
        self, pipeline: str, source_identity: str, fingerprint: str, start: int, parts: Collection[LedgerPart] = ()
    ) -> LedgerState:
        with self._server.called(Call.ACQUIRE), self._server.transaction() as contents:
            new = LedgerState(pipeline, source_identity, fingerprint, start=start, checkpoint=start, attempted=start)
            state = contents.ledgers.get(pipeline, new)
            if state.source_identity != source_identity:
                raise DefinitionError("The ledger belongs to another source.")
            last = contents.claims.get(pipeline, self.claim).epoch
            state = replace(state, epoch=max(state.epoch, last, self.claim.epoch) + 1, attempt=0)
            claim = Claim(pipeline, state.epoch, uuid.uuid4().hex)
            contents.ledgers[pipeline], contents.claims[pipeline] = state, claim
            contents.forget_commits(pipeline)
        self.claim, self.expected = claim, {}
        return state

    def prove(self) -> None:
        """Raises FencedError when a newer run has begun, TargetWentBackError when the server is not as this one left it."""
        self._server.contents.fenced(self.claim)

    def expect(self, commits: Sequence[Commits]) -> None:
        """The next step is written only where the server has these transactions."""
        for unit in commits:
            if unit.before < self.expected.get(unit.slot, 0):
                raise TargetWentBackError(f"Slot {unit.slot} had committed {self.expected[unit.slot]}, and then {unit.before}.")
            self.expected[unit.slot] = unit.after

    def stepped(self) -> None:
        """A step was written."""
        self.claim, self.expected = self.claim.following, {}

    def decide(self, pipeline: str, decision: Decision) -> None:
        with self._server.transaction() as contents:
            state = contents.ledgers[pipeline]
            contents.ledgers[pipeline] = replace(state, decisions=state.decisions | {decision.identity: decision})

    def request(self, pipeline: str, request: TableRequest) -> None:
        with self._server.transaction() as contents:
            state = contents.ledgers[pipeline]
            contents.ledgers[pipeline] = replace(state, requests=state.requests | {request.identity: request})

    def words(self, pipeline: str) -> Words:
        with self._server.called(Call.WORDS):
            state = self._server.contents.ledgers[pipeline]
            return Words(dict(state.decisions), dict(state.requests))

    def reset(self, pipeline: str) -> bool:
        """The last epoch stays, in the claims."""
        with self._server.transaction() as contents:
            return contents.ledgers.pop(pipeline, None) is not None

    def next_attempt(self) -> int:
        with self._server.called(Call.NEXT_ATTEMPT):
            with self._server.transaction() as contents:
                state = contents.fenced(self.claim)
                contents.step(self.claim, replace(state, attempt=state.attempt + 1))
                contents.forget_commits(self.claim.pipeline)
            self.stepped()
        return state.attempt + 1

    def update(self, update: LedgerUpdate) -> None:
        """A checkpoint commits the open cut, which is fenced by what the server holds by then."""
        with self._server.called(Call.UPDATE):
            self.prove()
            open_cut, claim = self._sink.open_cut, self.claim
            if self._in_cut is not None and self._in_cut[0] is open_cut:
                claim = self._in_cut[1]
            with self._sink.changing() as contents:
                state = update.applied_to(contents.fenced(claim))
                for slot, count in self.expected.items():
                    if contents.commits[claim.pipeline, slot] < count:
                        raise TargetWentBackError(f"Slot {slot} had committed {count}: {contents.commits}.")
                contents.step(claim, state)
                if update.attempt is not None:
                    contents.forget_commits(claim.pipeline)
            if open_cut is None:
                self.stepped()
            else:
                self._in_cut = open_cut, claim.following
                if update.checkpoint is not None:
                    self._server.commit(open_cut)
                    self._sink.open_cut, self._in_cut, self.claim = None, None, claim.following

    def close(self) -> None:
        self._sink.abandon_cut()


class SimulatedMetadataApplier:
    """``MetadataApplier`` of a server that refuses what is not so: a second ADD of a column is an error, as in a real one."""

    def __init__(self, sink: SimulatedSink) -> None:
        self._sink = sink

    def apply_schema_change(self, change: SchemaChange) -> tuple[Notice, ...]:
        with self._sink.server.called(Call.APPLY) as refused, self._sink.changing() as contents:
            if self._sink.ledger is not None:
                self._sink.ledger.prove()  # as a session for schema changes does
            if refused:
                raise SchemaChangeRefused(Problem(change.table_id, "the simulated server does not feel like it."))
            before = contents.copy()
            try:
                for event in change.events:
                    _apply_event(contents, event)
            except (KeyError, ValueError) as error:
                raise SchemaChangeRefused(Problem(change.table_id, f"{change.statement} is impossible here: {error}")) from None
            changed = (before.databases, before.tables) != (contents.databases, contents.tables)
            contents.effects[change.identity] += changed
            self._counted(contents)
        return ()

    def _counted(self, contents: Contents) -> None:
        """Counts a statement as a commit of the slot of schema changes, where it is one by itself."""
        if self._sink.ledger is not None and self._sink.open_cut is None:
            slot = self._sink.ledger.claim.pipeline, DDL_SLOT
            contents.commits[slot] += 1
            self._sink.ledger.expect([Commits(DDL_SLOT, contents.commits[slot] - 1, contents.commits[slot])])

    def run_instead(self, change: SchemaChange, statement: str) -> tuple[Notice, ...]:
        with self._sink.server.called(Call.APPLY) as refused, self._sink.changing() as contents:
            if self._sink.ledger is not None:
                self._sink.ledger.prove()
            try:
                if refused:
                    raise ValueError("it does not feel like it")
                _execute(contents, statement)
            except (KeyError, ValueError) as error:
                raise SchemaChangeRefused(Problem(change.table_id, f"the simulated server refused {statement}: {error}.")) from None
            self._counted(contents)
        return ()

    def describe(self, table_id: TableId) -> TableDescription | None:
        with self._sink.server.called(Call.DESCRIBE):
            contents = self._sink.seen
            if table_id.is_database:
                held = any(t.database == table_id.database for t in contents.tables)
                return TableDescription(table_id, (), held) if table_id.database in contents.databases else None
            table = contents.tables.get(table_id)
            return TableDescription(table_id, tuple(table.columns), bool(table.rows)) if table else None

    def state_before(self, change: SchemaChange) -> str:
        """The tables themselves."""
        with self._sink.server.called(Call.FINGERPRINT):
            return base64.b64encode(pickle.dumps(self._sink.seen.copy())).decode()

    def begun(self, change: SchemaChange, state_before: str) -> Begun:
        """By what the change would make of the former tables. Rows count where a swap of two alike changes no definition."""
        with self._sink.server.called(Call.FINGERPRINT):
            if any(isinstance(event, TruncateTableEvent) for event in change.events):
                return Begun.REPEATABLE
            former: Contents = pickle.loads(base64.b64decode(state_before))
            after = former.copy()
            try:
                for event in change.events:
                    _apply_event(after, event)
            except (KeyError, ValueError):
                return Begun.ABSENT  # it could not run
            was, then, now = (_shown(contents, change) for contents in (former, after, self._sink.seen))
            if was == then:
                return Begun.REPEATABLE
            return Begun.DONE if now == then else Begun.ABSENT if now == was else Begun.UNCLEAR

    def keeps_unique(self, change: SchemaChange) -> str:
        with self._sink.server.called(Call.DESCRIBE):
            return ""  # its tables have no keys but the one that rows are found by


def _shown(contents: Contents, change: SchemaChange) -> object:
    """Of the tables of a change, without what a person may alter: columns, the rows of those that are renamed, databases."""
    renamed = {name for e in change.events if isinstance(e, RenameTableEvent) for name in (e.table_id, e.new_table_id)}
    tables = {}
    for name in change.changes:
        table = contents.tables.get(name)
        rows = sorted(map(repr, table.rows.values())) if table and name in renamed else None
        tables[name] = (list(table.columns.items()), rows) if table else None
    return tables, {name.database in contents.databases for name in change.changes if name.is_database}


def _apply_event(contents: Contents, event: SchemaChangeEvent) -> None:
    """Raises KeyError for what is missing, ValueError for what is in the way."""
    if isinstance(event, AddColumnEvent | DropColumnEvent | RenameColumnEvent | AlterColumnTypeEvent):
        _alter(contents.tables[event.table_id], event)
        return
    tables = contents.tables
    match event:
        case CreateDatabaseEvent(database):
            contents.databases.add(database)
        case DropDatabaseEvent(database, own):
            for table_id in own:
                tables.pop(table_id, None)
            if not any(table_id.database == database for table_id in tables):
                contents.databases.discard(database)
        case CreateTableEvent(table_id, schema):
            _create(contents, table_id, {c.name: c for c in schema.row_columns})
        case DropTableEvent(table_id):
            tables.pop(table_id, None)
        case TruncateTableEvent(table_id):
            tables[table_id].rows.clear()
        case RenameTableEvent(table_id, new_table_id):
            if new_table_id in tables:
                raise ValueError(f"{new_table_id} is there")
            contents.databases.add(new_table_id.database)
            tables[new_table_id] = tables.pop(table_id)
        case _:
            raise ValueError(f"a {type(event).__name__} is beyond this server")


def _execute(contents: Contents, statement: str) -> None:
    """A person's statement: DROP TABLE, DELETE FROM, or CREATE TABLE … AS SELECT 7 AS id.

    Raises KeyError for a table that is not there, ValueError for one that is in the way.
    """
    words, database, table, _ = statement.replace('"."', '"').split('"')
    table_id = TableId(database, table)
    match words.strip():
        case "CREATE TABLE":
            if table_id in contents.tables:
                raise ValueError("there is such a table")
            contents.databases.add(database)
            contents.tables[table_id] = Table({"id": Column("id", ColumnType(TypeKind.INT))}, {(7,): {"id": 7}})
        case "DROP TABLE":
            del contents.tables[table_id]
        case "DELETE FROM":
            contents.tables[table_id].rows.clear()
        case other:
            raise ValueError(f"this server does not know {other}")


def _create(contents: Contents, table_id: TableId, columns: dict[str, Column]) -> None:
    present = contents.tables.get(table_id)
    if present is not None and list(present.columns) != list(columns):
        raise ValueError(f"{table_id} is there, with other columns")
    if present is not None and present.rows:
        raise ValueError(f"{table_id} is there, with rows that are anybody's")
    contents.databases.add(table_id.database)
    contents.tables.setdefault(table_id, Table(columns))


def _alter(table: Table, event: AddColumnEvent | DropColumnEvent | RenameColumnEvent | AlterColumnTypeEvent) -> None:
    match event:
        case AddColumnEvent(_, column):
            if column.name in table.columns:
                raise ValueError(f"{column.name} is there")
            table.columns[column.name] = column
            for row in table.rows.values():
                row[column.name] = default_value(column)
        case DropColumnEvent(_, name):
            del table.columns[name]
            for row in table.rows.values():
                del row[name]
        case RenameColumnEvent(_, old_name, new_name):
            table.columns[new_name] = table.columns.pop(old_name)
            for row in table.rows.values():
                row[new_name] = row.pop(old_name)
        case AlterColumnTypeEvent(_, column):
            table.columns[column.name] = column


class SimulatedEventSink:
    """``EventSink``: tasks commit by themselves, or, where a cut is one transaction, leave their changes for the driver."""

    def __init__(self, sink: SimulatedSink) -> None:
        self._sink, self._server = sink, sink.server

    def write(self, round: Round) -> WriteReport:
        ledger, spools = self._sink.ledger, self._sink.open_cut is not None
        report = round.write_in_tasks(SimulatedWriter(self._server, ledger.claim if ledger else None, spools=spools))
        if ledger is not None and report.committed:
            ledger.stepped()
        elif ledger is not None:
            ledger.expect(report.commits)
        if self._sink.open_cut is None:
            return report
        stopped = report.problems()
        loaded: list[WriteOutcome] = []
        with self._server.called(Call.LOAD) as refused:
            for outcome in report.outcomes:
                if refused:
                    raise RowsRefused(Problem(outcome.table_id, "the simulated server does not like these rows."))
                names = outcome.spooled if outcome.table_id not in stopped else ()
                written = [_write(self._sink.open_cut, self._server.spooled[name]) for name in names]
                problem = next((o.problem for o in written if o.problem), outcome.problem)
                loaded.append(replace(outcome, spooled=(), problem=problem))
        return replace(report, outcomes=tuple(loaded))


class SimulatedWriter:
    """``UnitWriter``: one transaction a table, or one for all with the ledger's update.

    Each proves ``claim``; without a ledger there is none.
    """

    def __init__(self, server: Server, claim: Claim | None, *, spools: bool) -> None:
        self._server, self._claim, self._spools = server, claim, spools
        self._context = WriterContext("", 0, 0, 0)
        self._begun_at: int | None = None
        self._count = 0

    def open(self, context: WriterContext) -> None:
        with self._server.called(Call.OPEN):
            self._context = context

    def write(self, changes: Sequence[TableChange], commit: CutCommit | None) -> list[WriteOutcome]:
        if commit is None:
            return [self._write_alone(change) for change in changes]
        outcomes = []
        with self._server.called(Call.COMMIT), self._server.transaction() as contents:
            assert self._claim is not None
            state = contents.fenced(self._claim, self._context.attempt)
            for change in changes:
                outcomes.append(self._refused(change) or self._applied(contents, change))
            reached = [c.progress for c in changes if c.progress and not c.schema.handle_key]
            update = commit.update([o.problem for o in outcomes if o.problem], reached=reached)
            contents.step(self._claim, update.applied_to(state))
        return outcomes

    def commits(self) -> Commits | None:
        if self._begun_at is None:
            return None
        return Commits(self._context.slot, self._begun_at, self._count)

    def close(self) -> None: ...

    def _write_alone(self, change: TableChange) -> WriteOutcome:
        refused = self._refused(change)
        if refused is not None:
            return refused
        if self._spools:
            name = f"{self._context.epoch}/{self._context.attempt}/{len(self._server.spooled)}"
            self._server.spooled[name] = change
            return replace(_outcome(change), spooled=(name,))
        with self._server.called(Call.COMMIT), self._server.transaction() as contents:
            if self._claim is not None:
                contents.fenced(self._claim, self._context.attempt)
                self._counted(contents)
            outcome = self._applied(contents, change)
            if change.progress is not None and not change.schema.handle_key:
                state = contents.ledgers[self._context.pipeline]
                contents.ledgers[self._context.pipeline] = LedgerUpdate(tables=(change.progress,)).applied_to(state)
        return outcome

    def _counted(self, contents: Contents) -> None:
        slot = self._context.pipeline, self._context.slot
        if self._begun_at is None:
            self._begun_at = contents.commits[slot]
        contents.commits[slot] += 1
        self._count = contents.commits[slot]

    def _refused(self, change: TableChange) -> WriteOutcome | None:
        with self._server.called(Call.WRITE) as refused:
            problem = Problem(change.table_id, "the simulated server does not like these rows.")
            return WriteOutcome(change.table_id, problem=problem) if refused else None

    def _applied(self, contents: Contents, change: TableChange) -> WriteOutcome:
        """A table without key is applied only when its own row of the ledger is not that far yet."""
        target = change.progress
        if target is not None and not change.schema.handle_key:
            own = contents.ledgers[self._context.pipeline].tables.get(change.table_id) or TableProgress(change.table_id, 0)
            if own.checkpoint >= target.checkpoint:
                raise TransientError(f"{change.table_id} stands at {own.checkpoint} already; its changes are planned again.")
        return _write(contents, change)


def _write(contents: Contents, change: TableChange) -> WriteOutcome:
    """Applies the changes, or nothing of them where they do not fit the table."""
    table = contents.tables.get(change.table_id)
    if table is None or (change.upserts.num_rows and set(change.upserts.column_names) != set(table.columns)):
        there = sorted(table.columns) if table else "not there"
        message = f"the rows have the columns {change.upserts.column_names}; on the simulated server it is {there}."
        return WriteOutcome(change.table_id, problem=Problem(change.table_id, message))
    key = change.schema.handle_key
    for row in change.deletes.to_pylist():
        if key:
            table.rows.pop(_key(row, key), None)
        else:
            table.rows.pop(next((number for number, kept in table.rows.items() if kept == row), None), None)
    names = change.ordered.column_names[META_COUNT:]
    for row in change.ordered.to_pylist():
        if RowKind(row[KIND]).is_upsert:
            table.rows[_key(row, key)] = {name: row[name] for name in names}
        else:
            table.rows.pop(_key(row, key), None)
    numbers = count(max((n for (n, *_) in table.rows if isinstance(n, int)), default=0) + 1)
    for row in change.upserts.to_pylist():
        table.rows[_key(row, key) if key else (next(numbers),)] = row
    return _outcome(change)


def _key(row: Mapping[str, object], key: tuple[str, ...]) -> tuple[object, ...]:
    return tuple(row[name] for name in key)


def _outcome(change: TableChange) -> WriteOutcome:
    written = change.ordered.num_rows + change.deletes.num_rows
    return WriteOutcome(change.table_id, upserts=change.upserts.num_rows, deletes=written)


@dataclass
class SimulatedTarget:
    """What readers of the server see, or saw at some commit, as the harness compares it."""

    contents: Contents

    def __str__(self) -> str:
        return "the simulated server"

    def databases(self) -> set[str]:
        return self.contents.databases

    def tables(self) -> set[tuple[str, str]]:
        return {(t.database, t.table) for t in self.contents.tables}

    def columns(self, database: str, table: str) -> set[str]:
        return set(self.contents.tables[TableId(database, table)].columns)

    def rows(self, database: str, table: str, types: Mapping[str, str]) -> list[Row]:
        found = self.contents.tables[TableId(database, table)].rows.values()
        return [tuple(normal_value(t, _text(row[name])) for name, t in types.items()) for row in found]

    def held(self, type_text: str, text: str | None) -> str | None:
        return text


def _text(value: Any) -> str | None:
    """As the tests' upstream tells the value."""
    if value is None:
        return None
    return value.hex() if isinstance(value, bytes) else str(value)
