"""The output of TiCDC's storage sink as a source: poll, read, advance."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

from headrace.errors import DefinitionError
from headrace.formats.storage_paths import METADATA, DataPath, first_file_in, parse_data_name, parse_path, path_of
from headrace.model.block import ChangeBlock
from headrace.model.cut import CutOutcome
from headrace.model.inspection import Checkup, Inspection
from headrace.model.offer import Learned, Offer
from headrace.model.outcome import SplitReport
from headrace.model.place import SourcePlace, file_of
from headrace.model.split import HeldSplit, Split, Window
from headrace.model.table import Column, TableId, TableSchema
from headrace.model.tso import tso_to_datetime
from headrace.model.uri import NO_OPTIONS, ConnectorOptions, parse_uri, reject_unknown, text_of
from headrace.sources.base import Bound, KeptShapes, Progress
from headrace.sources.ticdc_storage.accessor import StorageMetadataAccessor
from headrace.sources.ticdc_storage.catalogue import Catalogue
from headrace.sources.ticdc_storage.folder import Folder
from headrace.sources.ticdc_storage.forgetting import gone_since
from headrace.sources.ticdc_storage.inspection import inspect_folder
from headrace.sources.ticdc_storage.intervals import format_intervals
from headrace.sources.ticdc_storage.learned import Announced, StorageLearned, learned_of
from headrace.sources.ticdc_storage.options import Protocol, StorageOptions, read_options
from headrace.sources.ticdc_storage.poll import Poll, published_in, schema_problems, table_of
from headrace.sources.ticdc_storage.position import FileState, StoragePosition, fingerprint
from headrace.sources.ticdc_storage.position_update import advanced, dropped, file_states
from headrace.sources.ticdc_storage.reader import Listing
from headrace.sources.ticdc_storage.reread import earlier, without
from headrace.sources.ticdc_storage.retention import held_files
from headrace.sources.ticdc_storage.row_checks import check_folder
from headrace.sources.ticdc_storage.seals import sealed
from headrace.sources.ticdc_storage.split_selection import (
    Candidate,
    detect_protocol,
    gaps,
    of_extension,
    of_protocol,
    unlisted_problems,
    vanished_problems,
)
from headrace.sources.ticdc_storage.splits import FileSplit, read_split
from headrace.sources.ticdc_storage.stores import StoredFile, StoreLocation, store_location
from headrace.sources.ticdc_storage.taken_files import Taking
from headrace.sources.ticdc_storage.unread import unread_changes, unread_files
from headrace.sources.ticdc_storage.vanished_files import (
    gone_files,
    is_of_earlier_date,
    lost_files,
    lost_unread_files,
    without_rows_above,
)

_OPTIONS = frozenset({"changefeed"})


def open_source(uri: str, options: ConnectorOptions = NO_OPTIONS) -> TicdcStorageSource:
    """The source that a storage URI names.

    The option ``changefeed`` is the path of a changefeed file, for settings that are not in the URI. Accesses neither network nor
    disk, except for the changefeed file. Raises DefinitionError.
    """
    reject_unknown(options, _OPTIONS, "option of a storage source")
    parsed = parse_uri(uri)
    changefeed = text_of(options, "changefeed")
    return TicdcStorageSource(parsed.redacted().rstrip("/"), store_location(parsed), read_options(parsed, changefeed))


@dataclass(frozen=True)
class TicdcStorageSource:
    """A changefeed's folder as a :class:`headrace.sources.base.DataSource`."""

    identity: str
    location: StoreLocation
    options: StorageOptions

    @property
    def event_source(self) -> StorageEventSource:
        """A new stream of changes that has no state except the position."""
        return StorageEventSource(self.location, self.options)

    @property
    def metadata_accessor(self) -> StorageMetadataAccessor:
        """The objects in the folder, according to its schema files."""
        return StorageMetadataAccessor(self.location, self.options)

    def carried(self, schema: TableSchema) -> tuple[Column, ...]:
        """See ``DataSource.carried``: column selectors leave columns out, with both protocols."""
        return self.options.csv.columns(schema)

    def inspect(self, *, count_rows: bool = False) -> Inspection:
        """See ``InspectableSource.inspect``."""
        return inspect_folder(self.location, self.options, count_rows=count_rows)

    def check(self, progress: Progress = lambda _done, _all: None) -> Checkup:
        """See ``InspectableSource.check``."""
        return check_folder(self.location, self.options, progress)

    def held(self, position: str) -> tuple[HeldSplit, ...]:
        """See ``DataSource.held``. For a folder named by a table id, the table is taken from the position."""
        return held_files(_position(position), self.options)


