"""The shapes of tables whose history is not complete in the source.

The beginning of a table is unknown if a run starts late, or if the changefeed's first files are gone. Then a later schema change
creates the table in the shape that it has after that change, if this is allowed. A stream delivers each schema change only once, so
the ledger keeps the shapes that its changes led to.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace
from itertools import groupby

from headrace.ddl.grammar.statements import judge
from headrace.ddl.lexer import begins_with
from headrace.ddl.statement import StatementKind, read_statement
from headrace.ddl.told import newly_named
from headrace.engine.excluded_tables import Followed, cannot_be_made
from headrace.engine.identities import recognised
from headrace.engine.journal import comes_late, is_of, tables_of_dropped, unfollowed
from headrace.engine.run_options import RunOptions
from headrace.engine.unreadable import is_unborn
from headrace.errors import DefinitionError
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
from headrace.model.outcome import Notice
from headrace.model.table import TableId, TableSchema
from headrace.model.tso import tso_from_ms, tso_to_ms
from headrace.sources.base import EventSource, StreamSource

_OF_VIEWS = frozenset({StatementKind.CREATE_VIEW, StatementKind.DROP_VIEW})
_MOST_TOLD = 20
"""So many tables are named whose given definitions are not used."""


def shapes_before(state: LedgerState, offer: Offer, includes: Callable[[TableId], bool]) -> list[SchemaChange]:
    """For a run that starts late: each table's newest shape up to the start, as a change that creates a table unless it exists."""
    if not state.start:
        return []
    newest: dict[TableId, SchemaChange] = {}
    # A table's shape stays valid after DROP VIEW IF EXISTS with its name, which the source ran without an effect.
    before = (c for c in offer.schema_changes if c.commit_ts <= state.start and not _is_kind_of(c, _OF_VIEWS))
    for _, of_one_ts in groupby(before, key=lambda change: change.commit_ts):
        together = list(of_one_ts)  # a statement has one file for each of its tables, in any order
        for change in together:
            for table_id in _without_shape(change) | tables_of_dropped(change, newest):
                newest.pop(table_id, None)
        newest |= {change.table_id: change for change in together if change.schema is not None}

    def is_unknown(own: TableProgress | None) -> bool:
        if own is None or own.status.is_gone:
            return own is None or own.checkpoint < state.start
        # A table whose checkpoint is above the start waits for a beginning of its own.
        return not own.is_made and own.checkpoint <= state.start

    return [_as_shape(state, change) for t, change in newest.items() if is_unknown(state.tables.get(t)) and includes(t)]


def _without_shape(change: SchemaChange) -> frozenset[TableId]:
    """The tables whose former shapes are not valid after a change: they are gone, or their new shape is unknown."""
    if change.schema is None:
        return change.changes
    renamed = {event.table_id for event in change.events if isinstance(event, RenameTableEvent)}
    return frozenset(renamed | {event.table_id for event in change.events if isinstance(event, DropTableEvent)})


def _as_shape(state: LedgerState, change: SchemaChange) -> SchemaChange:
    assert change.schema is not None
    created = CreateTableEvent(change.table_id, change.schema)
    reads = change.reads | {TableId(change.table_id.database)}
    own = frozenset({change.table_id})
    made = replace(change, statement="", named="", events=(created,), changes=own, reads=reads, unexplained="")
    return recognised(made, state)


