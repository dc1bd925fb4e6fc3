"""TiCDC's storage sink output as a source: poll, read, advance."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

from headrace.errors import DefinitionError, NoWatermarkError
from headrace.model.block import ChangeBlock
from headrace.model.cut import HeldSplit, Offer, Progress, Split, Window
from headrace.model.outcome import Notice, Problem, SplitReport, is_repeated
from headrace.model.table import Column, TableId, TableSchema
from headrace.model.tso import MAX_TSO, format_tso, tso_to_datetime
from headrace.model.uri import parse_uri
from headrace.sources.base import Bound
from headrace.sources.ticdc_storage.bounding import (
    BoundedOffer,
    Ranges,
    bounded_by_files,
    bounded_by_ts,
    catching_up_by_ts,
    split_by_table,
)
from headrace.sources.ticdc_storage.catalogue import Catalogue
from headrace.sources.ticdc_storage.draining import (
    NO_PROMISE,
    Rest,
    drained,
    find_rest,
    late_schema_files,
    rest_notices,
    versions_of,
    went_on,
)
from headrace.sources.ticdc_storage.folder import Folder
from headrace.sources.ticdc_storage.offering import (
    Candidate,
    Selection,
    detect_protocol,
    gap_notice,
    gaps,
    misplaced_notices,
    mixed_partition_notices,
    ranked_splits,
    repeated_hour_notices,
    select_files,
    unknown_version_problems,
    vanished_problems,
)
from headrace.sources.ticdc_storage.options import Protocol, StorageOptions, read_options
from headrace.sources.ticdc_storage.paths import METADATA, DataPath, SchemaPath, parse_data_name, parse_path
from headrace.sources.ticdc_storage.position import (
    Drain,
    FileState,
    StoragePosition,
    advanced,
    is_sealed,
    newest_sealable,
    sealed_below,
)
from headrace.sources.ticdc_storage.reader import Listing
from headrace.sources.ticdc_storage.retention import expiry_notices, held_files
from headrace.sources.ticdc_storage.splits import FileSplit, read_split
from headrace.sources.ticdc_storage.stores import StoredFile, StoreLocation, store_location

_NO_COMMIT_TS = {
    Protocol.CSV: (
        "The files carry no commit ts: changes are applied file by file, at least once, and tables are not consistent with "
        "each other in between. Set include-commit-ts = true under [sink.csv] of the changefeed for more."
    ),
    Protocol.CANAL_JSON: (
        "The files carry no commit ts but the millisecond of it: within one the order of the files decides, and a transaction "
        "may be seen in parts. Set enable-tidb-extension=true in the changefeed's sink URI for more."
    ),
}

_BEGINNING = StoragePosition()
_ANY_NAME = "CDC000001.csv"
_LOST_KEYS = (
    "With output-raw-change-event = true an update that changes a primary key is not split, and without output-old-value = true "
    "under [sink.csv] it does not tell the old key: the row under the old key stays in the target, and nothing in the data shows "
    "it. Change one of the two settings, and copy the tables whose keys were updated anew."
)


def open_source(uri: str, changefeed: str | None = None) -> TicdcStorageSource:
    """The source that a storage URI names, with the options of the changefeed file at the path ``changefeed``.

    Touches neither network nor disk, but for the changefeed file. Raises DefinitionError.
    """
    parsed = parse_uri(uri)
    return TicdcStorageSource(parsed.redacted().rstrip("/"), store_location(parsed), read_options(parsed, changefeed))


@dataclass(frozen=True)
class TicdcStorageSource:
    """A changefeed's folder as a :class:`headrace.sources.base.DataSource`."""

    identity: str
    location: StoreLocation
    options: StorageOptions

    @property
    def event_source(self) -> StorageEventSource:
        """A new stream of changes, with nothing remembered but what the position says."""
        return StorageEventSource(self.location, self.options)

    @property
    def metadata_accessor(self) -> StorageMetadataAccessor:
        """What exists in the folder, by its schema files."""
        return StorageMetadataAccessor(self.location, self.options)

    def carried(self, schema: TableSchema) -> tuple[Column, ...]:
        """See ``DataSource.carried``: column selectors leave columns out, in either protocol."""
        return self.options.csv.columns(schema)

    def held(self, position: str) -> tuple[HeldSplit, ...]:
        """See ``DataSource.held``. Folders that are named by table ids stand for the tables: only schema files tell more."""
        return held_files(_position(position), self.options)


