"""Messages that have only the handle key of a row that was too large: what they say of the place of the row."""

from __future__ import annotations

import json
import struct

import pytest

from headrace.formats import simple_avro
from headrace.formats.large_messages import MARK, LargeMessage, carried_columns
from headrace.sources.kafka.canal_json import CanalJsonProtocol
from headrace.sources.kafka.open_protocol import OpenProtocol
from headrace.sources.kafka.protocol import KafkaProtocol, Messages
from headrace.sources.kafka.simple import SimpleProtocol
from headrace.sources.stream.records import RecordKind
from kafka_cases import KafkaCase, tso
from kafka_cases import message as canal_message
from protocol_replay import messages_of

OPEN, SIMPLE, CANAL = OpenProtocol(), SimpleProtocol(), CanalJsonProtocol()
CASES = [
    *((OPEN, name) for name in ("claim-check", "handle-key-only")),
    *((CANAL, name) for name in ("claim-check", "handle-key-only")),
    *((SIMPLE, f"{encoding}-{name}") for encoding in ("json", "avro") for name in ("claim-check", "handle-key-only")),
]


@pytest.mark.parametrize(("protocol", "name"), CASES, ids=[f"{protocol.name}-{name}" for protocol, name in CASES])
def test_a_message_without_its_row_says_where_the_row_is(protocol: KafkaProtocol, name: str) -> None:
    case = KafkaCase(protocol.name, name)
    records = protocol.read(messages_of(case)).to_pylist()
    large = [row for row in records if row["kind"] == RecordKind.ROWS and row["value"].startswith(MARK)]
    assert {(row["database"], row["table"]) for row in large} == {("b", "t")}
    found = [LargeMessage.of_value(row["value"]) for row in large]
    files = {path.name for path in case.claim_check.glob("*")}
    assert {about.file for about, _ in found} == (files or {""})
    carried = simple_avro.carried_columns if name.startswith("avro") else carried_columns
    assert [carried(message) for _, message in found] == 4 * [{"id"}]
    assert {row["kind"] for row in records} == {RecordKind.ROWS, RecordKind.STATEMENT, RecordKind.WATERMARK}


@pytest.mark.parametrize(
    "location", ["s3://evil/../x/", "file:///a/..", "/", "x/.hidden", "a/" + 300 * "x", "a/b c", "a/b\\c", 7, True]
)
@pytest.mark.parametrize("protocol", [OPEN, SIMPLE, CANAL], ids=lambda protocol: protocol.name)
def test_a_location_that_ends_with_no_files_name_is_told(protocol: KafkaProtocol, location: object) -> None:
    (row,) = protocol.read(located(protocol, location)).to_pylist()
    assert (row["kind"], row["database"], row["table"]) == (RecordKind.UNKNOWN, "d", "t")
    assert b"does not end with the name of a file" in row["value"]


@pytest.mark.reading_case("B08", "B39")
@pytest.mark.parametrize("protocol", [OPEN, SIMPLE, CANAL], ids=lambda protocol: protocol.name)
def test_of_a_location_only_the_files_name_counts(protocol: KafkaProtocol) -> None:
    (row,) = protocol.read(located(protocol, "s3://evil/../x/abc.json")).to_pylist()
    assert LargeMessage.of_value(row["value"])[0] == LargeMessage("abc.json")


def located(protocol: KafkaProtocol, location: object) -> Messages:
    """A message that says that its row is at a location."""
    if protocol is OPEN:
        shown = json.dumps(location)
        key = f'{{"ts":{tso(1)},"scm":"d","tbl":"t","t":1,"ohk":true,"ohk":false,"ccl":{shown}}}'.encode()
        value = b'{"u":{"id":{"t":3,"h":true,"f":11,"v":1}}}'
        return Messages([0], [_sized(value)], [struct.pack(">Q", 1) + _sized(key)])
    if protocol is SIMPLE:
        told = {"version": 1, "database": "d", "table": "t", "type": "INSERT", "commitTs": tso(1)}
        value = json.dumps({**told, "data": {"id": "1"}, "claimCheckLocation": location, "handleKeyOnly": True}).encode()
        return Messages([0], [value])
    extension = {"commitTs": tso(1), "claimCheckLocation": location}
    return Messages([0], [canal_message("INSERT", tso(1), "d", "t", data=[{"id": "1"}], _tidb=extension)])


def _sized(event: bytes) -> bytes:
    return struct.pack(">Q", len(event)) + event
