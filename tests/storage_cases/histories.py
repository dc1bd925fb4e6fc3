"""Histories of a changefeed's folder as data, and the ways in which a consumer may live through them.

A history is a sequence of steps: files that appear, and checkpoints with the state that a target must then hold. Whatever the
way, the state after every step is the one of the last checkpoint: what is not promised yet is not seen, and what is there is
not taken back.
"""

from __future__ import annotations

import random
import signal
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import repeat
from pathlib import Path

import pytest
from building import Bucket, Row

from crashing import Crashed, CrashPoints, install
from following import Recorder
from headrace.engine import loop
from headrace.engine.run_options import MAX_CUT, RunOptions
from headrace.errors import SourceNotReadyError
from headrace.model.outcome import Notice, Problem
from headrace.model.table import TableId
from headrace.pipeline.definition import Definition
from headrace.pipeline.registry import open_sink
from headrace.pipeline.runner import PipelineRun
from headrace.testing.engine import LocalEngine
from places import Place
from storage_folder import OPTIONS
from targets import Target, sort_rows

TYPES = {"id": "int", "v": "varchar", "c": "int", "uk": "int"}
"""The upstream's types of the columns that states speak of."""

Rows = Mapping[str, Sequence[str]]
"""Rows by table: ``{"t": ["1 a"]}`` for ``id`` and ``v`` of ``test.t``, ``{"shop.t(id,v,c)": ["1 a NULL"]}`` for others."""


@dataclass(frozen=True)
class Expect:
    """What must hold now: the rows, and for each table that has stopped a part of the reason that is given."""

    rows: Rows
    stopped: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Step:
    """One thing that happens to the folder, and what holds from then on where that changes."""

    act: Callable[[Bucket], object]
    expect: Expect | None = None

    def gives(self, rows: Rows, stopped: Mapping[str, str] | None = None) -> Step:
        """The same, and then the target holds these rows, and these tables have stopped."""
        return replace(self, expect=Expect(rows, stopped or {}))


@dataclass(frozen=True)
class History:
    """A history with its name. ``options`` are the query of the source's URI; ``views`` may be in a target or not.

    ``told`` are parts of notices that must be given, in whatever way it is lived through, ``untold`` those that only somebody who
    came late may hear. ``in_one_go`` is what holds at the end
    for a consumer that comes late, where a table stops: it then holds less of it.
    """

    name: str
    steps: tuple[Step, ...]
    options: str = OPTIONS
    views: frozenset[str] = frozenset()
    told: tuple[str, ...] = ()
    untold: tuple[str, ...] = ()
    in_one_go: Expect | None = None

    @property
    def final(self) -> Expect:
        """What must hold when everything was there from the beginning."""
        return self.in_one_go or next(step.expect for step in reversed(self.steps) if step.expect is not None)


def history(
    name: str,
    *steps: Step,
    options: str = OPTIONS,
    views: Collection[str] = (),
    told: Collection[str] = (),
    untold: Collection[str] = (),
    in_one_go: Expect | None = None,
) -> History:
    """A history of these steps."""
    return History(name, steps, options, frozenset(views), tuple(told), tuple(untold), in_one_go)


def schema(table: str, version: int, statement: str = "", shape: str = "id,v", type: int | None = None) -> Step:
    """A schema file of a table in ``test`` or of ``database.table``; ``database.`` makes one of the database."""
    database, _, name = table.rpartition(".")
    return Step(lambda bucket: bucket.schema(name, version, shape, statement, type, database=database or "test"))


def created(table: str, version: int = 100, shape: str = "id,v") -> Step:
    """The schema file of a CREATE TABLE."""
    database, _, name = table.rpartition(".")
    return Step(lambda bucket: bucket.create(name, version, shape, database=database or "test"))


def data(place: str, *rows: Row) -> Step:
    """A data file ``t/100/1``, ``p/100/112/1``, ``tgt.t/100/1`` or ``t/100/CDC_77_000001.csv`` with rows such as ``I 110 1 a``."""
    table, _, rest = place.partition("/")
    database, _, table = table.rpartition(".")
    return Step(lambda bucket: bucket.rows(f"{table}/{rest}", *rows, database=database or "test"))


def raw(path: str, content: str | bytes) -> Step:
    """A file with this content, written anew if it is there."""
    return Step(lambda bucket: bucket.write(path, content))


def removed(path: str) -> Step:
    """A file disappears, as lifecycle rules and TiCDC's clean-up make it."""
    return Step(lambda bucket: (bucket.root / path).unlink())


def checkpoint(ts: int, rows: Rows, stopped: Mapping[str, str] | None = None) -> Step:
    """``metadata`` says this, and then the target holds these rows."""
    return Step(lambda bucket: bucket.checkpoint(ts)).gives(rows, stopped)


