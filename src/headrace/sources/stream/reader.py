"""What a streaming system must provide; :mod:`headrace.sources.stream.source` makes a source of it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Protocol

import pyarrow as pa

from headrace.model.backlog import Kept, Needed
from headrace.model.cut import Repeats
from headrace.model.outcome import Notice
from headrace.model.stream import PartitionEnds, Range, StreamStatement
from headrace.model.table import TableId, TableSchema


class BadRecordError(Exception):
    """A record whose rows cannot be read: its number among the records to decode, and the error."""

    def __init__(self, record: int, message: str, *, column: str = "", value: str | None = None, hint: str = "") -> None:
        super().__init__(message)
        self.record, self.message, self.column, self.value, self.hint = record, message, column, value, hint


class StreamReader(Protocol):
    """Records of a stream, on the driver and in tasks. Picklable."""

    @property
    def identity(self) -> str:
        """The stream's name without secrets. The ledger refuses a stream with another name."""
        ...

    @property
    def repeats(self) -> Repeats:
        """How repeated changes can be recognised.

        ``TRANSACTIONS`` only with :attr:`whole_transactions`: otherwise staged data may end inside a transaction, and a transaction
        may be in several partitions. Another stream in which a transaction changes a key several times must return ``UNKNOWN``.
        """
        ...

    @property
    def whole_transactions(self) -> bool:
        """Whether each record of rows holds a whole transaction, and its own commit ts follows it as a watermark.

        Then a record at or below an earlier watermark of its partition is a repeat, and is skipped.
        """
        ...

    @property
    def carries_stored(self) -> bool:
        """Whether rows have the values of stored generated columns."""
        ...

    @property
    def notices(self) -> Sequence[Notice]:
        """What a person should know of the way in which the stream is read, such as a setting that was inferred. Usually empty."""
        ...

    @property
    def unread(self) -> Sequence[Notice]:
        """Records that are not read, as it is configured, although they may be wanted: those that :meth:`ends` met last."""
        ...

    def ends(self) -> Sequence[PartitionEnds]:
        """The partitions with their present offsets. Called on the driver, at each poll.

        A new partition may appear at any time, and is read from its first record. It must be listed before the others have a
        watermark above the commit ts of that record; from then on it limits the pipeline's watermark. Otherwise its changes below
        what was applied meanwhile are reported and not applied. So a reader lists the partitions again after it has read the
        offsets, until there is no new one. Reads no record. Raises SourceUnreachableError.
        """
        ...

    def includes(self, partition: str) -> bool:
        """Whether a partition that was known before still belongs to the stream, as it is configured now.

        One that does not is not waited for, and what was not applied of it is left out. Looks at the configuration only.
        """
        ...

    def kept(self, records: Mapping[str, Needed], ends: Mapping[str, PartitionEnds]) -> Mapping[str, Kept]:
        """By partition, how long the first record at or after a place is kept. Called on the driver, about once a minute.

        ``ends`` are those of all partitions. A partition is left out if the stream does not tell. Raises SourceUnreachableError.
        """
        ...

    def require_start(self, after: int) -> None:
        """Raises SourceLostError if changes above ``after`` (TSO) may not be kept any more. For a pipeline that begins there."""
        ...

    def records(self, of: Range) -> Iterator[pa.RecordBatch]:
        """The records of a range in the order of their offsets, as ``headrace.sources.stream.records.RECORDS``.

        Called in tasks. Offsets may be missing (compacted topics, transaction markers). Raises SourceUnreachableError.
        """
        ...

    def statement(self, value: bytes, partition: str, offset: int) -> StreamStatement:
        """The schema change in a record of the kind ``STATEMENT``. Raises ValueError if it cannot be read."""
        ...

    def decode(
        self, table_id: TableId, schema: TableSchema, records: pa.RecordBatch, other_columns: Collection[str] = ()
    ) -> tuple[pa.RecordBatch, Sequence[int]]:
        """The rows of the first records of one table (``headrace.sources.stream.records.PIECE``), at least of one, and the number
        of rows of each of them. Rows that are much larger than their records are given a few at a time.

        The rows have the layout of a block (``headrace.model.block``) without the place in the source, which the caller adds.
        ``schema`` is the shape in force at their commit ts. ``other_columns`` are the folded names of columns that only the table's
        shape before or after that has: a record may have them while a schema change is under way. Raises BadRecordError for a
        record that cannot be read, whose number may then be that of any; SourceUnreachableError if rows are elsewhere.
        """
        ...
