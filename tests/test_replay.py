"""Replay into MariaDB: each transaction of the source once, whole, and in an order that leads to what serial execution does."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from random import Random

import pymysql
import pytest
from pymysql.cursors import DictCursor

from headrace.faults import Moment, Step
from headrace.model.ledger import RequestKind, TableRequest
from headrace.model.table import Column, SourceTable, TableId, TableSchema
from headrace.model.types import ColumnType, TypeKind
from headrace.pipeline.registry import open_sink
from headrace.replay.conflict_keys import UniqueKey
from headrace.sinks.base import CheckState
from headrace.sinks.mysql import replay
from headrace.sinks.mysql.connection import MySqlSession
from headrace.sinks.mysql.slot import WriterSlot
from headrace.testing import memory_source
from headrace.testing.faults import Crashed, Fault, Passage
from headrace.testing.sink_runs import PIPELINE, SinkRuns, SinkUnderTest, at
from headrace.testing.ticdc_writer import RowChange
from headrace.testing.upstream import Delete, Insert, Update, Upstream
from sampling import drawn
from servers import MariaDb

pytestmark = [pytest.mark.server, pytest.mark.pipeline]

T, LOG = TableId("shop", "seats"), TableId("shop", "log")
INT = ColumnType(TypeKind.INT)
TEXT = ColumnType(TypeKind.VARCHAR, length=20)
SEATS = 12


@pytest.fixture(autouse=True)
def _many_commits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay, "_COMMIT_ROWS", 6)


@pytest.fixture
def runs(mariadb: MariaDb, tmp_path: Path) -> SinkRuns:
    def read(schema: TableSchema) -> Iterable[Mapping[str, object]]:
        return rows_of(mariadb, f"SELECT * FROM `{schema.table_id.database}`.`{schema.table_id.table}`")

    uri = mariadb.uri(any_database=True, apply="replay", replay_connections=3)
    return SinkRuns(SinkUnderTest(partial(open_sink, uri), read), tmp_path)


def rows_of(mariadb: MariaDb, select: str) -> list[Mapping[str, object]]:
    with mariadb.connect() as connection, connection.cursor(DictCursor) as cursor:
        cursor.execute(select)
        return list(cursor.fetchall())


def execute(mariadb: MariaDb, statement: str) -> None:
    with mariadb.connect() as connection, connection.cursor() as cursor:
        cursor.execute(statement)


def seats(runs: SinkRuns, mariadb: MariaDb) -> Upstream:
    """A table whose rows hand their unique seats on, and in the target a table that its triggers write to."""
    upstream = runs.upstream
    upstream.create_database(T.database)
    columns = [Column("id", INT, False, True), Column("seat", INT, nullable=False), Column("name", TEXT), Column("points", INT)]
    upstream.create_table(T, columns, unique=("seat",))
    runs.applied()
    execute(mariadb, "CREATE TABLE shop.audit (id BIGINT AUTO_INCREMENT PRIMARY KEY, what VARCHAR(9), row_id INT, points INT)")
    for event, image in (("INSERT", "NEW"), ("UPDATE", "NEW"), ("DELETE", "OLD")):
        execute(
            mariadb,
            f"CREATE TRIGGER shop.audit_{event} AFTER {event} ON shop.seats FOR EACH ROW"
            f" INSERT INTO shop.audit (what, row_id, points) VALUES ('{event}', {image}.id, {image}.points)",
        )
    return upstream


class Seating:
    """Random transactions that give the seats of some rows to others, so that many of them depend on each other."""

    def __init__(self, upstream: Upstream, seed: int) -> None:
        self._upstream, self._random = upstream, Random(seed)
        self._seat_of: dict[int, int] = {}
        self._next = 0
        self.expected: Counter[tuple[str, int, int]] = Counter()
        """What triggers must have seen of rows whose transaction hands on no seat among its updates: kind, row, points."""

    def transactions(self, count: int) -> None:
        for _ in range(count):
            self._transaction()

    def _transaction(self) -> None:
        chance, seat_of = self._random, self._seat_of
        free = [seat for seat in range(SEATS) if seat not in seat_of.values()]
        statements: list[Insert | Update | Delete] = []
        leaving = chance.sample(sorted(seat_of), min(len(seat_of), chance.randint(0, 2)))
        gone = [row for row in leaving if chance.random() < 0.5]
        moving = [row for row in leaving if row not in gone]
        free += [seat_of[row] for row in leaving]
        chance.shuffle(free)
        for row in gone:
            statements.append(Delete(T, (row,)))
            del seat_of[row]
        for row in moving:
            seat_of[row] = free.pop()
            # The points tell the triggers' rows of one transaction from those of another.
            statements.append(Update(T, (row,), {"seat": seat_of[row], "points": self._upstream.changes}))
        for _ in range(chance.randint(0, 2)):
            if free:
                self._next += 1
                seat_of[self._next] = free.pop()
                row = {"id": self._next, "seat": seat_of[self._next], "name": f"n{self._next}", "points": 0}
                statements.append(Insert(T, row))
        if statements:
            self._note(statements, moving)
            self._upstream.execute(*statements)

    def _note(self, statements: list[Insert | Update | Delete], moving: list[int]) -> None:
        for statement in statements:
            if isinstance(statement, Insert):
                self.expected["INSERT", int(str(statement.row["id"])), 0] += 1
            elif isinstance(statement, Delete):
                self.expected["DELETE", int(str(statement.key[0])), int(str(self._upstream.row(T, statement.key)["points"]))] += 1
            elif len(moving) < 2:
                self.expected["UPDATE", int(str(statement.key[0])), int(str(statement.values["points"]))] += 1


def dying(step: Step, number: int, moment: Moment) -> Fault:
    def die(_: Passage) -> None:
        raise Crashed

    return at(number, die, lambda passage: (passage.step, passage.moment) == (step, moment))


@pytest.mark.parametrize("seed", range(4))
def test_every_transaction_is_executed_once_wherever_runs_die(seed: int, runs: SinkRuns, mariadb: MariaDb) -> None:
    upstream, chance = seats(runs, mariadb), Random(seed)
    seating = Seating(upstream, seed)
    deaths = 0
    for _ in range(drawn(8)):
        seating.transactions(40)
        upstream.checkpoint()
        for _ in range(2):
            try:
                told = runs.run(dying(Step.MYSQL_COMMIT, chance.randint(1, 25), chance.choice(list(Moment))))
            except Crashed:
                deaths += 1
            else:
                assert not told.stopped, [problem.sentence() for problem in told.stopped]
        runs.applied()
    assert deaths > 1
    seen = Counter(
        (str(r["what"]), int(str(r["row_id"])), int(str(r["points"]))) for r in rows_of(mariadb, "SELECT * FROM shop.audit")
    )
    assert {what: seen[what] for what in seating.expected} == dict(seating.expected)
    assert max(seen.values()) == 1 or {what for what, count in seen.items() if count > 1} <= {
        what for what in seen if what not in seating.expected
    }


def test_readers_never_see_half_a_transaction(runs: SinkRuns, mariadb: MariaDb) -> None:
    upstream, chance = runs.upstream, Random(1)
    upstream.create_database(T.database)
    upstream.create_table(T, [Column("id", INT, False, True), Column("points", INT)])
    upstream.execute(*(Insert(T, {"id": n, "points": 10}) for n in range(30)))
    runs.applied()
    for _ in range(400):
        giving, taking = chance.sample(range(30), 2)
        points = {row: int(str(upstream.row(T, (row,))["points"])) for row in (giving, taking)}
        upstream.execute(Update(T, (giving,), {"points": points[giving] - 1}), Update(T, (taking,), {"points": points[taking] + 1}))
    sums: list[int] = []
    with _reading(mariadb, "SELECT CAST(SUM(points) AS SIGNED) AS sum FROM shop.seats", sums):
        runs.applied()
    assert set(sums) == {300}


@pytest.mark.parametrize("quota", [1 << 10, 32 << 20])
def test_a_transaction_that_is_larger_than_all_bounds_is_whole(
    quota: int, runs: SinkRuns, mariadb: MariaDb, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Larger than what may be pending, than a transaction of the target, and than one round trip."""
    monkeypatch.setattr(replay, "_QUOTA", quota)
    monkeypatch.setattr(replay, "most_bytes", lambda _: 4 << 10)
    upstream = runs.upstream
    upstream.create_database(T.database)
    upstream.create_table(T, [Column("id", INT, False, True), Column("points", INT)])
    upstream.execute(*(Insert(T, {"id": n, "points": 1}) for n in range(1_000)))
    runs.applied()
    upstream.execute(Insert(T, {"id": 9_000, "points": 0}))
    upstream.execute(
        *(Delete(T, (n,)) for n in range(500)),
        *(Update(T, (n,), {"points": 2}) for n in range(500, 1_000)),
        *(Insert(T, {"id": n, "points": 3}) for n in range(1_000, 1_500)),
    )
    upstream.execute(Insert(T, {"id": 9_001, "points": 0}))
    sums: list[int] = []
    with _reading(mariadb, "SELECT CAST(SUM(points) AS SIGNED) AS sum FROM shop.seats", sums):
        runs.applied()
    assert set(sums) <= {1_000, 500 * 2 + 500 * 3}


