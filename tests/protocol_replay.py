"""The golden records of a Kafka protocol, decoded without a broker, and the same changes as ``expected.json`` has them."""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headrace.model.block import COMMIT_TS, KIND, META_COUNT
from headrace.model.events import RowKind
from headrace.model.table import TableId, TableSchema
from headrace.model.types import TypeKind
from headrace.sources.kafka.protocol import KafkaProtocol, Messages
from headrace.sources.stream.history import StreamHistory
from headrace.sources.stream.records import PIECE, RecordKind
from kafka_cases import KafkaCase

Row = tuple[object, ...]
Changes = Counter[tuple[TableId, int, RowKind, Row]]
"""Table, commit ts, kind and values of each row."""


def messages_of(case: KafkaCase) -> Messages:
    """The records of all partitions, as if they were one, in the order in which TiCDC produced them."""
    records = [golden.record for golden in case.records]
    return Messages(range(len(records)), [record.value or b"" for record in records], [record.key or b"" for record in records])


def packed(value: bytes, how: str) -> bytes:
    """The value as TiCDC compresses it."""
    if how == "snappy":
        length, head = len(value), b""
        while length > 127:
            head, length = head + bytes([length & 127 | 128]), length >> 7
        block: bytes = pa.Codec("snappy").compress(value, asbytes=True)
        assert block.startswith(head + bytes([length]))
        return block
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "lz4") as stream:
        stream.write(value)
    return bytes(sink.getvalue().to_pybytes())


def compressed(protocol: KafkaProtocol, messages: Messages, how: str) -> Messages:
    """The messages as TiCDC compresses them: in the Open Protocol each event but watermarks, else the whole value."""

    def of(value: bytes) -> bytes:
        if protocol.name != "open-protocol":
            return packed(value, how) if value else value
        found, at = b"", 0
        while at < len(value):
            (length,) = struct.unpack_from(">Q", value, at)
            event = value[at + 8 : at + 8 + length]
            event = packed(event, how) if event else event
            found, at = found + struct.pack(">Q", len(event)) + event, at + 8 + length
        return found

    return messages._replace(values=list(map(of, messages.values)))


def history_of(protocol: KafkaProtocol, records: pa.RecordBatch) -> StreamHistory:
    """The shapes that the statements among records tell."""
    statements = records.filter(pc.equal(records.column("kind"), int(RecordKind.STATEMENT)))
    values = zip(statements.column("value").to_pylist(), statements.column("offset").to_pylist(), strict=True)
    return StreamHistory({}, [protocol.statement(value, "0", offset) for value, offset in values])


def pieces_of(records: pa.RecordBatch, history: StreamHistory) -> Iterator[tuple[TableId, TableSchema, pa.RecordBatch]]:
    """The records with rows by table and shape, each as ``PIECE``."""
    rows = records.filter(pc.equal(records.column("kind"), int(RecordKind.ROWS)))
    names = sorted(set(zip(rows.column("database").to_pylist(), rows.column("table").to_pylist(), strict=True)))
    for database, table in names:
        own = rows.filter(pc.and_(pc.equal(rows.column("database"), database), pc.equal(rows.column("table"), table)))
        versions = history.versions(TableId(database, table))
        of = [bisect_left(versions, ts, key=lambda version: version[0]) - 1 for ts in own.column("commit_ts").to_pylist()]
        for number in sorted(set(of)):
            yield TableId(database, table), versions[number][1], own.filter(pa.array([n == number for n in of])).select(PIECE.names)


def decoded(protocol: KafkaProtocol, messages: Messages) -> Changes:
    """All rows of messages."""
    records = protocol.read(messages)
    found: Changes = Counter()
    for table_id, schema, piece in pieces_of(records, history_of(protocol, records)):
        block, counts = protocol.decode(schema, piece)
        assert sum(counts) == block.num_rows
        for row in block.to_pylist():
            found[table_id, row[COMMIT_TS], RowKind(row[KIND]), tuple(row.values())[META_COUNT:]] += 1
    return found


def without_commit_ts(changes: Changes) -> Changes:
    """The same rows for protocols in which they do not carry their exact commit ts."""
    found: Changes = Counter()
    for (table_id, _, kind, row), times in changes.items():
        found[table_id, 0, kind, row] += times
    return found


def expected(protocol: KafkaProtocol, case: KafkaCase) -> Changes:
    """The rows of ``expected.json`` in the shape that :func:`decoded` gives them."""
    records = protocol.read(messages_of(case))
    history = history_of(protocol, records)
    found: Changes = Counter()
    kinds = {"insert": [RowKind.INSERT], "delete": [RowKind.DELETE], "update": [RowKind.UPDATE_BEFORE, RowKind.UPDATE_AFTER]}
    for event in case.events:
        if event["kind"] == "row":
            table_id = TableId(event["schema"], event["table"])
            versions = history.versions(table_id)
            schema = versions[bisect_left(versions, event["commit_ts"], key=lambda version: version[0]) - 1][1]
            images = [image for image in (event.get("before"), event.get("after")) if image is not None]
            for kind, image in zip(kinds[event["op"]], images, strict=True):
                found[table_id, event["commit_ts"], kind, tuple(_canonical(image, schema))] += 1
    return found


def _canonical(image: dict[str, Any], schema: TableSchema) -> Iterator[object]:
    for column in schema.row_columns:
        value = image[column.name]
        if isinstance(value, dict):
            value = bytes.fromhex(value["hex"]) if "hex" in value else value["text"]
        elif column.type.kind is TypeKind.FLOAT and value is not None:
            (value,) = struct.unpack("f", struct.pack("f", value))
        elif column.type.kind is TypeKind.DOUBLE and value is not None:
            value = float(value)
        yield value
