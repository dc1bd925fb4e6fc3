"""Reads rows of a TiDB as they were at a commit ts.

A snapshot is read with ``tidb_snapshot`` (TiDB documentation, "Read Historical Data Using the System Variable tidb_snapshot"),
which takes a TSO, and then shows tables as they were, also their columns. TiDB keeps old rows only for its GC life time.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager

import pyarrow as pa
import pyarrow.compute as pc
import pymysql

from headrace.errors import SourceUnreachableError
from headrace.formats.values import WRITTEN, Written, canonical_from_text
from headrace.model.table import Column, TableSchema
from headrace.model.types import BINARY_KINDS, CHARACTER_KINDS, TypeKind
from headrace.mysql_answers import understood
from headrace.upstream.connection import OF_CLIENT, SHOWN, CarefulConnection, code_and_text, connect, no_file_is_sent
from headrace.upstream.settings import Upstream

_UNKNOWN_VARIABLE = 1193
_TOO_OLD = frozenset({8055, 9006})
_LOGIN = frozenset({1040, 1045, 1129, 1130, 1203, 1226, 1698})
"""Codes of servers that refuse the connection, not one statement."""
_DECIMAL = re.compile(r"-?[0-9]{1,65}(\.[0-9]{1,30})?")
_PLAIN = re.compile("[0-9A-Za-z.:+-][0-9A-Za-z.: +-]{0,63}")
"""Texts that a literal may have as they are."""
_BINARY = 63
"""The number of the character set of columns with bytes."""


class SnapshotError(Exception):
    """The row of a key cannot be read: the number of the key, a sentence, and what to do."""

    def __init__(self, row: int, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.row, self.message, self.hint = row, message, hint


@contextmanager
def snapshots_of(upstream: Upstream) -> Iterator[Snapshots]:
    """A connection. Errors of it, also inside the block, become SourceUnreachableError. Raises DefinitionError."""
    try:
        with closing(connect(upstream)) as connection:
            yield Snapshots(upstream, connection)
    except (pymysql.err.MySQLError, OSError) as error:
        raise _unreachable(upstream, error) from None


def _unreachable(upstream: Upstream, error: Exception) -> SourceUnreachableError:
    code, text = code_and_text(error)
    if code == _UNKNOWN_VARIABLE:
        return SourceUnreachableError(
            f"The upstream {upstream.place} is not a TiDB: it has no variable tidb_snapshot.",
            "upstream= in the source's URI is the TiDB that the changefeed replicates.",
        )
    return SourceUnreachableError(f"The upstream {upstream.place} cannot be read: {text}.", "Check upstream= in the source's URI.")


class Snapshots:
    """Reads snapshots with one connection."""

    def __init__(self, upstream: Upstream, connection: CarefulConnection) -> None:
        self._upstream, self._connection = upstream, connection
        self._ask("SET SESSION time_zone = '+00:00', sql_mode = ''")

    def rows(self, schema: TableSchema, commit_ts: int, keys: pa.RecordBatch) -> pa.RecordBatch:
        """The table's row of each key, in their order, as they were at ``commit_ts`` (TSO).

        ``keys`` has the canonical values of the key's columns, the result those of ``schema.row_columns``. Raises SnapshotError,
        and PyMySQL's errors for a connection that is lost.
        """
        try:
            self._ask(f"SET SESSION tidb_snapshot = '{commit_ts}'")
            texts = self._ask(select_of(schema, keys), schema.row_columns)
        except (pymysql.err.ProgrammingError, pymysql.err.InternalError, pymysql.err.OperationalError) as error:
            raise self._refused(schema, commit_ts, error) from None
        columns = schema.row_columns
        try:
            values = zip(*texts, strict=True) if texts else [()] * len(columns)
            arrays = [canonical(column, of_column) for column, of_column in zip(columns, values, strict=True)]
        except ValueError as error:
            told = f"The upstream's row at {commit_ts} has a value that is not of its column's type: {error}."
            raise SnapshotError(0, told) from None
        found = pa.RecordBatch.from_arrays(arrays, names=[column.name for column in columns])
        places = {tuple(row.values()): number for number, row in enumerate(found.select(keys.schema.names).to_pylist())}
        order = [places.get(tuple(key.values())) for key in keys.to_pylist()]
        if None in order:
            row = order.index(None)
            shown = ", ".join(f"{name}={value!r}" for name, value in keys.slice(row, 1).to_pylist()[0].items())[:SHOWN]
            raise SnapshotError(row, f"The upstream {self._upstream.place} has no such row at {commit_ts}: {shown}.")
        return found.take(pa.array(order, pa.int64()))

    def _ask(self, statement: str, columns: Sequence[Column] = ()) -> Sequence[tuple[bytes | None, ...]]:
        """The rows of a statement, which have ``columns`` if these are given.

        Raises SnapshotError if one of them is bytes upstream and text here, or the reverse, and PyMySQL's errors.
        """
        with self._connection.cursor() as cursor:
            with no_file_is_sent(self._connection):
                cursor.execute(statement)
            with understood():
                shown = list(zip(columns, cursor._result.fields, strict=True)) if columns else []
            for column, told in shown:
                is_bytes = WRITTEN[column.type.kind] is Written.CODE
                if column.type.kind in CHARACTER_KINDS | BINARY_KINDS and is_bytes != (told.charsetnr == _BINARY):
                    is_now, is_here = ("bytes", "text") if not is_bytes else ("text", "bytes")
                    raise SnapshotError(
                        0, f"The column {column.name} is {is_now} upstream, and {is_here} by the schema changes read."
                    )
            return list(cursor.fetchall())

    def _refused(self, schema: TableSchema, commit_ts: int, error: Exception) -> Exception:
        """The error to raise for a statement that failed: SnapshotError if the connection works."""
        code, text = code_and_text(error)
        if code in _TOO_OLD:
            return SnapshotError(
                0,
                f"The upstream {self._upstream.place} does not keep the rows of {schema.table_id} at {commit_ts} any more: they "
                "are older than its GC life time.",
                "Load the table anew, and set tidb_gc_life_time of the upstream to longer than a pipeline may be stopped.",
            )
        if code is None or code in OF_CLIENT or code in _LOGIN or code == _UNKNOWN_VARIABLE:
            return error
        return SnapshotError(0, f"The upstream {self._upstream.place} refuses to show {schema.table_id} at {commit_ts}: {text}.")


def select_of(schema: TableSchema, keys: pa.RecordBatch) -> str:
    """The query for the rows of a table with these keys. Bytes and unusual texts are in it as hexadecimal digits."""
    columns = ", ".join(_shown(column) for column in schema.row_columns)
    names = [schema.column(name) for name in keys.schema.names]
    rows = [[_literal(c, v) for c, v in zip(names, row.values(), strict=True)] for row in keys.to_pylist()]
    if len(names) == 1:
        condition = f"{_quoted(names[0].name)} IN ({', '.join(value for (value,) in rows)})"
    else:
        tuples = ", ".join(f"({', '.join(row)})" for row in rows)
        condition = f"({', '.join(_quoted(column.name) for column in names)}) IN ({tuples})"
    return f"SELECT {columns} FROM {_quoted(schema.table_id.database)}.{_quoted(schema.table_id.table)} WHERE {condition}"


def canonical(column: Column, texts: Sequence[bytes | None]) -> pa.Array:
    """Values as the server writes them, to canonical ones. Raises ValueError."""
    values = pa.array(texts, pa.binary())
    if WRITTEN[column.type.kind] is Written.CODE:
        return values
    strings = pc.cast(values, pa.string())
    if WRITTEN[column.type.kind] is Written.MEMBER:
        return strings
    return canonical_from_text(strings, column.type, "UTC")


def _shown(column: Column) -> str:
    """A column as the query has it: BIT would be shown as bytes."""
    return f"{_quoted(column.name)} + 0" if column.type.kind is TypeKind.BIT else _quoted(column.name)


def _literal(column: Column, value: object) -> str:
    if isinstance(value, bytes):
        return f"X'{value.hex()}'"
    if isinstance(value, str) and column.type.kind is TypeKind.DECIMAL and _DECIMAL.fullmatch(value):
        return value  # it equals no hexadecimal text
    if isinstance(value, str) and _PLAIN.fullmatch(value):
        return f"'{value}'"
    if isinstance(value, str):
        return f"_utf8mb4 X'{value.encode().hex()}'"
    if isinstance(value, float):
        return f"{value:.17e}"  # in this form it is a DOUBLE
    if isinstance(value, int):
        return str(value)
    raise SnapshotError(0, f"The key's column {column.name} is {value!r}.")


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"
