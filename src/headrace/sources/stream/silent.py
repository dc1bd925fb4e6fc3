"""Partitions that never had a watermark, though others have: nothing above the others' start can be applied because of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from headrace.model.outcome import Notice
from headrace.model.stream import PartitionEnds
from headrace.sources.stream.position import StreamPosition
from headrace.sources.stream.staged import Staged


def silent_notices(staged: Staged, partitions: Sequence[PartitionEnds], place: StreamPosition, least: int) -> Iterator[Notice]:
    """A notice for each partition that is staged to its end and has no watermark, if another promises more than ``least`` (TSO)."""
    promised, ends = staged.watermarks(place), staged.ends()
    if not any(watermark > least for watermark in promised.values()):
        return
    blocked = staged.blocked(place)
    for partition in partitions:
        name = partition.partition
        is_staged = ends.get(name, partition.first) >= partition.end
        if is_staged and name not in promised and not place.promise(name) and name not in blocked:
            text = f"Partition {name} has no watermark, and others have: nothing is applied until it has one."
            yield Notice(f"{text} {partition.if_silent}".rstrip())
