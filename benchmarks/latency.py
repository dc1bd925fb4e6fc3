"""How long one-row cuts take while a pipeline follows, and what an idle poll costs."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from benchmarks.pipeline import Recorder, RunFailed, definition, job_count
from headrace.engine.spark import SparkEngine
from headrace.model.ledger import CutRecord, LedgerState
from headrace.pipeline.registry import open_sink, open_source
from headrace.pipeline.runner import PipelineRun

_POLL_SECONDS = 0.05
_PATIENCE_SECONDS = 30.0
_IDLE_SECONDS = 2.0


class OneRowStream(Protocol):
    """Transactions of one row each: every :meth:`publish` is one more cut."""

    @property
    def uri(self) -> str:
        """The source's URI."""
        ...

    def stage(self) -> None:
        """Writes the next row, which no watermark promises yet."""
        ...

    def publish(self) -> int:
        """Moves the watermark past the staged row; returns it (TSO)."""
        ...


@dataclass
class StreamTimes:
    """Seconds per cut: from the publishing of ``metadata`` to the row being durable, and of the cut alone.

    ``idle_jobs`` is the number of Spark jobs that ran in :data:`_IDLE_SECONDS` of polling without news.
    """

    arrivals: list[float] = field(default_factory=list)
    cuts: list[float] = field(default_factory=list)
    idle_jobs: int = 0


class _Publisher:
    """Publishes a row, waits until it has arrived, and so on; it ends the pipeline as a user does, by SIGINT."""

    def __init__(self, engine: SparkEngine, stream: OneRowStream, cuts: int, unmeasured: int) -> None:
        self.times = StreamTimes()
        self._engine, self._stream, self._cuts, self._unmeasured = engine, stream, cuts, unmeasured
        self._arrived = threading.Condition()
        self._done: list[tuple[CutRecord, float]] = []

    def take(self, record: CutRecord, at: float) -> None:
        """A cut became durable."""
        with self._arrived:
            self._done.append((record, at))
            self._arrived.notify_all()

    def run(self) -> None:
        try:
            for number in range(-self._unmeasured, self._cuts):
                self._stream.stage()
                time.sleep(random.uniform(0, _POLL_SECONDS))  # the poll has its own rhythm
                started = time.perf_counter()
                record, at = self._wait_for(self._stream.publish())
                if number >= 0:
                    self.times.arrivals.append(at - started)
                    self.times.cuts.append(record.seconds)
            before = job_count(self._engine)
            time.sleep(_IDLE_SECONDS)
            self.times.idle_jobs = job_count(self._engine) - before
        finally:
            os.kill(os.getpid(), signal.SIGINT)

    def _wait_for(self, watermark: int) -> tuple[CutRecord, float]:
        with self._arrived:
            found = self._arrived.wait_for(lambda: [d for d in self._done if d[0].hi >= watermark], _PATIENCE_SECONDS)
            if not found:
                raise RunFailed(f"A cut of one row did not end within {_PATIENCE_SECONDS:.0f} s.")
            return found[0]


def stream_times(
    engine: SparkEngine, stream: OneRowStream, sink: str, folder: Path, *, cuts: int, unmeasured: int = 5
) -> StreamTimes:
    """Follows the stream with a poll interval of 50 ms. Must run on the main thread. Raises RunFailed."""
    publisher = _Publisher(engine, stream, cuts, unmeasured)
    recorder = Recorder(publisher.take)
    run = PipelineRun(definition(stream.uri, sink, folder, once=False, poll_interval=_POLL_SECONDS), recorder, engine)
    thread = threading.Thread(target=publisher.run)
    thread.start()
    run.run()
    thread.join()
    if recorder.problems or len(publisher.times.cuts) < cuts:
        raise RunFailed(f"The stream broke off: {'; '.join(recorder.problems)}")
    return publisher.times


def poll_seconds(source: str, sink: str, *, moved: bool, repeats: int = 50) -> list[float]:
    """The seconds of polls of a source whose changes are all applied in ``sink``.

    ``moved``: the watermark is not known to be the checkpoint, as when TiCDC moved it without any change, so the folder is listed.
    """
    state = _state_in(sink)
    checkpoint = -1 if moved else state.checkpoint
    events = open_source(source).event_source
    events.poll(state.position, checkpoint)
    spent = []
    for _ in range(repeats):
        started = time.perf_counter()
        offer = events.poll(state.position, checkpoint)
        spent.append(time.perf_counter() - started)
        if offer.splits:
            raise RunFailed("An idle poll offered files.")
    return spent


def _state_in(sink: str) -> LedgerState:
    with open_sink(sink) as opened:
        assert opened.ledger is not None
        state = opened.ledger.peek("bench")
        opened.ledger.close()
    if state is None:
        raise RunFailed("There is no pipeline in the ledger.")
    return state
