"""The statements that replay transactions, and how pieces of a table become transactions."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest

from headrace.errors import DefinitionError
from headrace.model.block import COMMIT_TS, ChangeBlock
from headrace.model.events import RowKind
from headrace.model.table import Column, TableId, TableSchema
from headrace.replay.conflict_keys import ConflictKeys, KeyPart, UniqueKey
from headrace.replay.transactions import Transactions
from headrace.sinks.base import ChangeDemand
from headrace.sinks.mysql.applying import ApplyRules, ReplayedOfTarget, ReplayedTables
from headrace.sinks.mysql.replay import _has_old_images, _whole_transactions
from headrace.sinks.mysql.replay_statements import independent_groups, row_changes, statements
from headrace.sinks.mysql.settings import read_settings
from headrace.sinks.mysql.sink import open_sink
from transaction_cases import INT, TEXT, Change, block_of, table

SHAPE = table(Column("id", INT, False, True), Column("seat", INT), Column("name", TEXT), key=("id",))
KEYS = (UniqueKey((KeyPart("id"),)), UniqueKey((KeyPart("seat"),)))


def row(number: int, seat: int | None = None, name: str = "n") -> dict[str, object]:
    return {"id": number, "seat": number if seat is None else seat, "name": name}


def texts(*transactions: Sequence[Change], schema: TableSchema = SHAPE, in_order: bool = False) -> list[str]:
    """The statements of transactions, with a line between groups."""
    block = block_of(schema, [(ts, list(changes)) for ts, changes in enumerate(transactions, 1)])
    whole, keys = Transactions.of(block), ConflictKeys(schema, KEYS, old_images=True)
    found: list[str] = []
    for start, stop in independent_groups(keys.touched(whole), len(whole)):
        group = whole.part(start, stop)
        for changes in row_changes(group, keys, KEYS, in_order=in_order):
            found += [s.text.decode() for s in statements(schema, group.block.batch, changes, most_bytes=1 << 20, most_rows=100)]
        found.append("--")
    return found[:-1]


def test_transactions_that_do_not_depend_on_each_other_share_statements() -> None:
    assert texts(
        [Change(None, row(1)), Change(row(2), None)],
        [Change(None, row(3)), Change(row(4), row(4, name="it's"))],
        [Change(row(5), None)],
    ) == [
        "DELETE FROM `d`.`t` WHERE (`id`) IN ((2),(5))",
        "UPDATE `d`.`t` SET `id` = 4, `seat` = 4, `name` = 'it\\'s' WHERE `id` = 4",
        "INSERT INTO `d`.`t` (`id`, `seat`, `name`) VALUES (1,1,'n'),(3,3,'n')",
    ]


def test_updates_go_together_as_statements_of_their_own() -> None:
    block = block_of(SHAPE, [(1, [Change(row(n), row(n, name=";'")) for n in range(5)])])
    whole, keys = Transactions.of(block), ConflictKeys(SHAPE, KEYS, old_images=True)
    (changes,) = row_changes(whole, keys, KEYS, in_order=False)
    found = list(statements(SHAPE, block.batch, changes, most_bytes=1 << 20, most_rows=100, most_updates=3))
    assert [statement.affects for statement in found] == [[1, 1, 1], [1, 1]]
    one = "UPDATE `d`.`t` SET `id` = {0}, `seat` = {0}, `name` = ';\\'' WHERE `id` = {0}"
    assert found[1].text.decode() == ";".join(one.format(n) for n in (3, 4))


def test_a_transaction_that_takes_what_another_one_frees_comes_behind_it() -> None:
    found = texts([Change(row(1, seat=7), None)], [Change(None, row(2, seat=8))], [Change(None, row(3, seat=7))])
    assert found == [
        "DELETE FROM `d`.`t` WHERE (`id`) IN ((1))",
        "INSERT INTO `d`.`t` (`id`, `seat`, `name`) VALUES (2,8,'n')",
        "--",
        "INSERT INTO `d`.`t` (`id`, `seat`, `name`) VALUES (3,7,'n')",
    ]


def test_updates_that_hand_a_unique_value_on_delete_and_insert() -> None:
    """Whichever UPDATE came first would meet the other row's seat. The third one is an UPDATE."""
    found = texts([Change(row(1, 1), row(1, 2)), Change(row(2, 2), row(2, 1)), Change(row(3, 3), row(3, 4))])
    assert [text.split(" ")[0] for text in found] == ["DELETE", "UPDATE", "INSERT"]
    assert "IN ((1),(2))" in found[0]
    assert "`id` = 3" in found[1]


def test_an_update_may_take_what_a_deletion_of_its_transaction_frees() -> None:
    found = texts([Change(row(1, 1), row(1, 2)), Change(row(2, 2), None), Change(None, row(3, 1))])
    assert [text.split(" ")[0] for text in found] == ["DELETE", "UPDATE", "INSERT"]


