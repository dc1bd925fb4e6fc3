"""What a stream may say of its repeats."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from headrace.model.cut import Repeats
from headrace.model.table import TableId, TableSchema
from headrace.sinks.base import ChangeDemand
from headrace.testing.memory_source import MemoryReader, MemoryStream
from streams import A, TableDemand, World


def every_change(table_id: TableId, schema: TableSchema) -> ChangeDemand:
    """For a log."""
    return ChangeDemand.ALL


@pytest.mark.parametrize("logged", [None, every_change])
@pytest.mark.parametrize("partitions", [1, 3])
def test_a_stream_cannot_tell_its_repeats_by_transactions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, partitions: int, logged: TableDemand | None
) -> None:
    """A range may end inside of one, and partitions share it: its tables stop with a sentence, nothing is lost or doubled."""
    reader = MemoryStream.reader

    def by_transactions(stream: MemoryStream) -> MemoryReader:
        return replace(reader(stream), repeats=Repeats.TRANSACTIONS)

    monkeypatch.setattr(MemoryStream, "reader", by_transactions)
    world = World(tmp_path, partitions=partitions, logged=logged)
    world.create(A)
    world.insert(A, *range(6))
    world.upstream.checkpoint()
    (problem,) = world.run().stopped
    assert "its source tells repeated transactions by the splits that hold them" in problem.message
    assert not world.server.contents.tables[A].rows
    assert not world.server.contents.logs.get(A)
