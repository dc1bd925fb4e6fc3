"""Partitions into which MariaDB puts other rows than TiDB (what TiDB does was looked up on a TiDB v8.5)."""

from __future__ import annotations

import pytest
from mysql_writing import Target, acquired, column, table

from headrace.ddl.classify import classify
from headrace.ddl.partitions import partitioning_after
from headrace.model.events import SchemaChange
from headrace.model.outcome import Notice, Remedy
from headrace.model.place import PlaceInFile
from headrace.sinks.metadata_applier import SchemaChangeRefused

pytestmark = pytest.mark.server

SHAPE = table("t", [column("a", "INT"), column("v", "VARCHAR", length=20)], ())
T = SHAPE.table_id
HASH = "CREATE TABLE t (a INT, v VARCHAR(20)) PARTITION BY HASH (a) PARTITIONS 3"
KEY = "CREATE TABLE t (a INT, v VARCHAR(20)) PARTITION BY KEY (a) PARTITIONS 3"
LINEAR = "CREATE TABLE t (a INT, v VARCHAR(20)) PARTITION BY LINEAR HASH (a) PARTITIONS 3"
VALUES = "(-4, 'p1'), (-2, 'p2'), (0, 'p0'), (1, 'p1'), (2147483647, 'p1')"


@pytest.fixture
def target(mariadb) -> Target:
    return acquired(mariadb)


def filled(target: Target, create: str, rows: str = VALUES) -> None:
    target.execute(create.replace("TABLE t", "TABLE shop.t"))
    target.execute(f"INSERT INTO shop.t VALUES {rows}")


def alter(target: Target, create: str, statement: str, *, by_bytes: bool = False) -> tuple[Notice, ...]:
    known = partitioning_after(None, create, "shop")
    found = classify(statement, database="shop", table_id=T, before=SHAPE, after=SHAPE, partitioning=known)
    change = SchemaChange(
        5, T, found.events, statement, "shop", found.changes, found.reads, SHAPE, PlaceInFile("f.json"), by_bytes=by_bytes
    )
    return target.sink.metadata_applier.apply_schema_change(change)


def left(target: Target) -> list[str]:
    return sorted(str(row[0]) for row in target.execute("SELECT v FROM shop.t"))


def test_a_hash_partition_is_truncated_by_the_sources_statement_where_both_agree(target):
    filled(target, HASH)
    alter(target, HASH, "ALTER TABLE `t` TRUNCATE PARTITION `p1`")
    assert left(target) == ["p0", "p2"]


@pytest.mark.parametrize(("partition", "rows"), [("p0", ["p1", "p1", "p1", "p2"]), ("p2", ["null is p0", "p0", "p1", "p1", "p1"])])
def test_rows_without_a_value_are_where_tidb_has_them(target, partition, rows):
    filled(target, HASH, f"{VALUES}, (NULL, 'null is p0')")
    alter(target, HASH, f"ALTER TABLE `t` TRUNCATE PARTITION `{partition}`")
    assert left(target) == rows


@pytest.mark.parametrize(
    ("create", "rows", "statement"),
    [
        (KEY, VALUES, "ALTER TABLE `t` TRUNCATE PARTITION `p1`"),
        (LINEAR, VALUES, "ALTER TABLE `t` TRUNCATE PARTITION `p1`"),
        (HASH, f"{VALUES}, (NULL, 'x')", "ALTER TABLE `t` EXCHANGE PARTITION `p0` WITH TABLE `u`"),
        (HASH, f"{VALUES}, (NULL, 'x')", "ALTER TABLE `t` TRUNCATE PARTITION `p0`, COMMENT = 'x'"),
    ],
)
def test_where_other_rows_would_be_hit_the_table_needs_a_resync(target, create, rows, statement):
    filled(target, create, rows)
    target.execute("CREATE TABLE shop.u (a INT, v VARCHAR(20))")
    before = left(target)
    with pytest.raises(SchemaChangeRefused) as caught:
        alter(target, create, statement)
    assert caught.value.problem.remedy is Remedy.RESYNC
    assert "puts other rows than TiDB into a partition by" in caught.value.problem.message
    assert left(target) == before


