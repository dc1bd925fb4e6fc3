"""ConflictDetector: gives transactions to workers, so that those that share a key run in order and the others side by side.

Transactions are the nodes of a graph without cycles: a node depends on the last earlier one that touched each of its keys. A node
without dependencies goes to the worker that has least to do. If all that a node still depends on is at one worker, it goes there at
once, because a worker executes in order. Otherwise it waits; the last dependency that is left picks the worker.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise, repeat
from operator import attrgetter
from threading import Condition, Lock

import numpy as np

from headrace.replay.errors import SinkClosedError, SinkFailedError
from headrace.replay.slots import SLOTS, Edges, Numbers, Slots, Touched
from headrace.replay.transactions import TransactionEvents, Transactions

_BY_NODE = attrgetter("node")


@dataclass(frozen=True)
class Assigned:
    """Transactions for one worker: ``numbers`` (int64) of ``transactions``, in the order in which they run.

    ``is_free``: when they were added, none depended on another one, nor on any that was pending.
    """

    transactions: Transactions
    numbers: Numbers
    is_free: bool = False


@dataclass(eq=False, slots=True)
class _Batch:
    """Events that were added together, with the id of the first one. Their memory is free when all of them are executed."""

    first: int
    events: TransactionEvents
    lengths: list[int]
    nbytes: int
    left: int


@dataclass(eq=False, slots=True)
class _Entry:
    """A place in a worker's queue. ``is_free``: see :class:`Assigned`."""

    batch: _Batch
    numbers: list[int]
    rows: int
    is_free: bool = False


@dataclass(eq=False, slots=True)
class _Waiting:
    """A transaction that waits. It depends on ``unplaced`` others that wait too, and on so many of each worker in ``at``.

    It can go when all that it depends on is at one worker, or executed.
    """

    node: int
    batch: _Batch
    unplaced: int
    at: dict[int, int]


@dataclass(eq=False, slots=True)
class _Queue:
    """What a worker has: its queue, and what it took and has not acknowledged."""

    ready: Condition
    entries: deque[_Entry] = field(default_factory=deque)
    taken: list[_Entry] = field(default_factory=list)


