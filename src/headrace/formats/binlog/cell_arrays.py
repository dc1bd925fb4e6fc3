"""The values of one column of many rows: found in the bytes, or taken from cells, and converted to the canonical Arrow type."""

from __future__ import annotations

import codecs
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.formats.base import MEMBER_TIMES, MembersNotKnownError, OverlongMembersError
from headrace.formats.binlog.cell_values import ValueOptions, converter
from headrace.formats.binlog.errors import BinlogError, MalformedBinlogError, UnknownValueError
from headrace.formats.binlog.messages import Cell, CellField, ColumnInfo
from headrace.formats.buffer import Buffer, Mask, Positions
from headrace.formats.values import NoRoomError, UnknownMembersError, bad_places, members_from_numbers, timestamps_to_utc
from headrace.model.table import Column
from headrace.model.types import BINARY_KINDS, CHARACTER_KINDS, INTEGER_KINDS, ColumnType, TypeKind, TypeMap, arrow_type, each

_COLUMN, _NULL = 0x0A, 0x08
_SHOWN = 40
_FIELDS = TypeMap(
    "fields that carry a type in binlog messages",
    each(INTEGER_KINDS, CellField.INT64),
    each({TypeKind.ENUM, TypeKind.SET}, CellField.UINT64),
    each({TypeKind.FLOAT, TypeKind.DOUBLE}, CellField.DOUBLE),
    each(BINARY_KINDS | {TypeKind.BIT, TypeKind.JSON}, CellField.BYTES),
    each(CHARACTER_KINDS | {TypeKind.DECIMAL, TypeKind.VECTOR}, CellField.STRING),
    each({TypeKind.DATE, TypeKind.TIME, TypeKind.DATETIME, TypeKind.TIMESTAMP, TypeKind.YEAR}, CellField.STRING),
)
_TAGS = {CellField.INT64: 0x10, CellField.UINT64: 0x18, CellField.DOUBLE: 0x21, CellField.BYTES: 0x2A, CellField.STRING: 0x32}
_RAW = {CellField.INT64: pa.int64(), CellField.UINT64: pa.uint64(), CellField.DOUBLE: pa.float64()}


def field_of(column_type: ColumnType) -> CellField:
    """The field that carries values of the type (spec of the format: "Column representation per MySQL type")."""
    if column_type.kind in INTEGER_KINDS and column_type.unsigned:
        return CellField.UINT64
    return _FIELDS[column_type.kind]


class CellPlaces(NamedTuple):
    """The cells of one column: for each row, where the tag of its value is, and where the cell ends."""

    start: Positions
    stop: Positions


def find_cells(buffer: Buffer, start: Positions, stop: Positions, columns: int) -> tuple[list[CellPlaces], Mask]:
    """The cells of rows, column by column, and which rows have exactly so many cells."""
    sound = np.ones(len(start), bool)
    found, at = [], start
    for _ in range(columns):
        sound &= buffer.bytes[at] == _COLUMN
        length, begin, fits = buffer.lengths(at + 1)
        if fits is not None:
            sound &= fits
        end = begin + length
        sound &= (end <= stop) & (length > 0)
        if not sound.all():
            end = np.where(sound, end, begin)
            end = np.minimum(end, buffer.size)
            begin = np.minimum(begin, buffer.size)
        found.append(CellPlaces(begin, end))
        at = end
    return found, sound & (at == stop)


def raw_from_bytes(buffer: Buffer, cells: CellPlaces, field: CellField, order: Positions | None) -> tuple[pa.Array, Mask]:
    """The values of a column as int64, uint64, float64 or binary, and which cells have the expected field and nothing else.

    ``order`` are the numbers of the rows in the order of the result; ``None`` for the order of their bytes.
    """
    tags = buffer.bytes[cells.start]
    null = (tags == _NULL) & (buffer.bytes[cells.start + 1] == 1) & (cells.stop - cells.start == 2)
    at = cells.start + 1
    values: npt.NDArray[np.generic]
    if field is CellField.DOUBLE:
        values = buffer.words[np.minimum(at, buffer.size)].view(np.float64)
        whole = cells.stop - at == 8
    elif field in _RAW:
        numbers, after, whole = buffer.varints(at)
        values = numbers.view(np.int64) if field is CellField.INT64 else numbers
        whole &= after == cells.stop
    else:
        length, begin, fits = buffer.lengths(at)
        whole = begin + length == cells.stop
        if fits is not None:
            whole &= fits
        sound = null | (whole & (tags == _TAGS[field]))
        wanted = np.arange(len(at)) if order is None else order
        return buffer.slices(np.where(sound, begin, cells.stop), cells.stop, wanted, null if null.any() else None), sound
    sound = null | (whole & (tags == _TAGS[field]))
    if order is not None:
        values, null = values[order], null[order]
    return pa.array(values, _RAW[field], mask=null if null.any() else None), sound


def raw_from_cells(cells: Sequence[Cell], info: ColumnInfo, column: Column, messages: Positions) -> pa.Array:
    """Values that were read one by one, in the form of :func:`raw_from_bytes`.

    ``messages`` are the numbers of their messages. Raises MalformedBinlogError for a value in a field that the type does not use.
    """
    field = field_of(column.type)
    convert = _bytes_in(field) if field not in _RAW else converter(info, _without_members(column), ValueOptions())
    arrow = _RAW.get(field, pa.binary())
    values = []
    for place, cell in enumerate(cells):
        try:
            values.append(pa.scalar(convert(cell), arrow))
        except (ValueError, OverflowError, BinlogError):
            raise _not_of_type(column, _shown(cell.value), int(messages[place])) from None
    return pa.array(values, arrow)


