"""MariaDB stands, in a row's write too, whatever is nested as deep as is accepted: each operator, each function, and mixtures."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator

import pymysql
import pytest
from test_mysql_computing import CALLED, OPERATORS, SYNTAX

from headrace.ddl.computing import excess
from headrace.ddl.grammar.statements import judge
from sampling import drawn
from servers import MariaDb, running_mariadb

pytestmark = [pytest.mark.server, pytest.mark.long]

OPERATIONS = (
    *(f"@ {operator} v" for operator in OPERATORS),
    *(f"n {operator} (@)" for operator in OPERATORS),
    *("(@)", "- @", "~ @", "! @", "NOT @", "BINARY @", "@ COLLATE utf8mb4_bin", "@ IS NULL", "@ IS NOT TRUE", "@ REGEXP 'a'"),
    *("@ + INTERVAL 1 DAY", "d + INTERVAL (@) MICROSECOND", "@ BETWEEN 1 AND v", "n BETWEEN 1 AND @", "v NOT BETWEEN (@) AND t"),
    *("@ IN (7, 'a')", "@ IN (7, v, t, c)", "n IN (v, @)", "v IN ((@), n)", "(@, n) IN ((v, 7), (7, v))"),
    *(
        "CASE WHEN @ THEN v END",
        "CASE WHEN n THEN @ END",
        "CASE WHEN n THEN v ELSE @ END",
        "CASE @ WHEN v THEN n WHEN 1 THEN t END",
    ),
    *("CASE n WHEN @ THEN v END", "CASE n WHEN v THEN @ END", "CASE v WHEN n THEN t ELSE @ END", "NULLIF(@, v)", "NULLIF(n, @)"),
    *("NULLIF(@, t)", "IF(@, v, n)", "IF(n, @, t)", "INTERVAL(@, n, v)", "INTERVAL(n, 1, @)", "FIELD(@, v, n)", "FIELD(v, n, @)"),
)
"""Ways to nest an expression (``@``) in another."""
COLUMNS = "id INT PRIMARY KEY, v LONGTEXT, n INT, f DOUBLE, d DATE, t DATETIME(6), c DECIMAL(65,30), j JSON"
ROW = (1, "2020-01-01 10:11:12 aaaa", 3, 1.5, "2026-11-27", "2026-11-27 12:34:56", "1.5", "[[[[1]]]]")
LEVELS = 5
"""Those of each of several generated columns that read one another."""
SECONDS = 2.0
LOST = (2006, 2013)


FORMS = [
    *OPERATIONS,
    *(
        syntax.replace("#", "2").replace("$", "'$'")
        for name in CALLED
        for syntax in SYNTAX.get(name, [f"{name}({', '.join('@' * count)})" for count in (1, 2, 3)])
    ),
]


def places(form: str) -> list[str]:
    """The form with each of its ``@`` in turn, and columns in place of the others."""
    parts = form.split("@")
    return ["v".join(parts[:at]) + "@" + "v".join(parts[at:]) for at in range(1, len(parts))] if len(parts) > 2 else [form]


def nested(chosen: list[str], count: int, innermost: str = "v") -> str:
    """This many of the forms, one in another, the first one outermost."""
    for number in reversed(range(count)):
        innermost = chosen[number % len(chosen)].replace("@", innermost)
    return innermost


def one_column(chosen: list[str], count: int) -> str:
    return f"CREATE TABLE t ({COLUMNS}, g LONGTEXT AS ({nested(chosen, count)}) STORED)"


def several_columns(chosen: list[str], count: int) -> str:
    parts, former = [COLUMNS], "v"
    for number in range(0, count, LEVELS):
        parts.append(f"g{number} LONGTEXT AS ({nested(chosen, min(LEVELS, count - number), former)}) STORED")
        former = f"g{number}"
    return f"CREATE TABLE t ({', '.join(parts)})"


def deepest(make: Callable[[list[str], int], str], chosen: list[str]) -> str:
    """The deepest such statement that is accepted; empty if there is none."""
    least, most = 0, 64
    while least + 1 < most:
        count = (least + most) // 2
        statement = make(chosen, count)
        least, most = (least, count) if judge(statement, "d").objection or excess(statement, None) else (count, most)
    return make(chosen, least) if least else ""


@pytest.fixture(scope="module")
def server() -> Iterator[MariaDb]:
    with running_mariadb() as own:
        yield own


def run(server: MariaDb, statement: str) -> bool:
    """Creates the table and writes a row, which must not take long. Returns whether the server does not refuse it."""
    with server.connect(read_timeout=60) as connection, connection.cursor() as cursor:
        cursor.execute("CREATE OR REPLACE DATABASE d")
        cursor.execute("USE d")
        cursor.execute("SET sql_mode = ''")
        began, is_taken = time.monotonic(), True
        try:
            cursor.execute(statement)
            cursor.execute("INSERT INTO t (id, v, n, f, d, t, c, j) VALUES (%s, %s, %s, %s, %s, %s, %s, %s)", ROW)
            cursor.execute("UPDATE t SET n = 4")
            cursor.execute("SELECT * FROM t")
        except pymysql.err.MySQLError as error:
            if error.args[0] in LOST:
                pytest.fail(f"{error}: {statement}")
            is_taken = False
        assert time.monotonic() - began < SECONDS, statement
        return is_taken


@pytest.mark.parametrize("make", [one_column, several_columns])
def test_the_server_stands_the_deepest_of_each_operator_and_function(
    server: MariaDb, make: Callable[[list[str], int], str]
) -> None:
    for form in FORMS:
        for one in places(form) if run(server, one_column(places(form), 1)) else ():
            run(server, deepest(make, [one]) or one_column([one], 1))


@pytest.mark.parametrize("seed", range(4))
def test_the_server_stands_the_deepest_mixtures(server: MariaDb, seed: int) -> None:
    draw = random.Random(seed)
    for _ in range(drawn(200)):
        chosen = [draw.choice(places(draw.choice(FORMS))) for _ in range(draw.choice((2, 3, 60)))]
        run(server, deepest(draw.choice((one_column, several_columns)), chosen) or one_column(chosen, 1))
