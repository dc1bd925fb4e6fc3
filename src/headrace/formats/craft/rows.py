"""Reads the rows of TiCDC's Craft protocol.

A value is bytes: an integer a varint, for unsigned ones and BIT, ENUM and SET without a sign; FLOAT and DOUBLE eight bytes; the
others their text or bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.formats.base import DecodeError, SchemaMismatchError
from headrace.formats.craft.messages import UNKNOWN_FLOAT, GroupColumn, columns_of, unframed_row, values_of
from headrace.formats.craft.numbers import CraftError, Cursor
from headrace.formats.open_rows import CODES
from headrace.formats.row_images import Change, Images, UnclearValueError, handle_names, is_binary_type
from headrace.formats.values import timestamps_to_utc
from headrace.model.table import Column, TableSchema, folded_name
from headrace.model.types import BINARY_KINDS, CHARACTER_KINDS, INTEGER_KINDS, ColumnType, TypeKind, TypeMap, arrow_type, each

_SIDES = ("new", "old")
_BINARY_FLAG, _UNSIGNED_FLAG = 1, 128
_SHOWN = 100
_FLOAT_BYTES = 8
_OTHER_PROTOCOL = "Send the table with another protocol, such as canal-json or open-protocol."
_Values = list[bytes | None]


@dataclass(frozen=True)
class CraftRowReader:
    """A :class:`headrace.formats.row_images.LineReader`, whose lines are those of ``craft.messages.unframed_row``."""

    schema: TableSchema
    time_zone: str = "UTC"
    """The zone of TIMESTAMP text: TiCDC's ``--tz``."""
    _places: dict[bytes, list[int]] = field(default_factory=dict, compare=False, repr=False)
    """By description of columns, how many it has, and for each column of the schema its place there; -1 if it has none."""

    @cached_property
    def single_schema(self) -> pa.Schema:
        """See ``LineReader.single_schema``: ``change``, then the columns of the new rows and those of the old ones."""
        values = [(f"{side}:{column.name}", pa.binary()) for side in _SIDES for column in self.schema.row_columns]
        return pa.schema([("change", pa.int8()), *values])

    def parse(self, lines: Sequence[bytes]) -> pa.RecordBatch:
        """See ``LineReader.parse``."""
        changes: list[Change] = []
        sides: tuple[list[_Values], list[_Values]] = ([], [])
        for line in lines:
            try:
                change, new, old = self._row(line)
            except DecodeError as error:
                raise ValueError(error.message) from None
            changes.append(change)
            sides[0].append(new)
            sides[1].append(old)
        columns = [pa.array(values, pa.binary()) for side in sides for values in zip(*side, strict=True)]
        return pa.RecordBatch.from_arrays([pa.array(changes, pa.int8()), *columns], schema=self.single_schema)

    def parse_one(self, line: bytes) -> dict[str, object]:
        """See ``LineReader.parse_one``."""
        change, *sides = self._row(line)
        return dict(zip(self.single_schema.names, [int(change), *sides[0], *sides[1]], strict=True))

    def images(self, lines: pa.RecordBatch) -> Images:
        """See ``LineReader.images``."""
        count = len(self.schema.row_columns)
        columns = lines.columns[1:]
        return Images(lines.column(0).to_numpy().astype(np.int8), columns[:count], columns[count:])

    def convert(self, column: Column, values: pa.Array) -> pa.Array:
        """See ``LineReader.convert``."""
        if column.type.kind is TypeKind.TIMESTAMP:
            return timestamps_to_utc(pc.cast(values, pa.string()), self.time_zone)
        return _CONVERTED[column.type.kind](values, column.type)

    def _row(self, line: bytes) -> tuple[Change, _Values, _Values]:
        """What a line does, the row that it has after that or, if it is deleted, had before, and an update's old row.

        Raises DecodeError.
        """
        description, new, old = unframed_row(line)
        change = Change.UPDATE if new and old else Change.INSERT if new else Change.DELETE
        try:
            places = self._places.get(description)
            if places is None:
                places = self._places[description] = self._placed(columns_of(description), whole=change is not Change.DELETE)
            if change is not Change.DELETE and -1 in places:
                raise self._lacking(places.index(-1) - 1)
            return change, _values(new or old, places), _values(old, places) if change is Change.UPDATE else self._nothing
        except CraftError as error:
            raise DecodeError(f"The row cannot be read: {error}") from None

    @cached_property
    def _nothing(self) -> _Values:
        return [None] * len(self.schema.row_columns)

    def _placed(self, told: Sequence[GroupColumn], *, whole: bool) -> list[int]:
        """How many columns a row has, and for each of the schema its place there; -1 if a deletion leaves it out.

        Raises DecodeError.
        """
        for given in told:
            if not self.schema.has_column(given.name):
                raise SchemaMismatchError(
                    f"The message has a column {given.name} that the table lacks.", column=given.name[:_SHOWN]
                )
        names = {folded_name(given.name): number for number, given in enumerate(told)}
        places = [names.get(folded_name(column.name), -1) for column in self.schema.row_columns]
        for number, (column, place) in enumerate(zip(self.schema.row_columns, places, strict=True)):
            if place < 0 and (whole or folded_name(column.name) in handle_names(self.schema)):
                raise self._lacking(number)
            if place >= 0 and not _is_written_as(column.type, told[place]):
                raise DecodeError(
                    f"The value has the type code {told[place].code} and the flags {told[place].flags}, which is not how a "
                    f"{column.type} is written.",
                    column=column.name,
                )
        return [len(told), *places]

    def _lacking(self, number: int) -> SchemaMismatchError:
        name = self.schema.row_columns[number].name
        return SchemaMismatchError(f"The message lacks the column {name}.", column=name)


