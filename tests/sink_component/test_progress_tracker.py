"""The checkpoint when acknowledgements come in any order. The first tests are the traces of TiCDC's progress_tracker_test.go."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from itertools import pairwise
from random import Random
from threading import Thread

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headrace.replay.progress_tracker import ProgressTracker
from headrace.replay.resolved_ts import ResolvedTs


def add(tracker: ProgressTracker, count: int) -> list[Callable[[], None]]:
    return [tracker.add_event() for _ in range(count)]


def resolve(tracker: ProgressTracker, *resolved: int) -> None:
    for ts in resolved:
        tracker.add_resolved_ts(ResolvedTs(ts))


def shown(tracker: ProgressTracker) -> tuple[int, int]:
    """How many events are pending, and the checkpoint."""
    return tracker.pending, tracker.advance().ts


def test_a_new_tracker_has_checkpoint_0() -> None:
    assert shown(ProgressTracker()) == (0, 0)


def test_events_are_counted() -> None:
    tracker = ProgressTracker()
    add(tracker, 3)
    assert shown(tracker) == (3, 0)


def test_a_resolved_ts_without_events_is_the_checkpoint_at_once() -> None:
    tracker = ProgressTracker()
    resolve(tracker, 1, 2, 3)
    assert shown(tracker) == (0, 3)


def test_a_pending_event_holds_the_resolved_ts_behind_it() -> None:
    tracker = ProgressTracker()
    add(tracker, 1)
    resolve(tracker, 2, 3)
    assert shown(tracker) == (1, 0)


def test_an_event_behind_a_pending_one_changes_nothing() -> None:
    tracker = ProgressTracker()
    _, second, _ = add(tracker, 3)
    second()
    assert shown(tracker) == (3, 0)


def test_the_checkpoint_follows_the_first_events_without_a_gap() -> None:
    tracker = ProgressTracker()
    first, second = add(tracker, 2)
    resolve(tracker, 3)
    fourth, fifth = add(tracker, 2)
    resolve(tracker, 6, 7, 8)
    seen = []
    for acknowledge in (second, fifth, first, fourth):
        acknowledge()
        seen.append(shown(tracker))
    assert seen == [(4, 0), (4, 0), (2, 3), (0, 8)]


def test_buffers_are_released_when_all_their_events_are_acknowledged() -> None:
    tracker = ProgressTracker(buffer_bytes=8)
    callbacks = add(tracker, 65)
    assert tracker.buffers == 2
    for left, acknowledge in zip(range(64, -1, -1), callbacks, strict=True):
        acknowledge()
        assert tracker.pending == left
    assert tracker.buffers == 1  # the second is not full yet
    callbacks = add(tracker, 63)
    assert tracker.buffers == 1
    for acknowledge in callbacks:
        acknowledge()
    tracker.advance()
    assert tracker.buffers == 0


def test_a_frozen_tracker_does_not_advance() -> None:
    tracker = ProgressTracker()
    (acknowledge,) = add(tracker, 1)
    resolve(tracker, 1)
    tracker.freeze()
    acknowledge()
    resolve(tracker, 2)
    assert shown(tracker) == (0, 0)


def test_resolved_ts_between_two_events_are_one_entry() -> None:
    tracker = ProgressTracker()
    (first,) = add(tracker, 1)
    resolve(tracker, 1)
    (second,) = add(tracker, 1)
    resolve(tracker, 2, 3)
    assert tracker.waiting == 2
    (third,) = add(tracker, 1)
    resolve(tracker, 4, 5, 6)
    first()
    second()
    assert shown(tracker) == (1, 3)
    assert tracker.waiting == 1
    third()
    assert shown(tracker) == (0, 6)
    resolve(tracker, 7, 8, 9)
    assert (tracker.waiting, shown(tracker)) == (0, (0, 9))


def test_waiting_ends_with_the_last_acknowledgement() -> None:
    tracker = ProgressTracker()
    first, second = add(tracker, 2)
    first()
    assert not tracker.wait_acknowledged(0.001)
    thread = Thread(target=second)
    thread.start()
    assert tracker.wait_acknowledged(10)
    thread.join()


def test_an_event_that_is_acknowledged_twice_counts_once() -> None:
    tracker = ProgressTracker(buffer_bytes=1)
    events = tracker.add_events(20)
    tracker.acknowledge(events[3:4])
    tracker.acknowledge(np.array([3, 3, 0, 1, 1]))
    assert tracker.pending == 18  # 2 is missing
    tracker.acknowledge(events)
    assert (tracker.pending, tracker.buffers) == (0, 1)
    tracker.acknowledge(events)  # the first two buffers are gone
    assert tracker.pending == 0


@pytest.mark.parametrize("ids", [range(2, 4), np.array([-1]), np.array([0, 7])])
def test_an_event_that_was_not_added_is_refused(ids: range) -> None:
    tracker = ProgressTracker()
    tracker.add_events(3)
    with pytest.raises(ValueError, match="only 3 were added"):
        tracker.acknowledge(ids)
    assert tracker.pending == 3


def test_a_batch_resolved_ts_is_less_than_the_plain_one() -> None:
    resolved = [ResolvedTs(4), ResolvedTs(5, 1), ResolvedTs(5, 2), ResolvedTs(5), ResolvedTs(6, 1)]
    assert all(earlier < later for earlier, later in pairwise(resolved))
    assert [r.mark for r in resolved] == [4, 4, 4, 5, 5]


def test_threads_that_acknowledge_at_the_same_time_lose_nothing() -> None:
    tracker = ProgressTracker(buffer_bytes=64)
    events = np.arange(tracker.add_events(20_000).stop)
    resolve(tracker, 7)
    Random(5).shuffle(events)

    def work(mine: np.ndarray) -> None:
        for start in range(0, len(mine), 100):
            tracker.acknowledge(mine[start : start + 100])
            tracker.acknowledge(mine[start : start + 10])
            tracker.advance()

    threads = [Thread(target=work, args=(events[number::8],)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert shown(tracker) == (0, 7)
    assert tracker.buffers == 1


def test_ten_million_pending_events_take_two_bits_each_or_less() -> None:
    count = 10_000_000
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    tracker = ProgressTracker()
    for _ in range(count // 100_000):
        events = tracker.add_events(100_000)
        tracker.acknowledge(np.arange(events.start + 1, events.stop, 2))
        tracker.acknowledge(np.arange(events.start + 2, events.stop, 2))
    held = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert tracker.pending == count  # the first is missing
    assert held * 8 <= 2 * count


class TrackerModel(RuleBasedStateMachine):
    """The tracker against a list of what was added and a set of what was acknowledged."""

    @initialize(buffer_bytes=st.integers(1, 3))
    def start(self, buffer_bytes: int) -> None:
        self.tracker = ProgressTracker(buffer_bytes)
        self.buffer_events = buffer_bytes * 8
        self.added = 0
        self.acknowledged: set[int] = set()
        self.resolved: list[tuple[int, int]] = [(0, 0)]
        self.frozen_at: int | None = None

    def first_missing(self) -> int:
        return next(n for n in range(self.added + 1) if n not in self.acknowledged)

    def checkpoint(self) -> int:
        done = self.first_missing()
        return max(ts for before, ts in self.resolved if before <= done)

    @rule(count=st.integers(0, 40))
    def add(self, count: int) -> None:
        assert self.tracker.add_events(count) == range(self.added, self.added + count)
        self.added += count

    @rule()
    def resolve(self) -> None:
        self.tracker.add_resolved_ts(ResolvedTs(len(self.resolved)))
        self.resolved.append((self.added, len(self.resolved)))

    @precondition(lambda self: self.added)
    @rule(data=st.data())
    def acknowledge(self, data: st.DataObject) -> None:
        ids = data.draw(st.lists(st.integers(0, self.added - 1), max_size=30))
        self.tracker.acknowledge(np.array(ids, dtype=np.int64))
        self.acknowledged.update(ids)

    @precondition(lambda self: self.added)
    @rule(data=st.data())
    def acknowledge_a_range(self, data: st.DataObject) -> None:
        stop = data.draw(st.integers(0, self.added))
        start = data.draw(st.integers(max(0, stop - 30), stop))
        self.tracker.acknowledge(range(start, stop))
        self.acknowledged.update(range(start, stop))

    @precondition(lambda self: self.frozen_at is None)
    @rule()
    def freeze(self) -> None:
        self.frozen_at = self.tracker.advance().ts
        self.tracker.freeze()

    @invariant()
    def tells_the_same(self) -> None:
        expected = self.checkpoint() if self.frozen_at is None else self.frozen_at
        assert self.tracker.advance().ts == expected
        assert self.tracker.pending == self.added - self.first_missing()
        kept = -(-self.added // self.buffer_events) - self.first_missing() // self.buffer_events
        assert self.tracker.buffers == kept


TrackerModel.TestCase.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
TestTrackerModel = TrackerModel.TestCase
