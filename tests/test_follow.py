"""``headrace run`` while the upstream goes on: what it shows, how it is bounded, and how it ends."""

from __future__ import annotations

import json
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import harness
from following import Following, run_once
from harness import assert_state
from headrace.errors import EXIT_INTERRUPTED, EXIT_OK, EXIT_USAGE, DefinitionError, TransientError
from headrace.model.ledger import LedgerState, RequestKind, TableRequest, TableStatus
from headrace.model.table import Column, TableId
from headrace.pipeline.registry import open_sink
from headrace.sinks.base import Round, WriteReport
from headrace.sinks.duckdb.ledger import DuckDbLedger
from headrace.sinks.duckdb.loader import DuckDbEventSink
from headrace.testing.faults import Moment, Passage, Step, armed
from headrace.testing.shop import write_shop
from headrace.testing.upstream import Delete, Insert, Update
from headrace.transform.filters import TableFilter
from processes import Running, running
from servers import MariaDb
from targets import DuckDbTarget, MariaDbTarget, Target, held_open
from upstreams import CUSTOMERS, INT, KEY, NAME, ORDERS, VISITS, Changefeed, many_rows, visit

pytestmark = pytest.mark.pipeline

GOODS = TableId("shop", "goods")
MANY = 200_000


@pytest.fixture
def changefeed(tmp_path: Path) -> Changefeed:
    """Two small tables, and a checkpoint after them."""
    feed = Changefeed(tmp_path / "changefeed")
    feed.upstream.create_table(ORDERS, [KEY, NAME])
    feed.upstream.create_table(CUSTOMERS, [KEY, NAME])
    feed.upstream.execute(Insert(ORDERS, {"id": 1, "name": "one"}), Insert(CUSTOMERS, {"id": 1, "name": "first"}))
    feed.upstream.checkpoint()
    return feed


@pytest.fixture
def target(tmp_path: Path) -> DuckDbTarget:
    return DuckDbTarget(tmp_path / "target.duckdb")


def order(changefeed: Changefeed, number: int) -> int:
    """One more order, and a checkpoint after it."""
    changefeed.upstream.execute(Insert(ORDERS, {"id": number, "name": f"order {number}"}))
    return changefeed.upstream.checkpoint()


