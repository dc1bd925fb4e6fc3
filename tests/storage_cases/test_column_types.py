"""A column of the target that does not hold the source's values as they are stops its table, where the server would not warn."""

from __future__ import annotations

import base64
import re
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
from storage_folder import ID, V
from targets import MariaDbTarget

pytestmark = [pytest.mark.pipeline, pytest.mark.server]

TIME = "2024-01-01 01:00:00.100000"
TEXT = {"ColumnType": "VARCHAR", "ColumnPrecision": "32"}
OTHER = [
    ("DATETIME", {"ColumnType": "DATETIME", "ColumnScale": "6"}, "datetime", TIME),
    ("TIMESTAMP", {"ColumnType": "TIMESTAMP", "ColumnScale": "6"}, "timestamp(3)", TIME),
    ("TIME", {"ColumnType": "TIME", "ColumnScale": "6"}, "time", "01:00:00.700000"),
    ("DOUBLE", {"ColumnType": "DOUBLE"}, "float", "1.123456789012"),
    ("FLOAT", {"ColumnType": "FLOAT"}, "int", "1.6"),
    ("FLOAT", {"ColumnType": "FLOAT", "ColumnPrecision": "12"}, "float(7,0)", "1.6"),
    ("DOUBLE", {"ColumnType": "DOUBLE"}, "double(10,2)", "1.123"),
    ("DOUBLE", {"ColumnType": "DOUBLE", "ColumnPrecision": "10", "ColumnScale": "3"}, "double(10,2)", "1.125"),
    ("DECIMAL", {"ColumnType": "DECIMAL", "ColumnPrecision": "20", "ColumnScale": "3"}, "bigint", "1.600"),
    ("DECIMAL", {"ColumnType": "DECIMAL", "ColumnPrecision": "20", "ColumnScale": "0"}, "double", "12345678901234567890"),
    ("BIGINT", {"ColumnType": "BIGINT", "ColumnPrecision": "20"}, "double", "9007199254740993"),
    ("INT", {"ColumnType": "INT", "ColumnPrecision": "11"}, "float", "16777217"),
    ("INT", {"ColumnType": "INT", "ColumnPrecision": "11"}, "year", "24"),
    ("INT", {"ColumnType": "INT", "ColumnPrecision": "11"}, "bit(8)", "5"),
    ("TIME", {"ColumnType": "TIME"}, "datetime", "01:00:00"),
    *(("VARCHAR", TEXT, held, "01") for held in ("int", "decimal(9,1)", "date", "year", "enum('01','1')", "binary(4)", "inet6")),
    ("VARCHAR", TEXT, "char(9)", "a "),
    ("BINARY", {"ColumnType": "BINARY", "ColumnPrecision": "2"}, "binary(4)", "YWI="),
]


def types(bucket: Bucket, mariadb: MariaDb) -> Check:
    source = open_source(bucket.folder.uri(bucket.options)).event_source
    tables = list(source_tables(source.poll("", 0).schema_changes).values())
    with open_sink(mariadb.uri()) as sink:
        (found,) = (check for check in sink.check_tables("default", tables) if check.name == "types")
    return found


@pytest.mark.parametrize(("kind", "column", "held", "value"), OTHER)
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
    assert f"which cannot hold every value of the source's {kind}" in ran.stopped["test.t"]
    assert f"which cannot hold every value of the source's {kind}" in types(bucket, mariadb).detail
    size = [column.get("ColumnPrecision"), column.get("ColumnScale")] if kind not in ("BIGINT", "INT") else []
    sizes = ", ".join(filter(None, size))
    person.run(f"ALTER TABLE test.t MODIFY c {kind}{f'({sizes})' if sizes else ''} NULL")
    assert types(bucket, mariadb).state is CheckState.OK
    assert bucket.run(mariadb.uri(), adopt=True).code == EXIT_OK
    text = base64.b64decode(value).decode() if kind == "BINARY" else value
    assert [str(held) for (held,) in person.run("SELECT CAST(c AS CHAR) FROM test.t")] == [text]


