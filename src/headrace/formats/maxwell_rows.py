"""Reads the rows of TiCDC's Maxwell protocol: JSON objects, each a line.

``data`` is the row after an insert or update. ``old`` is the row before a deletion, or the columns that an update changed; an
update that changed nothing has none. Binary types are base64, ENUM, SET and BIT are numbers, DECIMAL, JSON and all times are text.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.formats.base import DecodeError
from headrace.formats.json_lines import Members, null_columns, read_lines, read_object
from headrace.formats.maxwell_messages import PLAIN_ROW, ROW_TYPES
from headrace.formats.row_images import Change, Images, is_binary_type, named_columns, require_columns
from headrace.formats.values import WRITTEN, Written, binary_from_base64, timestamps_to_utc
from headrace.model.table import Column, TableSchema
from headrace.model.types import TypeKind, arrow_type
from headrace.model.writable_text import is_unicode

_SHOWN = 100
_WAS_NULL = "was_null"
_OLD = b',"old":{'
_NULL_MEMBER = re.compile(rb'("(?:[^"\\]|\\.)*"):null(?=[,}])')
_AROUND = (("database", pa.string()), ("table", pa.string()), ("type", pa.string()), ("ts", pa.int64()))


@dataclass(frozen=True)
class MaxwellRowReader:
    """A :class:`headrace.formats.row_images.LineReader`."""

    schema: TableSchema
    time_zone: str = "UTC"
    """The zone of TIMESTAMP text: TiCDC's ``--tz``."""

    @cached_property
    def _sides(self) -> tuple[pa.Field, ...]:
        row = pa.struct([pa.field(column.name, _written_type(column)) for column in self.schema.row_columns])
        nulls = pa.struct([pa.field(column.name, pa.bool_()) for column in self.schema.row_columns])
        return pa.field("data", row), pa.field("old", row), pa.field(_WAS_NULL, nulls)

    @cached_property
    def single_schema(self) -> pa.Schema:
        """See ``LineReader.single_schema``. ``was_null`` has a column of an update that was NULL before."""
        return pa.schema([pa.field("type", pa.string()), *self._sides])

    def parse(self, lines: Sequence[bytes]) -> pa.RecordBatch:
        """See ``LineReader.parse``.

        To Arrow a column that is missing looks like NULL. So where an update has a NULL in ``old``, it is moved into a member of
        its own, and in ``data`` and the old rows of deletions there must be as many nulls in the text as in the columns.
        """
        told = [_with_nulls_apart(line) if _OLD in line and b":null" in line else line for line in lines]
        found = read_lines(told, pa.schema([*_AROUND, *self._sides]), unexpected="error")
        is_gone = pc.equal(found.column("type"), "delete")
        whole = [found.column("data").drop_null(), found.column("old").filter(is_gone).drop_null()]
        nulls = sum(column.null_count for side in whole for column in side.flatten())
        if null_columns(b"\n".join(told), (column.name for column in self.schema.row_columns), found.schema.names) != nulls:
            raise ValueError("a column is missing, or it cannot be seen that none is")
        return found

    def images(self, lines: pa.RecordBatch) -> Images:
        """See ``LineReader.images``."""
        changes = pc.index_in(lines.column("type"), pa.array(ROW_TYPES))
        if changes.null_count:
            raise ValueError("an object is no insert, update or delete")
        kinds = changes.to_numpy().astype(np.int8)
        has_data, has_old, has_nulls = (pc.is_valid(lines.column(field.name)).to_numpy(False) for field in self._sides)
        is_update = kinds == Change.UPDATE
        if (has_data != (kinds != Change.DELETE)).any() or (~is_update & (has_old != (kinds == Change.DELETE))).any():
            raise ValueError("an object has not the rows that it should have")
        if (has_nulls & ~is_update).any():
            raise ValueError("only updates have old columns apart")
        is_gone = pa.array(kinds == Change.DELETE)
        new, old = [], []
        for data, before, null in zip(*(lines.column(field.name).flatten() for field in self._sides), strict=True):
            new.append(pc.if_else(is_gone, before, data))
            unchanged = pc.if_else(pc.is_valid(before), before, data)
            old.append(pc.if_else(pc.fill_null(null, False), pa.scalar(None, data.type), unchanged))
        return Images(kinds, new, old)

    def convert(self, column: Column, values: pa.Array) -> pa.Array:
        """See ``LineReader.convert``."""
        if is_binary_type(column.type):
            return binary_from_base64(values)
        if column.type.kind is TypeKind.TIMESTAMP:
            return timestamps_to_utc(values, self.time_zone)
        return pc.cast(values, pa.string()) if WRITTEN[column.type.kind] is Written.MEMBER else values

    def parse_one(self, line: bytes) -> dict[str, object]:
        """See ``LineReader.parse_one``."""
        try:
            message = read_object(line)
        except ValueError as error:
            raise DecodeError(f"The message cannot be read: {error}", value=line[:_SHOWN].decode("utf-8", "replace")) from None
        kind = str(message.get("type"))
        if kind not in ROW_TYPES:
            raise DecodeError("The message is not a row change.", column="type", value=kind[:_SHOWN])
        sides = {side: message[side] for side in ("data", "old") if message.get(side) is not None}
        if sides.keys() not in {"insert": [{"data"}], "update": [{"data", "old"}, {"data"}], "delete": [{"old"}]}[kind]:
            raise DecodeError(f"The message is of the type {kind}, and has not the rows that belong to it.")
        rows: dict[str, object] = {"type": kind}
        for side, row in sides.items():
            rows[side] = columns = self._columns(side, row)
            if kind != "update" or side == "data":
                require_columns(self.schema, columns, whole=side == "data")
            else:
                rows[_WAS_NULL] = {name: True for name, value in columns.items() if value is None}
        return rows

    def _columns(self, side: str, row: object) -> dict[str, object]:
        """The columns of a row, by the names of the schema. Raises DecodeError."""
        if not isinstance(row, Members):
            raise DecodeError(f"{side} is not a JSON object.", value=str(row)[:_SHOWN])
        return named_columns(self.schema, row.items(), _fitting)


