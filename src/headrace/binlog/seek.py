"""Finds the offset at which to begin for a commit ts.

A topic is a sequence of runs: after a restart Drainer repeats what it wrote since its last checkpoint. Within a run commit ts
increase, and no transaction that the topic has not had yet comes after a later one. So a binary search finds an offset before which
nothing is missing, though not always the same one: what comes before it has a commit ts of at most the wanted one, or is repeated
after it. A reader has to drop the records up to the wanted commit ts, and the repeated ones: those up to the greatest one so far.
"""

from __future__ import annotations

from dataclasses import dataclass

from headrace.binlog.errors import CommitTsTooOldError
from headrace.binlog.topic import Log, first_commit_ts
from headrace.errors import SourceLostError

_MOST_SEARCHES = 5


@dataclass(frozen=True)
class SeekResult:
    """Where to begin, so that every transaction after a commit ts comes."""

    offset: int
    """The offset after the last record if no record of the topic is later."""
    oldest_offset: int
    end_offset: int
    oldest_ts: int | None = None
    """The commit ts (TSO) of the oldest record; ``None`` for a topic without records."""
    last_ts: int | None = None
    """The commit ts (TSO) of the last record that was found not to be later than the wanted one."""
    has_gap: bool = False
    """Whether transactions after the wanted commit ts may be gone, which the caller allowed."""


def seek(log: Log, commit_ts: int, *, allow_gap: bool = False) -> SeekResult:
    """Finds where to begin for the transactions after ``commit_ts`` (TSO, exclusive).

    Takes at most log2(n) + 4 fetches for a topic of n offsets. Raises CommitTsTooOldError if transactions may be gone, unless
    ``allow_gap``, and SourceLostError if the topic loses records faster than it can be searched.
    """
    for _ in range(_MOST_SEARCHES - 1):
        oldest, end = log.ends()
        try:
            return _search(log, oldest, end, commit_ts, allow_gap=allow_gap)
        except CommitTsTooOldError:
            raise
        except SourceLostError:
            if log.ends()[0] == oldest:
                raise
    return _search(log, *log.ends(), commit_ts, allow_gap=allow_gap)


def _search(log: Log, oldest: int, end: int, commit_ts: int, *, allow_gap: bool) -> SeekResult:
    first = first_commit_ts(log, oldest, end)
    if first is None:
        return SeekResult(oldest, oldest, end)
    first_offset, first_ts = first
    if commit_ts < first_ts:
        if not allow_gap:
            raise CommitTsTooOldError(log.where, commit_ts, first_offset, first_ts)
        return SeekResult(oldest, oldest, end, first_ts, has_gap=True)
    # The record before `low` has a commit ts of at most the wanted one. From `high` on, the next one is later, or there is none.
    low, high, last_ts = first_offset + 1, end, first_ts
    while low < high:
        middle = low + (high - low) // 2
        found = first_commit_ts(log, middle, high)
        if found is not None and found[1] <= commit_ts:
            low, last_ts = found[0] + 1, found[1]
        else:
            high = middle
    return SeekResult(low, oldest, end, first_ts, last_ts)
