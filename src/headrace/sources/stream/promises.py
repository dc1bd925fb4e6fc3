"""How far the partitions of a stream are complete together. Pure.

Normally a partition is complete up to its own greatest watermark, so the least of these counts. But TiCDC sends watermarks only to
topics that have tables: a topic whose tables were all dropped gets no watermark any more, and would hold back all others for ever.
For such partitions (``PartitionEnds.leans_after``) the watermarks of the others count, because TiCDC writes a watermark only after
it has written everything up to it, to all partitions (TiCDC documentation, "Replicate Data to Kafka": resolved events).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from headrace.model.outcome import Notice
from headrace.model.stream import PartitionEnds
from headrace.model.tso import tso_to_ms
from headrace.sources.stream.position import StreamPosition
from headrace.sources.stream.staged import Staged


@dataclass(frozen=True)
class Promises:
    """What is promised by the ``partitions`` that the stream lists now and by all that were known before."""

    staged: Staged
    partitions: Sequence[PartitionEnds]
    place: StreamPosition
    least: int
    """The ts (TSO) up to which the stream was complete before."""
    left_out: frozenset[str] = frozenset()
    """Known partitions that do not belong to the stream any more, as a person has set."""

    @cached_property
    def names(self) -> frozenset[str]:
        """All partitions that count. One that the stream does not list for a moment still limits the watermark."""
        listed = {p.partition for p in self.partitions}
        return frozenset(listed | self.place.partitions.keys() | self.staged.begins.keys()) - self.left_out

    @cached_property
    def each(self) -> Mapping[str, int]:
        """The ts (TSO) up to which each partition counts as complete."""
        led = {name for name, (shown, after) in self._leaning.items() if is_far_ahead(self._leading, shown, after)}
        return {**self._own, **{name: max(self._own[name], self._leading) for name in led}}

    @cached_property
    def _own(self) -> Mapping[str, int]:
        """What each partition promises by itself (TSO), at least ``least``."""
        promised = self.staged.watermarks(self.place)
        return {name: promised.get(name, self.least) for name in self.names}

    @cached_property
    def _leaders(self) -> Mapping[str, int]:
        """What those partitions promise (TSO) for which no others count."""
        leaning = {p.partition for p in self.partitions if p.leans_after is not None}
        return {name: ts for name, ts in self._own.items() if name not in leaning}

    @cached_property
    def _leading(self) -> int:
        return min(self._leaders.values(), default=self.least)

    @cached_property
    def _leaning(self) -> Mapping[str, tuple[int, int]]:
        """The partitions that are read to their end, and for which others may count.

        With the greatest commit ts (TSO) of their records, and how far (ms) the others must be ahead of it.
        """
        ends, blocked = self.staged.ends(), self.staged.blocked(self.place)
        found = {}
        for partition in self.partitions:
            name = partition.partition
            read_to = ends.get(name, max(partition.first, self.place.of(name).offset))
            if partition.leans_after is not None and name not in blocked and read_to >= partition.end:
                found[name] = max(self.staged.reached(name), self.place.of(name).reached), partition.leans_after
        return found

    @cached_property
    def watermark(self) -> int:
        """The ts (TSO) up to which all partitions are complete, at least ``least``."""
        return max(self.least, min(self.each.values(), default=self.least))

    @property
    def holding(self) -> set[str]:
        """The partitions that limit the watermark: it rises when all of them promise more. Some may not be listed any more.

        Instead of a partition that others may count for, these others.
        """
        found = {name for name, ts in self.each.items() if ts <= self.watermark}
        if found & self._leaning.keys():
            found |= {name for name, ts in self._leaders.items() if ts <= self._leading}
        return found - self._leaning.keys()

    def final(self, latest: int) -> int:
        """The greatest ts of all existing data, except for those above ``latest`` (TSO).

        If a partition cannot be read to its end, not more than it had promised.
        """
        pieces = [piece.max_ts for report in self.staged.reports for piece in report.pieces]
        changes = [statement.commit_ts for report in self.staged.reports for statement in report.statements]
        own = self.staged.watermarks(self.place)
        held = (self.staged.blocked(self.place) & self.names) | self.absent
        greatest = max([self.least, *(ts for ts in (*pieces, *changes) if ts <= latest)])
        return max(self.least, min([greatest, *(own.get(name, self.least) for name in held)]))

    @property
    def absent(self) -> frozenset[str]:
        """The known partitions that the stream does not list."""
        return self.names - {p.partition for p in self.partitions}


def is_far_ahead(leading: int, shown: int, leans_after: int) -> bool:
    """Whether the watermarks of others (``leading``, TSO) count for a partition whose last record is at ``shown`` (TSO).

    ``leans_after`` is in ms, see ``PartitionEnds``.
    """
    return tso_to_ms(leading) - tso_to_ms(shown) >= leans_after


def absent_notices(names: Iterable[str]) -> Iterator[Notice]:
    """A notice for each known partition that the stream does not list."""
    for name in sorted(names):
        yield Notice(
            f"The stream does not name its partition {name} any more: nothing above its watermark is applied until it does."
        )
