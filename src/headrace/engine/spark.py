"""The only module that imports pyspark: the SparkSession and all Spark jobs.

Measured on 2 cores: a session takes 4-8 s to start, and its first job 5-6 s. A job with one Python stage costs 150 ms as a
DataFrame and 90 ms as an RDD; one with a shuffle and two Python stages costs 310-350 ms. ``docs/performance.md`` has the details.
"""

from __future__ import annotations

import gc
import os
import pickle
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from importlib.resources import files
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headrace.engine import class_archive, jvm
from headrace.engine.exchange import REPORTING_UNIT, rows_of
from headrace.engine.java import cache_root, find_java
from headrace.engine.launch import (
    DEFAULT_JAVA_OPTIONS,
    SECRET,
    SECRET_PART,
    is_local,
    java_option,
    launch_settings,
    require_no_secrets,
    spark_folders,
)
from headrace.engine.launch_noise import expect_end, without_launch_noise
from headrace.engine.payload_files import payload_folder
from headrace.engine.progress_channel import ProgressReceiver
from headrace.engine.read_task import ReadJob, exchange_rows
from headrace.engine.spark_home import launch_environment
from headrace.engine.write_task import (
    Chunks,
    WriteJob,
    WriteTask,
    raise_first,
    result_batch,
    streamed_units,
    unit_of_rows,
    unit_of_splits,
)
from headrace.errors import DefinitionError, HeadraceError, JobFailedError
from headrace.model.split import Split
from headrace.model.stream import Range, StageReport
from headrace.sources.base import StreamSource

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_EXCHANGE_DDL = "unit int, table int, first long, payload binary, file string, offset long, size long"
_RESULT_DDL = "payload binary"
_STREAM_DDL = "chunk int, number long, payload binary"
_JOB_GROUP = "headrace"
_STAGING_TASK_BYTES = 32 << 20
_DYING_SECONDS = 5.0


def session_settings(user: Mapping[str, str], sink: Mapping[str, str]) -> dict[str, str]:
    """The session's configuration: Headrace's fixed settings, then the sink's, then the user's (``--spark``).

    Raises DefinitionError for a setting that would break exactly-once writing or reveal a secret.
    """
    settings = {
        "spark.master": "local[*,4]",
        "spark.app.name": "headrace",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": "2g",
        "spark.driver.extraJavaOptions": java_option(
            f"-Dlog4j2.configurationFile={files('headrace.engine') / 'log4j2.properties'}"
        ),
        "spark.sql.adaptive.enabled": "false",
        # The splits of each read task are one partition, even if they have few bytes.
        "spark.sql.execution.arrow.localRelationThreshold": "0",
        # A row of the exchange may hold several MiB: batches of 10,000 rows, the default, would not fit into any heap.
        "spark.sql.execution.arrow.maxRecordsPerBatch": "16",
        "spark.sql.classic.shuffleDependency.fileCleanup.enabled": "true",
        "spark.shuffle.compress": "true",
        # The tasks' closure holds passwords. Above 1 MiB (some thousand files) PySpark would write it into a file.
        "spark.broadcast.UDFCompressionThreshold": "1g",
        # Spark's own pattern would leave Azure keys and signatures, and values of URLs, in event logs.
        "spark.redaction.regex": SECRET.pattern,
        "spark.redaction.string.regex": SECRET_PART.pattern,
        # Without it the JVM accepts Java objects from anyone who can reach its ports. In local mode the JVM generates the secret
        # itself and does not pass it on.
        "spark.authenticate": "true",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.executorEnv.PYTHONSAFEPATH": "1",
        **sink,
        **user,
    }
    if settings.get("spark.speculation", "false") != "false":
        raise DefinitionError("spark.speculation must stay off.", "Two attempts of one write task must not race.")
    settings["spark.speculation"] = "false"
    if not is_local(settings["spark.master"]):
        # On other machines the driver has another address, and the secret is the cluster's.
        for local_only in ("spark.authenticate", "spark.driver.host", "spark.driver.bindAddress"):
            if local_only not in user:
                del settings[local_only]
    require_no_secrets(settings)
    return settings


@dataclass(frozen=True)
class _Shuffle:
    """The shuffle of a job: the number of units, the number of tasks that take them, and whether units come in order."""

    units: int
    writers: int
    is_ordered: bool = False


