"""Two copies of one pipeline: the newer one takes over without a human, and nothing that the older one does reaches the target."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import pytest

from following import Following, run_once
from harness import assert_state
from headrace.errors import FencedError, SinkUnreachableError
from headrace.sinks.base import LedgerUpdate
from headrace.sinks.duckdb import sink as duckdb_sink
from headrace.sinks.file_ledger import open_file_ledger
from headrace.testing.faults import Moment, Passage, Step, armed, fail_at
from headrace.testing.upstream import Insert, Update
from servers import MariaDb, S3Server, running_mariadb
from severing import severable
from stopping import Point, stopped_run
from targets import DuckDbTarget, MariaDbTarget
from unrepeatable import UNREPEATABLE
from upstreams import ORDERS, Changefeed, small_shop

pytestmark = pytest.mark.pipeline

TAKEOVER_SECONDS = 10.0
_SLACK = 4  # for machines that do other things at the same time
_STEPS = 3
_TOOK_OVER = "FencedError (4): Another run of pipeline 'default' took over"
_OPEN_CUT = Point(Moment.BEFORE, Step.DUCKDB_COMMIT, behind=(Moment.BEFORE, Step.ROUND))
_COMMITTING = partial(Point, Moment.BEFORE, Step.MYSQL_COMMIT)


@contextmanager
def within_ten_seconds() -> Iterator[None]:
    begun = time.monotonic()
    yield
    assert time.monotonic() - begun < TAKEOVER_SECONDS * _SLACK


def ended(run: Following) -> None:
    run.interrupt()
    run.ended()


class TestMariaDb:
    """The older run is a process of its own that stands still, with its connections open and its locks held."""

    pytestmark = pytest.mark.server

    @pytest.mark.parametrize(
        "point",
        [
            pytest.param(Point(Moment.BEFORE, Step.POLL, behind=(Moment.AFTER, Step.CHECKPOINT)), id="idle"),
            pytest.param(_COMMITTING(behind=(Moment.BEFORE, Step.INTENT)), id="in a transaction of its ledger"),
            pytest.param(_COMMITTING(behind=(Moment.BEFORE, Step.ROUND)), id="taking a writer's slot"),
            pytest.param(_COMMITTING(behind=(Moment.BEFORE, Step.UNIT)), id="before the commit of a large transaction"),
            pytest.param(Point(Moment.AFTER, Step.MYSQL_COMMIT, behind=(Moment.BEFORE, Step.UNIT)), id="after that commit"),
        ],
    )
    def test_a_run_that_stands_still_is_taken_over(self, point: Point, mariadb: MariaDb, tmp_path: Path) -> None:
        changefeed = Changefeed(tmp_path)
        small_shop(changefeed, with_bag=False)
        target, uri = MariaDbTarget(mariadb), mariadb.uri()
        assert run_once(changefeed, uri) == 0
        upstream = changefeed.upstream
        upstream.execute(*(Insert(ORDERS, {"id": n, "name": "many"}) for n in range(1000, 6000)))
        upstream.execute(Update(ORDERS, (2,), {"name": "of the older run"}))
        upstream.checkpoint()
        with stopped_run(changefeed, uri, point) as older:
            older.wait_until_stopped()
            upstream.execute(Update(ORDERS, (2,), {"name": "of the newer run"}))
            upstream.checkpoint()
            with within_ten_seconds():
                newer = Following(changefeed, uri)
                newer.wait_for(changefeed.watermark, TAKEOVER_SECONDS * _SLACK)
            assert_state(target, changefeed.state())
            assert older.go_on().startswith(_TOOK_OVER)
        assert_state(target, changefeed.state())
        ended(newer)

    def test_a_run_that_stands_still_while_it_takes_the_epoch_holds_nobody_up(self, mariadb: MariaDb, tmp_path: Path) -> None:
        changefeed = Changefeed(tmp_path)
        small_shop(changefeed, with_bag=False)
        # The first commit creates the ledger's tables.
        with stopped_run(changefeed, mariadb.uri(), _COMMITTING(behind=(Moment.BEFORE, Step.ACQUIRE), skip=1)) as older:
            older.wait_until_stopped()
            with within_ten_seconds():
                assert run_once(changefeed, mariadb.uri()) == 0
        assert_state(MariaDbTarget(mariadb), changefeed.state())

    def test_a_run_that_stands_still_while_the_server_alters_a_table_is_taken_over(self, mariadb: MariaDb, tmp_path: Path) -> None:
        """Its statement waits for a reader, and nobody else gets at the table behind it; the newer run's waits in its place."""
        history = UNREPEATABLE["ADD COLUMN, computed"].built(tmp_path)
        with mariadb.connect() as watcher, watcher.cursor() as cursor, mariadb.connect(autocommit=False) as reader:

            def waiting() -> set[int]:
                cursor.execute(
                    "SELECT ID FROM information_schema.PROCESSLIST WHERE INFO LIKE '%ADD COLUMN%' AND ID <> CONNECTION_ID()"
                )
                return {number for (number,) in cursor.fetchall()}

            with stopped_run(history, mariadb.uri(), Point(Moment.BEFORE, Step.MYSQL_STATEMENT, "ADD COLUMN")) as older:
                older.wait_until_stopped()
                with reader.cursor() as reading:
                    reading.execute("SELECT COUNT(*) FROM shop.t")
                older.resume()
                older.wait_until(waiting, "its statement waits")
                older.stop()
                (first,) = waiting()
                with within_ten_seconds():
                    newer = Following(history, mariadb.uri())
                    newer.wait_until(lambda: bool(waiting() - {first}), TAKEOVER_SECONDS * _SLACK)
                assert first not in waiting()
                reader.rollback()
                newer.wait_for(history.watermark)
                assert_state(MariaDbTarget(mariadb), history.state())
                assert older.go_on().startswith(_TOOK_OVER)
        assert_state(MariaDbTarget(mariadb), history.state())
        ended(newer)

    @pytest.mark.parametrize("moment", Moment)
    @pytest.mark.parametrize("name", [name for name in UNREPEATABLE if name != "ADD COLUMN, computed"])
    def test_a_schema_change_of_a_run_that_was_taken_over_does_not_run(
        self, name: str, moment: Moment, mariadb: MariaDb, tmp_path: Path
    ) -> None:
        """It stands still right before or after the statement; the newer run makes the change, if need be, and loads rows."""
        kind = UNREPEATABLE[name]
        history = kind.built(tmp_path)
        target, uri = MariaDbTarget(mariadb), mariadb.uri()
        with stopped_run(history, uri, Point(moment, Step.MYSQL_STATEMENT, kind.statement, skip=kind.occurrence)) as older:
            older.wait_until_stopped()
            with within_ten_seconds():
                newer = Following(history, uri)
                newer.wait_for(history.watermark, TAKEOVER_SECONDS * _SLACK)
            assert_state(target, history.state())
            executed = kind.executed(mariadb)
            assert older.go_on().startswith(_TOOK_OVER)
        assert kind.executed(mariadb) == executed
        assert_state(target, history.state())
        ended(newer)

    def test_a_schema_change_does_not_run_whose_run_spells_the_ledger_in_another_way(self, tmp_path: Path) -> None:
        """Two spellings of the ledger's database are two names of the pipeline's lock, and one ledger."""
        kind = UNREPEATABLE["TRUNCATE"]
        history = kind.built(tmp_path)
        with running_mariadb(lower_case_table_names=1) as server:
            target, former, newer = MariaDbTarget(server), server.uri(ledger_database="Headrace"), server.uri()
            with stopped_run(history, former, Point(Moment.BEFORE, Step.MYSQL_STATEMENT, kind.statement)) as older:
                older.wait_until_stopped()
                with within_ten_seconds():
                    assert run_once(history, newer) == 0
                assert_state(target, history.state())
                executed = kind.executed(server)
                assert older.go_on().startswith(_TOOK_OVER)
            assert kind.executed(server) == executed
            assert_state(target, history.state())

    @pytest.mark.parametrize("step", [Step.INTENT, Step.ROUND, Step.UNIT], ids=["ledger", "slot", "rows"])
    def test_a_run_whose_network_broke_off_is_not_held_up_by_itself(self, step: Step, mariadb: MariaDb, tmp_path: Path) -> None:
        """The server keeps the connection and its locks; the run connects again, and has to get past them."""
        changefeed = Changefeed(tmp_path)
        small_shop(changefeed, with_bag=False)
        assert run_once(changefeed, mariadb.uri()) == 0
        changefeed.upstream.execute(Update(ORDERS, (2,), {"name": "two"}))
        changefeed.upstream.checkpoint()
        begun = severed = False

        with severable(mariadb) as proxy:

            def sever(passage: Passage) -> None:
                nonlocal begun, severed
                if begun and not severed and (passage.moment, passage.step) == (Moment.BEFORE, Step.MYSQL_COMMIT):
                    severed = True
                    proxy.sever()
                begun |= (passage.moment, passage.step) == (Moment.BEFORE, step)

            with armed(sever), within_ten_seconds():
                assert run_once(changefeed, proxy.server.uri()) == 0
        assert severed
        assert_state(MariaDbTarget(mariadb), changefeed.state())


