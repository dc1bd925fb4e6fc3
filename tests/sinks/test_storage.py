"""The storage sink: what it writes, and that a data file never has two contents, wherever a run dies."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from headrace.engine.run_options import RunOptions
from headrace.errors import DefinitionError, FencedError, SinkUnreachableError
from headrace.faults import Moment
from headrace.formats.storage_paths import DataPath, parse_path
from headrace.model.events import CreateTableEvent, DropTableEvent, RenameTableEvent, SchemaChange
from headrace.model.ledger import Decision, RequestKind, TableRequest, Verdict
from headrace.model.policy import ChangeKind, Policy, SchemaChangePolicies
from headrace.model.table import Column, TableId, TableSchema
from headrace.model.types import ColumnType, TypeKind
from headrace.model.uri import parse_uri
from headrace.pipeline.registry import open_sink
from headrace.places.location import Location
from headrace.places.object_place import place_at
from headrace.sinks.base import CheckState
from headrace.sinks.metadata_applier import SchemaChangeRefused
from headrace.sinks.storage.metadata import StorageMetadataApplier
from headrace.sinks.storage.open_cut import CutWriter
from headrace.sinks.storage.output import read_output
from headrace.sinks.storage.publication import PUBLISH
from headrace.sinks.storage.tables import TargetTables
from headrace.sinks.storage.target_store import TargetStore
from headrace.testing.faults import Crashed, Passage
from headrace.testing.sink_runs import SinkRuns, SinkUnderTest, at
from headrace.testing.upstream import Delete, Insert, Update, Upstream
from headrace.testing.upstream_ddl import AddColumn, ModifyColumn
from storage_target import StorageReader

SHOP = "shop"
A, B = TableId(SHOP, "a"), TableId(SHOP, "b")
ID = Column("id", ColumnType(TypeKind.INT), nullable=False, primary_key=True)
V = Column("v", ColumnType(TypeKind.VARCHAR, length=20))


class Storage:
    """An upstream whose changes are written to a folder."""

    def __init__(self, folder: Path, parameters: str = "protocol=csv") -> None:
        self.root = folder / "changes"
        self.uri = f"{self.root.as_uri()}?{parameters}"
        self.reader = StorageReader(self.root, parameters, folder)
        self.runs = SinkRuns(SinkUnderTest(lambda: open_sink(self.uri), self.reader.read), folder)

    @property
    def upstream(self) -> Upstream:
        return self.runs.upstream

    def files(self) -> dict[str, str]:
        """The published files by their paths, without the changing ones."""
        found = (path for path in self.root.rglob("*") if path.is_file() and "_headrace" not in path.parts)
        return {str(path.relative_to(self.root)): path.read_bytes().decode() for path in sorted(found)}

    def data(self) -> dict[str, str]:
        """The data files by their paths."""
        return {key: text for key, text in self.files().items() if isinstance(parse_path(key), DataPath)}

    def lines(self) -> Counter[str]:
        return Counter(line for text in self.data().values() for line in text.splitlines())

    @property
    def checkpoint(self) -> int:
        return int(json.loads((self.root / "metadata").read_text())["checkpoint-ts"])


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return Storage(tmp_path)


def two_tables(upstream: Upstream) -> None:
    upstream.create_database(SHOP)
    upstream.create_table(A, [ID, V])
    upstream.create_table(B, [ID, V])
    upstream.execute(Insert(A, {"id": 1, "v": "x"}), Insert(B, {"id": 1, "v": "y"}))


def test_a_cut_is_schema_files_data_files_indexes_and_metadata(tmp_path: Path) -> None:
    storage = Storage(tmp_path, "protocol=csv&date-separator=none&file-index-digit=6")
    two_tables(storage.upstream)
    storage.runs.applied()
    paths = [re.sub(r"[0-9]{15,}_[0-9]{10}|[0-9]{15,}", "N", key) for key in storage.files()]
    of_tables = [f"shop/{name}/{path}" for name in "ab" for path in ("N/CDC000001.csv", "N/meta/CDC.index", "meta/schema_N.json")]
    assert paths == ["metadata", *of_tables, "shop/meta/schema_N.json"]
    (data,) = (text for key, text in storage.data().items() if key.startswith("shop/a/"))
    assert re.fullmatch(r'"I","a","shop",[0-9]+,1,"x"\r\n', data)
    (index,) = (text for key, text in storage.files().items() if key.startswith("shop/a/") and key.endswith(".index"))
    assert index == "CDC000001.csv\n"


def test_a_second_run_goes_on_with_the_next_number_in_the_same_directory(storage: Storage) -> None:
    two_tables(storage.upstream)
    storage.runs.applied()
    storage.upstream.execute(Update(A, (1,), {"v": "z"}))
    storage.runs.applied()
    names = [key.rpartition("/")[2] for key in storage.data() if key.startswith("shop/a/")]
    assert names == ["CDC00000000000000000001.csv", "CDC00000000000000000002.csv"]


def test_a_number_that_only_the_index_tells_is_not_used_again(storage: Storage) -> None:
    """Someone removed files that were read."""
    two_tables(storage.upstream)
    storage.runs.applied()
    (first,) = storage.root.glob("shop/a/*/*/CDC*.csv")
    first.unlink()
    storage.upstream.execute(Update(A, (1,), {"v": "z"}))
    storage.upstream.checkpoint()
    storage.runs.run()
    assert [path.name for path in storage.root.glob("shop/a/*/*/CDC*.csv")] == ["CDC00000000000000000002.csv"]


def test_a_file_that_is_large_enough_is_followed_by_another(tmp_path: Path) -> None:
    storage = Storage(tmp_path, "protocol=csv&file-size=1024")
    two_tables(storage.upstream)
    for start in range(0, 60_000, 20_000):
        storage.upstream.execute(*(Insert(A, {"id": 10 + start + n, "v": "many"}) for n in range(20_000)))
    storage.runs.applied()
    numbers = sorted(int(re.sub(r"\D", "", path.name)) for path in storage.root.glob("shop/a/*/*/CDC*.csv"))
    assert len(numbers) > 1
    assert numbers == list(range(1, len(numbers) + 1))


@pytest.mark.parametrize("parameters", ["protocol=csv", "protocol=csv&output-old-value=true", "protocol=canal-json"])
def test_no_file_has_two_contents_and_no_change_is_there_twice_wherever_a_run_dies(tmp_path: Path, parameters: str) -> None:
    storage = Storage(tmp_path, parameters)
    upstream = storage.upstream
    two_tables(upstream)
    storage.runs.applied()
    seen = dict(storage.data())
    for number, died in _deaths(storage):
        upstream.execute(Insert(A, {"id": 10 + number, "v": f"{died}"}), Update(B, (1,), {"v": str(number)}))
        upstream.alter(B, ModifyColumn("v", Column("v", ColumnType(TypeKind.VARCHAR, length=20 + number))))
        upstream.execute(Update(B, (1,), {"v": f"{number}!"}), Delete(A, (9 + number,)) if number > 1 else Insert(A, {"id": 9}))
        upstream.checkpoint()
        yielded = _run_until(storage, number)
        _require_unchanged(seen, storage)
        if yielded:
            upstream.execute(Insert(A, {"id": 1000 + number, "v": "the next cut is larger"}))
            upstream.checkpoint()
            assert not storage.runs.run().stopped
            _require_unchanged(seen, storage)
        storage.runs.check()
        if not yielded:
            break
    assert number > 5
    times = re.compile(r'"(?:ts|es)":[0-9]+')
    doubled = [line for line, count in Counter(times.sub("", line) for line in storage.lines().elements()).items() if count > 1]
    assert not doubled


def _deaths(storage: Storage) -> Iterator[tuple[int, bool]]:
    yield from ((number, number % 2 == 0) for number in range(1, 200))


def _run_until(storage: Storage, number: int) -> bool:
    """Runs until the step with this number, and dies there. Whether there was such a step."""

    def die(passage: Passage) -> None:
        raise Crashed(str(passage))

    try:
        storage.runs.run(at(number, die, lambda passage: passage.moment is Moment.AFTER))
    except Crashed:
        return True
    return False


def _require_unchanged(seen: dict[str, str], storage: Storage) -> None:
    """Asserts that files seen before are the same now, and that numbers have no gaps."""
    now = storage.data()
    assert {key: now[key] for key in seen} == seen
    seen |= now
    for folder in {key.rpartition("/")[0] for key in now}:
        numbers = sorted(int(re.sub(r"\D", "", key.rpartition("/")[2])) for key in now if key.rpartition("/")[0] == folder)
        assert numbers == list(range(1, len(numbers) + 1)), folder


def test_metadata_waits_for_a_table_that_waits(storage: Storage) -> None:
    """Its rows come with earlier commit ts than what the others have by then."""
    upstream = storage.upstream
    two_tables(upstream)
    storage.runs.applied()
    before = storage.checkpoint
    upstream.alter(A, AddColumn(Column("n", ColumnType(TypeKind.INT))))
    upstream.execute(Insert(A, {"id": 2, "v": "late", "n": 1}), Insert(B, {"id": 2, "v": "in time"}))
    upstream.checkpoint()
    asks = RunOptions(once=True, policies=SchemaChangePolicies({ChangeKind.ADD_COLUMN: Policy.APPROVE}))
    (problem,) = storage.runs.run(options=asks).stopped
    assert problem.table_id == A
    assert before < storage.checkpoint < upstream.execute(Insert(B, {"id": 3, "v": "later"}))
    assert any('"in time"' in line for line in storage.lines())
    reached = storage.checkpoint
    upstream.checkpoint()
    with storage.runs.opened() as (_, ledger):
        state = ledger.peek("suite")
        assert state is not None
        assert reached < state.checkpoint
        for identity in state.journal:
            ledger.decide("suite", Decision(identity, Verdict.APPROVE))
    storage.runs.run(options=asks)
    assert storage.checkpoint > reached
    storage.runs.check()


def test_a_run_that_was_taken_over_while_it_published_changes_nothing_any_more(storage: Storage) -> None:
    upstream = storage.upstream
    two_tables(upstream)
    storage.runs.applied()
    upstream.execute(Insert(A, {"id": 2, "v": "first"}))
    upstream.checkpoint()

    def take_over(_: Passage) -> None:
        upstream.execute(Insert(A, {"id": 3, "v": "second"}))
        storage.runs.applied()

    with pytest.raises(FencedError):
        storage.runs.run(at(1, take_over, lambda passage: (passage.moment, passage.step) == (Moment.BEFORE, PUBLISH)))
    assert "00003" in next(text for key, text in storage.files().items() if key.startswith("shop/a") and "index" in key)
    storage.runs.check()


def test_a_change_that_the_format_cannot_carry_stops_its_table_alone(tmp_path: Path) -> None:
    storage = Storage(tmp_path, "protocol=csv&null=7")
    upstream = storage.upstream
    two_tables(upstream)
    upstream.execute(Insert(A, {"id": 7, "v": "x"}), Insert(B, {"id": 2, "v": "y"}))
    upstream.checkpoint()
    (problem,) = storage.runs.run().stopped
    assert problem.sentence() == (
        "table shop.a, row id=7, column id, value '7': it has a value that would be read as NULL, because null is '7' and the "
        "field has no quotes. Choose another null string, or a quote."
    )
    assert [line for line in storage.lines() if '"b"' in line]
    assert not [line for line in storage.lines() if '"a"' in line]


def test_another_pipeline_may_not_write_to_the_target(storage: Storage, tmp_path: Path) -> None:
    two_tables(storage.upstream)
    storage.runs.applied()
    with open_sink(storage.uri) as sink:
        assert sink.ledger is not None
        with pytest.raises(DefinitionError, match=r"The pipeline 'suite' writes to .*changes, and its readers know one checkpoint"):
            sink.ledger.acquire("another", "x://", "", 0)


def test_a_target_that_holds_something_belongs_to_its_pipeline_alone(storage: Storage) -> None:
    """After a reset the pipeline would write all changes again. With --adopt, metadata does not go back: readers have passed it."""
    two_tables(storage.upstream)
    storage.runs.applied()
    reached = storage.checkpoint
    with storage.runs.opened() as (_, ledger):
        assert ledger.reset("suite")
    with pytest.raises(DefinitionError, match=r"holds something already \(metadata\), and this pipeline did not write it"):
        storage.runs.run()
    storage.runs.target.open = lambda: open_sink(storage.uri, {"adopt": True})
    assert not storage.runs.run().stopped
    assert storage.checkpoint == reached


def test_a_reset_publishes_what_is_committed(storage: Storage) -> None:
    upstream = storage.upstream
    two_tables(upstream)
    storage.runs.applied()
    upstream.execute(Insert(A, {"id": 2, "v": "committed"}))
    upstream.checkpoint()

    def die(passage: Passage) -> None:
        raise Crashed(str(passage))

    with pytest.raises(Crashed):
        storage.runs.run(at(1, die, lambda passage: (passage.moment, passage.step) == (Moment.BEFORE, PUBLISH)))
    assert not [line for line in storage.lines() if "committed" in line]
    with storage.runs.opened() as (_, ledger):
        assert ledger.reset("suite")
    storage.runs.check()


@pytest.mark.parametrize("other", ["protocol=canal-json", "protocol=csv&time-zone=Asia/Tokyo", "protocol=csv&null=NULL"])
def test_options_that_readers_must_know_stay_as_they_are(storage: Storage, other: str) -> None:
    two_tables(storage.upstream)
    storage.runs.applied()
    storage.runs.target.open = lambda: open_sink(f"{storage.root.as_uri()}?{other}")
    with pytest.raises(DefinitionError, match="was begun with other options"):
        storage.runs.run()
    storage.runs.target.open = lambda: open_sink(f"{storage.uri}&date-separator=month&file-index-digit=8")
    storage.upstream.execute(Insert(A, {"id": 2, "v": "in a file with another name"}))
    storage.runs.applied()


def test_a_file_of_another_writer_is_left_alone(storage: Storage) -> None:
    upstream = storage.upstream
    two_tables(upstream)
    storage.runs.applied()
    upstream.execute(Insert(A, {"id": 2, "v": "ours"}))
    upstream.checkpoint()
    (first,) = storage.root.glob("shop/a/*/*/CDC*.csv")
    theirs = first.with_name(first.name.replace("1.csv", "2.csv"))

    def write(_: Passage) -> None:
        theirs.write_text("theirs")

    with pytest.raises(SinkUnreachableError, match="was written by something else"):
        storage.runs.run(at(1, write, lambda passage: (passage.moment, passage.step) == (Moment.BEFORE, PUBLISH)))
    assert theirs.read_text() == "theirs"
    theirs.unlink()
    storage.runs.applied()


def test_a_publication_that_is_lost_is_no_completed_one(storage: Storage) -> None:
    upstream = storage.upstream
    two_tables(upstream)
    storage.runs.applied()
    upstream.execute(Insert(A, {"id": 2, "v": "committed"}))
    upstream.checkpoint()

    def lose(passage: Passage) -> None:
        for path in storage.root.glob("_headrace/cuts/*/publication.json"):
            path.unlink()
        raise Crashed(str(passage))

    with pytest.raises(Crashed):
        storage.runs.run(at(1, lose, lambda passage: (passage.moment, passage.step) == (Moment.BEFORE, PUBLISH)))
    with pytest.raises(SinkUnreachableError, match=r"publication.json in .* is gone: the last cut cannot be published"):
        storage.runs.run()


def test_a_resync_is_refused(storage: Storage) -> None:
    two_tables(storage.upstream)
    storage.runs.applied()
    with storage.runs.opened() as (_, ledger), pytest.raises(DefinitionError, match="cannot be loaded anew"):
        ledger.request("suite", TableRequest("1", A, RequestKind.RESYNC, to=1))


def test_a_database_is_dropped_in_another_case(storage: Storage) -> None:
    upstream = storage.upstream
    two_tables(upstream)
    storage.runs.applied()
    upstream.typed = lambda table_id: TableId(table_id.database.upper(), table_id.table)
    upstream.drop_database(SHOP)
    upstream.create_database(SHOP)
    upstream.create_table(A, [ID])
    upstream.execute(Insert(A, {"id": 5}))
    storage.runs.applied()


@pytest.mark.parametrize("name", ["metadata", "_headrace", "a/b", "..", "\N{GRINNING FACE}" * 64])
def test_a_name_that_no_folder_can_have_is_refused(storage: Storage, name: str) -> None:
    upstream = storage.upstream
    two_tables(upstream)
    upstream.create_database(name)
    upstream.create_table(TableId(name, "t"), [ID])
    upstream.execute(Insert(TableId(name, "t"), {"id": 1}), Insert(A, {"id": 2}))
    upstream.checkpoint()
    stopped = storage.runs.run().stopped
    assert {problem.table_id.database for problem in stopped} == {name}
    assert len([line for line in storage.lines() if '"a"' in line]) == 2


def test_a_table_is_found_in_another_case(storage: Storage) -> None:
    upstream = storage.upstream
    upstream.typed = lambda table_id: TableId(table_id.database, table_id.table.upper())
    two_tables(upstream)
    storage.runs.applied()
    upstream.rename_table(A, TableId(SHOP, "c"))
    upstream.drop_table(B)
    upstream.create_table(B, [ID])
    upstream.execute(Insert(B, {"id": 5}))
    storage.runs.applied()


@pytest.mark.parametrize(
    ("parameters", "told"),
    [
        ("", "does not say its protocol. Add protocol=csv or protocol=canal-json"),
        ("protocol=avro", "protocol=avro is not a choice of a storage sink"),
        ("protocol=csv&enable-tidb-extension=true", "Unknown parameter of a storage sink with protocol=csv"),
        ("protocol=csv&file-size=3", "file-size=3 is not possible. Write a number from 1024 to 536870912"),
        ("protocol=csv&output-old-value=maybe", "output-old-value=maybe is neither true nor false"),
        ("protocol=csv&delimiter=%22", "delimiter"),
        ("protocol=canal-json&time-zone=Mars", "Mars"),
        ("protocol=csv&date-separator=week", "date-separator=week is not a choice of a storage sink"),
    ],
)
def test_options_that_cannot_work_are_said_at_once(tmp_path: Path, parameters: str, told: str) -> None:
    with pytest.raises(DefinitionError) as raised:
        open_sink(f"{tmp_path.as_uri()}/changes?{parameters}")
    assert told in str(raised.value)


def test_a_folder_that_is_a_file_is_found_by_a_check(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with open_sink(f"{(tmp_path / 'file').as_uri()}/changes?protocol=csv") as sink:
        (check,) = sink.check()
    assert check.state is CheckState.FAILED
    assert "is not a folder" in check.detail


def applied(root: Path, *changes: SchemaChange) -> dict[str, tuple[str, int]]:
    """Statement and number in each schema file of a cut with these changes, by the table's folder."""
    store = TargetStore(place_at(Location.of_folder(str(root)), "target"))
    writer = CutWriter(store, read_output(parse_uri("file:///x?protocol=csv")), TargetTables(store, column_ids=False))
    applier = StorageMetadataApplier(writer, column_ids=False, adopt=False)
    writer.begin()
    for change in changes:
        applier.apply_schema_change(change)
    texts = [(key, json.loads(text)) for one in writer.publication(0).rounds for key, text in one.texts.items()]
    return {key.partition("/meta/")[0]: (file["Query"], file["Type"]) for key, file in texts}


