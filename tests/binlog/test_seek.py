"""The offset for a commit ts: the golden tables, every edge case, and random topics with repeats, holes and damaged records."""

from __future__ import annotations

import hashlib
import math
from threading import Event
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from binlog.logs import MemoryLog, message
from binlog_cases import records, told
from headrace.binlog.errors import CommitTsTooOldError
from headrace.binlog.seek import SeekResult, seek
from headrace.binlog.topic import commit_ts_of
from headrace.binlog.topic import records as records_from
from headrace.errors import SourceLostError
from headrace.kafka.client import Message


def most_fetches(log: MemoryLog) -> float:
    oldest, end = log.ends()
    return math.log2(max(1, end - oldest)) + 4


def delivered(log: MemoryLog, start: int, commit_ts: int) -> list[tuple[int, int]]:
    """What a reader gets from an offset on: offsets and commit ts."""
    found, greatest = [], commit_ts
    for offset, value in log.records.items():
        ts = commit_ts_of(Message(offset, None, value, None))
        if offset >= start and ts is not None and ts > greatest:
            found.append((offset, ts))
            greatest = ts
    return found


@pytest.mark.long
@pytest.mark.parametrize("case", ["seek", "seek-gaps", "restart"])
def test_every_query_of_the_golden_tables_finds_an_offset_after_which_nothing_is_missing(case: str) -> None:
    table: dict[str, Any] = told(case, "seek")
    log = MemoryLog({r.offset: r.value for r in records(case)}, table["low_offset"], table["next_offset"])
    for query in table["queries"]:
        log.fetches = 0
        if query["older_than_oldest"]:
            with pytest.raises(CommitTsTooOldError) as refused:
                seek(log, query["commit_ts"])
            assert refused.value.oldest_offset == table["low_offset"]
        found = seek(log, query["commit_ts"], allow_gap=True)
        assert found.has_gap == query["older_than_oldest"]
        assert table["low_offset"] <= found.offset <= query["latest_safe_offset"]
        assert log.fetches <= most_fetches(log) + query["older_than_oldest"]
        got = delivered(log, found.offset, query["commit_ts"])
        assert len(got) == query["delivered"]
        assert hashlib.sha256(",".join(str(ts) for _, ts in got).encode()).hexdigest() == query["delivered_sha256"]


def topic(*commit_ts: int, first: int = 5) -> MemoryLog:
    return MemoryLog({first + number: message(ts) for number, ts in enumerate(commit_ts)})


@pytest.mark.parametrize(("commit_ts", "offset"), [(10, 6), (15, 6), (20, 7), (35, 8)])
@pytest.mark.reading_case("A31", "A37")
def test_the_first_transaction_is_strictly_after_the_commit_ts(commit_ts: int, offset: int) -> None:
    assert seek(topic(10, 20, 30), commit_ts).offset == offset


@pytest.mark.reading_case("A31")
def test_a_commit_ts_before_the_oldest_record_is_an_error_unless_a_gap_is_allowed() -> None:
    with pytest.raises(CommitTsTooOldError, match="topic t, partition 0, at offset 5, has the commit ts 10") as refused:
        seek(topic(10, 20, 30), 1)
    assert (refused.value.oldest_offset, refused.value.oldest_ts) == (5, 10)
    assert seek(topic(10, 20, 30), 1, allow_gap=True) == SeekResult(5, 5, 8, 10, has_gap=True)


@pytest.mark.parametrize("commit_ts", [1, 10, 10**18])
@pytest.mark.reading_case("A32")
def test_an_empty_topic_is_answered_at_once(commit_ts: int) -> None:
    log = MemoryLog({}, 3, 3)
    assert seek(log, commit_ts) == SeekResult(3, 3, 3)
    assert log.fetches <= 1


@pytest.mark.parametrize(("commit_ts", "offset"), [(10, 6), (11, 6)])
@pytest.mark.reading_case("A33")
def test_a_single_record_is_a_topic_too(commit_ts: int, offset: int) -> None:
    assert seek(topic(10), commit_ts).offset == offset
    with pytest.raises(CommitTsTooOldError):
        seek(topic(10), 9)


