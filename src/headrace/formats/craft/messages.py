"""Splits messages of TiCDC's Craft protocol into events, and reads what these are about.

A message is: the version; the headers, column by column (commit ts, type, partition, database, table); the bodies; the terms, to
which headers and bodies refer by number; the sizes of these parts; and how many bytes the sizes have. The body of a row has groups
of columns, the new row's and the old row's.

Releases of TiCDC write the eight bytes of a FLOAT into a buffer of four, so that the value that they convert next overwrites its
end. Messages do not show the release. So a FLOAT whose end is the same as the beginning of the next value is not known.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import pairwise

from headrace.formats.craft.numbers import MOST_EVENTS, CraftError, Cursor, number_at_end
from headrace.formats.schema_file import MOST_COLUMNS, with_escapes
from headrace.model.tso import MAX_TSO
from headrace.model.writable_text import as_utf8

VERSION = 1
MOST_NAME_BYTES = 256
"""The most bytes of a name: 64 characters.

A message has a name once, and each row that is handed on has it again: rows may become about 70 times as large as their message."""
_META, _BODIES, _FIRST_GROUPS = 0, 1, 2
NEW, OLD = 1, 2
_LENGTHS = struct.Struct("<III")
_FLOAT, _FLOAT_BUFFER = 4, 4
_CONVERTED = frozenset({1, 2, 3, 4, 5, 8, 9, 13, 16, 247, 248})
"""The type codes whose values TiCDC converts into buffers: numbers, BIT, ENUM and SET."""
UNKNOWN_FLOAT = b"?"
"""The value of a FLOAT that is not known."""


class CraftKind(IntEnum):
    """The kinds of events, by their numbers in headers, and one for bad messages."""

    UNREADABLE = 0
    ROW = 1
    STATEMENT = 2
    WATERMARK = 3


@dataclass(frozen=True)
class CraftEvent:
    """What an event is about."""

    kind: CraftKind
    database: str = ""
    table: str = ""
    """Empty for a change of a database, and where the name cannot be read."""
    commit_ts: int = 0
    """TSO."""
    content: bytes = b""
    """Of a row see :func:`unframed_row`, of a statement its text. Of ``UNREADABLE`` the reason: the end of a sentence."""


def is_craft(value: bytes) -> bool:
    """Whether a message can be read completely as one of this protocol."""
    if value[:1] != bytes([VERSION]):
        return False
    try:
        return bool(_Message(value).events())
    except CraftError:
        return False


def read_events(value: bytes) -> list[CraftEvent]:
    """The events of a message. Never raises for a bad message."""
    try:
        return _Message(value).events()
    except CraftError as error:
        return [CraftEvent(CraftKind.UNREADABLE, content=as_utf8(str(error)))]


class _Message:
    """The parts of a message. Raises CraftError."""

    def __init__(self, value: bytes) -> None:
        size, stop = number_at_end(value)
        if size > stop:
            raise CraftError("the sizes of its parts are not there.")
        tables = Cursor(value, stop - size, stop)
        self._sizes: list[list[int]] = []
        self._last_columns: tuple[bytes, bytes, list[int]] = b"", b"", []
        """The columns of a group before: their bytes, their description, and their type codes. Rows of a table have the same."""
        while tables.at < stop:
            self._sizes.append(tables.sums(tables.uvarint()))
        if len(self._sizes) < _FIRST_GROUPS or len(self._sizes[_META]) != 2 or not 0 < len(self._sizes[_BODIES]) <= MOST_EVENTS:
            raise CraftError("the sizes of its parts are not those of a message.")
        whole = Cursor(value, 0, stop - size)
        version = whole.uvarint()
        if version != VERSION:
            raise CraftError(f"its version is {version}, and only {VERSION} is known.")
        of_headers, of_terms = self._sizes[_META]
        self._headers = whole.take(of_headers)
        self._bodies = [whole.take(length) for length in self._sizes[_BODIES]]
        terms = Cursor(whole.take(of_terms))
        if whole.at != whole.end:
            raise CraftError("there are bytes between its parts.")
        self._names: dict[int, str] = {-1: ""}
        """The names of databases and tables, by their terms."""
        self._terms: list[bytes] = [text or b"" for text in terms.texts(terms.uvarints(terms.uvarint()))] if of_terms else []

    def events(self) -> list[CraftEvent]:
        count = len(self._bodies)
        headers = Cursor(self._headers)
        times, kinds, _partitions = headers.unsigned_sums(count), headers.uvarints(count), headers.sums(count)
        databases, tables = headers.sums(count), headers.sums(count)
        self._groups = [self._groups_of(number) if kind == CraftKind.ROW else {} for number, kind in enumerate(kinds)]
        is_whole = all(self._groups[number] for number, kind in enumerate(kinds) if kind == CraftKind.ROW)
        _mark_floats([group for sides in self._groups for group in sides.values()], is_whole=is_whole)
        names = zip(map(self._name, databases), map(self._name, tables), strict=True)
        return [self._event(number, kinds[number], times[number], *pair) for number, pair in enumerate(names)]

    def _event(self, number: int, kind: int, commit_ts: int, database: str, table: str) -> CraftEvent:
        if not 0 < commit_ts <= MAX_TSO:
            raise CraftError("a commit ts is not possible.")
        if kind == CraftKind.WATERMARK:
            return CraftEvent(CraftKind.WATERMARK, commit_ts=commit_ts)
        body = self._bodies[number]
        try:
            if kind == CraftKind.STATEMENT:
                cursor = Cursor(body)
                cursor.uvarint()  # the kind of the schema change
                return CraftEvent(CraftKind.STATEMENT, database, table, commit_ts, cursor.take(cursor.uvarint()))
            if kind != CraftKind.ROW or not database or not table:
                raise CraftError(f"its event has the type {kind}, or does not name its table.")
            return CraftEvent(CraftKind.ROW, database, table, commit_ts, _framed(self._groups[number]))
        except CraftError as error:
            return CraftEvent(CraftKind.UNREADABLE, database, table, content=as_utf8(str(error)))

    def _groups_of(self, number: int) -> dict[int, _Group]:
        """The groups of a row, the new row's before the old one's; without any if they cannot be read."""
        if _FIRST_GROUPS + number >= len(self._sizes):
            return {}
        whole = Cursor(self._bodies[number])
        sides: dict[int, _Group] = {}
        try:
            for size in self._sizes[_FIRST_GROUPS + number]:
                group = Cursor(whole.take(size))
                side = group.take(1)[0]
                if side not in (NEW, OLD) or side in sides:
                    return {}
                sides[side] = self._group(group)
        except CraftError:
            return {}
        return sides if whole.at == whole.end else {}

    def _group(self, group: Cursor) -> _Group:
        head, description, codes = self._last_columns
        if head and group.data.startswith(head, group.at):
            group.at += len(head)
        else:
            begin = group.at
            count = group.uvarint()
            if count > MOST_COLUMNS:
                raise CraftError(f"its row has {count} columns, and a table of TiDB has at most {MOST_COLUMNS}.")
            names = [self._name_bytes(term) for term in group.sums(count)]
            numbers = group.at
            codes, _flags = group.uvarints(len(names)), group.uvarints(len(names))
            description = b"\0".join([b"%d" % len(names), *names, group.data[numbers : group.at]])
            self._last_columns = group.data[begin : group.at], description, codes
        values = group.texts(group.varints(len(codes)))
        if group.at != group.end:
            raise CraftError("there are bytes behind the values of a row.")
        return _Group(description, codes, values)

    def _name_bytes(self, number: int) -> bytes:
        """The term of a name."""
        if not 0 <= number < len(self._terms):
            raise CraftError(f"the term {number} is not there.")
        name = self._terms[number]
        if b"\0" in name:
            raise CraftError("a name has the character U+0000.")
        if len(name) > MOST_NAME_BYTES:
            raise CraftError(f"a name has {len(name)} bytes, and names of TiDB have at most {MOST_NAME_BYTES}.")
        return name

    def _name(self, number: int) -> str:
        """The text of a term; empty for -1."""
        if number not in self._names:
            try:
                self._names[number] = self._name_bytes(number).decode()
            except UnicodeDecodeError:
                raise CraftError("the name of a database or table is not UTF-8.") from None
        return self._names[number]


@dataclass
class _Group:
    """The new or the old row of an event."""

    description: bytes
    """See :func:`columns_of`."""
    codes: list[int]
    """The type codes of its columns."""
    values: list[bytes | None]


def _mark_floats(groups: Sequence[_Group], *, is_whole: bool) -> None:
    """Replaces each FLOAT that is not known by :data:`UNKNOWN_FLOAT`.

    ``groups`` are in the order in which TiCDC converts them; if they are not the whole message, no FLOAT is known.
    """
    if not any(_FLOAT in group.codes for group in groups):
        return
    converted = [
        (group, number, value)
        for group in groups
        for number, (code, value) in enumerate(zip(group.codes, group.values, strict=True))
        if value is not None and code in _CONVERTED
    ]
    for (group, number, value), (_, _, following) in pairwise(converted):
        if group.codes[number] != _FLOAT:
            continue
        if not is_whole or value[_FLOAT_BUFFER : _FLOAT_BUFFER + len(following)] == following[:_FLOAT_BUFFER]:
            group.values[number] = UNKNOWN_FLOAT


def _framed(sides: Mapping[int, _Group]) -> bytes:
    if not sides:
        raise CraftError("the columns of its row cannot be read.")
    new, old = sides.get(NEW), sides.get(OLD)
    if new is not None and old is not None and new.description != old.description:
        raise CraftError("the new and the old row have different columns.")
    columns = next(iter(sides.values())).description
    values = [b"" if group is None else _framed_values(group.values) for group in (new, old)]
    return _LENGTHS.pack(len(columns), *map(len, values)) + columns + values[0] + values[1]


def _framed_values(values: Sequence[bytes | None]) -> bytes:
    lengths = array("i", [-1 if value is None else len(value) for value in values])
    return lengths.tobytes() + b"".join(value for value in values if value)


def values_of(framed: bytes, count: int) -> list[bytes | None]:
    """The values of a row's columns, of which there are ``count``."""
    lengths = array("i", framed[: 4 * count])
    found: list[bytes | None] = []
    at = 4 * count
    for length in lengths:
        found.append(None if length < 0 else framed[at : at + length])
        at += max(length, 0)
    return found


