"""Finds where a statement depends on the session's time zone: values of generated columns, and bounds of partitions."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.ddl.defaults import defined_columns
from headrace.ddl.lexer import Cursor, Word, rendered, words
from headrace.ddl.statement import read_statement
from headrace.model.table import Column, TableSchema, folded_name
from headrace.model.types import TypeKind

_UNIX_TIME = "UNIX_TIMESTAMP"
_BY_ZONE = frozenset({"FROM_UNIXTIME", _UNIX_TIME})


@dataclass(frozen=True)
class ZonedColumn:
    """A generated column whose values depend on the time zone of the session that writes a row.

    ``cause`` is a clause of a sentence; ``names`` are the folded names of the column and of all that its expression reads.
    """

    column: Column
    cause: str
    names: frozenset[str]


def zoned_columns(schema: TableSchema) -> list[ZonedColumn]:
    """All zoned columns of a table. A column comes after the columns that it reads."""
    found: dict[str, ZonedColumn] = {}
    for column in schema.columns:  # an expression reads no generated column but those before it
        expression = words(column.expression) or ()
        read = frozenset(folded_name(word.text) for word in expression if not word.is_literal)
        own = folded_name(column.name)
        cause = _cause(column, expression, schema) if column.generated else ""
        through = next((name for name in found if name in read), "")
        if cause or through:
            cause = cause or f"its expression reads {found[through].column.name}, which does"
            found[own] = ZonedColumn(column, cause, read | {own})
    return list(found.values())


def defined_zoned_column(statement: str, schema: TableSchema) -> ZonedColumn | None:
    """The first zoned column that the statement defines, or that reads a column which the statement defines.

    ``schema`` is the shape after the statement.
    """
    read = read_statement(statement, schema.table_id.database)
    defined = {folded_name(definition[0].text) for definition in defined_columns(read) if definition}
    return next((zoned for zoned in zoned_columns(schema) if not defined.isdisjoint(zoned.names)), None)


def zoned_bound(statement: str) -> str:
    """The first ``UNIX_TIMESTAMP('2024-01-02 00:00:00')`` in a definition of partitions, as it was written; empty for none.

    Over a column of type TIMESTAMP the function gives the same number in every zone, and TiDB partitions by no other type with it.
    """
    found = words(statement) or ()
    start = next((at for at, word in enumerate(found) if word.says("PARTITION")), len(found))
    for at in range(start, len(found)):
        arguments = Cursor(found[at + 1 :]).group() if found[at].says(_UNIX_TIME) else ()
        if any(word.is_literal for word in arguments):
            return rendered(found[at : at + len(arguments) + 3])
    return ""


def _cause(column: Column, expression: tuple[Word, ...], schema: TableSchema) -> str:
    if column.type.kind is TypeKind.TIMESTAMP:
        return "it is a TIMESTAMP"
    for place, word in enumerate(expression):
        if word.text.upper() in _BY_ZONE and expression[place + 1 : place + 2] == (Word("("),):
            return f"its expression calls {word.text.upper()}"
        if not word.is_literal and schema.has_column(word.text) and schema.column(word.text).type.kind is TypeKind.TIMESTAMP:
            return f"its expression reads {schema.column(word.text).name}, which is a TIMESTAMP"
    return ""
