"""Tables without key are bags: equal rows are counted, and what TiCDC repeats is counted once."""

from __future__ import annotations

import time
from dataclasses import replace
from random import Random

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.engine.bag import EqualInStreams, Guess, MissingOldImages, bag_change, deliveries
from headrace.model.block import COMMIT_TS, KIND, SEQ, SEQ_RANK_SHIFT
from headrace.model.events import RowKind
from headrace.model.outcome import SplitReport
from headrace.model.place import PlaceInFile
from headrace.model.table import TableId

INS, BEFORE, AFTER, DEL = RowKind.INSERT, RowKind.UPDATE_BEFORE, RowKind.UPDATE_AFTER, RowKind.DELETE
T = TableId("test", "n")


File = list[tuple[RowKind, int, str | None]]


def block_of(files: tuple[File, ...]) -> pa.RecordBatch:
    rows = [(kind, ts, rank, value) for rank, file in enumerate(files) for kind, ts, value in file]
    return pa.record_batch(
        {
            KIND: pa.array([int(r[0]) for r in rows], pa.int8()),
            COMMIT_TS: pa.array([r[1] for r in rows], pa.int64()),
            SEQ: pa.array([(r[2] << SEQ_RANK_SHIFT) + n for n, r in enumerate(rows)], pa.int64()),
            "v": pa.array([r[3] for r in rows], pa.string()),
            "f": pa.array([0.5] * len(rows), pa.float32()),
        }
    )


def reports_of(files: tuple[File, ...], streams: str = "", *, full: bool = False) -> list[SplitReport]:
    """``streams`` names the stream of each file by a letter."""
    stamps = [[ts for _, ts, _ in file] for file in files]
    return [
        SplitReport(str(n), T, n, streams[n : n + 1], rows=len(s), min_ts=min(s), max_ts=max(s), rolled_over=full)
        for n, s in enumerate(stamps)
        if s
    ]


def net(*files: File, streams: str = "", full: bool = False) -> tuple[list[str | None], list[str | None]]:
    block = block_of(files)
    change = bag_change(block, deliveries(reports_of(files, streams, full=full), block).of)
    assert change.inserts.column_names == ["v", "f"]
    return sorted(change.deletes["v"].to_pylist(), key=str), sorted(change.inserts["v"].to_pylist(), key=str)


def test_equal_rows_are_kept_apart() -> None:
    assert net([(INS, 1, "a"), (INS, 1, "a"), (INS, 2, None)]) == ([], [None, "a", "a"])


def test_what_a_later_file_repeats_is_counted_once() -> None:
    first = [(INS, 1, "x"), (INS, 2, "a"), (INS, 2, "a")]
    again = [(INS, 1, "x"), (INS, 2, "a"), (INS, 2, "a"), (INS, 3, "b")]
    assert net(first, again) == ([], ["a", "a", "b", "x"])


def test_a_transaction_that_goes_on_in_the_next_file_is_no_repetition() -> None:
    assert net([(INS, 1, "x"), (INS, 2, "a")], [(INS, 2, "c"), (INS, 3, "b")]) == ([], ["a", "b", "c", "x"])
    assert net([(INS, 1, "x"), (INS, 2, "a")], [(INS, 2, "a"), (INS, 3, "b")], full=True) == ([], ["a", "a", "b", "x"])


def test_a_file_that_holds_all_of_the_commit_at_which_the_one_before_ends_repeats_it() -> None:
    assert net([(INS, 1, "x"), (INS, 2, "a")], [(INS, 2, "a"), (INS, 3, "b")]) == ([], ["a", "b", "x"])


def test_an_update_is_repeated_as_a_deletion_and_an_insertion_or_the_other_way_round() -> None:
    split, whole = [(DEL, 1, "old"), (INS, 1, "new")], [(BEFORE, 1, "old"), (AFTER, 1, "new")]
    assert net(split, whole) == net(whole, split) == (["old"], ["new"])


