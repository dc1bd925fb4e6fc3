"""Messages that are read together by what they have in common give what they give one by one, however they are written."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from random import Random

import numpy as np
import pyarrow as pa
import pytest

from fuzzing import fuzz
from headrace.formats import row_images
from headrace.formats.alike import RowHeads
from headrace.formats.open_frames import split_rows
from headrace.formats.open_rows import OpenRowReader
from headrace.model.block import SEQ
from headrace.model.table import Column, TableId, TableSchema
from headrace.model.types import ColumnType, TypeKind
from headrace.sources.kafka.debezium import DebeziumProtocol
from headrace.sources.kafka.open_protocol import OpenProtocol
from headrace.sources.kafka.protocol import KafkaProtocol, Messages
from headrace.sources.stream.reader import BadRecordError
from headrace.sources.stream.records import PIECE, RecordKind

T = TableSchema(
    TableId("d", "t"),
    (
        Column("id", ColumnType(TypeKind.INT), nullable=False, primary_key=True),
        Column("b", ColumnType(TypeKind.VARCHAR)),
        Column("p", ColumnType(TypeKind.VARBINARY)),
        Column("n", ColumnType(TypeKind.BIGINT, unsigned=True)),
        Column("f", ColumnType(TypeKind.DOUBLE)),
        Column("0", ColumnType(TypeKind.ENUM, elements=("a", "b"))),
        Column("op", ColumnType(TypeKind.TEXT)),
    ),
    ("id",),
)
TEXTS = (
    *("x", "", "é", "\u2028", "null", "\\", '"', "a\nb", "\x00", "\x7f", '"v":', '":null', '"op":null', "},", "}}}", '}},"p":{'),
    *('"v":{"t":3,"f":0,"v":1}', '},"schema":{', ',"1":"', '{"0":1}', "😀", "\\x00", "\\u00e9"),
)
# Without -0, which in a DOUBLE is 0.0 in a message that is read by itself, and -0.0 in others.
ODD = (
    *("0x1F", "1e2", "1.0", "01", "-1", "+1", "9" * 19, "18446744073709551615", "9" * 45, "1e400", "NaN", "true", "{}", "[]"),
    *('"1"', '"\\ud800"', '"\\ud83d\\ude00"', '"\t"', '"\\q"', '"', "", " 7 ", " null", "nul", '1,"zz":2', '1,"v":2', '1,"1":2'),
    *('1,"id":2', '1}{"0":1', '1}},"p":{"id":1', '1}},"after":{"id":2', '"a","op":"d"', '1}\n{"0":1', "1,", "null null", '"a""b"'),
)
LONG_KEYS = {"id": (3, 11), "b": (15, 64), "p": (15, 65), "n": (8, 193), "f": (5, 64), "0": (247, 64), "op": (252, 64)}


def plain(chance: Random, name: str) -> str:
    """A value of a column as JSON, as both protocols write it."""
    if name != "id" and chance.random() < 0.15:
        return "null"
    if name == "id":
        return str(chance.randrange(100))
    if name == "n":
        return str(chance.choice([0, 7, 1 << 40, (1 << 63) - 1]))
    if name == "f":
        return chance.choice(["1.5", "-2", "1e10", "0", "1e-7", "-0.0"])
    return json.dumps(chance.choice(TEXTS), ensure_ascii=chance.random() < 0.3)


def of_open(chance: Random, name: str) -> str:
    if name in ("0", "n"):
        return chance.choice(["1", "2", "null"]) if name == "0" else plain(chance, name)
    if name == "op":
        return chance.choice(['"YQ=="', '""', "null", '"w6k="'])
    if name == "p":
        return json.dumps(chance.choice(["x", "", "é", "\\x00", "\\\\", '\\"v\\":', "},"]))
    return plain(chance, name)


def of_debezium(chance: Random, name: str) -> str:
    if name == "p":
        return chance.choice(['"YQ=="', '""', "null", '"AAEC"'])
    return chance.choice(['"a"', '"b"', "null"]) if name == "0" else plain(chance, name)


def members(chance: Random, told: Sequence[tuple[str, str]], is_odd: bool) -> str:
    """A JSON object of members, each a name and JSON; an odd one in another order, with repeated or missing members or blanks."""
    found = list(told)
    if is_odd and found and chance.random() < 0.03:
        chance.shuffle(found)
    if is_odd and found and chance.random() < 0.03:
        found.append(chance.choice(found))
    if is_odd and found and chance.random() < 0.03:
        found.pop(chance.randrange(len(found)))
    if is_odd and chance.random() < 0.02:
        found.append((chance.choice(["zz", "t", "u", "schema"]), chance.choice(ODD)))
    blank = chance.choice([" ", "\n", "\r", "\t"]) if is_odd and chance.random() < 0.03 else ""
    return "{" + ",".join(f'{blank}"{name}":{blank}{value}' for name, value in found) + blank + "}"


def columns_of(chance: Random, is_odd: bool, value: Callable[[Random, str], str]) -> list[tuple[str, str]]:
    names = [column.name for column in T.columns]
    if is_odd and chance.random() < 0.1:
        names[chance.randrange(1, len(names))] = chance.choice(["B", "v", "unknown", "b\\\\", "é"])
    return [(name, chance.choice(ODD) if is_odd and chance.random() < 0.05 else value(chance, name)) for name in names]


def open_line(chance: Random, is_odd: bool) -> str:
    def side(names: Sequence[str]) -> str:
        cells = []
        for name, value in columns_of(chance, is_odd, of_open):
            if name in names or name not in T.row_columns_by_name:
                code, flags = LONG_KEYS.get(name, (15, 64))
                if is_odd and chance.random() < 0.1:
                    code, flags = chance.choice([6, 3, 15, 252, 10**12]), chance.choice([0, 1, 64, 65])
                told = [("t", str(code)), ("f", str(flags)), ("v", value)]
                cells.append((name, members(chance, [*told[:1], *([("h", "true")] if name == "id" else []), *told[1:]], is_odd)))
        if is_odd and chance.random() < 0.05:
            cells += [("t", "15"), ("f", "64"), ("v", '"x"')]
        return members(chance, cells, is_odd)

    names = [column.name for column in T.columns]
    if is_odd and chance.random() < 0.05:
        return chance.choice(["{}", "", "null", "[]", '{"u":{}}', '{"u":{},"p":{}}', '{"d":null}', '{"u":{"id":{"v":1}}}'])
    what = chance.choice(["u", "u", "up", "d"])
    some = [name for name in names if chance.random() < 0.9 or name == "id"] if chance.random() < 0.1 else names
    sides = [("u", side(names)), ("p", side(some))] if what == "up" else [(what, side(some if what == "d" else names))]
    return members(chance, sides, is_odd)


def open_key(chance: Random, is_odd: bool) -> str:
    told = [("ts", str(440000000000000000 + chance.randrange(2))), ("scm", '"d"'), ("tbl", chance.choice(['"t"'] * 9 + ['"é"']))]
    if is_odd and chance.random() < 0.2:
        told[chance.randrange(3)] = (
            chance.choice(["ts", "scm", "tbl"]),
            chance.choice([*ODD, '"d\\u0041"', "9" * 18, "0" * 18, "5"]),
        )
    if is_odd and chance.random() < 0.05:
        told.append(chance.choice([("ohk", "true"), ("ptn", "1"), ("ccl", '"s3://a/b.json"')]))
    return members(chance, [*told, ("t", chance.choice("1111123") if is_odd else "1")], is_odd)


def damaged(chance: Random, value: bytes) -> bytes:
    at = chance.randrange(len(value) + 1)
    return value[:at] + chance.choice([b"", b"\xff", b"\x00", b"\n", b"\r", b'"', b"}", b"{", b",", b"9", b" "]) + value[at + 1 :]


def open_message(chance: Random, is_odd: bool) -> tuple[bytes, bytes]:
    """Key and value of a message."""
    count = chance.choice([1, 2, 3, 16])
    parts = [[make(chance, is_odd).encode() for _ in range(count)] for make in (open_key, open_line)]
    if is_odd and chance.random() < 0.2:
        parts = [[damaged(chance, part) if chance.random() < 0.1 else part for part in side] for side in parts]
    if is_odd and chance.random() < 0.03:
        parts[chance.randrange(2)].append(b"")
    framed = [b"".join(struct.pack(">Q", len(part)) + part for part in side) for side in parts]
    key, value = struct.pack(">Q", 1 if not is_odd or chance.random() < 0.98 else 2) + framed[0], framed[1]
    if is_odd and chance.random() < 0.05:
        return (damaged(chance, key), value) if chance.random() < 0.5 else (key, damaged(chance, value))
    return (b"", b"") if is_odd and chance.random() < 0.02 else (key, value)


def debezium_message(chance: Random, is_odd: bool) -> bytes:
    commit_ts = str(440000000000000000 + chance.randrange(9))
    if is_odd and chance.random() < 0.3:
        commit_ts = chance.choice([*ODD, "9" * 18, "0" * 18, "5", "9" * 19, *["44000000000000000x", "4400000x0000000000"] * 9])
    table = chance.choice(['"t"'] * 9 + ['"é"', '"\\u0074"'])
    source = [
        ("version", '"2.4.0.Final"'),
        ("connector", '"TiCDC"'),
        ("name", '"c"'),
        ("ts_ms", commit_ts[:13]),
        ("snapshot", '"false"'),
    ]
    source += [("db", '"d"'), ("table", table), ("server_id", "0"), ("gtid", "null"), ("file", '""'), ("pos", "0"), ("row", "0")]
    source += [("thread", "0"), ("query", "null"), ("commit_ts", commit_ts)]
    source += [*([("start_ts", "440000000000000000")] if chance.random() < 0.2 else []), ("cluster_id", '"c"')]
    what = chance.choice("ccud")
    row = [members(chance, columns_of(chance, is_odd, of_debezium), is_odd) for _ in range(2)]
    before, after = {"c": ("null", row[0]), "d": (row[1], "null"), "u": (row[1], row[0])}[what]
    if is_odd and chance.random() < 0.05:
        before, after = chance.choice(["null", "{}", before]), chance.choice(["null", "{}", '{"id":null}'])
    payload = [
        ("source", members(chance, source, is_odd)),
        ("ts_ms", str(chance.choice([0, 1, 1700000000000]))),
        ("transaction", "null"),
    ]
    op = chance.choice(["m", "r", ""]) if is_odd and chance.random() < 0.05 else what
    payload += [("op", f'"{op}"'), ("before", before), ("after", after)]
    whole = [("payload", members(chance, payload, is_odd))]
    if chance.random() < 0.3:
        types = ["int", "varchar", chance.choice(["varbinary"] * 9 + ["varchar"]), "bigint", "double", "enum", "text"]
        fields = [
            {"type": "string", "field": c.name, "tidb_type": of}
            for c, of in zip(T.columns, types, strict=True)
            if chance.random() < 0.99
        ]
        schema = {"type": "struct", "fields": [{"type": "struct", "field": "after", "fields": fields}]}
        whole.append(("schema", json.dumps(schema, separators=(",", ":"))))
    value = members(chance, whole, is_odd).encode()
    return damaged(chance, value) if is_odd and chance.random() < 0.1 else value


def batch_of(chance: Random, name: str) -> tuple[KafkaProtocol, Messages]:
    count, odd_ones = chance.choice([(40, 0), (40, 0.02), (10, 0.02), (5, 0.2), (3, 0.5), (1, 1)])
    are_odd = [chance.random() < odd_ones for _ in range(count)]
    if name == "debezium":
        return DebeziumProtocol(accept_unclear=True), Messages(range(count), [debezium_message(chance, odd) for odd in are_odd])
    keys, values = zip(*(open_message(chance, odd) for odd in are_odd), strict=True)
    return OpenProtocol(), Messages(range(count), list(values), list(keys))


@contextmanager
def one_by_one() -> Iterator[None]:
    """No message is read together with another."""

    def nothing_known(values: pa.Array, *_: object) -> RowHeads:
        names = pa.array([""] * len(values), pa.string())
        return RowHeads(np.zeros(len(values), bool), names, names, np.zeros(len(values), np.int64))

    def nothing_split(keys: Sequence[bytes], values: Sequence[bytes]) -> object:
        return split_rows([b""] * len(keys), [b""] * len(values))

    def singly(reader: row_images.LineReader, lines: Sequence[bytes], commit_ts: object) -> object:
        read = row_images.decode_lines.__globals__["_decode_singly"]
        return read(reader, lines, np.fromiter(map(len, lines), np.int64, len(lines)), commit_ts)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("headrace.sources.kafka.open_protocol.split_rows", nothing_split)
        patch.setattr("headrace.sources.kafka.debezium.read_row_heads", nothing_known)
        patch.setattr("headrace.sources.kafka.line_records.decode_lines", singly)
        yield


def outcome(protocol: KafkaProtocol, messages: Messages) -> tuple[list[object], list[object]]:
    """The records of messages; and of those of the table the rows, or why they cannot be read."""
    records = protocol.read(messages)
    is_own = [
        kind == RecordKind.ROWS and table == "t" and value[:1] != b"\0"
        for kind, table, value in zip(*(records.column(name).to_pylist() for name in ("kind", "table", "value")), strict=True)
    ]
    own, found, done = records.filter(pa.array(is_own, pa.bool_())).select(PIECE.names), list[object](), 0
    while done < own.num_rows:
        stop = own.num_rows
        while True:
            try:
                rows, counts = protocol.decode(T, own.slice(done, stop - done))
            except BadRecordError as error:
                if not error.record:
                    found.append((own.column("offset")[done].as_py(), error.message, error.column, error.value, error.hint))
                    done += 1
                    break
                stop = done + error.record
            else:
                offsets = np.repeat(own.column("offset").to_numpy()[done:stop], list(counts)).tolist()
                found += [(at, repr(row)) for at, row in zip(offsets, rows.drop_columns([SEQ]).to_pylist(), strict=True)]
                done = stop
                break
    return records.to_pylist(), found


@pytest.mark.long
@pytest.mark.parametrize("name", ["open-protocol", "debezium"])
def test_messages_read_together_give_what_they_give_one_by_one(name: str) -> None:
    def check(made: tuple[KafkaProtocol, Messages]) -> None:
        protocol, messages = made
        together = outcome(protocol, messages)
        with one_by_one():
            assert outcome(protocol, messages) == together

    fuzz(300, lambda chance: batch_of(chance, name), check)


def test_messages_that_are_as_ticdc_writes_them_are_read_together(monkeypatch: pytest.MonkeyPatch) -> None:
    chance = Random(1)
    keys, events = zip(*(open_message(chance, False) for _ in range(50)), strict=True)
    monkeypatch.setattr(OpenProtocol, "_read_singly", None)
    monkeypatch.setattr(OpenRowReader, "_parse_members", None)
    monkeypatch.setattr(DebeziumProtocol, "_read_others", None)
    assert len(outcome(OpenProtocol(), Messages(range(50), list(events), list(keys)))[1]) > len(keys)
    values = [value for value in (debezium_message(chance, False) for _ in range(30)) if b"\\u0074" not in value]
    for has_schema in (False, True):
        own = [value for value in values if (b'},"schema":' in value) == has_schema]
        records, _ = outcome(DebeziumProtocol(), Messages(range(len(own)), own))
        assert len(records) == len(own) > 0
