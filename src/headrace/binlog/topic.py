"""A topic that a Drainer writes, as a log of records with offsets: everything is in partition 0."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from threading import Event
from typing import Protocol

from headrace.errors import SourceLostError
from headrace.formats.binlog.errors import BinlogError
from headrace.formats.binlog.wire import peek_commit_ts
from headrace.kafka.client import BATCH_MESSAGES, KafkaClient, Message

PARTITION = 0
"""Drainer writes to no other."""
_POLL_SECONDS = 0.2
Batches = Generator[Sequence[Message], None, None]
"""To be read to its end, or closed, before the next is asked for."""


class Log(Protocol):
    """Records with increasing offsets, some of which may be missing."""

    @property
    def where(self) -> str:
        """What the log is, for sentences: ``topic 1_obinlog, partition 0``."""
        ...

    def ends(self) -> tuple[int, int]:
        """The first offset that is kept, and the offset after the last record."""
        ...

    def fetch(self, start: int, end: int, *, most: int = BATCH_MESSAGES) -> Batches:
        """The records from offset ``start`` up to ``end``, exclusive, at most ``most`` at once.

        Raises SourceLostError if they are not kept any more.
        """
        ...


class KafkaLog:
    """Partition 0 of a topic."""

    def __init__(self, client: KafkaClient, topic: str, notify: Callable[[str], None]) -> None:
        """Raises SourceNotReadyError for a topic that does not exist, and does not create it."""
        self._client, self.topic = client, topic
        if others := len(client.partitions(topic)) - 1:
            notify(f"Topic {topic} has {others + 1} partitions. Only partition 0 is read, because Drainer writes to no other.")

    @property
    def where(self) -> str:
        return f"topic {self.topic}, partition {PARTITION}"

    def ends(self) -> tuple[int, int]:
        return self._client.ends(self.topic, PARTITION)

    def fetch(self, start: int, end: int, *, most: int = BATCH_MESSAGES) -> Batches:
        yield from self._client.fetch(self.topic, PARTITION, start, end, most=most)


def first_commit_ts(log: Log, start: int, end: int) -> tuple[int, int] | None:
    """Offset and commit ts (TSO) of the first record from ``start`` on that shows one; ``None`` if there is none below ``end``.

    A record that cannot be read, or has no positive commit ts, is passed over: a reader finds it later, where it can be handled.
    """
    with closing(log.fetch(start, end, most=1)) as batches:
        for batch in batches:
            for message in batch:
                commit_ts = commit_ts_of(message)
                if commit_ts is not None:
                    return message.offset, commit_ts
    return None


def commit_ts_of(message: Message) -> int | None:
    """The commit ts (TSO) of a record; ``None`` if it cannot be read or is not positive."""
    try:
        commit_ts = peek_commit_ts(message.value or b"")
    except BinlogError:
        return None
    return commit_ts if commit_ts > 0 else None


def records(log: Log, start: int, closing_down: Event, *, follow: bool) -> Generator[Message, None, None]:
    """The records from an offset on: up to the present end, or with ``follow`` until ``closing_down`` is set.

    Raises SourceLostError if the log becomes shorter than what was read of it.
    """
    at, end = start, log.ends()[1]
    while True:
        with closing(log.fetch(at, end)) as batches:
            for batch in batches:
                yield from batch
        if not follow:
            return
        at = max(at, end)
        while (end := log.ends()[1]) <= at:
            if end < at:
                raise SourceLostError(
                    f"The end of {log.where} is offset {end} now, and it was read up to offset {at}: it was made anew, or lost "
                    "records.",
                    "Begin again at the last stored position: the Driver then continues after its commit ts.",
                )
            if closing_down.wait(_POLL_SECONDS):
                return
