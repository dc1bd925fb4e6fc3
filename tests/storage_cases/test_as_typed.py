"""Statements as a person typed them: comments anywhere, and names without quotes that begin with a digit.

TiCDC writes many kinds of statements as TiDB's restorer spells them, but not all (`ticdc-storage-format.md`, 3.6).
"""

from __future__ import annotations

from pathlib import Path

import pytest
from building import Bucket

from headrace.errors import EXIT_OK
from headrace.model.policy import SchemaChangePolicies
from headrace.model.table import TableId
from person import Person
from servers import MariaDb
from storage_folder import ID, V
from targets import MariaDbTarget

pytestmark = [pytest.mark.pipeline, pytest.mark.server]

PARTITIONED = "PARTITION BY RANGE (id) (PARTITION p0 VALUES LESS THAN (50), PARTITION p1 VALUES LESS THAN (1000))"
APPLICATION = "/* ApplicationName=a client */ "


@pytest.fixture
def bucket(tmp_path: Path) -> Bucket:
    """A table ``k`` with a unique key ``uv`` and a row."""
    bucket = Bucket(tmp_path)
    bucket.schema("k", 100, "id,v", "CREATE TABLE `k` (`id` INT PRIMARY KEY,`v` VARCHAR(16), UNIQUE KEY `uv` (`v`))", 3)
    bucket.rows("k/100/1", "I 110 1 x")
    return bucket


def rows(server: MariaDb, table: str) -> list[tuple[object, ...]]:
    return sorted(Person(MariaDbTarget(server), server).run(f"SELECT * FROM test.{table}"))


@pytest.mark.parametrize(
    "statement",
    [
        "ALTER TABLE `k` DROP INDEX /* gone */ `uv`",
        "DROP INDEX uv/* gone */ ON `k`",
        "ALTER TABLE `k` DROP INDEX # old\n `uv`",
        "ALTER TABLE `k` DROP INDEX -- old\n `uv`",
        f"{APPLICATION}ALTER TABLE `k` /* a */ DROP KEY uv, COMMENT 'c'",
    ],
)
def test_an_index_is_dropped_whatever_comment_stands_before_its_name(bucket: Bucket, mariadb: MariaDb, statement: str) -> None:
    """Else the next row with the same value would replace the first one."""
    bucket.schema("k", 200, "id,v", statement, 8)
    bucket.rows("k/200/1", "I 210 2 x")
    assert bucket.at(250, sink=mariadb.uri()).code == EXIT_OK
    assert rows(mariadb, "k") == [(1, "x"), (2, "x")]


@pytest.mark.parametrize(
    "statement",
    [
        "ALTER TABLE `k` CACHE",
        "ALTER TABLE `k` ADD INDEX `e` ((LOWER(`v`)))",
        "ALTER TABLE `k` DROP CONSTRAINT `chk`",
        "DROP INDEX `never` ON `k`",
    ],
)
def test_what_mariadb_does_not_know_is_left_out_behind_a_comment_too(bucket: Bucket, mariadb: MariaDb, statement: str) -> None:
    bucket.schema("k", 200, "id,v", f"{APPLICATION}{statement}", 8)
    bucket.rows("k/200/1", "I 210 2 y")
    assert bucket.at(250, sink=mariadb.uri()).code == EXIT_OK
    assert rows(mariadb, "k") == [(1, "x"), (2, "y")]


def test_a_view_behind_a_comment_is_one(bucket: Bucket, mariadb: MariaDb) -> None:
    bucket.schema("w", 200, "id,v", f"{APPLICATION}CREATE VIEW `w` AS SELECT `id`,`v` FROM `k`", 21)
    assert bucket.at(250, sink=mariadb.uri()).code == EXIT_OK
    assert rows(mariadb, "w") == [(1, "x")]
    assert bucket.at(250).code == EXIT_OK
    assert bucket.state("w") is None, "DuckDB gets no views"
    bucket.schema("w", 300, "id,v", f"{APPLICATION}DROP VIEW `w`", 24)
    assert bucket.at(350, sink=mariadb.uri()).code == EXIT_OK
    assert not Person(MariaDbTarget(mariadb), mariadb).run("SHOW TABLES FROM test LIKE 'w'")


def test_a_name_may_begin_with_a_digit(bucket: Bucket) -> None:
    create = f"CREATE TABLE 2024_p (id INT PRIMARY KEY, v VARCHAR(16)) {PARTITIONED}"
    bucket.schema("2024_p", 120, "id,v", create, 3)
    bucket.rows("2024_p/120/1", "I 130 4 d", "I 130 500 f")
    bucket.schema("2024_p", 200, "id,v", "ALTER TABLE 2024_p TRUNCATE PARTITION p0", 32)
    renamed = (ID, V | {"ColumnName": "2nd"})
    bucket.schema("k", 210, renamed, "ALTER TABLE k RENAME COLUMN v TO 2nd", 12)
    assert bucket.at(250).code == EXIT_OK
    assert (bucket.state("2024_p"), bucket.state("k")) == ([(500, "f")], [(1, "x")])


def test_a_policy_holds_for_a_name_that_begins_with_a_digit(bucket: Bucket) -> None:
    bucket.schema("2024_p", 120, "id,v", f"CREATE TABLE 2024_p (id INT PRIMARY KEY, v VARCHAR(16)) {PARTITIONED}", 3)
    bucket.rows("2024_p/120/1", "I 130 4 d")
    bucket.schema("2024_p", 200, "id,v", "ALTER TABLE 2024_p TRUNCATE PARTITION p0", 32)
    ran = bucket.at(250, policies=SchemaChangePolicies.parse_text("partition=approve"))
    assert set(ran.stopped) == {str(TableId("test", "2024_p"))}
    assert bucket.state("2024_p") == [(4, "d")]
