"""The rows of TiCDC's Debezium protocol: golden records, damaged ones, and values that messages do not show exactly."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.formats import row_images
from headrace.formats.approximate_decimals import decimals
from headrace.formats.counted_times import dates, datetimes, times
from headrace.model.block import KIND
from headrace.model.events import RowKind
from headrace.model.table import Column, Generated, TableId, TableSchema
from headrace.model.types import ColumnType, TypeKind
from headrace.sources.kafka.debezium import DebeziumProtocol
from headrace.sources.kafka.protocol import Messages
from headrace.sources.stream.history import StreamHistory
from headrace.sources.stream.reader import BadRecordError
from headrace.sources.stream.records import RecordKind
from kafka_cases import KafkaCase, tso
from protocol_replay import decoded, expected, messages_of

NAMES = ["basic-noschema", "basic-schema", "ddl", "types"]
STRICT, LENIENT = DebeziumProtocol(), DebeziumProtocol(accept_unclear=True)
ID = Column("id", ColumnType(TypeKind.INT), nullable=False, primary_key=True)
TABLE = TableId("d", "t")


@pytest.mark.parametrize("name", NAMES)
def test_golden_records_give_the_rows_that_were_changed(name: str) -> None:
    case = KafkaCase("debezium", name)
    found = decoded(LENIENT, messages_of(case))
    assert found.total() > 0
    assert found == expected(LENIENT, case)


@pytest.mark.parametrize("name", NAMES)
def test_rows_that_are_read_one_by_one_are_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    messages = messages_of(KafkaCase("debezium", name))
    together = decoded(LENIENT, messages)
    read = row_images.decode_lines.__globals__["_decode_singly"]

    def singly(reader: row_images.LineReader, lines: Sequence[bytes], commit_ts: object) -> object:
        sizes = row_images.np.fromiter(map(len, lines), row_images.np.int64, len(lines))
        return read(reader, lines, sizes, commit_ts)

    monkeypatch.setattr("headrace.sources.kafka.line_records.decode_lines", singly)
    assert decoded(LENIENT, messages) == together


@pytest.mark.parametrize("name", NAMES)
def test_messages_that_are_written_in_another_way_mean_the_same(name: str) -> None:
    """A mirror may have parsed and written them: blanks, and members in another order."""
    messages = messages_of(KafkaCase("debezium", name))
    others = [json.dumps(dict(reversed(json.loads(value).items())), ensure_ascii=False).encode() for value in messages.values]
    assert decoded(LENIENT, messages._replace(values=others)) == decoded(LENIENT, messages)


@pytest.mark.parametrize("name", NAMES)
def test_every_golden_record_is_what_it_was_written_as(name: str) -> None:
    case = KafkaCase("debezium", name)
    kinds = {"row": RecordKind.ROWS, "ddl": RecordKind.STATEMENT, "checkpoint": RecordKind.WATERMARK}
    records = LENIENT.read(messages_of(case))
    assert records.column("kind").to_pylist() == [kinds[golden.kind] for golden in case.records]


# --- single messages --------------------------------------------------------------------------------------------------------


def written(op: str | None, *, table: str = "t", connector: str = "TiCDC", ts: object = None, **members: object) -> bytes:
    """A message as TiCDC writes it, without the schema."""
    source = {"version": "2.4.0.Final", "connector": connector, "name": "c", "ts_ms": 1, "snapshot": "false", "db": "d"}
    source |= {"table": table, "server_id": 0, "gtid": None, "file": "", "pos": 0, "row": 0, "thread": 0, "query": None}
    source |= {"commit_ts": tso(1) if ts is None else ts, "cluster_id": "c"}
    payload = {"source": source, "ts_ms": 1, "transaction": None, **({} if op is None else {"op": op}), **members}
    return json.dumps({"payload": payload}, ensure_ascii=False, separators=(",", ":")).encode()


def inserted(**row: object) -> bytes:
    return written("c", before=None, after={"id": 1, **row})


def rows_of(*values: bytes, columns: Sequence[Column] = (), protocol: DebeziumProtocol = STRICT) -> list[dict[str, object]]:
    """The rows of messages of a table with ``id`` and these columns."""
    records = protocol.read(Messages(range(len(values)), list(values)))
    assert set(records.column("kind").to_pylist()) == {RecordKind.ROWS}, records.column("value").to_pylist()
    schema = TableSchema(TABLE, (ID, *columns), ("id",))
    rows: list[dict[str, object]] = protocol.decode(schema, records.select(["offset", "commit_ts", "value"]))[0].to_pylist()
    return rows


def value_of(kind: TypeKind, value: object, protocol: DebeziumProtocol = STRICT, **of: object) -> object:
    """What a column of the type gets from a value."""
    default, nullable = of.pop("default", None), bool(of.pop("nullable", True))
    column = Column("x", ColumnType(kind, **of), nullable=nullable, default=default)  # type: ignore[arg-type]
    (row,) = rows_of(inserted(x=value), columns=[column], protocol=protocol)
    return row["x"]


@pytest.mark.reading_case("B34")
@pytest.mark.parametrize(
    ("days", "text"), [(19691, "2023-11-30"), (-354285, "1000-01-01"), (2932896, "9999-12-31"), (18321, "2020-02-29")]
)
def test_dates_count_days(days: int, text: str) -> None:
    assert value_of(TypeKind.DATE, days) == text


@pytest.mark.reading_case("B34")
@pytest.mark.parametrize(
    ("kind", "value", "of", "found"),
    [
        (TypeKind.DATETIME, 1577934245678, {"scale": 3}, "2020-01-02 03:04:05.678"),
        (TypeKind.DATETIME, 1577934245600, {"scale": 1}, "2020-01-02 03:04:05.6"),
        (TypeKind.DATETIME, 1577934245678900, {"scale": 4}, "2020-01-02 03:04:05.6789"),
        (TypeKind.DATETIME, -30610224000000, {}, "1000-01-01 00:00:00"),
        (TypeKind.TIME, -3020399000000, {}, "-838:59:59"),
        (TypeKind.TIME, -1, {"scale": 6}, "-00:00:00.000001"),
        (TypeKind.TIMESTAMP, "2023-11-30T12:34:56.50Z", {"scale": 2}, "2023-11-30 12:34:56.50"),
        (TypeKind.YEAR, 1901, {}, 1901),
        (TypeKind.DECIMAL, 1e-7, {"length": 20, "scale": 10}, "0.0000001000"),
        (TypeKind.DECIMAL, -0.05, {"length": 10, "scale": 2}, "-0.05"),
        (TypeKind.DECIMAL, 7, {"length": 10, "scale": 0}, "7"),
        (TypeKind.SET, "z,x", {"elements": ("x", "y", "z")}, "x,z"),
        (TypeKind.ENUM, "", {"elements": ("a",)}, ""),
    ],
)
def test_values_are_canonical(kind: TypeKind, value: object, of: dict[str, object], found: object) -> None:
    assert value_of(kind, value, **of) == found


@pytest.mark.reading_case("B35")
def test_an_unsigned_bigint_is_written_as_if_it_were_signed() -> None:
    assert value_of(TypeKind.BIGINT, -1, unsigned=True) == 18446744073709551615
    assert value_of(TypeKind.BIGINT, -1) == -1
    with pytest.raises(BadRecordError, match="not a value of the type INT UNSIGNED"):
        value_of(TypeKind.INT, -1, unsigned=True)


@pytest.mark.reading_case("B36")
def test_bits_are_bytes_with_the_lowest_first() -> None:
    assert value_of(TypeKind.BIT, "EA==", length=5) == 16
    assert value_of(TypeKind.BIT, "AQIDBAUGBwg=", length=60) == 0x0807060504030201
    assert [value_of(TypeKind.BIT, bit, length=1) for bit in (True, False, None)] == [1, 0, None]
    with pytest.raises(BadRecordError, match="not a value of the type BIT"):
        value_of(TypeKind.BIT, "EA==", length=9)


@pytest.mark.reading_case("B37")
def test_a_watermark_has_op_m_and_a_schema_change_has_none() -> None:
    statement = written(None, databaseName="d", schemaName=None, ddl="CREATE TABLE t (id INT PRIMARY KEY)", tableChanges=[])
    records = STRICT.read(Messages([0, 1], [written("m"), statement])).to_pylist()
    assert [(record["kind"], record["commit_ts"]) for record in records] == [
        (RecordKind.WATERMARK, tso(1)),
        (RecordKind.STATEMENT, tso(1)),
    ]
    found = STRICT.statement(records[1]["value"], "0", 1)
    assert (found.table_id, found.statement, found.tells_shape) == (TABLE, "CREATE TABLE t (id INT PRIMARY KEY)", False)


def test_an_update_without_its_old_row_has_only_the_new_one() -> None:
    (row,) = rows_of(written("u", after={"id": 1}))
    assert (row[KIND], row["id"]) == (RowKind.UPDATE_AFTER, 1)


def test_members_that_are_numbers_are_not_taken_as_places() -> None:
    assert value_of(TypeKind.ENUM, "1", elements=("2", "1")) == "1"
    assert value_of(TypeKind.SET, "2,1", elements=("2", "1")) == "2,1"
    with pytest.raises(BadRecordError, match="not a value of the type ENUM"):
        value_of(TypeKind.ENUM, "3", elements=("2", "1"))


# --- values that messages do not show exactly ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "default", "value", "of"),
    [
        (TypeKind.INT, "0", 0, {}),
        (TypeKind.BIGINT, "18446744073709551615", -1, {"unsigned": True}),
        (TypeKind.VARCHAR, "dd", "dd", {}),
        (TypeKind.VARCHAR, "UUID()", "whatever", {}),
        (TypeKind.DECIMAL, "1.50", 1.5, {"length": 10, "scale": 2}),
        (TypeKind.DOUBLE, "1e3", 1000, {}),
        (TypeKind.DATE, "2020-02-29", 18321, {}),
        (TypeKind.DATETIME, "2020-01-02 03:04:05", 1577934245000, {}),
        (TypeKind.DATETIME, "2020-01-01 00:00:00+05:00", 1577818800000, {}),
        (TypeKind.DATETIME, "2020-01-02 03:04:05.9999", 1577934246000, {"scale": 3}),
        (TypeKind.DATETIME, "20-01-02 03:04:05", 1577934245000, {}),
        (TypeKind.TIME, "-01:00:00", -3600_000_000, {}),
        (TypeKind.TIME, "-00:00:01.5", -2_000_000, {}),
        (TypeKind.YEAR, "2024", 2024, {}),
        (TypeKind.YEAR, "24", 2024, {}),
        (TypeKind.ENUM, "A", "a", {"elements": ("a", "b")}),
        (TypeKind.SET, "y,x", "x,y", {"elements": ("x", "y")}),
        (TypeKind.BIT, "\x01", True, {"length": 1}),
        (TypeKind.VARBINARY, "x", "AA==", {}),
    ],
)
def test_the_default_of_a_column_may_stand_for_null(kind: TypeKind, default: str, value: object, of: dict[str, object]) -> None:
    with pytest.raises(BadRecordError, match="does not show whether the value is NULL") as caught:
        value_of(kind, value, default=default, **of)
    assert "accept-unclear=true" in caught.value.hint
    assert value_of(kind, value, LENIENT, default=default, **of) == value_of(kind, value, **of)
    assert value_of(kind, value, default=default, nullable=False, **of) == value_of(kind, value, **of)


def test_the_beginning_of_1970_may_stand_for_null_where_the_default_is_the_current_time() -> None:
    with pytest.raises(BadRecordError, match="does not show whether the value is NULL"):
        value_of(TypeKind.DATETIME, 0, default="CURRENT_TIMESTAMP")
    assert value_of(TypeKind.DATETIME, 1000, default="CURRENT_TIMESTAMP") == "1970-01-01 00:00:01"


@pytest.mark.parametrize(
    ("kind", "default", "value", "of"),
    [
        (TypeKind.INT, "0", 1, {}),
        (TypeKind.VARCHAR, "dd", "d", {}),
        (TypeKind.YEAR, "2024", 2023, {}),
        (TypeKind.DATETIME, "2020-01-02 03:04:05", 1577934245001, {"scale": 3}),
        (TypeKind.TIME, "01:00:00.500000", 3600_000_000, {"scale": 6}),
        (TypeKind.TIMESTAMP, "CURRENT_TIMESTAMP(3)", "2023-11-30T12:34:56.500Z", {"scale": 3}),
        (TypeKind.ENUM, "a", "b", {"elements": ("a", "b")}),
        (TypeKind.INT, "0", None, {}),
    ],
)
def test_any_other_value_is_what_it_is(kind: TypeKind, default: str, value: object, of: dict[str, object]) -> None:
    assert value_of(kind, value, default=default, **of) == value_of(kind, value, **of)


def test_a_decimal_of_more_digits_than_a_float_shows_is_unclear() -> None:
    assert value_of(TypeKind.DECIMAL, 9999999999999.99, length=20, scale=2) == "9999999999999.99"
    with pytest.raises(BadRecordError, match="does not show more than 15 digits"):
        value_of(TypeKind.DECIMAL, 99999999999999.99, length=20, scale=2)
    assert value_of(TypeKind.DECIMAL, -1e16, LENIENT, length=20, scale=4) == "-9999999999999999.9999"


def test_a_zero_date_is_unclear() -> None:
    for kind in (TypeKind.DATE, TypeKind.DATETIME):
        with pytest.raises(BadRecordError, match="whether the value is a zero date or one of 1970"):
            value_of(kind, 0, nullable=False)
    with pytest.raises(BadRecordError, match="whether the value is a zero date or one of 1970"):
        value_of(TypeKind.TIMESTAMP, "1970-01-01T00:00:00Z", scale=3)
    assert value_of(TypeKind.TIMESTAMP, "1970-01-01T00:00:00Z", LENIENT, scale=3) == "0000-00-00 00:00:00.000"
    assert value_of(TypeKind.DATE, 0) == "1970-01-01"


# --- damaged messages -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "table", "reason"),
    [
        (b"null", "", "it is not one JSON object."),
        (b"{}", "", "it has no payload with a source"),
        (written("c", before=None, after={"id": 1})[:-10], "t", "it is not one JSON object"),
        (written("r", after={"id": 1}), "t", "its op is 'r', which is not known."),
        (written(None), "t", "it is neither a row nor a schema change nor a watermark."),
        (written("c", ts=-1, after={"id": 1}), "t", "source.commit_ts is not a commit ts."),
        (written("c", table="", after={"id": 1}), "", "it does not name its table."),
        (written("c", connector="mysql", after={"id": 1}), "", "it was written by the connector 'mysql'"),
        (written("c", before=None, after={"id": 1}).replace(b',"op"', b',\n"op"'), "t", "it has line breaks between its parts"),
    ],
)
def test_a_message_that_is_not_understood_is_unknown(value: bytes, table: str, reason: str) -> None:
    (record,) = STRICT.read(Messages([7], [value])).to_pylist()
    assert (record["kind"], record["table"], record["offset"]) == (RecordKind.UNKNOWN, table, 7)
    assert record["value"].decode().startswith(reason)


def test_empty_messages_are_left_out() -> None:
    assert STRICT.read(Messages([0, 1], [b"", b" \r\n"])).num_rows == 0


def test_messages_with_and_without_schemas_may_follow_each_other() -> None:
    with_schema = [inserted()[:-1] + b',"schema":{"type":"struct","name":"%d"}}' % number for number in range(2)]
    values = [inserted(), with_schema[0], inserted(), with_schema[1], with_schema[1], with_schema[0], inserted()]
    assert [row["id"] for row in rows_of(*values)] == [1] * len(values)


def test_a_broken_schema_makes_a_message_unreadable_and_names_its_table() -> None:
    whole = inserted()[:-1] + b',"schema":{"type":"struct"}}'
    assert rows_of(whole)
    (record,) = STRICT.read(Messages([0], [whole.replace(b'"struct"}', b'"stru}')])).to_pylist()
    assert (record["kind"], record["table"]) == (RecordKind.UNKNOWN, "t")


def with_schema(value: bytes, **types: str) -> bytes:
    """The message with a schema that names the columns' types in TiDB."""
    fields = [{"tidb_type": of, "type": "string", "optional": True, "field": name} for name, of in {"id": "int", **types}.items()]
    sides = [{"type": "struct", "optional": True, "field": side, "fields": fields} for side in ("before", "after")]
    return value[:-1] + b',"schema":' + json.dumps({"type": "struct", "fields": sides}, separators=(",", ":")).encode() + b"}"


