"""A schema change that the target refused has not run, whatever becomes of its tables then."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from building import Bucket, ledger_at

from headrace.cli.main import main
from headrace.errors import EXIT_OK, EXIT_TABLE_STOPPED, TransientError
from headrace.model.policy import SchemaChangePolicies
from headrace.testing.faults import Crashed, Moment, Step, armed, crash_at, fail_at
from person import Person
from quick import without_pauses
from servers import MariaDb
from storage_folder import ID, V
from targets import MariaDbTarget

pytestmark = [pytest.mark.pipeline, pytest.mark.server]

N = {"ColumnName": "n", "ColumnType": "INT"}
A_PARTITION = (
    "CREATE TABLE `p` (`id` INT PRIMARY KEY,`v` VARCHAR(16)) PARTITION BY RANGE (`id`) "
    "(PARTITION p0 VALUES LESS THAN (5),PARTITION p1 VALUES LESS THAN (1000))"
)
HIS = (
    "CREATE DATABASE test",
    "CREATE TABLE test.t (id INT PRIMARY KEY, v VARCHAR(16))",
    "INSERT INTO test.t VALUES (50, 'his')",
)


class World:
    def __init__(self, folder: Path, server: MariaDb) -> None:
        server.fresh()
        self.uri, self.person, self.bucket = server.uri(), Person(MariaDbTarget(server), server), Bucket(folder)

    def run(self, checkpoint: int) -> int:
        self.bucket.checkpoint(checkpoint)
        return self.bucket.run(self.uri).code

    def dies(self, checkpoint: int, moment: Moment, step: Step) -> None:
        with armed(crash_at(moment, step)), pytest.raises(Crashed):
            self.run(checkpoint)

    def rows(self, table: str) -> list[tuple[object, ...]]:
        return sorted(self.person.run(f"SELECT * FROM test.{table}"))

    def decide(self, verdict: str, *statement: str) -> None:
        (entry,) = [e for e in ledger_at(self.uri).journal.values() if not e.state.is_settled]
        assert main(["ddl", verdict, entry.identity, *statement, "--sink", self.uri]) == 0


@pytest.fixture
def world(mariadb: MariaDb, tmp_path: Path) -> World:
    return World(tmp_path, mariadb)


def test_somebodys_table_that_is_altered_stays_his(world: World) -> None:
    world.person.run(*HIS)
    world.bucket.create("t")
    world.bucket.rows("t/100/1", "I 110 1 a")
    assert world.run(150) == EXIT_TABLE_STOPPED
    world.person.run("ALTER TABLE test.t ADD INDEX iv (v)")
    world.bucket.schema("t", 200, "id,v", "DROP TABLE `t`", 4)
    assert world.run(250) == EXIT_TABLE_STOPPED
    assert world.rows("t") == [(50, "his")]


def exchange(world: World) -> None:
    """An EXCHANGE PARTITION that a person's index stands in the way of."""
    world.bucket.schema("p", 100, "id,v", A_PARTITION, 3)
    world.bucket.create("t", 101)
    world.bucket.rows("p/100/1", "I 110 1 of_p")
    world.bucket.rows("t/101/1", "I 111 2 of_t")
    assert world.run(150) == EXIT_OK
    world.person.run("ALTER TABLE test.p ADD INDEX iv (v)")
    world.bucket.schema("p", 200, "id,v", "ALTER TABLE `p` EXCHANGE PARTITION `p0` WITH TABLE `t`", 42)
    world.bucket.schema("t", 200, "id,v", "", 0)


@pytest.mark.parametrize("decided", [False, True], ids=["tried again", "approved"])
def test_an_exchange_runs_when_its_obstacle_is_gone(world: World, decided: bool) -> None:
    exchange(world)
    assert world.run(250) == EXIT_TABLE_STOPPED
    world.person.run("ALTER TABLE test.p DROP INDEX iv")
    if decided:
        world.decide("approve")
    assert world.run(260) == EXIT_OK
    assert (world.rows("p"), world.rows("t")) == ([(2, "of_t")], [(1, "of_p")])


