"""A topic that a changefeed writes to as a :class:`headrace.sources.stream.reader.StreamReader`."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import pyarrow as pa

from headrace.errors import SourceLostError, SourceNotReadyError
from headrace.kafka.client import KafkaClient
from headrace.kafka.settings import KafkaCluster
from headrace.kafka.sizes import bytes_per_record
from headrace.model.cut import Repeats
from headrace.model.outcome import Notice
from headrace.model.stream import PartitionEnds, Range, StreamStatement
from headrace.model.table import TableId, TableSchema
from headrace.sources.kafka.options import PROTOCOLS, KafkaOptions
from headrace.sources.kafka.protocol import KafkaProtocol, Messages
from headrace.sources.kafka.protocols import detected, protocol_of, undetected
from headrace.sources.stream.reader import BadRecordError

_FIRST_MESSAGES = 100
"""How many messages at the beginning of a partition are looked at for the protocol."""
_SURPLUS = (
    "A changefeed with partition-num writes only to so many partitions. Set partition-num in the source's URI, too, if this is a "
    "surplus one."
)
_KEYLESS = (
    "The table has no primary key and no unique key of NOT NULL columns. TiCDC may send rows to Kafka again, and without a key a "
    "row that was sent twice looks like two equal rows."
)
_WITH_KEY = (
    "Give the table a key upstream, declare one with --key, or accept rows twice with accept-keyless=true in the source's URI."
)


@dataclass(frozen=True)
class KafkaReader:
    """Reads a topic, on the driver and in tasks. A range is read with a connection of its own."""

    identity: str
    cluster: KafkaCluster
    options: KafkaOptions
    repeats: Repeats = Repeats.CHANGES
    """TiCDC sends the net change of a transaction: of a key at most one deletion and one new row."""
    _sizes: dict[int, float] = field(default_factory=dict, compare=False, repr=False)
    """By partition, the bytes per record, as the first look at it found them."""
    _detected: list[str] = field(default_factory=list, compare=False, repr=False)
    """The name of the protocol, once the topic's first messages have shown it."""

    def __reduce__(self) -> tuple[type[KafkaReader], tuple[object, ...]]:
        # Tasks get the detected protocol with the reader, so that each of them does not detect it again.
        options = replace(self.options, protocol=self._protocol_name)
        return KafkaReader, (self.identity, self.cluster, options, self.repeats)

    @property
    def _protocol_name(self) -> str:
        """Empty if neither the options nor messages have shown it so far."""
        return self.options.protocol or (self._detected[0] if self._detected else "")

    @cached_property
    def protocol(self) -> KafkaProtocol:
        """How messages are read.

        If the options do not say it, the first messages show it. Raises SourceUnreachableError, and SourceNotReadyError if there is
        no message yet or none shows it.
        """
        if not self._protocol_name:
            self._detected.append(self._detect())
        return protocol_of(self._protocol_name, self.options)

    def _detect(self) -> str:
        topic = self.options.topic
        for partition in self._client.partitions(topic)[: self.options.partition_num]:
            first, end = self._client.ends(topic, partition)
            try:
                for messages in self._client.fetch(topic, partition, first, min(end, first + _FIRST_MESSAGES)):
                    if name := detected(messages):
                        return name
            except SourceLostError:
                pass  # removed in this moment
        raise undetected(topic, PROTOCOLS)

    @property
    def notices(self) -> Sequence[Notice]:
        """See ``StreamReader.notices``."""
        if not self._detected:
            return ()
        told = (
            f"The source's URI names no protocol. The messages of the topic {self.options.topic} show protocol={self._detected[0]}."
        )
        return (Notice(told),)

    @property
    def whole_transactions(self) -> bool:
        """A transaction has a record for each row."""
        return False

    def require_start(self, after: int) -> None:
        """Nothing is required: a topic's first records do not show what was before them."""

    @cached_property
    def _client(self) -> KafkaClient:
        """The driver's connection, for offsets."""
        return self.cluster.connect()

    def ends(self) -> Sequence[PartitionEnds]:
        """The partitions that the changefeed uses. Raises SourceUnreachableError, SourceNotReadyError.

        The first look at a partition reads a few of its records, to learn how large they are.
        """
        topic, wanted = self.options.topic, self.options.partition_num
        partitions = self._client.partitions(topic)
        if wanted is not None and len(partitions) < wanted:
            raise SourceNotReadyError(
                f"The topic {topic} has {len(partitions)} partitions, and partition-num is {wanted}.",
                "Set partition-num to the number of partitions that the changefeed uses.",
            )
        found, topic_id = [], self._client.topic_id(topic)
        for partition in partitions[:wanted]:
            first, end = self._client.ends(topic, partition)
            if partition not in self._sizes and first < end:
                self._sizes[partition] = bytes_per_record(self._client, topic, partition, first, end)
                _ = self.protocol  # what a task must know, and a topic without a protocol is an error at once
            size = self._sizes.get(partition, 1.0)
            found.append(PartitionEnds(str(partition), first, end, size, topic_id, _SURPLUS if wanted is None else ""))
        return found

    def records(self, of: Range) -> Iterator[pa.RecordBatch]:
        """The records of a range. Raises SourceUnreachableError, SourceLostError."""
        with self.cluster.connect() as client:
            fetched = _fetched(client, self.options.topic, of, with_keys=self.protocol.has_keys)
            yield from map(self.protocol.read, fetched)

    def statement(self, value: bytes, partition: str, offset: int) -> StreamStatement:
        """The schema change of a record. Raises ValueError."""
        return self.protocol.statement(value, partition, offset)

    def decode(
        self, table_id: TableId, schema: TableSchema, records: pa.RecordBatch, other_columns: Collection[str] = ()
    ) -> tuple[pa.RecordBatch, Sequence[int]]:
        """The rows of records. Raises BadRecordError, also for a table without a key unless that is accepted.

        TiCDC writes a row in the shape that is in force at its commit ts, so it never has ``other_columns``.
        """
        if not schema.handle_key and not self.options.accept_keyless and records.num_rows:
            raise BadRecordError(0, _KEYLESS, hint=_WITH_KEY)
        return self.protocol.decode(schema, records)


def _fetched(client: KafkaClient, topic: str, of: Range, *, with_keys: bool) -> Iterator[Messages]:
    place = (topic, int(of.partition), of.start, of.end)
    if not with_keys:
        yield from (Messages(offsets, values) for offsets, values in client.fetch_values(*place))
        return
    for messages in client.fetch(*place):
        offsets, values, keys = zip(*((m.offset, m.value or b"", m.key or b"") for m in messages), strict=True)
        yield Messages(offsets, list(values), keys)
