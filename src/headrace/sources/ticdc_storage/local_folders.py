"""Folders of a local disk. Only readable regular files are opened; everything else is reported and never opened.

Someone who may write into the folder may put links there, and Headrace may be able to read files that they cannot. So links are
followed only inside the folder.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from io import FileIO
from pathlib import Path

_RIGHTS = "Let the user that Headrace runs as read it."
_LEADS_OUT = "it is a link that leads out of the changefeed's folder"
_BRING_IN = (
    "Replace the link with what it leads to, or mount that in its place; links are only followed inside the changefeed's folder."
)
_LAYOUT = re.compile(r"meta|\d+|\d{4}-\d\d(-\d\d)?")
"""The names of TiCDC's own folders inside a table's folder: a version, a partition, a date."""
_KINDS = (
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)
_OF_THE_ENTRY = frozenset({errno.EACCES, errno.EPERM, errno.ENAMETOOLONG})
"""Errors that concern one entry: missing rights, and a path that is too long. Others, such as of a network, may pass."""
_AS_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NONBLOCK | os.O_CLOEXEC
_ONLY_TO_LOOK = getattr(os, "O_PATH", os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY) | os.O_CLOEXEC
"""Opens an entry only for its place and its metadata, which needs no right to read it."""


@dataclass(frozen=True, slots=True)
class Stray:
    """An entry of a folder that cannot be part of a changefeed. ``path`` is printable; ``reason`` is a phrase.

    ``unlisted``: a folder whose content cannot be seen; ``hint`` says what to do about that.
    """

    path: str
    reason: str
    unlisted: bool = False
    hint: str = _RIGHTS


@dataclass(frozen=True, slots=True)
class LocalFile:
    """A regular file: path relative to the root, bytes, modification time in ns since 1970."""

    path: str
    size: int
    modified: int


LocalEntry = LocalFile | Stray | str
"""A file, something else, or the path of a folder."""


def local_entries(root: str, folder: str, recursive: bool) -> Iterator[LocalEntry]:
    """The content of a folder under ``root``; empty if it does not exist.

    Links are followed, except for those that lead out of ``root`` and folders that lead back to a folder above them. ``root``
    itself may be reached by links. Raises ``OSError`` if the root cannot be listed, and for errors other than missing rights.
    """
    pending = [folder]
    while pending:
        place = pending.pop()
        for entry in _listed(root, place):
            yield entry
            if recursive and isinstance(entry, str):
                pending.append(entry)


@contextmanager
def opened_inside(root: str, path: str) -> Iterator[FileIO]:
    """Opens a file under ``root`` for reading.

    The checks are made on the opened file, so that it cannot be replaced in between. Raises ``OSError``; ``FileNotFoundError`` also
    for something that is not a file or lies outside.
    """
    absolute = _absolute(root, path)
    # Opening a device may have effects. If the entry is replaced after this check, it is opened without blocking and checked again.
    if not stat.S_ISREG(Path(absolute).stat().st_mode):
        raise FileNotFoundError(f"{path} is not a file")
    handle = os.open(absolute, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    with FileIO(handle) as file:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise FileNotFoundError(f"{path} is not a file")
        if not _is_inside(root, _place_of(handle, absolute)):
            raise FileNotFoundError(f"{path} cannot be read: {_LEADS_OUT}")
        yield file


def stat_inside(root: str, path: str) -> LocalFile | None:
    """The regular file at a path under ``root``; ``None`` if there is none, or if it lies outside. Raises ``OSError``."""
    absolute = _absolute(root, path)
    try:
        if not stat.S_ISREG(Path(absolute).stat().st_mode):
            return None
        handle = os.open(absolute, _ONLY_TO_LOOK)
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        found = os.fstat(handle)
        is_file = stat.S_ISREG(found.st_mode) and _is_inside(root, _place_of(handle, absolute))
        return LocalFile(path, found.st_size, found.st_mtime_ns) if is_file else None
    finally:
        os.close(handle)


def _absolute(root: str, path: str) -> str:
    return f"{root.rstrip('/')}/{path}" if path else root


def _is_inside(root: str, real: str) -> bool:
    """Whether a path without links lies in ``root``, which may contain links."""
    if real.startswith(f"{root.rstrip('/')}/"):
        return True
    real_root = os.path.realpath(root).rstrip("/")
    return real == real_root or real.startswith(f"{real_root}/")


def _place_of(handle: int, path: str) -> str:
    """The path of an open file according to the kernel. Without ``/proc``: where its path leads, if that is still the same file."""
    try:
        return os.readlink(f"/proc/self/fd/{handle}")  # noqa: PTH115 - a path would take longer than the file
    except OSError:
        real = os.path.realpath(path)
        if os.path.samestat(Path(real).stat(), os.fstat(handle)):
            return real
        raise FileNotFoundError(f"{path} was exchanged while it was opened") from None


def _listed(root: str, folder: str) -> Iterator[LocalEntry]:
    """The entries of one folder. Its handle is checked, and all are looked at through it: its path may lead elsewhere by then."""
    absolute = _absolute(root, folder)
    found = list[LocalEntry]()
    with ExitStack() as opened:
        try:
            handle = os.open(absolute, _AS_FOLDER)
            opened.callback(os.close, handle)
            if folder and not _is_inside(root, _place_of(handle, absolute)):
                yield _leading_out(folder)  # it was replaced since the folder above it was listed
                return
            with os.scandir(handle) as scan:
                entries = list(scan)
        except FileNotFoundError:
            return
        except NotADirectoryError:
            if not folder:
                raise
            return
        except OSError as error:
            if not folder or error.errno not in _OF_THE_ENTRY:
                raise
            yield Stray(folder, f"it is a folder that cannot be listed: {error.strerror}", unlisted=True)
            return
        for entry in entries:
            found.extend(_entry(root, f"{folder}/{entry.name}" if folder else entry.name, entry, handle))
    yield from found


def _entry(root: str, path: str, entry: os.DirEntry[str], folder: int) -> Iterator[LocalEntry]:
    """``folder`` is the handle of the folder that the entry is in."""
    try:
        path.encode()
    except UnicodeEncodeError:
        yield Stray(printable(path), "its name is not UTF-8")
        return
    try:
        found = entry.stat(follow_symlinks=False)
    except FileNotFoundError:
        return
    except OSError as error:
        if error.errno not in _OF_THE_ENTRY:
            raise
        yield Stray(path, f"it cannot be looked at: {error.strerror}", unlisted=True)
        return
    yield from _as_found(root, path, entry.name, folder, found)


def _as_found(root: str, path: str, name: str, folder: int, found: os.stat_result) -> Iterator[LocalEntry]:
    """The entry with this state; a link is followed."""
    is_link, is_inside = stat.S_ISLNK(found.st_mode), True
    if is_link:
        try:
            found, is_inside = _followed(root, path, name, folder)
        except FileNotFoundError:
            yield Stray(path, "it is a link that leads nowhere")
            return
        except OSError as error:
            yield Stray(path, f"it is a link that cannot be followed: {error.strerror}")
            return
    if not is_inside:
        yield _leading_out(path, is_folder=stat.S_ISDIR(found.st_mode))
    elif stat.S_ISREG(found.st_mode):
        yield LocalFile(path, found.st_size, found.st_mtime_ns)
    elif stat.S_ISDIR(found.st_mode):
        if is_link and _leads_back(root, path, found):
            yield Stray(path, "it is a link to a folder that it lies in")
        else:
            yield path
    else:
        kind = next((words for is_kind, words in _KINDS if is_kind(found.st_mode)), "neither a file nor a folder")
        yield Stray(path, f"it is {kind}")


def _followed(root: str, path: str, name: str, folder: int) -> tuple[os.stat_result, bool]:
    """What a link in a folder leads to, and whether that lies in ``root``. Only the kind counts of what is no file or folder."""
    found = os.stat(name, dir_fd=folder)
    if not (stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode)):
        return found, True
    handle = os.open(name, _ONLY_TO_LOOK, dir_fd=folder)
    try:
        return os.fstat(handle), _is_inside(root, _place_of(handle, _absolute(root, path)))
    finally:
        os.close(handle)


def _leading_out(path: str, is_folder: bool = True) -> Stray:
    """A link that is not followed. In place of a TiCDC folder it stops its table, because the table's rows may be there."""
    above, _, name = path.rpartition("/")
    unlisted = is_folder and above.count("/") > 0 and _LAYOUT.fullmatch(name) is not None
    return Stray(printable(path), _LEADS_OUT, unlisted, _BRING_IN)


def _leads_back(root: str, path: str, found: os.stat_result) -> bool:
    above = path.split("/")[:-1]
    folders = (f"{root}/{'/'.join(above[:length])}" for length in range(len(above) + 1))
    return any(os.path.samestat(Path(folder).stat(), found) for folder in folders)


def printable(text: str) -> str:
    """The text with bytes that are not UTF-8 as ``\\xff``."""
    return os.fsencode(text).decode("utf-8", "backslashreplace")
