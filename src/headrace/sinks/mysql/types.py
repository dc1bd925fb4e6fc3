"""TiDB's column types as MySQL's DDL, for schema changes that are a shape without a statement."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from headrace.model.events import (
    AddColumnEvent,
    AlterColumnTypeEvent,
    ColumnPosition,
    DropColumnEvent,
    Position,
    RenameColumnEvent,
    SchemaChangeEvent,
)
from headrace.model.table import Column, TableId, TableSchema, folded_name
from headrace.model.types import BINARY_KINDS, INTEGER_KINDS, ColumnType, TypeKind, TypeMap, each
from headrace.sinks.mysql.text import quote_name, quote_text

TIDB_DEFAULTS = "DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"
_FRACTIONS = frozenset({TypeKind.TIME, TypeKind.DATETIME, TypeKind.TIMESTAMP})
_NO_DEFAULT = (
    BINARY_KINDS
    | {TypeKind.BIT, TypeKind.JSON, TypeKind.VECTOR}
    | {TypeKind.TINYTEXT, TypeKind.TEXT, TypeKind.MEDIUMTEXT, TypeKind.LONGTEXT}
)


def qualified(table_id: TableId) -> str:
    """The quoted name of a table with its database, or of a database."""
    if table_id.is_database:
        return quote_name(table_id.database)
    return f"{quote_name(table_id.database)}.{quote_name(table_id.table)}"


def type_text(column_type: ColumnType) -> str:
    """The type of a column definition. VECTOR, which MySQL lacks, becomes a text type, and so do ENUM and SET without members."""
    return _DEFINITIONS[column_type.kind](column_type)


def _plain(column_type: ColumnType) -> str:
    return str(column_type.kind)


def _integer(column_type: ColumnType) -> str:
    """Display widths are left out, since only TINYINT(1) has a meaning."""
    width = "(1)" if column_type.kind is TypeKind.TINYINT and column_type.length == 1 else ""
    return f"{column_type.kind}{width}{_sign(column_type)}"


def _with_length(column_type: ColumnType) -> str:
    return f"{column_type.kind}({column_type.length})" if column_type.length else str(column_type.kind)


def _with_fraction(column_type: ColumnType) -> str:
    return f"{column_type.kind}({column_type.scale})" if column_type.scale else str(column_type.kind)


def _decimal(column_type: ColumnType) -> str:
    digits = f"({column_type.length}, {max(column_type.scale or 0, 0)})" if column_type.length else ""
    return f"{column_type.kind}{digits}{_sign(column_type)}"


def _float(column_type: ColumnType) -> str:
    scale = column_type.scale
    digits = f"({column_type.length}, {scale})" if column_type.length and scale is not None and 0 < scale <= 30 else ""
    return f"{column_type.kind}{digits}{_sign(column_type)}"


def _sign(column_type: ColumnType) -> str:
    return " UNSIGNED" if column_type.unsigned else ""


def _members(column_type: ColumnType) -> str:
    members = ", ".join(quote_text(member) for member in column_type.elements)
    return f"{column_type.kind}({members})" if members else "TEXT"


_DEFINITIONS: TypeMap[Callable[[ColumnType], str]] = TypeMap(
    "MySQL's types",
    each(INTEGER_KINDS, _integer),
    each({TypeKind.CHAR, TypeKind.VARCHAR, TypeKind.BINARY, TypeKind.VARBINARY, TypeKind.BIT}, _with_length),
    each(_FRACTIONS, _with_fraction),
    each({TypeKind.FLOAT, TypeKind.DOUBLE}, _float),
    each({TypeKind.ENUM, TypeKind.SET}, _members),
    each({TypeKind.TINYTEXT, TypeKind.TEXT, TypeKind.MEDIUMTEXT, TypeKind.LONGTEXT}, _plain),
    each({TypeKind.TINYBLOB, TypeKind.BLOB, TypeKind.MEDIUMBLOB, TypeKind.LONGBLOB}, _plain),
    each({TypeKind.DATE, TypeKind.YEAR, TypeKind.JSON}, _plain),
    {
        TypeKind.DECIMAL: _decimal,
        TypeKind.VAR_STRING: lambda column_type: f"VARCHAR({column_type.length or 255})",
        TypeKind.VECTOR: lambda _: "LONGTEXT",
    },
)


def column_definition(column: Column) -> str:
    """Name, type, nullability and default."""
    parts = [quote_name(column.name), type_text(column.type), "NULL" if column.nullable else "NOT NULL"]
    if column.default is not None and column.type.kind not in _NO_DEFAULT:
        parts.append(f"DEFAULT {_default(column)}")
    return " ".join(parts)


DECLARED_KEY = "headrace_key"
"""The name of the unique index for a key that a person declared (``--key``) and that is in no statement."""


def create_table(table_id: TableId, schema: TableSchema, defaults: str = TIDB_DEFAULTS) -> str:
    """The CREATE TABLE of a shape. The table gets TiDB's default charset and collation, or other ``defaults``."""
    parts = [column_definition(column) for column in schema.row_columns]
    if schema.handle_key:
        names = ", ".join(quote_name(name) for name in schema.handle_key)
        primary = all(schema.column(name).primary_key for name in schema.handle_key)
        parts.append(f"PRIMARY KEY ({names})" if primary else f"UNIQUE KEY {quote_name(DECLARED_KEY)} ({names})")
    return f"CREATE TABLE {qualified(table_id)} ({', '.join(parts)}) {defaults}"


