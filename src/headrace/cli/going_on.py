"""The commands that let a table go on, by how it stands. Pure; ``headrace status`` and ``headrace table list`` print them."""

from __future__ import annotations

from headrace.model.events import is_unread_statement
from headrace.model.progress import JournalEntry, LedgerState, RequestKind, TableProgress, TableStatus

_REPAIRED = "after the repair: headrace table resume {table}"
_LOADED = "after it was loaded anew: headrace table resync {table} --at TSO"
_WITHOUT_ROWS = "without its rows: headrace table skip {table} --to TSO|latest, or --file PATH"
_RELEASED = "let it catch up: headrace table release {table}"
_DECIDED = "decide: headrace ddl {verdicts} '{change}'"
_WAYS = {
    TableStatus.STOPPED: (_REPAIRED, _WITHOUT_ROWS, _LOADED),
    TableStatus.WAITING: (),
    TableStatus.GONE_WAITING: (),
    TableStatus.NEEDS_RESYNC: (_LOADED,),
    TableStatus.INCOMPLETE: (_LOADED,),
    TableStatus.HELD: (_RELEASED, _LOADED),
}
"""For every status of a stopped table; tests/cli/test_going_on.py holds it to the statuses and to all problems."""


def is_held(own: TableProgress, state: LedgerState) -> bool:
    """Whether a hold of the table has taken effect: from then on nothing touches it."""
    hold = state.holds.get(own.table_id)
    return own.status is TableStatus.HELD or (hold is not None and hold.kind is RequestKind.HELD)


def ways_on(own: TableProgress, state: LedgerState) -> tuple[str, ...]:
    """What a person can do for a stopped table, the usual thing first; nothing for any other.

    Of a held one no decision takes effect before it is released.
    """
    if not own.status.is_stopped:
        return ()
    if is_held(own, state):
        return tuple(way.format(table=own.table_id) for way in _WAYS[TableStatus.HELD])
    decisions = tuple(_DECIDED.format(verdicts=_verdicts(entry), change=entry.identity) for entry in _waiting_changes(own, state))
    ways = tuple(way.format(table=own.table_id) for way in _WAYS[own.status])
    if own.status in (TableStatus.WAITING, TableStatus.GONE_WAITING):
        return decisions or ("decide about what it waits behind: headrace ddl list",)
    return (*ways, *decisions)


def _waiting_changes(own: TableProgress, state: LedgerState) -> list[JournalEntry]:
    """The schema changes that the table stopped before; those that come first, first."""
    found = [
        e for e in state.journal.values() if not e.state.is_settled and own.table_id in e.tables and e.commit_ts >= own.checkpoint
    ]
    return sorted(found, key=lambda entry: (entry.commit_ts, entry.identity))


def _verdicts(entry: JournalEntry) -> str:
    return "skip|edit" if is_unread_statement(entry.statement) else "approve|skip|edit"
