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

from headrace.formats.storage_paths import (
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

    def checkpoint(self) -> int:
        """The checkpoint (TSO) as ``metadata`` has it now. Raises SourceNotReadyError, SourceUnreachableError."""
        return read_checkpoint(self._store, tolerance=self._clock_tolerance)

    def read_files(self) -> tuple[StoredFile, ...]:
        """Scans the folder, adds new files and drops vanished ones. Returns all files, sorted by path.

        The checkpoint must be read before, so that the files that it promises are included.
        """
        return self._scan(self._store.entries_of_many)

    def read_changed_files(self, place: StoragePosition) -> tuple[StoredFile, ...]:
        """As :meth:`read_files`, but does not list folders again in which nothing relevant can have changed since the position."""
        if self._memory is None:
            return self.read_files()
        self._memory.begin(place)
        return self._scan(self._memory.entries_of_many)

    def _scan(self, entries_of_many: _Lister) -> tuple[StoredFile, ...]:
        found: list[StoredFile] = []
        strays: list[Stray] = []
        folders = [""]
        # First the root, then databases, then tables with everything in them.
        for recursive in (False, False, True):
            listings = entries_of_many([(folder, recursive) for folder in folders])
            found.extend(file for listed in listings for file in listed.files)
            strays.extend(stray for listed in listings for stray in listed.strays)
            folders = [folder for listed in listings for folder in listed.folders if folder != OWN_FOLDER]
        self._strays = tuple(sorted(strays, key=lambda stray: stray.path))
        return tuple(sorted(found, key=lambda file: file.path))

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


def _is_marker(file: StoredFile, path: StoragePath) -> bool:
    """Whether the file is an empty object that an object store keeps in place of a folder."""
    return isinstance(path, ForeignPath) and file.size == 0 and file.path.endswith("/")
