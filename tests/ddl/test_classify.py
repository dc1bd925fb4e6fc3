"""What a statement is taken for. The golden files hold statements as TiDB's restorer writes them, and forms from elsewhere."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.ddl.classify import changes_rows_unseen, classify
from headrace.model.events import (
    AddColumnEvent,
    AlterColumnTypeEvent,
    CreateTableEvent,
    DropColumnEvent,
    OtherEvent,
    RenameColumnEvent,
    RenameTableEvent,
)
from headrace.model.table import Column, TableId, TableSchema
from headrace.model.types import ColumnType, TypeKind

GOLDEN = Path(__file__).parents[1] / "golden" / "ddl"
CASES = [(path.stem, case) for path in sorted(GOLDEN.glob("*.json")) for case in json.loads(path.read_text())]
T = TableId("test", "t")
INT, BIGINT = ColumnType(TypeKind.INT), ColumnType(TypeKind.BIGINT)


def shape(*columns: Column | str, table_id: TableId = T) -> TableSchema:
    return TableSchema(table_id, tuple(c if isinstance(c, Column) else Column(c, INT) for c in columns))


@pytest.mark.parametrize(("_file", "case"), CASES, ids=[f"{file}:{case['statement'][:40]}" for file, case in CASES])
def test_golden_statements_are_taken_for_what_they_are(_file: str, case: dict[str, object]) -> None:
    table_id = TableId(str(case["database"]), str(case["table"]))
    found = classify(str(case["statement"]), database=table_id.database, table_id=table_id, before=None, after=None)
    assert [type(event).__name__ for event in found.events] == case["events"]
    assert sorted(map(str, found.changes)) == case["changes"]
    assert sorted(map(str, found.reads)) == case["reads"]
    assert found.parsed == case["parsed"]


FRAGMENTS = [
    "ALTER ",
    "TABLE ",
    "CREATE ",
    "DROP ",
    "RENAME ",
    "CHANGE ",
    "VIEW ",
    "AS ",
    "TO ",
    "/*T![x]",
    "*/",
    *"`'\"(),.;#\\- t数\n",
]


@given(st.lists(st.sampled_from(FRAGMENTS), max_size=20).map("".join))
def test_no_text_makes_it_raise(text: str) -> None:
    classify(text, database="test", table_id=T, before=shape("a"), after=shape("b"))


def test_a_shape_without_statement_creates_the_table_or_tells_the_difference() -> None:
    created = classify("", database="test", table_id=T, before=None, after=shape("a"))
    assert created.events == (CreateTableEvent(T, shape("a")),)
    assert created.reads == {TableId("test")}
    assert classify("", database="test", table_id=T, before=shape("a"), after=shape("a")).events == ()
    grown = classify("", database="test", table_id=T, before=shape("a"), after=shape("a", "b"))
    assert grown.events == (AddColumnEvent(T, Column("b", INT)),)


def test_a_table_first_seen_by_an_alter_comes_to_be() -> None:
    found = classify("ALTER TABLE `t` ADD COLUMN `w` INT", database="test", table_id=T, before=None, after=shape("a", "w"))
    assert found.events == (CreateTableEvent(T, shape("a", "w")),)


def test_the_shapes_decide_about_structure_whatever_the_text_says() -> None:
    text = "ALTER TABLE `t` ADD COLUMN `x` INT, ADD INDEX `i`(`a`)"
    found = classify(text, database="test", table_id=T, before=shape("a", "b"), after=shape("a", "x"))
    assert found.events == (DropColumnEvent(T, "b"), AddColumnEvent(T, Column("x", INT)))


def test_a_change_of_nothing_but_an_index_only_carries_its_statement() -> None:
    found = classify("ALTER TABLE `t` ADD INDEX `i`(`a`)", database="test", table_id=T, before=shape("a"), after=shape("a"))
    assert found.events == (OtherEvent(T),)


def test_change_column_renames_and_alters() -> None:
    text = "ALTER TABLE `t` CHANGE COLUMN `d` `dd` BIGINT"
    found = classify(text, database="test", table_id=T, before=shape("a", "d"), after=shape("a", Column("dd", BIGINT)))
    assert found.events == (
        RenameColumnEvent(T, "d", "dd"),
        AlterColumnTypeEvent(T, Column("dd", BIGINT), Column("dd", INT)),
    )


def test_an_equal_column_id_proves_a_rename_that_no_text_tells() -> None:
    before, after = shape(Column("a", INT, column_id="1")), shape(Column("z", INT, column_id="1"))
    assert classify("", database="test", table_id=T, before=before, after=after).events == (RenameColumnEvent(T, "a", "z"),)


def test_a_modify_that_gives_the_column_a_new_id_keeps_its_values() -> None:
    before, after = shape(Column("a", BIGINT, column_id="1")), shape(Column("a", INT, column_id="2"))
    found = classify("ALTER TABLE `t` MODIFY COLUMN `a` INT", database="test", table_id=T, before=before, after=after)
    assert [type(event) for event in found.events] == [AlterColumnTypeEvent]


def test_swapped_column_names_go_through_a_name_of_their_own() -> None:
    text = "ALTER TABLE `t` RENAME COLUMN `a` TO `b`, RENAME COLUMN `b` TO `a`"
    before, after = shape("a", Column("b", BIGINT)), shape("b", Column("a", BIGINT))
    found = classify(text, database="test", table_id=T, before=before, after=after)
    assert [type(event) for event in found.events] == [RenameColumnEvent] * 3


def test_a_rename_does_not_compare_with_an_older_table_of_the_new_name() -> None:
    new = TableId("test", "a")
    older = shape("x", "y", table_id=new)
    found = classify(
        "RENAME TABLE `test`.`b` TO `test`.`a`;", database="test", table_id=new, before=older, after=shape("k", table_id=new)
    )
    assert found.events == (RenameTableEvent(TableId("test", "b"), new),)


def test_the_sources_spelling_of_a_name_wins_over_the_texts() -> None:
    mixed = TableId("test", "MixedCase")
    found = classify("DROP TABLE `test`.`mixedcase`", database="test", table_id=mixed, before=None, after=None)
    assert found.changes == {mixed}


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("ALTER TABLE `t` DROP PARTITION `p`", True),
        ("ALTER TABLE `t` TRUNCATE PARTITION `p`", True),
        ("ALTER TABLE `t` EXCHANGE PARTITION `p` WITH TABLE `u`", True),
        ("RECOVER TABLE `t`", True),
        ("FLASHBACK TABLE `t` TO `u`", True),
        ("ALTER TABLE `t` ADD PARTITION (PARTITION `p` VALUES IN (7, 8))", False),
        ("ALTER TABLE `t` REORGANIZE PARTITION `p` INTO (PARTITION `q` VALUES LESS THAN (9))", False),
        ("ALTER TABLE `t` DROP COLUMN `partition`", False),
        ("DROP INDEX `partition` ON `t`", False),
        ("", False),
    ],
)
def test_statements_that_change_rows_unseen_are_known(statement: str, expected: bool) -> None:
    assert changes_rows_unseen(statement, "test") is expected
