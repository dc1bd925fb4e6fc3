"""Statements of a stream that does not show the current database: what a name without a database means."""

from __future__ import annotations

import pytest

from headrace.model.events import RenameTableEvent
from headrace.model.stream import StreamStatement
from headrace.model.table import TableId
from headrace.sources.stream.history import StreamHistory


def told(commit_ts: int, name: str, statement: str, *, known: bool = True) -> StreamStatement:
    table_id = TableId(*name.split("."))
    return StreamStatement(
        commit_ts, table_id.database, statement, table_id, None, "0", commit_ts, tells_shape=False, current_is_known=known
    )


def created(*names: str) -> list[StreamStatement]:
    return [told(n, name, f"CREATE TABLE `{name.split('.')[1]}` (`id` INT PRIMARY KEY)") for n, name in enumerate(names, 1)]


def test_a_name_that_one_known_table_has_is_that_tables() -> None:
    history = StreamHistory({}, [*created("d1.t2", "d2.x"), told(9, "d2.t3", "RENAME TABLE `t2` TO `d2`.`t3`;", known=False)])
    change = history.changes[-1]
    assert change.events == (RenameTableEvent(TableId("d1", "t2"), TableId("d2", "t3")),)
    assert change.statement == "RENAME TABLE `d1`.`t2` TO `d2`.`t3`;"
    assert not change.doubt
    assert [version for version, _ in history.versions(TableId("d2", "t3"))] == [9]


@pytest.mark.parametrize("others", [[], ["d1.t2", "d2.t2"]])
def test_a_name_that_several_tables_have_or_none_waits_for_a_person(others: list[str]) -> None:
    history = StreamHistory({}, [*created(*others), told(9, "d2.t3", "RENAME TABLE `t2` TO `d2`.`t3`", known=False)])
    assert history.changes[-1].doubt.startswith("the statement names t2 without a database")


def test_a_copied_and_an_exchanged_table_are_found() -> None:
    partitioned = "CREATE TABLE `p` (`id` INT PRIMARY KEY) PARTITION BY RANGE (`id`) (PARTITION `p0` VALUES LESS THAN (10))"
    statements = [
        *created("d1.t"),
        told(5, "d2.p", partitioned),
        told(6, "d3.copy", "CREATE TABLE `d3`.`copy` LIKE `t`", known=False),
        told(7, "d2.p", "ALTER TABLE `d2`.`p` EXCHANGE PARTITION `p0` WITH TABLE `t`", known=False),
    ]
    history = StreamHistory({}, statements)
    assert [c.statement for c in history.changes[-2:]] == [
        "CREATE TABLE `d3`.`copy` LIKE `d1`.`t`",
        "ALTER TABLE `d2`.`p` EXCHANGE PARTITION `p0` WITH TABLE `d1`.`t`",
    ]
    assert history.versions(TableId("d3", "copy"))[0][1].handle_key == ("id",)
    assert TableId("d1", "t") in history.changes[-1].changes


@pytest.mark.parametrize("copies", [("shop.b",), ("shop.tmp", "shop.a", "shop.b")])
def test_the_steps_of_one_rename_are_taken_one_after_another(copies: tuple[str, ...]) -> None:
    """A record has the last new name. A stream may also have the statement once for each of its tables."""
    swap = "RENAME TABLE `shop`.`a` TO `shop`.`tmp`, `shop`.`b` TO `shop`.`a`, `shop`.`tmp` TO `shop`.`b`"
    tables = [
        told(1, "shop.a", "CREATE TABLE `a` (`id` INT PRIMARY KEY, `v` INT)"),
        told(2, "shop.b", "CREATE TABLE `b` (`id` INT, `v` INT PRIMARY KEY)"),
    ]
    history = StreamHistory({}, [*tables, *(told(9, name, swap) for name in copies)])
    assert [event for change in history.changes[2:] for event in change.events] == [
        RenameTableEvent(TableId("shop", old), TableId("shop", new)) for old, new in (("a", "tmp"), ("b", "a"), ("tmp", "b"))
    ]
    assert history.versions(TableId("shop", "a"))[-1][1].handle_key == ("v",)
    assert history.versions(TableId("shop", "b"))[-1][1].handle_key == ("id",)


def test_a_step_that_one_rename_has_twice_is_taken_twice() -> None:
    there_and_back = "RENAME TABLE `shop`.`a` TO `shop`.`b`, `shop`.`b` TO `shop`.`a`, `shop`.`a` TO `shop`.`b`"
    history = StreamHistory({}, [*created("shop.a"), told(9, "shop.b", there_and_back)])
    texts = [change.statement for change in history.changes[1:]]
    assert len(set(texts)) == 3, "equal texts would be one change for the journal"
    assert history.versions(TableId("shop", "b"))[-1][0] == 9
