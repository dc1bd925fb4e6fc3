"""Every history once more as a backlog, in cuts that take next to nothing, one of which breaks off: the states are the same."""

from __future__ import annotations

import random
from itertools import count
from pathlib import Path

import pytest
import test_repeats
import test_semantics
from building import Bucket, ask, ledger
from histories import History, Stage, checkpoint, created, data, history

from headrace.cli.stopped_tables import new_request
from headrace.engine.loop import Loop
from headrace.model.ledger import RequestKind
from headrace.model.table import TableId
from headrace.model.tso import tso_from_ms
from quick import without_pauses

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


@pytest.mark.parametrize("end", ["DROP TABLE `t`", "RENAME TABLE `t` TO `x`"])
def test_files_of_a_table_that_is_gone_hold_up_no_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str) -> None:
    """TiCDC repeats them after a restart, and nobody reads them: each cut would end at its first row's ts, for ever."""
    bucket = Bucket(tmp_path)
    bucket.create("t", tso(100))
    bucket.create("u", tso(101))
    rows = [f"I {tso(110)} 1 a", f"I {tso(111)} 2 b"]
    bucket.rows(f"t/{tso(100)}/1", *rows)
    bucket.schema("x" if "RENAME" in end else "t", tso(120), "id,v", end, 14 if "RENAME" in end else 4)
    assert bucket.at(tso(200), max_cut=60).code == 0
    for number in (2, 3):
        bucket.rows(f"t/{tso(100)}/{number}", *rows)
    bucket.rows(f"u/{tso(101)}/1", f"I {tso(210)} 1 c")
    steps = count()

    def counted(loop: Loop) -> bool:
        assert next(steps) < 50, "the run goes on for ever"
        return step(loop)

    step = Loop._step
    monkeypatch.setattr(Loop, "_step", counted)
    assert (bucket.at(tso(300), max_cut=60).code, bucket.state("u")) == (0, [(1, "c")])


@pytest.mark.parametrize("damaged", ['"I","o","test",104,zz,"c"\n', '"I'])
def test_rows_are_given_up_in_parts_that_end_below_the_last_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damaged: str
) -> None:
    without_pauses(monkeypatch)
    bucket = Bucket(tmp_path)
    bucket.create("t")
    bucket.create("o", 101)
    bucket.at(103)
    bucket.write("test/o/101/CDC000001.csv", damaged)
    bucket.write("test/o/101/meta/CDC.index", "CDC000001.csv\n")
    bucket.rows("t/100/1", "I 112 1 a")
    bucket.at(113, max_cut=60)
    bucket.rows("o/101/2", "I 107 3 c", "I 114 2 d", "I 114 5 e", "D 118 3 c")
    bucket.at(119, max_cut=60)
    o = TableId("test", "o")
    ask(bucket, new_request(ledger(bucket), o, RequestKind.SKIP_ROWS, since=ledger(bucket).table_checkpoint(o), to=113))
    bucket.at(120, max_cut=60)
    bucket.write("test/o/101/CDC000001.csv", '"I","o","test",104,4,"a"\n"I","o","test",104,1,"b"\n"I","o","test",107,3,"c"\n')
    ran = [bucket.at(checkpoint, max_cut=60) for checkpoint in (122, 123)]
    assert [(run.code, run.stopped) for run in ran] == [(0, {}), (0, {})]
    assert (bucket.state("o"), bucket.state("t")) == ([(2, "d"), (5, "e")], [(1, "a")])
    assert ledger(bucket).table_checkpoint(o) == 123


def tso(milliseconds: int) -> int:
    return 463267587686662144 + tso_from_ms(milliseconds)
