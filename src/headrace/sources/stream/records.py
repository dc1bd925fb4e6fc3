"""The records of a stream as Arrow columns, and the pieces that a stage leaves of them."""

from __future__ import annotations

from enum import IntEnum

import pyarrow as pa


class RecordKind(IntEnum):
    """What a record is."""

    ROWS = 0
    """Changed rows of one table."""
    STATEMENT = 1
    """A schema change."""
    WATERMARK = 2
    """The promise that everything up to its commit ts stands before it in the partition.

    Where what writes the stream begins again, one has to lie between the rows that it had told last and those that it repeats, as
    high or low as it may be. Else a transaction that comes again at once looks like one with equal rows, and of a table without
    key these are there twice.
    """
    UNKNOWN = 3
    """It cannot be understood. ``value`` holds why, as UTF-8; the table may be unknown, too."""


RECORDS = pa.schema(
    [
        ("offset", pa.int64()),
        ("kind", pa.int8()),
        ("database", pa.string()),
        ("table", pa.string()),
        ("commit_ts", pa.int64()),
        ("value", pa.binary()),
    ]
)
"""What a :class:`headrace.sources.stream.StreamReader` gives: a row for each record, in the order of offsets.

``commit_ts`` is a TSO. A record with a name that no database or table can have counts as ``UNKNOWN``."""

PIECE = pa.schema([("offset", pa.int64()), ("commit_ts", pa.int64()), ("value", pa.binary())])
"""The records of one table, as they lie in the work place."""
