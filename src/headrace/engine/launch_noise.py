"""Keeps the lines that every JVM of Spark prints while it starts off the terminal; whatever else it says passes through.

The JVM inherits standard error for its whole life, so the pipe that is laid under it here stays, drained by a thread.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
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


@contextmanager
def without_launch_noise() -> Iterator[None]:
    """Processes started inside write their standard error through a filter."""
    terminal = os.dup(2)
    reader, writer = os.pipe()
    os.dup2(writer, 2)
    os.close(writer)
    threading.Thread(target=_drain, args=(reader, terminal), name="headrace-stderr", daemon=True).start()
    try:
        yield
    finally:
        os.dup2(terminal, 2)


def _drain(reader: int, terminal: int) -> None:
    with os.fdopen(reader, "rb") as lines, os.fdopen(terminal, "wb", buffering=0) as out:
        for line in lines:
            if not line.startswith(_NOISE):
                out.write(line)
