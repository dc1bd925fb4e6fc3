"""A second signal: the run ends within ten seconds, whatever its schema change is doing, and the next run finds out about it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ddl_history import History
from following import Following, run_once
from harness import assert_state
from headrace.errors import EXIT_INTERRUPTED, EXIT_OK, EXIT_TABLE_STOPPED
from headrace.model.ledger import Decision, JournalState, Verdict
from headrace.sinks.mysql import open_sink, variables
from headrace.sinks.mysql.fence import pipeline_lock
from headrace.sinks.sql_dialect import MYSQL
from headrace.sinks.sql_ledger import SqlLedger
from headrace.testing.faults import Moment, Passage, Step, armed
from servers import MariaDb
from severing import Proxy, severable
from targets import MariaDbTarget
from unrepeatable import BASE, ROWS

pytestmark = [pytest.mark.server, pytest.mark.pipeline]

WITHIN = 10.0
ALTER = "ALTER TABLE `t` ADD COLUMN `b` INT"


@pytest.fixture(autouse=True)
def patient_schema_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the server ends what waits for a lock, after ten seconds."""
    monkeypatch.setattr(variables, "_DDL_LOCK_WAIT_SECONDS", 60)


@pytest.fixture
def proxy(mariadb: MariaDb) -> Iterator[Proxy]:
    with severable(mariadb) as proxy:
        yield proxy


def history_of(folder: Path, statement: str = ALTER) -> History:
    history = History(folder)
    history.create("t", *BASE, rows=ROWS)
    history.ddl("t", statement, 5, columns=(*BASE, "b INT"), effect=lambda rows: [(*row, None) for row in rows])
    history.insert("t", (4, "four", 4))
    history.finish()
    return history


def give_up(run: Following) -> None:
    """Two signals; fails unless the run is over within ten seconds, with the exit code of an interruption."""
    run.interrupt()
    run.interrupt()
    begun = time.monotonic()
    assert run.ended() == EXIT_INTERRUPTED
    assert time.monotonic() - begun < WITHIN


def waits(server: MariaDb, condition: str) -> bool:
    with server.connect() as watcher, watcher.cursor() as cursor:
        return bool(cursor.execute(f"SELECT 1 FROM information_schema.PROCESSLIST WHERE {condition}"))


def journalled(uri: str) -> list[JournalState]:
    with open_sink(uri) as sink:
        state = sink.ledger.peek("default")
        assert state is not None
        return [entry.state for entry in state.journal.values() if not entry.state.is_settled]


def dropped(folder: Path) -> History:
    history = History(folder)
    history.database("CREATE DATABASE `heap`", 1, "heap")
    for name in ("a", "t", "u"):
        history.create(name, *BASE, rows=ROWS, database="heap")
    history.database("DROP DATABASE `heap`", 2, "heap")
    history.finish()
    return history


@pytest.mark.parametrize("build", [history_of, dropped], ids=["ALTER TABLE", "DROP DATABASE"])
def test_a_schema_change_that_waits_for_a_reader(
    build: Callable[[Path], History], proxy: Proxy, mariadb: MariaDb, tmp_path: Path
) -> None:
    history = build(tmp_path)

    def read(passage: Passage) -> None:
        here = (passage.moment, passage.step) == (Moment.BEFORE, Step.MYSQL_STATEMENT)
        if here and ("ADD COLUMN" in passage.detail or "DROP TABLE `heap`.`t`" in passage.detail):
            reader.query(f"SELECT * FROM {'heap' if 'heap' in passage.detail else 'shop'}.t")

    with mariadb.connect(autocommit=False) as reader, armed(read):
        run = Following(history, proxy.server.uri())
        run.wait_until(lambda: waits(mariadb, "STATE LIKE 'Waiting for table metadata lock%'"))
        give_up(run)
        assert not waits(mariadb, "STATE LIKE 'Waiting for table metadata lock%'"), "the server goes on with it"
        assert journalled(mariadb.uri()) == [JournalState.PENDING]
    assert run_once(history, mariadb.uri()) == EXIT_OK
    assert_state(MariaDbTarget(mariadb), history.state())


