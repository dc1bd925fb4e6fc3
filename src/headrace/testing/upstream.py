"""A small model of TiDB: tables, transactions and schema changes, which drives a TicdcWriter and knows what rows must result."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from headrace.model.table import Column, TableId, TableSchema
from headrace.model.tso import MAX_TSO, tso_from_datetime, tso_from_ms, tso_to_datetime, tso_to_ms
from headrace.model.types import BINARY_KINDS, CHARACTER_KINDS, INTEGER_KINDS, TypeKind
from headrace.testing.ticdc_writer import RowChange, TicdcWriter

_CREATE_SCHEMA, _DROP_SCHEMA, _CREATE_TABLE, _DROP_TABLE = 1, 2, 3, 4
_ADD_COLUMN, _DROP_COLUMN, _TRUNCATE, _RENAME = 5, 6, 11, 14
_INTEGRAL = INTEGER_KINDS | {TypeKind.BIT, TypeKind.YEAR}
_FLOATS = frozenset({TypeKind.FLOAT, TypeKind.DOUBLE})
_WITH_SIZE = frozenset(
    {TypeKind.CHAR, TypeKind.VARCHAR, TypeKind.BINARY, TypeKind.VARBINARY, TypeKind.BIT, TypeKind.DECIMAL, TypeKind.VECTOR}
)
_WITH_FRACTION = frozenset({TypeKind.TIME, TypeKind.DATETIME, TypeKind.TIMESTAMP})
_FIRST_PHYSICAL_ID = 101

Row = dict[str, object]
Key = tuple[object, ...]


@dataclass(frozen=True)
class Insert:
    """A new row; columns that it leaves out get their default."""

    table_id: TableId
    row: Mapping[str, object]


@dataclass(frozen=True)
class Update:
    """New values for the row of this key (the whole row's values where the table has no key); they may change the key."""

    table_id: TableId
    key: Key
    values: Mapping[str, object]


@dataclass(frozen=True)
class Delete:
    table_id: TableId
    key: Key


Statement = Insert | Update | Delete


@dataclass
class _Table:
    schema: TableSchema
    physical_id: int
    rows: dict[Key, Row] = field(default_factory=dict)
    next_row_id: int = 1

    def key_of(self, row: Row) -> Key:
        """The handle key, or a hidden row number."""
        if self.schema.handle_key:
            return tuple(row[name] for name in self.schema.handle_key)
        self.next_row_id += 1
        return (self.next_row_id,)

    def find(self, key: Key) -> Key:
        if self.schema.handle_key:
            if key not in self.rows:
                raise KeyError(f"{self.schema.table_id} has no row {key}")
            return key
        for row_id, row in self.rows.items():
            if tuple(row.values()) == key:
                return row_id
        raise KeyError(f"{self.schema.table_id} has no row {key}")


class Upstream:
    """An upstream cluster with one changefeed.

    Time is simulated: it starts at ``start``, each commit takes a millisecond, and :meth:`advance` lets it pass; the
    writer's date directories follow it. Values are canonical (``headrace.model.types``). What a statement does wrong (a key
    that is there already, or is not) raises ``ValueError`` or ``KeyError`` and changes nothing.
    """

    def __init__(self, writer: TicdcWriter, start: datetime = datetime(2026, 1, 1, tzinfo=UTC)) -> None:
        self.writer = writer
        self.changes = 0
        self.schema_changes = 0
        self._tso = tso_from_datetime(start)
        self._tables: dict[TableId, _Table] = {}
        self._next_physical_id = _FIRST_PHYSICAL_ID
        writer.clock = lambda: self.now

    @property
    def now(self) -> datetime:
        return tso_to_datetime(self._tso)

    @property
    def tables(self) -> tuple[TableId, ...]:
        return tuple(sorted(self._tables))

    def advance(self, milliseconds: int) -> None:
        """Lets time pass without a commit."""
        self._tso = tso_from_ms(tso_to_ms(self._tso) + milliseconds)

    def schema(self, table_id: TableId) -> TableSchema:
        return self._table(table_id).schema

    def expected_rows(self, table_id: TableId) -> list[Row]:
        """The table's rows now, ordered by key: what a target must hold once it has applied everything."""
        table = self._table(table_id)
        return [dict(row) for _, row in sorted(table.rows.items(), key=lambda item: tuple(map(_order, item[0])))]

    def keys(self, table_id: TableId) -> list[Key]:
        """The handle keys of a table's rows (hidden row numbers where it has none), in no particular order."""
        return list(self._table(table_id).rows)

    def row(self, table_id: TableId, key: Key) -> Row:
        table = self._table(table_id)
        return dict(table.rows[table.find(key)])

    def expected_counts(self) -> dict[TableId, int]:
        return {table_id: len(self._tables[table_id].rows) for table_id in self.tables}

    def execute(self, *statements: Statement) -> int:
        """Runs one transaction and returns its commit ts. Like TiDB, it emits the net change of each row, not each statement."""
        before: dict[TableId, dict[Key, Row]] = {}
        try:
            for statement in statements:
                table = self._table(statement.table_id)
                before.setdefault(statement.table_id, dict(table.rows))
                _apply(table, statement)
        except (KeyError, ValueError):
            for table_id, rows in before.items():
                self._tables[table_id].rows = rows
            raise
        commit_ts = self._commit()
        for table_id, rows in before.items():
            changes = _net_changes(rows, self._tables[table_id].rows)
            self.changes += len(changes)
            self.writer.rows(table_id, commit_ts, changes)
        return commit_ts

    def create_database(self, database: str) -> int:
        return self._database_change(database, f"CREATE DATABASE `{database}`", _CREATE_SCHEMA)

    def drop_database(self, database: str) -> int:
        for table_id in [table_id for table_id in self._tables if table_id.database == database]:
            self.writer.flush(table_id)
            del self._tables[table_id]
        return self._database_change(database, f"DROP DATABASE `{database}`", _DROP_SCHEMA)

    def create_table(self, table_id: TableId, columns: Iterable[Column], unique: Sequence[str] = ()) -> int:
        """Creates a table; its primary key is what the columns say. ``unique`` columns, not null, form a unique key."""
        if table_id in self._tables:
            raise ValueError(f"table {table_id} exists")
        shape = tuple(replace(c, nullable=c.nullable and not c.primary_key) for c in columns)
        primary_key = tuple(column.name for column in shape if column.primary_key)
        schema = TableSchema(table_id, shape, primary_key or tuple(unique))
        definitions = [column_definition(column) for column in shape]
        if primary_key:
            definitions.append(f"PRIMARY KEY({_names(primary_key)})")
        if unique:
            definitions.append(f"UNIQUE `uk`({_names(unique)})")
        self._tables[table_id] = _Table(schema, self._physical_id())
        return self._table_change(table_id, f"CREATE TABLE {_quoted(table_id)} ({','.join(definitions)})", _CREATE_TABLE)

    def add_column(self, table_id: TableId, column: Column) -> int:
        """Adds a column at the end; the rows that are there get its default, and no event tells of it."""
        table = self._table(table_id)
        if table.schema.has_column(column.name):
            raise ValueError(f"{table_id} has a column {column.name}")
        table.schema = replace(table.schema, columns=(*table.schema.columns, column))
        for row in table.rows.values():
            row[column.name] = _default(column)
        return self._table_change(table_id, f"ALTER TABLE {_quoted(table_id)} ADD COLUMN {column_definition(column)}", _ADD_COLUMN)

    def drop_column(self, table_id: TableId, name: str) -> int:
        table = self._table(table_id)
        if name in table.schema.handle_key:
            raise ValueError(f"{name} is part of the key of {table_id}")
        dropped = table.schema.column(name)
        table.schema = replace(table.schema, columns=tuple(c for c in table.schema.columns if c is not dropped))
        for row in table.rows.values():
            del row[dropped.name]
        return self._table_change(table_id, f"ALTER TABLE {_quoted(table_id)} DROP COLUMN `{dropped.name}`", _DROP_COLUMN)

    def truncate_table(self, table_id: TableId) -> int:
        table = self._table(table_id)
        table.rows.clear()
        table.physical_id = self._physical_id()
        return self._table_change(table_id, f"TRUNCATE TABLE {_quoted(table_id)}", _TRUNCATE)

    def drop_table(self, table_id: TableId) -> int:
        commit_ts = self._table_change(table_id, f"DROP TABLE {_quoted(table_id)}", _DROP_TABLE)
        del self._tables[table_id]
        return commit_ts

    def rename_table(self, table_id: TableId, new_table_id: TableId) -> int:
        if new_table_id in self._tables:
            raise ValueError(f"table {new_table_id} exists")
        table = self._table(table_id)
        self.writer.flush(table_id)
        del self._tables[table_id]
        table.schema = replace(table.schema, table_id=new_table_id)
        self._tables[new_table_id] = table
        return self._table_change(new_table_id, f"RENAME TABLE {_quoted(table_id)} TO {_quoted(new_table_id)}", _RENAME)

    def checkpoint(self) -> int:
        """Writes all waiting rows and a checkpoint after the last commit; returns it."""
        commit_ts = self._commit()
        self.writer.checkpoint(commit_ts)
        return commit_ts

    def _commit(self) -> int:
        self.advance(1)
        if self._tso > MAX_TSO:
            raise ValueError("the simulated time has left the range of a TSO")
        return self._tso

    def _table(self, table_id: TableId) -> _Table:
        if table_id not in self._tables:
            raise KeyError(f"there is no table {table_id}")
        return self._tables[table_id]

    def _physical_id(self) -> int:
        self._next_physical_id += 1
        return self._next_physical_id

    def _database_change(self, database: str, statement: str, type_code: int) -> int:
        version = self._commit()
        self.schema_changes += 1
        self.writer.schema_change(TableId(database), version, statement, None, type_code)
        return version

    def _table_change(self, table_id: TableId, statement: str, type_code: int) -> int:
        table = self._table(table_id)
        version = self._commit()
        self.schema_changes += 1
        self.writer.schema_change(table_id, version, statement, table.schema, type_code, physical_id=table.physical_id)
        return version


def column_definition(column: Column) -> str:
    """A column as TiDB's normalized statements define it."""
    kind, length, scale = column.type.kind, column.type.length, column.type.scale
    text = f"`{column.name}` {kind}"
    if kind in (TypeKind.ENUM, TypeKind.SET):
        text += "(" + ",".join(_literal(element) for element in column.type.elements) + ")"
    elif kind is TypeKind.DECIMAL and length is not None:
        text += f"({length},{scale or 0})"
    elif kind in _WITH_SIZE and length is not None:
        text += f"({length})"
    elif kind in _WITH_FRACTION and scale:
        text += f"({scale})"
    if column.type.unsigned and kind not in (TypeKind.BIT, TypeKind.YEAR):
        text += " UNSIGNED"
    if not column.nullable:
        text += " NOT NULL"
    if column.default is not None:
        bare = kind in _INTEGRAL or kind in _FLOATS or kind is TypeKind.DECIMAL
        text += f" DEFAULT {column.default if bare else '_UTF8MB4' + _literal(column.default)}"
    return text


def _apply(table: _Table, statement: Statement) -> None:
    if isinstance(statement, Insert):
        row = _complete(table.schema, statement.row)
        _put(table, table.key_of(row), row)
        return
    key = table.find(statement.key)
    old = table.rows.pop(key)
    if isinstance(statement, Update):
        row = old | dict(statement.values)
        _put(table, table.key_of(row) if table.schema.handle_key else key, row)


def _put(table: _Table, key: Key, row: Row) -> None:
    if key in table.rows:
        raise ValueError(f"{table.schema.table_id} has a row {key}")
    table.rows[key] = row


def _net_changes(before: dict[Key, Row], after: dict[Key, Row]) -> list[RowChange]:
    """Deletes first, then the rest; a changed key is a delete and an insert."""
    deletes = [RowChange(before=dict(row)) for key, row in before.items() if key not in after]
    upserts = [
        RowChange(None if key not in before else dict(before[key]), dict(row))
        for key, row in after.items()
        if key not in before or before[key] != row
    ]
    return deletes + upserts


def _complete(schema: TableSchema, values: Mapping[str, object]) -> Row:
    unknown = values.keys() - {column.name for column in schema.columns}
    if unknown:
        raise ValueError(f"{schema.table_id} has no column {sorted(unknown)}")
    row: Row = {}
    for column in schema.columns:
        if column.name not in values and column.default is None and not column.nullable:
            raise ValueError(f"{schema.table_id}.{column.name} has no default")
        row[column.name] = values[column.name] if column.name in values else _default(column)
    return row


def _default(column: Column) -> object:
    """The default in canonical form; a NOT NULL column without one that is added to a table gets TiDB's zero value."""
    kind, text = column.type.kind, column.default
    if text is None and column.nullable:
        return None
    if kind in _INTEGRAL:
        return int(text or 0)
    if kind in _FLOATS:
        return float(text or 0)
    if kind is TypeKind.DECIMAL:
        return text or f"{0:.{column.type.scale or 0}f}"
    if kind in BINARY_KINDS:
        return (text or "").encode()
    if text is None and kind not in CHARACTER_KINDS:
        raise ValueError(f"a NOT NULL column of type {kind} needs a default here")
    return text or ""


def _order(value: object) -> tuple[int, str | int | float]:
    """An order over values of one column: numbers as such, all others by their text."""
    return (0, value) if isinstance(value, int | float) else (1, value.hex() if isinstance(value, bytes) else str(value))


def _quoted(table_id: TableId) -> str:
    return f"`{table_id.database}`.`{table_id.table}`"


def _names(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _literal(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "''") + "'"