class Pause:
    """Holds runs before they write rows into DuckDB."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reached, self.over = threading.Event(), threading.Event()
        write = DuckDbEventSink.write

        def slow_write(sink: DuckDbEventSink, round: Round) -> WriteReport:
            self.reached.set()
            assert self.over.wait(20)
            return write(sink, round)

        monkeypatch.setattr(DuckDbEventSink, "write", slow_write)


class TestBounds:
    """What a run takes. Without Spark: none of this depends on where tasks run."""

    def test_idle_polls_and_checkpoints_without_rows_start_no_job(self, changefeed: Changefeed, target: DuckDbTarget) -> None:
        run = Following(changefeed, target.uri)
        run.wait_for(changefeed.watermark)
        jobs, polls = run.engine.jobs, run.display.polls
        run.wait_until(lambda: run.display.polls >= polls + 10)
        for _ in range(3):
            run.wait_for(changefeed.upstream.checkpoint())
        assert run.engine.jobs == jobs
        run.wait_for(order(changefeed, 2))
        assert run.engine.jobs == jobs + 1
        run.interrupt()
        assert run.ended() == EXIT_INTERRUPTED

    def test_an_interrupted_run_finishes_its_cut(
        self, changefeed: Changefeed, target: DuckDbTarget, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        pause = Pause(monkeypatch)
        run = Following(changefeed, target.uri)
        assert pause.reached.wait(20)
        wanted = changefeed.state()
        run.interrupt()
        order(changefeed, 2)
        pause.over.set()
        assert run.ended() == EXIT_INTERRUPTED
        assert run.engine.cancels == 0
        assert_state(target, wanted)

    def test_a_second_signal_cancels_whatever_job_comes_next(
        self, changefeed: Changefeed, target: DuckDbTarget, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Between two jobs of a cut there is nothing to cancel yet."""
        pause = Pause(monkeypatch)
        run = Following(changefeed, target.uri)
        assert pause.reached.wait(20)
        run.interrupt()
        run.interrupt()
        run.wait_until(lambda: run.engine.cancels > 1)
        pause.over.set()
        assert run.ended() == EXIT_INTERRUPTED

    def test_until_ends_the_run_exactly_there(self, changefeed: Changefeed, target: DuckDbTarget) -> None:
        until = changefeed.upstream.execute(Insert(ORDERS, {"id": 2, "name": "two"}))
        wanted = changefeed.state()
        changefeed.upstream.execute(Insert(ORDERS, {"id": 3, "name": "three"}), Delete(ORDERS, (1,)))
        changefeed.upstream.add_column(CUSTOMERS, Column("city", INT))
        changefeed.upstream.checkpoint()
        assert Following(changefeed, target.uri, until=until).ended() == EXIT_OK
        assert_state(target, wanted)
        assert run_once(changefeed, target.uri) == EXIT_OK
        assert_state(target, changefeed.state())

    def test_until_waits_for_a_watermark_that_is_not_there_yet(self, changefeed: Changefeed, target: DuckDbTarget) -> None:
        until = changefeed.upstream.execute(Insert(ORDERS, {"id": 2, "name": "two"}))
        wanted = changefeed.state()
        run = Following(changefeed, target.uri, until=until)
        run.wait_for(changefeed.watermark)
        run.wait_until(lambda: run.display.polls > 2)
        order(changefeed, 3)
        assert run.ended() == EXIT_OK
        assert_state(target, wanted)

    def test_until_at_a_schema_change_takes_it_and_nothing_after(self, changefeed: Changefeed, target: DuckDbTarget) -> None:
        until = changefeed.upstream.truncate_table(CUSTOMERS)
        wanted = changefeed.state()
        changefeed.upstream.execute(Insert(CUSTOMERS, {"id": 2, "name": "second"}))
        order(changefeed, 2)
        assert Following(changefeed, target.uri, until=until).ended() == EXIT_OK
        assert_state(target, wanted)
        assert run_once(changefeed, target.uri) == EXIT_OK
        assert_state(target, changefeed.state())

    def test_until_below_what_was_intended_is_an_error(self, changefeed: Changefeed, target: DuckDbTarget) -> None:
        before = changefeed.watermark
        order(changefeed, 2)
        assert run_once(changefeed, target.uri) == EXIT_OK
        with pytest.raises(DefinitionError, match="--until") as raised:
            run_once(changefeed, target.uri, until=before)
        assert raised.value.exit_code == EXIT_USAGE
        assert_state(target, changefeed.state())

    def test_start_takes_only_what_is_above_it(self, changefeed: Changefeed, target: DuckDbTarget) -> None:
        start = changefeed.watermark
        order(changefeed, 2)
        assert run_once(changefeed, target.uri, start=start) == EXIT_OK
        assert target.rows("shop", "orders", {"id": "int", "name": "varchar"}) == [("2", "order 2")]
        assert target.rows("shop", "customers", {"id": "int"}) == []

    def test_start_cannot_move_a_ledger(self, changefeed: Changefeed, target: DuckDbTarget) -> None:
        start = changefeed.watermark
        assert run_once(changefeed, target.uri) == EXIT_OK
        with pytest.raises(DefinitionError, match="--start") as raised:
            run_once(changefeed, target.uri, start=start)
        assert raised.value.exit_code == EXIT_USAGE

    def test_the_same_start_may_be_given_again(self, changefeed: Changefeed, target: DuckDbTarget) -> None:
        start = changefeed.watermark
        for number in (2, 3):
            order(changefeed, number)
            assert run_once(changefeed, target.uri, start=start) == EXIT_OK
        assert {row[0] for row in target.rows("shop", "orders", {"id": "int"})} == {"2", "3"}

    def test_only_tables_that_are_asked_for_are_taken(self, changefeed: Changefeed, target: DuckDbTarget) -> None:
        chosen = TableFilter.parse("shop.*,!shop.cust*")
        changefeed.upstream.truncate_table(CUSTOMERS)
        order(changefeed, 2)
        assert run_once(changefeed, target.uri, includes=chosen.includes, filter_text="shop.*,!shop.cust*") == EXIT_OK
        assert_state(target, changefeed.state(ORDERS))


