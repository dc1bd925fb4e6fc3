"""Whatever lies in the folder beside the changefeed's files is told, and neither ends a run nor holds it up."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from headrace.errors import NoWatermarkError, SourceUnreachableError
from headrace.model.uri import parse_uri
from headrace.sources.ticdc_storage import local_folders, open_source
from headrace.sources.ticdc_storage.inspection import FindingKind
from headrace.sources.ticdc_storage.local_folders import Stray, local_entries
from headrace.sources.ticdc_storage.stores import store_location
from storage_folder import StorageFolder


@pytest.fixture
def folder(tmp_path: Path) -> StorageFolder:
    made = StorageFolder(tmp_path / "feed")
    made.checkpoint(200)
    made.schema("t", 100, "CREATE TABLE `t` (`id` INT PRIMARY KEY,`v` VARCHAR(16))")
    made.data("test/t/100", 1, "I 110 1 a")
    return made


def not_utf8(place: Path) -> None:
    Path(os.fsdecode(os.fsencode(place) + b"/notes-\xff.txt")).write_text("x")


def a_folder_not_utf8(place: Path) -> None:
    Path(os.fsdecode(os.fsencode(place) + b"/\xe4\xf6")).mkdir()


def a_pipe(place: Path) -> None:
    os.mkfifo(place / "CDC000002.csv")


def a_socket(place: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(place / "CDC000003.csv"))


def a_dangling_link(place: Path) -> None:
    (place / "CDC000004.csv").symlink_to("nowhere")


def a_link_to_itself(place: Path) -> None:
    (place / "CDC000005.csv").symlink_to("CDC000005.csv")


def a_loop(place: Path) -> None:
    (place / "loop").symlink_to(place.parent)


def a_link_to_a_device(place: Path) -> None:
    (place / "CDC000006.csv").symlink_to("/dev/zero")


def a_link_to_a_file_elsewhere(place: Path) -> None:
    (place / "CDC000007.csv").symlink_to("/etc/passwd")


def a_link_to_a_folder_elsewhere(place: Path) -> None:
    (place / "elsewhere").symlink_to("/etc")


def a_link_that_climbs_out(place: Path) -> None:
    (place / "CDC000008.csv").symlink_to("../" * 20 + "etc/passwd")


STRAYS: list[tuple[Callable[[Path], None], str]] = [
    (not_utf8, "its name is not UTF-8"),
    (a_folder_not_utf8, "its name is not UTF-8"),
    (a_pipe, "it is a named pipe"),
    (a_socket, "it is a socket"),
    (a_dangling_link, "it is a link that leads nowhere"),
    (a_link_to_itself, "it is a link that cannot be followed"),
    (a_loop, "it is a link to a folder that it lies in"),
    (a_link_to_a_device, "it is a device"),
    (a_link_to_a_file_elsewhere, "it is a link that leads out of the changefeed's folder"),
    (a_link_to_a_folder_elsewhere, "it is a link that leads out of the changefeed's folder"),
    (a_link_that_climbs_out, "it is a link that leads out of the changefeed's folder"),
]


@pytest.mark.parametrize(("make", "words"), STRAYS, ids=[make.__name__ for make, _ in STRAYS])
@pytest.mark.parametrize("place", ["", "test", "test/t", "test/t/100", "test/t/meta"])
def test_a_stray_entry_is_told_and_left_out(
    folder: StorageFolder, make: Callable[[Path], None], words: str, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder.root / place)  # the path of a socket has to be short
    make(Path())
    consumer = folder.consumer()
    offer = consumer.cut()
    assert [words in notice.message for notice in offer.notices if "left out" in notice.message] == [True]
    assert offer.problems == ()
    assert consumer.changes == ["110 1 a"]
    findings = open_source(folder.uri()).inspect().findings
    assert [words in f.message for f in findings if f.kind is FindingKind.STRAYS] == [True]
    assert all(finding.message.encode() for finding in findings)


def test_two_links_that_lead_to_each_other_end(folder: StorageFolder) -> None:
    for one, other in (("a", "b"), ("b", "a")):
        (folder.root / "test" / one).mkdir()
        (folder.root / "test" / one / "x").symlink_to(folder.root / "test" / other)
        (folder.root / "test" / one / "y").symlink_to(folder.root / "test" / other)
    consumer = folder.consumer()
    assert consumer.cut().problems == ()
    assert consumer.changes == ["110 1 a"]


def test_links_inside_the_folder_are_followed(folder: StorageFolder) -> None:
    kept = folder.root / "kept"
    kept.mkdir()
    (folder.root / "test/t/100").rename(kept / "elsewhere")
    (folder.root / "test/t/100").symlink_to("../../kept/elsewhere")
    (kept / "elsewhere/CDC000001.csv").rename(kept / "file")
    (kept / "elsewhere/CDC000001.csv").symlink_to(kept / "file")
    consumer = folder.consumer()
    consumer.cut()
    assert consumer.changes == ["110 1 a"]


def test_a_folder_that_is_reached_by_links_is_read_as_it_was_named(folder: StorageFolder, tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    folder.root.rename(tmp_path / "disk" / "feed")
    (tmp_path / "mounted").symlink_to("disk")
    folder.root.symlink_to(tmp_path / "mounted" / "feed")
    consumer = folder.consumer()
    assert [notice for notice in consumer.cut().notices if "left out" in notice.message] == []
    assert consumer.changes == ["110 1 a"]


def test_a_folder_beside_it_with_a_longer_name_is_not_inside(folder: StorageFolder) -> None:
    beside = folder.root.with_name(f"{folder.root.name}-private")
    beside.mkdir()
    (beside / "CDC000002.csv").write_text("secret")
    (folder.root / "test/t/100/CDC000002.csv").symlink_to(beside / "CDC000002.csv")
    assert any("leads out" in notice.message for notice in folder.consumer().cut().notices)


@pytest.mark.parametrize("place", ["test/t/100", "test/t/meta"])
def test_a_link_out_in_place_of_a_folder_of_a_table_stops_the_table(folder: StorageFolder, tmp_path: Path, place: str) -> None:
    """Its rows may lie there, and to pass over them without a word would lose them."""
    folder.schema("u", 100)
    folder.data("test/u/100", 1, "I 120 1 a")
    moved = place.replace("/t/", "/u/")
    (folder.root / moved).rename(tmp_path / "elsewhere")
    (folder.root / moved).symlink_to(tmp_path / "elsewhere")
    consumer = folder.consumer()
    offer = consumer.cut()
    assert {str(problem.table_id) for problem in offer.problems} == {"test.u"}
    assert ["mount that" in problem.hint for problem in offer.problems if "leads out" in problem.message] == [True]
    assert consumer.changes == ["110 1 a"]


@pytest.mark.parametrize("whole", [True, False])
def test_a_file_that_is_exchanged_for_a_link_after_it_was_listed_is_not_read(
    folder: StorageFolder, tmp_path: Path, whole: bool
) -> None:
    store = store_location(parse_uri(folder.uri())).open()
    (found,) = [file.path for file in store.entries("test/t/100").files]
    (tmp_path / "secret").write_text("I,secret")
    (folder.root / found).unlink()
    (folder.root / found).symlink_to(tmp_path / "secret")
    with pytest.raises(FileNotFoundError, match="leads out"):
        store.read(found) if whole else store.read_start(found, 100)
    assert store.stat(found) is None


def test_a_folder_that_is_exchanged_for_a_link_after_it_was_listed_is_not_read(folder: StorageFolder, tmp_path: Path) -> None:
    store = store_location(parse_uri(folder.uri())).open()
    (found,) = [file.path for file in store.entries("test/t/100").files]
    (folder.root / "test/t").rename(tmp_path / "elsewhere")
    (folder.root / "test/t").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(FileNotFoundError, match="leads out"):
        store.read(found)
    assert store.stat(found) is None
    listed = store.entries("test/t/100", recursive=True)
    assert (listed.files, [stray.path for stray in listed.strays]) == ((), ["test/t/100"])


def test_a_file_that_is_exchanged_while_it_is_opened_is_not_read(
    folder: StorageFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between a look at a path and its opening everything may change: what was opened counts."""
    (tmp_path / "secret").write_text("I,secret")
    path = "test/t/100/CDC000001.csv"
    opening = os.open

    def exchanged(opened: str, *how: int) -> int:
        (folder.root / path).unlink()
        (folder.root / path).symlink_to(tmp_path / "secret")
        handle = opening(opened, *how)
        (folder.root / path).unlink()
        (folder.root / path).write_text("I,plain")
        return handle

    monkeypatch.setattr(local_folders.os, "open", exchanged)
    with pytest.raises(FileNotFoundError, match="leads out"):
        store_location(parse_uri(folder.uri())).open().read(path)


