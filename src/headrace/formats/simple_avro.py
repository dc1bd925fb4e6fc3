"""Reads messages of TiCDC's Simple Protocol with the encoding Avro: what they are about, and the statements and shapes in them.

Format: TiCDC documentation, "TiCDC Simple Protocol", with ``encoding-format=avro``. The schema is part of TiCDC: a union of all its
records, of which each message is the last one, an envelope around one of four. No registry is involved.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from functools import cache

from headrace.formats.avro.columns import BadValueError, read_columns, read_sound
from headrace.formats.avro.schema import Record, parse_schema
from headrace.formats.json_lines import Members
from headrace.formats.large_messages import LargeMessage
from headrace.formats.schema_file import with_escapes
from headrace.formats.simple_messages import ROW_TYPES, VERSION, SimpleAbout, SimpleKind, SimpleStatement, read_shape
from headrace.model.table import folded_name
from headrace.model.tso import MAX_TSO

HEAD = 3
"""The bytes before the content of a message: the envelope's place in the union, its kind, and the content's place in its union."""
_ENVELOPE = b"\x16"
"""11, the envelope's place, as a zigzag number."""
_STATEMENTS = ["CREATE", "ALTER", "ERASE", "RENAME", "TRUNCATE", "CINDEX", "DINDEX", "QUERY"]
_TEXTS = {"type": "array", "items": "string"}


def _record(name: str, /, **fields: object) -> dict[str, object]:
    return {"type": "record", "name": name, "fields": [{"name": field, "type": told} for field, told in fields.items()]}


def _optional(told: object) -> list[object]:
    return ["null", told]


def _row_values() -> dict[str, object]:
    return {"type": "map", "values": ["null", "long", "float", "double", "string", "bytes", "Timestamp", "UnsignedBigint"]}


_TYPE = _record(
    "DataType",
    **{"mysqlType": "string", "charset": "string", "collate": "string", "length": "long", "decimal": _optional("int")},
    **{"elements": _optional(_TEXTS), "unsigned": _optional("boolean"), "zerofill": _optional("boolean")},
)
_COLUMN = _record("ColumnSchema", name="string", dataType=_TYPE, nullable="boolean", default=_optional("string"))
_INDEX = _record("IndexSchema", name="string", unique="boolean", primary="boolean", nullable="boolean", columns=_TEXTS)
_TABLE = _record(
    "TableSchema",
    **{"database": "string", "table": "string", "tableID": "long", "version": "long"},
    **{"columns": {"type": "array", "items": _COLUMN}, "indexes": {"type": "array", "items": _INDEX}},
)
_STATEMENT = _record(
    "DDL",
    **{"version": "int", "type": {"type": "enum", "name": "DDLType", "symbols": _STATEMENTS}, "sql": "string"},
    **{"commitTs": "long", "buildTs": "long", "tableSchema": _optional(_TABLE), "preTableSchema": _optional("TableSchema")},
)
_WATERMARK = _record("Watermark", version="int", commitTs="long", buildTs="long")
_CHECKSUM = _record("Checksum", version="int", corrupted="boolean", current="long", previous="long")
_ROW = _record(
    "DML",
    **{"version": "int", "database": "string", "table": "string", "tableID": "long"},
    **{"type": {"type": "enum", "name": "DMLType", "symbols": list(ROW_TYPES)}, "commitTs": "long", "buildTs": "long"},
    **{"schemaVersion": "long", "claimCheckLocation": _optional("string"), "handleKeyOnly": _optional("boolean")},
    checksum=_optional(_CHECKSUM),
    data=_optional(
        {
            "type": "map",
            "values": [
                *("null", "long", "float", "double", "string", "bytes"),
                _record("Timestamp", location="string", value="string"),
                _record("UnsignedBigint", value="long"),
            ],
        }
    ),
    old=_optional(_row_values()),
)
_HEADS = {kind: _ENVELOPE + bytes([2 * place, 2 * place]) for place, kind in enumerate(("watermark", "bootstrap", "ddl", "row"))}
_BROKEN = "it is not a message of the Simple Protocol in Avro"


@cache
def row_schema() -> Record:
    """The content of a row's message. ``data`` and ``old`` are maps from a column's name to a union of Avro types."""
    return _parsed(_ROW)


@cache
def _watermark_schema() -> Record:
    return _parsed(_WATERMARK)


@cache
def _statement_schema() -> Record:
    return _parsed(_STATEMENT)


def _parsed(told: dict[str, object]) -> Record:
    found = parse_schema(json.dumps(told))
    assert isinstance(found, Record), "each content is a record"
    return found


