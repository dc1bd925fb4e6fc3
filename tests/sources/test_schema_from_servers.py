"""Servers that give the definitions of tables (``--schema-from mysql://…``), and what answers in place of one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import pytest

from headrace import mysql_answers
from headrace.errors import DefinitionError, SourceUnreachableError
from headrace.model.stream import GivenDefinitions
from headrace.pipeline.given import definitions_from
from hostile_server import answers, endless_rows, hostile_server, result
from servers import MariaDb

_CREATE = "CREATE TABLE `t` (`id` int NOT NULL, PRIMARY KEY (`id`))"
Answer = Callable[[], Iterator[bytes]]


def rows(*found: tuple[str | bytes | None, ...], columns: int = 2) -> Answer:
    return lambda: answers(result(found, columns))


USUAL: Mapping[bytes, Answer] = {
    b"SHOW DATABASES": rows(("d",), columns=1),
    b"SHOW CREATE DATABASE": rows(("d", "CREATE DATABASE `d`")),
    b"SHOW FULL TABLES": rows(("t", "BASE TABLE")),
    b"SHOW CREATE TABLE": rows(("t", _CREATE)),
}


def given(others: Mapping[bytes, Answer]) -> dict[str, str]:
    """The definitions that a server with these answers gives, by the names of databases and tables."""
    return {str(told.table_id): told.statement for told in given_with_notices(others).statements}


def given_with_notices(others: Mapping[bytes, Answer]) -> GivenDefinitions:
    usual = {**USUAL, **others}

    def answer(statement: bytes) -> Iterator[bytes] | None:
        # The answer for the longest beginning of the statement.
        asked = max((each for each in usual if statement.startswith(each)), key=len, default=None)
        return None if asked is None else usual[asked]()

    with hostile_server(answer) as server:
        return definitions_from(server.uri)(5)


def test_a_server_gives_its_databases_and_tables() -> None:
    assert given({}) == {"d": "CREATE DATABASE `d`", "d.t": _CREATE}


@pytest.mark.parametrize(
    ("statement", "answer", "told"),
    [
        (b"SHOW CREATE DATABASE", rows(), "the answer to SHOW CREATE DATABASE `d` has 0 rows instead of one"),
        (b"SHOW CREATE DATABASE", rows(*[("d", "CREATE DATABASE `d`")] * 2), "has 2 rows instead of one"),
        (b"SHOW CREATE TABLE", rows(("t",), columns=1), "lacks a column or has NULL"),
        (b"SHOW CREATE TABLE", rows(("t", None)), "lacks a column or has NULL"),
        (b"SHOW FULL TABLES", rows((None, "BASE TABLE")), "lacks a column or has NULL"),
        (b"SHOW DATABASES", rows((b"\xff",), columns=1), "a name that is not UTF-8"),
        (b"SHOW DATABASES", lambda: iter([b"\x01", b"\x00"]), "is not valid in MySQL's protocol"),
        (b"SHOW DATABASES", endless_rows, "the server's answer is larger than 2097152 bytes"),
    ],
)
def test_an_answer_that_no_server_gives_is_told(
    statement: bytes, answer: Answer, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mysql_answers, "MOST_BYTES", 2 << 20)
    with pytest.raises(SourceUnreachableError, match=told):
        given({statement: answer})


@pytest.mark.long
def test_definitions_that_are_too_large_together_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mysql_answers, "MOST_BYTES", 1 << 20)
    names = [f"t{number}" for number in range(40)]
    created = {
        f"SHOW CREATE TABLE `d`.`{name}`".encode(): rows((name, f"CREATE TABLE {name} (id int) COMMENT '{'x' * 30_000}'"))
        for name in names
    }
    tables = rows(*[(name, "BASE TABLE") for name in names])
    with pytest.raises(SourceUnreachableError, match="the definitions have more than 1048576 bytes"):
        given({b"SHOW FULL TABLES": tables, **created})


def error(code: int) -> Answer:
    return lambda: iter([b"\xff" + code.to_bytes(2, "little") + b"#42000no"])


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (rows(("odd", b"CREATE TABLE `odd` (`id` int, `v` varbinary(4) DEFAULT '\xff\\0')")), "has bytes that are not UTF-8"),
        (rows(("odd", "CREATE TABLE `odd` (`id` int, `v` enum('a','?') CHARACTER SET binary)")), "with a question mark"),
        (rows(("odd", "CREATE TABLE `odd` (`id` int, `v` set('b?') NOT NULL)")), "with a question mark"),
        (rows(("odd", "CREATE TABLE `odd")), "cannot be read as a statement"),
        (error(1142), "is not shown (error 1142: no)"),
        (error(1146), "is not shown (error 1146: no)"),
    ],
    ids=["bytes", "enum", "set", "open", "denied", "gone"],
)
def test_a_table_that_the_server_does_not_show_exactly_is_told_and_concerns_no_other(answer: Answer, told: str) -> None:
    tables = rows(("odd", "BASE TABLE"), ("t", "BASE TABLE"))
    found = given_with_notices({b"SHOW FULL TABLES": tables, b"SHOW CREATE TABLE `d`.`odd`": answer})
    assert [str(read.table_id) for read in found.statements] == ["d", "d.t"]
    (notice,) = found.notices
    assert str(notice.table_id) == "d.odd"
    assert "its definition is not used, because on " in notice.message
    assert told in notice.message


def test_a_server_that_shows_no_table_is_told_with_the_reason() -> None:
    with pytest.raises(DefinitionError, match=r"gives no table: table d\.t: schema-from: .* is not shown \(error 1142: no\)"):
        given({b"SHOW CREATE TABLE": error(1142)})


def test_a_question_mark_elsewhere_is_one() -> None:
    created = "CREATE TABLE `t` (`id` int DEFAULT '?' COMMENT 'why enum(''?'')', `set` enum('a'), `?` int)"
    assert given({b"SHOW CREATE TABLE": rows(("t", created))})["d.t"] == created


def test_a_server_that_does_not_keep_that_time_any_more_is_told() -> None:
    with pytest.raises(SourceUnreachableError, match="does not show the definitions at 5: no"):
        given({b"SHOW CREATE TABLE": error(8055)})


@pytest.mark.server
def test_odd_tables_of_a_real_server_concern_no_other(mariadb: MariaDb) -> None:
    mariadb.fresh()
    with mariadb.connect() as connection, connection.cursor() as cursor:
        cursor.execute("CREATE DATABASE shop")
        for statement in (
            "CREATE TABLE shop.a (id INT PRIMARY KEY, v ENUM('x', 'é') CHARACTER SET latin1)",
            "CREATE TABLE shop.b (id INT PRIMARY KEY, v VARBINARY(4) DEFAULT x'ff00')",
            "CREATE TABLE shop.c (id INT PRIMARY KEY, v ENUM(x'ff') CHARACTER SET binary)",
            "CREATE TABLE shop.d (id INT PRIMARY KEY, v SET('\U0001f600') CHARACTER SET utf8mb4)",
        ):
            cursor.execute(statement)
    read = definitions_from(mariadb.uri())(5)
    found = {str(told.table_id): told.statement for told in read.statements}
    assert {str(notice.table_id) for notice in read.notices} == {f"shop.{name}" for name in "abcd"} - found.keys()
    assert "enum('x','é')" in found["shop.a"]
    shown = found.keys() - {"shop", "shop.a"}
    assert not any(name == "shop.d" and "\U0001f600" not in found[name] for name in shown)
    assert shown <= {"shop.d"}
