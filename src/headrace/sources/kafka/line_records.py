"""Records of a stream whose values are lines, or messages, with one changed row each."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.formats.row_images import BadLineError, LineReader, decode_lines
from headrace.sources.kafka.protocol import bad_record


def rows_of_lines(reader: LineReader, records: pa.RecordBatch) -> tuple[pa.RecordBatch, Sequence[int]]:
    """The rows of records of one table whose values are lines; see ``StreamReader.decode``. Raises BadRecordError."""
    values = [value.split(b"\n") for value in records.column("value").to_pylist()]
    lines = [line for of_record in values for line in of_record]
    record_of = np.repeat(np.arange(len(values)), [len(of_record) for of_record in values])
    return _rows(reader, records, lines, record_of)


def rows_of_messages(reader: LineReader, records: pa.RecordBatch) -> tuple[pa.RecordBatch, Sequence[int]]:
    """As :func:`rows_of_lines`, for values that are one change each and no text."""
    return _rows(reader, records, records.column("value").to_pylist(), np.arange(records.num_rows))


def _rows(
    reader: LineReader, records: pa.RecordBatch, lines: Sequence[bytes], record_of: npt.NDArray[np.int64]
) -> tuple[pa.RecordBatch, Sequence[int]]:
    commit_ts = records.column("commit_ts").to_numpy()[record_of]
    try:
        rows, line_of = decode_lines(reader, lines, commit_ts)
    except BadLineError as error:
        raise bad_record(int(record_of[error.line]), error.error, reader.schema) from None
    return rows, np.bincount(record_of[line_of], minlength=records.num_rows).tolist()
