"""The rows of the Open Protocol and the Simple Protocol: golden records, damaged ones, and rules that goldens do not show."""

from __future__ import annotations

import json
import random
import struct
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.formats import open_messages, row_images
from headrace.formats.open_rows import OpenRowReader
from headrace.formats.simple_rows import SimpleRowReader
from headrace.model.block import KIND, SEQ
from headrace.model.events import RowKind
from headrace.model.stream import StreamStatement
from headrace.model.table import Column, TableId, TableSchema
from headrace.model.types import ColumnType, TypeKind
from headrace.sources.kafka.open_protocol import OpenProtocol
from headrace.sources.kafka.protocol import KafkaProtocol, Messages
from headrace.sources.kafka.simple import SimpleProtocol
from headrace.sources.stream.reader import BadRecordError
from headrace.sources.stream.records import PIECE, RecordKind
from kafka_cases import KafkaCase, tso
from protocol_replay import decoded, expected, history_of, messages_of, pieces_of

OPEN, SIMPLE = OpenProtocol(), SimpleProtocol()
WHOLE = [
    *((OPEN, name) for name in ("basic", "ddl", "only-updated", "types", "unbatched-partitions")),
    *((SIMPLE, f"{encoding}-{name}") for encoding in ("json", "avro") for name in ("basic", "ddl", "types")),
]
"""The cases whose messages hold whole rows that are read."""
T = TableSchema(
    TableId("d", "t"),
    (
        Column("id", ColumnType(TypeKind.INT), nullable=False, primary_key=True),
        Column("b", ColumnType(TypeKind.VARCHAR)),
        Column("c", ColumnType(TypeKind.VARCHAR)),
        Column("n", ColumnType(TypeKind.BIGINT, unsigned=True)),
        Column("x", ColumnType(TypeKind.VARBINARY)),
        Column("f", ColumnType(TypeKind.FLOAT)),
        Column("ts", ColumnType(TypeKind.TIMESTAMP)),
        Column("e", ColumnType(TypeKind.ENUM, elements=("p", "q"))),
    ),
    ("id",),
)