@contextmanager
def _reading(mariadb: MariaDb, select: str, found: list[int]) -> Iterator[None]:
    """Meanwhile, a reader asks again and again."""
    over = threading.Event()

    def read() -> None:
        with mariadb.connect() as connection, connection.cursor() as cursor:
            while not over.is_set():
                cursor.execute(select)
                found.append(int(cursor.fetchall()[0][0]))

    reader = threading.Thread(target=read)
    reader.start()
    try:
        yield
    finally:
        over.set()
        reader.join()


def test_a_refused_transaction_is_named_and_stops_its_table_only(runs: SinkRuns, mariadb: MariaDb) -> None:
    upstream = seats(runs, mariadb)
    upstream.create_table(LOG, [Column("id", INT, False, True)])
    upstream.execute(Insert(T, {"id": 1, "seat": 1, "name": "a", "points": 1}))
    runs.applied()
    execute(mariadb, "INSERT INTO shop.seats VALUES (99, 7, 'by hand', 0)")
    upstream.execute(Update(T, (1,), {"points": 2}))
    refused = upstream.execute(
        Insert(T, {"id": 2, "seat": 2, "name": "b", "points": 1}), Insert(T, {"id": 3, "seat": 7, "name": "c", "points": 1})
    )
    upstream.execute(Insert(LOG, {"id": 1}))
    upstream.checkpoint()
    told = runs.run()
    assert [problem.table_id for problem in told.stopped] == [T]
    sentence = told.stopped[0].sentence()
    assert "INSERT of the transaction at commit ts" in sentence
    assert str(refused) in sentence
    assert "id=3" in sentence
    assert "Duplicate entry" in sentence
    assert rows_of(mariadb, "SELECT id, points FROM shop.seats ORDER BY id") == [
        {"id": 1, "points": 2},
        {"id": 99, "points": 0},
    ]
    assert len(rows_of(mariadb, "SELECT * FROM shop.log")) == 1
    execute(mariadb, "DELETE FROM shop.seats WHERE id = 99")
    runs.applied()
    assert [row["what"] for row in rows_of(mariadb, "SELECT what FROM shop.audit WHERE row_id = 1")] == ["INSERT", "UPDATE"]


