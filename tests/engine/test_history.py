"""Which applied changes leave a hole, if the source does not have them any more: what a ledger that keeps shapes says of them."""

from __future__ import annotations

import pytest

from headrace.engine.history import History
from headrace.model.events import OtherEvent, SchemaChange
from headrace.model.ledger import JournalEntry, JournalState, LedgerState, TableProgress, TableShape
from headrace.model.table import Column, TableId, TableSchema
from headrace.model.types import ColumnType, TypeKind

A, B = TableId("shop", "a"), TableId("shop", "b")
ID = Column("id", ColumnType(TypeKind.INT), nullable=False, primary_key=True)


def ledger(*applied: tuple[int, TableId, str, tuple[TableId, ...]], kept: int = 100) -> LedgerState:
    """A ledger with two tables since 100, these applied changes, and the shape of ``a`` that it has kept."""
    shape = TableShape(100, kept, TableSchema(A, (ID,), ("id",)))
    entries = [JournalEntry(f"{ts}/{own.key}/x", ts, tables, text, JournalState.DONE) for ts, own, text, tables in applied]
    return LedgerState(
        "p",
        checkpoint=900,
        tables={t: TableProgress(t, 100, incarnation=100) for t in (A, B)},
        journal={entry.identity: entry for entry in entries},
        shapes={shape.key: shape},
    )


CREATED = (100, A, "CREATE TABLE `a` (`id` INT PRIMARY KEY)", (A,))
ALTER = SchemaChange(500, A, (OtherEvent(A),), "ALTER TABLE `a` TRUNCATE PARTITION `p`", "shop", frozenset({A}))


@pytest.mark.parametrize(
    "change",
    [
        (300, B, "ALTER TABLE `b` EXCHANGE PARTITION `p` WITH TABLE `a`", (A, B)),
        (300, B, "FROBNICATE `b`", (A, B)),
    ],
)
def test_another_tables_statement_leaves_the_columns_as_they_were_kept(
    change: tuple[int, TableId, str, tuple[TableId, ...]],
) -> None:
    history = History(ledger(CREATED, change), [], forgets=True)
    assert (history.hole(ALTER), history.hole_in_shape(A, 500)) == (None, None)


@pytest.mark.parametrize(
    "change",
    [
        (300, A, "ALTER TABLE `a` ADD COLUMN `n` INT", (A,)),
        (300, B, "RENAME TABLE `a` TO `b`, `b` TO `a`", (A, B)),
    ],
)
def test_a_change_behind_the_kept_shape_leaves_a_hole_that_no_schema_file_fills(
    change: tuple[int, TableId, str, tuple[TableId, ...]],
) -> None:
    history = History(ledger(CREATED, change), [], forgets=True)
    (hole, of_shape) = history.hole(ALTER), history.hole_in_shape(A, 500)
    assert hole is not None
    assert of_shape is not None
    assert "since 300 are not known any more" in hole.message
    assert "schema file" not in hole.sentence() + of_shape.sentence()
    assert History(ledger(CREATED, change, kept=300), [], forgets=True).hole(ALTER) is None
