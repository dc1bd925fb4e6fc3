"""Many messages read at once: the same rows as one by one, in order, and the same errors."""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from binlog_cases import CASES, G9, lines, records, told_type
from formats.binlog.encoding import NULL, Change, encoded, integer, string, table
from headrace.formats.base import DecodeError, MembersNotKnownError, SchemaMismatchError
from headrace.formats.binlog.cell_values import ValueOptions
from headrace.formats.binlog.columns import BinlogBatch
from headrace.formats.binlog.errors import (
    BinlogError,
    MalformedBinlogError,
    RowShapeError,
    UnknownBinlogTypeError,
    UnknownValueError,
)
from headrace.formats.binlog.messages import Cell, CellField, ColumnInfo, MutationType, read_binlog
from headrace.formats.binlog.row_events import RowReader
from headrace.formats.binlog.shapes import read_columns
from headrace.model.block import COMMIT_TS, KIND, META_COUNT, SEQ
from headrace.model.events import RowKind
from headrace.model.table import Column, TableId, TableSchema, folded_name
from headrace.model.types import ColumnType, TypeKind

ENUM, SET = ("a", "b", "c,d", "e'f"), ("x", "y", "z", "w")
UTC = ValueOptions(time_zone="UTC")


def schema_of(table_id: TableId, columns: tuple[ColumnInfo, ...], unsigned: Collection[str] = ()) -> TableSchema:
    """The shape that the messages describe, with the members and signs that they do not."""
    made = []
    for info in columns:
        if info.name.lower().startswith("_v$_"):
            continue
        column_type = told_type(info, unsigned=info.name in unsigned)
        members = {TypeKind.ENUM: ENUM, TypeKind.SET: SET}.get(column_type.kind, ())
        made.append(Column(info.name, replace(column_type, elements=members), primary_key=info.is_primary_key))
    return TableSchema(table_id, tuple(made))


def unsigned_columns(values: list[bytes]) -> dict[TableId, set[str]]:
    """The columns whose values show that they are unsigned."""
    found: dict[TableId, set[str]] = {}
    for value in values:
        for changes in read_binlog(value).tables:
            names = found.setdefault(changes.table_id, set())
            for mutation in changes:
                for row in filter(None, (mutation.row, mutation.old)):
                    names |= {c.name for c, cell in zip(changes.columns, row, strict=True) if cell.field is CellField.UINT64}
    return found


def canonical(value: object, kind: TypeKind) -> object:
    """A value of a row event as a block holds it."""
    if value is None:
        return None
    if kind is TypeKind.FLOAT:
        return float(np.float32(value))  # type: ignore[arg-type]
    return f"{value:f}" if kind is TypeKind.DECIMAL else value


def rows_one_by_one(values: list[bytes], schemas: dict[TableId, TableSchema], options: ValueOptions) -> dict[TableId, list[Any]]:
    """For each table, the kind, commit ts and values of its rows, from the reader of single messages."""
    reader = RowReader(options, schemas.get)
    found: dict[TableId, list[Any]] = {}
    for value in values:
        for event in reader.events(read_binlog(value)):
            rows, schema = found.setdefault(event.table_id, []), schemas[event.table_id]
            both = (RowKind.UPDATE_BEFORE, RowKind.UPDATE_AFTER)
            kinds = {"insert": (RowKind.INSERT,), "delete": (RowKind.DELETE,)}.get(event.op)
            for kind, image in zip(kinds or both, filter(None, (event.before, event.after)), strict=True):
                named = {folded_name(name): cell for name, cell in image.items()}  # descriptions may differ in case
                values_of = [canonical(named[folded_name(c.name)], c.type.kind) for c in schema.columns]
                rows.append((kind, event.commit_ts, values_of))
    return found


def rows_at_once(values: list[bytes], schemas: dict[TableId, TableSchema], options: ValueOptions) -> dict[TableId, list[Any]]:
    """The same from the columnar reader. A table that is described in several ways has its rows in the order of ``seq``."""
    found: dict[TableId, list[Any]] = {}
    for rows in BinlogBatch(values).tables:
        block = rows.block(schemas[rows.table_id], 1, options)
        block.batch.validate(full=True)
        columns = [column.to_pylist() for column in block.batch.columns]
        found.setdefault(rows.table_id, []).extend(zip(*columns, strict=True))
    assert [batch for batch in found.values() if len({row[2] for row in batch}) != len(batch)] == []
    in_order = {table_id: sorted(batch, key=lambda row: row[2]) for table_id, batch in found.items()}
    return {t: [(RowKind(row[0]), row[1], list(row[META_COUNT:])) for row in batch] for t, batch in in_order.items() if batch}


