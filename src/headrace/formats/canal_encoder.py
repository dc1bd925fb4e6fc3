"""Encodes the changes of a table as TiCDC's canal-JSON, as lines of files and as Kafka messages: the reverse of ``canal_json``.

Format: TiCDC documentation, "TiCDC Canal-JSON Protocol". A message is one change. Every value is a string or null: ENUM and SET as
their numbers, bytes as one character each, numbers without exponents. The order of members is TiCDC's, except in ``mysqlType``:
there TiCDC's is random, and this one is that of the columns.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.formats.byte_escapes import ByteEscapes
from headrace.formats.canal_types import mysql_type, promotion, sql_type
from headrace.formats.encoding import (
    Changes,
    EncodeError,
    Line,
    carried,
    changed_members,
    changes_of,
    data_of,
    first_place,
    member_numbers,
    moment_texts,
    number_texts,
    rows_from,
)
from headrace.formats.json_texts import CONTROLS, OF_HTML, SHORT, JsonTexts
from headrace.formats.values import WRITTEN, Written, check_time_zone
from headrace.model.block import COMMIT_TS
from headrace.model.events import RowKind
from headrace.model.table import Column, TableId, TableSchema, folded_name
from headrace.model.tso import LOGICAL_BITS

_TYPES = {RowKind.INSERT: "INSERT", RowKind.UPDATE_AFTER: "UPDATE", RowKind.DELETE: "DELETE"}
_NULL = "null"
TEXTS = JsonTexts(html=True)
_AS_CHARACTERS = ByteEscapes({byte: chr(byte).encode() for byte in range(0x80, 0x100)} | CONTROLS | SHORT | OF_HTML)
"""For bytes, each of which becomes the character with its number."""


@dataclass(frozen=True)
class CanalJsonOutput:
    """How canal-JSON is written. Names and defaults are those of a changefeed. Raises ValueError for an unknown time zone."""

    enable_tidb_extension: bool = False
    """Adds ``_tidb`` with the commit ts. Without it, readers know only the millisecond, and no watermark."""
    content_compatible: bool = False
    """Writes ``mysqlType`` in full, and old rows as with ``only_output_updated_columns``."""
    only_output_updated_columns: bool = False
    """Leaves out of old rows what did not change."""
    delete_only_output_handle_key_columns: bool = False
    """Writes only the handle key of a deleted row."""
    time_zone: str = "UTC"
    """Of TIMESTAMP text: TiCDC's ``--tz``."""
    column_selected: Callable[[TableId, str], bool] | None = None
    """The column selector, ``(table_id, column_name)``."""

    def __post_init__(self) -> None:
        check_time_zone(self.time_zone)

    def columns(self, schema: TableSchema) -> tuple[Column, ...]:
        """The columns that rows of this table carry, in order."""
        selected = self.column_selected
        return tuple(c for c in schema.row_columns if selected is None or selected(schema.table_id, c.name))

    @property
    def has_changed_columns_only(self) -> bool:
        """Whether old rows have only the columns that changed."""
        return self.only_output_updated_columns or self.content_compatible


