"""A source of any system with streams: ranges are staged once, and from what that leaves come ordinary offers.

What a run has staged travels from offer to offer (:class:`Staged`); the position says from where on a next run reads. Of a piece
each cut takes its window by commit ts, so rows above the watermark wait in the work place, and a partition that stalls does not
make others be read again.
"""

from __future__ import annotations

import secrets
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from headrace.errors import SourceLostError
from headrace.model.block import META_FIELDS, SEQ, SEQ_RANK_SHIFT, ChangeBlock, in_pieces
from headrace.model.commands import skip_command
from headrace.model.cut import CutOutcome
from headrace.model.letters import RejectedRecord
from headrace.model.offer import Learned, Offer
from headrace.model.outcome import Notice, Problem, SplitReport
from headrace.model.place import PlaceInStream, SourcePlace
from headrace.model.split import Split, Window
from headrace.model.stream import PartitionEnds, Range, StagedPiece, StageReport
from headrace.model.table import TableId
from headrace.model.tso import MAX_TSO
from headrace.sources.base import Bound, KeptShapes, StageRunner, StagingPlace
from headrace.sources.stream.history import StreamHistory
from headrace.sources.stream.position import StreamPosition
from headrace.sources.stream.reader import BadRecordError, StreamReader
from headrace.sources.stream.stage import stage

RANGE_BYTES = 8 << 20
"""What one stage task reads at most, about."""
_STALLED_TIMES = 4
_BLOCK_BYTES = 4 << 20
_BLOCK_ROWS = 131_072


@dataclass(frozen=True)
class StagedSplit(Split):
    """What one decode task reads of a staged piece: its rows with ``above < commit_ts <= up_to`` (TSO), which have one shape."""

    piece: StagedPiece
    above: int
    up_to: int
    goes_on: bool = True
    """Whether the partition's next piece of the table may go on in the transaction that this one ends with."""
    given_up: tuple[int, ...] = ()
    """The offsets of records that nobody wants."""

    @property
    def place(self) -> SourcePlace:
        """The records of the piece."""
        return PlaceInStream(self.piece.partition, self.piece.first, self.piece.last)


@dataclass(frozen=True)
class Staged:
    """The ranges that a run has staged and still needs, in the order in which they were read (``headrace.model.offer.Learned``)."""

    reports: tuple[StageReport, ...] = ()

    def without(self, tables: Collection[TableId]) -> Staged:
        """The same: what nobody needs goes with the position."""
        return self

    @property
    def size(self) -> int:
        """Bytes of all staged records."""
        return sum(piece.size for report in self.reports for piece in report.pieces)

    def ends(self) -> dict[str, int]:
        """Up to where each partition is staged."""
        return {report.range.partition: report.range.end for report in self.reports}

    def watermarks(self) -> dict[str, int]:
        """What each partition promises (TSO). Behind a record that cannot be understood nothing is promised."""
        found: dict[str, int] = {}
        blocked: set[str] = set()
        for report in self.reports:
            partition = report.range.partition
            if report.watermark is not None and partition not in blocked:
                found[partition] = max(found.get(partition, 0), report.watermark)
            if any(not problem.table_id.table for problem in (*report.problems, *report.unknown)):
                blocked.add(partition)
        return found

    def needed(self, position: StreamPosition) -> Staged:
        """Without the ranges of which no record is needed any more."""
        return Staged(tuple(r for r in self.reports if r.range.end > position.of(r.range.partition).offset))

    def follows(self, position: StreamPosition) -> bool:
        """Whether all that is to be read from the position on, up to where this ends, is in it."""
        begins: dict[str, int] = {}
        for report in self.reports:
            begins.setdefault(report.range.partition, report.range.start)
        return all(start <= position.of(partition).offset for partition, start in begins.items())


class _NoPlace:
    """Stands for the work place where nothing is staged: ``inspect``, ``validate``."""

    def write(self, key: str, *parts: bytes | pa.Buffer) -> None:
        raise NotImplementedError("nothing is staged without a work place")

    def read(self, key: str) -> pa.Buffer:
        raise NotImplementedError("nothing is staged without a work place")

    def remove(self, below: str) -> None:
        """There is nothing."""