class StorageEventSource:
    """The stream of changes in a changefeed's folder. The contract is :class:`headrace.sources.base.EventSource`.

    What it remembers between polls only saves work and words; it pickles without it.
    """

    def __init__(self, location: StoreLocation, options: StorageOptions) -> None:
        self._location = location
        self._options = options
        self._folder: Folder | None = None
        self._watermark = 0
        self._published = 0
        self._drain: Drain | None = None
        self._announced: dict[str, tuple[TableId, StoredFile]] = {}
        self._told: set[str] = set()
        self._exact: bool | None = None
        self._ranges = Ranges()
        self._left_out: dict[StoredFile, Window] = {}
        self._looked_through: frozenset[StoredFile] = frozenset()
        self._rest = Rest(0, 0, 0)

    def __reduce__(self) -> tuple[type[StorageEventSource], tuple[StoreLocation, StorageOptions]]:
        return (StorageEventSource, (self._location, self._options))

    def poll(self, position: str, checkpoint: int, *, final: bool = False, bound: Bound | None = None) -> Offer:
        """What there is that may not be applied yet: the watermark first, then a listing, unless the watermark stands still.

        Files of tables with a problem are not offered. Each notice is given once. A ``final`` offer reads the files to find
        where they end; one that a ``bound`` may cut short looks into the beginnings of files that were not seen before.
        """
        folder = self._opened()
        place = _position(position)
        self._drain = None
        published = _published(folder) if final else folder.reader.checkpoint()
        notices = self._see_watermark(published or 0, place, final=final)
        if published is None:
            notices.append(NO_PROMISE)
        if self._watermark <= checkpoint and not final:
            return Offer(self._watermark, self._watermark, notices=self._fresh(notices))
        listing, catalogue = folder.scan(place)
        notices += expiry_notices(place, self._options, lambda path: self._table_of(path, catalogue))
        protocol = detect_protocol(listing, self._options)
        exact = self._is_exact(protocol, None, folder)
        watermark, schema_bound = (MAX_TSO, MAX_TSO) if final else (self._watermark, self._schema_bound(place))
        selected = select_files(listing, catalogue, place, watermark, schema_bound, protocol=protocol, exact=exact)
        exact = self._is_exact(protocol, selected.candidates, folder)
        has_commit_ts = exact or protocol is not Protocol.CSV
        notices += self._format_notices(protocol, exact=exact)
        notices += _content_notices(listing, catalogue, place, selected)
        problems = self._problems(listing, catalogue, place, selected)
        stopped = {problem.table_id for problem in problems}
        candidates = [c for c in selected.candidates if c[2].table_id not in stopped]
        self._announced.update({stored.path: (version.table_id, stored) for stored, _, version in selected.candidates})
        if final:
            splits = ranked_splits(candidates, self._location, self._options, protocol, has_commit_ts, place)
            notices += self._look_for_the_end(splits, candidates, catalogue, checkpoint, has_commit_ts=has_commit_ts)
            watermark = max([self._rest.end, self._watermark, *versions_of(catalogue)])
            schema_bound = watermark + 1
        promised, left_bytes = None, 0
        catches_up: frozenset[TableId] = frozenset()
        self._forget_others(candidates)
        if bound is not None:
            part = self._bounded(candidates, bound, place, catalogue, protocol, watermark, exact=exact)
            if part is not None:
                left_bytes = sum(c[0].size for c in candidates) - sum(c[0].size for c in part.candidates)
                promised, watermark, schema_bound, candidates = watermark, part.hi, part.schema_bound, list(part.candidates)
                catches_up = part.catches_up
        if final and not catches_up:
            self._drain = drained(watermark, catalogue, self._published)
        splits = ranked_splits(candidates, self._location, self._options, protocol, has_commit_ts, place, self._left_out)
        notices += repeated_hour_notices(splits, self._options.csv.time_zone)
        return Offer(
            watermark=watermark,
            schema_bound=schema_bound,
            schema_changes=catalogue.changes,
            splits=splits,
            problems=problems,
            notices=self._fresh(notices),
            has_commit_ts=has_commit_ts,
            deletes_first=exact,
            promised=promised,
            left_bytes=left_bytes,
            catches_up=catches_up,
        )

    def _format_notices(self, protocol: Protocol, *, exact: bool) -> Iterator[Notice]:
        """What is lost with files of this kind."""
        if not exact:
            yield Notice(_NO_COMMIT_TS[protocol])
        if protocol is Protocol.CSV and self._options.raw_change_events and not self._options.csv.output_old_value:
            yield Notice(_LOST_KEYS)

    def _problems(self, listing: Listing, catalogue: Catalogue, place: StoragePosition, selected: Selection) -> tuple[Problem, ...]:
        """What keeps tables from being offered."""
        broken, problems = _schema_problems(catalogue, place)
        held = {path: self._table_of(path, catalogue) for path in place.open}
        return (
            *problems,
            *unknown_version_problems(selected.unknown, catalogue, broken),
            *vanished_problems(listing, place, self._unapplied(place), held),
        )

    def mark(self, position: str) -> str:
        """A mark of the checkpoint and of every file but those of sealed versions."""
        folder = self._opened()
        published = _published(folder)
        files = folder.reader.list_files(_position(position).sealed)
        # The checkpoint is written again and again, also when it stays the same.
        seen = [(file.path, file.size, file.modified) for file in files if file.path != METADATA]
        return hashlib.sha256(repr((published, seen)).encode()).hexdigest()

    def read(
        self, split: Split, window: Window, *, old_images: bool = True, tolerance: int = 0
    ) -> Iterator[ChangeBlock | SplitReport]:
        """The rows of a file inside the window, then its report."""
        if not isinstance(split, FileSplit):
            raise TypeError(f"{split.key} is no split of this source")
        return read_split(split, window, old_images, tolerance)

    def advance(self, position: str, reports: Sequence[SplitReport], progress: Progress, checkpoints: Mapping[TableId, int]) -> str:
        """The position after a cut. See the rules at :func:`file_states`; versions behind a table's checkpoint are sealed.

        Files that a table which stands still has not read yet are open too: when one vanishes, a later run has to know.
        """
        modified = {path: stored.modified for path, (_, stored) in self._announced.items()}
        self._ranges.learn((self._announced[r.split_key][1], r) for r in reports if r.split_key in self._announced)
        states = file_states(reports, progress, modified)
        read = {report.split_key for report in reports}
        for table_id, stored in self._announced.values():
            if table_id in progress.behind and stored.path not in read:
                states.append(FileState(stored.path, stored.size, stored.modified, consumed=False))
        place = self._remembering(advanced(_position(position), max(progress.hi, self._watermark), states), progress.hi)
        for path in [p for p, (table_id, _) in self._announced.items() if table_id in progress.gone or _is_done(p, place)]:
            del self._announced[path]
        if self._folder is not None:
            place = sealed_below(place, self._sealable(place, self._folder.catalogue, progress, checkpoints))
        return place.to_text()

    def _bounded(
        self,
        candidates: Sequence[Candidate],
        bound: Bound,
        place: StoragePosition,
        catalogue: Catalogue,
        protocol: Protocol,
        watermark: int,
        *,
        exact: bool,
    ) -> BoundedOffer | None:
        """The part of the offer that the bound allows, ``None`` when that is all of it."""
        counted, others = split_by_table(candidates, bound.counts)
        if sum(stored.size for stored, _, _ in counted) <= bound.limit:
            return None
        if not exact and protocol is Protocol.CSV:
            pending = [change.commit_ts for change in catalogue.changes if bound.pending(change)]
            part = bounded_by_files(counted, pending, bound.limit, bound.at_least, watermark)
        else:
            self._ranges.look_into(counted, protocol, self._options, self._opened().read_starts, bound.looked)
            stretches = [self._ranges.stretch(c, place, bound.reached(c[2].table_id)) for c in counted]
            part = catching_up_by_ts(counted, stretches, bound.limit, bound.checkpoint, exact=exact)
            if part is not None:
                theirs = [c for c in counted if c[2].table_id in part.catches_up]
                self._leave_out(theirs, part, bound)
                return part
            part = bounded_by_ts(counted, stretches, bound.limit, bound.at_least, watermark, exact=exact)
            if part is not None:
                self._leave_out(counted, part, bound)
        return None if part is None else replace(part, candidates=(*part.candidates, *others))

    def _forget_others(self, candidates: Iterable[Candidate]) -> None:
        """Forgets what it knows of files that are not among the candidates any more."""
        present = {stored for stored, _, _ in candidates}
        self._ranges.keep(present)
        self._left_out = {stored: window for stored, window in self._left_out.items() if stored in present}

    def _leave_out(self, candidates: Iterable[Candidate], part: BoundedOffer, bound: Bound) -> None:
        """Remembers which cuts do without a file, so that a row of it that belongs there does not fall by the way."""
        taken = {stored for stored, _, _ in part.candidates}
        for stored, _, version in candidates:
            if stored not in taken:
                before = self._left_out.get(stored)
                self._left_out[stored] = Window(bound.reached(version.table_id) if before is None else before.lo, part.hi)

    def _look_for_the_end(
        self,
        splits: Sequence[FileSplit],
        candidates: Sequence[Candidate],
        catalogue: Catalogue,
        checkpoint: int,
        *,
        has_commit_ts: bool,
    ) -> list[Notice]:
        """Finds where the files of a final offer end. What is taken in parts is looked through, and told, once."""
        files = frozenset(stored for stored, _, _ in candidates)
        if self._looked_through and files <= self._looked_through:
            return []
        marks = {"watermark": self._watermark, "published": self._published, "checkpoint": checkpoint}
        self._rest = find_rest(splits, catalogue, **marks)
        self._looked_through = files
        return list(rest_notices(self._rest, self._published, has_commit_ts=has_commit_ts))

    def vanished(self, position: str, table_id: TableId, since: int) -> tuple[str, ...]:
        """See ``EventSource.vanished``. Files lie under the date on which they were written; those of earlier ones do not count."""
        listing, catalogue = self._opened().scan(_BEGINNING)
        present: dict[tuple[str, str], set[int]] = {}
        for _, path in listing.data:
            present.setdefault((path.directory, path.stream), set()).add(path.number)
        # The date is one of TiCDC's time zone.
        oldest = (tso_to_datetime(since) - timedelta(days=1)).date().isoformat()
        gone = []
        for directory, streams in _position(position).consumed.items():
            parsed = parse_path(f"{directory}/{_ANY_NAME}", self._options.date_separator, catalogue.table_ids)
            if not isinstance(parsed, DataPath) or catalogue.table_of(parsed.parent, parsed.version) != table_id:
                continue
            if parsed.date and parsed.date < oldest[: len(parsed.date)]:
                continue
            for stream, intervals in streams.items():
                there = present.get((directory, stream), set())
                numbers = {number for low, high in intervals for number in range(low, high + 1)}
                gone += [f"{directory}, number {number}" for number in sorted(numbers - there)]
        return tuple(gone)

    def give_up(self, position: str, key: str) -> str:
        """See ``EventSource.give_up``: the file is named as the position holds it."""
        place = _position(position)
        held = place.open.get(key)
        if held is None:
            return position
        self._announced.pop(key, None)
        return advanced(place, place.watermark, [FileState(key, held.size, held.modified, consumed=True)]).to_text()

    def _remembering(self, place: StoragePosition, hi: int) -> StoragePosition:
        """The position with the final drain that the cut was, or without an earlier one when the watermark has passed it.

        Whatever of the drain's time was still to come is there when ``metadata`` promises it; later it can only be repeated.
        """
        drain = place.drain if self._drain is None or hi < self._drain.end else self._drain
        if drain is not None and min(self._published, hi) > drain.end:
            drain = None
        return replace(place, drain=drain)

    def _schema_bound(self, place: StoragePosition) -> int:
        """Schema changes at the watermark are not certain, unless a final drain took what there was."""
        is_drained = place.drain is not None and place.drain.end == self._watermark
        return self._watermark + 1 if is_drained else self._watermark

    def _opened(self) -> Folder:
        if self._folder is None:
            self._folder = Folder(self._location.open(), self._options)
        return self._folder

    def _see_watermark(self, read: int, place: StoragePosition, *, final: bool) -> list[Notice]:
        """Keeps the largest watermark ever seen: what was complete once stays so, whatever is written again."""
        seen = max(self._watermark, place.watermark)
        self._watermark = max(seen, read)
        promised = place.drain.published if place.drain is not None else place.watermark
        self._published = max(self._published, promised, read)
        if read >= seen:
            return []
        if place.drain is not None and read >= self._published:
            return [] if final else [went_on(place.drain, read)]
        return [
            Notice(
                f"The checkpoint in metadata went back from {seen} ({format_tso(seen)}) to {read} ({format_tso(read)}): the "
                "changefeed was resumed or created anew at an earlier time. Nothing is applied until it passes where it was."
            )
        ]

    def _fresh(self, notices: Sequence[Notice]) -> tuple[Notice, ...]:
        fresh = []
        for notice in notices:
            if (sentence := notice.sentence()) not in self._told:
                self._told.add(sentence)
                fresh.append(notice)
        return tuple(fresh)

    def _is_exact(self, protocol: Protocol, candidates: Sequence[Candidate] | None, folder: Folder) -> bool:
        """Whether rows have their exact commit ts: as configured, else by looking into a data file, once it is needed."""
        told = self._options.csv.include_commit_ts if protocol is Protocol.CSV else self._options.enable_tidb_extension
        if told is not None:
            return told
        if self._exact is None and candidates:
            self._exact = folder.peek(protocol, self._options, candidates)
        return self._exact is not False

    def _table_of(self, path: str, catalogue: Catalogue) -> TableId:
        parsed = parse_path(path, self._options.date_separator, catalogue.table_ids)
        return catalogue.table_of(parsed.parent, parsed.version) if isinstance(parsed, DataPath) else TableId(path)

    def _unapplied(self, place: StoragePosition) -> dict[str, TableId]:
        return {path: table_id for path, (table_id, _) in self._announced.items() if not _is_done(path, place)}

    def _sealable(
        self, place: StoragePosition, catalogue: Catalogue, progress: Progress, checkpoints: Mapping[TableId, int]
    ) -> dict[str, int]:
        """Per table path the version below which everything is applied and nothing is open."""
        busy: dict[str, set[int]] = {}
        for path in {*place.open, *self._announced}:
            parsed = parse_path(path, self._options.date_separator, catalogue.table_ids)
            if isinstance(parsed, DataPath):
                busy.setdefault(parsed.parent, set()).add(parsed.version)
        limits = {}
        for parent, versions in catalogue.versions.items():
            table_id = catalogue.table_of(parent)
            checkpoint = checkpoints.get(table_id, 0)
            if place.drain is not None:
                # What comes late all the same has to be seen.
                checkpoint = min(checkpoint, place.drain.published)
            if checkpoint and table_id not in progress.stopped:
                # What a restart begins is no end of what is older: a changefeed that goes on from earlier writes there again.
                changes = [number for number, version in versions.items() if version.statement]
                limits[parent] = newest_sealable(changes, checkpoint, busy.get(parent, ()))
        return {parent: limit for parent, limit in limits.items() if limit}


