"""Readers see a cut whole or not at all, across tables, as long as it fits one transaction of the target (DuckDB: always).

Money moves between the accounts of two tables while a run follows; whoever reads sees exactly what the upstream held at the
checkpoint that the ledger tells in the same snapshot, and so never a coin more or less.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import pytest

from following import Following
from headrace.model.table import Column, TableId
from headrace.testing.upstream import Delete, Insert, Statement, Update
from servers import MariaDb
from upstreams import INT, KEY, Changefeed

pytestmark = pytest.mark.long

SAVINGS, CURRENT = TableId("bank", "savings"), TableId("bank", "current")
ACCOUNTS, COINS = 12, 100
Balances = tuple[tuple[tuple[int, int], ...], tuple[tuple[int, int], ...]]
_QUERIES = tuple(f"SELECT id, coins FROM {table} ORDER BY id" for table in (SAVINGS, CURRENT))
_CHECKPOINT = "SELECT checkpoint_ts FROM headrace.pipelines"


class Bank:
    """The upstream; ``states`` are the balances at each checkpoint that was published."""

    def __init__(self, folder: Path) -> None:
        self.changefeed = Changefeed(folder)
        self.states: dict[int, Balances] = {}
        self._chance = Random(5)
        upstream = self.changefeed.upstream
        upstream.create_database("bank")
        for table in (SAVINGS, CURRENT):
            upstream.create_table(table, [KEY, Column("coins", INT)])
        upstream.execute(*(Insert(table, {"id": n, "coins": COINS}) for table in (SAVINGS, CURRENT) for n in range(ACCOUNTS)))
        self._checkpoint()

    def go_on(self) -> None:
        """A few transfers, and an account that moves to the other table with all it holds; then a checkpoint."""
        for _ in range(3):
            self._transfer()
        self.changefeed.upstream.execute(*self._move())
        self._checkpoint()

    def _transfer(self) -> None:
        giving, taking = self._chance.sample((SAVINGS, CURRENT), 2)
        coins = self._chance.randint(1, 30)
        self.changefeed.upstream.execute(self._booked(giving, -coins), self._booked(taking, coins))

    def _booked(self, table: TableId, coins: int) -> Statement:
        key = self._chance.choice(sorted(self.changefeed.upstream.keys(table)))
        return Update(table, key, {"coins": int(str(self.changefeed.upstream.row(table, key)["coins"])) + coins})

    def _move(self) -> tuple[Statement, ...]:
        source, other = (SAVINGS, CURRENT) if self._chance.random() < 0.5 else (CURRENT, SAVINGS)
        upstream = self.changefeed.upstream
        if len(upstream.keys(source)) < 3:
            source, other = other, source
        key = self._chance.choice(sorted(upstream.keys(source)))
        number = next(n for n in range(10 * ACCOUNTS) if (n,) not in upstream.keys(other))
        return Delete(source, key), Insert(other, {"id": number, "coins": upstream.row(source, key)["coins"]})

    def _checkpoint(self) -> None:
        upstream = self.changefeed.upstream
        upstream.checkpoint()
        savings, current = (self._balances(table) for table in (SAVINGS, CURRENT))
        self.states[self.changefeed.watermark] = (savings, current)

    def _balances(self, table: TableId) -> tuple[tuple[int, int], ...]:
        rows = self.changefeed.upstream.expected_rows(table)
        return tuple((int(str(row["id"])), int(str(row["coins"]))) for row in rows)


@dataclass
class Seen:
    """What a reader has found: the balances at each checkpoint, and how often it looked."""

    looks: int = 0
    at: dict[int, set[Balances]] = field(default_factory=dict)

    def add(self, checkpoint: int, tables: Iterable[Iterable[Iterable[int]]]) -> None:
        savings, current = (tuple((number, coins) for number, coins in table) for table in tables)
        self.looks += 1
        self.at.setdefault(checkpoint, set()).add((savings, current))

    def check(self, bank: Bank) -> None:
        assert len(self.at) > 3, "the reader saw too little of what went on"
        for checkpoint, found in self.at.items():
            for tables in found:
                assert sum(coins for table in tables for _, coins in table) == 2 * ACCOUNTS * COINS, "half a cut was seen"
            assert found == {bank.states[checkpoint]}


def run_and_read(bank: Bank, uri: str, reader: MariaDbReader | DuckDbReader, steps: int) -> None:
    """Follows the bank while the reader looks; at the end everything has arrived."""
    following = Following(bank.changefeed, uri)
    following.wait_for(bank.changefeed.watermark)  # the cut that creates the tables is not the question here
    reader.start()
    for step in range(steps):
        reader.wait_for_another_look()
        bank.go_on()
        if step % 3 == 0:  # else the next cut takes more than one checkpoint
            following.wait_for(bank.changefeed.watermark)
    following.wait_for(bank.changefeed.watermark)
    seen = reader.stop()
    following.interrupt()
    following.ended()
    seen.check(bank)


def _wait_for_growth(size: Callable[[], int]) -> None:
    before, deadline = size(), time.monotonic() + 60
    while size() == before:
        assert time.monotonic() < deadline, "the reader does not get in"
        time.sleep(0.002)


class MariaDbReader:
    """Looks again and again, each time in one consistent snapshot."""

    def __init__(self, server: MariaDb) -> None:
        self._server, self._seen, self._enough = server, Seen(), threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> Seen:
        self._enough.set()
        self._thread.join(60)
        return self._seen

    def wait_for_another_look(self) -> None:
        _wait_for_growth(lambda: self._seen.looks)

    def _work(self) -> None:
        with self._server.connect() as connection, connection.cursor() as cursor:
            cursor.execute("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            while not self._enough.is_set():
                cursor.execute("START TRANSACTION WITH CONSISTENT SNAPSHOT")
                found = []
                for query in (*_QUERIES, _CHECKPOINT):
                    cursor.execute(query)
                    found.append(cursor.fetchall())
                cursor.execute("COMMIT")
                self._seen.add(found[2][0][0], found[:2])


_READ = f"""
import json, sys, time, duckdb
while True:
    time.sleep(0.01)
    try:
        with duckdb.connect(sys.argv[1], read_only=True) as connection:
            connection.execute("BEGIN")
            tables = [connection.execute(query).fetchall() for query in {_QUERIES!r}]
            print(json.dumps([connection.execute({_CHECKPOINT!r}).fetchone()[0], tables]), flush=True)
    except duckdb.IOException:
        pass
