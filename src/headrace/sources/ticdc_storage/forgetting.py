"""Decides which consumed files the position drops: those that are gone, except for the newest of each table. Pure.

Every version, partition and dispatcher of a table has directories or numbers of its own. A cut does not need to know which of them
TiCDC has removed. If a file appears in such a place, it is read in any case: rows up to the checkpoint change nothing. Files
without commit ts would be applied again, so nothing is dropped for them.

Dropped files leave one entry for their table (:class:`Gone`). It shows how far back files may be missing, and how many there were.
A position that went back can thus be checked for whether it names all of them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from headrace.formats.storage_paths import DataPath
from headrace.model.tso import tso_to_datetime
from headrace.sources.ticdc_storage.days import days_of, has_ended, last_day
from headrace.sources.ticdc_storage.intervals import count_of, numbers_of
from headrace.sources.ticdc_storage.position import Gone, StoragePosition
from headrace.sources.ticdc_storage.reader import Listing

_KEPT_OF_A_TABLE = 8
"""How many streams of files that are gone stay for a table. The others are dropped when there are twice as many."""
_KEPT_IN_ALL = 2_500
_LEAST_KEPT = 2

Parsed = Callable[[str], DataPath | None]


@dataclass(frozen=True)
class _Stream:
    """Consumed files of one sequence of numbers: of a directory, or of all sealed dates below it (``is_sealed``)."""

    directory: str
    key: str
    is_sealed: bool
    path: DataPath
    """The parsed directory; for sealed dates that of the newest one."""
    modified: int
    """When the latest file was written (ns), as far as known."""
    files: int

    @property
    def order(self) -> tuple[int, int, str, str]:
        """The newest come last."""
        return self.modified, self.path.version, self.directory, self.key

    @property
    def place(self) -> tuple[str, str, bool]:
        return self.directory, self.key.rpartition("/")[0] if self.is_sealed else self.key, self.is_sealed


def without_gone(place: StoragePosition, listing: Listing, parsed: Parsed, unapplied: Collection[str]) -> StoragePosition:
    """The position without the streams that have no file in the listing, except for the newest of each table.

    ``parsed`` parses a directory. ``unapplied`` are the directories with files that are not applied; these stay. If folders could
    not be listed, everything stays.
    """
    if any(stray.unlisted for stray in listing.strays):
        return place
    counts = _counts(place, parsed)
    kept = max(_LEAST_KEPT, min(_KEPT_OF_A_TABLE, _KEPT_IN_ALL // max(1, len(counts))))
    many = {parent for parent, count in counts.items() if count > 2 * kept}
    if not many:
        return place
    tables: dict[str, list[_Stream]] = defaultdict(list)
    for stream in _streams(place, parsed, many):
        tables[stream.path.parent].append(stream)
    there = _listed(listing, many)
    forgotten = []
    for streams in tables.values():
        gone = [s for s in streams if s.place not in there and (s.is_sealed or s.directory not in unapplied)]
        if len(gone) > 2 * kept:
            forgotten += sorted(gone, key=lambda stream: stream.order)[:-kept]
    return _without(place, forgotten) if forgotten else place


def gone_since(known: StoragePosition, place: StoragePosition, listing: Listing, parsed: Parsed) -> Iterator[str]:
    """For each table of which a later position ``known`` dropped files that ``place`` does not name: a path for these files.

    That is the case if ``known`` dropped more files, since ``place`` was written, than ``place`` names of those that are gone.
    """
    since = {parent: gone.files - _forgotten_of(place, parent) for parent, gone in known.gone.items()}
    since = {parent: count for parent, count in since.items() if count > 0}
    if not since:
        return
    present: dict[tuple[str, str], set[int]] = defaultdict(set)
    for _, path in listing.data:
        if path.parent in since:
            present[path.directory, path.stream].add(path.number)
    for directory in place.consumed_directories():
        found = parsed(directory)
        if found is None or found.parent not in since:
            continue
        later = known.consumed_in(directory)
        for stream, intervals in place.consumed_in(directory).items():
            others = present[directory, stream].union(numbers_of(later.get(stream, ())))
            since[found.parent] -= sum(number not in others for number in numbers_of(intervals))
    for parent, count in since.items():
        if count > 0:
            gone = known.gone[parent]
            yield "/".join(part for part in (parent, str(gone.version), gone.day, "CDC000000") if part)


def _forgotten_of(place: StoragePosition, parent: str) -> int:
    return place.gone[parent].files if parent in place.gone else 0


def _counts(place: StoragePosition, parsed: Parsed) -> Counter[str]:
    """The number of streams of each table. Called at every cut, so it does not expand the texts of days."""
    counts: Counter[str] = Counter()
    for directory, streams in place.consumed.items():
        if (found := parsed(directory)) is not None:
            counts[found.parent] += len(streams)
    for base, texts in place.days.items():
        if (found := _in_days(base, texts, parsed)) is not None:
            counts[found.parent] += len(texts)
    return counts


def _in_days(base: str, texts: Mapping[str, str], parsed: Parsed) -> DataPath | None:
    """The path of the first sealed date below ``base``."""
    return parsed(f"{base}/{next(iter(texts.values()), '').partition(':')[0]}")


def _streams(place: StoragePosition, parsed: Parsed, parents: Collection[str]) -> Iterator[_Stream]:
    for directory, streams in place.consumed.items():
        found = parsed(directory)
        if found is not None and found.parent in parents:
            times = (mark.modified for mark in place.marks.get(directory, {}).values())
            modified = max(place.settled.get(directory, 0), *times, 0)
            for key, intervals in streams.items():
                yield _Stream(directory, key, False, found, modified, count_of(intervals))
    for base, texts in place.days.items():
        first = _in_days(base, texts, parsed)
        for key, text in texts.items() if first is not None and first.parent in parents else ():
            days = days_of(text)
            if (found := parsed(f"{base}/{max(days)}")) is not None:
                yield _Stream(base, key, True, found, place.settled.get(base, 0), sum(map(count_of, days.values())))


def _listed(listing: Listing, parents: Collection[str]) -> set[tuple[str, str, bool]]:
    """The places of all streams of these tables that have a file."""
    files = {(path.directory, path.date, path.stream) for _, path in listing.data if path.parent in parents}
    there = {(directory, stream, False) for directory, _, stream in files}
    return there | {(directory.rpartition("/")[0], stream, True) for directory, date, stream in files if date}


def _without(place: StoragePosition, forgotten: Collection[_Stream]) -> StoragePosition:
    consumed = {directory: dict(streams) for directory, streams in place.consumed.items()}
    days = {base: dict(texts) for base, texts in place.days.items()}
    gone = dict(place.gone)
    now = tso_to_datetime(place.watermark)
    for stream in forgotten:
        del (days if stream.is_sealed else consumed)[stream.directory][stream.key]
        gone[stream.path.parent] = _with(gone.get(stream.path.parent, Gone(0, 0)), stream, now)
    left = {directory for directory, streams in consumed.items() if streams}
    bases = {base for base, texts in days.items() if texts}
    return replace(
        place,
        consumed={directory: streams for directory, streams in consumed.items() if streams},
        days={base: texts for base, texts in days.items() if texts},
        settled={directory: at for directory, at in place.settled.items() if directory in left or directory in bases},
        marks={directory: marks for directory, marks in place.marks.items() if directory in left},
        gone=gone,
    )


def _with(gone: Gone, stream: _Stream, now: datetime) -> Gone:
    is_over = has_ended(stream.path.date, now)
    return Gone(
        gone.files + stream.files,
        max(gone.version, stream.path.version),
        max(gone.day, last_day(stream.path.date)) if is_over else gone.day,
        gone.undated or not is_over,
    )
