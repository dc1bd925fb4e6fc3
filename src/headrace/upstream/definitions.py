"""Reads the definitions of all tables from a server: from a TiDB as they were at a commit ts, from others as they are."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass

import pymysql

from headrace import mysql_answers
from headrace.ddl.lexer import Cursor, words
from headrace.errors import SourceUnreachableError
from headrace.model.table import SYSTEM_DATABASES, TableId
from headrace.upstream.connection import CarefulConnection, code_and_text, connect, no_file_is_sent
from headrace.upstream.settings import Upstream

_UNKNOWN_VARIABLE = 1193
_NOT_SHOWN = frozenset({1033, 1142, 1146, 1194, 1286, 1932})
"""Codes of a table that the server cannot read or has no more, or whose definition this user may not see."""
_SHOWN = 200
_JSON_OF_MARIADB = re.compile(
    r"^(\s*`(?:[^`]|``)+`) longtext CHARACTER SET utf8mb4 COLLATE utf8mb4_bin(.*) CHECK \(json_valid\(`(?:[^`]|``)+`\)\)(,?)$", re.M
)
"""How MariaDB shows a column that was created as JSON, on a line of its own."""


@dataclass(frozen=True)
class NotShown:
    """A table whose definition the server does not show, or not exactly: bytes in a default, and members of ENUM or SET."""

    table_id: TableId
    reason: str
    """A clause."""


def definitions_at(upstream: Upstream, commit_ts: int) -> Iterator[tuple[str, str, str] | NotShown]:
    """What SHOW CREATE says of each database and each table, but for the server's own: its name, its database, and the statement.

    Raises SourceUnreachableError, also for definitions of more than :data:`headrace.mysql_answers.MOST_BYTES` together, and
    DefinitionError.
    """
    try:
        with closing(connect(upstream)) as connection:
            _go_back(connection, commit_ts)
            left = mysql_answers.MOST_BYTES
            for place, database, created in _shown(connection):
                left -= len(created) if isinstance(created, str) else len(created.reason)
                if left < 0:
                    raise _lost(f"the definitions have more than {mysql_answers.MOST_BYTES} bytes")
                yield (place, database, created) if isinstance(created, str) else created
    except (pymysql.err.MySQLError, OSError) as error:
        text = code_and_text(error)[1]
        raise SourceUnreachableError(
            f"schema-from: {upstream.place} does not show the definitions at {commit_ts}: {text}.",
            "Check the URI. If a TiDB does not keep that time any more, give the files of a dump of that time.",
        ) from None


def _shown(connection: CarefulConnection) -> Iterator[tuple[str, str, str | NotShown]]:
    for (name,) in _ask(connection, "SHOW DATABASES", 1):
        database = _name(name)
        if database.lower() in SYSTEM_DATABASES:
            continue
        yield database, database, _text_of_database(connection, database)
        for (named,) in _ask(connection, f"SHOW FULL TABLES FROM {_quoted(database)} WHERE Table_type = 'BASE TABLE'", 1):
            table = _name(named)
            yield f"{database}.{table}", database, _text_of_table(connection, TableId(database, table))


def _text_of_database(connection: CarefulConnection, database: str) -> str:
    try:
        return _created(connection, f"SHOW CREATE DATABASE {_quoted(database)}").decode()
    except UnicodeDecodeError:
        raise _lost(f"the definition of the database {database} is not UTF-8") from None


def _text_of_table(connection: CarefulConnection, table_id: TableId) -> str | NotShown:
    """The CREATE TABLE. Without one that is exact the table counts as not given."""
    try:
        created = _created(connection, f"SHOW CREATE TABLE {_quoted(table_id.database)}.{_quoted(table_id.table)}").decode()
    except UnicodeDecodeError:  # MariaDB shows the default of a BINARY column as its bytes
        return NotShown(table_id, "has bytes that are not UTF-8, as in the default of a BINARY column")
    except pymysql.err.MySQLError as error:
        code, text = code_and_text(error)
        if code in _NOT_SHOWN:
            return NotShown(table_id, f"is not shown (error {code}: {text[:_SHOWN]})")
        raise
    inexact = _why_inexact(created)
    return NotShown(table_id, inexact) if inexact else _JSON_OF_MARIADB.sub(r"\1 json\2\3", created)


def _why_inexact(created: str) -> str:
    """Why a CREATE TABLE cannot be used; empty if it can be read, and members of ENUM and SET are as the table has them.

    MySQL and MariaDB show members in utf8mb3, with a question mark for each byte or character that this does not have.
    """
    found = words(created)
    if found is None:
        return "cannot be read as a statement"
    cursor = Cursor(found)
    while not cursor.done:
        word = cursor.next()
        if (word.says("ENUM") or word.says("SET")) and any(m.is_text and "?" in m.text for m in cursor.group()):
            return "has a member of an ENUM or SET with a question mark, which may stand for another character"
    return ""


def _created(connection: CarefulConnection, statement: str) -> bytes:
    """The statement that a SHOW CREATE shows."""
    rows = _ask(connection, statement, 2)
    if len(rows) != 1:
        raise _lost(f"the answer to {statement} has {len(rows)} rows instead of one")
    return rows[0][1]


def _name(found: bytes) -> str:
    try:
        return found.decode()
    except UnicodeDecodeError:
        raise _lost("it shows a name that is not UTF-8") from None


def _go_back(connection: CarefulConnection, commit_ts: int) -> None:
    """Lets a TiDB show everything as it was. Other servers have no such variable."""
    try:
        _ask(connection, f"SET SESSION tidb_snapshot = '{commit_ts}'", 0)
    except pymysql.err.MySQLError as error:
        if code_and_text(error)[0] != _UNKNOWN_VARIABLE:
            raise


def _ask(connection: CarefulConnection, statement: str, columns: int) -> Sequence[tuple[bytes, ...]]:
    """The first columns of the answer. Raises PyMySQL's errors, also for an answer that has fewer, or a NULL in them."""
    with connection.cursor() as cursor:
        with no_file_is_sent(connection):
            cursor.execute(statement)
        rows = [row[:columns] for row in cursor.fetchall()]
    if any(len(row) < columns or None in row for row in rows):
        raise _lost(f"the answer to {statement} lacks a column or has NULL")
    return rows


def _lost(message: str) -> pymysql.err.OperationalError:
    return pymysql.err.OperationalError(mysql_answers.SERVER_LOST, message)


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"
