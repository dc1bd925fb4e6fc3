"""What the task that commits a cut writes of its tables."""

from __future__ import annotations

from headrace.model.ledger import TableProgress, TableStatus
from headrace.model.outcome import Problem
from headrace.model.table import TableId
from headrace.sinks.cut_commit import CutCommit

ORDERS, ITEMS = TableId("shop", "orders"), TableId("shop", "items")
ARCHIVE = TableId("archive", "orders")
OWN, ARCHIVED = TableProgress(ORDERS, 20), TableProgress(ORDERS, 20, target=ARCHIVE)


def test_a_table_without_key_moves_in_each_of_its_targets() -> None:
    commit = CutCommit(20, {ORDERS: 10, ITEMS: 10})
    assert commit.update([], reached=(OWN, ARCHIVED)).tables == (OWN, ARCHIVED)


def test_a_table_that_stops_moves_in_none_of_its_targets() -> None:
    commit = CutCommit(20, {ORDERS: 10, ITEMS: 10}, going_on=(TableProgress(ITEMS, 20),))
    update = commit.update([Problem(ORDERS, "no.")], reached=(OWN, ARCHIVED))
    stopped = TableProgress(ORDERS, 10, status=TableStatus.STOPPED, reason=Problem(ORDERS, "no.").sentence())
    assert update.tables == (TableProgress(ITEMS, 20), stopped)
