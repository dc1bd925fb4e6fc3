"""Sessions on servers whose own settings would change what Headrace writes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pytest
from building import Bucket

from headrace.errors import DefinitionError
from headrace.sinks.base import CheckState
from headrace.sinks.mysql import open_sink, variables
from headrace.sinks.mysql.connection import MySqlSession
from headrace.sinks.mysql.settings import read_settings
from headrace.sinks.mysql.variables import Variable, always, differing, wanted
from server_settings import HOSTILE
from servers import PERSON, MariaDb, documented, running_mariadb

pytestmark = pytest.mark.pipeline

PAGE = Path(__file__).parents[2] / "docs" / "connectors" / "mysql.md"

ALWAYS = always(ddl=True, is_mariadb=True, time_zone="+00:00")


def test_every_variable_is_in_the_page_of_the_connector() -> None:
    page = PAGE.read_text(encoding="utf-8")
    names = {v.name for v in (*ALWAYS, *wanted(ddl=True))} | variables.REFUSED.keys()
    assert [name for name in sorted(names) if f"`{name}`" not in page] == []


@pytest.mark.parametrize(
    ("value", "found", "is_same"),
    [
        ("ON", "1", True),
        ("ON", "on", True),
        ("ON", "OFF", False),
        (0, "0.000000", True),
        (0, "1.000000", False),
        ("OFF", "0", True),
    ],
)
def test_a_value_is_the_same_in_every_spelling_of_the_servers(value: str | int, found: str, is_same: bool) -> None:
    assert Variable("x", value, "…").accepts(found) is is_same


def test_only_what_differs_is_set_and_only_what_the_server_has() -> None:
    found = {"unique_checks": "OFF", "sql_auto_is_null": "OFF", "autocommit": "OFF"}
    assert [v.name for v in differing(wanted(ddl=False), found)] == ["unique_checks"]
    assert [v.name for v in differing(wanted(ddl=True), found)] == ["autocommit", "unique_checks"]


@pytest.fixture(scope="module")
def hostile_server() -> Iterator[MariaDb]:
    """Pipelines are an administrator's here: a session sets ``enforce_storage_engine`` with a right of its own only."""
    with running_mariadb(innodb_buffer_pool_size="64M") as server:
        with server.connect() as connection, connection.cursor() as cursor:
            cursor.execute("CREATE USER plain@'%' IDENTIFIED BY 'p'")
            for statement in documented().on_databases("plain@'%'", ["test"]):
                cursor.execute(statement)
            for name, value in HOSTILE.items():
                cursor.execute(f"SET GLOBAL {name} = %s", (value,))
        yield replace(server, user=PERSON[0], password=PERSON[1])


@pytest.fixture
def hostile(hostile_server: MariaDb) -> Iterator[MariaDb]:
    yield hostile_server
    with hostile_server.connect() as connection, connection.cursor() as cursor:
        # A connection of the test may still be ending.
        cursor.execute("SET SESSION lock_wait_timeout = 60, innodb_lock_wait_timeout = 60")
        cursor.execute("SET SESSION tx_read_only = 0, sql_mode = '', sql_select_limit = 1000")
        cursor.execute("SHOW DATABASES")
        for (name,) in cursor.fetchall():
            if name in ("headrace", "test", "shop"):
                cursor.execute(f"DROP DATABASE {name}")


@pytest.mark.server
@pytest.mark.parametrize("ddl", [False, True], ids=["rows", "schema changes"])
def test_a_session_has_its_values_on_a_server_with_others(hostile: MariaDb, ddl: bool) -> None:
    with hostile.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SET SESSION sql_select_limit = 1000")
        cursor.execute("SHOW GLOBAL VARIABLES")
        server = dict(cursor.fetchall())
    with MySqlSession(read_settings(hostile.uri()), ddl=ddl) as session:
        found = {str(name): str(value) for name, value in session.execute("SHOW SESSION VARIABLES")}
    assert _others(wanted(ddl=ddl), found) == {}
    mode, *rest = always(ddl=ddl, is_mariadb=True, time_zone="+00:00")
    assert set(found["sql_mode"].split(",")) == set(str(mode.value).split(","))
    assert _others(rest, found) == {}
    # That the server's own values are others, so that the test can fail.
    of_server = _others((*ALWAYS, *wanted(ddl=ddl)), server).keys() | {"foreign_key_checks", "character_set_server", "init_connect"}
    assert HOSTILE.keys() - of_server == set()


