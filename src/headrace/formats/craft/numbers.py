"""Reads the numbers of Craft messages: varints of at most 64 bits, and lists of them."""

from __future__ import annotations

from collections.abc import Sequence

_64_BITS = (1 << 64) - 1
_MOST_BITS = 63
_OF_ONE_BYTE = [(byte >> 1) ^ -(byte & 1) for byte in range(0x80)]
MOST_EVENTS = 1_000_000
"""TiCDC puts at most ``max-batch-size`` events into a message, 16 by default."""


class CraftError(ValueError):
    """Bytes are not those of the protocol; ``str()`` is the end of a sentence."""


class Cursor:
    """A place in bytes, which moves behind what is read. Every method raises CraftError for bytes that are not there."""

    def __init__(self, data: bytes, at: int = 0, end: int | None = None) -> None:
        self.data, self.at, self.end = data, at, len(data) if end is None else end

    def uvarint(self) -> int:
        """A number from 0 to 2^64 - 1."""
        data, at, end = self.data, self.at, self.end
        number = shift = 0
        while at < end:
            byte = data[at]
            at += 1
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                if number > _64_BITS:
                    break
                self.at = at
                return number
            shift += 7
            if shift > _MOST_BITS:
                break
        raise CraftError(f"the number at byte {self.at} does not end, or has more than 64 bits.")

    def varint(self) -> int:
        """A number that may be negative."""
        number = self.uvarint()
        return (number >> 1) ^ -(number & 1)

    def uvarints(self, count: int) -> list[int]:
        return [self.uvarint() for _ in range(self._possible(count))]

    def varints(self, count: int) -> list[int]:
        few = self.data[self.at : self.at + self._possible(count)]
        if count and max(few) < 0x80:  # each has one byte
            self.at += count
            return [_OF_ONE_BYTE[byte] for byte in few]
        return [self.varint() for _ in range(count)]

    def sums(self, count: int) -> list[int]:
        """Numbers of which the first is written, and of the others the difference to the one before."""
        found, last = [], 0
        for difference in self.varints(count):
            last += difference
            found.append(last)
        return found

    def unsigned_sums(self, count: int) -> list[int]:
        """The same with differences of 64 bits without a sign: a smaller number follows by an overflow."""
        found, last = [], 0
        for difference in self.uvarints(count):
            last = (last + difference) & _64_BITS
            found.append(last)
        return found

    def take(self, length: int) -> bytes:
        if not 0 <= length <= self.end - self.at:
            raise CraftError(f"the {length} bytes at byte {self.at} are not there.")
        self.at += length
        return self.data[self.at - length : self.at]

    def texts(self, lengths: Sequence[int]) -> list[bytes | None]:
        """Bytes behind one another; a length of -1 stands for NULL."""
        return [None if length == -1 else self.take(length) for length in lengths]

    def _possible(self, count: int) -> int:
        if not 0 <= count <= self.end - self.at:
            raise CraftError(f"{count} numbers at byte {self.at} are not there.")
        return count


def number_at_end(data: bytes) -> tuple[int, int]:
    """The number whose bytes are in the reverse order at the end, and where they begin. Raises CraftError."""
    number = shift = 0
    for at in range(len(data) - 1, max(-1, len(data) - 11), -1):
        number |= (data[at] & 0x7F) << shift
        if data[at] < 0x80:
            return number, at
        shift += 7
    raise CraftError("the size of its tables at its end cannot be read.")