def test_a_change_that_was_refused_before_the_run_died_has_not_run(world: World) -> None:
    exchange(world)
    world.dies(250, Moment.BEFORE, Step.CHECKPOINT)
    world.person.run("ALTER TABLE test.p DROP INDEX iv")
    assert world.run(260) == EXIT_OK
    assert (world.rows("p"), world.rows("t")) == ([(2, "of_t")], [(1, "of_p")])


@pytest.mark.parametrize("step", [Step.CHECKPOINT, Step.JOURNAL_SETTLED])
def test_somebodys_table_stays_his_when_the_run_dies(world: World, step: Step) -> None:
    world.bucket.create("t")
    world.bucket.rows("t/100/1", "I 110 1 a")
    world.dies(150, Moment.BEFORE, Step.SCHEMA_CHANGE)
    world.person.run(*HIS)
    world.dies(160, Moment.BEFORE, step)
    world.person.run("ALTER TABLE test.t ADD INDEX iv (v)")
    world.bucket.schema("t", 200, "id,v", "DROP TABLE `t`", 4)
    assert world.run(250) == EXIT_TABLE_STOPPED
    assert world.rows("t") == [(50, "his")]


def test_a_truncate_that_had_not_begun_runs_though_the_table_was_altered(world: World) -> None:
    world.bucket.create("t")
    world.bucket.rows("t/100/1", "I 110 1 a")
    assert world.run(150) == EXIT_OK
    world.bucket.schema("t", 200, "id,v", "TRUNCATE TABLE `t`", 11)
    world.bucket.rows("t/200/1", "I 210 3 c")
    world.dies(250, Moment.BEFORE, Step.SCHEMA_CHANGE)
    world.person.run("ALTER TABLE test.t ADD INDEX iv (v)")
    assert (world.run(260), world.rows("t")) == (EXIT_OK, [(3, "c")])


@pytest.mark.parametrize("verdict", ["skip", "edit"])
def test_a_change_that_had_run_before_it_was_decided_is_told(world: World, verdict: str) -> None:
    bucket, asks = world.bucket, SchemaChangePolicies.parse_text("add-column=approve")
    bucket.create("t")
    bucket.rows("t/100/1", "I 110 1 a")
    assert world.run(150) == EXIT_OK
    bucket.schema("t", 200, "id,v,c", "ALTER TABLE `t` ADD COLUMN `c` INT DEFAULT 7", 5)
    world.dies(250, Moment.AFTER, Step.SCHEMA_CHANGE)
    world.decide(verdict, *(["ALTER TABLE test.t ADD COLUMN c INT DEFAULT 8"] if verdict == "edit" else []))
    ran = bucket.run(world.uri, policies=asks)
    assert (ran.code, world.rows("t")) == (EXIT_OK, [(1, "a", 7)])
    assert f"the schema change at 200 had already run before the decision to {verdict} it" in ran.told


def rename_his(world: World) -> None:
    world.person.run("RENAME TABLE test.b TO test.b_old")


def alter_his(world: World) -> None:
    world.person.run("ALTER TABLE test.b ADD INDEX iv (v)")


@pytest.mark.parametrize(
    ("act", "code", "rows"), [(rename_his, EXIT_OK, [(1, "new"), (2, "b")]), (alter_his, EXIT_TABLE_STOPPED, [(1, "his")])]
)
def test_a_rename_waits_until_somebodys_table_makes_room(
    world: World, act: Callable[[World], None], code: int, rows: list[object]
) -> None:
    world.bucket.create("a")
    world.bucket.rows("a/100/1", "I 110 1 a", "I 111 2 b")
    assert world.run(150) == EXIT_OK
    world.person.run("CREATE TABLE test.b (id INT PRIMARY KEY, v VARCHAR(16))", "INSERT INTO test.b VALUES (1, 'his')")
    world.bucket.schema("b", 200, "id,v", "RENAME TABLE `test`.`a` TO `test`.`b`", 14)
    world.bucket.rows("b/200/1", "U 210 1 new")
    assert world.run(250) == EXIT_TABLE_STOPPED
    act(world)
    assert (world.run(260), world.rows("b")) == (code, rows)


