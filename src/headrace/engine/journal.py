"""Which schema changes are finished for good, and which entries the journal may therefore drop. Pure.

A change is done if the journal says so. For dropped entries, the rows of their tables show it, and only entries for which those
rows are sufficient are dropped. There is no limit by number, which a long history could exceed.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Sequence
from heapq import nsmallest
from itertools import groupby, takewhile

from headrace.ddl.statement import StatementKind, read_statement
from headrace.model.events import (
    CreateDatabaseEvent,
    CreateTableEvent,
    DeletePartitionRowsEvent,
    DropDatabaseEvent,
    DropTableEvent,
    ExchangePartitionEvent,
    OtherEvent,
    RenameTableEvent,
    SchemaChange,
    TruncateTableEvent,
    is_unread_statement,
)
from headrace.model.ledger import JournalEntry, JournalState, LedgerState, TableStatus
from headrace.model.table import TableId

JOURNAL_KEPT = 200
"""How many of the newest settled entries stay in the journal, for display."""

_BEGINNINGS = frozenset({StatementKind.CREATE_TABLE, StatementKind.ALTER_TABLE, StatementKind.EMPTY})
"""Kinds of the first known change of a table: an ALTER, or a shape alone, may also begin it."""

_MOVES_ROWS = (TruncateTableEvent, RenameTableEvent, ExchangePartitionEvent, DeletePartitionRowsEvent)


def is_pending(state: LedgerState, change: SchemaChange) -> bool:
    """Whether the change still has to be applied: it is not settled, and not older than its tables' checkpoints (rule 2)."""
    entry = state.journal.get(change.identity)
    # A run that begins at `start` takes only later changes: a snapshot as of `start` includes the changes up to and at it.
    is_in_snapshot = change.unread is None and bool(change.statement) and change.commit_ts <= state.start
    if is_in_snapshot or (entry is not None and entry.state.is_settled):
        return False
    if change.unread is not None:
        return _may_be_pending_unread(state, change)
    if comes_late(state, change):
        return True
    reach = state.reach_of(change.changes)
    if not reach.known:
        return change.commit_ts > state.start and reach.namesake <= change.commit_ts
    if entry is None and is_over(state, change.commit_ts, change.changes):
        return False
    return change.commit_ts >= reach.checkpoint or any(_waits_before(state, t, change.commit_ts) for t in change.changes)


def comes_late(state: LedgerState, change: SchemaChange) -> bool:
    """Whether a table has passed a change that was never applied, because its schema file was missing or unreadable then.

    The journal shows this, as far back as it is complete: it has everything that the tables of a cut have passed.
    """
    if not change.statement or change.unread is not None or change.commit_ts <= state.start:
        return False
    newest = state.settled_at[-JOURNAL_KEPT:] if JOURNAL_KEPT else ()
    if not newest or change.commit_ts <= newest[0]:
        return False
    is_drop = drops_databases(change)
    if not is_drop and state.reach_of(change.changes).latest <= change.commit_ts:
        return False
    # For a database that was dropped and created again, its tables show it, whether they are the former or later ones.
    # A table that waits for its own CREATE, which may wait for the DROP, has passed nothing.
    with_database = tables_of_dropped(change, state.tables) if is_drop else frozenset()
    dropped = (t for t in with_database if state.tables[t].is_made or state.tables[t].status.is_gone)
    beyond = (t for t in dropped if state.table_checkpoint(t) > change.commit_ts)
    has_passed = any(_has_passed(state, t, change) for t in change.changes) or _comes_to_former_name(state, change)
    if not has_passed and next(beyond, None) is None:
        return False
    return not any(_covers(state, entry, change) for entry in state.settled.get((change.commit_ts, change.place), ()))


