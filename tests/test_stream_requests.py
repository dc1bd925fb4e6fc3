"""What people ask of tables of a stream: holds, loads and releases."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.model.ledger import RequestKind, TableStatus
from headrace.model.table import TableId
from streams import A, World

D = TableId("shop", "d")


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path, partitions=1)


@pytest.mark.parametrize("refused", [True, False])
def test_rows_that_were_loaded_into_a_later_life_of_a_name_do_not_go_over_to_the_renamed_table(world: World, refused: bool) -> None:
    world.create(A)
    world.insert(A, 1, 2)
    world.upstream.checkpoint()
    world.run()
    world.ask(RequestKind.HOLD, A)
    world.run()
    world.upstream.rename_table(A, D)
    world.create(A)
    world.insert(A, 50, 51)
    at = world.upstream.checkpoint()
    world.run()
    world.load(A)
    world.ask(RequestKind.RESYNC, A, at)
    if refused:
        world.run()
        assert world.state.tables[A].status is TableStatus.HELD
        assert at in {hold.to for hold in world.state.standing_holds}
    world.ask(RequestKind.RELEASE, A)
    world.run()
    # The loaded rows have gone over all the same; the name's later table begins with what the stream tells of it.
    assert (world.state.tables[A].status, world.state.tables[D].status) == (TableStatus.RUNNING, TableStatus.INCOMPLETE)
    assert world.rows(A) == world.wanted(A)
    world.load(D)
    world.ask(RequestKind.RESYNC, D, world.upstream.checkpoint())
    world.insert(D, 3)
    world.upstream.checkpoint()
    world.run()
    world.check()


def test_a_resync_of_a_name_that_no_table_has_any_more_is_over(world: World) -> None:
    """Nothing can have been loaded under it: released, the table goes on, and its rows go over."""
    world.create(A)
    world.insert(A, 1, 2)
    world.upstream.checkpoint()
    world.run()
    world.ask(RequestKind.HOLD, A)
    world.run()
    world.upstream.rename_table(A, D)
    at = world.upstream.checkpoint()
    world.run()
    world.ask(RequestKind.RESYNC, A, at)
    world.run()
    assert [hold.to for hold in world.state.standing_holds] == [0]
    world.ask(RequestKind.RELEASE, A)
    world.run()
    world.check()
