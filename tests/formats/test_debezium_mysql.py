"""Messages of Debezium's own connector for MySQL: what they are about, their order, and their values."""

from __future__ import annotations

import base64
import json
import pickle
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from test_kafka_maxwell import Earlier

from debezium_cases import DebeziumCase
from headrace.formats.binlog_clock import BinlogPlace
from headrace.formats.debezium_mysql_messages import Schemas, read_about, read_statement_message
from headrace.formats.debezium_mysql_values import DECIMAL, ZONED, Encoding, canonical
from headrace.formats.plain_messages import PlainKind
from headrace.formats.row_images import UnclearValueError
from headrace.kafka.client import Message
from headrace.model.block import COMMIT_TS
from headrace.model.table import Column, TableId, TableSchema
from headrace.model.types import ColumnType, TypeKind
from headrace.sources.kafka.debezium_mysql import DebeziumMySqlProtocol
from headrace.sources.kafka.protocol import Messages
from headrace.sources.kafka.protocols import detected
from headrace.sources.stream.reader import BadRecordError
from headrace.sources.stream.records import RecordKind

WITH, WITHOUT = DebeziumCase(with_schema=True), DebeziumCase(with_schema=False)
T = TableId("shop", "t")
TYPE = {kind: ColumnType(kind) for kind in TypeKind}
ID = Column("id", TYPE[TypeKind.INT], nullable=False, primary_key=True)
SCHEMA = TableSchema(T, (ID, Column("v", TYPE[TypeKind.INT])), ("id",))
KEYS = TableSchema(T, (ID,), ("id",))
BEGAN = 1_750_000_000_000


def row(op: str = "c", *, pos: int = 1000, written_ms: int = BEGAN, sent_ms: int = BEGAN, **members: Any) -> bytes:
    """A message without schema of the table T."""
    source = {"version": "3.6.1.Final", "connector": "mysql", "ts_ms": written_ms, "snapshot": "false", "db": "shop", "table": "t"}
    source |= {"file": "binlog.000007", "pos": pos, "row": 0} | members.pop("source", {})
    sides = {"before": None, "after": {"id": 1, "v": 2}} if op != "d" else {"before": {"id": 1, "v": 2}, "after": None}
    return json.dumps({**sides, "source": source, "op": op, "ts_ms": sent_ms, **members}).encode()


def kinds(*values: bytes, protocol: DebeziumMySqlProtocol | None = None) -> list[RecordKind]:
    batch = (protocol or DebeziumMySqlProtocol()).read(Messages(range(len(values)), list(values)))
    return [RecordKind(kind) for kind in batch.column("kind").to_pylist()]


def reason(value: bytes) -> str:
    about = read_about(value, Schemas())
    assert about.kind is PlainKind.UNREADABLE
    return about.text.decode()


@pytest.mark.parametrize("case", [WITH, WITHOUT], ids=["schema", "no-schema"])
def test_the_first_message_shows_the_protocol(case: DebeziumCase) -> None:
    assert detected(Message(n, r.key, r.value, BEGAN) for n, r in enumerate(case.records)) == "debezium-mysql"


def test_both_kinds_of_messages_are_about_the_same() -> None:
    told = [[read_about(record.value or b"", Schemas()) for record in case.records] for case in (WITH, WITHOUT)]
    shown = [[(about.kind, about.database, about.table, about.clock) for about in of_case] for of_case in told]
    assert shown[0] == shown[1]
    assert {about.kind for about in told[0]} == {PlainKind.ROW, PlainKind.STATEMENT, PlainKind.IGNORED}


def test_the_clock_orders_events_as_they_were_sent() -> None:
    """But for the statements of a snapshot, of which those that drop come first."""
    clocks = [about.clock for record in WITH.records if (about := read_about(record.value or b"", Schemas())).clock]
    assert clocks == sorted(clocks)


