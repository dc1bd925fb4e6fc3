"""Foreign keys to a table that the source drops: those of the pipeline's running tables go, and no other table is altered."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from building import Bucket, ledger_at
from test_ownership import World, only

from headrace.errors import EXIT_OK, EXIT_TABLE_STOPPED
from headrace.model.ledger import RequestKind, TableRequest, TableStatus
from headrace.model.table import TableId
from headrace.pipeline.registry import open_sink
from person import Person
from places import Place
from quick import without_pauses
from servers import MariaDb

pytestmark = [pytest.mark.pipeline, pytest.mark.server]

CHILD = TableId("test", "child")
ALL: dict[str, Any] = {"includes": lambda table_id: True, "filter_text": ""}
KEY = "CONSTRAINT `k` FOREIGN KEY (`uk`) REFERENCES `shop`.`parent` (`id`)"
COLUMNS = "`id` INT PRIMARY KEY, `uk` INT NOT NULL"
GONE = {
    "dropped": ("parent", "id,v", "DROP TABLE `parent`", 4),
    "with its database": ("", (), "DROP DATABASE `shop`", 2),
}
STAYS = (
    "table shop.parent: the source dropped it, and the foreign key k of test.child to it stays, because test.child is not a "
    "running table that this pipeline made. The key will bind any table that gets this name in the target. To drop it, run "
    "ALTER TABLE `test`.`child` DROP FOREIGN KEY `k`; in the target."
)
LEFT_OUT = "was left out: this table or the one that it refers to is not one of this pipeline's, or not there."


@pytest.fixture
def world(mariadb: MariaDb, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """``shop.parent`` is there."""
    without_pauses(monkeypatch)
    place = Place(tmp_path, mariadb)
    target, uri = place.fresh()
    world = World(Bucket(tmp_path), target, uri, Person.at(place, target))
    world.bucket.create("parent", database="shop")
    return world


def make_child(world: World, key: str = f", {KEY}") -> None:
    world.bucket.schema("child", 110, "id,uk", f"CREATE TABLE `child` ({COLUMNS}{key})", 3)
    assert world.at(150, **ALL).code == EXIT_OK


def let_in(world: World, table: TableId, key: str = "") -> None:
    """The table is somebody's; the source makes one of its name, which is skipped."""
    theirs = f'CREATE TABLE "{table.database}"."{table.table}" ({COLUMNS}{key}) DEFAULT COLLATE utf8mb4_bin'.replace("`", '"')
    row = f'INSERT INTO "{table.database}"."{table.table}" VALUES (7, 7)'
    world.person.run(f'CREATE DATABASE IF NOT EXISTS "{table.database}"', "SET foreign_key_checks = 0", theirs, row)
    world.bucket.schema(table.table, 110, "id,uk", f"CREATE TABLE `{table.table}` ({COLUMNS})", 3, database=table.database)
    assert world.at(140, **ALL).code == EXIT_TABLE_STOPPED
    world.skip_what_waits()
    assert world.at(150, **ALL).code == EXIT_OK


def requested(world: World, *requests: TableRequest) -> None:
    with open_sink(world.uri) as sink:
        assert sink.ledger is not None
        for request in requests:
            sink.ledger.request("default", request)
        sink.ledger.close()


def meet(world: World, state: str) -> dict[str, Any]:
    """``test.child``, with a foreign key, comes into a state; the options of the runs that follow."""
    if state == "let in":
        world.at(105, **ALL)
        let_in(world, CHILD, f", {KEY}")
    elif state == "somebody's":
        world.bucket.create("other")
        make_child(world)
        world.bucket.schema("child", 160, "id,uk", "DROP TABLE `child`", 4)
        assert world.at(165, **ALL).code == EXIT_OK
        world.person.run(f"CREATE TABLE test.child ({COLUMNS}, {KEY})".replace("`", '"'))
    else:
        make_child(world)
    if state == "held":
        requested(world, TableRequest("1", CHILD, RequestKind.HOLD))
    elif state == "loaded for a later time":
        requested(world, TableRequest("1", CHILD, RequestKind.RESYNC, to=1000))
    elif state in ("waiting", "waiting since this cut"):
        world.bucket.schema("child", 170, "id,uk", "ALTER TABLE `child` ADD COLUMN `x` INT DEFAULT (SLEEP(9))", 5)
    elif state == "stopped":
        world.bucket.rows("child/110/1", "I 170 1 x")
    options = only("*.*,!test.child") if state == "left out" else ALL
    if state != "waiting since this cut":
        world.at(180, **options)
    return options


STATES = ("held", "loaded for a later time", "waiting", "waiting since this cut", "stopped", "left out", "let in", "somebody's")


def shown(world: World) -> str:
    return str(world.person.run("SHOW CREATE TABLE test.child")[0][1])


