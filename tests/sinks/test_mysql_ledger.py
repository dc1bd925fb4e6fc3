"""The ledger inside a MariaDB, and what ``validate`` says of one."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pymysql
import pytest

from headrace.errors import DefinitionError, FencedError, TransientError
from headrace.model.ledger import (
    CutRecord,
    Decision,
    JournalEntry,
    JournalState,
    TableProgress,
    TableShape,
    TableStatus,
    Verdict,
)
from headrace.model.table import Column, TableId, TableSchema
from headrace.model.types import ColumnType, TypeKind
from headrace.sinks.base import CheckState, LedgerPart, LedgerUpdate
from headrace.sinks.mysql import open_sink
from headrace.sinks.mysql.fence import pipeline_lock
from headrace.sinks.sql_dialect import MYSQL
from headrace.sinks.sql_ledger import PART_LENGTH, SqlLedger
from headrace.testing.faults import Moment, Step, armed

pytestmark = pytest.mark.server

ORDERS = TableId("shop", "orders")


@pytest.fixture
def ledger(mariadb):
    with open_sink(mariadb.uri()) as sink:
        yield sink.ledger


def test_looking_creates_nothing(mariadb, ledger):
    assert ledger.peek("p") is None
    assert ledger.pipelines() == []
    with mariadb.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SHOW DATABASES LIKE 'headrace'")
        assert cursor.fetchall() == ()


def test_every_field_of_an_update_is_read_back(ledger):
    ledger.acquire("Pipe 'ü'", "src", "f", 5)
    gone = TableProgress(TableId("shop", "old"), 8, status=TableStatus.GONE, incarnation=2**62)
    stopped = TableProgress(ORDERS, 7, after=False, status=TableStatus.STOPPED, reason="'é' \\ % ? 😀")
    upper = TableProgress(TableId("shop", "Orders"), 9)
    entry = JournalEntry("8/shop.old/0", 8, (TableId("shop", "old"),), "DROP TABLE `%s?`", JournalState.DONE, "x")
    cut = CutRecord(9, "2024-06-05T00:00:00Z", 0.25, 1, 2, 3, 4, 5, 6)
    update = LedgerUpdate(9, 12, '{"f": "?%s"}', (gone, stopped, upper), (entry,), cut=cut)
    for _ in range(2):
        ledger.update(update)
    state = ledger.peek("Pipe 'ü'")
    assert (state.epoch, state.start, state.checkpoint, state.attempted, state.position) == (1, 5, 9, 12, '{"f": "?%s"}')
    assert state.tables == {row.table_id: row for row in (gone, stopped, upper)}
    assert state.journal == {entry.identity: entry}
    assert state.cuts == (cut,)
    assert ledger.pipelines() == ["Pipe 'ü'"]


def test_names_of_pipelines_differ_by_case(ledger):
    ledger.acquire("p", "src", "f", 5)
    ledger.acquire("P", "other", "f", 6)
    assert ledger.pipelines() == ["P", "p"]
    assert ledger.peek("p").start == 5


def test_a_newer_run_fences_the_older_one(mariadb, ledger):
    assert ledger.acquire("p", "src", "f", 5).epoch == 1
    assert ledger.next_attempt() == 1
    with open_sink(mariadb.uri()) as newer:
        state = newer.ledger.acquire("p", "src", "g", 5)
        assert (state.epoch, state.attempt, state.fingerprint) == (2, 0, "f")
        with pytest.raises(FencedError):
            ledger.update(LedgerUpdate(checkpoint=9))
        with pytest.raises(FencedError):
            ledger.next_attempt()
        newer.ledger.update(LedgerUpdate(checkpoint=9))


def test_of_first_runs_at_once_each_has_an_epoch_of_its_own_or_tries_again(mariadb):
    found, count = [], 6
    at_once = threading.Barrier(count)

    def begin():
        with open_sink(mariadb.uri()) as sink:
            sink.ledger.pipelines()
            at_once.wait()
            try:
                found.append(sink.ledger.acquire("p", "src", "f", 5).epoch)
            except TransientError as error:
                found.append(error)

    for _ in range(4):
        found.clear()
        mariadb.fresh()
        runs = [threading.Thread(target=begin) for _ in range(count)]
        for run in runs:
            run.start()
        for run in runs:
            run.join()
        epochs = sorted(epoch for epoch in found if isinstance(epoch, int))
        assert epochs == list(range(1, len(epochs) + 1))
        assert epochs
        assert len(found) == count, "all others are told to try again"


def test_the_schema_changes_of_an_older_version_are_ended(mariadb, ledger):
    """The connection that runs them is recorded there too, and holds no lock but the pipeline's."""
    ledger.acquire("p", "src", "f", 5)
    with (
        mariadb.connect(user=mariadb.user, password=mariadb.password) as older,
        older.cursor() as cursor,
        open_sink(mariadb.uri()) as newer,
    ):
        cursor.execute("SELECT CONNECTION_ID()")
        cursor.execute(f"REPLACE INTO headrace.fences VALUES ('p', -1, 1, 0, {cursor.fetchone()[0]}, 0)")
        cursor.execute(f"SELECT GET_LOCK('{pipeline_lock(SqlLedger(MYSQL), 'p')}', 0)")
        newer.ledger.acquire("p", "src", "f", 5)
        with pytest.raises(pymysql.err.MySQLError):
            cursor.execute("SELECT 1")


