"""A topic with canal-JSON as a :class:`headrace.sources.stream.reader.StreamReader`."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.errors import SourceNotReadyError
from headrace.formats.base import DecodeError, SchemaMismatchError
from headrace.formats.canal_envelope import EnvelopeKind, as_line, read_envelopes, read_statement_message
from headrace.formats.canal_json import decode_canal_json
from headrace.formats.canal_rows import ROWS_PER_MESSAGE
from headrace.kafka.client import KafkaClient
from headrace.kafka.settings import KafkaCluster
from headrace.kafka.sizes import bytes_per_record
from headrace.model.block import COMMIT_TS, META_FIELDS, SEQ, block_schema
from headrace.model.cut import Repeats
from headrace.model.stream import PartitionEnds, Range, StreamStatement
from headrace.model.table import TableId, TableSchema
from headrace.sources.kafka.options import KafkaOptions
from headrace.sources.stream.reader import BadRecordError
from headrace.sources.stream.records import RECORDS, RecordKind

_KINDS = {
    EnvelopeKind.ROWS: RecordKind.ROWS,
    EnvelopeKind.STATEMENT: RecordKind.STATEMENT,
    EnvelopeKind.WATERMARK: RecordKind.WATERMARK,
    EnvelopeKind.UNREADABLE: RecordKind.UNKNOWN,
}
_SURPLUS = (
    "A changefeed with partition-num writes only to so many partitions. Set partition-num in the source's URI, too, if this is a "
    "surplus one."
)
_KEYLESS = (
    "The table has no primary key and no unique key of NOT NULL columns. TiCDC may send rows to Kafka again, and without a key a "
    "row that was sent twice looks like two equal rows."
)
_WITH_KEY = (
    "Give the table a key upstream, declare one with --key, or accept rows twice with accept-keyless=true in the source's URI."
)


@dataclass(frozen=True)
class KafkaReader:
    """Reads a topic, on the driver and in tasks. A range is read with a connection of its own."""

    identity: str
    cluster: KafkaCluster
    options: KafkaOptions
    repeats: Repeats = Repeats.CHANGES
    """TiCDC sends the net change of a transaction: of a key at most one deletion and one new row."""
    _sizes: dict[int, float] = field(default_factory=dict, compare=False, repr=False)
    """By partition, the bytes per record, as the first look at it found them."""

    def __reduce__(self) -> tuple[type[KafkaReader], tuple[object, ...]]:
        return KafkaReader, (self.identity, self.cluster, self.options, self.repeats)

    @property
    def whole_transactions(self) -> bool:
        """A transaction has a record for each row."""
        return False

    def require_start(self, after: int) -> None:
        """Nothing is required: a topic's first records do not show what was before them."""

    @cached_property
    def _client(self) -> KafkaClient:
        """The driver's connection, for offsets."""
        return self.cluster.connect()

    def ends(self) -> Sequence[PartitionEnds]:
        """The partitions that the changefeed uses. Raises SourceUnreachableError, SourceNotReadyError.

        The first look at a partition reads a few of its records, to learn how large they are.
        """
        topic, wanted = self.options.topic, self.options.partition_num
        partitions = self._client.partitions(topic)
        if wanted is not None and len(partitions) < wanted:
            raise SourceNotReadyError(
                f"The topic {topic} has {len(partitions)} partitions, and partition-num is {wanted}.",
                "Set partition-num to the number of partitions that the changefeed uses.",
            )
        found = []
        for partition in partitions[:wanted]:
            first, end = self._client.ends(topic, partition)
            if partition not in self._sizes and first < end:
                self._sizes[partition] = bytes_per_record(self._client, topic, partition, first, end)
            size = self._sizes.get(partition, 1.0)
            found.append(PartitionEnds(str(partition), first, end, size, _SURPLUS if wanted is None else ""))
        return found

    def records(self, of: Range) -> Iterator[pa.RecordBatch]:
        """The records of a range. Raises SourceUnreachableError, SourceLostError."""
        with self.cluster.connect() as client:
            for offsets, values in client.fetch_values(self.options.topic, int(of.partition), of.start, of.end):
                yield self._batch(np.array(offsets, np.int64), values)

    def _batch(self, offsets: npt.NDArray[np.int64], values: list[bytes]) -> pa.RecordBatch:
        found = read_envelopes(values, exact=self.options.exact)
        for number, reason in found.reasons.items():
            values[number] = reason.encode()
        columns = [
            pa.array(offsets),
            pa.array([_KINDS.get(EnvelopeKind(kind), RecordKind.UNKNOWN) for kind in found.kinds.tolist()], pa.int8()),
            pa.array(found.databases, pa.string()),
            pa.array(found.tables, pa.string()),
            pa.array(found.commit_ts),
            pa.array(values, pa.binary()),
        ]
        batch = pa.record_batch(columns, schema=RECORDS)
        return batch.filter(pa.array(found.kinds != EnvelopeKind.EMPTY))

    def statement(self, value: bytes, partition: str, offset: int) -> StreamStatement:
        """The schema change of a record. Raises ValueError."""
        found = read_statement_message(value)
        (commit_ts,) = read_envelopes([value], exact=self.options.exact).commit_ts.tolist()
        table_id = TableId(found.database, found.table)
        return StreamStatement(commit_ts, found.database, found.statement, table_id, None, partition, offset, tells_shape=False)

    def decode(
        self, table_id: TableId, schema: TableSchema, records: pa.RecordBatch, other_columns: Collection[str] = ()
    ) -> tuple[pa.RecordBatch, Sequence[int]]:
        """The rows of records. Raises BadRecordError, also for a table without a key unless that is accepted."""
        if not schema.handle_key and not self.options.accept_keyless and records.num_rows:
            raise BadRecordError(0, _KEYLESS, hint=_WITH_KEY)
        lines = []
        for number, value in enumerate(records.column("value").to_pylist()):
            line = as_line(value)
            if line is None:
                raise BadRecordError(number, "The message has line breaks between its parts, which no release of TiCDC writes.")
            lines.append(line)
        try:
            batches = list(decode_canal_json(b"\n".join([*lines, b""]), schema, self.options.canal_json))
        except DecodeError as error:
            raise _bad_record(error, schema) from None
        if not batches:
            return pa.RecordBatch.from_pylist([], schema=block_schema(schema.row_columns)), [0] * len(lines)
        rows = pa.Table.from_batches(batches).combine_chunks()
        (found,) = rows.to_batches()
        messages = found.column(SEQ).to_numpy() // ROWS_PER_MESSAGE
        # Those of the records: without the extension, rows have only their millisecond.
        commit_ts = records.column("commit_ts").take(pa.array(messages))
        found = found.set_column(found.schema.get_field_index(COMMIT_TS), META_FIELDS[1], commit_ts)
        return found, np.bincount(messages, minlength=len(lines)).tolist()


def _bad_record(error: DecodeError, schema: TableSchema) -> BadRecordError:
    number = (error.line or 1) - 1
    if isinstance(error, SchemaMismatchError) and not error.value:
        message = f"The columns of the row are not those that {schema.table_id} has after its schema changes."
        hint = "The topic may lack a schema change of the table, or the row may be from before one."
        return BadRecordError(number, message, column=error.column, hint=hint)
    return BadRecordError(number, error.message, column=error.column, value=error.value, hint=error.hint)
