"""Planning a cut: rules 1, 2, 11, 12 and 17 of the design, without Spark, a store or a database."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headrace.engine.barriers import PlanRules
from headrace.engine.conservation import AmbiguousSplitsError
from headrace.engine.journal import is_pending
from headrace.engine.plan import plan_cut
from headrace.model.advice import SourceAdvice
from headrace.model.cut import Cut
from headrace.model.events import (
    AddColumnEvent,
    CreateDatabaseEvent,
    CreateTableEvent,
    DropDatabaseEvent,
    DropTableEvent,
    ExchangePartitionEvent,
    OtherEvent,
    RenameTableEvent,
    SchemaChange,
    TruncateTableEvent,
)
from headrace.model.ledger import Decision, JournalEntry, JournalState, LedgerState, TableProgress, TableStatus, Verdict
from headrace.model.offer import Offer
from headrace.model.outcome import Problem, Remedy
from headrace.model.policy import ChangeKind, SchemaChangePolicies
from headrace.model.precision import CommitTsPrecision
from headrace.model.split import Split
from headrace.model.table import Column, TableId, TableSchema
from headrace.model.types import ColumnType, TypeKind
from headrace.sinks.base import ChangeDemand, SinkCapabilities

DB = TableId("shop")
A, B = TableId("shop", "a"), TableId("shop", "b")
ID = Column("id", ColumnType(TypeKind.INT), nullable=False, primary_key=True)
RULES = PlanRules(includes=lambda _: True)


def shape(table: TableId, *, key: tuple[str, ...] = ("id",)) -> TableSchema:
    return TableSchema(table, (ID,), key)


def change(ts: int, table: TableId, *events: object, statement: str = "", reads: frozenset[TableId] = frozenset()) -> SchemaChange:
    gone = any(isinstance(e, DropTableEvent | DropDatabaseEvent | CreateDatabaseEvent) for e in events)
    statement = statement or _statement(table, *events)
    changes = {table} | {e.table_id for e in events if isinstance(e, RenameTableEvent)}
    return SchemaChange(
        ts,
        table,
        tuple(events),
        statement,
        table.database,
        frozenset(changes),
        reads,
        None if gone else shape(table),  # type: ignore[arg-type]
    )


def _statement(table: TableId, *events: object) -> str:
    """A statement that does about what the events say."""
    match events:
        case (CreateDatabaseEvent(),):
            return f"CREATE DATABASE {table.database}"
        case (DropDatabaseEvent(),):
            return f"DROP DATABASE {table.database}"
        case (DropTableEvent(),):
            return f"DROP TABLE {table}"
        case (RenameTableEvent(old, new),):
            return f"RENAME TABLE {old} TO {new}"
        case (TruncateTableEvent(),):
            return f"TRUNCATE TABLE {table}"
        case _:
            return f"ALTER TABLE {table} ADD COLUMN c INT"


def create(ts: int, table: TableId, reads: frozenset[TableId] = frozenset({DB})) -> SchemaChange:
    return change(ts, table, CreateTableEvent(table, shape(table)), statement=f"CREATE TABLE {table.table} (id INT)", reads=reads)


def split(table: TableId, version: int, number: int = 1, key: tuple[str, ...] = ("id",)) -> Split:
    return Split(f"{table}/{version}/{number}", table, version, number, 100, shape(table, key=key))


def offer(watermark: int, changes: list[SchemaChange], splits: list[Split], **more: object) -> Offer:
    return Offer(watermark, watermark, tuple(changes), tuple(splits), **more)  # type: ignore[arg-type]


def levels(cut: Cut) -> list[tuple[list[int], list[tuple[TableId, int]]]]:
    return [([c.commit_ts for c in r.changes], [(s.table_id, s.version) for s in r.splits]) for r in cut.rounds]


@pytest.mark.parametrize("other", [A, B])
def test_two_splits_of_one_key_are_refused(other: TableId) -> None:
    splits = [split(A, 100), replace(split(other, 100, 2), key=split(A, 100).key)]
    with pytest.raises(AmbiguousSplitsError, match=rf"of table shop\.a and table {other}, have one key, shop\.a/100/1, "):
        plan_cut(LedgerState("p"), offer(200, [], splits), RULES)


def test_a_schema_change_at_the_watermark_waits_and_so_does_its_version() -> None:
    waiting = change(200, A, TruncateTableEvent(A))
    cut = plan_cut(LedgerState("p"), offer(200, [create(100, A), waiting], [split(A, 100), split(A, 200)]), RULES)
    assert levels(cut) == [([100], [(A, 100)])]
    later = plan_cut(LedgerState("p"), offer(201, [create(100, A), waiting], [split(A, 100), split(A, 200)]), RULES)
    assert levels(later) == [([100], [(A, 100)]), ([200], [(A, 200)])]


def test_a_change_at_the_checkpoint_runs_unless_the_journal_has_it() -> None:
    truncate = change(200, A, TruncateTableEvent(A))
    state = LedgerState("p", checkpoint=200, tables={A: TableProgress(A, 100)})
    assert levels(plan_cut(state, offer(300, [truncate], []), RULES)) == [([200], [])]
    done = JournalEntry(truncate.identity, 200, (A,), "…", JournalState.DONE)
    state = replace(state, journal={truncate.identity: done})
    assert levels(plan_cut(state, offer(300, [truncate], []), RULES)) == []


def test_a_change_older_than_its_table_is_past() -> None:
    state = LedgerState("p", checkpoint=250, tables={A: TableProgress(A, 100)})
    assert levels(plan_cut(state, offer(300, [change(200, A, TruncateTableEvent(A))], []), RULES)) == []


def test_a_table_that_took_its_name_later_does_not_tell_that_a_change_of_the_former_one_is_past() -> None:
    """A rename that was found late: its first table waits before it, and another one has taken the name that it frees."""
    rename = change(200, B, RenameTableEvent(A, B))
    held = TableProgress(A, 200, after=False, status=TableStatus.STOPPED)
    later = TableProgress(B, 350, incarnation=350)
    state = LedgerState("p", checkpoint=400, tables={A: held, B: later})
    assert is_pending(state, rename)
    assert not is_pending(replace(state, tables={A: replace(held, checkpoint=210), B: later}), rename)


def test_creating_many_tables_in_one_database_is_one_round_after_the_database() -> None:
    tables = [TableId("shop", f"t{n}") for n in range(5)]
    made = change(50, DB, CreateDatabaseEvent("shop"))
    cut = plan_cut(LedgerState("p"), offer(900, [made, *(create(100 + n, t) for n, t in enumerate(tables))], []), RULES)
    assert levels(cut) == [([50], []), ([100, 101, 102, 103, 104], [])]


def test_a_table_like_another_waits_for_the_other_and_a_later_change_of_it_waits_too() -> None:
    like = create(150, B, reads=frozenset({A}))
    cut = plan_cut(LedgerState("p"), offer(900, [create(100, A), like, change(200, A, TruncateTableEvent(A))], []), RULES)
    assert [ts for ts, _ in levels(cut)] == [[100], [150], [200]]


def test_rows_are_written_between_the_changes_of_their_table() -> None:
    changes = [create(100, A), create(110, B), change(200, A, TruncateTableEvent(A))]
    cut = plan_cut(LedgerState("p"), offer(900, changes, [split(A, 100), split(B, 110), split(A, 200)]), RULES)
    assert levels(cut) == [([100, 110], [(A, 100), (B, 110)]), ([200], [(A, 200)])]


def test_a_rename_separates_the_rows_of_both_names() -> None:
    rename = change(200, B, RenameTableEvent(A, B))
    cut = plan_cut(LedgerState("p"), offer(900, [create(100, A), rename], [split(A, 100), split(B, 200)]), RULES)
    assert levels(cut) == [([100], [(A, 100)]), ([200], [(B, 200)])]


def test_dropping_a_database_waits_for_its_tables_and_their_rebirth_waits_for_it() -> None:
    drop = change(200, DB, DropDatabaseEvent("shop"))
    again = change(210, DB, CreateDatabaseEvent("shop"))
    state = LedgerState("p", checkpoint=150, tables={A: TableProgress(A, 100), DB: TableProgress(DB, 50)})
    cut = plan_cut(state, offer(900, [drop, again, create(220, A)], [split(A, 100), split(A, 220)]), RULES)
    assert levels(cut) == [([], [(A, 100)]), ([200], []), ([210], []), ([220], [(A, 220)])]


def test_a_problem_stops_its_table_and_what_depends_on_it_and_nothing_else() -> None:
    problem = Problem(A, "broken")
    rename = change(200, TableId("shop", "c"), RenameTableEvent(A, TableId("shop", "c")))
    found = offer(900, [create(100, A), rename, create(110, B)], [split(A, 100), split(B, 110)], problems=(problem,))
    cut = plan_cut(LedgerState("p"), found, RULES)
    assert levels(cut) == [([110], [(B, 110)])]
    assert (set(cut.problems), set(cut.holds)) == ({A}, {TableId("shop", "c")})


def test_a_table_goes_up_to_the_change_that_a_stopped_table_keeps_from_running() -> None:
    problem = Problem(A, "broken")
    rename = change(200, TableId("shop", "c"), RenameTableEvent(A, TableId("shop", "c")))
    both = replace(rename, changes=rename.changes | {B})
    found = offer(900, [create(100, A), create(110, B), both], [split(B, 110), split(B, 200)], problems=(problem,))
    cut = plan_cut(LedgerState("p"), found, RULES)
    assert levels(cut) == [([110], [(B, 110)])]
    assert (cut.windows[B].hi, cut.holds[B].at) == (200, 200)


def test_what_waits_for_approval_holds_its_table_and_what_comes_after() -> None:
    truncate, add = change(200, A, TruncateTableEvent(A)), change(300, A, AddColumnEvent(A, ID))
    found = offer(900, [create(100, A), truncate, add, create(110, B)], [split(A, 100), split(A, 200), split(B, 110)])
    rules = replace(RULES, policies=SchemaChangePolicies.parse({"truncate-table": "approve"}))
    cut = plan_cut(LedgerState("p"), found, rules)
    assert levels(cut) == [([100, 110], [(A, 100), (B, 110)])]
    assert (cut.holds[A].change, cut.holds[A].problem.remedy, cut.windows[A].hi) == (truncate, Remedy.DECISION, 200)

    approved = LedgerState("p", decisions={truncate.identity: Decision(truncate.identity, Verdict.APPROVE)})
    assert not plan_cut(approved, found, rules).holds


def test_a_policy_skips_a_change_and_a_person_may_decide_otherwise() -> None:
    truncate = change(200, A, TruncateTableEvent(A))
    found = offer(900, [create(100, A), truncate], [])
    rules = replace(RULES, policies=SchemaChangePolicies.parse({"truncate-table": "skip"}))
    cut = plan_cut(LedgerState("p"), found, rules)
    assert {i: d.verdict for i, d in cut.decisions.items()} == {truncate.identity: Verdict.SKIP}
    approved = LedgerState("p", decisions={truncate.identity: Decision(truncate.identity, Verdict.APPROVE)})
    assert [d.verdict for d in plan_cut(approved, found, rules).decisions.values()] == [Verdict.APPROVE]


def test_a_change_of_a_kind_that_the_sink_does_not_take_waits_for_a_person() -> None:
    truncate = change(200, A, TruncateTableEvent(A))
    state = LedgerState("p", checkpoint=100, tables={A: TableProgress(A, 100), B: TableProgress(B, 100)})
    rules = replace(RULES, supported=frozenset(ChangeKind) - {ChangeKind.TRUNCATE_TABLE})
    told = offer(300, [truncate, change(210, B, AddColumnEvent(B, ID))], [split(A, 100), split(A, 200), split(B, 100)])
    cut = plan_cut(state, told, rules)
    assert levels(cut) == [([], [(A, 100), (B, 100)]), ([210], [])]
    problem = cut.holds[A].problem
    assert (problem.table_id, problem.remedy) == (A, Remedy.DECISION)
    assert problem.message == (
        "its schema change at 200 waits, because this sink does not support truncate-table: TRUNCATE TABLE shop.a."
    )
    assert problem.hint == f"Decide with headrace ddl skip|edit '{truncate.identity}'."


def test_nobody_can_approve_a_change_that_the_sink_does_not_take_but_it_can_be_skipped_or_edited() -> None:
    truncate = change(200, A, TruncateTableEvent(A))
    rules = replace(RULES, supported=frozenset({ChangeKind.ADD_COLUMN}))
    held = {}
    for verdict in Verdict:
        decisions = {truncate.identity: Decision(truncate.identity, verdict, "DELETE FROM a")}
        state = LedgerState("p", checkpoint=100, tables={A: TableProgress(A, 100)}, decisions=decisions)
        held[verdict] = A in plan_cut(state, offer(300, [truncate], []), rules).holds
    assert held == {Verdict.APPROVE: True, Verdict.SKIP: False, Verdict.EDIT: False}
    skipped = replace(rules, policies=SchemaChangePolicies.parse({"truncate-table": "skip"}))
    assert A not in plan_cut(replace(state, decisions={}), offer(300, [truncate], []), skipped).holds


def test_a_change_that_was_skipped_is_settled() -> None:
    truncate = change(200, A, TruncateTableEvent(A))
    entry = JournalEntry(truncate.identity, 200, (A,), "…", JournalState.SKIPPED)
    state = LedgerState("p", checkpoint=200, tables={A: TableProgress(A, 200)}, journal={truncate.identity: entry})
    assert not plan_cut(state, offer(900, [truncate], []), RULES).rounds


def test_a_change_that_was_begun_holds_its_table_when_the_source_does_not_tell_it_any_more() -> None:
    truncate = change(200, A, TruncateTableEvent(A), statement="TRUNCATE TABLE a")
    begun = JournalEntry(truncate.identity, 200, (A,), truncate.statement, JournalState.PENDING, "before")
    state = LedgerState("p", checkpoint=200, tables={A: TableProgress(A, 200, after=False)}, journal={truncate.identity: begun})
    cut = plan_cut(state, offer(900, [], [split(A, 100)]), RULES)
    assert not any(part.changes for part in cut.rounds)
    assert cut.holds[A].change.identity == truncate.identity
    assert "was begun" in cut.holds[A].problem.sentence()
    edited = replace(begun, statement="DELETE FROM a")
    held = plan_cut(replace(state, journal={truncate.identity: edited}), offer(900, [], []), RULES).holds
    assert held[A].change.identity == truncate.identity
    skip = Decision(truncate.identity, Verdict.SKIP)
    decided = plan_cut(replace(state, decisions={truncate.identity: skip}), offer(900, [], []), RULES)
    assert levels(decided) == [([200], [])]
    assert not decided.holds


def test_a_waiting_entry_in_whose_place_another_one_was_settled_is_forgotten() -> None:
    truncate = change(200, A, TruncateTableEvent(A), statement="TRUNCATE TABLE a")
    waits = JournalEntry(truncate.identity, 200, (A,), truncate.statement, JournalState.WAITING)
    done = JournalEntry(f"{truncate.place}/1", 200, (A,), "TRUNCATE a", JournalState.DONE)
    state = LedgerState("p", checkpoint=300, tables={A: TableProgress(A, 200)}, journal={e.identity: e for e in (waits, done)})
    cut = plan_cut(state, offer(900, [], []), RULES)
    assert (cut.holds, cut.outdated) == ({}, (waits.identity,))


def test_a_stopped_table_takes_part_only_when_it_is_retried_and_from_its_own_checkpoint() -> None:
    stopped = TableProgress(A, 120, status=TableStatus.STOPPED, reason="…")
    state = LedgerState("p", checkpoint=500, tables={A: stopped, B: TableProgress(B, 100)})
    found = offer(900, [], [split(A, 100), split(B, 100)])
    assert levels(plan_cut(state, found, RULES)) == [([], [(B, 100)])]
    cut = plan_cut(state, found, replace(RULES, retried=frozenset({A})))
    assert levels(cut) == [([], [(A, 100), (B, 100)])]
    assert (cut.windows[A].lo, cut.windows[B].lo) == (120, 500)


def test_a_table_that_was_never_seen_begins_at_the_start_not_at_the_checkpoint() -> None:
    state = LedgerState("p", checkpoint=500, start=10)
    cut = plan_cut(state, offer(900, [create(100, A)], [split(A, 100)]), RULES)
    assert cut.windows[A].lo == 10
    assert levels(cut) == [([100], [(A, 100)])]


def test_late_rows_of_a_dropped_table_do_not_bring_it_back() -> None:
    state = LedgerState("p", checkpoint=500, tables={A: TableProgress(A, 300, status=TableStatus.GONE)})
    assert levels(plan_cut(state, offer(900, [], [split(A, 100)]), RULES)) == []
    again = plan_cut(state, offer(900, [create(600, A)], [split(A, 100), split(A, 600)]), RULES)
    assert again.windows[A].lo == 300


def test_a_run_that_starts_late_creates_tables_in_the_shape_they_had() -> None:
    altered = change(120, A, AddColumnEvent(A, ID))
    cut = plan_cut(LedgerState("p", start=150), offer(900, [create(100, A), altered], [split(A, 120)]), RULES)
    (first,) = cut.rounds
    assert [(c.commit_ts, c.statement, type(c.events[0])) for c in first.changes] == [(120, "", CreateTableEvent)]


def test_an_alteration_of_an_unknown_table_creates_it_in_its_later_shape() -> None:
    cut = plan_cut(LedgerState("p"), offer(900, [change(120, A, AddColumnEvent(A, ID))], []), RULES)
    assert isinstance(cut.rounds[0].changes[0].events[0], CreateTableEvent)


def test_a_view_is_never_made_a_table() -> None:
    view = change(120, A, OtherEvent(A), statement="CREATE VIEW `a` AS SELECT 1")
    cut = plan_cut(LedgerState("p"), offer(900, [view], []), RULES)
    assert cut.rounds[0].changes == (view,)


def test_until_bounds_rows_and_takes_the_change_at_it() -> None:
    truncate = change(200, A, TruncateTableEvent(A))
    found = offer(900, [create(100, A), truncate], [split(A, 100)])
    cut = plan_cut(LedgerState("p"), found, replace(RULES, until=200))
    assert cut.hi == 200
    assert [ts for ts, _ in levels(cut)] == [[100], [200]]


@pytest.mark.parametrize("wanted", ChangeDemand)
@pytest.mark.parametrize("otherwise", ChangeDemand)
@pytest.mark.parametrize("bags", [False, True])
@pytest.mark.parametrize("precision", CommitTsPrecision)
def test_a_table_without_key_is_a_problem_by_what_is_wanted_of_it_and_not_of_others(
    wanted: ChangeDemand, otherwise: ChangeDemand, bags: bool, precision: CommitTsPrecision
) -> None:
    """Of a log nothing is counted; anything else takes a sink that can, and rows of which the repeated ones can be told."""
    capabilities = SinkCapabilities(otherwise, bags=bags, own_demand=lambda table, _: wanted if table == A else otherwise)
    rules = replace(RULES, demand_of=capabilities.demand_of, bags=bags)
    keyed = TableId("shop", "c")
    splits = [split(A, 100, key=()), split(B, 101, key=()), split(keyed, 102)]
    cut = plan_cut(
        LedgerState("p"), offer(900, [create(s.version, s.table_id) for s in splits], splits, precision=precision), rules
    )
    counts = bags and precision is CommitTsPrecision.EXACT
    refused = {t for t, demand in ((A, wanted), (B, otherwise)) if demand is not ChangeDemand.ALL and not counts}
    assert set(cut.problems) == refused
    assert {s.table_id for r in cut.rounds for s in r.splits} == {A, B, keyed} - refused


def test_a_table_without_key_needs_exact_commit_ts_to_tell_repeated_rows() -> None:
    found = offer(900, [create(100, A)], [split(A, 100, key=())], precision=CommitTsPrecision.NONE)
    found = replace(found, advice=SourceAdvice(exact_commit_ts="Set the switch."))
    (problem,) = plan_cut(LedgerState("p"), found, replace(RULES, bags=True)).problems.values()
    assert problem.hint.endswith("With exact commit ts it can be applied. Set the switch.")


def test_data_without_commit_ts_are_taken_whole() -> None:
    cut = plan_cut(
        LedgerState("p", checkpoint=500), offer(900, [create(100, A)], [split(A, 100)], precision=CommitTsPrecision.NONE), RULES
    )
    assert (cut.windows[A].lo, cut.hi) == (0, 900)
    assert cut.windows[A].hi > 900


def test_a_name_in_many_cases_waits_for_the_one_before() -> None:
    names = [TableId("shop", name) for name in ("ab", "Ab", "aB", "AB")]
    changes = [made for n, t in enumerate(names) for made in (create(100 + 2 * n, t), change(101 + 2 * n, t, DropTableEvent(t)))]
    cut = plan_cut(LedgerState("p"), offer(900, changes, []), RULES)
    assert [[c.commit_ts for c in r.changes] for r in cut.rounds] == [[c.commit_ts] for c in changes]
    assert all(len({t for t in c.reads if t.table}) <= 1 for r in cut.rounds for c in r.changes)


def test_a_name_waits_for_the_stopped_table_that_has_it_in_another_case_also_behind_a_change_that_was_decided_on() -> None:
    lower, upper, other = TableId("shop", "a"), TableId("shop", "A"), TableId("shop", "aa")
    rename = change(200, upper, RenameTableEvent(other, upper))
    alter = change(300, upper, AddColumnEvent(upper, ID))
    stopped = TableProgress(lower, 150, status=TableStatus.INCOMPLETE, incarnation=100, after=True)
    tables = {lower: stopped, other: TableProgress(other, 150, incarnation=100, after=True)}
    decisions = {rename.identity: Decision(rename.identity, Verdict.SKIP)}
    state = LedgerState("p", checkpoint=150, tables=tables, decisions=decisions)
    cut = plan_cut(state, offer(900, [rename, alter], []), RULES)
    assert rename.identity in cut.decisions
    assert cut.holds[upper].at == 300


def exchange(ts: int, table: TableId, other: TableId, *, condition: str = "`id` < 10") -> SchemaChange:
    """Without a condition, it is not known which rows the partition has."""
    event = ExchangePartitionEvent(table, other, "p", condition) if condition else OtherEvent(table)
    statement = f"ALTER TABLE {table} EXCHANGE PARTITION p WITH TABLE {other}"
    return replace(change(ts, table, event, statement=statement), changes=frozenset({table, other}))


C, D = TableId("shop", "c"), TableId("shop", "d")
MADE = [create(100, table) for table in (A, B, C)]


def state_of(*lacking: TableId, **more: object) -> LedgerState:
    """A ledger with the three tables, of which these lack rows."""
    running = {t: TableProgress(t, 150, incarnation=100) for t in (A, B, C)}
    stopped = {t: TableProgress(t, 120, status=TableStatus.INCOMPLETE, incarnation=100) for t in lacking}
    return LedgerState("p", checkpoint=150, tables={**running, **stopped}, **more)  # type: ignore[arg-type]


ENDS = {
    "drop": [change(400, B, DropTableEvent(B))],
    "truncate": [change(400, B, TruncateTableEvent(B))],
    "rename": [change(400, D, RenameTableEvent(B, D))],
    "drop database": [change(400, DB, DropDatabaseEvent("shop"))],
}


@pytest.mark.parametrize("passed", [None, 0])
@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("first", [A, B])
@pytest.mark.parametrize("condition", ["`id` < 10", ""])
def test_a_table_that_lacks_rows_exchanges_none_with_a_whole_one_before_it_ends(
    condition: str, first: TableId, end: str, passed: int | None
) -> None:
    state = state_of(B)
    exchanged = exchange(300, first, A if first == B else B, condition=condition)
    alter = change(200, B, AddColumnEvent(B, ID))
    changes = [alter, exchanged, *ENDS[end]]
    cut = plan_cut(state, offer(900, [*MADE, *changes], [], passed=passed), RULES)
    assert cut.rounds == ()
    assert cut.holds[A].change == exchanged
    assert "also touches shop.b, which lacks rows" in cut.holds[A].problem.message
    state = replace(state, decisions={exchanged.identity: Decision(exchanged.identity, Verdict.APPROVE)})
    assert plan_cut(state, offer(900, [*MADE, *changes], [], passed=passed), RULES).holds[A].change == exchanged
    state = replace(state, decisions={exchanged.identity: Decision(exchanged.identity, Verdict.SKIP)})
    cut = plan_cut(state, offer(900, [*MADE, *changes], [], passed=passed), RULES)
    assert [c for r in cut.rounds for c in r.changes] == changes


@pytest.mark.parametrize("way", ["rename", "swap", "rename twice", "made too late"])
def test_no_name_that_a_table_which_lacks_rows_gets_in_the_cut_exchanges_rows(way: str) -> None:
    steps = {
        "rename": [change(200, D, RenameTableEvent(B, D))],
        "swap": [
            change(200, D, RenameTableEvent(C, D)),
            change(201, C, RenameTableEvent(B, C)),
            change(202, B, RenameTableEvent(D, B)),
        ],
        "rename twice": [change(200, D, RenameTableEvent(B, D)), change(201, B, RenameTableEvent(D, B))],
        "made too late": [create(200, D)],
    }[way]
    name = {"swap": C, "rename twice": B}.get(way, D)
    exchanged = exchange(300, A, name)
    passed = 250 if way == "made too late" else 0
    cut = plan_cut(state_of(B), offer(900, [*MADE, *steps, exchanged], [], passed=passed), RULES)
    assert [c for r in cut.rounds for c in r.changes] == steps
    assert (cut.holds[A].change, cut.holds[name].change) == (exchanged, exchanged)


@pytest.mark.parametrize("end", [end for end in ENDS if end != "drop database"])
def test_what_has_the_name_of_a_table_that_lacked_rows_exchanges_its_own(end: str) -> None:
    changes = [*ENDS[end], *([] if end == "truncate" else [create(500, B)]), exchange(600, A, B)]
    cut = plan_cut(state_of(B), offer(900, [*MADE, *changes], []), RULES)
    assert [c for r in cut.rounds for c in r.changes] == changes


@pytest.mark.parametrize("passed", [None, 0, 200])
def test_a_truncate_ends_no_lack_of_a_table_that_got_its_name_while_changes_of_its_shape_may_have_been_missing(
    passed: int | None,
) -> None:
    state = state_of(B).with_rows([TableProgress(B, 300, status=TableStatus.INCOMPLETE, incarnation=300)])
    truncate = change(400, B, TruncateTableEvent(B))
    cut = plan_cut(state, offer(900, [*MADE, truncate], [], passed=passed), RULES)
    assert [c for r in cut.rounds for c in r.changes] == ([] if passed else [truncate])


@pytest.mark.parametrize("is_gone", [False, True])
@pytest.mark.parametrize("verdict", [None, *Verdict])
def test_a_change_that_waited_while_its_table_gave_its_name_away_runs_no_more(verdict: Verdict | None, is_gone: bool) -> None:
    """What gave the name to another table is a RENAME. Behind it nothing counts as found late."""
    exchanged, moved = exchange(200, A, B), change(300, B, RenameTableEvent(C, B))
    tables = {
        A: TableProgress(A, 200, after=False, status=TableStatus.WAITING, incarnation=100),
        B: TableProgress(B, 400, status=TableStatus.GONE if is_gone else TableStatus.RUNNING, incarnation=300),
        C: TableProgress(C, 300, status=TableStatus.GONE, incarnation=100),
    }
    journal = {
        c.identity: JournalEntry(c.identity, c.commit_ts, tuple(sorted(c.changes)), c.statement, state)
        for c, state in ((exchanged, JournalState.WAITING), (moved, JournalState.DONE))
    }
    decisions = {exchanged.identity: Decision(exchanged.identity, verdict)} if verdict else {}
    state = LedgerState("p", checkpoint=400, tables=tables, journal=journal, decisions=decisions)
    cut = plan_cut(state, offer(900, [*MADE, exchanged, moved], []), replace(RULES, retried=frozenset({A})))
    if verdict in (Verdict.SKIP, Verdict.EDIT):
        assert [c for r in cut.rounds for c in r.changes] == [exchanged]
    else:
        assert "waited, and cannot run any more" in cut.holds[A].problem.message
        assert f"{B} was dropped or renamed" in cut.holds[A].problem.hint
        assert cut.rounds == ()


@pytest.mark.parametrize("condition", ["`id` < 10", ""])
@pytest.mark.parametrize("first", [A, B])
def test_an_exchange_with_a_table_that_is_not_followed_is_not_passed_over(first: TableId, condition: str) -> None:
    state = state_of().with_rows([TableProgress(B, 100, status=TableStatus.NOT_FOLLOWED, incarnation=100)])
    exchanged = exchange(300, first, A if first == B else B, condition=condition)
    cut = plan_cut(state, offer(900, [*MADE, exchanged], []), RULES)
    assert cut.decisions == {}
    alter = change(200, B, OtherEvent(B))
    assert plan_cut(state, offer(900, [*MADE, alter], []), RULES).decisions[alter.identity].verdict is Verdict.SKIP


def test_tables_that_both_lack_rows_may_exchange_them_before_they_end() -> None:
    changes = [exchange(300, A, B), change(400, A, DropTableEvent(A)), change(500, B, DropTableEvent(B))]
    cut = plan_cut(state_of(A, B), offer(900, [*MADE, *changes], []), RULES)
    assert [c for r in cut.rounds for c in r.changes] == changes


def test_a_made_table_that_takes_the_name_of_a_skipped_one_waits_for_approval() -> None:
    """What may not exist, as its CREATE is skipped, went on under another name by then."""
    rules = replace(RULES, policies=SchemaChangePolicies.parse({"create-table": "skip", "truncate-table": "approve"}))
    c = TableId("d", "c")
    skipped, leaves = create(100, B), change(200, c, RenameTableEvent(B, c))
    takes, empties = change(300, B, RenameTableEvent(A, B)), change(400, B, TruncateTableEvent(B))
    of_skipped = change(500, c, TruncateTableEvent(c))
    state = LedgerState("p", checkpoint=50, tables={A: TableProgress(A, 50, incarnation=10, after=True)})
    cut = plan_cut(state, offer(900, [skipped, leaves, takes, empties, of_skipped], []), rules)
    assert cut.holds[B].at == 400
    assert cut.unapproved == {of_skipped.identity}


@pytest.mark.parametrize("precision", [CommitTsPrecision.NONE, CommitTsPrecision.MILLISECOND])
def test_a_table_stops_whose_rows_lack_the_commit_ts_that_the_sink_writes(precision: CommitTsPrecision) -> None:
    rules = replace(RULES, keeps_commit_ts=True)
    changes, splits = [create(100, A)], [split(A, 100)]
    cut = plan_cut(LedgerState("p"), offer(900, changes, splits, precision=precision), rules)
    assert "carry no exact one" in cut.problems[A].message
    assert not plan_cut(LedgerState("p"), offer(900, changes, splits, precision=precision), RULES).problems
    assert not plan_cut(LedgerState("p"), offer(900, changes, splits), rules).problems


@pytest.mark.parametrize("precision", [CommitTsPrecision.NONE, CommitTsPrecision.MILLISECOND])
def test_transactions_are_replayed_only_with_exact_commit_ts(precision: CommitTsPrecision) -> None:
    netted = replace(RULES, replays=True)
    replayed = replace(netted, demand_of=SinkCapabilities(ChangeDemand.ALL).demand_of)
    changes, splits = [create(100, A)], [split(A, 100)]
    cut = plan_cut(LedgerState("p"), offer(900, changes, splits, precision=precision), replayed)
    assert "its transactions cannot be replayed" in cut.problems[A].message
    assert not plan_cut(LedgerState("p"), offer(900, changes, splits, precision=precision), netted).problems
    assert not plan_cut(LedgerState("p"), offer(900, changes, splits), replayed).problems
