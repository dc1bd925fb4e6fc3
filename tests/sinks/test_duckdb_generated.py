"""Virtual generated columns in a real DuckDB file: rows do not carry them, DuckDB computes them."""

from __future__ import annotations

from pathlib import Path

import pytest
from duckdb_target import ID, T, Target, column, shape

from headrace.model.table import Column, TableId, TableSchema
from headrace.model.types import TypeKind
from headrace.sinks.duckdb.catalog import MARK

pytestmark = pytest.mark.long  # each test opens a dozen database files

A, V = column("a"), column("v", TypeKind.BIGINT)
CREATED = "CREATE TABLE t (id INT PRIMARY KEY, a INT, v BIGINT AS (a * 2), KEY (v))"
COMMENT = "SELECT comment FROM duckdb_tables() WHERE table_name = 't'"


@pytest.fixture
def target(tmp_path: Path) -> Target:
    """A table with a virtual column and a row."""
    target = Target(tmp_path / "test.duckdb")
    assert target.run(CREATED, shape(A, V)) == ()
    target.sql("INSERT INTO test.t BY NAME SELECT 1 AS id, 10 AS a")
    return target


def test_virtual_columns_are_computed_in_their_place_and_stored_ones_are_plain(tmp_path: Path) -> None:
    target = Target(tmp_path / "test.duckdb")
    text = "CREATE TABLE t (id INT PRIMARY KEY, w INT AS (v + 1), v INT AS (a * 2) VIRTUAL, a INT, s INT AS (a) STORED)"
    assert target.run(text, shape(column("w"), column("v"), A, column("s"), column("_V$_i_0"))) == ()
    assert [name for name, _ in target.columns()] == ["id", "w", "v", "a", "s"]
    target.sql("INSERT INTO test.t BY NAME SELECT 1 AS id, 10 AS a, 7 AS s")
    assert target.sql("FROM test.t") == [(1, 21, 20, 10, 7)]


@pytest.mark.parametrize("expression", ["SLEEP(a)", "a || 'x'", "w", "absent + 1"])
def test_what_duckdb_cannot_compute_is_left_out_and_told(tmp_path: Path, expression: str) -> None:
    target = Target(tmp_path / "test.duckdb")
    created = f"CREATE TABLE t (id INT PRIMARY KEY, a INT, v BIGINT AS ({expression}), w INT AS (SLEEP(1)))"
    first, second = target.run(created, shape(A, V, column("w")))
    assert first.sentence().endswith(f"column v was left out, since DuckDB cannot compute its expression: {expression}")
    assert (first.table_id, second.table_id) == (T, T)
    assert [name for name, _ in target.columns()] == ["id", "a"]


def test_a_virtual_column_of_a_type_that_duckdb_lacks_is_left_out(tmp_path: Path) -> None:
    long = column("v", TypeKind.DECIMAL, length=65, scale=3)
    (notice,) = Target(tmp_path / "test.duckdb").run(CREATED.replace("BIGINT", "DECIMAL(65,3)"), shape(A, long))
    assert "column v was left out" in notice.message


def test_a_virtual_column_is_added_to_a_table_with_rows(target: Target) -> None:
    target.run("ALTER TABLE t ADD w INT AS (v + b), ADD b INT DEFAULT 5", shape(A, V, column("w"), column("b", default="5")))
    assert target.sql("SELECT id, a, v, b, w FROM test.t") == [(1, 10, 20, 5, 25)]
    assert target.sql(COMMENT) == [(MARK,)]


def test_a_virtual_column_that_cannot_be_computed_is_not_added(target: Target) -> None:
    (notice,) = target.run("ALTER TABLE t ADD w INT AS (SLEEP(1))", shape(A, V, column("w")))
    assert "column w was left out" in notice.message
    assert target.run("ALTER TABLE t RENAME COLUMN w TO x", shape(A, V, column("x"))) == ()
    assert target.run("ALTER TABLE t DROP COLUMN x", shape(A, V)) == ()