class StreamEventSource:
    """A :class:`headrace.sources.base.StreamSource` over a reader of some system. It pickles, without what stages for it."""

    def __init__(self, reader: StreamReader, place: StagingPlace | None = None, run: StageRunner | None = None) -> None:
        self.reader = reader
        self._place: StagingPlace = place or _NoPlace()
        self._run = run

    def __reduce__(self) -> tuple[Callable[..., StreamEventSource], tuple[object, ...]]:
        return StreamEventSource, (self.reader, self._place)

    def staged_by(self, run: StageRunner, place: StagingPlace) -> StreamEventSource:
        """The source with what its ranges are read by, and where the pieces lie."""
        return StreamEventSource(self.reader, place, run)

    def stage(self, of: Range) -> StageReport:
        """Reads one range, in a task. Raises SourceUnreachableError."""
        return stage(self.reader, of, self._place, f"staged/{secrets.token_hex(8)}")

    @property
    def needs_shapes(self) -> bool:
        """A stream tells each schema change once."""
        return True

    # --- on the driver ------------------------------------------------------------------------------------------------------

    def mark(self, position: str) -> str:
        """See ``EventSource.mark``."""
        return repr(self.reader.ends())

    def poll(
        self,
        position: str,
        checkpoint: int,
        *,
        final: bool = False,
        bound: Bound | None = None,
        learned: Learned | None = None,
        shapes: KeptShapes | None = None,
    ) -> Offer:
        """Stages what is new, and offers what is known of all that is staged. Raises SourceUnreachableError, SourceLostError."""
        assert self._run is not None, "a source that polls has something that stages"
        place = StreamPosition.parse(position)
        former = learned if isinstance(learned, Staged) and learned.follows(place) else Staged()
        kept = former.needed(place)
        for key in sorted(_keys(learned) - _keys(kept)):
            self._place.remove(key.rpartition("/")[0])
        partitions = self.reader.ends()
        limit = bound.limit if bound is not None else 0
        ranges = _to_stage(partitions, place, kept, limit)
        staged = Staged((*kept.reports, *self._run(self, ranges)))
        reached = bound.reached if bound is not None else lambda _: checkpoint
        history = StreamHistory(shapes or {}, (told for report in staged.reports for told in report.statements))
        least = max(place.watermark, checkpoint)
        watermark = _greatest(staged, least) if final else _watermark(staged, partitions, least)
        unknown = (problem for report in staged.reports for problem in report.unknown)
        problems = [problem for report in staged.reports for problem in report.problems]
        problems += [problem for problem in unknown if (problem.table_id, problem.place) not in place.given_up]
        nobodys = (problem for problem in problems if not problem.table_id.table)
        blocking = tuple(Notice(f"{p.place}: {p.message} Nothing of this partition is applied behind it.") for p in nobodys)
        return Offer(
            watermark,
            watermark + 1,
            schema_changes=tuple(change for change in history.changes if change.commit_ts <= watermark),
            splits=tuple(_splits(staged, history, watermark, place)),
            problems=(*(p for p in problems if p.table_id.table), *history.problems, *_shapeless(staged, history, reached)),
            notices=blocking,
            repeats=self.reader.repeats,
            learned=staged,
        )

    def advance(
        self,
        position: str,
        offer: Offer,
        reports: Sequence[SplitReport],
        progress: CutOutcome,
        checkpoints: Mapping[TableId, int],
    ) -> str:
        """The position from which on everything is read that some table has not taken. See ``EventSource.advance``."""
        behind = (checkpoints[t] for t in checkpoints.keys() - progress.gone - progress.left_out)
        return self._moved(position, offer, min([progress.hi, *behind]), progress.hi)

    def _moved(self, position: str, offer: Offer, reached: int, hi: int) -> str:
        assert isinstance(offer.learned, Staged), "offers are this source's own"
        place = StreamPosition.parse(position).with_marks(offer.learned.reports).moved_to(reached)
        return replace(place, watermark=max(place.watermark, hi)).to_text()

    def taking(self, position: str, offer: Offer, keys: Collection[str]) -> PositionOfCut:
        """See ``EventSource.taking``. Where a table is stopped, the position waits for the driver's step."""
        assert isinstance(offer.learned, Staged), "offers are this source's own"
        return PositionOfCut(position, StreamPosition.parse(position).with_marks(offer.learned.reports))

    def begin(self, position: str, offer: Offer, splits: Collection[Split], hi: int) -> str:
        """The same: each table's checkpoint tells what of a piece it has taken."""
        return position

    def consumed(self, position: str, offer: Offer, reports: Sequence[SplitReport]) -> str:
        """The same, see :meth:`begin`."""
        return position

    def vanished(self, position: str, table_id: TableId, since: int) -> tuple[str, ...]:
        """The records that are not kept any more, and may hold rows of any table above ``since`` (TSO)."""
        begins = StreamPosition.parse(position).back_to(since)
        gone = [p for p in self.reader.ends() if begins.of(p.partition).offset < p.first]
        return tuple(f"records before offset {p.first} of partition {p.partition}" for p in gone)

    def missing_again(self, former: str, position: str) -> str:
        """The same: what an older position needs is read again, or is not kept any more, which the next poll finds."""
        return position

    def missing(self, position: str, offer: Offer, table_id: TableId, since: int) -> str:
        """Why records of the table above ``since`` (TSO) were passed over; see ``EventSource.missing``."""
        place = StreamPosition.parse(position)
        passed = next((name for name, at in place.partitions.items() if at.back_to(since).offset < at.offset), None)
        return "" if passed is None else f"records of partition {passed} above {since} were passed over."

    def give_up(self, position: str, table_id: TableId, place: SourcePlace) -> str:
        """The position in which a record is passed over that is there, and that the table may have to pass yet."""
        known = StreamPosition.parse(position)
        if not isinstance(place, PlaceInStream) or not place.is_record:
            return position
        end = next((p.end for p in self.reader.ends() if p.partition == place.partition), 0)
        if not known.of(place.partition).offset <= place.offset < end:
            return position
        return known.giving_up(table_id, place).to_text()

    def read_again(self, position: str, table_id: TableId, since: int) -> str:
        """The position from which on everything above ``since`` (TSO) is read again."""
        return StreamPosition.parse(position).back_to(since).to_text()

    def forget_vanished(
        self, position: str, offer: Offer, loaded: Mapping[TableId, int], ended: Mapping[TableId, int]
    ) -> tuple[str, frozenset[str]]:
        """Nothing vanishes by itself."""
        return position, frozenset()

    def forget_lives(self, position: str, ended: Mapping[TableId, int]) -> str:
        """The same: a position of a stream says nothing of tables."""
        return position

    # --- in tasks -----------------------------------------------------------------------------------------------------------

    def read(
        self, split: Split, window: Window, *, old_images: bool = True, tolerance: int = 0
    ) -> Iterator[ChangeBlock | SplitReport]:
        """See ``EventSource.read``. Records outside of the window are not decoded, and count as one row each."""
        assert isinstance(split, StagedSplit), "splits are this source's own"
        piece = split.piece
        records = pa.ipc.open_stream(self._place.read(piece.key).slice(piece.start, piece.length)).read_all().combine_chunks()
        commit_ts = records.column("commit_ts").to_numpy()
        own = (commit_ts > split.above) & (commit_ts <= split.up_to)
        wanted = own & ~np.isin(records.column("offset").to_numpy(), split.given_up)
        inside = wanted & (commit_ts > window.lo) & (commit_ts <= window.hi)
        left = wanted & (commit_ts > window.hi)
        reading = _Reading(self.reader, split, tolerance)
        (batch,) = records.filter(pa.array(inside)).combine_chunks().to_batches() or (None,)
        if batch is not None:
            yield from reading.blocks(batch)
        outside, times = own & ~inside, commit_ts[own]
        yield SplitReport(
            split.key,
            split.table_id,
            split.rank,
            piece.partition,
            rows=reading.rows + int(outside.sum()),
            kept=reading.rows,
            left=int(left.sum()),
            passed=int((outside & ~left).sum()),
            size=piece.size,
            min_ts=int(times.min()) if len(times) else 0,
            max_ts=int(times.max()) if len(times) else 0,
            pending_ts=int(commit_ts[left].min()) if left.any() else None,
            rolled_over=split.goes_on,
            rejects=tuple(reading.rejects),
            problem=reading.problem,
        )


