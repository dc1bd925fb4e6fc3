"""Reads what canal-JSON messages of a stream are about, without their rows: kind, table, commit ts.

Format: TiCDC documentation, "TiCDC Canal-JSON Protocol". A Kafka record has one message. Messages of old releases may end with a
line break (TiCDC 6.5), and records may be empty (TiCDC 4.0.8); neither means anything.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.formats.alike import RowHeads, by_beginning, names_of, numbers_in
from headrace.formats.canal_messages import DECODER
from headrace.formats.canal_rows import TYPES
from headrace.formats.json_lines import BLANK, NO_OBJECT, decoded, integer_of, read_lines, text_of
from headrace.formats.large_messages import LargeMessage
from headrace.formats.schema_file import with_escapes
from headrace.model.tso import LOGICAL_BITS, MAX_TSO
from headrace.model.writable_text import is_unicode

_WATERMARK = "TIDB_WATERMARK"
_SCHEMA = pa.schema(
    [
        ("database", pa.string()),
        ("table", pa.string()),
        ("isDdl", pa.bool_()),
        ("type", pa.string()),
        ("es", pa.int64()),
        (
            "_tidb",
            pa.struct(
                [
                    ("commitTs", pa.int64()),
                    ("watermarkTs", pa.int64()),
                    ("onlyHandleKey", pa.bool_()),
                    ("claimCheckLocation", pa.string()),
                ]
            ),
        ),
    ]
)
# TiCDC writes these members first. A row's message that is damaged behind them still names its table.
_BEGINNING = re.compile(
    rb'\s*\{"id":\d+,"database":("(?:[^"\\]|\\.){0,512}"),"table":("(?:[^"\\]|\\.){0,512}"),"pkNames":(?:null|\[[^\]]*\]),"isDdl":false,'
    rb'"type":"(?:INSERT|UPDATE|DELETE)"'
)
NO_COMMIT_TS = (
    "it carries no commit ts: the changefeed writes without the TiDB extension. Set enable-tidb-extension=true in its sink "
    "URI. A topic that is complete can be read with --until-end and enable-tidb-extension=false in the source's URI."
)

_MEMBERS = ["id", "database", "table", "pkNames", "isDdl", "type"]
_BEHIND_NAMES = b',"es":'
_MOST_BEGINNING = 4096
_BEFORE_TS, _BEHIND_TS = b',"_tidb":{"commitTs":', b"}}"
# Every TSO from 2002 to 2090 has as many.
_TS_DIGITS = 18
_LEAST_TS = 10 ** (_TS_DIGITS - 1)


class EnvelopeKind(IntEnum):
    """The kinds of messages."""

    ROWS = 0
    STATEMENT = 1
    WATERMARK = 2
    UNREADABLE = 3
    EMPTY = 4


@dataclass(frozen=True)
class Envelopes:
    """What messages are about, in their order."""

    kinds: npt.NDArray[np.int8]
    """:class:`EnvelopeKind`."""
    databases: list[str | None]
    """The database; ``None`` if it cannot be read. The same holds for ``tables``."""
    tables: list[str | None]
    commit_ts: npt.NDArray[np.int64]
    """TSO. Without the TiDB extension, the least of the millisecond ``es``."""
    is_exact: npt.NDArray[np.bool_]
    """Whether ``commit_ts`` is the message's own."""
    reasons: dict[int, str]
    """Why a message is ``UNREADABLE``, by its number, as the end of a sentence."""
    large: dict[int, LargeMessage] = field(default_factory=dict)
    """The messages of the kind ``ROWS`` that have only the handle key, by their numbers."""


@dataclass(frozen=True)
class _Envelope:
    kind: EnvelopeKind
    database: str | None = None
    table: str | None = None
    commit_ts: int = 0
    is_exact: bool = True
    reason: str = ""
    large: LargeMessage | None = None


@dataclass(frozen=True)
class StatementMessage:
    """A schema change."""

    database: str
    """The current database for names without one."""
    table: str
    """The table afterwards; empty for a change of a database."""
    statement: str
    """As a server reads it: in strings a backslash is an escape."""


