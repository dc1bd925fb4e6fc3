"""A source whose stream mixes tables: everything is applied once, and nothing is read more often than it must."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headrace.errors import SourceLostError
from headrace.model.ledger import RequestKind, TableRequest, TableStatus
from headrace.model.place import PlaceInStream
from headrace.model.policy import OnError
from headrace.model.table import Column, TableId
from headrace.sinks.dead_letters import open_dead_letters
from headrace.sources.stream.records import RecordKind
from headrace.testing.faults import Crashed, Moment, Step, armed, crash_at
from headrace.testing.memory_server import Call, Failing, Failure
from headrace.testing.memory_sink import CAPABILITIES
from headrace.testing.upstream_ddl import AddColumn
from sampling import drawn
from streams import ALTERS, DROPS_DATABASE, INT, NAME, A, Actions, B, Behind, World, ranges_of, run_with_kills

pytestmark = pytest.mark.pipeline


def last_record(world: World, table_id: TableId) -> tuple[int, int]:
    """Partition and offset of the table's last row."""
    found = [
        (record.commit_ts, place, offset)
        for place, records in enumerate(world.stream.partitions)
        for offset, record in enumerate(records)
        if record.table_id == table_id and record.kind is RecordKind.ROWS
    ]
    return max(found)[1:]


@pytest.fixture(params=list(CAPABILITIES))
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    return World(tmp_path, capability=str(request.param))


def test_rows_of_several_tables_and_schema_changes_between_them_are_applied(world: World) -> None:
    world.create(A)
    world.insert(A, 1, 2, 3)
    world.create(B, keyless=True)
    world.insert(B, 1, 1, 2)
    world.upstream.alter(A, AddColumn(Column("n", INT, default="7")))
    world.insert(A, 4, n=1)
    world.upstream.checkpoint()
    display = world.run()
    assert not display.stopped
    world.check()


def test_rows_above_the_watermark_wait_and_are_not_read_again_within_a_run(world: World) -> None:
    """One partition stalls: the others go on, and are staged once."""
    world.create(A)
    world.upstream.checkpoint()
    world.run()
    world.stream.stall(1)
    for key in range(50):
        world.insert(A, key)
    world.upstream.checkpoint()
    world.run()
    assert not world.rows(A)
    world.stream.go_on()
    world.run()
    world.check()


def test_a_next_run_begins_where_the_last_one_ended_and_not_at_the_beginning(world: World) -> None:
    world.create(A)
    for key in range(200):
        world.insert(A, key)
        if key % 10 == 0:
            world.upstream.checkpoint()
    world.upstream.checkpoint()
    world.run()
    world.staged.records = 0
    world.insert(A, 1000)
    world.upstream.checkpoint()
    world.run()
    world.check()
    assert world.staged.records < 20


def test_shapes_survive_the_records_that_told_them(world: World) -> None:
    world.create(A)
    world.insert(A, 1)
    world.upstream.alter(A, AddColumn(Column("n", INT, default="7")))
    world.upstream.checkpoint()
    world.run()
    for place in range(world.partitions):
        world.stream.forget(place, len(world.stream.partitions[place]))
    world.insert(A, 2, n=5)
    world.upstream.alter(A, AddColumn(Column("m", INT, default="8")))
    world.insert(A, 3, n=5, m=6)
    world.upstream.checkpoint()
    display = world.run()
    assert not display.stopped
    world.check()


def test_records_that_are_gone_before_they_were_applied_end_the_run(world: World) -> None:
    world.create(A)
    world.upstream.checkpoint()
    world.run()
    world.insert(A, *range(30))
    world.upstream.checkpoint()
    for place in range(world.partitions):
        world.stream.forget(place, len(world.stream.partitions[place]) - 1)
    with pytest.raises(SourceLostError, match="are not kept any more"):
        world.run()


