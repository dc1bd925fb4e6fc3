"""Runs in this process, on a thread and without Spark: one that catches up, and one that follows."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from headrace.cli.display import RunDisplay
from headrace.cli.output import make_output
from headrace.engine.run_options import RunOptions
from headrace.model.cut import Cut
from headrace.model.ledger import CutRecord
from headrace.model.outcome import Notice, Problem
from headrace.model.table import TableId
from headrace.pipeline.assembly import DEFAULT_LEDGER
from headrace.pipeline.definition import Definition
from headrace.pipeline.runner import PipelineRun
from headrace.testing.engine import LocalEngine
from upstreams import Changefeed


def defined(changefeed: Changefeed, sink_uri: str, options: RunOptions) -> Definition:
    return Definition(source=changefeed.uri, sink=sink_uri, changefeed=str(changefeed.toml), options=options)


def run_once(changefeed: Changefeed, sink_uri: str, **options: Any) -> int:
    """A run of its own to the watermark, as another process would do it, but for Spark."""
    definition = defined(changefeed, sink_uri, RunOptions(once=True, **options))
    with RunDisplay(make_output(json=False)) as display:
        return PipelineRun(definition, display, LocalEngine()).run()  # type: ignore[arg-type]


_FOLLOWING: list[Following] = []


def end_all() -> None:
    """Ends the runs that a test left behind: they would meet the faults of the next one."""
    while _FOLLOWING:
        following = _FOLLOWING.pop()
        following.interrupt()
        following.ended()


class Following:
    """A run that follows the changefeed, on a thread; ``options`` are those of its loop.

    ``ledger`` is where a file ledger lies, ``work`` the work place.
    """

    def __init__(
        self, changefeed: Changefeed, sink_uri: str, *, ledger: str = DEFAULT_LEDGER, work: str | None = None, **options: Any
    ) -> None:
        self.display = Recorder()
        self.engine = LocalEngine()
        definition = replace(defined(changefeed, sink_uri, RunOptions(poll_interval=0.02, **options)), ledger=ledger, work=work)
        self.run = PipelineRun(definition, self.display, self.engine)  # type: ignore[arg-type]
        self.code: int | None = None
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()
        _FOLLOWING.append(self)

    def _work(self) -> None:
        try:
            self.code = self.run.run()
        except BaseException as error:  # noqa: BLE001 -- looked at by the test
            self.error = error

    def wait_for(self, checkpoint: int, seconds: float = 20) -> None:
        self.wait_until(lambda: self.display.checkpoint >= checkpoint, seconds)

    def wait_until(self, condition: Callable[[], bool], seconds: float = 20) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            assert self.error is None, self.error
            assert time.monotonic() < deadline, "it did not get there"
            time.sleep(0.01)

    def ended(self) -> int | BaseException | None:
        """Its exit code, or what it ended with."""
        self._thread.join(20)
        assert not self._thread.is_alive()
        return self.error or self.code

    def interrupt(self) -> None:
        """What a signal does to a run that is not on the main thread."""
        self.run._interrupt(signal.SIGINT, None)


class Recorder(RunDisplay):
    """A display that remembers how far the run is, why it waited, and which tables stopped."""

    checkpoint = 0
    polls = 0

    def __init__(self) -> None:
        super().__init__(make_output(json=False))
        self.failures: list[str] = []
        self.stopped: list[Problem] = []
        self.resumed: list[str] = []
        self.notices: list[Notice] = []

    def notice(self, notice: Notice) -> None:
        self.notices.append(notice)
        super().notice(notice)

    def phase(self, text: str) -> None: ...

    def cut_started(self, cut: Cut) -> None: ...

    def cut_finished(self, record: CutRecord, watermark: int, left_bytes: int = 0) -> None:
        self.checkpoint = record.hi

    def caught_up(self, checkpoint: int) -> None:
        self.checkpoint = checkpoint
        self.polls += 1

    def trying_again(self, reason: str, seconds: float) -> None:
        self.failures.append(reason)
        super().trying_again(reason, seconds)

    def table_stopped(self, problem: Problem) -> None:
        self.stopped.append(problem)
        super().table_stopped(problem)

    def table_resumed(self, table_id: TableId) -> None:
        self.resumed.append(str(table_id))
        super().table_resumed(table_id)

    def tick(self, finished_tasks: int, all_tasks: int) -> None: ...
