"""Which schema changes a loaded table passes over, because its rows already include them. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace

from headrace.ddl.statement import read_statement
from headrace.engine.journal import is_before, tables_of_dropped
from headrace.engine.unreadable import untold
from headrace.model.events import DropTableEvent, RenameTableEvent, SchemaChange
from headrace.model.ledger import LedgerState
from headrace.model.offer import Offer
from headrace.model.table import TableId

Renames = tuple[tuple[TableId, TableId], ...]
"""Former and new names, in the order in which tables get them."""


@dataclass
class Overtaken:
    """Schema changes that were not applied and that the loaded rows already include."""

    changes: list[SchemaChange] = field(default_factory=list)
    ended: dict[TableId, int] = field(default_factory=dict)
    """Tables whose rows these changes moved to the loaded table, or that had its name in another case and were ``dropped``, with
    the commit ts (TSO) of their end."""
    dropped: set[TableId] = field(default_factory=set)
    blocked: SchemaChange | None = None
    """The first change that also concerns other tables and cannot count as done for them."""
    by: TableId | None = None
    """If another table is the reason for ``blocked``: the one that still has the name in another case."""
    steps: dict[str, Renames] = field(default_factory=dict)
    """All waiting changes of the blocked one's statement, with the names that each changes."""


def overtaken(state: LedgerState, offer: Offer, table_id: TableId, to: int) -> Overtaken:
    """What a resync passes over up to a commit ts (TSO), including earlier changes of tables whose rows moved to this one.

    It follows the loaded rows back in time, through all their names. A change that also gives a name to other rows is not passed
    over, nor is the end of a database. A table that had the name in another case must have ended: for most targets it is the same
    table, and its DROP would remove the loaded rows.
    """
    found = Overtaken()
    told = (*offer.schema_changes, *offer.unread)
    known = (*offer.schema_changes, *untold(state, told), *_of_one(state, offer.unread))
    pending = [c for c in known if (entry := state.journal.get(c.identity)) is None or not entry.state.is_settled]
    name, names = table_id, {table_id}
    in_order = sorted((c for c in pending if c.commit_ts <= to), key=lambda change: change.commit_ts)
    for change in reversed(in_order):
        dropped = _of_database(state, change, names)
        own = [t for t in names & change.changes if state.table_checkpoint(t) <= change.commit_ts]
        if not own and not dropped:
            _pass_namesakes(found, state, change, names)
            continue
        came, passing = _moved_to(change, name)
        if dropped or not change.changes <= {*names, *passing, *([came] if came else ())}:
            found.blocked, found.by = change, None
        elif came is not None and came != name:
            found.ended.setdefault(came, change.commit_ts)
            name = came
            names.add(came)
        found.changes.append(change)
    found.ended.pop(table_id, None)
    if found.blocked is not None:
        found.steps = _steps(state, in_order, found.blocked)
    return found


def _steps(state: LedgerState, waiting: Iterable[SchemaChange], of: SchemaChange) -> dict[str, Renames]:
    """The waiting changes of one statement with their renames. A source may report each step of a RENAME separately.

    A step that the source does not report any more, and whose table has a kept shape of that time, is known only from the journal.
    """
    told = [change for change in waiting if change.commit_ts == of.commit_ts]
    steps = {change.identity: _renames_of([change]) for change in told}
    for entry in state.journal.values():
        if entry.commit_ts == of.commit_ts and not entry.state.is_settled:
            steps.setdefault(entry.identity, read_statement(entry.statement, entry.tables[0].database).renames)
    return {identity: renames for identity, renames in steps.items() if renames or identity == of.identity}


def _of_database(state: LedgerState, change: SchemaChange, names: Collection[TableId]) -> frozenset[TableId]:
    """Those of these tables that end with a database that the change drops."""
    return frozenset(t for t in tables_of_dropped(change, names) if state.table_checkpoint(t) <= change.commit_ts)


def _pass_namesakes(found: Overtaken, state: LedgerState, change: SchemaChange, names: Collection[TableId]) -> None:
    """Records a change of tables that have one of the names in another case and have not reached the change."""
    rows = [row for name in names for row in state.by_folded_name.get(name.folded, ()) if row.table_id not in names]
    others = {row.table_id for row in rows if not row.status.is_gone and row.incarnation <= change.commit_ts}
    ahead = {t for t in others if state.table_checkpoint(t) <= change.commit_ts}
    concerned = ahead & change.changes | _of_database(state, change, ahead)
    if not concerned:
        return
    found.dropped |= concerned & {event.table_id for event in change.events if isinstance(event, DropTableEvent)}
    if change.changes <= found.dropped:
        found.changes.append(change)
        for table_id in concerned:
            found.ended.setdefault(table_id, change.commit_ts)
    else:
        found.blocked, found.by = change, min(concerned)


def _moved_to(change: SchemaChange, table_id: TableId) -> tuple[TableId | None, frozenset[TableId]]:
    """The table whose rows have this name after the change, if no others get a name, and the names that it had only in between."""
    origins, names = origins_of(_renames_of([change]))
    if origins.keys() != {table_id}:
        return None, frozenset()
    came = origins[table_id]
    return came, frozenset(names - {table_id, came})


def origins_of(renames: Iterable[tuple[TableId, TableId]]) -> tuple[dict[TableId, TableId], set[TableId]]:
    """The former name of the table that has each name after all of these renames, in order, and all names in them."""
    origins: dict[TableId, TableId] = {}
    names: set[TableId] = set()
    for old, new in renames:
        names |= {old, new}
        origins[new] = origins.pop(old, old)
    return origins, names


def _renames_of(changes: Iterable[SchemaChange]) -> Renames:
    events = (event for change in changes for event in change.events)
    return tuple((event.table_id, event.new_table_id) for event in events if isinstance(event, RenameTableEvent))


def _of_one(state: LedgerState, unread: Iterable[SchemaChange]) -> Iterator[SchemaChange]:
    """The unreadable changes for which only one table still waits. Others continue to hold the other tables."""
    for change in unread:
        before = frozenset(t for t in change.changes if is_before(state, t, change.commit_ts))
        if len(before) == 1:
            yield replace(change, changes=before)


def told_ended(found: Overtaken, ended: TableId, loaded: TableId) -> str:
    """The text about a table that ended by a schema change which was passed over."""
    ts = found.ended[ended]
    if ended in found.dropped:
        return (
            f"it was dropped by the schema change at {ts}, which counts as done. If the target distinguishes case and still has a "
            f"table {ended}, that table is no longer needed."
        )
    told = f"the schema change at {ts}, which counts as done, moved its rows to {loaded}."
    if ended.folded == loaded.folded:
        return told  # if the target does not distinguish case, both are one table
    return f"{told} If the target still has a table {ended}, that table is no longer needed."
