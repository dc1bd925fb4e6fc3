"""Canal's protobuf protocol: a message holds several rows of any tables, or a statement."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import pyarrow as pa

from headrace.formats.canal import canal_pb2 as pb
from headrace.formats.canal.messages import CanalKind, read_entries, read_statement_entry
from headrace.formats.canal.rows import CanalRowReader
from headrace.model.precision import CommitTsPrecision
from headrace.model.stream import StreamStatement
from headrace.model.table import TableSchema
from headrace.sources.kafka.line_records import rows_of_parts
from headrace.sources.kafka.protocol import Messages, statement_in_text, without_watermarks
from headrace.sources.stream.records import RecordKind, RecordRow, record_batch

_KINDS = {
    CanalKind.ROWS: RecordKind.ROWS,
    CanalKind.STATEMENT: RecordKind.STATEMENT,
    CanalKind.UNREADABLE: RecordKind.UNKNOWN,
}


@dataclass(frozen=True)
class CanalProtocol:
    """A :class:`headrace.sources.kafka.protocol.KafkaProtocol`."""

    time_zone: str = "UTC"
    name: str = "canal"
    has_keys: bool = False
    caveats: Sequence[str] = (without_watermarks("canal"),)
    commit_ts: CommitTsPrecision = CommitTsPrecision.MILLISECOND

    def read(self, messages: Messages) -> pa.RecordBatch:
        """See ``KafkaProtocol.read``. ``value`` is a ``Messages`` of the ``RowChange`` of one table and commit ts."""
        placed = zip(messages.offsets, messages.values, strict=True)
        return record_batch(row for offset, value in placed if value for row in _rows(offset, value))

    def statement(self, value: bytes, partition: str, offset: int) -> StreamStatement:
        """See ``KafkaProtocol.statement``. Messages do not tell a table's shape."""
        return statement_in_text(read_statement_entry(value), partition, offset)

    def decode(self, schema: TableSchema, records: pa.RecordBatch) -> tuple[pa.RecordBatch, Sequence[int]]:
        """See ``KafkaProtocol.decode``."""
        parts = [pb.Messages.FromString(value).messages for value in records.column("value").to_pylist()]
        return rows_of_parts(CanalRowReader(schema, self.time_zone), parts, records.column("commit_ts"))


def _rows(offset: int, value: bytes) -> Iterator[RecordRow]:
    """The rows of ``RECORDS`` of a message: one for consecutive rows of one table and commit ts."""
    for (kind, database, table, ts), group in groupby(read_entries(value), lambda e: (e.kind, e.database, e.table, e.commit_ts)):
        contents = (entry.content for entry in group)
        for content in [pb.Messages(messages=contents).SerializeToString()] if kind is CanalKind.ROWS else contents:
            yield RecordRow(offset, _KINDS[kind], database, table, ts, content)
