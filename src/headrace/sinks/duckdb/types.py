"""TiDB's column types in DuckDB: their names, and the SQL that converts canonical values to them.

All conversions are DuckDB expressions that give NULL for values that do not fit. So comparing the number of NULLs finds bad values,
and the tasks that convert and the driver that loads treat every type alike.
"""

from __future__ import annotations

from enum import StrEnum

from headrace.model.types import BINARY_KINDS, CHARACTER_KINDS, INTEGER_KINDS, ColumnType, TypeKind, TypeMap, each

MAX_DECIMAL_DIGITS = 38
_INTEGER_BITS = {TypeKind.TINYINT: 8, TypeKind.SMALLINT: 16, TypeKind.MEDIUMINT: 24, TypeKind.INT: 32, TypeKind.BIGINT: 64}
_NAMES = TypeMap(
    "DuckDB's types",
    {
        TypeKind.TINYINT: "TINYINT",
        TypeKind.SMALLINT: "SMALLINT",
        TypeKind.MEDIUMINT: "INTEGER",
        TypeKind.INT: "INTEGER",
        TypeKind.BIGINT: "BIGINT",
        TypeKind.DECIMAL: "DECIMAL",
    },
    each(CHARACTER_KINDS | {TypeKind.ENUM, TypeKind.SET, TypeKind.VECTOR}, "VARCHAR"),
    each(BINARY_KINDS, "BLOB"),
    {
        TypeKind.BIT: "UBIGINT",
        TypeKind.YEAR: "SMALLINT",
        TypeKind.FLOAT: "FLOAT",
        TypeKind.DOUBLE: "DOUBLE",
        TypeKind.DATE: "DATE",
        TypeKind.TIME: "INTERVAL",  # TiDB's TIME is a duration of up to 838 hours, and may be negative
        TypeKind.DATETIME: "TIMESTAMP",
        TypeKind.TIMESTAMP: "TIMESTAMP WITH TIME ZONE",
        TypeKind.JSON: "JSON",
    },
)
"""Without the column's own part: an integer's sign, a DECIMAL's digits."""
INTEGER_TYPES = {
    f"{sign}{name}": (0, 2**bits - 1) if sign else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    for name, bits in (("TINYINT", 8), ("SMALLINT", 16), ("INTEGER", 32), ("BIGINT", 64), ("HUGEINT", 128))
    for sign in ("", "U")
}
"""The least and the greatest value of DuckDB's integers."""
DATE_KINDS = frozenset({TypeKind.DATE, TypeKind.DATETIME, TypeKind.TIMESTAMP})


class _Conversion(StrEnum):
    """How a canonical value is converted to DuckDB's type."""

    NONE = "none"
    CAST = "cast"
    DATE = "date"
    JSON = "JSON"


_CONVERSIONS = TypeMap(
    "conversions to DuckDB's types",
    each(INTEGER_KINDS | {TypeKind.BIT, TypeKind.YEAR, TypeKind.FLOAT, TypeKind.DOUBLE}, _Conversion.CAST),
    each({TypeKind.DECIMAL, TypeKind.TIME}, _Conversion.CAST),
    each(CHARACTER_KINDS | BINARY_KINDS | {TypeKind.ENUM, TypeKind.SET, TypeKind.VECTOR}, _Conversion.NONE),
    each(DATE_KINDS, _Conversion.DATE),
    {TypeKind.JSON: _Conversion.JSON},
)


class UnsupportedPolicy(StrEnum):
    """What to do about a type that DuckDB lacks (DECIMAL of more than 38 digits)."""

    ERROR = "error"
    TEXT = "text"


class UnsupportedTypeError(Exception):
    """A column's type has no equivalent in DuckDB. The message is a sentence without the column's name.

    ``limit`` is the sentence that applies to all such columns.
    """

    def __init__(self, limit: str, instance: str) -> None:
        super().__init__(f"{limit.removesuffix('.')}, {instance}.")
        self.limit = limit


def quoted(name: str) -> str:
    """An identifier in double quotes."""
    return '"' + name.replace('"', '""') + '"'


def own_name(word: str) -> str:
    """A quoted name for a statement's own columns. It is longer than a column name in TiDB may be (64)."""
    return quoted(f"headrace${word}".ljust(65, "$"))


def literal(text: str) -> str:
    """A string in single quotes."""
    return "'" + text.replace("'", "''") + "'"


def duckdb_type(column_type: ColumnType, unsupported: UnsupportedPolicy) -> str:
    """The type's name as in DuckDB's catalogue. Raises UnsupportedTypeError."""
    kind = column_type.kind
    name = _NAMES[kind]
    if kind in INTEGER_KINDS and column_type.unsigned:
        return f"U{name}"
    if kind is TypeKind.DECIMAL:
        digits = column_type.length or 10
        if digits <= MAX_DECIMAL_DIGITS:
            return f"DECIMAL({digits},{column_type.scale or 0})"
        if unsupported is UnsupportedPolicy.ERROR:
            raise UnsupportedTypeError(
                f"DuckDB holds decimals of at most {MAX_DECIMAL_DIGITS} digits.", f"this column has {digits}"
            )
        return "VARCHAR"
    return name


def spelled(column_type: ColumnType) -> str:
    """The type as people write it, with its length and digits."""
    numbers = [str(n) for n in (column_type.length, column_type.scale) if n is not None]
    numbers = [] if column_type.kind in INTEGER_KINDS or column_type.elements else numbers
    return f"{column_type.kind}{'(' + ','.join(numbers) + ')' if numbers else ''}{' UNSIGNED' if column_type.unsigned else ''}"


def from_canonical(value: str, column_type: ColumnType, unsupported: UnsupportedPolicy) -> str:
    """SQL for a canonical value (an expression) in the column's DuckDB type; NULL if it does not fit."""
    conversion, target = _CONVERSIONS[column_type.kind], duckdb_type(column_type, unsupported)
    if conversion is _Conversion.DATE:
        # DuckDB also has a year 0, but would show it differently: 0001 BC.
        zone = " || '+00'" if column_type.kind is TypeKind.TIMESTAMP else ""
        return f"CASE WHEN NOT starts_with({value}, '0000') THEN TRY_CAST({value}{zone} AS {target}) END"
    if conversion is _Conversion.JSON:
        return f"CASE WHEN json_valid({value}) THEN {value} END"
    if conversion is _Conversion.NONE or target == "VARCHAR":  # VARCHAR: a DECIMAL that is stored as text
        return value
    return f"TRY_CAST({value} AS {target})"


def integer_range(column_type: ColumnType) -> tuple[int, int]:
    """The smallest and the largest value of an integer type."""
    bits = _INTEGER_BITS[column_type.kind]
    return (0, 2**bits - 1) if column_type.unsigned else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
