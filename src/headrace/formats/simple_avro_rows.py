"""Reads the rows of TiCDC's Simple Protocol with the encoding Avro: messages, each of one change.

Format: TiCDC documentation, "TiCDC Simple Protocol". ``data`` and ``old`` are maps from the name of a column to its value, in any
order. The type of the column decides which type of the union the value has.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.formats.avro.columns import BadValueError, read_columns
from headrace.formats.base import DecodeError, SchemaMismatchError
from headrace.formats.row_images import Change, Images, handle_names
from headrace.formats.simple_avro import HEAD, row_schema
from headrace.formats.simple_messages import ROW_TYPES
from headrace.formats.simple_rows import moments_to_utc
from headrace.formats.values import canonical_from_text
from headrace.model.table import Column, TableSchema, folded_name
from headrace.model.types import (
    BINARY_KINDS,
    CHARACTER_KINDS,
    INTEGER_KINDS,
    TypeKind,
    TypeMap,
    arrow_type,
    each,
)

_SHOWN = 100
_LONG, _FLOAT, _DOUBLE, _TEXT, _BYTES, _MOMENT = "long", "float", "double", "string", "bytes", "Timestamp"
_WRAPPED = "UnsignedBigint"
"""A BIGINT UNSIGNED as the signed number with the same 64 bits."""
_BRANCHES = TypeMap(
    "types of the union of the Simple Protocol",
    each(INTEGER_KINDS | {TypeKind.YEAR, TypeKind.ENUM, TypeKind.SET}, _LONG),
    each(CHARACTER_KINDS | {TypeKind.DECIMAL, TypeKind.JSON, TypeKind.VECTOR, TypeKind.BIT}, _TEXT),
    each({TypeKind.DATE, TypeKind.TIME, TypeKind.DATETIME}, _TEXT),
    each(BINARY_KINDS, _BYTES),
    {TypeKind.FLOAT: _FLOAT, TypeKind.DOUBLE: _DOUBLE, TypeKind.TIMESTAMP: _MOMENT},
)
_OF_BRANCH = {
    _LONG: pa.int64(),
    _FLOAT: pa.float32(),
    _DOUBLE: pa.float64(),
    _TEXT: pa.string(),
    _BYTES: pa.binary(),
    _MOMENT: pa.struct([("location", pa.string()), ("value", pa.string())]),
    _WRAPPED: pa.uint64(),
}


def branch_of(column: Column) -> str:
    """The type of the union that the values of a column have."""
    is_wrapped = column.type.kind is TypeKind.BIGINT and column.type.unsigned
    return _WRAPPED if is_wrapped else _BRANCHES[column.type.kind]


@dataclass(frozen=True)
class SimpleAvroRowReader:
    """A :class:`headrace.formats.row_images.LineReader` whose lines are messages."""

    schema: TableSchema

    @cached_property
    def _row(self) -> pa.DataType:
        return pa.struct([pa.field(column.name, _OF_BRANCH[branch_of(column)]) for column in self.schema.row_columns])

    @cached_property
    def single_schema(self) -> pa.Schema:
        """See ``LineReader.single_schema``."""
        return pa.schema([("type", pa.string()), ("data", self._row), ("old", self._row)])

    def parse(self, lines: Sequence[bytes]) -> pa.RecordBatch:
        """See ``LineReader.parse``."""
        try:
            return self._parsed(lines)
        except (BadValueError, DecodeError):
            raise ValueError("a message has to be looked at by itself") from None

    def parse_one(self, line: bytes) -> dict[str, object]:
        """See ``LineReader.parse_one``."""
        try:
            (row,) = self._parsed([line]).to_pylist()
        except BadValueError as error:
            raise DecodeError(f"The message cannot be read: in {error.field}, {error.reason}.") from None
        return dict(row)

    def _parsed(self, lines: Sequence[bytes]) -> pa.RecordBatch:
        """Raises BadValueError, and DecodeError for any of the lines."""
        found = read_columns(row_schema(), lines, skip=HEAD, wanted={"type", "data", "old"})
        types, data, old = (found.field(name) for name in ("type", "data", "old"))
        is_deletion = _are(types, Change.DELETE)
        for side, values, absent in (("data", data, is_deletion), ("old", old, _are(types, Change.INSERT))):
            wrong = np.flatnonzero(values.is_null().to_numpy(zero_copy_only=False) != absent)
            if len(wrong):
                change = types[int(wrong[0])].as_py()
                raise DecodeError(f"The message is a change of the kind {change}, which does not fit what it has as {side}.")
        rows = [self._columns(values, is_deletion) for values in (data, old)]
        return pa.RecordBatch.from_arrays([types, *rows], schema=self.single_schema)

    def _columns(self, maps: pa.Array, is_deletion: npt.NDArray[np.bool_]) -> pa.Array:
        """The maps as a struct with a field for each column. Raises DecodeError."""
        absent = maps.is_null().to_numpy(zero_copy_only=False)
        lengths = pc.fill_null(pc.list_value_length(maps), 0).to_numpy()
        entries = maps.flatten()
        column_of = self._numbers(entries.field("key"))
        row_of = np.repeat(np.arange(len(maps)), lengths)
        order = np.argsort(column_of, kind="stable")
        bounds = np.searchsorted(column_of[order], np.arange(len(self.schema.row_columns) + 1))
        values = entries.field("value")
        keys = handle_names(self.schema)
        columns = []
        for number, column in enumerate(self.schema.row_columns):
            of_column = order[bounds[number] : bounds[number + 1]]
            place = np.full(len(maps), -1, np.int64)
            place[row_of[of_column]] = of_column
            is_key = folded_name(column.name) in keys
            lacking = (place < 0) & ~absent & (is_key | ~is_deletion)
            if lacking.any():
                raise SchemaMismatchError(f"The message lacks the column {column.name}.", column=column.name)
            columns.append(self._values(column, values, place))
        return pa.StructArray.from_arrays(columns, fields=list(self._row), mask=pa.array(absent))

    def _numbers(self, names: pa.Array) -> npt.NDArray[np.int64]:
        """The number of each name's column among those of rows, and -1 for a column that no row needs. Raises DecodeError."""
        distinct = names.dictionary_encode()
        numbers = {folded_name(column.name): number for number, column in enumerate(self.schema.row_columns)}
        found = []
        for name in distinct.dictionary.to_pylist():
            number = numbers.get(folded_name(name), -1)
            if number < 0 and not self.schema.has_column(name):
                raise SchemaMismatchError(f"The message has a column {name} that the table lacks.", column=name[:_SHOWN])
            found.append(number)
        numbers_of: npt.NDArray[np.int64] = np.array(found or [0], np.int64)[distinct.indices.to_numpy()]
        return numbers_of

    def _values(self, column: Column, values: pa.StructArray, place: npt.NDArray[np.int64]) -> pa.Array:
        """The column's values at these places, null where there is none. Raises DecodeError."""
        places = pa.array(place, mask=place < 0)
        wanted = values.field(branch_of(column)).take(places)
        is_wrapped = branch_of(column) == _WRAPPED
        other = values.is_valid().take(places)
        if is_wrapped:
            wanted = wanted.field("value")
            wanted = pa.array(wanted.fill_null(0).to_numpy().view(np.uint64), mask=wanted.is_null().to_numpy(zero_copy_only=False))
        wrong = pc.and_not(pc.fill_null(other, False), wanted.is_valid())
        if pc.any(wrong).as_py():
            shown = str(values[int(place[pc.index(wrong, True).as_py()])].as_py())[:_SHOWN]
            raise DecodeError(f"The value is not written as a {column.type}.", column=column.name, value=shown)
        return wanted

    def images(self, lines: pa.RecordBatch) -> Images:
        """See ``LineReader.images``."""
        kinds = pc.index_in(lines.column("type"), pa.array(ROW_TYPES)).to_numpy().astype(np.int8)
        is_gone = pa.array(kinds == Change.DELETE)
        data, old = lines.column("data").flatten(), lines.column("old").flatten()
        return Images(kinds, [pc.if_else(is_gone, gone, new) for new, gone in zip(data, old, strict=True)], old)

    def convert(self, column: Column, values: pa.Array) -> pa.Array:
        """See ``LineReader.convert``. TIMESTAMP is converted from the zone that each value names."""
        if column.type.kind is TypeKind.TIMESTAMP:
            return moments_to_utc(values)
        if column.type.kind in (TypeKind.ENUM, TypeKind.SET):
            return values.cast(pa.string())
        if pa.types.is_string(values.type):
            return canonical_from_text(values, column.type, "UTC")
        return values.cast(arrow_type(column.type))


def _are(types: pa.Array, change: Change) -> npt.NDArray[np.bool_]:
    """Which messages are of that change."""
    found: npt.NDArray[np.bool_] = pc.equal(types, ROW_TYPES[change]).to_numpy(zero_copy_only=False)
    return found
