"""Converts canal-JSON messages, already read as columns of text, to rows of a block."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.formats.base import MEMBER_TIMES, OverlongMembersError
from headrace.formats.values import (
    WRITTEN,
    NoRoomError,
    Written,
    binary_from_latin1,
    canonical_from_text,
    members_from_numbers,
)
from headrace.model.block import META_FIELDS
from headrace.model.events import RowKind
from headrace.model.table import Column, TableSchema, folded_name
from headrace.model.tso import LOGICAL_BITS, MAX_TSO
from headrace.model.types import arrow_type

_INSERT, _UPDATE, _DELETE = range(3)
TYPES = ("INSERT", "UPDATE", "DELETE")
_KINDS = np.array([RowKind.INSERT, RowKind.UPDATE_AFTER, RowKind.DELETE], np.int8)
ROWS_PER_MESSAGE = 2

BoolArray = npt.NDArray[np.bool_]


class OldNulls(Protocol):
    """Distinguishes NULL in old rows from a missing column. As Arrow columns both look like NULL."""

    def says_null(self, key: str, messages: BoolArray) -> BoolArray:
        """Which of the ``messages`` (a mask) have NULL for a column in their old row, not a missing column. Raises ValueError."""
        ...


@dataclass(frozen=True)
class CarriedColumn:
    """A column that the messages carry, with its name in the messages. Its type has the known members."""

    key: str
    column: Column


@dataclass(frozen=True)
class CanalReader:
    """Converts the messages of one file to rows. With ``old_images`` false it emits old rows only if the handle key moved.

    ``exact``: each message has a commit ts, because a message of the file has the TiDB extension. Else there is only ``es``.
    """

    schema: TableSchema
    carried: tuple[CarriedColumn, ...]
    time_zone: str
    old_images: bool
    exact: bool = True

    @cached_property
    def keys(self) -> Mapping[str, str]:
        """By folded name, the names of the columns in the messages."""
        return {folded_name(carried.key): carried.key for carried in self.carried}

    @cached_property
    def passed_over(self) -> frozenset[str]:
        """The folded names of the table's columns that rows need not carry and that are not read."""
        needed = {folded_name(column.name) for column in self.schema.row_columns}
        return frozenset(folded_name(column.name) for column in self.schema.columns) - needed

    def arrow_schema(self) -> pa.Schema:
        """The parts of a message to read: ``type``, ``es``, ``data``, ``old`` and ``_tidb.commitTs``."""
        row = pa.list_(pa.struct([pa.field(carried.key, pa.string()) for carried in self.carried]))
        fields = [("type", pa.string()), ("es", pa.int64()), ("data", row), ("old", row)]
        return pa.schema([*fields, ("_tidb", pa.struct([("commitTs", pa.int64())]))])

    def build(self, messages: pa.RecordBatch, number: int, size: int, old_nulls: OldNulls | None = None) -> pa.RecordBatch:
        """The rows of messages in the shape of :meth:`arrow_schema`. Raises ValueError for an invalid value, and
        OverlongMembersError.

        ``number`` is the number of the first message in the file, ``size`` the bytes of all messages there. Each message has two
        values of ``seq``, the second for its new row. So an old row comes before the new one, and ``seq`` does not depend on
        ``old_images``. An old row may have all columns or only the changed ones; this differs between messages, and ``old_nulls``
        shows it. Without ``old_nulls`` the old rows are already complete.
        """
        types = pc.index_in(messages.column("type"), pa.array(TYPES))
        if types.null_count:
            raise ValueError("a message is no INSERT, UPDATE or DELETE")
        kinds = types.to_numpy()
        data = _rows(messages.column("data"))
        old, has_old = self._old(messages.column("old"), kinds)
        emitted = self._emitted(data, old, has_old, old_nulls)
        places = np.arange(number, number + len(kinds), dtype=np.int64) * ROWS_PER_MESSAGE + 1
        commit_ts = _commit_ts(messages, exact=self.exact)
        kind = _KINDS[kinds]
        order: pa.Array | None = None
        if emitted.any():
            row_order, is_old = _interleave(emitted)
            # In the input of `take`, the old rows come after the new ones, without gaps.
            order = pa.array(row_order + is_old * len(kinds))
            kind = np.where(is_old, np.int8(RowKind.UPDATE_BEFORE), kind[row_order])
            places = places[row_order] - is_old
            commit_ts = commit_ts[row_order]
        columns, room = [], MEMBER_TIMES * size * (ROWS_PER_MESSAGE if emitted.any() else 1)
        for number_of, carried in enumerate(self.carried):
            values = self.convert(carried.column, self._texts(number_of, data, old, order), room)
            if WRITTEN[carried.column.type.kind] is Written.MEMBER:
                room -= pc.sum(pc.binary_length(values)).as_py() or 0
            columns.append(values)
        fields = [pa.field(carried.column.name, arrow_type(carried.column.type)) for carried in self.carried]
        arrays = [pa.array(kind), pa.array(commit_ts), pa.array(places), *columns]
        return pa.RecordBatch.from_arrays(arrays, schema=pa.schema([*META_FIELDS, *fields]))

    def convert(self, column: Column, texts: pa.Array, room: int) -> pa.Array:
        """Converts text of the messages to canonical values. Raises ValueError.

        Raises OverlongMembersError if the members of an ENUM or SET have more than ``room`` bytes in total.
        """
        written = WRITTEN[column.type.kind]
        if written is Written.CODE:
            return binary_from_latin1(texts)
        if written is Written.MEMBER:
            try:
                return members_from_numbers(texts, column.type, room)
            except NoRoomError:
                raise OverlongMembersError(str(column.type.kind), column.name) from None
        return canonical_from_text(texts, column.type, self.time_zone)

    def _old(self, rows: pa.Array, kinds: np.ndarray) -> tuple[list[pa.Array], np.ndarray]:
        """The columns of the old rows (null if a message has none), and which messages have an old row."""
        has_old = (kinds == _UPDATE) & pc.is_valid(rows).to_numpy(zero_copy_only=False)
        if not has_old.any():
            return [], has_old
        first = pc.list_element(rows, 0)
        sound = pc.and_(pc.equal(pc.list_value_length(rows), 1), pc.is_valid(first))
        if not pc.fill_null(sound, False).to_numpy(zero_copy_only=False)[has_old].all():
            raise ValueError("a message does not have exactly one old row")
        return first.flatten(), has_old

    def _emitted(self, data: list[pa.Array], old: list[pa.Array], has_old: np.ndarray, old_nulls: OldNulls | None) -> np.ndarray:
        """Which messages emit an old row. Completes the columns of ``old`` that are needed for this."""
        if not old:
            return has_old
        keys = {folded_name(name) for name in self.schema.handle_key}
        wants_all = self.old_images or not keys
        moved = np.zeros(len(has_old), bool)
        for number, carried in enumerate(self.carried):
            is_key = folded_name(carried.column.name) in keys
            if old_nulls is not None and (is_key or wants_all):
                old[number] = _completed(old[number], data[number], has_old, carried, is_key=is_key, nulls=old_nulls)
            if is_key:
                moved |= ~pc.fill_null(pc.equal(old[number], data[number]), False).to_numpy(False)
        return has_old if wants_all else has_old & moved

    @staticmethod
    def _texts(number: int, data: list[pa.Array], old: list[pa.Array], order: pa.Array | None) -> pa.Array:
        if order is None:
            return data[number]
        return pa.concat_arrays([data[number], old[number]]).take(order)