def _values(values: bytes, places: Sequence[int]) -> _Values:
    """The values of the schema's columns. ``places``: the number of the row's columns, and then where each of them is."""
    found = values_of(values, places[0])
    return [None if place < 0 else found[place] for place in places[1:]]


def _is_written_as(column_type: ColumnType, told: GroupColumn) -> bool:
    kind = column_type.kind
    if told.code not in CODES[kind]:
        return False
    if kind in INTEGER_KINDS:
        return bool(told.flags & _UNSIGNED_FLAG) == column_type.unsigned
    return kind not in CHARACTER_KINDS | BINARY_KINDS or bool(told.flags & _BINARY_FLAG) == is_binary_type(column_type)


def _number(raw: bytes | None, *, signed: bool) -> int | None:
    if raw is None:
        return None
    if len(raw) == 1 and raw[0] < 0x80:
        return (raw[0] >> 1) ^ -(raw[0] & 1) if signed else raw[0]
    cursor = Cursor(raw)
    number = cursor.varint() if signed else cursor.uvarint()
    if cursor.at != cursor.end:
        raise CraftError("there are bytes behind a number")
    return number


def _numbers(values: pa.Array, of: ColumnType) -> pa.Array:
    signed = of.kind is TypeKind.YEAR or (of.kind in INTEGER_KINDS and not of.unsigned)
    return pa.array([_number(raw, signed=signed) for raw in values.to_pylist()], arrow_type(of))


def _places_of_members(values: pa.Array, _of: ColumnType) -> pa.Array:
    return pc.cast(pa.array([_number(raw, signed=False) for raw in values.to_pylist()], pa.uint64()), pa.string())


def _floats(values: pa.Array, of: ColumnType) -> pa.Array:
    if pc.any(pc.equal(values, UNKNOWN_FLOAT)).as_py():
        raise UnclearValueError(
            "The message may not have the whole value: with this protocol, TiCDC overwrites half of a FLOAT with the next value.",
            _OTHER_PROTOCOL,
        )
    if pc.all(pc.equal(pc.binary_length(values), _FLOAT_BYTES)).as_py() is False:
        raise ValueError("a floating-point number has not eight bytes")
    raw = b"".join(pc.fill_null(values, bytes(_FLOAT_BYTES)).to_pylist())
    numbers = pa.array(np.frombuffer(raw, "<f8"), mask=pc.is_null(values).to_numpy(False))
    return pc.cast(numbers, arrow_type(of), safe=False)


def _texts(values: pa.Array, _of: ColumnType) -> pa.Array:
    return pc.cast(values, pa.string())


def _vectors(values: pa.Array, of: ColumnType) -> pa.Array:
    if values.null_count:
        raise UnclearValueError(
            "The message does not have the value: with this protocol, TiCDC writes every VECTOR as NULL.",
            _OTHER_PROTOCOL,
        )
    return _texts(values, of)


_CONVERTED: TypeMap[Callable[[pa.Array, ColumnType], pa.Array]] = TypeMap(
    "conversions of the Craft protocol",
    each(TypeKind, _texts),
    each(BINARY_KINDS, lambda values, _of: values),
    each(INTEGER_KINDS | {TypeKind.YEAR, TypeKind.BIT}, _numbers),
    each({TypeKind.ENUM, TypeKind.SET}, _places_of_members),
    each({TypeKind.FLOAT, TypeKind.DOUBLE}, _floats),
    {TypeKind.VECTOR: _vectors},
)
