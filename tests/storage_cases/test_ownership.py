"""What a pipeline did not make or adopt is not dropped, replaced or written to, whatever the source does with its names."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from building import COLUMNS, Bucket, Ran

from crashing import Crashed, CrashPoints, install
from headrace.cli import validation
from headrace.cli.output import make_output
from headrace.engine import journal
from headrace.errors import EXIT_OK, EXIT_TABLE_STOPPED, EXIT_USAGE, DefinitionError
from headrace.model.ledger import Decision, Verdict
from headrace.pipeline.definition import Definition
from headrace.pipeline.registry import open_sink
from headrace.sinks.base import Check, CheckState
from headrace.transform.filters import TableFilter
from person import Person
from places import Place
from servers import MariaDb, documented, grant, on_database
from targets import Target

pytestmark = pytest.mark.pipeline

DROPPED = "DROP DATABASE `test`"


def only(patterns: str) -> dict[str, Any]:
    """The options of a run with ``--tables``."""
    return {"includes": TableFilter.parse(patterns).includes, "filter_text": patterns}


@dataclass
class World:
    """A changefeed, a target, and somebody else in the target."""

    bucket: Bucket
    target: Target
    uri: str
    person: Person

    def at(self, checkpoint: int, **options: Any) -> Ran:
        self.bucket.checkpoint(checkpoint)
        return self.bucket.run(**({"sink": self.uri} | options))

    def skip_what_waits(self) -> None:
        with open_sink(self.uri) as sink:
            assert sink.ledger is not None
            state = sink.ledger.peek("default")
            assert state is not None
            (waiting,) = [entry.identity for entry in state.journal.values() if not entry.state.is_settled]
            sink.ledger.decide("default", Decision(waiting, Verdict.SKIP))
            sink.ledger.close()

    def names(self) -> set[str]:
        return {f"{database}.{table}" for database, table in self.target.tables()}


@pytest.fixture
def world(place: Place, tmp_path: Path) -> World:
    target, uri = place.fresh()
    return World(Bucket(tmp_path), target, uri, Person.at(place, target))


def test_a_dropped_database_loses_the_pipelines_tables_and_no_others(world: World) -> None:
    for name in ("t", "other"):
        world.bucket.create(name)
        world.bucket.rows(f"{name}/100/1", "I 110 1 a")
    assert world.at(120, **only("test.t")).code == EXIT_OK
    world.person.run("CREATE TABLE test.mine (id INT)", "INSERT INTO test.mine VALUES (1)", "CREATE TABLE test.other (id INT)")
    world.bucket.schema("", 200, (), DROPPED, 2)
    ran = world.at(300, **only("test.t"))
    assert ran.code == EXIT_OK
    assert world.names() == {"test.mine", "test.other"}
    assert world.person.run("SELECT id FROM test.mine") == [(1,)]
    assert "it also holds table mine, table other, which is not this pipeline's" in ran.told
    world.bucket.schema("", 310, (), "CREATE DATABASE `test`", 1)
    world.bucket.create("t", 320)
    world.bucket.rows("t/320/1", "I 330 2 b")
    assert world.at(400, **only("test.t")).code == EXIT_OK
    assert world.names() == {"test.mine", "test.other", "test.t"}
    assert world.person.run("SELECT id, v FROM test.t") == [(2, "b")]


def test_a_dropped_database_in_which_nothing_is_left_goes(world: World) -> None:
    for name in ("t", "u"):
        world.bucket.create(name)
        world.bucket.rows(f"{name}/100/1", "I 110 1 a")
    world.at(120)
    world.bucket.schema("", 200, (), DROPPED, 2)
    ran = world.at(300)
    assert (ran.code, ran.told, world.target.databases()) == (EXIT_OK, "", set())


def test_a_database_that_the_source_wrote_in_another_case_is_the_same(world: World) -> None:
    """TiDB's job of a DROP DATABASE may name it in lower case."""
    world.bucket.schema("", 90, (), "CREATE DATABASE `Test`", 1, database="Test")
    world.bucket.create("t", database="Test")
    world.bucket.rows("t/100/1", "I 110 1 a", database="Test")
    world.at(120)
    world.bucket.schema("", 200, (), DROPPED, 2)
    assert world.at(300).code == EXIT_OK
    assert (world.names(), world.target.databases()) == (set(), set())