def created(table_id: TableId, commit_ts: int) -> SchemaChange:
    schema = TableSchema(table_id, (ID,), ("id",))
    statement = f"CREATE TABLE {table_id.quoted} (`id` INT PRIMARY KEY)"
    events = (CreateTableEvent(table_id, schema),)
    return SchemaChange(commit_ts, table_id, events, statement, SHOP, frozenset({table_id}), schema=schema)


def test_a_statement_that_drops_several_tables_is_one_file_for_each(tmp_path: Path) -> None:
    both = frozenset({A, B})
    dropped = SchemaChange(20, A, (DropTableEvent(A), DropTableEvent(B)), "DROP TABLE a, b", SHOP, both)
    assert applied(tmp_path, created(A, 10), created(B, 11), dropped) == {
        "shop/a": ("DROP TABLE `shop`.`a`", 4),
        "shop/b": ("DROP TABLE `shop`.`b`", 4),
    }


def test_a_table_without_a_file_is_dropped_too(tmp_path: Path) -> None:
    """It was there before the changefeed, so readers may have it."""
    dropped = SchemaChange(20, A, (DropTableEvent(A),), "DROP TABLE a", SHOP, frozenset({A}))
    assert applied(tmp_path, dropped) == {"shop/a": ("DROP TABLE a", 4)}


def test_a_statement_that_needs_another_current_database_waits(tmp_path: Path) -> None:
    change = replace(created(A, 10), statement="CREATE TABLE shop.a LIKE pattern", database="other")
    with pytest.raises(SchemaChangeRefused, match="names tables of the database other without that database"):
        applied(tmp_path, change)


def test_renames_of_one_statement_are_a_file_under_each_new_name(tmp_path: Path) -> None:
    c, d = TableId(SHOP, "c"), TableId(SHOP, "d")
    events = (RenameTableEvent(A, c), RenameTableEvent(B, d))
    renamed = SchemaChange(20, c, events, "RENAME TABLE a TO c, b TO d", SHOP, frozenset({A, B, c, d}), schema=created(c, 1).schema)
    found = applied(tmp_path, created(A, 10), created(B, 11), renamed)
    assert (found["shop/c"], found["shop/d"]) == (
        ("RENAME TABLE `shop`.`a` TO `shop`.`c`", 14),
        ("RENAME TABLE `shop`.`b` TO `shop`.`d`", 14),
    )
