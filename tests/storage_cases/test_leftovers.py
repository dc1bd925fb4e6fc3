"""What a DROP left behind that never ran here is not taken for what the source creates or adds afterwards."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from building import Bucket, Ran

from headrace.errors import EXIT_OK, EXIT_TABLE_STOPPED
from headrace.model.ledger import Decision, Verdict
from headrace.model.policy import SchemaChangePolicies
from headrace.pipeline.registry import open_sink
from headrace.transform.filters import TableFilter
from person import Person
from places import Place

pytestmark = pytest.mark.pipeline

SKIPPED = {"policies": SchemaChangePolicies.parse({"drop-table": "skip", "drop-column": "skip", "drop-database": "skip"})}


class World:
    """A changefeed with a table ``test.t`` of two rows, which the target has."""

    def __init__(self, place: Place, folder: Path) -> None:
        target, self.uri = place.fresh()
        self.bucket, self.person = Bucket(folder), Person.at(place, target)
        self.bucket.create("t", 100, "id,v,c")
        self.bucket.rows("t/100/1", "I 110 1 a 1", "I 111 2 b 2")
        assert self.at(120).code == EXIT_OK

    def at(self, checkpoint: int, **options: Any) -> Ran:
        self.bucket.checkpoint(checkpoint)
        return self.bucket.run(self.uri, **options)

    def rows(self) -> list[tuple[Any, ...]]:
        return sorted(self.person.run("SELECT id, v, c FROM test.t"))

    def skip(self, reason: str) -> None:
        """A person skips the change that a reason names."""
        with open_sink(self.uri) as sink:
            assert sink.ledger is not None
            sink.ledger.decide("default", Decision(reason.rsplit("'", 2)[1], Verdict.SKIP))
            sink.ledger.close()


@pytest.fixture
def world(place: Place, tmp_path: Path) -> World:
    return World(place, tmp_path)


OLD, NEW = [(1, "a", 1), (2, "b", 2)], [(3, "c", 8)]


def dropped_and_created(world: World, drop: str) -> None:
    if drop == "of the table":
        world.bucket.schema("t", 140, "id,v,c", "DROP TABLE `test`.`t`", 4)
    if drop == "of the database":
        world.bucket.schema("", 140, (), "DROP DATABASE `test`", 2)
        world.bucket.schema("", 145, (), "CREATE DATABASE `test`", 1)
    world.bucket.create("t", 150, "id,v,c")
    world.bucket.rows("t/150/1", "I 160 3 c 8")


@pytest.mark.parametrize("adopt", [False, True])
@pytest.mark.parametrize("drop", ["of the table", "of the database", "that is filtered out"])
def test_a_table_that_is_created_again_does_not_keep_its_rows(world: World, drop: str, adopt: bool) -> None:
    dropped_and_created(world, drop)
    for checkpoint in (200, 210):
        ran = world.at(checkpoint, adopt=adopt, **SKIPPED)
        assert ran.code == EXIT_TABLE_STOPPED
        assert (
            "creates it at 150, and the target still has it with rows from before: its DROP never ran here" in ran.stopped["test.t"]
        )
        assert world.rows() == OLD
    world.person.run("DROP TABLE test.t")
    assert world.at(300, adopt=adopt, **SKIPPED).code == EXIT_OK
    assert world.rows() == NEW


@pytest.mark.parametrize("tables", ["", "*.*,!test.u"])
def test_a_copy_of_a_table_does_not_keep_the_rows_of_before(world: World, tables: str) -> None:
    """The pattern of a CREATE TABLE … LIKE may have moved on, or be left out: the statement creates a table all the same."""
    included: dict[str, Any] = {"includes": TableFilter.parse(tables).includes, "filter_text": tables}
    world.bucket.create("u", 121, "id,v,c")
    world.bucket.schema("t", 140, "id,v,c", "DROP TABLE `test`.`t`", 4)
    world.bucket.schema("t", 150, "id,v,c", "CREATE TABLE `test`.`t` LIKE `test`.`u`", 3)
    world.bucket.rows("t/150/1", "I 170 3 c 8")
    world.bucket.schema("u", 160, "id,v", "ALTER TABLE `test`.`u` DROP COLUMN `c`", 6)
    for checkpoint in (200, 210):
        ran = world.at(checkpoint, **SKIPPED, **included)
        assert "creates it at 150, and the target still has it with rows from before" in ran.stopped["test.t"]
    assert world.rows() == OLD
    world.person.run("DROP TABLE test.t")
    assert world.at(300, **SKIPPED, **included).code == EXIT_OK
    assert world.rows() == NEW


def test_a_table_whose_drop_and_create_are_in_one_cut_is_not_merged(world: World) -> None:
    world.bucket.schema("t", 140, "id,v,c", "DROP TABLE `test`.`t`", 4)
    assert world.at(145, **SKIPPED).code == EXIT_OK
    world.bucket.create("t", 150, "id,v,c")
    assert world.at(200, **SKIPPED).code == EXIT_TABLE_STOPPED


def test_a_person_may_say_that_the_rows_stay(world: World) -> None:
    dropped_and_created(world, "that is filtered out")
    world.skip(world.at(200).stopped["test.t"])
    assert world.at(300).code == EXIT_OK
    assert world.rows() == OLD + NEW


def test_a_table_that_was_emptied_does_not_keep_its_keys_and_types(world: World) -> None:
    world.person.run("DELETE FROM test.t")
    dropped_and_created(world, "that is filtered out")
    ran = world.at(200)
    assert ran.code == EXIT_TABLE_STOPPED
    assert "has it from before, with the columns and keys that it had then: its DROP never ran here" in ran.stopped["test.t"]
    world.person.run("DROP TABLE test.t")
    assert (world.at(300).code, world.rows()) == (EXIT_OK, NEW)


def added_again(world: World) -> None:
    world.bucket.schema("t", 140, "id,v", "ALTER TABLE `test`.`t` DROP COLUMN `c`", 6)
    world.bucket.rows("t/140/1", "I 145 3 x")
    world.bucket.schema("t", 150, "id,v,c", "ALTER TABLE `test`.`t` ADD COLUMN `C` INT DEFAULT 7", 5)
    world.bucket.rows("t/150/1", "I 160 4 y 8")


@pytest.mark.parametrize("steps", [(200,), (146, 200)])
def test_a_column_that_is_added_again_does_not_keep_its_values(world: World, steps: tuple[int, ...]) -> None:
    added_again(world)
    for checkpoint in steps:
        ran = world.at(checkpoint, **SKIPPED)
    assert ran.code == EXIT_TABLE_STOPPED
    assert (
        "column c: the source adds the column at 150, but the target already has it, with values from before"
        in ran.stopped["test.t"]
    )
    assert world.rows()[:2] == OLD
    world.person.run("ALTER TABLE test.t DROP COLUMN c")
    assert world.at(300, **SKIPPED).code == EXIT_OK
    assert world.rows() == [(1, "a", 7), (2, "b", 7), (3, "x", 7), (4, "y", 8)]


def test_a_person_may_say_that_the_values_stay(world: World) -> None:
    added_again(world)
    world.skip(world.at(200, **SKIPPED).stopped["test.t"])
    assert world.at(300, **SKIPPED).code == EXIT_OK
    assert world.rows()[:2] == OLD


def test_a_column_that_is_dropped_and_added_by_one_statement_is_new(world: World) -> None:
    world.bucket.schema("t", 140, "id,v,uk", "ALTER TABLE `t` RENAME COLUMN `c` TO `uk`", 12)
    world.bucket.schema("t", 150, "id,v,uk,c", "ALTER TABLE `t` ADD COLUMN `c` INT DEFAULT 7", 5)
    assert world.at(200).code == EXIT_OK
    assert world.rows() == [(1, "a", 7), (2, "b", 7)]


def test_a_column_is_not_renamed_onto_one_whose_drop_was_skipped(world: World) -> None:
    world.bucket.schema("t", 140, "id,v", "ALTER TABLE `test`.`t` DROP COLUMN `c`", 6)
    world.bucket.schema("t", 150, "id,c", "ALTER TABLE `test`.`t` RENAME COLUMN `v` TO `c`", 12)
    assert world.at(200, **SKIPPED).code == EXIT_TABLE_STOPPED
    assert world.rows() == OLD
