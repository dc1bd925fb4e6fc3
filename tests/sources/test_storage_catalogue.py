"""Schema files as one history."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.ddl.renames import plan_renames
from headrace.model.events import (
    AddColumnEvent,
    CreateDatabaseEvent,
    CreateTableEvent,
    DeletePartitionRowsEvent,
    DropDatabaseEvent,
    OtherEvent,
    RenameTableEvent,
)
from headrace.model.offer import Offer
from headrace.model.table import TableId
from headrace.sources.ticdc_storage import open_source
from storage_folder import ID, OPTIONS, C, StorageFolder, V

T = TableId("test", "t")
CREATE = "CREATE TABLE `t` (`id` INT PRIMARY KEY,`v` VARCHAR(16))"


@pytest.fixture
def folder(tmp_path: Path) -> StorageFolder:
    made = StorageFolder(tmp_path / "feed")
    made.checkpoint(10_000)
    return made


def poll(folder: StorageFolder, options: str = OPTIONS) -> Offer:
    return folder.consumer(options).poll()


def test_shapes_and_statements_become_typed_changes_in_commit_order(folder: StorageFolder) -> None:
    folder.schema("t", 300, "ALTER TABLE `t` ADD COLUMN `c` INT DEFAULT 7", (ID, V, C))
    folder.schema("t", 100)
    folder.schema("t", 200)
    folder.schema("", 90, "CREATE DATABASE `test`")
    changes = poll(folder).schema_changes
    assert [change.commit_ts for change in changes] == [90, 100, 300]
    database, create, add = changes
    assert database.events == (CreateDatabaseEvent("test"),)
    assert isinstance(create.events[0], CreateTableEvent)
    assert create.statement == ""
    assert isinstance(add.events[0], AddColumnEvent)
    assert add.changes == {T}
    assert add.schema is not None
    assert [column.name for column in add.schema.columns] == ["id", "v", "c"]
    assert add.file.startswith("test/t/meta/schema_300_")


def test_an_unknown_column_type_stops_its_table_for_good(folder: StorageFolder) -> None:
    folder.schema("t", 100, "", (ID, {"ColumnName": "g", "ColumnType": "GEOMETRY"}))
    (problem,) = poll(folder).problems
    assert (problem.table_id, problem.transient) == (T, False)
    assert "GEOMETRY" in problem.sentence()


def test_databases_come_before_and_go_after_what_is_in_them(folder: StorageFolder) -> None:
    folder.schema("", 100, "CREATE DATABASE `test`")
    folder.schema("t", 100)
    folder.schema("", 200, "DROP DATABASE `test`")
    folder.schema("", 300, "CREATE DATABASE `test`")
    folder.schema("t", 310)
    changes = poll(folder).schema_changes
    assert [type(change.events[0]) for change in changes] == [
        CreateDatabaseEvent,
        CreateTableEvent,
        DropDatabaseEvent,
        CreateDatabaseEvent,
        CreateTableEvent,
    ]


def rename_steps(folder: StorageFolder) -> list[tuple[str, str]]:
    events = [event for change in poll(folder).schema_changes for event in change.events]
    return [(e.table_id.table, e.new_table_id.table) for e in events if isinstance(e, RenameTableEvent)]


def test_a_swap_of_three_files_runs_in_the_only_order_that_works(folder: StorageFolder) -> None:
    for name in "ab":
        folder.schema(name, 100)
    for old, new in (("a", "x"), ("b", "a"), ("x", "b")):
        folder.schema(new, 200, f"RENAME TABLE `test`.`{old}` TO `test`.`{new}`;")
    assert rename_steps(folder) == [("a", "x"), ("b", "a"), ("x", "b")]


def test_the_overwritten_first_step_of_a_swap_is_inferred(folder: StorageFolder) -> None:
    for name in "ab":
        folder.schema(name, 100)
    for old, new in (("b", "a"), ("x", "b")):
        folder.schema(new, 200, f"RENAME TABLE `test`.`{old}` TO `test`.`{new}`;")
    assert rename_steps(folder) == [("a", "x"), ("b", "a"), ("x", "b")]
    assert any("inferred" in notice.message for notice in poll(folder).notices)
    tables = open_source(folder.uri()).metadata_accessor.list_tables("test")
    assert tables == [TableId("test", "a"), TableId("test", "b")]


def test_swaps_that_cannot_be_told_are_one_change_that_a_person_decides_about(folder: StorageFolder) -> None:
    for name in "abcd":
        folder.schema(name, 100)
    for old, new in (("b", "a"), ("x", "b"), ("d", "c"), ("y", "d")):
        folder.schema(new, 200, f"RENAME TABLE `test`.`{old}` TO `test`.`{new}`;")
    *_, change = poll(folder).schema_changes
    assert "do not show the order of the renames" in change.doubt
    assert {"a", "b", "c", "d", "x", "y"} == {table_id.table for table_id in change.changes}


def test_a_chain_of_renames_frees_names_first() -> None:
    a, b, c = (TableId("test", name) for name in "abc")
    plan = plan_renames([(a, b), (b, c)], {}, {})
    assert plan.steps == ((b, c), (a, b))
    assert not plan.inferred


def test_a_statement_that_nobody_understands_waits_for_every_table(folder: StorageFolder) -> None:
    folder.schema("t", 100)
    folder.schema("u", 100)
    folder.schema("t", 200, "FROBNICATE `t` WITH GUSTO")
    change = poll(folder).schema_changes[-1]
    assert change.changes >= {T, TableId("test", "u")}


def test_generated_columns_are_carried_from_version_to_version(folder: StorageFolder) -> None:
    statement = "CREATE TABLE `t` (`id` INT PRIMARY KEY,`v` VARCHAR(16) GENERATED ALWAYS AS (`id`) VIRTUAL)"
    folder.schema("t", 100, statement)
    folder.schema("t", 200, "ALTER TABLE `t` ADD COLUMN `c` INT DEFAULT 7", (ID, V, C))
    schema = open_source(folder.uri()).metadata_accessor.get_table_schema(T)
    assert [column.name for column in schema.row_columns] == ["id", "c"]


PARTITIONED = f"{CREATE} PARTITION BY RANGE (`id`) (PARTITION `p0` VALUES LESS THAN (10),PARTITION `p1` VALUES LESS THAN (20))"


def events_of(folder: StorageFolder, statement: str, table: str = "t", version: int = 900) -> list[type]:
    """What the statement is taken for after all that is in the folder."""
    folder.schema(table, version, statement)
    (change,) = [change for change in poll(folder).schema_changes if change.commit_ts == version]
    return [type(event) for event in change.events]


@pytest.mark.parametrize(
    ("history", "expected"),
    [
        ([], [DeletePartitionRowsEvent]),
        ([("t", "TRUNCATE TABLE `t`"), ("t", "")], [DeletePartitionRowsEvent]),
        ([("t", "ALTER TABLE `t` DROP PARTITION `p0`")], [OtherEvent]),
        ([("t", "ALTER TABLE `t` REMOVE PARTITIONING")], [OtherEvent]),
        ([("t", "DROP TABLE `t`"), ("t", CREATE)], [OtherEvent]),
        ([("", "DROP DATABASE `test`"), ("", "CREATE DATABASE `test`"), ("t", CREATE)], [OtherEvent]),
        ([("x", "RENAME TABLE `t` TO `x`"), ("t", CREATE)], [OtherEvent]),
        ([("x", "RENAME TABLE `t` TO `x`"), ("t", "RENAME TABLE `x` TO `t`")], [DeletePartitionRowsEvent]),
        (
            [("x", "CREATE TABLE `x` LIKE `t`"), ("t", "DROP TABLE `t`"), ("t", "ALTER TABLE `x` RENAME `t`")],
            [DeletePartitionRowsEvent],
        ),
    ],
)
def test_partitions_go_with_their_table(folder: StorageFolder, history: list[tuple[str, str]], expected: list[type]) -> None:
    folder.schema("t", 100, PARTITIONED)
    for number, (table, statement) in enumerate(history):
        folder.schema(table, 200 + number, statement)
    assert events_of(folder, "ALTER TABLE `t` DROP PARTITION `p0`") == expected


@pytest.mark.parametrize("together", [True, False])
def test_partitions_swap_with_their_tables(folder: StorageFolder, together: bool) -> None:
    folder.schema("a", 100, PARTITIONED.replace("`t`", "`a`"))
    folder.schema("b", 100, CREATE.replace("`t`", "`b`"))
    steps = {new: f"`test`.`{old}` TO `test`.`{new}`" for old, new in (("a", "x"), ("b", "a"), ("x", "b"))}
    for new, step in steps.items() if not together else [("a", ", ".join(steps.values()))]:
        folder.schema(new, 200, f"RENAME TABLE {step}")
    assert events_of(folder, "ALTER TABLE `a` DROP PARTITION `p0`", "a", 300) == [OtherEvent]
    assert events_of(folder, "ALTER TABLE `b` DROP PARTITION `p0`", "b", 400) == [DeletePartitionRowsEvent]


def test_a_definition_that_arrives_late_counts(folder: StorageFolder) -> None:
    consumer = folder.consumer(OPTIONS)
    folder.schema("t", 100)
    folder.schema("t", 900, "ALTER TABLE `t` DROP PARTITION `p0`")
    assert isinstance(consumer.poll().schema_changes[-1].events[0], OtherEvent)
    folder.schema("t", 200, PARTITIONED.replace(CREATE, "ALTER TABLE `t`"))
    assert isinstance(consumer.poll().schema_changes[-1].events[0], DeletePartitionRowsEvent)


def test_only_new_schema_files_are_read(folder: StorageFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    from headrace.sources.ticdc_storage.stores import Store

    read: list[list[str]] = []
    original = Store.read_starts

    def counting(self: Store, paths: list[str], length: int) -> list[bytes | None]:
        read.append(paths)
        return original(self, paths, length)

    monkeypatch.setattr(Store, "read_starts", counting)
    folder.schema("t", 100)
    consumer = folder.consumer()
    consumer.poll()
    second = folder.schema("t", 200, "ALTER TABLE `t` ADD COLUMN `c` INT DEFAULT 7", (ID, V, C))
    consumer.poll()
    consumer.poll()
    assert read[1:] == [[second]]
