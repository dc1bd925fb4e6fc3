"""Checks whether the changes of each key are consistent: an insert needs a missing row, an update or delete an existing one.

A table's changes are kept in a DuckDB file, so that a table may have more keys than memory can hold. Rows that TiCDC repeats have
the same key and commit ts, whatever their form is then (an update, or a delete and an insert).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
import pyarrow as pa

from headrace.ddl.statement import StatementKind, read_statement
from headrace.model.block import COMMIT_TS, KIND, ChangeBlock
from headrace.model.events import RowKind
from headrace.model.tso import MAX_TSO
from headrace.sealed_duckdb import open_duckdb, seal
from headrace.sources.ticdc_storage.table_versions import TableVersion

_MEMORY = "512MB"
_BEGINNINGS = frozenset({StatementKind.CREATE_TABLE, StatementKind.TRUNCATE_TABLE})
_QUIET = frozenset({StatementKind.EMPTY, StatementKind.ALTER_TABLE, StatementKind.CREATE_INDEX, StatementKind.OTHER})
_PARTITION = re.compile(r"\bPARTITION", re.IGNORECASE)

_CREATE = """
CREATE OR REPLACE TABLE changes (
    life UBIGINT, born_empty BOOLEAN, key VARCHAR, ts BIGINT, kind TINYINT, has_old BOOLEAN, file UINTEGER)
"""
# Among the rows of one key in one transaction, an old image without a new one is a key that moved away, and a new one without its
# old one (if files have old images) a key that moved here. Deletes come first.
_BREAKS = f"""
WITH kinds AS (
    SELECT life, born_empty, key, ts, min(file) AS file,
        bool_or(kind = {RowKind.DELETE}) AS deletes,
        bool_or(kind = {RowKind.INSERT}) AS inserts,
        bool_or(kind = {RowKind.UPDATE_BEFORE}) AS old_images,
        bool_or(kind = {RowKind.UPDATE_AFTER}) AS new_images,
        bool_or(kind = {RowKind.UPDATE_AFTER} AND NOT has_old) AS blind_updates
    FROM changes WHERE ts <= $upper GROUP BY life, born_empty, key, ts),
transactions AS (
    SELECT *, inserts OR new_images AS there, deletes OR old_images OR blind_updates AS needs_row FROM kinds),
steps AS (
    SELECT *, coalesce(lag(there) OVER (PARTITION BY life, key ORDER BY ts), CASE WHEN born_empty THEN false END) AS was_there
    FROM transactions)
SELECT key, ts, file, was_there FROM steps
WHERE was_there <> needs_row
ORDER BY ts, key
"""


@dataclass(frozen=True)
class Life:
    """A range of a table's versions in which rows are identified by the same key. ``born_empty``: it began without rows."""

    number: int
    born_empty: bool


@dataclass(frozen=True)
class Break:
    """A change that is not consistent with the changes before it. ``key`` is a JSON list of texts."""

    message: str
    key: str
    commit_ts: int
    file: str


def lives_of(versions: Mapping[int, TableVersion]) -> dict[int, Life]:
    """The life to which each version of a table's path belongs.

    A new life begins when the table is created or emptied, and when rows are added, removed or get another key without change
    events: renames to this name, partitions, recovered tables, other keys.
    """
    lives: dict[int, Life] = {}
    life: Life | None = None
    before: TableVersion | None = None
    for number, version in sorted(versions.items()):
        statement = read_statement(version.statement, version.table_id.database)
        begins = statement.kind in _BEGINNINGS and not statement.brings_back
        goes_on = (
            before is not None
            and statement.kind in _QUIET
            and not statement.brings_back
            and not _PARTITION.search(version.statement)
            and not statement.renames
            and _key_of(before) == _key_of(version)
        )
        if life is None or begins or not goes_on:
            life = Life(number, begins)
        lives[number] = life
        before = version
    return lives


def _key_of(version: TableVersion) -> list[object]:
    schema = version.schema
    return [(name, schema.column(name).type) for name in schema.handle_key]


class KeyHistory:
    """The changes of one table at a time, by key. A context manager; ``folder`` holds its file."""

    def __init__(self, folder: Path) -> None:
        settings = {"memory_limit": _MEMORY, "threads": 2, "preserve_insertion_order": False, "temp_directory": str(folder)}
        self._database = open_duckdb(folder / "keys.duckdb", settings)
        self._database.execute("SET TimeZone = 'UTC'")
        seal(self._database)
        self._files: dict[str, int] = {}
        self.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self._database.close()

    def clear(self) -> None:
        """Removes the table's data."""
        self._database.execute(_CREATE)
        self._files = {}

    def add(self, block: ChangeBlock, life: Life, file: str, wanted: np.ndarray) -> None:
        """Adds the rows of a block that ``wanted`` marks. Rows of tables without a key have no history."""
        names = [block.schema.column(name).name for name in block.schema.handle_key]
        if not names or any(name not in block.batch.schema.names for name in names):
            return
        number = self._files.setdefault(file, len(self._files))
        keys = [block.batch.column(name) for name in names]
        columns = {f"k{place}": key for place, key in enumerate(keys)}
        rows = pa.table({"ts": block.batch.column(COMMIT_TS), "kind": block.batch.column(KIND), **columns})
        has_old = RowKind.UPDATE_BEFORE in set(block.batch.column(KIND).unique().to_pylist())
        rows = rows.filter(pa.array(wanted))
        key = ", ".join(f"k{place}::VARCHAR" for place in range(len(keys)))
        self._database.register("block", rows)
        self._database.execute(
            f"INSERT INTO changes SELECT $life, $born_empty, json_array({key})::VARCHAR, ts, kind, $has_old, $file FROM block",
            {"life": life.number, "born_empty": life.born_empty, "has_old": has_old, "file": number},
        )
        self._database.unregister("block")

    def breaks(self, checkpoint: int | None) -> Iterator[Break]:
        """The inconsistent changes, by commit ts. Above ``checkpoint``, changes may still be missing."""
        files = list(self._files)
        result = self._database.execute(_BREAKS, {"upper": MAX_TSO if checkpoint is None else checkpoint})
        while found := result.fetchmany(1000):
            for key, ts, file, was_there in found:
                what = "is inserted though it is there" if was_there else "is updated or deleted though it is not there"
                yield Break(f"The row with the key {key} {what}.", key, ts, files[file])
