"""Has the ranges of a stream staged: in the driver itself where they are few, in Spark tasks where there is more."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from headrace import faults
from headrace.faults import Step
from headrace.model.stream import Range, StageReport
from headrace.sources.base import StreamSource

IN_DRIVER_BYTES = 8 << 20
"""Less than this is staged without a job."""


class StagingEngine(Protocol):
    """What runs tasks that stage."""

    def stage(self, source: StreamSource, ranges: Sequence[Range]) -> list[StageReport]:
        """One job, a task for each range; the reports in the order of the ranges. Raises what a task raised, or JobFailedError."""
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
