"""What partitions do to those who read them: records nobody understands, retention, stalls, bounds, and streams made anew."""

from __future__ import annotations

import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path

import pyarrow as pa
import pytest

from headrace import faults
from headrace.engine.loop import Loop
from headrace.errors import SourceLostError, SourceUnreachableError
from headrace.faults import FaultPoint
from headrace.model.ledger import RequestKind, TableRequest, TableStatus
from headrace.model.place import PlaceInStream
from headrace.model.stream import Range
from headrace.model.table import Column, TableId
from headrace.model.tso import MAX_TSO, latest_tso
from headrace.sources.base import Bound
from headrace.sources.stream.records import RecordKind
from headrace.testing.faults import Crashed, Moment, Step, armed, crash_at
from headrace.testing.memory_source import MemoryReader, MemoryRecord, MemorySource
from headrace.testing.ticdc_writer import RowChange
from headrace.testing.upstream import Insert
from headrace.testing.upstream_ddl import AddColumn
from streams import INT, A, B, World

pytestmark = pytest.mark.pipeline

UNKNOWN = b"cannot be understood"
NOBODYS = TableId("")
Act = Callable[[], object]


def world_of(tmp_path: Path, partitions: int = 1) -> World:
    world = World(tmp_path, partitions)
    world.create(A)
    world.upstream.checkpoint()
    world.run()
    return world


def not_understood(world: World, table_id: TableId = NOBODYS) -> MemoryRecord:
    """The last record of the first partition becomes one that nobody understands; what it was."""
    record = world.stream.partitions[0][-1]
    world.stream.partitions[0][-1] = MemoryRecord(RecordKind.UNKNOWN, table_id, 0, UNKNOWN)
    return record


def keys_in(world: World, table_id: TableId, partition: int, begin: int, count: int) -> list[int]:
    """Keys whose rows lie in the partition: so many, from the one of this number on."""
    found = (k for k in range(1000) if zlib.crc32(repr((table_id, [k])).encode()) % world.partitions == partition)
    return list(islice(found, begin, begin + count))


def key_in(world: World, table_id: TableId, partition: int) -> int:
    return keys_in(world, table_id, partition, 0, 1)[0]


def follow(world: World, acts: Sequence[Act], monkeypatch: pytest.MonkeyPatch) -> None:
    """One run that polls after each of these, and once more."""
    waiting, original = [*acts, lambda: None], Loop._poll

    def acting(loop: Loop, *args: object, **more: object) -> object:
        if waiting:
            waiting.pop(0)()
        else:
            loop.stop()
        return original(loop, *args, **more)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(Loop, "_poll", acting)
        world.run(once=False, poll_interval=0.0)


class TestTimesOfTheFuture:
    @pytest.mark.parametrize("partitions", [1, 3])
    def test_a_watermark_promises_nothing(self, tmp_path: Path, partitions: int, capsys: pytest.CaptureFixture[str]) -> None:
        world = world_of(tmp_path, partitions)
        reached = world.state.checkpoint
        world.insert(A, 2)
        world.stream.checkpoint(MAX_TSO)
        world.run()
        assert "ahead of this machine's clock, so it is not used" in " ".join(capsys.readouterr().err.split())
        assert world.state.checkpoint == reached
        world.insert(A, 3)
        world.upstream.checkpoint()
        world.run()
        world.check()
        assert world.state.checkpoint < latest_tso(time.time())

    def test_a_row_is_not_the_end(self, tmp_path: Path) -> None:
        world = world_of(tmp_path)
        world.create(B)
        world.insert(B, 1)
        world.upstream.checkpoint()
        world.insert(A, 2)
        world.insert(B, 2)
        last = world.stream.partitions[0][-1].commit_ts
        world.stream.rows(A, MAX_TSO, [RowChange(None, {"id": 3, "v": "3"})])
        ran = world.run(once=False, until_end=True, quiet=0.0, poll_interval=0.01)
        assert {problem.table_id for problem in ran.stopped} == {A}
        assert (world.state.checkpoint, len(world.rows(B))) == (last, 2)


