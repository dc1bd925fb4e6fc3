"""What the expressions of a statement may make a server compute for each row, told without running them."""

from __future__ import annotations

import time
from itertools import pairwise

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from headrace.ddl.computing import excess
from headrace.ddl.function_costs import COSTS
from headrace.ddl.grammar.statements import judge
from headrace.ddl.lexer import words
from headrace.model.table import Column, TableId, TableSchema
from headrace.model.types import ColumnType, TypeKind

T = TableId("d", "t")
MOST = 65_536
KINDS = {"id": TypeKind.INT, "n": TypeKind.INT, "v": TypeKind.TEXT, "j": TypeKind.JSON, "d": TypeKind.DATE, "f": TypeKind.DOUBLE}
KINDS |= dict.fromkeys("abc", TypeKind.VARCHAR)
SCHEMA = TableSchema(T, tuple(Column(name, ColumnType(kind)) for name, kind in KINDS.items()), ("id",))
PLACES = {
    "generated": "CREATE TABLE `t` (`id` INT PRIMARY KEY, `v` TEXT, `n` INT, `g` TEXT AS ({}) STORED)",
    "added": "ALTER TABLE `t` ADD COLUMN `g` TEXT GENERATED ALWAYS AS ({}) VIRTUAL",
    "check": "CREATE TABLE `t` (`id` INT PRIMARY KEY, `v` TEXT, CHECK (({}) <> 'x'))",
    "default": "ALTER TABLE `t` ADD COLUMN `g` TEXT DEFAULT ({})",
    "index": "CREATE INDEX `i` ON `t` ((CHAR_LENGTH({})))",
    "partitions": "CREATE TABLE `t` (`id` INT) PARTITION BY HASH (CHAR_LENGTH({}))",
}


def functions(begin: str, end: str, innermost: str, depth: int) -> str:
    """A function in itself."""
    return begin * depth + innermost + end * depth


