"""Runs over a stream in memory, without Spark: what its partitions hold, and what a run makes of it."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

from following import Recorder
from headrace import faults
from headrace.engine.loop import Loop
from headrace.engine.round import EngineRound
from headrace.engine.run_options import RunOptions
from headrace.engine.stage import Stage
from headrace.errors import FencedError, SourceNotReadyError, SourceUnreachableError, TransientError
from headrace.model.cut import Cut, CutRound
from headrace.model.ledger import Decision, LedgerState, RequestKind, TableProgress, TableRequest, Verdict
from headrace.model.outcome import Notice
from headrace.model.policy import ChangeKind
from headrace.model.stream import Range, StageReport
from headrace.model.table import Column, TableId, TableSchema
from headrace.model.types import ColumnType, TypeKind
from headrace.places.work_place import WorkLease
from headrace.sinks.base import ChangeDemand, Round, WriterContext
from headrace.sinks.cut_commit import CutCommit
from headrace.sources.stream import source
from headrace.testing.engine import LocalEngine
from headrace.testing.faults import Crashed
from headrace.testing.memory_server import Server, Table
from headrace.testing.memory_sink import CAPABILITIES, TABLE_COMMIT, MemorySink
from headrace.testing.memory_source import MemorySource, MemoryStream
from headrace.testing.upstream import Delete, Insert, Update, Upstream
from headrace.testing.upstream_ddl import AddColumn, DropColumn

INT = ColumnType(TypeKind.INT)
TEXT = ColumnType(TypeKind.VARCHAR, length=20)
ID = Column("id", INT, nullable=False, primary_key=True)
A, B, C = (TableId("shop", name) for name in "abc")
ALIKE = TableId("shop", "d.e"), TableId("shop.d", "e")
"""Two tables that have one name where it is written without quotes."""
NAME = "stream"
_MAX_CUTS = (0, 0, 1, 400, 2000)
"""In bytes; a record has about 100."""
GROWS = 19
"""The kind of step at which the stream gets another partition."""
_OF_STREAM = frozenset({*range(5, 11), GROWS})
_MOST_PARTITIONS = 6
ALTERS, DROPS_DATABASE = 4, 20
"""The kind of step at which the database goes, with all tables, and comes again."""
RECOVERS = 21
"""The kind of step at which a dropped table comes back with its rows, which no event tells: it has to be loaded anew."""
PARTITIONS = 22
"""The kind of step at which a partition is emptied, or exchanges its rows with a table. Needs ``World.takes_all``."""
TableDemand = Callable[[TableId, TableSchema], ChangeDemand]


@dataclass(frozen=True)
class Folder:
    """A work place in a folder."""

    root: Path

    def write(self, key: str, *parts: bytes | pa.Buffer) -> None:
        path = self.root / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"".join(bytes(part) for part in parts))

    def read(self, key: str) -> pa.Buffer:
        try:
            return pa.py_buffer((self.root / key).read_bytes())
        except FileNotFoundError as error:
            raise TransientError(str(error)) from None

    def keys(self, below: str) -> list[str]:
        return [path.relative_to(self.root).as_posix() for path in (self.root / below).rglob("*") if path.is_file()]

    def remove(self, below: str) -> None:
        shutil.rmtree(self.root / below, ignore_errors=True)

    def count(self) -> int:
        return sum(path.is_file() for path in self.root.rglob("*"))


class Counting:
    """Stages in the driver, and counts how many records that were."""

    def __init__(self) -> None:
        self.records = 0
        self._stage = Stage(LocalEngine(), lambda: None)

    def __call__(self, source: object, ranges: list[Range]) -> list[StageReport]:
        self.records += sum(of.end - of.start for of in ranges)
        return self._stage(source, ranges)  # type: ignore[arg-type]


@dataclass
class World:
    """A stream, what writes it, and a target."""

    root: Path
    partitions: int = 3
    capability: str = "atomic small cuts"
    streams: bool = False
    """Whether the sink takes its rows on the driver."""
    logged: TableDemand | None = None
    """What the sink wants of each table, where that is not the net change."""
    keeps_commit_ts: bool = False
    runs_long: bool = False
    """Whether changes of columns run long in the target."""
    takes_all: bool = False
    """Whether the sink accepts all kinds of schema changes, also those of partitions."""
    marks_tables: bool = False
    """Whether the sink commits each table by itself, with up to where it is applied."""
    stream: MemoryStream = field(init=False)
    upstream: Upstream = field(init=False)
    server: Server = field(default_factory=Server)
    staged: Counting = field(default_factory=Counting)
    notices: list[Notice] = field(default_factory=list)
    """What all runs told, those that were killed among them."""
    _asked: int = 0

    def __post_init__(self) -> None:
        self.stream = self.make_stream()
        self.upstream = Upstream(self.stream)
        for database in ("shop", "shop.d"):
            self.upstream.create_database(database)

    def make_stream(self) -> MemoryStream:
        """The stream, empty."""
        return MemoryStream(self.partitions)

    @property
    def place(self) -> Folder:
        return Folder(self.root / "work")

    def create(self, table_id: TableId, *, keyless: bool = False, partitions: Mapping[str, int | None] | None = None) -> None:
        self.upstream.create_table(table_id, [Column("id", INT) if keyless else ID, Column("v", TEXT)], partitions=partitions)

    def insert(self, table_id: TableId, *keys: int, **more: object) -> int:
        rows = [{"id": key, "v": f"{key}", **more} for key in keys]
        return self.upstream.execute(*(Insert(table_id, row) for row in rows))

    def run(self, *, once: bool = True, polls: int = 0, **options: object) -> Recorder:
        """One run, to the stream's end; returns what it told."""
        display = Recorder()
        engine = LocalEngine()
        source = MemorySource(self.stream).event_source.staged_by(self.staged, self.place)
        capabilities = replace(CAPABILITIES[self.capability], own_demand=self.logged, keeps_commit_ts=self.keeps_commit_ts)
        if self.takes_all:
            capabilities = replace(capabilities, supported_schema_changes=frozenset(ChangeKind))
        sink = MemorySink(self.server, capabilities, streams=self.streams, marks_tables=self.marks_tables, runs_long=self.runs_long)

        def make_round(
            cut: Cut, cut_round: CutRound, context: WriterContext, commit: CutCommit | None, progress: dict[TableId, TableProgress]
        ) -> Round:
            return EngineRound(engine, source, sink.capabilities, cut, cut_round, context, WorkLease(), progress, commit)

        with sink:
            assert sink.ledger is not None
            loop = Loop(
                NAME,
                source=source,
                source_identity="memory://stream",
                sink=sink,
                ledger=sink.ledger,
                make_round=make_round,  # type: ignore[arg-type]
                observer=display,
                options=RunOptions(once=once, **options),  # type: ignore[arg-type]
            )
            try:
                loop.run()
            finally:
                self.notices += display.notices
        return display

    def ask(self, *requests: TableRequest) -> None:
        """As ``headrace table`` does."""
        with MemorySink(self.server, CAPABILITIES[self.capability]) as sink:
            assert sink.ledger is not None
            for request in requests:
                sink.ledger.request(NAME, request)

    @property
    def state(self) -> LedgerState:
        return self.server.contents.ledgers[NAME]

    def request(self, kind: RequestKind, table_id: TableId, to: int = 0) -> None:
        """A person asks something of a table, as ``headrace table`` does."""
        ledger = MemorySink(self.server, CAPABILITIES[self.capability]).ledger
        assert ledger is not None
        self._asked += 1
        since = self.state.table_checkpoint(table_id)
        ledger.request(NAME, TableRequest(f"{self._asked:04}", table_id, kind, to=to, since=since))

    def decide(self, identity: str, verdict: Verdict) -> None:
        """A person decides about a schema change, as ``headrace ddl`` does."""
        ledger = MemorySink(self.server, CAPABILITIES[self.capability]).ledger
        assert ledger is not None
        ledger.decide(NAME, Decision(identity, verdict))

    def skip(self) -> None:
        """A person skips every schema change that waits, as ``headrace ddl skip`` does."""
        ledger = MemorySink(self.server, CAPABILITIES[self.capability]).ledger
        assert ledger is not None
        for entry in self.state.journal.values():
            if not entry.state.is_settled:
                ledger.decide(NAME, Decision(entry.identity, Verdict.SKIP))

    def load(self, table_id: TableId) -> None:
        """A person fills the target's table with what the upstream has now."""
        schema = self.upstream.schema(table_id)
        contents = self.server.contents.copy()
        found = {tuple(row[name] for name in schema.handle_key): dict(row) for row in self.upstream.expected_rows(table_id)}
        contents.tables[table_id] = Table({column.name: column for column in schema.columns}, found)
        self.server.contents = contents

    def rows(self, table_id: TableId) -> Counter[tuple[tuple[str, object], ...]]:
        """The target's rows of a table."""
        return Counter(tuple(sorted(row.items())) for row in self.server.contents.tables[table_id].rows.values())

    def wanted(self, table_id: TableId) -> Counter[tuple[tuple[str, object], ...]]:
        """The upstream's rows of a table."""
        return Counter(tuple(sorted(row.items())) for row in self.upstream.expected_rows(table_id))

    def check(self) -> None:
        """The target holds what the upstream does."""
        assert set(self.server.contents.tables) == set(self.upstream.tables)
        for table_id in self.upstream.tables:
            assert self.rows(table_id) == self.wanted(table_id), table_id

    def check_logs(self, *tables: TableId) -> None:
        """The changes in the logs of tables are in the order of their commit ts, and add up to the upstream's rows."""
        for table_id in tables:
            changes = self.server.contents.logs[table_id].changes
            times = [change.commit_ts for change in changes]
            assert times == sorted(times), table_id
            rows: Counter[tuple[tuple[str, object], ...]] = Counter()
            for change in changes:
                rows[tuple(sorted(change.row))] += 1 if change.kind.is_upsert else -1
            assert +rows == self.wanted(table_id), table_id
            assert -rows == Counter(), table_id


