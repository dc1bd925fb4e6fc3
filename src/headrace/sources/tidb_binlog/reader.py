"""A Drainer's topic as a :class:`headrace.sources.stream.reader.StreamReader`.

Only partition 0 is used. Each record is one transaction or one DDL job, and promises that no new transaction below its commit ts
follows: Drainer sends them in the order of their commit ts, and begins again at an earlier one when it restarts.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import pyarrow as pa

from headrace.ddl.statement import StatementKind, read_statement
from headrace.formats.base import DecodeError
from headrace.formats.binlog.by_table import by_table
from headrace.formats.binlog.columns import SEQ_PER_MUTATION, BinlogBatch
from headrace.formats.binlog.errors import BinlogError
from headrace.formats.binlog.messages import read_binlog
from headrace.formats.binlog.wire import peek_commit_ts
from headrace.kafka.client import KafkaClient
from headrace.kafka.gaps import lost_start
from headrace.kafka.retention import Retentions
from headrace.kafka.settings import KafkaCluster
from headrace.kafka.sizes import bytes_per_record
from headrace.model.backlog import Kept, Needed
from headrace.model.block import SEQ
from headrace.model.cut import Repeats
from headrace.model.outcome import Notice
from headrace.model.stream import PartitionEnds, Range, StreamStatement
from headrace.model.table import TableId, TableSchema
from headrace.model.tso import MAX_TSO
from headrace.model.writable_text import as_utf8
from headrace.sources.stream.reader import BadRecordError
from headrace.sources.stream.records import RecordKind, RecordRow, record_batch
from headrace.sources.tidb_binlog.options import BinlogOptions

PARTITION = 0
_FIRST_RECORDS = 10_000
"""How many records at the beginning of a topic are looked at for its oldest commit ts."""
_NO_TIME = "it has no commit ts of a transaction."


@dataclass(frozen=True)
class BinlogReader:
    """Reads a topic, on the driver and in tasks. A range is read with a connection of its own."""

    identity: str
    cluster: KafkaCluster
    options: BinlogOptions
    _sizes: list[float] = field(default_factory=list, compare=False, repr=False)
    """The bytes per record, as the first look at the topic found them."""
    _retentions: Retentions = field(default_factory=Retentions, compare=False, repr=False)

    def __reduce__(self) -> tuple[type[BinlogReader], tuple[object, ...]]:
        return BinlogReader, (self.identity, self.cluster, self.options)

    @property
    def repeats(self) -> Repeats:
        """A record is a whole transaction, which may change a row several times."""
        return Repeats.TRANSACTIONS

    @property
    def whole_transactions(self) -> bool:
        """Drainer repeats whole records, and only those below what it has sent before."""
        return True

    @property
    def carries_stored(self) -> bool:
        """In updates Drainer sends NULL for all generated columns."""
        return False

    @property
    def notices(self) -> Sequence[Notice]:
        """Always empty."""
        return ()

    @property
    def unread(self) -> Sequence[Notice]:
        """Always empty: all records of the topic are read."""
        return ()

    @cached_property
    def _client(self) -> KafkaClient:
        """The driver's connection, for offsets."""
        return self.cluster.connect()

    def ends(self) -> Sequence[PartitionEnds]:
        """The one partition. Raises SourceUnreachableError, SourceNotReadyError.

        The first look at it reads a few of its records, to learn how large they are.
        """
        self._client.partitions(self.options.topic)
        first, end = self._client.ends(self.options.topic, PARTITION)
        if not self._sizes and first < end:
            self._sizes.append(bytes_per_record(self._client, self.options.topic, PARTITION, first, end))
        topic_id = self._client.topic_ids([self.options.topic])[self.options.topic]
        return [PartitionEnds(str(PARTITION), first, end, self._sizes[0] if self._sizes else 1.0, topic_id)]

    def includes(self, partition: str) -> bool:
        """See ``StreamReader.includes``."""
        return partition == str(PARTITION)

    def kept(self, records: Mapping[str, Needed], ends: Mapping[str, PartitionEnds]) -> Mapping[str, Kept]:
        """See ``StreamReader.kept``."""
        return self._retentions.kept(self._client, records, dict.fromkeys(records, (self.options.topic, PARTITION)), ends)

    def require_start(self, after: int) -> None:
        """Raises SourceLostError if the first record of a topic that has lost records is above ``after`` (TSO), or it has none."""
        first, end = self._client.ends(self.options.topic, PARTITION)
        if self.options.allow_gap or first == 0:
            return
        oldest = self._oldest(first, end) if first < end else None
        if first == end or (oldest is not None and oldest[1] > after):
            raise lost_start(f"The topic {self.options.topic}", end, oldest, after)

    def _oldest(self, first: int, end: int) -> tuple[int, int] | None:
        """Offset and commit ts (TSO) of the first record that can be read; ``None`` if there is none among many."""
        for offsets, values in self._client.fetch_values(self.options.topic, PARTITION, first, min(end, first + _FIRST_RECORDS)):
            for offset, value in zip(offsets, values, strict=True):
                with suppress(DecodeError):
                    return offset, peek_commit_ts(value)
        return None

    def records(self, of: Range) -> Iterator[pa.RecordBatch]:
        """The records of a range. Raises SourceUnreachableError, SourceLostError."""
        with self.cluster.connect() as client:
            for offsets, values in client.fetch_values(self.options.topic, PARTITION, of.start, of.end):
                yield record_batch(_rows(offsets, values))

    def statement(self, value: bytes, partition: str, offset: int) -> StreamStatement:
        """The schema change of a record. Raises ValueError."""
        try:
            message = read_binlog(value)
            assert message.ddl is not None, "the record was found to have a statement"
            text = message.ddl.text
        except DecodeError as error:
            raise ValueError(error.message) from None
        table_id = message.ddl.table_id
        read = read_statement(text, "")
        if read.kind in (StatementKind.DROP_TABLE, StatementKind.DROP_VIEW) and len(read.tables) > 1:
            # There is a record for each of the tables, with the whole statement.
            text = f"DROP {'TABLE' if read.kind is StatementKind.DROP_TABLE else 'VIEW'} {table_id.quoted}"
        return StreamStatement(
            message.commit_ts,
            table_id.database,
            text,
            table_id,
            None,
            partition,
            offset,
            tells_shape=False,
            current_is_known=read.shows_current,
            carries_stored=self.carries_stored,
        )

    def decode(
        self, table_id: TableId, schema: TableSchema, records: pa.RecordBatch, other_columns: Collection[str] = ()
    ) -> tuple[pa.RecordBatch, Sequence[int]]:
        """The rows of records. Raises BadRecordError."""
        if generated := next((name for name in schema.handle_key if schema.column(name).generated is not None), None):
            message = f"the table's key has the generated column {generated}, whose values a binlog does not have in updates."
            raise BadRecordError(0, message, column=generated, hint="Leave the table out with --tables, or declare another key.")
        first = 0
        try:
            batch = BinlogBatch(records.column("value").to_pylist())
            parts = []
            for rows in batch.tables:
                first = int(rows.messages[0])
                parts.append(rows.block(schema, 0, self.options.values, other_columns).batch)
        except DecodeError as error:
            number = error.message_number if isinstance(error, BinlogError) else None
            raise BadRecordError(
                first if number is None else number, error.message, column=error.column, value=error.value, hint=error.hint
            ) from None
        (result,) = pa.Table.from_batches(parts).sort_by(SEQ).combine_chunks().to_batches()
        mutations = result.column(SEQ).to_numpy() // SEQ_PER_MUTATION
        messages = np.searchsorted(batch.first_mutation, mutations, side="right") - 1
        return result, np.bincount(messages, minlength=len(batch)).tolist()


