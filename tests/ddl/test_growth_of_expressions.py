"""Reading an expression costs time in proportion to its length, however deep functions are nested and whatever is repeated in it.

What is counted are calls of functions: twice as many of a construct need about twice as many calls, on every machine.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from counting import calls
from headrace.ddl.classify import classify
from headrace.ddl.columns import annotate
from headrace.ddl.computing import excess
from headrace.ddl.function_costs import COSTS
from headrace.ddl.grammar.statements import judge, judge_expression
from headrace.ddl.lexer import words
from headrace.ddl.zones import zoned_bound, zoned_columns
from headrace.model.table import Column, TableId, TableSchema
from headrace.model.types import ColumnType, TypeKind
from headrace.sinks.mysql.computed_values import computed_otherwise

pytestmark = pytest.mark.long

T = TableId("d", "t")
KINDS = {"v": TypeKind.TEXT, "f": TypeKind.DOUBLE, "n": TypeKind.INT, "t": TypeKind.DATETIME}
TARGETS = (TypeKind.TEXT, TypeKind.DOUBLE, TypeKind.DATETIME)
SYNTAX = {"CAST": "CAST({} AS CHAR)", "POSITION": "POSITION({} IN `v`)", "EXTRACT": "EXTRACT(DAY FROM {})"}
SYNTAX |= {"REPEAT": "REPEAT({}, 1)", "LPAD": "LPAD({}, 9, 'a')"}
SYNTAX |= {"RPAD": "RPAD({}, 9, 'a')", "TRIM": "TRIM(BOTH 'a' FROM {})"}
SYNTAX |= {name: name + "({}, '(a)', 'b')" for name in ("REPLACE", "REGEXP_REPLACE")}
SYNTAX |= {name: name + "({}, 'a')" for name in ("REGEXP_INSTR", "REGEXP_LIKE", "REGEXP_SUBSTR")}
OPERANDS = ("'b'", "`f`", "f", "`t`", "_v", "ROW")
REPEATED: dict[str, Callable[[int, str], str]] = {
    "sums": lambda n, operand: "+".join([operand] * n),
    "conditions": lambda n, operand: " OR ".join([f"{operand} = 1"] * n),
    "searches": lambda n, operand: " OR ".join([f"{operand} LIKE 'a%'"] * n),
    "patterns": lambda n, operand: " OR ".join([f"{operand} REGEXP 'a'"] * n),
    "members of a list": lambda n, operand: f"{operand} IN ({', '.join([operand] * n)})",
    "cases": lambda n, operand: f"CASE {f'WHEN {operand} THEN {operand} ' * n}END",
    "nested cases": lambda n, operand: f"CASE WHEN {operand} THEN " * n + operand + " END" * n,
    "signs": lambda n, operand: "- " * n + operand,
    "sums in a cast": lambda n, operand: f"CAST({'+'.join([operand] * n)} AS DOUBLE)",
    "products of numbers": lambda n, operand: "*".join(["999999999999999999"] * n),
    "calls of UNIX_TIMESTAMP": lambda n, operand: "+".join([f"UNIX_TIMESTAMP({operand})"] * n),
    "casts": lambda n, operand: "+".join([f"CAST({operand} AS DATETIME)"] * n),
}


def read(expression: str, kind: TypeKind) -> None:
    """All that is asked about a statement with the expression in it."""
    statement = f"CREATE TABLE `t` (`v` TEXT, `f` DOUBLE, `n` INT, `t` DATETIME(6), `g` {kind} AS ({expression}) STORED)"
    columns = (Column(name, ColumnType(of, scale=6 if of is TypeKind.DATETIME else None)) for name, of in KINDS.items())
    shape = TableSchema(T, (*columns, Column("g", ColumnType(kind))))
    schema = annotate(statement, shape, None)
    assert schema.column("g").expression
    judge(statement, "d")
    judge_expression(expression)
    classify(statement, database="d", table_id=T, before=None, after=schema)
    excess(statement, schema)
    excess(f"ALTER TABLE t ADD CHECK ({expression})", schema)
    zoned_columns(schema)
    zoned_bound(f"ALTER TABLE t PARTITION BY RANGE ({expression}) (PARTITION p VALUES LESS THAN ({expression}))")
    computed_otherwise(schema)
    computed_otherwise(schema, cuts_digits=True)


def work(make: Callable[[int], str], count: int, kind: TypeKind) -> int:
    expression = make(count)
    words(expression)
    return calls(lambda: read(expression, kind))


@pytest.mark.parametrize("name", sorted(COSTS))
def test_a_function_that_is_nested_twice_as_deep_is_read_in_about_twice_the_time(name: str) -> None:
    """A level more may cost all levels once more, but never twice of what the levels in it cost."""
    plain = SYNTAX.get(name, name + "({})")

    def nested(count: int) -> str:
        expression = "'b'"
        for _ in range(count):
            expression = plain.format(expression)
        return expression

    once, twice = (work(nested, count, TypeKind.TEXT) for count in (12, 24))
    assert twice < 3.5 * once


@pytest.mark.parametrize("name", sorted(COSTS))
def test_a_function_with_twice_as_many_arguments_or_calls_is_read_in_about_twice_the_time(name: str) -> None:
    for make in (
        lambda count: f"{name}({', '.join(['`f`'] * count)})",
        lambda count: "+".join([SYNTAX.get(name, name + "({})").format("`f`")] * count),
    ):
        once, twice = (work(make, count, TypeKind.DOUBLE) for count in (60, 120))
        assert twice < 2.5 * once


@pytest.mark.parametrize("kind", TARGETS)
@pytest.mark.parametrize("operand", OPERANDS)
@pytest.mark.parametrize("construct", REPEATED)
def test_an_expression_of_twice_as_many_is_read_in_about_twice_the_time(construct: str, operand: str, kind: TypeKind) -> None:
    once, twice = (work(lambda count: REPEATED[construct](count, operand), count, kind) for count in (100, 200))
    assert twice < 2.5 * once
