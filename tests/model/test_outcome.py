"""What people are told stays readable, whatever it tells of."""

from __future__ import annotations

from dataclasses import replace

from headrace.model.outcome import Notice, Problem
from headrace.model.place import PlaceInFile
from headrace.model.table import TableId

T = TableId("test", "t")


def test_a_message_that_tells_a_statement_of_16_mib_is_cut_in_its_middle() -> None:
    statement = "x" * (16 << 20)
    for told in (Problem(T, f"this cannot run: {statement}. Skip it."), Notice(f"this cannot run: {statement}. Skip it.", T)):
        assert len(told.sentence()) < 10_000
        assert "this cannot run: xxx" in told.sentence()
        assert told.sentence().endswith("xxx. Skip it.")
        assert replace(told, place=PlaceInFile("a")).message == told.message


def test_a_message_of_usual_length_is_told_whole() -> None:
    assert Notice("x" * 5_000).sentence() == "x" * 5_000