BOUNDED = (
    "LPAD(`id`, 10, '0')",
    "RPAD(`v`, 255, ' ')",
    "REPEAT('x', 3)",
    "CONCAT(`a`, '-', LOWER(`b`))",
    "REGEXP_REPLACE(`v`, '[^0-9]', '')",
    r"REGEXP_REPLACE(`v`, '([0-9]+)-([0-9]+)', '\\2-\\1')",
    "REPLACE(REPLACE(REPLACE(`v`, ' ', '-'), '--', '-'), '.', '')",
    "REPLACE(`v`, '&', '&amp;')",
    "LPAD(HEX(`id`), 16, '0')",
    "SHA2(CONCAT_WS('|', `a`, `b`, `c`), 256)",
    "JSON_UNQUOTE(JSON_EXTRACT(`j`, '$.a.b'))",
    " OR ".join(f"`v` LIKE '%{n}%'" for n in range(40)),
    "`v` REGEXP '^[a-z]+$' AND LOCATE('x', `v`) = 0",
    "TRIM(BOTH ' ' FROM SUBSTRING_INDEX(`v`, ',', 1))",
    "JSON_CONTAINS(`j`, '1')",
    "CASE `v` WHEN 'a' THEN 'Andorra' ELSE CAST(`n` AS CHAR(20)) END",
    f"REPLACE(CASE {' '.join(f'WHEN `n` = {n} THEN `a`' for n in range(10))} ELSE `b` END, 'a', 'b')",
    "REPLACE(LOWER(HEX(`a`)), '00', '')",
    "JSON_SET(`j`, '$.a', `v`, '$.b', NOW())",
    "JSON_MERGE_PATCH(`j`, '{\"a\": 1}')",
    "`j` -> _utf8mb4'$.a' = JSON_EXTRACT(`j`, _utf8mb4'$**.a')",
    "JSON_SEARCH(`j`, 'one', 'a') IS NOT NULL",
    'JSON_SCHEMA_VALID(\'{"type": "object", "required": ["a"]}\', `j`)',
    "`j` ->> '$.a' = 'x' OR CONCAT_WS(' ', a, b, c) LIKE '%x%'",
)
UNBOUNDED = (
    "REGEXP_REPLACE(REPEAT(`v`, 4000000), 'a', 'b')",
    "REPEAT('x', `n`)",
    "SPACE(`n` * 2)",
    "REPEAT(`v`, CHAR_LENGTH(`v`))",
    "REPEAT('x', LEAST(`n`, 5) - `n`)",
    "REPEAT('x', 10 + 10000000)",
    "REPEAT(REPEAT('a', 1000), 1000)",
    "LPAD(`v`, '4000000', 'a')",
    "LPAD(`v`, 0xFFFFFF, 'a')",
    "RPAD(`v`, 1e7, 'a')",
    "LPAD(`v`, 9999999 / 0.1, 'a')",
    "CAST(`v` AS BINARY(16000000))",
    "REPLACE(`a`, 'x', `b`)",
    r"REGEXP_REPLACE(`v`, '(?=(.*)).', '\\1')",
    r"REGEXP_REPLACE(`v`, `a`, '\\1')",
    "REPLACE(LPAD(`v`, 4000, 'a'), 'a', 'b')",
    "REPLACE(REPLACE(`v`, 'a', 'aaaaaaaaaaaaaaaaaaaaaaaa'), 'a', 'b')",
    "TRIM(TRAILING 'x' FROM REPEAT(`v`, 1900))",
    "LOCATE(CONCAT(REPEAT(`v`, 900), 'b'), REPEAT(`v`, 1900))",
    "LOCATE(CONCAT(REPEAT('a', 30000), 'b'), REPEAT('a', 65000))",
    "INSTR(REPEAT(`v`, 1900), 'b')",
    "POSITION('b' IN REPEAT(`v`, 1900))",
    "SUBSTRING_INDEX(REPEAT(`v`, 1900), CONCAT(REPEAT(`v`, 900), 'b'), 1)",
    "FIND_IN_SET(`v`, REPEAT(`v`, 1900))",
    "REPEAT(`v`, 1900) LIKE CONCAT('%', REPEAT(`v`, 900), 'b', '%')",
    "`v` NOT LIKE CONCAT('%', REPEAT(`v`, 900), 'b', '%')",
    "REPEAT(`v`, 1900) REGEXP '(x+x+)+y'",
    "(REPEAT(`v`, 1900)) RLIKE `v`",
    "REGEXP_SUBSTR(REPEAT(`v`, 1900), '(x+x+)+y')",
    "HEX(" * 14 + "`v`" + ")" * 14,
    "JSON_PRETTY(JSON_PRETTY(`v`))",
    " + ".join(["CHAR_LENGTH(LPAD(`v`, 20000, 'x'))"] * 20),
    *(f"CHAR_LENGTH(REPEAT({word}, 40000000))" for word in ("_v", "$v", "€v", "row", "end", "TRUE", "FALSE", "NULL", "t.when")),
    "REPEAT('' = '', 70000)",
    "REPEAT(CURRENT_DATE, 2000)",
    "REPEAT(CEIL(`f`), 300)",
    "CONCAT(LEFT(`v`, 2), REPEAT('*', CHAR_LENGTH(`v`) - 2))",
    "REPEAT('x', LEAST(`n`, 20))",
    "REPEAT('x', GREATEST(`d`, 101))",
    "REPEAT('x', (9))",
    "REPEAT('x', - 9)",
    "REPEAT('x', 9 + 9)",
    "REPEAT('x', '9')",
    "REPEAT('x', 9.0)",
    "REPEAT('x', 0x9)",
    "REPEAT('x', ١)",
    "SPACE(１)",
    "CAST(`v` AS BINARY(16000000.0))",
    "CAST(`v` AS BINARY(1e7))",
    "CAST(`v` AS BINARY(0xFFFFFF))",
    "CAST(`v` AS BINARY(b'1111'))",
    "CONVERT(`v`, BINARY(16000000.0))",
    "AES_ENCRYPT(`v`, 'key', '', 'pbkdf2_hmac', 'salt', '65535')",
    "JSON_EXTRACT(`j`, '$**[0]**[0].b')",
    "JSON_VALUE(`j`, '$**[0]**[0].b')",
    "JSON_CONTAINS_PATH(`j`, 'one', '$.a', '$**[0]**[0].b')",
    "JSON_CONTAINS(`j`, '1', '$**[0]**[0].b')",
    "JSON_SEARCH(`j`, 'one', 'a', NULL, '$**[0]**[0].b')",
    "JSON_EXTRACT(`j`, '$**' '[0]**[0].b')",
    "JSON_EXTRACT(`j`, CONCAT('$**', '[0]**[0].b'))",
    "JSON_EXTRACT(`j`, `v`)",
    "`j` -> '$**[0]**[0].b'",
    "`j` ->> '$**[0]**[0].b'",
    "JSON_MERGE_PATCH(REPEAT(`v`, 100), `v`)",
    "JSON_MERGE(REPEAT(`v`, 100), `v`)",
    "JSON_MERGE_PRESERVE(REPEAT(`v`, 100), `v`)",
    "JSON_SEARCH(`j`, 'all', 'a')",
    'JSON_SCHEMA_VALID(\'{"pattern": "(a|a)*$"}\', `j`)',
    f"JSON_EXTRACT(`j`{', CONCAT(`v`)' * 11})",
    functions("JSON_SET('[\"\"]', '$[0]', ", ")", "`v`", 8),
    *(functions(f"{name}('[[]]', '$[0]', ", ")", "`v`", 8) for name in ("JSON_INSERT", "JSON_REPLACE", "JSON_ARRAY_APPEND")),
    functions("CONVERT(BINARY ", " USING latin1)", "`v`", 6),
)


