"""TiCDC's protocol ``debezium-avro`` without a broker: golden rows, shapes, damage, and values that may mean several."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from test_kafka_protocols import damaged

from avro_writer import written
from headrace.formats.avro.schema import Field, Kind, Primitive, Record, parse_schema
from headrace.formats.debezium_avro import shape_of
from headrace.formats.debezium_avro_rows import DebeziumAvroRowReader
from headrace.formats.row_images import decode_lines
from headrace.kafka.client import Message
from headrace.kafka.registry import registry_of
from headrace.model.table import TableId
from headrace.model.types import ColumnType, TypeKind
from headrace.sources.kafka.debezium_avro import DebeziumAvroProtocol
from headrace.sources.kafka.protocol import Messages
from headrace.sources.kafka.protocols import detected
from headrace.sources.kafka.registered import RegisteredSchemas
from headrace.sources.stream.reader import BadRecordError
from headrace.sources.stream.records import RecordKind
from kafka_cases import KafkaCase
from protocol_replay import decoded, expected, history_of, messages_of, pieces_of
from schema_registry import Registry, running_registry

CASES = [KafkaCase("debezium-avro", name) for name in ("basic", "types-string-modes")]
named = pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
VALUE_ID, KEY_ID = 6, 5
"""Of ``shop.item`` in ``basic``."""


@pytest.fixture(scope="module")
def running() -> Iterator[Registry]:
    with running_registry() as registry:
        yield registry


def protocol_of(running: Registry, case: KafkaCase, schemas: dict[int, str] | None = None) -> DebeziumAvroProtocol:
    path = case.name if schemas is None else f"{case.name}-{abs(hash(json.dumps(schemas)))}"
    registry = registry_of({"schema-registry": running.holding(path, schemas or case.schemas)})
    assert registry is not None
    return DebeziumAvroProtocol(RegisteredSchemas(registry), timed=case.name == "basic", accept_unclear=True)


def in_digits(value: object, of: ColumnType) -> object:
    """A value with all digits that a registered schema leaves room for."""
    if value is None or of.scale is None or of.kind is TypeKind.DECIMAL:
        return value
    whole, _, fraction = str(value).partition(".")
    return f"{whole}.{fraction.ljust(of.scale, '0')}" if of.scale else value


def test_golden_records_give_the_rows_that_were_changed(running: Registry) -> None:
    case = CASES[0]
    protocol = protocol_of(running, case)
    found = decoded(protocol, messages_of(case))
    assert found.total() > 0
    assert found == expected(protocol, case)


def test_golden_values_of_each_type_are_read_without_a_statement(running: Registry) -> None:
    case = CASES[1]
    protocol = protocol_of(running, case)
    schema = history_of(protocol, protocol.read(messages_of(case))).versions(TableId("ty", "t"))[0][1]
    types = [column.type for column in schema.row_columns]
    wanted = {
        (table, ts, kind, tuple(in_digits(value, of) for value, of in zip(row, types, strict=True))): count
        for (table, ts, kind, row), count in expected(protocol, case).items()
    }
    assert len(wanted) > 8
    assert decoded(protocol, messages_of(case)) == wanted


@named
def test_rows_that_are_read_one_by_one_are_the_same(case: KafkaCase, running: Registry) -> None:
    protocol = protocol_of(running, case)
    records = protocol.read(messages_of(case))
    found = 0
    for _, schema, piece in pieces_of(records, history_of(protocol, records)):
        lines: Sequence[bytes] = piece.column("value").to_pylist()
        together, _ = protocol.decode(schema, piece)
        reader = DebeziumAvroRowReader(schema, protocol.schemas.record, accept_unclear=True)
        singly = pa.RecordBatch.from_pylist([reader.parse_one(line) for line in lines], reader.single_schema)
        assert singly.to_pylist() == reader.parse(lines).to_pylist()
        rows, _ = decode_lines(reader, lines, piece.column("commit_ts").to_numpy())
        assert rows.equals(together)
        found += together.num_rows
    assert found > 8


@named
@pytest.mark.parametrize("seed", range(4))
def test_damage_never_raises_anything_else_than_what_is_told_of_it(case: KafkaCase, seed: int, running: Registry) -> None:
    protocol = protocol_of(running, case)
    messages = messages_of(case)
    history = history_of(protocol, protocol.read(messages))
    chance, refused = random.Random(seed), 0
    for _ in range(80):
        number = chance.randrange(len(messages.values))
        key, value = messages.keys[number], damaged(messages.values[number], chance)
        records = protocol.read(Messages([number], [value], [key]))
        for row in records.to_pylist():
            if row["kind"] == RecordKind.STATEMENT:
                try:
                    protocol.statement(row["value"], "0", row["offset"])
                except ValueError:
                    refused += 1
        names = zip(records.column("database").to_pylist(), records.column("table").to_pylist(), strict=True)
        known = pa.array([bool(history.versions(TableId(*name))) for name in names], pa.bool_())
        for _, schema, piece in pieces_of(records.filter(known), history):
            try:
                protocol.decode(schema, piece)
            except BadRecordError:
                refused += 1
        refused += records.column("kind").to_pylist().count(RecordKind.UNKNOWN)
    assert refused


def item(**changes: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """The schema of ``shop.item``, and a message of it: an insert with changes of its source."""
    told = json.loads(CASES[0].schemas[VALUE_ID])
    source = {"version": "2.4.0.Final", "connector": "TiCDC", "name": "c", "ts_ms": 1, "snapshot": None, "db": "shop"}
    source |= {"table": "item", "server_id": 0, "gtid": None, "file": "", "pos": 0, "row": 0, "thread": None, "query": None}
    source |= {"commit_ts": 5 << 18, "cluster_id": "c", **changes}
    row = {"id": 1, "name": "pen", "price": None, "qty": 3}
    return told, {"before": None, "after": row, "source": source, "op": "c", "ts_ms": 1}


def framed(told: dict[str, Any], value: dict[str, Any], schema_id: int = VALUE_ID) -> bytes:
    before, after, *others = told["fields"]
    written_out = told | {"fields": [before, after | {"type": before["type"]}, *others]}  # the schema only names the type here
    return b"\0" + schema_id.to_bytes(4, "big") + written(written_out, value)


@pytest.mark.parametrize(
    ("changes", "reason", "table"),
    [
        ({"connector": "mysql"}, "written by the connector 'mysql', and only messages of TiCDC are read", ""),
        ({"commit_ts": 0}, "source.commit_ts is not a commit ts", "item"),
        ({"table": ""}, "it does not name its table", ""),
    ],
)
def test_a_message_that_cannot_be_placed_says_why(changes: dict[str, Any], reason: str, table: str, running: Registry) -> None:
    (found,) = protocol_of(running, CASES[0]).read(Messages([0], [framed(*item(**changes))], [b""])).to_pylist()
    assert found["kind"] == RecordKind.UNKNOWN
    assert reason in found["value"].decode()
    assert found["table"] == table


def test_of_the_source_only_the_fields_that_are_used_are_read(running: Registry) -> None:
    """The others are stepped over: one may be a record of thousands of fields. That its text is not UTF-8 shows that it is not."""
    told, value = item(file=b"\xff")
    protocol = protocol_of(running, CASES[0])
    (found,) = protocol.read(Messages([0], [framed(told, value)], [b""])).to_pylist()
    assert (found["kind"], found["table"]) == (RecordKind.ROWS, "item")
    (found,) = protocol.read(Messages([0], [framed(*item(db=b"\xff"))], [b""])).to_pylist()
    assert (found["kind"], found["value"]) == (RecordKind.UNKNOWN, b"it cannot be read: in source, a text is not UTF-8.")


@pytest.mark.parametrize(("name", "table"), [("itemEnvelope", "item"), ("my_itemEnvelope", "")])
def test_a_message_that_ends_too_early_is_of_the_table_that_its_schema_names_for_certain(
    name: str, table: str, running: Registry
) -> None:
    """``my_item`` may be the table ``my-item``, too."""
    told, value = item()
    protocol = protocol_of(running, CASES[0], {VALUE_ID: json.dumps(told | {"name": name})})
    records = protocol.read(Messages([0, 1, 2], [framed(told, value), framed(told, value)[:9], framed(told, value)], [b""] * 3))
    assert records.column("kind").to_pylist() == [RecordKind.ROWS, RecordKind.UNKNOWN, RecordKind.ROWS]
    assert records.column("table").to_pylist() == ["item", table, "item"]


def test_names_are_those_of_the_source_and_not_of_the_schema(running: Registry) -> None:
    told, value = item(db="my-shop", table="表")
    (found,) = protocol_of(running, CASES[0]).read(Messages([0], [framed(told, value)], [b""])).to_pylist()
    assert (found["database"], found["table"], found["kind"]) == ("my-shop", "表", RecordKind.ROWS)


def test_a_value_that_may_stand_for_null_is_told(running: Registry) -> None:
    """In ``basic``, the default of ``qty`` is 0, and a row has NULL."""
    protocol = replace(protocol_of(running, CASES[0]), accept_unclear=False)
    records = protocol.read(messages_of(CASES[0]))
    (_, schema, piece), *_ = pieces_of(records, history_of(protocol, records))
    with pytest.raises(BadRecordError, match="does not show whether the value is NULL") as caught:
        protocol.decode(schema, piece)
    assert caught.value.column == "qty"


@pytest.mark.parametrize("number", [12, 65])
def test_a_decimal_is_exact_and_clear_unless_it_is_the_default(number: int, running: Registry) -> None:
    case = CASES[0]
    protocol = replace(protocol_of(running, case), accept_unclear=False)
    records = protocol.read(messages_of(case))
    schema = history_of(protocol, records).versions(TableId("shop", "item"))[0][1]
    price = replace(schema.column("price"), default=f"{number}")
    schema = replace(schema, columns=tuple(price if column.name == "price" else column for column in schema.columns))
    told, value = item()
    rows = [{**value, "after": value["after"] | {"price": (cents).to_bytes(3, "big")}} for cents in (1200, 6500, 1)]
    records = protocol.read(Messages(range(3), [framed(told, row) for row in rows], [b""] * 3))
    wrong = {12: 0, 65: 1}[number]
    piece = records.select(["offset", "commit_ts", "value"])
    with pytest.raises(BadRecordError) as caught:
        protocol.decode(schema, piece)
    assert (caught.value.record, caught.value.column) == (wrong, "price")
    clear = piece.filter(pa.array([place != wrong for place in range(3)]))
    assert protocol.decode(schema, clear)[0].column("price").to_pylist() == [["65.00", "0.01"], ["12.00", "0.01"]][wrong]


def field(name: str, tidb_type: str, of: Primitive) -> Field:
    return Field(name, of, tidb_type=tidb_type)


@pytest.mark.parametrize(
    ("tidb_type", "of", "expected"),
    [
        ("tinyint unsigned", Primitive(Kind.INT), ColumnType(TypeKind.TINYINT, unsigned=True)),
        ("bigint unsigned", Primitive(Kind.STRING), ColumnType(TypeKind.BIGINT, unsigned=True)),
        ("double unsigned", Primitive(Kind.DOUBLE), ColumnType(TypeKind.DOUBLE)),
        ("decimal", Primitive(Kind.BYTES, "decimal", 12, 3), ColumnType(TypeKind.DECIMAL, False, 12, 3)),
        ("decimal", Primitive(Kind.STRING), ColumnType(TypeKind.DECIMAL, False, 65, 30)),
        ("bit", Primitive(Kind.BYTES, parameters={"length": "9"}), ColumnType(TypeKind.BIT, length=9)),
        ("bit", Primitive(Kind.BOOLEAN), ColumnType(TypeKind.BIT, length=1)),
        ("set", Primitive(Kind.STRING, parameters={"allowed": "x,y"}), ColumnType(TypeKind.SET, elements=("x", "y"))),
        ("varchar", Primitive(Kind.STRING), ColumnType(TypeKind.LONGTEXT)),
        ("datetime", Primitive(Kind.LONG), ColumnType(TypeKind.DATETIME, scale=6)),
    ],
)
def test_a_type_is_wide_enough_for_each_value(tidb_type: str, of: Primitive, expected: ColumnType) -> None:
    row = Record("t", "c.d", (field("c", tidb_type, of),))
    shape = shape_of(TableId("d", "t"), Record("tEnvelope", "c.d", (Field("after", row),)), None, 7)
    assert (shape.columns[0].type, shape.registered, shape.handle_key) == (expected, 7, ())


def test_a_type_that_is_not_known_is_told() -> None:
    row = Record("t", "c.d", (field("c", "geometry", Primitive(Kind.STRING)),))
    with pytest.raises(ValueError, match="the type 'geometry' of column c in its registered schema is not known"):
        shape_of(TableId("d", "t"), Record("tEnvelope", "c.d", (Field("after", row),)), None, 7)


def test_a_schema_change_needs_the_setting_that_it_is_written_with(running: Registry) -> None:
    case = CASES[0]
    protocol = replace(protocol_of(running, case), timed=False)
    records = protocol.read(messages_of(case)).slice(0, 3).to_pylist()
    assert [record["kind"] for record in records] == [RecordKind.UNKNOWN] * 3
    assert all(b"Set avro-enable-watermark=true in the source's URI" in record["value"] for record in records)


def test_schemas_are_parsed_with_the_types_of_columns() -> None:
    found = parse_schema(CASES[1].schemas[1])
    assert isinstance(found, Record)
    assert [column.tidb_type for column in found.fields] == ["bigint"]


WIDER_ID = 9


def wider() -> tuple[dict[str, Any], dict[str, Any]]:
    """As :func:`item`, with one more column, five milliseconds later."""
    told, value = item(commit_ts=10 << 18)
    before, *others = told["fields"]
    row = before["type"][1]
    added = {"name": "note", "type": ["null", "string"], "default": None, "tidb_type": "varchar"}
    before = before | {"type": ["null", row | {"fields": [*row["fields"], added]}]}
    return told | {"fields": [before, *others]}, value | {"after": value["after"] | {"note": "x"}}


def test_without_schema_changes_an_added_column_waits_because_its_default_is_not_known(running: Registry) -> None:
    case = CASES[0]
    key = b"\0" + KEY_ID.to_bytes(4, "big") + b"\2\2"
    texts = {**case.schemas, WIDER_ID: json.dumps(wider()[0])}
    protocol = replace(protocol_of(running, case, texts), timed=False)
    records = protocol.read(Messages([0, 1], [framed(*item()), framed(*wider(), WIDER_ID)], [key, key]))
    created, added = history_of(protocol, records).changes
    assert created.doubt == ""
    assert added.doubt == "nothing tells the default of note, so it is not known what older rows have in it."
    (_, first, of_first), (_, second, of_second) = pieces_of(records, history_of(protocol, records))
    assert protocol.decode(first, of_first)[0].num_rows == protocol.decode(second, of_second)[0].num_rows == 1
    with pytest.raises(BadRecordError, match=r"not those that shop\.item has after its schema changes") as caught:
        protocol.decode(second, of_first)
    assert caught.value.column == "note"


@pytest.mark.parametrize(("connector", "shown"), [("TiCDC", "debezium-avro"), ("mysql", "debezium-avro"), ("other", "avro")])
def test_a_message_shows_the_protocol_by_its_source(connector: str, shown: str) -> None:
    """One of Debezium itself, so that the run says that it is of another connector."""
    key = b"\0" + KEY_ID.to_bytes(4, "big") + b"\2\2"
    assert detected([Message(0, key, framed(*item(connector=connector)), None)]) == shown


def test_an_unsigned_number_is_never_negative(running: Registry) -> None:
    case = CASES[1]
    protocol = protocol_of(running, case)
    told = json.loads(case.schemas[2])
    row = told["fields"][0]["type"][1]
    row["fields"] = [column | ({"type": ["null", "long"]} if column["name"] == "c_ubig" else {}) for column in row["fields"]]
    protocol = protocol_of(running, case, {**case.schemas, 2: json.dumps(told)})
    values = {column["name"]: None for column in row["fields"]} | {"id": 1}
    source = item(db="ty", table="t")[1]["source"]
    messages = [
        framed(told, {"before": None, "after": values | {"c_ubig": number}, "source": source, "op": "c", "ts_ms": 1}, 2)
        for number in ((1 << 63) - 1, -1)
    ]
    records = protocol.read(Messages([0, 1], messages, [b"", b""]))
    ((_, schema, piece),) = pieces_of(records, history_of(protocol, records))
    with pytest.raises(BadRecordError, match="The value is not written as a BIGINT UNSIGNED") as caught:
        protocol.decode(schema, piece)
    assert (caught.value.record, caught.value.column) == (1, "c_ubig")
    assert protocol.decode(schema, piece.slice(0, 1))[0].column("c_ubig").to_pylist() == [(1 << 63) - 1]
