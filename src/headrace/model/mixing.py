"""Numbers for rows by the values of some columns, to find those that may be equal without comparing all of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

_MIX, _HALF = np.uint64(0x9E3779B97F4A7C15), np.uint64(32)
"""To mix the values of several columns into one number: 2^64 divided by the golden ratio, and half of the bits."""


def mixed(columns: Sequence[pa.Array]) -> npt.NDArray[np.uint64]:
    """A number for each row, equal for rows with equal values. Rows with other values rarely have the same one."""
    number = np.zeros(len(columns[0]), np.uint64)
    for column in columns:
        number = (number ^ (number >> _HALF)) * _MIX + _codes(column)
    return number


def _codes(values: pa.Array) -> npt.NDArray[np.uint64]:
    """A number for each value, equal for equal values."""
    if not (pa.types.is_integer(values.type) and not values.null_count):
        values = pc.dictionary_encode(values, null_encoding="encode").indices
    return np.asarray(values.to_numpy(zero_copy_only=False)).astype(np.uint64)
