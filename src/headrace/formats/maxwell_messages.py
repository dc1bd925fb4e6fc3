"""Splits messages of TiCDC's Maxwell protocol into rows, and reads what they are about; and the statements in them.

Format: Maxwell's documentation, "Data Format", as TiCDC writes it. The value of a message is one JSON object or several, one behind
the other: a row has ``type`` ``insert``, ``update`` or ``delete`` and the second of its commit ts, a schema change its commit ts.
There are no watermarks, and changes of databases are not sent.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum

from headrace.formats.json_lines import BLANK, Members, integer_of, read_object, text_of
from headrace.formats.schema_file import with_escapes
from headrace.formats.statements import TimedStatement
from headrace.model.tso import MAX_TSO, tso_from_ms
from headrace.model.writable_text import as_utf8

ROW_TYPES = ("insert", "update", "delete")
_NEXT = re.compile(rb'\}\s*(?=\{"(?:database|type)":")')
_ROW_KEY = (1).to_bytes(8, "big")
# As TiCDC writes the beginning of a row whose names need no escape.
_NAMED = rb'\{"database":"([^"\\\x00-\x1f]+)","table":"([^"\\\x00-\x1f]+)","type":"'
_TABLE = re.compile(_NAMED)
PLAIN_ROW = re.compile(_NAMED + rb'(insert|update|delete)","ts":([1-9][0-9]{0,10}),"(?:data|old)":\{')
"""Its groups: the names of the database and the table, the type, and the second of the commit ts."""
_STATEMENT = re.compile(rb'\{"type":"[^"\\]*","database":"')
_BROKEN_LINE = "it has line breaks between its parts, which no release of TiCDC writes."
_MOST_SECONDS = MAX_TSO >> 18
_MEMBERS_OF_MAXWELL = frozenset({"commit", "gtid", "position", "schema_id", "server_id", "thread_id", "xid", "xoffset"})
"""Members of rows and schema changes that Maxwell itself writes, by default or with its ``output_…`` settings, and TiCDC never."""
_KEYS_OF_MAXWELL = (b'{"database":', b'["')
_LEAST_COMMIT_TS = 1 << 50
"""As a TSO a moment in 1970, as milliseconds one in the year 37 648."""
FOREIGN = "it was written by Maxwell, which reads MySQL, and not by TiCDC. Set protocol=maxwell-mysql for topics of Maxwell itself."


class MaxwellKind(IntEnum):
    """The kinds of objects."""

    ROW = 0
    STATEMENT = 1
    UNREADABLE = 2


@dataclass(frozen=True)
class MaxwellEvent:
    """An object of a message."""

    kind: MaxwellKind
    database: str = ""
    table: str = ""
    """Empty where the name cannot be read."""
    commit_ts: int = 0
    """TSO; of a row the first one of its second."""
    text: bytes = b""
    """The object, of a row in one line. Of ``UNREADABLE`` the reason: the end of a sentence."""


def is_maxwell(key: bytes | None, value: bytes) -> bool:
    """Whether a message is one of this protocol: the key of rows has a version and nothing else, unlike in the Open Protocol."""
    return (key == _ROW_KEY and PLAIN_ROW.match(value) is not None) or (
        key is not None and key.startswith(b'{"ts":') and _STATEMENT.match(value) is not None
    )


def is_foreign(key: bytes) -> bool:
    """Whether a key is one of Maxwell itself: JSON with the row's table and primary key."""
    return key.startswith(_KEYS_OF_MAXWELL)


def read_events(value: bytes) -> Iterator[MaxwellEvent]:
    """The objects of a message. Never raises for a bad one."""
    value = value.strip(BLANK)
    start = 0
    while start < len(value):
        found = _NEXT.search(value, start)
        end = found.start() + 1 if found else len(value)
        part = value[start:end]
        yield _plain_row(part) or _read(part)
        start = found.end() if found else end


def _plain_row(part: bytes) -> MaxwellEvent | None:
    """A row as TiCDC writes it; ``None`` for anything else."""
    found = PLAIN_ROW.match(part)
    if found is None or not part.endswith(b"}}") or b"\n" in part:
        return None
    database, table, _, second = found.groups()
    commit_ts = tso_from_ms(int(second) * 1000)
    try:
        names = database.decode(), table.decode()
    except UnicodeDecodeError:
        return None
    return MaxwellEvent(MaxwellKind.ROW, *names, commit_ts, part) if commit_ts <= MAX_TSO else None


class _UnreadableError(Exception):
    """An object is not what it should be; ``str()`` is the end of a sentence."""


def _read(part: bytes) -> MaxwellEvent:
    named = _TABLE.match(part)
    database, table = (name.decode("utf-8", "replace") for name in named.groups()) if named else ("", "")
    try:
        try:
            message = read_object(part)
        except ValueError as error:
            raise _UnreadableError(str(error)) from None
        database, table = text_of(message, "database") or "", text_of(message, "table") or ""
        return _of_message(part, message, database, table)
    except _UnreadableError as error:
        return MaxwellEvent(MaxwellKind.UNREADABLE, database, table, text=as_utf8(str(error)))


def _of_message(part: bytes, message: Members, database: str, table: str) -> MaxwellEvent:
    kind = message.get("type")
    if not isinstance(kind, str) or not database:
        raise _UnreadableError("it has no type, or does not name its database.")
    if not _MEMBERS_OF_MAXWELL.isdisjoint(message):
        raise _UnreadableError(FOREIGN)
    if kind not in ROW_TYPES:
        commit_ts = integer_of(message.get("ts"), 1, MAX_TSO)
        if "sql" not in message or commit_ts is None:
            raise _UnreadableError(f"its type is {kind[:80]!r}, which no row has, and it is not a schema change.")
        if commit_ts < _LEAST_COMMIT_TS:
            raise _UnreadableError(FOREIGN)
        return MaxwellEvent(MaxwellKind.STATEMENT, database, table, commit_ts, part)
    if not table:
        raise _UnreadableError("it does not name its table.")
    second = integer_of(message.get("ts"), 1, _MOST_SECONDS // 1000)
    if second is None:
        raise _UnreadableError("ts is not a time in seconds.")
    if b"\n" in part or b"\r" in part:
        raise _UnreadableError(_BROKEN_LINE)
    return MaxwellEvent(MaxwellKind.ROW, database, table, tso_from_ms(second * 1000), part)


def read_statement_message(value: bytes) -> TimedStatement:
    """The schema change in an object. Raises ValueError, the end of a sentence."""
    message = read_object(value)
    commit_ts, statement = integer_of(message.get("ts"), 1, MAX_TSO), text_of(message, "sql")
    database = text_of(message, "database")
    if commit_ts is None or not statement or not database:
        raise ValueError("it has no ts, no database or no sql.")
    return TimedStatement(commit_ts, database, text_of(message, "table") or "", with_escapes(statement))
