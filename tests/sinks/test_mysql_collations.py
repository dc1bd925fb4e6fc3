"""The statements that Headrace advises where a column of a unique key compares otherwise than the source's."""

from __future__ import annotations

import re

import pytest
from mysql_writing import Target, acquired, column, table

from headrace.model.table import SourceTable, TableId
from headrace.sinks.base import CheckState
from headrace.sinks.mysql import collation, handle, refusal
from headrace.sinks.mysql.column_fit import held_columns
from headrace.sinks.mysql.connection import MySqlSession
from headrace.sinks.mysql.settings import read_settings

COARSE, OF_SOURCE = "utf8mb4_uca1400_nopad_ai_ci", "utf8mb4_unicode_ci"
T = TableId("shop", "t")
DEFINITIONS = [
    "VARCHAR(50) GENERATED ALWAYS AS (CONCAT(LOWER(m), ' COLLATE (x)')) STORED",
    "VARCHAR(50) GENERATED ALWAYS AS (LOWER(m)) VIRTUAL COMMENT 'in small letters'",
    "VARCHAR(50) NOT NULL DEFAULT 'it''s, \\\\ {x}' COMMENT 'one, (two) COLLATE three'",
    "VARCHAR(50) DEFAULT (CONCAT('a', ',b')) CHECK (c <> 'CHARACTER SET')",
    "ENUM('{x}','b)','c''d') NOT NULL DEFAULT 'b)'",
    "CHAR(9) INVISIBLE DEFAULT 'x'",
]


@pytest.fixture
def target(mariadb) -> Target:
    return acquired(mariadb)


def created(target: Target, definition: str) -> None:
    target.execute(
        f"CREATE TABLE shop.t (id INT PRIMARY KEY, m VARCHAR(50), c {definition}, n INT, UNIQUE KEY u (c)) COLLATE {COARSE}",
        "INSERT INTO shop.t (id, m) VALUES (1, 'A@x')",
    )


def facts(target: Target) -> tuple[object, ...]:
    """All of the table but how its column compares: its definition, its rows, and that its index agrees with these."""
    definition = re.sub(r" CHARACTER SET \w+ COLLATE \w+", "", str(target.execute("SHOW CREATE TABLE shop.t")[0][1]))
    checked = target.execute("CHECK TABLE shop.t EXTENDED")
    return definition, target.execute("SELECT id, m, c, n FROM shop.t"), checked


def collation_of(target: Target) -> object:
    where = "table_schema = 'shop' AND table_name = 't' AND column_name = 'c'"
    return target.execute(f"SELECT collation_name FROM information_schema.columns WHERE {where}")[0][0]


@pytest.mark.server
@pytest.mark.parametrize("definition", DEFINITIONS)
def test_a_stopped_table_s_advice_changes_nothing_but_the_collation(target: Target, definition: str) -> None:
    created(target, definition)
    before = facts(target)
    with MySqlSession(read_settings(target.uri)) as session:
        with pytest.raises(refusal.Refused) as refused:
            handle.refuse_coarse_keys(session, T, held_columns(session, T).values())
        session.rollback()
        target.execute(refused.value.problem.hint.removeprefix("Run ").split("; in the target")[0])
        handle.refuse_coarse_keys(session, T, held_columns(session, T).values())
    assert collation_of(target) == "utf8mb4_nopad_bin"
    assert facts(target) == before


@pytest.mark.server
@pytest.mark.parametrize("definition", DEFINITIONS)
def test_validate_s_advice_changes_nothing_but_the_collation(target: Target, definition: str) -> None:
    created(target, definition)
    before = facts(target)
    shape = table("t", [column("id", "INT"), column("m", "VARCHAR"), column("c", "VARCHAR"), column("n", "INT")])
    source = SourceTable(shape, True, {"c": OF_SOURCE}, shape.columns)
    found = [check for check in target.sink.check_tables("p", [source]) if check.name == "collations"]
    assert [check.state for check in found] == [CheckState.FAILED]
    target.execute(found[0].advice.removeprefix("Run ").removesuffix("; in the target."))
    assert collation_of(target) == OF_SOURCE
    assert facts(target) == before


def test_a_definition_that_cannot_be_read_is_left_to_the_reader() -> None:
    advice = "change the collation of the column c to utf8mb4_bin in the target, and nothing else of its definition"
    assert collation.to_modify("CREATE TABLE `t` (`d` text)", T, "c", "utf8mb4_bin") == advice
    assert collation.to_modify("CREATE TABLE `t` (`c", T, "c", "utf8mb4_bin") == advice