def _has_passed(state: LedgerState, table_id: TableId, change: SchemaChange) -> bool:
    """Whether the table that had this name at a change has passed the change, under this name or until it gave the name away."""
    own, commit_ts = state.tables.get(table_id), change.commit_ts
    if own is None or (own.incarnation == commit_ts and not own.is_made and not own.status.is_gone):
        return _has_namesake_since(state, table_id, commit_ts)
    if own.incarnation <= commit_ts:
        return state.table_checkpoint(table_id) > commit_ts
    # What was skipped tells nothing of the changes before it, unless it brought the present table.
    settled = _settled_after(state, table_id, commit_ts)
    later = [e for e in settled if e.state is not JournalState.SKIPPED or _brings(e, table_id, own.incarnation)]
    first = takewhile(lambda entry: entry.commit_ts == later[0].commit_ts, later)
    if any(not _brings(entry, table_id, own.incarnation) for entry in first):
        return True
    # Every table that stayed in a database ended with its DROP. Only a table that may have left the database is missed.
    leaves = not all(t.lies_in(table_id.database) for t in change.changes)
    ends = (entry for entry in _settled_after(state, TableId(table_id.database), commit_ts) if _drops_database(entry))
    dropped = next(ends, None) if leaves and table_id.table else None
    return dropped is not None and (not later or dropped.commit_ts < later[0].commit_ts)


def _settled_after(state: LedgerState, table_id: TableId, commit_ts: int) -> tuple[JournalEntry, ...]:
    settled = state.settled_of.get(table_id, ())
    return settled[bisect_right(settled, commit_ts, key=lambda entry: entry.commit_ts) :]


def _drops_database(entry: JournalEntry) -> bool:
    return read_statement(entry.statement, entry.tables[0].database).kind is StatementKind.DROP_DATABASE


def _comes_to_former_name(state: LedgerState, change: SchemaChange) -> bool:
    """Whether a RENAME gives a table of the pipeline a name that is over: the name's former table was left out and has ended."""
    for event in change.events:
        if isinstance(event, RenameTableEvent):
            old, new = state.tables.get(event.table_id), state.tables.get(event.new_table_id)
            is_there = old is not None and old.is_made and old.incarnation <= change.commit_ts
            if is_there and new is not None and new.status.is_gone and new.incarnation > change.commit_ts:
                return True
    return False


def _brings(entry: JournalEntry, table_id: TableId, born: int) -> bool:
    """Whether a settled change gave this name to a table: then it does not show which table had the name before.

    ``born`` is the commit ts (TSO) at which the present table got the name, whatever the form of the change.
    """
    place = f"{entry.commit_ts}/{table_id.key}"
    read = read_statement(entry.statement, table_id.database)
    creates = entry.commit_ts == born or read.kind is StatementKind.CREATE_TABLE
    return (creates and entry.place == place) or any(new == table_id for _, new in read.renames)


def sets_of(changes: Iterable[SchemaChange]) -> Collection[frozenset[TableId]]:
    """The sets of tables that the changes change, each set once, since many changes may share a set of all tables."""
    return {change.changes for change in changes}


def drops_databases(change: SchemaChange) -> bool:
    return any(isinstance(event, DropDatabaseEvent) for event in change.events)


def tables_of_dropped(change: SchemaChange, tables: Iterable[TableId]) -> frozenset[TableId]:
    """The tables in a dropped database, which end with it."""
    dropped = [e.database for e in change.events if isinstance(e, DropDatabaseEvent)]
    return frozenset(t for t in tables for database in dropped if t.lies_in(database)) if dropped else frozenset()


def concerns(change: SchemaChange, tables: Collection[TableId]) -> bool:
    """Whether the change touches one of these tables, or drops the database of one."""
    return not change.touches.union(tables_of_dropped(change, tables)).isdisjoint(tables)


def comes_back(state: LedgerState, changes: Iterable[SchemaChange]) -> bool:
    """Whether one of the changes is the next CREATE, up to the checkpoint, of a table that is gone.

    Such a table was stopped when a cut got there, and has ended since. Nothing else would cause another cut before the watermark
    moves.
    """
    gone = {t for t, own in state.tables.items() if own.status.is_gone}
    return any(is_pending(state, c) for c in changes if c.commit_ts <= state.checkpoint and c.changes & gone)


