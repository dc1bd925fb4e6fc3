"""Which statements run by themselves, and what is said of those that do not."""

from __future__ import annotations

import json
import logging
import time
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlglot.errors import SqlglotError

from headrace.ddl.bounded_parser import parse
from headrace.ddl.expression_values import UntranslatableError
from headrace.ddl.expressions import to_duckdb
from headrace.ddl.grammar.statements import judge, judge_expression
from headrace.ddl.grammar.vocabulary import OPTION_WORDS
from headrace.ddl.statement import read_statement
from headrace.model.table import Column, TableId, TableSchema
from headrace.model.types import ColumnType, TypeKind
from hostile import benign_statements, hostile_statements

WAIT = ("ALTER TABLE t CHANGE",)
GOLDEN = Path(__file__).parents[1] / "golden" / "ddl"
KNOWN = [case for path in sorted(GOLDEN.glob("*.json")) for case in json.loads(path.read_text()) if case["parsed"]]
WRITTEN = [case for case in KNOWN if case["statement"] not in WAIT]

OBJECTIONS = {
    "GRANT ALL ON *.* TO x": "'GRANT' is not the beginning of a schema change",
    "`CREATE` TABLE t (a INT)": "'CREATE' is not the beginning of a schema change",
    "CREATE TABLE t (a INT) AS SELECT 1": "it copies rows by a query",
    "CREATE TABLE t (a INT) SELECT 1": "it copies rows by a query",
    "CREATE TABLE t (a INT) DATA DIRECTORY = '/x'": "it names a place in the server's file system (DATA DIRECTORY)",
    "CREATE TABLE t (a INT DEFAULT (SLEEP(9)))": "it calls SLEEP, which is not a function that is known",
    "CREATE TABLE t (a INT DEFAULT (`f`(9)))": "it calls f, which is not a function that is known",
    "CREATE TABLE t (a INT DEFAULT (@a))": "an expression has '@'",
    "CREATE TABLE t (a INT DEFAULT ((SELECT 1)))": "an expression has SELECT",
    "CREATE TABLE t (a INT DEFAULT ((TABLE u)))": "an expression has TABLE",
    "CREATE TABLE t (a INT); DROP TABLE u": "';' is not expected there",
    "CREATE TABLE t (a INT": "it ends too early",
    "CREATE TABLE t (a GEOMETRY)": "'GEOMETRY' is not a type of column that is known",
    "CREATE TEMPORARY TABLE t (a INT)": "it creates neither a database nor a table, an index or a view",
    "DROP USER u": "it drops neither a database nor a table, an index or a view",
    "ALTER USER u": "it alters neither a database nor a table",
    "CREATE VIEW v AS SELECT * FROM t FOR UPDATE": "an expression has FOR",
    "CREATE VIEW v AS SELECT LOAD_FILE('/x')": "it calls LOAD_FILE, which is not a function that is known",
    "CREATE VIEW v AS SELECT a INTO @a FROM t": "an expression has INTO",
    "CREATE VIEW v AS (SELECT * FROM t": "the query of the view cannot be read",
    "ALTER TABLE t ADD a INT DEFAULT 'x": "a string, a name or a comment in it does not end",
    "CREATE TABLE t (a INT CHECK ("
    + "(" * 200
    + "1"
    + ")" * 202: "the operators and parentheses of an expression are nested more than 50 deep",
}


@pytest.mark.parametrize("statement", OBJECTIONS)
def test_what_the_grammar_does_not_know_is_objected_to_in_a_clause(statement: str) -> None:
    judgement = judge(statement, "shop")
    assert judgement.objection.startswith(OBJECTIONS[statement])
    assert not judgement.names


@pytest.mark.parametrize("case", WRITTEN, ids=lambda case: case["statement"][:50])
def test_what_ticdc_writes_is_accepted(case: dict[str, str]) -> None:
    assert judge(case["statement"], case["database"]).objection == ""


