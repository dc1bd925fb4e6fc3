"""Random histories of a changefeed with a topic for each table, which appears with it and gets no watermarks without it."""

from __future__ import annotations

import pickle
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from random import Random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headrace.ddl.statement import read_statement
from headrace.model.table import TableId
from headrace.sources.stream.records import RecordKind
from headrace.testing.memory_sink import CAPABILITIES
from headrace.testing.memory_source import MemoryRecord, MemoryStream
from headrace.testing.ticdc_writer import RowChange, SchemaFile
from sampling import drawn
from streams import GROWS, Actions, World, run_cleared, run_killed

pytestmark = pytest.mark.pipeline

_KINDS = [kind for kind in range(GROWS + 2) if kind != GROWS]
"""Topics appear with their tables, so no step has to add partitions."""
_MOST_LEAN = 50
"""The most ms by which watermarks of the default topic have to be ahead in these tests."""


@dataclass
class TopicStream(MemoryStream):
    """Partition 0 is the default topic. Statements of databases are in it, and those of tables in the topics of their old names."""

    count: int = 1
    of_topic: int = 1
    """How many partitions the topic of a table has."""
    leans_after: int | None = None
    """As in :attr:`MemoryStream.leaning`; ``None``: a topic without a table gets watermarks all the same."""
    topics: dict[TableId, list[int]] = field(default_factory=dict)

    def topic(self, table_id: TableId) -> list[int]:
        """The partitions of the topic of a table, which is made if there is none yet."""
        if table_id not in self.topics:
            self.topics[table_id] = [self.add_partition(self.leans_after) for _ in range(self.of_topic)]
        return self.topics[table_id]

    def place_of(self, table_id: TableId, change: RowChange) -> int:
        row, places = change.after or change.before or {}, self.topic(table_id)
        key = [row[name] for name in self._schemas[table_id].handle_key] or None
        return places[zlib.crc32(repr((table_id, key)).encode()) % len(places)]

    def schema_changes(self, version: int, files: Sequence[SchemaFile], gone: Iterable[TableId] = ()) -> None:
        for table_id in gone:
            self._schemas.pop(table_id, None)
        for file in files:
            if file.schema is not None:
                self._schemas[file.table_id] = file.schema
            renames = read_statement(file.statement, file.table_id.database).renames
            record = MemoryRecord(RecordKind.STATEMENT, file.table_id, version, pickle.dumps((file.statement, file.schema)))
            for place in self.topic(renames[0][0] if renames else file.table_id) if file.table_id.table else [0]:
                self._append(place, record)

    def checkpoint(self, ts: int) -> None:
        active = [t for t in self.topics if t in self._schemas or self.leans_after is None]
        for place in sorted({0, *(place for table_id in active for place in self.topics[table_id])} - self.silent):
            self._append(place, MemoryRecord(RecordKind.WATERMARK, TableId(""), ts))

    def stall(self, *places: int) -> None:
        """Only the default topic: TiCDC writes a watermark after all that it promises, to whatever topic."""
        super().stall(*{0}.intersection(places))


@dataclass
class TopicWorld(World):
    partitions: int = 1
    of_topic: int = 1
    leans_after: int | None = None

    def make_stream(self) -> MemoryStream:
        return TopicStream(of_topic=self.of_topic, leans_after=self.leans_after)


class TopicActions(Actions):
    """Without renames there and back, for which a person must decide: how often each step ran cannot be seen in several topics."""

    def _rename(self, tables: list[TableId], free: TableId) -> None:
        upstream = self._world.upstream
        if len(tables) > 1 and self._chance.random() < 0.3:
            upstream.rename_tables((tables[0], free), (tables[1], tables[0]), (free, tables[1]))
        else:
            upstream.rename_table(tables[0], free)


@settings(max_examples=drawn(60), deadline=None)
@given(seed=st.integers(0, 1 << 30), capability=st.sampled_from(list(CAPABILITIES)))
@example(seed=5169, capability="atomic small cuts")
def test_any_history_with_a_topic_for_each_table_is_applied_once(
    seed: int, capability: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    chance = Random(seed)
    of_topic, leans_after = chance.choice([1, 1, 2]), chance.choice([0, 0, 3, _MOST_LEAN, None])
    root = tmp_path_factory.mktemp("topics")
    world = TopicWorld(root, capability=capability, of_topic=of_topic, leans_after=leans_after)
    actions = TopicActions(world, chance)
    for _ in range(chance.randrange(1, 6)):
        for _ in range(chance.randrange(1, 20)):
            actions.step(_KINDS)
        for _ in range(chance.randrange(3)):
            run_killed(world, chance)
        world.stream.hidden.clear()
        run_cleared(world, chance)
    world.stream.go_on()
    for _ in range(_MOST_LEAN + 1):
        world.upstream.checkpoint()
    run_cleared(world, chance)
    world.check()
