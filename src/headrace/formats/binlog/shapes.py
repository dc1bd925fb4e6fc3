"""Table shapes as messages describe them, and how they fit the shape that DDL text gives."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from headrace.formats.base import SchemaMismatchError
from headrace.formats.binlog.messages import ColumnInfo
from headrace.model.table import Column, TableSchema, folded_name
from headrace.model.types import TypeKind

HIDDEN_PREFIXES = ("_v$_", "_col$_", "_idx$_")
"""The folded beginnings of the names of hidden columns: those behind expression indexes, and those that TiDB fills while it changes
a column's type."""
_KINDS = {str(kind).lower(): kind for kind in TypeKind}


def is_hidden(name: str) -> bool:
    """Whether a column is the hidden one of an expression index or of a change of type that is not done yet."""
    return folded_name(name).startswith(HIDDEN_PREFIXES)


def kind_of(column: ColumnInfo) -> TypeKind | None:
    """The column's type, ``None`` for a type that Headrace does not know."""
    return _KINDS.get(column.mysql_type)


@dataclass(frozen=True)
class ReadColumn:
    """A column of the schema, and its place among the values of a row."""

    place: int
    column: Column


def read_columns(listed: Sequence[ColumnInfo], schema: TableSchema, ignored: Collection[str] = ()) -> tuple[ReadColumn, ...]:
    """The schema's row columns, each with its place in the rows of messages. Raises SchemaMismatchError.

    A message lists virtual generated and hidden columns too; these are passed over. It may list a column before the DDL job that
    adds it is done, or after the job that drops it has begun; ``ignored`` are the folded names of such columns.
    """
    places = {folded_name(info.name): place for place, info in enumerate(listed)}
    found = []
    for column in schema.row_columns:
        place = places.get(folded_name(column.name))
        if place is None:
            raise SchemaMismatchError(
                f"The message about table {schema.table_id} does not have the column {column.name}.", column=column.name
            )
        kind = kind_of(listed[place])
        if not _can_carry(kind, column.type.kind):
            raise SchemaMismatchError(
                f"The column {column.name} of table {schema.table_id} has the type {listed[place].mysql_type} in the message, and "
                f"{column.type} in the schema.",
                column=column.name,
            )
        found.append(ReadColumn(place, column))
    for name, place in places.items():
        if not schema.has_column(name) and name not in ignored and not is_hidden(name):
            raise SchemaMismatchError(
                f"The message about table {schema.table_id} has the column {listed[place].name}, which the schema does not have.",
                column=listed[place].name,
            )
    return tuple(found)


_SAME = ({TypeKind.VARCHAR, TypeKind.VAR_STRING}, {TypeKind.VARBINARY, TypeKind.VAR_STRING})


def _can_carry(told: TypeKind | None, kind: TypeKind) -> bool:
    return told is kind or any({told, kind} == pair for pair in _SAME)


def generated_columns(schema: TableSchema) -> frozenset[str]:
    """The folded names of generated columns. In updates Drainer sends NULL for them, in both rows (all releases)."""
    return frozenset(folded_name(column.name) for column in schema.columns if column.generated is not None)
