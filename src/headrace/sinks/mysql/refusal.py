"""What the server refused, told as a problem: table, column, value, what is wrong and what to do."""

from __future__ import annotations

import re

import pyarrow as pa

from headrace.model.outcome import Problem
from headrace.model.table import TableId
from headrace.sinks.mysql.connection import MySqlSession, error_code, error_text

_COLUMN = re.compile(r"column (?:(?:`[^`]*`\.)*`(?P<quoted>[^`]+)`|'(?P<plain>[^']+)')", re.IGNORECASE)
_ROW = re.compile(r"at row (\d+)")
# Warnings about the server's habits, not about the data: deprecated syntax, statements that binlog_format=STATEMENT dislikes.
_HARMLESS = frozenset({1287, 1592, 1681, 3719, 3778})
_NO_TABLE = frozenset({1049, 1146})
_UNKNOWN_COLUMN = 1054
_DENIED = frozenset({1044, 1142, 1143, 1227})
_REFUSED_VALUE = frozenset({1048, 1264, 1265, 1292, 1366, 1406, 1411, 3140, 3157, 4025, 1526})


class Refused(Exception):
    """The server will not take a table's rows; carries the problem to report."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.message)
        self.problem = problem


def from_error(error: Exception, table_id: TableId, rows: pa.Table | None = None) -> Refused:
    """The problem behind an error; ``rows`` are those of the statement, to look the value up that it names by row number."""
    return Refused(_problem(error_code(error), error_text(error), table_id, rows))


def from_warnings(session: MySqlSession, table_id: TableId, rows: pa.Table) -> Refused | None:
    """The problem behind the warnings of the last statement; ``None`` when they do not concern the data."""
    for _, code, message in session.execute("SHOW WARNINGS"):
        if code not in _HARMLESS:
            return Refused(_problem(int(str(code)), f"{message} (warning {code})", table_id, rows))
    return None


def _problem(code: int, text: str, table_id: TableId, rows: pa.Table | None) -> Problem:
    found = _COLUMN.search(text)
    column = (found["quoted"] or found["plain"]) if found else ""
    if code in _NO_TABLE:
        return Problem(
            table_id,
            f"the target has no such table: {text}.",
            hint="Was it dropped by hand? Create it again with the rows it had when it stopped.",
        )
    if code == _UNKNOWN_COLUMN:
        return Problem(
            table_id,
            f"the target's table lacks a column that the source has: {text}.",
            column=column,
            hint="Add it again, as the source defines it, with its values for the rows that are there.",
        )
    if code in _DENIED:
        return Problem(table_id, f"the target's user lacks a privilege: {text}.", hint="Grant it to the user of the sink's URI.")
    return Problem(
        table_id,
        f"the target refused a value: {text}." if code in _REFUSED_VALUE else f"the target refused the rows: {text}.",
        column=column,
        value=_value(text, column, rows),
        hint="Make the target's column as wide as the source's." if code in _REFUSED_VALUE else "",
    )


def _value(text: str, column: str, rows: pa.Table | None) -> str | None:
    found = _ROW.search(text)
    if rows is None or found is None:
        return None
    row = int(found[1]) - 1
    name = next((name for name in rows.column_names if name.casefold() == column.casefold()), None)
    if name is None or not 0 <= row < rows.num_rows:
        return None
    value = rows.column(name)[row].as_py()
    return None if value is None else str(value)
