"""A sink in memory that implements the whole contract of ``headrace.sinks.base``. Every call of it can be made to fail.

It stands for targets that do not exist yet. A test chooses whether it has atomic cuts, atomic small cuts or neither, whether it
takes its rows in tasks or on the driver, and for which tables its demand is ALL.
"""

from __future__ import annotations

import uuid
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import count
from typing import TypeVar

from headrace import faults
from headrace.errors import DefinitionError, TargetWentBackError, TransientError
from headrace.faults import OwnStep
from headrace.model.block import COMMIT_TS, KIND, META_COUNT
from headrace.model.events import RowKind
from headrace.model.ledger import Decision, LedgerState, TableProgress, TableRequest, Words
from headrace.model.outcome import Problem, WriteOutcome
from headrace.model.policy import ChangeKind
from headrace.model.table import TableId, TableSchema
from headrace.sinks.base import (
    ChangeDemand,
    Check,
    CheckState,
    Commits,
    LedgerPart,
    LedgerUpdate,
    Round,
    RowsRefused,
    SinkCapabilities,
    TableChange,
    WriterContext,
    WriteReport,
)
from headrace.sinks.cut_commit import CutCommit
from headrace.sinks.sql_claim import Claim
from headrace.sinks.stateless import StatelessSink
from headrace.sinks.table_by_table import outcomes_of
from headrace.sinks.table_marks import TableMark
from headrace.testing.memory_metadata import MemoryLongApplier, MemoryMetadataApplier
from headrace.testing.memory_server import DDL_SLOT, Call, Contents, Log, LoggedChange, Server

_TAKEN = frozenset(ChangeKind) - {ChangeKind.PARTITION}
CAPABILITIES = {
    "atomic cuts": SinkCapabilities(ChangeDemand.NET, atomic_cut=True, bags=True, supported_schema_changes=_TAKEN),
    "atomic small cuts": SinkCapabilities(ChangeDemand.NET, atomic_bytes=1 << 20, bags=True, supported_schema_changes=_TAKEN),
    "nothing atomic": SinkCapabilities(ChangeDemand.NET, bags=True, supported_schema_changes=_TAKEN),
}
"""The capabilities of sinks that keep their own ledger."""

TABLE_COMMIT = OwnStep("memory", "commit a table")
"""A step of a sink that commits each table separately."""
TABLE_MARK = OwnStep("memory", "leave a mark in a table")

Seen = Mapping[TableId, Counter[LoggedChange]]
"""The changes that a unit, or a round on the driver, has brought for each table with the demand ALL."""
Demand = Callable[[TableId, TableSchema], ChangeDemand]
Kept = TypeVar("Kept")


