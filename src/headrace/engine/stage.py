"""Stages the ranges of a stream: in the driver if they are few, otherwise in Spark tasks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from headrace import faults
from headrace.faults import Step
from headrace.model.stream import Range, StageReport
from headrace.sources.base import StreamSource

IN_DRIVER_BYTES = 8 << 20
"""Ranges with fewer bytes in total are staged without a job."""


class StagingEngine(Protocol):
    """Runs staging tasks."""

    def stage(self, source: StreamSource, ranges: Sequence[Range]) -> list[StageReport]:
        """One job, with a task for each range. Reports in the order of the ranges. Raises what a task raised, or JobFailedError."""
        ...


@dataclass(frozen=True)
class Stage:
    """A ``headrace.sources.base.StageRunner``. ``before_job`` may wait for Spark."""

    engine: StagingEngine
    before_job: Callable[[], None]

    def __call__(self, source: StreamSource, ranges: Sequence[Range]) -> list[StageReport]:
        """Stages the ranges. Raises SourceUnreachableError, TransientError, JobFailedError."""
        if not ranges:
            return []
        faults.before(Step.STAGE)
        if sum(of.size for of in ranges) < IN_DRIVER_BYTES:
            reports = [source.stage(of) for of in ranges]
        else:
            self.before_job()
            reports = self.engine.stage(source, ranges)
        faults.after(Step.STAGE)
        return reports
