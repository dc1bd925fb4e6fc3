"""What TiCDC itself wrote: the conformance cases as files with the shapes and options that they are read with."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator
from pathlib import Path

from headrace.formats.canal_json import CanalJsonOptions
from headrace.formats.csv import CsvOptions
from headrace.formats.schema_file import parse_schema_file
from headrace.model.table import Column, Generated, TableId, TableSchema

CONFORMANCE = Path(__file__).parents[1] / "conformance" / "ticdc-storage"
CASES = sorted(path.parent.name for path in CONFORMANCE.glob("*/case.json"))


def options_of(case: Path) -> tuple[CsvOptions, CanalJsonOptions]:
    described = json.loads((case / "case.json").read_text())
    sink = tomllib.loads(described["changefeed_toml"]).get("sink", {})
    csv = sink.get("csv", {})
    zone = described.get("ticdc_tz") or "UTC"
    terminator = sink.get("terminator", "\r\n")
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
        CanalJsonOptions(terminator=terminator, time_zone=zone),
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
