"""Planning a cut of many tables costs work in proportion to tables and schema changes, also where a change concerns every table.

What is counted are calls of functions: they are the same on every machine, however busy it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

import pytest

from counting import calls
from headrace.engine.barriers import PlanRules
from headrace.engine.plan import plan_cut
from headrace.model.cut import Cut
from headrace.model.events import CreateTableEvent, DropTableEvent, OtherEvent, SchemaChange, unread_statement
from headrace.model.ledger import LedgerState, TableProgress, TableStatus, in_order
from headrace.model.offer import Offer
from headrace.model.outcome import Problem
from headrace.model.place import PlaceInFile
from headrace.model.split import Split
from headrace.model.table import Column, TableId, TableSchema
from headrace.model.types import ColumnType, TypeKind

pytestmark = pytest.mark.long

COUNT = 40
BEGIN, LATER = 100, 10_000
DATABASE = TableId("shop")
COLUMNS = (Column("id", ColumnType(TypeKind.INT), nullable=False, primary_key=True),)


def table(number: int) -> TableId:
    return TableId("shop", f"t{number}")


def shape(table_id: TableId) -> TableSchema:
    return TableSchema(table_id, COLUMNS, ("id",))


def create(at: int, table_id: TableId) -> SchemaChange:
    made, statement = shape(table_id), f"CREATE TABLE `{table_id.table}` (id INT PRIMARY KEY)"
    event = CreateTableEvent(table_id, made)
    return SchemaChange(at, table_id, (event,), statement, "shop", frozenset({table_id}), frozenset({DATABASE}), made)


def drop(at: int, table_id: TableId) -> SchemaChange:
    statement = f"DROP TABLE `{table_id.table}`"
    return SchemaChange(at, table_id, (DropTableEvent(table_id),), statement, "shop", frozenset({table_id}))


def unknown(at: int, table_id: TableId, every: frozenset[TableId]) -> SchemaChange:
    return SchemaChange(at, table_id, (OtherEvent(table_id),), "FROBNICATE", "shop", every, schema=shape(table_id))


def unread(at: int, table_id: TableId, every: frozenset[TableId]) -> SchemaChange:
    file = f"{table_id.table}/{at}"
    problem = Problem(table_id, "It is no JSON.", PlaceInFile(file))
    return SchemaChange(at, table_id, (), unread_statement(file), "shop", every, origin=PlaceInFile(file), unread=problem)


def split(table_id: TableId) -> Split:
    return Split(f"{table_id}", table_id, BEGIN, 0, 100, shape(table_id))


def offer(changes: Iterable[SchemaChange], splits: Iterable[Split] = ()) -> Offer:
    told = sorted(changes, key=lambda change: change.commit_ts)
    read = tuple(change for change in told if change.unread is None)
    return Offer(1 << 60, 1 << 60, read, tuple(splits), unread=tuple(change for change in told if change.unread is not None))


def everything_held(make: Callable[[int, TableId, frozenset[TableId]], SchemaChange], count: int, step: int) -> Offer:
    tables = [table(number) for number in range(count)]
    every = frozenset(tables)
    holding = [make(LATER + step * number, table_id, every) for number, table_id in enumerate(tables)]
    return offer([*(create(BEGIN + number, t) for number, t in enumerate(tables)), *holding], map(split, tables))


def spelled(number: int) -> TableId:
    """A name that differs from others in case only."""
    return TableId("shop", "".join(c.upper() if number >> place & 1 else c for place, c in enumerate("abcdefghijkl")))


def cases(count: int) -> Offer:
    changes = []
    for number in range(count):
        changes += [create(BEGIN + 2 * number, spelled(number)), drop(BEGIN + 2 * number + 1, spelled(number))]
    return offer(changes)


HISTORIES: dict[str, Callable[[int], Offer]] = {
    "files that cannot be read, of one version": lambda count: everything_held(unread, count, 0),
    "files that cannot be read, of many versions": lambda count: everything_held(unread, count, 1),
    "statements that nobody understands": lambda count: everything_held(unknown, count, 1),
    "names that differ in case only": cases,
}
STATES: dict[str, Callable[[int], LedgerState]] = {
    "at first": lambda count: LedgerState("p"),
    "with all tables running": lambda count: ledger(count, TableStatus.RUNNING, 9_000),
    "with all tables stopped": lambda count: ledger(count, TableStatus.STOPPED, LATER),
    "with other tables that are gone": lambda count: ledger(count, TableStatus.GONE, 50, of="u"),
}
FILTERS: dict[str, Callable[[TableId], bool]] = {
    "of all tables": lambda _: True,
    "of all tables but one": lambda table_id: table_id != table(3),
    "of one table": lambda table_id: table_id == table(3),
}

SCENES = [*((state, "of all tables") for state in STATES), *(("with all tables running", includes) for includes in [*FILTERS][1:])]


def ledger(count: int, status: TableStatus, reached: int, of: str = "t") -> LedgerState:
    tables = [TableId("shop", f"{of}{number}") for number in range(count)]
    rows = {t: TableProgress(t, reached, status=status, incarnation=BEGIN + n, after=True) for n, t in enumerate(tables)}
    return LedgerState("p", tables=rows, checkpoint=9_000)


def planned(history: Offer, state: LedgerState, rules: PlanRules) -> Cut:
    return plan_cut(state, history, rules)


@pytest.mark.parametrize(("state", "includes"), SCENES)
@pytest.mark.parametrize("history", HISTORIES)
def test_twice_as_many_tables_and_changes_of_all_of_them_take_about_twice_the_work(history: str, state: str, includes: str) -> None:
    def work(count: int) -> int:
        made, known, rules = HISTORIES[history](count), STATES[state](count), PlanRules(includes=FILTERS[includes])
        rules = replace(rules, retried=frozenset(t for t, own in known.tables.items() if own.status.is_stopped))
        planned(made, known, rules)  # what is read of statements is kept
        return calls(lambda: planned(made, replace(known), rules))

    once, twice = work(COUNT), work(2 * COUNT)
    assert twice < 2.4 * once, f"{once} calls for {COUNT}, {twice} for twice as many"


def test_what_the_journal_keeps_of_files_that_cannot_be_read_grows_with_the_tables_alone() -> None:
    def kept(files: int) -> tuple[int, int]:
        every = frozenset(table(number) for number in range(100))
        history = offer(unread(LATER + number, table(number % 100), every) for number in range(files))
        waiting = planned(history, LedgerState("p"), PlanRules(includes=FILTERS["of all tables"])).waiting
        return sum(len(change.changes) for change in waiting), len({id(in_order(change.changes)) for change in waiting})

    assert kept(1_000) == kept(200) == (100 * 100, 1)


def test_of_files_that_cannot_be_read_those_that_may_concern_few_tables_are_all_told() -> None:
    history = offer(unread(LATER + number, table(number), frozenset({table(number)})) for number in range(300))
    assert len(planned(history, LedgerState("p"), PlanRules(includes=FILTERS["of all tables"])).waiting) == 300
