"""Statements that delete rows by their key, or put rows into a table, as many rows in one as servers take well."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from headrace.model.table import Column, TableId
from headrace.sinks.mysql.connection import MySqlSession
from headrace.sinks.mysql.text import batches, is_ascii, quote_name, row_conditions, row_literals
from headrace.sinks.mysql.types import qualified

# Of 100 to 5,000 rows per statement, 900 were fastest on MariaDB, which turns longer IN lists into a sub-query.
_DELETE_ROWS = 900
_DELETE_CONDITIONS = 100  # for keys that cannot be compared by an IN list; MariaDB plans 900 at half the speed
_STATEMENT_BYTES = 1 << 20

Statements = Iterator[tuple[bytes, pa.Table]]
"""Each statement with its rows. A row that is larger than the limit is alone."""


def most_bytes(session: MySqlSession) -> int:
    """How long a statement of several rows may be."""
    return min(_STATEMENT_BYTES, session.max_allowed_packet // 2)


def deletions(table_id: TableId, key: Sequence[Column], rows: pa.Table, limit: int, most_rows: int = _DELETE_ROWS) -> Statements:
    """DELETE by the columns ``key``. ``limit`` is in bytes. Deletes are few, so they are always sent as literals."""
    rows = rows.select([column.name for column in key])
    if len(key) > 1 and not is_ascii(rows):
        head, texts, tail, most = " WHERE FALSE", row_conditions(rows, key), b"", _DELETE_CONDITIONS
    else:
        names = ", ".join(quote_name(column.name) for column in key)
        head, texts, tail, most = f" WHERE ({names}) IN (", row_literals(rows, key), b")", _DELETE_ROWS
    begin = f"DELETE FROM {qualified(table_id)}{head}".encode()
    for start, count, text in batches(texts, min(most, most_rows), limit):
        yield begin + text + tail, rows.slice(start, count)


def insertions(verb: str, table_id: TableId, columns: Sequence[Column], rows: pa.Table, limit: int, most_rows: int) -> Statements:
    """INSERT or REPLACE (``verb``) of these columns. ``limit`` is in bytes."""
    rows = rows.select([column.name for column in columns])
    names = ", ".join(quote_name(column.name) for column in columns)
    begin = f"{verb} INTO {qualified(table_id)} ({names}) VALUES ".encode()
    for start, count, text in batches(row_literals(rows, columns), most_rows, limit):
        yield begin + text, rows.slice(start, count)
