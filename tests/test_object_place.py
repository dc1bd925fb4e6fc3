"""What is written into a folder is for its user alone, and appears whole or not at all, as in an object store."""

from __future__ import annotations

import os
import pickle
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Thread

import obstore
import pytest
from obstore.exceptions import AlreadyExistsError

from headrace.errors import DefinitionError, FencedError
from headrace.model.letters import Letter
from headrace.model.table import TableId
from headrace.places import object_place
from headrace.places.object_place import open_place
from headrace.sinks.dead_letters import open_dead_letters
from headrace.sinks.file_ledger import open_file_ledger


@pytest.fixture(params=[0o000, 0o022, 0o077])
def umask(request: pytest.FixtureRequest) -> Iterator[None]:
    former = os.umask(request.param)
    yield
    os.umask(former)


def modes(root: Path) -> dict[bool, set[int]]:
    """The modes of folders (``True``) and of all else."""
    found: dict[bool, set[int]] = {True: set(), False: set()}
    for path in (root, *root.rglob("*")):
        found[path.is_dir()].add(stat.S_IMODE(path.lstat().st_mode))
    return found


@pytest.mark.usefixtures("umask")
def test_dead_letters_are_for_their_user_alone(tmp_path: Path) -> None:
    letters = open_dead_letters(str(tmp_path / "new" / "letters"), "default")
    table = TableId("shop", "orders")
    (name,) = letters.put([Letter(table, 1, 2, "it is wrong", raw=b"secret")])
    assert modes(tmp_path / "new") == {True: {0o700}, False: {0o600}}
    letters.set_aside(table, [name])
    assert list(letters.replayed(table)) == [name]
    assert modes(tmp_path / "new") == {True: {0o700}, False: {0o600}}


@pytest.mark.usefixtures("umask")
def test_a_file_ledger_is_for_its_user_alone(tmp_path: Path) -> None:
    ledger = open_file_ledger(str(tmp_path / "new" / "ledger"))
    ledger.acquire("default", "source", "", 0)
    ledger.next_attempt()
    assert modes(tmp_path / "new") == {True: {0o700}, False: {0o600}}
    assert ledger.peek("default") is not None


def test_a_folder_that_is_there_keeps_its_mode(tmp_path: Path) -> None:
    tmp_path.chmod(0o750)
    open_place(str(tmp_path), "ledger").put("a/b.json", b"x")
    assert modes(tmp_path / "a") == {True: {0o700}, False: {0o600}}
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o750


@pytest.mark.parametrize("key", ["plain.json", "a%2Eb/c d/文 x.json", "%E4%BD%A0=0f/1.json"])
def test_what_is_put_is_read_under_the_same_key(tmp_path: Path, key: str) -> None:
    place = open_place(str(tmp_path), "ledger")
    place.put(key, b"one")
    place.put(key, b"two")
    store = place.store(create=False)
    assert store is not None
    assert bytes(obstore.get(store, key).bytes()) == b"two"
    assert [item["path"] for chunk in obstore.list(store) for item in chunk] == [key]


def test_of_two_that_create_a_file_one_wins(tmp_path: Path) -> None:
    place = open_place(str(tmp_path), "ledger")
    place.put("1.json", b"one", create=True)
    with pytest.raises(AlreadyExistsError):
        place.put("1.json", b"two", create=True)
    assert (tmp_path / "1.json").read_bytes() == b"one"
    assert [path.name for path in tmp_path.iterdir()] == ["1.json"]


