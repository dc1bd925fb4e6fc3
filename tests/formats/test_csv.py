from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest
from changes import DELETE, INSERT, UPDATE_AFTER, UPDATE_BEFORE, Row, column_names, rows_and_error, rows_of, table

from headrace.formats.base import SchemaMismatchError, TruncatedRecordError
from headrace.formats.csv import CsvOptions, decode_csv, has_commit_ts
from headrace.formats.csv_exact import decode_exact
from headrace.model.block import block_schema
from headrace.model.table import Generated, TableId, TableSchema
from headrace.model.types import ColumnType, TypeKind

ID_V = table(id="INT", v="VARCHAR")
ORDERS = table(
    id="BIGINT UNSIGNED", amount="DECIMAL", state="ENUM", note="VARCHAR", flags="BIT", made="YEAR", at="TIMESTAMP", pic="VARBINARY"
)
ORDER = b'1,"10.50","new","say ""hi"", ok",5,2024,"2024-06-05 09:30:23.694","iVBORw0KGgo="\r\n'
OLD_VALUE = (
    b'"I","orders","shop",450253245302439944,false,'
    + ORDER
    + b'"D","orders","shop",450253245302439951,true,'
    + ORDER
    + b'"I","orders","shop",450253245302439951,true,1,"10.50","paid","\\N",\\N,\\N,\\N,\\N\r\n'
)
ESCAPE = CsvOptions(quote="")


def decode(data: bytes, schema: TableSchema = ID_V, options: CsvOptions | None = None) -> list[Row]:
    """The rows, by both ways, which must agree."""
    options = options or CsvOptions()
    rows = rows_of(decode_csv(pa.py_buffer(data), schema, options))
    assert rows_of(decode_exact(memoryview(data), schema, options)) == rows
    return rows


def line(*fields: str) -> bytes:
    return (",".join(fields) + "\r\n").encode()


def insert(*fields: str, ts: int = 110) -> bytes:
    return line('"I"', '"t"', '"test"', str(ts), *fields)


def test_batches_have_the_layout_of_a_block() -> None:
    batch = next(decode_csv(OLD_VALUE, ORDERS, CsvOptions()))
    assert batch.schema == block_schema(ORDERS.columns)
    assert batch.column(2).to_pylist() == [0, 1, 2]


def test_a_delimiter_of_several_characters_in_quote_mode() -> None:
    data = b'"D"||"t"||"test"||110||1||"a||b""|"\r\n'
    assert decode(data, options=CsvOptions(delimiter="||")) == [(DELETE, 110, 1, 'a||b"|')]


@pytest.mark.timeout(20, method="signal")
def test_a_text_that_comes_first_is_no_commit_ts() -> None:
    """Where no setting says whether there is one."""
    schema = table(k="VARCHAR", v="VARCHAR")
    for first in ("abc", "", "9" * 40, "²"):
        assert [row[2:] for row in decode(line('"I"', '"t"', '"test"', f'"{first}"', '"a"'), schema)] == [(first, "a")]


@pytest.mark.parametrize("terminator", ["\r\n", "\n", "\r", "|\n", "<end>"])
def test_every_terminator_ends_records(terminator: str) -> None:
    data = b"".join(insert(str(number), '"a\r\nb"').replace(b'b"\r\n', b'b"' + terminator.encode()) for number in range(3))
    assert decode(data, options=CsvOptions(terminator=terminator)) == [(INSERT, 110, number, "a\r\nb") for number in range(3)]


def test_lf_where_crlf_was_told_still_ends_records() -> None:
    assert len(decode(insert("1", '"a"').replace(b"\r", b"") * 2)) == 2


HEADER = b"ticdc-meta$operation,ticdc-meta$table,ticdc-meta$schema,ticdc-meta$commit-ts,"


def test_a_file_with_only_a_header_has_no_rows() -> None:
    assert decode(HEADER + b"id,v\r\n") == []
    assert decode(b"") == []


def test_a_header_maps_columns_by_name_without_case() -> None:
    data = HEADER + b"V,ID\r\n" + insert('"a"', "1")
    assert decode(data) == [(INSERT, 110, 1, "a")]
    assert column_names(decode_csv(data, ID_V, CsvOptions())) == ["id", "v"]


def test_header_lines_in_the_middle_are_dropped() -> None:
    part = HEADER + b"id,v\r\n" + insert("1", '"a"')
    assert decode(part + part) == [(INSERT, 110, 1, "a")] * 2


def test_only_the_place_makes_a_header_name_a_meta_name() -> None:
    schema = table(**{"id": "INT", "ticdc-meta$commit-ts": "INT"})
    data = HEADER + b"id,ticdc-meta$commit-ts\r\n" + insert("1", "7")
    assert decode(data, schema) == [(INSERT, 110, 1, 7)]


def test_a_header_column_that_the_schema_file_lacks_is_a_mismatch() -> None:
    _, error = rows_and_error(decode_csv(HEADER + b"id,w\r\n" + insert("1", '"a"'), ID_V, CsvOptions()))
    assert isinstance(error, SchemaMismatchError)
    assert error.column == "w"


