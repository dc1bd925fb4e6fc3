"""JSON that would take much more memory than its bytes is refused before it is parsed."""

from __future__ import annotations

import json
import time

import pytest

from headrace.formats.json_lines import MOST_VALUES, read_object, require_few_values

MANY = b'{"a":[%s]}'


@pytest.mark.parametrize("value", [b"{}", b"[]", b"1", b'""', b'{"b":1}'])
def test_very_many_values_are_refused(value: bytes) -> None:
    with pytest.raises(ValueError, match="it has more than 1,000,000 JSON values"):
        read_object(MANY % b",".join([value] * (MOST_VALUES + 1)))


def test_what_is_in_texts_does_not_count() -> None:
    """A JSON column is a text in a message, and a row may have MiBs of it."""
    document = json.dumps([{"a": "b\\"}] * 400_000)
    assert read_object(json.dumps({"data": document}).encode())["data"] == document


@pytest.mark.parametrize("text", [b'"' + b'\\"' * 4_000_000, b'"' * 4_000_001, b'"\\' + b"\\" * 8_000_000])
def test_texts_without_an_end_take_time_in_proportion(text: bytes) -> None:
    begun = time.process_time()
    require_few_values(text)
    assert time.process_time() - begun < 5, "and hours if each quote were tried to the end"
