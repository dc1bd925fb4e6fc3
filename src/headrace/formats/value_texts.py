"""Converts canonical Arrow values (``model.types``) to the text of the wire formats, a column at a time: the reverse of ``values``.

Every conversion raises ``ValueError`` if a value has no text.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.formats.byte_escapes import bytes_of, text_array
from headrace.formats.values import UTC_NAMES

_SECONDS_WIDTH = len("2024-06-05 09:30:23")
_PLAIN_FROM, _PLAIN_BELOW = 1e-4, 1e6
"""Arrow and Go write numbers of this size alike, and without an exponent."""
_PARTS = r"^(?P<sign>-?)(?P<whole>[0-9]+)(?:\.(?P<part>[0-9]+))?(?:e(?P<exponent>[+-]?[0-9]+))?$"
_BASE64 = np.frombuffer(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", np.uint8)
_PADDING = ord("=")


@dataclass(frozen=True)
class Exponents:
    """When numbers are written with an exponent: unless their own decimal exponent is from ``least`` to ``most``."""

    least: int
    most: int
    digits: int
    """The least number of digits of an exponent."""


OF_FORMAT_G = Exponents(-4, 5, 2)
"""Go's format "g" with the shortest precision (``strconv.FormatFloat``)."""
OF_JSON = Exponents(-6, 20, 1)
"""Go's JSON (``encoding/json``)."""


def float_texts(values: pa.Array, exponents: Exponents | None) -> pa.Array:
    """FLOAT or DOUBLE (float32, float64) as the shortest text that gives the value back; never with an exponent for ``None``.

    Raises ValueError for infinity and NaN, which no column holds.
    """
    numbers = values.to_numpy(zero_copy_only=False)
    with np.errstate(invalid="ignore"):
        sizes = np.abs(numbers)
        is_plain = ((sizes >= numbers.dtype.type(_PLAIN_FROM)) & (sizes < numbers.dtype.type(_PLAIN_BELOW))) | (sizes == 0)
    is_valid = values.is_valid().to_numpy(zero_copy_only=False)
    if not np.isfinite(numbers[is_valid]).all():
        raise ValueError("a number is infinite or not a number")
    texts = pc.cast(values, pa.string())
    others = np.flatnonzero(~is_plain & is_valid)
    if not len(others):
        return texts
    parts = _DecimalParts(texts.take(pa.array(others)))
    return pc.replace_with_mask(texts, pa.array(~is_plain & is_valid), parts.written(exponents))


class _DecimalParts:
    """The sign, the digits (without zeros at both ends) and the exponent of numbers other than 0, as Arrow writes them."""

    def __init__(self, texts: pa.Array) -> None:
        found = pc.extract_regex(texts, pattern=_PARTS)
        whole, part = pc.struct_field(found, "whole"), pc.struct_field(found, "part")
        digits = pc.binary_join_element_wise(whole, part, "")
        significant = pc.utf8_ltrim(digits, "0")
        written = pc.struct_field(found, "exponent")
        exponents = pc.cast(pc.if_else(pc.equal(written, ""), "0", pc.utf8_ltrim(written, "+")), pa.int64())
        zeros = pc.subtract(pc.utf8_length(digits), pc.utf8_length(significant))
        self.sign = pc.struct_field(found, "sign")
        self.digits = pc.utf8_rtrim(significant, "0")
        # Of the first digit.
        self.exponents = pc.subtract(pc.subtract(pc.add(pc.utf8_length(whole), exponents), zeros), 1).to_numpy()
        self.lengths = pc.utf8_length(self.digits).to_numpy().astype(np.int64)

    def written(self, exponents: Exponents | None) -> pa.Array:
        """The numbers, those that ``exponents`` says with an exponent."""
        if exponents is None:
            return self._plain()
        has_one = (self.exponents < exponents.least) | (self.exponents > exponents.most)
        if has_one.all():
            return self._scientific(exponents.digits)
        return pc.if_else(pa.array(has_one), self._scientific(exponents.digits), self._plain())

    def _scientific(self, least_digits: int) -> pa.Array:
        """As ``-1.5e+20``."""
        mantissa = self._split(np.ones(len(self.lengths), np.int64))
        size = pa.array(np.abs(self.exponents))
        after = pc.if_else(pa.array(self.exponents < 0), "e-", "e+")
        digits = pc.utf8_lpad(pc.cast(size, pa.string()), least_digits, "0")
        return pc.binary_join_element_wise(self.sign, mantissa, after, digits, "")

    def _plain(self) -> pa.Array:
        """As ``150000000000000000000`` or ``0.000015``."""
        before = pc.binary_repeat("0", pa.array(np.maximum(-1 - self.exponents, 0)))
        behind = pc.binary_repeat("0", pa.array(np.maximum(self.exponents + 1 - self.lengths, 0)))
        small = pc.binary_join_element_wise("0.", before, self.digits, "")
        large = pc.binary_join_element_wise(self._split(self.exponents + 1), behind, "")
        return pc.binary_join_element_wise(self.sign, pc.if_else(pa.array(self.exponents < 0), small, large), "")

    def _split(self, places: npt.NDArray[np.int64]) -> pa.Array:
        """The digits with a point after this many of them, unless none are behind it. Few different places are common."""
        found = self.digits
        for place in np.unique(places[(places > 0) & (places < self.lengths)]).tolist():
            chosen = pa.array((places == place) & (place < self.lengths))
            pointed = pc.binary_join_element_wise(
                pc.utf8_slice_codeunits(self.digits, 0, place), pc.utf8_slice_codeunits(self.digits, place), "."
            )
            found = pc.if_else(chosen, pointed, found)
        return found


