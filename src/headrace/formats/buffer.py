"""Bytes of many messages, for readers that take each of their steps for all messages at once, with numpy."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Positions = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
Numbers = npt.NDArray[np.uint64]

_PADDING = 16
"""The bytes behind the buffer's end that loads may touch."""
_MOST_LENGTH = 1 << 31
_TOP_BITS = np.uint64(0x8080_8080_8080_8080)
_LOW_BITS = np.uint64(0x7F7F_7F7F_7F7F_7F7F)
# 1 << 8k times this number has k + 1 as its highest byte.
_LENGTH_OF = np.uint64(0x0102_0304_0506_0708)
_JOIN = tuple(
    (np.uint64(high), np.uint64(shift), np.uint64(low))
    for high, shift, low in (
        (0x7F00_7F00_7F00_7F00, 1, 0x007F_007F_007F_007F),
        (0x3FFF_0000_3FFF_0000, 2, 0x0000_3FFF_0000_3FFF),
        (0x0FFF_FFFF_0000_0000, 4, 0x0000_0000_0FFF_FFFF),
    )
)
_ONE, _SEVEN, _EIGHT_BYTES, _EIGHT_GROUPS, _SIGN = (np.uint64(number) for number in (1, 7, 56, 56, 63))


class Buffer:
    """Bytes, for loads at many positions at once. Positions may be anywhere from 0 to the number of bytes."""

    def __init__(self, parts: Iterable[bytes | memoryview]) -> None:
        """The parts, one after the other."""
        self.data = b"".join((*parts, bytes(_PADDING)))
        self.size = len(self.data) - _PADDING
        self.bytes = np.frombuffer(self.data, np.uint8)
        self._arrow = pa.py_buffer(self.data)
        # Each position's next eight bytes as a number.
        self.words: Numbers = np.ndarray(self.size + _PADDING - 7, "<u8", self.data, strides=(1,))

    def varints(self, at: Positions) -> tuple[Numbers, Positions, Mask]:
        """The number at each position, the position after it, and whether it is a sound one of at most 64 bits."""
        short = self.bytes[at]
        if not len(at) or short.max() < 0x80:
            return short.astype(np.uint64), at + 1, np.ones(len(at), bool)
        words = self.words[at]
        ends = ~words & _TOP_BITS
        lowest = ends & (~ends + _ONE)
        values = _joined(words & (lowest - _ONE) & _LOW_BITS)
        lengths = ((lowest >> _SEVEN) * _LENGTH_OF >> _EIGHT_BYTES).astype(np.int64)
        sound = np.ones(len(at), bool)
        longer = np.flatnonzero(lowest == 0)
        if len(longer):
            ninth, tenth = (self.bytes[at[longer] + place].astype(np.uint64) for place in (8, 9))
            values[longer] |= (ninth & np.uint64(0x7F)) << _EIGHT_GROUPS
            has_ten = ninth >> _SEVEN != 0
            values[longer] |= np.where(has_ten, tenth << _SIGN, np.uint64(0))
            lengths[longer] = 9 + has_ten
            sound[longer] = ~has_ten | (tenth <= _ONE)
        return values, at + lengths, sound

    def lengths(self, at: Positions) -> tuple[Positions, Positions, Mask | None]:
        """The length at each position, the position after it, and whether it is sound (``None`` if all are)."""
        low = self.bytes[at]
        is_long = low >= 0x80
        if not is_long.any():
            return low.astype(np.int64), at + 1, None
        high = self.bytes[at + 1]
        if not (is_long & (high >= 0x80)).any():
            return np.where(is_long, low & 0x7F | high.astype(np.int64) << 7, low), at + 1 + is_long, None
        values, after, sound = self.varints(at)
        sound &= values < _MOST_LENGTH
        return np.where(sound, values, 0).astype(np.int64), after, sound

    def slices(self, start: Positions, stop: Positions, order: Positions, null: Mask | None = None) -> pa.Array:
        """The bytes from each start to its stop as binary values, in the given order of their numbers; null where that says so.

        The slices follow each other and do not overlap.
        """
        # An array of the slices and of what lies between them needs no copy; the slices are then taken out of it.
        is_wide = self.size > _MOST_LENGTH - 1
        offsets = np.empty(2 * len(start) + 1, np.int64 if is_wide else np.int32)
        offsets[0], offsets[1::2], offsets[2::2] = 0, start, stop
        buffers = [None, pa.py_buffer(offsets), self._arrow]
        everything = pa.Array.from_buffers(pa.large_binary() if is_wide else pa.binary(), 2 * len(start), buffers)
        found = everything.take(pa.array(2 * order + 1, mask=None if null is None else null[order]))
        return found.cast(pa.binary()) if is_wide else found

    def equals(self, at: Positions, expected: bytes) -> Mask:
        """Whether these bytes are at each position. Not at a position that is too close to the end."""
        same = at + len(expected) <= self.size
        at = np.where(same, at, 0)
        whole = len(expected) // 8 * 8
        for place in range(0, whole, 8):
            same &= self.words[at + place] == np.uint64(int.from_bytes(expected[place : place + 8], "little"))
        for place in range(whole, len(expected)):
            same &= self.bytes[at + place] == expected[place]
        return same


def _joined(groups: Numbers) -> Numbers:
    """The groups of seven bits in each byte as one number."""
    for high, shift, low in _JOIN:
        groups = ((groups & high) >> shift) | (groups & low)
    return groups
