"""Sample values of every column type, and their comparison across the forms in which targets return them."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from datetime import time as time_of_day
from decimal import Decimal

from headrace.model.types import BINARY_KINDS, CHARACTER_KINDS, INTEGER_KINDS, ColumnType, TypeKind, TypeMap, each

_TEXTS = ("", "a", "A", "naïve 漢字 🏞", "a'b\\c\"d", "line\nbreak\ttab", "'; -- ")
_BYTES = (b"", b"\x00\xff'\\", bytes(range(256))[:200])


@dataclass(frozen=True)
class Sample:
    """A type, with canonical values (``headrace.model.types``) that every target must accept."""

    type: ColumnType
    values: tuple[object, ...]

    def __str__(self) -> str:
        length = f"({self.type.length})" if self.type.length else ""
        return f"{self.type}{length}"


def _integers(kind: TypeKind, bits: int) -> list[Sample]:
    signed = (-(1 << (bits - 1)), -1, 0, (1 << (bits - 1)) - 1)
    return [Sample(ColumnType(kind), signed), Sample(ColumnType(kind, unsigned=True), (0, 1, (1 << bits) - 1))]


def _texts(*kinds: TypeKind) -> list[Sample]:
    return [Sample(ColumnType(kind), _TEXTS) for kind in kinds]


def _bytes(*kinds: TypeKind) -> list[Sample]:
    return [Sample(ColumnType(kind), _BYTES) for kind in kinds]


SAMPLES = (
    *_integers(TypeKind.TINYINT, 8),
    *_integers(TypeKind.SMALLINT, 16),
    *_integers(TypeKind.MEDIUMINT, 24),
    *_integers(TypeKind.INT, 32),
    *_integers(TypeKind.BIGINT, 64),
    Sample(ColumnType(TypeKind.BIT, length=1), (0, 1)),
    Sample(ColumnType(TypeKind.BIT, length=64), (0, 5, (1 << 64) - 1)),
    Sample(ColumnType(TypeKind.YEAR), (1901, 2026, 2155)),
    Sample(ColumnType(TypeKind.FLOAT), (0.0, -1.5, 3.4028234663852886e38)),
    Sample(ColumnType(TypeKind.DOUBLE), (0.0, 0.1, -1.7976931348623157e308, 5e-324)),
    Sample(ColumnType(TypeKind.DECIMAL, length=38, scale=10), ("0.0000000000", f"-{'9' * 28}.{'9' * 10}", "1.5000000000")),
    Sample(ColumnType(TypeKind.CHAR, length=40), _TEXTS[:-1]),  # without the text that ends in a space: CHAR drops it
    Sample(ColumnType(TypeKind.VARCHAR, length=40), (*_TEXTS, " spaces ")),
    Sample(ColumnType(TypeKind.BINARY, length=4), (b"\x00\x00\x00\x00", b"ab\x00\xff")),
    Sample(ColumnType(TypeKind.VARBINARY, length=200), _BYTES),
    *_texts(TypeKind.TINYTEXT, TypeKind.TEXT, TypeKind.MEDIUMTEXT, TypeKind.LONGTEXT),
    *_bytes(TypeKind.TINYBLOB, TypeKind.BLOB, TypeKind.MEDIUMBLOB, TypeKind.LONGBLOB),
    Sample(ColumnType(TypeKind.DATE), ("1000-01-01", "2024-02-29", "9999-12-31")),
    Sample(ColumnType(TypeKind.TIME, scale=6), ("00:00:00.000000", "-838:59:59.000000", "12:34:56.789012")),
    Sample(ColumnType(TypeKind.DATETIME, scale=6), ("1000-01-01 00:00:00.000000", "9999-12-31 23:59:59.999999")),
    Sample(ColumnType(TypeKind.TIMESTAMP), ("1970-01-01 00:00:01", "2038-01-19 03:14:07")),
    Sample(ColumnType(TypeKind.ENUM, elements=("small", "large one", "it's")), ("small", "large one", "it's")),
    Sample(ColumnType(TypeKind.SET, elements=("a", "b", "c")), ("", "b", "a,c")),
    Sample(ColumnType(TypeKind.JSON), ('{"a": [1, "x", null, true]}', "[]", '"text"', "12.5")),
    Sample(ColumnType(TypeKind.VECTOR, length=3), ("[1,2.5,-3]", "[0,0,0]")),
)
"""Samples of every type that a table column can have."""


def comparable(column_type: ColumnType, value: object) -> object:
    """The same value for all representations of one value: the canonical one, and those that drivers return.

    Numbers may be texts, times may be ``datetime`` objects, JSON and vectors may be parsed. BIT is a number or its bytes. Strings
    and bytes are compared as they are.
    """
    return None if value is None else _FORMS[column_type.kind](value)


def _vector(value: object) -> bytes:
    numbers = json.loads(value) if isinstance(value, str) else value
    assert isinstance(numbers, list | tuple), f"{value!r} is no vector"
    return struct.pack(f"<{len(numbers)}f", *numbers)


def _time_text(value: object) -> str:
    """The text without trailing zeros of a fraction."""
    text = str(value)
    if isinstance(value, datetime):
        text = value.replace(tzinfo=None).isoformat(" ")
    elif isinstance(value, timedelta):
        microseconds = abs(value) // timedelta(microseconds=1)
        seconds, fraction = divmod(microseconds, 1_000_000)
        sign = "-" if value < timedelta() else ""
        text = f"{sign}{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}.{fraction:06d}"
    elif isinstance(value, date | time_of_day):
        text = value.isoformat()
    return text.rstrip("0").rstrip(".") if "." in text else text


def _bytes_of(value: object) -> object:
    return bytes(value) if isinstance(value, bytes | bytearray | memoryview) else value


def _document(value: object) -> object:
    return json.dumps(json.loads(value) if isinstance(value, str) else value, sort_keys=True)


_FORMS: TypeMap[Callable[[object], object]] = TypeMap(
    "forms in which values are compared",
    each(INTEGER_KINDS | {TypeKind.YEAR}, lambda value: int(str(value))),
    each(CHARACTER_KINDS | {TypeKind.ENUM, TypeKind.SET}, lambda value: value),
    each(BINARY_KINDS, _bytes_of),
    each({TypeKind.DATE, TypeKind.TIME, TypeKind.DATETIME, TypeKind.TIMESTAMP}, _time_text),
    {
        TypeKind.BIT: lambda value: int.from_bytes(value) if isinstance(value, bytes) else int(str(value)),
        TypeKind.FLOAT: lambda value: struct.pack("<f", float(str(value))),
        TypeKind.DOUBLE: lambda value: struct.pack("<d", float(str(value))),
        TypeKind.DECIMAL: lambda value: Decimal(str(value)),
        TypeKind.JSON: _document,
        TypeKind.VECTOR: _vector,
    },
)
