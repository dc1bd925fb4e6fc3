"""How long a topic keeps records: its settings ``retention.ms``, ``retention.bytes`` and ``cleanup.policy``."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from headrace.errors import SourceLostError
from headrace.kafka.client import KafkaClient
from headrace.model.backlog import Kept, Needed
from headrace.model.inspection import Finding, Severity
from headrace.model.stream import PartitionEnds

_SHORT_MS = 24 * 3_600_000
SETTINGS = ("retention.ms", "retention.bytes", "cleanup.policy")


@dataclass(frozen=True)
class Retentions:
    """How long topics keep records. Remembers when the records that it looked at were written."""

    _written: dict[tuple[str, int], tuple[int, int | None]] = field(default_factory=dict)
    """By topic and partition, the offset and the time of the last record that was looked at."""

    def kept(
        self,
        client: KafkaClient,
        records: Mapping[str, Needed],
        places: Mapping[str, tuple[str, int]],
        ends: Mapping[str, PartitionEnds],
    ) -> dict[str, Kept]:
        """How long the first record at or after each place is kept, by the name of its partition.

        ``places`` are topic and number of each partition. A partition is left out if it has no such record, or if the account may
        not read the topic's settings. A record is only fetched if at least half of the time may be over. Raises
        SourceUnreachableError, SourceNotReadyError.
        """
        settings, now_ms = client.topics_settings({places[name][0] for name in records}, SETTINGS), int(time.time() * 1000)
        found = {}
        for name, record in records.items():
            of_topic, end = settings[places[name][0]], ends[name]
            if of_topic is None:
                continue
            size = int((end.end - record.offset) * end.bytes_per_record)
            oldest = Kept(record.after_ms, *limits(of_topic), size)
            if not oldest.ends_soon(now_ms):
                found[name] = replace(oldest, written_ms=record.after_ms or None)
            elif (written := self._look(client, places[name], record.offset, end.end)) is not None:
                found[name] = replace(oldest, written_ms=written[0])
        return found

    def _look(self, client: KafkaClient, place: tuple[str, int], offset: int, end: int) -> tuple[int | None] | None:
        """The time of the first record from an offset on (Unix time in ms, if it has one); ``None`` if there is no record."""
        known = self._written.get(place)
        if known is not None and known[0] == offset:
            return (known[1],)
        try:
            for messages in client.fetch(*place, offset, end, most=1):
                self._written[place] = offset, messages[0].timestamp_ms
                return (messages[0].timestamp_ms,)
        except SourceLostError:
            pass  # removed in this moment, which the next poll reports
        return None


def limits(settings: Mapping[str, str]) -> tuple[int | None, int | None]:
    """The milliseconds and the bytes that a topic keeps; ``None`` for no limit. A topic that is only compacted has none."""
    if "delete" not in settings.get("cleanup.policy", "delete"):
        return None, None
    for_ms, up_to_bytes = (int(settings.get(name, "-1")) for name in SETTINGS[:2])
    return (None if for_ms < 0 else for_ms), (None if up_to_bytes < 0 else up_to_bytes)


def retention_findings(client: KafkaClient, topics: Collection[str]) -> Iterator[Finding]:
    """What is risky in how long these topics keep records. Raises SourceUnreachableError, SourceNotReadyError."""
    unread = []
    for topic, settings in client.topics_settings(topics, SETTINGS).items():
        if settings is None:
            unread.append(topic)
            continue
        for_ms, _ = limits(settings)
        if "compact" in settings.get("cleanup.policy", ""):
            message = f"The topic {topic} is compacted (cleanup.policy): records may be removed before they were applied."
            yield Finding("retention", f"{message} Set cleanup.policy=delete.", severity=Severity.WARNING)
        if for_ms is not None and for_ms < _SHORT_MS:
            message = f"The topic {topic} keeps records for {for_ms / 3_600_000:g} hours (retention.ms)."
            advice = "A table that is stopped for longer has to be loaded anew. Keep them for some days."
            yield Finding("retention", f"{message} {advice}", severity=Severity.WARNING)
    if unread:
        message = (
            f"The retention of {_names(unread)} cannot be read, so there is no alarm before the broker removes needed records."
        )
        yield Finding("retention", f"{message} Give the account the right DESCRIBE_CONFIGS.", severity=Severity.WARNING)


def _names(topics: Sequence[str]) -> str:
    return f"the topic {topics[0]}" if len(topics) == 1 else f"{len(topics)} topics, such as {topics[0]},"
