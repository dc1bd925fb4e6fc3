"""Decodes what TiCDC itself wrote; where one table version holds everything, the net state must be the upstream's."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from changes import is_binary
from recorded import CASES, CONFORMANCE, options_of, schemas_of

from headrace.formats.canal_json import CanalJsonOptions, decode_canal_json
from headrace.formats.canal_json import has_commit_ts as canal_has_commit_ts
from headrace.formats.csv import CsvOptions, decode_csv, first_commit_ts
from headrace.formats.csv import has_commit_ts as csv_has_commit_ts
from headrace.formats.csv_exact import decode_exact
from headrace.model.block import COMMIT_TS, META_COUNT
from headrace.model.events import RowKind
from headrace.model.table import Column, TableId, TableSchema
from headrace.model.types import ColumnType, TypeKind

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
                first = int(batches[0].column(COMMIT_TS)[0].as_py())
                assert first_commit_ts(raw, schema, csv) == (first or None)
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
