"""TiCDC's Simple Protocol: a message concerns one row, one statement with the table's shape, or all tables (a watermark).

Each message shows by its first byte whether it has the encoding JSON or Avro.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.ddl.statement import read_statement
from headrace.formats import simple_avro
from headrace.formats.compressed_values import uncompressed_all
from headrace.formats.json_lines import BLANK
from headrace.formats.simple_avro_rows import SimpleAvroRowReader
from headrace.formats.simple_messages import (
    AVRO_UNION,
    SimpleAbout,
    SimpleKind,
    is_avro,
    read_about,
    read_row_heads,
    read_statement_message,
)
from headrace.formats.simple_rows import SimpleRowReader
from headrace.model.precision import CommitTsPrecision
from headrace.model.stream import StreamStatement
from headrace.model.table import TableId, TableSchema
from headrace.model.writable_text import as_utf8
from headrace.sources.kafka.line_records import records_of, rows_of_lines, rows_of_messages
from headrace.sources.kafka.protocol import Messages
from headrace.sources.stream.reader import BadRecordError
from headrace.sources.stream.records import RecordKind, RecordRow, record_batch

_KINDS = {
    SimpleKind.ROW: RecordKind.ROWS,
    SimpleKind.STATEMENT: RecordKind.STATEMENT,
    SimpleKind.WATERMARK: RecordKind.WATERMARK,
    SimpleKind.UNREADABLE: RecordKind.UNKNOWN,
}
_BROKEN_LINE = "it has line breaks between its parts, which no release of TiCDC writes."


@dataclass(frozen=True)
class SimpleProtocol:
    """A :class:`headrace.sources.kafka.protocol.KafkaProtocol`."""

    name: str = "simple"
    has_keys: bool = False
    caveats: Sequence[str] = ()
    commit_ts: CommitTsPrecision = CommitTsPrecision.EXACT

    def read(self, messages: Messages) -> pa.RecordBatch:
        """See ``KafkaProtocol.read``. Empty messages and BOOTSTRAP are left out."""
        return records_of(messages, read_row_heads, self._read_others)

    def _read_others(self, messages: Messages) -> pa.RecordBatch:
        told, damaged = uncompressed_all(messages.values)
        values = [value if is_avro(value) else value.strip(BLANK) for value in told]
        abouts = _abouts(values)
        for number, reason in damaged.items():
            abouts[number] = SimpleAbout(SimpleKind.UNREADABLE, reason=reason)
        rows = []
        for offset, value, about in zip(messages.offsets, values, abouts, strict=True):
            if about.kind is SimpleKind.IGNORED:
                continue
            kind, content = _KINDS[about.kind], value
            if about.kind is SimpleKind.UNREADABLE:
                content = as_utf8(about.reason)
            elif about.kind is SimpleKind.ROW and not is_avro(value) and (b"\n" in value or b"\r" in value):
                kind, content = RecordKind.UNKNOWN, as_utf8(_BROKEN_LINE)
            elif about.large is not None:
                content = about.large.to_value(value)
            rows.append(RecordRow(offset, kind, about.database, about.table, about.commit_ts, content))
        return record_batch(rows)

    def statement(self, value: bytes, partition: str, offset: int) -> StreamStatement:
        """See ``KafkaProtocol.statement``. A change of a database names it only in its text."""
        found = simple_avro.read_statement_message(value) if is_avro(value) else read_statement_message(value)
        if found.schema is not None:
            table_id = found.schema.table_id
        else:
            (table_id,) = read_statement(found.statement, "").tables[:1] or (TableId(""),)
            if not table_id.is_database or not table_id.database:
                raise ValueError("it has no tableSchema and is not a change of a database.")
        return StreamStatement(found.commit_ts, table_id.database, found.statement, table_id, found.schema, partition, offset)

    def decode(self, schema: TableSchema, records: pa.RecordBatch) -> tuple[pa.RecordBatch, Sequence[int]]:
        """See ``KafkaProtocol.decode``."""
        encoded = pc.starts_with(records.column("value"), AVRO_UNION).to_numpy(zero_copy_only=False)
        if not encoded.any():
            return rows_of_lines(SimpleRowReader(schema), records)
        if encoded.all():
            return rows_of_messages(SimpleAvroRowReader(schema), records)
        turn = int(np.argmax(encoded != encoded[0]))  # a changefeed was given the other encoding
        first, count = self.decode(schema, records.slice(0, turn))
        try:
            rest, counts = self.decode(schema, records.slice(turn))
        except BadRecordError as error:
            error.record += turn
            raise
        return pa.concat_batches([first, rest]), [*count, *counts]


def _abouts(values: Sequence[bytes]) -> list[SimpleAbout]:
    encoded = [is_avro(value) for value in values]
    if not any(encoded):
        return read_about(values)
    in_avro = iter(simple_avro.read_about([value for value in values if is_avro(value)]))
    in_json = iter(read_about([value for value in values if not is_avro(value)]))
    return [next(in_avro if is_encoded else in_json) for is_encoded in encoded]