def test_a_recorded_connection_that_is_not_the_pipelines_any_more_is_left_alone(mariadb, ledger):
    """The server has given its id to somebody else since."""
    ledger.acquire("p", "src", "f", 5)
    with mariadb.connect() as somebody, somebody.cursor() as cursor:
        cursor.execute("SELECT CONNECTION_ID()")
        cursor.execute(f"REPLACE INTO headrace.fences VALUES ('p', -1, 1, 0, {cursor.fetchone()[0]}, 0)")
        ledger.acquire("p", "src", "f", 5)
        cursor.execute("SELECT 1")


def test_of_two_that_complete_an_older_ledger_at_once_both_go_on(mariadb, ledger, monkeypatch):
    ledger.acquire("p", "src", "f", 5)
    with mariadb.connect() as connection, connection.cursor() as cursor:
        cursor.execute("ALTER TABLE headrace.pipelines DROP COLUMN run_token, DROP COLUMN step")
        cursor.execute("ALTER TABLE headrace.fences DROP COLUMN commits")
    looked, add = threading.Barrier(2), SqlLedger._add_columns

    def add_at_once(self, session, table, present, wanted):
        if table == "pipelines" and "step" not in present:
            with suppress(threading.BrokenBarrierError):
                looked.wait(2)
        add(self, session, table, present, wanted)

    monkeypatch.setattr(SqlLedger, "_add_columns", add_at_once)

    def decide(number):
        with open_sink(mariadb.uri()) as sink:
            sink.ledger.decide("p", Decision(f"{number}/shop.t/x", Verdict.SKIP))

    with ThreadPoolExecutor(2) as threads:
        list(threads.map(decide, (1, 2)))
    assert len(ledger.words("p").decisions) == 2
    assert ledger.acquire("p", "src", "f", 5).epoch == 2


def test_a_reset_whose_answer_was_lost_says_that_there_was_something(mariadb, ledger):
    ledger.acquire("p", "src", "f", 5)
    times = []

    def lose(passage):
        if (passage.moment, passage.step) == (Moment.AFTER, Step.MYSQL_COMMIT) and not times:
            times.append(passage)
            raise pymysql.err.OperationalError(2013, "lost")

    with armed(lose):
        assert ledger.reset("p")
    assert times
    assert ledger.peek("p") is None
    assert not ledger.reset("p")


def test_another_source_is_refused_and_ends_nothing(mariadb, ledger):
    ledger.acquire("p", "src", "f", 5)
    with open_sink(mariadb.uri()) as other:
        with pytest.raises(DefinitionError, match="--name"):
            other.ledger.acquire("p", "another", "f", 5)
        with pytest.raises(FencedError, match="not acquired"):
            other.ledger.update(LedgerUpdate(checkpoint=9))
    ledger.update(LedgerUpdate(checkpoint=9))


def test_a_lost_connection_is_made_again(mariadb, ledger):
    ledger.acquire("p", "src", "f", 5)
    with mariadb.connect() as connection, connection.cursor() as cursor:
        cursor.execute(f"KILL {ledger._session.connection_id}")
    ledger.update(LedgerUpdate(checkpoint=9))
    assert ledger.peek("p").checkpoint == 9


def test_the_ledger_lives_in_the_database_of_the_uri(mariadb):
    with open_sink(mariadb.uri(ledger_database="progress-1")) as sink:
        sink.ledger.acquire("p", "src", "f", 5)
    with mariadb.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SELECT pipeline FROM `progress-1`.pipelines")
        assert cursor.fetchall() == (("p",),)


