"""Every table by column type has an entry for every type, and none guesses."""

from __future__ import annotations

import importlib
import json
import pkgutil
from collections.abc import Iterator

import duckdb
import pyarrow as pa
import pytest

import headrace
from headrace.formats.schema_file import parse_schema_file
from headrace.formats.values import WRITTEN, Written, canonical_from_text
from headrace.model.table import Column
from headrace.model.types import ARROW_TYPES, ColumnType, TypeKind, TypeMap, UnmappedTypeError, arrow_type
from headrace.sinks.duckdb.types import UnsupportedPolicy, duckdb_type, from_canonical
from headrace.sinks.mysql.text import load_assignments, load_text, row_literals
from headrace.sinks.mysql.types import type_text


def type_maps() -> Iterator[tuple[str, TypeMap[object]]]:
    """Those that the modules of Headrace hold, by the name of the one that made it."""
    for found in pkgutil.walk_packages(headrace.__path__, "headrace."):
        if found.name != "headrace.__main__":
            for name, value in vars(importlib.import_module(found.name)).items():
                if isinstance(value, TypeMap):
                    yield f"{found.name}.{name}", value


MAPS = dict(type_maps())


def test_the_maps_are_found() -> None:
    packages = {name.rpartition(".")[0] for name in MAPS}
    assert packages >= {
        "headrace.model.types",
        "headrace.formats.values",
        "headrace.ddl.expression_values",
        "headrace.testing.ticdc_canal",
        "headrace.testing.ticdc_schema_file",
        "headrace.sinks.duckdb.types",
        "headrace.sinks.duckdb.conversion",
        "headrace.sinks.duckdb.fill_values",
        "headrace.sinks.mysql.types",
        "headrace.sinks.mysql.text",
        "headrace.sinks.mysql.column_fit",
    }


@pytest.mark.parametrize("name", MAPS)
@pytest.mark.parametrize("kind", TypeKind)
def test_every_map_has_every_type(kind: TypeKind, name: str) -> None:
    assert kind in MAPS[name]
    MAPS[name][kind]


def test_a_gap_is_told_and_not_filled() -> None:
    with pytest.raises(UnmappedTypeError, match=r"^The type JSON has no entry in the table of colours.$"):
        TypeMap("colours", {TypeKind.INT: "red"})[TypeKind.JSON]


@pytest.mark.parametrize("kind", TypeKind)
def test_a_schema_file_may_name_every_type(kind: TypeKind) -> None:
    column = {"ColumnId": "1", "ColumnName": "c", "ColumnType": str(kind), "ColumnNullable": "true"}
    file = {
        "Table": "t",
        "Schema": "s",
        "Version": 1,
        "TableVersion": 1,
        "Query": "",
        "Type": 0,
        "TableColumns": [column],
        "TableColumnsTotal": 1,
    }
    shape = parse_schema_file(json.dumps(file).encode()).schema
    assert shape is not None
    (read,) = shape.columns
    assert read.type.kind is kind


@pytest.mark.parametrize("kind", TypeKind)
def test_a_format_reads_every_type_into_its_canonical_one(kind: TypeKind) -> None:
    texts = pa.array([None, "1"], pa.string())
    if WRITTEN[kind] is Written.CODE:
        with pytest.raises(ValueError, match="coded"):
            canonical_from_text(texts, ColumnType(kind), "UTC")
    else:
        moments = {TypeKind.TIMESTAMP: pa.array([None, "2024-01-01 00:00:00"], pa.string())}
        found = canonical_from_text(moments.get(kind, texts), ColumnType(kind), "Asia/Tokyo")
        assert found.type == ARROW_TYPES[kind]


@pytest.mark.parametrize("unsigned", [False, True])
@pytest.mark.parametrize("kind", TypeKind)
def test_duckdb_has_a_type_and_a_conversion_for_every_type(kind: TypeKind, unsigned: bool) -> None:
    column_type = ColumnType(kind, unsigned=unsigned)
    rows = pa.table({"v": pa.array([None], arrow_type(column_type))})
    target = duckdb_type(column_type, UnsupportedPolicy.ERROR)
    found = duckdb.sql(f"SELECT CAST({from_canonical('v', column_type, UnsupportedPolicy.ERROR)} AS {target}) AS v FROM rows")
    assert str(found.types[0]).split("(")[0] == target.split("(")[0]
    assert rows.num_rows == len(found.fetchall())


@pytest.mark.parametrize("kind", TypeKind)
def test_mysql_has_a_type_and_a_spelling_for_every_type(kind: TypeKind) -> None:
    column = Column("c", ColumnType(kind))
    assert type_text(column.type).isascii()
    rows = pa.table({"c": pa.array([None], arrow_type(column.type))})
    assert b"".join(bytes(part) for part in load_text(rows, [column])) == b"\\N\n"
    assert row_literals(rows, [column]).to_pylist() == ["(NULL),"]
    assert "c" in "".join(load_assignments([column]))
