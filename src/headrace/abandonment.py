"""Calls that nothing can break off: how long they are waited for, and how a process ends while some are still going on.

A client library that waits for a store gives no way to end the call. It runs on a thread of its own and is left behind there.
Nor may it hold up the end of the process: at its exit an interpreter closes such libraries, and they wait for their calls.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NoReturn, TypeVar

_T = TypeVar("_T")
_CLOSING = (("pyarrow.fs", "ensure_s3_finalized"),)
"""What libraries call at the exit of the interpreter that waits for their calls: module and function."""


class AbandonableThread(threading.Thread):
    """A thread that the process does not wait for at its end, whatever the thread is doing."""

    def __init__(self, target: Callable[[], object], name: str) -> None:
        super().__init__(target=target, name=name, daemon=True)
        self.ended = threading.Event()
        """Not ``is_alive()``: to Python 3.11 a thread is dead whose ``join`` was interrupted by Ctrl-C."""

    def run(self) -> None:
        try:
            super().run()
        finally:
            self.ended.set()


class _Call(AbandonableThread):
    def __init__(self, call: Callable[[], Any]) -> None:
        super().__init__(self._answer, "headrace-call")
        self._call = call
        self.result: Any = None
        self.error: BaseException | None = None

    def _answer(self) -> None:
        try:
            self.result = self._call()
        except BaseException as error:  # noqa: BLE001 -- raised again on the thread that waits
            self.error = error


def within(seconds: float, call: Callable[[], _T]) -> _T:
    """What ``call`` returns or raises. Raises TimeoutError when it takes longer: it then goes on, and nobody looks at it."""
    thread = _Call(call)
    thread.start()
    if not thread.ended.wait(seconds):
        raise TimeoutError(f"it did not finish its answer within {seconds:g} s")
    if thread.error is not None:
        raise thread.error
    return thread.result  # type: ignore[no-any-return]


def anything_goes_on() -> bool:
    """Whether threads were left behind that still do something."""
    return any(isinstance(thread, AbandonableThread) and not thread.ended.is_set() for thread in threading.enumerate())


def end_process(code: int) -> NoReturn:
    """Ends this process without waiting for threads. What else is to be done at its end is done: temporary folders are removed."""
    for module, function in _CLOSING:
        if module in sys.modules:
            atexit.unregister(getattr(sys.modules[module], function))
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # a pipe that nobody reads any more
            stream.flush()
    os._exit(code)
