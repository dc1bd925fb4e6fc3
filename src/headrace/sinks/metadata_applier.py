"""How a sink applies schema changes and tells what its target holds: the part of its contract beside rows and progress."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol, runtime_checkable

from headrace.errors import TerminalError
from headrace.model.events import SchemaChange
from headrace.model.outcome import Notice, Problem
from headrace.model.table import TableId


class TargetUnreadableError(TerminalError):
    """The target does not let the pipeline's account see what it has of a table: a schema change of the table waits."""


class SchemaChangeRefused(Exception):
    """A schema change cannot be applied to this target; its tables stop. Carries the problem to show."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.message)
        self.problem = problem


class SchemaChangeUnclear(SchemaChangeRefused):
    """A schema change, or a person's statement in its place, may have run, in whole or in part, and nothing tells.

    It must not be tried again by itself: a person has to look.
    """


@dataclass(frozen=True)
class TableDescription:
    """A target table as its catalogue tells it: column names in order, and whether it has rows."""

    table_id: TableId
    columns: tuple[str, ...]
    has_rows: bool


class Begun(StrEnum):
    """What a target shows of a schema change that a run began, and did not journal as done."""

    DONE = "done"
    """The target is in the change's end state."""
    ABSENT = "absent"
    """It did not run."""
    REPEATABLE = "repeatable"
    """It may have run, and running it (again) leads to its end state."""
    UNCLEAR = "unclear"
    """Nothing tells, and it must not run twice: a person has to look."""


class MetadataApplier(Protocol):
    """Applies schema changes to the target, and tells what is there."""

    def apply_schema_change(self, change: SchemaChange) -> tuple[Notice, ...]:
        """Executes the change once and verifies it against the catalogue; returns what people should know (adaptations).

        The target may already be in the state the change leads to when a run was killed (CREATE of a table that is there with
        these columns, DROP of one that is not): that is done, not an error. A statement that changes rows of which no change event
        tells (``ddl.classify.changes_rows_unseen``: RECOVER TABLE, FLASHBACK TABLE, some of partitions) is refused where the target
        cannot do the same: the engine counts what is not refused as done. Raises SchemaChangeRefused where the target has not run
        it, SchemaChangeUnclear where it may have: an error came behind the statement, or it does not show. TransientError.
        """
        ...

    def run_instead(self, change: SchemaChange, statement: str) -> tuple[Notice, ...]:
        """Executes a person's statement, in the target's own SQL, in place of the change's; verifies nothing.

        Raises SchemaChangeRefused where nothing of a refused statement is left, SchemaChangeUnclear where a part may be,
        TransientError.
        """
        ...

    def describe(self, table_id: TableId) -> TableDescription | None:
        """The table (``None``: there is none). For a database: no columns, ``has_rows`` when it holds tables."""
        ...

    def state_before(self, change: SchemaChange) -> str:
        """What the journal keeps of the target before the change runs, for :meth:`begun`."""
        ...

    def begun(self, change: SchemaChange, state_before: str) -> Begun:
        """How far a change came that a run began when :meth:`state_before` said this.

        A difference to what was there before is no proof: only the change's end state is. A change without events is a statement
        of a person, of which more may be unclear. Raises TransientError.
        """
        ...

    def keeps_unique(self, change: SchemaChange) -> str:
        """The name of a unique key of the target that the change drops, renames or lets tell apart other values; empty: none.

        A change of a column's type or collation may do the latter. If such a change is skipped, the target keeps its key. Rows that
        the source then holds side by side must not replace each other because of it. A target whose keys refuse such rows, so that
        their table stops, may answer with nothing.
        """
        ...


class LongChange(StrEnum):
    """How far a change is that runs long."""

    ABSENT = "absent"
    """Nothing was begun under the handle."""
    RUNNING = "running"
    DONE = "done"
    """The target is in the change's end state."""


@runtime_checkable
class LongChanges(Protocol):
    """A :class:`MetadataApplier` of a target in which a schema change may take hours, without anybody who waits for it.

    The engine begins such a change, lets its tables stand before it, and asks about it every half minute. The target remembers a
    handle at least until the journal says that the change is settled, and nobody asks any more.

    Of a sink whose cuts are one transaction (``SinkCapabilities.atomic_cut``) none is begun so: what was begun outlasts no
    transaction that is taken back.
    """

    def runs_long(self, change: SchemaChange) -> bool:
        """Whether the change is applied so, and not with ``apply_schema_change``. None that creates or drops something is."""
        ...

    def start(self, change: SchemaChange, handle: str) -> None:
        """Begins it under a handle that is not known yet, and returns. Raises SchemaChangeRefused, TransientError."""
        ...

    def poll(self, change: SchemaChange, handle: str) -> LongChange:
        """How far it is. Raises SchemaChangeRefused where it failed and left nothing, SchemaChangeUnclear where it may have left
        something, TransientError.
        """
        ...
