"""What is encoded as canal-JSON is what TiCDC writes, and what the decoders read back."""

from __future__ import annotations

import json
import re
import tomllib
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from urllib.parse import parse_qsl

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from changes import table
from hypothesis import given, settings
from hypothesis import strategies as st
from random_blocks import TYPES, Change, block, changes_of_rows, same_rows, tables, values
from recorded import CASES, CONFORMANCE, schemas_of

from headrace.formats.canal_encoder import CanalJsonEncoder, CanalJsonOutput
from headrace.formats.canal_json import CanalJsonOptions, decode_canal_json
from headrace.formats.encoding import EncodeError
from headrace.model.block import COMMIT_TS
from headrace.model.events import RowKind
from headrace.model.table import Column, TableId, TableSchema
from headrace.model.types import ColumnType, TypeKind
from headrace.sources.kafka.canal_json import CanalJsonProtocol
from headrace.testing import ticdc_canal
from headrace.testing.ticdc_options import ChangefeedOptions
from kafka_cases import KafkaCase
from protocol_replay import history_of, messages_of

FILES = [case for case in CASES if case.startswith("canal-")]
TOPICS = ["basic-extension", "basic-plain", "content-compatible", "ddl", "only-updated", "raw-change-event", "types"]
FLAGS = (
    "enable_tidb_extension",
    "content_compatible",
    "only_output_updated_columns",
    "delete_only_output_handle_key_columns",
)


def output_of(changefeed: ChangefeedOptions) -> CanalJsonOutput:
    return CanalJsonOutput(time_zone=changefeed.time_zone, **{name: getattr(changefeed, name) for name in FLAGS})


def output_of_case(case: str) -> CanalJsonOutput:
    described = json.loads((CONFORMANCE / case / "case.json").read_text())
    told = {**tomllib.loads(described["changefeed_toml"])["sink"], **dict(parse_qsl(described["sink_uri_params"]))}
    flags = {name: told.get(name.replace("_", "-")) in (True, "true") for name in FLAGS}
    return CanalJsonOutput(time_zone=described["ticdc_tz"], **flags)


def comparable(message: bytes) -> bytes:
    """The message without what differs between two runs of TiCDC: the order of ``mysqlType``.

    ZEROFILL is left out of it: no schema file has that.
    """
    types = json.loads(message)["mysqlType"]
    ordered = json.dumps({name: types[name].removesuffix(" zerofill") for name in sorted(types)}).encode()
    return re.sub(rb'"mysqlType":\{(?:[^{}"]|"(?:[^"\\]|\\.)*")*\}', lambda _: b'"mysqlType":' + ordered, message, count=1)


def built_at_0(message: bytes) -> bytes:
    return re.sub(rb',"ts":\d+,"sql":"",', b',"ts":0,"sql":"",', message, count=1)


@pytest.mark.parametrize("case", FILES)
def test_the_rows_of_a_golden_file_give_its_messages_again(case: str) -> None:
    """All bytes but ``ts``, the time when TiCDC built the message, and the order of ``mysqlType``, which is random in TiCDC."""
    files = 0
    for told, paths in schemas_of(CONFORMANCE / case):
        for path in paths:
            data = path.read_bytes()
            schema, output = with_what_messages_tell(told, data, case), output_of_case(case)
            if case == "canal-column-selector":
                output = replace(output, column_selected=lambda _, name: name != "secret")
            batches = decode_canal_json(data, schema, CanalJsonOptions())
            again = b"".join(CanalJsonEncoder(schema, output).lines(batch, built_ms=0).to_pybytes() for batch in batches)
            assert again.endswith(b"\r\n")
            wanted = [comparable(built_at_0(line)) for line in data.split(b"\r\n")[:-1]]
            assert [comparable(line) for line in again.split(b"\r\n")[:-1]] == wanted
            files += 1
    assert files


def with_what_messages_tell(schema: TableSchema, data: bytes, case: str) -> TableSchema:
    """The schema with what only statements tell: the dimension of a vector, and a handle key that is no primary key."""
    if case == "canal-content-compatible":
        vector = ColumnType(TypeKind.VECTOR, length=3)
        columns = tuple(replace(c, type=vector) if c.name == "v" and c.type.kind is TypeKind.VECTOR else c for c in schema.columns)
        return replace(schema, columns=columns)
    deletions = [json.loads(line) for line in data.splitlines() if b'"type":"DELETE"' in line]
    if case == "canal-handle-only-delete" and deletions:
        return replace(schema, handle_key=tuple(deletions[0]["data"][0]))
    return schema


