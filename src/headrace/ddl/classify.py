"""Classifies a statement: from its text and the shapes before and after, to typed schema changes and the objects they touch."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from headrace.ddl.column_effects import added_anew, unexplained
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
    """The events of one statement, in order, and the objects that it changes and reads (a database is ``TableId(db)``).

    ``parsed`` is false if the text was not understood at all. It is then unknown what else the statement touches.
    """

    events: tuple[SchemaChangeEvent, ...]
    changes: frozenset[TableId]
    reads: frozenset[TableId]
    parsed: bool
    unexplained: str = ""
    """How the shapes differ beyond what the statement says, as a clause; empty if it explains them."""


def classify(
    statement: str,
    *,
    database: str,
    table_id: TableId,
    before: TableSchema | None,
    after: TableSchema | None,
    partitioning: Partitioning | None = None,
    again: bool = False,
) -> Classified:
    """Classifies a DDL statement; never raises.

    Args:
        statement: the DDL text. An empty text stands for a shape alone: it creates the table if there was none before; else it
            gives the difference of the shapes, which may be no events at all.
        database: the current database for names without one.
        table_id: the object under which the source stores the statement (for a rename, the new name).
        before: the object's shape before the statement, ``None`` if there is none. The shapes determine the structure, the text
            determines the kind.
        after: the object's shape after the statement, ``None`` if there is none.
        partitioning: how the object was partitioned before, if it is known.
        again: whether ``before`` may be the shape after the statement, because another file of its version was there before. Then
            the statement need not explain the shapes.

    A table that is first seen in an ALTER is created too, unless the ALTER exchanges rows.
    """
    read = read_statement(statement, database)
    if read.kind in _DATABASE_KINDS:
        return _of_database(read.kind, table_id if table_id.is_database and table_id.database else read.tables[0])
    if read.kind in (StatementKind.DROP_TABLE, StatementKind.DROP_VIEW):
        # A single name is the one under which the source stores the statement; the source's spelling counts.
        dropped = (table_id,) if len(read.tables) == 1 and not table_id.is_database else read.tables
        event = DropTableEvent if read.kind is StatementKind.DROP_TABLE else OtherEvent
        return _result(tuple(event(table) for table in dropped), dropped)
    compared = _Compared(read, before, after, again=again)
    if read.renames:
        return _renamed(read, table_id, compared)
    return _of_table(read, table_id, compared, row_events(statement, database, table_id, partitioning))


def changes_rows_unseen(statement: str, database: str) -> bool:
    """Whether a statement changes rows without row events.

    This is so for dropping, truncating and exchanging partitions, and for recovering dropped tables. A target that cannot run such
    a statement itself would silently have wrong rows.
    """
    return bool(row_events(statement, database, TableId(database), None))


def column_renames(read: Statement, before: TableSchema, after: TableSchema) -> dict[str, str]:
    """Old to new column names: first those proven by TiDB's column ids, then those in the text."""
    renames = renames_by_id(before, after)
    for old, new in read.column_renames:
        renames.setdefault(old, new)
    return renames


@dataclass(frozen=True)
class _Compared:
    """A statement with the shapes before and after it."""

    read: Statement
    before: TableSchema | None
    after: TableSchema | None
    again: bool

    @property
    def events(self) -> tuple[SchemaChangeEvent, ...]:
        if not self.before or not self.after:
            return ()
        anew = frozenset[str]() if self.again else added_anew(self.read, self.before, self.after)
        return difference(self.before, self.after, column_renames(self.read, self.before, self.after), anew)

    @property
    def unexplained(self) -> str:
        return unexplained(self.read, self.before, self.after) if self.before and self.after and not self.again else ""


def _result(
    events: tuple[SchemaChangeEvent, ...],
    changes: Iterable[TableId],
    reads: Iterable[TableId] = (),
    *,
    parsed: bool = True,
    unexplained: str = "",
) -> Classified:
    changed = frozenset(changes)
    return Classified(events, changed, frozenset(reads) - changed, parsed, unexplained)


def _of_database(kind: StatementKind, database: TableId) -> Classified:
    event: SchemaChangeEvent = OtherEvent(database)
    if kind is StatementKind.CREATE_DATABASE:
        event = CreateDatabaseEvent(database.database)
    elif kind is StatementKind.DROP_DATABASE:
        event = DropDatabaseEvent(database.database)
    return _result((event,), [database])


def _renamed(read: Statement, table_id: TableId, compared: _Compared) -> Classified:
    pairs = read.renames
    if len(pairs) == 1 and not table_id.is_database:
        pairs = ((pairs[0][0], table_id),)
    events: list[SchemaChangeEvent] = [RenameTableEvent(old, new) for old, new in pairs]
    # ALTER TABLE may rename and do more; the shape before is only comparable when it is that of the renamed table itself,
    # not of an older table that had the new name.
    told = ""
    if compared.before and compared.before.table_id in {old for old, new in pairs if new == table_id}:
        if read.kind is StatementKind.ALTER_TABLE:
            events.extend(compared.events)
        told = compared.unexplained
    names = [name for pair in pairs for name in pair]
    return _result(tuple(events), names, [*read.reads, *(TableId(name.database) for name in names)], unexplained=told)


def _of_table(
    read: Statement,
    table_id: TableId,
    compared: _Compared,
    of_rows: tuple[SchemaChangeEvent, ...],
) -> Classified:
    """Classifies statements about one table, the empty statement, and changes that have only a statement.

    ``of_rows`` are the events for rows that change without row events. They come last, because their conditions apply to the rows
    in the shape afterwards.
    """
    events: tuple[SchemaChangeEvent, ...] = ()
    after, told = compared.after, ""
    if read.kind is StatementKind.TRUNCATE_TABLE:
        events, told = (TruncateTableEvent(table_id),), compared.unexplained
    elif read.kind is StatementKind.CREATE_TABLE:
        events = (CreateTableEvent(table_id, after),) if after else ()
    elif read.kind is not StatementKind.CREATE_VIEW and compared.before and after:
        events = compared.events + of_rows
        told = compared.unexplained
    elif read.kind is StatementKind.ALTER_TABLE and len(read.tables) > 1:
        events = of_rows  # creating the table empty would not bring the rows that it exchanges with another table
    elif after and read.kind in (StatementKind.EMPTY, StatementKind.ALTER_TABLE):
        events = (CreateTableEvent(table_id, after),)
    if not events and read.kind is not StatementKind.EMPTY:
        events = (OtherEvent(table_id),)
    creates = read.kind in (StatementKind.CREATE_TABLE, StatementKind.CREATE_VIEW)
    needs_database = creates or any(isinstance(event, CreateTableEvent) for event in events)
    reads = [*read.reads, TableId(table_id.database)] if needs_database else read.reads
    further = read.tables if table_id.is_database else read.tables[1:]
    return _result(events, [table_id, *further], reads, parsed=read.kind is not StatementKind.UNKNOWN, unexplained=told)
