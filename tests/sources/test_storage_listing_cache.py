"""Local folders in which nothing changed are not listed again, and nothing is missed for that."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from headrace.model.table import TableId
from headrace.model.uri import parse_uri
from headrace.sources.ticdc_storage import listing_cache
from headrace.sources.ticdc_storage.position import StoragePosition
from headrace.sources.ticdc_storage.reader import StorageReader
from headrace.sources.ticdc_storage.stores import Entries, Store, store_location
from storage_folder import Consumer, StorageFolder

CREATE = "CREATE TABLE `t` (`id` INT PRIMARY KEY,`v` VARCHAR(16))"


@pytest.fixture
def listed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The folders that are listed from now on."""
    folders: list[str] = []
    entries = Store.entries

    def counting(store: Store, path: str = "", recursive: bool = False) -> Entries:
        folders.append(path)
        return entries(store, path, recursive)

    monkeypatch.setattr(Store, "entries", counting)
    return folders


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StorageFolder:
    """Two tables of three files each. What was written before the checkpoint has settled."""
    monkeypatch.setattr(listing_cache, "SETTLED_NS", 0)
    made = StorageFolder(tmp_path / "feed")
    for table in ("t", "u"):
        made.schema(table, 100, CREATE.replace("`t`", f"`{table}`"))
        for number in (1, 2, 3):
            made.data(f"test/{table}/100", number, f"I {100 + 10 * number} {number} a")
        made.write(f"test/{table}/100/meta/CDC.index", "CDC000003.csv\n")
    checkpoint(made, 200)
    return made


def checkpoint(folder: StorageFolder, ts: int) -> None:
    # A change within the tick of the last one shows no other time.
    time.sleep(0.02)
    folder.checkpoint(ts)


def begun(folder: StorageFolder) -> Consumer:
    consumer = folder.consumer()
    consumer.cut()
    return consumer


def next_cut(folder: StorageFolder, consumer: Consumer, ts: int) -> list[str]:
    checkpoint(folder, ts)
    offer = consumer.cut()
    assert offer.problems == ()
    return consumer.changes


def test_only_folders_with_something_new_are_listed(folder: StorageFolder, listed: list[str]) -> None:
    consumer = begun(folder)
    assert len(listed) == 1 + 1 + 2 + 3 * 2
    listed.clear()
    folder.data("test/t/100", 4, "I 250 4 a")
    assert next_cut(folder, consumer, 300) == ["250 4 a"]
    assert listed == ["test/t/100"]
    listed.clear()
    assert next_cut(folder, consumer, 400) == []
    assert listed == []


@pytest.mark.parametrize(
    "path",
    [
        "test/t/100/CDC000002.csv",
        "test/t/100/CDC1000000.csv",
        "test/t/100/CDC00000000000000000001.csv",
        "test/t/100/CDC_123456_000001.csv",
        "test/t/100/2024-06-05/CDC000001.csv",
        "test/t/100/112/2024-06-05/CDC000001.csv",
    ],
    ids=["a smaller number", "number wider than the width", "another width", "dispatcher", "date", "partition"],
)
def test_a_file_is_found_wherever_it_comes(folder: StorageFolder, path: str) -> None:
    (folder.root / "test/t/100/CDC000002.csv").unlink()
    checkpoint(folder, 200)
    consumer = begun(folder)
    assert next_cut(folder, consumer, 210) == []
    folder.write(path, '"I","t","test",250,9,"new"\n')
    assert next_cut(folder, consumer, 300) == ["250 9 new"]
    assert next_cut(folder, consumer, 400) == []


def test_a_new_version_table_and_database_are_found(folder: StorageFolder, listed: list[str]) -> None:
    consumer = begun(folder)
    folder.schema("t", 210, "ALTER TABLE `t` COMMENT = 'x'")
    folder.data("test/t/210", 1, "I 220 4 a")
    folder.schema("w", 210, CREATE.replace("`t`", "`w`"))
    folder.data("test/w/210", 1, "I 221 5 a")
    folder.schema("x", 210, CREATE.replace("`t`", "`x`"), database="other")
    folder.data("other/x/210", 1, "I 222 6 a")
    listed.clear()
    assert next_cut(folder, consumer, 300) == ["220 4 a", "221 5 a", "222 6 a"]
    assert not [path for path in listed if path.startswith("test/u")]


