"""The shape of a table after a statement, from the statement's text and the shape before it. Pure.

For sources whose records contain statements and no shapes. A source that describes shapes itself is more exact.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from headrace.ddl.column_definition import as_bytes, read_column
from headrace.ddl.column_effects import NO_COLUMNS, column_before, skip_to_name
from headrace.ddl.indexes import CONSTRAINTS, is_constraint
from headrace.ddl.lexer import Cursor, Word, split_at_commas
from headrace.ddl.statement import Statement, StatementKind
from headrace.ddl.stored_defaults import stored_default
from headrace.ddl.told import named_collation
from headrace.model.table import Column, Index, TableId, TableSchema, folded_name

_NOT_OF_TABLE = ("ADD", "MODIFY", "CHANGE", "ALTER", "DROP", "RENAME", "INDEX", "UNIQUE")
"""The first words of clauses that name no option of the table."""
_GONE = frozenset({StatementKind.DROP_TABLE, StatementKind.CREATE_VIEW, StatementKind.DROP_VIEW})


def shape_after(
    read: Statement, table_id: TableId, before: TableSchema | None, pattern: TableSchema | None, *, collation: str = ""
) -> TableSchema | None:
    """The columns of ``table_id`` after a statement, without what :func:`headrace.ddl.columns.annotate` adds.

    ``before`` is the shape before the statement, of the table or of what is renamed to it; ``pattern`` that of the table after
    LIKE; ``collation`` the default collation as in :func:`collation_after`. ``None`` if there is no such table afterwards, or if
    its shape is unknown, because ``before`` or ``pattern`` is.

    Raises UnreadDefinitionError for a definition that is not understood.
    """
    if table_id.is_database or read.kind in _GONE or read.brings_back:
        return None
    if read.kind is StatementKind.CREATE_TABLE:
        if read.like is not None:
            return _of_columns(table_id, pattern.columns, pattern.indexes) if pattern is not None else None
        return _of_columns(table_id, _created(read.definitions, collation_after(read, collation)))
    if before is None:
        return None
    columns = list(before.columns)
    after = collation_after(read, collation)
    for action in read.actions:
        _alter(columns, action, after)
    return _of_columns(table_id, columns, before.indexes)


def collation_after(read: Statement, collation: str) -> str:
    """The default collation of a table after a statement about it; empty if no statement named one.

    ``collation`` is the default collation that the table has without the statement: its own, for CREATE TABLE that of the database,
    and with LIKE that of the pattern.
    """
    if read.kind is StatementKind.CREATE_TABLE:
        return named_collation(read.options) or collation
    of_table = [action for action in read.actions if not any(action[0].says(keyword) for keyword in _NOT_OF_TABLE)]
    named = [found for action in of_table if (found := named_collation(action))]
    return named[-1] if named else collation


def _of_columns(table_id: TableId, columns: Iterable[Column], indexes: tuple[Index, ...] = ()) -> TableSchema:
    """The shape with the primary key as its handle key. Whether a unique key is the handle key is left to ``annotate``."""
    found = tuple(columns)
    return TableSchema(table_id, found, tuple(column.name for column in found if column.primary_key), indexes)


def _created(definitions: Iterable[tuple[Word, ...]], collation: str) -> list[Column]:
    columns: list[Column] = []
    keys: list[tuple[str, ...]] = []
    for definition in definitions:
        if is_constraint(definition):
            keys.append(_primary_key(definition))
        else:
            columns.append(read_column(definition, collation))
    for key in keys:
        _set_primary_key(columns, key)
    return columns


def _primary_key(definition: tuple[Word, ...]) -> tuple[str, ...]:
    """The columns of ``[CONSTRAINT [name]] PRIMARY KEY … (columns)``; empty for any other constraint."""
    cursor = Cursor(definition)
    if cursor.accept("CONSTRAINT") and not cursor.peek().says("PRIMARY"):
        cursor.next()
    if not cursor.accept("PRIMARY"):
        return ()
    while not cursor.done and not cursor.peek().says("("):
        cursor.next()
    return tuple(Cursor(part).column_name() for part in split_at_commas(cursor.group()))


def _set_primary_key(columns: list[Column], names: Iterable[str]) -> None:
    for name in names:
        place = _place(columns, name)
        if place is not None:
            columns[place] = replace(columns[place], primary_key=True, nullable=False)


def _place(columns: list[Column], name: str) -> int | None:
    return next((n for n, column in enumerate(columns) if folded_name(column.name) == folded_name(name)), None)


def _alter(columns: list[Column], action: tuple[Word, ...], collation: str) -> None:
    """Applies one clause of ALTER TABLE, or the one of CREATE INDEX or DROP INDEX, to the columns."""
    cursor = Cursor(action)
    if cursor.accept("ADD"):
        _add(columns, cursor, collation)
    elif cursor.accept("DROP"):
        _drop(columns, cursor)
    elif cursor.accept("MODIFY"):
        skip_to_name(cursor)
        _define(columns, Cursor(cursor.rest()).column_name(), cursor.rest(), collation)
    elif cursor.accept("CHANGE"):
        skip_to_name(cursor)
        old = cursor.column_name()
        _define(columns, old, cursor.rest(), collation)
    elif cursor.accept("RENAME", "COLUMN"):
        place = _place(columns, cursor.column_name())
        cursor.accept("TO")
        if place is not None:
            columns[place] = replace(columns[place], name=cursor.column_name())
    elif cursor.accept("CONVERT", "TO"):
        if named_collation(action) == "binary":
            columns[:] = [replace(column, type=as_bytes(column.type)) for column in columns]
    elif cursor.accept("ALTER"):
        cursor.accept("COLUMN")
        place = _place(columns, cursor.column_name())
        if place is not None and any(cursor.peek().says(keyword) for keyword in ("SET", "DROP")):
            column = columns[place]
            default = stored_default(cursor.rest(), column.name, column.type) if cursor.peek().says("SET") else None
            columns[place] = replace(column, default=default)


def _add(columns: list[Column], cursor: Cursor, collation: str) -> None:
    if cursor.done or any(cursor.peek().says(word) for word in NO_COLUMNS):
        return
    if is_constraint(cursor.rest()):
        _set_primary_key(columns, _primary_key(cursor.rest()))
        return
    skip_to_name(cursor)
    parts = split_at_commas(cursor.group()) if cursor.peek().says("(") else [cursor.rest()]
    for part in parts:
        if is_constraint(part):
            _set_primary_key(columns, _primary_key(part))
        elif part and _place(columns, Cursor(part).column_name()) is None:
            column = read_column(part, collation)
            columns.insert(_position(columns, part, len(columns)), column)


def _drop(columns: list[Column], cursor: Cursor) -> None:
    if _drops_primary_key(Cursor(cursor.rest())):
        columns[:] = [replace(column, primary_key=False) for column in columns]
        return
    is_column = cursor.peek().says("COLUMN")
    if not is_column and any(cursor.peek().says(word) for word in (*NO_COLUMNS, *CONSTRAINTS)):
        return
    skip_to_name(cursor)
    place = _place(columns, cursor.column_name())
    if place is not None:
        del columns[place]


def _drops_primary_key(cursor: Cursor) -> bool:
    """Whether the words after DROP are ``PRIMARY KEY``, or name the index ``PRIMARY``, which is the primary key."""
    if not (cursor.accept("INDEX") or cursor.accept("KEY")):
        return cursor.peek().says("PRIMARY")
    cursor.accept("IF", "EXISTS")
    return folded_name(cursor.peek().text) == "primary"


def _define(columns: list[Column], old: str, definition: tuple[Word, ...], collation: str) -> None:
    """Replaces a column by its new definition. It stays in the primary key, and where it is unless the definition moves it."""
    place = _place(columns, old)
    if place is None:
        return
    former = columns.pop(place)
    column = read_column(definition, collation)
    in_key = former.primary_key or column.primary_key
    column = replace(column, primary_key=in_key, nullable=column.nullable and not in_key, column_id=former.column_id)
    columns.insert(_position(columns, definition, place), column)


def _position(columns: list[Column], definition: tuple[Word, ...], default: int) -> int:
    """Where FIRST or AFTER at a definition's end puts its column."""
    if len(definition) > 1 and definition[-1].says("FIRST"):
        return 0
    before = column_before(definition)
    place = _place(columns, before) if before is not None else None
    return default if place is None else place + 1
