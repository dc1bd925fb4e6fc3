"""A changefeed whose files or target get damaged: the scene of the tests of bad input.

Every scene has a table ``healthy`` beside the damaged ones. Each run is one ``headrace run --once``; what it printed is kept.
"""

from __future__ import annotations

import contextlib
import io
import json
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import duckdb

from harness import run_once, spark_engine
from headrace.cli.display import RunDisplay
from headrace.cli.output import PlainOutput
from headrace.engine.run_options import RunOptions
from headrace.errors import HeadraceError
from headrace.model.ledger import LedgerState, TableStatus
from headrace.model.table import Column, TableId
from headrace.model.tso import tso_from_datetime
from headrace.model.types import ColumnType, TypeKind
from headrace.pipeline.definition import Definition
from headrace.pipeline.registry import open_sink
from headrace.pipeline.runner import PipelineRun
from headrace.testing.ticdc_writer import TicdcWriter
from headrace.testing.upstream import Delete, Insert, Update, Upstream
from targets import Target, normal_value, sort_rows

DATABASE = "shop"
HEALTHY = TableId(DATABASE, "healthy")
NOTE = Column("note", ColumnType(TypeKind.VARCHAR, length=10))
_PATIENCE = 60.0

Repair = Callable[[], None]
_COLUMNS = (
    Column("id", ColumnType(TypeKind.BIGINT), nullable=False, primary_key=True),
    Column("name", ColumnType(TypeKind.VARCHAR, length=64)),
    Column("amount", ColumnType(TypeKind.INT)),
)


@dataclass(frozen=True)
class Run:
    """One run: its exit code, and what it told."""

    code: int
    out: str
    told: str

    def error_of(self, table_id: TableId) -> str:
        """The one line that says why the table stopped."""
        prefixes = (f"error: table {table_id},", f"error: table {table_id}:")
        lines = [line for line in self.told.splitlines() if line.startswith(prefixes)]
        assert len(lines) == 1, f"{len(lines)} lines about {table_id} in:\n{self.told}"
        return lines[0].removeprefix("error: ")


class Follower(threading.Thread):
    """A run that follows its source; :attr:`ended` is there when it has ended."""

    ended: Run

    def __init__(self, source: str, sink: str, until: int) -> None:
        super().__init__(daemon=True)
        options = RunOptions(until=until, poll_interval=0.05)
        self._definition = Definition(source=source, sink=sink, options=options)
        self.out, self.told = io.StringIO(), io.StringIO()
        self.code = -1

    def run(self) -> None:
        with RunDisplay(PlainOutput(self.out, self.told)) as display:
            try:
                self.code = PipelineRun(self._definition, display, spark_engine()).run()
            except HeadraceError as error:
                self.told.write(f"error: {error}\n")
                self.code = error.exit_code

    def wait_until(self, holds: Callable[[], bool]) -> None:
        """Waits until something holds; a DuckDB file that the run has open in the moment is looked at again."""

        def looked() -> bool:
            try:
                return holds()
            except duckdb.Error:
                return False

        self._wait(looked)

    def wait_for_text(self, text: str) -> None:
        """Waits for a warning or an error."""
        self._wait(lambda: text in self.told.getvalue())

    def _wait(self, done: Callable[[], bool]) -> None:
        deadline = time.monotonic() + _PATIENCE
        while not done():
            assert time.monotonic() < deadline, f"{self.out.getvalue()}{self.told.getvalue()}"
            assert self.is_alive(), self.told.getvalue()
            time.sleep(0.02)


