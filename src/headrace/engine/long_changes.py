"""Long-running schema changes: begun once with a handle and polled until they are done, while other tables continue.

The journal has the handle before the change begins. So a run that dies at any moment leaves either nothing, or a change that the
next run finds by its handle.
"""

from __future__ import annotations

from datetime import UTC, datetime

from headrace import faults
from headrace.faults import Step
from headrace.model.events import SchemaChange
from headrace.model.ledger import JournalEntry
from headrace.model.outcome import Problem
from headrace.sinks.metadata_applier import LongChange, LongChanges, MetadataApplier


def journalled(applier: MetadataApplier, change: SchemaChange, entry: JournalEntry) -> JournalEntry | None:
    """The entry of a change that runs long; ``None`` for other changes. The handle begins with the time, as ISO text in UTC."""
    if not isinstance(applier, LongChanges) or not applier.runs_long(change):
        return None
    now = datetime.now(UTC).isoformat(timespec="milliseconds")
    return entry.running(f"{now} {change.identity}")


def is_done(applier: MetadataApplier, change: SchemaChange, entry: JournalEntry) -> bool:
    """Polls a change that is running according to the journal, and begins it if that has not happened yet.

    Raises what ``LongChanges.poll`` and ``LongChanges.start`` raise.
    """
    assert isinstance(applier, LongChanges), "the journal of another sink was taken over"
    found = applier.poll(change, entry.handle)
    if found is LongChange.ABSENT:
        faults.before(Step.SCHEMA_CHANGE, change.statement)
        applier.start(change, entry.handle)
        faults.after(Step.SCHEMA_CHANGE, change.statement)
    return found is LongChange.DONE


def still_runs(change: SchemaChange, entry: JournalEntry) -> Problem:
    """The problem of tables that wait for the change."""
    statement = " ".join(change.statement.split()) or "a change of shape"
    message = f"its schema change at {change.commit_ts} has been running in the target since {entry.since}: {statement}."
    return Problem(
        change.table_id, message, place=change.origin, hint="The table goes on when that is done; others go on meanwhile."
    )
