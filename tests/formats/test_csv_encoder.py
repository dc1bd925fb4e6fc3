"""What is encoded as CSV is what TiCDC writes, and what the decoder reads back."""

from __future__ import annotations

import json
import tomllib
from dataclasses import replace
from typing import Any, Literal

import pyarrow as pa
import pytest
from changes import table
from hypothesis import given, settings
from hypothesis import strategies as st
from random_blocks import TYPES, Change, block, changes_of_rows, same_rows, tables, values
from recorded import CASES, CONFORMANCE, options_of, schemas_of

from headrace.formats.csv import CsvOptions, decode_csv
from headrace.formats.csv_encoder import CsvEncoder
from headrace.formats.encoding import EncodeError
from headrace.model.table import Column, TableId, TableSchema
from headrace.model.types import ColumnType, TypeKind
from headrace.testing import ticdc_csv
from headrace.testing.ticdc_options import ChangefeedOptions

GOLDEN = [case for case in CASES if case.startswith("csv-")]
DIALECTS: tuple[dict[str, str], ...] = (
    {},
    {"delimiter": "\t", "quote": "'", "terminator": "\n", "null": "NULL"},
    {"delimiter": ";|", "quote": '"', "null": ""},
    {"delimiter": "[*]", "quote": "", "terminator": "\n"},
    {"delimiter": ",", "quote": ""},
    {"delimiter": "|", "quote": '"', "terminator": "#\n"},
)


def has_header(case: str) -> bool:
    described = json.loads((CONFORMANCE / case / "case.json").read_text())
    told: bool = tomllib.loads(described["changefeed_toml"])["sink"].get("csv", {}).get("output-field-header", False)
    return told


@pytest.mark.parametrize("case", GOLDEN)
def test_the_rows_of_a_golden_file_give_its_bytes_again(case: str) -> None:
    files = 0
    for schema, paths in schemas_of(CONFORMANCE / case):
        options = replace(options_of(CONFORMANCE / case)[0], header=has_header(case))
        if case == "csv-column-selector":
            options = replace(options, column_selected=lambda _, name: name != "secret")
        encoder = CsvEncoder(schema, options)
        for path in paths:
            data = path.read_bytes()
            parts = [encoder.header(), *(encoder.encode(batch).to_pybytes() for batch in decode_csv(data, schema, options))]
            assert b"".join(parts) == data
            files += 1
    assert files or case == "csv-databases"


@st.composite
def files(draw: st.DrawFn) -> tuple[TableSchema, list[Change], dict[str, Any]]:
    """A table, its changes, and settings under the names of the writer of test data."""
    schema, dialect = draw(tables()), draw(st.sampled_from(DIALECTS))
    marks = {dialect.get("delimiter", ","), dialect.get("quote", '"') or "\\"}
    can_be_named = not any(mark in column.name for mark in marks for column in schema.columns)
    settings_of_file: dict[str, Any] = {
        **dialect,
        "include_commit_ts": draw(st.booleans()),
        "output_old_value": draw(st.booleans()),
        "output_field_header": can_be_named and draw(st.booleans()),
        "binary_encoding_method": draw(st.sampled_from(["base64", "hex"])),
        "time_zone": draw(st.sampled_from(["UTC", "Asia/Shanghai"])),
    }
    return schema, draw(changes_of_rows(schema)), settings_of_file


def options_with(told: dict[str, Any]) -> CsvOptions:
    named = dict(told, header=told["output_field_header"], binary_encoding=told["binary_encoding_method"])
    del named["output_field_header"], named["binary_encoding_method"]
    return CsvOptions(**named)


@pytest.mark.long
@given(files())
@settings(max_examples=60, deadline=None)
def test_random_rows_are_the_bytes_of_the_independent_writer_and_are_read_back(
    drawn: tuple[TableSchema, list[Change], dict[str, Any]],
) -> None:
    schema, changes, told = drawn
    options, batch = options_with(told), block(schema, changes)
    encoder, writer = CsvEncoder(schema, options), ticdc_csv.CsvEncoder(ChangefeedOptions(**told), schema)
    wanted = writer.header() + "".join(writer.change(c.commit_ts, c.before, c.after) for c in changes)
    data = encoder.header() + encoder.encode(batch).to_pybytes()
    assert data == wanted.encode()
    expected = block(schema, changes, old_rows=told["output_old_value"])
    if not told["include_commit_ts"]:
        expected = expected.set_column(1, expected.schema.field(1), pa.array([0] * expected.num_rows, pa.int64()))
    assert same_rows(decode_csv(data, schema, options), expected)