@pytest.mark.parametrize(
    ("statement", "after", "expected"),
    [
        ("ADD b INT", (A, V, column("b")), {"id": 1, "a": 10, "v": 20, "b": None}),
        ("DROP COLUMN v", (A,), {"id": 1, "a": 10}),
        ("DROP COLUMN a, DROP COLUMN v", (), {"id": 1}),
        ("RENAME COLUMN v TO w", (A, column("w", TypeKind.BIGINT)), {"id": 1, "a": 10, "w": 20}),
        ("MODIFY a DECIMAL(9,1)", (column("a", TypeKind.DECIMAL, length=9, scale=1), V), {"id": 1, "a": 10, "v": 20}),
        ("MODIFY v INT AS (a * 2)", (A, column("v")), {"id": 1, "a": 10, "v": 20}),
        ("MODIFY v BIGINT AS (a * 3)", (A, V), {"id": 1, "a": 10, "v": 30}),
        ("MODIFY v BIGINT AS (a * 2) FIRST", (V, A), {"id": 1, "a": 10, "v": 20}),
        ("DROP COLUMN v, ADD v BIGINT DEFAULT 4", (A, column("v", TypeKind.BIGINT, default="4")), {"id": 1, "a": 10, "v": 4}),
        ("DROP COLUMN a, ADD a INT AS (id)", (A,), {"id": 1, "a": 1}),
        ("ADD w INT AS (v), MODIFY a BIGINT", (column("a", TypeKind.BIGINT), V, column("w")), {"id": 1, "a": 10, "v": 20, "w": 20}),
    ],
)
def test_a_table_with_virtual_columns_is_altered(
    target: Target, statement: str, after: tuple[Column, ...], expected: dict[str, int | None]
) -> None:
    assert target.run(f"ALTER TABLE t {statement}", shape(*after)) == ()
    names = list(expected)
    assert sorted(str(name) for name, _ in target.columns()) == sorted(names)
    assert target.sql(f"SELECT {', '.join(names)} FROM test.t") == [tuple(expected.values())]
    assert target.sql(COMMENT) == [(MARK,)]


def test_a_virtual_column_that_no_longer_can_be_computed_is_dropped_and_told(target: Target) -> None:
    (notice,) = target.run("ALTER TABLE t MODIFY a VARCHAR(9)", shape(column("a", TypeKind.VARCHAR, length=9), V))
    assert "column v was left out" in notice.message
    assert target.sql("FROM test.t") == [(1, "10")]


def test_virtual_columns_follow_a_table_to_another_database(target: Target) -> None:
    other = TableId("other", "t")
    target.run("RENAME TABLE t TO other.t", TableSchema(other, (ID, A, V), ("id",)))
    target.sql("UPDATE other.t SET a = 11")
    assert target.sql("FROM other.t") == [(1, 11, 22)]
    assert target.sql(COMMENT) == [(MARK,)]


def test_a_table_that_was_there_gets_the_virtual_columns_it_lacks(target: Target) -> None:
    created, whole = target.before, CREATED.replace("KEY (v)", "w INT AS (a)")
    target.sql("DELETE FROM test.t")  # one with rows is not begun anew
    target.before = None
    assert target.run(CREATED, created) == ()
    target.before = None
    assert target.run(whole, shape(A, V, column("w"))) == ()
    target.sql("INSERT INTO test.t BY NAME SELECT 1 AS id, 10 AS a")
    assert target.sql("FROM test.t") == [(1, 10, 20, 10)]


def test_one_cut_may_write_rows_and_rebuild(target: Target) -> None:
    database = target.sink.metadata_applier.database
    database.begin_cut()
    with database.transaction() as session:
        session.execute("INSERT INTO test.t BY NAME SELECT 2 AS id, 20 AS a")
        session.execute("DELETE FROM test.t WHERE id = 1")
    target.run("ALTER TABLE t ADD w INT AS (a + 1)", shape(A, V, column("w")))
    with database.transaction() as session:
        session.execute("INSERT INTO test.t BY NAME SELECT 3 AS id, 30 AS a")
    database.commit_cut()
    assert target.sql("FROM test.t ORDER BY id") == [(2, 20, 40, 21), (3, 30, 60, 31)]
