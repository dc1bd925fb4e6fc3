"""A dead letter names the place of its record, in a file or in a stream; letters of before are read as they were."""

from __future__ import annotations

import json

from headrace.model.letters import Letter
from headrace.model.place import PlaceInFile, PlaceInStream
from headrace.model.table import TableId
from headrace.sinks.dead_letters import letter_from_json, letter_to_json

T = TableId("shop", "orders")
OF_BEFORE = """{
 "format": 1,
 "table": [
  "shop",
  "orders"
 ],
 "version": "7",
 "lo": "450253245302439944",
 "commit_ts": "450253245302439950",
 "reason": "This is no number.",
 "file": "shop/orders/7/CDC000001.csv",
 "line": 3,
 "offset": 0,
 "column": "id",
 "value": "x",
 "raw": "IkkiLCJvIg=="
}"""
"""As a Headrace wrote it that knew of files alone."""
NAME_OF_BEFORE = "450253245302439944-c81d46a75e49a511-0"


def test_a_letter_of_a_file_is_read_named_and_written_as_before() -> None:
    letter = letter_from_json(OF_BEFORE, "a.json")
    assert letter.place == PlaceInFile("shop/orders/7/CDC000001.csv", line=3, offset=0)
    assert letter.name == NAME_OF_BEFORE
    assert letter_to_json(letter) == OF_BEFORE


def test_a_letter_of_a_stream_tells_partition_and_offset() -> None:
    letter = Letter(T, 7, 100, "It is damaged.", 110, PlaceInStream("3", 1234), raw=b"x")
    told = json.loads(letter_to_json(letter))
    assert (told["partition"], told["offset"]) == ("3", 1234)
    assert not told.keys() & {"file", "line", "last"}
    assert letter_from_json(json.dumps(told), "a.json") == letter


def test_letters_of_a_stream_have_one_name_for_one_record() -> None:
    """Also where the record was read together with others than before."""
    places = [PlaceInStream("3", 1234), PlaceInStream("3", 1000, 2000).at(offset=1234), PlaceInStream("4", 1234)]
    first, again, other = (Letter(T, 7, 100, "It is damaged.", place=place, raw=b"x").name for place in places)
    assert first == again != other


def test_a_letter_of_a_row_has_no_place() -> None:
    letter = Letter(T, 7, 100, "It is refused.", key={"id": "1"}, row={"id": "1"})
    told = json.loads(letter_to_json(letter))
    assert not told.keys() & {"file", "line", "offset", "partition"}
    assert letter_from_json(json.dumps(told), "a.json").place is None


def test_a_letter_keeps_a_lone_surrogate_as_it_is() -> None:
    """JSON may write half of a pair, which UTF-8 cannot: it stays an escape."""
    half = "a\ud800b"
    letter = Letter(T, 7, 5, half, column=half, value=half, key={"k": half}, row={"k": half, half: "\U0001f600"})
    text = letter_to_json(letter)
    assert text.encode().decode() == text
    assert letter_from_json(text, "a.json") == letter
