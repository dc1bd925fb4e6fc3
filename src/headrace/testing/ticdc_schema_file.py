"""Schema files as TiCDC writes them: the text, the checksum and the name.

TiCDC documentation, "Replicate Data to Storage Services", section "Schema data". The text is that of Go's
``json.MarshalIndent`` with four spaces; the checksum is a CRC-32 over a similar text without version and statement.
"""

from __future__ import annotations

import json
import zlib
from typing import Any

from headrace.model.table import Column, TableId, TableSchema
from headrace.model.types import ColumnType, TypeKind, TypeMap, each

_GO_ESCAPES = str.maketrans(
    {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\N{LINE SEPARATOR}": "\\u2028", "\N{PARAGRAPH SEPARATOR}": "\\u2029"}
)
_ALWAYS_UNSIGNED = frozenset({TypeKind.BIT, TypeKind.YEAR})
_WITHOUT_LENGTH = frozenset(
    {TypeKind.ENUM, TypeKind.SET, TypeKind.JSON, TypeKind.VECTOR, TypeKind.DATE, TypeKind.TIME}
    | {TypeKind.DATETIME, TypeKind.TIMESTAMP}
)
# TiDB's display lengths for types whose statement gives none: signed, unsigned.
_DEFAULT_LENGTHS: TypeMap[tuple[int, int] | None] = TypeMap(
    "display lengths",
    each({TypeKind.VARCHAR, TypeKind.VAR_STRING, TypeKind.VARBINARY}, None),  # their statements name one
    each(_WITHOUT_LENGTH, None),
    {
        TypeKind.TINYINT: (4, 3),
        TypeKind.SMALLINT: (6, 5),
        TypeKind.MEDIUMINT: (9, 8),
        TypeKind.INT: (11, 10),
        TypeKind.BIGINT: (20, 20),
        TypeKind.BIT: (1, 1),
        TypeKind.YEAR: (4, 4),
        TypeKind.FLOAT: (12, 12),
        TypeKind.DOUBLE: (22, 22),
        TypeKind.DECIMAL: (10, 10),
        TypeKind.CHAR: (1, 1),
        TypeKind.BINARY: (1, 1),
        TypeKind.TINYTEXT: (255, 255),
        TypeKind.TINYBLOB: (255, 255),
        TypeKind.TEXT: (65535, 65535),
        TypeKind.BLOB: (65535, 65535),
        TypeKind.MEDIUMTEXT: (16777215, 16777215),
        TypeKind.MEDIUMBLOB: (16777215, 16777215),
        TypeKind.LONGTEXT: (4294967295, 4294967295),
        TypeKind.LONGBLOB: (4294967295, 4294967295),
    },
)


def display_length(column_type: ColumnType) -> int | None:
    """The ``ColumnPrecision`` of a type, with TiDB's default if the type gives no length."""
    if column_type.kind in _WITHOUT_LENGTH:
        return None
    if column_type.length is not None:
        return column_type.length
    lengths = _DEFAULT_LENGTHS[column_type.kind]
    return lengths[column_type.unsigned] if lengths else None


def schema_text(
    table_id: TableId, version: int, schema: TableSchema | None, statement: str, type_code: int, *, column_id: bool
) -> str:
    """The content of a schema file. ``schema`` is ``None`` for a database-level file. ``column_id``: with ``ColumnId``."""
    columns = None if schema is None else [_column_object(column, column_id=column_id) for column in schema.columns]
    return _go_json(
        {
            "Table": table_id.table,
            "Schema": table_id.database,
            "Version": 1,
            "TableVersion": version,
            "Query": statement,
            "Type": type_code,
            "TableColumns": columns,
            "TableColumnsTotal": len(columns or ()),
        }
    )


def legacy_schema_text(table_id: TableId, version: int, schema: TableSchema, statement: str) -> str:
    """The content of the old ``schema.json``, as the consumer guide shows it: ``ColumnLength``, the total as text, no ``Type``."""
    columns = [_column_object(column, column_id=False) for column in schema.columns]
    renamed = [{("ColumnLength" if key == "ColumnPrecision" else key): value for key, value in c.items()} for c in columns]
    return _go_json(
        {
            "Table": table_id.table,
            "Schema": table_id.database,
            "Version": 1,
            "TableVersion": version,
            "Query": statement,
            "TableColumns": renamed,
            "TableColumnsTotal": str(len(columns)),
        }
    )


def schema_checksum(table_id: TableId, schema: TableSchema | None, *, column_id: bool) -> int:
    """The checksum in a schema file's name: over columns sorted by name, format version 0, without statement and table version."""
    columns = [] if schema is None else [_column_object(column, column_id=column_id) for column in schema.columns]
    columns.sort(key=lambda column: str(column["ColumnName"]).encode())
    text = _go_json(
        {
            "Table": table_id.table,
            "Schema": table_id.database,
            "Version": 0,
            "TableColumns": columns,
            "TableColumnsTotal": len(columns),
        }
    )
    return zlib.crc32(text.encode())


def schema_file_name(version: int, checksum: int) -> str:
    return f"schema_{version}_{checksum:010d}.json"


def _column_object(column: Column, *, column_id: bool) -> dict[str, Any]:
    kind = column.type.kind
    unsigned = column.type.unsigned or kind in _ALWAYS_UNSIGNED
    length = display_length(column.type)
    # DECIMAL always has a scale here; other types only if it is neither absent nor zero.
    scale = (column.type.scale or 0) if kind is TypeKind.DECIMAL else (column.type.scale or None)
    attributes = {
        "ColumnId": column.column_id if column_id else None,
        "ColumnName": column.name,
        "ColumnType": f"{kind} UNSIGNED" if unsigned else str(kind),
        "ColumnDefault": column.default,
        "ColumnPrecision": None if length is None else str(length),
        "ColumnScale": None if scale is None else str(scale),
        "ColumnNullable": None if column.nullable else "false",
        "ColumnIsPk": "true" if column.primary_key else None,
        "ColumnElems": list(column.type.elements) or None,
    }
    return {key: value for key, value in attributes.items() if value is not None}


def _go_json(value: dict[str, Any]) -> str:
    return json.dumps(value, indent=4, ensure_ascii=False).translate(_GO_ESCAPES)
