"""Encodes changes as messages of TiCDC's Open Protocol: the reverse of ``open_messages`` and ``open_rows``.

Format: TiCDC documentation, "TiCDC Open Protocol". A message holds several events, each with a length (u64, big-endian) before its
key and its value. The order of members is TiCDC's. Two things differ from what TiCDC writes and mean the same: bytes of a BINARY or
VARBINARY from 0x80 on are always escaped as a backslash, ``x`` and two digits, also where they happen to be UTF-8; and with
``only_output_updated_columns`` a column that became NULL has its name in the old row, which TiCDC forgets.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.formats.byte_escapes import ByteEscapes, bytes_of
from headrace.formats.encoding import (
    Changes,
    EncodeError,
    IntArray,
    Line,
    carried,
    changed_members,
    changes_of,
    first_place,
    member_numbers,
    moment_texts,
    number_texts,
    rows_from,
)
from headrace.formats.json_texts import JsonTexts
from headrace.formats.value_texts import OF_JSON, base64_texts
from headrace.formats.values import WRITTEN, Written, check_time_zone
from headrace.model.block import COMMIT_TS
from headrace.model.events import RowKind
from headrace.model.table import Column, Index, TableId, TableSchema, folded_name
from headrace.model.types import CHARACTER_KINDS, TypeKind, TypeMap, each

_VERSION = struct.pack(">Q", 1)
_LENGTH = struct.Struct(">Q")
_OVERHEAD = 36
"""The bytes that TiCDC counts for a message beside its key and value."""
_ROW, _STATEMENT, _RESOLVED = 1, 2, 3
_CODES = TypeMap(
    "type codes of the Open Protocol",
    each({TypeKind.CHAR, TypeKind.BINARY}, 254),
    each({TypeKind.VARCHAR, TypeKind.VARBINARY}, 15),
    each({TypeKind.TINYTEXT, TypeKind.TINYBLOB}, 249),
    each({TypeKind.MEDIUMTEXT, TypeKind.MEDIUMBLOB}, 250),
    each({TypeKind.LONGTEXT, TypeKind.LONGBLOB}, 251),
    each({TypeKind.TEXT, TypeKind.BLOB}, 252),
    {TypeKind.TINYINT: 1, TypeKind.SMALLINT: 2, TypeKind.INT: 3, TypeKind.FLOAT: 4, TypeKind.DOUBLE: 5, TypeKind.TIMESTAMP: 7},
    {TypeKind.BIGINT: 8, TypeKind.MEDIUMINT: 9, TypeKind.DATE: 10, TypeKind.TIME: 11, TypeKind.DATETIME: 12, TypeKind.YEAR: 13},
    {TypeKind.BIT: 16, TypeKind.VECTOR: 225, TypeKind.JSON: 245, TypeKind.DECIMAL: 246, TypeKind.ENUM: 247, TypeKind.SET: 248},
    {TypeKind.VAR_STRING: 253},
)
_BINARY, _HANDLE, _GENERATED, _PRIMARY, _UNIQUE, _MULTIPLE, _NULLABLE, _UNSIGNED = (1 << bit for bit in range(8))
_NOT_BINARY = CHARACTER_KINDS | {TypeKind.ENUM, TypeKind.SET}
_ALWAYS_UNSIGNED = frozenset({TypeKind.BIT, TypeKind.YEAR})
_IN_BASE64 = frozenset(
    {TypeKind.TINYTEXT, TypeKind.TEXT, TypeKind.MEDIUMTEXT, TypeKind.LONGTEXT}
    | {TypeKind.TINYBLOB, TypeKind.BLOB, TypeKind.MEDIUMBLOB, TypeKind.LONGBLOB}
)
_TEXTS = JsonTexts(html=False)
_GO_LETTERS = {7: "a", 8: "b", 9: "t", 10: "n", 11: "v", 12: "f", 13: "r"}
_GO_QUOTED = ByteEscapes(
    {byte: f"\\\\x{byte:02x}".encode() for byte in (*range(0x20), *range(0x7F, 0x100))}
    | {byte: f"\\\\{letter}".encode() for byte, letter in _GO_LETTERS.items()}
    | {ord('"'): b'\\\\\\"', ord("\\"): b"\\\\\\\\"}
)
"""A byte as Go quotes it (``strconv.Quote``), in a JSON string."""


@dataclass(frozen=True)
class OpenOutput:
    """How the Open Protocol is written. Names and defaults are those of a changefeed.

    Raises ValueError for an unknown time zone and for a batch size below 1.
    """

    output_old_value: bool = True
    """Without it, an update looks like an insert."""
    only_output_updated_columns: bool = False
    """Leaves out of old rows what did not change."""
    max_batch_size: int = 16
    """The most events in a message."""
    max_message_bytes: int = 10 << 20
    time_zone: str = "UTC"
    """Of TIMESTAMP text: TiCDC's ``--tz``."""
    column_selected: Callable[[TableId, str], bool] | None = None
    """The column selector, ``(table_id, column_name)``."""

    def __post_init__(self) -> None:
        check_time_zone(self.time_zone)
        if self.max_batch_size < 1:
            raise ValueError("max-batch-size must be 1 or more")

    def columns(self, schema: TableSchema) -> tuple[Column, ...]:
        """The columns that rows of this table carry, in order."""
        selected = self.column_selected
        return tuple(c for c in schema.row_columns if selected is None or selected(schema.table_id, c.name))


