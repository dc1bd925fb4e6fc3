"""Rows of messages as Python values, and what a message does not contain."""

from __future__ import annotations

import struct
import tracemalloc
from dataclasses import replace
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from binlog_cases import CASES, G5, G8, G10, lines, records
from formats.binlog.encoding import encoded, integer, table
from headrace.formats.binlog.cell_values import EnumOrdinal, LocalTimestamp, SetMask, ValueOptions, converter
from headrace.formats.binlog.columns import BinlogBatch
from headrace.formats.binlog.errors import MalformedBinlogError, TruncatedBinlogError, UnknownValueError
from headrace.formats.binlog.messages import Cell, CellField, ColumnInfo, MutationType, read_binlog
from headrace.formats.binlog.row_events import RowEvent, RowReader
from headrace.model.table import Column, Generated, TableId, TableSchema
from headrace.model.types import ColumnType, TypeKind


def events(value: bytes, options: ValueOptions | None = None, schema: TableSchema | None = None) -> list[RowEvent]:
    return list(RowReader(options or ValueOptions(), lambda _table_id: schema).events(read_binlog(value)))


def shown(value: object) -> object:
    """A Python value in the form of changes.jsonl."""
    match value:
        case EnumOrdinal():
            return {"ordinal": int(value)}
        case SetMask():
            return {"mask": int(value)}
        case bytes():
            return {"hex": value.hex()}
        case Decimal():
            return f"{value:f}"
        case LocalTimestamp():
            return str(value)
        case _:
            return value


def shown_row(row: Any, floats: set[str]) -> dict[str, object]:
    """FLOAT in changes.jsonl is the shortest text of the 32-bit value."""
    return {n: float(str(np.float32(v))) if n in floats and v is not None else shown(v) for n, v in row.items()}


@pytest.mark.parametrize("case", [case for case in CASES if lines(case, "changes")])
def test_the_rows_of_a_golden_topic_have_the_values_that_the_upstream_had(case: str) -> None:
    changes = iter(lines(case, "changes"))
    reader = RowReader(ValueOptions())
    count = 0
    for record in records(case):
        binlog = read_binlog(record.value)
        floats = {column.name for table in binlog.tables for column in table.columns if column.mysql_type == "float"}
        if binlog.ddl is not None:
            told = next(changes)
            assert (told["op"], told["query"]) == ("ddl", binlog.ddl.text)
            assert TableId(told["schema"], told["table"]) == binlog.ddl.table_id
        for event in reader.events(binlog):
            told, count = next(changes), count + 1
            assert (event.op, event.commit_ts) == (told["op"], told["commit_ts"])
            assert event.table_id == TableId(told["schema"], told["table"])
            for image, row in (("before", event.before), ("after", event.after)):
                assert (row is None) == (image not in told)
                if row is not None:
                    hidden = {name for name in told[image] if name.lower().startswith("_v$_")}
                    assert shown_row(row, floats) == {n: v for n, v in told[image].items() if n not in hidden}
    assert next(changes, None) is None
    assert count or case == "ddl-only"


@pytest.mark.reading_case("A04")
def test_the_golden_row_of_every_kind_of_value() -> None:
    (event,) = events(G10)
    assert event.after == {
        "bit": 5,
        "enum": EnumOrdinal(2),
        "set": SetMask(5),
        "json": '{"key": "value"}',
        "dec": Decimal("3.140"),
        "dt": "2020-01-02 03:04:05.678",
        "y": 2023,
        "f": 1.100000023841858,
        "vb": b"\x00\xff",
        "tx": "测",
        "n": None,
    }
    assert isinstance(event.after["enum"], EnumOrdinal)
    assert isinstance(event.after["set"], SetMask)
    assert str(event.after["dec"]) == "3.140"


def test_an_update_says_which_columns_changed() -> None:
    insert, update, delete = events(G5)
    assert (insert.op, insert.before, insert.changed) == ("insert", None, ("id", "u"))
    assert (update.before, update.after) == ({"id": 1, "u": 2**64 - 1}, {"id": 2, "u": None})
    assert (delete.op, delete.after, delete.changed) == ("delete", None, ("id", "u"))


def value(mysql_type: str, cell: Cell, told: ColumnType | None = None, options: ValueOptions | None = None) -> object:
    column = Column("c", told) if told else None
    return converter(ColumnInfo("c", mysql_type), column, options or ValueOptions())(cell)


MEMBERS = ("a", "b", "")


