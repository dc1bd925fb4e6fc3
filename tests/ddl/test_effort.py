"""How deep expressions nest is judged by their operators too, because servers walk them by recursion. Operations are counted."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import pymysql
import pytest

from headrace.ddl.computing import excess
from headrace.ddl.grammar.effort import MOST_NESTED
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
    "CASE and columns named end": lambda n: "f" + "+f" * (n // 2) + "+ CASE WHEN `end` THEN f END" + "+f" * (n // 2),
    "alternatives of CASE": lambda n: "CASE WHEN f THEN 1 ELSE f" + "+f" * n + " END",
    "sums in parentheses": lambda n: "(" * 10 + "f" + (")" + "+f" * (n // 10)) * 10,
    "sums in functions": lambda n: "ABS(" * 10 + "f" + (")" + "+f" * (n // 10)) * 10,
    "sums in the last argument": lambda n: "IFNULL(f, f+" * 10 + "f" + ("+f" * (n // 10) + ")") * 10,
    "patterns": lambda n: "f" + " REGEXP 'a'" * n,
}
FLAT: dict[str, Callable[[int], str]] = {
    "members of a list": lambda n: f"f IN ({', '.join(['-f'] * n)})",
    "arguments": lambda n: f"COALESCE({', '.join(['f + 1'] * n)})",
    "OR": lambda n: " OR ".join(["f = 1"] * n),
    "AND": lambda n: " AND ".join(["NOT f"] * n),
    "BETWEEN": lambda n: " OR ".join(["f BETWEEN 1 AND 2 AND NOT f"] * (n // 4)),
    "CASE": lambda n: f"CASE {'WHEN f = 1 AND f < 3 THEN f + 1 ' * (n // 4)}ELSE f END",
    "CASE of a value": lambda n: f"CASE f {'WHEN 1 THEN CURRENT_DATE ' * (n // 4)}ELSE f IS NULL END",
    "lists": lambda n: " AND ".join(["f IN (1, 2, 3)"] * (n // 4)),
}
REPEATED: dict[str, Callable[[int], str]] = {
    "IN": lambda n: "f" + " IN (7, 'a')" * n,
    "NOT IN": lambda n: "(" * n + "f" + " NOT IN (7, 'a'))" * n,
    "CASE of a value": lambda n: "CASE " * n + "f" + " WHEN 'a' THEN 1 END" * n,
    "NULLIF": lambda n: "NULLIF(" * n + "f" + ", 'a')" * n,
    "LOCATE": lambda n: "LOCATE('a', 'b', " * n + "f" + ")" * n,
    "all of them": lambda n: "NULLIF(" * (n // 2) + "CASE f IN (7, 'a') WHEN 'a' THEN 1 END" + ", 'a')" * (n // 2),
}
"""What servers compute twice or more often in each level."""
MANY: dict[str, Callable[[int], str]] = {
    "operators": lambda n: f"COALESCE({', '.join(['f + f'] * n)})",
    "functions": lambda n: f"COALESCE({', '.join(['ABS(f)'] * n)})",
    "conditions": lambda n: " AND ".join(["f"] * n),
    "alternatives": lambda n: f"CASE {'WHEN f THEN f ' * (n // 2)}END",
    "searches": lambda n: f"COALESCE({', '.join(['f LIKE f'] * (n // 10))})",
    "searching functions": lambda n: f"COALESCE({', '.join(['LOCATE(f, f)'] * (n // 10))})",
    "patterns": lambda n: f"COALESCE({', '.join(['f REGEXP 1'] * (n // 50))})",
    "members": lambda n: f"f IN ({', '.join(['1'] * (n * 10))})",
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
@pytest.mark.parametrize("repeated", REPEATED)
def test_what_a_server_computes_again_in_each_level_nests_a_few_times(repeated: str, place: str) -> None:
    few, many = (judge(PLACES[place].format(REPEATED[repeated](count)), "d").objection for count in (2, 4))
    assert (few, "nested more than" in many) == ("", True)


@pytest.mark.parametrize("place", [place for place in PLACES if "view" not in place and place != "bound"])
@pytest.mark.parametrize("many", MANY)
def test_a_statement_with_too_many_operations_waits(many: str, place: str) -> None:
    few, too_many = (judge(PLACES[place].format(MANY[many](count)), "d").objection for count in (700, 1_200))
    assert (few, "operations" in too_many) == ("", True)


def test_a_table_may_have_hundreds_of_columns_from_a_document() -> None:
    columns = ", ".join(f"c{number} TEXT AS (JSON_UNQUOTE(JSON_EXTRACT(j, '$.a.b{number}')))" for number in range(400))
    assert judge(f"CREATE TABLE t (j JSON, {columns})", "d").objection == ""
    assert excess(f"CREATE TABLE t (j JSON, {columns})", None) == ""


def test_bounds_of_partitions_count_if_they_search() -> None:
    bounds = "PARTITION p{} VALUES LESS THAN ({})"
    for of_one, count in (("TO_DAYS('2026-01-01') + 1", 2_000), ("-1", 2_000), ("LOCATE('a', 'a')", 99)):
        parts = ", ".join(bounds.format(number, of_one) for number in range(count))
        assert judge(f"CREATE TABLE t (f INT) PARTITION BY RANGE (f) ({parts})", "d").objection == ""
    parts = ", ".join(bounds.format(number, "LOCATE('a', 'a')") for number in range(101))
    assert "operations" in judge(f"CREATE TABLE t (f INT) PARTITION BY RANGE (f) ({parts})", "d").objection


def test_searches_of_a_view_count() -> None:
    """CREATE VIEW computes those whose operands are constants."""
    for count, is_too_many in ((19, False), (21, True)):
        condition = " OR ".join(["f REGEXP 'a'"] * count)
        assert ("operations" in judge(PLACES["condition of a view"].format(condition), "d").objection) == is_too_many
    assert judge(PLACES["view"].format(", ".join(["f + f"] * 1_500)), "d").objection == ""


def test_operations_of_all_expressions_of_a_statement_count_together() -> None:
    checks = ", ".join([f"CHECK ({MANY['operators'](100)})"] * 11)
    assert "operations" in judge(f"CREATE TABLE t (f INT, {checks})", "d").objection


def test_a_column_named_end_is_in_backquotes_inside_of_case() -> None:
    """Else it would not be certain where the CASE ends."""
    assert "END is not in backquotes" in judge(PLACES["check"].format("CASE WHEN end THEN f END"), "d").objection
    assert "no END" in judge(PLACES["check"].format("(CASE WHEN f THEN f)"), "d").objection


@pytest.mark.parametrize("place", ["CREATE TABLE t (f INT DEFAULT {})", "CREATE TABLE t (f INT COMMENT {})", *PLACES.values()])
def test_many_texts_side_by_side_wait(place: str) -> None:
    """MariaDB joins them in time by the square of their number."""
    assert "side by side" in judge(place.format("'a' " * 17), "d").objection
    assert "side by side" not in judge(place.format("'a' " * 16), "d").objection


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("construct", [*NESTED, *FLAT])
def test_what_people_write_is_not_too_deep(construct: str, place: str) -> None:
    if construct in NESTED and "view" in place:  # of which the query is read by a parser with bounds of its own
        construct = "a sum"
    make, count = (FLAT[construct], 300) if construct in FLAT else (NESTED[construct], 20)
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
