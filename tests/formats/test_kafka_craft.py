"""The rows of TiCDC's Craft protocol: golden records, damaged ones, and values that messages may not have."""

from __future__ import annotations

import random
import struct
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from headrace.formats import row_images
from headrace.formats.craft.messages import CraftKind, is_craft, read_events, unframed_row
from headrace.model.block import KIND
from headrace.model.events import RowKind
from headrace.model.table import Column, Generated, TableId, TableSchema
from headrace.model.types import ColumnType, TypeKind
from headrace.sources.kafka.craft import CraftProtocol
from headrace.sources.kafka.protocol import Messages
from headrace.sources.stream.history import StreamHistory
from headrace.sources.stream.reader import BadRecordError
from headrace.sources.stream.records import PIECE, RecordKind
from kafka_cases import KafkaCase, tso
from protocol_replay import Changes, decoded, expected, history_of, messages_of

CRAFT = CraftProtocol("Asia/Shanghai")
UTC = CraftProtocol()
NAMES = ["basic", "types"]


def without_floats(schema: TableSchema) -> TableSchema:
    """The shape in which rows need not carry columns of FLOAT: the encoder that wrote the golden records spoiled them."""
    columns = (replace(c, generated=Generated.VIRTUAL) if c.type.kind is TypeKind.FLOAT else c for c in schema.columns)
    return replace(schema, columns=tuple(columns))


class _WithoutFloats(CraftProtocol):
    def decode(self, schema: TableSchema, records: pa.RecordBatch) -> tuple[pa.RecordBatch, Sequence[int]]:
        return super().decode(without_floats(schema), records)


@pytest.fixture(autouse=True)
def _no_floats(monkeypatch: pytest.MonkeyPatch) -> None:
    versions = StreamHistory.versions
    monkeypatch.setattr(StreamHistory, "versions", lambda self, of: [(at, without_floats(s)) for at, s in versions(self, of)])


def changes_of(name: str) -> Changes:
    return decoded(_WithoutFloats(), messages_of(KafkaCase("craft", name)))


@pytest.mark.parametrize("name", NAMES)
def test_golden_records_give_the_rows_that_were_changed(name: str) -> None:
    found = changes_of(name)
    assert found.total() > 0
    assert found == expected(UTC, KafkaCase("craft", name))


@pytest.mark.parametrize("name", NAMES)
def test_rows_that_are_read_one_by_one_are_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    together = changes_of(name)
    read = row_images.decode_lines.__globals__["_decode_singly"]

    def singly(reader: row_images.LineReader, lines: Sequence[bytes], commit_ts: object) -> object:
        return read(reader, lines, np.fromiter(map(len, lines), np.int64, len(lines)), commit_ts)

    monkeypatch.setattr("headrace.sources.kafka.line_records.decode_lines", singly)
    assert changes_of(name) == together


@pytest.mark.parametrize("name", NAMES)
def test_every_golden_record_is_what_it_was_written_as(name: str) -> None:
    case = KafkaCase("craft", name)
    kinds = {"row": RecordKind.ROWS, "ddl": RecordKind.STATEMENT, "checkpoint": RecordKind.WATERMARK}
    told = {(row["offset"], row["kind"]) for row in UTC.read(messages_of(case)).to_pylist()}
    assert told == {(number, kinds[golden.kind]) for number, golden in enumerate(case.records)}
    assert all(is_craft(golden.record.value or b"") for golden in case.records)


@pytest.mark.long
def test_a_damaged_message_is_never_read_as_another() -> None:
    """Whatever byte is changed: a row is not read, or has values of its columns' types; nothing else is raised."""
    case = KafkaCase("craft", "basic")
    ((_, schema),) = history_of(UTC, UTC.read(messages_of(case))).versions(TableId("shop", "item"))[:1]
    read = refused = 0
    chance = random.Random(7)
    rows = [golden.record.value or b"" for golden in case.records if golden.kind == "row"]
    for _ in range(3000):
        value = bytearray(chance.choice(rows))
        for _ in range(chance.randint(1, 3)):
            value[chance.randrange(len(value))] = chance.randrange(256)
        if chance.random() < 0.3:
            del value[chance.randrange(len(value)) :]
        for record in UTC.read(Messages([0], [bytes(value)])).to_pylist():
            if record["kind"] == RecordKind.ROWS:
                read += 1
                piece = pa.record_batch([[0], [record["commit_ts"]], [record["value"]]], schema=PIECE)
                try:
                    UTC.decode(schema, piece)
                except BadRecordError:
                    refused += 1
    assert read > refused > 0


# --- single messages --------------------------------------------------------------------------------------------------------


def uvarint(number: int) -> bytes:
    found = b""
    while number >= 0x80:
        found, number = found + bytes([number & 0x7F | 0x80]), number >> 7
    return found + bytes([number])


def varint(number: int) -> bytes:
    return uvarint(number << 1 if number >= 0 else ~(number << 1))


def sums(numbers: Sequence[int]) -> bytes:
    return b"".join(varint(now - before) for before, now in zip([0, *numbers], numbers, strict=False))


Cell = tuple[str, int, int, bytes | None]
"""Name, type code, flags and value of a column."""


