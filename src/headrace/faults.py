"""Fault points: the named steps before and after which a test may kill or stall a run, or drop an answer.

The code calls :func:`before` and :func:`after` around each step that changes something durable or reads the source. A test decides
what happens there (``headrace.testing.faults``). Unless a test has armed a hook, a fault point costs one comparison. Fault points
inside tasks fire in the process of the task.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum


class Step(StrEnum):
    """The kinds of actions that a run performs on its source, its ledger and its target.

    Connectors outside the project name their steps with :class:`OwnStep`.
    """

    POLL = "poll the source"
    STAGE = "stage ranges of a stream"
    READ = "read a split"
    ACQUIRE = "take the epoch"
    NEXT_ATTEMPT = "raise the attempt"
    REQUESTS = "carry out requests"
    INTENT = "write the intent"
    JOURNAL_PENDING = "journal a schema change as pending"
    SCHEMA_CHANGE = "apply a schema change"
    JOURNAL_SETTLED = "journal a schema change as settled"
    ROUND = "write a round"
    UNIT = "write a unit"
    LETTERS_PUT = "write dead letters"
    LETTERS_REMOVED = "remove dead letters"
    CHECKPOINT = "write the checkpoint"
    MYSQL_STATEMENT = "run a schema change's statement in MySQL"
    MYSQL_VERIFY = "verify a schema change in MySQL"
    MYSQL_COMMIT = "commit in MySQL"
    DUCKDB_LOAD = "load spooled rows into DuckDB"
    DUCKDB_COMMIT = "commit in DuckDB"
    FILE_LEDGER_PUT = "put a state into the file ledger"


@dataclass(frozen=True)
class OwnStep:
    """A step that a connector outside the project defines.

    Define it as a constant in the connector's module, and call ``before`` and ``after`` with it around the step:

        UPLOAD = OwnStep("lake", "upload a data file")
    """

    connector: str
    """The connector's name, so that two connectors may use the same step name."""
    name: str
    """What the step does, as in :class:`Step`."""

    def __str__(self) -> str:
        return f"{self.name} ({self.connector})"


FaultPoint = Step | OwnStep
"""A step before and after which a test may kill, stall or fail a run."""


class Moment(StrEnum):
    """When a hook is called. It is not called with ``AFTER`` for a step that failed."""

    BEFORE = "before"
    AFTER = "after"


Hook = Callable[[Moment, FaultPoint, str], None]
"""Called with the moment, the step and the step's detail (a statement, a table). A hook may raise or delay."""

_hook: Hook | None = None


def before(step: FaultPoint, detail: str = "") -> None:
    """The step is about to begin; nothing of it has happened."""
    if _hook is not None:
        _hook(Moment.BEFORE, step, detail)


def after(step: FaultPoint, detail: str = "") -> None:
    """The step is done, and as durable as it will be. The caller has not acted on its result yet."""
    if _hook is not None:
        _hook(Moment.AFTER, step, detail)


def arm(hook: Hook | None) -> Hook | None:
    """Sets the hook, or removes it with ``None``. Returns the previous hook."""
    global _hook
    former, _hook = _hook, hook
    return former