@dataclass(frozen=True)
class PositionOfCut:
    """See ``headrace.model.offer.PositionAfter``."""

    former: str
    with_marks: StreamPosition

    def after(self, reports: Iterable[SplitReport], progress: CutOutcome) -> str:
        """The position after the cut, unless a table is stopped: how far that is only the driver knows."""
        if progress.stopped or progress.behind:
            return self.former
        place = self.with_marks.moved_to(progress.hi)
        return replace(place, watermark=max(place.watermark, progress.hi)).to_text()


@dataclass
class _Reading:
    """The rows of a split, and what was found of them."""

    reader: StreamReader
    split: StagedSplit
    tolerance: int
    rows: int = 0
    rejects: list[RejectedRecord] = field(default_factory=list)
    problem: Problem | None = None

    def blocks(self, records: pa.RecordBatch) -> Iterator[ChangeBlock]:
        """The rows of these records, up to one that cannot be decoded where no more of these are tolerated."""
        done = 0
        while done < records.num_rows and self.problem is None:
            rest = records.slice(done)
            try:
                rows, _ = self.reader.decode(self.split.table_id, self.split.schema, rest)
                done = records.num_rows
            except BadRecordError as error:
                good = rest.slice(0, error.record)
                rows = self.reader.decode(self.split.table_id, self.split.schema, good)[0] if error.record else None
                self._reject(rest.slice(error.record, 1), error)
                done += error.record + 1
            if rows is not None and rows.num_rows:
                yield from self._placed(rows)

    def _placed(self, rows: pa.RecordBatch) -> Iterator[ChangeBlock]:
        split = self.split
        seq = pa.array((split.rank << SEQ_RANK_SHIFT) + np.arange(self.rows, self.rows + rows.num_rows))
        rows = rows.set_column(rows.schema.get_field_index(SEQ), META_FIELDS[2], seq)
        self.rows += rows.num_rows
        for piece in in_pieces(rows, _BLOCK_BYTES, _BLOCK_ROWS):
            yield ChangeBlock(split.table_id, split.version, split.schema, piece)

    def _reject(self, record: pa.RecordBatch, error: BadRecordError) -> None:
        offset, commit_ts, raw = (record.column(n)[0].as_py() for n in range(3))
        if len(self.rejects) < self.tolerance:
            self.rejects.append(
                RejectedRecord(self.rows, offset, raw, error.message, column=error.column, value=error.value, commit_ts=commit_ts)
            )
            return
        place = PlaceInStream(self.split.piece.partition, offset)
        hint = f"{error.hint} Or give it up with {skip_command(self.split.table_id, place)}.".lstrip()
        self.problem = Problem(self.split.table_id, error.message, place, column=error.column, value=error.value, hint=hint)


