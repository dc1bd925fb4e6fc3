"""Reads the rows of TiCDC's protocol ``avro``: messages that were written with a registered schema, each of one change.

Format: TiCDC documentation, "TiCDC Avro Protocol". A value holds the new row; the old one only with ``avro-include-before-value``.
Of a deletion there is otherwise only the key, which :data:`DELETION` marks.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.formats.avro.columns import BadValueError, big_endian, decimal_texts, read_columns
from headrace.formats.avro.schema import AvroType, Field, Kind, Primitive, Record
from headrace.formats.base import DecodeError, SchemaMismatchError
from headrace.formats.row_images import Change, Images, handle_names
from headrace.formats.ticdc_avro import BEFORE, OPERATION, avro_name, before_of, columns_of
from headrace.formats.values import WRITTEN, Written, canonical_from_text, timestamps_to_utc
from headrace.model.table import Column, TableSchema, folded_name
from headrace.model.types import TypeKind, arrow_type

DELETION = b"\xff"
"""Stands before the key of a row that was deleted, in a record of a stream."""
_FRAME = 5
_INSERT, _UPDATE, _DELETE = "c", "u", "d"
_OPERATIONS = {_INSERT: Change.INSERT, _UPDATE: Change.UPDATE_WITHOUT_OLD, _DELETE: Change.DELETE}
_MOST_SIGNED = (1 << 63) - 1
_LONGEST_BIT = 8
_SHOWN = 100
_IN_STRING_MODE = (
    "TiCDC writes it for each larger number, too. Set avro-bigint-unsigned-handling-mode=string in the changefeed's sink URI, and "
    "load the table anew."
)


@dataclass(frozen=True)
class TicdcAvroRowReader:
    """A :class:`headrace.formats.row_images.LineReader` whose lines are messages."""

    schema: TableSchema
    find: Callable[[int], Record]
    """The registered record of an id. Raises ValueError, the end of a sentence, if there is none."""
    time_zone: str = "UTC"
    exact: bool = True
    """Whether messages have the columns of ``schema``. Otherwise they may have been written before or after a change of the
    table, and columns that a message lacks get their default."""

    @cached_property
    def _row(self) -> pa.DataType:
        return pa.struct([pa.field(column.name, arrow_type(column.type)) for column in self.schema.row_columns])

    @cached_property
    def single_schema(self) -> pa.Schema:
        """See ``LineReader.single_schema``."""
        return pa.schema([("change", pa.int8()), ("new", self._row), ("old", self._row)])

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
        return Images(lines.column("change").to_numpy(), lines.column("new").flatten(), lines.column("old").flatten())

    def convert(self, column: Column, values: pa.Array) -> pa.Array:
        """See ``LineReader.convert``. TIMESTAMP is converted from the changefeed's zone."""
        return timestamps_to_utc(values, self.time_zone) if column.type.kind is TypeKind.TIMESTAMP else values

    def _parsed(self, lines: Sequence[bytes]) -> pa.RecordBatch:
        """Raises BadValueError, and DecodeError for any of the lines."""
        groups: dict[tuple[bool, bytes], list[int]] = defaultdict(list)
        for number, line in enumerate(lines):
            is_key = line.startswith(DELETION)
            groups[is_key, line[is_key : is_key + _FRAME]].append(number)
        batches: list[pa.RecordBatch] = []
        order: list[int] = []
        for (is_key, frame), numbers in groups.items():
            try:
                record = self.find(int.from_bytes(frame[1:], "big"))
            except ValueError as error:
                raise DecodeError(f"The message cannot be read: {error}") from None
            try:
                batches.append(self._group(record, [lines[number] for number in numbers], is_key=is_key))
            except BadValueError as error:
                raise BadValueError(numbers[error.number], error.field, error.reason) from None
            order += numbers
        if not batches:
            return pa.RecordBatch.from_pylist([], schema=self.single_schema)
        found = pa.concat_batches(batches)
        return found if len(batches) == 1 else found.take(pa.array(np.argsort(np.array(order))))

    def _group(self, record: Record, lines: Sequence[bytes], *, is_key: bool) -> pa.RecordBatch:
        """Messages that were written with one schema."""
        wanted = {field.name for field in columns_of(record)} | ({OPERATION, BEFORE} if not is_key else set())
        found = read_columns(record, lines, skip=_FRAME + is_key, wanted=wanted)
        changes = np.full(len(lines), Change.DELETE if is_key else Change.UPDATE_WITHOUT_OLD, np.int8)
        if not is_key and record.field(OPERATION) is not None:
            changes = _changes(found.field(OPERATION))
        new = self._columns(record, found, only_keys=is_key)
        old = pa.nulls(len(lines), self._row)
        before = before_of(record)
        if before is not None and not is_key:
            told = found.field(BEFORE)
            has_old = told.is_valid().to_numpy(zero_copy_only=False)
            changes[has_old & (changes == Change.UPDATE_WITHOUT_OLD)] = Change.UPDATE
            if has_old.any():
                places = pa.array(np.cumsum(has_old) - 1, mask=~has_old)
                old = self._columns(before, told.drop_null(), only_keys=False).take(places)
        return pa.RecordBatch.from_arrays([pa.array(changes), new, old], schema=self.single_schema)

    def _columns(self, record: Record, found: pa.StructArray, *, only_keys: bool) -> pa.StructArray:
        """The columns of the table, of rows that have the fields of a record. Raises DecodeError."""
        fields = {folded_name(field.name): field for field in columns_of(record)}
        own = {folded_name(avro_name(column.name)): column for column in self.schema.columns}
        unknown = [field.name for name, field in fields.items() if name not in own]
        keys = handle_names(self.schema)
        lacking = [column for name, column in own.items() if name not in fields and column in self.schema.row_columns]
        if only_keys:
            lacking = [column for column in lacking if folded_name(column.name) in keys]
        if unknown and (self.exact or lacking):
            raise SchemaMismatchError(f"The message has a column {unknown[0]} that the table lacks.", column=unknown[0])
        if lacking and (self.exact or only_keys):
            raise SchemaMismatchError(f"The message lacks the column {lacking[0].name}.", column=lacking[0].name)
        columns = []
        for column in self.schema.row_columns:
            field = fields.get(folded_name(avro_name(column.name)))
            if field is not None:
                columns.append(_named(column, field, found.field(field.name)))
            else:
                columns.append(pa.nulls(len(found), arrow_type(column.type)) if only_keys else _default(column, len(found)))
        return pa.StructArray.from_arrays(columns, fields=list(self._row))


