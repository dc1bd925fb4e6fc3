"""How long a topic keeps records: its settings ``retention.ms``, ``retention.bytes`` and ``cleanup.policy``."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from headrace.errors import SourceLostError
from headrace.kafka.client import KafkaClient
from headrace.model.backlog import Kept
from headrace.model.inspection import Finding, Severity
from headrace.model.stream import PartitionEnds

_SHORT_MS = 24 * 3_600_000
SETTINGS = ("retention.ms", "retention.bytes", "cleanup.policy")


class Record(NamedTuple):
    """A place in a topic."""

    topic: str
    partition: int
    offset: int


def kept(client: KafkaClient, records: Mapping[str, Record], ends: Mapping[str, PartitionEnds]) -> dict[str, Kept]:
    """How long the first record at or after each place is kept, by the name of its partition, which ``ends`` has, too.

    A partition is left out if it has no such record, or the account may not read the topic's settings. Raises
    SourceUnreachableError, SourceNotReadyError.
    """
    settings = {topic: client.topic_settings(topic, SETTINGS) for topic in {record.topic for record in records.values()}}
    found = {}
    for name, record in records.items():
        of_topic, end = settings[record.topic], ends[name]
        if of_topic is None:
            continue
        for_ms, up_to_bytes = limits(of_topic)
        size = int((end.end - record.offset) * end.bytes_per_record)
        try:
            for messages in client.fetch(*record, end.end, most=1):
                found[name] = Kept(messages[0].timestamp_ms, for_ms, up_to_bytes, size)
                break
        except SourceLostError:
            pass  # removed in this moment, which the next poll reports
    return found


def limits(settings: Mapping[str, str]) -> tuple[int | None, int | None]:
    """The milliseconds and the bytes that a topic keeps; ``None`` for no limit. A topic that is only compacted has none."""
    if "delete" not in settings.get("cleanup.policy", "delete"):
        return None, None
    for_ms, up_to_bytes = (int(settings.get(name, "-1")) for name in SETTINGS[:2])
    return (None if for_ms < 0 else for_ms), (None if up_to_bytes < 0 else up_to_bytes)


def retention_findings(client: KafkaClient, topics: Collection[str]) -> Iterator[Finding]:
    """What is risky in how long these topics keep records. Raises SourceUnreachableError, SourceNotReadyError."""
    unread = []
    for topic in topics:
        settings = client.topic_settings(topic, SETTINGS)
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
