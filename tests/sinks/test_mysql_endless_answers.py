"""Servers whose answers never end: the connection counts as lost, before the answer fills the memory."""

from __future__ import annotations

import resource
from collections.abc import Callable, Iterator

import pymysql
import pytest

from headrace import mysql_answers
from headrace.sinks.mysql.connection import MySqlSession
from headrace.sinks.mysql.server_errors import ErrorClass, classify
from headrace.sinks.mysql.settings import read_settings
from hostile_server import endless_rows, hostile_server, result


def endless_packet() -> Iterator[bytes]:
    while True:
        yield b"\x01" * 0xFFFFFF


def endless_columns() -> Iterator[bytes]:
    yield b"\xfd\xff\xff\xff"
    while True:
        yield result([], 1).split(b"|then|")[1]


def endless_empty_rows() -> Iterator[bytes]:
    """What they are in Python is larger than what was sent."""
    *beginning, row, _ = result([("",)], 1).split(b"|then|")
    yield from beginning
    while True:
        yield row


@pytest.mark.long
@pytest.mark.parametrize("answer", [endless_rows, endless_packet, endless_columns, endless_empty_rows])
@pytest.mark.parametrize("question", ["SELECT CONNECTION_ID()", "SELECT 1"], ids=["the first question", "a later one"])
def test_an_answer_without_an_end_is_given_up(
    question: str, answer: Callable[[], Iterator[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mysql_answers, "MOST_BYTES", 8 << 20)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with (
        hostile_server(lambda s: answer() if s.startswith(question.encode()) else None) as server,
        pytest.raises(pymysql.err.OperationalError, match=r"answer is larger than") as lost,
        MySqlSession(read_settings(server.uri)) as session,
    ):
        session.execute(question)
    assert classify(lost.value) is ErrorClass.LOST
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100 << 10  # KiB