def group(side: int, cells: Sequence[Cell], terms: list[bytes]) -> bytes:
    def term(name: str) -> int:
        if name.encode() not in terms:
            terms.append(name.encode())
        return terms.index(name.encode())

    names, codes, flags, values = zip(*cells, strict=True)
    parts = [bytes([side]), uvarint(len(cells)), sums([term(name) for name in names]), b"".join(map(uvarint, codes))]
    parts += [b"".join(map(uvarint, flags)), *(varint(-1 if value is None else len(value)) for value in values)]
    return b"".join([*parts, *(value for value in values if value)])


def message(
    *events: tuple[Sequence[Cell], Sequence[Cell]], kind: int = 1, ts: int = 0, version: int = 1, table: str = "t"
) -> bytes:
    """Rows of a table of ``d``, each with its new and its old columns (empty for none)."""
    terms = [b"d", table.encode()]
    bodies, sizes = [], []
    for new, old in events:
        groups = [group(side, cells, terms) for side, cells in ((1, new), (2, old)) if cells]
        bodies.append(b"".join(groups))
        sizes.append([len(each) for each in groups])
    count = len(events)
    headers = (
        uvarint(ts or tso(1))
        + b"\0" * (count - 1)
        + uvarint(kind) * count
        + sums([-1] * count)
        + sums([0] * count)
        + sums([1] * count)
    )
    dictionary = uvarint(len(terms)) + b"".join(uvarint(len(term)) for term in terms) + b"".join(terms)
    tables = [[len(headers), len(dictionary)], [len(body) for body in bodies], *sizes]
    end = b"".join(uvarint(len(table)) + sums(table) for table in tables)
    return uvarint(version) + headers + b"".join(bodies) + dictionary + end + uvarint(len(end))[::-1]


T = TableSchema(
    TableId("d", "t"),
    (
        Column("id", ColumnType(TypeKind.INT), nullable=False, primary_key=True),
        Column("f", ColumnType(TypeKind.FLOAT)),
        Column("n", ColumnType(TypeKind.BIGINT, unsigned=True)),
        Column("b", ColumnType(TypeKind.VARCHAR)),
        Column("ts", ColumnType(TypeKind.TIMESTAMP)),
        Column("e", ColumnType(TypeKind.ENUM, elements=("p", "q"))),
    ),
    ("id",),
)


def cells(**changed: bytes | None) -> list[Cell]:
    values: dict[str, bytes | None] = {"id": varint(1), "f": struct.pack("<d", 1.5), "n": uvarint((1 << 64) - 1), "b": b"b"}
    values |= {"ts": b"2023-11-30 20:34:56", "e": uvarint(2), **changed}
    told = {"id": (3, 11), "f": (4, 65), "n": (8, 193), "b": (15, 64), "ts": (7, 65), "e": (247, 64)}
    return [(name, *told.get(name, (3, 0)), value) for name, value in values.items()]


def rows_of(*values: bytes, schema: TableSchema = T) -> list[dict[str, object]]:
    records = CRAFT.read(Messages(range(len(values)), list(values)))
    assert set(records.column("kind").to_pylist()) == {RecordKind.ROWS}, records.column("value").to_pylist()
    rows: list[dict[str, object]] = CRAFT.decode(schema, records.select(["offset", "commit_ts", "value"]))[0].to_pylist()
    return rows


def test_values_are_canonical() -> None:
    (row,) = rows_of(message((cells(), ())))
    told = {name: value for name, value in row.items() if "$" not in name}
    assert told == {"id": 1, "f": 1.5, "n": (1 << 64) - 1, "b": "b", "ts": "2023-11-30 12:34:56", "e": "q"}
    old, new = rows_of(message((cells(b=None), cells(e=None))))
    assert [(row[KIND], row["b"], row["e"]) for row in (old, new)] == [
        (RowKind.UPDATE_BEFORE, "b", None),
        (RowKind.UPDATE_AFTER, None, "q"),
    ]


def test_a_deletion_may_have_the_handle_key_only() -> None:
    (row,) = rows_of(message(((), cells()[:1])))
    assert (row[KIND], row["id"], row["b"]) == (RowKind.DELETE, 1, None)


def test_a_float_that_the_next_value_may_have_overwritten_is_not_read() -> None:
    spoiled = cells(f=struct.pack("<d", 1.5)[:4] + uvarint((1 << 64) - 1)[:4])
    for events in ([(spoiled, ())], [(cells(), spoiled)]):
        with pytest.raises(BadRecordError, match="TiCDC overwrites half of a FLOAT") as caught:
            rows_of(message(*events))
        assert caught.value.column == "f"
    assert [row["f"] for row in rows_of(message((cells(f=None), ())))] == [None]
    with pytest.raises(BadRecordError, match="TiCDC overwrites half of a FLOAT"):
        rows_of(message((cells(f=struct.pack("<d", 1.5)[:4] + varint(1) + b"\0\xf8?", n=None, e=None), ()), (cells(), ())))


