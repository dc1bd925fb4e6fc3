"""Values of expressions, for their translation: families of values, the columns that they fit, and pieces of DuckDB expressions."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

from sqlglot import exp

from headrace.model.table import TableSchema
from headrace.model.types import BINARY_KINDS, CHARACTER_KINDS, INTEGER_KINDS, ColumnType, TypeKind, TypeMap, each


class UntranslatableError(Exception):
    """There is no expression in DuckDB that is known to give the same values."""


class Family(Enum):
    """The kind of value of an expression. ``QUOTIENT`` is the result of ``/`` on exact numbers, ``NULL`` that of NULL."""

    NULL = auto()
    BOOLEAN = auto()
    INTEGER = auto()
    DECIMAL = auto()
    QUOTIENT = auto()
    DOUBLE = auto()
    TEXT = auto()
    DATE = auto()
    DATETIME = auto()
    JSON = auto()


EXACT = frozenset({Family.INTEGER, Family.DECIMAL})
NUMBERS = EXACT | {Family.DOUBLE}
MOMENTS = frozenset({Family.DATE, Family.DATETIME})
SPELLED_ALIKE = EXACT | {Family.TEXT, Family.DATE}  # whose text is the same in both
TEXT_KINDS = CHARACTER_KINDS | {TypeKind.ENUM, TypeKind.SET}
APPROXIMATE_KINDS = frozenset({TypeKind.FLOAT, TypeKind.DOUBLE})

# The column types into which a value can be written with the same result. Texts become numbers by a cast that gives NULL for a text
# that is not a number; TiDB rejects such rows in strict mode.
TARGETS = {
    Family.NULL: frozenset(TypeKind),
    Family.BOOLEAN: INTEGER_KINDS,
    Family.INTEGER: INTEGER_KINDS | APPROXIMATE_KINDS | CHARACTER_KINDS | {TypeKind.DECIMAL},
    Family.DECIMAL: INTEGER_KINDS | APPROXIMATE_KINDS | CHARACTER_KINDS | {TypeKind.DECIMAL},
    Family.QUOTIENT: INTEGER_KINDS | {TypeKind.DECIMAL},
    Family.DOUBLE: APPROXIMATE_KINDS,
    Family.TEXT: TEXT_KINDS | INTEGER_KINDS | APPROXIMATE_KINDS | {TypeKind.DECIMAL},
    Family.DATE: frozenset({TypeKind.DATE, TypeKind.DATETIME}),
    Family.DATETIME: frozenset({TypeKind.DATE, TypeKind.DATETIME}),
    Family.JSON: INTEGER_KINDS | APPROXIMATE_KINDS | {TypeKind.JSON, TypeKind.DECIMAL},
}

_MAX_QUOTIENT_SCALE = 6
_MOST_DECIMAL_DIGITS = 38
MOST_DIGITS = 18
"""The most digits of an integer that can be divided exactly."""


@dataclass(frozen=True)
class Value:
    """A piece of the DuckDB expression, and the kind of its values.

    ``is_mixed``: the values are numbers of several types. DuckDB gives them one type, with equally many digits after the point.
    """

    node: Any
    family: Family
    is_mixed: bool = False


_FAMILIES: TypeMap[Family | None] = TypeMap(
    "families of expressions",
    each(INTEGER_KINDS | {TypeKind.YEAR}, Family.INTEGER),
    each(TEXT_KINDS, Family.TEXT),
    each(APPROXIMATE_KINDS, Family.DOUBLE),
    {
        TypeKind.DECIMAL: Family.DECIMAL,
        TypeKind.DATE: Family.DATE,
        TypeKind.DATETIME: Family.DATETIME,
        TypeKind.JSON: Family.JSON,
    },
    each(BINARY_KINDS | {TypeKind.BIT, TypeKind.TIME, TypeKind.VECTOR}, None),
    {TypeKind.TIMESTAMP: None},  # its text depends on the reader's time zone
)
"""``None`` if expressions over the type are not translated."""


def is_long(column_type: ColumnType) -> bool:
    """Whether it is a DECIMAL with more digits than DuckDB supports. DuckDB can hold it only as text."""
    return column_type.kind is TypeKind.DECIMAL and (column_type.length or 0) > _MOST_DECIMAL_DIGITS


def family_of(column_type: ColumnType) -> Family:
    """The family of a column's values. Raises UntranslatableError."""
    found = None if is_long(column_type) else _FAMILIES[column_type.kind]
    if found is None:
        raise UntranslatableError
    return found


