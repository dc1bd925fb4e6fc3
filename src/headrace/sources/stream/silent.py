"""Partitions that never had a watermark, though others have: nothing above the others' start can be applied because of them."""

from __future__ import annotations

from collections.abc import Iterator

from headrace.model.outcome import Notice
from headrace.sources.stream.promises import Promises


def silent_notices(promises: Promises) -> Iterator[Notice]:
    """A notice for each partition that is staged to its end and has no watermark, if another promises more than the least ts.

    None for a partition for which the watermarks of others will count.
    """
    staged, place = promises.staged, promises.place
    promised, ends = staged.watermarks(place), staged.ends()
    if not any(watermark > promises.least for watermark in promised.values()):
        return
    blocked = staged.blocked(place)
    for partition in promises.partitions:
        name = partition.partition
        is_staged = ends.get(name, partition.first) >= partition.end
        waits = partition.leans_after is None and name not in promised and not place.promise(name)
        if is_staged and waits and name not in blocked:
            text = f"Partition {name} has no watermark, and others have: nothing is applied until it has one."
            yield Notice(f"{text} {partition.if_silent}".rstrip())
