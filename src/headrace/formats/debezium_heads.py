"""Reads what many messages of rows of TiCDC's Debezium protocol are about, by comparing what is around their rows.

Format: see :mod:`headrace.formats.debezium_messages`, which reads messages one by one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise
from typing import Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.formats.alike import RowHeads, cut, pieces, whole_text
from headrace.formats.debezium_messages import ROW, SCHEMA, sound_tail

_MOST_SHAPES = 32
"""The most shapes of messages that are compared with all others."""
_MOST_SAMPLES = 256
"""The most messages that are looked at for a shape. The others may be of statements and watermarks."""
_NUMBER = re.compile(rb'(?<="ts_ms":)[0-9]+|(?<=_ts":)[0-9]+')
"""The numbers before a row: ``ts_ms``, ``commit_ts`` and ``start_ts``."""
_TS_DIGITS = 18
"""Of a commit ts between 1985 and 2090."""
_LEAST_TS = 10 ** (_TS_DIGITS - 1)
_DIGITS = np.frombuffer(b"09", np.uint8)

Bytes = npt.NDArray[np.uint8]
Places = npt.NDArray[np.int64]


@dataclass(frozen=True)
class _Shape:
    """What messages of rows have in common that differ in their rows and in the digits of three numbers only."""

    texts: tuple[tuple[int, bytes], ...]
    """What is around the numbers before the row, each with its place."""
    numbers: tuple[tuple[int, int], ...]
    """The places where numbers begin and end."""
    commit_ts: int
    """Which of them is the commit ts."""
    tail: bytes
    """What is behind the members of the row."""
    line: bytes
    """What a line begins with, before the members of the row."""
    names: tuple[str, str]
    """Database and table."""

    @classmethod
    def of_message(cls, value: bytes, schemas: dict[bytes, bytes]) -> Self | None:
        """The shape of a message; ``None`` if it is not that of a row as TiCDC writes it."""
        row = ROW.match(value)
        if row is None:
            return None
        tail, beginning = sound_tail(value, row.end(), schemas)
        line = beginning + row[4] + b'",'
        try:
            names = row[1].decode(), row[2].decode()
        except UnicodeDecodeError:
            return None
        if not tail or len(line) > row.end() or len(row[3]) != _TS_DIGITS:
            return None
        numbers = [found.span() for found in _NUMBER.finditer(value, 0, row.end())]
        around = pairwise([0, *(place for span in numbers for place in span), row.end()])
        texts = [(begin, value[begin:end]) for number, (begin, end) in enumerate(around) if not number % 2]
        return cls(tuple(texts), tuple(numbers), numbers.index(row.span(3)), tail, line, names)

    @property
    def begin(self) -> int:
        """Where the members of the row begin."""
        place, text = self.texts[-1]
        return place + len(text)

    def among(self, text: Bytes, begins: Places, ends: Places) -> tuple[Places, Places]:
        """Which messages in a text have the shape, by their numbers, and the commit ts (TSO) of these. They all have the tail."""
        kept = np.flatnonzero(ends - begins >= self.begin + len(self.tail))
        for place, expected in self.texts:
            kept = kept[pieces(text, len(expected))[begins[kept] + place] == expected]
        for begin, end in self.numbers:
            digits = _piece_bytes(text, begins[kept] + begin, end - begin)
            kept = kept[((digits >= _DIGITS[0]) & (digits <= _DIGITS[1])).all(axis=1)]
        digits = _piece_bytes(text, begins[kept] + self.numbers[self.commit_ts][0], _TS_DIGITS) - _DIGITS[0]
        commit_ts = digits.astype(np.int64) @ (10 ** np.arange(_TS_DIGITS - 1, -1, -1, dtype=np.int64))
        is_ts = commit_ts >= _LEAST_TS
        return kept[is_ts], commit_ts[is_ts]


def read_row_heads(values: pa.Array, schemas: dict[bytes, bytes]) -> RowHeads:
    """What messages (binary) of rows are about that TiCDC has written, with their lines, and which messages are no such ones.

    Only what is around a row is looked at. The row itself may turn out to be damaged when its line is decoded. For ``schemas`` and
    lines see ``headrace.formats.debezium_messages.read_about``.
    """
    whole, begins, ends = whole_text(values)
    text = whole.copy()  # the beginnings of lines are written into it
    shape_of, commit_ts = np.full(len(values), -1, np.int64), np.zeros(len(values), np.int64)
    line_begins, line_ends = begins.copy(), begins.copy()
    is_open, shapes = np.ones(len(values), bool), list[_Shape]()
    for _ in range(_MOST_SAMPLES):
        sample = int(is_open.argmax()) if len(is_open) else 0
        if not len(is_open) or not is_open[sample] or len(shapes) == _MOST_SHAPES:
            break
        is_open[sample] = False
        shape = _Shape.of_message(values[sample].as_py(), schemas)
        if shape is None:
            continue
        may_fit = (shape_of < 0) & pc.ends_with(values, shape.tail).to_numpy(zero_copy_only=False)
        candidates = np.flatnonzero(may_fit)
        own, found = shape.among(text, begins[candidates], ends[candidates])
        own = candidates[own]
        is_open[own], shape_of[own], commit_ts[own] = False, len(shapes), found
        line_begins[own] = begins[own] + shape.begin - len(shape.line)
        line_ends[own] = ends[own] - len(shape.tail) + 1  # the tail begins as the line ends
        pieces(text, len(shape.line))[line_begins[own]] = shape.line
        shapes.append(shape)
    names = [*(shape.names for shape in shapes), ("", "")]  # the last ones are of no shape
    places = pa.array(np.where(shape_of < 0, len(shapes), shape_of))
    databases, tables = (pa.array([name[part] for name in names], pa.string()).take(places) for part in (0, 1))
    lines = cut(text, line_begins, line_ends)
    return RowHeads((shape_of >= 0) & ~_have_schema(lines), databases, tables, commit_ts, lines)


def _piece_bytes(text: Bytes, places: Places, length: int) -> Bytes:
    """The bytes of pieces of a text, a row for each."""
    return pieces(text, length)[places].view(np.uint8).reshape(len(places), length)


def _have_schema(lines: pa.BinaryArray) -> npt.NDArray[np.bool_]:
    """Which lines are cut behind the first ``schema`` of their message. It cannot be in a string, whose quotes are escaped."""
    text, _, ends = whole_text(lines)
    together, found = text.tobytes(), np.zeros(len(ends), bool)
    if SCHEMA in together:
        places = [schema.start() for schema in re.finditer(re.escape(SCHEMA), together)]
        found[np.searchsorted(ends, places, "right")] = True
    return found
