"""A backlog that is larger than a cut may be: runs that catch up with it in parts, and go on."""

from __future__ import annotations

from pathlib import Path

import pytest

from following import Following, Recorder, defined, run_once
from harness import assert_state
from headrace.engine.loop import RunOptions
from headrace.model.progress import CutRecord
from headrace.pipeline.runner import PipelineRun
from local_engine import LocalEngine
from places import Place
from upstreams import Changefeed, shop, shop_goes_on, shop_reopens

pytestmark = pytest.mark.pipeline


class Cuts(Recorder):
    """Keeps where each cut ended, up to where the source was, and how much was left."""

    def __init__(self) -> None:
        super().__init__()
        self.cuts: list[tuple[int, int, int]] = []

    def cut_finished(self, record: CutRecord, watermark: int, left_bytes: int = 0) -> None:
        super().cut_finished(record, watermark, left_bytes)
        self.cuts.append((record.hi, watermark, left_bytes))


def test_a_run_to_the_end_takes_all_parts(place: Place, tmp_path: Path) -> None:
    changefeed = Changefeed(tmp_path)
    target, uri = place.fresh()
    for part in (shop, shop_reopens, shop_goes_on):
        part(changefeed, with_bag=place.takes_bags)
    display = Cuts()
    options = RunOptions(once=True, max_cut=300)
    assert PipelineRun(defined(changefeed, uri, options), display, LocalEngine()).run() == 0  # type: ignore[arg-type]
    assert len(display.cuts) > 3
    assert {watermark for _, watermark, _ in display.cuts} == {changefeed.watermark}
    assert [left > 0 for _, _, left in display.cuts] == [hi < changefeed.watermark for hi, _, _ in display.cuts]
    assert_state(target, changefeed.state())


def test_one_that_stops_at_a_time_in_the_backlog_stops_there(place: Place, tmp_path: Path) -> None:
    changefeed = Changefeed(tmp_path)
    target, uri = place.fresh()
    shop(changefeed, with_bag=place.takes_bags)
    middle, wanted = changefeed.watermark, changefeed.state()
    shop_reopens(changefeed, with_bag=place.takes_bags)
    display = Cuts()
    options = RunOptions(until=middle, max_cut=1)
    assert PipelineRun(defined(changefeed, uri, options), display, LocalEngine()).run() == 0  # type: ignore[arg-type]
    assert display.cuts[-1][0] == middle
    assert_state(target, wanted)


def test_one_that_follows_goes_on_behind_the_backlog(place: Place, tmp_path: Path) -> None:
    changefeed = Changefeed(tmp_path)
    target, uri = place.fresh()
    shop(changefeed, with_bag=place.takes_bags)
    following = Following(changefeed, uri, max_cut=1)
    following.wait_for(changefeed.watermark)
    shop_reopens(changefeed, with_bag=place.takes_bags)
    shop_goes_on(changefeed, with_bag=place.takes_bags)
    following.wait_for(changefeed.watermark)
    following.interrupt()
    following.ended()
    assert following.error is None
    assert_state(target, changefeed.state())
    assert run_once(changefeed, uri, max_cut=1) == 0
