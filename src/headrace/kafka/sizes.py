"""How large the records of a partition are."""

from __future__ import annotations

from headrace.errors import SourceLostError
from headrace.kafka.client import KafkaClient

_SAMPLE_RECORDS = 100
_LEAST_BYTES = 64.0


def bytes_per_record(client: KafkaClient, topic: str, partition: int, first: int, end: int) -> float:
    """The mean size of the last records of a partition that has offsets from ``first`` to ``end``; some are read for that.

    Raises SourceUnreachableError.
    """
    begin = max(first, end - _SAMPLE_RECORDS)
    try:
        sizes = [message.size for batch in client.fetch(topic, partition, begin, end) for message in batch]
    except SourceLostError:
        sizes = []  # removed in this moment
    return max(_LEAST_BYTES, sum(sizes) / (end - begin))