@pytest.mark.parametrize("statement", benign_statements(), ids=lambda statement: statement.name)
def test_what_only_looks_odd_is_accepted(statement: object) -> None:
    found = judge(statement.sql, statement.own.database)  # type: ignore[attr-defined]
    assert found.objection == ""


@pytest.mark.parametrize("name", ["binary", "'binary'", "`binary`", '"utf8mb4"'])
@pytest.mark.parametrize("words", ["CHARACTER SET", "CHAR SET", "CHARSET"])
def test_a_character_set_may_be_written_in_any_of_three_ways(words: str, name: str) -> None:
    for statement in (
        f"CREATE TABLE t (a VARCHAR(9) {words} {name} NOT NULL, b CHAR {words} {name}) {words} = {name}",
        f"CREATE TABLE t (a ENUM('a') {words} {name})",
        f"CREATE TABLE t (a LONG VARCHAR {words} {name}) DEFAULT {words} {name}",
        f"ALTER TABLE t CONVERT TO {words} {name}, MODIFY a TEXT {words} {name}",
        f"ALTER TABLE t DEFAULT {words} {name}",
        f"ALTER TABLE t {words} {name}",
        f"CREATE DATABASE d {words} = {name}",
        f"ALTER DATABASE {words} {name}",
    ):
        assert judge(statement, "shop").objection == "", statement
    assert [*read_statement(f"ALTER DATABASE {words} {name}", "shop").tables] == [TableId("shop")]


def view_of_ctes(count: int, query: str, *, recursive: str = "") -> str:
    """Common table expressions (CTEs), each by this query over the former one (``@``)."""
    ctes = ", ".join(f"`a{n}` AS ({query.replace('@', f'`a{n - 1}`')})" for n in range(1, count))
    return f"CREATE VIEW v AS WITH {recursive} `a0` AS (SELECT 1 AS `i`), {ctes} SELECT `i` FROM `a{count - 1}`"


@pytest.mark.parametrize(
    "query",
    [
        "SELECT x.`i` FROM @ AS x, @ AS y",
        "SELECT 1 AS `i` FROM @ AS x WHERE EXISTS (SELECT 1 FROM @ AS y)",
        "SELECT `i` FROM @ UNION SELECT `i` FROM @",
        "SELECT (SELECT MAX(`i`) FROM @) AS `i` FROM (SELECT * FROM @) AS d",
    ],
)
@pytest.mark.parametrize("recursive", ["", "RECURSIVE"])
def test_a_view_waits_whose_ctes_double_with_each_level(query: str, recursive: str) -> None:
    assert judge(view_of_ctes(4, query, recursive=recursive), "d").objection == ""
    assert "200 tables and SELECTs" in judge(view_of_ctes(15, query, recursive=recursive), "d").objection
    assert "200 tables and SELECTs" in judge(view_of_ctes(500, "SELECT x.`i` FROM @ AS x, @ AS y"), "d").objection


def test_a_view_has_a_hundred_tables_or_queries() -> None:
    for query in (" UNION ALL ".join(["SELECT id FROM t"] * 100), "SELECT t.id FROM t" + " CROSS JOIN t" * 50):
        assert judge(f"CREATE VIEW v AS {query}", "d").objection == ""
    assert "200 tables and SELECTs" in judge(f"CREATE VIEW v AS {' UNION ALL '.join(['SELECT 1'] * 201)}", "d").objection


def test_a_table_counts_as_often_as_the_ctes_read_it() -> None:
    found = judge("CREATE VIEW v AS WITH a AS (SELECT * FROM t), b AS (SELECT 1 FROM a, a AS c) SELECT 1 FROM b, a, u", "d")
    assert sorted(found.occurrences) == [TableId("d", "t")] * 3 + [TableId("d", "u")]
    assert found.queries == 5


