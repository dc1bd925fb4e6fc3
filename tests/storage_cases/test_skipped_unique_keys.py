"""A schema change that drops or changes a unique key is not skipped while the target has it: rows would push each other out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from building import Bucket, Ran, ledger_at

from headrace.cli.main import main
from headrace.errors import EXIT_OK, EXIT_TABLE_STOPPED
from headrace.model.ledger import JournalState, TableStatus
from headrace.model.policy import SchemaChangePolicies
from headrace.model.table import TableId
from person import Person
from servers import MariaDb
from storage_folder import ID, V
from targets import MariaDbTarget

pytestmark = [pytest.mark.pipeline, pytest.mark.server]

EMAIL = {"ColumnName": "email", "ColumnType": "VARCHAR", "ColumnPrecision": "20"}
N = {"ColumnName": "n", "ColumnType": "INT", "ColumnNullable": "false", "ColumnDefault": "0"}
T = TableId("test", "t")


class Feed:
    """A table with a unique key, applied with its first row, and what the source does to it then."""

    def __init__(self, folder: Path, server: MariaDb) -> None:
        server.fresh()
        self.uri, self.person = server.uri(), Person(MariaDbTarget(server), server)
        self.bucket = Bucket(folder)
        keys = "UNIQUE KEY `ue` (`email`),KEY `kv` (`v`)"
        text = f"CREATE TABLE `t` (`id` INT PRIMARY KEY,`email` VARCHAR(20),`v` VARCHAR(16),{keys})"
        self.bucket.schema("t", 100, (ID, EMAIL, V), text, 3)
        self.bucket.rows("t/100/1", "I 110 1 a x")
        self.bucket.checkpoint(150)
        assert self.run("").code == EXIT_OK

    def change(self, statement: str, type: int, version: int = 200) -> None:
        """A change without columns, and a row that the key refused before it."""
        self.bucket.schema("t", version, (ID, EMAIL, V), statement, type)
        self.bucket.rows(f"t/{version}/1", f"I {version + 10} {version} a y")
        self.bucket.checkpoint(version + 50)

    def run(self, policies: str, **options: Any) -> Ran:
        return self.bucket.run(self.uri, policies=SchemaChangePolicies.parse_text(policies), **options)

    def ids(self) -> list[int]:
        return sorted(row[0] for row in self.person.run("SELECT id FROM test.t"))

    def waiting(self) -> str:
        """The identity of the one change that waits."""
        (entry,) = [e for e in ledger_at(self.uri).journal.values() if e.state is JournalState.WAITING]
        return entry.identity

    def decide(self, verdict: str) -> None:
        assert main(["ddl", verdict, self.waiting(), "--sink", self.uri]) == 0


@pytest.fixture
def feed(mariadb: MariaDb, tmp_path: Path) -> Feed:
    return Feed(tmp_path, mariadb)


DROPS = [
    ("ALTER TABLE `t` DROP INDEX `ue`", 8),
    ("ALTER TABLE `t` DROP KEY IF EXISTS UE", 8),
    ("DROP INDEX `ue` ON `t`", 8),
    ("ALTER TABLE `t` DROP INDEX `kv`, DROP INDEX `ue`", 8),
    ("ALTER TABLE `t` DROP INDEX `ue`, ADD UNIQUE INDEX `ue` (`email`,`id`)", 8),
]


@pytest.mark.parametrize(("statement", "type"), DROPS)
def test_a_policy_does_not_skip_the_drop_of_a_unique_key(feed: Feed, statement: str, type: int) -> None:
    feed.change(statement, type)
    for _ in range(2):
        ran = feed.run("index=skip")
        assert (ran.code, feed.ids()) == (EXIT_TABLE_STOPPED, [1])
        assert "The source drops or changes the unique key ue" in ran.stopped["test.t"]
        assert ledger_at(feed.uri).tables[T].status is TableStatus.WAITING


def test_the_drop_of_a_plain_index_is_skipped(feed: Feed) -> None:
    feed.change("ALTER TABLE `t` DROP INDEX `kv`", 8)
    feed.bucket.rows("t/200/1", "I 210 200 b y")
    ran = feed.run("index=skip")
    assert (ran.code, feed.ids()) == (EXIT_OK, [1, 200])
    assert "was skipped" in ran.told


def approve(feed: Feed) -> str:
    feed.decide("approve")
    return "index=skip"


def take_the_kind_out(feed: Feed) -> str:
    return ""


def drop_by_hand(feed: Feed) -> str:
    feed.person.run("ALTER TABLE test.t DROP INDEX ue")
    return "index=skip"


def drop_by_hand_and_skip(feed: Feed) -> str:
    drop_by_hand(feed)
    feed.decide("skip")
    return "index=skip"


@pytest.mark.parametrize("way_out", [approve, take_the_kind_out, drop_by_hand, drop_by_hand_and_skip])
def test_the_ways_out_bring_the_rows_in(feed: Feed, way_out: Callable[[Feed], str]) -> None:
    feed.change("ALTER TABLE `t` DROP INDEX `ue`", 8)
    assert feed.run("index=skip").code == EXIT_TABLE_STOPPED
    ran = feed.run(way_out(feed))
    assert (ran.code, ran.stopped, feed.ids()) == (EXIT_OK, {}, [1, 200])
    keys = feed.person.run("SELECT DISTINCT index_name FROM information_schema.statistics WHERE table_name = 't'")
    assert sorted(name for (name,) in keys) == ["PRIMARY", "kv"]
    assert ledger_at(feed.uri).decisions == {}


def test_a_persons_skip_waits_until_the_key_is_gone(feed: Feed) -> None:
    feed.change("ALTER TABLE `t` DROP INDEX `ue`", 8)
    assert feed.run("index=approve").code == EXIT_TABLE_STOPPED
    feed.decide("skip")
    ran = feed.run("")
    assert (ran.code, feed.ids()) == (EXIT_TABLE_STOPPED, [1])
    assert "The source drops or changes the unique key ue" in ran.stopped["test.t"]
    assert "--schema-changes" not in ran.stopped["test.t"], "the decision counts before the policy"
    drop_by_hand(feed)
    assert (feed.run("").code, feed.ids()) == (EXIT_OK, [1, 200])


def test_who_runs_something_else_is_told_of_the_key(feed: Feed) -> None:
    feed.change("ALTER TABLE `t` DROP INDEX `ue`", 8)
    assert feed.run("index=approve").code == EXIT_TABLE_STOPPED
    assert main(["ddl", "edit", feed.waiting(), "SELECT 1", "--sink", feed.uri]) == 0
    assert "the target has the unique key ue, which the source drops or changes" in feed.run("").told


@pytest.mark.parametrize("whole", [False, True], ids=["rows", "rows and shape"])
def test_who_loads_the_table_anew_is_told_of_the_key(feed: Feed, whole: bool) -> None:
    feed.change("ALTER TABLE `t` DROP INDEX `ue`", 8)
    assert feed.run("index=approve").code == EXIT_TABLE_STOPPED
    if whole:
        drop_by_hand(feed)
    feed.person.run("REPLACE INTO test.t VALUES (200, 'b', 'y')")
    assert main(["table", "resync", "test.t", "--at", "250", "--sink", feed.uri]) == 0
    ran = feed.run("index=approve")
    assert (ran.code, feed.ids()) == (EXIT_OK, [1, 200])
    assert ("the target has the unique key ue, which the source drops or changes" in ran.told) is not whole


def test_a_persons_skip_can_be_taken_back(feed: Feed) -> None:
    feed.change("ALTER TABLE `t` DROP INDEX `ue`", 8)
    assert feed.run("index=skip").code == EXIT_TABLE_STOPPED
    for verdict, code in (("skip", EXIT_TABLE_STOPPED), ("approve", EXIT_OK)):
        feed.decide(verdict)
        assert feed.run("index=skip").code == code
    assert feed.ids() == [1, 200]


def test_the_primary_key_is_not_left_by_a_persons_skip(feed: Feed) -> None:
    feed.bucket.schema("t", 200, (ID, EMAIL, V), "ALTER TABLE `t` DROP PRIMARY KEY", 33)
    feed.bucket.checkpoint(300)
    assert feed.run("key=approve").code == EXIT_TABLE_STOPPED
    feed.decide("skip")
    assert "The source drops or changes the unique key PRIMARY" in feed.run("key=approve").stopped["test.t"]


def test_a_unique_key_keeps_no_name_that_a_later_drop_would_not_find(feed: Feed) -> None:
    feed.change("ALTER TABLE `t` RENAME INDEX `ue` TO `other`", 27)
    feed.change("ALTER TABLE `t` DROP INDEX `other`", 8, version=300)
    assert "The source drops or changes the unique key ue" in feed.run("index=skip").stopped["test.t"]
    feed.bucket.rows("t/200/1", "I 210 2 b y")
    feed.decide("approve")
    assert "The source drops or changes the unique key other" in feed.run("index=skip").stopped["test.t"]
    feed.decide("approve")
    assert (feed.run("index=skip").code, feed.ids()) == (EXIT_OK, [1, 2, 300])


def test_a_late_change_of_a_former_table_is_skipped_though_the_new_one_has_the_key(feed: Feed) -> None:
    feed.bucket.schema("t", 300, (ID, EMAIL, V), "DROP TABLE `t`", 4)
    text = "CREATE TABLE `t` (`id` INT PRIMARY KEY,`email` VARCHAR(20),`v` VARCHAR(16),UNIQUE KEY `ue` (`email`))"
    feed.bucket.schema("t", 400, (ID, EMAIL, V), text, 3)
    feed.bucket.rows("t/400/1", "I 410 7 a x")
    feed.bucket.checkpoint(450)
    assert feed.run("").code == EXIT_OK
    feed.bucket.schema("t", 200, (ID, EMAIL, V), "ALTER TABLE `t` DROP INDEX `ue`", 8)
    feed.bucket.checkpoint(500)
    assert "was found only after later rows" in feed.run("").stopped["test.t"]
    feed.decide("skip")
    ran = feed.run("")
    assert (ran.code, ran.stopped, feed.ids()) == (EXIT_OK, {}, [7])


@pytest.mark.parametrize("statement", ["ALTER TABLE `t` DROP COLUMN `n`", ""], ids=["statement", "shape only"])
def test_a_policy_does_not_skip_the_drop_of_a_column_in_a_unique_key(mariadb: MariaDb, tmp_path: Path, statement: str) -> None:
    bucket, person = Bucket(tmp_path), Person(MariaDbTarget(mariadb), mariadb)
    text = "CREATE TABLE `t` (`id` INT PRIMARY KEY,`n` INT NOT NULL DEFAULT 0 UNIQUE,`v` VARCHAR(16))"
    bucket.schema("t", 100, (ID, N, V), text, 3)
    bucket.rows("t/100/1", "I 110 1 7 x")
    bucket.schema("t", 200, (ID, N), "ALTER TABLE `t` DROP COLUMN `v`", 6)
    bucket.rows("t/200/1", "I 210 2 8")
    bucket.schema("t", 300, (ID,), statement, 6)
    bucket.rows("t/300/1", "I 310 3", "I 311 4", "I 312 5")
    bucket.checkpoint(400)
    skips = {"policies": SchemaChangePolicies.parse_text("drop-column=skip")}
    ran = bucket.run(mariadb.uri(), **skips)
    assert ran.code == EXIT_TABLE_STOPPED
    assert "The source drops or changes the unique key n" in ran.stopped["test.t"]
    assert person.run("SELECT id, n, v FROM test.t ORDER BY id") == [(1, 7, "x"), (2, 8, None)]
    person.run("ALTER TABLE test.t DROP INDEX n")
    assert bucket.run(mariadb.uri(), **skips).code == EXIT_OK
    assert person.run("SELECT id, n FROM test.t ORDER BY id") == [(1, 7), (2, 8), (3, 0), (4, 0), (5, 0)]


CHANGED = [
    ("ALTER TABLE `t` MODIFY `email` VARCHAR(20) COLLATE utf8mb4_bin", 12),
    ("ALTER TABLE `t` MODIFY COLUMN `EMAIL` VARBINARY(20)", 12),
    ("ALTER TABLE `t` CHANGE `email` `email` DATETIME(6)", 12),
    ("ALTER TABLE `t` CONVERT TO CHARACTER SET utf8mb4 COLLATE utf8mb4_bin", 29),
]


@pytest.mark.parametrize(("statement", "type"), CHANGED)
def test_a_change_of_a_column_in_a_unique_key_is_skipped_by_nobody(feed: Feed, statement: str, type: int) -> None:
    feed.change(statement, type)
    assert feed.run("alter-column=skip,other=skip").code == EXIT_TABLE_STOPPED
    feed.decide("skip")
    ran = feed.run("")
    assert (ran.code, feed.ids()) == (EXIT_TABLE_STOPPED, [1])
    assert "The source drops or changes the unique key ue" in ran.stopped["test.t"]
    drop_by_hand(feed)
    assert (feed.run("").code, feed.ids()) == (EXIT_OK, [1, 200])


def test_a_change_of_a_column_that_a_unique_key_is_computed_from_is_skipped_by_nobody(feed: Feed) -> None:
    feed.person.run("ALTER TABLE test.t ADD COLUMN g VARCHAR(20) AS (concat(v, '')) VIRTUAL, ADD UNIQUE KEY ug (g)")
    feed.change("ALTER TABLE `t` MODIFY `v` VARCHAR(16) COLLATE utf8mb4_bin", 12)
    ran = feed.run("alter-column=skip,other=skip")
    assert (ran.code, feed.ids()) == (EXIT_TABLE_STOPPED, [1])
    assert "The source drops or changes the unique key ug" in ran.stopped["test.t"]


def test_a_change_of_another_column_is_skipped(feed: Feed) -> None:
    feed.bucket.schema("t", 200, (ID, EMAIL, V), "ALTER TABLE `t` MODIFY `v` VARCHAR(16) COLLATE utf8mb4_bin", 12)
    feed.bucket.rows("t/200/1", "I 210 200 b y")
    feed.bucket.checkpoint(250)
    ran = feed.run("alter-column=skip,other=skip")
    assert (ran.code, feed.ids()) == (EXIT_OK, [1, 200])
    assert "was skipped" in ran.told


@pytest.mark.parametrize("action", ["RENAME COLUMN `email` TO `mail`", "CHANGE `email` `mail` VARCHAR(20)"])
def test_a_rename_of_a_column_in_a_unique_key_is_skipped_once_it_is_done_by_hand(feed: Feed, action: str) -> None:
    feed.bucket.schema("t", 200, (ID, EMAIL | {"ColumnName": "mail"}, V), f"ALTER TABLE `t` {action}", 12)
    feed.bucket.rows("t/200/1", "I 210 200 b y")
    feed.bucket.checkpoint(250)
    assert feed.run("rename-column=approve").code == EXIT_TABLE_STOPPED
    feed.decide("skip")
    assert "The source drops or changes the unique key ue" in feed.run("").stopped["test.t"]
    feed.person.run("ALTER TABLE test.t CHANGE email mail VARCHAR(20)")
    assert (feed.run("").code, feed.person.run("SELECT id, mail FROM test.t ORDER BY id")) == (EXIT_OK, [(1, "a"), (200, "b")])


def test_duckdb_skips_no_other_type_of_a_key(tmp_path: Path) -> None:
    """As numbers the keys would be one."""
    bucket = Bucket(tmp_path)
    bucket.create("t")
    bucket.rows("t/100/1", "I 110 1 a")
    text_id = ID | {"ColumnType": "VARCHAR", "ColumnPrecision": "20"}
    bucket.schema("t", 200, (text_id, V), "ALTER TABLE `t` MODIFY `id` VARCHAR(20) NOT NULL", 12)
    bucket.rows("t/200/1", "I 210 01 b", "I 211 1.0 c")
    policies = SchemaChangePolicies.parse_text("alter-column=skip")
    ran = bucket.at(250, policies=policies)
    assert (ran.code, bucket.state("t")) == (EXIT_TABLE_STOPPED, [(1, "a")])
    assert "The source drops or changes the unique key (id)" in ran.told + str(ran.problems)
    assert bucket.at(260).code == EXIT_OK
    assert bucket.state("t") == [("01", "b"), ("1", "a"), ("1.0", "c")]
