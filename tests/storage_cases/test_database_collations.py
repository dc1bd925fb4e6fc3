"""Tables whose statements name no collation: they get that of the source's database, whatever the target's database has."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from building import Bucket

from headrace.errors import EXIT_OK, EXIT_TABLE_STOPPED
from person import Person
from servers import MariaDb
from storage_folder import OPTIONS, V
from targets import MariaDbTarget

pytestmark = pytest.mark.server

KEY: dict[str, Any] = V | {"ColumnName": "k", "ColumnNullable": "false", "ColumnIsPk": "true"}
CREATE = "CREATE TABLE `t` (`k` VARCHAR(16) PRIMARY KEY,`v` VARCHAR(16))"
FOUR = ("I 110 A 1", "I 111 a 2", "I 112 é 3", "I 113 e 4")


@pytest.fixture
def person(mariadb: MariaDb) -> Person:
    """Somebody who made the target's database by hand, with a collation of their own."""
    mariadb.fresh()
    person = Person(MariaDbTarget(mariadb), mariadb)
    person.run("CREATE DATABASE test CHARACTER SET utf8mb4 COLLATE utf8mb4_unicode_ci")
    return person


def collations(person: Person) -> list[str]:
    return [str(row[2]) for row in person.run("SHOW FULL COLUMNS FROM test.t")]


def test_keys_of_the_source_stay_apart_in_a_database_with_a_collation_of_its_own(
    person: Person, mariadb: MariaDb, tmp_path: Path
) -> None:
    bucket = Bucket(tmp_path, f"{OPTIONS}&new-collations=true")
    bucket.schema("t", 100, (KEY, V), CREATE, 3)
    bucket.rows("t/100/1", *FOUR)
    bucket.schema("t", 200, (KEY, V, V | {"ColumnName": "w"}), "ALTER TABLE `t` ADD COLUMN `w` VARCHAR(16)", 5)
    bucket.checkpoint(300)
    ran = bucket.run(mariadb.uri())
    assert ran.code == EXIT_OK
    assert {row[0] for row in person.run("SELECT k FROM test.t")} == {"A", "a", "é", "e"}
    assert collations(person) == ["utf8mb4_bin"] * 3
    assert "The target's database has utf8mb4_unicode_ci" in ran.told
    assert "CONVERT TO CHARACTER SET utf8mb4 COLLATE utf8mb4_unicode_ci" in ran.told


def _created(bucket: Bucket) -> None:
    bucket.schema("", 90, (), "CREATE DATABASE `test` COLLATE utf8mb4_general_ci", 1)


def _altered(bucket: Bucket) -> None:
    bucket.schema("", 90, (), "ALTER DATABASE `test` CHARACTER SET = utf8mb4 COLLATE = utf8mb4_general_ci", 26)


def _created_as_tidb_does(bucket: Bucket) -> None:
    _altered(bucket)
    bucket.schema("", 95, (), "DROP DATABASE `test`", 2)
    bucket.schema("", 96, (), "CREATE DATABASE `test`", 1)


@pytest.mark.parametrize(
    ("history", "collation"),
    [(_created, "utf8mb4_general_ci"), (_altered, "utf8mb4_general_ci"), (_created_as_tidb_does, "utf8mb4_bin")],
)
def test_a_table_inherits_what_the_source_said_of_its_database(
    history: Callable[[Bucket], None], collation: str, person: Person, mariadb: MariaDb, tmp_path: Path
) -> None:
    bucket = Bucket(tmp_path)
    history(bucket)
    bucket.schema("t", 100, (KEY, V), CREATE, 3)
    bucket.checkpoint(300)
    ran = bucket.run(mariadb.uri())
    assert ran.code == EXIT_OK
    assert collations(person) == [collation] * 2


def test_a_table_that_stops_for_its_keys_names_the_columns_collation(person: Person, mariadb: MariaDb, tmp_path: Path) -> None:
    person.run("CREATE TABLE test.t (k VARCHAR(16) PRIMARY KEY, v VARCHAR(16))")
    bucket = Bucket(tmp_path)
    bucket.schema("t", 100, (KEY, V), CREATE, 3)
    bucket.rows("t/100/1", *FOUR)
    bucket.checkpoint(300)
    ran = bucket.run(mariadb.uri())
    assert ran.code == EXIT_TABLE_STOPPED
    assert "if it is utf8mb4_unicode_ci, set new-collations=true" in ran.stopped["test.t"]
    person.run("ALTER TABLE test.t CONVERT TO CHARACTER SET utf8mb4 COLLATE utf8mb4_bin")
    assert bucket.run(mariadb.uri()).code == EXIT_OK
    assert len(person.run("SELECT k FROM test.t")) == 4
