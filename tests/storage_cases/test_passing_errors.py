"""Errors of a server that pass: no table stops, and nothing is lost or doubled."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from building import Bucket

from headrace.errors import EXIT_OK
from servers import MariaDb

pytestmark = pytest.mark.server

N = {"ColumnName": "a", "ColumnType": "INT"}
LOCK = "headrace_test_trouble"


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (1969, "Query execution was interrupted (max_statement_time exceeded)"),
        (3024, "Query execution was interrupted, maximum statement execution time exceeded"),
        (1047, "WSREP has not yet prepared node for application use"),
        (1180, "Got error 5 during COMMIT"),
        (3100, "Error on observer while running replication hook before_commit"),
        (3101, "Plugin instructed the server to rollback the current transaction."),
        (1020, "Record has changed since last read in table t"),
        (1412, "Table definition has changed, please retry transaction"),
        (1290, "The MySQL server is running with the --super-read-only option so it cannot execute this statement"),
    ],
)
def test_errors_that_pass_are_waited_for(mariadb: MariaDb, tmp_path: Path, code: int, text: str) -> None:
    """The server raises them for rows while somebody holds a lock."""
    bucket = Bucket(tmp_path)
    bucket.create("t")
    bucket.schema("n", 100, (N,), "CREATE TABLE `n` (`a` INT)", 3)
    bucket.checkpoint(105)
    assert bucket.run(mariadb.uri()).code == EXIT_OK
    bucket.rows("t/100/1", "I 110 1 a", "I 111 2 b")
    bucket.rows("n/100/1", ("I", 110, 1), ("I", 110, 1))
    bucket.checkpoint(120)
    with mariadb.connect() as holder, holder.cursor() as cursor:
        cursor.execute("CREATE TABLE test.raised (n INT) ENGINE=MyISAM")  # keeps what a transaction gave up
        for table in ("t", "n"):
            cursor.execute(
                f"CREATE TRIGGER test.trouble_{table} AFTER INSERT ON test.{table} FOR EACH ROW"
                f" IF IS_USED_LOCK('{LOCK}') IS NOT NULL THEN INSERT INTO test.raised VALUES (1);"
                f" SIGNAL SQLSTATE 'HY000' SET MYSQL_ERRNO = {code}, MESSAGE_TEXT = '{text}'; END IF"
            )
        cursor.execute(f"SELECT GET_LOCK('{LOCK}', 0)")

        def release() -> None:
            cursor.execute(f"SELECT RELEASE_LOCK('{LOCK}')")

        timer = threading.Timer(0.3, release)
        timer.start()
        try:
            ran = bucket.run(mariadb.uri())
        finally:
            timer.join()
        assert (ran.code, ran.problems) == (EXIT_OK, [])
        cursor.execute("SELECT COUNT(*) > 0 FROM test.raised")
        assert cursor.fetchone() == (1,)
        cursor.execute("SELECT * FROM test.t ORDER BY id")
        assert cursor.fetchall() == ((1, "a"), (2, "b"))
        cursor.execute("SELECT * FROM test.n")
        assert cursor.fetchall() == ((1,), (1,))
