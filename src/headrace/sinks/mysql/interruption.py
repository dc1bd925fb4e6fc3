"""The effect of a second signal on the driver's statements: running ones are ended, and no other begins.

A schema change may run for hours, or wait for a reader. Its result then stays unknown, as after a crash, and the next run
determines it.
"""

from __future__ import annotations

import threading
import time
from typing import Protocol

_PATIENCE_SECONDS = 4.0
"""How long a server may take to end a statement. Rolling back an ALTER takes longer, and continues without the connection."""


class Interruptible(Protocol):
    """A session whose thread may be waiting for a response. Both methods are called from another thread, and raise nothing."""

    def end_statement(self) -> bool:
        """Makes the server end the session's running statement. Returns whether the server could be reached."""
        ...

    def cut_off(self) -> None:
        """Closes the connection, regardless of the server."""
        ...


class Interruption:
    """Shared by the sessions of a run's driver. Once requested, it lasts."""

    def __init__(self) -> None:
        self._requested = threading.Event()
        self._lock = threading.Lock()
        self._sessions: set[Interruptible] = set()
        self._since = 0.0

    @property
    def is_requested(self) -> bool:
        return self._requested.is_set()

    def wait(self, seconds: float) -> None:
        """Waits; returns earlier if an interruption is requested."""
        self._requested.wait(seconds)

    def watch(self, session: Interruptible) -> None:
        """Adds the session to those that are ended."""
        with self._lock:
            self._sessions.add(session)

    def forget(self, session: Interruptible) -> None:
        with self._lock:
            self._sessions.discard(session)

    def request(self) -> None:
        """Ends the statements of all sessions, and after four seconds their connections. May be called repeatedly."""
        if not self._requested.is_set():
            self._since = time.monotonic()
            self._requested.set()
        with self._lock:
            sessions = list(self._sessions)
        for session in sessions:
            if not session.end_statement() or time.monotonic() - self._since > _PATIENCE_SECONDS:
                session.cut_off()