@dataclass(frozen=True)
class OpenMessages:
    """Messages in order. Their keys and values are views of the bytes of all events."""

    keys: pa.Array
    """large_binary."""
    values: pa.Array
    """large_binary."""
    first_changes: IntArray
    """By message, the number of its first change among all (``encoding.changes_of``)."""


class OpenEncoder:
    """Encodes the rows of one table in one shape.

    An update whose old row is not known looks like an insert, as all do without ``output_old_value``.
    """

    def __init__(self, schema: TableSchema, output: OpenOutput | None = None) -> None:
        self._schema = schema
        self._output = output or OpenOutput()
        self._columns = self._output.columns(schema)
        self._cells = [_cell(column, schema) for column in self._columns]

    def messages(self, batch: pa.RecordBatch) -> OpenMessages:
        """The messages of a batch in the layout of ``model.block``, one event for each change, in order.

        Raises EncodeError for a change or a value that the protocol cannot carry, and for a change that is larger than
        ``max_message_bytes`` by itself.
        """
        changes = changes_of(batch, self._schema.table_id)
        count = len(changes.rows)
        commit_ts = batch.column(COMMIT_TS).take(pa.array(changes.rows))
        bad = first_place(pc.less_equal(commit_ts, 0))
        if bad is not None:
            reason = "has a change without a commit ts, and each event of the Open Protocol has one"
            raise EncodeError(self._schema.table_id, reason, row=int(changes.rows[bad]))
        key = Line()
        key.text('{"ts":')
        key.texts(commit_ts.cast(pa.string()))
        key.text(f',{_names(self._schema.table_id)},"t":{_ROW}}}')
        keys, values = _with_lengths(key.joined(count, "")), _with_lengths(self._values(batch, changes).joined(count, "null"))
        firsts = self._firsts(bytes_of(keys)[0], bytes_of(values)[0], changes)
        return OpenMessages(_grouped_keys(keys, firsts), _grouped(values, firsts), firsts)

    def _values(self, batch: pa.RecordBatch, changes: Changes) -> Line:
        arrays = carried(batch, self._schema, self._columns)
        line = Line()
        line.chosen(['{"u":{', '{"d":{'], (changes.kinds == RowKind.DELETE).astype(np.int64))
        with rows_from(changes.rows):
            rows = pa.array(changes.rows)
            new = [self._texts(column, values.take(rows)) for column, values in zip(self._columns, arrays, strict=True)]
        line.listed(self._members(new))
        line.text("}")
        if self._output.output_old_value and changes.has_old.any():
            before = changes.rows[changes.has_old] - 1
            with rows_from(before):
                taken = pa.array(before)
                old = [self._texts(column, values.take(taken)) for column, values in zip(self._columns, arrays, strict=True)]
            side = Line()
            side.text(',"p":{')
            members = self._members(old)
            if self._output.only_output_updated_columns:
                with_old = pa.array(np.flatnonzero(changes.has_old))
                side.texts(changed_members(members, old, [values.take(with_old) for values in new]))
            else:
                side.listed(members)
            side.text("}")
            places = pa.array(np.cumsum(changes.has_old) - 1, mask=~changes.has_old)
            line.texts(pc.fill_null(side.joined(len(before), "null").take(places), ""))
        line.text("}")
        return line

    def _members(self, texts: Sequence[pa.Array]) -> list[Line]:
        """The members of rows, with their values."""
        members = []
        for cell, column, values in zip(self._cells, self._columns, texts, strict=True):
            member = Line([cell])
            if WRITTEN[column.type.kind] in (Written.NUMBER, Written.MEMBER):
                member.texts(values)
            else:
                member.quoted(values, '"')
            member.text("}")
            members.append(member)
        return members

    def _texts(self, column: Column, values: pa.Array) -> pa.Array:
        """The values as they are written, without quotes; nulls stay nulls."""
        written, table_id = WRITTEN[column.type.kind], self._schema.table_id
        if written is Written.NUMBER:
            return number_texts(values, OF_JSON, column, table_id)
        if written is Written.CODE or column.type.kind in _IN_BASE64:
            return base64_texts(values) if column.type.kind in _IN_BASE64 else _GO_QUOTED.applied(values)
        if written is Written.MEMBER:
            return member_numbers(values, column, table_id, "the Open Protocol")
        if written is Written.MOMENT:
            return moment_texts(values, self._output.time_zone, column, table_id)
        return _TEXTS.escaped(values)

    def _firsts(self, key_ends: IntArray, value_ends: IntArray, changes: Changes) -> IntArray:
        """The first event of each message: as many together as the settings allow."""
        ends = key_ends + value_ends
        most = self._output.max_message_bytes - len(_VERSION) - _OVERHEAD
        large = first_place(np.diff(ends) > most)
        if large is not None:
            reason = f"has a change of {int(ends[large + 1] - ends[large])} bytes, and max-message-bytes is {most + _OVERHEAD + 8}"
            raise EncodeError(self._schema.table_id, reason, row=int(changes.rows[large]))
        firsts = []
        start = 0
        while start < len(ends) - 1:
            firsts.append(start)
            fitting = int(np.searchsorted(ends, ends[start] + most, side="right")) - 1
            start = min(start + self._output.max_batch_size, fitting)
        return np.array(firsts, np.int64)


