"""The records of a stream as Arrow columns, and the pieces into which a stage divides them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import IntEnum
from typing import NamedTuple

import pyarrow as pa


class RecordKind(IntEnum):
    """The kinds of records."""

    ROWS = 0
    """Changed rows of one table."""
    STATEMENT = 1
    """A schema change."""
    WATERMARK = 2
    """The promise that everything up to its commit ts is before it in the partition.

    If the writer of the stream restarts, there must be a watermark, of any value, between the last rows that it had written and
    those that it repeats. Otherwise a transaction that is repeated at once looks like one with equal rows, and a table without key
    gets these rows twice."""
    UNKNOWN = 3
    """It cannot be understood. ``value`` is the reason, as UTF-8; the table may be unknown, too.

    If a record has several such parts behind one another for a table, one row stands for them, with the reason of the first."""


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
"""The batches of a :class:`headrace.sources.stream.reader.StreamReader`: one row for each record, in the order of offsets.

A record that concerns several tables has a row for each of them. One with rows that is also a watermark has a row for that behind
them. They have the same offset.

``commit_ts`` is a TSO. A record with a name that no database or table can have counts as ``UNKNOWN``."""


class RecordRow(NamedTuple):
    """A row of :data:`RECORDS`."""

    offset: int
    kind: RecordKind
    database: str
    table: str
    commit_ts: int
    value: bytes


def record_batch(rows: Iterable[RecordRow]) -> pa.RecordBatch:
    """Rows as :data:`RECORDS`. Of ``UNKNOWN`` ones that repeat offset and table, only the first is kept."""
    columns = list(zip(*_without_repeats(rows), strict=True)) or [() for _ in RECORDS]
    return pa.record_batch([pa.array(c, f.type) for c, f in zip(columns, RECORDS, strict=True)], schema=RECORDS)


def _without_repeats(rows: Iterable[RecordRow]) -> Iterator[RecordRow]:
    """A part of a message may have two bytes, and a reason has dozens."""
    told: tuple[int, str, str] | None = None
    for row in rows:
        if row.kind == RecordKind.UNKNOWN:
            if told == (row.offset, row.database, row.table):
                continue
            told = row.offset, row.database, row.table
        yield row


PIECE = pa.schema([("offset", pa.int64()), ("commit_ts", pa.int64()), ("value", pa.binary())])
"""The records of one table, as stored in the work place."""
