"""What is known of a stream: records of several tables mixed in partitions, which have to be read to be known.

A record has a *place*: its partition and its offset there, a number that grows from record to record.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from headrace.model.outcome import Problem
from headrace.model.place import PlaceInStream
from headrace.model.table import TableId, TableSchema


@dataclass(frozen=True)
class PartitionEnds:
    """Which records a partition has now: offsets from ``first`` up to, and without, ``end``."""

    partition: str
    first: int
    """Older ones are gone: the stream keeps records for a while only."""
    end: int
    bytes_per_record: float
    """About how many bytes a record has, for bounding what is read at a time."""


@dataclass(frozen=True)
class Range:
    """Records of one partition, from ``start`` up to, and without, ``end``: what one stage task reads."""

    partition: str
    start: int
    end: int
    size: int
    """About how many bytes it has."""


@dataclass(frozen=True)
class StreamStatement:
    """A schema change as a record tells it."""

    commit_ts: int
    """TSO."""
    database: str
    """The current database for names without one."""
    statement: str
    table_id: TableId
    """The table that it makes or changes; of a change of a database the database."""
    schema: TableSchema | None
    """The table's shape afterwards, where the record tells it."""
    partition: str
    offset: int
    before: int | None = None
    """The offset of the partition's record before it; ``None`` for the first that was read. Offsets may be missing in between."""

    @property
    def place(self) -> PlaceInStream:
        """The record's."""
        return PlaceInStream(self.partition, self.offset)


@dataclass(frozen=True)
class Between:
    """What the watermarks between two pieces of a table tell: one that falls, that what writes the stream has begun again there."""

    fell: bool = False
    """One was below the one before it in the range."""
    first: bool = False
    """The range's first one is among them: whether it fell, the range before it tells."""
    is_known: bool = False
    """One was not above the greatest one before it in the range: what writes the stream may have begun again, from there."""
    least: int | None = None
    """The least one (TSO); ``None``: there is none."""

    def __or__(self, other: Between) -> Between:
        least = min((ts for ts in (self.least, other.least) if ts is not None), default=None)
        return Between(self.fell or other.fell, self.first or other.first, self.is_known or other.is_known, least)


@dataclass(frozen=True)
class StagedPiece:
    """Records of one table from one range, in the order of their offsets, in the work place.

    It may hold rows on both sides of a schema change: each row counts by its commit ts.
    """

    table_id: TableId
    partition: str
    first: int
    last: int
    """The offsets of its first and last record."""
    records: int
    size: int
    """Bytes of its records."""
    min_ts: int
    max_ts: int
    """The least and the greatest commit ts (TSO). Within a piece they do not go down: there another one begins."""
    between: Between
    """What lies between the table's piece before, or the beginning of the range, and it."""
    promised: int
    """The greatest watermark (TSO) of the range before its first record; 0 where there is none."""
    key: str
    """The object in the work place that it lies in, with others."""
    start: int
    length: int
    """The bytes of the object that are the piece: an Arrow IPC stream of ``headrace.sources.stream.records.PIECE``."""


@dataclass(frozen=True)
class Mark:
    """No record of the partition before ``offset`` has a commit ts above ``reached`` (TSO)."""

    offset: int
    reached: int


@dataclass(frozen=True)
class StageReport:
    """What was found in a range: staged pieces of each table, and what concerns all of them."""

    range: Range
    pieces: tuple[StagedPiece, ...] = ()
    statements: tuple[StreamStatement, ...] = ()
    promised_before: tuple[tuple[int, int | None], ...] = ()
    """The offset of each record of which nobody knows the table, and the greatest promise (TSO) of the range before it."""
    first_watermark: int | None = None
    last_watermark: int | None = None
    greatest_watermark: int | None = None
    """The first, the last and the greatest one of the range (TSO). It promises that everything up to there is before it."""
    behind: Mapping[TableId, Between] = field(default_factory=dict)
    """What lies behind the last piece of each table that has one."""
    all_of_it: Between = field(default_factory=Between)
    """What the range holds, for the other tables."""
    marks: tuple[Mark, ...] = ()
    """For finding an offset by a commit ts; of the records of this range alone. The last is at its end."""
    problems: tuple[Problem, ...] = ()
    """Schema changes that cannot be read, with their place."""
    unknown: tuple[Problem, ...] = ()
    """Records of which nobody can tell what they are, with their place."""
    ahead: tuple[tuple[int, int], ...] = ()
    """The first watermark of the future, its offset and TSO: such promise nothing."""
    last_record: int | None = None
    """The offset of its last record; ``None`` where it has none."""