@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)
@pytest.mark.parametrize("expression", BOUNDED)
def test_an_ordinary_expression_is_within_the_bounds(place: str, expression: str) -> None:
    assert excess(place.format(expression), SCHEMA) == ""


@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)
@pytest.mark.parametrize("expression", UNBOUNDED)
def test_an_expression_that_makes_long_texts_of_short_ones_is_told(place: str, expression: str) -> None:
    assert excess(place.format(expression), SCHEMA) != ""


def test_a_function_of_which_nothing_is_known_may_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(COSTS, "ABS")
    assert excess(PLACES["check"].format("ABS(`n`)"), SCHEMA) == "it is not known how much ABS computes"


def test_a_member_of_an_enum_and_a_padded_number_are_longer_than_what_a_row_has_of_them() -> None:
    kinds = {"e": ColumnType(TypeKind.ENUM, elements=("a" * 3_000,)), "s": ColumnType(TypeKind.SET, elements=("a" * 50,) * 60)}
    kinds |= {"z": ColumnType(TypeKind.BIGINT, length=255), "x": ColumnType(TypeKind.DOUBLE, length=255, scale=30)}
    schema = TableSchema(T, tuple(Column(name, kind) for name, kind in kinds.items()))
    for expression in ("REPLACE(`e`, 'a', 'b')", "REPLACE(`s`, 'a', 'b')", "REPEAT(`z`, 300)", "REPEAT(`x`, 200)"):
        assert excess(PLACES["index"].format(expression), schema) != ""


@pytest.mark.parametrize(
    "query",
    [
        "SELECT `id` FROM `t` WHERE `id` IN ('aaaaaaaaaaaab' REGEXP '(a|a)*$', 7)",
        "SELECT ROUND(`id`, LOCATE(REPEAT('a', 65000), REPEAT('a', 65000))) AS `n` FROM `t`",
        "SELECT `id` FROM `t` WHERE `v` LIKE REPLACE(SPACE(16000000), ' ', 'aa')",
        "SELECT `id` FROM (SELECT `id` FROM `t` WHERE `id` IN (SPACE(1 + 16000000), 7)) AS `d`",
    ],
)
def test_constants_that_take_long_wait_in_a_view_too(query: str) -> None:
    """CREATE VIEW already computes them."""
    assert excess(f"CREATE VIEW `v` AS {query}", None) != ""


@pytest.mark.parametrize(
    "query",
    [
        "SELECT COUNT(*) AS `c`, GROUP_CONCAT(DISTINCT `a` ORDER BY `b` SEPARATOR ',') AS `g` FROM `t` GROUP BY `a` HAVING `c` > 1",
        "SELECT `a` FROM `t` JOIN `u` ON `t`.`id` = `u`.`id` WHERE `a` LIKE '%x%' AND `b` NOT REGEXP '^[a-z]+$' LIMIT 9",
        "SELECT ROW_NUMBER() OVER (PARTITION BY `a` ORDER BY `b`) AS `n`, REPLACE(CONCAT(`a`, `b`), ' ', '') AS `x` FROM `t`",
        "SELECT `id` FROM `t` WHERE EXISTS (SELECT 1 FROM `u` WHERE `u`.`id` = 1) UNION SELECT `id` FROM `w` WHERE `v` LIKE 'a'",
    ],
)
def test_ordinary_views_are_within_the_bounds(query: str) -> None:
    assert excess(f"CREATE VIEW `v` AS {query}", None) == ""


def doubling(count: int) -> list[Column]:
    pairs = zip(["v", *(f"g{i}" for i in range(count))], range(count), strict=False)
    text = ColumnType(TypeKind.LONGTEXT)
    return [Column(f"g{i}", text, expression=f"CONCAT({former}, {former})") for former, i in pairs]