@pytest.mark.parametrize("recursive", ["", "RECURSIVE"])
def test_a_view_waits_whose_ctes_name_one_another(recursive: str) -> None:
    """With RECURSIVE, servers let a CTE name later ones."""
    mutual = f"WITH {recursive} a AS (SELECT * FROM b), b AS (SELECT * FROM a) SELECT * FROM a"
    assert "name one another" in judge(f"CREATE VIEW v AS {mutual}", "d").objection
    later = ", ".join(f"a{n} AS (SELECT 1 FROM a{n + 1} AS x, a{n + 1} AS y)" for n in range(15))
    assert "200 tables" in judge(f"CREATE VIEW v AS WITH {recursive} {later}, a15 AS (SELECT 1) SELECT 1 FROM a0", "d").objection


def test_no_statement_is_no_bad_one() -> None:
    assert judge("", "shop").objection == judge(" /* nothing */ ", "shop").objection == ""


def test_every_name_is_told() -> None:
    t, u, other = TableId("shop", "t"), TableId("shop", "u"), TableId("other", "x y")
    told = {
        "CREATE DATABASE `a b`": {TableId("a b")},
        "ALTER DATABASE CHARACTER SET utf8mb4": {TableId("shop")},
        "ALTER DATABASE PLACEMENT POLICY p": {TableId("shop")},
        "RENAME TABLE t TO `other` . `x y`, `shop`.t TO u": {t, u, other},
        "ALTER TABLE t RENAME = u": {t, u},
        "ALTER TABLE t ADD FOREIGN KEY (a) REFERENCES other.`x y` (a), ADD b INT REFERENCES u (b)": {t, u, other},
        "ALTER TABLE t EXCHANGE PARTITION p WITH TABLE other.`x y`": {t, other},
        "CREATE TABLE t LIKE u": {t, u},
        "CREATE TABLE t (a INT DEFAULT (NEXT VALUE FOR u))": {t, u},
        "CREATE TABLE t (a INT AS (other.`x y`.b) VIRTUAL)": {t, other},
        "DROP TABLE t, other.`x y`": {t, other},
        "CREATE INDEX i ON other.`x y` (a)": {other},
        "CREATE VIEW t AS SELECT a FROM u JOIN (SELECT * FROM other.`x y`) AS d WHERE EXISTS (SELECT 1 FROM w)": {
            t, u, other, TableId("shop", "w")
        },
    }  # fmt: skip
    assert {statement: set(judge(statement, "shop").names) for statement in told} == told


def test_the_engine_reads_what_the_grammar_accepts() -> None:
    """Found by the fuzzer: the one took an option for a name, and a user without a host for the end."""
    for statement in ("ALTER DATABASE PLACEMENT POLICY p", "CREATE DEFINER=`root`@`` VIEW v AS SELECT id FROM t"):
        assert judge(statement, "shop").objection == ""
        assert {*read_statement(statement, "shop").tables} <= judge(statement, "shop").names
        assert read_statement(statement, "shop").tables


def test_tables_of_a_query_are_told_from_names_that_it_gives() -> None:
    told = {
        "WITH u AS (SELECT 1 AS a) SELECT a FROM u": set(),
        "WITH u AS (SELECT * FROM u) SELECT * FROM u": {"u"},
        "WITH RECURSIVE u AS (SELECT 1 UNION ALL SELECT 1 FROM u) SELECT * FROM u": set(),
        "WITH a AS (SELECT * FROM b), b AS (SELECT 1) SELECT * FROM a": {"b"},
        "SELECT x.a FROM u AS x, (SELECT 1) AS y": {"u"},
        "WITH `STRAẞE` AS (SELECT 1) SELECT 1 FROM `straße`": {"straße"},
    }
    for query, tables in told.items():
        assert {table.table for table in judge(f"CREATE VIEW v AS {query}", "shop").selects} == tables, query


