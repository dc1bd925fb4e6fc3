"""A stream whose records are whole transactions and promise their own commit ts: repeats are told by commit ts, and skipped."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.engine import loop
from headrace.model.ledger import RequestKind, TableStatus
from headrace.model.table import TableId
from headrace.testing.memory_sink import CAPABILITIES
from headrace.testing.upstream import Delete, Insert
from sampling import drawn
from serial_stream import SerialActions, SerialWorld
from streams import ALTERS, A, B, Behind, C, ranges_of, run_with_kills
from test_stream_partitions import follow
from test_stream_repeats import every_change

pytestmark = pytest.mark.pipeline

D = TableId("shop", "d")


@pytest.fixture(params=list(CAPABILITIES))
def world(request: pytest.FixtureRequest, tmp_path: Path) -> SerialWorld:
    return SerialWorld(tmp_path, capability=str(request.param))


@pytest.mark.parametrize("batch", [1, 100])
def test_repeated_records_count_once(world: SerialWorld, batch: int) -> None:
    world.stream.batch = batch
    world.create(A)
    world.create(B, keyless=True)
    middle = 0
    for key in range(6):
        middle = world.upstream.execute(Insert(A, {"id": key, "v": "v"}), Insert(B, {"id": 7, "v": "v"})) if key < 3 else middle
        world.upstream.execute(Insert(A, {"id": 10 + key, "v": "w"}), Insert(B, {"id": 7, "v": "v"}))
    world.stream.repeat(middle)
    world.stream.repeat(0)
    world.insert(B, 7)
    assert not world.run().stopped
    world.check()
    world.stream.repeat(middle)
    world.insert(B, 8)
    assert not world.run().stopped
    world.check()
    assert not world.notices


@pytest.mark.parametrize("capability", ["atomic cuts", "nothing atomic"])
def test_a_log_has_every_change_of_a_transaction_once(tmp_path: Path, capability: str) -> None:
    world = SerialWorld(tmp_path, capability=capability, logged=every_change)
    world.create(A)
    first = world.insert(A, 1)
    world.insert(A, 2)
    world.stream.repeat(first - 1)
    world.insert(A, 3)
    assert not world.run().stopped
    changes = world.server.contents.logs[A].changes
    assert len({change.commit_ts for change in changes}) == 3
    assert len(changes) == 9, "each transaction inserts a row, and inserts and deletes another one"


def test_one_rename_gives_two_tables_of_one_record_one_version(world: SerialWorld) -> None:
    world.create(A)
    world.create(B)
    world.upstream.rename_tables((A, C), (B, D))
    world.upstream.execute(Insert(C, {"id": 1, "v": "c"}), Insert(D, {"id": 2, "v": "d"}))
    assert not world.run().stopped
    world.check()


@pytest.mark.parametrize("bad", [C, D])
def test_a_table_stops_whose_rows_lie_in_one_record_with_those_of_another(world: SerialWorld, bad: TableId) -> None:
    good = C if bad == D else D
    world.create(A)
    world.create(B)
    world.upstream.rename_tables((A, C), (B, D))
    world.run()
    values = {good: "v", bad: 5}  # no text
    world.upstream.execute(*(Insert(t, {"id": 1, "v": values[t]}) for t in (C, D)))
    for _ in range(2):
        assert {problem.table_id for problem in world.run().stopped} == {bad}
        assert not world.rows(bad)
        assert world.rows(good) == world.wanted(good)


@settings(max_examples=drawn(150), deadline=None)
@given(seed=st.integers(0, 1 << 30), capability=st.sampled_from([*CAPABILITIES]))
def test_a_random_history_is_applied_once_whatever_kills_the_runs(
    seed: int, capability: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    chance = Random(seed)
    world = SerialWorld(tmp_path_factory.mktemp("serial"), capability=capability)
    actions = SerialActions(world, chance)
    for _ in range(chance.randrange(1, 4)):
        for _ in range(chance.randrange(1, 25)):
            actions.step()
        world.stream.go_on()
        run_with_kills(world, chance, chance.randrange(3))
        world.check()


@pytest.mark.parametrize("size", [100, 300])
@pytest.mark.parametrize("repeats", [False, True])
def test_a_held_table_gets_the_rows_of_all_ranges_when_it_is_released(world: SerialWorld, size: int, repeats: bool) -> None:
    """The pipeline's watermark, which is above these rows, says nothing about what the table has."""
    world.create(A)
    world.create(B)
    middle = world.insert(A, 1)
    world.run()
    world.request(RequestKind.HOLD, A)
    for key in range(2, 10):
        world.insert(A, key)
        world.insert(B, key)
    if repeats:
        world.stream.repeat(middle)
    world.insert(B, 10)
    world.run()
    world.request(RequestKind.RELEASE, A)
    with ranges_of(size):
        world.run()
        world.check()
        world.insert(A, 11)
        world.run()
    world.check()


def test_a_run_that_follows_gives_a_released_table_all_its_rows(world: SerialWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has staged a range at each poll."""
    monkeypatch.setattr(loop, "_DECISIONS_EVERY", 0.0)
    world.create(A)
    world.create(B)
    world.run()
    keys = iter(range(100))

    def writes() -> None:
        world.insert(A, next(keys))
        world.insert(B, next(keys))

    def release() -> None:
        assert world.state.tables[A].status is TableStatus.HELD
        world.request(RequestKind.RELEASE, A)

    hold = partial(world.request, RequestKind.HOLD, A)
    follow(world, [hold, *[writes] * 4, partial(world.stream.repeat, 0), writes, release, writes, writes], monkeypatch)
    world.check()


@settings(max_examples=drawn(150), deadline=None)
@given(seed=st.integers(0, 1 << 30), capability=st.sampled_from([*CAPABILITIES]), size=st.sampled_from([100, 300, 8 << 20]))
def test_tables_that_were_behind_the_pipeline_get_all_their_rows(
    seed: int, capability: str, size: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    chance = Random(seed)
    world = SerialWorld(tmp_path_factory.mktemp("behind"), capability=capability)
    actions, behind = SerialActions(world, chance), Behind(world, chance)
    with ranges_of(size):
        for _ in range(chance.randrange(2, 6)):
            for _ in range(chance.randrange(1, 12)):
                actions.step([0, 2, ALTERS, 5, 11, 11, 11])
            behind.step()
            run_with_kills(world, chance, chance.randrange(2))
        behind.end()
        world.stream.go_on()
        run_with_kills(world, chance, 1)
    world.check()


@settings(max_examples=drawn(60), deadline=None)
@given(seed=st.integers(0, 1 << 30), capability=st.sampled_from(["atomic cuts", "atomic small cuts", "nothing atomic"]))
def test_a_log_has_every_change_once_whatever_kills_the_runs(
    seed: int, capability: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    chance = Random(seed)
    world = SerialWorld(tmp_path_factory.mktemp("log"), capability=capability, logged=every_change)
    world.create(A)
    world.create(B, keyless=True)
    commits, next_key = [0], 0
    for _ in range(chance.randrange(1, 4)):
        for _ in range(chance.randrange(1, 12)):
            next_key += 1
            commits.append(
                world.upstream.execute(*[Insert(t, {"id": key, "v": "v"}) for t, key in ((A, next_key), (B, 7), (B, 7))])
            )
            if chance.random() < 0.4:
                world.upstream.execute(Delete(A, (chance.choice(world.upstream.keys(A))[0],)))
            if chance.random() < 0.3:
                world.stream.repeat(chance.choice(commits))
        run_with_kills(world, chance, chance.randrange(3))
    world.check_logs(A, B)
