"""Where tables stand behind a schema change: what they lack goes with their rows."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headrace.engine.table_places import Passed, after, before
from headrace.model.events import (
    AddColumnEvent,
    DropDatabaseEvent,
    DropTableEvent,
    ExchangePartitionEvent,
    RenameTableEvent,
    SchemaChange,
    SchemaChangeEvent,
    TruncateTableEvent,
)
from headrace.model.ledger import LedgerState, TableProgress, TableStatus
from headrace.model.table import Column, TableId
from headrace.model.types import ColumnType, TypeKind

A, B, C = (TableId("shop", name) for name in "abc")
LACKS = "rows came late"


@pytest.mark.parametrize(
    ("events", "lacking"),
    [
        ((RenameTableEvent(A, C),), {C}),
        ((RenameTableEvent(A, C), RenameTableEvent(B, A), RenameTableEvent(C, B)), {B}),
        ((TruncateTableEvent(A),), set()),
        ((TruncateTableEvent(B),), {A}),
        ((DropTableEvent(A),), set()),
        ((ExchangePartitionEvent(B, A, "p0", "TRUE"),), {A, B}),
        ((DropDatabaseEvent("shop", frozenset({A, B})),), set()),
        ((DropDatabaseEvent("shop", frozenset({B}), frozenset({A})),), set()),
    ],
    ids=["rename", "swap", "truncate", "truncate another", "drop", "exchange", "drop database", "and leave it there"],
)
def test_what_a_table_lacks_goes_with_its_rows(events: tuple[SchemaChangeEvent, ...], lacking: set[TableId]) -> None:
    state = replace(
        LedgerState("p"), tables={A: TableProgress(A, 5, incarnation=1, lacks=LACKS), B: TableProgress(B, 5, incarnation=1)}
    )
    named = {name for event in events for name in vars(event).values() if isinstance(name, TableId)}
    statement = "DROP TABLE `a`" if isinstance(events[0], DropTableEvent) else ""
    change = SchemaChange(9, A, events, statement, "shop", frozenset(named))
    found = state.with_rows(after(state, change)).tables
    assert {table_id for table_id, own in found.items() if own.lacks} == lacking


def test_what_a_table_was_loaded_as_of_goes_with_its_rows() -> None:
    """Where rows of two tables are mixed, what both were loaded as of."""
    rows = {A: TableProgress(A, 5, incarnation=1, loaded=4), B: TableProgress(B, 5, incarnation=1, loaded=3)}
    for events, expected in (
        ((RenameTableEvent(A, C), RenameTableEvent(B, A), RenameTableEvent(C, B)), {A: 3, B: 4}),
        ((ExchangePartitionEvent(A, B, "p0", "TRUE"),), {A: 3, B: 3}),
    ):
        state = replace(LedgerState("p"), tables=rows)
        found = after(state, SchemaChange(9, A, events, "", "shop", frozenset({A, B, C} if len(events) > 1 else {A, B})))
        assert {own.table_id: own.loaded for own in found if not own.status.is_gone} == expected


def lacking(table_id: TableId, checkpoint: int, incarnation: int = 1) -> LedgerState:
    row = TableProgress(table_id, checkpoint, status=TableStatus.INCOMPLETE, reason="records are gone", incarnation=incarnation)
    return LedgerState("p", tables={table_id: row})


def test_a_table_that_lacks_rows_keeps_its_place_before_and_behind_a_change_that_does_not_end_it() -> None:
    state = lacking(A, 5)
    added = AddColumnEvent(A, Column("n", ColumnType(TypeKind.INT)))
    change = SchemaChange(9, A, (added,), "ALTER TABLE `a` ADD COLUMN `n` INT", "shop", frozenset({A}))
    assert before(state, change) == after(state, change) == (state.tables[A],)


@pytest.mark.parametrize(("up_to", "status"), [(0, TableStatus.CATCHING_UP), (8, TableStatus.INCOMPLETE)])
def test_a_truncate_completes_no_table_that_was_renamed_while_changes_of_its_shape_may_have_been_missing(
    up_to: int, status: TableStatus
) -> None:
    """Its row stands at the RENAME, which is behind what was passed over."""
    state = lacking(A, 5)
    state = state.with_rows(after(state, SchemaChange(9, A, (RenameTableEvent(A, B),), "", "shop", frozenset({A, B}))))
    truncate = SchemaChange(10, B, (TruncateTableEvent(B),), "", "shop", frozenset({B}))
    for table_id in (A, B):  # in the same cut, and in a later one
        (row,) = after(state, truncate, (), Passed.of(up_to, {table_id: 9}))
        assert row.status is status
