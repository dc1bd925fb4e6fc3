"""Tables of a stream that ``--tables`` leaves out for a while, or whose beginning was never told: none lacks rows in silence."""

from __future__ import annotations

import zlib
from collections import Counter
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.model.ledger import RequestKind, TableStatus
from headrace.model.table import Column, TableId
from headrace.sources.stream.position import StreamPosition
from headrace.testing.memory_sink import CAPABILITIES
from headrace.testing.upstream import Delete
from headrace.testing.upstream_ddl import AddColumn
from sampling import drawn
from streams import DROPS_DATABASE, ID, INT, PARTITIONS, RECOVERS, TEXT, A, Actions, B, C, World, follow, run_with_kills, without

pytestmark = pytest.mark.pipeline

WITHOUT_B = {"includes": lambda table_id: table_id.table != "b", "filter_text": "shop.*,!shop.b"}
OTHER = TableId("shop", "other")
ADDED = AddColumn(Column("n", INT, default="7"))


@pytest.fixture(params=[1, 2])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    """With a partition, or two."""
    return World(tmp_path, partitions=request.param)


def forget_what_runs_need_no_more(world: World, *places: int) -> None:
    """Records of these partitions go that only tables may still need which have stopped, or are left out."""
    position = StreamPosition.parse(world.state.position)
    for place in places:
        world.stream.forget(place, position.of(str(place)).begins(position.watermark - 1))


def key_of_partition(place: int, table_id: TableId) -> int:
    """A key whose rows lie in one of two partitions."""
    return next(key for key in range(100) if zlib.crc32(repr((table_id, [key])).encode()) % 2 == place)


def loaded(world: World, table_id: TableId) -> None:
    """A person does as the sentence says, and the table is whole from then on, also when its records are gone."""
    world.load(table_id)
    world.request(RequestKind.RESYNC, table_id, world.upstream.checkpoint())
    world.run()
    world.create(OTHER)
    follow(world)
    world.insert(table_id, 101)
    follow(world)
    assert world.state.tables[table_id].status is TableStatus.RUNNING
    assert world.rows(table_id) == world.wanted(table_id)


@pytest.mark.parametrize("was", ["never", "at first"])
@pytest.mark.parametrize("altered", [False, True])
def test_a_left_out_table_that_is_renamed_into_the_filter_lacks_the_rows_that_were_passed(
    world: World, was: str, altered: bool
) -> None:
    world.create(A)
    world.create(B)
    if was == "at first":
        follow(world)
    world.insert(A, 1)
    world.insert(B, 1, 2, 3)
    follow(world, **WITHOUT_B)
    world.insert(B, 4)
    world.insert(A, 5)
    if altered:
        world.upstream.alter(B, ADDED)
    follow(world, **WITHOUT_B)
    world.upstream.rename_table(B, C)
    world.insert(C, 9)
    follow(world, **WITHOUT_B)
    for _ in range(2):
        own = world.state.tables[C]
        assert (own.status, "left" in own.reason or "leaves" in own.reason) == (TableStatus.INCOMPLETE, True)
        world.run(**WITHOUT_B)
    loaded(world, C)


def test_a_left_out_table_whose_records_are_all_there_brings_its_rows_along(world: World) -> None:
    world.create(A)
    world.create(B)
    world.insert(B, 1, 2, 3)
    world.upstream.alter(B, ADDED)
    world.upstream.rename_table(B, C)
    world.insert(C, 9)
    follow(world, **WITHOUT_B)
    world.check()


