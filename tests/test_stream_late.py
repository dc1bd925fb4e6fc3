"""Changes of a stream that come below what was applied already: none is passed over in silence."""

from __future__ import annotations

import pickle
import zlib
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.model.ledger import RequestKind, TableStatus, Verdict
from headrace.model.outcome import Notice
from headrace.model.place import PlaceInStream
from headrace.model.table import Column, TableId
from headrace.sources.stream.position import PartitionPosition, StreamPosition, Unpromised
from headrace.sources.stream.records import RecordKind
from headrace.testing.faults import Crashed, Moment, Step, armed, crash_at
from headrace.testing.memory_sink import CAPABILITIES
from headrace.testing.memory_source import MemoryReader
from headrace.testing.upstream_ddl import AddColumn, DropColumn
from sampling import drawn
from streams import INT, A, Actions, B, World, run_killed

pytestmark = pytest.mark.pipeline

LATE_CHANGES: dict[str, Callable[[World], object]] = {
    "add column": lambda world: world.upstream.alter(A, AddColumn(Column("n", INT, default="7"))),
    "drop column": lambda world: world.upstream.alter(A, DropColumn("v")),
    "truncate": lambda world: world.upstream.truncate_table(A),
    "drop": lambda world: world.upstream.drop_table(A),
}
DRAIN = {"once": False, "until_end": True, "quiet": 0.0, "poll_interval": 0.01}
LATE = "changes came too late"
REPEATS = 5
CHANGES = (0, 1, 2, 3, 4)
WRITES = (6, 6, 7, 8, *[11] * 6)
"""Kinds of steps: a partition stalls or falls silent, all go on, a watermark, rows. With ``REPEATS`` the writer begins again."""


def late_of(told: list[Notice]) -> list[tuple[object, object]]:
    """What is told as new, each with its place: not what ``status`` keeps saying."""
    return [(notice.table_id, notice.place) for notice in told if LATE in notice.message and not _is_kept(notice)]


def _is_kept(notice: Notice) -> bool:
    return notice.message.startswith("rows may be missing: ")


def keys_of(partition: int, count: int, begin: int = 10) -> list[int]:
    """Keys of A whose rows lie in one of two partitions."""
    return [k for k in range(begin, begin + 90) if zlib.crc32(repr((A, [k])).encode()) % 2 == partition][:count]


def doubled(world: World, table_id: TableId) -> set[object]:
    """Ids of rows that are there more than once, though no update that came too late may have left them."""
    told = (r for records in world.stream.partitions for r in records if r.table_id == table_id and r.kind is RecordKind.ROWS)
    updated = {after["id"] for before, after in (pickle.loads(r.value) for r in told) if before and after}
    times = Counter(dict(row)["id"] for row in world.rows(table_id).elements())
    return {row for row, count in times.items() if count > 1} - updated


def missing(world: World) -> list[object]:
    return sorted(dict(row)["id"] for row in world.wanted(A) - world.rows(A))  # type: ignore[type-var]


def drain_past(world: World, change: str) -> None:
    """A final drain goes past a schema change that partition 0 brings only afterwards; each of its records has a mark behind it."""
    world.create(B)
    world.stream.go_on()
    world.upstream.checkpoint()
    world.run()
    world.stream.batch = 1
    world.stream.stall(0)
    LATE_CHANGES[change](world)
    world.insert(B, *range(10))
    world.run(**DRAIN)


@pytest.fixture
def world(tmp_path: Path) -> World:
    """With a table in two partitions, of which the second one gets nothing for now."""
    world = World(tmp_path, partitions=2)
    world.create(A)
    world.insert(A, *range(10))
    world.upstream.checkpoint()
    world.run()
    world.stream.stall(1)
    return world


