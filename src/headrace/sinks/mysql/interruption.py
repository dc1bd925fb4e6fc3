"""What a second signal does to the driver's statements: those that run are ended, and no other begins.

A schema change may run for hours, or wait for a reader. Its end is left open then, as after a crash, and the next run finds out.
"""

from __future__ import annotations

import threading
import time
from typing import Protocol

_PATIENCE_SECONDS = 4.0
"""How long a server may take to end a statement; an ALTER that is rolled back takes longer, and goes on without us."""


class Interruptible(Protocol):
    """A session whose thread may be waiting for an answer; both are called from another thread, and raise nothing."""

    def end_statement(self) -> bool:
        """Lets the server end what it runs for this session. Returns whether the server could be told."""
        ...

    def cut_off(self) -> None:
        """Closes the connection, whatever the server does."""
        ...


class Interruption:
    """Shared by the sessions of a run's driver. It is requested once, and lasts."""

    def __init__(self) -> None:
        self._requested = threading.Event()
        self._lock = threading.Lock()
        self._sessions: set[Interruptible] = set()
        self._since = 0.0

    @property
    def is_requested(self) -> bool:
        return self._requested.is_set()

    def wait(self, seconds: float) -> None:
        """Returns earlier when it is requested."""
        self._requested.wait(seconds)

    def watch(self, session: Interruptible) -> None:
        """From now on the session is ended with the others."""
        with self._lock:
            self._sessions.add(session)

    def forget(self, session: Interruptible) -> None:
        with self._lock:
            self._sessions.discard(session)

    def request(self) -> None:
        """Ends the statements of all sessions, and after four seconds their connections. May be called again and again."""
        if not self._requested.is_set():
            self._since = time.monotonic()
            self._requested.set()
        with self._lock:
            sessions = list(self._sessions)
        for session in sessions:
            if not session.end_statement() or time.monotonic() - self._since > _PATIENCE_SECONDS:
                session.cut_off()
