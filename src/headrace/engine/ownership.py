"""Which tables and views of the target belong to the pipeline: those that it created or adopted.

Others are never dropped or replaced. The ledger shows which are the pipeline's: a table that it created or adopted has a row from
its CREATE on, until it is dropped or renamed away.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from headrace.ddl.grammar.statements import judge
from headrace.ddl.statement import Statement, StatementKind, read_statement
from headrace.engine.excluded_tables import cannot_be_made
from headrace.engine.journal import is_born_later, is_first_sight, was_let_in
from headrace.engine.object_kinds import ObjectKinds, in_the_way, named_by
from headrace.engine.unreadable import is_unborn
from headrace.model.events import (
    CreateTableEvent,
    DropDatabaseEvent,
    DropTableEvent,
    OtherEvent,
    RenameTableEvent,
    SchemaChange,
)
from headrace.model.ledger import LedgerState, TableStatus
from headrace.model.outcome import Notice, Problem
from headrace.model.table import TableId
from headrace.sinks.base import SinkCapabilities
from headrace.sinks.metadata_applier import MetadataApplier

_ADOPT = "Start with --adopt if it holds the source's rows as of the start; otherwise drop or rename it in the target."
_NOT_AS_OF_START = "Drop or rename it in the target: --adopt only covers what was there when the source first reported the table."
_NOT_MADE = "this pipeline did not make it"
_NOT_KNOWN = "the ledger does not say that this pipeline made it. If it is no one else's, drop it in the target"
_LEFT_OUT = "Drop or rename it in the target, or take it into --tables: what the filter leaves out is not adopted."


@dataclass(frozen=True)
class Ownership:
    """Distinguishes the pipeline's own tables and views from those of others."""

    capabilities: SinkCapabilities
    applier: MetadataApplier
    includes: Callable[[TableId], bool]
    """The table filter. A table that it leaves out is never adopted, even while it is followed."""
    outside: Mapping[TableId, int]
    """See ``Cut.outside``: left-out tables that are followed, and up to where (TSO)."""
    stands_still: Callable[[TableId, int], bool]
    """Whether a table has stopped in this cut before a commit ts (TSO)."""

    def bounded(self, change: SchemaChange, state: LedgerState) -> SchemaChange:
        """The change with what the target needs in order to leave others' tables alone.

        That is: the tables that each dropped database may take with it; the tables to which foreign keys may not refer; if tables
        are dropped, the pipeline's own tables and which of them run; and whether the table that the change copies does not belong
        to the pipeline. The events of tables that it names as views, and of views that it names as tables, are left out.
        """
        read = read_statement(change.statement, change.database)
        if unchanged := self._kinds.unchanged(change, read, state):
            kept = tuple(event for event in change.events if named_by(event) not in unchanged)
            change = replace(change, events=kept, unchanged=unchanged)
        if read.like is not None and change.schema is not None and self._is_strange(read.like, change, state):
            change = replace(change, by_shape=True)
        elif read.reads and read.like is None and read.kind is not StatementKind.CREATE_VIEW:
            foreign = frozenset(name for name in read.reads if not self._may_be_referred_to(name, change, state))
            change = replace(change, foreign=foreign)
        if any(isinstance(event, DropTableEvent | DropDatabaseEvent) for event in change.events):
            own = frozenset(t for t, row in state.tables.items() if row.is_made and not t.is_database)
            running = frozenset(t for t in own if self._runs(t, change, state))
            change = replace(change, own=own, running=running)
        events = (self._bounded_drop(e, change, state) if isinstance(e, DropDatabaseEvent) else e for e in change.events)
        return replace(change, events=tuple(events))

    @property
    def _kinds(self) -> ObjectKinds:
        return ObjectKinds(self.capabilities.views, self.applier.describe)

    def _follows(self, name: TableId, commit_ts: int) -> bool:
        """Whether a table is followed at a commit ts (TSO).

        A left-out table is followed only until its rows or name go over to an included one.
        """
        return self.includes(name) or self.outside.get(name, 0) >= commit_ts

    def _runs(self, name: TableId, change: SchemaChange, state: LedgerState) -> bool:
        """Whether a table of the pipeline continues in this cut, and was not let in from others.

        A table that is held, stopped or left out stays as it is, whatever happens to others.
        """
        row = state.tables[name]
        goes_on = row.status in (TableStatus.RUNNING, TableStatus.CATCHING_UP) and name not in state.held
        return goes_on and self.includes(name) and not (self.stands_still(name, change.commit_ts) or _is_let_in(state, name))

    def _is_strange(self, name: TableId, change: SchemaChange, state: LedgerState) -> bool:
        """Whether a table is left out by the filter, or exists and does not belong to the pipeline."""
        return not self.includes(name) or self._is_foreign(name, change, state)

    def _may_be_referred_to(self, name: TableId, change: SchemaChange, state: LedgerState) -> bool:
        """Whether a foreign key of the change may refer to a table.

        The table must exist and belong to the pipeline, like the key's own table. A key to a name without a table would bind a
        table that is created later by others. So would a key of a table that was let in, because it is not dropped when the other
        table goes. And a table that was let in stays when the source drops it.
        """
        if any(_is_let_in(state, t) for t in (*change.changes, name)):
            return False
        if name in change.changes:
            return True
        if self._is_strange(name, change, state):
            return False
        row = state.tables.get(name)
        return (row is not None and row.is_made) or self.applier.describe(name) is not None

    def _bounded_drop(self, event: DropDatabaseEvent, change: SchemaChange, state: LedgerState) -> DropDatabaseEvent:
        """The event with the tables that existed at the change's commit ts; the change may have been found late.

        A table that was never created ends too. What a person has made under its name to load it stays.
        """
        inside = (t for t in state.tables if t.lies_in(event.database) and not t.is_database)
        made = (t for t in inside if state.tables[t].is_made or cannot_be_made(state.tables[t]))
        there = (t for t in made if not is_born_later(state, t, change.commit_ts))
        followed = {t for t in there if self._follows(t, change.commit_ts)}
        loaded = {t for t in followed if cannot_be_made(state.tables[t]) and self.applier.describe(t) is not None}
        stays = frozenset(t for t in followed if was_let_in(state, t)) | loaded
        return replace(event, tables=frozenset(followed - stays), stays=stays)

    def foreign(self, change: SchemaChange, state: LedgerState) -> Notice | Problem | None:
        """What prevents a change that would drop, replace or rewrite something of others; ``None`` if nothing does.

        A notice: everything that it would drop belongs to others, or is of another kind, so there is nothing to do. A problem: the
        change must not run. ``change`` is as :meth:`bounded` returns it.
        """
        read = read_statement(change.statement, change.database)
        if (found := in_the_way(change, read)) is not None:
            return found
        dropped = dropped_by(change, read)
        foreign = [name for name in dropped if self._is_foreign(name, change, state) or was_let_in(state, name)]
        if foreign and foreign == dropped:
            return Notice(_stays(foreign, state), change.table_id)
        if read.kind is StatementKind.CREATE_VIEW and self.capabilities.views:
            selects = judge(change.statement, change.database).selects
            foreign = self._foreign([change.table_id, *sorted(selects)], change, state)
        met = [*_rewritten_by(change, read), *_taken_by(change), *self._left_out_and_made(change)]
        foreign = foreign or self._foreign(met, change, state)
        if not foreign:
            return None
        message = f"the target already has {', '.join(map(str, foreign))}, which this pipeline did not make."
        hint = _ADOPT if all(is_first_sight(state, name) for name in foreign) else _NOT_AS_OF_START
        hint = hint if all(map(self.includes, foreign)) else _LEFT_OUT
        return Problem(change.table_id, message, place=change.origin, hint=hint)

    def _left_out_and_made(self, change: SchemaChange) -> list[TableId]:
        """Left-out tables that the change creates. A target would take over an existing table of such a name."""
        begun = (event.table_id for event in change.events if isinstance(event, CreateTableEvent))
        return [name for name in begun if not self.includes(name)]

    def _foreign(self, names: Iterable[TableId], change: SchemaChange, state: LedgerState) -> list[TableId]:
        """Those tables that the target has and that do not belong to the pipeline."""
        return [name for name in names if self._is_foreign(name, change, state)]

    def _is_foreign(self, name: TableId, change: SchemaChange, state: LedgerState) -> bool:
        return not self._is_own(name, change, state) and self.applier.describe(name) is not None

    def _is_own(self, name: TableId, change: SchemaChange, state: LedgerState) -> bool:
        row = state.tables.get(name)
        may_adopt = self.capabilities.adopts and self.includes(name) and is_first_sight(state, name)
        is_own = may_adopt if row is None or is_unborn(row) else row.is_made
        return self._follows(name, change.commit_ts) and is_own


