"""Declared keys: how they are written, and what they do to an offer."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headrace.engine.keys import DeclaredKeys, fingerprint_of, read_fingerprint, with_declared_keys
from headrace.errors import DefinitionError
from headrace.model.events import (
    AlterColumnTypeEvent,
    CreateTableEvent,
    DropTableEvent,
    RenameColumnEvent,
    RenameTableEvent,
    SchemaChange,
    SchemaChangeEvent,
)
from headrace.model.offer import Offer
from headrace.model.split import Split
from headrace.model.table import Column, Generated, TableId, TableSchema
from headrace.model.types import ColumnType, TypeKind

ORDERS = TableId("shop", "orders")
INT = ColumnType(TypeKind.INT)
NUMBER = Column("Order_No", INT, nullable=False)
LINE = Column("line", INT, nullable=False)
NOTE = Column("note", INT)


def keys(**by_table: str) -> DeclaredKeys:
    return DeclaredKeys.parse({f"shop.{table}": columns.split() for table, columns in by_table.items()})


def change(ts: int, table_id: TableId, columns: tuple[Column, ...], *events: SchemaChangeEvent) -> SchemaChange:
    """A schema change; without events it creates the table."""
    schema = TableSchema(table_id, columns, tuple(c.name for c in columns if c.primary_key))
    done = events or (CreateTableEvent(table_id, schema),)
    return SchemaChange(ts, table_id, done, "", table_id.database, frozenset({table_id}), schema=schema)


def offer(*changes: SchemaChange, splits: tuple[tuple[SchemaChange, int], ...] = ()) -> Offer:
    made = []
    for of, version in splits:
        assert of.schema is not None
        made.append(Split(f"{of.table_id}/{version}", of.table_id, version, 0, 1, of.schema))
    return Offer(100, 100, changes, tuple(made))


def handles(result: Offer) -> list[tuple[str, ...]]:
    return [split.schema.handle_key for split in result.splits]


def sentences(result: Offer) -> list[str]:
    return [problem.sentence() for problem in result.problems]


@pytest.mark.parametrize(
    ("text", "table_id", "key"),
    [
        ("shop.orders=order_no", ORDERS, ("order_no",)),
        (" shop . orders = order_no , line ", ORDERS, ("order_no", "line")),
        ("`my.shop`.`a=b`=`x,y`,`back``quote`", TableId("my.shop", "a=b"), ("x,y", "back`quote")),
        ("shop.a.b=x", TableId("shop", "a.b"), ("x",)),
        ("läden.straße=größe", TableId("läden", "straße"), ("größe",)),
    ],
)
def test_a_key_is_a_table_and_its_columns(text: str, table_id: TableId, key: tuple[str, ...]) -> None:
    assert DeclaredKeys.parse_texts([text]).by_table == {table_id: key}


@pytest.mark.parametrize(
    ("texts", "told"),
    [
        (["orders=id"], "cannot be read"),
        (["shop.orders"], "cannot be read"),
        (["shop.orders="], "at least one column"),
        (["shop.orders=a,,b"], "cannot be read"),
        (["shop.orders=a,A"], "each only once"),
        (["shop.orders=a", "SHOP.Orders=b"], "declared twice"),
    ],
)
def test_a_key_that_cannot_be_read_is_refused(texts: list[str], told: str) -> None:
    with pytest.raises(DefinitionError, match=told):
        DeclaredKeys.parse_texts(texts)


def test_a_declared_key_becomes_the_handle_of_every_shape_in_the_tables_own_spelling() -> None:
    created = change(10, ORDERS, (NUMBER, LINE, NOTE))
    result = with_declared_keys(offer(created, splits=((created, 10),)), keys(ORDERS="order_no LINE"))
    assert handles(result) == [("Order_No", "line")]
    schema = result.schema_changes[0].schema
    assert schema is not None
    assert schema.handle_key == ("Order_No", "line")
    assert result.schema_changes[0].events == (CreateTableEvent(ORDERS, schema),)
    assert not result.problems + result.notices


def test_other_tables_and_offers_without_keys_stay_as_they_are() -> None:
    other = change(10, TableId("shop", "log"), (NOTE,))
    plain = offer(other, splits=((other, 10),))
    assert with_declared_keys(plain, DeclaredKeys()) is plain
    result = with_declared_keys(plain, keys(orders="order_no"))
    assert result.splits == plain.splits
    assert result.schema_changes == plain.schema_changes
    told = "A key is declared for shop.orders, which the source does not have."
    assert [n.message for n in result.notices] == [told]
    typo = with_declared_keys(plain, keys(logs="note"))
    assert "Did you mean shop.log?" in typo.notices[0].message


def test_the_key_counts_from_the_version_on_that_has_its_columns() -> None:
    nullable = replace(NUMBER, nullable=True)
    created = change(10, ORDERS, (nullable, NOTE))
    altered = change(20, ORDERS, (NUMBER, NOTE), AlterColumnTypeEvent(ORDERS, NUMBER, nullable))
    result = with_declared_keys(offer(created, altered, splits=((created, 10), (altered, 20))), keys(orders="order_no"))
    assert handles(result) == [(), ("Order_No",)]
    assert not result.problems


def test_a_key_follows_renames_of_its_columns_and_of_its_table() -> None:
    new = TableId("shop", "purchases")
    number = replace(NUMBER, name="number")
    created = change(10, ORDERS, (NUMBER, NOTE))
    renamed = change(20, ORDERS, (number, NOTE), RenameColumnEvent(ORDERS, "Order_No", "number"))
    moved = change(30, new, (number, NOTE), RenameTableEvent(ORDERS, new))
    again = change(40, ORDERS, (number, NOTE))
    everything = offer(created, renamed, moved, splits=((created, 10), (renamed, 20), (moved, 30), (moved, 35)))
    result = with_declared_keys(everything, keys(orders="order_no"))
    assert handles(result) == [("Order_No",), ("number",), ("number",), ("number",)]
    assert not result.problems + result.notices
    anew = with_declared_keys(offer(created, renamed, moved, again, splits=((again, 40),)), keys(orders="order_no"))
    assert handles(anew) == [()]
    assert "names a column that it does not have" in sentences(anew)[0]


def test_a_table_that_is_dropped_and_comes_back_is_judged_anew() -> None:
    created = change(10, ORDERS, (NUMBER,))
    dropped = replace(change(20, ORDERS, (NUMBER,), DropTableEvent(ORDERS)), schema=None)
    again = change(30, ORDERS, (NOTE,))
    assert not with_declared_keys(offer(created, dropped), keys(orders="order_no")).problems
    assert with_declared_keys(offer(created, dropped, again), keys(orders="order_no")).problems


def test_a_primary_key_that_comes_later_takes_the_place_of_the_declared_key() -> None:
    primary = replace(LINE, primary_key=True)
    created = change(10, ORDERS, (NUMBER, LINE))
    altered = change(20, ORDERS, (NUMBER, primary), AlterColumnTypeEvent(ORDERS, primary, LINE))
    result = with_declared_keys(offer(created, altered, splits=((created, 10), (altered, 20))), keys(orders="order_no"))
    assert handles(result) == [("Order_No",), ("line",)]
    assert not result.problems


@pytest.mark.parametrize(
    ("column", "declared", "told"),
    [
        (
            NUMBER,
            "oder_no",
            "column oder_no: the key declared for it names a column that it does not have. Did you mean 'Order_No'?",
        ),
        (
            replace(NUMBER, nullable=True),
            "order_no",
            "nullable column: rows with NULL could not be told apart. Make the column NOT NULL",
        ),
        (replace(NUMBER, generated=Generated.VIRTUAL), "order_no", "a virtual generated column, which rows do not carry."),
        (replace(NUMBER, primary_key=True), "order_no", "has a primary key (Order_No). Take the key out of the definition."),
    ],
)
def test_a_key_that_a_table_cannot_have_is_a_problem_of_that_table(column: Column, declared: str, told: str) -> None:
    created = change(10, ORDERS, (column, NOTE))
    result = with_declared_keys(offer(created), keys(orders=declared))
    assert [problem.table_id for problem in result.problems] == [ORDERS]
    assert told in sentences(result)[0]


@pytest.mark.parametrize("filter_text", ["", "shop.*,!shop.tmp_*"])
def test_the_fingerprint_tells_the_filter_and_the_keys(filter_text: str) -> None:
    declared = DeclaredKeys.parse_texts(["shop.orders=a,b", "`x.y`.`z`=`c d`"])
    assert read_fingerprint(fingerprint_of(filter_text, declared)) == (filter_text, declared)
    assert fingerprint_of(filter_text, DeclaredKeys()) == filter_text
    assert read_fingerprint(filter_text) == (filter_text, DeclaredKeys())
