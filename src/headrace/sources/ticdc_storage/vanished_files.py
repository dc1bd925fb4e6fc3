"""Files that vanished, and which of them nobody misses: all that they held is loaded another way. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import date, timedelta

from headrace.model.table import TableId
from headrace.model.tso import tso_to_datetime
from headrace.sources.ticdc_storage.catalogue import Catalogue
from headrace.sources.ticdc_storage.intervals import numbers_of
from headrace.sources.ticdc_storage.paths import DataPath
from headrace.sources.ticdc_storage.position import StoragePosition, path_of
from headrace.sources.ticdc_storage.reader import Listing
from headrace.sources.ticdc_storage.split_selection import Candidate
from headrace.sources.ticdc_storage.stores import StoredFile

FirstsOf = Callable[[Sequence[Candidate]], Mapping[StoredFile, int]]
"""Where files begin: the commit ts (TSO) of the first row of each; 0 where it cannot be told."""


def without_rows_above(
    gone: Mapping[DataPath, TableId], upto: Mapping[TableId, int], listing: Listing, catalogue: Catalogue, firsts: FirstsOf
) -> frozenset[str]:
    """The vanished files of which something tells that they held no row above their table's commit ts (TSO).

    Its date tells it, or the next file of its stream, which begins no later: whatever came before is in the vanished one, and what
    a writer repeats comes again in the next. Or its version is over by then, unless its directory went on all the same.
    """
    next_of = _next_files(gone, listing, catalogue)
    begins = firsts([candidate for candidate in next_of.values() if candidate is not None])

    def is_told(path: DataPath, ts: int) -> bool:
        if is_of_earlier_date(path.date, ts):
            return True
        following = next_of[path]
        if following is not None and 0 < begins[following[0]] <= ts and not _is_stale(following, begins[following[0]]):
            return True
        went_on = following is not None and following[1].version == path.version
        versions = catalogue.versions.get(path.parent, {})
        return not went_on and any(path.version < v <= ts and known.statement for v, known in versions.items())

    return frozenset(path.key for path, table_id in gone.items() if is_told(path, upto[table_id]))


def _is_stale(candidate: Candidate, ts: int) -> bool:
    """Whether a file's row of that commit ts (TSO) does not count, because a directory before its own holds it."""
    _, path, version = candidate
    return version.stale_from <= ts < path.version


def _next_files(gone: Mapping[DataPath, TableId], listing: Listing, catalogue: Catalogue) -> dict[DataPath, Candidate | None]:
    """The file that comes next in the stream of each, if there is one."""
    wanted = {_stream(path) for path in gone}
    streams: dict[tuple[str, str, str], list[Candidate]] = defaultdict(list)
    for stored, path in listing.data:
        version = catalogue.versions.get(path.parent, {}).get(path.version)
        if stored.size and version is not None and _stream(path) in wanted:
            streams[_stream(path)].append((stored, path, version))
    for files in streams.values():
        files.sort(key=lambda candidate: candidate[1].order)
    found: dict[DataPath, Candidate | None] = {}
    for path in gone:
        files = streams[_stream(path)]
        index = bisect_right(files, path.order, key=lambda candidate: candidate[1].order)
        found[path] = files[index] if index < len(files) else None
    return found


def _stream(path: DataPath) -> tuple[str, str, str]:
    return path.parent, path.partition, path.dispatcher


def is_of_earlier_date(date: str, ts: int) -> bool:
    """Whether what was written on the date of a directory, the writer's local one, was committed before a commit ts (TSO)."""
    return bool(date) and date < oldest_day(ts).isoformat()[: len(date)]


def oldest_day(ts: int) -> date:
    """The first day on which a writer's clock may have shown what was committed at a commit ts (TSO)."""
    return (tso_to_datetime(ts) - timedelta(days=1)).date()


def gone_files(
    place: StoragePosition, directories: Iterable[str], listing: Listing, still_read: StoragePosition | None = None
) -> Iterator[tuple[str, str, int]]:
    """The directories, streams and numbers of files that count as read and are not there.

    ``still_read`` is a position that needs none of those that it counts as read too.
    """
    present: dict[tuple[str, str], set[int]] = {}
    for _, path in listing.data:
        present.setdefault((path.directory, path.stream), set()).add(path.number)
    for directory in directories:
        needless = still_read.consumed_in(directory) if still_read is not None else {}
        for stream, intervals in place.consumed_in(directory).items():
            there = present.get((directory, stream), set()).union(numbers_of(needless.get(stream, ())))
            yield from ((directory, stream, number) for number in numbers_of(intervals) if number not in there)


def lost_files(known: StoragePosition, place: StoragePosition, listing: Listing, extension: str) -> list[str]:
    """The files that a later position ``known`` tells of, that are not there, and that ``place`` does not count as read.

    Those that were read, in whole or in part, and those that a stopped table or a cut that broke off had yet to read.
    """
    read = gone_files(known, known.consumed_directories(), listing, still_read=place)
    lost = dict.fromkeys(path_of(directory, f"{stream}.{extension}", number) for directory, stream, number in read)
    present = {stored.path for stored, _ in listing.data}
    named = (*known.open, *(path for path, _ in known.unread_files()), *known.begun_files())
    return [*lost, *(path for path in named if path not in present and path not in lost)]
