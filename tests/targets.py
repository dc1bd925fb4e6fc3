"""What a target holds, in the form in which the conformance cases write what the upstream held.

Values are texts: binary types as lower-case hex, BIT as an unsigned number, FLOAT and DOUBLE as the shortest text that
gives the value back, TIMESTAMP in UTC, JSON and VECTOR in one normal form; ``None`` is NULL.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Protocol

import duckdb
import numpy as np
import pymysql

from servers import SYSTEM_DATABASES, MariaDb

Row = tuple[str | None, ...]

LEDGER_DATABASE = "headrace"
_INTEGERS = frozenset({"tinyint", "smallint", "mediumint", "int", "bigint", "bit", "year"})
_FLOATS = frozenset({"float", "double"})
_BINARY = frozenset({"binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"})
_EPOCH = datetime(1970, 1, 1)


class Target(Protocol):
    """A database that a pipeline wrote to; the ledger's own tables are not part of the answers."""

    def databases(self) -> set[str]: ...

    def tables(self) -> set[tuple[str, str]]: ...

    def columns(self, database: str, table: str) -> set[str]: ...

    def rows(self, database: str, table: str, types: Mapping[str, str]) -> list[Row]:
        """The columns named by ``types``, in that order; ``types`` are the upstream's MySQL types."""
        ...

    def held(self, type_text: str, text: str | None) -> str | None:
        """What becomes here of a value of the upstream: the same, but for what the target has no room for."""
        ...


def base_type(type_text: str) -> str:
    """``varchar`` of ``varchar(10)``, ``bigint`` of ``bigint(20) unsigned``."""
    return re.split(r"[( ]", type_text, maxsplit=1)[0].lower()


def fraction_digits(type_text: str) -> int:
    match = re.search(r"\((\d+)\)", type_text)
    return int(match[1]) if match else 0


def normal_value(type_text: str, text: str | None) -> str | None:
    """One text for all that are equal: ``042`` and ``42``, ``1e3`` and ``1000``, ``.5`` and ``0.5``, JSON with other spaces."""
    base = base_type(type_text)
    if text is None:
        return None
    if base in _INTEGERS:
        return str(int(text))
    if base in _FLOATS:
        number = np.float32(text) if base == "float" else np.float64(text)
        return np.format_float_positional(number, unique=True, trim="-")
    if base == "json":
        return json.dumps(json.loads(text), ensure_ascii=False, sort_keys=True)
    if base == "vector":
        return json.dumps([float(np.float32(element)) for element in json.loads(text)])
    return re.sub(r"^(-?)\.", r"\g<1>0.", text) if base == "decimal" else text


def sort_rows(rows: Iterable[Row]) -> list[Row]:
    """Rows in an order of their own: targets and upstream sort texts differently."""
    return sorted(rows, key=lambda row: [(value is not None, value or "") for value in row])


def canonical_rows_from_mariadb(
    connection: pymysql.connections.Connection, database: str, table: str, types: Mapping[str, str]
) -> list[Row]:
    """The rows of a MariaDB table. The connection's time zone is set to UTC."""
    fields = ", ".join(_mariadb_field(name, base_type(type_text)) for name, type_text in types.items())
    with connection.cursor() as cursor:
        cursor.execute("SET SESSION time_zone = '+00:00'")
        cursor.execute(f"SELECT {fields} FROM {_backquoted(database)}.{_backquoted(table)}")
        found = cursor.fetchall()
    return [tuple(normal_value(t, value) for t, value in zip(types.values(), row, strict=True)) for row in found]


def _mariadb_field(name: str, base: str) -> str:
    field = _backquoted(name)
    if base in _BINARY:
        return f"LOWER(HEX({field}))"
    if base == "bit":
        field = f"CAST({field} AS UNSIGNED)"
    if base == "float":
        field = f"CAST({field} AS DOUBLE)"  # a FLOAT's own text has six digits only
    return f"CAST({field} AS CHAR CHARACTER SET utf8mb4)"


def _backquoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


class MariaDbTarget:
    """A MariaDB as target."""

    def __init__(self, server: MariaDb, ledger: str = LEDGER_DATABASE) -> None:
        self._server, self._ledger = server, ledger

    def __str__(self) -> str:
        return "TiDB" if self._server.is_tidb else "MariaDB"

    def databases(self) -> set[str]:
        return {name for (name,) in self._query("SELECT SCHEMA_NAME FROM information_schema.SCHEMATA") if self._is_users(name)}

    def tables(self) -> set[tuple[str, str]]:
        found = self._query("SELECT TABLE_SCHEMA, TABLE_NAME FROM information_schema.TABLES")
        return {(database, table) for database, table in found if self._is_users(database)}

    def columns(self, database: str, table: str) -> set[str]:
        query = "SELECT COLUMN_NAME FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s"
        return {name for (name,) in self._query(query, database, table)}

    def held(self, type_text: str, text: str | None) -> str | None:
        if text is not None and self._server.is_tidb and base_type(type_text) == "json":
            return json.dumps(json.loads(text, parse_float=_as_tidb_shows_it), ensure_ascii=False, sort_keys=True)
        return text

    def rows(self, database: str, table: str, types: Mapping[str, str]) -> list[Row]:
        with self._server.connect() as connection:
            return canonical_rows_from_mariadb(connection, database, table, types)

    def _is_users(self, database: str) -> bool:
        return database.lower() not in SYSTEM_DATABASES and database != self._ledger

    def _query(self, query: str, *parameters: str) -> list[tuple[Any, ...]]:
        with self._server.connect() as connection, connection.cursor() as cursor:
            cursor.execute(query, parameters)
            return list(cursor.fetchall())


