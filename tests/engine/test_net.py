"""Netting: only the last state of a key matters, and keys that a database may hold for equal stay together."""

from __future__ import annotations

from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.engine.net import Sights, buckets, last_states, net_change
from headrace.model.block import COMMIT_TS, KIND, SEQ, SEQ_RANK_SHIFT, combined
from headrace.model.collation import fold_text
from headrace.model.events import RowKind

INS, BEFORE, AFTER, DEL = RowKind.INSERT, RowKind.UPDATE_BEFORE, RowKind.UPDATE_AFTER, RowKind.DELETE


def block(rows: list[tuple[RowKind, int, object, str]]) -> pa.RecordBatch:
    kinds, stamps, keys, values = zip(*rows, strict=True)
    return pa.record_batch(
        {
            KIND: pa.array([int(k) for k in kinds], pa.int8()),
            COMMIT_TS: pa.array(stamps, pa.int64()),
            SEQ: pa.array(range(len(rows)), pa.int64()),
            "k": pa.array(keys),
            "v": pa.array(values),
        }
    )


def net(rows: list[tuple[RowKind, int, object, str]], *, deletes_first: bool = True) -> tuple[list[object], dict[object, str]]:
    change = net_change(block(rows), ("k",), deletes_first=deletes_first)
    assert change.ordered.num_rows == 0
    return change.deletes["k"].to_pylist(), dict(zip(change.upserts["k"].to_pylist(), change.upserts["v"].to_pylist(), strict=True))


@pytest.mark.parametrize(
    ("rows", "deletes", "upserts"),
    [
        ([(INS, 1, 7, "a"), (AFTER, 2, 7, "b")], [], {7: "b"}),
        ([(INS, 1, 7, "a"), (DEL, 2, 7, "a")], [7], {}),
        ([(DEL, 1, 7, "a"), (INS, 1, 7, "b")], [], {7: "b"}),
        ([(INS, 1, 7, "b"), (DEL, 1, 7, "a")], [], {7: "b"}),
        ([(DEL, 3, 7, "x"), (INS, 1, 7, "a"), (AFTER, 2, 7, "b")], [7], {}),
        pytest.param([(BEFORE, 5, 1, "a"), (AFTER, 5, 2, "a")], [1], {2: "a"}, marks=pytest.mark.reading_case("A51")),
        pytest.param([(INS, 1, 1, "x"), (AFTER, 2, 1, "y"), (DEL, 3, 1, "y")], [1], {}, marks=pytest.mark.reading_case("A62")),
        pytest.param(
            [(BEFORE, 1, 1, "a"), (AFTER, 1, 2, "a"), (AFTER, 2, 2, "b")], [1], {2: "b"}, marks=pytest.mark.reading_case("A63")
        ),
        ([(BEFORE, 5, 1, "a"), (AFTER, 5, 1, "b")], [], {1: "b"}),
        ([(DEL, 9, 1, "a"), (INS, 9, 2, "a"), (DEL, 9, 2, "b"), (INS, 9, 1, "b")], [], {2: "a", 1: "b"}),
    ],
)
def test_the_last_state_of_a_key_wins_and_deletes_come_first_within_a_commit(rows, deletes, upserts) -> None:
    assert net(rows) == (deletes, upserts)


def test_without_exact_commit_ts_the_source_order_decides() -> None:
    assert net([(INS, 0, 7, "a"), (DEL, 0, 7, "a")], deletes_first=False) == ([7], {})


change_rows = st.lists(
    st.tuples(st.sampled_from([INS, AFTER, DEL]), st.integers(1, 5), st.integers(0, 3), st.text("xyz", max_size=1)),
    min_size=1,
    max_size=30,
)


@given(change_rows, st.integers(0, 30))
def test_netting_parts_and_then_the_whole_equals_netting_at_once(given_rows, cut) -> None:
    whole = block(given_rows)
    parts = [last_states(p, ("k",), deletes_first=True) for p in (whole.slice(0, cut), whole.slice(cut)) if p.num_rows]
    combined = pa.Table.from_batches(parts).combine_chunks().to_batches()[0]
    assert (
        last_states(combined, ("k",), deletes_first=True).to_pylist() == last_states(whole, ("k",), deletes_first=True).to_pylist()
    )