def timestamps_in_zone(texts: pa.Array, time_zone: str) -> pa.Array:
    """TIMESTAMP text in UTC as text of a zone. Fraction digits and zero timestamps stay as they are."""
    if time_zone in UTC_NAMES or len(texts) == texts.null_count:
        return texts
    zero = pc.starts_with(texts, "0000-00-00")
    seconds = pc.utf8_slice_codeunits(texts, 0, _SECONDS_WIDTH)
    moments = pc.cast(pc.if_else(zero, pa.scalar(None, pa.string()), seconds), pa.timestamp("s"))
    local = pc.local_timestamp(pc.cast(moments, pa.timestamp("s", time_zone)))
    shifted = pc.binary_join_element_wise(pc.cast(local, pa.string()), pc.utf8_slice_codeunits(texts, _SECONDS_WIDTH), "")
    return pc.if_else(zero, texts, shifted)


def hex_texts(values: pa.Array) -> pa.Array:
    """Bytes as lower-case hexadecimal digits."""
    offsets, data = bytes_of(values)
    digits = np.frombuffer(b"0123456789abcdef", np.uint8)
    written = np.empty((len(data), 2), np.uint8)
    written[:, 0] = digits[data >> 4]
    written[:, 1] = digits[data & 15]
    return text_array(offsets * 2, written.reshape(-1), values)


def base64_texts(values: pa.Array) -> pa.Array:
    """Bytes as standard base64 with padding."""
    offsets, data = bytes_of(values)
    lengths = np.diff(offsets)
    groups = np.zeros(len(offsets), np.int64)
    np.cumsum((lengths + 2) // 3, out=groups[1:])
    missing = -lengths % 3
    ends = groups[1:] * 3
    if missing.any():
        # Each value is filled up with zeros to whole groups of three bytes.
        is_data = np.ones(int(groups[-1]) * 3, bool)
        is_data[ends[missing > 0] - 1] = False
        is_data[ends[missing == 2] - 2] = False
        filled = np.zeros(len(is_data), np.uint8)
        filled[is_data] = data
    else:
        filled = data
    first, second, third = filled[0::3], filled[1::3], filled[2::3]
    written = np.empty((len(first), 4), np.uint8)
    written[:, 0] = _BASE64[first >> 2]
    written[:, 1] = _BASE64[(first & 3) << 4 | second >> 4]
    written[:, 2] = _BASE64[(second & 15) << 2 | third >> 6]
    written[:, 3] = _BASE64[third & 63]
    flat = written.reshape(-1)
    text_ends = groups[1:] * 4
    flat[text_ends[missing > 0] - 1] = _PADDING
    flat[text_ends[missing == 2] - 2] = _PADDING
    return text_array(groups * 4, flat, values)
