"""Net change of tables without key: bags of rows, in which equal rows are counted (rule 10 of the design).

An insert adds one row, and a delete removes one equal row. TiCDC repeats rows after a restart, but an equal row may also be a
second row. So files are grouped into deliveries: a file that begins below the end of the file before it begins a new delivery.
Equal changes of one commit ts are counted in each delivery, and the largest count is the true one.

Two cases are ambiguous:

- A file begins exactly at the commit ts at which the file before it ends. It is either the rest of a transaction or a repetition of
  all of it. Both are possible even after a full file, because TiCDC may crash right there. The file is taken for a repetition if it
  and the files after it again contain everything of that commit ts that was delivered before. After a full file, this must be
  several rows, most of them different, because a large transaction of few different rows contains them again anyway. After a
  watermark of a stream, which may lie in the middle of a transaction, one row is enough, but most have to be different, too.
  :class:`Guess` records what was assumed.
- Equal changes of one commit ts are in two streams (dispatchers). They are either two parts of a transaction or a repetition by a
  dispatcher that took over. Nothing distinguishes these cases, so such changes are refused.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.engine.net import is_upsert, key_codes
from headrace.model.block import COMMIT_TS, KIND, META_COUNT, SEQ, SEQ_RANK_SHIFT
from headrace.model.events import RowKind
from headrace.model.outcome import SplitReport
from headrace.model.place import SourcePlace

_DELIVERY, _SIGN, _ROW = "headrace$delivery", "headrace$sign", "headrace$row"
_COUNT, _STREAM = "headrace$count", "headrace$stream"


@dataclass(frozen=True)
class BagChange:
    """Rows to remove and rows to add, in the table's columns. A row appears as often as it has to be removed or added.

    If commit ts are kept, :data:`COMMIT_TS` is the last column of both tables: the newest commit ts (TSO) of an equal row that was
    removed or added.
    """

    deletes: pa.Table
    inserts: pa.Table
    netted: int
    """The number of rows that repeat other rows, or that add and remove an equal row."""


class MissingOldImages(Exception):
    """An update of a table without key came without its old row, so it is unknown which row it changed."""


class EqualInStreams(Exception):
    """Two streams of a table without key have an equal change of one commit ts. It is unknown whether one repeats the other."""


@dataclass(frozen=True)
class Delivery:
    """Consecutive files of one stream that are taken not to repeat each other."""

    stream: str
    number: int
    """Unique among the deliveries of a table, in all of its streams."""


@dataclass(frozen=True)
class Guess:
    """The assumption about rows of one commit ts in several files of a stream, if it is not certain what they are."""

    place: SourcePlace
    """The file, or piece of a stream, that begins with rows of the commit ts at which the one before it ends."""
    is_repetition: bool
    """True: the rows are taken for a repetition that begins at ``place``. False: for more rows of the same transaction."""


@dataclass(frozen=True)
class Deliveries:
    """The deliveries of one table."""

    of: Mapping[int, Delivery]
    """By the ranks of the splits. Empty files belong to no delivery."""
    guesses: tuple[Guess, ...] = ()
    """At most one for each transaction and stream."""


def deliveries(reports: Iterable[SplitReport], block: pa.RecordBatch) -> Deliveries:
    """Determines the deliveries of one table from the reports of its splits and from their rows."""
    found: dict[int, Delivery] = {}
    guesses: list[Guess] = []
    number = 0
    for stream, members in _streams(reports).items():
        repeated: set[int] = set()
        for parts in _transactions_at_joints(members, block):
            begins, goes_on = _repetitions(parts)
            repeated |= set(begins)
            # Each file in ``begins`` may start a repetition that was interrupted; the last one starts the complete repetition.
            guesses += [Guess(members[place].at(), is_repetition=bool(begins)) for place in begins[-1:] or goes_on[:1]]
        number += 1
        found[members[0].rank] = Delivery(stream, number)
        for place, (before, report) in enumerate(pairwise(members), start=1):
            number += _begins_anew(before, report) or place in repeated
            found[report.rank] = Delivery(stream, number)
    return Deliveries(found, tuple(guesses))


def _streams(reports: Iterable[SplitReport]) -> dict[str, list[SplitReport]]:
    """The reports of files with rows, by stream, in the order of their ranks."""
    found: dict[str, list[SplitReport]] = defaultdict(list)
    for report in sorted((r for r in reports if r.rows), key=lambda r: r.rank):
        found[report.stream].append(report)
    return found


def _begins_anew(before: SplitReport, report: SplitReport) -> bool:
    """Whether it is certain that a file begins another delivery."""
    return report.anew or report.min_ts < before.max_ts


def _may_begin_anew(before: SplitReport, report: SplitReport) -> bool:
    """Whether a file either continues the transaction at the end of the file before it, or begins another delivery."""
    return report.min_ts == before.max_ts and not report.anew and not before.goes_on


@dataclass(frozen=True)
class _Part:
    """A file's changes of one transaction."""

    place: int
    """The index of the file in its stream."""
    report: SplitReport
    codes: npt.NDArray[np.int64]
    """The code of each distinct change in the file."""
    counts: npt.NDArray[np.int64]
    """How often the file has each change of ``codes``."""

    def begins_anew(self, before: _Part) -> bool:
        """Whether it is certain that another delivery begins between the two.

        It is if there are files in between, because these do not contain the transaction's commit ts.
        """
        return self.place > before.place + 1 or _begins_anew(before.report, self.report)

    def may_begin_anew(self, before: _Part) -> bool:
        """Whether both have changes, and this file either continues the transaction of ``before`` or begins another delivery."""
        return bool(len(before.codes) and len(self.codes)) and _may_begin_anew(before.report, self.report)


