"""The messages of a partition before a range, for protocols in which the meaning of a message depends on them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property
from types import TracebackType
from typing import Self

from headrace.errors import SourceLostError
from headrace.kafka.client import BATCH_MESSAGES, KafkaClient
from headrace.kafka.settings import KafkaCluster
from headrace.sources.kafka.protocol import Messages

_FIRST_STEP = 500
"""How many messages are fetched first; then more and more at a time, up to ``BATCH_MESSAGES``."""


@dataclass
class MessagesBefore:
    """The :class:`headrace.sources.kafka.protocol.EarlierMessages` before an offset of a partition.

    They are fetched with a connection of their own, since the range is read at the same time.
    """

    cluster: KafkaCluster
    topic: str
    partition: int
    end: int
    """The first offset that is not one of theirs."""
    _connections: ExitStack = field(default_factory=ExitStack)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, frames: TracebackType | None) -> None:
        self._connections.close()

    @cached_property
    def _client(self) -> KafkaClient:
        return self._connections.enter_context(self.cluster.connect())

    def backwards(self) -> Iterator[Messages]:
        """See ``EarlierMessages.backwards``. Raises SourceUnreachableError."""
        end, step = self.end, _FIRST_STEP
        first, _ = self._client.ends(self.topic, self.partition)
        while first < end:
            start = max(first, end - step)
            try:
                batches = list(self._client.fetch_values(self.topic, self.partition, start, end))
            except SourceLostError:
                return
            if batches:
                yield Messages([o for offsets, _ in batches for o in offsets], [v for _, values in batches for v in values])
            end, step = start, min(2 * step, BATCH_MESSAGES)

    def first_since(self, time_ms: int) -> int | None:
        """See ``EarlierMessages.first_since``. Raises SourceUnreachableError."""
        found = self._client.offset_from_time(self.topic, self.partition, time_ms)
        return found if found is not None and found < self.end else None
