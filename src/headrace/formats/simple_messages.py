"""Reads what messages of TiCDC's Simple Protocol are about, without their rows, and the statements and shapes in them.

Format: TiCDC documentation, "TiCDC Simple Protocol", with the encoding JSON. A message concerns one row, one statement with the
table's shape, the shape alone (BOOTSTRAP), or all tables (WATERMARK).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import reduce

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.formats.alike import RowHeads, begin_with, by_beginning, names_of, numbers_in
from headrace.formats.json_lines import BLANK, Members, integer_of, read_lines, read_object, text_of
from headrace.formats.large_messages import LargeMessage
from headrace.formats.schema_file import MOST_COLUMNS, with_escapes
from headrace.model.table import Column, TableId, TableSchema, folded_name, is_possible_text
from headrace.model.tso import MAX_TSO
from headrace.model.types import LONGEST_TEXT, ColumnType, TypeKind, unfit_members
from headrace.model.writable_text import is_unicode

VERSION = 1
ROW_TYPES = ("INSERT", "UPDATE", "DELETE")
_WATERMARK, _BOOTSTRAP = "WATERMARK", "BOOTSTRAP"
_STATEMENT_TYPES = ("CREATE", "RENAME", "CINDEX", "DINDEX", "ERASE", "TRUNCATE", "ALTER", "QUERY")
_LONGEST_NAME = 256
_MOST_INDEXES = 512
_MOST_LENGTH, _MOST_SCALE = (1 << 32) - 1, 255
# The columns of views are without a type; views have no rows, so any text type will do for them.
_KINDS = {str(kind).lower(): kind for kind in TypeKind} | {"unspecified": TypeKind.VAR_STRING}
_SCHEMA = pa.schema(
    [
        *(("version", pa.int64()), ("database", pa.string()), ("table", pa.string()), ("type", pa.string())),
        *(("commitTs", pa.int64()), ("handleKeyOnly", pa.bool_()), ("claimCheckLocation", pa.string())),
    ]
)
_MEMBERS = ["version", "database", "table", "tableID", "type"]
_BEHIND_NAMES = b',"commitTs":'
_MOST_BEGINNING = 4096
# Every TSO from 2002 to 2090 has as many digits, and milliseconds have 13 from 2001 to 2286.
_TS_DIGITS = 18
_LEAST_TS = 10 ** (_TS_DIGITS - 1)
_NUMBERS_BEHIND = (b',"buildTs":', 13, b',"schemaVersion":', _TS_DIGITS)
AVRO_UNION = b"\x16"
"""The first byte of a message with the encoding Avro: 11, the place of a record in its schema, as a zigzag number."""


class SimpleKind(IntEnum):
    """The kinds of messages."""

    ROW = 0
    STATEMENT = 1
    WATERMARK = 2
    UNREADABLE = 3
    IGNORED = 4
    """Empty, or BOOTSTRAP: it tells a shape that a statement has told before, and must not be executed."""


@dataclass(frozen=True)
class SimpleAbout:
    """What a message is about."""

    kind: SimpleKind
    database: str = ""
    """Empty for a change of a database, which only the statement names, and where the name cannot be read."""
    table: str = ""
    commit_ts: int = 0
    """TSO."""
    reason: str = ""
    """Why it is ``UNREADABLE``: the end of a sentence."""
    large: LargeMessage | None = None
    """Set for a row of which the message has only the handle key."""


@dataclass(frozen=True)
class SimpleStatement:
    """A schema change."""

    commit_ts: int
    statement: str
    """As a server reads it."""
    schema: TableSchema | None
    """The table's shape afterwards; ``None`` for a change of a database."""


def is_avro(value: bytes) -> bool:
    """Whether a message has the encoding Avro."""
    return value.startswith(AVRO_UNION)


def read_row_heads(values: pa.Array) -> RowHeads:
    """What messages (binary) of rows are about that TiCDC has written, and which messages are no such ones.

    Only their beginnings are looked at: numbers have a known length there, and what is around them is one of few texts. A message
    may turn out to be damaged behind that when its row is decoded.
    """
    numbers, beginnings = by_beginning(values, _BEHIND_NAMES, _MOST_BEGINNING)
    is_named, databases, tables = names_of(numbers, [_names_of_rows(beginning) for beginning in beginnings])
    is_regular, commit_ts = np.zeros(len(values), bool), np.zeros(len(values), np.int64)
    for number, beginning in enumerate(beginnings):
        chosen = np.flatnonzero((numbers == number) & is_named)
        if not len(chosen):
            continue
        own = values.take(pa.array(chosen)) if len(chosen) < len(values) else values
        before = beginning + _BEHIND_NAMES
        told = [begin_with(own, before, _TS_DIGITS, *_NUMBERS_BEHIND, side) for side in (b',"data":{', b',"old":{')]
        found = numbers_in(own, len(before), len(before) + _TS_DIGITS)
        is_regular[chosen] = (told[0] | told[1]) & (found >= _LEAST_TS)
        commit_ts[chosen] = found
    return RowHeads(is_regular, databases, tables, np.where(is_regular, commit_ts, 0))


