"""Generated columns whose values depend on the time zone of the session that writes, from the source to the way out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from building import Bucket

from headrace.cli.main import main
from headrace.errors import EXIT_OK, EXIT_TABLE_STOPPED
from person import Person
from servers import MariaDb
from storage_folder import ID
from targets import MariaDbTarget

pytestmark = pytest.mark.server

TS: dict[str, Any] = {"ColumnName": "ts", "ColumnType": "TIMESTAMP", "ColumnNullable": "false"}
D: dict[str, Any] = {"ColumnName": "d", "ColumnType": "DATE"}
CREATED = "CREATE TABLE `t` (`id` INT PRIMARY KEY,`ts` TIMESTAMP NOT NULL,`d` DATE{},UNIQUE KEY `u`(`d`))"
HELD = "SELECT id, CAST(ts AS CHAR), CAST(d AS CHAR) FROM test.t ORDER BY id"
ROWS = [(1, "2024-01-01 15:00:00", "2024-01-01"), (2, "2024-01-01 17:00:00", "2024-01-02")]
"""The days are those of a session at +08:00."""


def test_a_generated_column_of_the_writers_zone_goes_on_as_a_plain_one_with_the_values_of_the_files(
    mariadb: MariaDb, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mariadb.fresh()
    uri, bucket = mariadb.uri(time_zone="+08:00"), Bucket(tmp_path)
    person = Person(MariaDbTarget(mariadb), mariadb)
    bucket.schema("t", 100, (ID, TS, D), CREATED.format(" GENERATED ALWAYS AS (DATE(`ts`)) STORED"), 3)
    bucket.rows("t/100/1", ("I", 110, *ROWS[0]), ("I", 111, *ROWS[1]))
    bucket.checkpoint(120)
    stopped = bucket.run(uri)
    assert stopped.code == EXIT_TABLE_STOPPED
    assert "generated column d depends on the time zone" in stopped.stopped["test.t"]

    identity = stopped.stopped["test.t"].rpartition("'100/")[2].partition("'")[0]
    assert main(["ddl", "edit", f"100/{identity}", CREATED.format(""), "--sink", uri]) == EXIT_OK
    assert bucket.run(uri).code == EXIT_OK
    assert person.run("SET time_zone = '+00:00'", HELD) == ROWS
    capsys.readouterr()
    main(["validate", "--source", bucket.folder.uri(bucket.options), "--sink", uri, "--no-spark"])
    assert "rows contain every column of the target" in capsys.readouterr().out


DATETIMES = ("2020-01-01 00:00:00.600000", "2020-01-01 00:00:00.400000", "20200101000001", "20200101000000")
CONVERTED = {
    "FLOAT": ("FLOAT", "VARCHAR", "1.2345678", "1.2345679", "1.2345678", "1.2345679"),
    "TIME": ("TIME(6)", "INT", "00:00:01.600000", "00:00:01.400000", "2", "1"),
    "DATETIME": ("DATETIME(6)", "BIGINT", *DATETIMES),
}
"""The type of the source and of the generated column, two values, and TiDB's values of the column, which MariaDB makes one."""


@pytest.mark.parametrize("case", CONVERTED)
def test_a_generated_column_that_converts_otherwise_goes_on_as_a_plain_one(mariadb: MariaDb, tmp_path: Path, case: str) -> None:
    mariadb.fresh()
    source, kind, *values = CONVERTED[case]
    uri, bucket, person = mariadb.uri(), Bucket(tmp_path), Person(MariaDbTarget(mariadb), mariadb)
    of_text = {"ColumnPrecision": "64"} if kind == "VARCHAR" else {}
    f = {"ColumnName": "f", "ColumnType": case, **({} if case == "FLOAT" else {"ColumnScale": "6"})}
    definition = f"`g` {kind}{'(64)' if of_text else ''}"
    statement = f"CREATE TABLE `t` (`id` INT PRIMARY KEY,`f` {source},{definition}{{}},UNIQUE KEY `u`(`g`))"
    bucket.schema("t", 100, (ID, f, {"ColumnName": "g", "ColumnType": kind, **of_text}), statement.format(" AS (`f`) STORED"), 3)
    bucket.rows("t/100/1", ("I", 110, 1, values[0], values[2]), ("I", 111, 2, values[1], values[3]))
    bucket.checkpoint(120)
    stopped = bucket.run(uri)
    assert stopped.code == EXIT_TABLE_STOPPED
    assert "generated column g converts a value in another way than TiDB" in stopped.stopped["test.t"]

    identity = stopped.stopped["test.t"].rpartition("'100/")[2].partition("'")[0]
    assert main(["ddl", "edit", f"100/{identity}", statement.format(""), "--sink", uri]) == EXIT_OK
    assert bucket.run(uri).code == EXIT_OK
    assert person.run("SELECT id, CAST(g AS CHAR) FROM test.t ORDER BY id") == [(1, values[2]), (2, values[3])]