@pytest.mark.parametrize("then", ["nothing", "row", "alter"])
@pytest.mark.parametrize("was", ["never", "at first"])
def test_a_left_out_table_that_is_taken_in_lacks_the_rows_that_were_passed(world: World, was: str, then: str) -> None:
    world.create(A)
    world.create(B)
    if was == "at first":
        follow(world)
    world.insert(B, 4)
    world.insert(A, 5)
    follow(world, **WITHOUT_B)
    world.upstream.alter(B, ADDED)
    world.insert(B, 6)
    world.insert(A, 7)
    follow(world, **WITHOUT_B)
    if then == "alter":
        world.upstream.alter(B, AddColumn(Column("m", INT, default="5")))
    if then != "nothing":
        world.insert(B, 8)
    world.upstream.checkpoint()
    for _ in range(2):
        world.run()
        assert world.state.tables[B].status is TableStatus.INCOMPLETE
    loaded(world, B)


@pytest.mark.parametrize("after", ["truncate", "rename and truncate", "drop and create", "swap"])
@pytest.mark.parametrize("was", ["never", "at first"])
def test_an_old_end_of_a_tables_rows_does_not_make_it_whole_where_those_of_behind_it_were_passed(
    was: str, after: str, tmp_path: Path
) -> None:
    world = World(tmp_path, partitions=2)
    world.create(A)
    world.create(B)
    if was == "at first":
        follow(world)
    world.insert(B, *range(10))
    name = B
    if after == "rename and truncate":
        world.upstream.rename_table(B, name := C)
    if after == "swap":
        world.create(OTHER)
        world.upstream.rename_tables((B, C), (OTHER, B), (C, OTHER))
    elif after == "drop and create":
        world.upstream.drop_table(B)
        world.create(B)
    else:
        world.upstream.truncate_table(name)
    world.insert(name, *range(100, 110))
    world.upstream.checkpoint()
    # Above the watermark, in one of the partitions: where that is read from the next time lies before the schema changes.
    world.insert(A, key_of_partition(0, A))
    left_out = {B.table, C.table}
    world.run(includes=lambda table_id: table_id.table not in left_out, filter_text="shop.*,!shop.b,!shop.c")
    follow(world)
    for table_id in world.upstream.tables:
        own = world.state.tables[table_id]
        is_whole = table_id in world.server.contents.tables and world.rows(table_id) == world.wanted(table_id)
        assert is_whole or own.status.is_stopped, (table_id, own)
    assert world.state.tables[name].status is TableStatus.INCOMPLETE


@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize("end", ["nothing", "drop", "truncate", "rename", "rename before", "swap before"])
def test_a_table_that_lacks_rows_exchanges_none_with_a_partition_of_a_whole_one(world: World, end: str, together: bool) -> None:
    world.takes_all = True
    world.create(A, partitions={"p0": 3, "p1": None})
    for table_id in (B, OTHER):
        world.create(table_id)
    world.insert(A, 5)
    world.insert(B, 10)
    follow(world)
    world.insert(B, 11)
    for key in (20, 21):
        world.insert(OTHER, key)
        follow(world, **WITHOUT_B)
    follow(world)
    assert world.state.tables[B].status is TableStatus.INCOMPLETE
    name = B
    if end == "rename before":
        world.upstream.rename_table(B, name := C)
    if end == "swap before":
        world.upstream.rename_tables((B, C), (OTHER, B), (C, name := OTHER))
    if not together:
        follow(world)
    world.upstream.exchange_partition(A, "p1", name)
    if not together:
        follow(world)
    if end == "drop":
        world.upstream.drop_table(B)
    elif end == "truncate":
        world.upstream.truncate_table(B)
    elif end == "rename":
        world.upstream.rename_table(B, C)
    world.insert(A, 30)
    for _ in range(2):
        follow(world)
        assert world.state.tables[A].status is TableStatus.WAITING
        assert world.rows(A) == Counter({(("id", 5), ("v", "5")): 1})


