"""Row changes as columns: the new and old rows of many lines, and the rows of a block that they give.

Shared by the JSON protocols of TiCDC on Kafka. Each line is one change. Lines are read together with Arrow; if it refuses them, or
if a value is bad, they are read one by one, which also finds the first bad one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.formats.base import MEMBER_TIMES, DecodeError, MembersNotKnownError, SchemaMismatchError
from headrace.formats.values import (
    WRITTEN,
    NoRoomError,
    UnknownMembersError,
    Written,
    bad_places,
    members_from_numbers,
)
from headrace.model.block import META_FIELDS, SEQ
from headrace.model.events import RowKind
from headrace.model.table import Column, TableSchema, folded_name
from headrace.model.types import ColumnType, arrow_type

_Told = TypeVar("_Told")
_Value = TypeVar("_Value")
BoolArray = npt.NDArray[np.bool_]
_SHOWN = 100
_FEW_LINES = 500
"""If Arrow refuses more lines than this together, only those parts of them that it refuses are read one by one."""
ROWS_PER_LINE = 2


class Change(IntEnum):
    """What a line does to its row."""

    INSERT = 0
    UPDATE = 1
    DELETE = 2
    UPDATE_WITHOUT_OLD = 3
    """The old row is not known completely."""


_KINDS = np.array([RowKind.INSERT, RowKind.UPDATE_AFTER, RowKind.DELETE, RowKind.UPDATE_AFTER], np.int8)


@dataclass(frozen=True)
class Images:
    """The changes of lines; arrays have one value for each line."""

    changes: npt.NDArray[np.int8]
    """:class:`Change`."""
    new: Sequence[pa.Array]
    """By column of ``TableSchema.row_columns``, the value as the format writes it: of the old row for a deletion, else of the new
    one."""
    old: Sequence[pa.Array]
    """The same of the old row; of meaning only for updates."""


class LineReader(Protocol):
    """Reads the lines of one table in one format."""

    @property
    def schema(self) -> TableSchema:
        """The table's shape."""
        ...

    def parse(self, lines: Sequence[bytes]) -> pa.RecordBatch:
        """The lines as columns. Raises ValueError if any of them has to be read by itself."""
        ...

    def parse_one(self, line: bytes) -> dict[str, object]:
        """A line as a row of :meth:`single_schema`. Raises DecodeError."""
        ...

    @property
    def single_schema(self) -> pa.Schema:
        """The Arrow schema of lines that were read one by one. It may have columns that :meth:`parse` does not give."""
        ...

    def images(self, lines: pa.RecordBatch) -> Images:
        """The rows in lines. Raises ValueError if a line does not have the members that it must have."""
        ...

    def convert(self, column: Column, values: pa.Array) -> pa.Array:
        """Values as the format writes them to canonical ones; members of ENUM and SET to their numbers as text.

        Raises ValueError. Each value is converted by itself.
        """
        ...


