"""Applies one cut: intent, rounds of schema changes and rows, commit. There is one object per cut; ``loop`` runs them.

The durable steps have this order (rules 11 and 14). The intent raises ``attempted`` and, for a cut of several steps, records which
splits are read. Each schema change is journalled before it runs, with its tables at (V, before), and after it, at (V, after). If
rows do not show when they were committed, what these tables have read by then counts as read. Rows are written. Finally one ledger
update holds the checkpoint, the position and the result for each table. If a cut has only a few rows, they are in one transaction
with that update. With ``atomic_cut``, the whole cut is one transaction.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from headrace import faults
from headrace.ddl.statement import StatementKind, read_statement
from headrace.engine import begun_changes, long_changes, table_places
from headrace.engine.barriers import awaits_approval
from headrace.engine.bearers import missing_of, with_missing
from headrace.engine.begun_changes import decision_hint
from headrace.engine.conservation import row_figures
from headrace.engine.cut_end import CutEnd, record_of
from headrace.engine.cut_letters import CutLetters
from headrace.engine.excluded_tables import inside
from headrace.engine.given_up import over_with_table, served_requests, told_given_up
from headrace.engine.journal import forgettable, has_run, is_of, journalled_together, unfollowed
from headrace.engine.kept_keys import kept_unique_key, left_unique_key
from headrace.engine.leftovers import leftovers, rows_under_skip
from headrace.engine.marked_tables import begin_to_say, say
from headrace.engine.ownership import Ownership, stay_notices
from headrace.engine.shapes import outgrown_shapes, told_shapes
from headrace.engine.write_task import read_problems
from headrace.faults import Step
from headrace.model.cut import Cut, CutRound, Hold
from headrace.model.events import CreateTableEvent, SchemaChange
from headrace.model.ledger import (
    CutRecord,
    JournalEntry,
    JournalState,
    LedgerState,
    RowFigures,
    TableProgress,
    TableShape,
    TableStatus,
    Verdict,
    in_order,
)
from headrace.model.offer import Offer
from headrace.model.outcome import Notice, Problem, Remedy, SplitReport, WriteOutcome
from headrace.model.split import Split
from headrace.model.table import TableId
from headrace.sinks.base import DataSink, EditingLedger, Ledger, LedgerUpdate, Round, RowsRefused, WriterContext, WriteReport
from headrace.sinks.cut_commit import CutCommit
from headrace.sinks.dead_letters import DeadLetters
from headrace.sinks.metadata_applier import Begun, SchemaChangeRefused, SchemaChangeUnclear, TargetUnreadableError
from headrace.sources.base import EventSource

RoundFactory = Callable[[Cut, CutRound, WriterContext, CutCommit | None, Mapping[TableId, TableProgress]], Round]
_Rows = Callable[[LedgerState, SchemaChange, JournalEntry], tuple[TableProgress, ...]]
_NOT_BEGUN = frozenset({JournalState.WAITING, JournalState.UNCLEAR})
"""States from which a decision lets a change run as if it had never begun."""


class TablesExcluded(Exception):
    """An ``atomic_cut`` sink refused a schema change or rows: the whole cut must be planned again without these tables.

    ``held`` are tables that can advance up to a schema change, ``problems`` those that cannot advance at all.
    """

    def __init__(self, problems: Mapping[TableId, Problem], held: Mapping[TableId, Hold]) -> None:
        super().__init__(", ".join(str(t) for t in (*problems, *held)))
        self.problems, self.held = problems, held


class CutRun:
    """Applies one planned cut. ``state`` is the ledger's at the beginning; :attr:`state` is updated with each step."""

    def __init__(
        self,
        cut: Cut,
        state: LedgerState,
        *,
        source: EventSource,
        offer: Offer,
        sink: DataSink,
        ledger: Ledger,
        make_round: RoundFactory,
        includes: Callable[[TableId], bool],
        letters: DeadLetters | None = None,
    ) -> None:
        """``offer`` is the offer from which the cut was planned, and ``includes`` the table filter.

        If there are ``letters``, records that cannot be applied go there instead of stopping their table.
        """
        self.cut = cut
        self.state = state
        self.problems: dict[TableId, Problem] = dict(cut.problems)
        self.holds: dict[TableId, Hold] = dict(cut.holds)
        self.notices: list[Notice] = []
        self._offer = offer
        self._source, self._sink, self._ledger, self._make_round = source, sink, ledger, make_round
        self._reports: dict[str, SplitReport] = {}
        self._due: dict[TableId, dict[str, Split]] = {}
        self._consumed: set[str] = set()
        self._outcomes: list[WriteOutcome] = []
        self._letters = CutLetters(cut, state, letters)
        self._ownership = Ownership(sink.capabilities, sink.metadata_applier, includes, cut.outside, self._stands_still)
        self._reborn = dict(cut.reborn)
        self._passed = table_places.Passed.of(cut.passed, cut.checkpoints)
        self._left_behind = list(cut.left_behind)
        self._changes_done = 0
        self._rows = RowFigures()
        self._round_is_over = False
        self._committed: CutCommit | None = None

    def run(self) -> CutRecord:
        """Applies the cut. Raises what sinks and ledgers raise; the checkpoint has not moved then."""
        started = time.monotonic()
        self._sink.begin_cut()
        position = self._position_before()
        if self.cut.rounds and (self.cut.hi > self.state.attempted or position is not None):
            self._update(LedgerUpdate(attempted=self.cut.hi, position=position), Step.INTENT)
        edited = {identity for identity, decision in self.cut.decisions.items() if decision.verdict is Verdict.EDIT}
        for cut_round in self.cut.rounds:
            for changes in journalled_together(cut_round.changes, edited):
                self._apply_changes(changes)
            self._write(cut_round)
        return self._commit(started)

    @property
    def stopped(self) -> dict[TableId, Problem]:
        """The tables that did not reach the end of the cut, and why."""
        return self._end.stopped

    @property
    def _end(self) -> CutEnd:
        """The end of the cut, as known so far."""
        return CutEnd(self.cut, self.state, self.problems, self.holds, self._reborn)

    def _update(self, update: LedgerUpdate, step: Step, write: Callable[[LedgerUpdate], None] | None = None) -> None:
        """Writes one step of the ledger, with ``write`` if given, otherwise with ``Ledger.update``."""
        if self._round_is_over:
            # The step after a round also ends the round's tasks: a task that was lost for a while must not write afterwards.
            update = replace(update, attempt=self.state.attempt + 1)
        faults.before(step)
        (write or self._ledger.update)(update)
        faults.after(step)
        self._round_is_over = False  # only now: a refused step has not ended the tasks
        self.state = update.applied_to(self.state)

    # --- schema changes -------------------------------------------------------------------------------------------

    def _apply_changes(self, changes: Sequence[SchemaChange]) -> None:
        """Journals the changes as pending, runs them, and journals those that were not refused as settled.

        Refused changes are journalled as waiting at once: whatever happens to their tables, these changes have not run.
        """
        found = [self._looked_at(change) for change in changes]
        steps = [step for step in found if step is not None]
        todo = {change.identity: change for change, _ in steps}
        running = [(change, entry) for change, entry in steps if not entry.state.is_settled]
        fresh = [e for _, e in running if not e.handle or self.state.journal.get(e.identity) != e]
        self._journal(fresh, self._begun_rows, todo, Step.JOURNAL_PENDING)
        ran = [self._run_change(change, entry) for change, entry in running]
        settled = [entry for entry in (*(entry for _, entry in steps), *ran) if entry.state.is_settled]
        left = [entry for entry in ran if not (entry.state.is_settled or entry.handle)]
        also = [entry for e in settled for entry in self._ended_with(todo[e.identity])]
        self._journal([*left, *settled], self._settled_rows, todo, Step.JOURNAL_SETTLED, also)
        self._changes_done += len(settled)

    def _looked_at(self, told: SchemaChange) -> tuple[SchemaChange, JournalEntry] | None:
        """As :meth:`_prepared`, with the target's state before the change. Tables that the account may not see stop before it."""
        applier = self._sink.metadata_applier
        try:
            change = self._ownership.bounded(told, self.state)
            touched = sorted(change.touches | table_places.dropped_with(change))
            still = [t for t in touched if self._stands_still(t, change.commit_ts)]
            if still and not table_places.passes_without(self.state, change, still):
                self._hold_rest(change, still[0])
                return None
            entry = self.state.journal.get(change.identity)
            step = (change, entry) if entry is not None and entry.handle else self._prepared(change)
            if step is None or step[1].state is not JournalState.PENDING:
                return step
            change, entry = step
            is_whole = self._verdict(change) is Verdict.EDIT or self._sink.capabilities.atomic_cut
            long = None if is_whole else long_changes.journalled(applier, change, entry)
            return change, long or replace(entry, state_before=applier.state_before(change))
        except TargetUnreadableError as error:
            self._refused(told, Problem(told.table_id, error.message, place=told.origin, hint=error.hint or ""))
            return None

    def _prepared(self, change: SchemaChange) -> tuple[SchemaChange, JournalEntry] | None:
        """The change with its entry: pending if it must run, settled if it is done.

        ``None`` if its tables stop before it, or if it has already been written to the ledger.
        """
        entry, decision = self._journalled(change), self.cut.decisions.get(change.identity)
        begun = Begun.ABSENT if entry is None else self._begun(entry, change)
        decided = self._verdict(change) in (Verdict.SKIP, Verdict.EDIT)
        foreign = self._in_its_way(change, decided=decided) if begun is Begun.ABSENT else None
        if isinstance(foreign, Problem):
            if entry is not None:  # it has not run, and waits from now on like a change that was never begun
                self._update(LedgerUpdate(journal=(begun_changes.waiting(entry, change),)), Step.JOURNAL_SETTLED)
            self._refused(change, foreign)
            return None
        if entry is not None and begun_changes.has_to_ask(change, entry, decision, begun):
            # A decision made before the question is not an answer to it.
            used = (change.identity,) if decision else ()
            self._update(LedgerUpdate(journal=(begun_changes.unclear(entry),), used_decisions=used), Step.JOURNAL_SETTLED)
            self._stop_before(change, begun_changes.asks(change, entry))
            return None
        if entry is not None and begun is Begun.DONE:
            if decided or begun_changes.wants_something_else(change, entry, decision):
                self.notices.extend(filter(None, [begun_changes.ran_before(change, entry, decision)]))
            if not begun_changes.wants_something_else(change, entry, decision):
                return change, replace(entry, state=JournalState.DONE)
        elif self._verdict(change) is None and change.identity in self.cut.unapproved:
            self._stop_before(change, awaits_approval(change))
            return None
        return self._passed_over(change, begun, foreign) if foreign or decided else (change, self._entry(change))

    def _passed_over(self, change: SchemaChange, begun: Begun, foreign: Notice | None) -> tuple[SchemaChange, JournalEntry] | None:
        """As :meth:`_prepared`, for a change that is skipped or edited, or that would drop what does not belong to the pipeline."""
        if self._verdict(change) is Verdict.EDIT:
            return None if self._edit_rows(change) else (change, self._entry(change))
        if foreign is None and (kept := kept_unique_key(change, self.state, self._sink.metadata_applier)) is not None:
            self._stop_before(change, kept)
            return None
        self.notices.append(foreign or begun_changes.skipped(change, begun))
        known = self.state.journal.get(change.identity)
        if known is not None and known.state is JournalState.UNCLEAR:  # skipping it confirms that it ran
            return change, replace(known, state=JournalState.DONE)
        return change, replace(self._entry(change), state=JournalState.SKIPPED)

    def _edit_rows(self, change: SchemaChange) -> bool:
        """Runs a person's statement in one transaction with the journal, if the ledger can: then it is never unclear if it ran."""
        statement, ledger = self.cut.decisions[change.identity].statement, self._ledger
        if not isinstance(ledger, EditingLedger) or not ledger.takes_in(statement):
            return False
        entry = self._entry(change)
        settled = [replace(entry, state=JournalState.DONE), *self._ended_with(change)]
        step = self._journalled_step(settled, self._settled_rows(self.state, change, settled[0]), [change])
        try:
            self._update(step, Step.JOURNAL_SETTLED, lambda update: ledger.update_with(update, change, statement))
        except SchemaChangeRefused as refused:
            self._refused(change, refused.problem)
            before = self._begun_rows(self.state, change, entry)
            self._update(
                replace(step, journal=(begun_changes.waiting(entry, change),), tables=before, used_decisions=(), shapes=()),
                Step.JOURNAL_SETTLED,
            )
            return True
        left = left_unique_key(change, self.state, self._sink.metadata_applier)
        self.notices.append(Notice(f"in place of the source's statement this was run: {statement}", change.table_id))
        self.notices.extend(filter(None, [left]))
        self._changes_done += 1
        return True

    def _in_its_way(self, change: SchemaChange, *, decided: bool) -> Notice | Problem | None:
        """What prevents a change that was not begun: an object of others (see ``Ownership.foreign``), or leftovers.

        A change that a policy skips is checked only for rows of a former table, since no policy covers those.
        """
        if decided:
            is_asked = change.identity in self.state.decisions or is_of(unfollowed(self.state), change)
            return None if is_asked else rows_under_skip(change, self.state, self._sink.metadata_applier.describe)
        found = self._ownership.foreign(change, self.state)
        return found or leftovers(change, self.state, self._sink.metadata_applier.describe)

    def _stands_still(self, table_id: TableId, commit_ts: int) -> bool:
        return table_id in self.problems or (table_id in self.holds and self.holds[table_id].at <= commit_ts)

    def _behind(self, change: SchemaChange) -> frozenset[TableId]:
        """The tables of a change that are stopped before it and that a person let it pass without."""
        tables = change.changes | table_places.dropped_with(change)
        return frozenset(t for t in tables if self._stands_still(t, change.commit_ts))

    def _ended_with(self, change: SchemaChange) -> list[JournalEntry]:
        """Earlier changes of tables that were stopped before them and that end with this change: they will not run any more."""
        behind = self._behind(change)
        if not behind:
            return []
        rows = {row.table_id: row for row in table_places.after(self.state, change, behind, self._passed)}
        gone = {t for t in behind if t in rows and rows[t].status.is_gone}
        over = (c for c in self._left_behind if c.changes <= gone and c.commit_ts <= change.commit_ts)
        return [replace(self._entry(c), state=JournalState.SKIPPED) for c in over]

    def _journalled(self, change: SchemaChange) -> JournalEntry | None:
        """The journal's entry, if the change was begun."""
        entry = self.state.journal.get(change.identity)
        return None if entry is None or entry.state in _NOT_BEGUN else entry

    def _verdict(self, change: SchemaChange) -> Verdict | None:
        """The decision about the change. A change of tables that are not followed is skipped."""
        decision = self.cut.decisions.get(change.identity)
        if decision is None and is_of(unfollowed(self.state), change):
            return Verdict.SKIP
        return decision.verdict if decision else None

    def _entry(self, change: SchemaChange) -> JournalEntry:
        decision = self.cut.decisions.get(change.identity)
        statement = decision.statement if decision and decision.verdict is Verdict.EDIT else change.statement
        return JournalEntry(change.identity, change.commit_ts, in_order(change.changes), statement, JournalState.PENDING)

    def _run_change(self, change: SchemaChange, entry: JournalEntry) -> JournalEntry:
        """Executes a change, or a person's statement in its place. Returns its entry, which waits if the target refuses it."""
        try:
            if entry.state is not JournalState.RUNNING:
                self._execute(change)
            elif not long_changes.is_done(self._sink.metadata_applier, change, entry):
                self._stop_before(change, long_changes.still_runs(change, entry))
                return entry
        except SchemaChangeUnclear as found:
            hint = begun_changes.asks(change, entry).hint
            self._stop_before(change, replace(found.problem, hint=hint, remedy=Remedy.DECISION))
            return begun_changes.unclear(entry)
        except SchemaChangeRefused as refused:
            self._refused(change, refused.problem)
            return begun_changes.waiting(entry, change)
        return replace(entry, state=JournalState.DONE, state_before="")

    def _execute(self, change: SchemaChange) -> None:
        """Raises SchemaChangeRefused, SchemaChangeUnclear, TransientError."""
        applier, edit = self._sink.metadata_applier, None
        if self._verdict(change) is Verdict.EDIT:
            edit = self.cut.decisions[change.identity].statement
        faults.before(Step.SCHEMA_CHANGE, change.statement)
        self.notices.extend(begun_changes.run(applier, change, edit, rolls_back=self._sink.capabilities.atomic_cut))
        left = stay_notices(change, self.state) if edit is None else [left_unique_key(change, self.state, applier)]
        self.notices.extend(filter(None, left))
        faults.after(Step.SCHEMA_CHANGE, change.statement)

    def _begun(self, entry: JournalEntry, change: SchemaChange) -> Begun:
        """How far a pending change, or the person's statement in its place, came before a crash."""
        if entry.statement != change.statement:
            change = replace(change, statement=entry.statement, events=())
        return self._sink.metadata_applier.begun(change, entry.state_before)

    def _refused(self, change: SchemaChange, problem: Problem) -> None:
        """The change's tables stop before it. The hint adds how a person can decide."""
        hint = decision_hint(change, (Verdict.SKIP, Verdict.EDIT))
        self._stop_before(change, replace(problem, hint=f"{problem.hint} {hint}".lstrip()))

    def _stop_before(self, change: SchemaChange, problem: Problem) -> None:
        """The change's tables stop before it. Raises TablesExcluded if the cut must be planned again for that."""
        held = {t: Hold(change, replace(problem, table_id=t)) for t in change.changes | table_places.dropped_with(change)}
        if self._sink.capabilities.atomic_cut:
            raise TablesExcluded({}, held)
        # A table that stops before an earlier change stays there.
        self.holds |= {t: hold for t, hold in held.items() if t not in self.holds or hold.at <= self.holds[t].at}

    def _hold_rest(self, change: SchemaChange, cause: TableId) -> None:
        """A change that cannot run because one of its tables is stopped holds its other tables, too."""
        message = f"its schema change at {change.commit_ts} also touches {cause}, which has stopped."
        problem = Problem(cause, message, place=change.origin, remedy=self.stopped[cause].remedy.behind)
        if change.changes == {cause}:
            self._left_behind.append(change)
        for table_id in change.changes | table_places.dropped_with(change):
            if not self._stands_still(table_id, change.commit_ts):
                self.holds[table_id] = Hold(change, replace(problem, table_id=table_id))
            elif table_id in change.changes and table_id in self.state.tables and self.state.tables[table_id].status.is_gone:
                self._reborn.setdefault(table_id, change.commit_ts)

    def _settled_rows(self, state: LedgerState, change: SchemaChange, entry: JournalEntry) -> tuple[TableProgress, ...]:
        """The tables after a change.

        A table whose CREATE was skipped is not followed, unless it exists in the target. It keeps that status under later names,
        whatever the target has there. A view that the sink does not create is gone.
        """
        ran = has_run(entry, change)
        rows = inside(table_places.after(state, change, self._behind(change), self._passed, ran=ran), change, self.cut.outside)
        for row in rows:
            own = state.tables.get(row.table_id)
            if row.status is TableStatus.INCOMPLETE and (own is None or own.status is not row.status):
                self.notices.append(Notice(f"it does not go on: {row.reason}", row.table_id))
        if self._verdict(change) is Verdict.SKIP and is_of(unfollowed(state), change):
            return tuple(row if row.status.is_gone else replace(row, status=TableStatus.NOT_FOLLOWED) for row in rows)
        kind = read_statement(change.statement, change.database).kind
        if kind is StatementKind.CREATE_VIEW and not (self._sink.capabilities.views or change.unchanged):
            return tuple(replace(row, status=TableStatus.GONE) if row.table_id == change.table_id else row for row in rows)
        if self._verdict(change) is not Verdict.SKIP:
            return rows
        created = {event.table_id for event in change.events if isinstance(event, CreateTableEvent)}
        absent = {row.table_id for row in rows if row.table_id in created and not row.status.is_gone}
        absent = {t for t in absent if self._sink.metadata_applier.describe(t) is None}
        return tuple(replace(row, status=TableStatus.NOT_FOLLOWED) if row.table_id in absent else row for row in rows)

    def _begun_rows(self, state: LedgerState, change: SchemaChange, _: JournalEntry) -> tuple[TableProgress, ...]:
        behind = self._behind(change)
        rows = [row for row in table_places.before(state, change) if row.table_id not in behind]
        return inside(rows, change, self.cut.outside)

    def _journal(
        self,
        entries: Sequence[JournalEntry],
        rows: _Rows,
        changes: Mapping[str, SchemaChange],
        step: Step,
        also: Sequence[JournalEntry] = (),
    ) -> None:
        """Writes the entries, with the rows of the tables of those that do not wait. ``also`` are entries that move no table."""
        if entries:
            begun = [e for e in entries if e.state not in _NOT_BEGUN]
            tables = tuple(row for e in begun for row in rows(self.state, changes[e.identity], e))
            ended = [changes[e.identity] for e in entries if e.state.is_settled]
            say(self.state, (row for row in tables if row.is_made), self._sink.table_marks)
            self._update(self._journalled_step((*entries, *also), tables, ended), step)

    def _journalled_step(
        self, entries: Sequence[JournalEntry], tables: tuple[TableProgress, ...], ended: Sequence[SchemaChange]
    ) -> LedgerUpdate:
        """The step with these entries and rows. What the tables had read before counts as read.

        ``ended`` are the changes that are settled with this step.
        """
        decided = (e.identity for e in entries if e.state.is_settled or e.state is JournalState.UNCLEAR)
        used = tuple(identity for identity in decided if identity in self.state.decisions)
        moved = {row.table_id for row in tables}
        letters, place = self._letters.count(self.state.dead_letters, moved), self._position_at(moved)
        over = over_with_table(self.state, tables)
        self.notices.extend(told_given_up(over, max(entry.commit_ts for entry in entries)))
        update = LedgerUpdate(
            position=place,
            journal=tuple(entries),
            tables=tables,
            used_decisions=used,
            used_requests=tuple(request.identity for request in over),
            dead_letters=letters,
            shapes=self._shapes(tables, ended),
        )
        return with_missing(update, self.state, self._offer, [self._reports[key] for key in self._consumed])

    def _shapes(self, rows: Iterable[TableProgress], changes: Iterable[SchemaChange]) -> tuple[TableShape, ...]:
        """The shapes from these changes that the ledger must keep, if the source needs that. ``rows`` are those of the step."""
        return told_shapes(self.state.with_rows(rows), changes) if self._source.needs_shapes else ()

    def _position_at(self, tables: Collection[TableId]) -> str | None:
        """The position in which the reads of these tables before a schema change count as read; ``None`` if it is unchanged.

        Rows without an exact commit ts would count as after the change if they were read again: when the cut is aborted, or when
        the table stops after the change.
        """
        read = {} if self.cut.precision.is_exact else {key: r for key, r in self._reports.items() if r.table_id in tables}
        read = {key: r for key, r in read.items() if r.pending_ts is None and key not in self._consumed}
        self._consumed |= read.keys()
        return self._source.consumed(self.state.position, self._offer, tuple(read.values())) if read else None

    # --- rows -----------------------------------------------------------------------------------------------------

    def _write(self, cut_round: CutRound) -> None:
        idle = {t for t, p in self.state.tables.items() if p.status.is_gone or p.status is TableStatus.INCOMPLETE}
        follows = {t: segment.follows for t, segment in cut_round.segments.items()}
        there = {t for t, at in follows.items() if not (t in idle or self._stands_still(t, at))}
        splits = tuple(s for s in (*cut_round.splits, *self._go_on(cut_round)) if s.table_id in there)
        for split in cut_round.splits:
            self._due.setdefault(split.table_id, {})[split.key] = split
        if not splits:
            return
        progress = {t: self.state.tables.get(t) or self._new_row(t) for t in {s.table_id for s in splits}}
        if begin_to_say(self.state, progress.values(), self._sink.table_marks):
            self._update(LedgerUpdate(), Step.INTENT)
        if self._sink.table_marks is not None:
            self._letters.begin(cut_round, progress.keys())
        state = self.state
        context = WriterContext(state.pipeline, state.epoch, state.attempt, 0, self._letters.folder, self.cut.advice)
        commit = self._commit_of(splits) if self._is_one_transaction(splits) else None
        part = self._make_round(self.cut, replace(cut_round, splits=splits), context, commit, progress)
        faults.before(Step.ROUND)
        try:
            report = self._sink.event_sink.write(part)
        except RowsRefused as refused:
            raise TablesExcluded({refused.problem.table_id: refused.problem}, {}) from None
        faults.after(Step.ROUND)
        self._round_is_over = True
        self._committed = commit if report.committed else None
        self._rows += row_figures(report, splits, read_problems(report.splits).keys())
        self._take(report)

    def _is_one_transaction(self, splits: Collection[Split]) -> bool:
        """Whether the task that reads these splits commits the whole cut."""
        is_whole, most = len(self.cut.rounds) == 1 and not self.cut.rounds[0].changes, self._sink.capabilities.atomic_bytes
        return is_whole and most > 0 and sum(split.size for split in splits) <= most

    def _position_before(self) -> str | None:
        """The source's position for a cut of several steps, in which tables advance before its end; ``None``: it stays."""
        splits = [split for cut_round in self.cut.rounds for split in cut_round.splits]
        if not splits or self._sink.capabilities.atomic_cut or self._is_one_transaction(splits):
            return None
        position = self._source.begin(self.state.position, self._offer, splits, self.cut.hi)
        return position if position != self.state.position else None

    def _commit_of(self, splits: Collection[Split]) -> CutCommit:
        """The checkpoint of a cut that reads these splits, for the task that writes all of it."""
        return self._end.commit(self._source.taking(self.state.position, self._offer, {split.key for split in splits}))

    def _go_on(self, cut_round: CutRound) -> Iterator[Split]:
        """The splits of earlier rounds that have rows for this round, too, or that were skipped because their table did not exist.

        For a table without key, all splits from the first of them on are read again, because the order between them matters.
        """
        for table_id, segment in cut_round.segments.items():
            due = self._due.get(table_id, {}).values()
            needed = [s for s in due if (left := self._left_of(s)) is not None and left <= segment.window_of(s.version).hi]
            if needed and not segment.schema.handle_key:
                first = min(split.rank for split in needed)
                needed = [split for split in due if split.rank >= first]
            yield from (replace(split, begun=True) if split.key in self._reports else split for split in needed)

    def _left_of(self, split: Split) -> int | None:
        """The commit ts (TSO) of a split's first row that no round has had yet; ``None`` if there is none.

        A split that was not read may begin before its table. The beginning of an unreadable split is unknown.
        """
        report = self._reports.get(split.key)
        return split.begins if report is None else report.pending_ts

    def _new_row(self, table_id: TableId) -> TableProgress:
        status = TableStatus.EXCLUDED if table_id in self.cut.outside else TableStatus.RUNNING
        return TableProgress(table_id, self.state.table_checkpoint(table_id), status=status)

    def _take(self, report: WriteReport) -> None:
        self._reports |= {r.split_key: r.after(self._reports.get(r.split_key)) for r in report.splits}
        self._outcomes.extend(report.outcomes)
        for problem in (*read_problems(report.splits).values(), *report.problems().values()):
            self.problems.setdefault(problem.table_id, problem)
        self._take_letters(report)
        if not self._sink.capabilities.atomic_cut and self._sink.table_marks is None:  # else it is written with the rows
            reached = (o.progress for o in report.outcomes if o.table_id not in self.problems)
            self.state = LedgerUpdate(tables=tuple(row for row in reached if row is not None)).applied_to(self.state)
        told = [*(s.notices for s in report.splits), *(o.notices for o in report.outcomes)]
        # To which tables the missing rows belong is known only at the end of the cut.
        self._tell(n for notices in told for n in notices if n.missing is None)

    def _tell(self, notices: Iterable[Notice]) -> None:
        self.notices.extend(dict.fromkeys(n for n in notices if n not in self.notices))

    def _take_letters(self, report: WriteReport) -> None:
        """Records the dead letters. Raises TablesExcluded if a table has too many and its rows can be rolled back."""
        too_many = self._letters.take(report, self.problems.keys())
        if too_many and self._sink.capabilities.atomic_cut:
            raise TablesExcluded(too_many, {})
        self.problems.update(too_many)

    # --- commit ---------------------------------------------------------------------------------------------------

    def _waiting_entries(self) -> tuple[JournalEntry, ...]:
        """Entries of the schema changes before which tables stopped, for people to see and to decide about."""
        return tuple(
            begun_changes.waiting(self._entry(change), change)
            for identity, change in self._held_changes().items()
            if identity not in self.state.journal
        )

    def _held_changes(self) -> dict[str, SchemaChange]:
        """The schema changes before which tables stopped, by identity."""
        held = {hold.change.identity: hold.change for hold in self.holds.values()}
        return held | {change.identity: change for change in self.cut.waiting}

    def _commit(self, started: float) -> CutRecord:
        seconds = time.monotonic() - started
        record = record_of(self.cut, self._reports.values(), self._outcomes, self._rows, self._changes_done, seconds)
        end = self._end
        rows = tuple(r for r in (*end.running_rows(), *end.stopped_rows()) if self.state.tables.get(r.table_id) != r)
        waiting = self._waiting_entries()
        settled = LedgerUpdate(checkpoint=end.checkpoint, tables=rows, journal=waiting).applied_to(self.state)
        lacking, told = missing_of(settled, self._offer, self._reports.values())
        self._tell(told)
        rows, settled = tuple({row.pair: row for row in (*rows, *lacking)}.values()), settled.with_rows(lacking)
        progress = end.progress(settled, self._offer.schema_changes if self._source.needs_shapes else ())
        checkpoints = {t: settled.table_checkpoint(t) for t in settled.tables}
        reports = tuple(r for key, r in self._reports.items() if key not in self._consumed)
        position = self._source.advance(self.state.position, self._offer, reports, progress, checkpoints)
        if self._committed is not None and self._committed.after is not None:
            # The task has already written it, except for the sealing, which only the source can do.
            self.state = replace(self.state, position=self._committed.after.after(reports, progress))
        # Tables with a problem stay where they are, and write the same letters again when they take part again.
        letters = self._letters.count(self.state.dead_letters, self.cut.tables - self.problems.keys())
        self.notices.extend(self._letters.told(self.problems.keys()))
        served = served_requests(settled)
        self.notices.extend([*told_given_up(served), *begun_changes.unused(self.state, self.cut.outdated)])
        self._update(
            LedgerUpdate(
                checkpoint=end.checkpoint,
                position=position if position != self.state.position else None,
                tables=rows,
                journal=waiting,
                forget_journal=(*forgettable(settled), *self.cut.outdated),
                cut=record if self._reports or self._changes_done else None,
                used_decisions=tuple(identity for identity in self.cut.outdated if identity in self.state.decisions),
                used_requests=tuple(request.identity for request in served),
                dead_letters=letters,
                shapes=self._shapes(rows, self._held_changes().values()),
                forget_shapes=outgrown_shapes(settled),
            ),
            Step.CHECKPOINT,
        )
        return record
