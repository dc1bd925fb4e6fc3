"""Tables without key are bags: equal rows are counted, and what TiCDC repeats is counted once."""

from __future__ import annotations

import pyarrow as pa
import pytest

from headrace.engine.bag import EqualInStreams, MissingOldImages, bag_change, deliveries, unsure_places
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
    change = bag_change(block, deliveries(reports_of(files, streams, full=full), block))
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


def test_a_guess_about_a_repetition_is_told() -> None:
    repeats = ([(INS, 1, "x"), (INS, 2, "a")], [(INS, 2, "a"), (INS, 3, "b")])
    goes_on = ([(INS, 1, "x"), (INS, 2, "a")], [(INS, 2, "c"), (INS, 3, "b")])
    assert unsure_places(reports_of(repeats), block_of(repeats)) == [PlaceInFile("1")]
    assert unsure_places(reports_of(repeats, full=True), block_of(repeats)) == []
    assert unsure_places(reports_of(goes_on), block_of(goes_on)) == []


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
    change = bag_change(block, deliveries(reports_of(files), block), keeps_commit_ts=True)
    assert [(r["v"], r[COMMIT_TS]) for r in change.inserts.to_pylist()] == [("a", 2), ("a", 2)]
    assert [(r["v"], r[COMMIT_TS]) for r in change.deletes.to_pylist()] == [("b", 4), ("d", 8)]
    assert change.inserts.column_names == change.deletes.column_names == ["v", "f", COMMIT_TS]
