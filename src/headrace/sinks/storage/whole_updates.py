"""Brings changes into the form that readers of files expect: whole updates, and at most one change of a key at a commit ts.

Readers apply the deletions of a transaction before its new rows. A source whose commit ts are not exact, or that tells every
statement of a transaction, may have several changes of a key at one commit ts: inserted and then deleted, its row would be back.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.model.block import COMMIT_TS, KIND, combined
from headrace.model.events import RowKind
from headrace.model.key_forms import without_minus_zero
from headrace.model.mixing import mixed
from headrace.model.table import folded_name

_Places = npt.NDArray[np.int64]
_Flags = npt.NDArray[np.bool_]


class WholeUpdates:
    """The pieces of a table on their way to an encoder. A piece may end within a transaction, and between two rows of an update."""

    def __init__(self, key: tuple[str, ...]) -> None:
        """``key`` are the columns of the table's handle key; empty without one."""
        self._key = frozenset(map(folded_name, key))
        self._waiting: list[pa.RecordBatch] = []
        self._at = 0
        """The commit ts of the rows that wait."""

    def taken(self, piece: pa.Table) -> pa.RecordBatch | None:
        """The rows before the last commit ts of this piece; ``None`` for none. The others wait for the next piece.

        ``piece`` has the layout of ``model.block``. An update whose rows are apart becomes a deletion and an insertion, and so do
        several changes of a key at one commit ts, of which the last one counts.
        """
        batches = piece.to_batches()
        rows = combined(batches)
        commit_ts = rows.column(COMMIT_TS).to_numpy()
        last = int(commit_ts[-1])
        begins = int(np.searchsorted(commit_ts, last)) if last else _end_without_time(rows)
        if begins == 0 and self._waiting and self._at == last:
            self._waiting.append(rows)
            return None
        ready = combined([*self._waiting, rows.slice(0, begins)])
        self._waiting, self._at = [rows.slice(begins)], last
        return self._settled(ready) if ready.num_rows else None

    def rest(self) -> pa.RecordBatch | None:
        """The rows that still wait; ``None`` if there are none."""
        rows = combined(self._waiting) if self._waiting else None
        self._waiting = []
        return self._settled(rows) if rows is not None and rows.num_rows else None

    def _settled(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        names = [name for name in rows.schema.names if folded_name(name) in self._key]
        if names and len(names) == len(self._key):
            rows = _without_several(rows, names)
        return _without_torn(rows)


def _end_without_time(rows: pa.RecordBatch) -> int:
    """Of rows without commit ts only an old row at the end waits, for its new row."""
    return int(rows.num_rows) - int(rows.column(KIND)[-1].as_py() == RowKind.UPDATE_BEFORE)


def _without_several(rows: pa.RecordBatch, key: list[str]) -> pa.RecordBatch:
    """The rows with one change of each key at each commit ts: what the key had before it, and what it has after it."""
    suspects = _suspects(rows, key)
    if not len(suspects):
        return rows
    groups = _groups(rows, suspects, key)
    comes, places = _comes(rows)[suspects], np.arange(len(suspects))
    kinds = rows.column(KIND).to_numpy(zero_copy_only=False)
    of_suspects = kinds[suspects]
    first, last = np.full(int(groups.max()) + 1, len(suspects), np.int64), np.zeros(int(groups.max()) + 1, np.int64)
    first_old = first.copy()
    np.minimum.at(first, groups, places)
    np.minimum.at(first_old, groups[~comes], places[~comes])
    np.maximum.at(last, groups, places)
    # A new row whose old row is of another key comes as an insertion does.
    moves = np.concatenate([[False], _pairs(kinds)])[suspects]
    was_there = ~((of_suspects == RowKind.INSERT) | moves)[first][groups]
    had_old = ~comes[first][groups]
    there = comes & (places == last[groups])
    gone = ~comes & was_there & (places == np.where(comes[last] & ~comes[first], first_old, last)[groups])
    changed = kinds.copy()
    changed[suspects[gone]] = RowKind.DELETE
    changed[suspects[there & (had_old | ~was_there)]] = RowKind.INSERT
    changed[suspects[there & was_there & ~had_old]] = RowKind.UPDATE_AFTER
    keep = np.ones(rows.num_rows, bool)
    keep[suspects[~(gone | there)]] = False
    settled = np.zeros(rows.num_rows, bool)
    settled[suspects] = True
    old, new = _halves(kinds, keep & (changed == kinds), ~settled)
    changed[old], changed[new] = RowKind.DELETE, RowKind.INSERT
    return rows.set_column(0, KIND, pa.array(changed, pa.int8())).filter(pa.array(keep))


def _pairs(kinds: npt.NDArray[np.int8]) -> _Flags:
    """Of each row but the last, whether it is the old row of the next one."""
    return np.asarray((kinds[:-1] == RowKind.UPDATE_BEFORE) & (kinds[1:] == RowKind.UPDATE_AFTER))


def _halves(kinds: npt.NDArray[np.int8], stays: _Flags, chosen: _Flags) -> tuple[_Flags, _Flags]:
    """Of the chosen rows, the old and the new rows of updates whose other row does not stay as it is."""
    old, new = np.zeros(len(kinds), bool), np.zeros(len(kinds), bool)
    old[:-1], new[1:] = _pairs(kinds) & ~stays[1:], _pairs(kinds) & ~stays[:-1]
    return old & chosen, new & chosen


def _comes(rows: pa.RecordBatch) -> _Flags:
    """Which rows are new rows."""
    kinds = rows.column(KIND).to_numpy(zero_copy_only=False)
    return np.asarray((kinds == RowKind.INSERT) | (kinds == RowKind.UPDATE_AFTER))


def _suspects(rows: pa.RecordBatch, key: list[str]) -> _Places:
    """The rows of which there may be several changes of a key at a commit ts, in order: more than an old row and then a new one."""
    commit_ts = rows.column(COMMIT_TS)
    numbers = mixed([commit_ts, *(without_minus_zero(rows.column(name)) for name in key)])
    order = np.argsort(numbers, kind="stable")
    begins = np.concatenate([[True], np.diff(numbers[order]) != 0])
    if begins.all():
        return np.empty(0, np.int64)
    run = np.cumsum(begins) - 1
    length, comes = np.bincount(run), _comes(rows)[order]
    first = np.flatnonzero(begins)
    is_pair = (length == 2) & ~comes[first] & comes[np.minimum(first + 1, len(order) - 1)]
    several = ((length > 1) & ~is_pair)[run] & (commit_ts.to_numpy()[order] > 0)
    return np.sort(order[several])


def _groups(rows: pa.RecordBatch, places: _Places, key: list[str]) -> _Places:
    """The number of the (commit ts, key) of each of these rows."""
    names = ["at", *(f"key{number}" for number in range(len(key)))]
    chosen = rows.take(pa.array(places))
    keys = (without_minus_zero(chosen.column(name)) for name in key)
    table = pa.table([chosen.column(COMMIT_TS), *keys, pa.array(np.arange(len(places)))], names=[*names, "row"])
    grouped = table.group_by(names, use_threads=False).aggregate([("row", "list")])
    lists = grouped.column("row_list").combine_chunks()
    groups = np.empty(len(places), np.int64)
    groups[lists.flatten().to_numpy()] = np.repeat(np.arange(len(lists)), lists.value_lengths().to_numpy())
    return groups


def _without_torn(rows: pa.RecordBatch) -> pa.RecordBatch:
    """The rows with new kinds for the two halves of an update that are not next to each other.

    That is so where deletions were moved before new rows of their key (``engine/change_log.py``).
    """
    kinds = rows.column(KIND).to_numpy(zero_copy_only=False)
    old, new = kinds == RowKind.UPDATE_BEFORE, kinds == RowKind.UPDATE_AFTER
    if not old.any():
        return rows
    commit_ts = rows.column(COMMIT_TS).to_numpy()
    followed = np.zeros(len(kinds), bool)
    followed[:-1] = old[:-1] & new[1:] & (commit_ts[:-1] == commit_ts[1:])
    torn = old & ~followed
    if not torn.any():
        return rows
    alone = new & ~np.concatenate([[False], followed[:-1]]) & np.isin(commit_ts, commit_ts[torn])
    changed = kinds.copy()
    changed[torn], changed[alone] = RowKind.DELETE, RowKind.INSERT
    return rows.set_column(0, KIND, pa.array(changed, pa.int8()))
