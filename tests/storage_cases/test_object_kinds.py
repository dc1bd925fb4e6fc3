"""Statements about a view that name a table, and the other way round: MySQL and MariaDB log them, though they changed nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from building import COLUMNS, Bucket, Ran

from crashing import CrashPoints, install
from headrace.errors import EXIT_OK, EXIT_TABLE_STOPPED
from headrace.model.ledger import Decision, Verdict
from headrace.pipeline.registry import open_sink
from headrace.testing.faults import Crashed
from places import Place
from targets import Target

pytestmark = pytest.mark.pipeline

VIEW = "CREATE VIEW `test`.`v` AS SELECT `id` FROM `test`.`t`"
OF_VIEW = (COLUMNS["id"],)
TYPES = {"id": "int", "v": "varchar(16)"}


class World:
    """A changefeed with the table ``t``, which has one row, and its target."""

    def __init__(self, place: Place, folder: Path) -> None:
        self.target: Target
        self.target, self.uri = place.fresh()
        self.bucket = Bucket(folder)
        self.bucket.create("t")
        self.bucket.rows("t/100/1", "I 110 1 a")
        self.makes_views = place.mariadb is not None

    def at(self, checkpoint: int) -> Ran:
        self.bucket.checkpoint(checkpoint)
        return self.bucket.run(sink=self.uri)

    def of_view(self, version: int, statement: str) -> None:
        """A schema file of the view ``v``."""
        self.bucket.schema("v", version, OF_VIEW, statement)

    def of_table(self, version: int, statement: str, *rows: str) -> None:
        """A schema file of the table ``t``, and rows after it."""
        self.bucket.schema("t", version, "id,v", statement)
        self.bucket.rows(f"t/{version}/1", *rows)

    def skip_what_waits(self) -> None:
        with open_sink(self.uri) as sink:
            assert sink.ledger is not None
            state = sink.ledger.peek("default")
            assert state is not None
            (identity,) = (entry.identity for entry in state.journal.values() if not entry.state.is_settled)
            sink.ledger.decide("default", Decision(identity, Verdict.SKIP))
            sink.ledger.close()

    def rows(self) -> list[tuple[str | None, ...]]:
        """The rows of ``t`` in the target."""
        return self.target.rows("test", "t", TYPES)

    def names(self) -> set[str]:
        return {f"{database}.{table}" for database, table in self.target.tables()}


@pytest.fixture
def world(place: Place, tmp_path: Path) -> World:
    return World(place, tmp_path)


def test_a_table_goes_on_after_a_drop_that_takes_it_for_a_view(world: World) -> None:
    world.at(120)
    world.of_table(130, "DROP VIEW IF EXISTS `t`", "I 140 2 b")
    ran = world.at(150)
    assert (ran.code, world.rows()) == (EXIT_OK, [("1", "a"), ("2", "b")])
    assert "DROP VIEW IF EXISTS changed nothing: test.t is a table, not a view." in ran.told
    world.bucket.rows("t/130/2", "I 160 3 c")
    assert (world.at(170).code, world.rows()) == (EXIT_OK, [("1", "a"), ("2", "b"), ("3", "c")])
    world.of_table(180, "DROP TABLE `t`")
    assert (world.at(190).code, world.names()) == (EXIT_OK, set())


def test_a_table_goes_on_after_a_view_of_its_name_is_skipped(world: World) -> None:
    """MariaDB logs CREATE VIEW IF NOT EXISTS of a table. Its grammar is not covered, so a person decides about it."""
    world.at(120)
    world.of_table(130, "CREATE VIEW IF NOT EXISTS `t` AS SELECT 1 AS `id`", "I 140 2 b")
    assert world.at(150).code == EXIT_TABLE_STOPPED
    world.skip_what_waits()
    assert (world.at(160).code, world.rows()) == (EXIT_OK, [("1", "a"), ("2", "b")])


@pytest.mark.parametrize("statement", ["DROP VIEW `t`", "CREATE OR REPLACE VIEW `t` AS SELECT 1 AS `id`"])
def test_a_table_stops_before_a_statement_that_the_source_would_have_refused(world: World, statement: str) -> None:
    world.at(120)
    world.of_table(130, statement, "I 140 2 b")
    ran = world.at(150)
    assert (ran.code, world.rows()) == (EXIT_TABLE_STOPPED, [("1", "a")])
    assert "but test.t is a table here, not a view. The source would have refused it" in ran.stopped["test.t"]


def test_a_view_stays_after_a_drop_that_takes_it_for_a_table(world: World) -> None:
    world.of_view(111, VIEW)
    world.at(120)
    world.of_view(130, "DROP TABLE IF EXISTS `v`")
    ran = world.at(140)
    assert (ran.code, "test.v" in world.names()) == (EXIT_OK, world.makes_views)
    assert ("DROP TABLE IF EXISTS changed nothing: test.v is a view, not a table." in ran.told) is world.makes_views
    world.of_view(150, "DROP VIEW IF EXISTS `v`")
    assert (world.at(160).code, world.names()) == (EXIT_OK, {"test.t"})


def test_a_view_stays_after_a_create_that_takes_it_for_a_table(world: World) -> None:
    """MySQL logs every CREATE TABLE IF NOT EXISTS. A target without views does not know that the name is one."""
    world.of_view(111, VIEW)
    world.at(120)
    world.of_view(130, "CREATE TABLE IF NOT EXISTS `v` (`id` INT)")
    ran = world.at(140)
    assert (ran.code, "test.v" in world.names()) == (EXIT_OK, True)
    assert ("CREATE TABLE IF NOT EXISTS changed nothing: test.v is a view, not a table." in ran.told) is world.makes_views


def test_a_restored_dump_makes_its_views_anew(world: World) -> None:
    """mysqldump first makes a table in place of each view, or a view without content, and drops both in either form."""
    world.of_view(111, VIEW)
    world.at(120)
    steps = (
        "DROP TABLE IF EXISTS `v`",
        "DROP VIEW IF EXISTS `v`",
        "CREATE TABLE `v` (`id` INT NOT NULL)",
        "DROP TABLE IF EXISTS `v`",
    )
    steps += (
        "DROP VIEW IF EXISTS `v`",
        "CREATE VIEW `v` AS SELECT 1 AS `id`",
        "DROP TABLE IF EXISTS `v`",
        "DROP VIEW IF EXISTS `v`",
    )
    for number, statement in enumerate((*steps, VIEW)):
        world.of_view(130 + number, statement)
    world.bucket.rows("t/100/2", "I 160 2 b")
    assert world.at(170).code == EXIT_OK
    assert world.rows() == [("1", "a"), ("2", "b")]
    assert world.names() == ({"test.t", "test.v"} if world.makes_views else {"test.t"})


def test_a_table_survives_such_a_statement_wherever_a_run_dies(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(1, 200):
        world = World(place, tmp_path / str(number))
        world.of_view(111, VIEW)
        world.at(120)
        world.of_table(130, "DROP VIEW IF EXISTS `t`", "I 140 2 b")
        world.of_view(131, "DROP TABLE IF EXISTS `v`")
        with monkeypatch.context() as patch:
            points = CrashPoints(number)
            install(points, patch)
            try:
                world.at(150)
            except Crashed:
                pass
            else:
                break
        assert (world.at(150).code, world.rows()) == (EXIT_OK, [("1", "a"), ("2", "b")])
        assert ("test.v" in world.names()) is world.makes_views
    assert number > 3
