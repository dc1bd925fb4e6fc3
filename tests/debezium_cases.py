"""The golden records of Debezium's connector for MySQL, and what the upstream held at the end.

``tests/golden/debezium/README.md`` says how the data came about.
"""

from __future__ import annotations

import json
import lzma
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any
from zlib import crc32

from harness import ExpectedTable, State
from kafka_server import KafkaBroker, Record

GOLDEN = Path(__file__).parent / "golden" / "debezium"
IN_ORDER = {"enable.idempotence": True}
"""The setting with which a producer keeps the order of records that it has to send again, as those of Debezium and Maxwell do."""
PARTITIONS = 3
"""Of a table's topic. Debezium chooses the partition by the key."""


@dataclass(frozen=True)
class DebeziumRecord:
    """A record, and the part of its topic's name behind the prefix: empty for the topic of schema changes."""

    suffix: str
    key: bytes | None
    value: bytes | None

    @property
    def record(self) -> Record:
        partitions = PARTITIONS if self.suffix else 1
        return Record(self.value, crc32(self.key or b"") % partitions, self.key)

    @property
    def is_of_snapshot(self) -> bool:
        return self.payload.get("source", {}).get("snapshot", "false") != "false"

    @property
    def payload(self) -> dict[str, Any]:
        told: dict[str, Any] = json.loads(self.value or b"{}")
        payload: dict[str, Any] = told.get("payload", told)
        return payload


@dataclass(frozen=True)
class DebeziumCase:
    """Records with a schema in each message, or without."""

    with_schema: bool

    @cached_property
    def records(self) -> list[DebeziumRecord]:
        """In the order in which Debezium produced them."""
        if self.with_schema:
            lines = lzma.decompress((GOLDEN / "with-schema.jsonl.xz").read_bytes()).splitlines()
        else:
            lines = (GOLDEN / "without-schema.jsonl").read_bytes().splitlines()
        return [_record(json.loads(line)) for line in lines]

    @cached_property
    def final(self) -> State:
        """The state that all records lead to."""
        told = json.loads((GOLDEN / "expected.json").read_bytes())
        tables = (
            ExpectedTable(t["schema"], t["table"], "BASE TABLE", t["types"], tuple(t["primary_key"]), tuple(map(tuple, t["rows"])))
            for t in told
        )
        return State(0, frozenset({"shop"}), tuple(tables))


def _record(line: dict[str, Any]) -> DebeziumRecord:
    key, value = (None if line[name] is None else line[name].encode() for name in ("key", "value"))
    return DebeziumRecord(line["topic"].removeprefix("shopdb").removeprefix("."), key, value)


@dataclass
class DebeziumTopics:
    """The topics of a connector in a broker, by the prefix of their names."""

    kafka: KafkaBroker
    prefix: str

    @classmethod
    def made(cls, kafka: KafkaBroker, records: Iterable[DebeziumRecord]) -> DebeziumTopics:
        """Empty topics for the records."""
        prefix = kafka.make_topic()
        for suffix in sorted({record.suffix for record in records} - {""}):
            kafka.make_topic(PARTITIONS, name=f"{prefix}.{suffix}")
        return cls(kafka, prefix)

    def write(self, records: Iterable[DebeziumRecord]) -> None:
        of_topics: dict[str, list[Record]] = defaultdict(list)
        for record in records:
            of_topics[f"{self.prefix}.{record.suffix}".rstrip(".")].append(record.record)
        for topic, found in of_topics.items():
            self.kafka.write(topic, found, **IN_ORDER)

    def uri(self, **params: object) -> str:
        return self.kafka.uri(self.prefix, **{"protocol": "debezium-mysql", "topics": f"{self.prefix}.*", **params})


def in_steps(records: list[DebeziumRecord], length: int) -> Iterator[list[DebeziumRecord]]:
    """About so many records at a time. A step ends neither in the snapshot nor inside an event of the binlog."""
    found: list[DebeziumRecord] = []
    last = None
    for record in records:
        source = record.payload.get("source", {})
        place = (source.get("file"), source.get("pos"))
        if len(found) >= length and source and place != last:
            yield found
            found = []
        found.append(record)
        last = place if source else last
    yield found
