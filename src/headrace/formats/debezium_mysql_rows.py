"""Reads the rows of Debezium's connectors for MySQL and MariaDB: messages, each with one change of a row.

``after`` is the row after an insert or update, or of a snapshot, and ``before`` the one before an update or deletion. The schema of
a message says how it writes each column. Without one, how the connector writes a column by default is what counts, and only where
the settings of the connector make no difference, unless values that are not clear are accepted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.formats.base import DecodeError
from headrace.formats.binlog_clock import MOST_ROWS
from headrace.formats.debezium_mysql_messages import ROW_OPERATIONS, Schemas, UnreadableError
from headrace.formats.debezium_mysql_values import ACCEPT, Encoding, canonical
from headrace.formats.json_lines import Members, integer_of
from headrace.formats.row_images import Change, Images, UnclearValueError, named_columns, require_columns
from headrace.formats.values import numbers_from_members
from headrace.model.table import Column, TableSchema, folded_name
from headrace.model.types import BINARY_KINDS, TypeKind, arrow_type

_SHOWN = 100
_SIDES = ("before", "after")
_NEEDED = {"r": {"after"}, "c": {"after"}, "u": {"before", "after"}, "d": {"before"}}
_SETTING_DECIDES = BINARY_KINDS | {TypeKind.DECIMAL, TypeKind.TIME, TypeKind.DATETIME}
"""The types that are written as settings of the connector say, in ways that look alike."""
_CHANGES = {"r": Change.INSERT, "c": Change.INSERT, "u": Change.UPDATE, "d": Change.DELETE}
_NO_SCHEMA = "The message has no schema, and only that shows how the connector writes a {type}."
_NO_SCHEMA_HINT = (
    "Set value.converter.schemas.enable=true for the connector. Or, if it has the default settings for types, " + ACCEPT
)
_NULL = "The message does not show whether the value is NULL: for NULL, Kafka Connect writes the column's default."
_NULL_HINT = (
    "Set value.converter.replace.null.with.default=false for the connector, and accept-unclear=true in the source's URI, since "
    "messages do not show that setting."
)

_NO_ORDER = f"The row is behind the first {MOST_ROWS:,} of one event of the binlog, and their order is not known."
_NO_ORDER_HINT = "Set binlog_row_event_max_size of the server to its default, 8192, or less. Or " + ACCEPT


@dataclass(frozen=True)
class PlainRowReader:
    """A :class:`headrace.formats.row_images.LineReader`, whose lines are whole messages."""

    schema: TableSchema
    accept_unclear: bool = False
    """Whether a value that the message does not show exactly is taken as the message has it."""
    _schemas: Schemas = field(default_factory=Schemas, compare=False, repr=False)
    _encodings: dict[int, Mapping[str, Encoding]] = field(default_factory=dict, compare=False, repr=False)
    """The encodings that a schema tells, by its identity: only of schemas that are held, since others may get the same."""

    @cached_property
    def single_schema(self) -> pa.Schema:
        """See ``LineReader.single_schema``. Values are canonical, but those of ENUM and SET are text."""
        row = pa.struct([pa.field(column.name, arrow_type(column.type)) for column in self.schema.row_columns])
        return pa.schema([("op", pa.string()), ("before", row), ("after", row)])

    def parse(self, lines: Sequence[bytes]) -> pa.RecordBatch:
        """See ``LineReader.parse``."""
        try:
            return pa.RecordBatch.from_pylist([self.parse_one(line) for line in lines], schema=self.single_schema)
        except DecodeError as error:
            raise ValueError(error.message) from None

    def images(self, lines: pa.RecordBatch) -> Images:
        """See ``LineReader.images``."""
        changes = np.array([_CHANGES[op] for op in lines.column("op").to_pylist()], np.int8)
        before, after = (lines.column(side).flatten() for side in _SIDES)
        is_gone = pa.array(changes == Change.DELETE)
        return Images(changes, [pc.if_else(is_gone, old, new) for old, new in zip(before, after, strict=True)], before)

    def convert(self, column: Column, values: pa.Array) -> pa.Array:
        """See ``LineReader.convert``."""
        return numbers_from_members(values, column.type) if column.type.kind in (TypeKind.ENUM, TypeKind.SET) else values

    def parse_one(self, line: bytes) -> dict[str, object]:
        """See ``LineReader.parse_one``."""
        try:
            schema, payload = self._schemas.parts(line)
        except UnreadableError as error:
            raise DecodeError(f"The message cannot be read: {error}", value=line[:_SHOWN].decode("utf-8", "replace")) from None
        operation = str(payload.get("op"))
        if operation not in ROW_OPERATIONS:
            raise DecodeError("The message is not a row change.", column="op", value=operation[:_SHOWN])
        sides = {side: payload[side] for side in _SIDES if payload.get(side) is not None}
        if sides.keys() != _NEEDED[operation]:
            raise DecodeError(f"The message has op {operation}, and not the rows that belong to it.")
        if not self.accept_unclear and _row_of_event(payload) >= MOST_ROWS:
            raise DecodeError(_NO_ORDER, column="source.row", hint=_NO_ORDER_HINT)
        encodings = None if schema is None else self._told_by(schema)
        return {"op": operation, **{side: self._columns(side, row, encodings) for side, row in sides.items()}}

    def _told_by(self, schema: Members) -> Mapping[str, Encoding]:
        known = self._encodings.get(id(schema))
        if known is None:
            known = _encodings(schema)
            if self._schemas.holds(schema):
                self._encodings[id(schema)] = known
        return known

    def _columns(self, side: str, row: object, encodings: Mapping[str, Encoding] | None) -> dict[str, object]:
        if not isinstance(row, Members):
            raise DecodeError(f"{side} is not a JSON object.", value=str(row)[:_SHOWN])
        found = named_columns(self.schema, row.items(), lambda column, value: self._value(column, value, encodings))
        require_columns(self.schema, found, whole=True)
        return found

    def _value(self, column: Column, value: object, encodings: Mapping[str, Encoding] | None) -> object:
        try:
            encoding = self._by_default(column, value) if encodings is None else encodings.get(folded_name(column.name))
            if encoding is None:
                raise ValueError("the schema lacks the column")
            if encoding.may_be_null and value == encoding.default and not self.accept_unclear:
                raise UnclearValueError(_NULL, _NULL_HINT)
            return canonical(column, encoding, value, accept_unclear=self.accept_unclear)
        except UnclearValueError as unclear:
            raise DecodeError(unclear.message, column=column.name, value=str(value)[:_SHOWN], hint=unclear.hint) from None
        except ValueError:
            told = f"The value is not written as a {column.type}."
            raise DecodeError(told, column=column.name, value=str(value)[:_SHOWN]) from None

    def _by_default(self, column: Column, value: object) -> Encoding:
        """How a message without schema writes a column. Raises UnclearValueError."""
        if not self.accept_unclear and value is not None:
            if column.type.kind in _SETTING_DECIDES:
                raise UnclearValueError(_NO_SCHEMA.format(type=column.type.kind), _NO_SCHEMA_HINT)
            if column.nullable and column.default is not None:
                raise UnclearValueError(_NULL, _NULL_HINT)
        return Encoding.by_default(column.type)


def _row_of_event(payload: Members) -> int:
    source = payload.get("source")
    return (integer_of(source.get("row"), 0, 1 << 31) or 0) if isinstance(source, Members) else 0


def _encodings(schema: Members) -> dict[str, Encoding]:
    """How a message writes the columns of ``before`` and ``after``, by their folded names."""
    fields = schema.get("fields")
    for side in fields if isinstance(fields, list) else []:
        if isinstance(side, Members) and side.get("field") == "after" and isinstance(columns := side.get("fields"), list):
            return {folded_name(str(column.get("field"))): Encoding.of(column) for column in columns if isinstance(column, Members)}
    return {}
