"""What ``headrace inspect`` and ``headrace validate`` tell of a topic."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path

import pytest

from harness import run_once
from headrace.cli.main import main
from headrace.errors import SourceNotReadyError
from headrace.model.inspection import Severity
from headrace.model.table import TableId
from headrace.model.tso import format_tso
from headrace.sources.kafka import open_source
from headrace.sources.kafka.reader import KafkaReader
from headrace.testing.engine import LocalEngine
from kafka_cases import KafkaCase, created, database_created, message, row, tso, watermark
from kafka_server import KafkaBroker, Record

pytestmark = pytest.mark.server

A, B = TableId("shop", "a"), TableId("shop", "b")


def filled(kafka: KafkaBroker, *values: bytes, partitions: int = 1) -> str:
    topic = kafka.make_topic(partitions)
    kafka.write(topic, [Record(value) for value in values])
    return kafka.uri(topic)


def test_a_topic_is_told_with_its_tables_and_its_watermark(kafka: KafkaBroker) -> None:
    alter = message("ALTER", tso(5), sql="ALTER TABLE a ADD w INT")
    values = (database_created(1), created(2), row(4, 1), row(5, 2), alter, row(6, 3), watermark(7))
    found = open_source(filled(kafka, *values)).inspect(count_rows=True)
    assert (found.databases, found.checkpoint, found.findings) == (("shop",), tso(7), ())
    (table,) = found.tables
    assert (table.table_id, table.exists, [version.rows for version in table.versions]) == (A, True, [2, 1])


def test_what_is_wrong_is_found(kafka: KafkaBroker) -> None:
    bad = message("INSERT", tso(4), mysqlType={}, data=[{"id": "x", "v": "1"}])
    values = (database_created(1), created(2), row(4, 1), bad, row(5, 1, table="b"), b"{", watermark(7))
    found = open_source(filled(kafka, *values, partitions=2)).check()
    told = {(finding.kind, finding.table_id, finding.file, finding.severity) for finding in found.findings}
    assert told == {
        ("bad-row", A, "partition 0, offset 3", Severity.ERROR),
        ("unknown-columns", B, "", Severity.ERROR),
        ("unreadable-message", None, "partition 0, offset 5", Severity.ERROR),
        ("no-watermark", None, "", Severity.WARNING),
    }
    assert found.inspection.checkpoint is None


def test_records_in_partitions_above_partition_num_are_found(kafka: KafkaBroker) -> None:
    topic = kafka.make_topic(3)
    kafka.write(topic, [Record(value, partition) for value in (database_created(1), watermark(5)) for partition in (0, 2)])
    (finding,) = open_source(f"{kafka.uri(topic)}&partition-num=1").inspect().findings
    assert (finding.kind, finding.severity) == ("not-read", Severity.WARNING)
    assert finding.message.startswith(f"Partition 2 of the topic {topic} has records and is not read, because partition-num is 1.")


@pytest.mark.parametrize(
    ("protocol", "name"),
    [
        *(("canal-json", name) for name in ("content-compatible", "ddl", "only-updated")),
        *(("open-protocol", name) for name in ("ddl", "only-updated", "types")),
        *(("simple", name) for name in ("json-basic", "json-ddl", "json-types")),
        *(("debezium", name) for name in ("basic-noschema", "basic-schema", "ddl", "types")),
    ],
)
def test_nothing_is_wrong_with_what_ticdc_writes(protocol: str, name: str, kafka: KafkaBroker) -> None:
    case = KafkaCase(protocol, name)
    topic = kafka.make_topic(case.partitions)
    kafka.write(topic, [golden.record for golden in case.records])
    found = open_source(kafka.uri(topic, **case.params)).check()
    assert (found.errors, found.findings, found.inspection.protocol) == (0, (), protocol)
    rows = sum(table.rows or 0 for table in found.inspection.tables)
    assert rows == sum(golden.kind == "row" for golden in case.records)


def test_a_protocol_that_the_uri_does_not_name_is_shown_by_the_messages(
    kafka: KafkaBroker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    uri = filled(kafka, database_created(1), created(2), row(4, 1), watermark(5)).replace("protocol=canal-json", "")
    found = open_source(uri).inspect()
    assert found.protocol == "canal-json"
    (finding,) = found.findings
    assert (finding.kind, finding.severity) == ("reading", Severity.INFO)
    assert "show protocol=canal-json" in finding.message
    assert run_once(uri, f"duckdb://{tmp_path}/x.duckdb", engine=LocalEngine()) == 0
    assert "The source's URI names no protocol." in "".join(capsys.readouterr())


def test_a_task_is_told_the_protocol_that_the_driver_detected(kafka: KafkaBroker) -> None:
    uri = filled(kafka, database_created(1), created(2), row(4, 1)).replace("protocol=canal-json", "")
    reader = open_source(uri).event_source.reader
    assert isinstance(reader, KafkaReader)
    assert reader.ends()
    sent = pickle.loads(pickle.dumps(reader))
    assert sent.options.protocol == "canal-json"
    assert (len(reader.notices), len(sent.notices)) == (1, 0)


def test_a_topic_that_shows_no_protocol_says_what_to_set(kafka: KafkaBroker) -> None:
    uri = filled(kafka, b"nothing", b"{}").replace("protocol=canal-json", "")
    with pytest.raises(SourceNotReadyError, match=r"do not show in which protocol the changefeed writes\. Add protocol="):
        open_source(uri).inspect()


def test_the_commands_print_it(kafka: KafkaBroker, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    uri = filled(kafka, database_created(1), created(2), row(4, 1), watermark(5))
    assert main(["inspect", uri, "--check"]) == 0
    told = capsys.readouterr().out
    assert f"checkpoint {format_tso(tso(5))}" in told
    assert "nothing wrong found" in told
    assert main(["validate", "--source", uri, "--sink", f"duckdb://{tmp_path}/x.duckdb", "--no-spark"]) == 0
    assert "can be read; headrace inspect shows what is in it" in capsys.readouterr().out


def test_each_partition_is_told_with_its_offsets_tables_and_watermark(
    kafka: KafkaBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    topic = kafka.make_topic(2)
    kafka.write(topic, [Record(value) for value in (database_created(1), created(2), row(4, 1), watermark(5))])
    kafka.write(topic, [Record(value, 1) for value in (created(2, "b"), row(4, 1, table="b"), row(5, 2), watermark(3))])
    found = open_source(kafka.uri(topic)).inspect()
    told = [(p.partition, p.first, p.end, p.watermark, p.tables) for p in found.partitions]
    assert told == [("0", 0, 4, tso(5), (A,)), ("1", 0, 4, tso(3), (A, B))]
    assert found.checkpoint == tso(3)
    lags = [p.lag_seconds for p in found.partitions]
    assert None not in lags
    assert lags[1] - lags[0] == pytest.approx(2, abs=0.5)  # type: ignore[operator]
    assert main(["inspect", kafka.uri(topic)]) == 0
    printed = capsys.readouterr().out
    assert "partitions" in printed
    assert format_tso(tso(3)) in printed


def test_the_topics_of_a_changefeed_are_told_together(kafka: KafkaBroker) -> None:
    topic = kafka.make_topic()
    orders, old = (kafka.make_topic(name=f"{topic}_{name}") for name in ("orders", "old"))
    kafka.write(topic, [Record(value) for value in (database_created(1), watermark(90))])
    kafka.write(orders, [Record(value) for value in (created(2), row(4, 1), watermark(88))])
    kafka.write(old, [Record(value) for value in (created(2, "b"), row(4, 1, table="b"), watermark(5))])
    found = open_source(kafka.uri(topic, topics=f"{topic}_*")).inspect()
    assert {p.partition: p.tables for p in found.partitions} == {"0": (), f"{orders}/0": (A,), f"{old}/0": (B,)}
    assert found.checkpoint == tso(88)
    assert [(finding.kind, finding.severity) for finding in found.findings] == [("no-watermark", Severity.INFO)]
    assert found.findings[0].message.startswith(f"Partition {old}/0 gets no watermarks now.")


class TestTwoWriters:
    def test_a_row_that_a_watermark_before_it_promised_is_not_its_writers(self, kafka: KafkaBroker) -> None:
        values = (database_created(1), created(2), created(2, "b"), row(4, 1), watermark(8), row(6, 1, table="b"), watermark(9))
        (finding,) = open_source(filled(kafka, *values)).inspect().findings
        assert (finding.kind, finding.table_id, finding.file, finding.severity) == (
            "two-writers",
            B,
            "partition 0, offset 5",
            Severity.ERROR,
        )

    def test_a_watermark_that_goes_back_and_forth_is_that_of_two(self, kafka: KafkaBroker) -> None:
        values = (database_created(1), created(2), *map(watermark, (5, 4, 6, 5, 7, 6, 8)))
        kinds = {(f.kind, f.severity) for f in open_source(filled(kafka, *values)).inspect().findings}
        assert ("two-writers", Severity.WARNING) in kinds

    def test_a_restart_is_no_second_writer(self, kafka: KafkaBroker) -> None:
        """It repeats rows, also in another partition than before, and its watermarks rise from where they went back to."""
        topic = kafka.make_topic(2)
        tables = (database_created(1), created(2))
        first = (*tables, row(4, 1), watermark(5), row(6, 2), row(7, 3), watermark(9))
        again = (watermark(5), row(6, 2), row(7, 3), watermark(6), watermark(8), watermark(10))
        kafka.write(topic, [Record(value) for value in (*first, *again)])
        kafka.write(topic, [Record(value, 1) for value in (watermark(9), row(7, 3), watermark(10))])
        kinds = {f.kind for f in open_source(kafka.uri(topic)).inspect().findings}
        assert kinds == {"watermark-goes-back"}

    def test_what_is_not_kept_any_more_may_have_been_repeated(self, kafka: KafkaBroker) -> None:
        topic = kafka.make_topic()
        values = (database_created(1), created(2), row(4, 1), created(2), watermark(5), row(4, 1))
        kafka.write(topic, [Record(value) for value in values])
        kafka.delete_records(topic, 3)
        assert not [f for f in open_source(kafka.uri(topic)).inspect().findings if f.kind == "two-writers"]


class TestValidate:
    """What ``headrace validate`` says of the source."""

    @pytest.fixture
    def told(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[[str], str]:
        def validate(uri: str) -> str:
            capsys.readouterr()
            assert main(["validate", "--source", uri, "--sink", f"duckdb://{tmp_path}/x.duckdb", "--no-spark"]) == 0
            return " ".join(capsys.readouterr().out.split())

        return validate

    def test_a_topic_that_is_fine_is_told_with_what_it_has(self, kafka: KafkaBroker, told: Callable[[str], str]) -> None:
        found = told(filled(kafka, database_created(1), created(2), row(4, 1), watermark(5)))
        assert "ok source: 1 topic, 1 partition, 4 records, protocol canal-json." in found
        assert "warning" not in found

    def test_an_empty_topic_is_no_error(self, kafka: KafkaBroker, told: Callable[[str], str]) -> None:
        assert "can be read" in told(filled(kafka))
        assert "0 records, protocol not known yet." in told(filled(kafka).replace("protocol=canal-json", ""))

    def test_messages_without_a_commit_ts_are_told(self, kafka: KafkaBroker, told: Callable[[str], str]) -> None:
        found = told(f"{filled(kafka, database_created(1))}&enable-tidb-extension=false")
        assert (
            "warning protocol: With the settings of the source's URI, messages of the protocol canal-json carry no watermark"
            in found
        )

    def test_a_partition_that_never_had_a_record_is_told(self, kafka: KafkaBroker, told: Callable[[str], str]) -> None:
        uri = filled(kafka, watermark(1), partitions=3)
        assert "warning partitions: Partition 1, 2 of the topic" in told(uri)
        found = told(f"{uri}&partition-num=1")
        assert "ok partitions: partition-num is 1, so 2 of the 3 partitions of the topic" in found
        assert "warning" not in found

    def test_records_in_partitions_above_partition_num_are_told(self, kafka: KafkaBroker, told: Callable[[str], str]) -> None:
        topic = kafka.make_topic(2)
        kafka.write(topic, [Record(watermark(1), partition) for partition in (0, 1)])
        uri = kafka.uri(topic)
        found = told(f"{uri}&partition-num=1")
        assert "warning partitions: Partition 1 of the topic" in found
        assert "has records and is not read, because partition-num is 1." in found

    def test_a_short_retention_and_compaction_are_told(self, kafka: KafkaBroker, told: Callable[[str], str]) -> None:
        topic = kafka.make_topic(retention_ms=str(3 * 3_600_000))
        assert f"The topic {topic} keeps records for 3 hours (retention.ms)" in told(kafka.uri(topic))
        assert f"The topic {topic} keeps records for 3 hours" in told(f"tidb-binlog://{kafka.server}/{topic}")
        topic = kafka.make_topic(cleanup_policy="compact")
        assert f"The topic {topic} is compacted (cleanup.policy)" in told(kafka.uri(topic))

    def test_topics_that_are_missing_and_no_default_topic_are_told(self, kafka: KafkaBroker, told: Callable[[str], str]) -> None:
        topic = kafka.make_topic()
        found = told(kafka.uri("", topics=f"{topic},{topic}_b"))
        assert f"warning topics: The topic {topic}_b does not exist." in found
        assert "warning topics: The source's URI names no default topic." in found

    def test_what_a_pipeline_needs_and_may_lose_is_told(
        self, kafka: KafkaBroker, tmp_path: Path, told: Callable[[str], str]
    ) -> None:
        topic = kafka.make_topic()
        values = (database_created(1), created(2), created(2, "b"), row(4, 1)[:-9], row(5, 1, table="b"), watermark(6))
        kafka.write(topic, [Record(value) for value in values])
        assert run_once(kafka.uri(topic), f"duckdb://{tmp_path}/x.duckdb", engine=LocalEngine()) == 3
        assert "warning" not in told(kafka.uri(topic))
        kafka.delete_records(topic, 6)
        assert "warning retention: partition 0: " in told(kafka.uri(topic))
