"""What a stream may say of its repeats."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from headrace.model.cut import Repeats
from headrace.model.ledger import RequestKind
from headrace.model.policy import OnError
from headrace.model.table import TableId, TableSchema
from headrace.sinks.base import ChangeDemand
from headrace.sinks.dead_letters import open_dead_letters
from headrace.testing.memory_source import MemoryReader, MemoryStream
from headrace.testing.ticdc_writer import RowChange
from streams import NAME, A, TableDemand, World


def every_change(table_id: TableId, schema: TableSchema) -> ChangeDemand:
    """For a log."""
    return ChangeDemand.ALL


def say(monkeypatch: pytest.MonkeyPatch, repeats: Repeats) -> None:
    """All that read the stream from now on say this of its repeats."""
    reader = MemoryStream.reader

    def saying(stream: MemoryStream) -> MemoryReader:
        return replace(reader(stream), repeats=repeats)

    monkeypatch.setattr(MemoryStream, "reader", saying)


@pytest.mark.parametrize("logged", [None, every_change])
@pytest.mark.parametrize("partitions", [1, 3])
def test_a_stream_cannot_tell_its_repeats_by_transactions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, partitions: int, logged: TableDemand | None
) -> None:
    """A range may end inside of one, and partitions share it: its tables stop with a sentence, nothing is lost or doubled."""
    say(monkeypatch, Repeats.TRANSACTIONS)
    world = World(tmp_path, partitions=partitions, logged=logged)
    world.create(A)
    world.insert(A, *range(6))
    world.upstream.checkpoint()
    (problem,) = world.run().stopped
    assert "its source recognizes repeated transactions by their splits" in problem.message
    assert not world.server.contents.tables[A].rows
    assert not world.server.contents.logs.get(A)


@pytest.mark.parametrize("repeats", [Repeats.CHANGES, Repeats.UNKNOWN])
def test_a_replay_of_dead_letters_nets_by_the_rule_that_the_cut_was_netted_by(
    repeats: Repeats, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A transaction inserts a key and deletes it. That order is nothing where one changes a key once at most (``CHANGES``)."""
    say(monkeypatch, repeats)
    letters = open_dead_letters(str(tmp_path / "letters"), NAME)
    world = World(tmp_path, partitions=1)
    world.create(A)
    ts = world.insert(A, 1)
    row = {"id": 2, "v": "2"}
    for before, after in ((None, row), (row, None)):
        world.stream.rows(A, ts, [RowChange(before, after)])
    world.insert(A, 3)
    records = world.stream.partitions[0]
    bad, kept = len(records) - 1, records[-1]
    world.stream.damage(0, bad)
    world.upstream.checkpoint()
    options = {"on_error": OnError.DEAD_LETTER, "letters": letters}
    assert not world.run(**options).stopped
    alive = {2} if repeats is Repeats.CHANGES else set()
    assert ids(world) == {1} | alive
    records[bad] = kept
    world.request(RequestKind.REPLAY, A)
    world.run(**options)
    assert (letters.of(A), world.state.dead_letters) == ({}, {})
    assert ids(world) == {1, 3} | alive


def ids(world: World) -> set[object]:
    return {dict(row)["id"] for row in world.rows(A)}
