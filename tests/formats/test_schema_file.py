from __future__ import annotations

import json
from pathlib import Path

import pytest

from headrace.formats.schema_file import SchemaFileError, parse_schema_file, schema_checksum
from headrace.model.table import TableId
from headrace.model.types import ColumnType, TypeKind, arrow_type

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


@pytest.mark.parametrize(
    ("database", "table", "columns", "checksum"),
    [
        (
            "test",
            "table1",
            [column("col1", "INT", ColumnPrecision="11"), column("col2", "VARCHAR", ColumnPrecision="5")],
            4192708364,
        ),
        ("test", "t", [ID, V], 3633961634),
        ("test", "t", [V, ID], 3633961634),
        ("test", "t", [ID, V, C], 563607735),
        ("test", "t", [ID], 1402926011),
        ("test", "t2", [ID, V], 298321067),
        ("test", "p", [ID, V], 772639659),
        ("test", "e", [ID, V], 4283680726),
        ("test", "a", [ID, V], 164075231),
        ("test", "b", [ID, V], 3561777321),
        ("test", "x", [ID, V], 408170488),
        ("test", "n", [V], 802005493),
        ("test", "t", [{"ColumnId": "1"} | ID, {"ColumnId": "2"} | V], 420257597),
        ("test", "", [], 3668434463),
        ("shop", "", [], 2805160324),
        ("schema1", "", [], 3233644819),
    ],
)
def test_the_checksum_is_the_one_in_the_file_name(
    database: str, table: str, columns: list[dict[str, object]], checksum: int
) -> None:
    assert schema_checksum(schema_text(database, table, *columns)) == checksum


def test_a_checksum_with_leading_zeros_prints_with_ten_digits() -> None:
    assert f"{schema_checksum(schema_text('test', 't', ID, V, C)):010d}" == "0563607735"


def test_members_and_escaped_defaults_take_part_in_the_checksum() -> None:
    raw = (GOLDEN / "orders.json").read_bytes()
    assert schema_checksum(raw) == 4039745375
    without_members = raw.replace(
        b',\n            "ColumnElems": [\n                "new",\n                "paid"\n            ]', b""
    )
    assert schema_checksum(without_members) == 3608961103


def test_a_literal_bracket_in_place_of_its_escape_changes_the_checksum_but_not_the_shape() -> None:
    raw = (GOLDEN / "orders.json").read_bytes()
    literal = raw.replace(b"\\u003cnone\\u003e", b"<none>")
    assert schema_checksum(literal) != schema_checksum(raw)
    assert parse_schema_file(literal).schema == parse_schema_file(raw).schema


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


def test_unsigned_bits_and_years_are_the_same_types_as_plain_ones() -> None:
    parsed = parse_schema_file(
        schema_text("test", "t", column("a", "BIT UNSIGNED"), column("b", "BIT"), column("c", "YEAR UNSIGNED"), column("d", "YEAR"))
    )
    assert parsed.schema is not None
    types = [str(arrow_type(c.type)) for c in parsed.schema.columns]
    assert types == ["uint64", "uint64", "int64", "int64"]


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


def test_unknown_attributes_are_ignored() -> None:
    parsed = parse_schema_file(schema_text("test", "t", ID | {"ColumnCharset": "utf8mb4"}, Extra=[1]))
    assert parsed.schema is not None
    assert [c.name for c in parsed.schema.columns] == ["id"]


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