@pytest.mark.parametrize("why", ["held", "damaged"])
def test_records_that_are_gone_and_that_only_a_stopped_table_needs_let_the_others_go_on(world: World, why: str) -> None:
    world.create(A)
    world.create(B)
    world.upstream.checkpoint()
    world.run()
    if why == "held":
        world.request(RequestKind.HOLD, A)
    world.insert(A, *range(10))
    if why == "damaged":
        world.stream.damage(*last_record(world, A))
    kept: list[int] = []
    for number in range(4):
        world.insert(B, *range(10 * number, 10 * number + 10))
        world.upstream.checkpoint()
        world.run()
        assert world.state.tables[A].status is (TableStatus.HELD if why == "held" else TableStatus.STOPPED)
        kept = [len(records) for records in world.stream.partitions] if number < 3 else kept
    for place, first in enumerate(kept):
        world.stream.forget(place, first)
    for number in range(2):
        world.insert(B, 100 + number)
        world.upstream.checkpoint()
        world.run()
        assert world.rows(B) == world.wanted(B)
        assert world.state.tables[A].status is TableStatus.INCOMPLETE
        assert "are not kept any more. Load it anew" in world.state.tables[A].reason
    world.load(A)
    world.request(RequestKind.RESYNC, A, world.upstream.checkpoint())
    world.insert(A, 50)
    world.upstream.checkpoint()
    world.run()
    world.check()


def test_a_record_that_cannot_be_decoded_stops_its_table_and_the_others_go_on(world: World) -> None:
    world.create(A)
    world.create(B)
    world.insert(A, 1)
    place, offset = last_record(world, A)
    kept = world.stream.partitions[place][offset]
    world.stream.damage(place, offset)
    world.insert(B, 1)
    world.upstream.checkpoint()
    display = world.run()
    (problem,) = display.stopped
    assert problem.table_id == A
    assert problem.sentence().startswith(f"table shop.a, partition {place}, offset {offset}: its value is damaged")
    assert world.rows(B) == world.wanted(B)
    assert world.state.tables[A].status is TableStatus.STOPPED
    world.insert(B, 2)
    world.upstream.checkpoint()
    world.run()
    assert world.rows(B) == world.wanted(B)
    world.stream.partitions[place][offset] = kept
    world.run()
    world.check()


def test_a_schema_change_that_the_target_refuses_is_the_same_in_the_next_run(world: World) -> None:
    """Its shape is in the ledger by then, and tells nothing of what the table was before."""
    world.create(A)
    world.insert(A, 1)
    world.upstream.checkpoint()
    world.run()
    world.upstream.alter(A, AddColumn(Column("n", INT, default="7")))
    world.insert(A, 2, n=1)
    world.upstream.checkpoint()
    world.server.failure = Failure(Call.APPLY, Failing.REFUSED)
    assert [problem.table_id for problem in world.run().stopped] == [A]
    assert not world.run().stopped
    world.check()


def test_a_schema_change_that_waits_is_read_again_where_a_range_ended_with_it(world: World) -> None:
    world.create(A)
    world.create(B)
    world.upstream.checkpoint()
    world.run()
    at = world.upstream.alter(A, AddColumn(Column("n", INT, default="7")))
    world.stream.checkpoint(at)
    world.server.failure = Failure(Call.APPLY, Failing.REFUSED, skip=0)
    assert [problem.table_id for problem in world.run().stopped] == [A]
    world.insert(B, 1)
    world.upstream.checkpoint()
    world.server.failure = Failure(Call.APPLY, Failing.REFUSED, skip=0)
    world.run()
    assert world.rows(B) == world.wanted(B)
    assert not world.run().stopped
    assert list(world.server.contents.tables[A].columns) == ["id", "v", "n"]


def test_a_record_that_cannot_be_decoded_becomes_a_dead_letter_with_its_place(world: World, tmp_path: Path) -> None:
    letters = open_dead_letters(str(tmp_path / "letters"), NAME)
    world.create(A)
    world.insert(A, 1)
    place, offset = last_record(world, A)
    kept = world.stream.partitions[place][offset]
    world.stream.damage(place, offset)
    world.insert(A, 2, 3)
    world.upstream.checkpoint()
    display = world.run(on_error=OnError.DEAD_LETTER, letters=letters)
    assert not display.stopped
    assert [dict(row)["id"] for row in sorted(world.rows(A))] == [2, 3]
    (letter,) = letters.of(A).values()
    assert (letter.place, letter.raw, letter.commit_ts) == (PlaceInStream(str(place), offset), b"damaged", kept.commit_ts)
    assert world.state.dead_letters == {A: 1}
    world.stream.partitions[place][offset] = kept
    world.ask(TableRequest("1", A, RequestKind.REPLAY))
    world.run(on_error=OnError.DEAD_LETTER, letters=letters)
    assert (letters.of(A), world.state.dead_letters) == ({}, {})
    world.check()


