"""Columns of the target that do not keep the source's values unchanged.

MySQL and MariaDB change values for such a column without a warning, in any SQL mode: they round a DOUBLE in a FLOAT, and convert
the text 01 to the number 1. In a unique key that merges two rows. A value for which the server has an error or a warning (a DECIMAL
with fewer digits, a DATE for a DATETIME) is refused anyway; ``validate`` reports the most common such columns
(:meth:`HeldType.refuses`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from headrace.model.outcome import Problem
from headrace.model.table import Column, TableId, TableSchema, folded_name
from headrace.model.types import BINARY_KINDS, CHARACTER_KINDS, INTEGER_KINDS, ColumnType, TypeKind, TypeMap
from headrace.sinks.mysql.connection import MySqlSession
from headrace.sinks.mysql.refusal import Refused
from headrace.sinks.mysql.text import quote_text
from headrace.sinks.mysql.types import type_text

HELD = "data_type, COALESCE(character_maximum_length, datetime_precision, 0), numeric_scale, column_type, is_nullable, extra"
"""The columns of ``information_schema.columns`` that :meth:`HeldType.of` needs."""

_MEMBER = re.compile(r"'((?:[^']|'')*)'")
_DIGITS = re.compile(r"\((\d+)")
_BEYOND_BMP = re.compile("[\U00010000-\U0010ffff]")
_PLAIN_WIDTHS = (None, 12, 22)
"""The precisions that TiCDC writes for a FLOAT or DOUBLE without one."""
_APPROXIMATE = frozenset({TypeKind.FLOAT, TypeKind.DOUBLE})
_MEMBERS = frozenset({TypeKind.ENUM, TypeKind.SET})
_FRACTIONS = frozenset({TypeKind.TIME, TypeKind.DATETIME, TypeKind.TIMESTAMP})
_DATES = frozenset({TypeKind.DATE, TypeKind.DATETIME, TypeKind.TIMESTAMP})
_WHOLE = (CHARACTER_KINDS | BINARY_KINDS) - {TypeKind.CHAR, TypeKind.BINARY}
"""Types that accept any bytes or characters, and neither strip spaces nor add zeros."""
_TEXTS = _WHOLE | {TypeKind.CHAR, TypeKind.JSON}
_NUMBERS = _TEXTS | {TypeKind.DECIMAL, TypeKind.DOUBLE}
_SIZED = CHARACTER_KINDS | BINARY_KINDS
_OF_CHARACTERS = frozenset({TypeKind.CHAR, TypeKind.VARCHAR, TypeKind.VAR_STRING})
"""Types whose length is in characters; that of all others is in bytes."""
_MOST_BYTES = 4
"""The maximum for a character in utf8mb4."""
_BITS = {TypeKind.TINYINT: 8, TypeKind.SMALLINT: 16, TypeKind.MEDIUMINT: 24, TypeKind.INT: 32, TypeKind.BIGINT: 64}
_HOLDS: TypeMap[frozenset[TypeKind]] = TypeMap(
    "types of MySQL that hold values",
    {
        **dict.fromkeys(INTEGER_KINDS, _NUMBERS | INTEGER_KINDS | {TypeKind.FLOAT}),
        TypeKind.INT: _NUMBERS | INTEGER_KINDS,
        TypeKind.BIGINT: (_NUMBERS | INTEGER_KINDS) - {TypeKind.DOUBLE},
        TypeKind.BIT: (_NUMBERS | INTEGER_KINDS | {TypeKind.BIT}) - {TypeKind.DOUBLE},
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
        TypeKind.VECTOR: _TEXTS | {TypeKind.VECTOR},
    },
)
"""By the source's type: the target's types that either keep its values unchanged or refuse them."""


@dataclass(frozen=True)
class HeldType:
    """The type of a column of the target."""

    kind: str = ""
    """In upper case, as in ``information_schema``."""
    size: int = 0
    """In characters or bytes, or the number of fractional second digits."""
    scale: int | None = None
    """The digits after the point; ``None`` for a FLOAT or DOUBLE that keeps what fits."""
    members: frozenset[str] = frozenset()
    """The members of an ENUM or SET."""
    fills_null: bool = False
    """It replaces NULL by a value of its own."""
    name: str = ""
    """The column's name in its own spelling."""
    collation: str = ""
    """The collation of a text column."""
    declared: str = ""
    """The type as the server shows it, with its lengths."""
    takes_null: bool = True
    """It accepts NULL."""

    @classmethod
    def of(cls, data_type: object, size: object, scale: object, column_type: object, nullable: object, extra: object) -> HeldType:
        """The type from the columns in :data:`HELD`."""
        kind = str(data_type).upper()
        fills_null = "auto_increment" in str(extra).lower() or (kind == TypeKind.TIMESTAMP and nullable == "NO")
        found = _MEMBER.findall(str(column_type)) if kind in (TypeKind.ENUM, TypeKind.SET) else []
        members = frozenset(_shown(member.replace("''", "'")) for member in found)
        digits = None if scale is None else int(str(scale))
        return cls(kind, int(str(size)), digits, members, fills_null, declared=str(column_type), takes_null=nullable != "NO")

    def changes(self, column: Column) -> bool:
        """Whether it silently changes some of the values that are written for the source's column."""
        if self.fills_null and column.nullable and not column.primary_key:
            return True
        kind, fraction = column.type.kind, column.type.scale or 0
        is_of_other_kind = self.kind != kind and self.kind not in _HOLDS[kind]
        return is_of_other_kind or (
            (kind in _FRACTIONS and self.kind in _FRACTIONS and self.size < fraction)
            or (kind in _APPROXIMATE and self.kind in _APPROXIMATE and self._cuts_digits(column.type))
            or (kind in _MEMBERS and self.kind in _MEMBERS and not self.members.issuperset(map(_shown, column.type.elements)))
            or (kind is TypeKind.DECIMAL and fraction > 0 and self.kind in INTEGER_KINDS)
            or (kind == self.kind == TypeKind.BINARY and self.size > (column.type.length or self.size))
        )

    def refuses(self, column: Column) -> bool:
        """Whether the server refuses some values of the source's column. The table stops at the first one."""
        kind = column.type.kind
        if not self.takes_null and column.nullable and not column.primary_key:
            return True
        if kind in _SIZED and self.kind in _SIZED:
            return 0 < self.size < self._size_of(column.type)
        if kind in INTEGER_KINDS and self.kind in INTEGER_KINDS:
            low, high = _range(kind, unsigned=column.type.unsigned)
            held_low, held_high = _range(TypeKind(self.kind), unsigned="unsigned" in self.declared.lower())
            return low < held_low or high > held_high
        return kind is TypeKind.DECIMAL and self.kind == kind and self._has_fewer_digits(column.type)

    def _size_of(self, column_type: ColumnType) -> int:
        """The maximum length of a text or bytes value, in this column's unit; 0 if unknown."""
        length = column_type.length or 0
        return length * _MOST_BYTES if column_type.kind in _OF_CHARACTERS and self.kind not in _OF_CHARACTERS else length

    def _has_fewer_digits(self, column_type: ColumnType) -> bool:
        """Whether a DECIMAL has fewer digits before the point. With fewer after it the server warns, so the row is refused, too."""
        found = _DIGITS.search(self.declared)
        digits, scale = column_type.length or 10, column_type.scale or 0
        is_signed_in_unsigned = "unsigned" in self.declared.lower() and not column_type.unsigned
        held_scale = self.scale or 0
        return found is not None and (is_signed_in_unsigned or int(found[1]) - held_scale < digits - scale or held_scale < scale)

    def _cuts_digits(self, column_type: ColumnType) -> bool:
        """Whether it has fewer digits after the point than the source's FLOAT or DOUBLE. TiCDC does not record ``(M,0)``."""
        if self.scale is None:
            return False
        is_plain = column_type.scale is None and (self.scale > 0 or column_type.length in _PLAIN_WIDTHS)
        return is_plain or (column_type.scale or 0) > self.scale

    def __str__(self) -> str:
        if self.kind in _APPROXIMATE and self.scale is not None:
            return f"{self.kind} with {self.scale} digits after the point"
        if self.members:
            return f"{self.kind}({', '.join(map(quote_text, sorted(self.members)))})"
        return f"{self.kind}({self.size})" if self.size and self.kind in _FRACTIONS | {TypeKind.BINARY} else self.kind


