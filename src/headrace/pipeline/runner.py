"""Runs a definition: opens source, sink and ledger, starts Spark in parallel, and handles signals.

The loop runs on a thread of its own. The Spark session starts on another thread, because PySpark replaces the SIGINT handler if a
session starts on the main thread. The main thread only ticks for the display.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Mapping
from types import FrameType
from typing import Protocol

from headrace.abandonment import AbandonableThread
from headrace.engine.java import find_java
from headrace.engine.loop import Loop
from headrace.engine.observer import Observer
from headrace.engine.round import EngineRound
from headrace.engine.spark import SparkEngine, session_settings
from headrace.engine.stage import Stage
from headrace.errors import EXIT_INTERRUPTED
from headrace.model.cut import Cut, CutRound
from headrace.model.ledger import LedgerState, TableProgress
from headrace.model.table import TableId
from headrace.pipeline.definition import Definition
from headrace.pipeline.local_places import require_shared_places
from headrace.pipeline.registry import open_source, source_options
from headrace.sinks.base import DataSink, Ledger, Round, WriterContext
from headrace.sinks.cut_commit import CutCommit
from headrace.sources.base import DataSource, StreamSource

_STARTING = "starting Spark"
_TICK_SECONDS = 0.2
_GRACE_SECONDS = 10.0
_LAST_SECONDS = 8.0
_STOP_SECONDS = 8.0
"""How long to wait for the JVM to end by itself, which usually takes one or two seconds."""


class Display(Observer, Protocol):
    """An observer whose ``tick`` is also called, five times per second."""

    def tick(self, files: int, rows: int) -> None: ...


class PipelineRun:
    """One run of a definition. ``engine`` may be shared between runs of one process; the run stops it only if it created it."""

    def __init__(self, definition: Definition, display: Display, engine: SparkEngine | None = None) -> None:
        self._definition, self._display = definition, display
        self._source: DataSource = open_source(definition.source, source_options(definition.changefeed))
        self._target = definition.target.assembled()
        self._sink = self._target.sink
        settings = session_settings(definition.spark, self._sink.spark_conf())
        require_shared_places(
            settings["spark.master"],
            self._source.event_source,
            self._sink.capabilities,
            self._target.work,
            definition.options.letters,
        )
        self._owns_engine = engine is None
        self._engine = engine or SparkEngine(settings)
        # A session that is still starting when the run ends is left to end with the process.
        self._warming = AbandonableThread(self._warm_up, "headrace-spark")
        self._interrupted_at: float | None = None
        self._abandoned = False
        self._cancelling: threading.Thread | None = None
        self._cancelled_at: float | None = None
        self._loop: Loop | None = None
        self._result: int | BaseException = 0

    def run(self) -> int:
        """Runs to the end. Returns the exit code; raises HeadraceError."""
        handlers = _install({signal.SIGINT: self._interrupt, signal.SIGTERM: self._interrupt})
        worker = AbandonableThread(self._work, "headrace-loop")
        try:
            if not self._engine.started:
                self._display.phase(_STARTING)
                # Checked before anything is changed in the target: without Java no rows could be written after a schema change.
                find_java()
                self._warming.start()
            worker.start()
            while worker.is_alive() and not self._is_hopeless():
                worker.join(_TICK_SECONDS)
                self._display.tick(*self._engine.counts())
                self._cancel_when_overdue()
        finally:
            if self._cancelling is not None:
                self._cancelling.join(_TICK_SECONDS)
            if self._owns_engine:
                self._stop_engine()
            _install(handlers)
        if isinstance(self._result, BaseException):
            if self._interrupted_at is None:
                raise self._result
            return EXIT_INTERRUPTED
        return EXIT_INTERRUPTED if self._interrupted_at is not None else self._result

    @property
    def state(self) -> LedgerState:
        """The ledger's record at the end of the run, or now if the run is not over. Empty if the run never reached the ledger."""
        return self._loop.state if self._loop is not None else LedgerState(self._definition.name)

    def stop(self) -> None:
        """Ends the run after the current cut, which is abandoned after ten seconds. May be called from any thread."""
        if self._interrupted_at is None:
            self._interrupted_at = time.monotonic()
            if self._loop is not None:
                self._loop.stop()

    def _stop_engine(self) -> None:
        """Stops the engine. A JVM that does not answer is killed, because the process must not wait for it."""
        stopping = AbandonableThread(self._engine.stop, "headrace-stop")
        stopping.start()
        if not stopping.ended.wait(_STOP_SECONDS):
            self._engine.kill()
            stopping.ended.wait(_STOP_SECONDS)

    def _warm_up(self) -> None:
        # An error here occurs again, with its cause, when the loop requests the session.
        try:
            self._engine.start()
            self._engine.warm_up()
        except Exception:  # noqa: BLE001
            return

    def _wait_for_spark(self) -> None:
        if self._warming.is_alive():
            self._display.phase(_STARTING)  # again, in case the loop has shown another phase meanwhile
        while self._warming.is_alive() and self._interrupted_at is None:
            self._warming.join(_TICK_SECONDS)

    def _work(self) -> None:
        try:
            with self._target.opened() as ledger:
                self._loop = self._make_loop(self._sink, ledger)
                self._result = self._loop.run() if self._interrupted_at is None else 0
        except BaseException as error:  # noqa: BLE001 -- raised again on the main thread
            self._result = error

    def _make_loop(self, sink: DataSink, ledger: Ledger) -> Loop:
        source, work = self._source.event_source, self._target.work
        if isinstance(source, StreamSource):
            source = source.staged_by(Stage(self._engine, self._wait_for_spark), work.following())

        def make_round(
            cut: Cut,
            cut_round: CutRound,
            context: WriterContext,
            commit: CutCommit | None,
            progress: Mapping[TableId, TableProgress],
        ) -> Round:
            return EngineRound(self._engine, source, sink.capabilities, cut, cut_round, context, work, progress, commit)

        return Loop(
            self._definition.name,
            source=source,
            source_identity=self._source.identity,
            sink=sink,
            ledger=ledger,
            make_round=make_round,
            observer=self._display,
            options=self._definition.options,
            before_cut=self._wait_for_spark,
        )

    def _interrupt(self, _signal: int, _frame: FrameType | None) -> None:
        """The first signal lets the current cut finish; the second, or ten seconds, abandons it."""
        if self._interrupted_at is None:
            self.stop()
        else:
            self._abandoned = True

    def _cancel_when_overdue(self) -> None:
        """Cancels the running job. Repeated at every tick, because a cancellation between two jobs does not affect the next job."""
        if self._interrupted_at is None or not (self._abandoned or time.monotonic() - self._interrupted_at > _GRACE_SECONDS):
            return
        self._cancelled_at = self._cancelled_at or time.monotonic()
        if self._cancelling is None or not self._cancelling.is_alive():
            self._cancelling = threading.Thread(target=self._cancel, daemon=True)
            self._cancelling.start()

    def _is_hopeless(self) -> bool:
        """Whether the run could not be cancelled within eight seconds. It is then abandoned, with the same effect as a crash."""
        return self._cancelled_at is not None and time.monotonic() - self._cancelled_at > _LAST_SECONDS

    def _cancel(self) -> None:
        self._engine.cancel()
        self._sink.interrupt()


def _install(handlers: Mapping[signal.Signals, object]) -> dict[signal.Signals, object]:
    """Sets signal handlers and returns the previous ones. Does nothing outside the main thread."""
    if threading.current_thread() is not threading.main_thread():
        return {}
    return {number: signal.signal(number, handler) for number, handler in handlers.items()}  # type: ignore[arg-type]
