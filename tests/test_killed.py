"""``headrace run --once`` killed in the middle of a cut, and started again."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import harness
from headrace.model.table import Column, TableId
from headrace.testing.upstream import Insert
from processes import Running, running
from servers import MariaDb
from targets import DuckDbTarget, MariaDbTarget, Target, sort_rows
from upstreams import INT, KEY, NAME, ORDERS, Changefeed, many_rows

pytestmark = [pytest.mark.spark, pytest.mark.server]

GOODS = TableId("shop", "goods")
ROWS = 200_000
OLD_ROWS = 1_000
NAMES = {number: f"{number:030d}" for number in range(1, ROWS + 1)}


class Shop:
    """Many goods, some of which are in the target already, and few orders."""

    def __init__(self, folder: Path) -> None:
        self.changefeed = Changefeed(folder)
        upstream = self.changefeed.upstream
        upstream.create_table(GOODS, [KEY, NAME])
        upstream.create_table(ORDERS, [KEY, NAME])
        many_rows(self.changefeed, GOODS, 1, OLD_ROWS, "old")
        upstream.execute(*(Insert(ORDERS, {"id": n, "name": "old"}) for n in range(1, 4)))
        upstream.checkpoint()
        self.types = {"id": "int", "name": "varchar"}
        self.goods = [(str(n), f"old {NAMES[n]}") for n in range(1, OLD_ROWS + 1)]

    def small_cut(self) -> int:
        """Goods get new names: one transaction holds it."""
        many_rows(self.changefeed, GOODS, 1, OLD_ROWS, "new")
        self.goods = [(str(n), f"new {NAMES[n]}") for n in range(1, OLD_ROWS + 1)]
        self.changefeed.upstream.execute(Insert(ORDERS, {"id": 9, "name": "new"}))
        return self.changefeed.upstream.checkpoint()

    def large_cut(self) -> int:
        """Rows, schema changes of both tables, and more rows: three rounds, of which the first and last are large."""
        upstream = self.changefeed.upstream
        many_rows(self.changefeed, GOODS, 1, ROWS, "new")
        upstream.add_column(GOODS, Column("price", INT, default="7"))
        upstream.truncate_table(ORDERS)
        upstream.execute(Insert(ORDERS, {"id": 3, "name": "after"}))
        upstream.drop_column(GOODS, "price")
        many_rows(self.changefeed, GOODS, 1, ROWS // 2, "last")
        self.goods = [(str(n), f"{'last' if n <= ROWS // 2 else 'new'} {NAMES[n]}") for n in range(1, ROWS + 1)]
        return upstream.checkpoint()

    def check(self, target: Target) -> None:
        assert target.tables() == {("shop", "goods"), ("shop", "orders")}
        assert target.columns("shop", "goods") == set(self.types)
        (orders,) = self.changefeed.state(ORDERS).tables
        assert sort_rows(target.rows("shop", "orders", self.types)) == sort_rows(orders.rows)
        goods = target.rows("shop", "goods", self.types)
        assert len(goods) == len(self.goods)
        assert set(goods) == set(self.goods)

    def run_again(self, sink_uri: str) -> None:
        assert harness.run_once(self.changefeed.uri, sink_uri, self.changefeed.toml) == 0


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path / "changefeed")


def kill(run: Running) -> None:
    """The plug is pulled: of the driver only, so that its tasks go on until they notice."""
    run.signal(signal.SIGKILL)
    run.exit_code(5)


class TestMariaDb:
    """What lies in the target is polled; a lock from outside holds the run at the point where it is to be killed."""

    @pytest.fixture(autouse=True)
    def _first_cut(self, shop: Shop, mariadb: MariaDb) -> None:
        self.server, self.target, self.uri = mariadb, MariaDbTarget(mariadb), mariadb.uri()
        shop.run_again(self.uri)
        shop.check(self.target)

    @contextmanager
    def watching(self) -> Iterator[Callable[[str], Any]]:
        with self.server.connect() as connection, connection.cursor() as cursor:

            def first(query: str) -> Any:
                cursor.execute(query)
                return cursor.fetchone()[0]

            yield first

    @contextmanager
    def holding(self, query: str) -> Iterator[None]:
        """The locks that a transaction with this query takes."""
        with self.server.connect(autocommit=False) as connection, connection.cursor() as cursor:
            cursor.execute(query)
            yield
            connection.rollback()

    def test_killed_before_the_first_row(self, shop: Shop, tmp_path: Path) -> None:
        shop.large_cut()
        with running(shop.changefeed.arguments(self.uri, "--once"), tmp_path) as run, self.watching() as first:
            run.wait_until(lambda: first("SELECT attempted_ts > checkpoint_ts FROM headrace.pipelines"), "the intent")
            kill(run)
            shop.run_again(self.uri)
            shop.check(self.target)
            assert not run.survivors()

    def test_killed_while_rows_are_written(self, shop: Shop, tmp_path: Path) -> None:
        shop.large_cut()
        new = "SELECT COUNT(*) FROM shop.goods WHERE name LIKE 'new%'"
        with running(shop.changefeed.arguments(self.uri, "--once"), tmp_path) as run, self.watching() as first:
            with self.holding("SELECT * FROM shop.goods WHERE id = 500 FOR UPDATE"):
                run.wait_until(lambda: first(new), "the first rows")
                assert first("SELECT attempted_ts > checkpoint_ts FROM headrace.pipelines")
                kill(run)
            shop.run_again(self.uri)
            shop.check(self.target)
            assert not run.survivors()

    def test_killed_while_a_schema_change_waits_in_the_server(self, shop: Shop, tmp_path: Path) -> None:
        """The server does not notice: the statement of the dead run may still be carried out, unless its successor ends it."""
        shop.large_cut()
        waiting = "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE STATE LIKE 'Waiting for table metadata lock%'"
        with running(shop.changefeed.arguments(self.uri, "--once"), tmp_path) as run, self.watching() as first:
            with self.holding("SELECT COUNT(*) FROM shop.orders"):
                run.wait_until(lambda: first(waiting), "a schema change that waits")
                assert first("SELECT COUNT(*) FROM headrace.ddl_journal WHERE state = 'pending'") == 1
                kill(run)
            shop.run_again(self.uri)
            shop.check(self.target)
            assert not run.survivors()

    def test_killed_between_the_data_with_its_checkpoint_and_the_position(self, shop: Shop, tmp_path: Path) -> None:
        hi = shop.small_cut()
        with running(shop.changefeed.arguments(self.uri, "--once"), tmp_path) as run, self.watching() as first:
            # A range without rows to lock: nothing can be inserted into it.
            with self.holding("SELECT * FROM headrace.cuts WHERE ordinal > 1 FOR UPDATE"):
                run.wait_until(lambda: first("SELECT checkpoint_ts FROM headrace.pipelines") == hi, "the data's commit")
                shop.check(self.target)
                kill(run)
            assert first("SELECT COUNT(*) FROM headrace.cuts") == 1
            shop.run_again(self.uri)
            shop.check(self.target)
            assert not run.survivors()


class TestDuckDb:
    """While a cut lasts nobody else can open the file; its size and the tasks' files tell how far the run is."""

    @pytest.fixture(autouse=True)
    def _first_cut(self, shop: Shop, tmp_path: Path) -> None:
        self.path, self.spool = tmp_path / "target.duckdb", tmp_path / "spool"
        self.target, self.uri = DuckDbTarget(self.path), f"duckdb://{self.path}?spool={self.spool}"
        shop.run_again(self.uri)
        shop.check(self.target)

    def spooled(self, number: int) -> bool:
        return any(self.spool.glob(f"headrace-work-*/spool-{number}/*.arrow"))

    @pytest.mark.parametrize("number", [1, 2], ids=["first round", "round after schema changes"])
    def test_killed_while_tasks_hand_rows_over(self, number: int, shop: Shop, tmp_path: Path) -> None:
        shop.large_cut()
        self.kill_and_run_again(shop, tmp_path, lambda: self.spooled(number))

    def test_killed_while_rows_are_loaded(self, shop: Shop, tmp_path: Path) -> None:
        shop.large_cut()
        size = self.path.stat().st_size
        self.kill_and_run_again(shop, tmp_path, lambda: self.path.stat().st_size > size)

    def kill_and_run_again(self, shop: Shop, folder: Path, condition: Callable[[], bool]) -> None:
        with running(shop.changefeed.arguments(self.uri, "--once"), folder) as run:
            run.wait_until(condition, "the point to kill at")
            kill(run)
            shop.run_again(self.uri)
            shop.check(self.target)
            assert not run.survivors()
            assert not list(self.spool.iterdir())
