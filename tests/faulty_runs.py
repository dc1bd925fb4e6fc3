"""Runs that meet faults, one after another and one inside another, and what must hold after each of them."""

from __future__ import annotations

import itertools
import pickle
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import duckdb
import pymysql

from differential import History
from differential_shapes import INT
from downstreams import Downstream
from following import Recorder
from harness import Included, assert_state, assert_tables, included
from headrace.cli.stopped_tables import new_request
from headrace.engine import journal
from headrace.engine.run_options import RunOptions
from headrace.engine.write_task import Unit, WriteJob, WriteTask
from headrace.errors import (
    EXIT_OK,
    EXIT_TABLE_STOPPED,
    FencedError,
    HeadraceError,
    JobFailedError,
    SourceUnreachableError,
    TransientError,
)
from headrace.model.cut import Cut
from headrace.model.ledger import Decision, JournalState, LedgerState, RequestKind, TableProgress, TableStatus, Verdict
from headrace.model.outcome import Notice, Problem, WriteOutcome
from headrace.model.policy import SchemaChangePolicies
from headrace.model.table import Column, TableId
from headrace.model.types import ColumnType, TypeKind
from headrace.pipeline.definition import Definition
from headrace.pipeline.registry import open_source, source_options
from headrace.pipeline.runner import PipelineRun
from headrace.sinks.base import Ledger
from headrace.sinks.file_ledger import open_file_ledger
from headrace.sources.base import DataSource
from headrace.testing.delivery import Conduct
from headrace.testing.engine import LocalEngine
from headrace.testing.faults import Crashed, Fault, Moment, Passage, Step, armed
from headrace.testing.memory_server import Contents, Failing, Failure
from headrace.testing.ticdc_options import ChangefeedOptions
from headrace.testing.upstream import Statement
from headrace.testing.upstream_ddl import AddColumn, Clause, DropColumn, RenameColumn
from headrace.transform.filters import TableFilter
from simulated_target import SimulatedTarget

PIPELINE = "default"
OPTIONS = ChangefeedOptions("csv", include_commit_ts=True, output_old_value=True)
WITHOUT_COMMIT_TS = replace(OPTIONS, include_commit_ts=False)
NAMES = (TableId("d1", "a"), TableId("d1", "b"), TableId("d-2", "a"), TableId("d-2", "c"))
TEXT = ColumnType(TypeKind.VARCHAR, length=20)
_MOST_TABLES = 3
_MOST_POLLS = 1000
_MOST_TWICE = 30
_COLUMNS = ("n", "v", "w")


