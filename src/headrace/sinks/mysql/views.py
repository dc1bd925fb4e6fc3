"""The cost of reading a source's view: if views on views each name another view twice, the cost doubles with each level."""

from __future__ import annotations

from headrace.ddl.grammar.statements import judge
from headrace.model.events import SchemaChange
from headrace.model.table import TableId
from headrace.sinks.mysql import catalogue
from headrace.sinks.mysql.connection import MySqlSession
from headrace.sinks.mysql.statements import refused

_MOST_TABLES = 61
"""The maximum number of tables in a join on MySQL and MariaDB."""


def refuse_exploding_view(session: MySqlSession, change: SchemaChange) -> None:
    """Raises SchemaChangeRefused for a view that reads more than 61 tables through other views."""
    reads = judge(change.statement, change.database).occurrences
    if _tables_of(session, reads, _MOST_TABLES, frozenset((change.table_id,))) > _MOST_TABLES:
        message = f"the view reads more than {_MOST_TABLES} tables, through the views that it reads."
        hint = "The server would read all of them at once. Make the view by hand and skip the change, or edit it."
        raise refused(change, message, hint)


def _tables_of(session: MySqlSession, reads: tuple[TableId, ...], most: int, above: frozenset[TableId]) -> int:
    """The number of tables read through these names, counted up to a little more than ``most``. A recursive view counts as all."""
    if len(above) > most or above.intersection(reads):
        return most + 1
    count = 0
    for name in reads:
        query = "" if count > most else catalogue.view_query(session, name)
        inner = judge(f"CREATE VIEW v AS {query}", name.database).occurrences if query else ()
        count += _tables_of(session, inner, most, above | {name}) if inner else 1
    return count