@pytest.mark.parametrize("way", ["through", "swap"])
@pytest.mark.parametrize("marks", [False, True])
def test_a_held_name_is_waited_for_by_tables_that_only_pass_through_it(way: str, marks: bool, tmp_path: Path) -> None:
    world = World(tmp_path, partitions=1, capability="nothing atomic", marks_tables=marks)
    for table_id in (A, B):
        world.create(table_id)
        world.insert(table_id, 1, 2)
    follow(world)
    world.request(RequestKind.HOLD, OTHER)
    if way == "swap":
        world.upstream.rename_tables((A, OTHER), (B, A), (OTHER, B))
    else:
        world.upstream.rename_table(B, OTHER)
        world.insert(OTHER, 3)
        world.upstream.rename_table(OTHER, C)
        world.insert(C, 4)
    world.create(OTHER)
    world.insert(OTHER, 50)
    for _ in range(2):
        follow(world)
        assert OTHER not in world.server.contents.tables
        assert world.state.tables[B].status.is_stopped
    world.request(RequestKind.RELEASE, OTHER)
    for _ in range(2):
        follow(world)
    world.check()


@pytest.mark.parametrize("gone", [0, 1])
@pytest.mark.parametrize("end", ["truncate", "drop and create"])
def test_an_end_that_one_partition_keeps_does_not_make_a_table_whole_of_which_another_one_has_lost_rows(
    end: str, gone: int, tmp_path: Path
) -> None:
    world = World(tmp_path, partitions=2)
    world.create(A)
    world.create(B)
    world.insert(B, *range(10))
    follow(world)
    world.request(RequestKind.HOLD, B)
    follow(world)
    if end == "truncate":
        world.upstream.truncate_table(B)
    else:
        world.upstream.drop_table(B)
        world.create(B)
    world.insert(B, *range(100, 110))
    for key in range(3):
        world.insert(A, *range(10 * key, 10 * key + 10))
        follow(world)
    world.request(RequestKind.RELEASE, B)
    forget_what_runs_need_no_more(world, gone)
    for _ in range(2):
        follow(world)
        assert world.rows(A) == world.wanted(A)
        assert world.state.tables[B].status is TableStatus.INCOMPLETE


def test_a_left_out_table_whose_records_one_partition_has_lost_brings_no_part_of_its_rows_along(tmp_path: Path) -> None:
    world = World(tmp_path, partitions=2)
    world.create(A)
    world.create(OTHER)
    follow(world, **WITHOUT_B)
    world.request(RequestKind.HOLD, OTHER)
    follow(world, **WITHOUT_B)
    world.insert(OTHER, *range(10))
    world.create(B)
    world.insert(B, *range(10))
    for key in range(3):
        world.insert(A, *range(10 * key, 10 * key + 10))
        follow(world, **WITHOUT_B)
    forget_what_runs_need_no_more(world, 1)
    world.upstream.rename_table(B, C)
    follow(world, **WITHOUT_B)
    own = world.state.tables[C]
    assert own.status.is_stopped or world.rows(C) == world.wanted(C)
    assert own.status is TableStatus.INCOMPLETE


def test_the_truncate_of_a_table_whose_beginning_was_passed_makes_it_whole_only_where_all_rows_behind_it_are_there(
    tmp_path: Path,
) -> None:
    world = World(tmp_path, partitions=2)
    world.create(A)
    world.create(B)
    world.upstream.checkpoint()
    for place, records in enumerate(world.stream.partitions):
        world.stream.forget(place, len(records))
    world.create(OTHER)
    world.upstream.truncate_table(B)
    world.insert(B, *range(10))
    world.upstream.checkpoint()
    world.insert(OTHER, key_of_partition(0, OTHER))
    world.run(**WITHOUT_B)
    follow(world)
    assert world.state.tables[B].status is TableStatus.INCOMPLETE


def test_a_left_out_table_that_was_dropped_is_not_missed_when_the_filter_takes_it_in(world: World) -> None:
    world.create(A)
    world.create(B)
    world.insert(B, 4)
    follow(world, **WITHOUT_B)
    world.upstream.drop_table(B)
    world.insert(A, 5)
    follow(world, **WITHOUT_B)
    follow(world)
    assert not [own for own in world.state.tables.values() if own.status.is_stopped]
    world.create(B)
    world.insert(B, 9)
    follow(world)
    world.check()


