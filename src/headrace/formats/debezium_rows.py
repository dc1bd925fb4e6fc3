"""Reads the rows of TiCDC's Debezium protocol: payloads, each a line.

Format: TiCDC documentation, "TiCDC Debezium Protocol", and Debezium documentation, "MySQL connector", section "Data type mappings".
``after`` is the row after an insert or update, and ``before`` the one before an update or deletion; without
``debezium-output-old-value`` updates lack it. Binary types are base64, BIT(1) is a truth value and a longer BIT its bytes in
base64, the lowest first. DATE counts days since 1970, DATETIME milliseconds or, with more than three digits of a second,
microseconds, TIME microseconds. TIMESTAMP is ISO text in UTC, ENUM and SET are their members. Unsigned BIGINT is written as if it
were signed.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.formats.approximate_decimals import decimals
from headrace.formats.base import BytesOrTextError, DecodeError
from headrace.formats.counted_times import dates, datetimes, moments, times
from headrace.formats.debezium_messages import BYTES, ROW_OPERATIONS, bytes_told
from headrace.formats.debezium_unclear import EPOCH, unclear
from headrace.formats.json_lines import Members, null_columns, read_lines, read_object
from headrace.formats.row_images import Change, Images, UnclearValueError, named_columns, require_columns
from headrace.formats.values import binary_from_base64, numbers_from_members
from headrace.model.table import Column, TableSchema, folded_name
from headrace.model.types import BINARY_KINDS, CHARACTER_KINDS, INTEGER_KINDS, ColumnType, TypeKind, TypeMap, arrow_type, each
from headrace.model.writable_text import is_unicode

_SHOWN = 100
_MOST_MILLISECOND_DIGITS = 3
SIDES = ("before", "after")
_HINT = (
    "Send the table with another protocol, such as canal-json or open-protocol. Or have such values applied as the messages have "
    "them, with accept-unclear=true in the source's URI."
)


@dataclass(frozen=True)
class DebeziumRowReader:
    """A :class:`headrace.formats.row_images.LineReader`."""

    schema: TableSchema
    accept_unclear: bool = False
    """Whether a value that the message does not show exactly is taken as the message has it, see :func:`unclear`."""

    @cached_property
    def single_schema(self) -> pa.Schema:
        """See ``LineReader.single_schema``."""
        row = pa.struct([pa.field(column.name, WRITTEN_TYPES[column.type.kind](column.type)) for column in self.schema.row_columns])
        return pa.schema([("op", pa.string()), ("before", row), ("after", row), (BYTES, pa.string())])

    def parse(self, lines: Sequence[bytes]) -> pa.RecordBatch:
        """See ``LineReader.parse``.

        To Arrow a column that is missing looks like NULL. So there must be as many nulls in the text as in the columns.
        """
        found = read_lines(lines, self.single_schema, unexpected="error")
        nulls = sum(column.null_count for side in SIDES for column in found.column(side).drop_null().flatten())
        if null_columns(b"\n".join(lines), (column.name for column in self.schema.row_columns), ("op", *SIDES)) != nulls:
            raise ValueError("a column is missing, or it cannot be seen that none is")
        if any(self._misfit(told) for told in pc.unique(found.column(BYTES)).to_pylist()):
            raise ValueError("a column holds bytes in place of text, or text")
        return found

    def images(self, lines: pa.RecordBatch) -> Images:
        """See ``LineReader.images``."""
        return images_of(lines)

    def convert(self, column: Column, values: pa.Array) -> pa.Array:
        """See ``LineReader.convert``. Raises UnclearValueError for a value that may mean several ones, unless that is accepted."""
        if not self.accept_unclear:
            check_clear(column, values)
        return CONVERTED[column.type.kind](values, column.type)

    def parse_one(self, line: bytes) -> dict[str, object]:
        """See ``LineReader.parse_one``."""
        try:
            message = read_object(line)
        except ValueError as error:
            raise DecodeError(f"The message cannot be read: {error}", value=line[:_SHOWN].decode("utf-8", "replace")) from None
        payload = message.get("payload", message)
        if not isinstance(payload, Members) or payload.get("op") not in ROW_OPERATIONS:
            raise DecodeError("The message is not a row change.", value=line[:_SHOWN].decode("utf-8", "replace"))
        misfit = self._misfit(payload.get(BYTES) if payload is message else bytes_told(message.get("schema")))
        if misfit is not None:
            raise misfit
        operation = str(payload["op"])
        sides = {side: payload[side] for side in SIDES if payload.get(side) is not None}
        if sides.keys() not in {"c": [{"after"}], "u": [{"before", "after"}, {"after"}], "d": [{"before"}]}[operation]:
            raise DecodeError(f"The message has op {operation}, and not the rows that belong to it.")
        return {"op": operation, **{side: self._columns(side, row, full=operation != "d") for side, row in sides.items()}}

    def _misfit(self, told: object) -> BytesOrTextError | None:
        """What is wrong with the columns that hold bytes in a message, see :func:`bytes_told`. Values do not show it."""
        if not isinstance(told, str):
            return None
        names = set(map(folded_name, json.loads(told)))
        for column in self.schema.row_columns:
            holds_bytes = folded_name(column.name) in names
            if column.type.kind in (CHARACTER_KINDS if holds_bytes else BINARY_KINDS):
                return BytesOrTextError(column.name, holds_bytes=holds_bytes)
        return None

    def _columns(self, side: str, row: object, *, full: bool) -> dict[str, object]:
        if not isinstance(row, Members):
            raise DecodeError(f"{side} is not a JSON object.", value=str(row)[:_SHOWN])
        found = named_columns(self.schema, row.items(), _fitting)
        require_columns(self.schema, found, whole=full)
        return found


def images_of(lines: pa.RecordBatch) -> Images:
    """The rows in payloads, by their columns ``op``, ``before`` and ``after``. Raises ValueError if one lacks a row."""
    operations = pc.index_in(lines.column("op"), pa.array(ROW_OPERATIONS))
    if operations.null_count:
        raise ValueError("a message is no insert, update or deletion")
    kinds = operations.to_numpy().astype(np.int8)
    has_old, has_new = (pc.is_valid(lines.column(side)).to_numpy(False) for side in SIDES)
    is_update = kinds == Change.UPDATE
    if (has_new != (kinds != Change.DELETE)).any() or (~is_update & (has_old != (kinds == Change.DELETE))).any():
        raise ValueError("a message has not the rows that it should have")
    is_gone = pa.array(kinds == Change.DELETE)
    before, after = (lines.column(side).flatten() for side in SIDES)
    changes = np.where(is_update & ~has_old, np.int8(Change.UPDATE_WITHOUT_OLD), kinds).astype(np.int8)
    return Images(changes, [pc.if_else(is_gone, old, new) for old, new in zip(before, after, strict=True)], before)


def check_clear(column: Column, values: pa.Array) -> None:
    """Raises UnclearValueError if one of the values, as messages write them, may mean several ones."""
    for reason, are_unclear in unclear(column, values):
        if are_unclear.any():
            raise UnclearValueError(reason, _HINT)


def _fitting(column: Column, value: object) -> object:
    """A value if it is one of the Arrow type in which the column is written. Raises DecodeError."""
    if value is None:
        return None
    of = WRITTEN_TYPES[column.type.kind](column.type)
    if pa.types.is_string(of):
        if isinstance(value, str) and is_unicode(value):
            return value
    elif pa.types.is_boolean(of):
        if isinstance(value, bool):
            return value
    elif isinstance(value, int | float) and not isinstance(value, bool):
        if pa.types.is_floating(of) and math.isfinite(value) and abs(value) <= _GREATEST_FLOAT:
            return float(value)
        if isinstance(value, int) and -(1 << 63) <= value < 1 << 63:
            return value
    raise DecodeError(f"The value is not written as a {column.type}.", column=column.name, value=str(value)[:_SHOWN])


_GREATEST_FLOAT = np.finfo(np.float64).max


def _is_one_bit(of: ColumnType) -> bool:
    return (of.length or 1) == 1


WRITTEN_TYPES: TypeMap[Callable[[ColumnType], pa.DataType]] = TypeMap(
    "how TiCDC writes types as Debezium does",
    each(TypeKind, lambda _of: pa.string()),
    each(INTEGER_KINDS | {TypeKind.YEAR, TypeKind.DATE, TypeKind.TIME, TypeKind.DATETIME}, lambda _of: pa.int64()),
    each({TypeKind.FLOAT, TypeKind.DOUBLE}, arrow_type),
    {TypeKind.DECIMAL: lambda _of: pa.float64(), TypeKind.BIT: lambda of: pa.bool_() if _is_one_bit(of) else pa.string()},
)


def _integers(values: pa.Array, of: ColumnType) -> pa.Array:
    if not of.unsigned:
        return values
    if of.kind is TypeKind.BIGINT:
        return pc.cast(values, pa.uint64(), safe=False)
    if (pc.min(values).as_py() or 0) < 0:
        raise ValueError("an unsigned number is negative")
    return values


def _bits(values: pa.Array, of: ColumnType) -> pa.Array:
    if _is_one_bit(of):
        return pc.cast(values, pa.uint64())
    return bits(binary_from_base64(values), of)


def bits(raw: pa.Array, of: ColumnType) -> pa.Array:
    """The bytes of BIT values, the lowest first, as numbers (uint64). Raises ValueError for a wrong number of bytes."""
    size = ((of.length or 1) + 7) // 8
    if pc.all(pc.equal(pc.binary_length(raw), size)).as_py() is False:
        raise ValueError(f"BIT has not {size} bytes")
    return pa.array([None if v is None else int.from_bytes(v, "little") for v in raw.to_pylist()], pa.uint64())


def _datetimes(values: pa.Array, of: ColumnType) -> pa.Array:
    digits = of.scale or 0
    return datetimes(values, "ms" if digits <= _MOST_MILLISECOND_DIGITS else "us", digits)


def _timestamps(values: pa.Array, of: ColumnType) -> pa.Array:
    digits = of.scale or 0
    zero = pa.scalar("0000-00-00 00:00:00" + ("." + "0" * digits if digits else ""))
    is_zero = pc.equal(values, EPOCH)
    told = pc.if_else(is_zero, pa.scalar(None, pa.string()), values)
    return pc.if_else(is_zero, zero, moments(told, digits))


CONVERTED: TypeMap[Callable[[pa.Array, ColumnType], pa.Array]] = TypeMap(
    "conversions of the Debezium protocol",
    each(TypeKind, lambda values, _of: values),
    each(INTEGER_KINDS, _integers),
    each(BINARY_KINDS, lambda values, _of: binary_from_base64(values)),
    each({TypeKind.ENUM, TypeKind.SET}, numbers_from_members),
    {TypeKind.DECIMAL: decimals, TypeKind.BIT: _bits, TypeKind.DATETIME: _datetimes, TypeKind.TIMESTAMP: _timestamps},
    {TypeKind.DATE: lambda values, _of: dates(values), TypeKind.TIME: lambda values, of: times(values, of.scale or 0)},
)
