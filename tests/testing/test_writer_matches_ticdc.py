"""The writer writes what TiCDC wrote: real schema files and data files, read and written again, are the same bytes."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from ticdc_files import CASES, SCHEMA_FILE, canal_change, comparable_line, csv_changes, options_of, read_schema_file

from headrace.model.table import Generated, TableSchema
from headrace.testing.ticdc_options import ChangefeedOptions
from headrace.testing.ticdc_writer import RowChange, TicdcWriter

# A view's schema file says "UNSPECIFIED" for its computed columns, which no column of a table can be.
VIEWS = {"vw", "vw2"}
SELECTED_COLUMNS = {"csv-column-selector", "canal-column-selector"}
LAYOUT_CASES = [
    "canal-basic",
    "csv-across-nodes",
    "csv-basic",
    "csv-databases",
    "csv-date-month",
    "csv-date-year",
    "csv-ddl-columns",
    "csv-header-column-id",
    "csv-names",
    "csv-partition",
    "csv-partition-no-separator",
    "csv-table-id-path",
]
ALL_CASES = sorted(path.name for path in CASES.iterdir() if path.is_dir())


def writer_of(root: Path, options: ChangefeedOptions) -> TicdcWriter:
    return TicdcWriter(root, **{name: getattr(options, name) for name in ChangefeedOptions.__dataclass_fields__})


def schema_files(case: str) -> list[Path]:
    found = [path for path in (CASES / case / "data").rglob("meta/schema_*.json") if SCHEMA_FILE.match(path.name)]
    return [path for path in sorted(found) if path.parent.parent.name not in VIEWS]


@pytest.mark.parametrize("case", ALL_CASES)
def test_schema_files_and_their_names_are_the_same(case: str, tmp_path: Path) -> None:
    options = options_of(case)
    for path in schema_files(case):
        real = read_schema_file(path)
        relative = path.relative_to(CASES / case / "data")
        writer = writer_of(tmp_path, options)
        physical_id = int(relative.parts[0]) if options.use_table_id_as_path else None
        written = writer.schema_change(
            real.table_id, real.version, real.statement, real.schema, real.type_code, physical_id=physical_id
        )
        assert written == tmp_path / relative
        assert written.read_bytes() == path.read_bytes()


def row_schema(case: str, schema: TableSchema) -> TableSchema:
    """The schema with what only statements and expected rows tell: generated and hidden columns, a key that is no primary key."""
    expected = json.loads((CASES / case / "expected.json").read_bytes())
    create = next(
        (t["create"] for t in expected["tables"] if (t["schema"], t["table"]) == (schema.table_id.database, schema.table_id.table)),
        "",
    )
    virtual = {line.split("`")[1] for line in create.splitlines() if " VIRTUAL" in line}
    columns = tuple(
        replace(c, generated=Generated.VIRTUAL if c.name in virtual else None, hidden=c.name.startswith("_V$_"))
        for c in schema.columns
    )
    if case == "canal-content-compatible":  # a vector's dimension is in no schema file
        columns = tuple(
            replace(c, type=replace(c.type, length=3)) if c.name == "v" and c.type.kind == "VECTOR" else c for c in columns
        )
    return replace(schema, columns=columns)


def data_paths(root: Path) -> list[Path]:
    return sorted(p for p in root.rglob("CDC*") if p.is_file() and p.suffix in (".csv", ".json"))


def data_files(case: str) -> list[tuple[Path, TableSchema]]:
    """Every data file with the schema of its version directory."""
    root = CASES / case / "data"
    schemas = {}
    for path in schema_files(case):
        real = read_schema_file(path)
        if real.schema is not None:
            schemas[path.parent.parent.relative_to(root).parts, real.version] = row_schema(case, real.schema)
    names = 1 if options_of(case).use_table_id_as_path else 2
    found = []
    for path in data_paths(root):
        parts = path.relative_to(root).parts
        found.append((path, schemas[parts[:names], int(parts[names])]))
    return found


CSV_CASES = [case for case in ALL_CASES if case.startswith("csv-") and case not in SELECTED_COLUMNS]
CANAL_CASES = [case for case in ALL_CASES if case.startswith("canal-") and case not in SELECTED_COLUMNS]


@pytest.mark.parametrize("case", CSV_CASES)
def test_csv_files_are_the_same_bytes(case: str, tmp_path: Path) -> None:
    # Values are compared as the zone of the case wrote them; the zone has a test of its own.
    options = replace(options_of(case), time_zone="UTC", use_table_id_as_path=False, enable_table_across_nodes=False)
    files = data_files(case)
    assert files
    for number, (path, schema) in enumerate(files):
        writer = writer_of(tmp_path / str(number), options)
        writer.schema_change(schema.table_id, 1, schema=schema)
        for commit_ts, change in csv_changes(path.read_bytes(), options, schema):
            writer.rows(schema.table_id, commit_ts, [change])
        (written,) = writer.flush()
        assert written.read_bytes() == path.read_bytes()


@pytest.mark.parametrize("case", CANAL_CASES)
def test_canal_json_lines_are_the_same_but_for_time_and_order_of_types(case: str, tmp_path: Path) -> None:
    options = replace(options_of(case), enable_table_across_nodes=False)
    for number, (path, schema) in enumerate(data_files(case)):
        writer = writer_of(tmp_path / str(number), options)
        lines = path.read_bytes().split(b"\r\n")[:-1]
        writer.schema_change(schema.table_id, 1, schema=with_deleted_keys(schema, lines, options))
        for line in lines:
            commit_ts, change = canal_change(line, schema)
            writer.rows(schema.table_id, commit_ts, [change])
        (written,) = writer.flush()
        again = written.read_bytes().split(b"\r\n")[:-1]
        assert [comparable_line(line) for line in again] == [comparable_line(line) for line in lines]


def with_deleted_keys(schema: TableSchema, lines: list[bytes], options: ChangefeedOptions) -> TableSchema:
    """The handle key of a table without a primary key is found in the deletes, which carry nothing else."""
    if not options.delete_only_output_handle_key_columns:
        return schema
    deletes = [json.loads(line) for line in lines if b'"type":"DELETE"' in line]
    return replace(schema, handle_key=tuple(deletes[0]["data"][0])) if deletes else schema


def test_timestamps_are_written_in_the_servers_zone(tmp_path: Path) -> None:
    in_utc, local = data_files("csv-temporal"), data_files("csv-temporal-tz")
    options = options_of("csv-temporal-tz")
    assert options.time_zone == "Asia/Shanghai"
    for number, ((utc_path, schema), (local_path, _)) in enumerate(zip(in_utc, local, strict=True)):
        writer = writer_of(tmp_path / str(number), options)
        writer.schema_change(schema.table_id, 1, schema=schema)
        local_changes = csv_changes(local_path.read_bytes(), options, schema)
        for (_, change), (commit_ts, _) in zip(csv_changes(utc_path.read_bytes(), options, schema), local_changes, strict=True):
            writer.rows(schema.table_id, commit_ts, [change])
        (written,) = writer.flush()
        assert written.read_bytes() == local_path.read_bytes()


@pytest.mark.parametrize("case", LAYOUT_CASES)
def test_paths_and_index_files_are_those_of_ticdc(case: str, tmp_path: Path) -> None:
    root, options = CASES / case / "data", options_of(case)
    writer = writer_of(tmp_path, options)
    names = 1 if options.use_table_id_as_path else 2
    for path in sorted(schema_files(case), key=lambda p: read_schema_file(p).version):
        real = read_schema_file(path)
        physical_id = int(path.parent.parent.name) if options.use_table_id_as_path else None
        writer.schema_change(real.table_id, real.version, real.statement, real.schema, real.type_code, physical_id=physical_id)
        for file in data_paths(path.parent.parent / str(real.version)):
            partition, date = place_of(file.relative_to(root).parts[names + 1 : -1], options)
            writer.clock = lambda date=date: date  # type: ignore[misc]
            dispatcher = file.stem.split("_")[1] if "_" in file.stem else ""
            row: dict[str, object] = {}
            writer.rows(real.table_id, 1, [RowChange(after=row)], partition=partition, dispatcher=dispatcher)
            writer.flush()
    writer.checkpoint(470_000_000_000_000_000)
    assert numbered(tmp_path) == numbered(root)
    for index in tmp_path.rglob("*.index"):
        text = index.read_text(encoding="utf-8")
        assert text.endswith("\n")
        assert (index.parent.parent / text.strip()).is_file()
    assert (tmp_path / "metadata").read_bytes() == b'{"checkpoint-ts":470000000000000000}'


def place_of(folders: tuple[str, ...], options: ChangefeedOptions) -> tuple[int | None, datetime]:
    """The partition id and the date that the folders below a version name."""
    dated = options.date_separator != "none"
    date = datetime(2026, 1, 1, tzinfo=UTC)
    if dated:
        year, month, day = ([int(part) for part in folders[-1].split("-")] + [1, 1])[:3]
        date = datetime(year, month, day, 12, tzinfo=UTC)
    partitions = folders[:-1] if dated else folders
    return (int(partitions[0]) if partitions else None), date


def numbered(root: Path) -> list[str]:
    """All paths under a root, the files of one stream numbered from one: numbers have gaps where TiCDC moved a dispatcher."""
    paths = sorted(path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file())
    counts: dict[str, int] = {}
    found = []
    for path in paths:
        match = re.match(r"^(.*/CDC(?:_\d+_)?)(\d{6,})(\.\w+)$", path)
        if match:
            counts[match[1]] = counts.get(match[1], 0) + 1
            found.append(f"{match[1]}{counts[match[1]]:0{len(match[2])}d}{match[3]}")
        else:
            found.append(path)
    return found
