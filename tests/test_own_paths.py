"""What other users of the machine can exchange is told from what they cannot, on the whole way to a path."""

from __future__ import annotations

import os
import pwd
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headrace.errors import DefinitionError
from headrace.own_paths import make_own_folder, require_own_file, require_own_folder, require_own_names

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can give folders to other users"),
]
OWNER, NEIGHBOUR = 2, 1
"""This user, where it is not root, and another one: of the first accounts that every system has."""
UNKNOWN = 4711


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder that every user reaches, and only root can write to."""
    with tempfile.TemporaryDirectory(dir="/tmp") as made:
        Path(made).chmod(0o755)
        yield Path(made)


def make(path: Path, bits: int = 0o755, owner: int = 0, group: int | None = None) -> Path:
    path.mkdir(parents=True)
    os.chown(path, owner, pwd.getpwuid(owner).pw_gid if group is None else group)
    path.chmod(bits)
    return path


def refusal(check: Callable[[], object], user: int = 0) -> str:
    """The sentence with which a check refuses, empty where it passes; it is made by a process of this user."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.setgroups([])
            os.setresgid(user, user, user)
            os.setresuid(user, user, user)
            try:
                check()
            except DefinitionError as error:
                os.write(writing, str(error).encode())
            code = 0
        finally:
            os._exit(code)
    os.close(writing)
    with os.fdopen(reading, "rb") as told:
        sentence = told.read().decode()
    assert os.waitpid(child, 0)[1] == 0
    return sentence


CHECKS = pytest.mark.parametrize(
    "check",
    [lambda path: require_own_names(path, "the ledger"), lambda path: require_own_folder(path, "ledger")],
    ids=["names", "folder"],
)
Check = Callable[[Path], None]


@CHECKS
@pytest.mark.parametrize("user", [0, OWNER])
@pytest.mark.parametrize("bits", [0o700, 0o755, 0o775])
def test_a_folder_of_ones_own_below_folders_of_ones_own_or_roots_is_used(place: Path, check: Check, user: int, bits: int) -> None:
    """The group of one's own, as many users have one, may write."""
    own = make(place / "home", bits, user)
    make(own / "project", bits, user)
    assert refusal(lambda: check(own / "project"), user) == ""
    assert refusal(lambda: check(own / "project" / "new" / "newer"), user) == ""


@CHECKS
@pytest.mark.parametrize("user", [0, OWNER])
def test_in_a_sticky_folder_only_what_is_ones_own_is_used(place: Path, check: Check, user: int) -> None:
    make(place / "tmp", 0o1777)
    make(place / "tmp" / "own", 0o700, user)
    make(place / "tmp" / "theirs", 0o755, NEIGHBOUR)
    (place / "tmp" / "link").symlink_to(place / "tmp" / "own")
    os.chown(place / "tmp" / "link", user, user, follow_symlinks=False)
    (place / "tmp" / "their-link").symlink_to(place / "tmp" / "own")
    os.chown(place / "tmp" / "their-link", NEIGHBOUR, NEIGHBOUR, follow_symlinks=False)
    for used in ("own", "own/new", "link", "link/new", "missing"):
        assert refusal(lambda used=used: check(place / "tmp" / used), user) == ""
    for refused in ("theirs", "theirs/new", "their-link", "their-link/new", "own/../their-link"):
        told = refusal(lambda refused=refused: check(place / "tmp" / refused), user)
        assert told.startswith(f"{place}/tmp/their")
        assert f"belongs to user {pwd.getpwuid(NEIGHBOUR).pw_name}, who could read or replace the ledger there." in told


@CHECKS
@pytest.mark.parametrize(("bits", "owner"), [(0o777, 0), (0o777, OWNER), (0o775, 0)])
def test_a_folder_in_which_others_can_exchange_names_is_refused_anywhere_on_the_way(
    place: Path, check: Check, bits: int, owner: int
) -> None:
    make(place / "open", bits, owner, pwd.getpwuid(NEIGHBOUR).pw_gid)
    make(place / "open" / "own", 0o700, OWNER)
    (place / "link").symlink_to("open/own")
    for path in (place / "open" / "own", place / "open" / "own" / "new", place / "open" / "new", place / "link"):
        told = refusal(lambda path=path: check(path), OWNER)
        assert told.startswith(
            f"The folder {place}/open for the ledger has mode {bits:04o}: other users can replace Headrace's folders"
        )
        assert f"chmod go-w {place}/open" in told