@pytest.mark.spark
@pytest.mark.server
class TestCommand:
    """The command itself, as a process of its own."""

    @pytest.fixture(autouse=True)
    def _empty(self, changefeed: Changefeed, mariadb: MariaDb) -> None:
        self.changefeed, self.server = changefeed, mariadb

    def arguments(self, sink_uri: str, *more: str) -> list[str]:
        return self.changefeed.arguments(sink_uri, "--poll-interval", "100ms", *more)

    def large_cut(self) -> int:
        """A table with many rows, which take seconds to write."""
        if GOODS not in self.changefeed.upstream.tables:
            self.changefeed.upstream.create_table(GOODS, [KEY, NAME])
        many_rows(self.changefeed, GOODS, 1, MANY, "good")
        self.changefeed.upstream.execute(Update(ORDERS, (1,), {"name": "with the large cut"}))
        return self.changefeed.upstream.checkpoint()

    def assert_complete(self, target: Target) -> None:
        names = target.rows("shop", "goods", {"id": "int", "name": "varchar"})
        assert len(names) == MANY
        assert len(set(names)) == MANY
        assert target.rows("shop", "orders", {"name": "varchar"}) == [("with the large cut",)]

    def run_again(self, sink_uri: str) -> None:
        assert harness.run_once(self.changefeed.uri, sink_uri, self.changefeed.toml) == EXIT_OK

    def count(self, table: str, database: str = "shop") -> int:
        """The rows of a table in MariaDB; -1 where there is none."""
        with self.server.connect() as connection, connection.cursor() as cursor:
            cursor.execute("SELECT TABLE_SCHEMA, TABLE_NAME FROM information_schema.TABLES")
            if (database, table) not in cursor.fetchall():
                return -1
            return int(str(_scalar(cursor, f"SELECT COUNT(*) FROM {database}.{table}")))

    def test_it_follows_the_upstream_and_ends_between_cuts(self, tmp_path: Path) -> None:
        with running(self.arguments(self.server.uri()), tmp_path) as run:
            run.wait_until(lambda: "starting Spark" in run.output, "the first line")
            assert run.lines[0][0] < 5.0  # 0.6 s where nothing else runs
            run.wait_until(lambda: self.count("orders") == 1, "the first cut")
            for number in range(2, 6):
                order(self.changefeed, number)
                run.wait_until(lambda wanted=number: self.count("orders") == wanted, f"order {number}", seconds=5)
            run.wait_until(lambda: self.count("cuts", "headrace") == 5, "the ledger", seconds=5)
            assert_state(MariaDbTarget(self.server), self.changefeed.state())
            run.signal(signal.SIGINT)
            assert run.exit_code(5) == EXIT_INTERRUPTED
            assert run.output.count("applied up to") == 5
            assert "error" not in run.errors
            assert "Traceback" not in run.errors
            assert not run.survivors()

    def test_sigterm_in_a_large_cut_leaves_what_the_next_run_goes_on_from(self, tmp_path: Path) -> None:
        target = DuckDbTarget(tmp_path / "target.duckdb")
        spool = tmp_path / "spool"
        with running(self.arguments(f"{target.uri}&spool={spool}", "--json"), tmp_path) as run:
            run.wait_until(lambda: '"event": "cut"' in run.output, "the first cut")
            self.large_cut()
            run.wait_until(lambda: any(spool.glob("*/spool-*/*.arrow")), "the large cut")
            run.signal(signal.SIGTERM)
            assert run.exit_code(15) == EXIT_INTERRUPTED
            assert not run.survivors()
        events = [json.loads(line) for _, line in run.lines]
        assert events[0] == {"event": "phase", "text": "starting Spark"}
        cuts = [event["read_rows"] for event in events if event["event"] == "cut"]
        assert cuts in ([2], [2, MANY + 2])  # an update is two rows
        if len(cuts) == 1:
            assert target.tables() == {("shop", "orders"), ("shop", "customers")}
        self.run_again(target.uri)
        self.assert_complete(target)

    @contextmanager
    def held_up(self, tmp_path: Path) -> Iterator[Running]:
        """A run in the middle of a large cut that cannot finish, since somebody else has locked one of the rows."""
        self.large_cut()
        self.run_again(self.server.uri())
        self.changefeed.upstream.execute(Update(ORDERS, (1,), {"name": "once more"}))
        self.large_cut()
        with self.server.connect(autocommit=False) as locking, locking.cursor() as cursor:
            cursor.execute("SELECT * FROM shop.goods WHERE id = 77 FOR UPDATE")
            with running(self.arguments(self.server.uri()), tmp_path) as run:
                waiting = "SELECT COUNT(*) FROM information_schema.INNODB_TRX WHERE trx_state = 'LOCK WAIT'"
                # The server shows a copy, made anew only when nobody has looked for a tenth of a second.
                run.wait_until(lambda: _scalar(cursor, waiting), "a writer that waits", every=0.2)
                yield run
        self.run_again(self.server.uri())
        self.assert_complete(MariaDbTarget(self.server))

    def test_ctrl_c_on_a_terminal_abandons_a_cut_that_does_not_end(self, tmp_path: Path) -> None:
        with self.held_up(tmp_path) as run:
            run.signal_group(signal.SIGINT)
            assert run.exit_code(18) == EXIT_INTERRUPTED
            assert "Traceback" not in run.errors
            assert not run.survivors()

    def test_a_second_signal_abandons_the_cut_at_once(self, tmp_path: Path) -> None:
        with self.held_up(tmp_path) as run:
            run.signal_group(signal.SIGINT)
            time.sleep(0.5)
            run.signal_group(signal.SIGINT)
            assert run.exit_code(5) == EXIT_INTERRUPTED
            assert "Traceback" not in run.errors
            assert not run.survivors()

    def test_it_ends_at_once_while_spark_starts(self, tmp_path: Path) -> None:
        with running(self.arguments(self.server.uri()), tmp_path) as run:
            run.wait_until(lambda: "starting Spark" in run.output, "the first line")
            run.wait_until(lambda: self.count("pipelines", "headrace") == 1, "the loop that waits for Spark")
            time.sleep(0.5)
            run.signal(signal.SIGINT)
            assert run.exit_code(3) == EXIT_INTERRUPTED
            assert not run.survivors()
            assert self.count("orders") == -1

    def test_a_wrong_definition_ends_it_with_one_sentence(self, tmp_path: Path) -> None:
        with running(self.arguments("mysqk://nobody@nowhere/"), tmp_path) as run:
            assert run.exit_code(5) == EXIT_USAGE
            assert run.errors.startswith("error: ")
            assert len(run.error_lines) == 1
            assert not run.output


