"""A run in a process of its own, without Spark, that is stopped (SIGSTOP): what a machine that swaps or is moved does to one.

The process stops itself at a fault point, so it stands exactly there, with its connections open and its locks held.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil

from following import Recorder, defined
from headrace.engine.run_options import RunOptions
from headrace.errors import HeadraceError
from headrace.pipeline.runner import PipelineRun
from headrace.testing.engine import LocalEngine
from headrace.testing.faults import Moment, Passage, Step, armed
from upstreams import Changefeed

_PATIENCE = 60.0


@dataclass(frozen=True)
class Point:
    """Where a run stops: at a step that says this much of itself, after it came by ``behind``, and not the first ``skip`` times."""

    moment: Moment
    step: Step
    detail: str = ""
    behind: tuple[Moment, Step] | None = None
    skip: int = 0


class StoppedRun:
    """A run that follows a changefeed in another process, until it stands at a point or :meth:`stop` is called."""

    def __init__(self, changefeed: Changefeed, sink_uri: str, point: Point) -> None:
        context = _forks()
        self._ends, theirs = context.Pipe(duplex=False)
        self._process = context.Process(target=_work, args=(changefeed.uri, changefeed.toml, sink_uri, point, theirs), daemon=True)
        self._process.start()
        theirs.close()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    def wait_until(self, condition: Callable[[], object], what: str) -> None:
        """Fails when it takes a minute, or when the run ends before."""
        deadline = time.monotonic() + _PATIENCE
        while not condition():
            assert not self._ends.poll(), f"ended before {what}: {self._ends.recv()}"
            assert time.monotonic() < deadline, f"not within {_PATIENCE} s: {what}"
            time.sleep(0.01)

    def wait_until_stopped(self) -> None:
        process = psutil.Process(self.pid)
        self.wait_until(lambda: process.status() == psutil.STATUS_STOPPED, "it stood still")

    def stop(self) -> None:
        """Stops it wherever it is."""
        os.kill(self.pid, signal.SIGSTOP)
        self.wait_until_stopped()

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def go_on(self) -> str:
        """Lets it go on to its end; see :meth:`ended`."""
        self.resume()
        return self.ended()

    def ended(self) -> str:
        """The class, the exit code and the message of the error that it ended with, or its exit code."""
        assert self._ends.poll(_PATIENCE), "it did not end"
        return str(self._ends.recv())

    def kill(self) -> None:
        self._process.kill()
        self._process.join()


@contextmanager
def stopped_run(changefeed: Changefeed, sink_uri: str, point: Point) -> Iterator[StoppedRun]:
    """A :class:`StoppedRun`, killed at the latest with the context."""
    run = StoppedRun(changefeed, sink_uri, point)
    try:
        yield run
    finally:
        run.kill()


def _forks() -> Any:
    """Processes are forked from one that has imported everything and runs no thread: each takes milliseconds to start."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    former = os.environ.get("PYTHONPATH")
    # The server of forks looks for what it preloads where its environment says, not where this process does.
    os.environ["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parent), *filter(None, [former])])
    try:
        multiprocessing.forkserver.ensure_running()
    finally:
        if former is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = former
    return context


def _work(source: str, toml: Path, sink_uri: str, point: Point, ends: Connection) -> None:
    begun = point.behind is None
    left = point.skip

    def stand(passage: Passage) -> None:
        nonlocal begun, left
        here = (passage.moment, passage.step)
        if left >= 0 and begun and here == (point.moment, point.step) and point.detail in passage.detail:
            left -= 1
            if left < 0:
                # This very thread: where the process is told, another one may take it, and this one goes on for a while.
                signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)
        begun |= here == point.behind

    changefeed: Any = SimpleNamespace(uri=source, toml=toml)
    engine: Any = LocalEngine()
    with armed(stand):
        try:
            run = PipelineRun(defined(changefeed, sink_uri, RunOptions(poll_interval=0.02)), Recorder(), engine)
            ends.send(run.run())
        except HeadraceError as error:
            ends.send(f"{type(error).__name__} ({error.exit_code}): {error}")
