"""Values of TiCDC's Debezium protocol from which the source's value cannot be told.

TiCDC writes the column's default for NULL, in JSON floats for decimals, and 1970 for zero dates and times.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import date, datetime, timedelta
from decimal import Decimal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.formats.approximate_decimals import EXACT_DIGITS, uncertain
from headrace.model.table import Column
from headrace.model.types import CHARACTER_KINDS, INTEGER_KINDS, TypeKind

EPOCH = "1970-01-01T00:00:00Z"
"""A TIMESTAMP before the first possible one, as TiCDC compares it."""
_NULL = "The message does not show whether the value is NULL: for NULL, TiCDC writes the column's default."
_DIGITS = f"The message has the number rounded to a 64-bit float, which does not show more than {EXACT_DIGITS} digits."
_ZERO = "The message does not show whether the value is a zero date or one of 1970: TiCDC writes both alike."
_NOW = re.compile(r"(CURRENT_TIMESTAMP|NOW|LOCALTIME|LOCALTIMESTAMP)\b", re.IGNORECASE)
_DATETIME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.([0-9]{1,6}))?")
_TIME = re.compile(r"(-?)([0-9]{1,3}):([0-9]{2}):([0-9]{2})(?:\.([0-9]{1,6}))?")
_FIRST_YEAR = 1901
_1970 = datetime(1970, 1, 1)
_MICROSECOND = timedelta(microseconds=1)
_MILLISECOND_DIGITS = 3
BoolArray = npt.NDArray[np.bool_]


def unclear(column: Column, values: pa.Array) -> Iterator[tuple[str, BoolArray]]:
    """Which values, as messages write them, may mean several ones, each time with the reason: a sentence.

    A NULL of a DATE or DATETIME column may also mean a zero date, and is taken as NULL.
    """
    if column.type.kind is TypeKind.DECIMAL and pa.types.is_floating(values.type):
        yield _DIGITS, uncertain(values, column.type)
    if column.type.kind is TypeKind.TIMESTAMP:
        yield _ZERO, _equal(values, EPOCH)
    if column.type.kind in (TypeKind.DATE, TypeKind.DATETIME) and not column.nullable:
        yield _ZERO, _equal(values, 0)
    if column.nullable and column.default is not None:
        yield _NULL, _may_be_default(column, column.default, values)


def _may_be_default(column: Column, default: str, values: pa.Array) -> BoolArray:
    """Which values may be the default; all of them if it is not understood."""
    kind = column.type.kind
    if kind is TypeKind.TIMESTAMP and _NOW.match(default):
        return np.zeros(len(values), bool)  # then NULL is written as NULL
    if kind in (TypeKind.ENUM, TypeKind.SET):
        wanted = _members(default)
        distinct = values.dictionary_encode()
        found = pa.array([_members(text) == wanted for text in distinct.dictionary.to_pylist()], pa.bool_())
        return np.asarray(pc.fill_null(found.take(distinct.indices), False).to_numpy(False))
    read = _exact_decimal if pa.types.is_string(values.type) and kind is TypeKind.DECIMAL else _DEFAULTS.get(kind)
    try:
        told = read(default, column) if read is not None else None
    except ValueError:
        told = None
    return np.asarray(pc.is_valid(values).to_numpy(False)) if told is None else _equal(values, told)


def _equal(values: pa.Array, value: object) -> BoolArray:
    return np.asarray(pc.fill_null(pc.equal(values, pa.scalar(value, values.type)), False).to_numpy(False))


def _members(text: str) -> frozenset[str]:
    return frozenset(text.casefold().split(","))


def _exact_decimal(default: str, column: Column) -> str:
    float(default)  # raises ValueError for an expression
    return f"{Decimal(default):.{column.type.scale or 0}f}"


def _text(default: str, _column: Column) -> str | None:
    return None if "(" in default else default  # an expression


def _date(default: str, _column: Column) -> int:
    return (date.fromisoformat(default) - _1970.date()).days


def _year(default: str, _column: Column) -> int | None:
    """A shorter year may be stored as it was written, and TiCDC writes the one that it means."""
    year = int(default)
    return year if year >= _FIRST_YEAR else None


def _datetime(default: str, column: Column) -> int | None:
    """A text in another form, such as one with an offset, may be stored as it was written. Then it is not certain what it means."""
    if _NOW.match(default):
        return 0
    found = _DATETIME.fullmatch(default)
    if found is None or _has_more_digits(found[1], column):
        return None
    microseconds = (datetime.fromisoformat(default) - _1970) // _MICROSECOND
    return microseconds if (column.type.scale or 0) > _MILLISECOND_DIGITS else microseconds // 1000


def _time(default: str, column: Column) -> int | None:
    found = _TIME.fullmatch(default)
    if found is None or _has_more_digits(found[5], column):
        return None
    sign, hours, minutes, seconds, fraction = found.groups()
    whole = (int(hours) * 60 + int(minutes)) * 60 + int(seconds)
    count = whole * 1_000_000 + int((fraction or "").ljust(6, "0"))
    return -count if sign else count


def _has_more_digits(fraction: str | None, column: Column) -> bool:
    """Whether the column rounds the fraction of a second."""
    return len(fraction or "") > (column.type.scale or 0)


_Read = Callable[[str, Column], object]
_DEFAULTS: dict[TypeKind, _Read] = {
    **dict.fromkeys(INTEGER_KINDS, lambda default, _column: _in_64_bits(int(default))),
    **dict.fromkeys({TypeKind.FLOAT, TypeKind.DOUBLE, TypeKind.DECIMAL}, lambda default, _column: float(default)),
    **dict.fromkeys(CHARACTER_KINDS, _text),
    TypeKind.YEAR: _year,
    TypeKind.DATE: _date,
    TypeKind.DATETIME: _datetime,
    TypeKind.TIME: _time,
}
"""The default as messages write it, by type. Types that are missing, and defaults that raise ValueError or give ``None``, are not
understood."""


def _in_64_bits(number: int) -> int:
    """As a signed number of 64 bits, as TiCDC writes unsigned ones."""
    return number if number < 1 << 63 else number - (1 << 64)