@dataclass
class Scene:
    """An upstream, its changefeed's folder, and a target."""

    root: Path
    sink: str
    target: Target
    protocol: Any = "csv"
    options: dict[str, Any] = field(default_factory=lambda: {"include_commit_ts": True})
    source: str = ""

    def __post_init__(self) -> None:
        self.writer = TicdcWriter(self.root, self.protocol, **self.options)
        self.upstream = Upstream(self.writer)
        self.source = self.source or self.writer.uri
        self.round = 0

    def create(self, *tables: TableId, columns: Iterable[Column] = _COLUMNS) -> None:
        """Creates tables of ``id``, ``name`` and ``amount``, with three rows each."""
        if not self.round:
            self.upstream.create_database(DATABASE)
        for table_id in tables:
            self.upstream.create_table(table_id, columns)
        self.round = max(1, self.round)
        for table_id in tables:
            self.upstream.execute(*(Insert(table_id, self.new_row(key)) for key in (1, 2, 3)))

    def new_row(self, key: int) -> dict[str, object]:
        return {"id": key, "name": f"row {key}", "amount": key * 10}

    def change(self, *tables: TableId) -> None:
        """An update, a delete and two inserts for each table; rows wait in the writer until :meth:`publish`."""
        self.round += 1
        first = self.round * 10
        for table_id in tables:
            oldest = min(self.upstream.keys(table_id))
            self.upstream.execute(
                Delete(table_id, oldest),
                Insert(table_id, self.new_row(first)),
                Insert(table_id, self.new_row(first + 1)),
            )
            self.upstream.execute(Update(table_id, (first,), {"amount": first + 5}))

    def publish(self) -> int:
        """Writes what waits, and a checkpoint after it."""
        return self.upstream.checkpoint()

    def data_files(self, table_id: TableId) -> list[Path]:
        """The table's data files, the newest last."""
        found = (self.root / table_id.database / table_id.table).rglob("CDC*.*")
        return sorted(
            (p for p in found if p.suffix in (".csv", ".json")), key=lambda p: (int(p.relative_to(self.root).parts[2]), p)
        )

    def schema_files(self, table_id: TableId) -> list[Path]:
        """The table's schema files, the newest last."""
        return sorted((self.root / table_id.database / table_id.table / "meta").glob("schema_*.json"))

    def relative(self, path: Path) -> str:
        """How messages name a file."""
        return path.relative_to(self.root).as_posix()

    def run(self, **more: Any) -> Run:
        out, told = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(told):
            code = run_once(more.pop("source", self.source), self.sink, **more)
        return Run(code, out.getvalue(), told.getvalue())

    @contextlib.contextmanager
    def following(self) -> Iterator[Follower]:
        """A run without ``--once`` beside the block. At its end it is let go up to a checkpoint that is written then."""
        spark_engine().start()
        until = tso_from_datetime(self.upstream.now + timedelta(minutes=1))
        follower = Follower(self.source, self.sink, until)
        follower.start()
        try:
            yield follower
        finally:
            self.upstream.advance(60_000)
            self.publish()
            follower.join(_PATIENCE)
        follower.ended = Run(follower.code, follower.out.getvalue(), follower.told.getvalue())

    def ledger(self, name: str = "default") -> LedgerState:
        """What the ledger says, read as ``headrace status`` does."""
        with open_sink(self.sink) as sink:
            assert sink.ledger is not None
            state = sink.ledger.peek(name)
            sink.ledger.close()
        assert state is not None
        return state

    def checkpoint_of(self, table_id: TableId) -> int:
        return self.ledger().table_checkpoint(table_id)

    def stopped(self) -> set[TableId]:
        return {t for t, p in self.ledger().tables.items() if p.status is TableStatus.STOPPED}

    def expected(self, table_id: TableId) -> list[tuple[str | None, ...]]:
        columns = self.upstream.schema(table_id).columns
        rows = self.upstream.expected_rows(table_id)
        return sort_rows(tuple(_text(row[column.name], column) for column in columns) for row in rows)

    def found(self, table_id: TableId) -> list[tuple[str | None, ...]]:
        types = {column.name: str(column.type) for column in self.upstream.schema(table_id).columns}
        return sort_rows(self.target.rows(table_id.database, table_id.table, types))

    def differing(self) -> list[str]:
        """The tables that do not hold what the upstream has."""
        return [str(table_id) for table_id in self.upstream.tables if not self._is_equal(table_id)]

    def _is_equal(self, table_id: TableId) -> bool:
        columns = {column.name for column in self.upstream.schema(table_id).columns}
        return self.target.columns(table_id.database, table_id.table) == columns and self.found(table_id) == self.expected(table_id)


def _text(value: object, column: Column) -> str | None:
    return None if value is None else normal_value(str(column.type), str(value))


def rewrite(path: Path, edit: Callable[[bytes], bytes]) -> Repair:
    """Changes a file in place and returns what brings it back as it was."""
    original = path.read_bytes()
    path.write_bytes(edit(original))
    return lambda: _restore(path, original)


def remove(path: Path) -> Repair:
    original = path.read_bytes()
    path.unlink()
    return lambda: _restore(path, original)


