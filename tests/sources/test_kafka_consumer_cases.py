"""The cases of a consumer's states (specification, Part C.6), under their numbers, from a real broker into DuckDB.

B63, and B54 with several topics, are in ``test_kafka_topics``. B66 (no rebalance) cannot happen: there is no consumer group.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import duckdb
import pytest

from harness import run_once
from headrace.testing.engine import LocalEngine
from headrace.testing.faults import Crashed, Moment, Step, armed, crash_at
from kafka_cases import created, database_created, message, row, statement, tso, watermark
from kafka_server import KafkaBroker, Record

pytestmark = [pytest.mark.server, pytest.mark.pipeline]


@dataclass
class Scene:
    """A topic in whose first partition the table ``a`` is created, and a DuckDB file that runs apply it to."""

    kafka: KafkaBroker
    folder: Path
    capsys: pytest.CaptureFixture[str]
    topic: str = ""
    told: str = ""

    def begin(self, partitions: int = 2) -> None:
        self.topic = self.kafka.make_topic(partitions)
        self.write(0, database_created(1), created(2))

    def write(self, partition: int, *values: bytes) -> None:
        self.kafka.write(self.topic, [Record(value, partition) for value in values])

    def run(self, **params: object) -> int:
        self.capsys.readouterr()
        uri, sink = self.kafka.uri(self.topic, **params), f"duckdb://{self.folder}/x.duckdb"
        code = run_once(uri, sink, engine=LocalEngine())
        self.told = "".join(self.capsys.readouterr())
        return code

    def query(self, text: str) -> Sequence[tuple[object, ...]]:
        with duckdb.connect(str(self.folder / "x.duckdb")) as connection:
            return connection.execute(text).fetchall()

    def keys(self) -> list[object]:
        return [key for (key,) in self.query("SELECT id FROM shop.a ORDER BY id")]


@pytest.fixture
def scene(kafka: KafkaBroker, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Scene:
    found = Scene(kafka, tmp_path, capsys)
    found.begin()
    return found


def updated(second: int, key: int, old: str, new: str) -> bytes:
    types = {"id": "int", "v": "varchar"}
    values = {"id": str(key), "v": new}
    return message("UPDATE", tso(second), mysqlType=types, data=[values], old=[{**values, "v": old}])


def deleted(second: int, key: int, value: str) -> bytes:
    return message("DELETE", tso(second), mysqlType={"id": "int", "v": "varchar"}, data=[{"id": str(key), "v": value}])


def test_b51_the_least_watermark_counts(scene: Scene) -> None:
    scene.write(0, row(10, 10), watermark(20))
    scene.write(1, row(15, 15), watermark(12))
    assert scene.run() == 0
    assert scene.keys() == [10]
    scene.write(1, watermark(20))
    assert scene.run() == 0
    assert scene.keys() == [10, 15]


def test_b52_b53_rows_up_to_a_schema_change_come_before_it(scene: Scene) -> None:
    """A row at the change's own commit ts, too: it has no value for the new column, and gets the default."""
    alter = statement(20, "ALTER TABLE a ADD w INT DEFAULT 5 NOT NULL", type="ALTER")
    types = {"id": "int", "v": "varchar", "w": "int"}
    wide = message("INSERT", tso(21), mysqlType=types, data=[{"id": "21", "v": "x", "w": "1"}])
    scene.write(0, alter, watermark(25))
    scene.write(1, row(19, 19), wide, row(20, 20), watermark(25))
    assert scene.run() == 0
    assert scene.query("SELECT id, w FROM shop.a ORDER BY id") == [(19, 5), (20, 5), (21, 1)]


def test_b54_a_schema_change_in_every_partition_runs_once(scene: Scene) -> None:
    scene.begin(3)
    for partition in range(3):
        scene.write(partition, statement(5, "TRUNCATE TABLE a", type="TRUNCATE"), row(6, partition), watermark(9))
    assert scene.run() == 0
    assert scene.keys() == [0, 1, 2]
    assert scene.query("SELECT count(*) FROM headrace.ddl_journal WHERE statement LIKE 'TRUNCATE%'") == [(1,)]


def test_b55_what_was_applied_and_comes_again_changes_nothing(scene: Scene) -> None:
    scene.write(0, row(25, 1, "old"), updated(26, 1, "old", "new"), watermark(30))
    scene.write(1, watermark(30))
    assert scene.run() == 0
    for partition in (0, 1):
        scene.write(partition, row(25, 1, "old"), watermark(31))
    assert scene.run() == 0
    assert scene.query("SELECT id, v FROM shop.a") == [(1, "new")]


def test_b56_a_row_below_its_partitions_watermark_and_above_the_least_one_is_applied(scene: Scene) -> None:
    """Of two runs, so that the partition's watermark is known from before."""
    scene.write(0, watermark(30))
    scene.write(1, watermark(10))
    assert scene.run() == 0
    scene.write(0, row(25, 25))
    scene.write(1, watermark(30))
    assert scene.run() == 0
    assert scene.keys() == [25]


