"""Defaults of added columns that the source computed for each row that was there: no event tells what came of them."""

from __future__ import annotations

from collections.abc import Iterator

from headrace.ddl.lexer import Cursor, Word, split_at_commas
from headrace.ddl.statement import Statement

_OF_THE_TIME = frozenset({"CURRENT_DATE", "CURRENT_TIME", "CURRENT_TIMESTAMP", "CURDATE", "LOCALTIME", "LOCALTIMESTAMP", "NOW"})


def computed_default(read: Statement, column: str) -> str:
    """The function that begins the default with which the statement adds this column; empty for a value, and for the time.

    The time is known: it is that of the statement. What is between parentheses is an expression, whatever it is.
    """
    for definition in _added(read):
        if definition and definition[0].text.casefold() == column.casefold():
            return _function(Cursor(definition))
    return ""


def _added(read: Statement) -> Iterator[tuple[Word, ...]]:
    for action in read.actions:
        cursor = Cursor(action)
        if not cursor.accept("ADD"):
            continue
        cursor.accept("COLUMN")
        cursor.accept("IF", "NOT", "EXISTS")
        yield from split_at_commas(cursor.group()) if cursor.peek().says("(") else [cursor.rest()]


def _function(cursor: Cursor) -> str:
    while not cursor.done:
        if not cursor.accept("DEFAULT"):
            cursor.next()
            continue
        inside = cursor.group() if cursor.peek().says("(") else ()
        first = inside[0] if inside else cursor.peek()
        called = (inside[1:2] or (cursor.peek(1),))[0].says("(")
        if first.is_name or first.is_literal or first.text.upper() in _OF_THE_TIME:
            return ""
        return first.text.upper() if called else ""
    return ""
