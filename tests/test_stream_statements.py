"""What a stream's statements say of later ones, when the records of the former are gone and a run begins anew."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from following import Recorder
from headrace.model.cut import Cut
from headrace.model.events import DeletePartitionRowsEvent, DropColumnEvent, SchemaChange
from headrace.model.ledger import RequestKind, TableShape, TableStatus, Verdict
from headrace.model.policy import SchemaChangePolicies
from headrace.model.stream import StreamStatement
from headrace.model.table import Column, TableId
from headrace.sources.stream import source
from headrace.sources.stream.history import StreamHistory
from headrace.testing.memory_sink import CAPABILITIES
from headrace.testing.memory_source import NO_RECORD
from headrace.testing.ticdc_writer import SchemaFile
from headrace.testing.upstream_ddl import AddColumn
from streams import ID, INT, TEXT, A, B, C, World, run_with_kills

pytestmark = pytest.mark.pipeline

BANK = TableId("bank")
D, E = TableId("bank", "d"), TableId("bank", "e")


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path, partitions=1)


@pytest.fixture
def applied(monkeypatch: pytest.MonkeyPatch) -> list[SchemaChange]:
    """The schema changes of all cuts."""
    found: list[SchemaChange] = []

    def note(recorder: Recorder, cut: Cut) -> None:
        found.extend(change for cut_round in cut.rounds for change in cut_round.changes)

    monkeypatch.setattr(Recorder, "cut_started", note)
    return found


def of_database(world: World, statement: str) -> None:
    upstream = world.upstream
    world.stream.schema_changes(upstream._commit(), [SchemaFile(BANK, statement, None, 1)])


def follow(world: World, **options: object) -> None:
    """A run of its own, whose records are not kept behind it."""
    world.upstream.checkpoint()
    world.run(policies=SchemaChangePolicies.parse_text("alter-database=skip"), **options)
    world.stream.forget(0, len(world.stream.partitions[0]) - 1)


@pytest.mark.parametrize("tells_shapes", [True, False])
@pytest.mark.parametrize("why", ["damaged", "held"])
def test_a_table_that_waits_for_its_name_keeps_its_shape(world: World, why: str, tells_shapes: bool) -> None:
    """The first step of the RENAME runs, and the former shape goes with it. The last one waits, and tells no shape again."""
    world.stream.tells_shapes = tells_shapes
    for table_id in (B, C):
        world.create(table_id)
        world.insert(table_id, 1)
    world.upstream.checkpoint()
    world.run()
    if why == "held":
        world.request(RequestKind.HOLD, B)
    world.insert(B, 2)
    damaged = len(world.stream.partitions[0]) - 1
    record = world.stream.partitions[0][damaged]
    if why == "damaged":
        world.stream.damage(0, damaged)
    world.upstream.rename_tables((C, A), (B, C), (A, B))
    world.upstream.checkpoint()
    assert world.run().stopped
    if why == "held":
        world.request(RequestKind.RELEASE, B)
    world.stream.partitions[0][damaged] = record
    for key in (3, 4):
        world.upstream.checkpoint()
        assert not world.run().stopped
        world.insert(B, key)
    world.upstream.checkpoint()
    assert not world.run().stopped
    world.check()


def test_a_table_has_the_collation_of_its_database_when_the_record_that_named_it_is_gone(
    world: World, applied: list[SchemaChange]
) -> None:
    of_database(world, "CREATE DATABASE `bank` COLLATE utf8mb4_bin")
    follow(world)
    world.create(D)
    follow(world)
    of_database(world, "ALTER DATABASE `bank` COLLATE utf8mb4_general_ci")
    world.insert(D, 1)
    follow(world)
    world.create(E)
    follow(world)
    created = {change.table_id: change.database_collation for change in applied if change.table_id in (D, E)}
    assert created == {D: "utf8mb4_bin", E: "utf8mb4_general_ci"}
    assert [key.table_id for key in world.state.shapes].count(BANK) == 1


@pytest.mark.parametrize("runs", [1, 2])
@pytest.mark.parametrize(
    ("then", "expected"),
    [
        ("ALTER DATABASE `bank` COLLATE utf8mb4_general_ci", "utf8mb4_general_ci"),
        ("DROP DATABASE `bank`; CREATE DATABASE `bank`", ""),
        ("", "utf8mb4_bin"),
    ],
)
def test_a_table_has_the_collation_of_its_database_that_was_left_out_before(
    world: World, applied: list[SchemaChange], runs: int, then: str, expected: str
) -> None:
    without = {"includes": lambda table_id: table_id.database != "bank", "filter_text": "*.*,!bank.*"}
    world.create(A)
    of_database(world, "CREATE DATABASE `bank` COLLATE utf8mb4_bin")
    if runs == 2:
        follow(world, **without)
    for statement in filter(None, then.split("; ")):
        of_database(world, statement)
    world.insert(A, 1)
    follow(world, **without)
    world.create(D)
    follow(world)
    assert [change.database_collation for change in applied if change.table_id == D] == [expected]


def test_a_database_that_is_created_anew_has_no_collation_of_before(world: World, applied: list[SchemaChange]) -> None:
    of_database(world, "CREATE DATABASE `bank` COLLATE utf8mb4_bin")
    follow(world)
    world.upstream.drop_database("bank")
    follow(world)
    world.upstream.create_database("bank")
    follow(world)
    world.create(D)
    follow(world)
    assert [change.database_collation for change in applied if change.table_id == D] == [""]


@pytest.mark.parametrize("renamed", [False, True])
def test_rows_of_a_partition_go_when_the_record_that_defined_it_is_gone(
    world: World, applied: list[SchemaChange], renamed: bool
) -> None:
    world.takes_all = True
    table_id = A
    world.upstream.create_table(A, [ID, Column("v", TEXT)], partitions={"p0": 10, "p1": None})
    world.insert(A, 1, 20)
    follow(world)
    if renamed:
        table_id = TableId("shop", "z")
        world.upstream.rename_table(A, table_id)
        follow(world)
    world.upstream.truncate_partition(table_id, "p0")
    follow(world)
    (emptied,) = (event for change in applied for event in change.events if isinstance(event, DeletePartitionRowsEvent))
    assert (emptied.table_id, emptied.condition) == (table_id, "((`id`) IS NULL OR (`id`) < (10))")
    world.check()


@pytest.mark.parametrize("tells_shapes", [True, False])
@pytest.mark.parametrize("then", ["truncate", "drop", "exchange", "alter", "alter the other"])
@pytest.mark.parametrize("before", ["truncate", "drop", "exchange", "add", "alter"])
def test_a_statement_about_partitions_needs_no_records_of_the_statements_before(
    world: World, before: str, then: str, tells_shapes: bool
) -> None:
    """The ledger has the columns and the partitions that they led to."""
    world.takes_all, world.stream.tells_shapes = True, tells_shapes
    upstream = world.upstream
    upstream.create_table(A, [ID, Column("v", TEXT)], partitions={"p0": 10, "p1": 20, "p2": 30})
    world.create(B)
    world.insert(A, 1, 11, 21)
    world.insert(B, 2)
    follow(world)
    for number, step in enumerate((before, then)):
        added = AddColumn(Column(f"n{number}", INT, default="7"))
        if step == "truncate":
            upstream.truncate_partition(A, "p1")
        elif step == "drop":
            upstream.drop_partition(A, f"p{2 - number}")
        elif step == "exchange":
            upstream.exchange_partition(A, "p0", B)
        elif step == "add":
            upstream.add_partition(A, "p3", 40)
        else:
            for table_id in [B] if step == "alter the other" else [A, B]:
                upstream.alter(table_id, added)
        for _ in range(3):
            follow(world)
        world.check()
    assert {own.status for own in world.state.tables.values() if own.table_id.table} == {TableStatus.RUNNING}


X = TableId("shop", "x")


@pytest.mark.parametrize(
    "steps",
    [
        ((A, B), (B, A), (A, B)),
        ((A, B), (B, A)),
        ((A, X), (X, A), (A, X), (X, B)),
        ((A, X), (C, A), (X, C)) * 2,
        ((A, X), (C, A), (X, C)) * 3,
    ],
)
@pytest.mark.parametrize("told", ["once", "again", "torn", "again later", "with gaps", "in many ranges"])
def test_a_rename_runs_each_step_as_often_as_it_is_named_however_often_it_is_told(
    steps: tuple[tuple[TableId, TableId], ...], told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path, partitions=1)
    for number, table_id in enumerate((A, C)):
        world.create(table_id)
        world.insert(table_id, number)
    since = world.upstream.checkpoint()
    world.run()
    records = world.stream.partitions[0]
    before = len(records)
    world.upstream.rename_tables(*steps)
    if told == "torn":  # what writes the stream died before the last step
        records[before:before] = [*records[before:-1], records[before - 1]]
    if told in ("with gaps", "in many ranges"):  # no consumer gets a record at every other offset
        records[before:] = [record for told_record in records[before:] for record in (NO_RECORD, told_record)]
    if told == "in many ranges":
        monkeypatch.setattr(source, "RANGE_BYTES", 100)
    for key, table_id in enumerate(world.upstream.tables):
        world.insert(table_id, 10 + key)
    if told == "again":
        world.stream.repeat(since)
    world.upstream.checkpoint()
    for number in range(2):
        world.run()
        world.check()
        if told == "again later":
            world.stream.repeat(since)
        for table_id in world.upstream.tables:
            world.insert(table_id, 20 + number)
        world.upstream.checkpoint()
    world.run()
    world.check()


@pytest.mark.parametrize("capability", list(CAPABILITIES))
@pytest.mark.parametrize("seed", range(6))
def test_a_rename_that_names_a_step_twice_runs_right_whenever_a_run_dies(capability: str, seed: int, tmp_path: Path) -> None:
    chance = Random(seed)
    world = World(tmp_path, partitions=2, capability=capability)
    world.create(A)
    world.insert(A, 1, 2)
    since = world.upstream.checkpoint()
    world.run()
    world.upstream.rename_tables((A, B), (B, A), (A, B))
    world.insert(B, 3)
    world.upstream.checkpoint()
    run_with_kills(world, chance, 4)
    world.stream.repeat(since)
    world.insert(B, 4)
    world.upstream.checkpoint()
    run_with_kills(world, chance, 2)
    world.check()


@pytest.mark.parametrize("kind", CAPABILITIES)
def test_a_table_that_is_dropped_does_not_wait_for_the_drop_of_its_database(tmp_path: Path, kind: str) -> None:
    world = World(tmp_path, partitions=2, capability=kind)
    for table_id in (A, B):
        world.create(table_id)
    world.upstream.checkpoint()
    world.run()
    world.insert(A, 1, 2)
    world.upstream.drop_table(A)
    world.upstream.drop_database("shop")
    world.upstream.create_database("shop")
    world.create(C)
    world.upstream.checkpoint()
    world.run(policies=SchemaChangePolicies.parse_text("drop-database=approve"))
    assert {t: own.status.is_stopped for t, own in world.state.tables.items() if t in (A, B)} == {A: False, B: True}
    (waiting,) = [entry for entry in world.state.journal.values() if entry.statement.startswith("DROP DATABASE")]
    world.decide(waiting.identity, Verdict.APPROVE)
    world.run()
    world.check()
    assert {t: own.status for t, own in world.state.tables.items() if t in (A, B)} == dict.fromkeys((A, B), TableStatus.GONE)


def told_at(commit_ts: int, statement: str, table: str = "a", offset: int = 0, partition: str = "0") -> StreamStatement:
    """A statement of a stream whose records do not contain shapes."""
    table_id = TableId("shop", table)
    return StreamStatement(commit_ts, "shop", statement, table_id, None, partition, offset or commit_ts, tells_shape=False)


def kept_shapes(history: StreamHistory) -> dict[TableId, tuple[TableShape, ...]]:
    """What the ledger keeps after a history."""
    names = {change.table_id for change in history.changes}
    return {t: tuple(TableShape(1, version, schema) for version, schema in history.versions(t)) for t in names}


def test_a_statement_that_comes_again_alone_hides_no_later_shape() -> None:
    """TiCDC was restarted, and repeats its statements one after another; more statements come before it has repeated all."""
    create = told_at(1, "CREATE TABLE `a` (`id` INT PRIMARY KEY, `v` INT)")
    first, second = told_at(5, "ALTER TABLE `a` ADD COLUMN `n` INT"), told_at(6, "ALTER TABLE `a` ADD COLUMN `k` INT")
    known = kept_shapes(StreamHistory({}, [create, first, second]))
    after = StreamHistory(known, [first, told_at(8, "ALTER TABLE `a` DROP COLUMN `k`")])
    assert [column.name for column in after.versions(TableId("shop", "a"))[-1][1].columns] == ["id", "v", "n"]
    assert any(isinstance(event, DropColumnEvent) for event in after.changes[-1].events)


@pytest.mark.parametrize("then", ["DROP COLUMN `n`, ADD COLUMN `k` INT DEFAULT 9", "MODIFY COLUMN `v` BIGINT"])
def test_the_next_statement_builds_on_the_kept_shape_when_the_one_before_comes_again(then: str) -> None:
    """The shape from before the first ALTER is not kept any more, so the repeated one tells none."""
    a = TableId("shop", "a")
    create, first = told_at(1, "CREATE TABLE `a` (`id` INT PRIMARY KEY, `v` INT)"), told_at(5, "ALTER TABLE `a` ADD COLUMN `n` INT")
    known = {a: kept_shapes(StreamHistory({}, [create, first]))[a][-1:]}
    after = StreamHistory(known, [first, told_at(8, f"ALTER TABLE `a` {then}")])
    alone = StreamHistory(known, [told_at(8, f"ALTER TABLE `a` {then}")])
    assert after.changes[-1].events == alone.changes[-1].events != ()
    assert after.versions(a) == alone.versions(a)


def test_steps_there_and_back_in_different_topics_wait_for_a_person() -> None:
    """How often each step ran is unknown: ``a TO b`` twice in a topic may be a repeat."""
    steps = [told_at(5, "RENAME TABLE `a` TO `b`", "b", 1, "a/0"), told_at(5, "RENAME TABLE `b` TO `a`", "a", 1, "b/0")]
    again = told_at(5, "RENAME TABLE `a` TO `b`", "b", 2, "a/0")
    history = StreamHistory({}, [told_at(1, "CREATE TABLE `a` (`id` INT PRIMARY KEY)"), *steps, replace(again, before=1)])
    assert "does not show the order of the renames" in history.changes[-1].doubt
