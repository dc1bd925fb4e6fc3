"""Listings of local folders that are reused as long as nothing can have changed.

On a POSIX file system, creating, renaming or removing a name changes the change time of its folder, and of no folder above it. A
folder with an unchanged time therefore has the same names. Only files that are written in place may have changed, and the relevant
ones are checked one by one. This cache is in memory: a new run lists everything once.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from headrace.formats.storage_paths import METADATA, parse_data_name
from headrace.sources.ticdc_storage.position import StoragePosition
from headrace.sources.ticdc_storage.stores import Entries, Store, StoredFile

# Mounted buckets (s3fs, gcsfuse, goofys), network shares and virtual machines' shared folders invent their folder times.
_FAITHFUL = frozenset({"ext2", "ext3", "ext4", "f2fs", "jfs", "nfs", "nfs4", "overlay", "tmpfs", "xfs", "zfs"})
_MOUNTS = Path("/proc/self/mountinfo")
SETTLED_NS = 2_000_000_000
"""The minimum age of a folder's last change at its listing, since two changes within a clock tick show one time."""

Stamp = tuple[int, int, int]
"""Inode, modification time and change time (ns) of a folder. Equal as long as it has the same names."""


@dataclass(slots=True)
class _Known:
    """A folder as it was listed. ``loose`` are the data files that were not consumed, with dispatcher and digits."""

    stamp: Stamp
    files: dict[str, StoredFile]
    folders: tuple[str, ...]
    watched: tuple[str, ...]
    loose: tuple[tuple[str, str, str], ...]


class FolderMemory:
    """The remembered folders of a local store. :meth:`begin` starts a scan; folders that the scan does not request are dropped."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._root = store.root
        self._device = _faithful_device(self._root)
        self._known: dict[str, _Known] = {}
        self._before: dict[str, _Known] = {}
        self._settled = 0
        self._place = StoragePosition()
        self._opened: dict[str, list[str]] = {}

    def begin(self, place: StoragePosition) -> None:
        """Starts a scan at a position."""
        # Applied files are not checked any more. If less is applied than at the last scan, everything is listed again.
        self._before, self._known = self._known if place.goes_on_from(self._place) else {}, {}
        self._place = place
        self._opened = {}
        for path in itertools.chain(place.open, (path for path, _ in place.unread_files())):
            self._opened.setdefault(path.rpartition("/")[0], []).append(path)
        try:
            # The file system's own clock, which may differ from the machine's, shows at least this time.
            self._settled = Path(self._absolute(METADATA)).stat().st_ctime_ns - SETTLED_NS
        except OSError:
            self._settled = 0

    def entries_of_many(self, requests: list[tuple[str, bool]]) -> list[Entries]:
        """See :meth:`Store.entries_of_many`."""
        return [self._tree(folder) if recursive else self._entries(folder) for folder, recursive in requests]

    def _tree(self, folder: str) -> Entries:
        found, pending = [], [folder]
        while pending:
            listed = self._entries(pending.pop())
            pending.extend(reversed(listed.folders))
            found.append(listed)
        together = itertools.chain.from_iterable
        return Entries(
            tuple(together(listed.files for listed in found)),
            tuple(together(listed.folders for listed in found)),
            tuple(together(listed.strays for listed in found)),
        )

    def _entries(self, folder: str) -> Entries:
        stamp = self._stamp(folder)
        known = self._recall(folder, stamp)
        if known is None:
            known = self._store.entries(folder)
            self._remember(folder, stamp, known)
        return known

    def _stamp(self, folder: str) -> Stamp | None:
        """The folder's present stamp; ``None`` if it is not meaningful. To be read before the folder is listed."""
        if self._device is None:
            return None
        try:
            # Unlike stat, opening the folder makes NFS query the server.
            handle = os.open(self._absolute(folder), os.O_RDONLY | os.O_DIRECTORY)
        except OSError:
            return None
        try:
            found = os.fstat(handle)
        finally:
            os.close(handle)
        # A link may lead to another file system.
        return (found.st_ino, found.st_mtime_ns, found.st_ctime_ns) if found.st_dev == self._device else None

    def _recall(self, folder: str, stamp: Stamp | None) -> Entries | None:
        """The folder's content; ``None`` if it must be listed."""
        known = self._before.get(folder)
        if known is None or known.stamp != stamp:
            return None
        known.loose = tuple(file for file in known.loose if not self._is_consumed(folder, *file))
        for path in self._changeable(folder, known):
            now = self._stat(path)
            if now is None:
                return None
            known.files[path] = now
        self._known[folder] = known
        return Entries(tuple(known.files.values()), known.folders)

    def _remember(self, folder: str, stamp: Stamp | None, listed: Entries) -> None:
        """Stores the result of a listing, unless a later change could be invisible in the stamp."""
        if stamp is None or listed.strays or max(stamp[1:]) > self._settled:
            # The target of a link, and the rights of a folder, can change without a change to the parent folder.
            return
        loose = []
        watched = []
        for file in listed.files:
            parsed = parse_data_name(file.name)
            if parsed is not None:
                loose.append((file.path, parsed[0], parsed[1]))
            elif not file.name.endswith(".index"):
                watched.append(file.path)
        files = {file.path: file for file in listed.files}
        self._known[folder] = _Known(stamp, files, listed.folders, tuple(watched), tuple(loose))

    def _changeable(self, folder: str, known: _Known) -> Iterator[str]:
        """The files that matter if they are written in place: not applied yet, or with an identity, or read for their content."""
        yield from known.watched
        consumed = [f"{folder}/{name}" for name in self._place.marks.get(folder, ())]
        changeable = {*(path for path, _, _ in known.loose), *consumed, *self._opened.get(folder, ())}
        yield from (path for path in changeable if path in known.files)

    def _is_consumed(self, folder: str, path: str, dispatcher: str, digits: str) -> bool:
        return self._place.is_consumed_at(folder, dispatcher, digits, path)

    def _stat(self, path: str) -> StoredFile | None:
        try:
            found = Path(self._absolute(path)).stat()
        except OSError:
            return None
        return StoredFile(path, found.st_size, found.st_mtime_ns)

    def _absolute(self, path: str) -> str:
        return f"{self._root}/{path}" if path else self._root


def _faithful_device(root: str) -> int | None:
    """The device of the root if its file system maintains folder times reliably, otherwise ``None``."""
    try:
        device = Path(root).stat().st_dev
        mounts = _MOUNTS.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return None
    number = f"{os.major(device)}:{os.minor(device)}"
    kinds = {fields[1].split()[0] for line in mounts if len(fields := line.split(" - ")) == 2 and line.split()[2] == number}
    return device if kinds and kinds <= _FAITHFUL else None
