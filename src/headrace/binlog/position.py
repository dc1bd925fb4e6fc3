"""How far a reader is in a topic, and where it goes on."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict, dataclass

from headrace.binlog.errors import OffsetGapError
from headrace.binlog.seek import seek
from headrace.binlog.topic import Log, commit_ts_of, first_commit_ts
from headrace.errors import DefinitionError


@dataclass(frozen=True)
class Position:
    """A place in a topic. Store it together with what was done with the transactions before it, or after that."""

    topic: str
    next_offset: int
    """The offset after the last transaction."""
    commit_ts: int
    """The greatest commit ts (TSO) up to there."""

    def to_json(self) -> str:
        """One line of JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Position:
        """The inverse of :meth:`to_json`. Raises DefinitionError."""
        try:
            told = json.loads(text)
            return cls(str(told["topic"]), int(told["next_offset"]), int(told["commit_ts"]))
        except (ValueError, TypeError, KeyError):
            raise DefinitionError(f"{text[:80]!r} is not a position of a Driver.", "Pass what Position.to_json() gave.") from None


def offset_after(log: Log, position: Position, *, allow_gap: bool, notify: Callable[[str], None]) -> int:
    """The offset at which a reader goes on.

    The record before the position shows whether the topic is still the one in which it was taken: if its commit ts is another one,
    or there is no such offset yet, the topic was made anew or lost its last records, and the commit ts decides. Raises
    OffsetGapError and CommitTsTooOldError if records may be gone, unless ``allow_gap``.
    """
    oldest, end = log.ends()
    wanted = position.next_offset
    if wanted < oldest:
        if not allow_gap:
            first = first_commit_ts(log, oldest, end)
            raise OffsetGapError(log.where, wanted, oldest, first and first[1])
        return oldest
    if wanted > end:
        notify(f"The end of {log.where} is offset {end}, before the stored offset {wanted}. {_ANEW}")
        return seek(log, position.commit_ts, allow_gap=allow_gap).offset
    if wanted == oldest:
        return wanted  # the record before it is gone, as retention does it
    if _commit_ts_at(log, wanted - 1) != position.commit_ts:
        notify(f"The record at offset {wanted - 1} of {log.where} does not have the stored commit ts {position.commit_ts}. {_ANEW}")
        return seek(log, position.commit_ts, allow_gap=allow_gap).offset
    return wanted


_ANEW = "The topic was made anew or lost records, so reading goes on after the stored commit ts instead."


def _commit_ts_at(log: Log, offset: int) -> int | None:
    with closing(log.fetch(offset, offset + 1)) as batches:
        return next((commit_ts_of(message) for batch in batches for message in batch), None)
