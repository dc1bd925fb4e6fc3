"""Statements whose meaning depends on the time zone of a session, which is not the source's, on a real MariaDB."""

from __future__ import annotations

import pytest
from mysql_writing import Target, acquired, change, column, table

from headrace.model.events import (
    AddColumnEvent,
    AlterColumnTypeEvent,
    CreateTableEvent,
    OtherEvent,
    SchemaChange,
    SchemaChangeEvent,
)
from headrace.model.outcome import Problem
from headrace.model.place import PlaceInFile
from headrace.model.table import Column, Generated, TableId, TableSchema
from headrace.sinks.metadata_applier import SchemaChangeRefused

pytestmark = pytest.mark.server

T = TableId("shop", "t")
ID = column("id", "INT", nullable=False, primary_key=True)
TS = column("ts", "TIMESTAMP", nullable=False)
AT = column("at", "DATETIME")


def generated(expression: str, kind: str = "DATE", *, stored: bool = True, name: str = "d") -> Column:
    return column(name, kind, generated=Generated.STORED if stored else Generated.VIRTUAL, expression=expression)


def apply(target: Target, statement: str, schema: TableSchema, event: SchemaChangeEvent | None = None) -> None:
    events = (event or CreateTableEvent(T, schema),)
    change = SchemaChange(5, T, events, statement, T.database, frozenset({T}), schema=schema, origin=PlaceInFile("f.json"))
    target.sink.metadata_applier.apply_schema_change(change)


def refused(target: Target, statement: str, schema: TableSchema, event: SchemaChangeEvent | None = None) -> Problem:
    with pytest.raises(SchemaChangeRefused) as caught:
        apply(target, statement, schema, event)
    return caught.value.problem


@pytest.mark.parametrize(
    ("definition", "last"),
    [
        ("`d` DATE GENERATED ALWAYS AS (DATE(`ts`)) STORED", generated("DATE(`ts`)")),
        ("`d` DATE AS (DATE(TS)) STORED, UNIQUE KEY `u`(`d`)", generated("DATE(TS)")),
        ("`d` DATE AS (FROM_UNIXTIME(`id`)) STORED", generated("FROM_UNIXTIME(`id`)")),
        ("`d` TIMESTAMP NULL AS (`at`) STORED", generated("`at`", "TIMESTAMP")),
    ],
)
def test_a_generated_column_that_depends_on_the_writers_zone_is_refused(mariadb, definition: str, last: Column) -> None:
    target = acquired(mariadb, time_zone="+08:00")
    statement = f"CREATE TABLE `t` (`id` INT PRIMARY KEY, `ts` TIMESTAMP NOT NULL, `at` DATETIME, {definition})"
    problem = refused(target, statement, table("t", [ID, TS, AT, last]))
    assert problem.column == "d"
    assert "time zone of the session that writes a row" in problem.message
    assert "headrace ddl edit" in problem.hint
    assert target.execute("SHOW TABLES FROM shop") == []


@pytest.mark.parametrize("action", ["ADD COLUMN `d` DATE AS (DATE(`ts`))", "MODIFY COLUMN `d` DATE AS (DATE(`ts`)) COMMENT 'x'"])
def test_so_is_one_that_an_alter_defines_for_which_rows_bring_no_value(mariadb, action: str) -> None:
    target = acquired(mariadb)
    target.execute("CREATE TABLE shop.t (id INT PRIMARY KEY, ts TIMESTAMP NOT NULL)")
    last = generated("DATE(`ts`)", stored=False)
    event = AddColumnEvent(T, last) if action.startswith("ADD") else AlterColumnTypeEvent(T, last, last)
    problem = refused(target, f"ALTER TABLE `t` {action}", table("t", [ID, TS, last]), event)
    assert "without the column" in problem.hint


def test_generated_columns_of_other_types_and_other_statements_on_the_table_pass(mariadb) -> None:
    target = acquired(mariadb)
    statement = (
        "CREATE TABLE `t` (`id` INT PRIMARY KEY, `ts` TIMESTAMP NOT NULL, `at` DATETIME,"
        " `d` DATE AS (DATE(`at`)) STORED, `e` INT AS (`id` + 1) STORED)"
    )
    schema = table("t", [ID, TS, AT, generated("DATE(`at`)"), generated("`id` + 1", "INT", name="e")])
    apply(target, statement, schema)
    added = column("c", "INT")
    kept = table("t", [*schema.columns[:3], generated("DATE(`ts`)"), schema.columns[4], added])
    apply(target, "ALTER TABLE `t` ADD COLUMN `c` INT", kept, AddColumnEvent(T, added))


def test_rows_bring_the_values_of_a_generated_column_that_is_a_plain_one_in_the_target(mariadb) -> None:
    """23:00 and 01:00 at +08:00 are two days in the source, and one in the writer's UTC."""
    target = acquired(mariadb)
    target.execute("CREATE TABLE shop.t (id INT PRIMARY KEY, ts TIMESTAMP NOT NULL, d DATE, e INT AS (id + 1) STORED, UNIQUE (d))")
    schema = table("t", [ID, TS, generated("DATE(`ts`)"), generated("`id` + 1", "INT", name="e")])
    rows = [(1, "2024-01-01 15:00:00", "2024-01-01", 9), (2, "2024-01-01 17:00:00", "2024-01-02", 9)]
    (outcome,) = target.write(change(schema, rows))
    assert outcome.problem is None
    held = target.execute("SELECT id, CAST(ts AS CHAR), CAST(d AS CHAR), e FROM shop.t ORDER BY id")
    assert held == [(*rows[0][:3], 2), (*rows[1][:3], 3)]


