"""A MariaDB that gives trouble in the middle of the work: afterwards the target is exact, or the run said what to do.

The runs are whole pipelines without Spark (``headrace.testing.engine``). Pauses between tries are shortened, tries are not.
"""

from __future__ import annotations

import os
import random
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import pymysql
import pytest

from following import Following, run_once
from harness import assert_state
from headrace.engine import loop
from headrace.errors import EXIT_OK, SinkUnreachableError, TransientError
from headrace.model.events import SchemaChange
from headrace.model.table import Column, TableId
from headrace.model.types import ColumnType, TypeKind
from headrace.sinks.mysql import connection, variables
from headrace.sinks.mysql.connection import MySqlSession
from headrace.sinks.mysql.settings import read_settings
from headrace.sinks.mysql.unseen_values import _has_rows
from headrace.testing.faults import Crashed, Moment, Passage, Step, armed
from headrace.testing.upstream import Delete, Insert, Update
from servers import MariaDb, documented, running_mariadb, started_again
from targets import MariaDbTarget
from upstreams import (
    CUSTOMERS,
    INT,
    KEY,
    NAME,
    ORDERS,
    VISITS,
    Changefeed,
    shop,
    shop_closes,
    shop_ends,
    shop_goes_on,
    shop_reopens,
    small_shop,
    small_shop_goes_on,
)

pytestmark = [pytest.mark.server, pytest.mark.pipeline]

PATIENCE = 120.0
LOCK_WAIT, DEADLOCK = 1205, 1213


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "RETRY_DELAYS", (0.01, 0.02, 0.05, 0.1, 0.2, 0.2))
    monkeypatch.setattr(loop, "_FIRST_PAUSE", 0.02)
    monkeypatch.setattr(loop, "_LONGEST_PAUSE", 0.1)


@pytest.fixture
def changefeed(tmp_path: Path) -> Changefeed:
    return Changefeed(tmp_path / "feed")


class Watched:
    """A run that follows, within a context: it begins up to date, and at the end all is there and no table has stopped."""

    def __init__(self, changefeed: Changefeed, server: MariaDb, uri: str = "") -> None:
        self.changefeed, self.server = changefeed, server
        self._run = Following(changefeed, uri or server.uri())
        self.display = self._run.display

    def __enter__(self) -> Watched:
        self.catch_up()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                self.catch_up()
        finally:
            self._run.interrupt()
            self._run.ended()
        if kind is None:
            assert not self.display.stopped
            assert_state(MariaDbTarget(self.server), self.changefeed.state())

    def catch_up(self) -> None:
        """Waits until all that the upstream has done is applied."""
        self._run.wait_for(self.changefeed.watermark, PATIENCE)

    def until(self, condition: Callable[[], bool]) -> None:
        self._run.wait_until(condition, PATIENCE)

    def told(self, text: str) -> int:
        """How often the run has said that it waits, with this in its reason."""
        return sum(text in reason for reason in self.display.failures)


def releases() -> Iterator[Callable[[Changefeed], None]]:
    """Cuts without end: schema changes of every kind, rows with and without key; the shop is built, torn down, and built again."""
    while True:
        yield from (partial(part, with_bag=True) for part in (shop, shop_reopens, shop_goes_on))
        yield shop_ends
        yield shop_closes


class Killing(threading.Thread):
    """Ends what the server does for other connections, at seeded random moments."""

    def __init__(self, server: MariaDb, what: str, seed: int, pause: float = 0.06) -> None:
        super().__init__(daemon=True)
        self.kills = 0
        self._server, self._what, self._random = server, what, random.Random(seed)
        self._pause = pause
        self._over = threading.Event()

    def run(self) -> None:
        busy = "SELECT ID FROM information_schema.PROCESSLIST WHERE USER = %s AND ID <> CONNECTION_ID() AND COMMAND <> 'Killed'"
        with self._server.connect() as own, own.cursor() as cursor:
            while not self._over.wait(self._random.uniform(0, self._pause)):
                cursor.execute(busy, (self._server.user,))
                found = [number for (number,) in cursor.fetchall()]
                if found:
                    with suppress(pymysql.err.MySQLError):  # it ended by itself meanwhile
                        cursor.execute(f"KILL {self._what} {self._random.choice(found)}")
                        self.kills += 1

    def __enter__(self) -> Killing:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self.join(PATIENCE)


