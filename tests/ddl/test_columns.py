"""What DDL text tells about columns and keys that a schema file does not."""

from __future__ import annotations

import pytest

from headrace.ddl.columns import annotate
from headrace.model.table import Column, Generated, TableId, TableSchema
from headrace.model.types import ColumnType, TypeKind

T = TableId("test", "t")
INT = ColumnType(TypeKind.INT)


def shape(*names: str, not_null: str = "", primary: str = "", handle: tuple[str, ...] = ()) -> TableSchema:
    columns = tuple(Column(n, INT, nullable=n not in not_null.split(), primary_key=n in primary.split()) for n in names)
    return TableSchema(T, columns, handle)


def generated(schema: TableSchema) -> dict[str, Generated | None]:
    return {c.name: c.generated for c in schema.columns}


def test_generated_columns_are_marked_by_their_kind() -> None:
    text = (
        "CREATE TABLE `g` (`id` INT PRIMARY KEY,`a` INT DEFAULT 3 COMMENT 'AS (x)',`v` INT GENERATED ALWAYS AS(`a`*2) VIRTUAL,"
        "`s` INT GENERATED ALWAYS AS(`a`*3) STORED NOT NULL,`d` INT AS (CAST(`a` AS SIGNED)),INDEX `iv`(`v`))"
    )
    found = generated(annotate(text, shape("id", "a", "v", "s", "d", primary="id"), None))
    assert found == {"id": None, "a": None, "v": Generated.VIRTUAL, "s": Generated.STORED, "d": Generated.VIRTUAL}


def test_expressions_are_kept_as_they_were_written_without_comments() -> None:
    text = "CREATE TABLE `t` (`é😀` INT, `v` VARCHAR(9) /*T! */ AS (CONCAT(`é😀`, _UTF8MB4'it''s (')) STORED, `w` INT AS(1))"
    created = annotate(text, shape("é😀", "v", "w"), None)
    assert [c.expression for c in created.columns] == ["", "CONCAT(`é😀`, _UTF8MB4'it''s (')", "1"]
    later = annotate(
        "ALTER TABLE t MODIFY w INT AS (2), ADD x INT AS (`v` /* why */ + 1), CHANGE v u INT", shape("u", "w", "x"), created
    )
    assert [c.expression for c in later.columns] == ["", "2", "`v` + 1"]
    renamed = annotate("ALTER TABLE t RENAME COLUMN w TO y", shape("u", "y", "x"), later)
    assert [c.expression for c in renamed.columns] == ["", "2", "`v` + 1"]


def test_digits_of_floating_columns_come_from_the_text_if_the_source_has_none() -> None:
    def floating(length: int | None, scale: int | None, kind: TypeKind = TypeKind.FLOAT) -> TableSchema:
        return TableSchema(T, (Column("f", ColumnType(kind, length=length, scale=scale)),))

    def digits(schema: TableSchema) -> tuple[int | None, int | None]:
        return schema.columns[0].type.length, schema.columns[0].type.scale

    created = annotate("CREATE TABLE t (f FLOAT(8, 3))", floating(8, None), None)
    assert digits(created) == (8, 3)
    assert digits(annotate("ALTER TABLE t COMMENT 'x'", floating(8, None), created)) == (8, 3)
    assert digits(annotate("ALTER TABLE t MODIFY f FLOAT", floating(12, None), created)) == (12, None)
    assert digits(annotate("ALTER TABLE t MODIFY f DOUBLE", floating(22, None, TypeKind.DOUBLE), created)) == (22, None)
    assert digits(annotate("ALTER TABLE t MODIFY f FLOAT(9, 4)", floating(7, 2), created)) == (7, 2)


