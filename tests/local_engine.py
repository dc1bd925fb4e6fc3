"""Runs the tasks of a pipeline in this process, without Spark: for tests that need hundreds of runs.

Only the transport is another one: the plan of a round, its tasks and the writers are the real ones, and what Spark would
pickle is pickled here too. That Spark does the same is what the tests with a session show.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable
from typing import Any

import pytest

from headrace.engine.spark import _raise_first  # the one name of its own that a stand-in has to share
from headrace.engine.tasks import Gathered, ReadJob, WriteJob, exchange_rows, read_splits, write_gathered
from headrace.model.split import Split


def as_if_large(patch: pytest.MonkeyPatch) -> None:
    """From now on small rounds are written like large ones: by several tasks, each in transactions of two rows.

    Columns of a few texts are combined like those that hold gigabytes, and of two consumed files of a directory the position
    tells each by itself.
    """
    for name, value in {
        "engine.spark.ONE_TASK_BYTES": 0,
        "engine.spark._BUCKET_BYTES": 64,
        "sinks.mysql.sink.ATOMIC_BYTES": 0,
        "sinks.mysql.writer.TRANSACTION_ROWS": 2,
        "model.block.WIDE_BYTES": 64,
        "sources.ticdc_storage.position_update._MARKS_PER_DIRECTORY": 2,
    }.items():
        patch.setattr(f"headrace.{name}", value)


class LocalEngine:
    """Stands in for ``SparkEngine``; ``jobs`` counts what it ran, ``cancels`` what could not be cancelled here."""

    started = True

    def __init__(self, parallelism: int = 2) -> None:
        self.jobs = self.cancels = 0
        self._parallelism = parallelism

    def parallelism(self) -> int:
        return self._parallelism

    def counts(self) -> tuple[int, int]:
        return 0, 0

    def cancel(self) -> None:
        self.cancels += 1

    def stop(self) -> None: ...

    def run(self, read: ReadJob, write: WriteJob, tasks: list[list[Split]]) -> list[object]:
        self.jobs += 1
        units = [_whole(_copy(read), tasks[0])] if len(tasks) == 1 else _exchanged(_copy(read), tasks)
        results: list[object] = []
        for slot, gathered in enumerate(units):
            results.extend(_copy(self.write_unit(gathered, _copy(write), slot)))
        _raise_first(results)
        return results

    def write_unit(self, gathered: Gathered, write: WriteJob, slot: int) -> list[object]:
        """What one write task does."""
        return list(write_gathered(gathered, write, slot))


def _copy(value: Any) -> Any:
    return pickle.loads(pickle.dumps(value))


def _whole(read: ReadJob, splits: Iterable[Split]) -> Gathered:
    gathered = Gathered(read)
    for item in read_splits(read, splits):
        gathered.add(item)
    return gathered


def _exchanged(read: ReadJob, tasks: list[list[Split]]) -> list[Gathered]:
    units = [Gathered(read) for _ in range(read.write_tasks)]
    for task in tasks:
        for batch in exchange_rows(read, task):
            units[batch.column(0)[0].as_py()].add_exchange(batch)
    return units
