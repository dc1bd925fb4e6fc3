"""Reads the rows of TiCDC's protocol ``debezium-avro``: messages that were written with a registered schema, each of one change.

Format: TiCDC documentation, "TiCDC Debezium Protocol". Values are those of the protocol ``debezium`` (``debezium_rows``), but
decimals are exact: bytes or text. Binary types and BIT are bytes, unsigned BIGINT is a number or text. Kafka Connect's name of a
type tells in which unit a time is counted.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.formats.avro.columns import BadValueError, decimal_texts, read_columns
from headrace.formats.avro.schema import AvroType, Kind, Primitive, Record
from headrace.formats.base import DecodeError, SchemaMismatchError
from headrace.formats.debezium_avro import FRAME, row_of
from headrace.formats.debezium_rows import CONVERTED, SIDES, WRITTEN_TYPES, bits, check_clear, images_of
from headrace.formats.debezium_unclear import EPOCH
from headrace.formats.row_images import Images
from headrace.formats.ticdc_avro import avro_name
from headrace.model.table import Column, TableSchema, folded_name
from headrace.model.types import BINARY_KINDS, INTEGER_KINDS, ColumnType, TypeKind, arrow_type

_CANONICAL = BINARY_KINDS | {TypeKind.DECIMAL, TypeKind.BIT}
"""The types whose values are canonical once they are read."""
_TIMES = "io.debezium.time."
_MILLISECONDS, _MICROSECONDS = f"{_TIMES}Timestamp", f"{_TIMES}MicroTimestamp"
_NAMES = {
    **dict.fromkeys(INTEGER_KINDS, ("",)),
    TypeKind.DATE: (f"{_TIMES}Date",),
    TypeKind.TIME: (f"{_TIMES}MicroTime",),
    TypeKind.DATETIME: (_MILLISECONDS, _MICROSECONDS),
    TypeKind.TIMESTAMP: (f"{_TIMES}ZonedTimestamp",),
    TypeKind.YEAR: (f"{_TIMES}Year",),
}
"""Kafka Connect's names of the types in which TiCDC writes a type; any for those that are missing."""
_MOST_MILLISECOND_DIGITS = 3
_DECIMAL = r"^-?[0-9]+(\.[0-9]+)?$"
_SECONDS_WIDTH = len("2024-06-05T09:30:23")
_SHOWN = 100


@dataclass(frozen=True)
class DebeziumAvroRowReader:
    """A :class:`headrace.formats.row_images.LineReader` whose lines are messages."""

    schema: TableSchema
    find: Callable[[int], Record]
    """The registered record of an id. Raises ValueError, the end of a sentence, if there is none."""
    accept_unclear: bool = False
    """As ``DebeziumRowReader.accept_unclear``."""

    @cached_property
    def _row(self) -> pa.DataType:
        return pa.struct([pa.field(column.name, _read_type(column.type)) for column in self.schema.row_columns])

    @cached_property
    def single_schema(self) -> pa.Schema:
        """See ``LineReader.single_schema``."""
        return pa.schema([("op", pa.string()), *((side, self._row) for side in SIDES)])

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
            raise DecodeError(f"The message cannot be read: in {error.field or 'it'}, {error.reason}.") from None
        return dict(row)

    def images(self, lines: pa.RecordBatch) -> Images:
        """See ``LineReader.images``."""
        return images_of(lines)

    def convert(self, column: Column, values: pa.Array) -> pa.Array:
        """See ``LineReader.convert``. Raises UnclearValueError for a value that may mean several ones, unless that is accepted."""
        if not self.accept_unclear:
            check_clear(column, values)
        return values if column.type.kind in _CANONICAL else CONVERTED[column.type.kind](values, column.type)

    def _parsed(self, lines: Sequence[bytes]) -> pa.RecordBatch:
        """Raises BadValueError, whose number is of no meaning, and DecodeError for any of the lines."""
        groups: dict[int, list[int]] = defaultdict(list)
        for number, line in enumerate(lines):
            groups[int.from_bytes(line[1:FRAME], "big")].append(number)
        batches = [pa.RecordBatch.from_pylist([], schema=self.single_schema)]
        for schema_id, numbers in groups.items():
            try:
                record = self.find(schema_id)
            except ValueError as error:
                raise DecodeError(f"The message cannot be read: {error}") from None
            batches.append(self._group(record, [lines[number] for number in numbers]))
        order = [number for numbers in groups.values() for number in numbers]
        return pa.concat_batches(batches).take(pa.array(np.argsort(np.array(order, np.int64))))

    def _group(self, record: Record, lines: Sequence[bytes]) -> pa.RecordBatch:
        """Messages that were written with one schema."""
        found = read_columns(record, lines, skip=FRAME, wanted={"op", *SIDES})
        columns = [self._columns(row_of(record, side), found.field(side)) for side in SIDES]
        return pa.RecordBatch.from_arrays([found.field("op"), *columns], schema=self.single_schema)

    def _columns(self, record: Record | None, rows: pa.StructArray) -> pa.StructArray:
        """The columns of the table, of rows that have the fields of a record. Raises DecodeError."""
        fields = {folded_name(field.name): field for field in record.fields} if record is not None else {}
        known = {folded_name(avro_name(column.name)) for column in self.schema.columns}
        unknown = [field.name for name, field in fields.items() if name not in known]
        if unknown:
            raise SchemaMismatchError(f"The message has a column {unknown[0]} that the table lacks.", column=unknown[0][:_SHOWN])
        values = dict(zip(fields, rows.flatten(), strict=True))
        columns = []
        for column in self.schema.row_columns:
            name = folded_name(avro_name(column.name))
            if name not in fields:
                raise SchemaMismatchError(f"The message lacks the column {column.name}.", column=column.name)
            columns.append(_read(column, fields[name].value_type, values[name]))
        return pa.StructArray.from_arrays(columns, fields=list(self._row), mask=rows.is_null())


