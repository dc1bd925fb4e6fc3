"""blackhole:// counts and drops."""

from __future__ import annotations

import pickle

import pyarrow as pa
import pytest

from headrace.errors import DefinitionError
from headrace.model.block import block_schema
from headrace.model.events import DropTableEvent, RowKind, SchemaChange
from headrace.model.table import Column, TableId, TableSchema
from headrace.model.types import ColumnType, TypeKind
from headrace.sinks.base import ChangeDemand, DataSink, TableChange, UnitWriter, WriterContext, WriteReport
from headrace.sinks.blackhole import open_sink

ORDERS = TableId("shop", "orders")
COLUMNS = (Column("id", ColumnType(TypeKind.BIGINT), primary_key=True),)


class FakeRound:
    """One unit with two upserts, one delete, and two rows whose order matters."""

    def write_in_tasks(self, writer: UnitWriter) -> WriteReport:
        copy = pickle.loads(pickle.dumps(writer))
        copy.open(WriterContext("shop", 1, 0, 0))
        ids = pa.table({"id": pa.array([1, 2], pa.int64())})
        ordered = pa.table(
            [pa.array([3, 2], pa.int8()), *(pa.array(values, pa.int64()) for values in ([1, 2], [0, 1], [3, 3]))],
            schema=block_schema(COLUMNS),
        )
        assert ordered.column(0).to_pylist() == [RowKind.DELETE, RowKind.UPDATE_AFTER]
        change = TableChange(ORDERS, 1, TableSchema(ORDERS, COLUMNS, ("id",)), ids.slice(0, 1), ids, ordered)
        outcomes = copy.write([change], None)
        copy.close()
        return WriteReport(outcomes=tuple(outcomes))


def blackhole() -> DataSink:
    return open_sink("blackhole://")


def test_changes_are_counted() -> None:
    (outcome,) = blackhole().event_sink.write(FakeRound()).outcomes
    assert (outcome.table_id, outcome.upserts, outcome.deletes, outcome.problem) == (ORDERS, 3, 2, None)


def test_every_schema_change_is_accepted() -> None:
    drop = SchemaChange(5, ORDERS, (DropTableEvent(ORDERS),), "", "shop", frozenset({ORDERS}))
    assert blackhole().metadata_applier.apply_schema_change(drop) == ()
    assert blackhole().metadata_applier.describe(ORDERS) is None


def test_net_changes_are_asked_for_and_the_ledger_is_elsewhere() -> None:
    assert blackhole().capabilities.demand is ChangeDemand.NET
    assert blackhole().ledger is None


@pytest.mark.parametrize("uri", ["blackhole://host", "blackhole:///path", "blackhole://?x=5"])
def test_options_are_refused(uri: str) -> None:
    with pytest.raises(DefinitionError, match="blackhole://"):
        open_sink(uri)