def read_row_heads(values: pa.Array) -> RowHeads:
    """What messages (binary) of rows are about that TiCDC has written with the extension, and which messages are no such ones.

    Only the beginning and the end of a message are looked at: what is before ``es`` is one of few texts, and the commit ts is last.
    A message may turn out to be damaged in between when its row is decoded.
    """
    commit_ts, is_regular = _commit_ts_at_end(values)
    numbers, beginnings = by_beginning(values, _BEHIND_NAMES, _MOST_BEGINNING)
    is_named, databases, tables = names_of(numbers, [_names_of_rows(beginning) for beginning in beginnings])
    is_regular &= is_named
    return RowHeads(is_regular, databases, tables, np.where(is_regular, commit_ts, 0))


def _commit_ts_at_end(values: pa.Array) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """The commit ts (TSO) with which messages (binary) end, and which of them end with nothing but that."""
    end = -len(_BEHIND_TS)
    begin = end - _TS_DIGITS
    has_text = pc.equal(pc.binary_slice(values, begin - len(_BEFORE_TS), begin), _BEFORE_TS)
    has_end = pc.ends_with(values, _BEHIND_TS)
    found = numbers_in(values, begin, end)
    return found, pc.and_(has_text, has_end).to_numpy(zero_copy_only=False) & (found >= _LEAST_TS)


def _names_of_rows(begin: bytes) -> tuple[str, str] | None:
    """Database and table of a row's message that begins so; ``None`` if it is no such beginning."""
    try:
        members = json.loads(begin + b"}")
    except (ValueError, RecursionError):
        return None
    if not isinstance(members, dict) or list(members) != _MEMBERS or members["isDdl"] is not False or members["type"] not in TYPES:
        return None
    database, table = text_of(members, "database"), text_of(members, "table")
    return (database, table) if database is not None and table else None


def read_envelopes(values: Sequence[bytes], *, exact: bool = True) -> Envelopes:
    """What messages are about. With ``exact``, a message without a commit ts is ``UNREADABLE``. Never raises for a bad message."""
    found = _parsed_together(values)
    if found is None:
        return _collected([_read(value, exact) for value in values])
    extension = found.column("_tidb")
    types, is_ddl = found.column("type"), pc.fill_null(found.column("isDdl"), False)
    is_watermark = pc.fill_null(pc.equal(types, _WATERMARK), False)
    is_row = pc.fill_null(pc.is_in(types, pa.array(TYPES)), False)
    commit_ts = pc.struct_field(extension, "commitTs")
    ts = pc.if_else(is_watermark, pc.struct_field(extension, "watermarkTs"), commit_ts)
    whole = pc.and_(
        pc.is_null(pc.struct_field(extension, "claimCheckLocation")),
        pc.invert(pc.fill_null(pc.struct_field(extension, "onlyHandleKey"), False)),
    )
    named = pc.and_(pc.is_valid(found.column("database")), pc.is_valid(found.column("table")))
    named_row = pc.and_(pc.and_(is_row, pc.invert(is_ddl)), pc.not_equal(found.column("table"), ""))
    of_a_kind = pc.or_(pc.or_(is_watermark, is_ddl), named_row)
    in_range = pc.fill_null(pc.and_(pc.greater(ts, 0), pc.less_equal(ts, MAX_TSO)), False)
    plain = pc.fill_null(pc.and_(pc.and_(in_range, named), pc.and_(whole, of_a_kind)), False).to_numpy(zero_copy_only=False)
    kinds = np.where(
        is_watermark.to_numpy(False), EnvelopeKind.WATERMARK, np.where(is_ddl.to_numpy(False), EnvelopeKind.STATEMENT, 0)
    )
    envelopes = Envelopes(
        kinds.astype(np.int8),
        found.column("database").to_pylist(),
        found.column("table").to_pylist(),
        pc.fill_null(ts, 0).to_numpy(False).copy(),
        np.ones(len(values), bool),
        {},
    )
    for number in np.flatnonzero(~plain).tolist():
        _put(envelopes, number, _read(values[number], exact))
    return envelopes


def read_statement_message(value: bytes) -> StatementMessage:
    """The schema change in a message. Raises ValueError."""
    message = _parse(value)
    database, table, statement = (text_of(message, key) for key in ("database", "table", "sql"))
    if database is None or table is None or statement is None:
        raise ValueError("database, table and sql are not all texts")
    return StatementMessage(database, table, with_escapes(statement))


def as_line(value: bytes) -> bytes | None:
    """The message as one line, without blanks around it; ``None`` if line breaks are in it."""
    line = value.strip(BLANK)
    return None if b"\n" in line or b"\r" in line else line


