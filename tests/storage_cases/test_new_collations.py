"""Sources that compare texts byte by byte, whatever collations their tables name (``new-collations=false``)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from building import TEXT_KEY, Bucket

from headrace.ddl.told import source_tables
from headrace.model.uri import parse_uri
from headrace.pipeline.registry import open_sink, open_source
from headrace.sinks.base import CheckState
from headrace.sinks.mysql.adaptation import Server, UnadaptableError, adapt_for
from headrace.sinks.mysql.collation import create_database, create_table, spell_out
from headrace.sources.ticdc_storage.options import read_options
from servers import MariaDb
from storage_folder import OPTIONS

pytestmark = pytest.mark.pipeline

BYTES = "utf8mb4_0900_bin"
VALUE: dict[str, Any] = {"ColumnName": "v", "ColumnType": "INT", "ColumnPrecision": "11"}
ADDED: dict[str, Any] = {"ColumnName": "w", "ColumnType": "VARCHAR", "ColumnPrecision": "8"}


@pytest.mark.parametrize(("query", "expected"), [("", None), ("new-collations=true", True), ("new-collations=false", False)])
def test_the_setting_is_read_from_the_sources_uri(query: str, expected: bool | None) -> None:
    assert read_options(parse_uri(f"file:///feed?protocol=csv&{query}")).new_collations is expected


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("CREATE TABLE t (k VARCHAR(9))", f"CREATE TABLE t (k VARCHAR(9)) DEFAULT CHARACTER SET utf8mb4 COLLATE {BYTES}"),
        (
            "CREATE TABLE t (k CHAR CHARSET gbk, b TEXT COLLATE utf8mb4_general_ci) COLLATE=utf8mb4_unicode_ci COMMENT 'CHARSET x'",
            f"CREATE TABLE t (k CHAR CHARSET utf8mb4 COLLATE {BYTES}, b TEXT COLLATE {BYTES}) COLLATE={BYTES} COMMENT 'CHARSET x'",
        ),
        (
            "CREATE TABLE t (k VARCHAR(9) CHARSET binary)",
            f"CREATE TABLE t (k VARCHAR(9) CHARSET binary) DEFAULT CHARACTER SET utf8mb4 COLLATE {BYTES}",
        ),
        (
            "CREATE TABLE t (k VARCHAR(9) BINARY, b CHAR(9) BINARY CHARACTER SET utf8, c TEXT CHARSET utf8 BINARY, d BINARY(3))",
            f"CREATE TABLE t (k VARCHAR(9), b CHAR(9) CHARACTER SET utf8mb4 COLLATE {BYTES}, "
            f"c TEXT CHARSET utf8mb4 COLLATE {BYTES}, d BINARY(3)) DEFAULT CHARACTER SET utf8mb4 COLLATE {BYTES}",
        ),
    ],
)
def test_a_table_gets_a_collation_that_compares_bytes(statement: str, expected: str) -> None:
    assert create_table(statement, BYTES, by_bytes=True) == expected


def test_databases_and_alters_get_it_too() -> None:
    assert create_database("CREATE DATABASE d CHARACTER SET utf8", by_bytes=True) == (
        f"CREATE DATABASE d CHARACTER SET utf8mb4 COLLATE {BYTES}"
    )
    for action in ("MODIFY COLUMN k VARCHAR(9) COLLATE {}", "CONVERT TO CHARACTER SET utf8mb4 COLLATE {}", "COLLATE {}"):
        statement = f"ALTER TABLE t {action}"
        assert spell_out(statement.format("utf8mb4_general_ci"), by_bytes=True) == statement.format(BYTES)
    assert spell_out("ALTER TABLE t ADD COLUMN c TEXT CHARSET latin1", by_bytes=True) == (
        f"ALTER TABLE t ADD COLUMN c TEXT CHARSET utf8mb4 COLLATE {BYTES}"
    )


@pytest.mark.parametrize("server", ["MySQL", "TiDB"])
def test_a_server_without_such_a_collation_refuses(server: str) -> None:
    """MySQL 5.7 has none that does not pad, nor has a TiDB before 7.4 with new collations."""
    with pytest.raises(UnadaptableError, match=f"{server} has no collation utf8mb4_0900_bin"):
        adapt_for(f"CREATE TABLE t (k VARCHAR(9)) COLLATE {BYTES}", Server(server, knows_collation=lambda _: False))


def test_the_attribute_binary_stays_the_binary_collation_of_its_character_set() -> None:
    for definition in ("CHAR(9) BINARY CHARACTER SET gbk", "CHAR(9) CHARACTER SET gbk BINARY", "VARCHAR(9) BINARY"):
        assert spell_out(f"CREATE TABLE t (k {definition})") == f"CREATE TABLE t (k {definition})"


def _bucket(folder: Path, options: str) -> Bucket:
    bucket = Bucket(folder, options)
    statement = "CREATE TABLE `t` (`k` VARCHAR(16) PRIMARY KEY,`v` INT) DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_general_ci"
    bucket.schema("t", 100, (TEXT_KEY, VALUE), statement, 3)
    lines = [f'"I","t","test",{110 + n},"{key}",{n}\n' for n, key in enumerate(("A", "a", "a ", "é"))]
    bucket.write("test/t/100/CDC000001.csv", "".join(lines))
    bucket.schema("s", 100, (TEXT_KEY, VALUE))
    bucket.write("test/s/100/CDC000001.csv", "".join(line.replace('"t"', '"s"') for line in lines))
    bucket.checkpoint(120)
    return bucket


@pytest.mark.server
def test_keys_that_differ_in_a_byte_are_rows_of_their_own(mariadb: MariaDb, tmp_path: Path) -> None:
    """In a table that is created, in one that is known by its shape alone, and after an ALTER of the key's column."""
    bucket = _bucket(tmp_path, f"{OPTIONS}&new-collations=false")
    assert bucket.run(sink=mariadb.uri()).code == 0
    alter = "ALTER TABLE `t` MODIFY COLUMN `k` VARCHAR(16) COLLATE utf8mb4_general_ci NOT NULL"
    bucket.schema("t", 200, (TEXT_KEY, VALUE), alter, 12)
    bucket.schema("s", 200, (TEXT_KEY, VALUE, ADDED), "ALTER TABLE `s` ADD COLUMN `w` VARCHAR(8) CHARSET utf8mb4 UNIQUE", 5)
    bucket.write("test/t/200/CDC000001.csv", '"I","t","test",210,"E",4\n"D","t","test",211,"A",0\n')
    bucket.write("test/s/200/CDC000001.csv", '"I","s","test",210,"E",4,"x"\n"I","s","test",210,"e",5,"X"\n')
    bucket.checkpoint(300)
    assert bucket.run(sink=mariadb.uri()).code == 0
    with mariadb.connect(database="test") as connection, connection.cursor() as cursor:
        cursor.execute("SELECT default_collation_name FROM information_schema.schemata WHERE schema_name = 'test'")
        assert cursor.fetchall() == (("utf8mb4_nopad_bin",),)
        cursor.execute("SELECT HEX(k), v FROM t")
        assert set(cursor.fetchall()) == {("61", 1), ("6120", 2), ("C3A9", 3), ("45", 4)}
        cursor.execute("SELECT HEX(k), v, w FROM s")
        assert set(cursor.fetchall()) == {
            ("41", 0, None),
            ("61", 1, None),
            ("6120", 2, None),
            ("C3A9", 3, None),
            ("45", 4, "x"),
            ("65", 5, "X"),
        }


@pytest.mark.server
def test_validate_names_a_key_that_compares_by_a_collation(mariadb: MariaDb, tmp_path: Path) -> None:
    with mariadb.connect() as connection, connection.cursor() as cursor:
        cursor.execute("CREATE DATABASE test")
        cursor.execute("CREATE TABLE test.t (k VARCHAR(16) COLLATE utf8mb4_general_ci PRIMARY KEY, v INT)")
    bucket = _bucket(tmp_path, f"{OPTIONS}&new-collations=false")
    source = open_source(bucket.folder.uri(bucket.options)).event_source
    tables = source_tables(source.poll("", 0).schema_changes)
    with open_sink(mariadb.uri()) as sink:
        checks = [check for check in sink.check_tables("p", list(tables.values())) if check.name == "collations"]
    assert [check.state for check in checks] == [CheckState.FAILED]
    assert "utf8mb4_nopad_bin" in checks[0].advice
