"""Which tables lack rows at a place in a cut, and which schema changes would give their rows to other tables. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from headrace.engine.journal import tables_of_dropped
from headrace.model.events import (
    CreateTableEvent,
    DropTableEvent,
    ExchangePartitionEvent,
    OtherEvent,
    RenameTableEvent,
    SchemaChange,
    TruncateTableEvent,
)
from headrace.model.ledger import LedgerState, TableStatus
from headrace.model.table import TableId


class Lacking:
    """The tables that lack rows, found by going through the schema changes of a cut in order.

    A cut is planned before its first change runs. So the ledger does not show which names these tables have by then, and which
    of them have ended.
    """

    def __init__(self, state: LedgerState, ends: Mapping[TableId, SchemaChange], passed: int) -> None:
        """``ends``: by table, the change of the cut after which its missing rows are not needed. ``passed``: ``Offer.passed``."""
        self._tables = {t for t, own in state.tables.items() if own.status is TableStatus.INCOMPLETE}
        self._ends = {t: end.identity for t, end in ends.items()}
        self._passed = passed

    def __contains__(self, table_id: TableId) -> bool:
        return table_id in self._tables

    def exchanging(self, change: SchemaChange) -> list[TableId]:
        """The tables of the change that lack rows, and whose rows it would exchange for those of tables that do not.

        If it is unknown which rows the partition has, the change has an OtherEvent instead of an ExchangePartitionEvent.
        """
        if not any(isinstance(event, ExchangePartitionEvent | OtherEvent) for event in change.events):
            return []
        given = {event.new_table_id for event in change.events if isinstance(event, RenameTableEvent)}
        tables = {t for t in change.changes - given if t.table}
        found = tables & self._tables
        return sorted(found) if found != tables else []

    def note(self, change: SchemaChange, behind: Collection[TableId]) -> None:
        """Notes a change of the cut. ``behind`` are stopped tables that it leaves behind: names that get their rows lack some."""
        self._tables.update(change.changes.intersection(behind))
        for event in change.events:
            match event:
                case RenameTableEvent(old, new) if old in self._tables:
                    self._tables = (self._tables - {old}) | {new}
                case RenameTableEvent(_, name) | DropTableEvent(name):
                    self._tables -= {name}
                case TruncateTableEvent(name) if self._ends.get(name) == change.identity:
                    self._tables -= {name}
                case CreateTableEvent(name) if change.commit_ts < self._passed:
                    self._tables |= {name}
                case _:
                    pass
        self._tables -= tables_of_dropped(change, self._tables)
