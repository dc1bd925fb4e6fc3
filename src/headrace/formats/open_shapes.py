"""The shapes of lines of TiCDC's Open Protocol: the columns of a table's rows differ in their values only."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa

from headrace.formats.alike_lines import LineShape

VALUE = b'"v":'
"""What is before each value. It cannot be in a string, whose quotes are escaped."""
_CELL = re.compile(rb'"([^"\\\x00-\x1f]+)":\{"t":([0-9]{1,9})(?:,"h":true)?(?:,"f":([0-9]{1,9}))?,"v":')
_FIRST, _NEXT, _OLD, _LAST = (b'{"u":{', b'{"d":{'), b"},", b'}},"p":{', b"}}}"


class Cell(NamedTuple):
    """A column in a line of a shape."""

    side: str
    """``u``, ``p`` or ``d``."""
    name: str
    code: int
    """The type code."""
    flags: int


@dataclass(frozen=True)
class OpenShape(LineShape):
    """A shape of lines, see :func:`open_shape`."""

    cells: tuple[Cell, ...]
    """For each value the column that has it."""


def open_shape(line: bytes, types: Mapping[str, pa.DataType]) -> OpenShape:
    """The shape of a line that is as TiCDC writes it: ``u``, ``u`` and ``p``, or ``d``, each with at least one column.

    ``types`` are the Arrow types of values by the names of the columns. Raises ValueError for any other line, for a column that is
    not one of these, and if a side has a column twice.
    """
    separators, cells = zip(*_cells(line), strict=True) if line.count(VALUE) else ((), ())
    if len(cells) != line.count(VALUE) or not line.endswith(_LAST):
        raise ValueError("the line is not written as TiCDC writes it")
    if len({(cell.side, cell.name) for cell in cells}) != len(cells):
        raise ValueError("a column comes twice")
    if not types.keys() >= {cell.name for cell in cells}:
        raise ValueError("a column is not one of the table's")
    return OpenShape((*separators, _LAST), tuple(types[cell.name] for cell in cells), cells)


def _cells(line: bytes) -> Iterator[tuple[bytes, Cell]]:
    """The columns of a line, each with the text before its value. Raises ValueError."""
    side = ""
    for found in _CELL.finditer(line):
        before = line[: found.start()]
        if not side and before in _FIRST:
            around, side = before, before[2:3].decode()
        elif side == "u" and before.endswith(_OLD):
            around, side = _OLD, "p"
        elif side and before.endswith(_NEXT):
            around = _NEXT
        else:
            raise ValueError("the line is not written as TiCDC writes it")
        name, code, flags = found.groups()
        yield around + found[0], Cell(side, name.decode("utf-8"), int(code), int(flags or 0))
