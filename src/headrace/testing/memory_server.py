"""A database in memory, with the statements that it accepts and all ways in which a call to it can fail.

``headrace.testing.memory_sink`` writes to it. It counts how often each schema change took effect, which a real database cannot
report. Like a real one it refuses impossible statements: a second ADD of a column is an error.
"""

from __future__ import annotations

import sqlite3
import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from enum import StrEnum

from headrace.errors import FencedError, SinkUnreachableError, TargetWentBackError, TransientError
from headrace.model.block import COMMIT_TS
from headrace.model.events import (
    AddColumnEvent,
    AlterColumnTypeEvent,
    CreateDatabaseEvent,
    CreateTableEvent,
    DeletePartitionRowsEvent,
    DropColumnEvent,
    DropDatabaseEvent,
    DropTableEvent,
    ExchangePartitionEvent,
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
from headrace.sinks.sql_claim import Claim
from headrace.sinks.table_marks import TableMark
from headrace.testing.upstream_table import default_value


class Call(StrEnum):
    """The calls that the engine makes to the sink, and that a commit makes to its server."""

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
    """How a call fails. ``LOST``: it is executed, but its response does not arrive."""

    TRANSIENT = "transient"
    UNREACHABLE = "unreachable"
    FENCED = "fenced"
    REFUSED = "refused"
    LOST = "lost answer"
    UNFORESEEN = "unforeseen"


@dataclass
class Failure:
    """Makes one call of this kind fail, after ``skip`` successful ones. Later calls succeed again."""

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
        """The error that the call raises."""
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
    """Rows by handle key; rows of a table without key by a number of their own. ``columns`` by name, in order."""

    columns: dict[str, Column]
    rows: dict[tuple[object, ...], dict[str, object]] = field(default_factory=dict)
    comment: str = ""
    commit_ts: dict[tuple[object, ...], int] = field(default_factory=dict)
    """The commit ts (TSO) of each key's last change, with deleted keys, if a sink writes it."""
    mark: TableMark | None = None
    """The table's mark, if a sink commits each table separately."""

    def copy(self) -> Table:
        """A copy that shares no mutable state with it."""
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
    """One change of a row: its commit ts (TSO), its kind, and the row's values by column, in the order of the columns."""

    commit_ts: int
    kind: RowKind
    row: tuple[tuple[str, object], ...]


@dataclass
class Log:
    """All changes of a table. A change that was :meth:`put` twice, because a run died in between, is in it once."""

    changes: list[LoggedChange] = field(default_factory=list)
    _counts: Counter[LoggedChange] = field(default_factory=Counter)

    def copy(self) -> Log:
        """A copy that shares no mutable state with it."""
        return Log(list(self.changes), self._counts.copy())

    def put(self, change: LoggedChange, seen: Counter[LoggedChange]) -> None:
        """Appends the change unless an earlier try did. ``seen`` counts the changes that this try has brought, including this one.

        All equal changes go to one write unit, so one try brings all of them.
        """
        if seen[change] > self._counts[change]:
            self._counts[change] += 1
            self.changes.append(change)

    def append(self, change: LoggedChange) -> None:
        """Appends the change unconditionally."""
        self.changes.append(change)


@dataclass(frozen=True)
class Job:
    """A long-running schema change, which may be finished."""

    change: SchemaChange
    done: bool = False
    failed: bool = False


@dataclass
class Contents:
    """What the server holds."""

    databases: set[str] = field(default_factory=set)
    tables: dict[TableId, Table] = field(default_factory=dict)
    ledgers: dict[str, LedgerState] = field(default_factory=dict)
    effects: Counter[str] = field(default_factory=Counter)
    """How often each schema change, by identity, changed something."""
    claims: dict[str, Claim] = field(default_factory=dict)
    """What the last run of each pipeline holds."""
    commits: Counter[tuple[str, int]] = field(default_factory=Counter)
    """How many transactions each slot of a pipeline has committed in this attempt."""
    logs: dict[TableId, Log] = field(default_factory=dict)
    """Every change of the tables for which the sink keeps a log."""
    jobs: dict[str, Job] = field(default_factory=dict)
    """Long-running schema changes by handle."""

    def copy(self) -> Contents:
        """A copy that shares no mutable state with it."""
        tables = {t: own.copy() for t, own in self.tables.items()}
        ledgers, claims = dict(self.ledgers), dict(self.claims)
        logs = {t: own.copy() for t, own in self.logs.items()}
        return Contents(
            set(self.databases), tables, ledgers, self.effects.copy(), claims, self.commits.copy(), logs, dict(self.jobs)
        )

    def fenced(self, claim: Claim, attempt: int | None = None) -> LedgerState:
        """The pipeline's record.

        Raises FencedError if another run or attempt is the newest, and TargetWentBackError if the record is not as the run left it.
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
        """Writes the record and the run's next claim."""
        self.ledgers[claim.pipeline] = state
        self.claims[claim.pipeline] = claim.following

    def forget_commits(self, pipeline: str) -> None:
        """Resets the counts when another attempt begins."""
        for slot in [slot for name, slot in self.commits if name == pipeline and slot != DDL_SLOT]:
            del self.commits[pipeline, slot]


DDL_SLOT = -1
"""The slot under which schema changes are counted."""


class Server:
    """The simulated database. It outlives its sinks; unpickling a reference gives the same server.

    ``on_commit`` is called after each commit with the new contents that every reader sees.
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
        """Wraps the work of a call. Yields whether the server refuses it. Raises the error of a failing call."""
        failure = self.failure if self.failure is not None and self.failure.strikes(call) else None
        refused = failure is not None and failure.how is Failing.REFUSED
        if failure is not None and not refused and failure.how is not Failing.LOST:
            raise failure.error()
        yield refused
        if failure is not None and failure.how is Failing.LOST:
            raise failure.error()

    @contextmanager
    def transaction(self) -> Iterator[Contents]:
        """Applies all changes or none."""
        working = self.contents.copy()
        yield working
        self.commit(working)

    def commit(self, working: Contents) -> None:
        """Replaces the contents that every reader sees."""
        self.contents = working
        self.on_commit(working)

    def finish(self, *, fails: bool = False) -> int:
        """Ends all long-running schema changes. Returns their number."""
        running = {handle: job for handle, job in self.contents.jobs.items() if not (job.done or job.failed)}
        self.contents = self.contents.copy()
        for handle, job in running.items():
            self.contents.jobs[handle] = replace(job, done=not fails, failed=fails)
            for event in () if fails else job.change.events:
                apply_event(self.contents, event)
            self.contents.effects[job.change.identity] += not fails
        return len(running)

    def comment(self, table_id: TableId, text: str) -> None:
        """A person sets a table's comment. Not a commit of a run."""
        self.contents = self.contents.copy()
        self.contents.tables[table_id].comment = text

    def clear(self) -> None:
        """A person drops all tables and databases."""
        self.contents = replace(self.contents.copy(), databases=set(), tables={}, logs={}, effects=Counter())

    def run(self, statement: str) -> None:
        """A person runs one of the statements that this server supports."""
        self.contents = self.contents.copy()
        execute(self.contents, statement)

    def begin_anew(self) -> None:
        """A person starts a pipeline or a table over: each schema change may take effect once more."""
        self.contents = replace(self.contents.copy(), effects=Counter())

    def saved_table(self, table_id: TableId) -> Callable[[], None]:
        """Returns a function that loads the table with the rows that it has now."""
        held = self.contents.copy().tables[table_id]

        def load() -> None:
            self.contents = self.contents.copy()
            self.contents.tables[table_id].rows = held.copy().rows

        return load

    def saved(self) -> Callable[[], None]:
        """Returns a function that restores the server to its present contents."""
        held = self.contents

        def put_back() -> None:
            self.contents = held

        return put_back


_SERVERS: weakref.WeakValueDictionary[int, Server] = weakref.WeakValueDictionary()


def _server(number: int) -> Server:
    return _SERVERS[number]


def shown(contents: Contents, change: SchemaChange) -> object:
    """What identifies the state of a change's tables: columns, rows of renamed tables, databases; nothing that people may alter."""
    renamed = {name for e in change.events if isinstance(e, RenameTableEvent) for name in (e.table_id, e.new_table_id)}
    tables = {}
    for name in change.changes:
        table = contents.tables.get(name)
        rows = sorted(map(repr, table.rows.values())) if table and name in renamed else None
        tables[name] = (list(table.columns.items()), rows) if table else None
    return tables, {name.database in contents.databases for name in change.changes if name.is_database}


def apply_event(contents: Contents, event: SchemaChangeEvent) -> None:
    """Raises KeyError if an object is missing, ValueError if one is in the way."""
    if isinstance(event, AddColumnEvent | DropColumnEvent | RenameColumnEvent | AlterColumnTypeEvent):
        _alter(contents.tables[event.table_id], event)
    elif isinstance(event, DeletePartitionRowsEvent | ExchangePartitionEvent):
        _move_partition(contents.tables, event)
    else:
        _apply_to_tables(contents, event)


def _apply_to_tables(contents: Contents, event: SchemaChangeEvent) -> None:
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
            pass  # its tables have no indexes and no key other than the handle key
        case _:
            raise ValueError(f"a {type(event).__name__} is beyond this server")


def execute(contents: Contents, statement: str) -> None:
    """Runs a person's statement: DROP TABLE, DELETE FROM, or CREATE TABLE … AS SELECT 7 AS id.

    Raises KeyError if the table does not exist, ValueError if one is in the way.
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


def _matching(table: Table, condition: str) -> list[tuple[object, ...]]:
    """The keys of the rows for which a condition of TiDB is true. SQLite computes it: it reads names in backquotes, too."""
    names = ", ".join(f"`{name}`" for name in table.columns)
    with closing(sqlite3.connect(":memory:")) as conn:
        conn.execute(f"CREATE TABLE t (place INTEGER PRIMARY KEY, {names})")
        rows = ((place, *(row[name] for name in table.columns)) for place, row in enumerate(table.rows.values()))
        conn.executemany(f"INSERT INTO t VALUES (?{', ?' * len(table.columns)})", rows)
        places = {place for (place,) in conn.execute(f"SELECT place FROM t WHERE {condition}")}
    return [key for place, key in enumerate(table.rows) if place in places]


def _move_partition(tables: dict[TableId, Table], event: DeletePartitionRowsEvent | ExchangePartitionEvent) -> None:
    table = tables[event.table_id]
    going = {key: table.rows.pop(key) for key in _matching(table, event.condition)}
    if isinstance(event, ExchangePartitionEvent):
        other = tables[event.other]
        if list(table.columns) != list(other.columns) or len(_matching(other, event.condition)) != len(other.rows):
            table.rows |= going
            raise ValueError(f"{event.other} is not like the partition {event.partition}")
        table.rows |= other.rows
        other.rows = going


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
