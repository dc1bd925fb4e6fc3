"""The rows of TiCDC's Maxwell protocol, and the order that their places give them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pytest

from headrace.formats import row_images
from headrace.model.block import KIND
from headrace.model.events import RowKind
from headrace.model.table import Column, TableId, TableSchema
from headrace.model.types import ColumnType, TypeKind
from headrace.sources.kafka.maxwell import MaxwellProtocol
from headrace.sources.kafka.offset_order import SECOND, OffsetOrder
from headrace.sources.kafka.protocol import Messages
from headrace.sources.stream.reader import BadRecordError
from headrace.sources.stream.records import RecordKind
from kafka_cases import KafkaCase, tso
from protocol_replay import decoded, expected, messages_of, without_commit_ts

NAMES = ["basic", "types"]
MAXWELL = MaxwellProtocol("Asia/Shanghai")
T = TableSchema(
    TableId("d", "t"),
    (
        Column("id", ColumnType(TypeKind.INT), nullable=False, primary_key=True),
        Column("b", ColumnType(TypeKind.VARCHAR)),
        Column("n", ColumnType(TypeKind.BIGINT, unsigned=True)),
        Column("x", ColumnType(TypeKind.VARBINARY)),
        Column("ts", ColumnType(TypeKind.TIMESTAMP)),
        Column("e", ColumnType(TypeKind.ENUM, elements=("p", "q"))),
    ),
    ("id",),
)
S = 1_750_000_000
"""A second."""
D = tso(0) + 5 * (1 << 18)
"""The commit ts of a schema change in it."""
ROW = {"id": 1, "b": "b", "n": 18446744073709551615, "x": "iVBORw0KGgo=", "ts": "2023-11-30 20:34:56", "e": 2}


@pytest.mark.parametrize("name", NAMES)
def test_golden_records_give_the_rows_that_were_changed(name: str) -> None:
    case, utc = KafkaCase("maxwell", name), MaxwellProtocol()
    found = without_commit_ts(decoded(utc, messages_of(case)))
    assert found.total() > 0
    assert found == without_commit_ts(expected(utc, case))


@pytest.mark.parametrize("name", NAMES)
def test_rows_that_are_read_one_by_one_are_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    messages = messages_of(KafkaCase("maxwell", name))
    together = decoded(MAXWELL, messages)
    read = row_images.decode_lines.__globals__["_decode_singly"]

    def singly(reader: row_images.LineReader, lines: Sequence[bytes], commit_ts: object) -> object:
        sizes = row_images.np.fromiter(map(len, lines), row_images.np.int64, len(lines))
        return read(reader, lines, sizes, commit_ts)

    monkeypatch.setattr("headrace.sources.kafka.line_records.decode_lines", singly)
    assert decoded(MAXWELL, messages) == together


def event(kind: str, ts: int = 5, table: str = "t", **members: object) -> bytes:
    told = {"database": "d", "table": table, "type": kind, "ts": ts, **members}
    return json.dumps(told, ensure_ascii=False, separators=(",", ":")).encode()


def messages(*values: bytes, first: int = 0) -> Messages:
    return Messages(range(first, first + len(values)), list(values), [b"\0\0\0\0\0\0\0\1"] * len(values))


def rows_of(*events: bytes, schema: TableSchema = T) -> list[dict[str, object]]:
    records = MAXWELL.read(messages(b"".join(events)))
    assert records.column("kind").to_pylist() == [RecordKind.ROWS], records.column("value").to_pylist()
    rows: list[dict[str, object]] = MAXWELL.decode(schema, records.select(["offset", "commit_ts", "value"]))[0].to_pylist()
    return rows


def test_values_are_canonical() -> None:
    (row,) = rows_of(event("insert", data=ROW))
    assert {name: value for name, value in row.items() if "$" not in name} == {
        **ROW,
        "x": b"\x89PNG\r\n\x1a\n",
        "ts": "2023-11-30 12:34:56",
        "e": "q",
    }


@pytest.mark.parametrize("singly", [False, True])
def test_an_old_row_has_the_columns_that_changed(singly: bool) -> None:
    updates = [
        event("update", data=ROW, old={"b": "old"}),
        event("update", data=ROW, old={"b": None, "n": 7, "e": None}),
        event("update", data={**ROW, "b": None}, old={"b": ',"b":null}{'}),
        event("update", data=ROW),
    ]
    if singly:  # a blank is not as TiCDC writes it
        updates = [update.replace(b'"data":{', b'"data": {') for update in updates]
    found = [(row[KIND], row["b"], row["n"], row["e"]) for row in rows_of(*updates)]
    most = 18446744073709551615
    assert found == [
        *((1, "old", most, "q"), (2, "b", most, "q")),
        *((1, None, 7, None), (2, "b", most, "q")),
        *((1, ',"b":null}{', most, "q"), (2, None, most, "q")),
        *((1, "b", most, "q"), (2, "b", most, "q")),
    ]


@pytest.mark.parametrize(
    ("value", "column", "message"),
    [
        (event("insert", data={**ROW, "y": 1}), "y", "The columns of the row are not those that d.t has"),
        (event("insert", data={"id": 1}), "b", "The columns of the row are not those that d.t has"),
        (event("insert", data={**ROW, "n": -1}), "n", "The value is not written as a BIGINT UNSIGNED"),
        (event("insert", data={**ROW, "e": 3}), "e", "not a value of the type ENUM"),
        (event("insert", data={**ROW, "x": "?"}), "x", "not a value of the type VARBINARY"),
        (event("insert", data=ROW, old=ROW), "", "has not the rows that belong to it"),
        (event("delete", data=ROW), "", "has not the rows that belong to it"),
        (event("insert", data=ROW).replace(b'"id":1', b'"id":1.'), "", "The message cannot be read"),
    ],
)
def test_a_row_that_cannot_be_read_is_told_with_its_record(value: bytes, column: str, message: str) -> None:
    with pytest.raises(BadRecordError, match=message) as caught:
        rows_of(event("insert", data=ROW), value)
    assert caught.value.column == column


@pytest.mark.parametrize(
    "other",
    [
        event("insert", data=ROW, old=None),
        event("update", data=ROW, old={"b": None}).replace(b'"type":', b'"type": '),
        event("insert", data={**ROW, "b": ":null"}),
    ],
)
def test_what_looks_like_a_null_of_a_column_does_not_hide_a_missing_one(other: bytes) -> None:
    assert rows_of(other)[-1]["id"] == 1
    lacking = {name: value for name, value in ROW.items() if name != "b"}
    with pytest.raises(BadRecordError, match="The columns of the row are not those") as caught:
        rows_of(other, event("insert", data=lacking))
    assert caught.value.column == "b"


def test_a_deletion_may_have_the_handle_key_only() -> None:
    (row,) = rows_of(event("delete", old={"id": 7}))
    assert (row[KIND], row["id"], row["b"]) == (RowKind.DELETE, 7, None)


@pytest.mark.parametrize(
    ("value", "table", "reason"),
    [
        (b"null", "", "it is not one JSON object."),
        (b"{}", "", "it has no type, or does not name its database."),
        (event("bootstrap-start"), "t", "its type is 'bootstrap-start', which no row has"),
        (event("insert", ts=-1, data=ROW), "t", "ts is not a time in seconds."),
        (event("insert", ts=10**15, data=ROW), "t", "ts is not a time in seconds."),
        (event("insert", table="", data=ROW), "", "it does not name its table."),
        (event("insert", data=ROW)[:-5], "t", "it is not one JSON object"),
        (event("insert", data=ROW).replace(b',"data"', b',\n"data"'), "t", "it has line breaks between its parts"),
    ],
)
def test_a_message_that_is_not_understood_is_unknown(value: bytes, table: str, reason: str) -> None:
    (record,) = MAXWELL.read(messages(value, first=7)).to_pylist()
    assert (record["kind"], record["table"], record["offset"]) == (RecordKind.UNKNOWN, table, 7)
    assert record["value"].decode().startswith(reason)


OF_MAXWELL = (
    "it was written by Maxwell, which reads MySQL, and not by TiCDC. Set protocol=maxwell-mysql for topics of Maxwell itself."
)


@pytest.mark.parametrize(
    "value",
    [
        event("insert", xid=940752, commit=True, data=ROW),
        event("update", xid=940752, xoffset=0, data=ROW, old={"b": "old"}),
        event("delete", position="master.000006:800911", server_id=23042, data=ROW),
        event("insert", data=ROW, gtid=None),
        event("table-alter", 1_750_000_000_123, sql="ALTER TABLE t ADD y INT"),
        event("table-alter", D, sql="ALTER TABLE t ADD y INT", position="master.000006:800911"),
    ],
)
def test_a_message_of_maxwell_itself_is_told_to_be_one(value: bytes) -> None:
    (record,) = MAXWELL.read(messages(value)).to_pylist()
    assert (record["kind"], record["table"], record["value"].decode()) == (RecordKind.UNKNOWN, "t", OF_MAXWELL)


@pytest.mark.parametrize("key", [b'{"database":"d","table":"t","pk.id":1}', b'["d","t",[{"id":1}]]'])
def test_a_key_shows_maxwell_itself_where_its_values_look_like_ticdcs(key: bytes) -> None:
    """With ``output_commit_info=false``, its inserts and updates have TiCDC's members."""
    (record,) = MAXWELL.read(messages(event("insert", data=ROW))._replace(keys=[key])).to_pylist()
    assert (record["kind"], record["table"], record["value"].decode()) == (RecordKind.UNKNOWN, "t", OF_MAXWELL)