def as_debezium_writes(value: bytes) -> bytes:
    return value.replace(b'"tidb_type":"varbinary","type":"string"', b'"type":"bytes"')


def with_blanks(value: bytes) -> bytes:
    return json.dumps(json.loads(value)).encode()


@pytest.mark.parametrize("place", [0, 1, 2])
@pytest.mark.parametrize("write", [bytes, as_debezium_writes, with_blanks])
@pytest.mark.parametrize(("kind", "told"), [(TypeKind.VARCHAR, "varbinary"), (TypeKind.VARBINARY, "varchar")])
def test_bytes_in_a_column_of_text_stop_the_table_as_does_text_in_one_of_bytes(
    kind: TypeKind, told: str, write: Callable[[bytes], bytes], place: int
) -> None:
    """A shape that follows from statements may lack the default charset of a database. Values do not show that."""
    column = Column("x", ColumnType(kind))
    values = [with_schema(inserted(x="w6k="), x=str(kind).lower()), inserted(x="w6k=")]
    assert [row["x"] for row in rows_of(*map(write, values), columns=[column])] == [
        b"\xc3\xa9" if told == "varchar" else "w6k="
    ] * 2
    values.insert(place, with_schema(inserted(x="w6k="), x=told))
    with pytest.raises(BadRecordError, match="In the message the column holds") as caught:
        rows_of(*map(write, values), columns=[column])
    assert (caught.value.record, caught.value.column) == (place, "x")
    assert "The default charset of its table or database may be older" in caught.value.hint


