"""Whatever becomes of a row is counted in the record of its cut, and a cut of which the figures do not add up is not taken."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from building import Bucket

from headrace.engine import bag, exchange, net, read_task, write_task
from headrace.engine.conservation import RowsLostError
from headrace.model.ledger import CutRecord
from headrace.model.outcome import SplitReport
from headrace.model.policy import OnError
from headrace.pipeline.registry import open_sink
from headrace.sinks.dead_letters import open_dead_letters
from headrace.sinks.file_ledger import open_file_ledger
from headrace.sources.ticdc_storage import splits
from headrace.testing import engine
from headrace.testing.engine import LocalEngine
from large_rounds import as_if_large

pytestmark = pytest.mark.pipeline

KEYLESS = ({"ColumnName": "v", "ColumnType": "VARCHAR", "ColumnPrecision": "16"},)


def last_cut(bucket: Bucket, sink: str = "", ledger: Path | None = None) -> CutRecord:
    with open_sink(sink or bucket.sink) as opened:
        found = opened.ledger or open_file_ledger(str(ledger))
        state = found.peek("default")
        found.close()
    assert state is not None
    return state.cuts[-1]


def figures(cut: CutRecord) -> dict[str, int]:
    written = cut.upserts + cut.deletes
    assert cut.read_rows == cut.netted + written + cut.refused + cut.left + cut.passed
    return {
        "read": cut.read_rows,
        "netted": cut.netted,
        "written": written,
        "refused": cut.refused,
        "left": cut.left,
        "passed": cut.passed,
    }


@pytest.fixture
def bucket(tmp_path: Path) -> Bucket:
    """A table with a key and one without."""
    found = Bucket(tmp_path)
    found.create("t")
    found.schema("n", 100, KEYLESS, "CREATE TABLE `n` (`v` VARCHAR(16))", 3)
    return found


@pytest.fixture(params=["one task", "many tasks"])
def tasked(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "many tasks":
        as_if_large(monkeypatch)
    return str(request.param)


def test_rows_that_are_read_are_netted_written_refused_left_or_passed(bucket: Bucket, tasked: str) -> None:
    bucket.rows("t/100/1", "I 110 1 a", "I 111 2 b", "D 112 2 b", "I 113 3 c", "I 130 4 d")
    bucket.rows("n/100/1", ("I", 110, "x"), ("I", 110, "x"), ("I", 111, "y"), ("D", 112, "y"))
    bucket.at(120)
    assert figures(last_cut(bucket)) == {"read": 9, "netted": 3, "written": 5, "refused": 0, "left": 1, "passed": 0}
    bucket.at(140)
    assert figures(last_cut(bucket)) == {"read": 5, "netted": 0, "written": 1, "refused": 0, "left": 0, "passed": 4}


def test_rows_of_a_table_that_stops_are_refused(bucket: Bucket, tasked: str) -> None:
    bucket.rows("t/100/1", "I 110 1 a", "I 111 2 b", "I 112 x c")
    bucket.rows("n/100/1", ("I", 110, "x"))
    assert bucket.at(120).stopped.keys() == {"test.t"}
    assert figures(last_cut(bucket)) == {"read": 3, "netted": 0, "written": 1, "refused": 2, "left": 0, "passed": 0}


def test_rows_of_a_table_with_a_file_that_is_cut_off_are_refused(bucket: Bucket, tasked: str) -> None:
    """They came to the write task, which leaves the table out since nothing makes the last record good."""
    path = bucket.rows("t/100/1", "I 110 1 a", "I 111 2 b")
    bucket.write(path, (bucket.root / path).read_bytes()[:-4])
    bucket.rows("n/100/1", ("I", 110, "x"))
    assert bucket.at(120).stopped.keys() == {"test.t"}
    assert figures(last_cut(bucket)) == {"read": 2, "netted": 0, "written": 1, "refused": 1, "left": 0, "passed": 0}


def test_dead_letters_are_refused(bucket: Bucket, tasked: str, tmp_path: Path) -> None:
    bucket.rows("t/100/1", "I 110 1 a", "I 111 x b", "I 112 3 c")
    bucket.checkpoint(120)
    letters = open_dead_letters(str(tmp_path / "letters"), "default")
    assert bucket.run(on_error=OnError.DEAD_LETTER, letters=letters).code == 0
    assert figures(last_cut(bucket)) == {"read": 3, "netted": 0, "written": 2, "refused": 1, "left": 0, "passed": 0}


@pytest.mark.parametrize("sink", ["blackhole://", "print://"])
def test_targets_without_a_ledger_of_their_own_count_too(bucket: Bucket, sink: str, tasked: str, tmp_path: Path) -> None:
    bucket.rows("t/100/1", "I 110 1 a", "D 111 1 a", "I 130 4 d")
    bucket.checkpoint(120)
    assert bucket.run(sink, str(tmp_path / "ledger")).code == 0
    netted = 1 if sink == "blackhole://" else 0
    assert figures(last_cut(bucket, sink, tmp_path / "ledger")) == {
        "read": 3,
        "netted": netted,
        "written": 2 - netted,
        "refused": 0,
        "left": 1,
        "passed": 0,
    }


@pytest.mark.parametrize("target", ["duckdb", pytest.param("mariadb", marks=pytest.mark.server)])
def test_a_deletion_that_finds_no_row_in_a_bag_stops_its_table_on_every_target(
    target: str, bucket: Bucket, request: pytest.FixtureRequest
) -> None:
    sink = ""
    if target == "mariadb":
        server = request.getfixturevalue("mariadb_server")
        server.fresh()
        sink = server.uri()
    bucket.rows("n/100/1", ("I", 110, "x"), ("I", 111, "y"))
    bucket.rows("t/100/1", "I 110 1 a")
    bucket.checkpoint(120)
    assert bucket.run(sink).code == 0
    bucket.rows("n/100/2", ("D", 130, "x"), ("D", 131, "never there"))
    bucket.rows("t/100/2", "I 130 2 b")
    bucket.checkpoint(140)
    stopped = bucket.run(sink).stopped
    assert stopped.keys() == {"test.n"}
    assert "value 'v=never there': 1 row that the source deleted is not in the target" in stopped["test.n"]


# --- losses ---------------------------------------------------------------------------------------------------------------------

Losing = Callable[[pytest.MonkeyPatch], object]


def in_combining(patch: pytest.MonkeyPatch) -> None:
    """As Arrow made several batches of a large column, and the first one was taken."""
    real = write_task.combined
    patch.setattr(write_task, "combined", lambda batches: real(batches).slice(0, max(1, sum(b.num_rows for b in batches) - 1)))


def in_the_source(patch: pytest.MonkeyPatch) -> None:
    real = splits.in_pieces

    def all_but_one(batch: pa.RecordBatch, *limits: int) -> Iterator[pa.RecordBatch]:
        yield from real(batch.slice(1), *limits)

    patch.setattr(splits, "in_pieces", all_but_one)


def in_a_filter(patch: pytest.MonkeyPatch) -> None:
    real = net._where
    patch.setattr(net, "_where", lambda rows, chosen: real(rows, chosen).slice(1))
    patch.setattr(bag, "_repeated", lambda rows, places, times: pa.Table.from_batches([rows.slice(0, 0)]))


def in_the_exchange(patch: pytest.MonkeyPatch) -> None:
    def forgetful(batches: Iterable[pa.RecordBatch]) -> Iterator[exchange.ExchangeRow]:
        rows = list(exchange.rows_of(batches))
        lost = next((row for row in rows if row.table != exchange.DIGEST), None)
        yield from (row for row in rows if row is not lost)

    patch.setattr(engine, "rows_of", forgetful)


def in_spreading(patch: pytest.MonkeyPatch) -> None:
    real = read_task._split_by_bucket
    patch.setattr(read_task, "_split_by_bucket", lambda *of: [(bucket, rows.slice(1)) for bucket, rows in real(*of)])


def of_a_report(patch: pytest.MonkeyPatch) -> None:
    without(patch, lambda result: isinstance(result, SplitReport))


def of_a_write_task(patch: pytest.MonkeyPatch) -> None:
    without(patch, lambda result: not isinstance(result, SplitReport))


def without(patch: pytest.MonkeyPatch, is_lost: Callable[[object], bool]) -> None:
    real = LocalEngine.run

    def run(engine: LocalEngine, *of: Any) -> list[object]:
        results = real(engine, *of)
        return [result for result in results if not is_lost(result)]

    patch.setattr(LocalEngine, "run", run)


ONLY_WITH_AN_EXCHANGE = (in_the_exchange, in_spreading)


@pytest.mark.parametrize(
    "lose", [in_combining, in_the_source, in_a_filter, in_the_exchange, in_spreading, of_a_report, of_a_write_task]
)
def test_a_cut_that_loses_rows_is_not_taken(lose: Losing, bucket: Bucket, tasked: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if lose in ONLY_WITH_AN_EXCHANGE and tasked == "one task":
        return
    bucket.rows("t/100/1", "I 110 1 a", "I 111 2 b")
    bucket.rows("t/100/2", "I 112 3 c", "I 113 4 d")
    bucket.at(105)
    with monkeypatch.context() as patch:
        lose(patch)
        with pytest.raises(RowsLostError, match=r"table test\.t: .* bug of Headrace or of the connector"):
            bucket.at(120)
    assert bucket.state() in (None, [])
    assert bucket.at(120).code == 0
    assert bucket.state() == [(1, "a"), (2, "b"), (3, "c"), (4, "d")]
