"""The fault model: whatever breaks between any two steps of a run, the next run brings the target to what the upstream holds.

A stateful property test lets an upstream go on and runs of the real engine die, fail, meet tasks of their predecessors, and be
taken over at random named points (``headrace.faults``); a walk lets a run die at each point there is, on each kind of target
that has it.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, Phase, given, note, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

import differential
from damaged_files import DamagedFiles
from downstreams import Downstream, on_duckdb, on_mariadb, simulated, with_file_ledger
from faulty_runs import (
    NAMES,
    OPTIONS,
    PIPELINE,
    TEXT,
    WITHOUT_COMMIT_TS,
    SmallHistory,
    World,
    after_a_lost_answer,
    at,
    crash,
    fail,
)
from headrace.engine import journal
from headrace.errors import TransientError
from headrace.model.ledger import RequestKind, TableRequest, TableStatus
from headrace.model.table import Column, TableId
from headrace.sinks.file_ledger import open_file_ledger
from headrace.testing.faults import POINTS, Crashed, Moment, Passage, Step, crash_at, fail_at
from headrace.testing.memory_server import Call, Failing, Failure
from headrace.testing.memory_sink import CAPABILITIES
from headrace.testing.ticdc_options import ChangefeedOptions
from headrace.testing.upstream import Delete, Insert, Update
from kafka_server import KafkaBroker
from kafka_stream import KafkaHistory
from quick import without_pauses
from sampling import drawn
from server_settings import SETTABLE
from streamed_history import StreamedHistory
from time_limit import Clock, until_time_is_over
from upstreams import KEY, NAME

pytestmark = pytest.mark.pipeline

SECONDS = float(os.environ.get("HEADRACE_FAULTS_SECONDS", "0"))
EXAMPLES = {"mariadb": drawn(4), "duckdb": drawn(3), "topic": drawn(2)}  # without a number of seconds: always the same ones
EXAMPLES |= dict.fromkeys(CAPABILITIES, drawn(12))
DRAWN = [
    *(pytest.param(kind, OPTIONS, id=kind) for kind in (*CAPABILITIES, "duckdb")),
    *(pytest.param(kind, WITHOUT_COMMIT_TS, id=f"{kind}, no commit ts") for kind in ("nothing atomic", "duckdb")),
    pytest.param("mariadb", OPTIONS, marks=pytest.mark.server, id="mariadb"),
    pytest.param("mariadb", WITHOUT_COMMIT_TS, marks=pytest.mark.server, id="mariadb, no commit ts"),
]
"""What histories of faults are drawn for."""

ACTIONS = (
    *["rows"] * 6,
    *["alter"] * 3,
    *("swap_rows", "create", "drop", "truncate", "recreate", "rename", "swap", "rename_many", "like"),
    *("recreate_database", "recreate_database", "deliver", "restart", "time", "half"),
)
KEPT = journal.JOURNAL_KEPT
SEEDS = st.integers(0, 2**20)
STEPS = st.lists(st.builds(differential.Step, st.sampled_from(ACTIONS), SEEDS), min_size=1, max_size=5)
ENDINGS = st.lists(
    st.builds(differential.Step, st.sampled_from(("rows", "rows", "drop", "truncate", "recreate")), SEEDS), min_size=1, max_size=5
)
FILTERS = ("", "", "*.*,!d1.a", "d1.*", "*.*,!*.b")
MAX_CUTS = (0, 0, 1, 400)
APPROVED = ("create-database", "drop-database", "create-table", "drop-table", "truncate-table", "rename-table")
APPROVED += ("add-column", "drop-column", "rename-column")
POLICIES = st.just("") | st.sets(st.sampled_from(APPROVED), max_size=5).map(lambda ks: ",".join(f"{k}=approve" for k in sorted(ks)))
NUMBERS = st.integers(1, 50)
LOST = (Call.ACQUIRE, Call.NEXT_ATTEMPT, Call.UPDATE, Call.APPLY, Call.COMMIT)
REFUSED = (Call.APPLY, Call.WRITE, Call.LOAD)
FENCED = (Call.NEXT_ATTEMPT, Call.UPDATE, Call.OPEN, Call.COMMIT)
FAILURES = [(call, how) for call in Call for how in (Failing.TRANSIENT, Failing.UNREACHABLE)]
FAILURES += [(call, Failing.LOST) for call in LOST]
FAILURES += [(call, Failing.REFUSED) for call in REFUSED] + [(call, Failing.FENCED) for call in FENCED]
FAILURES += [(Call.WRITE, Failing.UNFORESEEN)]


@pytest.fixture(autouse=True)
def _without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    without_pauses(monkeypatch)
    monkeypatch.setattr(journal, "JOURNAL_KEPT", KEPT)  # what a history sets ends with its test


@pytest.fixture
def empty(request: pytest.FixtureRequest) -> Callable[[str, Path], Downstream]:
    """An empty target of a kind; its files go into the folder."""

    def make(kind: str, folder: Path) -> Downstream:
        if kind == "mariadb":
            return on_mariadb(request.getfixturevalue("mariadb_server"))
        if kind == "duckdb":
            return on_duckdb(folder)
        return with_file_ledger() if kind == "file ledger" else simulated(kind)

    return make


class FaultModel(RuleBasedStateMachine):
    """An upstream, its changefeed, a target, and runs to the watermark that meet one fault each."""

    def __init__(
        self,
        empty: Callable[[Path], Downstream],
        clock: Clock,
        options: ChangefeedOptions,
        new_history: Callable[[Path, ChangefeedOptions], SmallHistory] = SmallHistory,
    ) -> None:
        super().__init__()
        self.clock = clock
        self.folder = Path(tempfile.mkdtemp(prefix="headrace-faults-"))
        self.world = World(self.folder, empty(self.folder), options=options, new_history=new_history)
        self._heard = 0

    @initialize(
        steps=STEPS,
        few=st.booleans(),
        filters=st.lists(st.sampled_from(FILTERS), max_size=8),
        max_cuts=st.lists(st.sampled_from(MAX_CUTS), max_size=8),
        policies=st.lists(POLICIES, max_size=8),
    )
    def begins(
        self, steps: list[differential.Step], few: bool, filters: list[str], max_cuts: list[int], policies: list[str]
    ) -> None:
        """``few``: the journal forgets at once what it may, as it does after hundreds of schema changes.

        ``filters``, ``max_cuts`` (bytes) and ``policies`` are the ``--tables``, ``--max-cut`` and ``--schema-changes`` of the
        runs after each step of the upstream, one a time; then the last ones stay.
        """
        self.clock.require_time()
        # A stream keeps no place for tables that are left out: what is taken back has to be loaded anew.
        filters = [] if self.world.history.is_streamed else filters
        self.filters, self.max_cuts, self.policies = iter(filters), iter(max_cuts), iter(policies)
        journal.JOURNAL_KEPT = 0 if few else KEPT
        self.goes_on(steps)
        self.world.run_and_check()

    def goes_on(self, steps: list[differential.Step], seed: int = 0) -> None:
        """The upstream does this, and a checkpoint is published: the newest, or one on the way."""
        for step in [*steps, differential.Step("promise", seed)]:
            self.world.history.take(step)
        self.world.tables = next(self.filters, self.world.tables)
        self.world.max_cut = next(self.max_cuts, self.world.max_cut)
        self.world.policies = next(self.policies, self.world.policies)
        world = self.world
        note(f"from now on --tables {world.tables!r} --max-cut {world.max_cut} --schema-changes {world.policies!r}")
        for words in self.world.history.told[self._heard :]:
            note(words)
        self._heard = len(self.world.history.told)

    @rule(steps=STEPS, seed=SEEDS)
    def the_upstream_goes_on(self, steps: list[differential.Step], seed: int) -> None:
        self.goes_on(steps, seed)

    @rule()
    def a_run_is_left_alone(self) -> None:
        self.world.run_and_check()

    @rule(number=NUMBERS, twice=st.booleans())
    def a_run_dies(self, number: int, twice: bool) -> None:
        note(str(self.world.run_with(at(number, crash), twice=twice)))

    @rule(steps=STEPS, seed=SEEDS, number=NUMBERS)
    def a_cut_that_broke_off_is_taken_again_with_more(self, steps: list[differential.Step], seed: int, number: int) -> None:
        note(str(self.world.run_with(at(number, crash))))
        self.goes_on(steps, seed)
        self.world.run_and_check()

    @rule(chosen=SEEDS)
    def a_person_approves_something(self, chosen: int) -> None:
        chance = Random(chosen)
        self.world.approve(lambda: chance.random() < 0.5)

    @rule(steps=ENDINGS, seed=SEEDS, chosen=SEEDS, by_hand=st.booleans(), number=NUMBERS, more=STEPS)
    def a_person_runs_something_else(
        self, steps: list[differential.Step], seed: int, chosen: int, by_hand: bool, number: int, more: list[differential.Step]
    ) -> None:
        """In place of a DROP or TRUNCATE, to the same end. Then the upstream goes on, and a run dies."""
        self.goes_on(steps, seed)
        chance, own, self.world.policies = Random(chosen), self.world.policies, "drop-table=approve,truncate-table=approve"
        note(str(self.world.run_with()))
        for told in self.world.decide_otherwise(lambda: chance.random() < 0.8, by_hand=by_hand):
            note(told)
        self.goes_on(more, seed)
        note(str(self.world.run_with(at(number, crash))))
        self.world.run_and_check()
        self.world.policies = own

    @rule(number=NUMBERS)
    def something_passing_goes_wrong(self, number: int) -> None:
        note(str(self.world.run_with(at(number, fail))))

    @rule(steps=STEPS, seed=SEEDS, number=NUMBERS, whole=st.booleans())
    def the_work_place_is_cleared(self, steps: list[differential.Step], seed: int, number: int, whole: bool) -> None:
        """Under a living run, which goes on by itself."""
        self.goes_on(steps, seed)
        ran = self.world.run_with(at(number, lambda _: self.world.clear(whole=whole)))
        assert ran.error is None, str(ran)

    @rule(failing=st.sampled_from(FAILURES), skip=st.integers(0, 12))
    @precondition(lambda self: self.world.downstream.server is not None)
    def a_call_of_the_sink_fails(self, failing: tuple[Call, Failing], skip: int) -> None:
        note(str(self.world.run_with(failure=Failure(*failing, skip))))

    @rule(steps=STEPS, seed=SEEDS)
    def every_task_is_done_twice(self, steps: list[differential.Step], seed: int) -> None:
        self.goes_on(steps, seed)
        self.world.run_with(twice=True)

    @rule(chosen=SEEDS)
    def a_task_of_a_former_attempt_wakes(self, chosen: int) -> None:
        zombies = self.world.zombies()
        if zombies:
            self.world.wake(zombies[chosen % len(zombies)])

    @rule(steps=STEPS, seed=SEEDS, failing=st.integers(0, 2) | st.none(), waking=st.integers(1, 15))
    def a_task_of_a_former_attempt_wakes_in_a_run(
        self, steps: list[differential.Step], seed: int, failing: int | None, waking: int
    ) -> None:
        """The former attempt is another run's, or the run's own: its job failed, and the cut is being taken again."""

        def wake(_: Passage) -> None:
            for work in self.world.zombies()[-1:]:
                self.world.wake(work)

        self.goes_on(steps, seed)
        fault = at(waking, wake, self.world.downstream.nested_at)
        self.world.run_with(fault if failing is None else after_a_lost_answer(failing, fault))

    @rule(steps=STEPS, more=STEPS, seed=SEEDS, number=NUMBERS)
    def a_run_is_taken_over(self, steps: list[differential.Step], more: list[differential.Step], seed: int, number: int) -> None:
        self.goes_on(steps, seed)
        note(str(self.world.taken_over(number, lambda: self.goes_on(more, seed))))

    @rule(steps=STEPS, seed=SEEDS, number=NUMBERS)
    def a_run_dies_and_a_person_alters_the_tables(self, steps: list[differential.Step], seed: int, number: int) -> None:
        """What differs then is no proof that a schema change ran."""
        self.goes_on(steps, seed)
        note(str(self.world.run_with(at(number, crash))))
        self.world.comment(f"at {seed}")
        self.world.run_and_check()

    @rule(steps=ENDINGS, seed=SEEDS, chosen=SEEDS, number=st.integers(1, 8))
    def a_run_dies_and_a_person_makes_a_dropped_table_anew(
        self, steps: list[differential.Step], seed: int, chosen: int, number: int
    ) -> None:
        """That a table of that name is there is no proof that it was not dropped."""
        self.world.run_and_check()
        target = self.world.downstream.target()
        before = target.tables()
        self.goes_on([*steps, differential.Step("drop", chosen)], seed)
        note(str(self.world.run_with(at(number, crash, frozenset({Step.SCHEMA_CHANGE, Step.JOURNAL_SETTLED})))))
        left = target.tables()
        databases = {database for database, _ in left}  # nobody makes a table in a database that went with it
        gone = sorted(name for name in before - left if name[0] in databases)
        if gone:
            table_id = TableId(*gone[chosen % len(gone)])
            note(f"a person makes {table_id}")
            self.world.makes_anew(table_id)
        self.world.run_and_check()

    def _a_table(self, chosen: int) -> TableId | None:
        """One that runs, and that the target has."""
        state = self.world.ledger_state()
        assert state is not None
        there = self.world.downstream.target().tables()
        running = [t for t, own in sorted(state.tables.items()) if t.table and own.status is TableStatus.RUNNING]
        found = [t for t in running if (t.database, t.table) in there]
        return found[chosen % len(found)] if found else None

    @rule(
        steps=STEPS,
        seed=SEEDS,
        chosen=SEEDS,
        earlier=st.lists(st.sampled_from((RequestKind.HOLD, RequestKind.RELEASE)), max_size=2),
    )
    def a_table_is_held(self, steps: list[differential.Step], seed: int, chosen: int, earlier: list[RequestKind]) -> None:
        """``earlier`` is what people asked before, and no run has taken up."""
        table_id = self._a_table(chosen)
        if table_id is not None:
            for kind in earlier:
                self.world.ask(table_id, kind)
            note(f"headrace table {[*earlier, RequestKind.HOLD]} {table_id}")
            self.world.held(table_id, lambda: self.goes_on(steps, seed))
            self.world.ask(table_id, RequestKind.RELEASE)
        self.world.run_and_check()

    @rule(steps=STEPS, seed=SEEDS, chosen=SEEDS, number=NUMBERS | st.none())
    @precondition(lambda self: self.world.options.include_commit_ts)
    def a_table_is_loaded_anew(self, steps: list[differential.Step], seed: int, chosen: int, number: int | None) -> None:
        """With rows of a time that the pipeline has passed."""
        self.world.run_and_check()
        table_id, world = self._a_table(chosen), self.world
        if table_id is None:
            return
        kept, at_ts, columns = world.downstream.save_table(table_id), world.history.promised, world.columns_of(table_id)
        if at_ts in world.history.schema_changes_below(at_ts + 1):
            return  # a dump of then has that change behind it, the target has not
        self.goes_on(steps, seed)
        world.run_and_check()
        if self._a_table(chosen) == table_id and world.columns_of(table_id) == columns:
            note(f"headrace table hold {table_id}, and resync --at {at_ts}")
            world.held(table_id, lambda: None)
            world.loaded_again(table_id, kept, at_ts, *([] if number is None else [at(number, crash)]))

    @rule(steps=STEPS, seed=SEEDS, chosen=SEEDS, max_cut=st.sampled_from((1, 200, 400)), number=NUMBERS | st.none())
    @precondition(lambda self: self.world.options.include_commit_ts and not self.world.history.is_streamed)
    def a_table_is_loaded_ahead_while_others_catch_up(
        self, steps: list[differential.Step], seed: int, chosen: int, max_cut: int, number: int | None
    ) -> None:
        """It is held at an earlier time than it is loaded as of. The files of others cannot be read until then."""
        self.world.run_and_check()
        table_id, world, history = self._a_table(chosen), self.world, self.world.history
        if table_id is None:
            return
        before, place = world.downstream.save_table(table_id), history.promised
        self.goes_on([differential.Step("rows", seed)], seed)
        world.run_and_check()
        if self._a_table(chosen) != table_id or any(ts >= place for ts in history.schema_changes_below(history.promised + 1)):
            return  # what was saved may be of another shape, or of another table
        loaded, at_ts = world.downstream.save_table(table_id), history.promised
        note(f"{table_id} is held at {place}, and gets headrace table resync --at {at_ts} with --max-cut {max_cut}")
        world.goes_back(table_id, before, place)
        files, chance, own = DamagedFiles(self.folder / "data"), Random(chosen), world.max_cut
        for more in ([differential.Step("rows", seed + 1)], steps, [differential.Step("rows", seed + 2)]):
            self.goes_on([*more, differential.Step("rows", seed)], seed)
            note(f"damaged are {files.damage(chance, 3)}")
            note(str(world.run_despite()))
        note(f"repaired are {files.repair()}")
        world.max_cut = max_cut
        world.loaded_again(table_id, loaded, at_ts, *([] if number is None else [at(number, crash)]))
        world.max_cut = own

    @rule(chosen=SEEDS, number=NUMBERS, hold=st.booleans())
    @precondition(lambda self: self.world.options.include_commit_ts)
    def a_table_is_reset(self, chosen: int, number: int, hold: bool) -> None:
        self.world.run_and_check()
        table_id = self._a_table(chosen)
        if table_id is not None:
            note(f"headrace reset --table {table_id}{', and table hold' if hold else ''}")
            self.world.reset_table(table_id, at(number, crash), hold=hold)

    @rule(steps=STEPS, seed=SEEDS, number=NUMBERS)
    def the_pipeline_is_reset(self, steps: list[differential.Step], seed: int, number: int) -> None:
        """Whatever it was doing, another one begins under its name."""
        self.goes_on(steps, seed)
        note(str(self.world.run_with(at(number, crash))))
        self.world.reset()
        self.world.run_and_check()

    @rule(steps=STEPS, more=STEPS, seed=SEEDS, chosen=SEEDS, max_cut=st.sampled_from(MAX_CUTS), number=NUMBERS | st.none())
    @precondition(lambda self: self.world.options.include_commit_ts and not self.world.history.is_streamed)
    def files_cannot_be_read(
        self,
        steps: list[differential.Step],
        more: list[differential.Step],
        seed: int,
        chosen: int,
        max_cut: int,
        number: int | None,
    ) -> None:
        """From their first record on: of tables that are there, and of new ones while those catch up after a repair."""
        files, chance, world = DamagedFiles(self.folder / "data"), Random(chosen), self.world
        for each in (steps, [differential.Step("create", seed), *more], [differential.Step("create", seed + 1), *more]):
            self.goes_on([*each, differential.Step("rows", seed)], seed)
            note(f"repaired are {files.repair(chance)}, damaged {files.damage(chance, 2)}; --max-cut {max_cut}")
            own, world.max_cut = world.max_cut, max_cut
            note(str(world.run_despite(*([] if number is None else [at(number, crash)]))))
            note(str(world.run_despite()))
            world.max_cut = own
        files.repair()
        world.run_and_check()

    @rule(names=st.sets(st.sampled_from(sorted(SETTABLE)), max_size=8))
    @precondition(lambda self: self.world.downstream.set_variables is not None)
    def the_server_gets_other_settings(self, names: set[str]) -> None:
        note(f"SET GLOBAL {', '.join(f'{name} = {SETTABLE[name]}' for name in sorted(names))}")
        self.world.downstream.set_variables(names)

    @rule(steps=STEPS, seed=SEEDS, saved=NUMBERS, lost=NUMBERS)
    def the_target_goes_back(self, steps: list[differential.Step], seed: int, saved: int, lost: int) -> None:
        """A failover loses the last transactions, or a backup is restored, while a run lives."""
        self.goes_on(steps, seed)
        note(str(self.world.gone_back(saved, lost)))
        self.world.run_and_check()

    def teardown(self) -> None:
        try:
            self.filters, self.max_cuts, self.policies = iter([""]), iter(()), iter([""])
            self.goes_on([differential.Step("rows", 0)])
            self.world.history.finish()
            self.world.run_and_check()
        finally:
            self.clock.example_ends()
            journal.JOURNAL_KEPT = KEPT
            if self.world.downstream.set_variables is not None:
                self.world.downstream.set_variables(())
        shutil.rmtree(self.folder)


@pytest.mark.parametrize(("kind", "options"), DRAWN)
def test_after_every_history_of_faults_the_target_is_the_upstream(
    kind: str, options: ChangefeedOptions, empty: Callable[[str, Path], Downstream]
) -> None:
    _run_model(lambda folder: empty(kind, folder), kind, options, SmallHistory)


@pytest.mark.parametrize("kind", [*CAPABILITIES, "duckdb", pytest.param("mariadb", marks=pytest.mark.server)])
def test_after_every_history_of_faults_the_target_is_the_upstream_of_the_stream(
    kind: str, empty: Callable[[str, Path], Downstream]
) -> None:
    _run_model(lambda folder: empty(kind, folder), kind, OPTIONS, StreamedHistory)


@pytest.mark.server
@pytest.mark.parametrize(("kind", "several"), [("nothing atomic", False), ("duckdb", False), ("nothing atomic", True)])
def test_after_every_history_of_faults_the_target_is_the_upstream_of_the_topic(
    kind: str, several: bool, empty: Callable[[str, Path], Downstream], kafka: KafkaBroker
) -> None:
    """The topic is of a real broker, or its partitions are topics of one, and the shapes of tables follow from statements."""
    _run_model(lambda folder: empty(kind, folder), "topic", OPTIONS, partial(KafkaHistory, kafka, several=several))


@pytest.mark.parametrize("kind", ["nothing atomic", "atomic cuts"])
def test_tables_whose_files_cannot_be_read_keep_no_others_back(kind: str, empty: Callable[[str, Path], Downstream]) -> None:
    """The fault model's rule by itself, so that it is drawn in every run of the tests."""
    clock = Clock(SECONDS)

    @settings(
        max_examples=drawn(8),
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate],
    )
    @given(STEPS, STEPS, STEPS, SEEDS, SEEDS, st.sampled_from((1, 200, 400)), NUMBERS | st.none())
    def check(first, steps, more, seed, chosen, max_cut, number) -> None:  # type: ignore[no-untyped-def]
        model = FaultModel(lambda folder: empty(kind, folder), clock, OPTIONS)
        model.begins(first, few=False, filters=[], max_cuts=[], policies=[])
        model.files_cannot_be_read(steps, more, seed, chosen, max_cut, number)
        model.teardown()

    check()


