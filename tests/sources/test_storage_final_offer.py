"""``poll(final=True)``: where a finished changefeed ends, and what the position remembers of that."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.errors import NoWatermarkError, SourceNotReadyError
from headrace.model.block import ChangeBlock
from headrace.model.cut import CutOutcome
from headrace.model.offer import Offer
from headrace.model.outcome import Notice
from headrace.model.split import Window
from headrace.model.table import TableId
from headrace.sources.ticdc_storage.drains import Drain
from headrace.sources.ticdc_storage.position import StoragePosition
from storage_folder import OPTIONS, Consumer, StorageFolder

CREATE = "CREATE TABLE `t` (`id` INT PRIMARY KEY,`v` VARCHAR(16))"
T = TableId("test", "t")


@pytest.fixture
def folder(tmp_path: Path) -> StorageFolder:
    made = StorageFolder(tmp_path / "feed")
    made.checkpoint(120)
    made.schema("", 90, "CREATE DATABASE `test`")
    made.schema("t", 100, CREATE)
    return made


def final(consumer: Consumer) -> Offer:
    return consumer.poll(final=True)


def drain(consumer: Consumer) -> tuple[Offer, list[str], list[Notice]]:
    """A final offer that is applied whole: the offer, its rows, and what tasks told."""
    offer = final(consumer)
    rows, reports = [], []
    for split in offer.splits:
        for item in consumer.source.read(split, Window(consumer.checkpoint, offer.watermark)):
            if isinstance(item, ChangeBlock):
                rows += [f"{row['headrace$commit_ts']} {row['id']} {row['v']}" for row in item.batch.to_pylist()]
            else:
                reports.append(item)
    checkpoints = dict.fromkeys([split.table_id for split in offer.splits] + [T], offer.watermark)
    consumer.position = consumer.source.advance(consumer.position, offer, reports, CutOutcome(offer.watermark), checkpoints)
    consumer.checkpoint = offer.watermark
    return offer, sorted(rows), [notice for report in reports for notice in report.notices]


def test_the_watermark_is_the_greatest_commit_ts_of_any_file(folder: StorageFolder) -> None:
    folder.data("test/t/100", 1, "I 110 1 a", "I 150 2 b", "I 130 3 c")
    consumer = folder.consumer()
    consumer.cut()
    assert consumer.changes == ["110 1 a"]
    offer, rows, _ = drain(consumer)
    assert (offer.watermark, offer.schema_bound) == (150, 151)
    assert rows == ["130 3 c", "150 2 b"]
    assert [notice.message.split(" lie")[0] for notice in offer.notices] == ["2 rows and 0 schema changes"]
    position = StoragePosition.parse(consumer.position)
    assert (position.watermark, position.open, position.drain) == (150, {}, Drain(120, 150, 0))


def test_the_watermark_is_the_greatest_version_where_that_is_later(folder: StorageFolder) -> None:
    folder.data("test/t/100", 1, "I 110 1 a", "I 150 2 b")
    folder.schema("", 160, "DROP DATABASE `test`")
    consumer = folder.consumer()
    consumer.cut()
    offer = final(consumer)
    assert (offer.watermark, offer.schema_bound) == (160, 161)
    assert [change.commit_ts for change in offer.schema_changes if change.commit_ts > 120] == [160]


def test_a_record_cut_off_at_the_end_is_below_the_watermark(folder: StorageFolder) -> None:
    folder.write("test/t/100/CDC000001.csv", '"I","t","test",110,1,"a"\n"I","t","test",150,2,"b')
    consumer = folder.consumer()
    consumer.cut()
    assert final(consumer).watermark == 150


def test_a_final_offer_with_nothing_beyond_stands_at_the_checkpoint(folder: StorageFolder) -> None:
    folder.data("test/t/100", 1, "I 110 1 a")
    consumer = folder.consumer()
    consumer.cut()
    offer, rows, _ = drain(consumer)
    assert (offer.watermark, offer.splits, offer.notices, rows) == (120, (), (), [])
    assert StoragePosition.parse(consumer.position).drain is None


def test_without_metadata_only_a_final_offer_is_there(folder: StorageFolder) -> None:
    folder.data("test/t/100", 1, "I 110 1 a")
    (folder.root / "metadata").unlink()
    consumer = folder.consumer()
    with pytest.raises(NoWatermarkError):
        consumer.poll()
    offer, rows, _ = drain(consumer)
    assert (offer.watermark, rows) == (110, ["110 1 a"])
    assert [notice.message.split(",")[0] for notice in offer.notices] == [
        "There is no metadata: the changefeed ended before its first checkpoint",
        "1 rows and 2 schema changes are in the files. They are taken",
    ]


def test_metadata_that_cannot_be_read_is_no_end(folder: StorageFolder) -> None:
    folder.write("metadata", "{")
    for ask in (final, lambda consumer: consumer.source.mark(consumer.position)):
        with pytest.raises(SourceNotReadyError, match="holds no checkpoint") as caught:
            ask(folder.consumer())
        assert not isinstance(caught.value, NoWatermarkError)


def test_files_without_commit_ts_end_at_the_newest_version(folder: StorageFolder) -> None:
    folder.write("test/t/100/CDC000001.csv", '"I","t","test",1,"a"\n')
    folder.schema("t", 200, "TRUNCATE TABLE `t`")
    folder.write("test/t/200/CDC000001.csv", '"I","t","test",2,"b"\n')
    consumer = folder.consumer(OPTIONS + "&include-commit-ts=false")
    consumer.cut()
    assert consumer.changes == ["0 1 a"]
    offer, rows, _ = drain(consumer)
    assert (offer.watermark, rows) == (200, ["0 2 b"])
    assert any("taken whole in any case" in notice.message for notice in offer.notices)


def test_a_mark_changes_when_something_arrives_and_only_then(folder: StorageFolder) -> None:
    source = folder.consumer().source
    first = source.mark("")
    folder.checkpoint(120)
    assert source.mark("") == first
    folder.data("test/t/100", 1, "I 110 1 a")
    second = source.mark("")
    folder.data("test/t/100", 1, "I 110 1 b")
    third = source.mark("")
    folder.checkpoint(130)
    assert len({first, second, third, source.mark("")}) == 4


def test_what_comes_after_a_drain_is_told_until_the_watermark_has_passed_its_end(folder: StorageFolder) -> None:
    folder.data("test/t/100", 1, "I 110 1 a", "I 150 2 b")
    consumer = folder.consumer()
    consumer.cut()
    drain(consumer)
    consumer = consumer.restarted()
    folder.data("test/t/100", 2, "I 120 8 promised", "I 140 9 late")
    (notice,) = consumer.poll().notices
    assert "--until-end took everything up to 150; metadata says 120" in notice.message
    folder.checkpoint(160)
    consumer.cut()
    assert consumer.changes == []
    assert [notice.table_id for report in consumer.reports for notice in report.notices] == [T]
    assert StoragePosition.parse(consumer.position).drain is None
    folder.data("test/t/100", 3, "I 140 9 late", "I 170 3 c")
    folder.checkpoint(200)
    consumer.cut()
    assert consumer.changes == ["170 3 c"]
    assert [notice for report in consumer.reports for notice in report.notices] == []


def test_what_the_last_checkpoint_promised_may_come_again_without_a_word(folder: StorageFolder) -> None:
    folder.data("test/t/100", 1, "I 110 1 a", "I 150 2 b")
    consumer = folder.consumer()
    consumer.cut()
    drain(consumer)
    folder.data("test/t/100", 2, "I 110 1 a", "I 170 3 c")
    folder.checkpoint(200)
    consumer.cut()
    assert consumer.changes == ["170 3 c"]
    assert consumer.reports[0].notices == ()


def test_directories_that_may_still_get_late_rows_are_not_passed(folder: StorageFolder) -> None:
    folder.data("test/t/100", 1, "I 110 1 a", "I 125 2 b")
    folder.schema("t", 130, "TRUNCATE TABLE `t`")
    folder.data("test/t/130", 1, "I 150 2 b")
    consumer = folder.consumer()
    consumer.cut()
    drain(consumer)
    assert StoragePosition.parse(consumer.position).passed.get("test/t", 0) <= 100
    folder.data("test/t/100", 2, "I 126 9 late")
    folder.checkpoint(200)
    consumer.cut()
    assert [notice.table_id for report in consumer.reports for notice in report.notices] == [T]
    consumer.cut()
    folder.checkpoint(201)
    consumer.cut()
    assert StoragePosition.parse(consumer.position).passed["test/t"] == 130


def test_schema_files_that_come_after_a_drain_are_told(folder: StorageFolder) -> None:
    folder.data("test/t/100", 1, "I 110 1 a", "I 150 2 b")
    folder.schema("t", 140, "TRUNCATE TABLE `t`")
    consumer = folder.consumer()
    consumer.cut()
    drain(consumer)
    folder.schema("t", 145, "TRUNCATE TABLE `t`")
    folder.checkpoint(200)
    assert any(notice.message.startswith("1 schema files with versions from 120 to 150") for notice in consumer.poll().notices)


def test_a_second_drain_remembers_the_last_promise(folder: StorageFolder) -> None:
    folder.data("test/t/100", 1, "I 150 2 b")
    consumer = folder.consumer()
    consumer.cut()
    drain(consumer)
    folder.data("test/t/100", 2, "I 170 3 c")
    consumer = consumer.restarted()
    offer, rows, _ = drain(consumer)
    assert (offer.watermark, rows) == (170, ["170 3 c"])
    assert StoragePosition.parse(consumer.position).drain == Drain(120, 170, 0)


def test_a_drain_survives_its_text() -> None:
    position = StoragePosition(watermark=150, drain=Drain(120, 150, 2))
    assert StoragePosition.parse(position.to_text()) == position
