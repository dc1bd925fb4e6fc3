"""Which record of which partition is applied, and when: the cases of a consumer of TiCDC's Kafka sink, as timelines.

A moment is a number. The moments of a timeline lie behind the table's creation, which all partitions have promised.
"""

from __future__ import annotations

import pickle
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from following import Recorder
from headrace.model.table import Column, TableId, TableSchema
from headrace.sources.stream.records import RecordKind
from headrace.testing.faults import Crashed, Moment, Step, armed, crash_at
from headrace.testing.memory_source import MemoryRecord
from streams import ID, INT, TEXT, A, B, World
from test_stream_repeats import every_change

pytestmark = pytest.mark.pipeline

AS_CREATED = TableSchema(A, (ID, Column("v", TEXT)), ("id",))
WIDER = TableSchema(A, (*AS_CREATED.columns, Column("n", INT, default="7")), ("id",))
TRUNCATE, ADD_COLUMN = "TRUNCATE TABLE `shop`.`a`", "ALTER TABLE `shop`.`a` ADD COLUMN `n` INT DEFAULT '7'"
DROP_COLUMN = "ALTER TABLE `shop`.`a` DROP COLUMN `n`"


@dataclass
class Timeline:
    """A stream that is written record by record, and a target whose table A exists."""

    world: World
    begin: int = field(init=False)

    def __post_init__(self) -> None:
        self.world.create(A)
        self.world.upstream.checkpoint()
        self.world.run()
        self.begin = self.world.stream.promised

    def row(self, place: int, moment: int, key: int, value: str | None = None, *, was: str | None = None, **more: object) -> None:
        """A new row of A with this ``value``; with ``was`` the update of one, and without ``value`` its deletion."""
        images = [None if text is None else {"id": key, "v": text, **more} for text in (was, value)]
        self._put(place, RecordKind.ROWS, moment, A, tuple(images))

    def statement(self, place: int, moment: int, text: str, schema: TableSchema | None = AS_CREATED, table_id: TableId = A) -> None:
        self._put(place, RecordKind.STATEMENT, moment, table_id, (text, schema))

    def watermark(self, moment: int, *places: int) -> None:
        """In these partitions, or in all."""
        for place in places or range(self.world.partitions):
            self._put(place, RecordKind.WATERMARK, moment, TableId(""), None)

    def _put(self, place: int, kind: RecordKind, moment: int, table_id: TableId, content: object) -> None:
        value = b"" if content is None else pickle.dumps(content)
        self.world.stream.partitions[place].append(MemoryRecord(kind, table_id, self.ts(moment), value))

    def ts(self, moment: int) -> int:
        """The moment's commit ts (TSO)."""
        return self.begin + (moment << 18)

    @property
    def reached(self) -> int:
        """The moment up to which everything is applied."""
        return (self.world.state.checkpoint - self.begin) >> 18

    def run(self) -> Recorder:
        told = self.world.run()
        assert not told.stopped
        return told

    def rows(self) -> dict[object, tuple[object, ...]]:
        """The target's rows of A: the values behind each key."""
        found = (dict(row) for row in self.world.rows(A))
        return {row.pop("id"): tuple(row.values()) for row in found}

    def log(self) -> list[tuple[int, object, object]]:
        """What reached the log of A, in its order: moment, key and value."""
        changes = self.world.server.contents.logs[A].changes
        found = ((change.commit_ts, dict(change.row)) for change in changes)
        return [((ts - self.begin) >> 18, row["id"], row["v"]) for ts, row in found]


@pytest.fixture
def timeline(tmp_path: Path) -> Timeline:
    """With two partitions."""
    return Timeline(World(tmp_path, partitions=2))


@pytest.fixture
def logged(tmp_path: Path) -> Timeline:
    """With two partitions, into a target that gets every change."""
    return Timeline(World(tmp_path, partitions=2, logged=every_change))


