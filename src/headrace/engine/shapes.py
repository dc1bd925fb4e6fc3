"""The shapes of tables whose history the source cannot tell.

A table's beginning was never seen where a run starts late, or a changefeed's first files are gone: then a later change creates it
in the shape that it has after that, unless it may not. A stream tells each schema change once, so the ledger keeps what it led to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import groupby

from headrace.ddl.grammar.statements import judge
from headrace.ddl.lexer import begins_with
from headrace.ddl.statement import StatementKind, read_statement
from headrace.engine.excluded_tables import Followed
from headrace.engine.identities import recognised
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
from headrace.model.ledger import LedgerState, ShapeKey, TableProgress, TableShape, TableStatus
from headrace.model.offer import Offer
from headrace.model.table import TableId, TableSchema
from headrace.model.tso import tso_from_ms, tso_to_ms


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
        if own is None or own.status.is_gone:
            return own is None or own.checkpoint < state.start
        # One that stands behind the start waits for a beginning of its own.
        return not own.is_made and own.checkpoint <= state.start

    return [_as_shape(state, change) for t, change in newest.items() if is_unknown(state.tables.get(t)) and includes(t)]


def _without_shape(change: SchemaChange) -> frozenset[TableId]:
    """The tables whose former shapes tell nothing after a change: they are gone, or nothing tells what they became."""
    if change.schema is None:
        return change.changes
    renamed = {event.table_id for event in change.events if isinstance(event, RenameTableEvent)}
    return frozenset(renamed | {event.table_id for event in change.events if isinstance(event, DropTableEvent)})


def _as_shape(state: LedgerState, change: SchemaChange) -> SchemaChange:
    assert change.schema is not None
    created = CreateTableEvent(change.table_id, change.schema)
    reads = change.reads | {TableId(change.table_id.database)}
    made = replace(change, statement="", named="", events=(created,), changes=frozenset({change.table_id}), reads=reads)
    return recognised(made, state)


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

    def is_there(table_id: TableId) -> bool:
        own = state.tables.get(table_id)
        return table_id in created or (own is not None and not own.status.is_gone and not is_unborn(own))

    if any(map(is_there, before)) or (not before and (change.table_id in created or change.table_id in state.tables)):
        return change
    # Rows that were exchanged with a table of ours do not come with an empty one either: the target tells whether it can run.
    exchanged = any(map(is_there, read_statement(change.statement, change.database).tables[1:]))
    return _of_namesake(state, change, before) or (change if exchanged else _as_shape(state, change))


def _of_namesake(state: LedgerState, change: SchemaChange, before: Iterable[TableId]) -> SchemaChange | None:
    """The change as one that waits, where the target has a table of its in another spelling. Only the schema files of that one
    tell whether it is meant, and they are lost or damaged where the name stayed as it was typed."""
    for name in before:
        rows = (row for row in state.by_folded_name.get(name.folded, ()) if row.is_made and row.incarnation <= change.commit_ts)
        namesakes = sorted(row.table_id for row in rows)
        if namesakes:
            doubt = (
                f"its schema change at {change.commit_ts} names {name}, and the target has {namesakes[0]}. Only the schema files "
                f"of {namesakes[0]} show whether it is meant, and none of them can be read. Restore or repair them."
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


def with_kept_shapes(offer: Offer, state: LedgerState) -> Offer:
    """The offer of a source that forgets, with the schema changes that led to the shapes which the ledger keeps.

    They are over: they tell which shape rows have, and that nothing is missing between the changes which the source still tells.
    """
    told = {(change.commit_ts, change.table_id) for change in offer.schema_changes}
    entries = {entry.place: entry for entry in state.journal.values() if entry.state.is_settled}
    kept = []
    for table_id, shapes in state.shapes_by_table.items():
        for shape in shapes if table_id.table else ():
            entry = entries.get(f"{shape.version}/{table_id.key}")
            if (shape.version, table_id) in told or (entry is None and shape.version > state.table_checkpoint(table_id)):
                continue
            statement, identity = (entry.statement, entry.identity) if entry is not None else ("", "")
            touched = frozenset({table_id})
            change = SchemaChange(shape.version, table_id, (), statement, table_id.database, touched, schema=shape.schema)
            kept.append(replace(change, known_as=identity))
    if not kept:
        return offer
    changes = sorted([*kept, *offer.schema_changes], key=lambda change: change.commit_ts)
    return replace(offer, schema_changes=tuple(changes))


def told_shapes(state: LedgerState, changes: Iterable[SchemaChange]) -> tuple[TableShape, ...]:
    """The shapes that these schema changes lead to, as far as the ledger does not have them.

    ``state`` has the rows of the step which journals the changes: done, passed over or waiting. What a person lets run in place of
    a change, or not run at all, is the target's matter; the source's rows have the shape all the same. A table that ends with
    the change has none. Of a database its collation is kept, if a statement named one: tables that come later have it.
    """
    found = {}
    for change in changes:
        own = state.tables.get(change.table_id)
        ends = own is not None and own.status.is_gone and own.checkpoint >= change.commit_ts
        schema = change.schema if change.table_id.table else _of_database(state, change)
        if schema is None or ends:
            continue
        lives = own is not None and not own.status.is_gone and own.incarnation <= change.commit_ts
        born = own.incarnation if own is not None and lives else change.commit_ts
        collation = "" if change.table_id.table else change.database_collation
        shape = TableShape(born, change.commit_ts, schema, change.partitioning, collation)
        found[shape.key] = shape
    return tuple(shape for key, shape in found.items() if state.shapes.get(key) != shape)


def _of_database(state: LedgerState, change: SchemaChange) -> TableSchema | None:
    """What stands for a database whose collation a statement names, or named before; ``None`` for any other."""
    is_told = change.database_collation or change.table_id in state.shapes_by_table
    return TableSchema(change.table_id, ()) if is_told else None


def outgrown_shapes(state: LedgerState) -> tuple[ShapeKey, ...]:
    """The shapes that no row needs any more: of lives that are over for good, and those before the one at a table's checkpoint.

    So a table has no more of them than it has schema changes above its checkpoint, and one.
    """
    return tuple(key for table_id, shapes in state.shapes_by_table.items() for key in _outgrown(state, table_id, shapes))


def _outgrown(state: LedgerState, table_id: TableId, shapes: Iterable[TableShape]) -> Iterator[ShapeKey]:
    own = state.tables.get(table_id)
    if own is None:  # it waits for its beginning
        return
    left = []
    for shape in shapes:
        if _is_over(state, own, shape):
            yield shape.key
        else:
            left.append(shape.key)
    # Where only the millisecond of a commit ts is known, a cut begins with that of the checkpoint. A change that was found late
    # needs the shape before it, as long as it waits.
    late = (entry.commit_ts for entry in state.journal.values() if not entry.state.is_settled and table_id in entry.tables)
    reached = min([tso_from_ms(tso_to_ms(state.table_checkpoint(table_id))), *late]) - 1
    yield from [key for key in left if key.version <= reached][:-1]


def _is_over(state: LedgerState, own: TableProgress, shape: TableShape) -> bool:
    """Whether the life of a table that had this shape is over, and no cut that is taken again comes back to it (rule 12)."""
    if own.status is TableStatus.GONE_WAITING:
        return False
    ended = own.checkpoint if own.status.is_gone else own.incarnation
    is_former = shape.version <= ended if own.status.is_gone else shape.incarnation < ended
    return is_former and state.checkpoint > ended
