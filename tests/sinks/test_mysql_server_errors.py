"""The table of the errors of servers: each number is what its source says, and asks for what the table says."""

from __future__ import annotations

import re
from pathlib import Path

import pymysql
import pytest
from pymysql.constants import CR, ER

from headrace.sinks.mysql.connection import MySqlSession
from headrace.sinks.mysql.server_errors import ERRORS, Cause, ErrorClass, KnownError, cause, classify, way_out
from headrace.sinks.mysql.settings import read_settings
from hostile_server import OK, hostile_server, result
from servers import MariaDb

TEXTS = {
    1290: "The MariaDB server is running with the --read-only option so it cannot execute this statement",
    1047: "WSREP has not yet prepared node for application use",
}


def _ids(known: KnownError) -> str:
    return f"{known.code} {known.symbol}"


@pytest.mark.parametrize("known", ERRORS, ids=_ids)
@pytest.mark.parametrize("kind", [pymysql.err.OperationalError, pymysql.err.InternalError, pymysql.err.ProgrammingError])
def test_an_error_asks_for_what_the_table_says(known: KnownError, kind: type[pymysql.err.MySQLError]) -> None:
    error = kind(known.code, TEXTS.get(known.code, "any words"))
    assert cause(error) is known.cause
    assert classify(error) is known.cause.kind
    assert way_out(error) == known.cause.way_out


def test_each_number_is_there_once_and_has_a_source() -> None:
    assert len({known.code for known in ERRORS}) == len(ERRORS)
    assert {known.source for known in ERRORS} == set("SMATC")


@pytest.mark.parametrize("known", [known for known in ERRORS if known.source in "SC"], ids=_ids)
def test_pymysql_knows_the_symbol_by_the_same_number(known: KnownError) -> None:
    """Those that it knows at all."""
    names = {value: name for name, value in vars(ER).items() if isinstance(value, int)}
    names = {code: f"ER_{name}" for code, name in names.items()}
    names |= {value: name for name, value in vars(CR).items() if isinstance(value, int)}
    assert names.get(known.code, known.symbol) == known.symbol


@pytest.mark.server
def test_mariadb_has_each_symbol_by_the_same_number(mariadb: MariaDb) -> None:
    """By the messages that the server came with."""
    with mariadb.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SELECT @@character_sets_dir")
        (folder,) = cursor.fetchone()
    text = (Path(folder).parent / "errmsg-utf8.txt").read_text(encoding="utf-8", errors="replace")
    symbols: dict[int, str] = {}
    number = 0
    for line in text.splitlines():
        if start := re.match(r"(?:start-error-number|skip-to-error-number) (\d+)", line):
            number = int(start[1])
        elif symbol := re.match(r"[A-Z]\w+", line):
            symbols[number] = symbol[0]
            number += 1
    of_mariadb = {known.code: known.symbol for known in ERRORS if known.source in "SA"}
    assert {code: symbols.get(code) for code in of_mariadb} == of_mariadb


@pytest.mark.parametrize(
    "error",
    [
        pymysql.err.OperationalError(1290, "The MariaDB server is running with the --secure-file-priv option so it cannot"),
        pymysql.err.OperationalError(1290, "The MySQL server is running with the --skip-grant-tables option so it cannot execute"),
        pymysql.err.InternalError(1047, "Unknown command"),
        pymysql.err.ProgrammingError(1146, "Table 'test.t' doesn't exist"),
        pymysql.err.DataError(1406, "Data too long for column 'v' at row 1"),
        pymysql.err.IntegrityError(1062, "Duplicate entry '1' for key 'PRIMARY'"),
    ],
)
def test_what_is_the_statements_own_fault_is_refused(error: pymysql.err.MySQLError) -> None:
    assert cause(error) is None
    assert classify(error) is ErrorClass.REFUSED


@pytest.mark.parametrize("option", ["--read-only", "--super-read-only", "--transaction-read-only", "read_only"])
def test_a_server_that_does_not_take_writes_is_left(option: str) -> None:
    text = f"The MySQL server is running with the {option} option so it cannot execute this statement"
    assert cause(pymysql.err.OperationalError(1290, text)) is Cause.READ_ONLY


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (OSError(32, "Broken pipe"), Cause.CONNECTION),
        (ConnectionResetError(104, "Connection reset by peer"), Cause.CONNECTION),
        (pymysql.err.InterfaceError(0, ""), Cause.CONNECTION),
        (pymysql.err.InternalError("Packet sequence number wrong - got 5 expected 1"), Cause.CONNECTION),
        (pymysql.err.OperationalError(1030, "Got error 28 from storage engine (No space left on device)"), Cause.DISK_FULL),
        (pymysql.err.InternalError(3, "Error writing file './x' (errno: 28)"), Cause.DISK_FULL),
    ],
)
def test_what_has_no_number_of_its_own(error: Exception, expected: Cause) -> None:
    assert cause(error) is expected


FIRST_ANSWER = ("7", "10.11.6-MariaDB", "16777216", "1")


@pytest.mark.parametrize(
    "answer",
    [
        OK,
        result([], 4),
        result([FIRST_ANSWER] * 2, 4),
        result([FIRST_ANSWER[:3]], 3),
        result([("x", *FIRST_ANSWER[1:])], 4),
        result([(*FIRST_ANSWER[:2], "x", "1")], 4),
        result([(*FIRST_ANSWER[:2], "-5", "1")], 4),
    ],
    ids=["no result", "no row", "two rows", "three columns", "a number of letters", "a size of letters", "a size below 0"],
)
def test_an_answer_of_another_shape_to_the_first_question_is_a_lost_connection(answer: bytes) -> None:
    """A proxy under maintenance says OK to everything, and without TLS anybody may answer."""
    with (
        hostile_server(lambda s: answer if s.startswith(b"SELECT CONNECTION_ID()") else None) as server,
        pytest.raises(pymysql.err.OperationalError, match="answer is not valid in MySQL's protocol") as lost,
    ):
        MySqlSession(read_settings(server.uri))
    assert classify(lost.value) is ErrorClass.LOST


def test_a_question_without_a_result_is_a_lost_connection() -> None:
    with hostile_server(lambda s: None) as server, MySqlSession(read_settings(server.uri)) as session:
        session.execute("SET x = 1")
        for question in ("SELECT 1", "(SELECT 1) UNION ALL (SELECT 2)", "SHOW TABLES"):
            with pytest.raises(pymysql.err.OperationalError, match="a question without a result"):
                session.execute(question)
