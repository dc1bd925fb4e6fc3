"""Net change: of all changes of a key only the last state matters (converge, rule 7 of the design).

The order that decides is ``(commit_ts, delete before upsert, place in the source)`` where commit timestamps are exact, and
``(commit_ts, place in the source)`` where they are not. Everything here works on whole Arrow columns: keys become dense
integer codes by dictionary encoding, and the last row of each code is found by one numpy assignment. Netting is
associative, so it is done before the shuffle and again after it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from headrace.model.block import COMMIT_TS, KIND, META_COUNT, SEQ
from headrace.model.collating import fold_text
from headrace.model.events import RowKind

Codes = npt.NDArray[np.int64]


@dataclass(frozen=True)
class NetChange:
    """The outcome of netting; see ``headrace.sinks.base.TableChange`` for the three tables' layouts."""

    deletes: pa.Table
    upserts: pa.Table
    ordered: pa.Table


def last_states(block: pa.RecordBatch, key: tuple[str, ...], *, deletes_first: bool) -> pa.RecordBatch:
    """The last row of each key, in commit order, in the layout of a block. Old images count as deletes of their key."""
    if block.num_rows == 0:
        return block
    order = commit_order(block, deletes_first=deletes_first)
    codes = key_codes(block, key)
    last = np.full(int(codes.max()) + 1, -1, dtype=np.int64)
    # Where an index repeats, numpy keeps the last value assigned: the row that is last in commit order.
    last[codes[order]] = np.arange(len(order), dtype=np.int64)
    winners = order[np.sort(last[last >= 0])]
    if len(winners) == block.num_rows and _is_identity(winners):
        return block
    return block.take(pa.array(winners))


def net_change(block: pa.RecordBatch, key: tuple[str, ...], *, deletes_first: bool) -> NetChange:
    """Nets a block and splits it into what is deleted, what is upserted, and what has to keep its order."""
    states = last_states(block, key, deletes_first=deletes_first)
    upsert = is_upsert(states)
    ordered = _ambiguous(states, key, upsert)
    rows = states.select(states.schema.names[META_COUNT:])
    return NetChange(
        deletes=pa.Table.from_batches([rows.select(list(key)).filter(pa.array(~upsert & ~ordered))]),
        upserts=pa.Table.from_batches([rows.filter(pa.array(upsert & ~ordered))]),
        ordered=pa.Table.from_batches([states.filter(pa.array(ordered))]),
    )


def is_upsert(block: pa.RecordBatch) -> npt.NDArray[np.bool_]:
    """Which rows leave their key alive: inserts and new images."""
    kind = block.column(KIND).to_numpy(zero_copy_only=False)
    return np.asarray((kind == RowKind.INSERT) | (kind == RowKind.UPDATE_AFTER))


def commit_order(block: pa.RecordBatch, *, deletes_first: bool) -> Codes:
    """The row numbers of a block in the order in which their changes count."""
    commit_ts = block.column(COMMIT_TS).to_numpy()
    seq = block.column(SEQ).to_numpy()
    ranks = [seq, is_upsert(block).astype(np.int8), commit_ts] if deletes_first else [seq, commit_ts]
    if _is_sorted(ranks):
        return np.arange(block.num_rows, dtype=np.int64)
    return np.asarray(np.lexsort(ranks), dtype=np.int64)


def _is_sorted(ranks: list[npt.NDArray[np.int64]]) -> bool:
    """Whether rows are already in lexicographic order of ``ranks`` (last one first), as one TiCDC file nearly always is."""
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
        encoded = pc.dictionary_encode(_without_minus_zero(block.column(name)), null_encoding="encode")
        column = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        if codes is None:
            codes = column
            continue
        combined = pa.array(codes * len(encoded.dictionary) + column)
        codes = pc.dictionary_encode(combined).indices.to_numpy(zero_copy_only=False).astype(np.int64)
    assert codes is not None, "a key has at least one column"
    return codes


def _ambiguous(states: pa.RecordBatch, key: tuple[str, ...], upsert: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Rows in groups of keys that a target may hold for equal, where some end deleted and some alive.

    ``A`` updated to ``a`` and then deleted must not leave ``A``: deletes first would delete nothing and then insert ``A``.
    """
    none = np.zeros(states.num_rows, dtype=bool)
    if not any(_is_text(states.column(name).type) for name in key) or upsert.all() or not upsert.any():
        return none
    codes, groups = _group_codes(states, key)
    if groups == states.num_rows:
        return none
    alive = np.bincount(codes, weights=upsert, minlength=groups) > 0
    dead = np.bincount(codes, weights=~upsert, minlength=groups) > 0
    return np.asarray((alive & dead)[codes])


def _group_codes(block: pa.RecordBatch, key: tuple[str, ...]) -> tuple[Codes, int]:
    folded = pa.record_batch([_folded(block.column(name)) for name in key], names=list(key))
    codes = key_codes(folded, key)
    return codes, int(codes.max()) + 1


def buckets(block: pa.RecordBatch, key: tuple[str, ...], count: int) -> npt.NDArray[np.int64]:
    """The bucket (0 to ``count`` - 1) of each row: equal for keys that any collation may hold for equal."""
    if count == 1:
        return np.zeros(block.num_rows, dtype=np.int64)
    mixed = np.zeros(block.num_rows, dtype=np.uint64)
    for name in key:
        encoded = pc.dictionary_encode(block.column(name), null_encoding="encode")
        hashes = _hashes(_folded(encoded.dictionary))
        mixed = mixed * np.uint64(0x9E3779B97F4A7C15) + hashes[encoded.indices.to_numpy(zero_copy_only=False)]
    mixed ^= mixed >> np.uint64(29)
    return np.asarray(mixed % np.uint64(count), dtype=np.int64)


def _hashes(values: pa.Array) -> npt.NDArray[np.uint64]:
    if pa.types.is_integer(values.type):
        return np.asarray(pd.util.hash_array(values.fill_null(0).to_numpy(zero_copy_only=False)), dtype=np.uint64)
    return np.asarray(pd.util.hash_array(np.asarray(values.to_pylist(), dtype=object), categorize=False), dtype=np.uint64)


def _is_text(data_type: pa.DataType) -> bool:
    return bool(pa.types.is_string(data_type))


def _folded(values: pa.Array) -> pa.Array:
    """Values made coarser than any collation's equality; what is no text stays (integers) or becomes text (floats)."""
    if pa.types.is_floating(values.type):
        return _without_minus_zero(values).cast(pa.string())
    if not _is_text(values.type):
        return values
    ascii_only = pc.string_is_ascii(values)
    plain = pc.ascii_rtrim(pc.ascii_lower(values), characters=" ")
    if pc.any(pc.match_substring(plain, "ss")).as_py() is True:
        plain = pc.replace_substring_regex(plain, "ss+", "s")  # as in fold_text
    if pc.all(ascii_only, skip_nulls=True).as_py() is not False and not _has_controls(values):
        return plain
    return pa.array([None if text is None else fold_text(text) for text in values.to_pylist()], pa.string())


def _without_minus_zero(values: pa.Array) -> pa.Array:
    """0.0 and -0.0 are one key for every database."""
    return pc.add(values, pa.scalar(0.0, values.type)) if pa.types.is_floating(values.type) else values


def _has_controls(values: pa.Array) -> bool:
    return pc.any(pc.match_substring_regex(values, "[\\x00-\\x1f\\x7f]")).as_py() is True
