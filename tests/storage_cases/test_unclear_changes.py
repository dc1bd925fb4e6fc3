"""Schema changes of which nothing tells whether they ran: only a person's later decision lets them run, or counts them as done."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from building import Bucket, ledger_at
from changing import EXCHANGE, World, stays_unclear

from headrace.engine.cut_run import CutRun
from headrace.errors import EXIT_OK, EXIT_TABLE_STOPPED
from headrace.model.ledger import JournalState, TableStatus, Verdict
from headrace.model.policy import SchemaChangePolicies
from headrace.model.table import TableId
from headrace.sinks.metadata_applier import SchemaChangeRefused
from headrace.testing.faults import Crashed, Moment, Step, armed, crash_at
from person import Person
from servers import LOGIN, MariaDb
from storage_folder import ID, V
from targets import MariaDbTarget

pytestmark = [pytest.mark.pipeline, pytest.mark.server]

A = TableId("test", "a")
BY_KEY = "CREATE TABLE `p` (`id` INT PRIMARY KEY,`v` VARCHAR(16)) PARTITION BY KEY (`id`) PARTITIONS 4"
C = {"ColumnName": "c", "ColumnType": "VARCHAR", "ColumnPrecision": "20", "ColumnDefault": "seven"}
ASKS = {"policies": SchemaChangePolicies.parse_text("index=approve")}


@pytest.fixture
def world(tmp_path: Path, mariadb: MariaDb) -> World:
    return World(tmp_path, mariadb)


@pytest.mark.parametrize("verdict", [Verdict.SKIP, Verdict.APPROVE])
def test_an_exchange_is_not_run_again_without_a_decision(world: World, verdict: Verdict) -> None:
    world.bucket.schema("p", 200, "id,v", EXCHANGE, 42)
    world.bucket.schema("t", 200, "id,v", "", 0)
    world.dies(250, Moment.AFTER)
    assert (world.rows("p"), world.rows("t")) == ([(1, "a"), (500, "f")], [(4, "d")])
    world.acts("UPDATE test.p SET v = 'his' WHERE id = 1")
    stays_unclear(world, "pt")
    world.decide(verdict)
    assert world.run(330).code == EXIT_OK
    exchanged = ([(1, "his"), (500, "f")], [(4, "d")])
    back = ([(4, "d"), (500, "f")], [(1, "his")])
    assert (world.rows("p"), world.rows("t")) == (exchanged if verdict is Verdict.SKIP else back)
    assert world.entry().state is JournalState.DONE


FLOATS = {"p": "1.2345678", "t": "1.2345679"}
"""As text, they are one number in MariaDB."""


@pytest.mark.parametrize("moment", [Moment.BEFORE, Moment.AFTER])
def test_an_exchange_of_rows_that_differ_little_runs_once(tmp_path: Path, mariadb: MariaDb, moment: Moment) -> None:
    bucket, person = Bucket(tmp_path), Person(MariaDbTarget(mariadb), mariadb)
    shape = (ID, {"ColumnName": "f", "ColumnType": "FLOAT"})
    partitions = " PARTITION BY RANGE (`id`) (PARTITION p0 VALUES LESS THAN (50))"
    for number, (name, value) in enumerate(FLOATS.items()):
        created = f"CREATE TABLE `{name}` (`id` INT PRIMARY KEY,`f` FLOAT){partitions if name == 'p' else ''}"
        bucket.schema(name, 100 + number, shape, created, 3)
        bucket.rows(f"{name}/{100 + number}/1", ("I", 110, 1, value))
    assert bucket.at(150, sink=mariadb.uri()).code == EXIT_OK
    bucket.schema("p", 200, shape, EXCHANGE, 42)
    bucket.schema("t", 200, shape, "", 0)
    bucket.checkpoint(300)
    with armed(crash_at(moment, Step.MYSQL_STATEMENT)), pytest.raises(Crashed):
        bucket.run(mariadb.uri())
    assert bucket.run(mariadb.uri()).code == EXIT_OK
    found = {name: person.run(f"SELECT ROUND(f * 1e0, 7) FROM test.{name}") for name in FLOATS}
    assert found == {"p": [(1.2345679,)], "t": [(1.2345678,)]}


@pytest.mark.parametrize("mine", ["id INT PRIMARY KEY, mine INT", "id INT NOT NULL PRIMARY KEY, v VARCHAR(16)"])
def test_a_table_that_a_person_makes_after_the_drop_is_not_dropped(world: World, mine: str) -> None:
    ((_, definition),) = world.person.run("SHOW CREATE TABLE test.t")
    world.bucket.schema("t", 200, "id,v", "DROP TABLE `t`", 4)
    world.dies(250, Moment.AFTER)
    time.sleep(1.1)  # a server tells when a table was made to the second
    restored = str(definition).replace('"', "`").replace("`t`", "test.t") if "v" in mine else f"CREATE TABLE test.t ({mine})"
    world.acts(restored, "INSERT INTO test.t VALUES (7, 42)")
    stays_unclear(world, "t")
    world.decide(Verdict.SKIP)
    assert world.run(330).code == EXIT_OK
    assert len(world.rows("t")) == 1


def test_a_database_that_a_person_makes_anew_after_its_drop_is_not_dropped(tmp_path: Path, mariadb: MariaDb) -> None:
    world = World(tmp_path, mariadb)
    world.bucket.schema("", 200, (), "DROP DATABASE `test`", 2)
    world.dies(250, Moment.BEFORE, Step.JOURNAL_SETTLED)
    assert world.person.run("SHOW DATABASES LIKE 'test'") == []
    time.sleep(1.1)
    world.acts("CREATE DATABASE test", "CREATE TABLE test.t (id INT PRIMARY KEY, mine INT)", "INSERT INTO test.t VALUES (7, 42)")
    for _ in range(2):
        assert world.bucket.run(world.uri).code == EXIT_TABLE_STOPPED
        assert world.rows("t") == [(7, 42)]
    world.decide(Verdict.SKIP)
    assert world.bucket.run(world.uri).code == EXIT_OK
    assert world.rows("t") == [(7, 42)]


def test_a_change_that_cannot_be_adapted_stops_its_table_alone_after_a_crash_too(tmp_path: Path, mariadb: MariaDb) -> None:
    world = World(tmp_path, mariadb, BY_KEY)
    world.bucket.schema("p", 200, "id,v", "ALTER TABLE `p` TRUNCATE PARTITION p0", 32)
    world.dies(250, Moment.AFTER, Step.JOURNAL_PENDING)
    for checkpoint in (300, 310):
        ran = world.run(checkpoint)
        assert (ran.code, set(ran.stopped)) == (EXIT_TABLE_STOPPED, {"test.p"})
    world.decide(Verdict.SKIP)
    assert world.run(320).code == EXIT_OK


@pytest.mark.parametrize("his", ["CHAR(2) NOT NULL DEFAULT 'x'", "VARCHAR(20) DEFAULT 'hers'"])
def test_a_column_that_a_person_adds_before_is_not_taken_for_the_sources(world: World, his: str) -> None:
    world.bucket.schema("t", 200, (ID, V, C), "ALTER TABLE `t` ADD COLUMN `c` VARCHAR(20) DEFAULT 'seven'", 5)
    world.dies(250, Moment.BEFORE)
    world.acts(f"ALTER TABLE test.t ADD COLUMN c {his}")
    for checkpoint in (300, 310):
        ran = world.run(checkpoint)
        assert ran.code == EXIT_TABLE_STOPPED
        assert "with values from before" in ran.stopped["test.t"]
    world.acts("ALTER TABLE test.t DROP COLUMN c")
    assert world.run(320).code == EXIT_OK
    assert world.rows("t") == [(1, "a", "seven")]


@pytest.mark.parametrize("his", ["CREATE TABLE test.v (id INT PRIMARY KEY, mine INT)", "CREATE VIEW test.v AS SELECT 42 AS mine"])
def test_what_a_person_makes_under_the_name_of_a_view_is_not_the_pipelines(world: World, his: str) -> None:
    world.bucket.schema("v", 200, "id,v", "CREATE VIEW `v` AS SELECT * FROM `t`", 21)
    world.dies(250, Moment.BEFORE)
    world.acts(his)
    for checkpoint in (300, 310):
        assert world.run(checkpoint).code == EXIT_TABLE_STOPPED
        assert world.entry().state in (JournalState.WAITING, JournalState.UNCLEAR)
    world.bucket.schema("v", 400, "id,v", "DROP VIEW `v`", 24)
    assert world.run(450).code == EXIT_TABLE_STOPPED
    assert ("v",) in world.person.run("SHOW TABLES FROM test")


@pytest.mark.parametrize("replaces", ["", "OR REPLACE "])
@pytest.mark.parametrize("moment", Moment)
def test_a_view_is_found_by_what_it_selects(world: World, moment: Moment, replaces: str) -> None:
    if replaces:
        world.bucket.schema("v", 190, "id,v", "CREATE VIEW `v` AS SELECT `id` FROM `t`", 21)
        assert world.run(195).code == EXIT_OK
    world.bucket.schema("v", 200, "id,v", f"CREATE {replaces}VIEW `v` AS SELECT `id`,`v` FROM `t`", 21)
    world.dies(250, moment)
    assert world.run(300).code == EXIT_OK
    assert world.rows("v") == [(1, "a")]
    assert "scratch" not in str(world.person.run("SHOW TABLES FROM headrace"))


def waits_before_an_index(world: World) -> None:
    world.bucket.schema("t", 200, "id,v", "ALTER TABLE `t` ADD INDEX `iv` (`v`)", 7)
    assert world.run(250, **ASKS).code == EXIT_TABLE_STOPPED


def test_a_persons_statement_that_is_refused_half_way_runs_once(world: World) -> None:
    waits_before_an_index(world)
    world.acts(
        "CREATE PROCEDURE test.p() BEGIN UPDATE test.t SET v = CONCAT(v, '!'); INSERT INTO test.missing VALUES (1); END",
    )
    world.decide(Verdict.EDIT, "CALL test.p()")
    for checkpoint in (300, 310, 320):
        ran = world.run(checkpoint, **ASKS)
        assert (ran.code, world.rows("t")) == (EXIT_TABLE_STOPPED, [(1, "a!")])
        assert world.entry().state is JournalState.UNCLEAR
        assert "CALL test.p()" in ran.stopped["test.t"]
    world.decide(Verdict.APPROVE)
    assert world.run(330, **ASKS).code == EXIT_OK
    assert "`iv`" in str(world.person.run("SHOW CREATE TABLE test.t")).replace('"', "`")


@pytest.mark.parametrize("statement", ["SET NAMES latin1", "SET autocommit = 0", "LOCK TABLES test.t READ", "BEGIN"])
def test_a_persons_statement_changes_the_session_of_no_other(world: World, statement: str) -> None:
    waits_before_an_index(world)
    world.decide(Verdict.EDIT, statement)
    world.bucket.schema("n", 260, "id,v", "CREATE TABLE `n` (`id` INT PRIMARY KEY,`v` VARCHAR(16)) COMMENT 'é'", 3)
    # Whoever has such a statement run has to grant what it takes.
    world.person.run(f"GRANT LOCK TABLES ON test.* TO {LOGIN[0]}")
    try:
        ran = world.run(300, **ASKS)
    finally:
        world.person.run(f"REVOKE LOCK TABLES ON test.* FROM {LOGIN[0]}")
    assert ran.code == EXIT_OK, ran.stopped
    ((_, definition),) = world.person.run("SHOW CREATE TABLE test.n")
    assert "COMMENT='é'" in str(definition)
    assert not any("failover" in notice.message for notice in ran.notices)


@pytest.mark.parametrize("moment", [(Moment.AFTER, Step.MYSQL_STATEMENT), (Moment.BEFORE, Step.JOURNAL_SETTLED)])
def test_what_is_approved_runs_though_a_persons_statement_had_run_in_its_place(world: World, moment: tuple[Moment, Step]) -> None:
    waits_before_an_index(world)
    world.decide(Verdict.EDIT, "ALTER TABLE test.t ADD INDEX mine (v, id)")
    world.bucket.checkpoint(260)
    with armed(crash_at(*moment)), pytest.raises(Crashed):
        world.bucket.run(world.uri, **ASKS)
    world.decide(Verdict.APPROVE)
    ran = world.run(300, **ASKS)
    assert ran.code == EXIT_OK
    told = next(notice.message for notice in ran.notices if "had already run before the decision to approve" in notice.message)
    assert "ALTER TABLE test.t ADD INDEX mine" in told
    ((_, definition),) = world.person.run("SHOW CREATE TABLE test.t")
    assert all(f'KEY "{name}"' in str(definition) for name in ("iv", "mine"))


def test_the_journal_holds_the_statement_of_a_person_that_ran(world: World) -> None:
    waits_before_an_index(world)
    mine = "ALTER TABLE test.t ADD INDEX mine (v, id)"
    world.decide(Verdict.EDIT, mine)
    world.bucket.checkpoint(260)
    with armed(crash_at(Moment.AFTER, Step.MYSQL_STATEMENT)), pytest.raises(Crashed):
        world.bucket.run(world.uri, **ASKS)
    world.decide(Verdict.SKIP)
    assert world.run(300, **ASKS).code == EXIT_OK
    assert (world.entry().state, world.entry().statement) == (JournalState.DONE, mine)


def test_a_round_is_closed_though_the_statement_behind_it_is_refused(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A task of the round that Spark gave up for lost must not write any more."""
    bucket = world.bucket
    bucket.schema("o", 200, "id,v", "ALTER TABLE `o` ADD INDEX `io` (`v`)", 7)
    bucket.schema("t", 220, "id,v", "ALTER TABLE `t` ADD CONSTRAINT `fk` FOREIGN KEY (`id`) REFERENCES `o` (`id`)", 9)
    asks = {"policies": SchemaChangePolicies.parse_text("index=approve,key=approve,other=approve")}
    bucket.checkpoint(250)
    assert bucket.run(world.uri, **asks).code == EXIT_TABLE_STOPPED
    world.decide(Verdict.EDIT, "UPDATE test.t SET nothing = 7")
    index = next(e for e in ledger_at(world.uri).journal.values() if "io" in e.statement)
    world.decide(Verdict.APPROVE, of=index)
    bucket.rows("o/200/1", "I 210 2 o")
    attempts: list[int] = []
    original = CutRun._update

    def update(self: CutRun, *arguments: Any) -> None:
        is_over = self._round_is_over
        before = self.state.attempt
        try:
            original(self, *arguments)
        except SchemaChangeRefused:
            return_to = self._round_is_over
            assert return_to is is_over
            raise
        attempts.extend([self.state.attempt - before] if is_over else [])

    monkeypatch.setattr(CutRun, "_update", update)
    assert world.run(300, **asks).code == EXIT_TABLE_STOPPED
    assert attempts == [1], "the round before the refused statement"


