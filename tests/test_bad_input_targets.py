"""Targets that somebody changed by hand: the table that no longer fits stops where it is, the others go on, and the repair
that the message asks for works."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import duckdb
import pytest

from damage import Damage, Repair, Scene, Story, assert_kept_its_place, assert_others_went_on, tell
from headrace.model.table import TableId
from headrace.testing.upstream import Insert
from servers import MariaDb
from targets import DuckDbTarget, MariaDbTarget

pytestmark = [pytest.mark.spark, pytest.mark.server]

Execute = Callable[[str], None]
_DEFINITION = "(id BIGINT PRIMARY KEY, name VARCHAR(64), amount INT)"


class HandledScene(Scene):
    """A scene whose target somebody handles with SQL."""

    execute: Execute

    def handled(self, damaging: str, *repairing: str) -> Repair:
        """Runs statements now, and returns what runs the others."""
        for statement in damaging.split(";"):
            self.execute(statement)

        def repair() -> None:
            for statement in repairing:
                self.execute(statement)

        return repair


def duckdb_scene(folder: Path) -> HandledScene:
    target = DuckDbTarget(folder / "target.duckdb")
    scene = HandledScene(folder / "feed", target.uri, target)

    def execute(statement: str) -> None:
        with duckdb.connect(str(folder / "target.duckdb")) as connection:
            connection.execute(statement)

    scene.execute = execute
    return scene


def mariadb_scene(folder: Path, server: MariaDb) -> HandledScene:
    server.fresh()
    scene = HandledScene(folder / "feed", server.uri(), MariaDbTarget(server))

    def execute(statement: str) -> None:
        with server.connect() as connection, connection.cursor() as cursor:
            cursor.execute(statement)

    scene.execute = execute
    return scene


def by_hand(damaging: str, *repairing: str) -> Callable[[Scene, TableId], Repair]:
    def inflict(scene: Scene, table_id: TableId) -> Repair:
        assert isinstance(scene, HandledScene)
        return scene.handled(*(statement.format(table=table_id) for statement in (damaging, *repairing)))

    return inflict


def with_a_null(inflict: Callable[[Scene, TableId], Repair]) -> Callable[[Scene, TableId], Repair]:
    def inflicted(scene: Scene, table_id: TableId) -> Repair:
        scene.upstream.execute(Insert(table_id, {"id": 99, "name": None, "amount": 1}))
        scene.publish()
        return inflict(scene, table_id)

    return inflicted


def common(lacks_column: str, dropped: str, taken: str) -> tuple[Damage, ...]:
    """What is done alike in every target, and what each says of it."""
    create = "CREATE TABLE {table} " + _DEFINITION
    rows = "INSERT INTO {table} VALUES (1, 'row 1', 10), (2, 'row 2', 20), (3, 'row 3', 30)"
    drop, add = "ALTER TABLE {table} DROP COLUMN amount", "ALTER TABLE {table} ADD COLUMN amount INT"
    return (
        Damage("lacks_column", by_hand(drop, add, "UPDATE {table} SET amount = id * 10"), lacks_column),
        Damage("dropped", by_hand("DROP TABLE {table}", create, rows), dropped),
        Damage("taken", by_hand(create + "; INSERT INTO {table} VALUES (1, 'of the source', 7)"), taken, late=True),
    )


DUCKDB_DAMAGES = (
    *common(
        ", column amount: the table in the DuckDB file has no such column. Was it dropped by hand? Add it again",
        ": the table is not in the DuckDB file. Was it dropped by hand? Create it again with the rows it had when it stopped.",
        ", file {schema}: the table is already in the DuckDB file, holds rows, and was not created by Headrace. Take it over with "
        "--adopt",
    ),
    Damage(
        "narrowed",
        by_hand("ALTER TABLE {table} ALTER amount TYPE TINYINT", "ALTER TABLE {table} ALTER amount TYPE INTEGER"),
        ", column amount, value '310': the column in the DuckDB file is TINYINT, which cannot hold this value of type INTEGER "
        'unchanged. Give the column that type: ALTER TABLE "shop"."narrowed" ALTER "amount" TYPE INTEGER;',
    ),
    Damage(
        "constrained",
        with_a_null(by_hand("ALTER TABLE {table} ALTER name SET NOT NULL", "ALTER TABLE {table} ALTER name DROP NOT NULL")),
        ": DuckDB refused the rows: Constraint Error: NOT NULL constraint failed: constrained.",
    ),
    Damage(
        "another",
        by_hand("CREATE TABLE {table} (id BIGINT, name BLOB)", "DROP TABLE {table}"),
        ", file {schema}, column name: the column in the DuckDB file is BLOB, it has to be VARCHAR. Alter or drop the table",
        late=True,
    ),
)

MARIADB_DAMAGES = (
    *common(
        ", column amount: the target's table lacks a column that the source has: Unknown column 'amount'",
        ": the target has no such table: Table 'shop.dropped' doesn't exist (error 1146). Was it dropped by hand? Create it again",
        ", file {schema}: the target already has this table, with rows that Headrace did not write. Start with --adopt if",
    ),
    Damage(
        "narrowed",
        by_hand("ALTER TABLE {table} MODIFY amount TINYINT", "ALTER TABLE {table} MODIFY amount INT"),
        ", row id=31, column amount, value '310': the target refused a value: Out of range value for column 'amount' at row 1 "
        "(error 1264). Make the target's column as wide as the source's.",
    ),
    Damage(
        "constrained",
        with_a_null(by_hand("ALTER TABLE {table} MODIFY name VARCHAR(64) NOT NULL", "ALTER TABLE {table} MODIFY name VARCHAR(64)")),
        ", column name: the target refused ",
    ),
    Damage(
        "another",
        by_hand("CREATE TABLE {table} (id BIGINT, nom BLOB)", "DROP TABLE {table}"),
        ", file {schema}: the target already has this table, with other columns (id, nom). Drop it or rename it in the target;",
        late=True,
    ),
)


@pytest.fixture(scope="module")
def duckdb_story(tmp_path_factory: pytest.TempPathFactory) -> Story:
    return tell(duckdb_scene(tmp_path_factory.mktemp("duckdb")), DUCKDB_DAMAGES)


@pytest.fixture(scope="module")
def mariadb_story(tmp_path_factory: pytest.TempPathFactory, mariadb_server: MariaDb) -> Story:
    return tell(mariadb_scene(tmp_path_factory.mktemp("mariadb"), mariadb_server), MARIADB_DAMAGES)


@pytest.mark.parametrize("damage", DUCKDB_DAMAGES, ids=lambda d: d.table)
def test_a_duckdb_table_that_somebody_changed(duckdb_story: Story, damage: Damage) -> None:
    assert_kept_its_place(duckdb_story, damage)


@pytest.mark.parametrize("damage", MARIADB_DAMAGES, ids=lambda d: d.table)
def test_a_mariadb_table_that_somebody_changed(mariadb_story: Story, damage: Damage) -> None:
    assert_kept_its_place(mariadb_story, damage)


def test_the_other_tables_of_a_duckdb_file_go_on(duckdb_story: Story) -> None:
    assert_others_went_on(duckdb_story)


def test_the_other_tables_of_a_mariadb_go_on(mariadb_story: Story) -> None:
    assert_others_went_on(mariadb_story)