class Actions:
    """A random history."""

    def __init__(self, world: World, chance: Random) -> None:
        self._world, self._chance = world, chance
        self._next = 0
        self._since = 0
        self._names = chance.choice([(A, B, C), (A, B, C), (A, *ALIKE)])
        world.stream.batch = chance.choice([1, 3, 100])
        world.stream.skips = chance.choice([None, None, chance])

    def new_lives(self) -> None:
        """Tables begin, end, are emptied and change names, and get rows; all of that arrives."""
        for _ in range(self._chance.randrange(1, 6)):
            self.step([*range(4), DROPS_DATABASE])
            if self._chance.random() < 0.5:
                self.step([11])
        self._world.stream.go_on()
        self._world.upstream.checkpoint()

    def step(self, kinds: Sequence[int] = range(DROPS_DATABASE + 1)) -> None:
        """Something happens upstream, or on the way."""
        upstream, chance = self._world.upstream, self._chance
        tables = upstream.tables
        absent = [t for t in self._names if t not in tables]
        kind = chance.choice(kinds)
        if not tables or (kind == 0 and absent):
            self._create(chance.choice(absent))
        elif kind == 1:
            upstream.drop_table(chance.choice(tables))
        elif kind == 2:
            upstream.truncate_table(chance.choice(tables))
        elif kind == 3 and absent:
            self._rename(chance.sample(list(tables), len(tables)), chance.choice(absent))
        elif kind == ALTERS:
            self._alter(chance.choice(tables))
        elif kind in _OF_STREAM:
            self._on_the_way(kind)
        elif kind == DROPS_DATABASE:
            upstream.drop_database("shop")
            upstream.create_database("shop")
        elif kind == RECOVERS:
            self._recover(absent)
        elif kind == PARTITIONS:
            self._partition()
        else:
            self._write(chance.sample(list(tables), chance.randrange(1, len(tables) + 1)))

    def _create(self, table_id: TableId) -> None:
        if self._world.takes_all and self._chance.random() < 0.5:
            self._world.create(table_id, partitions={"p0": 3, "p1": None})
        else:
            self._world.create(table_id, keyless=self._chance.random() < 0.2)

    def _partition(self) -> None:
        """A partition is emptied, or exchanges its rows with a table. Nothing happens if no table has partitions."""
        upstream, chance = self._world.upstream, self._chance
        parted = [t for t in upstream.tables if upstream.table(t).partitions]
        if not parted:
            return
        table_id, name = chance.choice(parted), chance.choice(["p0", "p1", "p1", "p1"])
        others = [t for t in upstream.tables if upstream.schema(t).handle_key and t != table_id]
        if others and chance.random() < 0.8:
            with suppress(ValueError):  # the other table is not like the partition
                upstream.exchange_partition(table_id, name, chance.choice(others))
        else:
            upstream.truncate_partition(table_id, name)

    def _on_the_way(self, kind: int) -> None:
        """The writer restarts, partitions get nothing or get it after all, a watermark comes, or another partition."""
        stream, chance = self._world.stream, self._chance
        if kind == 5:
            most = chance.choice([None, None, chance.randrange(40)])
            stream.repeat(chance.choice([self._since, 0]), is_told=chance.random() < 0.7, most=most)
        elif kind == 6:
            chance.choice([stream.stall, stream.silence])(chance.randrange(self._world.partitions))
        elif kind == 7:
            stream.go_on()
        elif kind == GROWS:
            self._grow()
        else:
            self._since = self._world.upstream.checkpoint()

    def _grow(self) -> None:
        """Another partition, as of a new topic. Sometimes the watermarks of the others count for it, and it has none of its own."""
        stream, chance = self._world.stream, self._chance
        if stream.count < _MOST_PARTITIONS:
            place = stream.add_partition(leans_after=chance.choice([None, 0, 0]))
            if place in stream.leaning and chance.random() < 0.5:
                stream.dry.add(place)

    def _rename(self, tables: list[TableId], free: TableId) -> None:
        if len(tables) > 1 and self._chance.random() < 0.3:
            first, second = tables[:2]
            self._world.upstream.rename_tables((first, free), (second, first), (free, second))
        elif self._chance.random() < 0.2:  # one step is named twice
            self._world.upstream.rename_tables((tables[0], free), (free, tables[0]), (tables[0], free))
        else:
            self._world.upstream.rename_table(tables[0], free)

    def _recover(self, absent: list[TableId]) -> None:
        upstream, chance = self._world.upstream, self._chance
        if upstream.dropped and absent:
            table_id, name = chance.choice(upstream.dropped), chance.choice(absent)
            upstream.recover_table(table_id, None if name == table_id else name)

    def _alter(self, table_id: TableId) -> None:
        names = [c.name for c in self._world.upstream.schema(table_id).columns]
        if "n" in names:
            self._world.upstream.alter(table_id, DropColumn("n"))
        else:
            self._world.upstream.alter(table_id, AddColumn(Column("n", INT, default="7")))

    def _write(self, tables: list[TableId]) -> None:
        upstream, chance = self._world.upstream, self._chance
        statements: list[object] = []
        for table_id in tables:
            names = [c.name for c in upstream.schema(table_id).columns if c.name != "id"]
            schema = upstream.schema(table_id)
            keys = [tuple(row[c.name] for c in schema.columns) for row in upstream.expected_rows(table_id)]  # of the whole row
            keys = upstream.keys(table_id) if schema.handle_key else keys
            for key in chance.sample(keys, min(len(keys), chance.randrange(3))):
                change = {name: 5 if name == "n" else chance.choice("xyz") for name in names}
                statements.append(Delete(table_id, key) if chance.random() < 0.4 else Update(table_id, key, change))
            for _ in range(chance.randrange(1, 4)):
                self._next += 1
                row = {"id": self._next, **{name: 3 if name == "n" else chance.choice("xyz") for name in names}}
                statements.append(Insert(table_id, row))
        upstream.execute(*statements)  # type: ignore[arg-type]


