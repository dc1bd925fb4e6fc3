"""Statements that must not do what they say, before the plan: none of the corpus runs as somebody else would have it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headrace.ddl.classify import classify
from headrace.engine.barriers import PlanRules
from headrace.engine.excluded_tables import Followed
from headrace.engine.objections import objection, reserved_database
from headrace.engine.plan import plan_cut
from headrace.model.events import OtherEvent, SchemaChange
from headrace.model.ledger import LedgerState
from headrace.model.offer import Offer
from headrace.model.table import SYSTEM_DATABASES, TableId
from headrace.sinks.duckdb.sink import SYSTEM_SCHEMAS
from headrace.sinks.reserved import Reserved
from headrace.transform.filters import TableFilter
from hostile import FILTER, LEDGER_DATABASE, Ends, HostileStatement, Statement, benign_statements, hostile_statements

FOLLOWED = Followed(TableFilter.parse(FILTER).includes)
RESERVED = [Reserved(LEDGER_DATABASE, "", system) for system in (SYSTEM_DATABASES, SYSTEM_SCHEMAS)]
ORDERS = TableId("shop", "orders")


def changed(statement: str, own: TableId) -> SchemaChange:
    found = classify(statement, database=own.database, table_id=own, before=None, after=None)
    return SchemaChange(5, own, found.events, statement, own.database, found.changes, found.reads)


def runs(statement: Statement, reserved: Reserved) -> bool:
    change = changed(statement.sql, statement.own)
    return not objection(change, FOLLOWED) and reserved_database(change, reserved) is None


@pytest.mark.parametrize("reserved", RESERVED, ids=["MySQL", "DuckDB"])
@pytest.mark.parametrize("statement", hostile_statements(), ids=lambda statement: statement.name)
def test_a_hostile_statement_waits(statement: HostileStatement, reserved: Reserved) -> None:
    # The others run in part, or as TiDB reads them: tests/storage_cases/test_hostile_statements.py.
    assert not runs(statement, reserved) or statement.ends is not Ends.REFUSED


@pytest.mark.parametrize("statement", benign_statements(), ids=lambda statement: statement.name)
def test_a_benign_statement_runs(statement: Statement) -> None:
    assert all(runs(statement, reserved) for reserved in RESERVED)


def test_the_reason_names_what_is_wrong() -> None:
    told = {
        "DROP TABLE orders, secrets": "it names shop.secrets, and stands in a file of shop.orders",
        "CREATE TABLE customers (a INT)": "it names shop.customers, and stands in a file of shop.orders",
        "DROP DATABASE shop": "it names the database shop, and stands in a file of shop.orders",
        "CREATE OR REPLACE VIEW orders AS SELECT * FROM secrets": "it names shop.secrets, which --tables leaves out",
        "SET GLOBAL x = 1": "'SET' is not the beginning of a schema change",
    }
    for statement, why in told.items():
        assert objection(changed(statement, ORDERS), FOLLOWED) == (
            f"its schema change at 5 does not run by itself, because {why}: {statement}."
        )


def test_a_statement_that_nobody_understands_waits_for_what_it_says_and_not_for_who_else_waits() -> None:
    ledgers = TableId("HEADRACE", "t")
    reserved = Reserved("headrace")
    unknown = SchemaChange(5, ORDERS, (OtherEvent(ORDERS),), "FROBNICATE orders", "shop", frozenset({ORDERS, ledgers}))
    assert reserved_database(unknown, reserved) is None
    stops = changed("CREATE TABLE t (id INT PRIMARY KEY)", ledgers)
    rules = PlanRules(includes=lambda _: True, reserved=reserved)
    cut = plan_cut(LedgerState("p"), Offer(9, 9, (replace(stops, commit_ts=3), unknown), ()), rules)
    assert "HEADRACE has the name" in cut.holds[ledgers].problem.sentence()
    assert "FROBNICATE orders" in cut.holds[ORDERS].problem.sentence()
    assert "headrace ddl skip|edit" in cut.holds[ORDERS].problem.sentence()
    assert reserved_database(replace(unknown, table_id=ledgers), reserved) is not None
    assert reserved_database(replace(unknown, statement="DROP TABLE orders, HEADRACE.t"), reserved) is not None
