"""Reading DDL costs time in proportion to its length, whatever is repeated in it: a long statement holds up no other table.

What is measured is the time of twice as many against that of once as many, in time of the processor. Words and statements are read
before, since they have a test of their own.
"""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable
from contextlib import suppress

import pytest

from headrace.ddl.classify import classify
from headrace.ddl.columns import annotate
from headrace.ddl.computing import excess
from headrace.ddl.defaults import added_column, bit_default, computed_default, zone_mismatch
from headrace.ddl.expression_values import UntranslatableError
from headrace.ddl.expressions import condition_to_duckdb, to_duckdb
from headrace.ddl.grammar.statements import judge
from headrace.ddl.indexes import new_indexes, with_index_names
from headrace.ddl.names import spelled
from headrace.ddl.partitions import (
    LONGEST_CONDITIONS,
    MOST_PARTITIONS,
    Method,
    Partition,
    Partitioning,
    partitioning_after,
    row_events,
)
from headrace.ddl.statement import read_statement
from headrace.model.events import DeletePartitionRowsEvent, OtherEvent
from headrace.model.table import Column, TableId, TableSchema
from headrace.model.types import ColumnType, TypeKind

pytestmark = pytest.mark.long

T = TableId("d", "t")
REPEATED = 1_000
Case = tuple[str, list[str], list[str]]
"""A statement, and the columns before and after it."""


def shape(names: list[str]) -> TableSchema | None:
    columns = tuple(Column(name, ColumnType(TypeKind.INT), primary_key=name == "id") for name in names)
    return TableSchema(T, columns, ("id",)) if names else None


def joined(count: int, part: str) -> str:
    return ", ".join(part.replace("#", str(number)) for number in range(count))


def many(count: int, name: str = "c") -> list[str]:
    return ["id", *(f"{name}{number}" for number in range(count))]


def create(parts: str, options: str = "") -> str:
    return f"CREATE TABLE t (id INT PRIMARY KEY{', ' * bool(parts)}{parts}) {options}"


