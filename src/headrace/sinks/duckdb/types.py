"""TiDB's column types in DuckDB: their names, and the SQL that turns canonical values into them.

All conversions are DuckDB expressions that give NULL for what does not fit, so that one comparison of NULL counts finds bad
values, and so that the tasks that convert and the driver that loads share one meaning of every type.
"""

from __future__ import annotations

from enum import StrEnum

from headrace.model.types import BINARY_KINDS, INTEGER_KINDS, ColumnType, TypeKind

MAX_DECIMAL_DIGITS = 38
_INTEGERS = {
    TypeKind.TINYINT: "TINYINT",
    TypeKind.SMALLINT: "SMALLINT",
    TypeKind.MEDIUMINT: "INTEGER",
    TypeKind.INT: "INTEGER",
    TypeKind.BIGINT: "BIGINT",
}
_INTEGER_BITS = {TypeKind.TINYINT: 8, TypeKind.SMALLINT: 16, TypeKind.MEDIUMINT: 24, TypeKind.INT: 32, TypeKind.BIGINT: 64}
_PLAIN = {
    TypeKind.BIT: "UBIGINT",
    TypeKind.YEAR: "SMALLINT",
    TypeKind.FLOAT: "FLOAT",
    TypeKind.DOUBLE: "DOUBLE",
    TypeKind.DATE: "DATE",
    TypeKind.TIME: "INTERVAL",  # TiDB's TIME is a span of up to 838 hours, and may be negative
    TypeKind.DATETIME: "TIMESTAMP",
    TypeKind.TIMESTAMP: "TIMESTAMP WITH TIME ZONE",
    TypeKind.JSON: "JSON",
}
DATE_KINDS = frozenset({TypeKind.DATE, TypeKind.DATETIME, TypeKind.TIMESTAMP})


class UnsupportedPolicy(StrEnum):
    """What becomes of a type that DuckDB cannot hold (DECIMAL of more than 38 digits)."""

    ERROR = "error"
    TEXT = "text"


class UnsupportedTypeError(Exception):
    """A column's type has no counterpart in DuckDB. The message is a sentence without the column's name.

    ``limit`` is the sentence that holds for all columns of which it is true.
    """

    def __init__(self, limit: str, instance: str) -> None:
        super().__init__(f"{limit.removesuffix('.')}, {instance}.")
        self.limit = limit


def quoted(name: str) -> str:
    """An identifier in double quotes."""
    return '"' + name.replace('"', '""') + '"'


def own_name(word: str) -> str:
    """A quoted name for what a statement makes up beside columns. It is longer than TiDB lets a column's name be (64)."""
    return quoted(f"headrace${word}".ljust(65, "$"))


def literal(text: str) -> str:
    """A string in single quotes."""
    return "'" + text.replace("'", "''") + "'"


def duckdb_type(column_type: ColumnType, unsupported: UnsupportedPolicy) -> str:
    """The type's name as DuckDB's catalogue spells it. Raises UnsupportedTypeError."""
    kind = column_type.kind
    if kind in _INTEGERS:
        return ("U" if column_type.unsigned else "") + _INTEGERS[kind]
    if kind in _PLAIN:
        return _PLAIN[kind]
    if kind in BINARY_KINDS:
        return "BLOB"
    if kind is TypeKind.DECIMAL:
        digits = column_type.length or 10
        if digits <= MAX_DECIMAL_DIGITS:
            return f"DECIMAL({digits},{column_type.scale or 0})"
        if unsupported is UnsupportedPolicy.ERROR:
            raise UnsupportedTypeError(
                f"DuckDB holds decimals of at most {MAX_DECIMAL_DIGITS} digits.", f"this column has {digits}"
            )
    return "VARCHAR"


def spelled(column_type: ColumnType) -> str:
    """The type as people write it, with its length and digits."""
    numbers = [str(n) for n in (column_type.length, column_type.scale) if n is not None]
    numbers = [] if column_type.kind in INTEGER_KINDS or column_type.elements else numbers
    return f"{column_type.kind}{'(' + ','.join(numbers) + ')' if numbers else ''}{' UNSIGNED' if column_type.unsigned else ''}"


def from_canonical(value: str, column_type: ColumnType, unsupported: UnsupportedPolicy) -> str:
    """SQL for a canonical value (an expression) in the column's DuckDB type; NULL where it does not fit."""
    kind = column_type.kind
    target = duckdb_type(column_type, unsupported)
    if kind in DATE_KINDS:
        # DuckDB has a year 0 too, but would show it as another one: 0001 BC.
        zone = " || '+00'" if kind is TypeKind.TIMESTAMP else ""
        return f"CASE WHEN NOT starts_with({value}, '0000') THEN TRY_CAST({value}{zone} AS {target}) END"
    if kind is TypeKind.JSON:
        return f"CASE WHEN json_valid({value}) THEN {value} END"
    if target in ("VARCHAR", "BLOB"):
        return value
    return f"TRY_CAST({value} AS {target})"


def integer_range(column_type: ColumnType) -> tuple[int, int]:
    """The smallest and the largest value of an integer type."""
    bits = _INTEGER_BITS[column_type.kind]
    return (0, 2**bits - 1) if column_type.unsigned else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