NARROW = [
    (TEXT, "varchar(3)", "four", "VARCHAR(32)"),
    (TEXT, "varchar(32) not null", None, "VARCHAR(32)"),
    ({"ColumnType": "TEXT", "ColumnPrecision": "65535"}, "tinytext", "a" * 256, "TEXT"),
    ({"ColumnType": "VARBINARY", "ColumnPrecision": "9"}, "varbinary(2)", "YWFh", "VARBINARY(9)"),
    ({"ColumnType": "BIGINT", "ColumnPrecision": "20"}, "int", "4294967296", "BIGINT"),
    ({"ColumnType": "INT", "ColumnPrecision": "11"}, "int unsigned", "-1", "INT"),
    ({"ColumnType": "DECIMAL", "ColumnPrecision": "9", "ColumnScale": "2"}, "decimal(6,2)", "12345.00", "DECIMAL(9, 2)"),
]


@pytest.mark.parametrize(("column", "held", "value", "told"), NARROW)
def test_validate_warns_of_a_column_that_is_too_narrow(
    mariadb: MariaDb, tmp_path: Path, column: dict[str, str], held: str, value: str | None, told: str
) -> None:
    bucket, person = Bucket(tmp_path), Person(MariaDbTarget(mariadb), mariadb)
    person.run("CREATE DATABASE test", f"CREATE TABLE test.t (id INT PRIMARY KEY, c {held})")
    bucket.schema("t", 100, (ID, {"ColumnName": "c", **column}), "", 0)
    bucket.rows("t/100/1", ("I", 110, 1, value))
    bucket.checkpoint(150)
    found = types(bucket, mariadb)
    assert found.state is CheckState.WARNING
    shown = held.partition("(")[0].partition(" ")[0].upper()
    assert re.match(rf"test\.t, column c: the target's column is {shown}.*, the source's {re.escape(told)}", found.detail)
    assert bucket.run(mariadb.uri(), adopt=True).code == EXIT_TABLE_STOPPED
    person.run(f"ALTER TABLE test.t MODIFY c {told} NULL")
    assert types(bucket, mariadb).state is CheckState.OK
    assert bucket.run(mariadb.uri(), adopt=True).code == EXIT_OK


@pytest.mark.parametrize(("kind", "held"), [("TIMESTAMP", "TIMESTAMP NOT NULL"), ("INT", "INT AUTO_INCREMENT, KEY (c)")])
def test_a_column_that_makes_a_value_of_null_is_refused(mariadb: MariaDb, tmp_path: Path, kind: str, held: str) -> None:
    bucket, person = Bucket(tmp_path), Person(MariaDbTarget(mariadb), mariadb)
    person.run("CREATE DATABASE test", f"CREATE TABLE test.t (id INT PRIMARY KEY, c {held})")
    bucket.schema("t", 100, (ID, {"ColumnName": "c", "ColumnType": kind}), "", 0)
    bucket.rows("t/100/1", ("I", 110, 1, None))
    bucket.checkpoint(150)
    assert (
        "replaces NULL, which the source's may hold, with a value of its own"
        in bucket.run(mariadb.uri(), adopt=True).stopped["test.t"]
    )
    person.run(f"ALTER TABLE test.t MODIFY c {kind} NULL")
    assert bucket.run(mariadb.uri(), adopt=True).code == EXIT_OK
    assert person.run("SELECT c FROM test.t") == [(None,)]


