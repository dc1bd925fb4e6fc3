"""May another user of this machine exchange what lies at a path? What Headrace trusts, or runs, lies where none may.

Other users' are: a folder that belongs to one of them, which its owner may change as they like; a folder that they can write to,
in which they rename and replace whatever is there, unless it is sticky (``/tmp``): then only what they own; and what they made in
such a folder before Headrace did, also a link. So every name on the way to a path is looked at, and every link is followed step
by step.

Another user is neither this one nor root, and has an account: a number without one is that of a user of another machine. In a
container nobody else has one, but on a volume, where the owner of the volume is none either. A group is one's own by its form. One
that is not is trusted where a person decided so: who opened a folder of their own to it, who named a folder that root made for a
group of theirs, who made a container. Nothing of that counts for programs.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum, auto
from functools import cache
from pathlib import Path

from headrace.container import is_container, is_empty_dir, is_volume_of_pod, volume_of
from headrace.errors import DefinitionError

if sys.platform != "win32":
    import grp
    import pwd

_MOST_LINKS = 40
_FIRST_PERSON = 1000
"""The first user id that systems give to people."""
_NO_SHELLS = frozenset({"nologin", "false", "sync", "halt", "shutdown"})


class _Use(Enum):
    """What lies at the end of a way: the less a person chose its place, the fewer others are trusted with it."""

    PROGRAM = auto()
    """It is run: only this user and root are trusted."""
    TEMPORARY = auto()
    """Rows and Spark's files, wherever the machine keeps such things."""
    NAMED = auto()
    """A person named the place: a ledger, dead letters, a target."""


@dataclass(frozen=True)
class _Step:
    """A name on the way to a path: in which folder it is looked up, and what was found there, ``None`` for nothing."""

    folder: Path
    folder_found: os.stat_result
    name: Path
    found: os.stat_result | None


def require_own_program(folder: Path, what: str) -> None:
    """Raises DefinitionError for a folder in which anyone but this user and root can exchange a program; ``what`` lies there.

    That holds for each folder on the way to it too: no group is trusted but one's own, whoever opened the folder, and no container.
    Raises ``OSError`` where the way cannot be looked at.
    """
    if sys.platform != "win32":
        _require_own_way(folder / "any", what, _Use.PROGRAM)


def require_own_names(folder: Path, what: str) -> None:
    """Raises DefinitionError for a folder in which other users can rename, remove or replace what is this user's.

    ``what`` lies there ("temporary files"). That holds too for each folder on the way to it, but that one of this user's may be
    open to a group. Raises ``OSError`` where the way cannot be looked at.
    """
    if sys.platform == "win32":
        return
    _require_own_way(folder / "any", what, _Use.TEMPORARY)
    with suppress(FileNotFoundError):
        found = folder.stat()
        if _group_can_write(found, _Use.TEMPORARY) and not found.st_mode & stat.S_ISVTX and not is_container():
            raise _open_to_others(folder, found, what)


