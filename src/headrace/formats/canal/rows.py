"""Reads the rows of Canal's protobuf messages: each a ``RowChange``.

A value is a text as in canal-JSON: ENUM, SET and BIT are numbers, and in a binary type each byte is a character of ISO-8859-1.
``before_columns`` is the row before an update or deletion, ``after_columns`` the one after an insert or update.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
from google.protobuf.message import DecodeError as ProtobufError

from headrace.formats.base import DecodeError
from headrace.formats.canal import canal_pb2 as pb
from headrace.formats.canal.messages import DELETE, INSERT, UPDATE
from headrace.formats.row_images import Change, Images, is_binary_type, named_columns, require_columns
from headrace.formats.values import WRITTEN, Written, binary_from_latin1, canonical_from_text
from headrace.model.table import Column, TableSchema, folded_name
from headrace.model.types import BINARY_KINDS, CHARACTER_KINDS

_CHANGES = {INSERT: Change.INSERT, UPDATE: Change.UPDATE, DELETE: Change.DELETE}
_SIDES = ("new", "old")
_SHOWN = 100
_OF_TEXT = {str(kind).lower(): kind in BINARY_KINDS for kind in BINARY_KINDS | CHARACTER_KINDS}
"""Whether a type's values are bytes, by the name that messages have for it."""
_MISFIT = (
    "The default charset of its table or database may be older than the topic. Name the charset in the source, with "
    "ALTER TABLE … CONVERT TO CHARACTER SET or MODIFY COLUMN, or leave the table out with --tables."
)
_Texts = Sequence[bytes | None]


@dataclass(frozen=True)
class CanalRowReader:
    """A :class:`headrace.formats.row_images.LineReader`, whose lines are ``RowChange`` messages."""

    schema: TableSchema
    time_zone: str = "UTC"
    """The zone of TIMESTAMP text: TiCDC's ``--tz``."""

    @cached_property
    def single_schema(self) -> pa.Schema:
        """See ``LineReader.single_schema``: ``change``, then the columns of the new rows and those of the old ones."""
        texts = [(f"{side}:{column.name}", pa.string()) for side in _SIDES for column in self.schema.row_columns]
        return pa.schema([("change", pa.int8()), *texts])

    @cached_property
    def _names(self) -> tuple[bytes, ...]:
        return tuple(column.name.encode() for column in self.schema.row_columns)

    @cached_property
    def _fitting_types(self) -> set[tuple[bytes, ...]]:
        """The types of whole rows that were found to fit: those of a table are few."""
        return set()

    def parse(self, lines: Sequence[bytes]) -> pa.RecordBatch:
        """See ``LineReader.parse``. Rows that have not exactly the columns of the schema, in their order, are read one by one."""
        changes, new, old = [], [], []
        nothing: _Texts = [None] * len(self._names)
        for line in lines:
            try:
                row_change = pb.RowChange.FromString(line)
            except ProtobufError:
                raise ValueError("a row is not protobuf") from None
            (row,) = row_change.row_datas
            change = _CHANGES.get(row_change.event_type)
            if change is None:
                raise ValueError("a row is no insert, update or deletion")
            gone = change is Change.DELETE
            new.append(self._texts(row.before_columns if gone else row.after_columns))
            old.append(self._texts(row.before_columns) if change is Change.UPDATE else nothing)
            changes.append(change)
        columns = [pa.array(texts, pa.binary()).cast(pa.string()) for side in (new, old) for texts in zip(*side, strict=True)]
        return pa.RecordBatch.from_arrays([pa.array(changes, pa.int8()), *columns], schema=self.single_schema)

    def _texts(self, columns: Sequence[pb.Column]) -> _Texts:
        told = [(column.name, column.mysql_type, None if column.is_null else column.value) for column in columns]
        names, types, texts = zip(*told, strict=True) if told else ((), (), ())
        if names != self._names:
            raise ValueError("a row has other columns")
        if types not in self._fitting_types:
            if self._misfit(columns) is not None:
                raise ValueError("a column is of another type")
            self._fitting_types.add(types)
        return texts

    def images(self, lines: pa.RecordBatch) -> Images:
        """See ``LineReader.images``."""
        count = len(self.schema.row_columns)
        columns = lines.columns[1:]
        return Images(lines.column(0).to_numpy().astype(np.int8), columns[:count], columns[count:])

    def convert(self, column: Column, values: pa.Array) -> pa.Array:
        """See ``LineReader.convert``."""
        if is_binary_type(column.type):
            return binary_from_latin1(values)
        if WRITTEN[column.type.kind] is Written.MEMBER:
            return values
        return canonical_from_text(values, column.type, self.time_zone)

    def parse_one(self, line: bytes) -> dict[str, object]:
        """See ``LineReader.parse_one``."""
        try:
            row_change = pb.RowChange.FromString(line)
        except ProtobufError:
            raise DecodeError("The row is not a RowChange of Canal's protobuf protocol.") from None
        change = _CHANGES.get(row_change.event_type)
        if change is None or len(row_change.row_datas) != 1:
            raise DecodeError(f"The row has the event type {row_change.event_type}, or there are several; TiCDC writes one.")
        (row,) = row_change.row_datas
        sides = {"new": row.before_columns if change is Change.DELETE else row.after_columns}
        if change is Change.UPDATE:
            sides["old"] = row.before_columns
        found: dict[str, object] = {"change": int(change)}
        for side, columns in sides.items():
            found |= {f"{side}:{name}": text for name, text in self._columns(columns, whole=change is not Change.DELETE).items()}
        return found

    def _columns(self, columns: Sequence[pb.Column], *, whole: bool) -> dict[str, str | None]:
        members = ((told.name.decode("utf-8", "replace"), told) for told in columns)
        found = named_columns(self.schema, members, lambda column, told: _text(told, column))
        require_columns(self.schema, found, whole=whole)
        misfit = self._misfit(columns)
        if misfit is not None:
            told_type = misfit.mysql_type.decode("utf-8", "replace")[:_SHOWN]
            message = f"The message has the column as {told_type}, and in the table it is text in place of bytes, or bytes."
            raise DecodeError(message, column=misfit.name.decode("utf-8", "replace")[:_SHOWN], hint=_MISFIT)
        return found

    def _misfit(self, columns: Sequence[pb.Column]) -> pb.Column | None:
        """The first column that is text in the message and bytes in the schema, or the other way round. Values do not show it."""
        own = {folded_name(column.name): column for column in self.schema.row_columns}
        for told in columns:
            base = told.mysql_type.partition(b"(")[0].partition(b" ")[0].decode("utf-8", "replace").lower()
            column = own.get(folded_name(told.name.decode("utf-8", "replace")))
            if column is not None and base in _OF_TEXT and _OF_TEXT[base] != is_binary_type(column.type):
                return told
        return None


def _text(told: pb.Column, column: Column) -> str | None:
    if told.is_null:
        return None
    try:
        return str(told.value.decode())
    except UnicodeDecodeError:
        shown = told.value[:_SHOWN].decode("utf-8", "replace")
        raise DecodeError("The value is not UTF-8.", column=column.name, value=shown) from None
