"""Values that a statement gives to existing rows and that would differ from the source's, since no event carries them."""

from __future__ import annotations

from headrace.ddl.defaults import computed_default, is_mangled, is_time_of_statement
from headrace.ddl.statement import read_statement
from headrace.model.events import AddColumnEvent, AlterColumnTypeEvent, SchemaChange
from headrace.model.outcome import Notice, Problem, Remedy
from headrace.model.table import Column, folded_name
from headrace.model.types import CHARACTER_KINDS, TypeKind
from headrace.sinks.metadata_applier import SchemaChangeRefused
from headrace.sinks.mysql import catalogue
from headrace.sinks.mysql.column_fit import held_columns
from headrace.sinks.mysql.connection import MySqlSession
from headrace.sinks.mysql.text import quote_name
from headrace.sinks.mysql.type_changes import converted_otherwise
from headrace.sinks.mysql.types import qualified
from headrace.sinks.mysql.zones import NAME_THE_ZONE

_LOAD_ANEW = "Load the table anew with that column and skip the statement, or leave the table out by a filter."


def refuse_unseen_values(session: MySqlSession, change: SchemaChange, time_zone: str) -> list[Notice]:
    """Raises SchemaChangeRefused for values that cannot be determined. Returns notices about values that are only approximate.

    ``time_zone`` is the one in the sink's URI; if it is empty, statements run in UTC.
    """
    events = [event for event in change.events if isinstance(event, (AddColumnEvent, AlterColumnTypeEvent))]
    present = catalogue.describe(session, change.table_id) if events else None
    if present is None or present.is_view or not present.has_rows:
        return []
    notices: list[Notice] = []
    for event in events:
        if isinstance(event, AddColumnEvent):
            notices.extend(_of_added(session, change, event.column, time_zone))
        else:
            _of_altered(session, change, event, time_zone)
    return notices


def _of_added(session: MySqlSession, change: SchemaChange, column: Column, time_zone: str) -> list[Notice]:
    function = computed_default(read_statement(change.statement, change.database), column.name)
    if function:
        message = f"the source computed {function} for each row that existed, and no event contains the results."
        raise _refused(change, message, _LOAD_ANEW, remedy=Remedy.RESYNC)
    if is_mangled(column) and not session.is_tidb:
        message = "its default has bytes that are no text: which ones TiDB shows in its rows depends on its release."
        raise _refused(change, message, _LOAD_ANEW, column.name, Remedy.RESYNC)
    if column.type.kind is TypeKind.VECTOR and not column.nullable and column.default is None and not session.is_tidb:
        message = "TiDB put a vector of its own choice into the rows that were there: which one depends on its release."
        raise _refused(change, message, _LOAD_ANEW, column.name, Remedy.RESYNC)
    if not is_time_of_statement(column):
        return []
    zone = "UTC" if column.type.kind is TypeKind.TIMESTAMP else time_zone or "UTC; time-zone in the sink's URI names another zone"
    message = (
        f"column {column.name} of the rows that existed holds the time of the schema change ({zone}): the source used the time at "
        "which its statement began, which no file records."
    )
    return [Notice(message, change.table_id)]


def _of_altered(session: MySqlSession, change: SchemaChange, event: AlterColumnTypeEvent, time_zone: str) -> None:
    old, new = event.old_column, event.column
    kinds = {old.type.kind, new.type.kind}
    if TypeKind.TIMESTAMP in kinds and len(kinds) > 1 and not time_zone:
        message = f"TiDB converts {old.type} to {new.type} in the time zone of the session, which no file records."
        raise _refused(change, message, NAME_THE_ZONE, new.name)
    becomes_now = new.type.kind is TypeKind.TIMESTAMP and old.type.kind is not TypeKind.TIMESTAMP and not new.nullable
    if becomes_now and old.nullable and _has_nulls(session, change, old):
        message = "TiDB put the time into the rows that had NULL, and no event shows which rows those are."
        raise _refused(change, message, _LOAD_ANEW, new.name, Remedy.RESYNC)

    held = held_columns(session, change.table_id).get(folded_name(old.name))
    if held is not None and _is_of_other_kind(held.kind, old.type.kind):
        message = (
            f"the target's column is {held}, where the source had {old.type}: its values may become different from the source's."
        )
        raise _refused(change, message, _LOAD_ANEW, new.name, Remedy.RESYNC)
    condition = None if session.is_tidb else converted_otherwise(old.type, new.type, quote_name(old.name))
    if condition is not None and _has_rows(session, change, condition):
        message = f"this server converts some of the column's values from {old.type} to {new.type} differently from TiDB."
        raise _refused(change, message, _LOAD_ANEW, new.name, Remedy.RESYNC)


def _is_of_other_kind(held: str, kind: TypeKind) -> bool:
    """Whether the column's type was not changed before. A text is the same in each type for texts."""
    texts = CHARACTER_KINDS | {TypeKind.JSON, TypeKind.VECTOR}
    return held != kind and not (held in texts and (kind in texts or kind in (TypeKind.ENUM, TypeKind.SET)))


def _has_nulls(session: MySqlSession, change: SchemaChange, column: Column) -> bool:
    return _has_rows(session, change, f"{quote_name(column.name)} IS NULL")


def _has_rows(session: MySqlSession, change: SchemaChange, condition: str) -> bool:
    return session.finds(f"SELECT 1 FROM {qualified(change.table_id)} WHERE {condition} LIMIT 1")


def _refused(
    change: SchemaChange, message: str, hint: str, column: str = "", remedy: Remedy = Remedy.REPAIR
) -> SchemaChangeRefused:
    return SchemaChangeRefused(Problem(change.table_id, message, place=change.origin, column=column, hint=hint, remedy=remedy))