def _changes(operations: pa.Array) -> npt.NDArray[np.int8]:
    """:class:`Change` by TiCDC's names of operations. Raises DecodeError."""
    numbers = pc.index_in(operations, pa.array(_OPERATIONS))
    if numbers.null_count:
        unknown = operations.filter(numbers.is_null())[0].as_py()
        raise DecodeError("The operation of the row is not known.", column=OPERATION, value=unknown[:_SHOWN])
    found: npt.NDArray[np.int8] = np.array(list(_OPERATIONS.values()), np.int8)[numbers.to_numpy()]
    return found


def _default(column: Column, count: int) -> pa.Array:
    """The default of a column, for rows from before it was added. Raises SchemaMismatchError if it is not known."""
    kind = column.type.kind
    if column.default is None and column.nullable and kind is not TypeKind.DECIMAL:
        return pa.nulls(count, arrow_type(column.type))
    if column.default is None or WRITTEN[kind] in (Written.CODE, Written.MOMENT) or kind in (TypeKind.BIT, TypeKind.DATETIME):
        raise SchemaMismatchError(f"The message lacks the column {column.name}, whose default is not known.", column=column.name)
    value = pa.array([column.default], pa.string())
    texts = _member_numbers(column, value) if WRITTEN[kind] is Written.MEMBER else canonical_from_text(value, column.type, "UTC")
    return pa.repeat(texts[0], count)