OTHERS: dict[str, tuple[str, ...]] = {
    "duckdb": (
        "CREATE VIEW test.a AS SELECT 1 AS id",
        "CREATE SEQUENCE test.b",
        "CREATE TYPE test.c AS ENUM ('a')",
        "CREATE MACRO test.d(a) AS a + 1",
    ),
    "mariadb": (
        "CREATE VIEW test.a AS SELECT 1 AS id",
        "CREATE SEQUENCE test.b",
        "CREATE PROCEDURE test.c() SELECT 1",
        "CREATE FUNCTION test.d() RETURNS INT RETURN 1",
        "CREATE EVENT test.e ON SCHEDULE EVERY 1 YEAR DO SET @a = 1",
        "CREATE TABLE test.f (id INT PRIMARY KEY, CONSTRAINT fk FOREIGN KEY (id) REFERENCES test.t (id))",
    ),
}


def test_whatever_else_a_database_holds_keeps_it(world: World, place: Place) -> None:
    world.bucket.create("t")
    world.at(120)
    statements = OTHERS["mariadb" if place.mariadb else "duckdb"]
    world.person.run(*statements)
    world.bucket.schema("", 200, (), DROPPED, 2)
    ran = world.at(300)
    assert ran.code == EXIT_OK
    kinds = [(statement.split()[1].lower(), name) for statement, name in zip(statements, "abcdef", strict=False)]
    assert all(f"{kind} {name}" in ran.told for kind, name in kinds)
    assert "test.t" not in world.names()
    assert world.target.databases() == {"test"}


@pytest.mark.server
def test_without_the_rights_to_see_all_of_it_an_empty_database_stays(mariadb: MariaDb, tmp_path: Path) -> None:
    page = documented()
    with mariadb.connect() as connection, connection.cursor() as cursor:
        cursor.execute("CREATE OR REPLACE USER lesser@'%' IDENTIFIED BY 'x'")
        cursor.execute(grant(page.ledger, on_database("headrace"), "lesser@'%'"))
        cursor.execute(grant(page.database, on_database("test"), "lesser@'%'"))
        bucket = Bucket(tmp_path)
        for version, left in ((100, {"test"}), (300, set())):
            bucket.create("t", version)
            bucket.schema("", version + 50, (), DROPPED, 2)
            bucket.checkpoint(version + 90)
            ran = bucket.run(f"mysql://lesser:x@{mariadb.host}:{mariadb.port}/")
            assert ran.code == EXIT_OK
            assert ("without the rights EVENT and EXECUTE" in ran.told) is bool(left)
            cursor.execute("SHOW DATABASES LIKE 'test'")
            assert {name for (name,) in cursor.fetchall()} == left
            cursor.execute(grant(page.whole_databases, on_database("test"), "lesser@'%'"))
        cursor.execute("DROP USER lesser@'%'")