@contextmanager
def locked(server: MariaDb, table: str) -> Iterator[None]:
    """Somebody works on a table, and lets nobody else to it."""
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute(f"LOCK TABLES {table} WRITE")
        yield


@pytest.mark.parametrize("gone", list(GONE))
@pytest.mark.parametrize("state", STATES)
def test_a_table_that_does_not_run_is_not_altered_and_waited_for(world: World, mariadb: MariaDb, state: str, gone: str) -> None:
    options = meet(world, state)
    before = shown(world)
    table, columns, statement, kind = GONE[gone]
    world.bucket.schema(table, 200, columns, statement, kind, database="shop")
    with locked(mariadb, "test.child"):
        ran = world.at(300, **options)
    assert 'CONSTRAINT "k"' in before
    assert shown(world) == before
    assert STAYS in ran.told
    assert "shop.parent" not in world.names()


@pytest.mark.parametrize("gone", list(GONE))
def test_a_table_that_runs_loses_its_key(world: World, gone: str) -> None:
    make_child(world)
    table, columns, statement, kind = GONE[gone]
    world.bucket.schema(table, 200, columns, statement, kind, database="shop")
    ran = world.at(300, **ALL)
    assert 'CONSTRAINT "k"' not in shown(world)
    assert "table test.child: its foreign key k was dropped" in ran.told
    assert "stays" not in ran.told


def test_a_held_table_drops_its_key_itself_when_it_is_released(world: World) -> None:
    meet(world, "held")
    world.bucket.schema("child", 190, "id,uk", "ALTER TABLE `child` DROP FOREIGN KEY `k`", 18)
    world.bucket.schema("parent", 200, "id,v", "DROP TABLE `parent`", 4, database="shop")
    world.at(300, **ALL)
    assert 'CONSTRAINT "k"' in shown(world)
    requested(world, TableRequest("2", CHILD, RequestKind.RELEASE))
    assert world.at(310, **ALL).code == EXIT_OK
    assert 'CONSTRAINT "k"' not in shown(world)
    assert ledger_at(world.uri).tables[CHILD].status is not TableStatus.HELD


@pytest.mark.parametrize("refers_to", ["`shop`.`parent` (`id`)", "`child` (`id`)"])
@pytest.mark.parametrize("renamed", [False, True])
def test_a_table_that_was_let_in_gets_no_foreign_key(world: World, refers_to: str, renamed: bool) -> None:
    """Nothing would drop it when the table goes that it refers to."""
    world.at(105, **ALL)
    let_in(world, CHILD)
    name = "renamed" if renamed else "child"
    if renamed:
        world.bucket.schema(name, 160, "id,uk", "RENAME TABLE `test`.`child` TO `test`.`renamed`", 14)
    added = f"ALTER TABLE `{name}` ADD CONSTRAINT `k` FOREIGN KEY (`uk`) REFERENCES {refers_to.replace('child', name)}"
    world.bucket.schema(name, 170, "id,uk", added, 9)
    ran = world.at(180, **ALL)
    assert (ran.code, ran.stopped) == (EXIT_OK, {})
    assert LEFT_OUT in ran.told
    assert "CONSTRAINT" not in str(world.person.run(f"SHOW CREATE TABLE test.{name}")[0][1])


def test_no_foreign_key_binds_a_table_that_was_let_in(world: World) -> None:
    """It stays when the source drops it, and the key would stay with it."""
    let_in(world, TableId("shop", "theirs"))
    world.bucket.schema("child", 170, "id,uk", f"CREATE TABLE `child` ({COLUMNS}, {KEY.replace('parent', 'theirs')})", 3)
    ran = world.at(180, **ALL)
    assert (ran.code, ran.stopped) == (EXIT_OK, {})
    assert LEFT_OUT in ran.told
    assert "CONSTRAINT" not in shown(world)


def test_a_name_that_a_table_which_was_let_in_had_before_is_one_like_others(world: World) -> None:
    world.at(105, **ALL)
    let_in(world, CHILD)
    world.bucket.schema("renamed", 160, "id,uk", "RENAME TABLE `test`.`child` TO `test`.`renamed`", 14)
    world.bucket.schema("renamed", 165, "id,uk", "DROP TABLE `renamed`", 4)
    assert world.at(170, **ALL).code == EXIT_OK
    world.person.run("DROP TABLE test.renamed")
    for version, name in ((175, "child"), (176, "renamed")):
        world.bucket.schema(name, version, "id,uk", f"CREATE TABLE `{name}` ({COLUMNS}, {KEY})".replace("`k`", f"`k{version}`"), 3)
    ran = world.at(180, **ALL)
    assert (ran.code, ran.stopped) == (EXIT_OK, {})
    assert LEFT_OUT not in ran.told
