"""The tests that every source must pass, for authors of sources to run with pytest.

Derive a class with a fixture that returns an empty source and the writer that fills it:

    class TestMySource(SourceSuite):
        @pytest.fixture
        def source(self, tmp_path: Path) -> SourceUnderTest:
            writer = MyWriter(tmp_path)
            return SourceUnderTest(open=lambda: open_source(writer.uri).event_source, writer=writer)

``headrace.testing.upstream`` drives the writer. Each call goes to a new object of the source, as in another process.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from headrace.faults import Moment
from headrace.model.block import COMMIT_TS, ChangeBlock
from headrace.model.offer import Learned, Offer
from headrace.model.outcome import SplitReport
from headrace.model.split import Split, Window
from headrace.model.table import Column, TableId
from headrace.model.types import ColumnType, TypeKind
from headrace.places.work_place import WorkLease
from headrace.sources.base import EventSource
from headrace.testing.faults import Crashed, Passage
from headrace.testing.memory_server import Server
from headrace.testing.memory_sink import CAPABILITIES, MemorySink
from headrace.testing.sink_runs import PIPELINE, SinkRuns, SinkUnderTest, SourceUnderTest, at, staged
from headrace.testing.upstream import Delete, Insert, Update, Upstream
from headrace.testing.upstream_ddl import AddColumn

__all__ = ["SourceSuite", "SourceUnderTest"]

INT, TEXT = ColumnType(TypeKind.INT), ColumnType(TypeKind.VARCHAR, length=20)
A, B = (TableId("suite_shop", name) for name in "ab")
_CUTS = 150
"""If a position took a few dozen bytes for each cut, it would exceed ``SourceUnderTest.position_bytes``."""


class World:
    """A source, its writer, and a place for staged data. No object of the source is used for two calls."""

    def __init__(self, source: SourceUnderTest, work: WorkLease) -> None:
        self.source, self._work = source, work
        self.upstream = Upstream(source.writer)

    def events(self) -> EventSource:
        """A new object that went through pickle once."""
        opened: EventSource = pickle.loads(pickle.dumps(self.source.open()))
        return staged(opened, self._work.place())

    def poll(self, position: str = "", checkpoint: int = 0, learned: Learned | None = None) -> Offer:
        """What a new object offers. Asserts that no two splits have one key."""
        offer = self.events().poll(position, checkpoint, learned=learned, shapes={})
        assert len({split.key for split in offer.splits}) == len(offer.splits), "each split has a key of its own"
        return offer

    def rows(self, split: Split, window: Window) -> list[pa.RecordBatch]:
        """The rows of a split, read by a new object. Asserts that exactly one report follows them."""
        found: list[ChangeBlock | SplitReport] = list(self.events().read(pickle.loads(pickle.dumps(split)), window))
        *blocks, report = found
        assert isinstance(report, SplitReport), "the report of a split comes last"
        assert report.problem is None, report.problem
        batches = [block.batch for block in blocks if isinstance(block, ChangeBlock)]
        assert len(batches) == len(blocks), "a split has one report"
        return batches

    def times(self, offer: Offer, window: Window) -> list[int]:
        """The commit ts of all rows of an offer inside a window, sorted."""
        batches = [batch for split in offer.splits for batch in self.rows(split, window)]
        return sorted(ts for batch in batches for ts in batch.column(COMMIT_TS).to_pylist())


class SourceSuite:
    """The tests, for sources whose rows have exact commit ts. A subclass provides a fixture ``source`` with an empty source."""

    @pytest.fixture
    def source(self) -> SourceUnderTest:
        """The source under test, provided by the subclass."""
        raise NotImplementedError("a subclass of SourceSuite needs a fixture named source")

    @pytest.fixture
    def world(self, source: SourceUnderTest) -> Iterator[World]:
        """An upstream with two tables."""
        with WorkLease() as work:
            world = World(source, work)
            world.upstream.create_database("suite_shop")
            for table_id in (A, B):
                world.upstream.create_table(table_id, [Column("id", INT, primary_key=True), Column("v", TEXT)])
            yield world

    def test_an_offer_depends_on_nothing_but_what_is_asked(self, world: World) -> None:
        _insert(world, *range(5))
        world.upstream.checkpoint()
        first, second = world.poll(), world.poll()
        assert _told(first) == _told(second)
        assert first.splits
        assert world.events().mark("") == world.events().mark("")

    def test_all_rows_up_to_the_watermark_are_offered_and_those_above_it_wait(self, world: World) -> None:
        wanted = [_insert(world, n) for n in range(5)]
        watermark = world.upstream.checkpoint()
        above = _insert(world, 10)
        offer = world.poll()
        assert max(wanted) <= offer.watermark <= watermark < above
        assert world.times(offer, Window(0, offer.watermark)) == wanted
        world.upstream.checkpoint()
        later = world.poll()
        assert later.watermark >= above
        assert world.times(later, Window(0, later.watermark)) == [*wanted, above]

    def test_schema_changes_are_offered_in_their_order_and_below_the_bound(self, world: World) -> None:
        _insert(world, 1)
        changed = world.upstream.alter(A, AddColumn(Column("n", INT, default="7")))
        world.upstream.execute(Insert(A, {"id": 2, "v": "v", "n": 1}))
        world.upstream.checkpoint()
        offer = world.poll()
        times = [change.commit_ts for change in offer.schema_changes]
        assert times == sorted(times)
        assert [change.commit_ts for change in offer.schema_changes if change.table_id == A][-1] == changed
        assert max(times) < offer.schema_bound

    def test_a_split_that_is_read_twice_gives_the_same(self, world: World) -> None:
        _insert(world, *range(50))
        world.upstream.execute(Update(A, (1,), {"v": "w"}), Delete(A, (2,)))
        world.upstream.checkpoint()
        offer = world.poll()
        for split in offer.splits:
            first, second = (world.rows(split, Window(0, offer.watermark)) for _ in range(2))
            assert first == second

    def test_two_windows_that_meet_hold_each_row_once(self, world: World) -> None:
        times = [_insert(world, n) for n in range(6)]
        world.upstream.checkpoint()
        offer = world.poll()
        for middle in times:
            lower = world.times(offer, Window(0, middle))
            upper = world.times(offer, Window(middle, offer.watermark))
            assert (lower, upper) == ([t for t in times if t <= middle], [t for t in times if t > middle])

    def test_what_is_offered_and_learned_travels_to_other_processes(self, world: World) -> None:
        _insert(world, 1)
        world.upstream.checkpoint()
        offer = world.poll()
        assert _told(pickle.loads(pickle.dumps(offer))) == _told(offer)
        again = world.poll(learned=pickle.loads(pickle.dumps(offer.learned)))
        assert world.times(again, Window(0, again.watermark)) == world.times(offer, Window(0, offer.watermark))

    def test_a_source_in_which_nothing_happened_offers_no_split_and_one_mark(self, world: World, tmp_path: Path) -> None:
        runs, server = _runs(world, tmp_path)
        _insert(world, *range(3))
        runs.applied()
        state = server.contents.ledgers[PIPELINE]
        mark = world.events().mark(state.position)
        assert world.poll(state.position, state.checkpoint).splits == ()
        assert world.events().mark(state.position) == mark
        _insert(world, 9)
        world.upstream.checkpoint()
        assert world.events().mark(state.position) != mark

    def test_a_position_stays_small_whatever_is_applied(self, world: World, tmp_path: Path) -> None:
        runs, server = _runs(world, tmp_path)
        for number in range(_CUTS):
            _insert(world, number)
            world.upstream.checkpoint()
            runs.run()
        runs.check()
        assert len(server.contents.ledgers[PIPELINE].position) <= world.source.position_bytes

    def test_every_row_comes_once_wherever_a_run_dies(self, world: World, tmp_path: Path) -> None:
        runs, _ = _runs(world, tmp_path)
        number, died = 0, True

        def die(passage: Passage) -> None:
            raise Crashed(str(passage))

        while died:
            number += 1
            _insert(world, 2 * number, 2 * number + 1)
            world.upstream.execute(Delete(A, (2 * number,)))
            if number % 3 == 0:
                world.upstream.truncate_table(B)
            world.upstream.checkpoint()
            try:
                runs.run(at(number, die, lambda passage: passage.moment is Moment.AFTER))
                died = False
            except Crashed:
                runs.run()
            runs.check()
        assert number > 2, "the run came by no step at which it could die"


def _insert(world: World, *keys: int) -> int:
    """Inserts rows into the first table in one transaction. Returns its commit ts."""
    return world.upstream.execute(*(Insert(A, {"id": key, "v": f"{key}"}) for key in keys))


def _told(offer: Offer) -> object:
    splits = [(s.key, s.table_id, s.version, s.rank, s.size, s.schema) for s in offer.splits]
    return offer.watermark, offer.schema_bound, offer.schema_changes, splits, offer.problems, offer.precision


def _runs(world: World, folder: Path) -> tuple[SinkRuns, Server]:
    """Runs from the source into an in-memory target."""
    server = Server()
    capabilities = CAPABILITIES["nothing atomic"]
    target = SinkUnderTest(
        lambda: MemorySink(server, capabilities), lambda schema: list(server.contents.tables[schema.table_id].rows.values())
    )
    return SinkRuns(target, folder / "ledger", world.source, world.upstream), server