def test_the_clock_orders_places() -> None:
    places = [BinlogPlace(1, 4), BinlogPlace(1, 4, 1), BinlogPlace(1, 4, 2000), BinlogPlace(1, 23), BinlogPlace(2, 4)]
    places.append(BinlogPlace(800_000, (1 << 32) - 1, 1 << 20))
    numbers = [number for place in places for number in (place.of_statement(), place.of_statement(3), place.of_row())]
    rows = [place.of_row() for place in places]
    assert rows == sorted(set(rows))
    assert all(place.of_statement(3) < place.of_row() for place in places)
    assert min(numbers) > 0
    assert max(numbers) < BEGAN << 18


def test_the_statements_of_the_topic_of_schema_changes() -> None:
    told = [read_about(record.value or b"", Schemas()) for record in WITHOUT.records]
    found = [read_statement_message(about.text) for about in told if about.kind is PlainKind.STATEMENT]
    texts = [(statement.table_id.table, statement.statement.split("(")[0].strip()) for statement in found]
    assert texts[:9] == [
        *((table, f"DROP TABLE IF EXISTS `shop`.`{table}`") for table in ("emptied", "item", "line", "types")),
        ("", "CREATE DATABASE `shop` CHARSET utf8mb4 COLLATE utf8mb4_general_ci"),
        *((table, f"CREATE TABLE `{table}`") for table in ("emptied", "item", "line", "types")),
    ]
    assert ("emptied", "TRUNCATE TABLE `shop`.`emptied`") in texts
    assert ("later", "RENAME TABLE late TO later") in texts
    assert texts[-1] == ("gone", "DROP TABLE `shop`.`gone`")


def test_a_statement_without_changes_of_tables_names_its_table_itself() -> None:
    message = json.loads(row())
    message |= {"databaseName": "shop", "ddl": "CREATE INDEX ix ON t (v)", "tableChanges": []}
    assert read_statement_message(json.dumps(message).encode()).table_id == T


def test_what_says_nothing_is_left_out() -> None:
    marks = [{"status": s, "id": "x:1", "ts_ms": BEGAN, "event_count": None, "data_collections": None} for s in ("BEGIN", "END")]
    assert kinds(b"", b'{"ts_ms":1}', *(json.dumps(mark).encode() for mark in marks), row()) == [RecordKind.ROWS]


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        (b"{", "it is not one JSON object"),
        (b"[1]", "it is not one JSON object"),
        (b'{"schema":{"type":"struct"},"payload":7}', "its payload is no JSON object"),
        (b'{"id":1,"v":2}', "ExtractNewRecordState"),
        (row(source={"connector": "postgresql"}), "it was written by the connector 'postgresql'"),
        (row(source={"connector": "TiCDC"}), "it was written by the connector 'TiCDC'"),
        (row("m"), "its op is 'm', which is not known"),
        (row(source={"table": None}), "it does not name its table"),
        (row(source={"file": "", "pos": 0}), "are no place in a binlog"),
        (row(source={"file": "binlog.900000"}), "is greater than 800000"),
        (row(source={"pos": -5}), "are no place in a binlog"),
        (row(ddl=None), "it has no ddl or no databaseName"),
    ],
)
def test_messages_that_cannot_be_read_tell_why(value: bytes, wanted: str) -> None:
    assert wanted in reason(value)


def test_events_that_are_sent_again_are_rows() -> None:
    again = row(pos=1000, sent_ms=BEGAN + 60_000)
    assert kinds(row(pos=1000), row(pos=2000, written_ms=BEGAN + 1000, sent_ms=BEGAN + 2000), again) == [RecordKind.ROWS] * 3


def test_behind_an_event_of_another_binlog_nothing_is_known() -> None:
    later = row(pos=500, written_ms=BEGAN + 9000, sent_ms=BEGAN + 9500)
    batch = DebeziumMySqlProtocol().read(Messages([0, 1], [row(pos=1000), later]))
    assert batch.column("kind").to_pylist() == [RecordKind.ROWS, RecordKind.UNKNOWN]
    assert batch.column("table").to_pylist() == ["t", ""]
    assert b"it is from another binlog" in batch.column("value")[1].as_py()


