"""Section 8.3 of the specification of TiCDC's storage output: decoding CSV.

What a file says is read twice: by Arrow's reader where it knows the dialect, and record by record.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from building import Bucket

from headrace.errors import EXIT_TABLE_STOPPED
from headrace.formats.csv import CsvOptions
from headrace.model.block import ChangeBlock
from headrace.model.split import Window
from headrace.sources.ticdc_storage.position import StoragePosition
from storage_folder import ID, OPTIONS, V

pytestmark = pytest.mark.pipeline

GOLDEN = Path(__file__).parents[1] / "golden" / "ticdc-schema"
CRLF = "protocol=csv&date-separator=none"
ESCAPE = f"{OPTIONS}&quote="
ORDER = b'1,"10.50","new","say ""hi"", ok",5,2024,"2024-06-05 09:30:23.694","iVBORw0KGgo="\r\n'
ORDERS = tuple(json.loads((GOLDEN / "orders.json").read_bytes())["TableColumns"])
HEADER = "ticdc-meta$operation,ticdc-meta$table,ticdc-meta$schema,ticdc-meta$commit-ts,"


@pytest.fixture(params=["columns", "records"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "records":
        monkeypatch.setattr(CsvOptions, "is_columnar", False)


both_ways = pytest.mark.usefixtures("way")


@pytest.fixture
def bucket(tmp_path: Path) -> Bucket:
    return Bucket(tmp_path)


def column(name: str, kind: str, **more: Any) -> dict[str, Any]:
    return {"ColumnName": name, "ColumnType": kind, **more}


@both_ways
def test_t24_the_default_dialect_with_old_values(tmp_path: Path) -> None:
    data = b'"I","orders","shop",450253245302439944,false,' + ORDER
    data += b'"D","orders","shop",450253245302439951,true,' + ORDER
    data += b'"I","orders","shop",450253245302439951,true,1,"10.50","paid","\\N",\\N,\\N,\\N,\\N\r\n'
    rows, report = Bucket(tmp_path, CRLF).decoded(data, ORDERS)
    order = (1, "10.50", "new", 'say "hi", ok', 5, 2024, "2024-06-05 09:30:23.694", b"\x89PNG\r\n\x1a\n")
    assert rows == [
        ("I", 450253245302439944, *order),
        ("-", 450253245302439951, *order),
        ("+", 450253245302439951, 1, "10.50", "paid", "\\N", None, None, None, None),
    ]
    assert (report.rows, report.problem) == (3, None)


@both_ways
@pytest.mark.parametrize("kind", ["VARCHAR", "VARBINARY"])
def test_t25_escape_mode_tells_null_from_the_text(tmp_path: Path, kind: str) -> None:
    data = b"I,orders,shop,450253245302439944,1,10.50,new,a\\,b\\\\c\\nd,5,2024,\\N,\\\\N\n"
    rows, report = Bucket(tmp_path, ESCAPE).decoded(data, (*ORDERS[:-1], column("pic", kind)))
    if kind == "VARCHAR":
        assert rows == [("I", 450253245302439944, 1, "10.50", "new", "a,b\\c\nd", 5, 2024, None, "\\N")]
        assert report.problem is None
    else:
        assert rows == []
        assert report.problem is not None
        assert str(report.problem.place).endswith(".csv, line 1")
        assert (report.problem.column, report.problem.value) == ("pic", "\\N")


@both_ways
@pytest.mark.parametrize("options", [CRLF, OPTIONS])
def test_t26_line_breaks_delimiters_quotes_and_backslashes_stay_inside_quotes(tmp_path: Path, options: str) -> None:
    rows, report = Bucket(tmp_path, options).decoded(
        b'"I","t","test",110,1,"a\r\nb"",""c""d\\"' + (b"\r\n" if options == CRLF else b"\n")
    )
    assert (rows, report.problem) == ([("I", 110, 1, 'a\r\nb","c"d\\')], None)


@both_ways
@pytest.mark.parametrize(
    ("null", "field", "value"),
    [
        ("\\N", "\\N", None),
        ("\\N", '"\\N"', "\\N"),
        ("\\N", '""', ""),
        ("\\N", '"NULL"', "NULL"),
        ("NULL", "NULL", None),
        ("NULL", '"NULL"', "NULL"),
        ("NULL", '""', ""),
        ("", "", None),
        ("", '""', ""),
    ],
)
def test_t27_null_is_the_null_string_without_quotes(tmp_path: Path, null: str, field: str, value: str | None) -> None:
    rows, report = Bucket(tmp_path, f"{OPTIONS}&null={null}").decoded(f'"I","t","test",110,1,{field}\n'.encode())
    assert (rows, report.problem) == ([("I", 110, 1, value)], None)


@both_ways
@pytest.mark.parametrize(("field", "value"), [("\\N", None), ("", ""), ("\\\\N", "\\N"), ("NULL", "NULL"), ("a\\\\", "a\\")])
def test_t27_null_in_escape_mode_is_the_raw_null_string(tmp_path: Path, field: str, value: str | None) -> None:
    rows, report = Bucket(tmp_path, ESCAPE).decoded(f"I,t,test,110,1,{field}\n".encode())
    assert (rows, report.problem) == ([("I", 110, 1, value)], None)


@both_ways
def test_t28_a_delimiter_of_three_bytes_in_escape_mode(tmp_path: Path) -> None:
    rows, report = Bucket(tmp_path, f"{ESCAPE}&delimiter=[*]").decoded(b"D[*]t[*]test[*]110[*]1[*]a\\[\\*\\]b\n")
    assert (rows, report.problem) == ([("D", 110, 1, "a[*]b")], None)


@pytest.mark.parametrize("told", ["", "&output-field-header=true"])
def test_t29_a_file_with_only_a_header_has_no_rows_and_is_consumed(tmp_path: Path, told: str) -> None:
    bucket = Bucket(tmp_path, OPTIONS + told)
    bucket.create("t")
    bucket.write("test/t/100/CDC000001.csv", HEADER + 'id,v\n"I","t","test",110,1,"a"\n"I","t","test",120,2,"b"\n')
    bucket.write("test/t/100/CDC000002.csv", HEADER + "id,v\n")
    bucket.checkpoint(200)
    consumer = bucket.consumer()
    consumer.cut()
    assert [(report.rows, report.problem) for report in consumer.reports] == [(2, None), (0, None)]
    position = StoragePosition.parse(consumer.position)
    assert (position.open, position.consumed["test/t/100"]) == ({}, {"/6": ((1, 2),)})
    assert bucket.run().code == 0
    assert bucket.state() == [(1, "a"), (2, "b")]


@both_ways
def test_t30_a_header_maps_columns_by_name(bucket: Bucket) -> None:
    rows, report = bucket.decoded((HEADER + 'v,id\n"I","t","test",110,"a",1\n').encode())
    assert (rows, report.problem) == ([("I", 110, 1, "a")], None)


@both_ways
@pytest.mark.parametrize(("encoding", "text"), [("hex", "00ff10"), ("base64", "AP8Q")])
def test_t31_both_binary_encodings_give_the_bytes(tmp_path: Path, encoding: str, text: str) -> None:
    bucket = Bucket(tmp_path, f"{OPTIONS}&binary-encoding-method={encoding}")
    columns = (ID, column("b", "BLOB"))
    data = f'"I","t","test",110,1,"{text}"\n"I","t","test",110,2,""\n"I","t","test",110,3,\\N\n'
    rows, _ = bucket.decoded(data.encode(), columns)
    assert rows == [("I", 110, 1, b"\x00\xff\x10"), ("I", 110, 2, b""), ("I", 110, 3, None)]


EXTREMES: list[tuple[str, str, object]] = [
    ("TINYINT UNSIGNED", "255", 255),
    ("SMALLINT", "-32768", -32768),
    ("MEDIUMINT UNSIGNED", "16777215", 16777215),
    ("INT", "-2147483648", -2147483648),
    ("BIGINT UNSIGNED", "18446744073709551615", 18446744073709551615),
    ("BIGINT", "-9223372036854775808", -9223372036854775808),
    ("BIT UNSIGNED", "18446744073709551615", 18446744073709551615),
    ("YEAR UNSIGNED", "0", 0),
    ("YEAR", "2155", 2155),
    ("FLOAT", "1.6777216e+07", 16777216.0),
    ("DOUBLE", "1e-05", 1e-05),
    ("DOUBLE", "1.2345678901234568e+20", 1.2345678901234568e20),
    ("DECIMAL", '"-' + "9" * 65 + '"', "-" + "9" * 65),
    ("CHAR", '"naïve 😀"', "naïve 😀"),
    ("LONGTEXT", '"null"', "null"),
    ("VARBINARY", '"AP8Q"', b"\x00\xff\x10"),
    ("DATE", '"0000-00-00"', "0000-00-00"),
    ("DATETIME", '"2024-00-00 00:00:00.000001"', "2024-00-00 00:00:00.000001"),
    ("TIMESTAMP", '"0000-00-00 00:00:00"', "0000-00-00 00:00:00"),
    ("TIME", '"-838:59:59"', "-838:59:59"),
    ("ENUM", '"it\'s, a"', "it's, a"),
    ("SET", '"a,c"', "a,c"),
    ("JSON", '"{""big"": 123456789012345678901234567890}"', '{"big": 123456789012345678901234567890}'),
    ("VECTOR", '"[1,2.5,3]"', "[1,2.5,3]"),
]


@both_ways
def test_t32_a_row_of_all_types_at_their_extremes_is_exact(bucket: Bucket) -> None:
    columns = tuple(column(f"c{number}", kind) for number, (kind, _, _) in enumerate(EXTREMES))
    data = '"I","t","test",110,1,' + ",".join(field for _, field, _ in EXTREMES) + "\n"
    rows, report = bucket.decoded(data.encode(), (ID, *columns))
    assert report.problem is None
    assert rows == [("I", 110, 1, *(value for _, _, value in EXTREMES))]


@pytest.mark.parametrize(
    ("kind", "field"),
    [
        ("TINYINT UNSIGNED", "256"),
        ("TINYINT", "-129"),
        ("INT", "2147483648"),
        ("BIGINT", "9223372036854775808"),
        ("BIGINT UNSIGNED", "18446744073709551616"),
        ("DATE", '"0000-00-00"'),
        ("DATETIME", '"2024-00-00 00:00:00"'),
    ],
)
def test_t32_what_a_target_cannot_hold_stops_its_table(bucket: Bucket, kind: str, field: str) -> None:
    bucket.schema("t", 100, (ID, column("c", kind)))
    bucket.write("test/t/100/CDC000001.csv", f'"I","t","test",110,1,{field}\n')
    ran = bucket.at(200)
    assert ran.code == EXIT_TABLE_STOPPED
    assert "column c" in ran.stopped["test.t"]
    assert field.strip('"') in ran.stopped["test.t"]
    assert not bucket.state()


def test_t32_decimals_that_a_target_cannot_hold_are_refused_or_kept_as_text(bucket: Bucket) -> None:
    bucket.schema("t", 100, (ID, column("c", "DECIMAL", ColumnPrecision="65", ColumnScale="0")))
    bucket.write("test/t/100/CDC000001.csv", f'"I","t","test",110,1,"{"9" * 65}"\n')
    ran = bucket.at(200)
    assert ran.code == EXIT_TABLE_STOPPED
    assert "38 digits" in ran.stopped["test.t"]
    assert bucket.run(f"{bucket.sink}?unsupported=text").code == 0
    assert bucket.state() == [(1, "9" * 65)]


G = column("g", "INT", ColumnPrecision="11")
VIRTUAL = "CREATE TABLE `t` (`id` INT PRIMARY KEY,`g` INT GENERATED ALWAYS AS (`id` + 1) VIRTUAL,`v` VARCHAR(16))"


def test_t33_a_virtual_column_that_a_statement_names_is_left_out(bucket: Bucket) -> None:
    bucket.schema("t", 100, (ID, G, V), VIRTUAL)
    bucket.write("test/t/100/CDC000001.csv", '"I","t","test",110,1,"a"\n')
    ran = bucket.at(200)
    assert (ran.code, ran.problems, bucket.state()) == (0, [], [(1, 2, "a")])


@pytest.mark.parametrize("told", ["", "&include-commit-ts=true", "&include-commit-ts=true&output-old-value=false"])
def test_t33_a_virtual_column_that_nobody_told_of_stops_its_table(tmp_path: Path, told: str) -> None:
    bucket = Bucket(tmp_path, OPTIONS + told)
    ts = 450253245302439944
    bucket.schema("t", 100, (ID, G, V))
    bucket.write("test/t/100/CDC000001.csv", f'"I","t","test",{ts},1,"a"\n')
    bucket.create("u")
    bucket.write("test/u/100/CDC000001.csv", f'"I","u","test",{ts},1,"a"\n')
    ran = bucket.at(ts)
    assert ran.code == EXIT_TABLE_STOPPED
    assert list(ran.stopped) == ["test.t"]
    assert "virtual generated columns" in ran.stopped["test.t"]
    assert "output-field-header" in ran.stopped["test.t"]
    assert (bucket.state("t"), bucket.state("u")) in (([], [(1, "a")]), (None, [(1, "a")]))


def test_t33_a_header_tells_of_a_virtual_column(bucket: Bucket) -> None:
    bucket.schema("t", 100, (ID, G, V))
    bucket.write("test/t/100/CDC000001.csv", HEADER + 'id,v\n"I","t","test",110,1,"a"\n')
    ran = bucket.at(200)
    assert (ran.code, ran.problems, bucket.state()) == (0, [], [(1, None, "a")])


def test_t34_old_and_new_row_of_an_update_are_one_update(bucket: Bucket) -> None:
    bucket.create("t")
    bucket.rows("t/100/1", "I- 110 1 a")
    assert bucket.at(115).code == 0
    bucket.rows("t/100/2", "D+ 120 1 a", "I+ 120 1 b")
    bucket.checkpoint(200)
    consumer = bucket.consumer()
    _, split = consumer.poll().splits
    (block,) = [item for item in consumer.source.read(split, Window(115, 200)) if isinstance(item, ChangeBlock)]
    (event,) = block.events()
    assert (event.before, event.after) == ({"id": 1, "v": "a"}, {"id": 1, "v": "b"})
    assert bucket.run().code == 0
    assert bucket.state() == [(1, "b")]


@both_ways
def test_t35_a_record_that_was_cut_off_comes_again_in_a_later_file(bucket: Bucket) -> None:
    bucket.create("t")
    bucket.write("test/t/100/CDC000001.csv", '"I","t","test",110,1,"a"\n"I","t","test",130,3,"ab')
    ran = bucket.at(120)
    assert (ran.code, ran.problems, bucket.state()) == (0, [], [(1, "a")])
    bucket.rows("t/100/2", "I 130 3 abc")
    ran = bucket.at(200)
    assert (ran.code, ran.problems, bucket.state()) == (0, [], [(1, "a"), (3, "abc")])
    assert bucket.at(300).files == 0


@pytest.mark.parametrize("told", ["", "&include-commit-ts=false"])
def test_t36_without_commit_ts_replays_in_order_end_in_the_right_state(tmp_path: Path, told: str) -> None:
    bucket = Bucket(tmp_path, OPTIONS + told)
    bucket.create("t")
    rows = ['"I","t","test",1,"a"', '"U","t","test",1,"b"', '"I","t","test",2,"x"', '"D","t","test",2,"x"', '"I","t","test",3,"c"']
    bucket.write("test/t/100/CDC000001.csv", "\n".join(rows[:4]) + "\n")
    bucket.write("test/t/100/CDC000002.csv", "\n".join(rows[1:]) + "\n")
    ran = bucket.at(200)
    assert (ran.code, ran.problems, bucket.state()) == (0, [], [(1, "b"), (3, "c")])
    assert "at least once" in ran.told
    assert "include-commit-ts = true" in ran.told


SELECTOR = "[sink]\nprotocol = 'csv'\n[[sink.column-selectors]]\nmatcher = ['test.*']\ncolumns = ['*', '!v']\n"


def test_t37_a_column_selector_says_which_columns_rows_lack(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path, changefeed=SELECTOR)
    bucket.create("t")
    bucket.rows("t/100/1", "I 110 1", "I 120 2")
    ran = bucket.at(200)
    assert (ran.code, ran.problems, bucket.state()) == (0, [], [(1, None), (2, None)])
    bucket.rows("t/100/2", "U 210 1", "D 220 2")
    assert bucket.at(300).code == 0
    assert bucket.state() == [(1, None)]


def test_t37_without_its_changefeed_s_file_the_table_stops(bucket: Bucket) -> None:
    bucket.create("t")
    bucket.rows("t/100/1", "I 110 1")
    ran = bucket.at(200)
    assert ran.code == EXIT_TABLE_STOPPED
    assert "give the changefeed's file" in ran.stopped["test.t"]
