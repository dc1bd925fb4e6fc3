"""The values of existing rows in an added column. TiDB emits no rows for ADD COLUMN."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC
from decimal import ROUND_HALF_UP, Context, Decimal

from headrace.ddl.defaults import bit_default, is_mangled, is_time_of_statement, zone_of
from headrace.model.events import SchemaChange
from headrace.model.table import Column, Generated
from headrace.model.tso import tso_from_ms, tso_to_datetime
from headrace.model.types import BINARY_KINDS, CHARACTER_KINDS, INTEGER_KINDS, ColumnType, TypeKind, TypeMap, each
from headrace.sinks.duckdb.conversion import from_default
from headrace.sinks.duckdb.spool import ValuePolicies
from headrace.sinks.duckdb.types import duckdb_type, from_canonical, integer_range, literal

_NUMBER_KINDS = INTEGER_KINDS | {TypeKind.YEAR, TypeKind.FLOAT, TypeKind.DOUBLE, TypeKind.DECIMAL}
_DECIMALS = INTEGER_KINDS | {TypeKind.DECIMAL}
_FLOATS = frozenset({TypeKind.FLOAT, TypeKind.DOUBLE})
_DIGITS = Context(prec=65)
"""The maximum number of digits of a DECIMAL in MySQL."""
_NUMBER = re.compile(r" *([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?)")
"""TiDB ignores spaces before a number in a text."""
_AS_THEY_ARE = frozenset({TypeKind.TIMESTAMP, TypeKind.JSON, TypeKind.VECTOR, TypeKind.ENUM, TypeKind.SET})
_ZEROS = TypeMap(
    "what a NOT NULL column without default holds",
    each(_NUMBER_KINDS | {TypeKind.BIT}, "0"),
    each(CHARACTER_KINDS | BINARY_KINDS | {TypeKind.VECTOR, TypeKind.ENUM, TypeKind.SET}, ""),
    each({TypeKind.DATETIME, TypeKind.TIMESTAMP}, "0000-00-00 00:00:00"),
    {TypeKind.DATE: "0000-00-00", TypeKind.TIME: "00:00:00", TypeKind.JSON: "null"},
)
"""For an ENUM with known members it is the first one."""


@dataclass(frozen=True)
class Fill:
    """SQL for the value. It gives NULL if DuckDB cannot hold the value, which ``told`` reports.

    ``unknown`` says why the value cannot be determined, ``about`` why it is only approximate.
    """

    expression: str
    told: str = ""
    unknown: str = ""
    about: str = ""


def fill_of(column: Column, change: SchemaChange, policies: ValuePolicies) -> Fill | None:
    """The value of an added column in existing rows; ``None`` for NULL."""
    if column.generated is Generated.STORED or (column.default is None and column.nullable):
        return None
    target = duckdb_type(column.type, policies.unsupported)
    if column.default is None:
        return _without_default(column.type, target, policies)
    if is_time_of_statement(column):
        return _time_of_statement(column, change, policies)
    if column.type.kind is TypeKind.BIT:
        bits = bit_default(change.statement, change.database, column)
        unknown = "its default has bits that are no text, which the schema file lost." if bits is None else ""
        return Fill("NULL" if bits is None else str(bits), column.default, unknown=unknown)
    if is_mangled(column):
        unknown = "its default has bytes that are no text: which ones TiDB shows depends on its release."
        return Fill("NULL", column.default, unknown=unknown)
    return Fill(_value(column.default, column.type, target, policies), column.default)


def _without_default(column_type: ColumnType, target: str, policies: ValuePolicies) -> Fill:
    if column_type.kind is TypeKind.ENUM and not column_type.elements:
        return Fill("''", "", unknown="they got the first member of the ENUM, and its members are not known.")
    zero = _zero_value(column_type)
    return Fill(_zero(zero, column_type, target, policies), zero)


def _zero(zero: str, column_type: ColumnType, target: str, policies: ValuePolicies) -> str:
    """The value of a NOT NULL column without default."""
    if column_type.kind in BINARY_KINDS or column_type.kind is TypeKind.DECIMAL:
        return _value(zero, column_type, target, policies)
    if column_type.kind in _NUMBER_KINDS or column_type.kind is TypeKind.BIT:
        return f"CAST({zero} AS {target})"
    return from_canonical(literal(zero), column_type, policies.unsupported)


def _value(text: str, column_type: ColumnType, target: str, policies: ValuePolicies) -> str:
    if column_type.kind in _AS_THEY_ARE:
        return from_canonical(literal(text), column_type, policies.unsupported)
    number = _number(text, column_type) if column_type.kind in _DECIMALS | _FLOATS else None
    if column_type.kind in _DECIMALS:
        return f"CAST({'NULL' if number is None else literal(f'{_fitted(number, column_type):f}')} AS {target})"
    return from_default(text if number is None else f"{number:f}", column_type, target)


def _number(text: str, column_type: ColumnType) -> Decimal | None:
    """The number that TiDB reads in a text; ``None`` if that is not certain, as for a fraction in other spellings than 1.5."""
    found = _NUMBER.fullmatch(text)
    if found is None:
        return None
    number = Decimal(found[1])
    is_plain = found[1].lstrip("+-")[0] != "." and "e" not in text.lower()
    return number if is_plain or column_type.kind not in INTEGER_KINDS or number == number.to_integral_value() else None


def _fitted(number: Decimal, column_type: ColumnType) -> Decimal:
    """The number with the digits of an integer or DECIMAL column: rounded half away from zero, the nearest that the type has."""
    scale = column_type.scale or 0 if column_type.kind is TypeKind.DECIMAL else 0
    if column_type.kind is TypeKind.DECIMAL:
        most = Decimal(10 ** (column_type.length or 10) - 1).scaleb(-scale, _DIGITS)
        least = Decimal(0) if column_type.unsigned else -most
    else:
        least, most = map(Decimal, integer_range(column_type))
    rounded = min(max(number, least), most).quantize(Decimal(1).scaleb(-scale), ROUND_HALF_UP, _DIGITS)
    return rounded if rounded else abs(rounded)


def _time_of_statement(column: Column, change: SchemaChange, policies: ValuePolicies) -> Fill:
    """The commit ts is used for the time when the source's statement began, which is not recorded in files."""
    moment = tso_to_datetime(tso_from_ms(change.time_ms))
    zone = UTC if column.type.kind is TypeKind.TIMESTAMP else zone_of(policies.time_zone or "+00:00")
    moment = moment.astimezone(zone)
    digits = column.type.scale or 0
    fraction = f".{moment.microsecond:06d}"[: digits + 1] if digits else ""  # cut, as in TiDB
    whole = f"%Y-%m-%d %H:%M:%S{fraction}"
    forms = {
        TypeKind.DATE: "%Y-%m-%d",
        TypeKind.TIME: f"%H:%M:%S{fraction}",
        TypeKind.DATETIME: whole,
        TypeKind.TIMESTAMP: whole,
    }
    text = moment.strftime(forms[column.type.kind])
    clock = (
        "UTC"
        if column.type.kind is TypeKind.TIMESTAMP
        else policies.time_zone or "UTC; time-zone in the sink's URI names another zone"
    )
    about = (
        f"column {column.name} of the rows that existed holds {text} ({clock}), the time of the schema change: the source used the "
        "time at which its statement began, which no file records."
    )
    return Fill(from_canonical(literal(text), column.type, policies.unsupported), text, about=about)


def _zero_value(column_type: ColumnType) -> str:
    if column_type.kind is TypeKind.ENUM and column_type.elements:
        return column_type.elements[0]
    return _ZEROS[column_type.kind]