class StorageEventSource:
    """The stream of changes in a changefeed's folder. The contract is :class:`headrace.sources.base.EventSource`.

    Its cache of the folder only saves work, and is not pickled. What a poll learns is in its offer.
    """

    needs_shapes = False
    """Schema files stay in the folder."""

    def __init__(self, location: StoreLocation, options: StorageOptions) -> None:
        self._location = location
        self._options = options
        self._folder: Folder | None = None

    def __reduce__(self) -> tuple[type[StorageEventSource], tuple[StoreLocation, StorageOptions]]:
        return (StorageEventSource, (self._location, self._options))

    def poll(
        self,
        position: str,
        checkpoint: int,
        *,
        final: bool = False,
        bound: Bound | None = None,
        learned: Learned | None = None,
        shapes: KeptShapes | None = None,
    ) -> Offer:
        """What may not be applied yet: reads the watermark first, then lists the folder, unless the watermark has not moved.

        Files of tables with a problem are not offered. A ``final`` offer reads the files to find where they end. An offer that a
        ``bound`` may limit reads the beginning of each new file.
        """
        place = _position(position)
        known = learned.at(place) if isinstance(learned, StorageLearned) else StorageLearned()
        return Poll(self._opened(), self._location, self._options, place, known, checkpoint, final, bound).offer()

    def mark(self, position: str) -> str:
        """A mark of the checkpoint and of every file."""
        folder = self._opened()
        published = published_in(folder)
        files = folder.reader.read_files()
        # TiCDC keeps rewriting the checkpoint, even if it does not change.
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
        self,
        position: str,
        offer: Offer,
        reports: Sequence[SplitReport],
        progress: CutOutcome,
        checkpoints: Mapping[TableId, int],
    ) -> str:
        """The position after a cut. For the rules see :class:`Taking` and :func:`file_states`."""
        learned = learned_of(offer)
        place = self._taking(position, learned, learned.announced).place_after(reports, progress)
        if (catalogue := learned.catalogue) is not None:
            damaged = unread_files(catalogue, schema_problems(catalogue, place), (), (), self._options.use_table_id_as_path)
            unread = unread_changes(catalogue, damaged)
            announced = learned.without(progress.gone).at(place).announced
            # Files without commit ts that reappear would be applied again.
            is_told = learned.exact is not None and offer.precision.has_commit_ts
            listing = learned.listing if is_told else None
            place = sealed(place, announced, catalogue, self._opened().directories, progress, checkpoints, unread, listing)
        return place.to_text()

    def taking(self, position: str, offer: Offer, keys: Collection[str]) -> Taking:
        """See ``EventSource.taking``. The result goes to a task, so it does not include what is already in the position."""
        place, learned = _position(position), learned_of(offer)
        wanted = {path: entry for path, entry in learned.announced.items() if path in keys or not place.is_open(path)}
        return self._taking(position, learned, wanted)

    def begin(self, position: str, offer: Offer, splits: Collection[Split], hi: int) -> str:
        """See ``EventSource.begin``. A file that came late stays unknown, so that it is reported again if the cut is aborted."""
        paths = [split.key for split in splits if not (isinstance(split, FileSplit) and split.is_behind)]
        learned = learned_of(offer)
        return self._taking(position, learned, learned.announced).begun(paths, hi).to_text()

    def _taking(self, position: str, learned: StorageLearned, announced: Announced) -> Taking:
        place = _position(position)
        if learned.extension and (self._options.protocol or place.applied_extension):
            place = place.owning(learned.extension)
        place = learned.forgotten.adopted_by(place.of_files(learned.extension))
        if (catalogue := learned.catalogue) is not None:
            place = replace(place, owners=catalogue.owners_by_id())
            begun = {path: table_of(path, catalogue, self._options) for path in place.begun_files() if path not in announced}
            known = {path: (table_id, StoredFile(path, 0, 0)) for path, table_id in begun.items() if table_id is not None}
            announced = {**announced, **known}
        return Taking(place, learned.watermark, learned.published, announced, learned.left_out, learned.unchanged, learned.drain)

    def consumed(self, position: str, offer: Offer, reports: Sequence[SplitReport]) -> str:
        """See ``EventSource.consumed``."""
        place, announced = _position(position), learned_of(offer).announced
        modified = {r.split_key: announced[r.split_key][1].modified for r in reports if r.split_key in announced}
        return advanced(place, place.watermark, file_states(reports, CutOutcome(place.watermark), modified)).to_text()

    def vanished(self, position: str, table_id: TableId, since: int) -> tuple[str, ...]:
        """See ``EventSource.vanished``. A file is in the folder of the date on which it was written; earlier dates do not count."""
        place = _position(position)
        whole, catalogue, protocol = self._scan_whole(place, StoragePosition(owners=place.owners))
        found: list[str] = []
        for extension, counting in sorted(
            _of_each(place, protocol.extension).items(), key=lambda each: each[0] != protocol.extension
        ):
            is_own = extension == protocol.extension
            if is_own or extension in place.own_extensions:
                listing, kind = of_extension(whole, extension), "" if is_own else f" (.{extension})"
                theirs = (d for d in counting.consumed_directories() if self._parent_of(d, table_id, since, catalogue) is not None)
                for directory, stream, number in gone_files(counting, theirs, listing):
                    if is_own or path_of(directory, f"{stream}.{extension}", number) not in place.given_up:
                        found.append(f"{directory}, number {number}{kind}")
                found += (
                    f"{parent}, whatever was written{f' up to {gone.day}' if gone.day else ''} and removed{kind}"
                    for parent, gone in counting.gone.items()
                    if (gone.undated or (gone.day and not is_of_earlier_date(gone.day, since)))
                    and _is_of(table_id, parent, catalogue)
                )
        return (*found, *self._of_former_protocol(whole, catalogue, place, protocol, table_id, since))

    def _of_former_protocol(
        self, whole: Listing, catalogue: Catalogue, place: StoragePosition, protocol: Protocol, table_id: TableId, since: int
    ) -> Iterator[str]:
        """A sentence for each file that is there and is not read again, because its protocol is not the changefeed's any more."""
        for stored, path in whole.data:
            if path.extension == protocol.extension or path.extension not in place.own_extensions or path.key in place.given_up:
                continue
            if not (place.is_consumed(path) or place.is_open(path.key)):
                continue
            is_over = path.version < _ended(catalogue, path.parent, since)
            if not is_over and self._parent_of(path.directory, table_id, since, catalogue) is not None:
                yield f"{stored.path} is .{path.extension}, and the protocol is {protocol} now: it is not read again."

    def missing_again(self, former: str, position: str) -> str:
        """See ``EventSource.missing_again``."""
        known, place = _position(former), _position(position)
        whole, catalogue, protocol = self._scan_whole(known, StoragePosition(owners=known.owners))
        lost = dict.fromkeys(lost_unread_files(known, whole))
        for extension, later in _of_each(known, protocol.extension).items():
            restored, listing = place.of_files(extension), of_extension(whole, extension)
            forgotten = gone_since(later, restored, listing, lambda directory: self._parsed(directory, catalogue))
            lost |= dict.fromkeys(
                (*lost_files(later, restored, listing, extension), *(f"{path}.{extension}" for path in forgotten))
            )
        states = [FileState(path, 0, 0, consumed=False) for path in lost if not place.is_open(path)]
        for extension in known.own_extensions:
            place = place.owning(extension)
        return advanced(place, place.watermark, states).to_text() if states else position

    def read_again(self, position: str, table_id: TableId, since: int) -> str:
        """See ``EventSource.read_again``. As in :meth:`vanished`, files of earlier dates have no rows above ``since``."""
        place = _position(position)
        _, catalogue = self._opened().scan(place)
        own = place.counted_extension
        for extension in (*place.aside, own):
            place = self._read_again(place.of_files(extension), table_id, since, catalogue)
        return place.to_text()

    def _read_again(self, place: StoragePosition, table_id: TableId, since: int, catalogue: Catalogue) -> StoragePosition:
        def parent_of(directory: str) -> str | None:
            return self._parent_of(directory, table_id, since, catalogue)

        read = {*place.consumed_directories(), *place.settled, *(path.rpartition("/")[0] for path in place.open)}
        parents = {parent for parent in map(parent_of, read) if parent is not None}
        parents |= {parent for parent in place.unknown_below if catalogue.table_of(parent) == table_id}
        gone = {parent: forgotten for parent, forgotten in place.gone.items() if _is_of(table_id, parent, catalogue)}
        place = replace(place, gone={**place.gone, **{parent: earlier(forgotten, since) for parent, forgotten in gone.items()}})
        return without(place, parents, lambda directory: parent_of(directory) is not None)

    def _parent_of(self, directory: str, table_id: TableId, since: int, catalogue: Catalogue) -> str | None:
        """The folder of the table, if files of this directory belong to it and may have rows above a commit ts (TSO)."""
        parsed = self._parsed(directory, catalogue)
        if parsed is None or catalogue.table_of(parsed.parent, parsed.version) != table_id:
            return None
        return None if is_of_earlier_date(parsed.date, since) else parsed.parent

    def _parsed(self, directory: str, catalogue: Catalogue) -> DataPath | None:
        return first_file_in(directory, self._options.date_separator, catalogue.table_ids)

    def has_rows(self, offer: Offer, table_id: TableId, above: int, up_to: int) -> bool:
        """Always false: no file is read for an offer."""
        return False

    def missing(self, position: str, offer: Offer, table_id: TableId, since: int) -> str:
        """See ``EventSource.missing``: files that TiCDC may have removed as too old, and gaps in the numbers of unread files."""
        place, days = _position(position), self._options.expiration_days
        # A file's date is local to the writer, and so is the date of its removal.
        oldest = tso_to_datetime(max(learned_of(offer).watermark, place.watermark)) - timedelta(days=days - 2)
        if days and tso_to_datetime(since).date() < oldest.date():
            return f"TiCDC removes files after {days} days (file-expiration-days)."
        whole, catalogue, protocol = self._scan_whole(place)
        listing = of_protocol(whole, protocol)
        place = place.of_files(protocol.extension)
        directories = set()
        for _, path in listing.data:
            if path.version >= _ended(catalogue, path.parent, since) and catalogue.table_of(path.parent, path.version) == table_id:
                directories.add(path.directory)
        for (directory, _), missing in sorted(gaps(listing, place, directories, unread=True).items()):
            return f"file numbers {format_intervals(missing)} in {directory} are missing."
        vanished = vanished_problems(
            whole, place, {}, lambda path: table_of(path, catalogue, self._options), protocol, is_certain=True
        )
        gone = next((problem.file for problem in vanished if problem.table_id == table_id), "")
        return f"{gone} is missing." if gone else ""

    def give_up(self, position: str, table_id: TableId, place: SourcePlace) -> str:
        """See ``EventSource.give_up``. The file is identified as in the position; an existing file counts as it is now.

        A file of another protocol is skipped from now on, until it is written again.
        """
        known, key = _position(position), file_of(place)
        if parse_data_name(_name(key)) is None:
            return position
        folder = self._opened()
        listing, catalogue = folder.scan(known)
        stored = folder.stat(key)
        parsed = parse_path(key, self._options.date_separator, catalogue.table_ids)
        if not isinstance(parsed, DataPath):
            return position
        theirs = {*catalogue.owners(parsed.parent).values()} or {catalogue.table_of(parsed.parent)}
        if table_id not in theirs and any(owner.table for owner in theirs):
            return position
        is_waited_for = known.is_open(key) or key in known.begun_files()
        mark = fingerprint(stored.size, stored.modified) if stored is not None else ""
        noted = replace(known, given_up={**known.given_up, key: mark})
        if parsed.extension != detect_protocol(listing, self._options, known).extension:
            return dropped(noted if stored is not None or is_waited_for else known, [key]).to_text()
        known = known.of_files(parsed.extension)
        rewritten = stored is not None and known.is_consumed(parsed) and known.is_changed(parsed, stored.size, stored.modified)
        if not rewritten and not known.is_open(key):
            return position
        found = stored or StoredFile(key, 0, 0)
        content = None if stored is None else folder.content(stored)
        known_content = content if isinstance(content, int) else None
        state = FileState(key, found.size, found.modified, consumed=True, content=known_content)
        # As long as the protocol is a guess, the next one may be that this is no file of the changefeed.
        is_guessed = not (self._options.protocol or known.applied_extension)
        known = replace(known, given_up=noted.given_up) if is_guessed else known
        return advanced(known, known.watermark, [state], is_applied=False).to_text()

    def forget_vanished(
        self, position: str, offer: Offer, loaded: Mapping[TableId, int], ended: Mapping[TableId, int]
    ) -> tuple[str, frozenset[str]]:
        """See ``EventSource.forget_vanished``. A table that has ended does not continue in an earlier version."""
        place = _position(position)
        listing, catalogue, protocol = self._scan(place)
        place = place.of_files(protocol.extension)
        whole, _ = self._opened().scan(place)
        announced = {path: table_id for path, (table_id, _) in learned_of(offer).at(place).announced.items()}
        gone: dict[DataPath, TableId] = {}
        for problem in (
            *unlisted_problems(whole, place, catalogue.table_of),
            *vanished_problems(
                whole, place, announced, lambda path: table_of(path, catalogue, self._options), protocol, is_certain=False
            ),
        ):
            path = parse_path(problem.file, self._options.date_separator, catalogue.table_ids)
            if isinstance(path, DataPath):
                gone[path] = problem.table_id
        needless = {path.key for path, table_id in gone.items() if path.version < ended.get(table_id, 0)}
        of_loaded = {path: table_id for path, table_id in gone.items() if table_id in loaded and path.key not in needless}
        if of_loaded:

            def firsts(files: Sequence[Candidate]) -> Mapping[StoredFile, int]:
                beginnings = self._opened().beginnings
                beginnings.look_into(files, protocol, self._options, self._opened().read_starts, lambda done, total: None)
                return beginnings.firsts

            needless |= without_rows_above(of_loaded, loaded, listing, catalogue, firsts)
        foreign = {key for key in needless if not key.endswith(f".{protocol.extension}")}
        states = [FileState(key, 0, 0, consumed=True) for key in sorted(needless - foreign)]
        place = advanced(dropped(place, foreign), place.watermark, states, is_applied=False)
        return (place.to_text() if needless else position), frozenset(needless)

    def forget_lives(self, position: str, ended: Mapping[TableId, int]) -> str:
        """See ``EventSource.forget_lives``."""
        place = _position(position)
        whole, catalogue, protocol = self._scan_whole(place)
        place = place.of_files(protocol.extension)
        files = [f for f in whole.data if not place.is_consumed(f[1])]
        files = [f for f in files if f[1].version < ended.get(catalogue.table_of(f[1].parent, f[1].version), 0)]
        own = [stored for stored, path in files if path.extension == protocol.extension and stored.size]
        others = [path.key for _, path in files if path.extension != protocol.extension and place.is_open(path.key)]
        states = [FileState(stored.path, stored.size, stored.modified, consumed=True) for stored in own]
        place = advanced(dropped(place, others), place.watermark, states, is_applied=False)
        return place.to_text() if states or others else position

    def _scan(self, place: StoragePosition) -> tuple[Listing, Catalogue, Protocol]:
        """The folder without data files of another protocol, its catalogue, and the protocol."""
        whole, catalogue, protocol = self._scan_whole(place)
        return of_protocol(whole, protocol), catalogue, protocol

    def _scan_whole(self, place: StoragePosition, known: StoragePosition | None = None) -> tuple[Listing, Catalogue, Protocol]:
        """The folder, its catalogue, and the protocol. ``known``: see ``Folder.scan``."""
        whole, catalogue = self._opened().scan(place if known is None else known)
        return whole, catalogue, detect_protocol(whole, self._options, place)

    def _opened(self) -> Folder:
        if self._folder is None:
            self._folder = Folder(self._location.open(), self._options)
        return self._folder


def _position(text: str) -> StoragePosition:
    try:
        return StoragePosition.parse(text)
    except ValueError:
        raise DefinitionError(
            "The ledger's position is not one of this source.", "Was the pipeline's source of another kind before?"
        ) from None


def _of_each(place: StoragePosition, extension: str) -> dict[str, StoragePosition]:
    """The position of each extension with consumed files; those of an older Headrace are taken for files of ``extension``."""
    return {each: place.of_files(each) for each in (place.counted_extension or extension, *place.aside)}


def _is_of(table_id: TableId, parent: str, catalogue: Catalogue) -> bool:
    """Whether files of the table may have been in this folder."""
    return table_id == catalogue.table_of(parent) or table_id in catalogue.owners(parent).values()


def _ended(catalogue: Catalogue, parent: str, since: int) -> int:
    """The version of the table's path before which none has rows above ``since`` (TSO)."""
    versions = catalogue.versions.get(parent, {})
    return max((version for version, known in versions.items() if version <= since and known.statement), default=0)


def _name(path: str) -> str:
    return path.rpartition("/")[2]
