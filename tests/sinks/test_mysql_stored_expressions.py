"""Expressions that MariaDB stores as text, and reads again: they stay what was meant, or are refused. On a real MariaDB."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from itertools import product

import pymysql
import pytest
from mysql_writing import Target, acquired, column, table

from headrace.ddl.lexer import words
from headrace.model.events import CreateTableEvent, OtherEvent, SchemaChange
from headrace.model.outcome import Notice
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


def apply(
    target: Target, statement: str, event: CreateTableEvent | OtherEvent, schema: TableSchema | None = None
) -> Sequence[Notice]:
    own = event.table_id
    change = SchemaChange(5, own, (event,), statement, "shop", frozenset({own}), schema=schema, origin=PlaceInFile("f.json"))
    return target.sink.metadata_applier.apply_schema_change(change)


def create(target: Target, last: str, expression: str = "", after: str = "") -> Sequence[Notice]:
    kind = {"generated": Generated.VIRTUAL, "expression": expression} if expression else {}
    schema = table("t", [ID, V, column("x", "VARCHAR", length=200, **kind)])
    statement = f"CREATE TABLE `t` (`id` INT PRIMARY KEY, `v` VARCHAR(99), {last}) {after}"
    return apply(target, statement, CreateTableEvent(T, schema), schema=schema)


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


NO_ESCAPES = "NO_BACKSLASH_ESCAPES"
PARTITIONS = {
    "RANGE": "PARTITION BY RANGE (`id`) (PARTITION `p` VALUES LESS THAN (9) COMMENT = {}, PARTITION `q` VALUES LESS THAN (99))",
    "LIST": "PARTITION BY LIST (`id`) (PARTITION `p` VALUES IN (1, 2) COMMENT {})",
    "subpartition": "PARTITION BY RANGE (`id`) SUBPARTITION BY HASH (`id`) (PARTITION `p` VALUES LESS THAN (9)"
    " (SUBPARTITION `s` COMMENT = {}))",
}


@pytest.mark.parametrize("partitions", PARTITIONS.values(), ids=PARTITIONS)
def test_a_comment_of_a_partition_that_sessions_read_differently_is_left_out(mariadb, partitions: str) -> None:
    target = acquired(mariadb)
    for text in ("it's", "a\\", "a\\' MAX_ROWS=7", "a\nb", "plain, é (x)"):
        notices = create(target, "`x` VARCHAR(9)", after=partitions.format(literal(text)))
        told = [notice.message for notice in notices if "of a partition was left out" in notice.message]
        assert bool(told) == (text[0] != "p")
        assert (text in shown(target, "TABLE shop.t")[0]) == (text[0] == "p")
        target.execute("INSERT INTO shop.t (id) VALUES (1)", "FLUSH TABLES")
        read = target.execute(f"SET SESSION sql_mode = '{NO_ESCAPES}'", "SELECT id FROM shop.t")
        assert read == [(1,)]
        target.execute("DROP TABLE shop.t")


def test_without_leaving_it_out_such_a_session_could_not_open_the_table(mariadb) -> None:
    target = acquired(mariadb)
    comment = literal("it's")
    target.execute(f"CREATE TABLE shop.t (id INT) {PARTITIONS['LIST'].format(comment)}", "FLUSH TABLES")
    with pytest.raises(pymysql.err.ProgrammingError, match="You have an error in your SQL syntax"):
        target.execute(f"SET SESSION sql_mode = '{NO_ESCAPES}'", "SELECT id FROM shop.t")


@pytest.mark.parametrize("mode", ["", NO_ESCAPES])
def test_the_bounds_of_partitions_are_those_that_are_meant_in_each_session(mariadb, mode: str) -> None:
    target = acquired(mariadb)
    for introducer, text in product(INTRODUCERS, TEXTS):
        partitions = f"PARTITION BY LIST COLUMNS (`v`) (PARTITION `p` VALUES IN ({introducer}{literal(text)}))"
        schema = table("t", [V], ())
        apply(target, f"CREATE TABLE `t` (`v` VARCHAR(99)) {partitions}", CreateTableEvent(T, schema), schema=schema)
        inserted = f"INSERT INTO shop.t (v) VALUES (FROM_BASE64('{b64encode(text.encode()).decode()}'))"
        target.execute("FLUSH TABLES", f"SET SESSION sql_mode = '{mode}'", inserted)
        assert target.execute("SELECT v FROM shop.t PARTITION (p)") == [(text,)]
        target.execute("DROP TABLE shop.t")


def test_only_comments_of_partitions_are_left_out() -> None:
    statement = (
        "ALTER TABLE `t` ADD COLUMN (`partition` INT COMMENT 'it''s'), ADD PARTITION (PARTITION `p` VALUES IN (1) COMMENT 'it''s'"
        " ENGINE = InnoDB, PARTITION `q` VALUES IN (2) COMMENT = 'q'), COMMENT = 'it''s'"
    )
    adapted = adapt_for(statement, Server("MariaDB"))
    assert adapted.statement == statement.replace(" VALUES IN (1) COMMENT 'it''s'", " VALUES IN (1)")
    assert adapted.notices == ("COMMENT 'it''s' of a partition was left out, which MariaDB would not read in every SQL mode.",)
    for server in ("MySQL", "TiDB"):
        assert adapt_for(statement, Server(server)).statement == statement