def test_deletes_and_updates_remove_one_equal_row_each() -> None:
    rows = [(INS, 1, "a"), (INS, 1, "a"), (DEL, 2, "a"), (BEFORE, 3, "old"), (AFTER, 3, "new"), (DEL, 4, "gone"), (DEL, 5, "gone")]
    assert net(rows) == (["gone", "gone", "old"], ["a", "new"])


def test_an_update_without_its_old_row_is_refused() -> None:
    with pytest.raises(MissingOldImages):
        net([(AFTER, 1, "a")])


def guesses(*files: File, full: bool = False) -> tuple[Guess, ...]:
    return deliveries(reports_of(files, full=full), block_of(files)).guesses


def test_a_guess_about_a_repetition_is_told() -> None:
    repeats: tuple[File, ...] = ([(INS, 1, "x"), (INS, 2, "a")], [(INS, 2, "a"), (INS, 3, "b")])
    assert guesses(*repeats) == (Guess(PlaceInFile("1"), is_repetition=True),)
    assert guesses(*repeats, full=True) == (Guess(PlaceInFile("1"), is_repetition=False),)
    assert guesses([(INS, 1, "x"), (INS, 2, "a")], [(INS, 2, "c"), (INS, 3, "b")]) == ()


def inserts(values: str) -> File:
    return [(INS, 2, value) for value in values]


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize(
    ("files", "begins"),
    [
        ("abc abcdef", "1"),
        ("abc def abc def ghi", "2"),
        ("abc def abcd ef ghi", "2"),
        ("abc def abc abc def ghi", "3"),
        ("abc abc def abc def ghi", "3"),
        ("abc def ab abc def ghi", "3"),
        ("a b a b c", "2"),
    ],
)
def test_a_transaction_of_several_files_that_is_written_again_counts_once_and_is_told(files: str, begins: str, full: bool) -> None:
    told = [inserts(values) for values in files.split()]
    assert net(*told, full=full) == ([], sorted(set(files) - {" "}))
    assert guesses(*told, full=full) == (Guess(PlaceInFile(begins), is_repetition=True),)


def test_full_files_of_few_different_rows_are_one_transaction_and_that_is_told() -> None:
    told = [inserts(values) for values in ("aaab", "abaa", "aabaa")]
    assert net(*told, full=True) == ([], sorted("aaababaaaabaa"))
    assert guesses(*told, full=True) == (Guess(PlaceInFile("1"), is_repetition=False),)


def test_one_equal_row_behind_a_full_file_is_the_rest_of_its_transaction_and_that_is_told() -> None:
    assert net(inserts("a"), inserts("aab"), full=True) == ([], list("aaab"))
    assert guesses(inserts("a"), inserts("aab"), full=True) == (Guess(PlaceInFile("1"), is_repetition=False),)


def test_full_files_of_different_rows_are_one_transaction_without_a_word() -> None:
    told = [inserts(values) for values in ("abc", "dea", "fgh")]
    assert net(*told, full=True) == ([], sorted("abcdeafgh"))
    assert guesses(*told, full=True) == ()


def test_between_pieces_of_a_stream_that_certainly_goes_on_nothing_is_a_repetition() -> None:
    files = (inserts("ab"), inserts("ab"))
    reports = [replace(report, goes_on=True) for report in reports_of(files, full=True)]
    told = deliveries(reports, block_of(files))
    assert (len({delivery.number for delivery in told.of.values()}), told.guesses) == (1, ())


@pytest.mark.parametrize(("files", "is_repetition"), [("a a", True), ("ab abc", True), ("aa aa", False), ("ab ac", False)])
def test_behind_a_watermark_that_rises_most_rows_of_a_repetition_are_different(files: str, is_repetition: bool) -> None:
    told = tuple(inserts(values) for values in files.split())
    reports = [replace(report, interrupted=True) for report in reports_of(told)]
    assert deliveries(reports, block_of(told)).guesses == (Guess(PlaceInFile("1"), is_repetition=is_repetition),)


