"""Where tables stand behind a schema change: what they lack goes with their rows."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headrace.engine.table_places import after
from headrace.model.events import (
    DropDatabaseEvent,
    DropTableEvent,
    ExchangePartitionEvent,
    RenameTableEvent,
    SchemaChange,
    SchemaChangeEvent,
    TruncateTableEvent,
)
from headrace.model.ledger import LedgerState, TableProgress
from headrace.model.table import TableId

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
