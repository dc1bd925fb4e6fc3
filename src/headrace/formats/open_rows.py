"""Reads the rows of TiCDC's Open Protocol: values of events, each a line.

Format: TiCDC documentation, "TiCDC Open Protocol". ``u`` is the row after an insert or update, ``p`` the one before an update, and
``d`` a deleted one. A column is ``{"t": type code, "h": is in the handle key, "f": flags, "v": value}``. With
``only-output-updated-columns``, ``p`` has only the columns that changed.

In that mode TiCDC writes a column that became NULL without its name: ``t``, ``h``, ``f`` and ``v`` then stand directly in ``p``.
The value belongs to the one column that is NULL now and has the same type and flags. If several are, the old row is not known.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.formats.alike_lines import ShapedLines, read_shaped
from headrace.formats.base import BytesOrTextError, DecodeError, SchemaMismatchError
from headrace.formats.json_lines import Members, null_members, read_lines, read_object
from headrace.formats.open_shapes import VALUE, OpenShape, open_shape
from headrace.formats.row_images import BoolArray, Change, Images, handle_names, is_binary_type, named_columns, require_columns
from headrace.formats.values import binary_from_base64, timestamps_to_utc
from headrace.model.table import Column, TableSchema, folded_name
from headrace.model.types import BINARY_KINDS, CHARACTER_KINDS, INTEGER_KINDS, ColumnType, TypeKind, TypeMap, arrow_type, each
from headrace.model.writable_text import is_unicode

_BINARY_FLAG = 1
_NULL_CODE = 6
_SIDES = ("u", "p", "d")
_OLD_LOST = "old_lost"
_CHANGE = "change"
_SHOWN = 100
_BLOBS = frozenset({249, 250, 251, 252})
_STRINGS = frozenset({15, 253, 254})
_TEXT_KINDS = frozenset({TypeKind.TINYTEXT, TypeKind.TEXT, TypeKind.MEDIUMTEXT, TypeKind.LONGTEXT})
_BLOB_KINDS = frozenset({TypeKind.TINYBLOB, TypeKind.BLOB, TypeKind.MEDIUMBLOB, TypeKind.LONGBLOB})
CODES = TypeMap(
    "type codes of the Open Protocol",
    each(INTEGER_KINDS, frozenset({1, 2, 3, 8, 9})),
    each(_TEXT_KINDS | _BLOB_KINDS, _BLOBS),
    each(CHARACTER_KINDS - _TEXT_KINDS | BINARY_KINDS - _BLOB_KINDS, _STRINGS),
    {TypeKind.BIT: frozenset({16}), TypeKind.YEAR: frozenset({13})},
    {TypeKind.FLOAT: frozenset({4}), TypeKind.DOUBLE: frozenset({5}), TypeKind.DECIMAL: frozenset({0, 246})},
    {TypeKind.DATE: frozenset({10, 14}), TypeKind.TIME: frozenset({11}), TypeKind.DATETIME: frozenset({12})},
    {TypeKind.TIMESTAMP: frozenset({7}), TypeKind.ENUM: frozenset({247}), TypeKind.SET: frozenset({248})},
    {TypeKind.JSON: frozenset({245}), TypeKind.VECTOR: frozenset({225})},
)
"""MySQL's type codes by which a value is written. Codes of one set are written in the same way."""
_ESCAPED = re.compile(rb"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([abfnrtv\\\"'])|(.?))", re.DOTALL)
_CONTROLS = dict(zip(b"abfnrtv\\\"'", b"\a\b\f\n\r\t\v\\\"'", strict=True))


