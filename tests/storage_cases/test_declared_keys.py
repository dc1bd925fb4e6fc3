"""The unique index that a table gets for a declared key goes when another key takes its place."""

from __future__ import annotations

from pathlib import Path

import pytest
from building import Bucket

from headrace.engine.keys import DeclaredKeys
from headrace.errors import EXIT_OK, EXIT_TABLE_STOPPED
from person import Person
from servers import MariaDb
from storage_folder import V
from targets import MariaDbTarget

pytestmark = [pytest.mark.pipeline, pytest.mark.server]

A = {"ColumnName": "a", "ColumnType": "INT", "ColumnNullable": "false"}
NEEDED = V | {"ColumnNullable": "false"}
PRIMARY = (V | {"ColumnNullable": "false", "ColumnIsPk": "true"}, "ALTER TABLE `t` ADD PRIMARY KEY (`v`)", 32, ("test.t=a",))
WIDER = (NEEDED, "ALTER TABLE `t` ADD INDEX `i` (`v`)", 7, ("test.t=a,v",))


@pytest.mark.parametrize(("column", "statement", "type", "keys"), [PRIMARY, WIDER], ids=["primary key", "wider key"])
def test_another_key_stops_the_table_until_the_index_is_gone(
    mariadb: MariaDb, tmp_path: Path, column: dict[str, str], statement: str, type: int, keys: tuple[str, ...]
) -> None:
    bucket, person = Bucket(tmp_path), Person(MariaDbTarget(mariadb), mariadb)
    bucket.schema("t", 100, (A, NEEDED), "", 0)
    bucket.rows("t/100/1", "I 110 1 one", "I 111 2 two")
    bucket.checkpoint(150)
    assert bucket.run(mariadb.uri(), keys=DeclaredKeys.parse_texts(("test.t=a",))).code == EXIT_OK
    bucket.schema("t", 200, (A, column), statement, type)
    bucket.rows("t/200/1", "I 210 1 x", "I 211 1 y")
    bucket.checkpoint(250)
    declared = DeclaredKeys.parse_texts(keys)
    ran = bucket.run(mariadb.uri(), keys=declared)
    assert ran.code == EXIT_TABLE_STOPPED
    hint = ran.stopped["test.t"].partition("Run ")[2].partition(" in the target.")[0]
    assert hint.endswith("DROP INDEX headrace_key")
    assert person.run("SELECT a, v FROM test.t ORDER BY v") == [(1, "one"), (2, "two")]
    person.run(hint)
    assert bucket.run(mariadb.uri(), keys=declared).code == EXIT_OK
    assert person.run("SELECT a, v FROM test.t ORDER BY v") == [(1, "one"), (2, "two"), (1, "x"), (1, "y")]
