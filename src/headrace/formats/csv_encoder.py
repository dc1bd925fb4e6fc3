"""Encodes the changes of a table as TiCDC's CSV: the reverse of ``csv``.

Format: TiCDC documentation, "TiCDC CSV Protocol". Texts are quoted, and a quote in them is doubled; without a quote,
backslashes, line ends and delimiters are escaped. Numbers and NULL are never quoted, nor are commit ts and is-update.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.formats.byte_escapes import ByteEscapes
from headrace.formats.csv_layout import HEADER_OPERATION, CsvOptions
from headrace.formats.encoding import (
    BoolArray,
    Changes,
    EncodeError,
    IntArray,
    Line,
    carried,
    changes_of,
    data_of,
    first_place,
    moment_texts,
    number_texts,
    rows_from,
)
from headrace.formats.value_texts import OF_FORMAT_G, base64_texts, hex_texts
from headrace.formats.values import WRITTEN, Written
from headrace.model.block import COMMIT_TS
from headrace.model.events import RowKind
from headrace.model.table import Column, TableSchema, folded_name
from headrace.model.types import INTEGER_KINDS

_OPERATIONS = ("I", "U", "D")
_BOOLEANS = ("false", "true")
_META_NAMES = (HEADER_OPERATION.decode(), "ticdc-meta$table", "ticdc-meta$schema")
_OF_NUMBERS = frozenset("0123456789+-.e")
_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?(e[+-][0-9]+)?")


@dataclass(frozen=True)
class _Records:
    """The records that a batch becomes, in order."""

    rows: IntArray
    """By record, the number of its row in the batch."""
    operations: IntArray
    """The places of their operations in ``_OPERATIONS``."""
    is_update: BoolArray


class CsvEncoder:
    """Encodes the rows of one table in one shape. The options mean the same as for the decoder, with TiCDC's defaults for ``None``:
    no commit ts, no old values, no header.

    An update is one record ``U`` with its new row; with ``output_old_value``, a record ``D`` of its old row and a record ``I`` of
    its new one, both marked as an update. Without ``output_old_value``, an update that moves the handle key, or of a table without
    one, becomes ``D`` and ``I`` like two changes: the new row alone would not show which row is gone.
    """

    def __init__(self, schema: TableSchema, options: CsvOptions) -> None:
        """``options.columns`` are the columns that rows carry.

        Raises ValueError for options with which records are ambiguous. Raises EncodeError for ``header`` and a name that cannot
        stand there, and for ``output_handle_key`` and a table whose handle is not one integer column: only TiDB knows it then.
        """
        _check(options)
        self._schema = schema
        self._options = options
        self._columns = options.columns(schema)
        if options.header:
            _check_header(schema, self._columns, options)
        self._escapes = _escapes_of(options)
        self._names = [self._text(name) for name in (schema.table_id.table, schema.table_id.database)]
        self._handle = _handle_of(schema, self._columns) if options.output_handle_key else None

    def header(self) -> bytes:
        """The first line of every file, with its terminator; empty unless ``options.header`` is true. Nothing in it is quoted."""
        options = self._options
        if not options.header:
            return b""
        names = [*_META_NAMES]
        if options.include_commit_ts:
            names.append("ticdc-meta$commit-ts")
        if options.output_old_value:
            names.append("ticdc-meta$is-update")
        return (options.delimiter.join([*names, *(column.name for column in self._columns)]) + options.terminator).encode()

    def encode(self, batch: pa.RecordBatch) -> pa.Buffer:
        """The records of a batch in the layout of ``model.block``, in order, each with its terminator.

        Parts of a file are the buffers of successive batches. Raises EncodeError for a change or value that CSV cannot carry.
        """
        records = self._records(batch)
        if len(records.rows) != batch.num_rows:
            batch = batch.take(pa.array(records.rows))
        with rows_from(records.rows):
            return data_of(self._line(batch, records).joined(batch.num_rows, self._options.null))

    def _line(self, batch: pa.RecordBatch, records: _Records) -> Line:
        """The records of rows that were taken from a batch for them."""
        line = Line()
        texts = [self._text(operation) for operation in _OPERATIONS]
        delimiter = self._options.delimiter
        line.chosen([delimiter.join([text, *self._names]) for text in texts], records.operations)
        if self._options.include_commit_ts:
            line.text(delimiter)
            line.texts(self._commit_ts(batch))
        if self._options.output_old_value:
            line.chosen([delimiter + text for text in _BOOLEANS], records.is_update.astype(np.int64))
        arrays = carried(batch, self._schema, self._columns)
        if self._handle is not None:
            line.text(delimiter + self._options.quote)
            line.texts(arrays[self._columns.index(self._handle)].cast(pa.string()))
            line.text(self._options.quote)
        for column, values in zip(self._columns, arrays, strict=True):
            line.text(delimiter)
            self._write(line, column, values)
        line.text(self._options.terminator)
        return line

    def _records(self, batch: pa.RecordBatch) -> _Records:
        changes = changes_of(batch, self._schema.table_id)
        operations = np.select([changes.kinds == RowKind.INSERT, changes.kinds == RowKind.UPDATE_AFTER], [0, 1], default=2).astype(
            np.int64
        )
        is_update = operations == 1
        if self._options.output_old_value:
            alone = first_place(is_update & ~changes.has_old)
            if alone is not None:
                row = int(changes.rows[alone])
                reason = "has an update without its old row, which output-old-value needs"
                raise EncodeError(self._schema.table_id, reason, row=row, hint="Write the file without output-old-value.")
            return _with_old_rows(changes, operations, is_update, is_update)
        if changes.is_whole:
            return _Records(changes.rows, operations, is_update)
        return _with_old_rows(changes, operations, self._moved(batch, changes), np.zeros(len(operations), bool))

    def _moved(self, batch: pa.RecordBatch, changes: Changes) -> BoolArray:
        """Which changes have an old row with another handle key than the new one, or an old row in a table without such a key."""
        keys = {folded_name(name) for name in self._schema.handle_key}
        names = [name for name in batch.schema.names if folded_name(name) in keys]
        moved = np.full(len(changes.rows), len(names) < len(keys) or not keys)
        after = changes.rows[changes.has_old]
        for name in names:
            values = batch.column(name)
            same = pc.fill_null(pc.equal(values.take(pa.array(after - 1)), values.take(pa.array(after))), False)
            moved[changes.has_old] |= ~same.to_numpy(zero_copy_only=False)
        return moved & changes.has_old

    def _commit_ts(self, batch: pa.RecordBatch) -> pa.Array:
        commit_ts = batch.column(COMMIT_TS)
        bad = first_place(pc.less_equal(commit_ts, 0))
        if bad is not None:
            hint = "Write the file without include-commit-ts."
            raise EncodeError(self._schema.table_id, "has a change without a commit ts", row=bad, hint=hint)
        return commit_ts.cast(pa.string())

    def _write(self, line: Line, column: Column, values: pa.Array) -> None:
        """Appends a column's field to a line."""
        if WRITTEN[column.type.kind] is Written.NUMBER:
            line.texts(self._numbers(column, values))
            return
        texts, quote = self._escaped(column, values), self._options.quote
        if not quote:
            self._require_no_null_text(column, texts, values)
            line.texts(texts)
        else:
            line.quoted(texts, quote)

    def _numbers(self, column: Column, values: pa.Array) -> pa.Array:
        texts = number_texts(values, OF_FORMAT_G, column, self._schema.table_id)
        if _NUMBER.fullmatch(self._options.null):
            self._require_no_null_text(column, texts, values)
        return texts

    def _escaped(self, column: Column, values: pa.Array) -> pa.Array:
        """The texts of a column that is no number, with escapes and without quotes."""
        written = WRITTEN[column.type.kind]
        if written is Written.CODE:
            values = hex_texts(values) if self._options.binary_encoding == "hex" else base64_texts(values)
        elif written is Written.MOMENT:
            values = moment_texts(values, self._options.time_zone, column, self._schema.table_id)
        texts = self._escapes.applied(values)
        delimiter = self._options.delimiter
        if not self._options.quote and len(delimiter) > 1:
            return pc.replace_substring(texts, delimiter, _escaped_delimiter(delimiter))
        return texts

    def _require_no_null_text(self, column: Column, texts: pa.Array, values: pa.Array) -> None:
        """Raises EncodeError if a value, as it is written, would be taken for NULL."""
        bad = first_place(pc.equal(texts, pa.scalar(self._options.null, texts.type)))
        if bad is not None:
            reason = f"has a value that would be read as NULL, because null is {self._options.null!r} and the field has no quotes"
            hint = "Choose another null string, or a quote."
            raise EncodeError(self._schema.table_id, reason, column=column.name, value=values[bad].as_py(), row=bad, hint=hint)

    def _text(self, text: str) -> str:
        """An operation or a name as a field."""
        escaped: str = self._escapes.applied(pa.array([text], pa.string()))[0].as_py()
        quote, delimiter = self._options.quote, self._options.delimiter
        if quote:
            return quote + escaped + quote
        return escaped.replace(delimiter, _escaped_delimiter(delimiter)) if len(delimiter) > 1 else escaped