def _with_nulls_apart(line: bytes) -> bytes:
    """The line of an update with the nulls of ``old`` in a member ``was_null``; any other line unchanged.

    Raises ValueError for a line of which it cannot be seen whether it is an update's.
    """
    row, begin = PLAIN_ROW.match(line), line.rfind(_OLD)
    if row is None or line.find(_OLD) != begin:
        raise ValueError("the row is not written as TiCDC writes it")
    if row[3] != b"update":
        return line
    old = line[begin + len(_OLD) - 1 : -1]
    nulls = _NULL_MEMBER.findall(old)
    if not nulls:
        return line
    rest = _NULL_MEMBER.sub(b"", old)
    kept = b"{" + b",".join(part for part in _members(rest) if part) + b"}"
    apart = b",".join(name + b":true" for name in nulls)
    return line[: begin + len(_OLD) - 1] + kept + b',"%s":{' % _WAS_NULL.encode() + apart + b"}}"


_MEMBER = re.compile(rb'"(?:[^"\\]|\\.)*":(?:"(?:[^"\\]|\\.)*"|[^",{}\[\]]+)')


def _members(text: bytes) -> list[bytes]:
    """The members of a flat JSON object, between which commas may be superfluous."""
    return _MEMBER.findall(text)


def _written_type(column: Column) -> pa.DataType:
    if WRITTEN[column.type.kind] is Written.MEMBER:
        return pa.uint64()
    return pa.string() if is_binary_type(column.type) else arrow_type(column.type)


def _fitting(column: Column, value: object) -> object:
    """A value if it is one of the Arrow type in which the column is written. Raises DecodeError."""
    if value is None:
        return None
    of = _written_type(column)
    if pa.types.is_string(of):
        if isinstance(value, str) and is_unicode(value):
            return value
    elif isinstance(value, int | float) and not isinstance(value, bool):
        if pa.types.is_floating(of) and math.isfinite(value):
            return float(value)
        least, most = (0, (1 << 64) - 1) if pa.types.is_uint64(of) else (-(1 << 63), (1 << 63) - 1)
        if isinstance(value, int) and not pa.types.is_floating(of) and least <= value <= most:
            return value
    raise DecodeError(f"The value is not written as a {column.type}.", column=column.name, value=str(value)[:_SHOWN])