def test_an_update_that_moves_a_row_finds_it_by_its_old_key() -> None:
    (text,) = texts([Change(row(1), row(9, 1))])
    assert text == "UPDATE `d`.`t` SET `id` = 9, `seat` = 1, `name` = 'n' WHERE `id` = 1"


@pytest.mark.parametrize("torn", [False, True])
def test_rows_that_exchange_their_keys_are_deleted_and_inserted(torn: bool) -> None:
    """Deletions of a key come first (``engine/change_log``), so the old row of one may stand apart from its new one."""
    block = block_of(SHAPE, [(1, [Change(row(1, 1), row(2, 1)), Change(row(2, 2), row(1, 2))])])
    rows = block.batch.take(pa.array([2, 0, 1, 3] if torn else [0, 1, 2, 3]))
    group = Transactions(ChangeBlock(block.table_id, 1, SHAPE, rows), np.array([0, 4]))
    (changes,) = row_changes(group, ConflictKeys(SHAPE, KEYS, old_images=True), KEYS, in_order=False)
    found = [s.text.decode() for s in statements(SHAPE, rows, changes, most_bytes=1 << 20, most_rows=100)]
    assert sorted(found[0]) == sorted("DELETE FROM `d`.`t` WHERE (`id`) IN ((1),(2))")
    assert sorted(found[1]) == sorted("INSERT INTO `d`.`t` (`id`, `seat`, `name`) VALUES (2,1,'n'),(1,2,'n')")


@pytest.mark.parametrize(
    ("changes", "verbs"),
    [
        ([Change(None, row(5)), Change(row(5), row(5, name="x"))], ["INSERT", "UPDATE"]),
        ([Change(None, row(5)), Change(row(5), None)], ["INSERT", "DELETE"]),
        ([Change(row(5), row(5, name="x")), Change(row(5, name="x"), None)], ["UPDATE", "DELETE"]),
        ([Change(row(5), row(6, 5)), Change(row(6, 5), row(7, 5))], ["UPDATE", "UPDATE"]),
        ([Change(row(5), None), Change(None, row(5)), Change(None, row(6))], ["DELETE", "INSERT", "INSERT"]),
        ([Change(None, row(6)), Change(row(5), None)], ["DELETE", "INSERT"]),
    ],
)
def test_changes_of_one_key_keep_their_order_where_a_transaction_may_have_several(changes: list[Change], verbs: list[str]) -> None:
    assert [text.split(" ")[0] for text in texts(changes, in_order=True)] == verbs


def test_all_changed_rows_are_deleted_and_inserted_where_keys_are_computed() -> None:
    """What makes the unique value of a virtual column is not known here."""
    keys = (*KEYS, UniqueKey((KeyPart(""),)))
    block = block_of(
        SHAPE, [(1, [Change(row(1), row(1, name="a")), Change(row(2), row(2, name="b"))]), (2, [Change(row(3), row(3, 4))])]
    )
    whole, conflicts = Transactions.of(block), ConflictKeys(SHAPE, keys, old_images=True)
    assert independent_groups(conflicts.touched(whole), 2) == [(0, 1), (1, 2)]
    found = [next(row_changes(whole.part(n, n + 1), conflicts, keys, in_order=False)) for n in range(2)]
    assert [(len(c.deletes), len(c.new), len(c.inserts)) for c in found] == [(2, 0, 2), (0, 1, 0)]


def kinds(*found: tuple[int, RowKind, int, int]) -> pa.RecordBatch:
    """Rows of the shape: commit ts, kind, id, seat."""
    ts, kind, ids, seats = zip(*found, strict=True)
    columns = [pa.array(kind, pa.int8()), pa.array(ts, pa.int64()), pa.array(range(len(ts)), pa.int64())]
    values = [pa.array(ids, pa.int64()), pa.array(seats, pa.int64()), pa.array(["n"] * len(ts))]
    names = block_of(SHAPE, [(1, [Change(None, row(1))])]).batch.schema.names
    return pa.RecordBatch.from_arrays([*columns, *values], names=names)


def test_a_new_row_whose_old_one_came_as_a_deletion_is_inserted() -> None:
    """TiCDC may write an update without its old row, and repeat it as a deletion and an insertion: the latter is a repeat."""
    block = block_of(SHAPE, [(1, [Change(None, row(1))])])
    rows = kinds((5, RowKind.DELETE, 1, 1), (5, RowKind.UPDATE_AFTER, 1, 2), (6, RowKind.UPDATE_AFTER, 3, 3))
    group = Transactions(ChangeBlock(block.table_id, 0, SHAPE, rows), np.array([0, 2, 3]))
    (changes,) = row_changes(group, ConflictKeys(SHAPE, KEYS, old_images=True), KEYS, in_order=False)
    assert (changes.deletes.tolist(), changes.inserts.tolist(), changes.new.tolist()) == ([0], [1], [2])