def test_a_text_of_the_character_set_binary_is_bytes(mariadb: MariaDb, tmp_path: Path) -> None:
    bucket, person = Bucket(tmp_path), Person(MariaDbTarget(mariadb), mariadb)
    first, second = ({"ColumnName": name, "ColumnType": "VARBINARY", "ColumnPrecision": "8"} for name in "cd")
    created = "CREATE TABLE `t` (`id` INT PRIMARY KEY,`c` VARCHAR(8) CHARACTER SET BINARY)"
    bucket.schema("t", 100, (ID, first), created, 3)
    added = "ALTER TABLE `t` ADD COLUMN `d` VARCHAR(8) CHARACTER SET binary COLLATE binary"
    bucket.schema("t", 120, (ID, first, second), added, 5)
    bucket.rows("t/120/1", ("I", 130, 1, "/wA=", "YQ=="))
    bucket.checkpoint(150)
    ran = bucket.run(mariadb.uri())
    assert (ran.code, ran.stopped) == (EXIT_OK, {})
    assert person.run("SELECT c, d FROM test.t") == [(b"\xff\x00", b"a")]


MEMBERS = {"ColumnName": "c", "ColumnElems": ["a", "10", "x y", "l'été", "😀", "a\\b"]}


@pytest.mark.parametrize("kind", ["ENUM", "SET"])
@pytest.mark.parametrize("held", ["'10','a'", "'A','10','x y','l''été','😀','a\\\\b'"])
def test_other_members_are_not_taken_for_the_sources(mariadb: MariaDb, tmp_path: Path, kind: str, held: str) -> None:
    """A text that is no member may be one in another case, or the number of one."""
    bucket, person = Bucket(tmp_path), Person(MariaDbTarget(mariadb), mariadb)
    person.run("CREATE DATABASE test", f"CREATE TABLE test.t (id INT PRIMARY KEY, c {kind}({held}) NULL) CHARSET utf8mb4")
    bucket.schema("t", 100, (ID, {**MEMBERS, "ColumnType": kind}), "", 0)
    bucket.rows("t/100/1", ("I", 110, 1, "a"))
    bucket.checkpoint(150)
    assert "cannot hold every value of the source's" in bucket.run(mariadb.uri(), adopt=True).stopped["test.t"]
    assert types(bucket, mariadb).state is CheckState.FAILED
    everything = "'x y','q','a','10','l''été','😀','a\\\\b'"
    person.run(f"ALTER TABLE test.t MODIFY c {kind}({everything}) NULL")
    assert types(bucket, mariadb).state is CheckState.OK
    assert bucket.run(mariadb.uri(), adopt=True).code == EXIT_OK
    assert person.run("SELECT c FROM test.t") == [("a",)]


def skips(bucket: Bucket, mariadb: MariaDb) -> str:
    """Lets a change of a column's type be skipped, then rows come; returns why the table stopped."""
    policies = SchemaChangePolicies.parse_text("alter-column=skip")
    for _ in range(2):
        ran = bucket.run(mariadb.uri(), policies=policies)
        assert ran.code == EXIT_TABLE_STOPPED
    return ran.stopped["test.t"]


def test_a_skipped_change_of_a_type_rounds_nothing(mariadb: MariaDb, tmp_path: Path) -> None:
    bucket, person = Bucket(tmp_path), Person(MariaDbTarget(mariadb), mariadb)
    whole, fine = ({"ColumnName": "c", "ColumnType": "DATETIME", "ColumnScale": digits} for digits in ("0", "6"))
    bucket.schema("t", 100, (ID, whole), "CREATE TABLE `t` (`id` INT PRIMARY KEY,`c` DATETIME)", 3)
    bucket.rows("t/100/1", ("I", 110, 1, "2024-01-01 01:00:00"))
    bucket.schema("t", 200, (ID, fine), "ALTER TABLE `t` MODIFY `c` DATETIME(6)", 12)
    bucket.rows("t/200/1", ("I", 210, 2, TIME))
    bucket.checkpoint(250)
    assert "column c: the target's column is DATETIME, which cannot hold" in skips(bucket, mariadb)
    assert person.run("SELECT id FROM test.t") == [(1,)]


