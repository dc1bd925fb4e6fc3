"""A group is one's own by its form, whoever is listed in it; another one is trusted only where a person decided so."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from machines import EVERYTHING, Machine

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can give folders to other users"),
]
ALICE, BOB, TEAM = 2001, 2002, 3001
ACCOUNTS = (f"alice:x:{ALICE}:{ALICE}::/:/bin/sh", f"bob:x:{BOB}:{BOB}::/:/bin/sh")
GROUPS = (f"alice:x:{ALICE}:", f"bob:x:{BOB}:", f"team:x:{TEAM}:alice,bob")
NAMED = {"ledger", "target"}
"""Whose place a person names."""


@pytest.fixture
def place() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir="/tmp") as made:
        Path(made).chmod(0o755)
        yield Path(made)


def make(path: Path, owner: int, group: int, bits: int = 0o2775) -> Path:
    path.mkdir()
    os.chown(path, owner, group)
    path.chmod(bits)
    return path


def test_the_group_with_ones_own_name_is_ones_own(place: Path) -> None:
    home = make(place / "home", ALICE, ALICE)
    assert Machine(ACCOUNTS, GROUPS).uses(home, ALICE, ALICE) == EVERYTHING
    assert Machine(ACCOUNTS, GROUPS).uses(make(place / "roots", 0, 0), 0, 0) == EVERYTHING


@pytest.mark.parametrize(
    ("accounts", "groups"),
    [
        (ACCOUNTS, (f"alice:x:{ALICE}:bob",)),
        (ACCOUNTS, (f"alice:x:{ALICE}:somebody-of-a-directory",)),
        ((ACCOUNTS[0], f"bob:x:{BOB}:{ALICE}::/:/bin/sh"), GROUPS),
        ((ACCOUNTS[0], f"robot:x:{BOB}:{ALICE}::/:/usr/sbin/nologin"), GROUPS),
        (ACCOUNTS, (f"domain users:x:{ALICE}:",)),
        (ACCOUNTS, ()),
        ((f"alice:x:{ALICE}:{TEAM}::/:/bin/sh",), GROUPS),
        ((), GROUPS),
        ((), ()),
    ],
    ids=[
        "another member",
        "one whom nobody knows",
        "another user's primary group",
        "a program's primary group",
        "nobody is listed, and it has another name",
        "it has no name",
        "it is not the primary group",
        "the user has no name",
        "neither has a name",
    ],
)
def test_another_group_is_not_ones_own(place: Path, accounts: tuple[str, ...], groups: tuple[str, ...]) -> None:
    """The members that SSSD, LDAP or AD know are in no list that a program can rely on."""
    home = make(place / "home", ALICE, ALICE)
    machine = Machine(accounts, groups)
    assert machine.uses(home, ALICE, ALICE) == NAMED
    assert f"The folder {home} for the start of Java has mode 2775: other users" in machine.refusals(home, ALICE, ALICE)["program"]
    cache = make(home / "cache", ALICE, ALICE, 0o700)
    assert machine.uses(cache, ALICE, ALICE) == {*NAMED, "temporary"}


def test_no_group_that_has_no_name_is_roots_own(place: Path) -> None:
    """But a DuckDB file may lie in a folder that its user opened to any group."""
    assert Machine(ACCOUNTS, GROUPS).uses(make(place / "project", 0, TEAM + 1), 0, 0) == {"target"}


def test_root_has_the_accounts_in_its_group_that_red_hat_brings_along_but_no_program_relies_on_that(place: Path) -> None:
    idle = ("sync:x:5:0:sync:/sbin:/bin/sync", "halt:x:7:0:halt:/sbin:/sbin/halt", "operator:x:11:0::/root:/sbin/nologin")
    folder = make(place / "project", 0, 0)
    assert Machine(idle).uses(folder, 0, 0) == EVERYTHING - {"program"}
    assert Machine((*idle, "operator:x:12:0::/root:/bin/bash")).uses(folder, 0, 0) == {"target"}
    assert Machine((*idle, "person:x:1012:0::/root:/sbin/nologin")).uses(folder, 0, 0) == {"target"}


def test_a_folder_that_root_made_for_a_team_is_used_by_its_members_for_what_they_name(place: Path) -> None:
    project = make(place / "project", 0, TEAM)
    machine = Machine(ACCOUNTS, GROUPS)
    assert machine.uses(project, ALICE, ALICE, TEAM) == NAMED
    assert machine.uses(project, ALICE, TEAM) == NAMED
    assert "ledger" not in machine.uses(project, ALICE, ALICE)
    assert machine.refusals(project, 0, 0, TEAM)["ledger"].startswith(
        f"The folder {project} for the ledger has mode 2775: other users"
    )


def test_a_folder_that_root_made_for_everybody_is_not(place: Path) -> None:
    project = make(place / "project", 0, TEAM, 0o2777)
    assert Machine(ACCOUNTS, GROUPS).uses(project, ALICE, ALICE, TEAM) == set()


@pytest.mark.parametrize("owner", [0, ALICE])
def test_neither_folders_nor_links_that_other_members_made_are_used(place: Path, owner: int) -> None:
    """A link would lead to another ledger of this user's."""
    project, private = make(place / "project", owner, TEAM), make(place / "private", ALICE, ALICE, 0o700)
    machine = Machine(ACCOUNTS, GROUPS)
    make(project / "theirs", BOB, TEAM)
    (project / "link").symlink_to(private)
    assert machine.uses(project / "link", ALICE, ALICE, TEAM) == (NAMED if owner == 0 else {*NAMED, "temporary"})
    os.chown(project / "link", BOB, BOB, follow_symlinks=False)
    for name in ("theirs", "link"):
        told = machine.refusals(project / name, ALICE, ALICE, TEAM)
        assert all(told[use].startswith(f"{project}/{name} belongs to user bob, who") for use in NAMED), told


