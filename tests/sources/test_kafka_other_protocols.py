"""Topics of protocols besides canal-JSON that are not what they should be: what stops, what is told, and how to go on."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import duckdb
import pytest

from harness import run_once
from headrace.cli.main import main
from headrace.testing.engine import LocalEngine
from kafka_cases import KafkaCase
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
