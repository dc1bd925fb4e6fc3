"""Single values of Debezium's connectors for MySQL and MariaDB to canonical ones (``headrace.model.types``).

Format: Debezium documentation, "Debezium connector for MySQL", section "Data type mappings", and Kafka Connect's JSON converter,
which writes bytes in base64. A message's schema says how each column is written: its Connect type, and mostly the name of a logical
type.
"""

from __future__ import annotations

import binascii
import math
import re
from collections.abc import Callable
from datetime import datetime, timedelta
from decimal import Decimal, localcontext
from typing import NamedTuple

from headrace.formats.json_lines import Members, integer_of
from headrace.formats.row_images import UnclearValueError
from headrace.model.table import Column
from headrace.model.types import BINARY_KINDS, CHARACTER_KINDS, INTEGER_KINDS, ColumnType, TypeKind, TypeMap, each
from headrace.model.writable_text import is_unicode

DECIMAL = "org.apache.kafka.connect.data.Decimal"
_CONNECT, _DEBEZIUM = "org.apache.kafka.connect.data.", "io.debezium.time."
ZONED = "io.debezium.time.ZonedTimestamp"
DATES = frozenset({f"{_CONNECT}Date", f"{_DEBEZIUM}Date"})
_PER_SECOND = {
    **dict.fromkeys((f"{_CONNECT}Time", f"{_CONNECT}Timestamp", f"{_DEBEZIUM}Time", f"{_DEBEZIUM}Timestamp"), 3),
    **dict.fromkeys((f"{_DEBEZIUM}MicroTime", f"{_DEBEZIUM}MicroTimestamp"), 6),
    **dict.fromkeys((f"{_DEBEZIUM}NanoTime", f"{_DEBEZIUM}NanoTimestamp"), 9),
}
"""The digits of a second with which a logical type counts."""
_INTEGER_TYPES = ("int8", "int16", "int32", "int64")
_EPOCH = "1970-01-01T00:00:00"
_ZONED = re.compile(r"(\d{4}-\d\d-\d\d)T(\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?Z")
_NUMBER = re.compile(r"-?\d{1,65}(?:\.\d{1,30})?")
_1970 = datetime(1970, 1, 1)
_LONGEST_TIME = 839 * 3600 * 10**6
_MOST_DIGITS = 200
ACCEPT = "have such values applied as the messages have them, with accept-unclear=true in the source's URI."
_ZERO = "The message does not show whether the value is a zero date or one of 1970: Debezium writes both alike."
_FLOAT = "The message has the number rounded to a 64-bit float."
_FLOAT_HINT = f"Set decimal.handling.mode=precise for the connector. Or {ACCEPT}"
_COARSE = "The message has the time with fewer digits of a second than the column."
_COARSE_HINT = f"Set time.precision.mode=adaptive_time_microseconds for the connector. Or {ACCEPT}"


class Encoding(NamedTuple):
    """How a message writes a column."""

    type: str
    """Connect's name of the type: ``int32``, ``string``, ``bytes``."""
    name: str = ""
    """The logical type, empty if there is none."""
    scale: int | None = None
    """The digits of a DECIMAL behind its point."""
    may_be_null: bool = False
    """Whether the column may be NULL and has a default: for NULL, Kafka Connect writes the default."""
    default: object = None
    """With ``may_be_null``, the default as the message writes it."""

    @classmethod
    def of(cls, field: Members) -> Encoding:
        """That of a field of a message's schema."""
        parameters = field.get("parameters")
        scale = str(parameters.get("scale")) if isinstance(parameters, Members) else ""
        may_be_null = field.get("optional") is True and field.get("default") is not None
        return cls(
            str(field.get("type")),
            str(field.get("name") or ""),
            int(scale) if re.fullmatch(r"\d{1,3}", scale) else None,
            may_be_null,
            field.get("default") if may_be_null else None,
        )

    @classmethod
    def by_default(cls, of: ColumnType) -> Encoding:
        """That of a column with the connector's default settings."""
        return _BY_DEFAULT[of.kind](of)


def canonical(column: Column, encoding: Encoding, value: object, *, accept_unclear: bool) -> object:
    """A value as Arrow takes it for ``single_type``: members of ENUM and SET as text.

    Raises UnclearValueError for a value that may mean several ones unless that is accepted, and ValueError for one that is none.
    """
    if value is None:
        return None
    try:
        found = _CANONICAL[column.type.kind](value, encoding, column.type)
    except ArithmeticError:
        raise ValueError("the number is too large") from None
    if isinstance(found, _Unclear):
        if not accept_unclear:
            raise UnclearValueError(found.reason, found.hint)
        return found.value
    if column.type.kind in (TypeKind.DATE, TypeKind.DATETIME) and value == 0 and not column.nullable and not accept_unclear:
        raise UnclearValueError(_ZERO, f"Send the table in another way. Or {ACCEPT}")
    return found


