"""The one home of the SparkSession and of Spark jobs. Nothing else in Headrace imports pyspark.

Facts this relies on, measured on 2 cores: a session takes 4-8 s to start and its first job 5-6 s; a job with one Python
stage costs 150 ms as a DataFrame and 90 ms as an RDD, one with a shuffle and two Python stages 310-350 ms.
``docs/performance.md`` has the details.
"""

from __future__ import annotations

import os
import pickle
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headrace.engine import jvm
from headrace.engine.java import find_java
from headrace.engine.launch import SECRET_SETTING, is_local, java_option, launch_settings, require_no_secrets, spark_folders
from headrace.engine.launch_noise import without_launch_noise
from headrace.engine.parts import plan_parts
from headrace.engine.progress_channel import ProgressReceiver
from headrace.engine.spark_home import launch_environment
from headrace.engine.tasks import (
    Gathered,
    ReadJob,
    WriteJob,
    exchange_rows,
    read_splits,
    result_batch,
    write_gathered,
)
from headrace.errors import DefinitionError, FencedError, JobFailedError, TransientError
from headrace.model.cut import Cut, CutRound
from headrace.model.ledger import TableProgress
from headrace.model.outcome import ReadCount, SplitReport, WriteCount, WriteOutcome
from headrace.model.split import Split
from headrace.model.table import TableId
from headrace.model.types import CHARACTER_KINDS
from headrace.sinks.base import (
    Commits,
    SinkCapabilities,
    TextComparison,
    TextComparisons,
    UnitWriter,
    WriterContext,
    WriteReport,
)
from headrace.sinks.cut_commit import CutCommit
from headrace.sources.base import EventSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ONE_TASK_BYTES = 8 << 20
"""Up to this many source bytes a round is one task: no shuffle, no second Python stage."""
_READ_TASK_BYTES = 32 << 20
_WRITE_TASK_BYTES = 64 << 20
_BUCKET_BYTES = 4 << 20
_EXCHANGE_DDL = "target int, table int, payload binary"
_RESULT_DDL = "payload binary"
_JOB_GROUP = "headrace"
_DYING_SECONDS = 5.0


