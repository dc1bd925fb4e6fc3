"""A source for any streaming system: ranges are staged once, and ordinary offers are made of the staged pieces.

What a run has staged is passed from offer to offer (:class:`Staged`). The position says from where the next run reads. Each cut
takes its window of a piece by commit ts. So rows above the watermark wait in the work place, and a stalled partition does not cause
others to be read again.
"""

from __future__ import annotations

import secrets
import time
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from headrace.errors import SourceLostError, SourceUnreachableError, TransientError
from headrace.model.block import META_FIELDS, SEQ, SEQ_RANK_SHIFT, ChangeBlock, in_pieces
from headrace.model.commands import skip_command
from headrace.model.cut import CutOutcome
from headrace.model.events import SchemaChange
from headrace.model.letters import RejectedRecord
from headrace.model.offer import Learned, Offer
from headrace.model.outcome import Problem, SplitReport
from headrace.model.place import PlaceInStream, SourcePlace
from headrace.model.split import Split, Window
from headrace.model.stream import PartitionEnds, Range, StagedPiece, StageReport, StreamStatement
from headrace.model.table import TableId
from headrace.model.tso import latest_tso
from headrace.sources.base import Bound, KeptShapes, StageRunner, StagingPlace
from headrace.sources.stream.backlog import RetentionWatch
from headrace.sources.stream.history import StreamHistory
from headrace.sources.stream.late import late_notices
from headrace.sources.stream.position import StreamPosition
from headrace.sources.stream.promises import Promises, absent_notices
from headrace.sources.stream.reader import BadRecordError, StreamReader
from headrace.sources.stream.shapeless import rows_without_shape
from headrace.sources.stream.silent import silent_notices
from headrace.sources.stream.stage import stage
from headrace.sources.stream.staged import Staged, StagedSplit, splits
from headrace.sources.stream.unusable import changes_ahead, records_of_no_table, waiting_changes, watermarks_ahead

_ANEW = (
    "Load the tables anew, and begin with headrace reset and --start at the commit ts of the copy. Keep records for longer than a "
    "table may be stopped."
)
RANGE_BYTES = 8 << 20
"""The approximate maximum that one stage task reads."""
_FOLDER = "staged"
_STALLED_TIMES = 4
_BLOCK_BYTES = 4 << 20
_BLOCK_ROWS = 131_072


class _NoPlace:
    """Takes the place of the work place where nothing is staged: in ``inspect`` and ``validate``."""

    def write(self, key: str, *parts: bytes | pa.Buffer) -> None:
        raise NotImplementedError("nothing is staged without a work place")

    def read(self, key: str) -> pa.Buffer:
        raise NotImplementedError("nothing is staged without a work place")

    def keys(self, below: str) -> Collection[str]:
        """Always empty."""
        return ()

    def remove(self, below: str) -> None:
        """Does nothing."""