def test_what_is_executed_beside_a_refused_transaction_is_recorded(runs: SinkRuns, mariadb: MariaDb) -> None:
    """The checkpoint stays, and the records say what is whole beyond it."""
    upstream = seats(runs, mariadb)
    execute(mariadb, "INSERT INTO shop.seats VALUES (99, 30, 'by hand', 0)")
    with runs.opened() as (_, ledger):
        before = ledger.peek(PIPELINE)
    committed = {upstream.execute(Insert(T, {"id": n, "seat": n, "name": "a", "points": 1})): n for n in range(60)}
    upstream.checkpoint()
    assert "id=30" in runs.run().stopped[0].sentence()
    recorded = set[int]()
    for found in rows_of(mariadb, "SELECT first_ts, others FROM headrace.replayed"):
        first = int(str(found["first_ts"]))
        recorded |= {first, *(first + int(other) for other in str(found["others"]).split(",") if other)}
    there = {row["id"] for row in rows_of(mariadb, "SELECT id FROM shop.seats WHERE id < 99")}
    assert there == {committed[ts] for ts in recorded if ts in committed}
    assert 30 not in there
    with runs.opened() as (_, ledger):
        after = ledger.peek(PIPELINE)
    assert before is not None
    assert after is not None
    assert after.table_checkpoint(T) == before.table_checkpoint(T)
    execute(mariadb, "DELETE FROM shop.seats WHERE id = 99")
    runs.applied()
    seen = Counter(row["row_id"] for row in rows_of(mariadb, "SELECT row_id FROM shop.audit WHERE what = 'INSERT' AND row_id < 99"))
    assert seen == dict.fromkeys(range(60), 1)


