"""A log in memory, for the search in it."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.binlog.topic import Batches
from headrace.errors import SourceLostError
from headrace.kafka.client import Message


def message(commit_ts: int) -> bytes:
    """A transaction without rows."""
    number, encoded = commit_ts & (1 << 64) - 1, bytearray(b"\x08\x00\x10")
    while number >= 0x80:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*encoded, number])


class MemoryLog:
    """Records by their offsets. Counts the fetches."""

    where = "topic t, partition 0"

    def __init__(self, records: Mapping[int, bytes], oldest: int | None = None, end: int | None = None) -> None:
        self.records = dict(sorted(records.items()))
        self.oldest = min(self.records, default=0) if oldest is None else oldest
        self.end = max(self.records, default=self.oldest - 1) + 1 if end is None else end
        self.fetches = 0
        self.trims: list[int] = []
        """Before each of the next fetches, the oldest offset becomes the last of these."""

    def ends(self) -> tuple[int, int]:
        return self.oldest, self.end

    def fetch(self, start: int, end: int, *, most: int = 1) -> Batches:
        self.fetches += 1
        if self.trims:
            self.oldest = self.trims.pop()
        if start < self.oldest:
            raise SourceLostError("The records are not kept any more.")
        for offset, value in self.records.items():
            if start <= offset < end:
                yield [Message(offset, None, value, None)] * min(most, 1)
