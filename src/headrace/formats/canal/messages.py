"""Splits Canal's protobuf messages into rows and statements, and reads what these are about.

Times are in milliseconds. There are no watermarks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum

from google.protobuf.message import DecodeError as ProtobufError

from headrace.formats.canal import canal_pb2 as pb
from headrace.formats.schema_file import with_escapes
from headrace.formats.statements import TimedStatement
from headrace.model.tso import MAX_TSO, tso_from_ms, tso_to_ms
from headrace.model.writable_text import as_utf8

BEGINNING = b"\x10\x01\x18\x07*"
"""How TiCDC begins each message: version 1, the type MESSAGES, and the body."""
INSERT, UPDATE, DELETE = 1, 2, 3
_MESSAGES = 7
_ROW_DATA = 2
_IGNORED = frozenset({1, 3, 4})
"""Entries that are marks of transactions, or heartbeats."""
_STATEMENTS = range(4, 12)
_NOT_PROTOBUF = "it is not a message of Canal's protobuf protocol."


class CanalKind(IntEnum):
    """The kinds of entries."""

    ROWS = 0
    STATEMENT = 1
    UNREADABLE = 2


@dataclass(frozen=True)
class CanalEntry:
    """What an entry is about."""

    kind: CanalKind
    database: str = ""
    table: str = ""
    """Empty for a change of a database, and where the name cannot be read."""
    commit_ts: int = 0
    """The first TSO of the millisecond."""
    content: bytes = b""
    """Of rows a ``RowChange``, of a statement the ``Entry``. Of ``UNREADABLE`` the reason: the end of a sentence."""


def read_entries(value: bytes) -> Iterator[CanalEntry]:
    """The entries of a message, without marks of transactions. Never raises for a bad message."""
    try:
        packet = pb.Packet.FromString(value)
        entries = pb.Messages.FromString(packet.body).messages
    except ProtobufError:
        yield _unreadable(_NOT_PROTOBUF)
        return
    if packet.type != _MESSAGES or packet.compression > 1:
        yield _unreadable(f"its type is {packet.type} and its compression {packet.compression}, and TiCDC writes 7 and none.")
        return
    for content in entries:
        try:
            entry = pb.Entry.FromString(content)
        except ProtobufError:
            yield _unreadable(_NOT_PROTOBUF)
            continue
        if entry.entry_type not in _IGNORED:
            yield _read(entry, content)


def _unreadable(reason: str, database: str = "", table: str = "") -> CanalEntry:
    return CanalEntry(CanalKind.UNREADABLE, database, table, content=as_utf8(reason))


def _read(entry: pb.Entry, content: bytes) -> CanalEntry:
    header = entry.header
    try:
        database, table = header.schema_name.decode(), header.table_name.decode()
    except UnicodeDecodeError:
        return _unreadable("the name of its database or table is not UTF-8.")
    if reason := _unsound(entry, named=bool(database and table)):
        return _unreadable(reason, database, table)
    commit_ts = tso_from_ms(header.execute_time)
    if header.event_type in _STATEMENTS:
        return CanalEntry(CanalKind.STATEMENT, database, table, commit_ts, content)
    return CanalEntry(CanalKind.ROWS, database, table, commit_ts, entry.store_value)


def _unsound(entry: pb.Entry, *, named: bool) -> str:
    """Why an entry is not one that TiCDC writes: the end of a sentence; empty if it is. ``named``: whether it names a table."""
    event = entry.header.event_type
    if entry.entry_type != _ROW_DATA:
        return f"its entry has the type {entry.entry_type}, which is not known."
    if not 0 < entry.header.execute_time <= tso_to_ms(MAX_TSO):
        return "executeTime is not a time in milliseconds."
    if event not in (INSERT, UPDATE, DELETE, *_STATEMENTS):
        return f"its event has the type {event}, which is not known."
    return "" if named or event in _STATEMENTS else "it does not name its table."


def read_statement_entry(content: bytes) -> TimedStatement:
    """The schema change in an entry. Raises ValueError, the end of a sentence."""
    try:
        entry = pb.Entry.FromString(content)
        statement = pb.RowChange.FromString(entry.store_value).sql.decode()
        database, table = entry.header.schema_name.decode(), entry.header.table_name.decode()
    except (ProtobufError, UnicodeDecodeError):
        raise ValueError("it is not protobuf, or its text is not UTF-8.") from None
    if not statement or not database:
        raise ValueError("it has no statement, or does not name its database.")
    return TimedStatement(tso_from_ms(entry.header.execute_time), database, table, with_escapes(statement))
