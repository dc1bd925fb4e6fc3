from __future__ import annotations

import re

import pyarrow as pa
import pytest
from changes import DELETE, INSERT, UPDATE_AFTER, UPDATE_BEFORE, Row, canal, column_names, rows_and_error, rows_of, table

from headrace.formats.base import Rejects, SchemaMismatchError, TruncatedRecordError
from headrace.formats.canal_json import CanalJsonOptions, decode_canal_json, has_commit_ts
from headrace.model.block import block_schema
from headrace.model.table import TableSchema
from headrace.model.types import ColumnType, TypeKind

ID_V = table(id="INT", v="VARCHAR")
STREAM = CanalJsonOptions(terminator="")


def decode(
    *messages: bytes, schema: TableSchema = ID_V, options: CanalJsonOptions | None = None, old_images: bool = True
) -> list[Row]:
    """The rows of lines, and of a bare concatenation, which must agree."""
    options = options or CanalJsonOptions()
    lines = b"".join(message + b"\r\n" for message in messages)
    rows = rows_of(decode_canal_json(pa.py_buffer(lines), schema, options, old_images=old_images))
    bare = CanalJsonOptions("", options.time_zone)
    assert rows_of(decode_canal_json(b"".join(messages), schema, bare, old_images=old_images)) == rows
    return rows


@pytest.mark.parametrize(
    ("kind", "listed", "message"),
    [
        ("set", ",".join(["'x'"] * 65), "According to the message's mysqlType, the column has 65 members, and TiDB has 64 at most"),
        ("enum", f"'{'x' * 70_000}'", "According to the message's mysqlType, the column has a member of 70000 characters"),
    ],
)
def test_members_that_no_type_has_are_refused_wherever_they_stand(kind: str, listed: str, message: str) -> None:
    schema = table(id="INT", m=ColumnType(TypeKind(kind.upper())))
    data = canal("INSERT", {"id": 1, "m": "1"}, mysql_types={"m": f"{kind}({listed})"})
    for options in (CanalJsonOptions(), STREAM):
        with pytest.raises(SchemaMismatchError, match=message) as caught:
            list(decode_canal_json(data + options.terminator.encode(), schema, options))
        assert caught.value.column == "m"


def only_changed(message: bytes, *keys: str) -> bytes:
    """The message with an old row that holds these columns only."""
    return re.sub(
        rb'"old":\[\{(.*?)\}\]',
        lambda match: (
            b'"old":[{' + b",".join(p for p in match[1].split(b",") if any(b'"%s"' % k.encode() in p for k in keys)) + b"}]"
        ),
        message,
        count=1,
    )


@pytest.mark.parametrize("terminator", ["\r\n", "\n", "", "|", "\r"])
@pytest.mark.reading_case("B15")
def test_insert_update_and_delete_decode_with_every_terminator(terminator: str) -> None:
    data = b"".join(
        message + terminator.encode()
        for message in (
            canal("INSERT", {"id": 1, "v": "a"}, commit_ts=101),
            canal("UPDATE", {"id": 1, "v": "b"}, {"id": 1, "v": "a"}, commit_ts=102),
            canal("DELETE", {"id": 1, "v": "b"}, commit_ts=103),
        )
    )
    assert rows_of(decode_canal_json(data, ID_V, CanalJsonOptions(terminator=terminator))) == [
        (INSERT, 101, 1, "a"),
        (UPDATE_BEFORE, 102, 1, "a"),
        (UPDATE_AFTER, 102, 1, "b"),
        (DELETE, 103, 1, "b"),
    ]


def test_batches_have_the_layout_of_a_block_and_two_places_for_each_message() -> None:
    data = canal("INSERT", {"id": 1, "v": "a"}) + b"\r\n" + canal("UPDATE", {"id": 2, "v": "b"}, {"id": 1, "v": "a"}) + b"\r\n"
    for old_images in (True, False):
        batch = next(decode_canal_json(data, ID_V, CanalJsonOptions(), old_images=old_images))
        assert batch.schema == block_schema(ID_V.columns)
        assert batch.column(2).to_pylist() == [1, 2, 3]