def test_validate_looks_at_everything_that_matters(mariadb):
    with open_sink(mariadb.uri()) as sink:
        checks = {check.name: check for check in sink.check()}
    assert {check.state for check in checks.values()} == {CheckState.OK}
    assert ("TiDB" if mariadb.is_tidb else "MariaDB") in checks["target"].detail
    assert {"privileges", "local_infile", "max_allowed_packet", "lower_case_table_names", "time zone", "sql_mode"} <= set(checks)


def test_validate_names_what_is_missing(mariadb):
    with mariadb.connect() as connection, connection.cursor() as cursor:
        cursor.execute("DROP USER IF EXISTS reader")
        cursor.execute("CREATE USER reader IDENTIFIED BY 'x'")
        cursor.execute("GRANT SELECT ON *.* TO reader")
        cursor.execute("GRANT INSERT, UPDATE, DELETE, CREATE, DROP, ALTER ON shop.* TO reader")
    with open_sink(f"mysql://reader:x@{mariadb.host}:{mariadb.port}/?local-infile=off") as sink:
        checks = {check.name: check for check in sink.check()}
    assert checks["privileges"].state is CheckState.FAILED
    assert checks["privileges"].detail == (
        "missing: INDEX on `shop`.*; INSERT, UPDATE, DELETE, CREATE on the ledger's database headrace"
    )
    assert checks["local_infile"].state is (CheckState.OK if mariadb.is_tidb else CheckState.WARNING)


def test_validate_of_a_wrong_login_or_zone_fails_with_what_to_do(mariadb):
    wrong = f"mysql://nobody:secret-word@{mariadb.host}:{mariadb.port}/"
    for uri in (wrong, mariadb.uri(time_zone="Mars/Olympus")):
        with open_sink(uri) as sink:
            (check,) = sink.check()
        assert check.state is CheckState.FAILED
        assert check.advice
        assert "secret-word" not in f"{check.detail} {check.advice}"


def test_a_position_that_is_larger_than_a_packet_is_written_in_parts(mariadb, ledger):
    with mariadb.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SELECT @@global.max_allowed_packet")
        packet = cursor.fetchone()[0]
    position = '{"é\\\\":"' + "x" * packet + '"}'
    ledger.acquire("p", "src", "f", 5)
    for text in (position, position + " ", "small"):
        ledger.update(LedgerUpdate(9, position=text))
        assert ledger.peek("p").position == text


def test_a_new_pipeline_begins_with_nothing_of_a_former_one_of_its_name(mariadb, ledger):
    ledger.acquire("p", "src", "f", 5)
    ledger.update(LedgerUpdate(9, position="x" * (PART_LENGTH + 1), tables=(TableProgress(ORDERS, 8),)))
    with mariadb.connect() as connection, connection.cursor() as cursor:
        cursor.execute("DELETE FROM headrace.pipelines")
    state = ledger.acquire("p", "src", "f", 5)
    assert (state.epoch, state.checkpoint, state.position, state.tables) == (2, 5, "", {})  # not an epoch that this run had
    assert ledger.peek("p") == state


def test_shapes_and_targets_of_an_older_ledger_get_their_tables_when_they_are_asked_for(mariadb, ledger):
    ledger.acquire("p", "src", "f", 5)
    ledger.update(LedgerUpdate(tables=(TableProgress(ORDERS, 7),)))
    column = Column("é' \\ % ?", ColumnType(TypeKind.ENUM, elements=("a'", "😀")), default="\x00")
    shape = TableShape(2**62, 2**62, TableSchema(ORDERS, (column,), ("id",)))
    archived = TableProgress(ORDERS, 9, target=TableId("a" * 64, "Orders"))
    with open_sink(mariadb.uri()) as sink:
        sink.ledger.acquire("p", "src", "f", 5, (LedgerPart.SHAPES, LedgerPart.ROUTED_TABLES))
        for _ in range(2):
            sink.ledger.update(LedgerUpdate(tables=(archived,), shapes=(shape,)))
        state = sink.ledger.peek("p")
        assert state.shapes == {shape.key: shape}
        assert state.pairs == {row.pair: row for row in (TableProgress(ORDERS, 7), archived)}
        sink.ledger.update(LedgerUpdate(forget_shapes=(shape.key,)))
        assert sink.ledger.peek("p").shapes == {}