class SparkEngine:
    """Starts a session when it is first needed, and runs one job at a time on it.

    ``run`` blocks; meanwhile ``cancel`` and ``counts`` may be called from another thread.
    """

    def __init__(self, settings: Mapping[str, str]) -> None:
        self._settings = settings
        self._session: SparkSession | None = None
        self._receiver: ProgressReceiver | None = None
        self._lock = threading.Lock()
        self._writes_archive = False

    @property
    def started(self) -> bool:
        return self._session is not None

    def start(self) -> SparkSession:
        """The session; starts one if there is none.

        Raises MissingPartError if no Java is found, and JobFailedError if the JVM has died. The next call then starts another one.
        """
        with self._lock:
            if self._session is not None and jvm.has_died():
                told = jvm.obituary()
                self._forget()
                raise JobFailedError(told, jvm.HINT)
            if self._session is None:
                self._session = self._new_session()
                host = self._session.conf.get("spark.driver.host", "127.0.0.1") or "127.0.0.1"
                bind = self._session.conf.get("spark.driver.bindAddress", host) or host
                self._receiver = self._receiver or ProgressReceiver(bind, host)
            return self._session

    def _new_session(self) -> SparkSession:
        java = find_java()
        os.environ["JAVA_HOME"] = str(java.home)
        # Otherwise Spark would take `python3` from PATH, which may lack pyarrow.
        os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
        # PySpark's daemons start with `-m`, which searches the working folder for modules first. Others may write to that folder.
        os.environ["PYTHONSAFEPATH"] = "1"
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        os.environ.update(launch_environment(os.environ))
        from pyspark.sql import SparkSession

        folders = spark_folders(self._settings)
        settings = folders.settings(self._settings)
        said = " ".join(settings.get(name, "") for name in (DEFAULT_JAVA_OPTIONS, "spark.driver.extraJavaOptions"))
        archive = class_archive.java_options(java, Path(os.environ["SPARK_HOME"]), cache_root(os.environ), said, os.environ)
        settings[DEFAULT_JAVA_OPTIONS] = " ".join([*map(java_option, archive), settings[DEFAULT_JAVA_OPTIONS]])
        self._writes_archive = class_archive.writes(settings[DEFAULT_JAVA_OPTIONS], os.environ)
        builder = SparkSession.builder
        for key, value in settings.items():
            builder = builder.config(key, value)
        with without_launch_noise() as stderr, self._looking_after_jvm(), folders.launching():
            jvm.launch(launch_settings(settings), folders.locks, stderr)
            session = builder.getOrCreate()
        jvm.die_quietly(session)
        return session

    def _forget(self) -> None:
        """Drops a session whose JVM has died."""
        self._session = None
        jvm.forget()

    @contextmanager
    def _looking_after_jvm(self) -> Iterator[None]:
        """Wraps calls to the JVM. If one fails since the JVM has died, raises JobFailedError; the next start creates another."""
        try:
            yield
        except Exception as error:
            if jvm.was_not_launched(error):
                raise JobFailedError("The JVM of Spark ended while it started.", jvm.LAUNCH_HINT) from None
            if jvm.has_answered(error) or not jvm.has_died(wait=_DYING_SECONDS):
                raise
            told = jvm.obituary()
            self._forget()
            raise JobFailedError(told, jvm.HINT) from None

    def _local_folder(self) -> Path | None:
        """The first folder of Spark's shuffle files; ``None`` if tasks run on other machines."""
        local = spark_folders(self._settings).local
        return local[0].path if local else None

    def warm_up(self) -> None:
        """Runs an empty job of one task, because the first job takes a second longer.

        The first job with a shuffle takes two seconds longer. An empty one would only delay the first rows by as much, so it
        runs where the JVM writes the archive of its classes, which should have those of the shuffle too.
        """
        self._run_alone(_nothing)
        if self._writes_archive:
            self._run_halves(_nothing, [b""], _nothing, _Shuffle(1, 1))

    def parallelism(self) -> int:
        """How many tasks run at once. Raises JobFailedError."""
        session = self.start()
        with self._looking_after_jvm():
            return int(session.sparkContext.defaultParallelism)

    def run(self, read: ReadJob, write: WriteJob, tasks: list[list[Split]], writers: int) -> list[object]:
        """Runs one job. With a single unit, one task reads and writes; otherwise rows are shuffled to ``writers`` write tasks.

        Returns split reports, counts and outcomes. Raises what a writer raised, or JobFailedError.
        """
        local = is_local(self._settings["spark.master"])
        self.start()
        receiver = self._receiver
        assert receiver is not None, "a session has one"
        read = replace(read, progress_to=receiver.next_job())
        try:
            if read.units == 1:
                splits = [split for task in tasks for split in task]
                return self._run_alone(_whole_task(read, write, splits, local))
            inputs = [pickle.dumps(task) for task in tasks]
            shuffle = _Shuffle(read.units, writers, read.has_logs)
            with payload_folder(self._local_folder()) as folder:
                read = replace(read, payload_folder=folder)
                return self._run_halves(_read_task(read, local), inputs, _write_task(read, write, local), shuffle)
        finally:
            receiver.job_ended()

    def stream(self, read: ReadJob, tasks: list[list[Split]], chunks: Chunks) -> Iterator[object]:
        """Table changes and results come to the driver, one chunk at a time. Raises the most severe exception among the results."""
        local = is_local(self._settings["spark.master"])
        session = self.start()
        receiver = self._receiver
        assert receiver is not None, "a session has one"
        read = replace(read, progress_to=receiver.next_job())
        inputs = [pickle.dumps(task) for task in tasks]
        try:
            with payload_folder(self._local_folder()) as folder, self._job_of(session):
                read = replace(read, payload_folder=folder)
                frame = self._exchanged(session, _read_task(read, local), inputs, _Shuffle(read.units, read.units, read.has_logs))
                frame = frame.mapInArrow(_stream_task(read, chunks, local), _STREAM_DDL)
                if read.has_logs:
                    frame = frame.repartitionById(chunks.total, "chunk").sortWithinPartitions("chunk", "number")
                for row in frame.select("payload").toLocalIterator(prefetchPartitions=True):
                    item = pickle.loads(row[0])
                    raise_first([item])
                    yield item
        finally:
            receiver.job_ended()

    def stage(self, source: StreamSource, ranges: Sequence[Range]) -> list[StageReport]:
        """Stages ranges, in tasks of up to 32 MiB, but at least two for each that can run at once.

        Reports have the order of the ranges. Raises what a task raised, or JobFailedError.
        """
        task = _staging_task(source, is_local(self._settings["spark.master"]))
        given = [(number, pickle.dumps(of)) for number, of in enumerate(ranges)]
        filled = -(-sum(of.size for of in ranges) // _STAGING_TASK_BYTES)

        def collect(session: SparkSession) -> list[bytes]:
            context = session.sparkContext
            tasks = min(len(given), max(filled, 2 * context.defaultParallelism))
            return list(context.parallelize(given, tasks).mapPartitions(task).collect())

        found = [item for item in self._results(collect) if isinstance(item, tuple)]
        return [report for _, report in sorted(found, key=lambda item: item[0])]

    def _run_alone(self, task: Callable[[Iterator[int]], Iterator[bytes]]) -> list[object]:
        """Runs one task as an RDD: planning a DataFrame would nearly double the time of a small cut (169 ms instead of 92)."""
        return self._results(lambda session: session.sparkContext.parallelize([0], 1).mapPartitions(task).collect())

    def _run_halves(self, first: Task, inputs: Sequence[bytes], second: Task, shuffle: _Shuffle) -> list[object]:
        """Runs a read task for each input, and a shuffle to units, which the write tasks process one by one."""

        def collect(session: SparkSession) -> list[bytes]:
            frame = self._exchanged(session, first, inputs, shuffle).mapInArrow(second, _RESULT_DDL)
            return [row[0] for row in frame.collect()]

        return self._results(collect)

    def _exchanged(self, session: SparkSession, first: Task, inputs: Sequence[bytes], shuffle: _Shuffle) -> DataFrame:
        # One record batch for each input: Spark makes a partition of each.
        rows = [pa.record_batch([pa.array([given], pa.binary())], names=["splits"]) for given in inputs]
        frame = session.createDataFrame(pa.Table.from_batches(rows)).mapInArrow(first, _EXCHANGE_DDL)
        frame = frame.repartitionById(shuffle.units, "unit")
        if shuffle.is_ordered:
            frame = frame.sortWithinPartitions("table", "first")
        return frame.coalesce(shuffle.writers) if shuffle.writers < shuffle.units else frame

    def _results(self, collect: Callable[[SparkSession], list[bytes]]) -> list[object]:
        """The unpickled results of a job's tasks. Raises the most severe exception among them, or JobFailedError."""
        session = self.start()
        with self._job_of(session):
            payloads = collect(session)
        results = [pickle.loads(payload) for payload in payloads]
        raise_first(results)
        return results

    @contextmanager
    def _job_of(self, session: SparkSession) -> Iterator[None]:
        """Wraps a job, which may be cancelled. Raises JobFailedError."""
        try:
            with self._looking_after_jvm():
                session.sparkContext.setJobGroup(_JOB_GROUP, "headrace cut", interruptOnCancel=True)
                yield
        except HeadraceError:
            raise
        except Exception as error:
            raise JobFailedError("A Spark job failed.", _innermost(error)) from error

    def counts(self) -> tuple[int, int]:
        """The files and rows that tasks of the current job have read so far, according to their progress messages."""
        return self._receiver.counts() if self._receiver is not None else (0, 0)

    def cancel(self) -> None:
        """Ends the running job. Its tasks may continue to write for seconds, so raise the attempt afterwards."""
        session = self._session
        if session is not None:
            # A job whose JVM has died ends by itself.
            with suppress(JobFailedError), self._looking_after_jvm():
                session.sparkContext.cancelJobGroup(_JOB_GROUP)

    def kill(self) -> None:
        """Ends a JVM that does not respond, so that :meth:`stop`, which waits for it, can finish."""
        jvm.kill()

    def stop(self) -> None:
        """Ends the session. One that is still starting ends with the process, which closes its input."""
        if not self._lock.acquire(blocking=False):
            return
        try:
            if self._session is not None:
                expect_end()
                with suppress(JobFailedError), self._looking_after_jvm():
                    self._session.stop()
                self._session = None
            if self._receiver is not None:
                self._receiver.close()
                self._receiver = None
        finally:
            self._lock.release()


def _innermost(error: BaseException) -> str:
    """The last Python line of a job's stack trace, which Spark wraps in a page of Java."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    python = [line for line in lines if line.split(":", 1)[0].endswith(("Error", "Exception")) and " " not in line.split(":", 1)[0]]
    return python[-1] if python else (lines[0] if lines else type(error).__name__)


def _make_ready(local: bool) -> None:
    """Spares a worker what PySpark's daemon does before and after each task.

    It collects garbage after each task, which takes 30 ms with all modules that are loaded, so these are put aside once.
    """
    if not gc.get_freeze_count():
        gc.freeze()
    if local:
        _forget_archives()


def _forget_archives() -> None:
    """Drops zip and jar importers.

    On Spark 4.1 each task's ``importlib.invalidate_caches()`` reads ``pyspark.zip`` again for every importer cached from it,
    130 ms a task. Local workers import from the installed package; on a cluster that zip may be the only pyspark there is.
    """
    for path in [p for p in sys.path_importer_cache if p.endswith((".zip", ".jar")) or ".zip/" in p]:
        del sys.path_importer_cache[path]
    sys.path[:] = [p for p in sys.path if not p.endswith((".zip", ".jar"))]


def _nothing(items: Iterator[object]) -> Iterator[Any]:
    """A task that reads its input and returns nothing."""
    for _ in items:
        pass
    yield from ()


Task = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def _whole_task(read: ReadJob, write: WriteJob, splits: list[Split], local: bool) -> Callable[[Iterator[int]], Iterator[bytes]]:
    def run(numbers: Iterator[int]) -> Iterator[bytes]:
        _make_ready(local)
        for _ in numbers:  # Spark does not reuse a worker that has not read all of its input, and a new one takes 0.8 s
            pass
        for result in WriteTask(write, 0).results([(REPORTING_UNIT, unit_of_splits(read, splits))]):
            yield pickle.dumps(result)

    return run


def _read_task(read: ReadJob, local: bool) -> Task:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        _make_ready(local)
        for batch in batches:
            for given in batch.column(0):
                yield from exchange_rows(read, pickle.loads(given.as_buffer()))

    return run


def _staging_task(source: StreamSource, local: bool) -> Callable[[Iterator[tuple[int, bytes]]], Iterator[bytes]]:
    def run(given: Iterator[tuple[int, bytes]]) -> Iterator[bytes]:
        _make_ready(local)
        for number, of in given:
            try:
                yield pickle.dumps((number, source.stage(pickle.loads(of))))
            except HeadraceError as error:
                yield pickle.dumps(error)

    return run


def _stream_task(read: ReadJob, chunks: Chunks, local: bool) -> Task:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        _make_ready(local)
        of_units = groupby(rows_of(batches), key=lambda row: row.unit)
        yield from streamed_units(((number, unit_of_rows(read, rows)) for number, rows in of_units), chunks)

    return run


def _write_task(read: ReadJob, write: WriteJob, local: bool) -> Task:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        _make_ready(local)
        context = TaskContext.get()
        assert context is not None, "this runs in a task"
        of_units = groupby(rows_of(batches), key=lambda row: row.unit)
        units = ((number, unit_of_rows(read, rows)) for number, rows in of_units)
        yield from result_batch(WriteTask(write, context.partitionId()).results(units))
        for _ in batches:  # the rest after an exception: see _whole_task
            pass

    return run
