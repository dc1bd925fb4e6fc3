"""What expressions really make a server compute, against the estimate that decides whether they may run.

Random expressions are nested from all functions that a statement may call. Whatever is within the bounds is computed by the server.
"""

from __future__ import annotations

import random
import re
import time

import pymysql
import pytest

from headrace.ddl.computing import excess
from headrace.ddl.function_costs import COSTS
from headrace.ddl.grammar.statements import judge_expression
from headrace.ddl.grammar.vocabulary import FUNCTIONS
from headrace.model.table import Column, TableId, TableSchema
from headrace.model.types import ColumnType, TypeKind
from sampling import drawn
from servers import MariaDb

pytestmark = [pytest.mark.server, pytest.mark.long]

MOST, MOST_TIMES = 65_536, 2_000
SECONDS = 2.0
"""Far more than any expression takes that may run, and far less than those that may not."""
TOO_LONG = (1969, 2013, 1301)
"""The statement was stopped by its time limit, the connection was lost, or a text is longer than a server's packet."""
TYPES = {
    "v": (TypeKind.TEXT, "TEXT"),
    "w": (TypeKind.VARCHAR, "VARCHAR(40)"),
    "j": (TypeKind.JSON, "JSON"),
    "b": (TypeKind.BLOB, "BLOB"),
    "n": (TypeKind.INT, "INT"),
    "f": (TypeKind.DOUBLE, "DOUBLE"),
    "d": (TypeKind.DATE, "DATE"),
    "t": (TypeKind.DATETIME, "DATETIME(6)"),
    "c": (TypeKind.DECIMAL, "DECIMAL(65,30)"),
    "_u": (TypeKind.VARCHAR, "VARCHAR(40)"),
    "row": (TypeKind.VARCHAR, "VARCHAR(40)"),
}
SCHEMA = TableSchema(TableId("d", "t"), tuple(Column(name, ColumnType(kind)) for name, (kind, _) in TYPES.items()), ())
LONG = '{"k": ["a", {"k": ["a", "\\"", 1e30]}], "a": "' + "\\\\" * 300 + 'x"}'
ROWS: tuple[tuple[object, ...], ...] = (
    ("", "", "[]", "", 0, 0, "1000-01-01", "1000-01-01", 0, "", ""),
    (
        *('a"\\', "aaaa", '{"a": [[[["a", "b"]]], 1], "b": {"a": "a"}}', b"\0\xff", 7, 1e300, "2026-11-27", "2026-11-27 12:34:56"),
        "-1.5",
        "a,b",
        "%a%a",
    ),
    ('a"\\\1' * 400, "漢字", LONG, b"\\" * 900, -9, -1.5, "9999-12-31", "9999-12-31 23:59:59", "9" * 35, "a" * 40, "\0\0\0"),
)
LITERALS = ("''", "'a'", "','", "'\"'", "'\\\\'", "'[1, \"a\"]'", '\'{"a": "b"}\'', "'%W %M'", "0", "1", "30", "101", "1.5", "1e30")
LITERALS += ("NULL", "TRUE", "FALSE", "0xFF", "'漢'", "'%a%a%'", "'2026-01-01'")
PATHS = ("'$'", "'$.a'", "'$[0]'", "'$.*'", "'$**.a'", "'$[*]'", "'$.k[1].k'")
NAMES = ("`v`", "v", "w", "j", "b", "n", "f", "d", "t", "c", "_u", "row", "`row`")
OPERATORS = ("+", "-", "*", "/", "DIV", "MOD", "%", "=", "<=>", "AND", "OR", "XOR", "LIKE", "NOT LIKE", "<<", "||", "|", "<>")
SYNTAX = {
    "CAST": tuple(
        f"CAST(@ AS {kind})"
        for kind in ("CHAR", "BINARY", "DECIMAL(65,30)", "CHAR(9) CHARACTER SET latin1", "BINARY(300)", "DATETIME(6)", "DATE")
    ),
    "CONVERT": ("CONVERT(@ USING utf8mb4)", "CONVERT(@, CHAR)", "CONVERT(@ USING utf32)", "CONVERT(@ USING latin1)"),
    "CHAR": ("CHAR(@)", "CHAR(@, @ USING utf8mb4)"),
    "TRIM": ("TRIM(@)", "TRIM(BOTH @ FROM @)", "TRIM(LEADING 'a' FROM @)", "TRIM(TRAILING @ FROM @)"),
    "POSITION": ("POSITION(@ IN @)",),
    "EXTRACT": ("EXTRACT(DAY_MICROSECOND FROM @)",),
    "SUBSTRING": ("SUBSTRING(@, #)", "SUBSTRING(@ FROM # FOR #)"),
    "GET_FORMAT": ("GET_FORMAT(DATE, 'ISO')",),
    "TIMESTAMPADD": ("TIMESTAMPADD(DAY, #, @)",),
    "TIMESTAMPDIFF": ("TIMESTAMPDIFF(SECOND, @, @)",),
    "REPEAT": ("REPEAT(@, 3)", "REPEAT(@, 300)"),
    "SPACE": ("SPACE(300)",),
    "LPAD": ("LPAD(@, 30, @)", "LPAD(@, 2000, @)"),
    "RPAD": ("RPAD(@, 30, @)", "RPAD(@, 2000, @)"),
    "INSERT": ("INSERT(@, #, #, @)",),
    "CONCAT_WS": ("CONCAT_WS(@, @, @, @)",),
    "REGEXP_REPLACE": ("REGEXP_REPLACE(@, '(a|b)', '\\\\1x')", "REGEXP_REPLACE(@, '', 'xyz')", "REGEXP_REPLACE(@, '.', @)"),
    "REGEXP_SUBSTR": ("REGEXP_SUBSTR(@, 'a.*')",),
    "REGEXP_INSTR": ("REGEXP_INSTR(@, 'a*b')",),
    "EXPORT_SET": ("EXPORT_SET(@, @, @, @, 64)", "EXPORT_SET(@, @, @)"),
    "MAKE_SET": ("MAKE_SET(@, @, @, @)",),
    "CONV": ("CONV(@, 36, 2)", "CONV(@, 10, -2)"),
    "JSON_EXTRACT": ("JSON_EXTRACT(@, $)", "JSON_EXTRACT(@, $, $, $)"),
    "JSON_SEARCH": ("JSON_SEARCH(@, 'one', @)", "JSON_SEARCH(@, 'all', @)", "JSON_SEARCH(@, 'one', @, NULL, $)"),
    **{
        name: (f"{name}(@, $, @)", f"{name}(@, $, @, $, @)", f"{name}('[[]]', '$[0]', @)", f"{name}('[]', '$[0]', @)")
        for name in ("JSON_SET", "JSON_INSERT", "JSON_REPLACE", "JSON_ARRAY_APPEND", "JSON_ARRAY_INSERT")
    },
    "JSON_REMOVE": ("JSON_REMOVE(@, $)",),
    "JSON_VALUE": ("JSON_VALUE(@, $)",),
    "JSON_KEYS": ("JSON_KEYS(@)", "JSON_KEYS(@, $)"),
    "JSON_CONTAINS_PATH": ("JSON_CONTAINS_PATH(@, 'one', $, $)",),
    "JSON_OBJECT": ("JSON_OBJECT(@, @)", "JSON_OBJECT(@, @, 'a', @)"),
    "ADDDATE": ("ADDDATE(@, INTERVAL # DAY)",),
    "DATE_ADD": ("DATE_ADD(@, INTERVAL # MICROSECOND)",),
    "DATE_SUB": ("DATE_SUB(@, INTERVAL # MONTH)",),
    "SUBDATE": ("SUBDATE(@, #)",),
}
"""``@`` is an argument, ``#`` a number, and ``$`` a path in JSON."""
WORD = re.compile(r"\w+")
PLACEHOLDER = re.compile(r"[@#$]")
OF_MANY_ROWS = frozenset(
    {
        "AVG",
        "BIT_AND",
        "BIT_OR",
        "BIT_XOR",
        "COUNT",
        "CUME_DIST",
        "DENSE_RANK",
        "FIRST_VALUE",
        "GROUP_CONCAT",
        "JSON_ARRAYAGG",
        "LAG",
    }
    | {"JSON_OBJECTAGG", "LAST_VALUE", "LEAD", "MAX", "MIN", "NTH_VALUE", "NTILE", "PERCENT_RANK", "RANK", "ROW_NUMBER", "STD"}
    | {"STDDEV", "STDDEV_POP", "STDDEV_SAMP", "SUM", "VARIANCE", "VAR_POP", "VAR_SAMP"}
)
"""Functions of views, which are not computed when a row is written."""
AMPLIFYING = (
    *("REPEAT", "LPAD", "CONCAT", "CONCAT_WS", "REPLACE", "REGEXP_REPLACE", "JSON_SET", "JSON_ARRAY", "JSON_OBJECT", "JSON_QUOTE"),
    *("JSON_EXTRACT", "JSON_MERGE", "JSON_MERGE_PATCH", "HEX", "CONVERT", "CAST", "QUOTE", "TO_BASE64", "EXPORT_SET", "INSERT"),
    *("JSON_ARRAY_APPEND", "JSON_ARRAY_INSERT", "JSON_INSERT", "JSON_REPLACE", "FORMAT", "SPACE", "TRIM"),
)
"""Functions that are drawn more often."""