def test_a_change_of_a_type_behind_one_that_was_skipped_converts_nothing_otherwise(mariadb: MariaDb, tmp_path: Path) -> None:
    """The source's text was converted from FLOAT by TiDB, and the target still has a FLOAT."""
    bucket, person = Bucket(tmp_path), Person(MariaDbTarget(mariadb), mariadb)
    number, text = {"ColumnName": "c", "ColumnType": "FLOAT"}, {"ColumnName": "c", "ColumnType": "VARCHAR", "ColumnPrecision": "50"}
    bucket.schema("t", 100, (ID, number), "CREATE TABLE `t` (`id` INT PRIMARY KEY,`c` FLOAT)", 3)
    bucket.rows("t/100/1", ("I", 110, 1, "1.123457"))
    bucket.schema("t", 200, (ID, text), "ALTER TABLE `t` MODIFY `c` VARCHAR(50)", 12)
    bucket.checkpoint(250)
    assert bucket.run(mariadb.uri(), policies=SchemaChangePolicies.parse_text("alter-column=skip")).code == EXIT_OK
    bucket.schema("t", 300, (ID, {**text, "ColumnPrecision": "100"}), "ALTER TABLE `t` MODIFY `c` VARCHAR(100)", 12)
    bucket.checkpoint(350)
    assert "the target's column is FLOAT, where the source had VARCHAR" in bucket.run(mariadb.uri()).stopped["test.t"]
    shown = "SELECT data_type FROM information_schema.columns WHERE table_schema = 'test' AND column_name = 'c'"
    assert person.run(shown) == [("float",)]


@pytest.mark.parametrize("later", ["a key", "a computed key"])
def test_a_key_over_a_column_whose_change_was_skipped_makes_no_row_of_two(mariadb: MariaDb, tmp_path: Path, later: str) -> None:
    bucket, person = Bucket(tmp_path), Person(MariaDbTarget(mariadb), mariadb)
    number, text = ({"ColumnName": "c", "ColumnType": kind, "ColumnPrecision": "16"} for kind in ("INT", "VARCHAR"))
    bucket.schema("t", 100, (ID, number), "CREATE TABLE `t` (`id` INT PRIMARY KEY,`c` INT)", 3)
    bucket.rows("t/100/1", ("I", 110, 5, 5))
    bucket.schema("t", 200, (ID, text), "ALTER TABLE `t` MODIFY `c` VARCHAR(16)", 12)
    computed = "ALTER TABLE `t` ADD COLUMN `g` VARCHAR(16) AS (concat(`c`,'')) VIRTUAL, ADD UNIQUE KEY `u` (`g`)"
    bucket.schema("t", 210, (ID, text), "ALTER TABLE `t` ADD UNIQUE KEY `u` (`c`)" if later == "a key" else computed, 7)
    bucket.rows("t/210/1", ("I", 220, 1, "1"), ("I", 221, 2, "01"))
    bucket.checkpoint(250)
    assert "column c: the target's column is INT, which cannot hold" in skips(bucket, mariadb)
    assert person.run("SELECT id, c FROM test.t") == [(5, 5)]


@pytest.mark.parametrize("clause", ["ADD COLUMN `b` INT", "MODIFY `c` VARBINARY(4) DEFAULT x'ff01'", "RENAME COLUMN `c` TO `d`"])
def test_a_default_with_bytes_that_are_no_text_ends_no_run(mariadb: MariaDb, tmp_path: Path, clause: str) -> None:
    """The server shows it as it is, in a statement that is text otherwise."""
    bucket, person = Bucket(tmp_path), Person(MariaDbTarget(mariadb), mariadb)
    binary = {"ColumnName": "c", "ColumnType": "VARBINARY", "ColumnPrecision": "4", "ColumnDefault": "\x00\ufffd"}
    created = "CREATE TABLE `t` (`id` INT PRIMARY KEY,`c` VARBINARY(4) NOT NULL DEFAULT x'00ff')"
    bucket.schema("t", 100, (ID, binary), created, 3)
    bucket.rows("t/100/1", ("I", 110, 1, "YWI="))
    shape = (ID, binary, {"ColumnName": "b", "ColumnType": "INT"}) if "ADD" in clause else (ID, binary)
    shape = (ID, binary | {"ColumnName": "d"}) if "RENAME" in clause else shape
    bucket.schema("t", 200, shape, f"ALTER TABLE `t` {clause}", 5)
    bucket.rows("t/200/1", ("I", 210, 2, "YWI=", *([3] if "ADD" in clause else [])))
    bucket.checkpoint(250)
    assert bucket.run(mariadb.uri()).code == EXIT_OK
    assert person.run("SELECT id FROM test.t ORDER BY id") == [(1,), (2,)]


