"""Columns of the target that hold values less exactly than the source's.

MySQL and MariaDB round what such a column is given without a warning, in any SQL mode, and a key column makes one row of two. A
DECIMAL with fewer digits and a DATE for a DATETIME do warn, and their rows are refused by value.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from headrace.model.outcome import Problem
from headrace.model.table import Column, TableId, TableSchema, folded_name
from headrace.model.types import INTEGER_KINDS, ColumnType, TypeKind
from headrace.sinks.mysql.connection import MySqlSession
from headrace.sinks.mysql.refusal import Refused
from headrace.sinks.mysql.types import type_text

_FRACTIONS = frozenset({TypeKind.TIME, TypeKind.DATETIME, TypeKind.TIMESTAMP})
_INEXACT_IN: Mapping[TypeKind, Collection[str]] = {
    TypeKind.FLOAT: INTEGER_KINDS,
    TypeKind.DOUBLE: INTEGER_KINDS | {TypeKind.FLOAT},
    TypeKind.DECIMAL: {TypeKind.FLOAT, TypeKind.DOUBLE},
    TypeKind.BIGINT: {TypeKind.FLOAT, TypeKind.DOUBLE},
}


def rounds(column_type: ColumnType, held: str, fraction_digits: int) -> bool:
    """Whether a column of type ``held`` (``data_type`` of ``information_schema``, in capitals), with so many digits of a second's
    fraction, rounds values of the source's type without a warning."""
    if column_type.kind in _FRACTIONS:
        return held in _FRACTIONS and fraction_digits < (column_type.scale or 0)
    if column_type.kind is TypeKind.DECIMAL and column_type.scale and held in INTEGER_KINDS:
        return True
    return held in _INEXACT_IN.get(column_type.kind, ())


def rounding_problem(table_id: TableId, column: Column, held: str, fraction_digits: int) -> Problem:
    """What to say of a column that rounds."""
    shown = f"{held}({fraction_digits})" if fraction_digits else held
    return Problem(
        table_id,
        f"the target's column is {shown} and would round values of the source's {type_text(column.type)}.",
        column=column.name,
        hint="Give it the source's type in the target.",
    )


def refuse_rounding_columns(session: MySqlSession, schema: TableSchema) -> None:
    """Raises refusal.Refused when a column of the target would round the source's values without a warning."""
    columns = [column for column in schema.written_columns if _may_be_rounded(column.type)]
    if not columns:
        return
    found = session.execute(
        "SELECT column_name, data_type, COALESCE(datetime_precision, 0) FROM information_schema.columns"
        " WHERE table_schema = ? AND table_name = ?",
        (schema.table_id.database, schema.table_id.table),
    )
    target = {folded_name(str(name)): (str(held).upper(), int(str(digits))) for name, held, digits in found}
    for column in columns:
        held, digits = target.get(folded_name(column.name), ("", 0))
        if rounds(column.type, held, digits):
            raise Refused(rounding_problem(schema.table_id, column, held, digits))


def _may_be_rounded(column_type: ColumnType) -> bool:
    return (column_type.kind in _FRACTIONS and bool(column_type.scale)) or column_type.kind in _INEXACT_IN
