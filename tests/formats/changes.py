"""What the format tests share: shapes of tables, decoding to plain rows, and small writers that know nothing of the decoders."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Sequence

import pyarrow as pa

from headrace.formats.base import DecodeError
from headrace.model.block import META_COUNT
from headrace.model.events import RowKind
from headrace.model.table import Column, TableId, TableSchema
from headrace.model.tso import LOGICAL_BITS
from headrace.model.types import BINARY_KINDS, ColumnType, TypeKind

INSERT, UPDATE_BEFORE, UPDATE_AFTER, DELETE = RowKind
Row = tuple[object, ...]
UNQUOTED = {TypeKind.BIT, TypeKind.YEAR, TypeKind.FLOAT, TypeKind.DOUBLE, TypeKind.BIGINT, TypeKind.INT, TypeKind.TINYINT}


def table(**columns: str | ColumnType) -> TableSchema:
    """A table ``test.t`` with these columns, the first being its primary key: ``table(id="INT", v="VARCHAR")``."""
    shaped = []
    for number, (name, written) in enumerate(columns.items()):
        kind = written
        if isinstance(written, str):
            kind = ColumnType(TypeKind(written.removesuffix(" UNSIGNED")), unsigned=written.endswith(" UNSIGNED"))
        assert isinstance(kind, ColumnType)
        shaped.append(Column(name, kind, nullable=number > 0, primary_key=number == 0))
    return TableSchema(TableId("test", "t"), tuple(shaped), (shaped[0].name,))


def rows_of(batches: Iterable[pa.RecordBatch]) -> list[Row]:
    """``(kind, commit_ts, values…)`` of every row; checks that ``seq`` rises."""
    rows: list[Row] = []
    last = -1
    for batch in batches:
        batch.validate(full=True)
        for kind, commit_ts, seq, *values in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            assert seq > last
            last = seq
            rows.append((RowKind(kind), commit_ts, *values))
    return rows


def rows_and_error(batches: Iterable[pa.RecordBatch]) -> tuple[list[Row], DecodeError]:
    """The rows before the error, and the error, which must come."""
    collected: list[pa.RecordBatch] = []
    try:
        for batch in batches:
            collected.append(batch)
    except DecodeError as error:
        return rows_of(collected), error
    raise AssertionError("no error was raised")


def column_names(batches: Iterable[pa.RecordBatch]) -> list[str]:
    return list(next(iter(batches)).schema.names[META_COUNT:])


def csv_quoted(values: Sequence[object], schema: TableSchema, commit_ts: int, delimiter: str = ",", quote: str = '"') -> bytes:
    """An insert in quote mode."""
    fields = [quote + name + quote for name in ("I", "t", "test")] + [str(commit_ts)]
    for value, column in zip(values, schema.columns, strict=True):
        text = _csv_text(value, column)
        if text is None:
            fields.append("\\N")
        elif column.type.kind in UNQUOTED:
            fields.append(text)
        else:
            fields.append(quote + text.replace(quote, quote + quote) + quote)
    return (delimiter.join(fields) + "\r\n").encode()


def csv_escaped(values: Sequence[object], schema: TableSchema, commit_ts: int, delimiter: str = ",") -> bytes:
    """An insert in escape mode."""
    fields = ["I", "t", "test", str(commit_ts)]
    for value, column in zip(values, schema.columns, strict=True):
        text = _csv_text(value, column)
        if text is None:
            fields.append("\\N")
            continue
        text = text.replace("\\", "\\\\").replace("\r", "\\r").replace("\n", "\\n")
        fields.append(text.replace(delimiter, "".join("\\" + mark for mark in delimiter)))
    return (delimiter.join(fields) + "\r\n").encode()


def _csv_text(value: object, column: Column) -> str | None:
    if value is None:
        return None
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return str(value)


def canal(
    type_: str,
    data: dict[str, object],
    old: dict[str, object] | None = None,
    commit_ts: int | None = 100,
    mysql_types: dict[str, str] | None = None,
    es: int | None = None,
) -> bytes:
    """A message without its terminator; ``es`` is the millisecond of the commit ts unless told."""
    es = es if es is not None else 5 if commit_ts is None else commit_ts >> LOGICAL_BITS
    message: dict[str, object] = {"id": 0, "database": "test", "table": "t", "pkNames": ["id"], "isDdl": False, "type": type_}
    message |= {"es": es, "ts": es + 1, "sql": "", "sqlType": dict.fromkeys(data, 4), "mysqlType": mysql_types or {}}
    message |= {"old": None if old is None else [_canal_row(old)], "data": [_canal_row(data)]}
    if commit_ts is not None:
        message["_tidb"] = {"commitTs": commit_ts}
    return json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode()


def _canal_row(row: dict[str, object]) -> dict[str, str | None]:
    return {
        name: None if value is None else value.decode("latin-1") if isinstance(value, bytes) else str(value)
        for name, value in row.items()
    }


def is_binary(column: Column) -> bool:
    return column.type.kind in BINARY_KINDS
