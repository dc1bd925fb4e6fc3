"""Schema changes that the server was sent: only the target's state, or a person, says what became of them.

An error behind the statement is none of the statement, and what does not show in the target may have run all the same.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pymysql
import pytest
from building import Bucket
from changing import EXCHANGE, World, stays_unclear

from headrace.errors import EXIT_OK, EXIT_TABLE_STOPPED
from headrace.model.ledger import JournalState, Verdict
from headrace.model.policy import SchemaChangePolicies
from headrace.sinks.base import Commits
from headrace.sinks.mysql import connection, variables
from headrace.sinks.mysql.fence import _DDL_SLOT, Fence
from headrace.testing.faults import Crashed, Moment, Passage, Step, armed, crash_at, fail_at
from servers import MariaDb
from storage_folder import ID, V

pytestmark = [pytest.mark.pipeline, pytest.mark.server]

C = {"ColumnName": "c", "ColumnType": "VARCHAR", "ColumnPrecision": "20", "ColumnDefault": "seven"}
A_, B_ = V | {"ColumnName": "a"}, V | {"ColumnName": "b"}
Shape = tuple[dict[str, str], ...]
ID1, A2, B3 = ID | {"ColumnId": "1"}, A_ | {"ColumnId": "2"}, B_ | {"ColumnId": "3"}


@pytest.fixture
def world(tmp_path: Path, mariadb: MariaDb) -> World:
    return World(tmp_path, mariadb)


def exchanges(bucket: Bucket) -> None:
    bucket.schema("p", 200, "id,v", EXCHANGE, 42)
    bucket.schema("t", 200, "id,v", "", 0)


def exchanged(world: World) -> bool:
    return (world.rows("p"), world.rows("t")) == ([(1, "a"), (500, "f")], [(4, "d")])


SENT: dict[str, Callable[[Bucket], object]] = {
    "exchange": exchanges,
    "add a column": lambda b: b.schema("t", 200, (ID, V, C), "ALTER TABLE `t` ADD COLUMN `c` VARCHAR(20) DEFAULT 'seven'", 5),
    "add an index": lambda b: b.schema("t", 200, "id,v", "ALTER TABLE `t` ADD INDEX `iv` (`v`)", 7),
    "rename": lambda b: b.schema("n", 200, "id,v", "RENAME TABLE `test`.`t` TO `test`.`n`", 14),
    "drop": lambda b: b.schema("t", 200, "id,v", "DROP TABLE `t`", 4),
}


@pytest.mark.parametrize("change", SENT)
def test_a_statement_is_not_sent_again_for_a_passing_error_behind_it(world: World, change: str) -> None:
    SENT[change](world.bucket)
    late = fail_at(Moment.AFTER, Step.MYSQL_VERIFY, lambda: pymysql.err.OperationalError(1205, "Lock wait timeout exceeded"))
    with armed(late) as passed:
        assert world.run(250).code == EXIT_OK
    assert [p.moment for p in passed if p.step is Step.MYSQL_STATEMENT] == [Moment.BEFORE, Moment.AFTER]
    assert world.entry().state is JournalState.DONE
    assert change != "exchange" or exchanged(world)


def test_an_exchange_runs_once_while_somebody_locks_the_row_that_counts_it(
    world: World, mariadb: MariaDb, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(variables, "_LOCK_WAIT_SECONDS", 1)
    exchanges(world.bucket)
    with mariadb.connect(autocommit=False) as holder:
        release = threading.Timer(1.3, holder.rollback)

        def lock(passage: Passage) -> None:
            if (passage.moment, passage.step) == (Moment.AFTER, Step.MYSQL_VERIFY) and not release.is_alive():
                holder.query("SELECT * FROM headrace.fences FOR UPDATE")
                release.start()

        with armed(lock) as passed:
            assert world.run(250).code == EXIT_OK
        release.join()
    assert [p.moment for p in passed if p.step is Step.MYSQL_VERIFY] == [Moment.BEFORE, Moment.AFTER] * 2
    assert exchanged(world)


def test_a_persons_statement_has_run_though_counting_it_meets_a_passing_error(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    asks = {"policies": SchemaChangePolicies.parse_text("index=approve")}
    SENT["add an index"](world.bucket)
    assert world.run(250, **asks).code == EXIT_TABLE_STOPPED
    world.decide(Verdict.EDIT, "ALTER TABLE test.t ADD INDEX mine (v, id)")
    count, errors = Fence.count_ddl, iter([pymysql.err.OperationalError(1205, "Lock wait timeout exceeded")])

    def fails_once(*arguments: Any) -> Commits:
        for error in errors:
            raise error
        return count(*arguments)

    monkeypatch.setattr(Fence, "count_ddl", fails_once)
    ran = world.run(260, **asks)
    assert (ran.code, ran.stopped, world.entry().state) == (EXIT_OK, {}, JournalState.DONE)


@pytest.mark.parametrize("moment", Moment)
def test_an_error_behind_the_statement_is_no_refusal_of_it(world: World, moment: Moment) -> None:
    exchanges(world.bucket)
    with armed(fail_at(moment, Step.MYSQL_VERIFY, lambda: pymysql.err.OperationalError(1142, "SELECT command denied"))):
        ran = world.run(250)
    assert "Headrace cannot tell whether it took effect" in ran.stopped["test.p"]
    stays_unclear(world, "pt")
    assert exchanged(world)


def test_a_statement_that_ran_and_does_not_show_is_asked_about(world: World) -> None:
    """Somebody drops the column as soon as it is there."""
    SENT["add a column"](world.bucket)

    def drops(passage: Passage) -> None:
        if (passage.moment, passage.step) == (Moment.AFTER, Step.MYSQL_STATEMENT):
            world.acts("ALTER TABLE test.t DROP COLUMN c")

    with armed(drops):
        ran = world.run(250)
    for checkpoint in (260, 270):
        assert (ran.code, world.entry().state) == (EXIT_TABLE_STOPPED, JournalState.UNCLEAR)
        assert "skip the change" in ran.stopped["test.t"]
        ran = world.run(checkpoint)
    world.acts("ALTER TABLE test.t ADD COLUMN c VARCHAR(20) DEFAULT 'seven'")
    world.decide(Verdict.SKIP)
    assert world.run(280).code == EXIT_OK


def test_what_is_left_of_a_drop_database_that_was_refused_half_way_waits_for_a_person(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A person may make a table anew that it has dropped."""
    monkeypatch.setattr(connection, "RETRY_DELAYS", ())
    world.bucket.schema("", 200, (), "DROP DATABASE `test`", 2)
    world.bucket.checkpoint(250)
    original, sent = connection.MySqlSession.run_verbatim, list[str]()

    def second_is_refused(session: connection.MySqlSession, statement: str) -> None:
        sent.append(statement)
        original(session, statement if len(sent) != 2 else "DROP TABLE `test`.`no such table`")

    monkeypatch.setattr(connection.MySqlSession, "run_verbatim", second_is_refused)
    assert world.bucket.run(world.uri).code == EXIT_TABLE_STOPPED
    assert (len(sent), world.entry().state) == (2, JournalState.UNCLEAR)
    assert world.bucket.run(world.uri).code == EXIT_TABLE_STOPPED
    assert len(sent) == 2


