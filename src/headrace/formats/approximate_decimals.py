"""DECIMAL values that a format writes as 64-bit floating-point numbers, to MySQL's own text.

A number with up to 15 significant digits is the only decimal of its scale that the float can mean. With more digits several may be
meant, and the written one is only the nearest.
"""

from __future__ import annotations

from decimal import ROUND_HALF_EVEN, Decimal, localcontext

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.model.types import ColumnType

EXACT_DIGITS = 15
_DEFAULT_PRECISION = 10
_ROOM = 100
"""Digits for sums that are not rounded: a DECIMAL has at most 65."""


def uncertain(numbers: pa.Array, column_type: ColumnType) -> npt.NDArray[np.bool_]:
    """Which numbers (float64) may mean several values of the type."""
    counts = np.abs(pc.fill_null(numbers, 0.0).to_numpy()) * 10.0 ** (column_type.scale or 0)
    return np.asarray(~(counts < 10.0**EXACT_DIGITS))


def decimals(numbers: pa.Array, column_type: ColumnType) -> pa.Array:
    """Numbers (float64) to text with the digits of the type's scale.

    One that may mean several values becomes the nearest that the type can hold. Raises ValueError for a number that is not finite.
    """
    values, scale = pc.fill_null(numbers, 0.0).to_numpy(), column_type.scale or 0
    if not np.isfinite(values).all():
        raise ValueError("a number is not finite")
    unclear = uncertain(numbers, column_type)
    counts = np.rint(np.where(unclear, 0.0, values) * 10.0**scale).astype(np.int64)
    digits = pc.utf8_lpad(pc.cast(pa.array(np.abs(counts)), pa.string()), scale + 1, "0")
    sign = pc.if_else(pa.array(counts < 0), "-", "")
    parts = [digits] if not scale else [pc.utf8_slice_codeunits(digits, 0, -scale), ".", pc.utf8_slice_codeunits(digits, -scale)]
    texts = pc.binary_join_element_wise(sign, *parts, "")
    if unclear.any():
        nearest = pa.array([_nearest(value, column_type) for value in values[unclear].tolist()], pa.string())
        texts = pc.replace_with_mask(texts, pa.array(unclear), nearest)
    return pc.if_else(pc.is_valid(numbers), texts, pa.scalar(None, pa.string()))


def _nearest(number: float, column_type: ColumnType) -> str:
    scale = column_type.scale or 0
    with localcontext() as context:
        context.prec, context.rounding = _ROOM + len(repr(number)) + 310, ROUND_HALF_EVEN
        step = Decimal(1).scaleb(-scale)
        greatest = Decimal(10) ** ((column_type.length or _DEFAULT_PRECISION) - scale) - step
        found = max(-greatest, min(greatest, Decimal(repr(number)).quantize(step)))
    return f"{found:f}"
