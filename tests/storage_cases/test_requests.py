"""What people ask of one table together, in whatever order, and while ``--tables`` leaves it out."""

from __future__ import annotations

import re
from pathlib import Path

import duckdb
import pytest
from building import Bucket, ask, ledger, tables
from test_ownership import only

from headrace.cli.main import main
from headrace.engine import retries
from headrace.model.ledger import RequestKind, TableRequest, TableStatus
from headrace.model.place import PlaceInFile
from headrace.model.table import TableId

pytestmark = pytest.mark.pipeline

T = TableId("test", "t")


@pytest.fixture(autouse=True)
def _one_look(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retries, "_LOOKS", 0)


def stopped_at_a_file(bucket: Bucket) -> None:
    """``t`` stops at 120, before a file that only a person can get past; ``o`` goes on."""
    tables(bucket, "o")
    bucket.create("t")
    bucket.rows("t/100/1", "I 110 1 a")
    assert bucket.at(120).code == 0
    bucket.rows("t/100/2", "I 150 1 b")
    bucket.write(bucket.rows("t/100/3", "I 200 1 c"), b'"U","t"\x00\xff\r\n"')
    bucket.rows("t/100/4", "I 300 2 z", "I 540 3 q")
    assert set(bucket.at(560).stopped) == {"test.t"}


@pytest.mark.parametrize("at", [500, 580])
@pytest.mark.parametrize("order", ["12", "21"])
def test_a_file_that_is_given_up_undoes_no_resync(at: int, order: str, tmp_path: Path) -> None:
    """Whichever was asked first, and also where the pipeline has not come so far yet."""
    bucket = Bucket(tmp_path)
    stopped_at_a_file(bucket)
    with duckdb.connect(str(bucket.database)) as connection:
        connection.execute("DELETE FROM test.t; INSERT INTO test.t VALUES (1, 'c'), (2, 'z')" + (", (3, 'q')" if at > 540 else ""))
    skip = TableRequest(order[0], T, RequestKind.SKIP_FILE, place=PlaceInFile("test/t/100/CDC000003.csv"))
    ask(bucket, skip, TableRequest(order[1], T, RequestKind.RESYNC, to=at))
    bucket.at(570)
    assert (bucket.state("t") or [])[0] == (1, "c")
    bucket.at(600)  # what lay ahead of the pipeline is carried out at the next poll
    assert bucket.at(610).code == 0
    assert bucket.state("t") == [(1, "c"), (2, "z"), (3, "q")]
    assert not ledger(bucket).requests


def test_a_resync_is_carried_out_while_the_filter_leaves_the_table_out(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path)
    stopped_at_a_file(bucket)
    with duckdb.connect(str(bucket.database)) as connection:
        connection.execute("DELETE FROM test.t; INSERT INTO test.t VALUES (1, 'c'), (2, 'z')")
    ask(bucket, TableRequest("1", T, RequestKind.RESYNC, to=500))
    ran = bucket.at(570, **only("*.*,!test.t"))
    assert (ran.code, "loaded anew as of 500" in ran.told) == (0, True)
    ran = bucket.at(600)
    assert (ran.code, "it was left out by --tables" in ran.told) == (0, True)
    assert bucket.state("t") == [(1, "c"), (2, "z"), (3, "q")]


@pytest.mark.parametrize("is_needed", [True, False])
def test_a_file_given_up_while_the_table_is_left_out_is_given_up_when_it_is_needed(tmp_path: Path, is_needed: bool) -> None:
    bucket = Bucket(tmp_path)
    stopped_at_a_file(bucket)
    file = "test/t/100/CDC000003.csv" if is_needed else "test/t/100/CDC000099.csv"
    ask(bucket, TableRequest("1", T, RequestKind.SKIP_FILE, place=PlaceInFile(file)))
    assert bucket.at(570, **only("*.*,!test.t")).code == 0
    assert list(ledger(bucket).requests) == ([] if is_needed else ["1"])
    if is_needed:
        bucket.at(600)
        assert bucket.at(610).code == 0
        assert bucket.state("t") == [(1, "b"), (2, "z"), (3, "q")]


def test_a_file_that_is_given_up_does_not_make_a_table_whole(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path)
    tables(bucket, "o")
    bucket.create("t")
    bucket.rows("t/100/1", "I 110 1 a")
    assert bucket.at(120).code == 0
    bucket.rows("t/100/4", "I 240 4 d")
    bucket.rows("t/100/5", "I 250 5 e")
    assert bucket.at(300, **only("*.*,!test.t")).code == 0
    (bucket.root / "test/t/100/CDC000004.csv").unlink()
    assert bucket.at(320).code == 3
    ask(bucket, TableRequest("1", T, RequestKind.SKIP_FILE, place=PlaceInFile("test/t/100/CDC000004.csv")))
    for checkpoint in (330, 340):
        assert bucket.at(checkpoint).code == 3
        own = ledger(bucket).tables[T]
        assert (own.status, "are missing" in own.reason) == (TableStatus.INCOMPLETE, True)


def with_a_bad_record(tmp_path: Path) -> Bucket:
    """``t`` stops at 120, before a record of 150 that cannot be read."""
    bucket = Bucket(tmp_path)
    tables(bucket, "o")
    bucket.create("t")
    bucket.rows("t/100/1", "I 110 1 a", "I 111 2 b")
    assert bucket.at(120).code == 0
    bucket.write(bucket.rows("t/100/2", "U 150 1 c"), b'"U","t"\x00\xff\r\n')
    return bucket


