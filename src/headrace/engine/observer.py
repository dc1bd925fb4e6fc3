"""The loop's reports about its work. The command line shows them; tests record them."""

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
    """Called from the loop's thread; :meth:`phase` also from another thread while the loop's thread waits."""

    def phase(self, text: str) -> None:
        """What is being done now, if it may take longer than a moment: "starting Spark"."""
        ...

    def cut_started(self, cut: Cut) -> None: ...

    def cut_finished(self, record: CutRecord, watermark: int, left_bytes: int = 0) -> None:
        """A cut is durable.

        ``watermark`` (TSO) is the source's newest, for the lag. ``left_bytes`` is the size of the files that a bounded cut has left
        for later, 0 if it left none.
        """
        ...

    def caught_up(self, checkpoint: int) -> None:
        """Everything that is complete upstream is applied. There is nothing to do until the watermark moves."""
        ...

    def table_stopped(self, problem: Problem) -> None: ...

    def table_resumed(self, table_id: TableId) -> None: ...

    def notice(self, notice: Notice) -> None: ...

    def trying_again(self, reason: str, seconds: float) -> None:
        """A transient failure. The cut is planned again after ``seconds``."""
        ...


@contextmanager
def telling(observer: Observer, phase: str, after: float) -> Iterator[None]:
    """Reports the phase if the step takes longer than ``after`` (seconds): from another thread, and never after the step."""
    timer = threading.Timer(after, observer.phase, (phase,))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
