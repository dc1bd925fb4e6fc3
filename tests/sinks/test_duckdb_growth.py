"""What a schema change costs in DuckDB grows in proportion to its statement, whatever its generated columns are made of.

What is measured is the time of twice as many against that of once as many, in time of the processor. DuckDB puts virtual columns
into each other, and its time cannot be cut short: what would take long is left out.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from duckdb_target import NOON, T, Target, column, shape

from headrace.model.events import DeletePartitionRowsEvent, SchemaChange
from headrace.model.table import TableSchema
from headrace.model.types import TypeKind
from headrace.sinks.duckdb.generated import MOST_COLUMNS
from headrace.sinks.metadata_applier import SchemaChangeRefused

pytestmark = pytest.mark.long

REPEATED = 60
MAKES: dict[str, Callable[[int, int], str]] = {
    "of plain ones": lambda number, count: "id + 1",
    "of the one before": lambda number, count: f"c{number - 1} + 1" if number else "id",
    "of the one behind": lambda number, count: f"c{number + 1} + 1" if number < count - 1 else "id",
    "of the one before twice": lambda number, count: f"c{number - 1} + c{number - 1}" if number else "id",
    "of the one behind three times": lambda number, count: " + ".join([f"c{number + 1}" if number < count - 1 else "id"] * 3),
    "of all before": lambda number, count: " + ".join(["id", *(f"c{other}" for other in range(number))]),
    "of each other": lambda number, count: f"c{number ^ 1} + 1",
    "of what is not there": lambda number, count: f"c{number - 1} + absent" if number else "id",
    "of JSON": lambda number, count: f"JSON_UNQUOTE(JSON_EXTRACT({f'c{number - 1}' if number else 'j'}, '$.a'))",
    "of what DuckDB refuses": lambda number, count: "CONCAT(REPEAT('a', id))" if number % 2 else "id",
}


def created(count: int, make: Callable[[int, int], str]) -> tuple[str, TableSchema]:
    parts = ", ".join(f"c{number} BIGINT AS ({make(number, count)})" for number in range(count))
    columns = [column("j", TypeKind.JSON), *(column(f"c{number}", TypeKind.BIGINT) for number in range(count))]
    return f"CREATE TABLE t (id INT PRIMARY KEY, j JSON, {parts})", shape(*columns)


@pytest.mark.parametrize("made", MAKES)
def test_twice_as_many_virtual_columns_take_about_twice_as_long(made: str, tmp_path: Path) -> None:
    def seconds(count: int) -> float:
        statement, after = created(count, MAKES[made])
        target = Target(tmp_path / f"{count}.duckdb")
        began = time.process_time()
        target.run(statement, after)
        target.sql("INSERT INTO test.t BY NAME SELECT 1 AS id")
        target.sql("DELETE FROM test.t WHERE id = 7")
        return time.process_time() - began

    once, twice = seconds(REPEATED), seconds(2 * REPEATED)
    assert twice < 3 * once + 3, f"{once:.3f} s for {REPEATED}, {twice:.3f} s for twice as many"
    assert once < 10


def test_columns_that_would_grow_beyond_all_bounds_are_left_out_with_a_sentence(tmp_path: Path) -> None:
    statement, after = created(40, MAKES["of the one before twice"])
    target = Target(tmp_path / "t.duckdb")
    notices = target.run(statement, after)
    names = [name for name, _ in target.columns()]
    assert names[2:] == [f"c{number}" for number in range(len(names) - 2)]
    assert [notice.message.split(",")[0] for notice in notices] == [
        f"virtual column c{number} was left out" for number in range(len(names) - 2, 40)
    ]
    assert "parts, which slows down each statement" in notices[0].message


def test_of_more_columns_than_duckdb_handles_quickly_one_sentence_tells_which_are_left_out(tmp_path: Path) -> None:
    statement, after = created(MOST_COLUMNS + 50, MAKES["of plain ones"])
    target = Target(tmp_path / "t.duckdb")
    (notice,) = target.run(statement, after)
    assert "c256, c257" in notice.message
    assert "and 30 more" in notice.message
    assert len(target.columns()) == 2 + MOST_COLUMNS


def test_columns_that_are_added_one_after_another_do_not_pass_the_bound(tmp_path: Path) -> None:
    """Each comes first in the shape, so that it would count before those that the table has."""
    target = Target(tmp_path / "t.duckdb")
    wide = f"COALESCE({', '.join(['id'] * 400)})"
    names: list[str] = []
    target.run("CREATE TABLE t (id INT PRIMARY KEY)", shape())
    told = []
    for number in range(16):
        names.insert(0, f"c{number}")
        statement = f"ALTER TABLE t ADD COLUMN c{number} BIGINT AS ({wide}) FIRST"
        told += target.run(statement, shape(*(column(name, TypeKind.BIGINT) for name in names)))
    assert "more than 10,000 parts" in told[0].message
    assert [name for name, _ in target.columns()][1:] == [f"c{number}" for number in range(len(target.columns()) - 1)]


def test_columns_that_would_nest_too_deep_for_each_write_are_left_out_with_a_sentence(tmp_path: Path) -> None:
    """CREATE TABLE of all of them is accepted, and each write would fail."""
    statement, after = created(40, lambda number, count: (f"c{number - 1}" if number else "id") + " + 1" * 40)
    target = Target(tmp_path / "t.duckdb")
    notices = target.run(statement, after)
    assert len(notices) == 40 - len(target.columns()) + 2
    assert all("was left out" in notice.message for notice in notices)
    assert len(target.columns()) > 5
    target.sql("INSERT INTO test.t BY NAME SELECT 1 AS id")
    target.sql("UPDATE test.t SET id = 2")
    target.sql("MERGE INTO test.t USING (SELECT 2 AS id) AS s ON t.id = s.id WHEN MATCHED THEN DELETE")


def test_columns_of_a_long_chain_stand_behind_what_they_are_made_of(tmp_path: Path) -> None:
    target = Target(tmp_path / "t.duckdb")
    statement, after = created(30, MAKES["of the one behind"])
    assert target.run(statement, after) == ()
    assert [name for name, _ in target.columns()] == ["id", "j", *(f"c{number}" for number in reversed(range(30)))]


def test_a_long_expression_is_not_told_whole(tmp_path: Path) -> None:
    statement, after = created(1, lambda number, count: "SLEEP(" + "1+" * 5_000 + "1)")
    (notice,) = Target(tmp_path / "t.duckdb").run(statement, after)
    assert len(notice.message) < 400


def test_a_condition_that_virtual_columns_would_make_long_waits(tmp_path: Path) -> None:
    target = Target(tmp_path / "t.duckdb")
    statement, after = created(1, lambda number, count: f"COALESCE({', '.join(['id'] * 400)})")
    target.run(statement, after)
    short, long = ("+".join(["c0"] * count) + " > 7" for count in (2, 100))

    def delete(condition: str) -> None:
        event = DeletePartitionRowsEvent(T, ("p0",), condition)
        change = SchemaChange(
            NOON, T, (event,), "ALTER TABLE t TRUNCATE PARTITION p0", "test", frozenset({T}), schema=target.before
        )
        target.sink.metadata_applier.apply_schema_change(change)

    delete(short)
    with pytest.raises(SchemaChangeRefused, match="with virtual columns put into it, the condition is too long"):
        delete(long)
