"""A name in a statement means the table that it names without regard to case, as in TiDB, on every target."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pytest
from building import Bucket, decide, ledger, tables

from headrace.ddl.names import KnownNames, spelled
from headrace.ddl.statement import read_statement
from headrace.errors import EXIT_OK, EXIT_TABLE_STOPPED
from headrace.model.ledger import Verdict
from headrace.model.policy import SchemaChangePolicies
from headrace.model.table import TableId
from person import Person
from places import Place
from storage_folder import ID
from targets import Target

pytestmark = pytest.mark.pipeline

PARTITIONED = (
    "CREATE TABLE `p` (`id` INT PRIMARY KEY,`v` VARCHAR(16)) PARTITION BY RANGE (`id`) "
    "(PARTITION p0 VALUES LESS THAN (10), PARTITION p1 VALUES LESS THAN (20))"
)


@dataclass
class World:
    """A changefeed and its target."""

    bucket: Bucket
    target: Target
    uri: str
    person: Person

    def at(self, checkpoint: int, *tables: str) -> list[list[tuple[Any, ...]]]:
        """Runs up to a checkpoint, which has to succeed; the rows of these tables of ``test``."""
        self.bucket.checkpoint(checkpoint)
        ran = self.bucket.run(self.uri)
        assert (ran.code, ran.stopped) == (EXIT_OK, {})
        return [sorted(self.person.run(f"SELECT id, v FROM test.{table}")) for table in tables]

    def names(self) -> set[str]:
        return {f"{database}.{table}" for database, table in self.target.tables()}


@pytest.fixture
def world(place: Place, tmp_path: Path) -> World:
    target, uri = place.fresh()
    bucket = Bucket(tmp_path)
    bucket.create("a")
    bucket.rows("a/100/1", "I 110 1 x")
    return World(bucket, target, uri, Person.at(place, target))


in_two_spellings = pytest.mark.parametrize("typed", ["a", "A"])
pipeline = pytest.mark.pipeline


@pipeline
@in_two_spellings
@pytest.mark.parametrize("statement", ["RENAME TABLE `{}` TO `b`", "ALTER TABLE test.{} RENAME TO b", "rename table {} to TEST.b"])
def test_a_renamed_table_keeps_its_rows(world: World, typed: str, statement: str) -> None:
    world.bucket.schema("b", 200, "id,v", statement.format(typed), 14)
    world.bucket.rows("b/200/1", "I 210 2 y")
    assert world.at(300, "b") == [[(1, "x"), (2, "y")]]
    assert world.names() == {"test.b"}


@pipeline
@in_two_spellings
def test_tables_that_swap_their_names_keep_their_rows(world: World, typed: str) -> None:
    world.bucket.create("b")
    world.bucket.rows("b/100/1", "I 111 2 y")
    world.bucket.schema("b", 200, "id,v", "RENAME TABLE `test`.`c` TO `test`.`b`", 14)
    world.bucket.schema("a", 200, "id,v", f"RENAME TABLE `test`.`{'B' if typed == 'A' else 'b'}` TO `test`.`a`", 14)
    assert world.at(300, "a", "b") == [[(2, "y")], [(1, "x")]]


@pipeline
@in_two_spellings
def test_a_partition_is_exchanged_with_the_table_that_is_meant(world: World, typed: str) -> None:
    world.bucket.schema("p", 105, "id,v", PARTITIONED, 3)
    world.bucket.rows("p/105/112/1", "I 112 3 in_p")
    world.bucket.schema("p", 200, "id,v", f"ALTER TABLE `p` EXCHANGE PARTITION `p0` WITH TABLE `{typed}`", 42)
    world.bucket.schema("a", 200, "id,v", "", 0)
    world.bucket.rows("a/200/1", "D 210 3 in_p", "I 220 5 later_a")
    world.bucket.rows("p/200/112/1", "I 220 6 later_p")
    assert world.at(300, "p", "a") == [[(1, "x"), (6, "later_p")], [(5, "later_a")]]


@pipeline
@in_two_spellings
def test_one_table_is_altered_emptied_and_dropped(world: World, typed: str) -> None:
    world.bucket.schema("a", 200, "id,v,c", f"ALTER TABLE `{typed}` ADD COLUMN `c` INT DEFAULT 7", 5)
    assert world.at(210, "a") == [[(1, "x")]]
    world.bucket.schema("a", 220, "id,v,c", f"TRUNCATE TABLE {typed}", 11)
    assert world.at(230, "a") == [[]]
    world.bucket.schema("a", 240, "id,v,c", f"CREATE INDEX i ON {typed} (v)", 7)
    world.bucket.schema("a", 250, "id,v,c", f"DROP TABLE {typed}", 4)
    world.at(260)
    assert world.names() == set()


@pipeline
@in_two_spellings
def test_a_copy_is_made_of_the_table_that_is_meant(world: World, typed: str) -> None:
    world.bucket.schema("b", 200, "id,v", f"CREATE TABLE `b` LIKE `{typed}`", 3)
    world.bucket.rows("b/200/1", "I 210 2 y")
    world.bucket.schema("a", 250, "id,v", "DROP TABLE `a`", 4)
    assert world.at(300, "b") == [[(2, "y")]]
    assert world.names() == {"test.b"}


@pipeline
def test_a_table_comes_back_after_its_database_was_dropped_in_another_case(world: World) -> None:
    """In the catalogue the table is gone, so that what has its name later is not its heir."""
    world.bucket.schema("", 200, (), "DROP DATABASE `TEST`", 2, database="TEST")
    world.bucket.schema("", 210, (), "CREATE DATABASE `test`", 1)
    world.bucket.schema("a", 220, "id,v,c", "", 0)
    world.bucket.rows("a/220/1", "I 230 2 y 3")
    assert world.at(300, "a") == [[(2, "y")]]


@pipeline
def test_names_that_differ_in_more_than_case_are_two(world: World) -> None:
    world.bucket.schema("", 90, (), "CREATE DATABASE `straße`", 1, database="straße")
    world.bucket.create("a", database="straße")
    world.bucket.schema("", 150, (), "CREATE DATABASE `strasse`", 1, database="strasse")
    world.bucket.schema("", 200, (), "DROP DATABASE `strasse`", 2, database="strasse")
    world.at(300)
    assert world.names() == {"test.a", "straße.a"}


NEXT = [(5, "new")]


def gone(bucket: Bucket, how: str) -> None:
    """The table ``a`` gives its name up at 200."""
    if how == "drop":
        bucket.schema("a", 200, "id,v", "DROP TABLE `test`.`a`", 4)
    else:
        bucket.schema("b", 200, "id,v", "RENAME TABLE `test`.`a` TO `test`.`b`", 14)


def next_one(bucket: Bucket, name: str = "A", at: int = 250) -> None:
    """Another table takes the name."""
    bucket.create(name, at)
    bucket.rows(f"{name}/{at}/1", f"I {at + 10} 5 new")


@pipeline
@pytest.mark.parametrize("name", ["a", "A"])
@pytest.mark.parametrize("how", ["drop", "rename"])
@pytest.mark.parametrize("steps", [(300,), (150, 300), (150, 220, 300)])
def test_a_name_goes_to_the_next_table_when_the_former_one_is_gone(
    world: World, steps: tuple[int, ...], how: str, name: str
) -> None:
    gone(world.bucket, how)
    next_one(world.bucket, name)
    for checkpoint in steps:
        world.at(checkpoint)
    assert world.at(310, name) == [NEXT]
    assert world.names() == ({f"test.{name}"} if how == "drop" else {f"test.{name}", "test.b"})
    assert how == "drop" or world.at(320, "b") == [[(1, "x")]]


@pipeline
@pytest.mark.parametrize("is_empty", [True, False])
def test_a_table_waits_while_the_end_of_its_namesake_does(tmp_path: Path, is_empty: bool) -> None:
    policies = SchemaChangePolicies.parse({"drop-table": "approve"})
    bucket = Bucket(tmp_path)
    tables(bucket, "a", "o")
    if is_empty:
        bucket.rows("a/100/2", "D 115 1 a1", "D 116 2 a2")
    bucket.schema("a", 180, "id,v,c", "ALTER TABLE `test`.`a` ADD COLUMN `c` INT DEFAULT 7", 5)
    gone(bucket, "drop")
    next_one(bucket)
    stopped = bucket.at(300, policies=policies).stopped
    assert "waits for approval" in stopped["test.a"]
    assert "also touches test.a, which has stopped. It goes on when test.a does" in stopped["test.A"]
    assert bucket.state("a") == ([] if is_empty else [(1, "a1", 7), (2, "a2", 7)])
    (drop,) = (e.identity for e in ledger(bucket).journal.values() if e.commit_ts == 200)
    decide(bucket, Verdict.APPROVE, identity=drop)
    assert bucket.at(310, policies=policies).code == EXIT_OK
    assert (bucket.tables(), bucket.state("A")) == ({("test", "o"), ("test", "A")}, NEXT)


@pipeline
def test_a_name_that_lives_between_two_renames_is_taken_until_they_are_done(tmp_path: Path) -> None:
    policies = SchemaChangePolicies.parse({"rename-table": "approve"})
    bucket = Bucket(tmp_path)
    tables(bucket, "a", "c", "o")
    assert bucket.at(120).code == EXIT_OK
    bucket.schema("a", 200, "id,v", "RENAME TABLE `test`.`c` TO `test`.`a`", 14)
    bucket.schema("c", 200, "id,v", "RENAME TABLE `test`.`X` TO `test`.`c`", 14)
    next_one(bucket, "x")
    for checkpoint in (300, 310):
        assert "test.x" in bucket.at(checkpoint, policies=policies).stopped
        for entry in ledger(bucket).journal.values():
            if not entry.state.is_settled and entry.commit_ts == 200:
                decide(bucket, Verdict.APPROVE, identity=entry.identity)
    assert bucket.at(320, policies=policies).code == EXIT_OK
    assert [bucket.state(name) for name in ("a", "c", "x")] == [[(1, "c1"), (2, "c2")], [(1, "a1"), (2, "a2")], NEXT]


@pipeline
@pytest.mark.parametrize("was_known", [True, False])
def test_a_drop_that_is_found_late_does_not_reach_the_next_table_of_the_name(tmp_path: Path, was_known: bool) -> None:
    bucket = Bucket(tmp_path)
    tables(bucket, *(["a"] if was_known else []), "o")
    assert bucket.at(120).code == EXIT_OK
    bucket.rows("o/101/2" if was_known else "o/100/2", "I 240 3 o3")
    bucket.create("A", 250)
    if was_known:
        with duckdb.connect(str(bucket.database)) as connection:
            connection.execute("DROP TABLE test.a")
    bucket.rows("A/250/1", "I 260 5 new")
    assert bucket.at(300).code == EXIT_OK
    gone(bucket, "drop")
    ran = bucket.at(310)
    assert "was dropped or renamed" in ran.stopped["test.a"]
    decide(bucket, Verdict.APPROVE)
    assert bucket.at(320).code == EXIT_TABLE_STOPPED
    assert bucket.state("A") == NEXT
    decide(bucket, Verdict.SKIP)
    assert (bucket.at(330).code, bucket.state("A")) == (EXIT_OK, NEXT)


T, BIG, OTHER = TableId("test", "t"), TableId("Test", "T"), TableId("Test", "x")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("DROP TABLE `T`, x, unknown", "DROP TABLE `test`.`t`, `Test`.`x`, unknown"),
        ("TRUNCATE TEST.t", "TRUNCATE `test`.`t`"),
        ("/*T![feature] TRUNCATE */ TABLE /* T */ T", "/*T![feature] TRUNCATE */ TABLE /* T */ `test`.`t`"),
        ("RENAME TABLE T TO `TEST`.`new`", "RENAME TABLE `test`.`t` TO `test`.`new`"),
        ("CREATE INDEX T ON `T` (T)", "CREATE INDEX T ON `test`.`t` (T)"),
        (
            "ALTER TABLE X ADD FOREIGN KEY (T) REFERENCES T (T)",
            "ALTER TABLE `Test`.`x` ADD FOREIGN KEY (T) REFERENCES `test`.`t` (T)",
        ),
        ("ALTER DATABASE TEST COLLATE utf8mb4_bin", "ALTER DATABASE `test` COLLATE utf8mb4_bin"),
        ("CREATE VIEW v AS SELECT * FROM T AS T, x", "CREATE VIEW v AS SELECT * FROM `test`.`t` AS T, `Test`.`x`"),
        ("nothing that T understands", "nothing that T understands"),
    ],
)
def test_a_statement_names_tables_as_they_are_spelled(text: str, expected: str) -> None:
    assert spelled(text, read_statement(text, "test"), KnownNames([T, TableId("test")], [OTHER]).meant) == expected


def test_an_exact_name_is_never_another_table() -> None:
    assert KnownNames([T], [BIG]).meant(BIG) == BIG
    assert KnownNames([T], [BIG]).meant(TableId("tesT", "T")) == T


def test_names_that_only_full_case_folding_unites_are_two_columns(world: World) -> None:
    """TiDB puts each character into lower case, so `maß` and `mass` are two names, as they are on MariaDB and DuckDB."""

    def number(name: str) -> dict[str, Any]:
        return {"ColumnName": name, "ColumnType": "INT", "ColumnPrecision": "11"}

    world.bucket.schema("t", 100, (ID, number("Maß")), "CREATE TABLE `t` (`id` INT PRIMARY KEY,`Maß` INT)", 3)
    world.bucket.rows("t/100/1", ("I", 110, 1, 10))
    both = (ID, number("Maß"), number("Mass"))
    world.bucket.schema(
        "t", 200, both, "ALTER TABLE `t` ADD COLUMN `Mass` INT, ADD INDEX `maß` (`mass`), ADD INDEX `mass` (`maß`)", 63
    )
    world.bucket.rows("t/200/1", ("I", 210, 2, 20, 21))
    world.at(220)
    assert sorted(world.person.run("SELECT * FROM test.t")) == [(1, 10, None), (2, 20, 21)]
    statement = "ALTER TABLE `t` DROP COLUMN `Mass`, RENAME COLUMN `maß` TO `x`"
    world.bucket.schema("t", 300, (ID, number("x")), statement, 63)
    statement = "ALTER TABLE `t` RENAME COLUMN `x` TO `MASS`"
    world.bucket.schema("t", 310, (ID, number("MASS")), statement, 63)
    last = number("maß") | {"ColumnDefault": "5"}
    world.bucket.schema("t", 320, (ID, last), "ALTER TABLE `t` DROP COLUMN `mass`, ADD COLUMN `maß` INT DEFAULT 5", 63)
    world.bucket.rows("t/320/1", ("I", 330, 3, 30))
    world.at(340)
    assert sorted(world.person.run("SELECT * FROM test.t")) == [(1, 5), (2, 5), (3, 30)]
