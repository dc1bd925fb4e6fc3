"""Definitions of added columns with which a server fills existing rows as TiDB does. TiDB emits no rows for ADD COLUMN."""

from __future__ import annotations

from headrace.ddl.defaults import added_column, default_word
from headrace.ddl.statement import read_statement
from headrace.model.events import AddColumnEvent, SchemaChange
from headrace.model.table import Column
from headrace.model.types import TypeKind
from headrace.sinks.mysql.text import quote_text

_READ_AS_TEXT = frozenset({TypeKind.YEAR, TypeKind.DATE, TypeKind.ENUM, TypeKind.SET})
"""TiDB stores the defaults of these types as texts. Other servers read a number differently (``YEAR DEFAULT 0`` is 0000, but 2000
in TiDB) or refuse it (``ENUM('a','b') DEFAULT 2``), and cut off the fraction of a time that TiDB rounds to the next day."""


def filled_as_by_tidb(statement: str, change: SchemaChange, *, is_mariadb: bool) -> str:
    """The statement, which adds columns, with other defaults where the server would fill rows with other values than TiDB.

    MariaDB has no JSON type, and fills a NOT NULL column of that name with an empty text, while TiDB uses JSON's ``null``.
    """
    read = read_statement(statement, change.database)
    places: list[tuple[int, int, str]] = []
    for column in (event.column for event in change.events if isinstance(event, AddColumnEvent)):
        definition = added_column(read, column.name)
        word = default_word(definition)
        if word is not None and column.default is not None and column.type.kind in _READ_AS_TEXT:
            places.append((word.start, word.end, quote_text(column.default)))
        elif is_mariadb and len(definition) > 1 and _is_filled_with_json_null(column):
            places.append((definition[1].end, definition[1].end, " DEFAULT 'null'"))
    for start, end, text in sorted(places, reverse=True):
        statement = statement[:start] + text + statement[end:]
    return statement


def _is_filled_with_json_null(column: Column) -> bool:
    return column.type.kind is TypeKind.JSON and not column.nullable and column.default is None and column.generated is None