def is_born_later(state: LedgerState, table_id: TableId, commit_ts: int) -> bool:
    """Whether the table with this name now, in any case, began after a commit ts (TSO): earlier changes do not concern it."""
    own = state.tables.get(table_id)
    if (own is not None and own.incarnation > commit_ts) or _has_namesake_since(state, table_id, commit_ts):
        return True
    # The end of a table that was created again may have been missed; its row then continues.
    return any(
        at > commit_ts
        and place == f"{at}/{table_id.key}"
        and any(read_statement(entry.statement, table_id.database).kind is StatementKind.CREATE_TABLE for entry in entries)
        for (at, place), entries in state.settled.items()
    )


def _has_namesake_since(state: LedgerState, table_id: TableId, commit_ts: int) -> bool:
    """Whether a table whose name differs only in case began after a commit ts (TSO)."""
    return any(row.table_id != table_id and row.has_been for row in state.born_as(table_id, commit_ts))


def of_former_lives(state: LedgerState, change: SchemaChange) -> list[TableId]:
    """Tables of a late change that are gone or whose names belong to others now: the change would hit those, or nothing."""
    ts = change.commit_ts
    ended = {t for t, own in state.tables.items() if own.status.is_gone and own.checkpoint > ts}
    return [t for t in change.changes if t in ended or is_born_later(state, t, ts)]


def _covers(state: LedgerState, entry: JournalEntry, change: SchemaChange) -> bool:
    """Whether a settled entry at the change's own place means that the change needs no more work.

    An entry with a statement does: it is the change in another spelling, or a person's decision while its file could not be read.
    An entry of a mere shape says nothing about other tables, or about rows that existed before.
    """
    if entry.statement:
        return True
    own = state.tables.get(change.table_id)
    moves_rows = any(isinstance(event, _MOVES_ROWS) for event in change.events)
    if moves_rows and own is not None and own.incarnation < change.commit_ts:
        return False
    return set(_had_their_names(state, change.commit_ts, change.changes)) <= set(entry.tables)


def _may_be_pending_unread(state: LedgerState, change: SchemaChange) -> bool:
    """For a change that cannot be read now: whether it may not have been applied while it could be read."""
    if change.is_nobodys:
        return True  # whichever table the rows belong to, they are not applied
    if (change.commit_ts, change.place) in state.settled:
        return False
    if not change.changes:
        return change.commit_ts > state.start and change.commit_ts >= state.checkpoint
    return any(is_before(state, t, change.commit_ts) for t in change.changes)


def has_run(entry: JournalEntry, change: SchemaChange) -> bool:
    """Whether the source's own statement ran, according to its settled entry: it was neither skipped nor replaced."""
    return entry.state is JournalState.DONE and entry.statement == change.statement


def is_before(state: LedgerState, table_id: TableId, commit_ts: int) -> bool:
    """Whether a table has not passed a commit ts (TSO)."""
    return reached(state, table_id) <= commit_ts


def reached(state: LedgerState, table_id: TableId) -> int:
    """The first commit ts (TSO) that a table has not passed."""
    return state.table_checkpoint(table_id) if table_id in state.tables else state.start + 1


def is_over(state: LedgerState, commit_ts: int, tables: Collection[TableId]) -> bool:
    """Whether the rows of its tables alone show that a change is done.

    At the pipeline's checkpoint and above, only the journal shows it. The same holds for a table that is exactly at the change,
    except for one that the change ended (DROP, RENAME): it stays there forever, and no later cut may end it again.
    """
    if commit_ts >= state.checkpoint or any(_waits_before(state, t, commit_ts) for t in tables):
        return False
    greatest = max((state.table_checkpoint(t) for t in tables), default=0)
    gone = all(t in state.tables and state.tables[t].status.is_gone for t in tables)
    return greatest > commit_ts or (gone and greatest == commit_ts)


def unfollowed(state: LedgerState) -> frozenset[TableId]:
    """The tables that are not followed: their CREATE was skipped."""
    return state.not_followed


def is_of(tables: Collection[TableId], change: SchemaChange) -> bool:
    """Whether the change alters or renames some of these tables and no others, and neither creates nor drops any."""
    renamed: set[TableId] = set()
    exchanged = change.changes - {event.new_table_id for event in change.events if isinstance(event, RenameTableEvent)}
    for event in change.events:
        if isinstance(event, CreateDatabaseEvent | DropDatabaseEvent | CreateTableEvent | DropTableEvent):
            return False
        # An EXCHANGE of a partition whose rows are not known has an OtherEvent.
        concerned = exchanged if isinstance(event, ExchangePartitionEvent | OtherEvent) else {event.table_id}
        if not concerned <= {*renamed, *tables}:
            return False
        if isinstance(event, RenameTableEvent):
            renamed.add(event.new_table_id)
    return bool(change.events)


