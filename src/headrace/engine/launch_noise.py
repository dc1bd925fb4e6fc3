"""Filters the output that Spark's processes print at their start and end, and passes everything else to the terminal.

The JVM keeps its standard error for its whole life, and passes it on to its workers. So the pipe that it gets here stays open, and
a thread drains it. This process's own standard error is not touched: its output while the JVM starts may be its last, and must not
depend on that thread.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

_NOISE = (
    b"WARNING: Using incubator modules",
    b"Setting default log level to",
    b"To adjust logging level use",
    b"Using Spark's default log4j profile",
    b"WARNING: A terminally deprecated method",
    b"WARNING: sun.misc.Unsafe",
    b"WARNING: Please consider reporting this to the maintainers",
    b"WARNING: A restricted method in java.lang.System",
    b"WARNING: java.lang.System::load",
    b"WARNING: Use --enable-native-access",
    b"WARNING: Restricted methods will be blocked",
)

_TRACE = b"Traceback (most recent call last):"
_OF_A_TRACE = (b" ", b"During handling of", b"The above exception", b"\n")
_LOST = (b"BrokenPipeError", b"ConnectionResetError", b"ConnectionRefusedError", b"EOFError", b"OSError")
"""The last line of a stack trace from a process that lost its connection begins like this."""


@contextmanager
def without_launch_noise() -> Iterator[int]:
    """Yields the file descriptor to use as standard error for processes that are started inside. Their output is filtered."""
    _ending.clear()
    reader, writer = os.pipe()
    threading.Thread(target=_drain, args=(reader, os.dup(2)), name="headrace-stderr", daemon=True).start()
    try:
        yield writer
    finally:
        os.close(writer)


_ending = threading.Event()


def expect_end() -> None:
    """The session is about to end: from now on, stack traces of workers that lose their connection to the JVM are dropped."""
    _ending.set()


def without_noise(lines: Iterable[bytes]) -> Iterator[bytes]:
    """The lines that people should see."""
    in_trace = False
    for line in lines:
        in_trace = (in_trace and line.startswith(_OF_A_TRACE)) or (_ending.is_set() and line.startswith(_TRACE))
        if in_trace:
            continue
        is_end_of_trace = _ending.is_set() and line.startswith(_LOST)
        if not is_end_of_trace and not line.startswith(_NOISE):
            yield line


def _drain(reader: int, terminal: int) -> None:
    with os.fdopen(reader, "rb") as lines, os.fdopen(terminal, "wb", buffering=0) as out:
        for line in without_noise(lines):
            out.write(line)
