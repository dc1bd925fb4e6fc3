"""What a source that forgets told of tables which take no part, or whose beginning it does not tell. Pure.

A stream tells each schema change and each row once. A table that the filter leaves out does not hold its position, so nothing but
the ledger knows by the time that the table is taken in that there was one. And where a table's beginning was never told, nobody
knows which rows it had: made by its later shape it would lack these, and nothing would say so.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from headrace.ddl.statement import StatementKind, read_statement
from headrace.ddl.told import brought_back
from headrace.engine.excluded_tables import (
    Followed,
    Includes,
    cannot_be_made,
    drop_of,
    followed,
    has_dropped,
    is_unborn_outside,
    kept_ends,
    was_never_made,
)
from headrace.engine.journal import drops_databases, is_pending, tables_of_dropped
from headrace.engine.requests import Carried
from headrace.engine.shapes import from_shape_if_unknown, told_shapes, with_kept_shapes
from headrace.engine.unreadable import is_unborn
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
    """What the ledger has to know of the offer's schema changes before a cut passes them; ``None`` when it does.

    - A table that is left out has a row from its CREATE on, or from when it is first heard of, and its shapes are kept.
      Where it was made before, its DROP waits in the journal until the filter takes it in, unless another table gets its name.
    - A held table has a row before the first change that brings something to its name, which holds the source's position.
    - A table lacks rows whose beginning is not told any more, or that has the rows of a left-out one whose records were passed.
    """
    noted = _noted(state, offer, includes, missing)
    former = kept_ends(state)
    begun_anew = [former[t].identity for t, end in noted.ends.items() if end is None and t in former]
    ends = [end for end in noted.ends.values() if end is not None and end.identity not in state.journal]
    shapes = told_shapes(noted.state.with_rows(noted.lacking.values()), noted.passed)
    update = LedgerUpdate(
        tables=tuple(noted.rows.values()),
        journal=(*noted.entries, *ends),
        forget_journal=tuple(begun_anew),
        shapes=tuple({shape.key: shape for shape in (*noted.shapes, *shapes)}.values()),
    )
    return Carried(update, tuple(noted.notices)) if update != LedgerUpdate() else None


def cut_short(state: LedgerState, offer: Offer, includes: Includes, missing: Missing) -> Offer:
    """The offer of a source that forgets, up to where a name would need a second row in the ledger.

    The ledger has one row of a name. A followed table has it until the cut ends, and what is noted of a left-out one that comes to
    the name then would be told only once. So the cut ends before that, or with the commit ts in which the name changes hands.
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
    noted = _Noted(state, followed(state, offer.schema_changes, includes), missing, offer.passed or 0)
    for change in sorted(offer.schema_changes, key=lambda change: change.commit_ts):
        if change.commit_ts < offer.schema_bound and not change.known_as and is_pending(noted.state, change):
            noted.take(change)
    return noted


def with_kept_changes(offer: Offer, state: LedgerState) -> Offer:
    """The offer of a source that forgets, with the schema changes that the ledger keeps.

    These are the ones that led to its shapes, and the DROPs that wait for a table to be taken in and are not told any more.
    """
    offer = with_kept_shapes(offer, state)
    told = {change.place for change in offer.schema_changes}
    # What went with a database that is dropped by now has its DROP from that.
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


def lose_gone(state: LedgerState, offer: Offer) -> Carried | None:
    """Lets tables that do not run wait until they are loaded anew, where records are not kept any more that they need.

    A schema change that was found late lies below where its tables stand.
    """
    undecided = (entry for entry in state.journal.values() if not entry.state.is_settled and entry.commit_ts <= offer.gone)
    late = {table_id for entry in undecided for table_id in entry.tables}
    rows = []
    for table_id, own in sorted(state.tables.items()):
        waits = own.status is TableStatus.CATCHING_UP or (own.status.is_stopped and not own.status.is_gone)
        needs = own.checkpoint < offer.gone or (own.checkpoint == offer.gone and not own.after) or table_id in late
        if waits and needs and table_id.table and own.status is not TableStatus.INCOMPLETE:
            reason = (
                f"it stands at {format_tso(own.checkpoint)}, and records up to {format_tso(offer.gone)} are not kept any more. "
                f"Load it anew as of a time after that, and run headrace table resync {word(table_id)} --at TIME. If its columns "
                "or its key have changed since, begin the pipeline anew instead: headrace reset."
            )
            rows.append(replace(own, status=TableStatus.INCOMPLETE, reason=reason))
    notices = tuple(Notice(f"it does not go on: {own.reason}", own.table_id) for own in rows)
    return Carried(LedgerUpdate(tables=tuple(rows)), notices) if rows else None