class Witness(Recorder):
    """A display that keeps what it is told, why tables stop included."""

    def __init__(self) -> None:
        super().__init__()
        self.notices: list[str] = []

    def notice(self, notice: Notice) -> None:
        self.notices.append(notice.sentence())

    def table_stopped(self, problem: Problem) -> None:
        self.notices.append(problem.sentence())

    def table_resumed(self, table_id: TableId) -> None: ...

    def trying_again(self, reason: str, seconds: float) -> None: ...


class _Actor(Witness):
    """A display through which a history goes on whenever the run has taken in all there is."""

    def __init__(self, go_on: Callable[[], bool]) -> None:
        super().__init__()
        self._go_on = go_on
        self.run: PipelineRun | None = None

    def caught_up(self, checkpoint: int) -> None:
        self._turn()

    def trying_again(self, reason: str, seconds: float) -> None:
        self._turn()

    def _turn(self) -> None:
        assert self.run is not None
        assert self.run._loop is not None
        self.run._loop._retries = replace(
            self.run._loop._retries, tried_at=float("-inf")
        )  # stopped tables are tried again now, not after half a minute
        if not self._go_on():
            self.run._interrupt(signal.SIGINT, None)


@dataclass
class Stage:
    """Where histories are lived through: empty targets of one kind, and a folder for the changefeeds' output."""

    place: Place
    folder: Path
    lives: int = 0
    max_cut: int = MAX_CUT

    def life(self, history: History) -> Life:
        """The history from its beginning, with an empty target."""
        self.lives += 1
        return Life(history, Bucket(self.folder / f"life-{self.lives}", history.options), *self.place.fresh(), max_cut=self.max_cut)


@dataclass
class Life:
    """One way through a history, with a target of its own. The checks are made after every step.

    With a ``max_cut`` a table that stops has taken what lies in the parts before, so its rows are not looked at.
    """

    history: History
    bucket: Bucket
    target: Target
    sink: str
    expected: Expect = field(default_factory=lambda: Expect({}))
    told: list[str] = field(default_factory=list)
    max_cut: int = MAX_CUT

    def in_one_go(self) -> None:
        """All files are there when the consumer comes."""
        for step in self.history.steps:
            step.act(self.bucket)
        self.expected = self.history.final
        self.catch_up()
        self.check()
        self.check_told()

    def in_one_go_after_a_crash(self, chance: random.Random, patch: pytest.MonkeyPatch) -> None:
        """All files are there when the consumer comes, and it dies before some durable step; another one goes on."""
        for step in self.history.steps:
            step.act(self.bucket)
        self.expected = self.history.final
        points = CrashPoints(chance.randint(1, 30))
        with patch.context() as crashing, suppress(Crashed):
            install(points, crashing)
            self.catch_up()
        self.catch_up()
        self.check(f"after a crash before step {points.fatal} of {points.passed}")
        self.check_told()

    def in_steps(self, patch: pytest.MonkeyPatch) -> None:
        """A consumer that keeps running polls after every single step."""
        steps = iter(self.history.steps)
        begun = False

        def go_on() -> bool:
            nonlocal begun
            if begun:
                self.check()
            begun = True
            return self._take_next(steps) is not None

        patch.setattr(loop, "_FIRST_PAUSE", 0.0)
        patch.setattr(loop, "_LOOK_PAUSE", 0.0)
        actor = _Actor(go_on)
        actor.run = self._run(actor, RunOptions(poll_interval=0.0))
        actor.run.run()
        self.told += actor.notices
        self.check_told()

    def with_restarts(self) -> None:
        """A new consumer after every single step."""
        steps = iter(self.history.steps)
        while self._take_next(steps) is not None:
            self.catch_up()
            self.check()
        self.check_told()

    def with_crashes(self, fatal: Iterable[int], patch: pytest.MonkeyPatch) -> list[int]:
        """At each checkpoint the consumer dies before its durable step of the next number of ``fatal``, and is started again.

        It dies before none where the number is 0 or there are fewer. Returns how many steps it took at each checkpoint.
        """
        steps = iter(self.history.steps)
        numbers = iter(fatal)
        passed = []
        while (step := self._take_next(steps)) is not None:
            if step.expect is None:
                continue
            points = CrashPoints(next(numbers))
            with patch.context() as crashing, suppress(Crashed):
                install(points, crashing)
                self.catch_up()
            passed.append(len(points.passed))
            if len(points.passed) == points.fatal:
                self.catch_up()
                self.check(f"after a crash before step {points.fatal}, {points.passed[-1]}")
        return passed

    def catch_up(self) -> int:
        """A consumer of its own to the watermark; exit code 0 when there is none yet."""
        witness = Witness()
        try:
            return self._run(witness, RunOptions(once=True)).run()
        except SourceNotReadyError:
            return 0
        finally:
            self.told += witness.notices

    def _run(self, display: Witness, options: RunOptions) -> PipelineRun:
        uri = self.bucket.folder.uri(self.bucket.options)
        options = replace(options, max_cut=self.max_cut)
        return PipelineRun(Definition(source=uri, sink=self.sink, options=options), display, LocalEngine())  # type: ignore[arg-type]

    def _take_next(self, steps: Iterator[Step]) -> Step | None:
        """Takes the next step; ``None`` when there is none left."""
        step = next(steps, None)
        if step is not None:
            step.act(self.bucket)
            self.expected = step.expect or self.expected
        return step

    def check(self, when: str = "") -> None:
        """Fails unless the target holds what is expected, and just those tables have stopped that should."""
        found = {name: rows for name, rows in self._found().items() if name not in self.history.views}
        wanted = {_table(name): _sorted(rows) for name, rows in self.expected.rows.items()}
        stopped = self._stopped()
        if self.max_cut != MAX_CUT:
            found, wanted = ({name: rows for name, rows in there.items() if name not in stopped} for there in (found, wanted))
        assert found == wanted, f"{self.history.name} in {self.target} {when}: {found}, not {wanted}"
        assert set(stopped) == {_table(name) for name in self.expected.stopped}, f"{self.history.name}: stopped {stopped} {when}"
        for name, part in self.expected.stopped.items():
            assert part in stopped[_table(name)], f"{self.history.name}: {stopped[_table(name)]}"

    def check_told(self) -> None:
        """Fails unless notices were given that should be, and none that should not."""
        for part in self.history.told:
            assert any(part in sentence for sentence in self.told), f"{part!r} is not in {self.told}"
        if self.expected is not self.history.in_one_go:
            for part in self.history.untold:
                assert not any(part in sentence for sentence in self.told), f"{part!r} is in {self.told}"

    def _found(self) -> dict[str, list[tuple[str | None, ...]]]:
        columns = {_table(name): _columns(name) for name in self.expected.rows}
        found = {}
        for database, name in self.target.tables():
            table = f"{database}.{name}"
            there = self.target.columns(database, name)
            shape = columns.get(table, sorted(there))
            assert there == set(shape), f"{self.history.name}: the columns of {table}"
            rows = self.target.rows(database, name, {column: TYPES[column] for column in shape})
            found[table] = sort_rows(rows)
        return found

    def _stopped(self) -> dict[str, str]:
        with open_sink(self.sink) as sink:
            assert sink.ledger is not None
            state = sink.ledger.peek("default")
        tables = state.tables.items() if state is not None else ()
        return {str(table_id): own.reason for table_id, own in tables if own.status.is_stopped}