def test_blank_lines_do_not_shift_what_old_rows_say() -> None:
    insert = canal("INSERT", {"id": 0, "v": "i"})
    update = only_changed(canal("UPDATE", {"id": 2, "v": "x"}, {"id": 2, "v": None}), "v")
    data = b"\r\n" + insert + b"\r\n\r\n" + update + b"\r\n"
    assert rows_of(decode_canal_json(data, ID_V, CanalJsonOptions()))[1] == (UPDATE_BEFORE, 100, 2, None)


def test_a_key_that_moved_gives_its_old_row_even_when_old_images_are_not_wanted() -> None:
    moved = canal("UPDATE", {"id": 2, "v": "b"}, {"id": 1, "v": "a"})
    stayed = canal("UPDATE", {"id": 3, "v": "d"}, {"id": 3, "v": None})
    partly = only_changed(canal("UPDATE", {"id": 5, "v": "f"}, {"id": 5, "v": "e"}), "v")
    assert decode(moved, stayed, partly, old_images=False) == [
        (UPDATE_BEFORE, 100, 1, "a"),
        (UPDATE_AFTER, 100, 2, "b"),
        (UPDATE_AFTER, 100, 3, "d"),
        (UPDATE_AFTER, 100, 5, "f"),
    ]


@pytest.mark.reading_case("B16")
def test_old_rows_with_all_columns_and_with_changed_ones_may_stand_in_one_file() -> None:
    """The update that changes every column is no word about the others; what is NULL in an old row says so."""
    schema = TableSchema(ID_V.table_id, table(id="INT", v="VARCHAR", w="VARCHAR").columns[1:], ())
    all_changed = canal("UPDATE", {"v": "b", "w": "d"}, {"v": "a", "w": "c"})
    one_changed = canal("UPDATE", {"v": "f", "w": "g"}, {"v": "e"})
    from_null = canal("UPDATE", {"v": "h", "w": "i"}, {"v": None})
    nothing_changed = canal("UPDATE", {"v": "j", "w": None}, {})
    rows = decode(all_changed, one_changed, from_null, nothing_changed, schema=schema)
    assert [row[2:] for row in rows if row[0] is UPDATE_BEFORE] == [("a", "c"), ("e", "g"), (None, "i"), ("j", None)]


@pytest.mark.parametrize(
    ("other", "column"),
    [
        (canal("INSERT", {"id": 2, "v": "b", "w": "c"}), "w"),
        (canal("INSERT", {"id": 2}), "v"),
        (canal("UPDATE", {"id": 2}, {"id": 1}), "v"),
    ],
)
def test_a_whole_row_with_other_columns_than_the_first_one_stops_the_file(other: bytes, column: str) -> None:
    """Its values would be dropped, or be NULL, where nothing tells which column they are of."""
    schema = table(id="INT", v="VARCHAR", w="VARCHAR")
    for terminator in ("\r\n", ""):
        data = b"".join(message + terminator.encode() for message in (canal("INSERT", {"id": 1, "v": "a"}), other))
        rows, error = rows_and_error(decode_canal_json(data, schema, CanalJsonOptions(terminator=terminator)))
        assert (rows, error.column) == ([(INSERT, 100, 1, "a")], column)
        assert isinstance(error, SchemaMismatchError)


def test_a_table_without_a_key_gets_every_old_row() -> None:
    schema = TableSchema(ID_V.table_id, ID_V.columns, ())
    update = canal("UPDATE", {"id": 1, "v": "b"}, {"id": 1, "v": "a"})
    assert [row[0] for row in decode(update, schema=schema, old_images=False)] == [UPDATE_BEFORE, UPDATE_AFTER]


def test_columns_that_no_row_carries_are_absent() -> None:
    schema = table(id="INT", g="INT", v="VARCHAR")
    data = canal("DELETE", {"id": 1}) + b"\r\n" + canal("INSERT", {"v": "b", "id": 2}) + b"\r\n"
    assert column_names(decode_canal_json(data, schema, CanalJsonOptions())) == ["id", "v"]


def test_a_column_that_the_schema_file_lacks_is_a_mismatch() -> None:
    _, error = rows_and_error(decode_canal_json(canal("INSERT", {"id": 1, "w": "b"}) + b"\r\n", ID_V, CanalJsonOptions()))
    assert isinstance(error, SchemaMismatchError)
    assert error.column == "w"