@CHECKS
def test_a_folder_below_one_of_another_users_is_refused(place: Path, check: Check) -> None:
    make(place / "theirs", 0o755, NEIGHBOUR)
    make(place / "theirs" / "own", 0o700, OWNER)
    for user in (0, OWNER):
        told = refusal(lambda: check(place / "theirs" / "own"), user)
        assert told.startswith(f"{place}/theirs belongs to user {pwd.getpwuid(NEIGHBOUR).pw_name}")
        assert f"or run headrace as user {pwd.getpwuid(NEIGHBOUR).pw_name}" in told


@CHECKS
def test_a_mounted_folder_of_a_user_that_the_container_does_not_know_is_used(place: Path, check: Check) -> None:
    make(place / "mounted")
    os.chown(place / "mounted", UNKNOWN, UNKNOWN)
    make(place / "mounted" / "own", 0o700)
    assert refusal(lambda: check(place / "mounted" / "own")) == ""


def test_a_folder_that_its_owner_has_opened_to_a_group_is_used_but_not_for_temporary_files(place: Path) -> None:
    home = make(place / "home", 0o775, OWNER, pwd.getpwuid(NEIGHBOUR).pw_gid)
    make(home / "own", 0o700, OWNER)
    assert refusal(lambda: require_own_folder(home, "ledger"), OWNER) == ""
    assert refusal(lambda: require_own_folder(home / "own", "ledger"), OWNER) == ""
    assert refusal(lambda: require_own_names(home / "own", "temporary files"), OWNER) == ""
    assert "has mode 0775" in refusal(lambda: require_own_names(home, "temporary files"), OWNER)


IN_A_POD = """
import sys
from pathlib import Path
from headrace.own_paths import require_own_file, require_own_folder, require_own_names
require_own_file(Path(sys.argv[1]), "DuckDB file")
require_own_names(Path(sys.argv[1]), "temporary files")
require_own_folder(Path(sys.argv[1]), "ledger")
"""


@pytest.mark.parametrize(("variable", "is_used"), [("KUBERNETES_SERVICE_HOST", True), ("OTHER", False)])
def test_a_volume_of_a_pod_may_be_open_to_everybody(place: Path, variable: str, is_used: bool) -> None:
    """Kubernetes makes an emptyDir with mode 0777, and no other pod reaches it."""
    volume = make(place / "volume")
    mounted = f'mount -t tmpfs -o mode=0777 none "$0" && exec {sys.executable} -c "$1" "$0/own"'
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", mounted, str(volume), IN_A_POD],
        env={**os.environ, variable: "10.0.0.1"},
        capture_output=True,
        text=True,
        check=False,
    )
    if "mount:" in done.stderr or "unshare:" in done.stderr:
        pytest.skip(done.stderr)
    assert (done.returncode == 0) is is_used, done.stderr
    assert is_used or "has mode 0777" in done.stderr


def test_a_folder_is_made_for_its_user_alone(place: Path) -> None:
    own = make(place / "home", 0o755, OWNER)
    assert refusal(lambda: (os.umask(0), make_own_folder(own / "a" / "b", "ledger")), OWNER) == ""
    for made in (own / "a", own / "a" / "b"):
        assert made.stat().st_mode & 0o777 == 0o700


def test_links_without_an_end_are_an_error(place: Path) -> None:
    (place / "a").symlink_to("b")
    (place / "b").symlink_to("a")
    with pytest.raises(OSError, match="too many links"):
        require_own_folder(place / "a", "ledger")
    with pytest.raises(OSError, match="too many links"):
        require_own_file(place / "a", "DuckDB file")
