"""Values that TiCDC compressed inside Kafka messages: found by their bytes alone, bounded, and refused when damaged."""

from __future__ import annotations

import json
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.formats.compressed_values import MOST_BYTES, uncompressed, uncompressed_all
from headrace.kafka.client import Message
from headrace.sources.kafka.canal_json import CanalJsonProtocol
from headrace.sources.kafka.open_protocol import OpenProtocol
from headrace.sources.kafka.protocol import KafkaProtocol, Messages, in_parts
from headrace.sources.kafka.protocols import detected
from headrace.sources.kafka.simple import SimpleProtocol
from headrace.sources.stream.records import RecordKind
from kafka_cases import KafkaCase
from protocol_replay import compressed, decoded, expected, messages_of, packed

OPEN, SIMPLE, CANAL = OpenProtocol(), SimpleProtocol(), CanalJsonProtocol()
CASES = [
    *((OPEN, name) for name in ("basic", "ddl", "only-updated", "types", "unbatched-partitions")),
    *((SIMPLE, name) for name in ("json-basic", "json-ddl", "json-types")),
    *((CANAL, name) for name in ("basic-extension", "types", "ddl")),
]
ROW = b'{"u":{"id":{"t":3,"h":true,"f":11,"v":1}}}'
SNAPPY = bytes.fromhex("2a207b2275223a7b22696401067074223a332c2268223a747275652c2266223a31312c2276223a317d7d7d")
LZ4 = bytes.fromhex(
    "04224d185440ae2a0000807b2275223a7b226964223a7b2274223a332c2268223a747275652c2266223a31312c2276223a317d7d7d3f18aa3d"
    "000000003f18aa3d"
)


@pytest.mark.reading_case("B38")
@pytest.mark.parametrize("value", [SNAPPY, LZ4, ROW])
def test_both_compressions_and_none_give_the_message(value: bytes) -> None:
    assert uncompressed(value) == ROW


@given(st.dictionaries(st.text(), st.text(max_size=300) | st.integers()), st.sampled_from(["snappy", "lz4"]))
def test_whatever_is_compressed_is_found_and_whatever_is_not_is_left(members: dict[str, object], how: str) -> None:
    for value in (json.dumps(members, separators=(",", ":")).encode(), json.dumps(members, ensure_ascii=False).encode()):
        assert uncompressed(packed(value, how)) == value
        assert uncompressed(value) == value


@given(st.binary())
def test_bytes_are_left_or_refused_with_a_sentence(value: bytes) -> None:
    ((found,), reasons) = uncompressed_all([value])
    assert (found == b"" and reasons[0].startswith("it ")) if reasons else isinstance(found, bytes)


@pytest.mark.parametrize(
    "value", [b"", b"{", b"{}", b' {"a":1}', b"\r\n", b"\x00\x00\x00\x00\x07x", b'\x16\x00{"', b"\x03\x00\x16" + bytes(15)]
)
def test_what_is_no_compressed_message_is_left(value: bytes) -> None:
    assert uncompressed(value) == value


@pytest.mark.parametrize("value", [SNAPPY, LZ4], ids=["snappy", "lz4"])
def test_a_value_that_is_cut_off_or_damaged_is_refused(value: bytes) -> None:
    for damaged in (value[:-1], value[: len(value) // 2], value + b"x"):
        with pytest.raises(ValueError, match=r"it is compressed with (snappy|lz4), and damaged"):
            uncompressed(damaged)


def test_a_block_that_claims_more_than_it_can_hold_is_refused_before_it_is_allocated() -> None:
    with pytest.raises(ValueError, match="would have 268435455 bytes, which is not possible"):
        uncompressed(b"\xff\xff\xff\x7f" + SNAPPY[1:])


@pytest.mark.parametrize("how", ["lz4", "snappy"])
def test_a_value_of_more_than_64_mib_is_refused(how: str) -> None:
    most = b'{"' + b"x" * (MOST_BYTES - 2)
    assert len(uncompressed(packed(most, how))) == MOST_BYTES == 64 << 20
    with pytest.raises(ValueError, match=f"it is compressed with {how}, and has more than 64 MiB when it is decompressed"):
        uncompressed(packed(most + b"x", how))


# --- in messages ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["snappy", "lz4"])
@pytest.mark.parametrize(("protocol", "name"), CASES, ids=[f"{protocol.name}-{name}" for protocol, name in CASES])
def test_compressed_messages_give_the_same_rows(protocol: KafkaProtocol, name: str, how: str) -> None:
    case = KafkaCase(protocol.name, name)
    messages = compressed(protocol, messages_of(case), how)
    assert messages.values != messages_of(case).values
    assert decoded(protocol, messages) == expected(protocol, case)
    shown = {detected([Message(0, key or None, value, 0)]) for key, value in zip(messages.keys, messages.values, strict=True)}
    assert shown == {protocol.name}


@pytest.mark.parametrize("how", ["snappy", "lz4"])
@pytest.mark.parametrize(("protocol", "name"), [(OPEN, "basic"), (SIMPLE, "json-basic"), (CANAL, "basic-extension")])
def test_a_damaged_compressed_message_is_told_and_the_others_are_read(protocol: KafkaProtocol, name: str, how: str) -> None:
    case = KafkaCase(protocol.name, name)
    messages = compressed(protocol, messages_of(case), how)
    number = next(n for n, golden in enumerate(case.records) if golden.kind == "row")
    value = messages.values[number]
    messages.values[number] = value[:-6]
    if protocol is OPEN:
        messages.values[number] = struct.pack(">Q", len(value) - 14) + value[8:-6]
    records = protocol.read(messages).to_pylist()
    (unknown,) = [row for row in records if row["kind"] == RecordKind.UNKNOWN]
    assert unknown["offset"] == number
    assert unknown["value"].decode() == f"it is compressed with {how}, and damaged."
    assert {row["offset"] for row in records} == {n for n, golden in enumerate(case.records) if golden.kind != "bootstrap"}


def test_messages_are_read_in_parts_of_four_mib() -> None:
    sizes = [3 << 20, 1 << 20, 1, 9 << 20, 0, 5]
    messages = Messages(range(6), [bytes(size) for size in sizes])
    parts = list(in_parts(messages))
    assert [list(part.offsets) for part in parts] == [[0, 1], [2], [3], [4, 5]]
    assert [value for part in parts for value in part.values] == messages.values
    assert [part.values for part in in_parts(Messages((), []))] == [[]]


@pytest.mark.parametrize("how", ["snappy", "lz4"])
def test_compressed_messages_count_with_what_is_in_them(how: str) -> None:
    """A few KB can hold a MB each: parts of 4 MiB of compressed bytes would take a GiB to read."""
    values = [packed(b'{"a":"' + bytes(2 << 20), how)] * 100
    parts = list(in_parts(Messages(range(100), values)))
    assert max(sum(len(uncompressed(value)) for value in part.values) for part in parts) <= 64 << 20
    assert [value for part in parts for value in part.values] == values