def test_pieces_are_cut_only_between_transactions() -> None:
    pieces = [[1, 1, 2], [2, 2], [2, 3, 4], [4], [5], []]
    tables = [pa.table({COMMIT_TS: pa.array(piece, pa.int64())}) for piece in pieces]
    found = [batch.column(COMMIT_TS).to_pylist() for batch in _whole_transactions(tables)]
    assert [ts for part in found for ts in part] == [ts for piece in pieces for ts in piece]
    for one, other in pairwise(found):
        assert one[-1] < other[0]


@pytest.mark.parametrize(
    ("rows", "has"),
    [
        ([(1, RowKind.UPDATE_BEFORE, 1, 1), (1, RowKind.UPDATE_AFTER, 1, 2), (2, RowKind.DELETE, 1, 2)], True),
        ([(1, RowKind.UPDATE_AFTER, 1, 2)], False),
        ([(1, RowKind.INSERT, 1, 2)], True),
    ],
)
def test_old_images_are_missing_if_an_update_has_none(rows: list[tuple[int, RowKind, int, int]], has: bool) -> None:
    assert _has_old_images(kinds(*rows), SHAPE) is has


def test_old_images_are_missing_if_a_deletion_has_only_its_key() -> None:
    rows = kinds((1, RowKind.DELETE, 1, 1), (2, RowKind.DELETE, 2, 2))
    bare = pa.array([None, 2], pa.int64()), pa.array([None, "n"])
    columns = [*rows.columns[:4], *bare]
    assert not _has_old_images(pa.RecordBatch.from_arrays(columns, names=rows.schema.names), SHAPE)


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ("apply=net", "apply=net is neither converge nor replay nor auto"),
        ("apply-tables=shop.*", "'shop.*' has no mode"),
        ("apply-tables=shop:replay", "'shop' names no database"),
        ("apply-tables=shop.*:all", "shop.*=all is neither converge nor replay nor auto"),
        ("apply-tables=shop.a:replay&transaction-atomicity=global", "global is not supported"),
        ("apply=replay&transaction-atomicity=global", "global is not supported"),
        ("transaction-atomicity=row", "is neither none nor table"),
        ("apply=replay&replay-connections=65", "is more than 64"),
        ("apply=replay&replay-connections=0", "is not a number from 1 on"),
    ],
)
def test_what_is_not_to_be_replayed_is_refused(query: str, told: str) -> None:
    with pytest.raises(DefinitionError, match=re.escape(told)):
        read_settings(f"mysql://host/?{query}")


@pytest.mark.parametrize("query", ["transaction-atomicity=global", "transaction-atomicity=none&apply=converge", ""])
def test_a_sink_uri_of_ticdc_is_taken_as_it_is(query: str) -> None:
    assert read_settings(f"mysql://host/?{query}").apply == ApplyRules()


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", "----"),
        ("apply=replay", "rrrr"),
        ("apply-tables=SHOP.*:replay,shop.log:converge", "r-r-"),
        ("apply=replay&apply-tables=shop.*:converge,shop.log:replay", "-r-r"),
        ("apply=auto", "--r-"),
        ("apply=auto&apply-tables=shop.*:converge", "----"),
        ("apply-tables=shop.fires:auto,shop.a?:replay", "--r-"),
    ],
)
def test_the_last_pattern_that_matches_says_how_a_table_is_applied(query: str, expected: str) -> None:
    tables = ReplayedTables(read_settings(f"mysql://host/?{query}").apply, frozenset({TableId("shop", "fires")}))
    names = [TableId("shop", "a"), TableId("shop", "log"), TableId("Shop", "Fires"), TableId("other", "a")]
    assert "".join("r" if tables.have(name) else "-" for name in names) == expected
    assert tables.demand_of(names[2], SHAPE) is (ChangeDemand.ALL if expected[2] == "r" else ChangeDemand.NET)
    assert tables.demand_of(names[2], table(Column("a", INT), key=())) is ChangeDemand.NET


@pytest.mark.parametrize("query", ["", "apply=replay", "apply-tables=shop.*:replay"])
def test_the_target_is_asked_for_triggers_only_by_auto(query: str) -> None:
    asked: list[str] = []
    of_target = ReplayedOfTarget(read_settings(f"mysql://host/?{query}").apply, lambda: asked.append(query) or [])
    assert of_target.known().triggered == frozenset()
    assert not asked


def test_the_target_is_asked_for_triggers_once() -> None:
    answers = [[TableId("Shop", "A")], list[TableId]()]
    of_target = ReplayedOfTarget(read_settings("mysql://host/?apply=auto").apply, lambda: answers.pop(0))
    assert [of_target.demand_of(TableId("shop", "a"), SHAPE) for _ in range(2)] == [ChangeDemand.ALL] * 2


def test_tables_without_transactions_are_not_replayed() -> None:
    with pytest.raises(DefinitionError, match="exclude each other"):
        open_sink("mysql://host/?apply=replay", {"allow-non-transactional": True})
