"""Reads real TiCDC files for the tests of the writer: a small parser that shares nothing with Headrace's own decoders."""

from __future__ import annotations

import base64
import json
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

from headrace.model.table import Column, TableId, TableSchema
from headrace.model.types import BINARY_KINDS, INTEGER_KINDS, ColumnType, TypeKind
from headrace.testing.ticdc_options import ChangefeedOptions
from headrace.testing.ticdc_writer import RowChange

CASES = Path(__file__).parents[1] / "conformance" / "ticdc-storage"
SCHEMA_FILE = re.compile(r"^schema_(\d+)_(\d{10})\.json$")
_NUMBERS = INTEGER_KINDS | {TypeKind.BIT, TypeKind.YEAR}


def options_of(case: str) -> ChangefeedOptions:
    """A case's changefeed as the writer's options."""
    described = json.loads((CASES / case / "case.json").read_bytes())
    sink = tomllib.loads(described["changefeed_toml"])["sink"]
    tables = [sink, sink.get("csv", {}), sink.get("cloud-storage-config", {}), dict(parse_qsl(described["sink_uri_params"]))]
    known = set(ChangefeedOptions.__dataclass_fields__) - {"file_size"}
    found: dict[str, Any] = {"time_zone": described["ticdc_tz"]}
    for key, value in (item for table in tables for item in table.items()):
        name = key.replace("-", "_")
        if name in known:
            found[name] = {"true": True, "false": False}.get(value, value) if isinstance(value, str) else value
    return ChangefeedOptions(**found)


@dataclass(frozen=True)
class SchemaFile:
    path: Path
    table_id: TableId
    version: int
    schema: TableSchema | None
    statement: str
    type_code: int
    checksum: int


def read_schema_file(path: Path) -> SchemaFile:
    text = json.loads(path.read_bytes())
    table_id = TableId(text["Schema"], text["Table"])
    schema = None
    if text["TableColumns"] is not None:
        columns = tuple(_column(attributes) for attributes in text["TableColumns"])
        schema = TableSchema(table_id, columns, tuple(c.name for c in columns if c.primary_key))
    match = SCHEMA_FILE.match(path.name)
    assert match
    return SchemaFile(path, table_id, text["TableVersion"], schema, text["Query"], text["Type"], int(match[2]))


def _column(attributes: dict[str, Any]) -> Column:
    kind, _, unsigned = attributes["ColumnType"].partition(" ")
    length, scale = attributes.get("ColumnPrecision"), attributes.get("ColumnScale")
    return Column(
        attributes["ColumnName"],
        ColumnType(
            TypeKind(kind),
            bool(unsigned),
            None if length is None else int(length),
            None if scale is None else int(scale),
            tuple(attributes.get("ColumnElems", ())),
        ),
        nullable="ColumnNullable" not in attributes,
        primary_key="ColumnIsPk" in attributes,
        default=attributes.get("ColumnDefault"),
        column_id=attributes.get("ColumnId"),
    )


def csv_changes(data: bytes, options: ChangefeedOptions, schema: TableSchema) -> Iterator[tuple[int, RowChange]]:
    """The changes of one CSV file, with their commit ts; the two records of an update are one change."""
    records = _quoted_records(data.decode(), options) if options.quote else _escaped_records(data.decode(), options)
    names = [column.name for column in schema.row_columns]
    before: dict[str, object] | None = None
    for index, (operation, _table, _schema, *rest) in enumerate(records):
        if options.output_field_header and index == 0:
            continue
        commit_ts = int(str(rest.pop(0))) if options.include_commit_ts else 0
        is_update = options.output_old_value and rest.pop(0) == "true"
        values = [_value(c.type, text, options) for c, text in zip(schema.row_columns, rest, strict=True)]
        row = dict(zip(names, values, strict=True))
        if is_update and operation == "D":
            before = row
        elif is_update or operation == "U":
            yield commit_ts, RowChange(before if is_update else row, row)
        else:
            yield commit_ts, RowChange(after=row) if operation == "I" else RowChange(before=row)


