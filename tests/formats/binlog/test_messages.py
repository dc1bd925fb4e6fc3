"""Binlog messages: every golden topic as its own decoder shows it, the golden bytes of the specification, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from binlog_cases import CASES, G1, G2, G3, G4, G5, G6, G7, G8, G9, G10, lines, records
from headrace.formats.binlog import messages
from headrace.formats.binlog import slave_binlog_pb2 as pb
from headrace.formats.binlog.errors import (
    BinlogError,
    MalformedBinlogError,
    MissingFieldError,
    RowShapeError,
    TruncatedBinlogError,
    UnknownBinlogTypeError,
    UnknownMutationTypeError,
)
from headrace.formats.binlog.messages import Binlog, Cell, CellField, ColumnInfo, MutationType, TableChanges, UniqueKey, read_binlog
from headrace.formats.binlog.wire import fields, peek_commit_ts
from headrace.model.table import TableId

_NAMES = {CellField.INT64: "int64", CellField.UINT64: "uint64", CellField.DOUBLE: "double"}
ERRORS = {
    "empty-value": MissingFieldError,
    "truncated-by-one": TruncatedBinlogError,
    "truncated-half": TruncatedBinlogError,
    "only-tag": TruncatedBinlogError,
    "huge-length": TruncatedBinlogError,
    "unknown-binlog-type": UnknownBinlogTypeError,
    "unknown-mutation-type": UnknownMutationTypeError,
    "mutation-without-type": MissingFieldError,
    "mutation-without-row": MissingFieldError,
    "update-without-change-row": MissingFieldError,
    "short-change-row": RowShapeError,
    "short-row": RowShapeError,
    "long-row": RowShapeError,
    "no-column-info": RowShapeError,
    "ddl-without-data": MissingFieldError,
}


def shown_cell(cell: Cell) -> dict[str, Any]:
    if cell.field is CellField.NULL:
        return {"null": True}
    if cell.field is CellField.ABSENT:
        return {}
    if isinstance(cell.value, bytes):
        if cell.field is CellField.BYTES:
            return {"bytes_hex": cell.value.hex()}
        try:
            return {"string": cell.value.decode()}
        except UnicodeDecodeError:
            return {"string_hex": cell.value.hex()}
    return {_NAMES[cell.field]: cell.value}


def shown_column(column: ColumnInfo) -> dict[str, Any]:
    told = {"name": column.name, "mysql_type": column.mysql_type, "is_primary_key": column.is_primary_key}
    sizes = {"flen": column.flen, "decimal": column.decimal}
    return told | {name: size for name, size in sizes.items() if size is not None}


def shown_table(table: TableChanges) -> dict[str, Any]:
    mutations = []
    for mutation in table:
        told: dict[str, Any] = {"type": mutation.type.name.capitalize(), "row": [shown_cell(cell) for cell in mutation.row]}
        if mutation.old is not None:
            told["change_row"] = [shown_cell(cell) for cell in mutation.old]
        mutations.append(told)
    keys = [{"name": key.name, "columns": list(key.columns)} for key in table.unique_keys]
    names = {"schema": table.table_id.database, "table": table.table_id.table}
    columns = [shown_column(column) for column in table.columns]
    return {**names, "columns": columns, "unique_keys": keys, "mutations": mutations}


def shown(binlog: Binlog) -> dict[str, Any]:
    """A message in the form of decoded.jsonl."""
    told: dict[str, Any] = {"type": binlog.type.name, "commit_ts": binlog.commit_ts}
    if binlog.ddl is not None:
        told["ddl"] = {"schema": binlog.ddl.table_id.database, "table": binlog.ddl.table_id.table, "query": binlog.ddl.text}
    else:
        told["tables"] = [shown_table(table) for table in binlog.tables]
    return told | ({"time_zone": binlog.time_zone} if binlog.time_zone else {})


def expected(decoded: dict[str, Any]) -> dict[str, Any]:
    """A line of decoded.jsonl, with what a reader derives: an empty list for no tables, and the primary key of old messages."""
    told = {name: value for name, value in decoded.items() if name != "offset"}
    if told["type"] == "DML":
        told["tables"] = [with_keys(table) for table in told.get("tables", [])]
    return told


def with_keys(table: dict[str, Any]) -> dict[str, Any]:
    primary = [column["name"] for column in table["columns"] if column["is_primary_key"]]
    derived = [{"name": "PRIMARY", "columns": primary}] if primary else []
    return {"mutations": [], **table, "unique_keys": table.get("unique_keys") or derived}


@pytest.mark.parametrize("case", [case for case in CASES if lines(case, "decoded")])
@pytest.mark.reading_case("A30")
def test_every_message_of_a_golden_topic_is_read_as_it_was_written(case: str) -> None:
    read = [shown(read_binlog(record.value)) for record in records(case)]
    assert read == [expected(line) for line in lines(case, "decoded")]


def test_the_commit_ts_and_types_of_a_long_topic_are_read() -> None:
    for record, told in zip(records("seek"), lines("seek", "commit_ts"), strict=True):
        binlog = read_binlog(record.value)
        assert (binlog.commit_ts, binlog.type.name) == (told["commit_ts"], told["type"])
        assert peek_commit_ts(record.value) == told["commit_ts"]


@pytest.mark.parametrize(
    ("value", "told"),
    [
        pytest.param(record.value, told, id=told["name"])
        for record, told in zip(records("malformed"), lines("malformed", "expected"), strict=True)
    ],
)
@pytest.mark.reading_case("A13", "A14", "A15", "A16", "A17", "A18", "A19", "A20")
def test_a_damaged_message_is_refused_and_an_unusual_one_read(value: bytes, told: dict[str, Any]) -> None:
    if told["expect"] == "ok":
        decoded = expected(told["decoded"])
        if told["name"] == "split-dml-data":
            # The bytes have the table in both fields. `decoded` lists it once, and `why` says what protobuf does: it keeps both.
            decoded["tables"] *= 2
        assert shown(read_binlog(value)) == decoded
        assert peek_commit_ts(value) == told["decoded"]["commit_ts"]
    else:
        with pytest.raises(ERRORS.get(told["name"], MalformedBinlogError)) as refused:
            read_binlog(value)
        assert refused.value.message.endswith(".")


@pytest.mark.reading_case("A01")
def test_a_ddl_job_has_its_statement_and_the_object_it_concerns() -> None:
    created, database = read_binlog(G2), read_binlog(G3)
    assert created.ddl is not None
    assert database.ddl is not None
    assert (created.commit_ts, created.ddl.table_id, created.ddl.query) == (
        200,
        TableId("test", "test"),
        b"create table test(id int)",
    )
    assert (database.commit_ts, database.ddl.table_id, database.ddl.text) == (300, TableId("d"), "create database d")
    assert created.tables == ()


@pytest.mark.reading_case("A02")
def test_an_update_has_both_rows() -> None:
    binlog = read_binlog(G4)
    (table,) = binlog.tables
    assert binlog.commit_ts == 415508878783938562
    assert table.columns == (ColumnInfo("id", "int", True, 11, 0), ColumnInfo("v", "varchar", False, 10, -1))
    assert table.unique_keys == (UniqueKey("PRIMARY", ("id",)),)
    (update,) = table
    assert update.type is MutationType.UPDATE
    assert update.row == ((CellField.INT64, 1), (CellField.STRING, b"b"))
    assert update.old == ((CellField.INT64, 1), (CellField.NULL, None))


@pytest.mark.reading_case("A03")
def test_mutations_keep_their_order_and_unsigned_numbers_their_size() -> None:
    (table,) = read_binlog(G5).tables
    assert [mutation.type.name for mutation in table] == ["INSERT", "UPDATE", "DELETE"]
    largest = Cell(CellField.UINT64, 2**64 - 1)
    assert [(mutation.row[1], mutation.old and mutation.old[1]) for mutation in table] == [
        (largest, None),
        (Cell(CellField.NULL, None), largest),
        (Cell(CellField.NULL, None), None),
    ]


@pytest.mark.reading_case("A10")
def test_messages_of_old_releases_have_neither_sizes_nor_keys() -> None:
    (table,) = read_binlog(G6).tables
    assert table.columns == (ColumnInfo("a", "int", True, None, None),)
    assert table.unique_keys == (UniqueKey("PRIMARY", ("a",)),)
    assert [mutation.row for mutation in table] == [((CellField.INT64, 1),)]


@pytest.mark.reading_case("A04")
def test_every_kind_of_value_keeps_its_field() -> None:
    (table,) = read_binlog(G10).tables
    (row,) = [mutation.row for mutation in table]
    assert [(cell.field.name, cell.value) for cell in row] == [
        ("BYTES", b"\x05"),
        ("UINT64", 2),
        ("UINT64", 5),
        ("BYTES", b'{"key": "value"}'),
        ("STRING", b"3.140"),
        ("STRING", b"2020-01-02 03:04:05.678"),
        ("STRING", b"2023"),
        ("DOUBLE", 1.100000023841858),
        ("BYTES", b"\x00\xff"),
        ("STRING", "测".encode()),
        ("NULL", None),
    ]


@pytest.mark.reading_case("A12")
def test_a_string_that_is_not_utf8_stays_recoverable() -> None:
    (table,) = read_binlog(G8).tables
    assert [mutation.row for mutation in table] == [((CellField.STRING, b"\xff"),)]


@pytest.mark.parametrize(
    ("value", "error", "words"),
    [
        (G7, RowShapeError, "Change 1 of table d.t has a row of 1 values, and the table has 2 columns."),
        (G9, UnknownBinlogTypeError, "the type 2"),
        (G1[:-1], TruncatedBinlogError, "ends within a number, at byte 3"),
        (b"", MissingFieldError, "no commit_ts"),
        (bytes.fromhex("0800"), MissingFieldError, "no commit_ts"),
        (bytes.fromhex("100a"), MissingFieldError, "no type"),
        (bytes.fromhex("0801100a"), MissingFieldError, "no ddl_query"),
        (bytes.fromhex("0800100a2200"), MalformedBinlogError, "contains a DDL statement"),
        (bytes.fromhex("0801100a1a00"), MalformedBinlogError, "contains changes of rows"),
    ],
)
@pytest.mark.reading_case("A11", "A13", "A14", "A17")
def test_what_is_wrong_is_said(value: bytes, error: type[BinlogError], words: str) -> None:
    with pytest.raises(error) as refused:
        read_binlog(value)
    assert words in refused.value.message


@pytest.mark.parametrize("value", [G1, G2, G4, G5, G6, G10])
def test_a_message_that_ends_too_early_is_never_read(value: bytes) -> None:
    for length in range(len(value)):
        if length not in outer_ends(value):
            with pytest.raises(MalformedBinlogError):
                read_binlog(value[:length])


def outer_ends(value: bytes) -> set[int]:
    """Where a message could end without its last outermost field."""
    return {stop for *_, stop in fields(value, 0, len(value))}


@pytest.mark.reading_case("A19")
def test_peek_reads_the_outermost_fields_in_any_order_and_the_last_value_counts() -> None:
    assert peek_commit_ts(G2) == 200
    assert peek_commit_ts(bytes.fromhex("10140800" + "1005")) == 5
    assert peek_commit_ts(bytes.fromhex("0800" + "10" + "ff" * 9 + "01")) == -1
    with pytest.raises(MissingFieldError):
        peek_commit_ts(b"")


@pytest.mark.reading_case("A09")
def test_a_number_of_ten_bytes_is_read_and_one_of_eleven_refused() -> None:
    value = G6.replace(bytes.fromhex("220808001204" + "0a021001"), bytes.fromhex("22110800120d" + "0a0b10" + "ff" * 9 + "01"))
    value = value.replace(bytes.fromhex("1a1e0a1c"), bytes.fromhex("1a270a25"))
    (table,) = read_binlog(value).tables
    assert [mutation.row for mutation in table] == [((CellField.INT64, -1),)]
    with pytest.raises(MalformedBinlogError, match="more than 10 bytes"):
        read_binlog(bytes.fromhex("0800" + "10" + "ff" * 10 + "01"))


def test_a_damaged_byte_deep_inside_is_found_where_it_is() -> None:
    at = G4.index(bytes.fromhex("0a03320162"))
    with pytest.raises(MalformedBinlogError, match=f"The field at byte {at + 2} has the wire type 7"):
        read_binlog(G4[: at + 2] + b"\x37" + G4[at + 3 :])


def described(columns: int, keys: int = 0, name: str = "c{}") -> bytes:
    """A message about a table with so many columns and keys, and without rows."""
    infos = [pb.ColumnInfo(name=name.format(number).encode(), mysql_type=b"int") for number in range(columns)]
    table = pb.Table(schema_name=b"d", table_name=b"t", column_info=infos, unique_keys=[pb.Key(name=b"k")] * keys)
    return bytes(pb.Binlog(type=0, commit_ts=1, dml_data=pb.DMLData(tables=[table])).SerializeToString())


@pytest.mark.parametrize(("columns", "keys"), [(4097, 0), (1, 4097)])
def test_a_table_of_more_columns_or_keys_than_tidb_has_is_refused(columns: int, keys: int) -> None:
    assert len(read_binlog(described(4096, 4096)).tables[0].columns) == 4096
    with pytest.raises(MalformedBinlogError, match="lists more than 4096 columns or keys"):
        read_binlog(described(columns, keys))


@pytest.mark.parametrize(("columns", "name", "kept"), [(512, "c{}", True), (513, "c{}", False), (2, "c{}" + "x" * 40_000, False)])
def test_only_descriptions_of_usual_size_are_kept(columns: int, name: str, kept: bool) -> None:
    value = described(columns, name=name)
    messages._columns.cache_clear()
    first, second = (read_binlog(value).tables[0].columns for _ in range(2))
    assert first == second
    assert (messages._columns.cache_info().currsize == 1) is kept