@pytest.mark.long
@given(change_rows, st.lists(st.integers(0, 3), min_size=30, max_size=30), st.booleans(), st.booleans())
def test_tasks_that_take_the_rows_in_any_way_note_of_the_keys_what_one_task_does(
    given_rows, tasks, deletes_first, updates_alone
) -> None:
    """Of two rows of a key that tasks netted, the one that is later may have begun earlier."""
    whole, sights = block(given_rows), Sights(updates_alone)
    numbers = [[n for n in range(len(given_rows)) if tasks[n] == task] for task in range(4)]
    parts = [last_states(whole.take(n), ("k",), deletes_first=deletes_first, sights=sights) for n in numbers if n]
    for first in range(len(parts)):  # netted together in any order, as a task drains and goes on
        together = combined([parts[(first + n) % len(parts)] for n in range(len(parts))])
        once, twice = (
            net_change(rows, ("k",), deletes_first=deletes_first, sights=sights)
            for rows in (whole, last_states(together, ("k",), deletes_first=deletes_first, sights=sights))
        )
        for name in ("deletes", "upserts", "ordered"):
            rows, others = (sorted(getattr(net, name).to_pylist(), key=repr) for net in (once, twice))
            assert rows == others


@given(change_rows, st.randoms(use_true_random=False))
def test_the_commit_ts_decides_whatever_the_order_of_files_is(given_rows, chance) -> None:
    """A file of a lower version, or of another partition, may hold the newer rows."""
    places = list(range(len(given_rows)))
    chance.shuffle(places)
    seq = pa.array([place << SEQ_RANK_SHIFT for place in places], pa.int64())
    whole = block(given_rows)
    whole = whole.set_column(whole.schema.get_field_index(SEQ), SEQ, seq)
    ordered = sorted(range(len(places)), key=lambda n: (given_rows[n][1], given_rows[n][0] is not DEL, places[n]))
    last = {given_rows[n][2]: given_rows[n] for n in ordered}
    found = last_states(whole, ("k",), deletes_first=True).to_pylist()
    assert {row["k"]: (row[KIND], row[COMMIT_TS], row["k"], row["v"]) for row in found} == last
    assert len(found) == len(last)


def test_a_key_that_changed_its_case_and_was_deleted_keeps_its_order() -> None:
    change = net_change(
        block([(INS, 1, "A", "x"), (AFTER, 2, "a", "x"), (DEL, 3, "a", "x"), (INS, 4, "b", "y")]), ("k",), deletes_first=True
    )
    assert [(r[KIND], r["k"]) for r in change.ordered.to_pylist()] == [(INS, "A"), (DEL, "a")]
    assert change.upserts["k"].to_pylist() == ["b"]


def test_keys_that_were_only_inserted_differ() -> None:
    rows = block([(INS, 1, "A", "1"), (INS, 2, "a", "2")])
    change = net_change(rows, ("k",), deletes_first=True, sights=Sights(updates_alone=True))
    assert (change.upserts.num_rows, change.ordered.num_rows) == (2, 0)


def test_an_insert_behind_an_update_of_its_key_does_not_hide_it() -> None:
    """``A`` became ``a`` without an old row, which was then deleted and inserted again."""
    sights = Sights(updates_alone=True)
    rows = [(INS, 1, "A", "1"), (AFTER, 2, "a", "2"), (DEL, 3, "a", "2"), (INS, 4, "a", "3")]
    for cut in range(1, len(rows)):
        parts = [last_states(block(part), ("k",), deletes_first=True, sights=sights) for part in (rows[:cut], rows[cut:])]
        (combined,) = pa.Table.from_batches(parts).combine_chunks().to_batches()
        assert net_change(combined, ("k",), deletes_first=True, sights=sights).ordered["k"].to_pylist() == ["A", "a"]


