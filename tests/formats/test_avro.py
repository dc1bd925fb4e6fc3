"""Avro read by columns: every type, the first bad value, and schemas that are refused."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from avro_writer import long, written
from headrace.formats.avro.columns import MOST_ITEMS, BadValueError, decimal_texts, read_columns, read_sound
from headrace.formats.avro.schema import AvroSchemaError, Record, parse_schema
from headrace.formats.avro.text_arrays import MOST_TEXTS
from headrace.formats.schema_file import MOST_COLUMNS
from sampling import drawn

ROW: dict[str, Any] = {
    "type": "record",
    "name": "row",
    "namespace": "a.b",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "n", "type": ["null", {"type": "int", "connect.parameters": {"tidb_type": "INT"}}], "default": None},
        {"name": "text", "type": ["string", "null"]},
        {"name": "raw", "type": "bytes"},
        {"name": "flag", "type": "boolean"},
        {"name": "single", "type": "float"},
        {"name": "double", "type": "double"},
        {"name": "kind", "type": {"type": "enum", "name": "kind", "symbols": ["X", "Y", "Z"]}},
        {"name": "four", "type": {"type": "fixed", "name": "four", "size": 4}},
        {"name": "list", "type": {"type": "array", "items": ["null", "string"]}},
        {
            "name": "any",
            "type": {"type": "map", "values": ["null", "long", "string", {"type": "record", "name": "w", "fields": [
                {"name": "value", "type": "long"}
            ]}]},
        },
        {"name": "again", "type": ["null", "w"]},
    ],
}  # fmt: skip
LONGS = st.integers(-(1 << 63), (1 << 63) - 1)
TEXTS = st.text(max_size=20)
ROWS = st.fixed_dictionaries(
    {
        "id": LONGS,
        "n": st.none() | st.integers(-(1 << 31), (1 << 31) - 1),
        "text": st.none() | TEXTS,
        "raw": st.binary(max_size=20),
        "flag": st.booleans(),
        "single": st.floats(width=32, allow_nan=False),
        "double": st.floats(allow_nan=False),
        "kind": st.sampled_from("XYZ"),
        "four": st.binary(min_size=4, max_size=4),
        "list": st.lists(st.none() | TEXTS, max_size=5),
        "any": st.dictionaries(TEXTS, st.none() | LONGS | TEXTS | st.fixed_dictionaries({"value": LONGS}), max_size=5),
        "again": st.none() | st.fixed_dictionaries({"value": LONGS}),
    }
)


def plain(row: dict[str, Any]) -> dict[str, Any]:
    """What the columns of a row read as."""
    branches = {int: "long", str: "string", dict: "a.b.w"}
    entries = []
    for key, value in row["any"].items():
        told = dict.fromkeys(branches.values()) | {branches[type(value)]: value} if value is not None else None
        entries.append({"key": key, "value": told})
    return row | {"any": entries}


@given(st.lists(ROWS, max_size=6), st.booleans())
@settings(max_examples=drawn(60), deadline=None, derandomize=True)
def test_what_was_written_is_read(rows: list[dict[str, Any]], sized: bool) -> None:
    values = [b"frame" + written(ROW, row, sized) for row in rows]
    found = read_columns(parse_schema(json.dumps(ROW)), values, skip=5)
    assert found.to_pylist() == [plain(row) for row in rows]
    some = read_columns(parse_schema(json.dumps(ROW)), values, skip=5, wanted={"text", "again"})
    assert some.to_pylist() == [{"text": row["text"], "again": row["again"]} for row in rows]


@given(st.lists(ROWS, min_size=1, max_size=4), st.data())
@settings(max_examples=drawn(60), deadline=None, derandomize=True)
def test_bytes_that_are_cut_or_changed_are_an_error_or_other_values(rows: list[dict[str, Any]], data: st.DataObject) -> None:
    schema = parse_schema(json.dumps(ROW))
    values = [written(ROW, row) for row in rows]
    number = data.draw(st.integers(0, len(values) - 1))
    place = data.draw(st.integers(0, len(values[number]) - 1))
    if data.draw(st.booleans()):
        values[number] = values[number][:place]
        with pytest.raises(BadValueError) as told:
            read_columns(schema, values)
        assert told.value.number == number
        return
    values[number] = values[number][:place] + data.draw(st.binary(min_size=1, max_size=3)) + values[number][place + 1 :]
    try:
        found = read_columns(schema, values).to_pylist()
    except BadValueError as error:
        blamed, found = error.number, [plain(row) for row in rows]
    else:
        blamed = number
    assert blamed == number
    others = [n for n in range(len(rows)) if n != number]
    assert [found[n] for n in others] == [plain(rows[n]) for n in others]


@given(st.lists(st.tuples(ROWS, st.integers(0, 40), st.binary(max_size=3)), max_size=6))
@settings(max_examples=drawn(60), deadline=None, derandomize=True)
def test_values_that_can_be_read_and_reasons_are_the_same_as_one_by_one(
    drawn_rows: list[tuple[dict[str, Any], int, bytes]],
) -> None:
    """Each value is cut at a place, or has other bytes there, or is as it was written if the place is behind it."""
    schema = parse_schema(json.dumps(ROW))
    values = [written(ROW, row) for row, _, _ in drawn_rows]
    values = [v[:at] + (more + v[at + len(more) :] if more else b"") for v, (_, at, more) in zip(values, drawn_rows, strict=True)]
    rows, bad = {}, {}
    for number, value in enumerate(values):
        try:
            (rows[number],) = read_columns(schema, [value]).to_pylist()
        except BadValueError as error:
            bad[number] = (error.field, error.reason)
    found = read_sound(schema, values)
    assert dict(zip(found.numbers, found.rows.to_pylist(), strict=True)) == rows
    assert {number: (error.field, error.reason) for number, error in found.bad.items()} == bad


@pytest.mark.parametrize(
    ("told", "bad", "reason"),
    [
        ("long", b"\x80" * 9, "it ends in the middle of a value"),
        ("long", b"\x80" * 10, "a number has more than 64 bits"),
        ("long", b"\xff" * 9 + b"\x02", "a number has more than 64 bits"),
        ("int", long(1 << 31), "an int has more than 32 bits"),
        ("boolean", b"\x02", "a boolean is neither 0 nor 1"),
        ("string", long(1) + b"\xff", "a text is not UTF-8"),
        ("string", long(-1), "it ends in the middle of a value"),
        ("bytes", long(1 << 62), "it ends in the middle of a value"),
        (["null", "long"], long(2), "it has a type that its union does not have"),
        ({"type": "enum", "name": "e", "symbols": ["A"]}, long(1), "it has a symbol that its enum does not have"),
        ({"type": "array", "items": "null"}, long(1 << 62), "it has more items than bytes"),
    ],
)
def test_the_first_bad_value_is_named_with_its_field(told: Any, bad: bytes, reason: str) -> None:
    fields = [{"name": name, "type": of} for name, of in (("first", "long"), ("x", told), ("last", "string"))]
    schema = parse_schema(json.dumps({"type": "record", "name": "r", "fields": fields}))
    with pytest.raises(BadValueError) as found:
        read_columns(schema, [long(1) + bad, b"\xff"])
    assert (found.value.number, found.value.field, found.value.reason) == (0, "x", reason)


WORDS: dict[str, Any] = {"type": "array", "items": "string"}
NUMBERS: dict[str, Any] = {"type": "map", "values": "long"}


@pytest.mark.long
@pytest.mark.parametrize(
    ("told", "item", "reason"),
    [
        (NUMBERS, b"\0\0", "it has a map or an array of more than 4,096 items"),
        ({"type": "array", "items": "bytes"}, b"\0", "it has a map or an array of more than 4,096 items"),
        (WORDS, b"\0", "it has arrays of more than 1,000,000 texts together"),
    ],
    ids=["map", "array", "texts"],
)
def test_a_map_or_array_has_at_most_so_many_items(told: Any, item: bytes, reason: str) -> None:
    """In one block or several."""
    most = MOST_TEXTS if told is WORDS else MOST_COLUMNS
    full, half, single, end = (long(count) + item * count for count in (most, most // 2, 1, 0))
    more = long(most + 1) + item * (most + 1)
    found = read_sound(parse_schema(json.dumps(told)), [full + end, more + end, half + half + end, full + single + end, end])
    assert found.numbers == [0, 2, 4]
    assert found.rows.value_lengths().to_pylist() == [most, most, 0]
    assert {number: error.reason for number, error in found.bad.items()} == {1: reason, 3: reason}


@pytest.mark.parametrize("told", [NUMBERS, WORDS], ids=["maps", "texts"])
def test_the_maps_and_arrays_of_a_value_have_at_most_so_many_items_together(told: Any) -> None:
    most, item = (MOST_TEXTS, b"\0") if told is WORDS else (MOST_ITEMS, b"\0\0")
    schema = parse_schema(json.dumps({"type": "record", "name": "r", "fields": [{"name": n, "type": told} for n in "abcde"]}))
    quarter, end = long(most // 4) + item * (most // 4) + long(0), long(0)
    found = read_sound(schema, [quarter * 4 + end, quarter * 4 + long(1) + item + end])
    assert found.numbers == [0]
    assert (found.bad[1].field, "together" in found.bad[1].reason) == ("e", True)


def test_a_value_with_too_many_items_is_refused_before_they_are_read() -> None:
    schema = parse_schema(json.dumps(NUMBERS))
    began = time.process_time()
    found = read_sound(schema, [long(count) + b"\0" * 2 * count + long(0) for count in range(1_000_000, 1_000_010)])
    assert len(found.bad) == 10
    assert time.process_time() - began < 2


def test_values_that_fail_at_different_items_are_found_together() -> None:
    """The time of 400 reads of them all would be a minute."""
    schema = parse_schema(json.dumps(NUMBERS))
    values = [long(4000) + b"\0\0" * (3000 + number) + b"\1" + b"\0" * 2000 for number in range(400)]
    began = time.process_time()
    found = read_sound(schema, [*values, long(1) + b"\0\2" + long(0)])
    assert len(found.bad) == 400
    assert found.rows.to_pylist() == [[{"key": "", "value": 1}]]
    assert time.process_time() - began < 5


def test_as_many_texts_as_an_enum_may_have_members_take_no_step_each() -> None:
    schema = parse_schema(json.dumps(WORDS))
    texts = [f"m{number}" for number in range(65_535)]
    began = time.process_time()
    found = read_columns(schema, [written(WORDS, texts), written(WORDS, [])])
    assert time.process_time() - began < 2
    assert found.to_pylist() == [texts, []]


@given(st.lists(st.lists(TEXTS, max_size=5), max_size=5), st.data())
@settings(max_examples=drawn(60), deadline=None, derandomize=True)
def test_arrays_of_texts_are_read_or_told_one_by_one_as_together(lists: list[list[str]], data: st.DataObject) -> None:
    schema = parse_schema(json.dumps(WORDS))
    values = [written(WORDS, texts, data.draw(st.booleans())) for texts in lists]
    assert read_columns(schema, values).to_pylist() == lists
    cut = [value[: data.draw(st.integers(0, len(value)))] + data.draw(st.binary(max_size=2)) for value in values]
    found = read_sound(schema, cut)
    alone = [read_sound(schema, [value]) for value in cut]
    assert found.rows.to_pylist() == [row for one in alone for row in one.rows.to_pylist()]
    assert {number: error.reason for number, error in found.bad.items()} == {
        number: one.bad[0].reason for number, one in enumerate(alone) if one.bad
    }


def test_bytes_behind_a_value_are_told() -> None:
    with pytest.raises(BadValueError, match="it has bytes behind its value"):
        read_columns(parse_schema('"long"'), [long(1), long(1) + b"x"])


def test_no_value_gives_empty_columns() -> None:
    assert read_columns(parse_schema(json.dumps(ROW)), []).to_pylist() == []


@pytest.mark.parametrize(
    ("told", "reason"),
    [
        ("{", "is not defined"),
        ('{"type": "record", "name": "r", "fields": [{"name": "next", "type": ["null", "r"]}]}', "contains itself"),
        ('{"type": "record", "name": "r", "fields": [{"name": "a", "type": "int"}, {"name": "a", "type": "int"}]}', "of one name"),
        ('{"type": "record", "fields": []}', "has no name"),
        ('{"type": "record", "name": "r"}', "has no list of fields"),
        ('["null", "null"]', "has the same type twice"),
        ('{"type": "bytes", "logicalType": "decimal"}', "a decimal has the precision None"),
        ('{"type": "fixed", "name": "f", "size": -1}', "is not a number of bytes"),
        ('{"type": "enum", "name": "e"}', "has no list of symbols"),
        ('{"type": 5}', "5 is not a type"),
        ('{"type": "array", "items": ' * 40 + '"int"' + "}" * 40, "nested too deeply"),
    ],
)
def test_a_schema_that_cannot_be_read_is_told(told: str, reason: str) -> None:
    with pytest.raises(AvroSchemaError, match=reason):
        parse_schema(told)


def test_a_schema_that_grows_with_each_name_is_refused() -> None:
    """Each record holds the one before it ten times."""
    told: Any = {"type": "record", "name": "r0", "fields": [{"name": "a", "type": "int"}]}
    for number in range(1, 8):
        again = [{"name": f"f{n}", "type": f"r{number - 1}"} for n in range(1, 10)]
        told = {"type": "record", "name": f"r{number}", "fields": [{"name": "f0", "type": told}, *again]}
    with pytest.raises(AvroSchemaError, match="more than 50000 types and symbols"):
        parse_schema(json.dumps(told))


@pytest.mark.parametrize(
    "made",
    [
        lambda name: {"type": "record", "name": "r", "fields": [{"name": name, "type": "int"}]},
        lambda name: {"type": "record", "name": name, "fields": []},
        lambda name: {"type": "fixed", "name": "f", "namespace": name[2:], "size": 1},
        lambda name: {"type": "enum", "name": "e", "symbols": ["A", name]},
    ],
    ids=["field", "record", "namespace", "symbol"],
)
def test_a_name_of_more_than_512_characters_is_refused(made: Callable[[str], Any]) -> None:
    """Columns have the names of a type again in each place that the type has."""
    parse_schema(json.dumps(made("n" * 511)))
    with pytest.raises(AvroSchemaError, match="has more than 512 characters"):
        parse_schema(json.dumps(made("n" * 513)))


def test_symbols_count_wherever_their_enum_is_used() -> None:
    def told(uses: int) -> str:
        enum = {"type": "enum", "name": "e", "symbols": [f"S{number}" for number in range(1000)]}
        fields = [{"name": f"f{number}", "type": "e" if number else enum} for number in range(uses)]
        return json.dumps({"type": "record", "name": "r", "fields": fields})

    parse_schema(told(49))
    with pytest.raises(AvroSchemaError, match="more than 50000 types and symbols"):
        parse_schema(told(50))


def test_of_a_record_within_a_record_only_the_wanted_fields_are_read() -> None:
    inner = {"type": "record", "name": "s", "fields": [{"name": name, "type": "long"} for name in "abc"]}
    fields = [{"name": "source", "type": inner}, {"name": "op", "type": "string"}, {"name": "again", "type": "s"}]
    told = {"type": "record", "name": "r", "fields": fields}
    value = long(1) + long(2) + long(3) + b"\2x" + long(4) + long(5) + long(6)
    found = read_columns(parse_schema(json.dumps(told)), [value], wanted={"source": ("b",), "again": None})
    assert found.to_pylist() == [{"source": {"b": 2}, "again": {"a": 4, "b": 5, "c": 6}}]


def test_what_a_writer_says_of_its_types_is_kept() -> None:
    schema = parse_schema(json.dumps(ROW))
    assert isinstance(schema, Record)
    assert schema.full_name == "a.b.row"
    number, text = schema.field("n"), schema.field("text")
    assert number is not None
    assert text is not None
    assert (number.nullable, number.has_default, number.default) == (True, True, None)
    assert number.value_type.parameters == {"tidb_type": "INT"}  # type: ignore[union-attr]
    assert (text.nullable, text.has_default) == (True, False)


@given(st.lists(st.none() | st.decimals(-(10**22), 10**22, places=3), max_size=6), st.booleans())
@settings(max_examples=drawn(60), deadline=None, derandomize=True)
def test_a_decimal_is_written_as_mysql_writes_it(numbers: list[Decimal | None], short: bool) -> None:
    if short:
        numbers = [None if number is None else number / 10**12 for number in numbers]
    values = [None if n is None else int(n.scaleb(3)) for n in numbers]
    raw = [None if n is None else n.to_bytes(max(1, (n.bit_length() + 8) // 8), "big", signed=True) for n in values]
    texts = decimal_texts(pa.array(raw, pa.binary()), 3).to_pylist()
    assert [None if text is None else int(Decimal(text).scaleb(3)) for text in texts] == values
    assert all(text is None or len(text.partition(".")[2]) == 3 for text in texts)
    whole = decimal_texts(pa.array(raw, pa.binary()), 0).to_pylist()
    assert whole == [None if n is None else str(n) for n in values]
