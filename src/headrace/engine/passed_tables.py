"""Records what a source that forgets delivered for tables that take no part, and finds tables without a known beginning. Pure.

A stream delivers each schema change and each row once. A table that the filter leaves out does not hold the stream's position, so
only the ledger can record that the table existed, for the time when the filter includes it. If the beginning of a table was never
delivered, its earlier rows are unknown: a table created in its later shape would lack them without any notice.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from headrace.ddl.statement import StatementKind, read_statement
from headrace.ddl.told import brought_back, newly_named
from headrace.engine.excluded_tables import (
    Followed,
    Includes,
    cannot_be_made,
    drop_of,
    ends_before,
    followed,
    has_dropped,
    inside,
    is_unborn_outside,
    kept_ends,
    was_begun,
    was_never_made,
)
from headrace.engine.journal import drops_databases, is_pending, tables_of_dropped
from headrace.engine.requests import Carried
from headrace.engine.shapes import from_shape_if_unknown, known_after, told_shapes, with_kept_shapes
from headrace.engine.table_places import after
from headrace.model.commands import word
from headrace.model.events import CreateTableEvent, DropTableEvent, RenameTableEvent, SchemaChange, TruncateTableEvent
from headrace.model.ledger import JournalEntry, JournalState, LedgerState, TableProgress, TableShape, TableStatus, in_order
from headrace.model.offer import Offer
from headrace.model.outcome import Notice
from headrace.model.table import TableId
from headrace.model.tso import format_tso
from headrace.sinks.base import LedgerUpdate

_PASSED = "records of it were passed over."
Missing = Callable[[TableId, int], str]
"""Why records of a table above a commit ts (TSO) may be gone (``EventSource.missing``)."""


def note_passed(state: LedgerState, offer: Offer, includes: Includes, missing: Missing) -> Carried | None:
    """What the ledger has to record of the offer's schema changes before a cut passes them; ``None`` if nothing is new.

    - A left-out table gets a row at its CREATE, or when it first appears, and its shapes are kept. If the pipeline created it
      earlier, its DROP waits in the journal until the filter includes the table, unless another table gets its name.
    - A held table gets a row before the first change that brings a table to its name. This row holds the source's position.
    - A table lacks rows if the source no longer has its beginning, or if it has the rows of a left-out table whose records were
      passed over.
    """
    noted = _noted(state, offer, includes, missing)
    ends = [end for end in noted.ends.values() if end is not None and end.identity not in state.journal]
    shapes = told_shapes(noted.state.with_rows(noted.lacking.values()), noted.passed)
    update = LedgerUpdate(
        tables=tuple(noted.rows.values()),
        journal=(*noted.entries, *ends),
        forget_journal=tuple(ends_before(state, noted.since)),
        shapes=tuple({shape.key: shape for shape in (*noted.shapes, *shapes)}.values()),
    )
    return Carried(update, tuple(noted.notices)) if update != LedgerUpdate() else None


def cut_short(state: LedgerState, offer: Offer, includes: Includes, missing: Missing) -> Offer:
    """The offer of a source that forgets, shortened to end before a name would need a second row in the ledger.

    The ledger has one row per name. A followed table uses it until the cut ends, and what has to be recorded about a left-out table
    that gets the name in the same cut is delivered only once. So the cut ends before the name passes to another table, or with the
    commit ts at which it does.
    """
    end = _noted(state, offer, includes, missing).end if offer.passed is not None else None
    if end is None or end > offer.watermark:
        return offer
    left = sum(split.size for split in offer.splits if split.begins > end)
    return replace(
        offer,
        watermark=end,
        schema_bound=min(offer.schema_bound, end + 1),
        promised=offer.source_watermark,
        left_bytes=offer.left_bytes + left,
        more=True,
    )


def _noted(state: LedgerState, offer: Offer, includes: Includes, missing: Missing) -> _Noted:
    follows = followed(state, offer.schema_changes, includes)
    while True:
        noted = _noted_of(state, offer, follows, missing)
        # A change that is passed over brings no left-out table into the filter any more, so that the cut does not follow it.
        left = followed(noted.state, offer.schema_changes, includes)
        until = {t: min(ts, left.until[t]) for t, ts in follows.until.items() if t in left.until}
        if until == follows.until:
            return noted
        follows = replace(left, until=until)


def _noted_of(state: LedgerState, offer: Offer, follows: Followed, missing: Missing) -> _Noted:
    noted = _Noted(state, follows, missing, offer.passed or 0)
    for change in sorted(offer.schema_changes, key=lambda change: change.commit_ts):
        if change.commit_ts < offer.schema_bound and not change.known_as:
            if is_pending(noted.state, change):
                noted.take(change)
            else:
                noted.recall(change)
    # Also beginnings that were noted before and are told again. The DROP before them may still count as pending, because the name's
    # row does not change at either, while a later table has taken the other name of the RENAME.
    for change in offer.schema_changes:
        for table_id in newly_named(change) if change.commit_ts < offer.schema_bound else ():
            if (end := noted.ends.get(table_id)) is not None and end.commit_ts < change.commit_ts:
                noted.ends[table_id], noted.since[table_id] = None, change.commit_ts
    return noted


def with_kept_changes(offer: Offer, state: LedgerState) -> Offer:
    """The offer of a source that forgets, with the schema changes that the ledger keeps.

    These are the changes that led to the kept shapes, and DROPs that the source no longer delivers and that wait until the filter
    includes their table.
    """
    offer = with_kept_shapes(offer, state)
    told = {change.place for change in offer.schema_changes}
    # The DROP of a table that was dropped together with its database is derived from the DROP DATABASE.
    over = [change for change in offer.schema_changes if drops_databases(change) and has_dropped(state, change)]
    drops = []
    for table_id, entry in kept_ends(state).items():
        with_database = any(c.commit_ts == entry.commit_ts and tables_of_dropped(c, [table_id]) for c in over)
        if entry.place not in told and not with_database:
            events, changes = (DropTableEvent(table_id),), frozenset({table_id})
            drop = SchemaChange(entry.commit_ts, table_id, events, entry.statement, table_id.database, changes)
            drops.append(replace(drop, named=entry.identity))
    if not drops:
        return offer
    in_order_of_ts = sorted([*drops, *offer.schema_changes], key=lambda change: change.commit_ts)
    return replace(offer, schema_changes=tuple(in_order_of_ts))


@dataclass
class _Noted:
    """What was found in the changes so far."""

    state: LedgerState
    """The ledger's state, with ``rows`` already applied."""
    follows: Followed
    missing: Missing
    up_to: int
    """``Offer.passed``."""
    rows: dict[TableId, TableProgress] = field(default_factory=dict)
    entries: list[JournalEntry] = field(default_factory=list)
    passed: list[SchemaChange] = field(default_factory=list)
    shapes: list[TableShape] = field(default_factory=list)
    """Shapes to keep even if their table has ended since: the source needs them if it delivers its last changes again."""
    notices: list[Notice] = field(default_factory=list)
    created: set[TableId] = field(default_factory=set)
    over: frozenset[TableId] = frozenset()
    """The names that these changes have freed."""
    lacking: dict[TableId, TableProgress] = field(default_factory=dict)
    """Tables that lack rows, or are left out, and get names that other tables have until the cut ends."""
    ends: dict[TableId, JournalEntry | None] = field(default_factory=dict)
    """The DROPs of left-out tables that the pipeline created; ``None`` if another table has had the name since."""
    since: dict[TableId, int] = field(default_factory=dict)
    """The commit ts (TSO) of the last change in ``ends``, or of the last one that gave the name to another table. DROPs from before
    it, which wait in the journal, are over: of one name at most the last DROP waits."""
    came: set[TableId] = field(default_factory=set)
    """The followed names that these changes give to tables which lack all rows, because the pipeline never created them."""
    unmade: dict[TableId, list[SchemaChange]] = field(default_factory=lambda: defaultdict(list))
    """The changes of included tables that were never created. They are passed over with the RENAME that ends such a table."""
    carried: frozenset[TableId] = frozenset()
    """The names that these changes give to tables which the pipeline created, also to those that it left out later."""
    coming: frozenset[TableId] = frozenset()
    """Those that ``carried`` has of tables which the cut follows. A left-out table does not come to a name that is over."""
    used: dict[TableId, int] = field(default_factory=dict)
    """The names in changes that run with the cut or wait, with their last commit ts (TSO). The cut writes the rows of these
    names."""
    end: int | None = None
    """The TSO at which the cut has to end because one of the names in ``used`` passes to another table."""

    def __post_init__(self) -> None:
        self._begun, self._before, self._at = self.state, self.state, -1

    def take(self, change: SchemaChange) -> None:
        """Takes the next change."""
        if change.commit_ts > self._at:
            self._before, self._at = self.state, change.commit_ts
        takes, unmade = self.follows.takes(change), self._renamed_unmade(change)
        if not takes or drops_databases(change):
            self._end_left_out(change)
        if not takes:
            self._hand_over(change, change.changes | tables_of_dropped(change, self.used))
            self._leave_out(change, unmade)
        elif not self._lose(change, self._lost(change)):
            for table_id in change.changes if all(self._is_unmade_inside(t, change) for t in change.changes) else ():
                self.unmade[table_id].append(change)
            self._follow(change)

    def recall(self, change: SchemaChange) -> None:
        """Takes a settled change. A RENAME that was passed over may have given a name that a former table still has."""
        entry = self.state.journal.get(change.identity)
        for event in change.events if entry is not None and entry.state is JournalState.SKIPPED else ():
            if isinstance(event, RenameTableEvent):
                old, new, own = event.table_id, event.new_table_id, self._own(event.new_table_id)
                self.came.discard(old)
                self.lacking.pop(old, None)
                if own is not None and own.is_made and (self.state.table_checkpoint(new), own.after) <= (change.commit_ts, False):
                    self.lacking[new] = _lacking_rows(new, old, change.commit_ts, _PASSED, self.follows)
                    self.came |= {new} if self.follows.includes(new) else set()

    def _follow(self, change: SchemaChange) -> None:
        """Takes a change that runs with the cut or waits."""
        self._part(change)
        self._carry(change)
        needed = from_shape_if_unknown(self.state, change, self.created, self.follows)
        if lacks := self._lacks_beginning(change, needed):
            self._hand_over(change, [change.table_id])
            self._lack(change.table_id, change, lacks)
            self._pass(change)
        for table_id in self._begun_held(change):
            self._put(TableProgress(table_id, change.commit_ts, False, TableStatus.HELD, incarnation=change.commit_ts))
        if needed.events or needed.statement:  # else it is a kept shape of a table that may never have been created
            self.created |= known_after(self.state, needed)
        # A left-out table stays when its database ends (``_end_left_out``): the cut does not write its row.
        dropped = (t for t in tables_of_dropped(change, self.state.tables) if self.follows.end(t) >= change.commit_ts)
        self.used |= dict.fromkeys([*change.changes, *dropped], change.commit_ts)
        self.over = self.over.union(_ended(change, self.state.tables)).difference(newly_named(change))
        if was_begun(self._begun, change):
            # Later changes of its left-out tables concern tables that the pipeline has made by then. The cut writes their rows.
            outside = {t: change.commit_ts for t in change.changes if not self.follows.includes(t)}
            rows = inside(after(self.state, change), change, outside)
            self.state = self.state.with_rows(row for row in rows if row.table_id in outside)

    def _put(self, row: TableProgress) -> None:
        self.rows[row.table_id] = row
        self.state = self.state.with_rows([row])

    def _own(self, table_id: TableId) -> TableProgress | None:
        return self.state.tables.get(table_id)

    def _hand_over(self, change: SchemaChange, names: Iterable[TableId]) -> None:
        """Ends the cut before a change that has to change the rows of these names, if an earlier change of the cut used them.

        If both have the same commit ts, or nothing is left to apply before the change, the cut ends with the change.
        """
        used, ts = max((self.used.get(t, -1) for t in names), default=-1), change.commit_ts
        at_least = max(self._begun.checkpoint + 1, self._begun.attempted)
        if used >= 0 and self.end is None and ts >= at_least:
            self.end = ts - 1 if used < ts and ts > at_least else ts

    def _is_told_again(self, table_id: TableId, commit_ts: int) -> bool:
        """Whether the effect of this commit ts on a left-out name was recorded earlier, so that the source repeats it now.

        All steps of a statement have one commit ts, so the state before that commit ts is compared.
        """
        own = self._before.tables.get(table_id)
        return own is not None and own.incarnation == commit_ts and (own.status.is_gone or was_never_made(own))

    def _end_left_out(self, change: SchemaChange) -> None:
        """Ends left-out tables, including those in a followed database. Tables that the pipeline created stay; their DROP waits."""
        renamed = {event.table_id for event in change.events if isinstance(event, RenameTableEvent)}
        for table_id in sorted(_ended(change, self.state.tables) - self.used.keys()):
            own = self._own(table_id)
            if own is None or not self._is_left_out(own) or own.checkpoint > change.commit_ts:
                continue
            if self._is_told_again(table_id, change.commit_ts):
                continue
            if table_id in (self.carried & self.coming) - renamed and was_never_made(own):
                # The RENAME and the DROP run when the table comes to this name, so that the row says nothing about them.
                self._put(replace(own, checkpoint=own.checkpoint - 1, status=TableStatus.GONE, reason=""))
            elif was_never_made(own):
                self._put(_gone_unborn(own, change.commit_ts))
            elif table_id.table and table_id not in renamed:
                drop = drop_of(change, table_id) if drops_databases(change) else change
                tables = in_order(drop.changes)
                entry = JournalEntry(drop.identity, drop.commit_ts, tables, drop.statement, JournalState.WAITING)
                self.ends[table_id], self.since[table_id] = entry, change.commit_ts

    def _is_left_out(self, own: TableProgress) -> bool:
        """Whether the filter leaves the table out, and it either keeps its checkpoint or already lacks rows."""
        return own.status in (TableStatus.EXCLUDED, TableStatus.INCOMPLETE) and not self.follows.includes(own.table_id)

    def _renamed_unmade(self, change: SchemaChange) -> dict[TableId, TableId]:
        """New names of left-out tables that the pipeline never created, with the old names, for each RENAME of the change."""
        renames = [(e.new_table_id, e.table_id) for e in change.events if isinstance(e, RenameTableEvent)]
        return {new: old for new, old in renames if (own := self._own(old)) is not None and was_never_made(own)}

    def _leave_out(self, change: SchemaChange, unmade: Mapping[TableId, TableId]) -> None:
        """Records that a left-out table exists, and the shape of its rows.

        A table that was renamed from one that the pipeline never created lacks rows: no checkpoint exists from which it could get
        all of them.
        """
        ts = change.commit_ts
        named = list(dict.fromkeys(newly_named(change)))
        heard_of = [*named, *([change.table_id] if change.schema is not None else [])]
        # A table that was never created ends with this step. If the RENAME did not, it would count as done for both names later.
        is_lost = any(old not in self.carried and not self._is_told_again(new, ts) for new, old in unmade.items())
        for table_id in (t for t in named if t in self.used and not self.follows.includes(t)):
            # The cut cannot end before (``_hand_over``), so its end writes the row: ``left_lives``.
            self.lacking[table_id] = self._row_outside(table_id, unmade, ts)
        for table_id in (t for t in dict.fromkeys(heard_of) if t not in self.used and not self._is_told_again(t, ts)):
            own = self._own(table_id)
            if own is None or (own.status.is_gone and own.checkpoint <= ts):
                self._put(self._row_outside(table_id, unmade, ts))
            elif table_id in named and self._is_left_out(own) and own.checkpoint <= ts:
                self.ends[table_id], self.since[table_id] = None, ts
        self._carry(change)
        is_outside = (own := self._own(change.table_id)) is not None and self._is_left_out(own) and own.checkpoint <= ts
        if is_lost:
            self._pass(change)  # else the change would count as found late once these tables are loaded
        elif is_outside or change.table_id in self.lacking or change.table_id.is_database:
            self.passed.append(change)  # a database, too: tables that the filter includes later inherit its collation
        for table_id in change.changes:
            own = self._own(table_id)
            if own is not None and own.status is TableStatus.EXCLUDED and own.incarnation < ts < own.checkpoint:
                reason = f"its schema change at {ts} was found only after rows behind it were applied, while --tables left it out."
                self._put(replace(own, status=TableStatus.INCOMPLETE, reason=f"{reason} {_load(table_id, own.checkpoint)}"))

    def _row_outside(self, table_id: TableId, unmade: Mapping[TableId, TableId], commit_ts: int) -> TableProgress:
        """The row of a left-out table that gets its name: it lacks rows if the pipeline never created the table before that."""
        if table_id not in unmade:
            return _left_out(table_id, commit_ts)
        return replace(_lacking_rows(table_id, unmade[table_id], commit_ts, _PASSED, self.follows), after=False)

    def _carry(self, change: SchemaChange) -> None:
        """Records the new names of tables that the pipeline created: the RENAME runs with them, however late that is."""
        self.carried -= tables_of_dropped(change, self.carried)
        for event in change.events:
            if isinstance(event, RenameTableEvent):
                own = self._own(event.table_id)
                is_there = own is not None and own.is_made and own.incarnation < change.commit_ts
                goes_on = {event.new_table_id} if is_there or event.table_id in self.carried else set()
                runs = goes_on if event.table_id in self.coming or self.follows.takes(change) else set()
                self.carried = (self.carried - {event.table_id, event.new_table_id}) | goes_on
                self.coming = (self.coming - {event.table_id, event.new_table_id}) | runs
            elif isinstance(event, DropTableEvent):
                self.carried -= {event.table_id}

    def _lost(self, change: SchemaChange) -> dict[TableId, str]:
        """The tables of the change that were never created and whose records are lost, each with the reason.

        A left-out table that was created and misses records is marked as lacking rows, and is not among them.
        """
        lost = {}
        for table_id in sorted(t for t in _there_before(change) if t.table and not self.follows.includes(t)):
            own = self._own(table_id)
            is_unknown = own is None or (own.status.is_gone and own.checkpoint < change.commit_ts)
            if own is not None and self._is_later(own, change):
                lost[table_id] = "another table has had that name since."
            elif is_unknown and table_id not in self.created:
                lost[table_id] = "the stream no longer contains its beginning."
            elif own is not None and cannot_be_made(own):
                lost[table_id] = _PASSED
            elif own is not None and is_unborn_outside(own) and (why := self.missing(table_id, own.checkpoint - 1)):
                lost[table_id] = why
            elif own is not None and own.status is TableStatus.EXCLUDED and (why := self.missing(table_id, own.checkpoint)):
                at = format_tso(own.checkpoint)
                self._put(replace(own, status=TableStatus.INCOMPLETE, reason=f"--tables left it out since {at}, and {why}"))
        for event in change.events:
            if isinstance(event, RenameTableEvent):
                # If the new name is left out, its former table is followed because of this change, which must then run.
                stays_inside = self.follows.includes(event.new_table_id)
                if event.table_id in self.came or (stays_inside and self._is_unmade_inside(event.table_id, change)):
                    lost[event.table_id] = _PASSED
        return lost

    def _is_unmade_inside(self, table_id: TableId, change: SchemaChange) -> bool:
        """Whether the change concerns a table that was never created, that the filter includes, and that is not held.

        At the commit ts at which the table got its name, a change concerns the name's former table. If an earlier change of
        the offer gives the name to a table, it concerns that one.
        """
        own = self._own(table_id)
        if own is None or not cannot_be_made(own) or own.incarnation >= change.commit_ts or table_id in self.created:
            return False
        return self.follows.includes(table_id) and table_id not in self.state.held

    def _is_later(self, own: TableProgress, change: SchemaChange) -> bool:
        """Whether the ledger row of a name belongs to a left-out table that got the name after the change."""
        return is_unborn_outside(own) and own.incarnation > change.commit_ts and not self.follows.includes(own.table_id)

    def _part(self, change: SchemaChange) -> None:
        """Stops the tables of a change that needs a name whose ledger row already belongs to a later, left-out table."""
        rows = [own for table_id in sorted(change.changes) if (own := self._own(table_id)) is not None and table_id.table]
        later = [own for own in rows if self._is_later(own, change)]
        for own in rows if later else ():
            if self.follows.includes(own.table_id) and not own.status.is_gone and own.status is not TableStatus.INCOMPLETE:
                name = later[0].table_id
                why = f"its schema change at {change.commit_ts} needs the name {name}, which another table has had since."
                at = format_tso(later[0].checkpoint)
                reason = (
                    f"{why} Load it anew as of a time after {at}, and run headrace table resync {word(own.table_id)} --at TIME."
                )
                self._put(replace(own, status=TableStatus.INCOMPLETE, reason=reason))
                self.notices.append(Notice(f"it does not go on: {reason}", own.table_id))

    def _lose(self, change: SchemaChange, lost: dict[TableId, str]) -> bool:
        """Passes over a change of left-out tables that were never created. Tables that get their rows by a RENAME lack these rows.

        False if the change also touches other tables, or no such table. Then the target shows whether the change can run.
        """
        renamed = {e.new_table_id: e.table_id for e in change.events if isinstance(e, RenameTableEvent) and e.table_id in lost}
        if not lost or not change.changes <= lost.keys() | renamed.keys():
            return False
        for table_id in lost.keys() - renamed.keys():
            own = self._own(table_id)
            if table_id in self.used and table_id in self.lacking:
                del self.lacking[table_id]  # the row belongs to the former table until the cut has ended that one
            elif own is not None and table_id in renamed.values():
                self._put(replace(own, checkpoint=change.commit_ts, after=True, status=TableStatus.GONE, reason=""))
            elif own is not None and table_id in _ended(change, ()):
                self._put(_gone_unborn(own, change.commit_ts))
            elif own is not None and is_unborn_outside(own):
                # The table is followed up to a later change, and would otherwise be created with only the rest of its rows.
                reason = f"--tables left it out from its beginning, and {lost[table_id]} {_load(table_id, own.checkpoint)}"
                self._put(replace(own, status=TableStatus.INCOMPLETE, reason=reason))
        for new, old in renamed.items():
            self._pass_earlier(old)
            own, lacking = self._own(new), _lacking_rows(new, old, change.commit_ts, lost[old], self.follows)
            self.came.discard(old)
            # If another table has the name until the end of the cut, the row belongs to that table until then: ``left_lives``.
            self._hand_over(change, [new])
            is_free = own is None or own.status.is_gone or own.incarnation >= change.commit_ts
            if self.follows.includes(new):
                self.notices.append(Notice(f"it does not go on: {lacking.reason}", new))
                self.came.add(new)
            else:
                # A table that the pipeline created keeps its row: its own RENAME or DROP runs when the filter includes it.
                is_free |= own is not None and not own.is_made
                lacking = replace(lacking, after=False)
            if is_free and new not in self.used:
                self._put(lacking)
            else:
                self.lacking[new] = lacking
        self._pass(change)
        return True

    def _pass_earlier(self, table_id: TableId) -> None:
        """Passes over the changes of these that wait for a table which was never created, because it ends now."""
        if earlier := self.unmade.pop(table_id, None):
            self.used.pop(table_id, None)
            for change in earlier:
                self._pass(change)

    def _lacks_beginning(self, change: SchemaChange, needed: SchemaChange) -> str:
        """Why the plan would create a table that lacks rows; empty if it would not.

        The plan would create it in its later shape, or as a new table although later rows of it were passed over. Such rows were
        passed over for a left-out table, in a cut in which a followed table of the same name ended. With ``--start``, a table
        without a known beginning was loaded by a person, so it lacks nothing.
        """
        table_id, own = change.table_id, self._own(change.table_id)
        is_there = own is not None and own.is_made
        is_known = table_id not in self.over and (is_there or table_id in self.created)
        by_shape = not needed.statement or any(isinstance(event, CreateTableEvent) for event in needed.events)
        if is_known or not by_shape or not self.follows.includes(table_id):
            return ""
        empties = any(isinstance(event, TruncateTableEvent) for event in change.events)
        if change.statement and (empties or _is_beginning(change)):
            return self.missing(table_id, change.commit_ts) if change.commit_ts < self.up_to else ""
        if self.state.start or _is_beginning(change):
            return ""
        return f"the schema change at {change.commit_ts} is the first that the source has for it, so rows may be missing."

    def _lack(self, table_id: TableId, change: SchemaChange, why: str) -> None:
        ts = change.commit_ts
        row = _incomplete(table_id, ts, why)
        self.notices.append(Notice(f"it does not go on: {row.reason}", table_id))
        own = self._own(table_id)
        if table_id in self.over and own is not None and own.is_made and own.status is not TableStatus.INCOMPLETE:
            # The former table of the name frees it before, and the cut cannot end there (``_hand_over``). A table that lacks rows
            # would not free it: nothing ends such a table if the beginning of the name's next one is missed.
            self.lacking[table_id] = row  # the end of the cut writes it: ``left_lives``
        else:
            self._put(row)

    def _pass(self, change: SchemaChange) -> None:
        tables = in_order(change.changes)
        entry = JournalEntry(change.identity, change.commit_ts, tables, change.statement, JournalState.SKIPPED)
        self.entries.append(entry)
        self.passed.append(change)
        self.shapes += told_shapes(self.state.with_rows(self.lacking.values()), [change])
        self.state = replace(self.state, journal={**self.state.journal, entry.identity: entry})

    def _begun_held(self, change: SchemaChange) -> list[TableId]:
        """The held tables without a ledger row whose names the change gives to a table.

        This may be a different table that loses the name again later. The name then waits before this change, too.
        """
        begins = _is_beginning(change) or _renames(change) or brought_back(change)
        begun = newly_named(change) if begins else ()
        return [t for t in dict.fromkeys(begun) if t in self.state.held and self._own(t) is None]


