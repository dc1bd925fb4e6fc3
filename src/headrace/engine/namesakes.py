"""Tables whose names differ only in case. To the source, and to most targets, these are one name that several tables had in turn.

So a schema change waits for what was done before to a table of its name in whatever case. Pure.
"""

from __future__ import annotations

from collections import defaultdict

from headrace.model.events import SchemaChange
from headrace.model.ledger import LedgerState
from headrace.model.table import TableId


class Namesakes:
    """Who had a name in another case before a schema change: the ledger's tables, and those of the changes that were noted."""

    def __init__(self, state: LedgerState) -> None:
        self._state = state
        self._noted: dict[TableId, set[TableId]] = defaultdict(set)

    def note(self, change: SchemaChange) -> None:
        """Takes up the tables of a change. Those asked for later come after it."""
        for table_id in change.changes:
            self._noted[table_id.folded].add(table_id)

    def of(self, change: SchemaChange) -> frozenset[TableId]:
        """The tables that had the names which the change touches, spelled otherwise."""
        found: set[TableId] = set()
        for name in change.touches:
            found |= self._noted.get(name.folded, set())
            rows = self._state.by_folded_name.get(name.folded, ())
            found |= {row.table_id for row in rows if not row.status.is_gone and row.incarnation <= change.commit_ts}
        return frozenset(found) - change.touches
