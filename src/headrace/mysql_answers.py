"""Answers of servers that speak MySQL's protocol: bounded in bytes, and an error of PyMySQL if they are not valid.

A server's answer is held completely in memory, and what answers at an address may be anything.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pymysql

if TYPE_CHECKING:
    import socket

    # The stubs leave out the packet layer, which these classes work on.
    class BaseConnection:
        host: str
        port: int
        encoding: str
        connect_timeout: float
        _sock: socket.socket | None
        _rfile: Any
        _read_timeout: float | None
        _write_timeout: float | None
        _current_timeout: float | None

        def __init__(self, **options: Any) -> None: ...
        def connect(self, sock: socket.socket | None = None) -> None: ...
        def _create_ssl_ctx(self, parameters: dict[str, Any]) -> Any: ...
        def _execute_command(self, command: int, sql: str | bytes) -> None: ...
        def _process_auth(self, plugin_name: bytes, *arguments: Any) -> Any: ...
        def _read_bytes(self, count: int) -> bytes: ...
        def _read_packet(self, *arguments: Any) -> Any: ...
        def _read_query_result(self, unbuffered: bool = False) -> int: ...
        def _write_bytes(self, data: bytes) -> None: ...
        def _force_close(self) -> None: ...
        def write_packet(self, payload: bytes) -> None: ...
        def cursor(self) -> Any: ...
        def commit(self) -> None: ...
        def rollback(self) -> None: ...
        def close(self) -> None: ...
else:
    BaseConnection = pymysql.connections.Connection

SERVER_LOST = 2013
"""The client's code for a connection that is lost."""
MOST_BYTES = 512 << 20
_FIRST_BYTES = 1 << 20
_READ_BYTES = 50


class BoundedConnection(BaseConnection):
    """A PyMySQL connection that counts as lost (error 2013) when an answer is too large or is not valid in the protocol.

    An answer may have :data:`MOST_BYTES`. Until :meth:`expect_more` is called, when a session has begun, the limit is 1 MiB. A
    packet, which is a row or less, counts as 100 bytes more than its size.
    """

    def __init__(self, **options: Any) -> None:
        self._most = self._left = _FIRST_BYTES
        super().__init__(**options)

    def connect(self, sock: socket.socket | None = None) -> None:
        with understood():
            super().connect(sock)

    def expect_more(self) -> None:
        """From now on, responses may have any size that is plausible for a server."""
        self._most = MOST_BYTES

    def _execute_command(self, command: int, sql: str | bytes) -> None:
        self._left = self._most
        super()._execute_command(command, sql)

    def _read_bytes(self, count: int) -> bytes:
        """Called twice for each packet: for its header and its content."""
        self._left -= count + _READ_BYTES
        if self._left < 0:
            self._force_close()
            raise pymysql.err.OperationalError(SERVER_LOST, f"the server's answer is larger than {self._most} bytes")
        return super()._read_bytes(count)

    def _read_query_result(self, unbuffered: bool = False) -> int:
        with understood():
            return super()._read_query_result(unbuffered)


@contextmanager
def understood() -> Iterator[None]:
    """Treats data that are not packets of MySQL's protocol as a lost connection: PyMySQL fails on them in many ways."""
    try:
        yield
    except (IndexError, KeyError, TypeError, ValueError, AssertionError, AttributeError, struct.error) as error:
        message = f"the server's answer is not valid in MySQL's protocol ({type(error).__name__}: {error})"
        raise pymysql.err.OperationalError(SERVER_LOST, message) from error
