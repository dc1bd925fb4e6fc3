"""Identities of schema changes: what a person decides counts for the very change that was shown."""

from __future__ import annotations

import zlib
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.engine.barriers import PlanRules
from headrace.engine.identities import as_journalled, recognised
from headrace.engine.plan import plan_cut
from headrace.model.cut import Cut
from headrace.model.events import DropColumnEvent, DropTableEvent, SchemaChange
from headrace.model.ledger import Decision, JournalEntry, JournalState, LedgerState, TableProgress, Verdict
from headrace.model.offer import Offer
from headrace.model.policy import SchemaChangePolicies
from headrace.model.table import Column, Generated, Index, TableId, TableSchema
from headrace.model.types import ColumnType, TypeKind

A = TableId("shop", "a")
ID = Column("id", ColumnType(TypeKind.INT), nullable=False, primary_key=True)
V = Column("v", ColumnType(TypeKind.VARCHAR, length=16))
SHAPE = TableSchema(A, (ID, V), ("id",))
STATEMENT = "ALTER TABLE `a` DROP COLUMN `c`"
RULES = PlanRules(includes=lambda _: True, policies=SchemaChangePolicies.parse({"drop-column": "approve", "drop-table": "approve"}))
BEGUN = [JournalState.PENDING, JournalState.RUNNING, JournalState.UNCLEAR]


def change(statement: str = STATEMENT, shape: TableSchema | None = SHAPE, table_id: TableId = A) -> SchemaChange:
    event = DropColumnEvent(table_id, "c") if shape is not None else DropTableEvent(table_id)
    return SchemaChange(200, table_id, (event,), statement, table_id.database, frozenset({table_id}), schema=shape)


def of_the_same_checksum(statement: str) -> str:
    """DROP TABLE, with a comment that gives it the CRC-32 of another statement: checksums are linear in the text's bits."""

    def text(letters: int) -> str:
        return f"DROP TABLE `a` /*{''.join('bc'[letters >> n & 1] for n in range(48))}*/"

    def checksum(letters: int) -> int:
        return zlib.crc32(text(letters).encode())

    rows: dict[int, tuple[int, int]] = {}
    for letter in (1 << n for n in range(48)):
        value, made_of = checksum(letter) ^ checksum(0), letter
        while value and value.bit_length() in rows:
            other, others = rows[value.bit_length()]
            value, made_of = value ^ other, made_of ^ others
        if value:
            rows[value.bit_length()] = value, made_of
    rest, letters = zlib.crc32(statement.encode()) ^ checksum(0), 0
    while rest:
        other, others = rows[rest.bit_length()]
        rest, letters = rest ^ other, letters ^ others
    return text(letters)


FORGED = change(of_the_same_checksum(STATEMENT), None)


def state(*entries: JournalEntry, decisions: tuple[Decision, ...] = ()) -> LedgerState:
    return LedgerState(
        "p",
        checkpoint=200,
        tables={A: TableProgress(A, 200)},
        journal={entry.identity: entry for entry in entries},
        decisions={decision.identity: decision for decision in decisions},
    )


def entry(of: SchemaChange, state: JournalState, *, identity: str = "", statement: str | None = None) -> JournalEntry:
    text = of.statement if statement is None else statement
    return JournalEntry(identity or of.identity, of.commit_ts, (of.table_id,), text, state)


def planned(known: LedgerState, told: SchemaChange, rules: PlanRules = RULES) -> Cut:
    return plan_cut(known, as_journalled(Offer(900, 900, (told,), ()), known), rules)


OTHERS = [
    FORGED,
    change(STATEMENT + " "),
    change(shape=replace(SHAPE, columns=(ID,))),
    change(shape=replace(SHAPE, columns=(V, ID))),
    change(shape=replace(SHAPE, columns=(ID, replace(V, name="w")))),
    change(shape=replace(SHAPE, columns=(ID, replace(V, default="x")))),
    change(shape=replace(SHAPE, columns=(ID, replace(V, nullable=False)))),
    change(shape=replace(SHAPE, columns=(ID, replace(V, type=ColumnType(TypeKind.INT))))),
]


