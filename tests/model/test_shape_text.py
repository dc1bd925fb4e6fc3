"""Shapes as text: every shape is read back as it was, and what a reader does not know it refuses."""

from __future__ import annotations

import json
from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import DefinitionError
from headrace.model.ledger import TableShape
from headrace.model.shape_text import kept_shape_from_text, kept_shape_to_text, shape_from_text, shape_to_text
from headrace.model.table import Column, Generated, Index, TableId, TableSchema
from headrace.model.tso import MAX_TSO
from headrace.model.types import ColumnType, TypeKind

TEXTS = st.text(max_size=12) | st.sampled_from(["", "é'\\\"", "\x00", "\ud800", "straße", "null", "😀"])
NAMES = st.tuples() | st.lists(TEXTS, max_size=4).map(tuple)
LENGTHS = st.none() | st.integers(-1, 1 << 33)
TABLE_IDS = {"database": TEXTS, "table": TEXTS}
TYPES = {
    "kind": st.sampled_from(TypeKind),
    "unsigned": st.booleans(),
    "length": LENGTHS,
    "scale": LENGTHS,
    "elements": NAMES,
}
COLUMNS = {
    "name": TEXTS,
    "type": st.builds(ColumnType, **TYPES),
    "nullable": st.booleans(),
    "primary_key": st.booleans(),
    "default": st.none() | TEXTS,
    "column_id": st.none() | TEXTS,
    "generated": st.none() | st.sampled_from(Generated),
    "hidden": st.booleans(),
    "expression": TEXTS,
}
INDEXES = {"name": TEXTS, "columns": NAMES, "unique": st.booleans()}
SCHEMAS = {
    "table_id": st.builds(TableId, **TABLE_IDS),
    "columns": st.lists(st.builds(Column, **COLUMNS), max_size=5).map(tuple),
    "handle_key": NAMES,
    "indexes": st.lists(st.builds(Index, **INDEXES), max_size=3).map(tuple),
    "registered": st.integers(0, (1 << 32) - 1),
    "named_in": TEXTS,
}
BESIDE = {"incarnation": st.integers(0, MAX_TSO), "version": st.integers(0, MAX_TSO), "partitioning": TEXTS, "collation": TEXTS}
ORDERS = TableSchema(
    TableId("shop", "orders"), (Column("id", ColumnType(TypeKind.BIGINT, unsigned=True), nullable=False),), ("id",)
)


@pytest.mark.long
@given(st.builds(TableSchema, **SCHEMAS))
def test_every_shape_is_read_back_as_it_was(schema: TableSchema) -> None:
    text = shape_to_text(schema)
    assert shape_from_text(text) == schema
    assert shape_from_text(text).registered == schema.registered, "which equality leaves out"
    assert shape_from_text(text).named_in == schema.named_in, "which it leaves out, too"
    assert text.isascii()
    assert shape_to_text(shape_from_text(text)) == text


@pytest.mark.long
@given(st.builds(TableShape, schema=st.builds(TableSchema, **SCHEMAS), **BESIDE))
def test_what_is_kept_beside_a_shape_is_read_back_too(shape: TableShape) -> None:
    text = kept_shape_to_text(shape)
    assert kept_shape_from_text(shape.incarnation, shape.version, text) == shape
    assert text.isascii()


def test_a_shape_that_an_older_headrace_kept_is_read() -> None:
    assert kept_shape_from_text(5, 7, shape_to_text(ORDERS)) == TableShape(5, 7, ORDERS)
    assert kept_shape_to_text(TableShape(5, 7, ORDERS)) == shape_to_text(ORDERS)


@pytest.mark.parametrize(
    ("kind", "tried"),
    [
        (TableId, TABLE_IDS),
        (ColumnType, TYPES),
        (Column, COLUMNS),
        (Index, INDEXES),
        (TableSchema, SCHEMAS),
        (TableShape, {**BESIDE, "schema": None}),
    ],
)
def test_the_property_above_tries_every_field(kind: type, tried: dict[str, object]) -> None:
    assert {part.name for part in fields(kind)} == tried.keys()


@pytest.mark.parametrize("kind", TypeKind)
def test_every_type_is_read_back(kind: TypeKind) -> None:
    column = Column("c", ColumnType(kind, length=4, scale=2, elements=("a", "")))
    schema = TableSchema(TableId("shop", "orders"), (column,))
    assert shape_from_text(shape_to_text(schema)) == schema


def test_the_text_of_a_shape_does_not_change_between_versions() -> None:
    assert shape_to_text(ORDERS) == (
        '{"format":1,"table_id":{"database":"shop","table":"orders"},"columns":[{"name":"id","type":{"kind":"BIGINT",'
        '"unsigned":true},"nullable":false}],"handle_key":["id"]}'
    )


def test_a_later_format_is_refused_with_its_number() -> None:
    text = json.dumps({**json.loads(shape_to_text(ORDERS)), "format": 2, "collation": "x"})
    with pytest.raises(DefinitionError, match=r"format 2, and this Headrace reads format 1\. Run the version"):
        shape_from_text(text)


@pytest.mark.parametrize("text", ["", "null", "[]", "{}", "{", '{"format":1}', '{"format":1,"table_id":7,"columns":[]}'])
def test_a_text_that_is_no_shape_is_refused(text: str) -> None:
    with pytest.raises(DefinitionError, match="cannot be read"):
        shape_from_text(text)


def test_a_field_that_nobody_knows_is_refused() -> None:
    text = shape_to_text(ORDERS).replace('"nullable"', '"invisible":true,"nullable"')
    with pytest.raises(DefinitionError, match="Column has no invisible"):
        shape_from_text(text)
