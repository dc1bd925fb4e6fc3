"""All changes of a table in commit order, in bounded pieces, without repeats, for sinks that are logs (rule 8 of the design).

Read tasks sort what they read into runs and cut these into pieces. A write task takes the pieces of a table in the order of their
first rows, and passes on the rows before which no later piece can have any. So it holds about one piece of each run that covers the
same time, whatever the size of the table. Rows with the same commit ts stay together, because repeats can only be found among them.

A source that restarts after a failure writes changes a second time. The source defines what counts as a repeat
(:class:`headrace.model.cut.Repeats`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.engine.bag import Guess, deliveries, row_codes
from headrace.engine.net import commit_order, group_codes, is_upsert, key_codes
from headrace.model.block import COMMIT_TS, KIND, META_COUNT, SEQ, SEQ_RANK_SHIFT, combined, in_pieces
from headrace.model.cut import Repeats
from headrace.model.events import RowKind
from headrace.model.key_forms import without_minus_zero
from headrace.model.mixing import mixed
from headrace.model.outcome import SplitReport

PIECE_BYTES = 1 << 20
"""The size of a piece of a run for a write task, in bytes of Arrow columns."""
WRITTEN_BYTES = 8 << 20
"""The maximum size of a piece that a writer gets, in bytes."""
_WRITTEN_ROWS = 131_072

_SIGN, _CODE = "sign", "code"


@dataclass(frozen=True)
class LogOrder:
    """The order in which changes are merged: by commit ts, and with the same commit ts as the source wrote them.

    So an old row precedes the new row that it belongs to. If rows have no commit ts (``timed`` is false), only the place in the
    source counts.
    """

    timed: bool = True

    def of(self, block: pa.RecordBatch) -> npt.NDArray[np.int64]:
        """The order column of each row, by which pieces are compared."""
        return np.asarray(block.column(COMMIT_TS if self.timed else SEQ).to_numpy(), dtype=np.int64)

    def sorted(self, block: pa.RecordBatch) -> pa.RecordBatch:
        """The rows of a block in order."""
        return block.take(pa.array(commit_order(block, deletes_first=False)))

    def pieces(self, run: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Cuts a sorted run into pieces, each with the order of its first row."""
        for piece in in_pieces(run, PIECE_BYTES, _WRITTEN_ROWS):
            yield int(self.of(piece.slice(0, 1))[0]), piece


