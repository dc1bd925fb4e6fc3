"""Which tables are followed though the filter leaves them out."""

from __future__ import annotations

from headrace.engine.excluded_tables import followed
from headrace.model.events import RenameTableEvent, SchemaChange
from headrace.model.ledger import LedgerState, TableProgress, TableStatus
from headrace.model.table import TableId

A, B, C, D = (TableId("out", "a"), TableId("in", "b"), TableId("out", "c"), TableId("out", "d"))


def rename(ts: int, old: TableId, new: TableId) -> SchemaChange:
    statement = f"RENAME TABLE {old} TO {new}"
    return SchemaChange(ts, new, (RenameTableEvent(old, new),), statement, old.database, frozenset({old, new}))


def followed_up_to(state: LedgerState, *changes: SchemaChange) -> dict[TableId, int]:
    until = followed(state, changes, lambda t: t.database == "in").until
    return {t: ts for t, ts in until.items() if t.table}


def test_what_goes_into_the_filter_by_another_name_is_followed_to_each_rename() -> None:
    assert followed_up_to(LedgerState("p"), rename(200, C, A), rename(300, A, B)) == {A: 300, C: 200}


def test_what_goes_out_and_stays_out_is_followed_no_further() -> None:
    """Up to there it is: another table may have had the name before."""
    assert followed_up_to(LedgerState("p"), rename(200, B, A), rename(300, A, C)) == {A: 200}


def test_what_had_the_name_before_is_followed_to_its_next_name() -> None:
    assert followed_up_to(LedgerState("p"), rename(200, A, C), rename(300, B, A)) == {A: 300, C: 200}


def test_what_had_the_name_before_the_start_refuses_the_rename() -> None:
    changes = (rename(100, D, A), rename(200, A, C), rename(300, B, A))
    found = followed(LedgerState("p", start=150), changes, lambda t: t.database == "in")
    assert ({t: ts for t, ts in found.until.items() if t.table}, set(found.refused)) == ({}, {changes[2].identity})


def test_a_swap_of_names_outside_by_one_inside_is_followed_on_both_sides() -> None:
    """Also when a crash left the old one of them without a table in the middle of an earlier swap."""
    state = LedgerState("p", checkpoint=150, tables={C: TableProgress(C, 150, status=TableStatus.GONE)})
    assert followed_up_to(state, rename(200, A, B), rename(200, C, A), rename(200, B, C)) == {A: 200, C: 200}
