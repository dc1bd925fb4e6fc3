"""How fast blocks become CSV and canal-JSON, on one core and without Spark, beside decoding the same bytes.

The floor is Arrow's own CSV writer for the same fields. It has one dialect, which is not TiCDC's.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from benchmarks.workload import ORDERS, Changes, schema_of
from headrace.formats.canal_encoder import CanalJsonEncoder, CanalJsonOutput
from headrace.formats.canal_json import CanalJsonOptions, decode_canal_json
from headrace.formats.csv import CsvOptions, decode_csv
from headrace.formats.csv_encoder import CsvEncoder
from headrace.formats.open_encoder import OpenEncoder
from headrace.model.block import COMMIT_TS, KIND, META_COUNT, META_FIELDS, block_schema
from headrace.model.events import RowKind
from headrace.model.table import Column, TableSchema
from headrace.model.types import ColumnType, TypeKind

_ROWS_PER_BLOCK = 30_000
"""About 4 MiB of CSV, as the decoders yield."""
_REPEATS = 5
_ZONE = "Asia/Shanghai"
_STATES = ("new", "paid", "sent", "returned")
_OTHER_COLUMNS = (
    Column("id", ColumnType(TypeKind.BIGINT), nullable=False, primary_key=True),
    Column("weight", ColumnType(TypeKind.DOUBLE)),
    Column("share", ColumnType(TypeKind.FLOAT)),
    Column("token", ColumnType(TypeKind.VARBINARY, length=16)),
    Column("seen_at", ColumnType(TypeKind.TIMESTAMP, scale=3)),
    Column("state", ColumnType(TypeKind.ENUM, elements=_STATES)),
    Column("note", ColumnType(TypeKind.JSON)),
)
"""Types whose text is not the canonical one."""


@dataclass(frozen=True)
class Rate:
    """Rows per second of CPU time."""

    name: str
    encode: float
    decode: float = 0.0
    """0 for the floor."""
    bytes_per_row: float = 0.0


def rates(changes: Changes) -> Iterator[Rate]:
    """The floor first. Each decoded file is checked to have as many rows as were encoded."""
    schema = schema_of(ORDERS)
    plain, with_old = _blocks(schema, changes, old_rows=False), _blocks(schema, changes, old_rows=True)
    tables = [_fields(block) for block in plain]
    yield Rate("pyarrow.csv.write_csv", _rate(lambda: sum(map(_write_csv, tables))))
    csv = CsvOptions(include_commit_ts=True, terminator="\n")
    yield _csv("csv", schema, plain, csv)
    escaped = CsvOptions(include_commit_ts=True, terminator="\n", quote="", delimiter="|")
    yield _csv("csv without quotes", schema, plain, escaped)
    old = CsvOptions(include_commit_ts=True, output_old_value=True, terminator="\n")
    yield _csv("csv with old values", schema, with_old, old)
    output = CanalJsonOutput(enable_tidb_extension=True)
    changed = CanalJsonOutput(enable_tidb_extension=True, only_output_updated_columns=True)
    yield _canal("canal-json", schema, plain, output)
    yield _canal("canal-json with old rows", schema, with_old, output)
    yield _canal("canal-json with changed columns", schema, with_old, changed)
    encoder = CanalJsonEncoder(schema, output)
    yield Rate("canal-json messages", _rate(lambda: sum(_messages(encoder, block) for block in plain)))
    open_encoder = OpenEncoder(schema)
    yield Rate("open-protocol messages", _rate(lambda: sum(_open_messages(open_encoder, block) for block in with_old)))
    other = TableSchema(ORDERS, _OTHER_COLUMNS, ("id",))
    others = _other_blocks(other, len(changes))
    zoned = CsvOptions(include_commit_ts=True, terminator="\n", time_zone=_ZONE)
    yield _csv("csv of other types", other, others, zoned)
    yield _canal("canal-json of other types", other, others, CanalJsonOutput(enable_tidb_extension=True, time_zone=_ZONE))


def _csv(name: str, schema: TableSchema, blocks: Sequence[pa.RecordBatch], options: CsvOptions) -> Rate:
    encoder = CsvEncoder(schema, options)
    return _both(name, blocks, encoder.encode, lambda data: decode_csv(data, schema, options))


def _canal(name: str, schema: TableSchema, blocks: Sequence[pa.RecordBatch], output: CanalJsonOutput) -> Rate:
    encoder, options = CanalJsonEncoder(schema, output), CanalJsonOptions(terminator="\n", time_zone=output.time_zone)
    return _both(name, blocks, lambda block: encoder.lines(block, "\n"), lambda data: decode_canal_json(data, schema, options))


def _both(
    name: str,
    blocks: Sequence[pa.RecordBatch],
    encode: Callable[[pa.RecordBatch], pa.Buffer],
    decode: Callable[[pa.Buffer], Iterator[pa.RecordBatch]],
) -> Rate:
    rows = sum(block.num_rows for block in blocks)
    files = [encode(block) for block in blocks]

    def encoded() -> int:
        for block in blocks:
            encode(block)
        return rows

    def decoded() -> int:
        found = sum(batch.num_rows for data in files for batch in decode(data))
        if found != rows:
            raise RuntimeError(f"{name}: {rows} rows were encoded and {found} decoded.")
        return rows

    return Rate(name, _rate(encoded), _rate(decoded), sum(data.size for data in files) / rows)


def _messages(encoder: CanalJsonEncoder, block: pa.RecordBatch) -> int:
    encoder.messages(block)
    return int(block.num_rows)


def _open_messages(encoder: OpenEncoder, block: pa.RecordBatch) -> int:
    encoder.messages(block)
    return int(block.num_rows)


def _rate(work: Callable[[], int]) -> float:
    found = []
    for _ in range(_REPEATS):
        started = time.process_time()
        rows = work()
        found.append(rows / (time.process_time() - started))
    return max(found)


def _blocks(schema: TableSchema, changes: Changes, *, old_rows: bool) -> list[pa.RecordBatch]:
    """The changes; with ``old_rows``, each update has an old row with another quantity."""
    operations = changes.operations.to_numpy(zero_copy_only=False)
    kinds = np.select([operations == "I", operations == "U"], [RowKind.INSERT, RowKind.UPDATE_AFTER], RowKind.DELETE)
    is_update = operations == "U"
    of_change = np.repeat(np.arange(len(kinds)), 1 + (is_update & old_rows))
    is_old = np.zeros(len(of_change), bool)
    is_old[:-1] = of_change[:-1] == of_change[1:]
    rows = changes.rows.take(pa.array(of_change))
    place = rows.schema.get_field_index("quantity")
    rows = rows.set_column(place, "quantity", pc.add(rows.column(place), pa.array(is_old.astype(np.int64))))
    commit_ts = changes.commit_ts.to_numpy()[of_change]
    return _cut(schema, np.where(is_old, RowKind.UPDATE_BEFORE, kinds[of_change]), commit_ts, rows)


def _other_blocks(schema: TableSchema, count: int) -> list[pa.RecordBatch]:
    random = np.random.default_rng(9)
    moments = np.datetime64("2025-06-15T00:00:00.123") + random.integers(0, 86_400_000, count).astype("timedelta64[ms]")
    columns = [
        pa.array(np.arange(count)),
        pa.array(random.normal(size=count) * 1000),
        pa.array(random.random(count).astype(np.float32)),
        pa.array([random.bytes(16) for _ in range(count)], pa.binary()),
        pc.replace_substring(pa.array(moments.astype(str)), "T", " "),
        pa.array(np.array(_STATES)[random.integers(0, len(_STATES), count)]),
        pa.array(np.char.mod('{"number": %d, "tags": ["a", "b"]}', random.integers(0, 1_000_000, count))),
    ]
    rows = pa.table(dict(zip((column.name for column in schema.columns), columns, strict=True)))
    return _cut(schema, np.full(count, RowKind.INSERT), np.full(count, 1 << 60), rows)


def _cut(schema: TableSchema, kinds: np.ndarray, commit_ts: np.ndarray, rows: pa.Table) -> list[pa.RecordBatch]:
    """The rows as blocks; an old row and its new row stay together."""
    meta = [pa.array(kinds, pa.int8()), pa.array(commit_ts, pa.int64()), pa.array(np.arange(len(kinds)))]
    columns = [rows.column(column.name).combine_chunks() for column in schema.columns]
    whole = pa.RecordBatch.from_arrays([*meta, *columns], schema=block_schema(schema.columns))
    starts = [0]
    while starts[-1] + _ROWS_PER_BLOCK < len(kinds):
        end = starts[-1] + _ROWS_PER_BLOCK
        starts.append(end + int(kinds[end - 1] == RowKind.UPDATE_BEFORE))
    return [whole.slice(start, stop - start) for start, stop in zip(starts, [*starts[1:], len(kinds)], strict=True)]


def _fields(block: pa.RecordBatch) -> pa.Table:
    """The fields of the block's CSV records, ready to be written."""
    names = {RowKind.INSERT: "I", RowKind.UPDATE_AFTER: "U", RowKind.DELETE: "D"}
    operations = pa.array([names[RowKind(kind)] for kind in block.column(KIND).to_pylist()])
    same = {name: pa.repeat(text, block.num_rows) for name, text in (("table", ORDERS.table), ("schema", ORDERS.database))}
    rows = dict(zip(block.schema.names[META_COUNT:], block.columns[len(META_FIELDS) :], strict=True))
    return pa.table({"operation": operations, **same, "commit_ts": block.column(COMMIT_TS), **rows})


def _write_csv(table: pa.Table) -> int:
    sink = pa.BufferOutputStream()
    pyarrow.csv.write_csv(table, sink, pyarrow.csv.WriteOptions(include_header=False))
    return int(table.num_rows)
