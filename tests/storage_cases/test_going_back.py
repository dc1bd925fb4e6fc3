"""The target goes back under a run, and files that the run had read since are gone: their tables stop, wherever they stand then."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from building import Bucket, ledger

from following import Following
from headrace.errors import EXIT_INTERRUPTED, EXIT_OK, TransientError
from headrace.model.table import TableId
from headrace.testing.faults import Moment, Step, armed, fail_at
from headrace.transform.filters import TableFilter
from quick import without_pauses

pytestmark = pytest.mark.pipeline

T = TableId("test", "t")


@pytest.fixture
def bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bucket:
    without_pauses(monkeypatch)
    bucket = Bucket(tmp_path)
    for table, version in (("t", 100), ("o", 101)):
        bucket.create(table, version)
        bucket.rows(f"{table}/{version}/1", "I 110 1 a")
    bucket.checkpoint(150)
    return bucket


def read_whole(bucket: Bucket) -> str:
    return bucket.rows("t/100/2", "I 160 2 b")


def read_in_part(bucket: Bucket) -> str:
    return bucket.rows("t/100/2", "I 160 2 b", "I 290 3 c")


def not_read(bucket: Bucket) -> str:
    """Its table stopped."""
    path = bucket.rows("t/100/2", "I 160 2 b")
    bucket.write(path, (bucket.root / path).read_bytes().replace(b"160,2", b"160,two"))
    return path


def behind_a_truncate(bucket: Bucket) -> str:
    bucket.schema("t", 180, "id,v", "TRUNCATE TABLE `t`", 11)
    return bucket.rows("t/180/1", "I 190 2 b")


def of_a_next_life(bucket: Bucket) -> str:
    bucket.schema("t", 180, "id,v", "DROP TABLE `t`", 4)
    bucket.create("t", 181)
    return bucket.rows("t/181/1", "I 190 2 b")


LOST = [read_whole, read_in_part, not_read, behind_a_truncate, of_a_next_life]


def goes_back(bucket: Bucket, lost: Callable[[Bucket], str], at: int = 150) -> None:
    """A run that follows, whose target goes back to ``at`` when a file that it has read by 200 is gone; it goes on to 300."""
    run = Following(SimpleNamespace(uri=bucket.folder.uri(bucket.options), toml=""), bucket.sink)  # type: ignore[arg-type]
    run.wait_for(at)
    backup, beside = bucket.database.with_name("backup"), bucket.database.with_name("beside")
    shutil.copy(bucket.database, backup)
    path = lost(bucket)
    bucket.checkpoint(200)
    run.wait_for(200)
    (bucket.root / path).unlink()
    shutil.copy(backup, beside)
    beside.rename(bucket.database)
    bucket.rows("o/101/2", "I 260 2 b")
    bucket.checkpoint(300)
    run.wait_for(300)
    run.interrupt()
    assert run.ended() == EXIT_INTERRUPTED


def is_missed(bucket: Bucket) -> None:
    state = ledger(bucket)
    stopped = {t: own.reason for t, own in state.tables.items() if own.status.is_stopped}
    assert (state.checkpoint, stopped.keys()) == (300, {T})
    assert "vanished" in stopped[T] or "is missing" in stopped[T]
    assert bucket.state("o") == [(1, "a"), (2, "b")]


@pytest.mark.parametrize("lost", LOST)
def test_its_table_stops(bucket: Bucket, lost: Callable[[Bucket], str]) -> None:
    goes_back(bucket, lost)
    is_missed(bucket)


def test_its_table_stops_though_the_step_that_tells_it_fails_at_first(bucket: Bucket) -> None:
    with armed(fail_at(Moment.BEFORE, Step.REQUESTS, lambda: TransientError("for once"))) as passed:
        goes_back(bucket, read_whole)
    assert any(passage.step is Step.REQUESTS for passage in passed)
    is_missed(bucket)


def test_its_table_stops_where_it_was_gone_by_then(bucket: Bucket) -> None:
    bucket.schema("t", 120, "id,v", "DROP TABLE `t`", 4)

    def made_again(bucket: Bucket) -> str:
        bucket.create("t", 180)
        return bucket.rows("t/180/1", "I 190 2 b")

    goes_back(bucket, made_again)
    is_missed(bucket)


def test_its_table_stops_where_it_was_left_out_by_then(bucket: Bucket) -> None:
    assert bucket.run().code == EXIT_OK
    bucket.checkpoint(155)
    narrow: dict[str, Any] = {"includes": TableFilter.parse("test.o").includes, "filter_text": "test.o"}
    assert bucket.run(**narrow).code == EXIT_OK
    goes_back(bucket, read_whole, at=155)
    is_missed(bucket)
