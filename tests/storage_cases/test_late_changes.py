"""A schema change whose file was not there when its tables went on: nothing passes it over, and a person decides about it."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest
from building import Bucket, Ran, decide, ledger, tables

from headrace.engine import retries
from headrace.model.ledger import TableStatus, Verdict
from headrace.model.table import TableId

pytestmark = pytest.mark.pipeline

LATE = "was found only after later rows were applied"


@pytest.fixture(autouse=True)
def _one_look(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retries, "_LOOKS", 0)


def renamed(bucket: Bucket, old: str, new: str, version: int = 200) -> str:
    return bucket.schema(new, version, "id,v", f"RENAME TABLE `test`.`{old}` TO `test`.`{new}`", 14)


def waits(ran: Ran, *names: str) -> bool:
    """Whether the run stopped for a decision about a late change of these tables."""
    return ran.code == 3 and all(LATE in ran.stopped.get(f"test.{name}", "") for name in names)


# A statement over several tables has a file for each of them.


def test_a_rename_is_not_taken_for_done_because_another_one_of_its_statement_is(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path)
    tables(bucket, "a", "b", "o")
    assert bucket.at(120).code == 0
    renamed(bucket, "b", "c")
    assert bucket.at(300).code == 0
    renamed(bucket, "a", "b")
    bucket.rows("b/200/1", "I 210 3 a3", "I 410 4 a4")
    assert waits(bucket.at(500), "a", "b")
    decide(bucket, Verdict.APPROVE)
    assert bucket.at(510).code == 0
    assert bucket.state("a") is None
    assert bucket.state("b") == [(1, "a1"), (2, "a2"), (3, "a3"), (4, "a4")]
    assert bucket.state("c") == [(1, "b1"), (2, "b2")]


PARTITIONED = "PARTITION BY RANGE (`id`) (PARTITION p0 VALUES LESS THAN (10), PARTITION p1 VALUES LESS THAN (20))"


def test_an_exchange_is_not_taken_for_done_because_the_other_tables_shape_came_first(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path)
    bucket.schema("p", 100, "id,v", f"CREATE TABLE `p` (`id` INT PRIMARY KEY,`v` VARCHAR(16)) {PARTITIONED}", 3)
    bucket.rows("p/100/112/1", "I 110 1 in_p")
    assert bucket.at(120).code == 0
    bucket.schema("e", 200, "id,v", "", 0)
    assert bucket.at(300).code == 0
    bucket.schema("p", 200, "id,v", "ALTER TABLE `test`.`p` EXCHANGE PARTITION `p0` WITH TABLE `test`.`e`", 42)
    assert waits(bucket.at(400), "p", "e")
    decide(bucket, Verdict.APPROVE)
    assert bucket.at(410).code == 0
    assert (bucket.state("p"), bucket.state("e")) == ([], [(1, "in_p")])


@pytest.mark.parametrize(("columns", "why"), [("id,v", LATE), ("id,v,c", "column c is new, and the statement does not say why")])
def test_a_truncate_is_not_taken_for_done_because_a_shape_of_its_version_was(tmp_path: Path, columns: str, why: str) -> None:
    bucket = Bucket(tmp_path)
    tables(bucket, "a", "o")
    assert bucket.at(120).code == 0
    bucket.schema("a", 200, columns, "", 0)
    assert bucket.at(300).code == 0
    bucket.schema("a", 200, columns, "TRUNCATE TABLE `test`.`a`", 11)
    ran = bucket.at(400)
    assert ran.code == 3
    assert why in ran.stopped["test.a"]
    assert bucket.state("a")


def test_a_change_that_was_applied_as_a_shape_is_done(tmp_path: Path) -> None:
    """The first that is seen of a table makes it in its later shape, and is not found again."""
    bucket = Bucket(tmp_path)
    tables(bucket, "o")
    assert bucket.at(120).code == 0
    renamed(bucket, "a", "b")
    assert bucket.at(300).code == 0
    assert bucket.at(400).code == 0
    assert ledger(bucket).tables[TableId("test", "b")].status is TableStatus.RUNNING


# A table that is gone by then.

ENDS: dict[str, tuple[str, str, int]] = {
    "dropped": ("a", "DROP TABLE `test`.`a`", 4),
    "renamed": ("b", "RENAME TABLE `test`.`a` TO `test`.`b`", 14),
}
FOUND_LATE: dict[str, tuple[str, str, int]] = {
    "index": ("a", "ALTER TABLE `test`.`a` ADD INDEX `v`(`v`)", 7),
    "truncate": ("a", "TRUNCATE TABLE `test`.`a`", 11),
    "rename": ("c", "RENAME TABLE `test`.`a` TO `test`.`c`", 14),
}


@pytest.mark.parametrize("late", FOUND_LATE)
@pytest.mark.parametrize("end", ENDS)
def test_a_change_of_a_table_that_is_gone_by_now_waits_and_does_not_bring_it_back(tmp_path: Path, end: str, late: str) -> None:
    bucket = Bucket(tmp_path)
    tables(bucket, "a", "o")
    assert bucket.at(120).code == 0
    table, statement, type_ = ENDS[end]
    bucket.schema(table, 200, "id,v", statement, type_)
    assert bucket.at(300).code == 0
    table, statement, type_ = FOUND_LATE[late]
    bucket.schema(table, 150, "id,v", statement, type_)
    ran = bucket.at(400)
    assert waits(ran, "a")
    assert "Since then, test.a was dropped or renamed." in ran.stopped["test.a"]
    assert (bucket.state("a"), bucket.state("c")) == (None, None)
    assert ledger(bucket).tables[TableId("test", "a")].status is TableStatus.GONE_WAITING
    assert bucket.at(410).code == 3
    decide(bucket, Verdict.SKIP)
    bucket.at(420)
    assert ledger(bucket).tables[TableId("test", "a")].status is TableStatus.GONE
    assert (bucket.state("a"), bucket.state("c")) == (None, None)


def test_a_change_of_a_former_table_never_hits_the_one_that_has_its_name_now(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path)
    tables(bucket, "a", "o")
    assert bucket.at(120).code == 0
    renamed(bucket, "a", "b")
    bucket.create("a", 250)
    bucket.rows("a/250/1", "I 260 5 new")
    assert bucket.at(300).code == 0
    bucket.schema("a", 150, "id,v", "TRUNCATE TABLE `test`.`a`", 11)
    ran = bucket.at(400)
    assert waits(ran, "a")
    assert "headrace ddl skip|edit" in ran.stopped["test.a"]
    decide(bucket, Verdict.APPROVE)
    assert waits(bucket.at(410), "a")
    assert bucket.state("a") == [(5, "new")]
    decide(bucket, Verdict.EDIT, 'TRUNCATE "test"."b"')
    bucket.rows("a/250/2", "I 415 6 newer")
    assert bucket.at(420).code == 0
    assert (bucket.state("a"), bucket.state("b")) == ([(5, "new"), (6, "newer")], [])


# A database.


@pytest.mark.parametrize("was_there", [False, True])
@pytest.mark.parametrize("verdict", [Verdict.SKIP, Verdict.APPROVE])
def test_a_late_drop_of_a_database_takes_no_table_that_was_created_after_it(
    tmp_path: Path, was_there: bool, verdict: Verdict
) -> None:
    bucket = Bucket(tmp_path)
    tables(bucket, "o")
    if was_there:
        bucket.create("t", 100, database="other")
    bucket.create("old", 100, database="other")
    assert bucket.at(120).code == 0
    if was_there:
        with duckdb.connect(str(bucket.database)) as connection:
            connection.execute("DROP TABLE other.t")  # by hand, so that its CREATE finds nothing of before
    bucket.create("t", 220, database="other")
    bucket.rows("t/220/1", "I 230 1 new", database="other")
    assert bucket.at(300).code == 0
    bucket.schema("", 200, (), "DROP DATABASE `other`", 2, database="other")
    bucket.schema("", 210, (), "CREATE DATABASE `other`", 1, database="other")
    ran = bucket.at(400)
    assert (ran.code, LATE in ran.stopped["other"]) == (3, True)
    assert bucket.state("t", "other") == [(1, "new")]
    assert bucket.state("old", "other") == []
    decide(bucket, verdict)
    bucket.rows("t/220/2", "I 405 2 newer", database="other")
    assert bucket.at(410).code == 0
    assert bucket.state("t", "other") == [(1, "new"), (2, "newer")]
    assert bucket.state("old", "other") == ([] if verdict is Verdict.SKIP else None)
    assert bucket.at(420).code == 0


def test_a_late_drop_of_a_database_waits_where_all_its_tables_are_newer(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path)
    tables(bucket, "o")
    assert bucket.at(120).code == 0
    bucket.create("t", 220, database="other")
    bucket.rows("t/220/1", "I 230 1 new", database="other")
    assert bucket.at(300).code == 0
    bucket.schema("", 200, (), "DROP DATABASE `other`", 2, database="other")
    ran = bucket.at(400)
    assert (ran.code, LATE in ran.stopped["other"]) == (3, True)
    assert bucket.state("t", "other") == [(1, "new")]


def test_a_drop_database_that_waits_for_one_table_keeps_the_others_before_it(tmp_path: Path) -> None:
    """Else they would have passed it when it can run, and it would count as one that was found late."""
    bucket = Bucket(tmp_path)
    for table in ("k", "l"):
        bucket.create(table)
        bucket.rows(f"{table}/100/1", "I 110 1 a")
    assert bucket.at(120).code == 0
    bucket.rows("l/100/2", "I 130 2 b")
    bucket.write(bucket.rows("k/100/2", "I 130 2 b"), b'"U","k"\x00\xff\r\n')
    bucket.schema("", 140, (), "DROP DATABASE `test`", 2)
    bucket.schema("", 150, (), "CREATE DATABASE `test`", 1)
    bucket.create("l", 155)
    bucket.rows("l/155/1", "I 160 3 c")
    ran = bucket.at(170)
    assert (ran.code, set(ran.stopped), bucket.state("l")) == (3, {"test", "test.k", "test.l"}, [(1, "a"), (2, "b")])
    bucket.at(180)
    bucket.rows("k/100/2", "I 130 2 b")
    assert bucket.at(190).code == 0
    assert (bucket.state("k"), bucket.state("l")) == (None, [(3, "c")])


def test_a_table_that_waits_between_two_renames_of_one_statement_keeps_its_rows(tmp_path: Path) -> None:
    """``a`` is ``m`` by then, and becomes ``b`` when ``b`` can be read again. It does not count as one that nothing made."""
    bucket = Bucket(tmp_path)
    for table in ("a", "b"):
        bucket.create(table)
        bucket.rows(f"{table}/100/1", f"I 110 1 {table}")
    assert bucket.at(120).code == 0
    bucket.write(bucket.rows("b/100/2", "I 130 2 b"), b'"U","b"\x00\xff\r\n')
    for old, new in (("a", "m"), ("b", "a"), ("m", "b")):
        renamed(bucket, old, new)
    bucket.schema("a", 210, "id,v", "DROP TABLE `test`.`a`", 4)
    assert set(bucket.at(220).stopped) == {"test.a", "test.b", "test.m"}
    bucket.rows("b/100/2", "I 130 2 b")
    bucket.rows("b/200/1", "I 230 3 c")
    assert bucket.at(240).code == 0
    assert (bucket.state("a"), bucket.state("m"), bucket.state("b")) == (None, None, [(1, "a"), (3, "c")])


@pytest.mark.parametrize("to", ["test", "other"])
def test_a_rename_of_a_table_whose_database_was_dropped_waits_where_it_took_the_table_out_of_that(tmp_path: Path, to: str) -> None:
    """Another table has the name since: its CREATE tells nothing of who had the name before, but the DROP DATABASE does."""
    bucket = Bucket(tmp_path)
    tables(bucket, "o")
    bucket.create("a", 100, database="other")
    bucket.rows("a/100/1", "I 110 1 a1", database="other")
    assert bucket.at(120).code == 0
    bucket.schema("", 200, (), "DROP DATABASE `other`", 2, database="other")
    bucket.schema("", 210, (), "CREATE DATABASE `other`", 1, database="other")
    bucket.create("a", 220, database="other")
    assert bucket.at(300).code == 0
    bucket.schema("c", 150, "id,v", f"RENAME TABLE `other`.`a` TO `{to}`.`c`", 14, database=to)
    for checkpoint in (400, 410):
        ran = bucket.at(checkpoint)
        assert (ran.code, LATE in ran.stopped.get("other.a", "")) == ((3, True) if to == "test" else (0, False))
    assert (bucket.state("a", "other"), bucket.state("c", to)) == ([], None)
    if to == "test":
        decide(bucket, Verdict.SKIP)
        assert bucket.at(420).code == 0
