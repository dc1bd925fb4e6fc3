"""What is encoded in the Open Protocol is what TiCDC writes, and what the decoders read back."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from changes import table
from hypothesis import given, settings
from hypothesis import strategies as st
from random_blocks import TYPES, Change, block, changes_of_rows, same_rows, tables, values

from headrace.formats.encoding import EncodeError
from headrace.formats.open_encoder import OpenEncoder, OpenOutput, statement_message, watermark_message
from headrace.formats.open_messages import EventKind, read_events
from headrace.model.table import TableId, TableSchema
from headrace.model.types import ColumnType
from headrace.sources.kafka.open_protocol import OpenProtocol
from headrace.sources.kafka.protocol import Messages
from headrace.sources.stream.records import PIECE
from kafka_cases import KafkaCase
from protocol_replay import history_of, messages_of, pieces_of

CASES = ["basic", "ddl", "types", "unbatched-partitions"]


def read_back(messages: Messages, schema: TableSchema, time_zone: str = "UTC") -> pa.RecordBatch:
    protocol = OpenProtocol(time_zone)
    records = protocol.read(messages)
    return protocol.decode(schema, records.select(PIECE.names))[0]


def encoded(schema: TableSchema, batch: pa.RecordBatch, output: OpenOutput | None = None) -> Messages:
    found = OpenEncoder(schema, output).messages(batch)
    found.keys.validate(full=True)
    found.values.validate(full=True)
    return Messages(range(len(found.keys)), found.values.to_pylist(), found.keys.to_pylist())


@pytest.mark.parametrize("name", [*CASES, "only-updated"])
def test_the_rows_of_golden_messages_give_their_bytes_again(name: str) -> None:
    """In ``only-updated`` TiCDC forgets the name of a column that became NULL: these messages give the same rows again."""
    case, protocol = KafkaCase("open-protocol", name), OpenProtocol()
    output = OpenOutput(only_output_updated_columns=name == "only-updated")
    history = history_of(protocol, protocol.read(messages_of(case)))
    found = 0
    for golden in case.records:
        if golden.kind != "row":
            continue
        message = Messages([0], [golden.record.value or b""], [golden.record.key or b""])
        ((_, schema, piece),) = pieces_of(protocol.read(message), history)
        batch, _ = protocol.decode(schema, piece)
        again = encoded(schema, batch, output)
        if b'"p":{"t":' in message.values[0]:
            assert read_back(again, schema).equals(batch)
        else:
            assert (list(again.keys), again.values) == (message.keys, message.values)
        found += 1
    assert found


@pytest.mark.parametrize("name", [*CASES, "claim-check"])
def test_golden_messages_without_rows_are_the_same_bytes(name: str) -> None:
    found = 0
    for golden in KafkaCase("open-protocol", name).records:
        key, value = golden.record.key or b"", golden.record.value or b""
        if golden.kind == "row":
            continue
        ((about, _, event),) = read_events(key, value, {})
        if about.kind is EventKind.RESOLVED:
            assert watermark_message(about.commit_ts) == (key, value)
        else:
            told, names = json.loads(event), json.loads(key[16:])
            table_id = TableId(names["scm"], names["tbl"])
            assert statement_message(table_id, told["q"], told["t"], about.commit_ts) == (key, value)
        found += 1
    assert found


@st.composite
def outputs(draw: st.DrawFn) -> OpenOutput:
    return OpenOutput(
        only_output_updated_columns=draw(st.booleans()),
        max_batch_size=draw(st.integers(1, 4)),
        max_message_bytes=draw(st.sampled_from([10 << 20, 5000])),
        time_zone=draw(st.sampled_from(["UTC", "Asia/Shanghai"])),
    )


@given(tables().flatmap(lambda schema: st.tuples(st.just(schema), changes_of_rows(schema, moves=True))), outputs())
@settings(max_examples=30, deadline=None)
def test_random_rows_are_read_back(drawn: tuple[TableSchema, list[Change]], output: OpenOutput) -> None:
    schema, changes = drawn
    batch = block(schema, changes)
    messages = encoded(schema, batch, output)
    # -0 is a whole number in JSON, so a decoder that reads lines one by one gives 0.
    assert same_rows([read_back(messages, schema, output.time_zone)], batch, signed_zeros=False)
    for key, value in zip(messages.keys, messages.values, strict=True):
        events = read_events(key, value, {})
        assert 1 <= len(events) <= output.max_batch_size
        assert len(key) + len(value) <= output.max_message_bytes


@pytest.mark.parametrize("column_type", TYPES, ids=str)
@given(data=st.data())
@settings(max_examples=2, deadline=None)
def test_values_of_each_type_are_read_back(column_type: ColumnType, data: st.DataObject) -> None:
    schema = table(id="INT", v=column_type)
    drawn = data.draw(st.lists(st.none() | values(column_type), min_size=30, max_size=30))
    batch = block(schema, [Change(1, None, {"id": number, "v": value}) for number, value in enumerate(drawn)])
    assert same_rows([read_back(encoded(schema, batch), schema)], batch, signed_zeros=False)


def test_each_byte_is_read_back() -> None:
    schema = table(id="INT", v="VARBINARY", w="BLOB", x="VARCHAR")
    batch = block(schema, [Change(1, None, {"id": n, "v": bytes([n, 65]), "w": bytes(range(n)), "x": chr(n)}) for n in range(256)])
    assert same_rows([read_back(encoded(schema, batch.slice(3)), schema)], batch.slice(3))


def test_messages_say_which_changes_they_hold() -> None:
    schema = table(id="INT")
    batch = block(schema, [Change(1, None, {"id": 1}), Change(1, {"id": 1}, {"id": 2}), Change(2, {"id": 2}, None)])
    found = OpenEncoder(schema, OpenOutput(max_batch_size=2)).messages(batch)
    assert found.first_changes.tolist() == [0, 2]
    assert len(OpenEncoder(schema).messages(block(schema, [])).keys) == 0


def test_without_old_values_an_update_looks_like_an_insert() -> None:
    schema = table(id="INT")
    (value,) = encoded(schema, block(schema, [Change(1, {"id": 1}, {"id": 1})]), OpenOutput(output_old_value=False)).values
    assert value[8:] == b'{"u":{"id":{"t":3,"h":true,"f":11,"v":1}}}'


def test_what_the_protocol_cannot_carry_is_an_error_that_names_it() -> None:
    schema = table(id="INT", v="DOUBLE", w="VARCHAR")
    change = Change(1, None, {"id": 1, "v": 1.0, "w": "x" * 1000})
    with pytest.raises(EncodeError, match=r"^Column v of test\.t has a value that is no number") as raised:
        OpenEncoder(schema).messages(block(schema, [change, Change(1, None, {"id": 1, "v": float("inf"), "w": ""})]))
    assert raised.value.row == 1
    with pytest.raises(EncodeError, match=r"^Table test\.t has a change without a commit ts"):
        OpenEncoder(schema).messages(block(schema, [Change(0, None, {"id": 1, "v": 1.0, "w": ""})]))
    with pytest.raises(EncodeError, match=r"^Table test\.t has a change of 11\d\d bytes, and max-message-bytes is 1000"):
        OpenEncoder(schema, OpenOutput(max_message_bytes=1000)).messages(block(schema, [change]))
    with pytest.raises(ValueError, match="max-batch-size"):
        OpenOutput(max_batch_size=0)
