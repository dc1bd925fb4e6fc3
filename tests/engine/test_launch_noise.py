"""What Spark's processes print at their start and end, and what of that people see."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headrace.engine import launch_noise
from headrace.engine.launch_noise import expect_end, without_noise

START = [b"WARNING: Using incubator modules: jdk.incubator.vector\n", b'Setting default log level to "WARN".\n']
TRACE = [
    b"Traceback (most recent call last):\n",
    b'  File "daemon.py", line 233, in manager\n',
    b"    code = worker(sock, authenticated)\n",
    b"\n",
    b"During handling of the above exception, another exception occurred:\n",
    b"\n",
    b"Traceback (most recent call last):\n",
    b'  File "daemon.py", line 84, in worker\n',
    b"BrokenPipeError: [Errno 32] Broken pipe\n",
]
OTHER = [b"java.lang.OutOfMemoryError: Java heap space\n", b"ValueError: no\n"]


@pytest.fixture(autouse=True)
def _anew() -> Iterator[None]:
    launch_noise._ending.clear()
    yield
    launch_noise._ending.clear()


def test_what_every_jvm_prints_at_its_start_is_left_out() -> None:
    assert list(without_noise([*START, *OTHER])) == OTHER


def test_a_stack_trace_is_shown_while_the_session_lives() -> None:
    assert list(without_noise([*TRACE, *OTHER])) == [*TRACE, *OTHER]


def test_a_worker_whose_connection_goes_with_the_session_tells_nothing() -> None:
    expect_end()
    assert list(without_noise([*TRACE, *OTHER, *TRACE])) == OTHER


def test_how_a_trace_of_something_else_ends_is_shown() -> None:
    expect_end()
    assert list(without_noise([*TRACE[:3], OTHER[1]])) == [OTHER[1]]
