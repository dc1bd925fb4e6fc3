"""Which shapes of tables the ledger keeps, and for how long."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.engine.shapes import outgrown_shapes, shapes_before, told_shapes
from headrace.model.events import AddColumnEvent, CreateTableEvent, DropTableEvent, OtherEvent, RenameTableEvent, SchemaChange
from headrace.model.ledger import LedgerState, TableProgress, TableShape, TableStatus
from headrace.model.offer import Offer
from headrace.model.table import Column, TableId, TableSchema
from headrace.model.tso import tso_from_ms
from headrace.model.types import ColumnType, TypeKind
from headrace.sinks.base import LedgerUpdate

A, B = TableId("shop", "a"), TableId("shop", "b")
ID = Column("id", ColumnType(TypeKind.INT), nullable=False)


def shape(table: TableId, born: int, version: int) -> TableShape:
    return TableShape(tso_from_ms(born), tso_from_ms(version), TableSchema(table, (ID,), ("id",)))


def change(table: TableId, at: int, *events: object) -> SchemaChange:
    schema = TableSchema(table, (ID,), ("id",))
    return SchemaChange(tso_from_ms(at), table, events, "…", table.database, frozenset({table}), schema=schema)  # type: ignore[arg-type]


def row(table: TableId, checkpoint: int, status: TableStatus = TableStatus.STOPPED, born: int = 1) -> TableProgress:
    return TableProgress(table, tso_from_ms(checkpoint), status=status, incarnation=tso_from_ms(born))


def state(checkpoint: int, *rows: TableProgress, shapes: tuple[TableShape, ...] = ()) -> LedgerState:
    at = tso_from_ms(checkpoint)
    return LedgerUpdate(checkpoint=at, tables=rows, shapes=shapes).applied_to(LedgerState("p"))


def test_a_change_tells_the_shape_of_the_life_in_which_it_comes() -> None:
    create, alter = change(A, 5, CreateTableEvent(A, TableSchema(A, (ID,)))), change(A, 8, AddColumnEvent(A, ID))
    rename = change(B, 9, RenameTableEvent(A, B))
    known = state(4, row(A, 8, born=5), row(B, 9, born=9))
    assert told_shapes(known, [create, alter, rename]) == (shape(A, 5, 5), shape(A, 5, 8), shape(B, 9, 9))


@pytest.mark.parametrize("event", [RenameTableEvent(B, A), CreateTableEvent(A, TableSchema(A, (ID,)))])
@pytest.mark.parametrize("status", [TableStatus.STOPPED, TableStatus.HELD, TableStatus.INCOMPLETE])
def test_a_table_that_waits_for_its_name_is_none_of_the_names_former_table(event: object, status: TableStatus) -> None:
    known = state(9, row(A, 8, status, born=5), shapes=(shape(A, 5, 5),))
    waiting = told_shapes(known, [change(A, 9, event)])
    assert waiting == (shape(A, 9, 9),)
    later = LedgerUpdate(checkpoint=tso_from_ms(12), tables=(row(A, 12, born=9),), shapes=waiting).applied_to(known)
    assert outgrown_shapes(later) == (shape(A, 5, 5).key,)


def test_a_shape_that_an_older_version_took_for_one_of_the_former_table_stays() -> None:
    known = state(12, row(A, 12, born=9), shapes=(shape(A, 5, 5), shape(A, 5, 9)))
    assert outgrown_shapes(known) == (shape(A, 5, 5).key,)


def test_a_table_that_is_found_later_keeps_its_beginning() -> None:
    found = replace(change(A, 9, CreateTableEvent(A, TableSchema(A, (ID,)))), statement="")
    assert told_shapes(state(8, row(A, 8, born=5)), [found]) == (shape(A, 5, 9),)


def test_a_change_of_a_table_that_does_not_exist_yet_begins_a_life() -> None:
    gone = row(A, 6, TableStatus.GONE)
    assert told_shapes(state(4), [change(A, 5)]) == (shape(A, 5, 5),)
    assert told_shapes(state(4, gone), [change(A, 8)]) == (shape(A, 8, 8),)


def test_a_table_that_ends_with_the_change_has_no_shape() -> None:
    assert told_shapes(state(4, row(A, 8, TableStatus.GONE)), [change(A, 8)]) == ()
    assert told_shapes(state(4), [replace(change(A, 8), schema=None), change(TableId("shop"), 8)]) == ()


def test_the_shape_of_a_table_has_the_default_collation_of_the_table_and_not_of_its_database() -> None:
    (kept,) = told_shapes(state(4), [replace(change(A, 5), collation="binary", database_collation="gbk_bin")])
    assert kept == replace(shape(A, 5, 5), collation="binary")


def test_a_shape_that_the_ledger_has_is_not_written_again() -> None:
    known = state(4, row(A, 8, born=5), shapes=(shape(A, 5, 8),))
    assert told_shapes(known, [change(A, 8)]) == ()
    other = replace(change(A, 8), schema=TableSchema(A, (ID,)))
    assert told_shapes(known, [other]) == (replace(shape(A, 5, 8), schema=TableSchema(A, (ID,))),)


def test_the_shapes_of_a_life_that_is_over_go_when_the_tombstone_is_passed() -> None:
    shapes, later = (shape(A, 1, 1), shape(A, 1, 4)), shape(A, 7, 7)
    gone = row(A, 6, TableStatus.GONE)
    assert outgrown_shapes(state(6, gone, shapes=(*shapes, later))) == (shapes[0].key,)
    assert outgrown_shapes(state(7, gone, shapes=(*shapes, later))) == tuple(s.key for s in shapes)
    again = row(A, 7, born=7)
    assert outgrown_shapes(state(6, again, shapes=(*shapes, later))) == (shapes[0].key,)
    assert outgrown_shapes(state(8, again, shapes=(*shapes, later))) == tuple(s.key for s in shapes)


def test_a_table_that_is_gone_and_still_waits_for_a_decision_keeps_its_shape() -> None:
    waits = row(A, 6, TableStatus.GONE_WAITING)
    assert outgrown_shapes(state(9, waits, shapes=(shape(A, 1, 1),))) == ()


def test_a_shape_from_within_the_millisecond_of_the_checkpoint_does_not_replace_the_one_before() -> None:
    """Where only the millisecond of commit timestamps is known, its rows are taken again."""
    within = TableShape(tso_from_ms(1), tso_from_ms(5) + 3, TableSchema(A, (ID,)))
    at = TableProgress(A, tso_from_ms(5) + 9, status=TableStatus.STOPPED, incarnation=tso_from_ms(1))
    assert outgrown_shapes(state(9, at, shapes=(shape(A, 1, 1), within))) == ()
    assert outgrown_shapes(state(9, row(A, 6), shapes=(shape(A, 1, 1), within))) == (shape(A, 1, 1).key,)


@given(versions=st.sets(st.integers(2, 30), min_size=1), own=st.integers(1, 31), pipeline=st.integers(1, 31), stopped=st.booleans())
def test_what_stays_is_the_shape_of_every_row_that_may_still_come(
    versions: set[int], own: int, pipeline: int, stopped: bool
) -> None:
    shapes = tuple(shape(A, 1, version) for version in versions)
    before = state(pipeline, row(A, own, TableStatus.STOPPED if stopped else TableStatus.RUNNING), shapes=shapes)
    after = LedgerUpdate(forget_shapes=outgrown_shapes(before)).applied_to(before)
    reached = own if stopped else max(own, pipeline)
    for commit in range(reached, 33):
        needed = max((v for v in versions if v < commit), default=None)
        assert needed is None or shape(A, 1, needed) in after.shapes.values()
    assert len(after.shapes) <= 1 + sum(version >= reached for version in versions)
    assert outgrown_shapes(after) == ()


@pytest.mark.parametrize("statement", ["DROP VIEW IF EXISTS a", "CREATE VIEW IF NOT EXISTS a AS SELECT 1"])
@pytest.mark.parametrize("tells", [True, False])
def test_the_shape_at_the_start_is_not_over_with_a_view(statement: str, tells: bool) -> None:
    """A storage source gives a view's columns as the shape of a change, a stream none."""
    view = replace(change(A, 6, OtherEvent(A)), statement=statement, schema=TableSchema(A, ()) if tells else None)
    known = LedgerState("p", start=tso_from_ms(9))
    found = shapes_before(known, Offer(0, 0, (change(A, 5, CreateTableEvent(A, TableSchema(A, (ID,)))), view)), lambda _: True)
    assert [(made.commit_ts, made.schema) for made in found] == [(tso_from_ms(5), shape(A, 5, 5).schema)]
    assert shapes_before(known, Offer(0, 0, (view,)), lambda _: True) == []
    dropped = replace(change(A, 7, DropTableEvent(A)), statement="DROP TABLE a", schema=None)
    offer = Offer(0, 0, (change(A, 5, CreateTableEvent(A, TableSchema(A, (ID,)))), dropped))
    assert shapes_before(known, offer, lambda _: True) == []
