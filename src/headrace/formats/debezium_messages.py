"""Reads what messages of TiCDC's Debezium protocol are about, and cuts out the text of their rows; and the statements in them.

Format: TiCDC documentation, "TiCDC Debezium Protocol". A message is ``{"payload": …}``, mostly with a ``schema`` behind it that
describes the payload again with each message. ``payload.source`` names the table and the commit ts. ``op`` is ``c`` (insert),
``u``, ``d``, or ``m`` for a watermark; a schema change has none.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple

from headrace.formats.json_lines import BLANK, Members, integer_of, read_object, text_of
from headrace.formats.schema_file import with_escapes
from headrace.formats.statements import TimedStatement
from headrace.model.tso import MAX_TSO
from headrace.model.types import BINARY_KINDS, CHARACTER_KINDS
from headrace.model.writable_text import as_utf8

CONNECTOR = "TiCDC"
BYTES = "bytes"
"""The member of a line that :func:`bytes_told` gives."""
_TYPES_OF_BYTES = frozenset(str(kind).lower() for kind in BINARY_KINDS)
_TYPES_OF_TEXT = frozenset(str(kind).lower() for kind in CHARACTER_KINDS)
ROW_OPERATIONS = ("c", "u", "d")
WATERMARK = "m"
_MOST_SCHEMAS, _MOST_HELD = 1000, 32 << 20
"""How many schemas are held, and of how many bytes together."""
_BROKEN_LINE = "it has line breaks between its parts, which no release of TiCDC writes."
# As TiCDC writes the beginning of a row whose names need no escape. No other text can look so: quotes in strings have a backslash.
_NAMED = (
    rb'\{"payload":\{"source":\{"version":"[^"\\]*","connector":"TiCDC","name":"[^"\\]*","ts_ms":[0-9]+,"snapshot":"[a-z]*",'
    rb'"db":"([^"\\\x00-\x1f]+)","table":"([^"\\\x00-\x1f]+)",'
)
_TABLE = re.compile(_NAMED)
ROW = re.compile(
    _NAMED + rb'"server_id":0,"gtid":null,"file":"","pos":0,"row":0,"thread":0,"query":null,"commit_ts":([1-9][0-9]{0,18}),'
    rb'(?:"start_ts":[0-9]+,)?"cluster_id":"[^"\\]*"\},"ts_ms":[0-9]+,"transaction":null,"op":"([cud])",'
)
_BEGINNING = re.compile(rb'\s*\{"payload":\{"source":\{[^{}\\]*?"connector":"TiCDC",')
SCHEMA, END = b'},"schema":{', b"}}"
_LINE = b'{"op":"'


class DebeziumKind(IntEnum):
    """The kinds of messages."""

    ROW = 0
    STATEMENT = 1
    WATERMARK = 2
    UNREADABLE = 3
    IGNORED = 4
    """It is empty."""


class DebeziumAbout(NamedTuple):
    """What a message is about."""

    kind: DebeziumKind
    database: str = ""
    table: str = ""
    """Empty for a change of a database, and where the name cannot be read."""
    commit_ts: int = 0
    """TSO."""
    text: bytes = b""
    """Of a row, a line: the payload's ``op``, ``before`` and ``after``, behind :data:`BYTES` if the message has a ``schema`` that
    tells it; or the whole message if it is not as TiCDC writes it. Of an ``UNREADABLE`` message, the reason: the end of a sentence.
    Else the message."""


class AboutMessages:
    """What messages are about, by column. A message that says nothing is left out."""

    def __init__(self) -> None:
        self.numbers: list[int] = []
        """The number of each message among all."""
        self.kinds: list[DebeziumKind] = []
        self.databases: list[str] = []
        self.tables: list[str] = []
        self.commit_ts: list[int] = []
        self.texts: list[bytes] = []

    def add(self, number: int, kind: DebeziumKind, database: str, table: str, commit_ts: int, text: bytes) -> None:
        self.numbers.append(number)
        self.kinds.append(kind)
        self.databases.append(database)
        self.tables.append(table)
        self.commit_ts.append(commit_ts)
        self.texts.append(text)


def is_debezium(value: bytes) -> bool:
    """Whether a message begins as TiCDC begins those of this protocol."""
    return _BEGINNING.match(value) is not None


def foreign(connector: object) -> str:
    """Why a message of another connector is not read, as the end of a sentence."""
    told = f"it was written by the connector {str(connector)[:80]!r}, and only messages of TiCDC are read."
    return f"{told} Set protocol=debezium-mysql for topics of Debezium itself." if connector in ("mysql", "mariadb") else told


def bytes_told(schema: object) -> str | None:
    """Which columns hold bytes, by the ``schema`` of a row's message: their names as a JSON list; ``None`` if it does not tell.

    TiCDC writes binary types as strings, but with their names in ``tidb_type``; Debezium itself writes them as ``bytes``.
    """
    sides = {text_of(side, "field"): side for side in _fields(schema)}
    columns = _fields(sides.get("after") or sides.get("before"))
    types = [text_of(column, "tidb_type") for column in columns]
    are_bytes = [
        (of or "").partition("(")[0].lower() in _TYPES_OF_BYTES or (column.get("type") == "bytes" and "name" not in column)
        for column, of in zip(columns, types, strict=True)
    ]
    if not any(are_bytes) and (not types or None in types):
        return None
    names = [text_of(column, "field") for column, holds_bytes in zip(columns, are_bytes, strict=True) if holds_bytes]
    return json.dumps([name for name in names if name is not None], separators=(",", ":"))


def _fields(struct: object) -> list[Members]:
    """What a ``schema`` says of the members of a struct; nothing for anything else."""
    fields = struct.get("fields") if isinstance(struct, Members) else None
    return [field for field in fields if isinstance(field, Members)] if isinstance(fields, list) else []


def read_about(values: Sequence[bytes], schemas: dict[bytes, bytes]) -> AboutMessages:
    """What messages are about. Never raises for a bad message.

    ``schemas`` are texts of ``schema`` that were found to be sound, with the beginnings of their lines, and is added to: a table's
    messages all have the same.
    """
    about = AboutMessages()
    names: dict[tuple[bytes, bytes], tuple[str, str]] = {}
    tail, beginning = b"", b""  # the schema behind the row before, with what is around it, and what begins its line
    for number, value in enumerate(values):
        row = ROW.match(value)
        if row is not None:
            begin = row.end()
            # The end of each message is also that of one with a schema, and a broken one may have two.
            if len(tail) <= len(END) or not value.endswith(tail) or SCHEMA in value[begin : len(value) - len(tail)]:
                tail, beginning = sound_tail(value, begin, schemas)
            database, table, digits, operation = row.groups()
            name, commit_ts = names.get((database, table)), int(digits)
            if name is None:
                name = names[database, table] = _decoded(database), _decoded(table)
            if tail and commit_ts <= MAX_TSO and all(name) and b"\n" not in value:
                line = beginning + operation + b'",' + value[begin : len(value) - len(tail)] + b"}"
                about.add(number, DebeziumKind.ROW, *name, commit_ts, line)
                continue
        told = _read(value)
        if told.kind is not DebeziumKind.IGNORED:
            about.add(number, *told)
    return about


def _decoded(name: bytes) -> str:
    """The name; empty if it is not UTF-8."""
    try:
        return name.decode()
    except UnicodeDecodeError:
        return ""


def sound_tail(value: bytes, begin: int, schemas: dict[bytes, bytes]) -> tuple[bytes, bytes]:
    """What is behind the members of a row's payload, which begin at ``begin``, and what the row's line begins with.

    The first is empty if it is not what TiCDC writes there.
    """
    end = value.find(SCHEMA, begin)
    if not value.endswith(END):
        return b"", b""
    if end < 0:
        return END, _LINE
    schema = value[end + len(SCHEMA) - 1 : -1]
    beginning = schemas.get(schema)
    if beginning is None:
        try:
            told = bytes_told(read_object(schema))
        except ValueError:
            return b"", b""
        beginning = _LINE if told is None else b'{"%s":%s,' % (BYTES.encode(), json.dumps(told).encode()) + _LINE[1:]
        if len(schemas) < _MOST_SCHEMAS and sum(map(len, schemas)) + len(schema) <= _MOST_HELD:
            schemas[schema] = beginning
    return value[end:], beginning


class _UnreadableError(Exception):
    """A message is not what it should be; ``str()`` is the end of a sentence."""


def _read(value: bytes) -> DebeziumAbout:
    stripped = value.strip(BLANK)
    if not stripped:
        return DebeziumAbout(DebeziumKind.IGNORED)
    named = _TABLE.match(stripped)
    database, table = (name.decode("utf-8", "replace") for name in named.groups()) if named else ("", "")
    try:
        try:
            message = read_object(stripped)
        except ValueError as error:
            raise _UnreadableError(str(error)) from None
        payload, source = _parts(message)
        database, table = text_of(source, "db") or "", text_of(source, "table") or ""
        return _of_message(stripped, payload, source, (database, table))
    except _UnreadableError as error:
        return DebeziumAbout(DebeziumKind.UNREADABLE, database, table, text=as_utf8(str(error)))


def _parts(message: Members) -> tuple[Members, Members]:
    """The payload, and the source in it."""
    payload = message.get("payload")
    source = payload.get("source") if isinstance(payload, Members) else None
    if not isinstance(payload, Members) or not isinstance(source, Members):
        raise _UnreadableError("it has no payload with a source, which messages of the protocol debezium have.")
    if source.get("connector") != CONNECTOR:
        raise _UnreadableError(foreign(source.get("connector")))
    return payload, source


def _of_message(value: bytes, payload: Members, source: Members, names: tuple[str, str]) -> DebeziumAbout:
    operation, commit_ts = payload.get("op"), integer_of(source.get("commit_ts"), 1, MAX_TSO)
    if operation is None and "ddl" not in payload:
        raise _UnreadableError("it is neither a row nor a schema change nor a watermark.")
    if operation not in (None, *ROW_OPERATIONS, WATERMARK):
        raise _UnreadableError(f"its op is {str(operation)[:80]!r}, which is not known.")
    if commit_ts is None:
        raise _UnreadableError("source.commit_ts is not a commit ts.")
    if operation == WATERMARK:
        return DebeziumAbout(DebeziumKind.WATERMARK, commit_ts=commit_ts)
    if operation is None:
        return DebeziumAbout(DebeziumKind.STATEMENT, *names, commit_ts, value)
    if not all(names):
        raise _UnreadableError("it does not name its table.")
    if b"\n" in value or b"\r" in value:
        raise _UnreadableError(_BROKEN_LINE)
    return DebeziumAbout(DebeziumKind.ROW, *names, commit_ts, value)


def read_statement_message(value: bytes) -> TimedStatement:
    """The schema change in a message. Raises ValueError, the end of a sentence."""
    payload = read_object(value).get("payload")
    source = payload.get("source") if isinstance(payload, Members) else None
    if not isinstance(payload, Members) or not isinstance(source, Members):
        raise ValueError("it has no payload with a source.")
    commit_ts, statement = integer_of(source.get("commit_ts"), 1, MAX_TSO), text_of(payload, "ddl")
    database = text_of(source, "db")
    if commit_ts is None or not statement or not database:
        raise ValueError("it has no commit_ts, no db or no ddl.")
    return TimedStatement(commit_ts, database, text_of(source, "table") or "", with_escapes(statement))


def bytes_of_statement(value: bytes) -> tuple[tuple[str, bool], ...]:
    """By column, whether it holds bytes or text after the schema change in a message; nothing if ``tableChanges`` does not tell.

    Raises ValueError, the end of a sentence.
    """
    payload = read_object(value).get("payload")
    changes = payload.get("tableChanges") if isinstance(payload, Members) else None
    change = changes[0] if isinstance(changes, list) and len(changes) == 1 else None
    table = change.get("table") if isinstance(change, Members) else None
    columns = table.get("columns") if isinstance(table, Members) else None
    found = []
    for column in columns if isinstance(columns, list) else ():
        name, of = (text_of(column, member) for member in ("name", "typeName")) if isinstance(column, Members) else (None, None)
        if name is not None and of is not None and of.lower() in _TYPES_OF_BYTES | _TYPES_OF_TEXT:
            found.append((name, of.lower() in _TYPES_OF_BYTES))
    return tuple(found)