@dataclass
class MemorySink(StatelessSink):
    """A ``DataSink`` on a server, for one run. Without its own ledger it has no fence either.

    For tables with the demand ALL it keeps the changes in ``Contents.logs``, and no rows. ``own_demand`` must be picklable.
    """

    server: Server
    capabilities: SinkCapabilities
    keeps_ledger: bool = True
    streams: bool = False
    """It takes its rows on the driver (``Round.stream_from_tasks``) and commits a round there. It then has no ``atomic_bytes``."""
    marks_tables: bool = False
    """It commits each table separately, on the driver, with a mark up to where the table is applied. Only the mark prevents
    duplicate rows in a log or a table without key, because no fence of a ledger covers these commits. It has neither atomic cuts
    nor ``atomic_bytes``."""
    runs_long: bool = False
    """Changes of columns run long (``LongChanges``)."""
    identity = "memory://"

    def __post_init__(self) -> None:
        self.open_cut: Contents | None = None
        self.ledger: MemoryLedger | None = MemoryLedger(self) if self.keeps_ledger else None
        self.metadata_applier = MemoryLongApplier(self) if self.runs_long else MemoryMetadataApplier(self)
        self.event_sink = MemoryEventSink(self)
        self.table_marks = MemoryMarks(self.server) if self.marks_tables else None

    def check(self) -> list[Check]:
        """Always ok."""
        return [Check("target", CheckState.OK, "in memory")]

    def begin_cut(self) -> None:
        """Opens a copy of the contents if a cut is one transaction."""
        with self.server.called(Call.BEGIN):
            self.open_cut = self.server.contents.copy() if self.capabilities.atomic_cut else None

    def forget_tables(self, tables: Collection[TableId]) -> None:
        """It caches nothing about them."""

    def abandon_cut(self) -> None:
        """Drops the copy."""
        self.open_cut = None

    @property
    def seen(self) -> Contents:
        """What this run sees: the open cut if there is one, otherwise the server's contents."""
        return self.open_cut or self.server.contents

    @contextmanager
    def changing(self) -> Iterator[Contents]:
        """The open cut if there is one, otherwise a transaction of its own."""
        if self.open_cut is not None:
            yield self.open_cut
            return
        with self.server.transaction() as contents:
            yield contents

    def count(self, contents: Contents) -> None:
        """Counts a commit of the driver between two steps of the ledger."""
        if self.ledger is not None and self.open_cut is None:
            slot = self.ledger.claim.pipeline, DDL_SLOT
            contents.commits[slot] += 1
            self.ledger.expect([Commits(DDL_SLOT, contents.commits[slot] - 1, contents.commits[slot])])


class MemoryLedger:
    """A ``Ledger``. While a cut is open, it is part of it."""

    def __init__(self, sink: MemorySink) -> None:
        self._sink, self._server = sink, sink.server
        self.claim = Claim("", 0, "")
        self._in_cut: tuple[Contents, Claim] | None = None
        self.expected: dict[int, int] = {}

    def peek(self, pipeline: str) -> LedgerState | None:
        """See ``Ledger.peek``."""
        with self._server.called(Call.PEEK):
            return self._sink.seen.ledgers.get(pipeline)

    def pipelines(self) -> list[str]:
        """See ``Ledger.pipelines``."""
        return sorted(self._server.contents.ledgers)

    def acquire(
        self, pipeline: str, source_identity: str, fingerprint: str, start: int, parts: Collection[LedgerPart] = (), above: int = 0
    ) -> LedgerState:
        with self._server.called(Call.ACQUIRE), self._server.transaction() as contents:
            state = contents.ledgers.get(pipeline)
            if state is not None and state.source_identity != source_identity:
                raise DefinitionError("The ledger belongs to another source.")
            last = contents.claims.get(pipeline, self.claim).epoch
            epoch = max(state.epoch if state else 0, last, self.claim.epoch, above) + 1
            new = LedgerState(pipeline, source_identity, fingerprint, start=start, checkpoint=start, attempted=start, began=epoch)
            state = replace(state or new, epoch=epoch, attempt=0)
            claim = Claim(pipeline, state.epoch, uuid.uuid4().hex)
            contents.ledgers[pipeline], contents.claims[pipeline] = state, claim
            contents.forget_commits(pipeline)
        self.claim, self.expected = claim, {}
        return state

    def prove(self) -> None:
        """Raises FencedError if a newer run has begun, and TargetWentBackError if the server is not as this run left it."""
        self._server.contents.fenced(self.claim)

    def expect(self, commits: Sequence[Commits]) -> None:
        """Makes the next step fail unless the server has these transactions."""
        for unit in commits:
            if unit.before < self.expected.get(unit.slot, 0):
                raise TargetWentBackError(f"Slot {unit.slot} had committed {self.expected[unit.slot]}, and then {unit.before}.")
            self.expected[unit.slot] = unit.after

    def stepped(self) -> None:
        """A step was written."""
        self.claim, self.expected = self.claim.following, {}

    def decide(self, pipeline: str, decision: Decision) -> None:
        """See ``Ledger.decide``."""
        with self._server.transaction() as contents:
            state = contents.ledgers[pipeline]
            contents.ledgers[pipeline] = replace(state, decisions=state.decisions | {decision.identity: decision})

    def request(self, pipeline: str, request: TableRequest) -> None:
        """See ``Ledger.request``."""
        with self._server.transaction() as contents:
            state = contents.ledgers[pipeline]
            contents.ledgers[pipeline] = replace(state, requests=state.requests | {request.identity: request})

    def words(self, pipeline: str) -> Words:
        """See ``Ledger.words``."""
        with self._server.called(Call.WORDS):
            state = self._server.contents.ledgers[pipeline]
            return Words(dict(state.decisions), dict(state.requests))

    def reset(self, pipeline: str) -> bool:
        """The last epoch stays in ``Contents.claims``."""
        with self._server.transaction() as contents:
            return contents.ledgers.pop(pipeline, None) is not None

    def next_attempt(self) -> int:
        """See ``Ledger.next_attempt``."""
        with self._server.called(Call.NEXT_ATTEMPT):
            with self._server.transaction() as contents:
                state = contents.fenced(self.claim)
                contents.step(self.claim, replace(state, attempt=state.attempt + 1))
                contents.forget_commits(self.claim.pipeline)
            self.stepped()
        return state.attempt + 1

    def update(self, update: LedgerUpdate) -> None:
        """A checkpoint commits the open cut, fenced by the server's contents at that time."""
        with self._server.called(Call.UPDATE):
            self.prove()
            open_cut, claim = self._sink.open_cut, self.claim
            if self._in_cut is not None and self._in_cut[0] is open_cut:
                claim = self._in_cut[1]
            with self._sink.changing() as contents:
                state = update.applied_to(contents.fenced(claim))
                for slot, count in self.expected.items():
                    if contents.commits[claim.pipeline, slot] < count:
                        raise TargetWentBackError(f"Slot {slot} had committed {count}: {contents.commits}.")
                contents.step(claim, state)
                if update.attempt is not None:
                    contents.forget_commits(claim.pipeline)
            if open_cut is None:
                self.stepped()
            else:
                self._in_cut = open_cut, claim.following
                if update.checkpoint is not None:
                    self._server.commit(open_cut)
                    self._sink.open_cut, self._in_cut, self.claim = None, None, claim.following

    def close(self) -> None:
        """Drops the open cut, if there is one."""
        self._sink.abandon_cut()


