"""ChangeBlock: an Arrow record batch of one table's changes with one schema version, the unit that moves through Spark.

Layout of the batch: three meta columns by position, then the row's columns in the order of the schema, in canonical
types (``model.types.arrow_type``).

| position | name | Arrow type | meaning |
| --- | --- | --- | --- |
| 0 | ``headrace$kind`` | int8 | :class:`headrace.model.events.RowKind` |
| 1 | ``headrace$commit_ts`` | int64 | TSO; 0 where the data carry none |
| 2 | ``headrace$seq`` | int64 | place in the source, for ties: ``split rank << 32 | row number in the split`` |

A column of the table that rows do not carry (virtual generated, dropped by a column selector) is absent from the batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from headrace.model.events import DataChangeEvent, RowKind
from headrace.model.table import Column, TableId, TableSchema
from headrace.model.types import arrow_type

KIND = "headrace$kind"
COMMIT_TS = "headrace$commit_ts"
SEQ = "headrace$seq"
META_FIELDS = (pa.field(KIND, pa.int8()), pa.field(COMMIT_TS, pa.int64()), pa.field(SEQ, pa.int64()))
META_COUNT = len(META_FIELDS)
SEQ_RANK_SHIFT = 32


def block_schema(columns: tuple[Column, ...]) -> pa.Schema:
    """The Arrow schema of a block that carries these columns."""
    return pa.schema([*META_FIELDS, *(pa.field(c.name, arrow_type(c.type)) for c in columns)])


@dataclass(frozen=True)
class ChangeBlock:
    """``version`` is the table version (TSO) whose shape ``schema`` describes."""

    table_id: TableId
    version: int
    schema: TableSchema
    batch: pa.RecordBatch

    @property
    def num_rows(self) -> int:
        return int(self.batch.num_rows)

    def events(self) -> Iterator[DataChangeEvent]:
        """The rows one by one, in their order; an old image goes with the new one that follows it.

        For connectors and user code that want single changes; the engine never takes this way.
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
