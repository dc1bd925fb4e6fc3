"""Listing folders of a local disk: only what can be read is a file, whatever else lies there is told and never opened."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_KINDS = (
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


@dataclass(frozen=True, slots=True)
class Stray:
    """An entry of a folder that cannot be part of a changefeed. ``path`` can be printed; ``reason`` is a phrase.

    ``unlisted``: it is a folder of which nobody can see what is in it.
    """

    path: str
    reason: str
    unlisted: bool = False


@dataclass(frozen=True, slots=True)
class LocalFile:
    """A regular file: path relative to the root, bytes, modification time in ns since 1970."""

    path: str
    size: int
    modified: int


LocalEntry = LocalFile | Stray | str
"""A file, something else, or the path of a folder."""


def local_entries(root: str, folder: str, recursive: bool) -> Iterator[LocalEntry]:
    """What is in a folder under ``root``; nothing when it is not there.

    Links are followed, but for folders that lead back to where they are. Raises ``OSError`` for a root that cannot be listed, and
    for what has another cause than missing rights.
    """
    pending = [folder]
    while pending:
        place = pending.pop()
        for entry in _listed(root, place):
            yield entry
            if recursive and isinstance(entry, str):
                pending.append(entry)


def is_regular(path: str) -> bool:
    """Whether there is a regular file, or a link to one: anything else may hold a reader up for ever."""
    try:
        return stat.S_ISREG(Path(path).stat().st_mode)
    except OSError:
        return False


def _listed(root: str, folder: str) -> Iterator[LocalEntry]:
    absolute = f"{root.rstrip('/')}/{folder}" if folder else root
    try:
        with os.scandir(absolute) as scan:
            entries = list(scan)
    except FileNotFoundError:
        return
    except NotADirectoryError:
        if not folder:
            raise
        return
    except PermissionError as error:
        if not folder:
            raise
        yield Stray(folder, f"it is a folder that cannot be listed: {error.strerror}", unlisted=True)
        return
    for entry in entries:
        yield from _entry(root, f"{folder}/{entry.name}" if folder else entry.name, entry)


def _entry(root: str, path: str, entry: os.DirEntry[str]) -> Iterator[LocalEntry]:
    try:
        path.encode()
    except UnicodeEncodeError:
        yield Stray(printable(path), "its name is not UTF-8")
        return
    try:
        found = entry.stat()
    except FileNotFoundError:
        if entry.is_symlink():
            yield Stray(path, "it is a link that leads nowhere")
        return
    except OSError as error:
        if not entry.is_symlink():
            raise
        yield Stray(path, f"it is a link that cannot be followed: {error.strerror}")
        return
    if stat.S_ISREG(found.st_mode):
        yield LocalFile(path, found.st_size, found.st_mtime_ns)
    elif stat.S_ISDIR(found.st_mode):
        if entry.is_symlink() and _leads_back(root, path, found):
            yield Stray(path, "it is a link to a folder that it lies in")
        else:
            yield path
    else:
        kind = next((words for is_kind, words in _KINDS if is_kind(found.st_mode)), "neither a file nor a folder")
        yield Stray(path, f"it is {kind}")


def _leads_back(root: str, path: str, found: os.stat_result) -> bool:
    above = path.split("/")[:-1]
    folders = (f"{root}/{'/'.join(above[:length])}" for length in range(len(above) + 1))
    return any(os.path.samestat(Path(folder).stat(), found) for folder in folders)


def printable(text: str) -> str:
    """The text with bytes that are not UTF-8 as ``\\xff``."""
    return os.fsencode(text).decode("utf-8", "backslashreplace")