@pytest.mark.long
def test_nothing_is_told_of_what_lies_outside_while_a_link_is_exchanged_for_another(folder: StorageFolder, tmp_path: Path) -> None:
    """Neither names nor sizes: the entry leads in and out in turn, thousands of times a second."""
    inside, outside, link = folder.root / "inside", tmp_path / "outside", folder.root / "link"
    for place, text in ((inside, "mine"), (outside, "secret")):
        place.mkdir()
        (place / "file").write_text(text)
    (outside / "theirs").write_text("secret")
    done = threading.Event()

    def exchange() -> None:
        while not done.is_set():
            for place in (outside, inside):
                (folder.root / "next").symlink_to(place)
                (folder.root / "next").rename(link)

    exchanging = threading.Thread(target=exchange)
    exchanging.start()
    store = store_location(parse_uri(folder.uri())).open()
    seen, end = set(), time.monotonic() + 5
    try:
        while time.monotonic() < end:
            seen |= {(file.path, file.size) for file in store.entries("", recursive=True).files if file.path.startswith("link")}
            with suppress(FileNotFoundError):
                found = store.stat("link/file")
                seen |= {(found.path, found.size)} if found else set()
    finally:
        done.set()
        exchanging.join()
    assert seen == {("link/file", len("mine"))}


