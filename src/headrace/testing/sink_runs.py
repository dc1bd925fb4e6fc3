"""Runs into one target: an upstream, a stream of what happens there, and the real engine, in this process and without Spark."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from headrace.engine.loop import Loop
from headrace.engine.round import EngineRound
from headrace.engine.run_options import RunOptions
from headrace.engine.stage import Stage
from headrace.engine.write_task import Unit, WriteJob, WriteTask
from headrace.model.cut import Cut, CutRound
from headrace.model.ledger import CutRecord, TableProgress
from headrace.model.outcome import Notice, Problem
from headrace.model.table import TableId, TableSchema
from headrace.places.work_place import WorkLease
from headrace.sinks.base import DataSink, Ledger, Round, WriterContext
from headrace.sinks.cut_commit import CutCommit
from headrace.sinks.file_ledger import open_file_ledger
from headrace.sources.base import EventSource, StagingPlace, StreamSource
from headrace.testing.engine import LocalEngine
from headrace.testing.faults import Fault, Passage, armed
from headrace.testing.memory_source import MemorySource, MemoryStream
from headrace.testing.upstream import Sink, Upstream
from headrace.testing.values import comparable

PIPELINE = "suite"
IDENTITY = "suite://source"


@dataclass
class SinkUnderTest:
    """What the author of a sink tells the suite about it. The target is empty at first, and belongs to one test."""

    open: Callable[[], DataSink]
    """A new object for the target, as another process would have it."""
    read: Callable[[TableSchema], Iterable[Mapping[str, object]]]
    """The rows of a table of the target, by column; values as ``headrace.testing.values.comparable`` takes them."""
    save: Callable[[], Callable[[], None]] | None = None
    """Remembers all that the target holds; what it returns puts that back, as a restored backup does. For a sink with its own
    ledger."""
    commit_ts: Callable[[TableSchema], Mapping[tuple[object, ...], int]] | None = None
    """The commit ts (TSO) of the last change of each row of a table, by handle key, as the target has it. For a sink that keeps
    it (``SinkCapabilities.keeps_commit_ts``)."""
    secrets: tuple[str, ...] = ()
    """What must not be told: the passwords of the target's URI."""
    inexact: Mapping[str, str] = field(default_factory=dict)
    """Types (``headrace.testing.values.Sample`` as text) that the target has no room for, each with the reason: their tests have to
    fail."""


@dataclass
class SourceUnderTest:
    """What the author of a source tells the suite about it. The source is empty at first, and belongs to one test."""

    open: Callable[[], EventSource]
    """A new object for the source, as another process would have it. A :class:`StreamSource` is staged by who asked for it."""
    writer: Sink
    """What ``headrace.testing.upstream`` drives: what it is told lies in the source with the next checkpoint, at the latest."""
    position_bytes: int = 6000
    """The most that a position takes for a table of which 150 cuts were applied."""


def staged(source: EventSource, place: StagingPlace) -> EventSource:
    """The source as a run has it: one that must be read to be known is staged in this process."""
    return source.staged_by(Stage(LocalEngine(), lambda: None), place) if isinstance(source, StreamSource) else source


class Told:
    """What a run told (``headrace.engine.observer.Observer``)."""

    def __init__(self) -> None:
        self.stopped: list[Problem] = []
        self.notices: list[Notice] = []
        self.tries: list[str] = []
        self.cuts: list[CutRecord] = []

    def phase(self, text: str) -> None:
        """Of no interest here."""

    def cut_started(self, cut: Cut) -> None:
        """Of no interest here."""

    def cut_finished(self, record: CutRecord, watermark: int, left_bytes: int = 0) -> None:
        """A cut is durable."""
        self.cuts.append(record)

    def caught_up(self, checkpoint: int) -> None:
        """Of no interest here."""

    def table_stopped(self, problem: Problem) -> None:
        """A table stopped."""
        self.stopped.append(problem)

    def table_resumed(self, table_id: TableId) -> None:
        """Of no interest here."""

    def notice(self, notice: Notice) -> None:
        """Something that people should know."""
        self.notices.append(notice)

    def trying_again(self, reason: str, seconds: float) -> None:
        """A cut failed."""
        self.tries.append(reason)


class KeepingEngine(LocalEngine):
    """Keeps the work of its write tasks, as a task does that hangs while its run goes on."""

    def __init__(self) -> None:
        super().__init__()
        self._kept: list[bytes] = []

    def write_units(self, units: Iterable[tuple[int, Unit]], write: WriteJob, slot: int) -> list[object]:
        """Does the work, and keeps it."""
        work = pickle.dumps((list(units), write, slot))
        self._kept.append(work)
        return _results(work)

    def late(self) -> list[object]:
        """Does all of it once more, as tasks that wake late; what each came to, an exception included."""
        return [result for work in self._kept for result in _results(work)]