class StreamEventSource:
    """A :class:`headrace.sources.base.StreamSource` over a reader of a system. Picklable; the stage runner is not pickled."""

    def __init__(self, reader: StreamReader, place: StagingPlace | None = None, run: StageRunner | None = None) -> None:
        self.reader = reader
        self._place: StagingPlace = place or _NoPlace()
        self._run = run
        self._watch = RetentionWatch()

    def __reduce__(self) -> tuple[Callable[..., StreamEventSource], tuple[object, ...]]:
        return StreamEventSource, (self.reader, self._place)

    def staged_by(self, run: StageRunner, place: StagingPlace) -> StreamEventSource:
        """The source, bound to the function that has its ranges staged and to the place of the pieces."""
        return StreamEventSource(self.reader, place, run)

    def effects(self, statements: Sequence[StreamStatement]) -> tuple[Sequence[SchemaChange], Sequence[Problem]]:
        """See ``StreamSource.effects``."""
        stored = self.reader.carries_stored
        history = StreamHistory({}, [replace(told, tells_shape=False, carries_stored=stored) for told in statements])
        return history.changes, history.problems

    def stage(self, of: Range) -> StageReport:
        """Reads one range, in a task. Raises SourceUnreachableError."""
        return stage(self.reader, of, self._place, f"{_FOLDER}/{secrets.token_hex(8)}")

    @property
    def needs_shapes(self) -> bool:
        """A stream delivers each schema change only once."""
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
        """Stages new records, and makes an offer of everything staged. Raises SourceUnreachableError, SourceLostError."""
        place = StreamPosition.parse(position)
        if not place.partitions and checkpoint > 0 and not isinstance(learned, Staged):
            self.reader.require_start(checkpoint)
        kept_from = {p.partition: p.first for p in self.reader.ends()} if isinstance(learned, Staged) else {}
        former = learned if isinstance(learned, Staged) and learned.follows(place, kept_from) else Staged()
        kept = former.needed(place)
        self._remove(_keys(learned) - _keys(kept))
        least = max(place.watermark, checkpoint)
        staged, partitions, more = self._staged(kept, place, least, bound, final=final)
        # Without a bound, the tables' checkpoints are unknown.
        applied = bound.reached if bound is not None else lambda _: -1
        reached = bound.reached if bound is not None else lambda _: checkpoint
        history = StreamHistory(shapes or {}, staged.statements())
        latest = latest_tso(time.time())
        promises = self._promises(staged, partitions, place, least)
        watermark = promises.final(latest) if final else promises.watermark
        if self._is_cleared(kept, watermark):
            self._remove(_keys(staged))
            return self.poll(position, checkpoint, final=final, bound=bound, shapes=shapes)
        staged = staged.promising(place, checkpoint)
        problems = staged.problems(place)
        needed = bound.reached if bound is not None else lambda _: place.applied_to
        late = late_notices(staged, place, needed, self._records)
        return Offer(
            watermark,
            watermark + 1,
            schema_changes=tuple(change for change in history.changes if change.commit_ts <= watermark),
            splits=tuple(splits(staged, history, watermark, applied, place, whole_transactions=self.reader.whole_transactions)),
            problems=(
                *(p for p in problems if p.table_id.table),
                *history.problems,
                *rows_without_shape(staged, history, reached, needed, watermark, self._has_rows),
                *(changes_ahead(staged, latest) if final else ()),
            ),
            notices=(
                *self.reader.notices,
                *self.reader.unread,
                *records_of_no_table(problems),
                *absent_notices(promises.absent),
                *silent_notices(promises),
                *watermarks_ahead(staged),
                *waiting_changes(staged, latest),
                *self._watch.notices(self.reader, place, partitions),
                *late,
            ),
            repeats=self.reader.repeats,
            is_stuck=bool(staged.blocked(place)),
            learned=staged,
            more=more,
            passed=place.beginning(staged.begins).passed,
            gone=max((place.of(name).reached_before(at) for name, at in staged.begins.items()), default=0),
        )

    def _is_cleared(self, kept: Staged, watermark: int) -> bool:
        """Whether pieces that must be read now are gone, because the work place was cleared. Everything is then staged again.

        Pieces above the watermark (TSO) are not checked, so that a stall does not cause a listing of the place at each poll.
        """
        wanted = {piece.key for report in kept.reports for piece in report.pieces if piece.min_ts <= watermark}
        return bool(wanted) and not wanted <= set(self._place.keys(_FOLDER))

    def _remove(self, keys: Iterable[str]) -> None:
        for key in sorted(keys):
            self._place.remove(key.rpartition("/")[0])

    def _staged(
        self, kept: Staged, place: StreamPosition, least: int, bound: Bound | None, *, final: bool
    ) -> tuple[Staged, Sequence[PartitionEnds], bool]:
        """Stages the next part. Returns everything staged, the present partitions, and ``Offer.more``. Raises SourceLostError.

        There is more if each partition that limits the watermark has records that are not staged. The watermark does not move as
        long as one of these partitions has none, is not listed by the stream, or promises nothing after a record whose table is
        unknown. The other partitions' records are then above the watermark and not needed yet.
        """
        # Partitions advance differently: others may have more below the greatest staged ts, which would count as applied.
        limit = bound.limit if bound is not None and not final else 0
        at_least = bound.at_least if bound is not None else 0
        staged, run = kept, self._run
        assert run is not None, "a source that polls has something that stages"
        while True:
            partitions = self._ends({**place.streams, **staged.streams})
            streams = {**staged.streams, **{p.partition: p.stream for p in partitions if p.stream}}
            # A partition that a run has seen stays known even if the stream does not list it for a moment.
            begins = {**staged.begins, **{p.partition: staged.begins.get(p.partition, _begin(p, place)) for p in partitions}}
            _require_named(partitions, place, staged, self.reader)
            before = self._promises(replace(staged, begins=begins), partitions, place, least)
            ranges, unread = _to_stage(before, limit)
            reports = run(self, ranges)
            _require_kept(ranges, self._ends({**place.streams, **streams}) if ranges else partitions)
            staged = Staged((*staged.reports, *reports), begins, streams)
            promises = self._promises(staged, partitions, place, least)
            more = bool(unread) and promises.holding <= unread - staged.blocked(place)
            if not more or promises.watermark >= at_least:
                return staged, partitions, more

    def _promises(self, staged: Staged, partitions: Sequence[PartitionEnds], place: StreamPosition, least: int) -> Promises:
        known = place.partitions.keys() | staged.begins.keys()
        left_out = frozenset(name for name in known if not self.reader.includes(name))
        return Promises(staged, partitions, place, least, left_out)

    def _ends(self, streams: Mapping[str, str]) -> Sequence[PartitionEnds]:
        """The present partitions. Raises SourceLostError if one is of another stream than ``streams`` says, and as the reader."""
        partitions = self.reader.ends()
        for partition in partitions:
            if partition.stream and streams.get(partition.partition, partition.stream) != partition.stream:
                what = f"Partition {partition.partition} of {self.reader.identity}"
                raise SourceLostError(f"{what} is another stream than the one that was read: it was deleted and made again.", _ANEW)
        return partitions

    def advance(
        self,
        position: str,
        offer: Offer,
        reports: Sequence[SplitReport],
        progress: CutOutcome,
        checkpoints: Mapping[TableId, int],
    ) -> str:
        """The position from which everything is read that some table has not applied. See ``EventSource.advance``.

        A table at a commit ts may wait before the schema change there, and needs its record again. A change that was found late is
        below its tables' checkpoints, and must be delivered until a person has decided.
        """
        following = checkpoints.keys() - (progress.gone - progress.behind) - progress.left_out
        behind = [checkpoints[t] - (checkpoints[t] < progress.hi or t in progress.behind) for t in following]
        if progress.undecided is not None:
            behind.append(progress.undecided - 1)
        return self._moved(position, offer, min([progress.hi, *behind]), progress.hi)

    def _moved(self, position: str, offer: Offer, reached: int, hi: int) -> str:
        staged = _of(offer)
        place = staged.read_into(StreamPosition.parse(position))
        place = place.moved_to(reached, staged.unclear(place)).applying(hi, staged.promises)
        return replace(place, watermark=max(place.watermark, hi)).to_text()

    def taking(self, position: str, offer: Offer, keys: Collection[str]) -> PositionOfCut:
        """See ``EventSource.taking``. If a table is stopped, the position is not moved until the driver's step."""
        staged = _of(offer)
        place = staged.read_into(StreamPosition.parse(position))
        return PositionOfCut(position, place, staged.unclear(place), staged.promises)

    def begin(self, position: str, offer: Offer, splits: Collection[Split], hi: int) -> str:
        """The same position, since each table's checkpoint shows what it has applied; changed only for data without a promise."""
        return self.taking(position, offer, ()).begun(hi)

    def consumed(self, position: str, offer: Offer, reports: Sequence[SplitReport]) -> str:
        """The same position, see :meth:`begin`."""
        return position

    def vanished(self, position: str, table_id: TableId, since: int) -> tuple[str, ...]:
        """The records that are not kept any more and that may have rows of any table above ``since`` (TSO)."""
        begins = StreamPosition.parse(position).back_to(since)
        named = {p.partition: p for p in self.reader.ends()}
        gone = [p for p in named.values() if begins.of(p.partition).offset < p.first]
        absent = {name for name in begins.partitions.keys() - named.keys() if self.reader.includes(name)}
        hidden = sorted(name for name in absent if begins.of(name).offset < begins.of(name).read_to)
        return (
            *(f"records before offset {p.first} of partition {p.partition}" for p in gone),
            *(f"partition {name}" for name in hidden),
        )

    def missing_again(self, former: str, position: str) -> str:
        """The same position: what an older one needs is read again, or is no longer kept, which the next poll finds."""
        return position

    def missing(self, position: str, offer: Offer, table_id: TableId, since: int) -> str:
        """Why records of the table above ``since`` (TSO) were skipped; see ``EventSource.missing``."""
        place = StreamPosition.parse(position).beginning(_of(offer).begins)
        passed = next((name for name, at in place.partitions.items() if at.back_to(since).offset < at.offset), None)
        return "" if passed is None else f"records of partition {passed} above {since} were passed over."

    def has_rows(self, offer: Offer, table_id: TableId, above: int, up_to: int) -> bool:
        """See ``EventSource.has_rows``."""
        return any(self._has_rows(piece, above, up_to) for piece in _of(offer).pieces_of(table_id))

    def give_up(self, position: str, table_id: TableId, place: SourcePlace) -> str:
        """The position in which an existing record is skipped that the table may still have to pass.

        Raises SourceUnreachableError if that cannot be determined.
        """
        known = StreamPosition.parse(position)
        if not isinstance(place, PlaceInStream) or not place.is_record:
            return position
        ends = {p.partition: p.end for p in self.reader.ends()}
        if place.partition in known.partitions.keys() - ends.keys():
            raise _unnamed(place.partition, f"The record at {place.offset} is given up when it can be looked for.")
        end = ends.get(place.partition, 0)
        if not known.of(place.partition).offset <= place.offset < end:
            return position
        return known.giving_up(table_id, place).to_text()

    def read_again(self, position: str, table_id: TableId, since: int) -> str:
        """The position from which everything above ``since`` (TSO), and schema changes at it, are read again."""
        return StreamPosition.parse(position).back_to(since - 1).to_text()

    def forget_vanished(
        self, position: str, offer: Offer, loaded: Mapping[TableId, int], ended: Mapping[TableId, int]
    ) -> tuple[str, frozenset[str]]:
        """Unchanged: splits of a stream do not vanish."""
        return position, frozenset()

    def forget_lives(self, position: str, ended: Mapping[TableId, int]) -> str:
        """Unchanged: the position of a stream does not depend on tables."""
        return position

    # --- in tasks -----------------------------------------------------------------------------------------------------------

    def read(
        self, split: Split, window: Window, *, old_images: bool = True, tolerance: int = 0
    ) -> Iterator[ChangeBlock | SplitReport]:
        """See ``EventSource.read``. Records outside the window are not decoded, and count as one row each."""
        assert isinstance(split, StagedSplit), "splits are this source's own"
        piece = split.piece
        records = self._records(piece)
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
            goes_on=split.goes_on,
            interrupted=split.interrupted,
            anew=split.anew,
            rejects=tuple(reading.rejects),
            problem=reading.problem,
        )

    def _has_rows(self, piece: StagedPiece, above: int, up_to: int) -> bool:
        """Whether a piece has rows with ``above < commit_ts <= up_to`` (TSO). Reads it only if its ends do not show that."""
        if piece.max_ts <= above or piece.min_ts > up_to:
            return False
        if piece.min_ts > above or piece.max_ts <= up_to:
            return True
        commit_ts = self._records(piece).column("commit_ts").to_numpy()
        return bool(((commit_ts > above) & (commit_ts <= up_to)).any())

    def _records(self, piece: StagedPiece) -> pa.Table:
        """The records of a piece, as ``headrace.sources.stream.records.PIECE``.

        Raises TransientError, also if the object is not as it was written. It is then removed, so that the next poll finds it
        missing and stages everything again.
        """
        held = self._place.read(piece.key)
        if held.size >= piece.start + piece.length:
            held = held.slice(piece.start, piece.length)
            if zlib.crc32(held) == piece.checksum:
                return pa.ipc.open_stream(held).read_all().combine_chunks()
        self._remove([piece.key])
        raise TransientError(
            f"The file {piece.key} in the work place is not as it was written, so its records are read from the stream again.",
            "If this happens again, check the disk or the store of the work place (--work).",
        )