def _renames(change: SchemaChange) -> bool:
    return any(isinstance(event, RenameTableEvent) for event in change.events)


def left_lives(state: LedgerState, offer: Offer, follows: Followed, bound: int) -> dict[TableId, TableProgress]:
    """Ledger rows of tables that lack rows or are left out, and whose names followed tables had before.

    They result from schema changes below ``bound`` (TSO).

    The ledger has one row per name, so these rows cannot be written before the followed tables have ended. The source delivers
    the changes only once, so the rows are written with the end of the cut. This happens if a name passes to another table within
    one commit ts, or if the followed table has waited (:func:`cut_short`).
    """
    rows: dict[TableId, TableProgress] = {}
    free: set[TableId] = set()
    for change in sorted(offer.schema_changes, key=lambda change: change.commit_ts) if offer.passed is not None else ():
        if change.commit_ts >= bound:
            break
        ended, begun = _ended(change, rows), frozenset(newly_named(change))
        rows = {t: row for t, row in rows.items() if t not in ended}
        if not is_pending(state, change):
            rows |= {row.table_id: row for row in _lost_by(state, change, follows, free)}
        elif follows.takes(change):
            rows = {t: row for t, row in rows.items() if t not in begun}
            free = (free | ended) - begun
        else:
            rows |= {t: _left_out(t, change.commit_ts) for t in begun & free if not follows.includes(t)}
    return rows


