"""Changefeeds that write only some columns into rows (``column-selectors``)."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path

import duckdb
import pytest

from harness import run_once
from headrace.model.table import Column, TableId, TableSchema
from headrace.model.types import ColumnType, TypeKind
from headrace.sources.kafka import open_source
from headrace.testing.engine import LocalEngine
from kafka_cases import KafkaCase, database_created, message, statement, tso, watermark
from kafka_server import KafkaBroker, Record

pytestmark = [pytest.mark.server, pytest.mark.pipeline]

TABLE = statement(2, "CREATE TABLE a (id INT PRIMARY KEY, v VARCHAR(20), n INT)")


def row(second: int, kind: str = "INSERT", old: object = None, **values: str) -> bytes:
    types = {name: "int" if name != "v" else "varchar" for name in values}
    return message(kind, tso(second), mysqlType=types, data=[values], old=[old] if old else None)


@dataclass
class Scene:
    kafka: KafkaBroker
    folder: Path
    capsys: pytest.CaptureFixture[str]
    told: str = ""

    def run(self, uri: str, columns: str = "") -> int:
        options = {}
        if columns:
            file = self.folder / "changefeed.toml"
            file.write_text(f"[sink]\n[[sink.column-selectors]]\nmatcher = ['shop.*']\ncolumns = {columns}\n")
            options["changefeed"] = str(file)
        self.capsys.readouterr()
        code = run_once(uri, f"duckdb://{self.folder}/x.duckdb", engine=LocalEngine(), **options)
        self.told = "".join(self.capsys.readouterr())
        return code

    def rows(self, columns: str, table: str = "a") -> list[tuple[object, ...]]:
        with duckdb.connect(str(self.folder / "x.duckdb")) as connection:
            return connection.execute(f"SELECT {columns} FROM shop.{table} ORDER BY id").fetchall()

    def topic(self, *values: bytes) -> str:
        topic = self.kafka.make_topic()
        self.kafka.write(topic, [Record(value) for value in values])
        return self.kafka.uri(topic)


@pytest.fixture
def scene(kafka: KafkaBroker, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Scene:
    return Scene(kafka, tmp_path, capsys)


def test_columns_that_are_left_out_have_no_value(scene: Scene) -> None:
    changes = (
        row(4, id="1", v="x"),
        row(5, id="2", v="y"),
        row(6, "UPDATE", {"v": "x"}, id="1", v="z"),
        row(7, "DELETE", id="2", v="y"),
    )
    assert scene.run(scene.topic(database_created(1), TABLE, *changes, watermark(8)), "['*', '!n']") == 0
    assert scene.rows("id, v, n") == [(1, "z", None)]


@pytest.mark.parametrize(
    ("protocol", "name", "left_out"),
    [
        ("canal-json", "basic-extension", rb',"price":(?:-?\d+|null|"[^"]*")|(?<=\{)"price":(?:-?\d+|null|"[^"]*"),'),
        ("open-protocol", "basic", rb',"price":\{[^}]*\}'),
        ("simple", "json-basic", rb',"price":(?:null|"[^"]*")'),
    ],
)
def test_every_protocol_is_read_without_them(protocol: str, name: str, left_out: bytes, scene: Scene) -> None:
    case = KafkaCase(protocol, name)
    topic = scene.kafka.make_topic(case.partitions)
    records = []
    for golden in case.records:
        value = golden.record.value or b""
        if golden.kind == "row":
            assert re.search(left_out, value) or b"item" not in value + (golden.record.key or b"")
            value = re.sub(left_out, b"", value) if protocol != "open-protocol" else _framed_without(value, left_out)
        records.append(replace(golden.record, value=value))
    scene.kafka.write(topic, records)
    assert scene.run(scene.kafka.uri(topic, protocol=protocol), "['*', '!price']") == 0
    (item,) = [table for table in case.final.tables if table.name == "item"]
    names = [column for column in item.types if column != "price"]
    at = [list(item.types).index(column) for column in names]
    assert [tuple(map(str, found)) for found in scene.rows(", ".join(names), "item")] == [
        tuple(str(values[n]) for n in at) for values in sorted(item.rows, key=lambda values: int(values[0] or 0))
    ]
    assert {price for (price,) in scene.rows("price", "item")} == {None}


def _framed_without(value: bytes, left_out: bytes) -> bytes:
    """Events of the Open Protocol, each behind its length, without a column."""
    found, at = b"", 0
    while at < len(value):
        size = int.from_bytes(value[at : at + 8], "big")
        event = re.sub(left_out, b"", value[at + 8 : at + 8 + size])
        found, at = found + len(event).to_bytes(8, "big") + event, at + 8 + size
    return found


def test_rows_that_lack_a_column_without_a_selector_stop_their_table(scene: Scene) -> None:
    uri = scene.topic(database_created(1), TABLE, row(3, id="1", v="x"), row(4, id="2", v="x"), watermark(5))
    assert scene.run(uri) == 3
    assert "table shop.a, partition 0, offset 2, column n: The message lacks the column n." in scene.told


def test_deletions_with_only_the_key_lack_nothing(scene: Scene) -> None:
    uri = scene.topic(database_created(1), TABLE, row(3, id="1", v="x", n="1"), watermark(4))
    assert scene.run(uri) == 0
    scene.kafka.write(uri.partition("?")[0].rpartition("/")[2], [Record(row(5, "DELETE", id="1")), Record(watermark(6))])
    assert scene.run(uri) == 0
    assert scene.rows("id") == []


def test_rows_with_a_column_that_is_left_out_stop_their_table(scene: Scene) -> None:
    uri = scene.topic(database_created(1), TABLE, row(3, id="1", v="x", n="1"), watermark(5))
    assert scene.run(uri, "['*', '!n']") == 3
    assert "table shop.a, partition 0, offset 2, column n" in scene.told


def test_a_selector_that_leaves_a_part_of_the_key_out_stops_the_table(scene: Scene) -> None:
    uri = scene.topic(database_created(1), TABLE, row(3, v="x", n="1"), watermark(5))
    assert scene.run(uri, "['*', '!id']") == 3
    assert "column id: The column selectors of the changefeed file leave out a column of the table's key." in scene.told


def test_the_columns_that_rows_carry_are_known(tmp_path: Path) -> None:
    file = tmp_path / "changefeed.toml"
    file.write_text("[sink]\ncolumn-selectors = [{matcher = ['shop.a'], columns = ['*', '!n']}]\n")
    source = open_source("kafka://h/t?protocol=simple", {"changefeed": str(file)})
    columns = tuple(Column(name, ColumnType(TypeKind.INT)) for name in ("id", "n"))
    for table, names in {"a": ["id"], "b": ["id", "n"]}.items():
        assert [c.name for c in source.carried(TableSchema(TableId("shop", table), columns))] == names