def _with_old_rows(changes: Changes, operations: IntArray, split: BoolArray, is_update: BoolArray) -> _Records:
    """The records of changes of which ``split`` become the deletion of the old row and the insertion of the new one."""
    counts = split + np.int64(1)
    of_change = np.repeat(np.arange(len(counts)), counts)
    is_first = np.ones(len(of_change), bool)
    is_first[1:] = of_change[1:] != of_change[:-1]
    is_split = split[of_change]
    rows = changes.rows[of_change] - (is_split & is_first)
    written = np.where(is_split, np.where(is_first, 2, 0), operations[of_change])
    return _Records(rows, written, is_update[of_change])


def _handle_of(schema: TableSchema, columns: tuple[Column, ...]) -> Column:
    """The column whose value is TiDB's handle of a row."""
    keys = [column for column in columns if column.primary_key]
    if len(keys) != 1 or keys[0].type.kind not in INTEGER_KINDS or sum(c.primary_key for c in schema.columns) != 1:
        reason = "has no primary key of one integer column, and output-handle-key writes TiDB's handle, which only that shows"
        raise EncodeError(schema.table_id, reason, hint="Write the file without output-handle-key.")
    return keys[0]


def _check_header(schema: TableSchema, columns: tuple[Column, ...], options: CsvOptions) -> None:
    """Raises EncodeError for a name that would not be read back from the header, in which nothing is quoted or escaped."""
    marks = [options.delimiter, options.quote or "\\", options.terminator, "\r", "\n"]
    for column in columns:
        if any(mark in column.name for mark in marks):
            reason = "cannot be named in the header, where names have no quotes"
            hint = "Write the file without output-field-header."
            raise EncodeError(schema.table_id, reason, column=column.name, hint=hint)