def schemas_of(values: list[bytes]) -> dict[TableId, TableSchema]:
    unsigned = unsigned_columns(values)
    tables = [changes for value in values for changes in read_binlog(value).tables]
    return {changes.table_id: schema_of(changes.table_id, changes.columns, unsigned[changes.table_id]) for changes in tables}


def good_values(case: str) -> list[bytes]:
    if case != "malformed":
        return [record.value for record in records(case)]
    told = lines("malformed", "expected")
    # One has a charset of its own, and one an empty text in a column of another type.
    left_out = {"non-utf8-string", "value-without-field"}
    return [r.value for r, t in zip(records(case), told, strict=True) if t["expect"] == "ok" and t["name"] not in left_out]


@pytest.mark.parametrize("case", [case for case in CASES if case != "seek-gaps"])
def test_the_rows_of_a_golden_topic_are_the_same_at_once_and_one_by_one(case: str) -> None:
    by_shape: dict[Any, list[bytes]] = {}
    for value in good_values(case)[:500]:
        shape = tuple(changes.columns for changes in read_binlog(value).tables)
        by_shape.setdefault(shape, []).append(value)
    for values in by_shape.values():
        schemas = schemas_of(values)
        assert rows_at_once(values, schemas, UTC) == rows_one_by_one(values, schemas, UTC)


def test_golden_messages_have_the_expected_layout() -> None:
    # The columnar reader would give the same rows without it, but slowly.
    for case in CASES:
        if case not in ("malformed", "seek-gaps"):
            values = [record.value for record in records(case)]
            batch = BinlogBatch(values)
            assert not any(rows._singles for rows in batch.tables)
            assert set(batch.statements) == {n for n, value in enumerate(values) if read_binlog(value).ddl is not None}
            assert batch.commit_ts.tolist() == [read_binlog(value).commit_ts for value in values]


def test_a_batch_has_the_statements_with_the_numbers_of_their_messages() -> None:
    batch = BinlogBatch([record.value for record in records("ddl-only")])
    assert len(batch) == 6
    queries = [line["ddl"]["query"] for line in lines("ddl-only", "decoded")]
    assert [batch.statements[number].text for number in range(6)] == queries
    assert batch.tables == ()


INFOS = (
    ColumnInfo("id", "bigint", True, 20, 0),
    ColumnInfo("name", "varchar", False, 300, 0),
    ColumnInfo("ratio", "double", False, 22, -1),
    ColumnInfo("data", "blob", False, -1, -1),
    ColumnInfo("bits", "bit", False, 9, 0),
    ColumnInfo("kind", "enum", False, 1, 0),
)
OTHER = INFOS[:2]

_cells = (
    st.integers(-(2**63), 2**63 - 1).map(integer),
    st.one_of(st.just(NULL), st.text(max_size=300).map(string), st.just(Cell(CellField.ABSENT, None))),
    st.one_of(st.just(NULL), st.floats(allow_nan=False).map(lambda number: Cell(CellField.DOUBLE, number))),
    st.one_of(st.just(NULL), st.binary(max_size=200).map(lambda data: Cell(CellField.BYTES, data))),
    st.one_of(st.just(NULL), st.integers(0, 511).map(lambda n: Cell(CellField.BYTES, n.to_bytes(2, "big")))),
    st.one_of(st.just(NULL), st.integers(0, 4).map(lambda n: Cell(CellField.UINT64, n))),
)


def _changes(width: int) -> st.SearchStrategy[list[Change]]:
    row = st.tuples(*_cells[:width])
    change = st.one_of(
        st.tuples(st.sampled_from([MutationType.INSERT, MutationType.DELETE]), row, st.none()),
        st.tuples(st.just(MutationType.UPDATE), row, row),
    )
    return st.lists(change, max_size=6)


@st.composite
def messages(draw: st.DrawFn) -> bytes:
    tables = []
    for name in draw(st.lists(st.sampled_from(["wide", "narrow"]), max_size=4)):
        infos = INFOS if name == "wide" else OTHER
        tables.append(table(name, infos, draw(_changes(len(infos))), keys=draw(st.booleans())))
    value = encoded(draw(st.integers(-(2**63), 2**63 - 1)), tables)
    # Unknown fields give a message another layout.
    return draw(st.sampled_from([value, value, value, value + b"\x78\x01", b"\x78\x01" + value]))