@pytest.mark.parametrize("taken_in", ["before the next one", "with the next one"])
@pytest.mark.parametrize("end", ["table", "database"])
@pytest.mark.parametrize("was", ["never", "at first"])
@pytest.mark.parametrize("kept", [False, True], ids=["passed", "all records kept"])
def test_a_table_whose_name_a_left_out_one_had_is_whole(world: World, kept: bool, was: str, end: str, taken_in: str) -> None:
    """The former one was dropped while it was left out: nothing of it is missed, and its DROP does not come late."""
    world.create(A)
    world.create(OTHER)
    if was == "at first":
        world.create(B)
        world.insert(B, 3)
        follow(world)
    else:
        follow(world, **WITHOUT_B)
        world.create(B)
    if kept:
        world.request(RequestKind.HOLD, OTHER)
        follow(world, **WITHOUT_B)
        world.insert(OTHER, 5)
    world.insert(B, 4)
    follow(world, **WITHOUT_B)
    if end == "table":
        world.upstream.drop_table(B)
    else:
        world.upstream.drop_database("shop")
        world.upstream.create_database("shop")
        world.create(A)
        world.create(OTHER)
    world.insert(A, 5)
    follow(world, **WITHOUT_B)
    if taken_in == "before the next one":
        follow(world)
        assert kept or B not in world.server.contents.tables
    world.create(B)
    world.insert(B, 9)
    if kept:
        world.request(RequestKind.RELEASE, OTHER)
    for key in (10, 11):
        follow(world)
        world.insert(B, key)
    follow(world)
    assert not [own for own in world.state.tables.values() if own.status.is_stopped]
    world.check()


@pytest.mark.parametrize("apart", [False, True])
def test_a_drop_that_was_passed_says_nothing_of_a_left_out_table_that_has_had_the_name_since(world: World, apart: bool) -> None:
    world.create(A)
    world.create(B)
    world.insert(B, 1)
    follow(world)
    world.upstream.drop_table(B)
    world.insert(A, 5)
    if apart:
        follow(world, **WITHOUT_B)
    world.create(B)
    world.insert(B, 2)
    world.insert(A, 6)
    follow(world, **WITHOUT_B)
    world.insert(A, 7)
    for _ in range(2):
        follow(world)
        assert world.state.tables[B].status is TableStatus.INCOMPLETE
    loaded(world, B)


def test_a_table_that_is_taken_in_is_not_renamed_to_a_name_that_is_over(world: World) -> None:
    world.create(A)
    world.create(B)
    world.create(OTHER)
    follow(world)
    world.request(RequestKind.HOLD, OTHER)
    follow(world, **WITHOUT_B)
    world.insert(OTHER, 5)
    world.upstream.rename_table(B, C)
    world.upstream.drop_table(C)
    world.insert(A, 5)
    follow(world, **without("bc"))
    follow(world, **without("c"))
    assert world.state.tables[B].status is TableStatus.WAITING
    assert C not in world.server.contents.tables


@pytest.mark.parametrize("table_id", [A, C])
def test_a_table_whose_first_told_schema_change_is_no_beginning_lacks_rows(world: World, table_id: TableId) -> None:
    world.create(A)
    world.create(B)
    world.insert(A, 1)
    world.upstream.checkpoint()
    for place, records in enumerate(world.stream.partitions):
        world.stream.forget(place, len(records))
    world.insert(A, 2)
    world.upstream.alter(A, ADDED)
    world.insert(A, 3, n=1)
    world.upstream.rename_table(B, C)
    world.upstream.checkpoint()
    for _ in range(2):
        world.run()
        assert {world.state.tables[t].status for t in (A, C)} == {TableStatus.INCOMPLETE}
    loaded(world, table_id)


