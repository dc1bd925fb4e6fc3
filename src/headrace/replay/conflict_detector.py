"""ConflictDetector: gives transactions to workers, so that those that share a key run in order and the others side by side.

Transactions are the nodes of a graph without cycles: a node depends on the last earlier one that touched each of its keys. A node
without dependencies goes to the worker that has least to do. If all that a node still depends on is at one worker, it goes there at
once, because a worker executes in order. Otherwise it waits; the last dependency that is left picks the worker.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from threading import Condition, Lock

import numpy as np
import numpy.typing as npt

from headrace.replay.errors import SinkClosedError, SinkFailedError
from headrace.replay.slots import SLOTS, Numbers, Slots, Touched
from headrace.replay.transactions import TransactionEvents, Transactions

_WAITING = -1
_EXECUTED = -2
_LEAST_CAPACITY = 1 << 14
_SCANNED = 4096


@dataclass(frozen=True)
class Assigned:
    """Transactions for one worker: ``numbers`` (int64) of ``transactions``, in the order in which they run."""

    transactions: Transactions
    numbers: Numbers


@dataclass(eq=False)
class _Batch:
    """Events that were added together, with the id of the first one. Their memory is free when all of them are executed."""

    first: int
    events: TransactionEvents
    lengths: npt.NDArray[np.int64]
    nbytes: int
    left: int


@dataclass(eq=False)
class _Entry:
    """A place in a worker's queue."""

    batch: _Batch
    numbers: list[int]
    rows: int


@dataclass(eq=False)
class _Waiting:
    """A transaction and what it depends on: ids of which it is not known that a worker has them, and the others by worker."""

    batch: _Batch
    number: int
    unplaced: list[int]
    placed: dict[int, list[int]] = field(default_factory=dict)