def test_a_column_named_type_does_not_confuse() -> None:
    schema = table(id="INT", type="VARCHAR", v="VARCHAR")
    rows = decode(
        canal("DELETE", {"id": 1, "type": "INSERT"}), canal("INSERT", {"id": 2, "type": "DELETE", "v": "x"}), schema=schema
    )
    assert rows == [(DELETE, 100, 1, "INSERT", None), (INSERT, 100, 2, "DELETE", "x")]


def test_an_index_without_a_member_is_an_error() -> None:
    schema = table(id="INT", e=ColumnType(TypeKind.ENUM, elements=("a", "b")))
    _, error = rows_and_error(decode_canal_json(canal("INSERT", {"id": 1, "e": "3"}) + b"\r\n", schema, CanalJsonOptions()))
    assert (error.line, error.column, error.value) == (1, "e", "3")


def test_without_the_extension_the_millisecond_gives_the_first_commit_ts_it_allows() -> None:
    message = canal("INSERT", {"id": 1, "v": "a"}, commit_ts=None, es=7)
    assert decode(message) == [(INSERT, 7 << 18, 1, "a")]
    assert not has_commit_ts(message + b"\r\n")
    assert has_commit_ts(canal("INSERT", {"id": 1, "v": "a"}))
    assert has_commit_ts(b"")


def test_commit_ts_above_2_to_the_53_is_exact() -> None:
    assert decode(canal("INSERT", {"id": 1, "v": "a"}, commit_ts=450253245302439941))[0][1] == 450253245302439941


@pytest.mark.reading_case("B23")
def test_every_value_is_text_whatever_the_jdbc_code_says() -> None:
    schema = table(id="INT", small="TINYINT UNSIGNED", big="BIGINT UNSIGNED", bit="BIT", d="DOUBLE", at="TIMESTAMP")
    big = str(2**64 - 1)
    rows = decode(
        canal("INSERT", {"id": 1, "small": 1, "big": big, "bit": big, "d": "0.00001", "at": "2024-06-05 09:30:23.694"}),
        canal("INSERT", {"id": 2, "small": 200, "big": 0, "bit": 0, "d": "-0", "at": "0000-00-00 00:00:00.000"}),
        schema=schema,
        options=CanalJsonOptions(time_zone="Asia/Shanghai"),
    )
    assert rows[0][2:] == (1, 1, 2**64 - 1, 2**64 - 1, 0.00001, "2024-06-05 01:30:23.694")
    assert rows[1][3:] == (200, 0, 0, 0.0, "0000-00-00 00:00:00.000")


def test_numbers_in_place_of_text_are_read_too() -> None:
    message = canal("INSERT", {"id": 1, "v": "x"}).replace(b'"id":"1"', b'"id":1')
    assert decode(message) == [(INSERT, 100, 1, "x")]


GOOD = canal("INSERT", {"id": 1, "v": "a"}) + b"\r\n"


@pytest.mark.parametrize(
    ("bad", "column"),
    [
        (b'{"id":0,"type":"INS', ""),
        (b"not json", ""),
        (b"[1]", ""),
        (b"null", ""),
        (b'null,"type":"INSERT"}', ""),
        (canal("INSERT", {"id": "abc", "v": "a"}), "id"),
        (canal("QUERY", {"id": "1", "v": "a"}), "type"),
        (canal("INSERT", {"id": 1, "v": "a"}).replace(b'"data":[{', b'"data":[{},{'), "data"),
        (canal("INSERT", {"id": 1, "v": "a"}).replace(b'[{"id":"1","v":"a"}]', b"[null]"), "data"),
        (canal("UPDATE", {"id": 1, "v": "a"}, {"id": 1, "v": "b"}).replace(b'[{"id":"1","v":"b"}]', b"[null]"), "old"),
        (canal("UPDATE", {"id": 1, "v": "a"}, {"id": 1, "v": "b"}).replace(b'"old":[{', b'"old":[{},{'), "old"),
        (canal("UPDATE", {"id": 1, "v": "a"}, {"id": "x", "v": "b"}), "id"),
        (canal("INSERT", {"id": 1, "v": "a"}).replace(b'"v":"a"', b'"v":"\xff"'), ""),
        (canal("INSERT", {"id": 1, "v": "a"}).replace(b'"v":"a"', b'"v":true'), "v"),
    ],
)
def test_a_bad_message_is_located_and_the_rows_before_it_are_kept(bad: bytes, column: str) -> None:
    rows, error = rows_and_error(decode_canal_json(GOOD * 2 + b"\r\n" + bad + b"\r\n" + GOOD, ID_V, CanalJsonOptions()))
    assert len(rows) == 2
    assert not isinstance(error, TruncatedRecordError)
    assert (error.line, error.column) == (4, column)


