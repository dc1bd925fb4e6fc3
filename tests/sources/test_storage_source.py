"""The storage source on local files: what is offered when, what is read, and what is never read again."""

from __future__ import annotations

import pickle
import time
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from headrace.errors import DefinitionError, SourceNotReadyError
from headrace.model.cut import CutOutcome
from headrace.model.outcome import SplitReport, is_repeated
from headrace.model.place import PlaceInFile
from headrace.model.precision import CommitTsPrecision
from headrace.model.split import Window
from headrace.model.table import TableId
from headrace.sources.ticdc_storage import open_source
from headrace.sources.ticdc_storage.position import StoragePosition
from headrace.sources.ticdc_storage.position_update import file_states
from headrace.sources.ticdc_storage.stores import Store
from storage_folder import ID, OPTIONS, C, Consumer, StorageFolder, V

T = TableId("test", "t")
CREATE = "CREATE TABLE `t` (`id` INT PRIMARY KEY,`v` VARCHAR(16))"


@pytest.fixture
def folder(tmp_path: Path) -> StorageFolder:
    made = StorageFolder(tmp_path / "feed")
    made.checkpoint(200)
    made.schema("t", 100, CREATE)
    return made


def test_nothing_is_offered_without_a_checkpoint(folder: StorageFolder) -> None:
    folder.data("test/t/100", 1, "I 110 1 a")
    (folder.root / "metadata").unlink()
    with pytest.raises(SourceNotReadyError):
        folder.consumer().poll()


def test_rows_above_the_watermark_wait_for_the_next_cut(folder: StorageFolder) -> None:
    folder.data("test/t/100", 1, "I 110 1 a", "U 130 1 b")
    folder.checkpoint(120)
    consumer = folder.consumer()
    consumer.cut()
    assert consumer.changes == ["110 1 a"]
    assert consumer.reports[0].pending_ts == 130
    folder.checkpoint(129)
    assert consumer.poll().splits == ()
    folder.checkpoint(130)
    consumer.cut()
    assert consumer.changes == ["130 1 b"]


def test_the_watermark_never_goes_back(folder: StorageFolder) -> None:
    folder.data("test/t/100", 1, "I 110 1 a")
    consumer = folder.consumer()
    consumer.cut()
    folder.checkpoint(150)
    folder.data("test/t/100", 2, "I 110 1 a", "U 160 1 b")
    for seen in (consumer, consumer.restarted()):
        offer = seen.poll()
        assert offer.watermark == 200
        assert offer.splits == ()
        assert "went back" in offer.notices[0].message
    assert consumer.poll().notices == ()
    folder.checkpoint(210)
    consumer.cut()
    assert consumer.changes == []


def test_a_restart_does_not_end_an_older_directory(folder: StorageFolder) -> None:
    """Older releases begin a directory at each restart; a changefeed that is then created anew, from earlier, leaves it again."""
    folder.schema("t", 120, "ALTER TABLE `t` COMMENT = 'x'")
    folder.data("test/t/120", 1, "I 130 1 a")
    folder.schema("t", 150, "")
    folder.data("test/t/150", 1, "U 160 1 b")
    consumer = folder.consumer()
    consumer.cut()
    folder.data("test/t/120", 2, "I 130 1 a", "U 160 1 b", "U 210 1 c")
    folder.checkpoint(300)
    consumer.cut()
    assert consumer.changes == ["210 1 c"]


