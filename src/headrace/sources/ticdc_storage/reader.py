"""The present files of a changefeed's folder: the StorageReader of TiCDC's guide for storage consumers.

The guide's reader exposes each file once. Here the position determines which files are new (``StoragePosition.needs_reading``), so
that this also holds for the next run.

All files are listed, however old, because TiCDC may continue in a directory that it left long ago. On object stores that takes one
request for each table and thousand files. On a local disk, an unchanged folder is not listed again
(:mod:`headrace.sources.ticdc_storage.listing_cache`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from headrace.errors import SourceUnreachableError
from headrace.formats.storage_paths import (
    META_FOLDER,
    METADATA,
    OWN_FOLDER,
    DataPath,
    DateSeparator,
    ForeignPath,
    IndexPath,
    SchemaPath,
    StoragePath,
    parse_path,
)
from headrace.model.tso import CLOCK_TOLERANCE
from headrace.sources.ticdc_storage.checkpoint import read_checkpoint
from headrace.sources.ticdc_storage.listing_cache import FolderMemory
from headrace.sources.ticdc_storage.local_folders import Stray
from headrace.sources.ticdc_storage.position import StoragePosition
from headrace.sources.ticdc_storage.stores import Entries, Store, StoredFile

_Lister = Callable[[list[tuple[str, bool]]], list[Entries]]
_LISTINGS = 4
"""So often a folder is listed before it counts as empty, although the listing of the folder above names it."""
_CHECK = (
    "It is listed again. If this stays, check that the folder is mounted, or the store and the proxy or gateway in front of it."
)


@dataclass(frozen=True)
class Listing:
    """The files that one scan found, by kind."""

    schemas: tuple[tuple[StoredFile, SchemaPath], ...] = ()
    data: tuple[tuple[StoredFile, DataPath], ...] = ()
    indexes: tuple[tuple[StoredFile, IndexPath], ...] = ()
    foreign: tuple[StoredFile, ...] = ()
    strays: tuple[Stray, ...] = ()


class StorageReader:
    """Reads a changefeed's folder: the checkpoint and the list of files.

    ``date_separator`` is the changefeed's, ``None`` if unknown. ``clock_tolerance`` is in seconds (:func:`read_checkpoint`).
    """

    def __init__(self, store: Store, date_separator: DateSeparator | None = None, clock_tolerance: int = CLOCK_TOLERANCE) -> None:
        self._store = store
        self._date_separator = date_separator
        self._clock_tolerance = clock_tolerance
        self._strays: tuple[Stray, ...] = ()
        self._parsed: dict[str, StoragePath] = {}
        self._table_ids: frozenset[str] = frozenset()
        self._memory = FolderMemory(store) if store.is_local else None
        self._has_metadata = False
        self._proven_empty: frozenset[str] = frozenset()

    def checkpoint(self) -> int:
        """The checkpoint (TSO) as ``metadata`` has it now. Raises SourceNotReadyError, SourceUnreachableError."""
        self._has_metadata = False
        checkpoint = read_checkpoint(self._store, tolerance=self._clock_tolerance)
        self._has_metadata = True
        return checkpoint

    def read_files(self) -> tuple[StoredFile, ...]:
        """Scans the folder, adds new files and drops vanished ones. Returns all files, sorted by path.

        The checkpoint must be read before, so that the files that it promises are included. Raises SourceUnreachableError, also for
        a listing that cannot be true: without ``metadata``, or without the content of folders that it names.
        """
        return self._scan(self._store.entries_of_many)

    def read_changed_files(self, place: StoragePosition) -> tuple[StoredFile, ...]:
        """As :meth:`read_files`, but does not list folders again in which nothing relevant can have changed since the position."""
        if self._memory is None:
            return self.read_files()
        self._memory.begin(place)
        return self._scan(self._memory.entries_of_many)

    def _scan(self, entries_of_many: _Lister) -> tuple[StoredFile, ...]:
        def listed(above: list[Entries], recursive: bool) -> list[Entries]:
            folders = [folder for entries in above for folder in entries.folders if folder != OWN_FOLDER]
            found = dict(zip(folders, entries_of_many([(folder, recursive) for folder in folders]), strict=True))
            if not self._store.is_local:
                self._list_empty_again(found, recursive)
                for folder in (folder for folder in folders if recursive and found[folder].may_lack_pages(recursive)):
                    self._require_last_page(folder, found[folder])
            return list(found.values())

        root = [self._root(entries_of_many)]
        databases = listed(root, recursive=False)
        tables = listed(databases, recursive=True)
        if self._store.is_local and self._has_metadata and self._store.stat(METADATA) is None:
            # A folder that is unmounted or replaced meanwhile looks as if everything below it was removed.
            raise self._not_listed("", "it was removed or replaced while it was listed")
        listings = (*root, *databases, *tables)
        self._strays = tuple(sorted((stray for listing in listings for stray in listing.strays), key=lambda stray: stray.path))
        return tuple(sorted((file for listing in listings for file in listing.files), key=lambda file: file.path))

    def _root(self, entries_of_many: _Lister) -> Entries:
        """The root's content. Raises SourceUnreachableError if ``metadata`` is not listed, and yet there."""
        for _ in range(_LISTINGS):
            (root,) = entries_of_many([("", False)])
            if any(file.path == METADATA for file in root.files):
                return root
        if self._has_metadata or self._store.stat(METADATA) is not None:
            raise self._not_listed("", f"its listing lacks the file {METADATA}")
        return root

    def _list_empty_again(self, listed: dict[str, Entries], recursive: bool) -> None:
        """Lists folders of an object store again that were named by the folder above, and look empty.

        A folder that the folder above still names has a key. That may be an object in place of an empty folder, which its listing
        leaves out. So the folder counts as empty if every listing of it is empty, between listings of the folder above that are
        not, and if a listing of everything in the folder above has shown the same once.
        """
        empty = [folder for folder, entries in listed.items() if entries.is_empty]
        for _ in range(_LISTINGS - 1):
            named = self._named_above(empty)
            empty = [folder for folder in empty if folder in named]
            listed.update(zip(empty, self._store.entries_of_many([(folder, recursive) for folder in empty]), strict=True))
            empty = [folder for folder in empty if listed[folder].is_empty]
            if not empty:
                return
        self._prove_empty([folder for folder in empty if folder not in self._proven_empty])

    def _prove_empty(self, folders: Sequence[str]) -> None:
        """Raises SourceUnreachableError if a folder is not shown as empty by a listing of everything in the folder above."""
        for above in sorted({_above(folder) for folder in folders}):
            everything = self._store.entries(above, recursive=True)
            for folder in (folder for folder in folders if _above(folder) == above):
                if folder not in everything.folders or any(file.path.startswith(f"{folder}/") for file in everything.files):
                    raise self._not_listed(folder, "its listing is empty, although it has files")
        self._proven_empty |= {*folders}

    def _require_last_page(self, table: str, listed: Entries) -> None:
        """Raises SourceUnreachableError if a table's listing ended too early: its schema files come last in the order of keys."""
        there = {file.path for file in listed.files}
        if any(file.path not in there for file in self._store.entries(f"{table}/{META_FOLDER}").files):
            raise self._not_listed(table, "its listing ends after a page, before its schema files")

    def _named_above(self, folders: Sequence[str]) -> frozenset[str]:
        """The folders that the folders above these name now. Raises SourceUnreachableError if one of those looks empty too."""
        above = sorted({_above(folder) for folder in folders})
        listed = self._store.entries_of_many([(folder, False) for folder in above])
        for folder, entries in zip(above, listed, strict=True):
            if entries.is_empty:
                raise self._not_listed(folder, "its listing is empty, and was not a moment ago")
        return frozenset(name for entries in listed for name in entries.folders)

    def _not_listed(self, folder: str, why: str) -> SourceUnreachableError:
        return SourceUnreachableError(f"Cannot read {f'{folder} in ' if folder else ''}{self._store.place}: {why}.", _CHECK)

    def classify(
        self, files: tuple[StoredFile, ...], table_ids: Callable[[Sequence[tuple[StoredFile, SchemaPath]]], frozenset[str]]
    ) -> Listing:
        """The files by kind. ``table_ids`` determines, from the schema files, the first segments that are table ids."""
        known = self._parsed
        self._parsed = {f.path: known.get(f.path) or parse_path(f.path, self._date_separator, self._table_ids) for f in files}
        schemas = tuple((file, path) for file in files if isinstance(path := self._parsed[file.path], SchemaPath))
        found = table_ids(schemas)
        if found != self._table_ids and self._date_separator is None:
            self._parsed = {file.path: parse_path(file.path, None, found) for file in files}
        self._table_ids = found
        parsed = [(file, self._parsed[file.path]) for file in files]
        return Listing(
            schemas,
            tuple((file, path) for file, path in parsed if isinstance(path, DataPath)),
            tuple((file, path) for file, path in parsed if isinstance(path, IndexPath)),
            tuple(file for file, path in parsed if isinstance(path, ForeignPath) and not _is_marker(file, path)),
            self._strays,
        )


def _above(folder: str) -> str:
    return folder.rpartition("/")[0]


def _is_marker(file: StoredFile, path: StoragePath) -> bool:
    """Whether the file is an empty object that an object store keeps in place of a folder."""
    return isinstance(path, ForeignPath) and file.size == 0 and file.path.endswith("/")