class TestRecordsThatNobodyUnderstands:
    def test_nothing_behind_one_of_no_table_is_applied_though_a_watermark_lies_there(self, tmp_path: Path) -> None:
        world = world_of(tmp_path)
        reached = world.state.checkpoint
        world.insert(A, 2)
        record = not_understood(world)
        offset = len(world.stream.partitions[0]) - 1
        world.upstream.checkpoint()
        for key in (3, 4):
            assert not world.run().stopped
            assert world.state.checkpoint == reached
            world.insert(A, key)
            world.upstream.checkpoint()
        world.stream.partitions[0][offset] = record
        world.run()
        world.check()

    def test_a_final_drain_ends_before_it(self, tmp_path: Path) -> None:
        world = world_of(tmp_path)
        reached = world.state.checkpoint
        world.insert(A, 2)
        not_understood(world)
        world.insert(A, 3)
        world.run(once=False, until_end=True, quiet=0.0, poll_interval=0.01)
        assert (world.state.checkpoint, len(world.rows(A))) == (reached, 0)

    def test_one_of_a_table_is_needed_until_somebody_gives_it_up(self, tmp_path: Path) -> None:
        world = world_of(tmp_path)
        world.create(B)
        world.insert(A, 2)
        record = not_understood(world, A)
        offset = len(world.stream.partitions[0]) - 1
        for key in range(3):
            world.insert(B, key)
            world.insert(A, 10 + key)
            world.upstream.checkpoint()
            assert [problem.table_id for problem in world.run().stopped] == [A]
            assert world.rows(B) == world.wanted(B)
        world.stream.partitions[0][offset] = record
        world.run()
        world.check()

    def test_a_schema_change_that_cannot_be_read_is_not_passed_over(self, tmp_path: Path) -> None:
        world = world_of(tmp_path)
        world.upstream.truncate_table(A)
        offset = len(world.stream.partitions[0]) - 1
        record = world.stream.partitions[0][offset]
        world.stream.damage(0, offset)
        for key in range(3):
            world.insert(A, key)
            world.upstream.checkpoint()
            assert [problem.table_id for problem in world.run().stopped] == [A]
        world.stream.partitions[0][offset] = record
        world.run()
        world.check()


