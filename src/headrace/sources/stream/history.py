"""The schema changes of a stream in the order of their commit ts, and the shape of each table between them. Pure.

A stream tells each schema change once, or again after a restart of what writes it, and forgets it with its retention. So the
shapes that were in force before come from the ledger.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import replace

from headrace.ddl.classify import Classified, classify
from headrace.ddl.columns import annotate
from headrace.ddl.indexes import with_index_names
from headrace.ddl.names import KnownNames, spelled
from headrace.ddl.partitions import Partitioning, partitioning_after
from headrace.ddl.statement import Statement, StatementKind, read_statement
from headrace.ddl.told import named_collation
from headrace.model.containment import contained
from headrace.model.events import DropDatabaseEvent, DropTableEvent, RenameTableEvent, SchemaChange
from headrace.model.outcome import Problem
from headrace.model.stream import StreamStatement
from headrace.model.table import TableId, TableSchema, folded_name
from headrace.sources.base import KeptShapes

_VIEWS = frozenset({StatementKind.CREATE_VIEW, StatementKind.DROP_VIEW})
_BEGINNINGS = frozenset({StatementKind.CREATE_TABLE, StatementKind.TRUNCATE_TABLE})
_OF_DATABASES = frozenset({StatementKind.CREATE_DATABASE, StatementKind.ALTER_DATABASE})


class StreamHistory:
    """Goes through the statements of a stream. ``changes`` are what they do, ``problems`` those that cannot be handled."""

    def __init__(self, known: KeptShapes, statements: Iterable[StreamStatement]) -> None:
        """``known`` are the shapes of before, as the ledger keeps them."""
        self.changes: list[SchemaChange] = []
        self.problems: list[Problem] = []
        self._versions = {table_id: {shape.version: shape.schema for shape in shapes} for table_id, shapes in known.items()}
        self._tables = {table_id: shapes[-1].schema for table_id, shapes in known.items() if shapes}
        # The versions by which a table came to be, came to its name, or lost its rows: no row from before them counts.
        self._beginnings = {
            (t, shape.version) for t, shapes in known.items() for shape in shapes if shape.incarnation == shape.version
        }
        self._partitionings: dict[TableId, Partitioning | None] = {}
        self._collations: dict[str, str] = defaultdict(str)
        for statement in _each_once(statements):
            with contained(self._failed(statement), statement.table_id, statement.place):
                self._take(statement)

    def versions(self, table_id: TableId) -> list[tuple[int, TableSchema]]:
        """The shapes of a table in order, each with the version (TSO) from which on it is in force."""
        return sorted(self._versions.get(table_id, {}).items())

    def begins(self, table_id: TableId, version: int) -> bool:
        """Whether no row of the table from before a version (TSO) counts."""
        return (table_id, version) in self._beginnings

    def _failed(self, statement: StreamStatement) -> Callable[[Problem], None]:
        def failed(problem: Problem) -> None:
            self.problems.append(replace(problem, table_id=statement.table_id, place=statement.place))

        return failed

    def _take(self, told: StreamStatement) -> None:
        names = KnownNames({told.table_id}, self._tables.keys())
        text = spelled(told.statement, read_statement(told.statement, told.database), names.meant)
        statement = read_statement(text, told.database)
        origin = statement.renames[0][0] if len(statement.renames) == 1 else told.table_id
        before = self._tables.get(origin, self._tables.get(told.table_id))
        pattern = self._tables.get(statement.like) if statement.like else None
        text = with_index_names(text, statement, [index.name for index in before.indexes] if before else ())
        after = self._after(told, statement, text, before, pattern)
        former = self._partitionings.get(origin)
        classified = classify(text, database=told.database, table_id=told.table_id, before=before, after=after, partitioning=former)
        like = self._partitionings.get(statement.like) if statement.like else None
        partitioning = partitioning_after(former, text, told.database, like)
        if statement.kind in _BEGINNINGS or any(isinstance(event, RenameTableEvent) for event in classified.events):
            self._beginnings.add((told.table_id, told.commit_ts))
        database = folded_name(told.database)
        if statement.kind in _OF_DATABASES:
            kept = self._collations[database] if statement.kind is StatementKind.ALTER_DATABASE else ""
            self._collations[database] = named_collation(statement.options) or kept
        gone = self._move(told, classified, after, partitioning, is_view=statement.kind in _VIEWS)
        if not told.statement and not classified.events:
            return  # it only tells the shape of a table that another one's statement changes
        changes = classified.changes
        if not classified.parsed:
            # Nobody knows what the text touches, so it has to wait for everything, and everything for it.
            changes |= frozenset(self._tables) | {told.table_id}
        self.changes.append(
            SchemaChange(
                told.commit_ts,
                told.table_id,
                classified.events,
                text,
                told.database,
                changes,
                classified.reads - changes,
                None if gone else after,
                origin=told.place,
                database_collation=self._collations[database],
            )
        )

    def _after(
        self, told: StreamStatement, statement: Statement, text: str, before: TableSchema | None, pattern: TableSchema | None
    ) -> TableSchema | None:
        if told.schema is None or statement.kind in _VIEWS:
            return None
        return annotate(text, replace(told.schema, table_id=told.table_id), pattern if statement.like else before)

    def _move(
        self,
        told: StreamStatement,
        classified: Classified,
        after: TableSchema | None,
        partitioning: Partitioning | None,
        *,
        is_view: bool,
    ) -> bool:
        """Carries the events out on the known tables; whether the statement's table is gone afterwards."""
        gone = False
        for event in classified.events:
            match event:
                case DropTableEvent(dropped):
                    self._tables.pop(dropped, None)
                    self._partitionings.pop(dropped, None)
                    gone |= dropped == told.table_id
                case DropDatabaseEvent(database):
                    for table_id in [t for t in self._tables if t.lies_in(database)]:
                        del self._tables[table_id]
                        self._partitionings.pop(table_id, None)
                    gone = True
                case RenameTableEvent(old, new):
                    moved = self._tables.pop(old, None)
                    self._partitionings[new] = self._partitionings.pop(old, None)
                    if moved is not None:
                        self._tables[new] = replace(moved, table_id=new)
                        self._versions.setdefault(new, {})[told.commit_ts] = self._tables[new]
                case _:
                    pass
        if after is not None and not gone and not is_view:
            self._tables[told.table_id] = after
            self._partitionings[told.table_id] = partitioning
            self._versions.setdefault(told.table_id, {})[told.commit_ts] = after
        return gone


def _each_once(statements: Iterable[StreamStatement]) -> list[StreamStatement]:
    """The statements in the order of their commit ts, each once: every partition may tell it, and tell it again."""
    found: dict[tuple[int, TableId, str], StreamStatement] = {}
    for told in sorted(statements, key=lambda told: (told.commit_ts, told.partition, told.offset)):
        found.setdefault((told.commit_ts, told.table_id, told.statement), told)
    return list(found.values())
