"""What people ask of tables of a stream: holds, loads and releases."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest

from headrace.model.ledger import RequestKind, TableStatus
from headrace.model.table import Column, TableId
from headrace.sources.stream.position import StreamPosition
from headrace.testing.memory_source import MemorySource
from headrace.testing.upstream_ddl import AddColumn
from streams import INT, A, B, World

D = TableId("shop", "d")
ELSEWHERE = TableId("shop.d", "z")


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path, partitions=1)


@pytest.mark.parametrize("seen", ["refused", "waits", "never"])
def test_rows_that_were_loaded_into_a_later_life_of_a_name_do_not_go_over_to_the_renamed_table(world: World, seen: str) -> None:
    world.create(A)
    world.insert(A, 1, 2)
    world.upstream.checkpoint()
    world.run()
    world.request(RequestKind.HOLD, A)
    world.run()
    world.upstream.rename_table(A, D)
    world.create(A)
    world.insert(A, 50, 51)
    at = world.upstream.checkpoint()
    if seen != "never":  # else no run has met the RENAME by the time of the release
        world.run()
    world.load(A)
    world.request(RequestKind.RESYNC, A, at)
    if seen == "refused":
        world.run()
        assert world.state.tables[A].status is TableStatus.HELD
        assert at in {hold.to for hold in world.state.standing_holds}
    world.request(RequestKind.RELEASE, A)
    world.run()
    # The loaded rows have gone over all the same; the name's later table begins with what the stream tells of it.
    assert (world.state.tables[A].status, world.state.tables[D].status) == (TableStatus.RUNNING, TableStatus.INCOMPLETE)
    assert world.rows(A) == world.wanted(A)
    world.load(D)
    world.request(RequestKind.RESYNC, D, world.upstream.checkpoint())
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
    world.request(RequestKind.HOLD, A)
    world.run()
    world.upstream.rename_table(A, D)
    at = world.upstream.checkpoint()
    world.run()
    world.request(RequestKind.RESYNC, A, at)
    world.run()
    assert [hold.to for hold in world.state.standing_holds] == [0]
    world.request(RequestKind.RELEASE, A)
    world.run()
    world.check()


@pytest.mark.parametrize("renamed", [False, True])
def test_rows_behind_a_load_have_the_shape_of_the_changes_that_the_load_passed_over(world: World, renamed: bool) -> None:
    """The stream tells these once, and the position has gone on by the time that the rows come."""
    world.create(A)
    world.create(B)
    world.insert(A, 1)
    world.upstream.checkpoint()
    world.run()
    world.request(RequestKind.HOLD, A)
    world.run()
    world.upstream.alter(A, AddColumn(Column("n", INT, default="7")))
    own = A
    if renamed:
        own = D
        world.upstream.rename_table(A, D)
    world.insert(own, 2, n=8)
    at = world.upstream.checkpoint()
    world.run()
    world.load(own)
    world.request(RequestKind.RESYNC, own, at)
    for key in (1, 2):
        world.insert(B, key)
        world.upstream.checkpoint()
        world.run()
    world.stream.forget(0, len(world.stream.partitions[0]) - 1)
    world.insert(own, 3, n=9)
    world.upstream.checkpoint()
    world.run()
    assert world.rows(own) == world.wanted(own)


def ended_with_records_gone(world: World, *, held: bool) -> tuple[int, int]:
    """``A`` and ``B`` lack rows before the end of their database: ``A`` behind it, ``B`` right before it.

    Returns the commit ts of the DROP, and one behind it, as of which ``B`` is loaded.
    """
    for table_id in (A, B, ELSEWHERE):
        world.create(table_id)
    world.insert(A, 1)
    world.insert(B, 1)
    world.upstream.checkpoint()
    world.run()
    world.request(RequestKind.HOLD, A)
    for table_id in (A, B):
        world.insert(table_id, 2)
    world.upstream.checkpoint()
    world.run()
    dropped = world.upstream.drop_database("shop")
    world.upstream.create_database("shop")
    world.create(B)
    world.insert(B, 50)
    for key in range(4):
        world.insert(ELSEWHERE, key)
        world.upstream.checkpoint()
        world.run()
    if held:
        world.request(RequestKind.HOLD, B)
        world.run()
    place = StreamPosition.parse(world.state.position)
    world.stream.forget(0, place.of("0").begins(place.watermark - 1))
    world.request(RequestKind.RELEASE, A)
    if held:
        world.request(RequestKind.RELEASE, B)
    world.insert(ELSEWHERE, 10)
    at = world.upstream.checkpoint()
    world.run()
    assert [world.state.tables[t].status for t in (A, B)] == [TableStatus.INCOMPLETE] * 2
    return dropped, at


@pytest.mark.parametrize("held", [True, False])
def test_a_table_that_lacks_rows_right_before_the_end_of_its_database_goes_on_to_that(world: World, held: bool) -> None:
    """Nobody needs its rows: that the records behind it are gone does not matter, and there is no other way on."""
    dropped, at = ended_with_records_gone(world, held=held)
    assert (world.state.tables[B].checkpoint, world.state.tables[B].after) == (dropped, False)
    world.request(RequestKind.RESYNC, B, at)
    told = "\n".join(notice.message for notice in world.run().notices)
    assert f"headrace table resync shop.b --at {dropped - 1}, whatever rows it has" in told
    for table_id in (A, B):
        world.request(RequestKind.RESYNC, table_id, dropped - 1)
    world.run()
    assert {world.state.tables[t].status for t in (A, B)} == {TableStatus.WAITING}
    world.skip()  # the record of the DROP is gone too
    world.run()
    assert {world.state.tables[t].status for t in (A, B)} == {TableStatus.GONE}
    world.insert(B, 60)
    world.upstream.checkpoint()
    world.run()
    # The table that has the name since: its CREATE is gone, and it is not passed over in silence.
    assert world.state.tables[B].status is TableStatus.INCOMPLETE
    assert "the records that tell how it began are not kept any more" in world.state.tables[B].reason


def test_the_advice_for_a_change_of_names_told_in_steps_names_no_name_of_in_between(world: World) -> None:
    """Each step is a change by itself. Nobody can load a table that is there only within the statement."""
    for table_id in (A, B):
        world.create(table_id)
        world.insert(table_id, 1)
    world.upstream.checkpoint()
    world.run()
    world.request(RequestKind.HOLD, A)
    world.run()
    world.upstream.rename_tables((A, D), (B, A), (D, B))
    world.insert(A, 2)
    at = world.upstream.checkpoint()
    world.run()
    world.load(A)
    world.request(RequestKind.RESYNC, A, at)
    told = "\n".join(notice.message for notice in world.run().notices)
    assert "also concerns shop.b. Restore the rows" in told
    assert "go over to" not in told
    steps = [entry.identity for entry in world.state.journal.values() if not entry.state.is_settled]
    assert all(f"headrace ddl skip '{identity}'" in told for identity in steps)
    world.request(RequestKind.RELEASE, A)
    world.skip()
    world.run()
    for table_id in (A, B):
        world.load(table_id)
        world.request(RequestKind.RESYNC, table_id, world.upstream.checkpoint())
    for table_id in (A, B):
        world.insert(table_id, 3)
        world.upstream.checkpoint()
        world.run()
    world.check()


@pytest.mark.parametrize("max_cut", [0, 400])
def test_a_dropped_table_stays_gone_where_the_stream_repeats_its_rows(world: World, max_cut: int) -> None:
    world.create(B)
    world.create(A)
    world.insert(A, 1, 2)
    world.upstream.checkpoint()
    world.run(max_cut=max_cut)
    world.upstream.drop_table(A)
    for key in range(3):
        world.insert(B, key)
        world.upstream.checkpoint()
        world.run(max_cut=max_cut)
    world.stream.repeat(0)
    for key in range(10, 12):
        world.insert(B, key)
        world.upstream.checkpoint()
        world.run(max_cut=max_cut)
    assert world.state.tables[A].status is TableStatus.GONE
    world.create(A)
    world.insert(A, 5)
    world.upstream.checkpoint()
    world.run(max_cut=max_cut)
    world.check()


@pytest.mark.parametrize("behind", [0, 1])
def test_a_table_that_is_created_anew_above_the_watermark_waits_for_its_create(tmp_path: Path, behind: int) -> None:
    """A piece then has rows of both tables, and none between the end of the first one and the watermark.

    If partition 0 is behind, the CREATE has not arrived yet. If partition 1 is behind, it has. Of so many records, the position has
    so few marks that the rows of the first table are read again.
    """
    world = World(tmp_path, partitions=2)
    world.create(A)
    world.create(B)
    world.insert(A, *range(8))
    world.upstream.drop_table(A)
    world.upstream.checkpoint()
    between = world.insert(B, *range(8))
    world.stream.stall(behind)
    world.create(A)
    world.insert(A, *range(50, 450))
    world.upstream.checkpoint()
    world.run()
    world.stream.go_on()
    waiting, world.stream.partitions[behind] = world.stream.partitions[behind], []
    world.stream.partitions[behind] = [record for record in waiting if record.commit_ts <= between]
    world.stream.checkpoint(between)
    for _ in range(3):
        world.run()
        assert world.state.checkpoint == between
        assert world.state.tables[A].status is TableStatus.GONE
    world.stream.partitions[behind] += [record for record in waiting if record.commit_ts > between]
    world.upstream.checkpoint()
    world.run()
    world.check()
    assert not world.notices


@pytest.mark.parametrize("batch", [1, 3, 100])
def test_a_source_knows_exactly_between_which_times_it_has_rows_of_a_table(tmp_path: Path, batch: int) -> None:
    world = World(tmp_path, partitions=2)
    world.stream.batch = batch
    world.create(A)
    world.create(B)
    times = [world.insert(A, 1, 2), world.insert(B, 3), world.insert(A, 4), world.upstream.drop_table(A)]
    world.create(A)
    times += [world.insert(B, 5, 6), world.insert(A, *range(7, 12))]
    world.stream.repeat(times[0])
    times.append(world.upstream.checkpoint())
    source = MemorySource(world.stream).event_source.staged_by(world.staged, world.place)
    offer = source.poll("", 0)
    of_table = {times[0], times[2], times[5]}
    for above, up_to in product([0, *times], times):
        assert source.has_rows(offer, A, above, up_to) == any(above < ts <= up_to for ts in of_table)
