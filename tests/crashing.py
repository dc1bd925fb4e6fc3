"""Crash points: a run that dies between any two of its durable steps."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.model.events import SchemaChange
from headrace.model.outcome import Notice
from headrace.pipeline import runner
from headrace.pipeline.registry import open_sink
from headrace.sinks.base import DataSink, LedgerUpdate, Round, WriteReport
from headrace.sinks.mysql import metadata
from headrace.sinks.mysql.connection import MySqlSession
from headrace.sinks.mysql.sink import MySqlSink


class Crashed(BaseException):
    """The process died here. No product code handles it, as none runs after a kill."""


class CrashPoints:
    """Counts durable steps, and dies right before the one whose number is ``fatal`` (0: before none).

    Nothing durable happens between two steps, so the point before a step is the point after the one that precedes it.
    """

    def __init__(self, fatal: int = 0) -> None:
        self.fatal = fatal
        self.passed: list[str] = []
        self._doing = ""

    def step(self, name: str) -> None:
        self.passed.append(name)
        if len(self.passed) == self.fatal:
            raise Crashed(name)

    def begin(self, name: str) -> None:
        """What the next commits belong to."""
        self._doing = name

    def commit(self) -> None:
        self.step(f"COMMIT of {self._doing}")


class _Stepping:
    """Passes everything on to ``inner``; the methods of subclasses are durable steps, or consist of commits that are."""

    def __init__(self, inner: Any, points: CrashPoints, commits: bool) -> None:
        self._inner, self._points = inner, points
        self._begin = points.begin if commits else points.step

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class _SteppingLedger(_Stepping):
    def acquire(self, *arguments: Any) -> Any:
        self._begin("acquire")
        return self._inner.acquire(*arguments)

    def update(self, update: LedgerUpdate) -> None:
        self._begin(_described(update))
        self._inner.update(update)


class _SteppingApplier(_Stepping):
    def apply_schema_change(self, change: SchemaChange) -> tuple[Notice, ...]:
        self._begin(f"schema change {change.statement}")
        return self._inner.apply_schema_change(change)

    def run_instead(self, change: SchemaChange, statement: str) -> tuple[Notice, ...]:
        self._begin(f"instead of a schema change {statement}")
        return self._inner.run_instead(change, statement)


class _SteppingEventSink(_Stepping):
    def write(self, round: Round) -> WriteReport:
        self._begin("rows")
        return self._inner.write(round)


class SteppingSink(_Stepping):
    """A sink whose ledger, schema changes and writes pass crash points."""

    def __init__(self, inner: DataSink, points: CrashPoints) -> None:
        commits = isinstance(inner, MySqlSink)
        super().__init__(inner, points, commits)
        self.ledger = _SteppingLedger(inner.ledger, points, commits)
        self.metadata_applier = _SteppingApplier(inner.metadata_applier, points, commits)
        self.event_sink = _SteppingEventSink(inner.event_sink, points, commits)

    def __enter__(self) -> SteppingSink:
        self._inner.__enter__()
        return self

    def __exit__(self, *arguments: Any) -> None:
        self._inner.__exit__(*arguments)


def install(points: CrashPoints, monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on runs pass these points; on a MySQL server every COMMIT (in tasks too) and every statement is a step."""
    commit, execute = MySqlSession.commit, metadata._execute

    def stepping_commit(session: MySqlSession) -> None:
        points.commit()
        commit(session)

    def stepping_execute(session: MySqlSession, change: SchemaChange, statement: str) -> None:
        points.step(statement)
        execute(session, change, statement)

    monkeypatch.setattr(runner, "open_sink", lambda uri, *, adopt: SteppingSink(open_sink(uri, adopt=adopt), points))
    monkeypatch.setattr(MySqlSession, "commit", stepping_commit)
    monkeypatch.setattr(metadata, "_execute", stepping_execute)


def _described(update: LedgerUpdate) -> str:
    parts = [f"{entry.state} {entry.statement}" for entry in update.journal]
    parts += ["intent"] if update.attempted is not None else []
    parts += ["checkpoint"] if update.checkpoint is not None else []
    return ", ".join(parts)
