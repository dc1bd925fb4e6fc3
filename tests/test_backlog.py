"""A backlog that is larger than a cut may be: runs that catch up with it in parts, and go on."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from crashing import Crashed, CrashPoints, install
from following import Following, Recorder, defined, run_once
from harness import assert_state
from headrace.engine import loop
from headrace.engine.run_options import RunOptions
from headrace.errors import EXIT_TABLE_STOPPED
from headrace.model.ledger import CutRecord, LedgerState, TableStatus
from headrace.model.table import Column, TableId
from headrace.model.tso import tso_from_datetime
from headrace.pipeline.registry import open_sink
from headrace.pipeline.runner import PipelineRun
from headrace.sources.ticdc_storage import bounded_offer
from headrace.testing.engine import LocalEngine
from headrace.testing.upstream import Delete, Insert, Update
from large_rounds import as_if_large
from places import Place
from targets import Target
from upstreams import (
    CUSTOMERS,
    INT,
    KEY,
    NAME,
    ORDERS,
    Changefeed,
    shop,
    shop_goes_on,
    shop_reopens,
    small_shop,
    small_shop_goes_on,
)

pytestmark = pytest.mark.pipeline

in_mariadb = pytest.mark.parametrize("place", [pytest.param("mariadb", marks=pytest.mark.server)], indirect=True)
"""Where a cut is several transactions; in DuckDB it is one."""


class Cuts(Recorder):
    """Keeps where each cut ended, up to where the source was, and how much was left."""

    def __init__(self) -> None:
        super().__init__()
        self.cuts: list[tuple[int, int, int]] = []
        self.phases: list[str] = []

    def phase(self, text: str) -> None:
        self.phases.append(text)

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


@in_mariadb
def test_a_run_tells_how_many_files_it_has_looked_into(place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    changefeed = Changefeed(tmp_path)
    small_shop(changefeed, with_bag=False)
    small_shop_goes_on(changefeed, with_bag=False)
    monkeypatch.setattr(loop, "_TELL_EVERY", 0.0)
    monkeypatch.setattr(bounded_offer, "_FILES_AT_ONCE", 1)
    _, display = run_in_parts(changefeed, place.fresh()[1])
    told = [text for text in display.phases if text.startswith("looking")]
    assert told == ["looking where the backlog's files begin: 1 of 2"]


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


class Parts(Cuts):
    """Keeps how many bytes each cut read, and what the ledger says then."""

    def __init__(self, uri: str) -> None:
        super().__init__()
        self.uri = uri
        self.sizes: list[int] = []
        self.states: list[LedgerState] = []

    def cut_finished(self, record: CutRecord, watermark: int, left_bytes: int = 0) -> None:
        super().cut_finished(record, watermark, left_bytes)
        self.sizes.append(record.read_bytes)
        self.states.append(state_of(self.uri))


def state_of(uri: str) -> LedgerState:
    with open_sink(uri) as sink:
        assert sink.ledger is not None
        state = sink.ledger.peek("default")
        sink.ledger.close()
    assert state is not None
    return state


def run_in_parts(changefeed: Changefeed, uri: str, **options: Any) -> tuple[int, Parts]:
    display = Parts(uri)
    settings = {"once": True, "max_cut": 1, "poll_interval": 0.02, "quiet": 0.0} | options
    run = PipelineRun(defined(changefeed, uri, RunOptions(**settings)), display, LocalEngine())  # type: ignore[arg-type]
    return run.run(), display


@pytest.mark.parametrize("promised", [True, False], ids=["above the last checkpoint", "without any"])
def test_what_a_finished_changefeed_left_is_taken_in_parts(
    promised: bool, place: Place, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    changefeed = Changefeed(tmp_path)
    target, uri = place.fresh()
    shop(changefeed, with_bag=place.takes_bags)
    published = changefeed.watermark
    shop_reopens(changefeed, with_bag=place.takes_bags)
    shop_goes_on(changefeed, with_bag=place.takes_bags)
    changefeed.writer.checkpoint(published)
    if not promised:
        (changefeed.writer.root / "metadata").unlink()
    code, display = run_in_parts(changefeed, uri, once=False, until_end=True)
    assert code == 0
    beyond = [hi for hi, _, _ in display.cuts if not promised or hi > published]
    assert len(beyond) > 2
    assert beyond == sorted(set(beyond))
    assert_state(target, changefeed.state())
    said = capsys.readouterr().err
    assert said.count("because --until-end says that the changefeed is finished") == 1
    assert "If the changefeed goes on after all" not in said
    again, display = run_in_parts(changefeed, uri, once=False, until_end=True)
    assert (again, sum(display.sizes)) == (0, 0)
    changefeed.upstream.execute(Insert(ORDERS, {"id": 70, "price": 1}))
    changefeed.upstream.checkpoint()
    assert run_in_parts(changefeed, uri)[0] == 0
    assert_state(target, changefeed.state())


@in_mariadb
def test_a_final_drain_that_broke_off_between_two_parts_goes_on(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changefeed = Changefeed(tmp_path)
    target, uri = place.fresh()
    small_shop(changefeed, with_bag=place.takes_bags)
    published = changefeed.watermark
    for n in range(70, 74):
        changefeed.upstream.execute(Insert(ORDERS, {"id": n, "name": f"order {n}"}))
        changefeed.upstream.checkpoint()
    changefeed.upstream.add_column(ORDERS, Column("price", INT, default="7"))
    changefeed.upstream.execute(Insert(ORDERS, {"id": 80, "name": "priced", "price": 1}))
    changefeed.writer.flush()
    changefeed.writer.checkpoint(published)
    counted = CrashPoints()
    with monkeypatch.context() as patch:
        install(counted, patch)
        run_in_parts(changefeed, place.fresh()[1], once=False, until_end=True)
    target, uri = place.fresh()
    for fatal in range(len(counted.passed) // 3, 2, -7):
        with monkeypatch.context() as patch:
            install(CrashPoints(fatal), patch)
            with pytest.raises(Crashed):
                run_in_parts(changefeed, uri, once=False, until_end=True)
    assert run_in_parts(changefeed, uri, once=False, until_end=True)[0] == 0
    assert_state(target, changefeed.state())


@dataclass
class Lagging:
    """A changefeed of which one table stopped long ago: ``ORDERS``, behind by more than a cut may hold, and repaired."""

    changefeed: Changefeed
    uri: str
    target: Target

    @classmethod
    def begin(cls, place: Place, folder: Path) -> Lagging:
        changefeed = Changefeed(folder)
        upstream = changefeed.upstream
        upstream.create_database("shop")
        upstream.create_table(ORDERS, [KEY, NAME])
        upstream.create_table(CUSTOMERS, [KEY, NAME])
        target, uri = place.fresh()
        scene = cls(changefeed, uri, target)
        scene.both(1)
        assert run_once(changefeed, uri) == 0
        return scene

    def both(self, number: int) -> None:
        """A file of each table, and a checkpoint."""
        row = {"id": number, "name": f"number {number}"}
        self.changefeed.upstream.execute(Insert(ORDERS, row), Insert(CUSTOMERS, row))
        self.changefeed.upstream.checkpoint()

    def orders(self) -> list[Path]:
        return sorted((self.changefeed.writer.root / "shop" / "orders").rglob("CDC*.csv"))

    def stop_and_repair(self, files: int) -> None:
        """Stops the table at a damaged file, lets so many more be written, and mends it."""
        self.both(2)
        damaged = max(self.orders(), key=lambda path: path.stat().st_mtime_ns)
        whole = damaged.read_bytes()
        damaged.write_bytes(b"nonsense\r\n" + whole)
        assert run_once(self.changefeed, self.uri) == EXIT_TABLE_STOPPED
        for number in range(3, 3 + files):
            self.both(number)
        assert run_once(self.changefeed, self.uri) == EXIT_TABLE_STOPPED
        damaged.write_bytes(whole)

    def is_whole(self) -> None:
        assert_state(self.target, self.changefeed.state())


def test_a_table_that_was_stopped_for_long_catches_up_in_parts_while_the_others_go_on(place: Place, tmp_path: Path) -> None:
    scene = Lagging.begin(place, tmp_path)
    scene.stop_and_repair(6)
    for number in (50, 51, 52):
        scene.both(number)
    before = state_of(scene.uri).checkpoint
    code, display = run_in_parts(scene.changefeed, scene.uri)
    assert code == 0
    scene.is_whole()
    largest = max(path.stat().st_size for path in scene.changefeed.writer.root.rglob("CDC*.csv"))
    assert max(display.sizes) <= 2 * largest
    checkpoints = [state.checkpoint for state in display.states]
    assert checkpoints == sorted(checkpoints)
    assert checkpoints[0] == before  # the first cut was the table's own
    orders = [state.tables[ORDERS] for state in display.states]
    assert [own.checkpoint for own in orders] == sorted(own.checkpoint for own in orders)
    behind = [own.status is TableStatus.CATCHING_UP for own in orders]
    assert sum(behind) > 4
    assert not behind[-1]
    assert state_of(scene.uri).table_checkpoint(ORDERS) == scene.changefeed.watermark
    # The others had every second turn: they were where the source is when the table was not halfway.
    caught_up = checkpoints.index(scene.changefeed.watermark)
    assert caught_up < len(checkpoints) - 3


def test_the_others_wait_before_a_schema_change_that_concerns_the_table_too(place: Place, tmp_path: Path) -> None:
    scene = Lagging.begin(place, tmp_path)
    scene.stop_and_repair(6)
    scene.both(50)
    spare = TableId("shop", "spare")
    scene.changefeed.upstream.rename_tables((CUSTOMERS, spare), (ORDERS, CUSTOMERS), (spare, ORDERS))
    shared = tso_from_datetime(scene.changefeed.upstream.now)
    scene.both(51)
    code, display = run_in_parts(scene.changefeed, scene.uri)
    assert code == 0
    scene.is_whole()
    assert all(not own.status.is_stopped for state in display.states[1:] for own in state.tables.values())
    waited = [state for state in display.states if state.tables[ORDERS].status is TableStatus.CATCHING_UP]
    assert len(waited) > 4
    assert max(state.checkpoint for state in waited[:-1]) < shared


@in_mariadb
def test_a_table_that_is_let_in_late_is_filled_in_parts(place: Place, tmp_path: Path) -> None:
    scene = Lagging.begin(place, tmp_path)
    scene.target, scene.uri = place.fresh()
    for number in range(2, 8):
        scene.both(number)
    only = {"includes": lambda table_id: table_id != ORDERS, "filter_text": "*.*,!shop.orders"}
    assert run_once(scene.changefeed, scene.uri, **only) == 0
    scene.both(8)
    code, display = run_in_parts(scene.changefeed, scene.uri)
    assert code == 0
    scene.is_whole()
    assert sum(ORDERS in s.tables and s.tables[ORDERS].status is TableStatus.CATCHING_UP for s in display.states) > 3


@in_mariadb
def test_one_that_stops_again_while_it_catches_up_keeps_its_place(place: Place, tmp_path: Path) -> None:
    scene = Lagging.begin(place, tmp_path)
    scene.stop_and_repair(6)
    damaged = sorted(scene.orders(), key=lambda path: path.stat().st_mtime_ns)[4]
    whole = damaged.read_bytes()
    damaged.write_bytes(b"nonsense\r\n" + whole)
    scene.both(50)
    code, display = run_in_parts(scene.changefeed, scene.uri)
    assert code == EXIT_TABLE_STOPPED
    first, last = display.states[0], display.states[-1]
    assert last.tables[ORDERS].checkpoint >= first.tables[ORDERS].checkpoint
    assert last.checkpoint == scene.changefeed.watermark
    damaged.write_bytes(whole)
    assert run_in_parts(scene.changefeed, scene.uri)[0] == 0
    scene.is_whole()


@in_mariadb
def test_a_table_that_catches_up_survives_crashes(place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Lagging.begin(place, tmp_path)
    scene.stop_and_repair(3)
    scene.changefeed.upstream.add_column(ORDERS, Column("price", INT, default="7"))
    scene.changefeed.upstream.execute(Update(ORDERS, (2,), {"price": 1}), Delete(ORDERS, (3,)))
    scene.both(50)
    for fatal in (3, 5, 8, 11):
        with monkeypatch.context() as patch:
            as_if_large(patch)
            install(CrashPoints(fatal), patch)
            with pytest.raises(Crashed):
                run_in_parts(scene.changefeed, scene.uri)
        scene.both(50 + fatal)
    assert run_in_parts(scene.changefeed, scene.uri)[0] == 0
    scene.is_whole()
