"""Keeps the two rows of an update together, as encoders need them: the old row, and directly behind it the new one."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.model.block import COMMIT_TS, KIND, combined
from headrace.model.events import RowKind


class WholeUpdates:
    """The pieces of a table on their way to an encoder. A piece may end between the two rows of an update."""

    def __init__(self) -> None:
        self._waiting: pa.RecordBatch | None = None

    def taken(self, piece: pa.Table) -> pa.RecordBatch:
        """The rows up to the end of this piece, without a last old row, which waits for the next piece.

        ``piece`` has the layout of ``model.block``. An update whose rows are apart becomes a deletion and an insertion.
        """
        batches = [*([self._waiting] if self._waiting is not None else []), *piece.to_batches()]
        rows, self._waiting = combined(batches), None
        if rows.num_rows and rows.column(KIND)[-1].as_py() == RowKind.UPDATE_BEFORE:
            rows, self._waiting = rows.slice(0, rows.num_rows - 1), rows.slice(rows.num_rows - 1)
        return _without_torn(rows)

    def rest(self) -> pa.RecordBatch | None:
        """The old row that still waits, as a deletion; ``None`` if there is none."""
        rows, self._waiting = self._waiting, None
        return None if rows is None else _without_torn(rows)


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
    return rows.set_column(0, KIND, pa.array(_changed(kinds, torn, alone), pa.int8()))


def _changed(kinds: npt.NDArray[np.int8], gone: npt.NDArray[np.bool_], come: npt.NDArray[np.bool_]) -> npt.NDArray[np.int8]:
    changed = kinds.copy()
    changed[gone], changed[come] = RowKind.DELETE, RowKind.INSERT
    return changed
