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

DAY = tso_from_ms(24 * 3_600_000)
TO_THE_END = {"once": False, "until_end": True, "quiet": 0.0, "poll_interval": 0.01}


def far() -> list[int]:
    return [latest_tso(time.time()) + DAY, MAX_TSO]


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
@pytest.mark.parametrize("number", range(2))
def test_a_checkpoint_of_the_future_is_waited_out(bucket: Bucket, number: int, options: dict[str, object]) -> None:
    with pytest.raises(SourceNotReadyError, match="more than a day ahead of this machine's clock"):
        bucket.at(far()[number], **options)
    assert ledger(bucket).checkpoint == 150
    bucket.rows("t/100/2", "I 210 2 b")
    assert bucket.at(300).code == 0
    assert bucket.state("t") == [(1, "a"), (2, "b")]


@pytest.mark.parametrize("number", range(2))
def test_a_row_of_the_future_is_not_the_end_of_a_changefeed(bucket: Bucket, number: int) -> None:
    path = bucket.rows("t/100/2", "I 210 2 b", f"I {far()[number]} 3 c")
    bucket.rows("o/101/2", "I 220 2 b")
    ran = bucket.run(**TO_THE_END)
    assert ran.code == EXIT_TABLE_STOPPED
    (problem,) = {problem.table_id: problem for problem in ran.problems}.values()
    assert (str(problem.table_id), problem.place) == ("test.t", PlaceInFile(path))
    assert "more than a day ahead of this machine's clock" in problem.message
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


@pytest.mark.parametrize("number", range(2))
def test_a_version_of_the_future_is_not_the_end_of_a_changefeed(bucket: Bucket, number: int) -> None:
    bucket.schema("t", far()[number], "id,v", "TRUNCATE TABLE `t`", 11)
    bucket.rows("t/100/2", "I 210 2 b")
    ran = bucket.run(**TO_THE_END)
    assert [str(n.table_id) for n in ran.notices if "its schema change is not taken" in n.message] == ["test.t"]
    assert (ledger(bucket).checkpoint, bucket.state("t")) == (210, [(1, "a"), (2, "b")])


def test_a_pipeline_that_took_one_before_is_told_what_helps(bucket: Bucket) -> None:
    """What an older Headrace wrote down."""
    consumer = bucket.consumer()
    consumer.position = StoragePosition(watermark=MAX_TSO).to_text()
    (notice,) = consumer.poll().notices
    assert "begin anew with headrace reset." in notice.message
