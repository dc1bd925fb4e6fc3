"""Schema changes that run long in the target: their tables wait, others go on, and each is begun once, whatever kills the runs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from io import StringIO
from pathlib import Path
from random import Random
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.cli.decisions import decide
from headrace.cli.main import main
from headrace.cli.output import JsonOutput
from headrace.cli.remedies import ways_on
from headrace.cli.status import status_fields
from headrace.errors import EXIT_OK, EXIT_USAGE, DefinitionError
from headrace.model.ledger import JournalEntry, JournalState, RequestKind, TableRequest, Verdict
from headrace.model.policy import ChangeKind, Policy, SchemaChangePolicies
from headrace.model.table import Column
from headrace.testing.faults import Crashed, Moment, Step, armed, crash_at
from headrace.testing.memory_sink import CAPABILITIES, MemoryLedger, MemorySink
from headrace.testing.upstream_ddl import AddColumn
from sampling import drawn
from served import serve
from streams import INT, NAME, A, Actions, B, World, run_with_kills

pytestmark = pytest.mark.pipeline
N = Column("n", INT, default="7")


@pytest.fixture(params=["atomic small cuts", "nothing atomic"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    world = World(tmp_path, capability=str(request.param), runs_long=True)
    world.create(A)
    world.create(B)
    world.insert(A, 1)
    world.upstream.checkpoint()
    world.run()
    world.upstream.alter(A, AddColumn(N))
    world.insert(A, 2, n=1)
    world.insert(B, 1)
    world.upstream.checkpoint()
    return world


def running(world: World) -> list[JournalEntry]:
    return [entry for entry in world.state.journal.values() if entry.state is JournalState.RUNNING]


def test_its_table_waits_before_it_and_others_go_on(world: World) -> None:
    display = world.run()
    (entry,) = running(world)
    (problem,) = display.stopped
    assert problem.table_id == A
    assert f"has been running in the target since {entry.since}: ALTER TABLE" in problem.message
    assert world.rows(B) == world.wanted(B)
    assert len(world.rows(A)) == 1
    world.insert(B, 2)
    world.upstream.checkpoint()
    world.run()
    assert world.rows(B) == world.wanted(B)
    assert running(world) == [entry]
    assert world.server.finish() == 1
    assert not world.run().stopped
    world.check()
    assert not running(world)


def test_people_are_told_since_when_it_runs_and_have_nothing_to_decide(world: World) -> None:
    world.run()
    (entry,) = running(world)
    told = status_fields(world.state)["running_schema_changes"]
    assert told == [{"statement": entry.statement, "since": entry.since, "tables": ["shop.a"]}]
    assert not ways_on(world.state.tables[A], world.state)
    sink = MemorySink(world.server, CAPABILITIES["nothing atomic"])

    @contextmanager
    def opened() -> Iterator[object]:
        yield sink.ledger

    place = SimpleNamespace(name=NAME, target=SimpleNamespace(assembled=lambda: SimpleNamespace(opened=opened, sink=sink)))
    with pytest.raises(DefinitionError, match=f"has been running in the target since {re.escape(entry.since)}"):
        decide(place, entry.identity, Verdict.SKIP, "", JsonOutput(StringIO(), StringIO()))  # type: ignore[arg-type]
    assert not world.state.decisions


def test_one_that_fails_waits_for_a_person_and_is_begun_anew_when_it_is_approved(world: World) -> None:
    world.run()
    (entry,) = running(world)
    world.server.finish(fails=True)
    (problem,) = world.run().stopped
    assert "the simulated server gave it up." in problem.message
    assert world.state.journal[entry.identity].state is JournalState.WAITING
    world.run()
    (again,) = running(world)
    assert again.handle != entry.handle
    world.server.finish()
    world.run()
    world.check()


@pytest.mark.parametrize("moment", list(Moment))
@pytest.mark.parametrize("step", [Step.JOURNAL_PENDING, Step.SCHEMA_CHANGE, Step.CHECKPOINT])
def test_a_run_that_dies_around_its_beginning_does_not_begin_it_twice(world: World, moment: Moment, step: Step) -> None:
    with armed(crash_at(moment, step)), pytest.raises(Crashed):
        world.run()
    world.run()
    assert world.server.finish() == 1
    with armed(crash_at(moment, Step.JOURNAL_SETTLED)), pytest.raises(Crashed):
        world.run()
    world.run()
    world.check()
    assert len(world.server.contents.jobs) == 1


def test_one_that_was_approved_needs_no_approval_while_it_runs(world: World) -> None:
    world.run()
    approve = SchemaChangePolicies({ChangeKind.ADD_COLUMN: Policy.APPROVE})
    world.server.finish()
    assert not world.run(policies=approve).stopped
    world.check()


@pytest.mark.parametrize(
    ("kind", "refusal"),
    [(RequestKind.RESYNC, "the table does not go on from {at}: its"), (RequestKind.RESET, "it does not begin anew: its")],
)
def test_a_table_is_not_begun_anew_under_a_change_that_runs(
    world: World, kind: RequestKind, refusal: str, capsys: pytest.CaptureFixture[str]
) -> None:
    world.run()
    (entry,) = running(world)
    ledger = MemoryLedger(MemorySink(world.server, CAPABILITIES["nothing atomic"]))
    at = world.state.checkpoint
    ledger.request(NAME, TableRequest("1", A, kind, to=at))
    world.run()
    told = f"{refusal.format(at=at)} schema change at {entry.commit_ts} has been running in the target since {entry.since}."
    assert told in capsys.readouterr().err
    assert running(world) == [entry]
    ledger.request(NAME, TableRequest("2", A, RequestKind.RELEASE))
    world.run()
    assert world.server.finish() == 1
    world.run()
    world.check()


def test_a_pipeline_is_not_reset_under_a_change_that_runs(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world.run()
    (entry,) = running(world)
    serve(world, tmp_path, monkeypatch)
    words = ["reset", "--yes", "--sink", "memory://", "--name", NAME]
    assert main(words) == EXIT_USAGE
    assert running(world) == [entry]
    assert world.server.finish() == 1
    world.run()
    assert main(words) == EXIT_OK


def test_no_change_is_begun_in_a_transaction_that_may_be_taken_back(tmp_path: Path) -> None:
    world = World(tmp_path, capability="atomic cuts", runs_long=True)
    world.create(A)
    world.upstream.alter(A, AddColumn(N))
    world.insert(A, 2, n=1)
    world.upstream.checkpoint()
    assert not world.run().stopped
    world.check()


@settings(max_examples=drawn(60), deadline=None)
@given(seed=st.integers(0, 1 << 30), capability=st.sampled_from(["atomic small cuts", "nothing atomic"]), marks=st.booleans())
def test_any_history_is_applied_once_whatever_kills_the_runs_and_however_long_changes_run(
    seed: int, capability: str, marks: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The server asserts that nothing is begun twice."""
    chance = Random(seed)
    marks = marks and capability == "nothing atomic"
    world = World(tmp_path_factory.mktemp("long"), capability=capability, runs_long=True, marks_tables=marks)
    actions = Actions(world, chance)
    for _ in range(chance.randrange(1, 5)):
        for _ in range(chance.randrange(1, 25)):
            actions.step()
        run_with_kills(world, chance, chance.randrange(3))
        if chance.random() < 0.5:
            world.server.finish()
    world.stream.go_on()
    world.upstream.checkpoint()
    run_with_kills(world, chance, 1)
    while world.server.finish():
        run_with_kills(world, chance, 1)
    world.check()
    assert max(world.server.contents.effects.values(), default=1) == 1