def _rows(offsets: list[int], values: list[bytes]) -> Iterator[RecordRow]:
    """The rows of ``RECORDS`` of these messages. One that cannot be read does not keep others from being read together."""
    while values:
        try:
            batch, bad = BinlogBatch(values), None
        except BinlogError as error:
            batch, bad = BinlogBatch(values[: error.message_number or 0]), error
        count = len(batch)
        yield from _read_rows(offsets[:count], values[:count], batch)
        if bad is not None:
            yield RecordRow(offsets[count], RecordKind.UNKNOWN, "", "", 0, as_utf8(bad.message))
            count += 1
        offsets, values = offsets[count:], values[count:]


def _read_rows(offsets: list[int], values: list[bytes], batch: BinlogBatch) -> Iterator[RecordRow]:
    tables: list[set[TableId]] = [set() for _ in values]
    for rows in batch.tables:
        for number in rows.messages.tolist():
            tables[number].add(rows.table_id)
    for number, (offset, value, commit_ts) in enumerate(zip(offsets, values, batch.commit_ts.tolist(), strict=True)):
        if not 0 < commit_ts <= MAX_TSO:
            yield RecordRow(offset, RecordKind.UNKNOWN, "", "", 0, as_utf8(_NO_TIME))
            continue
        if (ddl := batch.statements.get(number)) is not None:
            yield RecordRow(offset, RecordKind.STATEMENT, ddl.table_id.database, ddl.table_id.table, commit_ts, value)
        of_tables = by_table(value) if len(tables[number]) > 1 else dict.fromkeys(tables[number], value)
        for table_id, part in of_tables.items():
            yield RecordRow(offset, RecordKind.ROWS, table_id.database, table_id.table, commit_ts, part)
        yield RecordRow(offset, RecordKind.WATERMARK, "", "", commit_ts, b"")
