"""The commands that let a stopped table go on, depending on its state.

Pure functions. ``headrace status`` and ``headrace table list`` print the result, and so does the end of a run.
"""

from __future__ import annotations

from collections.abc import Sequence

from headrace.ddl.statement import read_statement
from headrace.engine.requests import does_not_fit
from headrace.model.commands import in_quotes, word
from headrace.model.events import is_unread_statement
from headrace.model.ledger import HOLDS, JournalEntry, JournalState, LedgerState, RequestKind, TableProgress, TableStatus
from headrace.model.table import TableId

_REPAIRED = "after the repair: headrace table resume {table}"
_LOADED = "after it was loaded anew: headrace table resync {table} --at TSO{until}"
_WITHOUT_ROWS = "without its rows: headrace table skip {table} --to TSO|latest, or --file PATH"
_WITHOUT_RECORDS = "without its rows: headrace table skip {table} --to TSO|latest, or --partition P --offset N"
_RELEASED = "let it catch up: headrace table release {table}"
_WITH = "it goes on when {others}, which stopped earlier or is held, reaches the same schema change: headrace table list"
_DECIDED = "decide: headrace ddl {verdicts} {change}"
_WAYS = {
    TableStatus.STOPPED: (_REPAIRED, _WITHOUT_ROWS, _LOADED),
    TableStatus.WAITING: (),
    TableStatus.GONE_WAITING: (),
    TableStatus.NEEDS_RESYNC: (_LOADED,),
    TableStatus.INCOMPLETE: (_LOADED,),
    TableStatus.HELD: (_RELEASED, _LOADED),
}
"""For every status of a stopped table. ``tests/cli/test_going_on.py`` checks that all statuses and all problems are covered."""


def is_held(own: TableProgress, state: LedgerState) -> bool:
    """Whether a hold of the table has taken effect, so that nothing is written to the table."""
    hold = state.holds.get(own.table_id)
    return own.status is TableStatus.HELD or (hold is not None and hold.kind is RequestKind.HELD)


def ways_on(own: TableProgress, state: LedgerState, *, of_stream: bool = False) -> tuple[str, ...]:
    """What a person can do about a stopped table, the most usual first; empty for a table that is not stopped.

    For a held table no decisions are listed, because none takes effect before the release. ``of_stream``: the source has records
    instead of files.
    """
    if not own.status.is_stopped:
        return ()
    waiting = _waiting_changes(own, state)
    until = _until(own, waiting)
    if is_held(own, state):
        ways = (_LOADED,) if _is_loaded_elsewhere(own, state) else _WAYS[TableStatus.HELD]
        return tuple(way.format(table=word(own.table_id), until=until) for way in ways)
    if any(entry.state is JournalState.RUNNING for entry in waiting):
        return ()  # it goes on by itself
    decided = (e for e in waiting if not _is_held(e, state))
    decisions = tuple(_DECIDED.format(verdicts=_verdicts(e, state), change=in_quotes(e.identity)) for e in decided)
    stands_at_it = bool(waiting) and own.checkpoint == waiting[0].commit_ts
    # Giving up rows does not make a schema change run.
    named = [way for way in _WAYS[own.status] if not (stands_at_it and way is _WITHOUT_ROWS)]
    if own.table_id.is_database:
        named = [way for way in named if way is _REPAIRED]  # it has no rows
    named = [_WITHOUT_RECORDS if of_stream and way is _WITHOUT_ROWS else way for way in named]
    ways = tuple(way.format(table=word(own.table_id), until=until) for way in named)
    if stands_at_it and (before := _before(waiting[0], state) - {own.table_id}):
        ways = (_LOADED.format(table=word(own.table_id), until=until),) if _got_its_name(own, waiting[0]) else ()
        return (_WITH.format(others=", ".join(map(str, sorted(before)))), *ways, *decisions)
    if own.status in (TableStatus.WAITING, TableStatus.GONE_WAITING):
        return decisions or ("decide about the schema change that it waits for: headrace ddl list",)
    return (*ways, *decisions)


def _is_loaded_elsewhere(own: TableProgress, state: LedgerState) -> bool:
    """Whether the held table was loaded as of a time that does not match its checkpoint: once released, it needs another load."""
    standing = (r for r in state.requests.values() if r.table_id == own.table_id and r not in state.released)
    return any(does_not_fit(state, request) for request in standing if request.kind in (*HOLDS, RequestKind.RESYNC))


def _before(entry: JournalEntry, state: LedgerState) -> set[TableId]:
    """The tables of a waiting schema change that stopped before it or are held. It runs when all of them have reached it."""
    rows = (state.tables[t] for t in entry.tables if t in state.tables)
    stopped = {own.table_id for own in rows if own.status.is_stopped and own.checkpoint < entry.commit_ts}
    return stopped | state.held.intersection(entry.tables)


def _is_held(entry: JournalEntry, state: LedgerState) -> bool:
    """Whether no decision about the change takes effect before a table is released."""
    return not state.held.isdisjoint(entry.tables)


def _until(own: TableProgress, waiting: Sequence[JournalEntry]) -> str:
    """Text that limits the time of a new load, if a waiting RENAME gives the table's rows another name; else empty."""
    for entry in waiting:
        for old, new in read_statement(entry.statement, own.table_id.database).renames:
            if old == own.table_id:
                return f", below {entry.commit_ts}; from then on its rows are in {new}"
    return ""


def _got_its_name(own: TableProgress, entry: JournalEntry) -> bool:
    """Whether the change is a RENAME to the table's name. The table may then be loaded anew as of a time after the change."""
    renames = read_statement(entry.statement, own.table_id.database).renames
    return len(renames) == 1 and renames[0][1] == own.table_id


def _waiting_changes(own: TableProgress, state: LedgerState) -> list[JournalEntry]:
    """The schema changes before which the table stopped, or that were found after it was dropped, in the order of commit ts."""
    is_gone = own.status is TableStatus.GONE_WAITING
    waiting = (e for e in state.journal.values() if not e.state.is_settled and own.table_id in e.tables)
    found = [e for e in waiting if is_gone or e.commit_ts >= own.checkpoint]
    return sorted(found, key=lambda entry: (entry.commit_ts, entry.identity))


def _verdicts(entry: JournalEntry, state: LedgerState) -> str:
    """The possible decisions about a change, separated by ``|``.

    A change cannot be approved as it is in these cases: its statement cannot be read; one of its tables is held, or stopped before
    it; no event contains the rows that it changed; or its table is gone, or has given its name to another one.
    """
    rows = [state.tables[t] for t in entry.tables if t in state.tables]
    futile = {own.status for own in rows} & {TableStatus.NEEDS_RESYNC, TableStatus.GONE_WAITING}
    futile |= {own.status for own in rows if own.is_made and own.incarnation > entry.commit_ts}
    return "skip|edit" if futile or is_unread_statement(entry.statement) or _before(entry, state) else "approve|skip|edit"
