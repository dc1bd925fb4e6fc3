"""TiCDC's CSV records, written row by row and by column (TiCDC documentation, "TiCDC CSV Protocol")."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.model.table import TableSchema
from headrace.model.types import BINARY_KINDS, INTEGER_KINDS, ColumnType, TypeKind
from headrace.testing.ticdc_options import ChangefeedOptions
from headrace.testing.ticdc_values import as_float, exponent_float, timestamp_in_zone

_FLOATS = frozenset({TypeKind.FLOAT, TypeKind.DOUBLE})
_UNQUOTED = INTEGER_KINDS | _FLOATS | {TypeKind.BIT, TypeKind.YEAR}
_META_NAMES = ("ticdc-meta$operation", "ticdc-meta$table", "ticdc-meta$schema")

Row = Mapping[str, object]


class CsvEncoder:
    """Writes the changes of one table version. Rows hold canonical values by column name; an absent column is NULL."""

    def __init__(self, options: ChangefeedOptions, schema: TableSchema) -> None:
        self._options = options
        self._columns = schema.row_columns
        self._fields = [_field(column.type, options) for column in self._columns]
        table = schema.table_id
        self._names = [_text(table.table, options), _text(table.database, options)]

    def header(self) -> str:
        """The first line of every file; empty unless ``output-field-header`` is on."""
        options = self._options
        if not options.output_field_header:
            return ""
        names = [*_META_NAMES]
        if options.include_commit_ts:
            names.append("ticdc-meta$commit-ts")
        if options.output_old_value:
            names.append("ticdc-meta$is-update")
        return options.delimiter.join([*names, *(column.name for column in self._columns)]) + options.terminator

    def change(self, commit_ts: int, before: Row | None, after: Row | None) -> str:
        """The record of one change, or the two records of an update with its old value."""
        if before is None and after is not None:
            return self._record("I", commit_ts, False, after)
        if after is None and before is not None:
            return self._record("D", commit_ts, False, before)
        if before is None or after is None:
            raise ValueError("a change has an old row, a new row or both")
        if not self._options.output_old_value:
            return self._record("U", commit_ts, False, after)
        return self._record("D", commit_ts, True, before) + self._record("I", commit_ts, True, after)

    def _record(self, operation: str, commit_ts: int, is_update: bool, row: Row) -> str:
        options = self._options
        fields = [_text(operation, options), *self._names]
        if options.include_commit_ts:
            fields.append(str(commit_ts))
        if options.output_old_value:
            fields.append("true" if is_update else "false")
        for column, field in zip(self._columns, self._fields, strict=True):
            value = row.get(column.name)
            fields.append(options.null if value is None else field(value))
        return options.delimiter.join(fields) + options.terminator

    def table(self, operations: pa.Array, commit_ts: pa.Array, rows: pa.Table) -> bytes:
        """Many records at once, by column: operations ``I``, ``U`` and ``D`` without old values; ``rows`` in canonical types."""
        options = self._options
        meta: list[pa.Array | str] = [_text_array(operations, options), *self._names]
        if options.include_commit_ts:
            meta.append(commit_ts.cast(pa.string()))
        if options.output_old_value:
            meta.append("false")
        fields = [self._column(index, rows) for index in range(len(self._columns))]
        lines = pc.binary_join_element_wise(
            *[_large(field) for field in (*meta, *fields)],
            _large(options.delimiter),
            null_handling="replace",
            null_replacement=options.null,
        )
        ended = pc.binary_join_element_wise(lines, _large(options.terminator), _large(""))
        return text_bytes(ended)

    def _column(self, index: int, rows: pa.Table) -> pa.Array:
        column = self._columns[index]
        values = rows.column(column.name).combine_chunks()
        kind = column.type.kind
        by_row = kind in BINARY_KINDS or kind in _FLOATS or (kind is TypeKind.TIMESTAMP and self._options.time_zone != "UTC")
        if by_row:
            field = self._fields[index]
            return pa.array([None if value is None else field(value) for value in values.to_pylist()], pa.string())
        if kind in _UNQUOTED:
            return values.cast(pa.string())
        return _text_array(values, self._options)


def text_bytes(lines: pa.Array) -> bytes:
    """All strings of a large string array without nulls, concatenated, in UTF-8."""
    _, offsets, data = lines.buffers()
    bounds = np.frombuffer(offsets, np.int64)
    first, last = bounds[lines.offset], bounds[lines.offset + len(lines)]
    return bytes(memoryview(data)[first:last]) if data is not None else b""


def _large(value: pa.Array | str) -> pa.Array | pa.Scalar:
    # A file of 64 MiB fits into a small string array; a bulk of a million rows may not.
    return pa.scalar(value, pa.large_string()) if isinstance(value, str) else value.cast(pa.large_string())


def _field(column_type: ColumnType, options: ChangefeedOptions) -> Callable[[object], str]:
    kind = column_type.kind
    if kind in _FLOATS:
        return lambda value: exponent_float(as_float(value), kind is TypeKind.FLOAT)
    if kind in _UNQUOTED:
        return str
    if kind in BINARY_KINDS:
        return lambda value: _text(_encoded(value, options), options)
    if kind is TypeKind.TIMESTAMP:
        return lambda value: _text(timestamp_in_zone(str(value), options.zone), options)
    return lambda value: _text(str(value), options)


def _encoded(value: object, options: ChangefeedOptions) -> str:
    if not isinstance(value, bytes):
        raise TypeError(f"a binary column holds bytes, not {type(value).__name__}")
    return value.hex() if options.binary_encoding_method == "hex" else base64.b64encode(value).decode("ascii")


def _text(text: str, options: ChangefeedOptions) -> str:
    quote = options.quote
    if quote:
        return quote + text.replace(quote, quote + quote) + quote
    for found, written in _escapes(options):
        text = text.replace(found, written)
    return text


def _text_array(texts: pa.Array, options: ChangefeedOptions) -> pa.Array:
    quote = options.quote
    if quote:
        doubled = pc.replace_substring(texts, quote, quote + quote)
        return pc.binary_join_element_wise(quote, doubled, quote, "")
    for found, written in _escapes(options):
        texts = pc.replace_substring(texts, found, written)
    return texts


def _escapes(options: ChangefeedOptions) -> list[tuple[str, str]]:
    delimiter = "".join("\\" + character for character in options.delimiter)
    return [("\\", "\\\\"), ("\r", "\\r"), ("\n", "\\n"), (options.delimiter, delimiter)]
