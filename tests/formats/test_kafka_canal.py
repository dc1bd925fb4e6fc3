"""The rows of Canal's protobuf protocol: golden records, damaged ones, and rules that goldens do not show."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from headrace.formats import row_images
from headrace.formats.canal import canal_pb2 as pb
from headrace.model.block import KIND
from headrace.model.events import RowKind
from headrace.model.table import Column, TableId, TableSchema
from headrace.model.types import ColumnType, TypeKind
from headrace.sources.kafka.canal import CanalProtocol
from headrace.sources.kafka.protocol import Messages
from headrace.sources.stream.reader import BadRecordError
from headrace.sources.stream.records import RecordKind
from kafka_cases import KafkaCase, tso
from protocol_replay import decoded, expected, messages_of, without_commit_ts

CANAL = CanalProtocol("Asia/Shanghai")
NAMES = ["basic", "types"]
T = TableSchema(
    TableId("d", "t"),
    (
        Column("id", ColumnType(TypeKind.INT), nullable=False, primary_key=True),
        Column("b", ColumnType(TypeKind.VARCHAR)),
        Column("x", ColumnType(TypeKind.VARBINARY)),
        Column("ts", ColumnType(TypeKind.TIMESTAMP)),
        Column("e", ColumnType(TypeKind.ENUM, elements=("p", "q"))),
    ),
    ("id",),
)
ROW: dict[str, str | None] = {"id": "1", "b": "b", "x": "\x89PNG", "ts": "2023-11-30 20:34:56", "e": "2"}
TYPES = {"id": "int", "b": "varchar", "x": "varbinary", "ts": "timestamp", "e": "enum"}


@pytest.mark.parametrize("name", NAMES)
def test_golden_records_give_the_rows_that_were_changed(name: str) -> None:
    case, utc = KafkaCase("canal", name), CanalProtocol()
    found = without_commit_ts(decoded(utc, messages_of(case)))
    assert found.total() > 0
    assert found == without_commit_ts(expected(utc, case))


@pytest.mark.parametrize("name", NAMES)
def test_rows_that_are_read_one_by_one_are_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    messages = messages_of(KafkaCase("canal", name))
    together = decoded(CANAL, messages)
    read = row_images.decode_lines.__globals__["_decode_singly"]

    def singly(reader: row_images.LineReader, lines: Sequence[bytes], commit_ts: object) -> object:
        return read(reader, lines, np.fromiter(map(len, lines), np.int64, len(lines)), commit_ts)

    monkeypatch.setattr("headrace.sources.kafka.line_records.decode_lines", singly)
    assert decoded(CANAL, messages) == together


@pytest.mark.parametrize("name", NAMES)
def test_rows_have_the_millisecond_of_their_commit_ts(name: str) -> None:
    case = KafkaCase("canal", name)
    records = CANAL.read(messages_of(case))
    told = [event["commit_ts"] >> 18 << 18 for event in case.events if event["kind"] in ("row", "ddl")]
    assert sorted(set(records.column("commit_ts").to_pylist())) == sorted(set(told))


# --- single messages --------------------------------------------------------------------------------------------------------


def columns_of(row: dict[str, str | None], types: dict[str, str]) -> list[pb.Column]:
    return [
        pb.Column(
            name=name.encode(), is_null=value is None, value=(value or "").encode(), mysql_type=types.get(name, "int").encode()
        )
        for name, value in row.items()
    ]


def entry(
    event: int,
    before: dict[str, str | None] | None = None,
    after: dict[str, str | None] | None = None,
    *,
    types: dict[str, str] = TYPES,
    rows: int = 1,
    **header: object,
) -> bytes:
    row = pb.RowData(before_columns=columns_of(before or {}, types), after_columns=columns_of(after or {}, types))
    change = pb.RowChange(event_type=event, row_datas=[row] * rows)
    about = {"execute_time": tso(1) >> 18, "schema_name": b"d", "table_name": b"t", "event_type": event, **header}
    kind = int(about.pop("entry_type", 2))  # type: ignore[call-overload]
    return bytes(pb.Entry(header=pb.Header(**about), entry_type=kind, store_value=change.SerializeToString()).SerializeToString())


def message(*entries: bytes, **members: int) -> bytes:
    body = pb.Messages(messages=entries).SerializeToString()
    return bytes(pb.Packet(type=members.get("type", 7), compression=members.get("compression", 0), body=body).SerializeToString())


def rows_of(*entries: bytes) -> list[dict[str, object]]:
    records = CANAL.read(Messages(range(len(entries)), [message(each) for each in entries]))
    assert set(records.column("kind").to_pylist()) == {RecordKind.ROWS}, records.column("value").to_pylist()
    rows: list[dict[str, object]] = CANAL.decode(T, records.select(["offset", "commit_ts", "value"]))[0].to_pylist()
    return rows


def test_values_are_canonical() -> None:
    (row,) = rows_of(entry(1, after=ROW))
    told = {name: value for name, value in row.items() if "$" not in name}
    assert told == {"id": 1, "b": "b", "x": b"\x89PNG", "ts": "2023-11-30 12:34:56", "e": "q"}
    old, new = rows_of(entry(2, {**ROW, "b": None}, {**ROW, "e": None}))
    assert [(row[KIND], row["b"], row["e"]) for row in (old, new)] == [
        (RowKind.UPDATE_BEFORE, None, "q"),
        (RowKind.UPDATE_AFTER, "b", None),
    ]


@pytest.mark.parametrize("place", [0, 1, 2])
@pytest.mark.parametrize(("event", "sides"), [(1, {"after": ROW}), (2, {"before": ROW, "after": ROW}), (3, {"before": ROW})])
def test_bytes_in_a_column_of_text_stop_the_table_wherever_the_row_is(
    event: int, sides: dict[str, dict[str, str | None]], place: int
) -> None:
    """A shape that follows from statements may lack the default charset of a database. Values do not show that."""
    entries = [entry(1, after={**ROW, "id": str(number)}) for number in range(2)]
    entries.insert(place, entry(event, **sides, types={**TYPES, "b": "varbinary(20)"}))
    with pytest.raises(BadRecordError, match="in the table it is text in place of bytes") as caught:
        rows_of(*entries)
    assert (caught.value.record, caught.value.column) == (place, "b")


def test_a_deletion_may_have_the_handle_key_only() -> None:
    (row,) = rows_of(entry(3, {"id": "7"}))
    assert (row[KIND], row["id"], row["b"]) == (RowKind.DELETE, 7, None)


@pytest.mark.parametrize(
    ("bad", "column", "told"),
    [
        (entry(1, after={**ROW, "y": "1"}), "y", "The columns of the row are not those that d.t has"),
        (entry(1, after={"id": "1"}), "b", "The columns of the row are not those that d.t has"),
        (entry(1, after={**ROW, "id": "x"}), "id", "not a value of the type INT"),
        (entry(1, after={**ROW, "x": "\u0100"}), "x", "not a value of the type VARBINARY"),
        (entry(1, after={**ROW, "e": "3"}), "e", "not a value of the type ENUM"),
        (entry(1, after=ROW, types={**TYPES, "b": "varbinary"}), "b", "The message has the column as varbinary"),
        (entry(1, after=ROW, rows=2), "", "or there are several; TiCDC writes one"),
    ],
)
def test_a_row_that_cannot_be_read_is_told_with_its_record(bad: bytes, column: str, told: str) -> None:
    with pytest.raises(BadRecordError, match=told) as caught:
        rows_of(entry(1, after=ROW), bad)
    assert (caught.value.record, caught.value.column) == (1, column)


@pytest.mark.parametrize(
    ("value", "table", "reason"),
    [
        (b"null", "", "it is not a message of Canal's protobuf protocol."),
        (message(b"\xff"), "", "it is not a message of Canal's protobuf protocol."),
        (message(entry(1, after=ROW), type=5), "", "its type is 5 and its compression 0"),
        (message(entry(1, after=ROW), compression=2), "", "its type is 7 and its compression 2"),
        (message(entry(15)), "t", "its event has the type 15, which is not known."),
        (message(entry(1, after=ROW, entry_type=5)), "t", "its entry has the type 5, which is not known."),
        (message(entry(1, after=ROW, execute_time=0)), "t", "executeTime is not a time in milliseconds."),
        (message(entry(1, after=ROW, table_name=b"")), "", "it does not name its table."),
        (message(entry(1, after=ROW, table_name=b"\xff")), "", "the name of its database or table is not UTF-8."),
    ],
)
def test_a_message_that_is_not_understood_is_unknown(value: bytes, table: str, reason: str) -> None:
    (record,) = CANAL.read(Messages([7], [value])).to_pylist()
    assert (record["kind"], record["table"], record["offset"]) == (RecordKind.UNKNOWN, table, 7)
    assert record["value"].decode().startswith(reason)


@pytest.mark.long
def test_many_unreadable_entries_of_a_message_are_one_record() -> None:
    """An entry may have two bytes. Rows between them stay, and each table with such entries is told."""
    odd = entry(15)
    value = message(*[b""] * 1000, entry(1, after=ROW), *[b"\xff"] * 1000, odd, odd)
    records = CANAL.read(Messages([7, 8], [value, message(*[b""] * 400_000)])).to_pylist()
    told = [(row["offset"], row["kind"], row["table"]) for row in records]
    unknown, rows = RecordKind.UNKNOWN, RecordKind.ROWS
    assert told == [(7, unknown, ""), (7, rows, "t"), (7, unknown, "t"), (8, unknown, "")]


def test_marks_of_transactions_and_empty_messages_mean_nothing() -> None:
    assert CANAL.read(Messages([0, 1], [message(entry(0, entry_type=1), entry(0, entry_type=3)), b""])).num_rows == 0


def test_a_truncate_is_a_schema_change_though_ticdc_does_not_mark_it_as_one() -> None:
    change = pb.RowChange(event_type=8, sql=b"TRUNCATE TABLE t")
    about = pb.Header(execute_time=tso(1) >> 18, schema_name=b"d", table_name=b"t", event_type=8)
    value = pb.Entry(header=about, entry_type=2, store_value=change.SerializeToString()).SerializeToString()
    (record,) = CANAL.read(Messages([0], [message(value)])).to_pylist()
    assert record["kind"] == RecordKind.STATEMENT
    assert CANAL.statement(record["value"], "0", 0).statement == "TRUNCATE TABLE t"
