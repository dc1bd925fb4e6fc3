"""Runs the tasks of a pipeline in this process, without Spark, for tests that need hundreds of runs.

Only the transport is different. The plan of a round, its tasks and the writers are the real ones, and everything that Spark would
pickle is pickled here, too. Tests with a Spark session show that Spark behaves the same.
"""

from __future__ import annotations

import pickle
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from headrace.engine.exchange import REPORTING_UNIT, ExchangeRow, rows_of
from headrace.engine.read_task import ReadJob, exchange_rows
from headrace.engine.write_task import (
    Chunks,
    Unit,
    WriteJob,
    WriteTask,
    raise_first,
    streamed_units,
    unit_of_rows,
    unit_of_splits,
)
from headrace.model.split import Split
from headrace.model.stream import Range, StageReport
from headrace.sources.base import StreamSource


class LocalEngine:
    """Takes the place of ``SparkEngine``. ``jobs`` counts the jobs that it ran, ``cancels`` the calls of :meth:`cancel`."""

    started = True

    def __init__(self, parallelism: int = 2, payload_folder: str = "") -> None:
        self.jobs = self.cancels = 0
        self._parallelism = parallelism
        self._payload_folder = payload_folder

    def parallelism(self) -> int:
        """The constructor's value."""
        return self._parallelism

    def counts(self) -> tuple[int, int]:
        """No task is running."""
        return 0, 0

    def cancel(self) -> None:
        """There is no job to cancel, because tasks run in the thread of their job."""
        self.cancels += 1

    def stop(self) -> None:
        """Nothing runs."""

    def run(self, read: ReadJob, write: WriteJob, tasks: list[list[Split]], writers: int) -> list[object]:
        """See ``headrace.engine.round.Engine.run``."""
        self.jobs += 1
        read = self._read_job(read)
        if read.units == 1:
            splits = [split for task in tasks for split in task]
            shares = [[(REPORTING_UNIT, unit_of_splits(read, splits))]]
        else:
            units = _exchanged(read, tasks)
            shares = [units[slot::writers] for slot in range(writers)]
        results: list[object] = []
        for slot, share in enumerate(shares):
            results.extend(_copy(self.write_units(share, _copy(write), slot)))
        raise_first(results)
        return results

    def stage(self, source: StreamSource, ranges: Sequence[Range]) -> list[StageReport]:
        """Stages ranges of a stream, each with its own copy of the source."""
        self.jobs += 1
        return [_copy(_copy(source).stage(_copy(of))) for of in ranges]

    def stream(self, read: ReadJob, tasks: list[list[Split]], chunks: Chunks) -> Iterator[object]:
        """See ``headrace.engine.round.Engine.stream``."""
        self.jobs += 1
        found = [batch for unit in _exchanged(self._read_job(read), tasks) for batch in streamed_units([unit], chunks)]
        rows = sorted((row for batch in found for row in batch.to_pylist()), key=lambda row: (row["chunk"], row["number"]))
        assert {row["chunk"] for row in rows} <= set(range(chunks.total))
        for row in rows:
            item = pickle.loads(row["payload"])
            raise_first([item])
            yield item

    def _read_job(self, read: ReadJob) -> ReadJob:
        copied: ReadJob = _copy(read)
        return replace(copied, payload_folder=self._payload_folder)

    def write_units(self, units: Iterable[tuple[int, Unit]], write: WriteJob, slot: int) -> list[object]:
        """The work of one write task."""
        return list(WriteTask(write, slot).results(units))


def _copy(value: Any) -> Any:
    return pickle.loads(pickle.dumps(value))


def _exchanged(read: ReadJob, tasks: list[list[Split]]) -> list[tuple[int, Unit]]:
    """The non-empty units, as the exchange would deliver them. They are read when they are written."""
    rows: dict[int, list[ExchangeRow]] = defaultdict(list)
    for task in tasks:
        for row in rows_of(list(exchange_rows(read, _copy(task)))):  # files of payloads are mapped once they are complete
            rows[row.unit].append(row)
    if read.has_logs:
        for of_unit in rows.values():
            of_unit.sort(key=lambda row: (row.table, row.first))
    return [(unit, unit_of_rows(read, iter(rows[unit]))) for unit in sorted(rows)]