def statement_message(table_id: TableId, statement: str, type_code: int, commit_ts: int) -> tuple[bytes, bytes]:
    """Key and value of the message of a schema change, for every partition of the topic of its table.

    ``statement`` is as TiCDC writes it, with backslashes as plain characters in its strings. ``type_code`` is TiDB's number of the
    kind of statement (``ActionType``), ``commit_ts`` a TSO.
    """
    key = f'{{"ts":{commit_ts},{_names(table_id)},"t":{_STATEMENT}}}'
    return _VERSION + _with_length(key), _with_length(f'{{"q":{_TEXTS.quoted(statement)},"t":{type_code}}}')


def watermark_message(watermark_ts: int) -> tuple[bytes, bytes]:
    """Key and value of the message that all changes up to a commit ts (TSO) are in the topic, for every partition."""
    return _VERSION + _with_length(f'{{"ts":{watermark_ts},"t":{_RESOLVED}}}'), _with_length("")


def _names(table_id: TableId) -> str:
    return f'"scm":{_TEXTS.quoted(table_id.database)},"tbl":{_TEXTS.quoted(table_id.table)}'


def _cell(column: Column, schema: TableSchema) -> str:
    """The beginning of a column in a row, up to its value."""
    is_handle = folded_name(column.name) in {folded_name(name) for name in schema.handle_key}
    told = '"h":true,' if is_handle else ""
    return f'{_TEXTS.quoted(column.name)}:{{"t":{_CODES[column.type.kind]},{told}"f":{_flags(column, schema, is_handle)},"v":'


def _flags(column: Column, schema: TableSchema, is_handle: bool) -> int:
    """The flags of a column. As in MySQL, one unique key or index marks only its first column (SHOW COLUMNS, ``Key``)."""
    name = folded_name(column.name)
    first_in = [index for index in schema.indexes if index.columns and folded_name(index.columns[0]) == name]
    told = {
        _BINARY: column.type.kind not in _NOT_BINARY,
        _HANDLE: is_handle,
        _GENERATED: column.generated is not None,
        _PRIMARY: column.primary_key,
        _UNIQUE: any(_is_single_unique(index) for index in first_in),
        _MULTIPLE: any(not _is_single_unique(index) for index in first_in),
        _NULLABLE: column.nullable,
        _UNSIGNED: column.type.unsigned or column.type.kind in _ALWAYS_UNSIGNED,
    }
    return sum(flag for flag, holds in told.items() if holds)


def _is_single_unique(index: Index) -> bool:
    return index.unique and len(index.columns) == 1


def _with_length(text: str) -> bytes:
    data = text.encode()
    return _LENGTH.pack(len(data)) + data


def _with_lengths(texts: pa.Array) -> pa.Array:
    """The texts as bytes (large_binary), each with its length before it."""
    lengths = np.diff(bytes_of(texts)[0]).astype(">u8")
    buffers = [None, pa.py_buffer(np.arange(len(texts) + 1, dtype=np.int64) * _LENGTH.size), pa.py_buffer(lengths.tobytes())]
    before = pa.Array.from_buffers(pa.large_binary(), len(texts), buffers)
    data = texts.cast(pa.large_binary() if pa.types.is_large_string(texts.type) else pa.binary()).cast(pa.large_binary())
    return pc.binary_join_element_wise(before, data, pa.scalar(b"", pa.large_binary()))


def _grouped(parts: pa.Array, firsts: IntArray) -> pa.Array:
    """Consecutive parts as one value each, without a copy."""
    offsets, data = bytes_of(parts)
    bounds = offsets[np.append(firsts, len(parts))]
    return pa.Array.from_buffers(pa.large_binary(), len(firsts), [None, pa.py_buffer(bounds), pa.py_buffer(data)])


def _grouped_keys(parts: pa.Array, firsts: IntArray) -> pa.Array:
    """As :func:`_grouped`, with the version before each key."""
    grouped = _grouped(parts, firsts)
    version = pa.scalar(_VERSION, pa.large_binary())
    return pc.binary_join_element_wise(version, grouped, pa.scalar(b"", pa.large_binary()))
