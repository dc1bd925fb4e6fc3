"""What a position remembers of final drains, and of files that came after one, or after files with larger numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Drain:
    """A final drain: what lies above ``published``, up to ``end`` (TSO), was taken though ``metadata`` had not promised it.

    ``schema_files`` is how many schema files of these versions were there then, to notice what came later.
    """

    published: int
    end: int
    schema_files: int
    aim: int = 0
    """Up to where (TSO) the drain goes that this is a part of; 0 when it goes no further."""

    @classmethod
    def of(cls, numbers: Sequence[int]) -> Drain:
        """The drain of :attr:`numbers`."""
        return cls(*numbers)

    @property
    def numbers(self) -> list[int]:
        """It as a position holds it."""
        return [self.published, self.end, self.schema_files, *([self.aim] if self.aim else [])]


@dataclass(frozen=True, slots=True)
class Late:
    """A file that came late and was not read to its end yet: rows of it at or below the table's checkpoint are missing then."""

    is_behind: bool
    """One with a larger number was applied before (``StoragePosition.is_behind``)."""
    drain: Drain | None = None
    """The final drain that it came after."""

    @classmethod
    def of(cls, numbers: Sequence[int]) -> Late:
        """The file of :attr:`numbers`."""
        return cls(bool(numbers[0]), Drain.of(numbers[1:]) if numbers[1:] else None)

    @property
    def numbers(self) -> list[int]:
        """It as a position holds it."""
        return [int(self.is_behind), *(self.drain.numbers if self.drain is not None else [])]
