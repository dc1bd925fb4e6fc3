"""What happens at the fault points of ``headrace.faults``: crashes, failures, pauses, and a record of the points passed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from headrace import faults
from headrace.faults import FaultPoint, Moment, Step

__all__ = ["Crashed", "Fault", "Moment", "Passage", "Pause", "Step", "armed", "crash_at", "fail_at"]

POINTS = tuple((moment, step) for step in Step for moment in Moment)
"""Every fault point of Headrace itself."""


class Crashed(BaseException):
    """The process died here. Product code must not catch it, just as no code runs after a kill."""


@dataclass(frozen=True)
class Passage:
    """A fault point that a run passed, with the step's detail."""

    moment: Moment
    step: FaultPoint
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.moment} {self.step}" + (f": {self.detail}" if self.detail else "")


Fault = Callable[[Passage], None]
"""Called at each passage; may raise or wait."""


@contextmanager
def armed(*wanted: Fault) -> Iterator[list[Passage]]:
    """Within the block, these faults act on runs in this process, in this order. Yields the list of passages so far.

    A thread that crashed raises again at every later fault point in the block. So it does nothing durable while its stack unwinds.
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
    """Raises ``error`` at the point, ``times`` times, after the point was passed ``skip`` times."""
    counter = iter(range(skip + times))

    def fault(passage: Passage) -> None:
        if (passage.moment, passage.step) == (moment, step) and next(counter, -1) >= skip:
            raise error()

    return fault


def crash_at(moment: Moment, step: FaultPoint, *, skip: int = 0) -> Fault:
    """Crashes at the point, after it was passed ``skip`` times."""
    return fail_at(moment, step, lambda: Crashed(f"{moment} {step}"), skip=skip)


@dataclass
class Pause:
    """A fault that holds one run at a point until it is released, like a stopped process or a machine that swaps.

    ``only`` is the thread to hold, if several runs share the process. Without it, the first thread at the point is held.
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
