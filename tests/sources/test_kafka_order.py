"""Schema changes that arrive in another order than the rows around them, and keys of messages, from a real broker."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import duckdb
import pytest

from harness import run_once
from headrace.testing.engine import LocalEngine
from kafka_cases import created, database_created, row, tso, watermark
from kafka_server import KafkaBroker, Record

pytestmark = [pytest.mark.server, pytest.mark.pipeline]

CREATE, ADD = "CREATE TABLE `a` (`id` INT PRIMARY KEY)", "ALTER TABLE `a` ADD COLUMN `n` INT"


class Scene:
    """A topic with two partitions, and a DuckDB file that runs apply it to."""

    def __init__(self, kafka: KafkaBroker, folder: Path) -> None:
        self.kafka, self.target, self.topic = kafka, folder / "x.duckdb", kafka.make_topic(2)

    def write(self, partition: int, *messages: Mapping[str, object] | bytes, key: bytes | None = None) -> None:
        values = [m if isinstance(m, bytes) else json.dumps(m).encode() for m in messages]
        self.kafka.write(self.topic, [Record(value, partition, key) for value in values])

    def run(self, protocol: str) -> int:
        return run_once(self.kafka.uri(self.topic, protocol=protocol), f"duckdb://{self.target}", engine=LocalEngine())

    def rows(self) -> list[tuple[object, ...]]:
        with duckdb.connect(str(self.target)) as connection:
            return connection.execute("SELECT * FROM shop.a ORDER BY id").fetchall()


@pytest.fixture
def scene(kafka: KafkaBroker, tmp_path: Path) -> Scene:
    return Scene(kafka, tmp_path)


def simple(type: str, second: int, **members: object) -> dict[str, object]:
    """A message of the Simple Protocol."""
    return {"version": 1, "type": type, "commitTs": tso(second), "buildTs": 1, **members}


def simple_row(second: int, version: int, values: Mapping[str, str]) -> dict[str, object]:
    return simple("INSERT", second, database="shop", table="a", tableID=1, schemaVersion=version, data=values)


def simple_statement(type: str, second: int, text: str, columns: Sequence[str]) -> dict[str, object]:
    """A change of the table's columns; the version of its shape is its commit ts."""
    told = [{"name": name, "dataType": {"mysqlType": "int"}, "nullable": name != "id", "default": None} for name in columns]
    key = {"name": "primary", "unique": True, "primary": True, "nullable": False, "columns": ["id"]}
    shape = {"schema": "shop", "table": "a", "tableID": 1, "version": tso(second), "columns": told, "indexes": [key]}
    return simple(type, second, sql=text, tableSchema=shape)


DATABASE = simple("QUERY", 1, sql="CREATE DATABASE `shop`")
CREATED = simple_statement("CREATE", 2, CREATE, ["id"])
ALTERED = simple_statement("ALTER", 5, ADD, ["id", "n"])


@pytest.mark.reading_case("B24")
def test_a_row_before_the_schema_change_that_tells_its_columns_waits_for_it(scene: Scene) -> None:
    """Runs end in between, so that the row has to be read again."""
    scene.write(0, DATABASE, CREATED, simple_row(3, tso(2), {"id": "1"}), simple("WATERMARK", 4))
    scene.write(1, simple_row(7, tso(5), {"id": "3", "n": "8"}), simple_row(6, tso(5), {"id": "2", "n": "7"}))
    scene.write(1, simple("WATERMARK", 4))
    assert scene.run("simple") == 0
    assert scene.rows() == [(1,)]
    scene.write(1, simple("WATERMARK", 8))
    assert scene.run("simple") == 0
    assert scene.rows() == [(1,)]
    scene.write(0, ALTERED, simple("WATERMARK", 8))
    assert scene.run("simple") == 0
    assert scene.rows() == [(1, None), (2, 7), (3, 8)]


@pytest.mark.reading_case("B28")
def test_a_schema_change_that_one_partition_has_first_changes_no_row_of_another_one(scene: Scene) -> None:
    for partition in (0, 1):
        scene.write(partition, DATABASE, CREATED)
    scene.write(1, ALTERED, simple_row(6, tso(5), {"id": "2", "n": "7"}), simple("WATERMARK", 8))
    scene.write(0, simple_row(7, tso(5), {"id": "3", "n": "8"}), simple_row(4, tso(2), {"id": "1"}))
    assert scene.run("simple") == 0
    scene.write(0, ALTERED, simple("WATERMARK", 8))
    assert scene.run("simple") == 0
    assert scene.rows() == [(1, None), (2, 7), (3, 8)]


@pytest.mark.reading_case("B42")
@pytest.mark.parametrize("key", [None, b""])
def test_a_key_without_bytes_is_none(scene: Scene, key: bytes | None) -> None:
    """Releases of TiCDC write the one or the other where a protocol has no keys."""
    scene.write(0, database_created(1), created(2), row(3, 1), watermark(4), key=key)
    scene.write(1, row(3, 2), watermark(4), key=key)
    assert scene.run("canal-json") == 0
    assert scene.rows() == [(1, "x"), (2, "x")]
