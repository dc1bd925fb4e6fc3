"""Reads the rows of Maxwell itself, which reads a MySQL or MariaDB: messages, each with one change of a row.

Format: Maxwell's documentation, "Data Format", and what Maxwell 1.22 sends. Numbers are numbers, also DECIMAL, BIT and YEAR; texts
and times are texts, TIMESTAMP in UTC; binary types are base64, BINARY without the zero bytes at its end; a SET is a list.
"""

from __future__ import annotations

import binascii
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal, localcontext
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.formats.base import DecodeError
from headrace.formats.binlog_clock import MOST_ROWS
from headrace.formats.json_lines import Members
from headrace.formats.maxwell_mysql_messages import ROW_TYPES, read_members, shows_order
from headrace.formats.row_images import Change, Images, UnclearValueError, named_columns, require_columns
from headrace.formats.values import numbers_from_members
from headrace.model.table import Column, TableSchema
from headrace.model.types import BINARY_KINDS, CHARACTER_KINDS, INTEGER_KINDS, ColumnType, TypeKind, TypeMap, arrow_type, each
from headrace.model.writable_text import is_unicode

_SHOWN = 100
_MOST_DIGITS = 200
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_DATETIME = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)(?:\.(\d{1,6}))?")
_TIME = re.compile(r"(-?\d{2,3}:\d\d:\d\d)(?:\.(\d{1,6}))?")
_ZERO_YEAR = 1900
_ACCEPT = "Or have such values applied as the messages have them, with accept-unclear=true in the source's URI."
_WRAPPED = "Maxwell writes a TIME below zero or above 24 hours as another one, so the message does not show the value."
_JSON = "The message does not show whether the text is a JSON document or a JSON string."
_NO_ORDER = (
    "The key of the row changes, and the message does not show which row of its event it is. Another one may leave or take the key."
)
_NO_ORDER_HINT = f"Set output_xoffset=true for Maxwell, which numbers the first {MOST_ROWS:,} rows of a transaction. {_ACCEPT}"
_HINT = f"Send the table in another way. {_ACCEPT}"


@dataclass(frozen=True)
class PlainMaxwellRowReader:
    """A :class:`headrace.formats.row_images.LineReader`, whose lines are whole messages."""

    schema: TableSchema
    accept_unclear: bool = False
    """Whether a value that the message does not show exactly is taken as the message has it."""

    @cached_property
    def single_schema(self) -> pa.Schema:
        """See ``LineReader.single_schema``. Values are canonical, but those of ENUM and SET are text."""
        row = pa.struct([pa.field(column.name, arrow_type(column.type)) for column in self.schema.row_columns])
        return pa.schema([("type", pa.string()), ("before", row), ("after", row)])

    def parse(self, lines: Sequence[bytes]) -> pa.RecordBatch:
        """See ``LineReader.parse``."""
        try:
            return pa.RecordBatch.from_pylist([self.parse_one(line) for line in lines], schema=self.single_schema)
        except DecodeError as error:
            raise ValueError(error.message) from None

    def images(self, lines: pa.RecordBatch) -> Images:
        """See ``LineReader.images``."""
        changes = pc.index_in(lines.column("type"), pa.array(ROW_TYPES)).to_numpy().astype(np.int8)
        before, after = (lines.column(side).flatten() for side in ("before", "after"))
        is_gone = pa.array(changes == Change.DELETE)
        return Images(changes, [pc.if_else(is_gone, old, new) for old, new in zip(before, after, strict=True)], before)

    def convert(self, column: Column, values: pa.Array) -> pa.Array:
        """See ``LineReader.convert``."""
        return numbers_from_members(values, column.type) if column.type.kind in (TypeKind.ENUM, TypeKind.SET) else values

    def parse_one(self, line: bytes) -> dict[str, object]:
        """See ``LineReader.parse_one``."""
        try:
            message = read_members(line)
        except ValueError as error:
            raise DecodeError(f"The message cannot be read: {error}", value=line[:_SHOWN].decode("utf-8", "replace")) from None
        kind = str(message.get("type"))
        if kind not in ROW_TYPES:
            raise DecodeError("The message is not a row change.", column="type", value=kind[:_SHOWN])
        row = self._columns("data", message.get("data"))
        require_columns(self.schema, row, whole=True)
        if kind == "insert":
            return {"type": kind, "after": row}
        if kind == "delete":
            return {"type": kind, "before": row}
        before = row | self._columns("old", message.get("old", Members(())))
        moves = any(before[name] != row[name] for name in self.schema.handle_key)
        if moves and not self.accept_unclear and not shows_order(message):
            raise DecodeError(_NO_ORDER, column=self.schema.handle_key[0], hint=_NO_ORDER_HINT)
        return {"type": kind, "after": row, "before": before}

    def _columns(self, side: str, row: object) -> dict[str, object]:
        if not isinstance(row, Members):
            raise DecodeError(f"{side} is not a JSON object.", value=str(row)[:_SHOWN])
        return named_columns(self.schema, row.items(), self._value)

    def _value(self, column: Column, value: object) -> object:
        try:
            if value is None:
                return None
            told = _CANONICAL[column.type.kind](value, column.type)
            if not self.accept_unclear and (reason := _unclear(column.type, value)):
                raise UnclearValueError(reason, _HINT)
        except UnclearValueError as unclear:
            raise DecodeError(unclear.message, column=column.name, value=str(value)[:_SHOWN], hint=unclear.hint) from None
        except (ValueError, ArithmeticError, RecursionError):
            message = f"The value is not written as a {column.type}."
            raise DecodeError(message, column=column.name, value=str(value)[:_SHOWN]) from None
        return told


