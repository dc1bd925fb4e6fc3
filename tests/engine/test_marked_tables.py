"""Tables that say in their own commit how far they are: when they are asked, what counts, and when what they say is over."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from headrace.engine.marked_tables import LedgerOutrunError, caught_up, in_doubt, marks_of, say_of_requests, unknown
from headrace.model.cut import Cut, CutRound
from headrace.model.ledger import LedgerState, TableProgress, TableStatus
from headrace.model.letters import Letter
from headrace.model.place import PlaceInFile
from headrace.model.precision import CommitTsPrecision
from headrace.model.split import Segment, Window
from headrace.model.table import TableId, TableSchema
from headrace.sinks.base import WriterContext
from headrace.sinks.dead_letters import open_dead_letters
from headrace.sinks.table_marks import TableMark

A, B = TableId("shop", "a"), TableId("shop", "b")
PIPELINE = "p"


@dataclass
class Target:
    """Tables with their marks."""

    marks: dict[TableId, TableMark] = field(default_factory=dict)
    asked: set[TableId] = field(default_factory=set)

    def read(self, pipeline: str, targets: Collection[TableId]) -> Mapping[TableId, TableMark]:
        self.asked |= set(targets)
        return {t: self.marks[t] for t in targets if t in self.marks and self.marks[t].pipeline == pipeline}

    def put(self, marks: Mapping[TableId, TableMark]) -> None:
        self.marks |= {target: mark for target, mark in marks.items() if mark.replaces(self.marks.get(target))}


def ledger(*rows: TableProgress, checkpoint: int = 50, attempted: int = 90) -> LedgerState:
    return LedgerState(PIPELINE, epoch=3, began=2, checkpoint=checkpoint, attempted=attempted).with_rows(rows)


def rows_after(state: LedgerState, target: Target) -> dict[TableId, TableProgress]:
    carried = caught_up(state, in_doubt(state), target, None)
    return {row.table_id: row for row in carried.update.tables} if carried else {}


def test_a_table_that_is_ahead_goes_on_from_what_it_says_and_the_journal_tells_of_a_change_there() -> None:
    own = TableProgress(A, 20, incarnation=10)
    found = rows_after(ledger(own), Target({A: TableMark(PIPELINE, 10, 80, epoch=3)}))
    assert found == {A: TableProgress(A, 80, after=False, incarnation=10)}


@pytest.mark.parametrize(
    ("mark", "why"),
    [
        (TableMark(PIPELINE, 10, 50, epoch=3), "it is not ahead of the pipeline, which runs for it"),
        (TableMark(PIPELINE, 9, 80, epoch=3), "another table that had the name says so"),
        (TableMark("other", 10, 80, epoch=3), "another pipeline says so"),
        (TableMark(PIPELINE, 10, 80, epoch=1), "a record that was removed had that run"),
    ],
)
def test_what_a_table_says_counts_only_where_it_is_ahead_and_of_this_life(mark: TableMark, why: str) -> None:
    assert not rows_after(ledger(TableProgress(A, 20, incarnation=10)), Target({A: mark})), why


def test_tables_that_run_are_asked_only_after_a_cut_that_broke_off_and_those_that_stopped_always() -> None:
    rows = TableProgress(A, 20), TableProgress(B, 30, status=TableStatus.STOPPED)
    finished, broken = Target({B: TableMark(PIPELINE, 0, 40, epoch=3)}), Target()
    state = ledger(*rows, checkpoint=90, attempted=90)
    assert rows_after(state, finished)[B] == TableProgress(B, 40, after=False, status=TableStatus.STOPPED)
    assert finished.asked == {B}
    rows_after(ledger(*rows), broken)
    assert broken.asked == {A, B}


def test_a_table_without_a_row_gets_one_that_nothing_but_its_own_cuts_moves() -> None:
    state = ledger(TableProgress(A, 20))
    carried = caught_up(state, unknown(state, [A, B]), Target({B: TableMark(PIPELINE, 0, 40, epoch=3)}), None)
    assert carried is not None
    assert carried.update.tables == (TableProgress(B, 40, after=False, status=TableStatus.CATCHING_UP),)


def test_what_a_table_left_out_on_its_way_is_counted(tmp_path: Path) -> None:
    letters = open_dead_letters(str(tmp_path), PIPELINE)
    letters.put([Letter(A, 1, lo, "bad", lo + 1, PlaceInFile("f", offset=lo), raw=b"x") for lo in (10, 50, 60, 80)])
    state = ledger(TableProgress(A, 20))
    state.dead_letters[A] = 1
    carried = caught_up(state, in_doubt(state), Target({A: TableMark(PIPELINE, 0, 80, epoch=3)}), letters)
    assert carried is not None
    assert carried.update.dead_letters == {A: 3}


def test_a_table_that_is_moved_says_that_it_goes_back_and_not_yet_that_it_goes_forward() -> None:
    held = TableProgress(B, 30, status=TableStatus.HELD)
    state, target = ledger(TableProgress(A, 20), held), Target({A: TableMark(PIPELINE, 0, 80, epoch=3)})
    say_of_requests(state, [TableProgress(A, 50), held], target)
    assert target.marks == {A: TableMark(PIPELINE, 0, 80, epoch=3)}
    say_of_requests(state, [TableProgress(A, 49), replace(held, checkpoint=70, status=TableStatus.CATCHING_UP)], target)
    assert target.marks == {A: TableMark(PIPELINE, 0, 49, 49, 3), B: TableMark(PIPELINE, 0, 30, 30, 3)}


def test_a_table_that_says_nothing_says_what_the_ledger_does_unless_people_have_it() -> None:
    held, left = TableProgress(B, 30, status=TableStatus.HELD), TableProgress(TableId("shop", "c"), 30, status=TableStatus.EXCLUDED)
    state, target = ledger(TableProgress(A, 20, incarnation=10), held, left), Target({A: TableMark(PIPELINE, 9, 80, epoch=3)})
    carried = caught_up(state, in_doubt(state), target, None)
    assert carried is not None, "the step proves that the run still has the ledger"
    assert carried.update.tables == ()
    assert target.marks == {A: TableMark(PIPELINE, 10, 50, 50, 3)}


def test_a_table_that_a_later_run_wrote_shows_that_the_ledger_is_an_older_one() -> None:
    with pytest.raises(
        LedgerOutrunError, match=r"^shop\.a was last written by run 7 of pipeline 'p', but the ledger only knows runs up to 3"
    ) as found:
        rows_after(ledger(TableProgress(A, 20)), Target({A: TableMark(PIPELINE, 0, 30, epoch=7)}))
    assert found.value.epoch == 7


def test_a_mark_without_rows_stays_out_where_a_later_run_wrote_or_nothing_new_is_said() -> None:
    mark = TableMark(PIPELINE, 5, 60, 60, epoch=2)
    assert mark.replaces(None)
    assert mark.replaces(TableMark(PIPELINE, 5, 30, epoch=1))
    assert mark.replaces(TableMark(PIPELINE, 4, 30, epoch=2))
    assert mark.replaces(TableMark(PIPELINE, 5, 61, epoch=2)), "it goes back"
    assert not mark.replaces(TableMark(PIPELINE, 5, 30, epoch=2))
    assert not mark.replaces(TableMark(PIPELINE, 4, 30, epoch=3))


def test_a_table_says_the_end_of_its_segment_and_no_more_than_before_where_commit_ts_are_not_exact() -> None:
    schema = TableSchema(A, (), ("id",))
    segments = {A: Segment(Window(20, 90), 1, schema, ends=60), B: Segment(Window(20, 70), 1, schema)}
    rows = {A: TableProgress(A, 20, incarnation=5), B: TableProgress(B, 20)}
    context = WriterContext(PIPELINE, 3, 1, 0)
    marks = marks_of(context, Cut(90, checkpoints={A: 30, B: 20}), CutRound(segments=segments), rows)
    assert marks == {A: TableMark(PIPELINE, 5, 60, 30, 3), B: TableMark(PIPELINE, 0, 70, 20, 3)}
    inexact = marks_of(context, Cut(90, precision=CommitTsPrecision.MILLISECOND), CutRound(segments=segments), rows)
    assert inexact == {A: TableMark(PIPELINE, 5, 20, 20, 3), B: TableMark(PIPELINE, 0, 20, 20, 3)}


def test_a_commit_leads_on_from_what_the_table_says_of_this_life_and_of_no_later_run() -> None:
    mark = TableMark(PIPELINE, 5, 60, since=30, epoch=2)
    assert mark.follows(TableMark(PIPELINE, 5, 30, epoch=1))
    assert not mark.follows(None)
    assert not mark.follows(TableMark(PIPELINE, 5, 31, epoch=1))
    assert not mark.follows(TableMark(PIPELINE, 5, 30, epoch=3))
    assert not mark.follows(TableMark(PIPELINE, 4, 30, epoch=1))
    assert not mark.follows(TableMark(PIPELINE, 6, 30, epoch=1))
    assert not mark.follows(TableMark("other", 5, 30, epoch=1))
    assert not mark.follows(TableMark.of_no_life(PIPELINE, 2))