def _keys(learned: Learned | None) -> set[str]:
    """The objects in the work place that staged pieces lie in."""
    reports = learned.reports if isinstance(learned, Staged) else ()
    return {piece.key for report in reports for piece in report.pieces}


def _to_stage(partitions: Sequence[PartitionEnds], place: StreamPosition, staged: Staged, limit: int) -> list[Range]:
    """What to stage next: of each partition what is behind that which is staged, ``limit`` bytes altogether (0: all).

    Where much is staged that no watermark lets go, only the partitions that hold it up are read further. Raises SourceLostError.
    """
    ends, promised = staged.ends(), staged.watermarks()
    reading = list(partitions)
    if limit and staged.size > _STALLED_TIMES * limit:
        least = min((promised.get(p.partition, 0) for p in partitions), default=0)
        reading = [p for p in partitions if promised.get(p.partition, 0) == least]
    found: list[Range] = []
    for partition in reading:
        known = place.partitions.get(partition.partition)
        begin = ends.get(partition.partition, known.offset if known is not None else partition.first)
        if begin < partition.first:
            raise SourceLostError(
                f"Records {begin} to {partition.first - 1} of partition {partition.partition} were not applied yet, and are not "
                "kept any more.",
                "Load the tables anew, and begin with headrace reset and --start at the commit ts of the copy. Keep records for "
                "longer than a table may be stopped.",
            )
        found += _ranges(partition, begin, limit // len(reading) if limit else 0)
    return found


def _ranges(partition: PartitionEnds, begin: int, limit: int) -> list[Range]:
    """The records from ``begin`` on in ranges of about 8 MiB, up to ``limit`` bytes (0: all of them), one record at least."""
    size = max(partition.bytes_per_record, 1.0)
    end = partition.end if not limit else min(partition.end, begin + max(1, int(limit / size)))
    step = max(1, int(RANGE_BYTES / size))
    starts = range(begin, end, step)
    return [
        Range(partition.partition, start, min(start + step, end), int(size * (min(start + step, end) - start))) for start in starts
    ]


def _watermark(staged: Staged, partitions: Sequence[PartitionEnds], checkpoint: int) -> int:
    """Up to where all partitions are complete."""
    promised = staged.watermarks()
    return max(checkpoint, min((promised.get(p.partition, checkpoint) for p in partitions), default=checkpoint))


def _greatest(staged: Staged, checkpoint: int) -> int:
    pieces = (piece.max_ts for report in staged.reports for piece in report.pieces)
    changes = (statement.commit_ts for report in staged.reports for statement in report.statements)
    return max([checkpoint, *pieces, *changes])


def _splits(staged: Staged, history: StreamHistory, watermark: int, position: StreamPosition) -> Iterator[StagedSplit]:
    """One split for each piece and shape that may have rows up to the watermark."""
    given_up: dict[tuple[TableId, str], list[int]] = defaultdict(list)
    for table_id, place in position.given_up:
        given_up[table_id, place.partition].append(place.offset)
    for table_id, pieces in _pieces(staged).items():
        versions = history.versions(table_id)
        if not versions:
            continue
        # Rows from before the first version that is known have its shape, unless the table began with it.
        first = versions[0][0]
        beginnings = [first if history.begins(table_id, first) else 0, *(version for version, _ in versions[1:])]
        rank = 0
        for above, (version, schema), up_to in zip(beginnings, versions, [*beginnings[1:], MAX_TSO], strict=True):
            for piece, goes_on in pieces:
                if piece.min_ts <= min(up_to, watermark) and piece.max_ts > above:
                    key = f"{piece.partition}:{piece.first}-{piece.last}:{version}"
                    earliest = piece.min_ts if above == 0 else None
                    skipped = tuple(o for o in given_up.get((table_id, piece.partition), ()) if piece.first <= o <= piece.last)
                    yield StagedSplit(
                        key, table_id, version, rank, piece.size, schema, piece, above, up_to, goes_on, skipped, earliest=earliest
                    )
                    rank += 1


def _pieces(staged: Staged) -> dict[TableId, list[tuple[StagedPiece, bool]]]:
    """The pieces of each table, partition by partition, each with whether the next one of it may go on in its last transaction."""
    of_stream: dict[tuple[TableId, str], list[tuple[StagedPiece, bool]]] = defaultdict(list)
    promised: dict[str, int] = {}
    for report in sorted(staged.reports, key=lambda report: (report.range.partition, report.range.start)):
        partition = report.range.partition
        for piece in report.pieces:
            before = of_stream[piece.table_id, partition]
            # Before its first watermark nothing tells whether a partition was begun again.
            anew = piece.restart is not None and piece.restart <= promised.get(partition, piece.restart)
            if before and (anew or piece.min_ts < before[-1][0].max_ts):
                before[-1] = (before[-1][0], False)
            before.append((piece, True))
        if report.watermark is not None:
            promised[partition] = max(promised.get(partition, -1), report.watermark)
    found: dict[TableId, list[tuple[StagedPiece, bool]]] = defaultdict(list)
    for (table_id, _), pieces in of_stream.items():
        found[table_id] += pieces
    return found


def _shapeless(staged: Staged, history: StreamHistory, reached: Callable[[TableId], int]) -> Iterator[Problem]:
    """The tables with rows that are wanted, of which nothing tells the columns."""
    told: set[TableId] = set()
    for report in staged.reports:
        for piece in report.pieces:
            if piece.table_id in told or history.versions(piece.table_id) or piece.max_ts <= reached(piece.table_id):
                continue
            told.add(piece.table_id)
            message = "its columns are not known: neither the stream nor the ledger has a schema change of it."
            place = PlaceInStream(piece.partition, piece.first, piece.last)
            yield Problem(piece.table_id, message, place, hint="Begin with a stream that tells the table's CREATE TABLE.")
