"""A column of the target that holds values less exactly than the source's stops its table, where the server would not warn."""

from __future__ import annotations

from pathlib import Path

import pytest
from building import Bucket

from headrace.ddl.told import source_tables
from headrace.errors import EXIT_OK, EXIT_TABLE_STOPPED
from headrace.model.policy import SchemaChangePolicies
from headrace.pipeline.registry import open_sink, open_source
from headrace.sinks.base import Check, CheckState
from person import Person
from servers import MariaDb
from storage_folder import ID
from targets import MariaDbTarget

pytestmark = [pytest.mark.pipeline, pytest.mark.server]

TIME = "2024-01-01 01:00:00.100000"
COARSER = [
    ("DATETIME", {"ColumnType": "DATETIME", "ColumnScale": "6"}, "datetime", TIME),
    ("TIMESTAMP", {"ColumnType": "TIMESTAMP", "ColumnScale": "6"}, "timestamp(3)", TIME),
    ("TIME", {"ColumnType": "TIME", "ColumnScale": "6"}, "time", "01:00:00.700000"),
    ("DOUBLE", {"ColumnType": "DOUBLE"}, "float", "1.123456789012"),
    ("FLOAT", {"ColumnType": "FLOAT"}, "int", "1.6"),
    ("DECIMAL", {"ColumnType": "DECIMAL", "ColumnPrecision": "20", "ColumnScale": "3"}, "bigint", "1.600"),
    ("DECIMAL", {"ColumnType": "DECIMAL", "ColumnPrecision": "20", "ColumnScale": "0"}, "double", "12345678901234567890"),
    ("BIGINT", {"ColumnType": "BIGINT", "ColumnPrecision": "20"}, "double", "9007199254740993"),
]


def precision(bucket: Bucket, mariadb: MariaDb) -> Check:
    source = open_source(bucket.folder.uri(bucket.options)).event_source
    tables = list(source_tables(source.poll("", 0).schema_changes).values())
    with open_sink(mariadb.uri()) as sink:
        (found,) = (check for check in sink.check_tables("default", tables) if check.name == "precision")
    return found


@pytest.mark.parametrize(("kind", "column", "held", "value"), COARSER)
def test_a_table_that_was_there_before_stops(
    mariadb: MariaDb, tmp_path: Path, kind: str, column: dict[str, str], held: str, value: str
) -> None:
    bucket, person = Bucket(tmp_path), Person(MariaDbTarget(mariadb), mariadb)
    person.run("CREATE DATABASE test", f"CREATE TABLE test.t (id INT PRIMARY KEY, c {held} NULL)")
    bucket.schema("t", 100, (ID, {"ColumnName": "c", **column}), "", 0)
    bucket.rows("t/100/1", ("I", 110, 1, value))
    bucket.checkpoint(150)
    ran = bucket.run(mariadb.uri(), adopt=True)
    assert (ran.code, person.run("SELECT id FROM test.t")) == (EXIT_TABLE_STOPPED, [])
    assert f"and would round values of the source's {kind}" in ran.stopped["test.t"]
    assert f"and would round values of the source's {kind}" in precision(bucket, mariadb).detail
    digits = f"({', '.join(filter(None, (column.get('ColumnPrecision'), column.get('ColumnScale'))))})"
    person.run(f"ALTER TABLE test.t MODIFY c {kind}{digits if len(digits) > 2 and kind != 'BIGINT' else ''} NULL")
    assert precision(bucket, mariadb).state is CheckState.OK
    assert bucket.run(mariadb.uri(), adopt=True).code == EXIT_OK
    assert [str(held) for (held,) in person.run("SELECT CAST(c AS CHAR) FROM test.t")] == [value]


def test_a_skipped_change_of_a_type_rounds_nothing(mariadb: MariaDb, tmp_path: Path) -> None:
    bucket, person = Bucket(tmp_path), Person(MariaDbTarget(mariadb), mariadb)
    whole, fine = ({"ColumnName": "c", "ColumnType": "DATETIME", "ColumnScale": digits} for digits in ("0", "6"))
    bucket.schema("t", 100, (ID, whole), "CREATE TABLE `t` (`id` INT PRIMARY KEY,`c` DATETIME)", 3)
    bucket.rows("t/100/1", ("I", 110, 1, "2024-01-01 01:00:00"))
    bucket.schema("t", 200, (ID, fine), "ALTER TABLE `t` MODIFY `c` DATETIME(6)", 12)
    bucket.rows("t/200/1", ("I", 210, 2, TIME))
    bucket.checkpoint(250)
    policies = SchemaChangePolicies.parse_text("alter-column=skip")
    for _ in range(2):
        ran = bucket.run(mariadb.uri(), policies=policies)
        assert (ran.code, person.run("SELECT id FROM test.t")) == (EXIT_TABLE_STOPPED, [(1,)])
    assert "column c: the target's column is DATETIME and would round" in ran.stopped["test.t"]