def test_timestamps_are_shifted_to_utc_with_their_fraction() -> None:
    schema = table(id="INT", at="TIMESTAMP", dt="DATETIME")
    same = '"2024-06-05 09:30:23"'
    data = b"".join(
        insert(str(number), text, same)
        for number, text in enumerate(['"2024-06-05 07:30:23.069400"', '"0000-00-00 00:00:00.000"', "\\N", '"2024-01-01 08:00:00"'])
    )
    rows = decode(data, schema, CsvOptions(time_zone="Asia/Shanghai"))
    assert [row[3] for row in rows] == ["2024-06-04 23:30:23.069400", "0000-00-00 00:00:00.000", None, "2024-01-01 00:00:00"]
    assert {row[4] for row in rows} == {"2024-06-05 09:30:23"}
    assert [row[3] for row in decode(data, schema, CsvOptions(time_zone="+08:00"))] == [row[3] for row in rows]


def test_an_update_without_old_values_is_an_upsert_and_a_delete_a_delete() -> None:
    data = insert("1", '"a"').replace(b'"I"', b'"U"') + insert("1", '"a"').replace(b'"I"', b'"D"')
    assert [row[0] for row in decode(data)] == [UPDATE_AFTER, DELETE]


def test_old_and_new_row_of_an_update_are_told_from_delete_and_insert() -> None:
    data = b"".join(
        line(f'"{operation}"', '"t"', '"test"', "120", update, "1", '"a"')
        for operation, update in [("D", "true"), ("I", "true"), ("D", "false"), ("I", "false")]
    )
    assert [row[0] for row in decode(data)] == [UPDATE_BEFORE, UPDATE_AFTER, DELETE, INSERT]


def test_without_a_commit_ts_it_is_zero() -> None:
    data = line('"I"', '"t"', '"test"', "1", '"a"')
    assert decode(data) == [(INSERT, 0, 1, "a")]
    assert decode(line('"I"', '"t"', '"test"', "true", "1", '"a"')) == [(UPDATE_AFTER, 0, 1, "a")]


def test_the_hidden_handle_key_field_is_skipped() -> None:
    data = insert('"k1"', "1", '"a"')
    assert decode(data, options=CsvOptions(output_handle_key=True)) == [(INSERT, 110, 1, "a")]
    header = HEADER + b"v,id\r\n" + insert('"k1"', '"a"', "1")
    assert decode(header, options=CsvOptions(output_handle_key=True)) == [(INSERT, 110, 1, "a")]


def virtual(schema: TableSchema, name: str) -> TableSchema:
    return replace(schema, columns=tuple(replace(c, generated=Generated.VIRTUAL) if c.name == name else c for c in schema.columns))


def test_a_virtual_column_is_left_out_when_it_is_known_and_explained_when_not() -> None:
    schema = table(id="INT", g="INT", v="VARCHAR")
    data = insert("1", '"a"')
    assert decode(data, virtual(schema, "g")) == [(INSERT, 110, 1, "a")]
    assert decode(HEADER + b"id,v\r\n" + data, schema) == [(INSERT, 110, 1, "a")]
    data = insert("1", '"a"', ts=450253245302439944)
    for options in (CsvOptions(), CsvOptions(include_commit_ts=True), CsvOptions(include_commit_ts=True, output_old_value=False)):
        _, error = rows_and_error(decode_csv(data, schema, options))
        assert isinstance(error, SchemaMismatchError)
        assert "output-field-header" in error.hint


def test_a_column_selector_says_which_columns_rows_lack() -> None:
    def selected(table_id: TableId, name: str) -> bool:
        return name != "v"

    assert decode(insert("1"), options=CsvOptions(column_selected=selected)) == [(INSERT, 110, 1)]
    assert column_names(decode_csv(insert("1"), ID_V, CsvOptions(column_selected=selected))) == ["id"]


def test_has_commit_ts_looks_at_options_header_and_first_record() -> None:
    assert has_commit_ts(insert("1", '"a"'), ID_V, CsvOptions())
    assert not has_commit_ts(line('"I"', '"t"', '"test"', "1", '"a"'), ID_V, CsvOptions())
    assert not has_commit_ts(HEADER.replace(b"ticdc-meta$commit-ts,", b"") + b"id,v\r\n", ID_V, CsvOptions())
    assert has_commit_ts(b"", ID_V, CsvOptions())
    assert not has_commit_ts(b"", ID_V, CsvOptions(include_commit_ts=False))


def error_of(data: bytes, schema: TableSchema = ID_V, options: CsvOptions | None = None) -> tuple[int, object]:
    """How many rows come first, and where the error is, by both ways, which must agree."""
    found = []
    for decoder in (decode_csv, lambda d, s, o: decode_exact(memoryview(d), s, o)):
        rows, error = rows_and_error(decoder(data, schema, options or CsvOptions()))
        found.append((len(rows), (error.line, error.column, error.value)))
    assert found[0] == found[1]
    return found[0]


