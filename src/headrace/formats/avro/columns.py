"""Many values of one Avro schema as Arrow columns: each field is read of all values before the next.

Format: Apache Avro specification 1.12, "Binary Encoding". The values are read with the schema that their writer used, so that no
byte of them says what it is. Positions are vectors with one entry for each value, and a step that does not fit into its value is
found for all of them at once.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.formats.avro.schema import (
    NULL,
    Array,
    AvroType,
    Enumeration,
    Fixed,
    Kind,
    Map,
    Primitive,
    Record,
    Union,
    branch_name,
)
from headrace.formats.avro.text_arrays import MOST_TEXTS, text_places
from headrace.formats.buffer import Buffer, Mask, Positions
from headrace.formats.schema_file import MOST_COLUMNS

Wanted = Collection[str] | Mapping[str, Collection[str] | None]
"""Names of a record's fields; in a mapping, of a field that is a record only these fields, and all of it for ``None``."""
_INT = (-(1 << 31), (1 << 31) - 1)
_ARROW = {
    Kind.NULL: pa.null(),
    Kind.BOOLEAN: pa.bool_(),
    Kind.INT: pa.int32(),
    Kind.LONG: pa.int64(),
    Kind.FLOAT: pa.float32(),
    Kind.DOUBLE: pa.float64(),
    Kind.BYTES: pa.binary(),
    Kind.STRING: pa.string(),
}
_WIDTHS = {Kind.NULL: 0, Kind.BOOLEAN: 1, Kind.FLOAT: 4, Kind.DOUBLE: 8}
_TEXT = Primitive(Kind.STRING)
_LOW_HALF = np.uint64(0xFFFF_FFFF)
MOST_ITEMS = 4 * MOST_COLUMNS
"""The most items that the maps and arrays of a value may have together, without those of arrays of texts.

Each item takes a step of its own. One map or array has at most ``MOST_COLUMNS``. A schema change of the Simple Protocol has the
columns and the indexes of a table before and after it. Items of an array in another one count once for each of the two.
"""
_ENDS = "it ends in the middle of a value"
_MORE_THAN_BYTES = "it has more items than bytes"
_MANY_IN_ONE = f"it has a map or an array of more than {MOST_COLUMNS:,} items"
_MANY_ITEMS = f"it has maps and arrays of more than {MOST_ITEMS:,} items together"
_NO_SYMBOL = "it has a symbol that its enum does not have"


class BadValueError(Exception):
    """The first value that cannot be read: its number among the values, the field, and the reason as the end of a sentence."""

    def __init__(self, number: int, field: str, reason: str) -> None:
        super().__init__(reason)
        self.number, self.field, self.reason = number, field, reason


def arrow_of(schema: AvroType) -> pa.DataType:
    """The Arrow type in which :func:`read_columns` gives values of a type.

    Logical types are not applied: a decimal is its bytes. A union of null and one other type is that type, with nulls. Another
    union is a struct with a field for each branch that is not null (``branch_name``), of which at most one has a value. A map is a
    list of structs of ``key`` and ``value``, in the order of the bytes.
    """
    found: pa.DataType
    match schema:
        case Primitive():
            found = _ARROW[schema.kind]
        case Enumeration():
            found = pa.string()
        case Fixed():
            found = pa.binary()
        case Array():
            found = pa.list_(arrow_of(schema.items))
        case Map():
            found = pa.list_(pa.struct([("key", pa.string()), ("value", arrow_of(schema.values))]))
        case Record():
            found = pa.struct([pa.field(field.name, arrow_of(field.type)) for field in schema.fields])
        case Union() if schema.optional is not None:
            found = arrow_of(schema.optional)
        case Union():
            found = pa.struct([pa.field(branch_name(b), arrow_of(b)) for b in schema.branches if b != NULL])
    return found


def read_columns(schema: AvroType, values: Sequence[bytes], *, skip: int = 0, wanted: Wanted | None = None) -> pa.Array:
    """The values as one array of :func:`arrow_of`, for a record a struct array.

    ``skip`` is the number of bytes before each value (a frame). ``wanted`` are the fields of a record that the array shall have;
    the others are only stepped over. Raises BadValueError for the first value that cannot be read.
    """
    found = read_sound(schema, values, skip=skip, wanted=wanted)
    if found.bad:
        raise found.bad[min(found.bad)]
    return found.rows