class CanalJsonEncoder:
    """Encodes the rows of one table in one shape.

    An update has its old row in ``old``. An update whose old row is not known has null there, as decoders read it: the new row
    replaces whatever has its key. TiCDC itself always has the old row.
    """

    def __init__(self, schema: TableSchema, output: CanalJsonOutput | None = None) -> None:
        self._schema = schema
        self._output = output or CanalJsonOutput()
        self._columns = self._output.columns(schema)
        keys = {folded_name(name) for name in schema.handle_key}
        self._handle = tuple(column for column in self._columns if folded_name(column.name) in keys)
        self._has_handle = bool(keys) and len(self._handle) == len(keys)
        names = ",".join(TEXTS.quoted(column.name) for column in schema.columns if column.primary_key)
        self._start = beginning(schema.table_id.database, schema.table_id.table) + f'"pkNames":[{names}],"isDdl":false,'

    def lines(self, batch: pa.RecordBatch, terminator: str = "\r\n", built_ms: int | None = None) -> pa.Buffer:
        """The messages of a batch in the layout of ``model.block``, in order, each followed by the terminator: a part of a file.

        ``built_ms`` is the Unix time (ms) at which the messages are built (``ts``), now unless given. Raises EncodeError for a
        change or a value that the format cannot carry, and ValueError for an empty terminator.
        """
        if not terminator:
            raise ValueError("canal-JSON files need a terminator, because it ends each message")
        return data_of(self._encoded(batch, terminator, built_ms))

    def messages(self, batch: pa.RecordBatch, built_ms: int | None = None) -> pa.Array:
        """The values of Kafka messages (binary or large_binary), one for each change of a batch; they have no keys.

        Arguments and errors are those of :meth:`lines`. An old row and its new row are one message; ``encoding.changes_of`` gives
        the row of the batch for each message.
        """
        texts = self._encoded(batch, "", built_ms)
        return texts.cast(pa.large_binary() if pa.types.is_large_string(texts.type) else pa.binary())

    def _encoded(self, batch: pa.RecordBatch, end: str, built_ms: int | None) -> pa.Array:
        changes = changes_of(batch, self._schema.table_id)
        built = now_ms() if built_ms is None else built_ms
        is_deletion = changes.kinds == RowKind.DELETE
        if not (self._output.delete_only_output_handle_key_columns and is_deletion.any()):
            return self._of_columns(batch, changes, self._columns, end, built)
        if not self._has_handle:
            reason = "has no handle key in its rows, and deletions shall have nothing else"
            row = int(changes.rows[is_deletion][0])
            hint = "Write it without delete-only-output-handle-key-columns."
            raise EncodeError(self._schema.table_id, reason, row=row, hint=hint)
        if is_deletion.all():
            return self._of_columns(batch, changes, self._handle, end, built)
        parts = []
        for chosen, columns in ((~is_deletion, self._columns), (is_deletion, self._handle)):
            parts.append(self._of_columns(batch, _chosen(changes, chosen), columns, end, built))
        places = np.empty(len(is_deletion), np.int64)
        places[np.concatenate([np.flatnonzero(~is_deletion), np.flatnonzero(is_deletion)])] = np.arange(len(is_deletion))
        if len({part.type for part in parts}) > 1:
            parts = [part.cast(pa.large_string()) for part in parts]
        return pa.concat_arrays(parts).take(pa.array(places))

    def _of_columns(self, batch: pa.RecordBatch, changes: Changes, columns: Sequence[Column], end: str, built: int) -> pa.Array:
        """The messages of changes with these columns of their rows."""
        arrays = carried(batch, self._schema, self._columns)
        chosen = [arrays[self._columns.index(column)] for column in columns]
        rows = None if len(changes.rows) == batch.num_rows else pa.array(changes.rows)
        new = chosen if rows is None else [values.take(rows) for values in chosen]
        with rows_from(changes.rows):
            commit_ts = self._commit_ts(batch, rows)
        line = Line()
        line.text(self._start + '"type":"')
        line.chosen(["INSERT", "UPDATE", "DELETE"], np.select([changes.kinds == kind for kind in _TYPES], range(3)))
        line.text('","es":')
        line.texts(pc.shift_right(commit_ts, pa.scalar(LOGICAL_BITS, pa.int64())).cast(pa.string()))
        line.text(f',"ts":{built},"sql":"","sqlType":{{')
        for number, (column, values) in enumerate(zip(columns, new, strict=True)):
            _write_sql_type(line, ("," if number else "") + TEXTS.quoted(column.name) + ":", column, values)
        full = self._output.content_compatible
        types = ",".join(f"{TEXTS.quoted(column.name)}:{TEXTS.quoted(mysql_type(column.type, full=full))}" for column in columns)
        line.text(f'}},"mysqlType":{{{types}}},"old":')
        with rows_from(changes.rows):
            texts = [self._texts(column, values) for column, values in zip(columns, new, strict=True)]
        self._write_old(line, changes, columns, chosen, texts)
        line.text(',"data":[{')
        line.listed(_members(columns, texts))
        line.text("}]")
        if self._output.enable_tidb_extension:
            line.text(',"_tidb":{"commitTs":')
            line.texts(commit_ts.cast(pa.string()))
            line.text("}")
        line.text("}" + end)
        return line.joined(len(changes.rows), _NULL)

    def _commit_ts(self, batch: pa.RecordBatch, rows: pa.Array | None) -> pa.Array:
        commit_ts = batch.column(COMMIT_TS) if rows is None else batch.column(COMMIT_TS).take(rows)
        bad = first_place(pc.less_equal(commit_ts, 0))
        if bad is not None:
            reason = "has a change without a commit ts, and each message of canal-JSON has its time"
            raise EncodeError(self._schema.table_id, reason, row=bad)
        return commit_ts

    def _write_old(
        self, line: Line, changes: Changes, columns: Sequence[Column], values: Sequence[pa.Array], texts: Sequence[pa.Array]
    ) -> None:
        """Appends the old rows. ``values`` are the columns of the batch, ``texts`` those of the new rows as they are written."""
        if not changes.has_old.any():
            line.text(_NULL)
            return
        rows_before = changes.rows[changes.has_old] - 1
        before = pa.array(rows_before)
        with rows_from(rows_before):
            old = [self._texts(column, array.take(before)) for column, array in zip(columns, values, strict=True)]
        row = Line()
        row.text("[{")
        members = _members(columns, old)
        if self._output.has_changed_columns_only:
            with_old = pa.array(np.flatnonzero(changes.has_old))
            row.texts(changed_members(members, old, [array.take(with_old) for array in texts]))
        else:
            row.listed(members)
        row.text("}]")
        if changes.has_old.all():
            line.extend(row)
            return
        rows = row.joined(len(before), _NULL)
        places = np.cumsum(changes.has_old) - 1
        line.texts(rows.take(pa.array(places, mask=~changes.has_old)))

    def _texts(self, column: Column, values: pa.Array) -> pa.Array:
        """The values as they stand between quotes; nulls stay nulls."""
        written, table_id = WRITTEN[column.type.kind], self._schema.table_id
        if written is Written.NUMBER:
            return number_texts(values, None, column, table_id)
        if written is Written.CODE:
            return _AS_CHARACTERS.applied(values)
        if written is Written.MEMBER:
            return member_numbers(values, column, table_id, "canal-JSON")
        if written is Written.MOMENT:
            return moment_texts(values, self._output.time_zone, column, table_id)
        return TEXTS.escaped(values)


