"""Partitions that the source drops, empties and exchanges, in a DuckDB file, which has none."""

from __future__ import annotations

from pathlib import Path

import pytest
from duckdb_target import NOON, Target, column, shape

from headrace.ddl.classify import classify
from headrace.ddl.partitions import partitioning_after
from headrace.model.events import SchemaChange
from headrace.model.outcome import Notice, Remedy
from headrace.model.place import PlaceInFile
from headrace.model.table import TableId, TableSchema
from headrace.model.types import TypeKind
from headrace.sinks.metadata_applier import SchemaChangeRefused

pytestmark = pytest.mark.long  # each test opens a dozen database files

T, U = TableId("test", "t"), TableId("test", "u")
SHAPE = shape(column("v", TypeKind.VARCHAR, length=9), table_id=T)
RANGES = """CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(9)) PARTITION BY RANGE (id)
    (PARTITION p0 VALUES LESS THAN (10), PARTITION p1 VALUES LESS THAN (20), PARTITION pm VALUES LESS THAN (MAXVALUE))"""
ROWS = "INSERT INTO test.t VALUES (-1, 'a'), (9, 'b'), (10, 'c'), (19, 'd'), (20, 'e')"

SCHEMA_FILE = PlaceInFile("schema_1.json")


class Partitioned:
    """A target and the partitions of its table ``t``, as the source's catalogue follows them."""

    def __init__(self, path: Path, create: str = RANGES, schema: TableSchema = SHAPE, **options: object) -> None:
        self.target = Target(path / "test.duckdb", **options)
        self.schema = schema
        self.target.run(create, schema)
        self.known = partitioning_after(None, create, "test")

    def alter(self, statement: str) -> tuple[Notice, ...]:
        schema = self.schema
        found = classify(statement, database="test", table_id=T, before=schema, after=schema, partitioning=self.known)
        self.known = partitioning_after(self.known, statement, "test")
        change = SchemaChange(NOON, T, found.events, statement, "test", found.changes, found.reads, schema, SCHEMA_FILE)
        return self.target.sink.metadata_applier.apply_schema_change(change)

    def refused(self, statement: str) -> str:
        """Why the statement is refused; the table then has to be loaded anew."""
        with pytest.raises(SchemaChangeRefused) as caught:
            self.alter(statement)
        problem = caught.value.problem
        assert problem.remedy is Remedy.RESYNC
        assert problem.place == SCHEMA_FILE
        assert "Load the table anew" in problem.hint
        return problem.message

    def ids(self, table: str = "t") -> list[object]:
        return [row[0] for row in self.target.sql(f"SELECT id FROM test.{table} ORDER BY id")]


@pytest.fixture
def partitioned(tmp_path: Path) -> Partitioned:
    made = Partitioned(tmp_path)
    made.target.sql(ROWS)
    return made


@pytest.mark.parametrize(
    ("statement", "left"),
    [
        ("ALTER TABLE t DROP PARTITION p0", [10, 19, 20]),
        ("ALTER TABLE t TRUNCATE PARTITION P1, pm", [-1, 9]),
        ("ALTER TABLE t TRUNCATE PARTITION ALL", []),
    ],
)
def test_the_rows_of_partitions_go(partitioned: Partitioned, statement: str, left: list[int]) -> None:
    assert partitioned.alter(statement) == ()
    assert partitioned.ids() == left


def test_partitions_are_followed_from_statement_to_statement(partitioned: Partitioned) -> None:
    partitioned.alter("ALTER TABLE t DROP PARTITION p1")
    partitioned.target.sql("INSERT INTO test.t VALUES (15, 'now in pm')")
    (notice,) = partitioned.alter(
        "ALTER TABLE t REORGANIZE PARTITION pm INTO (PARTITION a VALUES LESS THAN (16), PARTITION b VALUES LESS THAN (MAXVALUE))"
    )
    assert "nothing was done" in notice.message
    partitioned.alter("ALTER TABLE t TRUNCATE PARTITION a")
    assert partitioned.ids() == [-1, 9, 20]


