"""Networks that swallow packets, and statements that take long: only the former count as lost."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pymysql
import pytest

from ddl_history import History
from following import run_once
from harness import assert_state
from headrace.errors import EXIT_OK, EXIT_UNREACHABLE, DefinitionError, SinkUnreachableError
from headrace.sinks.mysql import connection
from headrace.sinks.mysql.connection import MySqlSession
from headrace.sinks.mysql.server_errors import ErrorClass, classify
from headrace.sinks.mysql.settings import read_settings
from headrace.testing.faults import Moment, Passage, Step, armed
from servers import MariaDb
from severing import Proxy, severable
from targets import MariaDbTarget
from unrepeatable import BASE, ROWS

pytestmark = [pytest.mark.server, pytest.mark.pipeline]

SILENCE = 2.0


@pytest.fixture
def proxy(mariadb: MariaDb) -> Iterator[Proxy]:
    with severable(mariadb) as proxy:
        yield proxy


def session_on(server: MariaDb, *, ddl: bool = True, silence: float = SILENCE) -> MySqlSession:
    return MySqlSession(read_settings(server.uri(silence_timeout=f"{silence:g}s")), ddl=ddl)


def lost_after(action: Callable[[], object]) -> float:
    """The seconds after which the connection counted as lost."""
    begun = time.monotonic()
    with pytest.raises(pymysql.err.MySQLError) as caught:
        action()
    assert classify(caught.value) is ErrorClass.LOST
    return time.monotonic() - begun


@pytest.mark.parametrize("ddl", [False, True], ids=["rows", "schema changes"])
def test_a_statement_that_takes_long_is_left_alone(proxy: Proxy, ddl: bool) -> None:
    with session_on(proxy.server, ddl=ddl) as session:
        assert session.execute(f"SELECT SLEEP({2 * SILENCE})") == [(0,)]
        assert session.scalar("SELECT CONNECTION_ID()") == session.connection_id


def test_a_schema_change_that_waits_for_a_reader_is_left_alone(proxy: Proxy, mariadb: MariaDb) -> None:
    with session_on(proxy.server) as session, mariadb.connect(autocommit=False) as reader:
        session.execute("CREATE DATABASE shop")
        session.execute("CREATE TABLE shop.t (id INT PRIMARY KEY)")
        reader.query("SELECT * FROM shop.t")
        timer = threading.Timer(2 * SILENCE, reader.rollback)
        timer.start()
        session.execute("ALTER TABLE shop.t ADD COLUMN a INT")
        timer.join()
        assert session.scalar("SELECT CONNECTION_ID()") == session.connection_id


def test_a_load_that_waits_for_a_row_is_left_alone(proxy: Proxy, mariadb: MariaDb) -> None:
    with session_on(proxy.server, ddl=False) as session, mariadb.connect(autocommit=False) as other:
        session.execute("CREATE DATABASE shop")
        session.execute("CREATE TABLE shop.t (id INT PRIMARY KEY, v LONGTEXT)")
        other.query("INSERT INTO shop.t VALUES (0, '')")
        timer = threading.Timer(2 * SILENCE, other.rollback)
        timer.start()
        rows = [f"{number}\t{'x' * 1_000_000}\n".encode() for number in range(40)]
        session.load("LOAD DATA LOCAL INFILE '{file}' INTO TABLE shop.t", [pa.py_buffer(row) for row in rows])
        session.commit()
        timer.join()
        assert session.scalar("SELECT COUNT(*) FROM shop.t") == len(rows)


def test_an_answer_that_does_not_come_is_noticed(proxy: Proxy) -> None:
    with session_on(proxy.server) as session:
        threading.Timer(0.1, proxy.swallow).start()
        assert lost_after(lambda: session.execute("SELECT SLEEP(0.3)")) < SILENCE


def test_a_statement_that_does_not_arrive_is_noticed(proxy: Proxy) -> None:
    with session_on(proxy.server) as session:
        proxy.swallow()
        assert lost_after(lambda: session.execute("SELECT 1")) < SILENCE


def test_a_network_that_swallows_all_is_noticed(proxy: Proxy) -> None:
    """Nobody can be asked either, though the address takes connections."""
    with session_on(proxy.server) as session:
        proxy.swallow(later_ones=True)
        assert lost_after(lambda: session.execute("SELECT SLEEP(0.3)")) < 2 * SILENCE


def test_a_server_that_does_not_greet_cannot_be_reached() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        begun = time.monotonic()
        with pytest.raises(SinkUnreachableError):
            MySqlSession(read_settings(f"mysql://root@127.0.0.1:{silent.getsockname()[1]}/?timeout=1s"))
        assert time.monotonic() - begun < 5


def test_a_server_that_greets_letter_by_letter_cannot_be_reached() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def trickle() -> None:
            connection, _ = listener.accept()
            with connection, suppress(OSError):
                connection.sendall(b"\xff\xff\x00\x00")
                while True:
                    connection.sendall(b"x")
                    time.sleep(0.2)

        threading.Thread(target=trickle, daemon=True).start()
        begun = time.monotonic()
        with pytest.raises(SinkUnreachableError):
            MySqlSession(read_settings(f"mysql://root@127.0.0.1:{listener.getsockname()[1]}/?timeout=1s"))
        assert time.monotonic() - begun < 10


GREETINGS = (
    b"",
    b"\x0a",
    b"\x0axx\x00",
    b"\xff\x01",
    b"\x0a10.11.6\x00\x01\x00",
    b"\x0axx\x00" + bytes(40),
    bytes(80),
    b"\xff" * 60,
)


@pytest.mark.parametrize("greeting", GREETINGS)
def test_a_server_that_greets_in_another_protocol_cannot_be_reached(greeting: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def greet() -> None:
            with suppress(OSError):
                while True:
                    connection, _ = listener.accept()
                    with connection:
                        connection.sendall(len(greeting).to_bytes(3, "little") + b"\x00" + greeting)

        threading.Thread(target=greet, daemon=True).start()
        with pytest.raises(SinkUnreachableError):
            MySqlSession(read_settings(f"mysql://root@127.0.0.1:{listener.getsockname()[1]}/?timeout=1s"))


def test_the_kernel_watches_too(mariadb: MariaDb) -> None:
    with session_on(mariadb, silence=60) as session:
        sock = session._connection._sock
        assert sock is not None
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        idle, interval, probes = (
            sock.getsockopt(socket.IPPROTO_TCP, option)
            for option in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
        )
        assert idle + interval * probes <= 60


@pytest.mark.parametrize("text", ["0s", "soon", "-1s"])
def test_a_setting_that_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(DefinitionError, match=f"silence-timeout={text} is not a duration"):
        read_settings(f"mysql://127.0.0.1/?silence-timeout={text}")


@pytest.mark.parametrize(
    "at",
    [
        (Moment.BEFORE, Step.JOURNAL_PENDING),
        (Moment.BEFORE, Step.MYSQL_STATEMENT),
        (Moment.AFTER, Step.MYSQL_STATEMENT),
        (Moment.BEFORE, Step.JOURNAL_SETTLED),
        (Moment.BEFORE, Step.ROUND),
        (Moment.BEFORE, Step.MYSQL_COMMIT),
        (Moment.AFTER, Step.MYSQL_COMMIT),
    ],
    ids=str,
)
def test_a_run_goes_on_when_its_connections_went_silent(
    at: tuple[Moment, Step], proxy: Proxy, mariadb: MariaDb, tmp_path: Path
) -> None:
    history = History(tmp_path)
    history.create("t", *BASE, rows=ROWS)
    history.ddl(
        "t", "ALTER TABLE `t` ADD COLUMN `b` INT", 5, columns=(*BASE, "b INT"), effect=lambda rows: [(*r, None) for r in rows]
    )
    history.insert("t", (4, "four", 4))
    history.finish()
    swallowed: list[Passage] = []

    def swallow(passage: Passage) -> None:
        if (passage.moment, passage.step) == at and not swallowed:
            swallowed.append(passage)
            proxy.swallow()

    begun = time.monotonic()
    with armed(swallow):
        assert run_once(history, proxy.server.uri(silence_timeout=f"{SILENCE:g}s")) == EXIT_OK
    assert swallowed
    assert time.monotonic() - begun < 6 * SILENCE
    assert_state(MariaDbTarget(mariadb), history.state())


def test_a_run_to_the_watermark_ends_where_all_is_swallowed(proxy: Proxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "RETRY_DELAYS", (0.1,))
    history = History(tmp_path)
    history.create("t", *BASE, rows=ROWS)
    history.finish()

    def swallow(passage: Passage) -> None:
        if (passage.moment, passage.step) == (Moment.BEFORE, Step.MYSQL_STATEMENT):
            proxy.swallow(later_ones=True)

    with armed(swallow), pytest.raises(SinkUnreachableError) as caught:
        run_once(history, proxy.server.uri(silence_timeout="1s", timeout="1s"))
    assert caught.value.exit_code == EXIT_UNREACHABLE