class Drawing:
    """Draws expressions of these forms of functions."""

    def __init__(self, seed: int, forms: dict[str, list[str]]) -> None:
        self._random = random.Random(seed)
        self._forms = forms
        self._amplifying = [name for name in AMPLIFYING if name in forms]

    def expression(self, depth: int) -> str:
        draw = self._random
        if depth == 0 or draw.random() < 0.1:
            return draw.choice(NAMES if draw.random() < 0.6 else LITERALS)
        kind = draw.random()
        if kind < 0.12:
            return f"{self.expression(depth - 1)} {draw.choice(OPERATORS)} {self.expression(depth - 1)}"
        if kind < 0.16:
            return f"({self.expression(depth - 1)})"
        if kind < 0.2:
            return f"CASE WHEN {self.expression(depth - 1)} THEN {self.expression(depth - 1)} ELSE {self.expression(0)} END"
        if kind < 0.22:
            return f"BINARY {self.expression(depth - 1)}"
        name = draw.choice(self._amplifying if kind < 0.6 else [*self._forms])
        return self.filled(draw.choice(self._forms[name]), depth - 1)

    def filled(self, syntax: str, depth: int) -> str:
        """The form of a function with arguments of this depth."""
        ways = {"@": lambda: self.expression(depth), "#": lambda: self._number(depth), "$": lambda: self._path(depth)}
        return "".join(ways[letter]() if letter in ways and f"'{letter}" not in syntax else letter for letter in syntax)

    def _path(self, depth: int) -> str:
        return self._random.choice(PATHS) if self._random.random() < 0.9 else self.expression(min(depth, 1))

    def _number(self, depth: int) -> str:
        draw = self._random
        bounds = (
            "LEAST(@, 40)",
            "LEAST(n, 101) DIV 10",
            "LEAST(d, 101) DIV 10",
            "CHAR_LENGTH(@)",
            "LENGTH(@) * 2",
            "GREATEST(@, 3)",
        )
        bounds += ("ROUND(@, -1)", "ABS(LEAST(n, 9))", "1 - LEAST(n, 9)", "CEIL(CHAR_LENGTH(@) / 3) * 4", "@ + 1", "IFNULL(@, 3)")
        if depth > 0 and draw.random() < 0.4:
            return self.filled(draw.choice(bounds), depth - 1)
        return str(draw.choice((0, 1, 2, 3, 15, 16, 40, 300, 2_000)))