def named(cases: Sequence[tuple[KafkaProtocol, str]]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(("protocol", "name"), cases, ids=[f"{protocol.name}-{name}" for protocol, name in cases])


@named(WHOLE)
def test_golden_records_give_the_rows_that_were_changed(protocol: KafkaProtocol, name: str) -> None:
    case = KafkaCase(protocol.name, name)
    found = decoded(protocol, messages_of(case))
    assert found.total() > 0
    assert found == expected(protocol, case)


@named(WHOLE)
def test_rows_that_are_read_one_by_one_are_the_same(protocol: KafkaProtocol, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    messages = messages_of(KafkaCase(protocol.name, name))
    together = decoded(protocol, messages)
    read = row_images.decode_lines.__globals__["_decode_singly"]

    def singly(reader: row_images.LineReader, lines: Sequence[bytes], commit_ts: object) -> object:
        sizes = row_images.np.fromiter(map(len, lines), row_images.np.int64, len(lines))
        return read(reader, lines, sizes, commit_ts)

    monkeypatch.setattr("headrace.sources.kafka.line_records.decode_lines", singly)
    assert decoded(protocol, messages) == together


@named(WHOLE)
@pytest.mark.reading_case("B25")
def test_every_golden_record_is_what_it_was_written_as(protocol: KafkaProtocol, name: str) -> None:
    case = KafkaCase(protocol.name, name)
    kinds = {"row": RecordKind.ROWS, "ddl": RecordKind.STATEMENT, "checkpoint": RecordKind.WATERMARK}
    records = protocol.read(messages_of(case))
    told = dict(zip(records.column("offset").to_pylist(), records.column("kind").to_pylist(), strict=True))
    assert told == {number: kinds[golden.kind] for number, golden in enumerate(case.records) if golden.kind != "bootstrap"}


# --- single rows ------------------------------------------------------------------------------------------------------------


def cell(code: int, flags: int, value: object) -> dict[str, object]:
    return {"t": code, "f": flags, "v": value}


def open_row(**changed: object) -> dict[str, object]:
    row: dict[str, object] = {
        "id": {"t": 3, "h": True, "f": 11, "v": 1},
        "b": cell(15, 64, "b"),
        "c": cell(15, 64, "c"),
        "n": cell(8, 193, 18446744073709551615),
        "x": cell(15, 65, "\\x89PNG\\r\\n\\x1a\\n"),
        "f": cell(4, 65, 1.5),
        "ts": cell(7, 65, "2023-11-30 20:34:56"),
        "e": cell(247, 64, 2),
    }
    return row | changed


def simple_row(**changed: object) -> dict[str, object]:
    moment = {"location": "Asia/Shanghai", "value": "2023-11-30 20:34:56"}
    row: dict[str, object] = {"id": "1", "b": "b", "c": "c", "n": "18446744073709551615", "x": "iVBORw0KGgo=", "f": "1.5"}
    return row | {"ts": moment, "e": "2"} | changed


def simple_message(kind: str, **members: object) -> dict[str, object]:
    told = {"version": 1, "database": "d", "table": "t", "tableID": 1, "type": kind, "commitTs": tso(1), "buildTs": 1}
    return {**told, "schemaVersion": 1, **members}


def decode(protocol: KafkaProtocol, *messages: object, schema: TableSchema = T) -> list[dict[str, object]]:
    """The rows of JSON messages, each a record."""
    values = [m if isinstance(m, bytes) else json.dumps(m, ensure_ascii=False, separators=(",", ":")).encode() for m in messages]
    count = len(values)
    piece = pa.record_batch([list(range(count)), [tso(1)] * count, pa.array(values, pa.binary())], schema=PIECE)
    rows: list[dict[str, object]] = protocol.decode(schema, piece)[0].to_pylist()
    return rows


ROW = {
    "id": 1,
    "b": "b",
    "c": "c",
    "n": 18446744073709551615,
    "x": b"\x89PNG\r\n\x1a\n",
    "f": 1.5,
    "ts": "2023-11-30 12:34:56",
    "e": "q",
}


def values_of(row: dict[str, object]) -> dict[str, object]:
    return {name: value for name, value in row.items() if "$" not in name}


@pytest.mark.reading_case("B09", "B11", "B26")
def test_values_are_canonical() -> None:
    (row,) = decode(OpenProtocol("Asia/Shanghai"), {"u": open_row()})
    assert (values_of(row), row[KIND]) == (ROW, RowKind.INSERT)
    (row,) = decode(SIMPLE, simple_message("INSERT", data=simple_row()))
    assert (values_of(row), row[KIND]) == (ROW, RowKind.INSERT)


def olds(message: object) -> list[tuple[object, object, object]]:
    return [(row[KIND], row["b"], row["c"]) for row in decode(OPEN, message)]


@pytest.mark.reading_case("B13")
def test_an_old_row_with_the_changed_columns_is_completed() -> None:
    assert olds({"u": open_row(), "p": {"b": cell(15, 64, None)}}) == [(1, None, "c"), (2, "b", "c")]
    assert olds({"u": open_row(), "p": {}}) == [(1, "b", "c"), (2, "b", "c")]


@pytest.mark.reading_case("B12")
def test_an_old_value_without_its_column_is_that_of_the_one_that_became_null() -> None:
    null = cell(15, 64, None)
    assert olds({"u": open_row(b=null), "p": cell(15, 64, "old")}) == [(1, "old", "c"), (2, None, "c")]
    two = b'{"u":%s,"p":{"t":15,"f":64,"v":"old","t":8,"f":193,"v":7}}'
    message = two % json.dumps(open_row(b=null, n=cell(8, 193, None))).encode()
    assert [row["n"] for row in decode(OPEN, message)] == [7, None]
    assert olds(message) == [(1, "old", "c"), (2, None, "c")]


@pytest.mark.reading_case("B12")
def test_an_old_value_that_may_be_of_two_columns_makes_the_old_row_unknown() -> None:
    null = cell(15, 64, None)
    assert olds({"u": open_row(b=null, c=null), "p": cell(15, 64, "old")}) == [(2, None, None)]
    with pytest.raises(BadRecordError, match="does not say to which columns"):
        decode(OPEN, {"u": open_row(b=null, c=null), "p": {**cell(15, 64, "old"), "id": cell(3, 11, 5)}})


def test_a_deletion_may_have_the_handle_key_only() -> None:
    for protocol, message in ((OPEN, {"d": {"id": cell(3, 11, 5)}}), (SIMPLE, simple_message("DELETE", old={"id": "5"}))):
        (row,) = decode(protocol, message)
        assert (row[KIND], row["id"], row["b"]) == (RowKind.DELETE, 5, None)
    with pytest.raises(BadRecordError, match="The columns of the row are not those that"):
        decode(OPEN, {"d": {"b": cell(15, 64, "b")}})


BAD_OPEN: list[tuple[object, str, str]] = [
    ({"u": open_row(n=cell(8, 193, 18446744073709551616))}, "n", "not a value of the type BIGINT UNSIGNED"),
    ({"u": open_row(n=cell(8, 193, -1))}, "n", "not a value of the type"),
    ({"u": open_row(n=cell(8, 193, True))}, "n", "not a value of the type"),
    ({"u": open_row(id=cell(3, 11, 1.0))}, "id", "not a value of the type INT"),
    ({"u": open_row(b=cell(252, 64, "Yg=="))}, "b", "has the type code 252"),
    ({"u": open_row(b=cell(15, 65, "b"))}, "b", "holds bytes, and by the table's schema changes it holds text"),
    ({"u": open_row(x=cell(15, 64, "b"))}, "x", "holds text, and by the table's schema changes it holds bytes"),
    ({"u": open_row(), "p": {"b": cell(15, 65, "b")}}, "b", "In the message the column holds bytes"),
    ({"d": open_row(x=cell(254, 0, "b"))}, "x", "In the message the column holds text"),
    ({"u": open_row(b=cell(252, 65, "Yg=="))}, "b", "has the type code 252 and the flags 65"),
    ({"u": open_row(x=cell(15, 65, "\\q"))}, "x", "not a value of the type VARBINARY"),
    ({"u": open_row(x=cell(15, 65, "\\ud800"))}, "x", "not a value of the type VARBINARY"),
    ({"u": open_row(e=cell(247, 64, 3))}, "e", "not a value of the type ENUM"),
    ({"u": open_row(b={"t": 15, "f": 64})}, "b", "The column has no value"),
    ({"u": open_row(b=None)}, "b", "The column has no value"),
    ({"u": open_row(z=cell(3, 0, 1))}, "z", "The columns of the row are not those"),
    ({"u": {"id": cell(3, 11, 1)}}, "b", "The columns of the row are not those"),
    ({"u": open_row(), "d": open_row()}, "", "neither a new row in u nor a deleted one in d"),
    ({"p": open_row()}, "", "neither a new row in u"),
    ({"u": 5}, "", "The row in u is not a JSON object"),
    (b'{"u":{"f":{"t":4,"f":65,"v":NaN}}}', "", "NaN is not a JSON value"),
    (b'{"u":' + b"[" * 100_000, "", "nested too deeply"),
    (b'{"u":{"id":{"t":3,"f":11,"v":' + b"9" * 5000 + b"}}}", "id", "not a value of the type INT"),
    (b"\xff", "", "it is not UTF-8"),
    (b"null", "", "it is not one JSON object"),
]
BAD_SIMPLE: list[tuple[object, str, str]] = [
    (simple_message("INSERT", data=simple_row(n="18446744073709551616")), "n", "not a value of the type BIGINT UNSIGNED"),
    (simple_message("INSERT", data=simple_row(f="nan")), "f", "not a value of the type FLOAT"),
    (simple_message("INSERT", data=simple_row(f="1e99")), "f", "not a value of the type FLOAT"),
    (simple_message("INSERT", data=simple_row(x="iVBO?")), "x", "not a value of the type VARBINARY"),
    (simple_message("INSERT", data=simple_row(id=1)), "id", "not written as a INT"),
    (simple_message("INSERT", data=simple_row(ts="2023-11-30 20:34:56")), "ts", "not written as a TIMESTAMP"),
    (simple_message("INSERT", data=simple_row(ts={"location": "../etc", "value": "2023-11-30 20:34:56"})), "ts", "not a value of"),
    (simple_message("INSERT", data=simple_row(ts={"location": "UTC"})), "ts", "not written as a TIMESTAMP"),
    (simple_message("INSERT", data=simple_row(e="3")), "e", "not a value of the type ENUM"),
    (simple_message("INSERT", data=simple_row(z="1")), "z", "The columns of the row are not those"),
    (simple_message("UPDATE", data=simple_row(), old={"id": "1"}), "b", "The columns of the row are not those"),
    (simple_message("UPDATE", data=simple_row()), "", "has not exactly data and old"),
    (simple_message("DELETE", data=simple_row()), "", "has not exactly old"),
    (simple_message("INSERT", data=[simple_row()]), "", "data is not a JSON object"),
    (b'{"type":"INSERT","data":' + b'{"a":' * 100_000, "", "nested too deeply"),
]


@pytest.mark.parametrize(
    ("protocol", "good", "message", "column", "reason"),
    [
        *((OPEN, {"u": open_row()}, *bad) for bad in BAD_OPEN),
        (OpenProtocol("Asia/Shanghai"), {"u": open_row()}, {"u": open_row(ts=cell(7, 65, "soon"))}, "ts", "type TIMESTAMP"),
        *((SIMPLE, simple_message("INSERT", data=simple_row()), *bad) for bad in BAD_SIMPLE),
    ],
)
def test_a_bad_row_is_told_with_its_record_column_and_reason(
    protocol: KafkaProtocol, good: object, message: object, column: str, reason: str
) -> None:
    with pytest.raises(BadRecordError) as refused:
        decode(protocol, good, good, message, {"u": 7})
    assert (refused.value.record, refused.value.column) == (2, column)
    assert reason in refused.value.message


def test_the_first_bad_row_counts_whatever_is_wrong_with_it() -> None:
    wrong_value, wrong_shape = {"u": open_row(e=cell(247, 64, 9))}, {"u": 5}
    for messages in ((wrong_value, wrong_shape), (wrong_shape, wrong_value)):
        with pytest.raises(BadRecordError) as refused:
            decode(OPEN, {"u": open_row()}, *messages)
        assert refused.value.record == 1


def test_many_lines_with_an_unusual_one_are_read_as_each_by_itself() -> None:
    usual, unusual = {"u": open_row(), "p": {}}, {"u": open_row(b=cell(15, 64, None)), "p": cell(15, 64, "old")}
    messages: list[object] = [usual] * 1200
    messages[777] = unusual
    rows = decode(OPEN, *messages)
    assert [row["b"] for row in rows] == ["b"] * 1554 + ["old", None] + ["b"] * 844
    assert [row[SEQ] for row in rows] == list(range(2400))
    messages[1111] = {"u": 5}
    with pytest.raises(BadRecordError) as refused:
        decode(OPEN, *messages)
    assert refused.value.record == 1111


def test_a_null_that_stands_for_no_column_hides_no_missing_one() -> None:
    message = simple_message("UPDATE", data=simple_row(), old=simple_row(), claimCheckLocation=None)
    assert len(decode(SIMPLE, message)) == 2
    row = simple_row()
    del row["b"]
    with pytest.raises(BadRecordError, match="The columns of the row are not those"):
        decode(SIMPLE, simple_message("UPDATE", data=simple_row(), old=row, claimCheckLocation=None))


def test_members_that_would_make_a_row_much_longer_are_refused() -> None:
    long = replace(T.column("e"), type=ColumnType(TypeKind.ENUM, elements=("p" * 60_000, "q")))
    schema = replace(T, columns=(*T.columns[:-1], long))
    with pytest.raises(BadRecordError) as refused:
        decode(OPEN, {"u": open_row()}, {"u": open_row(e=cell(247, 64, 1))}, schema=schema)
    assert (refused.value.record, refused.value.column) == (1, "e")


NULLS = ['{"v":null}', '{"b":null,"v":[null]}', '":null', '":nullable"', ':":null', '\\":null', '"v":null', '"u":null,"b":null']


def lines_of(*messages: object) -> list[bytes]:
    return [json.dumps(message, separators=(",", ":")).encode() for message in messages]


def test_texts_with_json_do_not_have_messages_read_one_by_one() -> None:
    null = {"b": cell(15, 64, None)}
    rows = [{"u": open_row(**null)}, *({"u": open_row(b=cell(15, 64, text)), "p": null} for text in NULLS)]
    reader = OpenRowReader(T)
    assert reader.images(reader.parse(lines_of(*rows))).new[1].to_pylist() == [None, *NULLS]
    data = [simple_message("INSERT", data=simple_row(b=text, c=None)) for text in NULLS]
    assert [row["data"]["b"] for row in SimpleRowReader(T).parse(lines_of(*data)).to_pylist()] == NULLS


@pytest.mark.parametrize("text", [*NULLS, "x"])
def test_a_null_in_a_text_does_not_hide_that_a_column_has_no_value(text: str) -> None:
    for without in (open_row(c=None), open_row(c={"t": 15, "f": 64})):
        lines = lines_of({"u": open_row(b=cell(15, 64, text))}, {"u": without})
        with pytest.raises(ValueError, match="a column has no value"):
            OpenRowReader(T).parse(lines)
    row = simple_row(b=text)
    del row["c"]
    with pytest.raises(ValueError, match="a column is missing"):
        SimpleRowReader(T).parse(lines_of(simple_message("INSERT", data=row)))


@pytest.mark.parametrize("name", ["c\\", "c:"])
def test_a_column_whose_name_is_like_the_end_of_a_text_is_read_all_the_same(name: str) -> None:
    schema = replace(T, columns=tuple(replace(c, name=name) if c.name == "c" else c for c in T.columns))
    told, row = open_row(), simple_row()
    told[name], row[name] = told.pop("c"), row.pop("c")
    for protocol, message in ((OPEN, {"u": told}), (SIMPLE, simple_message("INSERT", data=row))):
        assert decode(protocol, message, schema=schema)[0][name] == "c"
    with pytest.raises(BadRecordError, match="The column has no value"):
        decode(OPEN, {"u": told}, {"u": told | {name: None}}, schema=schema)


# --- messages of the Open Protocol --------------------------------------------------------------------------------------------


def framed(*parts: object, version: int | None = None) -> bytes:
    texts = [part if isinstance(part, bytes) else json.dumps(part).encode() for part in parts]
    head = b"" if version is None else struct.pack(">Q", version)
    return head + b"".join(struct.pack(">Q", len(text)) + text for text in texts)


def event_key(kind: int, second: int, table: str = "t", **more: object) -> dict[str, object]:
    return {"ts": tso(second), "scm": "d", "tbl": table, "t": kind, **more}


def records_of(keys: Sequence[object], values: Sequence[object], version: int = 1) -> list[tuple[object, ...]]:
    batch = OPEN.read(Messages([7], [framed(*values)], [framed(*keys, version=version)]))
    assert set(batch.column("offset").to_pylist()) <= {7}
    names = ("kind", "table", "commit_ts", "value")
    return [tuple(row[name] for name in names) for row in batch.to_pylist()]


@pytest.mark.reading_case("B14")
def test_a_message_of_several_tables_and_times_has_a_record_for_each() -> None:
    keys = [event_key(1, 1), event_key(1, 1), event_key(1, 1, "u"), event_key(1, 2, "u"), event_key(2, 2), {"ts": tso(3), "t": 3}]
    values = [{"u": {"a": 1}}, {"u": {"a": 2}}, {"u": {}}, {}, {"q": "x", "t": 3}, b""]
    found = records_of(keys, values)
    rows, statement, watermark = found[:-2], found[-2], found[-1]
    assert rows == [
        (RecordKind.ROWS, "t", tso(1), b'{"u": {"a": 1}}\n{"u": {"a": 2}}'),
        (RecordKind.ROWS, "u", tso(1), b'{"u": {}}'),
    ]
    assert statement[:3] == (RecordKind.STATEMENT, "t", tso(2))
    assert watermark == (RecordKind.WATERMARK, "", tso(3), b"")


def test_many_unreadable_events_of_a_message_are_one_record_for_each_table() -> None:
    """An event may have no byte but its length. Rows between them stay."""
    odd = event_key(1, 0, ts=0)
    keys = [*[b""] * 1000, event_key(1, 1), *[b""] * 1000, odd, odd]
    found = records_of(keys, [*[b""] * 1000, {"u": {"a": 1}}, *[b""] * 1002])
    assert [event[:2] for event in found] == [(RecordKind.UNKNOWN, ""), (RecordKind.ROWS, "t"), (RecordKind.UNKNOWN, "t")]
    assert [event[:2] for event in records_of([b""] * 100_000, [b""] * 100_000)] == [(RecordKind.UNKNOWN, "")]


@given(st.text(), st.text(), st.integers(-1, 1 << 65), st.sampled_from([1, 2, 3]), st.booleans())
def test_a_plain_key_is_read_as_json_is(database: str, table: str, commit_ts: int, kind: int, ascii: bool) -> None:
    told = {"ts": commit_ts, "scm": database, "tbl": table, "t": kind}
    key = json.dumps(told, ensure_ascii=ascii, separators=(",", ":")).encode("utf-8", "surrogatepass")
    assert open_messages._read_key(key) == open_messages._read_any_key(key)


@pytest.mark.reading_case("B05")
def test_a_record_without_events_is_nothing() -> None:
    assert records_of([], []) == []
    assert OPEN.read(Messages([0], [b""], [b""])).num_rows == 0


@pytest.mark.reading_case("B08")
def test_of_a_repeated_member_the_last_counts() -> None:
    (found,) = records_of([b'{"ts":%d,"scm":"d","tbl":"t","t":1,"ohk":true,"ohk":false}' % tso(1)], [{"u": {}}])
    assert found[0] == RecordKind.ROWS


@pytest.mark.parametrize(
    ("read", "table", "reason"),
    [
        (lambda: records_of([event_key(1, 1)], [{"u": {}}], version=2), "", "has the version 2"),
        (lambda: records_of([event_key(1, 1)] * 2, [{"u": {}}]), "", "its key has 2 events, and its value has 1."),
        (lambda: records_of([event_key(4, 1)], [{}]), "", "has the type '4', which is not known"),
        (lambda: records_of([{"t": 3}], [b""]), "", "has no commit ts"),
        (lambda: records_of([event_key(1, 1, ts=True)], [{}]), "t", "has no commit ts"),
        (lambda: records_of([event_key(1, 1, "")], [{}]), "", "does not name its table"),
        (lambda: records_of([b'{"scm":"\\ud800","tbl":"t","ts":1,"t":1}'], [{}]), "", "does not name its table"),
        (lambda: records_of([b"[" * 100_000], [{}]), "", "nested too deeply"),
        (lambda: records_of([event_key(1, 1)], [b'{"u":\n{}}']), "t", "line breaks"),
        (lambda: records_of([event_key(1, 1)], [b""]), "t", "line breaks"),
        (lambda: records_of([event_key(1, 1, ccl="s3://b/")], [{"u": {}}]), "t", "does not end with the name of a file"),
    ],
)
@pytest.mark.reading_case("B06", "B07", "B08")
def test_a_message_that_is_not_understood_is_unknown(read: Callable[[], list[tuple[object, ...]]], table: str, reason: str) -> None:
    (found,) = read()
    assert found[:2] == (RecordKind.UNKNOWN, table)
    assert reason.encode() in bytes(found[3])  # type: ignore[call-overload]


# --- messages of the Simple Protocol --------------------------------------------------------------------------------------------


def shape(**changed: object) -> dict[str, object]:
    columns = [column("id", "int", nullable=False), column("n", "bigint", unsigned=True), column("d", "decimal", length=10)]
    told = {"schema": "d", "table": "t", "tableID": 1, "version": 1, "columns": columns}
    return {**told, "indexes": [index("k", ["n"], nullable=True), index("u", ["id"])], **changed}


def column(name: str, kind: str, *, nullable: bool = True, default: object = None, **more: object) -> dict[str, object]:
    return {"name": name, "dataType": {"mysqlType": kind, **more}, "nullable": nullable, "default": default}


def index(name: str, columns: list[str], *, primary: bool = False, nullable: bool = False) -> dict[str, object]:
    return {"name": name, "unique": True, "primary": primary, "nullable": nullable, "columns": columns}


def told_by(**members: object) -> StreamStatement:
    message = {"version": 1, "type": "ALTER", "sql": "ALTER TABLE t ADD x INT", "commitTs": tso(2), "buildTs": 1, **members}
    return SIMPLE.statement(json.dumps(message).encode(), "0", 3)


@pytest.mark.reading_case("B27")
def test_a_message_whose_first_byte_is_16_is_in_avro() -> None:
    """It may stand between messages in JSON: each shows its encoding."""
    encoded, plain = messages_of(KafkaCase("simple", "avro-basic")), messages_of(KafkaCase("simple", "json-basic"))
    assert {value[0] for value in encoded.values} == {0x16}
    values = [*encoded.values, *plain.values]
    mixed = Messages(range(len(values)), values)
    assert decoded(SIMPLE, mixed) == decoded(SIMPLE, encoded) + decoded(SIMPLE, plain)


def test_a_statement_tells_the_shape_of_its_table() -> None:
    found = told_by(tableSchema=shape())
    assert (found.commit_ts, found.table_id, found.database, found.tells_shape) == (tso(2), TableId("d", "t"), "d", True)
    assert found.schema == TableSchema(
        TableId("d", "t"),
        (
            Column("id", ColumnType(TypeKind.INT), nullable=False),
            Column("n", ColumnType(TypeKind.BIGINT, unsigned=True)),
            Column("d", ColumnType(TypeKind.DECIMAL, length=10, scale=0)),
        ),
        ("id",),
    )
    keyed = told_by(tableSchema=shape(indexes=[index("PRIMARY", ["n", "id"], primary=True)])).schema
    assert keyed is not None
    assert (keyed.handle_key, [column.primary_key for column in keyed.columns]) == (("n", "id"), [True, True, False])


def test_a_change_of_a_database_is_named_by_its_text() -> None:
    found = told_by(type="QUERY", sql="drop database `D 2`")
    assert (found.table_id, found.database, found.schema) == (TableId("D 2"), "D 2", None)


@pytest.mark.parametrize(
    ("members", "reason"),
    [
        ({}, "it has no tableSchema and is not a change of a database"),
        ({"sql": "what?"}, "it has no tableSchema"),
        ({"sql": None, "tableSchema": shape()}, "it has no commitTs or no sql"),
        ({"tableSchema": 5}, "tableSchema is not a JSON object"),
        ({"tableSchema": shape(table="")}, "does not name its table"),
        ({"tableSchema": shape(columns=[])}, "has no columns"),
        ({"tableSchema": shape(columns=[column("id", "int"), column("ID", "int")])}, "two of the same name"),
        ({"tableSchema": shape(columns=[column("id", "int")] * 5000)}, "has more than 4096 entries"),
        ({"tableSchema": shape(columns=[column("id", "geometry")], indexes=[])}, "the type 'geometry' of column id is not known"),
        ({"tableSchema": shape(columns=[column("", "int")], indexes=[])}, "which is not possible"),
        ({"tableSchema": shape(columns=[column("id", "int", length=1 << 40)], indexes=[])}, "which are not possible"),
        ({"tableSchema": shape(columns=[column("id", "int", length=True)], indexes=[])}, "which are not possible"),
        ({"tableSchema": shape(columns=[column("id", "int", default=[1])], indexes=[])}, "the default of column id"),
        ({"tableSchema": shape(columns=[column("s", "set", elements=["x"] * 65)], indexes=[])}, "has 65 members"),
        ({"tableSchema": shape(columns=[column("s", "set", elements=[1])], indexes=[])}, "the members of column s are not texts"),
        ({"tableSchema": shape(indexes=[index("k", ["z"])])}, "an index over a column that it does not list"),
        ({"tableSchema": shape(indexes=[{"columns": 5}])}, "the columns of an index"),
        ({"tableSchema": shape(indexes=5)}, "indexes of tableSchema is not a list"),
    ],
)
def test_a_shape_that_is_not_one_is_refused(members: dict[str, object], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        told_by(**members)


@pytest.mark.parametrize(
    ("message", "table", "reason"),
    [
        (simple_message("INSERT", version=2, data={}), "t", "its version is '2'"),
        (simple_message("MERGE"), "t", "its type is 'MERGE'"),
        (simple_message("INSERT", commitTs=0, data={}), "t", "commitTs is not a commit ts"),
        (simple_message("WATERMARK", commitTs=None), "t", "commitTs is not a commit ts"),
        (simple_message("INSERT", table=None, data={}), "", "it does not name its table"),
        (simple_message("INSERT", claimCheckLocation="x/", data={}), "t", "does not end with the name of a file"),
        (b"{", "", "it is not one JSON object"),
        (b"[" * 100_000, "", "nested too deeply"),
        (b'{"version":1,"type":"INSERT","database":"d",\n"table":"t","commitTs":1}', "t", "line breaks"),
    ],
)
def test_a_simple_message_that_is_not_understood_is_unknown(message: object, table: str, reason: str) -> None:
    good = json.dumps(simple_message("INSERT", data=simple_row())).encode()
    value = message if isinstance(message, bytes) else json.dumps(message).encode()
    first, second = SIMPLE.read(Messages([1, 2], [good, value])).to_pylist()
    assert (first["kind"], first["database"], first["table"], first["commit_ts"]) == (RecordKind.ROWS, "d", "t", tso(1))
    assert (second["kind"], second["table"]) == (RecordKind.UNKNOWN, table)
    assert reason.encode() in second["value"]


# --- damage -------------------------------------------------------------------------------------------------------------------


@cache
def intact(protocol: KafkaProtocol, name: str) -> tuple[Messages, set[tuple[object, ...]]]:
    messages = messages_of(KafkaCase(protocol.name, name))
    records = protocol.read(messages_of(KafkaCase(protocol.name, name)))
    return messages, {(row["kind"], row["value"]) for row in records.to_pylist()}


_ODD = [b"null", b"{", b"[", b'"', b"1e999", b"-", b"\n", b"\\", b"\x00", b"9" * 50]


def damaged(data: bytes, chance: random.Random) -> bytes:
    if not data:
        return chance.randbytes(3)
    at = chance.randrange(len(data))
    match chance.randrange(4):
        case 0:
            return data[:at]
        case 1:
            return data[:at] + bytes([data[at] ^ 1 << chance.randrange(8)]) + data[at + 1 :]
        case 2:
            return (
                data[:at] + chance.choice([b"null", b"{", b"[", b'"', b"1e999", b"-", b"\n", b"\\", b"\x00", b"9" * 50]) + data[at:]
            )
        case _:
            return data[:at] + data[at + chance.randrange(20) :]


@named(WHOLE)
@pytest.mark.parametrize("seed", range(4))
def test_damage_never_raises_anything_else_than_what_is_told_of_it(protocol: KafkaProtocol, name: str, seed: int) -> None:
    messages, known = intact(protocol, name)
    history = history_of(protocol, protocol.read(messages))
    chance = random.Random(seed)
    refused = 0
    for _ in range(60):
        number = chance.randrange(len(messages.values))
        key, value = messages.keys[number], messages.values[number]
        in_key = bool(key) and chance.random() < 0.3
        key, value = (damaged(key, chance), value) if in_key else (key, damaged(value, chance))
        records = protocol.read(Messages([number], [value], [key]))
        for row in records.to_pylist():
            if row["kind"] == RecordKind.STATEMENT and (row["kind"], row["value"]) not in known:
                try:
                    protocol.statement(row["value"], "0", row["offset"])
                except ValueError:
                    refused += 1
        names = zip(records.column("database").to_pylist(), records.column("table").to_pylist(), strict=True)
        known_tables = pa.array([bool(history.versions(TableId(*name))) for name in names], pa.bool_())
        for _, schema, piece in pieces_of(records.filter(known_tables), history):
            try:
                protocol.decode(schema, piece)
            except BadRecordError:
                refused += 1
        refused += records.column("kind").to_pylist().count(RecordKind.UNKNOWN)
    assert refused
