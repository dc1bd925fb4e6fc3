"""Temporary folders are for their user alone, and what a killed run left is removed by the next one, and nothing else."""

from __future__ import annotations

import os
import pwd
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from headrace import scratch
from headrace.errors import DefinitionError
from headrace.scratch import KINDS, MARKER, Scratch, open_private, remove_leftovers

HOLD = """
import sys
from pathlib import Path
from headrace.scratch import Scratch
made = Scratch.make(sys.argv[1], Path(sys.argv[2]))
(made.path / "rows").mkdir()
(made.path / "rows" / "data.arrow").write_text("x")
print(made.path, flush=True)
sys.stdin.read()
"""
KEPT = "kept"


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


@contextmanager
def another_run(parent: Path, kind: str = "work") -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """A process that has a folder in ``parent``."""
    command = [sys.executable, "-c", HOLD, kind, str(parent)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield process, Path(process.stdout.readline().strip())
        process.kill()


@pytest.fixture(params=[0o000, 0o022, 0o077])
def umask(request: pytest.FixtureRequest) -> Iterator[None]:
    former = os.umask(request.param)
    yield
    os.umask(former)


@pytest.mark.usefixtures("umask")
def test_folders_and_files_are_for_their_user_alone_whatever_the_umask(tmp_path: Path) -> None:
    with Scratch.make("work", tmp_path / "new") as made:
        with open_private(made.path / "file") as file:
            assert mode(made.path / "file") == 0o600
            file.write(b"x")
        assert mode(made.path) == 0o700
        assert mode(made.path.parent) & 0o077 == 0
    assert not made.path.exists()


def test_nothing_is_written_through_a_link_that_lies_at_the_path(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(FileExistsError):
        open_private(tmp_path / "link")
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize("kind", KINDS)
def test_the_folder_of_a_killed_run_is_removed_by_the_next_one(tmp_path: Path, kind: str) -> None:
    with another_run(tmp_path, kind) as (process, left):
        process.kill()
        process.wait()
        assert (left / "rows" / "data.arrow").exists()
        with Scratch.make("check", tmp_path) as made:
            assert [path for path in tmp_path.iterdir() if path != made.path] == []


def test_the_folder_of_a_living_run_stays(tmp_path: Path) -> None:
    with another_run(tmp_path) as (_, used):
        remove_leftovers(tmp_path)
        assert (used / "rows" / "data.arrow").exists()


def test_a_folder_stays_as_long_as_a_process_that_inherited_it_lives(tmp_path: Path) -> None:
    """The JVM of Spark, when its driver was killed."""
    command = [sys.executable, "-c", HOLD.replace("sys.stdin.read()", SURVIVING), "spark", str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        used, child = Path(process.stdout.readline().strip()), int(process.stdout.readline())
        process.kill()
        process.wait()
        try:
            remove_leftovers(tmp_path)
            assert used.exists()
        finally:
            os.kill(child, 9)
        until = time.monotonic() + 10
        while used.exists() and time.monotonic() < until:
            remove_leftovers(tmp_path)
            time.sleep(0.05)
        assert not used.exists()


SURVIVING = """
import subprocess
child = subprocess.Popen(["sleep", "60"], pass_fds=(made.lock,), stdout=subprocess.DEVNULL)
print(child.pid, flush=True)
child.wait()
"""


def test_links_are_not_followed(tmp_path: Path) -> None:
    """Neither one in place of a folder, nor one in a folder."""
    precious = tmp_path / "precious"
    precious.mkdir(mode=0o700)
    (precious / "kept").write_text("x")
    parent = tmp_path / "tmp"
    parent.mkdir()
    (parent / "headrace-work-run-abcdefgh").symlink_to(precious)
    with another_run(parent) as (process, left):
        (left / "out").symlink_to(precious)
        (left / "rows" / "out").symlink_to(precious / "kept")
        process.kill()
        process.wait()
        remove_leftovers(parent)
        assert not left.exists()
    assert [path.name for path in precious.iterdir()] == ["kept"]
    assert (parent / "headrace-work-run-abcdefgh").is_symlink()


def test_a_folder_of_another_user_is_neither_used_nor_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hostile = tmp_path / "headrace-work-run-abcdefgh"
    hostile.mkdir(mode=0o700)
    (hostile / KEPT).write_text("")
    mark(hostile)
    if os.geteuid() == 0:
        os.chown(hostile, 12345, 12345)
    else:
        monkeypatch.setattr(scratch.os, "geteuid", lambda: 12345)
    names = iter(["abcdefgh", "bcdefghi"])
    monkeypatch.setattr(scratch.tempfile, "_get_candidate_names", lambda: names)
    with Scratch.make("work", tmp_path) as made:
        assert made.path.name == "headrace-work-run-bcdefghi"
    assert (hostile / KEPT).exists()


def test_a_folder_that_others_may_write_is_not_ours(tmp_path: Path) -> None:
    found = tmp_path / "headrace-work-run-abcdefgh"
    found.mkdir()
    found.chmod(0o777)
    (found / KEPT).write_text("")
    mark(found)
    remove_leftovers(tmp_path)
    assert (found / KEPT).exists()


def mark(folder: Path) -> None:
    """As Headrace marks what it makes."""
    (folder / MARKER).write_text(str(folder.stat().st_ino))


def test_a_marked_folder_is_a_leftover(tmp_path: Path) -> None:
    """It shows that what stays in the other tests stays for the reason that they name."""
    found = tmp_path / "headrace-work-run-abcdefgh"
    found.mkdir(mode=0o700)
    (found / KEPT).write_text("")
    mark(found)
    remove_leftovers(tmp_path)
    assert not found.exists()


@pytest.mark.parametrize("text", [None, "", "1", "of another folder"])
def test_a_folder_that_headrace_did_not_make_stays_whatever_its_name(tmp_path: Path, text: str | None) -> None:
    """Another user can rename a private folder, where the folder above it lets them."""
    precious = tmp_path / "headrace-work-run-abcdefgh"
    precious.mkdir(mode=0o700)
    (precious / KEPT).write_text("x")
    if text is not None:
        (precious / MARKER).write_text(text)
    with Scratch.make("work", tmp_path):
        assert (precious / KEPT).exists()


def test_at_the_end_the_folder_itself_is_emptied_and_not_what_took_its_name(tmp_path: Path) -> None:
    made = Scratch.make("work", tmp_path)
    (made.path / "rows").write_text("x")
    moved = made.path.rename(tmp_path / "moved")
    made.path.mkdir(mode=0o700)
    (made.path / KEPT).write_text("")
    made.remove()
    assert list(moved.iterdir()) == []
    assert (made.path / KEPT).exists()


@pytest.mark.parametrize("bits", [0o777, 0o703])
def test_a_folder_in_which_others_can_exchange_folders_is_refused(tmp_path: Path, bits: int) -> None:
    tmp_path.chmod(bits)
    with pytest.raises(DefinitionError) as refused:
        Scratch.make("work", tmp_path)
    assert f"The folder {tmp_path} for temporary files has mode 0{bits:o}" in str(refused.value)
    assert f"chmod go-w {tmp_path}" in str(refused.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("bits", [0o1777, 0o755, 0o700])
def test_a_folder_in_which_others_cannot_exchange_folders_is_used(tmp_path: Path, bits: int) -> None:
    tmp_path.chmod(bits)
    with Scratch.make("work", tmp_path) as made:
        assert made.path.parent == tmp_path


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give folders to any group")
def test_a_folder_that_a_group_can_write_is_refused_where_others_are_in_the_group(tmp_path: Path) -> None:
    tmp_path.chmod(0o770)
    os.chown(tmp_path, -1, 0)
    Scratch.make("work", tmp_path).remove()
    os.chown(tmp_path, -1, next(user.pw_gid for user in pwd.getpwall() if user.pw_uid != 0 and user.pw_gid != 0))
    with pytest.raises(DefinitionError, match="has mode 0770"):
        Scratch.make("work", tmp_path)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give links to other users")
@pytest.mark.parametrize("below", ["", "sub", "sub/deep"])
def test_nothing_is_made_through_a_link_of_another_user(tmp_path: Path, below: str) -> None:
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared").chmod(0o1777)
    (tmp_path / "elsewhere").mkdir()
    link = tmp_path / "shared" / "spark"
    link.symlink_to(tmp_path / "elsewhere")
    os.chown(link, 1, 1, follow_symlinks=False)
    with pytest.raises(DefinitionError, match=f"{link} belongs to user daemon, who could read or replace temporary files there"):
        Scratch.make("spark", link / below)
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_a_folder_stays_the_same_when_the_link_to_its_parent_is_exchanged(tmp_path: Path) -> None:
    (tmp_path / "named").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "named")
    with Scratch.make("work", tmp_path / "link") as made:
        assert made.path.parent == tmp_path / "named"


@pytest.mark.parametrize("name", ["headrace-faults-abcdefgh", "headrace-check-abcdefgh", "headrace-work-run-abcdefgh.bak", "x"])
def test_a_folder_of_another_name_stays(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir(mode=0o700)
    (tmp_path / name / KEPT).write_text("")
    remove_leftovers(tmp_path)
    assert (tmp_path / name / KEPT).exists()


def test_a_removal_that_was_broken_off_is_taken_up_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with another_run(tmp_path) as (process, left):
        process.kill()
        process.wait()
    with monkeypatch.context() as patch:
        patch.setattr(scratch.os, "rmdir", refuse)
        remove_leftovers(tmp_path)
        assert left.exists()
    remove_leftovers(tmp_path)
    assert not left.exists()


def refuse(*_: object, **__: object) -> None:
    raise PermissionError(1, "not now")


def test_a_folder_that_another_run_removed_while_it_was_made_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    making = scratch.tempfile.mkdtemp

    def made_and_removed(**where: object) -> str:
        monkeypatch.setattr(scratch.tempfile, "mkdtemp", making)
        path = making(**where)
        Path(path).rmdir()
        return str(path)

    monkeypatch.setattr(scratch.tempfile, "mkdtemp", made_and_removed)
    with Scratch.make("work", tmp_path) as made:
        assert made.path.is_dir()


def test_a_file_system_without_locks_keeps_its_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unsupported(*_: object) -> None:
        raise OSError(37, "No locks available")

    monkeypatch.setattr(scratch.fcntl, "flock", unsupported)
    with Scratch.make("work", tmp_path) as made:
        remove_leftovers(tmp_path)
        assert made.path.is_dir()
