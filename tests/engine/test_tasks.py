"""What the tasks of a job say of the files they read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pytest

from headrace.engine import read_task, write_task
from headrace.engine.parts import TablePart
from headrace.engine.read_task import ReadJob
from headrace.engine.write_task import Unit, read_problems, unit_of_splits
from headrace.errors import TransientError
from headrace.model.block import COMMIT_TS, KIND, META_FIELDS, SEQ, SEQ_RANK_SHIFT, ChangeBlock
from headrace.model.events import RowKind
from headrace.model.outcome import SplitReport
from headrace.model.split import Segment, Split, Window
from headrace.model.table import Column, TableId, TableSchema
from headrace.model.types import ColumnType, TypeKind
from headrace.sinks.base import ChangeDemand
from headrace.testing.faults import Crashed

T = TableId("test", "t")


@pytest.mark.parametrize(
    ("truncated_ts", "pending_ts", "stops"),
    [(None, None, True), (130, None, True), (130, 150, True), (None, 120, False), (130, 120, False)],
)
def test_a_record_that_is_cut_off_matters_when_the_window_reaches_it(
    truncated_ts: int | None, pending_ts: int | None, stops: bool
) -> None:
    """It comes after all other rows of its file, so where some of these are still to come it is too."""
    report = SplitReport("f", T, rows=3, min_ts=110, max_ts=150, truncated=True, truncated_ts=truncated_ts, pending_ts=pending_ts)
    assert (T in read_problems([report])) == stops


GOOD, BAD = TableId("test", "good"), TableId("test", "bad")
COLUMNS = (Column("id", ColumnType(TypeKind.INT), nullable=False, primary_key=True), Column("v", ColumnType(TypeKind.VARCHAR)))


@dataclass(frozen=True)
class Failing:
    """A source of one row a split that fails behind it where the table is the bad one."""

    error: BaseException | None = None

    def read(self, split: Split, window: Window, **_: Any) -> Iterator[ChangeBlock | SplitReport]:
        meta = {KIND: [int(RowKind.INSERT)], COMMIT_TS: [110], SEQ: [split.rank << SEQ_RANK_SHIFT]}
        arrays = [*(pa.array(meta[column.name], column.type) for column in META_FIELDS), pa.array([1], pa.int64()), pa.array(["a"])]
        names = [column.name for column in (*META_FIELDS, *split.schema.columns)]
        yield ChangeBlock(split.table_id, split.version, split.schema, pa.RecordBatch.from_arrays(arrays, names))
        if self.error is not None and split.table_id == BAD:
            raise self.error
        yield SplitReport(split.key, split.table_id, rows=1, kept=1, min_ts=110, max_ts=110)


def unit_of(source: Failing, odd: TableId | None = None) -> Unit:
    """What a task holds that reads a file of the good table, two of the bad one, and another one of the good one."""
    parts, splits = [], []
    for table_id in (BAD, GOOD):
        columns = COLUMNS if table_id != odd else (COLUMNS[0], replace(COLUMNS[1], name="bad"))
        schema = TableSchema(table_id, columns, ("id",))
        parts.append(TablePart(table_id, Segment(Window(0, 200), 100, schema), ChangeDemand.NET))
        splits += [Split(f"{table_id}/{number}", table_id, 100, number, 10, schema) for number in range(2)]
    job = ReadJob(source, tuple(parts), deletes_first=True)  # type: ignore[arg-type]
    return unit_of_splits(job, [splits[2], splits[0], splits[1], splits[3]])


@pytest.mark.parametrize("error", [RecursionError("deep"), MemoryError(), KeyError("x"), pa.ArrowInvalid("odd"), OSError("odd")])
def test_what_nobody_foresaw_about_a_file_stops_its_table_and_the_rows_still_add_up(error: Exception) -> None:
    unit = unit_of(Failing(error))
    assert [change.table_id for change in unit.changes()] == [GOOD]
    assert not unit.unfit
    problem = read_problems(unit.reading.reports.values())[BAD]
    assert problem.file == f"{BAD}/0"
    assert problem.hint
    assert {count.table_id: count.gathered for count in unit.counts(reporting=True)} == {BAD: 1, GOOD: 1}


@pytest.mark.parametrize("error", [Crashed("killed"), KeyboardInterrupt(), SystemExit(1)])
def test_what_ends_a_process_ends_it_while_a_file_is_read(error: BaseException) -> None:
    with pytest.raises(type(error)):
        unit_of(Failing(error))


def test_a_store_that_fails_is_no_bug_and_is_asked_again() -> None:
    problem = read_problems(unit_of(Failing(TransientError("the store is busy"))).reading.reports.values())[BAD]
    assert (problem.message, problem.transient) == ("the store is busy", True)


@pytest.mark.parametrize("error", [RecursionError("deep"), MemoryError(), KeyError("x")])
def test_rows_of_a_table_that_cannot_be_netted_stop_that_table(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    original = write_task.net_change
    seen: list[pa.RecordBatch] = []

    def failing(batch: pa.RecordBatch, *given: Any, **named: Any) -> Any:
        seen.append(batch)
        if len(seen) == 1:
            raise error
        return original(batch, *given, **named)

    unit = unit_of(Failing())
    monkeypatch.setattr(write_task, "net_change", failing)
    assert [change.table_id for change in unit.changes()] == [GOOD]
    assert [(outcome.table_id, outcome.problem is not None) for outcome in unit.unfit] == [(BAD, True)]


@pytest.mark.parametrize("error", [pa.ArrowInvalid("odd"), MemoryError(), KeyError("x")])
def test_rows_of_a_table_that_cannot_be_put_together_stop_that_table(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    """While they are read: the other tables of the task go on, and the rows still add up."""
    original = read_task.combined

    def failing(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
        if len(batches) == 2 and "bad" in batches[0].schema.names:
            raise error
        return original(batches)

    monkeypatch.setattr(read_task, "combined", failing)
    unit = unit_of(Failing(), odd=BAD)
    assert [change.table_id for change in unit.changes()] == [GOOD]
    assert read_problems(unit.reading.reports.values()).keys() == {BAD}
    assert {count.table_id: count.gathered for count in unit.counts(reporting=True)} == {GOOD: 1}  # one key
