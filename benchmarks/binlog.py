"""A Drainer's messages to record batches, against the protobuf library, on one core in this process."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from headrace.formats.binlog import slave_binlog_pb2 as pb
from headrace.formats.binlog.cell_values import ValueOptions
from headrace.formats.binlog.columns import BinlogBatch
from headrace.formats.binlog.messages import MutationType, read_binlog
from headrace.formats.binlog.row_events import RowReader
from headrace.model.table import Column, TableId, TableSchema
from headrace.model.types import ColumnType, TypeKind

_BATCH_BYTES = 4 << 20
"""How much is read at a time."""
_FIRST_TS = 451_237_465_412_345_856
_TABLE = TableId("shop", "orders")
_COLUMNS = (
    ("id", TypeKind.BIGINT, "int64_value"),
    ("customer", TypeKind.VARCHAR, "string_value"),
    ("amount", TypeKind.DECIMAL, "string_value"),
    ("quantity", TypeKind.INT, "int64_value"),
    ("ordered_at", TypeKind.DATETIME, "string_value"),
    ("remark", TypeKind.VARCHAR, "string_value"),
)
SCHEMA = TableSchema(_TABLE, tuple(Column(name, ColumnType(kind), primary_key=name == "id") for name, kind, _ in _COLUMNS), ("id",))
_FIELDS = {str(kind).lower().encode(): field for _, kind, field in _COLUMNS}


def transactions(changes: int, rows: int) -> list[bytes]:
    """Messages with so many changes of the table ``shop.orders``, ``rows`` in each: a third each inserts, updates and deletes."""
    return [_transaction(number, rows) for number in range(changes // rows)]


def _transaction(number: int, rows: int) -> bytes:
    message = pb.Binlog(type=pb.DML, commit_ts=_FIRST_TS + 1000 * number)
    table = message.dml_data.tables.add(schema_name=b"shop", table_name=b"orders")
    for name, kind, _ in _COLUMNS:
        table.column_info.add(
            name=name.encode(), mysql_type=str(kind).lower().encode(), is_primary_key=name == "id", flen=20, decimal=0
        )
    for row in range(number * rows, number * rows + rows):
        mutation = table.mutations.add(type=row % len(MutationType))
        _fill(mutation.row, row, 1)
        if mutation.type == MutationType.UPDATE:
            _fill(mutation.change_row, row, 0)
    table.unique_keys.add(name=b"PRIMARY", column_names=[b"id"])
    return bytes(message.SerializeToString())


def _fill(row: Any, number: int, version: int) -> None:
    values = (
        number,
        f"customer {number % 5000}".encode(),
        f"{number % 1000}.{number % 100:02}".encode(),
        number % 300 + version if number % 7 else None,
        f"2024-06-05 09:{number // 60 % 60:02}:{number % 60:02}".encode(),
        f"a remark about the order {number}".encode(),
    )
    for (_, _, field), value in zip(_COLUMNS, values, strict=True):
        column = row.columns.add()
        setattr(column, *(("is_null", True) if value is None else (field, value)))


@dataclass(frozen=True)
class Seconds:
    """What a core needs for one change, in CPU seconds: the best of several times."""

    columnar: float
    """To record batches of canonical types."""
    protobuf: float
    """ParseFromString, and each value by attribute access into a list for each column, whose field is known beforehand."""
    one_by_one: float
    """To checked row events, as the Driver gives them."""


def seconds(messages: Sequence[bytes], changes: int, repeats: int) -> Seconds:
    """Measures the three ways. The last one, which is slow, takes a tenth of the messages."""
    batches, some = list(_batches(messages)), messages[: -(-len(messages) // 10)]
    return Seconds(
        _least(lambda: _columnar(batches), repeats) / changes,
        _least(lambda: _protobuf(messages), repeats) / changes,
        _least(lambda: _one_by_one(some), repeats) / (changes * len(some) / len(messages)),
    )


def _least(way: Callable[[], object], repeats: int) -> float:
    way()
    return min(_spent(way) for _ in range(repeats))


def _spent(way: Callable[[], object]) -> float:
    started = time.process_time()
    way()
    return time.process_time() - started


def _batches(messages: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
    start = size = 0
    for place, message in enumerate(messages):
        size += len(message)
        if size >= _BATCH_BYTES:
            yield messages[start : place + 1]
            start, size = place + 1, 0
    if start < len(messages):
        yield messages[start:]


def _columnar(batches: Sequence[Sequence[bytes]]) -> int:
    options = ValueOptions()
    return sum(rows.block(SCHEMA, 1, options).num_rows for batch in batches for rows in BinlogBatch(batch).tables)


def _protobuf(messages: Sequence[bytes]) -> int:
    values: list[list[object]] = [[] for _ in _COLUMNS]
    for data in messages:
        message = pb.Binlog()
        message.ParseFromString(data)
        for table in message.dml_data.tables:
            fields = [_FIELDS[info.mysql_type] for info in table.column_info]
            for mutation in table.mutations:
                for row in (mutation.row, mutation.change_row) if mutation.type == MutationType.UPDATE else (mutation.row,):
                    for column, field, cell in zip(values, fields, row.columns, strict=True):
                        column.append(None if cell.is_null else getattr(cell, field))
    return len(values[0])


def _one_by_one(messages: Sequence[bytes]) -> int:
    reader = RowReader(ValueOptions())
    return sum(1 for message in messages for _ in reader.events(read_binlog(message)))
