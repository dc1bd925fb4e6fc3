"""Definitions of tables are read from scripts as mysqldump and Dumpling write them."""

from __future__ import annotations

import pytest

from headrace.ddl.scripts import Definition, definitions
from headrace.model.table import TableId

_DUMP = """-- MySQL dump 10.13
/*!40101 SET NAMES utf8mb4 */;
CREATE DATABASE /*!32312 IF NOT EXISTS*/ `shop` /*!40100 DEFAULT CHARACTER SET utf8mb4 */;

USE `shop`;
DROP TABLE IF EXISTS `a`;
CREATE TABLE `a` (
  `id` int NOT NULL COMMENT 'a ; in a text',
  PRIMARY KEY (`id`) /* ; in a comment */
);
INSERT INTO `a` VALUES (1),(2);
DELIMITER ;;
/*!50003 CREATE TRIGGER `t` BEFORE INSERT ON `a` FOR EACH ROW BEGIN SET NEW.id = 1; CREATE TABLE `no` (id int); END */;;
DELIMITER ;
/*!50001 CREATE VIEW `v` AS SELECT 1 */;
ALTER TABLE `a` ADD COLUMN `b` int;
USE other;
CREATE TABLE b (id int)
"""


def test_a_dump_gives_its_databases_and_tables_with_their_lines() -> None:
    found = list(definitions(_DUMP))
    assert [(d.table_id, d.database, d.line) for d in found] == [
        (TableId("shop"), "", 3),
        (TableId("shop", "a"), "shop", 6),
        (TableId("shop", "a"), "shop", 7),
        (TableId("shop", "a"), "shop", 16),
        (TableId("other", "b"), "other", 18),
    ]
    assert [d.drops for d in found] == [False, True, False, False, False]
    assert found[2].text.startswith("CREATE TABLE `a` (")
    assert found[2].text.endswith(")")


def test_a_file_of_one_table_may_have_its_database_elsewhere() -> None:
    assert list(definitions("\nCREATE TABLE a (id int);", "shop")) == [
        Definition(TableId("shop", "a"), "shop", "CREATE TABLE a (id int)", 2, creates=True)
    ]


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("\n\nCREATE TABLE a (id int);", "line 3: it is not known in which database the table is: no USE comes before it"),
        ("USE d;\nRENAME TABLE a TO b;", "line 2: this statement is not followed: 'RENAME TABLE a TO b'"),
        ("USE d;\nCREATE OR REPLACE TABLE a (id int);", "line 2: this statement is not followed"),
        ("DROP DATABASE d;", "line 1: this statement is not followed"),
        ("SELECT 1;\nCREATE TABLE `a (id int);", "line 2: the statement cannot be read"),
        ("SELECT 1;\nCREATE TABLE a (id int) COMMENT 'x", "line 2: the statement cannot be read"),
    ],
)
def test_what_cannot_be_read_is_told_with_its_line(script: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        list(definitions(script))


def test_a_long_dump_is_read_in_proportion_to_its_length() -> None:
    script = "USE shop;" + "".join(f"\nCREATE TABLE `t{n}` (`id` int NOT NULL, PRIMARY KEY (`id`));" for n in range(5_000))
    assert [d.line for d in definitions(script)] == list(range(2, 5_002))
