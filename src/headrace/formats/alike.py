"""Finds messages that are alike byte by byte, many at a time: what was found out about one of them is true of all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

_MOST_SEARCHES = 32
"""The most beginnings that are searched in all values; each search costs some 10 ns for each value."""


@dataclass(frozen=True)
class RowHeads:
    """What messages of rows are about, in their order."""

    is_regular: npt.NDArray[np.bool_]
    """Whether a message is of a row, as TiCDC writes them. What follows is known only of these."""
    databases: pa.StringArray
    tables: pa.StringArray
    commit_ts: npt.NDArray[np.int64]
    """TSO."""
    lines: pa.BinaryArray | None = None
    """What a record keeps of each message; ``None`` if that is the message."""


def by_beginning(values: pa.Array, behind: bytes, longest: int) -> tuple[npt.NDArray[np.int64], list[bytes]]:
    """For each value (binary), the number of its beginning, and the beginnings.

    A value's beginning is what is before the first ``behind`` in its first ``longest`` bytes. The number is -1 if there is none.
    """
    numbers = np.full(len(values), -1, np.int64)
    is_open = np.ones(len(values), bool)
    beginnings: list[bytes] = []
    for _ in range(_MOST_SEARCHES):
        first = int(is_open.argmax()) if len(is_open) else 0
        if not len(is_open) or not is_open[first]:
            return numbers, beginnings
        value = values[first].as_py()
        is_open[first] = False
        at = value.find(behind, 0, longest)
        if at >= 0:
            is_alike = pc.starts_with(values, value[:at] + behind).to_numpy(zero_copy_only=False) & (is_open | (numbers < 0))
            numbers[first] = len(beginnings)
            numbers[is_alike] = len(beginnings)
            is_open &= ~is_alike
            beginnings.append(value[:at])
    known = {beginning: number for number, beginning in enumerate(beginnings)}
    for number in np.flatnonzero(is_open).tolist():
        value = values[number].as_py()
        at = value.find(behind, 0, longest)
        if at >= 0:
            numbers[number] = known.setdefault(value[:at], len(known))
            if len(known) > len(beginnings):
                beginnings.append(value[:at])
    return numbers, beginnings


def begin_with(values: pa.Array, *parts: bytes | int) -> npt.NDArray[np.bool_]:
    """Which of the values (binary) begin with these parts: texts, and numbers of bytes between them, of any content."""
    found = np.ones(len(values), bool)
    at = 0
    for part in parts:
        if isinstance(part, int):
            at += part
            continue
        is_there = pc.starts_with(values, part) if at == 0 else pc.equal(pc.binary_slice(values, at, at + len(part)), part)
        found &= is_there.to_numpy(zero_copy_only=False)
        at += len(part)
    return found


def names_of(
    numbers: npt.NDArray[np.int64], names: Sequence[tuple[str, str] | None]
) -> tuple[npt.NDArray[np.bool_], pa.StringArray, pa.StringArray]:
    """Which values have a database and a table by the numbers of their beginnings (:func:`by_beginning`), and both names."""
    known = [*names, None]  # the last one is that of the number -1
    places = pa.array(np.where(numbers < 0, len(names), numbers))
    databases, tables = (pa.array([name and name[place] for name in known], pa.string()).take(places) for place in (0, 1))
    return np.array([name is not None for name in known])[numbers], databases, tables


def whole_text(values: pa.Array) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """All values (binary, none of them null) as one text, and where each begins and ends in it."""
    offsets = np.frombuffer(values.buffers()[1], np.int32, len(values) + 1, values.offset * 4).astype(np.int64)
    content = values.buffers()[2] or b""
    text = np.frombuffer(content, np.uint8)[offsets[0] : offsets[-1]]
    offsets -= offsets[0]
    return text, offsets[:-1], offsets[1:]


def pieces(text: npt.NDArray[np.uint8], length: int) -> npt.NDArray[np.bytes_]:
    """The pieces of a text of one length, from each of its places on. They share its memory."""
    return np.ndarray((max(len(text) - length + 1, 0),), f"S{length}", text, strides=(1,))


def cut(text: npt.NDArray[np.uint8], begins: npt.NDArray[np.int64], ends: npt.NDArray[np.int64]) -> pa.BinaryArray:
    """Parts of a text of less than 2 GiB, which do not overlap and come in their order."""
    offsets = np.stack([begins, ends], axis=1).ravel().astype(np.int32)
    if not len(offsets):
        return pa.array([], pa.binary())
    parts = pa.Array.from_buffers(pa.binary(), len(offsets) - 1, [None, pa.py_buffer(offsets), pa.py_buffer(text)])
    return parts.take(pa.array(np.arange(0, len(offsets), 2)))


def numbers_in(values: pa.Array, start: int, stop: int) -> npt.NDArray[np.int64]:
    """The numbers in the decimal digits at a place of values (binary), which may be counted from the end; 0 where there is none."""
    texts = pc.binary_slice(values, start, stop)
    try:
        as_text = pc.cast(texts, pa.string())
        if pc.all(pc.ascii_is_decimal(as_text)).as_py():  # Arrow takes 0x1F for a number
            found: npt.NDArray[np.int64] = pc.cast(as_text, pa.int64()).to_numpy()
            return found
    except pa.ArrowInvalid:  # one of them is no text
        pass
    return np.array([int(text) if text.isdigit() else 0 for text in texts.to_pylist()], np.int64)
