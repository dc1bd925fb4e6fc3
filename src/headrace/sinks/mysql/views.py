"""The cost of reading a source's view: if views on views each name another view twice, the cost doubles with each level."""

from __future__ import annotations

from headrace.ddl.grammar.statements import Judgement, judge
from headrace.ddl.grammar.views import MOST_READ
from headrace.model.events import SchemaChange
from headrace.model.table import TableId
from headrace.sinks.mysql import catalogue
from headrace.sinks.mysql.connection import MySqlSession
from headrace.sinks.mysql.statements import refused


def refuse_exploding_view(session: MySqlSession, change: SchemaChange) -> None:
    """Raises SchemaChangeRefused for a view with too many tables and SELECTs, through the views that it reads."""
    view = judge(change.statement, change.database)
    if _size(session, view, MOST_READ, frozenset((change.table_id,))) > MOST_READ:
        message = f"the view has more than {MOST_READ} tables and SELECTs, with those of each view that it reads."
        hint = "The server would read all of them at once. Make the view by hand and skip the change, or edit it."
        raise refused(change, message, hint)


def _size(session: MySqlSession, view: Judgement, most: int, above: frozenset[TableId]) -> int:
    """The number of tables and SELECTs of a view, counted up to a little more than ``most``. A recursive view counts as all."""
    if len(above) > most or above.intersection(view.occurrences):
        return most + 1
    count = view.queries
    for name in view.occurrences:
        query = "" if count > most else catalogue.view_query(session, name)
        inner = judge(f"CREATE VIEW v AS {query}", name.database) if query else Judgement()
        count += _size(session, inner, most, above | {name}) if inner.queries else 1
    return count
