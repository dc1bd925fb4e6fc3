"""The topics that a changefeed writes to as a :class:`headrace.sources.stream.reader.StreamReader`."""

from __future__ import annotations

from collections.abc import Collection, Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain

import numpy as np
import pyarrow as pa

from headrace.errors import SourceLostError, SourceNotReadyError
from headrace.kafka.client import KafkaClient
from headrace.kafka.gaps import lost_start
from headrace.kafka.retention import Retentions
from headrace.kafka.settings import KafkaCluster
from headrace.kafka.sizes import bytes_per_record
from headrace.model.backlog import Kept, Needed
from headrace.model.block import KIND
from headrace.model.cut import Repeats
from headrace.model.events import RowKind
from headrace.model.outcome import Notice
from headrace.model.stream import PartitionEnds, Range, StreamStatement
from headrace.model.table import Column, TableId, TableSchema
from headrace.model.tso import tso_and_time
from headrace.sources.kafka.earlier_messages import MessagesBefore
from headrace.sources.kafka.large_rows import decode_rows
from headrace.sources.kafka.options import PROTOCOLS, KafkaOptions
from headrace.sources.kafka.protocol import KafkaProtocol, Messages, ReadsRanges, in_parts, lacks_column
from headrace.sources.kafka.protocols import detected, protocol_of, undetected
from headrace.sources.stream.reader import BadRecordError

_FIRST_MESSAGES = 100
"""How many messages at the beginning of a partition are looked at for the protocol."""
_SURPLUS = (
    "A changefeed with partition-num writes only to so many partitions. Set partition-num in the source's URI, too, if this is a "
    "surplus one."
)
_NOT_READ = (
    "Partition {partitions} of the topic {topic} has records and is not read, because partition-num is {wanted}. If the changefeed "
    "writes to more than {wanted} partitions, changes are missing. In this case, set partition-num to the number that the "
    "changefeed uses: the next run then reads these partitions, and says which tables have to be loaded anew."
)
_SILENT_TOPIC = (
    "If the changefeed does not write to this topic, leave it out (topics=…,!{topic}). TiCDC sends no watermarks to topics whose "
    "tables were dropped: name the changefeed's default topic in the URI's path, then its watermarks count for them."
)
_LEANS_AFTER_MS = 60_000
"""How far the watermarks of the default topic must be ahead of the last record of another topic before they count for it.

Watermarks come about every second. They were written after everything that they promise, so this only leaves time for brokers."""
_LOOKED_AT = 10_000
"""How many messages at the beginning of a partition are looked at for its oldest commit ts."""
_MAY_HAVE_GAP = (
    "The messages of partition {number} of the topic {topic} before offset {first} are not kept any more, and what is kept does "
    "not show whether they had changes after {after}, where the pipeline begins. If so, these changes are missing: load the tables "
    "as of a later time and begin there. If not, set allow-gap=true in the source's URI."
)
_KEYLESS = (
    "The table has no primary key and no unique key of NOT NULL columns. TiCDC may send rows to Kafka again, and without a key a "
    "row that was sent twice looks like two equal rows."
)
_WITH_KEY = (
    "Give the table a key upstream, declare one with --key, or accept rows twice with accept-keyless=true in the source's URI."
)


_KEY_LEFT_OUT = "The column selectors of the changefeed file leave out a column of the table's key."
_WITH_WHOLE_KEY = "TiCDC accepts no such selector, so pass the changefeed's own file, or declare another key with --key."