CONSTRUCTS: dict[str, Callable[[int], Case]] = {
    "columns": lambda n: (create(joined(n, "c# INT DEFAULT # COMMENT 'x'")), [], many(n)),
    "generated columns": lambda n: (create(joined(n, "c# INT AS (id + #) STORED")), [], many(n)),
    "generated columns of one another": lambda n: (
        create("c0 INT, " + ", ".join(f"c{number + 1} INT AS (ABS(c{number})) STORED" for number in range(n - 1))),
        [],
        many(n),
    ),
    "unique columns": lambda n: (create(joined(n, "c# INT UNIQUE")), [], many(n)),
    "indexes without a name": lambda n: (create("c0 INT, " + joined(n, "KEY (c0)")), [], many(1)),
    "columns of an index": lambda n: (create(joined(n, "c# INT") + ", KEY k (" + joined(n, "c#") + ")"), [], many(n)),
    "added indexes": lambda n: ("ALTER TABLE t " + joined(n, "ADD INDEX (c0)"), many(1), many(1)),
    "added columns": lambda n: ("ALTER TABLE t " + joined(n, "ADD COLUMN c# BIT(1) DEFAULT b'1'"), many(0), many(n)),
    "added columns in a group": lambda n: ("ALTER TABLE t ADD COLUMN (" + joined(n, "c# INT DEFAULT #") + ")", many(0), many(n)),
    "columns added first": lambda n: ("ALTER TABLE t " + joined(n, "ADD COLUMN c# INT FIRST"), many(0), many(n)[::-1]),
    "moved columns": lambda n: ("ALTER TABLE t " + joined(n, "MODIFY COLUMN c# INT FIRST"), many(n), many(n)[::-1]),
    "dropped columns": lambda n: ("ALTER TABLE t " + joined(n, "DROP COLUMN c#"), many(n), many(0)),
    "changed columns": lambda n: ("ALTER TABLE t " + joined(n, "CHANGE COLUMN c# d# INT"), many(n), many(n, "d")),
    "renamed columns": lambda n: ("ALTER TABLE t " + joined(n, "RENAME COLUMN c# TO d#"), many(n), many(n, "d")),
    "renamed columns in a chain": lambda n: (
        "ALTER TABLE t " + ", ".join(f"RENAME COLUMN c{number} TO c{number + 1}" for number in range(n)),
        many(n),
        ["id", *(f"c{number + 1}" for number in range(n))],
    ),
    "swapped columns": lambda n: (
        "ALTER TABLE t " + ", ".join(f"RENAME COLUMN c{number} TO c{number ^ 1}" for number in range(n)),
        many(n),
        many(n),
    ),
    "defaults set": lambda n: ("ALTER TABLE t " + joined(n, "ALTER COLUMN c# SET DEFAULT 2"), many(n), many(n)),
    "options": lambda n: (create("", "COMMENT = 'x' " * n), [], many(0)),
    "members": lambda n: (create("c0 ENUM(" + joined(n, "'#'") + ")"), [], many(1)),
    "parentheses": lambda n: (create("c0 INT AS (" + "(" * n + "id" + ")" * n + ")"), [], many(1)),
    "comments": lambda n: (create("/* x */ " * n + "c0 INT"), [], many(1)),
    "range partitions": lambda n: (
        create("", "PARTITION BY RANGE (id) (" + joined(n, "PARTITION p# VALUES LESS THAN (#)") + ")"),
        [],
        many(0),
    ),
    "list partitions": lambda n: (
        create("", "PARTITION BY LIST (id) (" + joined(n, "PARTITION p# VALUES IN (#, -#)") + ")"),
        [],
        many(0),
    ),
    "values of a list partition": lambda n: (
        create("", "PARTITION BY LIST (id) (PARTITION p VALUES IN (" + joined(n, "#") + "))"),
        [],
        many(0),
    ),
    "hash partitions": lambda n: (create("", "PARTITION BY HASH (id) (" + joined(n, "PARTITION p#") + ")"), [], many(0)),
    "dropped partitions": lambda n: ("ALTER TABLE t DROP PARTITION " + joined(n, "p#"), many(0), many(0)),
    "clauses that drop a partition": lambda n: ("ALTER TABLE t " + joined(n, "DROP PARTITION p#"), many(0), many(0)),
    "added partitions": lambda n: (
        "ALTER TABLE t ADD PARTITION (" + joined(n, "PARTITION q# VALUES LESS THAN (9#)") + ")",
        many(0),
        many(0),
    ),
    "reorganized partitions": lambda n: (
        "ALTER TABLE t REORGANIZE PARTITION " + joined(n, "p#") + " INTO (" + joined(n, "PARTITION q# VALUES LESS THAN (#)") + ")",
        many(0),
        many(0),
    ),
    "renamed tables": lambda n: ("RENAME TABLE " + joined(n, "a# TO b#"), many(0), many(0)),
}


def seconds(case: Case, count: int) -> float:
    """How long all takes that is asked about a statement; the better of two times."""
    text, before, after = case[0], shape(case[1]), shape(case[2])
    partitions = tuple(Partition(f"p{number}", ((str(number),),)) for number in range(count))
    known = Partitioning(Method.RANGE, ("id",), partitions)
    read = read_statement(text, "d")
    with_names = with_index_names(text, read, ())
    read_statement(with_names, "d")
    taken = []
    for _ in range(2):
        began = time.process_time()
        new_indexes(read, ())
        with_index_names(text, read, ())
        spelled(text, read, lambda name: TableId(name.database.upper(), name.table.upper()))
        annotated = annotate(with_names, after, before) if after else None
        classify(with_names, database="d", table_id=T, before=before, after=annotated, partitioning=known)
        left = partitioning_after(known, with_names, "d")
        if left is not None:
            left.condition([partition.name for partition in left.partitions])
        if annotated is not None:
            zone_mismatch(with_names, annotated, "UTC")
            excess(with_names, annotated)
        for column in annotated.columns if annotated else ():
            added_column(read, column.name)
            computed_default(read, column.name)
            bit_default(with_names, "d", column)
        taken.append(time.process_time() - began)
    return min(taken)


