"""A server that asks for files gets none, whatever it answers with such a request."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pymysql
import pytest

from headrace.errors import HeadraceError, SinkUnreachableError
from headrace.sinks.mysql import open_sink
from headrace.sinks.mysql.connection import MySqlSession
from headrace.sinks.mysql.local_infile import LocalFileRefused
from headrace.sinks.mysql.settings import read_settings
from hostile_server import MORE_THEN, hostile_server, local_request

_TOKEN = re.compile(rb"INFILE '([^']+)'")
LOAD = "LOAD DATA LOCAL INFILE '{file}' REPLACE INTO TABLE t (a)"
ROWS = b"the rows of this load\n"


def asking(name: bytes, *, when: bytes) -> Callable[[bytes], bytes | None]:
    """Answers statements that contain ``when`` with a request for the file ``name``."""
    return lambda statement: local_request(name) if when in statement else None


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "secret"
    path.write_text("the content of a file that nobody may have\n")
    return path


@pytest.mark.parametrize("when", [b"SET NAMES", b"AUTOCOMMIT", b"SELECT CONNECTION_ID", b"SET SESSION sql_mode", b"time_zone"])
def test_a_request_in_answer_to_any_statement_of_the_login_gets_nothing(when: bytes, secret: Path) -> None:
    with hostile_server(asking(str(secret).encode(), when=when)) as server:
        with pytest.raises(LocalFileRefused, match=f"asked for the file '{secret}', which was not offered") as raised:
            MySqlSession(read_settings(server.uri))
        assert str(server.port) in str(raised.value)
    assert when in server.statements[-1]
    assert server.received == []


@pytest.mark.parametrize("statement", ["SELECT 1", "SET x = 1", "INSERT INTO t VALUES (1)", "COMMIT"])
def test_a_request_in_answer_to_a_plain_statement_gets_nothing(statement: str, secret: Path) -> None:
    request = local_request(str(secret).encode())
    with hostile_server(lambda s: request if s == statement.encode() else None) as server, session(server.uri) as connected:
        with pytest.raises(LocalFileRefused, match="not offered"):
            connected.commit() if statement == "COMMIT" else connected.execute(statement)
        with pytest.raises(pymysql.err.InterfaceError):  # nothing more is said to such a server
            connected.execute("SELECT 2")
    assert server.received == []


@pytest.mark.parametrize("name", [b"/etc/passwd", b"", b"headrace-", b"headrace-" + b"0" * 32, b"\xff\x00\x1b[2J"])
def test_a_load_that_is_asked_for_another_file_sends_nothing(name: bytes) -> None:
    with (
        hostile_server(asking(name, when=b"LOAD DATA")) as server,
        session(server.uri) as connected,
        pytest.raises(LocalFileRefused, match="nothing was sent") as raised,
    ):
        connected.load(LOAD, [pa.py_buffer(ROWS)])
    assert server.received == []
    assert "\x1b" not in str(raised.value)


def test_a_token_counts_for_its_own_load_only() -> None:
    tokens: list[bytes] = []

    def answer(statement: bytes) -> bytes | None:
        found = _TOKEN.search(statement)
        if found is None:
            return local_request(tokens[0]) if b"SELECT 1" in statement else None
        tokens.append(found[1])
        return local_request(tokens[0]) if len(tokens) == 2 else None

    with hostile_server(answer) as server:
        for statement in ("SELECT 1", LOAD):
            tokens.clear()
            with session(server.uri) as connected:
                connected.load(LOAD, [pa.py_buffer(ROWS)])
                with pytest.raises(LocalFileRefused, match="headrace-"):
                    connected.load(statement, [pa.py_buffer(ROWS)]) if statement == LOAD else connected.execute(statement)
    assert server.received == []


def test_a_second_request_of_one_load_gets_nothing() -> None:
    """The rows go once. The server takes them, says that another result follows, and asks again."""

    def answer(statement: bytes) -> bytes | None:
        found = _TOKEN.search(statement)
        return local_request(found[1]) if found else None

    with hostile_server(answer) as server, session(server.uri) as connected:
        connected._connection._rfile = _Answers(connected._connection._rfile)
        with pytest.raises(LocalFileRefused):  # the cursor reads all results before it is closed
            connected.load(LOAD, [pa.py_buffer(ROWS)])
    assert server.received == [ROWS, b""]


class _Answers:
    """Reads from the server up to its first request, and from then on what a server would say that asks a second time."""

    def __init__(self, stream: object) -> None:
        self._stream = stream
        self._rest = b""
        self._requested = False

    def read(self, count: int) -> bytes:
        if self._requested:
            data, self._rest = self._rest[:count], self._rest[count:]
            return data
        data: bytes = self._stream.read(count)  # type: ignore[attr-defined, no-redef]
        if data[:1] == b"\xfb":
            request = local_request(b"/etc/passwd")
            more = MORE_THEN.removesuffix(b"|then|")
            self._rest = b"".join(
                len(payload).to_bytes(3, "little") + bytes([number]) + payload for payload, number in ((more, 4), (request, 5))
            )
            self._requested = True
        return data

    def close(self) -> None: ...


def test_a_request_after_a_first_result_gets_nothing(secret: Path) -> None:
    request = MORE_THEN + local_request(str(secret).encode())
    with hostile_server(lambda s: request if s == b"SELECT 1" else None) as server, session(server.uri) as connected:
        connected._connection.query("SELECT 1")
        with pytest.raises(LocalFileRefused, match="not offered"):
            connected._connection._read_query_result()
    assert server.received == []


@pytest.mark.long
def test_the_rows_of_a_load_are_sent_as_they_are() -> None:
    """That the server of these tests is one that a file could be sent to."""

    def answer(statement: bytes) -> bytes | None:
        found = _TOKEN.search(statement)
        return local_request(found[1]) if found else None

    with hostile_server(answer) as server, session(server.uri) as connected:
        connected._connection._sock.settimeout(1)
        with pytest.raises(pymysql.err.OperationalError):  # it never says that it has them
            connected.load(LOAD, [pa.py_buffer(ROWS)])
    assert server.received == [ROWS, b""]


def test_validate_tells_it_in_a_sentence() -> None:
    with hostile_server(asking(b"/etc/passwd", when=b"sql_mode")) as server, open_sink(server.uri) as sink:
        (check,) = sink.check()
    asked = f"127.0.0.1:{server.port} asked for the file '/etc/passwd', which was not offered to it"
    assert check.detail == f"{asked}; nothing was sent, and the connection was closed."
    assert "find out what answers at this address" in check.advice


@pytest.mark.parametrize("plugin", [b"mysql_clear_password", b"dialog"])
def test_the_password_is_not_sent_in_clear_text(plugin: bytes) -> None:
    with (
        hostile_server(lambda _: None, clear_text=plugin) as server,
        pytest.raises(SinkUnreachableError, match="password in clear text"),
    ):
        MySqlSession(read_settings(server.uri))
    assert server.passwords == []


def test_pymysql_still_is_as_it_was_when_it_was_contained() -> None:
    """What the containment rests on. If one of these fails, look at local_infile.py before anything else."""
    module = inspect.getsource(pymysql.connections)
    assert module.count("is_load_local_packet()") == 2  # of a result, buffered or not: both after _read_query_result
    assert module.count("_send_local_file(") == 2  # its definition, and one call
    refuses = inspect.getsource(pymysql.connections.MySQLResult._read_load_local_packet)
    assert refuses.index("if not conn._local_infile:") < refuses.index("raise RuntimeError") < refuses.index("_send_local_file(")
    with hostile_server(lambda _: None) as server, session(server.uri) as connected:
        assert connected._connection._local_infile is False
        assert issubclass(LocalFileRefused, HeadraceError)


def session(uri: str) -> MySqlSession:
    return MySqlSession(read_settings(uri))
