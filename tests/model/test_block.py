"""A block row by row."""

from __future__ import annotations

import pyarrow as pa

from headrace.model.block import ChangeBlock, block_schema
from headrace.model.events import DataChangeEvent, RowKind
from headrace.model.table import Column, TableId, TableSchema
from headrace.model.types import ColumnType, TypeKind

T = TableId("shop", "orders")
COLUMNS = (Column("id", ColumnType(TypeKind.INT), primary_key=True), Column("state", ColumnType(TypeKind.VARCHAR)))


def test_rows_become_events_with_the_images_they_have() -> None:
    kinds = [RowKind.INSERT, RowKind.UPDATE_BEFORE, RowKind.UPDATE_AFTER, RowKind.UPDATE_AFTER, RowKind.DELETE]
    arrays = [
        pa.array(map(int, kinds), pa.int8()),
        pa.array([5, 6, 6, 7, 8]),
        pa.array(range(5)),
        pa.array([1] * 5),
    ]
    batch = pa.RecordBatch.from_arrays([*arrays, pa.array(list("abcde"))], schema=block_schema(COLUMNS))
    block = ChangeBlock(T, 1, TableSchema(T, COLUMNS, ("id",)), batch)

    def image(state: str) -> dict[str, object]:
        return {"id": 1, "state": state}

    assert list(block.events()) == [
        DataChangeEvent(T, 5, None, image("a")),
        DataChangeEvent(T, 6, image("b"), image("c")),
        DataChangeEvent(T, 7, None, image("d")),
        DataChangeEvent(T, 8, image("e"), None),
    ]
