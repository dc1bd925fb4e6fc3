"""Names that tables inside and outside ``--tables`` of a stream take from each other: who lacks rows says so, nobody vanishes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from headrace.model.ledger import RequestKind, TableStatus
from headrace.model.table import TableId
from headrace.testing.memory_sink import CAPABILITIES
from streams import A, B, C, World, follow, without

pytestmark = pytest.mark.pipeline

GHOST, FORMER, E = TableId("shop", "_a_gho"), TableId("shop", "_a_del"), TableId("shop", "e")
"""What online schema change tools call the copy of a table, and the table once the copy has its name."""
HELPERS: Mapping[str, object] = {"includes": lambda table_id: not table_id.table.startswith("_"), "filter_text": "shop.*,!shop._*"}


def is_whole_or_says_why(world: World, table_id: TableId) -> bool:
    own = world.state.tables[table_id]
    return own.status.is_stopped or (own.status is TableStatus.RUNNING and world.rows(table_id) == world.wanted(table_id))


@pytest.fixture(params=[(p, kind) for p in (1, 2) for kind in CAPABILITIES], ids=lambda it: f"{it[0]} {it[1]}")
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    partitions, kind = request.param
    return World(tmp_path, partitions=partitions, capability=kind)


@pytest.mark.parametrize("dropped", [False, True])
@pytest.mark.parametrize("way", ["at once", "in one cut", "in two", "dropped before", "to a followed name"])
def test_a_table_that_a_left_out_copy_replaces_waits_to_be_loaded(world: World, way: str, dropped: bool) -> None:
    world.create(A)
    world.create(B)
    world.insert(A, 1, 2)
    follow(world, **HELPERS)
    world.create(GHOST)
    world.insert(GHOST, 1, 2)
    follow(world, **HELPERS)
    to = E if way == "to a followed name" else FORMER
    if way == "at once":
        world.upstream.rename_tables((A, to), (GHOST, A))
    elif way == "dropped before":
        world.upstream.drop_table(A)
        world.upstream.rename_table(GHOST, A)
    else:
        world.upstream.rename_table(A, to)
        if way == "in two":
            follow(world, **HELPERS)
        world.upstream.rename_table(GHOST, A)
    if dropped and way != "dropped before":
        world.upstream.drop_table(to)
    for key in range(10, 14):
        world.insert(A, key)
        world.insert(B, key)
        follow(world, **HELPERS)
    own = world.state.tables[A]
    assert (own.status, "its rows come from shop._a_gho" in own.reason) == (TableStatus.INCOMPLETE, True)
    if to == E and not dropped:
        assert (world.state.tables[E].status, world.rows(E)) == (TableStatus.RUNNING, world.wanted(E))
    world.load(A)
    world.request(RequestKind.RESYNC, A, world.upstream.checkpoint())
    for key in range(30, 33):
        world.insert(A, key)
        follow(world, **HELPERS)
    assert (world.state.tables[A].status, world.rows(A)) == (TableStatus.RUNNING, world.wanted(A))


@pytest.mark.parametrize("was", ["never", "at first"])
@pytest.mark.parametrize("first", [A, C])
@pytest.mark.parametrize("through", [B, TableId("shop", "d")])
def test_tables_that_change_names_across_the_filter_are_whole_or_say_why_not(
    world: World, through: TableId, first: TableId, was: str
) -> None:
    world.create(A)
    world.create(C)
    world.insert(A, 1, 2)
    if was == "at first":
        follow(world)
    world.insert(C, 50, 51)
    follow(world, **without("bc"))
    second = C if first == A else A
    world.upstream.rename_tables((first, through), (second, first), (through, second))
    world.insert(A, 60)
    world.insert(C, 9)
    for _ in range(2):
        follow(world, **without("bc"))
    for key in range(70, 73):
        world.insert(A, key)
        world.insert(C, key)
        follow(world)
    assert is_whole_or_says_why(world, A)
    assert is_whole_or_says_why(world, C)


@pytest.mark.parametrize("behind", [False, True])
@pytest.mark.parametrize("way", ["in one cut", "at once", "taken in", "renamed in"])
def test_what_a_left_out_table_lacks_is_lacking_under_each_later_name(world: World, way: str, behind: bool) -> None:
    other = TableId("shop", "other")
    for table_id in (A, other, C):
        world.create(table_id)
    world.insert(C, 1, 2, 3)
    follow(world, **without("bc"))
    world.insert(A, 2)
    follow(world, **without("bc"))
    if way.endswith(" in"):
        world.request(RequestKind.HOLD, other)
        world.run(**without("bc"))
    world.insert(other, 1)
    to, left_out = E, "bc"
    if way == "at once":
        world.upstream.rename_tables((C, B), (B, E))
    else:
        world.upstream.rename_table(C, B)
        if way.endswith(" in"):
            world.insert(B, 5)
            follow(world, **without("bc"))
        if way == "taken in":
            to, left_out = B, ""
        else:
            world.upstream.rename_table(B, E)
    for key in range(70, 73):
        if behind:
            world.insert(to, key)
        world.insert(A, key)
        follow(world, **without(left_out))
    assert is_whole_or_says_why(world, to)


@pytest.mark.parametrize("again", [False, True])
def test_a_name_that_left_out_tables_have_had_twice_is_taken_in_with_its_rows_or_says_why_not(world: World, again: bool) -> None:
    world.create(A)
    world.create(C)
    world.insert(C, 7)
    follow(world, **without("bc"))
    world.insert(A, 1)
    follow(world, **without("bc"))
    world.upstream.rename_table(C, E)
    world.create(C)
    world.insert(C, 1, 2, 3)
    world.upstream.rename_table(C, B)
    follow(world, **without("bc"))
    if again:
        world.create(C)
    world.insert(B, 50)
    for key in range(70, 73):
        world.insert(A, key)
        follow(world)
    assert is_whole_or_says_why(world, B)
    assert is_whole_or_says_why(world, E)


@pytest.mark.parametrize("way", ["at once", "one by one"])
def test_a_table_whose_copys_name_a_left_out_one_takes_afterwards_is_whole(world: World, way: str) -> None:
    """All between two polls, so that the ledger has never heard of the copy."""
    world.create(A)
    world.create(C)
    world.insert(C, 7)
    follow(world, **without("c"))
    world.insert(A, 1)
    follow(world, **without("c"))
    world.create(B)
    world.insert(B, 50, 51)
    if way == "at once":
        world.upstream.rename_tables((A, E), (B, A))
    else:
        world.upstream.rename_table(A, E)
        world.upstream.rename_table(B, A)
    world.upstream.rename_table(C, B)
    for key in range(70, 73):
        world.insert(A, key)
        follow(world, **without("c"))
    assert (world.state.tables[A].status, world.rows(A)) == (TableStatus.RUNNING, world.wanted(A))
    assert world.state.tables[B].status is TableStatus.INCOMPLETE


@pytest.mark.parametrize("then", ["b", "bc", ""])
def test_a_followed_table_leaves_its_name_to_a_left_out_one_with_its_rows_whatever_the_filter_is_then(
    world: World, then: str
) -> None:
    world.create(A)
    world.create(B)
    world.create(C)
    world.insert(B, 1, 2)
    world.insert(C, 7)
    follow(world, **without("c"))
    world.insert(A, 1)
    follow(world, **without("c"))
    world.upstream.rename_tables((B, E), (C, B))
    world.insert(E, 3)
    follow(world, **without("bc"))
    for key in range(30, 33):
        world.insert(E, key)
        world.insert(B, key)
        follow(world, **without(then))
    assert is_whole_or_says_why(world, E)
    for key in range(40, 42):
        world.insert(B, key)
        follow(world)
    assert is_whole_or_says_why(world, B)