def require_own_folder(folder: Path, what: str) -> None:
    """Raises DefinitionError for a folder whose content other users can write or exchange; ``what`` lies in it ("ledger").

    One that is not there passes, where no other user can exchange it: whoever makes it asks once more. A folder that this user
    has opened to a group stays usable, and one that root has opened to a group of this user's: whoever names it trusts the members.
    Raises ``OSError`` where the way cannot be looked at.
    """
    if sys.platform == "win32":
        return
    found = _require_own_way(folder, f"the {what}", _Use.NAMED)
    if found is None:
        return
    if found.st_uid not in _trusted() and (not is_container() or _is_another_user(found.st_uid, folder, _Use.NAMED)):
        raise _of_another_user(folder, found, f"the {what}")
    if found.st_mode & stat.S_IWOTH:
        place = (
            "in it that does not exist yet, which is created"
            if found.st_mode & stat.S_ISVTX
            else "of your own; a missing one is created"
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
        for link in _links_to(path):
            folder = link.parent
            found = _require_own_way(folder, f"the {what}", _Use.NAMED)
            if found is not None and _is_another_user(found.st_uid, folder, _Use.NAMED):
                raise _of_another_user(folder, found, f"the {what}")
            if found is not None and found.st_mode & stat.S_IWOTH:
                if not is_volume_of_pod(folder):
                    raise DefinitionError(_open_to_all(folder, found, what))
                _require_own_link(link, f"the {what}")
    except DefinitionError as error:
        own = Path(os.environ.get("HOME", "/home/me"), "headrace", path.name)
        raise DefinitionError(error.message, f"Name a file in a folder of your own, such as {own}.") from None


def _require_own_link(path: Path, what: str) -> None:
    with suppress(FileNotFoundError):
        found = path.lstat()
        if stat.S_ISLNK(found.st_mode) and found.st_uid not in _trusted():
            raise _of_another_user(path, found, what)


def _links_to(path: Path) -> Iterator[Path]:
    """A file, and each one that links lead to from there."""
    for _ in range(_MOST_LINKS):
        yield path
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


def _require_own_way(path: Path, what: str, use: _Use) -> os.stat_result | None:
    """Raises for the first name that another user can exchange. Returns what lies at the path, ``None`` for nothing."""
    for step in _way(path):
        at = step.folder_found
        if _is_another_user(at.st_uid, step.folder, use):
            raise _of_another_user(step.folder, at, what)
        is_sticky, is_open = bool(at.st_mode & stat.S_ISVTX), _is_open(at, use)
        if is_open and not is_sticky and not (is_empty_dir if use is _Use.PROGRAM else is_volume_of_pod)(step.folder):
            raise _open_to_others(step.folder, at, what)
        if step.found is None or step.found.st_uid in _trusted() or not _is_open(at, _Use.PROGRAM):
            continue
        is_link = stat.S_ISLNK(step.found.st_mode) and _is_another_user(step.found.st_uid, step.folder, use)
        if is_open or is_sticky or is_link:
            raise _of_another_user(step.name, step.found, what)
    return step.found


def _is_open(folder: os.stat_result, use: _Use) -> bool:
    """Whether users who are not trusted with it can write to a folder."""
    return bool(folder.st_mode & stat.S_IWOTH) or (_group_can_write(folder, use) and not _is_decided(folder, use))


def _is_decided(folder: os.stat_result, use: _Use) -> bool:
    """Whether a person decided that the members of a folder's group are trusted with what lies in it.

    Root opens its own folders to groups for other reasons. No usual umask opens one to a group that is not its user's own.
    """
    if use is _Use.PROGRAM:
        return False
    if is_container():
        return True
    if folder.st_uid == _user():
        return folder.st_uid != 0
    return use is _Use.NAMED and folder.st_uid == 0 and folder.st_gid in _groups()


def _is_another_user(owner: int, folder: Path, use: _Use) -> bool:
    """Whether the owner of a folder can log in, or run anything, on this machine or on what shares its volume."""
    if owner in _trusted() or not _has_account(owner):
        return False
    if use is _Use.PROGRAM or not is_container():
        return True
    volume = volume_of(folder)
    return volume != Path("/") and volume.stat().st_uid != owner


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
        f"The folder {folder} for {what} has mode {stat.S_IMODE(found.st_mode):04o}: other users can replace Headrace's folders "
        "with their own.",
        f"Name a folder that only you can write to (Headrace creates a missing one with mode 0700), or run: chmod go-w {folder} "
        "(or chmod +t)",
    )


def _of_another_user(path: Path, found: os.stat_result, what: str) -> DefinitionError:
    owner = _name_of(found.st_uid)
    return DefinitionError(
        f"{path} belongs to {owner}, who could read or replace {what} there.",
        f"Name a folder of your own that is not inside another user's folder, or run headrace as {owner}.",
    )


def _user() -> int:
    return os.geteuid() if sys.platform != "win32" else 0


def _trusted() -> tuple[int, int]:
    return (0, _user())


def _groups() -> set[int]:
    return {os.getegid(), *os.getgroups()} if sys.platform != "win32" else set()


def _has_account(user: int) -> bool:
    """Whether a folder's owner has a name here. In a container, mounted folders belong to the number of a user of the host."""
    return user != Path("/").stat().st_uid and _account(user) is not None


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


def _group_can_write(found: os.stat_result, use: _Use) -> bool:
    """Whether a group that is not this user's own can write to a folder."""
    group, user = found.st_gid, _user()
    if not found.st_mode & stat.S_IWGRP:
        return False
    return _lists_others(group, user, with_idle=use is _Use.PROGRAM) or not (_has_name_of(group, user) or is_container())


@cache
def _has_name_of(group: int, user: int) -> bool:
    """Whether a group is of the form of those that many systems give to each user, with a umask of 002: it has the user's name.

    That it lists nobody else tells nothing: a directory (SSSD, LDAP) need not list a group's members, and there may be thousands.
    """
    if sys.platform == "win32":
        return False
    try:
        account = pwd.getpwuid(user)
        return account.pw_gid == group and grp.getgrgid(group).gr_name == account.pw_name
    except KeyError:
        return False


@cache
def _lists_others(group: int, user: int, *, with_idle: bool) -> bool:
    """Whether others than this user and root are known to be in a group; ``with_idle``: also accounts that only keep a number."""
    if sys.platform == "win32":
        return False
    trusted = (0, user)
    users = {account.pw_name: account for account in pwd.getpwall()}
    try:
        if any(name not in users or users[name].pw_uid not in trusted for name in grp.getgrgid(group).gr_mem):
            return True
    except KeyError:  # a group without a name
        pass
    members = (account for account in users.values() if account.pw_gid == group and account.pw_uid not in trusted)
    return any(with_idle or not _is_idle(account) for account in members)


def _is_idle(account: pwd.struct_passwd) -> bool:
    """Whether it is one of the accounts that systems bring along and that nobody can log in with, as sync and halt of group 0."""
    return account.pw_uid < _FIRST_PERSON and account.pw_shell.rpartition("/")[2] in _NO_SHELLS
