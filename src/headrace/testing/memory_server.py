"""A database in memory, with the statements that it takes and every way in which a call of it can fail.

It is what ``headrace.testing.memory_sink`` writes to. It counts what a real one cannot tell, how often each schema change took
effect, and refuses what is not so: a second ADD of a column is an error, as in a real one.
"""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from enum import StrEnum

from headrace.errors import FencedError, SinkUnreachableError, TargetWentBackError, TransientError
from headrace.model.block import COMMIT_TS
from headrace.model.events import (
    AddColumnEvent,
    AlterColumnTypeEvent,
    CreateDatabaseEvent,
    CreateTableEvent,
    DropColumnEvent,
    DropDatabaseEvent,
    DropTableEvent,
    OtherEvent,
    RenameColumnEvent,
    RenameTableEvent,
    RowKind,
    SchemaChange,
    SchemaChangeEvent,
    TruncateTableEvent,
)
from headrace.model.ledger import LedgerState
from headrace.model.table import Column, TableId
from headrace.model.types import ColumnType, TypeKind
from headrace.sinks.base import TableChange
from headrace.sinks.sql_ledger import Claim
from headrace.sinks.table_marks import TableMark
from headrace.testing.upstream_table import default_value


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
    MARKS = "marks of tables"


class Failing(StrEnum):
    """How a call fails. ``LOST``: it is done, and only the answer does not arrive."""

    TRANSIENT = "transient"
    UNREACHABLE = "unreachable"
    FENCED = "fenced"
    REFUSED = "refused"
    LOST = "lost answer"
    UNFORESEEN = "unforeseen"


@dataclass
class Failure:
    """The call of this kind fails after ``skip`` others, and the next ones are well again."""

    call: Call
    how: Failing
    skip: int = 0
    has_struck: bool = False

    def strikes(self, call: Call) -> bool:
        """Whether this call is the one that fails."""
        if call is not self.call or self.has_struck:
            return False
        self.skip -= 1
        self.has_struck = self.skip < 0
        return self.has_struck

    def error(self) -> Exception:
        """What it fails with."""
        match self.how:
            case Failing.UNREACHABLE:
                return SinkUnreachableError("the simulated server refuses connections")
            case Failing.FENCED:
                return FencedError("the simulated server says that another run took over")
            case Failing.UNFORESEEN:
                return KeyError("a bug over these rows")
            case _:
                return TransientError(f"the simulated server failed at: {self.call}, {self.how}")


@dataclass
class Table:
    """Rows by handle key; those of a table without key by a number of their own. ``columns`` by name, in order."""

    columns: dict[str, Column]
    rows: dict[tuple[object, ...], dict[str, object]] = field(default_factory=dict)
    comment: str = ""
    commit_ts: dict[tuple[object, ...], int] = field(default_factory=dict)
    """When the last change of each key was committed (TSO), where a sink writes that; of keys that were deleted too."""
    mark: TableMark | None = None
    """What it says of itself, where a sink commits each table by itself."""

    def copy(self) -> Table:
        """One that shares nothing with it that changes."""
        rows = {key: dict(row) for key, row in self.rows.items()}
        return Table(dict(self.columns), rows, self.comment, dict(self.commit_ts), self.mark)

    def put(self, key: tuple[object, ...], row: Mapping[str, object]) -> None:
        """Writes a row as a sink has it."""
        self.rows[key] = {name: value for name, value in row.items() if name != COMMIT_TS}
        self._note(key, row)

    def take(self, key: tuple[object, ...], row: Mapping[str, object]) -> None:
        """Deletes the row of a key, if there is one."""
        self.rows.pop(key, None)
        self._note(key, row)

    def _note(self, key: tuple[object, ...], row: Mapping[str, object]) -> None:
        if (commit_ts := row.get(COMMIT_TS)) is not None:
            assert isinstance(commit_ts, int)
            self.commit_ts[key] = commit_ts


@dataclass(frozen=True)
class LoggedChange:
    """One change of a row: the kind, when it was committed (TSO), and the row's values by column, in the order of the columns."""

    commit_ts: int
    kind: RowKind
    row: tuple[tuple[str, object], ...]


