"""What a source that forgets told of tables which take no part, or whose beginning it does not tell. Pure.

A stream tells each schema change and each row once. A table that the filter leaves out does not hold its position, so nothing but
the ledger knows by the time that the table is taken in that there was one. And where a table's beginning was never told, nobody
knows which rows it had: made by its later shape it would lack these, and nothing would say so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from headrace.ddl.statement import StatementKind, read_statement
from headrace.engine.excluded_tables import Followed, Includes, followed, is_unborn_outside
from headrace.engine.journal import is_pending, tables_of_dropped
from headrace.engine.requests import Carried
from headrace.engine.shapes import from_shape_if_unknown, told_shapes
from headrace.engine.unreadable import is_unborn
from headrace.model.commands import word
from headrace.model.events import CreateTableEvent, DropTableEvent, RenameTableEvent, SchemaChange, TruncateTableEvent
from headrace.model.ledger import JournalEntry, JournalState, LedgerState, TableProgress, TableStatus, in_order
from headrace.model.offer import Offer
from headrace.model.outcome import Notice
from headrace.model.table import TableId
from headrace.model.tso import format_tso
from headrace.sinks.base import LedgerUpdate

Missing = Callable[[TableId, int], str]
"""Why records of a table above a commit ts (TSO) may be gone (``EventSource.missing``)."""


def note_passed(state: LedgerState, offer: Offer, includes: Includes, missing: Missing) -> Carried | None:
    """What the ledger has to know of the offer's schema changes before a cut passes them; ``None`` when it does.

    - A table that is left out has a row from its CREATE on, and its shapes are kept.
    - A held table that begins has a row before its CREATE, which holds the source's position.
    - A table lacks rows whose beginning is not told any more, or that has the rows of a left-out one whose records were passed.
    """
    if not offer.schema_changes:
        return None
    noted = _Noted(state, followed(state, offer.schema_changes, includes), missing)
    for change in sorted(offer.schema_changes, key=lambda change: change.commit_ts):
        if change.commit_ts < offer.schema_bound and not change.known_as and is_pending(noted.state, change):
            noted.take(change)
    update = LedgerUpdate(
        tables=tuple(noted.rows.values()), journal=tuple(noted.entries), shapes=told_shapes(noted.state, noted.passed)
    )
    return Carried(update, tuple(noted.notices)) if update != LedgerUpdate() else None


@dataclass
class _Noted:
    """What was found so far. ``state`` has the rows already."""

    state: LedgerState
    follows: Followed
    missing: Missing
    rows: dict[TableId, TableProgress] = field(default_factory=dict)
    entries: list[JournalEntry] = field(default_factory=list)
    passed: list[SchemaChange] = field(default_factory=list)
    notices: list[Notice] = field(default_factory=list)
    created: set[TableId] = field(default_factory=set)

    def take(self, change: SchemaChange) -> None:
        """The next change."""
        if not self.follows.takes(change):
            self._leave_out(change)
        elif lost := self._lost(change):
            self._lose(change, lost)
        else:
            needed = from_shape_if_unknown(self.state, change, self.created, self.follows)
            if self._lacks_beginning(change, needed):
                told = f"the schema change at {change.commit_ts} is the first that the source tells of it, so rows may be missing."
                self._lack(change.table_id, change, told)
                self._pass(change)
            elif self._begins_held(change):
                self._put(TableProgress(change.table_id, change.commit_ts, False, TableStatus.HELD, incarnation=change.commit_ts))
            self.created |= needed.changes

    def _put(self, row: TableProgress) -> None:
        self.rows[row.table_id] = row
        self.state = self.state.with_rows([row])

    def _own(self, table_id: TableId) -> TableProgress | None:
        return self.state.tables.get(table_id)

    def _leave_out(self, change: SchemaChange) -> None:
        """Nothing is done about a left-out table but to remember that there is one, and which shape its rows have."""
        ts = change.commit_ts
        ended = {e.table_id for e in change.events if isinstance(e, DropTableEvent | RenameTableEvent)}
        for table_id in sorted(ended | tables_of_dropped(change, self.state.tables)):
            own = self._own(table_id)
            if own is not None and is_unborn_outside(own) and own.checkpoint <= ts:
                self._put(replace(own, checkpoint=ts, after=True, status=TableStatus.GONE))
        for table_id in dict.fromkeys(newly_named(change)):
            own = self._own(table_id)
            if own is None or (own.status.is_gone and own.checkpoint <= ts):
                self._put(TableProgress(table_id, ts, False, TableStatus.EXCLUDED, incarnation=ts))
        own = self._own(change.table_id)
        if own is not None and own.status is TableStatus.EXCLUDED and own.checkpoint <= ts:
            self.passed.append(change)

    def _lost(self, change: SchemaChange) -> dict[TableId, str]:
        """The left-out tables of the change that were never made, and whose records were passed over, with the reason."""
        lost = {}
        for table_id in sorted(t for t in change.changes if t.table and not self.follows.includes(t)):
            own = self._own(table_id)
            if own is None and table_id not in self.created and not (_is_beginning(change) and table_id in newly_named(change)):
                lost[table_id] = "the stream does not tell any more how it began."
            elif own is not None and is_unborn_outside(own) and (why := self.missing(table_id, own.checkpoint - 1)):
                lost[table_id] = why
            elif own is not None and own.status is TableStatus.EXCLUDED and (why := self.missing(table_id, own.checkpoint)):
                at = format_tso(own.checkpoint)
                self._put(replace(own, status=TableStatus.INCOMPLETE, reason=f"--tables left it out since {at}, and {why}"))
        return lost

    def _lose(self, change: SchemaChange, lost: dict[TableId, str]) -> None:
        """Passes over a change of left-out tables that were never made: who has their rows behind it lacks them."""
        renamed = {e.new_table_id: e.table_id for e in change.events if isinstance(e, RenameTableEvent) and e.table_id in lost}
        if not change.changes <= lost.keys() | renamed.keys():
            return  # the target tells whether it can run
        for table_id in lost.keys() - renamed.keys():
            own = self._own(table_id)
            if own is not None and table_id in renamed.values():
                self._put(replace(own, checkpoint=change.commit_ts, after=True, status=TableStatus.GONE))
        for new, old in renamed.items():
            if self.follows.includes(new):
                self._lack(new, change, f"its rows come from {old}, which --tables leaves out, and {lost[old]}")
            else:
                self._put(TableProgress(new, change.commit_ts, False, TableStatus.EXCLUDED, incarnation=change.commit_ts))
        self._pass(change)

    def _lacks_beginning(self, change: SchemaChange, needed: SchemaChange) -> bool:
        """Whether the plan would make a table by its later shape that had rows before. As of a start a person loads these."""
        table_id, own = change.table_id, self._own(change.table_id)
        is_known = table_id in self.created or (own is not None and not own.status.is_gone and not is_unborn(own))
        by_shape = not needed.statement or any(isinstance(event, CreateTableEvent) for event in needed.events)
        if self.state.start or is_known or not by_shape or _is_beginning(change) or not self.follows.includes(table_id):
            return False
        empties = any(isinstance(event, TruncateTableEvent) for event in change.events)
        return not empties or bool(self.missing(table_id, change.commit_ts))

    def _lack(self, table_id: TableId, change: SchemaChange, why: str) -> None:
        ts = change.commit_ts
        reason = (
            f"{why} Create and load it as of {format_tso(ts)} or later, and run headrace table resync {word(table_id)} --at TIME."
        )
        self._put(TableProgress(table_id, ts, status=TableStatus.INCOMPLETE, reason=reason, incarnation=ts))
        self.notices.append(Notice(f"it does not go on: {reason}", table_id))

    def _pass(self, change: SchemaChange) -> None:
        tables = in_order(change.changes)
        entry = JournalEntry(change.identity, change.commit_ts, tables, change.statement, JournalState.SKIPPED)
        self.entries.append(entry)
        self.passed.append(change)
        self.state = replace(self.state, journal={**self.state.journal, entry.identity: entry})

    def _begins_held(self, change: SchemaChange) -> bool:
        """Whether it begins a held table of which the ledger knows nothing yet."""
        table_id = change.table_id
        is_its = change.changes == {table_id} and _is_beginning(change)
        return is_its and table_id in self.state.held and self._own(table_id) is None


def _is_beginning(change: SchemaChange) -> bool:
    """Whether its table has no rows before it: it is a CREATE TABLE, or the source tells where it stands by a shape alone."""
    return not change.statement or read_statement(change.statement, change.database).kind is StatementKind.CREATE_TABLE


def newly_named(change: SchemaChange) -> Iterator[TableId]:
    """The tables that have their names by the change, or are heard of with it."""
    for event in change.events:
        if isinstance(event, CreateTableEvent):
            yield event.table_id
        elif isinstance(event, RenameTableEvent):
            yield event.new_table_id