def test_an_idle_poll_lists_nothing_and_takes_no_time(folder: StorageFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    consumer = folder.consumer()
    consumer.cut()
    monkeypatch.setattr(Store, "entries", lambda *_: pytest.fail("listed"))
    start = time.perf_counter()
    for _ in range(20):
        assert consumer.poll().splits == ()
    assert (time.perf_counter() - start) / 20 < 0.005


def test_replays_in_a_newer_directory_are_dropped(folder: StorageFolder) -> None:
    folder.schema("t", 200)
    folder.data("test/t/100", 1, "I 110 1 a", "U 150 1 old")
    folder.data("test/t/200", 1, "U 150 1 old", "U 220 1 n")
    folder.checkpoint(300)
    consumer = folder.consumer()
    consumer.cut()
    assert consumer.changes == ["110 1 a", "150 1 old", "220 1 n"]


def test_replays_with_their_columns_in_the_former_order_are_dropped(folder: StorageFolder) -> None:
    """TiCDC finds the directory again by a checksum in which the order of columns does not count."""
    folder.schema("t", 200, "ALTER TABLE `t` MODIFY COLUMN `v` VARCHAR(16) FIRST", (V, ID))
    folder.data("test/t/100", 1, "I 110 1 a", "U 150 1 old")
    folder.write("test/t/200/CDC000001.csv", '"U","t","test",150,1,"old"\n"U","t","test",220,"n",1\n')
    folder.checkpoint(225)
    consumer = folder.consumer()
    consumer.cut()
    assert consumer.changes == ["110 1 a", "150 1 old", "220 1 n"]
    assert [report.problem for report in consumer.reports] == [None, None]


def test_rows_older_than_the_oldest_version_are_kept(folder: StorageFolder) -> None:
    folder.schema("u", 200)
    folder.data("test/u/200", 1, "I 150 1 a", "U 220 1 n")
    folder.checkpoint(300)
    consumer = folder.consumer()
    consumer.cut()
    assert consumer.changes == ["150 1 a", "220 1 n"]


def test_rows_older_than_the_rename_that_made_the_name_are_replays(folder: StorageFolder) -> None:
    folder.data("test/t/100", 1, "I 110 1 a")
    folder.schema("t2", 200, "RENAME TABLE `test`.`t` TO `test`.`t2`")
    folder.data("test/t2/200", 1, "I 110 1 a", "U 210 1 b")
    folder.checkpoint(300)
    consumer = folder.consumer()
    consumer.cut()
    assert [(table, ts) for table, ts, _ in sorted(consumer.rows, key=lambda row: row[1])] == [("test.t", 110), ("test.t2", 210)]


def test_what_appears_in_a_version_behind_the_checkpoint_is_read(folder: StorageFolder) -> None:
    folder.data("test/t/100", 1, "I 110 1 a")
    folder.schema("t", 150, "TRUNCATE TABLE `t`")
    folder.data("test/t/150", 1, "I 160 1 a")
    consumer = folder.consumer()
    consumer.cut()
    position = StoragePosition.parse(consumer.position)
    assert position.passed == {"test/t": 150}
    assert list(position.marks) == ["test/t/150"]
    folder.data("test/t/100", 2, "I 110 1 a", "I 250 3 c")
    folder.checkpoint(300)
    consumer.cut()
    assert consumer.changes == ["250 3 c"]


def test_a_version_in_which_ticdc_goes_on_when_its_columns_come_back_is_not_sealed(folder: StorageFolder) -> None:
    """It writes into the newest directory with the checksum of the columns, and its event filter may keep a change to itself."""
    folder.data("test/t/100", 1, "I 110 1 a")
    folder.schema("t", 150, "ALTER TABLE `t` ADD COLUMN `c` INT DEFAULT 7", (ID, V, C))
    consumer = folder.consumer()
    consumer.cut()
    late = folder.data("test/t/100", 2, "I 210 2 b")
    folder.checkpoint(300)
    assert [split.key for split in consumer.cut().splits] == [late]


def test_a_version_with_an_open_file_is_not_passed(folder: StorageFolder) -> None:
    folder.data("test/t/100", 1, "I 110 1 a", "I 900 1 a")
    folder.schema("t", 150)
    consumer = folder.consumer()
    consumer.cut()
    assert StoragePosition.parse(consumer.position).passed == {"test/t": 100}


def test_a_stopped_table_keeps_its_files(folder: StorageFolder) -> None:
    path = folder.data("test/t/100", 1, "I 110 1 a")
    consumer = folder.consumer()
    consumer.cut(stopped=frozenset({T}))
    again = consumer.restarted()
    again.checkpoint = 0
    assert [split.key for split in again.poll().splits] == [path]


@pytest.mark.parametrize("restart", [False, True])
def test_a_file_that_vanishes_before_it_was_applied_is_an_alarm(folder: StorageFolder, restart: bool) -> None:
    path = folder.data("test/t/100", 1, "I 110 1 a", "I 250 2 b")
    other = folder.data("test/t/100", 2, "I 120 3 c")
    consumer = folder.consumer()
    consumer.cut()
    if restart:
        consumer = consumer.restarted()
    (folder.root / path).unlink()
    (folder.root / other).unlink()
    folder.checkpoint(300)
    for _ in range(2):
        problems = consumer.poll().problems
        assert [(problem.table_id, problem.file) for problem in problems] == [(T, path)]


def test_a_file_that_a_table_which_stands_still_never_read_is_missed_after_a_restart(folder: StorageFolder) -> None:
    first = folder.data("test/t/100", 1, "I 110 1 a")
    consumer = folder.consumer()
    offer = consumer.poll()
    position = consumer.source.advance("", offer, [], CutOutcome(200, behind=frozenset({T})), {T: 105})
    (folder.root / first).unlink()
    folder.checkpoint(300)
    again = Consumer(folder.consumer().source, position, 200)
    assert [(problem.table_id, problem.file) for problem in again.poll().problems] == [(T, first)]


def test_late_files_of_a_table_that_is_gone_are_not_missed(folder: StorageFolder) -> None:
    late = folder.data("test/t/100", 1, "I 110 1 a")
    consumer = folder.consumer()
    offer = consumer.poll()
    consumer.position = consumer.source.advance("", offer, [], CutOutcome(200, gone=frozenset({T})), {T: 150})
    consumer.learned = offer.learned and offer.learned.without({T})
    consumer.checkpoint = 200
    (folder.root / late).unlink()
    folder.checkpoint(300)
    assert consumer.poll().problems == ()


def test_a_file_that_was_announced_and_never_read_is_missed_too(folder: StorageFolder) -> None:
    path = folder.data("test/t/100", 1, "I 110 1 a")
    consumer = folder.consumer()
    consumer.poll()
    (folder.root / path).unlink()
    assert [problem.file for problem in consumer.poll().problems] == [path]


def test_data_without_a_schema_file_stop_their_table_and_no_other(folder: StorageFolder) -> None:
    folder.data("test/t/100", 1, "I 110 1 a")
    lost = folder.data("test/lost/100", 1, "I 110 1 a")
    offer = folder.consumer().cut()
    assert [(problem.table_id.table, problem.file) for problem in offer.problems] == [("lost", lost)]
    assert [split.table_id for split in offer.splits] == [T]


def test_a_schema_file_that_came_during_the_listing_is_found(folder: StorageFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    original = Store.entries

    def late(self: Store, path: str = "", recursive: bool = False) -> object:
        if path == "test/u/100" and not (folder.root / "test/u/meta").exists():
            folder.schema("u", 100)
        return original(self, path, recursive)

    folder.data("test/u/100", 1, "I 110 1 a")
    monkeypatch.setattr(Store, "entries", late)
    offer = folder.consumer().poll()
    assert offer.problems == ()
    assert [split.table_id.table for split in offer.splits] == ["u"]


def test_a_file_that_changes_between_listing_and_reading_is_tried_again(folder: StorageFolder) -> None:
    folder.data("test/t/100", 1, "I 110 1 a")
    consumer = folder.consumer()
    (split,) = consumer.poll().splits
    folder.data("test/t/100", 1, "I 110 1 b")
    (report,) = consumer.source.read(split, Window(0, 200))
    assert isinstance(report, SplitReport)
    assert report.problem is not None
    assert report.problem.transient
    (folder.root / split.key).unlink()
    (report,) = consumer.source.read(split, Window(0, 200))
    assert isinstance(report, SplitReport)
    assert "vanished" in report.problem.message


def test_bad_data_are_a_problem_with_its_place_and_the_rows_before_it_come(folder: StorageFolder) -> None:
    path = folder.write("test/t/100/CDC000001.csv", '"I","t","test",110,1,"a"\n"I","t","test",120,x,"b"\n')
    consumer = folder.consumer()
    consumer.cut()
    (report,) = consumer.reports
    assert report.problem is not None
    assert report.problem.place == PlaceInFile(path.relative_to(folder.root).as_posix(), line=2)
    assert (report.problem.column, report.problem.value) == ("id", "x")
    assert not StoragePosition.parse(consumer.position).consumed


def test_a_record_cut_off_above_the_window_is_still_to_come(folder: StorageFolder) -> None:
    folder.write("test/t/100/CDC000001.csv", '"I","t","test",110,1,"a"\n"I","t","test",130,3,"ab')
    folder.checkpoint(120)
    consumer = folder.consumer()
    consumer.cut()
    assert consumer.changes == ["110 1 a"]
    assert (consumer.reports[0].truncated_ts, consumer.reports[0].pending_ts) == (130, 130)
    folder.data("test/t/100", 2, "I 130 3 abc")
    folder.checkpoint(200)
    consumer.cut()
    assert consumer.changes == ["130 3 abc"]
    assert consumer.reports[0].truncated
    assert StoragePosition.parse(consumer.position).open == {}


def report(path: str, **values: object) -> SplitReport:
    return replace(SplitReport(path, T, rows=1, size=5, min_ts=110, max_ts=120), **values)


def test_a_cut_off_file_counts_as_consumed_only_when_a_later_one_repeats_it() -> None:
    cut_off = report("test/t/100/CDC999999.csv", truncated=True, truncated_ts=130)
    repeats = report("test/t/100/CDC1000000.csv", rank=1, min_ts=125, max_ts=140)
    goes_on = report("test/t/100/CDC1000000.csv", rank=1, min_ts=140, max_ts=150)
    elsewhere = replace(repeats, stream="another partition")
    assert is_repeated(cut_off, [cut_off, repeats])
    assert not is_repeated(cut_off, [cut_off, goes_on])
    assert not is_repeated(cut_off, [cut_off, elsewhere])
    assert not is_repeated(repeats, [cut_off, repeats])
    assert [state.consumed for state in file_states([cut_off, repeats], CutOutcome(200), {})] == [True, True]
    assert [state.consumed for state in file_states([cut_off, goes_on], CutOutcome(200), {})] == [False, True]


def test_without_commit_ts_every_file_is_taken_once_and_whole(folder: StorageFolder) -> None:
    for number, row in enumerate(("1,a", "2,b"), start=1):
        key, value = row.split(",")
        folder.write(f"test/t/100/CDC{number:06d}.csv", f'"I","t","test",{key},"{value}"\n')
    consumer = folder.consumer()
    offer = consumer.cut()
    assert offer.precision is CommitTsPrecision.NONE
    assert any("include-commit-ts = true" in notice.message for notice in offer.notices)
    assert consumer.changes == ["0 1 a", "0 2 b"]
    folder.write("test/t/100/CDC000003.csv", '"I","t","test",3,"c"\n')
    folder.checkpoint(300)
    offer = consumer.cut()
    assert consumer.changes == ["0 3 c"]
    assert offer.precision is CommitTsPrecision.NONE


def test_without_commit_ts_files_behind_an_uncertain_schema_change_wait(folder: StorageFolder) -> None:
    folder.schema("t", 200, "ALTER TABLE `t` ADD COLUMN `c` INT DEFAULT 7", (ID, V, C))
    folder.write("test/t/200/CDC000001.csv", '"I","t","test",1,"a",7\n')
    consumer = folder.consumer(OPTIONS + "&include-commit-ts=false")
    assert consumer.cut().splits == ()
    folder.checkpoint(201)
    assert len(consumer.cut().splits) == 1


def test_a_file_without_commit_ts_among_others_is_a_problem(folder: StorageFolder) -> None:
    folder.data("test/t/100", 1, "I 110 1 a")
    folder.write("test/t/100/CDC000002.csv", '"I","t","test",2,"b"\n')
    consumer = folder.consumer()
    consumer.cut()
    problems = [report.problem for report in consumer.reports]
    assert problems[0] is None
    assert problems[1] is not None
    assert "no commit ts" in problems[1].message


def test_blocks_carry_their_place_in_the_source(folder: StorageFolder) -> None:
    folder.data("test/t/100", 1, "I 110 1 a", "I 120 2 b")
    folder.data("test/t/100", 2, "I 130 3 c")
    consumer = folder.consumer()
    consumer.cut()
    assert [row["headrace$seq"] for _, _, row in consumer.rows] == [0, 1, 1 << 32]


def test_large_files_come_in_blocks_of_a_few_mebibytes(folder: StorageFolder) -> None:
    value = "x" * 1000
    folder.data("test/t/100", 1, *(f"I {101 + n % 90} {n} {value}" for n in range(20_000)))
    consumer = folder.consumer()
    (split,) = consumer.poll().splits
    *blocks, last = consumer.source.read(split, Window(0, 150))
    assert isinstance(last, SplitReport)
    assert (last.rows, last.min_ts, last.max_ts, last.pending_ts) == (20_000, 101, 190, 151)
    assert sum(block.num_rows for block in blocks) == last.kept
    assert max(block.batch.nbytes for block in blocks) <= 9 << 20


def test_what_travels_to_tasks_pickles(folder: StorageFolder) -> None:
    folder.data("test/t/100", 1, "I 110 1 a")
    source = open_source(folder.uri())
    assert pickle.loads(pickle.dumps(source)) == source
    events = source.event_source
    (split,) = events.poll("", 0).splits
    block, _ = pickle.loads(pickle.dumps(events)).read(pickle.loads(pickle.dumps(split)), Window(0, 200))
    assert isinstance(block.batch, pa.RecordBatch)


def test_the_identity_has_no_secrets_and_a_foreign_position_is_refused(folder: StorageFolder) -> None:
    source = open_source("s3://bucket/prefix/?protocol=csv&secret-access-key=hush")
    assert source.identity == "s3://bucket/prefix"
    assert "hush" not in repr(source)
    with pytest.raises(DefinitionError):
        folder.consumer().source.poll('{"offset":5}', 0)


def test_a_changed_split_does_not_hide_behind_its_old_state_after_a_restart(folder: StorageFolder) -> None:
    folder.data("test/t/100", 1, "I 110 1 a")
    consumer = folder.consumer()
    consumer.cut()
    folder.checkpoint(300)
    again = consumer.restarted()
    assert again.cut().splits == ()
    folder.data("test/t/100", 1, "I 110 1 a", "I 310 2 b")
    folder.checkpoint(400)
    again.restarted().cut()
    final = again.restarted()
    final.cut()
    assert final.changes == ["310 2 b"]
