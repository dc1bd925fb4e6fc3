"""Refuses statements with which the server would compute for minutes for each written row, and could not be interrupted by KILL."""

from __future__ import annotations

from headrace.ddl.computing import excess
from headrace.model.events import SchemaChange
from headrace.sinks.mysql.statements import refused, shown

_HINT = (
    "If you trust it, run the statement as it is by headrace ddl edit. Else edit it: without the expression, and with a STORED"
    " column as a plain one, whose values the files bring."
)


def refuse_long_computing(change: SchemaChange) -> None:
    """Raises SchemaChangeRefused for an expression that may create, or search, much longer texts than the row has."""
    why = "" if change.by_shape else excess(change.statement, change.schema)
    if why:
        raise refused(change, f"the target would compute for long for each row, because {why}: {shown(change)}.", _HINT)