def test_the_values_of_a_generated_column_that_the_target_lacks_are_left_out(mariadb) -> None:
    target = acquired(mariadb)
    target.execute("CREATE TABLE shop.t (id INT PRIMARY KEY)")
    schema = table("t", [ID, generated("`id` + 1", "INT")])
    (outcome,) = target.write(change(schema, [(1, 2)]))
    assert outcome.problem is None
    assert len(target.execute("SELECT * FROM shop.t")) == 1


BOUND = "PARTITION `p0` VALUES LESS THAN (UNIX_TIMESTAMP('2024-01-02 00:00:00'))"
CREATE_PARTITIONED = (
    "CREATE TABLE `t` (`id` INT, `ts` TIMESTAMP NOT NULL, PRIMARY KEY (`id`,`ts`)) PARTITION BY RANGE (UNIX_TIMESTAMP(`ts`)) ({})"
)


def bounds(target: Target) -> list[str]:
    described = "SELECT partition_description FROM information_schema.partitions WHERE table_name = 't' AND table_schema = 'shop'"
    return [str(row[0]) for row in target.execute(described)]


@pytest.mark.parametrize("statement", [CREATE_PARTITIONED.format(BOUND), f"ALTER TABLE `t` ADD PARTITION ({BOUND})"])
def test_a_bound_of_a_partition_that_is_a_local_time_needs_the_zone(mariadb, statement: str) -> None:
    schema = table("t", [ID, TS], ("id", "ts"))
    event = None if statement.startswith("CREATE") else OtherEvent(T)
    for zone, expected in (("", None), ("+08:00", 1704124800), ("+00:00", 1704153600)):
        mariadb.fresh()
        target = acquired(mariadb, **({"time_zone": zone} if zone else {}))
        if event is not None:
            target.execute(CREATE_PARTITIONED.format("PARTITION a VALUES LESS THAN (5)").replace("`t`", "shop.t"))
        if expected is None:
            problem = refused(target, statement, schema, event)
            assert "UNIX_TIMESTAMP('2024-01-02 00:00:00')" in problem.message
            assert "Set time-zone" in problem.hint
        else:
            apply(target, statement, schema, event)
            assert bounds(target)[-1] == str(expected)


def test_a_bound_that_is_a_number_needs_no_zone(mariadb) -> None:
    target = acquired(mariadb)
    apply(target, CREATE_PARTITIONED.format("PARTITION p VALUES LESS THAN (1704124800)"), table("t", [ID, TS], ("id", "ts")))
    assert bounds(target) == ["1704124800"]


@pytest.mark.parametrize(
    ("definition", "stored", "mends"),
    [
        ("d DATE AS (DATE(ts)) STORED", True, "MODIFY `d` date NULL"),
        ("d DATE AS (DATE(ts)) VIRTUAL, UNIQUE (d)", False, "DROP COLUMN `d`"),
    ],
)
def test_no_row_is_written_to_a_table_that_was_there_and_computes_such_a_column(
    mariadb, definition: str, stored: bool, mends: str
) -> None:
    target = acquired(mariadb)
    target.execute(f"CREATE TABLE shop.t (id INT PRIMARY KEY, ts TIMESTAMP NOT NULL, {definition})")
    schema = table("t", [ID, TS, generated("DATE(`ts`)", stored=stored)])
    row = (1, "2024-01-01 15:00:00", "2024-01-02")[: len(schema.row_columns)]
    (outcome,) = target.write(change(schema, [row]))
    assert outcome.problem is not None
    assert "computes this generated column in UTC" in outcome.problem.message
    assert mends.lower() in outcome.problem.hint.lower()
    target.execute(outcome.problem.hint.split("Run ", 1)[1].split(";")[0])
    (outcome,) = target.write(change(schema, [row]))
    assert outcome.problem is None
    assert target.execute("SELECT COUNT(*) FROM shop.t") == [(1,)]


def test_a_column_that_is_made_of_such_a_column_is_one_too(mariadb) -> None:
    target = acquired(mariadb)
    definitions = "d DATE AS (DATE(ts)) VIRTUAL, e INT AS (DAYOFMONTH(d)) STORED"
    target.execute(f"CREATE TABLE shop.t (id INT PRIMARY KEY, ts TIMESTAMP NOT NULL, {definitions})")
    made_of_it = generated("DAYOFMONTH(d)", "INT", name="e")
    schema = table("t", [ID, TS, generated("DATE(`ts`)", stored=False), made_of_it])
    (outcome,) = target.write(change(schema, [(1, "2024-01-01 15:00:00", 2)]))
    assert outcome.problem is not None
    assert outcome.problem.column == "e"


def test_a_virtual_column_without_unique_key_is_computed_for_its_readers_as_in_the_source(mariadb) -> None:
    target = acquired(mariadb)
    target.execute("CREATE TABLE shop.t (id INT PRIMARY KEY, ts TIMESTAMP NOT NULL, d DATE AS (DATE(ts)) VIRTUAL)")
    schema = table("t", [ID, TS, generated("DATE(`ts`)", stored=False)])
    assert target.write(change(schema, [(1, "2024-01-01 15:00:00")]))[0].problem is None