def find_begun_untold(state: LedgerState, offer: Offer, includes: Includes) -> Carried | None:
    """Lets tables that are gone wait until they are loaded, where rows come of a later table whose CREATE was passed over.

    Nothing tells their shape, or the one of the former table would be taken for it, and nobody would read them.
    """
    passed = offer.passed or 0
    gone = {t: own for t, own in state.tables.items() if own.status is TableStatus.GONE and own.checkpoint < passed and includes(t)}
    begun = {t for change in offer.schema_changes if gone and is_pending(state, change) for t in newly_named(change)}
    rows = []
    # What the stream repeats of a former life belongs before its end.
    come = [(s.table_id, s.latest or 0) for s in offer.splits] + [(p.table_id, p.latest or 0) for p in offer.problems]
    later = {table_id for table_id, latest in come if table_id in gone and latest > gone[table_id].checkpoint}
    for table_id in sorted(later & gone.keys() - begun):
        reason = (
            f"rows of it come, but the records that tell how it began are not kept any more. Create and load it as of a time after "
            f"{format_tso(passed)}, and run headrace table resync {word(table_id)} --at TIME."
        )
        rows.append(TableProgress(table_id, passed, status=TableStatus.INCOMPLETE, reason=reason, incarnation=passed))
    notices = tuple(Notice(f"it does not go on: {own.reason}", own.table_id) for own in rows)
    return Carried(LedgerUpdate(tables=tuple(rows)), notices) if rows else None


