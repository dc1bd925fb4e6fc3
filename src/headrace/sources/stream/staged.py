"""What a run has staged of a stream, and the splits made of it: each piece of a table, with what comes before and after it."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum

from headrace.model.outcome import Problem
from headrace.model.place import PlaceInStream, SourcePlace
from headrace.model.split import Split
from headrace.model.stream import Between, StagedPiece, StageReport, StreamStatement
from headrace.model.table import NOBODYS, TableId, TableSchema
from headrace.model.tso import MAX_TSO
from headrace.sources.stream.history import StreamHistory
from headrace.sources.stream.position import StreamPosition


@dataclass(frozen=True)
class StagedSplit(Split):
    """What one decode task reads of a staged piece: its rows with ``above < commit_ts <= up_to`` (TSO), which have one shape."""

    piece: StagedPiece
    above: int
    up_to: int
    goes_on: bool = True
    """Whether the partition's next piece of the table may continue the transaction with which this one ends."""
    interrupted: bool = False
    """Whether there is a rising watermark between them, and not a repeated one."""
    anew: bool = False
    """Whether the writer of the stream certainly restarted before it."""
    given_up: tuple[int, ...] = ()
    """The offsets of records that were given up."""
    other_columns: frozenset[str] = frozenset()
    """The folded names of columns that only the table's shape before or after this one has."""

    @property
    def place(self) -> SourcePlace:
        """The records of the piece."""
        return PlaceInStream(self.piece.partition, self.piece.first, self.piece.last)


@dataclass(frozen=True)
class Staged:
    """The ranges that a run has staged and still needs, in the order in which they were read (``headrace.model.offer.Learned``)."""

    reports: tuple[StageReport, ...] = ()
    begins: Mapping[str, int] = field(default_factory=dict)
    """The first offset that was read in each partition."""
    streams: Mapping[str, str] = field(default_factory=dict)
    """By partition, what distinguishes its stream (``PartitionEnds.stream``)."""
    promises: Mapping[str, int] = field(default_factory=dict)
    """What each partition has promised (TSO), also without newly staged records. It is less than the watermark only after a final
    drain, and for a partition that the stream listed late."""

    def without(self, tables: Collection[TableId]) -> Staged:
        """Unchanged: what is not needed is dropped with the position."""
        return self

    @property
    def size(self) -> int:
        """Bytes of all staged records."""
        return sum(piece.size for piece in self.pieces())

    def pieces(self) -> Iterator[StagedPiece]:
        """All staged pieces."""
        return (piece for report in self.reports for piece in report.pieces)

    def pieces_of(self, table_id: TableId) -> Iterator[StagedPiece]:
        """The staged pieces of a table."""
        return (piece for piece in self.pieces() if piece.table_id == table_id)

    def ends(self) -> dict[str, int]:
        """The offset up to which each partition is staged."""
        return {report.range.partition: report.range.end for report in self.reports}

    def reached(self, partition: str) -> int:
        """The greatest commit ts (TSO) of a staged record of the partition, a watermark's included; 0 if there is none."""
        of_partition = (report for report in self.reports if report.range.partition == partition)
        return max((mark.reached for report in of_partition for mark in report.marks), default=0)

    def statements(self) -> Iterator[StreamStatement]:
        """All schema changes, each with the record before it, even if that is in another range."""
        before: dict[str, int] = {}
        for report in sorted(self.reports, key=lambda report: (report.range.partition, report.range.start)):
            partition = report.range.partition
            for told in report.statements:
                yield told if told.before is not None else replace(told, before=before.get(partition))
            if report.last_record is not None:
                before[partition] = report.last_record

    def promising(self, position: StreamPosition, start: int) -> Staged:
        """The value with the promises of all partitions. ``start`` (TSO) counts as promised if nothing was read before."""
        names = position.partitions.keys() | self.begins.keys()
        found = {name: position.promise(name) if position.partitions else start for name in names}
        for report in self.reports:
            name = report.range.partition
            found[name] = max(found[name], report.greatest_watermark or 0)
        return replace(self, promises=found)

    def watermarks(self, position: StreamPosition) -> dict[str, int]:
        """What each partition promises (TSO). After a record of an unknown table it promises nothing until that is given up."""
        found: dict[str, int] = {}
        blocked: set[str] = set()
        for report in self.reports:
            partition, promised = report.range.partition, report.greatest_watermark
            if partition in blocked:
                continue
            for offset, before in report.promised_before:
                if position.needs(NOBODYS, PlaceInStream(partition, offset)):
                    blocked.add(partition)
                    promised = before
                    break
            if promised is not None:
                found[partition] = max(found.get(partition, 0), promised)
        return found

    def blocked(self, position: StreamPosition) -> frozenset[str]:
        """The partitions with a record of an unknown table that is needed and was not given up."""
        places = (PlaceInStream(r.range.partition, offset) for r in self.reports for offset, _ in r.promised_before)
        return frozenset(place.partition for place in places if position.needs(NOBODYS, place))

    def problems(self, position: StreamPosition) -> list[Problem]:
        """The records that cannot be understood, except for those that were given up or passed."""
        unknown = (problem for report in self.reports for problem in report.unknown)
        # Rows after an unreadable schema change may have another shape, so giving it up is not enough.
        read = [problem for report in self.reports for problem in report.problems]
        kept = (p for p in unknown if position.needs(p.table_id, p.place))
        return [p for p in (*read, *kept) if p.table_id.table or position.needs(NOBODYS, p.place)]

    def unclear(self, position: StreamPosition) -> dict[str, int]:
        """The first offset of such a record in each partition. The partition is needed from there on."""
        found: dict[str, int] = {}
        for problem in self.problems(position):
            if isinstance(problem.place, PlaceInStream):
                partition, at = problem.place.partition, problem.place.offset
                found[partition] = min(at, found.get(partition, at))
        return found

    def read_into(self, position: StreamPosition) -> StreamPosition:
        """The position with what was found: marks, streams, and the first record of an unknown table in each partition."""
        places = (PlaceInStream(r.range.partition, offset) for r in self.reports for offset, _ in r.promised_before)
        unknown: dict[str, int] = {}
        for place in places:
            if position.needs(NOBODYS, place):
                unknown[place.partition] = min(place.offset, unknown.get(place.partition, place.offset))
        position = position.beginning(self.begins).with_marks(self.reports)
        return replace(position, unknown=unknown, streams={**position.streams, **self.streams})

    def needed(self, position: StreamPosition) -> Staged:
        """The value without ranges in which no record is needed any more."""
        kept = tuple(r for r in self.reports if r.range.end > position.of(r.range.partition).offset)
        return replace(self, reports=kept)

    def follows(self, position: StreamPosition, kept_from: Mapping[str, int]) -> bool:
        """Whether it has all kept records that must be read from the position on, up to its own end."""
        begins: dict[str, int] = {}
        for report in self.reports:
            begins.setdefault(report.range.partition, report.range.start)
        known = position.partitions.keys()
        least = {name: max(position.of(name).offset, kept_from.get(name, 0)) for name in known}
        return all(start <= least[partition] for partition, start in begins.items() if partition in known)