@pytest.mark.parametrize("renamed", [True, False], ids=["by a rename", "in place"])
def test_a_file_that_is_written_again_after_it_was_applied_is_read_again(folder: StorageFolder, renamed: bool) -> None:
    consumer = begun(folder)
    assert next_cut(folder, consumer, 210) == []
    target = folder.root / "test/t/100/CDC000003.csv"
    if renamed:
        made = folder.write("other.tmp", '"I","t","test",250,7,"again"\n')
        made.replace(target)
    else:
        folder.write("test/t/100/CDC000003.csv", '"I","t","test",250,7,"again"\n')
    assert next_cut(folder, consumer, 300) == ["250 7 again"]


@pytest.mark.parametrize("start", ["", '"I","t","test",250,7,"wh'], ids=["empty", "cut off"])
def test_a_file_that_grows_in_place_is_read_when_it_is_whole(folder: StorageFolder, start: str) -> None:
    path = "test/t/100/CDC000004.csv"
    folder.write(path, start)
    consumer = begun(folder)
    assert next_cut(folder, consumer, 210) == []
    folder.write(path, '"I","t","test",250,7,"whole"\n')
    assert next_cut(folder, consumer, 300) == ["250 7 whole"]


def test_a_schema_file_that_is_written_again_in_place_is_seen(folder: StorageFolder) -> None:
    path = folder.schema("w", 110, CREATE.replace("`t`", "`w`"))
    checkpoint(folder, 200)
    reader = StorageReader(store_location(parse_uri(folder.uri())).open())
    before = {file.path: file for file in reader.read_changed_files(StoragePosition())}
    folder.write(path, (folder.root / path).read_bytes() + b" ")
    checkpoint(folder, 210)
    after = {file.path: file for file in reader.read_changed_files(StoragePosition())}
    assert after.keys() == before.keys()
    assert after[path].size == before[path].size + 1


def test_an_announced_file_that_vanishes_is_told(folder: StorageFolder) -> None:
    path = folder.data("test/t/100", 4, "I 250 4 a")
    consumer = begun(folder)
    assert next_cut(folder, consumer, 210) == []
    (folder.root / path).unlink()
    checkpoint(folder, 300)
    assert [problem.file for problem in consumer.poll().problems] == [path]


def test_what_ticdc_cleans_up_is_nothing(folder: StorageFolder) -> None:
    old = "test/t/100/2024-06-05"
    folder.data(old, 1, "I 150 9 a")
    checkpoint(folder, 200)
    consumer = begun(folder)
    assert next_cut(folder, consumer, 210) == []
    (folder.root / old / "CDC000001.csv").unlink()
    (folder.root / old).rmdir()
    assert next_cut(folder, consumer, 300) == []


def test_a_folder_that_changed_just_before_is_listed_again(
    folder: StorageFolder, listed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing_cache, "SETTLED_NS", 3_600_000_000_000)
    consumer = begun(folder)
    listed.clear()
    assert next_cut(folder, consumer, 300) == []
    assert len(listed) == 10


@pytest.mark.parametrize(
    "mounts",
    [
        lambda number: f"27 1 {number} / / rw - fuse.s3fs s3fs rw\n",
        lambda number: "27 1 0:0 / / rw - ext4 /dev/vda rw\n",
        lambda number: None,
    ],
    ids=["a mounted bucket", "unknown", "not Linux"],
)
def test_a_file_system_that_is_not_known_to_keep_folders_times_is_always_listed(
    folder: StorageFolder, listed: list[str], mounts: Callable[[str], str | None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = folder.root.stat().st_dev
    text = mounts(f"{os.major(device)}:{os.minor(device)}")
    if text is not None:
        (tmp_path / "mounts").write_text(text)
    monkeypatch.setattr(listing_cache, "_MOUNTS", tmp_path / "mounts")
    consumer = begun(folder)
    listed.clear()
    assert next_cut(folder, consumer, 300) == []
    assert len(listed) == 10


def test_a_new_run_lists_everything_once(folder: StorageFolder, listed: list[str]) -> None:
    consumer = begun(folder).restarted()
    listed.clear()
    assert next_cut(folder, consumer, 300) == []
    assert len(listed) == 10


def test_files_that_count_as_not_read_again_are_looked_at_again(folder: StorageFolder) -> None:
    """The position goes back with a restored ledger, and for a table that is loaded anew; the source stays."""
    consumer = begun(folder)
    next_cut(folder, consumer, 300)
    kept = consumer.position
    path = folder.root / "test/t/100/CDC000002.csv"
    for position in (consumer.source.read_again(kept, TableId("test", "t"), 0), ""):
        path.write_bytes(path.read_bytes() * 2)
        consumer.position, consumer.checkpoint = position, 0
        sizes = {split.key: split.size for split in consumer.poll().splits}
        assert sizes["test/t/100/CDC000002.csv"] == path.stat().st_size
        consumer.position, consumer.checkpoint = kept, 300
        next_cut(folder, consumer, 400)