@dataclass
class _Noted:
    """What was found so far. ``state`` has the rows already."""

    state: LedgerState
    follows: Followed
    missing: Missing
    up_to: int
    """``Offer.passed``."""
    rows: dict[TableId, TableProgress] = field(default_factory=dict)
    entries: list[JournalEntry] = field(default_factory=list)
    passed: list[SchemaChange] = field(default_factory=list)
    shapes: list[TableShape] = field(default_factory=list)
    """Those of tables that may have come to their end since: the source may tell its last changes again, and needs them then."""
    notices: list[Notice] = field(default_factory=list)
    created: set[TableId] = field(default_factory=set)
    over: frozenset[TableId] = frozenset()
    """The names that are free by these changes."""
    lacking: dict[TableId, TableProgress] = field(default_factory=dict)
    """The tables that lack rows, and come to names that other ones have until the cut ends."""
    ends: dict[TableId, JournalEntry | None] = field(default_factory=dict)
    """The DROPs of left-out tables that were made; ``None`` where another table has had the name since."""
    came: set[TableId] = field(default_factory=set)
    """The followed names to which tables came by these changes that lack all rows: nobody has made them."""
    carried: frozenset[TableId] = frozenset()
    """The left-out names that have the rows of tables which were made, and then left out."""
    used: dict[TableId, int] = field(default_factory=dict)
    """The names of the changes that run with the cut, or wait, and their last commit ts (TSO): the cut writes these rows."""
    end: int | None = None
    """Where the cut has to end (TSO), because one of these names changes hands."""

    def __post_init__(self) -> None:
        self._begun, self._before, self._at = self.state, self.state, -1

    def take(self, change: SchemaChange) -> None:
        """The next change."""
        if change.commit_ts > self._at:
            self._before, self._at = self.state, change.commit_ts
        takes, unmade = self.follows.takes(change), self._renamed_unmade(change)
        if not takes or drops_databases(change):
            self._end_left_out(change)
        if not takes:
            self._hand_over(change, change.changes | tables_of_dropped(change, self.used))
            self._leave_out(change, unmade)
        elif not self._lose(change, self._lost(change)):
            self._follow(change)

    def _follow(self, change: SchemaChange) -> None:
        """The next change, which runs with the cut, or waits."""
        self._part(change)
        needed = from_shape_if_unknown(self.state, change, self.created, self.follows)
        if lacks := self._lacks_beginning(change, needed):
            self._hand_over(change, [change.table_id])
            self._lack(change.table_id, change, lacks)
            self._pass(change)
        for table_id in self._begun_held(change):
            self._put(TableProgress(table_id, change.commit_ts, False, TableStatus.HELD, incarnation=change.commit_ts))
        if needed.events or needed.statement:  # else it is a kept shape of a table that may never have been made
            self.created |= needed.changes
        self.used |= dict.fromkeys(change.changes | tables_of_dropped(change, self.state.tables), change.commit_ts)
        self.over = self.over.union(_ended(change, self.state.tables)).difference(newly_named(change))

    def _put(self, row: TableProgress) -> None:
        self.rows[row.table_id] = row
        self.state = self.state.with_rows([row])

    def _own(self, table_id: TableId) -> TableProgress | None:
        return self.state.tables.get(table_id)

    def _hand_over(self, change: SchemaChange, names: Iterable[TableId]) -> None:
        """Lets the cut end before a change to what is noted of these names, if a change of the cut has used them.

        Where that has the same commit ts, or there is nothing before that to be applied, the cut ends with it.
        """
        used, ts = max((self.used.get(t, -1) for t in names), default=-1), change.commit_ts
        at_least = max(self._begun.checkpoint + 1, self._begun.attempted)
        if used >= 0 and self.end is None and ts >= at_least:
            self.end = ts - 1 if used < ts and ts > at_least else ts

    def _is_told_again(self, table_id: TableId, commit_ts: int) -> bool:
        """Whether what a commit ts makes of a left-out name was noted before: the steps of one statement are told as one."""
        own = self._before.tables.get(table_id)
        return own is not None and own.incarnation == commit_ts and (own.status.is_gone or was_never_made(own))

    def _end_left_out(self, change: SchemaChange) -> None:
        """Lets left-out tables end, also with a database that is followed: those that were made stay, and their DROP waits."""
        renamed = {event.table_id for event in change.events if isinstance(event, RenameTableEvent)}
        for table_id in sorted(_ended(change, self.state.tables) - self.used.keys()):
            own = self._own(table_id)
            if own is None or not self._is_left_out(own) or own.checkpoint > change.commit_ts:
                continue
            if self._is_told_again(table_id, change.commit_ts):
                continue
            if was_never_made(own):
                self._put(_gone_unborn(own, change.commit_ts))
            elif table_id.table and table_id not in renamed:
                drop = drop_of(change, table_id) if drops_databases(change) else change
                tables = in_order(drop.changes)
                self.ends[table_id] = JournalEntry(drop.identity, drop.commit_ts, tables, drop.statement, JournalState.WAITING)

    def _is_left_out(self, own: TableProgress) -> bool:
        """Whether the filter leaves a table out that keeps its place, or lacked rows already."""
        return own.status in (TableStatus.EXCLUDED, TableStatus.INCOMPLETE) and not self.follows.includes(own.table_id)

    def _renamed_unmade(self, change: SchemaChange) -> dict[TableId, TableId]:
        """The tables that get the rows of left-out ones that were never made, which they have then."""
        renames = [(e.new_table_id, e.table_id) for e in change.events if isinstance(e, RenameTableEvent)]
        return {new: old for new, old in renames if (own := self._own(old)) is not None and was_never_made(own)}

    def _leave_out(self, change: SchemaChange, unmade: Mapping[TableId, TableId]) -> None:
        """Nothing is done about a left-out table but to remember that there is one, and which shape its rows have.

        One that has the rows of another, which was never made, lacks these: the ledger has no place from which it had them all.
        """
        ts = change.commit_ts
        named = list(dict.fromkeys(newly_named(change)))
        heard_of = [*named, *([change.table_id] if change.schema is not None else [])]
        is_lost = False
        for table_id in (t for t in dict.fromkeys(heard_of) if t not in self.used and not self._is_told_again(t, ts)):
            own = self._own(table_id)
            if own is None or (own.status.is_gone and own.checkpoint <= ts):
                if table_id in unmade:
                    is_lost |= unmade[table_id] not in self.carried
                    lacking = _lacking_rows(table_id, unmade[table_id], ts, _PASSED, self.follows)
                    self._put(replace(lacking, after=False))
                else:
                    self._put(_left_out(table_id, ts))
            elif table_id in named and self._is_left_out(own) and own.checkpoint <= ts:
                self.ends[table_id] = None
        self._carry(change)
        own = self._own(change.table_id)
        if is_lost:
            self._pass(change)  # else it would be found late once these are loaded
        elif own is not None and self._is_left_out(own) and own.checkpoint <= ts:
            self.passed.append(change)
        for table_id in change.changes:
            own = self._own(table_id)
            if own is not None and own.status is TableStatus.EXCLUDED and own.incarnation < ts < own.checkpoint:
                reason = f"its schema change at {ts} was found only after rows behind it were applied, while --tables left it out."
                self._put(replace(own, status=TableStatus.INCOMPLETE, reason=f"{reason} {_load(table_id, own.checkpoint)}"))

    def _carry(self, change: SchemaChange) -> None:
        """Notes where the rows of left-out tables go that were made: the change runs when the filter takes these in."""
        for event in change.events:
            if isinstance(event, RenameTableEvent):
                own = self._own(event.table_id)
                if event.table_id in self.carried or (own is not None and own.is_made and self._is_left_out(own)):
                    self.carried = self.carried - {event.table_id} | {event.new_table_id}

    def _lost(self, change: SchemaChange) -> dict[TableId, str]:
        """The left-out tables of the change that were never made, and whose records were passed over, with the reason."""
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
        return lost | {e.table_id: _PASSED for e in change.events if isinstance(e, RenameTableEvent) and e.table_id in self.came}

    def _is_later(self, own: TableProgress, change: SchemaChange) -> bool:
        """Whether the one row of a name is of a left-out table that came to it behind the change."""
        return is_unborn_outside(own) and own.incarnation > change.commit_ts and not self.follows.includes(own.table_id)

    def _part(self, change: SchemaChange) -> None:
        """Lets tables go that a change gives a name for a while of which the row is of a later, left-out table already."""
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
        """Passes over a change of left-out tables that were never made: who has their rows behind it lacks them.

        False where it touches other tables too, or no such ones: then the target tells whether it can run.
        """
        renamed = {e.new_table_id: e.table_id for e in change.events if isinstance(e, RenameTableEvent) and e.table_id in lost}
        if not lost or not change.changes <= lost.keys() | renamed.keys():
            return False
        for table_id in lost.keys() - renamed.keys():
            own = self._own(table_id)
            if own is not None and table_id in renamed.values():
                self._put(replace(own, checkpoint=change.commit_ts, after=True, status=TableStatus.GONE, reason=""))
            elif own is not None and table_id in _ended(change, ()):
                self._put(_gone_unborn(own, change.commit_ts))
            elif own is not None and is_unborn_outside(own):
                # It is followed up to a later change, which would have it made from the rest of its rows.
                reason = f"--tables left it out from its beginning, and {lost[table_id]} {_load(table_id, own.checkpoint)}"
                self._put(replace(own, status=TableStatus.INCOMPLETE, reason=reason))
        for new, old in renamed.items():
            own, lacking = self._own(new), _lacking_rows(new, old, change.commit_ts, lost[old], self.follows)
            self.came.discard(old)
            # Where another table has the name until the cut, its row is needed: ``left_lives``.
            self._hand_over(change, [new])
            is_free = own is None or own.status.is_gone or own.incarnation >= change.commit_ts
            if self.follows.includes(new):
                self.notices.append(Notice(f"it does not go on: {lacking.reason}", new))
                self.came.add(new)
            else:
                is_free, lacking = True, replace(lacking, after=False)
            if is_free and new not in self.used:
                self._put(lacking)
            else:
                self.lacking[new] = lacking
        self._pass(change)
        return True

    def _lacks_beginning(self, change: SchemaChange, needed: SchemaChange) -> str:
        """Why the plan would make a table that lacks rows: by its later shape, or anew where rows of behind that were passed.

        These were passed with a table that was left out, in a cut in which a followed one of the name had its end. A table whose
        beginning is not told, and that is there as of a start, a person has loaded.
        """
        table_id, own = change.table_id, self._own(change.table_id)
        is_there = own is not None and not own.status.is_gone and not is_unborn(own)
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
        reason = f"{why} {_load(table_id, ts)}"
        self._put(TableProgress(table_id, ts, status=TableStatus.INCOMPLETE, reason=reason, incarnation=ts))
        self.notices.append(Notice(f"it does not go on: {reason}", table_id))

    def _pass(self, change: SchemaChange) -> None:
        tables = in_order(change.changes)
        entry = JournalEntry(change.identity, change.commit_ts, tables, change.statement, JournalState.SKIPPED)
        self.entries.append(entry)
        self.passed.append(change)
        self.shapes += told_shapes(self.state.with_rows(self.lacking.values()), [change])
        self.state = replace(self.state, journal={**self.state.journal, entry.identity: entry})

    def _begun_held(self, change: SchemaChange) -> list[TableId]:
        """The held tables of which the ledger knows nothing yet, and to whose names something comes with the change.

        Where that is another table, which may give the name away again before one begins under it, it waits before that too.
        """
        begins = _is_beginning(change) or _renames(change) or brought_back(change)
        begun = newly_named(change) if begins else ()
        return [t for t in dict.fromkeys(begun) if t in self.state.held and self._own(t) is None]


