"""What is kept for a schema file grows with that file, not with all tables and files."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path

import pytest

from counting import calls
from headrace.model.events import SchemaChange
from headrace.model.table import TableId
from headrace.sources.ticdc_storage import held_tables
from storage_folder import ID, C, StorageFolder, V

pytestmark = pytest.mark.long

COUNT = 150
MOST = 3_000


@pytest.fixture
def folder(tmp_path: Path) -> StorageFolder:
    made = StorageFolder(tmp_path / "feed")
    made.checkpoint(10_000)
    return made


def kept(changes: tuple[SchemaChange, ...]) -> int:
    """How many names all sets of tables have that the changes hold; of a set that several hold it counts once."""
    return sum(map(len, {id(change.changes): change.changes for change in changes}.values()))


def test_statements_that_nobody_understands_hold_one_set_of_all_tables(folder: StorageFolder) -> None:
    for number in range(COUNT):
        folder.schema(f"t{number}", 100 + number)
        folder.schema(f"t{number}", 1_000 + number, "FROBNICATE")
    changes = folder.consumer().poll().schema_changes
    unknown = [change for change in changes if change.statement]
    assert {len(change.changes) for change in unknown} == {COUNT}
    assert kept(changes) <= 3 * COUNT


@pytest.mark.parametrize("what", ["unknown statements", "unreadable files of other tables"])
def test_what_holds_all_tables_among_new_ones_grows_no_faster_than_the_files(
    folder: StorageFolder, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    monkeypatch.setattr(held_tables, "MOST_NAMES", MOST)
    for number in range(COUNT):
        folder.schema(f"t{number}", 100 + 2 * number)
        if what == "unknown statements":
            folder.schema(f"t{number}", 101 + 2 * number, "FROBNICATE")
        else:
            folder.write(f"test/never{number}/meta/schema_{101 + 2 * number}_0000000000.json", b'{"Table":')
    offer = folder.consumer().poll()
    changes = (*offer.schema_changes, *offer.unread)
    holding = [change for change in changes if change.commit_ts % 2]
    assert len(holding) == COUNT
    for number, change in enumerate(holding):
        assert change.changes >= {change.table_id, *(TableId("test", f"t{earlier}") for earlier in range(number + 1))}
    assert kept(changes) <= MOST + 6 * COUNT


def test_up_to_the_bound_a_change_holds_no_table_that_comes_after_it(folder: StorageFolder) -> None:
    folder.schema("t", 100)
    folder.schema("t", 200, "FROBNICATE")
    for number in range(COUNT):
        folder.schema(f"t{number}", 300 + number)
    (unknown,) = [change for change in folder.consumer().poll().schema_changes if change.commit_ts == 200]
    assert unknown.changes == {TableId("test", "t")}


def test_directories_share_what_is_known_of_columns_that_change_places(tmp_path: Path) -> None:
    def kept(count: int) -> int:
        folder = StorageFolder(tmp_path / f"{count}")
        folder.checkpoint(10_000)
        for number in range(count):
            version, columns = 100 + 10 * number, (ID, C, V) if number % 2 else (ID, V, C)
            folder.schema(
                "t", version, f"ALTER TABLE `t` MODIFY COLUMN `v` VARCHAR(16) AFTER `{columns[1]['ColumnName']}`", columns
            )
            folder.write(f"test/t/{version}/CDC000001.csv", f'"I","t","test",{version + 1},{number},"a",7\n')
        splits = folder.consumer().poll().splits
        assert len(splits) == count
        return len(pickle.dumps([split.csv for split in splits]))

    once, twice = kept(60), kept(120)
    assert twice < 2.5 * once, f"{once} bytes for 60 versions, {twice} for twice as many"


def _names_that_no_table_has(folder: StorageFolder, number: int) -> None:
    folder.schema(f"t{number}", 5_000 + number, f"ALTER TABLE `t{number}` ADD FOREIGN KEY (id) REFERENCES `never{number}` (id)")


def _unreadable_at_one_version(folder: StorageFolder, number: int) -> None:
    folder.write(f"test/t{number}/meta/schema_5000_0000000000.json", b"{")


def _unreadable_of_new_tables_at_one_version(folder: StorageFolder, number: int) -> None:
    folder.write(f"test/never{number}/meta/schema_5000_0000000000.json", b"{")


def _unreadable_before_them_in_folders_of_ids(folder: StorageFolder, number: int) -> None:
    folder.write(f"{7000 + number}/meta/schema_{1 + number}_0000000000.json", b"{")


@pytest.mark.parametrize(
    "write",
    [
        _names_that_no_table_has,
        _unreadable_at_one_version,
        _unreadable_of_new_tables_at_one_version,
        _unreadable_before_them_in_folders_of_ids,
    ],
)
def test_twice_as_many_tables_and_odd_files_take_about_twice_the_work(
    tmp_path: Path, write: Callable[[StorageFolder, int], None]
) -> None:
    def work(count: int) -> int:
        folder = StorageFolder(tmp_path / f"{count}")
        folder.checkpoint(10_000)
        for number in range(count):
            folder.schema(f"t{number}", 100 + number, f"CREATE TABLE `t{number}` (`id` INT PRIMARY KEY, `v` VARCHAR(16))")
            write(folder, number)
        return calls(folder.consumer().poll)

    once, twice = work(60), work(120)  # few enough for what is kept of statements
    assert twice < 2.1 * once, f"{once} calls for 60, {twice} for twice as many"
