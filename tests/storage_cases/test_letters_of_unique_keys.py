"""A row that the target refuses keeps its old state only while no other row takes over a value in a unique key."""

from __future__ import annotations

from pathlib import Path

import pytest
from building import Bucket

from headrace.cli.main import main
from headrace.errors import EXIT_OK
from headrace.model.policy import OnError
from headrace.sinks.dead_letters import open_dead_letters
from servers import MariaDb
from storage_folder import ID

U = {"ColumnName": "u", "ColumnType": "INT"}
NAME = {"ColumnName": "n", "ColumnType": "VARCHAR", "ColumnPrecision": "40"}

pytestmark = pytest.mark.server


def test_a_row_whose_unique_value_another_one_took_is_missing_until_the_replay(mariadb: MariaDb, tmp_path: Path) -> None:
    def rows(statement: str = "SELECT id, u, n FROM test.t ORDER BY id") -> list[tuple[object, ...]]:
        with mariadb.connect() as connection, connection.cursor() as cursor:
            cursor.execute(statement)
            return list(cursor.fetchall())

    bucket = Bucket(tmp_path / "feed")
    letters = open_dead_letters(str(tmp_path / "letters"), "default")
    bucket.schema("t", 100, (ID, U, NAME), "CREATE TABLE `t` (`id` INT PRIMARY KEY,`u` INT UNIQUE,`n` VARCHAR(40))", 3)
    bucket.rows("t/100/1", "I 110 1 5 a", "I 111 2 6 b", "I 112 3 7 c")
    bucket.checkpoint(150)
    assert bucket.run(mariadb.uri(), on_error=OnError.DEAD_LETTER, letters=letters).code == EXIT_OK
    rows("ALTER TABLE test.t MODIFY n VARCHAR(3)")
    bucket.rows("t/100/2", "U 210 1 9 long", "U 211 2 5 b", "U 212 3 8 long")
    bucket.checkpoint(250)
    ran = bucket.run(mariadb.uri(), on_error=OnError.DEAD_LETTER, letters=letters)
    assert (ran.code, rows()) == (EXIT_OK, [(2, 5, "b"), (3, 7, "c")])
    assert "Until they are replayed, rows may be missing" in ran.told
    rows("ALTER TABLE test.t MODIFY n VARCHAR(40)")
    assert main(["replay-dead-letters", "--sink", mariadb.uri()]) == EXIT_OK
    assert bucket.run(mariadb.uri(), on_error=OnError.DEAD_LETTER, letters=letters).code == EXIT_OK
    assert rows() == [(1, 9, "long"), (2, 5, "b"), (3, 8, "long")]
