"""Replaces single bytes in a column of texts by escapes, all of them in one pass over the bytes of the column."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa

_MOST_SMALL = (1 << 31) - 1
_IS_LARGE = {pa.string(): False, pa.binary(): False, pa.large_string(): True, pa.large_binary(): True}

ByteArray = npt.NDArray[np.uint8]


class ByteEscapes:
    """What stands for each of some bytes. An escape has at least one byte."""

    def __init__(self, escapes: Mapping[int, bytes]) -> None:
        self._escapes = dict(escapes)

    @cached_property
    def _extra(self) -> npt.NDArray[np.int64]:
        """By byte, how much longer its escape is."""
        extra = np.zeros(256, np.int64)
        for byte, escape in self._escapes.items():
            extra[byte] = len(escape) - 1
        return extra

    @cached_property
    def _table(self) -> ByteArray:
        """By byte, its escape, filled up with zeros."""
        table = np.zeros((256, max(map(len, self._escapes.values()))), np.uint8)
        for byte, escape in self._escapes.items():
            table[byte, : len(escape)] = np.frombuffer(escape, np.uint8)
        return table

    def applied(self, texts: pa.Array) -> pa.Array:
        """The strings (or bytes, which must become UTF-8) with escapes, as string or large_string; nulls stay nulls.

        Without a byte to escape this is the array itself, without a copy. Else it is one copy of its bytes.
        """
        large = _IS_LARGE[texts.type]
        wanted = pa.large_string() if large else pa.string()
        if not self._escapes or len(texts) == texts.null_count:
            return texts.cast(wanted)
        offsets, data = bytes_of(texts)
        places = self._places(data)
        if not len(places):
            return texts.cast(wanted)
        found = data[places]
        extra = self._extra[found]
        sums = np.zeros(len(places) + 1, np.int64)
        np.cumsum(extra, out=sums[1:])
        written = np.empty(len(data) + int(sums[-1]), np.uint8)
        starts = places + sums[:-1]
        is_copied = np.ones(len(written), bool)
        lengths = extra + 1
        for length in np.unique(lengths).tolist():
            of_length = starts[lengths == length]
            for more in range(1, length):
                is_copied[of_length + more] = False
        written[is_copied] = data
        for length in np.unique(lengths).tolist():
            is_of_length = lengths == length
            escapes = self._table[found[is_of_length]]
            for place in range(length):
                written[starts[is_of_length] + place] = escapes[:, place]
        moved = offsets + sums[np.searchsorted(places, offsets)]
        return text_array(moved, written, texts)

    def _places(self, data: ByteArray) -> npt.NDArray[np.int64]:
        """Where bytes to escape are. Comparing with a few ranges is much faster than a look into a table for each byte."""
        chosen = np.zeros(len(data), bool)
        for first, last in self._ranges:
            chosen |= data == first if first == last else data - np.uint8(first) <= last - first
        return np.flatnonzero(chosen)

    @cached_property
    def _ranges(self) -> list[tuple[int, int]]:
        """The first and last byte of each run of bytes that have escapes."""
        has = [byte in self._escapes for byte in range(257)]
        firsts = [byte for byte in range(256) if has[byte] and (byte == 0 or not has[byte - 1])]
        return [(first, has.index(False, first) - 1) for first in firsts]


def bytes_of(values: pa.Array) -> tuple[npt.NDArray[np.int64], ByteArray]:
    """The offsets, from 0, and the bytes of an array of strings or bytes, those of nulls included."""
    _, offsets, data = values.buffers()
    kind = np.int64 if _IS_LARGE[values.type] else np.int32
    width = np.dtype(kind).itemsize
    bounds = np.frombuffer(offsets, kind, len(values) + 1, values.offset * width).astype(np.int64)
    if data is None:
        return bounds - bounds[0], np.zeros(0, np.uint8)
    return bounds - bounds[0], np.frombuffer(data, np.uint8)[bounds[0] : bounds[-1]]


def text_array(offsets: npt.NDArray[np.int64], data: ByteArray, like: pa.Array) -> pa.Array:
    """Strings with these offsets and bytes, null where ``like`` is; large_string if they do not fit, or if ``like`` is large."""
    large = _IS_LARGE.get(like.type, False) or int(offsets[-1]) > _MOST_SMALL
    buffers = [validity_of(like), pa.py_buffer(offsets if large else offsets.astype(np.int32)), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.large_string() if large else pa.string(), len(like), buffers, like.null_count)


def validity_of(values: pa.Array) -> pa.Buffer | None:
    """The bitmap of valid values for an array of the same length with offset 0; ``None`` without nulls."""
    if not values.null_count:
        return None
    return pa.py_buffer(np.packbits(values.is_valid().to_numpy(zero_copy_only=False), bitorder="little"))