class MemoryEventSink:
    """An ``EventSink`` with three ways: tasks commit, or leave their changes for the driver, or stream them to the driver."""

    def __init__(self, sink: MemorySink) -> None:
        self._sink, self._server = sink, sink.server

    def write(self, round: Round) -> WriteReport:
        """See ``EventSink.write``."""
        if self._sink.streams:
            return self._stream_tables(round) if self._sink.marks_tables else self._stream(round)
        ledger, spools = self._sink.ledger, self._sink.open_cut is not None or self._sink.marks_tables
        demand = self._sink.capabilities.demand_of
        report = round.write_in_tasks(MemoryWriter(self._server, ledger.claim if ledger else None, demand, spools=spools))
        if ledger is not None and report.committed:
            ledger.stepped()
        elif ledger is not None:
            ledger.expect(report.commits)
        if self._sink.marks_tables:
            return self._load_tables(report, round.marks())
        return report if self._sink.open_cut is None else self._load(report, self._sink.open_cut)

    def _load(self, report: WriteReport, open_cut: Contents) -> WriteReport:
        """Applies what the tasks have left, without stopped tables."""
        stopped, seen = report.problems(), _nothing_seen()
        loaded: list[WriteOutcome] = []
        with self._server.called(Call.LOAD) as refused:
            for outcome in report.outcomes:
                if refused:
                    raise RowsRefused(Problem(outcome.table_id, "the simulated server does not like these rows."))
                names = outcome.spooled if outcome.table_id not in stopped else ()
                changes = [self._server.spooled[name] for name in names]
                written = [_write(open_cut, change, self._sink.capabilities.demand_of, seen) for change in changes]
                if (problem := next((o.problem for o in written if o.problem), None)) is not None:
                    raise RowsRefused(problem)
                loaded.append(replace(outcome, spooled=()))
        return replace(report, outcomes=tuple(loaded))

    def _load_tables(self, report: WriteReport, marks: Mapping[TableId, TableMark]) -> WriteReport:
        """Commits what the tasks have left, table by table."""
        changes = [self._server.spooled[name] for outcome in report.outcomes for name in outcome.spooled]
        failed = self._commit_tables(changes, report.problems(), marks)
        outcomes = (replace(o, spooled=(), problem=failed.get(o.table_id, o.problem)) for o in report.outcomes)
        return replace(report, outcomes=tuple(outcomes))

    def _stream_tables(self, round: Round) -> WriteReport:
        rows = round.stream_from_tasks()
        changes = list(rows)
        failed = self._commit_tables(changes, rows.report(()).problems(), round.marks())
        return rows.report(replace(_outcome(change), problem=failed.get(change.table_id)) for change in changes)

    def _commit_tables(
        self, changes: Iterable[TableChange], stopped: Collection[TableId], marks: Mapping[TableId, TableMark]
    ) -> dict[TableId, Problem]:
        """One commit with its mark for each table that did not stop. Returns the problems of tables whose rows are refused."""
        of_table: dict[TableId, list[TableChange]] = defaultdict(list)
        for change in changes:
            if change.table_id not in stopped:
                of_table[change.target].append(change)
        failed: dict[TableId, Problem] = {}
        for target, own in of_table.items():
            faults.before(TABLE_COMMIT, str(target))
            found = self._commit_table(target, own, marks[target])
            faults.after(TABLE_COMMIT, str(target))
            failed |= {problem.table_id: problem for problem in found}
        return failed

    def _commit_table(self, target: TableId, changes: list[TableChange], mark: TableMark) -> list[Problem]:
        with self._server.called(Call.LOAD) as refused:
            if refused:
                return [Problem(change.table_id, "the simulated server does not like these rows.") for change in changes]
            contents = self._server.contents.copy()
            if target not in contents.tables or not mark.follows(contents.tables[target].mark):
                raise TransientError(f"{target} is not as the commit from {mark.since} on takes it to be.")
            written = [_write(contents, change, self._sink.capabilities.demand_of, None) for change in changes]
            problems = [outcome.problem for outcome in written if outcome.problem is not None]
            if not problems:
                contents.tables[target].mark = mark
                self._server.commit(contents)
        return problems

    def _stream(self, round: Round) -> WriteReport:
        """One transaction of the driver, or a part of the open cut. Changes of tables that turn out to stop are taken out again."""
        with self._server.called(Call.LOAD) as refused, self._sink.changing() as contents:
            if self._sink.ledger is not None:
                self._sink.ledger.prove()
            rows, former, seen = round.stream_from_tasks(), contents.copy(), _nothing_seen()
            outcomes: list[WriteOutcome] = []
            reached: list[TableProgress] = []
            for change in rows:
                if refused:
                    raise TransientError("The simulated server lost the connection over these rows.")
                outcomes.append(_write(contents, change, self._sink.capabilities.demand_of, seen))
                if change.progress is not None and not change.schema.handle_key:
                    reached.append(change.progress)
            report = rows.report(outcomes)
            stopped = report.problems()
            for table_id in stopped:
                _put_back(contents.tables, former.tables, table_id)
                _put_back(contents.logs, former.logs, table_id)
            if self._sink.ledger is not None and self._sink.open_cut is None:
                update = LedgerUpdate(tables=tuple(row for row in reached if row.table_id not in stopped))
                name = self._sink.ledger.claim.pipeline
                contents.ledgers[name] = update.applied_to(contents.ledgers[name])
            self._sink.count(contents)
        return report


