"""Transactions of small tables, an event sink that keeps them, and a table in memory that refuses what a unique key forbids."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from headrace.model.block import ChangeBlock, block_schema
from headrace.model.events import RowKind
from headrace.model.table import Column, Index, TableId, TableSchema
from headrace.model.types import ColumnType, TypeKind
from headrace.replay.transactions import Transaction, TransactionEvents

INT = ColumnType(TypeKind.INT)
TEXT = ColumnType(TypeKind.VARCHAR, length=20)
T = TableId("d", "t")
Row = Mapping[str, object]


def table(*columns: Column, key: tuple[str, ...] = ("pk",), unique: Sequence[tuple[str, ...]] = ()) -> TableSchema:
    indexes = tuple(Index("_".join(names), names, unique=True) for names in unique)
    return TableSchema(T, columns, key, indexes)


PK_UK = table(Column("pk", INT, False, True), Column("uk", INT, False), unique=[("uk",)])
"""The table t(pk, uk) of TiCDC's slides."""


@dataclass(frozen=True)
class Change:
    """One row change: an insert without ``before``, a delete without ``after``."""

    before: Row | None
    after: Row | None

    def images(self) -> list[tuple[RowKind, Row]]:
        if self.before is None:
            return [(RowKind.INSERT, self.after or {})]
        if self.after is None:
            return [(RowKind.DELETE, self.before)]
        return [(RowKind.UPDATE_BEFORE, self.before), (RowKind.UPDATE_AFTER, self.after)]


def block_of(schema: TableSchema, transactions: Iterable[tuple[int, Sequence[Change]]]) -> ChangeBlock:
    """A block of transactions, each a commit ts and its changes."""
    images = [(ts, kind, row) for ts, changes in transactions for change in changes for kind, row in change.images()]
    shape = block_schema(schema.row_columns)
    meta = [[int(kind) for _, kind, _ in images], [ts for ts, _, _ in images], list(range(len(images)))]
    cells = [[row[c.name] for _, _, row in images] for c in schema.row_columns]
    arrays = [pa.array(values, of.type) for values, of in zip([*meta, *cells], shape, strict=True)]
    return ChangeBlock(schema.table_id, 1, schema, pa.record_batch(arrays, schema=shape))


def inserts(*commit_ts: int, schema: TableSchema = PK_UK) -> ChangeBlock:
    """A row for each commit ts, all with different keys."""
    rows = [{"pk": 100 * ts + n, "uk": 100 * ts + n} for n, ts in enumerate(commit_ts)]
    return block_of(schema, [(ts, [Change(None, row)]) for ts, row in zip(commit_ts, rows, strict=True)])


@dataclass
class KeepingSink:
    """An event sink that keeps what it takes until a test acknowledges it."""

    taken: list[TransactionEvents] = field(default_factory=list)
    failure: Exception | None = None
    closed: bool = False

    def write_events(self, events: TransactionEvents) -> None:
        self.taken.append(events)

    def close(self) -> None:
        self.closed = True

    @property
    def commit_ts(self) -> list[int]:
        return [int(ts) for events in self.taken for ts in events.transactions.commit_ts]

    def acknowledge(self, *places: int) -> None:
        """Acknowledges the transactions at these places of all that were taken."""
        for place in places:
            events, number = [(e, n) for e in self.taken for n in range(len(e.transactions))][place]
            events.acknowledge(np.array([number]))


class DuplicateKeyError(Exception):
    """A unique key of the table in memory forbids a row."""


@dataclass
class UniqueTable:
    """A table with unique keys. ``keys`` make of a row the values that its database compares; ``None`` conflicts with nothing."""

    keys: Sequence[Callable[[Row], object]]
    rows: dict[object, Row] = field(default_factory=dict)

    def apply(self, transaction: Transaction) -> None:
        """Removes the old rows, which must be there as they are said to be, and then inserts the new ones."""
        images = transaction.rows.to_pylist()
        names = [name for name in transaction.rows.schema.names if not name.startswith("headrace$")]
        rows = [(image["headrace$kind"], {name: image[name] for name in names}) for image in images]
        for kind, row in rows:
            if kind in (RowKind.UPDATE_BEFORE, RowKind.DELETE):
                found = self.rows.pop(row["pk"], None)
                if found != row:
                    raise AssertionError(f"commit ts {transaction.commit_ts} removes {row}, and there is {found}")
        for kind, row in rows:
            if kind in (RowKind.INSERT, RowKind.UPDATE_AFTER):
                for key in self.keys:
                    value = key(row)
                    if value is not None and any(key(other) == value for other in self.rows.values()):
                        raise DuplicateKeyError(f"commit ts {transaction.commit_ts}: {row}")
                self.rows[row["pk"]] = row