def session_settings(user: Mapping[str, str], sink: Mapping[str, str]) -> dict[str, str]:
    """The session's configuration: what the design fixes, the sink's part, and the user's ``--spark`` on top.

    Raises DefinitionError for a setting that would break exactly-once writing, and for one that would show a secret.
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
        # A row of the exchange holds up to several MiB: the default of 10,000 rows a batch would not fit any heap.
        "spark.sql.execution.arrow.maxRecordsPerBatch": "16",
        "spark.sql.classic.shuffleDependency.fileCleanup.enabled": "true",
        "spark.shuffle.compress": "true",
        # What tasks are told holds passwords. Above 1 MiB, some thousand files, PySpark would lay it down in a file.
        "spark.broadcast.UDFCompressionThreshold": "1g",
        # Spark's own pattern leaves Azure's keys and signatures in event logs.
        "spark.redaction.regex": SECRET_SETTING.pattern,
        # Without it the JVM takes Java objects from everybody who reaches its ports. In local mode it draws a secret of its own,
        # which leaves it nowhere.
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


class SparkEngine:
    """Starts a session when it is first needed, and runs one job at a time on it.

    ``run`` blocks; ``cancel`` and ``counts`` may be called from another thread meanwhile.
    """

    def __init__(self, settings: Mapping[str, str]) -> None:
        self._settings = settings
        self._session: SparkSession | None = None
        self._receiver: ProgressReceiver | None = None
        self._lock = threading.Lock()

    @property
    def started(self) -> bool:
        return self._session is not None

    def start(self) -> SparkSession:
        """The session, started when there is none.

        Raises MissingPartError when no Java is found, JobFailedError when the JVM has died: the next call starts another.
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
        os.environ["JAVA_HOME"] = str(find_java().home)
        # Spark takes `python3` from PATH otherwise, which need not have pyarrow.
        os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
        # PySpark's daemons start with `-m`, which looks for modules in the working folder first: others may write to that.
        os.environ["PYTHONSAFEPATH"] = "1"
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        os.environ.update(launch_environment(os.environ))
        from pyspark.sql import SparkSession

        folders = spark_folders(self._settings)
        settings = folders.settings(self._settings)
        builder = SparkSession.builder
        for key, value in settings.items():
            builder = builder.config(key, value)
        with without_launch_noise(), self._looking_after_jvm(), folders.launching():
            jvm.launch(launch_settings(settings), folders.locks)
            session = builder.getOrCreate()
        jvm.die_quietly(session)
        return session

    def _forget(self) -> None:
        """Lets go of a session whose JVM has died."""
        self._session = None
        jvm.forget()

    @contextmanager
    def _looking_after_jvm(self) -> Iterator[None]:
        """For what asks the JVM. Where that fails since it died, raises JobFailedError; the next start makes another one."""
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

    def warm_up(self) -> None:
        """Runs an empty job of each kind, which costs seconds the first time only."""
        self._run_alone(_nothing)
        self._run_halves(_nothing, 1, _nothing, 1)

    def parallelism(self) -> int:
        """How many tasks run at once. Raises JobFailedError."""
        session = self.start()
        with self._looking_after_jvm():
            return int(session.sparkContext.defaultParallelism)

    def run(self, read: ReadJob, write: WriteJob, tasks: list[list[Split]]) -> list[object]:
        """One job. With a single read task it reads and writes in that task; else rows go through a shuffle between.

        Returns split reports and outcomes. Raises what a writer raised, or JobFailedError.
        """
        local = is_local(self._settings["spark.master"])
        self.start()
        receiver = self._receiver
        assert receiver is not None, "a session has one"
        read = replace(read, progress_to=receiver.next_job())
        try:
            if len(tasks) == 1:
                return self._run_alone(_whole_task(read, write, tasks[0], local))
            return self._run_halves(_read_task(read, tasks, local), len(tasks), _write_task(read, write, local), read.write_tasks)
        finally:
            receiver.job_ended()

    def _run_alone(self, task: Callable[[Iterator[int]], Iterator[bytes]]) -> list[object]:
        """One task as an RDD: planning a DataFrame would nearly double what a small cut takes (169 ms instead of 92)."""
        return self._results(lambda session: session.sparkContext.parallelize([0], 1).mapPartitions(task).collect())

    def _run_halves(self, first: Task, first_tasks: int, second: Task, second_tasks: int) -> list[object]:
        def collect(session: SparkSession) -> list[bytes]:
            frame = session.range(0, first_tasks, 1, first_tasks).mapInArrow(first, _EXCHANGE_DDL)
            frame = frame.repartitionById(second_tasks, "target").mapInArrow(second, _RESULT_DDL)
            return [row[0] for row in frame.collect()]

        return self._results(collect)

    def _results(self, collect: Callable[[SparkSession], list[bytes]]) -> list[object]:
        """What the tasks of a job pickled. Raises the gravest exception among it, or JobFailedError."""
        session = self.start()
        try:
            with self._looking_after_jvm():
                session.sparkContext.setJobGroup(_JOB_GROUP, "headrace cut", interruptOnCancel=True)
                payloads = collect(session)
        except JobFailedError:
            raise
        except Exception as error:
            raise JobFailedError("A Spark job failed.", _innermost(error)) from error
        results = [pickle.loads(payload) for payload in payloads]
        _raise_first(results)
        return results

    def counts(self) -> tuple[int, int]:
        """Files and rows that tasks of the current job have read so far, as far as they told."""
        return self._receiver.counts() if self._receiver is not None else (0, 0)

    def cancel(self) -> None:
        """Ends the running job. Its tasks may go on writing for seconds: raise the attempt afterwards."""
        session = self._session
        if session is not None:
            # A job whose JVM has died ends by itself.
            with suppress(JobFailedError), self._looking_after_jvm():
                session.sparkContext.cancelJobGroup(_JOB_GROUP)

    def stop(self) -> None:
        """Ends the session. One that is still starting is left to end with the process, which closes its input."""
        if not self._lock.acquire(blocking=False):
            return
        try:
            if self._session is not None:
                with suppress(JobFailedError), self._looking_after_jvm():
                    self._session.stop()
                self._session = None
            if self._receiver is not None:
                self._receiver.close()
                self._receiver = None
        finally:
            self._lock.release()


