"""The folder or the prefix of an object store that a storage sink writes to.

Everything but the published files lies below :data:`OWN`, in a folder that only this user can read. A file appears at its final
path whole: it is renamed in a folder, and copied by the store's own server in an object store.
"""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import obstore
import pyarrow as pa
from obstore.exceptions import AlreadyExistsError, NotFoundError

from headrace.errors import SinkUnreachableError
from headrace.formats.storage_paths import OWN_FOLDER
from headrace.own_paths import make_own_folder, make_private, require_own_folder
from headrace.places.object_place import Place

OWN = OWN_FOLDER
"""The folder of what is not published: the ledger, and the files of cuts that are not committed."""
UNFINISHED = f"{OWN}/unfinished"
"""The folder of files that are being written, if the target is a folder."""


@dataclass(frozen=True)
class TargetStore:
    """The target. Keys are relative to it, with ``/`` between segments. It can be pickled.

    All methods raise SinkUnreachableError, and DefinitionError for a folder that other users can write to.
    """

    place: Place

    @property
    def name(self) -> str:
        """The target for people, without secrets."""
        return self.place.location.url

    @property
    def is_local(self) -> bool:
        return self.place.is_local

    def refused(self) -> str | None:
        """Why nothing can be written, if the target is a folder; ``None`` if it can, or if only a try would show it."""
        if not self.is_local:
            return None
        with self._reached():
            existing = next(path for path in (self._root, *self._root.parents) if path.exists())
            if not existing.is_dir():
                return f"{existing} is not a folder."
            require_own_folder(self._root, self.place.what)
            return None if os.access(existing, os.W_OK | os.X_OK) else f"{existing} cannot be written."

    def put(self, key: str, *parts: bytes | pa.Buffer) -> None:
        """Writes a file in the place of an existing one."""
        with self._reached():
            if not self.is_local:
                obstore.put(self._store, key, b"".join(map(bytes, parts)))
                return
            fresh = self._made(f"{UNFINISHED}/{uuid.uuid4().hex}")
            with fresh.open("xb") as file:
                for part in parts:
                    file.write(part)
            fresh.replace(self._made(key))

    def create(self, key: str, data: bytes) -> bool:
        """Writes a file that must not exist yet. Returns whether it did not."""
        with self._reached():
            try:
                if self.is_local:
                    fresh = self._made(f"{UNFINISHED}/{uuid.uuid4().hex}")
                    fresh.write_bytes(data)
                    try:
                        self._made(key).hardlink_to(fresh)
                    finally:
                        fresh.unlink(missing_ok=True)
                else:
                    obstore.put(self._store, key, data, mode="create")
            except (FileExistsError, AlreadyExistsError):
                return False
            return True

    def discard(self, key: str) -> None:
        """Removes a file below :data:`OWN`, if it is there."""
        assert key.startswith(f"{OWN}/"), "published files are never removed"
        with self._reached(), suppress(FileNotFoundError, NotFoundError):
            if self.is_local:
                (self._root / key).unlink(missing_ok=True)
            else:
                obstore.delete(self._store, key)

    def read(self, key: str) -> bytes | None:
        """The content of a file; ``None`` if there is none."""
        with self._reached():
            try:
                if self.is_local:
                    return (self._root / key).read_bytes()
                return bytes(obstore.get(self._store, key).bytes())
            except (FileNotFoundError, NotADirectoryError, NotFoundError):
                return None

    def publish(self, staged: str, key: str) -> None:
        """Moves a staged file to its final path. Does nothing if that was done before.

        In an object store the staged file stays until the next cut. Raises SinkUnreachableError if there is another file at that
        path, which only another writer can have made, or if the staged file was removed.
        """
        with self._reached():
            there, here = self.size(key), self.size(staged)
            if there is None and here is None:
                raise SinkUnreachableError(
                    f"{staged} is not in {self.name} any more, and was not published as {key}.",
                    f"Something removed it. Nothing else may change files below {OWN}.",
                )
            if there is not None and here is not None and not self._is_same(staged, key):
                raise SinkUnreachableError(
                    f"{key} in {self.name} was written by something else.",
                    "Move it away. Nothing else may write here.",
                )
            if there is None and self.is_local:
                (self._root / staged).replace(self._made(key))
            elif there is None:
                obstore.copy(self._store, staged, key)

    def _is_same(self, one: str, other: str) -> bool:
        return self.size(one) == self.size(other) and self.read(one) == self.read(other)

    def size(self, key: str) -> int | None:
        """The size of a file in bytes; ``None`` if there is none."""
        with self._reached():
            try:
                return (self._root / key).stat().st_size if self.is_local else int(obstore.head(self._store, key)["size"])
            except (FileNotFoundError, NotADirectoryError, NotFoundError):
                return None

    def files(self, folder: str) -> list[str]:
        """The names of the files in a folder, without those in folders below it."""
        return self._entries(folder)[0]

    def folders(self, folder: str) -> list[str]:
        """The names of the folders in a folder."""
        return self._entries(folder)[1]

    def remove(self, folder: str) -> None:
        """Removes a folder below :data:`OWN`, with all that is in it."""
        assert folder.startswith(f"{OWN}/"), "published files are never removed"
        with self._reached():
            if self.is_local:
                shutil.rmtree(self._root / folder, ignore_errors=True)
                return
            keys = [item["path"] for chunk in obstore.list(self._store, folder) for item in chunk]
            with suppress(NotFoundError):
                if keys:
                    obstore.delete(self._store, keys)

    def _entries(self, folder: str) -> tuple[list[str], list[str]]:
        with self._reached():
            if self.is_local:
                return _entries_of(self._root / folder)
            found = obstore.list_with_delimiter(self._store, folder or None)
            return (
                [item["path"].rpartition("/")[2] for item in found["objects"]],
                [prefix.rstrip("/").rpartition("/")[2] for prefix in found["common_prefixes"]],
            )

    @property
    def _store(self) -> obstore.store.ObjectStore:
        store = self.place.store(create=True)
        assert store is not None, "it is no folder that may be missing"
        return store

    @property
    def _root(self) -> Path:
        return Path(self.place.location.path)

    def _made(self, key: str) -> Path:
        """The path of a key, in a folder that exists. Folders of published files have the mode that the umask gives."""
        path = self._root / key
        if not path.parent.is_dir():
            require_own_folder(self._root, self.place.what)
            if key.startswith(f"{OWN}/"):
                self._root.mkdir(parents=True, exist_ok=True)
                make_own_folder(self._root / OWN, self.place.what)
                make_private(path.parent)
            else:
                path.parent.mkdir(parents=True, exist_ok=True)
        return path

    @contextmanager
    def _reached(self) -> Iterator[None]:
        with self.place.reached():
            yield


def _entries_of(folder: Path) -> tuple[list[str], list[str]]:
    files: list[str] = []
    folders: list[str] = []
    entries: Iterable[Path] = folder.iterdir() if folder.is_dir() else ()
    for entry in entries:
        (folders if entry.is_dir() else files).append(entry.name)
    return files, folders
