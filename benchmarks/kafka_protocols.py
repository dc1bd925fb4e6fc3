"""How fast messages of TiCDC's protocols become blocks, on one core and without a broker, against the same rows in canal-JSON.

Both halves count: what a stage task reads of a message, and what a decode task makes of it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime

from benchmarks.workload import COLUMNS, DATABASE, ORDERS, Changes, Workload, schema_of
from headrace.formats.canal import canal_pb2 as pb
from headrace.formats.canal_json import CanalJsonOptions, decode_canal_json
from headrace.sources.kafka.canal import CanalProtocol
from headrace.sources.kafka.canal_json import CanalJsonProtocol
from headrace.sources.kafka.debezium import DebeziumProtocol
from headrace.sources.kafka.maxwell import MaxwellProtocol
from headrace.sources.kafka.open_protocol import OpenProtocol
from headrace.sources.kafka.protocol import KafkaProtocol, Messages, in_parts
from headrace.sources.kafka.simple import SimpleProtocol
from headrace.sources.stream.records import PIECE

_IN_ONE_MESSAGE = 16
"""``max-batch-size`` of protocols that put several rows into a message."""
_KEY = (1).to_bytes(8, "big")
"""Of each message of ``maxwell``."""
_VERSION = (1).to_bytes(8, "big")
"""Of keys of ``open-protocol``."""
_SCHEMA = {
    "type": "struct",
    "optional": False,
    "name": f"default.{DATABASE}.{ORDERS.table}.Envelope",
    "version": 1,
    "fields": [
        {"type": "struct", "optional": True, "field": side, "fields": [{"type": "string", "field": c.name} for c in COLUMNS]}
        for side in ("before", "after", "source", "transaction")
    ],
}


def rates(workload: Workload, changes: Changes) -> Iterator[tuple[str, float]]:
    """The rows per second of CPU time, by protocol; the first one is of the workload's files."""
    files = [path.read_bytes() for path in workload.files]
    options, schema = CanalJsonOptions(terminator="\n"), schema_of(ORDERS)
    yield "canal-json files", _rate(lambda: sum(b.num_rows for data in files for b in decode_canal_json(data, schema, options)))
    open_keys, open_values = zip(*_open(changes), strict=True)
    lines = [line for data in files for line in data.splitlines()]
    protocols: dict[str, tuple[KafkaProtocol, list[bytes]]] = {
        "canal-json": (CanalJsonProtocol(), lines),
        "open-protocol": (OpenProtocol(), _together(list(open_values), b"".join)),
        "simple": (SimpleProtocol(), list(_simple(changes))),
        "debezium": (DebeziumProtocol(), list(_debezium(changes, with_schema=False))),
        "debezium with schema": (DebeziumProtocol(), list(_debezium(changes, with_schema=True))),
        "maxwell": (MaxwellProtocol(), _together(list(_maxwell(changes)), b"".join)),
        "canal": (CanalProtocol(), _together(list(_canal(changes)), _packet)),
    }
    keys = {
        "open-protocol": [_VERSION + key for key in _together(list(open_keys), b"".join)],
        "maxwell": [_KEY] * len(protocols["maxwell"][1]),
    }
    for name, (protocol, values) in protocols.items():
        yield name, _rate(_decoding(protocol, values, keys.get(name, [])))


def _decoding(protocol: KafkaProtocol, values: list[bytes], keys: list[bytes]) -> Callable[[], int]:
    def decode() -> int:
        rows = 0
        for part in in_parts(Messages(range(len(values)), values, keys)):
            records = protocol.read(part)
            rows += protocol.decode(schema_of(ORDERS), records.select(PIECE.names))[0].num_rows
        return rows

    return decode


def _rate(work: Callable[[], int], repeats: int = 3) -> float:
    found = []
    for _ in range(repeats):
        started = time.process_time()
        rows = work()
        found.append(rows / (time.process_time() - started))
    return max(found)


def _rows(changes: Changes) -> Iterator[tuple[bool, int, dict[str, object]]]:
    """Of each change, as in the workload's files: whether it is a deletion, its commit ts (TSO), and the row."""
    told = zip(changes.operations.to_pylist(), changes.commit_ts.to_pylist(), changes.rows.to_pylist(), strict=True)
    return ((operation == "D", commit_ts, row) for operation, commit_ts, row in told)


