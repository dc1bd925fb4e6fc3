"""Sealed date directories of one stream of files: the file numbers of each day, as a text of two or three bytes per day.

``2026-01-01:3*60,5,,1-2;7`` begins on that day: sixty days with the numbers 1 to 3, one with 1 to 5, one with none, and one with 1,
2 and 7. If directories are named after months or years, these count like days.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from itertools import groupby, pairwise

from headrace.sources.ticdc_storage.intervals import Intervals, parse_intervals

LAST_ZONE = timedelta(hours=12)
"""How long after midnight UTC a date lasts in the westernmost zone, UTC-12."""
_SKEW = timedelta(hours=1)
"""How far a writer's clock may be slow."""
_MOST_DAYS = 100_000
_FIRST_YEAR = 2000
"""TiCDC did not exist before. A directory of an earlier date is not TiCDC's, and would make a text of years without files."""


@dataclass(frozen=True, slots=True)
class _Runs:
    """A parsed text. Each day of a long run makes another text, and thousands of them are cached.

    So a run of days takes sixteen bytes here, and equal words share one intervals object.
    """

    kind: int
    """The length of the dates' names."""
    bounds: array[int]
    """The first ordinal of each run of equal days, and the ordinal after the last day."""
    numbers: tuple[Intervals, ...]
    """The numbers of each run."""


def ordinal_of(name: str) -> int | None:
    """The ordinal of a date directory among those of its kind (days, months or years); ``None`` for a name that is not a date."""
    try:
        if len(name) == 10:
            return date.fromisoformat(name).toordinal()
        if len(name) == 7:
            day = date.fromisoformat(f"{name}-01")
            return day.year * 12 + day.month - 1
        return int(name) if len(name) == 4 and name.isdecimal() and int(name) else None
    except ValueError:
        return None


def has_ended(name: str, now: datetime) -> bool:
    """Whether at ``now`` no writer's clock, in any zone, can still show this date."""
    following = _following(name)
    if following is None or int(name[:4]) < _FIRST_YEAR:
        return False
    return now >= datetime(following.year, following.month, following.day, tzinfo=UTC) + LAST_ZONE + _SKEW


def last_day(name: str) -> str:
    """The last day (ISO) of a day, a month or a year; ``""`` for a name that is not a date."""
    following = _following(name)
    return (following - timedelta(days=1)).isoformat() if following is not None else ""


def _following(name: str) -> date | None:
    """The day after a date; ``None`` for a name that is not a date."""
    ordinal = ordinal_of(name)
    if ordinal is None:
        return None
    try:
        if len(name) == 10:
            return date.fromordinal(ordinal + 1)
        return date((ordinal + 1) // 12, (ordinal + 1) % 12 + 1, 1) if len(name) == 7 else date(ordinal + 1, 1, 1)
    except (ValueError, OverflowError):
        return None


def numbers_at(text: str, name: str) -> Intervals:
    """The numbers of the date ``name``."""
    runs = _runs(text)
    ordinal = ordinal_of(name) if len(name) == runs.kind else None
    if ordinal is None or not runs.bounds[0] <= ordinal < runs.bounds[-1]:
        return ()
    return runs.numbers[bisect_right(runs.bounds, ordinal) - 1]


def reaches(text: str, name: str) -> bool:
    """Whether the date ``name`` is not later than the last date in the text."""
    runs = _runs(text)
    ordinal = ordinal_of(name) if len(name) == runs.kind else None
    return ordinal is not None and ordinal < runs.bounds[-1]


def days_of(text: str) -> dict[str, Intervals]:
    """The dates that have numbers, with their numbers."""
    runs = _runs(text)
    found: dict[str, Intervals] = {}
    for (start, end), intervals in zip(pairwise(runs.bounds), runs.numbers, strict=True):
        if intervals:
            found |= {_name(ordinal, runs.kind): intervals for ordinal in range(start, end)}
    return found


def with_days(text: str, days: Mapping[str, Intervals]) -> str:
    """The text with more dates, all of one kind. For a date that it already has, the numbers of ``days`` replace the old ones."""
    known = {**(days_of(text) if text else {}), **days}
    ordinals = {ordinal: numbers for name, numbers in known.items() if (ordinal := ordinal_of(name)) is not None}
    first, last = min(ordinals), max(ordinals)
    words = (_word(ordinals.get(ordinal, ())) for ordinal in range(first, last + 1))
    runs = ((word, sum(1 for _ in same)) for word, same in groupby(words))
    kind = len(next(iter(days)))
    return f"{_name(first, kind)}:{','.join(f'{word}*{count}' if count > 1 else word for word, count in runs)}"


def check_days(text: str) -> str:
    """Returns the text. Raises ``ValueError`` if it does not have the format."""
    _runs(text)
    return text


@lru_cache(maxsize=4096)
def _runs(text: str) -> _Runs:
    begin, _, rest = text.partition(":")
    ordinal = ordinal_of(begin)
    if ordinal is None:
        raise ValueError(f"{begin!r} is not a date")
    bounds, numbers = array("l", [ordinal]), []
    total = 0
    for part in rest.split(","):
        word, _, times = part.partition("*")
        count = int(times or 1)
        total += count
        if count < 1 or total > _MOST_DAYS:
            raise ValueError(f"{part!r} is not a run of days")
        numbers.append(_numbers(word))
        ordinal += count
        bounds.append(ordinal)
    _name(ordinal, len(begin))
    return _Runs(len(begin), bounds, tuple(numbers))


def _word(intervals: Intervals) -> str:
    if len(intervals) == 1 and intervals[0][0] == 1:
        return str(intervals[0][1])
    # A single number would be read as a count from 1.
    return ";".join(f"{low}-{high}" for low, high in intervals)


@lru_cache(maxsize=4096)
def _numbers(word: str) -> Intervals:
    if not word:
        return ()
    return ((1, int(word)),) if word.isdecimal() else parse_intervals(word, ";")


def _name(ordinal: int, kind: int) -> str:
    try:
        if kind == 10:
            return date.fromordinal(ordinal).isoformat()
        year, month = divmod(ordinal, 12)
        return f"{year:04d}-{month + 1:02d}" if kind == 7 else f"{ordinal:04d}"
    except OverflowError:
        raise ValueError(f"{ordinal} is no day") from None