class TestPartitionThatWasBehindAtAFinalDrain:
    @pytest.mark.parametrize("max_cut", [0, 400, 1 << 30])
    def test_what_it_brings_then_is_told_once_by_number_and_place(self, world: World, max_cut: int) -> None:
        late = keys_of(1, 5)
        begin = len(world.stream.partitions[1])
        world.insert(A, *late)
        world.insert(A, *keys_of(0, 5))
        world.run(**DRAIN)
        world.stream.go_on()
        world.upstream.checkpoint()
        ran = world.run(max_cut=max_cut)
        assert missing(world) == late
        told = [notice for notice in ran.notices if LATE in notice.message]
        places = [notice.place for notice in told if isinstance(notice.place, PlaceInStream) and notice.table_id == A]
        assert (places[0].offset, places[-1].last, {place.partition for place in places}) == (begin, begin + 4, {"1"})
        assert sum(int(notice.message.split()[0]) for notice in told) == 5
        world.insert(A, 200)
        world.upstream.checkpoint()
        ran = world.run(max_cut=max_cut)
        assert not late_of(ran.notices)
        assert [notice.table_id for notice in ran.notices if _is_kept(notice)] == [A]
        assert LATE in world.state.tables[A].lacks
        assert missing(world) == late

    def test_of_a_piece_only_the_changes_below_the_end_are_told(self, world: World) -> None:
        late, above = keys_of(1, 3), keys_of(1, 2, 200)
        begin = len(world.stream.partitions[1])
        world.insert(A, *late)
        world.insert(A, *keys_of(0, 5))
        world.run(**DRAIN)
        world.insert(A, *above)
        world.stream.go_on()
        world.upstream.checkpoint()
        assert late_of(world.run().notices) == [(A, PlaceInStream("1", begin, begin + 2))]
        assert missing(world) == late

    def test_what_had_been_read_by_then_is_not_told(self, world: World) -> None:
        """Though the partition promises it only afterwards."""
        world.stream.go_on()
        world.insert(A, *range(10, 30))
        world.run(**DRAIN)
        world.insert(A, 50)
        world.upstream.checkpoint()
        assert not late_of(world.run().notices)
        world.check()

    def test_nor_are_repeats_of_what_it_had_promised(self, world: World) -> None:
        world.insert(A, *keys_of(0, 5))
        world.run(**DRAIN)
        world.stream.go_on()
        world.upstream.checkpoint()
        world.run()
        world.stream.repeat(0)
        world.upstream.checkpoint()
        assert not late_of(world.run().notices)
        world.check()

    def test_a_table_that_was_held_gets_it_all(self, world: World) -> None:
        world.request(RequestKind.HOLD, A)
        world.run()
        world.create(B)
        world.insert(A, *keys_of(1, 5))
        world.insert(B, *range(10))
        world.run(**DRAIN)
        world.stream.go_on()
        world.upstream.checkpoint()
        world.request(RequestKind.RELEASE, A)
        ran = world.run()
        assert A not in {table_id for table_id, _ in late_of(ran.notices)}
        assert world.rows(A) == world.wanted(A)

    def test_nothing_is_told_of_tables_that_the_filter_leaves_out(self, world: World) -> None:
        world.create(B)
        world.insert(A, *keys_of(1, 5))
        world.insert(B, *range(10))
        left_out = {"includes": lambda table_id: table_id != B, "filter_text": "shop.*,!shop.b"}
        world.run(**DRAIN, **left_out)
        world.stream.go_on()
        world.upstream.checkpoint()
        assert {table_id for table_id, _ in late_of(world.run(**left_out).notices)} == {A}

    @pytest.mark.parametrize("ends", [True, False])
    @pytest.mark.parametrize("batch", [1, 100])
    @pytest.mark.parametrize("change", list(LATE_CHANGES))
    def test_a_schema_change_that_it_brings_then_waits_as_long_as_nobody_decides(
        self, world: World, change: str, batch: int, ends: bool
    ) -> None:
        """However many other tables go on meanwhile, and wherever marks lie: behind its record too."""
        world.create(B)
        world.stream.go_on()
        world.upstream.checkpoint()
        world.run()
        world.stream.batch = batch
        world.stream.stall(0)
        world.insert(B, *range(10))
        LATE_CHANGES[change](world)
        if ends and change != "drop":
            world.upstream.drop_table(A)
        world.insert(B, *range(10, 40))
        world.run(**DRAIN)
        world.stream.go_on()
        for key in range(100, 104):
            world.insert(B, key)
            world.upstream.checkpoint()
            world.run()
            assert world.state.tables[A].status.is_stopped
        for _ in range(1 + (ends and change != "drop")):
            (waiting,) = (e for e in world.state.journal.values() if A in e.tables and not e.state.is_settled)
            assert world.state.tables[A].status.is_stopped
            world.decide(waiting.identity, Verdict.SKIP)
            world.run()
        assert not world.state.tables[A].status.is_stopped

    @pytest.mark.parametrize("change", list(LATE_CHANGES))
    @pytest.mark.parametrize("away", ["held", "left out", "left out for a drain"])
    def test_one_that_comes_while_its_table_takes_no_part_waits_for_it(self, world: World, change: str, away: str) -> None:
        drain_past(world, change)
        without = {"includes": lambda table_id: table_id != A, "filter_text": "*.*,!shop.a"} if away != "held" else {}
        if away == "held":
            world.request(RequestKind.HOLD, A)
            world.run()
        world.stream.go_on()
        for key in range(20, 22):
            world.insert(B, key)
            if away == "left out for a drain":
                world.run(**DRAIN, **without)
            else:
                world.upstream.checkpoint()
                world.run(**without)
        if away == "held":
            world.request(RequestKind.RELEASE, A)
        for key in range(30, 32):
            world.insert(B, key)
            world.upstream.checkpoint()
            world.run()
        assert world.state.tables[A].status in (TableStatus.WAITING, TableStatus.INCOMPLETE)

    @pytest.mark.parametrize("runs", [1, 3])
    @pytest.mark.parametrize("verdict", [Verdict.APPROVE, Verdict.SKIP])
    @pytest.mark.parametrize("change", ["add column", "drop column", "truncate"])
    def test_it_can_be_decided_about_however_long_it_waits(self, world: World, change: str, verdict: Verdict, runs: int) -> None:
        drain_past(world, change)
        world.stream.go_on()
        for key in range(20, 20 + runs):
            world.insert(B, key)
            world.upstream.checkpoint()
            world.run()
        (waiting,) = (e for e in world.state.journal.values() if A in e.tables and not e.state.is_settled)
        world.decide(waiting.identity, verdict)
        world.run()
        assert world.state.tables[A].status is TableStatus.RUNNING
        if verdict is Verdict.APPROVE:
            assert world.rows(A) == world.wanted(A)

    def test_one_that_is_not_kept_so_long_leaves_its_table_to_be_loaded_anew(self, world: World) -> None:
        world.create(B)
        world.stream.go_on()
        world.upstream.checkpoint()
        world.run()
        world.stream.batch = 1
        world.stream.stall(0)
        world.upstream.truncate_table(A)
        world.insert(B, *range(10))
        world.run(**DRAIN)
        world.stream.go_on()
        world.upstream.checkpoint()
        world.run()
        (told,) = (n for n, r in enumerate(world.stream.partitions[0]) if r.kind is RecordKind.STATEMENT and b"TRUNCATE" in r.value)
        world.stream.forget(0, told + 1)
        world.insert(B, 10)
        world.upstream.checkpoint()
        world.run()
        assert world.state.tables[A].status is TableStatus.INCOMPLETE
        assert world.state.tables[B].status is TableStatus.RUNNING

    @pytest.mark.parametrize("capability", list(CAPABILITIES))
    @pytest.mark.parametrize("step", [Step.INTENT, Step.ROUND, Step.JOURNAL_SETTLED, Step.CHECKPOINT])
    @pytest.mark.parametrize("moment", list(Moment))
    def test_it_is_told_wherever_the_drain_broke_off(self, tmp_path: Path, capability: str, step: Step, moment: Moment) -> None:
        """Tables without key, and those of a schema change, move before the end of a cut."""
        world = World(tmp_path, partitions=2, capability=capability)
        for table_id, keyless in ((A, False), (B, True)):
            world.create(table_id, keyless=keyless)
            world.insert(table_id, *range(10))
        world.upstream.checkpoint()
        world.run()
        (place,) = {n for n, records in enumerate(world.stream.partitions) if any(r.table_id == B and r.kind == 0 for r in records)}
        world.stream.stall(place)
        world.insert(B, 20)
        world.stream.go_on()
        world.stream.stall(1 - place)
        late = keys_of(1 - place, 5)
        world.insert(A, *late)
        world.insert(B, 21)
        if place == 0:
            world.upstream.alter(B, AddColumn(Column("n", INT, default="7")))
            world.insert(B, 22, n=5)
        with suppress(Crashed), armed(crash_at(moment, step)):
            world.run(**DRAIN)
        moved = world.state.table_checkpoint(A) > world.stream.promised
        world.stream.go_on()
        told = late_of(world.run(**DRAIN).notices)
        world.upstream.checkpoint()
        told += late_of(world.run().notices)
        assert missing(world) == (late if moved else [])
        assert {table_id for table_id, _ in told} >= ({A} if moved else set())


