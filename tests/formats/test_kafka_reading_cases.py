"""Messages of TiCDC's protocols on Kafka that the golden cases do not have: bytes of the format's description, and old releases."""

from __future__ import annotations

from dataclasses import replace

import pytest
from test_kafka_protocols import OPEN, ROW, T, cell, decode, framed, open_row, values_of

from headrace.model.block import KIND
from headrace.model.events import RowKind
from headrace.model.table import Column, TableId, TableSchema
from headrace.model.types import ColumnType, TypeKind
from headrace.sources.kafka.canal_json import CanalJsonProtocol
from headrace.sources.kafka.protocol import Messages
from headrace.sources.stream.reader import BadRecordError
from headrace.sources.stream.records import RecordKind
from kafka_cases import message, tso

CANAL = CanalJsonProtocol()
RESOLVED = bytes.fromhex("0000000000000001000000000000001f7b227473223a3431353530383835363930383032313736362c2274223a337d")
ROW_KEY = bytes.fromhex("000000000000000100000000000000227b227473223a312c2273636d223a2261222c2274626c223a2262222c2274223a317d")
ROW_VALUE = bytes.fromhex("000000000000002a7b2275223a7b226964223a7b2274223a332c2268223a747275652c2266223a31312c2276223a317d7d7d")


def open_records(key: bytes, value: bytes) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = OPEN.read(Messages([0], [value], [key])).to_pylist()
    return rows


def schema_of(*columns: Column) -> TableSchema:
    return TableSchema(TableId("shop", "a"), (Column("id", ColumnType(TypeKind.INT), primary_key=True), *columns), ("id",))


def canal_row(types: dict[str, str], values: dict[str, str], **more: object) -> bytes:
    told = {"mysqlType": {"id": "int", **types}, "data": [{"id": "1", **values}], **more}
    return message("INSERT", tso(1), **told)


def canal_value(kind: str, value: str, column: ColumnType) -> object:
    """The value that a canal-JSON message of this type and text gives."""
    (row,) = decode(CANAL, canal_row({"c": kind}, {"c": value}), schema=schema_of(Column("c", column)))
    return row["c"]


@pytest.mark.reading_case("B01")
def test_the_watermark_of_the_open_protocols_description() -> None:
    (found,) = open_records(RESOLVED, bytes(8))
    assert (found["kind"], found["commit_ts"]) == (RecordKind.WATERMARK, 415508856908021766)


@pytest.mark.reading_case("B02")
def test_the_row_of_the_open_protocols_description() -> None:
    (found,) = open_records(ROW_KEY, ROW_VALUE)
    assert (found["kind"], found["database"], found["table"], found["commit_ts"]) == (RecordKind.ROWS, "a", "b", 1)
    (row,) = decode(OPEN, found["value"], schema=schema_of())
    assert (row[KIND], values_of(row)) == (RowKind.INSERT, {"id": 1})


@pytest.mark.reading_case("B03")
def test_events_of_several_tables_and_of_a_partition_of_a_table_are_told_apart() -> None:
    keys = [{"ts": ts, "scm": "a", "tbl": "b", "t": 1} for ts in (1, 2, 3)] + [{"ts": 4, "scm": "a", "tbl": "c", "ptn": 6, "t": 1}]
    values = [{"u": {"id": cell(3, 11, number)}} for number in range(4)]
    found = open_records(framed(*keys, version=1), framed(*values))
    assert [(row["kind"], row["table"], row["commit_ts"]) for row in found] == [
        *((RecordKind.ROWS, "b", ts) for ts in (1, 2, 3)),
        (RecordKind.ROWS, "c", 4),
    ]
    assert [decode(OPEN, row["value"], schema=schema_of())[0]["id"] for row in found] == [0, 1, 2, 3]


