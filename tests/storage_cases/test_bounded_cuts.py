"""Every history once more as a backlog, in cuts that take next to nothing, one of which breaks off: the states are the same."""

from __future__ import annotations

import random

import pytest
import test_repeats
import test_semantics
from histories import History, Stage, checkpoint, created, data, history

pytestmark = pytest.mark.pipeline

# Their files break what a writer keeps to, the order of commit ts within a file; what becomes of that has a test of its own.
UNORDERED = {"dispatchers split, move and repeat", "dispatchers of a table without key hold equal rows"}
CASES = [case for case in (*test_repeats.CASES, *test_semantics.CASES) if case.name not in UNORDERED]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_history(case: History, stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    stage.max_cut = 1
    stage.life(case).in_one_go_after_a_crash(random.Random(case.name), monkeypatch)


def test_a_file_out_of_order_stops_its_table_instead_of_losing_rows(stage: Stage) -> None:
    stage.max_cut = 1
    unordered = history(
        "a file whose first row is not its earliest",
        created("t"),
        created("u"),
        data("t/100/1", "I 110 1 a", "I 120 2 b"),
        data("t/100/2", "I 170 3 c", "I 115 4 d"),
        data("u/100/1", "I 110 1 a", "I 190 2 b"),
        checkpoint(200, {"u": ["1 a", "2 b"], "t": []}, {"t": "not in the order of their commit ts"}),
    )
    stage.life(unordered).in_one_go()
