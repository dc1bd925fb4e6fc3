"""TiCDC's canal-JSON lines, written row by row and by column (TiCDC documentation, "TiCDC Canal-JSON Protocol")."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable

import pyarrow as pa
import pyarrow.compute as pc

from headrace.model.table import Column, TableSchema
from headrace.model.tso import tso_to_ms
from headrace.model.types import BINARY_KINDS, INTEGER_KINDS, ColumnType, TypeKind, TypeMap, each
from headrace.testing.ticdc_csv import Row, text_bytes
from headrace.testing.ticdc_options import ChangefeedOptions
from headrace.testing.ticdc_schema_file import display_length
from headrace.testing.ticdc_values import as_float, plain_float, timestamp_in_zone

_JAVA_TYPES = TypeMap(
    "types of Java",
    each(BINARY_KINDS, 2004),
    {
        TypeKind.TINYINT: -6,
        TypeKind.SMALLINT: 5,
        TypeKind.MEDIUMINT: 4,
        TypeKind.INT: 4,
        TypeKind.BIGINT: -5,
        TypeKind.BIT: -7,
        TypeKind.YEAR: 12,
        TypeKind.FLOAT: 7,
        TypeKind.DOUBLE: 8,
        TypeKind.DECIMAL: 3,
        TypeKind.CHAR: 1,
        TypeKind.VARCHAR: 12,
        TypeKind.VAR_STRING: 12,
        TypeKind.TINYTEXT: 2005,
        TypeKind.TEXT: 2005,
        TypeKind.MEDIUMTEXT: 2005,
        TypeKind.LONGTEXT: 2005,
        TypeKind.DATE: 91,
        TypeKind.TIME: 92,
        TypeKind.DATETIME: 93,
        TypeKind.TIMESTAMP: 93,
        TypeKind.ENUM: 4,
        TypeKind.SET: -7,
        TypeKind.JSON: 12,
        TypeKind.VECTOR: 12,
    },
)
# An unsigned value above the first number gets the second type, Java's next larger one.
_PROMOTIONS = {
    TypeKind.TINYINT: ((1 << 7) - 1, 5),
    TypeKind.SMALLINT: ((1 << 15) - 1, 4),
    TypeKind.INT: ((1 << 31) - 1, -5),
    TypeKind.BIGINT: ((1 << 63) - 1, 3),
}
_FLOATS = frozenset({TypeKind.FLOAT, TypeKind.DOUBLE})
_INTEGERS = INTEGER_KINDS | {TypeKind.BIT, TypeKind.YEAR}
_WITH_LENGTH = INTEGER_KINDS | {TypeKind.BIT, TypeKind.YEAR, TypeKind.CHAR, TypeKind.VARCHAR, TypeKind.BINARY, TypeKind.VARBINARY}
_ESCAPES = str.maketrans(
    {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\N{LINE SEPARATOR}": "\\u2028", "\N{PARAGRAPH SEPARATOR}": "\\u2029"}
)
_SPECIAL = "[\\x00-\\x1f<>&\N{LINE SEPARATOR}\N{PARAGRAPH SEPARATOR}]"


class CanalEncoder:
    """Writes the changes of one table version. Rows hold canonical values by column name; an absent column is NULL."""

    def __init__(self, options: ChangefeedOptions, schema: TableSchema) -> None:
        self._options = options
        self._columns = schema.row_columns
        handle = frozenset(schema.handle_key)
        self._handle_columns = tuple(column for column in self._columns if column.name in handle)
        keys = [column.name for column in schema.columns if column.primary_key]
        table = schema.table_id
        self._start = f'{{"id":0,"database":{_quoted(table.database)},"table":{_quoted(table.table)},"pkNames":[{_list(keys)}],'

    def header(self) -> str:
        return ""

    def change(self, commit_ts: int, before: Row | None, after: Row | None) -> str:
        """The line of one change."""
        if after is not None:
            operation, row, columns = "INSERT" if before is None else "UPDATE", after, self._columns
        elif before is not None:
            handle_only = self._options.delete_only_output_handle_key_columns
            operation, row, columns = "DELETE", before, self._handle_columns if handle_only else self._columns
        else:
            raise ValueError("a change has an old row, a new row or both")
        old = "null" if before is None or after is None else f"[{self._object(before, self._old_columns(before, after))}]"
        return (
            self._start
            + f'"isDdl":false,"type":"{operation}","es":{tso_to_ms(commit_ts)},"ts":{_now()},"sql":"",'
            + f'"sqlType":{{{_members((c.name, str(_java_type(c.type, row.get(c.name)))) for c in columns)}}},'
            + f'"mysqlType":{{{_members((c.name, _quoted(self._mysql_type(c.type))) for c in columns)}}},'
            + f'"old":{old},"data":[{self._object(row, columns)}]'
            + (f',"_tidb":{{"commitTs":{commit_ts}}}' if self._options.enable_tidb_extension else "")
            + "}"
            + self._options.terminator
        )

    def _old_columns(self, before: Row, after: Row) -> tuple[Column, ...]:
        if not (self._options.only_output_updated_columns or self._options.content_compatible):
            return self._columns
        return tuple(column for column in self._columns if before.get(column.name) != after.get(column.name))

    def _object(self, row: Row, columns: Iterable[Column]) -> str:
        return f"{{{_members((column.name, self._value(column.type, row.get(column.name))) for column in columns)}}}"

    def _value(self, column_type: ColumnType, value: object) -> str:
        return "null" if value is None else _quoted(_value_text(column_type, value, self._options))

    def _mysql_type(self, column_type: ColumnType) -> str:
        return _full_type(column_type) if self._options.content_compatible else _basic_type(column_type)

    def table(self, operations: pa.Array, commit_ts: pa.Array, rows: pa.Table) -> bytes:
        """Many lines at once, by column: operations ``I`` and ``D``, without old values; ``rows`` in canonical types."""
        if pc.any(pc.equal(operations, "U")).as_py():
            raise ValueError("canal-JSON updates need an old row: write them row by row")
        names = pc.if_else(pc.equal(operations, "I"), "INSERT", "DELETE")
        types = "".join(
            [
                f',"ts":{_now()},"sql":"","sqlType":{{',
                # Promotion by value is left out here: readers take the types from the schema, never from these.
                _members((c.name, str(_java_type(c.type, None))) for c in self._columns),
                '},"mysqlType":{',
                _members((c.name, _quoted(self._mysql_type(c.type))) for c in self._columns),
                '},"old":null,"data":[{',
            ]
        )
        milliseconds = pc.shift_right(commit_ts, pa.scalar(18, pa.int64())).cast(pa.string())
        parts: list[pa.Array | str] = [self._start, '"isDdl":false,"type":"', names, '","es":', milliseconds, types]
        for index, column in enumerate(self._columns):
            parts += [("," if index else "") + _quoted(column.name) + ":", self._column(column, rows)]
        parts.append("}]")
        if self._options.enable_tidb_extension:
            parts += [',"_tidb":{"commitTs":', commit_ts.cast(pa.string()), "}"]
        parts.append("}" + self._options.terminator)
        arrays = [pa.scalar(p, pa.large_string()) if isinstance(p, str) else p.cast(pa.large_string()) for p in parts]
        return text_bytes(pc.binary_join_element_wise(*arrays, pa.scalar("", pa.large_string())))

    def _column(self, column: Column, rows: pa.Table) -> pa.Array:
        values = rows.column(column.name).combine_chunks()
        kind = column.type.kind
        if kind in _INTEGERS:
            quoted = pc.binary_join_element_wise('"', values.cast(pa.string()), '"', "")
            return pc.fill_null(quoted, "null")
        plain = pa.types.is_string(values.type) and kind not in (TypeKind.ENUM, TypeKind.SET, TypeKind.TIMESTAMP)
        if not plain or pc.any(pc.match_substring_regex(values, _SPECIAL)).as_py():
            return pa.array([self._value(column.type, value) for value in values.to_pylist()], pa.string())
        escaped = pc.replace_substring(pc.replace_substring(values, "\\", "\\\\"), '"', '\\"')
        return pc.fill_null(pc.binary_join_element_wise('"', escaped, '"', ""), "null")


def _now() -> int:
    return time.time_ns() // 1_000_000


def _members(members: Iterable[tuple[str, str]]) -> str:
    return ",".join(f"{_quoted(name)}:{value}" for name, value in members)


def _list(texts: Iterable[str]) -> str:
    return ",".join(map(_quoted, texts))


def _quoted(text: str) -> str:
    # Go's writer has short forms for fewer control characters than Python's.
    quoted = json.dumps(text, ensure_ascii=False).translate(_ESCAPES)
    if "\b" in text or "\f" in text:
        pieces = quoted.split("\\\\")
        quoted = "\\\\".join(piece.replace("\\b", "\\u0008").replace("\\f", "\\u000c") for piece in pieces)
    return quoted


def _value_text(column_type: ColumnType, value: object, options: ChangefeedOptions) -> str:
    kind = column_type.kind
    if kind in _FLOATS:
        return plain_float(as_float(value), kind is TypeKind.FLOAT)
    if kind in BINARY_KINDS:
        if not isinstance(value, bytes):
            raise TypeError(f"a binary column holds bytes, not {type(value).__name__}")
        return value.decode("latin-1")
    text = str(value)
    if kind is TypeKind.TIMESTAMP:
        return timestamp_in_zone(text, options.zone)
    if kind is TypeKind.ENUM:
        return str(column_type.elements.index(text) + 1 if text else 0)
    if kind is TypeKind.SET:
        chosen = text.split(",") if text else []
        return str(sum(1 << column_type.elements.index(member) for member in chosen))
    return text


def _java_type(column_type: ColumnType, value: object) -> int:
    promotion = _PROMOTIONS.get(column_type.kind)
    if promotion and column_type.unsigned and isinstance(value, int) and value > promotion[0]:
        return promotion[1]
    return _JAVA_TYPES[column_type.kind]


def _basic_type(column_type: ColumnType) -> str:
    kind = column_type.kind
    unsigned = column_type.unsigned and kind not in (TypeKind.BIT, TypeKind.YEAR)
    return kind.lower() + (" unsigned" if unsigned else "")


def _full_type(column_type: ColumnType) -> str:
    kind, scale = column_type.kind, column_type.scale
    word, *rest = _basic_type(column_type).split(" ")
    if kind in (TypeKind.ENUM, TypeKind.SET):
        members = ",".join("'" + element.replace("'", "''") + "'" for element in column_type.elements)
        return f"{word}({members})"
    inside = ""
    if kind is TypeKind.DECIMAL:
        inside = f"{display_length(column_type)},{scale or 0}"
    elif kind in _FLOATS and scale:
        inside = f"{display_length(column_type)},{scale}"
    elif kind in (TypeKind.TIME, TypeKind.DATETIME, TypeKind.TIMESTAMP) and scale:
        inside = str(scale)
    elif kind is TypeKind.VECTOR and column_type.length:
        inside = str(column_type.length)
    elif kind in _WITH_LENGTH:
        inside = str(display_length(column_type))
    return " ".join([f"{word}({inside})" if inside else word, *rest])