class SmallHistory(History):
    """A history over two or three small tables with an integer key, or without one, so that rows and names meet often.

    Without commit ts all tables have a key: others cannot be applied.
    """

    is_streamed = False

    def __init__(self, root: Path, options: ChangefeedOptions) -> None:
        super().__init__(root, options, Conduct())

    def opened(self) -> DataSource:
        """The changefeed as a run finds it."""
        return open_source(self.uri, source_options(str(self.toml)))

    def executes(self, *statements: Statement) -> None:
        """A transaction that a test scripts."""
        self._remember(self.upstream.execute(*statements), "a transaction", ddl=False)

    def has_changed(self, commit_ts: int) -> None:
        """After a schema change that a test scripted."""
        self._remember(commit_ts, "a schema change", ddl=True)

    def _restart(self) -> None:
        if not self.options.include_commit_ts:
            raise ValueError("rows of before a TRUNCATE would come behind it, and nothing tells that they do")
        super()._restart()

    def _free_name(self) -> TableId:
        if len(self.upstream.tables) >= _MOST_TABLES:
            raise ValueError("these are enough")
        return self._chance.choice(self._free_names())

    def _free_names(self) -> list[TableId]:
        taken = {name.folded for name in self.upstream.tables}
        return [name for name in NAMES if name.folded not in taken]

    def _create(self) -> None:
        table_id, has_key = self._free_name(), self._chance.random() < 0.8 or not self.options.include_commit_ts
        columns = [Column("id", INT, nullable=not has_key, primary_key=has_key), self._column("n")]
        self._ddl(f"create {table_id}", lambda: self.upstream.create_table(table_id, columns))

    def _recreate(self) -> None:
        table_id = self._some_table().schema.table_id
        self._ddl(f"drop {table_id}", lambda: self.upstream.drop_table(table_id))
        columns = [Column("id", INT, nullable=False, primary_key=True), self._column("w")]
        self._ddl(f"create {table_id}", lambda: self.upstream.create_table(table_id, columns))

    def _swap(self) -> None:
        """Two tables change names; the chain through a third name is TiCDC's business."""
        first, second = self._chance.sample(self.upstream.tables, 2)
        free = self._free_names()[0]
        steps = [(first, free), (second, first), (free, second)]
        self._ddl(f"rename {steps}", lambda: self.upstream.rename_tables(*steps))

    def _alter(self) -> None:
        table = self._some_table()
        table_id, there = table.schema.table_id, [c.name for c in table.schema.columns if c.name != "id"]
        absent = [name for name in _COLUMNS if name not in there]
        clauses: list[Clause] = []
        match self._chance.randrange(4):
            case 0:
                clauses = [DropColumn(self._chance.choice(there))]
            case 1:
                clauses = [RenameColumn(self._chance.choice(there), self._chance.choice(absent))]
            case _:
                clauses = [AddColumn(self._column(self._chance.choice(absent)))]
        self._ddl(f"{table_id}: {clauses[0].text()}", lambda: self.upstream.alter(table_id, *clauses))

    def _column(self, name: str) -> Column:
        column_type = self._chance.choice((INT, TEXT))
        default = self._chance.choice((None, "7"))
        return Column(name, column_type, nullable=default is None, default=default)


class Watching(Recorder):
    """A display that shows nothing, and hands on which cut is being applied."""

    def __init__(self, cut_started: Callable[[Cut], None]) -> None:
        super().__init__()
        self.told: list[str] = []
        self._cut_started = cut_started

    def cut_started(self, cut: Cut) -> None:
        self._cut_started(cut)

    def notice(self, notice: Notice) -> None: ...

    def table_stopped(self, problem: Problem) -> None:
        self.told.append(problem.sentence())

    def table_resumed(self, table_id: TableId) -> None: ...

    def trying_again(self, reason: str, seconds: float) -> None:
        self.told.append(reason)


@dataclass(frozen=True)
class Kept:
    """The work of a write task; ``attempt`` is the epoch and the attempt that it belongs to."""

    attempt: tuple[int, int]
    work: bytes = field(repr=False)


@dataclass
class KeepingEngine(LocalEngine):
    """Keeps the work of every write task, so that it can be done again later; ``twice``: does it twice, of the first tasks.

    A task that commits its cut fails it when it is done twice: the run begins anew behind it, and has forgotten where the rows of
    files lie. Where each did so, a small ``--max-cut`` would let the run go on by one commit ts at a time, without an end in sight.
    """

    kept: list[Kept]
    twice: bool = False

    def __post_init__(self) -> None:
        super().__init__()
        self._twice = iter(range(_MOST_TWICE if self.twice else 0))

    def write_units(self, units: Iterable[tuple[int, Unit]], write: WriteJob, slot: int) -> list[object]:
        work = pickle.dumps((list(units), write, slot))
        self.kept.append(Kept((write.context.epoch, write.context.attempt), work))
        if next(self._twice, None) is not None:
            _do(work)
        return super().write_units(units, write, slot)


def _do(work: bytes) -> list[object]:
    units, write, slot = pickle.loads(work)
    return list(WriteTask(write, slot).results(units))


@dataclass(frozen=True)
class Ran:
    """How a run ended, and what it passed."""

    code: int | None
    error: BaseException | None
    passed: list[Passage]
    told: list[str]

    @property
    def is_complete(self) -> bool:
        return self.code == EXIT_OK

    def __str__(self) -> str:
        return f"code {self.code}, {self.error!r}, after {[str(p) for p in self.passed[-3:]]}; told: {self.told}"


