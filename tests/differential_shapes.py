"""Random columns, values and ALTER TABLE clauses for ``differential``. Raise ``IndexError`` where a table has nothing to choose."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random

from headrace.model.table import Column
from headrace.model.types import ColumnType, TypeKind
from headrace.testing.upstream_ddl import (
    AddColumn,
    AddIndex,
    AddPrimaryKey,
    Clause,
    DropColumn,
    DropIndex,
    DropPrimaryKey,
    ModifyColumn,
    RenameColumn,
    SetDefault,
)
from headrace.testing.upstream_table import Table

INT = ColumnType(TypeKind.INT)
COLUMN_NAMES = ("c1", "rowid", "C3", "c 2", "ß")  # DuckDB's own rowid gives way to a column of that name
_NEW_NAMES = (*COLUMN_NAMES, "m", "gone")
_TEXTS = ("", "a", "A", "a ", "\\N", "NULL", "q\"u'o", "x,y\r\nz\\", "表😀", "\t|+|")
_VALUES: dict[ColumnType, tuple[object, ...]] = {
    INT: (0, 1, -1, 2**31 - 1, -(2**31), 7),
    ColumnType(TypeKind.TINYINT): (0, 127, -128),
    ColumnType(TypeKind.BIGINT, unsigned=True): (0, 2**64 - 1, 2**63),
    ColumnType(TypeKind.DECIMAL, length=20, scale=4): ("0.0000", "-1.5000", "9999999999999999.9999"),
    ColumnType(TypeKind.DOUBLE): (0.0, 1.5, -1e300, 1e-7, 1234567.0),
    ColumnType(TypeKind.VARCHAR, length=20): _TEXTS,
    ColumnType(TypeKind.TEXT): _TEXTS,
    ColumnType(TypeKind.VARBINARY, length=20): (b"", b"\x00\xff", b"a,\"'\\"),
    ColumnType(TypeKind.DATE): ("2024-02-29", "1000-01-01", "9999-12-31"),
    ColumnType(TypeKind.DATETIME, scale=3): ("2024-02-29 23:59:59.999", "1000-01-01 00:00:00.000"),
    ColumnType(TypeKind.TIMESTAMP): ("2024-02-29 23:59:59", "1970-01-02 00:00:01"),
    ColumnType(TypeKind.ENUM, elements=("x", "y,z", "w'")): ("x", "y,z", "w'"),
    ColumnType(TypeKind.BIT, length=8): (0, 255, 65),
    ColumnType(TypeKind.YEAR): (1901, 2155),
}
_DEFAULTS = {
    TypeKind.INT: "42",
    TypeKind.VARCHAR: "it's\\n",
    TypeKind.DECIMAL: "1.5000",
    TypeKind.ENUM: "y,z",
    TypeKind.DATE: "2020-02-02",
}
KEY_TYPES = (INT, ColumnType(TypeKind.VARCHAR, length=20), ColumnType(TypeKind.BIGINT, unsigned=True), ColumnType(TypeKind.DATE))
_WIDER = {TypeKind.TINYINT: INT, TypeKind.INT: ColumnType(TypeKind.BIGINT)}
_LONGER = 60


def random_column(chance: Random, name: str) -> Column:
    column_type = chance.choice(list(_VALUES))
    default = _DEFAULTS.get(column_type.kind) if chance.random() < 0.5 else None
    nullable = chance.random() < 0.6 or (default is None and column_type.kind not in (TypeKind.INT, TypeKind.VARCHAR))
    return Column(name, column_type, nullable=nullable, default=default)


def random_value(chance: Random, column: Column) -> object:
    """A value of the column's type, among few, so that rows meet."""
    if column.nullable and chance.random() < 0.2:
        return None
    if column.type.kind in (TypeKind.INT, TypeKind.BIGINT) and chance.random() < 0.7:
        return chance.randrange(12)
    for column_type, values in _VALUES.items():
        if column_type.kind is column.type.kind and column_type.unsigned == column.type.unsigned:
            return chance.choice(values)
    return chance.randrange(100)


def random_clauses(chance: Random, table: Table, *, keys: bool) -> list[Clause]:
    """One clause, or two that do not meet; ``keys``: primary keys may come and go."""
    makers = [_added, _added, _dropped, _renamed, _modified, _modified, _moved, _indexed, _unique, _unindexed, _defaulted]
    makers += [_rekeyed] if keys else []
    clauses = [chance.choice(makers)(chance, table)]
    if chance.random() < 0.4:
        other = chance.choice(makers)(chance, table)
        clauses += [other] if _touched(other).isdisjoint(_touched(clauses[0])) else []
    return clauses


