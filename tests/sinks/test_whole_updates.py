"""What the storage sink writes of several changes of a key at one commit ts leads readers, who delete first, to the same rows."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.model.block import COMMIT_TS, KIND, META_FIELDS
from headrace.model.events import RowKind
from headrace.sinks.storage.whole_updates import WholeUpdates

SCHEMA = pa.schema([*META_FIELDS, pa.field("id", pa.int64()), pa.field("v", pa.string())])
Row = tuple[RowKind, int, int, str]
"""Kind, commit ts, key and value."""


@st.composite
def histories(draw: st.DrawFn) -> list[Row]:
    """Statements of a table with a key, in order; several may share a commit ts. Updates may move the key, or lack the old row."""
    held: dict[int, str] = {}
    rows: list[Row] = []
    commit_ts = 1
    for number in range(draw(st.integers(0, 25))):
        commit_ts += draw(st.sampled_from((0, 0, 1)))
        key, value = draw(st.integers(1, 4)), f"v{number}"
        if key not in held:
            rows.append((RowKind.INSERT, commit_ts, key, value))
        elif draw(st.booleans()):
            rows.append((RowKind.DELETE, commit_ts, key, held.pop(key)))
            continue
        else:
            target = draw(st.sampled_from([key, *(k for k in range(1, 5) if k not in held)]))
            if target != key or draw(st.booleans()):
                rows.append((RowKind.UPDATE_BEFORE, commit_ts, key, held.pop(key)))
            key = target
            rows.append((RowKind.UPDATE_AFTER, commit_ts, key, value))
        held[key] = value
    return rows


def table(rows: Sequence[Row]) -> pa.Table:
    columns = [[row[n] for row in rows] for n in range(4)]
    return pa.table([pa.array(columns[0], pa.int8()), columns[1], [0] * len(rows), columns[2], columns[3]], schema=SCHEMA)


def written(rows: Sequence[Row], cuts: Sequence[int], key: tuple[str, ...] = ("id",)) -> list[Row]:
    """What comes out of pieces of the rows."""
    updates, found = WholeUpdates(key), []
    bounds = [0, *sorted({cut for cut in cuts if 0 < cut < len(rows)}), len(rows)]
    for start, stop in pairwise(bounds):
        if stop > start and (ready := updates.taken(table(rows[start:stop]))) is not None:
            found.append(ready)
    if (rest := updates.rest()) is not None:
        found.append(rest)
    return [(RowKind(row[KIND]), row[COMMIT_TS], row["id"], row["v"]) for batch in found for row in batch.to_pylist()]


def applied(rows: Sequence[Row], *, deletes_first: bool) -> dict[int, str]:
    """The rows of the table afterwards."""
    held: dict[int, str] = {}
    is_new = (RowKind.INSERT, RowKind.UPDATE_AFTER)
    order = sorted(rows, key=lambda row: (row[1], row[0] in is_new)) if deletes_first else rows
    for kind, _, key, value in order:
        if kind in is_new:
            held[key] = value
        else:
            held.pop(key, None)
    return held


@given(histories(), st.lists(st.integers(1, 25), max_size=4))
def test_readers_who_delete_first_have_the_same_rows(rows: list[Row], cuts: list[int]) -> None:
    found = written(rows, cuts)
    assert applied(found, deletes_first=True) == applied(rows, deletes_first=False)
    assert applied(found, deletes_first=False) == applied(rows, deletes_first=False)
    assert [row[1] for row in found] == sorted(row[1] for row in found)
    ends = {(row[1], row[2]) for row in rows}
    assert {(row[1], row[2]) for row in found} <= ends


@given(histories(), st.lists(st.integers(1, 25), max_size=4))
def test_every_old_row_of_an_update_is_followed_by_its_new_row(rows: list[Row], cuts: list[int]) -> None:
    found = written(rows, cuts)
    for row, following in zip(found, [*found, None][1:], strict=True):
        if row[0] is RowKind.UPDATE_BEFORE:
            assert following is not None
            assert (following[0], following[1]) == (RowKind.UPDATE_AFTER, row[1])


@given(histories(), st.lists(st.integers(1, 25), max_size=4))
def test_each_change_is_possible_for_readers_who_require_it(rows: list[Row], cuts: list[int]) -> None:
    """Readers that replay transactions stop at a deletion of a row that is not there, and at an insertion of one that is."""
    found = written(rows, cuts)
    held: set[int] = set()
    is_new = (RowKind.INSERT, RowKind.UPDATE_AFTER)
    moved = {index + 1 for index, row in enumerate(found) if row[0] is RowKind.UPDATE_BEFORE and found[index + 1][2] != row[2]}
    kept = {index + 1 for index, row in enumerate(found) if row[0] is RowKind.UPDATE_BEFORE} - moved
    for index in sorted(range(len(found)), key=lambda index: (found[index][1], found[index][0] in is_new)):
        kind, _, key, _ = found[index]
        if kind not in is_new:
            assert key in held
            held.remove(key)
        else:
            alone = kind is RowKind.UPDATE_AFTER and index not in moved | kept
            assert (key in held) is alone
            held.add(key)


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        ([(RowKind.INSERT, 5, 1, "a"), (RowKind.DELETE, 5, 1, "a")], []),
        ([(RowKind.UPDATE_AFTER, 5, 1, "b"), (RowKind.DELETE, 5, 1, "b")], [(RowKind.DELETE, 5, 1, "b")]),
        (
            [(RowKind.INSERT, 5, 1, "a"), (RowKind.UPDATE_BEFORE, 5, 1, "a"), (RowKind.UPDATE_AFTER, 5, 2, "a")],
            [(RowKind.INSERT, 5, 2, "a")],
        ),
        (
            [(RowKind.DELETE, 5, 1, "a"), (RowKind.INSERT, 5, 1, "b"), (RowKind.DELETE, 5, 1, "b")],
            [(RowKind.DELETE, 5, 1, "b")],
        ),
    ],
)
def test_of_several_changes_of_a_key_what_it_had_before_and_has_after_is_left(rows: list[Row], told: list[Row]) -> None:
    assert written(rows, []) == told


def test_rows_without_a_commit_ts_stay_as_they_are() -> None:
    """Readers take them in the order of the file."""
    rows = [(RowKind.INSERT, 0, 1, "a"), (RowKind.DELETE, 0, 1, "a"), (RowKind.INSERT, 0, 1, "b")]
    assert written(rows, [1, 2]) == rows


def test_rows_of_a_table_without_key_stay_as_they_are() -> None:
    rows = [(RowKind.INSERT, 5, 1, "a"), (RowKind.INSERT, 5, 1, "a"), (RowKind.DELETE, 5, 1, "a")]
    assert written(rows, [1], ()) == rows
