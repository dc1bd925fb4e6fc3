"""Net change: of all changes of a key, only the last state is kept (converge, rule 7 of the design).

Changes are ordered by ``(commit_ts, delete before upsert, place in the source)`` if commit timestamps are exact, otherwise by
``(commit_ts, place in the source)``. All functions work on whole Arrow columns: dictionary encoding turns keys into dense integer
codes, and one numpy assignment finds the last row of each code. Netting is associative, so it is done before the shuffle and again
after it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.model.block import BORN, COMMIT_TS, DIED, KIND, META_COUNT, SEQ, SIGHT, UPDATED_ALONE
from headrace.model.events import RowKind
from headrace.model.key_forms import folded, hashes, is_text, without_minus_zero

Codes = npt.NDArray[np.int64]
# The kind of a row that was netted with sights also has the sight flags of its key, and this flag.
_NETTED = 32
_KINDS = 3
# The commit ts and the place of the first change of a netted row's key (int64 each). The row itself is the key's last change. Of
# two netted rows of a key, the later one may have the earlier first change, because tasks get the files of a key in any order.
_FIRST_TS = "headrace$first_ts"
_FIRST_SEQ = "headrace$first_seq"


@dataclass(frozen=True)
class Sights:
    """What netting records for each key besides its last state, if the target compares the handle key by a collation.

    ``updates_alone``: an update may lack its old row although its key changed. See ``headrace.model.block.SIGHT``.
    """

    updates_alone: bool = False


@dataclass(frozen=True)
class NetChange:
    """The result of netting; see ``headrace.sinks.base.TableChange`` for the layouts of the three tables."""

    deletes: pa.Table
    upserts: pa.Table
    ordered: pa.Table
    groups: tuple[int, ...]
    """The numbers of the rows in ``ordered`` that begin a group of keys."""
    netted: int
    """The number of rows that a later row of the same key replaced."""


def last_states(
    block: pa.RecordBatch, key: tuple[str, ...], *, deletes_first: bool, sights: Sights | None = None
) -> pa.RecordBatch:
    """The last row of each key, in the layout of a block. Old images count as deletes of their key.

    With ``sights``, the kinds of the rows also have the sight flags, and two int64 columns have the commit ts and the place of each
    key's first change. :func:`net_change` removes them again.
    """
    if block.num_rows == 0:
        return block
    order = commit_order(block, deletes_first=deletes_first)
    codes = key_codes(block, key)
    last = np.full(int(codes.max()) + 1, -1, dtype=np.int64)
    # Where an index repeats, numpy keeps the last value assigned: the row that is last in commit order.
    last[codes[order]] = np.arange(len(order), dtype=np.int64)
    winners = order[np.sort(last[last >= 0])]
    if sights is not None:
        return _with_sights(block, codes, winners, sights, deletes_first=deletes_first)
    if len(winners) == block.num_rows and _is_identity(winners):
        return block
    return block.take(pa.array(winners))


def _with_sights(block: pa.RecordBatch, codes: Codes, winners: Codes, sights: Sights, *, deletes_first: bool) -> pa.RecordBatch:
    marks = block.column(KIND).to_numpy(zero_copy_only=False)
    kinds, netted = marks & _KINDS, (marks & _NETTED) != 0
    born = np.where(netted, (marks & BORN) != 0, kinds == RowKind.INSERT)
    died = np.where(netted, (marks & DIED) != 0, (kinds == RowKind.DELETE) | (kinds == RowKind.UPDATE_BEFORE))
    alone = ~netted & (kinds == RowKind.UPDATE_AFTER) & sights.updates_alone
    seq = block.column(SEQ).to_numpy()
    # An old row directly precedes its new row.
    alone[1:] &= ~((kinds[:-1] == RowKind.UPDATE_BEFORE) & (np.diff(seq) == 1))
    alone |= netted & ((marks & UPDATED_ALONE) != 0)
    first_ts, first_seq = (_first(block, name, of_row) for name, of_row in ((_FIRST_TS, COMMIT_TS), (_FIRST_SEQ, SEQ)))
    ranks = [first_seq, born.astype(np.int8), first_ts] if deletes_first else [first_seq, first_ts]
    order = _in_order(ranks)
    first = np.zeros(int(codes.max()) + 1, dtype=np.int64)
    first[codes[order[::-1]]] = order[::-1]
    found = np.where(born[first], BORN, 0)
    for mark, rows in ((DIED, died), (UPDATED_ALONE, alone)):
        if rows.any():
            found[np.unique(codes[rows])] |= mark
    noted = (kinds[winners] | found[codes[winners]] | _NETTED).astype(np.int8)
    states = block if len(winners) == block.num_rows and _is_identity(winners) else block.take(pa.array(winners))
    for name, places in ((_FIRST_TS, first_ts), (_FIRST_SEQ, first_seq)):
        column = pa.array(places[first[codes[winners]]], pa.int64())
        at = states.schema.get_field_index(name)
        states = states.append_column(name, column) if at < 0 else states.set_column(at, name, column)
    return _with_kinds(states, noted)


def _first(block: pa.RecordBatch, name: str, of_row: str) -> Codes:
    """The commit ts or place of the first change of each row's key, as far as the row records it; else the row's own."""
    own = block.column(of_row)
    known = pc.coalesce(block.column(name), own) if name in block.schema.names else own
    return np.asarray(known.to_numpy(zero_copy_only=False), dtype=np.int64)


def _with_kinds(block: pa.RecordBatch, kinds: npt.NDArray[np.int8]) -> pa.RecordBatch:
    return block.set_column(block.schema.get_field_index(KIND), block.schema.field(KIND), pa.array(kinds, pa.int8()))


def net_change(
    block: pa.RecordBatch,
    key: tuple[str, ...],
    *,
    deletes_first: bool,
    weighed: frozenset[str] = frozenset(),
    sights: Sights | None = None,
    keeps_commit_ts: bool = False,
) -> NetChange:
    """Nets a block and splits it into rows to delete, rows to upsert, and rows that only the target can net.

    ``weighed`` are the columns whose collation in the target weighs supplementary characters (see ``fold_text``). With ``sights``,
    the three tables have the column :data:`SIGHT`; with ``keeps_commit_ts``, they have :data:`COMMIT_TS`.
    """
    states = last_states(block, key, deletes_first=deletes_first, sights=sights)
    kept = [*key, COMMIT_TS] if keeps_commit_ts else list(key)
    if sights is not None and states.num_rows:
        marks = states.column(KIND).to_numpy(zero_copy_only=False)
        states = _with_kinds(states, marks & _KINDS).drop_columns([_FIRST_TS, _FIRST_SEQ])
        states = states.append_column(SIGHT, pa.array(marks & (BORN | UPDATED_ALONE | DIED), pa.int8()))
        kept.append(SIGHT)
    upsert = is_upsert(states)
    ambiguous, codes = _ambiguous(states, key, upsert, weighed)
    names = states.schema.names[META_COUNT:]
    if keeps_commit_ts:
        names.insert(len(names) - (SIGHT in names), COMMIT_TS)
    rows = states.select(names)
    by_group = np.flatnonzero(ambiguous)[np.argsort(codes[ambiguous], kind="stable")]
    return NetChange(
        deletes=_where(rows.select(kept), ~upsert & ~ambiguous),
        upserts=_where(rows, upsert & ~ambiguous),
        ordered=pa.Table.from_batches([states.take(pa.array(by_group))]),
        groups=tuple(np.flatnonzero(np.diff(codes[by_group], prepend=-1)).tolist()),
        netted=block.num_rows - states.num_rows,
    )


def _where(rows: pa.RecordBatch, chosen: npt.NDArray[np.bool_]) -> pa.Table:
    return pa.Table.from_batches([rows if chosen.all() else rows.filter(pa.array(chosen))])


def is_upsert(block: pa.RecordBatch) -> npt.NDArray[np.bool_]:
    """For each row, whether its key exists after it: true for inserts and new images."""
    kind = block.column(KIND).to_numpy(zero_copy_only=False) & _KINDS
    return np.asarray((kind == RowKind.INSERT) | (kind == RowKind.UPDATE_AFTER))


def commit_order(block: pa.RecordBatch, *, deletes_first: bool) -> Codes:
    """The row numbers of a block in the order in which their changes apply."""
    commit_ts = block.column(COMMIT_TS).to_numpy()
    seq = block.column(SEQ).to_numpy()
    ranks = [seq, is_upsert(block).astype(np.int8), commit_ts] if deletes_first else [seq, commit_ts]
    return _in_order(ranks)


def _in_order(ranks: list[npt.NDArray[Any]]) -> Codes:
    """The row numbers in lexicographic order of ``ranks`` (last one first)."""
    if _is_sorted(ranks):
        return np.arange(len(ranks[0]), dtype=np.int64)
    return np.asarray(np.lexsort(ranks), dtype=np.int64)


def _is_sorted(ranks: list[npt.NDArray[Any]]) -> bool:
    """Whether rows are already in lexicographic order of ``ranks`` (last one first). One TiCDC file nearly always is."""
    later = np.zeros(max(len(ranks[0]) - 1, 0), dtype=bool)
    undecided = ~later
    for values in reversed(ranks):
        step = np.diff(values)
        if bool((undecided & (step < 0)).any()):
            return False
        undecided &= step == 0
    return True


def _is_identity(rows: Codes) -> bool:
    return bool((rows == np.arange(len(rows))).all())


def key_codes(block: pa.RecordBatch, key: tuple[str, ...]) -> Codes:
    """A dense integer for each distinct key."""
    codes: Codes | None = None
    for name in key:
        encoded = pc.dictionary_encode(without_minus_zero(block.column(name)), null_encoding="encode")
        column = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        if codes is None:
            codes = column
            continue
        combined = pa.array(codes * len(encoded.dictionary) + column)
        codes = pc.dictionary_encode(combined).indices.to_numpy(zero_copy_only=False).astype(np.int64)
    assert codes is not None, "a key has at least one column"
    return codes


def _ambiguous(
    states: pa.RecordBatch, key: tuple[str, ...], upsert: npt.NDArray[np.bool_], weighed: frozenset[str]
) -> tuple[npt.NDArray[np.bool_], Codes]:
    """Which rows only the target can net, and the number of each row's group.

    A group has the keys that a target may treat as equal. Its rows are ambiguous if some end deleted and some do not: a row ``A``
    that is updated to ``a`` and then deleted must not leave ``A``, but with deletes first, the target would delete nothing and then
    insert ``A``. With sights, a group of several keys, not all of which end deleted, is also ambiguous if an update came without
    its old row, because the update may have changed the spelling of another row's key.
    """
    none = np.zeros(states.num_rows, dtype=bool)
    no_codes = np.zeros(states.num_rows, dtype=np.int64)
    if not any(is_text(states.column(name).type) for name in key):
        return none, no_codes
    alone = none
    if SIGHT in states.schema.names:
        alone = (states.column(SIGHT).to_numpy(zero_copy_only=False) & UPDATED_ALONE) != 0
    if (upsert.all() or not upsert.any()) and not alone.any():
        return none, no_codes
    codes, groups = group_codes(states, key, weighed)
    if groups == states.num_rows:
        return none, codes

    def some(rows: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
        return np.asarray(np.bincount(codes, weights=rows, minlength=groups) > 0)

    several = np.bincount(codes, minlength=groups) > 1
    return np.asarray((some(upsert) & (some(~upsert) | (several & some(alone))))[codes]), codes


def group_codes(block: pa.RecordBatch, key: tuple[str, ...], weighed: frozenset[str] = frozenset()) -> tuple[Codes, int]:
    """The group number of each row, equal for keys that a target may treat as equal, and the number of groups.

    ``weighed``: see :func:`net_change`.
    """
    forms = [folded(block.column(name), weighs_supplementary=name in weighed) for name in key]
    codes = key_codes(pa.record_batch(forms, names=list(key)), key)
    return codes, int(codes.max()) + 1


def buckets(
    block: pa.RecordBatch, key: tuple[str, ...], count: int, weighed: frozenset[str] = frozenset()
) -> npt.NDArray[np.int64]:
    """The bucket (0 to ``count`` - 1) of each row, equal for keys that any collation may treat as equal.

    ``weighed``: see :func:`net_change`.
    """
    if count == 1:
        return np.zeros(block.num_rows, dtype=np.int64)
    mixed = np.zeros(block.num_rows, dtype=np.uint64)
    for name in key:
        encoded = pc.dictionary_encode(block.column(name), null_encoding="encode")
        found = hashes(folded(encoded.dictionary, weighs_supplementary=name in weighed))
        mixed = mixed * np.uint64(0x9E3779B97F4A7C15) + found[encoded.indices.to_numpy(zero_copy_only=False)]
    mixed ^= mixed >> np.uint64(29)
    return np.asarray(mixed % np.uint64(count), dtype=np.int64)
