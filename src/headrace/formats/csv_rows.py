"""Converts TiCDC's CSV fields, a column at a time, to the columns of a block."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.formats.csv_layout import CsvLayout, CsvOptions
from headrace.formats.values import WRITTEN, Written, binary_from_base64, binary_from_hex, canonical_from_text
from headrace.model.block import META_FIELDS
from headrace.model.events import RowKind
from headrace.model.table import Column
from headrace.model.types import arrow_type

_OPERATIONS = ("I", "U", "D")
_BOOLEANS = ("false", "true")
# By the place in _OPERATIONS: first for rows that stand alone, then for rows of an update that comes as old and new row.
_KINDS = np.array(
    [
        RowKind.INSERT,
        RowKind.UPDATE_AFTER,
        RowKind.DELETE,
        RowKind.UPDATE_AFTER,
        RowKind.UPDATE_AFTER,
        RowKind.UPDATE_BEFORE,
    ],
    np.int8,
)


_BLANKS = " \t"
"""The characters that Arrow's reader ignores around a number. They are also ignored when records are decoded one by one."""


def convert_field(fields: Mapping[int, pa.Array], place: int, layout: CsvLayout, options: CsvOptions) -> pa.Array:
    """The values of one field. Raises ValueError for an invalid value.

    ``fields`` are binary as in the file but unescaped, or already typed by Arrow's reader.
    """
    values = fields[place]
    if place == 0:
        return _index_in(values, _OPERATIONS)
    if place == layout.is_update:
        return _index_in(values, _BOOLEANS)
    if place == layout.commit_ts:
        commit_ts = _typed(values, pa.int64())
        if commit_ts.null_count or (pc.min(commit_ts).as_py() or 0) < 0:
            raise ValueError("a commit ts is NULL or negative")
        return commit_ts
    return _convert_column(values, layout.column(place), options)


def build_batch(fields: Mapping[int, pa.Array], layout: CsvLayout, options: CsvOptions, number: int) -> pa.RecordBatch:
    """The rows as a batch of a block, ``seq`` counting from ``number``. Raises ValueError when some value does not fit."""
    operation = convert_field(fields, 0, layout, options).to_numpy()
    rows = len(operation)
    if layout.is_update is not None:
        operation = operation + len(_OPERATIONS) * convert_field(fields, layout.is_update, layout, options).to_numpy()
    if layout.commit_ts is not None:
        commit_ts = convert_field(fields, layout.commit_ts, layout, options)
    else:
        commit_ts = pa.array(np.zeros(rows, np.int64))
    arrays = [pa.array(_KINDS[operation]), commit_ts, pa.array(np.arange(number, number + rows, dtype=np.int64))]
    arrays += [convert_field(fields, place, layout, options) for place, _ in layout.columns]
    schema = pa.schema([*META_FIELDS, *(pa.field(column.name, arrow_type(column.type)) for _, column in layout.columns)])
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


@cache
def _array(texts: tuple[str, ...]) -> pa.Array:
    # Not at import: pa.array loads pandas, which takes longer than all other imports of a run that has nothing to do.
    return pa.array(texts)


def _index_in(values: pa.Array, known: tuple[str, ...]) -> pa.Array:
    places = pc.index_in(_typed(values, pa.string()), _array(known))
    if places.null_count:
        raise ValueError("a value is not known")
    return places


def _convert_column(values: pa.Array, column: Column, options: CsvOptions) -> pa.Array:
    if WRITTEN[column.type.kind] is Written.CODE:
        return binary_from_hex(values) if options.binary_encoding == "hex" else binary_from_base64(values)
    if pa.types.is_binary(values.type):
        values = pc.cast(values, pa.string())
        if WRITTEN[column.type.kind] is Written.NUMBER:
            values = pc.utf8_trim(values, _BLANKS)
    if pa.types.is_string(values.type):
        return canonical_from_text(values, column.type, options.time_zone)
    return values


def _typed(values: pa.Array, wanted: pa.DataType) -> pa.Array:
    if values.type == wanted:
        return values
    text = pc.cast(values, pa.string())
    return text if wanted == pa.string() else pc.cast(pc.utf8_trim(text, _BLANKS), wanted)
