"""Times that a format counts from 1970 as whole numbers, to MySQL's own text. Columns of Arrow; each value is converted by itself.

Every conversion raises ValueError if a value is not possible, or has more digits than its column.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_SECONDS_WIDTH = len("2024-06-05 09:30:23")
_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896
"""0001-01-01 and 9999-12-31, in days since 1970."""
_DAY = 86_400
_LONGEST_TIME = 839 * 3600 * 1_000_000
"""TIME is less than that, in microseconds, in either direction."""
_DIGITS = {"ms": 3, "us": 6}


def dates(days: pa.Array) -> pa.Array:
    """Days since 1970 (int64) to text of DATE."""
    _check_within(days, _FIRST_DAY, _LAST_DAY)
    return pc.cast(pc.cast(pc.cast(days, pa.int32()), pa.date32()), pa.string())


def datetimes(counts: pa.Array, unit: str, digits: int) -> pa.Array:
    """Milliseconds (``ms``) or microseconds (``us``) since 1970 (int64) to text of DATETIME with so many digits of a second."""
    width = _DIGITS[unit]
    per_second = 10**width
    _check_within(counts, _FIRST_DAY * _DAY * per_second, (_LAST_DAY + 1) * _DAY * per_second - 1)
    _check_divisible(counts, 10 ** (width - digits))
    texts = pc.cast(pc.cast(counts, pa.timestamp(unit)), pa.string())
    return pc.utf8_slice_codeunits(texts, 0, _SECONDS_WIDTH + (digits + 1 if digits else 0))


def times(microseconds: pa.Array, digits: int) -> pa.Array:
    """Microseconds (int64), which may be negative, to text of TIME with so many digits of a second."""
    _check_within(microseconds, 1 - _LONGEST_TIME, _LONGEST_TIME - 1)
    _check_divisible(microseconds, 10 ** (6 - digits))
    counts = pc.fill_null(microseconds, 0).to_numpy()
    seconds, fraction = np.divmod(np.abs(counts), 1_000_000)
    hours, minutes = seconds // 3600, seconds // 60 % 60
    parts = [_padded(hours, 2), ":", _padded(minutes, 2), ":", _padded(seconds % 60, 2)]
    if digits:
        parts += [".", _padded(fraction // 10 ** (6 - digits), digits)]
    sign = pc.if_else(pa.array(counts < 0), "-", "")
    texts = pc.binary_join_element_wise(sign, *parts, "")
    return pc.if_else(pc.is_valid(microseconds), texts, pa.scalar(None, pa.string()))


def moments(texts: pa.Array, digits: int) -> pa.Array:
    """ISO text in UTC (``2024-06-05T09:30:23.5Z``) to text of TIMESTAMP in UTC; it must have so many digits of a second."""
    pattern = r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d" + (rf"\.\d{{{digits}}}" if digits else "") + "Z$"
    if pc.all(pc.match_substring_regex(texts, pattern)).as_py() is False:
        raise ValueError("a text is not a time in UTC")
    plain = pc.utf8_replace_slice(pc.utf8_slice_codeunits(texts, 0, -1), 10, 11, " ")
    pc.cast(pc.utf8_slice_codeunits(plain, 0, _SECONDS_WIDTH), pa.timestamp("s"))  # raises for the 30th of February
    return plain


def _padded(numbers: np.ndarray[tuple[int], np.dtype[np.int64]], width: int) -> pa.Array:
    return pc.utf8_lpad(pc.cast(pa.array(numbers), pa.string()), width, "0")


def _check_within(numbers: pa.Array, least: int, most: int) -> None:
    found = pc.min_max(numbers)
    if found["min"].is_valid and not (least <= found["min"].as_py() and found["max"].as_py() <= most):
        raise ValueError("a time is not possible")


def _check_divisible(numbers: pa.Array, by: int) -> None:
    if by > 1 and (pc.fill_null(numbers, 0).to_numpy() % by).any():
        raise ValueError("a time has more digits of a second than its column")