class TestWhichRecordsThereAre:
    def test_a_partition_that_comes_later_is_read_from_its_very_first_record_on(self, tmp_path: Path) -> None:
        world = world_of(tmp_path)
        world.stream.add_partition()
        world.insert(A, *range(10))
        world.upstream.checkpoint()
        world.stream.forget(1, 2)
        with pytest.raises(SourceLostError, match="Records 0 to 1 of partition 1 were not applied yet"):
            world.run()

    def test_a_stream_that_was_made_anew_under_its_name_is_not_followed(self, tmp_path: Path) -> None:
        world = world_of(tmp_path)
        world.insert(A, *range(10))
        world.upstream.checkpoint()
        world.run()
        world.stream.partitions[0].clear()
        world.insert(A, 50)
        world.upstream.checkpoint()
        with pytest.raises(SourceLostError, match="it is another stream of the same name"):
            world.run()

    def test_a_partition_that_is_not_named_for_a_moment_holds_the_watermark(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        world = world_of(tmp_path, 2)
        reached = world.state.checkpoint
        world.insert(A, *range(10))
        world.upstream.checkpoint()
        ends = MemoryReader.ends
        with monkeypatch.context() as patch:
            patch.setattr(MemoryReader, "ends", lambda reader: ends(reader)[:1])
            world.run()
        assert world.state.checkpoint == reached
        world.run()
        world.check()

    def test_records_that_go_while_they_are_read_end_the_run(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        world = world_of(tmp_path)
        world.insert(A, *range(30))
        world.upstream.checkpoint()
        records = MemoryReader.records

        def late(reader: MemoryReader, of: object) -> object:
            world.stream.forget(0, 20)
            return records(reader, of)  # type: ignore[arg-type]

        monkeypatch.setattr(MemoryReader, "records", late)
        with pytest.raises(SourceLostError, match="were gone before they were read"):
            world.run()

    def test_a_stream_whose_first_records_are_gone_when_the_pipeline_begins_is_staged_once(self, tmp_path: Path) -> None:
        world = World(tmp_path, 1)
        world.create(A)
        world.stream.forget(0, 1)
        source = MemorySource(world.stream).event_source.staged_by(world.staged, world.place)  # type: ignore[arg-type]
        offer = source.poll("", 0, shapes={})
        before = world.staged.records
        assert before > 0
        source.poll("", 0, shapes={}, learned=offer.learned)
        assert world.staged.records == before


class TestPromises:
    def test_a_promise_is_kept_until_the_others_have_come_so_far(self, tmp_path: Path) -> None:
        """Its record lies before all that is needed of the partition, which may promise nothing any more."""
        world = world_of(tmp_path, 2)
        world.upstream.checkpoint()
        world.stream.stall(1)
        world.insert(A, key_in(world, A, 1))
        reached = world.upstream.checkpoint()
        world.run()
        world.stream.go_on()
        world.run()
        assert world.state.checkpoint == reached
        world.check()

    def test_rows_above_the_watermark_whose_create_is_to_come_stop_nothing(self, tmp_path: Path) -> None:
        world = world_of(tmp_path, 2)
        world.insert(A, 1)
        world.upstream.checkpoint()
        world.stream.stall(0)
        world.create(B)
        world.insert(B, key_in(world, B, 1))
        world.upstream.checkpoint()
        assert not world.run().stopped
        world.stream.go_on()
        world.run()
        world.check()


class TestBounds:
    def test_a_run_to_the_end_takes_all_that_is_there_in_parts(self, tmp_path: Path) -> None:
        world = world_of(tmp_path, 2)
        for key in range(50):
            world.insert(A, key)
        world.upstream.checkpoint()
        world.run(max_cut=1000)
        world.check()

    def test_what_was_attempted_is_reached_however_small_the_parts_are(self, tmp_path: Path) -> None:
        world = world_of(tmp_path)
        world.capability = "nothing atomic"
        for key in range(50):
            world.insert(A, key)
        world.upstream.checkpoint()
        with suppress(Crashed), armed(crash_at(Moment.AFTER, Step.INTENT)):
            world.run(once=False, poll_interval=0.0)
        world.run(max_cut=1000)
        world.check()

    def test_a_final_drain_takes_partitions_of_any_density_whole(self, tmp_path: Path) -> None:
        world = world_of(tmp_path, 2)
        thin = key_in(world, A, 1)
        for key in [k for k in range(400) if k != thin and zlib.crc32(repr((A, [k])).encode()) % 2 == 0]:
            world.insert(A, key)
        world.insert(A, thin)
        world.run(once=False, until_end=True, quiet=0.0, poll_interval=0.01, max_cut=4000)
        world.check()

    @pytest.mark.parametrize("max_cut", [1, 400])
    @pytest.mark.parametrize("how", ["all run", "one is held", "killed"])
    def test_a_run_to_the_end_takes_all_that_is_complete_of_partitions_that_are_out_of_step(
        self, how: str, max_cut: int, tmp_path: Path
    ) -> None:
        """The one that is read last promises more than those that are not read meanwhile."""
        world = world_of(tmp_path, 2)
        if how == "one is held":
            world.create(B)
            world.upstream.checkpoint()
            world.run()
            world.request(RequestKind.HOLD, B)
            world.insert(B, *range(10))
        for number in range(10):
            for place in (0, 1):
                world.insert(A, *keys_in(world, A, place, 3 * number, 3))
                world.stream.silence(1 - place)
                world.upstream.checkpoint()
                world.stream.go_on()
        for _ in range(3 if how == "killed" else 0):
            with suppress(Crashed), armed(crash_at(Moment.AFTER, Step.CHECKPOINT)):
                world.run(max_cut=max_cut)
        world.run(max_cut=max_cut)
        assert world.state.checkpoint == world.stream.promised
        world.upstream.checkpoint()
        world.run(max_cut=max_cut)
        assert world.state.checkpoint == world.stream.promised
        assert world.rows(A) == world.wanted(A)

    @pytest.mark.parametrize("why", ["stalled", "not understood", "not named"])
    def test_a_run_to_the_end_does_not_go_on_for_records_above_what_a_partition_promises(
        self, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        world = world_of(tmp_path, 2)
        reached = world.state.checkpoint
        if why == "stalled":
            world.stream.stall(0)
        if why == "not understood":
            world.stream.put_unknown(0, NOBODYS, "")
        if why == "not named":
            ends = MemoryReader.ends
            monkeypatch.setattr(MemoryReader, "ends", lambda reader: ends(reader)[1:])
        for key in range(200):
            world.insert(A, key)
            world.upstream.checkpoint()
        world.staged.records = 0
        world.run(max_cut=400)
        assert (world.state.checkpoint, world.staged.records < 50) == (reached, True)

    @pytest.mark.parametrize("once", [True, False])
    def test_a_run_that_is_where_it_was_to_end_reads_nothing_of_what_is_behind(
        self, once: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Though what writes the stream is faster than the run."""
        world = world_of(tmp_path)
        until = world.insert(A, 0)
        keys = iter(range(1, 1000))
        records = MemoryReader.records

        def writes() -> None:
            for _ in range(10):
                world.insert(A, next(keys))
                world.upstream.checkpoint()

        def writing(reader: MemoryReader, of: Range) -> Iterator[pa.RecordBatch]:
            writes()
            return records(reader, of)

        monkeypatch.setattr(MemoryReader, "records", writing)
        writes()
        world.staged.records = 0
        world.run(once=once, until=until, max_cut=400)
        assert (world.state.checkpoint, world.staged.records < 50) == (until, True)

    @pytest.mark.parametrize("how", ["held", "stopped"])
    def test_a_table_that_was_behind_gets_all_of_its_rows_after_a_restart(self, how: str, tmp_path: Path) -> None:
        world = world_of(tmp_path)
        world.create(B)
        world.upstream.checkpoint()
        world.run()
        if how == "held":
            world.request(RequestKind.HOLD, A)
            world.run()
        world.insert(A, 2)
        offset = len(world.stream.partitions[0]) - 1
        record = world.stream.partitions[0][offset]
        if how == "stopped":
            world.stream.damage(0, offset)
        for key in range(30):
            world.insert(B, key)
            world.insert(A, 100 + key)
            world.upstream.checkpoint()
        world.run()
        assert world.state.tables[A].status is (TableStatus.HELD if how == "held" else TableStatus.STOPPED)
        world.stream.partitions[0][offset] = record
        if how == "held":
            world.request(RequestKind.RELEASE, A)
        world.run(max_cut=1000)
        world.check()

    def test_what_a_table_has_taken_is_not_offered_again_while_another_one_is_held(self, tmp_path: Path) -> None:
        world = world_of(tmp_path)
        world.create(B)
        world.upstream.checkpoint()
        world.run()
        world.request(RequestKind.HOLD, A)
        world.insert(A, 1)
        for key in range(10):
            world.insert(B, key)
            world.upstream.checkpoint()
            world.run()
        source = MemorySource(world.stream).event_source.staged_by(world.staged, world.place)  # type: ignore[arg-type]
        state = world.state
        bound = Bound(1 << 30, reached=state.table_checkpoint)
        offer = source.poll(state.position, state.checkpoint, bound=bound, shapes=state.shapes_by_table)
        assert {split.table_id for split in offer.splits} == {A}


class TestRestartsOfTheWriter:
    """Tables without key: whatever a restart repeats counts once, wherever polls and ranges end."""

    @pytest.mark.parametrize("cut", [0, 1])
    def test_a_repeat_may_come_with_a_later_poll_than_the_watermark_that_falls(
        self, cut: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        world = self._keyless(tmp_path, 1)
        records, held = world.stream.partitions[0], list[MemoryRecord]()
        since = world.upstream.checkpoint()
        later = world.upstream.checkpoint()
        assert since < later

        def restart() -> None:
            begin = len(records)
            world.stream.repeat(since)
            held.extend(records[begin + 1 + cut :])
            del records[begin + 1 + cut :]

        acts = [lambda: self._two_rows(world), restart, lambda: records.extend(held), world.upstream.checkpoint]
        follow(world, acts, monkeypatch)
        world.check()

    def test_a_restart_may_lie_in_one_range_with_the_watermark_that_it_goes_back_to(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        world = self._keyless(tmp_path, 2)
        own = zlib.crc32(repr((A, None)).encode()) % 2
        world.stream.stall(1 - own)

        def begins() -> None:
            world.upstream.execute(Insert(A, {"id": 8, "v": "w"}))
            world.upstream.checkpoint()
            world.upstream.execute(Insert(A, {"id": 9, "v": "z"}))

        def restart() -> None:
            since = world.upstream.checkpoint()
            self._two_rows(world)
            world.stream.repeat(since)

        def ends() -> None:
            world.upstream.checkpoint()
            world.stream.go_on()

        follow(world, [begins, restart, ends], monkeypatch)
        world.check()

    @pytest.mark.parametrize("runs", [1, 2])
    def test_the_writer_may_begin_again_twice_whether_or_not_a_run_ends_before(self, runs: int, tmp_path: Path) -> None:
        world = self._keyless(tmp_path, 1)
        first, second, _ = (world.upstream.checkpoint() for _ in range(3))
        if runs == 2:  # else the run has the watermarks before it
            world.run()
        self._two_rows(world)
        world.stream.repeat(first)
        world.stream.repeat(second)
        world.upstream.checkpoint()
        world.run()
        world.check()

    @pytest.mark.parametrize("times", [1, 2])
    @pytest.mark.parametrize("rows", [1, 2])
    def test_the_watermark_that_it_begins_with_may_be_above_all_it_had_told(self, rows: int, times: int, tmp_path: Path) -> None:
        """It had promised more to other partitions, or to nobody."""
        world = self._keyless(tmp_path, 1)
        world.upstream.checkpoint()
        world.stream.silence(0)
        since = world.upstream.checkpoint()
        world.stream.go_on()
        world.upstream.execute(*(Insert(A, {"id": n, "v": "x"}) for n in range(rows)))
        for _ in range(times):
            world.stream.repeat(since)
        world.upstream.checkpoint()
        (told,) = world.run().notices
        assert "They are taken for a repetition" in told.message
        world.check()

    def test_no_watermark_may_tell_it_behind_one_that_promised_the_rows(self, tmp_path: Path) -> None:
        world = self._keyless(tmp_path, 1)
        since = world.upstream.checkpoint()
        world.upstream.execute(Insert(A, {"id": 1, "v": "x"}))
        for _ in range(3):
            world.upstream.checkpoint()
            world.stream.repeat(since, is_told=False)
        world.upstream.checkpoint()
        assert not world.run().notices
        world.check()

    def test_a_watermark_that_rises_between_few_different_rows_of_a_transaction_is_no_restart(self, tmp_path: Path) -> None:
        world = self._keyless(tmp_path, 1)
        records = world.stream.partitions[0]
        world.upstream.checkpoint()
        world.stream.silence(0)
        at = world.upstream.checkpoint()
        world.stream.go_on()
        world.upstream.execute(*(Insert(A, {"id": 1, "v": "x"}) for _ in range(6)))
        records.insert(len(records) - 3, MemoryRecord(RecordKind.WATERMARK, TableId(""), at))
        world.upstream.checkpoint()
        (told,) = world.run().notices
        assert "They are taken for more rows of the same transaction" in told.message
        world.check()

    def test_a_watermark_that_comes_twice_between_rows_of_a_transaction_is_no_restart(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        world = self._keyless(tmp_path, 1)
        records = world.stream.partitions[0]
        at = world.upstream.checkpoint()
        world.upstream.execute(Insert(A, {"id": 1, "v": "x"}), Insert(A, {"id": 2, "v": "x"}))
        records.insert(len(records) - 1, MemoryRecord(RecordKind.WATERMARK, TableId(""), at))
        world.upstream.checkpoint()
        world.run()
        world.check()

    @staticmethod
    def _keyless(tmp_path: Path, partitions: int) -> World:
        world = World(tmp_path, partitions)
        world.create(A, keyless=True)
        world.upstream.checkpoint()
        world.run()
        return world

    @staticmethod
    def _two_rows(world: World) -> None:
        world.upstream.execute(Insert(A, {"id": 1, "v": "x"}), Insert(A, {"id": 2, "v": "y"}))


@pytest.fixture(params=["row", "TRUNCATE", "ALTER"])
def behind(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[World, int]:
    """A world in which a held table was released, and the partition with what the table has yet to take."""
    world = World(tmp_path, partitions=2)
    for table_id in (A, B):
        world.create(table_id)
    world.insert(B, 500)
    world.upstream.checkpoint()
    world.run()
    world.request(RequestKind.HOLD, B)
    world.run()
    more: dict[str, object] = {}
    if request.param == "TRUNCATE":
        world.upstream.truncate_table(B)
    if request.param == "ALTER":
        world.upstream.alter(B, AddColumn(Column("n", INT, default="7")))
        more = {"n": 5}
    world.insert(B, *(key_in(world, B, place) for place in (0, 1)), **more)
    world.insert(A, 1)
    world.upstream.checkpoint()
    world.run()
    world.request(RequestKind.RELEASE, B)
    return world, 1 if request.param == "row" else 0


def test_a_table_that_is_behind_passes_nothing_of_a_partition_that_is_not_named(behind: tuple[World, int]) -> None:
    world, place = behind
    world.stream.hidden.add(place)
    with pytest.raises(SourceUnreachableError, match=f"does not name its partition {place}. Its records "):
        world.run()
    world.stream.hidden.clear()
    world.run()
    world.check()
    assert world.state.tables[B].status is TableStatus.RUNNING


@pytest.mark.parametrize("has_records", [True, False])
def test_a_partition_that_a_run_has_seen_stays_known_before_its_first_cut(tmp_path: Path, has_records: bool) -> None:
    world = World(tmp_path, partitions=2)
    world.create(A)
    if not has_records:
        world.stream.stall(1)
    world.insert(A, *keys_in(world, A, 1, 0, 3))
    world.stream.silence(1)
    world.insert(A, *keys_in(world, A, 0, 0, 3))
    world.upstream.checkpoint()
    polls = 0

    def strike(moment: Moment, step: FaultPoint, detail: str) -> None:
        nonlocal polls
        polls += (moment, step) == (Moment.BEFORE, Step.POLL)
        world.stream.hidden |= {1} if polls == 2 else set()
        if polls == 4:
            world.stream.hidden.clear()
            world.stream.go_on()
            world.upstream.checkpoint()
        if polls == 6:
            raise Crashed

    former = faults.arm(strike)
    try:
        with suppress(Crashed):
            world.run(once=False, poll_interval=0.0)
    finally:
        faults.arm(former)
    world.upstream.checkpoint()
    world.run()
    world.check()
    assert [notice.sentence() for notice in world.notices] == [
        "Partition 1 has no watermark, and others have: nothing is applied until it has one.",
        "The stream does not name its partition 1 any more: nothing above its watermark is applied until it does.",
    ]


def test_a_record_is_given_up_once_its_partition_is_named_again(tmp_path: Path) -> None:
    world = world_of(tmp_path)
    world.insert(A, 1)
    world.insert(A, 2)
    offset = max(n for n, record in enumerate(world.stream.partitions[0]) if record.kind is RecordKind.ROWS)
    world.stream.damage(0, offset)
    world.upstream.checkpoint()
    world.run()
    assert world.state.tables[A].status is TableStatus.STOPPED
    since = world.state.table_checkpoint(A)
    world.ask(TableRequest("9999", A, RequestKind.SKIP_RECORD, place=PlaceInStream("0", offset), since=since))
    world.stream.hidden.add(0)
    with pytest.raises(SourceUnreachableError, match=f"The record at {offset} is given up when it can be looked for"):
        world.run()
    world.stream.hidden.clear()
    world.run()
    assert world.state.tables[A].status is TableStatus.INCOMPLETE or "was given up" in world.state.tables[A].reason
    assert world.rows(A) == Counter({(("id", 1), ("v", "1")): 1})


@pytest.mark.parametrize("change", [False, True])
def test_a_final_drain_goes_no_further_than_a_partition_that_is_not_named_at_its_poll(tmp_path: Path, change: bool) -> None:
    world = World(tmp_path, partitions=2)
    world.create(A)
    world.upstream.checkpoint()
    place = 0 if change else 1

    def strike(moment: Moment, step: FaultPoint, detail: str) -> None:
        nonlocal polls
        polls += (moment, step) == (Moment.BEFORE, Step.POLL)
        if polls == 3 and not world.stream.hidden:
            if change:
                world.upstream.alter(A, AddColumn(Column("n", INT, default="7")))
            more: dict[str, object] = {"n": 5} if change else {}
            world.insert(A, *keys_in(world, A, 0, 0, 3), *keys_in(world, A, 1, 0, 3), **more)
            world.stream.hidden.add(place)

    polls = 0
    former = faults.arm(strike)
    try:
        world.run(once=False, until_end=True, quiet=0.0, poll_interval=0.0)
    finally:
        faults.arm(former)
        world.stream.hidden.clear()
    world.upstream.checkpoint()
    world.run()
    world.check()
