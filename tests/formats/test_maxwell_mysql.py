"""Messages of Maxwell itself: what they are about, their order, and their values."""

from __future__ import annotations

import json
import pickle
import random
from typing import Any

import pytest
from test_kafka_maxwell import Earlier

from headrace.formats.maxwell_mysql_messages import read_about, read_statement_message
from headrace.formats.plain_messages import PlainKind
from headrace.kafka.client import Message
from headrace.model.table import Column, TableId, TableSchema
from headrace.model.types import ColumnType, TypeKind
from headrace.sources.kafka.maxwell_mysql import MaxwellMySqlProtocol
from headrace.sources.kafka.protocol import Messages
from headrace.sources.kafka.protocols import detected
from headrace.sources.stream.reader import BadRecordError
from headrace.sources.stream.records import RecordKind
from maxwell_cases import records

T = TableId("shop", "t")
SECOND = 1_750_000_000


def row(value: object = 2, *, type: str = "insert", place: str = "binlog.000007:1000", ts: int = SECOND, **members: Any) -> bytes:
    message = {"database": "shop", "table": "t", "type": type, "ts": ts, "xid": 9, "commit": True, "position": place}
    return json.dumps({**message, "data": {"id": 1, "v": value}, **members}).encode()


def statement(sql: str, **members: Any) -> bytes:
    told = {
        "type": "table-alter",
        "database": "shop",
        "table": "t",
        "ts": SECOND * 1000,
        "sql": sql,
        "position": "binlog.000007:900",
    }
    return json.dumps({**told, **members}).encode()


def reason(value: bytes) -> str:
    about = read_about(value)
    assert about.kind is PlainKind.UNREADABLE
    return about.text.decode()


def values(of: ColumnType, *lines: bytes, accept_unclear: bool = False) -> list[object]:
    columns = (Column("id", ColumnType(TypeKind.INT), nullable=False, primary_key=True), Column("v", of))
    protocol = pickle.loads(pickle.dumps(MaxwellMySqlProtocol(accept_unclear)))
    rows, _ = protocol.decode(TableSchema(T, columns, ("id",)), protocol.read(Messages(range(len(lines)), list(lines))))
    found: list[object] = rows.column("v").to_pylist()
    return found


@pytest.mark.parametrize("told", [{}, {"xoffset": 2031}, {"xoffset": 5000}])
def test_a_key_that_changes_at_no_place_of_its_own_is_not_taken(told: dict[str, int]) -> None:
    """Of a chain of such changes, which may lie in several partitions, it is not known which key is left in the end."""
    moved = row(type="update", data={"id": 2, "v": 1}, old={"id": 1}, commit=False, **told)
    with pytest.raises(BadRecordError, match="does not show which row of its event it is") as found:
        values(ColumnType(TypeKind.INT), row(place="binlog.000007:900"), moved)
    assert found.value.record == 1
    assert values(ColumnType(TypeKind.INT), moved, accept_unclear=True) == [1, 1]


@pytest.mark.parametrize("told", [{"xoffset": 0, "commit": False}, {"xoffset": 2030, "commit": False}, {"commit": True}])
def test_a_key_that_changes_at_a_place_of_its_own_is_taken(told: dict[str, object]) -> None:
    assert values(ColumnType(TypeKind.INT), row(type="update", data={"id": 2, "v": 1}, old={"id": 1}, **told)) == [1, 1]


def test_changes_at_no_place_of_their_own_that_keep_their_keys_are_taken() -> None:
    lines = [row(n, type="update", data={"id": n, "v": n}, old={"v": 0}, commit=False) for n in (1, 2)]
    assert values(ColumnType(TypeKind.INT), *lines, *lines) == [0, 1, 0, 2, 0, 1, 0, 2]


@pytest.mark.parametrize("seed", range(6))
def test_each_change_of_a_key_has_a_number_of_its_own_or_is_not_taken(seed: int) -> None:
    """Whatever one transaction does to one table, and wherever its messages are."""
    chance, taken = random.Random(seed), []
    numbered, events = chance.random() < 0.7, chance.randrange(1, 4)
    rows = [(event, chance.random() < 0.4) for event in range(events) for _ in range(chance.choice([1, 2, 3, 2100]))]
    for number, (event, moves) in enumerate(rows):
        told: dict[str, Any] = {"xoffset": number} if numbered else {}
        place = f"binlog.000007:{1000 + 100 * event}"
        old = {"id": -1} if moves else {"v": 5}
        line = row(type="update", place=place, old=old, commit=number == len(rows) - 1, **told)
        try:
            assert len(values(ColumnType(TypeKind.INT), line)) == 2
        except BadRecordError:
            continue
        if moves:
            taken.append(read_about(line).clock)
    assert len(set(taken)) == len(taken)
    assert taken == sorted(taken)


