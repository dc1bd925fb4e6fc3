"""How far a pipeline is behind a topic, and the alarm before the broker removes what it still needs."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from test_binlog_source import ddl

from harness import run_once
from headrace.cli.main import main
from headrace.kafka.client import KafkaClient
from headrace.kafka.retention import Retentions, limits
from headrace.model.backlog import Kept, Needed, PartitionBacklog
from headrace.model.stream import PartitionEnds
from headrace.sources.kafka import open_source
from headrace.sources.stream.backlog import RetentionWatch, backlogs
from headrace.sources.stream.position import StreamPosition
from headrace.testing.engine import LocalEngine
from kafka_cases import created, database_created, row, watermark
from kafka_server import KafkaBroker, Record

HOUR = 3_600_000
TABLES = (database_created(1), created(2), created(2, "b"))


class TestKept:
    @pytest.mark.parametrize(
        ("kept", "used", "soon", "left"),
        [
            (Kept(1000, 10_000), 0.4, False, 6000),
            (Kept(0, 10_000), 0.5, True, 5000),
            (Kept(0, 4_000), 1.25, True, 0),
            (Kept(0, None), 0.0, False, None),
            (Kept(None, 10_000), 0.0, False, None),
            (Kept(4_000, 10_000, up_to_bytes=100, size=60), 0.6, True, 9000),
            (Kept(4_000, 10_000, up_to_bytes=100, size=20), 0.2, False, 9000),
        ],
    )
    def test_half_of_the_time_or_of_the_bytes_is_soon(self, kept: Kept, used: float, soon: bool, left: int | None) -> None:
        assert (kept.used(5000), kept.ends_soon(5000), kept.left_ms(5000)) == (used, soon, left)

    @pytest.mark.parametrize(
        ("settings", "found"),
        [
            ({"retention.ms": "5", "retention.bytes": "-1", "cleanup.policy": "delete"}, (5, None)),
            ({"retention.ms": "-1", "retention.bytes": "7", "cleanup.policy": "compact,delete"}, (None, 7)),
            ({"retention.ms": "5", "retention.bytes": "7", "cleanup.policy": "compact"}, (None, None)),
            ({}, (None, None)),
        ],
    )
    def test_a_topic_keeps_records_by_its_settings(self, settings: dict[str, str], found: tuple[int | None, int | None]) -> None:
        assert limits(settings) == found

    def test_lost_records_are_those_before_the_first_one(self) -> None:
        assert PartitionBacklog("0", first=7, needed=4, read_to=9, end=12).lost == 3
        assert PartitionBacklog("0", first=4, needed=7, read_to=9, end=12).lost == 0


@dataclass
class Scene:
    """A topic that keeps records for an hour, and a DuckDB file."""

    kafka: KafkaBroker
    topic: str
    folder: Path
    capsys: pytest.CaptureFixture[str]
    scheme: str = "kafka"
    told: str = ""

    @property
    def uri(self) -> str:
        kafka = self.kafka.uri(self.topic)
        return kafka if self.scheme == "kafka" else f"tidb-binlog://{self.kafka.server}/{self.topic}"

    @property
    def sink(self) -> str:
        return f"duckdb://{self.folder}/x.duckdb"

    def write(self, *values: bytes, age_ms: int = 0) -> None:
        written = int(time.time() * 1000) - age_ms
        self.kafka.write(self.topic, [Record(value, timestamp_ms=written) for value in values])

    def run(self, uri: str = "") -> int:
        self.capsys.readouterr()
        code = run_once(uri or self.uri, self.sink, engine=LocalEngine())
        self.told = "".join(self.capsys.readouterr())
        return code

    def status(self, *options: str, source: str = "") -> str:
        self.capsys.readouterr()
        assert main(["status", "--sink", self.sink, "--source", source or self.uri, *options]) == 0
        self.told = "".join(self.capsys.readouterr())
        return self.told

    def fields(self) -> dict[str, Any]:
        lines = [json.loads(line) for line in self.status("--json").splitlines()]
        (found,) = [line for line in lines if line["event"] == "status"]
        return dict(found)


@pytest.fixture
def scene(kafka: KafkaBroker, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Scene:
    return Scene(kafka, kafka.make_topic(retention_ms=str(HOUR)), tmp_path, capsys)


@pytest.mark.server
@pytest.mark.pipeline
class TestStatus:
    def test_it_shows_how_many_records_were_not_read(self, scene: Scene) -> None:
        scene.write(*TABLES, row(4, 1), watermark(5))
        assert scene.run() == 0
        assert "not read yet: 0 records in 0 partitions" in scene.status()
        scene.write(row(6, 2), row(7, 3), watermark(8))
        assert "not read yet: 3 records in 1 partition" in scene.status()
        found = scene.fields()
        assert found["records_behind"] == 3
        (partition,) = found["partitions"]
        assert (partition["partition"], partition["needed"], partition["read_to"], partition["end"]) == ("0", 5, 5, 8)
        assert 3590 < partition["kept_seconds_left"] <= 3600

    def test_of_several_topics_it_names_each(self, scene: Scene) -> None:
        scene.write(*TABLES, row(4, 1), watermark(5))
        other = scene.kafka.make_topic(name=f"{scene.topic}_b")
        uri = scene.kafka.uri(scene.topic, topics=other)
        assert scene.run(uri) == 0
        scene.kafka.write(other, [Record(row(6, 2, table="b"))])
        assert f"{other}/0" in scene.status(source=uri)

    def test_records_that_a_stopped_table_needs_are_alarming_at_half_of_their_retention(self, scene: Scene) -> None:
        scene.write(*TABLES, row(4, 1), age_ms=50 * 60_000)
        scene.write(row(5, 2)[:-20], row(6, 1, table="b"), watermark(7), age_ms=20 * 60_000)
        assert scene.run() == 3
        assert scene.run() == 3
        assert "half of the retention" in scene.told, "the mark before the bad record is older"
        told = scene.status()
        assert "partition 0: offset 0 is still needed, and 83% of its retention is used up" in told
        assert "for its age it may be removed in 10 min" in told or "in 9 min" in told
        assert scene.fields()["retention_used"] == pytest.approx(0.83, abs=0.01)

    def test_records_that_are_young_alarm_nobody(self, scene: Scene) -> None:
        scene.write(*TABLES, row(4, 1), row(5, 2)[:-20], row(6, 1, table="b"), watermark(7), age_ms=20 * 60_000)
        assert scene.run() == 3
        assert scene.run() == 3
        assert "half of the retention" not in scene.told
        assert "is still needed" not in scene.status()

    def test_what_was_applied_alarms_nobody_however_old_it_is(self, scene: Scene) -> None:
        scene.write(*TABLES, row(4, 1), watermark(7), age_ms=50 * 60_000)
        assert scene.run() == 0
        assert scene.run() == 0
        assert "half of the retention" not in scene.told
        assert scene.fields()["retention_used"] is None

    def test_the_bytes_that_a_topic_keeps_count_too(self, scene: Scene) -> None:
        scene.topic = scene.kafka.make_topic(retention_bytes="2000")
        scene.write(*TABLES, row(4, 1), watermark(5))
        assert scene.run() == 0
        scene.write(*(row(6, n) for n in range(8)))
        assert "partition 0: offset 5 is still needed, and " in scene.status()

    def test_lost_records_are_counted(self, scene: Scene) -> None:
        scene.write(*TABLES, row(4, 1), row(5, 2)[:-20], row(6, 1, table="b"), watermark(7))
        assert scene.run() == 3
        scene.kafka.delete_records(scene.topic, 6)
        assert "needed records before offset 6 are not kept any more" in scene.status()

    def test_a_source_that_cannot_be_read_hides_nothing_of_the_ledger(self, scene: Scene) -> None:
        scene.write(*TABLES, row(4, 1), watermark(5))
        assert scene.run() == 0
        told = scene.status(source=scene.kafka.uri(scene.topic, enable_tls="true"))
        assert "checkpoint 2025" in told
        assert "not read yet" not in told
        assert "How far the pipeline is behind the source's end is not known. Kafka at" in " ".join(told.split())

    def test_another_source_says_nothing_of_the_pipeline(self, scene: Scene) -> None:
        scene.write(*TABLES, row(4, 1), watermark(5))
        assert scene.run() == 0
        assert "not read yet" not in scene.status(source=scene.kafka.uri(scene.kafka.make_topic()))

    def test_a_drainers_topic_has_the_same(self, scene: Scene) -> None:
        scene.scheme = "tidb-binlog"
        scene.write(ddl(1, "CREATE DATABASE d1", "", "d1"))
        assert scene.run() == 0
        scene.write(ddl(2, "CREATE DATABASE d2", "", "d2"), age_ms=40 * 60_000)
        told = scene.status()
        assert "not read yet: 1 record in 1 partition" in told
        assert "partition 0: offset 1 is still needed, and 67% of its retention is used up" in told


@pytest.mark.server
def test_a_partition_that_is_new_to_a_pipeline_is_needed_from_its_first_record(kafka: KafkaBroker) -> None:
    topic = kafka.make_topic(2)
    kafka.write(topic, [Record(watermark(1), partition) for partition in (0, 1)])
    ends = open_source(kafka.uri(topic)).event_source.reader.ends()
    known = StreamPosition().beginning({"0": 0}).to_text()
    (first, second) = backlogs(StreamPosition.parse(known), ends)
    assert [(of.needed, of.read_to, of.behind) for of in (first, second)] == [(0, 0, 1), (0, 0, 1)]


@pytest.mark.server
def test_the_retention_is_looked_at_once_a_minute(kafka: KafkaBroker) -> None:
    topic = kafka.make_topic(retention_ms=str(HOUR))
    reader = open_source(kafka.uri(topic)).event_source.reader
    kafka.write(topic, [Record(watermark(1), timestamp_ms=int(time.time() * 1000) - 40 * 60_000)])
    place, now = StreamPosition().beginning({"0": 0}), [0.0]
    watch = RetentionWatch(lambda: now[0])
    (told,) = watch.notices(reader, place, reader.ends())
    assert told.message.startswith("partition 0, offset 0: half of the retention of this record is used up")
    taken = place.moved_to(1 << 62)
    kafka.delete_records(topic, 1)
    now[0] = 59.0
    assert watch.notices(reader, taken, reader.ends())
    now[0] = 60.0
    assert not watch.notices(reader, taken, reader.ends())
    assert not RetentionWatch().notices(reader, StreamPosition(), reader.ends())


@pytest.mark.server
def test_a_record_is_only_looked_at_if_half_of_its_time_may_be_over(kafka: KafkaBroker) -> None:
    topic, now_ms = kafka.make_topic(retention_ms=str(HOUR)), int(time.time() * 1000)
    kafka.write(topic, [Record(watermark(1), timestamp_ms=now_ms - 50 * 60_000)])
    ends, places = {"0": PartitionEnds("0", 0, 1, 64.0)}, {"0": (topic, 0)}
    retentions = Retentions()
    with KafkaClient.connect([kafka.server], {}) as client:

        def written(after_ms: int) -> int | None:
            return retentions.kept(client, {"0": Needed(0, after_ms)}, places, ends)["0"].written_ms

        assert written(now_ms - 20 * 60_000) == now_ms - 20 * 60_000
        assert written(0) == now_ms - 50 * 60_000
        kafka.delete_records(topic, 1)
        assert written(now_ms - 40 * 60_000) == now_ms - 50 * 60_000, "it is remembered"