@pytest.mark.parametrize("verdict", Verdict)
@pytest.mark.parametrize("other", [*OTHERS, *(replace(other, statement="") for other in OTHERS[2:])])
def test_a_decision_counts_for_the_change_that_was_shown_and_no_other(other: SchemaChange, verdict: Verdict) -> None:
    shown = change(STATEMENT if other.statement else "")
    known = state(entry(shown, JournalState.WAITING), decisions=(Decision(shown.identity, verdict, "DELETE FROM a"),))
    assert planned(known, shown).decisions.keys() == {shown.identity}
    cut = planned(known, other)
    assert (cut.decisions, cut.outdated) == ({}, (shown.identity,))
    assert cut.holds[A].problem.message.startswith("its schema change waits for approval: ")


def test_a_forged_statement_has_the_former_identity_of_another_one() -> None:
    assert FORGED.former_identity == change().former_identity


TEXTS = st.text(max_size=8)
COLUMNS = st.builds(
    Column,
    TEXTS,
    st.builds(
        ColumnType,
        st.sampled_from(TypeKind),
        st.booleans(),
        st.none() | st.integers(0, 9),
        st.none() | st.integers(0, 9),
        st.lists(TEXTS, max_size=2).map(tuple),
    ),
    nullable=st.booleans(),
    primary_key=st.booleans(),
    default=st.none() | TEXTS,
)
SHAPES = st.builds(TableSchema, st.just(A), st.lists(COLUMNS, max_size=3).map(tuple))
CHANGES = st.builds(change, TEXTS, st.none() | SHAPES)


@given(CHANGES, CHANGES)
def test_two_changes_have_one_identity_only_if_they_are_equal(one: SchemaChange, other: SchemaChange) -> None:
    assert (one.identity == other.identity) == ((one.statement, one.schema) == (other.statement, other.schema))
    assert len(one.identity) == len("200/shop.a/") + 24


def test_what_only_former_statements_tell_is_not_part_of_an_identity() -> None:
    """Their schema files may be gone by the next run, and declared keys are a person's."""
    marked = replace(V, generated=Generated.STORED, expression="1", hidden=True)
    told = replace(SHAPE, columns=(ID, marked), handle_key=("v",), indexes=(Index("i", ("v",)),))
    assert change(shape=told).identity == change().identity


def test_identities_stay_what_they_are() -> None:
    """They lie in ledgers."""
    assert change().identity == "200/shop.a/nzeoujvzoievofnadvvm76ih"
    assert change("").identity == "200/shop.a/qtkcsuvlyoil6mmfpqnroari"
    assert change("DROP TABLE `a`", None).identity == "200/shop.a/ckx6l4wiyuq4p32iadvm5725"
    assert change().former_identity == "200/shop.a/a4ae4547"


def test_an_identity_of_the_longest_names_fits_into_a_ledger() -> None:
    longest = replace(change(table_id=TableId("d" * 64, "t" * 64)), commit_ts=(1 << 63) - 1)
    assert len(longest.identity) <= 191

    longest = replace(longest, table_id=TableId("`" * 64, "." * 64))
    assert len(longest.identity) <= 191


SHARED_NAMES = (TableId("shop", "a.b"), TableId("shop.a", "b"))


@pytest.mark.parametrize("settled", [JournalState.DONE, JournalState.SKIPPED])
def test_what_is_over_of_one_table_is_not_over_of_another_whose_name_reads_alike(settled: JournalState) -> None:
    first, second = (change("", replace(SHAPE, table_id=name), name) for name in SHARED_NAMES)
    known = replace(state(entry(first, settled)), tables={name: TableProgress(name, 200) for name in SHARED_NAMES})
    cut = planned(known, second)
    assert cut.holds.keys() == {SHARED_NAMES[1]}
    assert not planned(known, first).holds


def test_what_was_begun_of_one_table_asks_nothing_of_another_whose_name_reads_alike() -> None:
    first, second = (change("", replace(SHAPE, table_id=name), name) for name in SHARED_NAMES)
    known = replace(state(entry(first, JournalState.PENDING)), tables={name: TableProgress(name, 200) for name in SHARED_NAMES})
    offer = as_journalled(Offer(900, 900, (first, second), ()), known)
    cut = plan_cut(known, offer, PlanRules(includes=lambda _: True))
    assert not cut.holds
    assert {c.table_id for cut_round in cut.rounds for c in cut_round.changes} == set(SHARED_NAMES)


