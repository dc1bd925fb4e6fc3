"""Planning a cut costs time in proportion to what there is to plan: a table with a long history holds up no other one.

What is measured is the time of twice as many against that of once as many, in time of the processor.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

import pytest

from headrace.engine.barriers import PlanRules
from headrace.engine.parts import Spreading, plan_parts
from headrace.engine.plan import plan_cut
from headrace.model.cut import Cut
from headrace.model.events import RenameColumnEvent, SchemaChange, TruncateTableEvent
from headrace.model.ledger import LedgerState, TableProgress
from headrace.model.offer import Offer
from headrace.model.split import Split
from headrace.model.table import Column, TableId, TableSchema
from headrace.model.types import ColumnType, TypeKind
from headrace.sinks.base import ChangeDemand

pytestmark = pytest.mark.long

T = TableId("shop", "t")
RULES = PlanRules(includes=lambda _: True)
FIRST = 1_000
REPEATED = 300
SPREADING = Spreading(1, 1 << 20, lambda *_: ChangeDemand.NET)


def shape(column: str) -> TableSchema:
    key = Column("id", ColumnType(TypeKind.INT), nullable=False, primary_key=True)
    return TableSchema(T, (key, Column(column, ColumnType(TypeKind.INT))), ("id",))


def split(version: int, schema: TableSchema, number: int = 0) -> Split:
    return Split(f"{version}/{number}", T, version, number, 100, schema)


def renaming(number: int) -> SchemaChange:
    old, new, after = f"c{number}", f"c{number + 1}", shape(f"c{number + 1}")
    statement = f"ALTER TABLE t RENAME COLUMN {old} TO {new}"
    at = FIRST + 10 * number
    return SchemaChange(at, T, (RenameColumnEvent(T, old, new),), statement, T.database, frozenset({T}), schema=after)


def emptying(number: int) -> SchemaChange:
    at = FIRST + 10 * number
    return SchemaChange(at, T, (TruncateTableEvent(T),), "TRUNCATE TABLE t", T.database, frozenset({T}), schema=shape("c0"))


def rows_in_each_version(count: int) -> Offer:
    changes = tuple(renaming(number) for number in range(count))
    return offer(changes, (split(c.commit_ts, c.schema) for c in changes if c.schema is not None))


def rows_between_truncations(count: int) -> Offer:
    changes = tuple(emptying(number) for number in range(count))
    return offer(changes, (split(c.commit_ts, shape("c0")) for c in changes))


def offer(changes: Iterable[SchemaChange], splits: Iterable[Split]) -> Offer:
    return Offer(1 << 60, 1 << 60, tuple(changes), tuple(splits))


HISTORIES: dict[str, Callable[[int], Offer]] = {
    "rows in each version": rows_in_each_version,
    "rows between truncations": rows_between_truncations,
}


def planned(history: Offer) -> Cut:
    state = LedgerState("p", tables={T: TableProgress(T, 100)}, checkpoint=100)
    return plan_cut(state, history, RULES)


def seconds(history: Offer) -> float:
    taken = []
    for _ in range(2):
        began = time.process_time()
        for cut_round in planned(history).rounds:
            plan_parts(cut_round.splits, cut_round.segments, SPREADING)
        taken.append(time.process_time() - began)
    return min(taken)


@pytest.mark.parametrize("history", HISTORIES)
def test_twice_as_many_schema_changes_take_about_twice_as_long(history: str) -> None:
    make = HISTORIES[history]
    once, twice = (seconds(make(count)) for count in (REPEATED, 2 * REPEATED))
    assert twice < 3 * once + 0.1, f"{once:.3f} s for {REPEATED}, {twice:.3f} s for twice as many"


def test_rows_of_many_versions_may_lie_behind_all_schema_changes() -> None:
    def taken(count: int) -> float:
        cut = planned(rows_in_each_version(count))
        every, last = [s for r in cut.rounds for s in r.splits], cut.rounds[-1].segments
        began = time.process_time()
        (part,) = plan_parts(every, last, SPREADING)
        assert [recast.names[1] for recast in part.segment.recasts.values()] == [
            (f"c{number}", f"c{count}") for number in range(1, count)
        ]
        return time.process_time() - began

    assert taken(1_600) < 5


def test_rows_of_one_version_may_belong_to_every_round() -> None:
    def taken(count: int) -> float:
        rounds = planned(rows_in_each_version(count)).rounds
        (oldest,) = rounds[1].splits
        began = time.process_time()
        for cut_round in rounds[2:]:
            plan_parts([oldest], cut_round.segments, SPREADING)
        return time.process_time() - began

    once, twice = (min(taken(count) for _ in range(2)) for count in (1_000, 2_000))
    assert twice < 3 * once + 0.05, f"{once:.3f} s for 1,000, {twice:.3f} s for twice as many"
