"""The same million changes as a changefeed's topic and as a Drainer's, in a real broker."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator

from confluent_kafka import Producer

from benchmarks.workload import BEGIN_MS, COLUMNS, CREATE, DATABASE, ORDERS, Changes, Workload
from headrace.formats.binlog import slave_binlog_pb2 as pb
from headrace.model.tso import LOGICAL_BITS, tso_from_ms
from headrace.model.types import INTEGER_KINDS
from kafka_server import KafkaBroker

_PARTITIONS = 2
_QUEUED = 100_000
_BEGIN = tso_from_ms(BEGIN_MS - 1000)
_ES = re.compile(rb'"es":([0-9]+)')
_COMMIT_TS = re.compile(rb'"commitTs":([0-9]+)')
_OPERATIONS = {"I": 0, "U": 1, "D": 2}


def canal_json_topic(kafka: KafkaBroker, workload: Workload, changes: Changes) -> str:
    """The messages of the workload's files, a row in each, divided by their keys; then a watermark in each partition."""
    topic = kafka.make_topic(_PARTITIONS)
    keys = changes.rows.column("id").to_pylist()
    lines = (line for path in workload.files for line in path.read_bytes().splitlines())
    partitions = (key % _PARTITIONS for key in keys)
    watermark = changes.commit_ts[-1].as_py() + 1
    first = _statement(_BEGIN)
    last = _watermark(watermark)
    produce(kafka, topic, [(first, 0)])
    produce(kafka, topic, zip(lines, partitions, strict=True))
    produce(kafka, topic, [(last, partition) for partition in range(_PARTITIONS)])
    return topic


def many_canal_json(kafka: KafkaBroker, workload: Workload, changes: Changes, millions: int) -> str:
    """A topic with the messages of a workload of a million again and again, each time with later commit timestamps."""
    topic = kafka.make_topic(_PARTITIONS)
    partitions = [key % _PARTITIONS for key in changes.rows.column("id").to_pylist()]
    milliseconds = (changes.commit_ts[-1].as_py() >> LOGICAL_BITS) - (_BEGIN >> LOGICAL_BITS) + 1
    produce(kafka, topic, [(_statement(_BEGIN), 0)])
    for number in range(millions):
        lines = (_later(line, number * milliseconds) for path in workload.files for line in path.read_bytes().splitlines())
        produce(kafka, topic, zip(lines, partitions, strict=True))
    last = _watermark(_BEGIN + (millions * milliseconds << LOGICAL_BITS))
    produce(kafka, topic, [(last, partition) for partition in range(_PARTITIONS)])
    return topic


def _later(line: bytes, milliseconds: int) -> bytes:
    line = _COMMIT_TS.sub(lambda found: b'"commitTs":%d' % (int(found[1]) + (milliseconds << LOGICAL_BITS)), line)
    return _ES.sub(lambda found: b'"es":%d' % (int(found[1]) + milliseconds), line, count=1)


class OneRowTopic:
    """A topic of canal-JSON with transactions of one row each: every :meth:`publish` is one more cut."""

    def __init__(self, kafka: KafkaBroker, line: bytes) -> None:
        """``line`` is the message of an insert."""
        self._kafka, self._topic, self._sample = kafka, kafka.make_topic(), json.loads(line)
        self._producer = Producer({"bootstrap.servers": kafka.server, "linger.ms": 0, "log_level": 0})
        self._number, self._watermark = 0, tso_from_ms(BEGIN_MS)
        self._send(_statement(_BEGIN))
        self._send(_watermark(self._watermark))

    @property
    def uri(self) -> str:
        """The source's URI."""
        return f"kafka://{self._kafka.server}/{self._topic}?protocol=canal-json"

    def stage(self) -> None:
        """Writes the next row, which no watermark promises yet."""
        self._number += 1
        (row,) = self._sample["data"]
        commit_ts = self._watermark + 262_144
        told = {**self._sample, "data": [{**row, "id": str(self._number)}], "es": commit_ts >> 18, "_tidb": {"commitTs": commit_ts}}
        self._send(json.dumps(told, separators=(",", ":")).encode())

    def publish(self) -> int:
        """Writes a watermark above the staged row; returns it (TSO)."""
        self._watermark += 2 * 262_144
        self._send(_watermark(self._watermark))
        return self._watermark

    def _send(self, value: bytes) -> None:
        self._producer.produce(self._topic, value=value, partition=0)
        self._producer.flush(60)


