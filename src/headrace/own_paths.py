"""Checks whether another user of this machine can replace what lies at a path.

The files that Headrace trusts, and the programs that it runs, must lie where no other user can replace them. Another user controls:

- a folder that this user owns;
- the entries of a folder that this user can write to: all of them, or, if the folder is sticky (``/tmp``), only those that this
  user owns;
- whatever this user created in such a folder before Headrace did, including a link.

So the checks look at every name on the way to a path, and follow every link step by step.

"Another user" is neither this user nor root, and has an account. A user id without an account belongs to a user of another machine.
In a container no user id counts as another user, except on a volume; there the owner of the volume does not count either.

A group is this user's own if it has the form of a user's private group (:func:`_has_name_of`). Any other group is trusted only if a
person decided so: by opening a folder of their own to the group, by naming a folder that root created for a group of theirs, or by
creating a container. For programs neither such a decision nor the exception for containers counts.
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
    """What lies at the end of a path. The less a person chose the place, the fewer other users are trusted with it."""

    PROGRAM = auto()
    """A program that is run: only this user and root are trusted."""
    TEMPORARY = auto()
    """Rows and Spark's files, wherever the machine keeps temporary files."""
    NAMED = auto()
    """A place that a person named: a ledger, dead letters, a target."""


@dataclass(frozen=True)
class _Step:
    """One name on the way to a path."""

    folder: Path
    """The folder in which the name is looked up."""
    folder_found: os.stat_result
    name: Path
    """The path of the name in that folder."""
    found: os.stat_result | None
    """What lies there, without following a link; ``None`` for nothing."""


def require_own_program(folder: Path, what: str) -> None:
    """Raises DefinitionError for a folder in which anyone but this user and root can replace a program; ``what`` lies there.

    The same rule applies to each folder on the way to it. Only this user's own group is trusted, whoever opened the folder, and a
    container changes nothing. Raises ``OSError`` if a folder on the way cannot be examined.
    """
    if sys.platform != "win32":
        _require_own_way(folder / "any", what, _Use.PROGRAM)


def require_own_names(folder: Path, what: str) -> None:
    """Raises DefinitionError for a folder in which other users can rename, remove or replace this user's files.

    ``what`` lies there ("temporary files"). The same rule applies to each folder on the way to it, except that a folder of this
    user may be open to a group. Raises ``OSError`` if a folder on the way cannot be examined.
    """
    if sys.platform == "win32":
        return
    _require_own_way(folder / "any", what, _Use.TEMPORARY)
    with suppress(FileNotFoundError):
        found = folder.stat()
        if _group_can_write(found, _Use.TEMPORARY) and not found.st_mode & stat.S_ISVTX and not is_container():
            raise _open_to_others(folder, found, what)


def require_own_folder(folder: Path, what: str) -> None:
    """Raises DefinitionError for a folder whose content other users can write or replace; ``what`` lies in it ("ledger").

    A folder that does not exist passes if no other user can create it first. The caller that creates it must call this function
    again. A folder that this user has opened to a group stays usable. So does a folder that root has opened to a group of this
    user: a person who names such a folder trusts the group's members. Raises ``OSError`` if a folder on the way cannot be examined.
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
    """Raises DefinitionError for a file in whose folder other users can create or replace files; ``what`` it is ("DuckDB file").

    The rules of :func:`require_own_folder` apply to the folder, except for a folder mounted into a container: it may belong to a
    user id without an account, and in a pod it may be open to all. If the path is a link, the same rules apply to the folder of
    each file that the link leads to. The owner of the file itself does not matter. Raises ``OSError`` if a folder on the way cannot
    be examined.
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
    """The path, and each path that links lead to from there."""
    for _ in range(_MOST_LINKS):
        yield path
        if not path.is_symlink():
            return
        path = path.parent / path.readlink()
    raise OSError(f"{path} leads through too many links")


def make_own_folder(folder: Path, what: str) -> None:
    """Creates a folder with mode 0700 if it does not exist. Raises what :func:`require_own_folder` raises.

    The check runs again after the creation, because another user may have created the folder in the meantime.
    """
    require_own_folder(folder, what)
    if not folder.is_dir():
        make_private(folder)
        require_own_folder(folder, what)


def make_private(folder: Path) -> None:
    """Creates a folder and its missing parents with mode 0700. A folder that exists stays as it is. Raises ``OSError``."""
    if not folder.is_dir():
        make_private(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)


def _require_own_way(path: Path, what: str, use: _Use) -> os.stat_result | None:
    """Raises for the first name that another user can replace. Returns what lies at the path, ``None`` for nothing."""
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
    """Whether untrusted users can write to a folder."""
    return bool(folder.st_mode & stat.S_IWOTH) or (_group_can_write(folder, use) and not _is_decided(folder, use))


def _is_decided(folder: os.stat_result, use: _Use) -> bool:
    """Whether a person decided to trust the members of a folder's group with the folder's content.

    A folder of this user counts, because no usual umask opens a folder to a group that is not the user's own. A folder of root does
    not count for that reason alone: root opens its folders to groups for other reasons.
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
    """The names on the way to a path, in the kernel's lookup order. Ends at the first name that does not exist."""
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
    """Whether a user id has an account here. In a container, mounted folders have the user id of a user of the host.

    The owner of ``/`` counts as having none.
    """
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
    """Whether a group has the form of a user's private group: it is the user's primary group and has the user's name.

    Many systems create such a group for each user and set a umask of 002. That a group lists no other members proves nothing: a
    directory (SSSD, LDAP) need not list a group's members, and there may be thousands.
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
    """Whether a group is known to have members other than this user and root. ``with_idle`` also counts accounts without login."""
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
    """Whether this is a system account without a login shell, such as sync and halt of group 0."""
    return account.pw_uid < _FIRST_PERSON and account.pw_shell.rpartition("/")[2] in _NO_SHELLS
