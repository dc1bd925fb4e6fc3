"""A place in a source is told as what it is: a file and a line, or a partition and an offset."""

from __future__ import annotations

import pytest

from headrace.model.outcome import Notice, Problem
from headrace.model.place import PlaceInFile, PlaceInStream, SourcePlace
from headrace.model.table import TableId

T = TableId("shop", "orders")
FILE = PlaceInFile("shop/orders/7/CDC000001.csv")
PIECE = PlaceInStream("3", 10, 20)


@pytest.mark.parametrize(
    ("place", "told"),
    [
        (FILE, "file shop/orders/7/CDC000001.csv"),
        (FILE.at(line=7, offset=300), "file shop/orders/7/CDC000001.csv, line 7"),
        (FILE.at(offset=300), "file shop/orders/7/CDC000001.csv"),
        (PIECE, "partition 3, offsets 10 to 20"),
        (PlaceInStream("3", 10, 10), "partition 3, offset 10"),
        (PIECE.at(offset=14), "partition 3, offset 14"),
    ],
)
def test_a_problem_says_where_it_is(place: SourcePlace, told: str) -> None:
    assert Problem(T, "it is wrong.", place).sentence() == f"table shop.orders, {told}: it is wrong."


def test_a_notice_names_its_place_in_brackets() -> None:
    assert Notice("It is odd.", T, FILE).sentence() == "table shop.orders: It is odd. (shop/orders/7/CDC000001.csv)"
    assert Notice("It is odd.", T, PIECE).sentence() == "table shop.orders: It is odd. (partition 3, offsets 10 to 20)"


def test_only_what_lies_in_a_file_has_a_file() -> None:
    assert (Problem(T, "", FILE).file, Problem(T, "", PIECE).file, Problem(T, "").file) == (FILE.file, "", "")


def test_a_record_is_told_from_what_is_read_together() -> None:
    places = [FILE, PIECE, FILE.at(line=1), FILE.at(offset=0), PIECE.at(offset=14)]
    assert [place.is_record for place in places] == [False, False, True, True, True]
