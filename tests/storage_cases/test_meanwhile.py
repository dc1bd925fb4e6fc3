"""What people did in a change's place while a run was down, or while the change waited, is not taken for the change itself."""

from __future__ import annotations

from pathlib import Path

import pytest
from changing import World, stays_unclear

from headrace.errors import EXIT_OK, EXIT_TABLE_STOPPED
from headrace.model.ledger import JournalState, Verdict
from headrace.model.policy import SchemaChangePolicies
from headrace.testing.faults import Moment
from servers import MariaDb
from storage_folder import ID

pytestmark = [pytest.mark.pipeline, pytest.mark.server]

UNIQUE = "CREATE TABLE `k` (`id` INT PRIMARY KEY,`v` VARCHAR(16), UNIQUE KEY `uv` (`v`))"


@pytest.fixture
def world(tmp_path: Path, mariadb: MariaDb) -> World:
    return World(tmp_path, mariadb)


HIS = {
    "rows": ("CREATE TABLE test.{0} LIKE test.moved", "INSERT INTO test.{0} VALUES (1, 'his'), (7, 'his')"),
    "no rows": ("CREATE TABLE test.{0} LIKE test.moved",),
    "another key": (
        "CREATE TABLE test.{0} (id INT PRIMARY KEY, v VARCHAR(16) UNIQUE)",
        "INSERT INTO test.{0} SELECT * FROM test.moved",
    ),
}


@pytest.mark.parametrize("his", HIS)
@pytest.mark.parametrize("moment", Moment)
def test_a_persons_table_is_not_the_one_that_a_run_began_to_rename(world: World, moment: Moment, his: str) -> None:
    """It would get the source's rows, and a later DROP would take it."""
    former, name = ("t", "n") if moment is Moment.BEFORE else ("n", "t")
    world.bucket.schema("n", 200, "id,v", "RENAME TABLE `test`.`t` TO `test`.`n`", 14)
    world.dies(250, moment)
    world.acts(f"RENAME TABLE test.{former} TO test.moved", *(act.format(name) for act in HIS[his]))
    world.bucket.rows("n/200/1", "U 260 1 theirs")
    stays_unclear(world, [name])


@pytest.mark.parametrize(
    ("definition", "stops"), [("v VARCHAR(16), UNIQUE KEY hers (v)", True), ("v VARCHAR(16)", False), ("w VARCHAR(16)", True)]
)
def test_a_persons_empty_table_is_looked_at_like_one_that_was_there_before(world: World, definition: str, stops: bool) -> None:
    """With a unique key of theirs the source's rows would push each other out."""
    world.bucket.create("n", 200)
    world.dies(250, Moment.BEFORE)
    world.acts(f"CREATE TABLE test.n (id INT PRIMARY KEY, {definition})")
    world.bucket.rows("n/200/1", "I 210 1 x", "I 220 2 x")
    ran = world.run(300)
    assert ran.code == (EXIT_TABLE_STOPPED if stops else EXIT_OK)
    assert ("already has this table" in ran.stopped.get("test.n", "")) is stops
    assert stops or world.rows("n") == [(1, "x"), (2, "x")]


@pytest.mark.parametrize(
    "his",
    [
        "RENAME INDEX uv TO uv_old",
        "DROP INDEX uv, ADD UNIQUE KEY uv (v) COMMENT 'to be dropped'",
        "DROP INDEX uv, ADD UNIQUE KEY uv_8 (v(8))",
    ],
)
def test_a_unique_key_that_a_person_altered_is_not_taken_for_dropped(world: World, his: str) -> None:
    """Rows that the source holds side by side would push each other out."""
    world.bucket.schema("k", 160, "id,v", UNIQUE, 3)
    world.bucket.rows("k/160/1", "I 165 1 x")
    assert world.run(170).code == EXIT_OK
    world.bucket.schema("k", 200, "id,v", "ALTER TABLE `k` DROP INDEX `uv`", 8)
    world.dies(250, Moment.BEFORE)
    world.acts(f"ALTER TABLE test.k {his}")
    world.bucket.rows("k/200/1", "I 260 2 x")
    stays_unclear(world, "k")


def test_a_column_that_a_person_altered_is_not_taken_for_dropped(world: World) -> None:
    world.bucket.schema("t", 200, "id", "ALTER TABLE `t` DROP COLUMN `v`", 6)
    world.dies(250, Moment.BEFORE)
    world.acts("ALTER TABLE test.t MODIFY v VARCHAR(17)")
    stays_unclear(world, "t")


@pytest.mark.parametrize("clause", ["CHANGE `d` `e` INT", "CHANGE `d` `e` DECIMAL(10,2) NOT NULL DEFAULT 3"])
def test_a_column_that_a_person_renamed_keeps_a_change_waiting_that_does_more(world: World, clause: str) -> None:
    d = {"ColumnName": "d", "ColumnType": "DECIMAL", "ColumnPrecision": "10", "ColumnScale": "2"}
    e = {"ColumnName": "e", "ColumnType": "INT", "ColumnPrecision": "11"} if "INT" in clause else d | {"ColumnName": "e"}
    world.bucket.schema("s", 160, (ID, d), "CREATE TABLE `s` (`id` INT PRIMARY KEY, `d` DECIMAL(10,2))", 3)
    world.bucket.rows("s/160/1", ("I", 165, 1, "1.25"))
    assert world.run(170).code == EXIT_OK
    world.bucket.schema("s", 200, (ID, e), f"ALTER TABLE `s` {clause}", 12)
    asks = {"policies": SchemaChangePolicies.parse_text("rename-column=approve,alter-column=approve")}
    assert world.run(250, **asks).code == EXIT_TABLE_STOPPED
    world.acts("ALTER TABLE test.s RENAME COLUMN d TO e")
    world.decide(Verdict.APPROVE)
    ran = world.run(300, **asks)
    assert (ran.code, world.entry().state) == (EXIT_TABLE_STOPPED, JournalState.WAITING)
    assert "Unknown column 'd'" in ran.stopped["test.s"]
    world.acts("ALTER TABLE test.s RENAME COLUMN e TO d")
    world.decide(Verdict.APPROVE)
    assert world.run(310, **asks).code == EXIT_OK
    assert [str(value) for _, value in world.rows("s")] == ["1" if "INT" in clause else "1.25"]


def test_a_partition_is_exchanged_whatever_case_its_name_is_written_in(world: World) -> None:
    world.bucket.schema("p", 200, "id,v", "ALTER TABLE `p` EXCHANGE PARTITION `P0` WITH TABLE `t`", 42)
    world.bucket.schema("t", 200, "id,v", "", 0)
    world.dies(250, Moment.AFTER)
    ran = world.run(300)
    assert (ran.code, ran.stopped) == (EXIT_OK, {})
    assert (world.rows("p"), world.rows("t")) == ([(1, "a"), (500, "f")], [(4, "d")])