def stay_notices(change: SchemaChange, state: LedgerState) -> tuple[Notice, ...]:
    """The notices about tables that end with a dropped database and stay in the target."""
    events = (event for event in change.events if isinstance(event, DropDatabaseEvent))
    return tuple(Notice(_stays([name], state), name) for event in events for name in sorted(event.stays))


def _stays(names: Sequence[TableId], state: LedgerState) -> str:
    """Says only what is known.

    If the beginning of a table was passed over and it was not loaded yet, what the target has under its name is from before, and
    its row does not say who made that.
    """
    lacking = {name for name in names if (row := state.tables.get(name)) is not None and row.status is TableStatus.INCOMPLETE}
    why = _NOT_MADE if all(_is_let_in(state, name) and name not in lacking for name in names) else _NOT_KNOWN
    return f"{', '.join(map(str, names))} stays in the target: the source dropped it, but {why}."


def _is_let_in(state: LedgerState, name: TableId) -> bool:
    """Whether a table exists and was let in. The row of a table that is gone may still say so."""
    row = state.tables.get(name)
    return row is not None and row.is_made and was_let_in(state, name)


def dropped_by(change: SchemaChange, read: Statement) -> list[TableId]:
    """The tables and views that the change drops by name; ``read`` is its statement.

    ``change`` is as :meth:`Ownership.bounded` returns it: a DROP VIEW has no events of tables, and a DROP TABLE none of views.
    """
    if read.kind is StatementKind.DROP_VIEW:
        return [event.table_id for event in change.events if isinstance(event, OtherEvent)]
    return [event.table_id for event in change.events if isinstance(event, DropTableEvent)]


def _taken_by(change: SchemaChange) -> list[TableId]:
    """The names that tables get by the change and that no table had before."""
    renames = [event for event in change.events if isinstance(event, RenameTableEvent)]
    return sorted({event.new_table_id for event in renames} - {event.table_id for event in renames})


def _rewritten_by(change: SchemaChange, read: Statement) -> list[TableId]:
    """Existing tables whose definition, name or rows the change uses: not those that it creates, nor new names of renamed tables.

    A table that is created may exist already; the target decides whether it can be taken over.
    """
    if read.kind in (StatementKind.UNKNOWN, StatementKind.CREATE_VIEW, StatementKind.DROP_VIEW):
        return []
    begun = {event.table_id for event in change.events if isinstance(event, CreateTableEvent)}
    begun |= {event.new_table_id for event in change.events if isinstance(event, RenameTableEvent)}
    begun -= {event.table_id for event in change.events if isinstance(event, RenameTableEvent)}
    return sorted(t for t in change.changes - begun if t.table)