@pytest.mark.parametrize("kind", ["nothing atomic", "atomic cuts"])
def test_a_table_that_is_loaded_ahead_while_others_catch_up_has_all_its_rows(
    kind: str, empty: Callable[[str, Path], Downstream]
) -> None:
    clock = Clock(SECONDS)

    @settings(
        max_examples=drawn(12),
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate],
    )
    @given(STEPS, STEPS, SEEDS, SEEDS, st.sampled_from((1, 200, 400)), NUMBERS | st.none())
    def check(first, steps, seed, chosen, max_cut, number) -> None:  # type: ignore[no-untyped-def]
        model = FaultModel(lambda folder: empty(kind, folder), clock, OPTIONS)
        model.begins([differential.Step("create", seed), *first], few=False, filters=[], max_cuts=[], policies=[])
        model.a_table_is_loaded_ahead_while_others_catch_up(steps, seed, chosen, max_cut, number)
        model.teardown()

    check()


def _run_model(
    empty: Callable[[Path], Downstream],
    kind: str,
    options: ChangefeedOptions,
    new_history: Callable[[Path, ChangefeedOptions], SmallHistory],
) -> None:
    clock = Clock(SECONDS)
    with until_time_is_over():
        run_state_machine_as_test(
            lambda: FaultModel(empty, clock, options, new_history),
            settings=settings(
                max_examples=1_000_000 if SECONDS else EXAMPLES[kind],
                stateful_step_count=14,
                derandomize=not SECONDS,
                database=None,
                deadline=None,
                suppress_health_check=list(HealthCheck),
            ),
        )


