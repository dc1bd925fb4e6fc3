"""An example of a connector: Headrace writes TiDB's changes into a SQLite file. ``docs/write-a-connector.md`` explains it.

Its progress is in a file ledger, so nothing in SQLite tells a run that another one took over: start one run at a time.

A table ``shop.orders`` of the source is the table ``"shop.orders"`` of the file. Columns have no type, so that SQLite keeps each
value as it comes.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from headrace.errors import DefinitionError, TransientError
from headrace.model.events import (
    AddColumnEvent,
    CreateDatabaseEvent,
    CreateTableEvent,
    DropColumnEvent,
    DropDatabaseEvent,
    DropTableEvent,
    RenameColumnEvent,
    RenameTableEvent,
    SchemaChange,
    SchemaChangeEvent,
    TruncateTableEvent,
)
from headrace.model.outcome import Notice, Problem
from headrace.model.policy import ChangeKind
from headrace.model.table import Column, TableId
from headrace.model.types import INTEGER_KINDS
from headrace.model.uri import NO_OPTIONS, ConnectorOptions, parse_uri, reject_unknown
from headrace.sinks.base import SINK_OPTIONS, ChangeDemand, Check, CheckState, Round, SinkCapabilities, WriteReport
from headrace.sinks.metadata_applier import Begun, SchemaChangeRefused, TableDescription
from headrace.sinks.staged_files import RowsOf, staged_files
from headrace.sinks.stateless import StatelessSink

_OWN_TABLES = "CREATE TABLE IF NOT EXISTS databases (name PRIMARY KEY); CREATE TABLE IF NOT EXISTS changes (identity)"
_APPLIED = frozenset(
    {
        ChangeKind.CREATE_DATABASE,
        ChangeKind.DROP_DATABASE,
        ChangeKind.CREATE_TABLE,
        ChangeKind.DROP_TABLE,
        ChangeKind.TRUNCATE_TABLE,
        ChangeKind.RENAME_TABLE,
        ChangeKind.ADD_COLUMN,
        ChangeKind.DROP_COLUMN,
        ChangeKind.RENAME_COLUMN,
    }
)


def open_sink(uri: str, options: ConnectorOptions = NO_OPTIONS) -> SqliteSink:
    """The sink of ``sqlite:///folder/file.db``. Raises DefinitionError."""
    reject_unknown(options, SINK_OPTIONS, "option of sqlite://")
    parsed = parse_uri(uri)
    if parsed.host or parsed.params or not parsed.path.strip("/"):
        raise DefinitionError(f"{parsed.redacted()} names no SQLite file.", "Write it as sqlite:///folder/file.db.")
    return SqliteSink(Path(parsed.path))


class SqliteSink(StatelessSink):
    """A :class:`headrace.sinks.base.DataSink` for tables with a key. Its progress is kept in a file ledger."""

    capabilities = SinkCapabilities(ChangeDemand.NET, supported_schema_changes=_APPLIED, spools=True)

    def __init__(self, path: Path) -> None:
        self.identity = f"sqlite://{path}"
        self._path = path
        self.event_sink = SqliteEventSink(path)
        self.metadata_applier = SqliteMetadataApplier(path)

    def check(self) -> list[Check]:
        """Whether the folder is there. SQLite makes the file."""
        if self._path.parent.is_dir():
            return [Check("folder", CheckState.OK, str(self._path.parent))]
        return [Check("folder", CheckState.FAILED, f"{self._path.parent} is not there", "Create it, or name another one.")]


class SqliteEventSink:
    """Tasks write rows into Parquet files of the work place; the driver puts them into SQLite in one transaction."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def write(self, round: Round) -> WriteReport:
        """Applies a round. Done twice it is the same as once, since rows replace each other by their key."""
        staged = staged_files(round, "sqlite")
        stopped, work = staged.report.problems(), round.work_place()
        with transaction(self._path) as connection:
            for table_id in staged.files.keys() - stopped.keys():
                for file in staged.files[table_id]:
                    with work.open(file.key) as source:
                        for batch in pq.ParquetFile(source).iter_batches():
                            (_delete if file.rows is RowsOf.DELETES else _put)(connection, table_id, batch)
        work.remove("sqlite")
        return staged.report


class SqliteMetadataApplier:
    """Applies a schema change and writes down its identity in one transaction, which tells afterwards whether it ran."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def apply_schema_change(self, change: SchemaChange) -> tuple[Notice, ...]:
        """Raises SchemaChangeRefused."""
        try:
            with transaction(self._path) as connection:
                for event in change.events:
                    _apply(connection, event)
                connection.execute("INSERT INTO changes VALUES (?)", [change.identity])
        except (sqlite3.OperationalError, ValueError) as error:
            raise SchemaChangeRefused(Problem(change.table_id, f"SQLite cannot run {change.statement}: {error}.")) from None
        return ()

    def run_instead(self, change: SchemaChange, statement: str) -> tuple[Notice, ...]:
        """Raises SchemaChangeRefused."""
        try:
            with transaction(self._path) as connection:
                connection.execute(statement)
                connection.execute("INSERT INTO changes VALUES (?)", [change.identity])
        except sqlite3.Error as error:
            raise SchemaChangeRefused(Problem(change.table_id, f"SQLite cannot run {statement}: {error}.")) from None
        return ()

    def describe(self, table_id: TableId) -> TableDescription | None:
        """What SQLite's catalogue tells of a table or database."""
        if not self._path.exists():
            return None
        with transaction(self._path) as connection:
            if table_id.is_database:
                known = connection.execute("SELECT 1 FROM databases WHERE name = ?", [table_id.database]).fetchone()
                return TableDescription(table_id, (), any(_tables(connection, table_id.database))) if known else None
            columns = tuple(row[1] for row in connection.execute(f"PRAGMA table_info({_table(table_id)})"))
            if not columns:
                return None
            has_rows = connection.execute(f"SELECT 1 FROM {_table(table_id)} LIMIT 1").fetchone() is not None
            return TableDescription(table_id, columns, has_rows)

    def state_before(self, change: SchemaChange) -> str:
        """How often the change ran: more than once where a pipeline began anew."""
        with transaction(self._path) as connection:
            (count,) = connection.execute("SELECT COUNT(*) FROM changes WHERE identity = ?", [change.identity]).fetchone()
            return str(count)

    def begun(self, change: SchemaChange, state_before: str) -> Begun:
        """A change ran if its identity stands there once more than before."""
        return Begun.ABSENT if self.state_before(change) == state_before else Begun.DONE

    def keeps_unique(self, change: SchemaChange) -> str:
        """Tables have no unique key but the one that rows are found by."""
        return ""