@pytest.mark.parametrize(
    ("mysql_type", "cell", "expected"),
    [
        ("mediumint", Cell(CellField.STRING, b"8388607"), 8388607),
        ("int", Cell(CellField.INT64, 0), 0),
        ("bigint", Cell(CellField.UINT64, 2**64 - 1), 2**64 - 1),
        ("bit", Cell(CellField.BYTES, b"\xff" * 8), 2**64 - 1),
        ("bit", Cell(CellField.BYTES, b"\x01\xff"), 511),
        ("varchar", Cell(CellField.ABSENT, None), ""),
        ("varbinary", Cell(CellField.BYTES, b""), b""),
        ("json", Cell(CellField.BYTES, b'"a\\u0000b"'), '"a\\u0000b"'),
        ("json", Cell(CellField.BYTES, b'{"a": 1e400, "a": 2}'), '{"a": 1e400, "a": 2}'),
        ("float", Cell(CellField.DOUBLE, 0.10000000149011612), 0.10000000149011612),
        ("decimal", Cell(CellField.STRING, b"-0.000"), Decimal("-0.000")),
        ("date", Cell(CellField.STRING, b"0000-00-00"), "0000-00-00"),
        ("datetime", Cell(CellField.STRING, b"2020-00-10 00:00:00"), "2020-00-10 00:00:00"),
        ("time", Cell(CellField.STRING, b"-838:59:59.000001"), "-838:59:59.000001"),
        ("year", Cell(CellField.STRING, b"0"), 0),
        ("geometry", Cell(CellField.STRING, b"point"), "point"),
        ("enum", Cell(CellField.NULL, None), None),
    ],
)
@pytest.mark.reading_case("A22", "A24", "A25", "A26", "A28")
def test_values_of_every_age_and_kind(mysql_type: str, cell: Cell, expected: object) -> None:
    found = value(mysql_type, cell)
    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize(("kind", "number", "expected"), [("enum", 0, ""), ("enum", 2, "b"), ("set", 3, "a,b"), ("set", 0, "")])
@pytest.mark.reading_case("A23")
def test_a_schema_gives_the_members_their_names(kind: str, number: int, expected: str) -> None:
    told = ColumnType(TypeKind(kind.upper()), elements=MEMBERS)
    assert value(kind, Cell(CellField.UINT64, number), told) == expected
    with pytest.raises(MalformedBinlogError, match="is not a value of the type"):
        value(kind, Cell(CellField.UINT64, 9), told)


@pytest.mark.reading_case("A27")
def test_a_timestamp_is_utc_only_if_the_zone_of_drainers_host_is_known() -> None:
    cell = Cell(CellField.STRING, b"2020-01-01 08:00:00.5")
    assert value("timestamp", cell) == LocalTimestamp("2020-01-01 08:00:00.5")
    assert isinstance(value("timestamp", cell), LocalTimestamp)
    utc = value("timestamp", cell, options=ValueOptions(time_zone="Asia/Shanghai"))
    assert (utc, type(utc)) == ("2020-01-01 00:00:00.5", str)
    with pytest.raises(ValueError, match="no time zone"):
        ValueOptions(time_zone="Moon/Base")


@pytest.mark.reading_case("A12")
def test_a_string_of_another_charset_is_an_error_until_the_charset_is_given() -> None:
    with pytest.raises(UnknownValueError, match="is not utf-8") as refused:
        events(G8)
    assert (refused.value.column, refused.value.message[:10], refused.value.value) == ("v", "Table d.t:", "\\xff")
    (event,) = events(G8, ValueOptions(charset="latin-1"))
    assert event.after == {"v": "ÿ"}
    with pytest.raises(ValueError, match="no charset"):
        ValueOptions(charset="klingon")


@pytest.mark.parametrize(
    ("mysql_type", "cell", "told"),
    [
        ("int", Cell(CellField.ABSENT, None), None),
        ("int", Cell(CellField.STRING, b"one"), None),
        ("int", Cell(CellField.DOUBLE, 1.0), None),
        ("int", Cell(CellField.INT64, -1), ColumnType(TypeKind.INT, unsigned=True)),
        ("varchar", Cell(CellField.BYTES, b"x"), None),
        ("blob", Cell(CellField.STRING, b"x"), None),
        ("double", Cell(CellField.INT64, 1), None),
        ("decimal", Cell(CellField.STRING, b"1,5"), None),
        ("decimal", Cell(CellField.STRING, b"1E+999999999"), None),
        ("decimal", Cell(CellField.STRING, b"NaN"), None),
        ("mediumint", Cell(CellField.STRING, b"1_0"), None),
        ("year", Cell(CellField.STRING, b" 2020"), None),
        ("bit", Cell(CellField.BYTES, b"x" * 9), None),
        ("json", Cell(CellField.BYTES, b"\xff"), None),
        ("enum", Cell(CellField.INT64, 1), None),
        ("year", Cell(CellField.STRING, b""), None),
    ],
)
def test_a_value_that_its_type_does_not_have_is_an_error(mysql_type: str, cell: Cell, told: ColumnType | None) -> None:
    with pytest.raises(MalformedBinlogError, match=f"not a value of the type {mysql_type}") as refused:
        value(mysql_type, cell, told)
    assert refused.value.column == "c"