def _lost_by(state: LedgerState, change: SchemaChange, follows: Followed, free: Collection[TableId]) -> Iterator[TableProgress]:
    """Rows of tables that a passed-over RENAME gives ``free`` names. They lack the rows of the tables they come from."""
    entry = state.journal.get(change.identity)
    for event in change.events if entry is not None and entry.state is JournalState.SKIPPED else ():
        if isinstance(event, RenameTableEvent):
            new = event.new_table_id
            own, lacking = state.tables.get(new), _lacking_rows(new, event.table_id, change.commit_ts, _PASSED, follows)
            is_over = own is not None and own.status.is_gone and own.checkpoint <= change.commit_ts
            if is_over or new in free:
                yield lacking if follows.includes(new) else replace(lacking, after=False)


def _lacking_rows(new: TableId, old: TableId, commit_ts: int, why: str, follows: Followed) -> TableProgress:
    """The ledger row of a table that got its name by a RENAME of a left-out table whose rows are lost."""
    left_out = f"{old}, which lacks them" if follows.includes(old) else f"{old}, which --tables leaves out"
    return _incomplete(new, commit_ts, f"its rows come from {left_out}, and {why}")


def _incomplete(table_id: TableId, commit_ts: int, why: str) -> TableProgress:
    """The ledger row of a table that lacks rows since it got its name."""
    reason = f"{why} {_load(table_id, commit_ts)}"
    return TableProgress(table_id, commit_ts, status=TableStatus.INCOMPLETE, reason=reason, incarnation=commit_ts)


