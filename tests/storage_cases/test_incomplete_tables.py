"""A table that lacks rows is loaded anew by a person, unless the source drops, empties or renames it: that runs."""

from __future__ import annotations

from pathlib import Path

import pytest
from building import Bucket, decide, ledger
from test_ownership import PARTITIONED, only

from headrace.cli.main import main
from headrace.engine import retries
from headrace.model.ledger import TableStatus, Verdict
from headrace.model.policy import SchemaChangePolicies
from headrace.model.table import TableId

pytestmark = pytest.mark.pipeline

ASKS = {"policies": SchemaChangePolicies.parse_text("truncate-table=approve")}
T, U = TableId("test", "t"), TableId("test", "u")


@pytest.fixture(autouse=True)
def _one_look(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retries, "_LOOKS", 0)


@pytest.fixture
def bucket(tmp_path: Path) -> Bucket:
    """``t`` was left out for a while, and a file of that time is gone: rows are missing from 120 on."""
    bucket = Bucket(tmp_path)
    bucket.create("t")
    bucket.create("o")
    bucket.rows("t/100/1", "I 110 1 a")
    bucket.rows("o/100/1", "I 110 1 o")
    assert bucket.at(120).code == 0
    bucket.rows("t/100/2", "I 130 2 b")
    gone = bucket.rows("t/100/3", "I 131 3 c")
    bucket.rows("t/100/4", "I 132 4 d")
    assert bucket.at(140, **only("*.*,!test.t")).code == 0
    (bucket.root / gone).unlink()
    assert bucket.at(150).code == 3
    assert ledger(bucket).tables[T].status is TableStatus.INCOMPLETE
    return bucket


def test_a_drop_ends_it_and_the_next_table_of_the_name_is_whole(bucket: Bucket) -> None:
    bucket.schema("t", 160, "id,v", "DROP TABLE `test`.`t`", 4)
    assert bucket.at(170).code == 0
    assert bucket.state("t") is None
    bucket.create("t", 200)
    bucket.rows("t/200/1", "I 210 9 new")
    assert bucket.at(300).code == 0
    assert bucket.state("t") == [(9, "new")]


@pytest.mark.parametrize("together", [True, False])
def test_a_truncate_ends_it(bucket: Bucket, together: bool) -> None:
    bucket.schema("t", 160, "id,v", "TRUNCATE TABLE `test`.`t`", 11)
    if not together:
        assert bucket.at(170).code == 0
    bucket.rows("t/160/1", "I 175 9 new")
    assert bucket.at(180).code == 0
    assert bucket.state("t") == [(9, "new")]
    assert ledger(bucket).tables[T].status is TableStatus.RUNNING


@pytest.mark.parametrize("seen", [True, False])
def test_a_file_that_vanishes_behind_a_truncate_is_missed(bucket: Bucket, seen: bool) -> None:
    """It is of the rows that come after what nobody needs any more. ``seen``: the TRUNCATE had to wait when it was there."""
    bucket.schema("t", 160, "id,v", "TRUNCATE TABLE `test`.`t`", 11)
    gone = bucket.rows("t/160/1", "I 175 9 new")
    bucket.rows("t/160/2", "I 176 8 next")
    assert bucket.at(180 if seen else 155, **ASKS).code == 3
    if seen:
        (bucket.root / gone).unlink()
    ran = bucket.at(200)
    if seen:
        assert (ran.code, f"{gone}: The file vanished" in ran.stopped["test.t"]) == (3, True)
        assert bucket.state("t") == [(1, "a")]
        assert main(["table", "skip", "test.t", "--file", gone, "--yes", "--sink", bucket.sink]) == 0
        ran = bucket.at(210)
    assert ran.code == 0
    assert bucket.state("t") == [(8, "next"), *([] if seen else [(9, "new")])]


