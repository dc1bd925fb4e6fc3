"""What canal-JSON says of a column's type: Java's number of it, and MySQL's name of it.

Source: TiCDC documentation, "TiCDC Canal-JSON Protocol", sections "Data types" and "Integer types".
"""

from __future__ import annotations

from headrace.model.types import BINARY_KINDS, INTEGER_KINDS, ColumnType, TypeKind, TypeMap, each

_TEXTS = frozenset({TypeKind.TINYTEXT, TypeKind.TEXT, TypeKind.MEDIUMTEXT, TypeKind.LONGTEXT})
_SQL_TYPES = TypeMap(
    "Java's numbers of types",
    each(BINARY_KINDS, 2004),
    each(_TEXTS, 2005),
    each({TypeKind.VARCHAR, TypeKind.VAR_STRING, TypeKind.YEAR, TypeKind.JSON, TypeKind.VECTOR}, 12),
    each({TypeKind.MEDIUMINT, TypeKind.INT, TypeKind.ENUM}, 4),
    each({TypeKind.BIT, TypeKind.SET}, -7),
    each({TypeKind.DATETIME, TypeKind.TIMESTAMP}, 93),
    {
        TypeKind.TINYINT: -6,
        TypeKind.SMALLINT: 5,
        TypeKind.BIGINT: -5,
        TypeKind.FLOAT: 7,
        TypeKind.DOUBLE: 8,
        TypeKind.DECIMAL: 3,
        TypeKind.CHAR: 1,
        TypeKind.DATE: 91,
        TypeKind.TIME: 92,
    },
)
_LARGEST_SIGNED = {
    TypeKind.TINYINT: ((1 << 7) - 1, 5),
    TypeKind.SMALLINT: ((1 << 15) - 1, 4),
    TypeKind.INT: ((1 << 31) - 1, -5),
    TypeKind.BIGINT: ((1 << 63) - 1, 3),
}
_NEVER_UNSIGNED = frozenset({TypeKind.BIT, TypeKind.YEAR})
# Signed and unsigned; MySQL manual, "Numeric Type Attributes". A type that is not here has no length without one in its definition.
_DISPLAY_WIDTHS = {
    TypeKind.TINYINT: (4, 3),
    TypeKind.SMALLINT: (6, 5),
    TypeKind.MEDIUMINT: (9, 8),
    TypeKind.INT: (11, 10),
    TypeKind.BIGINT: (20, 20),
    TypeKind.BIT: (1, 1),
    TypeKind.YEAR: (4, 4),
    TypeKind.CHAR: (1, 1),
    TypeKind.BINARY: (1, 1),
}
_WITH_LENGTH = INTEGER_KINDS | {TypeKind.BIT, TypeKind.YEAR, TypeKind.CHAR, TypeKind.VARCHAR, TypeKind.BINARY, TypeKind.VARBINARY}
_WITH_LENGTH_IF_KNOWN = frozenset({TypeKind.VECTOR})
_OF_TIME = frozenset({TypeKind.TIME, TypeKind.DATETIME, TypeKind.TIMESTAMP})
_FLOAT_WIDTHS = {TypeKind.FLOAT: 12, TypeKind.DOUBLE: 22}
_DECIMAL_DIGITS = 10


def sql_type(column_type: ColumnType) -> int:
    """Java's number of the type (``java.sql.Types``)."""
    return _SQL_TYPES[column_type.kind]


def promotion(column_type: ColumnType) -> tuple[int, int] | None:
    """For an unsigned type: the largest value that Java's type of the same size holds, and the type's number for larger values.

    ``None`` for a type whose number does not depend on the value. MEDIUMINT is such a type, because Java has none of its size.
    """
    return _LARGEST_SIGNED.get(column_type.kind) if column_type.unsigned else None


def mysql_type(column_type: ColumnType, *, full: bool) -> str:
    """MySQL's name of the type in lower case, such as ``int unsigned``. ``full`` is TiCDC's ``content-compatible``, which adds
    lengths, digits and members as SHOW CREATE TABLE has them: ``int(10) unsigned``. ZEROFILL is not known."""
    name = column_type.kind.lower()
    unsigned = " unsigned" if column_type.unsigned and column_type.kind not in _NEVER_UNSIGNED else ""
    inside = _inside(column_type) if full else ""
    return f"{name}({inside}){unsigned}" if inside else name + unsigned


def _inside(column_type: ColumnType) -> str:
    """What stands between the parentheses of the type."""
    kind, length, scale = column_type.kind, column_type.length, column_type.scale
    if kind in (TypeKind.ENUM, TypeKind.SET):
        return ",".join("'" + element.replace("'", "''") + "'" for element in column_type.elements)
    if kind is TypeKind.DECIMAL:
        return f"{_DECIMAL_DIGITS if length is None else length},{scale or 0}"
    if kind in _FLOAT_WIDTHS:
        return f"{_FLOAT_WIDTHS[kind] if length is None else length},{scale}" if scale else ""
    if kind in _OF_TIME:
        return str(scale) if scale else ""
    if kind in _WITH_LENGTH | _WITH_LENGTH_IF_KNOWN:
        if length is None and kind in _DISPLAY_WIDTHS:
            length = _DISPLAY_WIDTHS[kind][column_type.unsigned]
        return "" if length is None else str(length)
    return ""