@pytest.mark.parametrize(
    ("charset", "told", "problem"),
    [
        ("", "VARCHAR", ""),
        ("", "VARBINARY", "column x holds bytes in the source, and text by the schema changes."),
        (" CHARSET binary", "VARBINARY", ""),
        (" CHARSET binary", "VARCHAR", "column x holds text in the source, and bytes by the schema changes."),
    ],
)
def test_a_schema_change_after_which_text_would_be_bytes_stops_the_table(charset: str, told: str, problem: str) -> None:
    """It tells the types of the columns also where rows have no schema, with ``debezium-disable-schema=true``."""
    columns = [{"name": "id", "typeName": "INT"}, {"name": "x", "typeName": told}]
    changes = [{"type": "CREATE", "id": '"d"."t"', "table": {"defaultCharsetName": "utf8mb4", "columns": columns}}]
    statement = f"CREATE TABLE t (id INT PRIMARY KEY, x VARCHAR(9)){charset}"
    value = written(None, databaseName="d", schemaName=None, ddl=statement, tableChanges=changes)
    history = StreamHistory({}, [STRICT.statement(value, "0", 1)])
    assert [found.message.partition(": ")[2].partition(" The default")[0] for found in history.problems] == [problem] * bool(
        problem
    )
    assert len(history.versions(TABLE)) == (not problem)


