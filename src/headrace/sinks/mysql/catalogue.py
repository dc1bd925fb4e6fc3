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

_MISSING = frozenset({1049, 1146})
_INVALID_VIEW = 1356
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


def has_index(session: MySqlSession, table_id: TableId, index: str) -> bool:
    """Whether the table has an index of that name; of a table that is not there, nobody can say that it has not."""
    try:
        found = session.execute(f"SHOW INDEX FROM {qualified(table_id)}")
    except pymysql.err.MySQLError as error:
        if error_code(error) in _MISSING:
            return True
        raise
    return any(str(row[2]).casefold() == index.casefold() for row in found)


def row_checksum(session: MySqlSession, table_id: TableId) -> str:
    """A checksum over the table's rows, which are all read; empty when there is no table."""
    if session.is_tidb:
        return _checksum_by_query(session, table_id)
    rows = session.execute(f"CHECKSUM TABLE {qualified(table_id)} EXTENDED")
    return "" if rows[0][1] is None else str(rows[0][1])


def _checksum_by_query(session: MySqlSession, table_id: TableId) -> str:
    """TiDB has no CHECKSUM TABLE, and its ADMIN CHECKSUM TABLE takes the keys along, which hold ids of tables."""
    description = describe(session, table_id)
    if description is None:
        return ""
    names = [quote_name(column) for column in description.columns]
    values = ", ".join(f"ISNULL({name}), CAST({name} AS BINARY)" for name in names)
    rows = session.execute(f"SELECT COUNT(*), SUM(CRC32(CONCAT_WS('#', {values}))) FROM {qualified(table_id)}")
    return ":".join(map(str, rows[0]))


def partitioning(session: MySqlSession, table_id: TableId) -> tuple[str, str]:
    """How the table is partitioned, in upper case (``LINEAR HASH``), and by which expression; two empty texts if it is not."""
    rows = session.execute(
        "SELECT partition_method, partition_expression FROM information_schema.partitions"
        " WHERE table_schema = ? AND table_name = ? AND partition_name IS NOT NULL LIMIT 1",
        (table_id.database, table_id.table),
    )
    return (str(rows[0][0]).upper(), str(rows[0][1])) if rows else ("", "")


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
    definition = _AUTO_INCREMENT.sub("", str(session.execute(f"SHOW CREATE TABLE {name}")[0][1]))
    try:
        columns = tuple(str(row[0]) for row in session.execute(f"SHOW COLUMNS FROM {name}"))
        has_rows = bool(session.execute(f"SELECT 1 FROM {name} LIMIT 1"))
    except pymysql.err.MySQLError as error:
        if error_code(error) != _INVALID_VIEW:
            raise
        columns, has_rows = (), False  # a view of tables that are gone is there all the same, and can be dropped
    return TableDescription(table_id, columns, _fingerprint(definition), has_rows)


def _fingerprint(definition: str) -> str:
    return hashlib.sha256(definition.encode()).hexdigest()
