"""Converts one value of a message to a Python value, by the type of its column (``row_events`` lists the types)."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal

import pyarrow as pa

from headrace.formats.binlog.errors import BinlogError, MalformedBinlogError, UnknownValueError
from headrace.formats.binlog.messages import Cell, CellField, ColumnInfo
from headrace.formats.binlog.shapes import kind_of
from headrace.formats.values import check_time_zone, member_of_number, timestamps_to_utc
from headrace.model.table import Column
from headrace.model.types import BINARY_KINDS, CHARACTER_KINDS, INTEGER_KINDS, ColumnType, TypeKind, TypeMap, each

Convert = Callable[[Cell], object]
_SHOWN_BYTES = 40
_INTEGER = re.compile(r"-?[0-9]+")
_DECIMAL = re.compile(r"-?[0-9]+(\.[0-9]+)?")
_MOST_BITS_IN_BYTES = 8


class EnumOrdinal(int):
    """An ENUM's value as the message contains it: the place of the member from 1, or 0 for the empty string of an invalid value."""

    def __repr__(self) -> str:
        return f"EnumOrdinal({int(self)})"


class SetMask(int):
    """A SET's value as the message contains it: one bit for each member, the lowest for the first."""

    def __repr__(self) -> str:
        return f"SetMask({int(self)})"


class LocalTimestamp(str):
    """A TIMESTAMP in the time zone of the host that Drainer ran on, which the message does not name."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"LocalTimestamp({str(self)!r})"


@dataclass(frozen=True)
class ValueOptions:
    """What a message does not contain, and a user may know."""

    time_zone: str = ""
    """The zone of Drainer's host, as an IANA name or an offset such as ``+08:00``; ``""`` if it is unknown."""
    charset: str = "utf-8"
    """The charset of strings, as one of Python's codecs. Columns of TiDB's charsets ``latin1`` and ``gbk`` are not UTF-8."""

    def __post_init__(self) -> None:
        """Raises ValueError for an unknown time zone or charset."""
        if self.time_zone:
            check_time_zone(self.time_zone)
        try:
            "".encode(self.charset)
        except LookupError:
            raise ValueError(f"{self.charset!r} is no charset that Python knows; write utf-8, latin-1 or gbk") from None


def converter(info: ColumnInfo, column: Column | None, options: ValueOptions) -> Convert:
    """The function for the values of a column. ``column`` is what a schema says about it, if there is one.

    The function returns ``None`` for NULL. It raises MalformedBinlogError for a value in a field that the type does not use or that
    is not a value of the type, and UnknownValueError for one whose meaning is not in the message.
    """
    kind = kind_of(info)
    of_kind = _as_it_is if kind is None else _CONVERTERS[kind](column.type if column else None, options)

    def convert(cell: Cell) -> object:
        if cell.field is CellField.NULL:
            return None
        try:
            return of_kind(cell)
        except BinlogError as error:
            error.column = info.name
            raise
        except (ValueError, OverflowError):
            raise MalformedBinlogError(
                f"The value of the column {info.name} is not a value of the type {info.mysql_type}.",
                column=info.name,
                value=_shown(cell),
            ) from None

    return convert


def _shown(cell: Cell) -> str:
    if isinstance(cell.value, bytes):
        return cell.value[:_SHOWN_BYTES].decode("ascii", "backslashreplace")
    return "" if cell.value is None else str(cell.value)


def _bytes(cell: Cell, field: CellField) -> bytes:
    """The bytes of a value in that field. A value without any field is the empty string, as for the Go programs."""
    if cell.field is CellField.ABSENT:
        return b""
    if cell.field is not field or not isinstance(cell.value, bytes):
        raise ValueError
    return cell.value


def _text(cell: Cell) -> str:
    return _bytes(cell, CellField.STRING).decode("ascii")


def _digits(cell: Cell, form: re.Pattern[str]) -> str:
    """The text of a number. Python's own conversions accept more: spaces, underscores, exponents, NaN."""
    text = _text(cell)
    if form.fullmatch(text) is None:
        raise ValueError
    return text


def _number(cell: Cell, field: CellField) -> int:
    if cell.field is not field or not isinstance(cell.value, int):
        raise ValueError
    return cell.value