def undone(clause: Clause, table: Table) -> Clause | None:
    """What gives a table of this shape its columns back after the clause, ``None`` where nothing does."""
    match clause:
        case AddColumn(column):
            return DropColumn(column.name)
        case DropColumn(name) if not table.schema.column(name).generated:
            return AddColumn(replace(table.schema.column(name), column_id=None), _before(name, table))
        case ModifyColumn(name, column, str()) if replace(table.schema.column(name), column_id=None) == column:
            return ModifyColumn(name, column, _before(name, table))
        case RenameColumn(name, new_name):
            return RenameColumn(new_name, name)
        case _:
            return None


def _before(name: str, table: Table) -> str:
    """The column in front of one, ``""`` for none."""
    names = [column.name for column in table.schema.columns]
    place = names.index(table.schema.column(name).name)
    return names[place - 1] if place else ""


def _free_name(chance: Random, table: Table) -> str:
    return chance.choice([name for name in _NEW_NAMES if not table.schema.has_column(name)])


def _plain(table: Table, *kinds: TypeKind) -> list[Column]:
    """Columns in no key, which no other column is computed from; of these kinds, or of all."""
    used = {n for columns in (table.schema.handle_key, *table.uniques.values(), *table.indexes.values()) for n in columns}
    used |= {"n", *table.generating} if table.generating else set()
    return [c for c in table.schema.columns if c.name not in used and (not kinds or c.type.kind in kinds)]


def _place(chance: Random, table: Table) -> str | None:
    return chance.choice([None, None, "", *(column.name for column in table.schema.columns)])


def _added(chance: Random, table: Table) -> Clause:
    return AddColumn(random_column(chance, _free_name(chance, table)), _place(chance, table))


def _dropped(chance: Random, table: Table) -> Clause:
    return DropColumn(chance.choice(_plain(table)).name)


def _renamed(chance: Random, table: Table) -> Clause:
    names = [column.name for column in table.schema.columns if column.name not in ("n", "id")]
    return RenameColumn(chance.choice(names), _free_name(chance, table))


def _modified(chance: Random, table: Table) -> Clause:
    """Wider, longer, nullable, with or without its default, elsewhere, under another name."""
    old = chance.choice(_plain(table))
    column_type = old.type if old.type.unsigned else _WIDER.get(old.type.kind, old.type)
    if old.type.kind is TypeKind.VARCHAR:
        column_type = replace(old.type, length=_LONGER)
    name = _free_name(chance, table) if chance.random() < 0.3 else old.name
    column = Column(name, column_type, default=old.default if chance.random() < 0.5 else None)
    after = _place(chance, table) if chance.random() < 0.5 else None
    return ModifyColumn(old.name, column, after if after != old.name else None)


def _moved(chance: Random, table: Table) -> Clause:
    """At another place and else as it was: TiCDC goes on in directories of the former order."""
    column = replace(chance.choice(_plain(table)), column_id=None)
    return ModifyColumn(column.name, column, chance.choice(["", *(c.name for c in table.schema.columns if c.name != column.name)]))


def _indexed(chance: Random, table: Table) -> Clause:
    return AddIndex(f"i{len(table.indexes)}", (chance.choice(_plain(table, TypeKind.INT, TypeKind.VARCHAR, TypeKind.DATE)).name,))


def _unique(chance: Random, table: Table) -> Clause:
    return AddIndex("un", (chance.choice(_plain(table, TypeKind.INT, TypeKind.DATE, TypeKind.VARCHAR)).name,), unique=True)


def _unindexed(chance: Random, table: Table) -> Clause:
    return DropIndex(chance.choice([*table.indexes, *table.uniques]))


def _rekeyed(chance: Random, table: Table) -> Clause:
    has_key = any(column.primary_key for column in table.schema.columns)
    return DropPrimaryKey() if has_key else AddPrimaryKey(("id",))


def _defaulted(chance: Random, table: Table) -> Clause:
    return SetDefault(chance.choice(_plain(table, TypeKind.VARCHAR)).name, "other")


_Maker = Callable[[Random, Table], Clause]


def _touched(clause: Clause) -> set[str]:
    """Names that another clause of the same statement has to leave alone."""
    match clause:
        case AddColumn(column, after):
            names = {column.name, after}
        case ModifyColumn(name, column, after):
            names = {name, column.name, after}
        case DropColumn(name) | SetDefault(name):
            names = {name}
        case RenameColumn(name, new_name):
            names = {name, new_name}
        case AddIndex(name, columns):
            names = {name, "an index", *columns}
        case _:
            names = {"id", "an index"}
    return {name for name in names if name}
