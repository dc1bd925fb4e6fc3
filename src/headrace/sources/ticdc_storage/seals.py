"""What of a position needs no more than a few bytes: versions that were passed, and the directories of dates that are over.

What is gone needs none, but for the newest of it (:mod:`~.forgetting`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

from headrace.model.cut import CutOutcome
from headrace.model.events import SchemaChange
from headrace.model.table import TableId
from headrace.model.tso import tso_to_datetime
from headrace.sources.ticdc_storage.catalogue import Catalogue
from headrace.sources.ticdc_storage.days import has_ended
from headrace.sources.ticdc_storage.forgetting import without_gone
from headrace.sources.ticdc_storage.paths import DataPath, DateSeparator, SchemaPath, parse_path
from headrace.sources.ticdc_storage.position import StoragePosition
from headrace.sources.ticdc_storage.position_update import newest_passed, passed_below, sealed_days, without_marks
from headrace.sources.ticdc_storage.reader import Listing
from headrace.sources.ticdc_storage.table_versions import TableVersion

_ANY_NAME = "CDC000001.csv"


class Directories:
    """Data directories taken apart, each once while it is asked for. Every day has new ones, in every table.

    ``date_separator`` is the changefeed's, ``None`` when unknown.
    """

    def __init__(self, date_separator: DateSeparator | None) -> None:
        self._date_separator = date_separator
        self._table_ids: frozenset[str] = frozenset()
        self._known: dict[str, DataPath | None] = {}
        self._before: dict[str, DataPath | None] = {}

    def forget_others(self) -> None:
        """Forgets the directories that nobody has asked for since the last time."""
        self._before, self._known = self._known, {}

    def parsed(self, directory: str, table_ids: frozenset[str]) -> DataPath | None:
        """The directory as any file in it would have it, ``None`` when it is none of the layout."""
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
    """The position with versions behind their tables' checkpoints passed, dates sealed that are over, and gone files forgotten.

    Nothing is sealed that holds files which are not applied; ``announced`` are the paths of those that the position does not name.
    ``unread`` are the schema changes that cannot be read: no version is passed while a table may wait before it.
    ``listing`` is what was there, ``None`` where nothing is to be forgotten.
    While a final drain is remembered no date is sealed, and nothing forgotten.
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
    """The directories of dates that no writer's clock shows any more, with a later one beside them.

    A directory's date is that of its writing, by the local clock of the node, and files are written after their rows are
    committed: what the watermark has passed in every time zone gets no new rows.
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
    """Per table path the version below which everything is applied and nothing is open.

    With table ids as paths several tables may have had a folder in turn, and each passes only what it had.
    """
    limits = {}
    for parent, versions in catalogue.versions.items():
        owners = catalogue.owners(parent)
        if not progress.stopped.isdisjoint(owners.values()):
            continue
        # What a restart begins is no end of what is older: a changefeed that goes on from earlier writes there again.
        changes = [number for number, version in versions.items() if version.statement]
        reached = {number: checkpoints.get(owners[number], 0) for number in changes}
        if place.drain is not None:
            # What comes late all the same has to be seen.
            reached = {number: min(checkpoint, place.drain.published) for number, checkpoint in reached.items()}
        limits[parent] = newest_passed(reached, {*busy.get(parent, ()), *_goes_on_in(versions.values())})
    return {parent: limit for parent, limit in limits.items() if limit}


def _may_be_ahead(change: SchemaChange, progress: CutOutcome, checkpoints: Mapping[TableId, int]) -> bool:
    """Whether a table may still wait before a schema change that cannot be read.

    One that stopped behind it may be a name that does not exist before the change, and says nothing.
    """
    tables = change.changes - progress.gone
    return any(t in progress.behind or checkpoints.get(t, progress.hi) <= change.commit_ts for t in tables)


def _goes_on_in(versions: Iterable[TableVersion]) -> set[int]:
    """The versions that TiCDC writes into when the table has their columns (again): the newest of each checksum."""
    newest = {
        path.checksum: path.version for v in versions if isinstance(path := parse_path(v.origin), SchemaPath) and path.checksum
    }
    return set(newest.values())
