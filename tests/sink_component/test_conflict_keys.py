"""Which rows conflict: those that the target may hold for equal in a unique key. Cases of TiCDC's event_test.go and of its gaps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from headrace.model.table import Column, Generated, TableId, TableSchema
from headrace.model.types import ColumnType, TypeKind
from headrace.replay.conflict_keys import ConflictKeys, KeyPart, UniqueKey, unique_keys_of
from headrace.replay.slots import OWNER_BITS
from headrace.replay.transactions import Transactions
from transaction_cases import INT, PK_UK, TEXT, Change, Row, block_of, table

PK = Column("pk", INT, False, True)


def key(*names: str, prefix: int = 0) -> UniqueKey:
    return UniqueKey(tuple(KeyPart(name, prefix) for name in names))


def touched(schema: TableSchema, changes: Sequence[Change], *keys: UniqueKey) -> list[set[int]]:
    """What the transactions touch, one for each change."""
    conflict_keys = ConflictKeys(schema, keys or unique_keys_of(schema), old_images=True)
    block = block_of(schema, [(ts, [change]) for ts, change in enumerate(changes, 1)])
    found: list[set[int]] = [set() for _ in changes]
    for pair in conflict_keys.touched(Transactions.of(block)).tolist():
        found[pair % (1 << OWNER_BITS)].add(pair >> OWNER_BITS)
    return found


def insert(**row: object) -> Change:
    return Change(None, row)


def conflict(of: ColumnType, one: object, other: object, prefix: int = 0) -> bool:
    """Whether two rows conflict in a unique key over a column of this type."""
    schema = table(PK, Column("u", of))
    first, second = touched(schema, [insert(pk=1, u=one), insert(pk=2, u=other)], key("pk"), key("u", prefix=prefix))
    return bool(first & second)


@pytest.mark.parametrize(
    ("of", "one", "other"),
    [
        (TEXT, "XyZ", "xYZ"),
        (TEXT, "a", "a  "),
        (TEXT, "é", "E"),
        (TEXT, "ß", "ss"),
        (TEXT, "ひ", "ヒ"),
        (ColumnType(TypeKind.ENUM), "Yes", "yes"),
        (ColumnType(TypeKind.DECIMAL), "1.50", "1.5"),
        (ColumnType(TypeKind.DECIMAL), "10.000", "10"),
        (ColumnType(TypeKind.DECIMAL), "-0", "0"),
        (ColumnType(TypeKind.DATETIME), "2024-01-01 10:00:00", "2024-01-01 10:00:00.000"),
        (ColumnType(TypeKind.TIMESTAMP), "2024-01-01 10:00:00.5", "2024-01-01 10:00:00.500000"),
        (ColumnType(TypeKind.DOUBLE), 0.0, -0.0),
        (ColumnType(TypeKind.BINARY, length=4), b"a", b"a\0\0"),
        (ColumnType(TypeKind.BIGINT, unsigned=True), 2**64 - 1, 2**64 - 1),
        (ColumnType(TypeKind.BIT), 5, 5),
    ],
)
def test_values_conflict_that_a_database_may_hold_for_equal(of: ColumnType, one: object, other: object) -> None:
    assert conflict(of, one, other)


@pytest.mark.parametrize(
    ("of", "one", "other"),
    [
        (TEXT, "a", "b"),
        (TEXT, "", " x"),
        (INT, 1, 2),
        (ColumnType(TypeKind.DECIMAL), "10", "1"),
        (ColumnType(TypeKind.DECIMAL), "100.10", "100.01"),
        (ColumnType(TypeKind.DATETIME), "2024-01-01 10:00:00", "2024-01-01 10:00:01"),
        (ColumnType(TypeKind.DATE), "2024-01-10", "2024-01-01"),
        (ColumnType(TypeKind.VARBINARY), b"a", b"A"),
        (ColumnType(TypeKind.VARBINARY), b"a", b"a\0"),
        (ColumnType(TypeKind.DOUBLE), 1.0, 1.5),
    ],
)
def test_other_values_do_not_conflict(of: ColumnType, one: object, other: object) -> None:
    assert not conflict(of, one, other)


def test_nulls_never_conflict() -> None:
    assert not conflict(INT, None, None)
    assert not conflict(TEXT, None, None)


def test_a_null_in_a_key_of_several_columns_frees_the_row() -> None:
    schema = table(PK, Column("a", INT), Column("b", TEXT))
    rows = [insert(pk=1, a=1, b=None), insert(pk=2, a=1, b=None), insert(pk=3, a=1, b="x"), insert(pk=4, a=1, b="X")]
    one, two, three, four = touched(schema, rows, key("pk"), key("a", "b"))
    assert [len(found) for found in (one, two, three, four)] == [1, 1, 2, 2]
    assert not one & two
    assert three & four


@pytest.mark.parametrize(
    ("one", "other", "expected"), [("abcd", "ABCx", True), ("abc", "abd", False), ("日本語x", "日本語y", True)]
)
def test_only_the_prefix_of_a_prefix_key_counts(one: str, other: str, *, expected: bool) -> None:
    assert conflict(TEXT, one, other, prefix=3) is expected


def test_the_prefix_of_a_binary_column_counts_bytes() -> None:
    assert conflict(ColumnType(TypeKind.VARBINARY), b"\xff\x01", b"\xff\x02", prefix=1)


def test_the_same_value_in_two_keys_or_two_tables_does_not_conflict() -> None:
    one, two = touched(PK_UK, [insert(pk=1, uk=2), insert(pk=2, uk=1)])
    assert not one & two
    other = replace(PK_UK, table_id=TableId("d", "other"))
    assert not one & touched(other, [insert(pk=1, uk=2)])[0]


def test_the_order_of_values_in_a_key_counts() -> None:
    schema = table(PK, Column("a", INT), Column("b", INT))
    one, two, three = touched(
        schema, [insert(pk=1, a=12, b=1), insert(pk=2, a=1, b=12), insert(pk=3, a=12, b=1)], key("pk"), key("a", "b")
    )
    assert not one & two
    assert one & three


def test_an_update_touches_its_old_and_its_new_values() -> None:
    old, new, moved = touched(PK_UK, [insert(pk=2, uk=3), insert(pk=4, uk=9), Change({"pk": 2, "uk": 3}, {"pk": 4, "uk": 3})])
    assert len(moved) == 3
    assert len(moved & old) == 2
    assert len(moved & new) == 1


def row_images(row: Row) -> list[Change]:
    return [Change(None, row), Change(row, row), Change(row, None)]


def test_a_row_that_keeps_its_keys_touches_each_once() -> None:
    assert [len(found) for found in touched(PK_UK, row_images({"pk": 1, "uk": 1}))] == [2, 2, 2]


def test_the_handle_key_counts_although_the_target_has_another_one() -> None:
    schema = table(Column("pk", INT, False), Column("u", INT, False))
    one, two = touched(schema, [insert(pk=1, u=1), insert(pk=1, u=2)], key("u"))
    assert one & two


VIRTUAL = Column("g", INT, generated=Generated.VIRTUAL)
STORED = Column("g", INT, generated=Generated.STORED)


@pytest.mark.parametrize(
    ("schema", "keys", "reason"),
    [
        (table(Column("a", INT), key=()), [], "no primary key"),
        (table(Column("a", INT), key=()), [key("a")], "no primary key"),
        (table(PK, VIRTUAL), [key("pk"), key("g")], "virtual generated column g"),
        (table(PK), [key("pk"), key("")], "covers an expression"),
        (table(PK), [key("pk"), key("gone")], "gone, which rows do not carry"),
    ],
)
def test_a_table_whose_keys_do_not_tell_what_conflicts_is_serialised(
    schema: TableSchema, keys: list[UniqueKey], reason: str
) -> None:
    conflict_keys = ConflictKeys(schema, keys, old_images=True)
    assert reason in conflict_keys.serialised
    carried = {c.name: n for n, c in enumerate(schema.row_columns)}
    rows = [insert(**carried), insert(**{name: n + 10 for name, n in carried.items()})]
    one, two = touched(schema, rows, *keys)
    assert one == two
    assert len(one) == 1


def test_without_old_values_a_table_with_several_unique_keys_is_serialised() -> None:
    assert "more than one unique key" in ConflictKeys(PK_UK, unique_keys_of(PK_UK), old_images=False).serialised
    assert not ConflictKeys(table(PK), unique_keys_of(table(PK)), old_images=False).serialised


@pytest.mark.parametrize("schema", [PK_UK, table(PK, STORED, unique=[("g",)]), table(Column("pk", TEXT, False))])
def test_other_tables_are_not_serialised(schema: TableSchema) -> None:
    assert ConflictKeys(schema, unique_keys_of(schema), old_images=True).serialised == ""