def _unclear(of: ColumnType, value: object) -> str:
    """Why a value may mean several ones; empty if it does not."""
    if of.kind is TypeKind.TIME:
        return _WRAPPED
    return _JSON if of.kind is TypeKind.JSON and isinstance(value, str) else ""


def _whole(value: object, least: int, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise ValueError("not such a whole number")
    return value


def _integer(value: object, of: ColumnType) -> int:
    return _whole(value, 0, (1 << 64) - 1) if of.unsigned else _whole(value, -(1 << 63), (1 << 63) - 1)


def _year(value: object, _of: ColumnType) -> int:
    number = _whole(value, 0, 9999)
    return 0 if number == _ZERO_YEAR else number


def _bits(value: object, of: ColumnType) -> int:
    return _whole(value, 0, (1 << (of.length or 1)) - 1)


def _float(value: object, _of: ColumnType) -> float:
    if isinstance(value, bool) or not isinstance(value, int | Decimal) or not math.isfinite(number := float(value)):
        raise ValueError("not a number")
    return number


def _decimal(value: object, of: ColumnType) -> str:
    is_long = isinstance(value, str) and value.lstrip("-").isdigit()  # see ``bounded_integer``
    if isinstance(value, bool) or not (is_long or isinstance(value, int | Decimal)):
        raise ValueError("not a number")
    with localcontext() as context:
        context.prec = _MOST_DIGITS
        number = Decimal(str(value))
        told = number.quantize(Decimal(1).scaleb(-(of.scale or 0)))
    if told != number:
        raise ValueError("it has more digits than the column")
    return f"{told if told else told.copy_abs():f}"


def _text(value: object, _of: ColumnType) -> str:
    if not isinstance(value, str) or not is_unicode(value):
        raise ValueError("not a text")
    return value


def _binary(value: object, of: ColumnType) -> bytes:
    raw = binascii.a2b_base64(_text(value, of), strict_mode=True)
    return raw.ljust(of.length or 1, b"\0") if of.kind is TypeKind.BINARY else raw


def _set(value: object, of: ColumnType) -> str:
    if not isinstance(value, list):
        raise ValueError("not a list")
    return ",".join(_text(member, of) for member in value)


def _date(value: object, of: ColumnType) -> str:
    text = _text(value, of)
    if _DATE.fullmatch(text) is None:
        raise ValueError("not a date")
    return text


def _with_digits(found: re.Match[str] | None, of: ColumnType) -> str:
    digits = of.scale or 0
    if found is None or (found[2] or "")[digits:].strip("0"):
        raise ValueError("not such a time")
    return found[1] + ("." + (found[2] or "")[:digits].ljust(digits, "0") if digits else "")


def _moment(value: object, of: ColumnType) -> str:
    text = _with_digits(_DATETIME.fullmatch(_text(value, of)), of)
    if of.kind is TypeKind.TIMESTAMP and not text.startswith("0000-00-00"):
        datetime.fromisoformat(text[:19])
    return text


def _document(value: object, of: ColumnType) -> str:
    return _text(value, of) if isinstance(value, str) else json.dumps(_plain(value), ensure_ascii=False)


def _plain(value: object) -> object:
    """The JSON value with numbers as floats where they have a point. Raises ValueError for one that no float shows."""
    if isinstance(value, Mapping):
        return {key: _plain(member) for key, member in value.items()}
    if isinstance(value, list):
        return [_plain(element) for element in value]
    if not isinstance(value, Decimal):
        return value
    if Decimal(repr(number := float(value))) != value:
        raise ValueError("a number has more digits than a float")
    return number


def _unknown(_value: object, of: ColumnType) -> object:
    raise ValueError(f"Maxwell has no {of.kind}")


_CANONICAL: TypeMap[Callable[[object, ColumnType], object]] = TypeMap(
    "how Maxwell writes values",
    each(INTEGER_KINDS, _integer),
    each({TypeKind.FLOAT, TypeKind.DOUBLE}, _float),
    each(CHARACTER_KINDS | {TypeKind.ENUM}, _text),
    each(BINARY_KINDS, _binary),
    {TypeKind.YEAR: _year, TypeKind.BIT: _bits, TypeKind.DECIMAL: _decimal, TypeKind.SET: _set, TypeKind.JSON: _document},
    {TypeKind.DATE: _date, TypeKind.TIME: lambda value, of: _with_digits(_TIME.fullmatch(_text(value, of)), of)},
    each({TypeKind.DATETIME, TypeKind.TIMESTAMP}, _moment),
    {TypeKind.VECTOR: _unknown},
)
