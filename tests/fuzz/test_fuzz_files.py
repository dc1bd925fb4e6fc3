"""Whatever bytes come as a data file, a schema file or a position, they are read, or refused with an error of Headrace's own.

``tests/formats/test_fuzz.py`` asks more of fewer inputs: that two ways of reading agree, and that rows before the damage are kept.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest

from fuzzing import PIECES, damaged, fuzz, mutated, tokens_of
from headrace.formats.base import DecodeError
from headrace.formats.canal_json import CanalJsonOptions, decode_canal_json
from headrace.formats.csv import CsvOptions, decode_csv
from headrace.formats.schema_file import SchemaFileError, parse_schema_file
from headrace.model.table import Column, TableId, TableSchema
from headrace.model.tso import MAX_TSO
from headrace.model.types import ColumnType, TypeKind
from headrace.sources.ticdc_storage.position import StoragePosition

pytestmark = pytest.mark.long

CONFORMANCE = Path(__file__).parents[1] / "conformance" / "ticdc-storage"
BYTES = tuple(piece.encode("utf-8", "surrogatepass") for piece in PIECES)
KINDS = ("BIGINT", "VARCHAR", "DOUBLE", "DECIMAL", "BLOB", "JSON", "TIMESTAMP", "YEAR", "TIME", "BIT")
COLUMNS = tuple(Column(kind.lower(), ColumnType(TypeKind(kind)), nullable=kind != "BIGINT") for kind in KINDS)
SCHEMA = TableSchema(TableId("test", "t"), COLUMNS, ("bigint",))
RECORDS = (
    b'"I","t","test",100,1,"a ""b""",-1.5e-7,"12.50","AP8=","{""a"": 1}","2024-06-05 09:30:23.1",2155,"-838:59:59",255\r\n',
    b'"U","t","test",101,2,"\\N",\\N,\\N,\\N,\\N,\\N,\\N,\\N,\\N\r\n',
    b'"D","t","test",102,9223372036854775807,"",0,"0","","null","0000-00-00 00:00:00",0,"00:00:00",0\r\n',
)
ROW = (
    '{"bigint":"1","varchar":"a\\u00e9","double":"-1.5e-7","decimal":"12.50","blob":"\\u0000\\u00ff","json":"{\\"a\\": 1}",'
    '"timestamp":"2024-06-05 09:30:23.1","year":"2155","time":"-838:59:59","bit":"255"}'
)
MESSAGE = (
    '{"id":0,"database":"test","table":"t","pkNames":["bigint"],"isDdl":false,"type":"UPDATE","es":1,"ts":2,"sql":"","sqlType":{},'
    f'"mysqlType":{{}},"old":[{ROW}],"data":[{ROW}],"_tidb":{{"commitTs":262244}}}}\r\n'
).encode()
WRITTEN = sorted((path.read_text() for path in CONFORMANCE.glob("*/data/**/schema_*.json")), key=lambda text: (len(text), text))
SCHEMA_FILES = [tokens_of(text) for text in WRITTEN[::9]]
POSITION = (
    '{"v":2,"w":200,"s":{"test/t":150},"f":{"test/t":120},"d":{"test/t/100":{"/6":"1-5,7"}},'
    '"a":{"test/t/100":{"/6/10":"2026-01-01:3*60,5,,1-2;7"}},"m":{"test/t/100":17,"7/100":-1},'
    '"i":{"test/t/100":{"CDC000007.csv":"1f.0a1b2c3d"}},"o":{"test/t/100/CDC000009.csv":[10,20,210]},'
    '"u":{"test/t/100":{"12/6.csv":["4-8",70]}},"l":[[100,150,{"test/t/100":{"/6.csv":"8-9"}}]],"e":[100,150,2]}'
)


def csv_file(chance: Random, records: Sequence[bytes]) -> bytes:
    if chance.random() < 0.02:
        return b"".join(chance.choices(BYTES, k=chance.randrange(20)))
    return damaged(chance, b"".join(chance.choices(records, k=chance.randrange(1, 3))), BYTES)


@pytest.mark.parametrize("escapes", [False, True], ids=["quotes", "escapes"])
def test_a_csv_file_is_read_or_refused(escapes: bool) -> None:
    options, records = CsvOptions(), RECORDS
    if escapes:
        options = CsvOptions(quote="", delimiter="|")
        records = tuple(record.replace(b'""', b"").replace(b'"', b"").replace(b",", b"|") for record in RECORDS)
    for record in records:
        assert sum(batch.num_rows for batch in decode_csv(record, SCHEMA, options)) > 0

    def check(data: bytes) -> None:
        try:
            for batch in decode_csv(data, SCHEMA, options):
                batch.validate(full=True)
        except DecodeError as error:
            (error.message + error.hint).encode()

    fuzz(700, lambda chance: csv_file(chance, records), check)


def test_a_canal_json_file_is_read_or_refused() -> None:
    assert sum(batch.num_rows for batch in decode_canal_json(MESSAGE, SCHEMA, CanalJsonOptions())) > 0

    def check(data: bytes) -> None:
        try:
            for batch in decode_canal_json(data, SCHEMA, CanalJsonOptions()):
                batch.validate(full=True)
        except DecodeError as error:
            (error.message + error.hint).encode()

    fuzz(700, lambda chance: damaged(chance, MESSAGE * chance.randrange(1, 3), BYTES), check)


def schema_file(chance: Random) -> str:
    tokens = list(chance.choice(SCHEMA_FILES))
    if chance.random() < 0.01:  # a value that goes deeper than Python's reader does
        tokens[chance.choice([at for at, token in enumerate(tokens) if token.isdecimal()])] = chance.choice(("[", '{"a":')) * 1500
    return mutated(chance, tokens, SCHEMA_FILES)


def test_a_schema_file_is_read_or_refused() -> None:
    def check(text: str) -> None:
        try:
            file = parse_schema_file(text.encode("utf-8", "surrogatepass"))
        except SchemaFileError as error:
            error.message.encode()
            return
        assert 0 <= file.version <= MAX_TSO
        assert 0 <= file.checksum < 2**32
        (file.database + file.table + file.statement).encode()

    fuzz(2000, schema_file, check)


def test_a_position_is_taken_or_refused() -> None:
    tokens = tokens_of(POSITION)

    def check(text: str) -> None:
        try:
            position = StoragePosition.parse(text)
        except ValueError:
            return
        again = StoragePosition.parse(position.to_text())  # which is the newest form; marks of the first may change
        assert StoragePosition.parse(again.to_text()) == again

    assert json.loads(POSITION)["w"] == 200
    fuzz(2000, lambda chance: mutated(chance, tokens, [tokens]), check)
