"""A run whose tasks hand rows over to the driver in an object store, as they do where they share no folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from following import Following
from harness import assert_state
from headrace.engine import loop
from servers import S3Server
from targets import DuckDbTarget
from upstreams import Changefeed, shop, shop_goes_on

pytestmark = [pytest.mark.server, pytest.mark.pipeline]


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "_FIRST_PAUSE", 0.02)
    monkeypatch.setattr(loop, "_LONGEST_PAUSE", 0.1)


@pytest.fixture
def changefeed(tmp_path: Path) -> Changefeed:
    feed = Changefeed(tmp_path / "feed")
    shop(feed, with_bag=True)
    return feed


@pytest.fixture
def target(tmp_path: Path) -> DuckDbTarget:
    return DuckDbTarget(tmp_path / "target.duckdb")


def left(s3: S3Server, bucket: str) -> list[str]:
    return [item["Key"] for item in s3.client().list_objects_v2(Bucket=bucket).get("Contents", ())]


def test_rows_arrive_and_nothing_of_the_run_is_left(changefeed: Changefeed, target: DuckDbTarget, s3: S3Server) -> None:
    bucket = s3.make_bucket()
    run = Following(changefeed, target.uri, work=s3.uri(bucket, "work"))
    run.wait_for(changefeed.watermark)
    shop_goes_on(changefeed, with_bag=True)
    run.wait_for(changefeed.watermark)
    assert all(key.endswith("/alive") for key in left(s3, bucket))
    run.interrupt()
    run.ended()
    assert_state(target, changefeed.state())
    assert left(s3, bucket) == []


def test_a_store_that_is_not_there_yet_is_waited_for(changefeed: Changefeed, target: DuckDbTarget, s3: S3Server) -> None:
    bucket = "headrace-made-later"
    run = Following(changefeed, target.uri, work=s3.uri(bucket, "work"))
    run.wait_until(lambda: bool(run.display.failures))
    assert f"Rows cannot be handed over in s3://{bucket}/work at " in run.display.failures[0]
    s3.client().create_bucket(Bucket=bucket)
    run.wait_for(changefeed.watermark)
    run.interrupt()
    run.ended()
    assert not run.display.stopped
    assert_state(target, changefeed.state())