@pytest.mark.parametrize("construct", CONSTRUCTS)
def test_twice_as_many_take_about_twice_as_long(construct: str) -> None:
    make = CONSTRUCTS[construct]
    once, twice = (seconds(make(count), count) for count in (REPEATED, 2 * REPEATED))
    assert twice < 3 * once + 0.05, f"{once:.3f} s for {REPEATED}, {twice:.3f} s for twice as many"


def test_a_table_may_have_as_many_partitions_as_tidb_allows() -> None:
    text = create("", f"PARTITION BY RANGE (id) ({joined(MOST_PARTITIONS, 'PARTITION p# VALUES LESS THAN (#)')})")
    read_statement(text, "d")
    began = time.process_time()
    found = partitioning_after(None, text, "d")
    assert found is not None
    assert len(found.partitions) == MOST_PARTITIONS
    assert found.condition([partition.name for partition in found.partitions])
    assert time.process_time() - began < 2


@pytest.mark.parametrize(
    "partitions",
    [
        f"RANGE (id) ({joined(MOST_PARTITIONS + 1, 'PARTITION p# VALUES LESS THAN (#)')})",
        f"HASH (id) PARTITIONS {MOST_PARTITIONS + 1}",
        "HASH (id) PARTITIONS 999999999999",
        f"HASH (id) PARTITIONS {'9' * 5_000}",
        f"RANGE COLUMNS ({joined(2_000, 'c#')}) (PARTITION p VALUES LESS THAN ({joined(2_000, '#')}))",
    ],
    ids=["listed", "counted", "by a large number", "by a number of 5,000 digits", "by 2,000 columns"],
)
def test_of_more_than_tidb_has_nothing_is_known(partitions: str) -> None:
    assert partitioning_after(None, create("", f"PARTITION BY {partitions}"), "d") is None


def test_of_more_clauses_about_partitions_than_tidb_takes_it_is_not_known_which_rows_go() -> None:
    before = Partitioning(Method.RANGE, ("id",), tuple(Partition(f"p{number}", ((str(number),),)) for number in range(100)))
    (deleting,) = row_events("ALTER TABLE t DROP PARTITION p1", "d", T, before)
    assert isinstance(deleting, DeletePartitionRowsEvent)
    events = row_events("ALTER TABLE t " + joined(100, "DROP PARTITION p#"), "d", T, before)
    assert {type(event) for event in events} == {OtherEvent}


def partitioned(by: str, *, count: int = MOST_PARTITIONS) -> Partitioning:
    found = partitioning_after(None, create("c0 INT", f"PARTITION BY {by.replace('@', str(count))}"), "d")
    assert found is not None
    return found


LONG_KEY = "id" + "+1" * 2_000
KINDS_OF_MANY = {
    "hash": (f"HASH ({LONG_KEY}) PARTITIONS @", MOST_PARTITIONS),
    "ranges": (f"RANGE ({LONG_KEY}) ({joined(1_000, 'PARTITION p# VALUES LESS THAN (#)')})", 1_000),
    "lists": (f"LIST ({LONG_KEY}) ({joined(1_000, 'PARTITION p# VALUES IN (#, NULL)')})", 1_000),
}


@pytest.mark.parametrize("kind", KINDS_OF_MANY)
def test_what_tells_partitions_apart_is_not_repeated_for_each_of_them(kind: str) -> None:
    by, count = KINDS_OF_MANY[kind]
    before = partitioned(by)
    began = time.process_time()
    (event,) = row_events("ALTER TABLE t TRUNCATE PARTITION " + joined(count, "p#"), "d", T, before)
    assert isinstance(event, DeletePartitionRowsEvent)
    assert event.condition.count(LONG_KEY) <= 5
    assert len(event.condition) <= LONGEST_CONDITIONS
    assert time.process_time() - began < 2