def _transactions_at_joints(members: Sequence[SplitReport], block: pa.RecordBatch) -> Iterator[list[_Part]]:
    """The changes of each ambiguous commit ts, at which one file ends and the next begins, by the files of a stream."""
    times = sorted({report.min_ts for before, report in pairwise(members) if _may_begin_anew(before, report)})
    if not times:
        return
    commit_ts, ranks = block.column(COMMIT_TS).to_numpy(), block.column(SEQ).to_numpy() >> SEQ_RANK_SHIFT
    least, greatest, of_files = (np.array([getattr(m, name) for m in members]) for name in ("min_ts", "max_ts", "rank"))
    chosen = np.flatnonzero(np.isin(commit_ts, times) & np.isin(ranks, of_files))
    chosen = chosen[np.argsort(commit_ts[chosen], kind="stable")]
    rows = block.take(pa.array(chosen))
    # TiCDC may write an update first as a deletion and an insertion and then repeat it as an update, or the other way round.
    codes = row_codes(rows, rows.schema.names[META_COUNT:]) * 2 + is_upsert(rows)
    files = np.searchsorted(of_files, ranks[chosen])
    starts = np.searchsorted(commit_ts[chosen], times)
    for at, first, end in zip(times, starts, [*starts[1:], len(chosen)], strict=True):
        distinct, numbers = np.unique(codes[first:end], return_inverse=True)
        width = len(distinct) + 1
        changes, counts = np.unique(files[first:end] * width + numbers, return_counts=True)
        places = np.flatnonzero((least <= at) & (at <= greatest))
        edges = np.searchsorted(changes, [places * width, (places + 1) * width]).T
        yield [_Part(n, members[n], changes[a:b] % width, counts[a:b]) for n, (a, b) in zip(places.tolist(), edges, strict=True)]


def _repetitions(parts: Sequence[_Part]) -> tuple[list[int], list[int]]:
    """The places of files that begin a repetition of the transaction, and of files that repeat rows but are taken for its rest."""
    begins: list[int] = []
    goes_on: list[int] = []
    different = _mostly_different(parts)
    left = np.zeros(1 + max(int(part.codes.max(initial=-1)) for part in parts), np.int64)
    for part in parts:
        left[part.codes] += part.counts
    told = np.zeros_like(left)
    """How often each change was delivered since the last beginning."""
    missing = 0
    """The number of distinct changes that were delivered more often than the following files contain them."""
    for part, following in pairwise(parts):
        missing -= int((told[part.codes] > left[part.codes]).sum())
        told[part.codes] += part.counts
        left[part.codes] -= part.counts
        missing += int((told[part.codes] > left[part.codes]).sum())
        is_new = following.begins_anew(part)
        if not is_new and following.may_begin_anew(part):
            is_full, held_again = part.report.rolled_over, bool(told[following.codes].any())
            # After a full file, a single repeated row is no sign of a repetition, unless a repetition has begun before.
            is_sign = different and (bool(begins) or int(np.count_nonzero(told)) > 1)
            is_short = not is_full and (different or not part.report.interrupted)
            is_new = not missing and (is_sign or (held_again and is_short))
            if is_new:
                begins.append(following.place)
            elif held_again and not (missing and is_full):
                goes_on.append(following.place)
        if is_new:
            told[:], missing = 0, 0
    return begins, goes_on


def _mostly_different(parts: Sequence[_Part]) -> bool:
    """Whether most changes in a file are distinct, so that other files of the same transaction are unlikely to repeat them all."""
    distinct = sum(len(part.codes) for part in parts)
    rows = sum(int(part.counts.sum()) for part in parts)
    return 2 * distinct > rows


