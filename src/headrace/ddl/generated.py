"""Generated columns whose values may not be the source's, for whatever cause, and statements that define one."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from headrace.ddl.defaults import defined_columns
from headrace.ddl.lexer import Cursor, Word, words
from headrace.ddl.statement import read_statement
from headrace.model.table import Column, TableSchema, folded_name

Cause = Callable[[Column, tuple[Word, ...], TableSchema], str]
"""Says why a generated column, with the words of its expression, has other values; empty if it has the source's."""


@dataclass(frozen=True)
class DifferingColumn:
    """A generated column whose values may not be the source's.

    ``cause`` is a clause of a sentence; ``names`` are the folded names of the column and of all that its expression reads.
    """

    column: Column
    cause: str
    names: frozenset[str]


def differing_columns(schema: TableSchema, cause_of: Cause) -> list[DifferingColumn]:
    """All columns of a table for which there is a cause, or which read such a column; each comes after those that it reads."""
    found: dict[str, DifferingColumn] = {}
    for column in (column for column in schema.columns if column.generated):  # it reads no generated column but those before it
        expression = words(column.expression) or ()
        read = frozenset(folded_name(word.text) for word in expression if not word.is_literal)
        own = folded_name(column.name)
        through = next((name for name in found if name in read), "")
        cause = cause_of(column, expression, schema)
        if cause or through:
            cause = cause or f"its expression reads {found[through].column.name}, which does"
            found[own] = DifferingColumn(column, cause, read | {own})
    return list(found.values())


def first_defined(statement: str, database: str, found: Iterable[DifferingColumn]) -> DifferingColumn | None:
    """The first of the columns that the statement defines, or that reads a column which the statement defines.

    ``database`` is that of names without one.
    """
    definitions = defined_columns(read_statement(statement, database))
    defined = {folded_name(Cursor(definition).column_name()) for definition in definitions if definition}
    return next((other for other in found if not defined.isdisjoint(other.names)), None)