class Behind:
    """Tables stay behind the pipeline, because a person holds them, and are released later. Some are loaded meanwhile."""

    def __init__(self, world: World, chance: Random) -> None:
        self._world, self._chance = world, chance
        self._held: dict[TableId, int] = {}
        """The commit ts (TSO) as of which a held table was loaded; 0 for one that was not."""

    def step(self) -> None:
        """A table is held, or a held one is released."""
        upstream, chance = self._world.upstream, self._chance
        free = [table_id for table_id in upstream.tables if table_id not in self._held]
        if NAME not in self._world.server.contents.ledgers or (self._held and chance.random() < 0.4):
            self._release([*self._held][:1])
        elif free:
            self._hold(chance.choice(free))

    def end(self) -> None:
        """All tables are released."""
        self._release([*self._held])

    def _hold(self, table_id: TableId) -> None:
        world = self._world
        world.request(RequestKind.HOLD, table_id)
        world.run()
        self._held[table_id] = 0
        if world.upstream.schema(table_id).handle_key and world.state.checkpoint and self._chance.random() < 0.3:
            self._held[table_id] = world.upstream.checkpoint()
            world.load(table_id)

    def _release(self, tables: Sequence[TableId]) -> None:
        for table_id in tables:
            loaded = self._held.pop(table_id)
            self._world.request(RequestKind.RESYNC if loaded else RequestKind.RELEASE, table_id, loaded)


