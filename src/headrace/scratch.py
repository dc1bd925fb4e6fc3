"""Folders for temporary files that no other user can read, and that the next run removes when a run was killed.

A folder is made with mode 0700 and holds a file whose lock (``flock``) its process keeps: the kernel gives it up when the process
ends, however it ends. So a free lock tells that nobody uses the folder any more, on every machine that shares the disk, and neither
numbers of processes that are used again nor clocks that differ play a part.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import sys
import tempfile
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import IO, TYPE_CHECKING, Self

if sys.platform != "win32":
    import fcntl

if TYPE_CHECKING:
    from collections.abc import Iterator

KINDS = ("spark", "spool", "print", "check")
_NAME = re.compile(rf"headrace-({'|'.join(KINDS)})-[0-9a-z_]{{8}}")
"""As ``tempfile.mkdtemp`` makes them. What has another name is somebody else's."""
_LOCK = "in-use.lock"
_TRIES = 10
_UNFINISHED_SECONDS = 60.0
"""An empty folder without a lock is one that is being made, or whose maker was killed at that moment long ago."""


class Scratch:
    """A folder of this process alone. Use it as a context, or call :meth:`remove`.

    ``lock`` is the open file whose lock says that the folder is in use; a child process that inherits it keeps the folder too.
    """

    def __init__(self, path: Path, lock: int) -> None:
        self.path, self.lock = path, lock

    @classmethod
    def make(cls, kind: str, parent: Path | None = None) -> Scratch:
        """Makes ``headrace-<kind>-…`` in ``parent``, the temporary folder where it is ``None``. Removes what is left over there.

        ``kind`` is one of :data:`KINDS`. A parent that is not there is made, with mode 0700. Raises ``OSError``.
        """
        parent = Path(tempfile.gettempdir()) if parent is None else parent
        make_private(parent)
        remove_leftovers(parent)
        for _ in range(_TRIES):
            path = Path(tempfile.mkdtemp(prefix=f"headrace-{kind}-", dir=parent))
            # Another run that removes leftovers may have been faster: the folder is ours only with its lock.
            with suppress(FileNotFoundError, BlockingIOError):
                return cls(path, _locked(path))
        raise FileExistsError(f"Other runs keep removing the folders that are made in {parent}")

    def remove(self) -> None:
        """Removes the folder with all that is in it, as far as that is possible, and gives up its lock."""
        if self.lock >= 0:
            shutil.rmtree(self.path, ignore_errors=True)
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
    with suppress(OSError), _opened_folder(str(parent)) as above, os.scandir(above) as scan:
        names = [entry.name for entry in scan if _NAME.fullmatch(entry.name)]
        for name in names:
            with suppress(OSError):
                _remove_leftover(above, name)


def make_private(folder: Path) -> None:
    """Makes a folder, and those above it, with mode 0700. One that is there stays as it is. Raises ``OSError``."""
    if not folder.is_dir():
        make_private(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)


def open_private(path: Path) -> IO[bytes]:
    """A new file of mode 0600, open for writing. Raises ``FileExistsError`` where anything lies at the path, also a link."""
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb")


def _locked(folder: Path) -> int:
    """The folder's lock, held. A file system without locks gives none: its folders are never taken for leftovers then."""
    lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        if sys.platform != "win32":
            with suppress(_NoLocks):
                _take(lock)
            (folder / _LOCK).stat()
    except OSError:
        os.close(lock)
        raise
    return lock


class _NoLocks(Exception):
    """The file system has no locks."""


def _take(lock: int) -> None:
    """Raises BlockingIOError where another process holds the lock, _NoLocks where there is none to be had."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError as error:
        raise _NoLocks from error


def _remove_leftover(above: int, name: str) -> None:
    """Removes one folder if nobody uses it. Everything goes by the open folder, so that nothing else can be put in its place."""
    with _opened_folder(name, above) as folder:
        found = os.fstat(folder)
        if found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & 0o077:
            return
        try:
            lock = os.open(_LOCK, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
        except FileNotFoundError:
            if time.time() - found.st_mtime > _UNFINISHED_SECONDS:
                os.rmdir(name, dir_fd=above)  # fails unless it is empty
            return
        try:
            with suppress(_NoLocks):
                _take(lock)
                _empty(folder)
                os.unlink(_LOCK, dir_fd=folder)
                os.rmdir(name, dir_fd=above)
        finally:
            os.close(lock)


def _empty(folder: int) -> None:
    """Removes all but the lock, which goes last: a removal that is broken off is taken up again by the next run."""
    for name in os.listdir(folder):
        if name == _LOCK:
            continue
        if stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
            shutil.rmtree(name, dir_fd=folder)
        else:
            os.unlink(name, dir_fd=folder)


@contextmanager
def _opened_folder(name: str, above: int | None = None) -> Iterator[int]:
    """An open folder, by its name in another one. Raises ``OSError``, also for a link in place of the folder.

    The last part of a path only: what a user names as the parent may well be a link.
    """
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | (0 if above is None else os.O_NOFOLLOW)
    folder = os.open(name, flags, dir_fd=above)
    try:
        yield folder
    finally:
        os.close(folder)