def test_an_exchange_swaps_rows(partitioned: Partitioned) -> None:
    partitioned.target.sql("CREATE TABLE test.u (V VARCHAR, id INTEGER)")
    partitioned.target.sql("INSERT INTO test.u VALUES ('x', 11), ('y', 12)")
    partitioned.alter("ALTER TABLE t EXCHANGE PARTITION p1 WITH TABLE u")
    assert partitioned.ids() == [-1, 9, 11, 12, 20]
    assert partitioned.target.sql("SELECT id, v FROM test.u ORDER BY id") == [(10, "c"), (19, "d")]
    partitioned.alter("ALTER TABLE t EXCHANGE PARTITION p1 WITH TABLE u WITHOUT VALIDATION")
    assert partitioned.ids() == [-1, 9, 10, 19, 20]
    assert partitioned.ids("u") == [11, 12]


def test_an_exchange_is_a_part_of_its_cut(partitioned: Partitioned) -> None:
    partitioned.target.sql("CREATE TABLE test.u AS SELECT 11::INTEGER AS id, 'x' AS v")
    sink = partitioned.target.sink
    sink.begin_cut()
    for _ in range(3):
        partitioned.alter("ALTER TABLE t EXCHANGE PARTITION p1 WITH TABLE u")
    sink.abandon_cut()
    assert (partitioned.ids(), partitioned.ids("u")) == ([-1, 9, 10, 19, 20], [11])
    sink.begin_cut()
    for _ in range(3):
        partitioned.alter("ALTER TABLE t EXCHANGE PARTITION p1 WITH TABLE u")
    sink.metadata_applier.database.commit_cut()
    assert (partitioned.ids(), partitioned.ids("u")) == ([-1, 9, 11, 20], [10, 19])


def test_rows_that_were_let_in_without_validation_are_refused(partitioned: Partitioned) -> None:
    partitioned.target.sql("CREATE TABLE test.u AS SELECT 99::INTEGER AS id, 'x' AS v")
    message = partitioned.refused("ALTER TABLE t EXCHANGE PARTITION p1 WITH TABLE u WITHOUT VALIDATION")
    assert "test.u do not belong in partition p1" in message
    assert partitioned.ids() == [-1, 9, 10, 19, 20]


def test_an_exchange_with_a_table_that_is_not_here_is_refused(partitioned: Partitioned) -> None:
    assert "test.u, whose rows" in partitioned.refused("ALTER TABLE t EXCHANGE PARTITION p1 WITH TABLE u")


def test_an_exchange_of_other_shapes_is_refused(partitioned: Partitioned) -> None:
    partitioned.target.sql("CREATE TABLE test.u (id INTEGER)")
    assert "are not those of test.u" in partitioned.refused("ALTER TABLE t EXCHANGE PARTITION p1 WITH TABLE u")


@pytest.mark.parametrize(
    "statement",
    [
        "ALTER TABLE t DROP PARTITION p7",
        "ALTER TABLE t FIRST PARTITION LESS THAN (10)",
        "RECOVER TABLE t",
        "FLASHBACK TABLE t",
        "FLASHBACK DATABASE test",
    ],
)
def test_rows_that_nobody_can_tell_are_refused(partitioned: Partitioned, statement: str) -> None:
    assert "changes rows without change events" in partitioned.refused(statement)


BY_TEXT = """CREATE TABLE t (id INT, v VARCHAR(9)) PARTITION BY LIST COLUMNS (v)
    (PARTITION p0 VALUES IN (_UTF8MB4'eu', 'it''s'), PARTITION p1 VALUES IN ('us', NULL))"""


def test_texts_that_a_partition_lists_tell_its_rows(tmp_path: Path) -> None:
    partitioned = Partitioned(tmp_path, BY_TEXT)
    partitioned.target.sql("INSERT INTO test.t VALUES (1, 'eu'), (2, 'us'), (3, NULL), (4, 'it''s')")
    partitioned.alter("ALTER TABLE t TRUNCATE PARTITION p0")
    assert partitioned.ids() == [2, 3]


@pytest.mark.parametrize("value", ["EU", "eu ", "éu", "It's"])
def test_a_text_that_a_collation_may_hold_for_a_listed_one_is_refused(value: str, tmp_path: Path) -> None:
    partitioned = Partitioned(tmp_path, BY_TEXT)
    partitioned.target.sql(f"INSERT INTO test.t VALUES (1, 'eu'), (2, '{value.replace(chr(39), chr(39) * 2)}')")
    message = partitioned.refused("ALTER TABLE t DROP PARTITION p0")
    assert f"whether {value!r} in column v was in the partition depends on the source's unknown collation" in message