KINDS = {**dict.fromkeys((*CAPABILITIES, "duckdb", "file ledger"), ()), "mariadb": (pytest.mark.server,)}
HOMES = {"MYSQL": "mariadb", "DUCKDB": "duckdb", "FILE": "file ledger"}


def kinds_with(step: Step) -> list[str]:
    """The kinds of target whose runs come by this step: all, unless it is named after one."""
    home = HOMES.get(step.name.partition("_")[0])
    return [home] if home else list(KINDS)


WALK = [
    pytest.param(moment, step, kind, marks=KINDS[kind], id=f"{moment} {step}, {kind}")
    for moment, step in POINTS
    # tests/test_dead_letters.py and tests/test_streams.py die at the others.
    if step not in (Step.LETTERS_PUT, Step.LETTERS_REMOVED, Step.STAGE)
    for kind in kinds_with(step)
]


@pytest.mark.parametrize(("moment", "step", "kind"), WALK)
def test_a_run_that_dies_at_this_point_is_made_good(
    moment: Moment, step: Step, kind: str, empty: Callable[[str, Path], Downstream], tmp_path: Path
) -> None:
    """Every point of the registry is here, so one that no run comes by fails."""
    world = World(tmp_path, empty(kind, tmp_path))
    history, upstream = world.history, world.history.upstream
    orders, drafts, free = NAMES[:3]
    for table_id in (orders, drafts):
        history.has_changed(upstream.create_table(table_id, [KEY, NAME]))
        history.executes(*(Insert(table_id, {"id": n, "name": f"{n}"}) for n in range(3)))
    history.finish()
    world.run_and_check()
    ask(world)
    history.executes(Update(orders, (0,), {"id": 10}), Delete(orders, (1,)), Insert(drafts, {"id": 5, "name": "five"}))
    history.has_changed(upstream.add_column(orders, Column("price", TEXT, default="7")))
    history.has_changed(upstream.truncate_table(drafts))
    history.executes(Insert(orders, {"id": 1, "name": "again", "price": "8"}), Insert(drafts, {"id": 5, "name": "another"}))
    history.has_changed(upstream.rename_tables((orders, free), (drafts, orders), (free, drafts)))
    history.finish()
    needed = [fail_at(Moment.BEFORE, Step.ROUND, lambda: TransientError("for once"))] if step is Step.NEXT_ATTEMPT else []
    ran = world.run(*needed, crash_at(moment, step))
    assert isinstance(ran.error, Crashed), f"no run of this kind came by: {ran}"
    world.run_and_check()