def test_an_event_that_was_seen_is_known_again_behind_a_long_statement() -> None:
    """Maxwell tells when a statement began, so one that ends later may have an earlier time."""
    soon = row(place="binlog.000007:1000", ts=SECOND + 50)
    long = [row(place=f"binlog.000007:{2000 + 50 * n}", ts=SECOND) for n in range(3)]
    protocol = MaxwellMySqlProtocol().for_range(Earlier(iter([Messages([1, 2, 3], long), Messages([0], [soon])])))
    assert protocol.read(Messages([4], [soon])).column("kind").to_pylist() == [RecordKind.ROWS]


def test_the_first_message_shows_the_protocol() -> None:
    assert detected(Message(n, None, record.value, 0) for n, record in enumerate(records())) == "maxwell-mysql"


def test_the_clock_orders_events_as_they_were_sent() -> None:
    clocks = [read_about(record.value or b"").clock for record in records()]
    assert clocks == sorted(set(clocks))


def test_statements_name_the_table_that_they_leave() -> None:
    renamed = read_statement_message(statement("RENAME TABLE t TO u", **{"def": {"database": "shop", "table": "u"}}))
    assert (renamed.table_id, renamed.statement) == (TableId("shop", "u"), "RENAME TABLE t TO u")
    dropped = read_statement_message(statement("DROP TABLE t, u", type="table-drop"))
    assert (dropped.table_id, dropped.statement) == (T, "DROP TABLE `shop`.`t`")
    created = read_statement_message(statement("CREATE DATABASE x", type="database-create", database="x", table=None))
    assert created.table_id == TableId("x")


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        (b"{", "it is not one JSON object"),
        (b"7", "it is not one JSON object"),
        (b"{}", "it has no type, or does not name its database."),
        (row(type="bootstrap-insert"), "its type is 'bootstrap-insert', which is not read"),
        (row(table=""), "it does not name its table."),
        (row(position=None), "it has no position. Set output_binlog_position=true for Maxwell."),
        (row(place="7"), "'7' is no place in a binlog."),
        (row(place="binlog.000001:0"), "is no place in a binlog."),
        (row(place="binlog.999999:4"), "is greater than 800000"),
        (statement("ALTER TABLE t ADD x INT", position=None), "it has no position"),
        (statement(""), "it has no database or no sql."),
    ],
)
def test_messages_that_cannot_be_read_tell_why(value: bytes, wanted: str) -> None:
    assert wanted in reason(value)


def test_behind_an_event_of_another_binlog_nothing_is_known() -> None:
    before, again, other = row(), row(place="binlog.000007:500"), row(place="binlog.000007:500", ts=SECOND + 1)
    kinds = MaxwellMySqlProtocol().read(Messages([0, 1, 2], [before, again, other])).column("kind").to_pylist()
    assert kinds == [RecordKind.ROWS, RecordKind.ROWS, RecordKind.UNKNOWN]
    behind = MaxwellMySqlProtocol().for_range(Earlier(iter([Messages([0], [before])])))
    assert behind.read(Messages([1], [other])).column("kind").to_pylist() == [RecordKind.UNKNOWN]


def test_an_update_has_its_old_row_from_the_columns_that_changed() -> None:
    found = values(
        ColumnType(TypeKind.INT),
        row(3, type="update", old={"v": None}),
        row(4, type="update", old={"id": 7}, place="binlog.000007:2000"),
        row(4, type="delete", place="binlog.000007:3000"),
    )
    assert found == [None, 3, 4, 4, 4]