@pytest.mark.reading_case("B04")
def test_one_message_may_have_several_statements_or_watermarks() -> None:
    keys = [{"ts": ts, "scm": "a", "tbl": "b", "t": 2} for ts in (1, 2, 3)]
    values = [{"q": f"create table {name}", "t": number} for number, name in enumerate("abc", 1)]
    found = [OPEN.statement(row["value"], "0", 0) for row in open_records(framed(*keys, version=1), framed(*values))]  # type: ignore[arg-type]
    assert [(told.commit_ts, told.statement) for told in found] == [(ts, f"create table {'abc'[ts - 1]}") for ts in (1, 2, 3)]
    watermarks = open_records(framed(*({"ts": ts, "t": 3} for ts in (1, 2, 3)), version=1), framed(b"", b"", b""))
    assert [(row["kind"], row["commit_ts"]) for row in watermarks] == [(RecordKind.WATERMARK, ts) for ts in (1, 2, 3)]


@pytest.mark.reading_case("B06", "B07")
@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        (b"\0" * 7 + b"\2" + ROW_KEY[8:], ROW_VALUE, "has the version 2"),
        (ROW_KEY[:-1], ROW_VALUE, "its key has an event of 34 bytes, and only 33 are left."),
        (ROW_KEY, b"\xff" + ROW_VALUE[1:], "and only 42 are left."),
        (ROW_KEY, ROW_VALUE + b"\0", "cut off within the length of an event"),
        (ROW_KEY + ROW_KEY[8:], ROW_VALUE, "its key has 2 events, and its value has 1."),
    ],
    ids=["version", "key cut off", "length too large", "rest", "more keys than values"],
)
def test_damaged_lengths_are_refused(key: bytes, value: bytes, reason: str) -> None:
    (found,) = open_records(key, value)
    assert found["kind"] == RecordKind.UNKNOWN
    assert reason.encode() in found["value"]  # type: ignore[operator]


@pytest.mark.reading_case("B10")
def test_text_and_blob_share_a_type_code() -> None:
    schema = replace(T, columns=tuple(_large(column) for column in T.columns))
    told = {"u": open_row(b=cell(252, 64, "5rWL"), x=cell(252, 65, "iVBORw0KGgo="))}
    (row,) = decode(OPEN, told, schema=schema)
    assert (row["b"], row["x"]) == ("测", b"\x89PNG\r\n\x1a\n")
    assert ROW["x"] == row["x"]


def _large(column: Column) -> Column:
    kinds = {"b": TypeKind.TEXT, "x": TypeKind.BLOB}
    return replace(column, type=ColumnType(kinds[column.name])) if column.name in kinds else column


@pytest.mark.reading_case("B17")
def test_each_character_of_a_binary_value_in_canal_json_is_a_byte() -> None:
    written = "\u0005\u0007\n\u000f$2+cx<&ÿþ-7F"
    found = canal_value("varbinary", written, ColumnType(TypeKind.VARBINARY))
    assert found == bytes.fromhex("05070a0f24322b63783c26fffe2d3746")


@pytest.mark.reading_case("B18")
def test_a_character_that_is_no_byte_is_refused() -> None:
    with pytest.raises(BadRecordError) as refused:
        canal_value("blob", "a\u0100", ColumnType(TypeKind.BLOB))
    assert refused.value.column == "c"


@pytest.mark.reading_case("B21")
def test_a_null_in_old_of_an_insert_is_no_old_row() -> None:
    """TiCDC 5.1 writes it (TiCDC issue 4597)."""
    rows = decode(CANAL, canal_row({}, {}, old=[None]), schema=schema_of())
    assert [(row[KIND], row["id"]) for row in rows] == [(RowKind.INSERT, 1)]


@pytest.mark.reading_case("B22")
@pytest.mark.parametrize(
    ("kind", "told", "value", "expected"),
    [
        (TypeKind.ENUM, "enum", "1", "p"),
        (TypeKind.SET, "set", "3", "p,q"),
        (TypeKind.BIT, "bit", "81", 81),
    ],
)
def test_members_have_the_names_of_the_schema_and_bits_are_a_number(
    kind: TypeKind, told: str, value: str, expected: object
) -> None:
    elements = () if kind is TypeKind.BIT else ("p", "q")
    assert canal_value(told, value, ColumnType(kind, elements=elements)) == expected
