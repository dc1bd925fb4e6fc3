"""Expressions that MariaDB stores as text, and reads again: they stay what was meant, or are refused. On a real MariaDB."""

from __future__ import annotations

from itertools import product

import pytest
from mysql_writing import Target, acquired, column, table

from headrace.ddl.lexer import words
from headrace.model.events import CreateTableEvent, OtherEvent, SchemaChange
from headrace.model.place import PlaceInFile
from headrace.model.table import Generated, TableId, TableSchema
from headrace.sinks.metadata_applier import SchemaChangeRefused
from headrace.sinks.mysql.adaptation import Server, adapt_for

pytestmark = pytest.mark.server

T = TableId("shop", "t")
ID, V = column("id", "INT", nullable=False, primary_key=True), column("v", "VARCHAR", length=99)
INTRODUCERS = ("", "_utf8mb4", "_UTF8MB4 ", "_utf8", "_UTF8MB3")
TEXTS = ("a',CURRENT_USER())#", "a\\',CURRENT_USER())#", "'", "\\", "é',CURRENT_USER())#", "a\n'\r\0\x1a\"`", "x27")
"""Each text is meant as it is. If a quote in it were stored without an escape, the rest would be SQL."""
PLACES = {
    "generated column": "`x` VARCHAR(200) AS (CONCAT({}, `v`))",
    "stored column": "`x` VARCHAR(200) AS (CONCAT({}, `v`)) STORED",
    "default": "`x` VARCHAR(200) DEFAULT {}",
    "expression of a default": "`x` VARCHAR(200) DEFAULT (CONCAT({}, `v`))",
}


def literal(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "''") + "'"


def apply(target: Target, statement: str, event: CreateTableEvent | OtherEvent, schema: TableSchema | None = None) -> None:
    own = event.table_id
    change = SchemaChange(5, own, (event,), statement, "shop", frozenset({own}), schema=schema, origin=PlaceInFile("f.json"))
    target.sink.metadata_applier.apply_schema_change(change)


def create(target: Target, last: str, expression: str = "", name: str = "x") -> None:
    kind = {"generated": Generated.VIRTUAL, "expression": expression} if expression else {}
    schema = table("t", [ID, V, column(name, "VARCHAR", length=200, **kind)])
    statement = f"CREATE TABLE `t` (`id` INT PRIMARY KEY, `v` VARCHAR(99), {last})"
    apply(target, statement, CreateTableEvent(T, schema), schema=schema)


def shown(target: Target, what: str) -> tuple[list[str], list[str]]:
    """The literals, and the other words, of what SHOW CREATE shows."""
    found = words(str(target.execute(f"SHOW CREATE {what}")[0][1]))
    assert found is not None
    return [word.text for word in found if word.is_text], [word.text.upper() for word in found if not word.is_text]


@pytest.mark.parametrize("place", PLACES)
def test_mariadb_stores_the_expression_that_is_meant(mariadb, place: str) -> None:
    target = acquired(mariadb)
    for introducer, text in product(INTRODUCERS, TEXTS):
        written = introducer + literal(text)
        create(target, PLACES[place].format(written), f"CONCAT({written}, `v`)" if "column" in place else "")
        texts, others = shown(target, "TABLE shop.t")
        assert text in texts
        assert not {"CURRENT_USER", "#"} & set(others)
        target.execute("FLUSH TABLES", "INSERT INTO shop.t (id, v) VALUES (1, 'b')")
        assert target.execute("SELECT x FROM shop.t") == [(text if place == "default" else f"{text}b",)]
        target.execute("DROP TABLE shop.t")


def test_mariadb_stores_the_view_that_is_meant(mariadb) -> None:
    target, view = acquired(mariadb), TableId("shop", "w")
    create(target, "`x` VARCHAR(200)")
    target.execute("INSERT INTO shop.t (id, v) VALUES (1, 'b')")
    for introducer, text in product(INTRODUCERS, TEXTS):
        statement = f"CREATE OR REPLACE VIEW `w` AS SELECT CONCAT({introducer}{literal(text)}, `v`) AS `x` FROM `t`"
        apply(target, statement, OtherEvent(view))
        texts, others = shown(target, "VIEW shop.w")
        assert text in texts
        assert "CURRENT_USER" not in others
        target.execute("FLUSH TABLES")
        assert target.execute("SELECT x FROM shop.w") == [(f"{text}b",)]
        target.execute("DROP VIEW shop.w")