"""


class DuckDbReader:
    """Another process that opens the file whenever no cut is on: while one is, DuckDB lets nobody in."""

    def __init__(self, path: Path) -> None:
        self._path, self._lines = path, path.with_name("seen.jsonl")

    def start(self) -> None:
        with self._lines.open("w") as lines:
            self._process = subprocess.Popen([sys.executable, "-c", _READ, str(self._path)], stdout=lines)

    def wait_for_another_look(self) -> None:
        _wait_for_growth(lambda: self._lines.stat().st_size)

    def stop(self) -> Seen:
        self._process.kill()
        self._process.wait()
        seen = Seen()
        for line in self._lines.read_text().splitlines(keepends=True):
            if line.endswith("\n"):
                checkpoint, tables = json.loads(line)
                seen.add(checkpoint, tables)
        return seen


@pytest.mark.server
def test_readers_of_mariadb_see_a_cut_whole_or_not_at_all(mariadb: MariaDb, tmp_path: Path) -> None:
    run_and_read(Bank(tmp_path), mariadb.uri(), MariaDbReader(mariadb), 60)


def test_readers_of_duckdb_see_a_cut_whole_or_not_at_all(tmp_path: Path) -> None:
    run_and_read(Bank(tmp_path), f"duckdb://{tmp_path}/target.duckdb", DuckDbReader(tmp_path / "target.duckdb"), 15)
