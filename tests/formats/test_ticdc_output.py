"""Decodes what TiCDC itself wrote; where one table version holds everything, the net state must be the upstream's."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs

import pyarrow as pa
import pytest
from changes import is_binary

from headrace.formats.canal_json import CanalJsonOptions, decode_canal_json
from headrace.formats.canal_json import has_commit_ts as canal_has_commit_ts
from headrace.formats.csv import CsvOptions, decode_csv
from headrace.formats.csv import has_commit_ts as csv_has_commit_ts
from headrace.formats.csv_exact import decode_exact
from headrace.formats.schema_file import parse_schema_file
from headrace.model.block import META_COUNT
from headrace.model.events import RowKind
from headrace.model.table import Column, Generated, TableId, TableSchema
from headrace.model.types import ColumnType, TypeKind

CONFORMANCE = Path(__file__).parents[1] / "conformance" / "ticdc-storage"
CASES = sorted(path.parent.name for path in CONFORMANCE.glob("*/case.json"))
# The state differs from the decoded rows by DDL, renames, by partition exchange, or by rows that cannot be ordered.
NOT_COMPARED = (
    "ddl",
    "no-commit-ts",
    "no-extension",
    "restart",
    "lifecycle",
    "column-selector",
    "generated",
    "databases",
    "names",
    "raw",
)


def options_of(case: Path) -> tuple[CsvOptions, CanalJsonOptions]:
    described = json.loads((case / "case.json").read_text())
    sink = tomllib.loads(described["changefeed_toml"]).get("sink", {})
    csv = sink.get("csv", {})
    zone = described.get("ticdc_tz") or "UTC"
    terminator = sink.get("terminator", "\r\n")
    parameters = parse_qs(described["sink_uri_params"])
    partial = sink.get("content-compatible") or sink.get("only-output-updated-columns") or "content-compatible" in parameters
    return (
        CsvOptions(
            delimiter=csv.get("delimiter", ","),
            quote=csv.get("quote", '"'),
            null=csv.get("null", "\\N"),
            terminator=terminator,
            include_commit_ts=csv.get("include-commit-ts"),
            output_old_value=csv.get("output-old-value"),
            binary_encoding=csv.get("binary-encoding-method", "base64"),
            time_zone=zone,
        ),
        CanalJsonOptions(terminator=terminator, time_zone=zone, only_updated_columns_in_old=bool(partial)),
    )


def schemas_of(case: Path) -> Iterator[tuple[TableSchema, list[Path]]]:
    """Each table version with its data files."""
    for path in sorted(case.glob("data/**/schema_*.json")):
        parsed = parse_schema_file(path.read_bytes())
        if parsed.schema is None:
            continue
        files = sorted(file for file in path.parents[1].glob(f"{parsed.version}/**/CDC*") if file.suffix in (".csv", ".json"))
        yield with_generated(case, parsed.schema), files


def with_generated(case: Path, schema: TableSchema) -> TableSchema:
    """The columns that ``SHOW CREATE TABLE`` calls virtual, and hidden ones, marked as the DDL reader would."""
    text = ""
    for expected in json.loads((case / "expected.json").read_text())["tables"]:
        if TableId(expected["schema"], expected["table"]) == schema.table_id:
            text = expected["create"]
    columns = []
    for column in schema.columns:
        line = next((part for part in text.splitlines() if part.strip().startswith(f"`{column.name}`")), "")
        generated = Generated.VIRTUAL if "VIRTUAL" in line else None
        columns.append(
            Column(
                column.name,
                column.type,
                column.nullable,
                column.primary_key,
                generated=generated,
                hidden=column.name.startswith("_V$_"),
            )
        )
    return TableSchema(schema.table_id, tuple(columns), schema.handle_key)


def decode(file: Path, schema: TableSchema, csv: CsvOptions, canal: CanalJsonOptions) -> list[pa.RecordBatch]:
    raw = pa.py_buffer(file.read_bytes())
    return list(decode_csv(raw, schema, csv) if file.suffix == ".csv" else decode_canal_json(raw, schema, canal))


@pytest.mark.parametrize("name", CASES)
def test_every_file_that_ticdc_wrote_decodes(name: str) -> None:
    case = CONFORMANCE / name
    csv, canal = options_of(case)
    if name.endswith("column-selector"):
        csv = CsvOptions(**{**vars(csv), "column_selected": lambda _, column: column != "secret"})
    for schema, files in schemas_of(case):
        for file in files:
            batches = decode(file, schema, csv, canal)
            assert sum(batch.num_rows for batch in batches) > 0
            raw = file.read_bytes()
            if file.suffix == ".csv":
                assert pa.Table.from_batches(decode_exact(memoryview(raw), schema, csv)) == pa.Table.from_batches(batches)
                assert csv_has_commit_ts(raw, schema, csv) is ("no-commit-ts" not in name)
            else:
                assert canal_has_commit_ts(raw) is ("no-extension" not in name)


@pytest.mark.parametrize("name", [name for name in CASES if not any(part in name for part in NOT_COMPARED)])
def test_the_net_state_of_the_rows_is_the_upstream_s(name: str) -> None:
    case = CONFORMANCE / name
    csv, canal = options_of(case)
    versions: dict[TableId, list[tuple[TableSchema, list[Path]]]] = {}
    for schema, files in schemas_of(case):
        versions.setdefault(schema.table_id, []).append((schema, files))
    compared = 0
    for expected in json.loads((case / "expected.json").read_text())["tables"]:
        found = versions.get(TableId(expected["schema"], expected["table"]), [])
        if len(found) != 1 or not found[0][0].handle_key or not found[0][1]:
            continue
        schema, files = found[0]
        state = net_state(schema, [batch for file in files for batch in decode(file, schema, csv, canal)])
        names = [column["name"] for column in expected["columns"]]
        wanted = {}
        for row in expected["rows"]:
            typed = {name: _expected(value, schema.column(name)) for name, value in zip(names, row, strict=True)}
            wanted[tuple(typed[key] for key in schema.handle_key)] = typed
        assert state == wanted
        compared += 1
    if name in ("csv-strings", "csv-strings-escape-wide", "csv-temporal-tz", "canal-binary", "canal-content-compatible"):
        assert compared


def net_state(schema: TableSchema, batches: list[pa.RecordBatch]) -> dict[tuple[object, ...], dict[str, object]]:
    """The last state of each key, deletes of a commit ts before its upserts."""
    changes = []
    for batch in batches:
        for kind, commit_ts, _, *values in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            upsert = RowKind(kind).is_upsert
            changes.append((commit_ts, upsert, dict(zip(batch.schema.names[META_COUNT:], values, strict=True))))
    changes.sort(key=lambda change: change[:2])
    state: dict[tuple[object, ...], dict[str, object]] = {}
    for _, upsert, row in changes:
        key = tuple(row[name] for name in schema.handle_key)
        if upsert:
            state[key] = {name: _comparable(value, schema.column(name).type) for name, value in row.items()}
        else:
            state.pop(key, None)
    return state


def _comparable(value: object, column_type: ColumnType) -> object:
    return json.loads(str(value)) if column_type.kind is TypeKind.JSON and value is not None else value


def _expected(value: str | None, column: Column) -> object:
    if value is None:
        return None
    if is_binary(column):
        return bytes.fromhex(value)
    if column.type.kind is TypeKind.FLOAT:
        return pa.scalar(float(value), pa.float32()).as_py()
    arrow = decode_type(column)
    return _comparable(arrow(value), column.type)


def decode_type(column: Column) -> type[int] | type[float] | type[str]:
    if column.type.kind is TypeKind.DOUBLE:
        return float
    if column.type.kind in (TypeKind.BIT, TypeKind.YEAR) or column.type.kind.endswith("INT"):
        return int
    return str
