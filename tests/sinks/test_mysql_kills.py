"""Questions to a real MariaDB that are killed while they are planned: no row is then no answer.

MariaDB (10.11) answers that all went well and there is nothing where the range of an index was being planned.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace

import pyarrow as pa
import pymysql
import pytest
from mysql_writing import change, column, table

from headrace.errors import SinkUnreachableError
from headrace.model.block import BORN, SIGHT
from headrace.model.events import SchemaChange
from headrace.sinks.base import SpellingWatch, UniqueTexts
from headrace.sinks.mysql import catalogue
from headrace.sinks.mysql.connection import MySqlSession
from headrace.sinks.mysql.refusal import Refused
from headrace.sinks.mysql.server_errors import ErrorClass, classify
from headrace.sinks.mysql.settings import read_settings
from headrace.sinks.mysql.spellings import Spellings
from headrace.sinks.mysql.statements import Sending
from headrace.sinks.mysql.unseen_values import _has_rows
from servers import MariaDb

pytestmark = pytest.mark.server

SECONDS = 1.5
THINGS = table("things", [column("id", "INT"), column("k", "VARCHAR", length=9), column("v", "INT")])
CHANGE = SchemaChange(1, THINGS.table_id, (), "", "shop", frozenset({THINGS.table_id}))


def deletes(session: MySqlSession) -> bool:
    return session.affect("DELETE FROM shop.things WHERE (id) IN (1,2,3)") == 3


def sends_a_delete(session: MySqlSession) -> bool:
    """As TRUNCATE PARTITION becomes one."""
    Sending(CHANGE).send(session, "DELETE FROM shop.things WHERE ((id) IN (1,2,3))")
    return session.execute("SELECT COUNT(*) FROM shop.things") == [(0,)]


def finds_values(session: MySqlSession) -> bool:
    return _has_rows(session, CHANGE, "v IS NOT NULL")


def finds_spellings(session: MySqlSession) -> bool:
    new = change(THINGS, [(11, "A", 1), (12, "B", 2), (13, "C", 3)])
    rows = new.upserts.append_column(SIGHT, pa.array([BORN] * 3, pa.int8()))
    key = UniqueTexts((("k", 0),), frozenset({"k"}))
    watched = replace(new, upserts=rows, deletes=rows.slice(0, 0), watch=SpellingWatch((key,), None, whole=True))
    try:
        Spellings(session, watched).refuse(rows)
    except Refused:
        return True
    return False


def finds_unique_keys(session: MySqlSession) -> bool:
    return catalogue.unique_keys(session, THINGS.table_id) == {"PRIMARY": {"id"}, "k": {"k"}}


def rolled_back(session: MySqlSession) -> bool:
    try:
        session.rollback()
    except pymysql.err.MySQLError:
        return False
    return True


@contextmanager
def stormy(server: MariaDb, session: MySqlSession) -> Iterator[None]:
    """Kills what the session runs, again and again."""
    over = threading.Event()

    def kill() -> None:
        with server.connect() as own, own.cursor() as cursor:
            while not over.wait(0.0001):
                with suppress(pymysql.err.MySQLError):
                    cursor.execute(f"KILL QUERY {session.connection_id}")

    killing = threading.Thread(target=kill, daemon=True)
    killing.start()
    try:
        yield
    finally:
        over.set()
        killing.join(60)


@pytest.mark.parametrize("asks", [deletes, sends_a_delete, finds_values, finds_spellings, finds_unique_keys])
def test_no_row_is_no_answer_of_a_question_that_was_killed(asks: Callable[[MySqlSession], bool], mariadb: MariaDb) -> None:
    """Without that, some of the answers of each storm say that there is nothing."""
    with mariadb.connect() as own, own.cursor() as cursor:
        cursor.execute("CREATE DATABASE shop")
        cursor.execute(
            "CREATE TABLE shop.things (id INT PRIMARY KEY, k VARCHAR(9) COLLATE utf8mb4_general_ci UNIQUE, v INT, KEY (v))"
        )
        cursor.execute("INSERT INTO shop.things VALUES (1, 'a', 1), (2, 'b', 2), (3, 'c', NULL)")
    answers: list[bool] = []
    killed = 0
    with MySqlSession(read_settings(mariadb.uri())) as session, stormy(mariadb, session):
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            try:
                answers.append(asks(session))
            except (pymysql.err.MySQLError, SinkUnreachableError) as error:
                if classify(error) is ErrorClass.REFUSED:
                    raise
                killed += 1
            while not rolled_back(session):
                pass
    assert killed
    assert answers
    assert all(answers), f"{answers.count(False)} of {len(answers)} answers found nothing"
