"""Reads what messages of Debezium's own connectors for MySQL and MariaDB are about, and the statements in them.

Format: Debezium documentation, "Debezium connector for MySQL", sections "Data change events" and "Schema change topic". A message
is ``{"schema": …, "payload": …}``, or with ``schemas.enable=false`` the payload alone. The payload of a row has ``op``: ``c``,
``u``, ``d``, ``r`` for a row of a snapshot, ``t`` for TRUNCATE. That of a schema change has ``ddl``. ``source`` says where in the
binlog it was read.
"""

from __future__ import annotations

import re

from headrace.ddl.statement import Statement, StatementKind, read_statement
from headrace.formats.binlog_clock import BinlogPlace, NoPlaceError
from headrace.formats.json_lines import BLANK, Members, integer_of, read_object, text_of
from headrace.formats.plain_messages import LATEST_MS, PlainAbout, PlainKind, PlainStatement
from headrace.model.table import TableId
from headrace.model.writable_text import as_utf8

CONNECTORS = ("mysql", "mariadb")
ROW_OPERATIONS = ("r", "c", "u", "d")
TRUNCATE = "t"
_SHOWN_BY = re.compile(rb'"source":\{"version":"[^"\\]*","connector":"(?:mysql|mariadb)"')
_SCHEMA, _PAYLOAD = b'{"schema":{', b'},"payload":'
_MOST_HELD = 128 << 20
"""The memory (bytes) that parsed schemas may take which are held."""
_BYTES_OF_OBJECT, _BYTES_OF_MEMBER = 500, 150
"""About what a parsed JSON object or list takes in memory, and each comma or colon in it."""
_LONGEST_SHOWN = 80
_INCREMENTAL = "incremental"
"""A snapshot beside the reading of the binlog: its rows have a place that was read before, and no time of their own."""
_TABLE_OF_CHANGE = re.compile(r'"((?:[^"]|"")*)"\."((?:[^"]|"")*)"')
_OF_SNAPSHOTS = {
    StatementKind.DROP_TABLE: 1,
    StatementKind.CREATE_DATABASE: 2,
    StatementKind.CREATE_TABLE: 3,
}
"""The statements of a snapshot that count, in their order: all of them are at one place in the binlog, before the rows."""


class UnreadableError(Exception):
    """A message is not what it should be; ``str()`` is the end of a sentence."""


class Schemas:
    """The schemas of messages, each parsed once: a table's messages all have the same. Those that are too much are not held."""

    def __init__(self) -> None:
        self._known: dict[bytes, Members] = {}
        self._held = 0

    def __reduce__(self) -> tuple[type[Schemas], tuple[()]]:
        return Schemas, ()

    def parts(self, value: bytes) -> tuple[Members | None, Members]:
        """The schema, ``None`` without one, and the payload of a message. Raises UnreadableError."""
        end = value.find(_PAYLOAD) if value.startswith(_SCHEMA) else -1
        try:
            if end < 0:
                return _parts(read_object(value.strip(BLANK)))
            text = value[len(_SCHEMA) - 1 : end + 1]
            schema = self._known.get(text)
            if schema is None:
                schema = read_object(text)
                self._hold(text, schema)
            return schema, _parts(read_object(b"{" + value[end + 2 :]))[1]
        except ValueError as error:
            raise UnreadableError(str(error)) from None

    def _hold(self, text: bytes, schema: Members) -> None:
        objects, members = text.count(b"{") + text.count(b"["), text.count(b",") + text.count(b":")
        size = len(text) + _BYTES_OF_OBJECT * objects + _BYTES_OF_MEMBER * members
        if self._held + size <= _MOST_HELD:
            self._known[text] = schema
            self._held += size

    def holds(self, schema: Members) -> bool:
        """Whether it will be the same object for all messages that have it."""
        return any(schema is known for known in self._known.values())


def _parts(message: Members) -> tuple[Members | None, Members]:
    schema, payload = message.get("schema"), message.get("payload", message)
    if not isinstance(payload, Members):
        raise UnreadableError("its payload is no JSON object.")
    return schema if isinstance(schema, Members) else None, payload


def is_plain_debezium(value: bytes) -> bool:
    """Whether a message is one of Debezium's own connectors for MySQL and MariaDB."""
    return _SHOWN_BY.search(value) is not None


def read_about(value: bytes, schemas: Schemas) -> PlainAbout:
    """What a message is about. Never raises for a bad one."""
    if not value.strip(BLANK):
        return PlainAbout(PlainKind.IGNORED)
    names = ("", "")
    try:
        _, payload = schemas.parts(value)
        if _says_nothing(payload):
            return PlainAbout(PlainKind.IGNORED)
        source = _source(payload)
        names = text_of(source, "db") or "", text_of(source, "table") or ""
        if "ddl" in payload:
            return _of_statement(payload, value)
        return _of_row(payload, source, value)
    except (UnreadableError, NoPlaceError) as error:
        return PlainAbout(PlainKind.UNREADABLE, *names, text=as_utf8(str(error)))


