"""What is likely to surprise in how a changefeed and its topics are set up. Reads offsets and settings, no data."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from headrace.kafka.retention import retention_findings
from headrace.kafka.settings import KafkaCluster
from headrace.model.inspection import Finding, Severity
from headrace.model.stream import PartitionEnds
from headrace.sources.kafka.options import KafkaOptions
from headrace.sources.kafka.protocol import KafkaProtocol
from headrace.sources.kafka.topics import Topics


def findings(
    cluster: KafkaCluster, options: KafkaOptions, protocol: KafkaProtocol | None, ends: Sequence[PartitionEnds]
) -> list[Finding]:
    """What to know before a run of the partitions ``ends``; ``protocol`` is ``None`` if no message shows it so far.

    Raises SourceUnreachableError, SourceNotReadyError."""
    topics = options.topics
    partitions: dict[str, list[PartitionEnds]] = defaultdict(list)
    for end in ends:
        partitions[topics.place(end.partition)[0]].append(end)
    with cluster.connect() as client:
        present = client.topics() if topics.are_several else {}
        of_retention = list(retention_findings(client, partitions))
        found = client.partitions(topics.default) if topics.default else ()
    return [
        Finding("source", _contents(partitions, protocol)),
        *(Finding("protocol", caveat, severity=Severity.WARNING) for caveat in (protocol.caveats if protocol is not None else ())),
        *_of_topics(topics, present),
        *_of_partitions(topics, partitions, len(found)),
        *of_retention,
    ]


def _contents(partitions: Mapping[str, Sequence[PartitionEnds]], protocol: KafkaProtocol | None) -> str:
    topics, count = len(partitions), sum(map(len, partitions.values()))
    records = sum(end.end - end.first for of_topic in partitions.values() for end in of_topic)
    figures = ((topics, "topic"), (count, "partition"), (records, "record"))
    told = ", ".join(f"{number:,} {noun}" + ("" if number == 1 else "s") for number, noun in figures)
    return f"{told}, protocol {protocol.name if protocol is not None else 'not known yet'}."


def _of_topics(topics: Topics, present: Mapping[str, object]) -> Iterator[Finding]:
    if not topics.are_several:
        return
    for name in topics.missing(present):
        message = f"The topic {name} does not exist. Check its name; it is read when it is created."
        yield Finding("topics", message, severity=Severity.WARNING)
    if not topics.default:
        message = (
            "The source's URI names no default topic. TiCDC sends no watermarks to a topic whose tables were dropped, and such a "
            "topic then holds up all others. Write the changefeed's default topic as the URI's path."
        )
        yield Finding("topics", message, severity=Severity.WARNING)


def _of_partitions(topics: Topics, partitions: Mapping[str, Sequence[PartitionEnds]], count: int) -> Iterator[Finding]:
    """Of the default topic, which has ``count`` partitions: those that the changefeed seems not to use."""
    if not topics.default:
        return
    if topics.partition_num is not None:
        if topics.partition_num < count:
            message = (
                f"partition-num is {topics.partition_num}, so {count - topics.partition_num} of the {count} partitions of the topic"
            )
            yield Finding("partitions", f"{message} {topics.default} are not read.")
        return
    ends = partitions[topics.default]
    empty = [end.partition for end in ends if end.end == 0]
    if empty and len(empty) < len(ends):
        message = (
            f"Partition {', '.join(empty)} of the topic {topics.default} never had a record, and TiCDC sends watermarks to all "
            "partitions that it uses. Set partition-num in the source's URI to that of the changefeed: a surplus partition holds "
            "everything up."
        )
        yield Finding("partitions", message, severity=Severity.WARNING)
