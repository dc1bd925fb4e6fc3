"""Tables whose names differ only in case. To the source, and to most targets, these are one name that several tables had in turn.

So a schema change waits for what was done before to a table of its name in whatever case. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass

from headrace.engine.unreadable import known_names
from headrace.model.events import SchemaChange
from headrace.model.ledger import LedgerState
from headrace.model.table import TableId


@dataclass(frozen=True)
class _Noted:
    """Who had a name last, of the changes that were noted, and as of when (TSO)."""

    table_id: TableId
    commit_ts: int


class Namesakes:
    """Who had a name in another case before a schema change: the ledger's tables, and those of the changes that were noted.

    Of those that were noted the last one is enough: its change waited for the one before. Otherwise a name in many spellings
    would cost as many waits as there are pairs of them.
    """

    def __init__(self, state: LedgerState) -> None:
        self._state = state
        self._noted: dict[TableId, _Noted] = {}

    def note(self, change: SchemaChange) -> None:
        """Takes up the tables of a change. Those asked for later come after it."""
        for table_id in sorted(change.changes & known_names(change)):
            self._noted[table_id.folded] = _Noted(table_id, change.commit_ts)

    def of(self, change: SchemaChange) -> frozenset[TableId]:
        """The tables that had the names which the change touches, spelled otherwise."""
        found: set[TableId] = set()
        for name in known_names(change):
            noted = self._noted.get(name.folded)
            if noted is not None:
                found.add(noted.table_id)
            since = -1 if noted is None else noted.commit_ts  # the noted one waited for those of before
            rows = self._state.born_as(name, since, change.commit_ts)
            found |= {row.table_id for row in rows if not row.status.is_gone}
        return frozenset(found) - change.touches