CALLED = sorted(COSTS.keys() - OF_MANY_ROWS)


def test_it_is_known_of_each_function_how_long_its_result_may_be() -> None:
    assert COSTS.keys() == FUNCTIONS


def forms_on(table: pymysql.connections.Connection) -> dict[str, list[str]]:
    """How the server lets each function be called. It does not have those of other servers."""
    found = {}
    for name in CALLED:
        candidates = SYNTAX.get(name, [f"{name}({', '.join('@' * count)})" for count in range(5)])
        accepted = [syntax for syntax in candidates if computed(table, PLACEHOLDER.sub("1", syntax)) is not None]
        found |= {name: accepted} if accepted else {}
    return found


@pytest.fixture
def table(mariadb: MariaDb) -> pymysql.connections.Connection:
    connection = mariadb.connect(read_timeout=60)
    columns = ", ".join(f"`{name}` {kind}" for name, (_, kind) in TYPES.items())
    with connection.cursor() as cursor:
        cursor.execute("SET sql_mode = 'NO_ENGINE_SUBSTITUTION'")
        cursor.execute("CREATE DATABASE d")
        cursor.execute(f"CREATE TABLE d.t (number INT PRIMARY KEY, {columns})")
        places = ", ".join(["%s"] * (1 + len(TYPES)))
        for number, row in enumerate(ROWS):
            cursor.execute(f"INSERT INTO d.t VALUES ({places})", (number, *row))
    return connection


def computed(table: pymysql.connections.Connection, expression: str) -> tuple[list[int], float] | None:
    """The length of the expression's value for each row, in characters, and the seconds; ``None`` if it has none."""
    began = time.monotonic()
    with table.cursor() as cursor:
        try:
            cursor.execute(f"SET STATEMENT max_statement_time=10 FOR SELECT CHAR_LENGTH({expression}) FROM d.t ORDER BY number")
            lengths = [int(length or 0) for (length,) in cursor.fetchall()]
        except pymysql.err.MySQLError as error:
            if error.args[0] in TOO_LONG:
                raise
            return None
    return lengths, time.monotonic() - began


def lengths_of(table: pymysql.connections.Connection, expression: str) -> list[int]:
    found = computed(table, expression)
    assert found is not None
    return found[0]


def told(expression: str) -> str:
    return excess(f"ALTER TABLE t ADD CHECK ({expression})", SCHEMA)


@pytest.mark.parametrize("seed", range(8))
def test_no_server_computes_more_than_is_estimated(table: pymysql.connections.Connection, seed: int) -> None:
    """Repeated just so often that the value is longer than the bound."""
    drawing, count = Drawing(seed, forms_on(table)), 0
    widths = {name: lengths_of(table, f"`{name}`") for name in TYPES}
    for _ in range(drawn(1_000)):
        expression = drawing.expression(4)
        found = None if judge_expression(expression) or told(expression) else computed(table, expression)
        if found is None:
            continue
        lengths, seconds = found
        count += 1
        assert seconds < SECONDS, expression
        read = [widths[name] for name in TYPES if name in WORD.findall(expression)]
        for number, length in enumerate(lengths):
            width = sum(column[number] for column in read)
            times = (MOST + MOST_TIMES * width) // length + 1 if length else 0
            assert not times or told(f"REPEAT({expression}, {times})"), f"{length} characters of {width}: {expression}"
    assert count > drawn(1_000) // 4
