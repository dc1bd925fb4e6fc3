"""More of one column in a task than one of Arrow's string arrays holds: every row arrives, and none is cut off."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.engine.parts import TablePart
from headrace.engine.read_task import ReadJob
from headrace.engine.write_task import unit_of_splits
from headrace.model import block
from headrace.model.block import COMMIT_TS, KIND, SEQ, ChangeBlock, combined, in_pieces
from headrace.model.outcome import SplitReport
from headrace.model.split import Segment, Split, Window
from headrace.model.table import Column, TableId, TableSchema
from headrace.model.types import ColumnType, TypeKind
from headrace.sinks.base import ChangeDemand

pytestmark = pytest.mark.long

T = TableId("test", "t")
MIB = 1 << 20


def texts(rows: int) -> pa.Array:
    """A text of 1 MiB in each row; all arrays of a test share the memory of one."""
    data = pa.py_buffer(np.full(rows * MIB, ord("a"), np.uint8))
    return pa.Array.from_buffers(pa.string(), rows, [None, pa.py_buffer(np.arange(rows + 1, dtype=np.int32) * MIB), data])


def rows_of_block(first: int, values: pa.Array) -> pa.RecordBatch:
    count = len(values)
    numbers = pa.array(np.arange(first, first + count))
    columns = {KIND: pa.array(np.zeros(count), pa.int8()), COMMIT_TS: pa.array(np.full(count, 110)), SEQ: numbers, "id": numbers}
    return pa.record_batch({**columns, "x": values})


@dataclass(frozen=True)
class OfWideRows:
    """A source of one split with twice as many rows as there are values."""

    values: pa.Array

    def read(self, split: Split, window: Window, **_: object) -> Iterator[ChangeBlock | SplitReport]:
        for first in (0, 1100):
            yield ChangeBlock(T, 100, split.schema, rows_of_block(first, self.values))
        yield SplitReport("f", T, 0, rows=2200, kept=2200, min_ts=110, max_ts=110)


@pytest.mark.parametrize("key", [("id",), ()], ids=["key", "no key"])
def test_a_task_with_more_than_2_gib_of_one_column_writes_all_of_its_rows(key: tuple[str, ...]) -> None:
    values = texts(1100)
    columns = (Column("id", ColumnType(TypeKind.INT)), Column("x", ColumnType(TypeKind.LONGTEXT)))
    schema = TableSchema(T, columns, key)
    part = TablePart(T, Segment(Window(0, 200), 100, schema), ChangeDemand.NET if key else ChangeDemand.BAG)
    unit = unit_of_splits(ReadJob(OfWideRows(values), (part,), True), [Split("f", T, 100, 0, 1, schema)])  # type: ignore[arg-type]
    (change,) = unit.changes()
    assert not unit.unfit
    assert change.deletes.num_rows == change.ordered.num_rows == 0
    assert sorted(change.upserts["id"].to_pylist()) == list(range(2200))
    assert change.upserts["x"].nbytes > 2200 * MIB


def test_columns_become_large_where_any_part_is_or_together_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(block, "WIDE_BYTES", 40)
    small = pa.record_batch({"k": pa.array(["a"]), "v": pa.array(["b" * 20]), "b": pa.array([b"c" * 20])})
    large = pa.record_batch({"k": pa.array(["d"], pa.large_string()), "w": pa.array(["e"])})
    found = combined([small, small, small.slice(0, 0), large])
    assert found.to_pylist() == [
        {"k": "a", "v": "b" * 20, "b": b"c" * 20, "w": None},
        {"k": "a", "v": "b" * 20, "b": b"c" * 20, "w": None},
        {"k": "d", "v": None, "b": None, "w": "e"},
    ]
    assert found.schema.types == [pa.large_string(), pa.large_string(), pa.large_binary(), pa.string()]


CELLS = st.none() | st.sampled_from(["", "1", "22", "3" * 30])
TYPES = {"text": (pa.string(), pa.large_string()), "bytes": (pa.binary(), pa.large_binary())}


@st.composite
def batches(draw: st.DrawFn) -> list[pa.RecordBatch]:
    """Batches of one table, of which some lack a column, and some have one that is large already."""
    found = []
    for _ in range(draw(st.integers(1, 6))):
        rows = draw(st.integers(0, 5))
        columns = {}
        for name in sorted(draw(st.sets(st.sampled_from(sorted(TYPES)), min_size=1))):
            cells = draw(st.lists(CELLS, min_size=rows, max_size=rows))
            columns[name] = pa.array(cells, pa.string()).cast(draw(st.sampled_from(TYPES[name])))
        found.append(pa.record_batch(columns))
    return found


@given(batches(), st.integers(1, 100))
@settings(max_examples=300, deadline=None)
def test_of_whatever_batches_all_rows_are_there_and_no_small_column_holds_more_than_it_may(
    given_batches: list[pa.RecordBatch], limit: int
) -> None:
    """What counts is the bytes of all batches together: each by itself may be small."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(block, "WIDE_BYTES", limit)
        found = combined(given_batches)
    wanted = [{name: row.get(name) for name in found.schema.names} for batch in given_batches for row in batch.to_pylist()]
    assert wanted == found.to_pylist()
    for name, (_, large) in TYPES.items():
        size = sum(batch.column(name).nbytes for batch in given_batches if name in batch.schema.names)
        if len(given_batches) > 1 and size >= limit:
            assert found.schema.field(name).type == large


def test_pieces_are_small_however_uneven_the_rows_are() -> None:
    values = ["x" * 1000 if 500 <= number < 520 else "" for number in range(600)]
    table = pa.table({"v": values})
    cut = list(in_pieces(table, 2_000, 100))
    assert [value for piece in cut for value in piece["v"].to_pylist()] == values
    assert all(piece.num_rows <= 100 and (piece.nbytes <= 2_000 or piece.num_rows == 1) for piece in cut)
