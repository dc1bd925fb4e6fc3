"""Writes TiCDC's schema files: the reverse of ``schema_file``.

Format: TiCDC documentation, "Replicate Data to Storage Services", section "Schema data". The text is that of Go's
``json.MarshalIndent`` with four spaces. The checksum in the file's name is a CRC-32 over a similar text that has neither statement
nor table version, with the columns sorted by name.
"""

from __future__ import annotations

import json
import re
import zlib
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from headrace.ddl.lexer import NO_SYNTAX, unescaped
from headrace.model.table import Column, TableId, TableSchema
from headrace.model.types import ColumnType, TypeKind

_HTML = str.maketrans({mark: f"\\u{ord(mark):04x}" for mark in "<>&\u2028\u2029"})
_NO_SYNTAX = re.compile(NO_SYNTAX, re.DOTALL)
_WITHOUT_LENGTH = frozenset(
    {TypeKind.ENUM, TypeKind.SET, TypeKind.JSON, TypeKind.VECTOR, TypeKind.DATE, TypeKind.TIME}
    | {TypeKind.DATETIME, TypeKind.TIMESTAMP}
)
_ALWAYS_UNSIGNED = frozenset({TypeKind.BIT, TypeKind.YEAR})
_LENGTHS = {
    TypeKind.TINYINT: 4,
    TypeKind.SMALLINT: 6,
    TypeKind.MEDIUMINT: 9,
    TypeKind.INT: 11,
    TypeKind.BIGINT: 20,
    TypeKind.BIT: 1,
    TypeKind.YEAR: 4,
    TypeKind.FLOAT: 12,
    TypeKind.DOUBLE: 22,
    TypeKind.DECIMAL: 10,
    TypeKind.CHAR: 1,
    TypeKind.BINARY: 1,
    **dict.fromkeys((TypeKind.TINYTEXT, TypeKind.TINYBLOB), (1 << 8) - 1),
    **dict.fromkeys((TypeKind.TEXT, TypeKind.BLOB), (1 << 16) - 1),
    **dict.fromkeys((TypeKind.MEDIUMTEXT, TypeKind.MEDIUMBLOB), (1 << 24) - 1),
    **dict.fromkeys((TypeKind.LONGTEXT, TypeKind.LONGBLOB), (1 << 32) - 1),
}
"""The lengths that TiDB gives to types whose definition names none. An unsigned integer needs no place for its sign."""
_SHORTER_UNSIGNED = frozenset({TypeKind.TINYINT, TypeKind.SMALLINT, TypeKind.MEDIUMINT, TypeKind.INT})


@dataclass(frozen=True)
class SchemaFileText:
    """A schema file as text. ``schema`` is ``None`` for a file of a database, whose ``table_id`` has no table."""

    table_id: TableId
    version: int
    """The table version (TSO): the commit ts of the schema change."""
    schema: TableSchema | None
    statement: str = ""
    """As servers read it, with escapes in its strings. Empty in a file that only describes a shape."""
    type_code: int = 0
    """TiDB's DDL action code."""
    column_ids: bool = False
    """Whether columns have ``ColumnId`` (``output-column-id``), where it is known."""

    @cached_property
    def text(self) -> str:
        """The content of the file."""
        return _json({**self._names(1), "TableVersion": self.version, **self._statement(), **self._columns(in_order=True)})

    @cached_property
    def checksum(self) -> int:
        """The checksum in the file's name. It does not depend on the order of the columns."""
        return zlib.crc32(_json({**self._names(0), **self._columns(in_order=False)}).encode())

    @property
    def name(self) -> str:
        return f"schema_{self.version}_{self.checksum:010d}.json"

    def _names(self, version: int) -> dict[str, Any]:
        return {"Table": self.table_id.table, "Schema": self.table_id.database, "Version": version}

    def _statement(self) -> dict[str, Any]:
        return {"Query": without_escapes(self.statement), "Type": self.type_code}

    def _columns(self, *, in_order: bool) -> dict[str, Any]:
        columns = [_column(column, self.column_ids) for column in self.schema.columns] if self.schema else []
        if not in_order:
            columns.sort(key=lambda column: str(column["ColumnName"]).encode())
        listed = columns if self.schema is not None or not in_order else None
        return {"TableColumns": listed, "TableColumnsTotal": len(columns)}


def without_escapes(statement: str) -> str:
    """The statement as TiCDC writes it: in its strings a backslash is a plain character, and a quote is doubled. Without comments.

    The reverse of ``schema_file.with_escapes``, which would take an apostrophe in a comment for the beginning of a string.
    """
    return _NO_SYNTAX.sub(lambda found: _told(found[0]), statement).strip()


def _told(piece: str) -> str:
    if piece[0] in "/-#":
        return " "
    if piece[0] == "`":
        return piece
    return "'" + unescaped(piece).replace("'", "''") + "'"


def _column(column: Column, column_ids: bool) -> dict[str, Any]:
    own = column.type
    unsigned = own.unsigned or own.kind in _ALWAYS_UNSIGNED
    length = _length(own)
    # A DECIMAL always has a scale; other types only if it is not zero.
    scale = (own.scale or 0) if own.kind is TypeKind.DECIMAL else (own.scale or None)
    attributes = {
        "ColumnId": column.column_id if column_ids else None,
        "ColumnName": column.name,
        "ColumnType": f"{own.kind} UNSIGNED" if unsigned else str(own.kind),
        "ColumnDefault": column.default,
        "ColumnPrecision": None if length is None else str(length),
        "ColumnScale": None if scale is None else str(scale),
        "ColumnNullable": None if column.nullable else "false",
        "ColumnIsPk": "true" if column.primary_key else None,
        "ColumnElems": list(own.elements) or None,
    }
    return {name: value for name, value in attributes.items() if value is not None}


def _length(own: ColumnType) -> int | None:
    if own.kind in _WITHOUT_LENGTH or own.length is not None:
        return None if own.kind in _WITHOUT_LENGTH else own.length
    length = _LENGTHS.get(own.kind)
    return length - 1 if length is not None and own.unsigned and own.kind in _SHORTER_UNSIGNED else length


def _json(document: dict[str, Any]) -> str:
    return json.dumps(document, indent=4, ensure_ascii=False).translate(_HTML)