def test_an_edit_of_a_refused_change_runs(world: World) -> None:
    text = "CREATE TABLE `t` (`id` INT PRIMARY KEY,`n` INT NOT NULL DEFAULT 0,`v` VARCHAR(16),UNIQUE KEY `un` (`n`))"
    world.bucket.schema("t", 100, (ID, N, V), text, 3)
    world.bucket.rows("t/100/1", "I 110 1 7 a")
    assert world.run(150) == EXIT_OK
    world.person.run("ALTER TABLE test.t ADD COLUMN g INT GENERATED ALWAYS AS (n + 1) VIRTUAL")
    world.bucket.schema("t", 200, "id,v", "ALTER TABLE `t` DROP COLUMN `n`", 6)
    world.bucket.rows("t/200/1", "I 210 2 b", "I 211 3 c")
    assert world.run(250) == EXIT_TABLE_STOPPED
    world.person.run("ALTER TABLE test.t DROP COLUMN g")
    world.decide("edit", "ALTER TABLE test.t DROP INDEX un, DROP COLUMN n")
    assert (world.run(260), world.rows("t")) == (EXIT_OK, [(1, "a"), (2, "b"), (3, "c")])


@pytest.mark.parametrize("name", ["😀", "#mysql50#a"])
def test_a_name_that_the_server_cannot_hold_stops_its_table_alone(world: World, name: str) -> None:
    world.bucket.create("o")
    world.bucket.create(name, 101)
    world.bucket.rows("o/100/1", "I 110 1 a")
    world.bucket.rows(f"{name}/101/1", ("I", 111, 1, "a"))
    assert (world.run(150), world.rows("o")) == (EXIT_TABLE_STOPPED, [(1, "a")])
    world.decide("skip")
    world.bucket.schema(name, 200, "id,v", f"ALTER TABLE `{name}` DROP INDEX `x`", 8)
    world.bucket.rows("o/100/2", "I 210 2 b")
    world.bucket.checkpoint(250)
    ran = world.bucket.run(world.uri, policies=SchemaChangePolicies.parse_text("index=skip"))
    assert (ran.code, world.rows("o")) == (EXIT_OK, [(1, "a"), (2, "b")])


@pytest.mark.parametrize("action", ["DROP", "MODIFY", "RENAME", "ADD COLUMN"])
def test_a_statement_that_is_cut_off_stops_its_table_alone(world: World, action: str) -> None:
    world.bucket.create("t")
    world.bucket.create("o", 101)
    world.bucket.schema("t", 200, "id,v", f"ALTER TABLE `t` {action}", 5)
    world.bucket.rows("t/200/1", "I 210 1 a")
    world.bucket.rows("o/101/1", "I 210 1 a")
    assert (world.run(250), world.rows("t"), world.rows("o")) == (EXIT_TABLE_STOPPED, [], [(1, "a")])


def test_an_addition_without_a_column_waits_and_ends_no_run(world: World) -> None:
    world.bucket.create("t")
    world.bucket.create("other")
    world.bucket.schema("t", 200, "id,v", "ALTER TABLE `t` ADD", 5)
    world.bucket.rows("t/200/1", "I 210 1 a")
    world.bucket.rows("other/100/1", "I 210 1 a")
    assert (world.run(250), world.rows("t"), world.rows("other")) == (EXIT_TABLE_STOPPED, [], [(1, "a")])