@dataclass
class OrderedChanges:
    """One table's changes on their way to a writer."""

    order: LogOrder
    rule: Repeats
    key: tuple[str, ...]
    """The table's key columns; empty if it has no key."""
    reports: tuple[SplitReport, ...] = ()
    """The reports of the table's splits, which distinguish deliveries if it has no key."""
    repeated: int = 0
    """The number of rows left out as repeats, available at the end."""
    received: int = 0
    guesses: list[Guess] = field(default_factory=list)
    """What was assumed about repeats where it is not certain."""

    def merged(self, arriving: Iterable[tuple[int, pa.RecordBatch]]) -> Iterator[pa.RecordBatch]:
        """The rows of all pieces in order, in pieces of at most 8 MiB. ``arriving`` comes in the order of first rows."""
        waiting: list[pa.RecordBatch] = []
        size, limit, reached = 0, WRITTEN_BYTES, None
        for first, piece in arriving:
            assert reached is None or reached <= first, "pieces arrive in order"
            reached = first
            if size >= limit:
                held = combined(waiting)
                ready = self.order.of(held) < first
                yield from self._passed_on(held.filter(pa.array(ready)))
                rest = held.filter(pa.array(~ready))
                waiting, size = [rest], rest.nbytes
                limit = max(WRITTEN_BYTES, 2 * size)
            self.received += piece.num_rows
            waiting.append(piece)
            size += piece.nbytes
        if waiting:
            yield from self._passed_on(combined(waiting))

    def _passed_on(self, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        kept = self._without_repeats(self.order.sorted(rows))
        self.repeated += rows.num_rows - kept.num_rows
        if self.rule is Repeats.CHANGES and self.key:
            kept = _deletions_first(kept, self.key)
        yield from in_pieces(kept, WRITTEN_BYTES, _WRITTEN_ROWS)

    def _without_repeats(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        if self.rule is Repeats.UNKNOWN or not rows.num_rows:
            return rows
        if self.rule is Repeats.TRANSACTIONS:
            keep = _of_first_delivery(rows)
        elif self.key:
            keep = _first_of_equal(rows, self.key)
        else:
            keep = self._of_largest_delivery(rows)
        return rows if keep.all() else rows.filter(pa.array(keep))

    def _of_largest_delivery(self, rows: pa.RecordBatch) -> npt.NDArray[np.bool_]:
        """Rows without key: of equal changes, as many as the delivery with the most of them has, in each stream.

        Equal changes of two streams may be two parts of a transaction or a repeat. This cannot be determined, so both are kept.
        """
        commit_ts = rows.column(COMMIT_TS).to_numpy()
        lo, hi = int(commit_ts.min()), int(commit_ts.max())
        told = deliveries([r for r in self.reports if r.max_ts >= lo and r.min_ts <= hi], rows)
        self.guesses += told.guesses
        ranks = rows.column(SEQ).to_numpy() >> SEQ_RANK_SHIFT
        streams: dict[str, int] = {}
        splits, of_split = np.unique(ranks, return_inverse=True)
        known = [told.of[int(rank)] for rank in splits]
        changes, numbers = _change_codes(rows), np.array([d.number for d in known], dtype=np.int64)[of_split]
        stream = np.array([streams.setdefault(d.stream, len(streams)) for d in known], dtype=np.int64)[of_split]
        # The number of each row among the equal changes of its delivery, and whether another delivery has already counted that one.
        position = _position_in_group(np.stack([changes, numbers]))
        seen = np.stack([changes, stream, position])
        _, places = np.unique(seen, axis=1, return_index=True)
        keep = np.zeros(rows.num_rows, dtype=bool)
        keep[places] = True
        return keep


def _of_first_delivery(rows: pa.RecordBatch) -> npt.NDArray[np.bool_]:
    """Each transaction as in the first split that has it: a split has a transaction once, and completely."""
    commit_ts = rows.column(COMMIT_TS).to_numpy()
    ranks = rows.column(SEQ).to_numpy() >> SEQ_RANK_SHIFT
    _, codes = np.unique(commit_ts, return_inverse=True)
    least = np.full(int(codes.max()) + 1, np.iinfo(np.int64).max)
    np.minimum.at(least, codes, ranks)
    return np.asarray(ranks == least[codes])


def _change_codes(rows: pa.RecordBatch) -> npt.NDArray[np.int64]:
    """A number for each distinct change: commit ts, whether the row is added or removed, and all of its columns.

    TiCDC may write an update once as a deletion and an insertion, and when it repeats it as an update, or the other way round. So
    the exact kind does not count.
    """
    image = pa.array(row_codes(rows, rows.schema.names[META_COUNT:]))
    sign = pa.array(is_upsert(rows).astype(np.int64))
    names = (COMMIT_TS, _SIGN, _CODE)
    return key_codes(pa.record_batch([rows.column(COMMIT_TS), sign, image], names=list(names)), names)


def _first_of_equal(rows: pa.RecordBatch, key: tuple[str, ...]) -> npt.NDArray[np.bool_]:
    """The first of equal changes, since a transaction has at most one change of a key.

    Only changes of one key and commit ts can be equal. So most rows are compared by these alone, and not by all of their columns.
    """
    keep = np.ones(rows.num_rows, dtype=bool)
    suspects = _of_one_key(rows, key)
    if len(suspects):
        _, places = np.unique(_change_codes(rows.take(pa.array(suspects))), return_index=True)
        keep[suspects] = False
        keep[suspects[places]] = True
    return keep


def _of_one_key(rows: pa.RecordBatch, key: tuple[str, ...]) -> npt.NDArray[np.int64]:
    """The rows, in order, that may have the same key and commit ts as another one that is also added, or also removed.

    A row that is named wrongly costs a comparison and no more.
    """
    carried = [without_minus_zero(rows.column(name)) for name in key if name in rows.schema.names]
    numbers = mixed([rows.column(COMMIT_TS), *carried, pa.array(is_upsert(rows).astype(np.int8))])
    order = np.argsort(numbers, kind="stable")
    same = np.diff(numbers[order]) == 0
    return np.sort(order[np.concatenate([same, [False]]) | np.concatenate([[False], same])])


def _deletions_first(rows: pa.RecordBatch, key: tuple[str, ...]) -> pa.RecordBatch:
    """Sorted rows in which no deletion of a key follows a new row of that key with the same commit ts.

    Otherwise a sink that applies the rows would end without that row. TiCDC may write an update without its old row and repeat it
    as a deletion and an insertion; some releases do not sort the rows of a transaction. A late deletion moves before the new row,
    and before the old row that belongs to that. Keys that any target may consider equal count as one, and key columns that no row
    carries are ignored, because it is always correct to put deletions first.
    """
    commit_ts, comes = rows.column(COMMIT_TS).to_numpy(), is_upsert(rows)
    transaction = np.cumsum(np.diff(commit_ts, prepend=commit_ts[:1]) != 0)
    came = np.cumsum(comes)
    before = np.concatenate([[0], came[np.flatnonzero(np.diff(transaction))]])
    behind = ~comes & (came > before[transaction])
    chosen = np.flatnonzero(np.isin(transaction, transaction[behind]))
    if not len(chosen):
        return rows
    names = tuple(name for name in key if name in rows.schema.names)
    keys = group_codes(rows.select(names).take(pa.array(chosen)), names)[0] if names else np.zeros(len(chosen), np.int64)
    pairs = pa.record_batch([pa.array(transaction[chosen]), pa.array(keys)], names=[COMMIT_TS, _CODE])
    codes = key_codes(pairs, (COMMIT_TS, _CODE))
    first_new = np.full(int(codes.max()) + 1, rows.num_rows, np.int64)
    np.minimum.at(first_new, codes[comes[chosen]], chosen[comes[chosen]])
    late = ~comes[chosen] & (first_new[codes] < chosen)
    if not late.any():
        return rows
    kinds, seq = rows.column(KIND).to_numpy(zero_copy_only=False), rows.column(SEQ).to_numpy()
    paired = np.zeros(rows.num_rows, dtype=bool)
    paired[1:] = (kinds[1:] == RowKind.UPDATE_AFTER) & (kinds[:-1] == RowKind.UPDATE_BEFORE) & (np.diff(seq) == 1)
    places, moved = np.arange(rows.num_rows), np.ones(rows.num_rows, dtype=np.int8)
    target = first_new[codes[late]]
    places[chosen[late]], moved[chosen[late]] = target - paired[target], 0
    return rows.take(pa.array(np.lexsort([moved, places])))


def _position_in_group(groups: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """For each column of ``groups``, the number of equal columns before it."""
    _, codes = np.unique(groups, axis=1, return_inverse=True)
    codes = np.asarray(codes).reshape(-1)
    order = np.argsort(codes, kind="stable")
    starts = np.flatnonzero(np.diff(codes[order], prepend=-1))
    position = np.empty(len(codes), dtype=np.int64)
    position[order] = np.arange(len(codes)) - np.repeat(starts, np.diff(np.append(starts, len(codes))))
    return position