@pytest.mark.parametrize("column_type", TYPES, ids=str)
@given(data=st.data())
@settings(max_examples=2, deadline=None)
def test_values_of_each_type_are_the_bytes_of_the_independent_writer(column_type: ColumnType, data: st.DataObject) -> None:
    schema = table(id="INT", v=column_type)
    drawn = data.draw(st.lists(st.none() | values(column_type), min_size=30, max_size=30))
    changes = [Change(5, None, {"id": number, "v": value}) for number, value in enumerate(drawn)]
    writer = ticdc_csv.CsvEncoder(ChangefeedOptions(), schema)
    wanted = "".join(writer.change(c.commit_ts, c.before, c.after) for c in changes).encode()
    assert CsvEncoder(schema, CsvOptions()).encode(block(schema, changes)).to_pybytes() == wanted


@pytest.mark.parametrize("encoding", ["base64", "hex"])
def test_bytes_of_every_length_and_value_are_encoded(encoding: Literal["base64", "hex"]) -> None:
    schema = table(id="INT", b="BLOB")
    changes = [Change(100, None, {"id": n, "b": bytes(range(n))}) for n in range(256)]
    batch = block(schema, changes).slice(3)
    options = CsvOptions(include_commit_ts=True, binary_encoding=encoding)
    assert same_rows(decode_csv(CsvEncoder(schema, options).encode(batch), schema, options), batch)


def test_an_update_that_moves_the_key_shows_which_row_is_gone() -> None:
    schema = table(id="INT", v="VARCHAR")
    moved = [Change(5, {"id": 1, "v": "a"}, {"id": 2, "v": "a"}), Change(6, {"id": 2, "v": "a"}, {"id": 2, "v": "b"})]
    data = CsvEncoder(schema, CsvOptions()).encode(block(schema, moved)).to_pybytes()
    assert data == b'"D","t","test",1,"a"\r\n"I","t","test",2,"a"\r\n"U","t","test",2,"b"\r\n'


def test_an_update_in_a_table_without_key_shows_which_row_is_gone() -> None:
    keyed = table(id="INT", v="VARCHAR")
    schema = TableSchema(keyed.table_id, keyed.columns)
    data = CsvEncoder(schema, CsvOptions()).encode(block(schema, [Change(5, {"id": 1, "v": "a"}, {"id": 1, "v": "b"})]))
    assert data.to_pybytes() == b'"D","t","test",1,"a"\r\n"I","t","test",1,"b"\r\n'


def test_the_handle_comes_before_the_row_and_is_read_past() -> None:
    schema, options = table(v="INT", w="VARCHAR"), CsvOptions(include_commit_ts=True, output_handle_key=True)
    batch = block(schema, [Change(5, None, {"v": -7, "w": None})])
    data = CsvEncoder(schema, options).encode(batch).to_pybytes()
    assert data == b'"I","t","test",5,"-7",-7,\\N\r\n'
    assert same_rows(decode_csv(data, schema, options), batch)


@pytest.mark.parametrize("key", [table(v="VARCHAR"), TableSchema(TableId("test", "t"), (Column("v", ColumnType(TypeKind.INT)),))])
def test_a_handle_that_only_tidb_knows_is_refused(key: TableSchema) -> None:
    with pytest.raises(EncodeError, match=r"^Table test\.t has no primary key of one integer column"):
        CsvEncoder(key, CsvOptions(output_handle_key=True))


def test_no_rows_are_no_bytes() -> None:
    schema = table(id="INT", v="VARCHAR")
    assert CsvEncoder(schema, CsvOptions()).encode(block(schema, [])).size == 0


