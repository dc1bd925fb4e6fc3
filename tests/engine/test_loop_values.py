"""The small values by which a run decides what to do next, each by itself."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headrace.engine.bounds import has_let_go
from headrace.engine.quiet import Quiet
from headrace.engine.retries import Retries, all_stopped
from headrace.engine.told_stops import ToldStops
from headrace.engine.tries import Tries
from headrace.engine.turns import Turns
from headrace.errors import JobFailedError, SourceNotReadyError, TransientError
from headrace.model.ledger import LedgerState, RequestKind, TableProgress, TableRequest, TableStatus
from headrace.model.outcome import Problem
from headrace.model.table import TableId

A, B, C = (TableId("shop", name) for name in "abc")
STOPPED, RUNNING, INCOMPLETE, CATCHING_UP, GONE = (
    TableStatus.STOPPED,
    TableStatus.RUNNING,
    TableStatus.INCOMPLETE,
    TableStatus.CATCHING_UP,
    TableStatus.GONE,
)


def state(*, checkpoint: int = 10, **statuses: TableStatus) -> LedgerState:
    tables = {TableId("shop", n): TableProgress(TableId("shop", n), checkpoint, status=status) for n, status in statuses.items()}
    return LedgerState("p", checkpoint=checkpoint, tables=tables)


class TestWhatIsOfferedAnew:
    """What was offered is of the tables that took part when the source was asked."""

    HOLD = TableRequest("1", A, RequestKind.HOLD)
    RESYNC = TableRequest("2", B, RequestKind.RESYNC, to=10)

    def test_a_table_that_is_let_go_needs_another_offer(self) -> None:
        asked = replace(state(a=STOPPED, b=STOPPED), requests={"1": self.HOLD, "2": self.RESYNC})
        refused = replace(asked, requests={"1": self.HOLD})
        assert has_let_go(asked, refused), "the resync held the table, and is over"
        assert has_let_go(asked, replace(asked, tables=state(a=STOPPED, b=CATCHING_UP).tables))
        assert has_let_go(asked, replace_checkpoint(asked, B, 5))

    def test_a_table_that_is_held_from_now_on_needs_none(self) -> None:
        asked = replace(state(a=STOPPED, b=STOPPED), requests={"1": self.HOLD})
        assert not has_let_go(asked, asked)
        assert not has_let_go(asked, replace(asked, requests={"1": self.HOLD, "2": self.RESYNC}))


class TestRetries:
    def test_all_that_stopped_are_due_at_the_start_of_a_run_and_then_every_so_often(self) -> None:
        stopped = state(a=STOPPED, b=RUNNING, c=INCOMPLETE)
        begun = Retries().begun(stopped, 100.0, told=False, apart=False, every=30)
        assert begun.tables(stopped) == {A}, "what runs is not tried, what lacks rows waits until it is loaded anew"
        tried = begun.tried([A])
        assert tried.tables(stopped) == set()
        assert tried.begun(stopped, 129.9, told=False, apart=False, every=30).tables(stopped) == set()
        assert tried.begun(stopped, 130.0, told=False, apart=False, every=30).tables(stopped) == {A}

    def test_a_persons_word_does_not_wait(self) -> None:
        stopped = state(a=STOPPED)
        tried = Retries().begun(stopped, 0.0, told=False, apart=False, every=30).tried([A])
        assert tried.begun(stopped, 1.0, told=True, apart=False, every=30).tables(stopped) == {A}

    def test_when_one_moved_the_others_are_tried_once_more_but_not_while_tables_catch_up(self) -> None:
        before, after = state(a=STOPPED, b=STOPPED), state(a=RUNNING, b=STOPPED)
        tried = Retries(tried_at=0.0).noting(before, replace_checkpoint(after, A, 20))
        assert tried.moved
        waiting = tried.begun(after, 1.0, told=False, apart=True, every=30)
        assert (waiting.moved, waiting.tables(after)) == (True, set())
        moved = waiting.begun(after, 2.0, told=False, apart=False, every=30)
        assert (moved.moved, moved.tables(after)) == (False, {B})

    def test_a_table_that_runs_moves_nobody(self) -> None:
        before = state(a=RUNNING, b=STOPPED)
        assert not Retries().noting(before, replace_checkpoint(before, A, 20)).moved
        assert not Retries().noting(before, before).moved

    @pytest.mark.parametrize(("checkpoint", "moved"), [(30, False), (40, True)])
    def test_a_left_out_table_moves_others_only_if_it_lay_behind(self, checkpoint: int, moved: bool) -> None:
        """One that is followed without a stop goes on with every cut: stopped tables would be tried in each."""
        before = replace(replace_checkpoint(state(a=TableStatus.EXCLUDED, b=STOPPED), A, 30), checkpoint=checkpoint)
        assert Retries().noting(before, replace_checkpoint(before, A, 50)).moved is moved

    def test_where_nothing_is_stopped_nobody_waits(self) -> None:
        running = state(a=RUNNING)
        assert Retries(moved=True).begun(running, 0.0, told=True, apart=False, every=30) == Retries(moved=False)

    def test_what_may_pass_is_looked_at_twice_until_all_are_tried_again(self) -> None:
        stopped, torn = state(a=STOPPED), Problem(A, "torn", transient=True)
        retries = Retries(tried_at=0.0)
        for _ in range(2):
            again = retries.looking_again([torn, Problem(B, "for good")])
            assert again is not None
            assert again.due == {A}
            retries = again.tried([A])
        assert retries.looking_again([torn]) is None
        anew = retries.begun(stopped, 40.0, told=False, apart=False, every=30)
        assert anew.looking_again([torn]) is not None

    def test_all_stopped_leaves_out_what_a_person_holds(self) -> None:
        hold = TableRequest("1", B, RequestKind.HELD)
        stopped = replace(state(a=STOPPED, b=STOPPED, c=GONE), requests={hold.identity: hold})
        assert all_stopped(stopped) == {A}


def replace_checkpoint(ledger: LedgerState, table_id: TableId, checkpoint: int) -> LedgerState:
    return replace(ledger, tables={**ledger.tables, table_id: replace(ledger.tables[table_id], checkpoint=checkpoint)})


class TestTurns:
    def test_every_other_cut_is_the_others_while_tables_catch_up(self) -> None:
        first = Turns().offered(frozenset({A, B}))
        assert first.without({B}) == {A}, "what is gone has nothing to catch up with"
        theirs = first.taken()
        assert (theirs.without(()), theirs.apart) == (frozenset(), {A, B})
        assert theirs.offered(frozenset({B})).without(()) == {B}

    def test_when_nothing_catches_up_all_have_every_turn(self) -> None:
        done = Turns(frozenset({A})).offered(frozenset())
        assert (done.without(()), done.apart) == (frozenset(), frozenset())

    def test_a_part_that_moved_nothing_is_not_followed_by_the_same_at_once(self) -> None:
        part = Turns().offered(frozenset({A}))
        assert (part.goes_on, part.is_stuck) == (True, False), "the others have the next turn in any case"
        assert part.moved().taken().goes_on
        others = part.taken()
        assert (others.goes_on, others.is_stuck) == (False, True)
        assert [notice.table_id for notice in others.notices()] == [A]
        assert others.moved().goes_on, "what the others did may lead on"
        assert others.offered(frozenset()) == Turns()
        assert (Turns().goes_on, Turns().is_stuck, part.notices()) == (False, False, ())


class TestTries:
    def test_each_pause_is_twice_as_long_up_to_the_longest(self) -> None:
        tries, pauses = Tries(), []
        for _ in range(7):
            tries = tries.failed()
            pauses.append(tries.pause(1.0, 30.0))
        assert pauses == [1, 2, 4, 8, 16, 30, 30]
        assert Tries(1_000_000).pause(1.0, 30.0) == 30

    @pytest.mark.parametrize(
        ("error", "ends", "last"),
        [
            (TransientError("a"), True, 4),
            (TransientError("a"), False, None),
            (SourceNotReadyError("a"), True, 1),
            (SourceNotReadyError("a"), False, None),
            (JobFailedError("a"), False, 4),
        ],
    )
    def test_a_run_gives_up_when_it_is_to_end_and_on_jobs_that_break_again_and_again(self, error, ends, last) -> None:
        given_up = next((count for count in range(1, 20) if Tries(count).is_last(error, ends=ends)), None)
        assert given_up == last


class TestQuiet:
    def test_it_counts_from_the_last_change(self) -> None:
        first = Quiet().seen("", 100.0)
        assert first.left(10, 104.0) == 6
        assert first.seen("", 109.0).left(10, 111.0) == -1
        assert first.seen("x", 109.0).left(10, 111.0) == 8


class TestToldStops:
    def test_a_problem_is_told_once_and_anew_in_other_words_or_when_the_table_went_on_between(self) -> None:
        stopped, running = state(a=STOPPED), state(a=RUNNING)
        one, other = {A: Problem(A, "one.")}, {A: Problem(A, "other.")}
        told = ToldStops()
        assert told.news(one) == [one[A]]
        told = told.told(one)
        assert (told.news(one), told.news(other)) == ([], [other[A]])
        resumed = told.resumed(stopped, running)
        assert resumed == [A]
        assert told.without(resumed).news(one) == [one[A]]

    def test_only_what_was_stopped_resumes(self) -> None:
        assert ToldStops().resumed(state(a=RUNNING, b=STOPPED), state(a=RUNNING, b=CATCHING_UP, c=RUNNING)) == [B]
        assert ToldStops().resumed(state(a=STOPPED), state(a=GONE)) == []