def _as_tidb_shows_it(digits: str) -> float | int:
    """JSON keeps a whole DOUBLE a DOUBLE, but TiDB 8.5 shows it without a fraction."""
    number = float(digits)
    return int(number) if number.is_integer() and abs(number) < 1e21 else number


def canonical_rows_from_duckdb(path: Path, database: str, table: str, types: Mapping[str, str]) -> list[Row]:
    """The rows of a table in a DuckDB file, whatever DuckDB types the upstream's became there."""
    with duckdb.connect(str(path)) as connection:
        query = "SELECT lower(column_name), data_type FROM duckdb_columns() WHERE schema_name = ? AND table_name = ?"
        kinds = dict(connection.execute(query, [database, table]).fetchall())
        fields = ", ".join(_duckdb_field(name, kinds[name.lower()]) for name in types)
        found = connection.execute(f"SELECT {fields} FROM {_quoted(database)}.{_quoted(table)}").fetchall()
    shapes = [(type_text, kinds[name.lower()]) for name, type_text in types.items()]
    return [tuple(shown_in_duckdb(t, kind, value) for (t, kind), value in zip(shapes, row, strict=True)) for row in found]


def _duckdb_field(name: str, kind: str) -> str:
    field = _quoted(name)
    if kind == "BLOB":
        return f"lower(hex({field}))"
    if kind.startswith("TIMESTAMP") or kind == "INTERVAL":
        return f"epoch_us({field})"
    return f"CAST({field} AS VARCHAR)"


def shown_in_duckdb(type_text: str, kind: str, value: Any) -> str | None:
    """What DuckDB answered for a column of this type, which it keeps as ``kind``, in the form of all targets."""
    if value is None:
        return None
    digits = fraction_digits(type_text)
    if kind.startswith("TIMESTAMP"):
        return _with_digits((_EPOCH + timedelta(microseconds=value)).isoformat(" ", "microseconds"), digits)
    if kind == "INTERVAL":
        return _time_text(value, digits)
    if kind == "TIME":
        return _with_digits(value, digits)
    if kind == "BIT":
        return str(int(value, 2))
    return normal_value(type_text, value)


def _time_text(microseconds: int, digits: int) -> str:
    seconds, fraction = divmod(abs(microseconds), 1_000_000)
    text = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}.{fraction:06d}"
    return ("-" if microseconds < 0 else "") + _with_digits(text, digits)


def _with_digits(text: str, digits: int) -> str:
    whole, _, fraction = text.partition(".")
    return f"{whole}.{fraction[:digits].ljust(digits, '0')}" if digits else whole


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


class DuckDbTarget:
    """A DuckDB file as target; an upstream database is a DuckDB schema."""

    def __init__(self, path: Path, ledger: str = LEDGER_DATABASE) -> None:
        self._path, self._ledger = path, ledger

    def __str__(self) -> str:
        return "DuckDB"

    @property
    def path(self) -> Path:
        return self._path

    @property
    def uri(self) -> str:
        """The sink's URI. It asks for all that DuckDB can do for types that it does not have."""
        ledger = "" if self._ledger == LEDGER_DATABASE else f"&ledger-schema={self._ledger}"
        return f"duckdb://{self._path}?unsupported=text&zero-dates=null{ledger}"

    def databases(self) -> set[str]:
        found = self._query("SELECT schema_name FROM duckdb_schemas() WHERE NOT internal AND database_name = current_database()")
        return {name for (name,) in found if name not in (self._ledger, "main")}

    def tables(self) -> set[tuple[str, str]]:
        found = self._query(
            "SELECT schema_name, table_name FROM duckdb_tables() WHERE NOT internal UNION ALL "
            "SELECT schema_name, view_name FROM duckdb_views() WHERE NOT internal"
        )
        return {(database, table) for database, table in found if database != self._ledger}

    def columns(self, database: str, table: str) -> set[str]:
        query = "SELECT column_name FROM duckdb_columns() WHERE schema_name = ? AND table_name = ?"
        return {name for (name,) in self._query(query, database, table)}

    def held(self, type_text: str, text: str | None) -> str | None:
        dated = base_type(type_text) in ("date", "datetime", "timestamp")
        return None if dated and text is not None and "00" in text[:10].split("-")[1:] else text

    def rows(self, database: str, table: str, types: Mapping[str, str]) -> list[Row]:
        return canonical_rows_from_duckdb(self._path, database, table, types)

    def _query(self, query: str, *parameters: str) -> list[tuple[Any, ...]]:
        with duckdb.connect(str(self._path)) as connection:
            return list(connection.execute(query, list(parameters)).fetchall())


@contextmanager
def held_open(path: Path) -> Iterator[None]:
    """Another process has a DuckDB file open, and so locked, for as long as the context lasts."""
    hold = f"import duckdb, sys; c = duckdb.connect({str(path)!r}); print('held', flush=True); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", hold], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        try:
            yield
        finally:
            holder.kill()
