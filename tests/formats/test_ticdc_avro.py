"""TiCDC's protocol ``avro`` without a broker: shapes from registered schemas, golden rows, and damaged messages."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa
import pytest
from test_kafka_protocols import damaged

from avro_writer import counted, long
from headrace.formats.avro.schema import Record, parse_schema
from headrace.formats.row_images import decode_lines
from headrace.formats.ticdc_avro import avro_name, shape_of
from headrace.formats.ticdc_avro_rows import TicdcAvroRowReader
from headrace.kafka.registry import registry_of
from headrace.model.table import TableId
from headrace.model.types import ColumnType, TypeKind
from headrace.sources.kafka.avro import AvroProtocol
from headrace.sources.kafka.protocol import Messages
from headrace.sources.kafka.registered import FetchedSchemas, RegisteredSchemas
from headrace.sources.stream.reader import BadRecordError
from headrace.sources.stream.records import RecordKind
from kafka_cases import KafkaCase
from protocol_replay import history_of, messages_of, pieces_of
from schema_registry import Registry, running_registry

CASES = [KafkaCase("avro", name) for name in ("basic-extension", "before-value", "types-precise-long", "watermark-mode")]
named = pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])


@pytest.fixture(scope="module")
def running() -> Iterator[Registry]:
    with running_registry() as registry:
        yield registry


def protocol_of(running: Registry, case: KafkaCase) -> AvroProtocol:
    registry = registry_of({"schema-registry": running.holding(case.name, case.schemas)})
    assert registry is not None
    return AvroProtocol(RegisteredSchemas(registry), timed=case.name == "watermark-mode")


def timed(messages: Messages) -> Messages:
    return messages._replace(times=[1_750_000_000_000 + 10 * offset for offset in messages.offsets])


def record(text: object) -> Record:
    found = parse_schema(json.dumps(text))
    assert isinstance(found, Record)
    return found


def shape(*fields: tuple[str, object], key: tuple[str, ...] = ("id",)) -> dict[str, ColumnType]:
    told = {"type": "record", "name": "t", "namespace": "default.d"}
    listed = [{"name": name, "type": of} for name, of in (("id", "long"), *fields)]
    keys = record(told | {"fields": [field for field in listed if field["name"] in key]})
    found = shape_of(record(told | {"fields": listed}), keys, 1)
    assert (found.table_id, found.handle_key, found.registered) == (TableId("d", "t"), key, 1)
    return {column.name: column.type for column in found.columns}


def of_tidb(kind: str, tidb_type: str, **more: object) -> dict[str, object]:
    parameters = {"tidb_type": tidb_type, **{name: str(value) for name, value in more.items() if name in ("length", "allowed")}}
    return {"type": kind, "connect.parameters": parameters, **{name: v for name, v in more.items() if name not in parameters}}


@pytest.mark.parametrize(
    ("of", "expected"),
    [
        (of_tidb("int", "INT UNSIGNED"), ColumnType(TypeKind.INT, unsigned=True)),
        (of_tidb("string", "BIGINT UNSIGNED"), ColumnType(TypeKind.BIGINT, unsigned=True)),
        (of_tidb("bytes", "DECIMAL", logicalType="decimal", precision=12, scale=3), ColumnType(TypeKind.DECIMAL, False, 12, 3)),
        (of_tidb("string", "DECIMAL"), ColumnType(TypeKind.DECIMAL, False, 65, 30)),
        (of_tidb("bytes", "BIT", length=9), ColumnType(TypeKind.BIT, length=9)),
        (of_tidb("string", "ENUM", allowed="a,b c,e'f"), ColumnType(TypeKind.ENUM, elements=("a", "b c", "e'f"))),
        (of_tidb("string", "SET", allowed="x\\,y,z"), ColumnType(TypeKind.LONGTEXT)),
        (of_tidb("string", "TiDBVECTORFloat32"), ColumnType(TypeKind.VECTOR)),
        (["null", of_tidb("string", "TIME")], ColumnType(TypeKind.TIME, scale=6)),
        ("string", ColumnType(TypeKind.LONGTEXT)),
        ("boolean", ColumnType(TypeKind.TINYINT, length=1)),
    ],
)
def test_a_type_is_wide_enough_for_each_value(of: object, expected: ColumnType) -> None:
    assert shape(("c", of))["c"] == expected


def test_texts_of_a_key_share_the_room_that_a_key_has() -> None:
    text, raw = of_tidb("string", "TEXT"), of_tidb("bytes", "BLOB")
    found = shape(("a", text), ("b", raw), ("c", text), key=("id", "a", "b"))
    assert found["a"] == ColumnType(TypeKind.VARCHAR, length=380)
    assert found["b"] == ColumnType(TypeKind.VARBINARY, length=1520)
    assert found["c"] == ColumnType(TypeKind.LONGTEXT)


@pytest.mark.parametrize(
    ("of", "reason"),
    [
        (of_tidb("string", "GEOMETRY"), "the type 'GEOMETRY' of column c in its registered schema is not known"),
        ({"type": "array", "items": "int"}, "is none that TiCDC writes"),
        (of_tidb("bytes", "BIT", length=65), "the column c has '65' bits"),
        (of_tidb("bytes", "DECIMAL", logicalType="decimal", precision=66, scale=0), "has 66 digits"),
        (of_tidb("string", "SET", allowed=",".join(map(str, range(65)))), "has 65 members"),
    ],
)
def test_a_type_that_no_column_has_is_told(of: object, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        shape(("c", of))


@pytest.mark.parametrize(("name", "told"), [("a_1", "a_1"), ("a-b c", "a_b_c"), ("1a", "_1a"), ("表", "_"), ("é", "_")])
def test_names_are_written_as_ticdc_writes_them(name: str, told: str) -> None:
    assert avro_name(name) == told


@named
def test_every_golden_record_is_what_it_was_written_as(case: KafkaCase, running: Registry) -> None:
    protocol = protocol_of(running, case)
    records = protocol.read(timed(messages_of(case)))
    kinds = {"row": RecordKind.ROWS, "ddl": RecordKind.STATEMENT, "checkpoint": RecordKind.WATERMARK}
    # A shape comes at the offset of the first row that has it, before it.
    told = dict(zip(records.column("offset").to_pylist(), records.column("kind").to_pylist(), strict=True))
    assert told == {number: kinds[golden.kind] for number, golden in enumerate(case.records)}


@named
def test_rows_that_are_read_one_by_one_are_the_same(case: KafkaCase, running: Registry) -> None:
    protocol = protocol_of(running, case)
    records = protocol.read(timed(messages_of(case)))
    found = 0
    without = (0, 2, 4) if case.name == "types-precise-long" else ()  # rows with a number that stands for several
    readable = records.filter(pa.array([offset not in without for offset in records.column("offset").to_pylist()]))
    for _, schema, piece in pieces_of(readable, history_of(protocol, records)):
        together, _ = protocol.decode(schema, piece)
        reader = TicdcAvroRowReader(schema, protocol.schemas.record, exact=protocol.timed)
        singly = pa.RecordBatch.from_pylist([reader.parse_one(v) for v in piece.column("value").to_pylist()], reader.single_schema)
        assert singly.equals(reader.parse(piece.column("value").to_pylist()))
        rows, _ = decode_lines(reader, piece.column("value").to_pylist(), piece.column("commit_ts").to_numpy())
        assert rows.equals(together)
        found += together.num_rows
    assert found >= len([golden for golden in case.records if golden.kind == "row"]) - 3


@named
@pytest.mark.parametrize("seed", range(4))
def test_damage_never_raises_anything_else_than_what_is_told_of_it(case: KafkaCase, seed: int, running: Registry) -> None:
    protocol = protocol_of(running, case)
    messages = timed(messages_of(case))
    history = history_of(protocol, protocol.read(messages))
    chance, refused = random.Random(seed), 0
    for _ in range(80):
        number = chance.randrange(len(messages.values))
        key, value = messages.keys[number], messages.values[number]
        key, value = (damaged(key, chance), value) if chance.random() < 0.3 else (key, damaged(value, chance))
        records = protocol.read(Messages([number], [value], [key], [messages.times[number]]))
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


@pytest.mark.reading_case("B33")
def test_the_bytes_of_a_bit_are_a_number(running: Registry) -> None:
    bits = [{"name": "id", "type": "int"}, {"name": "b", "type": ["null", of_tidb("bytes", "BIT", length=10)]}]
    told = {"type": "record", "name": "t", "namespace": "default.d"}
    schemas = {1: json.dumps(told | {"fields": bits[:1]}), 2: json.dumps(told | {"fields": bits})}
    registry = registry_of({"schema-registry": running.holding("bits", schemas)})
    assert registry is not None
    protocol = AvroProtocol(RegisteredSchemas(registry))
    keys = [b"\0\0\0\0\1" + long(number) for number in range(3)]
    values = [b"\0\0\0\0\2" + long(n) + b for n, b in enumerate((b"\2" + counted(b"\x51"), b"\2" + counted(b"\3\xff"), b"\0"))]
    records = protocol.read(timed(Messages(range(3), values, keys)))
    ((_, schema, piece),) = pieces_of(records, history_of(protocol, records))
    assert schema.column("b").type == ColumnType(TypeKind.BIT, length=10)
    assert protocol.decode(schema, piece)[0].column("b").to_pylist() == [81, 1023, None]


def test_an_old_row_makes_an_update_complete(running: Registry) -> None:
    case = KafkaCase("avro", "before-value")
    protocol = protocol_of(running, case)
    records = protocol.read(timed(messages_of(case)))
    (table_id, schema, piece), *_ = pieces_of(records, history_of(protocol, records))
    rows, counts = protocol.decode(schema, piece)
    assert table_id == TableId("shop", "item")
    assert list(counts[:6]) == [1, 1, 1, 1, 2, 2]
    assert [row["price"] for row in rows.slice(4, 2).to_pylist()] == ["1.20", "1.30"]


def test_columns_are_found_by_the_names_that_avro_gives_them(running: Registry) -> None:
    case = KafkaCase("avro", "basic-extension")
    protocol = protocol_of(running, case)
    records = protocol.read(timed(messages_of(case)))
    (_, schema, piece), *_ = pieces_of(records, history_of(protocol, records))
    odd = replace(schema, columns=tuple(replace(column, name=column.name.upper()) for column in schema.columns))
    assert protocol.decode(odd, piece)[0].num_rows == piece.num_rows


def test_fetched_schemas_are_forgotten_before_they_fill_the_memory() -> None:
    registry = registry_of({"schema-registry": "http://localhost:1"})
    assert registry is not None
    schemas, told = FetchedSchemas(most_characters=100), record({"type": "record", "name": "t", "fields": []})
    schemas.keep(registry, 1, told, 60)
    schemas.keep(registry, 2, told, 40)
    assert [schemas.find(registry, number) for number in (1, 2, 3)] == [told, told, None]
    schemas.keep(registry, 3, told, 1)
    assert [schemas.find(registry, number) for number in (1, 2, 3)] == [None, None, told]