LOST = (
    "(`v` LIKE 'a') NOT IN (0, 5)",
    "(`v` NOT LIKE 'a') NOT IN (0, 5)",
    "(`v` REGEXP 'a') NOT IN (0, 5)",
    "(`v` RLIKE 'a') NOT BETWEEN 0 AND 0",
    "(`v` LIKE 'a') NOT LIKE '0'",
    "((`v` LIKE 'a')) NOT IN (0, 5)",
    "(NOT `v` LIKE 'a') NOT IN (0, 5)",
    "(!(`v` LIKE 'a')) NOT IN (0, 5)",
    "(`v` LIKE CASE WHEN `v` = 'z' THEN 'b' ELSE 'a' END) NOT IN (0, 5)",
    "NOT ((`v` LIKE 'a') IN (0, 5))",
    "NOT (`v` LIKE 'a') BETWEEN 0 AND 0",
    "!((`v` REGEXP 'a') LIKE '0')",
    "NOT (((`v` LIKE 'a') IN (0, 5)) AND 1)",
    "IF((`v` LIKE 'a') NOT IN (0, 5), 1, 2)",
)
KEPT = (
    "((`v` LIKE 'a') + 0) NOT IN (0, 5)",
    "NOT (((`v` LIKE 'a') + 0) IN (0, 5))",
    "IF(`v` LIKE 'a', 1, 0) NOT IN (0, 5)",
    "CONCAT(`v` LIKE 'a') NOT IN ('0', '5')",
    "CASE WHEN `v` LIKE 'a' THEN 0 ELSE 1 END NOT IN (0, 5)",
    "(CASE WHEN `v` LIKE 'a' THEN 0 ELSE 1 END) NOT IN (0, 5)",
    "(CASE WHEN (`v` LIKE 'a') THEN 0 ELSE 1 END) NOT IN (0, 5)",
    "(`v` LIKE 'a') = 0",
    "(`v` LIKE 'a') NOT REGEXP '0'",
    "NOT ((`v` REGEXP 'a') REGEXP '0')",
    "(`v` LIKE 'a') IS NOT TRUE",
    "NOT (`v` LIKE 'a') AND `v` NOT IN ('b', 'c')",
    "(`v` NOT LIKE 'a') OR (`v` NOT LIKE 'b')",
    "(`v` = 'a') NOT IN (0, 5)",
    "(`v` IN ('a', 'b')) NOT IN (0, 5)",
    "0 NOT IN ((`v` LIKE 'a'), 3)",
    "'0' NOT LIKE (`v` LIKE 'a')",
)


def values(target: Target, expression: str) -> list[tuple[object, object]]:
    """For each row, the value of the column or view, and that of the expression: both computed by MariaDB."""
    target.execute("FLUSH TABLES")
    return [(str(x), str(y)) for x, y in target.execute(f"SELECT x, CAST(({expression}) AS CHAR) FROM shop.t ORDER BY v")]


ROWS = "INSERT INTO shop.t (id, v) VALUES (1, 'a'), (2, 'b'), (3, '0'), (4, '1'), (5, NULL)"


@pytest.mark.parametrize("expression", LOST)
def test_an_expression_that_mariadb_stores_without_its_parentheses_is_refused(mariadb, expression: str) -> None:
    target = acquired(mariadb)
    target.execute(f"CREATE TABLE shop.t (id INT PRIMARY KEY, v VARCHAR(99), x VARCHAR(200) AS ({expression}))", ROWS)
    assert any(x != y for x, y in values(target, expression))
    target.execute("DROP TABLE shop.t")
    with pytest.raises(SchemaChangeRefused) as caught:
        create(target, f"`x` VARCHAR(200) AS ({expression})", expression)
    assert "MariaDB loses the parentheses around" in caught.value.problem.message
    assert "write ((…) + 0) in place of (…)" in caught.value.problem.hint
    assert target.execute("SHOW TABLES FROM shop") == []
    create(target, "`x` VARCHAR(200)")
    with pytest.raises(SchemaChangeRefused):
        apply(target, f"CREATE VIEW `w` AS SELECT {expression} AS `x` FROM `t`", OtherEvent(TableId("shop", "w")))


@pytest.mark.parametrize("expression", KEPT)
def test_an_expression_that_keeps_its_parentheses_is_computed_as_it_is_meant(mariadb, expression: str) -> None:
    target = acquired(mariadb)
    create(target, f"`x` VARCHAR(200) AS ({expression})", expression)
    target.execute(ROWS)
    assert all(x == y for x, y in values(target, expression))
    apply(target, f"CREATE VIEW `w` AS SELECT {expression} AS `x` FROM `t`", OtherEvent(TableId("shop", "w")))


def test_other_servers_get_such_an_expression() -> None:
    for expression in LOST:
        for server in ("MySQL", "TiDB"):
            assert expression in adapt_for(f"ALTER TABLE `t` ADD COLUMN `x` INT AS ({expression})", Server(server)).statement