def is_text(node: Any) -> bool:
    return isinstance(node, exp.Literal) and bool(node.is_string)


def replaced(node: Any, old: str, new: str) -> Any:
    return exp.Anonymous(this="replace", expressions=[node, exp.Literal.string(old), exp.Literal.string(new)])


def undressed(node: Any) -> Any:
    """The node without the cast to a date that sqlglot adds in some functions."""
    return node.this if isinstance(node, exp.TsOrDsToDate) else node


def days(start: Any, end: Any) -> Any:
    return exp.Anonymous(this="date_diff", expressions=[exp.Literal.string("day"), cast(start, "DATE"), end])


def cast(node: Any, type_name: str) -> Any:
    return exp.TryCast(this=node, to=exp.DataType.build(type_name, dialect="duckdb"))


def wide(value: Value) -> Any:
    """An operand that does not overflow: TINYINT * TINYINT is TINYINT in DuckDB."""
    return cast(value.node, "HUGEINT") if value.family is Family.INTEGER else value.node


def not_zero(node: Any) -> Any:
    return exp.Nullif(this=node, expression=exp.Literal.number(0))


def wider(left: Family, right: Family) -> Family:
    return max(left, right, key=[Family.INTEGER, Family.DECIMAL, Family.DOUBLE].index)


def common(node: Any, values: list[Value]) -> Value:
    """The value of a node that returns one of these values. Raises UntranslatableError if their families differ."""
    families = {value.family for value in values} - {Family.NULL}
    if families <= EXACT and families:
        family = Family.DECIMAL if Family.DECIMAL in families else Family.INTEGER
        given = [value for value in values if value.family is not Family.NULL]
        return Value(node, family, is_mixed=family is Family.DECIMAL and len(given) > 1)
    if len(families) != 1:
        raise UntranslatableError
    return Value(node, families.pop())


def counting(node: Any) -> Any:
    """A place or a length in characters. It must be a literal above 0, because for 0 and below TiDB and DuckDB differ."""
    if not isinstance(node, exp.Literal) or node.is_string or not re.fullmatch(f"[0-9]{{1,{MOST_DIGITS}}}", node.this):
        raise UntranslatableError
    if int(node.this) < 1:
        raise UntranslatableError
    return exp.Literal.number(node.this)


def rounds(value: Value, target: ColumnType, schema: TableSchema) -> bool:
    """Whether the source rounds values when it writes them to the column, in a way that DuckDB does not."""
    scale = target.scale or 0
    if target.kind in APPROXIMATE_KINDS:
        return target.scale is not None  # DOUBLE(10,2)
    if value.family is Family.QUOTIENT:
        return target.kind is TypeKind.DECIMAL and scale > _MAX_QUOTIENT_SCALE
    if value.family is Family.DATETIME:
        kept = scale if target.kind is TypeKind.DATETIME else 0
        columns = [schema.column(c.name).type for c in value.node.find_all(exp.Column) if schema.has_column(c.name)]
        fractions = [c.scale or 0 for c in columns if c.kind in (TypeKind.DATETIME, TypeKind.TIMESTAMP)]
        fractions += [len(text.this.partition(".")[2]) for text in value.node.find_all(exp.Literal) if text.is_string]
        return max(fractions, default=0) > kept
    return False
