"""Where the texts of an array are in Avro's binary encoding.

Format: Apache Avro specification 1.12, "Binary Encoding". Vectors for each text of a long array would take a hundred times as long.
"""

from __future__ import annotations

from array import array

MOST_TEXTS = 1_000_000
"""The most texts in all arrays of texts of a value; those of an array in another one count twice.

An ENUM has at most 65,535 members.
"""
_MOST_BITS = 63


def text_places(data: bytes, at: int, end: int, most: int) -> tuple[array[int], int]:
    """Where each text of the array at a position begins, with its length in front, and the position behind the array.

    Nothing of it is at ``end`` or behind that. Raises ValueError, the end of a sentence, for more than ``most`` texts, too.
    """
    found = array("q")
    while True:
        count, at = _number(data, at, end)
        if not count:
            return found, at
        if count < 0:
            _, at = _number(data, at, end)  # the bytes of the block
        count = abs(count)
        if count > end - at:
            raise ValueError("it has more items than bytes")
        if count > most - len(found):
            raise ValueError(f"it has arrays of more than {MOST_TEXTS:,} texts together")
        for _ in range(count):
            found.append(at)
            length, at = _number(data, at, end)
            if not 0 <= length <= end - at:
                raise ValueError("it ends in the middle of a value")
            at += length


def _number(data: bytes, at: int, end: int) -> tuple[int, int]:
    """A zigzag number, and the position behind it. Raises ValueError."""
    number = shift = 0
    while at < end and shift <= _MOST_BITS:
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 1 << 7:
            break
        shift += 7
    else:
        raise ValueError("a number has more than 64 bits" if shift > _MOST_BITS else "it ends in the middle of a value")
    if number >> 64:
        raise ValueError("a number has more than 64 bits")
    return (number >> 1) ^ -(number & 1), at
