"""The clauses of ALTER TABLE in the upstream model: their effect on a table, and their text in TiDB's normalized statements."""

from __future__ import annotations

from dataclasses import dataclass, replace

from headrace.model.table import Column, TableSchema
from headrace.testing.upstream_table import Table, column_definition, default_value, quoted_name, quoted_names

MULTI_SCHEMA_CHANGE = 61


@dataclass(frozen=True)
class AddColumn:
    """``after`` is the column that it follows; an empty text means the first place, ``None`` the last one."""

    column: Column
    after: str | None = None
    type_code = 5

    def text(self) -> str:
        return f"ADD COLUMN {column_definition(self.column)}{_position(self.after)}"

    def apply(self, table: Table) -> None:
        if table.schema.has_column(self.column.name):
            raise ValueError(f"{table.schema.table_id} has a column {self.column.name}")
        _set_columns(table, _placed(table.schema.columns, self.column, self.after))
        for row in table.rows.values():
            row[self.column.name] = default_value(self.column)


@dataclass(frozen=True)
class DropColumn:
    name: str
    type_code = 6

    def text(self) -> str:
        return f"DROP COLUMN {quoted_name(self.name)}"

    def apply(self, table: Table) -> None:
        dropped = table.schema.column(self.name)
        used = {name for columns in (*table.uniques.values(), *table.indexes.values()) for name in columns}
        used |= {table.partitions.column} if table.partitions else set()
        if len(table.schema.columns) == 1 or dropped.name in table.schema.handle_key or dropped.name in used:
            raise ValueError(f"{table.schema.table_id} cannot lose {self.name}: it is its last column, or part of a key")
        _set_columns(table, tuple(column for column in table.schema.columns if column is not dropped))
        table.generating.pop(dropped.name, None)
        for row in table.rows.values():
            del row[dropped.name]


@dataclass(frozen=True)
class ModifyColumn:
    """MODIFY COLUMN, or CHANGE COLUMN if the name differs. Values stay, so only changes that lose nothing are modelled.

    ``after`` is as in :class:`AddColumn`, but ``None`` leaves the column in its place.
    """

    name: str
    column: Column
    after: str | None = None
    type_code = 12

    def text(self) -> str:
        verb = "MODIFY COLUMN" if self.name == self.column.name else f"CHANGE COLUMN {quoted_name(self.name)}"
        return f"{verb} {column_definition(self.column)}{_position(self.after)}"

    def apply(self, table: Table) -> None:
        _rename(table, self.name, self.column.name)
        old = table.schema.column(self.column.name)
        new = replace(self.column, column_id=old.column_id, primary_key=old.primary_key)
        columns = tuple(new if column is old else column for column in table.schema.columns)
        if self.after is not None:
            columns = _placed(tuple(column for column in columns if column is not new), new, self.after)
        _set_columns(table, columns)


@dataclass(frozen=True)
class RenameColumn:
    name: str
    new_name: str
    type_code = 12

    def text(self) -> str:
        return f"RENAME COLUMN {quoted_name(self.name)} TO {quoted_name(self.new_name)}"

    def apply(self, table: Table) -> None:
        _rename(table, self.name, self.new_name)


@dataclass(frozen=True)
class SetDefault:
    """ALTER COLUMN … SET DEFAULT of a text column."""

    name: str
    default: str
    type_code = 15

    def text(self) -> str:
        return f"ALTER COLUMN {quoted_name(self.name)} SET DEFAULT _UTF8MB4'{self.default}'"

    def apply(self, table: Table) -> None:
        old = table.schema.column(self.name)
        _set_columns(table, tuple(replace(c, default=self.default) if c is old else c for c in table.schema.columns))


@dataclass(frozen=True)
class AddIndex:
    name: str
    columns: tuple[str, ...]
    unique: bool = False
    type_code = 7

    def text(self) -> str:
        return f"ADD {'UNIQUE' if self.unique else 'INDEX'} {quoted_name(self.name)}({quoted_names(self.columns)})"

    def apply(self, table: Table) -> None:
        if self.name in table.uniques or self.name in table.indexes:
            raise ValueError(f"{table.schema.table_id} has an index {self.name}")
        if self.unique and table.partitions and table.partitions.column not in self.columns:
            raise ValueError(f"a unique key of {table.schema.table_id} has to hold what partitions it")
        (table.uniques if self.unique else table.indexes)[self.name] = self.columns
        table.check()


