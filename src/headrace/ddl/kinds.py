"""Finds the kinds of a schema change for policies: from its typed events, and otherwise from its text."""

from __future__ import annotations

from headrace.ddl.lexer import Word, begins_with
from headrace.ddl.statement import Statement, StatementKind, read_statement
from headrace.model.events import (
    AddColumnEvent,
    AlterColumnTypeEvent,
    CreateDatabaseEvent,
    CreateTableEvent,
    DropColumnEvent,
    DropDatabaseEvent,
    DropTableEvent,
    OtherEvent,
    RenameColumnEvent,
    RenameTableEvent,
    SchemaChange,
    TruncateTableEvent,
)
from headrace.model.policy import ChangeKind

_BY_EVENT = {
    CreateDatabaseEvent: ChangeKind.CREATE_DATABASE,
    DropDatabaseEvent: ChangeKind.DROP_DATABASE,
    CreateTableEvent: ChangeKind.CREATE_TABLE,
    DropTableEvent: ChangeKind.DROP_TABLE,
    TruncateTableEvent: ChangeKind.TRUNCATE_TABLE,
    RenameTableEvent: ChangeKind.RENAME_TABLE,
    AddColumnEvent: ChangeKind.ADD_COLUMN,
    DropColumnEvent: ChangeKind.DROP_COLUMN,
    RenameColumnEvent: ChangeKind.RENAME_COLUMN,
    AlterColumnTypeEvent: ChangeKind.ALTER_COLUMN,
}
_BY_STATEMENT = {
    StatementKind.ALTER_DATABASE: ChangeKind.ALTER_DATABASE,
    StatementKind.CREATE_INDEX: ChangeKind.INDEX,
    StatementKind.CREATE_VIEW: ChangeKind.VIEW,
    StatementKind.DROP_VIEW: ChangeKind.VIEW,
}
_INDEX_WORDS = frozenset({"INDEX", "KEY", "UNIQUE", "FULLTEXT", "SPATIAL", "VECTOR", "COLUMNAR"})
_PARTITION_ACTIONS = frozenset({"EXCHANGE", "REORGANIZE", "COALESCE", "PARTITION"})
_PARTITION_WORDS = frozenset({"PARTITION", "PARTITIONING"})


def kinds_of(change: SchemaChange) -> frozenset[ChangeKind]:
    """The kinds of a schema change; a statement of several clauses may have several."""
    kinds = {kind for event in change.events if (kind := _BY_EVENT.get(type(event))) is not None}
    read = read_statement(change.statement, change.database)
    named = {kind for action in read.actions if (kind := _kind_of_action(action)) is not None}
    if read.kind in (StatementKind.ALTER_TABLE, StatementKind.OTHER, StatementKind.CREATE_INDEX):
        kinds |= named
    if read.kind in _BY_STATEMENT:
        kinds.add(_BY_STATEMENT[read.kind])
    if _is_drop_index(read, change):
        kinds.add(ChangeKind.INDEX)
    if not kinds and (change.statement or any(isinstance(event, OtherEvent) for event in change.events)):
        kinds.add(ChangeKind.OTHER)
    return frozenset(kinds)


def _kind_of_action(action: tuple[Word, ...]) -> ChangeKind | None:
    """The kind of one clause of ALTER TABLE, if its events do not show it."""
    first, second = _keyword(action, 0), _keyword(action, 1)
    if second == "CONSTRAINT":
        second = _keyword(action, 3 if len(action) > 2 and action[2].is_name else 2)
    if second == "PRIMARY":
        return ChangeKind.KEY
    if first in _PARTITION_ACTIONS or second in _PARTITION_WORDS:
        return ChangeKind.PARTITION
    if first == "UNIQUE" or second in _INDEX_WORDS:
        return ChangeKind.INDEX
    return None


def _keyword(action: tuple[Word, ...], at: int) -> str:
    """The word at this place in upper case; empty for a name, a value, or no word."""
    if at >= len(action) or action[at].is_name or action[at].is_literal:
        return ""
    return action[at].text.upper()


def _is_drop_index(read: Statement, change: SchemaChange) -> bool:
    return read.kind is StatementKind.OTHER and begins_with(change.statement, "DROP", "INDEX")