def _table(name: str) -> str:
    """``test.t`` of ``t``, ``t(id,v,c)``, and ``test.t``."""
    bare = name.partition("(")[0]
    return bare if "." in bare else f"test.{bare}"


def _columns(name: str) -> list[str]:
    shape = name.partition("(")[2].rstrip(")")
    return shape.split(",") if shape else ["id", "v"]


def _sorted(rows: Sequence[str]) -> list[tuple[str | None, ...]]:
    return sort_rows(tuple(None if value == "NULL" else value for value in row.split(" ")) for row in rows)


def live_through(history: History, way: str, stage: Stage, request: pytest.FixtureRequest, *, many_crashes: bool = False) -> None:
    """The history in one of :data:`WAYS`.

    With crashes, the consumer dies at each checkpoint before a step that is drawn; with ``many_crashes`` and a DuckDB file as
    target, in one life after the other, before other steps. Before each one there is in ``tests/test_fault_model.py``.
    """
    patch: pytest.MonkeyPatch = request.getfixturevalue("monkeypatch")
    if way == "one go":
        stage.life(history).in_one_go()
    elif way == "steps":
        stage.life(history).in_steps(patch)
    elif way == "restarts":
        stage.life(history).with_restarts()
    else:
        if stage.place.mariadb is not None:
            request.getfixturevalue("many_transactions")
        counts = stage.life(history).with_crashes(repeat(0), patch)
        if many_crashes and stage.place.mariadb is None:
            for number in sorted(random.Random(history.name).sample(range(1, max(counts) + 1), min(LIVES, max(counts)))):
                stage.life(history).with_crashes(repeat(number), patch)
        else:
            chance = random.Random(history.name)
            stage.life(history).with_crashes([chance.randint(1, count) for count in counts], patch)


WAYS = ("one go", "steps", "restarts", "crashes")
LIVES = 3
