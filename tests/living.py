"""A pipeline that lives long: a small shop's year in so many cuts, and what the run's processes, ledger and disk hold.

The upstream is driven from here, and the run lives in processes of its own, so that what is measured is the run's alone.
"""

from __future__ import annotations

import gc
import json
import multiprocessing
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import _lru_cache_wrapper
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Protocol

import duckdb
import psutil

from following import Recorder
from headrace.engine.java import find_java
from headrace.engine.run_options import RunOptions
from headrace.model.ledger import CutRecord
from headrace.model.table import Column
from headrace.pipeline.definition import Definition
from headrace.pipeline.registry import open_sink
from headrace.pipeline.runner import PipelineRun
from headrace.sinks import base, sql_ledger
from headrace.sinks.file_ledger import open_file_ledger
from headrace.testing.engine import LocalEngine
from headrace.testing.upstream import Delete, Insert, Update
from processes import Running
from servers import MariaDb
from upstreams import CUSTOMERS, INT, KEY, NAME, ORDERS, VISITS, Changefeed, visit

YEAR = timedelta(days=365)
WEEK = timedelta(days=7)
_ROWS = 20
_KEPT_DAYS = 3
_EXTRA = Column("extra", INT)
_PATIENCE = 120.0
_SETTLING_TRIES = 5


class Shop:
    """A shop whose tables never grow, in a changefeed that TiCDC sweeps.

    ``span`` passes in ``cuts`` checkpoints. ``altered_every``: how often a column comes or goes. ``keyless``: whether it has a
    table without key.
    """

    def __init__(
        self, folder: Path, cuts: int, span: timedelta = YEAR, *, altered_every: timedelta = WEEK, keyless: bool = True
    ) -> None:
        self.changefeed = Changefeed(folder, date_separator="day")
        self.upstream = self.changefeed.upstream
        self.checkpoints = 0
        self._step, self._altered_every, self._keyless = span / cuts, altered_every, keyless
        self._swept = self._altered = self.upstream.now
        for table_id in (ORDERS, CUSTOMERS):
            self.upstream.create_table(table_id, [KEY, NAME])
            self.upstream.execute(*(Insert(table_id, {"id": n, "name": "new"}) for n in range(_ROWS)))
        if keyless:
            self.upstream.create_table(VISITS, [Column("page", INT), Column("seconds", INT)])
        self.upstream.checkpoint()

    def go_on(self) -> int:
        """Some changes, and a checkpoint (TSO), which is returned."""
        upstream, number = self.upstream, self.checkpoints
        self.checkpoints += 1
        upstream.advance(int(self._step.total_seconds() * 1000))
        key = number % _ROWS
        upstream.execute(Update(ORDERS, (key,), {"name": f"order {number}"}))
        if number % 3 == 0:
            upstream.execute(Delete(CUSTOMERS, (key,)))
            upstream.execute(Insert(CUSTOMERS, {"id": key, "name": f"customer {number}"}))
        if self._keyless and number % 2:
            upstream.execute(Delete(VISITS, (number - 1, 1)))
        elif self._keyless:
            visit(upstream, number, 1, 1)
        if upstream.now - self._altered >= self._altered_every:
            self._altered = upstream.now
            self._alter()
        if upstream.now.date() != self._swept.date():
            self._swept = upstream.now
            self._sweep()
        return upstream.checkpoint()

    def _alter(self) -> None:
        if any(column.name == _EXTRA.name for column in self.upstream.schema(CUSTOMERS).columns):
            self.upstream.drop_column(CUSTOMERS, _EXTRA.name)
        else:
            self.upstream.add_column(CUSTOMERS, _EXTRA)

    def _sweep(self) -> None:
        """What TiCDC's file-expiration-days does: schema files stay."""
        oldest = (self.upstream.now - timedelta(days=_KEPT_DAYS)).date().isoformat()
        for folder in self.changefeed.writer.root.glob("*/*/*/????-??-??"):
            if folder.name < oldest:
                shutil.rmtree(folder)


@dataclass(frozen=True)
class Held:
    """What a process holds: KiB of memory, open files, threads.

    ``inner`` is what lives in it after a collection of its garbage: blocks of Python's allocator without caches of a fixed size,
    or KiB of a JVM's heap; 0 where that cannot be asked.
    """

    memory: int
    files: int
    threads: int
    inner: int = 0

    @classmethod
    def by(cls, process: psutil.Process, inner: int = 0) -> Held:
        with process.oneshot():
            return cls(process.memory_info().rss >> 10, process.num_fds(), process.num_threads(), inner)

    def __add__(self, other: Held) -> Held:
        return Held(self.memory + other.memory, self.files + other.files, self.threads + other.threads, self.inner + other.inner)