@dataclass(frozen=True)
class OpenRowReader:
    """A :class:`headrace.formats.row_images.LineReader`."""

    schema: TableSchema
    time_zone: str = "UTC"
    """The zone of TIMESTAMP text: TiCDC's ``--tz``."""

    @cached_property
    def _row_schema(self) -> pa.Schema:
        columns = [pa.field(column.name, _member_type(column.type)) for column in self.schema.row_columns]
        return pa.schema([(side, pa.struct(columns)) for side in _SIDES])

    @cached_property
    def single_schema(self) -> pa.Schema:
        """See ``LineReader.single_schema``."""
        return self._row_schema.append(pa.field(_OLD_LOST, pa.bool_()))

    @cached_property
    def _values_schema(self) -> pa.Schema:
        """Of rows of which only the values were read, see :meth:`_images_of_values`."""
        row = pa.struct([pa.field(column.name, _value_type(column.type)) for column in self.schema.row_columns])
        return pa.schema([(_CHANGE, pa.int8()), ("new", row), ("old", row)])

    def parse(self, lines: Sequence[bytes]) -> pa.RecordBatch:
        """See ``LineReader.parse``. Lines of few shapes are read by these, and others member by member."""
        try:
            return self._parse_values(lines)
        except ValueError:
            return self._parse_members(lines)

    def _parse_values(self, lines: Sequence[bytes]) -> pa.RecordBatch:
        """The values of lines of few shapes. Raises ValueError."""
        types = {column.name: _value_type(column.type) for column in self.schema.row_columns}
        parts = read_shaped(lines, VALUE, lambda line: open_shape(line, types))
        found = pa.concat_batches([self._rows_of(part) for part in parts])
        if len(parts) == 1:
            return found
        return found.take(pa.array(np.argsort(np.concatenate([part.numbers for part in parts]))))

    def _rows_of(self, lines: ShapedLines[OpenShape]) -> pa.RecordBatch:
        """The rows in lines of a shape, as :attr:`_values_schema`. Raises ValueError if they are not those of the table."""
        rows: dict[str, dict[str, pa.Array]] = {}
        for cell, values in zip(lines.shape.cells, lines.values, strict=True):
            column = self.schema.row_columns_by_name[folded_name(cell.name)]
            if values.null_count < len(values) and not _is_written_as(column.type, cell.code, cell.flags):
                raise ValueError("a value is of another type")
            rows.setdefault(cell.side, {})[cell.name] = values
        if not self._has_columns(rows):
            raise ValueError("a row lacks a column")
        change = Change.DELETE if "d" in rows else Change.UPDATE if "p" in rows else Change.INSERT
        new = self._row(rows.get("u", rows.get("d", {})), {}, len(lines.numbers))
        old = self._row(rows["p"], rows["u"], len(lines.numbers)) if "p" in rows else new
        return pa.record_batch([pa.repeat(pa.scalar(change, pa.int8()), len(new)), new, old], schema=self._values_schema)

    def _has_columns(self, rows: Mapping[str, Mapping[str, object]]) -> bool:
        try:
            self._require(rows)
        except SchemaMismatchError:
            return False
        return True

    def _row(self, row: Mapping[str, pa.Array], otherwise: Mapping[str, pa.Array], count: int) -> pa.StructArray:
        of = self._values_schema.field("new").type
        values = [row.get(field.name, otherwise.get(field.name)) for field in of]
        return pa.StructArray.from_arrays(
            [pa.nulls(count, field.type) if found is None else found for field, found in zip(of, values, strict=True)], fields=of
        )

    def _parse_members(self, lines: Sequence[bytes]) -> pa.RecordBatch:
        """Lines with all members of columns. Raises ValueError.

        A column without a value looks like NULL to Arrow, and so do its lines like those with one.
        """
        found = read_lines(lines, self._row_schema, unexpected="error")
        texts, names = b"\n".join(lines), [column.name for column in self.schema.row_columns]
        named = sum(len(column) - column.null_count for side in found.columns for column in side.flatten())
        # "v": cannot occur in a string, whose quotes are escaped.
        if texts.count(b'"v":') - texts.count(b'"v":{') != named or null_members(texts, names) != texts.count(b'"v":null'):
            raise ValueError("a column has no value")
        return found

    def images(self, lines: pa.RecordBatch) -> Images:
        """See ``LineReader.images``."""
        if _CHANGE in lines.schema.names:
            new, old = (lines.column(side).flatten() for side in ("new", "old"))
            return Images(lines.column(_CHANGE).to_numpy(), new, old)
        return self._images_of_members(lines)

    def _images_of_members(self, lines: pa.RecordBatch) -> Images:
        sides = [lines.column(side) for side in _SIDES]
        has_new, has_old, has_gone = (pc.is_valid(side).to_numpy(False) for side in sides)
        if (has_new == has_gone).any() or (has_old & has_gone).any():
            raise ValueError("a row is neither new nor deleted")
        lost = np.zeros(len(has_new), bool)
        if _OLD_LOST in lines.schema.names:
            lost = pc.fill_null(lines.column(_OLD_LOST), False).to_numpy(False)
        changes = np.where(has_gone, Change.DELETE, np.where(has_old, Change.UPDATE, Change.INSERT))
        changes = np.where(lost, Change.UPDATE_WITHOUT_OLD, changes).astype(np.int8)
        handle, new, old = handle_names(self.schema), [], []
        for column, *parts in zip(self.schema.row_columns, *(side.flatten() for side in sides), strict=True):
            of_new, of_old, of_gone = parts
            _check_codes(column, parts)
            if (has_new & _is_null(of_new)).any() or (folded_name(column.name) in handle and (has_gone & _is_null(of_gone)).any()):
                raise ValueError("a row lacks a column")
            values, gone = pc.struct_field(of_new, "v"), pc.struct_field(of_gone, "v")
            told = pc.is_valid(of_old)
            new.append(values if not has_gone.any() else pc.if_else(pa.array(has_gone), gone, values))
            old.append(pc.if_else(told, pc.struct_field(of_old, "v"), values) if has_old.any() else values)
        return Images(changes, new, old)

    def convert(self, column: Column, values: pa.Array) -> pa.Array:
        """See ``LineReader.convert``."""
        return _CONVERTED[column.type.kind](values, self.time_zone)

    def parse_one(self, line: bytes) -> dict[str, object]:
        """See ``LineReader.parse_one``."""
        try:
            members = read_object(line)
        except ValueError as error:
            raise DecodeError(f"The message cannot be read: {error}", value=_shown(line)) from None
        sides = {side: members[side] for side in _SIDES if members.get(side) is not None}
        if sides.keys() not in ({"u"}, {"u", "p"}, {"d"}):
            raise DecodeError("The message has neither a new row in u nor a deleted one in d.", value=_shown(line))
        rows: dict[str, dict[str, object]] = {}
        lost = False
        for side, row in sides.items():
            if not isinstance(row, Members):
                raise DecodeError(f"The row in {side} is not a JSON object.", value=_shown(line))
            rows[side] = self._columns(row)
        if "p" in sides:
            before, after = sides["p"], sides["u"]
            assert isinstance(before, Members)
            assert isinstance(after, Members)
            lost = self._attribute(before, after, rows["p"])
        self._require(rows)
        if lost:
            del rows["p"]
        return {**rows, _OLD_LOST: lost}

    def _columns(self, row: Members) -> dict[str, object]:
        """The named columns of a row, by the names of the schema. Raises DecodeError."""
        named = ((name, cell) for name, cell in row.items() if isinstance(cell, Members) or name not in ("t", "h", "f", "v"))
        return named_columns(self.schema, named, _cell)

    def _attribute(self, before: Members, after: Members, old: dict[str, object]) -> bool:
        """Gives values without a column's name in an old row to their columns in ``old``. Returns whether one is left over.

        Raises DecodeError if the row's key may then be unknown.
        """
        null = {name: now for name, now in after.items() if isinstance(now, Members) and now.get("v") is None}
        free = {name: now for name, now in null.items() if not isinstance(before.get(name), Members)}
        taken: set[str] = set()
        lost = False
        for cell in _groups([(name, value) for name, value in before.pairs if not isinstance(value, Members)]):
            fits = [name for name, now in free.items() if _alike(now, cell)]
            if len(fits) != 1 or fits[0] in taken:
                lost = True
                continue
            taken.add(fits[0])
            column = self.schema.row_columns_by_name.get(folded_name(fits[0]))
            if column is not None:
                old[column.name] = _cell(column, cell)
        handle = handle_names(self.schema)
        if lost and (not self.schema.handle_key or any(folded_name(name) in handle for name in old)):
            raise DecodeError("The message does not say to which columns values of the old row belong.")
        return lost

    def _require(self, rows: Mapping[str, Collection[str]]) -> None:
        """Raises SchemaMismatchError if a row lacks a column that it must have."""
        for side, row in rows.items():
            if side != "p":
                require_columns(self.schema, row, whole=side == "u")


