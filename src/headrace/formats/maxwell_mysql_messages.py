"""Reads what messages of Maxwell itself are about, which reads a MySQL or MariaDB, and the statements in them.

Format: Maxwell's documentation, "Data Format". A message is a JSON object. A row has ``type`` ``insert``, ``update`` or ``delete``,
and ``data``, the row after the change or the deleted one; an update has the former values of changed columns in ``old``. A schema
change (``output_ddl``) has ``sql``. ``position`` (``output_binlog_position``) is the end of the event in the binlog.
"""

from __future__ import annotations

import json
import re
from decimal import Decimal, InvalidOperation

from headrace.ddl.statement import StatementKind, read_statement
from headrace.formats.binlog_clock import MOST_ROWS, BinlogPlace, NoPlaceError
from headrace.formats.json_lines import BLANK, NO_OBJECT, Members, bounded_integer, decoded, integer_of, text_of
from headrace.formats.plain_messages import LATEST_MS, PlainAbout, PlainKind, PlainStatement
from headrace.model.table import TableId
from headrace.model.writable_text import as_utf8

ROW_TYPES = ("insert", "update", "delete")
_SHOWN_BY = re.compile(
    rb'(?=.{0,400}"type":"(?:insert|update|delete|table-[a-z]+|database-[a-z]+)").*"position":"[^"\\]+:[0-9]+"', re.DOTALL
)
_LAST_ROW = 1 << 30
_LONGEST_SHOWN = 80
_MILLISECONDS = 100_000_000_000
"""A greater time is in milliseconds: as seconds it would be of the year 5138. Rows have seconds."""


class _UnreadableError(Exception):
    """A message is not what it should be; ``str()`` is the end of a sentence."""


def is_plain_maxwell(value: bytes) -> bool:
    """Whether a message is one of Maxwell itself with a place in the binlog."""
    return value.startswith(b"{") and _SHOWN_BY.match(value) is not None


def read_members(value: bytes) -> Members:
    """The members of a message; numbers with a point or an exponent as Decimal. Raises ValueError, the end of a sentence."""
    found = decoded(value.strip(BLANK), _decoder)
    if not isinstance(found, Members):
        raise ValueError(NO_OBJECT)
    return found


def read_about(value: bytes) -> PlainAbout:
    """What a message is about. Never raises for a bad one."""
    if not value.strip(BLANK):
        return PlainAbout(PlainKind.IGNORED)
    names = ("", "")
    try:
        message = read_members(value)
        names = text_of(message, "database") or "", text_of(message, "table") or ""
        return _of_message(message, *names, value)
    except (ValueError, NoPlaceError, _UnreadableError) as error:
        return PlainAbout(PlainKind.UNREADABLE, *names, text=as_utf8(str(error)))


def _about(kind: PlainKind, database: str, table: str, clock: int, written_ms: int, text: bytes) -> PlainAbout:
    """Messages do not tell when they were sent: at the earliest when the event was written."""
    return PlainAbout(kind, database, table, clock, written_ms, sent_ms=written_ms, text=text)


def _of_message(message: Members, database: str, table: str, value: bytes) -> PlainAbout:
    kind = text_of(message, "type")
    if kind is None or not database:
        raise _UnreadableError("it has no type, or does not name its database.")
    if kind in ("bootstrap-start", "bootstrap-complete"):
        return PlainAbout(PlainKind.IGNORED)
    if "sql" in message:
        found = _statement(message)
        return _about(PlainKind.STATEMENT, found.table_id.database, found.table_id.table, found.clock, _written_ms(message), value)
    if kind not in ROW_TYPES:
        raise _UnreadableError(f"its type is {kind[:_LONGEST_SHOWN]!r}, which is not read. Leave rows of a bootstrap out.")
    if not table:
        raise _UnreadableError("it does not name its table.")
    offset = integer_of(message.get("xoffset"), 0, _LAST_ROW) or 0
    place = _place(message, _LAST_ROW if message.get("commit") is True else offset)
    return _about(PlainKind.ROW, database, table, place.of_row(), _written_ms(message), value)


def _place(message: Members, row: int) -> BinlogPlace:
    position = text_of(message, "position")
    if position is None:
        raise _UnreadableError("it has no position. Set output_binlog_position=true for Maxwell.")
    return BinlogPlace.of_text(position, row)


def shows_order(message: Members) -> bool:
    """Whether a row's message shows which row of its event it is; the last one of a transaction says so."""
    offset = integer_of(message.get("xoffset"), 0, _LAST_ROW)
    return message.get("commit") is True if offset is None else offset < MOST_ROWS


def _written_ms(message: Members) -> int:
    time = integer_of(message.get("ts"), 0, LATEST_MS) or 0
    return time if time > _MILLISECONDS else time * 1000


def _ran_ms(message: Members) -> int:
    """When the server ran a statement (ms since 1970). Raises _UnreadableError without a possible time: defaults depend on it."""
    found = _written_ms(message)
    if not found:
        raise _UnreadableError(f"its ts, {str(message.get('ts'))[:_LONGEST_SHOWN]}, is no time when a server ran it.")
    return found


def read_statement_message(value: bytes) -> PlainStatement:
    """The schema change in a message. Raises ValueError, the end of a sentence."""
    try:
        return _statement(read_members(value))
    except (NoPlaceError, _UnreadableError) as error:
        raise ValueError(str(error)) from None


def _statement(message: Members) -> PlainStatement:
    text, database = text_of(message, "sql"), text_of(message, "database")
    if not text or not database:
        raise _UnreadableError("it has no database or no sql.")
    read, clock = read_statement(text, ""), _place(message, 0).of_statement()
    after = message.get("def")
    named = after if isinstance(after, Members) and text_of(after, "table") else message
    table_id = TableId(text_of(named, "database") or database, text_of(named, "table") or "")
    if read.kind is StatementKind.DROP_TABLE and len(read.tables) > 1:
        text = f"DROP TABLE {table_id.quoted}"  # there is a message for each of the tables, with the whole statement
    return PlainStatement(clock, table_id.database, table_id, text, read.shows_current, False, _ran_ms(message))


def _decimal(text: str) -> Decimal:
    try:
        return Decimal(text)
    except InvalidOperation:
        raise json.JSONDecodeError(f"{text[:_LONGEST_SHOWN]} is not a number", text, 0) from None


def _constant(text: str) -> object:
    raise json.JSONDecodeError(f"{text} is not a JSON value", text, 0)


_decoder = json.JSONDecoder(object_pairs_hook=Members, parse_int=bounded_integer, parse_float=_decimal, parse_constant=_constant)
