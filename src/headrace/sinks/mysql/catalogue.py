"""What the target's catalogue says of databases and tables. Names are looked up by SHOW, which compares them as the server does."""

from __future__ import annotations

import hashlib
import re

import pymysql

from headrace.model.table import TableId
from headrace.sinks.base import TableDescription
from headrace.sinks.mysql.connection import MySqlSession, error_code
from headrace.sinks.mysql.text import quote_name
from headrace.sinks.mysql.types import qualified

_MISSING = frozenset({1049, 1146, 1356})
_AUTO_INCREMENT = re.compile(r" AUTO_INCREMENT=\d+")


def describe(session: MySqlSession, table_id: TableId) -> TableDescription | None:
    """The table, view or database as it is now; ``None`` if there is none. The session is one for DDL, in autocommit."""
    try:
        return _database(session, table_id) if table_id.is_database else _table(session, table_id)
    except pymysql.err.MySQLError as error:
        if error_code(error) in _MISSING:
            return None
        raise


def exists(session: MySqlSession, table_id: TableId) -> bool:
    """Whether there is a table, view or database of that name."""
    return describe(session, table_id) is not None


def default_collation(session: MySqlSession, database: str) -> str:
    """The collation that a new table of the database gets."""
    return str(
        session.scalar(
            "SELECT default_collation_name FROM information_schema.schemata WHERE schema_name = ?",
            (database,),
        )
    )


def _database(session: MySqlSession, table_id: TableId) -> TableDescription:
    definition = session.execute(f"SHOW CREATE DATABASE {qualified(table_id)}")[0][1]
    tables = session.execute(f"SHOW TABLES FROM {qualified(table_id)}")
    return TableDescription(table_id, (), _fingerprint(str(definition)), bool(tables))


def _table(session: MySqlSession, table_id: TableId) -> TableDescription:
    name = qualified(table_id)
    columns = tuple(str(row[0]) for row in session.execute(f"SHOW COLUMNS FROM {name}"))
    definition = str(session.execute(f"SHOW CREATE TABLE {name}")[0][1])
    has_rows = bool(session.execute(f"SELECT 1 FROM {quote_name(table_id.database)}.{quote_name(table_id.table)} LIMIT 1"))
    return TableDescription(table_id, columns, _fingerprint(_AUTO_INCREMENT.sub("", definition)), has_rows)


def _fingerprint(definition: str) -> str:
    return hashlib.sha256(definition.encode()).hexdigest()
