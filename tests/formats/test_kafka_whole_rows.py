"""Whatever rows a batch of messages holds, a column that one of them lacks is never taken as NULL, in any protocol."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.model.block import KIND
from headrace.model.events import RowKind
from headrace.model.table import Column, TableId, TableSchema
from headrace.model.types import ColumnType, TypeKind
from headrace.sources.kafka.canal_json import CanalJsonProtocol
from headrace.sources.kafka.debezium import DebeziumProtocol
from headrace.sources.kafka.maxwell import MaxwellProtocol
from headrace.sources.kafka.open_protocol import OpenProtocol
from headrace.sources.kafka.protocol import KafkaProtocol
from headrace.sources.kafka.simple import SimpleProtocol
from headrace.sources.stream.reader import BadRecordError
from headrace.sources.stream.records import PIECE
from kafka_cases import tso

pytestmark = pytest.mark.long

Row = Mapping[str, object]
ID = Column("id", ColumnType(TypeKind.INT), nullable=False, primary_key=True)
T = TableSchema(TableId("d", "t"), (ID, *(Column(name, ColumnType(TypeKind.VARCHAR)) for name in "vw")), ("id",))
TEXTS = [":null", ":nullable", '":null', ':":null', '\\":null', '"v":null', '{"v":null}', '"before":null', "null", "v", ""]
INSERT, UPDATE, DELETE = "INSERT", "UPDATE", "DELETE"


@dataclass(frozen=True)
class Change:
    """A row change. ``without_old`` writes an update as the protocol does that does not have the old row."""

    kind: str
    old: Row
    new: Row
    without_old: bool

    def damaged(self, damage: Callable[[Row], Row]) -> Change:
        return Change(self.kind, damage(self.old), damage(self.new), self.without_old)


def text(message: object) -> bytes:
    return json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode()


def debezium(change: Change) -> bytes:
    has_old = change.kind == DELETE or (change.kind == UPDATE and not change.without_old)
    sides = {"before": change.old if has_old else None, "after": None if change.kind == DELETE else change.new}
    return text({"op": {INSERT: "c", UPDATE: "u", DELETE: "d"}[change.kind], **sides})


def maxwell(change: Change) -> bytes:
    told = {"database": "d", "table": "t", "type": change.kind.lower(), "ts": 5}
    if change.kind == DELETE:
        return text({**told, "old": change.old})
    differing = {name: value for name, value in change.old.items() if change.new[name] != value}
    return text({**told, "data": change.new, **({"old": differing} if change.kind == UPDATE and differing else {})})


def simple(change: Change) -> bytes:
    sides = {"data": None if change.kind == DELETE else change.new, "old": None if change.kind == INSERT else change.old}
    texts = {side: row and {n: v if v is None else str(v) for n, v in row.items()} for side, row in sides.items()}
    told = {"version": 1, "database": "d", "table": "t", "tableID": 1, "type": change.kind, "commitTs": tso(1), "buildTs": 1}
    return text({**told, "schemaVersion": 1, **{side: row for side, row in texts.items() if row}})


def canal_json(change: Change) -> bytes:
    def texts(row: Row) -> list[Row]:
        return [{name: value if value is None else str(value) for name, value in row.items()}]

    told = {"id": 0, "database": "d", "table": "t", "pkNames": ["id"], "isDdl": False, "type": change.kind, "es": tso(1) >> 18}
    named = {name.lower(): name for name in change.new}  # the types are told of a column that the row lacks, too
    types = {named.get(name, name): of for name, of in (("id", "int"), ("v", "varchar"), ("w", "varchar"))}
    old = texts(change.old) if change.kind == UPDATE else None
    rows = {"mysqlType": types, "old": old, "data": texts(change.old if change.kind == DELETE else change.new)}
    return text({**told, "ts": 1, "sql": "", **rows, "_tidb": {"commitTs": tso(1)}})


def open_protocol(change: Change) -> bytes:
    def cells(row: Row) -> Row:
        return {name: {"t": 3 if name.lower() == "id" else 15, "f": 0, "v": value} for name, value in row.items()}

    if change.kind == DELETE:
        return text({"d": cells(change.old)})
    return text({"u": cells(change.new), **({"p": cells(change.old)} if change.kind == UPDATE and not change.without_old else {})})


WRITERS: dict[KafkaProtocol, Callable[[Change], bytes]] = {
    DebeziumProtocol(): debezium,
    MaxwellProtocol(): maxwell,
    SimpleProtocol(): simple,
    OpenProtocol(): open_protocol,
    CanalJsonProtocol(): canal_json,
}


def rows_of(protocol: KafkaProtocol, values: Sequence[bytes]) -> list[dict[str, object]]:
    count = len(values)
    piece = pa.record_batch([list(range(count)), [tso(1)] * count, pa.array(values, pa.binary())], schema=PIECE)
    rows: list[dict[str, object]] = protocol.decode(T, piece)[0].to_pylist()
    return rows


VALUES = st.none() | st.sampled_from(TEXTS)
ROWS = st.fixed_dictionaries({"id": st.integers(0, 2), "v": VALUES, "w": VALUES})
CHANGES = st.builds(Change, st.sampled_from([INSERT, UPDATE, DELETE]), ROWS, ROWS, st.booleans())


@pytest.mark.parametrize("protocol", WRITERS, ids=lambda protocol: protocol.name)
@given(st.lists(CHANGES, min_size=1, max_size=6), st.data())
@settings(max_examples=300, deadline=None)
def test_a_column_is_read_by_its_name_in_any_case_and_never_missed(
    protocol: KafkaProtocol, changes: list[Change], data: st.DataObject
) -> None:
    values = [WRITERS[protocol](change) for change in changes]
    whole = rows_of(protocol, values)
    new = [{name: row[name] for name in ("id", "v", "w")} for row in whole if row[KIND] != RowKind.UPDATE_BEFORE]
    assert new == [change.old if change.kind == DELETE else change.new for change in changes]

    number = data.draw(st.integers(0, len(changes) - 1))
    column = data.draw(st.sampled_from(["id", "v", "w"]))
    in_capitals = changes[number].damaged(lambda row: {n.upper() if n == column else n: value for n, value in row.items()})
    values[number] = WRITERS[protocol](in_capitals)
    assert rows_of(protocol, values) == whole

    if column == "id" or changes[number].kind != DELETE:  # a deletion may have the key only
        lacking = changes[number].damaged(lambda row: {n: value for n, value in row.items() if n != column})
        values[number] = WRITERS[protocol](lacking)
        with pytest.raises(BadRecordError) as caught:
            rows_of(protocol, values)
        assert caught.value.record == number