OF_TEXTS = {
    "path": "`v` -> '$@'",
    "unquoted path": "`v` ->> '$@'",
    "path of a function": "JSON_EXTRACT(`v`, '$@')",
    "value": "JSON_VALUE(`v`, '$@')",
    "interval": "`v` + INTERVAL '@' DAY",
    "added interval": "DATE_ADD(`v`, INTERVAL '@' DAY)",
    "format": "DATE_FORMAT(`v`, '@')",
    "read format": "STR_TO_DATE(`v`, '@')",
    "format of a time": "TIME_FORMAT(`v`, '@')",
    "text": "CONCAT('@', `v`)",
    "pattern": "`v` LIKE '@' ESCAPE '@'",
    "name": "`@`",
    "type": "CAST(`v` AS `@`)",
    "hint": "/*+ @ */ `v`",
}
PARTS_OF_TEXTS = (".a", "[1]", "%Y", " ", "1", "CHAR(", "1 a ")


@pytest.mark.parametrize("construct", OF_TEXTS)
@pytest.mark.parametrize("part", PARTS_OF_TEXTS)
def test_a_long_text_costs_no_more_than_other_words(construct: str, part: str) -> None:
    """sqlglot parses some texts once more, which must not take its own time and memory for each character."""
    size = 1_000_000
    text = f"CREATE VIEW v AS SELECT {OF_TEXTS[construct].replace('@', part * (size // len(part)))} AS id FROM orders"
    tracemalloc.start()
    began = time.process_time()
    judge(text, "d")
    took, most = time.process_time() - began, tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert took < 2
    assert most < 40 * size


