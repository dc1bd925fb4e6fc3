"""A topic with more than the driver stages by itself, from a real broker through Spark's tasks."""

from __future__ import annotations

import json
from pathlib import Path

import duckdb
import pytest

from avro_writer import counted, long
from harness import assert_state, run_once
from kafka_cases import KafkaCase, created, database_created, row, watermark
from kafka_server import KafkaBroker, Record
from schema_registry import Registry
from servers import free_port
from targets import DuckDbTarget

pytestmark = [pytest.mark.spark, pytest.mark.server]

ROWS = 40_000
PADDING = "p" * 500


@pytest.mark.parametrize("name", ["canal-json/claim-check", "open-protocol/claim-check"])
def test_tasks_read_large_rows_from_the_claim_check_storage(name: str, kafka: KafkaBroker, tmp_path: Path) -> None:
    case = KafkaCase(*name.split("/"))
    topic, target = kafka.make_topic(), DuckDbTarget(tmp_path / "x.duckdb")
    kafka.write(topic, [golden.record for golden in case.records])
    uri = kafka.uri(topic, protocol=case.protocol, claim_check_storage_uri=f"file://{case.claim_check}")
    assert run_once(uri, target.uri) == 0
    assert_state(target, case.final)


def test_ranges_of_several_partitions_are_staged_by_tasks(kafka: KafkaBroker, tmp_path: Path) -> None:
    topic = kafka.make_topic(3)
    kafka.write(topic, [Record(database_created(1)), Record(created(2))])
    kafka.write(
        topic, [Record(row(4, key, f"{key}").replace(b'"sql":""', f'"sql":"{PADDING}"'.encode()), key % 3) for key in range(ROWS)]
    )
    kafka.write(topic, [Record(watermark(5), partition) for partition in range(3)])
    target = tmp_path / "x.duckdb"
    assert run_once(kafka.uri(topic), f"duckdb://{target}") == 0
    with duckdb.connect(str(target)) as connection:
        found = connection.execute("SELECT count(*), count(DISTINCT id), sum(id), bool_and(v = id::VARCHAR) FROM shop.a").fetchone()
    assert found == (ROWS, ROWS, ROWS * (ROWS - 1) // 2, True)


def test_tasks_fetch_the_schemas_of_a_registry_themselves(
    kafka: KafkaBroker, registry: Registry, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fields = [{"name": "id", "type": "int"}, {"name": "v", "type": "string"}]
    record = {"type": "record", "name": "a", "namespace": "default.shop"}
    schemas = {1: json.dumps({**record, "fields": fields[:1]}), 2: json.dumps({**record, "fields": fields})}
    topic, value = kafka.make_topic(2), counted(PADDING)
    messages = ((b"\0\0\0\0\1" + long(key), b"\0\0\0\0\2" + long(key) + value, key % 2) for key in range(ROWS))
    kafka.write(topic, [Record(value, partition, key) for key, value, partition in messages])
    target = tmp_path / "x.duckdb"
    until_end = {"until_end": True, "quiet": 0.2}
    nowhere = kafka.uri(topic, protocol="avro", schema_registry=f"http://127.0.0.1:{free_port()}")
    assert run_once(nowhere, f"duckdb://{target}", **until_end) == 4
    assert "The schema registry http://127.0.0.1:" in "".join(capsys.readouterr())
    found = kafka.uri(topic, protocol="avro", schema_registry=registry.holding("spark", schemas))
    assert run_once(found, f"duckdb://{target}", **until_end) == 0
    with duckdb.connect(str(target)) as connection:
        rows = connection.execute("SELECT count(*), count(DISTINCT id), bool_and(v = ?) FROM shop.a", [PADDING]).fetchone()
    assert rows == (ROWS, ROWS, True)
    assert len([path for path in registry.asked if path.startswith("/spark/")]) < 40