def from_shape_if_unknown(state: LedgerState, change: SchemaChange, created: set[TableId], follows: Followed) -> SchemaChange:
    """Replaces a change of a table with an unknown beginning by one that creates the table in its later shape.

    A CREATE TABLE … LIKE keeps its statement, but the table is created by its shape if the pattern table does not exist in the
    target or has another shape by now. A change that comes late is not replaced: its table was known then, even if it is gone now.
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
        return change  # creating an empty table would be wrong: its rows come back without events, or they are not wanted
    before = {e.table_id for e in change.events if not isinstance(e, CreateDatabaseEvent | DropDatabaseEvent)}

    renamed = [event.new_table_id for event in change.events if isinstance(event, RenameTableEvent)]
    moves_inside = bool(renamed) and all(map(follows.includes, renamed))

    def is_there(table_id: TableId) -> bool:
        own = state.tables.get(table_id)
        if own is not None and cannot_be_made(own) and not moves_inside:
            return True  # created now, it would lack rows; the table that gets its name by a RENAME says so
        return table_id in created or (own is not None and not own.status.is_gone and not is_unborn(own))

    if any(map(is_there, before)) or (not before and (change.table_id in created or change.table_id in state.tables)):
        return change
    # An empty table would also lack the rows that an exchange moves to or from a known table. The target shows whether it can run.
    exchanged = any(map(is_there, read_statement(change.statement, change.database).tables[1:]))
    return _of_namesake(state, change, before) or (change if exchanged else _as_shape(state, change))


def known_after(state: LedgerState, change: SchemaChange) -> frozenset[TableId]:
    """The change's tables that exist in the target after it: not those that were never created, unless it names or creates them."""
    given = {event.table_id for event in change.events if isinstance(event, CreateTableEvent)}
    given |= {event.new_table_id for event in change.events if isinstance(event, RenameTableEvent)}
    unmade = {t for t in change.changes - given if t in state.tables and cannot_be_made(state.tables[t])}
    return change.changes - unmade


def _of_namesake(state: LedgerState, change: SchemaChange, before: Iterable[TableId]) -> SchemaChange | None:
    """The change as one that waits, if the target has one of its tables in another spelling; else ``None``.

    Only the schema files of that table show whether it is meant. If the change still has the name as it was typed, these files are
    lost or damaged.
    """
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
        return False  # only LIKE needs a pattern; foreign keys to tables outside the pipeline are left out
    patterns = (t for t in change.reads if t.table)
    return any(follows.end(t) < change.commit_ts or state.table_checkpoint(t) > change.commit_ts for t in patterns)


def _is_of_view(change: SchemaChange) -> bool:
    """Whether the change creates or drops a view, or creates another object that is not a table."""
    only_statement = all(isinstance(e, OtherEvent) for e in change.events)
    return only_statement and (_is_kind_of(change, {StatementKind.DROP_VIEW}) or begins_with(change.statement, "CREATE"))


def _is_kind_of(change: SchemaChange, kinds: Collection[StatementKind]) -> bool:
    return read_statement(change.statement, change.database).kind in kinds