@dataclass(eq=False)
class _Queue:
    """What a worker has: its queue, and what it took and has not acknowledged. ``rows`` are those of both."""

    ready: Condition
    entries: deque[_Entry] = field(default_factory=deque)
    taken: list[_Entry] = field(default_factory=list)
    rows: int = 0


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
        self._failure: Exception | None = None
        # For each id from _base on: the worker that has it, _WAITING or _EXECUTED. All below _low are executed.
        self._states = np.full(_LEAST_CAPACITY, _WAITING, dtype=np.int16)
        self._base = self._low = self._next = 0
        self._newest_linked = -1
        self._waiting: dict[int, _Waiting] = {}
        self._watched: dict[int, list[int]] = {}  # who looks again when the transaction of this id gets to a worker, or is executed

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
        first, edges = self._slots.touch(touched, lambda: self._reserve(count))
        with self._graph:
            batch = _Batch(first, events, np.diff(events.transactions.starts), nbytes, count)
            dependent = self._link(batch, edges.later, edges.earlier)
            free = np.ones(count, dtype=np.bool_)
            free[dependent] = False
            self._spread(batch, np.flatnonzero(free))
            if first < self._newest_linked:  # a later batch was faster, and may wait for this one
                self._settle([node for n in np.flatnonzero(free).tolist() for node in self._watched.pop(first + n, ())])
            self._newest_linked = max(self._newest_linked, first)
            self._settle([first + number for number in dependent])

    def _reserve(self, count: int) -> tuple[int, int]:
        """Ids for new transactions, which wait from now on, and the lowest id that is not executed."""
        with self._graph:
            if self._next + count - self._base > len(self._states):
                alive = self._states[self._low - self._base : self._next - self._base]
                states = np.full(max(2 * (len(alive) + count), _LEAST_CAPACITY), _WAITING, dtype=np.int16)
                states[: len(alive)] = alive
                self._states, self._base = states, self._low
            first = self._next
            self._next += count
            self._states[first - self._base : self._next - self._base] = _WAITING
            return first, self._low

    def _link(self, batch: _Batch, later: Numbers, earlier: Numbers) -> list[int]:
        """Notes what the transactions of a batch wait for. Returns the numbers of those that depend on others, in order."""
        alive = earlier >= self._low
        alive[alive] = self._states[earlier[alive] - self._base] != _EXECUTED
        if not alive.any():
            return []
        for node, before in zip(later[alive].tolist(), earlier[alive].tolist(), strict=True):
            waiting = self._waiting.get(node)
            if waiting is None:
                self._waiting[node] = _Waiting(batch, node - batch.first, [before])
            else:
                waiting.unplaced.append(before)
        return sorted(set((later[alive] - batch.first).tolist()))

    def _spread(self, batch: _Batch, numbers: Numbers) -> None:
        """Gives transactions without dependencies to the workers that have least to do, some neighbours to each."""
        if not len(numbers):
            return
        ends = np.cumsum(batch.lengths[numbers])
        rows_each = min(self._most_rows, math.ceil(int(ends[-1]) / len(self._queues)))
        start = rows_before = 0
        while start < len(numbers):
            stop = max(int(ends.searchsorted(rows_before + rows_each, side="right")), start + 1)
            chunk, rows, worker = numbers[start:stop], int(ends[stop - 1]) - rows_before, self._least_busy()
            self._states[batch.first - self._base + chunk] = worker
            self._put(worker, _Entry(batch, chunk.tolist(), rows))
            start, rows_before = stop, rows_before + rows

    def _least_busy(self) -> int:
        return min(range(len(self._queues)), key=lambda worker: self._queues[worker].rows)

    def _put(self, worker: int, entry: _Entry) -> None:
        queue = self._queues[worker]
        queue.entries.append(entry)
        queue.rows += entry.rows
        queue.ready.notify()

    def _settle(self, nodes: Sequence[int]) -> None:
        """Gives those of the waiting transactions to workers that can go, and then those that waited for them."""
        ahead = deque(nodes)
        while ahead:
            node = ahead.popleft()
            waiting = self._waiting.get(node)
            worker = None if waiting is None else self._worker_for(node, waiting)
            if waiting is None or worker is None:
                continue
            del self._waiting[node]
            self._states[node - self._base] = worker
            queue, rows = self._queues[worker], int(waiting.batch.lengths[waiting.number])
            newest = queue.entries[-1] if queue.entries else None
            if newest is not None and newest.batch is waiting.batch and newest.rows + rows <= self._most_rows:
                newest.numbers.append(waiting.number)
                newest.rows += rows
                queue.rows += rows
            else:
                self._put(worker, _Entry(waiting.batch, [waiting.number], rows))
            ahead.extend(self._watched.pop(node, ()))

    def _worker_for(self, node: int, waiting: _Waiting) -> int | None:
        """The worker at which everything is that the transaction still depends on; any, if nothing is left; ``None``: it waits.

        A transaction that waits watches one that no worker has, or one of each worker: watching all that it depends on would take
        the square of their number if it is large.
        """
        unplaced, placed = waiting.unplaced, waiting.placed
        while unplaced:
            state = self._state_of(unplaced[-1])
            if state == _WAITING:
                self._watched.setdefault(unplaced[-1], []).append(node)
                return None
            before = unplaced.pop()
            if state != _EXECUTED:
                placed.setdefault(state, []).append(before)
        for worker, nodes in [*placed.items()]:
            while nodes and self._state_of(nodes[-1]) == _EXECUTED:
                nodes.pop()
            if not nodes:
                del placed[worker]
        if len(placed) > 1:
            for nodes in placed.values():
                self._watched.setdefault(nodes[-1], []).append(node)
            return None
        return next(iter(placed)) if placed else self._least_busy()

    def _state_of(self, node: int) -> int:
        return int(self._states[node - self._base]) if node >= self._low else _EXECUTED

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
        return [Assigned(entry.batch.events.transactions, np.array(entry.numbers, dtype=np.int64)) for entry in taken]

    def acknowledge(self, worker: int) -> None:
        """All that the worker took is durable. Calls the callbacks of the events, then lets go what waited for them."""
        queue = self._queues[worker]
        with self._graph:
            taken, queue.taken = queue.taken, []
        numbers = [np.array(entry.numbers, dtype=np.int64) for entry in taken]
        for entry, of_entry in zip(taken, numbers, strict=True):
            entry.batch.events.acknowledge(of_entry)
        with self._graph:
            for entry, of_entry in zip(taken, numbers, strict=True):
                batch = entry.batch
                self._states[batch.first - self._base + of_entry] = _EXECUTED
                queue.rows -= entry.rows
                self._pending -= len(of_entry)
                batch.left -= len(of_entry)
                if not batch.left:
                    self._pending_bytes -= batch.nbytes
            if self._watched:
                ids = (entry.batch.first + n for entry in taken for n in entry.numbers)
                self._settle(sorted({node for executed in ids for node in self._watched.pop(executed, ())}))
            self._lift_low()
            self._room.notify_all()

    def _lift_low(self) -> None:
        """Finds the lowest id that is not executed."""
        while self._low < self._next:
            start = self._low - self._base
            alive = self._states[start : min(start + _SCANNED, self._next - self._base)] != _EXECUTED
            found = int(alive.argmax())
            if alive[found]:
                self._low += found
                return
            self._low += len(alive)

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
    def failure(self) -> Exception | None:
        """Why nothing more is taken, SinkClosedError after :meth:`close`; ``None`` while the detector works."""
        return self._failure

    def close(self) -> None:
        """Ends all waits. Nothing more is taken from here on; what was taken may still be acknowledged."""
        self.fail(SinkClosedError("The sink is closed and takes no more events."))

    def fail(self, error: Exception) -> None:
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
