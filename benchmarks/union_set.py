"""Union-set grouping, the conflict detection that TiCDC had before its graph: what the detector is compared with.

Every key that was touched belongs to a group, and each group to a worker. A transaction goes to the worker of the groups that it
touches. If these belong to several workers, it waits until all workers have executed everything, and all groups end.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from threading import Condition


class UnionSet:
    """Gives transactions, numbered from 0, to workers."""

    def __init__(self, workers: int, drain: Callable[[UnionSet], None], most: int = 50) -> None:
        """``drain`` returns when nothing is pending; ``most``: how many transactions a worker takes at a time."""
        self._drain = drain
        self._most = most
        self._groups: dict[int, int] = {}
        self._changed = Condition()
        self._queues: tuple[deque[int], ...] = tuple(deque() for _ in range(workers))
        self._taken: list[list[int]] = [[] for _ in range(workers)]
        self._next_worker = 0
        self._numbers = 0
        self._executed = 0
        self.stalls = 0
        self._closed = False

    def add(self, transactions: Sequence[Sequence[int]]) -> None:
        """Adds transactions, each as the hashes of its keys."""
        groups, count = self._groups, len(self._queues)
        for keys in transactions:
            workers = {groups[key] for key in keys if key in groups}
            if len(workers) == 1:
                (worker,) = workers
            else:
                if workers:
                    self.stalls += 1
                    self._drain(self)
                    groups.clear()
                worker = self._next_worker = (self._next_worker + 1) % count
            groups.update(dict.fromkeys(keys, worker))
            with self._changed:
                queue = self._queues[worker]
                if not queue:
                    self._changed.notify_all()
                queue.append(self._numbers)
                self._numbers += 1

    def take(self, worker: int, seconds: float | None = None) -> list[int] | None:
        """The next transactions of a worker; ``None`` after :meth:`close`."""
        queue = self._queues[worker]
        with self._changed:
            if not queue:
                self._changed.wait_for(lambda: queue or self._closed, seconds)
            if self._closed:
                return None
            taken = [queue.popleft() for _ in range(min(self._most, len(queue)))]
            self._taken[worker] = taken
        return taken

    def acknowledge(self, worker: int) -> None:
        with self._changed:
            self._executed += len(self._taken[worker])
            self._taken[worker] = []
            if self._executed == self._numbers:
                self._changed.notify_all()

    @property
    def pending(self) -> int:
        return self._numbers - self._executed

    def wait_empty(self) -> None:
        """Waits until everything is executed."""
        with self._changed:
            self._changed.wait_for(lambda: not self.pending)

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()