def test_partitions_that_an_order_of_texts_divides_are_refused(tmp_path: Path) -> None:
    create = "CREATE TABLE t (id INT, v VARCHAR(9)) PARTITION BY RANGE COLUMNS (v) (PARTITION p0 VALUES LESS THAN ('m'))"
    message = Partitioned(tmp_path, create).refused("ALTER TABLE t TRUNCATE PARTITION p0")
    assert "DuckDB cannot tell which rows were in the partition" in message
    assert "< ('m')" in message


def test_null_that_stands_for_a_missing_value_is_refused(partitioned: Partitioned) -> None:
    partitioned.target.sql("INSERT INTO test.t VALUES (NULL, 'x')")
    assert "column id" in partitioned.refused("ALTER TABLE t DROP PARTITION p0")


def test_a_column_that_decides_has_to_be_there(partitioned: Partitioned) -> None:
    partitioned.target.sql("ALTER TABLE test.t RENAME COLUMN id TO other")
    assert "column id" in partitioned.refused("ALTER TABLE t DROP PARTITION p0")


@pytest.mark.parametrize(
    ("kind", "key", "bound", "values", "left"),
    [
        (TypeKind.DATE, "TO_DAYS(at)", "TO_DAYS('2024-03-01')", ["NULL", "'2024-02-29'", "'2024-03-01'"], 1),
        (TypeKind.DATETIME, "YEAR(at)", "2024", ["'2023-12-31 23:59:59.9'", "'2024-01-01 00:00:00'"], 1),
        (TypeKind.TIMESTAMP, "UNIX_TIMESTAMP(at)", "1704067200", ["'2023-12-31 23:59:59+00'", "'2024-01-01 00:00:00+00'"], 1),
        (TypeKind.BIGINT, "at", "9223372036854775807", ["9223372036854775806", "9223372036854775807", "-1"], 1),
    ],
)
def test_old_rows_are_dropped_by_their_time(
    tmp_path: Path, kind: TypeKind, key: str, bound: str, values: list[str], left: int
) -> None:
    create = f"CREATE TABLE t (id INT, at {kind}) PARTITION BY RANGE ({key}) (PARTITION p0 VALUES LESS THAN ({bound}))"
    made = Partitioned(tmp_path, create, shape(column("at", kind), table_id=T))
    made.target.sql("INSERT INTO test.t VALUES " + ", ".join(f"({number}, {value})" for number, value in enumerate(values)))
    made.alter("ALTER TABLE t DROP PARTITION p0")
    assert len(made.ids()) == left


@pytest.mark.parametrize("statement", ["ALTER TABLE t TRUNCATE PARTITION p0", "ALTER TABLE t EXCHANGE PARTITION p0 WITH TABLE u"])
def test_a_null_that_may_stand_for_a_date_is_in_no_partition_for_certain(tmp_path: Path, statement: str) -> None:
    """2024-05-00 is held as NULL, which would be in the first partition."""
    create = """CREATE TABLE t (id INT PRIMARY KEY, d DATE) PARTITION BY RANGE COLUMNS (d)
        (PARTITION p0 VALUES LESS THAN ('2024-01-01'), PARTITION pm VALUES LESS THAN (MAXVALUE))"""
    dated = shape(column("d", TypeKind.DATE), table_id=T)
    partitioned = Partitioned(tmp_path, create, dated, zero_dates="null")
    partitioned.target.run("CREATE TABLE u (id INT PRIMARY KEY, d DATE)", shape(column("d", TypeKind.DATE), table_id=U), U)
    partitioned.target.sql("INSERT INTO test.t VALUES (1, '2023-01-01'), (2, '2024-05-05')")
    partitioned.alter(statement)
    assert partitioned.ids() == [2]
    partitioned.target.sql("INSERT INTO test.t VALUES (3, NULL)")
    assert "is NULL here in rows that may have a value upstream" in partitioned.refused(statement)
    assert partitioned.ids() == [2, 3]
