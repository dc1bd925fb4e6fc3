"""Reads the rows of TiCDC's Simple Protocol: messages, each a line.

Format: TiCDC documentation, "TiCDC Simple Protocol", with the encoding JSON. ``data`` is the row after an insert or update, and
``old`` the one before an update or deletion. A value is a text or null: binary types as base64, ENUM and SET as numbers, and
TIMESTAMP as ``{"location": time zone, "value": text}``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.formats.base import DecodeError
from headrace.formats.json_lines import Members, null_columns, read_lines, read_object
from headrace.formats.row_images import Change, Images, is_binary_type, named_columns, require_columns
from headrace.formats.simple_messages import ROW_TYPES
from headrace.formats.values import WRITTEN, Written, binary_from_base64, canonical_from_text, check_time_zone, timestamps_to_utc
from headrace.model.table import Column, TableSchema
from headrace.model.types import TypeKind
from headrace.model.writable_text import is_unicode

_SHOWN = 100
_MOMENT = pa.struct([("location", pa.string()), ("value", pa.string())])
_CHECKSUM = pa.struct([("version", pa.int64()), ("corrupted", pa.bool_()), ("current", pa.int64()), ("previous", pa.int64())])
_AROUND = (
    *(("version", pa.int64()), ("database", pa.string()), ("table", pa.string()), ("tableID", pa.int64()), ("type", pa.string())),
    *(("commitTs", pa.int64()), ("buildTs", pa.int64()), ("schemaVersion", pa.int64()), ("handleKeyOnly", pa.bool_())),
    *(("claimCheckLocation", pa.string()), ("checksum", _CHECKSUM)),
)
_OTHERS = (*(name for name, _ in _AROUND), *(field.name for field in _CHECKSUM), "data", "old")


@dataclass(frozen=True)
class SimpleRowReader:
    """A :class:`headrace.formats.row_images.LineReader`."""

    schema: TableSchema

    @cached_property
    def _row(self) -> pa.DataType:
        return pa.struct([pa.field(column.name, _value_type(column)) for column in self.schema.row_columns])

    @cached_property
    def single_schema(self) -> pa.Schema:
        """See ``LineReader.single_schema``."""
        return pa.schema([("type", pa.string()), ("data", self._row), ("old", self._row)])

    def parse(self, lines: Sequence[bytes]) -> pa.RecordBatch:
        """See ``LineReader.parse``.

        To Arrow a column that is missing looks like NULL. So there must be as many nulls in the text as in the columns.
        """
        found = read_lines(lines, pa.schema([*_AROUND, ("data", self._row), ("old", self._row)]), unexpected="error")
        nulls = 0
        for side in (found.column("data"), found.column("old")):
            rows = side.drop_null()
            nulls += sum(column.null_count for column in rows.flatten())
            for column in rows.flatten():
                if pa.types.is_struct(column.type):
                    told = column.drop_null()
                    if any(part.null_count for part in told.flatten()):
                        raise ValueError("a moment lacks its zone or its text")
        if null_columns(b"\n".join(lines), (column.name for column in self.schema.row_columns), _OTHERS) != nulls:
            raise ValueError("a column is missing, or it cannot be seen that none is")
        return found

    def images(self, lines: pa.RecordBatch) -> Images:
        """See ``LineReader.images``."""
        changes = pc.index_in(lines.column("type"), pa.array(ROW_TYPES))
        if changes.null_count:
            raise ValueError("a message is no INSERT, UPDATE or DELETE")
        kinds = changes.to_numpy().astype(np.int8)
        has_data, has_old = (pc.is_valid(lines.column(side)).to_numpy(False) for side in ("data", "old"))
        if (has_data != (kinds != Change.DELETE)).any() or (has_old != (kinds != Change.INSERT)).any():
            raise ValueError("a message has not the rows that it should have")
        is_gone = pa.array(kinds == Change.DELETE)
        data, old = lines.column("data").flatten(), lines.column("old").flatten()
        return Images(kinds, [pc.if_else(is_gone, gone, new) for new, gone in zip(data, old, strict=True)], old)

    def convert(self, column: Column, values: pa.Array) -> pa.Array:
        """See ``LineReader.convert``. TIMESTAMP is converted from the zone that each value names."""
        if column.type.kind is TypeKind.TIMESTAMP:
            return moments_to_utc(values)
        if is_binary_type(column.type):
            return binary_from_base64(values)
        if WRITTEN[column.type.kind] is Written.MEMBER:
            return values
        return canonical_from_text(values, column.type, "UTC")

    def parse_one(self, line: bytes) -> dict[str, object]:
        """See ``LineReader.parse_one``."""
        try:
            message = read_object(line)
        except ValueError as error:
            raise DecodeError(f"The message cannot be read: {error}", value=line[:_SHOWN].decode("utf-8", "replace")) from None
        kind = message.get("type")
        if kind not in ROW_TYPES:
            raise DecodeError("The message is not a row change.", column="type", value=str(kind)[:_SHOWN])
        wanted = {"INSERT": {"data"}, "UPDATE": {"data", "old"}, "DELETE": {"old"}}[str(kind)]
        sides = {side: message[side] for side in ("data", "old") if message.get(side) is not None}
        if sides.keys() != wanted:
            raise DecodeError(f"The message is an {kind} and has not exactly {' and '.join(sorted(wanted))}.")
        return {"type": kind, **{side: self._columns(side, row, full=kind != "DELETE") for side, row in sides.items()}}

    def _columns(self, side: str, row: object, *, full: bool) -> dict[str, object]:
        if not isinstance(row, Members):
            raise DecodeError(f"{side} is not a JSON object.", value=str(row)[:_SHOWN])
        found = named_columns(self.schema, row.items(), _value)
        require_columns(self.schema, found, whole=full)
        return found


def _value_type(column: Column) -> pa.DataType:
    return _MOMENT if column.type.kind is TypeKind.TIMESTAMP else pa.string()


def _value(column: Column, value: object) -> object:
    """A value in the shape that Arrow expects. Raises DecodeError."""
    if value is None:
        return None
    if column.type.kind is TypeKind.TIMESTAMP:
        parts = (value.get("location"), value.get("value")) if isinstance(value, Members) else (None, None)
        if all(isinstance(part, str) and is_unicode(part) for part in parts):
            return dict(zip(("location", "value"), parts, strict=True))
    elif isinstance(value, str) and is_unicode(value):
        return value
    raise DecodeError(f"The value is not written as a {column.type}.", column=column.name, value=str(value)[:_SHOWN])


def moments_to_utc(values: pa.Array) -> pa.Array:
    """TIMESTAMP text, each of the zone that it names (a struct of ``location`` and ``value``), in UTC. Raises ValueError."""
    zones, texts = (pc.struct_field(values, name) for name in ("location", "value"))
    found = pa.nulls(len(values), pa.string())
    for zone in pc.unique(zones.drop_null()).to_pylist():
        check_time_zone(zone)
        own = pc.fill_null(pc.equal(zones, zone), False)
        found = pc.replace_with_mask(found, own, timestamps_to_utc(texts.filter(own), zone))
    return found
