"""What happens at the fault points of ``headrace.faults``: crashes, failures, pauses, and a record of what was passed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from headrace import faults
from headrace.faults import FaultPoint, Moment, Step

__all__ = ["Crashed", "Fault", "Moment", "Passage", "Pause", "Step", "armed", "crash_at", "fail_at"]

POINTS = tuple((moment, step) for step in Step for moment in Moment)
"""Every point of the project itself."""


class Crashed(BaseException):
    """The process died here. No product code handles it, as none runs after a kill."""


@dataclass(frozen=True)
class Passage:
    """A point that a run came by, and what the step said of itself."""

    moment: Moment
    step: FaultPoint
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.moment} {self.step}" + (f": {self.detail}" if self.detail else "")


Fault = Callable[[Passage], None]
"""Looks at each passage and raises, waits, or lets it pass."""


@contextmanager
def armed(*wanted: Fault) -> Iterator[list[Passage]]:
    """While it lasts, runs in this process meet these faults, in this order; gives what was passed so far.

    A thread that crashed stays dead until the end of the block: nothing durable happens in it while the interpreter unwinds.
    """
    passed: list[Passage] = []
    dead: dict[int, Crashed] = {}

    def hook(moment: Moment, step: FaultPoint, detail: str) -> None:
        if threading.get_ident() in dead:
            raise dead[threading.get_ident()]
        passage = Passage(moment, step, detail)
        passed.append(passage)
        try:
            for fault in wanted:
                fault(passage)
        except Crashed as crashed:
            dead[threading.get_ident()] = crashed
            raise

    former = faults.arm(hook)
    try:
        yield passed
    finally:
        faults.arm(former)


def fail_at(moment: Moment, step: FaultPoint, error: Callable[[], BaseException], *, times: int = 1, skip: int = 0) -> Fault:
    """Raises ``error`` at the point: not the first ``skip`` times, then ``times`` times."""
    counter = iter(range(skip + times))

    def fault(passage: Passage) -> None:
        if (passage.moment, passage.step) == (moment, step) and next(counter, -1) >= skip:
            raise error()

    return fault


def crash_at(moment: Moment, step: FaultPoint, *, skip: int = 0) -> Fault:
    """Dies at the point, but not the first ``skip`` times."""
    return fail_at(moment, step, lambda: Crashed(f"{moment} {step}"), skip=skip)


@dataclass
class Pause:
    """A fault that holds one run at a point until it is let go: a process that was stopped, or a machine that swaps.

    ``only`` is the thread to hold, where several runs share the process; without it the first that comes by.
    """

    moment: Moment
    step: FaultPoint
    only: threading.Thread | None = None
    reached: threading.Event = field(default_factory=threading.Event)
    released: threading.Event = field(default_factory=threading.Event)

    def __call__(self, passage: Passage) -> None:
        here = (passage.moment, passage.step) == (self.moment, self.step)
        if here and not self.reached.is_set() and self.only in (None, threading.current_thread()):
            self.reached.set()
            self.released.wait()
