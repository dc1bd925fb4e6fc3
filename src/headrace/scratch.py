"""Folders for temporary files that no other user can read. If a run was killed, the next run removes its folders.

A folder is created with mode 0700, and its process keeps a lock on it (``flock``). The kernel releases the lock when the process
ends, however it ends. So a free lock proves that no process uses the folder any more. Process ids cannot prove this, because they
are reused. A marker file in the folder proves that Headrace created it: another user may give any folder such a name if the parent
folder permits it.
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
"""The names that ``tempfile.mkdtemp`` creates. A folder with another name was not created by Headrace."""
MARKER = ".headrace"
"""The marker file in each folder. It contains the folder's inode number, but not the device number, which may change when the
machine restarts."""
_TRIES = 10
_FOLDER = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)


class Scratch:
    """A temporary folder that only this process uses. Use it as a context manager, or call :meth:`remove`.

    ``lock`` is the file descriptor of the open, locked folder. A child process that inherits it keeps the folder in use too.
    """

    def __init__(self, path: Path, lock: int) -> None:
        self.path, self.lock = path, lock

    @classmethod
    def make(cls, kind: str, parent: Path | None = None) -> Scratch:
        """Creates ``headrace-<kind>-run-…`` in ``parent``, and removes the leftovers of killed runs there.

        ``kind`` is one of :data:`KINDS`. The default ``parent`` is the system's temporary folder. A missing parent is created with
        mode 0700. Raises ``OSError``, and DefinitionError for a parent in which other users can replace folders.
        """
        parent = Path(tempfile.gettempdir()) if parent is None else parent
        require_own_names(parent, "temporary files")
        make_private(parent)
        require_own_names(parent, "temporary files")
        parent = Path(os.path.realpath(parent))
        remove_leftovers(parent)
        for _ in range(_TRIES):
            path = Path(tempfile.mkdtemp(prefix=f"headrace-{kind}-run-", dir=parent))
            # Another run that removes leftovers may already have removed the folder. It is ours only once we hold its lock.
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
        """Removes the folder and its content as far as possible, and releases its lock.

        Works on the open folder, because another folder may have its name by now.
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
    """Removes this user's folders in ``parent`` that killed runs left behind.

    Links, other users' folders, and folders of running processes stay. What cannot be removed stays too, and nothing is raised.
    """
    if sys.platform == "win32":
        return
    with suppress(OSError):
        # The parent that a user names may be a link, so it is opened without O_NOFOLLOW.
        above = os.open(parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            for name in [entry.name for entry in os.scandir(above) if _NAME.fullmatch(entry.name)]:
                with suppress(OSError):
                    _remove_leftover(above, name)
        finally:
            os.close(above)


def open_private(path: Path) -> IO[bytes]:
    """Creates a file with mode 0600 and opens it for writing. Raises ``FileExistsError`` if the path exists, even as a link."""
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb")


def _locked(folder: Path) -> int:
    """Opens and locks the folder. A file system without locks gives no lock; its folders are then never removed as leftovers."""
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
    """The file system does not support locks."""


def _take(opened: int) -> None:
    """Locks the folder. Raises BlockingIOError if another process holds the lock, _NoLocks if locks are not supported."""
    if sys.platform == "win32":
        raise _NoLocks
    try:
        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError as error:
        raise _NoLocks from error


def _remove_leftover(above: int, name: str) -> None:
    """Removes one folder if no process uses it. Works on the open folder, so that no other folder can take its place meanwhile."""
    folder = os.open(name, _FOLDER, dir_fd=above)
    try:
        found = os.fstat(folder)
        if found.st_uid == os.geteuid() and not stat.S_IMODE(found.st_mode) & 0o077:
            with suppress(_NoLocks):
                _take(folder)
                if _is_marked(folder):
                    _empty(folder)
                # An empty folder has no marker yet, or lost it when its removal was interrupted.
                os.rmdir(name, dir_fd=above)
    finally:
        os.close(folder)


def _mark(folder: int) -> None:
    """Writes the marker file, which proves that Headrace created this folder."""
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
    """Removes the content of an open folder as far as possible, and its marker once nothing else is left."""
    for name in os.listdir(folder):
        with suppress(OSError):
            if stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
                shutil.rmtree(name, dir_fd=folder, ignore_errors=True)
            elif name != MARKER:
                os.unlink(name, dir_fd=folder)
    if os.listdir(folder) == [MARKER]:
        os.unlink(MARKER, dir_fd=folder)
