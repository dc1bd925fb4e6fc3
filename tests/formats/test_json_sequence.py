"""JSON values one after the other in a text: the bound on the number of values holds for each of them, and not for all together."""

from __future__ import annotations

import json
import tracemalloc

import pytest
from changes import canal, table

from headrace.formats import json_sequence
from headrace.formats.base import DecodeError
from headrace.formats.canal_json import CanalJsonOptions, decode_canal_json, has_commit_ts
from headrace.formats.json_lines import MOST_VALUES
from headrace.formats.json_sequence import JsonSequence

SCHEMA = table(id="INT", v="VARCHAR")
MESSAGE = canal("INSERT", {"id": 1, "v": "a"})
DECODER = json.JSONDecoder()
TEXTS = [
    '{"a":"x"}{"b":[true,null]}12 -3.5e7 "}{,"',
    '{"a":"' + '\\u00e9\\"' * 9 + '"}{"b":[false]}nullnull',
    "[]" * 20 + '"' + "x" * 50 + '"7777',
    '{"a":tru}{"b":1}',
    '{"a":1,}{"b":1}',
    '{"a":"' + "x" * 30,
    '{"a":"\\u12"}',
]


def decoded(decode: object, text: str) -> list[object]:
    found, position = [], 0
    while position < len(text):
        try:
            value, position = decode(position)  # type: ignore[operator]
        except json.JSONDecodeError as error:
            return [*found, (error.msg, error.pos)]
        found.append((value, position))
        position += text[position : position + 1] == " "
    return found


@pytest.mark.parametrize("text", TEXTS)
def test_values_are_the_same_wherever_a_part_ends(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = decoded(lambda position: DECODER.raw_decode(text, position), text)
    for length in range(5, len(text) + 2):
        monkeypatch.setattr(json_sequence, "MOST_VALUES", length)
        assert decoded(JsonSequence(text, DECODER).decode, text) == expected, length


@pytest.mark.parametrize("terminator", ["", "|"])
def test_a_message_of_too_many_values_is_refused_before_it_is_parsed(terminator: str) -> None:
    good = MESSAGE + terminator.encode()
    many = b'{"data":[' + b"{}," * MOST_VALUES + b"{}]}" + terminator.encode()
    options = CanalJsonOptions(terminator)
    batches = decode_canal_json(good + many + good, SCHEMA, options)
    tracemalloc.start()
    assert next(batches).num_rows == 1
    with pytest.raises(DecodeError, match="it has more than 1,000,000 JSON values, and no message is like that"):
        next(batches)
    assert tracemalloc.get_traced_memory()[1] < 250 << 20
    tracemalloc.stop()
    assert has_commit_ts(many)


def test_messages_may_have_more_values_together() -> None:
    count = MOST_VALUES // 10
    data = MESSAGE * count
    rows = sum(batch.num_rows for batch in decode_canal_json(data, SCHEMA, CanalJsonOptions("")))
    assert rows == count


def test_a_long_message_of_few_values_is_read() -> None:
    message = json.dumps({"v": "}{" * MOST_VALUES})
    assert JsonSequence(message * 3, DECODER).decode(len(message)) == (json.loads(message), 2 * len(message))
