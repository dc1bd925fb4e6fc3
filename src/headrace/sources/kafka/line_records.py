"""Records of a stream whose values are lines, one for each changed row."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from headrace.formats.row_images import BadLineError, LineReader, decode_lines
from headrace.sources.kafka.protocol import bad_record


def rows_of_lines(reader: LineReader, records: pa.RecordBatch) -> tuple[pa.RecordBatch, Sequence[int]]:
    """The rows of records of one table whose values are lines; see ``StreamReader.decode``. Raises BadRecordError."""
    values = [value.split(b"\n") for value in records.column("value").to_pylist()]
    lines = [line for of_record in values for line in of_record]
    record_of = np.repeat(np.arange(len(values)), [len(of_record) for of_record in values])
    commit_ts = records.column("commit_ts").to_numpy()[record_of]
    try:
        rows, line_of = decode_lines(reader, lines, commit_ts)
    except BadLineError as error:
        raise bad_record(int(record_of[error.line]), error.error, reader.schema) from None
    return rows, np.bincount(record_of[line_of], minlength=len(values)).tolist()
