"""Whose the rows of a late split are by now: its name is followed through the schema changes that were applied since."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from headrace.engine.bearers import bearers, missing_of, of_gone_tables, with_missing
from headrace.model.bearers import Bearers
from headrace.model.cut import CutOutcome
from headrace.model.events import (
    DropDatabaseEvent,
    DropTableEvent,
    ExchangePartitionEvent,
    RenameTableEvent,
    SchemaChange,
    SchemaChangeEvent,
    TruncateTableEvent,
)
from headrace.model.ledger import JournalEntry, JournalState, LedgerState, TableProgress, TableStatus
from headrace.model.offer import Offer
from headrace.model.outcome import Notice, SplitReport
from headrace.model.split import Split
from headrace.model.table import TableId, TableSchema
from headrace.model.tso import MAX_TSO
from headrace.sinks.base import LedgerUpdate
from headrace.sinks.cut_commit import CutCommit

A, B, C = (TableId("shop", name) for name in "abc")


@dataclass(frozen=True)
class LateSplit(Split):
    @property
    def is_late(self) -> bool:
        return True


def split(table_id: TableId, version: int = 5) -> Split:
    return LateSplit("late", table_id, version, 0, 10, TableSchema(table_id, ()))


def change(commit_ts: int, *events: SchemaChangeEvent) -> SchemaChange:
    named = {name for event in events for name in vars(event).values() if isinstance(name, TableId)}
    return SchemaChange(commit_ts, min(named, default=TableId("shop")), events, f"changed at {commit_ts}", "shop", frozenset(named))


def state(changes: tuple[SchemaChange, ...], *gone: TableId, how: JournalState = JournalState.DONE) -> LedgerState:
    tables = {t: TableProgress(t, 90, status=TableStatus.GONE if t in gone else TableStatus.RUNNING) for t in (A, B, C)}
    journal = {c.identity: JournalEntry(c.identity, c.commit_ts, tuple(sorted(c.changes)), c.statement, how) for c in changes}
    return replace(LedgerState("p"), checkpoint=90, tables=tables, journal=journal)


def found(name: TableId, *changes: SchemaChange, gone: tuple[TableId, ...] = (), version: int = 5) -> Bearers | None:
    offer = Offer(100, 100, changes, (split(name, version),))
    return bearers(state(changes, *gone), offer).get("late")


@pytest.mark.parametrize(
    ("events", "of_a", "of_b"),
    [
        ((RenameTableEvent(A, C),), {C}, None),
        ((RenameTableEvent(A, C), RenameTableEvent(B, A), RenameTableEvent(C, B)), {B}, {A}),
        ((TruncateTableEvent(A),), set(), None),
        ((DropTableEvent(A),), set(), None),
        ((ExchangePartitionEvent(A, B, "p0", "TRUE"),), {A, B}, {A}),
        ((DropDatabaseEvent("SHOP"),), set(), set()),
        ((DropDatabaseEvent("other"),), None, None),
    ],
    ids=["rename", "swap", "truncate", "drop", "exchange", "drop database", "drop another database"],
)
def test_rows_of_before_a_change_are_those_of_the_table_that_has_them_behind_it(
    events: tuple[SchemaChangeEvent, ...], of_a: set[TableId] | None, of_b: set[TableId] | None
) -> None:
    for name, expected in ((A, of_a), (B, of_b)):
        known = found(name, change(20, *events))
        assert (None if known is None else known.of(7, 20)) == expected
        assert known is None or known.of(21, 30) == {name}


def test_each_life_of_a_name_has_its_own_bearers() -> None:
    known = found(
        A, change(20, RenameTableEvent(A, B)), change(30, RenameTableEvent(C, A)), change(40, DropTableEvent(A)), gone=(A, C)
    )
    assert known is not None
    assert [known.of(ts, ts) for ts in (15, 35, 50)] == [{B}, set(), set()]
    assert known.of(15, 35) == {B}


def test_rows_that_their_table_was_loaded_with_are_missed_by_nobody() -> None:
    changes = (change(20, RenameTableEvent(A, C), RenameTableEvent(B, A), RenameTableEvent(C, B)),)
    ledger = state(changes)
    ledger = replace(
        ledger, tables={**ledger.tables, B: replace(ledger.tables[B], loaded=12), A: replace(ledger.tables[A], loaded=30)}
    )
    known = bearers(ledger, Offer(100, 100, changes, (split(A),)))["late"]
    assert [known.of(ts, ts) for ts in (7, 12, 13, 20, 21, 30, 31)] == [set(), set(), {B}, {B}, set(), set(), {A}]


def test_what_was_applied_before_the_split_was_begun_does_not_concern_it() -> None:
    assert found(A, change(20, RenameTableEvent(B, A)), version=20) is None


def test_what_is_not_applied_yet_gives_rows_to_nobody() -> None:
    assert bearers(state(()), Offer(100, 100, (change(95, RenameTableEvent(A, B)),), (split(A),))) == {}


def test_a_change_that_was_skipped_empties_nothing() -> None:
    changes = (change(20, TruncateTableEvent(A)),)
    known = bearers(state(changes, how=JournalState.SKIPPED), Offer(100, 100, changes, (split(A),)))
    assert known["late"].of(7, 20) == {A}


@pytest.mark.parametrize(
    ("is_gone", "changed", "takes_part", "read_for"),
    [(True, (), True, [B]), (True, (A,), True, []), (True, (), False, []), (False, (), True, [])],
    ids=["gone", "something comes to the name", "its heir is stopped", "there"],
)
def test_a_late_split_of_a_table_that_is_gone_is_read_for_one_that_has_its_rows(
    is_gone: bool, changed: tuple[TableId, ...], takes_part: bool, read_for: list[TableId]
) -> None:
    known = {"late": Bearers(((20, frozenset({B})), (MAX_TSO, frozenset())), until=20)}
    ledger = state((), *([A] if is_gone else []))
    read = of_gone_tables(ledger, [split(A)], known, changed, lambda _: takes_part)
    assert [(s.table_id, s.of_gone, s.ends) for s in read] == [(table_id, True, 20) for table_id in read_for]


def test_a_drop_that_was_skipped_leaves_the_rows_in_the_target() -> None:
    changes = (change(20, DropTableEvent(A)),)
    known = bearers(state(changes, A, how=JournalState.SKIPPED), Offer(100, 100, changes, (split(A),)))
    assert known["late"].of(7, 20) == {A}


@pytest.mark.parametrize(
    ("events", "lacking"),
    [((RenameTableEvent(A, C),), [C]), ((TruncateTableEvent(A),), []), ((), [A])],
    ids=["rename", "truncate", "none"],
)
def test_rows_are_missing_of_the_tables_that_have_the_others_as_the_ledger_is_when_their_split_counts_as_read(
    events: tuple[SchemaChangeEvent, ...], lacking: list[TableId]
) -> None:
    report = SplitReport("late", A, notices=(Notice("a row came late", A, missing=(7, 7)), Notice("something else", A)))
    changes = (change(20, *events),)
    ledger, offer = state(changes), Offer(100, 100, changes, (split(A),))
    rows, told = missing_of(ledger, offer, [report])
    assert rows == tuple(replace(ledger.tables[t], lacks="a row came late") for t in lacking)
    assert [(notice.table_id, notice.message) for notice in told] == [(t, "a row came late") for t in lacking]


def test_a_step_by_which_splits_count_as_read_notes_what_is_missing_once_a_table() -> None:
    report = SplitReport("late", A, notices=(Notice("a row came late", A, missing=(7, 7)),))
    ledger = state(())
    moved = replace(ledger.tables[A], checkpoint=95)
    update = with_missing(LedgerUpdate(tables=(moved,)), ledger, Offer(100, 100, (), (split(A),)), [report])
    assert update.tables == (replace(moved, lacks="a row came late"),)


def test_the_task_that_commits_a_cut_notes_what_is_missing_at_the_table_that_has_the_rows() -> None:
    """Also one that takes no part in the cut, which stays as it stands otherwise."""
    report = SplitReport("late", A, rows=1, passed=1, notices=(Notice("a row came late", A, missing=(7, 7)),))
    rows = {A: TableProgress(A, 90), B: TableProgress(B, 40, status=TableStatus.STOPPED, reason="it is damaged")}
    known = {"late": Bearers(((20, frozenset({B})), (MAX_TSO, frozenset({A}))))}
    commit = CutCommit(100, {A: 90}, rows=rows, progress=CutOutcome(100), bearers=known, reports=(report,))
    assert commit.update(()).tables == (replace(rows[B], lacks="a row came late"),)
