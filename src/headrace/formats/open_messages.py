"""Splits messages of TiCDC's Open Protocol into events.

Format: TiCDC documentation, "TiCDC Open Protocol". A message holds several events. Its key is the version (u64, big-endian) and,
for each event, a length (u64) and a JSON object. Its value has a length and a JSON object for each event, in the same order.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum

from headrace.formats.json_lines import BLANK, Members, integer_of, read_object, text_of
from headrace.formats.large_messages import MARK, LargeMessage
from headrace.formats.schema_file import with_escapes
from headrace.model.tso import MAX_TSO

VERSION = 1
MOST_EVENTS = 1_000_000
"""TiCDC puts at most ``max-batch-size`` events into a message, 16 by default."""
_LENGTH = struct.Struct(">Q")
# As TiCDC writes the key of a row whose names need no escape: reading it as JSON takes ten times as long.
_PLAIN_ROW = re.compile(rb'\{"ts":([1-9][0-9]{0,18}),"scm":"([^"\\\x00-\x1f]+)","tbl":"([^"\\\x00-\x1f]+)","t":1\}')


class FramingError(ValueError):
    """Key and value of a message are not those of events; ``str()`` is the end of a sentence."""


class EventKind(IntEnum):
    """The kinds of events, as ``t`` of a key has them, and one for a bad key."""

    UNREADABLE = 0
    ROW = 1
    STATEMENT = 2
    RESOLVED = 3


@dataclass(frozen=True)
class EventKey:
    """What an event is about."""

    kind: EventKind
    database: str = ""
    table: str = ""
    commit_ts: int = 0
    """TSO; that of a resolved event is a watermark."""
    reason: str = ""
    """Why it is ``UNREADABLE``: the end of a sentence. Its table may be known."""
    large: LargeMessage | None = None
    """Set for a row of which the event has only the handle key."""


def is_open_protocol(key: bytes | None) -> bool:
    """Whether a message's key has the version of the protocol in front."""
    return key is not None and key.startswith(_LENGTH.pack(VERSION))


def read_events(key: bytes, value: bytes, known: dict[bytes, EventKey]) -> list[tuple[EventKey, bytes, bytes]]:
    """The events of a message: what each is about, the JSON text of its key, and that of its value. Raises FramingError.

    ``known`` keeps the keys that were read: those of one transaction and table are equal.
    """
    if len(key) < _LENGTH.size:
        raise FramingError("its key has no version of the Open Protocol.")
    (version,) = _LENGTH.unpack_from(key)
    if version != VERSION:
        raise FramingError(f"its key has the version {version} of the Open Protocol, and only 1 is known.")
    keys = list(_parts(key, _LENGTH.size, "key"))
    values = list(_parts(value, 0, "value"))
    if len(keys) != len(values):
        raise FramingError(f"its key has {len(keys)} events, and its value has {len(values)}.")
    events = []
    for text, event in zip(keys, values, strict=True):
        found = known.get(text)
        if found is None:
            found = known[text] = _read_key(text)
        events.append((found, text, event))
    return events


def _parts(data: bytes, at: int, what: str) -> Iterator[bytes]:
    for _ in range(MOST_EVENTS):
        if at == len(data):
            return
        if len(data) - at < _LENGTH.size:
            raise FramingError(f"its {what} is cut off within the length of an event.")
        (length,) = _LENGTH.unpack_from(data, at)
        at += _LENGTH.size
        if length > len(data) - at:
            raise FramingError(f"its {what} has an event of {length} bytes, and only {len(data) - at} are left.")
        yield data[at : at + length]
        at += length
    raise FramingError(f"its {what} has more than {MOST_EVENTS} events.")


class _UnreadableError(Exception):
    """A key cannot be read; ``str()`` is the end of a sentence."""


def _read_key(text: bytes) -> EventKey:
    plain = _PLAIN_ROW.fullmatch(text)
    if plain is not None:
        try:
            database, table, commit_ts = plain[2].decode(), plain[3].decode(), int(plain[1])
        except UnicodeDecodeError:
            return _read_any_key(text)  # it tells what is wrong
        if commit_ts <= MAX_TSO:
            return EventKey(EventKind.ROW, database, table, commit_ts)
    return _read_any_key(text)


def _read_any_key(text: bytes) -> EventKey:
    database = table = ""
    try:
        try:
            members = read_object(text)
        except ValueError as error:
            raise _UnreadableError(f"the key of an event cannot be read: {error}") from None
        kind = integer_of(members.get("t"), EventKind.ROW, EventKind.RESOLVED)
        if kind is None:
            raise _UnreadableError(f"an event has the type {str(members.get('t'))[:80]!r}, which is not known.")
        if kind != EventKind.RESOLVED:
            database, table = _names(members, is_row=kind == EventKind.ROW)
        commit_ts = integer_of(members.get("ts"), 1, MAX_TSO)
        if commit_ts is None:
            raise _UnreadableError("an event has no commit ts in ts.")
        large = _large(members)
    except _UnreadableError as error:
        return EventKey(EventKind.UNREADABLE, database, table, reason=str(error))
    return EventKey(EventKind(kind), database, table, commit_ts, large=large)


def _large(members: Members) -> LargeMessage | None:
    try:
        return LargeMessage.of_members(members.get("ohk"), members.get("ccl"))
    except ValueError as error:
        raise _UnreadableError(str(error)) from None


def _names(members: Members, *, is_row: bool) -> tuple[str, str]:
    database, table = text_of(members, "scm"), text_of(members, "tbl") if "tbl" in members else ""
    if not database or table is None or (is_row and not table):
        raise _UnreadableError("an event does not name its table.")
    return database, table


def framed(key: bytes, value: bytes) -> bytes:
    """One event as bytes that :func:`unframed` reads."""
    return _LENGTH.pack(len(key)) + key + value


def unframed(data: bytes) -> tuple[EventKey, bytes]:
    """What the event is about, and its value."""
    (length,) = _LENGTH.unpack_from(data)
    return _read_key(data[_LENGTH.size : _LENGTH.size + length]), data[_LENGTH.size + length :]


def read_statement_event(value: bytes) -> str:
    """The statement of an event, as a server reads it. Raises ValueError."""
    statement = text_of(read_object(value), "q")
    if statement is None:
        raise ValueError("q is not a text.")
    return with_escapes(statement)


def line_of(value: bytes) -> bytes | None:
    """The value of a row's event as one line; empty for a row without columns.

    ``None`` if line breaks are in it, or a zero byte is in front, which marks a large message in the records of a stream.

    A row without columns comes from an insertion and deletion of one key in a transaction (TiCDC issue 2612).
    """
    line = value.strip(BLANK)
    if line == b"{}":
        return b""
    return None if not line or line.startswith(MARK) or b"\n" in line or b"\r" in line else line
