"""Records of a stream whose values have a line, or another part, for each changed row."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from headrace.formats.row_images import BadLineError, LineReader, decode_lines
from headrace.sources.kafka.protocol import bad_record


def rows_of_lines(reader: LineReader, records: pa.RecordBatch) -> tuple[pa.RecordBatch, Sequence[int]]:
    """The rows of records of one table whose values are lines; see ``StreamReader.decode``. Raises BadRecordError."""
    parts = [value.split(b"\n") for value in records.column("value").to_pylist()]
    return rows_of_parts(reader, parts, records.column("commit_ts"))


def rows_of_messages(reader: LineReader, records: pa.RecordBatch) -> tuple[pa.RecordBatch, Sequence[int]]:
    """As :func:`rows_of_lines`, for values that are one change each and no text."""
    return rows_of_parts(reader, [[value] for value in records.column("value").to_pylist()], records.column("commit_ts"))


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
