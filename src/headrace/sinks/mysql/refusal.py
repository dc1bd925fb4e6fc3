"""Describes what the server refused as a problem: table, column, value, the error and what to do."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa
import pymysql

from headrace.errors import HeadraceError, TerminalError
from headrace.model.containment import unforeseen
from headrace.model.outcome import Problem
from headrace.model.table import Column, TableId, TableSchema
from headrace.model.types import CHARACTER_KINDS, TypeKind
from headrace.sinks.mysql import denied
from headrace.sinks.mysql.connection import MySqlSession
from headrace.sinks.mysql.local_infile import PACKET_TOO_LARGE
from headrace.sinks.mysql.server_errors import ErrorClass, classify, error_code, error_text
from headrace.sinks.mysql.text import quote_name
from headrace.sinks.mysql.types import qualified
from headrace.sinks.refused_row import row_name

_COLUMN = re.compile(r"column (?:(?:`[^`]*`\.)*`(?P<quoted>[^`]+)`|'(?P<plain>[^']+)')", re.IGNORECASE)
_CONSTRAINED = re.compile(r"CONSTRAINT `(?:[^`]*\.)?(?P<quoted>[^`]+)`(?P<plain>) failed")
_ROW = re.compile(r"at row (\d+)")
# Warnings that are not about the data: deprecated syntax, statements that are unsafe with binlog_format=STATEMENT.
_HARMLESS = frozenset({1287, 1592, 1681, 3719, 3778})
_NO_TABLE = frozenset({1049, 1146})
_UNKNOWN_COLUMN = 1054
_GRANT_IT = "Grant it to the user of the sink's URI; headrace validate says which rights are needed."
_DENIED = frozenset({1044, 1142, 1143, 1227})
_CONSTRAINT, _TRUNCATED, _INCORRECT = 4025, 1265, 1366
_ENTRY_TOO_LARGE = 8025
_JSON_LEVELS = 32
_STRINGS = re.compile(r'"(?:[^"\\]|\\.)*"')
_REFUSED_VALUE = frozenset({1048, 1264, 1265, 1292, 1366, 1406, 1411, 3140, 3157, 4025, 1526})


class Refused(Exception):
    """The server does not accept a table's rows. Carries the problem to report. ``by_value``: because of a value in one of them."""

    def __init__(self, problem: Problem, *, by_value: bool = False) -> None:
        super().__init__(problem.message)
        self.problem = problem
        self.by_value = by_value


class Unforeseen(Refused):
    """An unexpected error with a table's rows. The state of the session is unknown, so it must be abandoned."""


@contextmanager
def of_one_table(table_id: TableId, session: MySqlSession | None) -> Iterator[None]:
    """Wraps the work on one table of the source, on the session if there is one.

    Raises Refused if the server refuses a statement, and Unforeseen for unexpected errors. Errors of the connection or of the run
    pass unchanged.
    """
    try:
        yield
    except (Refused, HeadraceError, OSError):
        raise
    except pymysql.err.MySQLError as error:
        if classify(error) is ErrorClass.REFUSED:
            raise from_error(error, table_id, session) from None
        raise
    except Exception as error:
        raise Unforeseen(unforeseen(error, table_id)) from error


def from_error(
    error: Exception,
    table_id: TableId,
    session: MySqlSession | None,
    rows: pa.Table | None = None,
    schema: TableSchema | None = None,
) -> Refused:
    """The problem behind an error of this session.

    ``rows`` are those of the statement, used to look up the value of a row number in the error.
    """
    code = error_code(error)
    if code in _DENIED:
        hint = denied.to_grant(session, error, [table_id.database]) or _GRANT_IT
        return Refused(Problem(table_id, f"the target's user lacks a privilege: {error_text(error)}.", hint=hint))
    return Refused(_problem(code, error_text(error), table_id, _Sent(rows, schema)), by_value=code in _REFUSED_VALUE)


def from_warnings(session: MySqlSession, table_id: TableId, rows: pa.Table, schema: TableSchema) -> Refused | None:
    """The problem behind the warnings of the last statement; ``None`` if they are not about the data."""
    for _, code, message in session.execute("SHOW WARNINGS"):
        if code not in _HARMLESS:
            problem = _problem(int(str(code)), f"{message} (warning {code})", table_id, _Sent(rows, schema))
            return Refused(problem, by_value=code in _REFUSED_VALUE)
    return None


def of_ledger(error: Exception, session: MySqlSession | None, ledger: str) -> TerminalError:
    """The error to raise if the server refuses a statement on the ledger, whose database is ``ledger``."""
    hint = "Was a table of the ledger changed by hand?"
    if error_code(error) in _DENIED:
        hint = denied.to_grant_on_ledger(session, error, ledger) or _GRANT_IT
    return TerminalError(f"The target refused a statement on the ledger: {error_text(error)}.", hint)