def _names_of_rows(beginning: bytes) -> tuple[str, str] | None:
    """Database and table of a row's message that begins so; ``None`` if it is no such beginning."""
    try:
        members = read_object(beginning + b"}")
    except ValueError:
        return None
    if list(members) != _MEMBERS or members.get("version") != VERSION or members.get("type") not in ROW_TYPES:
        return None
    database, table = text_of(members, "database"), text_of(members, "table")
    return (database, table) if database and table else None


def read_about(values: Sequence[bytes]) -> list[SimpleAbout]:
    """What messages are about. Never raises for a bad message."""
    try:
        found = read_lines([value.strip(BLANK) for value in values], _SCHEMA, unexpected="ignore")
    except ValueError:
        return [_read(value) for value in values]
    types, commit_ts = found.column("type"), found.column("commitTs")
    conditions = [
        pc.is_in(types, pa.array(ROW_TYPES)),
        pc.equal(found.column("version"), VERSION),
        *(pc.greater(pc.binary_length(found.column(name)), 0) for name in ("database", "table")),
        *(pc.greater(commit_ts, 0), pc.less_equal(commit_ts, MAX_TSO)),
        pc.invert(pc.fill_null(found.column("handleKeyOnly"), False)),
        pc.is_null(found.column("claimCheckLocation")),
    ]
    sound_row = pc.fill_null(reduce(pc.and_, conditions), False).to_pylist()
    rows = zip(sound_row, values, *(found.column(name).to_pylist() for name in ("database", "table", "commitTs")), strict=True)
    return [SimpleAbout(SimpleKind.ROW, database, table, ts) if sound else _read(v) for sound, v, database, table, ts in rows]


class _UnreadableError(Exception):
    """A message is not what it should be; ``str()`` is the end of a sentence."""


def _read(value: bytes) -> SimpleAbout:
    if not value.strip(BLANK):
        return SimpleAbout(SimpleKind.IGNORED)
    database = table = ""
    try:
        try:
            message = read_object(value)
        except ValueError as error:
            raise _UnreadableError(str(error)) from None
        database, table = _named(message)
        return _of_message(message, database, table)
    except _UnreadableError as error:
        return SimpleAbout(SimpleKind.UNREADABLE, database, table, reason=str(error))


def _named(message: Members) -> tuple[str, str]:
    """The names of a message's table, empty where it names none."""
    shape = message.get("tableSchema")
    names = (shape, "schema") if isinstance(shape, Members) else (message, "database")
    return text_of(names[0], names[1]) or "", text_of(names[0], "table") or ""


def _of_message(message: Members, database: str, table: str) -> SimpleAbout:
    kind, commit_ts = message.get("type"), integer_of(message.get("commitTs"), 1, MAX_TSO)
    if message.get("version") != VERSION:
        raise _UnreadableError(f"its version is {str(message.get('version'))[:80]!r}, and only 1 is known.")
    if kind == _BOOTSTRAP:
        return SimpleAbout(SimpleKind.IGNORED)
    if kind not in (*ROW_TYPES, *_STATEMENT_TYPES, _WATERMARK):
        raise _UnreadableError(f"its type is {str(kind)[:80]!r}, which is not known.")
    if commit_ts is None:
        raise _UnreadableError("commitTs is not a commit ts.")
    if kind == _WATERMARK:
        return SimpleAbout(SimpleKind.WATERMARK, commit_ts=commit_ts)
    if kind in _STATEMENT_TYPES:
        return SimpleAbout(SimpleKind.STATEMENT, database, table, commit_ts)
    if not database or not table:
        raise _UnreadableError("it does not name its table.")
    try:
        large = LargeMessage.of_members(message.get("handleKeyOnly"), message.get("claimCheckLocation"))
    except ValueError as error:
        raise _UnreadableError(str(error)) from None
    return SimpleAbout(SimpleKind.ROW, database, table, commit_ts, large=large)


def read_statement_message(value: bytes) -> SimpleStatement:
    """The schema change in a message. Raises ValueError, the end of a sentence."""
    message = read_object(value)
    commit_ts, statement = integer_of(message.get("commitTs"), 1, MAX_TSO), text_of(message, "sql")
    if commit_ts is None or not statement:
        raise ValueError("it has no commitTs or no sql.")
    shape = message.get("tableSchema")
    return SimpleStatement(commit_ts, with_escapes(statement), None if shape is None else read_shape(shape))


