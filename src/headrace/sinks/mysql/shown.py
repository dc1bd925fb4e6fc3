"""What names in the catalogue show of a schema change: tables, databases and columns that are added, dropped or renamed.

Events take place in order, and a name may be used again: ``DROP COLUMN b, RENAME COLUMN a TO b``. So a table's columns are compared
with the names that it must have and lack after all events, and not with each event separately.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from headrace.ddl.statement import StatementKind, read_statement
from headrace.model.events import (
    AddColumnEvent,
    CreateDatabaseEvent,
    CreateTableEvent,
    DropColumnEvent,
    DropDatabaseEvent,
    DropTableEvent,
    RenameColumnEvent,
    RenameTableEvent,
    SchemaChange,
    SchemaChangeEvent,
)
from headrace.model.table import TableId, TableSchema, folded_name
from headrace.sinks.mysql import catalogue, databases
from headrace.sinks.mysql.connection import MySqlSession


@dataclass
class ColumnNames:
    """The names (folded) of columns that a table has, and those that it lacks, after the events so far."""

    present: set[str] = field(default_factory=set)
    absent: set[str] = field(default_factory=set)
    is_reused: bool = False
    """Whether a name was added again after its column was removed. Then names do not show which events took place."""

    def take(self, event: SchemaChangeEvent) -> None:
        match event:
            case AddColumnEvent(column=column):
                self._comes(column.name)
            case DropColumnEvent(column_name=name):
                self._goes(name)
            case RenameColumnEvent(old_name=old, new_name=new) if folded_name(old) != folded_name(new):
                self._goes(old)
                self._comes(new)
            case _:
                pass

    def _comes(self, name: str) -> None:
        self.is_reused = self.is_reused or folded_name(name) in self.absent
        self.absent.discard(folded_name(name))
        self.present.add(folded_name(name))

    def _goes(self, name: str) -> None:
        self.present.discard(folded_name(name))
        self.absent.add(folded_name(name))

    def are_those_of(self, columns: Iterable[str]) -> bool:
        """Whether a table with these columns (folded names) shows the events."""
        return self.present <= set(columns) and not self.absent & set(columns)


def column_names(events: Iterable[SchemaChangeEvent]) -> dict[TableId, ColumnNames]:
    """The resulting column names, by the table that the events name."""
    found: dict[TableId, ColumnNames] = defaultdict(ColumnNames)
    for event in events:
        if isinstance(event, AddColumnEvent | DropColumnEvent | RenameColumnEvent):
            found[event.table_id].take(event)
    return found


def reuses_names(change: SchemaChange) -> bool:
    """Whether a column gets the name that another one had before the change."""
    return any(names.is_reused for names in column_names(change.events).values())


def not_shown(session: MySqlSession, change: SchemaChange) -> str:
    """The part of the change that the catalogue does not show, as far as names can show it; empty if it shows all."""
    renames = [event for event in change.events if isinstance(event, RenameTableEvent)]
    if renames:
        missing = sorted(name for name in final_names(renames) if not catalogue.exists(session, name))
        return f"there is no {missing[0]}" if missing else ""
    for event in change.events:
        if isinstance(event, CreateTableEvent):
            present = catalogue.columns(session, event.table_id)
            if present is None or not same_columns(present, event.schema, by_shape=is_by_shape(change)):
                return f"{event.table_id} is not there, or has other columns"
        elif not isinstance(event, AddColumnEvent | DropColumnEvent | RenameColumnEvent) and shows(session, event) is False:
            return f"{type(event).__name__} does not show"
    for table_id, names in column_names(change.events).items():
        columns = _columns(session, table_id)
        if not columns:
            return f"{table_id} is not there"
        if not names.are_those_of(columns):
            lacking, left = sorted(names.present - columns), sorted(names.absent & columns)
            return f"{table_id} lacks column {lacking[0]}" if lacking else f"{table_id} has column {left[0]}"
    return ""


def origins(renames: Iterable[RenameTableEvent]) -> dict[TableId, TableId]:
    """The names after the renames, each with the name that its table had before."""
    found: dict[TableId, TableId] = {}
    for rename in renames:
        found[rename.new_table_id] = found.pop(rename.table_id, rename.table_id)
    return found


def final_names(renames: Iterable[RenameTableEvent]) -> set[TableId]:
    """The names that tables have after these renames, one after another."""
    return set(origins(renames))


def are_renamed(session: MySqlSession, renames: list[RenameTableEvent]) -> bool:
    """Whether all new names exist, and no former name that is not also a new one. A swap looks the same before and after."""
    found = origins(renames)
    final, start = set(found), set(found.values())
    if final == start:
        return False
    return all(catalogue.exists(session, name) for name in final) and not any(
        catalogue.exists(session, name) for name in start - final
    )


def shows(session: MySqlSession, event: SchemaChangeEvent) -> bool | None:
    """Whether the catalogue shows that the event took place; ``None`` if names cannot show it."""
    match event:
        case CreateDatabaseEvent(database=database):
            return catalogue.exists(session, TableId(database))
        case DropDatabaseEvent():
            return databases.is_dropped(session, event)
        case DropTableEvent(table_id=table_id):
            return not catalogue.exists(session, table_id)
        case RenameColumnEvent(old_name=old, new_name=new) if folded_name(old) == folded_name(new):
            return None
        case AddColumnEvent(table_id=table_id) | DropColumnEvent(table_id=table_id) | RenameColumnEvent(table_id=table_id):
            return _column_shows(_columns(session, table_id), event)
        case _:
            return None


def _column_shows(columns: frozenset[str], event: AddColumnEvent | DropColumnEvent | RenameColumnEvent) -> bool:
    match event:
        case AddColumnEvent(column=column):
            return folded_name(column.name) in columns
        case DropColumnEvent(column_name=name):
            return bool(columns) and folded_name(name) not in columns
        case RenameColumnEvent(old_name=old, new_name=new):
            return folded_name(new) in columns and folded_name(old) not in columns


def _columns(session: MySqlSession, table_id: TableId) -> frozenset[str]:
    return frozenset(folded_name(name) for name in catalogue.columns(session, table_id) or ())


def is_by_shape(change: SchemaChange) -> bool:
    """Whether a change that creates a table has no statement for it: the table gets the columns that rows carry, and its key."""
    return change.by_shape or read_statement(change.statement, change.database).kind is not StatementKind.CREATE_TABLE


def same_columns(present: Iterable[str], schema: TableSchema, *, by_shape: bool = False) -> bool:
    """Whether a table with these columns has the schema's columns, with these names and in this order.

    With ``by_shape``, the virtual generated ones may all be missing.
    """
    found = [folded_name(name) for name in present]
    wanted = [folded_name(column.name) for column in schema.columns if not column.hidden]
    return found == wanted or (by_shape and found == list(schema.row_columns_by_name))
