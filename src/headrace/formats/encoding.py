"""What all encoders share: how they report what a format cannot carry, the changes in a block, and how lines are put together.

An encoder is the reverse of a decoder. It takes batches in the layout of ``headrace.model.block`` and works on whole columns. An
UPDATE_BEFORE must be followed by its UPDATE_AFTER, as all decoders yield them; an UPDATE_AFTER may stand alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.formats.value_texts import Exponents, float_texts, timestamps_in_zone
from headrace.formats.values import bad_places, numbers_from_members
from headrace.model.block import COMMIT_TS, KIND, META_COUNT
from headrace.model.events import RowKind
from headrace.model.table import Column, TableId, TableSchema, folded_name
from headrace.model.types import TypeKind

_SHOWN = 100
_MOST_SMALL = (1 << 31) - 1
"""The bytes that an array with offsets of 32 bits holds."""

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]


class EncodeError(Exception):
    """A format cannot carry a change or a value. ``str()`` is a sentence with the table and, where there is one, column and value.

    ``row`` is the row's number in the batch, from 0.
    """

    def __init__(
        self, table_id: TableId, reason: str, *, column: str = "", value: object = None, row: int | None = None, hint: str = ""
    ) -> None:
        """``reason`` is the rest of a sentence that begins with the table, or the column and the table."""
        where = f"Column {column} of {table_id}" if column else f"Table {table_id}"
        shown = "" if value is None else f" The value is {str(value)[:_SHOWN]!r}."
        super().__init__(f"{where} {reason}.{shown}{f' {hint}' if hint else ''}")
        self.table_id = table_id
        self.reason = reason
        self.column = column
        self.value = value
        self.row = row
        self.hint = hint


@dataclass(frozen=True)
class Changes:
    """The changes in a batch, in order; each has a row, and an update may have an old row as well."""

    kinds: npt.NDArray[np.int8]
    """By change, INSERT, UPDATE_AFTER or DELETE (``RowKind``)."""
    rows: IntArray
    """By change, the number of its row in the batch: the old one of a deletion, else the new one."""
    has_old: BoolArray
    """By change, whether the row before its row in the batch is its old row."""

    @property
    def is_whole(self) -> bool:
        """Whether each row of the batch is a change by itself."""
        return not self.has_old.any()


def changes_of(batch: pa.RecordBatch, table_id: TableId) -> Changes:
    """The changes in a batch. Raises EncodeError for an old row without its new row, which must have the same commit ts."""
    kinds = batch.column(KIND).to_numpy()
    is_old = kinds == RowKind.UPDATE_BEFORE
    if not is_old.any():
        return Changes(kinds, np.arange(len(kinds), dtype=np.int64), is_old)
    commit_ts = batch.column(COMMIT_TS).to_numpy()
    is_paired = np.zeros(len(kinds), bool)
    is_paired[:-1] = (kinds[1:] == RowKind.UPDATE_AFTER) & (commit_ts[1:] == commit_ts[:-1])
    alone = np.flatnonzero(is_old & ~is_paired)
    if len(alone):
        raise EncodeError(table_id, "has an old row of an update that is not followed by the new row", row=int(alone[0]))
    rows = np.flatnonzero(~is_old)
    return Changes(kinds[rows], rows, np.concatenate([[False], is_old[:-1]])[rows])


def carried(batch: pa.RecordBatch, schema: TableSchema, columns: Sequence[Column]) -> list[pa.Array]:
    """The values of these columns, without those that a column selector leaves out. Raises EncodeError if the batch lacks one."""
    places = {folded_name(name): place for place, name in enumerate(batch.schema.names[META_COUNT:], META_COUNT)}
    found = []
    for column in columns:
        place = places.pop(folded_name(column.name), None)
        if place is None:
            raise EncodeError(
                schema.table_id,
                "is not in the rows, and each row of a file or topic must have the same columns",
                column=column.name,
                hint="Leave it out of the rows with the column selector that the source uses.",
            )
        found.append(batch.column(place))
    return found


def converted(
    values: pa.Array, convert: Callable[[pa.Array], pa.Array], column: Column, table_id: TableId, reason: str
) -> pa.Array:
    """``convert(values)``. If that raises ValueError, raises EncodeError with the first bad value and with ``reason``."""
    try:
        return convert(values)
    except ValueError as error:
        for row in bad_places(lambda start, stop: convert(values.slice(start, stop - start)), len(values)):
            value = values[row].as_py()
            raise EncodeError(table_id, reason, column=column.name, value=value, row=row) from error
        raise


def number_texts(values: pa.Array, exponents: Exponents | None, column: Column, table_id: TableId) -> pa.Array:
    """Numbers as text; floating ones as ``float_texts`` has them. Raises EncodeError for one that is infinite, or no number."""
    if not pa.types.is_floating(values.type):
        return values.cast(pa.string())
    return converted(values, lambda part: float_texts(part, exponents), column, table_id, "has a value that is no number")


def moment_texts(values: pa.Array, zone: str, column: Column, table_id: TableId) -> pa.Array:
    """Canonical TIMESTAMPs as text in a time zone. Raises EncodeError."""
    reason = f"has a value that is no TIMESTAMP, so it has no text in the time zone {zone}"
    return converted(values, lambda part: timestamps_in_zone(part, zone), column, table_id, reason)


def member_numbers(values: pa.Array, column: Column, table_id: TableId, protocol: str) -> pa.Array:
    """ENUM and SET as the text of their numbers. Raises EncodeError for a value that is not among the members, or if these are not
    known; then only the empty value, 0, has a number."""
    kind = column.type.kind
    if column.type.elements:
        reason = f"has a value that is not among the members of the {kind}"
        return converted(values, lambda part: numbers_from_members(part, column.type), column, table_id, reason)
    bad = first_place(pc.not_equal(values, pa.scalar("", values.type)))
    if bad is None:
        return pc.if_else(values.is_valid(), "0", pa.scalar(None, pa.string()))
    article = "an" if kind is TypeKind.ENUM else "a"
    reason = f"is {article} {kind} whose members are not known, and {protocol} writes their numbers"
    hint = "Use a protocol that writes members, such as CSV."
    raise EncodeError(table_id, reason, column=column.name, value=values[bad].as_py(), row=bad, hint=hint)


@contextmanager
def rows_from(rows: IntArray) -> Iterator[None]:
    """Within it, rows were taken from a batch: ``rows`` are their numbers there, which an EncodeError then has."""
    try:
        yield
    except EncodeError as error:
        error.row = None if error.row is None else int(rows[error.row])
        raise


def first_place(chosen: pa.Array | BoolArray) -> int | None:
    """The first place whose value is true; ``None`` if there is none."""
    mask = chosen if isinstance(chosen, np.ndarray) else pc.fill_null(chosen, False).to_numpy(zero_copy_only=False)
    places = np.flatnonzero(mask)
    return int(places[0]) if len(places) else None


@dataclass
class Line:
    """The text of each row as a sequence of pieces, which are the same in all rows or come from a column of texts."""

    pieces: list[str | pa.Array] = field(default_factory=list)

    def text(self, text: str) -> None:
        """Appends the same text to all lines."""
        if self.pieces and isinstance(self.pieces[-1], str):
            self.pieces[-1] += text
        else:
            self.pieces.append(text)

    def texts(self, texts: pa.Array) -> None:
        """Appends its own text (string or large_string) to each line."""
        self.pieces.append(texts)

    def quoted(self, texts: pa.Array, mark: str) -> None:
        """Appends its own text, between two marks, to each line. NULL gets no marks."""
        if texts.null_count:
            around = pa.scalar(mark, texts.type)
            self.texts(pc.binary_join_element_wise(around, texts, around, pa.scalar("", texts.type)))
        else:
            self.text(mark)
            self.texts(texts)
            self.text(mark)

    def chosen(self, choices: Sequence[str], places: npt.NDArray[np.integer]) -> None:
        """Appends one of a few texts to each line: the one at the row's place."""
        if len(places) and (places == places[0]).all():
            self.text(choices[places[0]])
        else:
            self.texts(pa.array(choices, pa.string()).take(pa.array(places)))

    def listed(self, members: Sequence[Line]) -> None:
        """Appends lines with commas between them."""
        for number, member in enumerate(members):
            self.text("," if number else "")
            self.extend(member)

    def extend(self, other: Line) -> None:
        """Appends the pieces of another line."""
        for piece in other.pieces:
            if isinstance(piece, str):
                self.text(piece)
            else:
                self.texts(piece)

    def joined(self, rows: int, null: str) -> pa.Array:
        """The line of each of the rows, as string, or as large_string if all lines have 2 GiB or more. NULL becomes ``null``.

        This is the only copy of the texts: the data of the array are the bytes of all lines, one after another.
        """
        pieces = self.pieces or [""]
        arrays = [piece for piece in pieces if isinstance(piece, pa.Array)]
        size = sum(len(piece.encode()) * rows for piece in pieces if isinstance(piece, str))
        size += sum(array.nbytes + array.null_count * len(null.encode()) for array in arrays)
        wide = size > _MOST_SMALL or any(pa.types.is_large_string(array.type) for array in arrays)
        kind = pa.large_string() if wide else pa.string()
        if not arrays:
            return pa.repeat(pa.scalar("".join(map(str, pieces)), kind), rows)
        parts = [piece.cast(kind) if isinstance(piece, pa.Array) else pa.scalar(piece, kind) for piece in pieces]
        return pc.binary_join_element_wise(*parts, pa.scalar("", kind), null_handling="replace", null_replacement=null)


def changed_members(members: Sequence[Line], old: Sequence[pa.Array], new: Sequence[pa.Array]) -> pa.Array:
    """The JSON members of each old row that are not the same in the new row.

    ``members`` are the columns of the old rows; ``old`` and ``new`` are their values as text.
    """
    line = Line()
    for member, before, after in zip(members, old, new, strict=True):
        same = pc.or_(pc.and_(before.is_null(), after.is_null()), pc.fill_null(pc.equal(before, after), False))
        separated = Line([","])
        separated.extend(member)
        line.texts(pc.if_else(same, "", separated.joined(len(before), "null")))
    # The first one must have no comma.
    return pc.utf8_slice_codeunits(line.joined(len(old[0]), ""), 1)


def data_of(lines: pa.Array) -> pa.Buffer:
    """The bytes of all strings without nulls, one after another, without a copy."""
    _, offsets, data = lines.buffers()
    if data is None or not len(lines):
        return pa.py_buffer(b"")
    bounds = np.frombuffer(offsets, np.int64 if pa.types.is_large_string(lines.type) else np.int32)
    first, last = int(bounds[lines.offset]), int(bounds[lines.offset + len(lines)])
    return data.slice(first, last - first)
