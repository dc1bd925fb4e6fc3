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

from headrace.model.block import COMMIT_TS, KIND, SEQ
from headrace.model.events import RowKind
from headrace.model.table import Column, TableSchema, folded_name
from headrace.replay.conflict_keys import ConflictKeys, UniqueKey
from headrace.replay.slots import OWNER_BITS, Touched
from headrace.replay.transactions import Transactions
from headrace.sinks.mysql.text import batches, is_ascii, literals, quote_name, row_conditions, row_literals
from headrace.sinks.mysql.types import qualified

Numbers = npt.NDArray[np.int64]
_DELETE_ROWS = 900  # as in ``writer``
_DELETE_CONDITIONS = 100


class StatementKind(StrEnum):
    """What a statement does with its rows."""

    DELETE = "DELETE"
    UPDATE = "UPDATE"
    INSERT = "INSERT"


@dataclass(frozen=True)
class RowStatement:
    """A statement about these rows: deleted ones by their key, new ones as they come to be. It must affect each of them."""

    kind: StatementKind
    text: bytes
    rows: pa.Table
    finds: str = ""
    """Of an UPDATE: the SELECT that finds its row."""


@dataclass(frozen=True)
class RowChanges:
    """Row numbers of a block: rows to delete, to update (old row, or the new one if there is none; new row), and to insert."""

    deletes: Numbers
    old: Numbers
    new: Numbers
    inserts: Numbers


def independent_groups(touched: Touched, count: int) -> list[tuple[int, int]]:
    """Cuts so many transactions into ranges in which none depends on another; ``touched`` are their keys."""
    keys, owners = touched >> np.uint64(OWNER_BITS), (touched & np.uint64((1 << OWNER_BITS) - 1)).astype(np.int64)
    shared = np.flatnonzero(keys[1:] == keys[:-1])
    starts = [0]
    for later, earlier in sorted(zip(owners[shared + 1].tolist(), owners[shared].tolist(), strict=True)):
        if earlier >= starts[-1] and later > starts[-1]:
            starts.append(later)
    return list(zip(starts, [*starts[1:], count], strict=True))


def row_changes(transactions: Transactions, keys: ConflictKeys, unique_keys: Sequence[UniqueKey]) -> RowChanges:
    """What these transactions, of which none depends on another, do to rows."""
    rows = transactions.block.batch
    kinds = rows.column(KIND).to_numpy(zero_copy_only=False)
    commit_ts, seq = rows.column(COMMIT_TS).to_numpy(), rows.column(SEQ).to_numpy()
    pairs = (kinds[:-1] == RowKind.UPDATE_BEFORE) & (kinds[1:] == RowKind.UPDATE_AFTER)
    pairs &= (commit_ts[:-1] == commit_ts[1:]) & (np.diff(seq) == 1)
    old = np.flatnonzero(pairs)
    is_paired = np.zeros(len(kinds), dtype=np.bool_)
    is_paired[old] = is_paired[old + 1] = True
    # An old image whose new one was a repeat is a row that goes.
    deletes = np.flatnonzero(((kinds == RowKind.DELETE) | (kinds == RowKind.UPDATE_BEFORE)) & ~is_paired)
    inserts = np.flatnonzero(kinds == RowKind.INSERT)
    alone = np.flatnonzero((kinds == RowKind.UPDATE_AFTER) & ~is_paired)
    if len(alone) and len(deletes):
        comes = _is_deleted(rows, alone, deletes, transactions.block.schema.handle_key)
        inserts, alone = np.sort(np.concatenate([inserts, alone[comes]])), alone[~comes]
    handed_on = _handed_on(transactions, old, keys, unique_keys)
    deletes = np.concatenate([deletes, old[handed_on]])
    inserts = np.concatenate([inserts, old[handed_on] + 1])
    old = old[~handed_on]
    return RowChanges(deletes, np.concatenate([old, alone]), np.concatenate([old + 1, alone]), inserts)


def _is_deleted(rows: pa.RecordBatch, alone: Numbers, deletes: Numbers, key: Sequence[str]) -> npt.NDArray[np.bool_]:
    """Which of the new rows have a key that their transaction deletes: TiCDC may write an update, and repeat it as two changes."""
    names = [COMMIT_TS, *key]
    gone = {tuple(row.values()) for row in rows.select(names).take(pa.array(deletes)).to_pylist()}
    return np.array([tuple(row.values()) in gone for row in rows.select(names).take(pa.array(alone)).to_pylist()], dtype=np.bool_)