def ask(world: World) -> None:
    """Leaves a request for the next run."""
    with world.downstream.sink() as sink:
        ledger = sink.ledger or open_file_ledger(str(world.folder / "ledger"))
        ledger.request(PIPELINE, TableRequest("1", NAMES[0], RequestKind.RESUME))
        ledger.close()


@pytest.mark.parametrize("kind", ["nothing atomic", "atomic small cuts", pytest.param("mariadb", marks=pytest.mark.server)])
def test_a_task_that_was_lost_and_done_by_another_cannot_write_after_its_round(
    kind: str, empty: Callable[[str, Path], Downstream], tmp_path: Path
) -> None:
    """All is well with the run, and so the epoch is still its own: only the attempt tells that the task is late."""
    world = World(tmp_path, empty(kind, tmp_path))
    history, upstream, orders = world.history, world.history.upstream, NAMES[0]
    history.has_changed(upstream.create_table(orders, [KEY, NAME]))
    history.executes(Insert(orders, {"id": 1, "name": "early"}), Insert(orders, {"id": 2, "name": "early"}))
    history.has_changed(upstream.truncate_table(orders))
    history.executes(Insert(orders, {"id": 1, "name": "late"}))
    history.finish()
    world.run_and_check()
    assert len({kept.attempt for kept in world.kept}) == 2
    for kept in world.kept:
        world.wake(kept.work)
    world.check()