@pytest.mark.parametrize(
    ("definition", "size", "filled"),
    [
        ("DECIMAL(65,30) NOT NULL DEFAULT 1.5", ("65", "30"), "1.5" + "0" * 29),
        ("DECIMAL(40,0) DEFAULT 12345678901234567890123456789", ("40", "0"), "12345678901234567890123456789"),
    ],
)
def test_a_long_decimal_fills_rows_with_all_its_digits(tmp_path: Path, definition: str, size: tuple[str, str], filled: str) -> None:
    bucket = Bucket(tmp_path)
    bucket.create("t")
    bucket.rows("t/100/1", "I 110 1 a")
    default = definition.rpartition(" ")[2]
    y = {"ColumnName": "y", "ColumnType": "DECIMAL", "ColumnPrecision": size[0], "ColumnScale": size[1], "ColumnDefault": default}
    bucket.schema("t", 200, (ID, V, y), f"ALTER TABLE `t` ADD COLUMN `y` {definition}", 5)
    bucket.checkpoint(250)
    assert bucket.run(f"{bucket.sink}?unsupported=text").code == EXIT_OK
    assert bucket.state() == [(1, "a", filled)]


@pytest.mark.parametrize(
    ("before", "after", "fitting", "lossy"),
    [
        (("INT", "11", ""), ("VARCHAR", "16", ""), "1", "01"),
        (("DECIMAL", "10", "2"), ("DECIMAL", "12", "4"), "1.2500", "1.2345"),
        (("FLOAT", "", ""), ("DOUBLE", "", ""), "1.5", "1.1"),
        (("VARCHAR", "16", ""), ("VARBINARY", "16", ""), "YWI=", "/w=="),
        (("DATE", "", ""), ("DATETIME", "", ""), "2024-01-01 00:00:00", "2024-01-01 01:00:00"),
        (("DATETIME", "", ""), ("VARCHAR", "32", ""), "2024-01-01 00:00:00", "2024-1-1"),
    ],
)
def test_duckdb_refuses_what_a_column_of_another_type_would_change(
    tmp_path: Path, before: tuple[str, str, str], after: tuple[str, str, str], fitting: str, lossy: str
) -> None:
    bucket, policies = Bucket(tmp_path), SchemaChangePolicies.parse_text("alter-column=skip")
    names = ("ColumnType", "ColumnPrecision", "ColumnScale")
    old, new = ({"ColumnName": "c", **{n: v for n, v in zip(names, kind, strict=True) if v}} for kind in (before, after))
    bucket.schema("t", 100, (ID, old), "CREATE TABLE `t` (`id` INT PRIMARY KEY,`c` INT)", 3)
    bucket.schema("t", 200, (ID, new), "ALTER TABLE `t` MODIFY `c` INT", 12)
    bucket.rows("t/200/1", ("I", 210, 1, fitting))
    assert bucket.at(250, policies=policies).code == EXIT_OK
    bucket.rows("t/200/2", ("I", 260, 2, fitting), ("I", 261, 3, lossy))
    ran = bucket.at(300, policies=policies)
    assert (ran.code, [row[0] for row in bucket.state() or []]) == (EXIT_TABLE_STOPPED, [1])
    assert "cannot hold this value" in ran.stopped["test.t"]
    assert 'Give the column that type: ALTER TABLE "test"."t" ALTER "c" TYPE' in ran.stopped["test.t"]