def test_what_a_generated_column_is_made_of_is_counted_in_whatever_order_they_stand() -> None:
    few, many = doubling(7), doubling(20)
    for columns in (few, few[::-1]):
        assert excess("ALTER TABLE `t` ADD COLUMN `x` INT", TableSchema(T, tuple(columns), ())) == ""
    for columns in (many, many[::-1]):
        assert excess("ALTER TABLE `t` ADD COLUMN `x` INT", TableSchema(T, tuple(columns), ())) != ""
    written = ", ".join(f"{column.name} LONGTEXT AS ({column.expression})" for column in many)
    assert excess(f"CREATE TABLE t (v TEXT, {written})", None) != ""
    assert excess("ALTER TABLE t ADD CHECK (HEX(HEX(g6)) <> '')", TableSchema(T, tuple(few), ())) != ""


@pytest.mark.parametrize(
    "statement", ["ALTER TABLE t COMMENT = 'x'", "CREATE INDEX i ON t (v(10))", "TRUNCATE TABLE t", "DROP INDEX i ON t", ""]
)
def test_a_statement_that_computes_nothing_is_not_judged_by_what_is_there(statement: str) -> None:
    there = TableSchema(T, tuple(doubling(20)), ())
    assert excess(statement, there) == ""
    assert excess("CREATE INDEX i ON t ((CHAR_LENGTH(g19)))", there) != ""
    assert excess("ALTER TABLE t MODIFY COLUMN v LONGTEXT", there) != ""


def test_a_text_of_many_columns_is_as_long_as_they_are_together() -> None:
    columns = ", ".join(f"`c{number}`" for number in range(1_000))
    assert excess(f"CREATE TABLE `t` (`g` TEXT AS (SHA2(CONCAT({columns}), 256)))", None) == ""
    assert excess(f"CREATE TABLE `t` (`g` TEXT AS (HEX(HEX(CONCAT({columns})))))", None) != ""


@pytest.mark.long
@pytest.mark.parametrize("bound", ["TO_DAYS('2026-01-01')", "UNIX_TIMESTAMP('2026-01-01 00:00:00.000000')"])
def test_as_many_partitions_as_tidb_has_may_have_bounds_that_are_computed(bound: str) -> None:
    partitions = ", ".join(f"PARTITION p{number} VALUES LESS THAN ({bound})" for number in range(8_192))
    assert excess(f"CREATE TABLE t (d DATETIME) PARTITION BY RANGE (TO_DAYS(d)) ({partitions})", None) == ""


def test_a_column_may_have_the_name_of_a_function_that_makes_it() -> None:
    assert excess("CREATE TABLE `t` (`at` DATETIME, `year` INT AS (YEAR(`at`)) STORED, `day` INT AS (DAY(`at`)))", None) == ""


SEARCHES = ("`v` REGEXP {}", "`v` NOT RLIKE {} AND `n` > 1", "REGEXP_LIKE(`v`, {})", "REGEXP_REPLACE(`v`, _utf8mb4{}, '') = ''")
SEARCHES += ("REGEXP_INSTR(`v`, {}) > 0", "REGEXP_SUBSTR(`v`, {}) = 'a'", "`v` REGEXP _utf8mb4{}")


@pytest.mark.parametrize("search", SEARCHES)
def test_texts_are_searched_by_ordinary_patterns_that_stand_there(search: str) -> None:
    for place in PLACES.values():
        assert excess(place.format(search.format("'^[0-9]{3}-[0-9]+$'")), None) == ""
        assert "'(a|a)*$' repeats a group without a bound" in excess(place.format(search.format("'(a|a)*$'")), None)


@pytest.mark.parametrize("pattern", ["`p`", "CONCAT('(a|a)', '*$')", "'(a|a)' '*$'", "BINARY 'a'", "('a')", "LOWER('A')", "0x28"])
def test_a_pattern_that_is_made_for_each_row_is_told(pattern: str) -> None:
    for search in ("`v` REGEXP {}", "REGEXP_LIKE(`v`, {})", "REGEXP_REPLACE(`v`, {}, '') = ''"):
        assert "is not a literal text" in excess(PLACES["check"].format(search.format(pattern)), None)


def chain(count: int, expression: str) -> str:
    """A table with so many generated columns, each computed from the former one (``@``)."""
    names = ["n", *(f"g{number}" for number in range(count))]
    columns = (f"{name} INT AS ({expression.replace('@', former)}) STORED" for former, name in pairwise(names))
    return f"CREATE TABLE t (n INT, {', '.join(columns)})"


