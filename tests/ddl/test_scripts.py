"""Definitions of tables are read from scripts as mysqldump and Dumpling write them."""

from __future__ import annotations

import time

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
        ("USE d;\nRENAME TABLE a TO b;", "line 2: RENAME TABLE is not followed"),
        ("USE d;\nALTER TABLE a RENAME TO b;", "line 2: ALTER TABLE with RENAME is not followed"),
        ("USE d;\nALTER TABLE a RENAME AS b;", "line 2: ALTER TABLE with RENAME is not followed"),
        ("USE d;\nALTER TABLE a RENAME = b;", "line 2: ALTER TABLE with RENAME is not followed"),
        ("USE d;\nALTER TABLE a RENAME b;", "line 2: ALTER TABLE with RENAME is not followed"),
        ("USE d;\nALTER TABLE a ADD COLUMN c int, RENAME e.b, DROP COLUMN f;", "line 2: ALTER TABLE with RENAME is not followed"),
        ("DELIMITER\nCREATE TABLE d.a (id int);", "line 1: the statement cannot be read"),
        ("SELECT 1;\nDELIMITER 12345678901234567\nCREATE TABLE d.a (id int);", "line 2: the statement cannot be read"),
        ("DELIMITER x\nCREATE TABLE d.a (id int);\nCREATE TABLE d.b (id int);", "line 2: the statement does not end before"),
        ("USE d;\nCREATE OR REPLACE TABLE a (id int);", "line 2: CREATE OR REPLACE TABLE is not followed"),
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


def test_renames_of_columns_and_indexes_are_followed() -> None:
    script = "USE d; CREATE TABLE a (id int, KEY k (id)); ALTER TABLE a RENAME COLUMN id TO b, RENAME INDEX k TO l;"
    assert len(list(definitions(script))) == 2


def test_a_delimiter_line_inside_of_names_texts_and_comments_is_none() -> None:
    script = """USE d;
CREATE TABLE a (`x
DELIMITER //
y` int COMMENT '
DELIMITER //
', /*
DELIMITER //
*/ z int);
CREATE TABLE b (id int);
CREATE TABLE c (`x
DELIMITER ;
` int);"""
    assert [(d.table_id.table, d.line) for d in definitions(script)] == [("a", 2), ("b", 9), ("c", 10)]


@pytest.mark.parametrize("delimiter", ["//", "$$", ";;", "|", "END_OF"])
def test_statements_with_another_delimiter_count(delimiter: str) -> None:
    script = f"""USE d;
-- a comment
delimiter {delimiter}
CREATE TRIGGER t BEFORE INSERT ON a FOR EACH ROW BEGIN SET NEW.v = '{delimiter}'; CREATE TABLE no (id int); END{delimiter}
CREATE TABLE a (id int){delimiter}
DELIMITER ;
CREATE TABLE b (id int);"""
    assert [(d.table_id.table, d.line) for d in definitions(script)] == [("a", 5), ("b", 7)]


@pytest.mark.parametrize("rest", ["'" + "\\'" * 300_000, "/*" * 300_000, "`" + "``" * 300_000, '"' + "\\" * 300_001])
def test_what_is_left_open_is_refused_in_proportion_to_its_length(rest: str) -> None:
    begun = time.process_time()
    with pytest.raises(ValueError, match="line 2: the statement cannot be read"):
        list(definitions("CREATE TABLE d.t (id int);\n" + rest))
    assert time.process_time() - begun < 5


def test_many_delimiter_lines_take_time_in_proportion_to_their_number() -> None:
    begun = time.process_time()
    assert [d.line for d in definitions("DELIMITER x\n" * 200_000 + "DELIMITER ;\nCREATE TABLE d.t (id int);")] == [200_002]
    assert time.process_time() - begun < 5


def test_no_text_of_a_file_that_is_no_script_is_told() -> None:
    with pytest.raises(ValueError, match=r"^line 1: the statement cannot be read\.$"):
        list(definitions("[client]\npassword = hunter2\\n; token=abc"))


def test_a_dropped_database_is_one_of_the_definitions() -> None:
    found = list(definitions("/*!40000 DROP DATABASE IF EXISTS `d`*/;\nUSE e;\nDROP TABLE a;"))
    assert [(read.table_id, read.drops) for read in found] == [(TableId("d"), True), (TableId("e", "a"), True)]