def _scalar(cursor: object, query: str) -> object:
    cursor.execute(query)  # type: ignore[attr-defined]
    return cursor.fetchone()[0]  # type: ignore[attr-defined]


def test_a_failure_in_the_last_cut_of_a_run_that_is_to_end_is_told(
    changefeed: Changefeed, target: DuckDbTarget, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is lost, but the checkpoint is not where somebody who waited for the end of the cut expects it."""
    run = Following(changefeed, target.uri)
    run.wait_for(changefeed.watermark)

    def fails(passage: Passage) -> None:
        if (passage.moment, passage.step) == (Moment.BEFORE, Step.CHECKPOINT):
            run.interrupt()
            raise TransientError("The disk is full.")

    with armed(fails):
        order(changefeed, 2)
        assert run.ended() == EXIT_INTERRUPTED
    assert "the run ends, and its last cut failed: The disk is full." in capsys.readouterr().err
    assert run_once(changefeed, target.uri) == EXIT_OK
    assert_state(target, changefeed.state())


def test_what_was_carried_out_is_not_carried_out_again_while_somebody_has_the_file_open(
    changefeed: Changefeed, target: DuckDbTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run cannot look for what people ask then. A table without key would get its rows once more."""
    words, answers = DuckDbLedger.words, []
    monkeypatch.setattr(DuckDbLedger, "words", lambda ledger, pipeline: answers.append(words(ledger, pipeline)) or answers[-1])
    changefeed.upstream.create_table(VISITS, [Column("page", NAME.type), Column("seconds", INT)])
    visit(changefeed.upstream, "/", 1, 1)
    loaded = changefeed.upstream.checkpoint()
    run = Following(changefeed, target.uri)
    run.wait_for(loaded)
    asks(target, TableRequest("1", VISITS, RequestKind.HOLD))
    run.wait_until(lambda: state_of(target).tables[VISITS].status is TableStatus.HELD)
    visit(changefeed.upstream, "/", 1, 2)
    run.wait_for(changefeed.upstream.checkpoint())
    asks(target, TableRequest("2", VISITS, RequestKind.RESYNC, to=loaded))
    run.wait_until(lambda: state_of(target).tables[VISITS].status is TableStatus.RUNNING)
    with held_open(target.path):
        seen, polls = len(answers), run.display.polls
        run.wait_until(lambda: len(answers) > seen and run.display.polls > polls + 10)
    assert answers[seen] is None
    run.wait_for(changefeed.upstream.checkpoint())
    run.interrupt()
    assert run.ended() == EXIT_INTERRUPTED
    assert_state(target, changefeed.state())


def asks(target: DuckDbTarget, request: TableRequest) -> None:
    with open_sink(target.uri) as sink:
        assert sink.ledger is not None
        sink.ledger.request("default", request)


def state_of(target: DuckDbTarget) -> LedgerState:
    with open_sink(target.uri) as sink:
        assert sink.ledger is not None
        state = sink.ledger.peek("default")
    assert state is not None
    return state


@pytest.mark.spark
def test_a_jvm_that_does_not_answer_keeps_no_run_from_ending(tmp_path: Path) -> None:
    """It may be collecting garbage without an end."""
    shop = write_shop(tmp_path / "cf")
    arguments = ["run", "--source", shop.source_uri, "--sink", "blackhole://", "--ledger", str(tmp_path / "ledger")]
    with running(arguments, tmp_path / "working") as run:
        run.wait_until(lambda: "applied up to" in run.output, "a cut")
        run.remember()
        (java,) = (process for process in run.family.values() if process.name() == "java")
        java.suspend()
        run.signal(signal.SIGTERM)
        assert run.exit_code(40) == EXIT_INTERRUPTED
        assert not run.survivors()
        assert "Traceback" not in run.errors
