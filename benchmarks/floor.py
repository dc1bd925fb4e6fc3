"""The floor that the machine sets, without Spark and without Headrace: plain decoding, and plain loading, on all cores."""

from __future__ import annotations

import csv
import io
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.csv
import pyarrow.json
import pymysql

_BLOCK = 4 << 20
_CSV_TYPES = {
    "operation": pa.string(),
    "table": pa.string(),
    "database": pa.string(),
    "commit_ts": pa.int64(),
    "id": pa.int64(),
    "customer": pa.string(),
    "amount": pa.string(),
    "quantity": pa.int64(),
    "ordered_at": pa.string(),
    "remark": pa.string(),
}
ROW_COLUMNS = ("id", "customer", "amount", "quantity", "ordered_at", "remark")
_JSON_SCHEMA = pa.schema(
    [
        ("type", pa.string()),
        ("es", pa.int64()),
        ("data", pa.list_(pa.struct([(name, pa.string()) for name in ROW_COLUMNS]))),
        ("_tidb", pa.struct([("commitTs", pa.int64())])),
    ]
)
TABLE_DDL = (
    "id BIGINT NOT NULL PRIMARY KEY, customer VARCHAR(64) NOT NULL, amount DECIMAL(12,2), quantity INT, ordered_at DATETIME,"
    " remark VARCHAR(255)"
)
_TRANSACTION_ROWS = 50_000
_STATEMENT_ROWS = 5_000


def decode_seconds(files: Sequence[Path], processes: int, repeats: int = 3) -> float:
    """The median seconds that pyarrow needs for the files in so many processes of one thread each."""
    decode = _decode_csv if files[0].suffix == ".csv" else _decode_json
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        list(pool.map(decode, list(files)[:1] * processes))
        return _median([_timed(pool, decode, list(files)) for _ in range(repeats)])


def _timed(pool: ProcessPoolExecutor, work: Callable[[Any], object], items: Sequence[object]) -> float:
    started = time.perf_counter()
    list(pool.map(work, items))
    return time.perf_counter() - started