def _member_type(column_type: ColumnType) -> pa.DataType:
    """The Arrow type of a column in a row."""
    return pa.struct([("t", pa.int64()), ("h", pa.bool_()), ("f", pa.int64()), ("v", _value_type(column_type))])


def _value_type(column_type: ColumnType) -> pa.DataType:
    """The Arrow type of a value as it is written."""
    if column_type.kind in (TypeKind.ENUM, TypeKind.SET):
        return pa.uint64()
    return pa.string() if is_binary_type(column_type) else arrow_type(column_type)


def _is_null(values: pa.Array) -> BoolArray:
    return np.asarray(pc.is_null(values).to_numpy(zero_copy_only=False))


def _check_codes(column: Column, parts: Sequence[pa.Array]) -> None:
    """Raises ValueError if a value is not written as one of the column's type, or a NULL has no type code and flags."""
    for part in parts:
        told = part.drop_null()
        if not all(_is_small(number) for name in ("t", "f") for number in pc.unique(pc.struct_field(told, name)).to_pylist()):
            raise ValueError("a column has no type code and flags")
        cells = part.filter(pc.is_valid(pc.struct_field(part, "v")))
        codes = pc.unique(pc.struct_field(cells, "t")).to_pylist()
        flags = pc.unique(pc.struct_field(cells, "f")).to_pylist()
        if not all(_is_written_as(column.type, code, flag) for code in codes for flag in flags):
            raise ValueError("a value is of another type")


