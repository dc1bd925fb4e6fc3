"""How far a pipeline is behind the ends of its stream, and the alarm before the stream removes what it still needs."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace

from headrace.model.backlog import Needed, PartitionBacklog
from headrace.model.outcome import Notice
from headrace.model.place import PlaceInStream
from headrace.model.stream import PartitionEnds
from headrace.model.tso import tells_time, tso_to_ms
from headrace.sources.stream.position import StreamPosition
from headrace.sources.stream.reader import StreamReader

_EVERY_SECONDS = 60.0
_WHAT_TO_DO = (
    "Let stopped and held tables go on, or catch up, or make the retention longer; headrace status --source shows how much is left."
)


def backlog_of(reader: StreamReader, position: str) -> list[PartitionBacklog]:
    """What a pipeline has yet to take of each partition, by its position. Reads records of partitions where it is far behind.

    Raises SourceUnreachableError, SourceNotReadyError, and ValueError for a position of another source.
    """
    place, ends = StreamPosition.parse(position), reader.ends()
    return with_retention(reader, backlogs(place, ends), ends)


def backlogs(place: StreamPosition, ends: Collection[PartitionEnds]) -> list[PartitionBacklog]:
    """What there is to take, without how long it is kept. With an empty position everything is."""
    found = []
    for end in ends:
        at = place.partitions.get(end.partition)
        # A pipeline begins at what is kept then; a partition that is new to it is needed from its first record.
        begin = 0 if place.partitions else end.first
        needed, read_to = (begin, begin) if at is None else (at.offset, at.read_to)
        after_ms = tso_to_ms(at.passed) if at is not None and tells_time(at.passed) else 0
        found.append(PartitionBacklog(end.partition, end.first, min(needed, end.end), min(read_to, end.end), end.end, after_ms))
    return found


def with_retention(
    reader: StreamReader, found: Sequence[PartitionBacklog], ends: Collection[PartitionEnds]
) -> list[PartitionBacklog]:
    """The backlogs with how long the oldest needed record of each is kept. Raises SourceUnreachableError."""
    by_name = {end.partition: end for end in ends}
    wanted = [of for of in found if of.needed < of.end]
    kept = reader.kept({of.partition: Needed(max(of.needed, of.first), of.after_ms) for of in wanted}, by_name)
    return [replace(of, kept=kept.get(of.partition)) for of in found]


class RetentionWatch:
    """Looks once a minute whether the stream will soon remove what the pipeline still needs."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._looked: float | None = None
        self._found: list[Notice] = []

    def notices(self, reader: StreamReader, place: StreamPosition, ends: Sequence[PartitionEnds]) -> Sequence[Notice]:
        """A notice for each partition whose oldest needed record has used up half of the retention.

        None for a pipeline that is about to begin. Raises SourceUnreachableError.
        """
        if not place.partitions:
            return ()
        if self._looked is None or self._clock() - self._looked >= _EVERY_SECONDS:
            found = with_retention(reader, backlogs(place, ends), ends)
            self._found, self._looked = list(_alarms(found, int(time.time() * 1000))), self._clock()
        return self._found


def _alarms(found: Sequence[PartitionBacklog], now_ms: int) -> Iterator[Notice]:
    for of in found:
        if of.kept is not None and of.kept.ends_soon(now_ms):
            place = PlaceInStream(of.partition, max(of.needed, of.first))
            yield Notice(f"{place}: half of the retention of this record is used up, and it is still needed. {_WHAT_TO_DO}")