def test_a_file_that_is_exchanged_for_a_pipe_while_it_is_opened_holds_nobody_up(
    folder: StorageFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = "test/t/100/CDC000001.csv"
    opening = os.open

    def exchanged(opened: str, *how: int) -> int:
        (folder.root / path).unlink()
        os.mkfifo(folder.root / path)
        return opening(opened, *how)

    monkeypatch.setattr(local_folders.os, "open", exchanged)
    with pytest.raises(FileNotFoundError, match="not a file"):
        store_location(parse_uri(folder.uri())).open().read(path)


@pytest.mark.parametrize("length", [0, 1, 5, 100])
def test_the_start_of_a_file_is_read(folder: StorageFolder, length: int) -> None:
    (folder.root / "file").write_bytes(b"0123456789")
    store = store_location(parse_uri(folder.uri())).open()
    assert store.read_start("file", length) == b"0123456789"[:length]
    assert store.read("file") == b"0123456789"


def test_a_pipe_in_the_place_of_the_checkpoint_holds_nobody_up(folder: StorageFolder) -> None:
    (folder.root / "metadata").unlink()
    os.mkfifo(folder.root / "metadata")
    with pytest.raises(NoWatermarkError):
        folder.consumer().poll()


@pytest.fixture
def closed(folder: StorageFolder, monkeypatch: pytest.MonkeyPatch) -> Iterator[set[Path]]:
    """Folders that may not be listed; root may list every folder there is."""
    found: set[Path] = set()
    listing = os.scandir

    def refusing(handle: int) -> object:
        path = Path(f"/proc/self/fd/{handle}").readlink()
        if path in found:
            raise PermissionError(13, "Permission denied", str(path))
        return listing(handle)

    monkeypatch.setattr(local_folders.os, "scandir", refusing)
    return found


def test_a_folder_that_nobody_may_list_is_left_out(folder: StorageFolder, closed: set[Path]) -> None:
    (folder.root / "lost+found").mkdir()
    closed.add(folder.root / "lost+found")
    consumer = folder.consumer()
    offer = consumer.cut()
    assert consumer.changes == ["110 1 a"]
    assert any("cannot be listed: Permission denied" in notice.message for notice in offer.notices)
    assert any(f.kind is FindingKind.STRAYS for f in open_source(folder.uri()).inspect().findings)


@pytest.mark.parametrize("place", ["test/u", "test/u/100", "test/u/meta"])
def test_a_folder_of_a_table_that_nobody_may_list_stops_the_table(folder: StorageFolder, closed: set[Path], place: str) -> None:
    folder.schema("u", 100)
    folder.data("test/u/100", 1, "I 120 1 a")
    closed.add(folder.root / place)
    consumer = folder.consumer()
    offer = consumer.cut()
    assert {str(problem.table_id) for problem in offer.problems} == {"test.u"}
    assert {split.table_id.table for split in offer.splits} == {"t"}


@pytest.mark.parametrize("place", ["test", "test/meta"])
def test_a_folder_above_tables_that_can_be_listed_no_more_is_waited_for(
    folder: StorageFolder, closed: set[Path], place: str
) -> None:
    folder.schema("", 90, "CREATE DATABASE `test`")
    consumer = folder.consumer()
    consumer.cut()
    closed.add(folder.root / place)
    folder.checkpoint(300)
    for _ in range(2):
        with pytest.raises(SourceUnreachableError, match="cannot be listed"):
            consumer.poll()
    closed.clear()
    assert consumer.poll().problems == ()


@pytest.mark.parametrize("depth", [1_200, 3_000], ids=["deep", "longer than a path"])
def test_folders_however_deep_stop_no_other_table(folder: StorageFolder, depth: int) -> None:
    folder.schema("u", 100)
    (folder.root / "test/u/100").mkdir()
    place = os.open(folder.root / "test/u/100", os.O_RDONLY)
    try:
        for _ in range(depth):
            os.mkdir("d", dir_fd=place)
            inner = os.open("d", os.O_RDONLY, dir_fd=place)
            os.close(place)
            place = inner
        consumer = folder.consumer()
        assert {problem.table_id.table for problem in consumer.cut().problems} <= {"u"}
        assert consumer.changes == ["110 1 a"]
        assert {problem.table_id.table for problem in consumer.cut().problems} <= {"u"}
    finally:
        os.close(place)
        subprocess.run(["rm", "-rf", folder.root / "test/u"], check=True)


def test_a_folder_that_may_not_be_searched_is_told() -> None:
    """Its names can be listed, and nothing in it can be looked at."""
    root = Path(tempfile.mkdtemp())
    try:
        (root / "x").mkdir()
        (root / "x" / "file").touch()
        (root / "x").chmod(0o444)
        with as_a_user(root):
            (found,) = local_entries(str(root), "x", recursive=False)
        assert found == Stray("x/file", "it cannot be looked at: Permission denied", unlisted=True)
    finally:
        shutil.rmtree(root)


@contextmanager
def as_a_user(root: Path) -> Iterator[None]:
    """As a user who owns the folders and is not root, whom nothing is forbidden."""
    if os.geteuid():
        yield
        return
    for place in (root, root / "x"):
        os.chown(place, 65534, 65534)
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)