class Life(Protocol):
    """A run that follows a shop."""

    def wait_for(self, checkpoint: int) -> None:
        """Waits until the run has applied everything up to a checkpoint (TSO). Fails when it ends, or does not go on."""
        ...

    def held(self) -> dict[str, Held]:
        """What each kind of its processes holds, when garbage is collected."""
        ...


class _WithoutSpark:
    """A run in one process, its tasks too."""

    def __init__(self, process: Any, checkpoint: Any, connection: Connection) -> None:
        self._process, self._checkpoint, self._connection = process, checkpoint, connection

    def wait_for(self, checkpoint: int) -> None:
        deadline = time.monotonic() + _PATIENCE
        while self._checkpoint.value < checkpoint:
            assert self._process.is_alive(), "the run has ended"
            assert time.monotonic() < deadline, "the run does not go on"
            time.sleep(0.0005)

    def held(self) -> dict[str, Held]:
        self._connection.send("measure")
        return {"driver": Held.by(psutil.Process(self._process.pid), self._connection.recv())}


class _Reporting(Recorder):
    """Tells the parent how far the run is."""

    def __init__(self, shared: Any) -> None:
        super().__init__()
        self._shared = shared

    def cut_finished(self, record: CutRecord, watermark: int, left_bytes: int = 0) -> None:
        self._shared.value = record.hi

    def caught_up(self, checkpoint: int) -> None:
        self._shared.value = checkpoint


def _follow(definition: dict[str, str], kept_cuts: int, shared: Any, connection: Connection) -> None:
    base.KEPT_CUTS = sql_ledger.KEPT_CUTS = kept_cuts
    options = RunOptions(poll_interval=0.001)
    run = PipelineRun(Definition(**definition, options=options), _Reporting(shared), LocalEngine())  # type: ignore[arg-type]
    threading.Thread(target=run.run, daemon=True).start()
    while connection.recv() == "measure":
        # Caches of a fixed size fill for a while, which is no growth.
        for cached in [found for found in gc.get_objects() if isinstance(found, _lru_cache_wrapper)]:
            cached.cache_clear()
        gc.collect()
        connection.send(sys.getallocatedblocks())


@contextmanager
def without_spark(shop: Shop, sink: str, ledger: Path, kept_cuts: int = base.KEPT_CUTS) -> Iterator[Life]:
    """A run that follows the shop in a process of its own, and runs its tasks itself.

    ``kept_cuts``: how many the ledger keeps. With few it is full soon.
    """
    feed = shop.changefeed
    definition = {"source": feed.uri, "sink": sink, "changefeed": str(feed.toml), "ledger": str(ledger)}
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    shared = context.Value("q", 0)
    process = context.Process(target=_follow, args=(definition, kept_cuts, shared, theirs), daemon=True)
    process.start()
    try:
        yield _WithoutSpark(process, shared, ours)
    finally:
        process.kill()
        process.join()


class _WithSpark:
    """``headrace run`` as people start it."""

    def __init__(self, command: Running) -> None:
        self._command = command
        self._seen = self._checkpoint = 0

    def wait_for(self, checkpoint: int) -> None:
        self._command.wait_until(lambda: self._applied() >= checkpoint, "the checkpoint", seconds=_PATIENCE)

    def _applied(self) -> int:
        lines = self._command.lines
        while self._seen < len(lines):
            event = json.loads(lines[self._seen][1])
            self._seen += 1
            if event["event"] == "cut":
                self._checkpoint = event["checkpoint"]
        return self._checkpoint

    def held(self) -> dict[str, Held]:
        driver = psutil.Process(self._command.process.pid)
        found = {"driver": Held.by(driver), "JVM": Held(0, 0, 0), "workers": Held(0, 0, 0)}
        for child in driver.children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                is_jvm = "java" in child.name()
                found["JVM" if is_jvm else "workers"] += Held.by(child, _heap(child.pid) if is_jvm else 0)
        return found


