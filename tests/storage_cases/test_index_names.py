"""Indexes that the source leaves unnamed have TiDB's names on every target: a later DROP INDEX means the same one there."""

from __future__ import annotations

from pathlib import Path

import pytest
from building import Bucket

from headrace.errors import EXIT_OK
from person import Person
from places import Place
from servers import MariaDb
from storage_folder import ID, V

EMAIL = {"ColumnName": "email", "ColumnType": "VARCHAR", "ColumnPrecision": "50"}
A, B = ({"ColumnName": name, "ColumnType": "INT", "ColumnNullable": "false"} for name in "ab")

pytestmark = pytest.mark.pipeline


def test_a_dropped_unique_key_pushes_out_no_row(place: Place, tmp_path: Path) -> None:
    """MariaDB would call the column's key ``email`` and the other one ``email_2``."""
    target, uri = place.fresh()
    bucket = Bucket(tmp_path)
    text = "CREATE TABLE `t` (`id` INT PRIMARY KEY,`email` VARCHAR(50) UNIQUE,`v` VARCHAR(16),INDEX (`email`,`v`))"
    bucket.schema("t", 100, (ID, EMAIL, V), text, 3)
    bucket.rows("t/100/1", "I 110 1 a x")
    bucket.schema("t", 200, (ID, EMAIL, V), "ALTER TABLE `t` DROP INDEX `email_2`", 8)
    bucket.rows("t/200/1", "I 210 2 a y", "I 211 3 a z")
    bucket.checkpoint(400)
    ran = bucket.run(uri)
    assert (ran.code, ran.stopped) == (EXIT_OK, {})
    rows = Person.at(place, target).run("SELECT id, email, v FROM test.t")
    assert sorted(rows) == [(1, "a", "x"), (2, "a", "y"), (3, "a", "z")]


@pytest.mark.server
def test_an_index_that_a_person_made_in_the_target_is_not_taken_for_the_sources(mariadb: MariaDb, tmp_path: Path) -> None:
    bucket = Bucket(tmp_path)
    bucket.schema("t", 100, (ID, A, V), "CREATE TABLE `t` (`id` INT PRIMARY KEY,`a` INT NOT NULL,`v` VARCHAR(16))", 3)
    bucket.checkpoint(150)
    assert bucket.run(mariadb.uri()).code == EXIT_OK
    with mariadb.connect() as connection, connection.cursor() as cursor:
        cursor.execute("ALTER TABLE test.t ADD INDEX (a)")
    bucket.schema("t", 200, (ID, A, V), "ALTER TABLE `t` ADD UNIQUE(`a`)", 7)
    bucket.schema("t", 300, (ID, A, V), "ALTER TABLE `t` DROP INDEX `a`", 8)
    bucket.rows("t/300/1", "I 310 3 2 y", "I 311 4 2 z")
    bucket.checkpoint(400)
    ran = bucket.run(mariadb.uri())
    assert "Duplicate key name 'a'" in ran.stopped["test.t"]


@pytest.mark.parametrize(
    ("dropped", "written", "left"),
    [
        ("a_2", ("I 210 1 2 y", "I 211 1 3 z"), [(1, 1, "x"), (1, 2, "y"), (1, 3, "z")]),
        ("a", ("D 210 1 1 x", "I 211 1 3 z"), [(1, 3, "z")]),
    ],
)
def test_a_table_without_primary_key_goes_on_with_the_key_that_is_left(
    place: Place, tmp_path: Path, dropped: str, written: tuple[str, ...], left: list[tuple[int, int, str]]
) -> None:
    target, uri = place.fresh()
    bucket = Bucket(tmp_path)
    text = "CREATE TABLE `t` (`a` INT NOT NULL UNIQUE,`b` INT NOT NULL,`v` VARCHAR(16),UNIQUE KEY (`a`,`b`))"
    bucket.schema("t", 100, (A, B, V), text, 3)
    bucket.rows("t/100/1", "I 110 1 1 x")
    bucket.schema("t", 200, (A, B, V), f"ALTER TABLE `t` DROP INDEX `{dropped}`", 8)
    bucket.rows("t/200/1", *written)
    bucket.checkpoint(400)
    ran = bucket.run(uri)
    assert (ran.code, ran.stopped) == (EXIT_OK, {})
    assert sorted(Person.at(place, target).run("SELECT a, b, v FROM test.t")) == left
