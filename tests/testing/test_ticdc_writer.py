"""What the writer of TiCDC output does beyond copying TiCDC: bulk writing, rollover, restarts, the legacy tree."""

from __future__ import annotations

import json
import tomllib
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace.model.block import block_schema
from headrace.model.table import Column, TableId, TableSchema
from headrace.model.types import ColumnType, TypeKind, arrow_type
from headrace.testing.ticdc_schema_file import schema_checksum
from headrace.testing.ticdc_writer import RowChange, TicdcWriter, split_key_updates

TABLE = TableId("shop", "t")
SCHEMA = TableSchema(
    TABLE,
    (
        Column("id", ColumnType(TypeKind.BIGINT), nullable=False, primary_key=True),
        Column("name", ColumnType(TypeKind.VARCHAR, length=40)),
        Column("price", ColumnType(TypeKind.DECIMAL, length=10, scale=2)),
        Column("weight", ColumnType(TypeKind.DOUBLE)),
        Column("state", ColumnType(TypeKind.ENUM, elements=("new", "it's, done"))),
        Column("made", ColumnType(TypeKind.TIMESTAMP)),
        Column("pic", ColumnType(TypeKind.VARBINARY, length=16)),
    ),
    ("id",),
)
AWKWARD_TEXTS = ["\\N", '"', ",", "a\\", "\r\n", "<&>", "[*]"]
ROW = st.fixed_dictionaries(
    {
        "id": st.integers(-(1 << 63), (1 << 63) - 1),
        "name": st.none() | st.text(st.characters(exclude_categories=["Cs"])) | st.sampled_from(AWKWARD_TEXTS),
        "price": st.none() | st.decimals(-99999, 99999, places=2).map(str),
        "weight": st.none() | st.floats(allow_nan=False, allow_infinity=False),
        "state": st.none() | st.sampled_from(["new", "it's, done"]),
        "made": st.none() | st.datetimes(datetime(1971, 1, 1), datetime(2037, 1, 1)).map(lambda d: f"{d:%Y-%m-%d %H:%M:%S}"),
        "pic": st.none() | st.binary(max_size=16),
    }
)


def started(root: Path, protocol: Any = "csv", **options: Any) -> TicdcWriter:
    writer = TicdcWriter(root, protocol, clock=lambda: datetime(2026, 3, 4, tzinfo=UTC), **options)
    writer.schema_change(TABLE, 100, "CREATE TABLE `t` (…)", SCHEMA, 3)
    return writer