def _is_written_as(column_type: ColumnType, code: object, flag: object) -> bool:
    if code not in CODES[column_type.kind] or not isinstance(flag, int):
        return False
    return column_type.kind not in CHARACTER_KINDS | BINARY_KINDS or bool(flag & _BINARY_FLAG) == is_binary_type(column_type)


def _cell(column: Column, cell: object) -> dict[str, object]:
    """A column of a row with a value of the type that Arrow expects. Raises DecodeError."""
    if not isinstance(cell, dict) or "v" not in cell:
        raise DecodeError("The column has no value.", column=column.name, value=_shown(str(cell)))
    code, flag, value = cell.get("t"), cell.get("f", 0), cell["v"]
    if not _is_small(code) or not _is_small(flag):
        raise DecodeError("The column has no type code and flags.", column=column.name, value=_shown(str(cell)))
    if value is None:
        return {"t": code, "h": None, "f": flag, "v": None}
    if not _is_written_as(column.type, code, flag):
        if _is_written_as(column.type, code, flag ^ _BINARY_FLAG):
            raise BytesOrTextError(column.name, holds_bytes=not is_binary_type(column.type))
        told = f"The value has the type code {code} and the flags {flag}, which is not how a {column.type} is written."
        raise DecodeError(told, column=column.name, value=_shown(str(value)))
    fitting = _fitting(value, _value_type(column.type))
    if fitting is None:
        raise DecodeError(f"The value is not a value of the type {column.type}.", column=column.name, value=_shown(str(value)))
    return {"t": code, "h": None, "f": flag, "v": fitting}


def _is_small(number: object) -> bool:
    return isinstance(number, int) and not isinstance(number, bool) and 0 <= number < 1 << 32


def _fitting(value: object, of: pa.DataType) -> object:
    """The value if it is one of the Arrow type, else ``None``."""
    if pa.types.is_string(of):
        return value if isinstance(value, str) and is_unicode(value) else None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if pa.types.is_floating(of):
        return float(value) if math.isfinite(value) else None
    least, most = (0, (1 << 64) - 1) if pa.types.is_uint64(of) else (-(1 << 63), (1 << 63) - 1)
    return value if isinstance(value, int) and least <= value <= most else None


def _groups(nameless: Sequence[tuple[str, object]]) -> list[dict[str, object]]:
    """Members without a column's name, one group for each column: each begins with its type code."""
    groups: list[dict[str, object]] = []
    for name, value in nameless:
        if name == "t" or not groups:
            groups.append({})
        groups[-1][name] = value
    return groups


def _alike(now: Mapping[str, object], cell: Mapping[str, object]) -> bool:
    return now.get("t") in (cell.get("t"), _NULL_CODE) and now.get("f", 0) == cell.get("f", 0)


def _shown(text: str | bytes) -> str:
    return (text.decode("utf-8", "replace") if isinstance(text, bytes) else text)[:_SHOWN]


def unquoted(texts: pa.Array) -> pa.Array:
    """Strings that Go quoted (``strconv.Quote``, without the outer quotes) to their bytes. Raises ValueError."""
    found = [None if text is None else _ESCAPED.sub(_unescaped, text) if b"\\" in text else text for text in _bytes(texts)]
    return pa.array(found, pa.binary())


def _bytes(texts: pa.Array) -> list[bytes | None]:
    return list(pc.cast(texts, pa.binary()).to_pylist())


def _unescaped(found: re.Match[bytes]) -> bytes:
    byte, short, long, control, _other = found.groups()
    if byte is not None:
        return bytes([int(byte, 16)])
    if short is not None or long is not None:
        # Raises UnicodeEncodeError, a ValueError, for a surrogate; chr raises one above U+10FFFF.
        return chr(int(short or long, 16)).encode()
    if control is None:
        raise ValueError("a backslash begins no escape of Go")
    return bytes([_CONTROLS[control[0]]])


def _same(values: pa.Array, _zone: str) -> pa.Array:
    return values


_CONVERTED: TypeMap[Callable[[pa.Array, str], pa.Array]] = TypeMap(
    "conversions of the Open Protocol",
    each(TypeKind, _same),
    each(_BLOB_KINDS, lambda values, _zone: binary_from_base64(values)),
    each(_TEXT_KINDS, lambda values, _zone: pc.cast(binary_from_base64(values), pa.string())),
    each(BINARY_KINDS - _BLOB_KINDS, lambda values, _zone: unquoted(values)),
    each({TypeKind.ENUM, TypeKind.SET}, lambda values, _zone: pc.cast(values, pa.string())),
    {TypeKind.TIMESTAMP: timestamps_to_utc},
)
