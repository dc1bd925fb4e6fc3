"""Sinks that want every change get all of them once, in commit order, in bounded pieces."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from random import Random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.engine import change_log
from headrace.engine.bag import Guess
from headrace.engine.change_log import LogOrder, OrderedChanges
from headrace.model.block import COMMIT_TS, KIND, META_FIELDS, SEQ, SEQ_RANK_SHIFT
from headrace.model.cut import Repeats
from headrace.model.events import RowKind
from headrace.model.outcome import SplitReport
from headrace.model.place import PlaceInFile
from headrace.model.table import TableId

T = TableId("test", "t")
Change = tuple[int, RowKind, int, str]
"""Commit ts, kind, key, value."""


def block(rank: int, changes: Sequence[Change]) -> pa.RecordBatch:
    """The changes as one split tells them."""
    columns = [
        pa.array([int(kind) for _, kind, _, _ in changes], META_FIELDS[0].type),
        pa.array([ts for ts, _, _, _ in changes], pa.int64()),
        pa.array([rank << SEQ_RANK_SHIFT | n for n in range(len(changes))], pa.int64()),
        pa.array([key for _, _, key, _ in changes], pa.int64()),
        pa.array([value for _, _, _, value in changes]),
    ]
    return pa.record_batch(columns, names=[KIND, COMMIT_TS, SEQ, "id", "v"])


def report(rank: int, changes: Sequence[Change], stream: str = "") -> SplitReport:
    times = [ts for ts, *_ in changes]
    return SplitReport(str(rank), T, rank, stream, rows=len(changes), kept=len(changes), min_ts=min(times), max_ts=max(times))


def changes_of(piece: pa.RecordBatch) -> list[Change]:
    kinds = (RowKind(kind) for kind in piece.column(KIND).to_pylist())
    rest = (piece.column(name).to_pylist() for name in ("id", "v"))
    return list(zip(piece.column(COMMIT_TS).to_pylist(), kinds, *rest, strict=True))


def arriving(order: LogOrder, runs: Sequence[pa.RecordBatch]) -> list[tuple[int, pa.RecordBatch]]:
    pieces = [piece for run in runs for piece in order.pieces(order.sorted(run))]
    return sorted(pieces, key=lambda piece: piece[0])


def logged(log: OrderedChanges, runs: Sequence[pa.RecordBatch]) -> list[Change]:
    return [change for piece in log.merged(arriving(log.order, runs)) for change in changes_of(piece)]


INS, DEL = RowKind.INSERT, RowKind.DELETE
BEFORE, AFTER = RowKind.UPDATE_BEFORE, RowKind.UPDATE_AFTER


@pytest.fixture
def tiny_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(change_log, "PIECE_BYTES", 100)
    monkeypatch.setattr(change_log, "WRITTEN_BYTES", 200)


@pytest.mark.long
@settings(deadline=None)
@given(seed=st.integers(0, 1 << 30))
def test_changes_of_any_files_come_once_and_in_commit_order(seed: int) -> None:
    """A source writes a history in files; some it writes again, whole or from a commit ts on, as after a crash."""
    chance = Random(seed)
    history = [(ts, AFTER, key, chance.choice("ab")) for ts in range(1, 40) for key in chance.sample(range(9), chance.randrange(4))]
    files, start = [], 0
    while start < len(history):
        end = start + chance.randrange(1, 9)
        files.append(history[start:end])
        if chance.random() < 0.3:
            since = chance.choice(history[:end])[0]
            again = [change for change in history[:end] if change[0] >= since]
            files.append(again)
        start = end
    chance.shuffle(files)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(change_log, "PIECE_BYTES", chance.choice((60, 200, 1 << 20)))
        patch.setattr(change_log, "WRITTEN_BYTES", chance.choice((60, 300, 1 << 20)))
        log = OrderedChanges(LogOrder(), Repeats.CHANGES, key=("id",))
        found = logged(log, [block(rank, changes) for rank, changes in enumerate(files)])
    assert [ts for ts, *_ in found] == [ts for ts, *_ in history]
    assert sorted(map(repr, found)) == sorted(map(repr, history))
    assert log.repeated == sum(map(len, files)) - len(history)


@pytest.mark.usefixtures("tiny_pieces")
def test_an_old_row_stands_before_its_new_one_and_rows_of_one_transaction_as_the_source_wrote_them() -> None:
    changes = [(5, BEFORE, 1, "a"), (5, AFTER, 1, "b"), (5, BEFORE, 2, "c"), (5, AFTER, 2, "d"), (5, DEL, 0, "x")]
    assert logged(OrderedChanges(LogOrder(), Repeats.CHANGES, key=("id",)), [block(0, changes)]) == changes


def test_an_update_that_is_repeated_as_deletion_and_insertion_comes_once() -> None:
    first = [(5, BEFORE, 1, "a"), (5, AFTER, 1, "b")]
    again = [(5, DEL, 1, "a"), (5, INS, 1, "b")]
    log = OrderedChanges(LogOrder(), Repeats.CHANGES, key=("id",))
    assert logged(log, [block(0, first), block(1, again)]) == first


def in_order(*files: Sequence[Change], key: tuple[str, ...] = ("id",)) -> list[Change]:
    log = OrderedChanges(LogOrder(), Repeats.CHANGES, key)
    return logged(log, [block(rank, changes) for rank, changes in enumerate(files)])


def test_a_repeated_deletion_stands_before_the_new_row_that_came_without_its_old_one() -> None:
    first = [(4, INS, 2, "x"), (5, AFTER, 1, "b"), (5, AFTER, 2, "y")]
    again = [(5, DEL, 2, "x"), (5, DEL, 1, "a"), (5, INS, 1, "b"), (5, INS, 2, "y")]
    assert in_order(first, again) == [first[0], (5, DEL, 1, "a"), first[1], (5, DEL, 2, "x"), first[2]]


def test_rows_that_exchange_keys_are_deleted_before_they_come_and_other_pairs_stay_together() -> None:
    unsorted = [(5, DEL, 1, "a"), (5, INS, 2, "a"), (5, DEL, 2, "b"), (5, INS, 1, "b"), (5, BEFORE, 3, "c"), (5, AFTER, 3, "d")]
    assert in_order(unsorted) == [unsorted[n] for n in (0, 2, 1, 3, 4, 5)]
    raw = [(5, BEFORE, 1, "a"), (5, AFTER, 2, "a"), (5, BEFORE, 2, "b"), (5, AFTER, 1, "b"), (6, DEL, 1, "b")]
    assert in_order(raw) == [raw[n] for n in (2, 0, 1, 3, 4)]


def test_keys_that_a_target_may_hold_for_one_are_deleted_before_they_come() -> None:
    spellings = [(5, DEL, 1, "a"), (5, INS, 2, "B"), (5, DEL, 3, "b")]
    assert in_order(spellings, key=("v",)) == [spellings[n] for n in (0, 2, 1)]


def test_where_rows_lack_the_key_deletions_come_first() -> None:
    assert in_order([(5, INS, 1, "a"), (5, DEL, 2, "b")], key=("other",)) == [(5, DEL, 2, "b"), (5, INS, 1, "a")]


@pytest.mark.long
@settings(deadline=None)
@given(seed=st.integers(0, 1 << 30))
def test_who_applies_a_log_has_the_rows_of_the_source(seed: int) -> None:
    """Transactions move rows to other keys and tell that in any form; some files are written again in another one."""
    chance = Random(seed)
    rows: dict[int, str] = {}
    files: list[list[Change]] = []
    for ts in range(1, chance.randrange(2, 20)):
        left = {key: value for key, value in rows.items() if chance.random() < 0.5}
        values = [value for key, value in rows.items() if key not in left and chance.random() < 0.8]
        values += [f"{ts}.{n}" for n in range(chance.randrange(3))]
        free = chance.sample([key for key in range(12) if key not in left], min(len(values), 12 - len(left)))
        after = left | dict(zip(free, values, strict=False))
        files += [told(ts, rows, after, chance) for _ in range(chance.randrange(1, 4))]
        rows = after
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(change_log, "PIECE_BYTES", chance.choice((60, 1 << 20)))
        patch.setattr(change_log, "WRITTEN_BYTES", chance.choice((60, 1 << 20)))
        found = in_order(*(file for file in files if file))
    applied: dict[int, str] = {}
    for _, kind, key, value in found:
        if kind.is_upsert:
            applied[key] = value
        else:
            applied.pop(key, None)
    assert applied == rows


def told(ts: int, before: Mapping[int, str], after: Mapping[int, str], chance: Random) -> list[Change]:
    """A transaction in one of its forms: updates with or without old rows, or as a deletion and an insertion, in any order."""
    forms: list[list[Change]] = []
    for key in {*before, *after}:
        if before.get(key) == after.get(key):
            continue
        whole = key in before and key in after and chance.random() < 0.7
        if key in before and not (whole and chance.random() < 0.5):
            forms.append([(ts, BEFORE if whole else DEL, key, before[key])])
        if key in after:
            new = (ts, AFTER if whole else INS, key, after[key])
            if whole and forms and forms[-1][0][1:3] == (BEFORE, key):
                forms[-1].append(new)
            else:
                forms.append([new])
    chance.shuffle(forms)
    return [change for form in forms for change in form]


def test_two_different_images_of_one_key_are_both_kept() -> None:
    first, other = [(5, AFTER, 1, "a")], [(5, AFTER, 1, "b")]
    assert logged(OrderedChanges(LogOrder(), Repeats.CHANGES, key=("id",)), [block(0, first), block(1, other)]) == first + other


def test_of_a_source_that_may_change_a_key_twice_a_transaction_counts_as_its_first_split_tells_it() -> None:
    transaction = [(5, AFTER, 1, "a"), (5, AFTER, 1, "b"), (5, AFTER, 1, "a"), (5, AFTER, 1, "b")]
    log = OrderedChanges(LogOrder(), Repeats.TRANSACTIONS, key=("id",))
    assert logged(log, [block(3, transaction), block(7, [*transaction, (6, DEL, 1, "b")])]) == [*transaction, (6, DEL, 1, "b")]


def test_equal_rows_without_key_count_as_often_as_the_delivery_says_that_has_most() -> None:
    twice = [(5, INS, 1, "a"), (5, INS, 1, "a"), (6, INS, 2, "b")]
    again = [(4, INS, 3, "c"), (5, INS, 1, "a"), (5, INS, 1, "a"), (6, INS, 2, "b"), (7, INS, 1, "a")]
    reports = (report(0, twice), report(1, again))
    log = OrderedChanges(LogOrder(), Repeats.CHANGES, key=(), reports=reports)
    assert logged(log, [block(0, twice), block(1, again)]) == [again[0], *twice, again[-1]]
    assert log.guesses == []


def test_a_transaction_without_key_in_full_files_that_is_written_again_comes_once_and_is_told() -> None:
    rows = [[(5, INS, key, "x") for key in keys] for keys in (range(3), range(3, 6), range(3), range(3, 6), range(6, 9))]
    reports = tuple(replace(report(rank, changes), rolled_over=True) for rank, changes in enumerate(rows))
    log = OrderedChanges(LogOrder(), Repeats.CHANGES, key=(), reports=reports)
    assert logged(log, [block(rank, changes) for rank, changes in enumerate(rows)]) == [(5, INS, key, "x") for key in range(9)]
    assert log.guesses == [Guess(PlaceInFile("2"), is_repetition=True)]


def test_equal_rows_without_key_of_two_streams_are_all_kept() -> None:
    rows = [(5, INS, 1, "a")]
    reports = (report(0, rows, "x"), report(1, rows, "y"))
    assert (
        logged(OrderedChanges(LogOrder(), Repeats.CHANGES, key=(), reports=reports), [block(0, rows), block(1, rows)]) == rows * 2
    )


def test_where_nothing_tells_repeats_all_rows_come_in_the_order_of_the_source() -> None:
    changes = [(0, AFTER, 1, "a"), (0, AFTER, 1, "b")]
    log = OrderedChanges(LogOrder(timed=False), Repeats.UNKNOWN, key=("id",))
    assert logged(log, [block(1, changes), block(0, changes)]) == changes * 2


@pytest.mark.long
def test_what_waits_does_not_grow_with_the_table() -> None:
    """Ten times the changes, spread over files in the same way, hold no more memory at a time."""

    def most(files: int) -> int:
        peak = 0

        def coming() -> Iterator[tuple[int, pa.RecordBatch]]:
            nonlocal peak
            for number in range(files):
                first = number * 5_000
                columns = {KIND: np.zeros(20_000, np.int8), COMMIT_TS: np.arange(first, first + 20_000), SEQ: np.arange(20_000)}
                batch = pa.record_batch({**columns, "v": pa.array(["x" * 100] * 20_000)})
                run = batch.set_column(0, META_FIELDS[0], batch.column(0))
                for piece in LogOrder().pieces(run):
                    waiting.append(piece)
            for piece in sorted(waiting, key=lambda piece: piece[0]):
                peak = max(peak, log.received - passed)
                yield piece

        waiting: list[tuple[int, pa.RecordBatch]] = []
        passed = 0
        log = OrderedChanges(LogOrder(), Repeats.UNKNOWN, key=("id",))
        last = -1
        for piece in log.merged(coming()):
            passed += piece.num_rows
            times = piece.column(COMMIT_TS).to_pylist()
            assert all(a <= b for a, b in pairwise([last, *times]))
            last = times[-1]
        assert passed == files * 20_000
        return peak

    assert most(100) <= most(10)
