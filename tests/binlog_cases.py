"""The golden topics of TiDB's secondary binlog (tests/conformance/tidb-binlog, whose README describes the files)."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headrace.formats.binlog.errors import MalformedBinlogError
from headrace.formats.binlog.messages import ColumnInfo
from headrace.formats.binlog.shapes import kind_of
from headrace.model.types import ColumnType

ROOT = Path(__file__).parent / "conformance" / "tidb-binlog"
CASES = sorted(path.name for path in ROOT.iterdir() if path.is_dir())

# The golden messages of the specification (spec/binlog-and-kafka-protocols.md, A.2).
G1 = bytes.fromhex("0800100a")
G2 = bytes.fromhex("080110c80122270a04746573741204746573741a19637265617465207461626c65207465737428696420696e7429")
G3 = bytes.fromhex("080110ac0222180a016412001a116372656174652064617461626173652064")
G4 = bytes.fromhex(
    "0800108280c087fbe38be2051a610a5f0a04746573741201741a0f0a0269641203696e741801200b28001a1b0a01761207766172636861721800200a28ffffff"
    "ffffffffffff012217080112090a0210010a033201621a080a0210010a0208012a0d0a075052494d41525912026964"
)
G5 = bytes.fromhex(
    "080010641a81010a7f0a01641201611a0f0a0269641203696e741801200b28001a110a01751206626967696e741800201428002215080012110a0210010a0b18"
    "ffffffffffffffffff01221f080112080a0210020a0208011a110a0210010a0b18ffffffffffffffffff01220c080212080a0210020a0208012a0d0a07505249"
    "4d41525912026964"
)
G6 = bytes.fromhex("080010071a1e0a1c0a01641201741a0a0a01611203696e7418012208080012040a021001")
G7 = bytes.fromhex("080010091a260a240a01641201741a080a01611203696e741a080a01621203696e742208080012040a021001")
G8 = bytes.fromhex("080010011a210a1f0a01641201741a0c0a01761207766172636861722209080012050a033201ff")
G9 = bytes.fromhex("08021009")
G10 = bytes.fromhex(
    "0800100b1a8b020a88020a0164120274791a0a0a0362697412036269741a0c0a04656e756d1204656e756d1a0a0a0373657412037365741a0c0a046a736f6e12"
    "046a736f6e1a0e0a036465631207646563696d616c1a0e0a02647412086461746574696d651a090a01791204796561721a0a0a01661205666c6f61741a0f0a02"
    "7662120976617262696e6172791a0a0a0274781204746578741a080a016e1203696e74226d080012690a032a01050a0218020a0218050a122a107b226b657922"
    "3a202276616c7565227d0a073205332e3134300a193217323032302d30312d30322030333a30343a30352e3637380a063204323032330a0921000000a09999f1"
    "3f0a042a0200ff0a053203e6b58b0a020801"
)


@dataclass(frozen=True)
class BinlogRecord:
    """A record of a topic's partition 0."""

    offset: int
    value: bytes
    timestamp_ms: int


def records(case: str) -> list[BinlogRecord]:
    """The records of a golden topic."""
    return [
        BinlogRecord(told["offset"], base64.b64decode(told["value_b64"]), told["timestamp_ms"]) for told in lines(case, "records")
    ]


def lines(case: str, name: str) -> list[Any]:
    """A file of JSON lines; empty where the case has none of that name."""
    path = ROOT / case / f"{name}.jsonl"
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


def told(case: str, name: str) -> Any:
    """A JSON file."""
    return json.loads((ROOT / case / f"{name}.json").read_text(encoding="utf-8"))


def told_type(column: ColumnInfo, *, unsigned: bool = False) -> ColumnType:
    """The column's type as far as the message describes it: without members. ``unsigned`` is what its values show.

    Raises MalformedBinlogError for a type that Headrace does not know.
    """
    kind = kind_of(column)
    if kind is None:
        raise MalformedBinlogError(f"The type {column.mysql_type!r} is not a type of TiDB.", column=column.name)
    length, scale = (None if size in (None, -1) else size for size in (column.flen, column.decimal))
    return ColumnType(kind, unsigned, length, scale)
