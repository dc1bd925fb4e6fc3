"""What people ask of one table together, in whatever order, and while ``--tables`` leaves it out."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest
from building import Bucket, ask, ledger, tables
from test_ownership import only

from headrace.engine import loop
from headrace.model.progress import RequestKind, TableRequest, TableStatus
from headrace.model.table import TableId

pytestmark = pytest.mark.pipeline

T = TableId("test", "t")


@pytest.fixture(autouse=True)
def _one_look(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "_LOOKS", 0)


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
    skip = TableRequest(order[0], T, RequestKind.SKIP_FILE, file="test/t/100/CDC000003.csv")
    ask(bucket, skip, TableRequest(order[1], T, RequestKind.RESYNC, to=at))
    bucket.at(570)
    assert (bucket.state("t") or [])[0] == (1, "c")
    bucket.at(600)  # what lay ahead of the pipeline is carried out at the next poll
    assert bucket.at(610).code == 0
    assert bucket.state("t") == [(1, "c"), (2, "z"), (3, "q")]
    assert not ledger(bucket).requests


def test_a_resync_is_carried_out_when_the_filter_takes_the_table_back(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path)
    stopped_at_a_file(bucket)
    with duckdb.connect(str(bucket.database)) as connection:
        connection.execute("DELETE FROM test.t; INSERT INTO test.t VALUES (1, 'c'), (2, 'z')")
    ask(bucket, TableRequest("1", T, RequestKind.RESYNC, to=500))
    assert bucket.at(570, **only("*.*,!test.t")).code == 0
    ran = bucket.at(600)
    assert (ran.code, "loaded anew as of 500" in ran.told) == (0, True)
    assert bucket.state("t") == [(1, "c"), (2, "z"), (3, "q")]


def test_a_file_given_up_while_the_table_is_left_out_is_given_up_later(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path)
    stopped_at_a_file(bucket)
    ask(bucket, TableRequest("1", T, RequestKind.SKIP_FILE, file="test/t/100/CDC000003.csv"))
    assert bucket.at(570, **only("*.*,!test.t")).code == 0
    assert list(ledger(bucket).requests) == ["1"]
    assert bucket.at(600).code in (0, 3)
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
    ask(bucket, TableRequest("1", T, RequestKind.SKIP_FILE, file="test/t/100/CDC000004.csv"))
    for checkpoint in (330, 340):
        assert bucket.at(checkpoint).code == 3
        own = ledger(bucket).tables[T]
        assert (own.status, "are missing" in own.reason) == (TableStatus.INCOMPLETE, True)