@pytest.mark.parametrize("size", ["small cuts", "large cuts"])
@pytest.mark.parametrize("what", ["CONNECTION", "QUERY"])
def test_connections_and_statements_that_are_killed(
    what: str, size: str, changefeed: Changefeed, mariadb: MariaDb, request: pytest.FixtureRequest
) -> None:
    if size == "large cuts":
        request.getfixturevalue("many_transactions")
    shop_is = releases()
    next(shop_is)(changefeed)
    with Watched(changefeed, mariadb) as watched, Killing(mariadb, what, seed=len(what + size)) as killing:
        while killing.kills < 25:
            next(shop_is)(changefeed)
            watched.catch_up()


def test_a_deletion_that_is_killed_while_it_is_planned_is_not_taken_for_done(mariadb: MariaDb) -> None:
    """MariaDB then answers that no row was there; without a second look more than 2 of 100 deletions are lost here."""
    with mariadb.connect() as own, own.cursor() as cursor:
        cursor.execute("CREATE DATABASE shop")
        cursor.execute("CREATE TABLE shop.things (number INT, name VARCHAR(9), PRIMARY KEY (number, name)) ENGINE = InnoDB")
        cursor.executemany("INSERT INTO shop.things VALUES (%s, %s)", [(number, f"x{number}") for number in range(1, 10)])
    conditions = ("number = 7 AND name = 'x7'", "(number, name) IN ((7, 'x7'), (8, 'x8'))", "number = 7 LIMIT 1")
    things = TableId("shop", "things")
    change = SchemaChange(1, things, (), "", "shop", frozenset({things}))
    settings, deleted = read_settings(mariadb.uri()), 0
    with Killing(mariadb, "QUERY", seed=1, pause=0.001) as killing:
        while killing.kills < 2000:
            with suppress(pymysql.err.MySQLError, SinkUnreachableError), MySqlSession(settings) as session:
                for condition in conditions * 5:
                    assert session.affect(f"DELETE FROM shop.things WHERE {condition}") > 0
                    session.rollback()
                    assert _has_rows(session, change, "number = 7")
                    deleted += 1
    assert deleted


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of the errors that made a run repeat something."""
    numbers: list[int] = []
    classify = connection.classify

    def noting(error: BaseException) -> connection.ErrorClass:
        numbers.append(connection.error_code(error))
        return classify(error)

    monkeypatch.setattr(connection, "classify", noting)
    return numbers


@contextmanager
def holding(server: MariaDb, *statements: str) -> Iterator[pymysql.cursors.Cursor]:
    """Another session's transaction, with the locks that these statements take."""
    with server.connect(autocommit=False) as other, other.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)
        yield cursor
        other.rollback()
        cursor.execute("UNLOCK TABLES")


ORDER_5 = "SELECT * FROM shop.orders WHERE id = 5 FOR UPDATE"


