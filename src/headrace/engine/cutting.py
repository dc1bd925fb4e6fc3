"""Applying one cut: intent, rounds of schema changes and rows, commit. One object a cut; see ``loop`` for what is around it.

The order of durable steps (rules 11 and 14): the intent raises ``attempted``; each schema change is journalled before and
after it runs, its tables standing at (V, before) and then at (V, after); rows are written; at last the checkpoint, the
position and what became of each table are one ledger update. A sink with ``atomic_cut`` holds all of that in one transaction.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import groupby

from headrace import faults
from headrace.engine.plan import Cut, CutRound, Hold, decision_hint
from headrace.engine.requests import running_reason, served_requests
from headrace.engine.tasks import read_problems
from headrace.faults import Step
from headrace.model.cut import Progress
from headrace.model.events import CreateTableEvent, DropDatabaseEvent, DropTableEvent, RenameTableEvent, SchemaChange
from headrace.model.outcome import Notice, Problem, Remedy, SplitReport, WriteOutcome
from headrace.model.progress import (
    CutRecord,
    JournalEntry,
    JournalState,
    LedgerState,
    RequestKind,
    TableProgress,
    TableStatus,
    Verdict,
)
from headrace.model.table import TableId
from headrace.sinks.base import (
    CutCommit,
    DataSink,
    Ledger,
    LedgerUpdate,
    Round,
    RowsRefused,
    SchemaChangeRefused,
    WriterContext,
    WriteReport,
)
from headrace.sinks.dead_letters import DeadLetters
from headrace.sources.base import EventSource

RoundFactory = Callable[[Cut, CutRound, WriterContext, CutCommit | None, Mapping[TableId, TableProgress]], Round]
_Rows = Callable[[LedgerState, SchemaChange], tuple[TableProgress, ...]]
_JOURNAL_KEPT = 200


class TablesExcluded(Exception):
    """An ``atomic_cut`` sink refused a schema change or rows: the whole cut is to be planned again without these tables.

    ``held`` are those that can go up to a schema change, ``problems`` those that cannot go on at all.
    """

    def __init__(self, problems: Mapping[TableId, Problem], held: Mapping[TableId, Hold]) -> None:
        super().__init__(", ".join(str(t) for t in (*problems, *held)))
        self.problems, self.held = problems, held


class CutRun:
    """Applies one planned cut. ``state`` is the ledger's at its beginning; :attr:`state` after it is what the ledger now says."""

    def __init__(
        self,
        cut: Cut,
        state: LedgerState,
        *,
        source: EventSource,
        sink: DataSink,
        ledger: Ledger,
        make_round: RoundFactory,
        letters: DeadLetters | None = None,
    ) -> None:
        """``letters`` is where what cannot be applied of a table goes, instead of stopping it."""
        self.cut = cut
        self.state = state
        self.problems: dict[TableId, Problem] = dict(cut.problems)
        self.holds: dict[TableId, Hold] = dict(cut.holds)
        self.notices: list[Notice] = []
        self._source, self._sink, self._ledger, self._make_round = source, sink, ledger, make_round
        self._reports: list[SplitReport] = []
        self._outcomes: list[WriteOutcome] = []
        self._letters = letters
        self._new_letters: dict[TableId, set[str]] = defaultdict(set)
        self._changes_done = 0
        self._round_is_over = False

    def run(self) -> CutRecord:
        """Applies the cut. Raises what sinks and ledgers raise; then nothing of the checkpoint has moved."""
        started = time.monotonic()
        self._sink.begin_cut()
        if self.cut.rounds and self.cut.hi > self.state.attempted:
            self._update(LedgerUpdate(attempted=self.cut.hi), Step.INTENT)
        for cut_round in self.cut.rounds:
            for changes in _journalled_together(cut_round.changes):
                self._apply_changes(changes)
            self._write(cut_round)
        return self._commit(started)

    @property
    def stopped(self) -> dict[TableId, Problem]:
        """Every table that did not reach the end of the cut, and why."""
        return {t: hold.problem for t, hold in self.holds.items()} | self.problems

    @property
    def _reached(self) -> int:
        """The pipeline's checkpoint after the cut: one of tables that catch up ends below it."""
        return max(self.cut.hi, self.state.checkpoint)

    def _update(self, update: LedgerUpdate, step: Step) -> None:
        if self._round_is_over:
            # With what follows a round its tasks are over too: one that was lost for a while must not write after that.
            update, self._round_is_over = replace(update, attempt=self.state.attempt + 1), False
        faults.before(step)
        self._ledger.update(update)
        faults.after(step)
        self.state = update.applied_to(self.state)

    # --- schema changes -------------------------------------------------------------------------------------------

    def _apply_changes(self, changes: Sequence[SchemaChange]) -> None:
        """Journals the changes as pending, runs them, and journals those that were not refused as settled."""
        entries: list[JournalEntry] = []
        running: list[SchemaChange] = []
        skipped: set[str] = set()
        for change in changes:
            cause = next((t for t in sorted(change.touches) if self._stands_still(t, change.commit_ts)), None)
            if cause is not None:
                self._hold_rest(change, cause)
                continue
            entry, fingerprint = self._journalled(change), self._sink.metadata_applier.fingerprint(change)
            if self._verdict(change) is Verdict.SKIP:
                skipped.add(change.identity)
                told = " ".join(change.statement.split()) or "a change of shape"
                self.notices.append(Notice(f"the schema change at {change.commit_ts} was skipped: {told}.", change.table_id))
            elif entry is None or not self._has_run(entry, change, fingerprint):
                running.append(change)
            entries.append(self._entry(change, fingerprint))
        todo = {change.identity: change for change in changes}
        self._journal([e for e in entries if todo[e.identity] in running], _before, todo, Step.JOURNAL_PENDING)
        refused = {change.identity for change in running if not self._run_change(change)}
        settled = [
            replace(e, state=JournalState.SKIPPED if e.identity in skipped else JournalState.DONE)
            for e in entries
            if e.identity not in refused
        ]
        self._journal(settled, self._settled_rows, todo, Step.JOURNAL_SETTLED)
        self._changes_done += len(settled)

    def _stands_still(self, table_id: TableId, commit_ts: int) -> bool:
        return table_id in self.problems or (table_id in self.holds and self.holds[table_id].at <= commit_ts)

    def _journalled(self, change: SchemaChange) -> JournalEntry | None:
        """The journal's entry of a change that was begun."""
        entry = self.state.journal.get(change.identity)
        return None if entry is None or entry.state is JournalState.WAITING else entry

    def _verdict(self, change: SchemaChange) -> Verdict | None:
        decision = self.cut.decisions.get(change.identity)
        return decision.verdict if decision else None

    def _entry(self, change: SchemaChange, fingerprint: str) -> JournalEntry:
        decision = self.cut.decisions.get(change.identity)
        statement = decision.statement if decision and decision.verdict is Verdict.EDIT else change.statement
        tables = tuple(sorted(change.changes))
        return JournalEntry(change.identity, change.commit_ts, tables, statement, JournalState.PENDING, fingerprint)

    def _run_change(self, change: SchemaChange) -> bool:
        """Executes a change, or what a person wrote in its place; false when the target refuses it."""
        applier = self._sink.metadata_applier
        faults.before(Step.SCHEMA_CHANGE, change.statement)
        try:
            if self._verdict(change) is Verdict.EDIT:
                self.notices.extend(applier.run_instead(change, self.cut.decisions[change.identity].statement))
            else:
                self.notices.extend(applier.apply_schema_change(change))
        except SchemaChangeRefused as refused:
            self._refused(change, refused.problem)
            return False
        faults.after(Step.SCHEMA_CHANGE, change.statement)
        return True

    def _has_run(self, entry: JournalEntry, change: SchemaChange, fingerprint: str) -> bool:
        """Whether a pending change ran before a crash, or by hand: the catalogue differs, and shows what it creates and drops.

        A table that stood in the way of a CREATE and was dropped since is a difference too, and so are some tables less of a
        database: a server that dies drops the others no more.
        """
        describe = self._sink.metadata_applier.describe
        created = [event.table_id for event in change.events if isinstance(event, CreateTableEvent)]
        dropped = [TableId(event.database) for event in change.events if isinstance(event, DropDatabaseEvent)]
        return entry.fingerprint != fingerprint and all(map(describe, created)) and not any(map(describe, dropped))

    def _refused(self, change: SchemaChange, problem: Problem) -> None:
        """Its tables stop before it. A change that only a person can get past says how."""
        hint = decision_hint(change, (Verdict.SKIP, Verdict.EDIT))
        told = replace(problem, hint=f"{problem.hint} {hint}".lstrip())
        held = {t: Hold(change, replace(told, table_id=t)) for t in change.changes}
        if self._sink.capabilities.atomic_cut:
            raise TablesExcluded({}, held)
        self.holds.update(held)

    def _hold_rest(self, change: SchemaChange, cause: TableId) -> None:
        """A change that cannot run because one of its tables stands still holds its other tables too."""
        message = f"its schema change at {change.commit_ts} also touches {cause}, which has stopped."
        problem = Problem(cause, message, file=change.origin, remedy=_remedy_behind(self.stopped[cause]))
        for table_id in change.changes:
            if not self._stands_still(table_id, change.commit_ts):
                self.holds[table_id] = Hold(change, replace(problem, table_id=table_id))

    def _settled_rows(self, state: LedgerState, change: SchemaChange) -> tuple[TableProgress, ...]:
        """The tables after a change. A table whose CREATE was skipped and that nobody made is not followed."""
        rows = _after(state, change)
        if self._verdict(change) is not Verdict.SKIP:
            return rows
        created = {event.table_id for event in change.events if isinstance(event, CreateTableEvent)}
        absent = {t for t in created if self._sink.metadata_applier.describe(t) is None}
        return tuple(replace(row, status=TableStatus.GONE) if row.table_id in absent else row for row in rows)

    def _journal(self, entries: Sequence[JournalEntry], rows: _Rows, changes: Mapping[str, SchemaChange], step: Step) -> None:
        if entries:
            tables = tuple(row for e in entries for row in rows(self.state, changes[e.identity]))
            used = tuple(e.identity for e in entries if e.state.is_settled and e.identity in self.state.decisions)
            self._update(LedgerUpdate(journal=tuple(entries), tables=tables, used_decisions=used), step)

    # --- rows -----------------------------------------------------------------------------------------------------

    def _write(self, cut_round: CutRound) -> None:
        gone = {t for t, p in self.state.tables.items() if p.status is TableStatus.GONE}
        splits = tuple(s for s in cut_round.splits if not (s.table_id in gone or self._stands_still(s.table_id, s.version)))
        if not splits:
            return
        context = WriterContext(self.state.pipeline, self.state.epoch, self.state.attempt, 0, self._letters)
        alone = len(self.cut.rounds) == 1 and not cut_round.changes
        rows = {t: self.state.tables[t] for t in self.cut.checkpoints if t in self.state.tables}
        before = CutCommit(self._reached, self.cut.checkpoints, self._stopped_rows(), rows, self.state.dead_letters)
        commit = before if alone else None
        tables = {s.table_id for s in splits}
        progress = {t: self.state.tables.get(t) or TableProgress(t, self.state.table_checkpoint(t)) for t in tables}
        part = self._make_round(self.cut, replace(cut_round, splits=splits), context, commit, progress)
        faults.before(Step.ROUND)
        try:
            report = self._sink.event_sink.write(part)
        except RowsRefused as refused:
            raise TablesExcluded({refused.problem.table_id: refused.problem}, {}) from None
        faults.after(Step.ROUND)
        self._round_is_over = True
        self._take(report)

    def _take(self, report: WriteReport) -> None:
        self._reports.extend(report.splits)
        self._outcomes.extend(report.outcomes)
        for problem in (*read_problems(report.splits).values(), *report.problems().values()):
            self.problems.setdefault(problem.table_id, problem)
        self._take_letters(report)
        reached = (o.progress for o in report.outcomes if o.table_id not in self.problems)
        self.state = LedgerUpdate(tables=tuple(row for row in reached if row is not None)).applied_to(self.state)
        told = [*(s.notices for s in report.splits), *(o.notices for o in report.outcomes)]
        self.notices.extend(dict.fromkeys(n for notices in told for n in notices if n not in self.notices))

    def _take_letters(self, report: WriteReport) -> None:
        """Counts the dead letters by table. Raises TablesExcluded where one has too many and its rows can be taken back."""
        if self._letters is None:
            return
        for table_id, names in report.letters().items():
            self._new_letters[table_id] |= names
        counts = {t: len(names) for t, names in self._new_letters.items() if t not in self.problems}
        found = {t: self._letters.too_many(t, count) for t, count in counts.items()}
        too_many = {t: problem for t, problem in found.items() if problem is not None}
        if too_many and self._sink.capabilities.atomic_cut:
            raise TablesExcluded(too_many, {})
        self.problems.update(too_many)

    # --- commit ---------------------------------------------------------------------------------------------------

    def _stopped_rows(self) -> tuple[TableProgress, ...]:
        """Tables with a problem stay where they are; those before a schema change they may not pass stand at it."""
        rows = []
        for table_id, problem in self.stopped.items():
            own = self.state.tables.get(table_id)
            row = replace(
                own or TableProgress(table_id, self.state.start),
                checkpoint=self.state.table_checkpoint(table_id),
                status=problem.status,
                reason=problem.sentence(),
            )
            if table_id not in self.problems:
                hold = self.holds[table_id]
                born = own.incarnation if own else hold.at
                row = replace(row, checkpoint=max(row.checkpoint, hold.at), after=False, incarnation=born)
            rows.append(row)
        return tuple(rows)

    def _waiting_entries(self) -> tuple[JournalEntry, ...]:
        """The schema changes that tables stopped before, for people to see and to decide about."""
        held = {hold.change.identity: hold.change for hold in self.holds.values()}
        return tuple(
            replace(self._entry(change, ""), statement=change.statement, state=JournalState.WAITING)
            for identity, change in held.items()
            if identity not in self.state.journal
        )

    def _running_rows(self) -> tuple[TableProgress, ...]:
        """Tables that are new to the ledger, or that go on again after a stop: at once with the others, or still behind them."""
        status = TableStatus.RUNNING if self.cut.hi >= self.state.checkpoint else TableStatus.CATCHING_UP
        rows = []
        for table_id in sorted(self.cut.tables - set(self.stopped)):
            own = self.state.tables.get(table_id)
            if own is None:
                rows.append(TableProgress(table_id, self.cut.hi, status=status))
            elif own.status.is_stopped or own.status is TableStatus.CATCHING_UP:
                reason = running_reason(self.state, own)
                reached = max(own.checkpoint, self.cut.hi)
                rows.append(replace(own, checkpoint=reached, status=status, reason=reason))
        return tuple(rows)

    def _count_letters(self) -> dict[TableId, int]:
        """How many letters tables have after the cut. Tables that stopped get theirs when they are taken along."""
        counts = {}
        for table_id in sorted(self._new_letters.keys() - self.problems.keys()):
            assert self._letters is not None, "nothing else makes letters"
            new = len(self._new_letters[table_id])
            counts[table_id] = self.state.dead_letters.get(table_id, 0) + new
            what = f"{new} of its changes up to {self.cut.hi} could not be applied and lie as dead letters in"
            self.notices.append(Notice(f"{what} {self._letters.location(table_id)}.", table_id))
        return counts

    def _commit(self, started: float) -> CutRecord:
        record = CutRecord(
            hi=self.cut.hi,
            finished_at=datetime.now(UTC).isoformat(timespec="milliseconds"),
            seconds=round(time.monotonic() - started, 3),
            files=len(self._reports),
            read_rows=sum(r.rows for r in self._reports),
            upserts=sum(o.upserts for o in self._outcomes),
            deletes=sum(o.deletes for o in self._outcomes),
            read_bytes=sum(r.size for r in self._reports),
            schema_changes=self._changes_done,
            exact=int(self.cut.has_commit_ts and self.cut.deletes_first),
        )
        rows = tuple(r for r in (*self._running_rows(), *self._stopped_rows()) if self.state.tables.get(r.table_id) != r)
        waiting = self._waiting_entries()
        settled = LedgerUpdate(checkpoint=self._reached, tables=rows).applied_to(self.state)
        # What was read of a table up to the schema change that it stopped before is applied, and need not be read again.
        behind = frozenset(t for t, own in settled.tables.items() if own.status.is_stopped)
        gone = frozenset(t for t, own in settled.tables.items() if own.status is TableStatus.GONE)
        progress = Progress(self.cut.hi, frozenset(self.problems), behind, gone)
        checkpoints = {t: settled.table_checkpoint(t) for t in settled.tables}
        reports = [*self._reports, *(SplitReport(s.key, s.table_id, size=s.size) for s in self.cut.unread)]
        position = self._source.advance(self.state.position, reports, progress, checkpoints)
        served = served_requests(settled)
        for request in served:
            if request.kind is RequestKind.SKIP_ROWS:
                told = f"its rows from {request.since + 1} to {request.to} were given up, and are not in the target."
                self.notices.append(Notice(told, request.table_id))
        self._update(
            LedgerUpdate(
                checkpoint=self._reached,
                position=position if position != self.state.position else None,
                tables=rows,
                journal=waiting,
                forget_journal_below=_forgotten_below(settled),
                cut=record if self._reports or self._changes_done else None,
                used_requests=tuple(request.identity for request in served),
                dead_letters=self._count_letters(),
            ),
            Step.CHECKPOINT,
        )
        return record


