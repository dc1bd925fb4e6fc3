"""Canal-JSON: a message is one JSON object, and concerns one row, one statement, or all tables (a watermark)."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.formats.alike import begin_with, whole_text
from headrace.formats.base import BytesOrTextError, DecodeError, SchemaMismatchError
from headrace.formats.canal_envelope import EnvelopeKind, as_line, read_envelopes, read_row_heads, read_statement_message
from headrace.formats.canal_json import CanalJsonOptions, decode_canal_json
from headrace.formats.canal_messages import DECODER
from headrace.formats.canal_rows import ROWS_PER_MESSAGE
from headrace.formats.compressed_values import uncompressed_all
from headrace.formats.json_lines import decoded
from headrace.formats.row_images import handle_names
from headrace.formats.statements import TimedStatement
from headrace.model.block import COMMIT_TS, META_FIELDS, SEQ, block_schema
from headrace.model.precision import CommitTsPrecision
from headrace.model.stream import StreamStatement
from headrace.model.table import TableSchema, folded_name
from headrace.model.types import BINARY_KINDS, CHARACTER_KINDS
from headrace.model.writable_text import as_utf8
from headrace.sources.kafka.line_records import records_of
from headrace.sources.kafka.protocol import Messages, bad_record, lacks_column, statement_in_text, without_watermarks
from headrace.sources.stream.reader import BadRecordError
from headrace.sources.stream.records import RECORDS, RecordKind

_KINDS = np.array([RecordKind.ROWS, RecordKind.STATEMENT, RecordKind.WATERMARK, RecordKind.UNKNOWN, RecordKind.UNKNOWN], np.int8)
"""By :class:`EnvelopeKind`. Empty messages are left out."""

_MOST_BEGINNINGS = 16
_BEGINNING = re.compile(
    rb'(\{"id":0,[^{}]*?,"es":)(\d{1,20})(,"ts":)(\d{1,20})(,"sql":"","sqlType":\{[^{}]*\},"mysqlType":\{[^{}]*\})'
)
"""What TiCDC writes before the row. Kind and table are in it, and the types."""
_TYPES_BEGIN = b'"mysqlType":'
_DELETION = b'"isDdl":false,"type":"DELETE"'
_KINDS_OF_TEXT = {str(kind).lower(): kind for kind in BINARY_KINDS | CHARACTER_KINDS}


@dataclass(frozen=True)
class CanalJsonProtocol:
    """A :class:`headrace.sources.kafka.protocol.KafkaProtocol`."""

    exact: bool = True
    """Whether messages have to carry a commit ts (the TiDB extension)."""
    options: CanalJsonOptions = field(default_factory=lambda: CanalJsonOptions(terminator="\n"))
    name: str = "canal-json"
    has_keys: bool = False

    @property
    def commit_ts(self) -> CommitTsPrecision:
        """See ``KafkaProtocol.commit_ts``."""
        return CommitTsPrecision.EXACT if self.exact else CommitTsPrecision.MILLISECOND

    @property
    def caveats(self) -> Sequence[str]:
        """See ``KafkaProtocol.caveats``."""
        return () if self.exact else (without_watermarks(self.name),)

    def read(self, messages: Messages) -> pa.RecordBatch:
        """See ``KafkaProtocol.read``. Empty messages are left out."""
        return records_of(messages, read_row_heads, self._read_others)

    def _read_others(self, messages: Messages) -> pa.RecordBatch:
        values, damaged = uncompressed_all(messages.values)
        found = read_envelopes(values, exact=self.exact)
        found.kinds[list(damaged)] = EnvelopeKind.UNREADABLE
        for number, reason in {**found.reasons, **damaged}.items():
            values[number] = as_utf8(reason)
        for number, large in found.large.items():
            values[number] = large.to_value(values[number])
        columns = [
            pa.array(messages.offsets, pa.int64()),
            pa.array(_KINDS[found.kinds]),
            pa.array(found.databases, pa.string()),
            pa.array(found.tables, pa.string()),
            pa.array(found.commit_ts),
            pa.array(values, pa.binary()),
        ]
        batch = pa.record_batch(columns, schema=RECORDS)
        is_empty = found.kinds == EnvelopeKind.EMPTY
        return batch.filter(pa.array(~is_empty)) if is_empty.any() else batch

    def statement(self, value: bytes, partition: str, offset: int) -> StreamStatement:
        """See ``KafkaProtocol.statement``."""
        found = read_statement_message(value)
        (commit_ts,) = read_envelopes([value], exact=self.exact).commit_ts.tolist()
        return statement_in_text(TimedStatement(commit_ts, found.database, found.table, found.statement), partition, offset)

    def decode(self, schema: TableSchema, records: pa.RecordBatch) -> tuple[pa.RecordBatch, Sequence[int]]:
        """See ``KafkaProtocol.decode``."""
        lines, text = _as_lines(records.column("value"))
        if renamed := _Fit(schema).renamed(lines):
            text = b"\n".join([*(renamed.get(number, line) for number, line in enumerate(lines.to_pylist())), b""])
        try:
            batches = list(decode_canal_json(text, schema, self.options))
        except DecodeError as error:
            raise bad_record((error.line or 1) - 1, error, schema) from None
        if not batches:
            return pa.RecordBatch.from_pylist([], schema=block_schema(schema.row_columns)), [0] * len(lines)
        rows = pa.Table.from_batches(batches).combine_chunks()
        (found,) = rows.to_batches()
        messages = found.column(SEQ).to_numpy() // ROWS_PER_MESSAGE
        # Those of the records: without the extension, rows have only their millisecond.
        commit_ts = records.column("commit_ts").take(pa.array(messages))
        found = found.set_column(found.schema.get_field_index(COMMIT_TS), META_FIELDS[1], commit_ts)
        return found, np.bincount(messages, minlength=len(lines)).tolist()


def _as_lines(values: pa.Array) -> tuple[pa.Array, bytes]:
    """The messages (binary) without blanks around them if one has line breaks, and as a text with a line break behind each.

    Raises BadRecordError if one has line breaks between its parts.
    """
    joined, _, _ = whole_text(pc.binary_join_element_wise(values, b"", b"\n"))
    text = joined.tobytes()
    if np.count_nonzero(joined == ord("\n")) == len(values) and b"\r" not in text:
        return values, text
    lines = []
    for number, value in enumerate(values.to_pylist()):
        line = as_line(value)
        if line is None:
            raise BadRecordError(number, "The message has line breaks between its parts, which no release of TiCDC writes.")
        lines.append(line)
    return pa.array(lines, pa.binary()), b"\n".join([*lines, b""])


class _Fit:
    """Whether messages have the columns of a shape, with text and bytes where it has them.

    A shape that follows from statements is wrong if the topic lacks one of them, and it may lack the default charset of a database.
    The values of a row do not show that, but the types that its message names. They come in any order, so messages with the same
    set of them are checked once.
    """

    def __init__(self, schema: TableSchema) -> None:
        self._schema = schema
        self._checked: dict[tuple[frozenset[bytes], bool], bool] = {}
        """Whether messages with these types, deletions or others, have all names as they are in the first messages."""
        self._names: dict[str, str] = {}
        """By folded name, each column's name in the first message that has it."""
        self._has_row_of: set[bool] = set()  # of a deletion, of another message

    def renamed(self, lines: pa.Array) -> dict[int, bytes]:
        """Checks messages (binary). Raises BadRecordError if one does not fit.

        Returns by their numbers those in which a column has another name than in the first ones, with the names as there: other
        names are not read together. TiCDC's messages of a table differ in times and values only. So one that begins like another,
        up to its types, is checked with it.
        """
        is_open = np.ones(len(lines), bool)
        found: dict[int, bytes] = {}
        for _ in range(_MOST_BEGINNINGS):
            number = int(is_open.argmax())
            if not is_open[number]:
                return found
            line = lines[number].as_py()
            is_open[number] = False
            if (fitting := self._fitting(number, line)) is not line:
                found[number] = fitting
            elif (begin := _BEGINNING.match(line)) is not None:
                before, es, between, ts, types = begin.groups()
                is_open &= ~begin_with(lines, before, len(es), between, len(ts), types)
        for number in np.flatnonzero(is_open).tolist():
            line = lines[number].as_py()
            if (fitting := self._fitting(number, line)) is not line:
                found[number] = fitting
        return found

    def _fitting(self, number: int, line: bytes) -> bytes:
        """The message ``number``, with the names of columns as they are in the first messages: those alone are read together.

        Raises BadRecordError if it does not fit.
        """
        begin = line.find(_TYPES_BEGIN)
        types = line[begin + len(_TYPES_BEGIN) : line.find(b"}", begin)] if begin >= 0 else b""
        is_deletion = _DELETION in line[:begin]
        if is_deletion not in self._has_row_of:
            # The columns of the first row are those that are read of all, so the types do not suffice.
            self._require_columns(number, _types_of_row(line), is_whole=not is_deletion)
            self._has_row_of.add(is_deletion)
        what = frozenset(types[1:].split(b",")), is_deletion
        is_named = self._checked.get(what)
        if is_named is None:
            told = _types_of(types) or _types_of_row(line)
            self._require_columns(number, told, is_whole=not is_deletion)  # a deletion may have only the key
            self._require_bytes_or_text(number, told)
            is_named = all(self._names.setdefault(folded_name(name), name) == name for name in told)
            if types[1:]:
                self._checked[what] = is_named
        return line if is_named else _renamed(line, self._names)

    def _require_columns(self, number: int, told: Mapping[str, object], *, is_whole: bool) -> None:
        if not told:
            return  # decoding the message shows what is wrong with it
        if name := next((name for name in told if not self._schema.has_column(name)), None):
            raise bad_record(number, SchemaMismatchError("", column=name), self._schema)
        names = set(map(folded_name, told))
        needed = self._schema.row_columns_by_name.keys() if is_whole else handle_names(self._schema)
        if lacking := next((c.name for c in self._schema.row_columns if folded_name(c.name) in needed - names), None):
            raise lacks_column(number, lacking)

    def _require_bytes_or_text(self, number: int, told: Mapping[str, object]) -> None:
        for name, text in told.items():
            told_kind = _KINDS_OF_TEXT.get(str(text).partition("(")[0].strip().lower())
            kind = self._schema.column(name).type.kind
            if told_kind is not None and {told_kind in BINARY_KINDS, kind in BINARY_KINDS} == {True, False}:
                error = BytesOrTextError(name, holds_bytes=kind not in BINARY_KINDS)
                raise bad_record(number, error, self._schema)


def _types_of(text: bytes) -> dict[str, object]:
    """The types in a JSON object that lacks its closing brace; empty if there are none, or if they cannot be read."""
    try:
        told = json.loads(text + b"}")
    except (ValueError, RecursionError):
        return {}
    return told if isinstance(told, dict) else {}


def _types_of_row(line: bytes) -> dict[str, object]:
    """The columns of the row in a message, without types; empty if they cannot be read."""
    try:
        return dict.fromkeys(json.loads(line)["data"][0], "")
    except (ValueError, RecursionError, LookupError, TypeError):
        return {}


def _renamed(line: bytes, names: Mapping[str, str]) -> bytes:
    """The message with these names of columns, by their folded names; as it is if it cannot be read."""
    try:
        message = decoded(line, DECODER)
    except ValueError:
        return line
    if not isinstance(message, dict):
        return line
    for side in ("data", "old"):
        rows = message.get(side)
        if isinstance(rows, list):
            message[side] = [_row_renamed(row, names) if isinstance(row, dict) else row for row in rows]
    return json.dumps(message, separators=(",", ":")).encode()


def _row_renamed(row: Mapping[str, object], names: Mapping[str, str]) -> dict[str, object]:
    return {names.get(folded_name(name), name): value for name, value in row.items()}
