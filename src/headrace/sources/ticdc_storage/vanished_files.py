"""Files that vanished, and which of them are not needed because their content is loaded in another way. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import date, timedelta

from headrace.formats.storage_paths import DataPath, path_of
from headrace.model.table import TableId
from headrace.model.tso import tso_to_datetime
from headrace.sources.ticdc_storage.catalogue import Catalogue
from headrace.sources.ticdc_storage.intervals import numbers_of
from headrace.sources.ticdc_storage.position import StoragePosition
from headrace.sources.ticdc_storage.reader import Listing
from headrace.sources.ticdc_storage.split_selection import Candidate
from headrace.sources.ticdc_storage.stores import StoredFile

FirstsOf = Callable[[Sequence[Candidate]], Mapping[StoredFile, int]]
"""Where files begin: the commit ts (TSO) of the first row of each; 0 if it cannot be determined."""


def without_rows_above(
    gone: Mapping[DataPath, TableId], upto: Mapping[TableId, int], listing: Listing, catalogue: Catalogue, firsts: FirstsOf
) -> frozenset[str]:
    """The vanished files that certainly had no row above their table's commit ts (TSO).

    Either the file's date shows it. Or the next file of its stream begins no later: earlier rows were in the vanished file, and
    rows that a writer repeats come again in the next one. Or its version had ended by then, unless its directory continued to be
    used.
    """
    next_of = _next_files(gone, listing, catalogue)
    begins = firsts([candidate for candidate in next_of.values() if candidate is not None])

    def is_told(path: DataPath, ts: int) -> bool:
        if is_of_earlier_date(path.date, ts):
            return True
        following = next_of[path]
        if following is not None and _is_later(following[1], path):
            begin = begins[following[0]]
            if 0 < begin <= ts and not _is_stale(following, begin):
                return True
        went_on = following is not None and following[1].version == path.version
        versions = catalogue.versions.get(path.parent, {})
        return not went_on and any(path.version < v <= ts and known.statement for v, known in versions.items())

    return frozenset(path.key for path, table_id in gone.items() if is_told(path, upto[table_id]))


def _is_later(following: DataPath, path: DataPath) -> bool:
    """Whether the following file was certainly written later. In one directory, numbers of two protocols are in no order."""
    return following.extension == path.extension or following.directory != path.directory


def _is_stale(candidate: Candidate, ts: int) -> bool:
    """Whether a file's row with that commit ts (TSO) does not count, because a directory before its own has it."""
    _, path, version = candidate
    return version.stale_from <= ts < path.version


def _next_files(gone: Mapping[DataPath, TableId], listing: Listing, catalogue: Catalogue) -> dict[DataPath, Candidate | None]:
    """The next file in the stream of each, if there is one."""
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
    """Whether data written on a directory's date, which is local to the writer, were committed before a commit ts (TSO)."""
    return bool(date) and date < oldest_day(ts).isoformat()[: len(date)]


def oldest_day(ts: int) -> date:
    """The first day that a writer's clock may have shown when a commit ts (TSO) was committed."""
    return (tso_to_datetime(ts) - timedelta(days=1)).date()


def gone_files(
    place: StoragePosition, directories: Iterable[str], listing: Listing, still_read: StoragePosition | None = None
) -> Iterator[tuple[str, str, int]]:
    """The directories, streams and numbers of files that count as read and no longer exist.

    Files that also count as read in ``still_read`` are left out.
    """
    present: dict[tuple[str, str], set[int]] = {}
    for _, path in listing.data:
        present.setdefault((path.directory, path.stream), set()).add(path.number)
    for directory in directories:
        needless = still_read.consumed_in(directory) if still_read is not None else {}
        for stream, intervals in place.consumed_in(directory).items():
            there = present.get((directory, stream), set()).union(numbers_of(needless.get(stream, ())))
            yield from ((directory, stream, number) for number in numbers_of(intervals) if number not in there)


def lost_files(known: StoragePosition, place: StoragePosition, listing: Listing, extension: str) -> Iterator[str]:
    """Files with this extension that a later position counts as read, that ``place`` does not, and that no longer exist."""
    read = gone_files(known, known.consumed_directories(), listing, still_read=place)
    yield from (path_of(directory, f"{stream}.{extension}", number) for directory, stream, number in read)


def lost_unread_files(known: StoragePosition, whole: Listing) -> Iterator[str]:
    """Files of any protocol that were read in part, or that a stopped table or an aborted cut still needs, and that are gone."""
    present = {stored.path for stored, _ in whole.data}
    named = (*known.open, *(path for path, _ in known.unread_files()), *known.begun_files())
    yield from (path for path in named if path not in present)
