"""The ``headrace`` command as a process of its own, watched and ended from outside."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import psutil

_PATIENCE = 180.0  # Spark alone may take a minute to start where several things run on two cores


class Running:
    """A running command. ``lines`` are what it has printed, each with the seconds since its start."""

    def __init__(self, arguments: list[str], folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.started = time.monotonic()
        self.lines: list[tuple[float, str]] = []
        self.error_lines: list[tuple[float, str]] = []
        # In a session of its own, as a shell's job is: a signal to its group is what Ctrl-C on a terminal is.
        self.process = subprocess.Popen(
            [sys.executable, "-m", "headrace", *arguments],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            # A background job of a shell ignores Ctrl-C, and what it starts inherits that.
            preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509
        )
        self._readers = [
            threading.Thread(target=self._read, args=(stream, lines), daemon=True)
            for stream, lines in ((self.process.stdout, self.lines), (self.process.stderr, self.error_lines))
        ]
        for reader in self._readers:
            reader.start()
        self.family: dict[int, psutil.Process] = {}

    def _read(self, stream: Iterator[str], lines: list[tuple[float, str]]) -> None:
        for line in stream:
            lines.append((time.monotonic() - self.started, line.rstrip("\n")))

    @property
    def output(self) -> str:
        return "\n".join(line for _, line in self.lines)

    @property
    def errors(self) -> str:
        return "\n".join(line for _, line in self.error_lines)

    def wait_until(self, condition: Callable[[], object], what: str, *, seconds: float = _PATIENCE, every: float = 0.005) -> None:
        """Looks every few milliseconds. Fails when it takes too long, or when the command ends before."""
        deadline = time.monotonic() + seconds
        while not condition():
            ended = None if self.process.poll() is None else self.exit_code(5)
            assert ended is None or condition(), f"ended with {ended} before {what}:\n{self.output}\n{self.errors}"
            assert time.monotonic() < deadline, f"not within {seconds} s: {what}\n{self.output}\n{self.errors}"
            time.sleep(every)

    def signal(self, number: signal.Signals) -> None:
        """Sends a signal to the command alone, and remembers which processes it has started."""
        self.remember()
        self.process.send_signal(number)

    def signal_group(self, number: signal.Signals) -> None:
        """What a terminal does at Ctrl-C: the signal goes to the JVM too."""
        self.remember()
        os.killpg(self.process.pid, number)

    def remember(self) -> None:
        """Notes the processes that it has started, which are hard to find once it is gone."""
        with suppress(psutil.NoSuchProcess):
            for child in psutil.Process(self.process.pid).children(recursive=True):
                self.family[child.pid] = child

    def exit_code(self, seconds: float) -> int:
        """Waits for the end; it must come within ``seconds``."""
        code = self.process.wait(seconds)
        for reader in self._readers:
            reader.join(5)
        return code

    def survivors(self, seconds: float = 10.0) -> list[str]:
        """What of its JVM and Python workers is left after this time at most."""
        _, alive = psutil.wait_procs(list(self.family.values()), timeout=seconds)
        return [" ".join(process.cmdline()[:3]) for process in alive if process.status() != psutil.STATUS_ZOMBIE]

    def end(self) -> None:
        """Ends whatever is left."""
        self.remember()
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        for process in self.family.values():
            with suppress(psutil.NoSuchProcess):
                process.kill()


@contextmanager
def running(arguments: list[str], folder: Path) -> Iterator[Running]:
    """The command ``headrace`` with these arguments, working in ``folder``; ended at the latest with the context."""
    command = Running([*arguments, *(["--spark", "spark.master=local[2,4]"] if arguments[0] == "run" else [])], folder)
    try:
        yield command
    finally:
        command.end()
