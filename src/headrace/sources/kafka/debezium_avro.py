"""TiCDC's protocol ``debezium-avro``: Debezium's messages, each written with a schema of a registry.

Only with ``avro-enable-watermark`` and the TiDB extension are there schema changes and watermarks. Otherwise the registered schemas
stand for schema changes. Rows always have their commit ts.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from headrace.formats.avro.schema import Record
from headrace.formats.debezium_avro import read_about, read_statement_message, shape_of
from headrace.formats.debezium_avro_rows import DebeziumAvroRowReader
from headrace.formats.debezium_messages import DebeziumAbout, DebeziumKind
from headrace.model.precision import CommitTsPrecision
from headrace.model.stream import StreamStatement
from headrace.model.table import TableId, TableSchema
from headrace.model.writable_text import as_utf8
from headrace.sources.kafka.debezium import KINDS
from headrace.sources.kafka.line_records import rows_of_messages
from headrace.sources.kafka.protocol import EarlierMessages, Messages, statement_in_text
from headrace.sources.kafka.registered import RegisteredSchemas, by_schema, schema_id_of, why_unframed
from headrace.sources.stream.records import RecordKind, RecordRow, record_batch

_NOT_TIMED = (
    "it is a watermark or a schema change, which a changefeed writes only with avro-enable-watermark=true. Set "
    "avro-enable-watermark=true in the source's URI, too."
)
_WITHOUT = "Without avro-enable-watermark, the protocol debezium-avro has no"
CAVEATS = (
    f"{_WITHOUT} watermarks: changes are applied only with --until-end, once nothing is written to the topic any more.",
    f"{_WITHOUT} schema changes: tables follow the registered schemas. Dropped, truncated and renamed tables, indexes, defaults, "
    "and the lengths of types are not known.",
)
"""What is weaker than in other protocols, for people."""


@dataclass(frozen=True)
class DebeziumAvroProtocol:
    """A ``KafkaProtocol`` that ``ReadsRanges`` (``headrace.sources.kafka.protocol``)."""

    schemas: RegisteredSchemas
    timed: bool = False
    """Whether the changefeed has ``avro-enable-watermark`` and the TiDB extension."""
    accept_unclear: bool = False
    """Whether values are taken as messages have them that do not show them exactly."""
    name: str = "debezium-avro"
    commit_ts: CommitTsPrecision = CommitTsPrecision.EXACT
    has_keys: bool = True

    @property
    def caveats(self) -> Sequence[str]:
        """See ``KafkaProtocol.caveats``."""
        return () if self.timed else CAVEATS

    def for_range(self, earlier: EarlierMessages) -> DebeziumAvroProtocol:
        """See ``ReadsRanges``. Earlier messages do not matter."""
        return replace(self, schemas=self.schemas.for_a_read())

    def read(self, messages: Messages) -> pa.RecordBatch:
        """See ``KafkaProtocol.read``. Empty messages are left out. Raises SourceUnreachableError."""
        return record_batch(self._rows(messages))

    def _rows(self, messages: Messages) -> Iterator[RecordRow]:
        told = self._about(messages.values)
        shown: set[tuple[str, str, int, int]] = set()
        for number, (offset, value) in enumerate(zip(messages.offsets, messages.values, strict=True)):
            if not value:
                continue
            about = told[number]
            database, table, commit_ts = about.database, about.table, about.commit_ts
            if not self.timed and about.kind is DebeziumKind.ROW:
                ids = schema_id_of(value) or 0, schema_id_of(messages.keys[number]) or 0
                if (database, table, *ids) not in shown:
                    shown.add((database, table, *ids))
                    shape = json.dumps([database, table, commit_ts - 1, *ids]).encode()
                    yield RecordRow(offset, RecordKind.STATEMENT, database, table, commit_ts - 1, shape)
            yield RecordRow(offset, KINDS[about.kind], database, table, commit_ts, about.text)

    def _about(self, values: Sequence[bytes]) -> dict[int, DebeziumAbout]:
        """What messages are about, by their numbers."""
        found: dict[int, DebeziumAbout] = {}
        for schema_id, numbers in by_schema(values).items():
            own = [values[number] for number in numbers]
            record = self.schemas.find(schema_id) if schema_id is not None else ""
            if isinstance(record, Record):
                told = read_about(record, own)
            else:
                told = [_unknown(record or why_unframed(value)) for value in own]
            found |= zip(numbers, told, strict=True)
        return found if self.timed else {number: _untimed(about) for number, about in found.items()}

    def statement(self, value: bytes, partition: str, offset: int) -> StreamStatement:
        """See ``KafkaProtocol.statement``. Raises SourceUnreachableError. The shape in a message lacks members of types."""
        if self.timed:
            found = read_statement_message(self.schemas.record(schema_id_of(value) or 0), value)
            return statement_in_text(found, partition, offset)
        database, table, commit_ts, value_id, key_id = json.loads(value)
        key = self.schemas.record(key_id) if key_id else None
        schema = shape_of(TableId(database, table), self.schemas.record(value_id), key, value_id)
        return StreamStatement(
            commit_ts, database, "", schema.table_id, schema, partition, offset, is_inferred=True, tells_defaults=False
        )

    def decode(self, schema: TableSchema, records: pa.RecordBatch) -> tuple[pa.RecordBatch, Sequence[int]]:
        """See ``KafkaProtocol.decode``. Raises SourceUnreachableError."""
        return rows_of_messages(DebeziumAvroRowReader(schema, self.schemas.record, self.accept_unclear), records)


def _unknown(reason: str) -> DebeziumAbout:
    return DebeziumAbout(DebeziumKind.UNREADABLE, text=as_utf8(reason))


def _untimed(about: DebeziumAbout) -> DebeziumAbout:
    return _unknown(_NOT_TIMED) if about.kind in (DebeziumKind.STATEMENT, DebeziumKind.WATERMARK) else about