def _shown(member: str) -> str:
    """A member of an ENUM or SET as ``information_schema`` may show it: without trailing spaces, and in the basic plane."""
    return _BEYOND_BMP.sub("?", member.replace("\\\\", "\\").rstrip(" "))


def _range(kind: TypeKind, *, unsigned: bool) -> tuple[int, int]:
    """The least and the greatest value of an integer type."""
    bits = _BITS[kind]
    return (0, 2**bits - 1) if unsigned else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def misfit(table_id: TableId, column: Column, held: HeldType) -> Problem:
    """The problem of a column that changes values."""
    if held.fills_null and not held.changes(replace(column, nullable=False)):
        message = "the target's column replaces NULL, which the source's may hold, with a value of its own."
        hint = "Give it the source's definition in the target."
        return Problem(table_id, message, column=column.name, hint=hint)
    return Problem(
        table_id,
        f"the target's column is {held}, which cannot hold every value of the source's {type_text(column.type)} unchanged.",
        column=column.name,
        hint="Give it the source's type in the target.",
    )


def held_columns(session: MySqlSession, table_id: TableId) -> Mapping[str, HeldType]:
    """The types of the columns of a target table, by their folded names."""
    found = session.execute(
        f"SELECT column_name, collation_name, {HELD} FROM information_schema.columns WHERE table_schema = ? AND table_name = ?",
        (table_id.database, table_id.table),
    )
    return {
        folded_name(str(name)): replace(HeldType.of(*held), name=str(name), collation=str(collation or ""))
        for name, collation, *held in found
    }


def refuse_misfits(schema: TableSchema, columns: Mapping[str, HeldType]) -> None:
    """Raises refusal.Refused if a column of the target (:func:`held_columns`) would silently change the source's values."""
    for column in schema.written_columns:
        held = columns.get(folded_name(column.name))
        if held is not None and held.changes(column):
            raise Refused(misfit(schema.table_id, column, held))
