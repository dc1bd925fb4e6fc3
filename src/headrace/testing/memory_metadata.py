"""How the in-memory sink applies schema changes: at once, or as in targets where they run long."""

from __future__ import annotations

import base64
import pickle
from typing import TYPE_CHECKING

from headrace.ddl.classify import changes_rows_unseen
from headrace.model.events import (
    AddColumnEvent,
    AlterColumnTypeEvent,
    DropColumnEvent,
    OtherEvent,
    RenameColumnEvent,
    SchemaChange,
    TruncateTableEvent,
)
from headrace.model.outcome import Notice, Problem, Remedy
from headrace.model.table import TableId
from headrace.sinks.metadata_applier import Begun, LongChange, SchemaChangeRefused, TableDescription
from headrace.testing.memory_server import Call, Contents, Job, apply_event, execute, shown

if TYPE_CHECKING:
    from headrace.testing.memory_sink import MemorySink

_OF_COLUMNS = (AddColumnEvent, DropColumnEvent, RenameColumnEvent, AlterColumnTypeEvent)
_LOAD_ANEW = "Load the table anew and skip the statement, or leave the table out by a filter."


class MemoryMetadataApplier:
    """A ``MetadataApplier``. The server counts how often each change took effect."""

    def __init__(self, sink: MemorySink) -> None:
        self._sink = sink

    def apply_schema_change(self, change: SchemaChange) -> tuple[Notice, ...]:
        """See ``MetadataApplier.apply_schema_change``."""
        with self._sink.server.called(Call.APPLY) as refused, self._sink.changing() as contents:
            if self._sink.ledger is not None:
                self._sink.ledger.prove()  # as a real sink's session for schema changes does
            if refused:
                raise SchemaChangeRefused(Problem(change.table_id, "the simulated server does not feel like it."))
            _apply(contents, change)
            self._sink.count(contents)
        return ()

    def run_instead(self, change: SchemaChange, statement: str) -> tuple[Notice, ...]:
        """See ``MetadataApplier.run_instead``."""
        with self._sink.server.called(Call.APPLY) as refused, self._sink.changing() as contents:
            if self._sink.ledger is not None:
                self._sink.ledger.prove()
            try:
                if refused:
                    raise ValueError("it does not feel like it")
                execute(contents, statement)
            except (KeyError, ValueError) as error:
                raise SchemaChangeRefused(Problem(change.table_id, f"the simulated server refused {statement}: {error}.")) from None
            self._sink.count(contents)
        return ()

    def describe(self, table_id: TableId) -> TableDescription | None:
        """See ``MetadataApplier.describe``."""
        with self._sink.server.called(Call.DESCRIBE):
            contents = self._sink.seen
            if table_id.is_database:
                held = any(t.database == table_id.database for t in contents.tables)
                return TableDescription(table_id, (), held) if table_id.database in contents.databases else None
            table = contents.tables.get(table_id)
            return TableDescription(table_id, tuple(table.columns), bool(table.rows)) if table else None

    def state_before(self, change: SchemaChange) -> str:
        """The whole contents."""
        with self._sink.server.called(Call.FINGERPRINT):
            return base64.b64encode(pickle.dumps(self._sink.seen.copy())).decode()

    def begun(self, change: SchemaChange, state_before: str) -> Begun:
        """Compares with what the change would make of the former tables.

        A swap of two tables of the same shape shows only in their rows.
        """
        with self._sink.server.called(Call.FINGERPRINT):
            if any(isinstance(event, TruncateTableEvent) for event in change.events):
                return Begun.REPEATABLE
            if not state_before:
                return Begun.UNCLEAR
            former: Contents = pickle.loads(base64.b64decode(state_before))
            after = former.copy()
            try:
                for event in change.events:
                    apply_event(after, event)
            except (KeyError, ValueError):
                return Begun.ABSENT  # it could not have run
            was, then, now = (shown(contents, change) for contents in (former, after, self._sink.seen))
            if was == then:
                return Begun.REPEATABLE
            return Begun.DONE if now == then else Begun.ABSENT if now == was else Begun.UNCLEAR

    def keeps_unique(self, change: SchemaChange) -> str:
        """See ``MetadataApplier.keeps_unique``."""
        with self._sink.server.called(Call.DESCRIBE):
            return ""  # its tables have no key other than the handle key


class MemoryLongApplier(MemoryMetadataApplier):
    """Also a ``LongChanges``: a started change runs until ``Server.finish`` is called."""

    def runs_long(self, change: SchemaChange) -> bool:
        """See ``LongChanges.runs_long``."""
        return bool(change.events) and all(isinstance(event, _OF_COLUMNS) for event in change.events)

    def start(self, change: SchemaChange, handle: str) -> None:
        """See ``LongChanges.start``. A second start of a change is an error, whatever its handle."""
        with self._sink.server.called(Call.APPLY) as refused, self._sink.changing() as contents:
            if self._sink.ledger is not None:
                self._sink.ledger.prove()
            if refused:
                raise SchemaChangeRefused(Problem(change.table_id, "the simulated server does not feel like it."))
            assert handle not in contents.jobs, f"{handle} is known"
            running = [job for job in contents.jobs.values() if job.change.identity == change.identity and not job.failed]
            assert not running, f"{change.statement} was started before"
            contents.jobs[handle] = Job(change)
            self._sink.count(contents)

    def poll(self, change: SchemaChange, handle: str) -> LongChange:
        """See ``LongChanges.poll``."""
        with self._sink.server.called(Call.DESCRIBE):
            job = self._sink.seen.jobs.get(handle)
            if job is None:
                return LongChange.ABSENT
            if job.failed:
                raise SchemaChangeRefused(Problem(change.table_id, "the simulated server gave it up."))
            return LongChange.DONE if job.done else LongChange.RUNNING


def _apply(contents: Contents, change: SchemaChange) -> None:
    """Applies the change and counts whether it had an effect. Raises SchemaChangeRefused."""
    if any(isinstance(event, OtherEvent) for event in change.events) and changes_rows_unseen(change.statement, change.database):
        message = f"{change.statement} changes rows that no change event tells, and the simulated server cannot run it."
        raise SchemaChangeRefused(Problem(change.table_id, message, place=change.origin, hint=_LOAD_ANEW, remedy=Remedy.RESYNC))
    before = contents.copy()
    try:
        for event in change.events:
            apply_event(contents, event)
    except (KeyError, ValueError) as error:
        raise SchemaChangeRefused(Problem(change.table_id, f"{change.statement} is impossible here: {error}")) from None
    changed = (before.databases, before.tables) != (contents.databases, contents.tables)
    contents.effects[change.identity] += changed
