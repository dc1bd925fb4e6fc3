"""Net change of tables without key: bags of rows, in which equal rows are counted (rule 10 of the design).

Inserts add, deletes remove as many equal rows. TiCDC repeats rows after a restart, and an equal row may also be a true
second one, so files are taken as deliveries: a file that begins below the end of the one before it begins a new delivery.
Equal changes of one commit ts are counted in each delivery, and the largest count is the true one.

Two cases are ambiguous. A file that begins at the very commit ts at which the one before it ends is either the rest of a
transaction or a repetition of all of it. It is taken for a repetition when it holds everything of that commit ts that
the other holds, unless the other ended because it was full; :func:`unsure_files` tells which. And equal changes of one commit
ts in two streams (dispatchers) are either two parts of a transaction or a repetition by a dispatcher that took over: nothing
tells them apart, so they are refused.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
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
    """Rows to remove and rows to add, in the columns that rows carry; a row stands as often as it is meant.

    Where their commit ts is kept, it is the last column of both: the newest one at which an equal row left, or came. ``netted`` is
    the number of rows that repeat others, or that add and remove an equal row.
    """

    deletes: pa.Table
    inserts: pa.Table
    netted: int


class MissingOldImages(Exception):
    """An update of a table without key came without its old row: which row it changed cannot be known."""


class EqualInStreams(Exception):
    """Two streams of a table without key hold an equal change of one commit ts: both count, or one repeats the other."""


@dataclass(frozen=True)
class Delivery:
    """``number`` tells the deliveries of a table apart, whatever their stream."""

    stream: str
    number: int


def deliveries(reports: Iterable[SplitReport], block: pa.RecordBatch) -> dict[int, Delivery]:
    """Split rank to delivery, for one table's splits and their rows. Empty files belong to no delivery."""
    found: dict[int, Delivery] = {}
    number = 0
    for stream, members in _streams(reports).items():
        number += 1
        found[members[0].rank] = Delivery(stream, number)
        for place, (before, report) in enumerate(pairwise(members)):
            number += report.anew or report.min_ts < before.max_ts or _repeats_end(members, place + 1, block)
            found[report.rank] = Delivery(stream, number)
    return found


def unsure_places(reports: Iterable[SplitReport], block: pa.RecordBatch) -> list[SourcePlace]:
    """The files, or pieces of a stream, that begin where the one before them ends, with equal changes there: a guess was made."""
    return [
        report.at()
        for members in _streams(reports).values()
        for before, report in pairwise(members)
        if report.min_ts == before.max_ts and not before.rolled_over and not report.anew
        if _counts_at(block, before.rank, report.min_ts) & _counts_at(block, report.rank, report.min_ts)
    ]


def _streams(reports: Iterable[SplitReport]) -> dict[str, list[SplitReport]]:
    """The reports of files with rows by their stream, in order."""
    found: dict[str, list[SplitReport]] = defaultdict(list)
    for report in sorted((r for r in reports if r.rows), key=lambda r: r.rank):
        found[report.stream].append(report)
    return found


def _repeats_end(members: Sequence[SplitReport], place: int, block: pa.RecordBatch) -> bool:
    """Whether a file that begins where the one before it ends holds all that was told before of that commit ts.

    The transaction may lie in several files, and so may its repetition: each of these goes on in the next.
    """
    at = members[place].min_ts
    if at != members[place - 1].max_ts or members[place - 1].rolled_over:
        return False
    first, last = place - 1, place
    while first and _is_one(members[first - 1], members[first], at):
        first -= 1
    while last + 1 < len(members) and _is_one(members[last], members[last + 1], at):
        last += 1
    earlier, later = (
        sum((_counts_at(block, report.rank, at) for report in part), Counter())
        for part in (members[first:place], members[place : last + 1])
    )
    return bool(earlier) and not earlier - later


def _is_one(before: SplitReport, report: SplitReport, commit_ts: int) -> bool:
    """Whether a transaction goes on from one file into the next."""
    return before.rolled_over and not report.anew and before.max_ts == report.min_ts == commit_ts


def _counts_at(block: pa.RecordBatch, rank: int, commit_ts: int) -> Counter[tuple[object, ...]]:
    ranks = block.column(SEQ).to_numpy() >> SEQ_RANK_SHIFT
    rows = block.filter(pa.array((ranks == rank) & (block.column(COMMIT_TS).to_numpy() == commit_ts)))
    # TiCDC may write an update as a deletion and an insertion once, and as an update when it repeats it, or the other way round.
    columns = [is_upsert(rows).tolist(), *(rows.column(name).to_pylist() for name in rows.schema.names[META_COUNT:])]
    return Counter(zip(*columns, strict=True))


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
    """A number for each distinct row, to count by: Arrow cannot group by more than 2 GiB of values. Floats differ by their bits."""
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
    """Groups by ``keys`` into those columns and one count."""
    result = table.group_by(keys, use_threads=False).aggregate([counting])
    return result.rename_columns([*keys, _COUNT] if result.column_names[: len(keys)] == keys else [_COUNT, *keys])


def _repeated(rows: pa.RecordBatch, places: npt.NDArray[np.int64], times: npt.NDArray[np.int64]) -> pa.Table:
    wanted = np.repeat(places, np.maximum(times, 0))
    is_all = len(wanted) == rows.num_rows and bool((np.diff(wanted) == 1).all())
    return pa.Table.from_batches([rows if is_all else rows.take(pa.array(wanted))])