def _others(pinned: Sequence[Variable], found: Mapping[str, str]) -> dict[str, str]:
    return {v.name: found[v.name] for v in pinned if v.name in found and not v.accepts(found[v.name])}


@pytest.mark.server
def test_a_session_has_its_values(mariadb: MariaDb) -> None:
    """Also on a TiDB (``make test-tidb``)."""
    with MySqlSession(read_settings(mariadb.uri())) as session:
        found = {str(name): str(value) for name, value in session.execute("SHOW SESSION VARIABLES")}
    assert _others(wanted(ddl=False), found) == {}


TIMES = (
    {"ColumnName": "id", "ColumnType": "INT", "ColumnPrecision": "11", "ColumnNullable": "false", "ColumnIsPk": "true"},
    {"ColumnName": "ts", "ColumnType": "TIMESTAMP"},
)


@pytest.mark.server
def test_rows_and_columns_arrive_as_they_are_on_a_server_with_other_values(hostile: MariaDb, tmp_path: Path) -> None:
    """A NULL TIMESTAMP stays one in a table that is created and in a column that is added, and nothing of the ledger is cut off."""
    bucket = Bucket(tmp_path)
    bucket.schema("t", 100, TIMES, "CREATE TABLE `t` (`id` INT PRIMARY KEY,`ts` TIMESTAMP)", 3)
    bucket.write("test/t/100/CDC000001.csv", '"I","t","test",110,1,\\N\n"I","t","test",110,2,"2024-06-05 09:30:23"\n')
    bucket.create("u")
    bucket.rows("u/100/1", "I 110 1 a", "I 110 2 b")
    bucket.checkpoint(120)
    assert bucket.run(sink=hostile.uri()).code == 0
    bucket.schema("t", 200, (*TIMES, TIMES[1] | {"ColumnName": "ts2"}), "ALTER TABLE `t` ADD COLUMN `ts2` TIMESTAMP", 5)
    bucket.rows("u/100/2", "I 210 3 c", "D 210 1 a")
    bucket.checkpoint(300)
    assert bucket.run(sink=hostile.uri()).code == 0
    moment = datetime(2024, 6, 5, 9, 30, 23)
    assert _rows(hostile, "SELECT * FROM test.t ORDER BY id") == [(1, None, None), (2, moment, None)]
    assert _rows(hostile, "SELECT * FROM test.u ORDER BY id") == [(2, "b"), (3, "c")]
    engines = "SELECT DISTINCT engine FROM information_schema.tables WHERE table_schema IN ('headrace', 'test')"
    assert _rows(hostile, engines) == [("InnoDB",)]


@pytest.mark.server
def test_what_the_user_cannot_set_is_refused_by_validate_and_run(hostile: MariaDb, tmp_path: Path) -> None:
    uri = f"mysql://plain:p@{hostile.host}:{hostile.port}/"
    with open_sink(uri) as sink:
        (check,) = sink.check()
    assert check.state is CheckState.FAILED
    assert "enforce_storage_engine = Aria, with which tables are created without transactions" in check.detail
    assert "Set it to InnoDB in the server's configuration" in check.advice
    bucket = Bucket(tmp_path)
    bucket.create("t")
    bucket.checkpoint(120)
    with pytest.raises(DefinitionError, match="enforce_storage_engine = Aria"):
        bucket.run(sink=uri)


