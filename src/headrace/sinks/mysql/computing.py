"""Refuses statements with which the server would compute for minutes, at once or for each written row, and could not be interrupted
by KILL."""

from __future__ import annotations

from headrace.ddl.computing import excess
from headrace.model.events import AddColumnEvent, AlterColumnTypeEvent, CreateTableEvent, SchemaChange
from headrace.model.table import Column
from headrace.model.types import MOST_COMPARED, compared, too_many_compared
from headrace.sinks.mysql.statements import refused, shown

_HINT = (
    "If you trust it, run the statement as it is by headrace ddl edit. Else edit it: without the expression, and with a STORED"
    " column as a plain one, whose values the files bring."
)
_HINT_OF_MEMBERS = "Make the change by hand, with a VARCHAR column in place of such an ENUM or SET, and skip it."


def refuse_long_computing(change: SchemaChange) -> None:
    """Raises SchemaChangeRefused for an expression that may create, or search, much longer texts than the row has."""
    why = "" if change.by_shape else excess(change.statement, change.schema)
    if why:
        raise refused(change, f"the target would compute for long for each row, because {why}: {shown(change)}.", _HINT)


def refuse_many_members(change: SchemaChange) -> None:
    """Raises SchemaChangeRefused if the columns that the change defines have too many members of ENUM and SET.

    The grammar bounds what a statement defines. This bounds what is made from shapes.
    """
    columns: list[Column] = []
    for event in change.events:
        match event:
            case CreateTableEvent(schema=schema):
                columns += schema.columns
            case AddColumnEvent(column=column) | AlterColumnTypeEvent(column=column):
                columns.append(column)
            case _:
                pass
    if sum(compared(column.type.elements) for column in columns) > MOST_COMPARED:
        message = f"the target would compute for long, because {too_many_compared()}: {shown(change)}."
        raise refused(change, message, _HINT_OF_MEMBERS)
