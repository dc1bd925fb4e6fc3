"""Calls that cannot be cancelled: how to wait for one with a timeout, and how to end a process while some are still running.

A client library that waits for a store offers no way to cancel the call. Such a call runs on a thread of its own, which is
abandoned after the timeout. The call must not delay the end of the process either: when the interpreter exits, it closes such
libraries, and they wait for their calls.
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
"""The exit handlers of libraries that wait for running calls, as module and function."""


class AbandonableThread(threading.Thread):
    """A thread that the process does not wait for when it ends, whatever the thread is doing."""

    def __init__(self, target: Callable[[], object], name: str) -> None:
        super().__init__(target=target, name=name, daemon=True)
        self.ended = threading.Event()
        """Replaces ``is_alive()``: after Ctrl-C has interrupted a ``join``, Python 3.11 reports the thread as dead."""

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
    """Returns or raises what ``call`` does. Raises TimeoutError after ``seconds``; the call then keeps running unobserved."""
    thread = _Call(call)
    thread.start()
    if not thread.ended.wait(seconds):
        raise TimeoutError(f"it did not finish its answer within {seconds:g} s")
    if thread.error is not None:
        raise thread.error
    return thread.result  # type: ignore[no-any-return]


def anything_goes_on() -> bool:
    """Whether abandoned threads are still running."""
    return any(isinstance(thread, AbandonableThread) and not thread.ended.is_set() for thread in threading.enumerate())


def end_process(code: int) -> NoReturn:
    """Ends this process without waiting for threads. All other exit handlers still run, so temporary folders are removed."""
    for module, function in _CLOSING:
        if module in sys.modules:
            atexit.unregister(getattr(sys.modules[module], function))
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # a pipe whose reader has closed it
            stream.flush()
    os._exit(code)
