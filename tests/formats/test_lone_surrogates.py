"""A message may write half of a surrogate pair anywhere, which UTF-8 cannot. The messages beside it are read nevertheless."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest

from debezium_cases import DebeziumCase
from headrace.sources.kafka.canal_json import CanalJsonProtocol
from headrace.sources.kafka.debezium import DebeziumProtocol
from headrace.sources.kafka.debezium_mysql import DebeziumMySqlProtocol
from headrace.sources.kafka.maxwell import MaxwellProtocol
from headrace.sources.kafka.maxwell_mysql import MaxwellMySqlProtocol
from headrace.sources.kafka.protocol import KafkaProtocol, Messages
from headrace.sources.kafka.simple import SimpleProtocol
from headrace.sources.stream.records import RECORDS
from kafka_cases import CASES, KafkaCase
from maxwell_cases import GOLDEN

HALVES = ("\ud800", "x" * 10 + "\udfff'")
PROTOCOLS: tuple[KafkaProtocol, ...] = (
    CanalJsonProtocol(),
    SimpleProtocol(),
    DebeziumProtocol(accept_unclear=True),
    MaxwellProtocol(),
    DebeziumMySqlProtocol(accept_unclear=True),
    MaxwellMySqlProtocol(accept_unclear=True),
)


def messages_of(protocol: KafkaProtocol) -> Iterator[bytes]:
    if protocol.name == "debezium-mysql":
        yield from (record.value or b"" for record in DebeziumCase(with_schema=False).records)
    elif protocol.name == "maxwell-mysql":
        yield from (GOLDEN / "records.jsonl").read_bytes().splitlines()
    else:
        cases = (KafkaCase(protocol.name, folder.name) for folder in sorted((CASES / protocol.name).iterdir()) if folder.is_dir())
        yield from (golden.record.value or b"" for case in cases for golden in case.records)


def of_each_shape(protocol: KafkaProtocol) -> list[dict[str, Any]]:
    """One message of each combination of members."""
    found: dict[str, dict[str, Any]] = {}
    for value in messages_of(protocol):
        document = json.JSONDecoder().raw_decode(value.decode())[0] if value.startswith(b"{") else None  # Maxwell sends several
        if document is not None:
            found.setdefault(repr(list(places(document)))[:2000], document)
    assert found
    return list(found.values())[:20]


def places(document: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The places of values, without those inside of lists behind the first."""
    if isinstance(document, dict):
        for name, value in document.items():
            yield from places(value, (*path, name))
    elif isinstance(document, list) and document:
        yield from places(document[0], (*path, 0))
    else:
        yield path


@pytest.mark.parametrize("protocol", PROTOCOLS, ids=lambda protocol: protocol.name)
def test_a_lone_surrogate_anywhere_in_a_message_does_not_end_the_reading(protocol: KafkaProtocol) -> None:
    for document in of_each_shape(protocol):
        for path in list(places(document))[:40]:
            values = []
            for half in HALVES:
                changed = copy.deepcopy(document)
                inner = changed
                for step in path[:-1]:
                    inner = inner[step]
                inner[path[-1]] = half
                values.append(json.dumps(changed).encode())
            batch = protocol.read(Messages(range(len(values)), values, [b""] * len(values)))
            assert batch.schema == RECORDS