def _escapes_of(options: CsvOptions) -> ByteEscapes:
    quote, delimiter = options.quote.encode(), options.delimiter.encode()
    if quote:
        return ByteEscapes({quote[0]: quote * 2})
    escapes = {ord("\\"): b"\\\\", ord("\r"): b"\\r", ord("\n"): b"\\n"}
    return ByteEscapes(escapes | ({delimiter[0]: b"\\" + delimiter} if len(delimiter) == 1 else {}))


def _escaped_delimiter(delimiter: str) -> str:
    return "".join("\\" + mark for mark in delimiter)


def _check(options: CsvOptions) -> None:
    """Raises ValueError if fields without quotes could not be told from the marks around them."""
    delimiter, null = options.delimiter, options.null
    if not delimiter.isascii() or len(delimiter) > 3:
        raise ValueError("the CSV delimiter must be one to three ASCII characters, because TiCDC escapes it byte by byte")
    of_fields = _OF_NUMBERS | set("".join(_BOOLEANS))
    for name, mark in (("delimiter", delimiter), ("terminator", options.terminator)):
        if set(mark) <= of_fields:
            raise ValueError(f"the CSV {name} {mark!r} may also be within a number, or in true and false, which have no quotes")
    terminator = options.terminator
    if delimiter in terminator or terminator in delimiter or (options.quote and options.quote in terminator):
        raise ValueError(f"the CSV terminator {terminator!r} cannot be told from the delimiter or the quote beside it")
    marks = [mark for mark in (delimiter, options.quote, options.terminator, "\r", "\n") if mark and mark in null]
    if marks:
        raise ValueError(f"the CSV null string {null!r} holds {marks[0]!r}, which ends a field or a record or begins a quoted text")