def test_a_run_that_dies_while_it_drops_a_database_is_followed_by_one_that_ends_it(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fatal = 0
    while True:
        fatal += 1
        target, uri = place.fresh()
        bucket, person = Bucket(tmp_path / str(fatal)), Person.at(place, target)
        for name in ("a", "b"):
            bucket.create(name)
        bucket.checkpoint(120)
        bucket.run(uri)
        person.run("CREATE TABLE test.mine (id INT)")
        bucket.schema("", 200, (), DROPPED, 2)
        bucket.checkpoint(300)
        points = CrashPoints(fatal)
        with monkeypatch.context() as patch, suppress(Crashed):
            install(points, patch)
            bucket.run(uri)
        assert bucket.run(uri).code == EXIT_OK
        assert target.tables() == {("test", "mine")}, f"after a crash before {points.passed[-1]}"
        if len(points.passed) < fatal:
            assert fatal > (6 if place.mariadb else 4)
            return


def test_a_table_that_was_taken_out_of_the_definition_stays_when_its_database_is_dropped(world: World) -> None:
    for name in ("t", "kept"):
        world.bucket.create(name)
        world.bucket.rows(f"{name}/100/1", "I 110 1 a")
    world.at(120)
    world.bucket.schema("", 200, (), DROPPED, 2)
    ran = world.at(300, **only("*.*,!test.kept"))
    assert (ran.code, world.names()) == (EXIT_OK, {"test.kept"})
    assert "table kept" in ran.told


def test_tables_of_another_ledgers_pipeline_stay(world: World, tmp_path: Path) -> None:
    setting = "ledger-schema" if world.uri.startswith("duckdb") else "ledger-database"
    uri = f"{world.uri}{'&' if '?' in world.uri else '?'}{setting}=others"
    other = Bucket(tmp_path / "other")
    for bucket, name, sink in ((world.bucket, "t", world.uri), (other, "u", uri)):
        bucket.create(name)
        bucket.rows(f"{name}/100/1", "I 110 1 a")
        bucket.checkpoint(120)
        assert bucket.run(sink).code == EXIT_OK
    world.bucket.schema("", 200, (), DROPPED, 2)
    world.at(300)
    assert {name for name in world.names() if name.startswith("test.")} == {"test.u"}


def test_a_table_that_stopped_at_its_create_is_not_the_pipelines_and_holds_the_drop(world: World) -> None:
    world.person.run("CREATE SCHEMA test", "CREATE TABLE test.t (id INT, v VARCHAR(16))", "INSERT INTO test.t VALUES (7, 'x')")
    world.bucket.create("t")
    assert world.at(120).code == EXIT_TABLE_STOPPED
    world.bucket.schema("", 200, (), DROPPED, 2)
    assert world.at(300).code == EXIT_TABLE_STOPPED
    assert world.person.run("SELECT id FROM test.t") == [(7,)]
    assert world.at(310, **only("*.*,!test.t")).code == EXIT_OK
    assert world.person.run("SELECT id FROM test.t") == [(7,)]


@pytest.mark.parametrize(("adopt", "left"), [(False, {"test.t"}), (True, set())])
def test_a_table_that_was_never_seen_before_it_is_dropped_goes_only_when_it_was_adopted(
    world: World, adopt: bool, left: set[str]
) -> None:
    world.person.run("CREATE SCHEMA test", "CREATE TABLE test.t (id INT, v VARCHAR(16))", "INSERT INTO test.t VALUES (7, 'x')")
    world.bucket.schema("t", 100, "id,v", "DROP TABLE `test`.`t`", 4)
    ran = world.at(120, adopt=adopt)
    assert (ran.code, world.names()) == (EXIT_OK, left)
    assert ("test.t stays in the target" in ran.told) is not adopt


def test_a_list_of_which_some_are_others_is_not_dropped_at_all(world: World) -> None:
    world.bucket.create("t")
    world.at(120)
    world.person.run("CREATE TABLE test.mine (id INT)")
    world.bucket.schema("", 200, (), "DROP TABLE `t`, `mine`", 4)
    ran = world.at(300)
    assert (ran.code, world.names()) == (EXIT_TABLE_STOPPED, {"test.t", "test.mine"})
    assert "it names test.t, test.mine, and stands in a file of test" in ran.stopped["test.t"]


def test_a_table_that_is_renamed_onto_somebodys_table_stops(world: World) -> None:
    world.bucket.create("t")
    world.at(120)
    world.person.run("CREATE TABLE test.mine (id INT)", "INSERT INTO test.mine VALUES (1)")
    world.bucket.schema("mine", 200, "id,v", "RENAME TABLE `test`.`t` TO `test`.`mine`", 14)
    assert world.at(300).code == EXIT_TABLE_STOPPED
    assert world.person.run("SELECT id FROM test.mine") == [(1,)]


def test_views_are_the_pipelines_only_where_it_made_them(world: World, place: Place) -> None:
    makes_views = place.mariadb is not None
    world.bucket.create("t")
    world.bucket.schema("v", 110, (COLUMNS["id"],), "CREATE VIEW `test`.`v` AS SELECT `id` FROM `test`.`t`", 21)
    world.at(120)
    assert ("test.v" in world.names()) is makes_views
    world.bucket.schema("v", 130, (COLUMNS["id"],), "DROP VIEW `test`.`v`", 24)
    assert (world.at(140).code, world.names()) == (EXIT_OK, {"test.t"})
    world.person.run("CREATE VIEW test.v AS SELECT 7 AS id")
    world.bucket.schema("v", 150, (COLUMNS["id"],), "CREATE OR REPLACE VIEW `test`.`v` AS SELECT `id` FROM `test`.`t`", 21)
    ran = world.at(160)
    assert world.person.run("SELECT id FROM test.v") == [(7,)]
    assert ran.code == (EXIT_TABLE_STOPPED if makes_views else EXIT_OK)
    if makes_views:
        assert "test.v, which this pipeline did not make" in ran.stopped["test.v"]
        # It is not the first view of the name, so it is not the source's as of the start.
        assert "--adopt only covers what was there" in world.at(170, adopt=True).stopped["test.v"]
        world.person.run("DROP VIEW test.v")
        assert world.at(180).code == EXIT_OK
    world.bucket.schema("", 200, (), DROPPED, 2)
    assert world.at(300).code == EXIT_OK
    assert world.names() == (set() if makes_views else {"test.v"})


@pytest.mark.parametrize("statement", ["DROP TABLE `test`.`t`", DROPPED])
@pytest.mark.parametrize("first", ["create", "damaged", "like", "alter"])
def test_a_table_that_was_let_in_by_a_skip_is_not_dropped(
    world: World, monkeypatch: pytest.MonkeyPatch, statement: str, first: str
) -> None:
    """Whatever the first is that the source tells of it."""
    monkeypatch.setattr(journal, "JOURNAL_KEPT", 0)
    world.bucket.create("o")
    world.at(120)
    world.person.run("CREATE TABLE test.t (id INT PRIMARY KEY, v VARCHAR(16))", "INSERT INTO test.t VALUES (1, 'a person''s')")
    if first == "like":
        world.bucket.schema("t", 300, "id,v", "CREATE TABLE `test`.`t` LIKE `test`.`o`", 3)
    elif first == "alter":
        world.bucket.schema("t", 300, "id,v", "ALTER TABLE `test`.`t` DROP COLUMN `c`", 6)
    else:
        path = world.bucket.create("t", 300)
        if first == "damaged":
            world.bucket.write(path, (world.bucket.root / path).read_bytes()[:60])
    for checkpoint in (310, 315):
        assert world.at(checkpoint).code == EXIT_TABLE_STOPPED
    world.skip_what_waits()
    assert world.at(320).code == EXIT_OK
    world.bucket.schema("t" if "TABLE" in statement else "", 350, "id,v" if "TABLE" in statement else (), statement)
    world.at(360)
    world.at(400)
    assert world.person.run("SELECT id, v FROM test.t") == [(1, "a person's")]


@pytest.mark.parametrize("end", ["DROP TABLE `test`.`u`", DROPPED])
@pytest.mark.parametrize("by", ["one", "two"])
def test_a_table_that_was_let_in_is_not_dropped_under_a_later_name_either(
    world: World, monkeypatch: pytest.MonkeyPatch, by: str, end: str
) -> None:
    monkeypatch.setattr(journal, "JOURNAL_KEPT", 0)
    world.bucket.create("o")
    world.at(120)
    world.person.run("CREATE TABLE test.t (id INT PRIMARY KEY, v VARCHAR(16))", "INSERT INTO test.t VALUES (1, 'a person''s')")
    world.bucket.create("t", 300)
    assert world.at(310).code == EXIT_TABLE_STOPPED
    world.skip_what_waits()
    assert world.at(320).code == EXIT_OK
    if by == "two":
        world.bucket.schema("m", 330, "id,v", "RENAME TABLE `test`.`t` TO `test`.`m`", 14)
    world.bucket.schema("u", 340, "id,v", f"RENAME TABLE `test`.`{'t' if by == 'one' else 'm'}` TO `test`.`u`", 14)
    assert world.at(345).code == EXIT_OK
    world.bucket.schema("u" if "TABLE" in end else "", 350, "id,v" if "TABLE" in end else (), end)
    world.at(360)
    world.at(400)
    assert world.person.run("SELECT id, v FROM test.u") == [(1, "a person's")]


# --- statements that change what is there ------------------------------------------------------------------------------

PARTITIONED = (
    "CREATE TABLE `p` (`id` INT PRIMARY KEY,`v` VARCHAR(16)) PARTITION BY RANGE (`id`) "
    "(PARTITION p0 VALUES LESS THAN (10), PARTITION p1 VALUES LESS THAN (20))"
)
EXCHANGED = "ALTER TABLE `p` EXCHANGE PARTITION `p0` WITH TABLE `e`"


def theirs(world: World, place: Place, name: str, partitioned: str = "") -> None:
    """Somebody's table with a row, of the shape that the source's tables have."""
    text = " CHARACTER SET utf8mb4 COLLATE utf8mb4_bin" if place.mariadb else ""
    world.person.run(
        "CREATE SCHEMA IF NOT EXISTS test",
        f"CREATE TABLE test.{name} (id INT PRIMARY KEY, v VARCHAR(16){text}) {partitioned if place.mariadb else ''}",
        f"INSERT INTO test.{name} VALUES (7, 'theirs')",
    )


def exchange(world: World) -> None:
    world.bucket.schema("p", 200, "id,v", EXCHANGED, 42)
    world.bucket.schema("e", 200, "id,v", "", 0)


def test_a_partition_is_not_exchanged_with_somebodys_table(world: World, place: Place) -> None:
    world.bucket.schema("p", 100, "id,v", PARTITIONED, 3)
    world.bucket.rows("p/100/112/1", "I 110 1 ours")
    assert world.at(120).code == EXIT_OK
    theirs(world, place, "e")
    exchange(world)
    for checkpoint in (300, 310):
        ran = world.at(checkpoint)
        assert ran.code == EXIT_TABLE_STOPPED
        assert "test.e, which this pipeline did not make" in ran.stopped["test.p"]
        assert world.person.run("SELECT id, v FROM test.e") == [(7, "theirs")]
        assert world.person.run("SELECT id, v FROM test.p") == [(1, "ours")]


def test_somebodys_partition_is_not_exchanged_with_a_table_of_the_pipelines(world: World, place: Place) -> None:
    world.bucket.create("e")
    world.bucket.rows("e/100/1", "I 110 1 ours")
    assert world.at(120).code == EXIT_OK
    theirs(world, place, "p", PARTITIONED[PARTITIONED.index("PARTITION BY") :])
    exchange(world)
    ran = world.at(300)
    assert ran.code == EXIT_TABLE_STOPPED
    assert "test.p, which this pipeline did not make" in ran.stopped["test.e"]
    assert world.person.run("SELECT id, v FROM test.e") == [(1, "ours")]
    assert world.person.run("SELECT id, v FROM test.p") == [(7, "theirs")]


def test_a_table_whose_rows_were_exchanged_with_one_that_was_never_seen_stops(world: World) -> None:
    world.bucket.create("e")
    world.bucket.rows("e/100/1", "I 110 1 ours")
    assert world.at(120).code == EXIT_OK
    exchange(world)
    world.bucket.rows("e/200/1", "I 210 2 later")
    ran = world.at(300)
    assert ran.code == EXIT_TABLE_STOPPED
    assert set(ran.stopped) == {"test.e", "test.p"}
    assert world.person.run("SELECT id, v FROM test.e") == [(1, "ours")]


@pytest.mark.parametrize(
    ("table", "statement", "type_code"),
    [
        ("q", "RENAME TABLE `test`.`e` TO `test`.`q`", 14),
        ("e", "TRUNCATE TABLE `e`", 11),
        ("e", "ALTER TABLE `e` ADD INDEX `i` (`v`)", 7),
        ("e", "ALTER TABLE `e` MODIFY COLUMN `v` VARCHAR(16) NOT NULL", 12),
        ("e", "CREATE INDEX `i` ON `e` (`v`)", 7),
    ],
)
def test_somebodys_table_is_not_changed_by_a_statement_that_is_the_first_of_it(
    world: World, place: Place, table: str, statement: str, type_code: int
) -> None:
    world.bucket.create("t")
    assert world.at(120).code == EXIT_OK
    theirs(world, place, "e")
    before = world.person.run("SELECT column_name, is_nullable FROM information_schema.columns WHERE table_name = 'e'")
    world.bucket.schema(table, 200, "id,v", statement, type_code)
    world.at(300)
    assert world.person.run("SELECT id, v FROM test.e") == [(7, "theirs")]
    assert world.person.run("SELECT column_name, is_nullable FROM information_schema.columns WHERE table_name = 'e'") == before


def test_what_stands_under_a_name_that_was_renamed_away_stays_when_the_name_is_used_again(world: World, place: Place) -> None:
    """The ledger has had a table of that name, which is gone; the one that is there now is somebody else's."""
    world.bucket.create("t")
    world.bucket.create("e")
    world.bucket.schema("u", 115, "id,v", "RENAME TABLE `test`.`e` TO `test`.`u`", 14)
    assert world.at(120).code == EXIT_OK
    theirs(world, place, "e")
    world.bucket.schema("e", 200, "id,v", "RENAME TABLE `test`.`t` TO `test`.`e`", 14)
    ran = world.at(300)
    assert ran.code == EXIT_TABLE_STOPPED
    assert world.person.run("SELECT id, v FROM test.e") == [(7, "theirs")]


# --- databases that the source may have no part in -----------------------------------------------------------------


def renamed_into(bucket: Bucket, name: str) -> None:
    bucket.create("u")
    bucket.schema("u", 150, "id,v", f"RENAME TABLE `test`.`u` TO `{name}`.`u`", 14, database=name)
    bucket.rows("u/150/1", "I 160 1 a", database=name)


def made_like_it(bucket: Bucket, name: str) -> None:
    bucket.schema("u", 150, "id,v", f"CREATE TABLE `test`.`u` LIKE `{name}`.`pipelines`", 3)


TOUCHES: dict[str, Callable[[Bucket, str], object]] = {
    "created": lambda b, name: b.schema("", 90, (), f"CREATE DATABASE `{name}`", 1, database=name),
    "altered": lambda b, name: b.schema("", 90, (), f"ALTER DATABASE `{name}` CHARACTER SET latin1", 26, database=name),
    "dropped": lambda b, name: b.schema("", 90, (), f"DROP DATABASE `{name}`", 2, database=name),
    "filled": lambda b, name: (b.create("cuts", database=name), b.rows("cuts/100/1", "I 110 1 a", database=name)),
    "renamed into": renamed_into,
    "read": made_like_it,
    "named by a statement of another database": lambda b, name: b.schema(
        "", 90, (), f"ALTER DATABASE `{name}` CHARSET latin1", 26, database="odd"
    ),
}


@pytest.mark.parametrize("touch", TOUCHES)
def test_the_ledgers_database_is_refused_to_the_source_and_all_else_goes_on(world: World, touch: str, place: Place) -> None:
    world.bucket.create("t")
    world.bucket.rows("t/100/1", "I 110 1 a")
    TOUCHES[touch](world.bucket, "Headrace")
    for checkpoint in (200, 210):
        ran = world.at(checkpoint)
        assert ran.code == EXIT_TABLE_STOPPED
        assert all("in which Headrace keeps its ledger" in why for why in ran.stopped.values())
        setting = "ledger-database" if place.mariadb else "ledger-schema"
        assert all(f"{setting}=…" in why and "!Headrace.*" in why for why in ran.stopped.values())
        assert "test.t" not in ran.stopped
        assert world.person.run("SELECT id, v FROM test.t") == [(1, "a")]
    with open_sink(world.uri) as sink:
        assert sink.ledger is not None
        assert sink.ledger.peek("default") is not None


def test_validate_names_databases_that_the_target_cannot_have(
    world: World, place: Place, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(validation, "_java", lambda: Check("Java", CheckState.OK))
    world.bucket.create("t")
    world.bucket.create("t", database="HEADRACE")
    world.bucket.create("t", database="information_schema")
    world.bucket.checkpoint(200)
    definition = Definition(source=world.bucket.folder.uri(world.bucket.options), sink=world.uri)
    assert validation.show_checks(definition, make_output(json=False), with_spark=False) == EXIT_USAGE
    failed = [line for line in capsys.readouterr().out.splitlines() if line.startswith("failed")]
    assert len(failed) == 2
    assert "database HEADRACE has the name of the database in which Headrace keeps its ledger" in failed[0]
    assert ("ledger-database=…" if place.mariadb else "ledger-schema=…") in failed[0]
    assert "information_schema belongs to the target's own system" in failed[1]


def test_a_database_of_that_name_is_followed_when_the_ledger_lies_elsewhere(world: World, place: Place) -> None:
    uri = f"{world.uri}{'&' if '?' in world.uri else '?'}ledger-schema=progress"
    if place.mariadb:
        uri = place.mariadb.uri(any_database=True, ledger_database="progress")
    for touch in ("created", "filled"):
        TOUCHES[touch](world.bucket, "headrace")
    assert world.at(200, sink=uri).code == EXIT_OK
    assert world.person.run("SELECT id, v FROM headrace.cuts") == [(1, "a")]
    world.bucket.schema("", 300, (), "DROP DATABASE `headrace`", 2, database="headrace")
    assert world.at(400, sink=uri).code == EXIT_OK
    world.bucket.create("cuts", 410, database="Progress")
    ran = world.at(500, sink=uri)
    assert "in which Headrace keeps its ledger" in ran.stopped["Progress.cuts"]


def test_databases_of_the_targets_own_system_are_refused(world: World, place: Place) -> None:
    names = ["mysql", "SYS", "performance_schema", "metrics_schema"] if place.mariadb else ["pg_catalog"]
    for name in (*names, "information_schema"):
        world.bucket.schema("", 90, (), f"DROP DATABASE `{name}`", 2, database=name)
        world.bucket.create("user", database=name)
    world.bucket.create("t")
    ran = world.at(200)
    assert ran.code == EXIT_TABLE_STOPPED
    for name in (*names, "information_schema"):
        assert "belongs to the target's own system" in ran.stopped[f"{name}.user"]
        assert "belongs to the target's own system" in ran.stopped[name]
    assert world.names() == {"test.t"}
    assert world.at(210, **only(f"*.*,{','.join(f'!{name}.*' for name in (*names, 'information_schema'))}")).code == EXIT_OK


def test_no_decision_brings_rows_into_the_ledgers_database(world: World) -> None:
    world.bucket.create("cuts", database="headrace")
    world.at(105)
    world.bucket.rows("cuts/100/1", "I 110 1 a", database="headrace")
    with open_sink(world.uri) as sink:
        assert sink.ledger is not None
        state = sink.ledger.peek("default")
        assert state is not None
        (change,) = state.journal
        for verdict in (Verdict.APPROVE, Verdict.SKIP):
            sink.ledger.decide("default", Decision(change, verdict))
            ran = world.at(210)
            assert "in which Headrace keeps its ledger" in ran.stopped["headrace.cuts"]
        assert sink.ledger.peek("default") is not None


# --- a ledger that moves --------------------------------------------------------------------------------------------


def test_a_ledger_is_not_moved_by_the_setting_alone(world: World, place: Place) -> None:
    setting = "ledger-database" if place.mariadb else "ledger-schema"
    uri = f"{world.uri}{'&' if '?' in world.uri else '?'}{setting}=progress"
    world.bucket.create("t")
    world.bucket.rows("t/100/1", "I 110 1 a")
    world.at(120)
    world.bucket.rows("t/100/2", "D 130 1 a")
    with pytest.raises(DefinitionError, match=f"ledger in headrace, not in progress.*{setting}=headrace"):
        world.at(200, sink=uri)
    world.person.run("CREATE SCHEMA progress")
    for (name,) in world.person.run("SELECT table_name FROM information_schema.tables WHERE table_schema = 'headrace'"):
        moves = (
            f"RENAME TABLE headrace.{name} TO progress.{name}"
            if place.mariadb
            else f"CREATE TABLE progress.{name} AS FROM headrace.{name}"
        )
        world.person.run(moves)
    world.person.run("DROP SCHEMA headrace" if place.mariadb else "DROP SCHEMA headrace CASCADE")
    ran = world.at(200, sink=uri)
    assert (ran.code, ran.files) == (EXIT_OK, 1)
    assert world.person.run("SELECT id FROM test.t") == []


def test_another_pipeline_may_have_a_ledger_of_its_own(world: World, tmp_path: Path, place: Place) -> None:
    setting = "ledger-database" if place.mariadb else "ledger-schema"
    uri = f"{world.uri}{'&' if '?' in world.uri else '?'}{setting}=progress"
    world.bucket.create("t")
    world.at(120)
    other = Bucket(tmp_path / "other")
    other.create("u")
    other.checkpoint(120)
    assert other.run(uri).code == EXIT_OK


@pytest.mark.parametrize("stopped_before", [False, True])
@pytest.mark.parametrize("forgetful", [False, True])
def test_only_the_first_table_of_a_name_is_adopted(
    world: World, monkeypatch: pytest.MonkeyPatch, stopped_before: bool, forgetful: bool
) -> None:
    """The rows of a later one are the source's as of the start just as little as anybody's."""
    if forgetful:
        monkeypatch.setattr(journal, "JOURNAL_KEPT", 0)
    world.bucket.create("o")
    world.bucket.create("t")
    world.bucket.rows("t/100/1", "I 105 1 a")
    assert world.at(110).code == EXIT_OK
    world.bucket.schema("t", 120, "id,v", "DROP TABLE `test`.`t`", 4)
    assert world.at(130).code == EXIT_OK
    world.person.run("CREATE TABLE test.t (id INT PRIMARY KEY, v VARCHAR(16))", "INSERT INTO test.t VALUES (7, 'mine')")
    world.bucket.create("t", 140)
    world.bucket.rows("t/140/1", "I 145 2 b")
    if stopped_before:
        assert world.at(150).code == EXIT_TABLE_STOPPED
        world.bucket.schema("o", 151, "id,v,c", "ALTER TABLE `o` ADD COLUMN `c` INT", 5)
        assert world.at(155).code == EXIT_TABLE_STOPPED
    ran = world.at(160, adopt=True)
    assert ran.code == EXIT_TABLE_STOPPED
    assert world.person.run("SELECT id FROM test.t") == [(7,)]
    world.person.run("DROP TABLE test.t")
    assert world.at(170).code == EXIT_OK
    assert world.person.run("SELECT id FROM test.t") == [(2,)]


@pytest.mark.parametrize("adopt", [False, True])
def test_a_persons_table_that_the_filter_leaves_out_is_never_adopted(world: World, adopt: bool) -> None:
    """Though the source's own table of that name comes into the filter by a RENAME later, and is followed up to there."""
    world.bucket.create("good", 50)
    assert world.at(60, **only("*.*,!test.secrets")).code == EXIT_OK
    world.person.run("CREATE TABLE test.secrets (id INT PRIMARY KEY, v VARCHAR(16))", "INSERT INTO test.secrets VALUES (1, 'mine')")
    world.bucket.create("secrets", 101)
    world.bucket.rows("secrets/101/1", "D 150 1 mine")
    world.bucket.schema("taken", 200, "id,v", "RENAME TABLE `secrets` TO `taken`", 14)
    ran = world.at(300, adopt=adopt, **only("*.*,!test.secrets"))
    assert ran.code == EXIT_TABLE_STOPPED
    assert world.person.run("SELECT id, v FROM test.secrets") == [(1, "mine")]
    assert world.names() == {"test.good", "test.secrets"}
    assert "what the filter leaves out is not adopted" in " ".join(ran.stopped.values())
    world.person.run("DROP TABLE test.secrets")
    assert world.at(400, adopt=adopt, **only("*.*,!test.secrets")).code == EXIT_OK
    assert world.names() == {"test.good", "test.taken"}


def test_a_run_without_the_name_of_its_pipeline_is_told_of_the_name_before_it_is_told_to_drop(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path)
    bucket.create("t")
    bucket.rows("t/100/1", "I 110 1 a")
    assert bucket.at(120, name="first").code == EXIT_OK
    ran = bucket.at(130, name="second")
    assert ran.code == EXIT_TABLE_STOPPED
    assert ran.stopped["test.t"].index("run that one, with its --name") < ran.stopped["test.t"].index("Otherwise drop the table")
