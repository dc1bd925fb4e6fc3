"""A pipeline that is not spared: ``headrace run`` follows a random history, and its processes are killed at random moments.

The history goes on while the run does, and while it is dead. What happens follows from a seed; at which step of its work that hits
the run is up to the machine.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from random import Random
from urllib.parse import parse_qsl, urlsplit

import psutil

from differential import History, Step
from differential_shapes import INT
from harness import assert_state
from headrace.errors import EXIT_INTERRUPTED, EXIT_UNREACHABLE, HeadraceError
from headrace.model.ledger import CutRecord, LedgerState, TableProgress, TableStatus
from headrace.model.table import Column, TableSchema
from headrace.model.types import ColumnType, TypeKind
from headrace.pipeline.registry import open_sink
from headrace.testing.delivery import Conduct, options_text
from headrace.testing.ticdc_options import ChangefeedOptions
from headrace.testing.upstream import Insert, Statement, Update
from kafka_server import KafkaBroker
from kafka_stream import KafkaStream
from processes import Running
from servers import S3Server
from streamed_history import PARTITIONS, Streamed
from targets import Target

# Fewer schema changes than in test_differential.py: here most of what is killed shall be work on rows.
_ACTIONS = (
    *["rows"] * 14,
    *["alter"] * 3,
    *["deliver"] * 3,
    *["promise"] * 5,
    *("create", "partition", "like", "drop", "truncate", "recreate", "rename", "rename_many", "recreate_database"),
    *("swap_rows", "bulk", "restart", "half", "indexes", "time"),
)
_PROMISE = Step("promise", 0)
_TEXT = ColumnType(TypeKind.TEXT)
_BULK_ROWS, _BULK_BYTES = 300, 30_000
_STEP_SECONDS = 0.1
_PATIENCE = 400.0  # seconds; another JVM may take more than one minute on a machine that has other things to do
_LOOK_SECONDS = 0.3
_LINES_TOLD = 80
# Small, since several things run on a test's machine; the second number is how often Spark tries a task.
_SPARK = ("spark.master=local[2,4]", "spark.driver.memory=512m")


class Victim(StrEnum):
    """What is killed."""

    DRIVER = "driver"
    WORKER = "worker"
    JVM = "JVM"


@dataclass
class Tally:
    """What has happened so far; cuts, rows and schema changes as the ledgers tell them."""

    histories: int = 0
    starts: int = 0
    cuts: int = 0
    rows: int = 0
    schema_changes: int = 0

    def add_cuts(self, cuts: tuple[CutRecord, ...]) -> None:
        self.cuts += len(cuts)
        self.rows += sum(cut.upserts + cut.deletes for cut in cuts)
        self.schema_changes += sum(cut.schema_changes for cut in cuts)


class LongHistory(History):
    """With large transactions too, which take several tasks and transactions to write."""

    def _bulk(self) -> None:
        """Rows of 9 MB, new or changed, in a table that was made for them."""
        upstream, chance = self.upstream, self._chance
        found = [name for name in upstream.tables if _takes_large_rows(upstream.schema(name))]
        table_id = chance.choice(found) if found else self._free_name()
        if not found:
            columns = [Column("id", INT, nullable=False, primary_key=True), Column("body", _TEXT)]
            self._ddl(f"create {table_id} for large rows", lambda: upstream.create_table(table_id, columns))
        first = chance.randrange(1000, 1300)
        there = {key[0] for key in upstream.keys(table_id)}
        statements: list[Statement] = []
        for number in range(first, first + _BULK_ROWS):
            body = f"{chance.randrange(10**9):09d} " * (_BULK_BYTES // 10)
            known = number in there
            statements.append(
                Update(table_id, (number,), {"body": body}) if known else Insert(table_id, {"id": number, "body": body})
            )
        self._remember(upstream.execute(*statements), f"large rows from {first} on in {table_id}", ddl=False)


class LongKafkaHistory(Streamed, LongHistory):
    """The same of a changefeed that writes to a topic."""

    def __init__(self, broker: KafkaBroker, root: Path, options: ChangefeedOptions, conduct: Conduct) -> None:
        self._broker = broker
        super().__init__(root, options, conduct)

    def new_stream(self) -> KafkaStream:
        self.stream = KafkaStream(PARTITIONS, broker=self._broker)
        return self.stream

    @property
    def uri(self) -> str:
        return self.stream.uri

    def _indexes(self) -> None:
        raise ValueError("a topic has no index files")


def _behind(state: LedgerState) -> list[TableProgress]:
    """The tables that do not stand where the pipeline does."""
    return [own for own in state.tables.values() if own.status.is_stopped or own.status is TableStatus.CATCHING_UP]


def _takes_large_rows(schema: TableSchema) -> bool:
    types = {column.name: column.type for column in schema.columns}
    return schema.handle_key == ("id",) and types["id"] == INT and types.get("body") == _TEXT


def random_history(folder: Path, chance: Random, broker: KafkaBroker | None = None) -> LongHistory:
    """A history that has not begun, of a changefeed with random options; with a ``broker`` it writes to a topic."""
    if broker is not None:
        return LongKafkaHistory(broker, folder, ChangefeedOptions("canal-json", enable_tidb_extension=True), Conduct())
    # Not enable-table-across-nodes: of a table that has lost its key, repeats cannot be told there, so it stops for good.
    layout = {"use_table_id_as_path": chance.random() < 0.25}
    common = {"date_separator": chance.choice(["none", "day"]), **layout}
    options = chance.choice(
        [
            ChangefeedOptions("csv", include_commit_ts=True, output_old_value=chance.random() < 0.7, **common),
            ChangefeedOptions("canal-json", enable_tidb_extension=True, **common),
        ]
    )
    conduct = Conduct(
        key_updates=chance.choice(["sorted", "unsorted", "raw"]),
        discards_stale=chance.random() < 0.5,
    )
    return LongHistory(folder, options, conduct)


class Bucket:
    """Holds what a changefeed's folder holds: new files come in any order, and after them ``metadata``, which promises them."""

    def __init__(self, store: S3Server, folder: Path, chance: Random) -> None:
        self.name = store.make_bucket()
        self._client, self._folder, self._chance = store.client(), folder, chance
        self._held: dict[str, tuple[int, int]] = {}

    def follow(self) -> None:
        """Takes over what has changed since."""
        files = [path for path in self._folder.rglob("*") if path.is_file()]
        found = {path.relative_to(self._folder).as_posix(): (path.stat().st_mtime_ns, path.stat().st_size) for path in files}
        changed = [key for key, mark in found.items() if self._held.get(key) != mark]
        self._chance.shuffle(changed)
        for key in sorted(changed, key=lambda key: key == "metadata"):
            self._client.put_object(Bucket=self.name, Key=key, Body=(self._folder / key).read_bytes())
        for key in self._held.keys() - found.keys():
            self._client.delete_object(Bucket=self.name, Key=key)
        self._held = found