@pytest.mark.server
def test_a_user_without_privileges_gets_the_rest_of_the_values(hostile: MariaDb, tmp_path: Path) -> None:
    """``init_connect`` counts for such a user, and switches autocommit off."""
    with hostile.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SET GLOBAL enforce_storage_engine = NULL")
    try:
        bucket = Bucket(tmp_path)
        bucket.create("t")
        bucket.rows("t/100/1", "I 110 1 a", "I 110 2 b")
        bucket.checkpoint(120)
        assert bucket.run(sink=f"mysql://plain:p@{hostile.host}:{hostile.port}/").code == 0
        assert _rows(hostile, "SELECT * FROM test.t ORDER BY id") == [(1, "a"), (2, "b")]
    finally:
        with hostile.connect() as connection, connection.cursor() as cursor:
            cursor.execute("SET GLOBAL enforce_storage_engine = 'Aria'")


def _rows(server: MariaDb, query: str) -> list[tuple[object, ...]]:
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SET SESSION time_zone = '+00:00', sql_select_limit = 1000, sql_mode = ''")
        cursor.execute(query)
        return list(cursor.fetchall())


# What a TiDB 8.5 makes of them (``make test-tidb`` says it again).
ROUNDED = [
    ("DATETIME(6)", "2024-06-05 23:59:59.900000", "DATETIME", "2024-06-06 00:00:00"),
    ("DATETIME(6)", "2024-06-05 23:59:59.500000", "DATETIME", "2024-06-06 00:00:00"),
    ("DATETIME(6)", "2024-06-05 23:59:59.499999", "DATETIME", "2024-06-05 23:59:59"),
    ("DATETIME(6)", "2024-12-31 23:59:59.999950", "DATETIME(4)", "2025-01-01 00:00:00.0000"),
    ("TIMESTAMP(6)", "2024-06-05 23:59:59.900000", "TIMESTAMP", "2024-06-06 00:00:00"),
    ("TIME(6)", "10:00:00.700000", "TIME", "10:00:01"),
    ("DATETIME(6)", "2024-06-05 23:59:59.900000", "DATE", "2024-06-05"),
    ("DATETIME(6)", "2024-06-05 23:59:59.900000", "TIME", "24:00:00"),
    ("DATETIME(6)", "2024-06-05 23:59:59.900000", "TIMESTAMP", "2024-06-06 00:00:00"),
    ("DATETIME(6)", "0000-00-00 00:00:00.900000", "DATETIME", "0000-00-00 00:00:01"),
    ("VARCHAR(40)", "2024-06-05 23:59:59.9", "DATETIME", "2024-06-06 00:00:00"),
]


@pytest.mark.server
def test_a_column_that_loses_digits_of_its_times_rounds_them_as_tidb_does(mariadb: MariaDb) -> None:
    found = []
    with MySqlSession(read_settings(mariadb.uri()), ddl=True) as session:
        session.run("CREATE DATABASE shop")
        for number, (old, value, new, _) in enumerate(ROUNDED):
            session.run(f"CREATE TABLE shop.t{number} (id INT PRIMARY KEY, x {old} NULL)")
            session.execute(f"INSERT INTO shop.t{number} VALUES (1, ?)", (value,))
            session.run(f"ALTER TABLE shop.t{number} MODIFY COLUMN x {new} NULL")
            found.append((old, value, new, session.scalar(f"SELECT CAST(x AS CHAR) FROM shop.t{number}")))
    assert found == ROUNDED


@pytest.mark.server
def test_a_row_with_more_digits_than_its_column_is_rounded_too(mariadb: MariaDb) -> None:
    with MySqlSession(read_settings(mariadb.uri()), ddl=True) as session:
        session.run("CREATE DATABASE shop")
        session.run("CREATE TABLE shop.t (id INT PRIMARY KEY, x DATETIME)")
    with MySqlSession(read_settings(mariadb.uri())) as session:
        session.execute("REPLACE INTO shop.t VALUES (1, '2024-06-05 23:59:59.900000')")
        assert session.scalar("SELECT CAST(x AS CHAR) FROM shop.t") == "2024-06-06 00:00:00"
