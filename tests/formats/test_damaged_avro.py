"""Messages in Avro that do not fit their schema take no longer than others, and an unknown schema is asked for once in a read."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import pytest

from headrace.kafka.registry import registry_of
from headrace.sources.kafka.avro import AvroProtocol
from headrace.sources.kafka.debezium_avro import DebeziumAvroProtocol
from headrace.sources.kafka.protocol import KafkaProtocol, Messages
from headrace.sources.kafka.registered import RegisteredSchemas
from headrace.sources.kafka.simple import SimpleProtocol
from headrace.sources.stream.records import RecordKind
from kafka_cases import KafkaCase
from schema_registry import running_registry

MANY = 3000


def registered(make: Callable[[RegisteredSchemas], KafkaProtocol], case: KafkaCase) -> KafkaProtocol:
    with running_registry() as running:
        registry = registry_of({"schema-registry": running.holding(case.name, case.schemas)})
        assert registry is not None
        protocol = make(RegisteredSchemas(registry))
        protocol.read(messages_of(case, MANY))  # which fetches the schemas
        return protocol


def messages_of(case: KafkaCase, count: int, *, cut: bool = False) -> Messages:
    """The first row so many times, complete or without its last byte."""
    row = next(golden.record for golden in case.records if golden.kind == "row")
    value = row.value or b""
    return Messages(range(count), [value[:-1] if cut else value] * count, [row.key or b""] * count, [1_750_000_000_000] * count)


def seconds(protocol: KafkaProtocol, messages: Messages, kind: RecordKind) -> float:
    """The least of three times: the garbage of all tests before may be collected during one of them."""
    taken = []
    for _ in range(3):
        began = time.process_time()
        records = protocol.read(messages)
        taken.append(time.process_time() - began)
        assert set(records.column("kind").to_pylist()) == {kind}
    return min(taken)


@pytest.mark.parametrize(
    ("make", "case"),
    [
        (lambda schemas: AvroProtocol(schemas, timed=True), KafkaCase("avro", "watermark-mode")),
        (lambda schemas: DebeziumAvroProtocol(schemas, timed=True), KafkaCase("debezium-avro", "basic")),
        (lambda _: SimpleProtocol(), KafkaCase("simple", "avro-basic")),
    ],
    ids=["avro", "debezium-avro", "simple"],
)
def test_damaged_messages_are_found_in_the_time_that_sound_ones_take(
    make: Callable[[RegisteredSchemas], KafkaProtocol], case: KafkaCase
) -> None:
    protocol = registered(make, case)
    sound = seconds(protocol, messages_of(case, MANY), RecordKind.ROWS)
    damaged = seconds(protocol, messages_of(case, MANY, cut=True), RecordKind.UNKNOWN)
    assert damaged < 5 * sound + 0.2, f"{damaged:.2f} s, and {sound:.2f} s for as many sound messages"


@dataclass(frozen=True)
class NothingEarlier:
    """Before a range at the beginning of its partition."""

    def backwards(self) -> Iterator[Messages]:
        return iter(())

    def first_since(self, time_ms: int) -> None:
        return None


def named(schema_ids: Iterable[int]) -> Messages:
    values = [b"\0" + schema_id.to_bytes(4, "big") + b"row" for schema_id in schema_ids]
    return Messages(range(len(values)), values, [b""] * len(values), [1_750_000_000_000] * len(values))


@pytest.mark.parametrize("make", [AvroProtocol, DebeziumAvroProtocol])
def test_a_schema_that_is_not_known_is_asked_for_once_in_a_read(make: Callable[..., AvroProtocol | DebeziumAvroProtocol]) -> None:
    with running_registry() as running:
        registry = registry_of({"schema-registry": running.holding("none", {})})
        assert registry is not None
        protocol = make(RegisteredSchemas(registry), timed=True)
        for reads in (1, 2):
            of_range = protocol.for_range(NothingEarlier())
            for _ in range(3):
                found = of_range.read(named([7, 8, 7]))
                assert set(found.column("kind").to_pylist()) == {RecordKind.UNKNOWN}
            assert len(running.asked) == 2 * reads


def test_a_registry_is_not_asked_for_each_of_many_schemas_that_it_lacks() -> None:
    with running_registry() as running:
        registry = registry_of({"schema-registry": running.holding("none", {})})
        assert registry is not None
        of_range = AvroProtocol(RegisteredSchemas(registry), timed=True).for_range(NothingEarlier())
        found = of_range.read(named(range(2000)))
        assert len(running.asked) == 1000
    assert set(found.column("kind").to_pylist()) == {RecordKind.UNKNOWN}
    assert "its schema was not asked for, since 1000 others" in found.column("value").to_pylist()[-1].decode()