def test_a_later_snapshot_at_an_earlier_place_is_of_another_binlog() -> None:
    assert kinds(row(pos=1000), row("r", pos=500, source={"snapshot": "true"})) == [RecordKind.ROWS, RecordKind.UNKNOWN]


def test_rows_of_an_incremental_snapshot_have_a_place_that_was_read_before() -> None:
    again = row("r", pos=500, written_ms=BEGAN + 9000, sent_ms=BEGAN + 9500, source={"snapshot": "incremental"})
    assert kinds(row(pos=1000), again) == [RecordKind.ROWS] * 2


def test_another_binlog_is_noticed_at_the_beginning_of_a_range() -> None:
    protocol = DebeziumMySqlProtocol().for_range(Earlier(iter([Messages([0, 1], [b"", b""]), Messages([0], [row(pos=1000)])])))
    assert kinds(row(pos=500, written_ms=BEGAN + 9000), protocol=protocol) == [RecordKind.UNKNOWN]
    protocol = DebeziumMySqlProtocol().for_range(Earlier(iter([Messages([0], [row(pos=1000)])])))
    assert kinds(row(pos=500, written_ms=BEGAN - 9000), protocol=protocol) == [RecordKind.ROWS]


def snapshot(step: str, pos: int = 1000, sent_ms: int = BEGAN, database: str = "shop") -> bytes:
    """A statement of a snapshot."""
    source = {"snapshot": "true", "db": database, "table": ""}
    return row(ddl=step, databaseName=database, pos=pos, sent_ms=sent_ms, source=source)


def test_a_snapshot_of_two_databases_is_of_one_binlog() -> None:
    """All is at one place; Debezium writes CREATE DATABASE of the second one behind the tables of the first one."""
    steps = [
        snapshot(f"{step} x{n}", database=f"x{n}") for n in (1, 2) for step in ("CREATE DATABASE", "CREATE TABLE t (id INT); --")
    ]
    assert set(kinds(*steps, row("r", source={"snapshot": "true"}))) == {RecordKind.STATEMENT, RecordKind.ROWS}


def test_a_snapshot_that_begins_again_at_the_same_place_is_of_one_binlog() -> None:
    steps = [snapshot("DROP TABLE IF EXISTS t"), snapshot("CREATE TABLE t (id INT)")]
    assert kinds(*steps, row("r", source={"snapshot": "true"}), *steps)[-2:] == [RecordKind.STATEMENT] * 2


def test_an_event_is_known_again_though_the_clocks_differ() -> None:
    """By the server's clock it was written later than the connector had sent anything by its own."""
    first, second = row(pos=1000, written_ms=BEGAN + 3000), row(pos=2000, written_ms=BEGAN + 3001)
    assert kinds(first, second, first, second) == [RecordKind.ROWS] * 4
    earlier = [Messages([1], [second]), Messages([0], [first])]
    assert kinds(first, protocol=DebeziumMySqlProtocol().for_range(Earlier(iter(earlier)))) == [RecordKind.ROWS]
    other = row(pos=1000, written_ms=BEGAN + 4000)
    assert kinds(first, second, other)[-1] == RecordKind.UNKNOWN, "the same place of another binlog"


def test_not_all_messages_of_a_partition_without_events_are_looked_at() -> None:
    asked = 0

    def heartbeats() -> Iterator[Messages]:
        nonlocal asked
        while True:
            asked += 10_000
            yield Messages(range(10_000), [b'{"ts_ms":1}'] * 10_000)

    protocol = DebeziumMySqlProtocol().for_range(Earlier(heartbeats()))
    assert kinds(b'{"ts_ms":1}', protocol=protocol) == []
    assert not asked, "what comes has no place in the binlog"
    assert kinds(row(), protocol=protocol) == [RecordKind.ROWS]
    assert asked <= 100_000


@pytest.mark.parametrize("written_ms", [0, 253_402_300_800_000, 1 << 60])
def test_a_statement_without_a_possible_time_is_not_read(written_ms: int) -> None:
    """Existing rows get defaults of that time."""
    with pytest.raises(ValueError, match="is no time when a server ran it"):
        read_statement_message(row(ddl="ALTER TABLE t ADD x TIMESTAMP", databaseName="shop", written_ms=written_ms))


