"""A client that reads bounded ranges of partitions: no consumer group, no commits, no records of aborted transactions.

It never creates a topic, and never waits without a limit. Its errors are sentences; librdkafka's own words are part of them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future
from types import TracebackType
from typing import Any, NamedTuple, Self, TypeVar

from confluent_kafka import (
    TIMESTAMP_NOT_AVAILABLE,
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka import Message as RawMessage
from confluent_kafka.admin import AdminClient, ConfigResource, OffsetSpec  # type: ignore[attr-defined]

from headrace.errors import SourceLostError, SourceNotReadyError, SourceUnreachableError
from headrace.kafka.failures import RIGHTS, Failures, refused_settings

WAIT_SECONDS = 30.0
"""How long a request, or a fetch without any progress, may take."""
BATCH_MESSAGES = 10_000
_POLL_SECONDS = 0.1
_REQUEST_SECONDS = 2.0
_DOWN_SECONDS = 3.0
"""A request waits no longer when no broker can be connected to: the caller decides how often to try."""
_UNKNOWN = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION})
_NO_IDS = frozenset({KafkaError.UNSUPPORTED_VERSION, KafkaError._UNSUPPORTED_FEATURE})
_NO_ID = "A" * 22
"""The id of 16 zero bytes."""
_TOPICS_SHOWN = 5
_FEW_PARTITIONS = 50
"""Up to so many, asking for the offsets of each takes less time than for those of all together: 1 ms each, and 60 ms or more."""
_ONE_OF = "one of the topics"
_T = TypeVar("_T")
# A reader has no group: it assigns itself partitions and commits nothing. librdkafka wants a name all the same.
_FIXED = {
    "group.id": "headrace",
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "enable.partition.eof": True,
    "isolation.level": "read_committed",
    "auto.offset.reset": "error",
    "allow.auto.create.topics": False,
}
_DEFAULTS = {
    # A message of any length has to be readable: a Drainer writes up to 1 GiB.
    "receive.message.max.bytes": (1 << 31) - 1,
    # A fetch at the end of a partition waits so long for more (ms); a range ends there.
    "fetch.wait.max.ms": 50,
    # How long librdkafka stops fetching when its queue is full (ms). Its default, 1 s, is for consumers that are slower than it.
    "fetch.queue.backoff.ms": 10,
    # How much is fetched ahead (KiB). Its default, 64 MiB, is several ranges: what is behind the end of one is fetched for nothing.
    "queued.max.messages.kbytes": 4096,
    "socket.connection.setup.timeout.ms": 10_000,
    "log_level": 0,
}
OWN_SETTINGS = frozenset({*_FIXED, "bootstrap.servers", "metadata.broker.list"}) - {"group.id"}
"""The settings of librdkafka that users cannot change, because reading depends on them."""


class Message(NamedTuple):
    """A record of a partition."""

    offset: int
    key: bytes | None
    value: bytes | None
    """``None`` for a tombstone."""
    timestamp_ms: int | None
    """Milliseconds since 1970; ``None`` where the record has none."""
    headers: tuple[tuple[str, bytes | None], ...] = ()

    @property
    def size(self) -> int:
        """The bytes of key and value."""
        return len(self.key or b"") + len(self.value or b"")


class KafkaClient:
    """A connection to a cluster. It connects when it is first asked, belongs to one thread, and is not picklable."""

    def __init__(self, consumer: Consumer, admin: Callable[[], AdminClient], failures: Failures, servers: str, wait: float) -> None:
        self._consumer, self._make_admin, self._failures, self._servers, self._wait = consumer, admin, failures, servers, wait
        self._admin: AdminClient | None = None

    @classmethod
    def connect(cls, servers: Sequence[str], settings: Mapping[str, str], *, wait: float = WAIT_SECONDS) -> KafkaClient:
        """A client of the cluster behind ``servers`` (``host:port``).

        ``settings`` are librdkafka's, by its own names. Raises DefinitionError for a setting that librdkafka does not have or does
        not accept; its value is not in the message. ``wait`` is in seconds.
        """
        names = ",".join(servers)
        failures = Failures(names)
        told: dict[str, Any] = {**_DEFAULTS, **settings, "bootstrap.servers": names, "error_cb": failures.take}
        try:
            consumer = Consumer({**_FIXED, **told})
        except KafkaException as error:
            raise refused_settings(error, settings) from None
        return cls(consumer, lambda: AdminClient(told), failures, names, wait)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, frames: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Ends the connection. Nothing may be called afterwards."""
        self._consumer.close()

    def partitions(self, topic: str) -> tuple[int, ...]:
        """The numbers of the topic's partitions, in order.

        Raises SourceUnreachableError, and SourceNotReadyError for a topic that does not exist. It is not created.
        """
        found = self._asked(f"topic {topic}", lambda seconds: self._consumer.list_topics(topic, seconds)).topics[topic]
        if found.error is not None:
            raise self._refusal(found.error, f"topic {topic}")
        return tuple(sorted(found.partitions))

    def topics(self) -> dict[str, tuple[int, ...]]:
        """The numbers of the partitions, in order, of all topics that the account may describe. Raises SourceUnreachableError."""
        found = self._asked("list of topics", lambda seconds: self._consumer.list_topics(timeout=seconds)).topics
        return {name: tuple(sorted(topic.partitions)) for name, topic in found.items() if topic.error is None}

    def topic_ids(self, topics: Sequence[str]) -> dict[str, str]:
        """The ids that the cluster gave to topics, which no other topics have; empty if it gives none (before Kafka 2.8).

        A topic that was deleted and made again has another one. Raises SourceUnreachableError, SourceNotReadyError.
        """

        def ask(seconds: float) -> dict[str, str]:
            asked = self._administrator.describe_topics(TopicCollection(list(topics)), request_timeout=seconds)
            try:
                found = {name: str(future.result().topic_id) for name, future in asked.items()}
            except KafkaException as error:
                if error.args[0].code() in _NO_IDS:
                    return {}
                raise
            return {name: "" if text == _NO_ID else text for name, text in found.items()}

        found = self._asked(_topics_text(topics), ask) if topics else {}
        return {topic: found.get(topic, "") for topic in topics}

    @property
    def _administrator(self) -> AdminClient:
        admin = self._admin = self._admin or self._make_admin()
        return admin

    def topics_settings(self, topics: Collection[str], names: Collection[str]) -> dict[str, dict[str, str] | None]:
        """By topic, the values that it has for these settings; ``None`` if the account may not read them (DESCRIBE_CONFIGS).

        Raises SourceUnreachableError, SourceNotReadyError.
        """
        wanted = sorted(topics)

        def ask(seconds: float) -> dict[str, dict[str, str] | None]:
            resources = [ConfigResource(ConfigResource.Type.TOPIC, topic) for topic in wanted]
            asked = self._administrator.describe_configs(resources, request_timeout=seconds)
            return {resource.name: _settings(future, names) for resource, future in asked.items()}

        return self._asked(_topics_text(wanted), ask) if wanted else {}

    def ends(self, topic: str, partition: int) -> tuple[int, int]:
        """The first offset that a partition still has, and the offset after its last record that can be read now.

        The records of an open transaction cannot be read yet. Raises SourceUnreachableError, SourceNotReadyError.
        """
        at = TopicPartition(topic, partition)
        low, high = self._asked(_place(topic, partition), lambda seconds: self._consumer.get_watermark_offsets(at, seconds))
        return low, max(low, high)

    def all_ends(self, partitions: Sequence[tuple[str, int]]) -> dict[tuple[str, int], tuple[int, int]]:
        """What :meth:`ends` says, of many partitions (topic and number). Raises the same."""
        if len(partitions) <= _FEW_PARTITIONS:
            return {place: self.ends(*place) for place in partitions}

        def ask(spec: OffsetSpec, seconds: float) -> dict[tuple[str, int], int]:
            asked = self._administrator.list_offsets(
                {TopicPartition(*place): spec for place in partitions},
                isolation_level=IsolationLevel.READ_COMMITTED,
                request_timeout=seconds,
            )
            return {(at.topic, at.partition): future.result().offset for at, future in asked.items()}

        where = _topics_text(sorted({topic for topic, _ in partitions}))
        earliest, latest = OffsetSpec.earliest(), OffsetSpec.latest()  # type: ignore[no-untyped-call]
        first = self._asked(where, lambda seconds: ask(earliest, seconds))
        end = self._asked(where, lambda seconds: ask(latest, seconds))
        return {place: (first[place], max(first[place], end[place])) for place in partitions}

    def offset_from_time(self, topic: str, partition: int, time_ms: int) -> int | None:
        """The first offset of a partition whose record has this time or a later one (milliseconds since 1970); ``None`` for none.

        Raises SourceUnreachableError, SourceNotReadyError. It must not be called during a fetch.
        """
        asked = TopicPartition(topic, partition, time_ms)

        def ask(seconds: float) -> int:
            (found,) = self._consumer.offsets_for_times([asked], seconds)
            if found.error is not None:
                raise KafkaException(found.error)
            return found.offset

        offset = self._asked(_place(topic, partition), ask)
        return offset if offset >= 0 else None

    def fetch(self, topic: str, partition: int, start: int, end: int, *, most: int = BATCH_MESSAGES) -> Iterator[Sequence[Message]]:
        """The records from offset ``start`` up to ``end``, exclusive, in batches of at most ``most``, in their order.

        A batch comes when it is full, when the range is complete, or after 0.1 s.

        Offsets may be missing: a compacted topic has no record there, or a transaction's marker, or a record of an aborted one.
        Ends at ``end``, whether or not there is a record right before it. ``end`` must not be above the end that :meth:`ends` has.
        A record of any length is fetched.

        Raises SourceLostError if records in the range are not kept any more, SourceUnreachableError if nothing arrives for
        ``WAIT_SECONDS``. The caller must have read one fetch to its end, or have closed it, before the next.
        """
        for batch in self._fetched(topic, partition, start, end, most):
            yield [_message(message) for message in batch]

    def fetch_values(self, topic: str, partition: int, start: int, end: int) -> Iterator[tuple[list[int], list[bytes]]]:
        """As :meth:`fetch`, only the offsets and the values of the records, a tombstone's as ``b""``: for many records."""
        for batch in self._fetched(topic, partition, start, end, BATCH_MESSAGES):
            yield [_offset(message) for message in batch], [_bytes(message.value()) or b"" for message in batch]

    def _fetched(self, topic: str, partition: int, start: int, end: int, most: int) -> Iterator[list[RawMessage]]:
        if start >= end:
            return
        where = _place(topic, partition)
        self._consumer.assign([TopicPartition(topic, partition, start)])
        try:
            at, deadline = start, time.monotonic() + self._wait
            while at < end:
                # It waits until it has as many, so for no more than the range can have.
                raw = self._consumer.consume(min(most, end - at), _POLL_SECONDS)
                batch, at = self._read(raw, where, at, end)
                if batch:
                    yield batch
                if raw and (batch or at >= end):
                    self._failures.forget()
                    deadline = time.monotonic() + self._wait
                elif self._failures.is_final or time.monotonic() > deadline:
                    raise self._failures.unreachable(where, f"Nothing arrived after offset {at} within {self._wait:g} s.")
        finally:
            self._consumer.unassign()

    def _read(self, raw: Sequence[RawMessage], where: str, at: int, end: int) -> tuple[list[RawMessage], int]:
        """The records of a batch below ``end``, and the offset up to which the partition has been read."""
        batch = [message for message in raw if message.error() is None]
        if batch:
            at = max(at, _offset(batch[-1]) + 1)
            if at > end:
                batch = [message for message in batch if _offset(message) < end]
        for message in raw if len(batch) < len(raw) else ():
            error = message.error()
            if error is None:
                continue
            if error.code() == KafkaError._PARTITION_EOF:
                at = max(at, _offset(message))
            elif error.code() in (KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._AUTO_OFFSET_RESET):
                raise SourceLostError(f"The records from offset {at} on of {where} are not kept any more, or not there yet.")
            elif not self._failures.passes(error):
                raise self._refusal(error, where)
        return batch, min(at, end)

    def _asked(self, where: str, request: Callable[[float], _T | None]) -> _T:
        """The answer to a request of the given seconds, which is repeated until the wait is over, or waiting is of no use."""
        deadline = time.monotonic() + self._wait
        while True:
            try:
                answer = request(_REQUEST_SECONDS)
            except KafkaException as error:
                reason: KafkaError = error.args[0]
                if not self._failures.passes(reason):
                    raise self._refusal(reason, where) from None
                answer = None
            if answer is not None:
                self._failures.forget()
                return answer
            self._consumer.poll(0)  # hands over what librdkafka knows of the connection's failures
            if self._failures.is_final or time.monotonic() > min(deadline, self._failures.down_since + _DOWN_SECONDS):
                raise self._failures.unreachable(where)

    def _refusal(self, error: KafkaError, where: str) -> SourceNotReadyError | SourceUnreachableError:
        """The error to raise for an answer that will stay the same."""
        if error.code() in _UNKNOWN:
            hint = "Check the topic's name in the URI."
            subject = f"O{where[1:]}" if where.startswith(_ONE_OF) else f"The {where}"
            return SourceNotReadyError(f"{subject} does not exist at {self._servers}.", hint)
        self._failures.take(error)
        return self._failures.unreachable(where)


