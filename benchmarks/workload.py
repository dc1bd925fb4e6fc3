"""The changes that are measured, written as TiCDC storage output. All of it follows from the numbers here: nothing is random twice.

A million changes pick one of 300,000 keys each, so about 289,000 keys change (300,000 · (1 - e^(-10/3))), 3.5 times each.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from headrace.model.table import Column, TableId, TableSchema
from headrace.model.tso import tso_from_ms
from headrace.model.types import ColumnType, TypeKind
from headrace.testing.ticdc_options import Protocol
from headrace.testing.ticdc_writer import RowChange, TicdcWriter

DATABASE = "bench"
ORDERS = TableId(DATABASE, "orders")
BEGIN_MS = 1_750_000_000_000
KEYS_PER_CHANGE = 0.3
ROWS_PER_COMMIT = 20
ROWS_PER_FILE = 100_000
DELETED_PERCENT = 3
UPDATED_PERCENT = 70
CREATE_TABLE = 3
"""TiDB's number of the DDL kind, which a schema file carries."""

COLUMNS = (
    Column("id", ColumnType(TypeKind.BIGINT, length=20), nullable=False, primary_key=True),
    Column("customer", ColumnType(TypeKind.VARCHAR, length=64), nullable=False),
    Column("amount", ColumnType(TypeKind.DECIMAL, length=12, scale=2)),
    Column("quantity", ColumnType(TypeKind.INT, length=11)),
    Column("ordered_at", ColumnType(TypeKind.DATETIME)),
    Column("remark", ColumnType(TypeKind.VARCHAR, length=255)),
)
_DDL = (
    "(id BIGINT NOT NULL PRIMARY KEY, customer VARCHAR(64) NOT NULL, amount DECIMAL(12,2), quantity INT, ordered_at DATETIME,"
    " remark VARCHAR(255))"
)
CREATE = f"CREATE TABLE `{ORDERS.table}` {_DDL}"
_WORDS = np.array(["ship", "hold", "gift", "express", "return", "fragile", "invoice", "pickup", "deposit", "weekend"], dtype=object)


@dataclass(frozen=True)
class Workload:
    """What was written. ``uri`` is the source; ``size`` is in bytes of data files; ``keys`` and ``alive`` count keys at the end."""

    name: str
    uri: str
    root: Path
    changes: int
    size: int
    keys: int = 0
    alive: int = 0
    writer: TicdcWriter | None = None
    tables: int = 1

    @property
    def files(self) -> list[Path]:
        """The data files, in the order in which they were written."""
        return sorted(path for path in self.root.rglob("CDC*") if path.suffix in (".csv", ".json"))


@dataclass(frozen=True)
class Changes:
    """Changes in commit order, by column: operations ``I``, ``U``, ``D``, and rows in canonical types."""

    operations: pa.Array
    commit_ts: pa.Array
    rows: pa.Table

    def __len__(self) -> int:
        return int(self.rows.num_rows)


def schema_of(table_id: TableId) -> TableSchema:
    """The shape of every table that is measured."""
    return TableSchema(table_id, COLUMNS, ("id",))