@pytest.mark.parametrize("name", TOPICS)
def test_the_rows_of_golden_messages_give_their_bytes_again(name: str) -> None:
    """All bytes but the order of ``mysqlType``, which is random in TiCDC; ``ts`` is given to the encoder."""
    case = KafkaCase("canal-json", name)
    history = history_of(CanalJsonProtocol(exact=False), CanalJsonProtocol(exact=False).read(messages_of(case)))
    output = CanalJsonOutput(**{flag: case.codec.get(flag, False) for flag in FLAGS[:3]})
    rows = [golden.record.value or b"" for golden in case.records if golden.kind == "row"]
    assert rows
    for value in rows:
        told = json.loads(value)
        versions = history.versions(TableId(told["database"], told["table"]))
        commit_ts = told.get("_tidb", {}).get("commitTs", told["es"] << 18)
        schema = versions[bisect_left(versions, commit_ts, key=lambda version: version[0]) - 1][1]
        (batch,) = decode_canal_json(value + b"\n", schema, CanalJsonOptions(terminator="\n"))
        (again,) = CanalJsonEncoder(schema, output).messages(batch, built_ms=told["ts"]).to_pylist()
        assert comparable(again) == comparable(value)


@st.composite
def changefeeds(draw: st.DrawFn) -> tuple[TableSchema, list[Change], dict[str, Any]]:
    """A table, its changes, and settings under the names of the writer of test data."""
    schema = draw(tables())
    told: dict[str, Any] = {name: draw(st.booleans()) for name in FLAGS}
    told |= {"time_zone": draw(st.sampled_from(["UTC", "Asia/Shanghai"])), "terminator": draw(st.sampled_from(["\r\n", "\n", "|"]))}
    return schema, draw(changes_of_rows(schema, moves=True)), told


@given(changefeeds())
@settings(max_examples=40, deadline=None)
def test_random_rows_are_the_bytes_of_the_independent_writer_and_are_read_back(
    drawn: tuple[TableSchema, list[Change], dict[str, Any]],
) -> None:
    schema, changes, told = drawn
    changefeed = ChangefeedOptions(**told)
    batch, encoder = block(schema, changes), CanalJsonEncoder(schema, output_of(changefeed))
    data, wanted = encoder.lines(batch, changefeed.terminator, built_ms=0).to_pybytes(), written(schema, changes, changefeed)
    assert data == wanted
    messages = encoder.messages(batch, built_ms=0)
    assert [value + changefeed.terminator.encode() for value in messages.to_pylist()] == list(
        written_singly(schema, changes, changefeed)
    )
    options = CanalJsonOptions(changefeed.terminator, changefeed.time_zone)
    expected = batch
    if not changefeed.enable_tidb_extension:
        milliseconds = batch.column(COMMIT_TS).to_numpy() >> 18 << 18
        if not milliseconds.all():
            return  # no decoder takes the millisecond 0
        expected = expected.set_column(1, expected.schema.field(1), pa.array(milliseconds))
    if changefeed.delete_only_output_handle_key_columns:
        expected = without_others_of_deletions(expected, schema)
        if (batch.column(0).to_numpy() == RowKind.DELETE).all():
            expected = expected.select(range(4))
    assert same_rows(decode_canal_json(data, schema, options), expected)


def written(schema: TableSchema, changes: list[Change], changefeed: ChangefeedOptions) -> bytes:
    return b"".join(written_singly(schema, changes, changefeed))


def written_singly(schema: TableSchema, changes: list[Change], changefeed: ChangefeedOptions) -> Iterator[bytes]:
    """The messages of the independent writer, built at 0."""
    writer = ticdc_canal.CanalEncoder(changefeed, schema)
    for change in changes:
        line = writer.change(change.commit_ts, change.before, change.after)
        yield built_at_0(line.encode())


def without_others_of_deletions(batch: pa.RecordBatch, schema: TableSchema) -> pa.RecordBatch:
    """The batch with only the key of deleted rows, its first column."""
    is_deletion = pa.array(batch.column(0).to_numpy() == RowKind.DELETE)
    for number in range(4, batch.num_columns):
        field = batch.schema.field(number)
        empty = pa.scalar(None, field.type)
        batch = batch.set_column(number, field, pc.if_else(is_deletion, empty, batch.column(number)))
    return batch


