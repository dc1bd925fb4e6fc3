"""Finds the rows in a batch of messages, if the messages have the layout that Drainer writes.

That layout is: type and commit_ts first, then the tables one after the other; in a table its names, columns and mutations, then its
keys; in a mutation its type, the row and, for an update, the row before it. Protobuf allows others. A message that has one, or that
is damaged, is reported as irregular, and the caller reads it with the protobuf library.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from google.protobuf.message import DecodeError as ProtobufError

from headrace.formats.binlog import slave_binlog_pb2 as pb
from headrace.formats.binlog.errors import BinlogError
from headrace.formats.binlog.messages import MutationType, TableChanges, table_header
from headrace.formats.binlog.positions import FieldBuffer
from headrace.formats.binlog.wire import fields
from headrace.formats.buffer import Mask, Positions

_TABLES, _TABLE = 0x1A, 0x0A
_SCHEMA_NAME, _MUTATION = 0x0A, 0x22
_MUTATION_TYPE, _ROW, _OLD_ROW = 0x08, 0x12, 0x1A
_MUTATIONS = 4
_MOST_DESCRIPTIONS = 50
"""How many descriptions tables of one name may have in a batch. Messages with further ones are irregular: finding the tables of one
takes a look at all that are left."""
_BEGINNING = np.array([0x08, 0x00, 0x10], np.uint8)


class RowPlaces(NamedTuple):
    """Mutations of tables with the same description, in the order of the messages."""

    header: TableChanges
    """The table, its columns and keys; without mutations."""
    message: Positions
    number: Positions
    """For each mutation: its message, and its number in the message, from 0."""
    type: Positions
    start: Positions
    stop: Positions
    """The row."""
    old_start: Positions
    old_stop: Positions
    """The row before an update; for other mutations -1."""


@dataclass(frozen=True)
class Layout:
    """What was found in a batch of messages."""

    commit_ts: Positions
    """Of each message that is not irregular (TSO)."""
    irregular: Mask
    """The messages that have another layout, or another type."""
    mutations: Positions
    """The number of mutations of each message that is not irregular."""
    tables: tuple[RowPlaces, ...]


def find_layout(buffer: FieldBuffer, at: Positions, end: Positions) -> Layout:
    """Finds the rows of the messages in ``buffer``, each from ``at`` up to ``end``."""
    sound = np.asarray(at + len(_BEGINNING) < end)
    for place, byte in enumerate(_BEGINNING):
        sound &= buffer.bytes[np.minimum(at + place, buffer.size)] == byte
    commit_ts, after, fits = buffer.varints(np.where(sound, at + len(_BEGINNING), 0))
    sound &= fits & (after <= end)
    after = np.where(sound, after, end)
    data = buffer.chains(after, end, _TABLES, _TABLE)
    sound &= (data.end == end) & (np.bincount(data.owner, minlength=len(at)) <= 1)
    tables = buffer.chains(data.start, data.stop, _TABLE, _SCHEMA_NAME)
    _exclude(sound, data.owner, tables.end == data.stop)
    entries = _entries(buffer, data.owner[tables.owner], tables.start, tables.stop, sound)
    counts, places = _mutations(buffer, entries, sound)
    return Layout(commit_ts.view(np.int64), ~sound, np.where(sound, counts, 0), tuple(places))


def _exclude(sound: Mask, owner: Positions, fits: Mask) -> None:
    """Marks the owners of what does not fit."""
    if not fits.all():
        sound[owner[~fits]] = False


class _Entries(NamedTuple):
    """The tables in the messages: for each its message, and the part between its description and its end."""

    message: Positions
    group: Positions
    """The number of its description."""
    start: Positions
    stop: Positions
    headers: list[tuple[TableChanges, bytes]]
    """Each description, and the bytes that come after the mutations: the keys."""


def _entries(buffer: FieldBuffer, message: Positions, start: Positions, stop: Positions, sound: Mask) -> _Entries:
    """Groups tables by their description. What comes after the mutations is that of the group's first table, and checked later."""
    group = np.full(len(start), -1)
    begins = np.zeros(len(start), np.int64)
    headers: list[tuple[TableChanges, bytes]] = []
    waiting = [np.arange(len(start))]
    while waiting:
        left = waiting.pop()
        most = len(headers) + _MOST_DESCRIPTIONS
        while len(left):
            if len(headers) >= most:
                sound[message[left]] = False
                break
            first = int(left[0])
            described = _described(buffer, int(start[first]), int(stop[first]))
            if described is None:
                sound[message[first]] = False
                left = left[1:]
                continue
            header, beginning, tail = described
            here = buffer.equals(start[left], beginning)
            ends = start[left] + len(beginning)
            # Another column may follow, so a mutation or the end must.
            here &= (ends == stop[left]) | (buffer.bytes[np.minimum(ends, buffer.size)] == (_MUTATION if tail is not None else 0))
            here[0] = True
            group[left[here]] = len(headers)
            begins[left[here]] = ends[here]
            headers.append((header, tail or b""))
            left = left[~here]
            if not headers[1:] and len(left):
                waiting.extend(left[members] for members in _same_names(buffer, start[left], stop[left]))
                break
    return _Entries(message, group, begins, stop, headers)


