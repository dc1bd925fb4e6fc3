"""Files that were read and are wanted once more."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.model.table import TableId
from headrace.sources.ticdc_storage.position import StoragePosition
from storage_folder import ID, C, StorageFolder, V

T, OTHER = TableId("test", "t"), TableId("test", "o")


@pytest.mark.parametrize("bounded", [False, True])
def test_all_files_of_the_table_are_offered_once_more_and_no_others(tmp_path: Path, bounded: bool) -> None:
    folder = StorageFolder(tmp_path)
    folder.schema("t", 100)
    folder.schema("o", 100)
    folder.schema("t", 200, "ALTER TABLE t ADD COLUMN c INT", (ID, V, C))
    for number in (1, 2, 3):
        folder.data("test/t/100", number, f"I {100 + number} {number} a", f"I {500 + number} {number} z")
    folder.data("test/t/200", 1, "I 210 9 a")
    folder.data("test/o/100", 1, "I 110 1 a")
    folder.checkpoint(300)
    consumer = folder.consumer()
    consumer.max_cut = 40 if bounded else None
    while consumer.checkpoint < 300:
        consumer.cut()
    before = StoragePosition.parse(consumer.position)
    consumer.position = consumer.source.read_again(consumer.position, T, 150)
    again = consumer.restarted()
    again.max_cut = None
    again.checkpoint = 0
    offered = {split.key for split in again.poll().splits}
    assert offered == {f"test/t/100/CDC00000{n}.csv" for n in (1, 2, 3)} | {"test/t/200/CDC000001.csv"}
    place = StoragePosition.parse(consumer.position)
    assert (place.watermark, place.consumed["test/o/100"]) == (300, before.consumed["test/o/100"])
    assert not [path for path in (*place.consumed, *place.open, *place.marks) if path.startswith("test/t/")]
    assert place.left_out == ()


def test_nothing_changes_for_a_table_that_was_never_read(tmp_path: Path) -> None:
    folder = StorageFolder(tmp_path)
    folder.schema("t", 100)
    folder.data("test/t/100", 1, "I 110 1 a")
    folder.checkpoint(300)
    consumer = folder.consumer()
    consumer.cut()
    assert StoragePosition.parse(consumer.source.read_again(consumer.position, OTHER, 0)) == StoragePosition.parse(
        consumer.position
    )