def _renames(change: SchemaChange) -> bool:
    return any(isinstance(event, RenameTableEvent) for event in change.events)


def left_lives(state: LedgerState, offer: Offer, follows: Followed, bound: int) -> dict[TableId, TableProgress]:
    """The rows of tables that lack rows, and whose names followed ones had before them, by schema changes below ``bound`` (TSO).

    The ledger has one row of a name, so these cannot be written before the followed ones have had their end, and the source tells
    of them once: they are written with the end of the cut. That is so where a name changes hands within one commit ts, or where
    the followed table has waited (:func:`cut_short`).
    """
    rows: dict[TableId, TableProgress] = {}
    free: set[TableId] = set()
    for change in sorted(offer.schema_changes, key=lambda change: change.commit_ts) if offer.passed is not None else ():
        if change.commit_ts >= bound:
            break
        if not follows.takes(change):
            continue
        ended, begun = _ended(change, rows), frozenset(newly_named(change))
        rows = {t: row for t, row in rows.items() if t not in ended}
        if is_pending(state, change):
            rows = {t: row for t, row in rows.items() if t not in begun}
            free = (free | ended) - begun
        else:
            rows |= {row.table_id: row for row in _lost_by(state, change, follows, free)}
    return rows


def _lost_by(state: LedgerState, change: SchemaChange, follows: Followed, free: Collection[TableId]) -> Iterator[TableProgress]:
    """The tables that come to ``free`` names by a change that was passed over: they lack the rows of left-out ones."""
    entry = state.journal.get(change.identity)
    for event in change.events if entry is not None and entry.state is JournalState.SKIPPED else ():
        if isinstance(event, RenameTableEvent):
            new = event.new_table_id
            own, lacking = state.tables.get(new), _lacking_rows(new, event.table_id, change.commit_ts, _PASSED, follows)
            is_over = own is not None and own.status.is_gone and own.checkpoint <= change.commit_ts
            if is_over or new in free:
                yield lacking if follows.includes(new) else replace(lacking, after=False)