class StorageMetadataAccessor:
    """Databases, tables and shapes as the schema files tell them. The contract is ``MetadataAccessor``."""

    def __init__(self, location: StoreLocation, options: StorageOptions) -> None:
        self._location = location
        self._options = options

    def list_databases(self) -> list[str]:
        """The databases that a schema file names, sorted. Those without tables are missing in table-id mode."""
        return sorted(self._catalogue().databases)

    def list_tables(self, database: str) -> list[TableId]:
        """The tables that exist after all schema changes, sorted."""
        return sorted(table for table in self._catalogue().tables if table.database == database)

    def get_table_schema(self, table_id: TableId) -> TableSchema:
        """The newest shape. Raises ``KeyError`` for an unknown table."""
        return self._catalogue().tables[table_id]

    def _catalogue(self) -> Catalogue:
        return Folder(self._location.open(), self._options).scan(StoragePosition())[1]


def file_states(reports: Sequence[SplitReport], progress: Progress, modified: Mapping[str, int]) -> list[FileState]:
    """What a cut made of each file that was read in it; ``modified`` are the files' modification times.

    A file is consumed when its table is not stopped, it has no problem and nothing above the window, and its last record is
    whole; or when its last record is cut off and a later file of the table repeats it (what TiCDC does after a crash).
    """
    states = []
    for report in reports:
        good = report.table_id not in progress.stopped and report.problem is None
        pending = report.pending_ts if good else None
        consumed = good and pending is None and (not report.truncated or is_repeated(report, reports))
        states.append(FileState(report.split_key, report.size, modified.get(report.split_key, 0), consumed, pending))
    return states


