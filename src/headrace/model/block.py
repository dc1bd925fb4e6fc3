"""ChangeBlock: an Arrow record batch of one table's changes with one schema version, the unit that moves through Spark.

Layout of the batch: three meta columns by position, then the row's columns in the order of the schema, in canonical
types (``model.types.arrow_type``).

| position | name | Arrow type | meaning |
| --- | --- | --- | --- |
| 0 | ``headrace$kind`` | int8 | :class:`headrace.model.events.RowKind` |
| 1 | ``headrace$commit_ts`` | int64 | TSO; 0 where the data carry none |
| 2 | ``headrace$seq`` | int64 | place in the source, for ties: ``split rank << 32 | row number in the split`` |

A column of the table that rows do not carry (virtual generated, dropped by a column selector) is absent from the batch.

Arrow's string and binary arrays hold at most 2 GiB. If a task holds more of one column, that column is ``large_string`` or
``large_binary`` (:func:`combined`). So code that works on rows of several files must accept both types.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import pyarrow as pa

from headrace.model.events import DataChangeEvent, RowKind
from headrace.model.table import Column, TableId, TableSchema
from headrace.model.types import arrow_type

RESERVED_PREFIX = "headrace$"
"""The prefix of the names of the engine's own columns."""
KIND = "headrace$kind"
COMMIT_TS = "headrace$commit_ts"
SEQ = "headrace$seq"
META_FIELDS = (pa.field(KIND, pa.int8()), pa.field(COMMIT_TS, pa.int64()), pa.field(SEQ, pa.int64()))
META_COUNT = len(META_FIELDS)
SIGHT = "headrace$sight"
"""An optional last column (int8) of netted rows. It says what happened to the row's key within the window, as bits:
:data:`BORN`, :data:`UPDATED_ALONE` and :data:`DIED`."""
BORN = 4
"""The key's first change is an insert: the key did not exist before the window."""
UPDATED_ALONE = 8
"""An update had no old row, so the row may have had another key before."""
DIED = 16
"""The key was deleted, or was in the old row of an update."""
SEQ_RANK_SHIFT = 32
WIDE_BYTES = 1 << 30
"""From this size in bytes (of all batches together), a string or binary column is combined into the large type."""
_WIDE_TYPES = {pa.string(): pa.large_string(), pa.binary(): pa.large_binary()}

_Rows = TypeVar("_Rows", pa.RecordBatch, pa.Table)


def block_schema(columns: tuple[Column, ...]) -> pa.Schema:
    """The Arrow schema of a block that carries these columns."""
    return pa.schema([*META_FIELDS, *(pa.field(c.name, arrow_type(c.type)) for c in columns)])


def combined(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Combines at least one batch into one. It has every column that any batch has (a deletion may carry only its key).

    A column gets the large type if it has that type in any batch, or from :data:`WIDE_BYTES` on: otherwise Arrow would split rows
    that one array cannot hold into several batches.
    """
    if len(batches) == 1:
        return batches[0]
    wide = _wide_columns(batches)
    tables = [pa.Table.from_batches([_widened(batch, wide)]) for batch in batches]
    table = pa.concat_tables(tables, promote_options="default").combine_chunks()
    if not table.num_rows:
        return pa.RecordBatch.from_pylist([], schema=table.schema)
    (batch,) = table.to_batches()
    return batch


def _wide_columns(batches: Sequence[pa.RecordBatch]) -> frozenset[str]:
    sizes: dict[str, int] = {}
    for batch in batches:
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            if column.type in _WIDE_TYPES:
                sizes[name] = sizes.get(name, 0) + column.nbytes
            elif column.type in _WIDE_TYPES.values():
                sizes[name] = WIDE_BYTES
    return frozenset(name for name, size in sizes.items() if size >= WIDE_BYTES)


def _widened(batch: pa.RecordBatch, wide: frozenset[str]) -> pa.RecordBatch:
    if wide.isdisjoint(batch.schema.names):
        return batch
    fields = [field.with_type(_WIDE_TYPES.get(field.type, field.type)) if field.name in wide else field for field in batch.schema]
    return batch.cast(pa.schema(fields))


def in_pieces(rows: _Rows, most_bytes: int, most_rows: int) -> Iterator[_Rows]:
    """Splits the rows, in order, into pieces of about equal length within both limits. A row above the limit is its own piece."""
    if rows.num_rows == 0:
        return
    count = max(-(-rows.num_rows // most_rows), -(-rows.nbytes // most_bytes))
    if count <= 1 or rows.num_rows == 1:
        yield rows
        return
    step = -(-rows.num_rows // count)
    for start in range(0, rows.num_rows, step):
        yield from in_pieces(rows.slice(start, step), most_bytes, most_rows)


@dataclass(frozen=True)
class ChangeBlock:
    """Rows of one table in one shape. ``version`` is the table version (TSO) whose shape ``schema`` describes."""

    table_id: TableId
    version: int
    schema: TableSchema
    batch: pa.RecordBatch

    @property
    def num_rows(self) -> int:
        return int(self.batch.num_rows)

    def events(self) -> Iterator[DataChangeEvent]:
        """The rows as single changes, in order. An old image is combined with the new image that follows it.

        For connectors and user code that need single changes; the engine does not use it.
        """
        names = self.batch.schema.names[META_COUNT:]
        before: dict[str, object] | None = None
        for row in self.batch.to_pylist():
            image = {name: row[name] for name in names}
            kind = RowKind(row[KIND])
            if kind is RowKind.UPDATE_BEFORE:
                before = image
            elif kind is RowKind.DELETE:
                yield DataChangeEvent(self.table_id, row[COMMIT_TS], image, None)
            else:
                old = before if kind is RowKind.UPDATE_AFTER else None
                yield DataChangeEvent(self.table_id, row[COMMIT_TS], old, image)
                before = None
