"""Partitions that appear while a pipeline is running, as of a new topic, and those that get no watermarks any more."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.testing.faults import Crashed, Moment, Step, armed, crash_at
from headrace.testing.upstream import Insert
from streams import A, World

pytestmark = pytest.mark.pipeline

MINUTE = 60_000


def world_of(tmp_path: Path) -> World:
    world = World(tmp_path, 1)
    world.create(A)
    world.upstream.checkpoint()
    world.run()
    return world


def put(world: World, partition: int, *keys: int) -> int:
    """Rows of one transaction that lie in a partition, whatever their key."""
    count, world.stream.count = world.stream.count, 1
    moved = len(world.stream.partitions[0])
    commit_ts = world.upstream.execute(*(Insert(A, {"id": key, "v": "x"}) for key in keys))
    world.stream.count = count
    records = world.stream.partitions[0][moved:]
    del world.stream.partitions[0][moved:]
    world.stream.partitions[partition] += records
    return commit_ts


class TestNewPartitions:
    def test_one_that_appears_between_two_runs_is_read_from_its_first_record(self, tmp_path: Path) -> None:
        world = world_of(tmp_path)
        place = world.stream.add_partition()
        put(world, place, 1, 2)
        world.insert(A, 3)
        world.upstream.checkpoint()
        world.run()
        world.check()

    def test_b62_one_that_appears_holds_what_is_above_the_watermark_until_its_own_and_says_so(self, tmp_path: Path) -> None:
        world = world_of(tmp_path)
        reached = world.state.checkpoint
        world.stream.add_partition()
        world.stream.silence(1)
        put(world, 0, 1)
        put(world, 1, 2)
        world.upstream.checkpoint()
        world.run()
        assert world.state.checkpoint == reached
        assert [notice.message for notice in world.notices] == [
            "Partition 1 has no watermark, and others have: nothing is applied until it has one."
        ]
        world.stream.go_on()
        world.upstream.checkpoint()
        world.run()
        world.check()


class TestPartitionsWithoutWatermarks:
    """The topic of a table that was dropped gets no watermarks any more."""

    def dried(self, tmp_path: Path, after: int = MINUTE) -> World:
        """A second partition with rows and a watermark, and then no more of these."""
        world = world_of(tmp_path)
        world.stream.add_partition(leans_after=after)
        put(world, 1, 1)
        world.upstream.checkpoint()
        world.run()
        world.stream.dry.add(1)
        return world

    def test_those_of_the_others_count_once_they_are_far_enough_ahead(self, tmp_path: Path) -> None:
        world = self.dried(tmp_path)
        reached = world.state.checkpoint
        put(world, 0, 2)
        world.upstream.checkpoint()
        world.run()
        assert world.state.checkpoint == reached
        world.upstream.advance(MINUTE)
        last = world.upstream.checkpoint()
        world.run()
        assert world.state.checkpoint == last
        world.check()

    @pytest.mark.parametrize("dies", [False, True])
    def test_rows_that_come_back_to_it_are_applied(self, dies: bool, tmp_path: Path) -> None:
        world = self.dried(tmp_path)
        world.upstream.advance(MINUTE)
        world.upstream.checkpoint()
        world.run()
        put(world, 1, 2)
        put(world, 0, 3)
        world.upstream.advance(MINUTE)
        world.upstream.checkpoint()
        if dies:
            with pytest.raises(Crashed), armed(crash_at(Moment.BEFORE, Step.CHECKPOINT)):
                world.run()
        world.run()
        world.check()

    def test_it_holds_the_others_while_its_last_record_is_young_or_unread(self, tmp_path: Path) -> None:
        world = self.dried(tmp_path)
        world.upstream.advance(MINUTE)
        young = put(world, 1, 2)
        world.upstream.checkpoint()
        world.run()
        assert world.state.checkpoint < young

    def test_rows_that_come_after_all_are_reported_and_not_taken_for_repeats(self, tmp_path: Path) -> None:
        world = self.dried(tmp_path)
        moved = put(world, 0, 2)
        records = world.stream.partitions[0]
        late = records.pop()
        assert late.commit_ts == moved
        world.upstream.advance(MINUTE)
        world.upstream.checkpoint()
        world.run()
        world.stream.partitions[1].append(late)
        world.run()
        assert "1 changes came too late" in world.notices[-1].message

    def test_one_that_never_had_a_record_holds_nothing(self, tmp_path: Path) -> None:
        world = world_of(tmp_path)
        world.stream.dry.add(world.stream.add_partition(leans_after=MINUTE))
        put(world, 0, 1)
        last = world.upstream.checkpoint()
        world.run()
        assert world.state.checkpoint == last
        assert not world.notices
        world.check()

    def test_a_backlog_in_parts_is_applied_to_its_end(self, tmp_path: Path) -> None:
        world = self.dried(tmp_path)
        world.upstream.advance(MINUTE)
        for key in range(10, 60):
            put(world, 0, key)
            world.upstream.checkpoint()
        world.run(max_cut=400)
        assert world.state.checkpoint == world.stream.promised
        world.check()


def test_a_partition_that_was_left_out_is_not_waited_for(tmp_path: Path) -> None:
    world = world_of(tmp_path)
    world.stream.add_partition()
    world.upstream.checkpoint()
    world.run()
    put(world, 0, 1)
    world.stream.hidden.add(1)
    reached, last = world.state.checkpoint, world.upstream.checkpoint()
    world.run()
    assert world.state.checkpoint == reached
    world.stream.left_out.add("1")
    world.run()
    assert world.state.checkpoint == last
    world.check()