@contextmanager
def transaction(path: Path) -> Iterator[sqlite3.Connection]:
    """All that is done in it, or nothing. Raises TransientError where another process has the file."""
    connection = sqlite3.connect(path, timeout=60, isolation_level=None)
    try:
        connection.executescript(_OWN_TABLES)
        connection.execute("BEGIN IMMEDIATE")
        yield connection
        connection.execute("COMMIT")
    except sqlite3.OperationalError as error:
        if "locked" not in str(error):
            raise
        raise TransientError(f"Another process has {path}: {error}.") from None
    finally:
        connection.close()  # rolls back what was not committed


def _apply(connection: sqlite3.Connection, event: SchemaChangeEvent) -> None:
    """Raises ValueError, and what SQLite raises."""
    match event:
        case CreateDatabaseEvent(database):
            connection.execute("INSERT OR IGNORE INTO databases VALUES (?)", [database])
        case DropDatabaseEvent(database, tables):
            for table_id in tables:
                connection.execute(f"DROP TABLE IF EXISTS {_table(table_id)}")
            if not any(_tables(connection, database)):
                connection.execute("DELETE FROM databases WHERE name = ?", [database])
        case CreateTableEvent(table_id, schema):
            columns = ", ".join(_quoted(column.name) for column in schema.row_columns)
            key = ", ".join(map(_quoted, schema.handle_key))
            connection.execute("INSERT OR IGNORE INTO databases VALUES (?)", [table_id.database])
            connection.execute(f"CREATE TABLE IF NOT EXISTS {_table(table_id)} ({columns}, PRIMARY KEY ({key}))")
        case DropTableEvent(table_id):
            connection.execute(f"DROP TABLE IF EXISTS {_table(table_id)}")
        case TruncateTableEvent(table_id):
            connection.execute(f"DELETE FROM {_table(table_id)}")
        case RenameTableEvent(table_id, new_table_id):
            connection.execute("INSERT OR IGNORE INTO databases VALUES (?)", [new_table_id.database])
            connection.execute(f"ALTER TABLE {_table(table_id)} RENAME TO {_table(new_table_id)}")
        case AddColumnEvent(table_id, column):
            connection.execute(f"ALTER TABLE {_table(table_id)} ADD COLUMN {_quoted(column.name)} DEFAULT {_default(column)}")
        case DropColumnEvent(table_id, name):
            connection.execute(f"ALTER TABLE {_table(table_id)} DROP COLUMN {_quoted(name)}")
        case RenameColumnEvent(table_id, old_name, new_name):
            connection.execute(f"ALTER TABLE {_table(table_id)} RENAME COLUMN {_quoted(old_name)} TO {_quoted(new_name)}")
        case _:
            raise ValueError("this connector does not know it")


def _default(column: Column) -> str:
    """What rows that are there get in a new column, as no change event tells of it. Raises ValueError."""
    if column.default is None and column.nullable:
        return "NULL"
    if column.type.kind not in INTEGER_KINDS:
        raise ValueError(f"this connector knows defaults of integers only, and {column.name} is {column.type.kind}")
    return str(int(column.default or 0))


def _delete(connection: sqlite3.Connection, table_id: TableId, keys: pa.RecordBatch) -> None:
    condition = " AND ".join(f"{_quoted(name)} = ?" for name in keys.schema.names)
    connection.executemany(f"DELETE FROM {_table(table_id)} WHERE {condition}", _values(keys))


def _put(connection: sqlite3.Connection, table_id: TableId, rows: pa.RecordBatch) -> None:
    names, marks = ", ".join(map(_quoted, rows.schema.names)), ", ".join("?" * rows.num_columns)
    connection.executemany(f"INSERT OR REPLACE INTO {_table(table_id)} ({names}) VALUES ({marks})", _values(rows))


def _values(batch: pa.RecordBatch) -> Iterator[tuple[object, ...]]:
    """Its rows. SQLite's integers have 64 bits with a sign; larger ones are kept as text."""
    columns = (column.cast(pa.string()) if pa.types.is_uint64(column.type) else column for column in batch.columns)
    return zip(*(column.to_pylist() for column in columns), strict=True)


def _tables(connection: sqlite3.Connection, database: str) -> Iterator[TableId]:
    names = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT IN ('databases', 'changes')")
    return (table_id for (name,) in names.fetchall() if (table_id := TableId.of_key(name)).database == database)


def _table(table_id: TableId) -> str:
    return _quoted(table_id.key)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