def _parsed_together(values: Sequence[bytes]) -> pa.RecordBatch | None:
    """The messages as columns; ``None`` if one has to be looked at by itself."""
    try:
        return read_lines([value.strip(BLANK) for value in values], _SCHEMA, unexpected="ignore")
    except ValueError:
        return None


def _read(value: bytes, exact: bool) -> _Envelope:
    """What one message is about."""
    if not value.strip(BLANK):
        return _Envelope(EnvelopeKind.EMPTY)
    try:
        message = _parse(value)
    except ValueError as error:
        return _damaged(value, str(error))
    try:
        return _of_message(message, exact)
    except _UnreadableError as error:
        return _Envelope(EnvelopeKind.UNREADABLE, text_of(message, "database"), text_of(message, "table"), reason=str(error))


class _UnreadableError(Exception):
    """A message that is JSON and not what it should be; ``str()`` is the end of a sentence."""


def _of_message(message: dict[str, object], exact: bool) -> _Envelope:
    extension = message.get("_tidb")
    told = extension if isinstance(extension, dict) else {}
    if message.get("type") == _WATERMARK:
        watermark = _tso(told.get("watermarkTs"))
        if watermark is None:
            raise _UnreadableError("it is a watermark without a ts in _tidb.watermarkTs.")
        return _Envelope(EnvelopeKind.WATERMARK, "", "", watermark)
    is_ddl = message.get("isDdl") is True
    if not is_ddl and message.get("type") not in TYPES:
        raise _UnreadableError(f"its type is {str(message.get('type'))[:80]!r}, which is not known.")
    database, table = text_of(message, "database"), text_of(message, "table")
    if database is None or table is None or not (table or is_ddl):
        raise _UnreadableError("it does not name its table.")
    try:
        large = LargeMessage.of_members(told.get("onlyHandleKey"), told.get("claimCheckLocation"))
    except ValueError as error:
        raise _UnreadableError(str(error)) from None
    kind = EnvelopeKind.STATEMENT if is_ddl else EnvelopeKind.ROWS
    if told.get("commitTs") is not None or exact:
        return _Envelope(kind, database, table, _told_commit_ts(told), large=large)
    millisecond = _tso(message.get("es"))
    if millisecond is None or millisecond > MAX_TSO >> LOGICAL_BITS:
        raise _UnreadableError("es is not the millisecond of a commit ts.")
    return _Envelope(kind, database, table, millisecond << LOGICAL_BITS, is_exact=False)


def _told_commit_ts(told: dict[str, object]) -> int:
    if told.get("commitTs") is None:
        raise _UnreadableError(NO_COMMIT_TS)
    commit_ts = _tso(told["commitTs"])
    if commit_ts is None:
        raise _UnreadableError("_tidb.commitTs is not a commit ts.")
    return commit_ts


def _damaged(value: bytes, why: str) -> _Envelope:
    begins = _BEGINNING.match(value)
    try:
        names = [json.loads(part) for part in begins.groups()] if begins else []
    except ValueError:
        names = []
    database, table = names if names and all(map(is_unicode, names)) else ("", "")
    return _Envelope(EnvelopeKind.UNREADABLE, database, table, reason=why)


def _parse(value: bytes) -> dict[str, object]:
    """Raises ValueError with a sentence."""
    message = decoded(value, DECODER)
    if not isinstance(message, dict):
        raise ValueError(NO_OBJECT)
    return message


def _tso(value: object) -> int | None:
    return integer_of(value, 1, MAX_TSO)


def _collected(found: Sequence[_Envelope]) -> Envelopes:
    count = len(found)
    empty = Envelopes(np.zeros(count, np.int8), [None] * count, [None] * count, np.zeros(count, np.int64), np.ones(count, bool), {})
    for number, envelope in enumerate(found):
        _put(empty, number, envelope)
    return empty


def _put(envelopes: Envelopes, number: int, envelope: _Envelope) -> None:
    envelopes.kinds[number] = envelope.kind
    envelopes.databases[number], envelopes.tables[number] = envelope.database, envelope.table
    envelopes.commit_ts[number], envelopes.is_exact[number] = envelope.commit_ts, envelope.is_exact
    if envelope.kind is EnvelopeKind.UNREADABLE:
        envelopes.reasons[number] = envelope.reason
    if envelope.large is not None:
        envelopes.large[number] = envelope.large