def test_a_column_that_a_person_adds_once_more_is_not_dropped_again(world: World) -> None:
    world.bucket.schema("t", 200, "id", "ALTER TABLE `t` DROP COLUMN `v`", 6)
    time.sleep(1.1)  # the table was made within the same second
    world.dies(250, Moment.AFTER)
    world.acts("ALTER TABLE test.t ADD COLUMN v VARCHAR(16) DEFAULT NULL", "UPDATE test.t SET v = 'his'")
    stays_unclear(world, "t")
    world.decide(Verdict.SKIP)
    assert world.run(330).code == EXIT_OK
    assert world.rows("t") == [(1, "his")]


def test_somebodys_table_is_not_taken_for_one_that_was_renamed(world: World) -> None:
    """A person moved the pipeline's table away, and has one of their own under the new name."""
    world.acts("RENAME TABLE test.t TO test.moved", "CREATE TABLE test.n LIKE test.moved", "INSERT INTO test.n VALUES (1, 'his')")
    world.bucket.schema("n", 200, "id,v", "RENAME TABLE `test`.`t` TO `test`.`n`", 14)
    world.bucket.rows("n/200/1", "U 210 1 theirs")
    ran = world.run(250)
    assert (ran.code, world.rows("n")) == (EXIT_TABLE_STOPPED, [(1, "his")])
    assert "which this pipeline did not make" in ran.stopped["test.t"]
    world.bucket.schema("n", 300, "id,v", "DROP TABLE `n`", 4)
    assert (world.run(350).code, world.rows("n")) == (EXIT_TABLE_STOPPED, [(1, "his")])