def _says_nothing(payload: Members) -> bool:
    """Whether it is a heartbeat, or the beginning or end of a transaction."""
    return payload.keys() == {"ts_ms"} or ("event_count" in payload and payload.get("status") in ("BEGIN", "END"))


def _source(payload: Members) -> Members:
    source = payload.get("source")
    if not isinstance(source, Members):
        raise UnreadableError(
            "it has no source, which messages of Debezium have. If a transformation of the connector unwraps them, such as "
            "ExtractNewRecordState, remove it."
        )
    if source.get("connector") not in CONNECTORS:
        connector = str(source.get("connector"))[:_LONGEST_SHOWN]
        raise UnreadableError(
            f"it was written by the connector {connector!r}, and debezium-mysql is for Debezium's connectors for MySQL and MariaDB."
        )
    return source


def _of_row(payload: Members, source: Members, value: bytes) -> PlainAbout:
    operation = payload.get("op")
    if operation not in (*ROW_OPERATIONS, TRUNCATE):
        raise UnreadableError(f"its op is {str(operation)[:_LONGEST_SHOWN]!r}, which is not known.")
    database, table = text_of(source, "db"), text_of(source, "table")
    if not database or not table:
        raise UnreadableError("it does not name its table.")
    place, times = BinlogPlace.of(source), _times(payload, source)
    if operation == TRUNCATE:
        return PlainAbout(PlainKind.STATEMENT, database, table, place.of_statement(), *times, value)
    return PlainAbout(PlainKind.ROW, database, table, place.of_row(), *times, value)


def _of_statement(payload: Members, value: bytes) -> PlainAbout:
    found = _statement(payload)
    if found is None:
        return PlainAbout(PlainKind.IGNORED)
    table_id, times = found.table_id, _times(payload, _source(payload))
    return PlainAbout(PlainKind.STATEMENT, table_id.database, table_id.table, found.clock, *times, value)


def _times(payload: Members, source: Members) -> tuple[int, int, bool]:
    """When the event was written, when it was sent, and whether it is of a snapshot."""
    written, sent = (integer_of(told.get("ts_ms"), 0, LATEST_MS) or 0 for told in (source, payload))
    return 0 if source.get("snapshot") == _INCREMENTAL else written, sent, _is_of_snapshot(source)


def _ran_ms(source: Members) -> int:
    """When the server ran a statement (ms since 1970). Raises UnreadableError without a possible time: defaults depend on it."""
    found = integer_of(source.get("ts_ms"), 1, LATEST_MS)
    if found is None:
        raise UnreadableError(f"its source.ts_ms, {str(source.get('ts_ms'))[:_LONGEST_SHOWN]}, is no time when a server ran it.")
    return found


def _is_of_snapshot(source: Members) -> bool:
    return source.get("snapshot") not in (None, False, "false", _INCREMENTAL)


def read_statement_message(value: bytes) -> PlainStatement:
    """The schema change in a message. Raises ValueError, the end of a sentence."""
    try:
        _, payload = Schemas().parts(value)
        source = _source(payload)
        if payload.get("op") == TRUNCATE:
            table_id = TableId(text_of(source, "db") or "", text_of(source, "table") or "")
            clock = BinlogPlace.of(source).of_statement()
            text, ran_ms = f"TRUNCATE TABLE {table_id.quoted}", _ran_ms(source)
            return PlainStatement(clock, table_id.database, table_id, text, True, False, ran_ms)
        found = _statement(payload)
    except (UnreadableError, NoPlaceError) as error:
        raise ValueError(str(error)) from None
    if found is None:
        raise ValueError("it has no schema change.")
    return found


def _statement(payload: Members) -> PlainStatement | None:
    """The schema change; ``None`` for a statement that changes neither a table nor a database. Raises UnreadableError."""
    text, database = text_of(payload, "ddl"), text_of(payload, "databaseName")
    if text is None or database is None:
        raise UnreadableError("it has no ddl or no databaseName.")
    source, read = _source(payload), read_statement(text, "")
    place = BinlogPlace.of(source)
    if not _is_of_snapshot(source):
        clock = place.of_statement()
    elif read.kind in _OF_SNAPSHOTS:
        clock = place.of_statement(_OF_SNAPSHOTS[read.kind])
    else:
        return None
    if not database or read.kind is StatementKind.EMPTY:
        return None
    table_id, ran_ms = _table_of(payload, read, database), _ran_ms(source)
    return PlainStatement(clock, database, table_id, text, read.shows_current, _is_of_snapshot(source), ran_ms)


def _table_of(payload: Members, read: Statement, database: str) -> TableId:
    """The table that a statement changes: as ``tableChanges`` has it, or its text, or else the database."""
    changes = payload.get("tableChanges")
    for change in changes if isinstance(changes, list) else []:
        found = _TABLE_OF_CHANGE.fullmatch(str(change.get("id"))) if isinstance(change, Members) else None
        if found is not None:
            return TableId(*(name.replace('""', '"') for name in found.groups()))
    named = read.renames[-1][1] if read.renames else next(iter(read.tables), None)
    if named is None or not named.table:
        return TableId(database)
    return named if named.database else TableId(database, named.table)