class ConflictDetector:
    """Spreads transactions over workers. Transactions of different tables never conflict.

    What is added is pending until a worker acknowledges it, and bounded: :meth:`add` waits while more than ``quota`` bytes are
    pending. A batch larger than that is taken when nothing else is pending. No other queue grows.

    Every method may be called from any thread, except that one worker calls :meth:`take`, :meth:`acknowledge` and :meth:`give_back`
    from one thread at a time. Callbacks of events run on the thread that acknowledges, without any lock of the detector. Locks are
    always taken in the order: slots from the first to the last, then the graph.
    """

    def __init__(self, workers: int, *, quota: int, most_rows: int = 256, slots: int = SLOTS) -> None:
        """``most_rows``: how many rows a worker takes at a time, unless a single transaction has more."""
        if workers < 1 or quota < 1 or most_rows < 1:
            raise ValueError(f"workers, quota and most_rows are at least 1, not {workers}, {quota} and {most_rows}")
        self._quota = quota
        self._most_rows = most_rows
        self._slots = Slots(slots)
        self._graph = Lock()
        # All that follows is read and written with the lock of the graph.
        self._room = Condition(self._graph)
        self._queues = tuple(_Queue(Condition(self._graph)) for _ in range(workers))
        self._pending_bytes = 0
        self._pending = 0
        self._failure: BaseException | None = None
        self._rows = [0] * workers  # what each worker has queued and taken
        self._next = 0
        # Batches that are not executed as a whole, the oldest first. All transactions before the first of them are executed.
        self._batches: dict[int, _Batch] = {}
        # A transaction that is in neither of the two is executed.
        self._worker_of: dict[int, int] = {}
        self._waiting: dict[int, _Waiting] = {}
        self._dependents: dict[int, list[_Waiting]] = {}

    def add(self, events: TransactionEvents, touched: Touched) -> None:
        """Adds transactions, which come behind all that were added before. ``touched`` are their keys.

        Waits while the quota is used up. Raises SinkClosedError when the detector is closed, and SinkFailedError when it failed.
        """
        count, nbytes = len(events.transactions), events.transactions.nbytes
        if not count:
            return
        with self._graph:
            self._room.wait_for(lambda: self._failure or not self._pending_bytes or self._pending_bytes + nbytes <= self._quota)
            self._refuse_if_over()
            self._pending_bytes += nbytes
            self._pending += count
        # With the locks of the slots until the edges are noted: others that share a key find these transactions placed or waiting.
        with self._slots.locked(touched) as slots:
            with self._graph:
                batch = _Batch(self._next, events, np.diff(events.transactions.starts).tolist(), nbytes, count)
                self._next += count
                self._batches[batch.first] = batch
                low = next(iter(self._batches))
            edges = slots.touch(batch.first, low)
            with self._graph:
                self._place(batch, edges)

    def _place(self, batch: _Batch, edges: Edges) -> None:
        """Gives the transactions of a batch to workers, or lets them wait: first those without edges, then the others in order."""
        free = np.ones(batch.left, dtype=np.bool_)
        free[edges.later] = False
        self._spread(batch, np.flatnonzero(free))
        bounds = [*np.flatnonzero(np.diff(edges.later, prepend=-1)).tolist(), len(edges.later)]
        later, earlier = edges.later.tolist(), edges.earlier.tolist()
        for start, stop in pairwise(bounds):
            self._place_behind(batch, later[start], earlier[start:stop])

    def _place_behind(self, batch: _Batch, number: int, earlier: list[int]) -> None:
        alive: list[int] = []
        at: dict[int, int] = {}
        for before in earlier:
            worker = self._worker_of.get(before)
            if worker is not None:
                at[worker] = at.get(worker, 0) + 1
                alive.append(before)
            elif before in self._waiting:
                alive.append(before)
        unplaced = len(alive) - sum(at.values())
        if not unplaced and len(at) < 2:
            self._assign(batch, number, next(iter(at)) if at else self._least_busy())
            return
        node = batch.first + number
        waiting = self._waiting[node] = _Waiting(node, batch, unplaced, at)
        for before in alive:
            dependents = self._dependents.get(before)
            if dependents is None:
                self._dependents[before] = [waiting]
            else:
                dependents.append(waiting)

    def _spread(self, batch: _Batch, numbers: Numbers) -> None:
        """Gives transactions without dependencies to the workers that have least to do, some neighbours to each."""
        if not len(numbers):
            return
        ends = np.cumsum(np.diff(batch.events.transactions.starts)[numbers])
        rows_each = min(self._most_rows, math.ceil(int(ends[-1]) / len(self._queues)))
        start = rows_before = 0
        while start < len(numbers):
            stop = max(int(ends.searchsorted(rows_before + rows_each, side="right")), start + 1)
            chunk, rows, worker = numbers[start:stop], int(ends[stop - 1]) - rows_before, self._least_busy()
            self._worker_of.update(zip((chunk + batch.first).tolist(), repeat(worker), strict=False))
            self._put(worker, _Entry(batch, chunk.tolist(), rows, is_free=True))
            start, rows_before = stop, rows_before + rows

    def _least_busy(self) -> int:
        return self._rows.index(min(self._rows))

    def _put(self, worker: int, entry: _Entry) -> None:
        queue = self._queues[worker]
        queue.entries.append(entry)
        self._rows[worker] += entry.rows
        queue.ready.notify()

    def _assign(self, batch: _Batch, number: int, worker: int) -> None:
        """Puts one transaction at the end of a worker's queue."""
        self._worker_of[batch.first + number] = worker
        rows, entries = batch.lengths[number], self._queues[worker].entries
        if entries and entries[-1].batch is batch and entries[-1].rows + rows <= self._most_rows:
            entries[-1].numbers.append(number)
            entries[-1].is_free = False
            entries[-1].rows += rows
            self._rows[worker] += rows
        else:
            self._put(worker, _Entry(batch, [number], rows))

    def _let_go(self, nodes: set[_Waiting], worker: int) -> None:
        """Gives waiting transactions to workers, in order, and then those that only waited for them.

        One that depends on nothing any more goes to ``worker``, which has just become free, as long as it can take it with its next
        rows: so one write holds many of them.
        """
        ahead = deque(sorted(nodes, key=_BY_NODE))
        while ahead:
            waiting = ahead.popleft()
            if self._waiting.pop(waiting.node, None) is None:
                continue
            if waiting.at:
                chosen = next(iter(waiting.at))
            else:
                chosen = worker if self._rows[worker] < self._most_rows else self._least_busy()
            self._assign(waiting.batch, waiting.node - waiting.batch.first, chosen)
            for dependent in self._dependents.get(waiting.node, ()):
                dependent.unplaced -= 1
                dependent.at[chosen] = dependent.at.get(chosen, 0) + 1
                if not dependent.unplaced and len(dependent.at) < 2:
                    ahead.append(dependent)

    def take(self, worker: int, seconds: float | None = None) -> list[Assigned] | None:
        """The next transactions of a worker, in the order in which it must execute them.

        Waits for some, at most ``seconds`` (empty then). ``None`` when the detector is closed or failed: the worker ends. What it
        took counts as taken until it is acknowledged or given back.
        """
        queue = self._queues[worker]
        with self._graph:
            queue.ready.wait_for(lambda: self._failure or queue.entries, seconds)
            if self._failure is not None:
                return None
            taken: list[_Entry] = []
            rows = 0
            while queue.entries and (not taken or rows + queue.entries[0].rows <= self._most_rows):
                rows += queue.entries[0].rows
                taken.append(queue.entries.popleft())
            queue.taken += taken
        return [Assigned(e.batch.events.transactions, np.array(e.numbers, dtype=np.int64), e.is_free) for e in taken]

    def acknowledge(self, worker: int) -> None:
        """All that the worker took is durable. Calls the callbacks of the events, then lets go what waited for them."""
        queue = self._queues[worker]
        with self._graph:
            taken, queue.taken = queue.taken, []
        executed: dict[int, tuple[_Batch, list[int]]] = {}
        for entry in taken:
            executed.setdefault(entry.batch.first, (entry.batch, []))[1].extend(entry.numbers)
        for batch, numbers in executed.values():
            batch.events.acknowledge(np.array(numbers, dtype=np.int64))
        with self._graph:
            self._rows[worker] -= sum(entry.rows for entry in taken)
            ready: set[_Waiting] = set()
            for batch, numbers in executed.values():
                for node in [batch.first + number for number in numbers]:
                    del self._worker_of[node]
                    if node in self._dependents:
                        ready.update(_without(self._dependents.pop(node), worker))
                self._release(batch, len(numbers))
            self._let_go(ready, worker)

    def _release(self, batch: _Batch, count: int) -> None:
        """So many transactions of the batch are executed."""
        self._pending -= count
        batch.left -= count
        if not batch.left:
            del self._batches[batch.first]
            self._pending_bytes -= batch.nbytes
            self._room.notify_all()

    def give_back(self, worker: int) -> None:
        """Puts what the worker took and did not acknowledge back to the front of its queue, in order: its successor takes it again.

        Whatever depends on it is at the same worker behind it, or still waits, so no order changes.
        """
        queue = self._queues[worker]
        with self._graph:
            queue.entries.extendleft(reversed(queue.taken))
            queue.taken = []

    @property
    def pending(self) -> int:
        """How many transactions were added and are not acknowledged."""
        with self._graph:
            return self._pending

    @property
    def pending_bytes(self) -> int:
        """The bytes of batches that are not executed as a whole."""
        with self._graph:
            return self._pending_bytes

    @property
    def failure(self) -> BaseException | None:
        """Why nothing more is taken, SinkClosedError after :meth:`close`; ``None`` while the detector works."""
        return self._failure

    def close(self) -> None:
        """Ends all waits. Nothing more is taken from here on; what was taken may still be acknowledged."""
        self.fail(SinkClosedError("The sink is closed and takes no more events."))

    def fail(self, error: BaseException) -> None:
        """Closes the detector because a worker cannot go on. The first error counts."""
        with self._graph:
            self._failure = self._failure or error
            self._room.notify_all()
            for queue in self._queues:
                queue.ready.notify_all()

    def _refuse_if_over(self) -> None:
        if isinstance(self._failure, SinkClosedError):
            raise SinkClosedError(self._failure.message)
        if self._failure is not None:
            raise SinkFailedError(f"The sink failed: {self._failure}") from self._failure


def _without(dependents: list[_Waiting], worker: int) -> Iterator[_Waiting]:
    """Those of the dependents that can go, now that one of their dependencies is executed by a worker."""
    for waiting in dependents:
        at = waiting.at
        left = at[worker] - 1
        if left:
            at[worker] = left
            continue
        del at[worker]
        if len(at) < 2 and not waiting.unplaced:
            yield waiting