@pytest.mark.parametrize("construct", OF_TEXTS)
@pytest.mark.parametrize("part", PARTS_OF_TEXTS)
def test_a_long_text_in_an_expression_is_translated_or_not_without_delay(construct: str, part: str) -> None:
    schema = TableSchema(T, (Column("v", ColumnType(TypeKind.JSON)),), ())
    text = OF_TEXTS[construct].replace("@", part * (30_000 // len(part)))
    began = time.process_time()
    with suppress(UntranslatableError):
        to_duckdb(text, ColumnType(TypeKind.TEXT), schema)
    assert time.process_time() - began < 1


VIEWS: dict[str, Callable[[int], str]] = {
    "common table expressions and unions": lambda n: (
        "WITH " + joined(n, "c# AS (SELECT 1)") + " " + " UNION ".join(["SELECT 1 FROM a"] * n)
    ),
    "common table expressions over each other": lambda n: (
        "WITH " + joined(n, "c# AS (SELECT 1 FROM a, b)") + " SELECT 1 FROM " + joined(n, "c#")
    ),
    "joins": lambda n: "SELECT 1 FROM a" + " CROSS JOIN b" * n,
    "tables": lambda n: "SELECT 1 FROM " + joined(n, "t#"),
    "aliases": lambda n: "SELECT 1 FROM " + joined(n, "t AS x#"),
    "columns": lambda n: "SELECT " + joined(n, "t.c#") + " FROM t",
}


@pytest.mark.parametrize("query", VIEWS)
def test_a_view_of_twice_as_many_is_judged_in_about_twice_the_time(query: str) -> None:
    def taken(count: int) -> float:
        text, seconds = f"CREATE VIEW v AS {VIEWS[query](count)}", []
        for database in ("d", "e", "f"):  # else the last answer counts
            began = time.process_time()
            assert not judge(text, database).objection
            seconds.append(time.process_time() - began)
        return min(seconds)

    most = 500 if query == "columns" else 32
    once, twice = taken(most), taken(2 * most)
    assert twice < 3 * once + 0.3, f"{once:.3f} s for {most}, {twice:.3f} s for twice as many"


ODD = ", ".join(f"p{number}" for number in range(1, 1_000, 2))
LONG_VALUES = joined(50_000, "#")


@pytest.mark.parametrize(
    ("by", "statement"),
    [
        (KINDS_OF_MANY["ranges"][0], f"ALTER TABLE t TRUNCATE PARTITION {ODD}"),
        (f"LIST (id) (PARTITION p0 VALUES IN ({LONG_VALUES}), PARTITION p1 VALUES IN (-1))", "ALTER TABLE t DROP PARTITION p0"),
        (f"LIST (id) (PARTITION p0 VALUES IN ({LONG_VALUES}), PARTITION p1 DEFAULT)", "ALTER TABLE t DROP PARTITION p1"),
        (
            f"LIST COLUMNS (id, c0) ({joined(4_000, 'PARTITION p# VALUES IN ((#, #))')})",
            "ALTER TABLE t TRUNCATE PARTITION " + joined(4_000, "p#"),
        ),
        (f"RANGE (id) (PARTITION p0 VALUES LESS THAN (1{'+1' * 50_000}))", "ALTER TABLE t EXCHANGE PARTITION p0 WITH TABLE u"),
    ],
    ids=["ranges with gaps", "many values", "the rest of many values", "many pairs", "a long bound"],
)
def test_a_short_statement_has_no_long_condition(by: str, statement: str) -> None:
    assert {type(event) for event in row_events(statement, "d", T, partitioned(by))} == {OtherEvent}


def test_many_clauses_of_a_statement_have_no_long_condition_together() -> None:
    before = partitioned(f"LIST (id) (PARTITION p0 VALUES IN ({joined(3_000, '#')}), PARTITION p1 VALUES IN (-1))")
    events = row_events("ALTER TABLE t " + joined(60, "TRUNCATE PARTITION p0"), "d", T, before)
    assert sum(len(event.condition) for event in events if isinstance(event, DeletePartitionRowsEvent)) <= LONGEST_CONDITIONS
    assert (type(events[0]), type(events[-1])) == (DeletePartitionRowsEvent, OtherEvent)


def test_an_expression_that_is_longer_than_people_write_tells_no_partitions_apart() -> None:
    assert partitioning_after(None, create("", f"PARTITION BY HASH (id{'+1' * 4_000}) PARTITIONS 2"), "d") is None


def test_a_membership_of_many_reads_what_is_a_member_once() -> None:
    schema = shape(["id"])
    assert schema is not None

    def taken(count: int) -> float:
        began = time.process_time()
        condition_to_duckdb(f"(id{'+1' * 100}) IN ({joined(count, '#')})", schema)
        return time.process_time() - began

    once, twice = (min(taken(count) for _ in range(2)) for count in (1_000, 2_000))
    assert twice < 3 * once + 0.05
    assert once < 1


@pytest.mark.parametrize(
    "expression",
    ["(" * 2_000 + "id" + ")" * 2_000, "+".join(["id"] * 5_000), "(" * 2_000, "ABS(" * 2_000 + "id" + ")" * 2_000],
    ids=["parentheses", "sum", "open parentheses", "calls"],
)
def test_an_expression_that_is_nested_too_deeply_has_no_counterpart(expression: str) -> None:
    schema = shape(["id"])
    assert schema is not None
    with pytest.raises(UntranslatableError):
        to_duckdb(expression, ColumnType(TypeKind.BIGINT), schema)
    with pytest.raises(UntranslatableError):
        condition_to_duckdb(f"({expression}) = 1", schema)


def test_a_place_in_a_text_that_is_a_number_of_5000_digits_has_no_counterpart() -> None:
    schema = TableSchema(T, (Column("v", ColumnType(TypeKind.VARCHAR, length=9)),), ())
    with pytest.raises(UntranslatableError):
        to_duckdb(f"LEFT(v, {'9' * 5_000})", ColumnType(TypeKind.VARCHAR, length=9), schema)


def test_a_default_of_5000_digits_is_no_number_of_a_bit_column() -> None:
    column = Column("b", ColumnType(TypeKind.BIT, length=8))
    assert bit_default(f"ALTER TABLE t ADD COLUMN b BIT(8) DEFAULT {'9' * 5_000}", "d", column) is None
