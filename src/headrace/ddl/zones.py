"""Finds where a statement depends on the session's time zone: values of generated columns, and bounds of partitions."""

from __future__ import annotations

from headrace.ddl.generated import DifferingColumn, differing_columns
from headrace.ddl.lexer import Cursor, Word, rendered, words
from headrace.model.table import Column, TableSchema
from headrace.model.types import TypeKind

_UNIX_TIME = "UNIX_TIMESTAMP"
_BY_ZONE = frozenset({"FROM_UNIXTIME", _UNIX_TIME})


def zoned_columns(schema: TableSchema) -> list[DifferingColumn]:
    """The generated columns whose values depend on the time zone of the session that writes a row."""
    return differing_columns(schema, _cause)


def zoned_bound(statement: str) -> str:
    """The first ``UNIX_TIMESTAMP('2024-01-02 00:00:00')`` in a definition of partitions, as it was written; empty for none.

    Over a column of type TIMESTAMP the function gives the same number in every zone, and TiDB partitions by no other type with it.
    """
    found = words(statement) or ()
    start = next((at for at, word in enumerate(found) if word.says("PARTITION")), len(found))
    for at in range(start, len(found)):
        arguments = Cursor(found, at + 1).group() if found[at].says(_UNIX_TIME) else ()
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
