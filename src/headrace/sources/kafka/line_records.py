"""Records of a stream whose values have a line, or another part, for each changed row."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa

from headrace.formats.alike import RowHeads
from headrace.formats.row_images import BadLineError, LineReader, decode_lines
from headrace.sources.kafka.protocol import Messages, bad_record
from headrace.sources.stream.records import RECORDS, RecordKind


def records_of(
    messages: Messages, read_heads: Callable[[pa.Array], RowHeads], read_others: Callable[[Messages], pa.RecordBatch]
) -> pa.RecordBatch:
    """The records of messages, see ``KafkaProtocol.read``: those of rows that are as their writer writes them by their heads alone.

    ``read_others`` reads the other messages, and those with line breaks.
    """
    values = pa.array(messages.values, pa.binary())
    heads = read_heads(values)
    text = b"".join(messages.values)
    if b"\n" in text or b"\r" in text:
        heads.is_regular[[number for number, value in enumerate(messages.values) if b"\n" in value or b"\r" in value]] = False
    lines = values if heads.lines is None else heads.lines
    kinds = pa.array(np.full(len(values), RecordKind.ROWS, np.int8))
    columns = [pa.array(messages.offsets, pa.int64()), kinds, heads.databases, heads.tables, pa.array(heads.commit_ts), lines]
    rows = pa.record_batch(columns, schema=RECORDS)
    if heads.is_regular.all():
        return rows
    rest = np.flatnonzero(~heads.is_regular).tolist()
    others = read_others(Messages([messages.offsets[number] for number in rest], [messages.values[number] for number in rest]))
    return in_order(rows.filter(pa.array(heads.is_regular)), others)


def in_order(*parts: pa.RecordBatch) -> pa.RecordBatch:
    """Records of different messages in the order of their offsets."""
    together = pa.concat_batches(parts)
    return together.take(pa.array(np.argsort(together.column("offset").to_numpy(), kind="stable")))


def rows_of_lines(reader: LineReader, records: pa.RecordBatch) -> tuple[pa.RecordBatch, Sequence[int]]:
    """The rows of records of one table whose values are lines; see ``StreamReader.decode``. Raises BadRecordError."""
    values = records.column("value").to_pylist()
    if b"\n" not in b"".join(values):
        return rows_of_messages(reader, records)
    parts = [value.split(b"\n") for value in values]
    return rows_of_parts(reader, parts, records.column("commit_ts"))


def rows_of_messages(reader: LineReader, records: pa.RecordBatch) -> tuple[pa.RecordBatch, Sequence[int]]:
    """As :func:`rows_of_lines`, for values that are one change each."""
    try:
        rows, line_of = decode_lines(reader, records.column("value").to_pylist(), records.column("commit_ts").to_numpy())
    except BadLineError as error:
        raise bad_record(error.line, error.error, reader.schema) from None
    return rows, np.bincount(line_of, minlength=records.num_rows).tolist()


def rows_of_parts(
    reader: LineReader, parts: Sequence[Sequence[bytes]], commit_ts: pa.Array
) -> tuple[pa.RecordBatch, Sequence[int]]:
    """The rows of records of one table, of which each has parts for the reader, and a commit ts (int64). Raises BadRecordError."""
    lines = [part for of_record in parts for part in of_record]
    record_of = np.repeat(np.arange(len(parts)), [len(of_record) for of_record in parts])
    try:
        rows, line_of = decode_lines(reader, lines, commit_ts.to_numpy()[record_of])
    except BadLineError as error:
        raise bad_record(int(record_of[error.line]), error.error, reader.schema) from None
    return rows, np.bincount(record_of[line_of], minlength=len(parts)).tolist()