@pytest.mark.parametrize(
    "locks",
    [
        ORDER_5,
        "SELECT * FROM headrace.pipelines FOR UPDATE",
        "SELECT * FROM headrace.fences FOR UPDATE",
        "SELECT * FROM shop.orders",
        "LOCK TABLES shop.orders READ",
    ],
)
def test_locks_that_are_held_longer_than_a_wait_lasts(
    locks: str, changefeed: Changefeed, mariadb: MariaDb, seen: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(variables, "_LOCK_WAIT_SECONDS", 1)
    monkeypatch.setattr(variables, "_DDL_LOCK_WAIT_SECONDS", 1)
    monkeypatch.setattr(connection, "RETRY_DELAYS", (0.01,))
    small_shop(changefeed, with_bag=True)
    with Watched(changefeed, mariadb) as watched, holding(mariadb, locks):
        if locks == "SELECT * FROM shop.orders":  # holds up the table's definition, and no row
            changefeed.upstream.add_column(ORDERS, Column("price", INT, default="7"))
        changefeed.upstream.execute(Update(ORDERS, (5,), {"name": "five"}), Delete(VISITS, ("/", 1)))
        changefeed.upstream.checkpoint()
        watched.until(lambda: watched.told("Something else holds locks in the target") > 0)
    assert LOCK_WAIT in seen


@pytest.mark.parametrize(
    ("first", "then"),
    [
        (ORDER_5, "SELECT * FROM shop.orders WHERE id = 1 FOR UPDATE"),
        ("SELECT * FROM headrace.tables FOR UPDATE", ORDER_5),
    ],
    ids=["rows in another order", "row and ledger"],
)
def test_deadlocks(first: str, then: str, changefeed: Changefeed, mariadb: MariaDb, seen: list[int]) -> None:
    small_shop(changefeed, with_bag=True)
    with Watched(changefeed, mariadb) as watched, mariadb.connect() as beside, beside.cursor() as cursor:
        cursor.execute("CREATE DATABASE heavy")
        cursor.execute("CREATE TABLE heavy.weights (id INT PRIMARY KEY)")
        waiting = "SHOW GLOBAL STATUS LIKE 'Innodb_row_lock_current_waits'"
        for number in range(3):
            # A transaction that has changed more rows than the other one is not the one that the server gives up.
            with holding(mariadb, "INSERT INTO heavy.weights SELECT seq FROM heavy.seq_1_to_1000", first) as other:
                changed = [Update(ORDERS, (key,), {"name": f"{key} in round {number}"}) for key in range(1, 6)]
                changefeed.upstream.execute(*changed, Insert(VISITS, {"page": "/", "seconds": number}))
                changefeed.upstream.checkpoint()
                watched.until(lambda: _number(cursor, waiting) == 1)
                other.execute(then)
            watched.catch_up()
        cursor.execute("DROP DATABASE heavy")
    assert seen.count(DEADLOCK) == 3


def _number(cursor: pymysql.cursors.Cursor, query: str) -> int:
    cursor.execute(query)
    return int(cursor.fetchone()[-1])  # type: ignore[index]


@pytest.fixture
def repl(mariadb: MariaDb) -> Iterator[str]:
    """The URI of a user who may not write to a server that is read-only."""
    with mariadb.connect() as connection, connection.cursor() as cursor:
        cursor.execute("CREATE OR REPLACE USER repl@'%' IDENTIFIED BY 'r3pl'")
        for statement in documented().on_databases("repl@'%'", ["shop"]):
            cursor.execute(statement)
        yield f"mysql://repl:r3pl@{mariadb.host}:{mariadb.port}/"
        cursor.execute("DROP USER repl@'%'")


@contextmanager
def read_only(server: MariaDb) -> Iterator[None]:
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SET GLOBAL read_only = ON")
        try:
            yield
        finally:
            cursor.execute("SET GLOBAL read_only = OFF")


def connections(server: MariaDb, user: str) -> set[int]:
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SELECT ID FROM information_schema.PROCESSLIST WHERE USER = %s", (user,))
        return {number for (number,) in cursor.fetchall()}


def test_a_target_that_is_read_only_for_a_while_is_waited_for(changefeed: Changefeed, mariadb: MariaDb, repl: str) -> None:
    shop_is = releases()
    next(shop_is)(changefeed)
    with Watched(changefeed, mariadb, repl) as watched:
        before = connections(mariadb, "repl")
        for _ in range(4):
            with read_only(mariadb):
                applied, waits = watched.display.checkpoint, len(watched.display.failures)
                next(shop_is)(changefeed)
                watched.until(lambda waits=waits: len(watched.display.failures) >= waits + 2)
                assert watched.display.checkpoint == applied
            watched.catch_up()
        assert watched.told("Make the server writable (SET GLOBAL read_only = OFF), or let the sink's URI name the primary.")
        # After a failover it is the address that leads to the new primary, not a connection that lasts.
        assert before
        assert not before & connections(mariadb, "repl")


def test_once_on_a_read_only_target_ends_with_a_sentence(changefeed: Changefeed, mariadb: MariaDb, repl: str) -> None:
    small_shop(changefeed, with_bag=True)
    assert run_once(changefeed, repl) == EXIT_OK
    small_shop_goes_on(changefeed, with_bag=True)
    with read_only(mariadb), pytest.raises(TransientError, match=r"--read-only option .* Make the server writable") as raised:
        run_once(changefeed, repl)
    assert raised.value.exit_code == 4
    assert run_once(changefeed, repl) == EXIT_OK
    assert_state(MariaDbTarget(mariadb), changefeed.state())


@pytest.fixture
def small_packets(mariadb: MariaDb) -> Iterator[Callable[[], None]]:
    """The server takes packets of 64 KiB, until what this gives is called."""
    with mariadb.connect() as connection, connection.cursor() as cursor:
        usual = _number(cursor, "SELECT @@global.max_allowed_packet")

        def back() -> None:
            cursor.execute(f"SET GLOBAL max_allowed_packet = {usual}")

        cursor.execute("SET GLOBAL max_allowed_packet = 65536")
        yield back
        back()


def stories(changefeed: Changefeed) -> None:
    """Rows of which a few make a packet of 64 KiB."""
    changefeed.upstream.create_table(ORDERS, [KEY, NAME])
    changefeed.upstream.create_table(CUSTOMERS, [KEY, Column("story", ColumnType(TypeKind.LONGTEXT))])
    changefeed.upstream.execute(*(Insert(CUSTOMERS, {"id": n, "story": f"{n}" * 20_000}) for n in range(1, 9)))
    changefeed.upstream.checkpoint()


def test_load_data_brings_rows_that_are_larger_than_a_packet(
    changefeed: Changefeed, mariadb: MariaDb, small_packets: Callable[[], None]
) -> None:
    stories(changefeed)
    changefeed.upstream.execute(Insert(CUSTOMERS, {"id": 77, "story": "'long' " * 20_000}))
    changefeed.upstream.checkpoint()
    assert run_once(changefeed, mariadb.uri()) == EXIT_OK
    small_packets()  # nor would the server send the row in one
    assert_state(MariaDbTarget(mariadb), changefeed.state())


def test_a_row_that_is_larger_than_a_statement_may_be_stops_its_table_until_it_fits(
    changefeed: Changefeed, mariadb: MariaDb, small_packets: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "_RETRY_STOPPED_EVERY", 0.1)
    stories(changefeed)
    with Watched(changefeed, mariadb, mariadb.uri(local_infile="off")) as watched:
        assert_state(MariaDbTarget(mariadb), changefeed.state())
        customers = changefeed.state(CUSTOMERS).tables
        long, other = Insert(CUSTOMERS, {"id": 77, "story": "'long' " * 20_000}), Insert(ORDERS, {"id": 1, "name": "one"})
        changefeed.upstream.execute(long, other)
        changefeed.upstream.checkpoint()
        watched.catch_up()
        orders = changefeed.state(ORDERS).tables
        assert_state(MariaDbTarget(mariadb), replace(changefeed.state(), tables=(*customers, *orders)))
        (problem,) = watched.display.stopped
        assert re.fullmatch(
            r"table shop.customers, row id=77: a row of 1400\d\d bytes is too large for the target: a statement of 1800\d\d bytes, "
            r"while the server's max_allowed_packet is 65536 \(error 1153\)\. SET GLOBAL max_allowed_packet = 16777216 in "
            r"the target, and the same setting in the server's configuration, let it pass\.",
            problem.sentence(),
        )
        watched.display.stopped.clear()
        small_packets()
        watched.until(lambda: watched.display.resumed == ["shop.customers"])


@pytest.mark.parametrize(
    "ends", [Crashed(), pymysql.err.OperationalError(2013, "Lost connection")], ids=["the run", "the connection"]
)
def test_a_drop_database_that_a_dying_server_left_half_done_is_run_to_its_end(
    ends: BaseException, changefeed: Changefeed, mariadb: MariaDb
) -> None:
    """The tables are dropped one after another, and here it ends between two of them."""
    shop(changefeed, with_bag=True)
    assert run_once(changefeed, mariadb.uri()) == EXIT_OK
    shop_closes(changefeed)
    shop(changefeed, with_bag=True)
    dropped: list[Passage] = []

    def die(passage: Passage) -> None:
        if passage.step is Step.MYSQL_STATEMENT and passage.detail.startswith("DROP TABLE `shop`"):
            dropped.append(passage)
            if [found.moment for found in dropped] == [Moment.BEFORE, Moment.AFTER, Moment.BEFORE]:
                raise ends

    with armed(die), suppress(Crashed):
        run_once(changefeed, mariadb.uri())
    assert len(dropped) >= 3
    assert run_once(changefeed, mariadb.uri()) == EXIT_OK
    assert_state(MariaDbTarget(mariadb), changefeed.state())


def test_a_server_that_is_killed_and_started_again_is_waited_for(changefeed: Changefeed, monkeypatch: pytest.MonkeyPatch) -> None:
    """Twice for a moment, then for a night: no number of tries uses anything up."""
    generator = random.Random(4)
    shop_is = releases()
    next(shop_is)(changefeed)
    night = 1.5 * max(sys.getrecursionlimit(), sys.float_info.max_exp)
    with ExitStack() as stack:
        server = stack.enter_context(running_mariadb(innodb_flush_log_at_trx_commit=1))
        with Watched(changefeed, server) as watched:
            for tries in (1, 1, night):
                for _ in range(2):
                    next(shop_is)(changefeed)
                time.sleep(generator.uniform(0, 0.3))  # the moment of the kill is to be any, and there is nothing to wait for
                os.kill(server.pid, signal.SIGKILL)
                next(shop_is)(changefeed)
                if tries == night:
                    monkeypatch.setattr(loop, "_LONGEST_PAUSE", 0.0)
                watched.until(lambda tries=tries: watched.told("cannot be reached") >= tries)
                server = stack.enter_context(started_again(server))
                watched.display.failures.clear()
                watched.catch_up()
            watched.server = server