def test_rows_with_wide_columns_are_encoded_like_others() -> None:
    schema = table(id="INT", v="VARCHAR", b="BLOB")
    rows = [Change(5, None, {"id": 1, "v": 'a"b', "b": b"xy"}), Change(6, None, {"id": 2, "v": None, "b": None})]
    batch = block(schema, rows)
    wide = batch.cast(
        pa.schema([batch.schema.field(n) for n in range(4)] + [pa.field("v", pa.large_string()), pa.field("b", pa.large_binary())])
    )
    encoder = CsvEncoder(schema, CsvOptions())
    assert encoder.encode(wide).equals(encoder.encode(batch))


# --- what CSV cannot carry --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "of_type", "value", "reason"),
    [
        (CsvOptions(quote="", null="NULL"), "VARCHAR", "NULL", "would be read as NULL"),
        (CsvOptions(quote="", null=""), "VARCHAR", "", "would be read as NULL"),
        (CsvOptions(null="-1"), "BIGINT", -1, "would be read as NULL"),
        (CsvOptions(), "DOUBLE", float("inf"), "has a value that is no number"),
        (CsvOptions(), "FLOAT", float("nan"), "has a value that is no number"),
        (CsvOptions(time_zone="Asia/Shanghai"), "TIMESTAMP", "2024-13-01 00:00:00", "is no TIMESTAMP"),
    ],
)
def test_a_value_that_csv_cannot_carry_is_an_error_that_names_it(
    options: CsvOptions, of_type: str, value: object, reason: str
) -> None:
    schema = table(id="INT", v=of_type)
    batch = block(schema, [Change(5, None, {"id": n, "v": v}) for n, v in enumerate([None, None, value, None])])
    with pytest.raises(EncodeError, match=rf"^Column v of test\.t .*{reason}") as raised:
        CsvEncoder(schema, options).encode(batch)
    assert (raised.value.row, raised.value.column, repr(raised.value.value)) == (2, "v", repr(value))


def test_the_error_of_an_update_names_the_row_in_the_batch() -> None:
    schema = table(id="INT", v="DOUBLE")
    good, bad = {"id": 1, "v": 1.0}, {"id": 1, "v": float("inf")}
    batch = block(schema, [Change(5, good, good), Change(5, good, bad)])
    with pytest.raises(EncodeError) as raised:
        CsvEncoder(schema, CsvOptions()).encode(batch)
    assert raised.value.row == 3


def test_changes_that_csv_cannot_carry_are_errors_that_name_the_table() -> None:
    schema = table(id="INT")
    batch = block(schema, [Change(5, {"id": 1}, {"id": 1})])
    with pytest.raises(EncodeError, match=r"^Table test\.t has an update without its old row"):
        CsvEncoder(schema, CsvOptions(output_old_value=True)).encode(batch.slice(1))
    with pytest.raises(EncodeError, match=r"^Table test\.t has an old row of an update that is not followed by the new row"):
        CsvEncoder(schema, CsvOptions()).encode(batch.slice(0, 1))
    with pytest.raises(EncodeError, match=r"^Table test\.t has a change without a commit ts"):
        CsvEncoder(schema, CsvOptions(include_commit_ts=True)).encode(block(schema, [Change(0, None, {"id": 1})]))
    with pytest.raises(EncodeError, match=r"^Column w of test\.t is not in the rows"):
        CsvEncoder(table(id="INT", w="INT"), CsvOptions()).encode(batch)


@pytest.mark.parametrize("name", ["a,b", 'a"', "a\n"])
def test_a_name_that_the_header_cannot_hold_is_an_error(name: str) -> None:
    """Nothing in the header is quoted or escaped."""
    with pytest.raises(EncodeError, match=r"^Column (?s:.*) of test\.t cannot be named in the header"):
        CsvEncoder(table(**{"id": "INT", name: "INT"}), CsvOptions(header=True))


@pytest.mark.parametrize(
    "told",
    [{"delimiter": "1"}, {"delimiter": "¦"}, {"null": "a,b"}, {"null": '"'}, {"null": "a\nb"}, {"terminator": "e"}]
    + [{"terminator": mark} for mark in (",", ",\n", "$,", '"', '"\n', '$"')]
    + [{"delimiter": "$$", "terminator": "$"}, {"delimiter": "|", "terminator": "||"}],
)
def test_marks_that_make_fields_ambiguous_are_refused(told: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="CSV"):
        CsvEncoder(table(id="INT"), CsvOptions(**told))