def test_a_damaged_object_does_not_hide_the_others_of_its_message() -> None:
    values = event("insert", data=ROW) + event("insert", table="u", data=ROW)[:-3] + b"}" + event("insert", data=ROW)
    records = MAXWELL.read(messages(values, first=7)).to_pylist()
    assert [(record["kind"], record["table"]) for record in records] == [
        (RecordKind.ROWS, "t"),
        (RecordKind.UNKNOWN, "u"),
        (RecordKind.ROWS, "t"),
    ]


# --- order ------------------------------------------------------------------------------------------------------------------


def row(second: int = S, table: str = "t") -> bytes:
    return event("insert", second, table, data=ROW)


def change(commit_ts: int = D, table: str = "t", sql: str = "ALTER TABLE {} ADD y INT") -> bytes:
    told = {"type": "table-alter", "database": "d", "table": table, "ts": commit_ts, "sql": sql.format(table)}
    return json.dumps(told, separators=(",", ":")).encode()


def order(*values: bytes, protocol: MaxwellProtocol = MAXWELL) -> list[int | None]:
    """The commit ts that messages get, relative to the beginning of the second; ``None`` for an unreadable one."""
    records = protocol.read(messages(*values)).to_pylist()
    return [None if r["kind"] == RecordKind.UNKNOWN else r["commit_ts"] - tso(0) for r in records]


