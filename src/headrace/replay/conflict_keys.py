"""What two transactions must both touch to depend on each other: the values of unique keys, as a database compares them.

Two rows conflict in a unique key if the target would hold their values for equal. So values are folded as in netting
(``model.key_forms``): case, accents, padding and insignificant zeros do not count. Forms and hashes are computed by column. If two
different values get the same hash, two transactions run in order that need not, and nothing else happens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.model.key_forms import folded, hashes, is_text
from headrace.model.table import Column, Generated, TableId, TableSchema, folded_name
from headrace.model.types import ColumnType, TypeKind
from headrace.replay.slots import Touched, touched
from headrace.replay.transactions import Transactions

_Hashes = npt.NDArray[np.uint64]
_MIX = np.uint64(0x9E3779B97F4A7C15)
_TEMPORAL = frozenset({TypeKind.DATE, TypeKind.TIME, TypeKind.DATETIME, TypeKind.TIMESTAMP})
_ZEROS_OF_FRACTION = r"\.0*$|(\.[0-9]*[1-9])0+$"


@dataclass(frozen=True)
class KeyPart:
    """A column of a unique key. An empty ``column`` stands for an expression.

    ``prefix``: only so many characters of the column count, or bytes of a binary one (0: all). ``weighs_supplementary``: see
    ``model.collation.fold_text``.
    """

    column: str
    prefix: int = 0
    weighs_supplementary: bool = False


@dataclass(frozen=True)
class UniqueKey:
    """A primary or unique key of the target's table."""

    parts: tuple[KeyPart, ...]


def unique_keys_of(schema: TableSchema) -> tuple[UniqueKey, ...]:
    """The primary and unique keys that a shape knows: those over whole columns. A target may have more, over prefixes."""
    keys = (schema.handle_key, *(key.columns for key in schema.unique_keys))
    return tuple(UniqueKey(tuple(map(KeyPart, columns))) for columns in keys if columns)


class ConflictKeys:
    """The keys of a table in one shape, by which its transactions conflict. Immutable, so any thread may use it.

    ``keys`` are all primary and unique keys of the target's table; the handle key of the shape, by which a writer finds rows,
    always counts too. ``old_images``: rows come with their old values wherever an update or a delete has some. If the table is
    ``serialised``, all its transactions run in order, and that is why, as a clause about the table.
    """

    def __init__(self, schema: TableSchema, keys: Sequence[UniqueKey], *, old_images: bool) -> None:
        handle = [UniqueKey(tuple(map(KeyPart, schema.handle_key)))] if schema.handle_key else []
        distinct = {tuple((folded_name(part.column), part.prefix) for part in key.parts): key for key in (*handle, *keys)}
        self._table_id = schema.table_id
        self._keys = tuple(distinct.values())
        self.serialised = _why_serialised(schema, self._keys, old_images=old_images)
        self._columns = {} if self.serialised else _columns(schema, self._keys)

    def touched(self, transactions: Transactions) -> Touched:
        """What each transaction touches: the keys of all its rows, old images and new ones."""
        table = _seed(self._table_id)
        if self.serialised:
            owners = np.arange(len(transactions), dtype=np.uint64)
            return touched(np.full(len(transactions), table, dtype=np.uint64), owners)
        owner_of_row = np.repeat(np.arange(len(transactions), dtype=np.uint64), np.diff(transactions.starts))
        found, owners_found = [], []
        for number, key in enumerate(self._keys):
            of_rows, known = self._hashes_of(key, transactions.block.batch, table + np.uint64(number + 1))
            # A unique key with a NULL in it holds no two rows for equal.
            found.append(of_rows if known is None else of_rows[known])
            owners_found.append(owner_of_row if known is None else owner_of_row[known])
        return touched(np.concatenate(found), np.concatenate(owners_found))

    def _hashes_of(self, key: UniqueKey, rows: pa.RecordBatch, seed: np.uint64) -> tuple[_Hashes, npt.NDArray[np.bool_] | None]:
        """The hash of the key in each row, and in which rows it has no NULL (``None``: in all)."""
        mixed = np.full(rows.num_rows, seed, dtype=np.uint64)
        known: npt.NDArray[np.bool_] | None = None
        for part in key.parts:
            column = self._columns[folded_name(part.column)]
            values = rows.column(column.name)
            if values.null_count:
                valid = values.is_valid().to_numpy(zero_copy_only=False)
                known = valid if known is None else known & valid
            mixed = (mixed ^ hashes(_form(values, column.type, part))) * _MIX
            mixed ^= mixed >> np.uint64(32)
        return mixed * _MIX, known


def _why_serialised(schema: TableSchema, keys: Sequence[UniqueKey], *, old_images: bool) -> str:
    carried = schema.row_columns_by_name
    for key in keys:
        for part in key.parts:
            if not part.column:
                return "a unique key covers an expression"
            if folded_name(part.column) in carried:
                continue
            if schema.has_column(part.column) and schema.column(part.column).generated is Generated.VIRTUAL:
                return f"a unique key covers the virtual generated column {part.column}"
            return f"a unique key covers {part.column}, which rows do not carry"
    # Rows without a value in any key would conflict with nothing, although two changes of one row must not change places.
    if not any(all(_never_null(carried[folded_name(part.column)]) for part in key.parts) for key in keys):
        return "it has no primary key, and no unique key whose columns are all NOT NULL"
    if len(keys) > 1 and not old_images:
        return "it has more than one unique key and rows come without old values, so what an update or delete frees is unknown"
    return ""


def _never_null(column: Column) -> bool:
    return column.primary_key or not column.nullable


def _columns(schema: TableSchema, keys: Sequence[UniqueKey]) -> dict[str, Column]:
    names = {folded_name(part.column) for key in keys for part in key.parts}
    return {name: schema.row_columns_by_name[name] for name in names}


def _seed(table_id: TableId) -> np.uint64:
    name = table_id.folded.key.encode("utf-8", "surrogatepass")
    return np.uint64(int.from_bytes(blake2b(name, digest_size=8).digest(), "little"))


def _form(values: pa.Array, of: ColumnType, part: KeyPart) -> pa.Array:
    """The values in forms that are equal wherever the target may hold the parts of the key for equal."""
    if of.kind is TypeKind.DECIMAL:
        # Without its sign: servers differ in whether they write -0. Two numbers that differ only in it conflict for nothing.
        return pc.replace_substring_regex(pc.utf8_ltrim(values, characters="-"), _ZEROS_OF_FRACTION, r"\1")
    if of.kind in _TEMPORAL:
        return pc.replace_substring_regex(values, _ZEROS_OF_FRACTION, r"\1")
    if is_text(values.type):
        cut = pc.utf8_slice_codeunits(values, 0, part.prefix) if part.prefix else values
        return folded(cut, weighs_supplementary=part.weighs_supplementary)
    if pa.types.is_binary(values.type) or pa.types.is_large_binary(values.type):
        cut = pc.binary_slice(values, 0, part.prefix) if part.prefix else values
        return _without_padding(cut) if of.kind is TypeKind.BINARY else cut
    return folded(values)


def _without_padding(values: pa.Array) -> pa.Array:
    """The values without zero bytes at their ends, with which servers fill a BINARY column up, and which some sources leave out."""
    if not pc.any(pc.ends_with(values, b"\0")).as_py():
        return values
    return pa.array([None if value is None else value.rstrip(b"\0") for value in values.to_pylist()], values.type)