@pytest.mark.parametrize("column_type", TYPES, ids=str)
@given(data=st.data())
@settings(max_examples=2, deadline=None)
def test_values_of_each_type_are_the_bytes_of_the_independent_writer(column_type: ColumnType, data: st.DataObject) -> None:
    schema = table(id="INT", v=column_type)
    drawn = data.draw(st.lists(st.none() | values(column_type), min_size=30, max_size=30))
    changes = [Change(1 << 18, None, {"id": number, "v": value}) for number, value in enumerate(drawn)]
    changefeed = ChangefeedOptions(content_compatible=True)
    again = CanalJsonEncoder(schema, output_of(changefeed)).lines(block(schema, changes), built_ms=0)
    assert again.to_pybytes() == written(schema, changes, changefeed)


def test_each_byte_becomes_the_character_with_its_number() -> None:
    schema = table(id="INT", b="BLOB", v="VARCHAR")
    changes = [Change(1 << 18, None, {"id": n, "b": bytes([n, n]), "v": chr(n)}) for n in range(256)]
    batch = block(schema, changes).slice(3)
    data = CanalJsonEncoder(schema).lines(batch, built_ms=0).to_pybytes()
    assert data == written(schema, changes[3:], ChangefeedOptions())
    assert same_rows(decode_canal_json(data, schema, CanalJsonOptions()), batch)


def test_an_update_whose_old_row_is_not_known_has_null_there() -> None:
    schema = table(id="INT", v="VARCHAR")
    changes = [Change(7 << 18, {"id": 1, "v": "a"}, {"id": 1, "v": "b"})]
    batch = block(schema, changes, old_rows=False)
    data = CanalJsonEncoder(schema).lines(batch).to_pybytes()
    assert json.loads(data)["old"] is None
    assert same_rows(decode_canal_json(data, schema, CanalJsonOptions()), batch)


def test_there_is_one_message_for_each_change() -> None:
    schema = table(id="INT")
    changes = [Change(1 << 18, {"id": 1}, {"id": 2}), Change(1 << 18, None, {"id": 3}), Change(1 << 18, {"id": 3}, None)]
    messages = CanalJsonEncoder(schema).messages(block(schema, changes))
    assert messages.type == pa.binary()
    assert [json.loads(message)["type"] for message in messages.to_pylist()] == ["UPDATE", "INSERT", "DELETE"]
    assert len(CanalJsonEncoder(schema).messages(block(schema, []))) == 0
    assert CanalJsonEncoder(schema).lines(block(schema, [])).size == 0


def test_rows_with_wide_columns_are_encoded_like_others() -> None:
    schema = table(id="INT", v="VARCHAR", b="BLOB")
    changes = [Change(1 << 18, {"id": 1, "v": 'a"\u2028', "b": b"\xff\x00"}, {"id": 1, "v": None, "b": None})]
    batch = block(schema, [*changes, Change(1 << 18, {"id": 1, "v": "x", "b": b""}, None)])
    fields = [*(batch.schema.field(n) for n in range(4)), pa.field("v", pa.large_string()), pa.field("b", pa.large_binary())]
    wide = batch.cast(pa.schema(fields))
    for output in (CanalJsonOutput(), CanalJsonOutput(only_output_updated_columns=True)):
        encoder = CanalJsonEncoder(schema, output)
        assert encoder.lines(wide, built_ms=0).equals(encoder.lines(batch, built_ms=0))


def test_messages_that_one_array_cannot_hold_have_the_large_type(monkeypatch: pytest.MonkeyPatch) -> None:
    schema = table(id="INT", v="VARCHAR", b="BLOB")
    row: dict[str, object] = {"id": 1, "v": 'a"', "b": b"\xff"}
    batch = block(schema, [Change(1 << 18, row, {**row, "v": None}), Change(1 << 18, None, row), Change(1 << 18, row, None)])
    outputs = [CanalJsonOutput(), CanalJsonOutput(content_compatible=True, delete_only_output_handle_key_columns=True)]
    wanted = [CanalJsonEncoder(schema, output).messages(batch, built_ms=0).to_pylist() for output in outputs]
    for module in ("encoding", "byte_escapes"):
        monkeypatch.setattr(f"headrace.formats.{module}._MOST_SMALL", 1)
    for output, messages in zip(outputs, wanted, strict=True):
        found = CanalJsonEncoder(schema, output).messages(batch, built_ms=0)
        assert (found.type, found.to_pylist()) == (pa.large_binary(), messages)