def _topics_text(topics: Sequence[str]) -> str:
    shown = ", ".join(topics[:_TOPICS_SHOWN]) + (f" and {len(topics) - _TOPICS_SHOWN} more" if len(topics) > _TOPICS_SHOWN else "")
    return f"topic {shown}" if len(topics) == 1 else f"{_ONE_OF} {shown}"


def _place(topic: str, partition: int) -> str:
    return f"partition {partition} of topic {topic}"


def _settings(answer: Future[dict[str, Any]], names: Collection[str]) -> dict[str, str] | None:
    try:
        found = answer.result()
    except KafkaException as error:
        if error.args[0].code() in RIGHTS:
            return None
        raise
    return {name: found[name].value for name in names if name in found}


def _offset(message: RawMessage) -> int:
    return message.offset() or 0


def _message(message: RawMessage) -> Message:
    kind, timestamp = message.timestamp()
    return Message(
        _offset(message),
        _bytes(message.key()),
        _bytes(message.value()),
        None if kind == TIMESTAMP_NOT_AVAILABLE else timestamp,
        _headers(message.headers()),
    )


def _headers(found: object) -> tuple[tuple[str, bytes | None], ...]:
    """librdkafka gives a list of pairs, though its types allow more."""
    return tuple((name, _bytes(value)) for name, value in found) if isinstance(found, list) else ()


def _bytes(value: str | bytes | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value
