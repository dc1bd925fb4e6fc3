from __future__ import annotations

import json
from pathlib import Path

import pytest

from headrace.formats.schema_file import SchemaFileError, parse_schema_file, told_parts
from headrace.model.table import TableId
from headrace.model.types import ColumnType, TypeKind

CONFORMANCE = Path(__file__).parents[1] / "conformance" / "ticdc-storage"
GOLDEN = Path(__file__).parents[1] / "golden" / "ticdc-schema"

ID = {"ColumnName": "id", "ColumnType": "INT", "ColumnPrecision": "11", "ColumnNullable": "false", "ColumnIsPk": "true"}
V = {"ColumnName": "v", "ColumnType": "VARCHAR", "ColumnPrecision": "16"}
C = {"ColumnName": "c", "ColumnType": "INT", "ColumnDefault": "7", "ColumnPrecision": "11"}


def schema_text(database: str, table: str, *columns: dict[str, object], **more: object) -> bytes:
    """A schema file as TiCDC writes it."""
    document = {"Table": table, "Schema": database, "Version": 1, "TableVersion": 100, "Query": "", "Type": 0}
    document |= {"TableColumns": list(columns) or None, "TableColumnsTotal": len(columns)}
    return json.dumps(document | more, indent=4).encode()


def column(name: str, kind: str, **more: object) -> dict[str, object]:
    return {"ColumnName": name, "ColumnType": kind, **more}


def test_every_schema_file_that_ticdc_wrote_has_the_checksum_and_version_of_its_name() -> None:
    paths = sorted(CONFORMANCE.glob("*/data/**/schema_*.json"))
    assert paths
    for path in paths:
        parsed = parse_schema_file(path.read_bytes())
        assert path.name == f"schema_{parsed.version}_{parsed.checksum:010d}.json"


def test_a_schema_file_is_read_with_all_attributes() -> None:
    parsed = parse_schema_file((GOLDEN / "orders.json").read_bytes())
    assert parsed.table_id == TableId("shop", "orders")
    assert parsed.version == 450253245302439940
    assert (parsed.type_code, parsed.statement[:12]) == (3, "CREATE TABLE")
    assert parsed.schema is not None
    assert parsed.schema.handle_key == ("id",)
    amount, state, note = (parsed.schema.column(name) for name in ("amount", "state", "note"))
    assert amount.type == ColumnType(TypeKind.DECIMAL, length=12, scale=2)
    assert (amount.nullable, amount.default) == (False, "0.00")
    assert state.type.elements == ("new", "paid")
    assert (note.default, note.nullable) == ("<none>", True)
    assert parsed.schema.column("ID").type == ColumnType(TypeKind.BIGINT, unsigned=True, length=20)
    assert parsed.schema.column("at").type.scale == 3


@pytest.mark.parametrize(
    ("query", "statement"),
    [
        (r"ALTER TABLE `t` COMMENT = 'C:\temp'", r"ALTER TABLE `t` COMMENT = 'C:\\temp'"),
        (
            r"ALTER TABLE `a\b` COMMENT = 'it''s \', ADD INDEX `i``\`(`c`)",
            r"ALTER TABLE `a\b` COMMENT = 'it''s \\', ADD INDEX `i``\`(`c`)",
        ),
    ],
)
def test_a_backslash_in_a_string_of_the_statement_is_a_plain_character(query: str, statement: str) -> None:
    raw = schema_text("shop", "t", ID, Query=query)
    assert parse_schema_file(raw).statement == statement
    assert told_parts(raw).statement == statement


def test_a_database_level_file_has_no_shape() -> None:
    parsed = parse_schema_file(schema_text("shop", "", Query="CREATE DATABASE `shop`", Type=1))
    assert parsed.schema is None
    assert parsed.table_id == TableId("shop")


def test_the_dialect_of_the_user_guides_is_read() -> None:
    raw = (GOLDEN / "user-guide.json").read_bytes()
    parsed = parse_schema_file(raw)
    assert parsed.schema is not None
    assert parsed.version == 437752935075545091
    assert parsed.type_code == 0
    assert parsed.schema.columns[0].type.length == 11


def test_the_columns_of_a_view_may_be_without_a_type() -> None:
    assert parse_schema_file(schema_text("test", "v", column("one", "UNSPECIFIED"), Type=21)).schema is not None


def test_a_half_written_file_is_incomplete() -> None:
    raw = schema_text("test", "t", ID, V)
    with pytest.raises(SchemaFileError, match="not valid JSON") as caught:
        parse_schema_file(raw[: len(raw) // 2])
    assert caught.value.incomplete


def test_an_unknown_column_type_is_named_with_its_column() -> None:
    with pytest.raises(SchemaFileError, match=r"Column g has the type 'GEOMETRY'") as caught:
        parse_schema_file(schema_text("test", "t", ID, column("g", "GEOMETRY")))
    assert not caught.value.incomplete


@pytest.mark.parametrize("missing", ["Schema", "TableVersion", "TableColumnsTotal"])
def test_a_missing_part_is_named(missing: str) -> None:
    document = json.loads(schema_text("test", "t", ID))
    del document[missing]
    with pytest.raises(SchemaFileError, match=missing):
        parse_schema_file(json.dumps(document, indent=4).encode())


def test_a_total_that_does_not_match_the_list_is_an_error() -> None:
    with pytest.raises(SchemaFileError, match="lists 1 columns, but TableColumnsTotal is 2"):
        parse_schema_file(schema_text("test", "t", ID, TableColumnsTotal=2))


def test_a_file_of_very_many_values_is_refused_before_it_is_parsed() -> None:
    """Parsed, 16 MiB of them take half a GiB and more."""
    raw = schema_text("shop", "t", ID).replace(b"{", b'{"x":[%s],' % b",".join([b"{}"] * 600_000), 1)
    with pytest.raises(SchemaFileError, match="it has more than 1,000,000 JSON values"):
        parse_schema_file(raw)
