"""How far the tasks of a running job are: Spark itself tells the driver of whole tasks only.

Tasks send what they read in small datagrams. A lost one makes the display a little late, nothing else: what counts comes back
with the tasks' results. So nothing that happens to this channel ends a run: where it cannot be opened, or breaks, the figures
stand still.
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
"""No task reads so many files or rows between two datagrams, and no display shows more."""


@dataclass(frozen=True)
class ProgressAddress:
    """Where tasks send to. ``job`` is random: it tells the datagrams of one job from those of a former one, and of anybody else."""

    host: str
    port: int
    job: int = field(repr=False)


class ProgressReceiver:
    """Sums what tasks of the current job say, and keeps nothing but the sums. Listens from a thread of its own.

    ``bind`` is the address to listen on, ``host`` the name by which tasks reach it. Raises nothing: without a socket jobs have no
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
        """Begins to count anew. ``None`` where nothing can be received."""
        self.job_ended()
        if self._socket is None:
            return None
        try:
            return ProgressAddress(self._host, self._socket.getsockname()[1], self._job)
        except OSError:
            return None

    def job_ended(self) -> None:
        """Until the next job nothing counts, so that nobody takes these for its first figures."""
        self._job, self._files, self._rows = secrets.randbits(64), 0, 0

    def counts(self) -> tuple[int, int]:
        """Files read to their end, and rows read, of the current job."""
        return self._files, self._rows

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()

    def _receive(self, opened: socket.socket) -> None:
        while True:
            try:
                # One byte more than a message has, so that a longer datagram is not taken for one.
                message = opened.recv(_MESSAGE.size + 1)
            except OSError:
                return
            if len(message) == _MESSAGE.size:
                job, files, rows = _MESSAGE.unpack(message)
                if job == self._job and files < _MOST and rows < _MOST:
                    self._files += files
                    self._rows += rows


class ProgressSender:
    """A task's end. Without an address, or where that cannot be reached, it does nothing."""

    def __init__(self, address: ProgressAddress | None) -> None:
        self._address = address
        self._socket = _socket_for(address.host, listening=False) if address else None
        self._files = self._rows = 0
        self._sent_at = time.monotonic()

    def add(self, *, files: int = 0, rows: int = 0) -> None:
        """Counts; sends now and then."""
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
            # A driver that cannot be reached this way only misses a display.
            with contextlib.suppress(OSError, ValueError):
                message = _MESSAGE.pack(self._address.job, self._files, self._rows)
                self._socket.sendto(message, (_bare(self._address.host), self._address.port))
            self._files = self._rows = 0
            self._sent_at = time.monotonic()


def _socket_for(host: str, *, listening: bool) -> socket.socket | None:
    """A socket of the host's kind (IPv4 or IPv6), bound to it where it listens; ``None`` where that is not possible."""
    opened = None
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(_bare(host), 0, type=socket.SOCK_DGRAM)[0]
        opened = socket.socket(family, kind, protocol)
        if listening:
            opened.bind(address)
    except (OSError, ValueError):  # ValueError: a name that no resolver takes
        if opened is not None:
            opened.close()
        return None
    return opened


def _bare(host: str) -> str:
    """Spark writes addresses of IPv6 in brackets."""
    return host.removeprefix("[").removesuffix("]")