def _debezium(changes: Changes, *, with_schema: bool) -> Iterator[bytes]:
    for gone, commit_ts, row in _rows(changes):
        at = datetime.fromisoformat(str(row["ordered_at"])).replace(tzinfo=UTC)
        row |= {"amount": float(str(row["amount"])), "ordered_at": int(at.timestamp() * 1000)}
        source = {"version": "2.4.0.Final", "connector": "TiCDC", "name": "default", "ts_ms": commit_ts >> 18, "snapshot": "false"}
        source |= {"db": DATABASE, "table": ORDERS.table, "server_id": 0, "gtid": None, "file": "", "pos": 0, "row": 0, "thread": 0}
        source |= {"query": None, "commit_ts": commit_ts, "cluster_id": "default"}
        sides = {"op": "d", "after": None, "before": row} if gone else {"op": "c", "before": None, "after": row}
        message = {"payload": {"source": source, "ts_ms": 0, "transaction": None, **sides}}
        yield _json(message | ({"schema": _SCHEMA} if with_schema else {}))


def _open(changes: Changes) -> Iterator[tuple[bytes, bytes]]:
    """Key and value of each change, with their lengths before them."""
    told = {
        "id": (8, 11),
        "customer": (15, 0),
        "amount": (246, 65),
        "quantity": (3, 65),
        "ordered_at": (12, 65),
        "remark": (15, 64),
    }
    for gone, commit_ts, row in _rows(changes):
        key = _json({"ts": commit_ts, "scm": DATABASE, "tbl": ORDERS.table, "t": 1})
        columns = {n: {"t": told[n][0], **({"h": True} if n == "id" else {}), "f": told[n][1], "v": v} for n, v in row.items()}
        value = _json({"d" if gone else "u": columns})
        yield len(key).to_bytes(8, "big") + key, len(value).to_bytes(8, "big") + value


def _simple(changes: Changes) -> Iterator[bytes]:
    for gone, commit_ts, row in _rows(changes):
        told = {"version": 1, "database": DATABASE, "table": ORDERS.table, "tableID": 1, "type": "DELETE" if gone else "INSERT"}
        texts = {name: str(value) for name, value in row.items()}
        of_time = {"commitTs": commit_ts, "buildTs": commit_ts >> 18, "schemaVersion": commit_ts}
        yield _json({**told, **of_time, "old" if gone else "data": texts})


def _maxwell(changes: Changes) -> Iterator[bytes]:
    for gone, commit_ts, row in _rows(changes):
        told = {
            "database": DATABASE,
            "table": ORDERS.table,
            "type": "delete" if gone else "insert",
            "ts": (commit_ts >> 18) // 1000,
        }
        yield _json({**told, "old" if gone else "data": row})


def _canal(changes: Changes) -> Iterator[bytes]:
    types = {column.name: str(column.type.kind).lower().encode() for column in COLUMNS}
    for gone, commit_ts, row in _rows(changes):
        columns = [pb.Column(name=n.encode(), is_null=False, value=str(v).encode(), mysql_type=types[n]) for n, v in row.items()]
        event = 3 if gone else 1
        change = pb.RowChange(event_type=event, row_datas=[pb.RowData(**{"before_columns" if gone else "after_columns": columns})])
        header = pb.Header(execute_time=commit_ts >> 18, schema_name=DATABASE.encode(), table_name=ORDERS.table.encode())
        header.event_type = event
        yield pb.Entry(header=header, entry_type=2, store_value=change.SerializeToString()).SerializeToString()


def _together(parts: list[bytes], join: Callable[[list[bytes]], bytes]) -> list[bytes]:
    return [join(parts[start : start + _IN_ONE_MESSAGE]) for start in range(0, len(parts), _IN_ONE_MESSAGE)]


def _packet(entries: list[bytes]) -> bytes:
    return bytes(pb.Packet(type=7, body=pb.Messages(messages=entries).SerializeToString()).SerializeToString())


def _json(message: object) -> bytes:
    return json.dumps(message, separators=(",", ":")).encode()