def test_a_vector_is_not_in_messages() -> None:
    schema = replace(T, columns=(*T.columns, Column("v", ColumnType(TypeKind.VECTOR))))
    with pytest.raises(BadRecordError, match="TiCDC writes every VECTOR as NULL"):
        rows_of(message(([*cells(), ("v", 225, 0, None)], ())), schema=schema)


@pytest.mark.parametrize(
    ("bad", "column", "told"),
    [
        (cells(y=varint(1)), "y", "The columns of the row are not those that d.t has"),
        (cells()[:2], "n", "The columns of the row are not those that d.t has"),
        ([("id", 15, 11, b"1"), *cells()[1:]], "id", "The value has the type code 15 and the flags 11"),
        ([("id", 3, 139, uvarint(1)), *cells()[1:]], "id", "which is not how a INT is written"),
        (cells(id=b"\xff"), "id", "not a value of the type INT"),
        (cells(id=b"\x02\x02"), "id", "not a value of the type INT"),
        (cells(f=b"1"), "f", "not a value of the type FLOAT"),
        (cells(b=b"\xff"), "b", "not a value of the type VARCHAR"),
        (cells(e=uvarint(3)), "e", "not a value of the type ENUM"),
    ],
)
def test_a_row_that_cannot_be_read_is_told_with_its_record(bad: list[Cell], column: str, told: str) -> None:
    with pytest.raises(BadRecordError, match=told) as caught:
        rows_of(message((cells(), ())), message((bad, ())))
    assert (caught.value.record, caught.value.column) == (1, column)


@pytest.mark.parametrize(
    ("value", "table", "reason"),
    [
        (b"null", "", "the sizes of its parts are not there."),
        (b"\x80" * 20, "", "the size of its tables at its end cannot be read."),
        (message((cells(), ()), version=2), "", "its version is 2, and only 1 is known."),
        (message((cells(), ()), kind=9), "t", "its event has the type 9, or does not name its table."),
        (message((cells(), ()), ts=1 << 63), "", "a commit ts is not possible."),
        (message((cells(), cells()[:1])), "t", "the new and the old row have different columns."),
        (message((cells(), ()))[1:], "", ""),
        (message((cells(), ()))[:-1], "", ""),
    ],
)
def test_a_message_that_is_not_understood_is_unknown(value: bytes, table: str, reason: str) -> None:
    (record,) = CRAFT.read(Messages([7], [value])).to_pylist()
    assert (record["kind"], record["table"], record["offset"]) == (RecordKind.UNKNOWN, table, 7)
    assert record["value"].decode().startswith(reason)


def test_a_message_of_many_rows_has_a_record_for_each_table_and_commit_ts() -> None:
    (record,) = CRAFT.read(Messages([0], [message((cells(), ()), (cells(id=varint(2)), ()))])).to_pylist()
    assert [event.kind for event in read_events(message((cells(), ())))] == [CraftKind.ROW]
    assert unframed_row(record["value"])[0].startswith(b"6\0id\0f\0n\0b\0ts\0e\0")
    assert [row["id"] for row in rows_of(message((cells(), ()), (cells(id=varint(2)), ())))] == [1, 2]


def columns_named(*names: str) -> list[Cell]:
    return [(name, 3, 0, varint(1)) for name in names]


def test_a_row_whose_columns_have_longer_names_than_tidb_allows_is_unreadable() -> None:
    """A message has the name once, and each of its rows would have it again."""
    longest = message((columns_named("列" * 85), ()))  # 255 bytes
    bad = message(*[(columns_named("n" * 257), ())] * 1000)
    records = CRAFT.read(Messages([0, 7], [longest, bad])).to_pylist()
    assert [(row["offset"], row["kind"], row["table"]) for row in records] == [
        (0, RecordKind.ROWS, "t"),
        (7, RecordKind.UNKNOWN, "t"),
    ]
    assert records[1]["value"] == b"the columns of its row cannot be read."


def test_a_message_whose_tables_have_longer_names_than_tidb_allows_is_unreadable() -> None:
    value = message((cells(), ()), (cells(), ()), table="t" * 257)
    (record,) = CRAFT.read(Messages([7], [value])).to_pylist()
    assert (record["offset"], record["kind"]) == (7, RecordKind.UNKNOWN)
    assert record["value"] == b"a name has 257 bytes, and names of TiDB have at most 256."


def test_a_row_of_more_columns_than_tidb_has_is_unreadable() -> None:
    def read(columns: int) -> RecordKind:
        (record,) = CRAFT.read(Messages([7], [message(([("n", 3, 0, varint(1))] * columns, ()))])).to_pylist()
        return RecordKind(record["kind"])

    assert read(4096) is RecordKind.ROWS
    assert read(4097) is RecordKind.UNKNOWN


def test_rows_are_no_more_than_70_times_as_large_as_their_message() -> None:
    """The smallest rows with the longest names."""
    for columns, rows in ((1, 2000), (4096, 1)):
        value = message(*[([("n" * 256, 3, 0, None)] * columns, ())] * rows)
        records = CRAFT.read(Messages([0], [value]))
        assert set(records.column("kind").to_pylist()) == {RecordKind.ROWS}
        assert len(value) < records.nbytes < 70 * len(value)