def read_about(values: Sequence[bytes]) -> list[SimpleAbout]:
    """What messages are about. Never raises for a bad message."""
    found = [SimpleAbout(SimpleKind.UNREADABLE, reason=f"{_BROKEN}.")] * len(values)
    of_head: dict[bytes, list[int]] = defaultdict(list)
    for number, value in enumerate(values):
        of_head[value[:HEAD]].append(number)
    for number in of_head[_HEADS["bootstrap"]]:
        found[number] = SimpleAbout(SimpleKind.IGNORED)
    _put(found, _abouts(_watermark_schema(), {"version", "commitTs"}, values, of_head[_HEADS["watermark"]]))
    wanted = {"version", "database", "table", "type", "commitTs", "claimCheckLocation", "handleKeyOnly"}
    _put(found, _abouts(row_schema(), wanted, values, of_head[_HEADS["row"]]))
    _put(found, _abouts(_statement_schema(), {"version", "commitTs", "tableSchema"}, values, of_head[_HEADS["ddl"]]))
    return found


def _put(found: list[SimpleAbout], told: dict[int, SimpleAbout]) -> None:
    for number, about in told.items():
        found[number] = about


def _abouts(schema: Record, wanted: set[str], values: Sequence[bytes], numbers: Sequence[int]) -> dict[int, SimpleAbout]:
    """What the messages of these numbers are about, which have the same content."""
    told = read_sound(schema, [values[number] for number in numbers], skip=HEAD, wanted=wanted)
    found = {}
    for place, error in told.bad.items():
        found[numbers[place]] = SimpleAbout(SimpleKind.UNREADABLE, reason=f"{_BROKEN}: in {error.field}, {error.reason}.")
    columns = {field.name: told.rows.field(number).to_pylist() for number, field in enumerate(told.rows.type)}
    rows = (dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True))
    return found | {numbers[place]: _about(schema.name, row) for place, row in zip(told.numbers, rows, strict=True)}


def _about(kind: str, told: dict[str, object]) -> SimpleAbout:
    shape = told.get("tableSchema")
    named = shape if isinstance(shape, dict) else told
    database, table, commit_ts = str(named.get("database") or ""), str(named.get("table") or ""), told["commitTs"]
    reason, large = "", None
    if told["version"] != VERSION:
        reason = f"its version is {told['version']}, and only {VERSION} is known."
    elif not isinstance(commit_ts, int) or not 1 <= commit_ts <= MAX_TSO:
        reason = "commitTs is not a commit ts."
    elif kind == "DML" and not (database and table):
        reason = "it does not name its table."
    else:
        try:
            large = LargeMessage.of_members(told.get("handleKeyOnly"), told.get("claimCheckLocation"))
        except ValueError as error:
            reason = str(error)
    if reason or not isinstance(commit_ts, int):
        return SimpleAbout(SimpleKind.UNREADABLE, database, table, reason=reason)
    return SimpleAbout(_KINDS[kind], database, table, commit_ts, large=large)


_KINDS = {"DML": SimpleKind.ROW, "DDL": SimpleKind.STATEMENT, "Watermark": SimpleKind.WATERMARK}


def carried_columns(message: bytes) -> frozenset[str]:
    """The folded names of the columns that a message's row has, maybe none. Raises ValueError, the end of a sentence."""
    try:
        (told,) = read_columns(row_schema(), [message], skip=HEAD, wanted={"data", "old"}).to_pylist()
    except BadValueError as error:
        raise ValueError(f"{_BROKEN}: in {error.field}, {error.reason}.") from None
    return frozenset(folded_name(entry["key"]) for entry in told["data"] or told["old"] or ())


def read_statement_message(value: bytes) -> SimpleStatement:
    """The schema change in a message. Raises ValueError, the end of a sentence."""
    try:
        (told,) = read_columns(_statement_schema(), [value], skip=HEAD).to_pylist()
    except BadValueError as error:
        raise ValueError(f"{_BROKEN}: in {error.field}, {error.reason}.") from None
    if not told["sql"] or not 1 <= told["commitTs"] <= MAX_TSO:
        raise ValueError("it has no commitTs or no sql.")
    shape = told["tableSchema"]
    schema = None if shape is None else read_shape(_as_json({**shape, "schema": shape["database"]}))
    return SimpleStatement(told["commitTs"], with_escapes(told["sql"]), schema)


def _as_json(told: object) -> object:
    """What the encoding JSON would have."""
    if isinstance(told, dict):
        return Members([(name, _as_json(value)) for name, value in told.items()])
    return [_as_json(value) for value in told] if isinstance(told, list) else told