_BY_OTHER_WORDS = {"DROP TABLE": "DROP TABLE", "TRUNCATE TABLE": "DELETE FROM"}


def _endings(state: LedgerState) -> Iterator[tuple[str, TableId, str]]:
    """The DROPs and TRUNCATEs of one table that wait, each the first of its table: its identity, table, and a statement's verb."""
    waiting = sorted((e for e in state.journal.values() if not e.state.is_settled), key=lambda e: (e.commit_ts, e.identity))
    for number, entry in enumerate(waiting):
        verb = _BY_OTHER_WORDS.get(" ".join(entry.statement.split()[:2]).upper())
        stopped = [t for t in entry.tables if t in state.tables and state.tables[t].status.is_stopped]
        is_first = not any(set(entry.tables) & set(earlier.tables) for earlier in waiting[:number])
        if verb and len(stopped) == len(entry.tables) == 1 and is_first and entry.identity not in state.decisions:
            yield entry.identity, stopped[0], verb


_LOOKS = {(Moment.AFTER, Step.CHECKPOINT)}
_LOOKS |= {(moment, step) for moment in Moment for step in (Step.POLL, Step.STAGE, Step.MYSQL_COMMIT)}
"""What a run comes by that writes nothing any more; what it looks up in MySQL ends with a commit too."""


def comes_to_an_end() -> Fault:
    """Fails a run that polls again and again: it is to end at the watermark, and here that is a few cuts ahead."""
    polls = itertools.count(1)

    def fault(passage: Passage) -> None:
        if (passage.moment, passage.step) == (Moment.BEFORE, Step.POLL):
            assert next(polls) < _MOST_POLLS, "the run comes to no end"

    return fault


