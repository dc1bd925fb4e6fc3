"""What is known of a stream, in which records of several tables are mixed in partitions. Only reading shows what they are.

A record has a *place*: its partition and its offset there, a number that increases from record to record.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from headrace.model.outcome import Notice, Problem
from headrace.model.place import PlaceInStream
from headrace.model.table import TableId, TableSchema


@dataclass(frozen=True)
class GivenDefinitions:
    """The definitions that a person gives of tables whose CREATE a stream does not have."""

    statements: tuple[StreamStatement, ...]
    """Of databases and tables, in their order."""
    notices: tuple[Notice, ...] = ()
    """One for each table whose definition is there and cannot be used."""


@dataclass(frozen=True)
class PartitionEnds:
    """The records that a partition has now: offsets from ``first`` up to ``end``, exclusive."""

    partition: str
    first: int
    """Older records are gone, because the stream keeps records only for a limited time."""
    end: int
    bytes_per_record: float
    """The approximate bytes per record, for limiting how much is read at a time."""
    stream: str = ""
    """What distinguishes the stream from another one that has its name later; empty if the system does not tell."""
    if_silent: str = ""
    """What to do if it never has a watermark: a sentence."""
    leans_after: int | None = None
    """How far (ms) the watermarks of the partitions that have ``None`` here must be ahead of its last record before they count for
    it, too. For a partition that may get no watermarks any more. Its ``end`` must have been read after theirs."""


@dataclass(frozen=True)
class Range:
    """The records that one stage task reads: of one partition, from ``start`` up to ``end``, exclusive."""

    partition: str
    start: int
    end: int
    size: int
    """The approximate size in bytes."""


@dataclass(frozen=True)
class StreamStatement:
    """A schema change as a record of the stream contains it."""

    commit_ts: int
    """TSO."""
    database: str
    """The current database for names without one, unless ``current_is_known`` is false."""
    statement: str
    table_id: TableId
    """The table that is created or changed; for a change of a database, the database."""
    schema: TableSchema | None
    """The table's shape afterwards, if the record contains it."""
    partition: str
    offset: int
    tells_shape: bool = True
    """Whether records of this stream contain shapes. Otherwise the shape follows from the text and the shape before it."""
    current_is_known: bool = True
    """Whether ``database`` was the current database when the statement ran, or the statement names a database with each table."""
    carries_stored: bool = True
    """Whether rows have the values of stored generated columns."""
    is_inferred: bool = False
    """Whether there was no statement: rows of this shape follow, and it is not known how the table got it."""
    tells_defaults: bool = True
    """Whether ``schema`` has the defaults of columns; of meaning only with ``is_inferred``."""
    holds_bytes: tuple[tuple[str, bool], ...] = ()
    """By column, whether it holds bytes or text, as far as the record tells it without a shape."""
    ran_ms: int | None = None
    """When the source ran the statement (ms since 1970); ``None`` where the commit ts tells it."""
    if_it_drops: str = ""
    """If it drops a table that has rows: why a person must approve it first, in sentences. Empty: no approval is needed."""
    before: int | None = None
    """The offset of the partition's previous record; ``None`` for the first that was read. Offsets in between may be missing."""

    @property
    def place(self) -> PlaceInStream:
        """The place of the record."""
        return PlaceInStream(self.partition, self.offset)


@dataclass(frozen=True)
class Between:
    """The watermarks between two pieces of a table. A falling watermark shows that the writer of the stream restarted there."""

    fell: bool = False
    """Whether a watermark was below the previous one in the range."""
    first: bool = False
    """Whether the range's first watermark is among them. Only the previous range shows whether that one fell."""
    is_known: bool = False
    """Whether a watermark was not above the greatest one before it in the range. The writer may have restarted there."""
    least: int | None = None
    """The least watermark (TSO); ``None`` if there is none."""

    def __or__(self, other: Between) -> Between:
        least = min((ts for ts in (self.least, other.least) if ts is not None), default=None)
        return Between(self.fell or other.fell, self.first or other.first, self.is_known or other.is_known, least)


@dataclass(frozen=True)
class StagedPiece:
    """Records of one table from one range in the work place, in the order of their offsets.

    A piece may hold rows on both sides of a schema change: the commit ts of each row decides.
    """

    table_id: TableId
    partition: str
    first: int
    last: int
    """The offsets of its first and last record."""
    records: int
    size: int
    """The size of the records in bytes."""
    min_ts: int
    max_ts: int
    """The least and the greatest commit ts (TSO). Within a piece commit ts do not decrease; a lower one begins a new piece."""
    between: Between
    """The watermarks between the table's previous piece, or the start of the range, and this piece."""
    promised: int
    """The greatest watermark (TSO) of the range before its first record; 0 where there is none."""
    key: str
    """The object in the work place that contains the piece, with other pieces."""
    start: int
    length: int
    """The byte range of the piece in the object. It is an Arrow IPC stream of ``headrace.sources.stream.records.PIECE``."""
    checksum: int
    """The CRC-32 of these bytes."""


@dataclass(frozen=True)
class Mark:
    """No record of the partition before ``offset`` has a commit ts above ``reached`` (TSO)."""

    offset: int
    reached: int


@dataclass(frozen=True)
class StageReport:
    """What was found in a range: the staged pieces of each table, and what concerns all tables."""

    range: Range
    pieces: tuple[StagedPiece, ...] = ()
    statements: tuple[StreamStatement, ...] = ()
    promised_before: tuple[tuple[int, int | None], ...] = ()
    """The offset of each record whose table is unknown, and the greatest watermark (TSO) of the range before it."""
    first_watermark: int | None = None
    last_watermark: int | None = None
    greatest_watermark: int | None = None
    """The first, the last and the greatest watermark (TSO) of the range. A watermark promises that all changes up to it come before
    it."""
    behind: Mapping[TableId, Between] = field(default_factory=dict)
    """For each table with a piece, the watermarks after its last piece."""
    all_of_it: Between = field(default_factory=Between)
    """For the other tables, the watermarks of the whole range."""
    marks: tuple[Mark, ...] = ()
    """For finding an offset by a commit ts. They cover only the records of this range; the last mark is at its end."""
    problems: tuple[Problem, ...] = ()
    """Schema changes that cannot be read, with their place."""
    unknown: tuple[Problem, ...] = ()
    """Records that cannot be interpreted, with their place."""
    ahead: tuple[tuple[int, int], ...] = ()
    """The offset and the TSO of the first watermark that lies in the future. Such watermarks count as no promise."""
    last_record: int | None = None
    """The offset of the range's last record; ``None`` if it has none."""