def _results(work: bytes) -> list[object]:
    units, write, slot = pickle.loads(work)
    return list(WriteTask(write, slot).results(units))


class SinkRuns:
    """An upstream whose changes runs apply to the target, one after another or one inside another.

    What ``upstream`` does becomes visible to runs with its next ``checkpoint()``.
    """

    def __init__(
        self, target: SinkUnderTest, folder: Path, source: SourceUnderTest | None = None, upstream: Upstream | None = None
    ) -> None:
        """``folder`` is for the ledger of a sink that has none of its own.

        Without a source it is a stream in memory; ``upstream`` is what drives the source's writer already.
        """
        stream = MemoryStream(2)
        self.target = target
        self.source = source or SourceUnderTest(lambda: MemorySource(stream).event_source, stream)
        self.upstream = upstream or Upstream(self.source.writer)
        self._folder = folder

    @contextmanager
    def opened(self) -> Iterator[tuple[DataSink, Ledger]]:
        """The sink with its ledger, as a run or a command has them."""
        with self.target.open() as sink:
            ledger = sink.ledger or open_file_ledger(str(self._folder / "ledger"))
            try:
                yield sink, ledger
            finally:
                ledger.close()

    def run(self, *faults: Fault, engine: LocalEngine | None = None, options: RunOptions | None = None) -> Told:
        """A run of its own up to the stream's watermark. Raises what ends it, with what the faults do.

        With ``options`` of its own it may follow the source: until a fault ends it.
        """
        told, options = Told(), options or RunOptions(once=True)
        with armed(*faults), WorkLease() as work, WorkLease() as staging, self.opened() as (sink, ledger):
            self._loop(sink, ledger, told, work, staging, engine or LocalEngine(), options).run()
        return told

    def applied(self) -> Told:
        """A run that nothing disturbs, after which the target holds what the upstream does."""
        self.upstream.checkpoint()
        told = self.run()
        assert not told.stopped, [problem.sentence() for problem in told.stopped]
        self.check()
        return told

    def check(self) -> None:
        """The target's tables are the upstream's, with the same rows."""
        for table_id in self.upstream.tables:
            schema = self.upstream.schema(table_id)
            held = self.held(schema)
            wanted = _counted(schema, self.upstream.expected_rows(table_id))
            assert held == wanted, f"{table_id}: too many {held - wanted}, missing {wanted - held}"

    def held(self, schema: TableSchema) -> Counter[tuple[object, ...]]:
        """The rows of a table of the target, each as often as it is there."""
        return _counted(schema, self.target.read(schema))

    def columns(self, table_id: TableId) -> tuple[str, ...] | None:
        """Those of the target's table, as its sink tells them; ``None``: there is no such table."""
        with self.opened() as (sink, _):
            found = sink.metadata_applier.describe(table_id)
        return found.columns if found is not None else None

    def _loop(
        self,
        sink: DataSink,
        ledger: Ledger,
        told: Told,
        work: WorkLease,
        staging: WorkLease,
        engine: LocalEngine,
        options: RunOptions,
    ) -> Loop:
        events = staged(self.source.open(), staging.place())

        def make_round(
            cut: Cut,
            cut_round: CutRound,
            context: WriterContext,
            commit: CutCommit | None,
            progress: Mapping[TableId, TableProgress],
        ) -> Round:
            return EngineRound(engine, events, sink.capabilities, cut, cut_round, context, work, progress, commit)

        return Loop(
            PIPELINE,
            source=events,
            source_identity=IDENTITY,
            sink=sink,
            ledger=ledger,
            make_round=make_round,
            observer=told,
            options=options,
        )


def _counted(schema: TableSchema, rows: Iterable[Mapping[str, object]]) -> Counter[tuple[object, ...]]:
    columns = schema.row_columns
    return Counter(tuple(comparable(column.type, row[column.name]) for column in columns) for row in rows)


def at(number: int, act: Callable[[Passage], None], chosen: Callable[[Passage], bool]) -> Fault:
    """Does something at the chosen passage of this number (from 1)."""
    left = number

    def fault(passage: Passage) -> None:
        nonlocal left
        if chosen(passage):
            left -= 1
            if left == 0:
                act(passage)

    return fault
