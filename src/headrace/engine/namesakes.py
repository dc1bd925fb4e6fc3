"""Tables whose names differ only in case. For the source, and for most targets, this is one name that several tables had in turn.

So a schema change waits for earlier work on tables with its name in any case. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass

from headrace.engine.unreadable import known_names
from headrace.model.events import SchemaChange
from headrace.model.ledger import LedgerState
from headrace.model.table import TableId


@dataclass(frozen=True)
class _Noted:
    """The table that had a name last among the noted changes, and since when (TSO)."""

    table_id: TableId
    commit_ts: int


class Namesakes:
    """Finds the tables that had a name in another case before a schema change, from the ledger and the noted changes.

    Of the noted ones the last is enough, because its change waited for the one before. Otherwise a name with many spellings would
    cost a wait for each pair of them.
    """

    def __init__(self, state: LedgerState) -> None:
        self._state = state
        self._noted: dict[TableId, _Noted] = {}

    def note(self, change: SchemaChange) -> None:
        """Records the tables of a change. Changes that are looked up afterwards come after it."""
        for table_id in sorted(change.changes & known_names(change)):
            self._noted[table_id.folded] = _Noted(table_id, change.commit_ts)

    def of(self, change: SchemaChange) -> frozenset[TableId]:
        """The tables that had the names that the change touches, in another spelling."""
        found: set[TableId] = set()
        for name in known_names(change):
            noted = self._noted.get(name.folded)
            if noted is not None:
                found.add(noted.table_id)
            since = -1 if noted is None else noted.commit_ts  # the noted one waited for earlier ones
            rows = self._state.born_as(name, since, change.commit_ts)
            found |= {row.table_id for row in rows if not row.status.is_gone}
        return frozenset(found) - change.touches