class TestJournalsOfFormerVersions:
    @pytest.mark.parametrize("table_id", SHARED_NAMES)
    @pytest.mark.parametrize("journal_state", JournalState)
    def test_the_place_of_a_name_with_a_dot_is_read(self, table_id: TableId, journal_state: JournalState) -> None:
        told = change(STATEMENT, replace(SHAPE, table_id=table_id), table_id)
        identity = f"200/{table_id}/{told.digest}"
        known = state(entry(told, journal_state, identity=identity))
        assert recognised(told, known).identity == identity
        assert recognised(change("", None, table_id), known).identity != identity

    @pytest.mark.parametrize("statement", [STATEMENT, ""])
    def test_a_decision_that_was_made_counts(self, statement: str) -> None:
        told = change(statement)
        former = told.former_identity
        known = state(entry(told, JournalState.WAITING, identity=former), decisions=(Decision(former, Verdict.APPROVE),))
        assert planned(known, told).decisions.keys() == {former}

    def test_a_waiting_change_keeps_its_identity(self) -> None:
        known = state(entry(change(), JournalState.WAITING, identity=change().former_identity))
        cut = planned(known, change())
        assert (cut.holds[A].change.identity, cut.outdated) == (change().former_identity, ())

    def test_a_decision_counts_for_no_other_statement(self) -> None:
        former = change().former_identity
        known = state(entry(change(), JournalState.WAITING, identity=former), decisions=(Decision(former, Verdict.APPROVE),))
        cut = planned(known, FORGED)
        assert (cut.decisions, cut.outdated) == ({}, (former,))
        assert cut.holds[A].change.identity == FORGED.identity

    def test_a_shape_that_nobody_decided_about_gets_an_identity_of_its_own(self) -> None:
        told = change("")
        cut = planned(state(entry(told, JournalState.WAITING, identity=told.former_identity)), told)
        assert (cut.holds[A].change.identity, cut.outdated) == (told.identity, (told.former_identity,))

    @pytest.mark.parametrize("settled", [JournalState.DONE, JournalState.SKIPPED])
    @pytest.mark.parametrize("statement", [STATEMENT, ""])
    def test_what_is_over_stays_over(self, settled: JournalState, statement: str) -> None:
        told = change(statement)
        known = state(entry(told, settled, identity=told.former_identity, statement="what a person ran"))
        assert not planned(known, told).rounds

    @pytest.mark.parametrize("begun", BEGUN)
    def test_what_was_begun_is_known_also_by_what_a_person_had_run(self, begun: JournalState) -> None:
        former = change().former_identity
        known = state(entry(change(), begun, identity=former, statement="what a person ran"))
        assert recognised(change(), known).identity == former


@pytest.mark.parametrize("settled", [JournalState.DONE, JournalState.SKIPPED])
def test_what_is_over_is_not_run_again_in_another_shape(settled: JournalState) -> None:
    assert not planned(state(entry(change(), settled)), change(shape=replace(SHAPE, columns=(ID,)))).rounds


@pytest.mark.parametrize("begun", BEGUN)
@pytest.mark.parametrize("other", OTHERS)
def test_nothing_runs_by_itself_where_another_change_was_begun(begun: JournalState, other: SchemaChange) -> None:
    decision = Decision(change().identity, Verdict.APPROVE)
    known = state(entry(change(), begun), decisions=(decision,))
    cut = planned(known, other, PlanRules(includes=lambda _: True))
    assert (cut.decisions, cut.outdated) == ({}, ())
    problem = cut.holds[A].problem
    assert problem.message.startswith("another schema change at 200 was begun and may have run: ALTER TABLE")
    assert other.identity in (problem.hint or "")
    decided = replace(known, decisions={other.identity: Decision(other.identity, Verdict.APPROVE)})
    assert planned(decided, other).decisions.keys() == {other.identity}
    assert planned(replace(known, decisions={}), change(), PlanRules(includes=lambda _: True)).holds.keys() == (
        {A} if begun is JournalState.UNCLEAR else set()
    )


@pytest.mark.parametrize("begun", BEGUN)
def test_what_was_begun_is_forgotten_when_what_came_in_its_place_is_over(begun: JournalState) -> None:
    other = OTHERS[1]
    known = state(entry(change(), begun), entry(other, JournalState.DONE))
    assert planned(known, other).outdated == (change().identity,)