def test_a_null_in_the_place_of_the_first_message_is_located() -> None:
    rows, error = rows_and_error(decode_canal_json(b"\r\nnull\r\n" + GOOD, ID_V, CanalJsonOptions()))
    assert (rows, error.line) == ([], 2)


@pytest.mark.parametrize("cut", [1, 2, 3, 30])
def test_a_message_cut_off_comes_after_the_complete_ones(cut: int) -> None:
    data = GOOD + canal("INSERT", {"id": 2, "v": "b"}, commit_ts=130) + b"\r\n"
    rows, error = rows_and_error(decode_canal_json(data[:-cut], ID_V, CanalJsonOptions(terminator="\r\n")))
    assert len(rows) == 1
    assert isinstance(error, TruncatedRecordError)
    assert (error.line, error.commit_ts) == (2, 130 if cut < 5 else None)


@pytest.mark.parametrize("cut", range(1, 120, 7))
def test_a_cut_in_a_bare_concatenation_is_noticed(cut: int) -> None:
    data = canal("INSERT", {"id": 1, "v": "a"}) + canal("INSERT", {"id": 2, "v": "b"})[:-cut]
    rows, error = rows_and_error(decode_canal_json(data, ID_V, STREAM))
    assert len(rows) == 1
    assert isinstance(error, TruncatedRecordError)


def test_files_of_many_blocks_keep_counting() -> None:
    data = b"".join(canal("INSERT", {"id": n, "v": "x" * 300}) + b"\n" for n in range(20_000))
    batches = list(decode_canal_json(data, ID_V, CanalJsonOptions(terminator="\n")))
    assert len(batches) > 1
    assert [row[2] for row in rows_of(batches)] == list(range(20_000))
    bad = data + b"{}\n"
    rows, error = rows_and_error(decode_canal_json(bad, ID_V, CanalJsonOptions(terminator="\n")))
    assert (len(rows), error.line) == (20_000, 20_001)


BAD_COMMIT_TS = {
    "missing": b"{}",
    "null": b'{"commitTs":null}',
    "a text": b'{"commitTs":"450253245302439941"}',
    "negative": b'{"commitTs":-450253245302439941}',
    "a float": b'{"commitTs":450253245302439941.0}',
    "an exponent": b'{"commitTs":4e17}',
    "zero": b'{"commitTs":0}',
    "true": b'{"commitTs":true}',
    "a list": b'{"commitTs":[450253245302439941]}',
    "beyond 64 bits": b'{"commitTs":18446744073709551616}',
    "5,000 digits": b'{"commitTs":' + b"9" * 5_000 + b"}",
    "of the millisecond after es": b'{"commitTs":%d}' % (450253245302439941 + (1 << 18)),
    "of long before es": b'{"commitTs":100}',
    "no extension at all": b"null",
    "a text in its place": b'"450253245302439941"',
}


@pytest.mark.parametrize("options", [CanalJsonOptions(), STREAM], ids=["lines", "a stream"])
@pytest.mark.parametrize("place", [0, 1, 2])
@pytest.mark.parametrize("bad", BAD_COMMIT_TS.values(), ids=BAD_COMMIT_TS.keys())
def test_a_message_without_a_sound_commit_ts_is_a_bad_one_where_others_of_the_file_have_one(
    bad: bytes, place: int, options: CanalJsonOptions
) -> None:
    messages = [canal("INSERT", {"id": key, "v": "a"}, commit_ts=450253245302439941) for key in range(3)]
    messages[place] = re.sub(rb'"_tidb":\{[^}]*\}', lambda _: b'"_tidb":' + bad, messages[place])
    data = b"".join(message + options.terminator.encode() for message in messages)
    assert has_commit_ts(data)
    rows, error = rows_and_error(decode_canal_json(data, ID_V, options))
    assert [row[2] for row in rows] == list(range(place))
    assert error.column == "_tidb.commitTs"
    assert "commit ts" in error.message
    assert len(error.value or "") <= 100

    rejects = Rejects(1)
    kept = rows_of(decode_canal_json(data, ID_V, options, rejects=rejects))
    assert kept == [(INSERT, 450253245302439941, key, "a") for key in range(3) if key != place]
    assert [record.raw for record in rejects.records] == [messages[place]]