def orders(count: int) -> Changes:
    """``count`` changes on ``KEYS_PER_CHANGE`` times as many keys."""
    random = np.random.default_rng(7)
    keys = random.integers(0, max(1, int(count * KEYS_PER_CHANGE)), count)
    percent = random.integers(0, 100, count)
    cents = random.integers(0, 1_000_000, count)
    seconds = random.integers(0, 86_400, count)
    deleted, updated = percent < DELETED_PERCENT, percent < DELETED_PERCENT + UPDATED_PERCENT
    rows = {
        "id": pa.array(keys),
        "customer": pa.array(np.char.mod("customer-%09d", keys // 7)),
        "amount": pa.array(np.char.add(np.char.mod("%d.", cents // 100), np.char.mod("%02d", cents % 100))),
        "quantity": pa.array(random.integers(1, 100, count)),
        "ordered_at": pa.array((np.datetime64("2025-06-15T00:00:00") + seconds.astype("timedelta64[s]")).astype(str)),
        "remark": _remarks(random, count),
    }
    rows["ordered_at"] = pa.compute.replace_substring(rows["ordered_at"], "T", " ")
    return Changes(
        operations=pa.array(np.where(deleted, "D", np.where(updated, "U", "I"))),
        commit_ts=pa.array(tso_from_ms(BEGIN_MS) + np.arange(count, dtype=np.int64) // ROWS_PER_COMMIT * 262_144 + 1),
        rows=pa.table(rows),
    )


def _remarks(random: np.random.Generator, count: int) -> pa.Array:
    words = [pa.array(_WORDS[random.integers(0, len(_WORDS), count)], pa.string()) for _ in range(5)]
    return pa.compute.binary_join_element_wise(*words, " ")


def net_rows(changes: Changes) -> pa.Table:
    """What is left in a table after all changes: what a plain load has to bring."""
    keys = changes.rows.column("id").to_numpy()
    last = np.full(int(keys.max()) + 1, -1, dtype=np.int64)
    last[keys] = np.arange(len(keys))
    winners = np.sort(last[last >= 0])
    alive = changes.operations.to_numpy(zero_copy_only=False)[winners] != "D"
    return changes.rows.take(pa.array(winners[alive]))


def write_orders(root: Path, protocol: Protocol, changes: Changes, *, name: str = "") -> Workload:
    """One table's changes as data files. canal-JSON takes updates as inserts of the new row: its bulk form has no old rows."""
    writer = _writer(root, protocol)
    create_table(writer, ORDERS, tso_from_ms(BEGIN_MS - 1000))
    operations = changes.operations
    if protocol != "csv":
        operations = pa.compute.if_else(pa.compute.equal(operations, "U"), "I", operations)
    size = writer.bulk(ORDERS, changes.rows, changes.commit_ts, operations, rows_per_file=ROWS_PER_FILE)
    writer.checkpoint(changes.commit_ts[-1].as_py() + 1)
    keys = len(np.unique(changes.rows.column("id").to_numpy()))
    return Workload(name or protocol, writer.uri, root, len(changes), size, keys, net_rows(changes).num_rows, writer)


def write_many_orders(root: Path, millions: int) -> Workload:
    """So many million changes as CSV: the same million again and again, each time later and with keys of its own."""
    writer = _writer(root, "csv")
    create_table(writer, ORDERS, tso_from_ms(BEGIN_MS - 1000))
    changes = orders(1_000_000)
    keys, alive = len(np.unique(changes.rows.column("id").to_numpy())), net_rows(changes).num_rows
    size = latest = 0
    for number in range(millions):
        rows = changes.rows.set_column(0, "id", pa.compute.add(changes.rows.column("id"), number * 1_000_000))
        later = pa.compute.add(changes.commit_ts, number * 60_000 * 262_144)
        size += writer.bulk(ORDERS, rows, later, changes.operations, rows_per_file=ROWS_PER_FILE)
        latest = later[-1].as_py()
    writer.checkpoint(latest + 1)
    return Workload(f"csv {millions}M", writer.uri, root, millions * 1_000_000, size, millions * keys, millions * alive, writer)


def write_tables(root: Path, tables: int) -> Workload:
    """So many empty tables in one database; :func:`fill_tables` brings their rows."""
    writer = _writer(root, "csv")
    begin = tso_from_ms(BEGIN_MS - 1_000_000)
    for number in range(tables):
        create_table(writer, _numbered(number), begin + number + 1)
    writer.checkpoint(begin + tables + 1)
    return Workload("tables", writer.uri, root, 0, 0, writer=writer, tables=tables)


def small_rows(rows: int) -> pa.Table:
    """The rows that :func:`fill_tables` inserts into each table."""
    return orders(rows).rows.set_column(0, "id", pa.array(np.arange(rows)))


def fill_tables(workload: Workload, rows: int) -> int:
    """Writes ``rows`` inserts into each table and publishes them; returns the number of changes."""
    assert workload.writer is not None
    changes, fresh = orders(rows), small_rows(rows)
    for number in range(workload.tables):
        workload.writer.bulk(_numbered(number), fresh, changes.commit_ts, "I")
    workload.writer.checkpoint(changes.commit_ts[-1].as_py() + 1)
    return rows * workload.tables


def _numbered(number: int) -> TableId:
    return TableId(DATABASE, f"t{number:05d}")


def create_table(writer: TicdcWriter, table_id: TableId, version: int) -> None:
    """Writes the schema file of a new table."""
    statement = f"CREATE TABLE `{table_id.table}` {_DDL}"
    writer.schema_change(table_id, version, statement, schema_of(table_id), CREATE_TABLE)


class OneRowCuts:
    """A stream of transactions of one row each: every :meth:`publish` is one more cut."""

    def __init__(self, root: Path) -> None:
        self.writer = _writer(root, "csv")
        create_table(self.writer, ORDERS, tso_from_ms(BEGIN_MS - 1000))
        self._sample = orders(1).rows.to_pylist()[0]
        self._number = 0
        self.checkpoint = tso_from_ms(BEGIN_MS)
        self.writer.checkpoint(self.checkpoint)

    @property
    def uri(self) -> str:
        """The source's URI."""
        return self.writer.uri

    def stage(self) -> None:
        """Writes the next row's file, which ``metadata`` does not promise yet."""
        self._number += 1
        row = {**self._sample, "id": self._number}
        self.writer.rows(ORDERS, self.checkpoint + 262_144, [RowChange(after=row)])
        self.writer.flush()

    def publish(self) -> int:
        """Moves ``metadata`` past the staged row; returns the new watermark."""
        self.checkpoint += 2 * 262_144
        self.writer.checkpoint(self.checkpoint)
        return self.checkpoint


def _writer(root: Path, protocol: Protocol) -> TicdcWriter:
    if protocol == "csv":
        return TicdcWriter(root, "csv", include_commit_ts=True)
    return TicdcWriter(root, protocol, enable_tidb_extension=True)
