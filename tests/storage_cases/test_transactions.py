"""Tables and ledgers whose engine has no transactions: nothing that was written of a cut can be taken back there."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import patch

import pytest
from building import Bucket

from headrace.errors import EXIT_OK, EXIT_TABLE_STOPPED, DefinitionError
from headrace.sinks.mysql.connection import MySqlSession
from headrace.sinks.mysql.fence import Fence
from servers import MariaDb, running_mariadb

pytestmark = pytest.mark.server

N = {"ColumnName": "a", "ColumnType": "INT"}
ENGINES = ("MyISAM", "Aria", "MEMORY")


def query(server: MariaDb, *statements: str) -> list[tuple[object, ...]]:
    """The rows of the last statement."""
    with server.connect() as connection, connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)
        return list(cursor.fetchall())


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("allowed", [False, True])
def test_a_table_without_key_stops(mariadb: MariaDb, tmp_path: Path, engine: str, allowed: bool) -> None:
    """A transaction that was repeated would double its rows."""
    bucket = Bucket(tmp_path)
    query(mariadb, "CREATE DATABASE test", f"CREATE TABLE test.n (a INT) ENGINE={engine}")
    bucket.schema("n", 100, (N,), "CREATE TABLE `n` (`a` INT)", 3)
    bucket.rows("n/100/1", ("I", 110, 1), ("I", 110, 2))
    bucket.checkpoint(120)
    ran = bucket.run(mariadb.uri(), allow_non_transactional=allowed)
    assert ran.code == EXIT_TABLE_STOPPED
    (problem,) = ran.problems
    assert f"the target's engine {engine} has no transactions" in problem.message
    assert "doubled" in problem.message
    assert problem.hint == "Run ALTER TABLE `test`.`n` ENGINE=InnoDB; in the target."
    query(mariadb, "ALTER TABLE test.n ENGINE=InnoDB")
    prove, breaks = Fence.prove, [OSError("the connection broke off before COMMIT")]

    def broken_off(fence: Fence, session: MySqlSession, context: object) -> None:
        if breaks:
            session.close()
            raise breaks.pop()
        prove(fence, session, context)  # type: ignore[arg-type]

    with patch.object(Fence, "prove", broken_off):
        assert bucket.run(mariadb.uri(), allow_non_transactional=allowed).code == EXIT_OK
    assert not breaks
    assert sorted(query(mariadb, "SELECT a FROM test.n")) == [(1,), (2,)]


@pytest.mark.parametrize("engine", ENGINES)
def test_a_table_with_a_key_stops_unless_it_is_allowed(mariadb: MariaDb, tmp_path: Path, engine: str) -> None:
    bucket = Bucket(tmp_path)
    query(mariadb, "CREATE DATABASE test", f"CREATE TABLE test.t (id INT PRIMARY KEY, v VARCHAR(20)) ENGINE={engine}")
    bucket.create("t")
    bucket.rows("t/100/1", "I 110 1 a", "I 111 2 b")
    bucket.checkpoint(120)
    ran = bucket.run(mariadb.uri())
    assert ran.code == EXIT_TABLE_STOPPED
    assert ran.problems[0].hint.startswith("Run ALTER TABLE `test`.`t` ENGINE=InnoDB; in the target, or start with --allow-non-tra")
    assert query(mariadb, "SELECT * FROM test.t") == []
    assert bucket.run(mariadb.uri(), allow_non_transactional=True).code == EXIT_OK
    assert sorted(query(mariadb, "SELECT * FROM test.t")) == [(1, "a"), (2, "b")]


def test_a_ledger_is_made_with_transactions_whatever_the_servers_own_engine_is(tmp_path: Path) -> None:
    with running_mariadb(default_storage_engine="Aria", innodb_buffer_pool_size="64M") as server:
        bucket = Bucket(tmp_path)
        bucket.create("t")
        bucket.rows("t/100/1", "I 110 1 a")
        bucket.checkpoint(120)
        assert bucket.run(server.uri()).code == EXIT_OK
        engines = query(server, "SELECT DISTINCT engine FROM information_schema.tables WHERE table_schema IN ('headrace', 'test')")
        assert engines == [("InnoDB",)]


@pytest.mark.parametrize("table", ["pipelines", "tables", "fences", "cuts"])
def test_a_ledger_that_lost_its_transactions_is_refused(mariadb: MariaDb, tmp_path: Path, table: str) -> None:
    bucket = Bucket(tmp_path)
    bucket.create("t")
    bucket.rows("t/100/1", "I 110 1 a")
    bucket.checkpoint(120)
    assert bucket.run(mariadb.uri()).code == EXIT_OK
    query(mariadb, f"ALTER TABLE headrace.{table} ENGINE=Aria", "CREATE TABLE headrace.somebodys (id INT) ENGINE=Aria")
    bucket.rows("t/100/2", "I 130 2 b")
    bucket.checkpoint(140)
    with pytest.raises(DefinitionError, match=f"headrace.{table} has the engine Aria, which has no transactions"):
        bucket.run(mariadb.uri())
    query(mariadb, f"ALTER TABLE `headrace`.`{table}` ENGINE=InnoDB")
    assert bucket.run(mariadb.uri()).code == EXIT_OK
    assert len(query(mariadb, "SELECT * FROM test.t")) == 2