def test_b57_rows_are_applied_in_the_order_of_their_commit_ts(scene: Scene) -> None:
    scene.write(0, updated(30, 1, "20", "30"), row(10, 1, "10"), updated(20, 1, "10", "20"), watermark(30))
    scene.write(1, watermark(30))
    assert scene.run() == 0
    assert scene.query("SELECT id, v FROM shop.a") == [(1, "30")]


def test_b58_a_watermark_does_not_go_back(scene: Scene) -> None:
    scene.write(0, row(38, 38), watermark(40), watermark(35))
    scene.write(1, watermark(40))
    assert scene.run() == 0
    assert scene.keys() == [38]


def test_b59_schema_changes_run_in_the_order_of_their_commit_ts(scene: Scene) -> None:
    first = statement(20, "ALTER TABLE a ADD w INT", type="ALTER")
    second = statement(30, "ALTER TABLE a RENAME COLUMN w TO x", type="ALTER")
    scene.write(0, second, first, watermark(40))
    scene.write(1, watermark(40))
    assert scene.run() == 0
    assert scene.query("SELECT id, v, x FROM shop.a") == []


@pytest.mark.parametrize("step", [Step.STAGE, Step.SCHEMA_CHANGE])
def test_b60_rows_that_wait_are_read_again_after_a_crash(step: Step, scene: Scene) -> None:
    scene.write(0, row(15, 15), watermark(20))
    scene.write(1, watermark(12))
    with pytest.raises(Crashed), armed(crash_at(Moment.AFTER, step)):
        scene.run()
    assert scene.run() == 0
    assert scene.keys() == []
    scene.write(1, watermark(20))
    assert scene.run() == 0
    assert scene.keys() == [15]


def test_b61_partitions_that_the_changefeed_does_not_use_are_reported_until_they_are_left_out(scene: Scene) -> None:
    scene.begin(4)
    scene.write(0, row(4, 1), watermark(5))
    scene.write(1, watermark(5))
    scene.run()
    for partition in (2, 3):
        assert f"Partition {partition} has no watermark, and others have: nothing is applied until it has one." in scene.told
    assert scene.run(partition_num=2) == 0
    assert scene.keys() == [1]


def test_b62_a_partition_that_is_added_holds_the_watermark_until_its_own(scene: Scene) -> None:
    scene.write(0, row(4, 1), watermark(5))
    scene.write(1, watermark(5))
    assert scene.run() == 0
    scene.kafka.add_partitions(scene.topic, 3)
    scene.write(2, row(6, 2))
    for partition in (0, 1):
        scene.write(partition, watermark(8))
    scene.run()
    assert "Partition 2 has no watermark, and others have" in scene.told
    assert scene.keys() == [1]
    scene.write(2, watermark(8))
    assert scene.run() == 0
    assert scene.keys() == [1, 2]


def test_b64_a_row_that_moves_to_another_partition_in_one_transaction_is_there_once(scene: Scene) -> None:
    """An UPDATE of a unique column comes as DELETE and INSERT, here read in the other order."""
    scene.write(0, row(4, 1, "x"), row(5, 1, "y"), watermark(9))
    scene.write(1, deleted(5, 1, "x"), watermark(9))
    assert scene.run() == 0
    assert scene.query("SELECT id, v FROM shop.a") == [(1, "y")]


def test_b65_transactions_of_one_commit_ts_keep_the_order_of_their_partition(scene: Scene) -> None:
    scene.write(0, row(4, 1, "first"), updated(4, 1, "first", "second"), updated(4, 1, "second", "third"), watermark(9))
    scene.write(1, watermark(9))
    assert scene.run() == 0
    assert scene.query("SELECT id, v FROM shop.a") == [(1, "third")]


def test_b67_a_table_that_is_made_above_the_watermark_waits(scene: Scene) -> None:
    """It might be made earlier. Waiting is right for every statement, such as CREATE TABLE … LIKE, which reads another table."""
    scene.write(0, created(10, "b"), statement(11, "CREATE TABLE c LIKE a", "c"), watermark(20))
    scene.write(1, watermark(9))
    assert scene.run() == 0
    tables = "SELECT table_name FROM information_schema.tables WHERE table_schema = 'shop' ORDER BY 1"
    assert scene.query(tables) == [("a",)]
    scene.write(1, watermark(20))
    assert scene.run() == 0
    assert scene.query(tables) == [("a",), ("b",), ("c",)]


def test_b68_a_schema_change_that_only_the_first_partition_has_concerns_all(scene: Scene) -> None:
    scene.write(0, statement(5, "TRUNCATE TABLE a", type="TRUNCATE"), watermark(9))
    scene.write(1, row(4, 4), row(6, 6), watermark(9))
    assert scene.run() == 0
    assert scene.keys() == [6]
