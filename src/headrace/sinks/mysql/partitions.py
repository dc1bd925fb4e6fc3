"""Statements that empty or exchange a partition, on servers that put other rows into a partition than TiDB does.

TiDB has its own hash for KEY and takes LINEAR HASH for plain HASH; rows whose HASH expression is NULL are in its first
partition (MariaDB 10.11, tried: in another one, depending on the type). RANGE, LIST and HASH of other values agree.
"""

from __future__ import annotations

from headrace.ddl.statement import read_statement
from headrace.model.events import DeletePartitionRowsEvent, ExchangePartitionEvent, SchemaChange
from headrace.model.outcome import Problem, Remedy
from headrace.model.table import TableId
from headrace.sinks.base import SchemaChangeRefused
from headrace.sinks.mysql import catalogue
from headrace.sinks.mysql.connection import MySqlSession
from headrace.sinks.mysql.types import qualified

_BY_CONTENT = frozenset({"TRUNCATE", "EXCHANGE"})


def same_rows(session: MySqlSession, change: SchemaChange, statement: str) -> str:
    """The statement, or another one that has the source's effect on rows. Raises SchemaChangeRefused where there is none."""
    read = read_statement(change.statement, change.database)
    named = [action for action in read.actions if len(action) > 1 and action[1].says("PARTITION")]
    if session.is_tidb or not any(action[0].text.upper() in _BY_CONTENT for action in named):
        return statement
    table_id = read.tables[0]
    method, expression = catalogue.partitioning(session, table_id)
    if method.startswith(("RANGE", "LIST")) or not method:
        return statement
    if method == "HASH":
        tables = {table_id} | {event.other for event in change.events if isinstance(event, ExchangePartitionEvent)}
        if not any(_has_null(session, table, expression) for table in tables):
            return statement
        deleted = [event for event in change.events if isinstance(event, DeletePartitionRowsEvent)]
        if deleted and len(deleted) == len(change.events) == len(read.actions):
            conditions = " OR ".join(f"({event.condition})" for event in deleted)
            return f"DELETE FROM {qualified(table_id)} WHERE {conditions}"
    message = f"the target puts other rows than TiDB into a partition by {method}, so the statement would hit the wrong ones."
    hint = "Load the table anew and skip the statement, or partition the table in the target by RANGE or LIST."
    raise SchemaChangeRefused(Problem(change.table_id, message, file=change.origin, hint=hint, remedy=Remedy.RESYNC))


def _has_null(session: MySqlSession, table_id: TableId, expression: str) -> bool:
    return session.finds(f"SELECT 1 FROM {qualified(table_id)} WHERE ({expression}) IS NULL LIMIT 1")