def test_a_partition_that_the_stream_names_late_is_told_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(tmp_path, partitions=1)
    world.create(A)
    world.insert(A, *range(5))
    world.upstream.checkpoint()
    world.run()
    stream = world.stream
    stream.count = world.partitions = 2
    stream.partitions.append([])
    stream.first.append(0)
    stream._waiting.append([])
    late = keys_of(1, 5)
    world.insert(A, *late)
    world.upstream.checkpoint()
    ends = MemoryReader.ends
    with monkeypatch.context() as patch:
        patch.setattr(MemoryReader, "ends", lambda reader: ends(reader)[:1])
        world.run()
    world.insert(A, *keys_of(1, 5, 200))
    world.upstream.checkpoint()
    assert late_of(world.run().notices) == [(A, PlaceInStream("1", 0, 4))]
    assert missing(world) == late
    world.upstream.checkpoint()
    assert not late_of(world.run().notices)


@pytest.mark.reading_case("B62")
def test_one_that_is_named_before_its_first_watermark_loses_nothing(tmp_path: Path) -> None:
    world = World(tmp_path, partitions=1)
    world.create(A)
    world.upstream.checkpoint()
    world.run(start=world.stream.promised)
    stream = world.stream
    stream.count = world.partitions = 2
    stream.partitions.append([])
    stream.first.append(0)
    stream._waiting.append([])
    world.insert(A, *range(10, 20))
    assert not late_of(world.run(start=world.state.checkpoint).notices)


