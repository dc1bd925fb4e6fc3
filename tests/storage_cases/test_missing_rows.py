"""Of which tables the ledger says that rows may be missing: those that bear the rows now, and only while they lack them."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest
from building import Bucket, ask, ledger
from test_damaged_repeats import late_by_its_number, put
from test_final_drains import drain

from headrace.cli.stopped_tables import new_request
from headrace.model.ledger import RequestKind, TableStatus
from headrace.model.policy import SchemaChangePolicies
from headrace.model.table import TableId
from quick import without_pauses

pytestmark = pytest.mark.pipeline

T = TableId("test", "t")


@pytest.fixture
def bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bucket:
    """One whose table ``t`` is applied up to 150."""
    without_pauses(monkeypatch)
    bucket = Bucket(tmp_path)
    bucket.create("t")
    bucket.rows("t/100/1", "I 110 1 a", "I 140 2 b")
    bucket.at(150)
    return bucket


def lacking(bucket: Bucket, part: str) -> set[str]:
    return {str(t) for t, own in ledger(bucket).tables.items() if part in own.lacks}


@pytest.mark.parametrize("same_cut", [False, True])
@pytest.mark.parametrize("statement", ["TRUNCATE TABLE `t`", "DROP TABLE `t`"])
def test_a_statement_that_is_skipped_empties_nothing(bucket: Bucket, statement: str, same_cut: bool) -> None:
    part = late_by_its_number(bucket)
    if not same_cut:
        bucket.at(220)
    bucket.schema("t", 250, "id,v", statement, 11 if statement.startswith("T") else 4)
    bucket.at(300, policies=SchemaChangePolicies.parse_text("truncate-table=skip,drop-table=skip"))
    assert lacking(bucket, part) == {"test.t"}


def loaded_anew(bucket: Bucket, as_of: int, *rows: tuple[int, str]) -> None:
    with duckdb.connect(str(bucket.database)) as connection:
        connection.execute("DELETE FROM test.t")
        connection.executemany("INSERT INTO test.t VALUES (?, ?)", rows)
    ask(bucket, new_request(ledger(bucket), T, RequestKind.RESYNC, since=ledger(bucket).table_checkpoint(T), to=as_of))


def test_a_table_that_is_read_again_after_a_final_drain_lacks_nothing(bucket: Bucket) -> None:
    bucket.rows("t/100/2", "I 170 5 e", "I 180 6 f")
    drain(bucket)
    loaded_anew(bucket, 175, (1, "a"), (2, "b"), (5, "e"))
    told = [bucket.run().told, bucket.at(300).told]
    assert (bucket.state(), ledger(bucket).tables[T].lacks) == ([(1, "a"), (2, "b"), (5, "e"), (6, "f")], "")
    assert "came after --until-end" not in " ".join(told)


@pytest.mark.parametrize("way", ["held", "torn"])
def test_rows_that_a_table_was_loaded_with_are_not_missing_when_their_file_came_late(bucket: Bucket, way: str) -> None:
    bucket.rows("t/100/3", "I 155 5 e")
    bucket.at(160)
    if way == "held":
        ask(bucket, new_request(ledger(bucket), T, RequestKind.HOLD, since=160))
        bucket.at(170)
    else:
        put(bucket, "100/CDC000004", '"I","t","test",165,7')
    bucket.rows("t/100/2", "I 145 3 c", "I 175 6 f")
    bucket.at(180)
    if way == "torn":
        put(bucket, "100/CDC000004", '"I","t","test",165,7,"x"\n')
    loaded = [(1, "a"), (2, "b"), (3, "c"), (5, "e"), (6, "f"), (7, "x")]
    loaded_anew(bucket, 180, *loaded)
    told = "".join(bucket.at(checkpoint).told for checkpoint in (190, 200))
    assert (bucket.state(), lacking(bucket, "larger numbers")) == (loaded, set())
    assert "larger numbers" not in told


def stops_behind_a_change(bucket: Bucket) -> str:
    """In the cut that reads the late file; the table is repaired then. What the runs told."""
    bucket.schema("t", 250, "id,v,c", "ALTER TABLE `t` ADD COLUMN `c` INT DEFAULT 7", 5)
    put(bucket, "250/CDC000001", '"I","t","test",255,7\n')
    told = bucket.at(300).told
    assert ledger(bucket).tables[T].status is TableStatus.STOPPED
    put(bucket, "250/CDC000001", '"I","t","test",255,7,"x",1\n')
    return told + "".join(bucket.at(checkpoint).told for checkpoint in (330, 340))


def test_rows_that_a_round_applied_are_not_missing_where_the_table_stops_behind_it(bucket: Bucket) -> None:
    bucket.rows("t/100/3", "I 155 5 e")
    bucket.at(160)
    bucket.rows("t/100/2", "I 210 6 f")
    assert "larger numbers" not in stops_behind_a_change(bucket)
    assert (6, "f", 7) in bucket.state()
    assert lacking(bucket, "larger numbers") == set()


def test_rows_that_are_missing_are_counted_once_where_the_table_stops_behind_them(bucket: Bucket) -> None:
    late_by_its_number(bucket)
    told = stops_behind_a_change(bucket)
    assert "1 of its rows" in ledger(bucket).tables[T].lacks
    assert "2 of its rows" not in told


def test_rows_that_are_missing_are_told_at_once_where_the_table_stops_for_another_file(bucket: Bucket) -> None:
    part = late_by_its_number(bucket)
    put(bucket, "100/CDC000004", '"I","t"\n')
    assert part in bucket.at(300).told
    own = ledger(bucket).tables[T]
    assert (own.status, part in own.lacks) == (TableStatus.STOPPED, True)
    put(bucket, "100/CDC000004", '"I","t","test",220,7,"g"\n')
    bucket.at(310)
    assert (ledger(bucket).tables[T].status, lacking(bucket, part)) == (TableStatus.RUNNING, {"test.t"})
    assert "1 of its rows" in bucket.at(320).told
