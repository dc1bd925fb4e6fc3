"""What a system with streams has to provide; :mod:`headrace.sources.stream.source` makes a source of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

import pyarrow as pa

from headrace.model.cut import Repeats
from headrace.model.stream import PartitionEnds, Range, StreamStatement
from headrace.model.table import TableId, TableSchema


class BadRecordError(Exception):
    """A record whose rows cannot be read: the number of the record in what was to be decoded, and what is wrong with it."""

    def __init__(self, record: int, message: str, *, column: str = "", value: str | None = None, hint: str = "") -> None:
        super().__init__(message)
        self.record, self.message, self.column, self.value, self.hint = record, message, column, value, hint


class StreamReader(Protocol):
    """Records of a stream, on the driver and in tasks. It pickles."""

    @property
    def identity(self) -> str:
        """The stream's name without secrets: the ledger refuses another one."""
        ...

    @property
    def repeats(self) -> Repeats:
        """How repeated changes can be told.

        Never ``TRANSACTIONS``, since what is staged may end inside of a transaction, which may lie in several partitions too. A
        stream in which a transaction changes a key several times says ``UNKNOWN``.
        """
        ...

    def ends(self) -> Sequence[PartitionEnds]:
        """The partitions, and what each has now. Called on the driver, at each poll.

        A new partition has to be named before the others have a watermark above the commit ts of its first record: from then on
        it holds the pipeline's watermark. Where that is not so, its changes below what was applied meanwhile are told, and not
        applied. Reads no record. Raises SourceUnreachableError.
        """
        ...

    def records(self, of: Range) -> Iterator[pa.RecordBatch]:
        """The records of a range in the order of their offsets, as ``headrace.sources.stream.records.RECORDS``.

        Called in tasks. Offsets may be missing (a compacted topic, transaction markers). Raises SourceUnreachableError.
        """
        ...

    def statement(self, value: bytes, partition: str, offset: int) -> StreamStatement:
        """The schema change of a record of the kind ``STATEMENT``. Raises ValueError where it cannot be read."""
        ...

    def decode(self, table_id: TableId, schema: TableSchema, records: pa.RecordBatch) -> tuple[pa.RecordBatch, Sequence[int]]:
        """The rows of records of one table (``headrace.sources.stream.records.PIECE``), and how many each record has.

        The rows have the layout of a block (``headrace.model.block``) but for the place in the source, which is filled in by the
        caller. ``schema`` is the shape in force at their commit ts. Raises BadRecordError for the first record that it cannot read.
        """
        ...
