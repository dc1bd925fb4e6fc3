"""The places of a binlog as numbers that increase as it was written: they stand for commit ts where a source has none.

A place is a file, the position of an event in it, and of events with several rows the number of the row. Files are numbered
(MySQL documentation, "The Binary Log"), and an event has at least 19 bytes (its header), so a sixteenth of its position tells it
from all others of its file.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from headrace.formats.json_lines import Members, integer_of, text_of

_FILE = re.compile(r".*\.([0-9]{1,10})")
_ROW_BITS, _POSITION_BITS, _POSITION_STEP = 11, 28, 4
_MOST_FILES = 800_000
"""A greater number would be a commit ts in the future, which counts as an error of a clock."""
_STATEMENTS = 16
"""How many numbers of an event are kept for statements, before those of its rows."""
MOST_ROWS = (1 << _ROW_BITS) - _STATEMENTS - 1
"""How many rows of an event have numbers of their own. Those behind them share one, and their order is not known."""


_MOST_POSITION = (1 << _POSITION_BITS + _POSITION_STEP) - 1
_LONGEST_POSITION = 10


class NoPlaceError(Exception):
    """A source tells no place in a binlog; ``str()`` is the end of a sentence."""


@dataclass(frozen=True, order=True)
class BinlogPlace:
    """Where in a binlog an event was read."""

    file: int
    """The number in the file's name."""
    position: int
    """In bytes."""
    row: int = 0

    @classmethod
    def of(cls, source: Members) -> BinlogPlace:
        """The place in ``source`` of a message of Debezium. Raises NoPlaceError."""
        position, row = integer_of(source.get("pos"), 1, _MOST_POSITION), integer_of(source.get("row"), 0, (1 << 31) - 1)
        file = text_of(source, "file")
        if file is None or _FILE.fullmatch(file) is None or position is None or row is None:
            raise NoPlaceError("source.file, source.pos and source.row are no place in a binlog.")
        return cls(_number(file), position, row)

    @classmethod
    def of_text(cls, text: str, row: int) -> BinlogPlace:
        """The place that a text such as ``binlog.000001:86607`` names. Raises NoPlaceError."""
        file, _, digits = text.rpartition(":")
        position = int(digits) if digits.isascii() and digits.isdigit() and len(digits) <= _LONGEST_POSITION else 0
        if _FILE.fullmatch(file) is None or not 0 < position <= _MOST_POSITION:
            raise NoPlaceError(f"{text[:80]!r} is no place in a binlog.")
        return cls(_number(file), position, row)

    def of_row(self) -> int:
        """The number of a row (used as a TSO)."""
        return self._event | _STATEMENTS + min(self.row, MOST_ROWS)

    def of_statement(self, step: int = 0) -> int:
        """The number of a statement (used as a TSO), less than those of rows at its place. ``step`` orders several."""
        return self._event | step

    @property
    def _event(self) -> int:
        return (self.file << _POSITION_BITS | self.position >> _POSITION_STEP) << _ROW_BITS


def end_of_event(clock: int) -> int:
    """The last number that rows and statements have at the place of this one."""
    return clock | (1 << _ROW_BITS) - 1


def _number(file: str) -> int:
    number = int(file.rpartition(".")[2])
    if number > _MOST_FILES:
        raise NoPlaceError(f"the number of the binlog file {file[:80]} is greater than {_MOST_FILES}.")
    return number
