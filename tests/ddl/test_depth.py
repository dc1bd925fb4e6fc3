"""How deep expressions nest is judged by their operators too, because servers walk them by recursion."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import pymysql
import pytest

from headrace.ddl.grammar.depth import MOST_NESTED
from headrace.ddl.grammar.statements import judge
from servers import MariaDb, running_mariadb

NESTED: dict[str, Callable[[int], str]] = {
    "a sum": lambda n: "f" + "+f" * n,
    "products": lambda n: "f" + " * f" * n,
    "comparisons": lambda n: "f" + " = f" * n,
    "XOR": lambda n: "f" + " XOR f" * n,
    "XOR of conditions": lambda n: "f" + " XOR f AND f" * n,
    "BETWEEN": lambda n: "f" + " BETWEEN 1 AND f" * n,
    "LIKE": lambda n: "f" + " LIKE f" * n,
    "IS NULL": lambda n: "f" + " IS NULL" * (n // 2),
    "signs": lambda n: "- " * n + "f",
    "NOT": lambda n: "NOT " * n + "f",
    "BINARY": lambda n: "BINARY " * n + "f",
    "intervals": lambda n: "f" + " + INTERVAL 1 DAY" * (n // 2),
    "CASE": lambda n: "CASE WHEN f THEN " * n + "f" + " END" * n,
    "CASE behind AND": lambda n: "f" + " AND CASE WHEN f" * n + " THEN f" + " END" * n,
    "CASE and columns named end": lambda n: "f" + "+f" * (n // 2) + "+ CASE WHEN end THEN f END" + "+f" * (n // 2),
    "sums in parentheses": lambda n: "(" * 50 + "f" + (")" + "+f" * (n // 50)) * 50,
    "sums in functions": lambda n: "ABS(" * 50 + "f" + (")" + "+f" * (n // 50)) * 50,
    "sums in the last argument": lambda n: "IFNULL(f, f+" * 50 + "f" + ("+f" * (n // 50) + ")") * 50,
}
FLAT: dict[str, Callable[[int], str]] = {
    "members of a list": lambda n: f"f IN ({', '.join(['-f'] * n)})",
    "arguments": lambda n: f"COALESCE({', '.join(['f + 1'] * n)})",
    "OR": lambda n: " OR ".join(["f = 1"] * n),
    "AND": lambda n: " AND ".join(["NOT f"] * n),
}
PLACES = {
    "generated": "CREATE TABLE t (f INT, end INT, g INT AS ({}) STORED)",
    "check": "CREATE TABLE t (f INT, end INT, CHECK ({}))",
    "default": "CREATE TABLE t (f INT, end INT, g INT DEFAULT ({}))",
    "index": "CREATE INDEX i ON t (({}))",
    "partitions": "CREATE TABLE t (f INT, end INT) PARTITION BY HASH ({})",
    "bound": "CREATE TABLE t (f INT) PARTITION BY RANGE (f) (PARTITION p VALUES LESS THAN ({}))",
    "added": "ALTER TABLE t ADD COLUMN g INT AS ({})",
    "partial index": "CREATE INDEX i ON t (f) WHERE {}",
    "view": "CREATE VIEW v AS SELECT {} AS a FROM t",
    "condition of a view": "CREATE VIEW v AS SELECT f FROM t WHERE {}",
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("nested", NESTED)
def test_an_expression_that_nests_too_deep_by_its_operators_waits(nested: str, place: str) -> None:
    assert "nested more than" in judge(PLACES[place].format(NESTED[nested](1_000)), "d").objection


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("construct", [*NESTED, *FLAT])
def test_what_people_write_is_not_too_deep(construct: str, place: str) -> None:
    if construct in NESTED and "view" in place:  # of which the query is read by a parser with bounds of its own
        construct = "a sum"
    make, count = (FLAT[construct], 400) if construct in FLAT else (NESTED[construct], 40)
    assert judge(PLACES[place].format(make(count)), "d").objection == ""


@pytest.mark.server
@pytest.mark.long
def test_a_server_survives_what_is_not_too_deep() -> None:
    """It runs the statement, or refuses it."""
    with running_mariadb() as server:
        for place in ("generated", "check", "partitions", "view"):
            for name, make in (NESTED | FLAT).items():
                count = 2_000 if name in FLAT else MOST_NESTED
                while count and judge(statement := PLACES[place].format(make(count)), "d").objection:
                    count = count * 9 // 10
                if count:  # a view's query has fewer parentheses
                    run(server, statement)


def run(server: MariaDb, statement: str) -> None:
    connection = server.connect()
    with connection, connection.cursor() as cursor:
        cursor.execute("CREATE OR REPLACE DATABASE d")
        cursor.execute("USE d")
        if "VIEW" in statement:
            cursor.execute("CREATE TABLE t (f INT, end INT)")
        with suppress(pymysql.err.OperationalError, pymysql.err.ProgrammingError, pymysql.err.InternalError):
            cursor.execute(statement)
    with server.connect() as again, again.cursor() as cursor:
        cursor.execute("SELECT 1")