@pytest.mark.parametrize(
    ("bad", "place"),
    [
        (insert("abc", '"a"'), (4, "id", "abc")),
        (insert("9223372036854775808", '"a"'), (4, "id", "9223372036854775808")),
        (insert("1", '"a"').replace(b'"I"', b'"X"'), (4, "operation", "X")),
        (insert("1", '"a"').replace(b"110", b"soon"), (4, "commit-ts", "soon")),
        (insert("1", '"a"', "5"), (4, "", None)),
        (insert("1"), (4, "", None)),
        (insert("1", '"a"b"'), (4, "", '"a"b"')),
        (b'"I","t","test",110,1,"\xff"\r\n', (4, "v", "\ufffd")),
    ],
)
def test_a_bad_value_is_located_and_the_rows_before_it_are_kept(bad: bytes, place: object) -> None:
    good = insert("1", '"two\r\nlines"') + insert("2", '"b"')
    assert error_of(good + bad + insert("5", '"e"')) == (2, place)


@pytest.mark.parametrize("number", ["7 ", " 7", "7\t", "\t7 "])
def test_blanks_around_a_number_are_passed_over_in_both_ways_of_reading(number: str) -> None:
    """As where the line break in front of them is damaged."""
    assert decode(insert(number, '"a"') + insert("8", '"b"')) == [(INSERT, 110, 7, "a"), (INSERT, 110, 8, "b")]
    blank = insert("7", '"a"').replace(b"110", number.replace("7", "110").encode())
    assert decode(insert("8", '"b"') + blank) == [(INSERT, 110, 8, "b"), (INSERT, 110, 7, "a")]


@pytest.mark.long
def test_a_bad_value_far_into_a_large_file_is_located() -> None:
    rows = [insert(str(number), '"' + "x" * 60 + '"') for number in range(120_000)]
    rows[100_000] = insert("oops", '"b"')
    decoded, error = rows_and_error(decode_csv(b"".join(rows), ID_V, CsvOptions()))
    assert len(decoded) == 100_000
    assert (error.line, error.column, error.value) == (100_001, "id", "oops")


def test_a_value_larger_than_a_read_block_decodes() -> None:
    text = "y" * 5_000_000
    assert decode(insert("1", '"a"') + insert("2", f'"{text}"') + insert("3", '"b"'))[1] == (INSERT, 110, 2, text)


@pytest.mark.parametrize("cut", [1, 2, 3, 6])
@pytest.mark.parametrize("options", [CsvOptions(), CsvOptions(delimiter=",", terminator="\r\n", include_commit_ts=True)])
def test_a_record_cut_off_comes_after_the_complete_ones_with_its_commit_ts(cut: int, options: CsvOptions) -> None:
    data = insert("1", '"a\r\nb"') + insert("3", '"abcdef"', ts=130)[:-cut]
    rows, error = rows_and_error(decode_csv(data, ID_V, options))
    assert rows == [(INSERT, 110, 1, "a\r\nb")]
    assert isinstance(error, TruncatedRecordError)
    assert (error.line, error.commit_ts) == (3, 130)


def test_a_cut_at_a_line_end_inside_quotes_is_noticed() -> None:
    rows, error = rows_and_error(decode_csv(insert("1", '"a"') + insert("3", '"ab\r\n'), ID_V, CsvOptions()))
    assert len(rows) == 1
    assert isinstance(error, TruncatedRecordError)
    assert error.commit_ts == 110


def test_a_cut_before_the_end_of_the_commit_ts_leaves_it_open() -> None:
    _, error = rows_and_error(decode_csv(insert("1", '"a"') + b'"I","t","test",13', ID_V, CsvOptions()))
    assert isinstance(error, TruncatedRecordError)
    assert error.commit_ts is None


def test_a_cut_record_in_escape_mode_is_noticed() -> None:
    rows, error = rows_and_error(decode_csv(b"I,t,test,110,1,a\r\nI,t,test,130,2,b\\", ID_V, ESCAPE))
    assert len(rows) == 1
    assert isinstance(error, TruncatedRecordError)
    assert error.commit_ts == 130


def test_batches_are_of_bounded_size() -> None:
    data = insert("1", '"a"') * 300_000
    sizes = [batch.num_rows for batch in decode_csv(data, ID_V, CsvOptions())]
    assert sum(sizes) == 300_000
    assert max(sizes) <= 131_072


@pytest.mark.parametrize(
    "wrong",
    [
        {"terminator": ""},
        {"delimiter": ""},
        {"quote": '""'},
        {"quote": "", "terminator": "|"},
        {"quote": "", "delimiter": "||"},
        {"quote": "", "delimiter": "|+|"},
        {"quote": "", "delimiter": "N"},
        {"quote": "", "delimiter": "+n"},
        {"binary_encoding": "rot13"},
        {"time_zone": "Mars/Olympus"},
    ],
)
def test_options_that_cannot_work_are_refused(wrong: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        CsvOptions(**wrong)  # type: ignore[arg-type]


def test_members_do_not_matter_to_csv() -> None:
    schema = table(id="INT", e=ColumnType(TypeKind.ENUM, elements=("1", "2")))
    assert decode(insert("1", '"2"'), schema) == [(INSERT, 110, 1, "2")]