def _completed(
    old: pa.Array, new: pa.Array, has_old: np.ndarray, carried: CarriedColumn, *, is_key: bool, nulls: OldNulls
) -> pa.Array:
    """A column of old rows, with the new row's value if a message leaves the column out."""
    lost = has_old & pc.and_(pc.is_null(old), pc.is_valid(new)).to_numpy(False)
    if not lost.any():
        return old
    if carried.column.nullable and not is_key:
        lost &= ~nulls.says_null(carried.key, lost)
    return pc.if_else(pa.array(lost), new, old)


def _rows(lists: pa.Array) -> list[pa.Array]:
    """The columns of lists that have one row each. Raises ValueError for any other number of rows."""
    lengths = pc.list_value_length(lists)
    if lists.null_count or pc.any(pc.not_equal(lengths, 1)).as_py():
        raise ValueError("a message does not have exactly one row")
    rows = lists.flatten()
    if rows.null_count:
        raise ValueError("a message has null in the place of its row")
    return list(rows.flatten())


def _commit_ts(messages: pa.RecordBatch, *, exact: bool) -> np.ndarray:
    """``_tidb.commitTs``, or the first TSO of the millisecond ``es``; the row's true one lies within that millisecond.

    Raises ValueError for messages without it, and for a commit ts that is invalid or outside the millisecond ``es``.
    """
    es = messages.column("es")
    if not exact:
        if not _lies_within(es, MAX_TSO >> LOGICAL_BITS):
            raise ValueError("es is no millisecond of a TSO")
        return np.asarray(pc.shift_left(es, LOGICAL_BITS).to_numpy())
    found = pc.struct_field(messages.column("_tidb"), "commitTs")
    if not _lies_within(found, MAX_TSO):
        raise ValueError("a message has no commit ts")
    if pc.any(pc.not_equal(pc.shift_right(found, LOGICAL_BITS), es)).as_py():
        raise ValueError("a commit ts is of another millisecond than es")
    return np.asarray(found.to_numpy())


def _lies_within(numbers: pa.Array, largest: int) -> bool:
    """Whether no number is missing, and all are from 1 to ``largest``."""
    return not numbers.null_count and pc.all(pc.and_(pc.greater(numbers, 0), pc.less_equal(numbers, largest))).as_py() is not False


def _interleave(emitted: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The message of each output row, and whether the row is the old one, which comes first."""
    order = np.repeat(np.arange(len(emitted)), emitted + 1)
    first = np.ones(len(order), bool)
    first[1:] = order[1:] != order[:-1]
    return order, first & emitted[order]


def message_batch(messages: Sequence[dict[str, object]], schema: pa.Schema) -> pa.RecordBatch:
    """Messages that were read one by one, in the shape of :meth:`CanalReader.arrow_schema`."""
    return pa.RecordBatch.from_pylist(list(messages), schema=schema)
