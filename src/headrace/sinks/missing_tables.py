"""The failed checks of ``validate`` for tables that the ledger follows but that are missing in the target."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from headrace.model.commands import word
from headrace.model.ledger import JournalState, LedgerState, TableStatus
from headrace.model.table import SourceTable, TableId, folded_name
from headrace.sinks.base import Check, CheckState

_FOLLOWED = (TableStatus.RUNNING, TableStatus.CATCHING_UP)
_BEGUN = (JournalState.PENDING, JournalState.RUNNING)


def missing_tables(state: LedgerState | None, tables: Collection[SourceTable], present: Collection[TableId]) -> Iterator[Check]:
    """A failed check for each table of the source that is running according to the ledger and not ``present`` in the target.

    A table with a schema change in progress is left out, because it may be between two steps. ``None``: there is no record.
    """
    if state is None:
        return
    there = {_folded(table_id) for table_id in present}
    wanted = {_folded(table.schema.table_id) for table in tables}
    begun = {table_id for entry in state.journal.values() if entry.state in _BEGUN for table_id in entry.tables}
    for table_id, own in sorted(state.tables.items()):
        if own.status in _FOLLOWED and table_id not in begun and _folded(table_id) in wanted - there:
            lacks = f"the ledger says that it is {own.status}, but the target does not have it"
            detail = f"{table_id}: {lacks}: it will stop at its next rows."
            advice = f"Create it again with the rows that it had, or let it begin anew: headrace reset --table {word(table_id)}."
            yield Check("tables", CheckState.FAILED, detail, advice)


def _folded(table_id: TableId) -> tuple[str, str]:
    return folded_name(table_id.database), folded_name(table_id.table)