@pytest.mark.reading_case("A21")
def test_generated_columns_of_updates_are_marked_if_a_schema_names_them() -> None:
    number = ColumnType(TypeKind.INT)
    plain = TableSchema(TableId("d", "a"), (Column("id", number), Column("u", number)))
    generated = replace(plain, columns=(plain.columns[0], replace(plain.columns[1], generated=Generated.VIRTUAL)))
    assert [event.unreliable for event in events(G5, schema=plain)] == [frozenset()] * 3
    assert [event.unreliable for event in events(G5, schema=generated)] == [frozenset(), frozenset({"u"}), frozenset()]


def with_column(mysql_type: str, value: str) -> bytes:
    """A message with one inserted row of one column, whose value has these bytes."""

    def field(number: int, *parts: bytes) -> bytes:
        content = b"".join(parts)
        return bytes([number << 3 | 2, len(content)]) + content

    info = field(1, b"c") + field(2, mysql_type.encode())
    insert = bytes.fromhex("0800") + field(2, field(1, bytes.fromhex(value)))
    changes = field(1, b"d") + field(2, b"t") + field(3, info) + field(4, insert)
    return bytes.fromhex("08001001") + field(3, field(1, changes))


def column_at_once(message: bytes, column: Column) -> pa.Array:
    """The values of a message's only column, as the columnar reader gives them."""
    (rows,) = BinlogBatch([message]).tables
    return rows.block(TableSchema(TableId("d", "t"), (column,)), 1, ValueOptions()).batch.column(column.name)


@pytest.mark.parametrize(
    ("mysql_type", "data", "cell", "expected"),
    [
        pytest.param("int", "1000", Cell(CellField.INT64, 0), 0, marks=pytest.mark.reading_case("A05")),
        pytest.param("int", "0801", Cell(CellField.NULL, None), None, marks=pytest.mark.reading_case("A06")),
        pytest.param("varchar", "", Cell(CellField.ABSENT, None), "", marks=pytest.mark.reading_case("A06")),
        pytest.param("int", "08001007", Cell(CellField.INT64, 7), 7, marks=pytest.mark.reading_case("A07")),
        pytest.param("varchar", "3200", Cell(CellField.STRING, b""), "", marks=pytest.mark.reading_case("A08")),
        pytest.param("varbinary", "2a00", Cell(CellField.BYTES, b""), b"", marks=pytest.mark.reading_case("A08")),
        pytest.param("int", "10" + "ff" * 9 + "01", Cell(CellField.INT64, -1), -1, marks=pytest.mark.reading_case("A09")),
    ],
)
def test_a_field_that_is_there_is_a_value_even_if_it_is_zero_or_empty(
    mysql_type: str, data: str, cell: Cell, expected: object
) -> None:
    message = with_column(mysql_type, data)
    (changes,) = read_binlog(message).tables
    assert [mutation.row for mutation in changes] == [(cell,)]
    (event,) = events(message)
    assert event.after == {"c": expected}
    assert column_at_once(message, Column("c", ColumnType(TypeKind(mysql_type.upper())))).to_pylist() == [expected]


@pytest.mark.reading_case("A09")
def test_a_number_of_eleven_bytes_is_no_value() -> None:
    message = with_column("int", "10" + "ff" * 10 + "01")
    with pytest.raises(MalformedBinlogError, match="more than 10 bytes"):
        read_binlog(message)
    with pytest.raises(MalformedBinlogError, match="more than 10 bytes"):
        column_at_once(message, Column("c", ColumnType(TypeKind.INT)))


@pytest.mark.reading_case("A20")
def test_a_table_that_a_message_names_twice_has_the_rows_of_both_in_their_order() -> None:
    column = ColumnInfo("a", "int", True, 11, 0)
    parts = [table("t", [column], [(MutationType.INSERT, (integer(number),), None)]) for number in (2, 1)]
    message = encoded(7, parts)
    assert [event.after for event in events(message)] == [{"a": 2}, {"a": 1}]
    assert column_at_once(message, Column("a", ColumnType(TypeKind.INT), primary_key=True)).to_pylist() == [2, 1]


@pytest.mark.reading_case("A28")
def test_a_float_is_the_32_bits_that_the_source_has() -> None:
    """The message has them as a double. A block has 32 bits, so that its text is 0.1; a row event has the message's number."""
    message = with_column("float", "21" + struct.pack("<d", 0.10000000149011612).hex())
    column = column_at_once(message, Column("c", ColumnType(TypeKind.FLOAT)))
    assert (column.type, str(column.to_numpy()[0])) == (pa.float32(), "0.1")


@pytest.mark.reading_case("A29")
def test_a_length_of_a_gibibyte_takes_no_memory_before_the_bytes_are_there() -> None:
    message = with_column("blob", "2a8080808004" + "00" * 8)
    blob = Column("c", ColumnType(TypeKind.BLOB))
    tracemalloc.start()
    try:
        with pytest.raises(TruncatedBinlogError, match="needs the bytes up to 1073741"):
            read_binlog(message)
        with pytest.raises(TruncatedBinlogError, match="needs the bytes up to 1073741"):
            column_at_once(message, blob)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()
