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
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pymysql

from headrace.mysql_answers import BoundedConnection

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

_SERVER_GONE = 2006
_LOGIN_PARTS = 4
_SENT_AT_ONCE = 128 * 1024
_KEEPALIVE_PROBES = 3
_PARTS = 4


class PatientConnection(BoundedConnection):
    """A PyMySQL connection that counts as lost (error 2013 or 2006) when it is silent and ``still_runs`` returns false.

    ``silence`` is in seconds. A dead network is detected within this time, even if two connections must detect it one after the
    other. ``still_runs`` is called in the waiting thread each time a quarter of it has passed without a byte, and should take no
    more than another quarter. Until it is set, the connection is lost after the first quarter.
    """

    def __init__(self, *, silence: float, **options: Any) -> None:
        self.still_runs: Callable[[], bool] | None = None
        self._silence = silence
        super().__init__(**options)

    def connect(self, sock: socket.socket | None = None) -> None:
        self._read_timeout = self._write_timeout = self.connect_timeout  # a server must send its greeting in time
        # Each byte restarts that timeout; a server that sends its greeting byte by byte is not accepted either.
        deadline = threading.Timer(_LOGIN_PARTS * self.connect_timeout, self.cut_off)
        deadline.daemon = True
        deadline.start()
        try:
            super().connect(sock)
        finally:
            deadline.cancel()
        assert self._sock is not None
        _watch_by_kernel(self._sock, self._silence)
        self._read_timeout = self._write_timeout = self._current_timeout = self._silence / _PARTS
        self._sock.settimeout(self._current_timeout)
        self._rfile.close()
        self._rfile = io.BufferedReader(_Answers(self._sock, self._require_running))

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