@pytest.mark.parametrize("es", [b"null", b'"7"', b"-7", b"7.5", b"true", b"0", b"35184372088832", b"9" * 5_000])
def test_without_the_extension_a_message_without_a_sound_millisecond_is_a_bad_one(es: bytes) -> None:
    good = canal("INSERT", {"id": 1, "v": "a"}, commit_ts=None, es=7)
    bad = good.replace(b'"es":7,', b'"es":' + es + b",")
    rows, error = rows_and_error(decode_canal_json(good + b"\r\n" + bad + b"\r\n", ID_V, CanalJsonOptions()))
    assert rows == [(INSERT, 7 << 18, 1, "a")]
    assert (error.line, error.column) == (2, "es")


def test_a_text_that_looks_like_the_extension_is_none() -> None:
    message = canal("INSERT", {"id": 1, "v": '"_tidb":{"commitTs":5}'}, commit_ts=None, es=7)
    assert not has_commit_ts(message + b"\r\n")
    assert decode(message) == [(INSERT, 7 << 18, 1, '"_tidb":{"commitTs":5}')]


@pytest.mark.parametrize("options", [CanalJsonOptions(), STREAM], ids=["lines", "a stream"])
def test_a_value_that_is_nested_deeply_is_a_bad_one(options: CanalJsonOptions) -> None:
    deep = canal("INSERT", {"id": 2, "v": "a"}).replace(b'"v":"a"', b'"v":' + b"[" * 100_000 + b"]" * 100_000)
    data = canal("INSERT", {"id": 1, "v": "a"}) + options.terminator.encode() + deep + options.terminator.encode()
    rows, error = rows_and_error(decode_canal_json(data, ID_V, options))
    assert [row[2] for row in rows] == [1]
    assert error.message == "The message is nested too deeply."


# --- columns that a message lacks ---------------------------------------------------------------------------------------------

A, B = canal("INSERT", {"id": 7, "v": None}), canal("INSERT", {"id": 8, "v": "b"})


@pytest.mark.parametrize(("kind", "name"), [("INSERT", "ID"), ("INSERT", "V"), ("UPDATE", "ID"), ("UPDATE", "V"), ("DELETE", "ID")])
def test_a_column_is_read_by_its_name_in_any_case(kind: str, name: str) -> None:
    old = {"id": 1, "v": "old"} if kind == "UPDATE" else None
    plain = canal(kind, {"id": 1, "v": "x"}, old)
    assert decode(A, plain.replace(b'"%s"' % name.lower().encode(), b'"%s"' % name.encode()), B) == decode(A, plain, B)


@pytest.mark.parametrize("terminator", ["\r\n", "\n", "\r", ""])
@pytest.mark.parametrize(
    ("message", "column"),
    [
        (canal("INSERT", {"id": 1}), "v"),
        (canal("UPDATE", {"id": 1}, {"id": 1, "v": None}), "v"),
        (canal("UPDATE", {"id": 1}, {"id": 1, "v": '"v":null'}), "v"),
        (canal("UPDATE", {"v": ":null"}, {"id": 1}), "id"),
        (canal("DELETE", {"v": None}), "id"),
    ],
)
def test_a_column_that_a_message_lacks_is_not_taken_as_null(message: bytes, column: str, terminator: str) -> None:
    mark = terminator.encode()
    data = mark.join([A, message, B, b""])
    rows, error = rows_and_error(decode_canal_json(data, ID_V, CanalJsonOptions(terminator=terminator)))
    assert (rows, error.column, error.line) == ([(INSERT, 100, 7, None)], column, 2 if terminator else None)


def test_a_deletion_may_have_the_handle_key_only_among_whole_ones() -> None:
    found = decode(A, canal("DELETE", {"id": 1}), canal("DELETE", {"id": 2, "v": None}), canal("DELETE", {"id": 3, "v": '":"'}), B)
    assert [row[2:] for row in found[1:-1]] == [(1, None), (2, None), (3, '":"')]