@dataclass(frozen=True)
class DropIndex:
    """Drops an index that is not the handle key."""

    name: str
    type_code = 8

    def text(self) -> str:
        return f"DROP INDEX {quoted_name(self.name)}"

    def apply(self, table: Table) -> None:
        indexes = table.uniques if self.name in table.uniques else table.indexes
        if indexes[self.name] == table.schema.handle_key:
            raise ValueError(f"{self.name} is the key of {table.schema.table_id}")
        del indexes[self.name]


@dataclass(frozen=True)
class AddPrimaryKey:
    """A nonclustered primary key, for a table without a primary key."""

    columns: tuple[str, ...]
    type_code = 32

    def text(self) -> str:
        return f"ADD PRIMARY KEY({quoted_names(self.columns)}) /*T![clustered_index] NONCLUSTERED */"

    def apply(self, table: Table) -> None:
        if any(column.primary_key for column in table.schema.columns):
            raise ValueError(f"{table.schema.table_id} has a primary key")
        if any(row[name] is None for row in table.rows.values() for name in self.columns):
            raise ValueError(f"{table.schema.table_id} has NULLs in {self.columns}")
        _set_columns(
            table,
            tuple(replace(c, primary_key=True, nullable=False) if c.name in self.columns else c for c in table.schema.columns),
        )
        table.schema = replace(table.schema, handle_key=self.columns)
        table.rekey()
        table.check()


@dataclass(frozen=True)
class DropPrimaryKey:
    """Drops a nonclustered primary key. The handle is then the first unique key without nullable columns, if there is one."""

    type_code = 33

    def text(self) -> str:
        return "DROP PRIMARY KEY"

    def apply(self, table: Table) -> None:
        if not any(column.primary_key for column in table.schema.columns):
            raise ValueError(f"{table.schema.table_id} has no primary key")
        _set_columns(table, tuple(replace(c, primary_key=False) for c in table.schema.columns))
        table.schema = replace(table.schema, handle_key=handle_of_uniques(table))
        table.rekey()


Clause = AddColumn | DropColumn | ModifyColumn | RenameColumn | SetDefault | AddIndex | DropIndex | AddPrimaryKey | DropPrimaryKey


def handle_of_uniques(table: Table) -> tuple[str, ...]:
    """The columns of the first unique key without nullable columns: TiDB's handle of a table without primary key."""
    for columns in table.uniques.values():
        if all(not table.schema.column(name).nullable for name in columns):
            return columns
    return ()


def _set_columns(table: Table, columns: tuple[Column, ...]) -> None:
    table.schema = TableSchema(table.schema.table_id, columns, table.schema.handle_key)


def _rename(table: Table, name: str, new_name: str) -> None:
    if name == new_name:
        return
    if table.schema.has_column(new_name) or (table.partitions and table.partitions.column == name):
        raise ValueError(f"{table.schema.table_id} has a column {new_name}, or is partitioned by {name}")

    def renamed(names: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(new_name if other == name else other for other in names)

    columns = tuple(replace(c, name=new_name) if c.name == name else c for c in table.schema.columns)
    table.schema = TableSchema(table.schema.table_id, columns, renamed(table.schema.handle_key))
    table.uniques = {index: renamed(names) for index, names in table.uniques.items()}
    table.indexes = {index: renamed(names) for index, names in table.indexes.items()}
    table.generating = {(new_name if other == name else other): compute for other, compute in table.generating.items()}
    for row in table.rows.values():
        row[new_name] = row.pop(name)


def _placed(columns: tuple[Column, ...], column: Column, after: str | None) -> tuple[Column, ...]:
    if after is None:
        return (*columns, column)
    names = [other.name for other in columns]
    position = names.index(after) + 1 if after else 0
    return (*columns[:position], column, *columns[position:])


def _position(after: str | None) -> str:
    if after is None:
        return ""
    return f" AFTER {quoted_name(after)}" if after else " FIRST"
