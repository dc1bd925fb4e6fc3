"""A statement and the shapes around it, to typed schema changes and the objects they touch."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from headrace.ddl.difference import difference, renames_by_id
from headrace.ddl.partitions import Partitioning, row_events
from headrace.ddl.statement import Statement, StatementKind, read_statement
from headrace.model.events import (
    CreateDatabaseEvent,
    CreateTableEvent,
    DropDatabaseEvent,
    DropTableEvent,
    OtherEvent,
    RenameTableEvent,
    SchemaChangeEvent,
    TruncateTableEvent,
)
from headrace.model.table import TableId, TableSchema

_DATABASE_KINDS = frozenset({StatementKind.CREATE_DATABASE, StatementKind.DROP_DATABASE, StatementKind.ALTER_DATABASE})


@dataclass(frozen=True)
class Classified:
    """The events of one statement, in order, and the objects it changes and reads (a database is ``TableId(db)``).

    ``parsed`` is false when the text was not understood at all: then nobody knows what else it touches.
    """

    events: tuple[SchemaChangeEvent, ...]
    changes: frozenset[TableId]
    reads: frozenset[TableId]
    parsed: bool


def classify(
    statement: str,
    *,
    database: str,
    table_id: TableId,
    before: TableSchema | None,
    after: TableSchema | None,
    partitioning: Partitioning | None = None,
) -> Classified:
    """Classifies a DDL statement; never raises.

    ``table_id`` is the object the source filed it under (for a rename the new name), ``database`` the current database for
    names without one. ``before`` and ``after`` are that object's shapes, ``None`` where there is none: they decide about
    structure, the text about the kind. An empty statement only tells a shape: a table that comes to be when there was none
    before, else the difference, which may be no events at all. A table that was first seen by an ALTER comes to be, too, but for
    one that exchanges rows.
    ``partitioning`` is how the object was partitioned before, as far as that is known.
    """
    read = read_statement(statement, database)
    if read.kind in _DATABASE_KINDS:
        return _of_database(read.kind, table_id if table_id.is_database and table_id.database else read.tables[0])
    if read.kind in (StatementKind.DROP_TABLE, StatementKind.DROP_VIEW):
        # One name alone is the one the source filed the statement under: its own spelling counts.
        dropped = (table_id,) if len(read.tables) == 1 and not table_id.is_database else read.tables
        event = DropTableEvent if read.kind is StatementKind.DROP_TABLE else OtherEvent
        return _result(tuple(event(table) for table in dropped), dropped)
    if read.renames:
        return _renamed(read, table_id, before, after)
    return _of_table(read, table_id, before, after, row_events(statement, database, table_id, partitioning))


def changes_rows_unseen(statement: str, database: str) -> bool:
    """Whether a statement changes rows that no change event will tell.

    So do dropping, truncating and exchanging partitions, and bringing dropped tables back: a target that cannot run the
    statement itself would go wrong without a word.
    """
    return bool(row_events(statement, database, TableId(database), None))


def column_renames(read: Statement, before: TableSchema, after: TableSchema) -> dict[str, str]:
    """Old to new column names: those that TiDB's column ids prove, then those that the text tells."""
    renames = renames_by_id(before, after)
    for old, new in read.column_renames:
        renames.setdefault(old, new)
    return renames


def _result(
    events: tuple[SchemaChangeEvent, ...], changes: Iterable[TableId], reads: Iterable[TableId] = (), *, parsed: bool = True
) -> Classified:
    changed = frozenset(changes)
    return Classified(events, changed, frozenset(reads) - changed, parsed)


def _of_database(kind: StatementKind, database: TableId) -> Classified:
    event: SchemaChangeEvent = OtherEvent(database)
    if kind is StatementKind.CREATE_DATABASE:
        event = CreateDatabaseEvent(database.database)
    elif kind is StatementKind.DROP_DATABASE:
        event = DropDatabaseEvent(database.database)
    return _result((event,), [database])


def _renamed(read: Statement, table_id: TableId, before: TableSchema | None, after: TableSchema | None) -> Classified:
    pairs = read.renames
    if len(pairs) == 1 and not table_id.is_database:
        pairs = ((pairs[0][0], table_id),)
    events: list[SchemaChangeEvent] = [RenameTableEvent(old, new) for old, new in pairs]
    # ALTER TABLE may rename and do more; the shape before is only comparable when it is that of the renamed table itself,
    # not of an older table that had the new name.
    if read.kind is StatementKind.ALTER_TABLE and before and after and before.table_id == pairs[0][0]:
        events.extend(difference(before, after, column_renames(read, before, after)))
    names = [name for pair in pairs for name in pair]
    return _result(tuple(events), names, [*read.reads, *(TableId(name.database) for name in names)])


def _of_table(
    read: Statement,
    table_id: TableId,
    before: TableSchema | None,
    after: TableSchema | None,
    of_rows: tuple[SchemaChangeEvent, ...],
) -> Classified:
    """All that is about one table, the empty statement, and what only carries a statement.

    ``of_rows`` are the events of rows that change without row events. They come last: in the shape afterwards, their
    conditions hold of the rows that are there.
    """
    events: tuple[SchemaChangeEvent, ...] = ()
    if read.kind is StatementKind.TRUNCATE_TABLE:
        events = (TruncateTableEvent(table_id),)
    elif read.kind is StatementKind.CREATE_TABLE:
        events = (CreateTableEvent(table_id, after),) if after else ()
    elif read.kind is not StatementKind.CREATE_VIEW and before and after:
        events = difference(before, after, column_renames(read, before, after)) + of_rows
    elif read.kind is StatementKind.ALTER_TABLE and len(read.tables) > 1:
        events = of_rows  # the rows that it exchanges with another table are not brought by a table that comes to be empty
    elif after and read.kind in (StatementKind.EMPTY, StatementKind.ALTER_TABLE):
        events = (CreateTableEvent(table_id, after),)
    if not events and read.kind is not StatementKind.EMPTY:
        events = (OtherEvent(table_id),)
    creates = read.kind in (StatementKind.CREATE_TABLE, StatementKind.CREATE_VIEW)
    needs_database = creates or any(isinstance(event, CreateTableEvent) for event in events)
    reads = [*read.reads, TableId(table_id.database)] if needs_database else read.reads
    further = read.tables if table_id.is_database else read.tables[1:]
    return _result(events, [table_id, *further], reads, parsed=read.kind is not StatementKind.UNKNOWN)