def splits(
    staged: Staged,
    history: StreamHistory,
    watermark: int,
    applied: Callable[[TableId], int],
    position: StreamPosition,
    *,
    whole_transactions: bool = False,
) -> Iterator[StagedSplit]:
    """One split for each piece and shape that may have rows up to the watermark that are not applied yet.

    ``whole_transactions``: see ``StreamReader``.
    """
    skipped: dict[tuple[TableId, str], list[int]] = defaultdict(list)
    for table_id, place in position.given_up:
        skipped[table_id, place.partition].append(place.offset)
    for table_id, pieces in _pieces(staged, position.watermark).items():
        versions = history.versions(table_id)
        if not versions:
            continue
        own = applied(table_id)
        # Rows from before the first known version have its shape, unless the table began with it.
        first = versions[0][0]
        beginnings = [first if history.begins(table_id, first) else 0, *(version for version, _ in versions[1:])]
        rank = 0
        others = _other_columns([schema for _, schema in versions])
        for above, (version, schema), up_to, names in zip(beginnings, versions, [*beginnings[1:], MAX_TSO], others, strict=True):
            for of in _between(pieces, max(own, above), min(up_to, watermark)):
                piece = of.piece
                least = max(above, of.promised) if whole_transactions else above
                if piece.max_ts <= least:
                    continue
                yield StagedSplit(
                    _key(piece, version),
                    table_id,
                    version,
                    rank,
                    piece.size,
                    schema,
                    piece,
                    least,
                    up_to,
                    of.goes_on and not whole_transactions,
                    of.interrupted and not whole_transactions,
                    of.anew and not whole_transactions,
                    tuple(o for o in skipped.get((table_id, piece.partition), ()) if piece.first <= o <= piece.last),
                    names,
                    earliest=max(piece.min_ts, least + 1) if above == 0 else None,
                )
                rank += 1


def _key(piece: StagedPiece, version: int) -> str:
    """The key of a piece's split with a version (TSO) of its table.

    The offsets do not tell pieces apart: a record may have rows of several tables, and rows of one table whose commit ts decrease.
    The place in the object of the range does. No position has the key, so it may look different in another version of Headrace.
    """
    return json.dumps([piece.table_id.key, piece.partition, piece.first, piece.last, piece.start, version], ensure_ascii=False)