def test_nothing_of_what_was_staged_is_left_once_it_is_applied(world: World) -> None:
    world.create(A)
    for key in range(50):
        world.insert(A, key)
    world.upstream.checkpoint()
    world.run()
    world.upstream.checkpoint()
    world.run()
    assert world.place.count() <= world.partitions


@pytest.mark.parametrize("moment", list(Moment))
def test_a_run_that_dies_when_it_stages_is_made_good(world: World, moment: Moment) -> None:
    world.create(A)
    world.insert(A, *range(20))
    world.upstream.checkpoint()
    with armed(crash_at(moment, Step.STAGE)), pytest.raises(Crashed):
        world.run()
    world.run()
    world.check()


@settings(max_examples=drawn(60), deadline=None)
@given(seed=st.integers(0, 1 << 30), capability=st.sampled_from(list(CAPABILITIES)))
@example(seed=10, capability="atomic small cuts")
def test_any_history_is_applied_however_far_one_partition_is_behind(
    seed: int, capability: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The watermark passes the ends and beginnings of tables one by one, and each run reads what lies above it again."""
    chance = Random(seed)
    world = World(tmp_path_factory.mktemp("behind"), partitions=2, capability=capability)
    actions = Actions(world, chance)
    world.stream.batch, world.stream.skips = 100, None
    behind = chance.randrange(2)
    for _ in range(chance.randrange(1, 8)):
        actions.step([0, 11])
    world.upstream.checkpoint()
    world.stream.stall(behind)
    for _ in range(chance.randrange(10, 40)):
        actions.step([0, 1, 3, 8, 8, 11, 11])
    for _ in range(chance.randrange(3, 25)):
        world.stream.deliver(behind, chance.randrange(1, 4))
        world.run()
    world.stream.go_on()
    world.upstream.checkpoint()
    world.run()
    world.check()
    assert not any("does not go on" in notice.message for notice in world.notices)


@settings(max_examples=drawn(60), deadline=None)
@given(seed=st.integers(0, 1 << 30), capability=st.sampled_from(list(CAPABILITIES)), tells_shapes=st.booleans())
@example(seed=35, capability="atomic small cuts", tells_shapes=False)
def test_any_history_is_applied_once_whatever_kills_the_runs(
    seed: int, capability: str, tells_shapes: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """ALTERs come often, so that tables have more than one in a row."""
    chance = Random(seed)
    world = World(tmp_path_factory.mktemp("stream"), partitions=chance.randrange(1, 4), capability=capability)
    world.stream.tells_shapes = tells_shapes
    actions = Actions(world, chance)
    for _ in range(chance.randrange(1, 5)):
        for _ in range(chance.randrange(1, 25)):
            actions.step([*range(DROPS_DATABASE + 1), *[ALTERS] * 3])
        run_with_kills(world, chance, chance.randrange(3))
    world.stream.go_on()
    world.upstream.checkpoint()
    run_with_kills(world, chance, 1)
    world.check()


@settings(max_examples=drawn(60), deadline=None)
@given(seed=st.integers(0, 1 << 30), capability=st.sampled_from(list(CAPABILITIES)), size=st.sampled_from([100, 300, 8 << 20]))
def test_tables_that_were_behind_the_pipeline_get_all_their_rows(
    seed: int, capability: str, size: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """What they need is read again in several ranges, also what the writer of the stream repeats."""
    chance = Random(seed)
    world = World(tmp_path_factory.mktemp("behind"), partitions=chance.randrange(1, 4), capability=capability)
    actions, behind = Actions(world, chance), Behind(world, chance)
    with ranges_of(size):
        for _ in range(chance.randrange(2, 6)):
            for _ in range(chance.randrange(1, 12)):
                actions.step([0, 2, ALTERS, *range(5, 9), 11, 11, 11])
            behind.step()
            run_with_kills(world, chance, chance.randrange(2))
        behind.end()
        world.stream.go_on()
        world.upstream.checkpoint()
        run_with_kills(world, chance, 1)
    world.check()