@pytest.mark.reading_case("B51")
def test_the_least_watermark_of_all_partitions_says_what_is_applied(timeline: Timeline) -> None:
    timeline.row(0, 10, 1, "x")
    timeline.watermark(20, 0)
    timeline.row(1, 15, 2, "x")
    timeline.watermark(12, 1)
    timeline.run()
    assert (timeline.rows(), timeline.reached) == ({1: ("x",)}, 12)
    timeline.watermark(20, 1)
    timeline.run()
    assert (timeline.rows(), timeline.reached) == ({1: ("x",), 2: ("x",)}, 20)


@pytest.mark.reading_case("B52", "B53")
def test_rows_up_to_a_schema_change_come_before_it_and_those_above_it_afterwards(timeline: Timeline) -> None:
    timeline.row(1, 19, 1, "x")
    timeline.row(1, 20, 2, "x")
    timeline.row(1, 21, 3, "x")
    timeline.statement(0, 20, TRUNCATE)
    timeline.watermark(25)
    timeline.run()
    assert timeline.rows() == {3: ("x",)}


@pytest.mark.reading_case("B54")
def test_a_schema_change_that_every_partition_has_runs_once(tmp_path: Path) -> None:
    timeline = Timeline(World(tmp_path, partitions=3))
    for place in range(3):
        timeline.statement(place, 20, ADD_COLUMN, WIDER)
        timeline.watermark(25, place)
    before = timeline.world.server.contents.effects
    timeline.run()
    assert list((timeline.world.server.contents.effects - before).values()) == [1]
    assert list(timeline.world.server.contents.tables[A].columns) == ["id", "v", "n"]


@pytest.mark.reading_case("B55")
def test_a_row_below_a_watermark_that_was_applied_is_a_repeat(timeline: Timeline) -> None:
    timeline.row(0, 25, 1, "x")
    timeline.watermark(30)
    timeline.run()
    timeline.row(0, 25, 1, "another")
    timeline.row(0, 24, 2, "x")
    timeline.watermark(40)
    told = timeline.run()
    assert (timeline.rows(), timeline.reached, told.notices) == ({1: ("x",)}, 40, [])


@pytest.mark.reading_case("B56")
def test_a_row_below_its_partitions_watermark_counts_as_long_as_another_partition_is_behind_it(timeline: Timeline) -> None:
    timeline.watermark(30, 0)
    timeline.watermark(10, 1)
    timeline.run()
    timeline.row(0, 25, 1, "x")
    timeline.run()
    assert timeline.rows() == {}
    timeline.watermark(30, 1)
    timeline.run()
    assert timeline.rows() == {1: ("x",)}


@pytest.mark.reading_case("B57")
def test_rows_are_applied_by_commit_ts_and_equal_ones_as_they_arrived(logged: Timeline) -> None:
    for moment, key in ((30, 3), (10, 1), (20, 9), (20, 2), (20, 5)):
        logged.row(0, moment, key, "x")
    found = [(10, 1), (20, 9), (20, 2), (20, 5), (30, 3)]
    logged.watermark(25)
    logged.run()
    assert [(moment, key) for moment, key, _ in logged.log()] == found[:4]
    logged.watermark(30)
    logged.run()
    assert [(moment, key) for moment, key, _ in logged.log()] == found


@pytest.mark.reading_case("B58")
def test_a_watermark_that_falls_takes_nothing_back(timeline: Timeline) -> None:
    timeline.row(0, 38, 1, "x")
    timeline.watermark(40, 0)
    timeline.watermark(35, 0)
    timeline.watermark(40, 1)
    timeline.run()
    assert (timeline.rows(), timeline.reached) == ({1: ("x",)}, 40)


@pytest.mark.reading_case("B59")
def test_schema_changes_run_by_commit_ts_whatever_their_order_of_arrival(timeline: Timeline) -> None:
    timeline.statement(0, 30, DROP_COLUMN)
    timeline.statement(0, 20, ADD_COLUMN, WIDER)
    timeline.row(0, 25, 1, "x", n=5)
    timeline.watermark(40)
    timeline.run()
    assert list(timeline.world.server.contents.tables[A].columns) == ["id", "v"]
    assert timeline.rows() == {1: ("x",)}