def test_what_partitions_had_not_promised_stays_in_the_position() -> None:
    position = StreamPosition({"0": PartitionPosition(3), "1": PartitionPosition(4)}, 7).applying(9, {"0": 9, "1": 5})
    again = StreamPosition.parse(position.to_text())
    assert again.unpromised == Unpromised(9, {"1": 5})
    assert [again.promise(name) for name in "012"] == [9, 5, 0]
    assert again.applied_to == 9
    assert again.applying(12, {"0": 12, "1": 12}).unpromised is None


@settings(max_examples=drawn(60), deadline=None)
@given(seed=st.integers(0, 1 << 30), capability=st.sampled_from(list(CAPABILITIES)))
def test_any_history_with_final_drains_is_applied_once_or_what_lacks_is_told(
    seed: int, capability: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Nothing is told where nothing was drained. What comes again is there once all the same, also without a key.

    Schema changes may come late too. A table that has such a one waits, and is compared no more.
    """
    chance = Random(seed)
    world = World(tmp_path_factory.mktemp("stream"), partitions=chance.randrange(1, 4), capability=capability)
    repeats, changes = chance.random() < 0.6, chance.random() < 0.5
    for table_id in (A, B):
        world.create(table_id, keyless=chance.random() < 0.5)
    world.upstream.checkpoint()
    world.run()
    actions, drained = Actions(world, chance), False
    for _ in range(chance.randrange(2, 6)):
        for _ in range(chance.randrange(1, 12)):
            actions.step([*WRITES, *[REPEATS] * repeats, *CHANGES * changes])
        drains = chance.random() < 0.4
        drained |= drains
        options = {**(DRAIN if drains else {}), "max_cut": chance.choice([0, 1, 400, 1 << 20])}
        if chance.random() < 0.4:
            run_killed(world, chance, **options)
            if drains and world.state.attempted > world.stream.promised:
                world.run(**options)  # else later ones wait until the source has come so far
        else:
            world.run(**options)
    world.stream.go_on()
    for _ in range(2):
        world.upstream.checkpoint()
        world.run()
    told = {table_id for table_id, _ in late_of(world.notices)}
    assert world.state.checkpoint == world.stream.promised
    assert drained or not told
    stopped = {table_id for table_id, own in world.state.tables.items() if own.status.is_stopped}
    # What was told of a table by the name that it had then counts, too.
    told |= set(world.upstream.tables) if told and changes else set()
    for table_id in {*world.upstream.tables, *world.server.contents.tables} - stopped:
        assert (table_id in world.upstream.tables) == (table_id in world.server.contents.tables)
        assert set(world.server.contents.tables[table_id].columns) == {c.name for c in world.upstream.schema(table_id).columns}
        assert world.rows(table_id) == world.wanted(table_id) or table_id in told
        assert not doubled(world, table_id)