def _as_it_is(cell: Cell) -> object:
    if cell.field is CellField.STRING and isinstance(cell.value, bytes):
        return cell.value.decode()
    return "" if cell.field is CellField.ABSENT else cell.value


def _integer(told: ColumnType | None, _options: ValueOptions) -> Convert:
    def convert(cell: Cell) -> int:
        if cell.field is CellField.STRING:  # MEDIUMINT before v3.0.15 and v4.0.0
            number = int(_digits(cell, _INTEGER))
        elif cell.field is CellField.INT64 or cell.field is CellField.UINT64:
            number = _number(cell, cell.field)
        else:
            raise ValueError
        if told is not None and told.unsigned and number < 0:
            raise ValueError
        return number

    return convert


def _year(_told: ColumnType | None, _options: ValueOptions) -> Convert:
    return lambda cell: int(_digits(cell, _INTEGER))


def _double(_told: ColumnType | None, _options: ValueOptions) -> Convert:
    def convert(cell: Cell) -> float:
        if not isinstance(cell.value, float):
            raise ValueError
        return cell.value

    return convert


def _decimal(_told: ColumnType | None, _options: ValueOptions) -> Convert:
    return lambda cell: Decimal(_digits(cell, _DECIMAL))


def _bit(_told: ColumnType | None, _options: ValueOptions) -> Convert:
    def convert(cell: Cell) -> int:
        bits = _bytes(cell, CellField.BYTES)
        if not 0 < len(bits) <= _MOST_BITS_IN_BYTES:
            raise ValueError
        return int.from_bytes(bits, "big")

    return convert


def _string(_told: ColumnType | None, options: ValueOptions) -> Convert:
    def convert(cell: Cell) -> str:
        raw = _bytes(cell, CellField.STRING)
        try:
            return raw.decode(options.charset)
        except UnicodeDecodeError:
            raise UnknownValueError(
                f"A string is not {options.charset}, and the message does not name its charset.",
                value=_shown(cell),
                hint="Pass charset, such as latin-1 or gbk, if all strings of the topic have it: it counts for every column.",
            ) from None

    return convert


def _binary(_told: ColumnType | None, _options: ValueOptions) -> Convert:
    return lambda cell: _bytes(cell, CellField.BYTES)


def _json(_told: ColumnType | None, _options: ValueOptions) -> Convert:
    return lambda cell: _bytes(cell, CellField.BYTES).decode()


def _plain_text(_told: ColumnType | None, _options: ValueOptions) -> Convert:
    return _text


def _timestamp(_told: ColumnType | None, options: ValueOptions) -> Convert:
    if not options.time_zone:
        return lambda cell: LocalTimestamp(_text(cell))
    return lambda cell: timestamps_to_utc(pa.array([_text(cell)]), options.time_zone)[0].as_py()


def _enum(told: ColumnType | None, _options: ValueOptions) -> Convert:
    return lambda cell: _member(told, EnumOrdinal(_number(cell, CellField.UINT64)))


def _set(told: ColumnType | None, _options: ValueOptions) -> Convert:
    return lambda cell: _member(told, SetMask(_number(cell, CellField.UINT64)))


def _member(told: ColumnType | None, number: EnumOrdinal | SetMask) -> object:
    return number if told is None or not told.elements else member_of_number(int(number), told)


_CONVERTERS: TypeMap[Callable[[ColumnType | None, ValueOptions], Convert]] = TypeMap(
    "Python values of binlog messages",
    each(INTEGER_KINDS, _integer),
    each({TypeKind.FLOAT, TypeKind.DOUBLE}, _double),
    each(CHARACTER_KINDS, _string),
    each(BINARY_KINDS, _binary),
    each({TypeKind.DATE, TypeKind.TIME, TypeKind.DATETIME, TypeKind.VECTOR}, _plain_text),
    {
        TypeKind.BIT: _bit,
        TypeKind.YEAR: _year,
        TypeKind.DECIMAL: _decimal,
        TypeKind.JSON: _json,
        TypeKind.TIMESTAMP: _timestamp,
        TypeKind.ENUM: _enum,
        TypeKind.SET: _set,
    },
)
