"""The kinds of schema changes that policies name."""

from __future__ import annotations

import pytest

from headrace.ddl.classify import classify
from headrace.ddl.kinds import kinds_of
from headrace.errors import DefinitionError
from headrace.model.events import SchemaChange
from headrace.model.policy import ChangeKind, Policy, SchemaChangePolicies
from headrace.model.table import Column, TableId, TableSchema
from headrace.model.types import ColumnType, TypeKind

T = TableId("shop", "orders")
ID = Column("id", ColumnType(TypeKind.INT), nullable=False, primary_key=True)
NAME = Column("name", ColumnType(TypeKind.VARCHAR, length=20))
SHAPE = TableSchema(T, (ID, NAME), ("id",))


def kinds(statement: str, after: TableSchema | None = SHAPE, table_id: TableId = T) -> set[str]:
    before = None if statement.startswith("CREATE") else SHAPE
    found = classify(statement, database="shop", table_id=table_id, before=before, after=after)
    change = SchemaChange(1, table_id, found.events, statement, "shop", found.changes, found.reads, after)
    return set(map(str, kinds_of(change)))


@pytest.mark.parametrize(
    ("statement", "kind"),
    [
        ("CREATE DATABASE `shop`", "create-database"),
        ("DROP DATABASE `shop`", "drop-database"),
        ("ALTER DATABASE `shop` CHARACTER SET = utf8mb4", "alter-database"),
    ],
)
def test_statements_about_databases(statement: str, kind: str) -> None:
    assert kinds(statement, None, TableId("shop")) == {kind}


@pytest.mark.parametrize(
    ("statement", "kind"),
    [
        ("CREATE TABLE `orders` (`id` INT PRIMARY KEY, `name` VARCHAR(20))", "create-table"),
        ("DROP TABLE `shop`.`orders`", "drop-table"),
        ("TRUNCATE TABLE `orders`", "truncate-table"),
        ("RENAME TABLE `shop`.`old` TO `shop`.`orders`", "rename-table"),
        ("ALTER TABLE `orders` ADD INDEX `i`(`name`)", "index"),
        ("ALTER TABLE `orders` ADD UNIQUE `u`(`name`)", "index"),
        ("ALTER TABLE `orders` ADD CONSTRAINT `u` UNIQUE KEY (`name`)", "index"),
        ("ALTER TABLE `orders` DROP INDEX `i`", "index"),
        ("ALTER TABLE `orders` RENAME INDEX `i` TO `j`", "index"),
        ("ALTER TABLE `orders` ALTER INDEX `i` INVISIBLE", "index"),
        ("CREATE UNIQUE INDEX `i` ON `orders`(`name`)", "index"),
        ("CREATE INDEX `i` ON `orders`(`name`)", "index"),
        ("DROP INDEX `i` ON `orders`", "index"),
        ("ALTER TABLE `orders` DROP PRIMARY KEY", "key"),
        ("ALTER TABLE `orders` ADD CONSTRAINT PRIMARY KEY (`id`)", "key"),
        ("ALTER TABLE `orders` ADD PARTITION (PARTITION `p2` VALUES LESS THAN (20))", "partition"),
        ("ALTER TABLE `orders` DROP PARTITION `p1`", "partition"),
        ("ALTER TABLE `orders` TRUNCATE PARTITION `p1`", "partition"),
        ("ALTER TABLE `orders` EXCHANGE PARTITION `p1` WITH TABLE `x`", "partition"),
        ("ALTER TABLE `orders` REORGANIZE PARTITION `p1` INTO (PARTITION `p2` VALUES LESS THAN (20))", "partition"),
        ("ALTER TABLE `orders` REMOVE PARTITIONING", "partition"),
        ("ALTER TABLE `orders` PARTITION BY HASH (`id`) PARTITIONS 4", "partition"),
        ("CREATE VIEW `v` AS SELECT 1", "view"),
        ("DROP VIEW `shop`.`v`", "view"),
        ("ALTER TABLE `orders` COMMENT = 'INDEX'", "other"),
        ("RECOVER TABLE `orders`", "other"),
    ],
)
def test_statements_about_tables(statement: str, kind: str) -> None:
    assert kinds(statement) == {kind}


def test_a_statement_of_several_clauses_has_several_kinds() -> None:
    wider = TableSchema(T, (ID, NAME, Column("index", ColumnType(TypeKind.INT))), ("id",))
    assert kinds("ALTER TABLE `orders` ADD COLUMN `index` INT, ADD INDEX `i`(`index`)", wider) == {"add-column", "index"}
    assert kinds("ALTER TABLE `orders` ADD COLUMN `index` INT", wider) == {"add-column"}
    assert kinds("ALTER TABLE `orders` DROP `name`", TableSchema(T, (ID,), ("id",))) == {"drop-column"}


def test_what_would_be_skipped_only_in_part_is_for_a_person_to_decide() -> None:
    policies = SchemaChangePolicies.parse_text("index=skip, drop-table=approve")
    assert policies.of({ChangeKind.INDEX}) is Policy.SKIP
    assert policies.of({ChangeKind.INDEX, ChangeKind.ADD_COLUMN}) is Policy.APPROVE
    assert policies.of({ChangeKind.DROP_TABLE}) is Policy.APPROVE
    assert policies.of({ChangeKind.ADD_COLUMN, ChangeKind.DROP_COLUMN}) is Policy.APPLY
    assert policies.of(set()) is Policy.APPLY


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("drop-tables=skip", "Did you mean 'drop-table'"),
        ("drop-table=ignore", "'ignore' is no policy for drop-table"),
        ("drop-table", "'' is no policy for drop-table"),
        ("rename-table=skip", "the rows that follow it need it"),
    ],
)
def test_a_policy_that_cannot_be_is_refused(text: str, message: str) -> None:
    with pytest.raises(DefinitionError, match=message):
        SchemaChangePolicies.parse_text(text)
