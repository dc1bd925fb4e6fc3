"""What was read of statements is kept while there is room for it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from headrace.ddl.statement_cache import remembered


def counting() -> tuple[list[str], Callable[..., tuple[str, str]]]:
    read: list[str] = []

    @remembered
    def of(text: str, database: str = "") -> tuple[str, str]:
        read.append(text)
        return text, database

    return read, of


def test_each_of_thousands_of_statements_is_read_once() -> None:
    read, of = counting()
    texts = [f"CREATE TABLE t{n} (id BIGINT PRIMARY KEY)" for n in range(2_000)]
    for _ in range(3):
        assert [of(text) for text in texts] == [(text, "") for text in texts]
    assert read == texts


def test_what_else_was_asked_makes_another_answer() -> None:
    read, of = counting()
    assert [of("DROP TABLE t", name) for name in ("a", "b", "a")] == [("DROP TABLE t", n) for n in "aba"]
    assert of("DROP TABLE t", database="a") == ("DROP TABLE t", "a")
    assert len(read) == 3


def test_what_was_not_asked_for_the_longest_time_goes_first() -> None:
    read, of = counting()
    long = ["x" * 300_000 + str(n) for n in range(6)]
    for n in range(6):
        of(long[n])
        of(long[0])
    assert read == long
    of(long[1])
    assert read[6:] == [long[1]]


def test_a_statement_that_is_longer_than_all_that_is_kept_is_kept_alone() -> None:
    read, of = counting()
    longest = "x" * 5_000_000
    for text in ("a", longest, longest, "a", "a"):
        of(text)
    assert read == ["a", longest, "a"]


def test_threads_that_ask_at_once_leave_room_for_as_many_as_one() -> None:
    read, of = counting()
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(of, [str(n % 50) for n in range(5_000)]))
    finally:
        sys.setswitchinterval(interval)
    read.clear()
    for n in range(1_500):
        of(f"s{n}")
    for n in range(1_500):
        of(f"s{n}")
    assert len(read) == 1_500
