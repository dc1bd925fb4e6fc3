"""Which orders of columns the records of a directory may have, and how much of a task they are."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Mapping

import pytest

from headrace.formats.csv_orders import ColumnOrder, ColumnOrders
from headrace.model.table import Column, TableId, TableSchema
from headrace.model.tso import MAX_TSO
from headrace.model.types import ColumnType, TypeKind
from headrace.sources.ticdc_storage.table_versions import TableVersion, with_bounds

T = TableId("test", "t")
FORMER, LATER, WIDER = ("a", "b"), ("b", "a"), ("a", "b", "c")
PATH = "test/t"


def version(number: int, names: tuple[str, ...], *, begins: bool = False, table: TableId = T) -> TableVersion:
    schema = TableSchema(table, tuple(Column(name, ColumnType(TypeKind.INT)) for name in names))
    return TableVersion(table, number, schema, 0 if begins else number, f"{table.table}/{number}")


def orders(*paths: Iterable[TableVersion]) -> list[Mapping[int, ColumnOrders]]:
    """Those of each path, by version."""
    found = with_bounds({f"{PATH}{number}": {v.version: v for v in versions} for number, versions in enumerate(paths)})
    return [{number: known.orders for number, known in versions.items()} for versions in found.values()]


@pytest.mark.parametrize(
    ("beside", "elsewhere", "in_doubt"),
    [
        ([], [version(200, LATER)], True),
        ([version(200, LATER)], [], False),
        ([version(250, FORMER)], [version(200, LATER)], True),
        ([version(150, FORMER)], [version(200, LATER)], False),
        ([version(150, WIDER)], [version(200, LATER)], True),
        ([], [version(200, LATER, begins=True)], False),
        ([], [version(150, WIDER, begins=True), version(200, LATER)], False),
        ([], [version(250, WIDER, begins=True), version(200, LATER)], True),
        ([], [version(150, FORMER, begins=True, table=TableId("test", "u")), version(200, LATER)], True),
    ],
)
def test_ticdc_leaves_a_directory_for_a_newer_one_of_its_path_and_where_the_table_begins(
    beside: list[TableVersion], elsewhere: list[TableVersion], in_doubt: bool
) -> None:
    own, *_ = orders([version(100, FORMER), *beside], *([elsewhere] if elsewhere else []))
    assert own[100].in_doubt is in_doubt


def test_all_directories_of_a_table_know_all_orders_of_their_columns() -> None:
    first, second = orders([version(100, FORMER), version(400, WIDER)], [version(200, LATER), version(300, FORMER)])
    assert not first[400].are_several
    found = [ColumnOrder(FORMER, 0, 201), ColumnOrder(LATER, 201, 301), ColumnOrder(FORMER, 301, MAX_TSO + 1)]
    assert [first[100].at(ts) for ts in (200, 201, 301)] == found
    assert second[300].at(200) == ColumnOrder(LATER, 200, 300)


def test_a_task_gets_few_bytes_for_each_time_that_columns_changed_places() -> None:
    (found,) = orders(version(100 + number, LATER if number % 2 else FORMER) for number in range(1_000))
    assert len(pickle.dumps(found[100])) < 1_000 * 16