def _other_columns(shapes: Sequence[TableSchema]) -> list[frozenset[str]]:
    """For each shape of a table, the columns that only the shapes next to it have."""
    names = [frozenset(), *(frozenset(shape.places) for shape in shapes), frozenset()]
    return [(before | after) - own for before, own, after in zip(names, names[1:], names[2:], strict=False)]


class _Follows(IntEnum):
    """What is between two pieces of a table in a partition."""

    NOTHING = 0
    A_PROMISE = 1
    """A rising watermark. It may be inside a transaction. Or the writer of the stream restarts from it, having promised more by
    then than it had written here."""
    PERHAPS_A_RESTART = 2
    A_RESTART = 3


@dataclass
class _InStream:
    """A piece with what comes before and after it in its partition."""

    piece: StagedPiece
    promised: int
    """The greatest watermark (TSO) before it among the staged records of its partition; 0 for none. What this table has of it comes
    before the piece, too. It was staged or, if it comes before all staged records, every table that needs a later one has it."""
    anew: bool
    goes_on: bool = True
    interrupted: bool = False


def _between(pieces: Iterable[_InStream], least: int, greatest: int) -> Iterator[_InStream]:
    """The pieces that may have rows above ``least`` and up to ``greatest`` (TSO), in order.

    If the writer of the stream restarted before or after a piece that is left out, the next of these pieces is marked as repeated.
    """
    before: StagedPiece | None = None
    anew = False
    for of in pieces:
        piece = of.piece
        is_next = before is not None and before.partition == piece.partition
        anew = (is_next and (anew or (before is not None and piece.min_ts < before.max_ts))) or of.anew
        if piece.max_ts > least and piece.min_ts <= greatest:
            yield replace(of, anew=anew)
            anew = False
        before = piece


def _pieces(staged: Staged, unseen: int) -> dict[TableId, list[_InStream]]:
    """The pieces of each table, partition by partition. ``unseen`` (TSO): watermarks before the staged records are not above it."""
    of_stream: dict[tuple[TableId, str], list[_InStream]] = defaultdict(list)
    before_range: dict[str, _Watermarks] = defaultdict(_Watermarks)
    behind: dict[tuple[TableId, str], _Follows] = defaultdict(lambda: _Follows.NOTHING)
    for report in sorted(staged.reports, key=lambda report: (report.range.partition, report.range.start)):
        partition = report.range.partition
        known = before_range[partition]
        for piece in report.pieces:
            before = of_stream[piece.table_id, partition]
            follows = max(behind.pop((piece.table_id, partition), _Follows.NOTHING), _follows(piece.between, report, known, unseen))
            promised = max(piece.promised, known.greatest)
            if before and promised >= piece.min_ts and promised > before[-1].promised:
                follows = _Follows.A_RESTART  # the partition has promised in between that nothing of this follows
            if before and (follows is not _Follows.NOTHING or piece.min_ts < before[-1].piece.max_ts):
                before[-1].goes_on, before[-1].interrupted = False, follows is _Follows.A_PROMISE
            before.append(_InStream(piece, promised, follows is _Follows.A_RESTART))
        for table_id, name in of_stream:
            if name == partition:
                between = report.behind.get(table_id, report.all_of_it)
                behind[table_id, partition] = max(behind[table_id, partition], _follows(between, report, known, unseen))
        if report.last_watermark is not None and report.greatest_watermark is not None:
            before_range[partition] = _Watermarks(report.last_watermark, max(report.greatest_watermark, known.greatest))
    found: dict[TableId, list[_InStream]] = defaultdict(list)
    for (table_id, _), pieces in of_stream.items():
        found[table_id] += pieces
    return found


@dataclass(frozen=True)
class _Watermarks:
    """The watermarks (TSO) of a partition in the staged ranges before a range.

    The pipeline's own watermark is not among them. A table may be far behind it, and still have to read what it promises.
    """

    last: int | None = None
    greatest: int = 0


def _follows(between: Between, report: StageReport, known: _Watermarks, unseen: int) -> _Follows:
    first = report.first_watermark
    if between.fell or (between.first and first is not None and known.last is not None and first < known.last):
        return _Follows.A_RESTART
    if between.least is None:
        return _Follows.NOTHING
    # A repeated watermark may be where the writer of the stream restarted, for the second time in a row. Of the watermarks before
    # the first range it is only known that they are not above the position's.
    is_known = between.is_known or between.least <= max(known.greatest, unseen)
    return _Follows.PERHAPS_A_RESTART if is_known else _Follows.A_PROMISE
