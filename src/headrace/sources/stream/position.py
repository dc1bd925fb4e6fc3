"""From where a stream must be read: for each partition an offset, and a sparse index from commit ts to offset.

A position has up to 64 marks per partition, and fewer of each if there are many partitions, whatever the number of tables and
records. A table that is stopped, or is to be read again, is read from the last mark that its checkpoint covers. Other tables'
records after that mark are skipped by their own checkpoints.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from headrace.model.place import PlaceInStream, SourcePlace
from headrace.model.stream import Mark, StageReport
from headrace.model.table import TableId

_MARKS, _LEAST_MARKS = 64, 8
_ALL_MARKS = 2048
"""The marks of all partitions together, unless each then had less than 8. A mark takes some 25 bytes, and each cut writes them."""
_VERSION = 1


@dataclass(frozen=True)
class PartitionPosition:
    """One partition: records before ``offset`` are not needed. ``marks`` are in order, before and after the offset."""

    offset: int = 0
    marks: tuple[Mark, ...] = ()

    @property
    def read_to(self) -> int:
        """The offset up to which records had been read when the position was written."""
        return self.marks[-1].offset if self.marks else self.offset

    @property
    def reached(self) -> int:
        """The greatest commit ts (TSO) of the records that had been read; 0 if that is not known."""
        return self.marks[-1].reached if self.marks else 0

    def with_marks(self, found: Iterable[Mark], most: int = _MARKS) -> PartitionPosition:
        """The position with marks of records read after the known ones, ``most`` of them in all."""
        known = list(self.marks)
        for mark in found:
            reached = max(mark.reached, known[-1].reached if known else 0)
            if not known or mark.offset > known[-1].offset:
                known.append(Mark(mark.offset, reached))
        return replace(self, marks=_thinned(known, self.offset, most))

    def begins(self, commit_ts: int) -> int:
        """The largest known offset before which no record has a commit ts (TSO) above this one; 0 if none is known."""
        return max((mark.offset for mark in self.marks if mark.reached <= commit_ts), default=0)

    def moved_to(self, commit_ts: int, before: int | None = None) -> PartitionPosition:
        """The position in which records up to a commit ts (TSO) are not needed, except for those from ``before`` on.

        The offset never decreases.
        """
        reached = self.begins(commit_ts) if before is None else min(before, self.begins(commit_ts))
        offset = max(self.offset, reached)
        return replace(self, offset=offset)

    @property
    def passed(self) -> int:
        """The greatest commit ts (TSO) that a record before the offset may have."""
        return next((mark.reached for mark in self.marks if mark.offset >= self.offset), 0)

    def reached_before(self, first: int) -> int:
        """The greatest commit ts (TSO) of a record from the offset up to ``first``; 0 if there is none."""
        return next((mark.reached for mark in self.marks if mark.offset >= first), 0) if self.offset < first else 0

    def back_to(self, commit_ts: int) -> PartitionPosition:
        """The position from which all records above a commit ts (TSO) are read again."""
        return replace(self, offset=min(self.offset, self.begins(commit_ts)))


def _thinned(marks: list[Mark], offset: int, most: int) -> tuple[Mark, ...]:
    """Drops every other mark as often as there are too many. The mark at the offset and the last one stay."""
    while len(marks) > most:
        last = len(marks) - 1
        marks = [mark for n, mark in enumerate(marks) if n % 2 == 0 or n == last or mark.offset == offset]
    return tuple(marks)


@dataclass(frozen=True)
class Unpromised:
    """Data that were applied, perhaps in part, without the promise of all partitions: a final drain applied what was there."""

    end: int
    """The ts (TSO) up to which they were applied."""
    promised: Mapping[str, int]
    """What each of these partitions had promised (TSO), less than ``end``. The others had promised all of it."""


@dataclass(frozen=True)
class StreamPosition:
    """The position of a whole stream. ``watermark`` (TSO) is the watermark of the offer when it was made."""

    partitions: Mapping[str, PartitionPosition] = field(default_factory=dict)
    watermark: int = 0
    given_up: frozenset[tuple[TableId, PlaceInStream]] = frozenset()
    """Records that a person gave up, of tables that still have to pass them."""
    unpromised: Unpromised | None = None
    unknown: Mapping[str, int] = field(default_factory=dict)
    """By partition, the offset of the first record that had been read and whose table is unknown. No table has passed it."""
    streams: Mapping[str, str] = field(default_factory=dict)
    """By partition, what distinguishes its stream from a later one of the same name (``PartitionEnds.stream``)."""

    @classmethod
    def parse(cls, text: str) -> StreamPosition:
        """Parses :meth:`to_text`; an empty text is the beginning. Raises ValueError."""
        if not text:
            return cls()
        told = json.loads(text)
        if not isinstance(told, dict) or told.get("v") != _VERSION:
            raise ValueError("this is no position of a stream that this version of Headrace knows")
        partitions = {}
        for name, (offset, marks) in told["p"].items():
            partitions[name] = PartitionPosition(int(offset), tuple(Mark(int(at), int(ts)) for at, ts in marks))
        given_up = {(TableId(*names), PlaceInStream(name, int(offset))) for *names, name, offset in told.get("g", ())}
        end, promised = told.get("u", (0, {}))
        unpromised = Unpromised(int(end), {name: int(ts) for name, ts in promised.items()}) if promised else None
        unknown = {name: int(offset) for name, offset in told.get("n", {}).items()}
        streams = {name: str(stream) for name, stream in told.get("s", {}).items()}
        return cls(partitions, int(told["w"]), frozenset(given_up), unpromised, unknown, streams)

    def to_text(self) -> str:
        """The position as stored in the ledger."""
        told = {name: [at.offset, [[m.offset, m.reached] for m in at.marks]] for name, at in sorted(self.partitions.items())}
        given_up = sorted([t.database, t.table, place.partition, place.offset] for t, place in self.given_up)
        rest: dict[str, object] = {"g": given_up} if given_up else {}
        if self.unpromised is not None:
            rest["u"] = [self.unpromised.end, dict(sorted(self.unpromised.promised.items()))]
        if self.unknown:
            rest["n"] = dict(sorted(self.unknown.items()))
        if self.streams:
            rest["s"] = dict(sorted(self.streams.items()))
        return json.dumps({"v": _VERSION, "w": self.watermark, "p": told, **rest}, separators=(",", ":"))

    def of(self, partition: str) -> PartitionPosition:
        """The position of a partition. One that was created later begins at its first record."""
        return self.partitions.get(partition, PartitionPosition())

    def with_marks(self, reports: Iterable[StageReport]) -> StreamPosition:
        """The position with the marks of staged ranges, in their order."""
        found = dict(self.partitions)
        most = max(_LEAST_MARKS, min(_MARKS, _ALL_MARKS // max(len(found), 1)))
        for report in sorted(reports, key=lambda report: report.range.start):
            found[report.range.partition] = found.get(report.range.partition, PartitionPosition()).with_marks(report.marks, most)
        return replace(self, partitions=found)

    def beginning(self, offsets: Mapping[str, int]) -> StreamPosition:
        """The position with new partitions, which were read from these offsets, and moved past records that are no longer kept."""
        fresh = {name: PartitionPosition(at, (Mark(at, 0),)) for name, at in offsets.items() if name not in self.partitions}
        known = {name: replace(at, offset=max(at.offset, offsets.get(name, 0))) for name, at in self.partitions.items()}
        return replace(self, partitions={**known, **fresh})

    def moved_to(self, commit_ts: int, before: Mapping[str, int] = MappingProxyType({})) -> StreamPosition:
        """See :meth:`PartitionPosition.moved_to`. ``before`` has the offsets that partitions must not pass."""
        moved = replace(self, partitions={name: at.moved_to(commit_ts, before.get(name)) for name, at in self.partitions.items()})
        kept = frozenset((t, place) for t, place in self.given_up if place.offset >= moved.of(place.partition).offset)
        return replace(moved, given_up=kept)

    @property
    def applied_to(self) -> int:
        """The commit ts (TSO) up to which changes were, or may have been, applied. Records at or below it are skipped."""
        return self.watermark if self.unpromised is None else max(self.watermark, self.unpromised.end)

    def promise(self, partition: str) -> int:
        """What a partition had promised (TSO) of the applied data; 0 if the partition was not known then."""
        if partition not in self.partitions:
            return 0
        return self.applied_to if self.unpromised is None else self.unpromised.promised.get(partition, self.applied_to)

    def applying(self, hi: int, promises: Mapping[str, int]) -> StreamPosition:
        """The position with what a cut up to ``hi`` (TSO) applies without a promise; ``promises`` are all partitions' (TSO)."""
        end = max(self.applied_to, hi)
        short = {name: promised for name, promised in promises.items() if promised < end}
        return replace(self, unpromised=Unpromised(end, short) if short else None)

    def giving_up(self, table_id: TableId, place: PlaceInStream) -> StreamPosition:
        """The position in which a record of the table is skipped. This is stored until records at that place are not needed."""
        return replace(self, given_up=self.given_up | {(table_id, place)})

    def needs(self, table_id: TableId, place: SourcePlace | None) -> bool:
        """Whether a record of the table still has to be understood: no person gave it up, and its offset was not passed.

        What is passed is not kept in ``given_up``, and may still be among the staged records.
        """
        if not isinstance(place, PlaceInStream):
            return True
        return place.offset >= self.of(place.partition).offset and (table_id, place) not in self.given_up

    @property
    def passed(self) -> int:
        """The commit ts (TSO) above which every record, of any table, is still to be read."""
        return max((at.passed for at in self.partitions.values()), default=0)

    def back_to(self, commit_ts: int) -> StreamPosition:
        """See :meth:`PartitionPosition.back_to`."""
        return replace(self, partitions={name: at.back_to(commit_ts) for name, at in self.partitions.items()})
