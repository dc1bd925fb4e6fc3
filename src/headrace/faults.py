"""Fault points: the named steps between which a run may die, stall or lose an answer.

The product says where it stands, with :func:`before` and :func:`after` around each step that changes something durable or reads
the source; whoever tests it decides what happens there (``headrace.testing.faults``). Unless a test has armed a hook, a point
is one comparison. Points inside tasks fire in the process of the task.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum


class Step(StrEnum):
    """Everything that a run does to its source, its ledger and its target, one name for each kind of doing.

    Connectors outside the project name theirs with :class:`OwnStep`.
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
    """A step that a connector outside the project names by itself.

    It is a constant of the connector's module, and ``before`` and ``after`` are called with it around what the step does:

        UPLOAD = OwnStep("lake", "upload a data file")
    """

    connector: str
    """Whose step it is, so that two connectors may use the same words."""
    name: str
    """What is done, as in :class:`Step`."""

    def __str__(self) -> str:
        return f"{self.name} ({self.connector})"


FaultPoint = Step | OwnStep
"""A step before and after which a test may let a run die, stall or fail."""


class Moment(StrEnum):
    """``AFTER`` a step that failed is never reached."""

    BEFORE = "before"
    AFTER = "after"


Hook = Callable[[Moment, FaultPoint, str], None]
"""Is called with the detail that the step gives (a statement, a table), and may raise, or take its time."""

_hook: Hook | None = None


def before(step: FaultPoint, detail: str = "") -> None:
    """The step begins now; nothing of it has happened."""
    if _hook is not None:
        _hook(Moment.BEFORE, step, detail)


def after(step: FaultPoint, detail: str = "") -> None:
    """The step is done, and as durable as it will be; nobody has acted on it yet."""
    if _hook is not None:
        _hook(Moment.AFTER, step, detail)


def arm(hook: Hook | None) -> Hook | None:
    """Puts a hook in place, or with ``None`` takes it away; returns the one that was there."""
    global _hook
    former, _hook = _hook, hook
    return former