class SoundValues(NamedTuple):
    """The values that can be read, and why the others cannot."""

    numbers: Sequence[int]
    """Which of the values they are, in rising order."""
    rows: pa.Array
    """As :func:`read_columns` gives them."""
    bad: Mapping[int, BadValueError]
    """By number of the value."""


def read_sound(schema: AvroType, values: Sequence[bytes], *, skip: int = 0, wanted: Wanted | None = None) -> SoundValues:
    """As :func:`read_columns`, for values some of which may not have been written with the schema. Never raises for a value."""
    if wanted is not None and not isinstance(schema, Record):
        raise ValueError("only a record has fields")
    bad: dict[int, BadValueError] = {}
    numbers = np.arange(len(values))
    while True:
        try:
            rows = _read(schema, [values[number] for number in numbers.tolist()] if bad else values, skip, wanted)
        except _UnsoundError as error:
            for step in error.steps:
                for number in numbers[step.owners].tolist():
                    bad[number] = BadValueError(number, step.field, step.reason)
            numbers = np.delete(numbers, error.owners)
        else:
            return SoundValues(numbers.tolist(), rows, bad)


class _UnsoundStep(NamedTuple):
    """All values that fail at one step: their numbers, rising, each once."""

    owners: Positions
    field: str
    reason: str


class _UnsoundError(Exception):
    """All values that fail at some steps, so that many bad ones take few attempts. Each is in one of the steps."""

    def __init__(self, steps: Sequence[_UnsoundStep]) -> None:
        super().__init__(steps[0].reason)
        self.steps = steps

    @property
    def owners(self) -> Positions:
        """The values of all steps."""
        return np.concatenate([step.owners for step in self.steps])


def _read(schema: AvroType, values: Sequence[bytes], skip: int, wanted: Wanted | None) -> pa.Array:
    reader = _Reader(values)
    at, owner = reader.begins + skip, np.arange(len(values))
    reader.require(at <= reader.ends, owner, _ENDS)
    if isinstance(schema, Record):
        found, at = reader.record(schema, at, owner, wanted)
    else:
        found, at = reader.read(schema, at, owner)
    reader.require(at == reader.ends, owner, "it has bytes behind its value")
    return found


