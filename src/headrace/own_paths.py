"""May another user of this machine exchange what lies at a path? What Headrace trusts, or runs, lies where none may.

Other users' are: a folder that belongs to one of them, which its owner may change as they like; a folder that they can write to,
in which they rename and replace whatever is there, unless it is sticky (``/tmp``): then only what they own; and what they made in
such a folder before Headrace did, also a link. So every name on the way to a path is looked at, and every link is followed step
by step. This user and root are trusted.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from headrace.errors import DefinitionError

if sys.platform != "win32":
    import grp
    import pwd

_MOST_LINKS = 40


@dataclass(frozen=True)
class _Step:
    """A name on the way to a path: in which folder it is looked up, and what was found there, ``None`` for nothing."""

    folder: Path
    folder_found: os.stat_result
    name: Path
    found: os.stat_result | None


def require_own_names(folder: Path, what: str) -> None:
    """Raises DefinitionError for a folder in which other users can rename, remove or replace what is this user's.

    ``what`` lies there ("temporary files"). That holds too for each folder on the way to it, but that one of this user's may be
    open to a group. Raises ``OSError`` where the way cannot be looked at.
    """
    if sys.platform == "win32":
        return
    _require_own_way(folder / "any", what)
    with suppress(FileNotFoundError):
        found = folder.stat()
        if _group_can_write(found) and not found.st_mode & stat.S_ISVTX:
            raise _open_to_others(folder, found, what)


def require_own_folder(folder: Path, what: str) -> None:
    """Raises DefinitionError for a folder whose content other users can write or exchange; ``what`` lies in it ("ledger").

    One that is not there passes, where no other user can exchange it: whoever makes it asks once more. A folder that this user
    has opened to a group stays usable: its members are trusted with it. Raises ``OSError`` where the way cannot be looked at.
    """
    if sys.platform == "win32":
        return
    found = _require_own_way(folder, f"the {what}")
    if found is None:
        return
    if found.st_uid not in _trusted():
        raise _of_another_user(folder, found, f"the {what}")
    if found.st_mode & stat.S_IWOTH:
        place = (
            "in it that is not there yet, which is made"
            if found.st_mode & stat.S_ISVTX
            else "of your own; one that is missing is made"
        )
        raise DefinitionError(
            _open_to_all(folder, found, what), f"Name a folder {place} with mode 0700, or run: chmod o-w {folder}"
        )


def require_own_file(path: Path, what: str) -> None:
    """Raises DefinitionError for a file in whose folder other users can put or exchange files; ``what`` it is ("DuckDB file").

    The folder is held to what :func:`require_own_folder` says, but for one mounted into a container, which may belong to a number
    without an account, or be open to all in a pod. Where the path is a link, so is the folder of each file on the way. Who owns
    the file itself does not matter. Raises ``OSError`` where the way cannot be looked at.
    """
    if sys.platform == "win32":
        return
    try:
        for folder in _folders_to(path):
            found = _require_own_way(folder, f"the {what}")
            if found is not None and found.st_uid not in _trusted() and _has_account(found.st_uid):
                raise _of_another_user(folder, found, f"the {what}")
            if found is not None and found.st_mode & stat.S_IWOTH and not _is_volume_of_pod(folder):
                raise DefinitionError(_open_to_all(folder, found, what))
    except DefinitionError as error:
        own = Path(os.environ.get("HOME", "/home/me"), "headrace", path.name)
        raise DefinitionError(error.message, f"Name a file in a folder of your own, such as {own}.") from None


def _folders_to(path: Path) -> Iterator[Path]:
    """The folder of a file, and of each file that links lead to from there."""
    for _ in range(_MOST_LINKS):
        yield path.parent
        if not path.is_symlink():
            return
        path = path.parent / path.readlink()
    raise OSError(f"{path} leads through too many links")


def make_own_folder(folder: Path, what: str) -> None:
    """Makes a folder with mode 0700 where there is none, and raises as :func:`require_own_folder`, also for what was made just now
    by somebody else.
    """
    require_own_folder(folder, what)
    if not folder.is_dir():
        make_private(folder)
        require_own_folder(folder, what)


def make_private(folder: Path) -> None:
    """Makes a folder, and those above it, with mode 0700. One that is there stays as it is. Raises ``OSError``."""
    if not folder.is_dir():
        make_private(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)


def _require_own_way(path: Path, what: str) -> os.stat_result | None:
    """Raises for the first name that another user can exchange. Returns what lies at the path, ``None`` for nothing.

    A user who has opened a folder to a group trusts its members there. Root's folders are open to groups for other reasons.
    """
    for step in _way(path):
        at = step.folder_found
        others = bool(at.st_mode & stat.S_IWOTH) or (_group_can_write(at) and not at.st_uid == _user() != 0)
        if at.st_uid not in _trusted() and _has_account(at.st_uid):
            raise _of_another_user(step.folder, at, what)
        if others and not at.st_mode & stat.S_ISVTX:
            if _is_volume_of_pod(step.folder):
                continue
            raise _open_to_others(step.folder, at, what)
        if others and step.found is not None and step.found.st_uid not in _trusted():
            raise _of_another_user(step.name, step.found, what)
    return step.found


def _way(path: Path) -> Iterator[_Step]:
    """The names on the way to a path, as the kernel looks them up, up to the first that is not there."""
    folder = Path("/")
    folder_found = folder.stat()
    left = list(reversed(path.absolute().parts[1:])) or ["."]
    links = 0
    while left:
        name = folder / left.pop()
        try:
            found = name.lstat()
        except FileNotFoundError:
            yield _Step(folder, folder_found, name, None)
            return
        yield _Step(folder, folder_found, name, found)
        if stat.S_ISLNK(found.st_mode):
            links += 1
            if links > _MOST_LINKS:
                raise OSError(f"{path} leads through too many links")
            target = name.readlink()
            left += reversed((target.parts[1:] or ["."]) if target.is_absolute() else target.parts)
            folder = Path("/") if target.is_absolute() else folder
        else:
            folder = Path(os.path.normpath(name))
        folder_found = folder.stat()


def _open_to_all(folder: Path, found: os.stat_result, what: str) -> str:
    return (
        f"Every user of the machine can write to {folder}, which has mode {stat.S_IMODE(found.st_mode):04o}: "
        f"no {what} can be kept there."
    )


def _open_to_others(folder: Path, found: os.stat_result, what: str) -> DefinitionError:
    return DefinitionError(
        f"The folder {folder} for {what} has mode {stat.S_IMODE(found.st_mode):04o}: other users can put folders of"
        " theirs into the place of Headrace's.",
        "Name a folder that only you can write to (one that is missing is made with mode 0700), or run: "
        f"chmod go-w {folder} (or chmod +t)",
    )


def _of_another_user(path: Path, found: os.stat_result, what: str) -> DefinitionError:
    owner = _name_of(found.st_uid)
    return DefinitionError(
        f"{path} belongs to {owner}, who could read or replace {what} there.",
        f"Name a folder of your own that lies in no folder of other users', or run headrace as {owner}.",
    )


def _user() -> int:
    return os.geteuid() if sys.platform != "win32" else 0


def _trusted() -> tuple[int, int]:
    return (0, _user())


def _has_account(user: int) -> bool:
    """Whether a folder's owner can log in. In a container, mounted folders belong to the number of a user of the host."""
    return user != Path("/").stat().st_uid and _account(user) is not None


def _is_volume_of_pod(folder: Path) -> bool:
    """Whether a folder is a volume of a pod of Kubernetes, which no other pod reaches. An ``emptyDir`` has mode 0777."""
    return "KUBERNETES_SERVICE_HOST" in os.environ and os.path.ismount(folder)


@cache
def _account(user: int) -> str | None:
    if sys.platform == "win32":
        return None
    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return None


def _name_of(user: int) -> str:
    return f"user {_account(user) or user}"


def _group_can_write(found: os.stat_result) -> bool:
    return bool(found.st_mode & stat.S_IWGRP) and _has_other_members(found.st_gid, _user())


@cache
def _has_other_members(group: int, user: int) -> bool:
    """Whether there are others than this user and root in a group: many users have one of their own, and a umask of 002."""
    if sys.platform == "win32":
        return False
    trusted = (0, user)
    users = {account.pw_name: account for account in pwd.getpwall()}
    try:
        if any(name not in users or users[name].pw_uid not in trusted for name in grp.getgrgid(group).gr_mem):
            return True
    except KeyError:  # a group without a name
        pass
    return any(account.pw_gid == group and account.pw_uid not in trusted for account in users.values())
