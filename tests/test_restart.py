"""A run that dies anywhere, and is started again, brings the target to what the upstream holds."""

from __future__ import annotations

import random
import shutil
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from crashing import Crashed, CrashPoints, install
from following import Following, run_once
from harness import assert_state
from headrace.errors import EXIT_INTERRUPTED, EXIT_UNREACHABLE, FencedError, HeadraceError
from headrace.sinks.base import WriterContext
from headrace.sinks.duckdb.database import Database
from headrace.sinks.mysql.connection import MySqlSession
from headrace.sinks.mysql.fence import Fence
from headrace.testing.upstream import Delete, Insert, Update
from places import Place
from servers import MariaDb
from targets import DuckDbTarget, MariaDbTarget, Target, held_open
from upstreams import (
    CUSTOMERS,
    KEY,
    NAME,
    ORDERS,
    Changefeed,
    shop,
    shop_ends,
    shop_goes_on,
    shop_reopens,
    small_shop,
    small_shop_goes_on,
)

pytestmark = pytest.mark.pipeline


def crash(changefeed: Changefeed, sink_uri: str, fatal: int, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A run that dies before its step of this number; the steps up to there, or all when there are fewer."""
    points = CrashPoints(fatal)
    with monkeypatch.context() as patch, suppress(Crashed):
        install(points, patch)
        assert run_once(changefeed, sink_uri) == 0
    return points.passed


def check_every_crash(changefeed: Changefeed, prepare: Callable[[], tuple[Target, str]], patch: pytest.MonkeyPatch) -> list[str]:
    """Dies before each step of a run in turn, runs again, and compares. Returns the steps."""
    wanted = changefeed.state()
    failures = []
    steps = crash(changefeed, prepare()[1], 0, patch)
    for fatal in range(1, len(steps) + 1):
        target, uri = prepare()
        assert crash(changefeed, uri, fatal, patch) == steps[:fatal]
        try:
            assert run_once(changefeed, uri) == 0
            assert_state(target, wanted)
        except (AssertionError, HeadraceError) as error:
            failures.append(f"after a crash before step {fatal}, {steps[fatal - 1]}: {error}")
    assert not failures, "\n".join(failures)
    return steps


@pytest.mark.reading_case("A58")
def test_a_crash_at_any_step_of_a_cut_with_schema_changes_is_made_good(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, many_transactions: None
) -> None:
    changefeed = Changefeed(tmp_path)
    shop(changefeed, with_bag=place.takes_bags)
    steps = check_every_crash(changefeed, place.fresh, monkeypatch)
    for statement in ("CREATE DATABASE", "CREATE TABLE", "TRUNCATE", "DROP TABLE", "ADD COLUMN", "DROP COLUMN"):
        assert any(statement in step for step in steps), statement


def test_a_crash_at_any_step_of_a_small_cut_without_schema_changes_is_made_good(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the data and its checkpoint are one transaction, the position and the rows of tables come after it."""
    changefeed = Changefeed(tmp_path)
    small_shop(changefeed, with_bag=place.takes_bags)
    caught_up = applied_so_far(changefeed, place)
    small_shop_goes_on(changefeed, with_bag=place.takes_bags)
    steps = check_every_crash(changefeed, caught_up, monkeypatch)
    assert len(steps) >= 4


def applied_so_far(changefeed: Changefeed, place: Place) -> Callable[[], tuple[Target, str]]:
    """What makes a target that holds what the upstream does now, also when that has gone on."""
    before = changefeed.writer.root.with_name("before")
    shutil.copytree(changefeed.writer.root, before)

    def caught_up() -> tuple[Target, str]:
        target, uri = place.fresh()
        after = changefeed.writer.root.rename(before.with_name("after"))
        before.rename(changefeed.writer.root)
        assert run_once(changefeed, uri) == 0
        changefeed.writer.root.rename(before)
        after.rename(changefeed.writer.root)
        return target, uri

    return caught_up


def test_a_crash_at_any_step_of_dropping_a_database_is_made_good(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A part of its tables is gone then, to which the repeated cut writes no rows, and whose names come back in it."""
    changefeed = Changefeed(tmp_path)
    upstream = changefeed.upstream
    for part in range(2):
        if part:
            upstream.drop_database("shop")
        upstream.create_database("shop")
        for table_id in (CUSTOMERS, ORDERS):
            upstream.create_table(table_id, [KEY, NAME] if part else [KEY])
            upstream.execute(Insert(table_id, {"id": part}))
        upstream.checkpoint()
        if not part:
            caught_up = applied_so_far(changefeed, place)
            upstream.execute(Insert(CUSTOMERS, {"id": 2}), Insert(ORDERS, {"id": 2}))
    steps = check_every_crash(changefeed, caught_up, monkeypatch)
    assert any("DROP DATABASE" in step for step in steps)


@pytest.mark.parametrize("seed", range(4))
def test_crashes_in_a_row_are_made_good_while_the_upstream_goes_on(
    seed: int, place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(seed)
    target, uri = place.fresh()
    changefeed = Changefeed(tmp_path)
    crashes = []
    for part in (shop, shop_reopens, shop_goes_on):
        part(changefeed, with_bag=place.takes_bags)
        for _ in range(chance.randint(1, 3)):
            crashes.append(crash(changefeed, uri, chance.randint(2, 40), monkeypatch)[-1])
    assert run_once(changefeed, uri) == 0, crashes
    assert_state(target, changefeed.state())


def test_a_second_run_of_a_pipeline_fences_the_first(place: Place, tmp_path: Path) -> None:
    changefeed = Changefeed(tmp_path)
    target, uri = place.fresh()
    shop(changefeed, with_bag=place.takes_bags)
    first = Following(changefeed, uri)
    first.wait_for(changefeed.watermark)
    shop_reopens(changefeed, with_bag=place.takes_bags)
    first.wait_for(changefeed.watermark)
    second = Following(changefeed, uri)
    second.wait_for(changefeed.watermark)
    shop_goes_on(changefeed, with_bag=place.takes_bags)
    second.wait_for(changefeed.watermark)
    assert isinstance(first.ended(), FencedError)
    assert first.error.exit_code == EXIT_UNREACHABLE
    assert_state(target, changefeed.state())
    shop_ends(changefeed)
    second.wait_for(changefeed.watermark)
    assert_state(target, changefeed.state())
    assert second.error is None


@pytest.mark.server
def test_a_writer_of_a_former_attempt_cannot_commit(mariadb: MariaDb, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A task that was paused right before its COMMIT goes on after another run has taken over and finished the cut."""
    changefeed = Changefeed(tmp_path)
    target = MariaDbTarget(mariadb)
    small_shop(changefeed, with_bag=False)
    assert run_once(changefeed, mariadb.uri()) == 0
    changefeed.upstream.execute(Update(ORDERS, (2,), {"name": "from the first run"}))
    changefeed.upstream.checkpoint()
    reached, taken_over = threading.Event(), threading.Event()
    prove = Fence.prove
    paused = iter([True])

    def slow_prove(fence: Fence, session: MySqlSession, context: WriterContext) -> None:
        if next(paused, False):
            reached.set()
            assert taken_over.wait(30)
        prove(fence, session, context)

    monkeypatch.setattr(Fence, "prove", slow_prove)
    zombie = Following(changefeed, mariadb.uri())
    assert reached.wait(20)
    changefeed.upstream.execute(Update(ORDERS, (2,), {"name": "later"}), Delete(ORDERS, (4,)))
    changefeed.upstream.checkpoint()
    assert run_once(changefeed, mariadb.uri()) == 0
    assert_state(target, changefeed.state())
    taken_over.set()
    assert isinstance(zombie.ended(), FencedError)
    assert_state(target, changefeed.state())


def test_a_run_waits_for_a_duckdb_file_that_somebody_has_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Perhaps the run that this one takes over from, in a long cut."""
    changefeed, target = Changefeed(tmp_path), DuckDbTarget(tmp_path / "target.duckdb")
    small_shop(changefeed, with_bag=False)
    monkeypatch.setattr("headrace.sinks.duckdb.sink.Database", partial(Database, patience=0.1))
    with held_open(target.path):
        newer = Following(changefeed, target.uri)
        newer.wait_until(lambda: len(newer.display.failures) > 1)
    newer.wait_for(changefeed.watermark)
    newer.interrupt()
    assert newer.ended() == EXIT_INTERRUPTED
    assert all("target.duckdb is locked by another process" in failure for failure in newer.display.failures)
    assert_state(target, changefeed.state())
