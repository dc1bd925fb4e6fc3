"""Whatever stands in a schema file's statement, it is read as something, without an error and without delay."""

from __future__ import annotations

import json
import re
from pathlib import Path
from random import Random

import pytest

from fuzzing import PIECES, fuzz, mutated, tokens_of
from headrace.ddl.classify import changes_rows_unseen, classify
from headrace.ddl.columns import annotate
from headrace.ddl.defaults import bit_default, computed_default, zone_mismatch
from headrace.ddl.expression_values import UntranslatableError
from headrace.ddl.expressions import condition_to_duckdb, to_duckdb
from headrace.ddl.generated import first_defined
from headrace.ddl.grammar.statements import judge
from headrace.ddl.indexes import changed_names, new_indexes, with_index_names
from headrace.ddl.kinds import kinds_of
from headrace.ddl.lexer import rendered, words
from headrace.ddl.names import spelled
from headrace.ddl.partitions import partitioning_after, row_events
from headrace.ddl.statement import StatementKind, read_statement
from headrace.ddl.told import source_tables
from headrace.ddl.zones import zoned_bound, zoned_columns
from headrace.model.events import SchemaChange
from headrace.model.table import Column, Generated, TableId, TableSchema
from headrace.model.types import ColumnType, TypeKind
from headrace.sealed_duckdb import open_duckdb
from headrace.sinks.duckdb.generated import generated_columns
from headrace.sinks.duckdb.types import UnsupportedPolicy
from headrace.sinks.mysql import collation
from headrace.sinks.mysql.adaptation import Server, UnadaptableError, adapt_for
from hostile import benign_statements, hostile_statements

pytestmark = pytest.mark.long

GOLDEN = Path(__file__).parents[1] / "golden" / "ddl"
RECORDED = [case["statement"] for path in sorted(GOLDEN.glob("*.json")) for case in json.loads(path.read_text())]
STATEMENTS = [
    tokens_of(text)
    for text in dict.fromkeys([*RECORDED, *(entry.sql for entry in (*benign_statements(), *hostile_statements()))])
    if text
]
ORDERS = TableId("shop", "orders")


def shape(*columns: tuple[str, TypeKind]) -> TableSchema:
    return TableSchema(ORDERS, tuple(Column(name, ColumnType(kind)) for name, kind in columns), ("id",))


BEFORE = shape(("id", TypeKind.INT), ("v", TypeKind.VARCHAR))
AFTER = shape(
    ("id", TypeKind.BIGINT), ("v", TypeKind.VARCHAR), ("x", TypeKind.INT), ("at", TypeKind.TIMESTAMP), ("j", TypeKind.JSON)
)
SHAPES = ((None, None), (None, AFTER), (BEFORE, None), (BEFORE, AFTER), (AFTER, AFTER))


def statement(chance: Random) -> tuple[str, int]:
    """A text that can be encoded, as all are that a schema file gives; and the number of the shapes around it."""
    if chance.random() < 0.02:
        text = "".join(chance.choices(PIECES, k=chance.randrange(1, 12)))
    else:
        text = mutated(chance, chance.choice(STATEMENTS), STATEMENTS)
    return text.encode("utf-8", "replace").decode(), chance.randrange(len(SHAPES))


def read_all(made: tuple[str, int]) -> None:
    """Everything that reads statements, as a run would do."""
    text, number = made
    before, after = SHAPES[number]
    read = read_statement(text, "shop")
    for mention in read.mentions:
        assert 0 <= mention.start <= mention.end <= len(text)
    found = classify(text, database="shop", table_id=ORDERS, before=before, after=after)
    changes_rows_unseen(text, "shop")
    partitioning = partitioning_after(None, text, "shop")
    row_events(text, "shop", ORDERS, partitioning)
    spelled(text, read, lambda table_id: TableId(table_id.database.upper(), table_id.table))
    changed_names(read)
    new_indexes(read, {"v"})
    with_index_names(text, read, {"v"})
    zoned_bound(text)
    if after is None:
        return
    marked = annotate(text, after, before)
    assert [(column.name, column.type) for column in marked.columns] == [(column.name, column.type) for column in after.columns]
    first_defined(text, marked.table_id.database, zoned_columns(marked))
    zone_mismatch(text, marked, "Asia/Shanghai")
    for column in marked.columns:
        computed_default(read, column.name)
        bit_default(text, "shop", column)
    change = SchemaChange(
        commit_ts=7, database="shop", table_id=ORDERS, statement=text, events=found.events, schema=marked,
        changes=found.changes, reads=found.reads,
    )  # fmt: skip
    kinds_of(change)
    source_tables([change])


def judged(made: tuple[str, int]) -> None:
    """What the grammar accepts, and what reads it for the engine, name the same tables, and so does what a server gets."""
    text, _ = made
    judgement = judge(text, "shop")
    if judgement.objection:
        assert not judgement.names
        return
    read = read_statement(text, "shop")
    if text.strip() and words(text):
        assert read.kind is not StatementKind.UNKNOWN
    of_view = read.kind is StatementKind.CREATE_VIEW
    reads = () if of_view else read.reads  # names that a view gives itself are among them
    assert {*read.tables, *reads, *(name for pair in read.renames for name in pair)} <= judgement.names
    if not of_view:
        acted_on = {mention.table_id for mention in read.mentions}
        # What is only named in an expression, such as a sequence, is no table that anything happens to.
        assert all(name in acted_on or not name.table for name in judgement.names) or "." in text or "NEXT" in text.upper()
    sent = rendered(words(text) or ())
    assert judge(sent, "shop") == judgement
    assert read_statement(sent, "shop") == read