def _heap(jvm: int) -> int:
    """KiB of a JVM's heap that are in use after a collection; 0 where the Java has no tools to ask with."""
    jcmd = find_java().home / "bin" / "jcmd"
    if not jcmd.exists():
        return 0
    subprocess.run([jcmd, str(jvm), "GC.run"], check=True, capture_output=True)
    told = subprocess.run([jcmd, str(jvm), "GC.heap_info"], check=True, capture_output=True, text=True).stdout
    return int(told.split(" used ", 1)[1].split("K", 1)[0])


@contextmanager
def with_spark(shop: Shop, sink: str, ledger: Path) -> Iterator[Life]:
    """``headrace run`` on a session of two cores, with 512 MiB of heap, so that what grows there shows early."""
    spark = {"spark.master": "local[2,4]", "spark.driver.memory": "512m", "spark.local.dir": str(ledger.parent / "local")}
    settings = [word for key, value in spark.items() for word in ("--spark", f"{key}={value}")]
    options = ["--json", "--poll-interval", "20ms", "--ledger", str(ledger), *settings]
    command = Running(shop.changefeed.arguments(sink, *options), ledger.parent)
    try:
        yield _WithSpark(command)
    finally:
        command.end()


Begin = Callable[[Shop, str, Path], AbstractContextManager[Life]]


@dataclass(frozen=True)
class Sample:
    """What there is after so many cuts.

    ``position`` is the length of the ledger's position, ``ledger_rows`` the rows of its tables or its files, ``disk`` the KiB of
    the target's and the ledger's files and of Spark's folder, ``status`` the seconds that it took to read the ledger.
    """

    cuts: int
    held: dict[str, Held]
    position: int
    ledger_rows: int
    disk: int
    status: float


class LongRun:
    """A run, its shop and its target in ``folder``. Use it as a context.

    ``begin`` is :func:`without_spark` or :func:`with_spark`. The target is a MariaDB, a blackhole with a file ledger, or a DuckDB
    file.
    """

    def __init__(self, folder: Path, shop: Shop, begin: Begin, *, server: MariaDb | None = None, blackhole: bool = False) -> None:
        self._folder, self._shop, self._server = folder, shop, server
        self._ledger = folder / "ledger"
        self._file = None if server or blackhole else folder / "target.duckdb"
        self._uri = server.uri() if server else f"duckdb://{self._file}" if self._file else "blackhole://"
        self._begin = begin
        self._stack = ExitStack()
        folder.mkdir(parents=True, exist_ok=True)

    def __enter__(self) -> LongRun:
        self._life = self._stack.enter_context(self._begin(self._shop, self._uri, self._ledger))
        self._life.wait_for(self._shop.changefeed.watermark)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def live(self, cuts: int) -> Sample:
        """Lets so many cuts happen, one after the other."""
        for _ in range(cuts):
            self._life.wait_for(self._shop.go_on())
        held = self._life.held()
        began = time.monotonic()
        with open_sink(self._uri) as sink:
            ledger = sink.ledger or open_file_ledger(str(self._ledger))
            state = ledger.peek("default")
            ledger.close()
        seconds = time.monotonic() - began
        assert state is not None
        mine = [path for path in self._folder.rglob("*") if self._shop.changefeed.writer.root not in path.parents]
        disk = sum(path.stat().st_size for path in mine if path.is_file()) >> 10
        return Sample(self._shop.checkpoints, held, len(state.position), self._ledger_rows(), disk, seconds)

    def _ledger_rows(self) -> int:
        tables = ("pipelines", "position_parts", "tables", "ddl_journal", "ddl_decisions", "table_requests", "dead_letters", "cuts")
        if self._server is not None:
            with self._server.connect() as connection, connection.cursor() as cursor:
                return sum(self._count(cursor, f"headrace.{table}") for table in (*tables, "fences"))
        if self._file is not None:
            with duckdb.connect(str(self._file), read_only=True) as target:
                return sum(self._count(target, f"headrace.{table}") for table in tables)
        return sum(path.is_file() for path in self._ledger.rglob("*"))

    @staticmethod
    def _count(cursor: Any, table: str) -> int:
        cursor.execute(f"SELECT count(*) FROM {table}")
        (count,) = cursor.fetchone()
        return int(count)


def least(samples: Sequence[Sample]) -> dict[str, Held]:
    """The least that each kind of process held in any of these samples: what a moment adds is not counted."""
    kinds = samples[0].held
    return {
        kind: Held(
            *(min(getattr(sample.held[kind], name) for sample in samples) for name in ("memory", "files", "threads", "inner"))
        )
        for kind in kinds
    }
