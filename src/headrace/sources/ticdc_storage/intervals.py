"""Sets of file numbers as closed intervals: pure values and their text format."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping

Intervals = tuple[tuple[int, int], ...]
"""Closed, disjoint, ascending intervals that do not touch."""


def _lower_end(interval: tuple[int, int]) -> int:
    return interval[0]


def add_number(intervals: Intervals, number: int) -> Intervals:
    """The intervals with one more number."""
    at = bisect_right(intervals, number, key=_lower_end)
    low = high = number
    start = end = at
    if at > 0 and intervals[at - 1][1] >= number - 1:
        start = at - 1
        low = intervals[start][0]
        high = max(number, intervals[start][1])
    if at < len(intervals) and intervals[at][0] <= high + 1:
        end = at + 1
        high = max(high, intervals[at][1])
    return (*intervals[:start], (low, high), *intervals[end:])


def add_numbers(intervals: Intervals, numbers: Iterable[int]) -> Intervals:
    """The intervals with many more numbers, in one pass."""
    return united(intervals, ((number, number) for number in numbers))


def united(intervals: Intervals, more: Iterable[tuple[int, int]]) -> Intervals:
    """All numbers of both. The cost depends on the number of intervals, not on their length."""
    found: list[tuple[int, int]] = []
    for low, high in sorted((*intervals, *more)):
        if found and low <= found[-1][1] + 1:
            found[-1] = (found[-1][0], max(found[-1][1], high))
        else:
            found.append((low, high))
    return tuple(found)


def remove_number(intervals: Intervals, number: int) -> Intervals:
    """The intervals without a number."""
    at = bisect_right(intervals, number, key=_lower_end) - 1
    if at < 0 or intervals[at][1] < number:
        return intervals
    low, high = intervals[at]
    left = ((low, number - 1),) if low < number else ()
    right = ((number + 1, high),) if number < high else ()
    return (*intervals[:at], *left, *right, *intervals[at + 1 :])


def contains(intervals: Intervals, number: int) -> bool:
    """Whether the number is in one of the intervals."""
    at = bisect_right(intervals, number, key=_lower_end)
    return at > 0 and intervals[at - 1][1] >= number


def count_of(intervals: Intervals) -> int:
    """The number of numbers in them."""
    return sum(high - low + 1 for low, high in intervals)


def numbers_of(intervals: Intervals) -> Iterator[int]:
    """The numbers, in ascending order."""
    for low, high in intervals:
        yield from range(low, high + 1)


def missing_numbers(intervals: Intervals) -> Intervals:
    """The gaps below the largest number, counted from 1."""
    gaps = []
    expected = 1
    for low, high in intervals:
        if low > expected:
            gaps.append((expected, low - 1))
        expected = high + 1
    return tuple(gaps)


def format_intervals(intervals: Intervals, separator: str = ",") -> str:
    """``1-5,7``."""
    return separator.join(f"{low}-{high}" if low != high else str(low) for low, high in intervals)


def parse_intervals(text: str, separator: str = ",") -> Intervals:
    """The inverse of :func:`format_intervals`. Raises ``ValueError``."""
    intervals = []
    for part in text.split(separator) if text else []:
        low, _, high = part.partition("-")
        intervals.append((int(low), int(high or low)))
    return tuple(intervals)


def holds(all_numbers: Mapping[str, Intervals], numbers: Mapping[str, Intervals]) -> bool:
    """Whether ``all_numbers`` has all of ``numbers``, stream by stream."""
    return all(united(all_numbers.get(stream, ()), found) == all_numbers.get(stream, ()) for stream, found in numbers.items())
