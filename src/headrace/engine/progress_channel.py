"""The progress of a running job's tasks, since Spark itself reports only finished tasks to the driver.

Tasks send their counts in small datagrams. A lost datagram only delays the display, because the final counts come with the tasks'
results. So no error of this channel ends a run: if the channel cannot be opened, or breaks, the figures do not advance.
"""

from __future__ import annotations

import contextlib
import secrets
import socket
import struct
import threading
import time
from dataclasses import dataclass, field

_MESSAGE = struct.Struct("!QQQ")
_EVERY_SECONDS = 0.2
_MOST = 1 << 53
"""A limit above any count of files or rows between two datagrams, and above any figure displayed."""


@dataclass(frozen=True)
class ProgressAddress:
    """Where tasks send to. ``job`` is random, to recognise datagrams of earlier jobs and of other senders."""

    host: str
    port: int
    job: int = field(repr=False)


class ProgressReceiver:
    """Sums up the counts from tasks of the current job. Listens in a thread of its own.

    ``bind`` is the address to listen on, ``host`` the name by which tasks reach it. Raises nothing: without a socket, jobs get no
    address.
    """

    def __init__(self, bind: str, host: str | None = None) -> None:
        self._host = bind if host is None else host
        self._job = self._files = self._rows = 0
        self._socket = _socket_for(bind, listening=True)
        self.job_ended()
        if self._socket is not None:
            threading.Thread(target=self._receive, args=(self._socket,), name="headrace-tasks", daemon=True).start()

    def next_job(self) -> ProgressAddress | None:
        """Starts to count from zero. ``None`` if nothing can be received."""
        self.job_ended()
        if self._socket is None:
            return None
        try:
            return ProgressAddress(self._host, self._socket.getsockname()[1], self._job)
        except OSError:
            return None

    def job_ended(self) -> None:
        """Resets the counts until the next job, so that they are not taken for its first figures."""
        self._job, self._files, self._rows = secrets.randbits(64), 0, 0

    def counts(self) -> tuple[int, int]:
        """The number of files read to their end, and of rows read, in the current job."""
        return self._files, self._rows

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()

    def _receive(self, opened: socket.socket) -> None:
        while True:
            try:
                # One byte more than a message, so that a longer datagram is recognised.
                message = opened.recv(_MESSAGE.size + 1)
            except OSError:
                return
            if len(message) == _MESSAGE.size:
                job, files, rows = _MESSAGE.unpack(message)
                if job == self._job and files < _MOST and rows < _MOST:
                    self._files += files
                    self._rows += rows


class ProgressSender:
    """The task's end of the channel. Does nothing without an address, or if the address cannot be reached."""

    def __init__(self, address: ProgressAddress | None) -> None:
        self._address = address
        self._socket = _socket_for(address.host, listening=False) if address else None
        self._files = self._rows = 0
        self._sent_at = time.monotonic()

    def add(self, *, files: int = 0, rows: int = 0) -> None:
        """Adds to the counts; sends them from time to time."""
        self._files += files
        self._rows += rows
        if time.monotonic() - self._sent_at >= _EVERY_SECONDS:
            self._send()

    def close(self) -> None:
        self._send()
        if self._socket is not None:
            self._socket.close()

    def _send(self) -> None:
        if self._socket is not None and self._address is not None and (self._files or self._rows):
            # If the driver cannot be reached this way, only its display suffers.
            with contextlib.suppress(OSError, ValueError):
                message = _MESSAGE.pack(self._address.job, self._files, self._rows)
                self._socket.sendto(message, (_bare(self._address.host), self._address.port))
            self._files = self._rows = 0
            self._sent_at = time.monotonic()


def _socket_for(host: str, *, listening: bool) -> socket.socket | None:
    """A socket of the host's family (IPv4 or IPv6), bound to it if it listens; ``None`` if that is not possible."""
    opened = None
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(_bare(host), 0, type=socket.SOCK_DGRAM)[0]
        opened = socket.socket(family, kind, protocol)
        if listening:
            opened.bind(address)
    except (OSError, ValueError):  # ValueError: a name that resolvers do not accept
        if opened is not None:
            opened.close()
        return None
    return opened


def _bare(host: str) -> str:
    """The host without the brackets in which Spark writes IPv6 addresses."""
    return host.removeprefix("[").removesuffix("]")