@pytest.mark.parametrize("create", [True, False])
def test_a_file_that_is_not_whole_is_not_listed(tmp_path: Path, create: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that is killed in the middle of it, or a disk that is full."""
    place = open_place(str(tmp_path), "ledger")
    seen: list[str] = []

    def killed(path: Path, _: object) -> None:
        store = place.store(create=False)
        assert store is not None
        seen.extend(item["path"] for chunk in obstore.list(store) for item in chunk)
        assert [found for found in tmp_path.iterdir() if found.is_file()]
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(object_place.Path, "hardlink_to" if create else "replace", killed)
    with pytest.raises(OSError, match="No space left"):
        place.put("1.json", b"one", create=create)
    assert seen == []
    assert list(tmp_path.iterdir()) == []


def test_a_link_in_place_of_a_file_is_replaced_and_not_written_through(tmp_path: Path) -> None:
    (tmp_path / "letters").mkdir()
    (tmp_path / "precious").write_text("kept")
    (tmp_path / "letters" / "1.json").symlink_to(tmp_path / "precious")
    open_place(str(tmp_path / "letters"), "dead-letter folder").put("1.json", b"new")
    assert (tmp_path / "precious").read_text() == "kept"
    assert (tmp_path / "letters" / "1.json").read_text() == "new"


@pytest.mark.parametrize("bits", [0o777, 0o1777, 0o702])
def test_a_folder_that_everybody_can_write_to_is_refused(tmp_path: Path, bits: int) -> None:
    tmp_path.chmod(bits)
    for location in (str(tmp_path), f"file://{tmp_path}"):
        with pytest.raises(DefinitionError) as refused:
            open_dead_letters(location, "default")
        assert f"Every user of the machine can write to {tmp_path}, which has mode {bits:04o}" in str(refused.value)
        with pytest.raises(DefinitionError, match="no ledger can be kept there"):
            open_file_ledger(location)


@pytest.mark.parametrize(("bits", "is_safe"), [(0o1777, True), (0o777, False), (0o702, False)])
def test_a_new_folder_is_refused_where_others_can_exchange_it(tmp_path: Path, bits: int, is_safe: bool) -> None:
    """In a sticky folder, as /tmp is, they cannot."""
    tmp_path.chmod(bits)
    if is_safe:
        open_file_ledger(str(tmp_path / "new"))
        return
    with pytest.raises(DefinitionError) as refused:
        open_file_ledger(str(tmp_path / "new"))
    assert f"The folder {tmp_path} for the ledger has mode {bits:04o}" in str(refused.value)
    assert f"chmod go-w {tmp_path}" in str(refused.value)


ONLY_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another user")
NEIGHBOUR = 65534


def made_by_a_neighbour(folder: Path, bits: int = 0o755) -> None:
    subprocess.run(["mkdir", "-m", f"{bits:o}", str(folder)], check=True, user=NEIGHBOUR, group=NEIGHBOUR, extra_groups=[])


@pytest.fixture
def shared() -> Iterator[Path]:
    """A folder as /tmp is, which other users reach."""
    with tempfile.TemporaryDirectory(dir="/tmp") as made:
        Path(made).chmod(0o1777)
        yield Path(made)


@ONLY_ROOT
@pytest.mark.parametrize("bits", [0o700, 0o755, 0o777])
def test_a_ledger_that_a_neighbour_made_first_is_not_used(shared: Path, bits: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would say that everything is applied already."""
    made_by_a_neighbour(shared / ".headrace", bits)
    monkeypatch.chdir(shared)
    for location in (".headrace", str(shared / ".headrace" / "below")):
        with pytest.raises(
            DefinitionError, match=f"{shared}/.headrace belongs to user nobody, who could read or replace the ledger"
        ):
            open_file_ledger(location)


@ONLY_ROOT
def test_a_link_of_a_neighbours_is_not_followed_to_a_ledger(shared: Path, tmp_path: Path) -> None:
    (tmp_path / "private").mkdir(mode=0o700)
    (shared / "ledger").symlink_to(tmp_path / "private")
    open_file_ledger(str(shared / "ledger"))
    os.chown(shared / "ledger", NEIGHBOUR, NEIGHBOUR, follow_symlinks=False)
    with pytest.raises(DefinitionError, match=f"{shared}/ledger belongs to user nobody"):
        open_file_ledger(str(shared / "ledger"))


@ONLY_ROOT
def test_dead_letters_are_not_written_to_a_folder_that_a_neighbour_made_meanwhile(shared: Path) -> None:
    letters = open_dead_letters(str(shared / "letters"), "default")
    in_a_task = pickle.loads(pickle.dumps(letters))
    made_by_a_neighbour(shared / "letters", 0o777)
    table = TableId("shop", "orders")
    for used in (letters, in_a_task):
        with pytest.raises(DefinitionError, match=f"{shared}/letters belongs to user nobody, who could .* the dead-letter folder"):
            used.put([Letter(table, 1, 2, "it is wrong", raw=b"secret")])
        with pytest.raises(DefinitionError, match="belongs to user nobody"):
            used.of(table)
    assert list((shared / "letters").iterdir()) == []


@ONLY_ROOT
def test_a_ledger_that_a_neighbour_puts_in_the_place_of_one_is_noticed(shared: Path) -> None:
    ledger = open_file_ledger(str(shared / "ledger"))
    ledger.acquire("default", "source", "", 0)
    shutil.rmtree(shared / "ledger")
    made_by_a_neighbour(shared / "ledger")
    for use in (ledger.next_attempt, lambda: ledger.peek("default")):
        with pytest.raises(DefinitionError, match="belongs to user nobody"):
            use()


def stray(path: Path, kind: str, target: Path) -> None:
    if kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to(target)


def in_time(act: Callable[[], object]) -> object:
    """What it returns. Reading a pipe that nobody writes to never ends, and no signal interrupts it."""
    done: list[object] = []
    thread = Thread(target=lambda: done.append(act()), daemon=True)
    thread.start()
    thread.join(10)
    return done[0] if done else None


@pytest.mark.parametrize("kind", ["pipe", "link"])
def test_pipes_and_links_are_no_dead_letters(tmp_path: Path, kind: str) -> None:
    letters = open_dead_letters(str(tmp_path / "letters"), "default")
    table = TableId("shop", "orders")
    (name,) = letters.put([Letter(table, 1, 2, "it is wrong", raw=b"x")])
    (folder,) = {path.parent for path in tmp_path.rglob(f"{name}.json")}
    (folder / "replayed").mkdir()
    outside = tmp_path / "outside.json"
    outside.write_text((folder / f"{name}.json").read_text())
    for place in (folder, folder / "replayed"):
        stray(place / "stray.json", kind, outside)

    def use() -> object:
        found = letters.names(table), list(letters.of(table)), list(letters.replayed(table))
        letters.set_aside(table, [name, "stray"])
        return *found, list(letters.replayed(table))

    assert in_time(use) == ([name], [name], [], [name])
    assert outside.exists()


def test_links_are_no_states_of_a_ledger(tmp_path: Path) -> None:
    ledger = open_file_ledger(str(tmp_path / "ledger"))
    ledger.acquire("default", "source", "", 0)
    (held,) = tmp_path.rglob("*.json")
    (held.parent / "decisions").mkdir()
    for place in (held.with_name(f"{9:020}.json"), held.parent / "decisions" / "x.json"):
        stray(place, "link", held)
    assert ledger.peek("default") is not None
    assert ledger.next_attempt() == 1


def test_a_pipe_with_the_next_number_of_a_ledger_is_not_read_for_ever(tmp_path: Path) -> None:
    ledger = open_file_ledger(str(tmp_path / "ledger"))
    ledger.acquire("default", "source", "", 0)
    (held,) = tmp_path.rglob("*.json")
    stray(held.with_name(f"{2:020}.json"), "pipe", held)

    def go_on() -> object:
        with pytest.raises(FencedError):
            ledger.next_attempt()
        return "refused"

    assert in_time(go_on) == "refused"
