"""TiCDC's storage sink output as a source: poll, read, advance."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

from headrace.errors import DefinitionError, NoWatermarkError
from headrace.model.block import ChangeBlock
from headrace.model.cut import CutOutcome
from headrace.model.events import SchemaChange
from headrace.model.offer import Offer
from headrace.model.outcome import Notice, Problem, SplitReport
from headrace.model.recent import Recent
from headrace.model.split import HeldSplit, Split, Window
from headrace.model.table import Column, TableId, TableSchema
from headrace.model.tso import MAX_TSO, format_tso, tso_to_datetime
from headrace.model.uri import parse_uri
from headrace.sources.base import Bound
from headrace.sources.ticdc_storage.accessor import StorageMetadataAccessor
from headrace.sources.ticdc_storage.bounded_offer import (
    BoundedOffer,
    Ranges,
    bounded_by_files,
    bounded_by_ts,
    catching_up_by_ts,
    split_by_table,
)
from headrace.sources.ticdc_storage.catalogue import Catalogue
from headrace.sources.ticdc_storage.final_drain import (
    NO_PROMISE,
    Rest,
    drained,
    find_rest,
    rest_notices,
    versions_of,
    went_on,
)
from headrace.sources.ticdc_storage.folder import Folder
from headrace.sources.ticdc_storage.intervals import format_intervals
from headrace.sources.ticdc_storage.omitted_files import LeftOutFiles
from headrace.sources.ticdc_storage.options import Protocol, StorageOptions, read_options
from headrace.sources.ticdc_storage.paths import METADATA, DataPath, SchemaPath, first_file_in, parse_data_name, parse_path
from headrace.sources.ticdc_storage.position import UNSETTLED, Drain, FileState, StoragePosition
from headrace.sources.ticdc_storage.position_update import adopted, advanced, file_states
from headrace.sources.ticdc_storage.reader import Listing
from headrace.sources.ticdc_storage.reread import without
from headrace.sources.ticdc_storage.retention import expiry_notices, held_files
from headrace.sources.ticdc_storage.rewritten import Rewritten
from headrace.sources.ticdc_storage.seals import Directories, sealed
from headrace.sources.ticdc_storage.split_selection import (
    Candidate,
    Selection,
    content_notices,
    detect_protocol,
    gaps,
    ranked_splits,
    repeated_hour_notices,
    select_files,
    unknown_versions,
    unlisted_problems,
    vanished_problems,
)
from headrace.sources.ticdc_storage.splits import FileSplit, read_split
from headrace.sources.ticdc_storage.stores import StoredFile, StoreLocation, store_location
from headrace.sources.ticdc_storage.taken_files import Taking
from headrace.sources.ticdc_storage.unread import owner_of, unread_changes, unread_files
from headrace.sources.ticdc_storage.vanished_files import gone_files, is_of_earlier_date, lost_files, without_rows_above

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
        """See ``DataSource.held``. Of a folder that is named by a table id the position remembers the table."""
        return held_files(_position(position), self.options)


class StorageEventSource:
    """The stream of changes in a changefeed's folder. The contract is :class:`headrace.sources.base.EventSource`.

    What it remembers between polls only saves work and words; it pickles without it.
    """

    needs_shapes = False
    """Schema files stay."""

    def __init__(self, location: StoreLocation, options: StorageOptions) -> None:
        self._location = location
        self._options = options
        self._folder: Folder | None = None
        self._watermark = 0
        self._published = 0
        self._drain: Drain | None = None
        self._announced: dict[str, tuple[TableId, StoredFile]] = {}
        self._told = Recent[str]()
        self._exact: bool | None = None
        self._ranges = Ranges()
        self._left_out = LeftOutFiles()
        self._unchanged: set[StoredFile] = set()
        self._contents: dict[StoredFile, int] = {}
        self._directories = Directories(options.date_separator)
        self._unknown_times: dict[str, int] = {}
        self._forgotten: tuple[str, ...] = ()
        self._looked_through: frozenset[StoredFile] = frozenset()
        self._rest = Rest(0, 0, 0)

    def __reduce__(self) -> tuple[type[StorageEventSource], tuple[StoreLocation, StorageOptions]]:
        return (StorageEventSource, (self._location, self._options))

    def poll(self, position: str, checkpoint: int, *, final: bool = False, bound: Bound | None = None) -> Offer:
        """What there is that may not be applied yet: the watermark first, then a listing, unless the watermark has not moved.

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
        place = self._adopting(listing, place)
        notices += expiry_notices(place, self._options, lambda path: self._table_of(path, catalogue))
        protocol = detect_protocol(listing, self._options)
        watermark, schema_bound = (MAX_TSO, MAX_TSO) if final else (self._watermark, self._schema_bound(place))
        selected, uncertain, exact = self._selected(folder, listing, catalogue, place, protocol, (watermark, schema_bound))
        has_commit_ts = exact or protocol is not Protocol.CSV
        notices += self._format_notices(protocol, exact=exact)
        notices += content_notices(listing, catalogue, place, selected)
        unread = self._unread(catalogue, place, selected)
        vanished = (*self._vanished(listing, catalogue, place), *uncertain)
        stopped = {problem.table_id for problem in vanished}
        candidates = [c for c in selected.candidates if c[2].table_id not in stopped]
        self._announced.update({stored.path: (version.table_id, stored) for stored, _, version in selected.candidates})
        if final:
            splits = ranked_splits(candidates, self._location, self._options, protocol, has_commit_ts, place)
            notices += self._look_for_the_end(splits, candidates, catalogue, checkpoint, has_commit_ts=has_commit_ts)
            watermark = max([self._rest.end, self._watermark, *versions_of(catalogue)])
            schema_bound = watermark + 1
        self._left_out.recall(candidates, place)
        promised, left_bytes = None, 0
        catches_up: frozenset[TableId] = frozenset()
        self._forget_others(candidates)
        if exact:
            self._look_for_early(candidates, catalogue, protocol, bound or Bound(0))
        if bound is not None:
            changes = (*catalogue.changes, *unread)
            part = self._bounded(candidates, bound, place, changes, protocol, watermark, exact=exact)
            if part is not None:
                left_bytes = sum(c[0].size for c in candidates) - sum(c[0].size for c in part.candidates)
                promised, watermark, schema_bound, candidates = watermark, part.hi, part.schema_bound, list(part.candidates)
                catches_up = part.catches_up
        if final and not catches_up:
            self._drain = drained(watermark, catalogue, self._published)
        splits = ranked_splits(
            candidates, self._location, self._options, protocol, has_commit_ts, place, self._left_out.windows, self._ranges.early
        )
        notices += repeated_hour_notices(splits, self._options.csv.time_zone)
        return Offer(
            watermark=watermark,
            schema_bound=schema_bound,
            schema_changes=_by_bytes(catalogue.changes) if self._options.new_collations is False else catalogue.changes,
            splits=splits,
            problems=(*(c.unread for c in unread if c.unread is not None and c.table_id.table), *vanished),
            notices=self._fresh(notices),
            has_commit_ts=has_commit_ts,
            deletes_first=exact,
            new_collations=self._options.new_collations,
            updates_alone=protocol is Protocol.CSV,
            promised=promised,
            left_bytes=left_bytes,
            catches_up=catches_up,
            unread=unread,
        )

    def _selected(
        self,
        folder: Folder,
        listing: Listing,
        catalogue: Catalogue,
        place: StoragePosition,
        protocol: Protocol,
        bounds: tuple[int, int],
    ) -> tuple[Selection, Sequence[Problem], bool]:
        """The files that may hold rows below the watermark and the bound for schema changes, and whether commit ts are exact.

        The problems are of files that may have been applied before, where nothing tells.
        """

        def select(*, exact: bool) -> Selection:
            return select_files(listing, catalogue, place, *bounds, protocol=protocol, exact=exact, unchanged=self._unchanged)

        exact = self._is_exact(protocol, None, folder)
        selected = select(exact=exact)
        if exact and not (exact := self._is_exact(protocol, selected.candidates, folder)):
            selected = select(exact=False)
        judge = Rewritten(place, catalogue, bounds[1], self._options.date_separator).judge
        judged = judge(selected.suspects, self._opened().content)
        self._unchanged |= judged.applied.keys()
        self._contents |= judged.applied
        candidates, notices = (*selected.candidates, *judged.changed), (*selected.notices, *judged.notices)
        return replace(selected, candidates=candidates, notices=notices), judged.problems, exact

    def _format_notices(self, protocol: Protocol, *, exact: bool) -> Iterator[Notice]:
        """What is lost with files of this kind."""
        if not exact:
            yield Notice(_NO_COMMIT_TS[protocol])
        if protocol is Protocol.CSV and self._options.raw_change_events and not self._options.csv.output_old_value:
            yield Notice(_LOST_KEYS)

    def _unread(self, catalogue: Catalogue, place: StoragePosition, selected: Selection) -> tuple[SchemaChange, ...]:
        """What schema files that are missing or cannot be read may do. Data files that need them are not lost sight of."""
        broken = _schema_problems(catalogue, place)
        known = {(path.parent, path.version) for problem in broken if isinstance(path := parse_path(problem.file), SchemaPath)}
        missing = unknown_versions(selected.unknown, catalogue, known)
        rows_at = {(path.parent, path.version) for _, path in selected.unknown}
        files = unread_files(catalogue, broken, missing, rows_at, self._options.use_table_id_as_path)
        changes = unread_changes(catalogue, files)
        owners = {(file.parent, file.version): owner for file in files if (owner := owner_of(catalogue, file)) is not None}
        for stored, path in selected.unknown:
            if (owner := owners.get((path.parent, path.version))) is not None:
                self._announced[stored.path] = (owner, stored)
        return changes

    def _vanished(self, listing: Listing, catalogue: Catalogue, place: StoragePosition) -> tuple[Problem, ...]:
        """What keeps tables from being offered whole: folders that cannot be listed, and files that are not there any more."""
        return (
            *unlisted_problems(listing, place, catalogue.table_of),
            *vanished_problems(listing, place, self._unapplied(place), lambda path: self._table_of(path, catalogue)),
        )

    def mark(self, position: str) -> str:
        """A mark of the checkpoint and of every file."""
        folder = self._opened()
        published = _published(folder)
        files = folder.reader.list_files()
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

    def advance(
        self, position: str, reports: Sequence[SplitReport], progress: CutOutcome, checkpoints: Mapping[TableId, int]
    ) -> str:
        """The position after a cut. See the rules at :class:`Taking` and :func:`file_states`."""
        place = self._taking(position, self._announced).place_after(reports, progress)
        self._unknown_times, self._forgotten, self._unchanged, self._contents = {}, (), set(), {}
        self._ranges.learn((self._announced[r.split_key][1], r) for r in reports if r.split_key in self._announced)
        for path in [p for p, (table_id, _) in self._announced.items() if table_id in progress.gone or _is_done(p, place)]:
            del self._announced[path]
        if self._folder is not None:
            catalogue = self._folder.catalogue
            damaged = unread_files(catalogue, _schema_problems(catalogue, place), (), (), self._options.use_table_id_as_path)
            unread = unread_changes(catalogue, damaged)
            place = sealed(place, self._announced, catalogue, self._directories, progress, checkpoints, unread)
        return place.to_text()

    def taking(self, position: str, keys: Collection[str]) -> Taking:
        """See ``EventSource.taking``. It goes to a task, so what the position names already is left out."""
        place = _position(position)
        wanted = {path: entry for path, entry in self._announced.items() if path in keys or not place.is_open(path)}
        return self._taking(position, wanted)

    def begin(self, position: str, splits: Collection[Split], hi: int) -> str:
        """See ``EventSource.begin``. A file that came late stays unknown, so that this is told however often the cut breaks off."""
        paths = [split.key for split in splits if not (isinstance(split, FileSplit) and split.is_behind)]
        return self._taking(position, self._announced).begun(paths, hi).to_text()

    def _taking(self, position: str, announced: Mapping[str, tuple[TableId, StoredFile]]) -> Taking:
        place = adopted(_position(position), self._unknown_times, self._forgotten)
        if self._folder is not None:
            place = replace(place, owners=self._folder.catalogue.owners_by_id())
            catalogue = self._folder.catalogue
            begun = {p: (self._table_of(p, catalogue), StoredFile(p, 0, 0)) for p in place.begun_files() if p not in announced}
            announced = {**announced, **begun}
        unchanged = (FileState(f.path, f.size, f.modified, consumed=True, content=self._contents.get(f)) for f in self._unchanged)
        return Taking(place, self._watermark, self._published, announced, self._left_out, tuple(unchanged), self._drain)

    def consumed(self, position: str, reports: Sequence[SplitReport]) -> str:
        """See ``EventSource.consumed``."""
        place = _position(position)
        place = advanced(place, place.watermark, file_states(reports, CutOutcome(place.watermark), self._modified(reports)))
        for path in [r.split_key for r in reports if _is_done(r.split_key, place)]:
            self._announced.pop(path, None)
        return place.to_text()

    def _modified(self, reports: Iterable[SplitReport]) -> dict[str, int]:
        """When each of the files was written (ns)."""
        return {key: self._announced[key][1].modified for key in (r.split_key for r in reports) if key in self._announced}

    def _bounded(
        self,
        candidates: Sequence[Candidate],
        bound: Bound,
        place: StoragePosition,
        changes: Sequence[SchemaChange],
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
            part = bounded_by_files(counted, bound.pending(changes), bound.limit, bound.at_least, watermark)
        else:
            self._ranges.look_into(counted, protocol, self._options, self._opened().read_starts, bound.looked)
            self._left_out.extend(counted, self._ranges.firsts, bound.reached)
            stretches = [self._ranges.stretch(c, place, bound.reached(c[2].table_id)) for c in counted]
            part = catching_up_by_ts(counted, stretches, bound.limit, bound.checkpoint, exact=exact)
            if part is not None:
                theirs = [c for c in counted if c[2].table_id in part.catches_up]
                self._left_out.leave(theirs, part.files, part.hi, bound.reached)
                return part
            part = bounded_by_ts(counted, stretches, bound.limit, bound.at_least, watermark, exact=exact)
            if part is not None:
                self._left_out.leave(counted, part.files, part.hi, bound.reached)
        return None if part is None else replace(part, candidates=(*part.candidates, *others))

    def _look_for_early(self, candidates: Sequence[Candidate], catalogue: Catalogue, protocol: Protocol, bound: Bound) -> None:
        """Finds the files with rows that count below their version."""

        def look(files: list[Candidate]) -> None:
            if files:
                self._ranges.look_into(files, protocol, self._options, self._opened().read_starts, bound.looked)

        self._ranges.look_for_early(candidates, catalogue, bound.reached, look)

    def _forget_others(self, candidates: Iterable[Candidate]) -> None:
        """Forgets what it knows of files that are not among the candidates any more."""
        present = {stored for stored, _, _ in candidates}
        self._ranges.keep(present)
        self._left_out.keep(present)

    def _adopting(self, listing: Listing, place: StoragePosition) -> StoragePosition:
        """The position with what an older Headrace did not write down, as it is found now; the next cut writes it down."""
        unsettled = {directory for directory, modified in place.settled.items() if modified == UNSETTLED}
        if not unsettled and not place.unknown_below:
            return place
        forgotten = []
        newest: dict[str, int] = {}
        for stored, path in listing.data:
            below = path.version < place.unknown_below.get(path.parent, 0)
            if below and stored.size and not place.is_open(stored.path):
                forgotten.append(stored.path)
            if below or path.directory in unsettled:
                newest[path.directory] = max(newest.get(path.directory, 0), stored.modified)
        self._unknown_times, self._forgotten = newest, tuple(forgotten)
        return adopted(place, newest, forgotten)

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
        place = _position(position)
        listing, catalogue = self._opened().scan(StoragePosition(owners=place.owners))
        theirs = (d for d in place.consumed_directories() if self._parent_of(d, table_id, since, catalogue) is not None)
        return tuple(f"{directory}, number {number}" for directory, _, number in gone_files(place, theirs, listing))

    def missing_again(self, former: str, position: str) -> str:
        """See ``EventSource.missing_again``."""
        known, place = _position(former), _position(position)
        listing, _ = self._opened().scan(StoragePosition(owners=known.owners))
        extension = detect_protocol(listing, self._options).extension
        lost = [path for path in lost_files(known, place, listing, extension) if not place.is_open(path)]
        states = [FileState(path, 0, 0, consumed=False) for path in lost]
        return advanced(place, place.watermark, states).to_text() if states else position

    def read_again(self, position: str, table_id: TableId, since: int) -> str:
        """See ``EventSource.read_again``. As in :meth:`vanished` files of earlier dates hold no rows above ``since``."""
        place = _position(position)
        _, catalogue = self._opened().scan(place)

        def parent_of(directory: str) -> str | None:
            return self._parent_of(directory, table_id, since, catalogue)

        read = {*place.consumed_directories(), *place.settled, *(path.rpartition("/")[0] for path in place.open)}
        parents = {parent for parent in map(parent_of, read) if parent is not None}
        parents |= {parent for parent in place.unknown_below if catalogue.table_of(parent) == table_id}
        return without(place, parents, lambda directory: parent_of(directory) is not None).to_text()

    def _parent_of(self, directory: str, table_id: TableId, since: int, catalogue: Catalogue) -> str | None:
        """The folder of the table, if files of this directory are its and may hold rows above a commit ts (TSO)."""
        parsed = first_file_in(directory, self._options.date_separator, catalogue.table_ids)
        if parsed is None or catalogue.table_of(parsed.parent, parsed.version) != table_id:
            return None
        return None if is_of_earlier_date(parsed.date, since) else parsed.parent

    def missing(self, position: str, table_id: TableId, since: int) -> str:
        """See ``EventSource.missing``: what TiCDC may have removed by its age, and holes in the numbers of files not read yet."""
        place, days = _position(position), self._options.expiration_days
        # A file's date is the writer's local one, and so is that of the removal.
        oldest = tso_to_datetime(max(self._watermark, place.watermark)) - timedelta(days=days - 2)
        if days and tso_to_datetime(since).date() < oldest.date():
            return f"TiCDC removes files after {days} days (file-expiration-days)."
        listing, catalogue = self._opened().scan(place)
        directories = set()
        for _, path in listing.data:
            versions = catalogue.versions.get(path.parent, {})
            ended = max((v for v, known in versions.items() if v <= since and known.statement), default=0)
            if path.version >= ended and catalogue.table_of(path.parent, path.version) == table_id:
                directories.add(path.directory)
        for (directory, _), missing in sorted(gaps(listing, place, directories, unread=True).items()):
            return f"file numbers {format_intervals(missing)} in {directory} are missing."
        vanished = vanished_problems(listing, place, {}, lambda path: self._table_of(path, catalogue))
        gone = next((problem.file for problem in vanished if problem.table_id == table_id), "")
        return f"{gone} is missing." if gone else ""

    def give_up(self, position: str, table_id: TableId, key: str) -> str:
        """See ``EventSource.give_up``: the file is named as the position holds it; one that is there counts as it is now."""
        place = _position(position)
        if parse_data_name(_name(key)) is None:
            return position
        folder = self._opened()
        _, catalogue = folder.scan(place)
        stored = folder.stat(key)
        parsed = parse_path(key, self._options.date_separator, catalogue.table_ids)
        if not isinstance(parsed, DataPath):
            return position
        theirs = {*catalogue.owners(parsed.parent).values()} or {catalogue.table_of(parsed.parent)}
        if table_id not in theirs and any(owner.table for owner in theirs):
            return position
        rewritten = stored is not None and place.is_consumed(parsed) and place.is_changed(parsed, stored.size, stored.modified)
        if not rewritten and not place.is_open(key):
            return position
        self._announced.pop(key, None)
        found = stored or StoredFile(key, 0, 0)
        content = None if stored is None else folder.content(stored)
        state = FileState(key, found.size, found.modified, consumed=True, content=content)
        return advanced(place, place.watermark, [state]).to_text()

    def forget_vanished(
        self, position: str, loaded: Mapping[TableId, int], ended: Mapping[TableId, int]
    ) -> tuple[str, frozenset[str]]:
        """See ``EventSource.forget_vanished``. What has ended goes on in no version of before."""
        place = _position(position)
        listing, catalogue = self._opened().scan(place)
        gone: dict[DataPath, TableId] = {}
        for problem in self._vanished(listing, catalogue, place):
            path = parse_path(problem.file, self._options.date_separator, catalogue.table_ids)
            if isinstance(path, DataPath):
                gone[path] = problem.table_id
        needless = {path.key for path, table_id in gone.items() if path.version < ended.get(table_id, 0)}
        of_loaded = {path: table_id for path, table_id in gone.items() if table_id in loaded and path.key not in needless}
        if of_loaded:

            def firsts(files: Sequence[Candidate]) -> Mapping[StoredFile, int]:
                protocol = detect_protocol(listing, self._options)
                self._ranges.look_into(files, protocol, self._options, self._opened().read_starts, lambda done, total: None)
                return self._ranges.firsts

            needless |= without_rows_above(of_loaded, loaded, listing, catalogue, firsts)
        for key in needless:
            self._announced.pop(key, None)
        states = [FileState(key, 0, 0, consumed=True) for key in sorted(needless)]
        return (advanced(place, place.watermark, states).to_text() if needless else position), frozenset(needless)

    def forget_lives(self, position: str, ended: Mapping[TableId, int]) -> str:
        """See ``EventSource.forget_lives``."""
        place = _position(position)
        listing, catalogue = self._opened().scan(place)
        files = [f for f in listing.data if not place.is_consumed(f[1])]
        files = [f for f in files if f[1].version < ended.get(catalogue.table_of(f[1].parent, f[1].version), 0)]
        for stored, _ in files:
            self._announced.pop(stored.path, None)
        states = [FileState(stored.path, stored.size, stored.modified, consumed=True) for stored, _ in files if stored.size]
        return advanced(place, place.watermark, states).to_text() if states else position

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
        return tuple(notice for notice in notices if self._told.add(notice.sentence()))

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


def _by_bytes(changes: tuple[SchemaChange, ...]) -> tuple[SchemaChange, ...]:
    return tuple(replace(change, by_bytes=True) for change in changes)


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


def _name(path: str) -> str:
    return path.rpartition("/")[2]


def _is_done(path: str, place: StoragePosition) -> bool:
    """Whether nothing of the file needs reading any more; the layout does not matter for that."""
    directory, _, name = path.rpartition("/")
    parsed = parse_data_name(name)
    return parsed is None or place.is_consumed_at(directory, *parsed[:2], path)


def _schema_problems(catalogue: Catalogue, place: StoragePosition) -> list[Problem]:
    """The catalogue's problems that still matter: not those of versions that every row has passed."""
    problems = []
    for problem in catalogue.problems:
        path = parse_path(problem.file)
        if not isinstance(path, SchemaPath) or path.version >= place.passed.get(path.parent, 0):
            problems.append(problem)
    return problems
