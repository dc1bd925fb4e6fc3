"""Runs the real pipeline on the one Spark session of this process, and tells what each cut and each Spark stage took."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from headrace.engine.run_options import RunOptions
from headrace.engine.spark import SparkEngine
from headrace.model.cut import Cut
from headrace.model.ledger import CutRecord
from headrace.model.outcome import Notice, Problem
from headrace.model.table import TableId
from headrace.pipeline.definition import Definition
from headrace.pipeline.runner import PipelineRun


class RunFailed(Exception):
    """A run did not end as it should have, so that its figures mean nothing."""


@dataclass
class Recorder:
    """A display that shows nothing and remembers cuts. ``on_cut`` is called with the time at which each became durable."""

    on_cut: Callable[[CutRecord, float], None] | None = None
    cuts: list[CutRecord] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def cut_finished(self, record: CutRecord, watermark: int, left_bytes: int = 0) -> None:
        if self.on_cut is not None:
            self.on_cut(record, time.perf_counter())
        self.cuts.append(record)

    def table_stopped(self, problem: Problem) -> None:
        self.problems.append(problem.sentence())

    def trying_again(self, reason: str, seconds: float) -> None:
        self.problems.append(reason)

    def phase(self, text: str) -> None: ...

    def cut_started(self, cut: Cut) -> None: ...

    def caught_up(self, checkpoint: int) -> None: ...

    def table_resumed(self, table_id: TableId) -> None: ...

    def notice(self, notice: Notice) -> None: ...

    def tick(self, files: int, rows: int) -> None: ...


@dataclass(frozen=True)
class RunTimes:
    """One run: seconds of everything, of its cuts, and of the stages of its Spark jobs in their order."""

    seconds: float
    cuts: tuple[CutRecord, ...]
    stages: tuple[float, ...]

    @property
    def cut_seconds(self) -> float:
        return sum(cut.seconds for cut in self.cuts)

    @property
    def changes(self) -> int:
        return sum(cut.read_rows for cut in self.cuts)

    @property
    def written(self) -> int:
        return sum(cut.upserts + cut.deletes for cut in self.cuts)


def definition(source: str, sink: str, folder: Path, *, once: bool = True, poll_interval: float = 1.0) -> Definition:
    """A pipeline with its file ledger, if its sink needs one, in ``folder``."""
    options = RunOptions(once=once, poll_interval=poll_interval)
    return Definition(source=source, sink=sink, name="bench", ledger=str(folder / "ledger"), options=options)


def run_once(engine: SparkEngine, source: str, sink: str, folder: Path) -> RunTimes:
    """Catches up and returns the times. Raises RunFailed."""
    recorder = Recorder()
    before = newest_stage(engine)
    started = time.perf_counter()
    code = PipelineRun(definition(source, sink, folder), recorder, engine).run()
    seconds = time.perf_counter() - started
    if code or recorder.problems:
        raise RunFailed(f"The run into {sink.split('://', maxsplit=1)[0]} ended with {code}: {'; '.join(recorder.problems)}")
    return RunTimes(seconds, tuple(recorder.cuts), stage_seconds(engine, before))


def newest_stage(engine: SparkEngine) -> int:
    """The number of the newest stage that Spark knows; -1 before the first."""
    return max((number for number, _ in _stages(engine)), default=-1)


def stage_seconds(engine: SparkEngine, after: int) -> tuple[float, ...]:
    """The seconds of each stage newer than ``after``, from its submission to its end."""
    return tuple(seconds for number, seconds in sorted(_stages(engine)) if number > after)


def _stages(engine: SparkEngine) -> list[tuple[int, float]]:
    """Spark's own record of its stages; it exists without the web interface, but only the JVM has it."""
    context = engine.start().sparkContext
    jvm, gateway = context._jvm, context._gateway
    none = gateway.new_array(jvm.double, 0)
    listed = context._jsc.sc().statusStore().stageList(jvm.java.util.ArrayList(), False, False, none, jvm.java.util.ArrayList())
    stages = []
    for index in range(listed.size()):
        stage = listed.apply(index)
        if stage.submissionTime().isDefined() and stage.completionTime().isDefined():
            spent = stage.completionTime().get().getTime() - stage.submissionTime().get().getTime()
            stages.append((int(stage.stageId()), spent / 1000))
    return stages


def job_count(engine: SparkEngine) -> int:
    """How many jobs Headrace has run in this session."""
    return len(engine.start().sparkContext.statusTracker().getJobIdsForGroup("headrace"))
