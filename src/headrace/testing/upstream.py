"""A small model of TiDB with tables, transactions and schema changes. It drives a TicdcWriter and holds the expected rows."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Protocol

from headrace.model.table import Column, TableId, TableSchema
from headrace.model.tso import MAX_TSO, tso_from_datetime, tso_from_ms, tso_to_datetime, tso_to_ms
from headrace.testing.ticdc_writer import RowChange, SchemaFile
from headrace.testing.upstream_ddl import MULTI_SCHEMA_CHANGE, AddColumn, Clause, DropColumn, handle_of_uniques
from headrace.testing.upstream_table import (
    Delete,
    Insert,
    Key,
    Partitions,
    Row,
    Statement,
    Table,
    Update,
    column_definition,
    net_changes,
    quoted,
    quoted_name,
    quoted_names,
)

__all__ = ["Delete", "Insert", "Key", "Row", "Sink", "Statement", "Update", "Upstream", "column_definition"]

_CREATE_SCHEMA, _DROP_SCHEMA, _CREATE_TABLE, _DROP_TABLE = 1, 2, 3, 4
_TRUNCATE, _RENAME = 11, 14
_ADD_PARTITION, _DROP_PARTITION, _TRUNCATE_PARTITION, _EXCHANGE_PARTITION = 19, 20, 23, 42
_RECOVER = 25
_FIRST_PHYSICAL_ID = 101


class Sink(Protocol):
    """What an upstream drives: a :class:`TicdcWriter`, or a stand-in between the upstream and a writer."""

    clock: Callable[[], datetime]

    def rows(self, table_id: TableId, commit_ts: int, changes: Iterable[RowChange], *, partition: int | None = None) -> None: ...

    def schema_changes(self, version: int, files: Sequence[SchemaFile], gone: Iterable[TableId] = ()) -> None: ...

    def checkpoint(self, ts: int) -> None: ...


class Upstream:
    """An upstream cluster with one changefeed.

    Time is simulated: it starts at ``start``, each commit takes a millisecond, and :meth:`advance` lets it pass. The writer's date
    directories follow it. Values are canonical (``headrace.model.types``). An invalid statement (an insert of an existing key, a
    change of a missing one) raises ``ValueError`` or ``KeyError`` and changes nothing.
    """

    def __init__(self, writer: Sink, start: datetime = datetime(2026, 1, 1, tzinfo=UTC)) -> None:
        self.writer = writer
        self.changes = 0
        self.schema_changes = 0
        self.typed: Callable[[TableId], TableId] = lambda table_id: table_id
        """How a statement spells the name of an existing table: TiDB finds it in any case."""
        self._tso = tso_from_datetime(start)
        self._tables: dict[TableId, Table] = {}
        self._dropped: dict[TableId, Table] = {}
        self._next_physical_id = _FIRST_PHYSICAL_ID
        writer.clock = lambda: self.now

    @property
    def now(self) -> datetime:
        return tso_to_datetime(self._tso)

    @property
    def tables(self) -> tuple[TableId, ...]:
        return tuple(sorted(self._tables))

    @property
    def dropped(self) -> tuple[TableId, ...]:
        """The names whose table :meth:`recover_table` can bring back: the last table of each name that a DROP TABLE removed."""
        return tuple(sorted(self._dropped))

    def advance(self, milliseconds: int) -> None:
        """Lets time pass without a commit."""
        self._tso = tso_from_ms(tso_to_ms(self._tso) + milliseconds)

    def schema(self, table_id: TableId) -> TableSchema:
        return self.table(table_id).schema

    def table(self, table_id: TableId) -> Table:
        """The table itself, not to be changed. Raises ``KeyError``."""
        if table_id not in self._tables:
            raise KeyError(f"there is no table {table_id}")
        return self._tables[table_id]

    def expected_rows(self, table_id: TableId) -> list[Row]:
        """The table's rows now, ordered by key: what a target must hold after everything is applied."""
        table = self.table(table_id)
        return [dict(row) for _, row in sorted(table.rows.items(), key=lambda item: tuple(map(_order, item[0])))]

    def keys(self, table_id: TableId) -> list[Key]:
        """The handle keys of a table's rows (hidden row numbers where it has none), in no particular order."""
        return list(self.table(table_id).rows)

    def row(self, table_id: TableId, key: Key) -> Row:
        table = self.table(table_id)
        return dict(table.rows[table.find(key)])

    def expected_counts(self) -> dict[TableId, int]:
        return {table_id: len(self._tables[table_id].rows) for table_id in self.tables}

    def execute(self, *statements: Statement) -> int:
        """Runs one transaction and returns its commit ts. Like TiDB, it emits the net change of each row, not each statement."""
        before: dict[TableId, dict[Key, Row]] = {}
        try:
            for statement in statements:
                table = self.table(statement.table_id)
                before.setdefault(statement.table_id, dict(table.rows))
                table.apply(statement)
            for table_id in before:
                self._tables[table_id].check()
        except (KeyError, ValueError):
            for table_id, rows in before.items():
                self._tables[table_id].rows = rows
            raise
        commit_ts = self._commit()
        for table_id, rows in before.items():
            changes = net_changes(rows, self._tables[table_id].rows)
            self.changes += len(changes)
            for partition, part in _by_partition(self._tables[table_id], changes).items():
                self.writer.rows(table_id, commit_ts, part, partition=partition)
        return commit_ts

    def create_database(self, database: str) -> int:
        return self._database_change(database, f"CREATE DATABASE {quoted_name(database)}", _CREATE_SCHEMA)

    def drop_database(self, database: str) -> int:
        gone = [table_id for table_id in self._tables if table_id.database == database]
        for table_id in gone:
            del self._tables[table_id]
        return self._database_change(database, f"DROP DATABASE {quoted_name(database)}", _DROP_SCHEMA, gone)

    def create_table(
        self,
        table_id: TableId,
        columns: Iterable[Column],
        unique: Sequence[str] = (),
        *,
        nonclustered: bool = False,
        ignores_case: bool = False,
        partitions: Mapping[str, int | None] | None = None,
        generating: Mapping[str, Callable[[Row], object]] | None = None,
    ) -> int:
        """Creates a table. The columns define its primary key; ``unique`` columns, not null, form a unique key.

        ``partitions``: names and upper bounds of ranges of the first primary key column. ``generating`` computes the generated
        columns.
        """
        if table_id in self._tables:
            raise ValueError(f"table {table_id} exists")
        shape = tuple(replace(c, nullable=c.nullable and not c.primary_key) for c in columns)
        primary_key = tuple(column.name for column in shape if column.primary_key)
        schema = TableSchema(table_id, shape, primary_key)
        uniques = {"uk": tuple(unique)} if unique else {}
        table = Table(schema, self._physical_id(), uniques=uniques, ignores_case=ignores_case, generating=dict(generating or {}))
        table.schema = replace(schema, handle_key=primary_key or handle_of_uniques(table))
        definitions = [column_definition(column) for column in shape]
        if primary_key:
            clustering = " /*T![clustered_index] NONCLUSTERED */" if nonclustered else ""
            definitions.append(f"PRIMARY KEY({quoted_names(primary_key)}){clustering}")
        if unique:
            definitions.append(f"UNIQUE `uk`({quoted_names(unique)})")
        text = f"CREATE TABLE {quoted(table_id)} ({','.join(definitions)})"
        if ignores_case:
            text += " DEFAULT CHARACTER SET = UTF8MB4 DEFAULT COLLATE = UTF8MB4_GENERAL_CI"
        if partitions:
            ids = {name: self._physical_id() for name in partitions}
            table.partitions = Partitions(primary_key[0], dict(partitions), ids)
            parts = ",".join(_partition(*item) for item in partitions.items())
            text += f" PARTITION BY RANGE ({quoted_name(primary_key[0])}) ({parts})"
        self._tables[table_id] = table
        return self._table_change(table_id, text, _CREATE_TABLE)

    def create_table_like(self, table_id: TableId, pattern: TableId) -> int:
        """CREATE TABLE … LIKE: the shape and the keys of another table, without its rows."""
        if table_id in self._tables:
            raise ValueError(f"table {table_id} exists")
        table = copy.deepcopy(self.table(pattern))
        table.rows.clear()
        table.schema = replace(table.schema, table_id=table_id)
        table.physical_id = self._physical_id()
        if table.partitions:
            table.partitions.ids = {name: self._physical_id() for name in table.partitions.ids}
        self._tables[table_id] = table
        return self._table_change(table_id, f"CREATE TABLE {quoted(table_id)} LIKE {quoted(self.typed(pattern))}", _CREATE_TABLE)

    def alter(self, table_id: TableId, *clauses: Clause) -> int:
        """ALTER TABLE with one or more clauses. The clauses may change values; no event reports that."""
        table = copy.deepcopy(self.table(table_id))
        for clause in clauses:
            clause.apply(table)
        table.recompute()
        self._tables[table_id] = table
        type_code = clauses[0].type_code if len(clauses) == 1 else MULTI_SCHEMA_CHANGE
        return self._table_change(
            table_id, f"ALTER TABLE {quoted(self.typed(table_id))} {', '.join(c.text() for c in clauses)}", type_code
        )

    def add_column(self, table_id: TableId, column: Column) -> int:
        """Adds a column at the end. Existing rows get its default; no event reports that."""
        return self.alter(table_id, AddColumn(column))

    def drop_column(self, table_id: TableId, name: str) -> int:
        return self.alter(table_id, DropColumn(name))

    def truncate_table(self, table_id: TableId) -> int:
        table = self.table(table_id)
        table.rows.clear()
        table.physical_id = self._physical_id()
        if table.partitions:
            table.partitions.ids = {name: self._physical_id() for name in table.partitions.ids}
        return self._table_change(table_id, f"TRUNCATE TABLE {quoted(self.typed(table_id))}", _TRUNCATE)

    def drop_table(self, table_id: TableId) -> int:
        commit_ts = self._table_change(table_id, f"DROP TABLE {quoted(self.typed(table_id))}", _DROP_TABLE, [table_id])
        self._dropped[table_id] = self._tables.pop(table_id)
        return commit_ts

    def recover_table(self, table_id: TableId, new_table_id: TableId | None = None) -> int:
        """RECOVER TABLE, or FLASHBACK TABLE … TO a new name: the rows exist again, and no event reports that."""
        name = new_table_id or table_id
        if name in self._tables:
            raise ValueError(f"table {name} exists")
        if table_id not in self._dropped:
            raise KeyError(f"no table {table_id} was dropped")
        table = self._dropped.pop(table_id)
        table.schema = replace(table.schema, table_id=name)
        self._tables[name] = table
        flashback = f"FLASHBACK TABLE {quoted(table_id)} TO {quoted_name(name.table)}"
        return self._table_change(name, flashback if new_table_id else f"RECOVER TABLE {quoted(table_id)}", _RECOVER)

    def rename_table(self, table_id: TableId, new_table_id: TableId) -> int:
        if new_table_id in self._tables:
            raise ValueError(f"table {new_table_id} exists")
        self._move(table_id, new_table_id)
        statement = f"RENAME TABLE {quoted(self.typed(table_id))} TO {quoted(new_table_id)}"
        return self._table_change(new_table_id, statement, _RENAME, [table_id])

    def rename_tables(self, *steps: tuple[TableId, TableId]) -> int:
        """One RENAME TABLE with several steps. TiCDC reports each step separately, all with the same version."""
        tables = dict(self._tables)
        moved: list[tuple[TableId, TableId, Table]] = []
        last: dict[TableId, int] = {}  # name before the statement -> the table's last step
        for number, (old, new) in enumerate(steps):
            if old not in tables or new in tables:
                raise ValueError(f"{old} cannot become {new}")
            tables[new] = tables.pop(old)
            moved.append((old, new, tables[new]))
            last[next((name for name, step in last.items() if moved[step][1] == old), old)] = number
        self._tables = tables
        files = []
        for number, (old, new, table) in enumerate(moved):
            schema = replace(table.schema, table_id=new)
            is_last = number in last.values()
            if is_last:
                tables[new] = replace(table, schema=schema)
            text = f"RENAME TABLE {quoted(self.typed(old))} TO {quoted(new)};"
            files.append(SchemaFile(new, text, schema, _RENAME, table.physical_id, overtaken=not is_last))
        return self._write_schema_change(files, [name for name in last if name not in tables])

    def add_partition(self, table_id: TableId, name: str, bound: int) -> int:
        """Adds a range above all others."""
        partitions = self._partitions(table_id)
        if name in partitions.bounds or not all(other is not None and other < bound for other in partitions.bounds.values()):
            raise ValueError(f"{table_id} cannot have a partition {name} below {bound}")
        partitions.bounds[name] = bound
        partitions.ids[name] = self._physical_id()
        return self._table_change(
            table_id, f"ALTER TABLE {quoted(self.typed(table_id))} ADD PARTITION ({_partition(name, bound)})", _ADD_PARTITION
        )

    def truncate_partition(self, table_id: TableId, name: str) -> int:
        self._empty_partition(table_id, name)
        self._partitions(table_id).ids[name] = self._physical_id()
        statement = f"ALTER TABLE {quoted(self.typed(table_id))} TRUNCATE PARTITION {quoted_name(name)}"
        return self._table_change(table_id, statement, _TRUNCATE_PARTITION)

    def drop_partition(self, table_id: TableId, name: str) -> int:
        partitions = self._partitions(table_id)
        if len(partitions.bounds) == 1:
            raise ValueError(f"{name} is the last partition of {table_id}")
        self._empty_partition(table_id, name)
        del partitions.bounds[name], partitions.ids[name]
        statement = f"ALTER TABLE {quoted(self.typed(table_id))} DROP PARTITION {quoted_name(name)}"
        return self._table_change(table_id, statement, _DROP_PARTITION)

    def exchange_partition(self, table_id: TableId, name: str, other_id: TableId) -> int:
        """A partition and a table with the same columns exchange rows and physical ids. TiCDC writes a file for both tables."""
        table, partitions, other = self.table(table_id), self._partitions(table_id), self.table(other_id)
        if other.partitions or [c.type for c in table.schema.columns] != [c.type for c in other.schema.columns]:
            raise ValueError(f"{other_id} is not like a partition of {table_id}")
        if any(partitions.of(row) != name for row in other.rows.values()):
            raise ValueError(f"{other_id} has rows that do not belong into {name}")
        coming, going = other.rows, {key: row for key, row in table.rows.items() if partitions.of(row) == name}
        staying = {key: row for key, row in table.rows.items() if key not in going}
        # Hidden row numbers are local to each table.
        table.rows = staying | {table.key_of(row): row for row in coming.values()}
        other.rows = {other.key_of(row): row for row in going.values()}
        partitions.ids[name], other.physical_id = other.physical_id, partitions.ids[name]
        text = f"{quoted(self.typed(table_id))} EXCHANGE PARTITION {quoted_name(name)} WITH TABLE {quoted(self.typed(other_id))}"
        files = [
            SchemaFile(table_id, f"ALTER TABLE {text}", table.schema, _EXCHANGE_PARTITION, table.physical_id),
            SchemaFile(other_id, "", other.schema, 0, other.physical_id),
        ]
        return self._write_schema_change(files, ())

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

    def _physical_id(self) -> int:
        self._next_physical_id += 1
        return self._next_physical_id

    def _partitions(self, table_id: TableId) -> Partitions:
        partitions = self.table(table_id).partitions
        if partitions is None:
            raise ValueError(f"{table_id} has no partitions")
        return partitions

    def _empty_partition(self, table_id: TableId, name: str) -> None:
        table, partitions = self.table(table_id), self._partitions(table_id)
        table.rows = {key: row for key, row in table.rows.items() if partitions.of(row) != name}

    def _move(self, table_id: TableId, new_table_id: TableId) -> None:
        table = self.table(table_id)
        del self._tables[table_id]
        table.schema = replace(table.schema, table_id=new_table_id)
        self._tables[new_table_id] = table

    def _database_change(self, database: str, statement: str, type_code: int, gone: Iterable[TableId] = ()) -> int:
        return self._write_schema_change([SchemaFile(TableId(database), statement, None, type_code)], gone)

    def _table_change(self, table_id: TableId, statement: str, type_code: int, gone: Iterable[TableId] = ()) -> int:
        table = self.table(table_id)
        table.number_columns()
        return self._write_schema_change([SchemaFile(table_id, statement, table.schema, type_code, table.physical_id)], gone)

    def _write_schema_change(self, files: Sequence[SchemaFile], gone: Iterable[TableId]) -> int:
        version = self._commit()
        self.schema_changes += len(files)
        self.writer.schema_changes(version, files, gone)
        return version


def _by_partition(table: Table, changes: Iterable[RowChange]) -> dict[int | None, list[RowChange]]:
    """Changes by the partition to which they belong. A row that moves is a delete in one partition and an insert in the other."""
    if table.partitions is None:
        return {None: list(changes)}
    parts: dict[int | None, list[RowChange]] = {}
    for change in changes:
        before, after = (None if row is None else table.partition_id(dict(row)) for row in (change.before, change.after))
        if before is None or after is None or before == after:
            parts.setdefault(before or after, []).append(change)
        else:
            parts.setdefault(before, []).append(RowChange(before=change.before))
            parts.setdefault(after, []).append(RowChange(after=change.after))
    return parts


def _partition(name: str, bound: int | None) -> str:
    return f"PARTITION {quoted_name(name)} VALUES LESS THAN ({'MAXVALUE' if bound is None else bound})"


def _order(value: object) -> tuple[int, str | int | float]:
    """A sort order for values of one column: numbers by value, all others by their text."""
    return (0, value) if isinstance(value, int | float) else (1, value.hex() if isinstance(value, bytes) else str(value))