@dataclass
class World:
    """A changefeed, a target, and runs. ``kept`` is the work of all write tasks so far."""

    folder: Path
    downstream: Downstream
    kept: list[Kept] = field(default_factory=list)
    tables: str = ""
    """The ``--tables`` of the next runs."""
    max_cut: int = 0
    """The ``--max-cut`` of the next runs, in bytes."""
    policies: str = ""
    """The ``--schema-changes`` of the next runs."""
    options: ChangefeedOptions = OPTIONS
    new_history: Callable[[Path, ChangefeedOptions], SmallHistory] = SmallHistory
    _was_filtered: bool = False
    _skipped: set[int] = field(default_factory=set)
    _over: int = 0
    _reached: int = 0
    _cut: Cut | None = None
    _seen_tables: str = ""
    _filters: set[str] = field(default_factory=set)
    _before: Contents | None = None

    def __post_init__(self) -> None:
        self.history = self.new_history(self.folder, self.options)
        if self.downstream.server is not None:
            self.downstream.server.on_commit = self._seen_by_readers

    def run(self, *faults: Fault, failure: Failure | None = None, twice: bool = False) -> Ran:
        """A run to the watermark, as another process would do it but for Spark, that meets these faults.

        ``failure`` is one of the simulated server. Whatever becomes of the run, the checkpoint does not go back.
        """
        server = self.downstream.server
        if server is not None:
            server.failure = failure
        with armed(comes_to_an_end(), *faults) as passed:
            code, error, told = self._run(twice)
        if server is not None:
            server.failure = None
        if isinstance(error, AssertionError):
            raise error
        self._check_checkpoint(came_to_its_end=error is None)
        return Ran(code, error, passed, told)

    def _run(self, twice: bool) -> tuple[int | None, BaseException | None, list[str]]:
        self._cut, display = None, Watching(self._cut_starts)
        self._filters.add(self.tables)
        definition = Definition(
            source=self.history.uri,
            sink="blackhole://",
            changefeed=str(self.history.toml),
            ledger=str(self.folder / "ledger"),
            work=str(self.folder / "work"),
            options=RunOptions(
                once=True,
                includes=TableFilter.parse(self.tables).includes,
                filter_text=self.tables,
                max_cut=self.max_cut,
                policies=SchemaChangePolicies.parse_text(self.policies),
            ),
        )
        run = PipelineRun(definition, display, KeepingEngine(self.kept, twice))  # type: ignore[arg-type]
        run._source = self.history.opened()
        run._sink = self.downstream.sink()
        run._target = replace(run._target, sink=run._sink)
        run._work()
        if isinstance(run._result, BaseException):
            return None, run._result, display.told
        return run._result, None, display.told

    def clear(self, *, whole: bool) -> None:
        """Somebody removes what lies in the work places of runs, or these themselves."""
        for place in (self.folder / "work").glob("*"):
            for path in [place] if whole else [path for path in place.iterdir() if path.is_dir()]:
                shutil.rmtree(path)

    def run_and_check(self) -> Ran:
        """A run that nothing disturbs. What waits for a person is approved, and another run follows."""
        ran = self.run()
        while ran.code == EXIT_TABLE_STOPPED and self.approve():
            self.check_the_others()
            ran = self.run()
        assert ran.is_complete, f"an undisturbed run ended with {ran}"
        self.check()
        return ran

    def approve(self, chosen: Callable[[], bool] = lambda: True) -> bool:
        """A person approves the schema changes that wait, those that are chosen. Whether there was one."""
        with self._ledger() as ledger:
            state = ledger.peek(PIPELINE)
            assert state is not None
            waiting = [e.identity for e in state.journal.values() if not e.state.is_settled and e.identity not in state.decisions]
            approved = [identity for identity in waiting if chosen()]
            for identity in approved:
                ledger.decide(PIPELINE, Decision(identity, Verdict.APPROVE))
        return bool(approved)

    def decide_otherwise(self, chosen: Callable[[], bool], *, by_hand: bool) -> list[str]:
        """A person runs a statement of their own in place of a DROP or TRUNCATE that a table waits before.

        By hand the change is skipped then, else it is edited. What was decided, as the commands say it.
        """
        told: list[str] = []
        with self._ledger() as ledger:
            state = ledger.peek(PIPELINE)
            assert state is not None
            for identity, table_id, verb in sorted(_endings(state)):
                if not chosen():
                    continue
                statement = f"{verb} {self.downstream.qualified(table_id)}"
                if by_hand:
                    self.downstream.run(statement)
                    self._skipped.add(state.journal[identity].commit_ts)
                decision = Decision(identity, Verdict.SKIP) if by_hand else Decision(identity, Verdict.EDIT, statement)
                ledger.decide(PIPELINE, decision)
                told.append(f"{statement}, and headrace ddl {decision.verdict} {identity}")
        return told

    def makes_anew(self, table_id: TableId) -> None:
        """A person makes a table of their own under the name of one that is gone. No run touches it; then they drop it again.

        What is not known to have run counts as run then.
        """
        if self.downstream.server is None:
            time.sleep(1.1)  # a server tells when a table was made to the second
        name, target = self.downstream.qualified(table_id), self.downstream.target()
        self.downstream.run(f"CREATE TABLE {name} AS SELECT 7 AS id")
        for _ in range(2):
            ran = self.run()
            assert ran.error is None, str(ran)
            rows = target.rows(table_id.database, table_id.table, {"id": "int"})
            assert rows == [("7",)], f"a run touched a person's table: {rows}; {ran}"
        with self._ledger() as ledger:
            state = ledger.peek(PIPELINE)
            assert state is not None
            for entry in state.journal.values():
                if entry.state is JournalState.UNCLEAR:
                    ledger.decide(PIPELINE, Decision(entry.identity, Verdict.SKIP))
        self.downstream.run(f"DROP TABLE {name}")

    def check_the_others(self) -> None:
        """After a run that tables stopped in: those that did not are as the upstream was at the checkpoint."""
        state = self.ledger_state()
        if state is None or not self.options.include_commit_ts:
            return
        includes, target = TableFilter.parse(self.tables).includes, self.downstream.target()
        running = {t for t, own in state.tables.items() if t.table and includes(t) and own.status is TableStatus.RUNNING}
        upstream = self.history.state(state.checkpoint)
        wanted = tuple(table for table in upstream.tables if TableId(table.database, table.name) in running)
        found = {(t.database, t.table) for t in running} & target.tables()
        assert_tables(target, found, replace(upstream, tables=wanted))

    def run_despite(self, *faults: Fault) -> Ran:
        """A run that tables may stop in, because files cannot be read, and that may meet faults. What waits is approved."""
        ran = self.run(*faults)
        while ran.code == EXIT_TABLE_STOPPED and self.approve():
            self.check_the_others()
            ran = self.run()
        assert ran.code in (None, EXIT_OK, EXIT_TABLE_STOPPED), str(ran)
        if ran.is_complete:
            self.check()
        elif ran.code is not None:  # else tables may be ahead of a cut that broke off
            self.check_the_others()
        return ran

    def run_with(self, *faults: Fault, **more: object) -> Ran:
        """A run that meets faults; where it gets to the end all the same, everything must be right."""
        ran = self.run(*faults, **more)  # type: ignore[arg-type]
        expected = ran.error is None or isinstance(ran.error, (Crashed, HeadraceError))
        assert expected, f"the fault led to {ran}"
        failure = more.get("failure")
        may_stop = isinstance(failure, Failure) and failure.how in (Failing.REFUSED, Failing.UNFORESEEN)
        assert ran.code in (None, EXIT_OK) or (ran.code == EXIT_TABLE_STOPPED and (may_stop or self.policies)), str(ran)
        if ran.is_complete:
            self.check()
        elif ran.code == EXIT_TABLE_STOPPED and not may_stop:
            self.check_the_others()
        return ran

    def taken_over(self, number: int, goes_on: Callable[[], None]) -> Ran:
        """A run that another one takes over at its passage of this number, after the upstream has gone on; then it is let go.

        The other one ends well; what the first one does afterwards changes nothing, and it is told that it was fenced.
        """
        after: list[object] = []
        rest: set[tuple[Moment, Step]] = set()

        def take_over(passage: Passage) -> None:
            goes_on()
            code, error, told = self._run(twice=False)
            while code == EXIT_TABLE_STOPPED and self.approve():
                code, error, told = self._run(twice=False)
            assert code == EXIT_OK, f"the run that took over at {passage} ended with {code}, {error!r}, {told}"
            self.check()
            after.append(self.snapshot())

        def watch(passage: Passage) -> None:
            if after:
                rest.add((passage.moment, passage.step))

        # Before the first one has taken its epoch it would be the one that takes over.
        ran = self.run(at(number, take_over, self.downstream.nested_at - {Step.ACQUIRE}), watch)
        if not after:
            assert ran.is_complete or (ran.code == EXIT_TABLE_STOPPED and self.policies), str(ran)
            if ran.is_complete:
                self.check()
            return ran
        assert self.snapshot() == after[0], f"a run that was taken over changed the target: {ran}"
        # Its last cut was over, and all that it did afterwards was to look.
        is_over = ran.error is None and rest <= _LOOKS
        assert isinstance(ran.error, FencedError) or is_over, str(ran)
        return ran

    def ask(self, table_id: TableId, kind: RequestKind, *, to: int = 0) -> None:
        """A person asks something of a table, as the command does."""
        with self._ledger() as ledger:
            state = ledger.peek(PIPELINE)
            assert state is not None
            ledger.request(PIPELINE, new_request(state, table_id, kind, since=state.table_checkpoint(table_id), to=to))

    def held(self, table_id: TableId, meanwhile: Callable[[], None]) -> None:
        """A person holds a table while the others go on."""
        self.ask(table_id, RequestKind.HOLD)
        meanwhile()
        ran = self.run()
        while ran.code == EXIT_TABLE_STOPPED and self.approve():
            ran = self.run()
        follows = TableFilter.parse(self.tables).includes(table_id)
        assert ran.code == EXIT_TABLE_STOPPED or (ran.is_complete and not follows), str(ran)
        self.check_the_others()

    def goes_back(self, table_id: TableId, kept: Callable[[], None], at: int) -> None:
        """A person loads a running table with rows that it had at an earlier commit ts, and has it held there."""
        self.ask(table_id, RequestKind.HOLD)
        self.run()
        kept()
        self.ask(table_id, RequestKind.RESYNC, to=at)
        self.held(table_id, lambda: None)
        assert self._row(table_id).status is TableStatus.HELD

    def loaded_again(self, table_id: TableId, kept: Callable[[], None], at: int, *faults: Fault) -> None:
        """A person loads a held table with rows that it had at a commit ts, and lets it go on from there.

        Where it cannot, the person brings back the rows that it had last, and lets it go on from those. The run that follows may
        meet faults.
        """
        last = self.downstream.save_table(table_id)
        kept()
        self.ask(table_id, RequestKind.RESYNC, to=at)
        if faults:
            self.run(*faults)
        ran = self.run()
        while ran.code == EXIT_TABLE_STOPPED and self.approve():
            ran = self.run()
        assert ran.code in (EXIT_OK, EXIT_TABLE_STOPPED), str(ran)
        state = self.ledger_state()
        assert state is not None
        if table_id in state.holds:
            last()
            self.ask(table_id, RequestKind.RESYNC, to=state.table_checkpoint(table_id))
        self.run_and_check()

    def reset_table(self, table_id: TableId, *faults: Fault, hold: bool) -> None:
        """A person lets a table begin anew, and drops it when it stops before its rows. The runs may meet faults.

        ``hold``: before a run takes that up, somebody wants the table to be held, and releases it later.
        """
        self.ask(table_id, RequestKind.RESET)
        if hold:
            self.ask(table_id, RequestKind.HOLD)
        if self.downstream.server is not None:
            self.downstream.server.begin_anew()
        self.run(*faults)
        self._run_with_approvals()
        if hold:
            held = self._row(table_id)
            self._run_with_approvals()
            assert self._row(table_id) == held
            self.ask(table_id, RequestKind.RELEASE)
            self._run_with_approvals()
        own = self._row(table_id)
        if own.status is TableStatus.INCOMPLETE:  # the reset was refused, and the table is empty as it should be
            self.ask(table_id, RequestKind.RESYNC, to=own.checkpoint)
        elif not own.is_made:
            self.downstream.run(f"DROP TABLE {self.downstream.qualified(table_id)}")
        self.run_and_check()

    def _run_with_approvals(self) -> None:
        ran = self.run()
        while ran.code == EXIT_TABLE_STOPPED and self.approve():
            ran = self.run()

    def _row(self, table_id: TableId) -> TableProgress:
        state = self.ledger_state()
        assert state is not None
        return state.tables[table_id]

    def reset(self) -> None:
        """A person forgets the pipeline, and empties the target for another one of its name."""
        with self._ledger() as ledger:
            ledger.reset(PIPELINE)
        self.downstream.clear()
        self._reached = 0
        self._filters.clear()

    def comment(self, text: str) -> None:
        """A person gives all tables of the target this comment."""
        for database, table in sorted(self.downstream.target().tables()):
            self.downstream.comment(TableId(database, table), text)

    def gone_back(self, saved: int, lost: int) -> Ran:
        """A run whose target goes back, some passages later, to what it held at the passage of this number.

        It goes on from there; only what it wrote last may be missing at its end.
        """
        kept: list[Callable[[], None]] = []

        def go_back(_: Passage) -> None:
            if kept:
                kept[0]()
                self._reached, self._cut = 0, None  # readers may see the middle of another cut again

        steps = self.downstream.nested_at - {Step.ACQUIRE}
        ran = self.run(at(saved, lambda _: kept.append(self.downstream.save()), steps), at(saved + lost, go_back, steps))
        assert ran.is_complete or (ran.code == EXIT_TABLE_STOPPED and self.policies), str(ran)
        return ran

    def wake(self, work: bytes) -> None:
        """A task of an older attempt or epoch does its work now. It is refused, and changes nothing."""
        before = self.snapshot()
        results = _do(work)
        assert self.snapshot() == before, f"a task of a former attempt changed the target: {results}"
        done = [r for r in results if isinstance(r, WriteOutcome) and not r.problem]
        assert self.downstream.spools or not done, f"a task of a former attempt was not refused: {results}"

    def zombies(self) -> list[bytes]:
        """The kept work of jobs that are over: done or failed before the cut that is being applied, or of another attempt."""
        state = self.ledger_state()
        now = (state.epoch, state.attempt) if state else (0, 0)
        return [kept.work for number, kept in enumerate(self.kept) if number < self._over or kept.attempt != now]

    def check(self) -> None:
        """After a run to the watermark: the target is the upstream at the checkpoint, and the journal tells the truth.

        Rows without commit ts are taken with their files, also before their time.
        """
        history, server = self.history, self.downstream.server
        if self.options.include_commit_ts or history.rests:
            assert_state(Included(self.downstream.target(), self.tables), included(history.state(), self.tables))
        state = self.ledger_state()
        assert state is not None
        assert state.checkpoint == history.promised
        includes = TableFilter.parse(self.tables).includes
        entries = [e for e in state.journal.values() if any(map(includes, e.tables))]  # others wait until they are taken back
        open_entries = [entry for entry in entries if not entry.state.is_settled]
        assert not open_entries, f"a complete run left {open_entries}"
        done = {entry.commit_ts for entry in state.journal.values() if entry.state is JournalState.DONE}
        missing = history.schema_changes_below(state.checkpoint) - done - self._skipped
        self._was_filtered |= bool(self.tables)  # what a table missed by that, and is over, never comes into the journal
        assert not missing or self._was_filtered or len(missing | done) > journal.JOURNAL_KEPT, (
            f"the journal does not tell of the schema changes at {sorted(missing)}"
        )
        self._over = len(self.kept)
        if server is not None:
            # A DROP DATABASE that broke off runs again, and drops nothing then; the place of a database has no table.
            tables = {identity: times for identity, times in server.contents.effects.items() if "." in identity.split("/")[1]}
            often = {identity: times for identity, times in tables.items() if times > 1}
            assert not often, f"schema changes took effect more than once: {often}"

    def ledger_state(self) -> LedgerState | None:
        with self._ledger() as ledger:
            return ledger.peek(PIPELINE)

    @contextmanager
    def _ledger(self) -> Iterator[Ledger]:
        with self.downstream.sink() as sink:
            ledger = sink.ledger or open_file_ledger(str(self.folder / "ledger"))
            try:
                yield ledger
            finally:
                ledger.close()

    def columns_of(self, table_id: TableId) -> set[str]:
        """The names of the columns that the target's table has."""
        return self.downstream.target().columns(table_id.database, table_id.table)

    def snapshot(self) -> tuple[object, Mapping[object, object]]:
        """Everything that the target and its ledger hold."""
        target = self.downstream.target()
        columns = {name: sorted(target.columns(*name)) for name in target.tables()}
        rows = {name: sorted(map(repr, target.rows(*name, dict.fromkeys(names, "varchar")))) for name, names in columns.items()}
        return self.ledger_state(), {name: (columns[name], rows[name]) for name in columns}

    def _check_checkpoint(self, *, came_to_its_end: bool) -> None:
        state = self.ledger_state()
        reached = state.checkpoint if state else 0
        assert reached >= self._reached, f"the checkpoint went back from {self._reached} to {reached}"
        self._reached = reached
        if state is not None and came_to_its_end:  # else a table that begins anew below it may be left to the next run
            self._check_known(state)

    def _check_known(self, state: LedgerState) -> None:
        """The checkpoint has passed no CREATE of a table that the ledger does not know, but for what a filter left out once."""
        filters = [TableFilter.parse(tables).includes for tables in self._filters]
        there = (TableId(table.database, table.name) for table in self.history.state(state.checkpoint).tables)
        for table_id in (t for t in there if all(includes(t) for includes in filters)):
            own = state.tables.get(table_id)
            is_known = own is not None and (own.status is not TableStatus.GONE or own.checkpoint >= state.checkpoint)
            assert is_known, f"the checkpoint {state.checkpoint} passed the beginning of {table_id}, which the ledger has as {own}"

    # What readers of the simulated server see.

    def _cut_starts(self, cut: Cut) -> None:
        self._cut, self._over, self._seen_tables = cut, len(self.kept), self.tables
        self._before = self.downstream.server.contents if self.downstream.server else None

    def _seen_by_readers(self, contents: Contents) -> None:
        """Where it is promised, a commit shows the target as it was before the cut, or as the upstream was at the checkpoint."""
        if self._cut is None or self._before is None or contents.tables == self._before.tables:
            return
        capabilities, rounds = self.downstream.sink().capabilities, self._cut.rounds
        is_small = capabilities.atomic_bytes and len(rounds) == 1 and not rounds[0].changes
        state = contents.ledgers.get(PIPELINE)
        is_promised = state is not None and self.options.include_commit_ts and (capabilities.atomic_cut or is_small)
        lagging = state and [t for t, own in state.tables.items() if own.status.is_stopped or own.status is TableStatus.CATCHING_UP]
        if is_promised and not lagging:
            seen = Included(SimulatedTarget(contents), self._seen_tables)
            assert_state(seen, included(self.history.state(state.checkpoint), self._seen_tables))