def test_a_table_that_is_held_before_its_create_comes_whole_when_it_is_released(world: World) -> None:
    world.create(B)
    world.insert(B, 1)
    follow(world)
    world.request(RequestKind.HOLD, A)
    world.create(A)
    world.insert(A, 1, 2)
    follow(world)
    world.insert(B, 2)
    follow(world)
    assert world.state.tables[A].status is TableStatus.HELD
    assert A not in world.server.contents.tables
    world.request(RequestKind.RELEASE, A)
    world.insert(A, 3)
    follow(world)
    world.check()


@pytest.mark.parametrize("renamed", [False, True])
def test_a_left_out_table_whose_records_another_one_holds_is_whole_when_the_filter_takes_it_in(world: World, renamed: bool) -> None:
    world.create(A)
    follow(world, **WITHOUT_B)
    world.request(RequestKind.HOLD, A)
    world.insert(A, 1)
    world.create(B)
    world.insert(B, 2)
    follow(world, **WITHOUT_B)
    world.upstream.alter(B, ADDED)
    world.insert(B, 3)
    follow(world, **WITHOUT_B)
    assert world.state.tables[B].status is TableStatus.EXCLUDED
    if renamed:
        world.upstream.rename_table(B, C)
        world.insert(C, 4)
        follow(world, **WITHOUT_B)
    world.request(RequestKind.RELEASE, A)
    follow(world, **(WITHOUT_B if renamed else {}))
    world.check()


@pytest.mark.parametrize("partitions", [1, 3])
@pytest.mark.parametrize("ends", ["database", "table"])
@pytest.mark.parametrize("marked", [False, True])
@pytest.mark.parametrize("capability", list(CAPABILITIES))
def test_a_left_out_table_that_was_never_made_leaves_no_row_to_the_one_that_takes_its_name(
    capability: str, marked: bool, ends: str, partitions: int, tmp_path: Path
) -> None:
    """And nothing waits for it: records of it were passed over, so it cannot be made."""
    if marked and capability != "nothing atomic":
        return
    world = World(tmp_path, partitions=partitions, capability=capability, marks_tables=marked)
    left_out = without("c")
    world.create(C)
    world.insert(C, 1)
    world.create(A)
    world.insert(A, 1)
    follow(world, **left_out)
    world.upstream.execute(Delete(C, (1,)))
    world.insert(C, 2, v="former")
    world.insert(C, 7, v="former")
    if ends == "database":
        world.upstream.drop_database("shop")
        world.upstream.create_database("shop")
        world.create(A)
    else:
        world.upstream.drop_table(C)
    world.insert(A, 10, 2, 3)
    world.upstream.rename_table(A, C)
    for key in range(20, 22):
        world.insert(C, key)
        follow(world, **left_out)
        assert world.state.checkpoint == world.stream.promised
    for key in range(30, 32):
        world.insert(C, key)
        follow(world)
    own = world.state.tables[C]
    assert own.status is TableStatus.INCOMPLETE or world.rows(C) == world.wanted(C)
    assert not world.rows(C) - world.wanted(C)