@pytest.mark.parametrize("change", ["update", "delete"])
def test_a_row_that_the_target_lacks_stops_the_table(change: str, runs: SinkRuns, mariadb: MariaDb) -> None:
    upstream = seats(runs, mariadb)
    upstream.execute(*(Insert(T, {"id": n, "seat": n, "name": "a", "points": 1}) for n in (1, 2, 3)))
    runs.applied()
    execute(mariadb, "DELETE FROM shop.seats WHERE id = 2")
    upstream.execute(*((Delete(T, (n,)) if change == "delete" else Update(T, (n,), {"points": 5})) for n in (1, 2, 3)))
    upstream.checkpoint()
    sentence = runs.run().stopped[0].sentence()
    assert f"{change.upper()} of the transaction" in sentence
    assert "the target does not have the row" in sentence
    assert "id=2" in sentence
    assert len(rows_of(mariadb, "SELECT * FROM shop.seats WHERE points = 1")) == 2


def test_a_server_that_takes_one_statement_at_a_time_is_written_to_as_well(
    runs: SinkRuns, mariadb: MariaDb, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as a proxy in front of it. A part of the statements may be executed by then."""
    together, tried = MySqlSession.run_together, list[int]()

    def run_first(session: MySqlSession, texts: Sequence[bytes]) -> list[tuple[int, int]]:
        together(session, texts[:1])
        tried.append(session.connection_id)
        raise pymysql.err.ProgrammingError(1064, "You have an error in your SQL syntax near ';'")

    monkeypatch.setattr(MySqlSession, "run_together", run_first)
    seating = Seating(seats(runs, mariadb), 3)
    seating.transactions(60)
    runs.applied()
    seen = Counter(
        (str(r["what"]), int(str(r["row_id"])), int(str(r["points"]))) for r in rows_of(mariadb, "SELECT * FROM shop.audit")
    )
    assert not seating.expected - seen
    assert len(tried) <= 3 * 3  # once for each connection and cut


def test_auto_replays_the_tables_that_have_triggers(mariadb: MariaDb, tmp_path: Path) -> None:
    """In the other table only the last state of each row is written, and without the row's history nothing is missing."""

    def read(schema: TableSchema) -> Iterable[Mapping[str, object]]:
        return rows_of(mariadb, f"SELECT * FROM `{schema.table_id.database}`.`{schema.table_id.table}`")

    uri = mariadb.uri(any_database=True, apply="auto", replay_connections=3)
    runs = SinkRuns(SinkUnderTest(partial(open_sink, uri), read), tmp_path)
    upstream = seats(runs, mariadb)
    upstream.create_table(LOG, [Column("id", INT, False, True), Column("v", INT)])
    upstream.execute(Insert(T, {"id": 1, "seat": 1, "name": "a", "points": 0}), Insert(LOG, {"id": 1, "v": 0}))
    for n in (1, 2, 3):
        upstream.execute(Update(T, (1,), {"points": n}), Update(LOG, (1,), {"v": n}))
    runs.applied()
    audit = rows_of(mariadb, "SELECT what, points FROM shop.audit ORDER BY id")
    assert [(row["what"], row["points"]) for row in audit] == [("INSERT", 0), ("UPDATE", 1), ("UPDATE", 2), ("UPDATE", 3)]
    assert {row["table_name"] for row in rows_of(mariadb, "SELECT table_name FROM headrace.replayed")} == {T.table}


def test_patterns_say_which_tables_are_replayed(mariadb: MariaDb, tmp_path: Path) -> None:
    def read(schema: TableSchema) -> Iterable[Mapping[str, object]]:
        return rows_of(mariadb, f"SELECT * FROM `{schema.table_id.database}`.`{schema.table_id.table}`")

    uri = mariadb.uri(any_database=True, apply_tables="shop.*:replay,shop.log:converge", replay_connections=3)
    runs = SinkRuns(SinkUnderTest(partial(open_sink, uri), read), tmp_path)
    upstream = seats(runs, mariadb)
    upstream.create_table(LOG, [Column("id", INT, False, True), Column("v", INT)])
    seating = Seating(upstream, 9)
    for n in range(20):
        seating.transactions(2)
        upstream.execute(Insert(LOG, {"id": n, "v": n}))
    runs.applied()
    assert {row["table_name"] for row in rows_of(mariadb, "SELECT table_name FROM headrace.replayed")} == {T.table}


def test_an_update_that_changes_nothing_finds_its_row(runs: SinkRuns, mariadb: MariaDb) -> None:
    upstream = seats(runs, mariadb)
    upstream.execute(Insert(T, {"id": 1, "seat": 1, "name": "a", "points": 1}))
    runs.applied()
    execute(mariadb, "UPDATE shop.seats SET points = 5")
    upstream.execute(Update(T, (1,), {"points": 5}))
    runs.applied()


def test_a_table_without_key_is_applied_beside_replayed_ones(runs: SinkRuns, mariadb: MariaDb) -> None:
    upstream = seats(runs, mariadb)
    upstream.create_table(LOG, [Column("id", INT), Column("v", TEXT)])
    upstream.execute(
        *(Insert(LOG, {"id": 1, "v": "x"}) for _ in range(3)), Insert(T, {"id": 1, "seat": 1, "name": "a", "points": 1})
    )
    runs.applied()
    upstream.execute(Delete(LOG, (1, "x")))
    runs.applied()


def test_what_was_replayed_is_forgotten_with_the_table(runs: SinkRuns, mariadb: MariaDb) -> None:
    """A table that was loaded anew executes its transactions again, also those that were recorded beyond its checkpoint."""
    upstream = seats(runs, mariadb)
    execute(mariadb, "DROP TABLE shop.audit")
    for event in ("INSERT", "UPDATE", "DELETE"):
        execute(mariadb, f"DROP TRIGGER shop.audit_{event}")
    seating = Seating(upstream, 5)
    seating.transactions(60)
    upstream.checkpoint()
    with pytest.raises(Crashed):
        runs.run(dying(Step.MYSQL_COMMIT, 12, Moment.AFTER))
    assert rows_of(mariadb, "SELECT * FROM headrace.replayed")
    with runs.opened() as (_, ledger):
        ledger.request(PIPELINE, TableRequest("1", T, RequestKind.HOLD))
    runs.run()
    with runs.opened() as (_, ledger):
        state = ledger.peek(PIPELINE)
        assert state is not None
        ledger.request(PIPELINE, TableRequest("2", T, RequestKind.RESYNC, to=state.table_checkpoint(T)))
    execute(mariadb, "DELETE FROM shop.seats")  # as it was then
    runs.applied()


def test_the_ledger_keeps_records_of_one_cut_only(runs: SinkRuns, mariadb: MariaDb) -> None:
    upstream = seats(runs, mariadb)
    seating = Seating(upstream, 2)
    counts = []
    for _ in range(4):
        seating.transactions(30)
        runs.applied()
        counts.append(len(rows_of(mariadb, "SELECT * FROM headrace.replayed")))
    assert max(counts) <= 40
    with suppress(KeyError):
        upstream.drop_table(T)
    runs.applied()


def test_a_connection_that_is_lost_before_a_commit_is_replaced(
    runs: SinkRuns, mariadb: MariaDb, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its successor gets transactions that are not in the order of commit ts, since dependent ones wait."""
    upstream = seats(runs, mariadb)
    for n in range(60):
        upstream.execute(Insert(T, {"id": n, "seat": n, "name": "a", "points": 1}))
        upstream.execute(Update(T, (n,), {"points": 2}))
    monkeypatch.setattr(replay, "_COMMIT_ROWS", 256)
    commit, killed = WriterSlot.commit, list[int]()

    def lost(slot: WriterSlot) -> None:
        if slot.context.slot < 0 and len(killed) < 3 and (number := slot.connected().connection_id) not in killed:
            killed.append(number)
            if len(killed) > 1:  # the first one has only asked what is executed
                execute(mariadb, f"KILL {number}")
        commit(slot)

    monkeypatch.setattr(WriterSlot, "commit", lost)
    runs.applied()
    assert len(killed) > 1
    assert len(rows_of(mariadb, "SELECT * FROM shop.audit WHERE what = 'UPDATE'")) == 60


def test_a_connection_that_is_lost_before_a_table_stops_none(
    runs: SinkRuns, mariadb: MariaDb, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = [TableId("shop", name) for name in ("one", "two", "three")]
    runs.upstream.create_database("shop")
    for table_id in tables:
        runs.upstream.create_table(table_id, [Column("id", INT, False, True)])
        runs.upstream.execute(Insert(table_id, {"id": 1}))
    looks, killed = replay._unique_keys, list[int]()

    def lost(session: MySqlSession, table_id: TableId) -> tuple[UniqueKey, ...]:
        if not killed:
            killed.append(session.connection_id)
            execute(mariadb, f"KILL {session.connection_id}")
        return looks(session, table_id)

    monkeypatch.setattr(replay, "_unique_keys", lost)
    runs.applied()
    assert killed


def test_rows_hand_on_what_a_virtual_column_makes_of_them(runs: SinkRuns, mariadb: MariaDb) -> None:
    upstream = runs.upstream
    upstream.create_database(T.database)
    upstream.create_table(T, [Column("id", INT, False, True), Column("a", INT)])
    upstream.execute(Insert(T, {"id": 1, "a": 1}), Insert(T, {"id": 2, "a": 2}))
    runs.applied()
    execute(mariadb, "ALTER TABLE shop.seats ADD COLUMN v INT AS (a + 1) VIRTUAL, ADD UNIQUE KEY (v)")
    upstream.execute(Update(T, (1,), {"a": 2}), Update(T, (2,), {"a": 1}))
    runs.applied()


@pytest.mark.parametrize("moves", [{1: 2, 2: 1}, {2: 1, 1: 3}, {1: 2, 2: 3, 3: 1}], ids=["swap", "chain", "rotation"])
def test_rows_that_take_each_others_keys_in_one_transaction(
    moves: dict[int, int], runs: SinkRuns, mariadb: MariaDb, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As TiCDC writes them with ``output-raw-change-event=true``."""
    monkeypatch.setattr(memory_source, "split_key_updates", lambda _, changes: list(changes))
    upstream = runs.upstream
    upstream.create_database(T.database)
    upstream.create_table(T, [Column("id", INT, False, True), Column("a", INT)])
    upstream.execute(*(Insert(T, {"id": n, "a": n}) for n in moves))
    runs.applied()
    changes = [RowChange({"id": old, "a": old}, {"id": new, "a": old}) for old, new in moves.items()]
    upstream.writer.rows(T, upstream._commit(), changes, partition=None)
    upstream.checkpoint()
    told = runs.run()
    assert not told.stopped, [problem.sentence() for problem in told.stopped]
    assert {row["a"]: row["id"] for row in rows_of(mariadb, "SELECT * FROM shop.seats")} == moves


@pytest.mark.parametrize(
    ("trigger", "apply", "state"),
    [
        ("AFTER INSERT", "replay", CheckState.OK),
        ("BEFORE DELETE", "replay", CheckState.OK),
        ("BEFORE INSERT", "replay", CheckState.FAILED),
        ("BEFORE UPDATE", "replay", CheckState.FAILED),
        ("AFTER INSERT", "converge", CheckState.FAILED),
        ("AFTER INSERT", "auto", CheckState.OK),
        ("BEFORE UPDATE", "auto", CheckState.FAILED),
    ],
)
def test_triggers_that_fire_once_for_each_change_are_no_obstacle_to_replay(
    trigger: str, apply: str, state: CheckState, runs: SinkRuns, mariadb: MariaDb
) -> None:
    runs.upstream.create_database(T.database)
    runs.upstream.create_table(T, [Column("id", INT, False, True), Column("a", INT)])
    runs.applied()
    execute(mariadb, f"CREATE TRIGGER shop.fires {trigger} ON shop.seats FOR EACH ROW SET @fired = 1")
    source = SourceTable(runs.upstream.schema(T))
    with open_sink(mariadb.uri(any_database=True, apply=apply)) as sink:
        (check,) = [check for check in sink.check_tables(PIPELINE, [source]) if check.name == "triggers"]
    assert check.state is state
    assert ("DROP TRIGGER" in check.advice) is (state is CheckState.FAILED)
    runs.upstream.execute(Insert(T, {"id": 1, "a": 1}))
    runs.upstream.execute(Update(T, (1,), {"a": 2}))
    runs.upstream.checkpoint()
    if apply != "converge":
        assert bool(runs.run().stopped) is (state is CheckState.FAILED)
