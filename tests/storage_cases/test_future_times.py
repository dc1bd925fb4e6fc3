"""Times that have not come yet: nothing counts as complete or applied up to there, whatever a file says."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from building import Bucket, ask, ledger

from headrace.errors import EXIT_TABLE_STOPPED, SourceNotReadyError
from headrace.model.ledger import RequestKind, TableRequest
from headrace.model.place import PlaceInFile
from headrace.model.table import TableId
from headrace.model.tso import MAX_TSO, latest_tso, tso_from_ms
from headrace.sources.ticdc_storage.position import StoragePosition
from quick import without_pauses

pytestmark = pytest.mark.pipeline

MINUTE = tso_from_ms(60_000)
TO_THE_END = {"once": False, "until_end": True, "quiet": 0.0, "poll_interval": 0.01}


def far() -> list[int]:
    return [latest_tso(time.time()) + MINUTE, latest_tso(time.time()) + 24 * 60 * MINUTE, MAX_TSO]


@pytest.fixture
def bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bucket:
    without_pauses(monkeypatch)
    bucket = Bucket(tmp_path)
    for table, version in (("t", 100), ("o", 101)):
        bucket.create(table, version)
        bucket.rows(f"{table}/{version}/1", "I 110 1 a")
    bucket.at(150)
    return bucket


@pytest.mark.parametrize("options", [{}, TO_THE_END])
@pytest.mark.parametrize("number", range(3))
def test_a_checkpoint_of_the_future_is_waited_out(bucket: Bucket, number: int, options: dict[str, object]) -> None:
    with pytest.raises(SourceNotReadyError, match="minutes ahead of this machine's clock"):
        bucket.at(far()[number], **options)
    assert ledger(bucket).checkpoint == 150
    bucket.rows("t/100/2", "I 210 2 b")
    assert bucket.at(300).code == 0
    assert bucket.state("t") == [(1, "a"), (2, "b")]


@pytest.mark.parametrize("number", range(3))
def test_a_row_of_the_future_is_not_the_end_of_a_changefeed(bucket: Bucket, number: int) -> None:
    path = bucket.rows("t/100/2", "I 210 2 b", f"I {far()[number]} 3 c")
    bucket.rows("o/101/2", "I 220 2 b")
    ran = bucket.run(**TO_THE_END)
    assert ran.code == EXIT_TABLE_STOPPED
    (problem,) = {problem.table_id: problem for problem in ran.problems}.values()
    assert (str(problem.table_id), problem.place) == ("test.t", PlaceInFile(path))
    assert "too far ahead of this machine's clock" in problem.message
    assert (ledger(bucket).checkpoint, bucket.state("o"), bucket.state("t")) == (220, [(1, "a"), (2, "b")], [(1, "a")])
    bucket.rows("t/100/2", "I 210 2 b", "I 230 3 c")
    assert bucket.run(**TO_THE_END).code == 0
    assert bucket.state("t") == [(1, "a"), (2, "b"), (3, "c")]


def test_a_file_with_rows_of_the_future_can_be_given_up(bucket: Bucket) -> None:
    path = bucket.rows("t/100/2", f"I {MAX_TSO} 3 c")
    bucket.rows("t/100/3", "I 220 2 b")
    assert bucket.run(**TO_THE_END).code == EXIT_TABLE_STOPPED
    ask(bucket, TableRequest("1", TableId("test", "t"), RequestKind.SKIP_FILE, place=PlaceInFile(path)))
    assert bucket.run(**TO_THE_END).code == 0
    assert (ledger(bucket).checkpoint, bucket.state("t")) == (220, [(1, "a"), (2, "b")])


@pytest.mark.parametrize("number", range(3))
def test_a_version_of_the_future_is_not_the_end_of_a_changefeed(bucket: Bucket, number: int) -> None:
    bucket.schema("t", far()[number], "id,v", "TRUNCATE TABLE `t`", 11)
    bucket.rows("t/100/2", "I 210 2 b")
    ran = bucket.run(**TO_THE_END)
    assert [str(n.table_id) for n in ran.notices if "its schema change is not taken" in n.message] == ["test.t"]
    assert (ledger(bucket).checkpoint, bucket.state("t")) == (210, [(1, "a"), (2, "b")])


def test_rows_below_a_checkpoint_of_the_future_are_applied_when_it_is_right_again(bucket: Bucket) -> None:
    now = tso_from_ms(int(time.time() * 1000))
    with pytest.raises(SourceNotReadyError, match=r"1[45] minutes ahead of this machine's clock .*clock-tolerance"):
        bucket.at(now + 15 * MINUTE)
    bucket.rows("t/100/2", f"I {now + 5 * MINUTE} 2 b")
    assert bucket.at(now + 6 * MINUTE).code == 0
    assert bucket.state("t") == [(1, "a"), (2, "b")]


def test_a_user_may_say_how_far_the_clock_of_the_source_is_ahead(bucket: Bucket) -> None:
    bucket.options += "&clock-tolerance=7200"
    checkpoint = tso_from_ms(int(time.time() * 1000)) + 119 * MINUTE
    bucket.rows("t/100/2", f"I {checkpoint} 2 b")
    assert bucket.at(checkpoint).code == 0
    assert (ledger(bucket).checkpoint, bucket.state("t")) == (checkpoint, [(1, "a"), (2, "b")])
    with pytest.raises(SourceNotReadyError, match=r"12[12] minutes ahead"):
        bucket.at(checkpoint + 3 * MINUTE)


def test_a_checkpoint_that_goes_back_is_told_with_what_mends_it(bucket: Bucket) -> None:
    """As when somebody wrote one that was not reached. Rows below it are passed over, and a table that is loaded anew has them."""
    bucket.at(200)
    bucket.rows("t/100/2", "I 190 2 b")
    (notice,) = bucket.at(160).notices
    assert notice.message.startswith("The checkpoint in metadata went back from 200 (200): ")
    assert "up to there count as applied: those that are written only now are passed over" in notice.message
    assert "run headrace table resync TABLE --at TIME" in notice.message
    assert bucket.at(170).notices == [notice]  # not once more for each step on the way
    bucket.at(210)
    assert bucket.state("t") == [(1, "a")]


def test_a_pipeline_that_took_one_before_is_told_what_helps(bucket: Bucket) -> None:
    """What an older Headrace wrote down."""
    consumer = bucket.consumer()
    consumer.position = StoragePosition(watermark=MAX_TSO).to_text()
    (notice,) = consumer.poll().notices
    assert "begin anew with headrace reset." in notice.message
