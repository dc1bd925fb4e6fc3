"""How far the tasks of a running job are: Spark itself tells the driver of whole tasks only.

Tasks send what they read in small datagrams. A lost one makes the display a little late, nothing else: what counts comes back
with the tasks' results.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from dataclasses import dataclass

_MESSAGE = struct.Struct("!QQQ")
_EVERY_SECONDS = 0.2


@dataclass(frozen=True)
class ProgressAddress:
    """Where tasks send to. ``job`` tells the datagrams of one job from those of a former one."""

    host: str
    port: int
    job: int


class ProgressReceiver:
    """Sums what tasks of the current job say. Listens on the driver's own host, from a thread of its own."""

    def __init__(self, host: str) -> None:
        self._host = host
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind((host, 0))
        self._job = self._files = self._rows = 0
        threading.Thread(target=self._receive, name="headrace-tasks", daemon=True).start()

    def next_job(self) -> ProgressAddress:
        """Begins to count anew."""
        self.job_ended()
        return ProgressAddress(self._host, self._socket.getsockname()[1], self._job)

    def job_ended(self) -> None:
        """Until the next job nothing counts, so that nobody takes these for its first figures."""
        self._job, self._files, self._rows = self._job + 1, 0, 0

    def counts(self) -> tuple[int, int]:
        """Files read to their end, and rows read, of the current job."""
        return self._files, self._rows

    def close(self) -> None:
        self._socket.close()

    def _receive(self) -> None:
        while True:
            try:
                message = self._socket.recv(_MESSAGE.size)
            except OSError:
                return
            if len(message) == _MESSAGE.size:
                job, files, rows = _MESSAGE.unpack(message)
                if job == self._job:
                    self._files += files
                    self._rows += rows


class ProgressSender:
    """A task's end. Without an address it does nothing."""

    def __init__(self, address: ProgressAddress | None) -> None:
        self._address = address
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM) if address else None
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
            with contextlib.suppress(OSError):
                message = _MESSAGE.pack(self._address.job, self._files, self._rows)
                self._socket.sendto(message, (self._address.host, self._address.port))
            self._files = self._rows = 0
            self._sent_at = time.monotonic()