@pytest.mark.parametrize(("verdict", "status"), [(Verdict.APPROVE, TableStatus.RUNNING), (Verdict.SKIP, TableStatus.INCOMPLETE)])
def test_a_truncate_that_waits_for_approval_can_be_decided(bucket: Bucket, verdict: Verdict, status: TableStatus) -> None:
    bucket.schema("t", 160, "id,v", "TRUNCATE TABLE `test`.`t`", 11)
    bucket.rows("t/160/1", "I 175 9 new")
    for checkpoint in (180, 190):
        assert bucket.at(checkpoint, **ASKS).code == 3
        assert bucket.state("t") == [(1, "a")]
    decide(bucket, verdict)
    assert bucket.at(200, **ASKS).code == (0 if verdict is Verdict.APPROVE else 3)
    assert ledger(bucket).tables[T].status is status
    assert bucket.state("t") == ([(9, "new")] if verdict is Verdict.APPROVE else [(1, "a")])


def test_a_dropped_database_does_not_wait_for_it(bucket: Bucket) -> None:
    bucket.schema("", 160, (), "DROP DATABASE `test`", 2)
    assert bucket.at(170).code == 0
    assert (bucket.state("t"), bucket.state("o")) == (None, None)


def test_a_rename_takes_what_is_missing_along_and_frees_the_name(bucket: Bucket) -> None:
    bucket.schema("u", 160, "id,v", "RENAME TABLE `test`.`t` TO `test`.`u`", 14)
    bucket.rows("u/160/1", "I 165 5 e")
    bucket.create("t", 170)
    bucket.rows("t/170/1", "I 175 9 new")
    assert bucket.at(200).code == 3
    assert bucket.state("t") == [(9, "new")]
    assert bucket.state("u") == [(1, "a")]
    rows = ledger(bucket).tables
    assert (rows[T].status, rows[U].status) == (TableStatus.RUNNING, TableStatus.INCOMPLETE)
    assert "headrace table resync test.u --at TIME" in rows[U].reason


def test_what_does_not_end_it_waits_until_it_is_loaded_anew(bucket: Bucket) -> None:
    bucket.schema("t", 160, "id,v,c", "ALTER TABLE `test`.`t` ADD COLUMN `c` INT DEFAULT 7", 5)
    bucket.rows("t/160/1", "I 165 5 e 8")
    assert bucket.at(200).code == 3
    assert bucket.state("t") == [(1, "a")]
    assert ledger(bucket).tables[T].status is TableStatus.INCOMPLETE


@pytest.mark.parametrize("end", [None, "drop", "truncate", "rename", "rename before"])
@pytest.mark.parametrize("together", [True, False])
def test_a_complete_table_exchanges_no_rows_with_one_that_lacks_some(bucket: Bucket, together: bool, end: str | None) -> None:
    bucket.schema("p", 151, "id,v", PARTITIONED, 3)
    bucket.rows("p/151/152/1", "I 153 3 p")
    name = "u" if end == "rename before" else "t"
    if end == "rename before":
        bucket.schema("u", 160, "id,v", "RENAME TABLE `test`.`t` TO `test`.`u`", 14)
    bucket.schema("p", 170, "id,v", f"ALTER TABLE `p` EXCHANGE PARTITION p0 WITH TABLE `{name}`", 42)
    bucket.schema(name, 170, "id,v", "", 0)
    if not together:
        assert bucket.at(175).code == 3
    if end == "drop":
        bucket.schema("t", 180, "id,v", "DROP TABLE `test`.`t`", 4)
    elif end == "truncate":
        bucket.schema("t", 180, "id,v", "TRUNCATE TABLE `test`.`t`", 11)
    elif end == "rename":
        bucket.schema("u", 180, "id,v", "RENAME TABLE `test`.`t` TO `test`.`u`", 14)
    for checkpoint in (200, 210):
        ran = bucket.at(checkpoint)
        assert (ran.code, f"also touches test.{name}, which lacks rows" in ran.stopped["test.p"]) == (3, True)
        assert (bucket.state("p"), bucket.state(name)) == ([(3, "p")], [(1, "a")])
    (waits,) = [entry.identity for entry in ledger(bucket).journal.values() if "EXCHANGE" in entry.statement]
    decide(bucket, Verdict.SKIP, identity=waits)
    bucket.at(220)
    assert bucket.state("p") == [(3, "p")]
    tables = ledger(bucket).tables
    ended = {"drop": TableStatus.GONE, "truncate": TableStatus.RUNNING}
    assert tables[TableId("test", "p")].status is TableStatus.RUNNING
    assert tables[U if end == "rename" else TableId("test", name)].status is ended.get(end or "", TableStatus.INCOMPLETE)
