"""TiCDC's protocol ``avro``: the key and the value of a message are each written with a schema of a registry.

It is TiCDC's weakest protocol. Only with ``avro-enable-watermark`` and the TiDB extension are there schema changes, watermarks, and
deletions with a commit ts. Otherwise a deletion is a key without a value, and the order of a partition is all that tells what came
first: the time that Kafka keeps for each record then stands for its commit ts, and the registered schemas for schema changes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from headrace.ddl.statement import StatementKind, read_statement
from headrace.formats.avro.columns import read_sound
from headrace.formats.avro.schema import Record
from headrace.formats.json_lines import integer_of, read_object, text_of
from headrace.formats.schema_file import with_escapes
from headrace.formats.statements import TimedStatement
from headrace.formats.ticdc_avro import COMMIT_TS, is_certain, is_long, shape_of, table_in_avro, table_of
from headrace.formats.ticdc_avro_rows import DELETION, TicdcAvroRowReader
from headrace.model.precision import CommitTsPrecision
from headrace.model.stream import StreamStatement
from headrace.model.table import TableId, TableSchema
from headrace.model.tso import LOGICAL_BITS, MAX_TSO
from headrace.model.writable_text import as_utf8
from headrace.sources.kafka.line_records import rows_of_messages
from headrace.sources.kafka.protocol import EarlierMessages, Messages, statement_in_text
from headrace.sources.kafka.registered import FRAME, RegisteredSchemas, by_schema, schema_id_of, why_unframed
from headrace.sources.kafka.time_order import TimeOrder
from headrace.sources.stream.records import RecordKind, RecordRow, record_batch

_STATEMENT, _WATERMARK, _TIMED_DELETION = 1, 2, 3
_TIMED_BYTES = 9
_SHAPE = struct.Struct(">BQII")
"""The statement that schemas stand for: a zero, the commit ts, and the ids of the value's and the key's schema (0 for no key)."""
_NOT_TIMED = (
    "it is a watermark, a schema change or a deletion with a commit ts, which a changefeed writes only with "
    "avro-enable-watermark=true. Set avro-enable-watermark=true in the source's URI, too."
)
_NO_TIME = (
    "it carries no commit ts. Set enable-tidb-extension=true and avro-enable-watermark=true in the changefeed's sink URI, or "
    "leave avro-enable-watermark out of the source's."
)
_NOTHING = "it has neither a key nor a value, as the deletion of a row without a key has. Its table and its row are not known."
_EARLIER = (
    "Kafka keeps an earlier time for it than for a record before it, so it is not known which of them came first. Set "
    "message.timestamp.type=LogAppendTime for the topic, and load the table anew."
)
_OTHER_NAME = (
    "rows of the table {table_id} have the name {told} in Avro, and do not show of which table they are. Leave {table_id} out of "
    "the changefeed with a filter rule, or rename it upstream."
)
_WITHOUT_ROWS = frozenset(
    {
        StatementKind.CREATE_DATABASE,
        StatementKind.ALTER_DATABASE,
        StatementKind.DROP_DATABASE,
        StatementKind.DROP_TABLE,
        StatementKind.CREATE_VIEW,
        StatementKind.DROP_VIEW,
    }
)
"""Schema changes behind which no rows of their tables follow."""
_WITHOUT = "Without avro-enable-watermark, the protocol avro has no"
CAVEATS = (
    f"{_WITHOUT} watermarks: changes are applied only with --until-end, once nothing is written to the topic any more.",
    f"{_WITHOUT} commit ts for deletions: changes are applied in the order of the times that Kafka keeps for records, and tables "
    "are consistent with each other only at the end.",
    f"{_WITHOUT} schema changes: tables follow the registered schemas. Dropped, truncated and renamed tables, indexes, and the "
    "lengths of types are not known.",
)
"""What is weaker than in other protocols, for people."""


@dataclass(frozen=True)
class AvroProtocol:
    """A ``KafkaProtocol`` that ``ReadsRanges`` (``headrace.sources.kafka.protocol``)."""

    schemas: RegisteredSchemas
    timed: bool = False
    """Whether the changefeed has ``avro-enable-watermark`` and the TiDB extension."""
    time_zone: str = "UTC"
    name: str = "avro"
    has_keys: bool = True
    _times: TimeOrder | None = field(default=None, compare=False)
    """The times of what was before the messages that are read next; ``None``: each time nothing."""

    @property
    def commit_ts(self) -> CommitTsPrecision:
        """See ``KafkaProtocol.commit_ts``."""
        return CommitTsPrecision.EXACT if self.timed else CommitTsPrecision.MILLISECOND

    @property
    def caveats(self) -> Sequence[str]:
        """See ``KafkaProtocol.caveats``."""
        return () if self.timed else CAVEATS

    def for_range(self, earlier: EarlierMessages) -> AvroProtocol:
        """See ``ReadsRanges``. The times of earlier messages matter, unless messages have a commit ts."""
        times = None if self.timed else TimeOrder(lambda time_ms: earlier.first_since(time_ms + 1) is not None)
        return replace(self, schemas=self.schemas.for_a_read(), _times=times)

    def read(self, messages: Messages) -> pa.RecordBatch:
        """See ``KafkaProtocol.read``. Raises SourceUnreachableError."""
        return record_batch(self._rows(messages))

    def _rows(self, messages: Messages) -> Iterator[RecordRow]:
        told = _Told(self.schemas, messages.keys, messages.values, timed=self.timed)
        shown: set[tuple[int, int]] = set()
        times = TimeOrder() if self._times is None else self._times
        for number, (offset, value) in enumerate(zip(messages.offsets, messages.values, strict=True)):
            key, time = messages.keys[number], messages.times[number]
            is_earlier = not self.timed and time is not None and times.take(time)
            if not value and not key:
                yield RecordRow(offset, RecordKind.UNKNOWN, "", "", 0, as_utf8(_NOTHING))
                continue
            if self.timed and value[:1] != b"\0":
                row = _timed(offset, key, value, told.record(key))
                if row.kind is RecordKind.STATEMENT:
                    yield from _unclear_names(row)
                yield row
                continue
            found = told.row(number)
            if isinstance(found, _Unknown):
                yield RecordRow(offset, RecordKind.UNKNOWN, found.database, found.table, 0, as_utf8(found.reason))
                continue
            if self.timed:
                yield RecordRow(offset, RecordKind.ROWS, found.database, found.table, told.commit_ts[number], value)
                continue
            if time is None or is_earlier or time > MAX_TSO >> LOGICAL_BITS:
                reason = _EARLIER if is_earlier else "Kafka keeps no time for it that a commit ts can have."
                yield RecordRow(offset, RecordKind.UNKNOWN, found.database, found.table, 0, as_utf8(reason))
                continue
            commit_ts, ids = time << LOGICAL_BITS, (schema_id_of(value), schema_id_of(key) or 0)
            if ids[0] is not None and ids not in shown:
                shown.add((ids[0], ids[1]))
                shape = _SHAPE.pack(0, commit_ts - 1, *ids)
                yield RecordRow(offset, RecordKind.STATEMENT, found.database, found.table, commit_ts - 1, shape)
            yield RecordRow(offset, RecordKind.ROWS, found.database, found.table, commit_ts, value or DELETION + key)

    def statement(self, value: bytes, partition: str, offset: int) -> StreamStatement:
        """See ``KafkaProtocol.statement``. Raises SourceUnreachableError."""
        if value[:1] == bytes([_STATEMENT]):
            return _statement(value[1:], partition, offset)
        _, commit_ts, value_id, key_id = _SHAPE.unpack(value)
        schema = shape_of(self.schemas.record(value_id), self.schemas.record(key_id) if key_id else None, value_id)
        table_id, (topic, _, _) = schema.table_id, partition.rpartition("/")
        if not is_certain(table_id):  # TiCDC has a topic for each table
            schema = replace(schema, named_in=f"the topic {topic}" if topic else "the default topic")
        return StreamStatement(commit_ts, table_id.database, "", table_id, schema, partition, offset, is_inferred=True)

    def decode(self, schema: TableSchema, records: pa.RecordBatch) -> tuple[pa.RecordBatch, Sequence[int]]:
        """See ``KafkaProtocol.decode``. Raises SourceUnreachableError."""
        return rows_of_messages(TicdcAvroRowReader(schema, self.schemas.record, self.time_zone, self.timed), records)


@dataclass(frozen=True)
class _Unknown:
    """Why a message cannot be read, and its table as far as that is known."""

    reason: str
    database: str = ""
    table: str = ""


class _Told:
    """What the schemas of messages tell of them. Each schema is looked for once."""

    def __init__(self, schemas: RegisteredSchemas, keys: Sequence[bytes], values: Sequence[bytes], *, timed: bool) -> None:
        self._schemas, self._keys, self._values = schemas, keys, values
        self._found: dict[int, Record | str] = {}
        self._tables: dict[int, TableId] = {}
        self.commit_ts: dict[int, int] = {}
        """By number of the message; only if messages have one."""
        self._bad: dict[int, str] = {}
        if timed:
            for schema_id, numbers in by_schema(values).items():
                record = self._of_id(schema_id) if schema_id is not None else ""
                if isinstance(record, Record):
                    self._read_times(record, numbers)

    def _of_id(self, schema_id: int) -> Record | str:
        if schema_id not in self._found:
            self._found[schema_id] = self._schemas.find(schema_id)
        return self._found[schema_id]

    def record(self, message: bytes) -> Record | str:
        """The record with which a message was written, or why that is not known."""
        schema_id = schema_id_of(message)
        if schema_id is None:
            return why_unframed(message)
        return self._of_id(schema_id)

    def row(self, number: int) -> TableId | _Unknown:
        """The table of a message with a row."""
        message = self._values[number] or self._keys[number]
        if message[0] == _STATEMENT or (len(message) == _TIMED_BYTES and message[0] in (_WATERMARK, _TIMED_DELETION)):
            return _Unknown(_NOT_TIMED)
        record = self.record(message)
        if isinstance(record, str):
            return _Unknown(record)
        table_id = table_of(record)
        if not table_id.database or not table_id.table:
            return _Unknown("its schema does not name its table.")
        if number in self._bad:
            return _Unknown(self._bad[number], table_id.database, table_id.table)
        return table_id

    def _read_times(self, record: Record, numbers: Sequence[int]) -> None:
        """The commit ts of messages that were written with one schema."""
        if not is_long(record.field(COMMIT_TS)):
            self._bad |= dict.fromkeys(numbers, _NO_TIME)
            return
        found = read_sound(record, [self._values[number] for number in numbers], skip=FRAME, wanted={COMMIT_TS})
        for place, error in found.bad.items():
            self._bad[numbers[place]] = f"it cannot be read: in {error.field or 'it'}, {error.reason}."
        for place, commit_ts in zip(found.numbers, found.rows.field(COMMIT_TS).to_pylist(), strict=True):
            if 1 <= commit_ts <= MAX_TSO:
                self.commit_ts[numbers[place]] = commit_ts
            else:
                self._bad[numbers[place]] = f"{COMMIT_TS} is {commit_ts}, which is not a commit ts."


def _timed(offset: int, key: bytes, value: bytes, record: Record | str) -> RecordRow:
    """A message that only a changefeed with ``avro-enable-watermark`` writes; ``record`` is that of the key."""
    if not value:
        named = table_of(record) if isinstance(record, Record) else TableId("")
        return RecordRow(offset, RecordKind.UNKNOWN, named.database, named.table, 0, as_utf8(_NO_TIME))
    commit_ts = int.from_bytes(value[1:_TIMED_BYTES], "big") if len(value) == _TIMED_BYTES else 0
    reason = ""
    if value[0] == _STATEMENT:
        try:
            told = _statement(value[1:], "", offset)
        except ValueError as error:
            reason = f"the schema change cannot be read: {error}"
        else:
            return RecordRow(offset, RecordKind.STATEMENT, told.database, told.table_id.table, told.commit_ts, value)
    elif value[0] == _WATERMARK and 1 <= commit_ts <= MAX_TSO:
        return RecordRow(offset, RecordKind.WATERMARK, "", "", commit_ts, b"")
    elif value[0] == _TIMED_DELETION and 1 <= commit_ts <= MAX_TSO:
        if isinstance(record, Record):
            table_id = table_of(record)
            return RecordRow(offset, RecordKind.ROWS, table_id.database, table_id.table, commit_ts, DELETION + key)
        reason = record
    reason = reason or why_unframed(value)
    return RecordRow(offset, RecordKind.UNKNOWN, "", "", 0, as_utf8(reason))


def _unclear_names(statement: RecordRow) -> Iterator[RecordRow]:
    """A record for each name that rows of a table of a schema change have, if it is not the table's: there may be another one."""
    found = _statement(statement.value[1:], "", statement.offset)
    read = read_statement(found.statement, found.database)
    if read.kind in _WITHOUT_ROWS:
        return
    for table_id in dict.fromkeys(read.named):
        told = table_in_avro(table_id)
        if told != table_id:
            reason = as_utf8(_OTHER_NAME.format(table_id=table_id, told=told))
            yield RecordRow(statement.offset, RecordKind.UNKNOWN, told.database, told.table, 0, reason)


def _statement(text: bytes, partition: str, offset: int) -> StreamStatement:
    """A schema change in JSON. Raises ValueError, the end of a sentence."""
    told = read_object(text)
    commit_ts, query, database = integer_of(told.get("commitTs"), 1, MAX_TSO), text_of(told, "query"), text_of(told, "schema")
    if commit_ts is None or not query or not database:
        raise ValueError("it has no commitTs, no query or no schema.")
    found = TimedStatement(commit_ts, database, text_of(told, "table") or "", with_escapes(query))
    return statement_in_text(found, partition, offset)