class UnclearValueError(ValueError):
    """A value may mean several ones, so that it is not known what the source has. ``message`` is a sentence."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.message, self.hint = message, hint


class BadLineError(Exception):
    """The first line that cannot be read: its number among the lines, and the error."""

    def __init__(self, line: int, error: DecodeError) -> None:
        super().__init__(error.message)
        self.line, self.error = line, error


def decode_lines(
    reader: LineReader, lines: Sequence[bytes], commit_ts: npt.NDArray[np.int64]
) -> tuple[pa.RecordBatch, npt.NDArray[np.int64]]:
    """The rows of lines in the layout of ``headrace.model.block``, and for each row the number of its line.

    ``commit_ts`` (TSO) is that of each line. An update gives its old row, then its new one. ``seq`` is twice the number of the
    line, plus one for a row that is not an old one. Raises BadLineError.
    """
    sizes = np.fromiter(map(len, lines), np.int64, len(lines))
    try:
        return _rows(reader, reader.parse(lines), sizes, commit_ts)
    except ValueError:
        if len(lines) <= _FEW_LINES:
            return _decode_singly(reader, lines, sizes, commit_ts)
    parts, numbers = [], []
    for start in range(0, len(lines), _FEW_LINES):
        try:
            rows, number = decode_lines(reader, lines[start : start + _FEW_LINES], commit_ts[start : start + _FEW_LINES])
        except BadLineError as error:
            raise BadLineError(start + error.line, error.error) from None
        seq = pc.add(rows.column(SEQ), start * ROWS_PER_LINE)
        parts.append(rows.set_column(rows.schema.get_field_index(SEQ), META_FIELDS[2], seq))
        numbers.append(number + start)
    return pa.concat_batches(parts), np.concatenate(numbers)


def _decode_singly(
    reader: LineReader, lines: Sequence[bytes], sizes: npt.NDArray[np.int64], commit_ts: npt.NDArray[np.int64]
) -> tuple[pa.RecordBatch, npt.NDArray[np.int64]]:
    found: list[dict[str, object]] = []
    problem: BadLineError | None = None
    for number, line in enumerate(lines):
        try:
            found.append(reader.parse_one(line))
        except DecodeError as error:
            problem = BadLineError(number, error)
            break
    batch = pa.RecordBatch.from_pylist(found, schema=reader.single_schema)

    def build(start: int, stop: int) -> tuple[pa.RecordBatch, npt.NDArray[np.int64]]:
        return _rows(reader, batch.slice(start, stop - start), sizes[start:stop], commit_ts[start:stop])

    try:
        rows = build(0, len(found))
    except ValueError:
        bad = bad_places(build, len(found))[0]
        raise BadLineError(bad, _bad_value(reader, batch.slice(bad, 1), int(sizes[bad]))) from None
    if problem is not None:
        raise problem
    return rows


def _rows(
    reader: LineReader, lines: pa.RecordBatch, sizes: npt.NDArray[np.int64], commit_ts: npt.NDArray[np.int64]
) -> tuple[pa.RecordBatch, npt.NDArray[np.int64]]:
    """Raises ValueError."""
    images = reader.images(lines)
    is_update = images.changes == Change.UPDATE
    number = np.repeat(np.arange(len(is_update)), is_update + 1)
    is_old = np.zeros(len(number), bool)
    is_old[:-1] = number[:-1] == number[1:]
    kind = np.where(is_old, np.int8(RowKind.UPDATE_BEFORE), _KINDS[images.changes][number])
    # In the input of `take`, the old rows come after the new ones.
    order = pa.array(number + is_old * len(is_update)) if is_old.any() else None
    columns, room = [], MEMBER_TIMES * sizes[number]
    for column, new, old in zip(reader.schema.row_columns, images.new, images.old, strict=True):
        values = new if order is None else pa.concat_arrays([new, old]).take(order)
        columns.append(_converted(reader, column, values, room))
    fields = [pa.field(column.name, arrow_type(column.type)) for column in reader.schema.row_columns]
    meta = [pa.array(kind), pa.array(commit_ts[number]), pa.array(number * ROWS_PER_LINE + ~is_old)]
    return pa.RecordBatch.from_arrays([*meta, *columns], schema=pa.schema([*META_FIELDS, *fields])), number


def _converted(reader: LineReader, column: Column, values: pa.Array, room: npt.NDArray[np.int64]) -> pa.Array:
    """Canonical values. The bytes of members are taken off ``room``, the bytes that each row may still have. Raises ValueError."""
    converted = reader.convert(column, values)
    if WRITTEN[column.type.kind] is not Written.MEMBER:
        if pa.types.is_floating(converted.type) and not pc.all(pc.is_finite(converted)).as_py() is not False:
            raise ValueError("a number is not finite")
        return converted
    try:
        members = members_from_numbers(converted, column.type, int(room.sum()))
    except NoRoomError:
        raise ValueError("the members are too long") from None
    room -= pc.fill_null(pc.binary_length(members), 0).to_numpy()
    if room.min(initial=0) < 0:
        raise ValueError("the members are too long")
    return members


def _bad_value(reader: LineReader, line: pa.RecordBatch, size: int) -> DecodeError:
    """The error for a line, naming the first column with an invalid value."""
    try:
        images = reader.images(line)
    except ValueError:
        return DecodeError("The message does not follow the protocol.")
    room = np.array([MEMBER_TIMES * size], np.int64)
    sides = (images.old, images.new) if images.changes[0] == Change.UPDATE else (images.new,)
    for side in sides:
        for column, values in zip(reader.schema.row_columns, side, strict=True):
            value = str(values[0].as_py())[:_SHOWN]
            try:
                _converted(reader, column, values, room)
            except UnknownMembersError as unknown:
                return MembersNotKnownError(str(column.type.kind), column.name, unknown.value)
            except UnclearValueError as unclear:
                return DecodeError(unclear.message, column=column.name, value=value, hint=unclear.hint)
            except ValueError:
                return DecodeError(f"The value is not a value of the type {column.type}.", column=column.name, value=value)
    return DecodeError("The message does not follow the protocol.")


def handle_names(schema: TableSchema) -> frozenset[str]:
    """The folded names of the columns that every deletion must have: those of the key, or all without one."""
    key = schema.handle_key or tuple(column.name for column in schema.row_columns)
    return frozenset(map(folded_name, key))


def named_columns(
    schema: TableSchema, members: Iterable[tuple[str, _Told]], value: Callable[[Column, _Told], _Value]
) -> dict[str, _Value]:
    """The members of a row by the names of the table's columns, each with its ``value``. What rows need not carry is left out.

    Raises SchemaMismatchError for a column that the table lacks.
    """
    found: dict[str, _Value] = {}
    for name, told in members:
        column = schema.row_columns_by_name.get(folded_name(name))
        if column is not None:
            found[column.name] = value(column, told)
        elif not schema.has_column(name):
            raise SchemaMismatchError(f"The message has a column {name} that the table lacks.", column=name[:_SHOWN])
    return found


def require_columns(schema: TableSchema, row: Collection[str], *, whole: bool) -> None:
    """Raises SchemaMismatchError if a row lacks a column: any, or unless it has to be ``whole`` one of :func:`handle_names`."""
    for column in schema.row_columns:
        if column.name not in row and (whole or folded_name(column.name) in handle_names(schema)):
            raise SchemaMismatchError(f"The message lacks the column {column.name}.", column=column.name)


def is_binary_type(column_type: ColumnType) -> bool:
    """Whether values of the type are bytes."""
    return WRITTEN[column_type.kind] is Written.CODE