@settings(deadline=None)
@given(seed=st.integers(0, 1 << 30))
def test_whatever_a_writer_repeats_of_a_transaction_counts_once(seed: int) -> None:
    """A writer dies again and again in the middle of a transaction, and begins anew with it or with what came before."""
    chance = Random(seed)
    transaction: File = [(chance.choice((INS, DEL)), 10, str(n)) for n in range(chance.randrange(2, 30))]
    earlier: File = [(INS, ts, "before") for ts in range(1, chance.randrange(1, 5))]
    files: list[File] = []
    for _ in range(chance.randrange(4)):
        since = chance.randrange(len(earlier) + 1)
        files += cut_into_files([*earlier[since:], *transaction], chance, chance.randrange(2, len(transaction) + 2))
        if chance.random() < 0.3:
            chance.shuffle(transaction)
    files += cut_into_files([*earlier, *transaction, (INS, 11, "after")], chance, len(transaction) + 10)
    if chance.random() < 0.5:
        files.pop(0)  # what was told of it first lies in the cut before
        files.append([*earlier, *transaction])
    block, reports = block_of(tuple(files)), reports_of(tuple(files))
    several = [sum(ts == 10 for _, ts, _ in file) > 1 for file in files]  # one row behind which a file is full tells nothing
    reports = [replace(report, rolled_over=several[report.rank] and chance.random() < 0.7) for report in reports]
    reports = [replace(report, interrupted=chance.random() < 0.5) for report in reports]
    change = bag_change(block, deliveries(reports, block).of)
    for kind, rows in ((INS, change.inserts), (DEL, change.deletes)):
        found = [value for value in rows["v"].to_pylist() if value.isdigit()]
        assert sorted(found) == sorted(value for k, _, value in transaction if k is kind and value is not None)


@pytest.mark.long
def test_many_files_that_meet_cost_time_in_proportion_to_their_number() -> None:
    def taken(count: int) -> float:
        files = tuple([(INS, at, f"{at}"), (INS, at + 1, f"{at} too")] for at in range(count))
        block, reports = block_of(files), reports_of(files)
        began = time.process_time()
        assert {delivery.number for delivery in deliveries(reports, block).of.values()} == {1}
        return time.process_time() - began

    once, twice = (min(taken(count) for _ in range(2)) for count in (1_000, 2_000))
    assert twice < 3 * once + 0.1, f"{once:.3f} s for 1,000, {twice:.3f} s for twice as many"


def cut_into_files(rows: File, chance: Random, until: int) -> list[File]:
    """Files of at least two rows, but for the last one, up to a row."""
    rows, size = rows[:until], chance.randrange(2, 9)
    return [rows[start : start + size] for start in range(0, len(rows), size)]


def test_streams_count_each_for_itself_and_equal_changes_of_two_are_refused() -> None:
    long = [(INS, 1, "x"), (INS, 5, "a")]
    assert net(long, [(INS, 2, "y"), (INS, 5, "b")], [(INS, 5, "b"), (INS, 6, "c")], streams="abb") == (
        [],
        ["a", "b", "c", "x", "y"],
    )
    with pytest.raises(EqualInStreams):
        net(long, [(INS, 5, "a")], streams="ab")


def test_rows_keep_the_newest_commit_ts_at_which_an_equal_row_came_or_left() -> None:
    first: File = [(INS, 1, "a"), (INS, 2, "a"), (DEL, 3, "b"), (DEL, 4, "b"), (INS, 5, "b"), (INS, 6, "c"), (DEL, 7, "c")]
    files = (first, [*first, (DEL, 8, "d")])
    block = block_of(files)
    change = bag_change(block, deliveries(reports_of(files), block).of, keeps_commit_ts=True)
    assert [(r["v"], r[COMMIT_TS]) for r in change.inserts.to_pylist()] == [("a", 2), ("a", 2)]
    assert [(r["v"], r[COMMIT_TS]) for r in change.deletes.to_pylist()] == [("b", 4), ("d", 8)]
    assert change.inserts.column_names == change.deletes.column_names == ["v", "f", COMMIT_TS]