@pytest.mark.parametrize(
    ("value", "column", "message"),
    [
        (written("c", before=None, after={"id": 1, "y": 1}), "y", "The columns of the row are not those that d.t has"),
        (written("c", before=None, after={"x": 1}), "id", "The columns of the row are not those that d.t has"),
        (written("c", before=None, after={"id": 1.5, "x": 1}), "id", "The value is not written as a INT"),
        (written("c", before=None, after={"id": 1, "x": "1"}), "x", "The value is not written as a INT"),
        (written("u", before={"id": 1, "x": 1}, after=None), "", "not the rows that belong to it"),
        (written("c", before={"id": 1, "x": 1}, after={"id": 1, "x": 1}), "", "not the rows that belong to it"),
        (written("c", before=None, after=[]), "", "after is not a JSON object."),
        (written("c", before=None, after={"id": 1, "x": 1}).replace(b'"x":1', b'"x":1.'), "", "The message cannot be read"),
    ],
)
def test_a_row_that_cannot_be_read_is_told_with_its_record(value: bytes, column: str, message: str) -> None:
    x = Column("x", ColumnType(TypeKind.INT))
    with pytest.raises(BadRecordError, match=message) as caught:
        rows_of(inserted(x=1), value, inserted(x=1), columns=[x])
    assert (caught.value.record, caught.value.column) == (1, column)