def _load(table_id: TableId, commit_ts: int) -> str:
    return f"Create and load it as of {format_tso(commit_ts)} or later, and run headrace table resync {word(table_id)} --at TIME."


def _left_out(table_id: TableId, commit_ts: int) -> TableProgress:
    """The ledger row of a table that is left out from its beginning."""
    return TableProgress(table_id, commit_ts, False, TableStatus.EXCLUDED, incarnation=commit_ts)


def _gone_unborn(own: TableProgress, commit_ts: int) -> TableProgress:
    """The tombstone of a table that was never created.

    Its ``incarnation`` is its end: the row says nothing about earlier changes, so a CREATE that the source repeats does not count
    as found late.
    """
    return replace(own, checkpoint=commit_ts, after=True, status=TableStatus.GONE, incarnation=commit_ts)


def _ended(change: SchemaChange, tables: Iterable[TableId]) -> frozenset[TableId]:
    """The tables whose names the change frees. ``tables`` are those that a DROP DATABASE may drop."""
    ended = {e.table_id for e in change.events if isinstance(e, DropTableEvent | RenameTableEvent)}
    return tables_of_dropped(change, tables) | ended


def _is_beginning(change: SchemaChange) -> bool:
    """Whether the table has no rows before the change: it is a CREATE TABLE, or a shape without a statement."""
    return not change.statement or read_statement(change.statement, change.database).kind is StatementKind.CREATE_TABLE


def _there_before(change: SchemaChange) -> frozenset[TableId]:
    """The tables of the change that existed before it, as far as it shows: without the names that it gives."""
    given: set[TableId] = set()
    read: set[TableId] = set()
    for event in change.events:
        if isinstance(event, RenameTableEvent):
            read |= {event.table_id} - given
            given.add(event.new_table_id)
        elif isinstance(event, CreateTableEvent) and _is_beginning(change):
            given.add(event.table_id)
    return frozenset((change.changes - given) | read)