def alter_table(table_id: TableId, events: Sequence[SchemaChangeEvent]) -> str:
    """One ALTER TABLE for the column changes among the events; empty if there are none.

    The clauses of one statement use the names of columns before it. So a rename over intermediate names becomes one from the first
    name to the last, and altering a column that is also renamed becomes a CHANGE.
    """
    former = _former_names(events)
    altered = {folded_name(event.column.name) for event in events if isinstance(event, AlterColumnTypeEvent)}
    actions: list[str] = []
    for event in events:
        match event:
            case AddColumnEvent(column=column, position=position):
                actions.append(f"ADD COLUMN {column_definition(column)}{_place(position)}")
            case DropColumnEvent(column_name=name):
                actions.append(f"DROP COLUMN {quote_name(name)}")
            case RenameColumnEvent(new_name=new) if folded_name(new) in former and folded_name(new) not in altered:
                actions.append(f"RENAME COLUMN {quote_name(former[folded_name(new)])} TO {quote_name(new)}")
            case AlterColumnTypeEvent(column=column, position=position):
                old = former.get(folded_name(column.name))
                verb = "MODIFY COLUMN" if old is None else f"CHANGE COLUMN {quote_name(old)}"
                actions.append(f"{verb} {column_definition(column)}{_place(position)}")
            case _:
                pass
    return f"ALTER TABLE {qualified(table_id)} {', '.join(actions)}" if actions else ""


def _former_names(events: Sequence[SchemaChangeEvent]) -> dict[str, str]:
    """The last names (folded) of renamed columns, each with the first one."""
    former: dict[str, str] = {}
    for event in events:
        if isinstance(event, RenameColumnEvent):
            former[folded_name(event.new_name)] = former.pop(folded_name(event.old_name), event.old_name)
    return former


def _place(position: ColumnPosition) -> str:
    if position.position is Position.FIRST:
        return " FIRST"
    return f" AFTER {quote_name(position.after)}" if position.position is Position.AFTER else ""


def _default(column: Column) -> str:
    text = str(column.default)
    if column.type.kind in _FRACTIONS and text.upper().startswith("CURRENT_TIMESTAMP"):
        return f"CURRENT_TIMESTAMP({column.type.scale})" if column.type.scale else "CURRENT_TIMESTAMP"
    return quote_text(text)
