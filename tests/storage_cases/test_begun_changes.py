"""A run dies right before or behind a schema change's statement, and a person alters the tables before the next run.

A difference is no proof that the statement ran: it has run once at the end, or a person is asked.
"""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest
from building import Bucket

from headrace.errors import EXIT_OK, EXIT_TABLE_STOPPED
from headrace.testing.faults import Crashed, Moment, Step, armed, crash_at
from person import Person
from servers import MariaDb
from storage_folder import ID, V
from targets import MariaDbTarget

pytestmark = [pytest.mark.pipeline, pytest.mark.server]

W = V | {"ColumnName": "w"}
WIDE = V | {"ColumnPrecision": "64"}
C = {"ColumnName": "c", "ColumnType": "INT", "ColumnDefault": "7"}
PARTITIONED = (
    "CREATE TABLE `p` (`id` INT PRIMARY KEY,`v` VARCHAR(16)) PARTITION BY RANGE (`id`) "
    "(PARTITION p0 VALUES LESS THAN (50),PARTITION p1 VALUES LESS THAN (1000))"
)
WITH_INDEX = "CREATE TABLE `o` (`id` INT PRIMARY KEY,`v` VARCHAR(16), KEY `ko` (`v`))"
Shape = tuple[dict[str, str], ...]
File = tuple[str, Shape, str, int]
"""A schema file: its table, shape, statement, and type of change."""

T = (ID, V)
MULTI = 60
CHANGES: dict[str, tuple[File, ...]] = {
    "add a column": (("t", (*T, C), "ALTER TABLE `t` ADD COLUMN `c` INT DEFAULT 7", 5),),
    "drop a column": (("o", (ID,), "ALTER TABLE `o` DROP COLUMN `v`", 6),),
    "rename a column": (("t", (ID, W), "ALTER TABLE `t` RENAME COLUMN `v` TO `w`", 12),),
    "another type": (("t", (ID, WIDE), "ALTER TABLE `t` MODIFY COLUMN `v` VARCHAR(64)", 12),),
    "another order": (("t", (V, ID), "ALTER TABLE `t` MODIFY COLUMN `v` VARCHAR(16) FIRST", 12),),
    "a default": (("t", T, "ALTER TABLE `t` ALTER COLUMN `v` SET DEFAULT 'x'", 15),),
    "a comment": (("t", T, "ALTER TABLE `t` COMMENT = 'said'", 25),),
    "add an index": (("t", T, "ALTER TABLE `t` ADD INDEX `iv` (`v`)", 7),),
    "add an index without name": (("t", T, "ALTER TABLE `t` ADD INDEX (`v`)", 7),),
    "create an index": (("t", T, "CREATE INDEX `iv` ON `t` (`v`)", 7),),
    "drop an index": (("o", T, "DROP INDEX `ko` ON `o`", 8),),
    "rename an index": (("o", T, "ALTER TABLE `o` RENAME INDEX `ko` TO `kn`", 45),),
    "foreign keys": (
        (
            "t",
            T,
            "ALTER TABLE `t` ADD FOREIGN KEY (`id`) REFERENCES `o` (`id`),"
            "ADD CONSTRAINT `fk` FOREIGN KEY (`id`) REFERENCES `test`.`o` (`id`)",
            9,
        ),
    ),
    "several clauses": (
        ("t", (ID, WIDE, C), "ALTER TABLE `t` ADD COLUMN `c` INT DEFAULT 7, ADD INDEX `ic` (`c`), MODIFY `v` VARCHAR(64)", MULTI),
    ),
    "add a partition": (("p", T, "ALTER TABLE `p` ADD PARTITION (PARTITION p2 VALUES LESS THAN (2000))", 19),),
    "drop a partition": (("p", T, "ALTER TABLE `p` DROP PARTITION p0", 20),),
    "empty a partition": (("p", T, "ALTER TABLE `p` TRUNCATE PARTITION p0", 32),),
    "split a partition": (
        (
            "p",
            T,
            "ALTER TABLE `p` REORGANIZE PARTITION p0 INTO (PARTITION q0 VALUES LESS THAN (5), PARTITION q1 VALUES LESS THAN (50))",
            64,
        ),
    ),
    "exchange a partition": (("p", T, "ALTER TABLE `p` EXCHANGE PARTITION p0 WITH TABLE `t`", 42), ("t", T, "", 0)),
    "empty a table": (("t", T, "TRUNCATE TABLE `t`", 11),),
    "drop a table": (("t", T, "DROP TABLE `t`", 4),),
    "rename a table": (("n", T, "RENAME TABLE `t` TO `n`", 14),),
    "create a table": (("n", T, "CREATE TABLE `n` (`id` INT PRIMARY KEY,`v` VARCHAR(16))", 3),),
    "a table like another": (("n", T, "CREATE TABLE `n` LIKE `o`", 3),),
}
ACTS = {
    "nobody": "",
    "a person's comment": "ALTER TABLE test.{} COMMENT = 'his'",
    "a person's index": "CREATE INDEX his ON test.{} (id)",
    "a person's row format": "ALTER TABLE test.{} ROW_FORMAT = COMPACT",
}
DROPS = ("drop a table", "drop a column", "drop a partition")
UNCLEAR = {
    ("a comment", "a person's comment"),
    ("a comment", "a person's row format"),
    *product(
        ("drop a table", "drop a column", "drop a partition"), ("a person's comment", "a person's index", "a person's row format")
    ),
}
"""What may be asked. That what is to be dropped has been made anew meanwhile cannot be told from an alteration."""