def test_keys_that_a_target_may_hold_for_equal_come_in_groups_each_in_commit_order() -> None:
    rows = [
        (AFTER, 1, "B", "1"),
        (INS, 2, "a", "2"),
        (AFTER, 3, "b", "3"),
        (DEL, 4, "A", "2"),
        (INS, 5, "c", "4"),
        (DEL, 6, "D", "5"),
        (DEL, 7, "d", "5"),
        (AFTER, 8, "b ", "3"),
    ]
    change = net_change(block(rows), ("k",), deletes_first=True, sights=Sights(updates_alone=True))
    keys = change.ordered["k"].to_pylist()
    assert [keys[start:end] for start, end in pairwise((*change.groups, len(keys)))] == [["B", "b", "b "], ["a", "A"]]
    assert (change.upserts["k"].to_pylist(), change.deletes["k"].to_pylist()) == (["c"], ["D", "d"])


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("a", "A"),
        ("a", "a  "),
        ("é", "E"),
        ("straße", "STRASSE"),
        ("straße", "strase"),
        ("٣", "3"),
        ("ᾳ", "α"),
        ("aͤ", "ae"),
        ("😀", "😁"),
        ("ア", "あ"),
        ("a\u200b", "a"),
        ("æ", "AE"),
        ("ｱ", "あ"),
    ],
)
@pytest.mark.reading_case("A61")
def test_keys_that_some_collation_holds_for_equal_share_a_bucket(one: str, other: str) -> None:
    assert fold_text(one) == fold_text(other)
    numbers = buckets(block([(INS, 1, one, ""), (INS, 1, other, ""), (INS, 1, "zzz", "")]), ("k",), 64)
    assert numbers[0] == numbers[1]
    assert list(numbers[:2]) == [buckets(block([(INS, 1, key, "")]), ("k",), 64)[0] for key in (one, other)]


@given(st.lists(st.one_of(st.integers(-(2**63), 2**63 - 1)), min_size=1, max_size=50), st.integers(1, 9))
def test_a_bucket_depends_on_the_key_alone(keys: list[int], count: int) -> None:
    together = buckets(block([(INS, 1, k, "") for k in keys]), ("k",), count)
    alone = [int(buckets(block([(DEL, 2, k, "q")]), ("k",), count)[0]) for k in keys]
    assert list(together) == alone
    assert all(0 <= n < count for n in alone)


@pytest.mark.parametrize("last", [0.0, -0.0])
def test_zero_and_minus_zero_are_one_key(last: float) -> None:
    """Every database holds them for equal, so a state of each would be two rows, or one that was deleted."""
    _, upserts = net([(INS, 1, last, "a"), (AFTER, 2, -last, "b"), (AFTER, 3, last, "c")])
    assert [(str(key), value) for key, value in upserts.items()] == [(str(last), "c")]
    assert net([(INS, 1, last, "a"), (AFTER, 2, -last, "b"), (DEL, 3, -last, "b")]) == ([-last], {})


@given(change_rows, st.integers(0, 30), st.booleans())
def test_each_row_keeps_the_commit_ts_of_the_change_that_was_the_last_one_of_its_key(given_rows, cut, noted) -> None:
    sights = Sights() if noted else None
    whole = block(given_rows)
    halves = [p for p in (whole.slice(0, cut), whole.slice(cut)) if p.num_rows]
    states = combined([last_states(part, ("k",), deletes_first=True, sights=sights) for part in halves])
    change = net_change(states, ("k",), deletes_first=True, sights=sights, keeps_commit_ts=True)
    columns = ["headrace$commit_ts", "headrace$sight"] if noted else ["headrace$commit_ts"]
    assert (change.deletes.column_names, change.upserts.column_names) == (["k", *columns], ["k", "v", *columns])
    rows = pa.concat_tables([change.deletes.select(["k", COMMIT_TS]), change.upserts.select(["k", COMMIT_TS])])
    told = {row["k"]: row[COMMIT_TS] for row in rows.to_pylist()}
    assert told == {key: max(ts for _, ts, k, _ in given_rows if k == key) for _, _, key, _ in given_rows}
