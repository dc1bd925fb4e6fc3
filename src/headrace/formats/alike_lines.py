"""Reads lines of JSON that differ in their values only: what is around the values is compared once, not parsed in each line."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.formats.alike import pieces
from headrace.formats.base import MOST_RECORD_BYTES
from headrace.formats.json_lines import read_block

_MOST_SHAPES = 16
"""The most different shapes of lines that are looked for. Each is compared with all lines that have its number of values."""
_NEWLINE = 0x0A


@dataclass(frozen=True)
class LineShape:
    """What is around the values of a line: one text before each value, and one behind the last.

    With any JSON scalars between them these texts must be a line.
    """

    separators: tuple[bytes, ...]
    """Each must have room for ``,"N":``, where N is its number."""
    types: tuple[pa.DataType, ...]
    """Of each value."""


_Shape = TypeVar("_Shape", bound=LineShape)


@dataclass(frozen=True)
class ShapedLines(Generic[_Shape]):
    """The lines of one shape."""

    shape: _Shape
    numbers: npt.NDArray[np.int64]
    """Of the lines, in their order."""
    values: Sequence[pa.Array]
    """One array for each value of the shape, with one value for each line."""


def read_shaped(lines: Sequence[bytes], mark: bytes, shape_of: Callable[[bytes], _Shape]) -> list[ShapedLines[_Shape]]:
    """The values of lines by their shapes. Each line is in one of the parts.

    ``mark`` ends the text before every value and cannot be in a value. ``shape_of`` gives the shape of a line, or raises
    ValueError.

    Raises ValueError if that raises it, if there are too many shapes, or if anything between the texts of a shape is not exactly
    one scalar of its type. For this the texts are replaced, so that each line is an object whose members are the values by their
    numbers. Arrow's reader refuses unknown members, repeated ones and anything that is not a scalar, and takes several objects in a
    line as several rows. So a value that is not one scalar changes what it reads.
    """
    together = b"\n".join([*lines, b""])
    if not lines or len(together) > MOST_RECORD_BYTES:
        raise ValueError("there are no lines, or too many")
    text = np.frombuffer(together, np.uint8).copy()
    ends = np.cumsum(np.fromiter(map(len, lines), np.int64, len(lines)) + 1) - 1
    if np.count_nonzero(text == _NEWLINE) != len(lines) or b"\r" in together:
        raise ValueError("a line has line breaks")
    begins = np.concatenate([[0], ends[:-1] + 1])
    starts = _behind(mark, text)
    first = np.searchsorted(starts, begins)
    counts = np.diff(first, append=len(starts))
    is_open, shapes = np.ones(len(lines), bool), list[tuple[_Shape, npt.NDArray[np.int64]]]()
    while is_open.any():
        if len(shapes) == _MOST_SHAPES:
            raise ValueError("there are too many shapes")
        sample = int(is_open.argmax())
        shape = shape_of(lines[sample])
        candidates = np.flatnonzero(is_open & (counts == len(shape.types)))
        places = starts[first[candidates][:, None] + np.arange(len(shape.types))]
        numbers = _replaced(text, shape, candidates, begins[candidates], places, ends[candidates])
        if sample not in numbers[:1]:
            raise ValueError("a line has another shape than it seems")
        is_open[numbers] = False
        shapes.append((shape, numbers))
    return [ShapedLines(shape, numbers, _values(text, shape, numbers, begins, ends)) for shape, numbers in shapes]


def _behind(mark: bytes, text: npt.NDArray[np.uint8]) -> npt.NDArray[np.int64]:
    """Where something begins behind a mark."""
    rarest = int(np.argmin([np.count_nonzero(text[:4096] == byte) for byte in mark]))
    found = np.flatnonzero(text[rarest : len(text) - len(mark) + rarest + 1] == mark[rarest])
    for place, byte in enumerate(mark):
        found = found[text[found + place] == byte]
    return found + len(mark)


def _replaced(
    text: npt.NDArray[np.uint8],
    shape: LineShape,
    candidates: npt.NDArray[np.int64],
    begins: npt.NDArray[np.int64],
    places: npt.NDArray[np.int64],
    ends: npt.NDArray[np.int64],
) -> npt.NDArray[np.int64]:
    """Which of the candidates (numbers of lines) have the shape. What is around their values is replaced in the text.

    Lines begin and end at ``begins`` and ``ends``, and their values, a row for each line, begin at ``places``.
    """
    *before, behind = shape.separators
    stops = [*places.T, ends]  # of separators
    lengths = np.array([len(separator) for separator in shape.separators])
    is_alike = places[:, 0] - begins == lengths[0]
    for number in range(1, len(stops)):
        is_alike &= stops[number] - stops[number - 1] > lengths[number]
    kept = np.flatnonzero(is_alike)
    for separator, stop in zip(shape.separators, stops, strict=True):
        kept = kept[pieces(text, len(separator))[stop[kept] - len(separator)] == separator]
    for number, (separator, stop) in enumerate(zip(before, stops, strict=False)):
        named = b'%s"%d":' % (b"," if number else b"{", number)
        pieces(text, len(separator))[stop[kept] - len(separator)] = named.ljust(len(separator))
    pieces(text, len(behind))[ends[kept] - len(behind)] = b"}".ljust(len(behind))
    return candidates[kept]


def _values(
    text: npt.NDArray[np.uint8],
    shape: LineShape,
    numbers: npt.NDArray[np.int64],
    begins: npt.NDArray[np.int64],
    ends: npt.NDArray[np.int64],
) -> list[pa.Array]:
    """The values of lines whose shape was replaced. Raises ValueError."""
    own = text
    if len(numbers) < len(ends):
        is_own = np.zeros(len(ends), bool)
        is_own[numbers] = True
        own = text[np.repeat(is_own, ends - begins + 1)]
    fields = pa.schema([(str(number), of) for number, of in enumerate(shape.types)])
    table = read_block(own.tobytes(), fields, unexpected="error")
    if table.num_rows != len(numbers):
        raise ValueError("a line has several objects")
    return [column.combine_chunks() for column in table.columns]