def _without_members(column: Column) -> Column:
    return replace(column, type=replace(column.type, elements=()))


def _bytes_in(field: CellField) -> Callable[[Cell], object]:
    def convert(cell: Cell) -> object:
        if cell.field not in (field, CellField.NULL, CellField.ABSENT):
            raise ValueError
        return b"" if cell.field is CellField.ABSENT else cell.value

    return convert


def _shown(value: object) -> str:
    return value[:_SHOWN].decode("ascii", "backslashreplace") if isinstance(value, bytes) else str(value)


def _not_of_type(column: Column, value: str, message: int) -> MalformedBinlogError:
    error = MalformedBinlogError(
        f"The value of the column {column.name} is not a value of the type {column.type}.", column=column.name, value=value
    )
    error.message_number = message
    return error


def canonical(raw: pa.Array, column: Column, options: ValueOptions, size: int, messages: Positions) -> pa.Array:
    """Raw values in the canonical type of the column (``model.types.arrow_type``).

    ``size`` is the size of all messages in bytes, ``messages`` are the numbers of the values' messages. Raises
    MalformedBinlogError, UnknownValueError, MembersNotKnownError and OverlongMembersError.
    """
    convert = _CANONICAL[column.type.kind]
    try:
        return convert(raw, column, options, size)
    except UnknownMembersError as error:
        raise MembersNotKnownError(str(column.type.kind), column.name, error.value) from None
    except NoRoomError:
        raise OverlongMembersError(str(column.type.kind), column.name) from None
    except ValueError:
        (place,) = bad_places(lambda low, high: convert(raw.slice(low, high - low), column, options, size), len(raw))
    value, message = _shown(raw[place].as_py()), int(messages[place])
    if column.type.kind not in CHARACTER_KINDS:
        raise _not_of_type(column, value, message)
    unknown = UnknownValueError(
        f"A string of the column {column.name} is not {options.charset}, and the message does not name its charset.",
        column=column.name,
        value=value,
        hint="Pass charset, such as latin-1 or gbk, if all strings of the topic have it: it counts for every column.",
    )
    unknown.message_number = message
    raise unknown


def _cast(raw: pa.Array, column: Column, _options: ValueOptions, _size: int) -> pa.Array:
    return raw.cast(arrow_type(column.type))


def _floats(raw: pa.Array, _column: Column, _options: ValueOptions, _size: int) -> pa.Array:
    """Drainer widens a FLOAT, so this loses nothing."""
    return raw.cast(pa.float32(), safe=False)


def _years(raw: pa.Array, column: Column, _options: ValueOptions, _size: int) -> pa.Array:
    return raw.cast(pa.string()).cast(arrow_type(column.type))


def _members(raw: pa.Array, column: Column, _options: ValueOptions, size: int) -> pa.Array:
    return members_from_numbers(raw.cast(pa.string()), column.type, MEMBER_TIMES * size)


def _strings(raw: pa.Array, _column: Column, options: ValueOptions, _size: int) -> pa.Array:
    if codecs.lookup(options.charset).name == "utf-8":
        return raw.cast(pa.string())
    return pa.array([None if value is None else value.decode(options.charset) for value in raw.to_pylist()], pa.string())


def _in_utc(raw: pa.Array, column: Column, options: ValueOptions, _size: int) -> pa.Array:
    texts = raw.cast(pa.string())
    if not options.time_zone and texts.null_count < len(texts):
        raise UnknownValueError(
            f"The TIMESTAMP column {column.name} is in the time zone of the host that Drainer ran on, and no message names it.",
            column=column.name,
            hint="Pass time_zone with that zone, such as UTC or Asia/Shanghai.",
        )
    return timestamps_to_utc(texts, options.time_zone or "UTC")


def _bits(raw: pa.Array, _column: Column, _options: ValueOptions, _size: int) -> pa.Array:
    """BIT as a number: its bytes, the highest first."""
    lengths = pc.binary_length(raw)
    if pc.any(pc.or_(pc.less(lengths, 1), pc.greater(lengths, 8))).as_py():
        raise ValueError("a BIT has one to eight bytes")
    return pa.array([None if value is None else int.from_bytes(value, "big") for value in raw.to_pylist()], pa.uint64())


_CANONICAL: TypeMap[Callable[[pa.Array, Column, ValueOptions, int], pa.Array]] = TypeMap(
    "canonical arrays from binlog messages",
    each(INTEGER_KINDS | BINARY_KINDS | {TypeKind.DOUBLE}, _cast),
    each({TypeKind.DECIMAL, TypeKind.JSON, TypeKind.VECTOR, TypeKind.DATE, TypeKind.TIME, TypeKind.DATETIME}, _cast),
    each(CHARACTER_KINDS, _strings),
    each({TypeKind.ENUM, TypeKind.SET}, _members),
    {TypeKind.FLOAT: _floats, TypeKind.BIT: _bits, TypeKind.YEAR: _years, TypeKind.TIMESTAMP: _in_utc},
)