@pytest.mark.parametrize(
    "clauses", ["RENAME COLUMN `a` TO `b`, RENAME COLUMN `b` TO `a`", "CHANGE `a` `b` VARCHAR(16), CHANGE `b` `a` VARCHAR(16)"]
)
@pytest.mark.parametrize("moment", [None, *Moment])
def test_columns_that_swap_their_names_do_so_once(world: World, clauses: str, moment: Moment | None) -> None:
    follows(world, (ID, A_, B_), (ID, B_, A_), f"ALTER TABLE `s` {clauses}", moment)
    assert world.person.run("SELECT id, a, b FROM test.s") == [(1, "b1", "a1")]


SHAPES = {
    "a name of a dropped column": ((ID1, A2 | {"ColumnName": "b"}), ("id", "b"), (1, "a1")),
    "names that are swapped": ((ID1, A2 | {"ColumnName": "b"}, B3 | {"ColumnName": "a"}), ("id", "a", "b"), (1, "b1", "a1")),
    "a new column of a former name": (
        (ID1, A2 | {"ColumnName": "c"}, B3, A2 | {"ColumnId": "4", "ColumnDefault": "new"}),
        ("id", "c", "b", "a"),
        (1, "a1", "b1", "new"),
    ),
    "names that are swapped, and another type": (
        (ID1, A2 | {"ColumnName": "b", "ColumnPrecision": "30"}, B3 | {"ColumnName": "a"}),
        ("id", "a", "b"),
        (1, "b1", "a1"),
    ),
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("moment", [None, *Moment])
def test_a_shape_that_uses_a_columns_name_again_keeps_the_values(world: World, shape: str, moment: Moment | None) -> None:
    """Events that an event filter kept back show in the next shape, and its ids of columns tell which is which."""
    columns, names, wanted = SHAPES[shape]
    follows(world, (ID1, A2, B3), columns, "", moment)
    assert world.person.run(f"SELECT {', '.join(names)} FROM test.s") == [wanted]


def follows(world: World, was: Shape, shape: Shape, statement: str, moment: Moment | None) -> None:
    """A table ``s`` of columns id, a and b gets another shape; with a moment the run dies before or behind the statement."""
    create = "CREATE TABLE `s` (`id` INT PRIMARY KEY, `a` VARCHAR(16), `b` VARCHAR(16))"
    world.bucket.schema("s", 160, was, create, 3)
    world.bucket.rows("s/160/1", "I 165 1 a1 b1")
    assert world.run(170).code == EXIT_OK
    world.bucket.schema("s", 200, shape, statement, 12 if statement else 0)
    if moment is not None:
        world.bucket.checkpoint(250)
        with armed(crash_at(moment, Step.MYSQL_STATEMENT)), pytest.raises(Crashed):
            world.bucket.run(world.uri)
    for checkpoint in (300, 310):
        ran = world.run(checkpoint)
        assert (ran.code, ran.stopped) == (EXIT_OK, {})


def test_a_statement_over_which_the_connection_breaks_again_and_again_waits_and_the_others_go_on(
    world: World,
) -> None:
    SENT["add an index"](world.bucket)
    world.bucket.rows("t/100/2", "I 180 7 g")
    world.bucket.rows("p/102/2", "I 240 8 h")

    def kill(passage: Passage) -> None:
        if (passage.moment, passage.step) == (Moment.BEFORE, Step.MYSQL_STATEMENT):
            ((connection,),) = world.person.run(f"SELECT connection_id FROM headrace.fences WHERE slot = {_DDL_SLOT}")
            world.person.run(f"KILL {connection}")

    with armed(kill) as passed:
        assert world.run(250).code == EXIT_TABLE_STOPPED
    assert len([p for p in passed if p.step is Step.MYSQL_STATEMENT]) == 3
    assert world.entry().state is JournalState.UNCLEAR
    assert (7, "g") in world.rows("t")
    assert (8, "h") in world.rows("p")
    with armed(kill) as passed:
        assert world.run(260).code == EXIT_TABLE_STOPPED
    assert not [p for p in passed if p.step is Step.MYSQL_STATEMENT], "the next run sends it again"
