"""Folders for temporary files that no other user can read, and that the next run removes when a run was killed.

A folder is made with mode 0700, and its process keeps a lock on it (``flock``), which the kernel gives up when the process ends,
however it ends. So a free lock tells that nobody uses the folder any more; process ids, which are used again, play no part.
A file in it tells that Headrace made it: another user may give any folder such a name, where the folder above it lets them.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from headrace.own_paths import make_private, require_own_names

if sys.platform != "win32":
    import fcntl

KINDS = ("spark", "work", "check")
_NAME = re.compile(rf"headrace-({'|'.join(KINDS)})-run-[0-9a-z_]{{8}}")
"""As ``tempfile.mkdtemp`` makes them. What has another name is somebody else's."""
MARKER = ".headrace"
"""A file in each folder, with the folder's inode number. The device's number may change with a restart of the machine."""
_TRIES = 10
_FOLDER = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)


class Scratch:
    """A folder of this process alone. Use it as a context, or call :meth:`remove`.

    ``lock`` is the folder, open and locked; a child process that inherits it keeps the folder in use too.
    """

    def __init__(self, path: Path, lock: int) -> None:
        self.path, self.lock = path, lock

    @classmethod
    def make(cls, kind: str, parent: Path | None = None) -> Scratch:
        """Makes ``headrace-<kind>-run-…`` in ``parent``, or the temporary folder, and removes what is left over there.

        ``kind`` is one of :data:`KINDS`. A parent that is not there is made, with mode 0700. Raises ``OSError``, and
        DefinitionError for a parent in which other users can exchange folders.
        """
        parent = Path(tempfile.gettempdir()) if parent is None else parent
        require_own_names(parent, "temporary files")
        make_private(parent)
        require_own_names(parent, "temporary files")
        parent = Path(os.path.realpath(parent))
        remove_leftovers(parent)
        for _ in range(_TRIES):
            path = Path(tempfile.mkdtemp(prefix=f"headrace-{kind}-run-", dir=parent))
            # Another run that removes leftovers may have been faster: the folder is ours only with its lock.
            with suppress(FileNotFoundError, BlockingIOError):
                made = cls(path, _locked(path))
                try:
                    _mark(made.lock)
                except OSError:
                    made.remove()
                    raise
                return made
        raise FileExistsError(f"Other runs keep removing the folders that are made in {parent}")

    def remove(self) -> None:
        """Removes the folder with all that is in it, as far as that is possible, and gives up its lock.

        It goes by the open folder: what has its name by now may be another one.
        """
        if self.lock >= 0:
            with suppress(OSError):
                _empty(self.lock)
                if os.path.samestat(os.fstat(self.lock), self.path.lstat()):
                    self.path.rmdir()
            os.close(self.lock)
            self.lock = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self.remove()


def remove_leftovers(parent: Path) -> None:
    """Removes the folders of this user in ``parent`` that runs left when they were killed.

    Links, folders of other users and those of living processes stay. What cannot be removed stays too, and nothing is raised.
    """
    if sys.platform == "win32":
        return
    with suppress(OSError):
        # What a user names as the parent may well be a link.
        above = os.open(parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            for name in [entry.name for entry in os.scandir(above) if _NAME.fullmatch(entry.name)]:
                with suppress(OSError):
                    _remove_leftover(above, name)
        finally:
            os.close(above)


def open_private(path: Path) -> IO[bytes]:
    """A new file of mode 0600, open for writing. Raises ``FileExistsError`` where anything lies at the path, also a link."""
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb")


def _locked(folder: Path) -> int:
    """The open folder, its lock held. A file system without locks gives none: its folders are never taken for leftovers then."""
    opened = os.open(folder, _FOLDER)
    try:
        with suppress(_NoLocks):
            _take(opened)
        if not os.path.samestat(os.fstat(opened), folder.lstat()):
            raise FileNotFoundError(f"{folder} was removed")
    except OSError:
        os.close(opened)
        raise
    return opened


class _NoLocks(Exception):
    """The file system has no locks."""


def _take(opened: int) -> None:
    """Raises BlockingIOError where another process holds the lock, _NoLocks where there is none to be had."""
    if sys.platform == "win32":
        raise _NoLocks
    try:
        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError as error:
        raise _NoLocks from error


def _remove_leftover(above: int, name: str) -> None:
    """Removes one folder if nobody uses it. Everything goes by the open folder, so that nothing else can be put in its place."""
    folder = os.open(name, _FOLDER, dir_fd=above)
    try:
        found = os.fstat(folder)
        if found.st_uid == os.geteuid() and not stat.S_IMODE(found.st_mode) & 0o077:
            with suppress(_NoLocks):
                _take(folder)
                if _is_marked(folder):
                    _empty(folder)
                # One without anything in it lost its marker when its removal was broken off, or has none yet.
                os.rmdir(name, dir_fd=above)
    finally:
        os.close(folder)


def _mark(folder: int) -> None:
    """Writes the file that tells that Headrace made this folder."""
    marker = os.open(MARKER, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=folder)
    try:
        os.write(marker, str(os.fstat(folder).st_ino).encode())
    finally:
        os.close(marker)


def _is_marked(folder: int) -> bool:
    try:
        marker = os.open(MARKER, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
    except FileNotFoundError:
        return False
    try:
        return os.read(marker, 100) == str(os.fstat(folder).st_ino).encode()
    finally:
        os.close(marker)


def _empty(folder: int) -> None:
    """Removes what is in an open folder, as far as that is possible, and its marker once nothing else is left."""
    for name in os.listdir(folder):
        with suppress(OSError):
            if stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
                shutil.rmtree(name, dir_fd=folder, ignore_errors=True)
            elif name != MARKER:
                os.unlink(name, dir_fd=folder)
    if os.listdir(folder) == [MARKER]:
        os.unlink(MARKER, dir_fd=folder)