class World:
    def __init__(self, folder: Path, server: MariaDb) -> None:
        server.fresh()
        self.uri, self.person, self.bucket = server.uri(), Person(MariaDbTarget(server), server), Bucket(folder)
        bucket = self.bucket
        bucket.create("t")
        bucket.schema("o", 101, "id,v", WITH_INDEX, 3)
        bucket.schema("p", 102, "id,v", PARTITIONED, 3)
        bucket.rows("t/100/1", "I 110 1 a", "I 110 2 b")
        bucket.rows("o/101/1", "I 111 3 c")
        bucket.rows("p/102/1", "I 112 4 d", "I 112 5 e", "I 112 500 f")
        bucket.checkpoint(150)
        assert bucket.run(self.uri).code == EXIT_OK

    def goes_on(self, change: str) -> None:
        for table, shape, statement, kind in CHANGES[change]:
            self.bucket.schema(table, 200, shape, statement, kind)
        self.bucket.checkpoint(250)

    def tables(self) -> list[str]:
        return sorted(str(name) for (name,) in self.person.run("SHOW TABLES FROM test"))

    def acts(self, statement: str) -> None:
        for table in self.tables() if statement else []:
            self.person.run(statement.format(table))

    def held(self) -> dict[str, tuple[object, ...]]:
        """The definition's lines and the rows of each table."""
        found: dict[str, tuple[object, ...]] = {}
        for table in self.tables():
            ((_, definition),) = self.person.run(f"SHOW CREATE TABLE test.{table}")
            lines = sorted(line.strip().rstrip(",") for line in str(definition).splitlines())
            found[table] = (lines, sorted(self.person.run(f"SELECT * FROM test.{table}")))
        return found


@pytest.mark.parametrize("act", ACTS)
@pytest.mark.parametrize("change", CHANGES)
def test_a_change_that_a_run_began_has_run_once_at_the_end(tmp_path: Path, mariadb: MariaDb, change: str, act: str) -> None:
    reference = World(tmp_path / "reference", mariadb)
    reference.goes_on(change)
    assert reference.bucket.run(reference.uri).code == EXIT_OK
    before_acting = reference.held()
    reference.acts(ACTS[act])
    wanted = reference.held()
    for moment in Moment:
        world = World(tmp_path / moment, mariadb)
        world.goes_on(change)
        with armed(crash_at(moment, Step.MYSQL_STATEMENT)), pytest.raises(Crashed):
            world.bucket.run(world.uri)
        assert (world.held() == before_acting) is (moment is Moment.AFTER)
        world.acts(ACTS[act])
        ran = world.bucket.run(world.uri)
        if ran.code == EXIT_TABLE_STOPPED:
            assert (change, act) in UNCLEAR, ran.stopped
            assert "cannot tell whether it took effect" in "".join(ran.stopped.values())
            continue
        # A table that is made, or emptied, after a person has acted has nothing of that.
        is_new = moment is Moment.BEFORE and change in ("create a table", "a table like another")
        assert {name: held for name, held in world.held().items() if not (is_new and name == "n")} == {
            name: held for name, held in wanted.items() if not (is_new and name == "n")
        }
        assert world.tables() == reference_names(wanted)
        assert "scratch" not in str(world.person.run("SHOW TABLES FROM headrace"))


def reference_names(held: dict[str, tuple[object, ...]]) -> list[str]:
    return sorted(held)
