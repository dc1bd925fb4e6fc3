"""What is told of a problem can be written everywhere, whatever a file holds."""

from __future__ import annotations

import pytest

from headrace.model.outcome import Notice, Problem
from headrace.model.place import PlaceInFile, PlaceInStream, SourcePlace
from headrace.model.table import TableId

T = TableId("test", "t")
HALF = "v\ud800"


@pytest.mark.parametrize("field", ["message", "column", "value", "hint", "row"])
def test_half_of_a_character_in_a_problem_is_escaped(field: str) -> None:
    told = Problem(T, **{"message": "odd", field: HALF}).sentence()  # type: ignore[arg-type]
    assert "v\\ud800" in told.replace("\\\\", "\\")
    told.encode()


@pytest.mark.parametrize("place", [PlaceInFile(HALF, 3), PlaceInStream(HALF, 3)])
def test_half_of_a_character_in_a_place_is_escaped(place: SourcePlace) -> None:
    told = Problem(T, "odd", place).sentence()
    assert "v\\ud800" in told
    told.encode()


def test_half_of_a_character_in_a_notice_is_escaped() -> None:
    assert Notice(HALF, T, PlaceInFile(HALF)).sentence() == "table test.t: v\\ud800 (v\\ud800)"


def test_other_characters_stay() -> None:
    assert Problem(T, "größer 😀", column="ß").sentence() == "table test.t, column ß: größer 😀"