def _handed_on(
    transactions: Transactions, old: Numbers, keys: ConflictKeys, unique_keys: Sequence[UniqueKey]
) -> npt.NDArray[np.bool_]:
    """Which of the updates give up, or take, a unique value that another one takes or gives up."""
    found = np.zeros(len(old), dtype=np.bool_)
    if len(old) < 2:
        return found
    block = transactions.block
    names = {folded_name(part.column) for key in unique_keys for part in key.parts if part.column}
    moves = np.zeros(len(old), dtype=np.bool_)
    for name in block.batch.schema.names:
        if folded_name(name) in names:
            moves |= _differ(block.batch.column(name), old, old + 1)
    moving = np.flatnonzero(moves)
    if len(moving) < 2:
        return found
    images = np.stack([old[moving], old[moving] + 1], axis=1).reshape(-1)
    each = Transactions(replace(block, batch=block.batch.take(pa.array(images))), np.arange(0, len(images) + 1, 2))
    touched = keys.touched(each)
    values, owners = touched >> np.uint64(OWNER_BITS), (touched & np.uint64((1 << OWNER_BITS) - 1)).astype(np.int64)
    shared = np.flatnonzero(values[1:] == values[:-1])
    found[moving[np.unique(np.concatenate([owners[shared], owners[shared + 1]]))]] = True
    return found


def _differ(values: pa.Array, one: Numbers, other: Numbers) -> npt.NDArray[np.bool_]:
    left, right = values.take(pa.array(one)), values.take(pa.array(other))
    known = pc.fill_null(pc.not_equal(left, right), False)
    return np.asarray(pc.or_(known, pc.not_equal(pc.is_null(left), pc.is_null(right))).to_numpy(zero_copy_only=False))


def statements(
    target: TableSchema, rows: pa.RecordBatch, changes: RowChanges, *, most_bytes: int, most_rows: int
) -> Iterator[RowStatement]:
    """The statements for changes of a block's rows, in the order in which they run. A row larger than ``most_bytes`` is alone."""
    table = pa.Table.from_batches([rows])
    carried = frozenset(table.column_names)
    written = [column for column in target.written_columns if column.name in carried]
    key = [target.column(name) for name in target.handle_key]
    yield from _deletes(target, _taken(table, changes.deletes, key), key, most_bytes, most_rows)
    yield from _updates(target, _taken(table, changes.old, key), _taken(table, changes.new, written), key, written)
    yield from _inserts(target, _taken(table, changes.inserts, written), written, most_bytes, most_rows)


def _taken(table: pa.Table, numbers: Numbers, columns: Sequence[Column]) -> pa.Table:
    return table.select([column.name for column in columns]).take(pa.array(numbers)).combine_chunks()


def _deletes(target: TableSchema, rows: pa.Table, key: Sequence[Column], most_bytes: int, most_rows: int) -> Iterator[RowStatement]:
    if len(key) > 1 and not is_ascii(rows):
        head, texts, tail, most = " WHERE FALSE", row_conditions(rows, key), b"", _DELETE_CONDITIONS
    else:
        names = ", ".join(quote_name(column.name) for column in key)
        head, texts, tail, most = f" WHERE ({names}) IN (", row_literals(rows, key), b")", _DELETE_ROWS
    head = f"DELETE FROM {qualified(target.table_id)}{head}"
    for start, count, text in batches(texts, min(most, most_rows), most_bytes):
        yield RowStatement(StatementKind.DELETE, head.encode() + text + tail, rows.slice(start, count))


def _updates(
    target: TableSchema, old: pa.Table, new: pa.Table, key: Sequence[Column], written: Sequence[Column]
) -> Iterator[RowStatement]:
    if not new.num_rows:
        return
    nothing = pa.scalar("", pa.large_string())
    identity = pc.binary_join_element_wise(*_assigned(old, key, " AND "), nothing)
    values = pc.binary_join_element_wise(*_assigned(new, written, ", "), nothing)
    name = qualified(target.table_id)
    for number, (where, assignments) in enumerate(zip(identity.to_pylist(), values.to_pylist(), strict=True)):
        text = f"UPDATE {name} SET {assignments} WHERE {where}".encode()
        yield RowStatement(StatementKind.UPDATE, text, new.slice(number, 1), f"SELECT 1 FROM {name} WHERE {where} FOR UPDATE")


def _assigned(rows: pa.Table, columns: Sequence[Column], between: str) -> list[pa.Array | pa.Scalar]:
    """The parts of ``a`` = literal, ``b`` = literal for each row."""
    parts: list[pa.Array | pa.Scalar] = []
    for number, column in enumerate(columns):
        before = f"{between if number else ''}{quote_name(column.name)} = "
        parts += [pa.scalar(before, pa.large_string()), literals(rows, number, column)]
    return parts


def _inserts(
    target: TableSchema, rows: pa.Table, columns: Sequence[Column], most_bytes: int, most_rows: int
) -> Iterator[RowStatement]:
    names = ", ".join(quote_name(column.name) for column in columns)
    head = f"INSERT INTO {qualified(target.table_id)} ({names}) VALUES ".encode()
    for start, count, text in batches(row_literals(rows, columns), most_rows, most_bytes):
        yield RowStatement(StatementKind.INSERT, head + text, rows.slice(start, count))
