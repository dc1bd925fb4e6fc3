"""Crash points: a run that dies between any two of its durable steps."""

from __future__ import annotations

import pytest

from headrace import faults
from headrace.faults import Moment, Step
from headrace.testing.faults import Crashed

__all__ = ["CrashPoints", "Crashed", "install"]

_ENGINE = frozenset(
    {
        Step.ACQUIRE,
        Step.REQUESTS,
        Step.INTENT,
        Step.JOURNAL_PENDING,
        Step.SCHEMA_CHANGE,
        Step.JOURNAL_SETTLED,
        Step.ROUND,
        Step.CHECKPOINT,
    }
)
_SERVER = frozenset({Step.MYSQL_STATEMENT, Step.MYSQL_COMMIT})


class CrashPoints:
    """Counts durable steps, and dies right before the one whose number is ``fatal`` (0: before none).

    On a MySQL server each statement and each COMMIT is one, in tasks too; elsewhere what the engine does is. Nothing durable
    happens between two steps, so the point before a step is the point after the one that precedes it.
    """

    def __init__(self, fatal: int = 0) -> None:
        self.fatal = fatal
        self.passed: list[str] = []
        self._has_server = False
        self._doing = ""

    def __call__(self, moment: Moment, step: Step, detail: str) -> None:
        """As a hook of ``headrace.faults``."""
        if moment is Moment.AFTER:
            return
        self._has_server |= step in _SERVER
        if step in _ENGINE:
            self._doing = f"{step} {detail}".rstrip()
            if not self._has_server:
                self.step(self._doing)
        elif step is Step.MYSQL_COMMIT:
            self.step(f"COMMIT to {self._doing}")
        elif step is Step.MYSQL_STATEMENT:
            self.step(detail)

    def step(self, name: str) -> None:
        self.passed.append(name)
        if len(self.passed) == self.fatal:
            raise Crashed(name)


def install(points: CrashPoints, monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on, until ``monkeypatch`` is undone, runs in this process pass these points."""
    monkeypatch.setattr(faults, "_hook", points)