def with_kept_shapes(offer: Offer, state: LedgerState) -> Offer:
    """The offer of a source that forgets, with the schema changes that led to the shapes which the ledger keeps.

    These changes are done. They show which shape rows have, and that no change is missing between those that the source still has.
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
    """The shapes that these schema changes lead to and that the ledger does not have yet.

    ``state`` includes the rows of the step that journals the changes as done, passed over or waiting. A change that a person
    replaced or skipped counts as well: this affects only the target, and the source's rows have the shape anyway. A table that ends
    with the change has no shape. For a database its collation is kept if a statement named one, because later tables inherit it.
    """
    found, known = {}, set(state.shapes_by_table)
    for change in changes:
        own = state.tables.get(change.table_id)
        ends = own is not None and own.status.is_gone and own.checkpoint >= change.commit_ts
        schema = change.schema if change.table_id.table else _of_database(change, known)
        if schema is None or ends:
            continue
        lives = own is not None and not own.status.is_gone and own.incarnation <= change.commit_ts
        # While the change waits, the name's former table may still have the row.
        begins = bool(change.statement) and change.table_id in newly_named(change)
        born = own.incarnation if own is not None and lives and not begins else change.commit_ts
        collation = change.collation if change.table_id.table else change.database_collation
        shape = TableShape(born, change.commit_ts, schema, change.partitioning, collation)
        found[shape.key] = shape
        known.add(change.table_id)
    return tuple(shape for key, shape in found.items() if state.shapes.get(key) != shape)


def _of_database(change: SchemaChange, known: Collection[TableId]) -> TableSchema | None:
    """A schema without columns for a database whose collation a statement names now or named before; ``None`` for all others."""
    is_told = change.database_collation or change.table_id in known
    return TableSchema(change.table_id, ()) if is_told else None


def given_shapes(
    known: LedgerState | None, source: EventSource, options: RunOptions, tell: Callable[[tuple[Notice, ...]], object]
) -> tuple[TableShape, ...]:
    """The shapes that tables had when the pipeline began, for a stream that lacks their schema changes.

    ``known`` is the ledger's record before the run. After the first cut, the ledger has the shapes. ``tell`` gets notices of
    definitions that are not used. Raises DefinitionError.
    """
    if options.given is None or (known is not None and known.position):
        return ()
    if not isinstance(source, StreamSource):
        raise DefinitionError("--schema-from is of use for Kafka and TiDB Binlog only: this source has the tables' shapes itself.")
    start = known.start if known is not None else options.start
    if not start:
        raise DefinitionError(
            "--schema-from gives the shapes that tables had when the pipeline began, and the commit ts of that is missing.",
            "Name it with --start: the TSO at which the tables were copied, such as Pos in the metadata file of Dumpling.",
        )
    given = options.given(start)
    tell(_few(notice for notice in given.notices if notice.table_id is None or options.includes(notice.table_id)))
    changes, problems = source.effects(given.statements)
    for problem in problems:
        if not problem.table_id.table or options.includes(problem.table_id):
            raise DefinitionError(f"--schema-from: {problem.table_id}: {problem.message}", problem.hint)
    # A table that is left out has no row in the ledger that would show, when it is taken in, which of its rows were passed.
    wanted = (change for change in changes if not change.table_id.table or options.includes(change.table_id))
    return told_shapes(known or LedgerState(""), wanted)


def _few(notices: Iterable[Notice]) -> tuple[Notice, ...]:
    """The first notices, and one that says how many tables have others."""
    found = tuple(notices)
    if len(found) <= _MOST_TOLD:
        return found
    rest = f"--schema-from: the definitions of {len(found) - _MOST_TOLD:,} more tables are not used, for such reasons."
    return (*found[:_MOST_TOLD], Notice(rest))


def outgrown_shapes(state: LedgerState) -> tuple[ShapeKey, ...]:
    """The shapes that no row needs any more: those of finally ended tables, and those before the shape at a table's checkpoint.

    So a table keeps at most one shape more than it has schema changes above its checkpoint.
    """
    return tuple(key for table_id, shapes in state.shapes_by_table.items() for key in _outgrown(state, table_id, shapes))


def _outgrown(state: LedgerState, table_id: TableId, shapes: Iterable[TableShape]) -> Iterator[ShapeKey]:
    own = state.tables.get(table_id)
    if own is None:  # the table waits for its beginning
        return
    left = []
    for shape in shapes:
        if _is_over(state, own, shape):
            yield shape.key
        else:
            left.append(shape.key)
    # If only the milliseconds of commit ts are known, a cut begins at the start of the checkpoint's millisecond. A change that was
    # found late needs the shape before it while it waits.
    late = (entry.commit_ts for entry in state.journal.values() if not entry.state.is_settled and table_id in entry.tables)
    reached = min([tso_from_ms(tso_to_ms(state.table_checkpoint(table_id))), *late]) - 1
    yield from [key for key in left if key.version <= reached][:-1]


def _is_over(state: LedgerState, own: TableProgress, shape: TableShape) -> bool:
    """Whether the table that had this shape has ended, and no repeated cut can reach back to it (rule 12)."""
    if own.status is TableStatus.GONE_WAITING:
        return False
    ended = own.checkpoint if own.status.is_gone else own.incarnation
    # Older versions kept the shape of a table that waited for its name as one of the name's former table.
    is_former = shape.version <= ended if own.status.is_gone else max(shape.incarnation, shape.version) < ended
    return is_former and state.checkpoint > ended
