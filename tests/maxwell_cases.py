"""The golden records of Maxwell itself, and what the upstream held at the end; see ``tests/golden/maxwell/README.md``."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from zlib import crc32

from harness import ExpectedTable, State
from kafka_server import Record

GOLDEN = Path(__file__).parent / "golden" / "maxwell"
PARTITIONS = 3
_POSITION = re.compile(rb'"position":"([^"]*)"')


@cache
def records() -> list[Record]:
    """In the order in which Maxwell produced them, in partitions by their tables (``producer_partition_by=table``)."""
    lines = (GOLDEN / "records.jsonl").read_bytes().splitlines()
    return [Record(line, crc32(json.loads(line).get("table", "").encode()) % PARTITIONS) for line in lines]


@cache
def final() -> State:
    """The state that all records lead to."""
    told = json.loads((GOLDEN / "expected.json").read_bytes())
    tables = (
        ExpectedTable(t["schema"], t["table"], "BASE TABLE", t["types"], tuple(t["primary_key"]), tuple(map(tuple, t["rows"])))
        for t in told
    )
    return State(0, frozenset({"shop"}), tuple(tables))


def in_steps(length: int) -> Iterator[list[Record]]:
    """About so many records at a time. A step does not end inside an event of the binlog."""
    found: list[Record] = []
    last = None
    for record in records():
        place = _POSITION.findall(record.value or b"")
        if len(found) >= length and place != last:
            yield found
            found = []
        found.append(record)
        last = place
    yield found