@pytest.mark.long
def test_schemas_that_take_much_memory_are_not_held() -> None:
    """A message of schemas that say nothing is a heartbeat, and a few KB in Kafka can become many of them."""
    schemas = Schemas()
    for number in range(20):
        schemas.parts(b'{"schema":{"n":%d,"a":[%s]},"payload":{"ts_ms":1}}' % (number, b",".join([b"{}"] * 30_000)))
    held = [schemas.parts(b'{"schema":{"n":%d,"a":[%s]},"payload":{}}' % (n, b",".join([b"{}"] * 30_000)))[0] for n in (0, 19)]
    assert [schemas.holds(schema) for schema in held if schema is not None] == [True, False]
    small = schemas.parts(b'{"schema":{"n":1},"payload":{}}')[0]
    assert small is not None
    assert schemas.holds(small)


def decoded(*values: bytes, accept_unclear: bool = True, schema: TableSchema = SCHEMA) -> list[dict[str, Any]]:
    protocol = pickle.loads(pickle.dumps(DebeziumMySqlProtocol(accept_unclear)))
    rows, counts = protocol.decode(schema, protocol.read(Messages(range(len(values)), list(values))))
    assert sum(counts) == rows.num_rows
    found: list[dict[str, Any]] = rows.to_pylist()
    return found


@pytest.mark.parametrize("number", [2031, 70_000])
def test_a_row_far_behind_in_its_event_has_no_place_of_its_own(number: int) -> None:
    assert len(decoded(row(after={"id": 1}, source={"row": 2030}), accept_unclear=False, schema=KEYS)) == 1
    with pytest.raises(BadRecordError, match="their order is not known"):
        decoded(row(after={"id": 1}, source={"row": number}), accept_unclear=False, schema=KEYS)
    assert len(decoded(row(source={"row": number}))) == 1


def test_an_update_gives_its_old_row_and_its_new_one() -> None:
    update = row("u", pos=2000, before={"id": 1, "v": 2}, after={"id": 1, "v": None})
    found = decoded(row(), update, row("d", pos=3000))
    assert [(change["id"], change["v"]) for change in found] == [(1, 2), (1, 2), (1, None), (1, 2)]
    assert [change[COMMIT_TS] for change in found] == [BinlogPlace(7, pos).of_row() for pos in (1000, 2000, 2000, 3000)]


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        (row(after={"id": 1}), "The columns of the row are not those that shop.t has after its schema changes."),
        (row(after={"id": 1, "v": 2, "w": 3}), "The columns of the row are not those that shop.t has after its schema changes."),
        (row(after=None), "The message has op c, and not the rows that belong to it."),
        (row("u"), "The message has op u, and not the rows that belong to it."),
        (row(after=[1]), "after is not a JSON object."),
        (row(after={"id": 1, "v": "x"}), "The value is not written as a INT."),
        (row(after={"id": 1, "v": 1.5}), "The value is not written as a INT."),
    ],
)
def test_a_row_that_cannot_be_read_is_told_with_its_record(value: bytes, wanted: str) -> None:
    with pytest.raises(BadRecordError) as told:
        decoded(row(), value)
    assert told.value.record == 1
    assert wanted in told.value.message


def test_null_and_the_default_of_a_column_cannot_be_told_apart() -> None:
    columns = [{"type": "int32", "optional": False, "field": "id"}, {"type": "int32", "optional": True, "default": 5, "field": "v"}]
    told = {"type": "struct", "fields": [{"type": "struct", "fields": columns, "field": "after"}]}
    values = [
        b'{"schema":' + json.dumps(told).encode() + b',"payload":' + row(after={"id": 1, "v": value}) + b"}" for value in (4, 5)
    ]
    assert [change["v"] for change in decoded(*values)] == [4, 5]
    with pytest.raises(BadRecordError, match="for NULL, Kafka Connect writes the column's default") as raised:
        decoded(*values, accept_unclear=False)
    assert (raised.value.record, raised.value.column) == (1, "v")
    with_default = replace(SCHEMA, columns=(ID, replace(SCHEMA.columns[1], default="5")))
    with pytest.raises(BadRecordError, match="for NULL, Kafka Connect writes the column's default"):
        decoded(row(), accept_unclear=False, schema=with_default)