@pytest.mark.parametrize("policy", ["approve", "skip"])
def test_what_has_run_needs_no_approval(world: World, policy: str) -> None:
    world.bucket.schema("t", 200, "id,v", "ALTER TABLE `t` ADD INDEX `iv` (`v`)", 7)
    world.dies(250, Moment.AFTER)
    assert world.run(300, policies=SchemaChangePolicies.parse_text(f"index={policy}")).code == EXIT_OK
    assert world.entry().state is JournalState.DONE


def test_what_has_not_run_needs_its_approval_after_a_crash_too(world: World) -> None:
    world.bucket.schema("t", 200, "id,v", "ALTER TABLE `t` ADD INDEX `iv` (`v`)", 7)
    world.dies(250, Moment.BEFORE)
    ran = world.run(300, **ASKS)
    assert (ran.code, "waits for approval" in ran.stopped["test.t"]) == (EXIT_TABLE_STOPPED, True)
    world.decide(Verdict.APPROVE)
    assert world.run(310, **ASKS).code == EXIT_OK


def test_a_skip_of_what_may_have_run_says_so(world: World) -> None:
    world.bucket.schema("t", 200, "id,v", "TRUNCATE TABLE `t`", 11)
    world.dies(250, Moment.AFTER)
    world.decide(Verdict.SKIP)
    ran = world.run(300)
    assert (ran.code, world.rows("t")) == (EXIT_OK, [])
    assert any("was begun before that, and may have run" in notice.message for notice in ran.notices)


