"""Keeps what Spark's processes print at their start and at their end off the terminal; whatever else they say passes through.

The JVM has its standard error for its whole life, and so have the workers that it starts. So the pipe that it is given here stays,
drained by a thread. The standard error of this process is left alone: what is printed while the JVM starts, perhaps as the last
thing before the process ends, must not wait for that thread.
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
"""How the trace of a process ends whose connection is gone."""


@contextmanager
def without_launch_noise() -> Iterator[int]:
    """The file descriptor that processes started inside have to get as standard error; what they write goes through a filter."""
    _ending.clear()
    reader, writer = os.pipe()
    threading.Thread(target=_drain, args=(reader, os.dup(2)), name="headrace-stderr", daemon=True).start()
    try:
        yield writer
    finally:
        os.close(writer)


_ending = threading.Event()


def expect_end() -> None:
    """From now on the session ends: a worker whose connection to the JVM goes has nothing to tell by its stack trace."""
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
