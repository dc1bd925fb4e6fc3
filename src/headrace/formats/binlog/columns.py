"""Reads many messages at once: the rows of each table as record batches in the layout of ``headrace.model.block``.

Messages with the layout that Drainer writes are read column by column (``layout``, ``cell_arrays``). All others are read one by one
with the protobuf library, which also finds out what is wrong with a damaged one. Both ways give the same rows.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.formats.binlog.cell_arrays import canonical, field_of, find_cells, raw_from_bytes, raw_from_cells
from headrace.formats.binlog.cell_values import ValueOptions
from headrace.formats.binlog.errors import BinlogError
from headrace.formats.binlog.layout import RowPlaces, find_layout
from headrace.formats.binlog.messages import (
    Binlog,
    Cell,
    ColumnInfo,
    DdlStatement,
    Mutation,
    MutationType,
    TableChanges,
    UniqueKey,
    read_binlog,
)
from headrace.formats.binlog.positions import FieldBuffer
from headrace.formats.binlog.shapes import ReadColumn, read_columns
from headrace.formats.buffer import Mask, Positions
from headrace.model.block import META_FIELDS, ChangeBlock
from headrace.model.events import RowKind
from headrace.model.table import TableId, TableSchema
from headrace.model.types import arrow_type

SEQ_PER_MUTATION = 2
_NEW_KINDS = np.array([RowKind.INSERT, RowKind.UPDATE_AFTER, RowKind.DELETE], np.int8)
_Shape = tuple[TableId, tuple[ColumnInfo, ...], tuple[UniqueKey, ...]]
_Apart = Mapping[_Shape, Sequence[tuple[int, TableChanges]]]
"""The changes of one message, by the description of their table, each with the number of its first mutation."""


class BinlogBatch:
    """Messages that were read together, in the order of their offsets."""

    def __init__(self, messages: Sequence[bytes]) -> None:
        """Reads the messages, except for the values of rows.

        Raises BinlogError with the number of the message for the first one that cannot be read.
        """
        self._messages = messages
        self._apart: dict[int, _Apart] = {}
        self.buffer = FieldBuffer(messages)
        ends = np.cumsum(np.fromiter(map(len, messages), np.int64, len(messages)))
        starts = np.zeros(len(messages), np.int64)
        starts[1:] = ends[:-1]
        layout = find_layout(self.buffer, starts, ends)
        self.commit_ts: npt.NDArray[np.int64] = layout.commit_ts
        """The commit ts (TSO) of each message."""
        self.statements: dict[int, DdlStatement] = {}
        """The DDL jobs, by the number of the message."""
        mutations = layout.mutations
        tables: dict[_Shape, TableRows] = {}
        for places in layout.tables:
            header = places.header
            regular = places if not layout.irregular.any() else _chosen(places, ~layout.irregular[places.message])
            _table(tables, header, self)._places.append(regular)
        for message in np.flatnonzero(layout.irregular).tolist():
            binlog = self.read(message)
            self.commit_ts[message] = binlog.commit_ts
            if binlog.ddl is not None:
                self.statements[message] = binlog.ddl
            mutations[message] = sum(map(len, binlog.tables))
            self._apart[message] = _by_shape(binlog)
            for changes in binlog.tables:
                if len(changes):  # a description without rows says nothing that could be wrong
                    _table(tables, changes, self)._singles.add(message)
        self.first_mutation: Positions = np.cumsum(mutations) - mutations
        """The number of the first mutation of each message. The mutations of the batch are numbered from 0."""
        self.mutation_count = int(mutations.sum())
        self.tables = tuple(table for table in tables.values() if table)
        """The tables that the messages have rows of, once for each way in which messages describe them."""

    def __len__(self) -> int:
        return len(self._messages)

    def read(self, message: int) -> Binlog:
        """One of the messages, read by itself. Raises BinlogError with its number."""
        try:
            return read_binlog(self._messages[message])
        except BinlogError as error:
            error.message_number = message
            raise

    def apart(self, message: int) -> _Apart:
        """The changes of a message that is read by itself. Raises BinlogError with its number."""
        if message not in self._apart:
            self._apart[message] = _by_shape(self.read(message))
        return self._apart[message]


class _Rows(NamedTuple):
    """Rows with the values of their columns as the messages have them."""

    message: Positions
    number: Positions
    """The number of the mutation in the message."""
    kind: npt.NDArray[np.int8]
    raw: list[pa.Array]


class _Single(NamedTuple):
    """A row that was read by itself."""

    message: int
    number: int
    kind: RowKind
    cells: tuple[Cell, ...]


@dataclass
class TableRows:
    """The rows of one table, from all messages of a batch that describe the table in the same way."""

    table_id: TableId
    columns: tuple[ColumnInfo, ...]
    unique_keys: tuple[UniqueKey, ...]
    _batch: BinlogBatch = field(repr=False)
    _places: list[RowPlaces] = field(default_factory=list, repr=False)
    _singles: set[int] = field(default_factory=set, repr=False)
    """The messages that are read by themselves."""

    def __bool__(self) -> bool:
        """Whether there are rows, or messages that may have some."""
        return bool(self._singles) or any(len(places.message) for places in self._places)

    @property
    def messages(self) -> Positions:
        """The numbers of the messages that have rows of the table in this shape, in order."""
        return np.unique(np.concatenate([*(places.message for places in self._places), np.array([*self._singles], np.int64)]))

    def block(self, schema: TableSchema, version: int, options: ValueOptions, ignored: Collection[str] = ()) -> ChangeBlock:
        """The rows in the shape of ``schema``, which is in force from ``version`` (TSO), ordered by message and mutation.

        An update is two rows, the old one first. ``seq`` is twice the number of the mutation, plus one unless the row is the old
        one of an update. ``ignored`` are the folded names of columns that the messages may have beyond those of the schema.

        Raises SchemaMismatchError if the schema does not fit the messages, and a DecodeError for a bad value: a BinlogError has the
        number of the message, if only one can be meant.
        """
        read = read_columns(self.columns, schema, ignored)
        parts, left = [], set(self._singles)
        for places in self._places:
            rows, unsound = self._from_bytes(places, read)
            parts.append(rows)
            left |= unsound
        if left:
            parts = [_without(rows, left) for rows in parts] + [self._from_cells(left, read)]
        rows = parts[0] if len(parts) == 1 else _combined(parts)
        size = self._batch.buffer.size
        arrays = [canonical(raw, column.column, options, size, rows.message) for raw, column in zip(rows.raw, read, strict=True)]
        seq = (self._batch.first_mutation[rows.message] + rows.number) * SEQ_PER_MUTATION + (rows.kind != RowKind.UPDATE_BEFORE)
        meta = [pa.array(rows.kind), pa.array(self._batch.commit_ts[rows.message]), pa.array(seq)]
        fields = [pa.field(column.column.name, arrow_type(column.column.type)) for column in read]
        batch = pa.RecordBatch.from_arrays([*meta, *arrays], schema=pa.schema([*META_FIELDS, *fields]))
        return ChangeBlock(self.table_id, version, schema, batch)

    def _from_bytes(self, places: RowPlaces, read: Sequence[ReadColumn]) -> tuple[_Rows, set[int]]:
        """The rows that have the expected layout, and the messages that have others."""
        buffer, is_update = self._batch.buffer, places.type == MutationType.UPDATE
        message, number, kind, start, stop = places.message, places.number, _NEW_KINDS[places.type], places.start, places.stop
        order = None
        if is_update.any():
            images = 1 + is_update
            first = np.cumsum(images) - images
            olds = first[is_update] + 1
            start, stop = np.repeat(start, images), np.repeat(stop, images)
            start[olds], stop[olds] = places.old_start[is_update], places.old_stop[is_update]
            message, number, kind = np.repeat(message, images), np.repeat(number, images), np.repeat(kind, images)
            kind[olds - 1] = RowKind.UPDATE_BEFORE
            # In the bytes the new row comes first.
            order = np.arange(len(start))
            order[olds - 1], order[olds] = olds, olds - 1
        cells, sound = find_cells(buffer, start, stop, len(self.columns))
        raw = []
        for column in read:
            values, fits = raw_from_bytes(buffer, cells[column.place], field_of(column.column.type), order)
            raw.append(values)
            sound &= fits
        return _Rows(message, number, kind, raw), set() if sound.all() else set(message[~sound].tolist())

    def _from_cells(self, messages: Iterable[int], read: Sequence[ReadColumn]) -> _Rows:
        """All rows of these messages, read one by one."""
        singles = [single for message in sorted(messages) for single in self._read(message)]
        message, number, kind = (np.array([single[field] for single in singles], np.int64) for field in range(3))
        raw = [
            raw_from_cells([single.cells[column.place] for single in singles], self.columns[column.place], column.column, message)
            for column in read
        ]
        return _Rows(message, number, kind.astype(np.int8), raw)

    def _read(self, message: int) -> Iterator[_Single]:
        shape = (self.table_id, self.columns, self.unique_keys)
        for first, changes in self._batch.apart(message).get(shape, ()):
            for number, mutation in enumerate(changes, first):
                yield from _images(message, number, mutation)


def _by_shape(binlog: Binlog) -> _Apart:
    number, found = 0, defaultdict[_Shape, list[tuple[int, TableChanges]]](list)
    for changes in binlog.tables:
        found[_shape(changes)].append((number, changes))
        number += len(changes)
    return found


def _shape(changes: TableChanges) -> _Shape:
    return changes.table_id, changes.columns, changes.unique_keys


def _table(tables: dict[_Shape, TableRows], changes: TableChanges, batch: BinlogBatch) -> TableRows:
    shape = _shape(changes)
    if shape not in tables:
        tables[shape] = TableRows(*shape, batch)
    return tables[shape]


def _images(message: int, number: int, mutation: Mutation) -> Iterator[_Single]:
    if mutation.old is not None:
        yield _Single(message, number, RowKind.UPDATE_BEFORE, mutation.old)
    yield _Single(message, number, RowKind(_NEW_KINDS[mutation.type]), mutation.row)


def _chosen(places: RowPlaces, kept: Mask) -> RowPlaces:
    return RowPlaces(places.header, *(column[kept] for column in places[1:]))


def _without(rows: _Rows, messages: Collection[int]) -> _Rows:
    kept = ~np.isin(rows.message, list(messages))
    if kept.all():
        return rows
    return _Rows(rows.message[kept], rows.number[kept], rows.kind[kept], [raw.filter(pa.array(kept)) for raw in rows.raw])


def _combined(parts: Sequence[_Rows]) -> _Rows:
    """The rows of several parts in the order of message, mutation, and old row before new."""
    message, number, kind = (np.concatenate([part[field] for part in parts]) for field in range(3))
    order = np.lexsort((kind != RowKind.UPDATE_BEFORE, number, message))
    raw = [pa.concat_arrays(values).take(pa.array(order)) for values in zip(*(part.raw for part in parts), strict=True)]
    return _Rows(message[order], number[order], kind[order], raw)