class _Unclear(NamedTuple):
    value: object
    reason: str
    hint: str


def _number(value: object, encoding: Encoding) -> int:
    if encoding.name.startswith((_CONNECT, _DEBEZIUM)) and encoding.name != f"{_DEBEZIUM}Year":
        raise ValueError(f"{encoding.name} is not the type of a number")
    return _count(value, encoding)


def _count(value: object, encoding: Encoding) -> int:
    number = integer_of(value, -(1 << 63), (1 << 63) - 1)
    if number is None or encoding.type not in _INTEGER_TYPES:
        raise ValueError("not a whole number")
    return number


def _integer(value: object, encoding: Encoding, of: ColumnType) -> int:
    if encoding.name == DECIMAL and of.kind is TypeKind.BIGINT and encoding.scale == 0:
        return _unscaled(value, encoding)
    number = _number(value, encoding)
    if of.unsigned and number < 0:
        if of.kind is not TypeKind.BIGINT:
            raise ValueError("an unsigned number is negative")
        return number + (1 << 64)  # bigint.unsigned.handling.mode=long
    return number


def _year(value: object, encoding: Encoding, _of: ColumnType) -> int:
    number = _number(value, encoding)
    return 0 if number == 1900 else number  # the year 0000, counted from 1900 as the binlog has it


def _float(value: object, encoding: Encoding, _of: ColumnType) -> float:
    if encoding.type in ("float", "double") and isinstance(value, int | float) and not isinstance(value, bool):
        number = float(value)  # raises OverflowError for a whole number that is too large
        if math.isfinite(number):
            return number
    raise ValueError("not a number")


def _decimal(value: object, encoding: Encoding, of: ColumnType) -> object:
    if encoding.type == "double" and isinstance(value, int | float) and not isinstance(value, bool):
        return _Unclear(_scaled(Decimal(repr(value)), of, exact=False), _FLOAT, _FLOAT_HINT)
    if encoding.name == DECIMAL and encoding.scale is not None:
        return _scaled(Decimal(f"{_unscaled(value, encoding)}E-{encoding.scale}"), of)
    if encoding.type == "string" and not encoding.name and isinstance(value, str) and _NUMBER.fullmatch(value):
        return _scaled(Decimal(value), of)
    raise ValueError("not a decimal")


def _unscaled(value: object, encoding: Encoding) -> int:
    return int.from_bytes(_bytes(value, encoding), "big", signed=True)


def _scaled(number: Decimal, of: ColumnType, *, exact: bool = True) -> str:
    with localcontext() as context:
        context.prec = _MOST_DIGITS
        told = number.quantize(Decimal(1).scaleb(-(of.scale or 0)))
        if exact and told != number:
            raise ValueError("it has more digits than the column")
        return f"{told if told else told.copy_abs():f}"


def _bytes(value: object, encoding: Encoding) -> bytes:
    if encoding.type != "bytes" or not isinstance(value, str):
        raise ValueError("not bytes")
    return binascii.a2b_base64(value, strict_mode=True)


def _binary(value: object, encoding: Encoding, _of: ColumnType) -> bytes:
    if encoding.name:
        raise ValueError("not plain bytes")
    return _bytes(value, encoding)


def _bits(value: object, encoding: Encoding, of: ColumnType) -> int:
    length = of.length or 1
    if encoding.type == "boolean" and isinstance(value, bool) and length == 1:
        return int(value)
    raw = _bytes(value, encoding)
    number = int.from_bytes(raw, "little")
    if number >> length:
        raise ValueError("it has more bits than the column")
    return number


def _text(value: object, encoding: Encoding, _of: ColumnType) -> str:
    if encoding.type == "string" and isinstance(value, str) and is_unicode(value):
        return value
    raise ValueError("not a text")


def _date(value: object, encoding: Encoding, _of: ColumnType) -> str:
    if encoding.name not in DATES:
        raise ValueError("not a date")
    return _moment(timedelta(days=_count(value, encoding))).date().isoformat()


def _moment(since_1970: timedelta) -> datetime:
    return _1970 + since_1970


