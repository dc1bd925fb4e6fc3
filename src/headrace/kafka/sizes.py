"""How large the records of a partition are."""

from __future__ import annotations

from headrace.errors import SourceLostError
from headrace.kafka.client import KafkaClient

_SAMPLE_RECORDS = 20
_SAMPLE_BYTES = 8 << 20
_LEAST_BYTES = 64.0


def bytes_per_record(client: KafkaClient, topic: str, partition: int, first: int, end: int) -> float:
    """The size of the records of a partition that has offsets from ``first`` to ``end``, from a few that are read for that.

    The greatest mean of those at the beginning, in the middle and at the end, since an idle topic may end with watermarks. Raises
    SourceUnreachableError.
    """
    starts = {first, first + (end - first) // 2, max(first, end - _SAMPLE_RECORDS)}
    return max(_LEAST_BYTES, *(_mean_size(client, topic, partition, at, min(at + _SAMPLE_RECORDS, end)) for at in starts))


def _mean_size(client: KafkaClient, topic: str, partition: int, start: int, end: int) -> float:
    size = count = 0
    try:
        for batch in client.fetch(topic, partition, start, end):
            size, count = size + sum(message.size for message in batch), count + len(batch)
            if size > _SAMPLE_BYTES:
                break
    except SourceLostError:
        pass  # removed in this moment
    return size / max(count, 1)
