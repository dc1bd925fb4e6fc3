"""The rows of canal-JSON files as messages in Avro, and how fast both are decoded: on one core, without a broker."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator

import pyarrow.compute as pc

from avro_writer import counted, long
from benchmarks.report import Measurement
from benchmarks.workload import DATABASE, ORDERS, Changes, Workload, schema_of
from headrace.formats.canal_json import CanalJsonOptions, decode_canal_json
from headrace.kafka.client import BATCH_MESSAGES
from headrace.kafka.registry import registry_of
from headrace.sources.kafka.avro import AvroProtocol
from headrace.sources.kafka.protocol import KafkaProtocol, Messages
from headrace.sources.kafka.registered import RegisteredSchemas
from headrace.sources.kafka.simple import SimpleProtocol
from headrace.sources.stream.records import PIECE, RecordKind
from schema_registry import running_registry

_REPEATS = 3
_KEY, _VALUE = 1, 2
_TABLE_ID = 100
_DELETED = 2
"""The place of DELETE among the kinds of rows of the Simple Protocol."""


def measure_avro(workload: Workload, changes: Changes) -> Iterator[Measurement]:
    """Each protocol in Avro against the files, in percent. What a message is about and its row count, as in a run."""
    files = _best(lambda: _decode_files(workload))
    with running_registry() as running:
        url = running.holding("bench", {_KEY: json.dumps(_record(_ID)), _VALUE: json.dumps(_record(*_FIELDS))})
        registry = registry_of({"schema-registry": url})
        assert registry is not None, "the parameter is given"
        protocols: dict[str, tuple[KafkaProtocol, Messages]] = {
            "avro": (AvroProtocol(RegisteredSchemas(registry)), avro_messages(changes)),
            "simple in Avro": (SimpleProtocol(), simple_messages(changes)),
        }
        for name, (protocol, messages) in protocols.items():
            seconds = min(_decoded(protocol, messages) for _ in range(_REPEATS))
            yield Measurement(f"{name}: decoding against files", 100 * files / seconds, "%", details={"seconds": seconds})


def _decode_files(workload: Workload) -> None:
    for path in workload.files:
        for _ in decode_canal_json(path.read_bytes(), schema_of(ORDERS), CanalJsonOptions()):
            pass


def _best(work: Callable[[], None]) -> float:
    times = []
    for _ in range(_REPEATS):
        begun = time.perf_counter()
        work()
        times.append(time.perf_counter() - begun)
    return min(times)


def _decoded(protocol: KafkaProtocol, messages: Messages) -> float:
    """The seconds that all messages take, in the batches in which a client gives them."""
    seconds, rows = 0.0, 0
    for start in range(0, len(messages.offsets), BATCH_MESSAGES):
        batch = Messages(*(list(part[start : start + BATCH_MESSAGES]) for part in messages))
        begun = time.perf_counter()
        records = protocol.read(batch)
        records = records.filter(pc.equal(records.column("kind"), int(RecordKind.ROWS))).select(PIECE.names)
        rows += protocol.decode(schema_of(ORDERS), records)[0].num_rows
        seconds += time.perf_counter() - begun
    if rows != len(messages.offsets):
        raise RuntimeError(f"{rows} rows were decoded, not {len(messages.offsets)}")
    return seconds


def _field(name: str, of: str, tidb_type: str, **more: object) -> dict[str, object]:
    told = {"type": of, "connect.parameters": {"tidb_type": tidb_type}, **more}
    return {"name": name, "type": told if name in ("id", "customer") else ["null", told]}


def _record(*fields: dict[str, object]) -> dict[str, object]:
    return {"type": "record", "name": ORDERS.table, "namespace": f"default.{DATABASE}", "fields": list(fields)}


_ID = _field("id", "long", "BIGINT")
_FIELDS = (
    _ID,
    _field("customer", "string", "TEXT"),
    _field("amount", "bytes", "DECIMAL", logicalType="decimal", precision=12, scale=2),
    _field("quantity", "int", "INT"),
    _field("ordered_at", "string", "DATETIME"),
    _field("remark", "string", "TEXT"),
    *({"name": name, "type": of} for name, of in (("_tidb_op", "string"), ("_tidb_commit_ts", "long"))),
    {"name": "_tidb_commit_physical_time", "type": "long"},
)


def avro_messages(changes: Changes) -> Messages:
    """The changes in the protocol ``avro`` with the TiDB extension; deletions without a value."""
    keys, values, times = [], [], []
    for operation, commit_ts, row in _rows(changes):
        number, customer, amount, quantity, ordered_at, remark = row
        keys.append(_framed(_KEY, long(number)))
        times.append(commit_ts >> 18)
        cents = int(amount.replace(".", ""))
        raw = cents.to_bytes((cents.bit_length() + 8) // 8, "big", signed=True)
        columns = [
            long(number),
            counted(customer),
            *map(_some, (counted(raw), long(quantity), counted(ordered_at), counted(remark))),
        ]
        own = [counted("u" if operation == "U" else "c"), long(commit_ts), long(commit_ts >> 18)]
        values.append(b"" if operation == "D" else _framed(_VALUE, b"".join(columns + own)))
    return Messages(range(len(values)), values, keys, times)


def simple_messages(changes: Changes) -> Messages:
    """The changes in the Simple Protocol in Avro, updates as inserts of the new row as in the files; columns in changing order."""
    values = []
    for operation, commit_ts, row in _rows(changes):
        number, customer, amount, quantity, ordered_at, remark = row
        texts = {"customer": customer, "amount": amount, "ordered_at": ordered_at, "remark": remark}
        entries = [counted(name) + long(4) + counted(text) for name, text in texts.items()]
        entries += [counted(name) + long(1) + long(value) for name, value in (("id", number), ("quantity", quantity))]
        turn = number % len(entries)
        told = long(1) + long(len(entries)) + b"".join(entries[turn:] + entries[:turn]) + long(0)
        kind = long(_DELETED if operation == "D" else 0)
        names = counted(DATABASE) + counted(ORDERS.table) + long(_TABLE_ID)
        rows = long(0) + told if operation == "D" else told + long(0)
        values.append(b"\x16\x06\x06" + long(1) + names + kind + long(commit_ts) * 3 + long(0) * 3 + rows)
    return Messages(range(len(values)), values)


def _rows(changes: Changes) -> Iterator[tuple[str, int, tuple[int, str, str, int, str, str]]]:
    columns = [column.to_pylist() for column in changes.rows.columns]
    yield from zip(changes.operations.to_pylist(), changes.commit_ts.to_pylist(), zip(*columns, strict=True), strict=True)


def _framed(schema_id: int, content: bytes) -> bytes:
    return b"\0" + schema_id.to_bytes(4, "big") + content


def _some(content: bytes) -> bytes:
    return long(1) + content
