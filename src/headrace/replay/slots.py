"""Slots: which transaction touched each key last. Keys are spread over slots, each with a lock of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from threading import Lock

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.int64]
Keys = npt.NDArray[np.uint64]
Touched = npt.NDArray[np.uint64]
"""Pairs of a key and the number of a transaction that touches it, as one integer each: sorted, and without repeats.

The key's hash has the upper 44 bits, the number the lower 20: so one sort of plain integers, which numpy does in 34 ns each, brings
equal keys together with their transactions in order. Sorting their indices instead takes almost twice as long.
"""
OWNER_BITS = 20
MOST_TRANSACTIONS = 1 << OWNER_BITS
"""The most transactions that are touched together."""
SLOTS = 8
_SLOT_SHIFT = 64 - OWNER_BITS
_SMALL_RUN = 8192
"""Runs of together at most so many keys are merged, so that single transactions do not become a run each."""


def touched(hashes: Keys, owners: Keys) -> Touched:
    """The pairs of a hash (64 bits, of which the upper 44 count) and a transaction's number, in any order."""
    mask = np.uint64(MOST_TRANSACTIONS - 1)
    pairs = np.sort((hashes & ~mask) | owners)
    return pairs if len(pairs) < 2 else pairs[np.concatenate(([True], pairs[1:] != pairs[:-1]))]


@dataclass(frozen=True)
class Edges:
    """``later[i]`` must not run before ``earlier[i]``: ids of transactions (int64). No pair comes twice for one key."""

    later: Numbers
    earlier: Numbers


@dataclass
class _Run:
    """Keys that were touched together: sorted, each once, with the last transaction that touched it."""

    keys: Keys
    last: Numbers
    newest: int


class _Slot:
    """The keys of one part of all hashes. Whoever uses it holds its lock."""

    def __init__(self) -> None:
        self.lock = Lock()
        self._runs: list[_Run] = []

    def last(self, keys: Keys) -> Numbers:
        """The last transaction that touched each key, -1 for none. ``keys`` are sorted."""
        found = np.full(len(keys), -1, dtype=np.int64)
        for run in self._runs:  # the newest last, so that it counts
            places = np.searchsorted(run.keys, keys)
            places[places == len(run.keys)] = 0
            hits = np.flatnonzero(run.keys[places] == keys)
            if len(hits):
                found[hits] = run.last[places[hits]]
        return found

    def put(self, keys: Keys, last: Numbers, low: int) -> None:
        """Notes who touched these keys last, and forgets transactions below ``low``: they are executed."""
        self._runs = [run for run in self._runs if run.newest >= low]
        new = _Run(keys, last, int(last.max()))
        while self._runs and len(self._runs[-1].keys) <= 2 * len(new.keys) <= _SMALL_RUN:
            new = _merged(self._runs.pop(), new, low)
        self._runs.append(new)

    def __len__(self) -> int:
        return sum(len(run.keys) for run in self._runs)


def _merged(older: _Run, newer: _Run, low: int) -> _Run:
    keys, last = np.concatenate((older.keys, newer.keys)), np.concatenate((older.last, newer.last))
    alive = last >= low
    keys, last = keys[alive], last[alive]
    order = np.argsort(keys, kind="stable")
    keys, last = keys[order], last[order]
    final = np.concatenate((keys[1:] != keys[:-1], [True]))
    return _Run(keys[final], last[final], newer.newest)


class Slots:
    """Finds on which earlier transactions later ones depend. Any thread may call it.

    Whoever touches keys holds the locks of all their slots at once, taken in the order of the slots. So two callers never wait for
    each other, and transactions that share keys are in the same order in every slot. Of all that touched a key only the last one
    is linked: it depends on those before it.
    """

    def __init__(self, count: int = SLOTS) -> None:
        if count < 1 or count & (count - 1):
            raise ValueError(f"the number of slots is a power of two, not {count}")
        self._slots = tuple(_Slot() for _ in range(count))
        step = (1 << _SLOT_SHIFT) // count
        self._bounds = np.array([step * number for number in range(1, count)], dtype=np.uint64)

    def touch(self, touched: Touched, reserve: Callable[[], tuple[int, int]]) -> tuple[int, Edges]:
        """Lets transactions touch their keys. Returns the id of the first one, from which they are numbered, and the edges.

        ``reserve`` is called while the slots are locked. It returns the first id, which must be above all ids before, and the id
        below which all transactions are executed.
        """
        keys = touched >> np.uint64(OWNER_BITS)
        owners = (touched & np.uint64(MOST_TRANSACTIONS - 1)).astype(np.int64)
        repeats = keys[1:] == keys[:-1]
        heads, tails = np.ones(len(keys), dtype=np.bool_), np.ones(len(keys), dtype=np.bool_)
        heads[1:] = ~repeats
        tails[:-1] = ~repeats
        distinct, first_owners, last_owners = keys[heads], owners[heads], owners[tails]
        with ExitStack() as locks:
            parts = list(self._parts(distinct))
            for slot, _, _ in parts:
                locks.enter_context(slot.lock)
            first, low = reserve()
            before = np.empty(len(distinct), dtype=np.int64)
            for slot, start, stop in parts:
                before[start:stop] = slot.last(distinct[start:stop])
                slot.put(distinct[start:stop], first + last_owners[start:stop], low)
        linked = np.flatnonzero(before >= low)
        later = np.concatenate((owners[1:][repeats], first_owners[linked])) + first
        earlier = np.concatenate((owners[:-1][repeats] + first, before[linked]))
        return first, Edges(later, earlier)

    def _parts(self, keys: Keys) -> Iterator[tuple[_Slot, int, int]]:
        """The slots of these sorted keys in order, each with the start and end of its keys."""
        bounds = [0, *np.searchsorted(keys, self._bounds).tolist(), len(keys)]
        for slot, start, stop in zip(self._slots, bounds, bounds[1:], strict=False):
            if start < stop:
                yield slot, start, stop

    def __len__(self) -> int:
        """How many keys are held."""
        return sum(map(len, self._slots))