def _lacking_rows(new: TableId, old: TableId, commit_ts: int, why: str, follows: Followed) -> TableProgress:
    """The row of a table that got its name by a RENAME of a left-out one, whose rows are lost."""
    left_out = f"{old}, which lacks them" if follows.includes(old) else f"{old}, which --tables leaves out"
    reason = f"its rows come from {left_out}, and {why} {_load(new, commit_ts)}"
    return TableProgress(new, commit_ts, status=TableStatus.INCOMPLETE, reason=reason, incarnation=commit_ts)


def _load(table_id: TableId, commit_ts: int) -> str:
    return f"Create and load it as of {format_tso(commit_ts)} or later, and run headrace table resync {word(table_id)} --at TIME."


def _left_out(table_id: TableId, commit_ts: int) -> TableProgress:
    """The row of a table that is left out from its very beginning."""
    return TableProgress(table_id, commit_ts, False, TableStatus.EXCLUDED, incarnation=commit_ts)


def _gone_unborn(own: TableProgress, commit_ts: int) -> TableProgress:
    """The tombstone of a table that nothing made. It begins with the end: of what came before it the row says nothing, so that a
    CREATE which the source tells again does not count as one that was found late."""
    return replace(own, checkpoint=commit_ts, after=True, status=TableStatus.GONE, incarnation=commit_ts)


def _ended(change: SchemaChange, tables: Iterable[TableId]) -> frozenset[TableId]:
    """The tables whose names the change frees. ``tables`` are those that may go with a database."""
    ended = {e.table_id for e in change.events if isinstance(e, DropTableEvent | RenameTableEvent)}
    return tables_of_dropped(change, tables) | ended


def _is_beginning(change: SchemaChange) -> bool:
    """Whether its table has no rows before it: it is a CREATE TABLE, or the source tells where it stands by a shape alone."""
    return not change.statement or read_statement(change.statement, change.database).kind is StatementKind.CREATE_TABLE


def _there_before(change: SchemaChange) -> frozenset[TableId]:
    """The tables of the change that were there before it, as far as it tells: not the names that it gives."""
    given: set[TableId] = set()
    read: set[TableId] = set()
    for event in change.events:
        if isinstance(event, RenameTableEvent):
            read |= {event.table_id} - given
            given.add(event.new_table_id)
        elif isinstance(event, CreateTableEvent) and _is_beginning(change):
            given.add(event.table_id)
    return frozenset((change.changes - given) | read)


def newly_named(change: SchemaChange) -> Iterator[TableId]:
    """The tables that have their names by the change, or are heard of with it."""
    yield from brought_back(change)
    for event in change.events:
        if isinstance(event, CreateTableEvent):
            yield event.table_id
        elif isinstance(event, RenameTableEvent):
            yield event.new_table_id
