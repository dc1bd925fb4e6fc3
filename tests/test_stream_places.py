"""A record of a stream that nobody can read: it is told, and given up, by its partition and offset."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from headrace.cli.display import RunDisplay
from headrace.cli.main import main
from headrace.cli.output import make_output
from headrace.engine.conservation import require_own_keys
from headrace.model.cut import Cut, CutRound
from headrace.model.ledger import TableShape, TableStatus
from headrace.model.place import PlaceInStream
from headrace.model.stream import Mark, Range, StageReport, StreamStatement
from headrace.model.table import NOBODYS, Column, TableId, TableSchema
from headrace.sources.stream.history import StreamHistory
from headrace.sources.stream.position import StreamPosition
from headrace.sources.stream.records import RecordKind, RecordRow, record_batch
from headrace.sources.stream.stage import stage
from headrace.sources.stream.staged import Staged, splits
from headrace.testing.memory_source import MemoryReader, MemorySource
from headrace.testing.upstream_ddl import AddColumn
from served import serve
from streams import INT, NAME, A, B, World

pytestmark = pytest.mark.pipeline

Told = Callable[..., str]


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """Three records of a table in one partition, of which the second is damaged, and another table."""
    world = World(tmp_path, partitions=1)
    serve(world, tmp_path, monkeypatch)
    world.create(A)
    world.create(B)
    world.upstream.checkpoint()
    world.run()
    for key in (1, 2, 3):
        world.insert(A, key)
    world.insert(B, 1)
    world.upstream.checkpoint()
    return world


@pytest.fixture
def damaged(world: World) -> int:
    """The offset of the damaged record."""
    rows = [n for n, r in enumerate(world.stream.partitions[0]) if r.table_id == A and r.kind is RecordKind.ROWS]
    world.stream.damage(0, rows[1])
    return rows[1]


@pytest.fixture
def told(capsys: pytest.CaptureFixture[str]) -> Told:
    """Runs a command; what it prints."""

    def command(*words: str, code: int = 0) -> str:
        capsys.readouterr()
        assert main([*words, "--sink", "memory://", "--name", NAME]) == code
        out, err = capsys.readouterr()
        return out if code == 0 else err

    return command


def ids(world: World) -> list[object]:
    return sorted(dict(row)["id"] for row in world.rows(A).elements())  # type: ignore[type-var]


def test_a_record_that_is_given_up_lets_its_table_go_on_without_it(
    world: World, damaged: int, told: Told, capsys: pytest.CaptureFixture[str]
) -> None:
    assert [problem.place for problem in world.run().stopped] == [PlaceInStream("0", damaged)]
    listed = told("table", "list")
    assert f"table shop.a, partition 0, offset {damaged}: its value is damaged" in listed
    named = f"--sink memory:// --name {NAME}"
    assert f"Or give it up with headrace table skip shop.a {named} --partition 0 --offset {damaged}." in listed
    assert f"headrace table skip shop.a {named} --to TSO|latest, or --partition P --offset N" in listed
    skipped = told("table", "skip", "shop.a", "--partition", "0", "--offset", str(damaged), "--yes")
    assert f"shop.a: the record at partition 0, offset {damaged} is given up" in skipped
    assert not world.run().stopped
    given_up = f"table shop.a: the record was given up: its changes are not in the target. (partition 0, offset {damaged})"
    assert given_up in capsys.readouterr().err
    assert (ids(world), world.state.tables[A].status) == ([1, 3], TableStatus.RUNNING)
    world.insert(A, 4)
    world.upstream.checkpoint()
    assert not world.run().stopped
    assert ids(world) == [1, 3, 4]


def test_what_was_given_up_is_forgotten_once_it_is_passed(world: World, damaged: int, told: Told) -> None:
    world.run()
    told("table", "skip", "shop.a", "--partition", "0", "--offset", str(damaged), "--yes")
    known = StreamPosition.parse(world.state.position)
    for number in range(3):
        world.insert(B, *range(10 + 40 * number, 50 + 40 * number))
        world.upstream.checkpoint()
        world.run()
    position = StreamPosition.parse(world.state.position)
    assert known.of("0").offset <= damaged < position.of("0").offset
    assert position.given_up == frozenset()


def test_a_position_keeps_what_was_given_up_until_the_partition_is_past_it() -> None:
    """Also through its text; one without has the text of before."""
    bare = StreamPosition().with_marks([StageReport(Range("0", 0, 9, 90), marks=(Mark(0, 0), Mark(5, 100), Mark(9, 200)))])
    assert '"g"' not in bare.to_text()
    position = bare.giving_up(A, PlaceInStream("0", 4)).giving_up(B, PlaceInStream("0", 7))
    assert StreamPosition.parse(position.to_text()) == position
    assert position.moved_to(100).given_up == {(B, PlaceInStream("0", 7))}
    assert position.moved_to(200).given_up == frozenset()
    assert [position.needs(B, PlaceInStream("0", at)) for at in (4, 7)] == [True, False]
    passed = position.moved_to(200)
    assert not passed.needs(B, PlaceInStream("0", 7))
    assert passed.needs(B, PlaceInStream("0", passed.of("0").offset))
    assert passed.needs(B, PlaceInStream("1", 0))


def test_machines_are_told_partition_and_offset(world: World, damaged: int, told: Told, capsys: pytest.CaptureFixture[str]) -> None:
    (problem,) = world.run().stopped
    with RunDisplay(make_output(json=True)) as display:
        display.table_stopped(problem)
    (event,) = [json.loads(line) for line in capsys.readouterr().out.splitlines() if '"table_stopped"' in line]
    assert (event["partition"], event["offset"]) == ("0", damaged)
    told("table", "skip", "shop.a", "--partition", "0", "--offset", str(damaged), "--yes")
    (listed,) = [json.loads(line) for line in told("table", "list", "--json").splitlines()]
    (request,) = listed["requests"]
    assert (request["kind"], request["partition"], request["offset"], request["file"]) == ("skip record", "0", damaged, None)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--partition", "1", "--offset", "0"), "does not wait for a record at partition 1, offset 0"),
        (("--partition", "0", "--offset", "100000"), "does not wait for a record at partition 0, offset 100000"),
        (("--file", "a.csv"), "is a stream, and has no files. Name a record with --partition and --offset"),
        (("--partition", "0"), "name a record together"),
        (("--offset", "0"), "name a record together"),
        (("--partition", "0", "--offset", "0", "--to", "latest"), "pass exactly one of --to, --file"),
    ],
)
def test_what_is_no_record_that_the_table_needs_is_not_given_up(
    world: World, damaged: int, told: Told, words: tuple[str, ...], why: str
) -> None:
    world.run()
    assert why in told("table", "skip", "shop.a", *words, "--yes", code=2)
    assert world.state.requests == {}


def test_a_record_of_a_table_that_nobody_can_understand_is_given_up_too(world: World, told: Told) -> None:
    place = len(world.stream.partitions[0])
    world.stream.put_unknown(0, A, "its kind is not known.")
    world.upstream.checkpoint()
    assert [problem.place for problem in world.run().stopped] == [PlaceInStream("0", place)]
    told("table", "skip", "shop.a", "--partition", "0", "--offset", str(place), "--yes")
    assert not world.run().stopped
    world.check()


def test_another_tables_record_of_the_same_place_is_not_given_up_with_it(world: World, damaged: int, told: Told) -> None:
    """What is given up is of one table, whatever a person mistypes."""
    of_b = next(n for n, r in enumerate(world.stream.partitions[0]) if r.table_id == B and r.kind is RecordKind.ROWS)
    world.stream.damage(0, of_b)
    world.run()
    told("table", "skip", "shop.a", "--partition", "0", "--offset", str(of_b), "--yes")
    assert {problem.table_id for problem in world.run().stopped} == {A, B}


def test_a_record_of_which_nobody_knows_the_table_holds_its_partition_until_it_is_given_up(
    world: World, told: Told, capsys: pytest.CaptureFixture[str]
) -> None:
    world.run()
    place = len(world.stream.partitions[0])
    world.stream.put_unknown(0, NOBODYS, "its kind is not known.")
    world.insert(A, 4)
    world.upstream.checkpoint()
    another = len(world.stream.partitions[0])
    world.stream.put_unknown(0, NOBODYS, "its kind is not known.")
    world.insert(A, 5)
    world.upstream.checkpoint()
    for given_up, rows in ((place, [1, 2, 3]), (another, [1, 2, 3, 4])):
        capsys.readouterr()
        world.run()
        command = f"headrace table skip --partition 0 --offset {given_up}"
        assert f"it up with {command}." in capsys.readouterr().err
        assert ids(world) == rows
        assert f"the record at partition 0, offset {given_up} is given up" in told(*command.split()[1:], "--yes")
    world.run()
    assert f"its content is not in the target. (partition 0, offset {another})" in capsys.readouterr().err
    world.check()
    assert not world.state.requests


def test_nothing_is_given_up_of_no_table_where_nobody_waits_for_it(world: World, told: Told) -> None:
    world.run()
    for words in (("--partition", "1", "--offset", "0"), ("--partition", "0", "--offset", "100000")):
        assert "No record at partition" in told("table", "skip", *words, "--yes", code=2)
    assert "The table is missing" in told("table", "skip", "--to", "latest", "--yes", code=2)
    assert world.state.requests == {}


def test_a_record_of_a_table_is_not_given_up_as_one_of_no_table(world: World, damaged: int, told: Told) -> None:
    world.run()
    told("table", "skip", "--partition", "0", "--offset", str(damaged), "--yes")
    assert [problem.place for problem in world.run().stopped] == [PlaceInStream("0", damaged)]


def test_a_schema_change_that_cannot_be_read_goes_on_stopping_its_table(world: World, told: Told) -> None:
    """Rows behind it may have another shape, which nobody knows."""
    world.upstream.alter(A, AddColumn(Column("n", INT, default="7")))
    changes = [n for n, r in enumerate(world.stream.partitions[0]) if r.table_id == A and r.kind is RecordKind.STATEMENT]
    world.stream.damage(0, changes[-1])
    world.upstream.checkpoint()
    place = PlaceInStream("0", changes[-1])
    assert [problem.place for problem in world.run().stopped] == [place]
    told("table", "skip", "shop.a", "--partition", "0", "--offset", str(place.offset), "--yes")
    assert [problem.place for problem in world.run().stopped] == [place]


def test_a_cut_of_a_stream_has_pieces_and_no_files(world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = MemorySource(world.stream).event_source.staged_by(world.staged, world.place)
    offer = source.poll(world.state.position, world.state.checkpoint, shapes=world.state.shapes_by_table)
    world.run()
    record = world.state.cuts[-1]
    capsys.readouterr()
    with RunDisplay(make_output(json=False)) as display:
        display.cut_started(Cut(offer.watermark, (CutRound((), offer.splits),)))
        display.cut_finished(record, offer.watermark)
    assert ": 2 pieces, 4 rows read" in capsys.readouterr().out
    definition = tmp_path / "pipeline.yaml"
    definition.write_text(f"source:\n  uri: memory://\nsink:\n  uri: memory://\npipeline:\n  name: {NAME}\n")
    assert main(["status", str(definition)]) == 0
    (heading,) = [line for line in capsys.readouterr().out.splitlines() if "up to" in line and "seconds" in line]
    assert "pieces" in heading
    assert "files" not in heading


@pytest.mark.parametrize("name", ["a ", "a" * 65], ids=["blank", "long"])
@pytest.mark.parametrize("kind", [RecordKind.ROWS, RecordKind.STATEMENT, RecordKind.UNKNOWN])
def test_a_record_with_a_name_that_no_table_can_have_is_one_of_which_nobody_knows_the_table(
    world: World, told: Told, capsys: pytest.CaptureFixture[str], kind: RecordKind, name: str
) -> None:
    """Ledgers on MySQL and MariaDB take ``a `` for ``a``, and hold no longer names."""
    world.run()
    place = len(world.stream.partitions[0])
    of_kind = RecordKind.ROWS if kind is RecordKind.UNKNOWN else kind
    like = next(r for r in reversed(world.stream.partitions[0]) if r.table_id == A and r.kind is of_kind)
    world.stream.partitions[0].append(replace(like, kind=kind, table_id=TableId(A.database, name)))
    world.insert(A, 4)
    world.upstream.checkpoint()
    capsys.readouterr()
    world.run()
    assert "it names a database or a table by a name that none can have" in capsys.readouterr().err
    assert {table_id for table_id in world.state.tables if table_id.table} == {A, B}
    told("table", "skip", "--partition", "0", "--offset", str(place), "--yes")
    world.run()
    assert ids(world) == [1, 2, 3, 4]
    world.check()


def test_a_schema_change_that_tells_a_name_which_no_table_can_have_is_of_no_table(world: World) -> None:
    """Whatever the record is filed under."""

    class OfOthers(MemoryReader):
        def statement(self, value: bytes, partition: str, offset: int) -> StreamStatement:
            return replace(super().statement(value, partition, offset), table_id=TableId("shop ", "a"))

    records = [r for r in world.stream.partitions[0] if r.kind is RecordKind.STATEMENT][:1]
    report = stage(OfOthers([records], [0]), Range("0", 0, 1, 100), world.place, "")
    assert [(problem.table_id, problem.place) for problem in report.problems] == [(NOBODYS, PlaceInStream("0", 0))]
    assert not report.statements


def test_pieces_of_one_record_have_splits_with_keys_of_their_own(world: World) -> None:
    """A record may have rows of several tables, and those of one table need not rise."""

    class OfSeveral(MemoryReader):
        def records(self, of: Range) -> Iterator[pa.RecordBatch]:
            rows = [(A, 7), (B, 7), (A, 5), (B, 5)]
            yield record_batch(RecordRow(0, RecordKind.ROWS, t.database, t.table, ts, b"") for t, ts in rows)

    versions = {t: (TableShape(3, 3, TableSchema(t, ())), TableShape(3, 6, TableSchema(t, ()))) for t in (A, B)}
    report = stage(OfSeveral([[]], [0]), Range("0", 0, 1, 100), world.place, "")
    found = list(splits(Staged((report,), {"0": 0}), StreamHistory(versions, ()), 9, lambda _: 0, StreamPosition()))
    assert sorted((split.table_id, split.version, split.piece.max_ts) for split in found) == [
        (t, version, ts) for t in (A, B) for version, ts in ((3, 5), (6, 7))
    ]
    require_own_keys(found)


@pytest.mark.parametrize(("partitions", "most"), [(1, 64), (32, 64), (100, 20), (600, 8)])
def test_the_marks_of_many_partitions_are_fewer_of_each(partitions: int, most: int) -> None:
    """The position is written with each cut. The beginning and the end of what was read stay known."""
    names = [str(n) for n in range(partitions)]
    position = StreamPosition().beginning(dict.fromkeys(names, 0))
    for start in range(0, 1000, 10):
        marks = tuple(Mark(at, at) for at in (start, start + 10))
        position = position.with_marks(StageReport(Range(name, start, start + 10, 90), marks=marks) for name in names)
    for at in position.partitions.values():
        assert most // 2 <= len(at.marks) <= most
        assert (at.begins(0), at.read_to, at.reached) == (0, 1000, 1000)
