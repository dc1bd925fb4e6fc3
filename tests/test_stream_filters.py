"""Tables of a stream that ``--tables`` leaves out for a while, or whose beginning was never told: none lacks rows in silence."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.model.ledger import RequestKind, TableStatus
from headrace.model.table import Column, TableId
from headrace.testing.upstream_ddl import AddColumn
from streams import INT, A, B, C, World

WITHOUT_B = {"includes": lambda table_id: table_id.table != "b", "filter_text": "shop.*,!shop.b"}
OTHER = TableId("shop", "other")
ADDED = AddColumn(Column("n", INT, default="7"))


@pytest.fixture(params=[1, 2])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    """With a partition, or two."""
    return World(tmp_path, partitions=request.param)


def follow(world: World, **options: object) -> None:
    world.upstream.checkpoint()
    world.run(**options)


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