def _statement(commit_ts: int) -> bytes:
    return _message(commit_ts, DATABASE, ORDERS.table, "CREATE", CREATE, "commitTs")


def _watermark(commit_ts: int) -> bytes:
    return _message(commit_ts, "", "", "TIDB_WATERMARK", "", "watermarkTs")


def _message(ts: int, database: str, table: str, kind: str, statement: str, ts_name: str) -> bytes:
    members = {
        "id": 0,
        "database": database,
        "table": table,
        "pkNames": None,
        "isDdl": bool(statement),
        "type": kind,
        "es": ts >> 18,
    }
    members |= {"ts": 0, "sql": statement, "sqlType": None, "mysqlType": None, "data": None, "old": None, "_tidb": {ts_name: ts}}
    return json.dumps(members, separators=(",", ":")).encode()


def binlog_topic(kafka: KafkaBroker, changes: Changes) -> str:
    """The changes as Drainer's messages, a transaction in each."""
    topic = kafka.make_topic()
    statement = pb.Binlog(type=pb.DDL, commit_ts=_BEGIN)
    statement.ddl_data.schema_name, statement.ddl_data.table_name = DATABASE.encode(), ORDERS.table.encode()
    statement.ddl_data.ddl_query = CREATE.encode()
    produce(kafka, topic, [(statement.SerializeToString(), 0)])
    produce(kafka, topic, ((message, 0) for message in _transactions(changes)))
    return topic


def _transactions(changes: Changes) -> Iterator[bytes]:
    columns = [changes.rows.column(column.name).to_pylist() for column in COLUMNS]
    fields = ["int64_value" if column.type.kind in INTEGER_KINDS else "string_value" for column in COLUMNS]
    message: pb.Binlog | None = None
    for number, (operation, commit_ts) in enumerate(
        zip(changes.operations.to_pylist(), changes.commit_ts.to_pylist(), strict=True)
    ):
        if message is None or message.commit_ts != commit_ts:
            if message is not None:
                yield message.SerializeToString()
            message = _begun(commit_ts)
        mutation = message.dml_data.tables[0].mutations.add(type=_OPERATIONS[operation])
        for row in (mutation.row, mutation.change_row) if operation == "U" else (mutation.row,):
            for values, field in zip(columns, fields, strict=True):
                value = values[number]
                setattr(row.columns.add(), field, value.encode() if isinstance(value, str) else value)
    if message is not None:
        yield message.SerializeToString()


def _begun(commit_ts: int) -> pb.Binlog:
    message = pb.Binlog(type=pb.DML, commit_ts=commit_ts)
    table = message.dml_data.tables.add(schema_name=DATABASE.encode(), table_name=ORDERS.table.encode())
    for column in COLUMNS:
        kind = str(column.type.kind).lower().encode()
        table.column_info.add(name=column.name.encode(), mysql_type=kind, is_primary_key=column.primary_key, flen=20, decimal=0)
    table.unique_keys.add(name=b"PRIMARY", column_names=[b"id"])
    return message


def produce(kafka: KafkaBroker, topic: str, records: Iterable[tuple[bytes, int]]) -> None:
    """Appends values, each to its partition."""
    producer = Producer({"bootstrap.servers": kafka.server, "linger.ms": 50, "queue.buffering.max.messages": 2 * _QUEUED})
    for number, (value, partition) in enumerate(records, 1):
        producer.produce(topic, value=value, partition=partition)
        if number % _QUEUED == 0:
            producer.flush(60)
    if producer.flush(60):
        raise RuntimeError(f"the broker did not take all records of {topic}")
