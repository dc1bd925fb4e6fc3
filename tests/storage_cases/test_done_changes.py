"""What the journal may forget, and which schema changes are over without it."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest
from building import Bucket, ledger

from headrace.engine import journal
from headrace.model.ledger import JournalEntry, JournalState, LedgerState, TableProgress, TableStatus
from headrace.model.table import TableId

pytestmark = pytest.mark.pipeline


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> int:
    """The journal keeps no entry for people's sake."""
    monkeypatch.setattr(journal, "JOURNAL_KEPT", 0)
    return 0


@pytest.fixture
def bucket(tmp_path: Path) -> Bucket:
    made = Bucket(tmp_path)
    made.create("t")
    made.rows("t/100/1", "I 110 1 a")
    return made


def execute(bucket: Bucket, *statements: str) -> None:
    with duckdb.connect(str(bucket.database)) as connection:
        for statement in statements:
            connection.execute(statement)


def short_lived(bucket: Bucket, count: int) -> int:
    """Tables that are created and dropped one after another. Returns a ts behind them."""
    for n in range(count):
        bucket.create(f"x{n}", 1000 + 2 * n)
        bucket.schema(f"x{n}", 1001 + 2 * n, "id,v", f"DROP TABLE `test`.`x{n}`", 4)
    return 1000 + 2 * count


def test_a_drop_is_done_once_however_many_changes_follow_it(bucket: Bucket) -> None:
    end = short_lived(bucket, 150)
    assert bucket.at(end + 10).code == 0
    assert len(ledger(bucket).journal) == journal.JOURNAL_KEPT
    execute(bucket, "CREATE TABLE test.x3 (mine INT)", "INSERT INTO test.x3 VALUES (42)")
    for n in range(2):
        bucket.rows(f"t/100/{n + 2}", f"U {end + 20 + n} 1 b{n}")
        assert bucket.at(end + 21 + n).code == 0
        assert ledger(bucket).cuts[-1].schema_changes == 0
    assert bucket.state("x3") == [(42,)]


def test_a_database_and_a_view_are_dropped_once(bucket: Bucket, few: int) -> None:
    bucket.schema("", 120, (), "CREATE DATABASE `other`", 1, database="other")
    bucket.create("in_it", 125, database="other")
    bucket.schema("", 130, (), "DROP DATABASE `other`", 2, database="other")
    bucket.schema("v", 140, "id,v", "CREATE VIEW `test`.`v` AS SELECT `id`,`v` FROM `test`.`t`", 21)
    bucket.schema("v", 150, "id,v", "DROP VIEW `test`.`v`", 24)
    assert bucket.at(160).code == 0
    bucket.rows("t/100/2", "U 170 1 b")
    assert bucket.at(180).code == 0
    assert ledger(bucket).journal == {}
    execute(bucket, "CREATE SCHEMA other", "CREATE TABLE other.mine (i INT)", "CREATE VIEW test.v AS SELECT 1 AS mine")
    bucket.rows("t/100/3", "U 190 1 c")
    ran = bucket.at(200)
    assert (ran.code, ran.problems) == (0, [])
    assert ("other", "mine") in bucket.tables()
    with duckdb.connect(str(bucket.database), read_only=True) as connection:
        assert connection.execute("SELECT mine FROM test.v").fetchall() == [(1,)]


S, B = TableId("test", "s"), TableId("test", "b")


def _entry(commit_ts: int, *tables: TableId, state: JournalState = JournalState.DONE) -> JournalEntry:
    return JournalEntry(f"{commit_ts}/{tables[0]}", commit_ts, tables, "…", state)


@pytest.mark.parametrize(
    ("rows", "entry", "is_forgotten"),
    [
        ([TableProgress(S, 100)], _entry(120, S), True),  # lifted by the pipeline's checkpoint
        ([TableProgress(S, 100)], _entry(200, S), False),  # at it
        ([TableProgress(S, 120, status=TableStatus.STOPPED)], _entry(120, S), False),
        ([TableProgress(S, 121, status=TableStatus.STOPPED)], _entry(120, S), True),
        ([TableProgress(S, 120, status=TableStatus.CATCHING_UP)], _entry(150, S), False),
        ([TableProgress(S, 120, status=TableStatus.GONE)], _entry(120, S), True),
        ([TableProgress(S, 200, status=TableStatus.GONE)], _entry(200, S), False),
        ([TableProgress(S, 120, status=TableStatus.GONE)], _entry(130, S), False),
        ([TableProgress(S, 120, status=TableStatus.GONE)], _entry(120, S, B), False),
        ([TableProgress(S, 120, status=TableStatus.GONE), TableProgress(B, 120)], _entry(120, S, B), True),
        ([TableProgress(S, 100)], _entry(120, S, state=JournalState.PENDING), False),
        ([TableProgress(S, 100)], _entry(120, S, state=JournalState.WAITING), False),
        ([], _entry(120, S), False),
    ],
)
def test_only_what_the_rows_of_its_tables_tell_too_is_forgotten(
    few: int, rows: list[TableProgress], entry: JournalEntry, is_forgotten: bool
) -> None:
    later = _entry(300, S, B)
    state = LedgerState("p", checkpoint=200, tables={r.table_id: r for r in rows}, journal={e.identity: e for e in (entry, later)})
    assert journal.forgettable(state) == ((entry.identity,) if is_forgotten else ())


@pytest.mark.parametrize(
    ("row", "is_forgotten"),
    [
        (TableProgress(S, 100), False),
        (TableProgress(S, 100, incarnation=120), True),  # which the row tells
        (TableProgress(S, 130, status=TableStatus.GONE), True),
    ],
)
def test_the_last_change_of_a_table_is_not_forgotten(few: int, row: TableProgress, is_forgotten: bool) -> None:
    """It tells that the schema file with the table's shape is missing, when it is."""
    entries = [_entry(110, S), _entry(120, S)]
    state = LedgerState("p", checkpoint=200, tables={S: row}, journal={entry.identity: entry for entry in entries})
    assert journal.forgettable(state) == tuple(entry.identity for entry in entries[: 2 if is_forgotten else 1])


def test_a_name_that_was_dropped_comes_back(bucket: Bucket, few: int) -> None:
    """A tombstone ends what was, and nothing after it."""
    end = short_lived(bucket, 3)
    bucket.at(end)
    bucket.rows("t/100/2", f"U {end + 1} 1 b")
    bucket.at(end + 2)
    bucket.create("x1", end + 3)
    bucket.rows(f"x1/{end + 3}/1", f"I {end + 4} 7 new")
    assert bucket.at(end + 5).code == 0
    assert bucket.state("x1") == [(7, "new")]
