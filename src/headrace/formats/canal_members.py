"""Checks that Arrow read every column of the new rows in a block of canal-JSON messages.

Arrow's reader gives NULL for a missing column, as for one whose value is null. Only the text shows the difference.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.formats.canal_rows import CanalReader
from headrace.model.table import folded_name

# The quotes of these are not escaped, so no string can hold them.
_DATA = b'"data":'
_OLD_BEHIND_DATA = b'}],"old"'
"""An old row that is null, where old releases of TiCDC write it."""
_SEARCHED = 1 << 18
"""The bytes that are searched at a time. Their masks stay in the processor's cache."""


def require_columns_of_rows(block: bytes, mark: bytes, messages: pa.RecordBatch, reader: CanalReader) -> None:
    """Raises ValueError if a row of ``messages``, which Arrow read from the lines of a block, lacks a column that it must have.

    The new row of an insert or update must have all, a deletion those of the handle key if the schema has one: a schema file does
    not list all keys. ``messages`` have one row each, see ``CanalReader.build``.
    """
    columns = messages.column("data").flatten().flatten()
    if not any(column.null_count for column in columns):
        return
    is_deletion = pc.equal(messages.column("type"), "DELETE").to_numpy(False)
    keys = set(map(folded_name, reader.schema.handle_key))
    nulls = np.zeros(messages.num_rows, np.int64)
    for carried, column in zip(reader.carried, columns, strict=True):
        if column.null_count:
            is_null = column.is_null().to_numpy(False)
            if folded_name(carried.column.name) in keys and (is_null & is_deletion).any():
                raise ValueError("a deletion lacks its key")
            nulls += is_null
    if not nulls[~is_deletion].any():
        return
    others = [column.name for column in reader.schema.columns if folded_name(column.name) in reader.passed_over]
    if any(name.startswith(":n") for name in [*others, *(carried.key for carried in reader.carried)]):
        raise ValueError("the name of a column looks like a null")
    written = _nulls_written(block, mark, others)
    if len(written) != len(nulls) or (written != nulls)[~is_deletion].any():
        raise ValueError("a column is missing, or it cannot be seen that none is")


def _nulls_written(block: bytes, mark: bytes, others: Iterable[str]) -> npt.NDArray[np.int64]:
    """How many columns are null in the text of the new row of each line, without ``others``. Raises ValueError.

    A null in a string does not count: the quote before it is escaped, or begins the string. Nor does one whose name ends so.
    """
    text = np.frombuffer(block, np.uint8)
    places = _places(text, mark)
    byte = text[places]
    lines = np.cumsum(byte == mark[0])
    is_row = byte == ord("[")
    is_row[is_row] = _is_before(_DATA, places[is_row], text)
    rows = places[is_row]
    if not np.array_equal(lines[is_row], np.arange(lines[-1])):
        raise ValueError("there are blank lines, or another writer's spaces")
    is_null = byte == ord(":")
    nulls, lines = places[is_null], lines[is_null]
    is_column = (nulls > rows[lines]) & _is_before(b'"', nulls, text)
    for other in (b'\\"', b':"', _OLD_BEHIND_DATA, *(f'"{name}"'.encode() for name in others)):
        is_column &= ~_is_before(other, nulls, text)
    return np.bincount(lines[is_column], minlength=len(rows))


def _places(text: npt.NDArray[np.uint8], mark: bytes) -> npt.NDArray[np.int64]:
    """Where lines end, where lists of objects begin, and where a colon is before what may be null. The text ends with ``mark``."""
    found = []
    for start in range(0, len(text), _SEARCHED):
        part, behind = text[start : start + _SEARCHED], text[start + 1 : start + _SEARCHED + 1]
        is_end = part == mark[0]
        first = part[: len(behind)]
        is_end[: len(behind)] |= ((first == ord("[")) & (behind == ord("{"))) | ((first == ord(":")) & (behind == ord("n")))
        found.append(np.flatnonzero(is_end) + start)
    return np.concatenate(found)


def _is_before(what: bytes, places: npt.NDArray[np.int64], text: npt.NDArray[np.uint8]) -> npt.NDArray[np.bool_]:
    """At which of the places in a text ``what`` is right before."""
    chosen = np.flatnonzero(places >= len(what))
    for distance, byte in enumerate(reversed(what), 1):
        chosen = chosen[text[places[chosen] - distance] == byte]
    found = np.zeros(len(places), bool)
    found[chosen] = True
    return found
