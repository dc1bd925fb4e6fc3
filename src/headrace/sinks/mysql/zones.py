"""Statements that have another meaning in the session's time zone than in the source's."""

from __future__ import annotations

from zoneinfo import ZoneInfoNotFoundError

from headrace.ddl.defaults import ZoneMismatch, zone_mismatch
from headrace.ddl.generated import first_defined
from headrace.ddl.zones import zoned_bound, zoned_columns
from headrace.model.events import SchemaChange
from headrace.model.outcome import Problem
from headrace.model.table import Column, Generated
from headrace.sinks.metadata_applier import SchemaChangeRefused

NAME_THE_ZONE = "Set time-zone in the sink's URI to the time zone of the session that ran the statement, also when that is UTC."
_STORED = (
    "Run the statement by headrace ddl edit with this column as a plain one, without GENERATED ALWAYS AS (…) STORED: the files"
    " bring its values."
)
_VIRTUAL = "Run the statement by headrace ddl edit without the column and its indexes: the files do not bring its values."


def refuse_other_zone(change: SchemaChange, time_zone: str) -> None:
    """Raises SchemaChangeRefused for a default, a partition bound or a generated column that would differ from the source's.

    ``time_zone`` is the one in the sink's URI; if it is empty, statements run in UTC. Rows are written in UTC in any case.
    """
    _refuse_default(change, time_zone)
    if not change.by_shape:  # a table created from its shape has neither partitions nor generated columns
        _refuse_bound(change, time_zone)
        _refuse_generated(change)


def _refuse_default(change: SchemaChange, time_zone: str) -> None:
    try:
        mismatch = zone_mismatch(change.statement, change.schema, time_zone or "+00:00")
    except ZoneInfoNotFoundError:
        return  # the server has it under a name of its own
    if mismatch is not None:
        raise _refused(change, mismatch.sentence(time_zone or "UTC"), ZoneMismatch.HINT, mismatch.column)


def _refuse_bound(change: SchemaChange, time_zone: str) -> None:
    bound = "" if time_zone else zoned_bound(change.statement)
    if bound:
        message = f"the bound {bound} of a partition depends on the time zone of the session, which no file records."
        raise _refused(change, message, NAME_THE_ZONE)


def _refuse_generated(change: SchemaChange) -> None:
    """Regardless of the URI's zone, which applies only to sessions for schema changes; other sessions write the rows."""
    schema = change.schema
    zoned = first_defined(change.statement, schema.table_id.database, zoned_columns(schema)) if schema is not None else None
    if zoned is None:
        return
    message = (
        f"generated column {zoned.column.name} depends on the time zone of the session that writes a row ({zoned.cause}), so that"
        " the target would compute other values than the source."
    )
    raise _refused(change, message, way_out(zoned.column), zoned.column.name)


def way_out(column: Column) -> str:
    """What to do about a statement with a generated column that the target would compute otherwise."""
    return _STORED if column.generated is Generated.STORED else _VIRTUAL


def _refused(change: SchemaChange, message: str, hint: str, column: str = "") -> SchemaChangeRefused:
    return SchemaChangeRefused(Problem(change.table_id, message, place=change.origin, column=column, hint=hint))