@contextmanager
def ranges_of(size: int) -> Iterator[None]:
    """A stream is staged in ranges of about this size (bytes); a record has about 100."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(source, "RANGE_BYTES", size)
        yield


def run_taken_over(world: World, chance: Random, between: Callable[[], object], **options: object) -> None:
    """A run stands still at some step, ``between`` happens, and another run takes over; then the first goes on.

    Mostly it stands right before a table's own commit, which no fence of the ledger reaches. The other run comes to its end, or
    dies at some step: what the first one meets is then what it would meet while the other is there.
    """
    at_commits = chance.random() < 0.8
    left = chance.choice([1, 1, 2]) if at_commits else chance.randrange(1, 30)

    def strike(moment: faults.Moment, step: faults.FaultPoint, detail: str) -> None:
        nonlocal left
        left -= not at_commits or (moment, step) == (faults.Moment.BEFORE, TABLE_COMMIT)
        if left == 0:
            faults.arm(former)
            between()
            if chance.random() < 0.5:
                world.run(**options)
            else:
                run_killed(world, chance, **options)

    former = faults.arm(strike)
    try:
        with suppress(FencedError):
            world.run(**options)
    finally:
        faults.arm(former)


def run_with_kills(world: World, chance: Random, kills: int, **options: object) -> None:
    """Runs to the end, killed so many times at some step before. ``options`` are those of the runs; often cuts are small.

    The run that is not killed takes all that is complete, also where somebody clears its work place.
    """
    options = {"max_cut": chance.choice(_MAX_CUTS), **options}
    known = world.server.contents.ledgers.get(NAME)
    reached = known.checkpoint if known is not None else 0
    for _ in range(kills):
        run_killed(world, chance, **options)
    run_cleared(world, chance, **options)
    assert world.state.checkpoint == max(reached, world.stream.promised)  # a new partition promises nothing yet


def run_cleared(world: World, chance: Random, **options: object) -> None:
    """A run to the end; mostly somebody clears its work place before one of its polls."""
    left = chance.randrange(6)

    def strike(moment: faults.Moment, step: faults.FaultPoint, detail: str) -> None:
        nonlocal left
        left -= (moment, step) == (faults.Moment.BEFORE, faults.Step.POLL)
        if left == 0:
            world.place.remove("")

    former = faults.arm(strike)
    try:
        world.run(**options)
    finally:
        faults.arm(former)


def run_killed(world: World, chance: Random, **options: object) -> None:
    """A run that is killed at some step, if it gets so far. The stream may not name one of its partitions at some polls of it."""
    left = chance.randrange(1, 40)
    hidden, hides = chance.randrange(world.partitions), chance.random() < 0.4
    known = world.server.contents.ledgers.get(NAME)
    hides &= known is not None and bool(known.position)  # what a pipeline has never seen cannot be waited for

    def strike(moment: faults.Moment, step: faults.Step, detail: str) -> None:
        nonlocal left
        left -= 1
        if hides and step is faults.Step.POLL:
            world.stream.hidden ^= {hidden} if chance.random() < 0.4 else set()
        if left <= 0:  # and what the interpreter still runs on the way out changes nothing durable
            raise Crashed(f"{moment} {step}")

    former = faults.arm(strike)
    try:
        with suppress(Crashed, SourceUnreachableError, SourceNotReadyError):
            world.run(**options)
    finally:
        faults.arm(former)
        world.stream.hidden.clear()


def without(names: str) -> dict[str, object]:
    """The options of a run that leaves these tables out."""
    text = ",".join(["shop.*", *(f"!shop.{name}" for name in names)])
    return {"includes": lambda table_id: table_id.table not in [*names], "filter_text": text if names else ""}


def follow(world: World, **options: object) -> None:
    """All that the upstream has done is promised, and a run takes it."""
    world.upstream.checkpoint()
    world.run(**options)
