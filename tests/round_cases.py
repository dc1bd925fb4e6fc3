"""A round over a source in memory, and the sinks that take it in each of the ways that there are. Tasks import this module."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pyarrow as pa

from headrace.engine.round import Engine, EngineRound
from headrace.model.block import COMMIT_TS, KIND, META_COUNT, META_FIELDS, SEQ, SEQ_RANK_SHIFT, ChangeBlock
from headrace.model.cut import Cut, CutRound, Repeats
from headrace.model.events import RowKind
from headrace.model.outcome import Problem, SplitReport, WriteOutcome
from headrace.model.split import Segment, Split, Window
from headrace.model.table import Column, TableId, TableSchema
from headrace.model.types import ColumnType, TypeKind
from headrace.places.work_place import WorkLease
from headrace.sinks.base import ChangeDemand, Commits, SinkCapabilities, Spread, TableChange, WriterContext, WriteReport

Change = tuple[int, RowKind, int, str]
"""Commit ts, kind, key, value."""
COLUMNS = (Column("id", ColumnType(TypeKind.BIGINT), nullable=False, primary_key=True), Column("v", ColumnType(TypeKind.VARCHAR)))
NET, LOG, BAG = TableId("shop", "net"), TableId("shop", "log"), TableId("shop", "bag")


def schema_of(table_id: TableId) -> TableSchema:
    return TableSchema(table_id, COLUMNS, () if table_id == BAG else ("id",))


def demand_of(table_id: TableId, schema: TableSchema) -> ChangeDemand:
    """Each table is wanted in another way."""
    return ChangeDemand.ALL if table_id.table.startswith("log") else ChangeDemand.NET


@dataclass(frozen=True)
class MemorySplit(Split):
    """A split that carries its rows."""

    changes: tuple[Change, ...] = ()
    problem: str = ""


@dataclass(frozen=True)
class MemorySource:
    """Reads splits that carry their rows."""

    def read(self, split: MemorySplit, window: Window, **_: Any) -> Iterator[ChangeBlock | SplitReport]:
        count = len(split.changes)
        if count:
            meta = [
                pa.array([int(kind) for _, kind, _, _ in split.changes], META_FIELDS[0].type),
                pa.array([ts for ts, *_ in split.changes], META_FIELDS[1].type),
                pa.array([split.rank << SEQ_RANK_SHIFT | n for n in range(count)], META_FIELDS[2].type),
            ]
            rows = [pa.array([key for _, _, key, _ in split.changes]), pa.array([v for *_, v in split.changes])]
            batch = pa.record_batch([*meta, *rows], names=[KIND, COMMIT_TS, SEQ, "id", "v"])
            yield ChangeBlock(split.table_id, split.version, split.schema, batch)
        times = [ts for ts, *_ in split.changes] or [0]
        problem = Problem(split.table_id, split.problem, split.place) if split.problem else None
        yield SplitReport(
            split.key, split.table_id, split.rank, "", count, count, min_ts=min(times), max_ts=max(times), problem=problem
        )


def splits_of(table_id: TableId, files: Iterable[Iterable[Change]], *, size: int = 5 << 20, problem: str = "") -> list[MemorySplit]:
    """The files of a table. ``size`` is what they are said to have: it decides how a round is spread."""
    schema = schema_of(table_id)
    return [
        MemorySplit(f"{table_id}/{n}", table_id, 1, n, size, schema, changes=tuple(changes), problem=problem)
        for n, changes in enumerate(files)
    ]


def history(seed: int, keys: int = 50, transactions: int = 200) -> list[list[Change]]:
    """The changes of a table in files, in commit order."""
    chance = Random(seed)
    alive: set[int] = set()
    files: list[list[Change]] = [[]]
    for ts in range(10, 10 + transactions):
        for key in chance.sample(range(keys), chance.randrange(1, 4)):
            if key in alive and chance.random() < 0.3:
                alive.discard(key)
                files[-1].append((ts, RowKind.DELETE, key, ""))
            else:
                kind = RowKind.UPDATE_AFTER if key in alive else RowKind.INSERT
                alive.add(key)
                files[-1].append((ts, kind, key, f"{key} at {ts}"))
        if chance.random() < 0.2:
            files.append([])
    return [file for file in files if file]


def bags(seed: int) -> list[list[Change]]:
    """Inserts of a table without key, some equal."""
    chance = Random(seed)
    return [[(ts, RowKind.INSERT, chance.randrange(5), "x") for ts in range(start, start + 20)] for start in (10, 40, 70)]


def final_rows(files: Iterable[Iterable[Change]]) -> dict[int, str]:
    """What is left of a history."""
    rows: dict[int, str] = {}
    for _, kind, key, value in sorted((c for file in files for c in file), key=lambda change: change[0]):
        rows.pop(key, None)
        if kind is not RowKind.DELETE:
            rows[key] = value
    return rows


def round_of(
    engine: Engine,
    splits: list[MemorySplit],
    *,
    spread: Spread = Spread.BY_TABLE,
    writers: int = 0,
    repeats: Repeats = Repeats.CHANGES,
) -> EngineRound:
    """A round of these splits for a sink that wants each table in another way."""
    capabilities = SinkCapabilities(ChangeDemand.NET, bags=True, writers=writers, spread=spread, own_demand=demand_of)
    segments = {s.table_id: Segment(Window(), 1, s.schema) for s in splits}
    cut_round = CutRound((), tuple(splits), segments)
    tables = {s.table_id: 0 for s in splits}
    cut = Cut(1 << 40, (cut_round,), dict.fromkeys(tables, Window()), tables, repeats=repeats)
    context = WriterContext("rounds", 1, 0, 0)
    return EngineRound(engine, MemorySource(), capabilities, cut, cut_round, context, WorkLease(), {})  # type: ignore[arg-type]


@dataclass
class Collected:
    """What a sink got of a round."""

    rows: dict[TableId, dict[int, str]] = field(default_factory=dict)
    logs: dict[TableId, list[Change]] = field(default_factory=dict)
    inserted: dict[TableId, int] = field(default_factory=dict)

    def take(self, change: TableChange) -> WriteOutcome:
        """Applies a change."""
        if demand_of(change.table_id, change.schema) is ChangeDemand.ALL:
            rows = [change.ordered.column(name).to_pylist() for name in (COMMIT_TS, KIND, "id", "v")]
            found = [(ts, RowKind(kind), key, value) for ts, kind, key, value in zip(*rows, strict=True)]
            self.logs.setdefault(change.table_id, []).extend(found)
            return WriteOutcome(change.table_id, upserts=len(found))
        assert change.ordered.num_rows == 0
        if not change.schema.handle_key:
            self.inserted[change.table_id] = self.inserted.get(change.table_id, 0) + change.upserts.num_rows
        kept = self.rows.setdefault(change.table_id, {})
        for key in change.deletes["id"].to_pylist():
            kept.pop(key, None)
        kept |= dict(zip(change.upserts["id"].to_pylist(), change.upserts["v"].to_pylist(), strict=True))
        return WriteOutcome(change.table_id, upserts=change.upserts.num_rows, deletes=change.deletes.num_rows)


def streamed(cut_round: EngineRound) -> tuple[Collected, WriteReport]:
    """What comes to the driver."""
    found = Collected()
    coming = cut_round.stream_from_tasks()
    outcomes = [found.take(change) for change in coming]
    return found, coming.report(outcomes)


class TellingWriter:
    """A :class:`headrace.sinks.base.UnitWriter` that hands what it gets to the driver, as the text of a notice."""

    def open(self, context: WriterContext) -> None:
        self._slot, self._units = context.slot, 0

    def write(self, changes: Iterable[TableChange], commit: object) -> list[WriteOutcome]:
        found: list[WriteOutcome] = []
        self._units += 1
        for change in changes:
            rows = change.ordered if change.ordered.num_rows else change.upserts
            spooled = (repr((self._slot, self._units, change.ordered.num_rows, _rows(change))),)
            found.append(WriteOutcome(change.table_id, upserts=rows.num_rows, deletes=change.deletes.num_rows, spooled=spooled))
        return found

    def commits(self) -> tuple[Commits, ...]:
        return ()

    def close(self) -> None: ...


def _rows(change: TableChange) -> list[tuple[Any, ...]]:
    if change.ordered.num_rows:
        columns = [change.ordered.column(name).to_pylist() for name in (COMMIT_TS, KIND, "id", "v")]
        return list(zip(*columns, strict=True))
    assert META_COUNT == 3
    return list(zip(change.upserts["id"].to_pylist(), change.upserts["v"].to_pylist(), strict=True))
