"""The memory of a run in a process of its own: driver, JVM and Python workers together, looked at from outside."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from benchmarks.pipeline import RunFailed

_EVERY_SECONDS = 0.1


@dataclass(frozen=True)
class Peak:
    """The highest sum of resident memory at one moment, in MiB, and what each kind of process held at that moment."""

    total: float
    driver: float
    jvm: float
    workers: float


def measure_run(source: str, sink: str, folder: Path) -> Peak:
    """Runs ``headrace run --once`` from its start to its end. Raises RunFailed."""
    command = [str(Path(sys.executable).with_name("headrace")), "run", "--once", "--source", source, "--sink", sink]
    with (folder / "run.log").open("wb") as log:
        process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log)
        peak = _watch(process)
    if process.returncode:
        raise RunFailed(f"headrace run ended with {process.returncode}: {(folder / 'run.log').read_text()[-500:]}")
    return peak


def _watch(process: subprocess.Popen[bytes]) -> Peak:
    done = threading.Event()
    peaks: list[Peak] = [Peak(0, 0, 0, 0)]

    def sample() -> None:
        while not done.wait(_EVERY_SECONDS):
            now = _sample(process.pid)
            if now.total > peaks[0].total:
                peaks[0] = now

    sampler = threading.Thread(target=sample, daemon=True)
    sampler.start()
    process.wait()
    done.set()
    sampler.join()
    return peaks[0]


def _sample(pid: int) -> Peak:
    held: dict[str, float] = defaultdict(float)
    with suppress(psutil.NoSuchProcess):
        driver = psutil.Process(pid)
        held["driver"] = _resident(driver)
        for child in driver.children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                held["jvm" if "java" in child.name() else "workers"] += _resident(child)
    return Peak(sum(held.values()), held["driver"], held["jvm"], held["workers"])


def _resident(process: psutil.Process) -> float:
    return float(process.memory_info().rss) / 2**20