class _Reader:
    """``at`` are positions, and ``owner`` the number of the value that each of them is in, in rising order."""

    def __init__(self, values: Sequence[bytes]) -> None:
        self._buffer = Buffer(values)
        sizes = np.fromiter(map(len, values), np.int64, len(values))
        self.ends: Positions = np.cumsum(sizes)
        self.begins: Positions = self.ends - sizes
        self._item_counts: Positions = np.zeros(len(values), np.int64)
        self._text_counts: Positions = np.zeros(len(values), np.int64)
        self._field = ""

    def require(self, sound: Mask, owner: Positions, reason: str) -> None:
        """Raises _UnsoundError unless all are sound."""
        if not sound.all():
            raise _UnsoundError([_UnsoundStep(np.unique(owner[~sound]), self._field, reason)])

    def read(self, schema: AvroType, at: Positions, owner: Positions) -> tuple[pa.Array, Positions]:
        """Values at positions, and the positions behind them."""
        match schema:
            case Primitive():
                return self._primitive(schema.kind, at, owner)
            case Record():
                return self.record(schema, at, owner, None)
            case Union():
                return self._union(schema, at, owner)
            case Array() | Map():
                return self._items(schema, at, owner)
            case Enumeration():
                numbers, at = self._places(at, owner, len(schema.symbols), _NO_SYMBOL)
                return pa.array(schema.symbols, pa.string()).take(pa.array(numbers)), at
            case Fixed():
                after = at + schema.size
                self.require(after <= self.ends[owner], owner, _ENDS)
                return self._slices(at, after), after

    def skip(self, schema: AvroType, at: Positions, owner: Positions) -> Positions:
        """The positions behind the values at positions."""
        match schema:
            case Primitive(kind) if kind in (Kind.INT, Kind.LONG):
                _, after = self._longs(at, owner)
            case Primitive(kind) if kind in (Kind.BYTES, Kind.STRING):
                _, after = self._lengths(at, owner)
            case Primitive() | Fixed():
                after = at + (schema.size if isinstance(schema, Fixed) else _WIDTHS[schema.kind])
                self.require(after <= self.ends[owner], owner, _ENDS)
            case Enumeration():
                _, after = self._places(at, owner, len(schema.symbols), _NO_SYMBOL)
            case Record():
                after = at
                for field in schema.fields:
                    after = self.skip(field.type, after, owner)
            case Union():
                branches, after = self._branches(schema, at, owner)
                for number, branch in enumerate(schema.branches):
                    own = branches == number
                    if branch != NULL and own.any():
                        after[own] = self.skip(branch, after[own], owner[own])
            case Array() | Map():
                _, _, after = self._entries(schema, at, owner)
        return after

    def record(self, schema: Record, at: Positions, owner: Positions, wanted: Wanted | None) -> tuple[pa.Array, Positions]:
        """As :meth:`read`, with only these fields."""
        parts = wanted if isinstance(wanted, Mapping) else {}
        columns, fields = [], []
        outer = self._field
        for field in schema.fields:
            self._field = outer or field.name
            if wanted is None or field.name in wanted:
                part = parts.get(field.name)
                if part is not None and isinstance(field.type, Record):
                    column, at = self.record(field.type, at, owner, part)
                else:
                    column, at = self.read(field.type, at, owner)
                columns.append(column)
                fields.append(pa.field(field.name, column.type))
            else:
                at = self.skip(field.type, at, owner)
        self._field = outer
        if not fields:
            return pa.array([{}] * len(at), pa.struct([])), at
        return pa.StructArray.from_arrays(columns, fields=fields), at

    def _primitive(self, kind: Kind, at: Positions, owner: Positions) -> tuple[pa.Array, Positions]:
        if kind is Kind.NULL:
            return pa.nulls(len(at)), at
        if kind in (Kind.INT, Kind.LONG):
            numbers, after = self._longs(at, owner)
            if kind is Kind.INT:
                self.require((numbers >= _INT[0]) & (numbers <= _INT[1]), owner, "an int has more than 32 bits")
            return pa.array(numbers.astype(np.int32) if kind is Kind.INT else numbers), after
        if kind in (Kind.BYTES, Kind.STRING):
            start, after = self._lengths(at, owner)
            found = self._slices(start, after)
            return (found if kind is Kind.BYTES else self._texts(found, owner)), after
        after = at + _WIDTHS[kind]
        self.require(after <= self.ends[owner], owner, _ENDS)
        if kind is Kind.BOOLEAN:
            flags = self._buffer.bytes[at]
            self.require(flags <= 1, owner, "a boolean is neither 0 nor 1")
            return pa.array(flags == 1), after
        words = self._buffer.words[at]
        if kind is Kind.FLOAT:
            return pa.array((words & _LOW_HALF).astype(np.uint32).view(np.float32)), after
        return pa.array(words.view(np.float64)), after

    def _longs(self, at: Positions, owner: Positions) -> tuple[npt.NDArray[np.int64], Positions]:
        raw, after, sound = self._buffer.varints(at)
        self.require(after <= self.ends[owner], owner, _ENDS)
        self.require(sound, owner, "a number has more than 64 bits")
        return (raw >> np.uint64(1)).view(np.int64) ^ -(raw & np.uint64(1)).view(np.int64), after

    def _lengths(self, at: Positions, owner: Positions) -> tuple[Positions, Positions]:
        """Where texts or bytes begin and end, whose lengths are at positions."""
        lengths, start = self._longs(at, owner)
        self.require((lengths >= 0) & (lengths <= self.ends[owner] - start), owner, _ENDS)
        return start, start + lengths

    def _slices(self, start: Positions, stop: Positions) -> pa.Array:
        return self._buffer.slices(start, stop, np.arange(len(start)))

    def _texts(self, found: pa.Array, owner: Positions) -> pa.Array:
        try:
            return found.cast(pa.string())
        except pa.ArrowInvalid:
            pass
        sound = np.fromiter(map(_is_utf8, found.to_pylist()), bool, len(found))
        self.require(sound, owner, "a text is not UTF-8")
        raise AssertionError("a text that Arrow refuses is not UTF-8")

    def _places(self, at: Positions, owner: Positions, count: int, reason: str) -> tuple[npt.NDArray[np.int64], Positions]:
        numbers, after = self._longs(at, owner)
        self.require((numbers >= 0) & (numbers < count), owner, reason)
        return numbers, after

    def _branches(self, schema: Union, at: Positions, owner: Positions) -> tuple[npt.NDArray[np.int64], Positions]:
        return self._places(at, owner, len(schema.branches), "it has a type that its union does not have")

    def _union(self, schema: Union, at: Positions, owner: Positions) -> tuple[pa.Array, Positions]:
        branches, at = self._branches(schema, at, owner)
        names, columns = [], []
        for number, branch in enumerate(schema.branches):
            if branch == NULL:
                continue
            own = branches == number
            column, at = self._branch(branch, own, at, owner)
            names.append(branch_name(branch))
            columns.append(column)
        if schema.optional is not None:
            return columns[0], at
        if not columns:
            return pa.nulls(len(at)), at
        is_null = np.array([branch == NULL for branch in schema.branches])[branches]
        fields = [pa.field(name, column.type) for name, column in zip(names, columns, strict=True)]
        return pa.StructArray.from_arrays(columns, fields=fields, mask=pa.array(is_null)), at

    def _branch(self, branch: AvroType, own: Mask, at: Positions, owner: Positions) -> tuple[pa.Array, Positions]:
        """The values of one branch, null for the others' places."""
        if own.all():
            return self.read(branch, at, owner)
        if not own.any():
            return pa.nulls(len(at), arrow_of(branch)), at
        found, after = self.read(branch, at[own], owner[own])
        at = at.copy()
        at[own] = after
        return found.take(pa.array(np.cumsum(own) - 1, mask=~own)), at

    def _items(self, schema: Array | Map, at: Positions, owner: Positions) -> tuple[pa.Array, Positions]:
        """Arrays, or the entries of maps, as lists."""
        place, starts, after = self._entries(schema, at, owner)
        offsets = np.zeros(len(at) + 1, np.int32)
        np.cumsum(np.bincount(place, minlength=len(at)), out=offsets[1:])
        owners = owner[place]
        if isinstance(schema, Array):
            found, _ = self.read(schema.items, starts, owners)
        else:
            keys, values_at = self._primitive(Kind.STRING, starts, owners)
            values, _ = self.read(schema.values, values_at, owners)
            found = pa.StructArray.from_arrays([keys, values], names=["key", "value"])
        return pa.ListArray.from_arrays(pa.array(offsets), found), after

    def _entries(self, schema: Array | Map, at: Positions, owner: Positions) -> tuple[Positions, Positions, Positions]:
        """For each item, in the order of the bytes, which of the positions it belongs to, and where it begins.

        Also the positions behind all items. They come in blocks; a negative count is followed by the size of its block in bytes.
        """
        if isinstance(schema, Array) and schema.items == _TEXT:
            return self._text_entries(at, owner)
        at = at.copy()
        left, taken = np.zeros(len(at), np.int64), np.zeros(len(at), np.int64)
        active = np.arange(len(at))
        places, starts = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        unsound: list[_UnsoundStep] = []
        while len(active):
            counted = self._item_counts, self._text_counts
            try:
                fresh = active[left[active] == 0]
                if len(fresh):
                    left[fresh], at[fresh] = self._block(at[fresh], owner[fresh], taken[fresh])
                    active = active[left[active] > 0]
                here = at[active]
                behind_key = self._lengths(here, owner[active])[1] if isinstance(schema, Map) else here
                behind = self.skip(schema.items if isinstance(schema, Array) else schema.values, behind_key, owner[active])
            except _UnsoundError as error:  # the others are read on, or values that fail at different items take a read each
                unsound.extend(error.steps)
                active = active[~np.isin(owner[active], error.owners)]
                self._item_counts, self._text_counts = counted
                continue
            places.append(active)
            starts.append(here)
            at[active] = behind
            left[active] -= 1
            taken[active] += 1
        if unsound:
            raise _UnsoundError(unsound)
        place, start = np.concatenate(places), np.concatenate(starts)
        order = np.argsort(start, kind="stable")
        return place[order], start[order], at

    def _block(self, at: Positions, owner: Positions, taken: Positions) -> tuple[Positions, Positions]:
        """How many items the blocks at positions have, and where the first item of each begins.

        ``taken``: how many their maps and arrays have before them.
        """
        counts, at = self._longs(at, owner)
        sized = counts < 0
        if sized.any():
            _, at[sized] = self._longs(at[sized], owner[sized])
            counts = np.abs(counts)
        # Each item of a list that TiCDC or Debezium writes has at least one byte.
        self.require((counts >= 0) & (counts <= self.ends[owner] - at), owner, _MORE_THAN_BYTES)
        self.require(taken + counts <= MOST_COLUMNS, owner, _MANY_IN_ONE)
        found = self._item_counts + np.bincount(owner, counts, len(self._item_counts)).astype(np.int64)
        self.require(found[owner] <= MOST_ITEMS, owner, _MANY_ITEMS)
        self._item_counts = found
        return counts, at

    def _text_entries(self, at: Positions, owner: Positions) -> tuple[Positions, Positions, Positions]:
        """As :meth:`_entries`, for arrays of texts. It takes one after the other: an ENUM may have thousands of members."""
        lengths, starts, after = np.zeros(len(at), np.int64), array("q"), at.copy()
        room = (MOST_TEXTS - self._text_counts).tolist()
        unsound: dict[int, str] = {}
        for number, (begin, own) in enumerate(zip(at.tolist(), owner.tolist(), strict=True)):
            if own in unsound:
                continue
            try:
                found, after[number] = text_places(self._buffer.data, begin, int(self.ends[own]), room[own])
            except ValueError as error:
                unsound[own] = str(error)
                continue
            room[own] -= len(found)
            lengths[number] = len(found)
            starts.extend(found)
        if unsound:
            by_reason = sorted(unsound.items(), key=itemgetter(1, 0))
            groups = groupby(by_reason, key=itemgetter(1))
            raise _UnsoundError([_UnsoundStep(np.array([o for o, _ in own]), self._field, reason) for reason, own in groups])
        self._text_counts = MOST_TEXTS - np.array(room, np.int64)
        return np.repeat(np.arange(len(at)), lengths), np.array(starts, np.int64), after