@pytest.mark.long
@settings(max_examples=150, deadline=None)
@given(st.lists(messages(), max_size=8), st.booleans())
def test_any_messages_give_the_same_rows_at_once_and_one_by_one(values: list[bytes], repeated: bool) -> None:
    values = values * 35 if repeated else values  # many chains are followed in another way than few
    schemas = schemas_of(values)
    assert rows_at_once(values, schemas, UTC) == rows_one_by_one(values, schemas, UTC)


@pytest.mark.long
@settings(max_examples=300, deadline=None)
@given(messages(), st.data())
def test_damaged_messages_give_the_same_rows_or_the_same_refusal(value: bytes, data: st.DataObject) -> None:
    schemas = schemas_of([value])
    at = data.draw(st.integers(0, len(value) - 1))
    damaged = data.draw(
        st.sampled_from([value[:at], value[:at] + value[at + 1 :], value[:at] + bytes([value[at] ^ 0x20]) + value[at + 1 :]])
    )
    damaged = damaged if data.draw(st.booleans()) else value[:at] + data.draw(st.binary(min_size=1, max_size=2)) + value[at + 1 :]

    def read(reader: Any) -> object:
        try:
            return reader([damaged], {**schemas, **schemas_of([damaged])}, UTC)
        except (DecodeError, KeyError):  # the latter for a column whose name is damaged in one of several descriptions
            return "refused"

    assert read(rows_at_once) == read(rows_one_by_one)


def simple(number: int, *cells: Cell) -> bytes:
    """A message with one insert into the narrow table."""
    return encoded(number, [table("narrow", OTHER, [(MutationType.INSERT, cells, None)])])


NARROW = schema_of(TableId("d", "narrow"), OTHER)


def test_rows_carry_commit_ts_and_an_increasing_seq() -> None:
    row = (integer(1), string("a"))
    update = (MutationType.UPDATE, row, row)
    values = [
        encoded(10, [table("narrow", OTHER, [update]), table("narrow", OTHER, [(MutationType.DELETE, row, None)])]),
        simple(20, *row),
    ]
    (rows,) = BinlogBatch(values).tables
    batch = rows.block(NARROW, 7, UTC).batch
    assert batch.column(KIND).to_pylist() == [1, 2, 3, 0]
    assert batch.column(COMMIT_TS).to_pylist() == [10, 10, 10, 20]
    assert batch.column(SEQ).to_pylist() == [0, 1, 3, 5]
    assert BinlogBatch(values).mutation_count == 3


@pytest.mark.parametrize(
    ("cells", "error", "column"),
    [
        ((integer(1), Cell(CellField.STRING, b"\xff")), UnknownValueError, "name"),
        ((string("one"), string("a")), MalformedBinlogError, "id"),
        ((integer(1), Cell(CellField.BYTES, b"a")), MalformedBinlogError, "name"),
        ((integer(1),), RowShapeError, ""),
    ],
)
def test_an_error_names_the_message_and_the_column(cells: tuple[Cell, ...], error: type[BinlogError], column: str) -> None:
    good = simple(1, integer(1), string("a"))
    (rows,) = BinlogBatch([good, good, simple(3, *cells), good]).tables
    with pytest.raises(error) as refused:
        rows.block(NARROW, 1, UTC)
    assert (refused.value.message_number, refused.value.column) == (2, column)


def test_a_message_that_cannot_be_read_is_named() -> None:
    with pytest.raises(UnknownBinlogTypeError) as refused:
        BinlogBatch([simple(1, integer(1), string("a")), G9])
    assert refused.value.message_number == 1


def one(mysql_type: str, cell: Cell, column_type: ColumnType, options: ValueOptions) -> object:
    infos = (ColumnInfo("id", "int", True, 11, 0), ColumnInfo("c", mysql_type, False, -1, -1))
    value = encoded(1, [table("t", infos, [(MutationType.INSERT, (integer(1), cell), None)])])
    (rows,) = BinlogBatch([value]).tables
    schema = TableSchema(TableId("d", "t"), (Column("id", ColumnType(TypeKind.INT)), Column("c", column_type)))
    return rows.block(schema, 1, options).batch.column("c")[0].as_py()


