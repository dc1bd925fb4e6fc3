"""What the loop tells while it works. The command line shows it; tests record it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from headrace.model.cut import Cut
from headrace.model.ledger import CutRecord
from headrace.model.outcome import Notice, Problem
from headrace.model.table import TableId


class Observer(Protocol):
    """Called from the thread that runs the loop, :meth:`phase` also from another one while the loop's waits."""

    def phase(self, text: str) -> None:
        """What is being done now, when it may take longer than a moment: "starting Spark"."""
        ...

    def cut_started(self, cut: Cut) -> None: ...

    def cut_finished(self, record: CutRecord, watermark: int, left_bytes: int = 0) -> None:
        """A cut is durable. ``watermark`` (TSO) is the source's newest, for the lag; ``left_bytes`` are those of the files that a
        bounded cut did not take yet, 0 for a cut that took all there was."""
        ...

    def caught_up(self, checkpoint: int) -> None:
        """Everything that is complete upstream is applied; nothing to do until the watermark moves."""
        ...

    def table_stopped(self, problem: Problem) -> None: ...

    def table_resumed(self, table_id: TableId) -> None: ...

    def notice(self, notice: Notice) -> None: ...

    def trying_again(self, reason: str, seconds: float) -> None:
        """A passing failure; the cut is planned again after ``seconds``."""
        ...


@contextmanager
def telling(observer: Observer, phase: str, after: float) -> Iterator[None]:
    """Tells what a step is once it takes longer than ``after`` (seconds): on another thread, and not after the step."""
    timer = threading.Timer(after, observer.phase, (phase,))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
