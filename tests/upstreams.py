"""Changefeeds for tests: a modelled upstream, what it writes, and the state that a target must reach."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa

from harness import ExpectedTable, State
from headrace.model.table import Column, TableId
from headrace.model.tso import tso_from_datetime
from headrace.model.types import ColumnType, TypeKind
from headrace.testing.ticdc_options import Protocol
from headrace.testing.ticdc_writer import TicdcWriter
from headrace.testing.upstream import Delete, Insert, Update, Upstream

INT = ColumnType(TypeKind.INT)
TEXT = ColumnType(TypeKind.VARCHAR, length=40)
KEY = Column("id", INT, nullable=False, primary_key=True)
NAME = Column("name", TEXT)

ORDERS = TableId("shop", "orders")
CUSTOMERS = TableId("shop", "customers")
VISITS = TableId("shop", "visits")
DRAFTS = TableId("shop", "drafts")


class Changefeed:
    """An upstream with its storage output under ``folder``, and the files that a consumer is given."""

    def __init__(self, folder: Path, protocol: Protocol = "csv", **options: Any) -> None:
        """``options`` are the writer's, for a changefeed other than one with commit ts and, in CSV, old values."""
        folder.mkdir(parents=True, exist_ok=True)
        exact = {"csv": {"include_commit_ts": True, "output_old_value": True}, "canal-json": {"enable_tidb_extension": True}}
        self.writer = TicdcWriter(folder / "data", protocol, **exact[protocol] | options)
        self.upstream = Upstream(self.writer)
        self.toml = folder / "changefeed.toml"
        self.toml.write_text(self.writer.options.changefeed_toml(), encoding="utf-8")

    @property
    def watermark(self) -> int:
        """The checkpoint that the changefeed has published last."""
        published: int = json.loads((self.writer.root / "metadata").read_bytes())["checkpoint-ts"]
        return published

    @property
    def uri(self) -> str:
        return self.writer.uri

    def arguments(self, sink_uri: str, *more: str) -> list[str]:
        """The command line of a run."""
        return ["run", "--source", self.uri, "--sink", sink_uri, "--changefeed", str(self.toml), *more]

    def state(self, *tables: TableId) -> State:
        """What a target must hold now: all tables, or the ones that are named."""
        upstream = self.upstream
        names = tables or upstream.tables
        expected = []
        for table_id in names:
            types = {column.name: column.type.kind.lower() for column in upstream.schema(table_id).columns}
            rows = tuple(tuple(_text(value) for value in row.values()) for row in upstream.expected_rows(table_id))
            key = upstream.schema(table_id).handle_key
            expected.append(ExpectedTable(table_id.database, table_id.table, "BASE TABLE", types, key, rows))
        return State(0, frozenset(name.database for name in names), tuple(expected))


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def shop(changefeed: Changefeed, *, with_bag: bool) -> None:
    """A shop's first hour, up to one checkpoint: all that a first release follows, and so several rounds of one cut."""
    upstream = changefeed.upstream
    upstream.create_database("shop")
    upstream.create_table(ORDERS, [KEY, NAME])
    upstream.create_table(CUSTOMERS, [KEY, NAME])
    upstream.create_table(DRAFTS, [KEY, NAME])
    if with_bag:
        upstream.create_table(VISITS, [Column("page", TEXT), Column("seconds", INT)])
        visit(upstream, "/", 1, 3)
        visit(upstream, "/cart", 2, 2)
    upstream.execute(*(Insert(ORDERS, {"id": n, "name": f"order {n}"}) for n in range(1, 9)))
    upstream.execute(*(Insert(CUSTOMERS, {"id": n, "name": f"customer {n}"}) for n in range(1, 6)))
    upstream.execute(Insert(DRAFTS, {"id": 1, "name": "draft"}))
    upstream.add_column(ORDERS, Column("price", INT, default="7"))
    upstream.execute(Insert(ORDERS, {"id": 9, "name": "priced", "price": 99}), Delete(ORDERS, (1,)))
    upstream.execute(Update(ORDERS, (2,), {"id": 22, "name": "moved"}), Update(ORDERS, (3,), {"price": 5}))
    upstream.truncate_table(CUSTOMERS)
    upstream.execute(Insert(CUSTOMERS, {"id": 2, "name": "customer 2 again"}))
    upstream.drop_column(ORDERS, "name")
    upstream.execute(Insert(ORDERS, {"id": 10, "price": 10}), Delete(ORDERS, (4,)))
    upstream.drop_table(DRAFTS)
    if with_bag:
        upstream.execute(Delete(VISITS, ("/", 1)), Update(VISITS, ("/cart", 2), {"seconds": 3}))
    upstream.checkpoint()