@dataclass(frozen=True)
class KafkaReader:
    """Reads topics, on the driver and in tasks. A range is read with a connection of its own."""

    identity: str
    cluster: KafkaCluster
    options: KafkaOptions
    _sizes: dict[tuple[str, int], float] = field(default_factory=dict, compare=False, repr=False)
    """The bytes per record, as a first look found them, see :meth:`_sampled`."""
    _retentions: Retentions = field(default_factory=Retentions, compare=False, repr=False)
    _detected: list[str] = field(default_factory=list, compare=False, repr=False)
    """The name of the protocol, once the topics' first messages have shown it."""
    _missing: list[str] = field(default_factory=list, compare=False, repr=False)
    """The topics that are named without a pattern and did not exist at the last look."""
    _surplus: list[int] = field(default_factory=list, compare=False, repr=False)
    """The partitions of the default topic that are not read and had records at the last look."""
    _gaps: list[str] = field(default_factory=list, compare=False, repr=False)
    """What a person should know of messages after the start that may not be kept: a text for each partition."""

    def __reduce__(self) -> tuple[type[KafkaReader], tuple[object, ...]]:
        # Tasks get the detected protocol with the reader, so that each of them does not detect it again.
        options = replace(self.options, protocol=self._protocol_name)
        return KafkaReader, (self.identity, self.cluster, options)

    @property
    def repeats(self) -> Repeats:
        """TiCDC sends the net change of a transaction: of a key at most one deletion and one new row.

        That is of no use if rows do not tell their transaction. Their order alone then tells what came last.
        """
        if not self._protocol_name:
            return Repeats.CHANGES  # there is no message yet
        return Repeats.CHANGES if self.protocol.commit_ts.is_exact else Repeats.UNKNOWN

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
        partitions = self._partitions()
        for topic, number in partitions:
            first, end = self._client.ends(topic, number)
            try:
                for messages in self._client.fetch(topic, number, first, min(end, first + _FIRST_MESSAGES)):
                    if name := detected(messages):
                        return name
            except SourceLostError:
                pass  # removed in this moment
        raise undetected(list(dict.fromkeys(topic for topic, _ in partitions)), PROTOCOLS)

    def _partitions(self) -> tuple[tuple[str, int], ...]:
        """Topic and number of each partition that the changefeed uses now, those of the default topic first.

        Raises SourceUnreachableError, SourceNotReadyError.
        """
        topics = self.options.topics
        present = self._client.topics() if topics.are_several else {}
        chosen = topics.chosen(present)
        self._missing[:] = topics.missing(present) if topics.are_several else []
        if not chosen:
            raise SourceNotReadyError(f"No topic of {self.identity} exists so far.", "Check the names in the source's URI.")
        if topics.default and topics.default not in present:
            present[topics.default] = self._client.partitions(topics.default)
        wanted = topics.partition_num
        if wanted is not None and len(present[topics.default]) < wanted:
            raise SourceNotReadyError(
                f"The topic {topics.default} has {len(present[topics.default])} partitions, and partition-num is {wanted}.",
                "Set partition-num to the number of partitions that the changefeed uses.",
            )
        found = ((topic, number) for topic in chosen for number in present[topic])
        return tuple(place for place in found if topics.includes(topics.partition_name(*place)))

    @property
    def notices(self) -> Sequence[Notice]:
        """See ``StreamReader.notices``."""
        told = [Notice(caveat) for caveat in self.protocol.caveats] if self._protocol_name else []
        if self._detected:
            topics = self.options.topics
            what = f"the topic {topics.default}" if topics.default else "the topics"
            shown = f"The messages of {what} show protocol={self._detected[0]}."
            told.append(Notice(f"The source's URI names no protocol. {shown}"))
        told += [Notice(f"The topic {topic} does not exist. It is read when it is created.") for topic in self._missing]
        return told + [Notice(text) for text in self._gaps]

    @property
    def unread(self) -> Sequence[Notice]:
        """Records of the default topic in partitions above ``partition-num``."""
        topics, names = self.options.topics, ", ".join(map(str, self._surplus))
        text = _NOT_READ.format(wanted=topics.partition_num, partitions=names, topic=topics.default)
        return [Notice(text)] if self._surplus else []

    @property
    def whole_transactions(self) -> bool:
        """A transaction has a record for each row."""
        return False

    @property
    def carries_stored(self) -> bool:
        """TiCDC writes the values of stored generated columns."""
        return True

    def require_start(self, after: int) -> None:
        """See ``StreamReader.require_start``: no partition may begin above ``after`` (TSO) that has lost messages.

        What messages do not show exactly becomes a notice, see :attr:`notices`. So does a topic without any message besides the
        default one: TiCDC writes nothing to a topic whose tables were dropped.
        """
        self._gaps.clear()
        if self.options.allow_gap:
            return
        for (topic, number), (first, end) in self._offsets(self._partitions()).items():
            oldest = self._oldest(topic, number, first, end) if 0 < first < end else None
            if first == 0 or (oldest is not None and oldest[1] <= after):
                continue
            is_late = oldest is not None and self.protocol.commit_ts.is_exact and not self.protocol.caveats
            if is_late or (first == end and topic == self.options.topics.default):
                raise lost_start(f"Partition {number} of the topic {topic}", end, oldest, after)
            self._gaps.append(_MAY_HAVE_GAP.format(number=number, topic=topic, first=first, after=tso_and_time(after)))

    def _oldest(self, topic: str, number: int, first: int, end: int) -> tuple[int, int] | None:
        """Offset and commit ts (TSO) of the first message that tells one; ``None`` if there is none among many."""
        of = Range(self.options.topics.partition_name(topic, number), first, min(end, first + _LOOKED_AT), 0)
        with closing(self.records(of)) as batches:
            for batch in batches:
                told = np.flatnonzero(batch.column("commit_ts").to_numpy() > 0)
                if len(told):
                    return batch.column("offset")[int(told[0])].as_py(), batch.column("commit_ts")[int(told[0])].as_py()
        return None

    @cached_property
    def _client(self) -> KafkaClient:
        """The driver's connection, for offsets."""
        return self.cluster.connect()

    def ends(self) -> Sequence[PartitionEnds]:
        """The partitions that the changefeed uses. Raises SourceUnreachableError, SourceNotReadyError.

        The first look at a topic reads a few of its records, to learn how large they are.
        """
        partitions = self._partitions()
        while True:
            found = self._offsets(partitions)
            # TiCDC makes a topic before it writes, to any topic, a watermark above the topic's first row. So the watermarks up to
            # these ends promise nothing of topics that do not exist now.
            present = self._partitions()
            if set(present) <= set(partitions):
                break
            partitions = present
        self._surplus[:] = self._with_records_above(self.options.topics.partition_num)
        ids = self._client.topic_ids(sorted({topic for topic, _ in found}))
        self._sample(found)
        return [self._ends(topic, number, first, end, ids[topic]) for (topic, number), (first, end) in found.items()]

    def _with_records_above(self, partition_num: int | None) -> list[int]:
        """The partitions of the default topic from this number on that have records; none for ``None``."""
        if partition_num is None:
            return []
        topic = self.options.topics.default
        surplus = [(topic, number) for number in self._client.partitions(topic) if number >= partition_num]
        return [number for (_, number), (first, end) in sorted(self._client.all_ends(surplus).items()) if first < end]

    def _offsets(self, partitions: Sequence[tuple[str, int]]) -> dict[tuple[str, int], tuple[int, int]]:
        """The first offset and the end of partitions. The default topic's are read first, see ``PartitionEnds.leans_after``."""
        topic = self.options.topics.default
        first = {place: self._client.ends(*place) for place in partitions if place[0] == topic}
        return {**first, **self._client.all_ends([place for place in partitions if place[0] != topic])}

    def _sample(self, offsets: Mapping[tuple[str, int], tuple[int, int]]) -> None:
        """Reads a few records of each partition that is sampled and was not so far, to learn how large they are."""
        longest = sorted(offsets.items(), key=lambda found: found[1][0] - found[1][1])
        for (topic, number), (first, end) in longest:
            key = self._sampled(topic, number)
            if key not in self._sizes and first < end:
                self._sizes[key] = bytes_per_record(self._client, topic, number, first, end)
                _ = self.protocol  # what a task must know, and a topic without a protocol is an error at once

    def _sampled(self, topic: str, number: int) -> tuple[str, int]:
        """The partition whose records are taken for those of this one.

        Tables are spread over the partitions of the default topic, but there may be hundreds of other topics, of one table each.
        """
        return (topic, number) if topic == self.options.topics.default else (topic, 0)

    def _ends(self, topic: str, number: int, first: int, end: int, topic_id: str) -> PartitionEnds:
        topics = self.options.topics
        name, is_default = topics.partition_name(topic, number), topic == topics.default
        surplus = _SURPLUS if topics.partition_num is None else ""
        return PartitionEnds(
            name,
            first,
            end,
            self._sizes.get(self._sampled(topic, number), 1.0),
            topic_id,
            if_silent=surplus if is_default else _SILENT_TOPIC.format(topic=topic),
            leans_after=_LEANS_AFTER_MS if topics.default and not is_default else None,
        )

    def includes(self, partition: str) -> bool:
        """See ``StreamReader.includes``: no partition above ``partition-num``, and no topic that the options leave out."""
        return self.options.topics.includes(partition)

    def kept(self, records: Mapping[str, Needed], ends: Mapping[str, PartitionEnds]) -> Mapping[str, Kept]:
        """See ``StreamReader.kept``."""
        places = {name: self.options.topics.place(name) for name in records}
        return self._retentions.kept(self._client, records, places, ends)

    def records(self, of: Range) -> Generator[pa.RecordBatch]:
        """The records of a range. Raises SourceUnreachableError, SourceLostError."""
        topic, number = self.options.topics.place(of.partition)
        with self.cluster.connect() as client, MessagesBefore(self.cluster, topic, number, of.start) as earlier:
            protocol = self.protocol
            if isinstance(protocol, ReadsRanges):
                protocol = protocol.for_range(earlier)
            with closing(_fetched(client, topic, number, of, with_keys=protocol.has_keys)) as fetched:
                yield from map(protocol.read, chain.from_iterable(map(in_parts, fetched)))

    def statement(self, value: bytes, partition: str, offset: int) -> StreamStatement:
        """The schema change of a record. Raises ValueError."""
        return self.protocol.statement(value, partition, offset)

    def decode(
        self, table_id: TableId, schema: TableSchema, records: pa.RecordBatch, other_columns: Collection[str] = ()
    ) -> tuple[pa.RecordBatch, Sequence[int]]:
        """The rows of records. Raises BadRecordError, also for a table without a key unless that is accepted.

        TiCDC writes a row in the shape that is in force at its commit ts, so it never has ``other_columns``. Rows have no columns
        that the changefeed's column selectors leave out.
        """
        if not schema.handle_key and not self.options.accept_keyless and records.num_rows:
            raise BadRecordError(0, _KEYLESS, hint=_WITH_KEY)
        carried = replace(schema, columns=tuple(c for c in schema.columns if self.options.selectors(table_id, c.name)))
        if name := next((name for name in schema.handle_key if not carried.has_column(name)), None):
            raise BadRecordError(0, _KEY_LEFT_OUT, column=name, hint=_WITH_WHOLE_KEY)
        rows, counts = decode_rows(self.protocol, self.options.large, table_id, carried, records)
        if lacking := next((column.name for column in carried.row_columns if column.name not in rows.schema.names), None):
            _require_no_new_rows(rows, counts, lacking)
        return rows, counts