KEEP = """
import os, sys
from headrace.sinks.file_ledger import open_file_ledger
os.setgroups([3001]); os.setgid(2001); os.setuid(2001); os.umask(2)
open_file_ledger(sys.argv[1]).acquire("default", "source", "", 0)
"""


def test_what_is_made_in_a_teams_folder_is_for_its_user_alone(place: Path) -> None:
    project = make(place / "project", 0, TEAM)
    Machine(ACCOUNTS, GROUPS).run(KEEP, project / "a" / "ledger")
    made = [project / "a", *(project / "a").rglob("*")]
    assert len(made) > 2
    assert {path.stat().st_mode & 0o777 for path in made} == {0o700, 0o600}


@pytest.mark.parametrize(("owner", "bits"), [(0, 0o3775), (ALICE, 0o3775), (0, 0o1777)])
def test_in_a_sticky_folder_of_a_team_only_what_is_ones_own_is_used(place: Path, owner: int, bits: int) -> None:
    """Members made it sticky because they do not want to exchange what is another's."""
    project, private = make(place / "project", owner, TEAM, bits), make(place / "private", ALICE, ALICE, 0o700)
    machine = Machine(ACCOUNTS, GROUPS)
    make(project / "own", ALICE, ALICE, 0o700)
    make(project / "theirs", BOB, BOB, 0o755)
    make(project / "numbers", TEAM + 1, TEAM + 1, 0o755)
    (project / "link").symlink_to(private)
    os.chown(project / "link", BOB, BOB, follow_symlinks=False)
    assert machine.uses(project / "own", ALICE, ALICE, TEAM) == EVERYTHING
    for name in ("theirs", "numbers"):
        assert machine.uses(project / name, ALICE, ALICE, TEAM) == set()
    told = machine.refusals(project / "link", ALICE, ALICE, TEAM)
    assert {sentence.startswith(f"{project}/link belongs to user bob, who") for sentence in told.values()} == {True}
