"""Reads the definitions of all tables from a server: from a TiDB as they were at a commit ts, from others as they are."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing

import pymysql

from headrace.errors import SourceUnreachableError
from headrace.model.table import SYSTEM_DATABASES
from headrace.upstream.connection import CarefulConnection, code_and_text, connect, no_file_is_sent
from headrace.upstream.settings import Upstream

_UNKNOWN_VARIABLE = 1193
_JSON_OF_MARIADB = re.compile(
    r"^(\s*`(?:[^`]|``)+`) longtext CHARACTER SET utf8mb4 COLLATE utf8mb4_bin(.*) CHECK \(json_valid\(`(?:[^`]|``)+`\)\)(,?)$", re.M
)
"""How MariaDB shows a column that was created as JSON, on a line of its own."""


def definitions_at(upstream: Upstream, commit_ts: int) -> Iterator[tuple[str, str, str]]:
    """What SHOW CREATE says of each database and each table, but for the server's own: its name, its database, and the statement.

    Raises SourceUnreachableError, DefinitionError.
    """
    try:
        with closing(connect(upstream)) as connection:
            _go_back(connection, commit_ts)
            for (database,) in _ask(connection, "SHOW DATABASES"):
                if database.lower() in SYSTEM_DATABASES:
                    continue
                ((_, created),) = _ask(connection, f"SHOW CREATE DATABASE {_quoted(database)}")
                yield database, database, created
                for table, _ in _ask(connection, f"SHOW FULL TABLES FROM {_quoted(database)} WHERE Table_type = 'BASE TABLE'"):
                    ((_, created),) = _ask(connection, f"SHOW CREATE TABLE {_quoted(database)}.{_quoted(table)}")
                    yield f"{database}.{table}", database, _JSON_OF_MARIADB.sub(r"\1 json\2\3", created)
    except (pymysql.err.MySQLError, OSError) as error:
        text = code_and_text(error)[1]
        raise SourceUnreachableError(
            f"schema-from: {upstream.place} does not show the definitions at {commit_ts}: {text}.",
            "Check the URI. If a TiDB does not keep that time any more, give the files of a dump of that time.",
        ) from None


def _go_back(connection: CarefulConnection, commit_ts: int) -> None:
    """Lets a TiDB show everything as it was. Other servers have no such variable."""
    try:
        _ask(connection, f"SET SESSION tidb_snapshot = '{commit_ts}'")
    except pymysql.err.MySQLError as error:
        if code_and_text(error)[0] != _UNKNOWN_VARIABLE:
            raise


def _ask(connection: CarefulConnection, statement: str) -> list[tuple[str, ...]]:
    with connection.cursor() as cursor:
        with no_file_is_sent(connection):
            cursor.execute(statement)
        return [tuple(value.decode() for value in row[:2]) for row in cursor.fetchall()]


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"