def test_the_last_commit_ts_before_the_offset_is_told() -> None:
    assert seek(topic(10, 20, 30), 100) == SeekResult(8, 5, 8, 10, 30)


@pytest.mark.reading_case("A34")
def test_repeats_after_a_restart_lose_nothing() -> None:
    log = topic(10, 20, 30, 40, 20, 30, 40, 50)
    assert [ts for _, ts in delivered(log, seek(log, 30).offset, 30)] == [40, 50]


def test_a_record_that_cannot_be_read_is_passed_over() -> None:
    log = MemoryLog({0: message(10), 1: message(20), 2: b"\xff", 3: message(30), 4: b"", 5: message(40), 6: message(-1)})
    assert seek(log, 20).offset == 2
    assert seek(log, 30).offset in (4, 5)
    assert seek(log, 40).offset == 6


def test_offsets_may_be_missing_up_to_the_end() -> None:
    log = MemoryLog({2: message(10), 5: message(20), 6: message(30)}, 0, 12)
    assert [seek(log, ts).offset for ts in (10, 20, 30)] == [3, 6, 7]
    with pytest.raises(CommitTsTooOldError) as refused:
        seek(log, 9)
    assert refused.value.oldest_offset == 2


def test_records_that_are_dropped_meanwhile_begin_the_search_anew() -> None:
    log = MemoryLog({number: message(10 * number + 10) for number in range(10)}, 0)
    log.trims = [3, 3, 0, 0]
    assert seek(log, 45).offset == 4
    assert log.oldest == 3


def test_a_topic_that_drops_records_faster_than_it_is_searched_is_an_error() -> None:
    log = MemoryLog({number: message(number + 1) for number in range(100)}, 0)
    log.trims = list(range(99, 0, -1))
    with pytest.raises(SourceLostError):
        seek(log, 50)


def test_a_log_that_becomes_shorter_while_it_is_followed_is_an_error() -> None:
    log = topic(10, 20, first=0)
    followed = records_from(log, 0, Event(), follow=True)
    assert [next(followed).offset for _ in range(2)] == [0, 1]
    log.records, log.end = {0: message(10)}, 1
    with pytest.raises(SourceLostError, match="is offset 1 now, and it was read up to offset 2"):
        next(followed)


@st.composite
def sawtooth(draw: st.DrawFn) -> MemoryLog:
    """Runs of increasing commit ts, each from somewhere at or below the end of the one before; with holes and damage."""
    transactions = sorted(draw(st.sets(st.integers(2, 60), min_size=1, max_size=25)))
    written: list[int] = []
    reached = 0
    while reached < len(transactions):
        start = draw(st.integers(0, reached))
        reached = draw(st.integers(max(start, reached), len(transactions)))
        reached = max(reached, start + 1)
        written += transactions[start:reached]
        if len(written) > 80:
            break
    offset, found = draw(st.integers(0, 5)), {}
    for ts in written:
        offset += draw(st.sampled_from([1, 1, 1, 2, 5]))
        found[offset] = message(ts)
        if draw(st.sampled_from([False] * 9 + [True])):
            offset += 1
            found[offset] = b"\x07"
    return MemoryLog(found, min(found) - draw(st.integers(0, 2)), max(found) + 1 + draw(st.integers(0, 3)))


@pytest.mark.long
@settings(max_examples=2000, deadline=None)
@given(sawtooth(), st.integers(1, 62))
def test_in_any_topic_every_later_transaction_comes_once_and_in_order(log: MemoryLog, commit_ts: int) -> None:
    found = seek(log, commit_ts, allow_gap=True)
    assert log.fetches <= most_fetches(log)
    all_ts = {ts for value in log.records.values() if (ts := commit_ts_of(Message(0, None, value, None))) is not None}
    expected = sorted(ts for ts in all_ts if ts > commit_ts)
    assert [ts for _, ts in delivered(log, found.offset, commit_ts)] == expected
