"""What every protocol of TiCDC on Kafka provides: the meaning of messages. Without I/O."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple, Protocol, runtime_checkable

import pyarrow as pa

from headrace.formats.base import DecodeError, SchemaMismatchError
from headrace.formats.compressed_values import likely_bytes
from headrace.formats.statements import TimedStatement
from headrace.model.precision import CommitTsPrecision
from headrace.model.stream import StreamStatement
from headrace.model.table import TableId, TableSchema
from headrace.sources.stream.reader import BadRecordError

_PART_BYTES = 4 << 20


class Messages(NamedTuple):
    """Messages of a partition, in their order."""

    offsets: Sequence[int]
    values: list[bytes]
    """Empty for a tombstone."""
    keys: Sequence[bytes] = ()
    """Only for a protocol that has keys; empty where a message has none."""
    times: Sequence[int | None] = ()
    """The milliseconds since 1970 that Kafka keeps for each message; only for a protocol that has keys."""


def in_parts(messages: Messages) -> Iterator[Messages]:
    """The messages in parts that are read one after another, each of one message or up to 4 MiB of values.

    The values of compressed messages count with the bytes that they likely have when they are read.
    """
    ends = list(accumulate(map(likely_bytes, messages.values)))
    start = 0
    while start < len(ends):
        before = ends[start - 1] if start else 0
        end = max(bisect_right(ends, before + _PART_BYTES), start + 1)
        yield _part(messages, start, end)
        start = end
    if not ends:
        yield messages


def _part(messages: Messages, start: int, end: int) -> Messages:
    offsets, values, keys, times = messages
    return Messages(offsets[start:end], values[start:end], keys[start:end], times[start:end])


class KafkaProtocol(Protocol):
    """How a changefeed writes changes to messages. Picklable."""

    @property
    def name(self) -> str:
        """TiCDC's name of the protocol, as ``protocol=`` has it."""
        ...

    @property
    def commit_ts(self) -> CommitTsPrecision:
        """How exactly messages carry the commit ts."""
        ...

    @property
    def has_keys(self) -> bool:
        """Whether the keys of messages are needed."""
        ...

    @property
    def caveats(self) -> Sequence[str]:
        """What is weaker than with other protocols: a sentence for each thing. Usually empty."""
        ...

    def read(self, messages: Messages) -> pa.RecordBatch:
        """What messages are about, as ``headrace.sources.stream.records.RECORDS``, in their order.

        A message with rows of several tables, or of several commit ts, has a row of the batch for each of them. ``value`` is what
        :meth:`statement` and :meth:`decode` take. Never raises for a bad message: it becomes a record of the kind ``UNKNOWN``.
        """
        ...

    def statement(self, value: bytes, partition: str, offset: int) -> StreamStatement:
        """The schema change of a record of the kind ``STATEMENT``. Raises ValueError if it cannot be read."""
        ...

    def decode(self, schema: TableSchema, records: pa.RecordBatch) -> tuple[pa.RecordBatch, Sequence[int]]:
        """The rows of records of one table; see ``StreamReader.decode``. Raises BadRecordError."""
        ...


def without_watermarks(name: str) -> str:
    """The caveat of a protocol without watermarks, or of one that has none with the settings of the source's URI."""
    return (
        f"With the settings of the source's URI, messages of the protocol {name} carry no watermark and no exact commit ts. "
        "Changes are applied only with --until-end, once nothing is written to the topic any more, and tables are consistent with "
        "each other only then. Have the changefeed write canal-json with enable-tidb-extension=true if changes are to be applied "
        "as they come."
    )


class EarlierMessages(Protocol):
    """The messages of a partition before a range, as far as Kafka still keeps them. What is asked is fetched at once."""

    def backwards(self) -> Iterator[Messages]:
        """Them all, in parts from the last one to the first one, none of them empty, with values only."""
        ...

    def first_since(self, time_ms: int) -> int | None:
        """The offset of the first of them whose time in Kafka is this one or later (ms since 1970); ``None`` for none."""
        ...


@runtime_checkable
class ReadsRanges(Protocol):
    """A :class:`KafkaProtocol` that keeps something while it reads a range.

    For example, the meaning of a message may depend on those before it in its partition.
    """

    def for_range(self, earlier: EarlierMessages) -> KafkaProtocol:
        """The protocol for the messages of one range, which its ``read`` has to be given in their order.

        It may ask for ``earlier`` ones while it reads.
        """
        ...


def statement_in_text(found: TimedStatement, partition: str, offset: int) -> StreamStatement:
    """The schema change of a message that does not tell the table's shape: it follows from the text."""
    table_id = TableId(found.database, found.table)
    return StreamStatement(found.commit_ts, found.database, found.statement, table_id, None, partition, offset, tells_shape=False)


def lacks_column(number: int, name: str) -> BadRecordError:
    """The error for a record (its number among those to decode) with a new row that lacks a column."""
    hint = (
        "If the changefeed selects columns, pass its file with --changefeed. Otherwise the topic may lack a schema change of the "
        "table."
    )
    return BadRecordError(number, f"The message lacks the column {name}.", column=name, hint=hint)


def bad_record(number: int, error: DecodeError, schema: TableSchema) -> BadRecordError:
    """The error for a record (its number among those to decode) that cannot be read."""
    if isinstance(error, SchemaMismatchError) and not error.value:
        message = f"The columns of the row are not those that {schema.table_id} has after its schema changes."
        hint = "The topic may lack a schema change of the table, or the row may be from before one."
        return BadRecordError(number, message, column=error.column, hint=hint)
    return BadRecordError(number, error.message, column=error.column, value=error.value, hint=error.hint)
