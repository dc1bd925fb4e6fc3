"""Runs into one target: an upstream, a stream of its changes, and the real engine, in this process and without Spark."""

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
    """What the author of a sink provides to the suite. The target is empty at first and is used by one test only."""

    open: Callable[[], DataSink]
    """Returns a new sink object for the target, as another process would have it."""
    read: Callable[[TableSchema], Iterable[Mapping[str, object]]]
    """Returns the rows of a target table, by column. Values as ``headrace.testing.values.comparable`` takes them."""
    save: Callable[[], Callable[[], None]] | None = None
    """Saves everything that the target holds, and returns a function that restores it, as from a backup. For a sink with its own
    ledger."""
    commit_ts: Callable[[TableSchema], Mapping[tuple[object, ...], int]] | None = None
    """The commit ts (TSO) of each row's last change in a table of the target, by handle key. For a sink with
    ``SinkCapabilities.keeps_commit_ts``."""
    secrets: tuple[str, ...] = ()
    """Texts that must not appear in output: the passwords of the target's URI."""
    inexact: Mapping[str, str] = field(default_factory=dict)
    """Types (``headrace.testing.values.Sample`` as text) that the target cannot represent, each with the reason. Their tests must
    fail."""


@dataclass
class SourceUnderTest:
    """What the author of a source provides to the suite. The source is empty at first and is used by one test only."""

    open: Callable[[], EventSource]
    """Returns a new source object, as another process would have it. The suite stages a :class:`StreamSource` itself."""
    writer: Sink
    """``headrace.testing.upstream`` drives it. What it was given must be in the source at the next checkpoint, at the latest."""
    position_bytes: int = 6000
    """The maximum size of a position for a table after 150 applied cuts."""


def staged(source: EventSource, place: StagingPlace) -> EventSource:
    """The source as a run has it: a :class:`StreamSource` is staged in this process."""
    return source.staged_by(Stage(LocalEngine(), lambda: None), place) if isinstance(source, StreamSource) else source


class Told:
    """What a run reported (``headrace.engine.observer.Observer``)."""

    def __init__(self) -> None:
        self.stopped: list[Problem] = []
        self.notices: list[Notice] = []
        self.tries: list[str] = []
        self.cuts: list[CutRecord] = []

    def phase(self, text: str) -> None:
        """Not recorded."""

    def cut_started(self, cut: Cut) -> None:
        """Not recorded."""

    def cut_finished(self, record: CutRecord, watermark: int, left_bytes: int = 0) -> None:
        """A cut is durable."""
        self.cuts.append(record)

    def caught_up(self, checkpoint: int) -> None:
        """Not recorded."""

    def table_stopped(self, problem: Problem) -> None:
        """A table stopped."""
        self.stopped.append(problem)

    def table_resumed(self, table_id: TableId) -> None:
        """Not recorded."""

    def notice(self, notice: Notice) -> None:
        """Something that people should know."""
        self.notices.append(notice)

    def trying_again(self, reason: str, seconds: float) -> None:
        """A cut failed."""
        self.tries.append(reason)


class KeepingEngine(LocalEngine):
    """Keeps the work of its write tasks to run it again later, like a task that hangs while its run continues."""

    def __init__(self) -> None:
        super().__init__()
        self._kept: list[bytes] = []

    def write_units(self, units: Iterable[tuple[int, Unit]], write: WriteJob, slot: int) -> list[object]:
        """Does the work and keeps it."""
        work = pickle.dumps((list(units), write, slot))
        self._kept.append(work)
        return _results(work)

    def late(self) -> list[object]:
        """Does all kept work once more, like tasks that wake up late. Returns each result; exceptions are results, too."""
        return [result for work in self._kept for result in _results(work)]


def _results(work: bytes) -> list[object]:
    units, write, slot = pickle.loads(work)
    return list(WriteTask(write, slot).results(units))


class SinkRuns:
    """An upstream, and runs that apply its changes to the target, one after another or one inside another.

    Runs see what ``upstream`` did after its next ``checkpoint()``.
    """

    def __init__(
        self, target: SinkUnderTest, folder: Path, source: SourceUnderTest | None = None, upstream: Upstream | None = None
    ) -> None:
        """``folder`` is for the ledger of a sink that has none of its own.

        The default source is an in-memory stream. ``upstream`` is one that already drives the source's writer.
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
        """One run up to the stream's watermark, with these faults. Raises what ends it.

        With ``options``, the run may follow the source until a fault ends it.
        """
        told, options = Told(), options or RunOptions(once=True)
        with armed(*faults), WorkLease() as work, WorkLease() as staging, self.opened() as (sink, ledger):
            self._loop(sink, ledger, told, work, staging, engine or LocalEngine(), options).run()
        return told

    def applied(self) -> Told:
        """A run without faults. Asserts that no table stops and that the target then equals the upstream."""
        self.upstream.checkpoint()
        told = self.run()
        assert not told.stopped, [problem.sentence() for problem in told.stopped]
        self.check()
        return told

    def check(self) -> None:
        """Asserts that the target's tables equal the upstream's, with the same rows."""
        for table_id in self.upstream.tables:
            schema = self.upstream.schema(table_id)
            held = self.held(schema)
            wanted = _counted(schema, self.upstream.expected_rows(table_id))
            assert held == wanted, f"{table_id}: too many {held - wanted}, missing {wanted - held}"

    def held(self, schema: TableSchema) -> Counter[tuple[object, ...]]:
        """The rows of a target table, with the number of copies of each."""
        return _counted(schema, self.target.read(schema))

    def columns(self, table_id: TableId) -> tuple[str, ...] | None:
        """The columns of a target table as its sink describes them; ``None`` if there is no such table."""
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
    """Calls ``act`` at the chosen passage with this number (from 1)."""
    left = number

    def fault(passage: Passage) -> None:
        nonlocal left
        if chosen(passage):
            left -= 1
            if left == 0:
                act(passage)

    return fault
