"""Columns of the target that do not hold the source's values as they are.

MySQL and MariaDB change what such a column is given without a warning, in any SQL mode: they round a DOUBLE in a FLOAT, and make
the number 1 of the text 01. In a unique key that makes one row of two. A value for which the server has an error or a warning (a
DECIMAL with fewer digits, a DATE for a DATETIME) is refused by itself, and not looked for here.
"""

from __future__ import annotations

from collections.abc import Mapping

from headrace.model.outcome import Problem
from headrace.model.table import Column, TableId, TableSchema, folded_name
from headrace.model.types import BINARY_KINDS, CHARACTER_KINDS, INTEGER_KINDS, ColumnType, TypeKind
from headrace.sinks.mysql.connection import MySqlSession
from headrace.sinks.mysql.refusal import Refused
from headrace.sinks.mysql.types import type_text

COLUMN_SIZE = "COALESCE(character_maximum_length, datetime_precision, 0)"
"""The ``size`` of a column in ``information_schema.columns``: characters or bytes, or digits of a second's fraction."""

_FRACTIONS = frozenset({TypeKind.TIME, TypeKind.DATETIME, TypeKind.TIMESTAMP})
_DATES = frozenset({TypeKind.DATE, TypeKind.DATETIME, TypeKind.TIMESTAMP})
_WHOLE = (CHARACTER_KINDS | BINARY_KINDS) - {TypeKind.CHAR, TypeKind.BINARY}
"""What takes any bytes or characters, and takes no blanks away and adds no zeros."""
_TEXTS = _WHOLE | {TypeKind.CHAR, TypeKind.JSON}
_NUMBERS = _TEXTS | {TypeKind.DECIMAL, TypeKind.DOUBLE}
_HOLDS: Mapping[TypeKind, frozenset[TypeKind]] = {
    **dict.fromkeys(INTEGER_KINDS, _NUMBERS | INTEGER_KINDS | {TypeKind.FLOAT}),
    TypeKind.INT: _NUMBERS | INTEGER_KINDS,
    TypeKind.BIGINT: (_NUMBERS | INTEGER_KINDS) - {TypeKind.DOUBLE},
    TypeKind.BIT: _NUMBERS | INTEGER_KINDS | {TypeKind.BIT},
    TypeKind.YEAR: _NUMBERS | INTEGER_KINDS | _DATES | {TypeKind.YEAR, TypeKind.FLOAT},
    TypeKind.FLOAT: _NUMBERS | {TypeKind.FLOAT},
    TypeKind.DOUBLE: _NUMBERS,
    TypeKind.DECIMAL: (_NUMBERS | INTEGER_KINDS) - {TypeKind.DOUBLE},
    **dict.fromkeys(CHARACTER_KINDS, _WHOLE),
    TypeKind.CHAR: _WHOLE | {TypeKind.CHAR},
    **dict.fromkeys(BINARY_KINDS, _WHOLE),
    TypeKind.BINARY: _WHOLE | {TypeKind.BINARY},
    **dict.fromkeys(_DATES, _TEXTS | INTEGER_KINDS | _DATES | {TypeKind.TIME, TypeKind.YEAR}),
    TypeKind.TIME: _TEXTS | INTEGER_KINDS | {TypeKind.TIME, TypeKind.YEAR},
    TypeKind.ENUM: _TEXTS | {TypeKind.ENUM, TypeKind.SET},
    TypeKind.SET: _TEXTS | {TypeKind.SET},
    TypeKind.JSON: _WHOLE | {TypeKind.JSON},
}
"""By the source's type, those of the target that take its values as they are or refuse them."""


def changes(column_type: ColumnType, held: str, size: int) -> bool:
    """Whether a column of type ``held`` (``data_type`` of ``information_schema``, in capitals) and size changes values silently."""
    kind = column_type.kind
    if held == kind:
        is_shorter = kind in _FRACTIONS and size < (column_type.scale or 0)
        return is_shorter or (kind is TypeKind.BINARY and size > (column_type.length or size))
    if kind in _FRACTIONS and held in _FRACTIONS and size < (column_type.scale or 0):
        return True
    if kind is TypeKind.DECIMAL and column_type.scale and held in INTEGER_KINDS:
        return True
    return kind in _HOLDS and held not in _HOLDS[kind]


def misfit(table_id: TableId, column: Column, held: str, size: int) -> Problem:
    """What to say of a column that changes values."""
    shown = f"{held}({size})" if size and held in _FRACTIONS | {TypeKind.BINARY} else held
    return Problem(
        table_id,
        f"the target's column is {shown}, which does not hold each value of the source's {type_text(column.type)} as it is.",
        column=column.name,
        hint="Give it the source's type in the target.",
    )


def refuse_misfits(session: MySqlSession, schema: TableSchema) -> None:
    """Raises refusal.Refused when a column of the target would change the source's values without a warning."""
    found = session.execute(
        f"SELECT column_name, data_type, {COLUMN_SIZE} FROM information_schema.columns WHERE table_schema = ? AND table_name = ?",
        (schema.table_id.database, schema.table_id.table),
    )
    target = {folded_name(str(name)): (str(held).upper(), int(str(size))) for name, held, size in found}
    for column in schema.written_columns:
        held, size = target.get(folded_name(column.name), ("", 0))
        if held and changes(column.type, held, size):
            raise Refused(misfit(schema.table_id, column, held, size))
