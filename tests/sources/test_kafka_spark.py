"""A topic with more than the driver stages by itself, from a real broker through Spark's tasks."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

from harness import run_once
from kafka_cases import created, database_created, row, watermark
from kafka_server import KafkaBroker, Record

pytestmark = [pytest.mark.spark, pytest.mark.server]

ROWS = 40_000
PADDING = "p" * 500


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