@pytest.mark.reading_case("B60")
@pytest.mark.parametrize("step", [Step.STAGE, Step.ROUND])
def test_a_row_that_waits_for_another_partition_survives_the_end_of_its_run(timeline: Timeline, step: Step) -> None:
    timeline.row(0, 5, 1, "x")
    timeline.watermark(20, 0)
    timeline.row(1, 15, 2, "x")
    timeline.watermark(12, 1)
    with armed(crash_at(Moment.AFTER, step)), pytest.raises(Crashed):
        timeline.run()
    timeline.world.place.remove("")
    timeline.run()
    assert timeline.rows() == {1: ("x",)}
    timeline.world.place.remove("")
    timeline.watermark(20, 1)
    timeline.run()
    assert timeline.rows() == {1: ("x",), 2: ("x",)}


@pytest.mark.reading_case("B62")
def test_a_partition_that_is_added_holds_everything_until_its_first_watermark_and_says_so(timeline: Timeline) -> None:
    stream = timeline.world.stream
    stream.count = timeline.world.partitions = 3
    stream.partitions.append([])
    stream.first.append(0)
    stream._waiting.append([])
    timeline.row(0, 10, 1, "x")
    timeline.row(2, 11, 2, "x")
    timeline.watermark(20, 0, 1)
    told = timeline.run()
    assert [n.message for n in told.notices] == [
        "Partition 2 has no watermark, and others have: nothing is applied until it has one."
    ]
    assert (timeline.rows(), timeline.reached) == ({}, 0)
    timeline.watermark(20, 2)
    timeline.run()
    assert timeline.rows() == {1: ("x",), 2: ("x",)}


@pytest.mark.reading_case("B64")
def test_the_halves_of_an_update_meet_from_two_partitions(timeline: Timeline) -> None:
    """Key 1 becomes 2, and the row of key 3 gets another value of a unique column, whose insertion arrives before the deletion."""
    timeline.row(0, 5, 1, "x")
    timeline.row(0, 5, 3, "y")
    timeline.watermark(6)
    timeline.run()
    timeline.row(0, 10, 3, "z")
    timeline.row(0, 10, 1, was="x")
    timeline.watermark(20, 0)
    timeline.run()
    timeline.row(1, 10, 2, "x")
    timeline.row(1, 10, 3, was="y")
    timeline.watermark(20, 1)
    timeline.run()
    assert timeline.rows() == {2: ("x",), 3: ("z",)}


@pytest.mark.reading_case("B65")
def test_changes_of_one_commit_ts_and_row_keep_the_order_in_which_they_arrived(timeline: Timeline) -> None:
    timeline.row(0, 10, 1, "x")
    timeline.row(0, 10, 1, "y", was="x")
    timeline.row(0, 10, 1, "z", was="y")
    timeline.watermark(20)
    timeline.run()
    assert timeline.rows() == {1: ("z",)}


@pytest.mark.reading_case("B67")
@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("CREATE TABLE `shop`.`b` (`id` INT PRIMARY KEY, `v` VARCHAR(20))", AS_CREATED.columns),
        ("CREATE TABLE `shop`.`b` LIKE `shop`.`a`", WIDER.columns),
    ],
)
def test_a_new_table_waits_for_the_watermark_too(timeline: Timeline, text: str, columns: tuple[Column, ...]) -> None:
    timeline.statement(0, 20, ADD_COLUMN, WIDER)
    timeline.statement(0, 30, text, TableSchema(B, columns, ("id",)), B)
    timeline.watermark(25)
    timeline.run()
    assert set(timeline.world.server.contents.tables) == {A}
    timeline.watermark(30)
    timeline.run()
    assert list(timeline.world.server.contents.tables[B].columns) == [column.name for column in columns]
