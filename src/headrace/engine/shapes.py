"""Tables whose beginning was never seen: what creates them in the shape of a later change, and what may not.

That is so for a run that starts late, and for a changefeed whose first files are gone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import groupby

from headrace.ddl.grammar.statements import judge
from headrace.ddl.lexer import begins_with
from headrace.ddl.statement import StatementKind, read_statement
from headrace.engine.excluded_tables import Followed
from headrace.engine.journal import comes_late, is_of, tables_of_dropped, unfollowed
from headrace.engine.unreadable import is_unborn
from headrace.model.events import (
    CreateDatabaseEvent,
    CreateTableEvent,
    DropDatabaseEvent,
    DropTableEvent,
    OtherEvent,
    RenameTableEvent,
    SchemaChange,
)
from headrace.model.ledger import LedgerState, TableProgress
from headrace.model.offer import Offer
from headrace.model.table import TableId


def shapes_before(state: LedgerState, offer: Offer, includes: Callable[[TableId], bool]) -> list[SchemaChange]:
    """For a run that starts late: each table's newest shape before the start, as "create it unless it is there"."""
    if not state.start:
        return []
    newest: dict[TableId, SchemaChange] = {}
    before = (change for change in offer.schema_changes if change.commit_ts <= state.start)
    for _, of_one_ts in groupby(before, key=lambda change: change.commit_ts):
        together = list(of_one_ts)  # a statement has a file for each of its tables, in any order
        for change in together:
            for table_id in _without_shape(change) | tables_of_dropped(change, newest):
                newest.pop(table_id, None)
        newest |= {change.table_id: change for change in together if change.schema is not None}

    def is_unknown(own: TableProgress | None) -> bool:
        return own is None or is_unborn(own) or (own.status.is_gone and own.checkpoint < state.start)

    return [_as_shape(change) for t, change in newest.items() if is_unknown(state.tables.get(t)) and includes(t)]


def _without_shape(change: SchemaChange) -> frozenset[TableId]:
    """The tables whose former shapes tell nothing after a change: they are gone, or nothing tells what they became."""
    if change.schema is None:
        return change.changes
    renamed = {event.table_id for event in change.events if isinstance(event, RenameTableEvent)}
    return frozenset(renamed | {event.table_id for event in change.events if isinstance(event, DropTableEvent)})


def _as_shape(change: SchemaChange) -> SchemaChange:
    assert change.schema is not None
    created = CreateTableEvent(change.table_id, change.schema)
    reads = change.reads | {TableId(change.table_id.database)}
    return replace(change, statement="", events=(created,), changes=frozenset({change.table_id}), reads=reads)


def from_shape_if_unknown(state: LedgerState, change: SchemaChange, created: set[TableId], follows: Followed) -> SchemaChange:
    """A change of a table whose beginning was never seen creates the table in its later shape instead.

    A CREATE TABLE … LIKE stays what it is, but is made by its shape where the target has its pattern in another one than it had
    then, or not at all. One that comes late is left as it is: a table that is gone by now was known then.
    """
    if comes_late(state, change):
        return change
    if _lacks_pattern(state, change, follows):
        return replace(change, by_shape=True)
    if change.schema is None or any(isinstance(e, CreateTableEvent) for e in change.events) or _is_of_view(change):
        return change
    brings_back = read_statement(change.statement, change.database).brings_back
    waits = change.identity in follows.refused or bool(judge(change.statement, change.database).objection)
    if waits or brings_back or is_of(unfollowed(state), change):
        return change  # an empty table in its place would be a lie: its rows come back without events, or nobody wants them
    before = {e.table_id for e in change.events if not isinstance(e, CreateDatabaseEvent | DropDatabaseEvent)}
    there = created | {t for t, p in state.tables.items() if not p.status.is_gone and not is_unborn(p)}
    if before & there or (not before and change.table_id in created | set(state.tables)):
        return change
    # Rows that were exchanged with a table of ours do not come with an empty one either: the target tells whether it can run.
    exchanged = there.intersection(read_statement(change.statement, change.database).tables[1:])
    return _of_namesake(state, change, before) or (change if exchanged else _as_shape(change))


def _of_namesake(state: LedgerState, change: SchemaChange, before: Iterable[TableId]) -> SchemaChange | None:
    """The change as one that waits, where the target has a table of its in another spelling. Only the schema files of that one
    tell whether it is meant, and they are lost or damaged where the name stayed as it was typed."""
    for name in before:
        rows = (row for row in state.by_folded_name.get(name.folded, ()) if row.is_made and row.incarnation <= change.commit_ts)
        namesakes = sorted(row.table_id for row in rows)
        if namesakes:
            doubt = (
                f"its schema change at {change.commit_ts} names {name}, and the target has {namesakes[0]}: whether that one is "
                "meant its schema files tell, of which none can be read. Put them back, or repair them."
            )
            return replace(change, doubt=doubt, changes=change.changes - {name} | set(namesakes))
    return None


def _lacks_pattern(state: LedgerState, change: SchemaChange, follows: Followed) -> bool:
    if change.schema is None or not any(isinstance(event, CreateTableEvent) for event in change.events):
        return False
    if read_statement(change.statement, change.database).like is None:
        return False  # foreign keys to tables of others are left out
    patterns = (t for t in change.reads if t.table)
    return any(follows.end(t) < change.commit_ts or state.table_checkpoint(t) > change.commit_ts for t in patterns)


def _is_of_view(change: SchemaChange) -> bool:
    """Whether it creates or drops a view, or something else that is no table."""
    only_statement = all(isinstance(e, OtherEvent) for e in change.events)
    drops = read_statement(change.statement, change.database).kind is StatementKind.DROP_VIEW
    return only_statement and (drops or begins_with(change.statement, "CREATE"))