class TestDuckDb:
    """While a cut lasts the file is locked; the lock goes with the process."""

    @pytest.fixture(autouse=True)
    def _impatient(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(duckdb_sink, "Database", partial(duckdb_sink.Database, patience=0.5))

    def test_an_idle_run_is_taken_over(self, tmp_path: Path) -> None:
        changefeed = Changefeed(tmp_path)
        small_shop(changefeed, with_bag=True)
        target = DuckDbTarget(tmp_path / "target.duckdb")
        assert run_once(changefeed, target.uri) == 0
        with stopped_run(changefeed, target.uri, Point(Moment.BEFORE, Step.POLL)) as older:
            older.wait_until_stopped()
            changefeed.upstream.execute(Update(ORDERS, (2,), {"name": "of the newer run"}))
            changefeed.upstream.checkpoint()
            with within_ten_seconds():
                assert run_once(changefeed, target.uri) == 0
            assert_state(target, changefeed.state())
            assert older.go_on().startswith(_TOOK_OVER)
        assert_state(target, changefeed.state())

    def test_a_cut_that_is_open_is_waited_for_and_named(self, tmp_path: Path) -> None:
        """Nobody can take the lock from a process that stands still: it is named, and when it ends the newer run goes on."""
        changefeed = Changefeed(tmp_path)
        small_shop(changefeed, with_bag=True)
        target = DuckDbTarget(tmp_path / "target.duckdb")
        with stopped_run(changefeed, target.uri, _OPEN_CUT) as older:
            older.wait_until_stopped()
            with within_ten_seconds():
                newer = Following(changefeed, target.uri)
                newer.wait_until(lambda: bool(newer.display.failures), TAKEOVER_SECONDS * _SLACK)
            assert f"{target.uri[9:].partition('?')[0]} is locked by another process" in newer.display.failures[0]
            assert f"(PID {older.pid})" in newer.display.failures[0]
            assert "can be killed" in newer.display.failures[0]
            older.kill()
            newer.wait_for(changefeed.watermark, TAKEOVER_SECONDS * _SLACK)
        assert_state(target, changefeed.state())
        ended(newer)

    def test_a_cut_that_is_under_way_ends_and_is_the_last_of_its_run(self, tmp_path: Path) -> None:
        changefeed = Changefeed(tmp_path)
        small_shop(changefeed, with_bag=True)
        target = DuckDbTarget(tmp_path / "target.duckdb")
        with stopped_run(changefeed, target.uri, _OPEN_CUT) as older:
            older.wait_until_stopped()
            newer = Following(changefeed, target.uri)
            newer.wait_until(lambda: bool(newer.display.failures), TAKEOVER_SECONDS * _SLACK)
            older.resume()
            newer.wait_for(changefeed.watermark, TAKEOVER_SECONDS * _SLACK)
            changefeed.upstream.execute(Update(ORDERS, (2,), {"name": "of the newer run"}))
            changefeed.upstream.checkpoint()
            newer.wait_for(changefeed.watermark, TAKEOVER_SECONDS * _SLACK)
            assert older.ended().startswith(_TOOK_OVER)
        assert_state(target, changefeed.state())
        ended(newer)


class TestFileLedger:
    """Runs that claim the epoch at once, in a folder and in an object store."""

    @pytest.fixture(params=["folder", pytest.param("s3", marks=pytest.mark.server)])
    def location(self, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
        if request.param == "folder":
            return str(tmp_path / "ledger")
        s3: S3Server = request.getfixturevalue("s3")
        _let_s3_create_in_one_step(monkeypatch)
        return s3.uri(s3.make_bucket(), "ledger")

    def test_of_runs_that_claim_at_once_each_has_an_epoch_of_its_own_and_the_last_goes_on(self, location: str) -> None:
        runs, rounds = 3, 8
        barrier = threading.Barrier(runs, timeout=60)
        epochs: list[int] = []
        with ThreadPoolExecutor(runs) as threads:
            for _ in range(rounds):
                claims = [threads.submit(_claim, location, barrier) for _ in range(runs)]
                steps = dict(claim.result(60) for claim in claims)
                last = max(steps)
                assert steps[last] == _STEPS
                state = open_file_ledger(location).peek("shop")
                assert state is not None
                assert (state.epoch, state.checkpoint, state.position) == (last, last * 100 + _STEPS, f"epoch {last}")
                epochs.extend(steps)
        assert sorted(set(epochs)) == sorted(epochs)
        assert len(epochs) == runs * rounds

    def test_a_claim_whose_answer_was_lost_is_nobodys(self, location: str) -> None:
        first, second = open_file_ledger(location), open_file_ledger(location)
        with (
            armed(fail_at(Moment.AFTER, Step.FILE_LEDGER_PUT, lambda: OSError("reset by peer"))),
            pytest.raises(SinkUnreachableError),
        ):
            first.acquire("shop", "source", "", 0)
        with pytest.raises(FencedError):
            first.update(LedgerUpdate(checkpoint=1))
        assert second.acquire("shop", "source", "", 0).epoch == 2
        second.update(LedgerUpdate(checkpoint=2))
        assert first.acquire("shop", "source", "", 0).epoch == 3
        with pytest.raises(FencedError, match="took over"):
            second.update(LedgerUpdate(checkpoint=3))

    def test_a_step_whose_answer_was_lost_is_followed_by_the_next_one(self, location: str) -> None:
        ledger = open_file_ledger(location)
        ledger.acquire("shop", "source", "", 0)
        with (
            armed(fail_at(Moment.AFTER, Step.FILE_LEDGER_PUT, lambda: OSError("reset by peer"))),
            pytest.raises(SinkUnreachableError),
        ):
            ledger.update(LedgerUpdate(checkpoint=7))
        assert ledger.next_attempt() == 1
        state = ledger.peek("shop")
        assert state is not None
        assert (state.epoch, state.attempt, state.checkpoint) == (1, 1, 7)


def _claim(location: str, barrier: threading.Barrier) -> tuple[int, int]:
    """A run that takes the epoch and writes a few steps: the epoch, and how many steps it wrote until another run took over."""
    ledger = open_file_ledger(location)
    barrier.wait()
    epoch = ledger.acquire("shop", "source", "", 0).epoch
    written = 0
    with suppress(FencedError):
        for step in range(1, _STEPS + 1):
            ledger.update(LedgerUpdate(checkpoint=epoch * 100 + step, position=f"epoch {epoch}"))
            written = step
    return epoch, written


def _let_s3_create_in_one_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """S3 looks and creates in one step (If-None-Match); the stand-in does it in two, between which another request may come."""
    from moto.s3.responses import S3Response

    one_at_a_time, put_object = threading.Lock(), S3Response.put_object

    def put(response: S3Response) -> object:
        with one_at_a_time:
            return put_object(response)

    monkeypatch.setattr(S3Response, "put_object", put)