def _journalled_together(changes: Sequence[SchemaChange]) -> Iterator[Sequence[SchemaChange]]:
    """Changes of one level in order, each by itself but for tables that are created one after another.

    They touch no object in common, and the catalogue tells of each whether it is there, so two ledger updates serve a
    thousand of them.
    """
    for creates, group in groupby(changes, key=_only_creates):
        if creates:
            yield tuple(group)
        else:
            yield from ((change,) for change in group)


def _only_creates(change: SchemaChange) -> bool:
    return bool(change.events) and all(isinstance(event, CreateTableEvent) for event in change.events)


def _remedy_behind(problem: Problem) -> Remedy:
    """What a table waits for that waits for another one."""
    return Remedy.REPAIR if problem.remedy is Remedy.REPAIR else Remedy.DECISION


def _forgotten_below(state: LedgerState) -> int:
    """The commit ts (TSO) below which nobody needs the journal: every table has passed it, and people still see the newest."""
    settled = sorted(entry.commit_ts for entry in state.journal.values() if entry.state.is_settled)
    if len(settled) <= _JOURNAL_KEPT:
        return 0
    alive = (state.table_checkpoint(t) for t, p in state.tables.items() if p.status is not TableStatus.GONE)
    return min([settled[-_JOURNAL_KEPT], *alive])