def test_a_hash_partition_is_exchanged_where_both_agree(target):
    filled(target, HASH)
    target.execute("CREATE TABLE shop.u (a INT, v VARCHAR(20))")
    target.execute("INSERT INTO shop.u VALUES (3, 'new p0')")
    alter(target, HASH, "ALTER TABLE `t` EXCHANGE PARTITION `p0` WITH TABLE `u`")
    assert left(target) == ["new p0", "p1", "p1", "p1", "p2"]
    assert target.execute("SELECT v FROM shop.u") == [("p0",)]


def by_text(method: str, collation: str) -> str:
    partitions = {
        "RANGE": "PARTITION `p0` VALUES LESS THAN ('m'), PARTITION `p1` VALUES LESS THAN (MAXVALUE)",
        "LIST": "PARTITION `p0` VALUES IN ('anna'), PARTITION `p1` VALUES IN ('Zed', 'zoe')",
    }
    return f"CREATE TABLE t (a INT, v VARCHAR(20) COLLATE {collation}) PARTITION BY {method} COLUMNS (`V`) ({partitions[method]})"


TEXTS = "(1, 'anna'), (2, 'Zed'), (3, 'zoe')"
TRUNCATE = "ALTER TABLE `t` TRUNCATE PARTITION `p0`"
DROP = "ALTER TABLE `t` DROP PARTITION `p0`"
EXCHANGE = "ALTER TABLE `t` EXCHANGE PARTITION `p0` WITH TABLE `u`"


@pytest.mark.parametrize("statement", [TRUNCATE, DROP, EXCHANGE])
@pytest.mark.parametrize("method", ["RANGE", "LIST"])
@pytest.mark.parametrize(
    ("collation", "by_bytes"),
    [("utf8mb4_general_ci", False), ("utf8mb4_nopad_bin", False), ("utf8mb4_bin", True), ("utf8mb4_general_ci", True)],
)
def test_partitions_of_texts_that_the_source_may_compare_otherwise_need_a_resync(target, method, collation, by_bytes, statement):
    """``utf8mb4_nopad_bin`` may stand in for a collation of the source that has no equal here."""
    create = by_text(method, collation)
    filled(target, create, TEXTS)
    target.execute(f"CREATE TABLE shop.u (a INT, v VARCHAR(20) COLLATE {collation})")
    before = left(target)
    with pytest.raises(SchemaChangeRefused) as caught:
        alter(target, create, statement, by_bytes=by_bytes)
    problem = caught.value.problem
    assert (problem.table_id, problem.column, problem.remedy) == (T, "v", Remedy.RESYNC)
    assert collation in problem.message
    assert left(target) == before


@pytest.mark.parametrize("statement", [TRUNCATE, DROP, EXCHANGE])
@pytest.mark.parametrize(("collation", "by_bytes"), [("utf8mb4_bin", False), ("latin1_bin", False), ("utf8mb4_nopad_bin", True)])
def test_partitions_of_texts_that_both_compare_alike_are_the_sources(target, collation, by_bytes, statement):
    create = by_text("RANGE", collation)
    filled(target, create, TEXTS)
    target.execute(f"CREATE TABLE shop.u (a INT, v VARCHAR(20) COLLATE {collation})")
    alter(target, create, statement, by_bytes=by_bytes)
    assert left(target) == ["zoe"]


def test_partitions_of_bytes_are_the_sources(target):
    create = "CREATE TABLE t (a INT, v VARBINARY(20)) PARTITION BY RANGE COLUMNS (a, v) (PARTITION `p0` VALUES LESS THAN (5, 'm'))"
    filled(target, create, TEXTS)
    alter(target, create, TRUNCATE)
    assert left(target) == []


@pytest.mark.parametrize("create", [KEY, by_text("RANGE", "utf8mb4_general_ci")])
def test_all_partitions_are_emptied_whatever_rows_they_have(target, create):
    filled(target, create, TEXTS)
    alter(target, create, "ALTER TABLE `t` TRUNCATE PARTITION ALL")
    assert left(target) == []