def _median(values: list[float]) -> float:
    return sorted(values)[len(values) // 2]


def _decode_csv(path: Path) -> int:
    with pyarrow.csv.open_csv(
        path,
        read_options=pyarrow.csv.ReadOptions(use_threads=False, block_size=_BLOCK, column_names=list(_CSV_TYPES)),
        convert_options=pyarrow.csv.ConvertOptions(
            column_types=_CSV_TYPES,
            include_columns=["operation", "commit_ts", *ROW_COLUMNS],
            null_values=["\\N"],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    ) as reader:
        return sum(batch.num_rows for batch in reader)


def _decode_json(path: Path) -> int:
    table = pyarrow.json.read_json(
        path,
        read_options=pyarrow.json.ReadOptions(use_threads=False, block_size=_BLOCK),
        parse_options=pyarrow.json.ParseOptions(explicit_schema=_JSON_SCHEMA, unexpected_field_behavior="ignore"),
    )
    return int(table.num_rows)


def mysql_seconds(rows: pa.Table, login: dict[str, Any], connections: int, folder: Path, *, local: bool) -> float:
    """The seconds that LOAD DATA LOCAL … REPLACE (or REPLACE with many rows a statement) needs for these rows.

    The rows are ready as text before; each connection, in a process of its own, loads its share in transactions of 50,000 rows.
    """
    with pymysql.connect(**login) as connection, connection.cursor() as cursor:
        cursor.execute("CREATE DATABASE IF NOT EXISTS floor")
        cursor.execute(f"CREATE OR REPLACE TABLE floor.orders ({TABLE_DDL})")
    share = -(-rows.num_rows // connections)
    parts = [rows.slice(start, share) for start in range(0, rows.num_rows, share)]
    prepare = _load_files if local else _statement_files
    work = [(login, prepare(part, folder / f"floor-{number}"), local) for number, part in enumerate(parts)]
    with ProcessPoolExecutor(connections, mp_context=get_context("spawn")) as pool:
        list(pool.map(_load, [(login, [], local)] * connections))
        seconds = _timed(pool, _load, work)
    with pymysql.connect(**login) as connection, connection.cursor() as cursor:
        cursor.execute("DROP DATABASE floor")
    return seconds


def _load_files(rows: pa.Table, stem: Path) -> list[Path]:
    """The rows as LOAD DATA reads them by default; the workload holds nothing that would need an escape."""
    paths = []
    for start in range(0, rows.num_rows, _TRANSACTION_ROWS):
        path = stem.with_name(f"{stem.name}-{start}.tsv")
        text = io.StringIO()
        columns = [rows.column(name).slice(start, _TRANSACTION_ROWS).to_pylist() for name in ROW_COLUMNS]
        csv.writer(text, delimiter="\t", lineterminator="\n", quoting=csv.QUOTE_NONE, quotechar=None).writerows(
            zip(*columns, strict=True)
        )
        path.write_text(text.getvalue())
        paths.append(path)
    return paths


def _statement_files(rows: pa.Table, stem: Path) -> list[Path]:
    paths = []
    for start in range(0, rows.num_rows, _STATEMENT_ROWS):
        path = stem.with_name(f"{stem.name}-{start}.sql")
        literals = ",".join(_literals(rows, start, _STATEMENT_ROWS))
        path.write_text(f"REPLACE INTO floor.orders ({', '.join(ROW_COLUMNS)}) VALUES {literals}")
        paths.append(path)
    return paths


def _literals(rows: pa.Table, start: int, count: int) -> Iterator[str]:
    columns = [rows.column(name).slice(start, count).to_pylist() for name in ROW_COLUMNS]
    return (f"({i},'{c}',{a},{q},'{o}','{r}')" for i, c, a, q, o, r in zip(*columns, strict=True))


def _load(work: tuple[dict[str, Any], list[Path], bool]) -> None:
    login, paths, local = work
    options = {**login, "autocommit": False, "local_infile": local}
    with pymysql.connect(**options) as connection, connection.cursor() as cursor:
        cursor.execute("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
        every = 1 if local else _TRANSACTION_ROWS // _STATEMENT_ROWS
        for number, path in enumerate(paths, 1):
            if local:
                cursor.execute(f"LOAD DATA LOCAL INFILE '{path}' REPLACE INTO TABLE floor.orders ({', '.join(ROW_COLUMNS)})")
            else:
                cursor.execute(path.read_text())
            if number % every == 0:
                connection.commit()
        connection.commit()


def duckdb_seconds(rows: pa.Table, path: Path) -> float:
    """The seconds that one INSERT from Arrow into a new file needs for these rows."""
    connection = duckdb.connect(str(path))
    try:
        connection.execute(f"CREATE TABLE orders ({TABLE_DDL.replace(' PRIMARY KEY', '')})")
        connection.register("rows", rows)
        started = time.perf_counter()
        connection.execute("INSERT INTO orders SELECT * FROM rows")
        return time.perf_counter() - started
    finally:
        connection.close()
        path.unlink()


@dataclass(frozen=True)
class TablesFloor:
    """The seconds that many small tables take on one connection: their CREATE statements, and rows for all of them at once."""

    create: float
    rows: float


def mysql_tables_seconds(tables: int, rows: pa.Table, login: dict[str, Any]) -> TablesFloor:
    """CREATE TABLE for each, then a REPLACE of all ``rows`` into each of them, in one transaction."""
    values = ",".join(_literals(rows, 0, rows.num_rows))
    with pymysql.connect(**login, autocommit=True) as connection, connection.cursor() as cursor:
        cursor.execute("CREATE DATABASE IF NOT EXISTS floor")
        created = _spent(lambda: [cursor.execute(f"CREATE TABLE floor.t{number} ({TABLE_DDL})") for number in range(tables)])
        connection.begin()

        def fill() -> None:
            for number in range(tables):
                cursor.execute(f"REPLACE INTO floor.t{number} ({', '.join(ROW_COLUMNS)}) VALUES {values}")
            connection.commit()

        filled = _spent(fill)
        cursor.execute("DROP DATABASE floor")
    return TablesFloor(created, filled)


def duckdb_tables_seconds(tables: int, rows: pa.Table, path: Path) -> TablesFloor:
    """CREATE TABLE for each, then a DELETE by key and an INSERT of all ``rows`` for each of them, in one transaction."""
    columns = TABLE_DDL.replace(" PRIMARY KEY", "")
    connection = duckdb.connect(str(path))
    try:
        created = _spent(lambda: [connection.execute(f"CREATE TABLE t{number} ({columns})") for number in range(tables)])
        connection.register("fresh", rows)

        def fill() -> None:
            connection.execute("BEGIN")
            for number in range(tables):
                connection.execute(f"DELETE FROM t{number} WHERE id IN (SELECT id FROM fresh)")
                connection.execute(f"INSERT INTO t{number} SELECT * FROM fresh")
            connection.execute("COMMIT")

        return TablesFloor(created, _spent(fill))
    finally:
        connection.close()
        path.unlink()


def _spent(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started