def test_a_table_that_a_persons_statement_made_is_the_pipelines_when_they_say_that_it_ran(world: World) -> None:
    asks = {"policies": SchemaChangePolicies.parse_text("create-table=approve")}
    world.bucket.create("n", 200)
    assert world.run(250, **asks).code == EXIT_TABLE_STOPPED
    world.decide(Verdict.EDIT, "CREATE TABLE test.n (id INT PRIMARY KEY, v VARCHAR(16))")
    world.bucket.checkpoint(260)
    with armed(crash_at(Moment.AFTER, Step.MYSQL_STATEMENT)), pytest.raises(Crashed):
        world.bucket.run(world.uri, **asks)
    ran = world.run(300, **asks)
    assert (ran.code, "cannot tell whether it took effect" in ran.stopped["test.n"]) == (EXIT_TABLE_STOPPED, True)
    world.decide(Verdict.SKIP)
    world.bucket.rows("n/200/1", "I 290 1 n")
    assert (world.run(310, **asks).code, world.rows("n")) == (EXIT_OK, [(1, "n")])
    world.bucket.schema("n", 320, "id,v", "DROP TABLE `n`", 4)
    assert world.run(350, **asks).code == EXIT_OK
    assert world.person.run("SHOW TABLES FROM test LIKE 'n'") == []


