"""Topics of protocols besides canal-JSON that are not what they should be: what stops, what is told, and how to go on."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from harness import run_once
from headrace.cli.main import main
from headrace.model.stream import Range
from headrace.sources.kafka.source import open_source
from headrace.testing.engine import LocalEngine
from kafka_cases import KafkaCase, tso
from kafka_server import KafkaBroker, Record

pytestmark = [pytest.mark.server, pytest.mark.pipeline]

CASES = ["debezium/basic-schema", "maxwell/types", "canal/types", "craft/basic"]


def records_of(name: str) -> list[Record]:
    return [golden.record for golden in KafkaCase(*name.split("/")).records]


def run(uri: str, folder: Path) -> int:
    """Up to the watermark, or up to the end for protocols without one."""
    to_end = {"until_end": True, "quiet": 0.2} if "protocol=maxwell" in uri or "protocol=canal" in uri else {}
    return run_once(uri, f"duckdb://{folder}/x.duckdb?unsupported=text", engine=LocalEngine(), **to_end)


def give_up(uri: str, folder: Path, offset: int, *table: str) -> None:
    skip = ["table", "skip", *table, "--partition", "0", "--offset", str(offset), "--yes"]
    assert main([*skip, "--source", uri, "--sink", f"duckdb://{folder}/x.duckdb?unsupported=text"]) == 0


@pytest.mark.parametrize("name", CASES)
def test_behind_a_message_of_no_table_nothing_is_applied_until_it_is_given_up(
    name: str, kafka: KafkaBroker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    case, topic = KafkaCase(*name.split("/")), kafka.make_topic()
    kafka.write(topic, [Record(b"\xff?"), *records_of(name)])
    uri = kafka.uri(topic, **case.params)
    assert run(uri, tmp_path) == 3
    assert "partition 0, offset 0: " in "".join(capsys.readouterr())
    give_up(uri, tmp_path, 0)
    assert run(uri, tmp_path) == 0
    with duckdb.connect(str(tmp_path / "x.duckdb")) as connection:
        found = connection.execute("SELECT table_schema, table_name FROM information_schema.tables").fetchall()
    assert {(table.database, table.name) for table in case.final.tables} <= set(found)


def test_a_value_that_is_not_clear_stops_its_table_and_its_record_can_be_given_up(
    kafka: KafkaBroker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    case, topic = KafkaCase("debezium", "ddl"), kafka.make_topic()
    kafka.write(topic, records_of("debezium/ddl"))
    uri = kafka.uri(topic, protocol="debezium")
    assert run(uri, tmp_path) == 3
    told = "".join(capsys.readouterr())
    assert "partition 0, offset 6, column c, value '5': The message does not show whether the value is NULL" in told
    assert "accept-unclear=true" in told
    give_up(uri, tmp_path, 6, "d1.t")
    assert run(uri, tmp_path) == 0
    (wanted,) = (table for table in case.final.tables if table.name == "t2")
    with duckdb.connect(str(tmp_path / "x.duckdb")) as connection:
        assert len(connection.execute("SELECT * FROM d1.t2").fetchall()) == len(wanted.rows)


@pytest.mark.parametrize("name", CASES)
def test_a_damaged_row_is_told_with_its_place(
    name: str, kafka: KafkaBroker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    golden = KafkaCase(*name.split("/")).records
    number = next(n for n, record in enumerate(golden) if record.kind == "row")
    records = records_of(name)
    value = records[number].value or b""
    records[number] = replace(records[number], value=value[: len(value) * 2 // 3])
    topic = kafka.make_topic()
    kafka.write(topic, records)
    assert run(kafka.uri(topic, **KafkaCase(*name.split("/")).params), tmp_path) == 3
    assert f"partition 0, offset {number}" in "".join(capsys.readouterr())


def test_of_a_topic_without_watermarks_inspect_says_so(kafka: KafkaBroker, capsys: pytest.CaptureFixture[str]) -> None:
    topic = kafka.make_topic()
    kafka.write(topic, records_of("maxwell/types"))
    assert main(["inspect", kafka.uri(topic, protocol="maxwell")]) == 0
    told = capsys.readouterr().out
    assert "carry no watermark and no exact commit ts. Changes are applied only with --until-end" in told
    assert "no-watermark" not in told, "which would be told of each partition, as if a changefeed did not use it"


def test_the_rows_of_maxwell_have_the_same_order_wherever_ranges_begin(kafka: KafkaBroker) -> None:
    """A row may need what is before its range; also with times in Kafka, which are those of the commit ts here."""
    second = 1_750_000_000

    def row(table: str, at: int) -> Record:
        told = {"database": "d", "table": table, "type": "insert", "ts": second + at, "data": {"id": 1}}
        return Record(json.dumps(told, separators=(",", ":")).encode(), key=bytes(7) + b"\1", timestamp_ms=(second + at) * 1000)

    def truncated(table: str, at: int) -> Record:
        told = {"type": "table-truncate", "database": "d", "table": table, "ts": tso(at) + 5, "sql": f"TRUNCATE TABLE d.{table}"}
        return Record(json.dumps(told, separators=(",", ":")).encode(), timestamp_ms=(second + at) * 1000)

    topic = kafka.make_topic()
    kafka.write(topic, [row("a", 0), truncated("a", 1), row("b", 2), row("b", 1), row("a", 1), row("a", 9000), row("b", 9000)])
    reader = open_source(kafka.uri(topic, protocol="maxwell")).event_source.reader
    (whole,) = reader.records(Range("0", 0, 7, 0))
    assert [commit_ts - tso(0) for commit_ts in whole.column("commit_ts").to_pylist()][:5] == [
        *(0, tso(1) + 5 - tso(0), tso(2) - tso(0), tso(1) - tso(0), tso(1) + 6 - tso(0)),
    ]
    parts = [batch for offset in range(7) for batch in reader.records(Range("0", offset, offset + 1, 0))]
    assert pa.Table.from_batches(parts).combine_chunks().equals(pa.Table.from_batches([whole]).combine_chunks())