class Ordeal:
    """One history, one target, and a run that follows it and is killed. A failure tells the seed, and where the history is.

    With a ``store`` the run reads a bucket, with a ``broker`` a topic, else the changefeed's folder itself.
    """

    def __init__(
        self,
        seed: int | str,
        folder: Path,
        target: Target,
        sink_uri: str,
        tally: Tally,
        *,
        store: S3Server | None = None,
        broker: KafkaBroker | None = None,
    ) -> None:
        self.seed, self.target, self.tally = seed, target, tally
        self.chance = Random(f"{seed} kills")
        self._steps = Random(f"{seed} steps")
        folder.mkdir(parents=True, exist_ok=True)
        self.history = random_history(folder, Random(f"{seed} options"), broker)
        self._folder, self._source_uri, self._sink_uri = folder, self.history.uri, sink_uri
        self._bucket: Bucket | None = None
        if store is not None:
            self._bucket = Bucket(store, self.history.root / "data", Random(f"{seed} bucket"))
            self._source_uri = store.uri(self._bucket.name, **dict(parse_qsl(urlsplit(self.history.uri).query)))
        self._publish()
        self._cuts: dict[tuple[int, str], CutRecord] = {}
        self._runs: list[Running] = []
        self.run = self._started()

    def __str__(self) -> str:
        source = "S3" if self._bucket else "Kafka" if isinstance(self.history, LongKafkaHistory) else "a folder"
        return f"seed {self.seed}, {source} to {self.target}, {options_text(self.history.options, self.history.conduct)}"

    def __enter__(self) -> Ordeal:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, *_: object) -> None:
        for run in self._runs:  # what a killed one left is gone by now, or should be
            run.end()
        if error is not None:
            told = self._folder / "history.txt"
            words = [f"{run.output}\n{run.errors}" for run in self._runs]
            state = self.ledger()
            rows = list(map(str, _behind(state))) if state is not None else []
            lines = [*self.history.told, "The words of the runs:", *words, "Tables that are behind:", *rows]
            told.write_text("\n".join([str(self), *lines]))
            # The folder of a machine that is gone cannot be looked into.
            end = "\n".join("\n".join(lines).splitlines()[-_LINES_TOLD:])
            error.add_note(f"{self}; what happened is in {told}. Its end:\n{end}")

    def start_again(self) -> None:
        """What a supervisor does when the driver is gone."""
        self.run = self._started()

    def _started(self) -> Running:
        self.tally.starts += 1
        arguments = ["run", "--source", self._source_uri, "--sink", self._sink_uri, "--changefeed", str(self.history.toml)]
        settings = [part for setting in _SPARK for part in ("--spark", setting)]
        self._runs.append(Running([*arguments, "--poll-interval", "100ms", *settings], self._folder))
        return self._runs[-1]

    # The upstream.

    def go_on(self, steps: int, pause: float = _STEP_SECONDS) -> None:
        """Lets that many things happen upstream, some time after each other."""
        for _ in range(steps):
            self._take(Step(self._steps.choice(_ACTIONS), self._steps.randrange(2**20)))
            time.sleep(self._steps.uniform(0, 2 * pause))

    def _take(self, step: Step) -> None:
        self.history.take(step)
        self._publish()

    def _publish(self) -> None:
        if self._bucket is not None:
            self._bucket.follow()
        if isinstance(self.history, LongKafkaHistory):
            self.history.stream.send()

    def go_on_until_applied(self) -> None:
        """The upstream goes on slowly until the run has applied something new."""
        before = self.ledger()
        mark = before.checkpoint if before else 0

        def applied() -> bool:
            self.go_on(1)
            self._take(_PROMISE)
            state = self.ledger()
            return state is not None and state.checkpoint > mark

        self.wait_until(applied, "another cut")

    def check(self) -> None:
        """Everything arrives, and the target must hold it when the run says that it is applied."""
        self.history.finish()
        self._publish()

        def applied() -> bool:
            # A table that stopped while a file was being replaced is tried again, and what waits for it with it.
            state = self.ledger()
            return state is not None and state.checkpoint >= self.history.promised and not _behind(state)

        self.wait_until(applied, "the checkpoint, with every table")
        assert_state(self.target, self.history.state())

    def take_over(self) -> None:
        """Another copy of the run starts. The older one must end by itself, and say why."""
        self.history.told.append("a second copy starts")
        older = self.run
        older.remember()
        self.start_again()

        def ended() -> bool:
            self.go_on(1)
            self._take(_PROMISE)
            return older.process.poll() is not None

        self.wait_until(ended, "the older copy has ended")
        code = older.exit_code(10)
        assert code == EXIT_UNREACHABLE, f"the older copy ended with {code}:\n{older.output}\n{older.errors}"
        assert "took over" in older.errors, older.errors
        assert "Traceback" not in older.errors, older.errors

    def finish(self) -> None:
        """Checks a last time, after the run has ended as it was told to."""
        self.check()
        self.run.signal(signal.SIGTERM)
        code = self.run.exit_code(60)
        assert code == EXIT_INTERRUPTED, f"it ended with {code}:\n{self.run.output}\n{self.run.errors}"
        assert not self.run.survivors()
        assert "Traceback" not in self.run.errors, self.run.errors
        assert_state(self.target, self.history.state())
        self.tally.add_cuts(tuple(self._cuts.values()))
        self.tally.histories += 1

    def wait_until(self, condition: Callable[[], bool], what: str) -> None:
        """Looks now and then. Fails when the run ends before."""
        self.run.wait_until(condition, what, seconds=_PATIENCE, every=_LOOK_SECONDS)

    def ledger(self) -> LedgerState | None:
        """What the ledger says now; ``None`` while it says nothing."""
        state = None
        with suppress(HeadraceError), open_sink(self._sink_uri) as sink:
            assert sink.ledger is not None, "these sinks keep their own"
            state = sink.ledger.peek("default")
        if state is not None:
            self._cuts |= {(cut.hi, cut.finished_at): cut for cut in state.cuts}
        return state

    # What is done to the run.

    def kill(self, victim: Victim) -> None:
        """SIGKILL, at once. A driver is started again; all else the run has to get over by itself."""
        self.history.told.append(f"SIGKILL for the {victim}")
        if victim is Victim.DRIVER:
            self.run.signal(signal.SIGKILL)
            self.run.exit_code(10)
            self.start_again()
            return
        for process in self._processes(victim):
            with suppress(psutil.NoSuchProcess):
                process.kill()

    def _processes(self, victim: Victim) -> list[psutil.Process]:
        """The JVM, or one of the Python processes that it started: a worker or the daemon that forks them."""
        found: list[psutil.Process] = []

        def look() -> bool:
            self.go_on(1)  # a run that has nothing to do starts no other JVM
            self._take(_PROMISE)
            with suppress(psutil.NoSuchProcess):
                children = psutil.Process(self.run.process.pid).children(recursive=True)
                found[:] = [child for child in children if ("java" if victim is Victim.JVM else "python") in child.name()]
            return bool(found)

        self.wait_until(look, f"a {victim}")
        return [self.chance.choice(found)]