def _microseconds(value: object, encoding: Encoding, of: ColumnType) -> tuple[int, bool]:
    """The count in microseconds, and whether the message has all digits of the column."""
    digits, count = _PER_SECOND.get(encoding.name), _count(value, encoding)
    if digits is None:
        raise ValueError("not a time")
    microseconds, rest = divmod(count * 10**6, 10**digits)
    if rest or microseconds % 10 ** (6 - (of.scale or 0)):
        raise ValueError("it has more digits of a second than the column")
    return microseconds, digits >= (of.scale or 0)


def _datetime(value: object, encoding: Encoding, of: ColumnType) -> object:
    microseconds, is_whole = _microseconds(value, encoding, of)
    return _told(_with_digits(_moment(timedelta(microseconds=microseconds)), of.scale or 0), is_whole=is_whole)


def _with_digits(moment: datetime, digits: int) -> str:
    text = moment.isoformat(" ", "microseconds")
    return text[: len(text) - 6 + digits] if digits else text[:-7]


def _time(value: object, encoding: Encoding, of: ColumnType) -> object:
    microseconds, is_whole = _microseconds(value, encoding, of)
    if abs(microseconds) >= _LONGEST_TIME:
        raise ValueError("no TIME is that long")
    seconds, fraction = divmod(abs(microseconds), 10**6)
    text = f"{'-' if microseconds < 0 else ''}{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    digits = of.scale or 0
    return _told(f"{text}.{fraction:06}"[: len(text) + 1 + digits] if digits else text, is_whole=is_whole)


def _told(text: str, *, is_whole: bool) -> object:
    return text if is_whole else _Unclear(text, _COARSE, _COARSE_HINT)


def _timestamp(value: object, encoding: Encoding, of: ColumnType) -> str:
    found = _ZONED.fullmatch(value) if encoding.name == ZONED and isinstance(value, str) else None
    if found is None:
        raise ValueError("not a time in UTC")
    digits, fraction = of.scale or 0, found[3] or ""
    if fraction[digits:].strip("0"):
        raise ValueError("it has more digits of a second than the column")
    told = "." + fraction[:digits].ljust(digits, "0") if digits else ""
    if found[0].startswith(_EPOCH) and not fraction.strip("0"):
        return f"0000-00-00 00:00:00{told}"  # no TIMESTAMP is that early
    datetime.fromisoformat(f"{found[1]} {found[2]}")  # raises for the 30th of February
    return f"{found[1]} {found[2]}{told}"


def _unknown(_value: object, _encoding: Encoding, of: ColumnType) -> object:
    raise ValueError(f"Debezium has no {of.kind}")


_CANONICAL: TypeMap[Callable[[object, Encoding, ColumnType], object]] = TypeMap(
    "how Debezium's connector for MySQL writes values",
    each(INTEGER_KINDS, _integer),
    each({TypeKind.FLOAT, TypeKind.DOUBLE}, _float),
    each(CHARACTER_KINDS | {TypeKind.JSON, TypeKind.ENUM, TypeKind.SET}, _text),
    each(BINARY_KINDS, _binary),
    {TypeKind.YEAR: _year, TypeKind.DECIMAL: _decimal, TypeKind.BIT: _bits, TypeKind.DATE: _date, TypeKind.VECTOR: _unknown},
    {TypeKind.TIME: _time, TypeKind.DATETIME: _datetime, TypeKind.TIMESTAMP: _timestamp},
)


def _default_datetime(of: ColumnType) -> Encoding:
    return Encoding("int64", f"{_DEBEZIUM}Timestamp" if (of.scale or 0) <= 3 else f"{_DEBEZIUM}MicroTimestamp")


_BY_DEFAULT: TypeMap[Callable[[ColumnType], Encoding]] = TypeMap(
    "how Debezium's connector for MySQL writes types by default",
    each(TypeKind, lambda _of: Encoding("string")),
    each(INTEGER_KINDS, lambda _of: Encoding("int64")),
    each({TypeKind.FLOAT, TypeKind.DOUBLE}, lambda _of: Encoding("double")),
    each(BINARY_KINDS, lambda _of: Encoding("bytes")),
    {
        TypeKind.YEAR: lambda _of: Encoding("int32", f"{_DEBEZIUM}Year"),
        TypeKind.DECIMAL: lambda of: Encoding("bytes", DECIMAL, of.scale or 0),
        TypeKind.BIT: lambda of: Encoding("boolean" if (of.length or 1) == 1 else "bytes"),
        TypeKind.DATE: lambda _of: Encoding("int32", f"{_DEBEZIUM}Date"),
        TypeKind.TIME: lambda _of: Encoding("int64", f"{_DEBEZIUM}MicroTime"),
        TypeKind.DATETIME: _default_datetime,
        TypeKind.TIMESTAMP: lambda _of: Encoding("string", ZONED),
    },
)
