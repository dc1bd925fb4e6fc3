"""How a sink applies schema changes and describes its target: the part of its contract beside rows and progress."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol, runtime_checkable

from headrace.errors import TerminalError
from headrace.model.events import SchemaChange
from headrace.model.outcome import Notice, Problem
from headrace.model.table import TableId


class TargetUnreadableError(TerminalError):
    """The pipeline's account is not allowed to see a table in the target. A schema change of that table waits."""


class SchemaChangeRefused(Exception):
    """A schema change cannot be applied to this target; its tables stop. Carries the problem to show."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.message)
        self.problem = problem


class SchemaChangeUnclear(SchemaChangeRefused):
    """A schema change, or a person's statement in its place, may have run wholly or partly, and this cannot be determined.

    It must not be retried automatically: a person has to check.
    """


@dataclass(frozen=True)
class TableDescription:
    """A target table according to its catalogue: the column names in order, and whether it has rows."""

    table_id: TableId
    columns: tuple[str, ...]
    has_rows: bool
    """True for a view: its rows are not read, because a query may run for any time."""
    is_view: bool = False


class Begun(StrEnum):
    """The state in the target of a schema change that a run began and did not record as done in the journal."""

    DONE = "done"
    """The target is in the change's end state."""
    ABSENT = "absent"
    """The change did not run."""
    REPEATABLE = "repeatable"
    """The change may have run, and running it (again) leads to its end state."""
    UNCLEAR = "unclear"
    """It cannot be determined, and the change must not run twice: a person has to check."""


class MetadataApplier(Protocol):
    """Applies schema changes to the target and describes what exists there."""

    def apply_schema_change(self, change: SchemaChange) -> tuple[Notice, ...]:
        """Executes the change once and verifies it in the catalogue. Returns notices about adaptations.

        If a run was killed, the target may already be in the change's end state (CREATE of a table that exists with these columns,
        DROP of one that does not exist). That counts as done and is not an error. A statement that changes rows without change
        events (``ddl.classify.changes_rows_unseen``: RECOVER TABLE, FLASHBACK TABLE, some partition statements) must be refused if
        the target cannot do the same, because the engine counts it as done otherwise.

        Raises SchemaChangeRefused if the target has not run it; SchemaChangeUnclear if the target may have run it, because an error
        came after the statement or its effect does not show; TransientError.
        """
        ...

    def run_instead(self, change: SchemaChange, statement: str) -> tuple[Notice, ...]:
        """Executes a person's statement, in the target's own SQL, in place of the change. Verifies nothing.

        Raises SchemaChangeRefused if a refused statement left no effect, SchemaChangeUnclear if it may have left a part,
        TransientError.
        """
        ...

    def describe(self, table_id: TableId) -> TableDescription | None:
        """The table, or ``None`` if there is none. For a database: no columns, and ``has_rows`` if it holds tables."""
        ...

    def state_before(self, change: SchemaChange) -> str:
        """The state of the target before the change runs, as the journal keeps it for :meth:`begun`."""
        ...

    def begun(self, change: SchemaChange, state_before: str) -> Begun:
        """How far a begun change came, given what :meth:`state_before` returned when the run began it.

        A mere difference from the state before is no proof; only the change's end state is. A change without events is a person's
        statement, and more may be unclear then. Raises TransientError.
        """
        ...

    def keeps_unique(self, change: SchemaChange) -> str:
        """The name of a unique key of the target that a skipped change would leave in place; empty if there is none.

        That is a key that the change drops, renames, or makes distinguish other values, as a change of a column's type or collation
        may do. If such a change is skipped, the target keeps its key. Rows that the source then holds side by side must not replace
        each other because of it. A target whose keys refuse such rows, so that their table stops, may return an empty text.
        """
        ...


class LongChange(StrEnum):
    """The state of a change that runs long."""

    ABSENT = "absent"
    """No change was begun with this handle."""
    RUNNING = "running"
    DONE = "done"
    """The target is in the change's end state."""


@runtime_checkable
class LongChanges(Protocol):
    """A :class:`MetadataApplier` of a target in which a schema change may run for hours without an open connection.

    The engine begins such a change, holds its tables before it, and polls its state every half minute. The target must remember a
    handle at least until the journal records the change as settled; after that it is not polled any more.

    Not used for a sink whose cuts are one transaction (``SinkCapabilities.atomic_cut``), because a begun change cannot outlast a
    transaction that is rolled back.
    """

    def runs_long(self, change: SchemaChange) -> bool:
        """Whether :meth:`start` is used for the change instead of ``apply_schema_change``. False for CREATE and DROP of objects."""
        ...

    def start(self, change: SchemaChange, handle: str) -> None:
        """Begins the change under a new handle and returns. Raises SchemaChangeRefused, TransientError."""
        ...

    def poll(self, change: SchemaChange, handle: str) -> LongChange:
        """The state of the change.

        Raises SchemaChangeRefused if it failed without an effect, SchemaChangeUnclear if it failed and may have left one,
        TransientError.
        """
        ...