@dataclass
class Log:
    """All changes of a table. A change that was :meth:`put` twice, because a run died in between, is there once."""

    changes: list[LoggedChange] = field(default_factory=list)
    _counts: Counter[LoggedChange] = field(default_factory=Counter)

    def copy(self) -> Log:
        """One that shares nothing with it that changes."""
        return Log(list(self.changes), self._counts.copy())

    def put(self, change: LoggedChange, seen: Counter[LoggedChange]) -> None:
        """Appends it, unless an earlier try did. ``seen`` counts the changes that this try has brought, with this one.

        All that are equal come to one unit of writing, so one try brings all of them.
        """
        if seen[change] > self._counts[change]:
            self._counts[change] += 1
            self.changes.append(change)

    def append(self, change: LoggedChange) -> None:
        """Appends it, whatever was there before."""
        self.changes.append(change)


@dataclass(frozen=True)
class Job:
    """A schema change that runs long, or did."""

    change: SchemaChange
    done: bool = False
    failed: bool = False


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
    logs: dict[TableId, Log] = field(default_factory=dict)
    """Every change of the tables that are kept so."""
    jobs: dict[str, Job] = field(default_factory=dict)
    """Schema changes that run long, by handle."""

    def copy(self) -> Contents:
        """What shares nothing with it that changes."""
        tables = {t: own.copy() for t, own in self.tables.items()}
        ledgers, claims = dict(self.ledgers), dict(self.claims)
        logs = {t: own.copy() for t, own in self.logs.items()}
        return Contents(
            set(self.databases), tables, ledgers, self.effects.copy(), claims, self.commits.copy(), logs, dict(self.jobs)
        )

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
        """Puts what every reader sees from now on."""
        self.contents = working
        self.on_commit(working)

    def finish(self, *, fails: bool = False) -> int:
        """What runs long comes to its end; how many changes that were."""
        running = {handle: job for handle, job in self.contents.jobs.items() if not (job.done or job.failed)}
        self.contents = self.contents.copy()
        for handle, job in running.items():
            self.contents.jobs[handle] = replace(job, done=not fails, failed=fails)
            for event in () if fails else job.change.events:
                apply_event(self.contents, event)
            self.contents.effects[job.change.identity] += not fails
        return len(running)

    def comment(self, table_id: TableId, text: str) -> None:
        """A person gives a table a comment. It is no commit of a run."""
        self.contents = self.contents.copy()
        self.contents.tables[table_id].comment = text

    def clear(self) -> None:
        """A person drops all tables and databases."""
        self.contents = replace(self.contents.copy(), databases=set(), tables={}, logs={}, effects=Counter())

    def run(self, statement: str) -> None:
        """A person runs one of the statements that this server knows."""
        self.contents = self.contents.copy()
        execute(self.contents, statement)

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


def shown(contents: Contents, change: SchemaChange) -> object:
    """Of the tables of a change, without what a person may alter: columns, the rows of those that are renamed, databases."""
    renamed = {name for e in change.events if isinstance(e, RenameTableEvent) for name in (e.table_id, e.new_table_id)}
    tables = {}
    for name in change.changes:
        table = contents.tables.get(name)
        rows = sorted(map(repr, table.rows.values())) if table and name in renamed else None
        tables[name] = (list(table.columns.items()), rows) if table else None
    return tables, {name.database in contents.databases for name in change.changes if name.is_database}


def apply_event(contents: Contents, event: SchemaChangeEvent) -> None:
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
            emptied = tables[table_id]
            tables[table_id] = Table(emptied.columns, comment=emptied.comment, mark=emptied.mark)
        case RenameTableEvent(table_id, new_table_id):
            if new_table_id in tables:
                raise ValueError(f"{new_table_id} is there")
            contents.databases.add(new_table_id.database)
            tables[new_table_id] = tables.pop(table_id)
        case OtherEvent():
            pass  # its tables have no indexes, and no key but the one that rows are found by
        case _:
            raise ValueError(f"a {type(event).__name__} is beyond this server")


def execute(contents: Contents, statement: str) -> None:
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
            table.columns = {new_name if name == old_name else name: column for name, column in table.columns.items()}
            for row in table.rows.values():
                row[new_name] = row.pop(old_name)
        case AlterColumnTypeEvent(_, column):
            table.columns[column.name] = column