def test_columns_behind_expression_indexes_are_hidden() -> None:
    schema = annotate("CREATE TABLE `t` (`a` INT, INDEX((`a`+1)))", shape("a", "_V$_expression_index_0"), None)
    assert [c.hidden for c in schema.columns] == [False, True]
    assert [c.name for c in schema.row_columns] == ["a"]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("`a` INT NOT NULL, `b` INT NOT NULL, UNIQUE `u`(`a`, `b`)", ("a", "b")),
        ("`a` INT NOT NULL UNIQUE KEY, `b` INT", ("a",)),
        ("`a` INT, `b` INT NOT NULL, UNIQUE(`c`), UNIQUE KEY `u`(`B` DESC)", ("b",)),
        ("`a` INT NOT NULL, `b` INT NOT NULL, UNIQUE `p`(`a`(10)), UNIQUE((`a`+1)), CONSTRAINT `q` UNIQUE (`b`)", ("b",)),
        ("`a` INT NOT NULL, `b` INT NOT NULL, KEY (`a`)", ()),
        ("`a` INT NOT NULL, `b` INT AS (`a`) NOT NULL, UNIQUE (`b`)", ()),
        ("`a` INT NOT NULL, `b` INT AS (`a`) STORED NOT NULL, UNIQUE (`b`)", ("b",)),
    ],
)
def test_the_first_usable_unique_key_of_a_table_without_primary_key_is_its_handle(body: str, expected: tuple[str, ...]) -> None:
    assert annotate(f"CREATE TABLE `t` ({body})", shape("a", "b", "c", not_null="a b"), None).handle_key == expected


def test_a_primary_key_comes_before_any_unique_key() -> None:
    schema = shape("a", "b", not_null="a b", primary="b", handle=("b",))
    assert annotate("CREATE TABLE t (a INT NOT NULL UNIQUE, b INT PRIMARY KEY)", schema, None).handle_key == ("b",)


def test_marks_and_handle_key_outlive_later_statements_and_renames() -> None:
    created = annotate("CREATE TABLE t (a INT NOT NULL UNIQUE, g INT AS (a) STORED)", shape("a", "g", not_null="a"), None)
    quiet = annotate("", shape("a", "g", not_null="a"), created)
    assert quiet == created
    text = "ALTER TABLE t CHANGE a k INT NOT NULL, RENAME COLUMN g TO h, ADD COLUMN n INT AS (k) VIRTUAL"
    altered = annotate(text, shape("k", "h", "n", not_null="k"), created)
    assert altered.handle_key == ("k",)
    assert generated(altered) == {"k": None, "h": Generated.STORED, "n": Generated.VIRTUAL}


def test_a_handle_key_ends_when_its_column_becomes_nullable() -> None:
    created = shape("a", not_null="a", handle=("a",))
    assert annotate("ALTER TABLE t MODIFY a INT", shape("a"), created).handle_key == ()


def test_a_unique_key_added_later_becomes_the_handle() -> None:
    before = shape("a", "b", not_null="b")
    for text in ("ALTER TABLE t ADD UNIQUE `u`(`b`)", "CREATE UNIQUE INDEX u ON t (b)"):
        assert annotate(text, before, before).handle_key == ("b",)


def test_a_table_created_anew_forgets_the_marks_of_its_predecessor() -> None:
    old = annotate("CREATE TABLE t (a INT, g INT AS (a))", shape("a", "g"), None)
    assert generated(annotate("CREATE TABLE t (a INT, g INT)", shape("a", "g"), old)) == {"a": None, "g": None}


def test_like_takes_the_marks_of_its_pattern() -> None:
    pattern = annotate("CREATE TABLE s (a INT NOT NULL UNIQUE, g INT AS (a))", shape("a", "g", not_null="a"), None)
    copy = annotate("CREATE TABLE t LIKE s", shape("a", "g", not_null="a"), pattern)
    assert generated(copy)["g"] is Generated.VIRTUAL
    assert copy.handle_key == ("a",)


