"""How a table filter, and changes to it, affect tables: left out, included again, or renamed into or out of the filter. Pure.

A table that ``--tables`` leaves out keeps its own checkpoint in the ledger (``TableStatus.EXCLUDED``), however far the pipeline
advances, and is neither read nor changed. When the filter includes it again, it catches up from there with everything that the
source still has. If its rows move into an included table (RENAME, EXCHANGE PARTITION), it is followed up to that schema change
although it is left out.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from headrace.ddl.statement import StatementKind, read_statement
from headrace.engine.identities import recognised
from headrace.engine.journal import is_pending, sets_of, tables_of_dropped
from headrace.model.commands import in_quotes, word
from headrace.model.events import (
    CreateTableEvent,
    DropDatabaseEvent,
    DropTableEvent,
    ExchangePartitionEvent,
    RenameTableEvent,
    SchemaChange,
)
from headrace.model.ledger import JournalEntry, JournalState, LedgerState, TableProgress, TableStatus
from headrace.model.outcome import Notice, Problem, Remedy
from headrace.model.table import TableId
from headrace.model.tso import MAX_TSO, format_tso
from headrace.sinks.base import LedgerUpdate

Includes = Callable[[TableId], bool]

_UNKNOWN_PLACE = (
    "an older version of Headrace left it out with --tables and did not record its checkpoint, so any of its changes may be "
    "missing."
)
_LOAD = "Load it anew as of a time after {at}, and run headrace table resync {table} --at TIME."


def inside(rows: Iterable[TableProgress], change: SchemaChange, outside: Mapping[TableId, int]) -> tuple[TableProgress, ...]:
    """The ledger rows without those of left-out tables, unless the table is followed up to the change or gets its name by it.

    ``outside`` has the commit ts (TSO) up to which left-out tables are followed (``Cut.outside``).
    """
    new = {event.new_table_id for event in change.events if isinstance(event, RenameTableEvent)}
    kept = []
    for row in rows:
        end = outside.get(row.table_id)
        if end is None:
            kept.append(row)
        elif end >= change.commit_ts or row.table_id in new:
            keeps = row.status.is_gone or row.status is TableStatus.INCOMPLETE
            kept.append(row if keeps else replace(row, status=TableStatus.EXCLUDED, reason=""))
    return tuple(kept)


@dataclass(frozen=True)
class Followed:
    """Which tables a cut follows, and up to which commit ts."""

    includes: Includes
    """The table filter."""
    until: Mapping[TableId, int] = field(default_factory=dict)
    """Left-out tables that are followed up to a schema change (TSO), because it moves their rows or names to included tables, or
    because a run began it."""
    refused: Mapping[str, Problem] = field(default_factory=dict)
    """Such changes, by identity, whose rows cannot be followed, with the reason."""
    _ends: dict[frozenset[TableId], int] = field(default_factory=dict, init=False, repr=False, compare=False)

    def end(self, table_id: TableId) -> int:
        """The commit ts (TSO) up to which the table is followed; 0 if it is left out and not followed."""
        return MAX_TSO + 1 if self.includes(table_id) else self.until.get(table_id, 0)

    def takes(self, change: SchemaChange) -> bool:
        """Whether the change concerns a table that is followed at least up to it."""
        if change.changes not in self._ends:
            self._ends[change.changes] = max(map(self.end, change.changes), default=-1)
        return self._ends[change.changes] >= change.commit_ts


def followed(state: LedgerState, changes: Sequence[SchemaChange], includes: Includes) -> Followed:
    """The followed tables, including left-out ones, as they result from all known schema changes (in order)."""
    pending = [change for change in changes if is_pending(state, change)]
    inside = {tables for tables in sets_of(pending) if all(includes(t) for t in tables)}
    crossing = [change for change in pending if change.changes not in inside]
    begins = _beginnings(changes) if state.start else {}
    lost = {t for t, first in begins.items() if first < state.start and t not in state.tables and not includes(t)}
    history = _History(includes, lost, _by_folded_name([*state.tables, *(t for tables in sets_of(crossing) for t in tables)]))
    for change in crossing:
        if was_begun(state, change):
            history.until |= {t: change.commit_ts for t in change.changes if not includes(t)}
    size = -1
    while size < (size := sum(history.until.values())):
        # A table that is followed up to a later change takes part in earlier changes, and so do the other tables of those changes.
        history.go_back(crossing)
    until = {t: ts for t, ts in history.until.items() if t not in lost}
    for table_id, ts in list(until.items()):
        database = TableId(table_id.database)
        if not includes(database) and database not in lost:
            until[database] = max(until.get(database, 0), ts)
    return Followed(includes, until, history.refused)


def was_begun(state: LedgerState, change: SchemaChange) -> bool:
    """Whether a run ended while it ran a CREATE or RENAME. It is finished although the filter leaves its tables out by now.

    The target may have the table of that name, while the ledger does not say yet that it is the pipeline's. If such a table was
    left out as it is, and the source dropped it, it would stay in the target. After other changes, the ledger says so already.
    """
    entry = state.journal.get(change.identity)
    is_begun = entry is not None and entry.state is JournalState.PENDING
    return is_begun and any(isinstance(event, CreateTableEvent | RenameTableEvent) for event in change.events)


@dataclass
class _History:
    """Collects which left-out tables are followed, in repeated backward passes through the schema changes."""

    includes: Includes
    lost: Collection[TableId]
    """Left-out tables with rows from before ``--start`` that were not loaded."""
    names: Mapping[TableId, Collection[TableId]]
    """All known names, by their folded form."""
    until: dict[TableId, int] = field(default_factory=dict)
    """See :class:`Followed`."""
    refused: dict[str, Problem] = field(default_factory=dict)
    """See :class:`Followed`."""

    def go_back(self, changes: Sequence[SchemaChange]) -> None:
        """One backward pass through the changes."""
        live: set[TableId] = set()
        makes_room: dict[TableId, SchemaChange] = {}
        for change in reversed(changes):
            for event in reversed(change.events):
                for table_id in self._concerned(change, event, live, makes_room):
                    self.until[table_id] = max(self.until.get(table_id, 0), change.commit_ts)
                    if table_id in live and table_id in self.lost:
                        self.refused[change.identity] = _not_followed(change, table_id)

    def _takes(self, table_id: TableId, change: SchemaChange) -> bool:
        """Whether the table is followed up to the change."""
        return self.includes(table_id) or (table_id not in self.lost and self.until.get(table_id, 0) >= change.commit_ts)

    def _concerned(
        self, change: SchemaChange, event: object, live: set[TableId], makes_room: dict[TableId, SchemaChange]
    ) -> list[TableId]:
        """The left-out tables and databases that have to be followed up to the event.

        ``live`` are left-out tables whose rows move into an included table later. ``makes_room`` are left-out tables whose names
        followed tables take later, with the change that does so. Both are updated to the state before the event.
        """
        match event:
            case RenameTableEvent(old, new):
                into = self.includes(new) or new in live
                live.discard(new)
                if into and not self.includes(old):
                    live.add(old)
                if old in self.lost and old in makes_room and not into:
                    self.refused[makes_room[old].identity] = _not_told_apart(makes_room[old], old, new)
                if not self.includes(old) and (into or self._takes(new, change)):
                    return [old]
                if self._takes(old, change) and not self.includes(new):
                    # The table that has the new name has to free it, as it did in the source: the ledger has one row per name, so
                    # the former table could not be told apart from the new one. The database has to be the one of that time, too.
                    outside = [t for t in {new, *self.names.get(new.folded, ())} if not self.includes(t)]
                    makes_room.update(dict.fromkeys(outside, change))
                    database = TableId(new.database)
                    return outside if self.includes(database) else [*outside, database]
            case ExchangePartitionEvent(table_id, other):
                both = [table_id, other]
                outside = [t for t in both if not self.includes(t)]
                if any(self.includes(t) or t in live for t in both):
                    live.update(outside)
                if any(t in live or self._takes(t, change) for t in both):
                    return outside
        return []


def _by_folded_name(tables: Iterable[TableId]) -> Mapping[TableId, Collection[TableId]]:
    names: dict[TableId, set[TableId]] = defaultdict(set)
    for table_id in tables:
        names[table_id.folded].add(table_id)
    return names


def _beginnings(changes: Iterable[SchemaChange]) -> dict[TableId, int]:
    """The commit ts (TSO) of the first change of each table."""
    first: dict[TableId, int] = {}
    seen: set[frozenset[TableId]] = set()
    for change in changes:
        if change.changes not in seen:
            seen.add(change.changes)
            for table_id in change.changes:
                first.setdefault(table_id, change.commit_ts)
    return first


def _not_followed(change: SchemaChange, source: TableId) -> Problem:
    message = (
        f"its rows come from {source} by the schema change at {change.commit_ts}; --tables leaves {source} out, and its rows from "
        "before --start are not in the target."
    )
    hint = f"Load it anew as of {change.commit_ts} or later, and run headrace ddl skip {in_quotes(change.identity)}."
    return Problem(change.table_id, message, place=change.origin, hint=hint, remedy=Remedy.RESYNC)


def _not_told_apart(change: SchemaChange, former: TableId, left: TableId) -> Problem:
    message = (
        f"by the schema change at {change.commit_ts} it gets the name {former}. Another table had it before and became {left}; "
        "--tables leaves it out, and its rows from before --start are not in the target. Taken in later, it could not be followed."
    )
    hint = f"Let --tables include {former}. To have its rows from before --start, load it as of that time first."
    return Problem(change.table_id, message, place=change.origin, hint=hint, remedy=Remedy.REPAIR)


def drops_with_databases(state: LedgerState, changes: Sequence[SchemaChange], follows: Followed) -> list[SchemaChange]:
    """The parts of DROP DATABASEs that tables missed while they were left out, each as a DROP TABLE of its own.

    The change of the database is done by then and is not repeated for a single table. A change that was skipped, or replaced by
    another statement, dropped no tables. A table that was created while it was left out has no ledger row, or the row of a former
    table of its name.
    """
    drops = [c for c in changes if any(isinstance(e, DropDatabaseEvent) for e in c.events) and has_dropped(state, c)]
    if not drops:
        return []
    stands = {
        t: own.checkpoint for t, own in state.tables.items() if own.status is not TableStatus.RUNNING and not own.status.is_gone
    }
    for change in (c for c in changes if c.commit_ts < drops[-1].commit_ts and is_pending(state, c)):
        for table_id in change.changes:
            if table_id not in state.tables or state.tables[table_id].status.is_gone:
                stands.setdefault(table_id, change.commit_ts)
    return [
        recognised(drop_of(change, table_id), state)
        for change in drops
        for table_id in sorted(tables_of_dropped(change, stands))
        if table_id.table and stands[table_id] <= change.commit_ts and follows.end(table_id) >= change.commit_ts
    ]


def has_dropped(state: LedgerState, change: SchemaChange) -> bool:
    """Whether the change is done and ran as it is in the source. A change that the journal has forgotten counts as run."""
    entry = state.journal.get(change.identity)
    as_it_is = entry is None or (entry.state is not JournalState.SKIPPED and entry.statement == change.statement)
    return as_it_is and not is_pending(state, change)


def drop_of(change: SchemaChange, table_id: TableId) -> SchemaChange:
    """The part of a DROP DATABASE for one table, as a DROP TABLE of its own."""
    name = ".".join("`" + part.replace("`", "``") + "`" for part in (table_id.database, table_id.table))
    events = (DropTableEvent(table_id),)
    return replace(
        change, table_id=table_id, events=events, statement=f"DROP TABLE {name}", named="", changes=frozenset({table_id})
    )


def kept_ends(state: LedgerState) -> dict[TableId, JournalEntry]:
    """The unsettled DROPs of tables that the pipeline created. Each is the last unsettled change of its table in the journal.

    Such a change consists of its statement only. So it can run when the filter includes the table, even if the source no longer
    has it.
    """
    ends: dict[TableId, JournalEntry] = {}
    for entry in sorted(state.journal.values(), key=lambda entry: entry.commit_ts):
        for table_id in entry.tables if not entry.state.is_settled else ():
            ends.pop(table_id, None)
            if _may_be_kept(state, entry):
                ends[table_id] = entry
    return ends


def ends_before(state: LedgerState, since: Mapping[TableId, int]) -> list[str]:
    """The identities of the waiting DROPs of these tables before a commit ts (TSO) of each: all of them, not only the last.

    If one of them stayed when a later table has the name, it would become the last again and end that table.
    """
    waiting = (e for e in state.journal.values() if not e.state.is_settled and _may_be_kept(state, e))
    return [e.identity for e in waiting if e.commit_ts < since.get(e.tables[0], 0)]


def _may_be_kept(state: LedgerState, entry: JournalEntry) -> bool:
    """Whether an unsettled change is the DROP of one table that the pipeline created. It waits, or a run ended while it ran it."""
    if len(entry.tables) != 1:
        return False
    own = state.tables.get(entry.tables[0])
    return own is not None and own.is_made and own.checkpoint <= entry.commit_ts and _drops_table(entry)


def _drops_table(entry: JournalEntry) -> bool:
    return read_statement(entry.statement, entry.tables[0].database).kind is StatementKind.DROP_TABLE


def left_out(state: LedgerState, includes: Includes, former: Includes) -> tuple[TableProgress, ...]:
    """The ledger rows of tables that the filter now leaves out, each at its own checkpoint. ``former`` is the ledger's filter.

    If ``former`` already left out a running table, an older version of Headrace wrote the ledger. The table then followed the
    pipeline's checkpoint although it was not read, and which rows it lacks is unknown.
    """
    rows = []
    for table_id, own in sorted(state.tables.items()):
        if own.status.is_gone or own.status in (TableStatus.EXCLUDED, TableStatus.INCOMPLETE):
            continue
        reached = state.table_checkpoint(table_id)
        if own.status is TableStatus.RUNNING and not former(table_id) and table_id.table:
            hint = _LOAD.format(at=format_tso(reached), table=word(table_id))
            rows.append(replace(own, checkpoint=reached, status=TableStatus.INCOMPLETE, reason=f"{_UNKNOWN_PLACE} {hint}"))
        elif not includes(table_id):
            after = own.after and own.checkpoint == reached
            rows.append(replace(own, checkpoint=reached, after=after, status=TableStatus.EXCLUDED, reason=""))
    return tuple(rows)


def back(state: LedgerState, includes: Includes) -> frozenset[TableId]:
    """The tables that were left out and that the filter includes again."""
    return frozenset(t for t, own in state.tables.items() if own.status is TableStatus.EXCLUDED and includes(t))


def is_unborn_outside(own: TableProgress) -> bool:
    """Whether the table is left out and was left out at its CREATE, so that the pipeline never created it."""
    return own.status is TableStatus.EXCLUDED and _was_never_made(own)


def cannot_be_made(own: TableProgress) -> bool:
    """Whether the pipeline never created the table and cannot do so any more, because records of it were passed over."""
    return own.status is TableStatus.INCOMPLETE and _was_never_made(own)


def was_never_made(own: TableProgress) -> bool:
    """Whether :func:`is_unborn_outside` or :func:`cannot_be_made` holds."""
    return is_unborn_outside(own) or cannot_be_made(own)


def _was_never_made(own: TableProgress) -> bool:
    return not own.after and own.incarnation == own.checkpoint


def taken_back(
    state: LedgerState, tables: Iterable[TableId], missing: Callable[[TableId, int], str]
) -> tuple[LedgerUpdate, tuple[Notice, ...]]:
    """Lets tables that are included again catch up.

    ``missing`` returns why files of a table above a checkpoint (TSO) may be gone, or ``""``.
    """
    rows, notices, ends = [], [], kept_ends(state)
    for table_id in sorted(tables):
        own = state.tables[table_id]
        at = format_tso(own.checkpoint)
        is_unborn = is_unborn_outside(own)
        # A table that was never created also needs its CREATE, which is at its checkpoint.
        why = missing(table_id, own.checkpoint - is_unborn) if table_id.table else ""
        if why:
            reason = f"--tables left it out since {at}, and {why} {_LOAD.format(at=at, table=word(table_id))}"
            rows.append(replace(own, status=TableStatus.INCOMPLETE, reason=reason))
            dropped = f"it was left out by --tables since {at}, and was dropped since."
            notices.append(Notice(dropped if table_id in ends else f"it does not go on: {reason}", table_id))
        else:
            rows.append(replace(own, status=TableStatus.CATCHING_UP, reason=""))
            notices.append(Notice(f"it was left out by --tables since {at}, and catches up from there.", table_id))
    return LedgerUpdate(tables=tuple(rows)), tuple(notices)