def _before(state: LedgerState, change: SchemaChange) -> tuple[TableProgress, ...]:
    """The change's tables at (V, before)."""
    rows = []
    for table_id in sorted(change.changes):
        base = state.tables.get(table_id) or _newcomer(state, table_id, change)
        gone = base.status is TableStatus.GONE
        rows.append(base if gone else replace(base, checkpoint=max(base.checkpoint, change.commit_ts), after=False))
    return tuple(rows)


def _newcomer(state: LedgerState, table_id: TableId, change: SchemaChange, incarnation: int | None = None) -> TableProgress:
    """A table that begins: not lifted by the pipeline's checkpoint, which may be ahead of a table that was found late."""
    born = change.commit_ts if incarnation is None else incarnation
    return TableProgress(table_id, max(change.commit_ts, state.start), status=TableStatus.CATCHING_UP, incarnation=born)


def _after(state: LedgerState, change: SchemaChange) -> tuple[TableProgress, ...]:
    """The change's tables at (V, after): created, altered, gone, or under a new name."""
    gone = {e.table_id for e in change.events if isinstance(e, DropTableEvent | RenameTableEvent)}
    dropped = {e.database for e in change.events if isinstance(e, DropDatabaseEvent)}
    gone |= {t for t in {*state.tables, *change.changes} if t.database in dropped}
    gone -= {e.new_table_id for e in change.events if isinstance(e, RenameTableEvent)}
    rows = []
    for table_id in sorted(change.changes | gone):
        base = state.tables.get(table_id)
        if base is None or base.status is TableStatus.GONE:
            base = _newcomer(state, table_id, change, _incarnation_before(state, table_id, change))
        status = TableStatus.GONE if table_id in gone else base.status
        rows.append(replace(base, checkpoint=max(base.checkpoint, change.commit_ts), after=True, status=status))
    return tuple(rows)


def _incarnation_before(state: LedgerState, table_id: TableId, change: SchemaChange) -> int | None:
    """A renamed table keeps its life: the incarnation moves to the new name."""
    for event in change.events:
        if isinstance(event, RenameTableEvent) and event.new_table_id == table_id and event.table_id in state.tables:
            return state.tables[event.table_id].incarnation
    return None
