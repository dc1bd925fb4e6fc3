"""Histories that a stream in memory tells, with all that happens to its readers: the fault model's other kind of source."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from random import Random

from differential import History
from faulty_runs import SmallHistory
from harness import State
from headrace.model.table import TableId
from headrace.sources.base import DataSource
from headrace.testing.memory_source import MemorySource, MemoryStream
from headrace.testing.ticdc_writer import RowChange, SchemaFile

PARTITIONS = 3
"""How many a stream has."""


@dataclass(frozen=True)
class _Event:
    """A transaction's rows of one table, or a schema change."""

    ts: int
    objects: frozenset[TableId]
    tell: Callable[[], None]
    is_schema_change: bool


class StreamDelivery:
    """The way from the upstream into a stream, with the methods of ``headrace.testing.delivery.Delivery`` that a history uses."""

    def __init__(self, chance: Random, stream: MemoryStream) -> None:
        self.clock: Callable[[], datetime] = lambda: datetime.now(UTC)
        self.stream = stream
        self._chance = chance
        self._pending: list[_Event] = []

    @property
    def promised(self) -> int:
        """The watermark that all partitions have reached."""
        return self.stream.promised

    def rows(self, table_id: TableId, commit_ts: int, changes: Iterable[RowChange], *, partition: int | None = None) -> None:
        told = list(changes)
        self._add(commit_ts, {table_id}, lambda: self.stream.rows(table_id, commit_ts, told), is_schema_change=False)

    def schema_changes(self, version: int, files: Sequence[SchemaFile], gone: Iterable[TableId] = ()) -> None:
        ended = list(gone)
        objects = {*ended, *(file.table_id for file in files)}
        self._add(version, objects, lambda: self.stream.schema_changes(version, files, ended), is_schema_change=True)

    def _add(self, ts: int, objects: Iterable[TableId], tell: Callable[[], None], *, is_schema_change: bool) -> None:
        self._pending.append(_Event(ts, frozenset(objects), tell, is_schema_change))

    def checkpoint(self, ts: int) -> None:
        """A watermark in all partitions, but for those that stall or are silent."""
        if (self.stream.stalled or self.stream.silent) and self._chance.random() < 0.6:
            self.stream.go_on()
        for event in self._pending:
            if event.ts <= ts:
                event.tell()
        self._pending = [event for event in self._pending if event.ts > ts]
        self.stream.checkpoint(ts)

    def deliver_some(self) -> None:
        """Some of what waits is told, in the order of each table."""
        rest: list[_Event] = []
        held: set[TableId] = set()
        for event in self._pending:
            near = any(o.database == h.database and not (o.table and h.table) for o in event.objects for h in held)
            if near or not held.isdisjoint(event.objects) or self._chance.random() < 0.4:
                held |= event.objects
                rest.append(event)
            else:
                event.tell()
        self._pending = rest

    def begin_files(self) -> None:
        """A partition stalls or becomes silent, or those that did go on."""
        if self.stream.stalled or self.stream.silent:
            self.stream.go_on()
        else:
            self._chance.choice([self.stream.stall, self.stream.silence])(self._chance.randrange(PARTITIONS))

    def complete(self) -> None:
        """No partition stalls or is silent any more."""
        self.stream.go_on()

    def restart(self, acknowledged: int, *, torn: bool = False) -> None:
        """What writes the stream goes on from a ts up to which everything was promised once: it repeats what lies above."""
        most = self._chance.choice([None, None, self._chance.randrange(20)])
        self.stream.repeat(acknowledged, is_told=self._chance.random() < 0.7, most=most)


class Streamed(History):
    """What is different for a history whose changefeed is a stream."""

    delivery: StreamDelivery  # type: ignore[assignment]

    def new_stream(self) -> MemoryStream:
        """The stream, without records."""
        return MemoryStream(PARTITIONS)

    def new_delivery(self) -> StreamDelivery:  # type: ignore[override]
        return StreamDelivery(self._chance, self.new_stream())

    def finish(self) -> None:
        self.delivery.complete()
        super().finish()

    def state(self, checkpoint: int | None = None) -> State:
        """The same, but with a schema change at the very checkpoint: its record lies before that watermark."""
        checkpoint = self.promised if checkpoint is None else checkpoint
        return replace(super().state(checkpoint + 1), checkpoint_ts=checkpoint)


class StreamedHistory(Streamed, SmallHistory):
    """A small history whose changefeed is a stream."""

    is_streamed = True

    @property
    def uri(self) -> str:
        """Of no source: runs get :meth:`opened`."""
        return f"{self.root.as_uri()}?protocol=csv"

    def opened(self) -> DataSource:
        return MemorySource(self.delivery.stream)
