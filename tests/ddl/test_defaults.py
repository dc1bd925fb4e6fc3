"""Which defaults of added columns the source computed for each row."""

from __future__ import annotations

import pytest

from headrace.ddl.defaults import computed_default
from headrace.ddl.statement import read_statement


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
        ("COLUMN `other` VARCHAR(36) DEFAULT (UUID())", ""),
        ("INDEX `b`(`a`)", ""),
    ],
)
def test_functions_of_more_than_the_time_are_computed(added: str, function: str) -> None:
    assert computed_default(read_statement(f"ALTER TABLE `t` ADD {added}", "d"), "B") == function