def test_a_column_that_is_missing_is_not_taken_as_null() -> None:
    x = Column("x", ColumnType(TypeKind.INT))
    assert [row["x"] for row in rows_of(inserted(x=None), inserted(x=2), columns=[x])] == [None, 2]
    with pytest.raises(BadRecordError, match="The columns of the row are not those") as caught:
        rows_of(inserted(x=None), inserted(), columns=[x])
    assert (caught.value.record, caught.value.column) == (1, "x")


def test_an_old_row_that_is_null_does_not_hide_a_missing_column() -> None:
    x = Column("x", ColumnType(TypeKind.INT))
    assert rows_of(written("u", before=None, after={"id": 1, "x": None}), columns=[x])[0]["x"] is None
    with pytest.raises(BadRecordError, match="The columns of the row are not those") as caught:
        rows_of(inserted(x=1), written("u", before=None, after={"id": 1}), columns=[x])
    assert (caught.value.record, caught.value.column) == (1, "x")


# --- conversions ------------------------------------------------------------------------------------------------------------


@given(st.decimals(allow_nan=False, allow_infinity=False, places=4, min_value=-(10**11) + 1, max_value=10**11 - 1))
def test_a_decimal_of_up_to_fifteen_digits_comes_back(value: Decimal) -> None:
    of = ColumnType(TypeKind.DECIMAL, length=15, scale=4)
    (found,) = decimals(pa.array([float(value)]), of).to_pylist()
    assert Decimal(found) == value
    assert found.partition(".")[2].isdigit()


@pytest.mark.parametrize(
    ("convert", "value"),
    [
        (dates, 2_932_897),
        (dates, -719_163),
        (lambda values: datetimes(values, "ms", 0), 1),
        (lambda values: datetimes(values, "us", 4), 10),
        (lambda values: datetimes(values, "ms", 3), 253_402_300_800_000),
        (lambda values: times(values, 0), 1),
        (lambda values: times(values, 6), 839 * 3600 * 10**6),
    ],
)
def test_a_time_that_its_column_cannot_hold_is_an_error(convert: object, value: int) -> None:
    with pytest.raises(ValueError, match="a time"):
        convert(pa.array([value], pa.int64()))  # type: ignore[operator]


def test_a_generated_column_that_rows_do_not_carry_is_not_missed() -> None:
    virtual = replace(Column("v", ColumnType(TypeKind.INT)), generated=Generated.VIRTUAL)
    assert "v" not in rows_of(inserted(), columns=[virtual])[0]