@dataclass(frozen=True)
class GroupColumn:
    """A column as a row has it."""

    name: str
    code: int
    """MySQL's type code."""
    flags: int


def unframed_row(row: bytes) -> tuple[bytes, bytes, bytes]:
    """The description of a row's columns (:func:`columns_of`), its new and its old values (:func:`values_of`), empty for none."""
    columns, new, old = _LENGTHS.unpack_from(row)
    begin = _LENGTHS.size
    return row[begin : begin + columns], row[begin + columns : begin + columns + new], row[len(row) - old :] if old else b""


def split_rows(value: bytes) -> Iterator[bytes]:
    """Rows that are behind one another."""
    at = 0
    while at < len(value):
        columns, new, old = _LENGTHS.unpack_from(value, at)
        end = at + _LENGTHS.size + columns + new + old
        yield value[at:end]
        at = end


def columns_of(description: bytes) -> list[GroupColumn]:
    """The columns that a description has: their number, their names, then their type codes and flags. Raises CraftError."""
    digits, _, rest = description.partition(b"\0")
    count = int(digits)
    *names, numbers = rest.split(b"\0", count)
    cursor = Cursor(numbers)
    codes, flags = cursor.uvarints(count), cursor.uvarints(count)
    try:
        return [GroupColumn(name.decode(), code, flag) for name, code, flag in zip(names, codes, flags, strict=True)]
    except UnicodeDecodeError:
        raise CraftError("the name of a column is not UTF-8.") from None


def statement_text(content: bytes) -> str:
    """The statement of an event, as a server reads it. Raises ValueError, the end of a sentence."""
    try:
        return with_escapes(content.decode())
    except UnicodeDecodeError:
        raise ValueError("its text is not UTF-8.") from None