def _published(folder: Folder) -> int | None:
    """The checkpoint in ``metadata``, ``None`` when the changefeed has never written one."""
    try:
        return folder.reader.checkpoint()
    except NoWatermarkError:
        return None


def _position(text: str) -> StoragePosition:
    try:
        return StoragePosition.parse(text)
    except ValueError:
        raise DefinitionError(
            "The ledger's position is not one of this source.", "Was the pipeline's source of another kind before?"
        ) from None


def _is_done(path: str, place: StoragePosition) -> bool:
    """Whether nothing of the file needs reading any more; the layout does not matter for that."""
    directory, _, name = path.rpartition("/")
    parsed = parse_data_name(name)
    if parsed is None or is_sealed(directory, place.sealed):
        return True
    return place.is_consumed_at(directory, *parsed[:2], path)


def _schema_problems(catalogue: Catalogue, place: StoragePosition) -> tuple[set[tuple[str, int]], tuple[Problem, ...]]:
    """The catalogue's problems that still matter, and the path and version of each schema file that cannot be used."""
    broken = set()
    problems = []
    for problem in catalogue.problems:
        path = parse_path(problem.file) if problem.file else None
        if isinstance(path, SchemaPath):
            if path.version < place.sealed.get(path.parent, 0):
                continue
            broken.add((path.parent, path.version))
        problems.append(problem)
    return broken, tuple(problems)


def _content_notices(listing: Listing, catalogue: Catalogue, place: StoragePosition, selected: Selection) -> Iterator[Notice]:
    """What is to be told of the files that are there."""
    yield from catalogue.notices
    yield from misplaced_notices(listing)
    yield from selected.notices
    yield from mixed_partition_notices(selected.candidates, catalogue)
    yield from _gap_notices(listing, place, catalogue, selected.candidates)
    if place.drain is not None:
        yield from late_schema_files(place.drain, catalogue)


def _gap_notices(
    listing: Listing, place: StoragePosition, catalogue: Catalogue, candidates: Sequence[Candidate]
) -> Collection[Notice]:
    tables = {path.directory: version.table_id for _, path, version in candidates}
    return [
        gap_notice(directory, dispatcher, missing, tables[directory])
        for (directory, dispatcher), missing in gaps(listing, place, tables.keys()).items()
    ]
