"""Makes thousands of short runs in one process quick: they share what a process of its own would do once, and do not wait."""

from __future__ import annotations

from contextlib import suppress
from functools import cache
from typing import Any, ClassVar

import duckdb
import pytest

from headrace import sealed_duckdb
from headrace.pipeline import registry


class _Pooled:
    """An in-memory DuckDB that is used again after its close: a new one takes 12 ms, and histories need thousands."""

    idle: ClassVar[list[duckdb.DuckDBPyConnection]] = []

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection = connection

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def __enter__(self) -> _Pooled:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        try:
            self._leave_files()
        except duckdb.Error:
            self._connection.close()  # which tells nobody of a full disk, as DuckDB's own close does not
        else:
            self.idle.append(self._connection)

    def _leave_files(self) -> None:
        with suppress(duckdb.Error):
            self._connection.execute("ROLLBACK")
        self._connection.execute("USE memory")
        attached = "SELECT database_name FROM duckdb_databases() WHERE NOT internal AND database_name <> 'memory'"
        for (name,) in self._connection.execute(attached).fetchall():
            self._connection.execute(f'DETACH "{name}"')


_connect = duckdb.connect


def _pooled(path: str = ":memory:", read_only: bool = False, config: dict[str, str] | None = None) -> Any:
    """``duckdb.connect``, but that in-memory databases are taken from a pool and files are attached to one of them."""
    connection = _Pooled(_Pooled.idle.pop() if _Pooled.idle else _connect(":memory:"))
    # Also what is only in memory, so that it is gone when the connection is used again.
    connection.execute(f"ATTACH '{path}' AS opened" + (" (READ_ONLY)" if read_only else ""))
    connection.execute("USE opened")
    return connection


def make_quick(patch: pytest.MonkeyPatch) -> None:
    """Saves what thousands of short runs in one process spend on opening DuckDB and on looking up connectors."""
    patch.setattr(duckdb, "connect", _pooled)
    patch.setattr(sealed_duckdb, "_SEAL", ())  # a database that is sealed attaches no other file, so it could not be used again
    patch.setattr(registry, "entry_points", cache(registry.entry_points))


def without_pauses(patch: pytest.MonkeyPatch) -> None:
    """What passes is tried again at once."""
    patch.setattr("headrace.engine.loop._FIRST_PAUSE", 0.0)
    patch.setattr("headrace.engine.loop._LOOK_PAUSE", 0.0)
    patch.setattr("headrace.sinks.mysql.connection.RETRY_DELAYS", (0.0,) * 6)
