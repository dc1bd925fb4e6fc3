"""Writes binlog messages for tests, with the protobuf library."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from headrace.formats.binlog import slave_binlog_pb2 as pb
from headrace.formats.binlog.messages import Cell, CellField, ColumnInfo, MutationType

_VALUES: Mapping[CellField, str] = {
    CellField.INT64: "int64_value",
    CellField.UINT64: "uint64_value",
    CellField.DOUBLE: "double_value",
    CellField.BYTES: "bytes_value",
    CellField.STRING: "string_value",
}
Row = Sequence[Cell]
Change = tuple[MutationType, Row, Row | None]
NULL = Cell(CellField.NULL, None)


def integer(number: int) -> Cell:
    return Cell(CellField.INT64, number)


def string(text: str) -> Cell:
    return Cell(CellField.STRING, text.encode())


def encoded(commit_ts: int, tables: Iterable[Any]) -> bytes:
    """A transaction."""
    return bytes(pb.Binlog(type=pb.DML, commit_ts=commit_ts, dml_data=pb.DMLData(tables=tables)).SerializePartialToString())


def table(name: str, columns: Sequence[ColumnInfo], changes: Iterable[Change], *, keys: bool = True) -> Any:
    """The changes of one table of the database ``d``."""
    made = pb.Table(schema_name=b"d", table_name=name.encode())
    for column in columns:
        info = made.column_info.add(name=column.name.encode(), mysql_type=column.mysql_type.encode())
        info.is_primary_key = column.is_primary_key
        if column.flen is not None and column.decimal is not None:
            info.flen, info.decimal = column.flen, column.decimal
    for kind, row, old in changes:
        mutation = made.mutations.add(type=kind)
        _fill(mutation.row, row)
        if old is not None:
            _fill(mutation.change_row, old)
    primary = [column.name.encode() for column in columns if column.is_primary_key]
    if keys and primary:
        made.unique_keys.add(name=b"PRIMARY", column_names=primary)
    return made


def _fill(row: Any, cells: Row) -> None:
    row.SetInParent()
    for cell in cells:
        column = row.columns.add()
        if cell.field is CellField.NULL:
            column.is_null = True
        elif cell.field is not CellField.ABSENT:
            setattr(column, _VALUES[cell.field], cell.value)
