"""A changefeed's folder with everything that was read from it: the listing, and the catalogue that belongs to it.

The cache only saves work; the results are the same without it.
"""

from __future__ import annotations

import zlib
from collections.abc import Container, Mapping, Sequence
from contextlib import suppress

from headrace.formats import canal_json, csv
from headrace.formats.base import DecodeError
from headrace.formats.storage_paths import SchemaPath
from headrace.model.containment import contained
from headrace.sources.ticdc_storage.bounded_offer import Beginnings
from headrace.sources.ticdc_storage.catalogue import Catalogue, CatalogueReader
from headrace.sources.ticdc_storage.final_drain import FileEnds
from headrace.sources.ticdc_storage.options import Protocol, StorageOptions
from headrace.sources.ticdc_storage.position import Owner, StoragePosition
from headrace.sources.ticdc_storage.reader import Listing, StorageReader
from headrace.sources.ticdc_storage.seals import Directories
from headrace.sources.ticdc_storage.split_selection import Candidate
from headrace.sources.ticdc_storage.stores import Content, Store, StoredFile, UnreadableFileError, too_large

_PEEK_BYTES = 1 << 20
_PEEK_FILES = 8


class Folder:
    """A changefeed's folder with everything that was read from it."""

    def __init__(self, store: Store, options: StorageOptions) -> None:
        self._store = store
        self._most_file_bytes = options.most_file_bytes
        self.reader = StorageReader(store, options.date_separator, options.clock_tolerance)
        self._schemas = CatalogueReader(
            store,
            strict=options.strict,
            table_id_paths=options.use_table_id_as_path,
            most_statement_bytes=options.most_statement_bytes,
        )
        self._former: Mapping[str, Owner] = {}
        self._contents: dict[StoredFile, int] = {}
        self.beginnings = Beginnings()
        self.ends = FileEnds()
        self.directories = Directories(options.date_separator)

    @property
    def catalogue(self) -> Catalogue:
        return self._schemas.catalogue.remembering(self._former)

    def scan(self, place: StoragePosition) -> tuple[Listing, Catalogue]:
        """Lists everything that is in the folder now."""
        self._former = place.owners
        listing = self._classified(self.reader.read_changed_files(place))
        catalogue = self._schemas.catalogue
        missing = {path.parent for _, path in listing.data if path.version not in catalogue.versions.get(path.parent, {})}
        if missing:
            # A schema file may be written after its folder was listed and before the data folder was: check again before it counts
            # as missing.
            known = {stored.path for stored, _ in listing.schemas}
            again = [stored for parent in sorted(missing) for stored in self._store.entries(f"{parent}/meta").files]
            found = [stored for stored in again if stored.path not in known]
            if found:
                files = [stored for stored, _ in (*listing.schemas, *listing.data, *listing.indexes)]
                listing = self._classified((*files, *listing.foreign, *found))
        return listing, self.catalogue

    def peek(self, protocol: Protocol, options: StorageOptions, candidates: Sequence[Candidate]) -> bool | None:
        """Whether the first readable rows have an exact commit ts; ``None`` if there are none."""
        for stored, _, version in candidates[:_PEEK_FILES]:
            # An error in the file is reported when the file is read.
            with suppress(DecodeError, FileNotFoundError, UnreadableFileError), contained(lambda problem: None, version.table_id):
                start = self._store.read_start(stored.path, _PEEK_BYTES)
                if protocol is Protocol.CSV:
                    return csv.has_commit_ts(start, version.schema, version.csv(options.csv))
                return canal_json.has_commit_ts(start)
        return None

    def read_starts(self, paths: list[str], length: int) -> list[Content]:
        """Up to ``length`` bytes from the beginning of each file."""
        return self._store.read_starts(paths, length)

    def stat(self, path: str) -> StoredFile | None:
        """The file as it is now; ``None`` if there is none."""
        return self._store.stat(path)

    def content(self, stored: StoredFile) -> int | UnreadableFileError | None:
        """The CRC-32 of a file's content, or why it cannot be read; ``None`` if it is no longer the file that was listed."""
        if stored.size > self._most_file_bytes:
            return UnreadableFileError(*too_large(stored.size, self._most_file_bytes))
        if stored not in self._contents:
            try:
                data = self._store.read_buffer(stored.path)
                if self._store.stat(stored.path) != stored:
                    return None
            except FileNotFoundError:
                return None
            except UnreadableFileError as error:
                return error
            self._contents[stored] = zlib.crc32(memoryview(data))
        return self._contents[stored]

    def keep_contents(self, present: Container[StoredFile]) -> None:
        """Drops the contents of all other files."""
        self._contents = {stored: content for stored, content in self._contents.items() if stored in present}

    def _classified(self, files: tuple[StoredFile, ...]) -> Listing:
        def table_ids(schemas: Sequence[tuple[StoredFile, SchemaPath]]) -> frozenset[str]:
            return self._schemas.update(schemas).remembering(self._former).table_ids

        return self.reader.classify(files, table_ids)
