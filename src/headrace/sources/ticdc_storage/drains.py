"""What a position stores about final drains, and about files that came after one, or after files with larger numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headrace.sources.ticdc_storage.json_values import numbers_in, whole_in


@dataclass(frozen=True, slots=True)
class Drain:
    """A final drain: data above ``published``, up to ``end`` (TSO), were applied though ``metadata`` had not promised them.

    ``schema_files`` is the number of schema files with these versions at that time, to notice later ones.
    """

    published: int
    end: int
    schema_files: int
    aim: int = 0
    """The ts (TSO) up to which the drain goes that this is a part of; 0 if it goes no further."""

    @classmethod
    def of(cls, numbers: Sequence[int]) -> Drain:
        """The drain with these :attr:`numbers`."""
        return cls(*numbers)

    @property
    def numbers(self) -> list[int]:
        """The form stored in a position."""
        return [self.published, self.end, self.schema_files, *([self.aim] if self.aim else [])]


@dataclass(frozen=True, slots=True)
class Late:
    """A file that came late and was not read to its end yet: its rows at or below the table's checkpoint are missing then."""

    is_behind: bool
    """A file with a larger number was applied before (``StoragePosition.is_behind``)."""
    drain: Drain | None = None
    """The final drain after which it came."""

    @classmethod
    def of(cls, numbers: Sequence[int]) -> Late:
        """The file with these :attr:`numbers`."""
        return cls(bool(numbers[0]), Drain.of(numbers[1:]) if numbers[1:] else None)

    @property
    def numbers(self) -> list[int]:
        """The form stored in a position."""
        return [int(self.is_behind), *(self.drain.numbers if self.drain is not None else [])]


def drain_in(value: object) -> Drain:
    """The drain in a position's JSON."""
    return Drain.of([whole_in(number) for number in numbers_in(value, 3, 4)])