@pytest.mark.parametrize(
    "expression", ["- " * 15 + "@", "@" + " + 1" * 15, functions("ABS(", ")", "@", 15), "NULLIF(@, 'a')", "@ IN (7, 'a')"]
)
def test_an_expression_is_as_deep_as_the_columns_that_it_reads_make_it(expression: str) -> None:
    """MariaDB walks into them, also into those that are stored."""
    assert excess(chain(2, expression), None) == ""
    assert "nested more than 50 deep" in excess(chain(4, expression), None)


def test_a_column_that_is_read_counts_with_its_operations() -> None:
    of_100 = " OR ".join(["`n` = 1"] * 50)
    reads = "CREATE TABLE t (n INT, g INT AS ({}), h INT AS ({}))"
    assert excess(reads.format(of_100, " AND ".join(["g"] * 3)), None) == ""
    assert "more than 1,000 operations" in excess(reads.format(of_100, " AND ".join(["g"] * 10)), None)
    there = TableSchema(T, (Column("g", ColumnType(TypeKind.INT), expression=of_100),))
    assert excess("ALTER TABLE t ADD CHECK (g > 1)", there) == ""
    for added in ("ADD CHECK ({})", "ADD COLUMN h INT AS ({})", "ADD INDEX i (({}))", "ADD COLUMN h INT DEFAULT ({})"):
        assert "more than 1,000 operations" in excess(f"ALTER TABLE t {added.format(' AND '.join(['g > 1'] * 10))}", there)


def test_patterns_of_a_statement_count_together() -> None:
    slow = r"`v` REGEXP '\\s+$'"
    assert excess(PLACES["check"].format(" AND ".join([slow] * 4)), SCHEMA) == ""
    assert "may take more than 10,000,000 steps" in excess(PLACES["check"].format(" AND ".join([slow] * 11)), SCHEMA)


@pytest.mark.long
def test_patterns_are_read_soon_or_not_at_all() -> None:
    many = ", ".join(["`v` REGEXP '^((((abcdefghijklmnop){9}){9}){9})'"] * 50_000)
    statement = PLACES["check"].format(f"GREATEST({many})")
    words(statement)
    began = time.process_time()
    assert excess(statement, SCHEMA) != ""
    assert "operations" in judge(statement, "d").objection
    assert time.process_time() - began < 3
    assert "more than 20 regular expressions" in excess(PLACES["check"].format(" AND ".join(["`v` REGEXP 'a'"] * 21)), SCHEMA)


_LITERALS = st.sampled_from(["a", "bbb", "", "a" * 50]).map(lambda text: f"'{text}'")
_NUMBERS = st.sampled_from([1, 2, 7, 30])
_EXPRESSIONS = st.recursive(
    _LITERALS,
    lambda inner: st.one_of(
        st.builds(lambda a, n: f"REPEAT({a}, {n})", inner, _NUMBERS),
        st.builds(lambda a, n, b: f"LPAD({a}, {n}, {b})", inner, _NUMBERS, inner),
        st.builds(lambda a, b: f"CONCAT({a}, {b})", inner, inner),
        st.builds(lambda a, b, c: f"REPLACE({a}, {b}, {c})", inner, _LITERALS, inner),
        st.builds(lambda a, b: f"REPEAT({a}, CHAR_LENGTH({b}) * 2 + 1)", inner, inner),
        inner.map(lambda a: f"HEX({a})"),
    ),
    max_leaves=6,
)


def value(expression: str) -> str:
    """What MySQL's functions give, in Python."""
    functions = {
        "REPEAT": lambda text, times: text * times,
        "LPAD": lambda text, size, by: text[:size] if len(text) >= size else ((by * size)[: size - len(text)] if by else "") + text,
        "CONCAT": lambda *texts: "".join(texts),
        "REPLACE": lambda text, old, new: text.replace(old, new) if old else text,
        "HEX": lambda text: text.encode().hex(),
        "CHAR_LENGTH": len,
    }
    return str(eval(expression, functions))


@given(_EXPRESSIONS)
def test_no_expression_makes_a_longer_text_than_is_told(expression: str) -> None:
    """Repeated just so often that the text that it makes is longer than the bound."""
    made = len(value(expression))
    assume(0 < made < MOST)
    assert excess(f"ALTER TABLE t ADD CHECK (REPEAT({expression}, {MOST // made + 1}) <> '')", None) != ""
