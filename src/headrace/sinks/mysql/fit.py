"""Whether the target's table takes the source's rows as they are. Asked once in a run for each table, before its first rows."""

from __future__ import annotations

from headrace.model.table import TableSchema
from headrace.sinks.mysql import handle
from headrace.sinks.mysql.column_fit import held_columns, refuse_misfits
from headrace.sinks.mysql.connection import MySqlSession
from headrace.sinks.mysql.settings import MySqlSettings


def require_fit(session: MySqlSession, schema: TableSchema, settings: MySqlSettings, *, replays: bool) -> None:
    """Raises refusal.Refused if the target's table would lose or change rows of this shape."""
    table_id = schema.table_id
    handle.refuse_views(session, table_id)
    handle.refuse_non_transactional(session, schema, allowed=settings.allow_non_transactional)
    handle.require_index(session, schema)
    columns = held_columns(session, table_id)
    handle.refuse_coarse_keys(session, table_id, columns.values())
    handle.refuse_changing_triggers(session, table_id, updates=replays)
    handle.refuse_zoned_columns(session, schema)
    handle.refuse_columns_computed_otherwise(session, schema)
    refuse_misfits(schema, columns)