def _is_utf8(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def decimal_texts(values: pa.Array, scale: int) -> pa.Array:
    """Bytes of the logical type ``decimal`` as MySQL's text of the numbers: ``scale`` digits behind the point.

    The bytes are a two's complement number, the highest byte first (Avro specification, "Decimal"). Raises ValueError for none.
    """
    lengths = pc.binary_length(values)
    shortest, longest = pc.min_max(lengths).as_py().values()
    if shortest == 0:
        raise ValueError("a decimal has no bytes")
    if longest is None or longest <= 8:
        numbers = pa.array(_whole_numbers(values), pa.int64(), mask=values.is_null().to_numpy(zero_copy_only=False))
        digits = pc.utf8_lpad(pc.abs_checked(numbers).cast(pa.string()), scale + 1, "0") if _has_abs(numbers) else None
        if digits is not None:
            sign = pc.if_else(pc.less(numbers, 0), "-", "")
            if not scale:
                return pc.binary_join_element_wise(sign, digits, "")
            whole = pc.utf8_slice_codeunits(digits, 0, -scale)
            return pc.binary_join_element_wise(sign, whole, ".", pc.utf8_slice_codeunits(digits, -scale), "")
    return pa.array([None if value is None else decimal_text(value, scale) for value in values.to_pylist()], pa.string())


def _has_abs(numbers: pa.Array) -> bool:
    least = pc.min(numbers).as_py()
    return least is None or least > -(1 << 63)


def decimal_text(value: bytes, scale: int) -> str:
    """One value of :func:`decimal_texts`."""
    number = int.from_bytes(value, "big", signed=True)
    digits = str(abs(number)).rjust(scale + 1, "0")
    sign = "-" if number < 0 else ""
    return f"{sign}{digits[:-scale]}.{digits[-scale:]}" if scale else f"{sign}{digits}"


def _whole_numbers(values: pa.Array) -> npt.NDArray[np.int64]:
    """Numbers of one to eight bytes, the highest first; 0 for null."""
    unsigned, lengths = big_endian(values)
    # The sign bit is moved to the top and back.
    shift = np.where(lengths > 0, 64 - 8 * lengths, 0)
    return (unsigned << shift.astype(np.uint64)).view(np.int64) >> shift


def big_endian(values: pa.Array) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.int64]]:
    """Numbers of at most eight bytes each, the highest first, and how many bytes each has; 0 for null."""
    lengths = pc.fill_null(pc.binary_length(values), 0).to_numpy().astype(np.int64)
    filled = pc.fill_null(values, b"")
    buffer = Buffer([filled.cast(pa.binary()).buffers()[2] or b""])
    offsets = np.frombuffer(filled.buffers()[1], np.int32, len(filled) + 1, filled.offset * 4).astype(np.int64)
    words = buffer.words[offsets[:-1]].byteswap()
    shift = (64 - 8 * lengths).astype(np.uint64)
    return np.where(lengths > 0, words >> np.where(lengths > 0, shift, 0).astype(np.uint64), np.uint64(0)), lengths