def arrow_rows(rows: list[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(rows, pa.schema([(column.name, arrow_type(column.type)) for column in SCHEMA.columns]))


@pytest.mark.long
@pytest.mark.parametrize(
    ("protocol", "options"),
    [
        ("csv", {"include_commit_ts": True}),
        ("csv", {"quote": "", "delimiter": "[*]", "output_field_header": True, "binary_encoding_method": "hex"}),
        ("csv", {"null": "", "output_old_value": True, "terminator": "\n", "time_zone": "Asia/Shanghai"}),
        ("canal-json", {"enable_tidb_extension": True, "content_compatible": True}),
        ("canal-json", {"time_zone": "Asia/Shanghai"}),
    ],
)
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=st.lists(ROW, min_size=1, max_size=6), deletes=st.booleans())
def test_bulk_writing_gives_the_same_bytes_as_row_by_row(
    tmp_path: Path, protocol: Any, options: dict[str, Any], rows: list[dict[str, Any]], deletes: bool
) -> None:
    by_row, by_column = started(tmp_path / "rows", protocol, **options), started(tmp_path / "columns", protocol, **options)
    by_row.rows(TABLE, 7, [RowChange(before=row) if deletes else RowChange(after=row) for row in rows])
    (first,) = by_row.flush()
    by_column.bulk(TABLE, arrow_rows(rows), 7, "D" if deletes else "I")
    second = by_column.root / first.relative_to(by_row.root)
    assert without_ts(second.read_bytes()) == without_ts(first.read_bytes())
    for path in (first, second):
        path.unlink()
    by_row._numbers.clear()
    by_column._numbers.clear()


def without_ts(data: bytes) -> bytes | list[Any]:
    if not data.startswith(b"{"):
        return data
    lines = data.split(b"\r\n")
    assert lines.pop() == b""
    messages = [json.loads(line) for line in lines]
    return [{key: value for key, value in message.items() if key != "ts"} for message in messages]


def test_bulk_writing_splits_into_files(tmp_path: Path) -> None:
    writer = started(tmp_path, include_commit_ts=True)
    count = 1000
    rows = arrow_rows([{"id": i, "name": f"n{i}"} for i in range(count)])
    size = writer.bulk(TABLE, rows, pa.array(range(count), pa.int64()), pa.array(["I", "U"] * (count // 2)), rows_per_file=300)
    files = sorted(tmp_path.rglob("*.csv"))
    assert [len(file.read_bytes().splitlines()) for file in files] == [300, 300, 300, 100]
    assert sum(file.stat().st_size for file in files) == size
    assert files[0].read_bytes().splitlines()[1] == b'"U","t","shop",1,1,"n1",\\N,\\N,\\N,\\N,\\N'


def test_a_file_ends_when_it_is_large_enough(tmp_path: Path) -> None:
    writer = started(tmp_path, include_commit_ts=True, file_size=100)
    writer.rows(TABLE, 7, [RowChange(after={"id": i, "name": "x" * 30}) for i in range(5)])
    writer.flush()
    assert [len(file.read_bytes().splitlines()) for file in sorted(tmp_path.rglob("*.csv"))] == [2, 2, 1]


def test_a_restarted_writer_goes_on_with_the_next_number(tmp_path: Path) -> None:
    for _ in range(2):
        writer = started(tmp_path, file_index_digit=6)
        writer.rows(TABLE, 7, [RowChange(after={"id": 1})])
        writer.checkpoint(8)
    assert [path.name for path in sorted(tmp_path.rglob("*.csv"))] == ["CDC000001.csv", "CDC000002.csv"]
    assert next(tmp_path.rglob("CDC.index")).read_bytes() == b"CDC000002.csv\n"


def test_a_schema_change_ends_the_files_of_its_table_only(tmp_path: Path) -> None:
    writer = started(tmp_path)
    other = TableId("shop", "other")
    writer.schema_change(other, 101, schema=TableSchema(other, SCHEMA.columns, ("id",)))
    for table_id in (TABLE, other):
        writer.rows(table_id, 7, [RowChange(after={"id": 1})])
    writer.schema_change(TABLE, 200, "ALTER TABLE `t` …", SCHEMA, 5)
    assert [path.parts[-4:-2] for path in tmp_path.rglob("*.csv")] == [("t", "100")]


def test_the_legacy_tree_has_its_schema_beside_the_data(tmp_path: Path) -> None:
    writer = started(tmp_path, legacy=True, date_separator="none")
    assert writer.schema_change(TableId("shop"), 50, "CREATE DATABASE `shop`", None, 1) is None
    writer.rows(TABLE, 7, [RowChange(after={"id": 1})])
    writer.checkpoint(8)
    assert sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file()) == [
        "metadata",
        "shop/t/100/CDC.index",
        "shop/t/100/CDC000001.csv",
        "shop/t/100/schema.json",
    ]
    schema = json.loads((tmp_path / "shop/t/100/schema.json").read_bytes())
    assert schema["TableColumnsTotal"] == "7"
    assert schema["TableColumns"][1]["ColumnLength"] == "40"
    assert "Type" not in schema


def test_checksums_are_those_of_the_specification() -> None:
    key = Column("id", ColumnType(TypeKind.INT, length=11), nullable=False, primary_key=True)
    text = Column("v", ColumnType(TypeKind.VARCHAR, length=16))
    count = Column("c", ColumnType(TypeKind.INT, length=11), default="7")
    table = TableId("test", "t")
    assert schema_checksum(table, TableSchema(table, (key, text)), column_id=False) == 3633961634
    assert schema_checksum(table, TableSchema(table, (text, key)), column_id=False) == 3633961634
    assert schema_checksum(table, TableSchema(table, (key, text, count)), column_id=False) == 563607735
    assert schema_checksum(TableId("shop"), None, column_id=False) == 2805160324


def test_an_update_of_the_key_becomes_a_delete_before_all_upserts() -> None:
    insert = RowChange(after={"id": 9})
    changes = [insert, RowChange({"id": 1, "name": "a"}, {"id": 2, "name": "a"}), RowChange({"id": 3}, {"id": 3, "name": "b"})]
    assert split_key_updates(SCHEMA, changes) == [
        RowChange(before={"id": 1, "name": "a"}),
        insert,
        RowChange(after={"id": 2, "name": "a"}),
        changes[2],
    ]


def test_the_changefeed_file_tells_every_option_that_the_files_do_not(tmp_path: Path) -> None:
    writer = started(
        tmp_path, delimiter="\t", quote="", null="", terminator="\n", binary_encoding_method="hex", date_separator="none"
    )
    sink = tomllib.loads(writer.options.changefeed_toml())["sink"]
    assert (sink["terminator"], sink["date-separator"]) == ("\n", "none")
    assert (sink["csv"]["delimiter"], sink["csv"]["quote"], sink["csv"]["binary-encoding-method"]) == ("\t", "", "hex")
    assert writer.uri == f"{tmp_path.as_uri()}?protocol=csv"


def test_rows_of_an_unknown_table_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"shop\.other"):
        TicdcWriter(tmp_path).rows(TableId("shop", "other"), 1, [])


def test_a_block_has_the_columns_that_bulk_writing_takes() -> None:
    assert block_schema(SCHEMA.row_columns).names[3:] == arrow_rows([]).schema.names