@settings(max_examples=drawn(60), deadline=None)
@given(seed=st.integers(0, 1 << 30), capability=st.sampled_from(list(CAPABILITIES)))
def test_any_history_with_tables_that_are_left_out_for_a_while_is_applied_once_or_says_what_lacks(
    seed: int, capability: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    chance = Random(seed)
    world = World(tmp_path_factory.mktemp("stream"), partitions=chance.randrange(1, 4), capability=capability)
    actions = Actions(world, chance)
    world.takes_all = chance.random() < 0.5
    kinds = [*range(DROPS_DATABASE + 1), *([PARTITIONS] * 5 if world.takes_all else [])]
    kept = chance.choice(["", "", "b", "bc", "c"])  # for all runs but the last ones, where it is not empty
    recovers = chance.random() < 0.5  # what is recovered has to be loaded anew, so that less is followed behind it
    for _ in range(chance.randrange(2, 6)):
        for _ in range(chance.randrange(1, 25)):
            actions.step([*kinds, RECOVERS] if recovers else kinds)
        run_with_kills(world, chance, chance.randrange(2), **without(kept or chance.choice(["", "", "b", "bc"])))
        if chance.random() < 0.3:
            forget_what_runs_need_no_more(world, *(n for n in range(world.partitions) if chance.random() < 0.6))
    world.stream.go_on()
    world.upstream.checkpoint()
    run_with_kills(world, chance, 1)
    world.run()
    # A run had asked for a table that lacks rows to be created and loaded. A person may have done so: its DROP leaves the table.
    says = "stays in the target: the source dropped it, but the ledger does not say that this pipeline made it."
    stays = {notice.table_id for notice in world.notices if says in notice.message}
    for table_id in {*world.upstream.tables, *world.server.contents.tables}:
        own = world.state.tables[table_id]
        if own.status is TableStatus.GONE and table_id in stays.difference(world.upstream.tables):
            continue
        if own.status in (TableStatus.RUNNING, TableStatus.GONE):
            assert (table_id in world.upstream.tables) == (table_id in world.server.contents.tables), table_id
            assert world.rows(table_id) == world.wanted(table_id), table_id
        else:
            assert (own.status.is_stopped, bool(own.reason)) == (True, True), own


@pytest.mark.parametrize("name", [B, C])
@pytest.mark.parametrize("then", ["nothing", "row", "alter", "truncate"])
@pytest.mark.parametrize("at_once", [False, True])
def test_a_left_out_table_that_was_dropped_and_recovered_lacks_rows_when_the_filter_takes_it_in(
    world: World, name: TableId, then: str, at_once: bool
) -> None:
    left_out = without("bc")
    world.create(A)
    world.create(B)
    world.insert(B, 1, 2)
    follow(world, **left_out)
    world.upstream.drop_table(B)
    if not at_once:
        follow(world, **left_out)
    world.upstream.recover_table(B, None if name == B else name)
    world.insert(name, 3)
    follow(world, **left_out)
    if then == "alter":
        world.upstream.alter(name, ADDED)
    elif then == "truncate":
        world.upstream.truncate_table(name)
    world.insert(A, 4)
    follow(world, **left_out)
    if then == "row":
        world.insert(name, 5)
    for _ in range(2):
        follow(world)
        assert world.state.tables[name].status is TableStatus.INCOMPLETE
        assert f"table resync shop.{name.table}" in world.state.tables[name].reason
    loaded(world, name)


@pytest.mark.parametrize("name", [B, C])
def test_a_left_out_table_that_comes_back_where_the_filter_takes_it_in_at_once_waits_to_be_loaded(
    world: World, name: TableId
) -> None:
    world.create(A)
    world.create(B)
    world.insert(B, 1, 2)
    follow(world, **without("bc"))
    world.upstream.drop_table(B)
    follow(world, **without("bc"))
    world.upstream.recover_table(B, None if name == B else name)
    world.insert(name, 3)
    for _ in range(2):
        follow(world)
        assert world.state.tables[name].status.is_stopped
        assert name not in world.server.contents.tables
    loaded(world, name)


@pytest.mark.parametrize("behind", ["nothing", "row"])
@pytest.mark.parametrize("former", ["none", "left out", "dropped with its database"])
def test_a_table_that_comes_back_to_a_followed_name_is_missed_whoever_had_the_name_before(
    world: World, former: str, behind: str
) -> None:
    """No row behind it is needed to notice that."""
    world.create(A)
    world.create(B)
    world.insert(B, 1, 2)
    follow(world, **without("c"))
    if former != "none":
        world.create(C)
        world.insert(C, 5)
        world.insert(A, 1)
        follow(world, **without("c"))
    world.upstream.drop_table(B)
    if former == "left out":
        world.upstream.drop_table(C)
    elif former == "dropped with its database":
        world.upstream.drop_database("shop")
        world.upstream.create_database("shop")
        world.create(A)
    world.upstream.recover_table(B, C)
    if behind == "row":
        world.insert(C, 3)
    for _ in range(2):
        follow(world)
        assert world.state.tables[C].status.is_stopped
        assert C not in world.server.contents.tables
    loaded(world, C)


def test_a_followed_name_that_a_left_out_table_comes_back_to_is_of_that_one(world: World) -> None:
    """The name's former table was renamed away, all in one cut."""
    world.create(A)
    world.create(C)
    world.insert(A, 1)
    world.insert(C, 2)
    world.upstream.drop_table(C)
    follow(world, **without("bc"))
    world.upstream.recover_table(C, B)
    world.upstream.rename_table(A, C)
    world.insert(B, 3)
    world.insert(C, 4)
    follow(world, **without("bc"))
    follow(world, **without("bc"))
    world.insert(B, 5)
    follow(world)
    follow(world)
    for table_id in (B, C):
        own = world.state.tables[table_id]
        assert own.status.is_stopped or world.rows(table_id) == world.wanted(table_id), own
    loaded(world, B)


@pytest.mark.parametrize("name", [B, C])
def test_a_held_name_that_a_recovered_table_comes_to_waits_to_be_loaded(world: World, name: TableId) -> None:
    world.create(A)
    world.create(B)
    world.insert(B, 1, 2)
    follow(world)
    world.upstream.drop_table(B)
    follow(world)
    world.request(RequestKind.HOLD, name)
    follow(world)
    world.upstream.recover_table(B, None if name == B else name)
    world.insert(name, 3)
    follow(world)
    world.insert(A, 4)
    follow(world)
    assert world.state.tables[name].status.is_stopped
    world.request(RequestKind.RELEASE, name)
    for _ in range(2):
        follow(world)
        assert world.state.tables[name].status.is_stopped
        assert name not in world.server.contents.tables
    loaded(world, name)


@pytest.mark.parametrize("waits", ["recovered", "held"])
def test_the_rows_of_a_table_that_was_never_made_are_missed_under_its_next_name(world: World, waits: str) -> None:
    world.create(A)
    follow(world)
    if waits == "held":
        world.request(RequestKind.HOLD, B)
    world.create(B)
    world.insert(B, 1, 2)
    if waits == "recovered":
        world.upstream.drop_table(B)
        world.upstream.recover_table(B)
    world.insert(B, 3)
    for key in range(3):
        world.insert(A, *range(10 * key, 10 * key + 10))
        follow(world)
    assert world.state.tables[B].status.is_stopped
    forget_what_runs_need_no_more(world, *range(world.partitions))
    world.upstream.rename_table(B, C)
    world.insert(C, 4)
    for _ in range(2):
        follow(world)
        assert world.state.tables[C].status.is_stopped
        assert C not in world.server.contents.tables
    if waits == "held":
        world.request(RequestKind.RELEASE, B)
        follow(world)
    loaded(world, C)


@pytest.mark.parametrize("heard_of_by", ["truncate", "exchange", "alter"])
def test_a_left_out_table_whose_beginning_was_never_told_lacks_rows_when_the_filter_takes_it_in(
    heard_of_by: str, tmp_path: Path
) -> None:
    world = World(tmp_path, partitions=1)
    world.upstream.create_table(B, [ID, Column("v", TEXT)], partitions={"p0": 100, "p1": None})
    world.create(C)
    world.insert(B, 1, 2)
    world.upstream.checkpoint()
    world.stream.forget(0, len(world.stream.partitions[0]))
    world.create(A)
    if heard_of_by == "truncate":
        world.upstream.truncate_table(B)
    elif heard_of_by == "exchange":
        world.upstream.exchange_partition(B, "p0", C)
    else:
        world.upstream.alter(B, ADDED)
    world.insert(B, 10)
    for key in range(2):
        world.insert(A, key)
        follow(world, **without("bc"))
    for _ in range(2):
        follow(world)
        assert world.state.tables[B].status is TableStatus.INCOMPLETE
    loaded(world, B)