@pytest.mark.parametrize(
    ("created", "then", "expected"),
    [
        ("UNIQUE KEY `k`(`a`)", "ALTER TABLE t DROP INDEX k", ()),
        ("UNIQUE KEY `k`(`a`)", "ALTER TABLE t ADD COLUMN x INT, DROP KEY IF EXISTS `K`", ()),
        ("UNIQUE KEY `k`(`a`)", "DROP INDEX IF EXISTS `k` ON `t`", ()),
        ("CONSTRAINT `k` UNIQUE (`a`)", "ALTER TABLE t DROP INDEX k", ()),
        ("UNIQUE KEY `k`(`a`)", "ALTER TABLE t DROP INDEX other", ("a",)),
        ("UNIQUE (`a`)", "ALTER TABLE t DROP INDEX a", ()),
        ("KEY `a`(`b`), UNIQUE (`a`)", "ALTER TABLE t DROP INDEX a", ("a",)),
        ("KEY `a`(`b`), UNIQUE (`a`)", "ALTER TABLE t DROP INDEX a_2", ()),
        ("UNIQUE KEY `k`(`a`), UNIQUE KEY `l`(`b`)", "ALTER TABLE t DROP INDEX k", ("b",)),
        ("UNIQUE KEY `k`(`a`), UNIQUE KEY `l`(`b`)", "ALTER TABLE t DROP INDEX l", ("a",)),
        ("UNIQUE KEY `k`(`a`), UNIQUE KEY `l`(`b`)", "ALTER TABLE t RENAME KEY k TO m", ("a",)),
        ("UNIQUE KEY `k`(`a`)", "ALTER TABLE t DROP INDEX k, ADD UNIQUE INDEX k USING BTREE (b)", ("b",)),
    ],
)
def test_the_handle_goes_with_its_unique_key(created: str, then: str, expected: tuple[str, ...]) -> None:
    columns = shape("a", "b", not_null="a b")
    before = annotate(f"CREATE TABLE `t` (`a` INT NOT NULL, `b` INT NOT NULL, {created})", columns, None)
    assert annotate(then, columns, before).handle_key == expected


def test_a_renamed_or_added_unique_key_is_dropped_by_its_name() -> None:
    columns = shape("a", "b", not_null="a b")
    table = annotate("CREATE TABLE t (a INT NOT NULL, b INT NOT NULL, UNIQUE KEY k (a))", columns, None)
    for text in ("ALTER TABLE t RENAME INDEX k TO m", "CREATE UNIQUE INDEX n ON t (b)", "ALTER TABLE t DROP INDEX m"):
        table = annotate(text, columns, table)
    assert table.handle_key == ("b",)
    assert annotate("DROP INDEX n ON t", columns, table).handle_key == ()


def test_without_a_primary_key_the_unique_key_that_was_there_all_along_is_the_handle() -> None:
    created = annotate(
        "CREATE TABLE t (a INT PRIMARY KEY, b INT NOT NULL UNIQUE)", shape("a", "b", not_null="a b", primary="a"), None
    )
    assert created.handle_key == ("a",)
    assert annotate("ALTER TABLE t DROP PRIMARY KEY", shape("a", "b", not_null="a b"), created).handle_key == ("b",)


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("SET(" + ",".join(f"'{n}'" for n in range(64)) + ")", 64),
        ("SET(" + ",".join(f"'{n}'" for n in range(65)) + ")", 0),
        ("ENUM('" + "x" * 65_535 + "','y')", 2),
        ("ENUM('" + "x" * 65_536 + "','y')", 0),
    ],
)
def test_members_that_no_type_of_tidb_has_are_not_taken_from_a_statement(written: str, expected: int) -> None:
    """What they stand for is not known then."""
    kind = TypeKind.SET if written.startswith("SET") else TypeKind.ENUM
    schema = TableSchema(TableId("test", "t"), (Column("m", ColumnType(kind)),))
    (column,) = annotate(f"CREATE TABLE t (m {written})", schema, None).columns
    assert len(column.type.elements) == expected
