"""Runs that begin late (``--start``): tables that were made before are made by their shape of then, whatever comes in between."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest
from building import Bucket
from simulated import SimulatedBucket

from faulty_runs import at, crash
from headrace.errors import SourceNotReadyError
from headrace.model.ledger import RequestKind
from headrace.model.table import Column, TableId
from headrace.model.types import ColumnType, TypeKind
from headrace.testing.faults import Crashed, armed
from headrace.testing.memory_server import Table
from headrace.testing.memory_sink import CAPABILITIES
from quick import without_pauses

pytestmark = pytest.mark.pipeline

T = TableId("test", "t")
ANOTHER = Column("zz", ColumnType(TypeKind.INT))


def started(folder: Path, kind: str) -> SimulatedBucket:
    """One whose runs begin behind 150, with a target of this kind. Its table ``t`` was made at 100."""
    bucket = SimulatedBucket(folder, kind, start=150)
    bucket.create("t")
    bucket.rows("t/100/1", "I 110 1 a", "I 140 2 b", "I 170 5 c")
    return bucket


@pytest.mark.parametrize("kind", CAPABILITIES)
def test_a_first_run_that_dies_is_made_good_by_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    without_pauses(monkeypatch)
    number, died = 0, True
    while died:
        number += 1
        bucket = started(tmp_path / str(number), kind)
        try:
            with armed(at(number, crash)):
                bucket.apply(180)
            died = False
        except Crashed:
            pass
        assert (bucket.apply(190), bucket.apply(200), bucket.rows_of(T)) == (0, 0, [(5, "c")]), number
        own = bucket.own(T)
        assert (own.status.value, own.incarnation, own.is_made) == ("running", 100, True), number
    assert number > 10


@pytest.mark.parametrize("kind", CAPABILITIES)
@pytest.mark.parametrize("rows", [0, 1])
def test_a_table_that_was_in_the_way_is_never_taken_for_the_pipelines_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, rows: int
) -> None:
    without_pauses(monkeypatch)
    bucket = started(tmp_path, kind)
    in_the_way = Table({ANOTHER.name: ANOTHER}, {(n,): {"zz": n} for n in range(rows)})
    bucket.server.contents.tables[T] = in_the_way
    for checkpoint in (180, 190, 200):
        assert bucket.apply(checkpoint) == 3
        assert (list(bucket.server.contents.tables[T].columns), bucket.own(T).is_made) == (["zz"], False)
    del bucket.server.contents.tables[T]
    bucket.rows("t/100/2", "I 205 6 d")
    codes = [bucket.apply(210), bucket.apply(220)]
    assert (codes[-1], bucket.rows_of(T)) == (0, [(5, "c"), (6, "d")])


@pytest.mark.parametrize("kind", CAPABILITIES)
def test_a_table_that_is_made_again_behind_the_start_has_no_shape_of_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    without_pauses(monkeypatch)
    bucket = started(tmp_path, kind)
    assert bucket.apply(180) == 0
    bucket.schema("t", 185, "id,v", "DROP TABLE `t`", 4)
    assert bucket.apply(187) == 0
    bucket.server.contents.tables[T] = Table({ANOTHER.name: ANOTHER}, {})
    bucket.create("t", 190, "id,v,c")
    bucket.rows("t/190/1", "I 195 7 e 8")
    for checkpoint in (200, 210):
        assert bucket.apply(checkpoint) == 3
        assert list(bucket.server.contents.tables[T].columns) == ["zz"]
    del bucket.server.contents.tables[T]
    for checkpoint in (220, 230):
        bucket.apply(checkpoint)
    assert (bucket.rows_of(T), bucket.own(T).status.value) == ([(7, "e", 8)], "running")


@pytest.mark.parametrize("kind", CAPABILITIES)
def test_a_held_table_is_made_by_its_shape_when_it_is_released(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    without_pauses(monkeypatch)
    bucket = started(tmp_path, kind)
    bucket.create("o", 101)
    bucket.server.contents.tables[T] = Table({ANOTHER.name: ANOTHER}, {})
    assert bucket.apply(180) == 3
    bucket.ask(T, RequestKind.HOLD)
    bucket.apply(190)
    del bucket.server.contents.tables[T]
    bucket.apply(195)
    bucket.ask(T, RequestKind.RELEASE)
    for checkpoint in (200, 210):
        bucket.apply(checkpoint)
    assert (bucket.rows_of(T), bucket.own(T).status.value) == ([(5, "c")], "running")


def test_a_source_that_is_not_there_does_not_take_the_pipelines_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_pauses(monkeypatch)
    bucket, right = Bucket(tmp_path), Bucket(tmp_path / "right")
    bucket.root.rename(tmp_path / "elsewhere")
    for _ in range(2):
        with pytest.raises(SourceNotReadyError, match="There is no folder"):
            bucket.run()
    right.database = bucket.database
    right.create("t")
    right.rows("t/100/1", "I 110 1 a")
    assert (right.at(150).code, right.state()) == (0, [(1, "a")])


@pytest.mark.parametrize("start", [150, 151])
def test_a_schema_change_at_the_start_is_in_the_snapshot_whatever_the_first_cut_meets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, start: int
) -> None:
    without_pauses(monkeypatch)
    bucket = Bucket(tmp_path)
    with duckdb.connect(str(bucket.database)) as connection:
        connection.execute("CREATE SCHEMA test; CREATE TABLE test.t (id INTEGER PRIMARY KEY, c INTEGER, v VARCHAR)")
        connection.execute("INSERT INTO test.t VALUES (1, 8, 'a')")
    bucket.create("t")
    bucket.schema("t", 150, "id,c,v", "ALTER TABLE `t` ADD COLUMN `c` INT DEFAULT 7 AFTER `id`", 5)
    path = bucket.root / bucket.rows("t/150/1", "I 170 5 9 e")
    whole = path.read_text()
    path.write_text(whole.replace(",5,", ",zz,"))
    assert bucket.at(180, adopt=True, start=start).code == 3
    path.write_text(whole)
    for checkpoint in (190, 200):
        assert bucket.at(checkpoint, adopt=True, start=start).code == 0
    assert bucket.state() == [(1, 8, "a"), (5, 9, "e")]


@pytest.mark.parametrize("kind", CAPABILITIES)
def test_a_create_at_the_start_is_in_the_snapshot_wherever_a_run_dies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    without_pauses(monkeypatch)
    number, died = 0, True
    while died:
        number += 1
        bucket = started(tmp_path / str(number), kind)
        bucket.create("o", 150)
        bucket.rows("o/150/1", "I 170 1 o")
        try:
            with armed(at(number, crash)):
                bucket.apply(180)
            died = False
        except Crashed:
            pass
        assert (bucket.apply(190), bucket.apply(200), bucket.rows_of(T)) == (0, 0, [(5, "c")]), number
        assert bucket.own(TableId("test", "o")).status.value == "running", number
