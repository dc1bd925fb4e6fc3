"""Which defaults of added columns the source computed for each row."""

from __future__ import annotations

import pytest

from headrace.ddl.defaults import bit_default, computed_default, default_word, zone_mismatch
from headrace.ddl.lexer import words
from headrace.ddl.statement import read_statement
from headrace.model.table import Column, TableId, TableSchema
from headrace.model.types import ColumnType, TypeKind


@pytest.mark.parametrize(
    ("added", "function"),
    [
        ("`b` VARCHAR(36) DEFAULT (UUID())", "UUID"),
        ("`b` VARCHAR(36) NOT NULL DEFAULT UUID()", "UUID"),
        ("COLUMN (`a` INT DEFAULT 1, `b` INT DEFAULT (RAND()*9))", "RAND"),
        ("COLUMN `b` INT DEFAULT 7", ""),
        ("COLUMN `b` VARCHAR(9) DEFAULT _UTF8MB4'UUID()'", ""),
        ("COLUMN `b` VARCHAR(9) DEFAULT 'x' COMMENT 'DEFAULT (UUID())'", ""),
        ("COLUMN `b` DATETIME(3) DEFAULT CURRENT_TIMESTAMP(3)", ""),
        ("COLUMN `b` DATETIME DEFAULT NOW() ON UPDATE NOW()", ""),
        ("COLUMN `b` INT DEFAULT -1", ""),
        ("COLUMN `b` INT", ""),
        ("COLUMN `b` INT REFERENCES p (id) ON DELETE SET DEFAULT DEFAULT (UUID())", "UUID"),
        ("COLUMN `b` INT CHECK (b <> DEFAULT (UUID())) DEFAULT 1", ""),
        ("COLUMN `other` VARCHAR(36) DEFAULT (UUID())", ""),
        ("INDEX `b`(`a`)", ""),
    ],
)
def test_functions_of_more_than_the_time_are_computed(added: str, function: str) -> None:
    assert computed_default(read_statement(f"ALTER TABLE `t` ADD {added}", "d"), "B") == function


def test_all_parts_of_a_text_are_one_literal() -> None:
    definition = words("b VARCHAR(9) NOT NULL DEFAULT _utf8mb4'a' 'b' \"c\" COMMENT 'd'")
    assert definition is not None
    word = default_word(definition)
    assert word is not None
    assert (word.text, word.start, word.end) == ("abc", 38, 49)


@pytest.mark.parametrize("default", ["5", "'\x05'", "b'101'", "5.0"])
def test_the_number_of_a_bit_default_comes_from_the_statement_or_from_the_bytes_of_the_shape(default: str) -> None:
    column = Column("b", ColumnType(TypeKind.BIT, length=8), default="\x05")
    assert bit_default(f"ALTER TABLE t ADD b BIT(8) DEFAULT {default}", "d", column) == 5


def test_a_moment_in_any_spelling_is_compared_with_the_value_of_the_source() -> None:
    column = Column("c", ColumnType(TypeKind.TIMESTAMP), default="2020-01-01 16:00:00")
    schema = TableSchema(TableId("d", "t"), (column,), ())
    statement = "ALTER TABLE t ADD c TIMESTAMP NULL DEFAULT '2020-1-2'"
    assert zone_mismatch(statement, schema, "Asia/Shanghai") is None
    assert zone_mismatch(statement, schema, "UTC") is not None