def read_shape(shape: object) -> TableSchema:
    """The shape in a ``tableSchema``. Raises ValueError.

    Its handle key is the primary key, else the first unique key of NOT NULL columns. The digits of FLOAT and DOUBLE are not in it.
    """
    if not isinstance(shape, Members):
        raise ValueError("tableSchema is not a JSON object.")
    database, table = text_of(shape, "schema"), text_of(shape, "table")
    if not database or not table:
        raise ValueError("tableSchema does not name its table.")
    listed = _objects(shape, "columns", MOST_COLUMNS)
    indexes = _objects(shape, "indexes", _MOST_INDEXES)
    primary = {folded_name(name) for index in indexes if index.get("primary") is True for name in _index_columns(index)}
    columns = tuple(_column(entry, primary) for entry in listed)
    names = Counter(folded_name(column.name) for column in columns)
    if not columns or len(names) < len(columns):
        raise ValueError("tableSchema has no columns, or two of the same name.")
    if not all(folded_name(name) in names for index in indexes for name in _index_columns(index)):
        raise ValueError("tableSchema has an index over a column that it does not list.")
    keys = [index for index in indexes if index.get("unique") is True and index.get("nullable") is False]
    handle = next((index for index in indexes if index.get("primary") is True), keys[0] if keys else None)
    return TableSchema(TableId(database, table), columns, _index_columns(handle) if handle is not None else ())


def _objects(shape: Members, name: str, most: int) -> list[Members]:
    found = shape.get(name) or []
    if not isinstance(found, list) or len(found) > most:
        raise ValueError(f"{name} of tableSchema is not a list, or has more than {most} entries.")
    objects = [entry for entry in found if isinstance(entry, Members)]
    if len(objects) < len(found):
        raise ValueError(f"{name} of tableSchema has an entry that is not a JSON object.")
    return objects


def _name(entry: Members) -> str:
    name = text_of(entry, "name")
    if name is None or not is_possible_text(name) or len(name) > _LONGEST_NAME:
        raise ValueError(f"the name of a column in tableSchema is {str(entry.get('name'))[:80]!r}, which is not possible.")
    return name


def _index_columns(index: Members) -> tuple[str, ...]:
    found = index.get("columns")
    if not isinstance(found, list) or not all(isinstance(name, str) for name in found):
        raise ValueError("the columns of an index in tableSchema are not texts.")
    return tuple(str(name) for name in found)


def _column(entry: Members, primary: set[str]) -> Column:
    name = _name(entry)
    default = entry.get("default")
    if isinstance(default, int | float) and not isinstance(default, bool):
        default = str(default)
    if default is not None and (not isinstance(default, str) or not is_unicode(default) or len(default) > LONGEST_TEXT):
        raise ValueError(f"the default of column {name} in tableSchema is not a text of at most {LONGEST_TEXT} characters.")
    return Column(
        name,
        _column_type(entry.get("dataType"), name),
        nullable=entry.get("nullable") is not False,
        primary_key=folded_name(name) in primary,
        default=default,
    )


def _column_type(told: object, column: str) -> ColumnType:
    written = text_of(told, "mysqlType") if isinstance(told, Members) else None
    kind = _KINDS.get(written.lower()) if written is not None else None
    if kind is None or not isinstance(told, Members):
        raise ValueError(f"the type {str(written)[:80]!r} of column {column} is not known.")
    elements = told.get("elements") or []
    if not isinstance(elements, list) or not all(isinstance(element, str) and is_unicode(element) for element in elements):
        raise ValueError(f"the members of column {column} are not texts.")
    members = tuple(map(str, elements))
    if unfit := unfit_members(kind, members):
        raise ValueError(f"column {column} {unfit}.")
    length, scale = (told.get(name) for name in ("length", "decimal"))
    if any(integer_of(number, 0, _MOST_LENGTH) is None for number in (length, scale) if number is not None):
        raise ValueError(
            f"column {column} has the length {str(length)[:40]} and the scale {str(scale)[:40]}, which are not possible."
        )
    return ColumnType(
        kind,
        unsigned=told.get("unsigned") is True,
        length=integer_of(length, 1, _MOST_LENGTH),
        scale=_scale(kind, integer_of(scale, 0, _MOST_SCALE)),
        elements=members,
    )


def _scale(kind: TypeKind, scale: int | None) -> int | None:
    """The scale. A message leaves out 0."""
    return scale or 0 if kind is TypeKind.DECIMAL else scale
