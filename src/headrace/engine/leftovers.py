"""What a schema change that never ran here left in the target, where it conflicts with a change that brings the same name back.

A DROP that was skipped, or not written by the changefeed, leaves the rows of a table or the values of a column. The source starts
without any when it creates the table, or adds the column, again.
"""

from __future__ import annotations

from collections.abc import Callable

from headrace.ddl.column_effects import is_added_if_absent
from headrace.ddl.statement import StatementKind, read_statement
from headrace.model.commands import in_quotes
from headrace.model.events import (
    AddColumnEvent,
    CreateTableEvent,
    DropColumnEvent,
    RenameColumnEvent,
    RenameTableEvent,
    SchemaChange,
)
from headrace.model.ledger import LedgerState
from headrace.model.outcome import Problem
from headrace.model.table import TableId, folded_name
from headrace.sinks.metadata_applier import TableDescription

Describe = Callable[[TableId], TableDescription | None]


def leftovers(change: SchemaChange, state: LedgerState, describe: Describe) -> Problem | None:
    """The problem if a change must not run because the target already has its table or column, with earlier rows or values.

    Only for changes that were not begun.
    """
    return _rows_of_before(change, state, describe) or _values_of_before(change, describe)


def rows_under_skip(change: SchemaChange, state: LedgerState, describe: Describe) -> Problem | None:
    """The problem if a policy must not skip a CREATE: the target's rows are those of a former table, or from before a reset."""
    for table_id in (event.table_id for event in change.events if isinstance(event, CreateTableEvent)):
        present = describe(table_id) if _is_gone(state, table_id) else None
        if present is not None and present.has_rows:
            message = (
                f"the source creates it at {change.commit_ts}, which is skipped, but the target still has the table, with rows "
                "from before."
            )
            hint = f"Empty the table. If its rows are the source's, run headrace ddl skip {in_quotes(change.identity)}."
            return Problem(table_id, message, place=change.origin, hint=hint)
    return None


def _rows_of_before(change: SchemaChange, state: LedgerState, describe: Describe) -> Problem | None:
    """For a table that the pipeline had, or one without key: the source's rows would be added to the existing ones.

    For other tables, the target decides. A mere shape shows the beginning of a table only if the former table is gone.
    """
    begins = read_statement(change.statement, change.database).kind is StatementKind.CREATE_TABLE
    for table_id in (event.table_id for event in change.events if isinstance(event, CreateTableEvent)):
        had = _had(state, table_id, change.commit_ts) if begins else _is_gone(state, table_id)
        counts = begins and change.commit_ts > state.start and change.schema is not None and not change.schema.handle_key
        present = describe(table_id) if had or counts else None
        if present is not None and counts and not had and present.has_rows:
            message = f"the source creates it at {change.commit_ts}, without a key, and the target has it with rows."
            hint = (
                "The source's rows would be added to them, so it is not adopted. Drop it in the target; Headrace then creates it."
            )
            return Problem(table_id, message, place=change.origin, hint=hint)
        if present is not None and had and (begins or present.has_rows):
            rows = "with rows from before" if present.has_rows else "from before, with the columns and keys that it had then"
            was_reset = ", or it was reset" if _stands_before_another(state, table_id) else ""
            message = (
                f"the source creates it at {change.commit_ts}, and the target still has it {rows}: its DROP never ran "
                f"here{was_reset}."
            )
            hint = "If it is the former table, drop it in the target; Headrace then creates the new one."
            return Problem(table_id, message, place=change.origin, hint=hint)
    return None


def _had(state: LedgerState, table_id: TableId, commit_ts: int) -> bool:
    """Whether the pipeline has or had a table of that name, in any case."""
    name = table_id.folded
    if any(row.is_made or row.status.is_gone or row.again for row in state.by_folded_name.get(name, ())):
        return True
    # In the row that an older Headrace wrote for a table that stopped before its CREATE, no former table shows.
    earlier = (entry for (at, _), entries in state.settled.items() if at < commit_ts for entry in entries)
    return any(t.folded == name for entry in earlier for t in entry.tables)


def _stands_before_another(state: LedgerState, table_id: TableId) -> bool:
    row = state.tables.get(table_id)
    return row is not None and row.again and not row.status.is_gone


def _is_gone(state: LedgerState, table_id: TableId) -> bool:
    return any(row.status.is_gone or row.again for row in state.by_folded_name.get(table_id.folded, ()))


_ADDED = "Drop the column in the target; Headrace then adds it. Or skip the change, if the values are the source's."
_IF_ABSENT = (
    "The statement adds it only if it does not exist. If the source had the column before, the values are right: make the other "
    "changes of the statement in the target, and skip it. If the column is new, drop it in the target; Headrace then adds it."
)


def _values_of_before(change: SchemaChange, describe: Describe) -> Problem | None:
    added = [event for event in change.events if isinstance(event, AddColumnEvent)]
    former = {event.new_table_id: event.table_id for event in change.events if isinstance(event, RenameTableEvent)}
    freed = {folded_name(e.column_name) for e in change.events if isinstance(e, DropColumnEvent)}
    freed |= {folded_name(e.old_name) for e in change.events if isinstance(e, RenameColumnEvent)}
    for table_id in dict.fromkeys(event.table_id for event in added):
        present = describe(former.get(table_id, table_id))
        if present is None:
            continue
        there = {folded_name(name) for name in present.columns} - freed
        for event in added:
            if event.table_id == table_id and folded_name(event.column.name) in there:
                message = (
                    f"the source adds the column at {change.commit_ts}, but the target already has it, with values from before: "
                    "its DROP never ran here, or somebody else added it."
                )
                is_optional = is_added_if_absent(change.statement, change.database, event.column.name)
                hint = _IF_ABSENT if is_optional else _ADDED
                return Problem(table_id, message, place=change.origin, column=event.column.name, hint=hint)
    return None
