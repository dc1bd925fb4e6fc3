"""The events of a difference, applied in order by a small interpreter, give the shape that was asked for."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from headrace.ddl.difference import difference
from headrace.model.events import (
    AddColumnEvent,
    AlterColumnTypeEvent,
    ColumnPosition,
    DropColumnEvent,
    Position,
    RenameColumnEvent,
    SchemaChangeEvent,
)
from headrace.model.table import Column, TableId, TableSchema, folded_name
from headrace.model.types import ColumnType, TypeKind

T = TableId("test", "t")


def apply(columns: list[Column], event: SchemaChangeEvent) -> list[Column]:
    """What a database does; it refuses what a database refuses. ``column_id`` carries the values' origin."""
    names = [c.name for c in columns]
    folded = [folded_name(name) for name in names]
    match event:
        case DropColumnEvent(column_name=name):
            assert name in names
            return [c for c in columns if c.name != name]
        case RenameColumnEvent(old_name=old, new_name=new):
            assert old in names
            assert folded_name(new) not in folded or folded_name(new) == folded_name(old)
            return [replace(c, name=new) if c.name == old else c for c in columns]
        case AddColumnEvent(column=column, position=position):
            assert folded_name(column.name) not in folded
            return placed(columns, replace(column, column_id="new"), position, len(columns))
        case AlterColumnTypeEvent(column=column, old_column=old, position=position):
            there = columns[names.index(column.name)]
            assert replace(there, column_id=None) == replace(old, column_id=None)
            at = names.index(column.name)
            return placed([c for c in columns if c.name != column.name], replace(column, column_id=there.column_id), position, at)
    raise AssertionError(event)


def placed(columns: list[Column], column: Column, position: ColumnPosition, default: int) -> list[Column]:
    at = default
    if position.position is Position.FIRST:
        at = 0
    elif position.position is Position.AFTER:
        at = [c.name for c in columns].index(position.after) + 1
    return [*columns[:at], column, *columns[at:]]


KINDS = st.sampled_from([TypeKind.INT, TypeKind.BIGINT, TypeKind.VARCHAR])
NAMES = st.sampled_from(["a", "A", "b", "c", "d", "e", "f", "é", "id", "maß", "Mass"])


@st.composite
def columns(draw: st.DrawFn) -> tuple[Column, ...]:
    names = draw(st.lists(NAMES, unique_by=folded_name, max_size=7))
    return tuple(Column(name, ColumnType(draw(KINDS)), nullable=draw(st.booleans())) for name in names)


@given(columns(), columns(), st.dictionaries(NAMES, NAMES, max_size=4))
def test_the_events_applied_in_order_lead_to_the_shape_after(
    before: tuple[Column, ...], after: tuple[Column, ...], renames: dict[str, str]
) -> None:
    state = [replace(c, column_id=c.name) for c in before]
    for event in difference(TableSchema(T, before), TableSchema(T, after), renames):
        state = apply(state, event)
    assert [replace(c, column_id=None) for c in state] == list(after)
    origins = {folded_name(c.name): folded_name(c.column_id or "") for c in state}
    for old, new in renames.items():
        claimed = [o for o, n in renames.items() if folded_name(n) == folded_name(new) or folded_name(o) == folded_name(old)]
        borne_out = {folded_name(c.name) for c in before} >= {folded_name(old)} and folded_name(new) in origins
        if borne_out and len(claimed) == 1 and folded_name(old) != folded_name(new):
            assert origins[folded_name(new)] == folded_name(old)


@given(columns())
def test_equal_shapes_differ_in_nothing(shape: tuple[Column, ...]) -> None:
    renumbered = tuple(replace(c, column_id="9") for c in shape)
    assert difference(TableSchema(T, shape), TableSchema(T, renumbered), {}) == ()


def test_a_moved_column_is_one_alteration() -> None:
    a, b, c = (Column(name, ColumnType(TypeKind.INT)) for name in "abc")
    events = difference(TableSchema(T, (a, b, c)), TableSchema(T, (c, a, b)), {})
    assert events == (AlterColumnTypeEvent(T, c, c, ColumnPosition(Position.FIRST)),)


def test_an_added_column_names_its_neighbour() -> None:
    a, b, c = (Column(name, ColumnType(TypeKind.INT)) for name in "abc")
    events = difference(TableSchema(T, (a, c)), TableSchema(T, (a, b, c)), {})
    assert events == (AddColumnEvent(T, b, ColumnPosition(Position.AFTER, "a")),)


def test_hidden_columns_do_not_count() -> None:
    a = Column("a", ColumnType(TypeKind.INT))
    hidden = Column("_V$_i_0", ColumnType(TypeKind.INT), hidden=True)
    assert difference(TableSchema(T, (a,)), TableSchema(T, (a, hidden)), {}) == ()