@pytest.mark.parametrize("later", ["", "edit", "approve"])
def test_a_statement_that_may_have_run_in_place_of_a_change_is_not_run_again(world: World, later: str) -> None:
    """A block of statements may end a transaction. ``later`` is what the person says before the next run."""
    bucket, asks = world.bucket, {"policies": SchemaChangePolicies.parse_text("truncate-table=approve")}
    bucket.create("t", shape="id,c")
    bucket.rows("t/100/1", ("I", 110, 1, 5))
    assert world.run(150) == EXIT_OK
    bucket.schema("t", 200, "id,c", "TRUNCATE TABLE `t`", 11)
    bucket.rows("t/200/1", ("I", 210, 9, 9))
    bucket.checkpoint(250)
    assert bucket.run(world.uri, **asks).code == EXIT_TABLE_STOPPED
    world.decide("edit", "BEGIN NOT ATOMIC UPDATE test.t SET c = c + 1; END")
    with armed(crash_at(Moment.AFTER, Step.SCHEMA_CHANGE)), pytest.raises(Crashed):
        bucket.run(world.uri, **asks)
    if later:
        world.decide(later, *(["UPDATE test.t SET c = 1 + c"] if later == "edit" else []))
    for _ in range(2):
        ran = bucket.run(world.uri, **asks)
        assert (ran.code, world.rows("t")) == (EXIT_TABLE_STOPPED, [(1, 6)])
        assert "this statement ran in place of its schema change" in ran.stopped["test.t"]
    world.decide("skip")
    assert (bucket.run(world.uri, **asks).code, world.rows("t")) == (EXIT_OK, [(1, 6), (9, 9)])


def test_a_truncate_that_was_begun_is_not_followed_by_a_statement_in_its_place(world: World) -> None:
    """It may have run; a person who has something else run in its place is told that, and decides once more."""
    bucket, asks = world.bucket, {"policies": SchemaChangePolicies.parse_text("truncate-table=approve")}
    bucket.create("t", shape="id,c")
    bucket.rows("t/100/1", ("I", 110, 1, 5))
    assert world.run(150) == EXIT_OK
    bucket.schema("t", 200, "id,c", "TRUNCATE TABLE `t`", 11)
    bucket.checkpoint(250)
    assert bucket.run(world.uri, **asks).code == EXIT_TABLE_STOPPED
    world.decide("approve")
    with armed(crash_at(Moment.AFTER, Step.MYSQL_STATEMENT)), pytest.raises(Crashed):
        bucket.run(world.uri, **asks)
    world.decide("edit", "INSERT INTO test.t VALUES (7, 7)")
    for _ in range(2):
        ran = bucket.run(world.uri, **asks)
        assert (ran.code, world.rows("t")) == (EXIT_TABLE_STOPPED, [])
    world.decide("skip")
    assert (bucket.run(world.uri, **asks).code, world.rows("t")) == (EXIT_OK, [])


@pytest.mark.parametrize(
    ("step", "skip"), [(Step.JOURNAL_SETTLED, 0), (Step.JOURNAL_PENDING, 1), (Step.SCHEMA_CHANGE, 1), (Step.JOURNAL_SETTLED, 1)]
)
@pytest.mark.parametrize("dies", [True, False])
def test_a_run_that_breaks_off_behind_an_approved_drop_brings_the_next_table_of_the_name(
    world: World, monkeypatch: pytest.MonkeyPatch, step: Step, skip: int, dies: bool
) -> None:
    """The watermark does not move any more, and nothing is stopped any more."""
    without_pauses(monkeypatch)
    bucket, asks = world.bucket, {"policies": SchemaChangePolicies.parse_text("drop-table=approve")}
    bucket.create("t")
    bucket.rows("t/100/1", "I 110 1 a")
    assert world.run(150) == EXIT_OK
    bucket.schema("t", 200, "id,v", "DROP TABLE `t`", 4)
    bucket.create("t", 210)
    bucket.rows("t/210/1", "I 220 2 b")
    bucket.checkpoint(250)
    assert bucket.run(world.uri, **asks).code == EXIT_TABLE_STOPPED
    world.decide("approve")
    if dies:
        with armed(crash_at(Moment.AFTER, step, skip=skip)), pytest.raises(Crashed):
            bucket.run(world.uri, **asks)
        assert bucket.run(world.uri, **asks).code == EXIT_OK
    else:
        with armed(fail_at(Moment.AFTER, step, lambda: TransientError("for once"), skip=skip)):
            assert bucket.run(world.uri, **asks).code == EXIT_OK
    assert world.rows("t") == [(2, "b")]