def _put_back(now: dict[TableId, Kept], former: dict[TableId, Kept], table_id: TableId) -> None:
    if table_id in former:
        now[table_id] = former[table_id]
    else:
        now.pop(table_id, None)


class MemoryMarks:
    """``TableMarks`` that are stored in the tables."""

    def __init__(self, server: Server) -> None:
        self._server = server

    def read(self, pipeline: str, targets: Collection[TableId]) -> Mapping[TableId, TableMark]:
        """See ``TableMarks.read``."""
        with self._server.called(Call.MARKS):
            tables = self._server.contents.tables
            found = {t: tables[t].mark for t in targets if t in tables}
            return {t: mark for t, mark in found.items() if mark is not None and mark.pipeline == pipeline}

    def put(self, marks: Mapping[TableId, TableMark]) -> None:
        """See ``TableMarks.put``."""
        for target, mark in marks.items():
            faults.before(TABLE_MARK, str(target))
            with self._server.called(Call.MARKS):
                table = self._server.contents.tables.get(target)
                if table is not None and mark.replaces(table.mark):
                    with self._server.transaction() as contents:
                        contents.tables[target].mark = mark
            faults.after(TABLE_MARK, str(target))


def _nothing_seen() -> Seen:
    return defaultdict(Counter)


class MemoryWriter:
    """A ``UnitWriter``: one transaction for each change, or one for all together with the ledger's update.

    Each transaction verifies ``claim``. Without a ledger there is none.
    """

    def __init__(self, server: Server, claim: Claim | None, demand: Demand, *, spools: bool) -> None:
        self._server, self._claim, self._demand, self._spools = server, claim, demand, spools
        self._context = WriterContext("", 0, 0, 0)
        self._begun_at: int | None = None
        self._count = 0

    def open(self, context: WriterContext) -> None:
        """See ``UnitWriter.open``."""
        with self._server.called(Call.OPEN):
            self._context = context

    def write(self, changes: Iterable[TableChange], commit: CutCommit | None) -> list[WriteOutcome]:
        """See ``UnitWriter.write``."""
        seen = _nothing_seen()
        if commit is None:
            return outcomes_of(changes, lambda change: self._write_alone(change, seen))
        outcomes, reached = [], []
        with self._server.called(Call.COMMIT), self._server.transaction() as contents:
            assert self._claim is not None
            state = contents.fenced(self._claim, self._context.attempt)
            for change in changes:
                outcomes += outcomes_of([change], lambda change: self._refused(change) or self._applied(contents, change, seen))
                if change.progress and not change.schema.handle_key:
                    reached.append(change.progress)
            update = commit.update([o.problem for o in outcomes if o.problem], reached=reached)
            contents.step(self._claim, update.applied_to(state))
        return outcomes

    def commits(self) -> tuple[Commits, ...]:
        """See ``UnitWriter.commits``."""
        return () if self._begun_at is None else (Commits(self._context.slot, self._begun_at, self._count),)

    def close(self) -> None:
        """There is no connection."""

    def _write_alone(self, change: TableChange, seen: Seen) -> WriteOutcome:
        refused = self._refused(change)
        if refused is not None:
            return refused
        if self._spools:
            name = f"{self._context.epoch}/{self._context.attempt}/{len(self._server.spooled)}"
            self._server.spooled[name] = change
            return replace(_outcome(change), spooled=(name,))
        with self._server.called(Call.COMMIT), self._server.transaction() as contents:
            if self._claim is not None:
                contents.fenced(self._claim, self._context.attempt)
                self._counted(contents)
            outcome = self._applied(contents, change, seen)
            if outcome.problem is None and change.progress is not None and not change.schema.handle_key:
                state = contents.ledgers[self._context.pipeline]
                contents.ledgers[self._context.pipeline] = LedgerUpdate(tables=(change.progress,)).applied_to(state)
        return outcome

    def _counted(self, contents: Contents) -> None:
        slot = self._context.pipeline, self._context.slot
        if self._begun_at is None:
            self._begun_at = contents.commits[slot]
        contents.commits[slot] += 1
        self._count = contents.commits[slot]

    def _refused(self, change: TableChange) -> WriteOutcome | None:
        with self._server.called(Call.WRITE) as refused:
            problem = Problem(change.table_id, "the simulated server does not like these rows.")
            return WriteOutcome(change.table_id, problem=problem) if refused else None

    def _applied(self, contents: Contents, change: TableChange, seen: Seen) -> WriteOutcome:
        """A table without key is applied only if its own ledger row is not that far yet."""
        target = change.progress
        if target is not None and not change.schema.handle_key:
            own = contents.ledgers[self._context.pipeline].tables.get(change.table_id) or TableProgress(change.table_id, 0)
            if own.checkpoint >= target.checkpoint:
                raise TransientError(f"{change.table_id} stands at {own.checkpoint} already; its changes are planned again.")
        return _write(contents, change, self._demand, seen)


