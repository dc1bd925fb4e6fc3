"""Unique keys by a collation of TiDB of which other servers have none that holds exactly the same texts for equal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from building import Bucket

from headrace.ddl.told import source_tables
from headrace.errors import EXIT_OK, EXIT_TABLE_STOPPED
from headrace.pipeline.registry import open_sink, open_source
from headrace.sinks.base import CheckState
from person import Person
from servers import MariaDb
from targets import MariaDbTarget

pytestmark = pytest.mark.server

K: dict[str, Any] = {
    "ColumnName": "k",
    "ColumnType": "VARCHAR",
    "ColumnPrecision": "32",
    "ColumnNullable": "false",
    "ColumnIsPk": "true",
}
V: dict[str, Any] = {"ColumnName": "v", "ColumnType": "VARCHAR", "ColumnPrecision": "16"}
ID: dict[str, Any] = {
    "ColumnName": "id",
    "ColumnType": "INT",
    "ColumnPrecision": "11",
    "ColumnNullable": "false",
    "ColumnIsPk": "true",
}
TWO = [("col·legi", "collegi"), ("เก", "กเ"), ("Ა", "ა")]
"""Pairs that TiDB tells apart."""

CREATED = "CREATE TABLE `t` (`k` VARCHAR(32) NOT NULL COLLATE utf8mb4_0900_ai_ci PRIMARY KEY,`v` VARCHAR(16)) COLLATE utf8mb4_bin"
BY_DEFAULT = "CREATE TABLE `t` (`k` VARCHAR(32) NOT NULL PRIMARY KEY,`v` VARCHAR(16)) CHARSET utf8mb4 COLLATE utf8mb4_0900_ai_ci"


class World:
    def __init__(self, server: MariaDb, folder: Path) -> None:
        server.fresh()
        self.uri, self.bucket = server.uri(), Bucket(folder)
        self.person = Person(MariaDbTarget(server), server)

    def at(self, checkpoint: int) -> Any:
        self.bucket.checkpoint(checkpoint)
        return self.bucket.run(self.uri)


@pytest.fixture
def world(mariadb: MariaDb, tmp_path: Path) -> World:
    return World(mariadb, tmp_path)


@pytest.mark.parametrize("statement", [CREATED, BY_DEFAULT])
@pytest.mark.parametrize(("one", "other"), TWO)
def test_no_row_is_lost_to_a_key_that_the_target_compares_otherwise(world: World, one: str, other: str, statement: str) -> None:
    world.bucket.schema("t", 100, (K, V), statement, 3)
    world.bucket.rows("t/100/1", ("I", 110, one, "one"), ("I", 111, other, "two"))
    ran = world.at(120)
    assert ran.code == EXIT_TABLE_STOPPED
    assert "column k: it is in a unique key" in ran.stopped["test.t"]
    assert world.person.run("SELECT k, v FROM test.t") == []
    modify = ran.stopped["test.t"].split("Run ", 1)[1].split(";", 1)[0]
    world.person.run(modify)
    assert world.at(130).code == EXIT_OK
    assert set(world.person.run("SELECT k, v FROM test.t")) == {(one, "one"), (other, "two")}


@pytest.mark.parametrize("in_one_run", [False, True])
def test_a_second_unique_key_counts_too_also_when_it_comes_later(world: World, in_one_run: bool) -> None:
    statement = "CREATE TABLE `t` (`id` INT PRIMARY KEY,`v` VARCHAR(16) COLLATE utf8mb4_0900_ai_ci)"
    world.bucket.schema("t", 100, (ID, V), statement, 3)
    world.bucket.rows("t/100/1", ("I", 110, 1, "l·"), ("I", 111, 2, "b"))
    if not in_one_run:
        assert world.at(120).code == EXIT_OK  # outside of unique keys the nearest collation is good enough
    world.bucket.schema("t", 150, (ID, V), "ALTER TABLE `t` ADD UNIQUE `u` (`v`)", 7)
    world.bucket.rows("t/150/1", ("I", 160, 3, "l"))
    ran = world.at(170)
    assert ran.code == EXIT_TABLE_STOPPED
    assert "column v: it is in a unique key" in ran.stopped["test.t"]
    assert world.person.run("SELECT id, v FROM test.t ORDER BY id DESC") == [(2, "b"), (1, "l·")]


def test_validate_wants_the_collation_that_a_run_takes(world: World) -> None:
    world.bucket.schema("t", 100, (K, V), CREATED, 3)
    world.bucket.rows("t/100/1", ("I", 110, "a", "one"))
    world.at(120)

    def collations() -> list[Any]:
        source = open_source(world.bucket.folder.uri(world.bucket.options)).event_source
        tables = list(source_tables(source.poll("", 0).schema_changes).values())
        with open_sink(world.uri) as sink:
            return [check for check in sink.check_tables("default", tables) if check.name == "collations"]

    (failed,) = collations()
    assert failed.state is CheckState.FAILED
    world.person.run(failed.advice.removeprefix("Run ").removesuffix("; in the target."))
    (found,) = collations()
    assert found.state is CheckState.OK
    assert world.at(130).code == EXIT_OK


def test_a_target_that_compares_bytes_has_both_rows(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path)
    bucket.schema("t", 100, (K, V), CREATED, 3)
    bucket.rows("t/100/1", *(("I", 110, text, "x") for pair in TWO for text in pair))
    assert bucket.at(120).code == EXIT_OK
    assert len(bucket.state() or []) == 2 * len(TWO)
