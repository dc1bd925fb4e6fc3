"""Statements about a view whose name belongs to a table, and the other way round: the source does not change that object.

MySQL and MariaDB run DROP VIEW IF EXISTS of a table, DROP TABLE IF EXISTS of a view, CREATE VIEW IF NOT EXISTS of a table and
CREATE TABLE IF NOT EXISTS of a view without an effect and give a warning. MariaDB logs the first three, MySQL the last too (MySQL
manual, "Replication of CREATE ... IF NOT EXISTS Statements"). A restored dump has such statements for each of its views. Without IF
[NOT] EXISTS, both refuse the statement for that name.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from headrace.ddl.statement import Statement, StatementKind
from headrace.engine.excluded_tables import cannot_be_made
from headrace.model.events import CreateTableEvent, DropTableEvent, OtherEvent, SchemaChange, SchemaChangeEvent
from headrace.model.ledger import LedgerState, TableStatus
from headrace.model.outcome import Notice, Problem
from headrace.model.table import TableId
from headrace.sinks.metadata_applier import TableDescription

_CREATES = frozenset({StatementKind.CREATE_TABLE, StatementKind.CREATE_VIEW})
_OF_VIEWS = frozenset({StatementKind.CREATE_VIEW, StatementKind.DROP_VIEW})


@dataclass(frozen=True)
class ObjectKinds:
    """Distinguishes the pipeline's tables from its views.

    The ledger has rows of views only if the target has views. The target's catalogue then shows which of the two a name is.
    """

    views: bool
    """Whether the target has views (``SinkCapabilities.views``)."""
    describe: Callable[[TableId], TableDescription | None]

    def unchanged(self, change: SchemaChange, read: Statement, state: LedgerState) -> frozenset[TableId]:
        """The names that the statement drops or creates as an object of another kind than they are. ``read`` is the statement."""
        names = {name for name in map(named_by, change.events) if name is not None}
        if read.kind in _OF_VIEWS:
            return frozenset(t for t in names if self._is_table(t, state, if_exists=read.if_exists))
        # A target refuses a CREATE TABLE without IF NOT EXISTS where it has a view.
        takes_for_table = read.kind is StatementKind.DROP_TABLE or (read.kind is StatementKind.CREATE_TABLE and read.if_exists)
        return frozenset(t for t in names if self._is_view(t, state)) if takes_for_table and self.views else frozenset()

    def _is_table(self, name: TableId, state: LedgerState, *, if_exists: bool) -> bool:
        """Whether the name is a table of the source.

        For one that was never created because its records were passed over, only the statement tells: without IF [NOT] EXISTS the
        source would have refused it for a table.
        """
        row = state.tables.get(name)
        if row is None:
            return False
        if row.status is TableStatus.NOT_FOLLOWED or cannot_be_made(row):
            return if_exists
        if not (row.is_made and self.views):
            return row.is_made
        found = self.describe(name)
        return found is not None and not found.is_view

    def _is_view(self, name: TableId, state: LedgerState) -> bool:
        row = state.tables.get(name)
        found = self.describe(name) if row is not None and row.is_made else None
        return found is not None and found.is_view


def in_the_way(change: SchemaChange, read: Statement) -> Notice | Problem | None:
    """What prevents a change that names objects of another kind (``SchemaChange.unchanged``); ``None`` if nothing does.

    A notice: all of its names are such, and it says IF [NOT] EXISTS, so there is nothing to do. A problem: the source would have
    refused it, so what the source has under that name is unknown.
    """
    if not change.unchanged:
        return None
    names = ", ".join(map(str, sorted(change.unchanged)))
    kind, other = ("a table", "a view") if read.kind in _OF_VIEWS else ("a view", "a table")
    if not read.if_exists:
        message = (
            f"its schema change at {change.commit_ts} is a {read.kind}, but {names} is {kind} here, not {other}. The source would "
            "have refused it, so an earlier schema change is missing."
        )
        hint = f"Check in the source what {names} is."
        return Problem(change.table_id, message, place=change.origin, hint=hint)
    if change.events:
        return None
    existence = "IF NOT EXISTS" if read.kind in _CREATES else "IF EXISTS"
    return Notice(f"{read.kind} {existence} changed nothing: {names} is {kind}, not {other}.", change.table_id)


def named_by(event: SchemaChangeEvent) -> TableId | None:
    """The table or view that an event of a CREATE or DROP of tables or views is about; ``None`` for other events."""
    return event.table_id if isinstance(event, CreateTableEvent | DropTableEvent | OtherEvent) and event.table_id.table else None