@pytest.mark.parametrize(
    "query",
    [
        "SELECT 1 FROM a" + " JOIN a" * 40,
        "SELECT 1 FROM a" + " STRAIGHT_JOIN a" * 40,
        "SELECT " + "CHAR(" * 40 + "a" + " USING utf8mb4)" * 40 + " FROM a",
        "SELECT " + "YEAR(" * 40 + "a" + ") OVER ()" * 40 + " FROM a",
        "SELECT 1 FROM a WHERE " + "(" * 45 + "a" + ")" * 45,
    ],
)
def test_a_query_that_takes_long_to_read_is_given_up(query: str) -> None:
    begun = time.process_time()
    judge(f"CREATE VIEW v AS {query}", "shop")
    assert time.process_time() - begun < 1


def test_words_of_options_are_no_names_without_backquotes() -> None:
    for statement in (
        "CREATE VIEW v AS SELECT id FROM CLUSTERED secrets",
        "RENAME TABLE attributes.secrets TO t",
        "ALTER TABLE t EXCHANGE PARTITION p WITH TABLE clustered.secrets",
        "CREATE TABLE t LIKE encryption.secrets",
        "CREATE TABLE t (a INT, ttl INT)",
        "CREATE VIEW v AS SELECT f.log(id) FROM t AS f",
        "CREATE TABLE t (a INT) PARTITION BY HASH (a) (PARTITION p ENGINE MyISAM)",
    ):
        assert judge(statement, "shop").objection, statement
        assert not judge("CREATE VIEW v AS SELECT id FROM `clustered` secrets", "shop").objection


@pytest.mark.parametrize("path", ["[\x1b]0;owned\x07]", "a\nwarning: forged\u202e", "$.", ""])
def test_nothing_of_a_statement_is_logged(path: str, caplog: pytest.LogCaptureFixture) -> None:
    """A log entry would reach the terminal of the person who runs a command as it is."""
    schema = TableSchema(TableId("shop", "t"), (Column("j", ColumnType(TypeKind.JSON)),), ())
    for expression in (f"j -> '{path}'", f"JSON_EXTRACT(j, '{path}')", f"JSON_VALUE(j, '{path}')", f"SHOW {path}"):
        judge(f"CREATE VIEW v AS SELECT {expression} AS id FROM orders", "shop")
        judge(f"CREATE VIEW v AS {expression}", "shop")
        with suppress(UntranslatableError):
            to_duckdb(expression, ColumnType(TypeKind.TEXT), schema)
        with suppress(SqlglotError):
            parse(f"{expression} {path}")
    assert caplog.records == []
    logging.getLogger("sqlglot").warning("of the program that imports Headrace")
    assert len(caplog.records) == 1


OPTIONS_IN_COMMENTS = (
    *("AFFINITY", "AUTO_ID_CACHE", "AUTO_RANDOM", "AUTO_RANDOM_BASE", "CLUSTERED", "GLOBAL", "NONCLUSTERED", "PLACEMENT"),
    *("PRE_SPLIT_REGIONS", "REMOVE", "SHARD_ROW_ID_BITS", "TTL", "TTL_ENABLE", "TTL_JOB_INTERVAL"),
)
"""The first words of what TiDB writes in its comments, except for FORCE, which is reserved."""


@pytest.mark.parametrize("word", sorted({*OPTIONS_IN_COMMENTS, *OPTION_WORDS}))
@pytest.mark.parametrize(
    "statement",
    [
        "CREATE VIEW v AS SELECT * FROM {} secrets",
        "CREATE VIEW v AS SELECT * FROM shop.{} secrets",
        "CREATE VIEW v AS SELECT {}.id FROM orders",
        "CREATE VIEW v AS SELECT id AS {} FROM orders",
        "RENAME TABLE {}.secrets TO orders2",
        "DROP TABLE {}",
        "TRUNCATE TABLE shop.{}",
        "CREATE TABLE t (a INT, {} INT)",
        "ALTER TABLE t ADD INDEX i ({})",
    ],
)
def test_each_word_of_an_option_is_a_name_only_in_backquotes(word: str, statement: str) -> None:
    for spelled in (word, word.lower()):
        for opened in (spelled, f"/*T! {spelled} */", f"/*! {spelled} */"):
            assert judge(statement.format(opened), "shop").objection
    if "id FROM" not in statement:
        assert not judge(statement.format(f"`{word}`"), "shop").objection