@pytest.mark.parametrize("edited", [False, True])
def test_a_table_that_is_not_followed_stays_so_after_an_exchange_that_is_decided(world: World, edited: bool) -> None:
    world.bucket.create("a", 160)
    skips = {"policies": SchemaChangePolicies.parse_text("create-table=skip")}
    assert world.run(190, **skips).code == EXIT_OK
    world.bucket.schema("p", 200, "id,v", "ALTER TABLE `p` EXCHANGE PARTITION `p0` WITH TABLE `a`", 42)
    world.bucket.schema("a", 200, "id,v", "", 0)
    for checkpoint in (250, 255):
        assert world.run(checkpoint).code == EXIT_TABLE_STOPPED
        assert ledger_at(world.uri).tables[A].status is TableStatus.NOT_FOLLOWED
    world.decide(*((Verdict.EDIT, "DELETE FROM test.p WHERE id < 50") if edited else (Verdict.SKIP,)))
    world.bucket.rows("a/200/1", "I 270 6 later")
    for checkpoint in (300, 310):
        assert world.run(checkpoint).code == EXIT_OK
        assert ledger_at(world.uri).tables[A].status is TableStatus.NOT_FOLLOWED


@pytest.mark.parametrize("moment", Moment)
@pytest.mark.parametrize(
    "statement", ["ADD INDEX `iv` (`v`)", "ADD COLUMN `c` VARCHAR(20) DEFAULT 'seven', ADD INDEX `ic` (`c`)", "DROP INDEX `io`"]
)
def test_an_alteration_of_a_table_that_was_adopted_runs_once(
    tmp_path: Path, mariadb: MariaDb, statement: str, moment: Moment
) -> None:
    """It is the first that the source tells of the table."""
    person, bucket = Person(MariaDbTarget(mariadb), mariadb), Bucket(tmp_path)
    person.run("CREATE DATABASE test", "CREATE TABLE test.t (id INT PRIMARY KEY, v VARCHAR(16), KEY io (v))")
    person.run("INSERT INTO test.t VALUES (1, 'a')")
    bucket.schema("t", 200, (ID, V, C) if "COLUMN" in statement else "id,v", f"ALTER TABLE `t` {statement}", 60)
    bucket.checkpoint(250)
    with armed(crash_at(moment, Step.MYSQL_STATEMENT)), pytest.raises(Crashed):
        bucket.run(mariadb.uri(), adopt=True)
    ran = bucket.run(mariadb.uri(), adopt=True)
    assert ran.code == EXIT_OK, ran.stopped
    assert not any("left out" in notice.message for notice in ran.notices)