def _quoted_records(text: str, options: ChangefeedOptions) -> Iterator[list[str | None]]:
    quote, position, record = options.quote, 0, list[str | None]()
    ends = {options.delimiter, options.terminator}
    while position < len(text):
        if text[position] == quote:
            pieces, start = [], position + 1
            while True:
                end = text.index(quote, start)
                pieces.append(text[start:end])
                position = end + 1
                if text[position : position + 1] != quote:
                    break
                start = position + 1
            record.append(quote.join(pieces))
        else:
            end = min(found for found in (text.find(mark, position) for mark in ends) if found >= 0)
            field, position = text[position:end], end
            record.append(None if field == options.null else field)
        if text.startswith(options.terminator, position):
            yield record
            record, position = [], position + len(options.terminator)
        else:
            assert text.startswith(options.delimiter, position)
            position += len(options.delimiter)


def _escaped_records(text: str, options: ChangefeedOptions) -> Iterator[list[str | None]]:
    letters = {"n": "\n", "r": "\r"}
    for line in text.split(options.terminator)[:-1]:
        record, field, raw, position = list[str | None](), "", "", 0
        ended = line + options.delimiter
        while position < len(ended):
            if ended.startswith(options.delimiter, position):
                record.append(None if raw == options.null else field)
                field, raw, position = "", "", position + len(options.delimiter)
            elif ended[position] == "\\":
                escaped = ended[position + 1]
                # The null string is written as it is, "\N" included; no escape of text looks like that.
                field, raw, position = field + letters.get(escaped, escaped), raw + "\\" + escaped, position + 2
            else:
                field, raw, position = field + ended[position], raw + ended[position], position + 1
        yield record


def _value(column_type: ColumnType, text: str | None, options: ChangefeedOptions) -> object:
    kind = column_type.kind
    if text is None:
        return None
    if kind in _NUMBERS:
        return int(text)
    if kind in (TypeKind.FLOAT, TypeKind.DOUBLE):
        return float(text)
    if kind in BINARY_KINDS:
        return bytes.fromhex(text) if options.binary_encoding_method == "hex" else base64.b64decode(text)
    return text


def canal_change(line: bytes, schema: TableSchema) -> tuple[int, RowChange]:
    """The change of one canal-JSON line. An old row with the changed columns only is completed from the new one."""
    message = json.loads(line)
    kinds = {column.name: column.type for column in schema.columns}

    def row(values: dict[str, str | None]) -> dict[str, object]:
        return {name: _canal_value(kinds[name], text) for name, text in values.items()}

    data = row(message["data"][0])
    commit_ts = message.get("_tidb", {}).get("commitTs", message["es"] << 18)
    if message["type"] == "INSERT":
        return commit_ts, RowChange(after=data)
    if message["type"] == "DELETE":
        return commit_ts, RowChange(before=data)
    return commit_ts, RowChange(data | row(message["old"][0]), data)


def _canal_value(column_type: ColumnType, text: str | None) -> object:
    kind, members = column_type.kind, column_type.elements
    value: object = text
    if text is None:
        return None
    if kind in _NUMBERS:
        value = int(text)
    elif kind in (TypeKind.FLOAT, TypeKind.DOUBLE):
        value = float(text)
    elif kind in BINARY_KINDS:
        value = text.encode("latin-1")
    elif kind is TypeKind.ENUM:
        value = members[int(text) - 1] if text != "0" else ""
    elif kind is TypeKind.SET:
        value = ",".join(member for bit, member in enumerate(members) if int(text) >> bit & 1)
    return value


def comparable_line(line: bytes) -> bytes:
    """A canal-JSON line without what differs between two runs of TiCDC: ``ts``, and the order of the keys of ``mysqlType``."""
    text = re.sub(r'"ts":\d+,"sql"', '"ts":0,"sql"', line.decode())
    start = text.index('"mysqlType":') + len('"mysqlType":')
    types, end = json.JSONDecoder().raw_decode(text, start)
    # TiCDC tells ZEROFILL here, which the schema files do not.
    ordered = {name: types[name].removesuffix(" zerofill") for name in sorted(types)}
    return (text[:start] + json.dumps(ordered, ensure_ascii=False) + text[end:]).encode()