@dataclass(frozen=True)
class PositionOfCut:
    """See ``headrace.model.offer.PositionAfter``."""

    former: str
    with_marks: StreamPosition
    unclear: Mapping[str, int]
    promises: Mapping[str, int]

    def begun(self, hi: int) -> str:
        """The position before the cut up to ``hi`` (TSO). If partitions have not promised all of it, it records what was read."""
        begun = self.with_marks.applying(hi, self.promises)
        return self.former if begun.unpromised is None else begun.to_text()

    def after(self, reports: Iterable[SplitReport], progress: CutOutcome) -> str:
        """The position after the cut; unmoved if a table is stopped, because then only the driver can compute it."""
        if progress.stopped or progress.behind:
            return self.begun(progress.hi)
        place = self.with_marks.moved_to(progress.hi, self.unclear).applying(progress.hi, self.promises)
        return replace(place, watermark=max(place.watermark, progress.hi)).to_text()


@dataclass
class _Reading:
    """Decodes the rows of a split, and collects the results."""

    reader: StreamReader
    split: StagedSplit
    tolerance: int
    rows: int = 0
    rejects: list[RejectedRecord] = field(default_factory=list)
    problem: Problem | None = None

    def blocks(self, records: pa.RecordBatch) -> Iterator[ChangeBlock]:
        """The rows of these records, up to one that cannot be decoded when no more of these are tolerated."""
        done, bad, why = 0, records.num_rows, None
        while done < records.num_rows and self.problem is None:
            if done == bad:
                assert why is not None, "it is known why the record is bad"
                self._reject(records.slice(done, 1), why)
                done, bad, why = done + 1, records.num_rows, None
                continue
            try:
                rows, counts = self._decoded(records.slice(done, bad - done))
            except BadRecordError as error:
                bad, why = done + error.record, error
                continue
            done += len(counts)
            if rows.num_rows:
                yield from self._placed(rows)

    def _decoded(self, records: pa.RecordBatch) -> tuple[pa.RecordBatch, Sequence[int]]:
        split = self.split
        return self.reader.decode(split.table_id, split.schema, records, split.other_columns)

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


