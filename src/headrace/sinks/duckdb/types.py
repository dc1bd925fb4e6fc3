"""TiDB's column types in DuckDB: their names, and the SQL that turns canonical values into them.

All conversions are DuckDB expressions that give NULL for what does not fit, so that one comparison of NULL counts finds bad
values, and so that the tasks that convert and the driver that loads share one meaning of every type.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from headrace.model.table import Column, Generated
from headrace.model.tso import tso_to_datetime
from headrace.model.types import BINARY_KINDS, CHARACTER_KINDS, INTEGER_KINDS, ColumnType, TypeKind

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
_MEMBER_KINDS = frozenset({TypeKind.ENUM, TypeKind.SET})
_NUMBER_KINDS = INTEGER_KINDS | {TypeKind.BIT, TypeKind.YEAR, TypeKind.FLOAT, TypeKind.DOUBLE, TypeKind.DECIMAL}


class UnsupportedPolicy(StrEnum):
    """What becomes of a type that DuckDB cannot hold (DECIMAL of more than 38 digits)."""

    ERROR = "error"
    TEXT = "text"


class UnsupportedTypeError(Exception):
    """A column's type has no counterpart in DuckDB. The message is a sentence without the column's name."""


def quoted(name: str) -> str:
    """An identifier in double quotes."""
    return '"' + name.replace('"', '""') + '"'


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
            raise UnsupportedTypeError(f"DuckDB holds decimals of at most {MAX_DECIMAL_DIGITS} digits, this column has {digits}.")
    return "VARCHAR"


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


@dataclass(frozen=True)
class TypeChange:
    """How a column's values follow a change of its type.

    ``expression`` gives the new value, NULL for one that does not fit; empty when values stay as they are.
    """

    target: str
    expression: str
    changes_type: bool


def type_change(name: str, old: ColumnType, new: ColumnType, unsupported: UnsupportedPolicy) -> TypeChange:
    """What ALTER COLUMN TYPE has to do. TiDB emits no rows for it, so values are converted here as TiDB does it.

    Numbers out of range are clamped and texts cut: TiDB let the change pass, so either there were none or its mode was lax.
    Raises UnsupportedTypeError for what cannot be followed.
    """
    source, target = duckdb_type(old, unsupported), duckdb_type(new, unsupported)
    if old.kind in _MEMBER_KINDS and new.kind in _NUMBER_KINDS:
        raise UnsupportedTypeError("the places of ENUM and SET members are not known here, so they cannot become numbers.")
    column = quoted(name)
    if source == target:
        return TypeChange(target, _narrowed(column, old, new, target), changes_type=False)
    if source == "VARCHAR" and target == "BLOB":
        expression = f"encode({column})"
    elif source == "BLOB" and target == "VARCHAR":
        expression = f"TRY(decode({column}))"
    elif old.kind in INTEGER_KINDS and new.kind in INTEGER_KINDS:
        expression = _clamped(column, new, target)
    else:
        expression = f"TRY_CAST({column} AS {target})"
    return TypeChange(target, expression, changes_type=True)


def _narrowed(column: str, old: ColumnType, new: ColumnType, target: str) -> str:
    """The new value where DuckDB has one type for both; empty when nothing can change."""
    if new.kind in CHARACTER_KINDS and new.length is not None and (old.length is None or new.length < old.length):
        return f"left({column}, {new.length})"
    if new.kind is TypeKind.MEDIUMINT and old.kind is TypeKind.INT:
        return _clamped(column, new, target)
    digits = _fraction_digits(new)
    if new.kind in (TypeKind.DATETIME, TypeKind.TIMESTAMP) and digits < _fraction_digits(old):
        return _rounded_time(column, digits, target)
    return ""


def _clamped(column: str, new: ColumnType, target: str) -> str:
    """The nearest value that the new integer type has."""
    low, high = _integer_range(new)
    wide = f"{column}::HUGEINT"  # not greatest() and least(): they pass over NULL
    return f"CAST(CASE WHEN {wide} < {low} THEN {low} WHEN {wide} > {high} THEN {high} ELSE {wide} END AS {target})"


def _fraction_digits(column_type: ColumnType) -> int:
    return column_type.scale or 0


def _rounded_time(column: str, digits: int, target: str) -> str:
    unit = 10 ** (6 - digits)
    rounded = f"make_timestamp(CAST(floor((epoch_us({column}) + {unit // 2}) / {unit}::DOUBLE) AS BIGINT) * {unit})"
    return f"timezone('UTC', {rounded})" if target != "TIMESTAMP" else rounded


def _integer_range(column_type: ColumnType) -> tuple[int, int]:
    bits = _INTEGER_BITS[column_type.kind]
    return (0, 2**bits - 1) if column_type.unsigned else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def fill_value(column: Column, commit_ts: int, unsupported: UnsupportedPolicy) -> str | None:
    """SQL for what rows that were there before get in an added column; ``None`` for NULL.

    The expression gives NULL where the value does not fit (a zero date). TiDB emits no rows for ADD COLUMN.
    """
    if column.generated is Generated.STORED:
        return None
    kind, default = column.type.kind, column.default
    if default is None:
        if column.nullable:
            return None
        default = _zero_value(column.type)
    elif kind in DATE_KINDS and default.upper().startswith(("CURRENT_TIMESTAMP", "NOW(", "LOCALTIME")):
        default = tso_to_datetime(commit_ts).strftime("%Y-%m-%d %H:%M:%S.%f")
    elif kind is TypeKind.BIT:
        default = str(_bits(default))
    if kind in BINARY_KINDS:
        data = default.encode()
        padding = (column.type.length or 0) - len(data) if kind is TypeKind.BINARY else 0
        return "'" + "".join(f"\\x{byte:02X}" for byte in data + b"\0" * padding) + "'::BLOB"
    return from_canonical(literal(default), column.type, unsupported)


def _bits(default: str) -> int:
    """A schema file holds the default of BIT as its bytes in a string."""
    try:
        return int.from_bytes(default.encode("latin-1"), "big")
    except UnicodeEncodeError:
        return int.from_bytes(default.encode(), "big")


def _zero_value(column_type: ColumnType) -> str:
    kind = column_type.kind
    if kind in _NUMBER_KINDS:
        return "0"
    if kind is TypeKind.ENUM and column_type.elements:
        return column_type.elements[0]
    zeros = {
        TypeKind.DATE: "0000-00-00",
        TypeKind.DATETIME: "0000-00-00 00:00:00",
        TypeKind.TIMESTAMP: "0000-00-00 00:00:00",
        TypeKind.TIME: "00:00:00",
        TypeKind.JSON: "null",
    }
    return zeros.get(kind, "")
