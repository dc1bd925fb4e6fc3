"""Random transactions, executed by their statements in a database with unique keys, lead to what the source has."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from random import Random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.model.block import COMMIT_TS, KIND, SEQ, ChangeBlock
from headrace.model.events import RowKind
from headrace.model.table import Column
from headrace.replay.conflict_keys import ConflictKeys, KeyPart, UniqueKey
from headrace.replay.transactions import Transactions
from headrace.sinks.mysql.replay_statements import independent_groups, row_changes, statements
from transaction_cases import INT, Change, Row, block_of, table

SHAPE = table(Column("id", INT, False, True), Column("seat", INT), Column("v", INT), key=("id",))
KEYS = (UniqueKey((KeyPart("id"),)), UniqueKey((KeyPart("seat"),)))
PLACES = range(8)
_NEWEST = [0]
_OLD = (RowKind.DELETE, RowKind.UPDATE_BEFORE)

State = dict[int, Row]
"""The rows of the source by their id."""


def row(number: int, seat: int | None) -> Row:
    """A row that was never there before, so that no change leaves a row as it is."""
    _NEWEST[0] += 1
    return {"id": number, "seat": seat, "v": _NEWEST[0]}


def at_once(random: Random, state: State) -> list[Change]:
    """A transaction as TiCDC writes it: one change of each key, all of which take effect together, in any order."""
    touched = random.sample(sorted(state), random.randint(0, len(state)))
    gone = {key for key in touched if random.random() < 0.3}
    ids = [number for number in PLACES if number not in state or number in touched]
    seats = [n for n in PLACES if n not in {state[key]["seat"] for key in state if key not in touched}]
    random.shuffle(ids)
    random.shuffle(seats)
    moves, changes = random.random() < 0.5, [Change(state[key], None) for key in gone]
    for key in touched:
        if key not in gone:
            number = ids.pop() if moves else key
            changes.append(Change(state[key], row(number, seats.pop() if random.random() < 0.8 else None)))
    taken = {c.after["id"] for c in changes if c.after is not None} | (state.keys() - set(touched))
    for number in random.sample(sorted(set(PLACES) - taken), random.randint(0, len(PLACES) - len(taken))):
        if seats:
            changes.append(Change(None, row(number, seats.pop())))
    random.shuffle(changes)
    for change in changes:
        if change.before is not None:
            del state[int(str(change.before["id"]))]
    state |= {int(str(change.after["id"])): change.after for change in changes if change.after is not None}
    return changes


def one_after_the_other(random: Random, state: State) -> list[Change]:
    """A transaction as TiDB Binlog has it: in its own order, with several changes of a key."""
    changes: list[Change] = []
    for _ in range(random.randint(1, 8)):
        before = state[random.choice(sorted(state))] if state and random.random() < 0.7 else None
        free = [n for n in PLACES if n not in state]
        seats = [n for n in PLACES if n not in {found["seat"] for found in state.values()}]
        if before is None and not (free and seats):
            continue
        seat = random.choice(seats) if seats and (before is None or random.random() < 0.5) else before and before["seat"]
        number = random.choice(free) if free and (before is None or random.random() < 0.3) else int(str((before or {})["id"]))
        after = None if before is not None and random.random() < 0.3 else row(number, seat)  # type: ignore[arg-type]
        if before is not None:
            del state[int(str(before["id"]))]
        if after is not None:
            state[number] = after
        changes.append(Change(before, after))
    return changes


def torn(random: Random, block: ChangeBlock) -> ChangeBlock:
    """The same rows after deletions of a key have moved before its new rows (``engine/change_log``): pairs may be apart."""
    rows = block.batch

    def place(number: int) -> tuple[int, bool, int]:
        stays = rows[KIND][number].as_py() not in _OLD and random.random() < 0.8
        return rows[COMMIT_TS][number].as_py(), stays, rows[SEQ][number].as_py()

    order = sorted(range(rows.num_rows), key=place)
    return ChangeBlock(block.table_id, block.version, block.schema, rows.take(pa.array(order)))


def executed(connection: sqlite3.Connection, block: ChangeBlock, keys: ConflictKeys, *, in_order: bool) -> None:
    """Runs the statements. Each affects as many rows as it says."""
    whole = Transactions.of(block)
    for start, stop in independent_groups(keys.touched(whole), len(whole)):
        group = whole.part(start, stop)
        for changes in row_changes(group, keys, KEYS, in_order=in_order):
            for statement in statements(SHAPE, group.block.batch, changes, most_bytes=1 << 20, most_rows=100):
                assert connection.execute(statement.text.decode()).rowcount == statement.rows.num_rows, statement.text


def rows_of(connection: sqlite3.Connection) -> list[tuple[object, ...]]:
    return sorted(connection.execute("SELECT id, seat, v FROM d.t").fetchall())


def wanted(rows: Iterable[Row]) -> list[tuple[object, ...]]:
    return sorted((found["id"], found["seat"], found["v"]) for found in rows)


def target() -> sqlite3.Connection:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    connection.execute("ATTACH ':memory:' AS d")
    connection.execute("CREATE TABLE d.t (id INT PRIMARY KEY, seat INT UNIQUE, v INT)")
    return connection


@pytest.mark.parametrize("in_order", [False, True], ids=["at once", "in order"])
@pytest.mark.parametrize("known", [True, False], ids=["known keys", "computed keys"])
@settings(max_examples=150)
@given(seed=st.integers(0, 1 << 32), count=st.integers(1, 12), split=st.booleans())
def test_any_transactions_lead_to_the_rows_of_the_source(in_order: bool, known: bool, seed: int, count: int, split: bool) -> None:
    random, state = Random(seed), dict[int, Row]()
    make = one_after_the_other if in_order else at_once
    history: list[tuple[int, Sequence[Change]]] = []
    for ts in range(1, count + 1):
        if changes := make(random, state):
            history.append((ts, changes))
    if not history:
        return
    block = block_of(SHAPE, history)
    if split and not in_order:
        block = torn(random, block)
    # A key that is computed from columns makes the table serialised.
    keys = ConflictKeys(SHAPE, KEYS if known else (*KEYS, UniqueKey((KeyPart(""),))), old_images=True)
    connection = target()
    executed(connection, block, keys, in_order=in_order)
    assert rows_of(connection) == wanted(state.values())


@settings(max_examples=100)
@given(seed=st.integers(0, 1 << 32), count=st.integers(1, 8))
def test_any_transactions_without_old_images_lead_to_the_rows_of_the_source(seed: int, count: int) -> None:
    """TiCDC then splits updates of keys. Updates of a unique value may come as they are."""
    random, state = Random(seed), dict[int, Row]()
    history: list[tuple[int, Sequence[Change]]] = []
    for ts in range(1, count + 1):
        split: list[Change] = []
        for change in at_once(random, state):
            moved = change.before and change.after and change.before["id"] != change.after["id"]
            split += [Change(change.before, None), Change(None, change.after)] if moved else [change]
        if split:
            history.append((ts, sorted(split, key=lambda change: change.after is not None)))
    if not history:
        return
    block = block_of(SHAPE, history)
    kept = np.flatnonzero(block.batch.column(KIND).to_numpy() != RowKind.UPDATE_BEFORE)
    block = ChangeBlock(block.table_id, block.version, SHAPE, block.batch.take(pa.array(kept)))
    connection = target()
    executed(connection, block, ConflictKeys(SHAPE, KEYS, old_images=False), in_order=False)
    assert rows_of(connection) == wanted(state.values())