def _same_names(buffer: FieldBuffer, start: Positions, stop: Positions) -> Iterator[Positions]:
    """The numbers of the tables, together if the bytes of both names are equal."""
    lengths, after, _ = buffer.lengths(start + 1)
    ends = np.minimum(after + lengths, buffer.size)
    lengths, after, _ = buffer.lengths(np.minimum(ends + 1, buffer.size))
    ends = np.clip(after + lengths, start, stop)
    names = buffer.slices(start, ends, np.arange(len(start))).dictionary_encode()
    group = names.indices.to_numpy()
    if len(names.dictionary) == 1:
        yield np.arange(len(start))
        return
    order = np.argsort(group, kind="stable")
    yield from np.split(order, np.flatnonzero(np.diff(group[order])) + 1)


def _described(buffer: FieldBuffer, start: int, stop: int) -> tuple[TableChanges, bytes, bytes | None] | None:
    """A table without its mutations, the bytes before these and the bytes after them.

    The latter are ``None`` for a table without mutations. ``None`` if the table cannot be read, or its fields have another order.
    """
    at = start
    try:
        for number, _, _, after in fields(buffer.data, start, stop):
            if number == _MUTATIONS:
                break
            at = after
    except BinlogError:
        return None
    beginning, tail = buffer.data[start:at], None
    if at < stop:
        end = int(buffer.chains(np.array([at]), np.array([stop]), _MUTATION, _MUTATION_TYPE).end[0])
        tail = buffer.data[end:stop]
    try:
        header = table_header(pb.Table.FromString(beginning + (tail or b"")))
    except (BinlogError, ProtobufError):
        return None
    return None if len(header) else (header, beginning, tail)


def _mutations(buffer: FieldBuffer, entries: _Entries, sound: Mask) -> tuple[Positions, list[RowPlaces]]:
    """The number of mutations of each message, and where they are."""
    known = entries.group >= 0
    start, stop = np.where(known, entries.start, 0), np.where(known, entries.stop, 0)
    found = buffer.chains(start, stop, _MUTATION, _MUTATION_TYPE)
    _exclude(sound, entries.message, _tails_fit(buffer, entries, found.end))
    message = entries.message[found.owner]
    counts = np.bincount(message, minlength=len(sound))
    number = np.arange(len(message)) - (np.cumsum(counts) - counts)[message]
    kind, row, row_end, old, old_end, fits = _parts(buffer, found.start, found.stop)
    _exclude(sound, message, fits)
    group = entries.group[found.owner]
    columns = (message, number, kind, row, row_end, old, old_end)
    if len(entries.headers) == 1:
        return counts, [RowPlaces(entries.headers[0][0], *columns)]
    order = np.argsort(group, kind="stable")
    bounds = np.searchsorted(group[order], np.arange(len(entries.headers) + 1))
    return counts, [
        RowPlaces(header, *(column[order[low:high]] for column in columns))
        for (header, _), low, high in zip(entries.headers, bounds, bounds[1:], strict=False)
    ]


def _tails_fit(buffer: FieldBuffer, entries: _Entries, at: Positions) -> Mask:
    """For each table, whether the bytes after its mutations are those of its group."""
    fits = np.zeros(len(at), bool)
    for group, (_, tail) in enumerate(entries.headers):
        members = np.flatnonzero(entries.group == group) if len(entries.headers) > 1 else np.arange(len(at))
        ends = entries.stop[members] - at[members] == len(tail)
        fits[members] = ends & buffer.equals(np.where(ends, at[members], buffer.size), tail) if tail else ends
    return fits


def _parts(
    buffer: FieldBuffer, start: Positions, stop: Positions
) -> tuple[Positions, Positions, Positions, Positions, Positions, Mask]:
    """For each mutation its type, its row, the row before an update (-1 without), and whether it has the layout."""
    kind = buffer.bytes[start + 1].astype(np.int64)
    fits = (buffer.bytes[start] == _MUTATION_TYPE) & (kind <= MutationType.DELETE) & (buffer.bytes[start + 2] == _ROW)
    length, row, sound = buffer.lengths(start + 3)
    row_end = row + length
    fits &= row_end <= stop
    if sound is not None:
        fits &= sound
    is_update = kind == MutationType.UPDATE
    old, old_end = np.full(len(start), -1), np.full(len(start), -1)
    updates = np.flatnonzero(is_update & fits)
    fits &= is_update | (row_end == stop)
    if len(updates):
        here = row_end[updates]
        length, begin, sound = buffer.lengths(np.minimum(here + 1, buffer.size))
        well = (here < stop[updates]) & (buffer.bytes[here] == _OLD_ROW) & (begin + length == stop[updates])
        if sound is not None:
            well &= sound
        old[updates], old_end[updates] = begin, begin + length
        fits[updates] &= well
    return kind, row, row_end, old, old_end, fits