def carried_columns(options: KafkaOptions, schema: TableSchema) -> tuple[Column, ...]:
    """The columns that rows of a table carry."""
    return tuple(column for column in schema.row_columns if options.selectors(schema.table_id, column.name))


def _require_no_new_rows(rows: pa.RecordBatch, counts: Sequence[int], lacking: str) -> None:
    """Raises BadRecordError for a new row that lacks a column; deletions may have only the key."""
    kinds = rows.column(KIND).to_numpy()
    new = np.flatnonzero((kinds == RowKind.INSERT) | (kinds == RowKind.UPDATE_AFTER))
    if len(new):
        record = int(np.searchsorted(np.cumsum(counts), new[0], side="right"))
        raise lacks_column(record, lacking)


def _fetched(client: KafkaClient, topic: str, number: int, of: Range, *, with_keys: bool) -> Generator[Messages]:
    place = (topic, number, of.start, of.end)
    if not with_keys:
        yield from (Messages(offsets, values) for offsets, values in client.fetch_values(*place))
        return
    for messages in client.fetch(*place):
        told = ((m.offset, m.value or b"", m.key or b"", m.timestamp_ms) for m in messages)
        offsets, values, keys, times = zip(*told, strict=True)
        yield Messages(offsets, list(values), keys, times)