@pytest.mark.reading_case("A12", "A27")
def test_what_the_messages_do_not_contain_is_an_error() -> None:
    timestamp = ("timestamp", string("2020-01-01 08:00:00"), ColumnType(TypeKind.TIMESTAMP))
    with pytest.raises(UnknownValueError, match="time zone of the host that Drainer ran on"):
        one(*timestamp, ValueOptions())
    assert one(*timestamp, ValueOptions(time_zone="Asia/Shanghai")) == "2020-01-01 00:00:00"
    member = ("enum", Cell(CellField.UINT64, 2))
    with pytest.raises(MembersNotKnownError):
        one(*member, ColumnType(TypeKind.ENUM), UTC)
    assert one(*member, ColumnType(TypeKind.ENUM, elements=ENUM), UTC) == "b"
    latin = ("varchar", Cell(CellField.STRING, b"\xff"), ColumnType(TypeKind.VARCHAR))
    with pytest.raises(UnknownValueError, match="does not name its charset"):
        one(*latin, UTC)
    assert one(*latin, ValueOptions("UTC", "latin-1")) == "ÿ"


def test_an_unsigned_number_is_read_only_as_such() -> None:
    largest = Cell(CellField.UINT64, 2**64 - 1)
    assert one("bigint", largest, ColumnType(TypeKind.BIGINT, unsigned=True), UTC) == 2**64 - 1
    with pytest.raises(MalformedBinlogError, match="not a value of the type BIGINT"):
        one("bigint", largest, ColumnType(TypeKind.BIGINT), UTC)
    with pytest.raises(MalformedBinlogError, match="not a value of the type BIGINT UNSIGNED"):
        one("bigint", integer(-1), ColumnType(TypeKind.BIGINT, unsigned=True), UTC)


@pytest.mark.parametrize("name", ["_V$_i_0", "_Col$_name_0", "_Idx$_i_0"])
@pytest.mark.reading_case("A30")
def test_hidden_columns_of_tidb_are_passed_over(name: str) -> None:
    schema = TableSchema(TableId("d", "t"), (Column("id", ColumnType(TypeKind.INT)),))
    found = read_columns((ColumnInfo(name, "varchar"), ColumnInfo("id", "int")), schema)
    assert [(read.place, read.column.name) for read in found] == [(1, "id")]


def test_the_schema_must_fit_the_messages() -> None:
    (rows,) = BinlogBatch([simple(1, integer(1), string("a"))]).tables
    with pytest.raises(SchemaMismatchError, match="does not have the column age"):
        rows.block(replace(NARROW, columns=(*NARROW.columns, Column("age", ColumnType(TypeKind.INT)))), 1, UTC)
    without = replace(NARROW, columns=NARROW.columns[:1])
    with pytest.raises(SchemaMismatchError, match="has the column name, which the schema does not have"):
        rows.block(without, 1, UTC)
    assert rows.block(without, 1, UTC, ignored={"name"}).batch.schema.names[META_COUNT:] == ["id"]
    other = replace(NARROW, columns=(NARROW.columns[0], Column("name", ColumnType(TypeKind.INT))))
    with pytest.raises(SchemaMismatchError, match="has the type varchar in the message, and INT in the schema"):
        rows.block(other, 1, UTC)


@pytest.mark.parametrize("apart", [False, True])
def test_a_table_with_ever_other_columns_takes_no_more_time_for_each(apart: bool) -> None:
    def read(count: int) -> float:
        shapes = [(OTHER[0], ColumnInfo(f"c{number}", "int", False, 11, 0)) for number in range(count)]
        tables = [table("t", infos, [(MutationType.INSERT, (integer(1), integer(2)), None)]) for infos in shapes]
        values = [encoded(1, tables)] if apart else [encoded(1, [made]) for made in tables]
        started = time.process_time()
        for rows in BinlogBatch(values).tables:
            assert rows.block(schema_of(rows.table_id, rows.columns), 1, UTC).num_rows == 1
        return time.process_time() - started

    read(100)
    assert read(2000) < 60 * read(200) + 1


def test_a_block_has_the_canonical_types() -> None:
    values = [record.value for record in records("types")]
    schemas = schemas_of(values[2:])
    for rows in BinlogBatch(values).tables:
        batch = rows.block(schemas[rows.table_id], 1, UTC).batch
        types = {field.name: field.type for field in batch.schema}
        if "c_ubig" in types:
            assert (types["c_ubig"], types["c_float"], types["c_bit64"]) == (pa.uint64(), pa.float32(), pa.uint64())
            assert (types["c_dec"], types["c_bin"], types["c_year"]) == (pa.string(), pa.binary(), pa.int64())
