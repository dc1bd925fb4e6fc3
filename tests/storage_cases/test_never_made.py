"""Tables that nothing made yet: they never count as the pipeline's, and their beginning is never passed over."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest
from building import Bucket, ask, decide, ledger, tables

from headrace.engine import loop
from headrace.model.policy import ChangeKind, Policy, SchemaChangePolicies
from headrace.model.progress import RequestKind, TableRequest, TableStatus, Verdict
from headrace.model.table import TableId

pytestmark = pytest.mark.pipeline

T = TableId("test", "t")


@pytest.fixture(autouse=True)
def _one_look(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "_LOOKS", 0)


@pytest.fixture
def bucket(tmp_path: Path) -> Bucket:
    """A table ``t`` of which there is only a data file without its schema file."""
    bucket = Bucket(tmp_path)
    tables(bucket, "o")
    path = bucket.create("t")
    bucket.rows("t/100/1", "I 110 1 a")
    (bucket.root / path).unlink()
    assert set(bucket.at(120).stopped) == {"test.t"}
    return bucket


def give_up_its_file(bucket: Bucket) -> None:
    ask(bucket, TableRequest("1", T, RequestKind.SKIP_FILE, file="test/t/100/CDC000001.csv"))
    assert (bucket.at(130).code, ledger(bucket).tables[T].status) == (0, TableStatus.GONE)


def test_a_table_whose_only_file_was_given_up_is_not_the_pipelines(bucket: Bucket) -> None:
    give_up_its_file(bucket)
    with duckdb.connect(str(bucket.database)) as connection:
        connection.execute("CREATE TABLE test.t (mine INT)")
    bucket.schema("", 200, statement="DROP DATABASE `test`", type=2)
    ran = bucket.at(300)
    assert (ran.code, bucket.state("t")) == (0, [])
    assert "it also holds table t, which is not this pipeline's" in ran.told


@pytest.mark.parametrize(
    ("version", "shape", "statement", "rows"),
    [
        (100, "id,v", "CREATE TABLE `t` (`id` INT PRIMARY KEY,`v` VARCHAR(16))", [(5, "late")]),
        (200, "id,v", "CREATE TABLE `t` (`id` INT PRIMARY KEY,`v` VARCHAR(16))", [(5, "late")]),
        (200, "id,v,c", "ALTER TABLE `t` ADD COLUMN `c` INT DEFAULT 7", [(5, "late", 7)]),
    ],
)
def test_what_comes_after_all_begins_it(bucket: Bucket, version: int, shape: str, statement: str, rows: list[object]) -> None:
    give_up_its_file(bucket)
    bucket.schema("t", version, shape, statement)
    bucket.rows(f"t/{version}/2", f"I {version + 50} 5 late" + (" 7" if shape.endswith("c") else ""))
    assert bucket.at(300).code == 0
    assert bucket.state("t") == rows


def test_a_shape_from_before_the_start_waits_for_its_approval(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path)
    bucket.create("t")
    bucket.rows("t/100/1", "I 110 1 a", "I 600 2 b")
    asks = {"start": 500, "policies": SchemaChangePolicies({ChangeKind.CREATE_TABLE: Policy.APPROVE})}
    for checkpoint in (700, 710):
        assert set(bucket.at(checkpoint, **asks).stopped) == {"test.t"}
        assert not ledger(bucket).tables[T].is_made
    decide(bucket, Verdict.APPROVE)
    assert bucket.at(800, **asks).code == 0
    assert bucket.state("t") == [(2, "b")]


def test_somebodys_table_is_not_taken_over_by_a_shape_from_before_the_start(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path)
    bucket.create("t")
    bucket.rows("t/100/1", "I 600 2 b")
    with duckdb.connect(str(bucket.database)) as connection:
        connection.execute(
            "CREATE SCHEMA test; CREATE TABLE test.t (id INT PRIMARY KEY, v TEXT); INSERT INTO test.t VALUES (7, 'mine')"
        )
    for checkpoint in (700, 710):
        assert "was not created by Headrace" in bucket.at(checkpoint, start=500).stopped["test.t"]
    bucket.schema("t", 750, "id,v", "DROP TABLE `t`", 4)
    bucket.at(800, start=500)
    assert bucket.state("t") == [(7, "mine")]


def test_a_schema_change_at_the_start_is_in_the_snapshot(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path)
    bucket.create("t")
    bucket.rows("t/100/1", "I 110 1 a")
    bucket.schema("t", 200, "id,v", "TRUNCATE TABLE `test`.`t`", 11)
    bucket.rows("t/200/1", "I 210 3 c")
    with duckdb.connect(str(bucket.database)) as connection:
        connection.execute("CREATE SCHEMA test; CREATE TABLE test.t (id INTEGER, v VARCHAR)")
        connection.execute("INSERT INTO test.t VALUES (9, 'snapshot')")
    assert bucket.at(300, start=200, adopt=True).code == 0
    assert bucket.state("t") == [(3, "c"), (9, "snapshot")]
