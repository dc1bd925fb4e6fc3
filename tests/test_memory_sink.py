"""The sink in memory in its other ways: rows that the driver takes, and tables of which it wants every change."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from io import StringIO
from pathlib import Path
from random import Random
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.cli.output import JsonOutput
from headrace.cli.reset import reset_pipeline
from headrace.engine import loop
from headrace.errors import FencedError
from headrace.faults import FaultPoint
from headrace.model.events import RowKind
from headrace.model.ledger import RequestKind, TableRequest
from headrace.model.policy import OnError
from headrace.model.table import Column, TableId, TableSchema
from headrace.model.tso import MAX_TSO
from headrace.sinks.base import ChangeDemand, SinkCapabilities
from headrace.sinks.dead_letters import open_dead_letters
from headrace.sinks.table_marks import TableMark
from headrace.sources.stream.records import RecordKind
from headrace.testing.faults import Crashed, Moment, Passage, Step, armed, crash_at
from headrace.testing.memory_server import Call, Failing, Failure
from headrace.testing.memory_sink import CAPABILITIES, TABLE_COMMIT, TABLE_MARK, MemoryLedger, MemorySink
from headrace.testing.memory_source import MemoryRecord
from headrace.testing.upstream import Delete, Insert, Update
from headrace.testing.upstream_ddl import AddColumn, DropColumn
from sampling import drawn
from streams import INT, NAME, A, Actions, B, C, World, run_taken_over, run_with_kills

pytestmark = pytest.mark.pipeline


@pytest.fixture(autouse=True)
def _quick_tries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "_FIRST_PAUSE", 0.0)


def logs_all(table_id: TableId, schema: TableSchema) -> ChangeDemand:
    return ChangeDemand.ALL


def logs_b(table_id: TableId, schema: TableSchema) -> ChangeDemand:
    return ChangeDemand.ALL if table_id == B else ChangeDemand.NET


@settings(max_examples=drawn(30), deadline=None)
@given(seed=st.integers(0, 1 << 30), capability=st.sampled_from(["atomic cuts", "nothing atomic"]))
def test_any_history_is_applied_once_where_the_driver_takes_the_rows(
    seed: int, capability: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    chance = Random(seed)
    world = World(tmp_path_factory.mktemp("stream"), capability=capability, streams=True)
    actions = Actions(world, chance)
    for _ in range(chance.randrange(1, 4)):
        for _ in range(chance.randrange(1, 25)):
            actions.step()
        run_with_kills(world, chance, chance.randrange(3))
    world.stream.go_on()
    world.upstream.checkpoint()
    run_with_kills(world, chance, 1)
    world.check()


def test_of_tables_that_stop_nothing_stays_where_the_driver_takes_the_rows(tmp_path: Path) -> None:
    world = World(tmp_path, capability="nothing atomic", streams=True)
    world.create(A)
    world.create(B)
    world.insert(A, 1)
    world.insert(B, 1)
    places = [(p, n) for p, records in enumerate(world.stream.partitions) for n, r in enumerate(records) if r.table_id == A]
    world.stream.damage(*next((p, n) for p, n in places if world.stream.partitions[p][n].kind == 0))
    world.upstream.checkpoint()
    display = world.run()
    assert [problem.table_id for problem in display.stopped] == [A]
    assert not world.rows(A)
    assert world.rows(B) == world.wanted(B)


def test_a_round_whose_commit_gets_no_answer_is_taken_once_where_the_driver_takes_the_rows(tmp_path: Path) -> None:
    world = World(tmp_path, capability="nothing atomic", streams=True)
    world.create(A, keyless=True)
    world.insert(A, 1, 1)
    world.upstream.checkpoint()
    world.server.failure = Failure(Call.LOAD, Failing.LOST)
    world.run()
    assert world.server.failure.has_struck
    world.check()


@pytest.mark.parametrize(
    ("capability", "streams"),
    [
        ("atomic cuts", False),
        ("atomic cuts", True),
        ("atomic small cuts", False),
        ("nothing atomic", False),
        ("nothing atomic", True),
    ],
)
def test_a_table_of_which_every_change_is_wanted_has_a_log_beside_tables_with_rows(
    capability: str, streams: bool, tmp_path: Path
) -> None:
    world = World(tmp_path, capability=capability, streams=streams, logged=logs_b)
    world.create(A)
    world.create(B)
    first = world.insert(B, 1)
    second = world.upstream.execute(Update(B, (1,), {"v": "x"}), Insert(A, {"id": 1, "v": "a"}))
    third = world.upstream.execute(Delete(B, (1,)))
    world.upstream.checkpoint()
    world.run()
    assert world.rows(A) == world.wanted(A)
    told = [(change.commit_ts, change.kind, dict(change.row)["v"]) for change in world.server.contents.logs[B].changes]
    assert told == [
        (first, RowKind.INSERT, "1"),
        (second, RowKind.UPDATE_BEFORE, "1"),
        (second, RowKind.UPDATE_AFTER, "x"),
        (third, RowKind.DELETE, "x"),
    ]
    assert not world.server.contents.tables[B].rows


@pytest.mark.parametrize("demand", [ChangeDemand.NET, ChangeDemand.ALL])
def test_a_sink_that_takes_no_bags_gets_the_log_of_a_table_without_key_and_no_other(
    demand: ChangeDemand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever it wants of tables of which it says nothing."""
    monkeypatch.setitem(CAPABILITIES, "no bags", SinkCapabilities(demand))
    world = World(tmp_path, capability="no bags", logged=logs_b)
    for table_id in (A, B):
        world.create(table_id, keyless=True)
        world.insert(table_id, 1, 1)
    world.upstream.checkpoint()
    assert [problem.table_id for problem in world.run().stopped] == [A]
    assert A not in world.server.contents.tables
    assert [change.kind for change in world.server.contents.logs[B].changes] == [RowKind.INSERT] * 2


