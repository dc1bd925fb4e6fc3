"""Slots: which transaction touched each key last. Keys are spread over slots, each with a lock of its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
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
_PLACES = 1 << 17
_PLACE_MASK = np.uint64(_PLACES - 1)


def touched(hashes: Keys, owners: Keys) -> Touched:
    """The pairs of a hash (64 bits, of which the upper 44 count) and a transaction's number, in any order."""
    mask = np.uint64(MOST_TRANSACTIONS - 1)
    pairs = np.sort((hashes & ~mask) | owners)
    return pairs if len(pairs) < 2 else pairs[np.concatenate(([True], pairs[1:] != pairs[:-1]))]


def sharing(found: Touched) -> tuple[Numbers, Numbers]:
    """The transactions that touch a key after another one of them, and for each of these the last one before it (int64)."""
    owners = (found & np.uint64(MOST_TRANSACTIONS - 1)).astype(np.int64)
    keys = found >> np.uint64(OWNER_BITS)
    later = np.flatnonzero(keys[1:] == keys[:-1]) + 1
    return owners[later], owners[later - 1]


@dataclass(frozen=True)
class Edges:
    """``later[i]``, the number of a transaction that touches keys now, must not run before ``earlier[i]``, an id (int64).

    In the order of ``later``, and without repeats.
    """

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
        # For each place the first id of the transactions that last touched any of its keys together. Most keys are new: one look
        # here tells that, and not one in each run.
        self._newest = np.full(_PLACES, -1, dtype=np.int64)

    def last(self, keys: Keys, low: int) -> Numbers:
        """The last transaction that touched each key, -1 for none. ``keys`` are sorted. All below ``low`` are executed."""
        found = np.full(len(keys), -1, dtype=np.int64)
        known = np.flatnonzero(self._newest[(keys & _PLACE_MASK).astype(np.int64)] >= low)
        looked_for = keys[known]
        for run in self._runs if len(known) else ():  # the newest last, so that it counts
            places = np.searchsorted(run.keys, looked_for)
            places[places == len(run.keys)] = 0
            hits = np.flatnonzero(run.keys[places] == looked_for)
            if len(hits):
                found[known[hits]] = run.last[places[hits]]
        return found

    def put(self, keys: Keys, first: int, last: Numbers, low: int) -> None:
        """Notes who touched these keys last, and forgets transactions below ``low``: they are executed.

        ``first``: the id of the first transaction of those that touch keys together. All of them count as executed when all are.
        """
        self._newest[(keys & _PLACE_MASK).astype(np.int64)] = first
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

    @contextmanager
    def locked(self, touched: Touched) -> Iterator[LockedSlots]:
        """The slots of these keys, with their locks."""
        keys = touched >> np.uint64(OWNER_BITS)
        owners = (touched & np.uint64(MOST_TRANSACTIONS - 1)).astype(np.int64)
        repeats = keys[1:] == keys[:-1]
        heads, tails = np.ones(len(keys), dtype=np.bool_), np.ones(len(keys), dtype=np.bool_)
        heads[1:] = ~repeats
        tails[:-1] = ~repeats
        distinct = keys[heads]
        within = (owners[1:][repeats], owners[:-1][repeats])
        with ExitStack() as locks:
            parts = list(self._parts(distinct))
            for slot, _, _ in parts:
                locks.enter_context(slot.lock)
            yield LockedSlots(parts, distinct, owners[heads], owners[tails], within)

    def _parts(self, keys: Keys) -> Iterator[tuple[_Slot, int, int]]:
        """The slots of these sorted keys in order, each with the start and end of its keys."""
        bounds = [0, *np.searchsorted(keys, self._bounds).tolist(), len(keys)]
        for slot, start, stop in zip(self._slots, bounds, bounds[1:], strict=False):
            if start < stop:
                yield slot, start, stop

    def __len__(self) -> int:
        """How many keys are held."""
        return sum(map(len, self._slots))


@dataclass(frozen=True)
class LockedSlots:
    """The slots of keys that are touched together, each with the start and end of its keys. Only while the locks are held."""

    _parts: Sequence[tuple[_Slot, int, int]]
    _keys: Keys
    _first: Numbers
    """The first transaction that touches each key, and the last one."""
    _last: Numbers
    _within: tuple[Numbers, Numbers]
    """The edges between transactions that touch keys now, both as numbers."""

    def touch(self, first: int, low: int) -> Edges:
        """Lets the transactions touch their keys. They get the ids from ``first`` on, above all before.

        All transactions with ids below ``low`` are executed; it is the first id of those of an earlier call, or ``first``.
        """
        before = np.empty(len(self._keys), dtype=np.int64)
        for slot, start, stop in self._parts:
            before[start:stop] = slot.last(self._keys[start:stop], low)
            slot.put(self._keys[start:stop], first, first + self._last[start:stop], low)
        linked = np.flatnonzero(before >= low)
        later = np.concatenate((self._within[0], self._first[linked]))
        earlier = np.concatenate((self._within[1] + first, before[linked]))
        if not len(later):
            return Edges(later, earlier)
        # One number for each edge: those of one transaction are then together, and its repeats side by side. Most transactions that
        # share one key share several, those of a row.
        span = first + MOST_TRANSACTIONS - low
        pairs = np.sort(later * span + (earlier - low))
        pairs = pairs[np.concatenate(([True], pairs[1:] != pairs[:-1]))]
        return Edges(pairs // span, pairs % span + low)
