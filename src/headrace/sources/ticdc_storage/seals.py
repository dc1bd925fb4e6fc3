"""Reduces the parts of a position that need only a few bytes: versions that were passed, and directories of past dates.

Files that are gone need nothing, except for the newest of them (:mod:`~.forgetting`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

from headrace.formats.storage_paths import DataPath, DateSeparator, SchemaPath, parse_path
from headrace.model.cut import CutOutcome
from headrace.model.events import SchemaChange
from headrace.model.table import TableId
from headrace.model.tso import tso_to_datetime
from headrace.sources.ticdc_storage.catalogue import Catalogue
from headrace.sources.ticdc_storage.days import has_ended
from headrace.sources.ticdc_storage.forgetting import without_gone
from headrace.sources.ticdc_storage.position import StoragePosition
from headrace.sources.ticdc_storage.position_update import newest_passed, passed_below, sealed_days, without_marks
from headrace.sources.ticdc_storage.reader import Listing
from headrace.sources.ticdc_storage.table_versions import TableVersion

_ANY_NAME = "CDC000001.csv"


class Directories:
    """Parsed data directories. Each is parsed once while it is in use; every day adds new ones, in every table.

    ``date_separator`` is the changefeed's, ``None`` if unknown.
    """

    def __init__(self, date_separator: DateSeparator | None) -> None:
        self._date_separator = date_separator
        self._table_ids: frozenset[str] = frozenset()
        self._known: dict[str, DataPath | None] = {}
        self._before: dict[str, DataPath | None] = {}

    def forget_others(self) -> None:
        """Drops the directories that were not requested since the last call."""
        self._before, self._known = self._known, {}

    def parsed(self, directory: str, table_ids: frozenset[str]) -> DataPath | None:
        """The parsed directory, as for any file in it; ``None`` if it is not part of the layout."""
        if table_ids != self._table_ids:
            self._table_ids, self._known, self._before = table_ids, {}, {}
        if directory not in self._known:
            self._known[directory] = self._before[directory] if directory in self._before else self._parse(directory)
        return self._known[directory]

    def _parse(self, directory: str) -> DataPath | None:
        parsed = parse_path(f"{directory}/{_ANY_NAME}", self._date_separator, self._table_ids)
        return parsed if isinstance(parsed, DataPath) else None


def sealed(
    place: StoragePosition,
    announced: Iterable[str],
    catalogue: Catalogue,
    directories: Directories,
    progress: CutOutcome,
    checkpoints: Mapping[TableId, int],
    unread: Iterable[SchemaChange] = (),
    listing: Listing | None = None,
) -> StoragePosition:
    """The position with versions before their tables' checkpoints passed, past dates sealed, and gone files dropped.

    Directories with files that are not applied are not sealed; ``announced`` are the paths of such files that the position does not
    name. ``unread`` are unreadable schema changes: no version is passed while a table may wait before one. ``listing`` is the last
    listing, ``None`` if nothing is to be dropped. While a final drain is remembered, no date is sealed and nothing is dropped.
    """

    directories.forget_others()

    def parsed(directory: str) -> DataPath | None:
        return directories.parsed(directory, catalogue.table_ids)

    unapplied = {path.rpartition("/")[0] for path in (*place.open, *announced)} | place.unread.keys() | place.begun.keys()
    busy: dict[str, set[int]] = {}
    for directory in unapplied:
        found = parsed(directory)
        if found is not None:
            busy.setdefault(found.parent, set()).add(found.version)
    for change in unread:
        path = parse_path(change.file)
        if isinstance(path, SchemaPath) and _may_be_ahead(change, progress, checkpoints):
            busy.setdefault(path.parent, set()).add(path.version)
    place = passed_below(place, _passed(place, catalogue, progress, checkpoints, busy))
    if place.drain is not None:
        return place
    old = [d for d in place.marks if (found := parsed(d)) is not None and found.version < place.passed.get(found.parent, 0)]
    place = sealed_days(without_marks(place, old), _ended(place, unapplied, parsed))
    return place if listing is None else without_gone(place, listing, parsed, unapplied)


def _ended(place: StoragePosition, unapplied: Collection[str], parsed: Callable[[str], DataPath | None]) -> list[str]:
    """The directories of dates that are past for every writer's clock, with a later date beside them.

    A directory has the date of writing, by the local clock of the node, and rows are committed before their file is written. So a
    date that the watermark has passed in every time zone gets no new rows.
    """
    dates = {directory: found.date for directory in place.consumed if (found := parsed(directory)) is not None and found.date}
    newest: dict[str, str] = {}
    for directory, name in dates.items():
        base = directory.rpartition("/")[0]
        newest[base] = max(newest.get(base, ""), name)
    now = tso_to_datetime(place.watermark)
    return [
        directory
        for directory, name in dates.items()
        if directory not in unapplied
        and (name != newest[directory.rpartition("/")[0]] or place.is_before_sealed(directory))
        and has_ended(name, now)
    ]


def _passed(
    place: StoragePosition,
    catalogue: Catalogue,
    progress: CutOutcome,
    checkpoints: Mapping[TableId, int],
    busy: Mapping[str, Collection[int]],
) -> dict[str, int]:
    """For each table path, the version below which everything is applied and nothing is open.

    With table ids as paths, several tables may have had a folder in turn, and each passes only its own versions.
    """
    limits = {}
    for parent, versions in catalogue.versions.items():
        owners = catalogue.owners(parent)
        if not progress.stopped.isdisjoint(owners.values()):
            continue
        # A version that a restart begins does not end the older ones: a changefeed that resumes from earlier writes there again.
        changes = [number for number, version in versions.items() if version.statement]
        reached = {number: checkpoints.get(owners[number], 0) for number in changes}
        if place.drain is not None:
            # Files that still come late must be noticed.
            reached = {number: min(checkpoint, place.drain.published) for number, checkpoint in reached.items()}
        limits[parent] = newest_passed(reached, {*busy.get(parent, ()), *_goes_on_in(versions.values())})
    return {parent: limit for parent, limit in limits.items() if limit}


def _may_be_ahead(change: SchemaChange, progress: CutOutcome, checkpoints: Mapping[TableId, int]) -> bool:
    """Whether a table may still wait before an unreadable schema change.

    A table that stopped after it may have a name that does not exist before the change. Such a table says nothing.
    """
    tables = change.changes - progress.gone
    return any(t in progress.behind or checkpoints.get(t, progress.hi) <= change.commit_ts for t in tables)


def _goes_on_in(versions: Iterable[TableVersion]) -> set[int]:
    """The versions into which TiCDC writes when the table has their columns (again): the newest version of each checksum."""
    newest = {
        path.checksum: path.version for v in versions if isinstance(path := parse_path(v.origin), SchemaPath) and path.checksum
    }
    return set(newest.values())