def _mutations(text: str) -> st.SearchStrategy[str]:
    pieces = st.sampled_from([s.sql for s in hostile_statements()])
    return st.builds(
        lambda at, piece, end: text[:at] + piece[end:] + text[at:], st.integers(0, len(text)), pieces, st.integers(0, 40)
    )


@pytest.mark.long
@given(st.sampled_from([s.sql for s in (*hostile_statements(), *benign_statements())]).flatmap(_mutations))
def test_every_statement_is_judged(text: str) -> None:
    judge(text, "shop")


def test_an_expression_of_a_statement_that_nobody_judged_is_judged_by_itself() -> None:
    assert judge_expression("`a` IN (1, 2) OR `a` IS NULL") == ""
    assert judge_expression("TO_DAYS(`a`) < 7") == ""
    for text in ("SLEEP(9)", "1) OR (SELECT 1", "1); DROP TABLE t -- ", "(SELECT 1)", "'x", "@a := 1"):
        assert judge_expression(text) != ""


@pytest.mark.parametrize("place", ["ADD COLUMN g TEXT AS (CONCAT({}))", "ADD COLUMN g TEXT DEFAULT {}", "ADD CHECK (g <> {})"])
def test_a_literal_with_a_character_set_waits(place: str) -> None:
    digits = ("0x27", "x'27'", "X'27'", "0b1", "b'1'")
    for charset in ("_latin1", "_BINARY", "_ascii", "_gbk", "_utf8mb5", "_"):
        for literal in ("'a'", "'a''b'", "''", '"a"', "'é'", *digits, "7"):
            why = judge(f"ALTER TABLE t {place.format(f'{charset} {literal}')}", "d").objection
            assert f"a literal has the character set {charset}, which servers store differently" in why
            assert f"Write it as a text without {charset}" in why
    text = "'a'"
    for charset in ("_utf8mb4", "_UTF8", "_utf8mb3"):
        assert judge(f"ALTER TABLE t {place.format(f'{charset} {text}')}", "d").objection == ""
        for literal in digits:
            assert judge(f"ALTER TABLE t {place.format(f'{charset} {literal}')}", "d").objection


def test_columns_with_too_many_members_wait() -> None:
    def members(count: int, length: int) -> str:
        return ", ".join(f"'{number:0{length}}'" for number in range(count))

    for count, length in ((500, 200), (1_000, 50), (2_000, 12), (3_500, 4)):
        assert judge(f"CREATE TABLE t (e ENUM({members(count, length)}))", "d").objection == ""
        assert judge(f"ALTER TABLE t MODIFY e SET({members(count, length)})", "d").objection == ""
        for more in (f"e ENUM({members(count * 2, length)})", f"e ENUM({members(count, length)}), f SET({members(count, length)})"):
            statement = f"CREATE TABLE t ({more})"
            assert "its ENUM and SET columns have too many or too long members" in judge(statement, "d").objection
    assert judge(f"CREATE TABLE t (e ENUM({members(9, 4)}, '{'x' * 600_000}'))", "d").objection
    several = ", ".join(f"ADD COLUMN e{number} ENUM({members(100, 50)})" for number in range(100))
    assert judge(f"ALTER TABLE t {several}", "d").objection == ""
    assert judge(f"ALTER TABLE t {several}, ADD COLUMN f ENUM({members(100, 50)})", "d").objection


@pytest.mark.parametrize(
    "clause", ["CONVERT TO CHARACTER SET DEFAULT", "CONVERT TO CHARSET DEFAULT COLLATE utf8mb4_bin", "DEFAULT CHARSET = DEFAULT"]
)
def test_the_default_character_set_waits_with_the_reason(clause: str) -> None:
    """Servers take that of their database, or of themselves."""
    assert judge(f"ALTER TABLE t {clause}", "shop").objection.startswith("it takes the default character set or collation")