def _write(contents: Contents, change: TableChange, demand: Demand, seen: Seen | None) -> WriteOutcome:
    """Applies the changes, or nothing if they do not fit the table or an unexpected error occurs.

    Without ``seen``, a log appends every change unconditionally.
    """
    target = change.target
    tables = {target: contents.tables[target].copy()} if target in contents.tables else {}
    logs = {target: contents.logs[target].copy()} if target in contents.logs else {}
    (outcome,) = outcomes_of([change], lambda change: _put(contents, change, demand, seen))
    if outcome.problem is not None:
        _put_back(contents.tables, tables, target)
        _put_back(contents.logs, logs, target)
    return outcome


def _put(contents: Contents, change: TableChange, demand: Demand, seen: Seen | None) -> WriteOutcome:
    if demand(change.table_id, change.schema) is ChangeDemand.ALL:
        return _logged(contents, change, seen)
    table = contents.tables.get(change.target)
    if table is None or (change.upserts.num_rows and {*change.upserts.column_names} - {COMMIT_TS} != set(table.columns)):
        there = sorted(table.columns) if table else "not there"
        message = f"the rows have the columns {change.upserts.column_names}; on the simulated server it is {there}."
        return WriteOutcome(change.table_id, problem=Problem(change.table_id, message))
    key = change.schema.handle_key
    for row in change.deletes.to_pylist():
        if key:
            table.take(_key(row, key), row)
        else:
            values = {name: value for name, value in row.items() if name != COMMIT_TS}
            table.take(next((number for number, kept in table.rows.items() if kept == values), ()), row)
    names = change.ordered.column_names[META_COUNT:]
    for row in change.ordered.to_pylist():
        values = {name: row[name] for name in names}
        if RowKind(row[KIND]).is_upsert:
            table.put(_key(row, key), values)
        else:
            table.take(_key(row, key), values)
    numbers = count(max((n for (n, *_) in table.rows if isinstance(n, int)), default=0) + 1)
    for row in change.upserts.to_pylist():
        table.put(_key(row, key) if key else (next(numbers),), row)
    return _outcome(change)


def _logged(contents: Contents, change: TableChange, seen: Seen | None) -> WriteOutcome:
    log = contents.logs.setdefault(change.target, Log())
    names = change.ordered.column_names[META_COUNT:]
    for row in change.ordered.to_pylist():
        logged = LoggedChange(row[COMMIT_TS], RowKind(row[KIND]), tuple((name, row[name]) for name in names))
        if seen is None:
            log.append(logged)
            continue
        seen[change.target][logged] += 1
        log.put(logged, seen[change.target])
    return _outcome(change)


def _key(row: Mapping[str, object], key: tuple[str, ...]) -> tuple[object, ...]:
    return tuple(row[name] for name in key)


def _outcome(change: TableChange) -> WriteOutcome:
    written = change.ordered.num_rows + change.deletes.num_rows
    return WriteOutcome(change.table_id, upserts=change.upserts.num_rows, deletes=written)
