"""The statements that execute transactions of the source: first DELETE, then UPDATE, then INSERT.

So a row may take a unique value that another row of the transaction gives up. Where two updates of a transaction hand on a unique
value, no order of UPDATE statements works: such rows are deleted and inserted, as TiCDC does with every update of a unique key.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.model.block import COMMIT_TS, KIND, META_COUNT, SEQ, ChangeBlock
from headrace.model.events import RowKind
from headrace.model.table import Column, TableSchema, folded_name
from headrace.replay.conflict_keys import ConflictKeys, UniqueKey
from headrace.replay.slots import Touched, sharing
from headrace.replay.transactions import Transactions
from headrace.sinks.mysql.row_statements import deletions, insertions
from headrace.sinks.mysql.text import batches, literals, quote_name
from headrace.sinks.mysql.types import qualified

Numbers = npt.NDArray[np.int64]
_PIECE_ROWS = 1 << 14
"""For so many rows texts are made at a time. Those of a million rows took 300 to 400 MiB."""


class StatementKind(StrEnum):
    """What a statement does with its rows."""

    DELETE = "DELETE"
    UPDATE = "UPDATE"
    INSERT = "INSERT"


@dataclass(frozen=True)
class RowStatement:
    """A statement about these rows: deleted ones by their key, new ones as they come to be. It must affect each of them.

    ``text`` may be several UPDATEs, one for each row, with ``;`` between them.
    """

    kind: StatementKind
    text: bytes
    rows: pa.Table
    finds: str = ""
    """Of an UPDATE of one row: the SELECT that finds it."""

    @property
    def affects(self) -> list[int]:
        """How many rows each statement of the text has to affect."""
        return [1] * self.rows.num_rows if self.kind is StatementKind.UPDATE else [self.rows.num_rows]


@dataclass(frozen=True)
class RowChanges:
    """Row numbers of a block: rows to delete, to update (old row, or the new one if there is none; new row), and to insert."""

    deletes: Numbers
    old: Numbers
    new: Numbers
    inserts: Numbers


def independent_groups(touched: Touched, count: int) -> list[tuple[int, int]]:
    """Cuts so many transactions into ranges in which none depends on another; ``touched`` are their keys."""
    starts = [0]
    for later, earlier in sorted(zip(*(numbers.tolist() for numbers in sharing(touched)), strict=True)):
        if earlier >= starts[-1] and later > starts[-1]:
            starts.append(later)
    return list(zip(starts, [*starts[1:], count], strict=True))


def row_changes(
    transactions: Transactions, keys: ConflictKeys, unique_keys: Sequence[UniqueKey], *, in_order: bool
) -> Iterator[RowChanges]:
    """What these transactions, of which none depends on another, do to rows: mostly all of it at once.

    ``in_order``: a transaction may change a key several times, in the order of its rows. Where that happens, each change comes by
    itself.
    """
    block = transactions.block
    kinds = block.batch.column(KIND).to_numpy(zero_copy_only=False)
    images = _images(block.batch) if (kinds != RowKind.INSERT).any() else _insertions(len(kinds))
    if in_order and _shared(block, images, keys).any():
        for number in range(len(images.new)):
            yield _at_once(images.only(np.array([number])), np.zeros(1, dtype=np.bool_))
        return
    if images.alone.any() and (images.new < 0).any():
        images = _with_known_ends(images, block)
    yield _at_once(images, _handed_on(block, images, keys, unique_keys))


@dataclass(frozen=True)
class _Images:
    """Changes of rows, in the order of a block: the numbers of the old row and of the new one, below zero for none.

    ``alone``: it is an update that came without its old row.
    """

    old: Numbers
    new: Numbers
    alone: npt.NDArray[np.bool_]

    def only(self, numbers: Numbers) -> _Images:
        return _Images(self.old[numbers], self.new[numbers], self.alone[numbers])

    @property
    def any(self) -> Numbers:
        """A row of each change: the new one if there is one."""
        return np.where(self.new < 0, self.old, self.new)


def _insertions(count: int) -> _Images:
    return _Images(np.full(count, -1, dtype=np.int64), np.arange(count), np.zeros(count, dtype=np.bool_))


def _images(rows: pa.RecordBatch) -> _Images:
    """The two images of an update follow each other in the source, though a change of another row may stand between them by now."""
    kinds = rows.column(KIND).to_numpy(zero_copy_only=False)
    commit_ts, seq = rows.column(COMMIT_TS).to_numpy(), rows.column(SEQ).to_numpy()
    after, before = np.flatnonzero(kinds == RowKind.UPDATE_AFTER), np.flatnonzero(kinds == RowKind.UPDATE_BEFORE)
    partner = np.full(len(after), -1, dtype=np.int64)
    if len(before):
        before = before[np.argsort(seq[before], kind="stable")]
        found = before[np.minimum(np.searchsorted(seq[before], seq[after] - 1), len(before) - 1)]
        fits = (seq[found] == seq[after] - 1) & (commit_ts[found] == commit_ts[after])
        partner[fits] = found[fits]
    # An old image whose new one was a repeat is a row that goes.
    gone = np.sort(np.concatenate([np.flatnonzero(kinds == RowKind.DELETE), np.setdiff1d(before, partner)])).astype(np.int64)
    comes = np.flatnonzero(kinds == RowKind.INSERT)
    old = np.concatenate([gone, np.full(len(comes), -1, dtype=np.int64), partner])
    new = np.concatenate([np.full(len(gone), -1, dtype=np.int64), comes, after])
    alone = np.concatenate([np.zeros(len(gone) + len(comes), dtype=np.bool_), partner < 0])
    images = _Images(old, new, alone)
    return images.only(np.argsort(images.any, kind="stable"))


def _at_once(images: _Images, handed_on: npt.NDArray[np.bool_]) -> RowChanges:
    """The changes, of which those that are ``handed_on`` are deletions and insertions."""
    goes, comes = images.new < 0, (images.old < 0) & ~images.alone
    updates = ~goes & ~comes & ~handed_on
    old = np.where(images.alone, images.new, images.old)  # without an old row, the key is that of the new one
    return RowChanges(old[goes | handed_on], old[updates], images.new[updates], images.new[comes | handed_on])


def _with_known_ends(images: _Images, block: ChangeBlock) -> _Images:
    """New rows whose key their transaction deletes are insertions: TiCDC may write an update, and repeat it as two changes."""
    alone, rows = np.flatnonzero(images.alone), block.batch.select([COMMIT_TS, *block.schema.handle_key])
    gone = {tuple(row.values()) for row in rows.take(pa.array(images.old[images.new < 0])).to_pylist()}
    new = rows.take(pa.array(images.new[alone])).to_pylist()
    comes = alone[[tuple(row.values()) in gone for row in new]]
    still = images.alone.copy()
    still[comes] = False
    return replace(images, alone=still)


def _handed_on(block: ChangeBlock, images: _Images, keys: ConflictKeys, unique_keys: Sequence[UniqueKey]) -> npt.NDArray[np.bool_]:
    """Which of the updates give up, or take, a unique value that another one takes or gives up."""
    found = np.zeros(len(images.new), dtype=np.bool_)
    paired = np.flatnonzero((images.old >= 0) & (images.new >= 0))
    if not len(paired) and not images.alone.any():
        return found
    names = {folded_name(part.column) for key in unique_keys for part in key.parts}
    moves = np.zeros(len(paired), dtype=np.bool_)
    for name in block.batch.schema.names[META_COUNT:]:
        # Where keys do not tell what conflicts, any column may be what a unique value is computed from.
        if keys.serialised or folded_name(name) in names:
            moves |= _differ(block.batch.column(name), images.old[paired], images.new[paired])
    moving = paired[moves]
    if keys.serialised:
        moving = np.concatenate([moving, np.flatnonzero(images.alone)])
        found[moving] = len(moving) > 1
    elif len(moving) > 1:
        found[moving] = _shared(block, images.only(moving), keys)
    return found


def _shared(block: ChangeBlock, images: _Images, keys: ConflictKeys) -> npt.NDArray[np.bool_]:
    """Which of the changes touch a unique value that another one touches."""
    both = np.stack([images.old, images.new], axis=1)
    rows = block.batch.take(pa.array(both[both >= 0]))
    each = Transactions.of_lengths(replace(block, batch=rows), (both >= 0).sum(axis=1))
    found = np.zeros(len(images.new), dtype=np.bool_)
    found[np.concatenate(sharing(keys.touched(each)))] = True
    return found


def _differ(values: pa.Array, one: Numbers, other: Numbers) -> npt.NDArray[np.bool_]:
    left, right = values.take(pa.array(one)), values.take(pa.array(other))
    known = pc.fill_null(pc.not_equal(left, right), False)
    return np.asarray(pc.or_(known, pc.not_equal(pc.is_null(left), pc.is_null(right))).to_numpy(zero_copy_only=False))


def statements(
    target: TableSchema, rows: pa.RecordBatch, changes: RowChanges, *, most_bytes: int, most_rows: int, most_updates: int = 1
) -> Iterator[RowStatement]:
    """The statements for changes of a block's rows, in the order in which they run. A row larger than ``most_bytes`` is alone.

    ``most_rows`` bounds the rows of a DELETE or INSERT, ``most_updates`` the UPDATEs of a text.
    """
    table = pa.Table.from_batches([rows])
    carried = frozenset(table.column_names)
    written = [column for column in target.written_columns if column.name in carried]
    key = [target.column(name) for name in target.handle_key]
    for deletes in _pieces(changes.deletes):
        for text, some in deletions(target.table_id, key, _taken(table, deletes, key), most_bytes, most_rows):
            yield RowStatement(StatementKind.DELETE, text, some)
    for old, new in zip(_pieces(changes.old), _pieces(changes.new), strict=True):
        yield from _updates(target, _taken(table, old, key), _taken(table, new, written), most_bytes, most_updates)
    for inserts in _pieces(changes.inserts):
        taken = _taken(table, inserts, written)
        for text, some in insertions(StatementKind.INSERT, target.table_id, written, taken, most_bytes, most_rows):
            yield RowStatement(StatementKind.INSERT, text, some)


def _pieces(numbers: Numbers) -> Iterator[Numbers]:
    for start in range(0, len(numbers), _PIECE_ROWS):
        yield numbers[start : start + _PIECE_ROWS]


def _taken(table: pa.Table, numbers: Numbers, columns: Sequence[Column]) -> pa.Table:
    selected = table.select([column.name for column in columns])
    return selected if np.array_equal(numbers, np.arange(table.num_rows)) else selected.take(pa.array(numbers)).combine_chunks()


def _updates(target: TableSchema, old: pa.Table, new: pa.Table, most_bytes: int, most_updates: int) -> Iterator[RowStatement]:
    """``old`` has the columns of the key, ``new`` those that are written."""
    name = qualified(target.table_id)
    update, where, end, nothing = (pa.scalar(text, pa.large_string()) for text in (f"UPDATE {name} SET ", " WHERE ", ";", ""))
    identity = pc.binary_join_element_wise(*_assigned(target, old, " AND "), nothing)
    texts = pc.binary_join_element_wise(update, *_assigned(target, new, ", "), where, identity, end, nothing)
    for start, count, text in batches(texts, most_updates, most_bytes):
        finds = f"SELECT 1 FROM {name} WHERE {identity[start].as_py()} FOR UPDATE" if count == 1 else ""
        yield RowStatement(StatementKind.UPDATE, text, new.slice(start, count), finds)


def _assigned(target: TableSchema, rows: pa.Table, between: str) -> list[pa.Array | pa.Scalar]:
    """The parts of ``a`` = literal, ``b`` = literal for each row."""
    columns = [target.column(name) for name in rows.column_names]
    parts: list[pa.Array | pa.Scalar] = []
    for number, column in enumerate(columns):
        before = f"{between if number else ''}{quote_name(column.name)} = "
        parts += [pa.scalar(before, pa.large_string()), literals(rows, number, column)]
    return parts