def shop_reopens(changefeed: Changefeed, *, with_bag: bool) -> None:
    """What comes after :func:`shop`: a dropped name that returns, one more column, and rows in every table."""
    upstream = changefeed.upstream
    upstream.create_table(DRAFTS, [KEY, Column("body", TEXT)])
    upstream.execute(Insert(DRAFTS, {"id": 1, "body": "another life"}))
    upstream.add_column(CUSTOMERS, Column("city", TEXT, default="Bern"))
    upstream.execute(Insert(CUSTOMERS, {"id": 3, "name": "new", "city": "Basel"}), Update(ORDERS, (22,), {"price": 1}))
    if with_bag:
        visit(upstream, "/", 1, 2)
        upstream.execute(Delete(VISITS, ("/cart", 2)))
    upstream.checkpoint()


def shop_goes_on(changefeed: Changefeed, *, with_bag: bool) -> None:
    """A cut without schema change, which a target may apply in one transaction with its ledger."""
    upstream = changefeed.upstream
    upstream.execute(Insert(ORDERS, {"id": 11, "price": 11}), Delete(ORDERS, (9,)), Update(CUSTOMERS, (2,), {"name": "two"}))
    upstream.execute(Update(ORDERS, (5,), {"id": 55}), Update(ORDERS, (11,), {"price": 12}))
    if with_bag:
        visit(upstream, "/help", 4, 2)
        upstream.execute(Delete(VISITS, ("/", 1)))
    upstream.checkpoint()


def shop_ends(changefeed: Changefeed) -> None:
    """A last cut after :func:`shop_goes_on`: one row and one table less."""
    changefeed.upstream.execute(Delete(ORDERS, (55,)))
    changefeed.upstream.drop_table(DRAFTS)
    changefeed.upstream.checkpoint()


def shop_closes(changefeed: Changefeed) -> None:
    """A cut in which the database goes, with all that is left in it."""
    changefeed.upstream.drop_database("shop")
    changefeed.upstream.checkpoint()


def small_shop(changefeed: Changefeed, *, with_bag: bool) -> None:
    """One table, or two with a bag, up to one checkpoint."""
    upstream = changefeed.upstream
    upstream.create_table(ORDERS, [KEY, NAME])
    upstream.execute(*(Insert(ORDERS, {"id": n, "name": f"order {n}"}) for n in range(1, 6)))
    if with_bag:
        upstream.create_table(VISITS, [Column("page", TEXT), Column("seconds", INT)])
        visit(upstream, "/", 1, 3)
    upstream.checkpoint()


def small_shop_goes_on(changefeed: Changefeed, *, with_bag: bool) -> None:
    """A cut after :func:`small_shop` without schema change: an insert, a delete, an update and a moved key."""
    upstream = changefeed.upstream
    upstream.execute(Insert(ORDERS, {"id": 6, "name": "six"}), Delete(ORDERS, (1,)), Update(ORDERS, (2,), {"name": "two"}))
    upstream.execute(Update(ORDERS, (3,), {"id": 33}), Update(ORDERS, (6,), {"name": "6"}))
    if with_bag:
        visit(upstream, "/help", 4, 2)
        upstream.execute(Delete(VISITS, ("/", 1)))
    upstream.checkpoint()


def visit(upstream: Upstream, page: str, seconds: int, times: int) -> None:
    """Adds equal rows to the table without a key."""
    for _ in range(times):
        upstream.execute(Insert(VISITS, {"page": page, "seconds": seconds}))


def many_rows(changefeed: Changefeed, table_id: TableId, first: int, count: int, name: str, *, operation: str = "I") -> int:
    """Writes rows of a table ``(id, name)`` behind the model's back, by column; returns their commit ts."""
    upstream = changefeed.upstream
    upstream.advance(1)
    commit_ts = tso_from_datetime(upstream.now)
    rows = pa.table(
        {
            "id": pa.array(range(first, first + count), pa.int64()),
            "name": pa.array([f"{name} {n:030d}" for n in range(first, first + count)], pa.string()),
        }
    )
    changefeed.writer.bulk(table_id, rows, commit_ts, operation, rows_per_file=max(1, count // 8))
    return commit_ts