def _innermost(error: BaseException) -> str:
    """The last Python line of a job's stack trace: Spark wraps it in a page of Java."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    python = [line for line in lines if line.split(":", 1)[0].endswith(("Error", "Exception")) and " " not in line.split(":", 1)[0]]
    return python[-1] if python else (lines[0] if lines else type(error).__name__)


def _raise_first(results: Iterable[object]) -> None:
    """Raises the gravest exception among results: a fence before a passing fault, either before anything else."""
    errors = [r for r in results if isinstance(r, BaseException)]
    for kind in (FencedError, TransientError, BaseException):
        for error in errors:
            if isinstance(error, kind):
                raise error


def _forget_archives(local: bool) -> None:
    """Drops zip and jar importers from a local worker.

    On Spark 4.1 each task's ``importlib.invalidate_caches()`` reads ``pyspark.zip`` again for every importer cached from it,
    130 ms a task. Local workers import from the installed package; on a cluster that zip may be the only pyspark there is.
    """
    if not local:
        return
    for path in [p for p in sys.path_importer_cache if p.endswith((".zip", ".jar")) or ".zip/" in p]:
        del sys.path_importer_cache[path]
    sys.path[:] = [p for p in sys.path if not p.endswith((".zip", ".jar"))]


def _nothing(items: Iterator[object]) -> Iterator[Any]:
    """A task that reads its input and says nothing."""
    for _ in items:
        pass
    yield from ()


Task = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def _whole_task(read: ReadJob, write: WriteJob, splits: list[Split], local: bool) -> Callable[[Iterator[int]], Iterator[bytes]]:
    def run(numbers: Iterator[int]) -> Iterator[bytes]:
        _forget_archives(local)
        for _ in numbers:  # a worker whose input was not read to its end is not used again, and a new one takes 0.8 s
            pass
        gathered = Gathered(read)
        for item in read_splits(read, splits):
            gathered.add(item)
        for result in write_gathered(gathered, write, 0):
            yield pickle.dumps(result)

    return run


def _read_task(read: ReadJob, tasks: list[list[Split]], local: bool) -> Task:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        _forget_archives(local)
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from exchange_rows(read, tasks[number])

    return run


def _write_task(read: ReadJob, write: WriteJob, local: bool) -> Task:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        _forget_archives(local)
        gathered, slot = Gathered(read), None
        for batch in batches:
            slot = batch.column(0)[0].as_py() if slot is None and batch.num_rows else slot
            gathered.add_exchange(batch)
        if slot is not None:
            yield from result_batch(write_gathered(gathered, write, slot))

    return run


@dataclass(frozen=True)
class SparkRound:
    """One round of a cut, as an EventSink gets it (``headrace.sinks.base.Round``).

    ``commit`` is there where the round is the whole cut and has at most ``SinkCapabilities.atomic_bytes``.
    """

    engine: SparkEngine
    source: EventSource
    capabilities: SinkCapabilities
    cut: Cut
    round: CutRound
    context: WriterContext
    progress: Mapping[TableId, TableProgress]
    commit: CutCommit | None = None

    def write_in_tasks(self, writer: UnitWriter, texts: TextComparisons | None = None) -> WriteReport:
        report = self._write(writer, texts, self.round.splits, commit=self.commit)
        apart = frozenset(problem.table_id for o in report.outcomes if (problem := o.problem) is not None and problem.needs_whole)
        if not apart:
            return report
        # The rows of these tables that were written are written again, which does no harm: a cut may be repeated. Never with the
        # ledger's part: this job does not know what the first one found of the other tables.
        again = self._write(writer, texts, [s for s in self.round.splits if s.table_id in apart], spread=False)
        return WriteReport(
            (*(r for r in report.splits if r.table_id not in apart), *again.splits),
            (*(o for o in report.outcomes if o.table_id not in apart), *again.outcomes),
            committed=report.committed,
            reads=(*(r for r in report.reads if r.table_id not in apart), *again.reads),
            writes=(*(w for w in report.writes if w.table_id not in apart), *again.writes),
            commits=(*report.commits, *again.commits),
        )

    def _write(
        self,
        writer: UnitWriter,
        texts: TextComparisons | None,
        of_round: Iterable[Split],
        *,
        commit: CutCommit | None = None,
        spread: bool = True,
    ) -> WriteReport:
        """One job. Without ``spread`` all of a table is one bucket."""
        splits = sorted(of_round, key=lambda s: (s.table_id, s.rank))
        total = sum(s.size for s in splits)
        write_tasks = 1 if total <= max(ONE_TASK_BYTES, self.capabilities.atomic_bytes) else self._write_tasks(total)
        read = ReadJob(
            source=self.source,
            parts=plan_parts(
                splits,
                self.round.segments,
                write_tasks,
                _BUCKET_BYTES if spread else max(total, 1),
                self.progress,
                self._texts(splits, texts) if texts is not None else {},
                self.cut.lacking if self._is_watched() else {s.table_id for s in splits},
            ),
            demand=self.capabilities.demand,
            deletes_first=self.cut.deletes_first,
            write_tasks=write_tasks,
            letters=self.context.letters,
            new_collations=self.cut.new_collations,
            updates_alone=self.cut.updates_alone,
        )
        tasks = [splits] if write_tasks == 1 else pack(splits, total, self.engine.parallelism())
        results = self.engine.run(read, WriteJob(writer, self.context, commit), tasks)
        reports = tuple(r for r in results if isinstance(r, SplitReport))
        outcomes = tuple(r for r in results if isinstance(r, WriteOutcome))
        reads = tuple(r for r in results if isinstance(r, ReadCount))
        writes = tuple(r for r in results if isinstance(r, WriteCount))
        commits = tuple(r for r in results if isinstance(r, Commits))
        return WriteReport(reports, outcomes, committed=commit is not None, reads=reads, writes=writes, commits=commits)

    def _is_watched(self) -> bool:
        """Whether writers watch the spellings of keys. Without commit ts a repeated file brings former ones back for a while."""
        return self.cut.new_collations is not True and self.cut.has_commit_ts

    def _texts(self, splits: Iterable[Split], texts: TextComparisons) -> Mapping[TableId, TextComparison]:
        """How the target compares the texts that matter: those of keys, and, where spellings are watched, all of the table."""
        shapes = {s.table_id: self.round.segments[s.table_id].schema for s in splits}
        wanted = set()
        for table_id, shape in shapes.items():
            names = [c.name for c in shape.columns] if shape.handle_key and self._is_watched() else shape.handle_key
            if any(shape.column(name).type.kind in CHARACTER_KINDS for name in names):
                wanted.add(table_id)
        return texts(wanted) if wanted else {}

    def _write_tasks(self, total: int) -> int:
        most = self.capabilities.writers or self.engine.parallelism()
        if most < self.engine.parallelism():
            return max(most, 2)
        return max(self.engine.parallelism(), 2, -(-total // _WRITE_TASK_BYTES))


def pack(splits: list[Split], total: int, parallelism: int) -> list[list[Split]]:
    """Splits in their order, cut into tasks of about equal bytes: some per core, none above 32 MiB but for larger files."""
    target = max(1, min(_READ_TASK_BYTES, total // (parallelism * 2)))
    tasks: list[list[Split]] = []
    filled = 0
    for split in splits:
        if not tasks or filled + split.size > target:
            tasks.append([])
            filled = 0
        tasks[-1].append(split)
        filled += split.size
    return tasks
