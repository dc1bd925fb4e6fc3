"""TiDB's column types, and the one Arrow type in which a block holds the values of each (rule 4 of the design).

Canonical values: integers, YEAR and BIT as 64-bit integers; FLOAT and DOUBLE as they are; BINARY, VARBINARY and the BLOBs
as binary; everything else (strings, DECIMAL, DATE, TIME, DATETIME, TIMESTAMP in UTC, ENUM and SET as member text, JSON,
VECTOR) as MySQL's own text in UTF-8. Names are those of ``ColumnType`` in TiCDC's schema files (TiCDC documentation,
"Replicate Data to Storage Services", section "Schema data").
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import pyarrow as pa


class TypeKind(StrEnum):
    """The base name of a column type, without ``UNSIGNED``."""

    TINYINT = "TINYINT"
    SMALLINT = "SMALLINT"
    MEDIUMINT = "MEDIUMINT"
    INT = "INT"
    BIGINT = "BIGINT"
    BIT = "BIT"
    YEAR = "YEAR"
    FLOAT = "FLOAT"
    DOUBLE = "DOUBLE"
    DECIMAL = "DECIMAL"
    CHAR = "CHAR"
    VARCHAR = "VARCHAR"
    VAR_STRING = "VAR_STRING"
    BINARY = "BINARY"
    VARBINARY = "VARBINARY"
    TINYTEXT = "TINYTEXT"
    TEXT = "TEXT"
    MEDIUMTEXT = "MEDIUMTEXT"
    LONGTEXT = "LONGTEXT"
    TINYBLOB = "TINYBLOB"
    BLOB = "BLOB"
    MEDIUMBLOB = "MEDIUMBLOB"
    LONGBLOB = "LONGBLOB"
    DATE = "DATE"
    TIME = "TIME"
    DATETIME = "DATETIME"
    TIMESTAMP = "TIMESTAMP"
    ENUM = "ENUM"
    SET = "SET"
    JSON = "JSON"
    VECTOR = "VECTOR"


INTEGER_KINDS = frozenset({TypeKind.TINYINT, TypeKind.SMALLINT, TypeKind.MEDIUMINT, TypeKind.INT, TypeKind.BIGINT})
BINARY_KINDS = frozenset(
    {
        TypeKind.BINARY,
        TypeKind.VARBINARY,
        TypeKind.TINYBLOB,
        TypeKind.BLOB,
        TypeKind.MEDIUMBLOB,
        TypeKind.LONGBLOB,
    }
)
CHARACTER_KINDS = frozenset(
    {
        TypeKind.CHAR,
        TypeKind.VARCHAR,
        TypeKind.VAR_STRING,
        TypeKind.TINYTEXT,
        TypeKind.TEXT,
        TypeKind.MEDIUMTEXT,
        TypeKind.LONGTEXT,
    }
)


@dataclass(frozen=True)
class ColumnType:
    """A column's type.

    ``length`` is the display width of integers, the precision of DECIMAL, FLOAT and DOUBLE, the character or byte length of
    strings, the bit count of BIT. ``scale`` is the digits after the point, or of the fraction of a second. ``elements``
    are the members of ENUM and SET in definition order; empty when unknown (older TiCDC does not write them).
    """

    kind: TypeKind
    unsigned: bool = False
    length: int | None = None
    scale: int | None = None
    elements: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.kind} UNSIGNED" if self.unsigned else str(self.kind)


def arrow_type(column_type: ColumnType) -> pa.DataType:
    """The canonical Arrow type of a column's values: int64, uint64, float32, float64, binary or string."""
    kind = column_type.kind
    if kind is TypeKind.BIT or (kind is TypeKind.BIGINT and column_type.unsigned):
        return pa.uint64()
    if kind in INTEGER_KINDS or kind is TypeKind.YEAR:
        return pa.int64()
    if kind is TypeKind.FLOAT:
        return pa.float32()
    if kind is TypeKind.DOUBLE:
        return pa.float64()
    if kind in BINARY_KINDS:
        return pa.binary()
    return pa.string()