def forgettable(state: LedgerState) -> tuple[str, ...]:
    """The identities of settled entries that are not needed: not among the newest, and done according to their tables' rows.

    The last change of each table stays, to detect that the schema file with the table's shape is missing.
    """
    settled = [entry for entry in state.journal.values() if entry.state.is_settled]
    surplus = nsmallest(len(settled) - JOURNAL_KEPT, settled, key=lambda entry: entry.commit_ts)
    if not surplus:
        return ()
    kept = {entry.identity for table_id in state.tables for entry in _skipped_beginnings(state, table_id)}
    last = {t: entry for entry in sorted(settled, key=lambda entry: entry.commit_ts) for t in entry.tables}
    living = {t: own for t, own in state.tables.items() if not own.status.is_gone}
    kept |= {entry.identity for t, entry in last.items() if t in living and living[t].incarnation < entry.commit_ts}
    return tuple(e.identity for e in surplus if e.identity not in kept and is_over(state, e.commit_ts, e.tables))


def journalled_together(changes: Sequence[SchemaChange], edited: Collection[str]) -> Iterator[Sequence[SchemaChange]]:
    """Groups the changes of one level in order: one change each, except for consecutive CREATE TABLEs of the source.

    These touch no object in common, and the catalogue shows for each whether it ran. So two ledger updates are enough for a
    thousand of them.
    """
    for creates, group in groupby(changes, key=lambda change: _only_creates(change) and change.identity not in edited):
        if creates:
            yield tuple(group)
        else:
            yield from ((change,) for change in group)


def _only_creates(change: SchemaChange) -> bool:
    return bool(change.events) and all(isinstance(event, CreateTableEvent) for event in change.events)


def is_first_sight(state: LedgerState, table_id: TableId) -> bool:
    """Whether the source has shown no earlier table of this name, so that a table in the target may be as of the start."""
    own = state.tables.get(table_id)
    return own is None or not (own.status.is_gone or own.again)


def was_let_in(state: LedgerState, table_id: TableId) -> bool:
    """Whether a person skipped the change that began a table, under this name or a former one: it is followed, not owned."""
    own = state.tables.get(table_id)
    return (own is not None and own.let_in) or any(True for _ in _skipped_beginnings(state, table_id))


def _skipped_beginnings(state: LedgerState, table_id: TableId) -> Iterator[JournalEntry]:
    """The skipped change that began the table with this name: its CREATE, or its first known change."""
    own = state.tables.get(table_id)
    if own is None or own.status.is_gone:
        return
    for entry in state.settled.get((own.incarnation, f"{own.incarnation}/{table_id.key}"), ()):
        read = read_statement(entry.statement, table_id.database)
        begins = read.kind in _BEGINNINGS and not read.renames
        if entry.state is JournalState.SKIPPED and (begins or is_unread_statement(entry.statement)):
            yield entry


def _waits_before(state: LedgerState, table_id: TableId, commit_ts: int) -> bool:
    """Whether the table with this name at a commit ts (TSO) still waits before it.

    Then a table that took another name of the change and passed it came later. A change that was done leaves no such table,
    whatever happens to the names.
    """
    own = state.tables.get(table_id)
    if own is None or own.incarnation > commit_ts or not (own.status.is_stopped or own.status is TableStatus.CATCHING_UP):
        return False
    is_incomplete = own.status is TableStatus.INCOMPLETE
    return not is_incomplete and own.checkpoint <= commit_ts and not (own.after and own.checkpoint == commit_ts)


def _had_their_names(state: LedgerState, commit_ts: int, tables: Collection[TableId]) -> list[TableId]:
    """The tables that had their names at a commit ts (TSO). A table that got its name later says nothing about the former one."""
    return [t for t in tables if t in state.tables and state.tables[t].incarnation <= commit_ts]