def _read_type(of: ColumnType) -> pa.DataType:
    return arrow_type(of) if of.kind in _CANONICAL else WRITTEN_TYPES[of.kind](of)


def _read(column: Column, of: AvroType, values: pa.Array) -> pa.Array:
    """Values of an Avro type as :func:`_read_type`. Raises DecodeError."""
    try:
        return _typed(column.type, of, values)
    except ValueError:
        pass
    for value in values:
        try:
            _typed(column.type, of, pa.array([value.as_py()], values.type))
        except ValueError:
            shown = str(value.as_py())[:_SHOWN]
            raise DecodeError(f"The value is not written as a {column.type}.", column=column.name, value=shown) from None
    raise AssertionError("a value that is refused with others is refused alone")


def _typed(column: ColumnType, of: AvroType, values: pa.Array) -> pa.Array:
    """Raises ValueError."""
    if not isinstance(of, Primitive) or of.connect_name not in _NAMES.get(column.kind, (of.connect_name,)):
        raise ValueError("it is of another type")
    if column.kind is TypeKind.BIGINT and column.unsigned:
        return _unsigned(values, is_text=of.kind is Kind.STRING)
    if column.kind in _SPECIAL:
        return _SPECIAL[column.kind](column, of, values)
    wanted = _read_type(column)
    if _family(wanted) != _family(values.type):
        raise ValueError("it is of another type")
    return values.cast(wanted, safe=not pa.types.is_floating(wanted))


def _family(of: pa.DataType) -> str:
    if pa.types.is_integer(of):
        return "integer"
    return "float" if pa.types.is_floating(of) else str(of)


def _decimals(_column: ColumnType, of: Primitive, values: pa.Array) -> pa.Array:
    if of.logical == "decimal":
        return decimal_texts(values, of.scale)
    if of.kind is not Kind.STRING or pc.all(pc.match_substring_regex(values, _DECIMAL)).as_py() is False:
        raise ValueError("it is no decimal")
    return values


def _bits(column: ColumnType, of: Primitive, values: pa.Array) -> pa.Array:
    if of.kind is Kind.BOOLEAN:
        return values.cast(pa.uint64())
    if of.kind is not Kind.BYTES:
        raise ValueError("it is of another type")
    return bits(values, column)


def _datetimes(column: ColumnType, of: Primitive, values: pa.Array) -> pa.Array:
    """Counts in the unit that the protocol ``debezium`` has for the type's digits."""
    counts = values.cast(pa.int64())
    if (column.scale or 0) <= _MOST_MILLISECOND_DIGITS:
        if of.connect_name != _MILLISECONDS:
            raise ValueError("it has more digits")
        return counts
    return counts if of.connect_name == _MICROSECONDS else pc.multiply_checked(counts, 1000)


def _moments(column: ColumnType, of: Primitive, texts: pa.Array) -> pa.Array:
    """Times in UTC with all digits of their column: a schema alone does not tell how many that are."""
    digits = column.scale or 0
    if of.kind is not Kind.STRING or pc.all(pc.ends_with(texts, "Z")).as_py() is False:
        raise ValueError("a text is not a time in UTC")
    if not digits:
        return texts
    plain = pc.utf8_slice_codeunits(texts, 0, -1)
    is_whole = pc.equal(pc.utf8_length(plain), _SECONDS_WIDTH)
    pointed = pc.if_else(is_whole, pc.binary_join_element_wise(plain, ".", ""), plain)
    padded = pc.binary_join_element_wise(pc.utf8_rpad(pointed, _SECONDS_WIDTH + 1 + digits, "0"), "Z", "")
    return pc.if_else(pc.equal(texts, EPOCH), texts, padded)


def _unsigned(values: pa.Array, *, is_text: bool) -> pa.Array:
    """As the signed numbers of the same 64 bits."""
    if is_text:
        return values.cast(pa.uint64()).cast(pa.int64(), safe=False)
    numbers = values.cast(pa.int64())
    if (pc.min(numbers).as_py() or 0) < 0:  # TiCDC does not write a number that needs all 64 bits
        raise ValueError("an unsigned number is negative")
    return numbers


_SPECIAL: dict[TypeKind, Callable[[ColumnType, Primitive, pa.Array], pa.Array]] = {
    TypeKind.DECIMAL: _decimals,
    TypeKind.BIT: _bits,
    TypeKind.DATETIME: _datetimes,
    TypeKind.TIMESTAMP: _moments,
}
