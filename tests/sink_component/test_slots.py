"""Which earlier transactions later ones depend on."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from threading import Thread

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.replay.slots import OWNER_BITS, Slots, Touched, touched

SPREAD = 0x9E3779B97F4A7C15


def of_keys(transactions: Sequence[Sequence[int]]) -> Touched:
    """What transactions touch, as plain numbers that are spread over all hashes."""
    pairs = [(key * SPREAD % 2**64, owner) for owner, keys in enumerate(transactions) for key in keys]
    return touched(np.array([key for key, _ in pairs], np.uint64), np.array([owner for _, owner in pairs], np.uint64))


class Graph:
    """Slots, with ids in order."""

    def __init__(self, slots: int = 8) -> None:
        self.slots = Slots(slots)
        self.next = self.low = 0

    def touch(self, *transactions: Sequence[int]) -> set[tuple[int, int]]:
        """The edges from these transactions, each from the later to the earlier one."""
        with self.slots.locked(of_keys(transactions)) as slots:
            edges = slots.touch(self.next, self.low)
        found = list(zip((edges.later + self.next).tolist(), edges.earlier.tolist(), strict=True))
        self.next += len(transactions)
        assert found == sorted(set(found))
        return set(found)


def test_only_the_last_one_that_touched_a_key_is_linked() -> None:
    graph = Graph()
    assert graph.touch([1, 2]) == set()
    assert graph.touch([2, 3]) == {(1, 0)}
    assert graph.touch([1, 2, 3], [3]) == {(2, 0), (2, 1), (3, 2)}


def test_what_is_executed_is_neither_linked_nor_kept() -> None:
    graph = Graph()
    graph.touch([1, 2])
    graph.touch([3])
    graph.low = 1
    assert graph.touch([1, 3]) == {(2, 1)}
    graph.low = 3
    assert graph.touch([9]) == set()
    assert len(graph.slots) <= 3  # a slot forgets when it is used again


@given(
    st.lists(st.lists(st.lists(st.integers(0, 12), max_size=5), min_size=1, max_size=5), max_size=12), st.sampled_from([1, 2, 16])
)
def test_edges_are_those_of_a_table_of_last_touches(batches: list[list[list[int]]], slots: int) -> None:
    graph, last, node = Graph(slots), {}, 0
    for batch in batches:
        expected = set()
        for keys in batch:
            expected |= {(node, last[key]) for key in set(keys) if key in last}
            last |= dict.fromkeys(keys, node)
            node += 1
        assert graph.touch(*batch) == expected


def test_thousands_of_single_transactions_are_few_runs() -> None:
    graph = Graph(slots=1)
    for key in range(3000):
        graph.touch([key])
    assert len(graph.slots) == 3000
    assert len(graph.slots._slots[0]._runs) < 16
    assert graph.touch([2999], [0], [1500]) == {(3000, 2999), (3001, 0), (3002, 1500)}


def test_threads_that_touch_the_same_keys_in_any_order_never_wait_for_each_other() -> None:
    slots = Slots(16)
    ids = count()
    edges: list[tuple[int, int]] = []

    def work(number: int) -> None:
        for n in range(300):
            with slots.locked(of_keys([[number, 99, n % 7, 50 - n % 7]])) as held:
                node = next(ids)
                edges.extend((node, before) for before in held.touch(node, 0).earlier.tolist())

    threads = [Thread(target=work, args=(number,), daemon=True) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
    # All of them share the key 99, so each depends on the one before it.
    assert {(n + 1, n) for n in range(1199)} <= set(edges)


@pytest.mark.parametrize("number", [0, 3, -1])
def test_the_number_of_slots_is_a_power_of_two(number: int) -> None:
    with pytest.raises(ValueError, match="power of two"):
        Slots(number)


def test_keys_whose_hashes_are_equal_keep_their_transactions_in_order() -> None:
    hashes = np.array([5 << OWNER_BITS, (5 << OWNER_BITS) | 9, 5 << OWNER_BITS], np.uint64)
    pairs = touched(hashes, np.array([2, 0, 1], np.uint64))
    assert pairs.tolist() == [(5 << OWNER_BITS) | owner for owner in (0, 1, 2)]