@settings(max_examples=drawn(30), deadline=None)
@given(seed=st.integers(0, 1 << 30), capability=st.sampled_from(["atomic cuts", "atomic small cuts", "nothing atomic"]))
def test_every_change_is_in_the_log_once_whatever_kills_the_runs(
    seed: int, capability: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """What was changed, read from the log: it adds up to the upstream's rows, and each commit ts stands behind the one before."""
    chance = Random(seed)
    streams = capability != "atomic small cuts" and chance.random() < 0.5
    world = World(tmp_path_factory.mktemp("log"), capability=capability, streams=streams, logged=logs_all)
    world.create(A)
    world.create(B, keyless=True)
    next_key = 0
    for _ in range(chance.randrange(1, 4)):
        for _ in range(chance.randrange(1, 12)):
            next_key += 1
            world.upstream.execute(*[Insert(t, {"id": key, "v": "v"}) for t, key in ((A, next_key), (B, 7), (B, 7))])
            if chance.random() < 0.4:
                world.upstream.execute(Delete(A, (chance.choice(world.upstream.keys(A))[0],)), Delete(B, (7, "v")))
            if chance.random() < 0.3:
                world.upstream.checkpoint()
        world.upstream.checkpoint()
        run_with_kills(world, chance, chance.randrange(3))
    world.check_logs(A, B)


@settings(max_examples=drawn(30), deadline=None)
@given(seed=st.integers(0, 1 << 30), capability=st.sampled_from(["atomic cuts", "atomic small cuts", "nothing atomic"]))
def test_each_key_has_the_commit_ts_of_its_last_change_whatever_kills_the_runs(
    seed: int, capability: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Also a key that was deleted. Of rows without key each has a commit ts at which an equal row came."""
    chance = Random(seed)
    streams = capability != "atomic small cuts" and chance.random() < 0.5
    world = World(tmp_path_factory.mktemp("versions"), capability=capability, streams=streams, keeps_commit_ts=True)
    world.create(A)
    world.create(B, keyless=True)
    last: dict[tuple[object, ...], int] = {}
    came: set[int] = set()
    since = 0
    for _ in range(chance.randrange(1, 4)):
        for _ in range(chance.randrange(1, 12)):
            key = (chance.randrange(8),)
            if key not in world.upstream.keys(A):
                last[key] = world.insert(A, *key)
            elif chance.random() < 0.4:
                last[key] = world.upstream.execute(Delete(A, key))
            else:
                last[key] = world.upstream.execute(Update(A, key, {"v": f"u{len(came)}"}))
            came.add(world.insert(B, 7))
            if chance.random() < 0.2:
                world.stream.repeat(since)
            if chance.random() < 0.3:
                since = world.upstream.checkpoint()
        world.upstream.checkpoint()
        run_with_kills(world, chance, chance.randrange(3))
    world.check()
    tables = world.server.contents.tables
    assert tables[A].commit_ts == last
    assert tables[B].commit_ts.keys() == tables[B].rows.keys()
    assert set(tables[B].commit_ts.values()) <= came


@pytest.mark.parametrize("streams", [False, True], ids=["tasks", "driver"])
@pytest.mark.parametrize("moment", list(Moment))
def test_a_table_that_was_committed_before_the_run_died_is_not_written_again(moment: Moment, streams: bool, tmp_path: Path) -> None:
    world = World(tmp_path, capability="nothing atomic", streams=streams, marks_tables=True, logged=logs_b)
    world.create(A, keyless=True)
    world.create(B)
    world.insert(A, 1, 1)
    world.upstream.checkpoint()
    world.run()
    world.insert(A, 1, 2)
    commits = [world.insert(B, 5), world.insert(B, 6)]
    world.upstream.checkpoint()
    with armed(crash_at(moment, TABLE_COMMIT, skip=1)), pytest.raises(Crashed):
        world.run()
    world.run()
    assert world.rows(A) == world.wanted(A)
    assert [change.commit_ts for change in world.server.contents.logs[B].changes] == commits


@pytest.mark.parametrize("then", ["nothing", "database", "table"])
@pytest.mark.parametrize("known", [False, True], ids=["new tables", "known tables"])
@pytest.mark.parametrize(
    "at", [(Moment.AFTER, TABLE_COMMIT), (Moment.BEFORE, Step.JOURNAL_PENDING), (Moment.AFTER, Step.SCHEMA_CHANGE)]
)
def test_a_run_that_dies_between_rows_and_the_drop_of_their_database_drops_it_the_next_time(
    at: tuple[Moment, FaultPoint], known: bool, then: str, tmp_path: Path
) -> None:
    """What its tables say ends at the DROP: else that would come late."""
    world = World(tmp_path, partitions=1, capability="nothing atomic", marks_tables=True)
    world.create(A, keyless=True)
    world.create(B)
    if known:
        world.upstream.checkpoint()
        world.run()
    world.insert(A, 1)
    world.insert(B, 1)
    world.upstream.drop_database("shop")
    if then != "nothing":
        world.upstream.create_database("shop")
    if then == "table":
        world.create(A, keyless=True)
        world.insert(A, 2)
    world.upstream.checkpoint()
    has_rows = False

    def die_behind_rows(passage: Passage) -> None:
        nonlocal has_rows
        has_rows |= (passage.moment, passage.step) == (Moment.AFTER, TABLE_COMMIT)
        if has_rows and (passage.moment, passage.step) == at:
            raise Crashed

    with armed(die_behind_rows), pytest.raises(Crashed):
        world.run()
    told = world.run()
    assert not told.stopped
    world.check()


@settings(max_examples=drawn(60), deadline=None)
@given(seed=st.integers(0, 1 << 30))
def test_any_history_is_applied_once_where_tables_say_themselves_how_far_they_are(
    seed: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    chance = Random(seed)
    folder = tmp_path_factory.mktemp("marks")
    world = World(folder, capability="nothing atomic", streams=chance.random() < 0.5, marks_tables=True)
    actions = Actions(world, chance)
    for _ in range(chance.randrange(1, 5)):
        for _ in range(chance.randrange(1, 25)):
            actions.step()
        run_with_kills(world, chance, chance.randrange(3))
    world.stream.go_on()
    world.upstream.checkpoint()
    run_with_kills(world, chance, 1)
    world.check()


@settings(max_examples=drawn(60), deadline=None)
@given(seed=st.integers(0, 1 << 30))
def test_runs_that_were_taken_over_and_go_on_change_nothing_where_tables_say_themselves_how_far_they_are(
    seed: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """No fence of the ledger reaches a table's commit: what the table says has to keep such a run out, in each of its lives."""
    chance = Random(seed)
    world = World(tmp_path_factory.mktemp("marks"), capability="nothing atomic", streams=chance.random() < 0.5, marks_tables=True)
    actions = Actions(world, chance)
    for _ in range(chance.randrange(1, 4)):
        for _ in range(chance.randrange(1, 10)):
            actions.step()
        actions.new_lives()
        run_taken_over(world, chance, actions.new_lives)
        run_with_kills(world, chance, chance.randrange(2))
    world.stream.go_on()
    world.upstream.checkpoint()
    world.run()
    world.check()


@settings(max_examples=drawn(40), deadline=None)
@given(seed=st.integers(0, 1 << 30))
def test_every_change_is_in_a_log_that_takes_what_comes_once_where_tables_say_themselves_how_far_they_are(
    seed: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The schema changes between the rows make rounds, each of which is a commit of its own."""
    chance = Random(seed)
    folder = tmp_path_factory.mktemp("marks")
    world = World(folder, capability="nothing atomic", streams=chance.random() < 0.5, marks_tables=True, logged=logs_all)
    world.create(A)
    world.create(B, keyless=True)
    wanted: dict[TableId, list[int]] = {A: [], B: []}
    for _ in range(chance.randrange(1, 4)):
        for _ in range(chance.randrange(1, 12)):
            if chance.random() < 0.2:
                columns = [column.name for column in world.upstream.schema(A).columns]
                world.upstream.alter(A, DropColumn("n") if "n" in columns else AddColumn(Column("n", INT, default="7")))
            wanted[A].append(world.upstream.execute(Insert(A, {"id": len(wanted[A]), "v": "v"})))
            wanted[B] += [world.insert(B, 7, 7)] * 2
            if chance.random() < 0.3:
                world.upstream.checkpoint()
        world.upstream.checkpoint()
        run_with_kills(world, chance, chance.randrange(3))
    told = {t: [change.commit_ts for change in log.changes] for t, log in world.server.contents.logs.items()}
    assert told == wanted


def test_a_table_that_goes_back_does_not_say_any_more_that_it_was_further(tmp_path: Path) -> None:
    """A person loads it as of an earlier time: what came after that is applied once more."""
    world = World(tmp_path, partitions=1, capability="nothing atomic", marks_tables=True)
    world.create(A)
    world.create(B)
    world.insert(B, 1)
    (records,) = world.stream.partitions
    damaged = next(n for n, record in enumerate(records) if record.table_id == B and record.kind is RecordKind.ROWS)
    good = records[damaged]
    world.stream.damage(0, damaged)  # B stops, so that the source keeps what comes after this
    world.insert(A, 1)
    loaded = world.upstream.checkpoint()
    world.run()
    put_back = world.server.saved_table(A)
    world.insert(A, 2)
    world.upstream.checkpoint()
    world.run()
    assert world.server.contents.tables[A].mark is not None
    put_back()
    MemoryLedger(MemorySink(world.server, CAPABILITIES["nothing atomic"])).request(
        NAME, TableRequest("1", A, RequestKind.RESYNC, to=loaded)
    )

    def die_once_it_went_back(passage: Passage) -> None:
        if (passage.moment, passage.step) == (Moment.AFTER, Step.REQUESTS) and world.state.table_checkpoint(A) == loaded:
            raise Crashed

    with armed(die_once_it_went_back), pytest.raises(Crashed):
        world.run()
    records[damaged] = good
    world.run()
    world.run()
    world.check()


def reset(world: World) -> None:
    """As ``headrace reset`` does."""
    sink = MemorySink(world.server, CAPABILITIES["nothing atomic"], marks_tables=True)
    settings = SimpleNamespace(name=NAME, target=SimpleNamespace(assembled=lambda: SimpleNamespace(opened=opened, sink=sink)))

    @contextmanager
    def opened() -> Iterator[MemoryLedger | None]:
        yield sink.ledger

    reset_pipeline(settings, None, JsonOutput(StringIO(), StringIO()))  # type: ignore[arg-type]


def put_rows(world: World, table_id: TableId, *rows: dict[str, object]) -> None:
    """A person empties the target's table and loads these rows: the table stays, with what it says of itself."""
    contents = world.server.contents.copy()
    contents.tables[table_id].rows = {(row["id"],): row for row in rows}
    world.server.contents = contents


def taken_over_before_it_commits(world: World, meanwhile: Callable[[], object]) -> None:
    """A run that stands still before it commits a table, until ``meanwhile`` is over, and then commits it if the table lets it."""
    is_waiting = True

    def stand_still(passage: Passage) -> None:
        nonlocal is_waiting
        if is_waiting and (passage.moment, passage.step) == (Moment.BEFORE, TABLE_COMMIT):
            is_waiting = False
            meanwhile()

    with armed(stand_still), pytest.raises(FencedError):
        world.run()


def take_the_name(world: World, keyless: bool) -> None:
    world.upstream.drop_table(A)
    world.upstream.rename_table(B, A)


def swap(world: World, keyless: bool) -> None:
    world.upstream.rename_tables((A, C), (B, A), (C, B))


def make_anew(world: World, keyless: bool) -> None:
    world.upstream.drop_table(A)
    world.create(A, keyless=keyless)


def make_anew_with_rows(world: World, keyless: bool) -> None:
    make_anew(world, keyless)
    world.insert(A, 7)


LIVES = (take_the_name, swap, make_anew, make_anew_with_rows)
WINDOWS: tuple[tuple[Moment, FaultPoint] | None, ...] = (
    None,
    (Moment.AFTER, Step.SCHEMA_CHANGE),
    (Moment.AFTER, TABLE_MARK),
)


@pytest.mark.parametrize("skip", [0, 1], ids=["first change", "second change"])
@pytest.mark.parametrize("dies_at", WINDOWS, ids=str)
@pytest.mark.parametrize("keyless", [False, True], ids=["key", "keyless"])
@pytest.mark.parametrize("new_life", LIVES)
def test_a_run_that_was_taken_over_commits_nothing_to_the_table_that_has_the_name_now(
    new_life: Callable[[World, bool], None], keyless: bool, dies_at: tuple[Moment, FaultPoint] | None, skip: int, tmp_path: Path
) -> None:
    """Also where the run that took over is in the middle of its schema changes by then. Both tables came to their names at once."""
    world = World(tmp_path, capability="nothing atomic", marks_tables=True)
    world.create(A, keyless=keyless)
    world.create(B, keyless=keyless)
    world.insert(A, 1)
    world.insert(B, 1)
    swap(world, keyless)
    world.upstream.checkpoint()
    world.run()
    world.insert(A, 2, 7)
    world.upstream.checkpoint()

    def take_over() -> None:
        new_life(world, keyless)
        world.upstream.checkpoint()
        with armed(*([crash_at(*dies_at, skip=skip)] if dies_at else [])), suppress(Crashed):
            world.run()

    taken_over_before_it_commits(world, take_over)
    world.run()
    world.check()
    world.insert(A, 9)
    world.upstream.checkpoint()
    world.run()
    world.check()


def test_a_pipeline_that_is_reset_finds_no_mark_in_its_tables(tmp_path: Path) -> None:
    world = World(tmp_path, capability="nothing atomic", marks_tables=True)
    world.create(A)
    world.insert(A, 1)
    world.upstream.checkpoint()
    world.run()
    assert world.server.contents.tables[A].mark is not None
    reset(world)
    mark = world.server.contents.tables[A].mark
    assert mark is not None
    assert not TableMark(NAME, 0, MAX_TSO, MAX_TSO, mark.epoch).follows(mark)
    assert NAME not in world.server.contents.ledgers


def test_a_pipeline_that_is_reset_under_a_living_run_begins_anew_in_a_table_that_was_emptied(tmp_path: Path) -> None:
    world = World(tmp_path, capability="nothing atomic", marks_tables=True, partitions=1)
    world.create(A)
    world.insert(A, 1)
    world.upstream.checkpoint()
    world.run()
    world.insert(A, 2)
    world.upstream.checkpoint()
    taken_over_before_it_commits(world, lambda: reset(world))
    put_rows(world, A)
    world.run()
    world.check()


def test_what_tables_said_to_a_record_that_was_removed_says_nothing_to_the_next_one(tmp_path: Path) -> None:
    """The reset broke off before it came to the tables."""
    world = World(tmp_path, capability="nothing atomic", marks_tables=True, partitions=1)
    world.create(A, keyless=True)
    world.insert(A, 1)
    world.upstream.checkpoint()
    with armed(crash_at(Moment.AFTER, TABLE_COMMIT)), pytest.raises(Crashed):
        world.run()
    mark = world.server.contents.tables[A].mark
    MemorySink(world.server, CAPABILITIES["nothing atomic"], marks_tables=True).ledger.reset(NAME)  # type: ignore[union-attr]
    put_rows(world, A)
    assert world.server.contents.tables[A].mark == mark
    world.run()
    world.check()


def test_a_table_that_was_loaded_anew_takes_nothing_of_a_run_that_was_taken_over(tmp_path: Path) -> None:
    """The rows that such a run has were deleted upstream before the table was loaded."""
    world = World(tmp_path, capability="nothing atomic", marks_tables=True, partitions=1)
    world.create(A)
    world.insert(A, 1)
    world.upstream.checkpoint()
    world.run()
    world.insert(A, 2)
    world.upstream.checkpoint()

    def load_anew() -> None:
        world.upstream.execute(Delete(A, (2,)))
        loaded = world.upstream.checkpoint()
        world.request(RequestKind.HOLD, A)
        world.run()
        put_rows(world, A, {"id": 1, "v": "1"})
        world.request(RequestKind.RESYNC, A, to=loaded)
        world.insert(B, 5)
        world.upstream.checkpoint()
        world.run()
        world.run()

    world.create(B)
    taken_over_before_it_commits(world, load_anew)
    world.run()
    world.check()


def test_a_ledger_that_a_restore_brought_back_goes_on_with_tables_that_a_later_run_wrote(tmp_path: Path) -> None:
    world = World(tmp_path, capability="nothing atomic", marks_tables=True, partitions=1)
    world.create(A, keyless=True)
    world.insert(A, 1)
    world.upstream.checkpoint()
    world.run()
    backup = world.server.contents
    for key in (2, 3):
        world.insert(A, key)
        world.upstream.checkpoint()
        world.run()
    world.server.contents = replace(world.server.contents.copy(), ledgers=dict(backup.ledgers), claims=dict(backup.claims))
    world.insert(A, 4)
    world.upstream.checkpoint()
    world.run()
    world.check()


@pytest.mark.parametrize("repaired", [False, True])
@pytest.mark.parametrize("skip", [0, 1], ids=["before the schema change", "behind it"])
def test_letters_of_a_table_that_is_ahead_of_the_ledger_are_counted_once(skip: int, repaired: bool, tmp_path: Path) -> None:
    """Two tries of a cut with two rounds of the table: the run dies before, or after, a round's commit; a record may be mended."""
    world = World(tmp_path / "world", partitions=1, capability="nothing atomic", marks_tables=True)
    letters = open_dead_letters(str(tmp_path / "letters"), NAME)
    world.create(A)
    world.upstream.checkpoint()
    world.run()
    (records,) = world.stream.partitions
    damaged: list[tuple[int, MemoryRecord]] = []
    for first in (1, 3):
        before = len(records)
        world.insert(A, first)
        world.insert(A, first + 1)
        place = next(n for n in range(before, len(records)) if records[n].kind is RecordKind.ROWS)
        damaged.append((place, records[place]))
        world.stream.damage(0, place)
        if first == 1:
            world.upstream.alter(A, AddColumn(Column("n", INT, default="7")))
    world.upstream.checkpoint()
    for moment in (Moment.BEFORE, Moment.AFTER):
        with armed(crash_at(moment, TABLE_COMMIT, skip=skip if moment is Moment.BEFORE else 0)), pytest.raises(Crashed):
            world.run(on_error=OnError.DEAD_LETTER, letters=letters)
        if repaired:
            for place, record in damaged:
                records[place] = record
    world.run(on_error=OnError.DEAD_LETTER, letters=letters)
    assert world.state.dead_letters.get(A, 0) == len(letters.names(A))
    held = world.server.contents.tables[A].rows
    assert len(letters.names(A)) == 4 - len(held)


def test_dead_letters_of_a_table_with_a_log_are_not_replayed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The other tables of such a sink take their rows back."""
    world = World(tmp_path / "world", partitions=1, capability="nothing atomic", marks_tables=True, logged=logs_b)
    letters = open_dead_letters(str(tmp_path / "letters"), NAME)
    for table_id in (A, B):
        world.create(table_id)
        world.insert(table_id, 1, 2, 3)
    (records,) = world.stream.partitions
    good: dict[int, MemoryRecord] = {}
    for table_id in (A, B):
        _, place, _ = (n for n, r in enumerate(records) if (r.table_id, r.kind) == (table_id, RecordKind.ROWS))
        good[place] = records[place]
    for place in good:
        world.stream.damage(0, place)
    world.upstream.checkpoint()
    world.run(on_error=OnError.DEAD_LETTER, letters=letters)
    assert world.state.dead_letters == {A: 1, B: 1}
    for place, record in good.items():
        records[place] = record
    ledger = MemoryLedger(MemorySink(world.server, CAPABILITIES["nothing atomic"]))
    for number, table_id in enumerate((A, B)):
        ledger.request(NAME, TableRequest(str(number), table_id, RequestKind.REPLAY))
    world.run(on_error=OnError.DEAD_LETTER, letters=letters)
    assert world.rows(A) == world.wanted(A)
    assert len(world.server.contents.logs[B].changes) == 2
    assert "memory:// cannot undo what was written" in capsys.readouterr().err
    assert world.state.dead_letters == {B: 1}