def command(bucket: Bucket, *words: str) -> int:
    return main([*words, "--sink", bucket.sink])


def execute(bucket: Bucket, statement: str) -> None:
    with duckdb.connect(str(bucket.database)) as connection:
        connection.execute(statement)


def test_no_more_rows_are_given_up_than_was_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The table goes back to before its rows were to be given up: by a reset, or by a resync."""
    bucket = with_a_bad_record(tmp_path)
    bucket.rows("t/100/3", "I 190 4 y", "I 250 3 z")
    assert bucket.at(200).code == 3
    execute(bucket, "DROP TABLE test.t")
    assert command(bucket, "reset", "--table", "test.t", "--yes") == 0
    assert command(bucket, "table", "skip", "test.t", "--to", "latest", "--yes") == 2
    assert "A reset or resync of test.t was requested" in capsys.readouterr().err
    # As of a command that did not see the reset.
    ask(bucket, TableRequest(f"{10**19:020}", T, RequestKind.SKIP_ROWS, to=200, since=120))
    ran = bucket.at(300)
    assert (ran.code, "the table is now at 100" in ran.told, ledger(bucket).requests) == (3, True, {})
    assert set(ran.stopped) == {"test.t"}
    assert command(bucket, "table", "skip", "test.t", "--to", "200", "--yes") == 0
    # What is given up is told; it begins at the table's own place.
    assert bucket.at(310).code == 0
    assert "its rows from 101 to 200 were given up" in ledger(bucket).tables[T].reason


def test_a_file_is_given_up_after_a_reset_that_was_asked_for_before(tmp_path: Path) -> None:
    bucket = with_a_bad_record(tmp_path)
    bucket.rows("t/100/3", "I 190 4 y")
    assert bucket.at(200).code == 3
    execute(bucket, "DROP TABLE test.t")
    assert command(bucket, "reset", "--table", "test.t", "--yes") == 0
    assert command(bucket, "table", "skip", "test.t", "--file", "test/t/100/CDC000002.csv", "--yes") == 0
    bucket.at(210)
    assert bucket.at(220).code == 0
    assert bucket.state("t") == [(1, "a"), (2, "b"), (4, "y")]


def test_rows_that_are_given_up_are_those_of_one_table(tmp_path: Path) -> None:
    """Not those of the next one of its name. Who has its rows by then goes on saying that some are missing."""
    bucket = with_a_bad_record(tmp_path)
    bucket.schema("u", 200, "id,v", "RENAME TABLE `test`.`t` TO `test`.`u`", 14)
    bucket.rows("u/200/1", "U 210 1 d")
    bucket.create("t", 250)
    bucket.rows("t/250/1", "I 260 7 new")
    assert bucket.at(300).code == 3
    assert command(bucket, "table", "skip", "test.t", "--to", "latest", "--yes") == 0
    ran = bucket.at(310)
    assert (ran.code, "its rows from 121 to 200 were given up, and are not in the target" in ran.told) == (0, True)
    assert (bucket.state("t"), bucket.state("u")) == ([(7, "new")], [(1, "d"), (2, "b")])
    rows = ledger(bucket).tables
    assert (rows[T].reason, rows[TableId("test", "u")].reason) == ("", "its rows from 121 to 200 were given up")
    assert ledger(bucket).requests == {}
    # Also by the next name.
    bucket.schema("w", 400, "id,v", "RENAME TABLE `test`.`u` TO `test`.`w`", 14)
    assert bucket.at(500).code == 0
    assert ledger(bucket).tables[TableId("test", "w")].reason == "its rows from 121 to 200 were given up"


def test_rows_that_are_given_up_are_not_those_of_a_table_that_is_created_again(tmp_path: Path) -> None:
    bucket = with_a_bad_record(tmp_path)
    bucket.schema("t", 200, "id,v", "DROP TABLE `test`.`t`", 4)
    bucket.create("t", 250)
    bucket.rows("t/250/1", "I 260 7 new")
    assert bucket.at(300).code == 3
    assert command(bucket, "table", "skip", "test.t", "--to", "latest", "--yes") == 0
    assert bucket.at(310).code == 0
    assert (bucket.state("t"), ledger(bucket).requests) == ([(7, "new")], {})


def test_a_table_that_lacks_rows_goes_on_by_a_load_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bucket = Bucket(tmp_path)
    tables(bucket, "o")
    bucket.create("t")
    bucket.rows("t/100/1", "I 110 1 a")
    assert bucket.at(120).code == 0
    bucket.rows("t/100/4", "I 240 4 d")
    bucket.rows("t/100/5", "I 250 5 e")
    assert bucket.at(300, **only("*.*,!test.t")).code == 0
    (bucket.root / "test/t/100/CDC000004.csv").unlink()
    assert bucket.at(320).code == 3
    for words in (("skip", "test.t", "--to", "latest", "--yes"), ("resume", "test.t")):
        assert command(bucket, "table", *words) == 2
        assert re.search("headrace table resync test.t --sink .* --at TSO", capsys.readouterr().err)
    ask(bucket, *(TableRequest(str(kind), T, kind, to=320) for kind in (RequestKind.SKIP_ROWS, RequestKind.RESUME)))
    ran = bucket.at(330)
    assert (ran.code, "nothing was done: it lacks rows" in ran.told, ledger(bucket).requests) == (3, True, {})