def test_without_a_schema_a_type_that_depends_on_settings_is_not_clear() -> None:
    timed = replace(SCHEMA, columns=(ID, Column("v", ColumnType(TypeKind.DATETIME))))
    assert decoded(row(after={"id": 1, "v": 1000}), schema=timed)[0]["v"] == "1970-01-01 00:00:01"
    with pytest.raises(BadRecordError, match="The message has no schema, and only that shows how the connector writes a DATETIME"):
        decoded(row(after={"id": 1, "v": 1000}), accept_unclear=False, schema=timed)
    assert decoded(row(after={"id": 1, "v": None}), accept_unclear=False, schema=timed)[0]["v"] is None


CONNECT, DEBEZIUM = "org.apache.kafka.connect.data.", "io.debezium.time."


def packed(number: int, size: int = 8) -> str:
    return base64.b64encode(number.to_bytes(size, "big", signed=True)).decode()


@pytest.mark.parametrize(
    ("of", "encoding", "value", "wanted"),
    [
        (ColumnType(TypeKind.BIGINT, unsigned=True), Encoding("int64"), -1, (1 << 64) - 1),
        (ColumnType(TypeKind.BIGINT, unsigned=True), Encoding("bytes", DECIMAL, 0), packed((1 << 64) - 1, 9), (1 << 64) - 1),
        (TYPE[TypeKind.YEAR], Encoding("int32", f"{DEBEZIUM}Year"), 1900, 0),
        (ColumnType(TypeKind.DECIMAL, length=30, scale=2), Encoding("bytes", DECIMAL, 2), packed(-5), "-0.05"),
        (ColumnType(TypeKind.DECIMAL, length=30, scale=2), Encoding("bytes", DECIMAL, 1), packed(15), "1.50"),
        (ColumnType(TypeKind.DECIMAL, length=30, scale=2), Encoding("string"), "1.5", "1.50"),
        (ColumnType(TypeKind.DECIMAL, length=10, scale=0), Encoding("bytes", DECIMAL, 0), packed(0), "0"),
        (ColumnType(TypeKind.TIME, scale=0), Encoding("int32", f"{CONNECT}Time"), 1000, "00:00:01"),
        (ColumnType(TypeKind.TIME, scale=6), Encoding("int64", f"{DEBEZIUM}NanoTime"), -1000, "-00:00:00.000001"),
        (ColumnType(TypeKind.DATETIME, scale=3), Encoding("int64", f"{CONNECT}Timestamp"), -1, "1969-12-31 23:59:59.999"),
        (ColumnType(TypeKind.DATETIME, scale=0), Encoding("int64", f"{DEBEZIUM}MicroTimestamp"), 10**6, "1970-01-01 00:00:01"),
        (ColumnType(TypeKind.DATETIME, scale=6), Encoding("int64", f"{DEBEZIUM}NanoTimestamp"), 1000, "1970-01-01 00:00:00.000001"),
        (ColumnType(TypeKind.TIMESTAMP, scale=0), Encoding("string", ZONED), "1970-01-01T00:00:00Z", "0000-00-00 00:00:00"),
        (ColumnType(TypeKind.TIMESTAMP, scale=3), Encoding("string", ZONED), "2024-06-05T09:30:23.5Z", "2024-06-05 09:30:23.500"),
        (ColumnType(TypeKind.BIT, length=9), Encoding("bytes", "io.debezium.data.Bits"), "AAE=", 256),
    ],
)
def test_values_by_their_encoding(of: ColumnType, encoding: Encoding, value: object, wanted: object) -> None:
    assert canonical(Column("v", of), encoding, value, accept_unclear=False) == wanted
    assert canonical(Column("v", of), encoding, None, accept_unclear=False) is None


