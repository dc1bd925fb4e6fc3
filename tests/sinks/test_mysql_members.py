"""How long MariaDB compares the members of ENUM and SET columns: what runs takes a moment, and what would take long is refused."""

from __future__ import annotations

import time
from contextlib import suppress

import pymysql
import pytest
from mysql_writing import Target, acquired, column, table

from headrace.model.events import AddColumnEvent, AlterColumnTypeEvent, CreateTableEvent, SchemaChange, SchemaChangeEvent
from headrace.model.place import PlaceInFile
from headrace.model.table import TableId
from headrace.model.types import MOST_COMPARED, compared
from headrace.sinks.metadata_applier import SchemaChangeRefused

pytestmark = pytest.mark.server

T = TableId("shop", "t")
ID = column("id", "INT", nullable=False, primary_key=True)
SECONDS = 10.0
"""Several times as long as the most expensive members take that may run, on a machine that does other things, too."""
WORST = "CHARACTER SET utf8mb4 COLLATE utf8mb4_myanmar_ci"


def members(count: int, length: int = 60, letter: str = "\u1000") -> tuple[str, ...]:
    return tuple(letter * (length - 5) + f"{number:05}" for number in range(count))


def apply(target: Target, statement: str, *events: SchemaChangeEvent, by_shape: bool = False) -> None:
    change = SchemaChange(5, T, events, statement, "shop", frozenset({T}), origin=PlaceInFile("f.json"), by_shape=by_shape)
    target.sink.metadata_applier.apply_schema_change(change)


@pytest.mark.long
@pytest.mark.parametrize(("count", "length"), [(900, 60), (500, 200), (2_000, 12), (3_100, 5)])
def test_the_most_members_that_run_take_a_moment(mariadb, count: int, length: int) -> None:
    target, found = acquired(mariadb), members(count, length)
    assert 0.8 * MOST_COMPARED < compared(found) <= MOST_COMPARED
    listed, began = ", ".join(f"'{member}'" for member in found), time.monotonic()
    with suppress(pymysql.err.OperationalError):  # MariaDB says that a table is too large for it only when it has compared
        target.execute(f"CREATE TABLE shop.u (id INT PRIMARY KEY, e ENUM({listed}) {WORST})")
    assert time.monotonic() - began < SECONDS


def test_a_shape_with_too_many_members_makes_no_table(mariadb) -> None:
    target, few, many = acquired(mariadb), column("e", "ENUM", elements=members(20)), column("e", "ENUM", elements=members(950))
    several = [column(f"e{number}", "SET", elements=members(63, 130)) for number in range(100)]
    for schema in (table("t", [ID, many]), table("t", [ID, *several])):
        refuse(target, CreateTableEvent(T, schema))
    assert target.execute("SHOW TABLES FROM shop") == []
    apply(target, "", CreateTableEvent(T, table("t", [ID, few])), by_shape=True)
    for events in ([AddColumnEvent(T, many)], [AlterColumnTypeEvent(T, many, few)], [AddColumnEvent(T, one) for one in several]):
        refuse(target, *events)
    assert "'က" in str(target.execute("SHOW COLUMNS FROM shop.t")[1][1])


def refuse(target: Target, *events: SchemaChangeEvent) -> None:
    with pytest.raises(SchemaChangeRefused) as caught:
        apply(target, "", *events, by_shape=True)
    assert "its ENUM and SET columns have too many or too long members" in caught.value.problem.message
    assert "VARCHAR" in caught.value.problem.hint