_QUOTED = re.compile(r"'(?:[^'\\]|\\.|'')*'|`(?:[^`]|``)*`", re.DOTALL)
SERVERS = [Server(name, lambda collation: "0900" not in collation) for name in ("MariaDB", "MySQL", "TiDB")]


def adapt(made: tuple[str, int]) -> None:
    """What the grammar accepts can be put into the words of each server, or is refused, and can be judged again.

    No server gets a comment, so that it reads each word that was judged, and no other.
    """
    text, number = made
    judgement = judge(text, "shop")
    if judgement.objection:
        return
    sent = collation.spell_out(rendered(words(text) or ()), by_bytes=number == 0)
    for server in SERVERS:
        try:
            adapted = adapt_for(sent, server, "shop", [TableId("shop", "secrets")] if number else ())
        except UnadaptableError:
            continue
        assert "/*" not in _QUOTED.sub("", adapted.statement)
        again = judge(adapted.statement, "shop")
        assert not again.objection or not again.names


def test_a_statement_that_is_accepted_is_put_into_other_words_or_refused() -> None:
    fuzz(700, statement, adapt)


def test_a_statement_is_read_whatever_it_is() -> None:
    fuzz(1500, statement, read_all)


def test_a_statement_that_is_accepted_names_what_the_engine_reads() -> None:
    fuzz(1500, statement, judged)


EXPRESSIONS = [
    tokens_of(text)
    for text in (
        "`id` + 1",
        "CONCAT(_UTF8MB4'a', UPPER(`v`), `v`)",
        "JSON_UNQUOTE(JSON_EXTRACT(`j`, _UTF8MB4'$.a'))",
        "CASE WHEN `id` > 1.5 THEN ROUND(`x`, 2) ELSE NULL END",
        "DATE_FORMAT(`at`, _UTF8MB4'%Y-%m')",
        "(`id` DIV 3) % 2 = 1 AND `v` IN (_UTF8MB4'x', _UTF8MB4'y') OR `x` IS NULL",
        "SUBSTRING_INDEX(`v`, _UTF8MB4',', 1)",
        "`j` -> '$.a' = CAST(`v` AS CHAR(3)) AND NOT `v` LIKE 'x%' ESCAPE '|'",
        "IF(`at` + INTERVAL 1 DAY > NOW(), COALESCE(`v`, NULLIF(`x`, 0)), 0x00ff)",
    )
]
TARGETS = [ColumnType(TypeKind.INT), ColumnType(TypeKind.VARCHAR), ColumnType(TypeKind.DECIMAL, length=10, scale=2)]


def expression(chance: Random) -> tuple[str, ColumnType | None]:
    """A text, and the type of the column that it generates; without one it is a condition."""
    text = mutated(chance, chance.choice(EXPRESSIONS), EXPRESSIONS)
    return text.encode("utf-8", "replace").decode(), chance.choice((*TARGETS, None))


def translate(made: tuple[str, ColumnType | None]) -> None:
    text, target = made
    try:
        condition_to_duckdb(text, AFTER) if target is None else to_duckdb(text, target, AFTER)
    except UntranslatableError as error:
        str(error).encode()


def test_an_expression_is_translated_or_refused() -> None:
    fuzz(400, expression, translate)


MADE_OF = (
    "#",
    "# + #",
    "# * 2 + # - #",
    "CASE WHEN # > 1 THEN # ELSE # END",
    "JSON_UNQUOTE(JSON_EXTRACT(#, '$.a'))",
    "CONCAT(#, #, #)",
)


def virtual_columns(chance: Random) -> TableSchema:
    """A table of which each column is made of others, in whatever order, with circles and what is not there among them."""
    names = [f"c{number}" for number in range(chance.choice((3, 20, 60, 300)))]
    reach = chance.choice((2, 5, len(names)))
    columns = []
    for at, name in enumerate(names):
        near = [*names[max(0, at - reach) : at], *(names[at + 1 : at + reach] if chance.random() < 0.2 else ()), "id", "v", "j"]
        made = "".join(chance.choice(near) if sign == "#" else sign for sign in chance.choice(MADE_OF))
        target = ColumnType(chance.choice((TypeKind.BIGINT, TypeKind.BIGINT, TypeKind.VARCHAR, TypeKind.JSON)))
        columns.append(Column(name, target, generated=Generated.VIRTUAL, expression=made))
    if chance.random() < 0.3:
        columns.reverse()
    return TableSchema(ORDERS, (*shape(("id", TypeKind.BIGINT), ("v", TypeKind.VARCHAR), ("j", TypeKind.JSON)).columns, *columns))


def compute(schema: TableSchema) -> None:
    """What is accepted can be made, written and read, in some seconds."""
    there = {column.name for column in schema.columns[::7]}
    found = generated_columns(schema, UnsupportedPolicy.TEXT, there)
    connection = open_duckdb()
    try:
        connection.execute(
            f"CREATE TABLE t (id BIGINT, v VARCHAR, j JSON{''.join(f', {part}' for part in found.definitions.values())})"
        )
        connection.execute("INSERT INTO t BY NAME SELECT 1 AS id")
        connection.execute("FROM t").fetchall()
    finally:
        connection.close()


def test_virtual_columns_are_computed_or_left_out() -> None:
    fuzz(12, virtual_columns, compute)