def bag_change(block: pa.RecordBatch, delivery_of: Mapping[int, Delivery], *, keeps_commit_ts: bool = False) -> BagChange:
    """Nets a block (``model.block``) of one table. Raises MissingOldImages and EqualInStreams."""
    kinds = block.column(KIND).to_numpy(zero_copy_only=False)
    if (kinds == RowKind.UPDATE_AFTER).sum() != (kinds == RowKind.UPDATE_BEFORE).sum():
        raise MissingOldImages
    columns = block.schema.names[META_COUNT:]
    ranks = block.column(SEQ).to_numpy() >> SEQ_RANK_SHIFT
    codes = row_codes(block, columns)
    counted = pa.table(
        {
            _DELIVERY: _delivery_numbers(ranks, delivery_of),
            COMMIT_TS: block.column(COMMIT_TS),
            _SIGN: np.where(is_upsert(block), 1, -1),
            _ROW: codes,
        }
    )
    change = [COMMIT_TS, _SIGN, _ROW]
    counted = _grouped(counted, [_DELIVERY, *change], ([], "count_all"))
    _refuse_equal_in_streams(counted, delivery_of.values(), change)
    counted = _grouped(counted, change, (_COUNT, "max"))
    signed = pc.multiply(counted[_SIGN], counted[_COUNT])
    counted = counted.set_column(counted.schema.get_field_index(_COUNT), _COUNT, signed)
    net = _grouped(counted, [_ROW], (_COUNT, "sum"))
    distinct, places = np.unique(codes, return_index=True)
    surplus = np.zeros(len(distinct), np.int64)
    surplus[np.searchsorted(distinct, net[_ROW].to_numpy())] = net[_COUNT].to_numpy()
    rows = block.select(columns)
    netted = len(codes) - int(np.abs(surplus).sum())
    deletes, inserts = _repeated(rows, places, -surplus), _repeated(rows, places, surplus)
    if keeps_commit_ts:
        comes, commit_ts = is_upsert(block), block.column(COMMIT_TS).to_numpy()
        left, came = (_newest(commit_ts[chosen], np.searchsorted(distinct, codes[chosen]), places) for chosen in (~comes, comes))
        deletes = deletes.append_column(COMMIT_TS, pa.array(np.repeat(left, np.maximum(-surplus, 0))))
        inserts = inserts.append_column(COMMIT_TS, pa.array(np.repeat(came, np.maximum(surplus, 0))))
    return BagChange(deletes, inserts, netted)


def _newest(
    commit_ts: npt.NDArray[np.int64], of_row: npt.NDArray[np.int64], distinct: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """The newest commit ts (TSO) of the changes of each distinct row; 0 where there is none."""
    newest = np.zeros(len(distinct), np.int64)
    np.maximum.at(newest, of_row, commit_ts)
    return newest


def row_codes(block: pa.RecordBatch, columns: list[str]) -> npt.NDArray[np.int64]:
    """A number for each distinct row, for counting, because Arrow cannot group by more than 2 GiB of values.

    Floats are compared by their bits.
    """
    values = [_bits(block.column(name)) for name in columns]
    if not values:
        return np.zeros(block.num_rows, np.int64)
    return key_codes(pa.record_batch(values, names=columns), tuple(columns))


def _bits(values: pa.Array) -> pa.Array:
    return values.view(pa.int64() if values.type == pa.float64() else pa.int32()) if pa.types.is_floating(values.type) else values


def _delivery_numbers(ranks: npt.NDArray[np.int64], delivery_of: Mapping[int, Delivery]) -> npt.NDArray[np.int64]:
    known, places = np.unique(ranks, return_inverse=True)
    return np.array([delivery_of[int(rank)].number for rank in known], dtype=np.int64)[places]


def _refuse_equal_in_streams(counted: pa.Table, known: Iterable[Delivery], change: list[str]) -> None:
    streams = {delivery.number: delivery.stream for delivery in known}
    if len(set(streams.values())) < 2:
        return
    of_attempt = pa.array([streams[number] for number in counted[_DELIVERY].to_pylist()], pa.string())
    found = _grouped(counted.append_column(_STREAM, of_attempt), change, (_STREAM, "count_distinct"))
    if pc.max(found[_COUNT]).as_py() > 1:
        raise EqualInStreams


def _grouped(table: pa.Table, keys: list[str], counting: tuple[list[str] | str, str]) -> pa.Table:
    """Groups a table by ``keys``. The result has these columns and one count."""
    result = table.group_by(keys, use_threads=False).aggregate([counting])
    return result.rename_columns([*keys, _COUNT] if result.column_names[: len(keys)] == keys else [_COUNT, *keys])


def _repeated(rows: pa.RecordBatch, places: npt.NDArray[np.int64], times: npt.NDArray[np.int64]) -> pa.Table:
    wanted = np.repeat(places, np.maximum(times, 0))
    is_all = len(wanted) == rows.num_rows and bool((np.diff(wanted) == 1).all())
    return pa.Table.from_batches([rows if is_all else rows.take(pa.array(wanted))])