def _restore(path: Path, original: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(original)


def edit_line(number: int, edit: Callable[[bytes], bytes]) -> Callable[[bytes], bytes]:
    """Changes one line, counted from 1."""

    def edited(raw: bytes) -> bytes:
        lines = raw.split(b"\r\n")
        lines[number - 1] = edit(lines[number - 1])
        return b"\r\n".join(lines)

    return edited


def edit_json(edit: Callable[[dict[str, Any]], None]) -> Callable[[bytes], bytes]:
    def edited(raw: bytes) -> bytes:
        document = json.loads(raw)
        edit(document)
        return json.dumps(document, indent=4).encode()

    return edited


@dataclass(frozen=True)
class Damage:
    """What happens to a table, and what a run must say about it: ``message`` stands behind the table's name.

    ``{file}`` and ``{schema}`` are its newest data and schema file, ``{first}`` its oldest data file.
    """

    table: str
    inflict: Callable[[Scene, TableId], Repair]
    message: str
    alters: bool = False
    of_change: bool = False
    """What is damaged is the schema file of its change."""
    early: bool = False
    """Its first file of the second cut was announced, and not applied, before the damage."""
    late: bool = False
    """It is created in the second cut."""

    @property
    def table_id(self) -> TableId:
        return TableId(DATABASE, self.table)

    def sentence(self, scene: Scene) -> str:
        files, schemas = scene.data_files(self.table_id), scene.schema_files(self.table_id)
        names = {
            "file": scene.relative(files[-1]),
            "schema": scene.relative(schemas[-1]),
            "early": scene.relative(files[len(files) > 1]),
        }
        version = int(schemas[-1].name.split("_")[1])
        return f"table {self.table_id}{self.message.format(**names, version=version)}"


@dataclass(frozen=True)
class Story:
    """What four runs did: with everything in order, with the damage, again with later changes, and after the repair."""

    sentences: dict[str, str]
    damaged: Run
    again: Run
    repaired: Run
    checkpoints: dict[TableId, tuple[int, int, int, int]]
    stopped: tuple[set[TableId], ...]
    differing: tuple[list[str], ...]


def tell(scene: Scene, damages: Iterable[Damage]) -> Story:
    """Runs through a story; its last run, after the repair, takes over tables with rows as ``--adopt`` does."""
    damages = tuple(damages)
    tables = [HEALTHY, *(d.table_id for d in damages)]
    scene.create(HEALTHY, *(d.table_id for d in damages if not d.late))
    scene.publish()
    early = [d.table_id for d in damages if d.early]
    scene.change(*early)
    scene.writer.flush()
    assert scene.run().code == 0
    states = [scene.ledger()]
    for damage in damages:
        if damage.alters:
            scene.upstream.add_column(damage.table_id, NOTE)
    scene.create(*(d.table_id for d in damages if d.late))
    scene.change(*tables)
    scene.publish()
    sentences = {d.table: d.sentence(scene) for d in damages}
    repairs = [d.inflict(scene, d.table_id) for d in damages]
    runs, stopped, differing = [], [], []
    for step in range(3):
        if step:
            scene.change(*tables)
            scene.publish()
        if step == 2:
            for repair in repairs:
                repair()
        runs.append(scene.run(adopt=step == 2))
        states.append(scene.ledger())
        stopped.append(scene.stopped())
        differing.append(scene.differing())
    checkpoints = {t: tuple(s.table_checkpoint(t) for s in states) for t in tables}
    return Story(sentences, *runs, checkpoints, tuple(stopped), tuple(differing))  # type: ignore[arg-type]


def assert_kept_its_place(story: Story, damage: Damage) -> None:
    """The sentence names what is wrong where; the table waits at its checkpoint, and goes on from there."""
    for run in (story.damaged, story.again):
        assert run.error_of(damage.table_id).startswith(story.sentences[damage.table])
    before, damaged, again, repaired = story.checkpoints[damage.table_id]
    assert damaged == again < repaired
    # Before a schema change that cannot be read a table has all rows.
    assert damage.late or (before < damaged if damage.of_change else before == damaged)
    assert f"table {damage.table_id} goes on" in story.repaired.out
    assert [damage.table_id in stopped for stopped in story.stopped] == [True, True, False]
    assert [str(damage.table_id) in differing for differing in story.differing] == [True, True, False]


def assert_others_went_on(story: Story) -> None:
    assert [run.code for run in (story.damaged, story.again, story.repaired)] == [3, 3, 0]
    assert HEALTHY not in set().union(*story.stopped)
    assert not any(str(HEALTHY) in differing for differing in story.differing)
    assert len(set(story.checkpoints[HEALTHY])) == 4
    assert not story.differing[-1]
