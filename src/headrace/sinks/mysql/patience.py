"""Connections that distinguish a statement that takes hours from a network that has gone silent.

A host without power, or a load balancer that dropped a connection, sends nothing, and a read would wait forever. A plain timeout
would also end a long statement. So after some silence, another connection checks whether the server still runs the statement. Idle
connections are watched by the kernel (keepalive).
"""

from __future__ import annotations

import io
import os
import select
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pymysql

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

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

_SERVER_GONE, _SERVER_LOST = 2006, 2013
_LOGIN_PARTS = 4
_SENT_AT_ONCE = 128 * 1024
_KEEPALIVE_PROBES = 3
_PARTS = 4
MOST_BYTES = 512 << 20
_FIRST_BYTES = 1 << 20
_READ_BYTES = 50


class PatientConnection(BaseConnection):
    """A PyMySQL connection that counts as lost (error 2013 or 2006) when it is silent and ``still_runs`` returns false.

    ``silence`` is in seconds. A dead network is detected within this time, even if two connections must detect it one after the
    other. ``still_runs`` is called in the waiting thread each time a quarter of it has passed without a byte, and should take no
    more than another quarter. Until it is set, the connection is lost after the first quarter.

    A response is held completely in memory, so one larger than :data:`MOST_BYTES` ends the connection, too. Until
    :meth:`expect_more` is called, when a session has begun, the limit is 1 MiB. A packet, which is a row or less, counts as 100
    bytes more than its size.
    """

    def __init__(self, *, silence: float, **options: Any) -> None:
        self.still_runs: Callable[[], bool] | None = None
        self._silence = silence
        self._most = self._left = _FIRST_BYTES
        super().__init__(**options)

    def connect(self, sock: socket.socket | None = None) -> None:
        self._read_timeout = self._write_timeout = self.connect_timeout  # a server must send its greeting in time
        # Each byte restarts that timeout; a server that sends its greeting byte by byte is not accepted either.
        deadline = threading.Timer(_LOGIN_PARTS * self.connect_timeout, self.cut_off)
        deadline.daemon = True
        deadline.start()
        try:
            with understood():
                super().connect(sock)
        finally:
            deadline.cancel()
        assert self._sock is not None
        _watch_by_kernel(self._sock, self._silence)
        self._read_timeout = self._write_timeout = self._current_timeout = self._silence / _PARTS
        self._sock.settimeout(self._current_timeout)
        self._rfile.close()
        self._rfile = io.BufferedReader(_Answers(self._sock, self._require_running))

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
            raise pymysql.err.OperationalError(_SERVER_LOST, f"the server's answer is larger than {self._most} bytes")
        return super()._read_bytes(count)

    def _read_query_result(self, unbuffered: bool = False) -> int:
        with understood():
            return super()._read_query_result(unbuffered)

    def cut_off(self) -> None:
        """Ends the connection while another thread waits on it; that thread then finds it lost."""
        sock = self._sock
        if sock is None:
            return
        try:
            # Not through the socket object: a TLS socket would change its state while the other thread uses it.
            with socket.socket(fileno=os.dup(sock.fileno())) as same:
                same.shutdown(socket.SHUT_RDWR)
        except OSError:  # it is already closed
            return

    def _write_bytes(self, data: bytes) -> None:
        """Writes piece by piece, because a timeout applies to a whole ``sendall``, even if it makes progress."""
        assert self._sock is not None
        if self._current_timeout != self._write_timeout:
            self._sock.settimeout(self._write_timeout)
            self._current_timeout = self._write_timeout
        rest = memoryview(data)
        try:
            while rest:
                try:
                    rest = rest[self._sock.send(rest[:_SENT_AT_ONCE]) :]
                except TimeoutError:
                    self._require_running()
        except OSError as error:
            self._force_close()
            raise pymysql.err.OperationalError(_SERVER_GONE, f"MySQL server has gone away ({error})") from None

    def _require_running(self) -> None:
        """Called after a silence. Raises TimeoutError if the connection is lost."""
        assert self._sock is not None
        if self.still_runs is not None and self.still_runs():
            return
        readable, _, _ = select.select([self._sock], [], [], 0)
        if not readable:  # otherwise the response arrived during the check
            raise TimeoutError(f"nothing came for {self._silence / _PARTS:g} s, and the server does not run the statement")


@contextmanager
def understood() -> Iterator[None]:
    """Treats data that are not packets of MySQL's protocol as a lost connection: PyMySQL fails on them in many ways."""
    try:
        yield
    except (IndexError, KeyError, TypeError, ValueError, AssertionError, AttributeError, struct.error) as error:
        message = f"the server's answer is not valid in MySQL's protocol ({type(error).__name__}: {error})"
        raise pymysql.err.OperationalError(_SERVER_LOST, message) from error


class _Answers(io.RawIOBase):
    """The server's responses. A timeout of the socket ends a read only if ``on_silence`` raises an OSError."""

    def __init__(self, sock: socket.socket, on_silence: Callable[[], None]) -> None:
        super().__init__()
        self._sock, self._on_silence = sock, on_silence

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        while True:
            try:
                return self._sock.recv_into(buffer)
            except TimeoutError:
                self._on_silence()


def _watch_by_kernel(sock: socket.socket, silence: float) -> None:
    """For connections on which nothing was sent. Not every system has all of these options.

    TCP_USER_TIMEOUT is not used: on Linux it also counts the time in which a server that waits for a lock accepts no more of a
    load.
    """
    if sock.family not in (socket.AF_INET, socket.AF_INET6):
        return
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    third = max(1, int(silence / 3))
    values = {
        "TCP_KEEPIDLE": third,
        "TCP_KEEPALIVE": third,  # its name on macOS
        "TCP_KEEPINTVL": max(1, int(silence / 3 / _KEEPALIVE_PROBES)),
        "TCP_KEEPCNT": _KEEPALIVE_PROBES,
    }
    for name, value in values.items():
        option = getattr(socket, name, None)
        if option is not None:
            sock.setsockopt(socket.IPPROTO_TCP, option, value)