def test_a_statement_of_a_person(proxy: Proxy, mariadb: MariaDb, tmp_path: Path) -> None:
    history = history_of(tmp_path, "ALTER TABLE `t` ADD COLUMN `b` INT DEFAULT (RAND())")
    assert run_once(history, mariadb.uri()) == EXIT_TABLE_STOPPED
    with open_sink(mariadb.uri()) as sink:
        state = sink.ledger.peek("default")
        assert state is not None
        (waiting,) = [entry.identity for entry in state.journal.values() if not entry.state.is_settled]
        sink.ledger.decide("default", Decision(waiting, Verdict.EDIT, "ALTER TABLE `t` ADD COLUMN `b` INT"))
    with mariadb.connect(autocommit=False) as reader:
        reader.query("SELECT * FROM shop.t")
        run = Following(history, proxy.server.uri())
        run.wait_until(lambda: waits(mariadb, "STATE LIKE 'Waiting for table metadata lock%'"))
        give_up(run)
    assert run_once(history, mariadb.uri()) == EXIT_OK
    assert_state(MariaDbTarget(mariadb), history.state())


@pytest.mark.parametrize("later_ones", [False, True], ids=["the connections there are", "later ones too"])
def test_a_network_that_swallows_packets(proxy: Proxy, mariadb: MariaDb, tmp_path: Path, later_ones: bool) -> None:
    history = history_of(tmp_path)
    swallowed: list[Passage] = []

    def swallow(passage: Passage) -> None:
        if (passage.moment, passage.step) == (Moment.BEFORE, Step.MYSQL_STATEMENT) and "ADD COLUMN" in passage.detail:
            proxy.swallow(later_ones=later_ones)
            swallowed.append(passage)

    with armed(swallow):
        run = Following(history, proxy.server.uri())
        run.wait_until(lambda: bool(swallowed))
        time.sleep(0.2)
        give_up(run)
    assert run_once(history, mariadb.uri()) == EXIT_OK
    assert_state(MariaDbTarget(mariadb), history.state())


def test_a_pause_before_a_repetition(proxy: Proxy, mariadb: MariaDb, tmp_path: Path) -> None:
    """The server cannot be reached; tries and pauses take twenty seconds."""
    history = history_of(tmp_path)
    gone: list[float] = []

    def leave(passage: Passage) -> None:
        if (passage.moment, passage.step) == (Moment.BEFORE, Step.MYSQL_STATEMENT) and "ADD COLUMN" in passage.detail:
            proxy.close()
            gone.append(time.monotonic())

    with armed(leave):
        run = Following(history, proxy.server.uri())
        run.wait_until(lambda: bool(gone) and time.monotonic() > gone[0] + 2.5)
        give_up(run)
    assert run_once(history, mariadb.uri()) == EXIT_OK
    assert_state(MariaDbTarget(mariadb), history.state())


def test_the_named_lock(mariadb: MariaDb, tmp_path: Path) -> None:
    """Somebody else holds it, under another user's name, so that the run cannot end them."""
    history = history_of(tmp_path)
    lock = pipeline_lock(SqlLedger(MYSQL), "default")
    with mariadb.connect() as root, root.cursor() as cursor:
        cursor.execute("CREATE OR REPLACE USER weak@'%' IDENTIFIED BY 'w'")
        cursor.execute("GRANT SELECT, INSERT, UPDATE, DELETE, CREATE, DROP, ALTER, INDEX ON *.* TO weak@'%'")
        cursor.execute("SELECT GET_LOCK(%s, 0)", (lock,))
        run = Following(history, f"mysql://weak:w@{mariadb.host}:{mariadb.port}/")
        run.wait_until(lambda: waits(mariadb, "STATE LIKE 'User lock%'"))
        give_up(run)
        cursor.execute("SELECT RELEASE_LOCK(%s)", (lock,))
        cursor.execute("DROP USER weak@'%'")
    assert run_once(history, mariadb.uri()) == EXIT_OK
    assert_state(MariaDbTarget(mariadb), history.state())