def _named(column: Column, field: Field, values: pa.Array) -> pa.Array:
    """:func:`_converted`. Raises DecodeError."""
    try:
        return _converted(column, field.value_type, values)
    except _AmbiguousError:
        hint = _IN_STRING_MODE
        raise DecodeError(
            f"The value {_MOST_SIGNED} of a BIGINT UNSIGNED may stand for a larger one.", column=column.name, hint=hint
        ) from None
    except ValueError:
        pass
    for value in values:
        try:
            _converted(column, field.value_type, pa.array([value.as_py()], values.type))
        except ValueError:
            shown = str(value.as_py())[:_SHOWN]
            raise DecodeError(f"The value is not a value of the type {column.type}.", column=column.name, value=shown) from None
    raise AssertionError("a value that is refused with others is refused alone")


class _AmbiguousError(ValueError):
    """A number stands for several."""


def _converted(column: Column, of: AvroType, values: pa.Array) -> pa.Array:
    """Values of an Avro type in the column's canonical type, but members as the text of their numbers. Raises ValueError."""
    if not isinstance(of, Primitive):
        raise ValueError("it is a type that TiCDC does not write")
    kind = column.type.kind
    if of.kind is Kind.BYTES:
        return _of_bytes(column, of, values)
    if kind is TypeKind.BIGINT and column.type.unsigned and of.kind is Kind.LONG:
        return _unsigned(values)
    if WRITTEN[kind] is Written.MEMBER:
        return _member_numbers(column, values.cast(pa.string()))
    is_float = of.kind in (Kind.FLOAT, Kind.DOUBLE)
    if WRITTEN[kind] is Written.CODE or (is_float and kind not in (TypeKind.FLOAT, TypeKind.DOUBLE)):
        raise ValueError("the column is of another type")
    return values.cast(arrow_type(column.type))


def _of_bytes(column: Column, of: Primitive, values: pa.Array) -> pa.Array:
    if of.logical == "decimal":
        if column.type.kind is not TypeKind.DECIMAL:
            raise ValueError("the column is no DECIMAL")
        return decimal_texts(values, of.scale)
    if WRITTEN[column.type.kind] is Written.CODE:
        return values
    if column.type.kind is not TypeKind.BIT:
        raise ValueError("the column has no bytes")
    longest = pc.max(pc.binary_length(values)).as_py()
    if longest is not None and longest > _LONGEST_BIT:
        raise ValueError("a BIT has more than eight bytes")
    numbers, _ = big_endian(values)
    return pa.array(numbers, mask=values.is_null().to_numpy(zero_copy_only=False))


def _unsigned(values: pa.Array) -> pa.Array:
    """BIGINT UNSIGNED from the signed numbers of the same 64 bits. Raises _AmbiguousError for the largest one.

    Releases of TiCDC write that one for every number that a signed one cannot hold.
    """
    numbers = values.fill_null(0).to_numpy()
    if len(numbers) and numbers.max() == _MOST_SIGNED:
        raise _AmbiguousError
    return pa.array(numbers.view(np.uint64), mask=values.is_null().to_numpy(zero_copy_only=False))


def _member_numbers(column: Column, texts: pa.Array) -> pa.Array:
    """Members of an ENUM or SET as their numbers, in text. Raises ValueError for a text that is none."""
    distinct = texts.dictionary_encode()
    places = {member: place for place, member in enumerate(column.type.elements)}
    named = [None if text is None else _member_number(column, text, places) for text in distinct.dictionary.to_pylist()]
    return pa.array(named, pa.string()).take(distinct.indices)


def _member_number(column: Column, text: str, places: Mapping[str, int]) -> str:
    members = [text] if column.type.kind is TypeKind.ENUM else text.split(",")
    if not text:
        return "0"
    if not all(member in places for member in members):
        raise ValueError("it is no member of the type")
    if column.type.kind is TypeKind.ENUM:
        return str(places[text] + 1)
    return str(sum(1 << places[member] for member in set(members)))
