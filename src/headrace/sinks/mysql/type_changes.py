"""MODIFY COLUMN between types that MySQL and MariaDB convert differently from TiDB: existing rows would differ silently.

TiDB's results are in ``tests/support/modify_column.tsv``; ``tests/sinks/test_mysql_type_changes.py`` compares MariaDB's with them.
"""

from __future__ import annotations

from headrace.model.types import BINARY_KINDS, CHARACTER_KINDS, INTEGER_KINDS, ColumnType, TypeKind

_K = TypeKind
_FLOATS = frozenset({_K.FLOAT, _K.DOUBLE})
_STRINGS = BINARY_KINDS | CHARACTER_KINDS

_RULES = (
    (frozenset({_K.BIT}), _STRINGS, "{0} IS NOT NULL"),  # becomes its bytes; in TiDB the number
    (frozenset({_K.BIT}), _FLOATS, "{0} >= 0x8000000000000000"),  # is read as a signed number
    (frozenset({_K.YEAR}), _STRINGS, "{0} = 0"),  # becomes 0000; in TiDB 0
    (_FLOATS, _STRINGS | {_K.JSON}, "{0} IS NOT NULL"),  # other digits and exponents
    (_FLOATS, frozenset({_K.BIT}), "{0} < 0"),
    (_FLOATS, frozenset({_K.YEAR}), "{0} <> FLOOR({0})"),
    (_FLOATS, _FLOATS, "ABS(MOD(ABS({0}) * 1e{1}, 1) - 0.5) < 1e-6"),  # halves, to a number of digits
    (frozenset({_K.DECIMAL}), frozenset({_K.JSON}), "{0} IS NOT NULL"),  # becomes its digits; in TiDB a double
    (frozenset({_K.TIME}), frozenset({_K.TIME}), "{0} < 0 AND MICROSECOND({0}) <> 0"),  # halves of negative times
    # Fractions are cut off; TiDB rounds.
    (CHARACTER_KINDS, frozenset({_K.DATE}), "{0} LIKE '%:%.%'"),
    (frozenset({_K.TIME, _K.DATETIME, _K.TIMESTAMP}), INTEGER_KINDS, "MICROSECOND({0}) <> 0"),
)
"""The kinds before and after the change, and the condition for the affected rows."""


def converted_otherwise(old: ColumnType, new: ColumnType, name: str) -> str | None:
    """The condition, in MySQL's SQL, for the rows that the server converts differently from TiDB; ``None`` if there are none.

    ``name`` is the quoted name of the column, which still has the type ``old``.
    """
    kinds = {old.kind, new.kind}
    keeps_digits = new.scale is None if kinds <= _FLOATS else kinds == {_K.TIME} and (new.scale or 0) >= (old.scale or 0)
    if keeps_digits:
        return None
    return next((sql.format(name, new.scale) for before, after, sql in _RULES if old.kind in before and new.kind in after), None)