def at(number: int, act: Callable[[Passage], None], steps: frozenset[Step] = frozenset(Step)) -> Fault:
    """Acts at the passage of this number (from 1) of those at these steps; what is passed while it acts does not count."""
    left = iter(range(number, -1, -1))
    is_acting = False

    def fault(passage: Passage) -> None:
        nonlocal is_acting
        if is_acting or passage.step not in steps or next(left, 0) != 1:
            return
        is_acting = True
        try:
            act(passage)
        finally:
            is_acting = False

    return fault


def after_a_lost_answer(skip: int, then: Fault) -> Fault:
    """A task's commit is done, but not the first ``skip`` ones, and its answer is lost; the other fault counts from there on."""
    has_failed = False

    def fault(passage: Passage) -> None:
        nonlocal has_failed, skip
        if has_failed:
            then(passage)
        elif (passage.moment, passage.step) == (Moment.AFTER, Step.UNIT):
            skip -= 1
            if skip < 0:
                has_failed = True
                raise TransientError("the answer to a commit was lost")

    return fault


def crash(passage: Passage) -> None:
    raise Crashed(str(passage))


def fail(passage: Passage) -> None:
    """What may pass goes wrong here, as this step would tell it; after the step, the answer is what is lost."""
    match passage.step:
        case Step.POLL | Step.READ if passage.moment is Moment.BEFORE:
            raise SourceUnreachableError("the store does not answer")
        case Step.READ:
            raise JobFailedError("an executor was lost")
        case Step.MYSQL_VERIFY if passage.moment is Moment.BEFORE:  # the connection stays
            raise pymysql.err.OperationalError(1205, "Lock wait timeout exceeded; try restarting transaction")
        case Step.MYSQL_COMMIT | Step.MYSQL_STATEMENT | Step.MYSQL_VERIFY:
            raise pymysql.err.OperationalError(2013, "Lost connection to server during query")
        case Step.DUCKDB_COMMIT | Step.DUCKDB_LOAD:
            raise duckdb.IOException("the disk failed")
        case Step.FILE_LEDGER_PUT:
            raise OSError("the network failed")
    raise TransientError(f"what may pass went wrong {passage}")
