"""Reading a data file costs time in proportion to its length, whatever signs are repeated in it: a file holds up no other table.

What is measured is the time of twice as many against that of once as many, in time of the processor.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress

import pytest

from headrace.formats.base import DecodeError
from headrace.formats.canal_json import CanalJsonOptions, decode_canal_json, has_commit_ts
from headrace.formats.csv import CsvOptions, decode_csv, first_commit_ts
from headrace.model.table import Column, TableId, TableSchema
from headrace.model.types import ColumnType, TypeKind

REPEATED = 10_000
SCHEMA = TableSchema(
    TableId("test", "t"),
    (Column("id", ColumnType(TypeKind.INT), primary_key=True), Column("v", ColumnType(TypeKind.VARCHAR, length=16))),
    ("id",),
)


def grows_in_proportion(read: Callable[[bytes], object], make: Callable[[int], bytes]) -> None:
    def seconds(count: int) -> float:
        data, taken = make(count), []
        for _ in range(2):
            began = time.process_time()
            with suppress(DecodeError):
                read(data)
            taken.append(time.process_time() - began)
        return min(taken)

    once, twice = seconds(REPEATED), seconds(2 * REPEATED)
    assert twice < 3 * once + 0.2, f"{once:.3f} s for {REPEATED}, {twice:.3f} s for twice as many"


ROW = b'"I","t","test",110,1,"a"\r\n'
SIGNS = {
    "quotes": b'"',
    "quotes and letters": b'"x',
    "doubled quotes and letters": b'""x',
    "delimiters": b",",
    "backslashes": b"\\",
    "line ends": b"\r\n",
    "carriage returns": b"\r",
    "blanks": b" ",
    "short records": b'"I",1\r\n',
}
DIALECTS = {
    "usual": CsvOptions(include_commit_ts=True),
    "escaped": CsvOptions(quote="", include_commit_ts=True),
    "own": CsvOptions(delimiter="||", terminator="\n\n", include_commit_ts=True),
}


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("sign", SIGNS)
def test_a_csv_file_of_twice_as_many_signs_takes_about_twice_as_long(sign: str, dialect: str) -> None:
    options, signs = DIALECTS[dialect], SIGNS[sign]

    def read(data: bytes) -> None:
        first_commit_ts(data, SCHEMA, options)
        list(decode_csv(data, SCHEMA, options))

    for before, behind in ((b"", b"x"), (ROW + b'"I","t","test",111,2,', b"x\r\n" + ROW)):
        grows_in_proportion(read, lambda count: before + signs * count + behind)  # noqa: B023


MESSAGE = (
    b'{"id":0,"database":"test","table":"t","pkNames":["id"],"isDdl":false,"type":"INSERT","es":1,"ts":2,"sql":"",'
    b'"sqlType":{"id":4,"v":12},"mysqlType":{"id":"int","v":"varchar(16)"},"old":null,"data":[{"id":"1","v":"a"}],'
    b'"_tidb":{"commitTs":262144}}\r\n'
)
PIECES = {
    "lines with the mark of a row": b'{"type":"INSERT",\r\n' * 4,
    "marks of a row": b'"type":"INSERT",',
    "short messages": b'{"type":"INSERT","es":1}\r\n',
    "old rows": b'"old":[{"a":null}],"data":',
    "commit timestamps": b'{"_tidb":{"commitTs":1}}\r\n',
    "open extensions": b'{"_tidb":',
    "digits": b"1",
    "quotes": b'"',
    "backslashes": b"\\",
    "brackets": b"[",
    "blanks": b" ",
    "line ends": b"\r\n",
}


@pytest.mark.parametrize("terminator", ["\r\n", ""], ids=["lines", "stream"])
@pytest.mark.parametrize("piece", PIECES)
def test_a_canal_json_file_of_twice_as_many_pieces_takes_about_twice_as_long(piece: str, terminator: str) -> None:
    def read(data: bytes) -> None:
        has_commit_ts(data)
        list(decode_canal_json(data, SCHEMA, CanalJsonOptions(terminator=terminator)))

    pieces = PIECES[piece]
    for before, behind in ((b"", b"x"), (MESSAGE, b"\r\n" + MESSAGE)):
        grows_in_proportion(read, lambda count: before + pieces * count + behind)  # noqa: B023
