"""The names of indexes that DDL text leaves unnamed: those of TiDB (``setEmptyConstraintName``, ``GetName4AnonymousIndex``)."""

from __future__ import annotations

import pytest

from headrace.ddl.indexes import changed_names, new_indexes, with_index_names
from headrace.ddl.statement import read_statement


def created(body: str) -> str:
    return f"CREATE TABLE `t` ({body})"


def names(text: str, *taken: str) -> list[str]:
    return [index.name for index in new_indexes(read_statement(text, "test"), taken) if not index.primary]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("a INT UNIQUE, b INT, UNIQUE (a, b)", ["a", "a_2"]),
        ("a INT UNIQUE, b INT, INDEX (a, b)", ["a", "a_2"]),
        ("a INT UNIQUE, b INT UNIQUE, INDEX (b), KEY a (b)", ["b", "a", "a_2", "b_2"]),
        ("a INT, b INT, UNIQUE (a), INDEX a (b)", ["a_2", "a"]),
        ("a INT, b INT, PRIMARY KEY (a), UNIQUE (a, b)", ["a_2"]),
        ("a INT PRIMARY KEY, b INT, UNIQUE (a, b)", ["a"]),
        ("a INT PRIMARY KEY UNIQUE KEY COMMENT 'UNIQUE'", ["a_2"]),
        ("a INT, CONSTRAINT a CHECK (a > 0), UNIQUE (a)", ["a_2"]),
        ("a INT, CONSTRAINT c UNIQUE KEY i (a), CONSTRAINT d UNIQUE (a), CONSTRAINT UNIQUE (a)", ["c", "d", "a"]),
        ("a INT, FULLTEXT (a), INDEX USING BTREE (a)", ["a", "a_2"]),
        ("a INT, INDEX ((a + 1)), INDEX (a, (a + 1))", ["expression_index", "expression_index_2"]),
        ("`primary` INT, INDEX (`primary`)", ["primary_2"]),
        ("a INT, b INT, FOREIGN KEY (a) REFERENCES p (id), INDEX (a)", ["a"]),
    ],
)
def test_create_table_names_the_tables_own_indexes_first(body: str, expected: list[str]) -> None:
    assert names(created(body)) == expected


def test_alter_table_takes_no_name_that_the_table_had_before() -> None:
    assert names("ALTER TABLE t DROP INDEX a, ADD UNIQUE (a, b)", "a") == ["a_2"]
    assert names("ALTER TABLE t ADD INDEX (A), ADD COLUMN x INT", "a", "a_2") == ["A_3"]
    assert names("CREATE INDEX i ON t (a)", "a") == ["i"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            created("a INT UNIQUE KEY NOT NULL, b INT, KEY (a,b)"),
            created("UNIQUE KEY `a_2` (`a`), a INT  NOT NULL, b INT, KEY (a,b)"),
        ),
        (
            created("a INT, UNIQUE(a), INDEX USING HASH (a), KEY a_2 (a)"),
            created("a INT, UNIQUE(a), INDEX  `a_3` USING HASH (a), KEY a_2 (a)"),
        ),
        (created("a INT, CONSTRAINT c UNIQUE i (a)"), created("a INT, CONSTRAINT c UNIQUE `c` (a)")),
        ("ALTER TABLE t DROP INDEX a, ADD UNIQUE (a)", "ALTER TABLE t DROP INDEX a, ADD UNIQUE  `a_2` (a)"),
        (created("a INT UNIQUE, b INT, UNIQUE (b), KEY `k`(a)"), ""),
        (created("a SERIAL, b BIGINT SERIAL DEFAULT VALUE"), ""),
        (
            created("a SERIAL, b BIGINT, KEY a (b)"),
            created("UNIQUE KEY `a_2` (`a`), a BIGINT UNSIGNED NOT NULL AUTO_INCREMENT, b BIGINT, KEY a (b)"),
        ),
        (
            created("a BIGINT SERIAL DEFAULT VALUE, b INT, KEY a (b)"),
            created("UNIQUE KEY `a_2` (`a`), a BIGINT NOT NULL AUTO_INCREMENT, b INT, KEY a (b)"),
        ),
        ("ALTER TABLE t ADD INDEX (b)", "ALTER TABLE t ADD INDEX  `b` (b)"),
        ("CREATE INDEX i ON t (a)", ""),
        ("CREATE TABLE t LIKE s", ""),
    ],
)
def test_names_that_another_server_would_not_find_by_itself_are_written_into_the_text(text: str, expected: str) -> None:
    assert with_index_names(text, read_statement(text, "test"), ["a"]) == (expected or text)


@pytest.mark.parametrize(
    ("text", "indexes", "columns", "texts"),
    [
        ("ALTER TABLE t DROP INDEX `Ue`, DROP KEY IF EXISTS k", {"ue", "k"}, set(), False),
        ("DROP INDEX IF EXISTS ue ON t", {"ue"}, set(), False),
        ("ALTER TABLE t DROP PRIMARY KEY, ADD PRIMARY KEY (a)", {"primary"}, set(), False),
        ("ALTER TABLE t DROP CONSTRAINT `c`", {"c"}, set(), False),
        ("ALTER TABLE t RENAME INDEX a TO b, RENAME KEY c TO d, RENAME COLUMN e TO f, RENAME TO g", {"a", "c"}, {"e"}, False),
        ("ALTER TABLE t DROP a, DROP COLUMN IF EXISTS B, DROP `index`, DROP COLUMN `key`", set(), {*"ab", "index", "key"}, False),
        ("ALTER TABLE t ADD UNIQUE ue (a), ALTER b DROP DEFAULT, ALTER COLUMN c SET DEFAULT 1", set(), set(), False),
        ("ALTER TABLE t MODIFY `A` INT, MODIFY COLUMN b INT, CHANGE c d INT, CHANGE COLUMN e f INT", set(), {*"abce"}, False),
        ("ALTER TABLE t CONVERT TO CHARACTER SET utf8mb4 COLLATE utf8mb4_bin", set(), set(), True),
        ("ALTER TABLE t DEFAULT CHARACTER SET utf8mb4", set(), set(), False),
        ("DROP TABLE t", set(), set(), False),
    ],
)
def test_names_that_a_statement_drops_or_changes(text: str, indexes: set[str], columns: set[str], texts: bool) -> None:
    changed = changed_names(read_statement(text, "test"))
    assert (changed.indexes, changed.columns, changed.texts) == (indexes, columns, texts)