@pytest.mark.parametrize(
    ("of", "encoding", "value"),
    [
        (ColumnType(TypeKind.INT, unsigned=True), Encoding("int64"), -1),
        (TYPE[TypeKind.INT], Encoding("boolean"), True),
        (TYPE[TypeKind.INT], Encoding("int32", f"{DEBEZIUM}Date"), 1),
        (TYPE[TypeKind.INT], Encoding("int64"), 1 << 63),
        (ColumnType(TypeKind.DECIMAL, length=10, scale=1), Encoding("bytes", DECIMAL, 2), packed(5)),
        (ColumnType(TypeKind.DECIMAL, length=10, scale=1), Encoding("bytes"), packed(5)),
        (ColumnType(TypeKind.DECIMAL, length=10, scale=1), Encoding("string"), "1e5"),
        (TYPE[TypeKind.DATE], Encoding("string", f"{DEBEZIUM}IsoDate"), "2024-01-01Z"),
        (TYPE[TypeKind.DATE], Encoding("int32", f"{DEBEZIUM}Date"), 3_000_000),
        (ColumnType(TypeKind.TIME, scale=0), Encoding("int64", f"{DEBEZIUM}MicroTime"), 1),
        (ColumnType(TypeKind.TIME, scale=0), Encoding("int64", f"{DEBEZIUM}MicroTime"), 839 * 3600 * 10**6),
        (ColumnType(TypeKind.DATETIME, scale=6), Encoding("int64", f"{DEBEZIUM}NanoTimestamp"), 1),
        (ColumnType(TypeKind.DATETIME, scale=6), Encoding("int64"), 1),
        (ColumnType(TypeKind.TIMESTAMP, scale=0), Encoding("string", ZONED), "2024-02-30T09:30:23Z"),
        (ColumnType(TypeKind.TIMESTAMP, scale=0), Encoding("string", ZONED), "2024-02-20T09:30:23+01:00"),
        (ColumnType(TypeKind.TIMESTAMP, scale=0), Encoding("string", ZONED), "2024-02-20T09:30:23.5Z"),
        (TYPE[TypeKind.BLOB], Encoding("string"), "AAE="),
        (TYPE[TypeKind.BLOB], Encoding("bytes"), "?"),
        (ColumnType(TypeKind.BIT, length=3), Encoding("bytes"), "CA=="),
        (TYPE[TypeKind.TEXT], Encoding("string"), "\ud800"),
        (TYPE[TypeKind.DOUBLE], Encoding("double"), "1"),
        (TYPE[TypeKind.VECTOR], Encoding("string"), "[1]"),
    ],
)
def test_values_that_do_not_fit_are_errors(of: ColumnType, encoding: Encoding, value: object) -> None:
    with pytest.raises(ValueError, match=r".") as raised:
        canonical(Column("v", of), encoding, value, accept_unclear=True)
    assert not isinstance(raised.value, UnclearValueError)


@pytest.mark.parametrize(
    ("column", "encoding", "value", "wanted", "told"),
    [
        (Column("v", ColumnType(TypeKind.DECIMAL, length=10, scale=2)), Encoding("double"), 0.1, "0.10", "64-bit float"),
        (Column("v", TYPE[TypeKind.DATE], nullable=False), Encoding("int32", f"{DEBEZIUM}Date"), 0, "1970-01-01", "zero date"),
        (
            Column("v", ColumnType(TypeKind.DATETIME, scale=6)),
            Encoding("int64", f"{CONNECT}Timestamp"),
            1,
            "1970-01-01 00:00:00.001000",
            "fewer digits",
        ),
    ],
)
def test_values_that_are_not_clear_are_taken_only_if_that_is_accepted(
    column: Column, encoding: Encoding, value: object, wanted: str, told: str
) -> None:
    with pytest.raises(UnclearValueError, match=told):
        canonical(column, encoding, value, accept_unclear=False)
    assert canonical(column, encoding, value, accept_unclear=True) == wanted