def _of(offer: Offer) -> Staged:
    assert isinstance(offer.learned, Staged), "offers are this source's own"
    return offer.learned


def _keys(learned: Learned | None) -> set[str]:
    """The objects in the work place that have staged pieces."""
    reports = learned.reports if isinstance(learned, Staged) else ()
    return {piece.key for report in reports for piece in report.pieces}


def _to_stage(promises: Promises, limit: int) -> tuple[list[Range], set[str]]:
    """What to stage next: in each partition the records after the staged ones, ``limit`` bytes in total (0: all).

    Also returns the partitions that have records left for the next time, including those that are not read now. Records that were
    read before the position was written do not count for the limit.

    If much is staged that no watermark releases, only the partitions that limit it are read further, and none whose records
    promise nothing. Raises SourceLostError.
    """
    partitions, place, staged = promises.partitions, promises.place, promises.staged
    ends = staged.ends()
    read = {p.partition for p in partitions}
    if limit and staged.size > _STALLED_TIMES * limit:
        read &= promises.holding - staged.blocked(place)
    found: list[Range] = []
    unread: set[str] = set()
    for partition in partitions:
        known = place.of(partition.partition)
        begin = ends.get(partition.partition, staged.begins[partition.partition])
        if partition.partition not in ends and partition.partition in place.partitions:
            begin = _begin(partition, place)
        if begin < partition.first:
            raise _lost(partition, begin, "were not applied yet, and are")
        if begin > partition.end:
            raise SourceLostError(
                f"Partition {partition.partition} ends at offset {partition.end}, and was read up to {begin}: it is another stream "
                "of the same name.",
                _ANEW,
            )
        # Everything that was read before is read again at once. A part would look complete, because its watermark has passed.
        owed = min(known.read_to, partition.end)
        found += _ranges(partition, begin, owed)
        end = begin = max(begin, owed)
        if partition.partition in read:
            end = partition.end if not limit else min(partition.end, begin + _records(partition, limit // len(read)))
            found += _ranges(partition, begin, end)
        if end < partition.end:
            unread.add(partition.partition)
    return found, unread


def _begin(partition: PartitionEnds, place: StreamPosition) -> int:
    """The offset from which a partition is read. A partition created while the pipeline was running is read from its first record.

    Records that are no longer kept are skipped if every running table has applied them, and the table of each was known.
    """
    known = place.of(partition.partition)
    has_tables = place.unknown.get(partition.partition, partition.first) >= partition.first
    if known.offset < partition.first <= known.begins(place.watermark if has_tables else place.watermark - 1):
        return partition.first
    return known.offset if place.partitions else partition.first


def _require_named(partitions: Iterable[PartitionEnds], place: StreamPosition, staged: Staged, reader: StreamReader) -> None:
    """Raises SourceUnreachableError for a partition that cannot be read now and has needed records below the watermark.

    Otherwise a table that is behind would miss its own rows there, or schema changes for which it waits.
    """
    ends = staged.ends()
    for name in filter(reader.includes, sorted(place.partitions.keys() - {p.partition for p in partitions})):
        known = place.of(name)
        begin = ends.get(name, known.offset)
        if begin < known.read_to:
            raise _unnamed(name, f"Its records {begin} to {known.read_to - 1} have to be read again.")


def _unnamed(name: str, why: str) -> SourceUnreachableError:
    hint = "Check that all brokers are up. If the topic was created anew, it is another stream."
    return SourceUnreachableError(f"The stream does not name its partition {name}. {why}", hint)


def _require_kept(ranges: Iterable[Range], partitions: Iterable[PartitionEnds]) -> None:
    """Raises SourceLostError if records may have been removed while they were read."""
    known = {partition.partition: partition for partition in partitions}
    for of in ranges:
        partition = known.get(of.partition)
        if partition is not None and of.start < partition.first:
            raise _lost(partition, of.start, "were gone before they were read, and are")


def _lost(partition: PartitionEnds, begin: int, what: str) -> SourceLostError:
    name = partition.partition
    return SourceLostError(f"Records {begin} to {partition.first - 1} of partition {name} {what} not kept any more.", _ANEW)


def _records(partition: PartitionEnds, size: int) -> int:
    """The approximate number of records of this size (bytes), at least one."""
    return max(1, int(size / max(partition.bytes_per_record, 1.0)))


def _ranges(partition: PartitionEnds, begin: int, end: int) -> list[Range]:
    """The records from ``begin`` up to ``end``, in ranges of about 8 MiB."""
    step, size = _records(partition, RANGE_BYTES), max(partition.bytes_per_record, 1.0)
    starts = range(begin, end, step)
    return [
        Range(partition.partition, start, min(start + step, end), int(size * (min(start + step, end) - start))) for start in starts
    ]
