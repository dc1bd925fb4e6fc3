"""Part of ``make soak``: runs live through thousands of cuts. Tells what they hold; the exit code is 1 when something grows.

Without Spark into a blackhole with a file ledger, DuckDB and MariaDB: a year of weekly schema changes, in which TiCDC's files come
and go. Then with Spark, for fewer cuts: the JVM and the Python workers. Kept small by ``--cuts`` and ``--spark-cuts``.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path

import conftest  # noqa: F401 -- makes this process independent of the machine, as it does for tests
from living import WEEK, YEAR, Held, LongRun, Sample, Shop, with_spark, without_spark
from servers import running_mariadb

_KINDS = ("blackhole", "duckdb", "mariadb")
_A_YEAR = 20_000
"""The cuts of a year."""
_SAMPLES = 10
_FILES, _THREADS, _MEMORY = 4, 4, 0.15
"""How many more files and threads, and what share of memory more, may be held at the end than after the first fifth."""

_JVM_THREADS = 320
"""Two pools of Spark's block manager take up to 128 threads each, and end those that have been idle for a minute."""


def _line(sample: Sample, kind: str, held: Held) -> str:
    return (
        f"{sample.cuts:>7,} {kind:8} {held.memory / 1024:>7,.0f} {held.inner:>9,} {held.files:>6} {held.threads:>8}"
        f" {sample.position:>9,} {sample.ledger_rows:>7,} {sample.disk:>9,} {sample.status * 1000:>8,.0f}"
    )


def _grown(warm: Sample, last: Sample) -> list[str]:
    """What grew, in words."""
    found = []
    for kind, held in last.held.items():
        before = warm.held[kind]
        if held.files > before.files + _FILES:
            found.append(f"{kind}: {before.files} files were open, {held.files} are")
        if held.threads > max(before.threads + _THREADS, _JVM_THREADS if kind == "JVM" else 0):
            found.append(f"{kind}: {before.threads} threads ran, {held.threads} do")
        if held.memory > before.memory * (1 + _MEMORY):
            found.append(f"{kind}: {before.memory:,} KiB were held, {held.memory:,} are")
    if last.disk > warm.disk * 2 + 4096:
        found.append(f"{warm.disk:,} KiB lay on the disk, {last.disk:,} do")
    if last.status > warm.status * 3 + 1:
        found.append(f"reading the ledger took {warm.status:.2f} s, and takes {last.status:.2f} s")
    return found


def _lived(kind: str, cuts: int, *, spark: bool) -> list[str]:
    """Lets one run live, prints what it holds, and returns what grew."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="headrace-long-life-")))
        server = stack.enter_context(running_mariadb()) if kind == "mariadb" else None
        # Of few cuts each shall be as long as one of many, and some change a table.
        altered_every = timedelta(days=1) if spark else WEEK
        shop = Shop(folder / "feed", cuts, YEAR * cuts / _A_YEAR, altered_every=altered_every, keyless=kind != "blackhole")
        print(f"\n{kind}, {'with' if spark else 'without'} Spark, {cuts:,} cuts")  # noqa: T201
        print("   cuts process      MiB     inner  files  threads  position    rows  disk KiB status ms")  # noqa: T201
        run = stack.enter_context(
            LongRun(folder / "run", shop, with_spark if spark else without_spark, server=server, blackhole=kind == "blackhole")
        )
        began, samples = time.monotonic(), list[Sample]()
        for _ in range(_SAMPLES):
            samples.append(run.live(max(1, cuts // _SAMPLES)))
            for process, held in samples[-1].held.items():
                print(_line(samples[-1], process, held), flush=True)  # noqa: T201
        seconds = time.monotonic() - began
        print(f"{seconds:,.0f} s, {seconds * 1000 / samples[-1].cuts:.1f} ms a cut")  # noqa: T201
        return [f"{kind}: {text}" for text in _grown(samples[_SAMPLES // 5 - 1], samples[-1])]


def main() -> int:
    """Lets one run after the other live."""
    parser = argparse.ArgumentParser(description="Lets runs live through thousands of cuts, and sees that nothing grows.")
    parser.add_argument("--cuts", type=int, default=_A_YEAR, help="of each run without Spark; 0 leaves these out")
    parser.add_argument("--spark-cuts", type=int, default=300, help="of each run with Spark; 0 leaves these out")
    parser.add_argument("--only", choices=_KINDS, help="this target alone")
    arguments = parser.parse_args()
    grown = []
    for spark, cuts in ((False, arguments.cuts), (True, arguments.spark_cuts)):
        for kind in _KINDS if cuts else ():
            if arguments.only in (None, kind) and not (spark and kind == "blackhole"):
                grown += _lived(kind, cuts, spark=spark)
    print("\n".join(["", *(grown or ["nothing grew"])]))  # noqa: T201
    return 1 if grown else 0


if __name__ == "__main__":
    sys.exit(main())