@pytest.mark.parametrize(
    ("of", "text", "wanted"),
    [
        (ColumnType(TypeKind.BIGINT, unsigned=True), "18446744073709551615", (1 << 64) - 1),
        (ColumnType(TypeKind.DECIMAL, length=65, scale=0), "9" * 65, "9" * 65),
        (ColumnType(TypeKind.DECIMAL, length=65, scale=0), "-" + "9" * 65, "-" + "9" * 65),
        (ColumnType(TypeKind.DECIMAL, length=30, scale=10), "1E-10", "0.0000000001"),
        (ColumnType(TypeKind.DECIMAL, length=30, scale=10), "12345678901234567890.0123456789", "12345678901234567890.0123456789"),
        (ColumnType(TypeKind.DOUBLE), "-2.5E300", -2.5e300),
        (ColumnType(TypeKind.YEAR), "1900", 0),
        (ColumnType(TypeKind.BIT, length=9), "257", 257),
        (ColumnType(TypeKind.BINARY, length=4), '"AP8K"', b"\x00\xff\x0a\x00"),
        (ColumnType(TypeKind.VARBINARY, length=4), '"AP8K"', b"\x00\xff\x0a"),
        (ColumnType(TypeKind.SET, elements=("x", "y", "z")), '["x","z"]', "x,z"),
        (ColumnType(TypeKind.SET, elements=("x",)), "[]", ""),
        (ColumnType(TypeKind.DATE), '"0000-00-00"', "0000-00-00"),
        (ColumnType(TypeKind.DATETIME, scale=3), '"2024-06-05 09:30:23.5"', "2024-06-05 09:30:23.500"),
        (ColumnType(TypeKind.TIMESTAMP, scale=0), '"2024-06-05 09:30:23"', "2024-06-05 09:30:23"),
        (ColumnType(TypeKind.JSON), '{"a":[1.50,null]}', '{"a": [1.5, null]}'),
    ],
)
def test_values_by_their_type(of: ColumnType, text: str, wanted: object) -> None:
    assert values(of, row().replace(b'"v": 2', b'"v": ' + text.encode())) == [wanted]


@pytest.mark.parametrize(
    ("of", "text"),
    [
        (ColumnType(TypeKind.INT, unsigned=True), "-1"),
        (ColumnType(TypeKind.INT), '"1"'),
        (ColumnType(TypeKind.INT), "true"),
        (ColumnType(TypeKind.INT), "1.0"),
        (ColumnType(TypeKind.DECIMAL, length=10, scale=1), "1.25"),
        (ColumnType(TypeKind.DECIMAL, length=10, scale=1), '"x"'),
        (ColumnType(TypeKind.DECIMAL, length=10, scale=1), "1e999999999"),
        (ColumnType(TypeKind.DOUBLE), "1e999"),
        (ColumnType(TypeKind.BIT, length=3), "8"),
        (ColumnType(TypeKind.BLOB), '"?"'),
        (ColumnType(TypeKind.SET, elements=("x",)), '"x"'),
        (ColumnType(TypeKind.DATE), '"2024"'),
        (ColumnType(TypeKind.DATETIME, scale=0), '"2024-06-05 09:30:23.5"'),
        (ColumnType(TypeKind.TIMESTAMP, scale=0), '"2024-02-30 09:30:23"'),
        (ColumnType(TypeKind.JSON), '{"a":1.2345678901234567890}'),
        (ColumnType(TypeKind.VECTOR), '"[1]"'),
    ],
)
def test_values_that_do_not_fit_are_told_with_their_record(of: ColumnType, text: str) -> None:
    with pytest.raises(BadRecordError, match="The value is not written as a ") as raised:
        values(of, row(None), row().replace(b'"v": 2', b'"v": ' + text.encode()), accept_unclear=True)
    assert (raised.value.record, raised.value.column) == (1, "v")


@pytest.mark.parametrize(
    ("of", "value", "wanted"),
    [(ColumnType(TypeKind.TIME, scale=2), "04:04:05.46", "TIME below zero"), (ColumnType(TypeKind.JSON), "1", "JSON string")],
)
def test_values_that_are_not_clear_are_taken_only_if_that_is_accepted(of: ColumnType, value: str, wanted: str) -> None:
    with pytest.raises(BadRecordError, match=wanted):
        values(of, row(value))
    assert values(of, row(value), accept_unclear=True) == [value]


@pytest.mark.parametrize(
    "members", [{"data": {"id": 1}}, {"data": None}, {"data": {"id": 1, "v": 2, "w": 3}}, {"type": "update", "old": [1]}]
)
def test_a_row_that_lacks_parts_is_told(members: dict[str, Any]) -> None:
    with pytest.raises(BadRecordError):
        values(ColumnType(TypeKind.INT), row(**members))