def test_the_encoder_of_a_type_with_unsigned_values_names_the_next_larger_type_of_java() -> None:
    kinds = {"a": "TINYINT", "b": "SMALLINT", "c": "MEDIUMINT", "d": "INT", "e": "BIGINT"}
    schema = table(id="INT", **{name: f"{kind} UNSIGNED" for name, kind in kinds.items()})
    limits = {name: 2 ** (bits - 1) for name, bits in zip(kinds, (8, 16, 24, 32, 64), strict=True)}
    rows = [{"id": 1, **{name: limit - 1 for name, limit in limits.items()}}, {"id": 2, **limits}]
    messages = CanalJsonEncoder(schema).messages(block(schema, [Change(1 << 18, None, row) for row in rows]))
    found = [list(json.loads(message)["sqlType"].values()) for message in messages.to_pylist()]
    assert found == [[4, -6, 5, 4, 4, -5], [4, 5, 4, 4, -5, 3]]


# --- what canal-JSON cannot carry -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("column_type", "value", "reason"),
    [
        (ColumnType(TypeKind.ENUM, elements=("a", "b")), "c", "is not among the members of the ENUM"),
        (ColumnType(TypeKind.SET, elements=("a", "b")), "a,c", "is not among the members of the SET"),
        (ColumnType(TypeKind.ENUM), "a", "is an ENUM whose members are not known"),
        (ColumnType(TypeKind.DOUBLE), float("nan"), "is no number"),
        (ColumnType(TypeKind.TIMESTAMP), "2024-13-01 00:00:00", "is no TIMESTAMP"),
    ],
)
def test_a_value_that_canal_json_cannot_carry_is_an_error_that_names_it(
    column_type: ColumnType, value: object, reason: str
) -> None:
    schema = table(id="INT", v=column_type)
    batch = block(schema, [Change(1 << 18, None, {"id": n, "v": v}) for n, v in enumerate([None, None, value, None])])
    with pytest.raises(EncodeError, match=rf"^Column v of test\.t .*{reason}") as raised:
        CanalJsonEncoder(schema, CanalJsonOutput(time_zone="Asia/Shanghai")).lines(batch)
    assert (raised.value.row, raised.value.column, repr(raised.value.value)) == (2, "v", repr(value))


@pytest.mark.parametrize("is_old", [False, True])
def test_the_error_of_an_update_names_the_row_in_the_batch(is_old: bool) -> None:
    schema = table(id="INT", v="DOUBLE")
    good, bad = {"id": 1, "v": 1.0}, {"id": 1, "v": float("inf")}
    batch = block(schema, [Change(1 << 18, good, good), Change(1 << 18, bad if is_old else good, good if is_old else bad)])
    with pytest.raises(EncodeError) as raised:
        CanalJsonEncoder(schema).lines(batch)
    assert raised.value.row == (2 if is_old else 3)


def test_empty_members_need_no_list_of_members() -> None:
    schema = table(id="INT", e=ColumnType(TypeKind.ENUM), s=ColumnType(TypeKind.SET))
    batch = block(schema, [Change(1 << 18, None, {"id": 1, "e": "", "s": None})])
    assert b'"data":[{"id":"1","e":"0","s":null}]' in CanalJsonEncoder(schema).lines(batch).to_pybytes()


def test_changes_that_canal_json_cannot_carry_are_errors_that_name_the_table() -> None:
    schema = table(id="INT")
    batch = block(schema, [Change(5, {"id": 1}, {"id": 1})])
    with pytest.raises(EncodeError, match=r"^Table test\.t has an old row of an update that is not followed by the new row"):
        CanalJsonEncoder(schema).lines(batch.slice(0, 1))
    with pytest.raises(EncodeError, match=r"^Table test\.t has a change without a commit ts"):
        CanalJsonEncoder(schema).lines(block(schema, [Change(0, None, {"id": 1})]))
    with pytest.raises(EncodeError, match=r"^Column w of test\.t is not in the rows"):
        CanalJsonEncoder(table(id="INT", w="INT")).lines(batch)
    with pytest.raises(ValueError, match="terminator"):
        CanalJsonEncoder(schema).lines(batch, "")


def test_a_table_without_handle_key_has_no_deletions_with_only_that() -> None:
    schema = TableSchema(TableId("test", "t"), (Column("v", ColumnType(TypeKind.INT)),))
    encoder = CanalJsonEncoder(schema, CanalJsonOutput(delete_only_output_handle_key_columns=True))
    insertion, deletion = Change(1 << 18, None, {"v": 1}), Change(1 << 18, {"v": 1}, None)
    assert encoder.lines(block(schema, [insertion])).size
    with pytest.raises(EncodeError, match=r"^Table test\.t has no handle key"):
        encoder.lines(block(schema, [insertion, deletion]))