AT = D - tso(0)


@dataclass(frozen=True)
class Earlier:
    """Messages before a range, from the last one to the first one, each in a part of its own."""

    parts: Iterator[Messages]

    def backwards(self) -> Iterator[Messages]:
        return self.parts

    def first_since(self, time_ms: int) -> int:
        return 0


@pytest.mark.parametrize(
    ("values", "found"),
    [
        ((row(), change(), row(), row()), [0, AT, AT + 1, AT + 1]),
        ((change(), row(S + 1), row(S + 2)), [AT, SECOND, 2 * SECOND]),
        ((change(), change(D + 9), row()), [AT, AT + 9, AT + 10]),
        # An earlier second shows a restart: the schema change comes again if rows before it do. There may have been another restart
        # before the first row.
        ((change(), row(S - 1), row(), change(), row()), [AT, -SECOND, 0, AT, AT + 1]),
        ((change(), row(), row(S - 1), row(), change(), row()), [AT, AT + 1, -SECOND, 0, None, AT + 1]),
        ((change(), row(), row(S + 1), row(), change(), row()), [AT, AT + 1, SECOND, 0, AT, AT + 1]),
        ((change(), row(), row(S + 1), change(), row()), [AT, AT + 1, SECOND, AT, AT + 1]),
        ((change(), change(), row()), [AT, AT, AT + 1]),
        # Nothing shows which of the rows were before the change.
        ((change(), row(), change(), row()), [AT, AT + 1, None, AT + 1]),
        ((change(), change(D + 9), row(), change(), row()), [AT, AT + 9, AT + 10, None, AT + 1]),
        # Tables advance independently.
        ((change(), row(S + 1, "u"), row(S - 1, "v"), row()), [AT, SECOND, -SECOND, AT + 1]),
        ((change(), row(S, "u"), change(table="u"), row()), [AT, 0, AT, AT + 1]),
    ],
)
def test_rows_of_a_second_are_ordered_by_their_places(values: tuple[bytes, ...], found: list[int | None]) -> None:
    assert order(*values) == found


def test_a_schema_change_is_of_all_tables_that_it_changes() -> None:
    swap = change(sql="RENAME TABLE d.t TO d.v, d.u TO d.t, d.v TO d.u")
    assert order(swap, row(table="u"), row(table="v"), row(table="w")) == [AT, AT + 1, AT + 1, 0]
    records = MAXWELL.read(messages(swap, row(table="u"), swap)).to_pylist()
    assert [(r["kind"], r["table"]) for r in records[2:]] == [(RecordKind.UNKNOWN, "u"), (RecordKind.STATEMENT, "t")]


def test_a_change_of_a_database_is_of_no_table() -> None:
    create = change(table="", sql="CREATE DATABASE d")
    assert order(create, row(), create) == [AT, 0, AT]


@pytest.mark.parametrize("cut", range(1, 12))
def test_it_does_not_matter_where_a_range_begins(cut: int) -> None:
    values = [
        row(),
        change(),
        row(),
        row(S + 1),
        row(S - 1),
        row(),
        change(),
        row(),
        change(D + 1),
        row(),
        change(D + 1),
        row(S + 3),
    ]

    def backwards() -> Iterator[Messages]:
        for number in reversed(range(cut)):
            yield Messages([number], [values[number]])

    assert order(*values[cut:], protocol=MAXWELL.for_range(Earlier(backwards()))) == order(*values)[cut:]


def test_no_more_is_looked_at_than_matters() -> None:
    seen = []

    def backwards() -> Iterator[Messages]:
        for number, value in enumerate([row(), row(), change(), row()]):
            seen.append(number)
            yield Messages([9 - number], [value])

    assert order(row(), protocol=MAXWELL.for_range(Earlier(backwards()))) == [AT + 1]
    assert seen == [0, 1, 2]


def test_a_new_order_has_nothing_before_it() -> None:
    assert OffsetOrder().of_row(TableId("d", "t"), tso(0)) == tso(0)
