"""The three ways to the rows of a round: in tasks, on the driver; each table as the sink wants it."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import round_cases
from harness import spark_engine
from headrace.engine import read_task, write_task
from headrace.engine.conservation import AmbiguousSplitsError, RowsLostError, row_figures
from headrace.model.block import COMMIT_TS
from headrace.model.cut import Repeats
from headrace.model.events import RowKind
from headrace.model.table import TableId
from headrace.sinks.base import Spread, WriteReport
from headrace.sinks.staged_files import RowsOf, StagingWriter, staged_files
from headrace.testing.engine import LocalEngine
from round_cases import BAG, LOG, NET, TellingWriter, bags, final_rows, history, round_of, splits_of, streamed

MIB = 1 << 20


@pytest.fixture(params=["one task", "many units"])
def size(request: pytest.FixtureRequest) -> int:
    """What each file is said to have, in bytes."""
    return {"one task": 1000, "many units": 20 * MIB}[str(request.param)]


def repeated(files: list[list[tuple[int, RowKind, int, str]]], seed: int) -> list[list[tuple[int, RowKind, int, str]]]:
    """The files, some of them a second time, in any order."""
    chance = Random(seed)
    again = [file for file in files if chance.random() < 0.3]
    found = files + again
    chance.shuffle(found)
    return found


@pytest.mark.long
@pytest.mark.parametrize("spread", list(Spread))
def test_each_table_comes_to_the_driver_as_the_sink_wants_it(size: int, spread: Spread) -> None:
    net, log, bag = history(1), history(2), bags(3)
    splits = [*splits_of(NET, net, size=size), *splits_of(LOG, repeated(log, 4), size=size), *splits_of(BAG, bag, size=size)]
    found, report = streamed(round_of(LocalEngine(), splits, spread=spread))
    whole = [change for file in log for change in file]
    assert found.rows[NET] == final_rows(net)
    assert sorted(map(repr, found.logs[LOG])) == sorted(map(repr, whole))
    if spread is Spread.BY_TABLE:
        assert [ts for ts, *_ in found.logs[LOG]] == [ts for ts, *_ in whole]
    assert found.inserted[BAG] == sum(map(len, bag))
    figures = row_figures(report, splits)
    assert figures.read == figures.written + figures.netted


@pytest.mark.parametrize("again", [False, True])
def test_a_transaction_that_changes_a_key_several_times_leaves_its_last_state(size: int, again: bool) -> None:
    """Whether it ends with a deletion or with a row; also where the source tells it a second time."""
    transaction = [
        (5, RowKind.INSERT, 7, "a"),
        (5, RowKind.DELETE, 7, ""),
        (5, RowKind.INSERT, 8, "a"),
        (5, RowKind.DELETE, 8, ""),
        (5, RowKind.INSERT, 8, "b"),
    ]
    files = [transaction, transaction] if again else [transaction]
    cut_round = round_of(LocalEngine(), splits_of(NET, files, size=size), repeats=Repeats.TRANSACTIONS)
    assert streamed(cut_round)[0].rows[NET] == {8: "b"}


def written(report: WriteReport) -> list[tuple[int, int, int, list[tuple[object, ...]]]]:
    """Slot, number of the unit there, how many ordered rows, and the rows, of each piece that was written."""
    return [ast.literal_eval(text) for outcome in report.outcomes for text in outcome.spooled]


@pytest.mark.parametrize("writers", [1, 2, 3])
def test_at_most_so_many_tasks_write_as_the_sink_says_each_unit_by_unit(writers: int) -> None:
    net = history(1)
    splits = splits_of(NET, net, size=40 * MIB)
    report = round_of(LocalEngine(parallelism=4), splits, writers=writers).write_in_tasks(TellingWriter())
    pieces = written(report)
    units = -(-sum(split.size for split in splits) // (64 * MIB))
    assert units > 2 * writers
    assert {slot for slot, *_ in pieces} == set(range(writers))
    assert max(number for _, number, *_ in pieces) <= -(-units // writers)
    assert dict(row for *_, rows in pieces for row in rows) == final_rows(net)


def test_a_table_that_cannot_be_read_whole_is_written_by_no_task(size: int) -> None:
    net, log = history(1), history(2)
    splits = [*splits_of(NET, net, size=size, problem="damaged"), *splits_of(LOG, log, size=size)]
    report = round_of(LocalEngine(), splits).write_in_tasks(TellingWriter())
    assert report.problems().keys() == {NET}
    assert {outcome.table_id for outcome in report.outcomes} == {LOG}
    assert row_figures(report, splits, {NET}).refused > 0


def test_reports_of_two_tables_with_one_key_are_refused(size: int) -> None:
    splits = [*splits_of(NET, history(1), size=size), *splits_of(LOG, history(2), size=size)]
    splits = [replace(split, key=f"{split.rank}") for split in splits]
    with pytest.raises(AmbiguousSplitsError, match=r"shop\.net and table shop\.log|shop\.log and table shop\.net"):
        round_of(LocalEngine(), splits).write_in_tasks(TellingWriter())


def test_the_report_of_another_table_is_none_of_a_split() -> None:
    splits = splits_of(NET, history(1))
    report = round_of(LocalEngine(), splits).write_in_tasks(TellingWriter())
    others = [replace(split, table_id=LOG) for split in splits[:1]]
    with pytest.raises(RowsLostError, match=r"table shop\.log: .* was to be read, and no task has reported on it"):
        row_figures(report, others)


def test_rows_lie_in_typed_files_of_the_work_place(size: int) -> None:
    net, log, bag = history(1), history(2), bags(3)
    splits = [*splits_of(NET, net, size=size), *splits_of(LOG, log, size=size), *splits_of(BAG, bag, size=size)]
    cut_round = round_of(LocalEngine(), splits)
    with cut_round.work as work:
        staged = staged_files(cut_round, "files")
        tables = {
            (table_id, rows): pa.concat_tables([pq.read_table(work.place().open(f.key)) for f in files if f.rows is rows])
            for table_id, files in staged.files.items()
            for rows in {file.rows for file in files}
        }
        assert work.place().keys("files")
    alive = tables[NET, RowsOf.UPSERTS]
    assert alive.schema.types == [pa.int64(), pa.string()]
    assert dict(zip(*(alive.column(name).to_pylist() for name in ("id", "v")), strict=True)) == final_rows(net)
    assert not set(tables[NET, RowsOf.DELETES].column("id").to_pylist()) & final_rows(net).keys()
    assert sorted(tables[LOG, RowsOf.CHANGES].column(COMMIT_TS).to_pylist()) == sorted(ts for file in log for ts, *_ in file)
    assert tables[BAG, RowsOf.UPSERTS].num_rows == sum(map(len, bag))
    assert row_figures(staged.report, splits).written == sum(table.num_rows for table in tables.values())


def test_changes_by_key_keep_their_order_within_the_key() -> None:
    log = history(2, keys=5)
    found, _ = streamed(round_of(LocalEngine(), splits_of(LOG, log, size=20 * MIB), spread=Spread.BY_KEY))
    for key in range(5):
        of_key = [change for change in found.logs[LOG] if change[2] == key]
        assert of_key == [change for file in log for change in file if change[2] == key]


@pytest.mark.spark
def test_spark_brings_the_same_as_one_process_does() -> None:
    spark = spark_engine()
    spark.start().sparkContext.addPyFile(round_cases.__file__)  # its workers know no module of tests
    net, log, bag = history(1), history(2), bags(3)
    splits = [*splits_of(NET, net, size=20 * MIB), *splits_of(LOG, log, size=20 * MIB), *splits_of(BAG, bag, size=20 * MIB)]
    ways: list[Callable[[], object]] = [
        lambda: streamed(round_of(spark, splits)),
        lambda: streamed(round_of(LocalEngine(), splits)),
    ]
    (on_spark, _), (here, _) = (way() for way in ways)  # type: ignore[misc]
    assert (on_spark.rows, on_spark.inserted) == (here.rows, here.inserted)
    assert on_spark.logs == here.logs
    report = round_of(spark, splits, writers=1).write_in_tasks(TellingWriter())
    pieces = written(report)
    assert {slot for slot, *_ in pieces} == {0}
    assert max(number for _, number, *_ in pieces) > 2
    logged = [(ts, key) for _, _, ordered, rows in pieces if ordered for ts, _, key, _ in rows]
    assert logged == [(ts, key) for file in log for ts, _, key, _ in file]


def failing_for(table_id: TableId, function: Callable[..., Any], told: Callable[..., TableId]) -> Callable[..., Any]:
    """The function with a bug that shows with one table; ``told`` finds the table among the arguments."""

    def failing(*given: Any) -> Any:
        if told(*given) == table_id:
            raise KeyError("a bug over these rows")
        return function(*given)

    return failing


BAD = pytest.mark.parametrize("bad", [NET, LOG, BAG], ids=["net", "log", "bag"])


@BAD
def test_what_nobody_foresaw_while_a_table_is_staged_stops_that_table(
    size: int, bad: TableId, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing = failing_for(bad, StagingWriter._staged, lambda _, change: change.table_id)
    monkeypatch.setattr(StagingWriter, "_staged", failing)
    splits = [
        split for t, rows in ((NET, history(1)), (LOG, history(2)), (BAG, bags(3))) for split in splits_of(t, rows, size=size)
    ]
    cut_round = round_of(LocalEngine(), splits)
    with cut_round.work:
        staged = staged_files(cut_round, "files")
    assert_stops_alone(staged.report, bad)
    assert staged.files.keys() - {bad} == {NET, LOG, BAG} - {bad}
    row_figures(staged.report, splits)


@BAD
def test_what_nobody_foresaw_while_a_table_comes_to_the_driver_stops_it(bad: TableId, monkeypatch: pytest.MonkeyPatch) -> None:
    failing = failing_for(bad, write_task.in_change_pieces, lambda change: change.table_id)
    monkeypatch.setattr(write_task, "in_change_pieces", failing)
    assert_streamed_without(bad)


@BAD
def test_what_nobody_foresaw_while_a_table_goes_through_the_exchange_stops_it(
    bad: TableId, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read_task, "_pieces", failing_for(bad, read_task._pieces, lambda _, part, order: part.table_id))
    assert_streamed_without(bad)


def assert_streamed_without(bad: TableId) -> None:
    size = 20 * MIB
    splits = [*splits_of(NET, history(1), size=size), *splits_of(LOG, history(2), size=size), *splits_of(BAG, bags(3), size=size)]
    found, report = streamed(round_of(LocalEngine(), splits))
    assert_stops_alone(report, bad)
    assert (LOG in found.logs) == (bad != LOG)
    row_figures(report, splits)


def assert_stops_alone(report: WriteReport, bad: TableId) -> None:
    assert report.problems().keys() == {bad}
    assert "KeyError: 'a bug over these rows'" in report.problems()[bad].message
