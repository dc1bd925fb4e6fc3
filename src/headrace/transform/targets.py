"""Maps a table of the source to its table in the target: every table keeps its name. A mapping by routes belongs here."""

from __future__ import annotations

from dataclasses import replace

from headrace.model.table import TableId, TableSchema


def target_of(table_id: TableId) -> TableId:
    """The target's table for a table of the source."""
    return table_id


def routed(schema: TableSchema) -> TableSchema | None:
    """The shape of the target's table for a table of the source; ``None`` if it is the source's shape under the same name."""
    target = target_of(schema.table_id)
    return None if target == schema.table_id else replace(schema, table_id=target)
