"""Tables without key: whatever a run ends at, the next one neither does again what was done, nor passes what was not."""

from __future__ import annotations

from pathlib import Path

import pytest
from building import Bucket
from test_catching_up import Backlog
from test_ownership import only

from headrace.errors import EXIT_OK, EXIT_TABLE_STOPPED
from headrace.model.policy import SchemaChangePolicies
from headrace.testing.faults import Crashed, Moment, Step, armed, crash_at
from places import Place
from storage_folder import ID, OPTIONS, V

pytestmark = pytest.mark.pipeline

PLAIN = {key: value for key, value in ID.items() if key != "ColumnIsPk"}
WITHOUT_T = only("*.*,!test.t")
APPROVING = SchemaChangePolicies.parse_text("drop-table=approve,index=approve")


def create(bucket: Bucket, table: str, version: int) -> None:
    bucket.schema(table, version, (PLAIN, V), f"CREATE TABLE `{table}` (`id` INT,`v` VARCHAR(16))", 3)


@pytest.mark.parametrize("point", [(Moment.AFTER, Step.ROUND), (Moment.BEFORE, Step.CHECKPOINT)])
def test_a_drop_waits_for_approval_also_when_the_run_dies_behind_the_rows(
    tmp_path: Path, place: Place, point: tuple[Moment, Step]
) -> None:
    """The rows are committed with the checkpoint, which lifts every table that is not stopped by then."""
    backlog = Backlog(tmp_path, place, 0)
    bucket = backlog.bucket
    create(bucket, "t", 100)
    bucket.create("o", 101)
    assert backlog.at(105).code == EXIT_OK
    bucket.rows("t/100/1", "I 110 1 a", "I 110 1 a")
    bucket.rows("o/101/1", "I 111 1 o")
    bucket.schema("t", 120, (PLAIN, V), "DROP TABLE `test`.`t`", 4)
    with armed(crash_at(*point)), pytest.raises(Crashed):
        backlog.at(150, policies=APPROVING)
    assert "its schema change waits for approval: DROP TABLE" in backlog.at(160, policies=APPROVING).stopped["test.t"]
    assert backlog.keys("t") == ["1", "1"]
    backlog.approve()
    assert backlog.at(170, policies=APPROVING).code == EXIT_OK
    assert backlog.target.tables() == {("test", "o")}


@pytest.mark.parametrize("died_after", range(6))
def test_what_catches_up_in_parts_is_not_done_again(tmp_path: Path, place: Place, died_after: int) -> None:
    backlog = Backlog(tmp_path, place, 60)
    bucket = backlog.bucket
    bucket.create("o", 99)
    for number, table in enumerate("tw"):
        create(bucket, table, 100 + number)
        bucket.rows(f"{table}/{100 + number}/1", "I 110 1 a")
        bucket.schema(table, 200 + number, (PLAIN, V), f"ALTER TABLE `{table}` ADD INDEX `i` (`v`)", 7)
        for file in range(3):
            bucket.rows(f"{table}/{200 + number}/{file + 1}", *[f"I {300 + 20 * file + n} {10 * file + n + 2} x" for n in range(5)])
    bucket.rows("o/99/1", "I 1000 2 b")
    assert backlog.at(1100, policies=APPROVING).code == EXIT_TABLE_STOPPED
    with armed(crash_at(Moment.AFTER, Step.CHECKPOINT, skip=died_after)), pytest.raises(Crashed):
        backlog.at(1100)
    assert (ran := backlog.at(1200)).code == EXIT_OK, ran.stopped
    keys = [1, *(10 * file + number + 2 for file in range(3) for number in range(5))]
    assert [list(map(int, map(str, backlog.keys(table)))) for table in "tw"] == [keys, keys]


@pytest.mark.parametrize("died_after", range(3))
def test_what_is_followed_out_of_the_filter_is_not_done_again(tmp_path: Path, place: Place, died_after: int) -> None:
    backlog = Backlog(tmp_path, place, 60)
    bucket = backlog.bucket
    create(bucket, "t", 100)
    bucket.create("o", 101)
    bucket.rows("t/100/1", "I 110 1 a")
    assert backlog.at(150).code == EXIT_OK
    for file in range(4):
        bucket.rows(f"t/100/{file + 2}", *[f"I {200 + 20 * file + number} {10 * file + number + 2} x" for number in range(3)])
    bucket.rows("o/101/1", *[f"I {200 + 20 * file + number} {10 * file + number} x" for number in range(3) for file in range(4)])
    bucket.schema("u", 500, (PLAIN, V), "RENAME TABLE `test`.`t` TO `test`.`u`", 14)
    bucket.rows("u/500/1", "I 510 99 z")
    bucket.checkpoint(600)
    options = {"max_cut": 60, **WITHOUT_T}
    with armed(crash_at(Moment.AFTER, Step.CHECKPOINT, skip=died_after)), pytest.raises(Crashed):
        bucket.run(backlog.uri, **options)
    assert bucket.run(backlog.uri, **options).code == EXIT_OK
    keys = [1, *(10 * file + number + 2 for file in range(4) for number in range(3)), 99]
    assert list(map(int, map(str, backlog.keys("u")))) == keys


@pytest.mark.parametrize("file_size", [100, 64 << 20])
def test_a_transaction_of_several_files_that_ticdc_writes_again_is_not_doubled_and_is_told(tmp_path: Path, file_size: int) -> None:
    """TiCDC dies after the second file, whether the files are full or not."""
    bucket = Bucket(tmp_path, f"{OPTIONS}&file-size={file_size}")
    create(bucket, "t", 100)
    rows = [f"I 110 {number} {'x' * 16}" for number in range(9)]
    for number, part in enumerate((rows[:3], rows[3:6], rows[:3], rows[3:6], rows[6:]), start=1):
        bucket.rows(f"t/100/{number}", *part)
    ran = bucket.at(120)
    assert ran.code == EXIT_OK
    assert [row[0] for row in bucket.state() or ()] == list(range(9))
    (notice,) = ran.notices
    assert "taken for a repetition after a restart, which begins with this file" in notice.message
    assert notice.file.endswith("CDC000003.csv")
