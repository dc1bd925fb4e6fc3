"""Every column type of TiDB with the values at its limits, in canonical form (``headrace.model.types``)."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import numpy as np

from headrace.model.types import ColumnType, TypeKind

Values = tuple[object, ...]


@dataclass(frozen=True)
class TypeCase:
    """A table of its own: column ``v`` of this type with these values, and NULL where ``key`` is false.

    ``definition`` is the type as a statement spells it; ``told`` says more of it than a schema file can, so that only the
    statement gives the right column. ``key``: ``v`` is the primary key; ``respelled`` is a value of it with another spelling that
    its collation holds for equal. ``note`` is added to the row of the page.
    """

    definition: str
    type: ColumnType
    values: Values
    note: str = ""
    key: bool = False
    told: bool = False
    respelled: tuple[str, str] | None = None

    @property
    def row(self) -> str:
        shown = self.definition if len(self.definition) <= 40 else f"{self.type.kind}(…)"
        return f"`{shown}`" + (" as key" if self.key else "") + (f", {self.note}" if self.note else "")


def _of(definition: str, kind: TypeKind, *values: object, note: str = "", told: bool = False, **more: object) -> TypeCase:
    return TypeCase(definition, ColumnType(kind, **more), values, note, told=told)  # type: ignore[arg-type]


def _key(definition: str, kind: TypeKind, *values: object, note: str = "", told: bool = False, **more: object) -> TypeCase:
    return TypeCase(definition, ColumnType(kind, **more), values, note, key=True, told=told)  # type: ignore[arg-type]


K = TypeKind
_BITS = {K.TINYINT: 8, K.SMALLINT: 16, K.MEDIUMINT: 24, K.INT: 32, K.BIGINT: 64}
_SINGLE_MAX = float(np.finfo(np.float32).max)
_SINGLES = (0.0, 1.5, -2.25, float(np.float32(0.1)), float(np.float32(1e-5)), 16777216.0, 1234567.125)
_SINGLE_LIMITS = (_SINGLE_MAX, -_SINGLE_MAX, float(np.finfo(np.float32).tiny), float(np.finfo(np.float32).smallest_subnormal))
_DOUBLES = (0.0, 0.1, -1.5, 1e-05, 1e22, 1.2345678901234568e20, 9007199254740993.0, 1.7976931348623157e308, -1.7976931348623157e308)
_DOUBLE_LIMITS = (2.2250738585072014e-308, 5e-324)

_TEXTS = (
    "",
    "a",
    " x",
    "\\N",
    "NULL",
    "o'b\"c",
    "a\\b\\",
    "a\0b",
    "\r\n",
    "a\rb\nc",
    "t\tu",
    "a,b;c|d",
    "\x1a\x08\x7f",
    "äöü€",
    "名前",
    "😀👩‍👩‍👧",
    "\u2028\u2029\u0085",
    "<a&b>",
    "%s{0}`",
    "e\u0301",
    "\ufeffx",
)
_BLANKS = ("a  ", " ", "x\t ", "é ")
_BINARIES = (b"", bytes(range(256)), b"\\N", b"a\0", b" ", b"\0", b"\xff\xfe", b"'\"\\\r\n\t,", "é".encode("latin-1"))
_DATES = ("0001-01-01", "1000-01-01", "1582-10-10", "1969-12-31", "1970-01-01", "2024-02-29", "9999-12-31")
ZERO_DATES = ("0000-00-00", "2024-00-00", "2024-05-00", "0000-05-01", "2023-02-31")
_CLOCKS = ("00:00:00", "23:59:59")
_SPANS = ("00:00:00", "-838:59:59", "838:59:59", "24:00:00", "100:00:01", "-00:00:01", "-25:30:00", "12:34:56")
_STAMPS = ("1970-01-01 00:00:01", "2000-02-29 12:00:00", "2024-03-10 08:30:00", "2024-07-01 00:00:00", "2038-01-19 03:14:07")
_MEMBERS = ("new", "with, comma", "it's", 'say "hi"', "", "Case", "case", "ü😀", "back\\slash")
_SET_MEMBERS = ("a", "it's", 'say "hi"', "Case", "case", "ü", "back\\slash")
_MANY = tuple(f"m{number}" for number in range(64))
_DOCUMENTS = (
    "{}",
    "[]",
    "null",
    "true",
    "1.5",
    '"text"',
    '""',
    "18446744073709551615",
    "-9223372036854775808",
    "9007199254740993",
    '{"a": 18446744073709551615, "b": [9007199254740993, -1, 1e100, 0.1]}',
    '{"nested": {"list": [1, {"deep": [null, true, false]}]}}',
    '{"quote": "say \\"hi\\"", "backslash": "a\\\\b", "line": "a\\r\\nb\\t", "nul": "\\u0000"}',
    '{"spaces" :  [1 ,2]}',
    '"\\u0041\\ud83d\\ude00"',
    '{"unicode": "é😀\u2028", "blanks": "a  b", "": "empty name"}',
)


def _fraction(digits: int, text: str = "123456") -> str:
    return f".{text[:digits]}" if digits else ""


def _sized(kind: TypeKind, digits: int) -> str:
    return f"{kind}({digits})" if digits else str(kind)


def _quoted(members: tuple[str, ...]) -> str:
    return ",".join("'" + member.replace("'", "''") + "'" for member in members)  # TiCDC escapes no backslash


def _integers() -> list[TypeCase]:
    cases = []
    for kind, bits in _BITS.items():
        half = 2 ** (bits - 1)
        cases.append(_of(kind, kind, -half, -1, 0, 1, half - 1))
        cases.append(_of(f"{kind} UNSIGNED", kind, 0, 1, half, 2 * half - 1, unsigned=True))
    cases.append(_of("BOOL", K.TINYINT, 0, 1, -128, 127, length=1))
    for bits in (1, 8, 63, 64):
        values = sorted({0, 1, 2**bits - 1, 2 ** (bits - 1), 0x27 % 2**bits, 0x5C0A % 2**bits})
        cases.append(_of(f"BIT({bits})", K.BIT, *values, length=bits))
    cases.append(_of("YEAR", K.YEAR, 0, 1901, 1969, 1970, 2000, 2155))
    return cases


def _decimal(digits: int, scale: int, *, unsigned: bool = False) -> TypeCase:
    largest = "9" * (digits - scale) or "0"
    fraction = "9" * scale
    most, least = (f"{largest}.{fraction}", f"0.{'1'.zfill(scale)}") if scale else (largest, "1")
    zero = f"0.{'0' * scale}" if scale else "0"
    values = (zero, least, most) if unsigned else (zero, least, f"-{least}", most, f"-{most}")
    definition = f"DECIMAL({digits},{scale})" + (" UNSIGNED" if unsigned else "")
    return _of(definition, K.DECIMAL, *values, length=digits, scale=scale, unsigned=unsigned)


def _numbers() -> list[TypeCase]:
    return [
        _of("FLOAT", K.FLOAT, *_SINGLES, *_SINGLE_LIMITS),
        _of("FLOAT", K.FLOAT, -0.0, 1.0, note="negative zero"),
        _of("FLOAT UNSIGNED", K.FLOAT, 0.0, 1.5, _SINGLE_MAX, unsigned=True),
        _of("FLOAT(10,3)", K.FLOAT, 0.0, 0.125, -1.5, 65535.875, length=10, scale=3),
        _of("DOUBLE", K.DOUBLE, *_DOUBLES, *_DOUBLE_LIMITS),
        _of("DOUBLE", K.DOUBLE, -0.0, 1.0, note="negative zero"),
        _of("DOUBLE UNSIGNED", K.DOUBLE, 0.0, 0.1, 1.7976931348623157e308, unsigned=True),
        _of("DOUBLE(20,5)", K.DOUBLE, 0.0, 0.00001, -123456789.12345, length=20, scale=5),
        _decimal(10, 0),
        _decimal(10, 2),
        _decimal(10, 2, unsigned=True),
        _decimal(38, 10),
        _decimal(30, 30),
        _decimal(39, 0),
        _decimal(65, 0),
        _decimal(65, 30),
    ]


def _strings() -> list[TypeCase]:
    long = {K.TINYTEXT: 85, K.TEXT: 21_845, K.MEDIUMTEXT: 30_000, K.LONGTEXT: 70_000}
    cases = [
        _of("CHAR(20)", K.CHAR, *_TEXTS, "€" * 20, length=20),
        _of("CHAR(255)", K.CHAR, "😀" * 255, length=255),
        _of("VARCHAR(40)", K.VARCHAR, *_TEXTS, *_BLANKS, length=40),
        _of("VARCHAR(16380)", K.VARCHAR, "😀" * 16380, length=16380),
    ]
    cases += [_of(kind, kind, *_TEXTS, *_BLANKS, "€" * size) for kind, size in long.items()]
    sets = {"gbk": ("中文", "縗", "a\\b", "ab "), "latin1": ("é ÿ", "o'b", ""), "ascii": ("abc~", ""), "utf8": ("名前é", "x")}
    cases += [_of(f"VARCHAR(20) CHARACTER SET {name}", K.VARCHAR, *values, length=20, told=True) for name, values in sets.items()]
    cases.append(
        _of("VARCHAR(20) CHARACTER SET latin1", K.VARCHAR, "中文", length=20, told=True, note="what TiDB lets in beyond it")
    )
    cases += [
        _of("BINARY(4)", K.BINARY, bytes(4), b"ab\0\0", b"    ", b"\xff\xfe\0\x01", b"\\N\r\n", length=4),
        _of("VARBINARY(300)", K.VARBINARY, *_BINARIES, length=300),
    ]
    sizes = {K.TINYBLOB: 0, K.BLOB: 255, K.MEDIUMBLOB: 300, K.LONGBLOB: 300}
    cases += [
        _of(kind, kind, *(v for v in _BINARIES if size or len(v) < 256), bytes(range(256)) * size) for kind, size in sizes.items()
    ]
    return cases


def _times() -> list[TypeCase]:
    cases = [
        _of("DATE", K.DATE, *_DATES),
        _of("DATE", K.DATE, "2024-05-01", *ZERO_DATES, note="zero and impossible dates"),
    ]
    for digits in range(7):
        fraction = _fraction(digits)
        nines = _fraction(digits, "999999")
        values = [f"{date} {clock}{nines if clock > '1' else fraction}" for date, clock in product(_DATES, _CLOCKS)]
        cases.append(_of(_sized(K.DATETIME, digits), K.DATETIME, *values, scale=digits))
    cases.append(
        _of("DATETIME", K.DATETIME, "2024-05-01 00:00:00", *(f"{d} 00:00:00" for d in ZERO_DATES), note="zero and impossible dates")
    )
    for digits in range(7):
        cases.append(_of(_sized(K.TIMESTAMP, digits), K.TIMESTAMP, *(s + _fraction(digits) for s in _STAMPS), scale=digits))
    cases.append(
        _of("TIMESTAMP(3)", K.TIMESTAMP, "2024-05-01 00:00:00.000", "0000-00-00 00:00:00.000", scale=3, note="the zero timestamp")
    )
    for digits in range(7):
        limits = [span + ("." + "0" * digits if digits else "") for span in _SPANS]
        within = [span + _fraction(digits, "000001"[-digits:] if digits else "") for span in _SPANS if "838" not in span]
        halves = [f"-00:00:00{_fraction(digits, '500000')}", f"-837:59:59{_fraction(digits, '999999')}"] if digits else []
        cases.append(_of(_sized(K.TIME, digits), K.TIME, *limits, *within, *halves, scale=digits))
    return cases


def _others() -> list[TypeCase]:
    deep = "[" * 60 + "1" + "]" * 60
    return [
        _of(f"ENUM({_quoted(_MEMBERS)})", K.ENUM, *_MEMBERS, elements=_MEMBERS),
        _of("ENUM('a','b')", K.ENUM, "a", "", elements=("a", "b"), note="the invalid value (index 0)"),
        _of(f"SET({_quoted(_SET_MEMBERS)})", K.SET, *_sets(_SET_MEMBERS), elements=_SET_MEMBERS),
        _of(f"SET({_quoted(_MANY)})", K.SET, *_sets(_MANY), elements=_MANY, note="64 members"),
        _of("SET('a','')", K.SET, "", "a", elements=("a", ""), note="with an empty member"),
        _of("JSON", K.JSON, *_DOCUMENTS),
        _of("JSON", K.JSON, "[]", deep, note="60 levels deep"),
        _of("VECTOR", K.VECTOR, "[]", "[1]", "[1,2.5,-3]"),
        _of("VECTOR(3)", K.VECTOR, "[1,2.5,-3]", "[0.1,0.00001,3.4028235e+38]", "[0,0,0]", length=3),
    ]


def _sets(members: tuple[str, ...]) -> tuple[str, ...]:
    return ("", *members, ",".join(members), ",".join(members[::2]))


def _keys() -> list[TypeCase]:
    ci = "VARCHAR(20) COLLATE utf8mb4_general_ci"
    return [
        _key("BIGINT", K.BIGINT, -(2**63), 0, 1, 2**63 - 1),
        _key("BIGINT UNSIGNED", K.BIGINT, 0, 1, 2**63, 2**64 - 1, unsigned=True),
        _key("BIT(64)", K.BIT, 0, 1, 0x27, 2**63, 2**64 - 1, length=64),
        _key("FLOAT", K.FLOAT, float(np.float32(0.1)), 16777216.0, _SINGLE_MAX, -1.5),
        _key("DOUBLE", K.DOUBLE, 0.1, 1e-05, 1.2345678901234568e20, 5e-324, -1.7976931348623157e308),
        _key("DECIMAL(38,10)", K.DECIMAL, *(f"{n}{'0' * 9}1" for n in ("0.", "-1.", "9" * 28 + ".")), length=38, scale=10),
        _key("DECIMAL(65,30)", K.DECIMAL, *(f"{n}{'1'.zfill(30)}" for n in ("0.", "-1.", "9" * 35 + ".")), length=65, scale=30),
        _key("VARCHAR(40)", K.VARCHAR, *_TEXTS[1:], "A", "é ", length=40),
        TypeCase(ci, ColumnType(K.VARCHAR, length=20), ("a", "B", "ç", "x ", "", "\\N"), "", True, True, ("ç", "Ç")),
        _key("CHAR(20)", K.CHAR, *_TEXTS[1:], length=20),
        _key("BINARY(4)", K.BINARY, bytes(4), b"ab\0\0", b"ab  ", b"\xff\xfe\0\x01", length=4),
        _key("VARBINARY(300)", K.VARBINARY, *_BINARIES, length=300),
        _key("DATE", K.DATE, *_DATES),
        _key("DATETIME(6)", K.DATETIME, *(f"{date} 23:59:59.999999" for date in _DATES), "2024-02-29 23:59:59.999998", scale=6),
        _key("DATETIME", K.DATETIME, "0000-00-00 00:00:00", "2024-01-01 00:00:00", note="the zero date"),
        _key("TIMESTAMP(3)", K.TIMESTAMP, *(f"{stamp}.123" for stamp in _STAMPS), scale=3),
        _key("TIME(6)", K.TIME, "-838:59:59.000000", "838:59:59.000000", "-00:00:00.000001", "00:00:00.000001", scale=6),
        _key("YEAR", K.YEAR, 0, 1901, 2000, 2155),
        _key(f"ENUM({_quoted(_MEMBERS)})", K.ENUM, *_MEMBERS, elements=_MEMBERS),
        _key(f"SET({_quoted(_SET_MEMBERS)})", K.SET, *_sets(_SET_MEMBERS), elements=_SET_MEMBERS),
    ]


CASES = (*_integers(), *_numbers(), *_strings(), *_times(), *_others(), *_keys())