def _members(columns: Sequence[Column], texts: Sequence[pa.Array]) -> list[Line]:
    """The members of rows, with their values."""
    members = []
    for column, values in zip(columns, texts, strict=True):
        member = Line([TEXTS.quoted(column.name) + ":"])
        member.quoted(values, '"')
        members.append(member)
    return members


def _write_sql_type(line: Line, before: str, column: Column, values: pa.Array) -> None:
    """Appends a member of ``sqlType``. The number of an unsigned type may depend on the value."""
    line.text(before)
    number, larger = str(sql_type(column.type)), promotion(column.type)
    if larger is None:
        line.text(number)
        return
    limit, promoted = larger
    is_larger = pc.fill_null(pc.greater(values, pa.scalar(limit, values.type)), False).to_numpy(zero_copy_only=False)
    line.chosen([number, str(promoted)], is_larger.astype(np.int64))


def beginning(database: str, table: str) -> str:
    """The beginning of every message."""
    return f'{{"id":0,"database":{TEXTS.quoted(database)},"table":{TEXTS.quoted(table)},'


def _chosen(changes: Changes, chosen: npt.NDArray[np.bool_]) -> Changes:
    return Changes(changes.kinds[chosen], changes.rows[chosen], changes.has_old[chosen])


def now_ms() -> int:
    """The Unix time in milliseconds."""
    return time.time_ns() // 1_000_000
