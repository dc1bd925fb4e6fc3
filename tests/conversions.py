"""What a TiDB makes of values when MODIFY COLUMN changes their type: which types and values were asked for, and its answers.

``support/modify_column.tsv`` holds the answers of the TiDB of ``tidb_server.py``; ``python tests/ask_conversions.py`` asks again.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from headrace.model.types import ColumnType, TypeKind

ANSWERS = Path(__file__).parent / "support" / "modify_column.tsv"
SESSION_ZONE = "+08:00"
"""The time zone of the session that ran each MODIFY COLUMN. Values of TIMESTAMP are in UTC."""
SESSION_TIME = 1795320000
"""The time of that session, in seconds since 1970: noon of 2026-11-22 in its zone. A TIME becomes a time of that day."""
K = TypeKind


@dataclass(frozen=True)
class Shape:
    """A column type as a statement defines it and as a schema file tells it, with values at its limits in canonical form.

    Binary values are bytes. A shape without values is only asked for as the new type.
    """

    definition: str
    type: ColumnType
    values: tuple[object, ...] = ()


def _of(definition: str, kind: TypeKind, *values: object, **more: object) -> Shape:
    return Shape(definition, ColumnType(kind, **more), values)  # type: ignore[arg-type]


def _integers() -> Iterator[Shape]:
    lengths = {K.TINYINT: (8, 4, 3), K.SMALLINT: (16, 6, 5), K.MEDIUMINT: (24, 9, 8), K.INT: (32, 11, 10), K.BIGINT: (64, 20, 20)}
    further = (1, 24, 70, 99, 100, 255, 1901, 2155, 2156, 9999, 65536, 101010, 20240605, 16777217, 20240605093023, 2**53 + 1)
    for kind, (bits, signed, unsigned) in lengths.items():
        for low, high, length in ((-(2 ** (bits - 1)), 2 ** (bits - 1) - 1, signed), (0, 2**bits - 1, unsigned)):
            limits = (low, high, 0, *(v for v in (-1, 1) if low < v < high))
            # The wide types have the values of the narrow ones too.
            values = dict.fromkeys((*limits, *(v for v in further if kind in (K.INT, K.BIGINT) and low < v < high)))
            text = f"{kind} UNSIGNED" if low == 0 else str(kind)
            yield _of(text, kind, *values, unsigned=low == 0, length=length)


_NUMBERS = ("0", "1", "-1", "0.5", "1.5", "2.5", "-2.5", "-0.4", "99.995", "24")
_DOUBLES = (
    *(
        0.0,
        1.0,
        -1.0,
        0.1,
        0.5,
        1.5,
        2.5,
        -2.5,
        1.005,
        2.675,
        1.239,
        99.995,
        24.0,
        70.0,
        2024.0,
        20240605.0,
        1e-7,
        1e15,
        1e16,
    ),
    *(
        1e20,
        1e22,
        -1e300,
        123456789.125,
        9007199254740993.0,
        5e-324,
        1.7976931348623157e308,
        0.00001234,
        1e6,
        123456.7,
        4294967296.0,
    ),
)
_SINGLES = (0.0, 1.0, 0.5, 2.5, -2.5, 1.5, 0.10000000149011612, 100.0, 24.0, 16777216.0, 1234567.125, 3.4028234663852886e38)
_WORDS = ("", "a", "a ", "é", "表", "abcd", "0", "1", "-1", "24", "2024", "1.5", "2.7", "1e2", " 7", "8 ", "x1", "1x", "99999")
_MOMENTS = (
    "2024-06-05",
    "2024-06-05 09:30:23",
    "2024-06-05 23:59:59.999999",
    "2024-02-30",
    "0000-00-00",
    "10:00:00.7",
    "-00:00:01",
)
_LONG_WORDS = (
    *_WORDS,
    *_MOMENTS,
    "240605",
    "null",
    "true",
    '"q"',
    "[1, 2]",
    '{"a":1}',
    "b",
    "a,b",
    "123456789012345678901234567890",
)
_BYTES = (b"", b"a", b"ab\0", b"a ", b"\xff\x00", "é".encode(), b"12", b"2024", b"-1", b"1.5", b"x")
_BY_HAND = (
    _of("BIT(1)", K.BIT, 0, 1, length=1),
    _of("BIT(8)", K.BIT, 0, 1, 65, 200, 255, length=8),
    _of("BIT(16)", K.BIT, length=16),
    _of("BIT(64)", K.BIT, 0, 65, 2**63, 2**64 - 1, length=64),
    _of("YEAR", K.YEAR, 0, 1901, 2000, 2024, 2155, length=4),
    _of("FLOAT", K.FLOAT, *_SINGLES, length=12),
    _of("DOUBLE", K.DOUBLE, *_DOUBLES, length=22),
    _of("DOUBLE UNSIGNED", K.DOUBLE, 0.0, 2.5, 1e20, length=22, unsigned=True),
    _of("DOUBLE(10,2)", K.DOUBLE, 0.0, 1.5, 99999999.99, length=10, scale=2),
    _of("FLOAT(7,2)", K.FLOAT, 0.0, 1.5, 99999.99, length=7, scale=2),
    _of(
        "DECIMAL(10,2)",
        K.DECIMAL,
        *(f"{float(n):.2f}" for n in _NUMBERS),
        "99999999.99",
        "-99999999.99",
        "2024.00",
        length=10,
        scale=2,
    ),
    _of("DECIMAL(10,1)", K.DECIMAL, "1.5", "-2.5", "0.0", "999999999.9", length=10, scale=1),
    _of("DECIMAL(10,0)", K.DECIMAL, "0", "5", "-9999999999", "20240605", length=10, scale=0),
    _of("DECIMAL(4,3)", K.DECIMAL, "9.999", "-9.999", "0.005", length=4, scale=3),
    _of("DECIMAL(20,4) UNSIGNED", K.DECIMAL, "0.0000", "9999999999999999.9999", length=20, scale=4, unsigned=True),
    _of(
        "DECIMAL(38,10)", K.DECIMAL, "0.0000000000", "9999999999999999999999999999.9999999999", "-0.5000000000", length=38, scale=10
    ),
    _of("DECIMAL(65,30)", K.DECIMAL, "0." + "0" * 30, "9" * 35 + "." + "9" * 30, length=65, scale=30),
    _of("CHAR(4)", K.CHAR, "", "a", "é表", "abcd", "12", "1.5", length=4),
    _of("CHAR(40)", K.CHAR, length=40),
    _of("VARCHAR(4)", K.VARCHAR, *(w for w in _WORDS if len(w) <= 4), length=4),
    _of("VARCHAR(2)", K.VARCHAR, length=2),
    _of("VARCHAR(40)", K.VARCHAR, *_LONG_WORDS, length=40),
    _of("TINYTEXT", K.TINYTEXT, length=255),
    _of("TEXT", K.TEXT, "", "a ", "é", "12", "2.7", '{"a":1}', "2024-06-05", "x" * 300, length=65535),
    _of("LONGTEXT", K.LONGTEXT, "é", "a ", length=4294967295),
    _of("VARCHAR(40) CHARACTER SET latin1", K.VARCHAR, "", "a", "é", length=40),
    _of("VARCHAR(40) CHARACTER SET gbk", K.VARCHAR, "", "a", "表", length=40),
    _of("VARCHAR(40) CHARACTER SET ascii", K.VARCHAR, "", "a", length=40),
    _of("VARCHAR(40) CHARACTER SET utf8", K.VARCHAR, "", "a", "é", length=40),
    _of("VARCHAR(40) COLLATE utf8mb4_general_ci", K.VARCHAR, "a", "A ", length=40),
    _of("BINARY(2)", K.BINARY, b"ab", b"a\0", b"12", b"\xff\0", length=2),
    _of("BINARY(4)", K.BINARY, b"ab\0\0", b"abcd", b"12\0\0", b"\0\0\0\0", length=4),
    _of("VARBINARY(2)", K.VARBINARY, length=2),
    _of("VARBINARY(40)", K.VARBINARY, *_BYTES, length=40),
    _of("BLOB", K.BLOB, *_BYTES, length=65535),
    _of("DATE", K.DATE, "2024-06-05", "1000-01-01", "9999-12-31", "1970-01-01", "0000-00-00", "2024-00-00"),
    _of("TIME", K.TIME, "00:00:00", "09:30:23", "-00:00:01", "30:00:01", "838:59:59", "-838:59:59"),
    _of("TIME(3)", K.TIME, "00:00:00.000", "30:00:01.500", "-00:00:00.500", "838:59:58.999", "23:59:59.999", scale=3),
    _of("TIME(6)", K.TIME, "10:00:00.700000", "23:59:59.999999", "-00:00:00.000001", scale=6),
    _of("DATETIME", K.DATETIME, "2024-06-05 09:30:23", "1000-01-01 00:00:00", "9999-12-31 23:59:59", "0000-00-00 00:00:00"),
    _of("DATETIME(3)", K.DATETIME, "2024-06-05 09:30:23.500", "9999-12-31 23:59:59.999", "1969-12-31 23:59:59.500", scale=3),
    _of(
        "DATETIME(6)", K.DATETIME, "2024-06-05 23:59:59.900000", "2024-06-05 09:30:23.000001", "2024-06-05 09:30:23.123456", scale=6
    ),
    _of("TIMESTAMP", K.TIMESTAMP, "2024-06-05 09:30:23", "1970-01-01 00:00:01", "2038-01-19 03:14:07", "0000-00-00 00:00:00"),
    _of("TIMESTAMP(3)", K.TIMESTAMP, "2024-06-05 23:59:59.999", "2024-06-05 09:30:23.500", scale=3),
    _of("TIMESTAMP(6)", K.TIMESTAMP, "2024-06-05 23:59:59.900000", "2024-06-05 09:30:23.123456", scale=6),
    _of("ENUM('a','b','1')", K.ENUM, "a", "b", "1", "", elements=("a", "b", "1")),
    _of("ENUM('1','b','a')", K.ENUM, "a", "1", elements=("1", "b", "a")),
    _of("ENUM('a','b','1','d')", K.ENUM, elements=("a", "b", "1", "d")),
    _of("ENUM('a')", K.ENUM, elements=("a",)),
    _of("SET('a','b','1')", K.SET, "", "a", "a,b", "a,b,1", "1", elements=("a", "b", "1")),
    _of("SET('1','b','a')", K.SET, "", "1,b", elements=("1", "b", "a")),
    _of("SET('a','b','1','d')", K.SET, elements=("a", "b", "1", "d")),
    _of("SET('a','b')", K.SET, elements=("a", "b")),
    _of(
        "JSON",
        K.JSON,
        "null",
        "true",
        "1",
        "-1",
        "1.5",
        '"q"',
        '"12"',
        "[1, 2]",
        '{"a": 1}',
        "100000000000000000000",
        '"2024-06-05"',
    ),
    _of("VECTOR", K.VECTOR, "[1,2.5]"),
    _of("VECTOR(2)", K.VECTOR, "[1,2.5]", length=2),
)
SHAPES: tuple[Shape, ...] = (*_integers(), *_BY_HAND)
BY_DEFINITION = {shape.definition: shape for shape in SHAPES}


@dataclass(frozen=True)
class Answer:
    """What became of one value: its canonical text (hex of binary values), ``None`` where MODIFY COLUMN fails in every mode.

    ``strict`` says whether it also passes in TiDB's default SQL mode; what only passes in an empty one is cut or clamped.
    """

    text: str | None
    strict: bool


@dataclass(frozen=True)
class Conversion:
    """The answers for the values of ``old``, in their order; none and ``refusal`` where TiDB refuses the pair of types itself."""

    old: Shape
    new: Shape
    answers: tuple[Answer, ...] = ()
    refusal: str = ""


def canonical(value: object) -> str:
    """A value of a shape as answers tell it."""
    if isinstance(value, bytes):
        return value.hex()
    return repr(value) if isinstance(value, float) else str(value)


def dumped(conversion: Conversion) -> str:
    """A line of the file: the two definitions, and the refusal, or each answer as JSON; one that strict mode refuses in a list."""
    head = f"{conversion.old.definition}\t{conversion.new.definition}\t"
    if conversion.refusal:
        return f"{head}!{conversion.refusal}"
    return head + "\t".join(json.dumps(a.text if a.strict else [a.text], ensure_ascii=False) for a in conversion.answers)


@cache
def conversions() -> tuple[Conversion, ...]:
    """All answers of the file."""
    return tuple(map(_parsed, ANSWERS.read_text(encoding="utf-8").splitlines()))


def _parsed(line: str) -> Conversion:
    old, new, *cells = line.split("\t")
    shapes = BY_DEFINITION[old], BY_DEFINITION[new]
    if cells[0].startswith("!"):
        return Conversion(*shapes, refusal=cells[0][1:])
    told = [json.loads(cell) for cell in cells]
    return Conversion(*shapes, tuple(Answer(t[0], False) if isinstance(t, list) else Answer(t, True) for t in told))