@dataclass(frozen=True)
class _Sent:
    """The rows of a statement, if they are known."""

    rows: pa.Table | None
    schema: TableSchema | None

    def column(self, name: str) -> Column | None:
        if self.rows is None or self.schema is None or not self.schema.has_column(name):
            return None
        return self.schema.column(name)

    def refused(self, code: int, text: str, column: Column | None) -> int | None:
        """The number of the row to which an error refers."""
        if self.rows is None or column is None:
            return None
        found = _ROW.search(text)
        if found is not None:
            number = int(found[1]) - 1
            return number if 0 <= number < self.rows.num_rows else None
        if code == _CONSTRAINT and column.type.kind is TypeKind.JSON:
            documents = self.rows.column(column.name).to_pylist()
            return next((n for n, text in enumerate(documents) if text is not None and _depth(text) > _JSON_LEVELS), None)
        return None

    def largest(self) -> tuple[int | None, int]:
        """The number of the largest row and its size in bytes; ``None`` if the rows are not known."""
        if self.rows is None:
            return None, 0
        sizes = [self.rows.slice(number, 1).nbytes for number in range(self.rows.num_rows)]
        return max(enumerate(sizes), key=lambda numbered: numbered[1])

    def value(self, number: int | None, column: Column | None) -> str | None:
        if self.rows is None or number is None or column is None:
            return None
        value = self.rows.column(column.name)[number].as_py()
        return None if value is None else str(value)

    def name(self, number: int | None) -> str:
        if self.rows is None or self.schema is None or number is None:
            return ""
        return row_name(self.rows, number, self.schema.handle_key)


def _problem(code: int, text: str, table_id: TableId, sent: _Sent) -> Problem:
    found = _COLUMN.search(text) or (_CONSTRAINED.search(text) if code == _CONSTRAINT else None)
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
    if code in (_ENTRY_TOO_LARGE, PACKET_TOO_LARGE):
        return _too_large(code, text, table_id, sent)
    if code not in _REFUSED_VALUE:
        return Problem(table_id, f"the target refused the rows: {text}.", column=column)
    known = sent.column(column)
    number = sent.refused(code, text, known)
    value = sent.value(number, known)
    return Problem(
        table_id,
        f"the target refused a value: {text}.",
        row=sent.name(number),
        column=column,
        value=value,
        hint=_hint(code, table_id, known, value),
    )


def _too_large(code: int, text: str, table_id: TableId, sent: _Sent) -> Problem:
    if code == _ENTRY_TOO_LARGE:
        hint = "Set GLOBAL tidb_txn_entry_size_limit, and raft-entry-max-size of TiKV, to what the source has."
        return Problem(table_id, f"the target refused a row for its size: {text}.", hint=hint)
    number, size = sent.largest()
    return Problem(
        table_id,
        f"a row{f' of {size} bytes' if size else ''} is too large for the target: {text}.",
        row=sent.name(number),
        hint=f"SET GLOBAL max_allowed_packet = {_packet_for(size)} in the target, and the same setting in the "
        f"server's configuration, let it pass.",
    )


def _hint(code: int, table_id: TableId, column: Column | None, value: str | None) -> str:
    kind = column.type.kind if column is not None else None
    if kind in (TypeKind.ENUM, TypeKind.SET) and code == _TRUNCATED:
        if value == "":
            return (
                "It is what TiDB keeps for a value that is not a member; MariaDB and MySQL never accept it. Give the row a member "
                "in the source, or add '' to the members of the target's column."
            )
        return "Give the target's column the members of the source's."
    if column is not None and kind is TypeKind.JSON and code == _CONSTRAINT:
        return (
            f"MariaDB checks JSON, and takes at most {_JSON_LEVELS} levels. Drop the check in the target: ALTER TABLE "
            f"{qualified(table_id)} MODIFY {quote_name(column.name)} LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin."
        )
    if code == _INCORRECT and kind in CHARACTER_KINDS | {TypeKind.ENUM, TypeKind.SET}:
        return "Give the target's column a character set that holds it, such as utf8mb4."
    return "Make the target's column as wide as the source's."


def _packet_for(size: int) -> int:
    """A max_allowed_packet for a row of this many bytes: in a statement, characters are escaped and each byte is two digits."""
    return min(1 << 30, max(16 << 20, 1 << (2 * size + 1024).bit_length()))


def _depth(document: str) -> int:
    """The nesting depth of a JSON text."""
    depth = deepest = 0
    for sign in _STRINGS.sub("", document):
        depth += (sign in "[{") - (sign in "]}")
        deepest = max(deepest, depth)
    return deepest
